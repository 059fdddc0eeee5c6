"""The matchers and actions of a description's rules (`rules.Rule`): what these match, and what they do.

`OneOp` is for the rules of one optype; `JoinedOps` finds several ops that are joined as the description's edges say,
through kernels, starting from the last of them. They are put together in `optimizer.py`. Imports xDSL, `ir`, the `ln`
dialect and the modules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Create, Source
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import MTYPE
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import get_target
from lightnet_descriptions import rewriting
from lightnet_descriptions.details import NewOp, Renamed, Replacement
from lightnet_descriptions.fusion import fuse_kernels
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.rules import Matcher, MatchStep, furthest, solutions
from lightnet_descriptions.scope import Ops, TensorRef
from lightnet_descriptions.tensors import kernel_of, origin, value_at

#: From one op, a rule looks at most at so many operands.
MAX_LOOKS = 1 << 14


@lru_cache(4096)
def _names_of(classes: frozenset[type[LnOp]]) -> frozenset[str]:
    """The names of classes. Rules tell ops by these: one of ours and one that takes its place have the same."""
    return frozenset(cls.name for cls in classes)


# -- what is done ----------------------------------------------------------------------------------------------------


class Leave:
    """`match`: false."""


@dataclass(frozen=True)
class Fuse:
    """`fuse`: true. `named`: the rule says the optypes of all its ops."""

    named: bool


@dataclass(frozen=True)
class Refuse:
    """`err`, or the end of a complete description: the error of an op, its label, and the note at the rule."""

    message: Callable[[LnOp], str]
    label: str
    note: str


@dataclass(frozen=True)
class DescribedAction:
    """The action of a rule of a description for `arch`, said at `item`."""

    arch: str
    item: DescribedValue
    what: Leave | Fuse | Refuse | Renamed | Replacement

    def __call__(self, ops: Ops, anchor: LnOp, rewriter: PatternRewriter) -> bool | Refusal:
        try:
            return self.act(ops, anchor, rewriter)
        except LightNetError as e:
            if e.loc is None:  # of no text in particular: the rule is wrong for these ops
                e = self.item.error(e.message, e.label)
            raise e from e.__cause__

    def act(self, ops: Ops, anchor: LnOp, rewriter: PatternRewriter) -> bool | Refusal:
        match self.what:
            case Refuse(message=message, label=label, note=note):
                raise LightNetError(message(anchor), loc_of(anchor), label, notes=[(self.item.loc, note)])
            case Fuse(named=named):
                return fuse_kernels(ops, get_target(self.arch), rewriter, self.item, named=named)
            case Renamed() as to:
                return self.rename(to, anchor, rewriter)
            case Replacement() as what:
                arches = {n.var: self.kernel_arch(n.arch, anchor) for n in what.new_ops}
                plain = {n.var for n in what.new_ops if isinstance(n, NewOp) and _has_kernel_here(n, anchor)}
                wrapped = {var: get_target(arch) for var, arch in arches.items() if arch is not None and var in plain}
                return rewriting.replace(what, ops, anchor, rewriter, get_target(self.arch), wrapped)
        return True  # left as it is, and no other rule is asked

    def rename(self, to: Renamed, anchor: LnOp, rewriter: PatternRewriter) -> bool:
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

    def kernel_arch(self, arch: str | None, anchor: LnOp) -> str | None:
        """The arch of the kernel that a new op gets, if it gets one: in `expand` that of its optype, at level 2 the
        description's at least. Raises `LightNetError` for one whose kernels have no place in a network of the
        description's."""
        arch = arch or (self.arch if kernel_of(anchor) is not None else None)
        if arch not in (None, self.arch, *get_target(self.arch).arches):
            raise LightNetError(f"a network for target '{self.arch}' holds no kernels of '{arch}'")
        return arch


def _has_kernel_here(new: NewOp, anchor: LnOp) -> bool:
    """Return whether a kernel is put around a new op here: around an arch's own op `expand` does that, or around what
    it is a graph of."""
    return issubclass(new.cls, Source) or new.cls.arch == "none" or kernel_of(anchor) is not None


# -- what is matched -------------------------------------------------------------------------------------------------


class _Single(Matcher):
    """A matcher of one op, `self`."""

    def matches(self, anchor: LnOp) -> Iterator[dict[str, LnOp]]:
        yield {"self": anchor}


@dataclass(frozen=True)
class OneOp(_Single):
    """An op of one optype. `mtype` is the memory type of sources, where the optype says one (``create_cuda``)."""

    cls: type[LnOp]
    mtype: str | None

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.cls.name,)

    @property
    def places(self) -> bool:  # type: ignore[override]
        """True for what enters or leaves the network, of which rules say where it stands: all that becomes of it."""
        return issubclass(self.cls, Source) or self.cls.is_host

    def anchors(self, op: Operation) -> Sequence[LnOp]:
        # Another class may have taken the place of the optype's, and `bind` made an input or a param of a `create`.
        is_for = op.name == self.cls.name or (self.cls.name == Create.name and isinstance(op, Source))
        if not is_for or not isinstance(op, LnOp):
            return ()
        said = op.attributes.get(MTYPE)
        return () if self.places and self.mtype != (said.data if isinstance(said, StringAttr) else None) else (op,)


