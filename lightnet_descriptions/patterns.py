"""Rewrite patterns out of a description: what is matched, and the rules that say what becomes of it.

`DescribedExpander` asks the rules of one optype about each op of it; `DescribedMatch` finds several ops that are joined
as the description's edges say, through kernels, starting from the last of them. The classes of a file are made from
these two in `optimizer.py`. Imports xDSL, `ir`, the `ln` dialect and the modules beside it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from lightnet.diagnostics import InternalWarning, LightNetError, SourceLoc
from lightnet.dialects.ln.source import Create, Source
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import MTYPE
from lightnet.ir.op import LnOp
from lightnet.ir.rewrites import FilePattern
from lightnet.ir.target import get_target
from lightnet_descriptions import rewriting
from lightnet_descriptions.details import NewOp, Renamed, Replacement
from lightnet_descriptions.fusion import fuse_kernels
from lightnet_descriptions.matching import MatchStep, solutions
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.scope import Expression, Ops, TensorRef
from lightnet_descriptions.tensors import kernel_of, origin, value_at

#: A pattern with ``ins[*]`` tries at most so many ways to match from one op, and looks at most at so many operands for
#: them.
MAX_TRIES, MAX_LOOKS = 256, 1 << 14


@lru_cache(4096)
def _names_of(classes: frozenset[type[LnOp]]) -> frozenset[str]:
    """The names of classes. Rules tell ops by these: one of ours and one that takes its place have the same."""
    return frozenset(cls.name for cls in classes)


class Leave:
    """`match`: false."""


@dataclass(frozen=True)
class Fuse:
    """`fuse`: true. `named`: the rule says the optypes of all its ops."""

    named: bool


@dataclass(frozen=True)
class Refuse:
    """`err`."""

    message: str


@dataclass(frozen=True)
class Rule:
    """One rule: conditions that are OR-ed (none: always), a warning, and what is done."""

    item: DescribedValue
    conditions: tuple[Expression, ...]
    action: Leave | Fuse | Refuse | Renamed | Replacement
    warning: str | None = None


class DescribedPattern(FilePattern):
    """The common part of both kinds. `name` is ``<description>.<optype or rule>``."""

    arch: ClassVar[str]
    #: Where the entry stands.
    item: ClassVar[DescribedValue]

    def __init__(self) -> None:
        rewriting.forget_names()  # patterns are made when a pass begins

    def at_op(self, op: LnOp) -> tuple[SourceLoc | None, str]:
        """The note of an error about a rule that says at which op it was asked."""
        return loc_of(op), f"in pattern '{self.name}', at this op"

    def holds(self, rule: Rule, ops: Ops) -> bool:
        """Return whether the conditions of a rule hold."""
        try:
            return not rule.conditions or any(c.value(ops) for c in rule.conditions)
        except LightNetError as e:
            e.notes.append(self.at_op(list(ops.values())[-1]))
            raise

    def apply(self, rule: Rule, ops: Ops, anchor: LnOp, rewriter: PatternRewriter) -> bool:
        """Do what `rule` says; whether anything was done. Errors are at the op, and note the rule."""
        try:
            done = self.act(rule, ops, anchor, rewriter)
        except LightNetError as e:
            where = loc_of(anchor)
            if e.loc is None:  # of no text in particular: the rule is wrong for these ops
                e = rule.item.error(e.message, e.label)
            if e.loc != where:
                e.notes.append((where, f"in pattern '{self.name}', at `{anchor.op_name or anchor.optype}`"))
            raise e from e.__cause__
        if rule.warning is not None and (done or isinstance(rule.action, Leave)):
            warnings.warn(InternalWarning(rule.warning, loc_of(anchor)), stacklevel=2)
        return done

    def act(self, rule: Rule, ops: Ops, anchor: LnOp, rewriter: PatternRewriter) -> bool:
        match rule.action:
            case Refuse(message=message):
                who = f"{anchor.optype}: `{anchor.op_name}`" if anchor.op_name else anchor.optype
                notes: list[tuple[SourceLoc | None, str]] = [(rule.item.loc, "the rule that refuses it")]
                raise LightNetError(f"{who}: {message}", loc_of(anchor), self.name, notes=notes)
            case Fuse(named=named):
                return fuse_kernels(ops, get_target(self.arch), rewriter, rule.item, named=named)
            case Renamed() as to:
                if isinstance(anchor, Source) or anchor.is_host:
                    return rewriting.stand_in(anchor, get_target(to.arch or self.arch), get_target(self.arch))
                arch = self.kernel_arch(to.arch, anchor)
                if to.cls.arch == arch:
                    arch = None  # `expand` puts a kernel around it, or around what it is a graph of
                target = get_target(arch or self.arch)
                if arch == self.arch and type(anchor) is to.cls and rewriting.refusal(anchor, target) is not None:
                    return False  # `expand` lists what the target cannot run
                rewriting.rename_op(to, anchor, rewriter, target.kernel_op if arch is not None else None)
                return True
            case Replacement() as what:
                arches = {n.var: self.kernel_arch(n.arch, anchor) for n in what.new_ops}
                plain = {n.var for n in what.new_ops if isinstance(n, NewOp) and self.kernel_here(n, anchor)}
                wrapped = {var: get_target(arch) for var, arch in arches.items() if arch is not None and var in plain}
                return rewriting.replace(what, ops, anchor, rewriter, get_target(self.arch), wrapped)
        return False

    @staticmethod
    def kernel_here(new: NewOp, anchor: LnOp) -> bool:
        """Return whether a kernel is put around a new op here: around an arch's own op `expand` does that, or around
        what it is a graph of.
        """
        return issubclass(new.cls, Source) or new.cls.arch == "none" or kernel_of(anchor) is not None

    def kernel_arch(self, arch: str | None, anchor: LnOp) -> str | None:
        """The arch of the kernel that a new op gets, if it gets one: in `expand` that of its optype, at level 2 the
        description's at least. Raises `LightNetError` for one whose kernels have no place in a network of the
        description's."""
        arch = arch or (self.arch if kernel_of(anchor) is not None else None)
        if arch not in (None, self.arch, *get_target(self.arch).arches):
            raise LightNetError(f"a network for target '{self.arch}' holds no kernels of '{arch}'")
        return arch


