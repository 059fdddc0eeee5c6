"""The scope of the texts of a rule: its variables, the tensors that they name, and expressions over them.

An expression is a constant expression of `ir/expr.py` whose names ``$0``, ``$1`` … are atoms: accessors, topology
conditions and directives, each of a known kind and read when it is asked for. `accessors.py` parses them. Imports `ir`
and the modules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, near
from lightnet.dialects.ln.dialect import find_op
from lightnet.dialects.ln.source import Source
from lightnet.ir.constants import Env, Value, compile_constant
from lightnet.ir.expr import Expr, Name
from lightnet.ir.kernel import CompositeKernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.registry import KERNELS
from lightnet.ir.schema import Param
from lightnet_descriptions import tensors
from lightnet_descriptions.reader import DescribedValue

#: The ops that the variables of a rule stand for.
Ops = Mapping[str, LnOp]
#: What reads the value of an accessor.
Read = Callable[[Ops], Value]


@dataclass(frozen=True)
class Var:
    """The meaning of a variable: the classes that the op may have (none: any op); or, where it is `open`, a kernel
    whose arguments and parameters have the names that a rule gives them."""

    name: str
    classes: tuple[type[LnOp], ...]
    open: bool = False

    def args(self, section: str) -> set[str] | None:
        """The argument names that every class has in a section, without the numbers of variadic ones; None for any
        op."""
        if not self.classes:
            return None
        fields = {"ins": "operands", "outs": "results", "params": "params"}[section]
        return set.intersection(*({f.name for f in getattr(c.schema, fields)} for c in self.classes))

    def variadic(self, section: str) -> str | None:
        """The name of the variadic operand or result, which stands before a number."""
        kind = {"ins": "variadic_operand", "outs": "variadic_result"}.get(section)
        if kind is None or len(self.classes) != 1:
            return None
        found = getattr(self.classes[0].schema, kind)
        return found.name if found is not None else None

    def param(self, arg: str) -> Param:
        return self.classes[0].schema.by_name[arg]


class Optype(NamedTuple):
    """The class of an optype, and the arch of the kernel around it (None: no kernel); without a class it is that arch's
    kernel itself."""

    cls: type[LnOp] | None
    arch: str | None


@dataclass(frozen=True)
class RuleScope:
    """The names of the texts of a rule. `optypes` finds the classes behind an optype, of `arch` or of none."""

    arch: str
    variables: dict[str, Var]
    optypes: Mapping[str, type[LnOp]] = field(default_factory=dict)

    def with_vars(self, *variables: Var) -> RuleScope:
        return RuleScope(self.arch, {**self.variables, **{v.name: v for v in variables}}, self.optypes)

    def optype(self, text: str) -> Optype | None:
        """The op type that an optype names: an op of arch none, one in a kernel of an arch (``relu_cpu``), or a kernel
        (``tensorrt``)."""
        if text in KERNELS and issubclass(KERNELS.get(text), CompositeKernelOp):
            return Optype(None, text)
        if (cls := find_op(text, self.optypes)) is not None:
            stand = getattr(
                cls, "stands_for", None
            )  # of what enters or leaves a network, a description checks parameters only
            known = stand if stand is not None and (stand.is_host or issubclass(stand, Source)) else cls
            return Optype(known, None if cls.arch == "none" else cls.arch)
        base, _, suffix = text.rpartition("_")
        cls = find_op(base, self.optypes) if suffix in KERNELS else None
        return None if cls is None else Optype(cls, suffix)


class TensorRef(NamedTuple):
    """``VAR.ins[ARG]`` or ``VAR.outs[ARG]``."""

    var: str
    section: str
    arg: str | int

    def value(self, ops: Ops) -> SSAValue:
        return tensors.value_at(ops[self.var], self.section, self.arg)

    def __str__(self) -> str:
        return f"{self.var}.{self.section}[{self.arg}]"


class Atom(NamedTuple):
    """An accessor, a topology condition or a directive in an expression: its kind, and what reads it."""

    kind: str
    read: Read
    tensor: TensorRef | None = None


class _Values(Mapping[str, Any]):
    """The values of an expression's atoms under the names ``$0``, ``$1`` …, each read when it is asked for."""

    def __init__(self, atoms: Sequence[Atom], ops: Ops):
        self.atoms, self.ops = atoms, ops

    def __getitem__(self, name: str) -> Value:
        return self.atoms[int(name[1:])].read(self.ops)

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return (f"${i}" for i in range(len(self.atoms)))

    def __len__(self) -> int:
        return len(self.atoms)


@dataclass(frozen=True)
class Expression:
    """An expression of a description: its text with its place, and its kind (`kinds.py`)."""

    item: DescribedValue
    pos: int
    expr: Expr
    atoms: list[Atom]
    kind: str
    used: set[str]  # the variables in it

    @property
    def tensor(self) -> TensorRef | None:
        """The tensor that it names, if it does nothing else."""
        return self.atoms[int(self.expr.name[1:])].tensor if isinstance(self.expr, Name) else None

    def value(self, ops: Ops) -> Value:
        """Its value for these ops. Raises `LightNetError` at its place (a subscript out of range)."""
        try:
            return evaluate_over(self.expr, self.atoms, ops)
        except LightNetError as e:
            raise self.item.error_at(self.pos, e.message, e.label) from None


def evaluate_over(e: Expr, atoms: Sequence[Atom], ops: Ops) -> Value:
    """The value of an expression over `atoms` for these ops."""
    return compile_constant(e)(Env({}, _Values(atoms, ops)))


def unknown_optype(text: str, scope: RuleScope) -> str:
    """The message about an optype that is neither in the op table nor one of the arch's own."""
    base, _, suffix = text.rpartition("_")
    if base in scope.optypes:
        return f"unknown optype '{text}': there is no arch '{suffix}'; there are: {', '.join(KERNELS)}"
    return f"unknown optype '{text}'{near(text, scope.optypes)}"
