"""Fusion of bound definitions: composing them, inlining maps into their readers, grouping statements into loop nests.

A composition is one definition whose locals include the values between the parts; inlining removes locals; `nests`
groups what is left into loop nests. So a fused kernel is a `BoundDefinition` like any other, and the evaluator is the
oracle of every step. Imports `ir.bound` and `ir.affine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from lightnet.dataclasses import dataclass, replace
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import (
    BOOL,
    I64,
    Apply,
    BoundDefinition,
    Const,
    Idx,
    Loop,
    Node,
    Read,
    Statement,
    reads,
    rebuild,
    renamed_statement,
    substitute,
    walk_nodes,
)
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Size, typical

#: An expression that inlining made larger than this is not inlined further.
MAX_NODES = 600


@dataclass(frozen=True)
class Part:
    """One op of a composition: its definition, and the values that its operands and results (in order) stand for."""

    definition: BoundDefinition
    operands: tuple[str, ...]
    results: tuple[str, ...]


# --- Composition ----------------------------------------------------------------------------------------------------


def compose(
    parts: Sequence[Part], yielded: Sequence[str], operands: Sequence[str] = (), results: Sequence[str] = ()
) -> BoundDefinition:
    """One definition for a kernel body: `parts` in order, yielding the named values.

    A result is called as the value that it is; one that must be copied (an operand that passes through, a value that is
    yielded twice) takes its name from `results`. `operands` fixes the order (and presence) of the operands; further
    values that no part produces follow. Values in between are inlined where recomputing is no dearer than storing and
    loading them, else they stay locals.
    """
    return simplify(merge(parts, yielded, operands, results))


def merge(
    parts: Sequence[Part], yielded: Sequence[str], operands: Sequence[str] = (), results: Sequence[str] = ()
) -> BoundDefinition:
    """`compose` without any inlining."""
    specs: dict[str, TensorSpec] = {}
    made: set[str] = set()
    inputs = dict.fromkeys(operands)
    local: dict[str, TensorSpec] = {}
    statements: list[Statement] = []
    for k, part in enumerate(parts):
        d = part.definition
        names = {n: f"{k}.{n}" for n, _ in d.locals}
        names |= {n: value for (n, _), value in zip(d.operands, part.operands, strict=True)}
        names |= {n: value for (n, _), value in zip(d.results, part.results, strict=True)}
        for n, spec in d.specs.items():
            if specs.setdefault(names[n], spec) != spec:
                raise ValueError(f"value '{names[n]}' is {specs[names[n]]} and {spec}")
        inputs.update(dict.fromkeys(v for v in part.operands if v not in made))
        local |= {names[n]: spec for n, spec in d.locals + d.results}
        statements += [renamed_statement(s, names) for s in d.statements]
        made.update(part.results)
    found: dict[str, TensorSpec] = {}
    for k, name in enumerate(yielded):
        if name not in specs:
            raise ValueError(f"yielded value '{name}' is unknown")
        result = name
        if name not in made or name in found:  # an operand passes through, or a value is yielded twice
            result = results[k] if results else f"{name}.copy{k}"
            statements.append(_copy(result, name, specs[name]))
        found[result] = specs[name]
        local.pop(result, None)
    missing = [n for n in inputs if n not in specs]
    if missing:
        raise ValueError(f"operands {missing} are never read; their types are unknown")
    return BoundDefinition(
        tuple((n, specs[n]) for n in inputs), tuple(found.items()), tuple(local.items()), tuple(statements)
    )


def _copy(to: str, source: str, spec: TensorSpec) -> Statement:
    loops = tuple((f"i.{k}", n) for k, n in enumerate(spec.dims) if n != 1)
    subs = tuple(Idx(f"i.{k}") if n != 1 else Const(0, I64) for k, n in enumerate(spec.dims))
    return Statement(to, subs, "=", Read(source, subs, None, spec.dtype), loops)


def inline(consumer: BoundDefinition, producer: BoundDefinition, via: str | Mapping[str, str]) -> BoundDefinition:
    """Substitute the maps of `producer` into `consumer`, which reads them under the names of `via`.

    `via` maps operands of the consumer to results of the producer (a string: to its only result). Operands of one name
    are one operand. Results of the producer that are no maps (reductions) stay locals: the consumer's statements that
    read them at the index written become epilogues of the same nest (`nests`).
    """
    links = {via: producer.results[0][0]} if isinstance(via, str) else dict(via)
    taken = set(producer.specs) | {n for n, _ in consumer.operands}
    results = tuple(n if n not in taken else f"{n}.out" for n, _ in consumer.results)
    first = Part(producer, tuple(n for n, _ in producer.operands), tuple(n for n, _ in producer.results))
    second = Part(consumer, tuple(links.get(n, n) for n, _ in consumer.operands), results)
    merged = merge([first, second], results)
    for name in links.values():
        merged = inline_local(merged, name) or merged
    return prune(merged)


# --- Inlining -------------------------------------------------------------------------------------------------------


def simplify(d: BoundDefinition) -> BoundDefinition:
    """Inline every local that is cheaper recomputed than stored, and drop what is not read."""
    d = prune(d)
    for name in [n for n, _ in d.locals]:
        if worth_inlining(d, name):
            inlined = inline_local(d, name)
            if inlined is not None and (_divisions(inlined) <= _divisions(d) or _evaluations(d, name) <= 1):
                d = inlined
    return prune(d)


def divisions(nodes: Iterable[Node]) -> int:
    """Index divisions in expressions: what reading through a reshape may cost."""
    return sum(isinstance(n, Apply) and n.fn in ("floordiv", "mod") for node in nodes for n in walk_nodes(node))


def _divisions(d: BoundDefinition) -> int:
    return divisions(s.value for s in d.statements)


def _evaluations(d: BoundDefinition, name: str) -> float:
    """The number of times that an element of a local is read, on average."""
    count = sum(s.trips for s in d.statements for r in reads(s.value) if r.tensor == name)
    return typical(count) / max(1, typical(d.specs[name].len))


def prune(d: BoundDefinition) -> BoundDefinition:
    """Drop statements whose targets are locals that nothing reads, and such locals."""
    kept: list[Statement] = []
    live = {n for n, _ in d.results}
    for s in reversed(d.statements):
        if live & set(s.targets):
            kept.append(s)
            live |= {r.tensor for r in reads(s.value)}
    return replace_body(d, kept[::-1], {n for s in kept for n in s.targets})


def replace_body(d: BoundDefinition, statements: Iterable[Statement], keep: set[str] | None = None) -> BoundDefinition:
    """The definition with other statements, and only the locals of `keep`."""
    kept = tuple(t for t in d.locals if keep is None or t[0] in keep)
    return BoundDefinition(d.operands, d.results, kept, tuple(statements))


_COSTS = {"table": 1, "div": 4, "rem": 4, "pow": 20} | {name: f.cost for name, f in FLOAT_FUNCTIONS.items()}
_COSTS |= dict.fromkeys(("cast", "wrap", "bitcast"), 0)


def cost(node: Node) -> int:
    """Rough cycles of evaluating an expression once; reads and index arithmetic are free."""
    if isinstance(node, Read):
        guard = 0 if node.filler is None else 2
        return guard + sum(cost(r) for s in node.subs for r in reads(s))
    if not isinstance(node, Apply):
        return 0
    if node.dtype is I64 and not any(isinstance(n, Read) for n in walk_nodes(node)):
        return 0
    return _COSTS.get(node.fn, 1) + sum(map(cost, node.args))


def worth_inlining(d: BoundDefinition, name: str) -> bool:
    """Return whether recomputing a local costs no more than one store and its loads."""
    writers = [s for s in d.statements if name in s.targets]
    total = max((cost(s.value) for s in writers), default=0) + 2 * (len(writers) - 1)
    if any(r.tensor == name and r.filler is not None for s in d.statements for r in reads(s.value)):
        total += 2
    factor = _evaluations(d, name)
    return total * factor <= total + 2 + factor


def inline_local(d: BoundDefinition, name: str) -> BoundDefinition | None:
    """Replace every read of a local by the expression written there; None when it is no map.

    A map is written by ``=`` statements alone (several boxes: the last one that holds the element wins), all before
    its readers, from tensors that do not change in between.
    """
    writers = [(k, s) for k, s in enumerate(d.statements) if name in s.targets]
    readers = [k for k, s in enumerate(d.statements) if any(r.tensor == name for r in reads(s.value))]
    if not writers or any(s.op != "=" for _, s in writers) or name not in dict(d.locals):
        return None
    last = writers[-1][0]
    if any(k <= last for k in readers):
        return None
    sources = {r.tensor: k for k, s in reversed(writers) for r in reads(s.value)}
    end = max(readers, default=0)
    for k, s in enumerate(d.statements[: end + 1]):
        if any(t in sources and k > sources[t] for t in s.targets):
            return None
    statements = []
    for k, s in enumerate(d.statements):
        if k in readers:
            node = _inlined(s.value, name, [w for _, w in writers], d.specs)
            node = IndexSpace(s.loops + s.reductions).simplify(node)
            if sum(1 for _ in walk_nodes(node)) > MAX_NODES:
                return None
            s = replace(s, value=node)
        statements.append(s)
    return prune(replace_body(d, statements))


def _inlined(node: Node, name: str, writers: list[Statement], specs: Mapping[str, TensorSpec]) -> Node:
    new = rebuild(node, lambda n: _inlined(n, name, writers, specs))
    if not isinstance(new, Read) or new.tensor != name:
        return new
    spec = specs[name]
    value = _written(new, writers, spec)
    if new.filler is None:
        return value
    if isinstance(value, Read) and value.filler is None and _same_bounds(new, value, specs):
        return Read(value.tensor, value.subs, new.filler, value.dtype, value.flat)
    dims = (spec.len,) if new.flat else spec.dims
    return _select(inside(new.subs, [(0, n) for n in dims]), value, new.filler)


def _same_bounds(read: Read, value: Read, specs: Mapping[str, TensorSpec]) -> bool:
    """Return whether the inlined move has the same subscripts with the same extents, in any order: then a subscript
    that falls outside of one tensor falls outside of the other, and the filler may stay with the read.
    """
    if read.flat or value.flat:
        return False
    one, two = (sorted((str(s), n) for s, n in zip(r.subs, specs[r.tensor].dims)) for r in (read, value))
    return one == two


def _written(read: Read, writers: list[Statement], spec: TensorSpec) -> Node:
    """The value of the local at the subscripts of `read`, which are inside."""
    choice: Node | None = None
    for w in writers:
        subs = _as_view(read, spec, w.flat)
        extents = dict(w.loops)
        by: dict[str, Node] = {}
        box: list[tuple[int, int]] = []
        for sub, target in zip(subs, w.subs):
            offset, index = IndexSpace(()).written(target)
            box.append((offset, 1 if index is None else extents[index]))
            if index is not None:
                by[index] = sub if not offset else Apply("sub", (sub, Const(offset, I64)), I64)
        value = substitute(w.value, by)
        choice = value if choice is None else _select(inside(subs, box), value, choice)
    assert choice is not None
    return choice


def _as_view(read: Read, spec: TensorSpec, flat: bool) -> tuple[Node, ...]:
    """The subscripts of a read, as one flat subscript or as one for each dimension."""
    if read.flat == flat:
        return read.subs
    if flat:
        return (linearize(read.subs, spec.dims),)
    return delinearize(read.subs[0], spec.dims)


def linearize(subs: Sequence[Node], dims: Sequence[Size]) -> Node:
    """The row-major position of an element."""
    total: Node = Const(0, I64)
    for sub, n in zip(subs, dims):
        total = Apply("add", (Apply("mul", (total, Const(n, I64)), I64), sub), I64)
    return total


def delinearize(position: Node, dims: Sequence[Size]) -> tuple[Node, ...]:
    """The subscripts of a row-major position."""
    subs: list[Node] = []
    for k in range(len(dims)):
        inner = prod(dims[k + 1 :])
        part = Apply("floordiv", (position, Const(inner, I64)), I64) if inner != 1 else position
        subs.append(Apply("mod", (part, Const(dims[k], I64)), I64) if k else part)
    return tuple(subs)


def inside(subs: Sequence[Node], box: Sequence[tuple[Size, Size]]) -> Node:
    """The condition that every subscript falls into its half-open range."""
    cond: Node = Const(True, BOOL)
    for sub, (offset, n) in zip(subs, box):
        for test in (
            Apply("le", (Const(offset, I64), sub), BOOL),
            Apply("lt", (sub, Const(offset + n, I64)), BOOL),
        ):
            cond = test if isinstance(cond, Const) else Apply("and", (cond, test), BOOL)
    return cond


def _select(cond: Node, a: Node, b: Node) -> Node:
    return a if isinstance(cond, Const) else Apply("select", (cond, a, b), a.dtype)


# --- Loop nests -----------------------------------------------------------------------------------------------------


@dataclass
class Nest:
    """Statements that run for each point of `loops`, in order; indices are renamed to those of `loops`. `axes` are all
    loops as they were made, and what the notation calls their indices."""

    loops: tuple[Loop, ...]
    statements: list[Statement]
    axes: tuple[tuple[Loop, str], ...] = ()

    def axis(self, loop: Loop) -> str:
        """The name that the notation gives the index of a loop: the names of all axes, where it runs through
        several."""
        names = [name for (index, _), name in self.axes]
        sizes = [n for (_, n), _ in self.axes]
        first = next((k for k, ((index, _), _) in enumerate(self.axes) if index == loop[0]), None)
        if first is None:
            return "i"
        last = next((k for k in range(first, len(sizes)) if prod(sizes[first : k + 1]) == loop[1]), first)
        if first == last:
            return names[first]
        return "".join(dict.fromkeys(name.split(".")[0] for name in names[first : last + 1]))

    def accesses(self, tensor: str) -> set[tuple[bool, tuple[Node, ...]]]:
        """The subscripts under which the nest touches a tensor."""
        return {a for s in self.statements for a in _accesses(s, tensor)}


def _accesses(s: Statement, tensor: str) -> set[tuple[bool, tuple[Node, ...]]]:
    found = {(r.flat, r.subs) for r in reads(s.value) if r.tensor == tensor}
    return found | {(s.flat, s.subs)} if tensor in s.targets else found


def nests(d: BoundDefinition) -> list[Nest]:
    """Group statements into loop nests: a statement joins the nest whose elements it continues (an epilogue, or the
    reduction after its initial value) when all that they share is touched at the one index of the nest.
    """
    groups: list[Nest] = []
    for s in d.statements:
        touched = set(s.targets) | {r.tensor for r in reads(s.value)}
        home = None
        for group in reversed(groups):
            writes = {t for q in group.statements for t in q.targets}
            uses = writes | {r.tensor for q in group.statements for r in reads(q.value)}
            shared = (writes & touched) | (uses & set(s.targets))
            if shared:
                home = group
                break
        if home is None or (joined := _join(home, s)) is None:
            loops = tuple((f"p{k}", n) for k, (_, n) in enumerate(s.loops))
            joined = _renamed(s, loops, 0)
            home = Nest(loops, [joined], _axes(s.loops, loops))
            groups.append(home)
        else:
            home.statements.append(joined)
        home.axes += _axes(s.reductions, joined.reductions)
    return groups


def _axes(old: tuple[Loop, ...], new: tuple[Loop, ...]) -> tuple[tuple[Loop, str], ...]:
    """Loops as they are made, and what their indices were called."""
    return tuple((loop, name) for (name, _), loop in zip(old, new))


def _renamed(s: Statement, loops: tuple[Loop, ...], serial: int) -> Statement:
    names = {old: new for (old, _), (new, _) in zip(s.loops, loops)}
    names |= {old: f"q{serial}_{k}" for k, (old, _) in enumerate(s.reductions)}
    return renamed_statement(s, {}, names)


def _join(nest: Nest, s: Statement) -> Statement | None:
    """`s` with the nest's indices if it may run inside of it, else None."""
    if [n for _, n in s.loops] != [n for _, n in nest.loops]:
        return None
    new = _renamed(s, nest.loops, len(nest.statements))
    writes = {t for q in nest.statements for t in q.targets}
    if any(r.filler is not None and r.tensor in writes for r in reads(new.value)):
        return None
    for tensor in {r.tensor for r in reads(new.value)} | set(new.targets):
        changes = tensor in writes or tensor in new.targets
        if changes and len(nest.accesses(tensor) | _accesses(new, tensor)) > 1:
            return None
    return new