class DescribedExpander(DescribedPattern):
    """The rules of one optype, in order: the first that holds is applied."""

    cls: ClassVar[type[LnOp]]
    #: The memory type of sources that the rules are for, where the optype says one (``create_cuda``).
    mtype: ClassVar[str | None] = None
    rules: ClassVar[tuple[Rule, ...]]
    complete: ClassVar[bool] = False

    @property
    def places(self) -> bool:
        """True if the rules say where what enters or leaves the network stands, which is all that becomes of it."""
        return issubclass(self.cls, Source) or self.cls.is_host

    def is_for(self, op: Operation) -> bool:
        """Return whether an op is of the optype: another class may have taken its place, and `bind` made an input or a
        param of a `create`.
        """
        return op.name == self.cls.name or (self.cls.name == Create.name and isinstance(op, Source))

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not self.is_for(op) or not isinstance(op, LnOp):
            return
        said = op.attributes.get(MTYPE)
        if self.places and self.mtype != (said.data if isinstance(said, StringAttr) else None):
            return
        ops = {"self": op}
        rule = next((r for r in self.rules if self.holds(r, ops)), None)
        if rule is not None:
            self.apply(rule, ops, op, rewriter)
        elif self.complete:
            raise LightNetError(
                f"{self.name}: no rule holds for `{op.op_name or op.optype}`, and the description is complete",
                loc_of(op),
                "expand.complete",
                notes=[(self.item.loc, "its rules")],
            )


class Incomplete(DescribedPattern):
    """The end of a complete description: every op that it has no entry for is an error."""

    classes: ClassVar[frozenset[type[LnOp]]]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, LnOp) and op.name not in _names_of(self.classes):
            raise LightNetError(
                f"unsupported optype '{op.optype}' of `{op.op_name or op.optype}` for the description '{self.name}', "
                "which is complete",
                loc_of(op),
                "expand.complete",
                notes=[(self.item.loc, "the description")],
            )


