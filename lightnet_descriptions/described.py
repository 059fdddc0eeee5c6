"""Ops that come from a description: the base class of the classes that `operators.load_operators` makes.

A description's constraints, bounds and parameters are those of any `LnOp` (`ir/op.py`), so that verifier, parser,
printer and JSON form are the same code. What this class adds is what built-in ops say in Python: the types of the
results, what the op computes, where it is a view, its docstring. The meaning of a described op is its definition,
evaluated by the interpreter of index notation (or of level 4, for an inline kernel): a description has no second way to
say it, and so no oracle of its own; give it `samples`, and test against something else. Imports `ir`, the interpreter
and `snippets`.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import DescriptionWarning, LightNetError
from lightnet.ir import constants, notation
from lightnet.ir.constraints import Message, constant_env, inferred
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.op import Case, LnOp
from lightnet.ir.target import is_here
from lightnet.ir.types import MAX_RANK, MAX_TENSOR_BYTES, TensorSpec
from lightnet.runtime.dtypes import BY_NAME, BY_TL, DType
from lightnet_descriptions import pages, sampling
from lightnet_descriptions.ccode import moved_error
from lightnet_descriptions.code import Code, PreRun
from lightnet_descriptions.coded import Coded
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.snippets import Names
from lightnet_trust.interpreter import notation as interpreter

if TYPE_CHECKING:
    from lightnet_descriptions import kernels

#: Bound definitions that a class remembers to be right.
MAX_KNOWN = 4096


def _definition_of(cls: type[LnOp]) -> str | None:
    """The text in index notation that defines all ops of a class; None where there is none, or one for each op."""
    found: object = cls.definition
    return found if isinstance(found, str) else None


@dataclass(frozen=True)
class ResultRule:
    """The type of one result as constant expressions: `dims` an array, `dtype` a name of ours or TensorLight's. None is
    what its code says (`DescribedMembers.code_of`), of `ndim` dimensions."""

    name: str
    dims: str | None
    dtype: str | None
    ndim: str | None


@dataclass(frozen=True)
class After:
    """A constraint that sees the results, too."""

    label: str
    text: str
    message: Message | None = None


@dataclass(frozen=True)
class DescribedView:
    """Result number `result` is the bytes of operand number `operand` from `offset` (a constant expression, or code)
    on."""

    operand: int
    result: int
    offset: str | Code


@dataclass(frozen=True)
class DescribedMembers:
    """The statements of a description beside the schema and the constraints.

    `how` says what the op computes by: ``notation``, ``kernel`` (inline MLIR), ``builtin`` (the code of a built-in op,
    which is a base of the class then), ``code`` (C that calls ops, or loops over elements), ``stands`` (as the built-in
    op that the class stands for) or ``nothing``. `code` is C that checks, `code_of` C that makes results, `running`
    that of `static_run` and `run`, `offset` that of a `calc_offset` beside these; `names` is what code may name.
    `shape_of`, `views_of`, `constants_of` and `flops_of` are built-in ops whose Python code says the types of the
    results, the views, further constants and the work.
    """

    description: Mapping[str, Any]
    author: str
    file: str
    how: str = "nothing"
    doc: str = ""
    results: tuple[ResultRule, ...] = ()
    after: tuple[After, ...] = ()
    views: tuple[DescribedView, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    shape_of: type[LnOp] | None = None
    views_of: type[LnOp] | None = None
    constants_of: type[LnOp] | None = None
    flops_of: type[LnOp] | None = None
    flops: str | None = None
    run: DescribedValue | None = None
    kernel: kernels.Template | None = None
    samples: tuple[Case, ...] = ()
    code: tuple[Code, ...] = ()
    code_of: Mapping[str, Code] = field(default_factory=dict)
    running: tuple[Code, ...] = ()
    offset: Code | None = None
    names: Names = field(default_factory=Names)
    known: set[object] = field(default_factory=set, compare=False, repr=False)


class DescribedOp(Coded):
    """Base of all described ops."""

    described: ClassVar[DescribedMembers]
    #: The built-in op that this one computes as, having no code of its own.
    stands_for: ClassVar[type[LnOp] | None] = None
    #: The built-in op of the same name, tensors and params, of one whose code is C.
    named: ClassVar[type[LnOp] | None] = None
    #: Whether it may take the place of an op that there is.
    replaces: ClassVar[bool] = False

    # -- types

    @classmethod
    def infer(cls, t: Any, p: Any) -> Sequence[TensorSpec]:
        d = cls.described
        specs = _flat(t)
        env = constants.Env(dict(zip(cls.schema.operand_names(len(specs)), specs)), vars(p))
        results = cls._results(t, p, env)
        for check in d.after:
            cls._check(check, env)
        cls._check_owners(specs, results)
        if all(_is_size(r) for r in results):  # else the checker says so
            cls._check_definition(t, p, env, results)
        return results

    @classmethod
    def _results(cls, t: Any, p: Any, env: constants.Env) -> list[TensorSpec]:
        """The types of the results, once the code of the inputs, the params and the op has run; `env` has them then."""
        d = cls.described
        if d.shape_of is not None:
            results = inferred(d.shape_of, t, p, env)
            env.tensors.update(zip(cls.schema.result_names(len(results)), results))
            return results
        if not d.code and not d.code_of:
            return [cls._result(rule, env, None) for rule in d.results]
        run = PreRun(cls, env)
        for code in d.code:
            cls.at_code(code.label, lambda code=code: code.run(run.machine))
        found = []
        for rule in d.results:
            found.append(cls._result(rule, env, run))
            if _is_size(found[-1]):
                run.add(rule.name, found[-1])
        return found

    @classmethod
    def _result(cls, rule: ResultRule, env: constants.Env, run: PreRun | None) -> TensorSpec:
        """The type of one result, which later ones may refer to."""
        label = f"{rule.name}.dims"
        dims = None if rule.dims is None else cls._value(label, rule.dims, env)
        named = None if rule.dtype is None else cls._value(f"{rule.name}.dtype", rule.dtype, env)
        code = cls.described.code_of.get(rule.name)
        if code is not None and run is not None:
            ndim = None if rule.ndim is None else cls._value(f"{rule.name}.rank", rule.ndim, env)
            dims, named = cls.at_code(code.label, lambda: run.result(rule.name, code, dims, ndim, named))
        if not isinstance(dims, tuple) or not all(map(_is_number, dims)):
            shown = constants.show_value(dims)
            raise cls._error(
                f"{rule.name}.dims", f"the dims of its result `{rule.name}` are {shown}, no array of numbers"
            )
        dtype = _dtype(named)
        if dtype is None:
            raise cls._error(f"{rule.name}.dtype", f"the dtype of its result `{rule.name}` is no dtype: {rule.dtype}")
        spec = env.tensors[rule.name] = TensorSpec(tuple(int(d) for d in dims), dtype)
        return spec

    @classmethod
    def _check(cls, check: After, env: constants.Env) -> None:
        try:
            failed = constants.failure(check.text, env)
        except LightNetError as e:
            raise cls._error(check.label, e.message) from None
        if failed is None:
            return
        said = f': "{check.message.text(env)}"' if check.message is not None else f' "{check.text}": {failed}'
        raise cls._error(check.label, f"should satisfy{said}")

    @classmethod
    def _check_owners(cls, operands: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> None:
        names = [o.name for o in cls.schema.operands]
        for field_, spec in zip(cls.schema.results, results):
            if field_.overwrites and field_.owner is not None and operands[names.index(field_.owner)] != spec:
                raise cls._error(
                    f"{field_.name}.owner",
                    f"`{field_.name}` ({spec}) is written over `{field_.owner}`, which has another type",
                )

    @classmethod
    def _check_definition(cls, t: Any, p: Any, env: constants.Env, results: Sequence[TensorSpec]) -> None:
        """The views lie inside of their owners, and the definition binds (its indices stay inside, its types agree)."""
        d = cls.described
        if not d.views and d.how not in ("notation", "kernel", "stands", "code"):
            return
        key = (tuple(env.tensors.items()), repr(sorted(env.params.items(), key=str)))
        if key in d.known:
            return
        for view in d.views:
            cls._check_view(view, env)
        if d.how == "kernel":
            assert d.kernel is not None
            d.kernel.function(env, list(env.tensors.values()))
        elif d.how == "notation":
            cls._bind(
                constants.Env(env.tensors, {**env.params, **cls.derived(t, p)}), len(results), _definition_of(cls) or ""
            )
        elif d.how == "code" and (text := cls._written(env)) is not None:
            cls._bind(env, len(results), text)
        elif d.how in ("stands", "code"):
            cls._check_graph(env, results)
        if len(d.known) >= MAX_KNOWN:
            d.known.clear()
        d.known.add(key)

    @classmethod
    def _check_view(cls, view: DescribedView, env: constants.Env) -> None:
        """The result lies in whole elements, of its own type, inside of its owner."""
        specs = list(env.tensors.values())
        owner, name = specs[view.operand], cls.schema.results[view.result].name
        spec = env.tensors[name]
        offset = cls._offset(view.offset, name, cls.schema.operands[view.operand].name, env)
        if not _is_number(offset) or offset != int(offset) or int(offset) % owner.dtype.size:
            shown = constants.show_value(offset)
            raise cls._error(f"{name}.calc-offset", f"the offset of `{name}` is {shown}, no whole number of elements")
        if spec.dtype != owner.dtype or offset < 0 or offset + spec.nbytes > owner.nbytes:
            what = f"`{name}` ({spec}) at byte {int(offset)} does not lie inside of its owner ({owner})"
            raise cls._error(f"{name}.calc-offset", what)

    @classmethod
    def _bind(cls, env: constants.Env, results: int, definition: str) -> None:
        variadic = cls.schema.variadic_operand
        if variadic is not None:
            used = set(re.findall(r"\w+", definition))
            unread = [n for n in cls.schema.operand_names(len(env.tensors) - results) if n not in used]
            if unread:
                raise cls._error("run", f"its definition never reads `{unread[0]}`")
        try:
            notation.bind(notation.parse(definition), env.tensors, env.params, cls.schema.result_names(results))
        except LightNetError as e:
            error = cls._error(
                "run", f"its definition does not fit {', '.join(map(str, env.tensors.values()))}: {e.message}"
            )
            if cls.described.run is not None:
                error.notes.append((moved_error(e, cls.described.run).loc, "here, in its description"))
            raise error from None

    @classmethod
    def derived(cls, t: Any, p: Any) -> Mapping[str, Any]:
        d = cls.described
        found = dict(super().derived(t, p))
        if d.constants_of is not None:
            found |= d.constants_of.derived(t, p)
        if d.constants:
            specs = _flat(t)
            env = constants.Env(dict(zip(cls.schema.operand_names(len(specs)), specs)), {**vars(p), **found})
            for name, text in d.constants:
                found[name] = env.params[name] = cls._value(name, text, env)
        if views := [v for v in d.views if isinstance(v.offset, Code)]:
            specs = _flat(t)
            names = [o.name for o in cls.schema.operands]
            env = constants.Env(dict(zip(cls.schema.operand_names(len(specs)), specs)), vars(p))
            cls._results(t, p, env)
        for view in views:
            name, owner = cls.schema.results[view.result].name, names[view.operand]
            found[f"{name}_start"] = int(cls._offset(view.offset, name, owner, env)) // specs[view.operand].dtype.size
        return found

    def verify_(self) -> None:
        super().verify_()
        self.check_roles()

    # -- execution

    def evaluate(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        d = self.described
        if not isinstance(self.parent_op(), KernelOp) and not is_here(self.arch):  # a kernel has said it
            text = f"{self.optype} is an op of '{self.arch}', which is not here"
            text += ": the interpreter computes it by its definition"
            warnings.warn(text, DescriptionWarning, stacklevel=2)
        if d.how == "builtin":
            return super().evaluate(operands)
        if d.how == "stands" or (d.how == "code" and self.definition is None):
            from lightnet_descriptions import graphs

            return graphs.evaluate_ops(self, operands)
        if d.how == "nothing":
            raise LightNetError(
                f"{self._who()}: 'run' not defined: its description says nothing that could be computed", loc_of(self)
            )
        if d.how == "kernel":
            assert d.kernel is not None
            return d.kernel.evaluate(self, operands)
        names, results = self.arg_names()
        env = self.env()
        assert self.definition is not None
        bound = notation.bind(notation.parse(self.definition), env.tensors, env.params, results)
        found = interpreter.evaluate_definition(bound, dict(zip(names, operands)))
        return [found[name] for name in results]

    def reference(self, *operands: np.ndarray) -> Any:
        """The meaning of the op's own definition."""
        return super().reference(*operands) if self.described.how == "builtin" else tuple(self.evaluate(operands))

    @classmethod
    def refusal(cls, target: str) -> str | None:
        if cls.described.how == "nothing":
            return "its description has no 'run'"
        return super().refusal(target)

    def build_loops(self, b: Any, operands: Sequence[SSAValue], results: Sequence[SSAValue], workspace: Any) -> None:
        if self.described.kernel is None:
            return super().build_loops(b, operands, results, workspace)
        return self.described.kernel.inline(self, b, [*operands, *results], workspace)

    def workspace_bytes(self) -> int:
        kernel = self.described.kernel
        return super().workspace_bytes() if kernel is None else kernel.workspace_bytes(self)

    def views(self) -> Iterator[tuple[int, int, int]]:
        d = self.described
        if d.views_of is not None:
            yield from d.views_of.views(self)
        elif not d.views:
            yield from super().views()
        env = self.env() if d.views else None
        for view in d.views:
            names = self.arg_names()
            yield (
                view.operand,
                view.result,
                int(self._offset(view.offset, names[1][view.result], names[0][view.operand], env)),
            )

    def flops(self) -> int:
        d = self.described
        if d.flops_of is not None:
            counts = d.flops_of.flops is not LnOp.flops
            return d.flops_of.flops(self) if counts else d.flops_of.work * super().flops()
        if d.flops is None and d.how in ("stands", "code") and self.definition is None:
            from lightnet_descriptions import graphs

            return graphs.graph_flops(self)
        if d.flops is None:
            return super().flops()
        value = constants.evaluate(
            d.flops, constant_env(type(self), self.operand_specs, self.param_values(), self.result_specs)
        )
        return max(0, int(value)) if _is_number(value) else 0

    # -- test cases and documentation

    @classmethod
    def samples(cls) -> list[Case]:
        d = cls.described
        if not d.samples and d.how == "nothing":
            return []
        if d.samples or d.how == "builtin":
            return list(d.samples) or super().samples()
        stand = cls.stands_for
        if stand is not None and [o.name for o in stand.schema.operands] == [o.name for o in cls.schema.operands]:
            return stand.samples()
        return [] if cls.is_host else sampling.described_cases(cls)


class LazyDoc:
    """The docstring of a described class, made when somebody reads it: its example is a test case that was looked
    for."""

    def __get__(self, op: object, owner: type[DescribedOp]) -> str:
        text = pages.docstring(owner)
        owner.__doc__ = text
        return text


def _flat(t: SimpleNamespace) -> list[TensorSpec]:
    """The operand types in order, from the namespace that `infer` gets."""
    return [s for v in vars(t).values() for s in ((v,) if isinstance(v, TensorSpec) else v)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_size(spec: TensorSpec) -> bool:
    """Return whether the checker of results lets it pass."""
    size = math.prod(d for d in spec.dims if d) * spec.dtype.size
    return spec.ndim <= MAX_RANK and all(d >= 0 for d in spec.dims) and size <= MAX_TENSOR_BYTES


def _dtype(name: Any) -> DType | None:
    return (BY_NAME.get(name) or BY_TL.get(name)) if isinstance(name, str) else None
