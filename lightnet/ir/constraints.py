"""Checking what an `ln` op declares: counts, ranks, types, parameters, bounds, labelled constraints, result types.

The verifier, the builders and the importers all end here. Error texts follow upstream's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir.params import ParamValue, ptype_of
from lightnet.ir.schema import Param
from lightnet.ir.types import MAX_RANK, MAX_TENSOR_BYTES, TensorSpec, spec_of
from lightnet.runtime.dims import Undecided, greatest, least

if TYPE_CHECKING:
    from lightnet.ir.op import LnOp


class ConstraintError(LightNetError, VerifyException):
    """A violated constraint of an op; a `VerifyException` too, so that xDSL's own tools report it."""


class Message(NamedTuple):
    """The text of an error instead of that of a constraint: a format as C's `printf`, and constant expressions for
    the values in it."""

    format: str
    args: tuple[str, ...]

    def text(self, env: constants.Env) -> str:
        """The message for an op whose constants are `env`; a value is shown as what it is, whatever its format says."""
        values = iter(self.args)

        def value(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%"
            shown = next(values, None)
            if shown is None:
                return match[0]
            got = constants.evaluate(shown, env)
            return got if isinstance(got, str) else constants.show_value(got)

        return _FORMAT.sub(value, self.format)


_FORMAT = re.compile(r"%%|%[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[diuoxXfFeEgGcsp]", re.ASCII)


def operand_spec(cls: type[LnOp], index: int, value: SSAValue, name: str | None) -> TensorSpec:
    try:
        return spec_of(value.type)
    except TypeError as e:
        who = f"{cls.optype}: `{name}`" if name else cls.optype
        raise ConstraintError(f"{who}: operand {index}: {e}", label=f"{cls.optype}.operand-type") from None


def constant_env(
    cls: type[LnOp],
    operands: Sequence[TensorSpec],
    params: Mapping[str, ParamValue],
    results: Sequence[TensorSpec] = (),
) -> constants.Env:
    """The constants that checks, bounds and definitions of an op may name."""
    schema = cls.schema
    tensors = dict(zip(schema.operand_names(len(operands)), operands))
    tensors.update(zip(schema.result_names(len(results)), results))
    return constants.Env(tensors, {k: schema.by_name[k].read(v) for k, v in params.items()})


def check_op(
    cls: type[LnOp], operands: Sequence[TensorSpec], params: dict[str, ParamValue], name: str | None = None
) -> list[TensorSpec]:
    """Check everything that an op declares and return its result types; fills defaults into `params`.

    Order as upstream's: inputs (count, rank, type, shape), parameters (count, type, length, bounds), the op's checks.
    What was found right once is not checked again: making an op and verifying it ask for the same.
    """
    if not operands:  # a source, whose contents may be long
        return _Checker(cls, name).run(operands, params)
    key = cls, tuple(operands), repr(params)  # the text tells 1 from 1.0 and True
    if (found := _right.get(key)) is None:
        results = _Checker(cls, name).run(operands, params)
        if len(_right) >= _MOST_RIGHT:
            _right.clear()
        found = _right[key] = tuple(results), dict(params)
    params.update(found[1])
    return list(found[0])


def inferred(cls: type[LnOp], t: Any, p: Any, env: constants.Env) -> list[TensorSpec]:
    """`infer` of an op class where its labelled constraints hold. Raises `ConstraintError` where they do not."""
    return _Checker(cls, None).results(t, p, env)


#: What `check_op` found of ops that are right, by op class, operands and parameters: result types, and parameters with
#: defaults.
_right: dict[tuple[type[LnOp], tuple[TensorSpec, ...], str], tuple[tuple[TensorSpec, ...], dict[str, ParamValue]]] = {}
_MOST_RIGHT = 1 << 12


class _Checker:
    def __init__(self, cls: type[LnOp], name: str | None):
        self.cls, self.schema = cls, cls.schema
        self.name = f"`{name}`" if name else "it"
        self.who = f"{cls.optype}: `{name}`" if name else cls.optype

    def fail(self, label: str, text: str) -> ConstraintError:
        return ConstraintError(text, label=f"{self.cls.optype}.{label}")

    def run(self, operands: Sequence[TensorSpec], params: dict[str, ParamValue]) -> list[TensorSpec]:
        self.check_operands(operands)
        self.check_param_types(params)
        env = constant_env(self.cls, operands, params)
        for p in self.schema.params:
            self.check_bounds(p, params[p.name], env)
        return self.results(self.schema.named_operands(operands), self.schema.read_params(params), env)

    def results(self, t: Any, p: Any, env: constants.Env) -> list[TensorSpec]:
        for label, text in self.cls.checks.items():
            self.check_expr(label, text, env)
        results = list(self.cls.infer(t, p))
        for spec in results:
            self.check_size(spec)
        lengths = constants.evaluate(self.cls.picks, env) if self.cls.picks is not None else ()
        if isinstance(lengths, tuple) and 0 in lengths and results[0].len:
            raise self.fail("not-empty", f"{self.who}: {next(iter(vars(t).values()))} has no elements to pick from")
        return results

    def check_operands(self, operands: Sequence[TensorSpec]) -> None:
        fixed = sum(not o.variadic for o in self.schema.operands)
        variadic = self.schema.variadic_operand is not None
        if len(operands) <= fixed if variadic else len(operands) != fixed:
            need = f"at least {fixed + 1}" if variadic else str(fixed)
            raise self.fail("operand-count", f"{self.who} needs {need} input tensors, but gets {len(operands)}")
        tensors = dict(zip(self.schema.operand_names(len(operands)), operands))
        for field_, (arg, spec) in zip(self.schema.operand_fields(len(operands)), tensors.items()):
            what = f"{self.who}'s tensor `{arg}`"
            if field_.rank is not None and spec.ndim != field_.rank:
                raise self.fail(
                    f"{field_.name}.rank", f"{what} should be a {field_.rank}-dimensional tensor, but gets {spec}"
                )
            if spec.ndim < field_.min_rank:
                raise self.fail(
                    f"{field_.name}.rank", f"{what} should have at least {field_.min_rank} dimensions, but gets {spec}"
                )
            if field_.dtypes and spec.dtype.name not in field_.dtypes:
                raise self.fail(
                    f"{field_.name}.dtype",
                    f"{what}'s dtype should be {' or '.join(field_.dtypes)}, but gets a {spec.dtype}",
                )
            if spec.dtype.is_stored and not (field_.dtypes or self.cls.is_move or self.cls.takes_bits):
                raise self.fail(
                    f"{field_.name}.dtype",
                    f"{what} should be of a type to compute in, but gets {spec}: ln.bitcast reads its bytes as ui8",
                )
            same_type, same_shape = field_.same_type, field_.same_shape
            if same_type and spec.dtype != tensors[same_type].dtype:
                raise self.fail(
                    f"{field_.name}.same-type",
                    f"{self.who}'s tensor `{arg}` ({spec}) and tensor "
                    f"`{same_type}` ({tensors[same_type]}) should have the same data type",
                )
            if same_shape and spec.dims != tensors[same_shape].dims:
                raise self.fail(
                    f"{field_.name}.same-shape",
                    f"{self.who}'s tensor `{arg}` ({spec}) and tensor "
                    f"`{same_shape}` ({tensors[same_shape]}) should have the same shape",
                )

    def check_param_types(self, params: dict[str, ParamValue]) -> None:
        for p in self.schema.params:
            if p.name not in params:
                if p.default is ...:
                    unknown = [name for name in params if name not in self.schema.by_name]
                    instead = f", and has none called `{unknown[0]}`" if unknown else ""
                    raise self.fail(f"{p.name}.missing", f"{self.who} needs a `{p.name}` param{instead}")
                params[p.name] = p.default
            if (got := ptype_of(params[p.name])) != p.ptype:
                raise self.fail(
                    f"{p.name}.type",
                    f"{self.who}'s `{p.name}` param's value should be of type {p.ptype}, but gets a {got}",
                )
        for key in params:
            if key not in self.schema.by_name:
                raise self.fail(
                    "unknown-param",
                    f"{self.who} has no `{key}` param; there are: {', '.join(self.schema.by_name) or 'none'}",
                )

    def check_bounds(self, p: Param, value: ParamValue, env: constants.Env) -> None:
        what = f"{self.who}'s `{p.name}` param"
        values = value if isinstance(value, tuple) else (value,)
        if p.length is not None:
            need = self.constant(p.length, env, f"{p.name}.length")
            if len(values) != need:
                raise self.fail(f"{p.name}.length", f"{what} needs {need} elements, but gets {len(values)} elements")
        for choice in values:
            if p.choices and choice not in p.choices:
                raise self.fail(
                    f"{p.name}.value", f'{what}\'s value should be one of {", ".join(p.choices)}, but gets "{choice}"'
                )
        read = p.read(value)
        elements = read if isinstance(read, tuple) else (read,)
        for op, bound in p.bounds:
            limit = self.constant(bound, env, f"{p.name}.{op}")
            for i, element in enumerate(elements):
                if not _COMPARE[op](element, limit):
                    where = f"{what}[{i}]'s value" if isinstance(read, tuple) else f"{what}'s value"
                    raise self.fail(f"{p.name}.{op}", f"{where} should be {_SIGN[op]} {limit}, but gets a {element}")

    def check_expr(self, label: str, text: str, env: constants.Env) -> None:
        try:
            failed = constants.failure(text, env)
            message = self.cls.messages.get(label)
            said = message.text(env) if failed is not None and message is not None else None
        except Undecided as e:
            raise Undecided(
                e.dim, f'{self.who} should satisfy "{text}" in every call: {e.message}', e.is_same
            ) from None
        except LightNetError as e:  # a subscript outside of its array
            raise self.fail(label, f'{self.who} should satisfy "{text}": {e.message}') from None
        if failed is None:
            return
        if said is not None:
            raise self.fail(label, f'{self.who} should satisfy: "{said}"')
        is_all = failed.is_comparison and failed.text == text
        raise self.fail(
            label, f'{self.who} should satisfy "{text}"' + (f", but gets {failed.sides}" if is_all else f": {failed}")
        )

    def check_size(self, spec: TensorSpec) -> None:
        if spec.ndim > MAX_RANK:
            raise self.fail("result-rank", f"{self.who}'s result {spec} should have at most {MAX_RANK} dimensions")
        for d in spec.dims:
            if least(d) < 0 <= greatest(d):
                raise Undecided(d, f"{self.who}'s result {spec} needs a dim that is not negative")  # type: ignore[arg-type]
        if any(least(d) < 0 for d in spec.dims):
            raise self.fail("result-dims", f"{self.who}'s result {spec} should have no negative dimensions")
        size = (
            prod(max(greatest(d), 1) for d in spec.dims) * spec.dtype.size
        )  # an empty tensor's other dims are bounded, too
        if size > MAX_TENSOR_BYTES:
            raise self.fail(
                "result-size",
                f"{self.who}'s result {spec} takes {size} bytes, more than the limit of {MAX_TENSOR_BYTES}",
            )

    def constant(self, value: float | str, env: constants.Env, label: str) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found = constants.evaluate(value, env)
        except LightNetError as e:
            raise self.fail(label, f'{self.who}\'s bound "{value}": {e.message}') from None
        if not isinstance(found, constants.NUMBER):
            raise self.fail(label, f'{self.who}\'s bound "{value}" is no number: {constants.show_value(found)}')
        return found


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b, "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip
_SIGN = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}
