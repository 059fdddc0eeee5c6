"""The use that a described op makes of the C of its description: errors with its place, the graph of ops that it is,
offsets, and where operands come from.

`DescribedOp` has these from here. Imports `code`, `ir` and the `ln` dialect; `graphs` when an op is made that has code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from xdsl.ir import SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Create, Input, ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import constants
from lightnet.ir.constraints import ConstraintError, constant_env
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp, tensor_name
from lightnet.ir.types import TensorSpec
from lightnet_descriptions.code import Code, Unsatisfied

if TYPE_CHECKING:
    from lightnet_descriptions.described import DescribedOp

T = TypeVar("T")


class Coded(LnOp):
    """Base of `DescribedOp`: what needs the code of a description."""

    described: ClassVar[Any]

    @classmethod
    def _error(cls, label: str, message: str) -> ConstraintError:
        return ConstraintError(f"{cls.optype}: {message}", label=f"{cls.optype}.{label}")

    @classmethod
    def _value(cls, label: str, text: str, env: constants.Env) -> Any:
        try:
            return constants.evaluate(text, env)
        except LightNetError as e:
            raise cls._error(label, f"'{text}': {e.message}") from None

    @classmethod
    def at_code(cls, label: str, action: Callable[[], T]) -> T:
        """The result of `action`, which runs code of the description; its errors are the op's, with a note of the
        place."""
        try:
            return action()
        except LightNetError as e:
            error = cls._error(label, f'should satisfy: "{e.message}"' if isinstance(e, Unsatisfied) else e.message)
            run = cls.described.run
            error.notes.append((e.loc or (run.loc if run is not None else None), "here, in its description"))
            raise error from None

    @classmethod
    def _written(cls, env: constants.Env) -> str | None:
        """The index notation that the loops of the op's C are; None where it calls ops."""
        from lightnet_descriptions import graphs

        return "\n".join(cls.at_code("run", lambda: graphs.run_code(cls, env)).statements) or None

    @classmethod
    def _check_graph(cls, env: constants.Env, results: Sequence[TensorSpec]) -> None:
        """The ops that it is take its operands, and give its results; where it writes in place, there it lies."""
        from lightnet_descriptions import graphs

        d = cls.described
        params = {p.name: env.params[p.name] for p in cls.schema.params if p.name in env.params}
        cls.at_code("run", lambda: graphs.check_ops(cls, env, params, results))
        for r in cls.schema.results if d.offset is not None else ():
            if r.owner is not None and cls._offset(d.offset, r.name, r.owner, env) != 0:
                raise cls._error(
                    "calc-offset", f"`{r.name}` is written in place, and its offset is not that of `{r.owner}`"
                )

    @classmethod
    def _offset(cls, offset: str | Code, result: str, owner: str, env: constants.Env) -> Any:
        """The bytes of `owner` in front of a result."""
        if isinstance(offset, str):
            return cls._value(f"{result}.calc-offset", offset, env)
        from lightnet_descriptions.offsets import distance

        return cls.at_code(f"{result}.calc-offset", lambda: distance(offset, cls, env, result, owner))

    def decomposition(self) -> tuple[list[LnOp], list[SSAValue]] | None:
        """The ops that this one is, and the values that its results are; None for one that is computed by itself."""
        if self.described.how not in ("stands", "code") or self.definition is not None:
            return None
        from lightnet_descriptions import graphs

        return graphs.decomposed(self)

    def check_roles(self) -> None:
        for o, value in zip(self.schema.operand_fields(len(self.operands)), self.operands):
            info = self.described.names.inputs.get(o.name)
            if info is not None and info.static is not None and (found := is_static(value)) not in (None, info.static):
                raise ConstraintError(
                    f"{self._who()}'s tensor `{o.name}` should {'' if info.static else 'not '}be static, but "
                    f"`{tensor_name(value) or o.name}` is {'' if found else 'not'}",
                    label=f"{self.optype}.{o.name}.static",
                )


def written_definition(op: DescribedOp) -> str | None:
    """The index notation of an op whose C has loops over elements; None where it calls ops."""
    return op.remembered(_definition_of)


def _definition_of(op: DescribedOp) -> str | None:
    return type(op)._written(constant_env(type(op), op.operand_specs, op.param_values(), op.result_specs))


def is_static(value: SSAValue) -> bool | None:
    """Return whether a tensor is the same in every run; None where that is not known (yet), inside of kernels, or is as
    one takes it: the tensor of a `create` that is an input, or that `bind` may make one."""
    made = value.owner
    if (isinstance(made, Create) and not made.from_file) or (isinstance(made, Input) and not made.required):
        return None  # what upstream calls static, and a caller may feed
    if isinstance(made, KernelOp):
        return is_static(made.terminator.operands[value.index])  # type: ignore[union-attr]
    if isinstance(made, OnceOp | ParamOp | Create):
        return True
    if not isinstance(made, LnOp):
        return None
    field_ = made.schema.results[min(value.index, len(made.schema.results) - 1)]  # type: ignore[union-attr]
    return field_.static and not isinstance(made, Input)