@dataclass(frozen=True)
class PatternEdge:
    """``a.outs[x] => b.ins[y]``; an argument None is any."""

    source: str
    out: str | int | None
    reader: str
    operand: str | int | None


class DescribedMatch(DescribedPattern):
    """Ops joined by edges; the last of them is looked for first. `variables` are in the order of `match`."""

    variables: ClassVar[Mapping[str, frozenset[type[LnOp]] | None]]
    edges: ClassVar[tuple[PatternEdge, ...]]
    rule: ClassVar[Rule]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        for anchor in self.anchors(op):
            for ops in islice(self.bindings(anchor), MAX_TRIES):
                if self.holds(self.rule, ops) and self.apply(self.rule, ops, anchor, rewriter):
                    return

    def anchors(self, op: Operation) -> list[LnOp]:
        """The ops that the last variable may be: `op` of level 1, or an op of the kernel `op`."""
        wanted = list(self.variables.values())[-1]
        found: Sequence[Operation] = ()
        if self.pass_name == "simplify":
            found = [op] if isinstance(op.parent_op(), FuncOp) else []
        elif isinstance(op, KernelOp) and self.takes(op):
            found = op.ops
        return [o for o in found if isinstance(o, LnOp) and (wanted is None or o.name in _names_of(wanted))]

    def takes(self, kernel: KernelOp) -> bool:
        """Return whether ops of a kernel may be matched: in `subgraph` each stands alone."""
        return self.pass_name != "subgraph" or len(kernel.ops) == 1

    def bindings(self, anchor: LnOp) -> Iterator[dict[str, LnOp]]:
        """The ways to give each variable an op, from the last one back along the edges."""
        names = list(self.variables)
        in_kernels = kernel_of(anchor) is not None
        steps = [self.step(var, set(names[k + 1 :]), in_kernels) for k, var in reversed([*enumerate(names[:-1])])]

        def too_many() -> LightNetError:
            e = self.item.error("the edges leave too many ways to match: name the arguments in place of '*'")
            e.notes.append(self.at_op(anchor))
            return e

        for ops in solutions(steps, {names[-1]: anchor}, MAX_LOOKS, too_many):
            if all(self.joined(e, ops) for e in self.edges):
                yield {var: ops[var] for var in names}

    def step(self, var: str, known: set[str], in_kernels: bool) -> MatchStep:
        """From a variable that is known back to `var`."""
        wanted = self.variables[var]
        edge = next(e for e in self.edges if e.source == var and e.reader in known)

        def makers(ops: Ops) -> Iterator[Operation | Block]:
            return (origin(v).owner for v in _operands(ops[edge.reader], edge.operand))

        def accepts(op: Operation | Block, ops: dict[str, LnOp]) -> bool:
            fits = isinstance(op, LnOp) and (wanted is None or op.name in _names_of(wanted)) and op not in ops.values()
            kernel = kernel_of(op) if fits else None
            ops[var] = op
            return fits and (kernel is not None) == in_kernels and (kernel is None or self.takes(kernel))

        return MatchStep(makers, accepts)

    @staticmethod
    def joined(edge: PatternEdge, ops: Ops) -> bool:
        made = ops[edge.source].results if edge.out is None else _found(TensorRef(edge.source, "outs", edge.out), ops)
        return any(origin(v) in made for v in _operands(ops[edge.reader], edge.operand))


def _found(ref: TensorRef, ops: Ops) -> list[SSAValue]:
    try:
        return [ref.value(ops)]
    except LightNetError:
        return []


def _operands(op: LnOp, arg: str | int | None) -> Sequence[SSAValue]:
    """The operand of that name or number (none where the op has fewer), or all of them."""
    if arg is None:
        return tuple(dict.fromkeys(op.operands))
    try:
        return [value_at(op, "ins", arg)]
    except LightNetError:
        return []