@dataclass(frozen=True)
class AnyBut(_Single):
    """Any op but those of some classes: what a complete description says nothing of."""

    classes: frozenset[type[LnOp]]
    roots = ()

    def anchors(self, op: Operation) -> Sequence[LnOp]:
        return (op,) if isinstance(op, LnOp) and op.name not in _names_of(self.classes) else ()


@dataclass(frozen=True)
class PatternEdge:
    """``a.outs[x] => b.ins[y]``; an argument None is any."""

    source: str
    out: str | int | None
    reader: str
    operand: str | int | None


@dataclass(frozen=True)
class JoinedOps(Matcher):
    """Ops joined by edges; the last of them is looked for first. `variables` are in the order of `match`, which stands
    at `item`; `in_graph` says that the pass is one of level 1."""

    pass_name: str
    item: DescribedValue
    variables: Mapping[str, frozenset[type[LnOp]] | None]
    edges: tuple[PatternEdge, ...]
    in_graph: bool

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(sorted(_names_of(list(self.variables.values())[-1] or frozenset())))

    def anchors(self, op: Operation) -> list[LnOp]:
        """The ops that the last variable may be: `op` of level 1, or an op of the kernel `op`."""
        found: Sequence[Operation] = ()
        if self.in_graph:
            found = [op] if isinstance(op.parent_op(), FuncOp) else []
        elif isinstance(op, KernelOp) and self.takes(op):
            found = op.ops
        roots = self.roots
        return [o for o in found if isinstance(o, LnOp) and (not roots or o.name in roots)]

    def takes(self, kernel: KernelOp) -> bool:
        """Return whether ops of a kernel may be matched: in `subgraph` each stands alone."""
        return self.pass_name != "subgraph" or len(kernel.ops) == 1

    def matches(self, anchor: LnOp) -> Iterator[dict[str, LnOp]]:
        """The ways to give each variable an op, from the last one back along the edges."""
        names = list(self.variables)
        in_kernels = kernel_of(anchor) is not None
        steps = [self.step(var, set(names[k + 1 :]), in_kernels) for k, var in reversed([*enumerate(names[:-1])])]

        text = "the edges leave too many ways to match: name the arguments in place of '*'"
        for ops in solutions(steps, {names[-1]: anchor}, MAX_LOOKS, partial(self.item.error, text)):
            if all(self.joined(e, ops) for e in self.edges):
                yield {var: ops[var] for var in names}

    def why_not(self, anchor: LnOp) -> str:
        names = list(self.variables)
        order = list(reversed([*enumerate(names[:-1])]))
        steps = [self.step(var, set(names[k + 1 :]), kernel_of(anchor) is not None) for k, var in order]
        text = furthest(steps, {names[-1]: anchor}, MAX_LOOKS, lambda k: f"nothing is there for '{order[k][1]}'")
        if text is not None:
            return text
        for ops in solutions(steps, {names[-1]: anchor}, MAX_LOOKS, RuntimeError):
            edge = next((e for e in self.edges if not self.joined(e, ops)), None)
            if edge is not None:
                return f"no tensor goes from '{edge.source}' to '{edge.reader}' as an edge says"
        return "nothing matches"

    def step(self, var: str, known: set[str], in_kernels: bool) -> MatchStep:
        """From a variable that is known back to `var`."""
        wanted = self.variables[var]
        edge = next(e for e in self.edges if e.source == var and e.reader in known)

        meant = " or ".join(sorted(cls.optype for cls in wanted or ())) or "another op"
        at = "*" if edge.operand is None else edge.operand

        def makers(ops: Ops) -> Iterator[Operation | Block]:
            return (origin(v).owner for v in _operands(ops[edge.reader], edge.operand))

        def accepts(op: Operation | Block, ops: dict[str, LnOp]) -> bool | Refusal:
            fits = isinstance(op, LnOp) and (wanted is None or op.name in _names_of(wanted)) and op not in ops.values()
            if not fits:
                there = op.optype if isinstance(op, LnOp) else "an argument" if isinstance(op, Block) else op.name
                return Refusal("'{}' should be {}, and {}.ins[{}] is made by {}", var, meant, edge.reader, at, there)
            kernel = kernel_of(op)
            ops[var] = op
            stands = (kernel is not None) == in_kernels and (kernel is None or self.takes(kernel))
            return stands or Refusal("'{}' does not stand in a kernel of its kind", var)

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
