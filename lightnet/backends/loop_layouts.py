"""Loops that follow layouts: cut where a block of what they walk begins, in the order in which what they write lies.

    for n, c < 40, y, x: dst[n, c, y, x] = …

with ``dst`` in blocks of 16 channels is two nests, whose innermost loops are lanes that follow each other in memory,
and in whose addresses nothing is divided:

    for n, c < 2, y, x, c.l < 16: dst[n, 16·c + c.l, y, x] = …
    for n,        y, x, c.l <  8: dst[n, 32 + c.l, y, x] = …

What a layout has beyond a tensor (a halo, lanes behind the last channel) is written with zeros by nests of their own,
unless a nest can compute whole blocks, of whose last lanes it keeps nothing. Part of `loops.py`; imports `ir`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from lightnet.backends.loop_addresses import Layouts
from lightnet.ir.affine import Space
from lightnet.ir.bound import (
    BOOL,
    I64,
    Apply,
    BoundDefinition,
    Const,
    Idx,
    Loop,
    Node,
    Statement,
    indices,
    reads,
    substitute,
)
from lightnet.ir.fusion import Nest, delinearize, linearize, replace_body
from lightnet.ir.layout import Layout
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import DType

Specs = Mapping[str, TensorSpec]
#: The length of the blocks that a loop walks, and after how many steps the first whole one begins.
Cut = tuple[int, int]


def laid_out(nest: Nest, specs: Specs, layouts: Layouts) -> list[Nest]:
    """A nest that stands alone as nests that follow the layouts of what it touches; together they write the same."""
    if not layouts:
        return [nest]
    found = [nest]
    for name, cut in _cuts(nest, specs, layouts).items():
        found = [piece for part in found for piece in _pieces(part, name, cut, specs, layouts)]
    found = [Nest(n.loops, [_reductions_cut(s, specs, layouts) for s in n.statements]) for n in found]
    return [ordered([n], specs, layouts)[0] for n in found]


def gaps(name: str, spec: TensorSpec, layout: Layout) -> list[Nest]:
    """Zeros wherever the memory of a tensor has more than the tensor."""
    boxes = [box for box in layout.gaps(spec.dims) if spec.len and all(low < high for low, high in box)]
    return [_zeros(name, spec.dtype, box) for box in boxes]


def covers(nests: Sequence[Nest], zeros: Nest) -> bool:
    """Whether one of the nests writes all that one of `gaps` does."""
    (wanted,) = zeros.statements
    return any(s.tensor == wanted.tensor and not s.flat and _contains(s, wanted) for n in nests for s in n.statements)


def _contains(s: Statement, other: Statement) -> bool:
    """Whether the box that a statement writes contains that of another one."""

    def box(one: Statement) -> list[tuple[float, float]]:
        space = Space(one.loops)
        return [space.interval(sub) for sub in one.subs]

    return all(a <= c and d <= b for (a, b), (c, d) in zip(box(s), box(other)))


def _zeros(name: str, dtype: DType, box: Sequence[tuple[int, int]]) -> Nest:
    loops = tuple((f"p{k}", high - low) for k, (low, high) in enumerate(box))
    subs = tuple(Apply("add", (Idx(p), Const(low, I64)), I64) for (p, _), (low, _) in zip(loops, box))
    return Nest(loops, [Statement(name, subs, "=", _zero(dtype), loops)])


def _zero(dtype: DType) -> Const:
    return Const(0.0 if dtype.is_float else 0, dtype)


# -- cutting loops where blocks begin


def _cuts(nest: Nest, specs: Specs, layouts: Layouts) -> dict[str, Cut]:
    """The loops to cut, by what is written, or, where that is row-major, by what is read along its last loop."""
    found: dict[str, Cut] = {}
    for s in nest.statements:
        space = Space(nest.loops + s.reductions)
        for name, cut in _blocks([(s.tensor, s.subs, s.flat)], space, specs, layouts):
            found.setdefault(name, cut)
    last = nest.loops[-1][0] if nest.loops else ""
    for s in nest.statements:
        if s.tensor in layouts:
            continue
        read = [(r.tensor, r.subs, r.flat) for r in reads(s.value)]
        for name, cut in _blocks(read, Space(nest.loops + s.reductions), specs, layouts):
            if name == last:
                found.setdefault(name, cut)
    return {name: cut for name, cut in found.items() if name in dict(nest.loops)}


def _blocks(
    accesses: Sequence[tuple[str, Sequence[Node], bool]], space: Space, specs: Specs, layouts: Layouts
) -> Iterator[tuple[str, Cut]]:
    """The indices that walk through blocks of layouts, one element after the other."""
    for tensor, subs, flat in accesses:
        if tensor not in layouts:
            continue
        dims = specs[tensor].dims
        for sub in layouts[tensor].subscripts(delinearize(subs[0], dims) if flat else subs, dims):
            if not isinstance(sub, Apply) or sub.fn != "mod":
                continue
            form, block = space.linear(sub.args[0]), int(sub.args[1].value)
            ((atom, factor),) = form.terms.items() if len(form.terms) == 1 else ((None, 0),)
            if isinstance(atom, Idx) and factor == 1 and block > 1:
                yield atom.name, (block, -form.const % block)


def _pieces(nest: Nest, name: str, cut: Cut, specs: Specs, layouts: Layouts) -> list[Nest]:
    """A nest whose loop `name` is cut: what is before the first whole block, these, and what is behind them."""
    n, (block, phase) = dict(nest.loops)[name], cut
    head = min(phase, n)
    whole = (n - head) // block
    end = head + whole * block
    parts = [(0, 1, head), (head, whole, block), (end, 1, n - end)]
    found = [_piece(nest, name, *part) for part in parts if part[1] * part[2]]
    if end < n and not head and (wide := _widened(nest, name, end, block, specs, layouts)) is not None:
        found[-1] = wide
    return found


def _piece(nest: Nest, name: str, start: int, count: int, length: int) -> Nest:
    """The nest from `start` on, for `count` blocks of `length`."""
    new = ((name, count), (f"{name}.l", length)) if count > 1 else ((f"{name}.l", length),)
    position = _position(name, start, count, length)
    loops = tuple(loop for old in nest.loops for loop in (new if old[0] == name else (old,)))
    statements = [
        replace(s, loops=loops, subs=tuple(substitute(sub, {name: position}) for sub in s.subs),
                value=substitute(s.value, {name: position}))
        for s in nest.statements
    ]  # fmt: skip
    return Nest(loops, statements)


def _widened(nest: Nest, name: str, start: int, block: int, specs: Specs, layouts: Layouts) -> Nest | None:
    """What is behind the last whole block as a whole block, with zeros in the lanes that are none: a vector is computed
    at once. None where something is not there to be read in those lanes, or they belong to others."""
    if any(s.op != "=" or s.tensor not in layouts or s.flat for s in nest.statements):
        return None
    wide, n = _piece(nest, name, start, 1, block), dict(nest.loops)[name]
    inside = Apply("lt", (Idx(f"{name}.l"), Const(n - start, I64)), BOOL)
    space = Space(wide.loops)
    for s in wide.statements:
        lanes = gaps(s.tensor, specs[s.tensor], layouts[s.tensor])[:1]
        if not lanes or not covers([wide], lanes[0]) or not _is_there(s.value, f"{name}.l", space, specs, layouts):
            return None
    statements = [
        replace(s, value=Apply("select", (inside, s.value, _zero(specs[s.tensor].dtype)), specs[s.tensor].dtype))
        for s in wide.statements
    ]
    return Nest(wide.loops, statements)


def _is_there(value: Node, lane: str, space: Space, specs: Specs, layouts: Layouts) -> bool:
    """Whether memory has what an expression reads, along all lanes."""
    for read in reads(value):
        dims = specs[read.tensor].dims
        subs, sizes = read.subs, (specs[read.tensor].len,) if read.flat else dims
        if read.tensor in layouts:
            layout = layouts[read.tensor]
            subs = layout.subscripts(delinearize(subs[0], dims) if read.flat else subs, dims)
            sizes = layout.physical_dims(dims)
        if not all(space.inside(sub, n) for sub, n in zip(subs, sizes) if lane in indices(sub)):
            return False
    return True


def _position(name: str, start: int, count: int, length: int) -> Node:
    lane: Node = Apply("add", (Idx(f"{name}.l"), Const(start, I64)), I64)
    return lane if count == 1 else Apply("add", (Apply("mul", (Idx(name), Const(length, I64)), I64), lane), I64)


def _reductions_cut(s: Statement, specs: Specs, layouts: Layouts) -> Statement:
    """A statement whose reductions are cut in two where they walk through whole blocks alone."""
    if s.arg is not None or not s.reductions:
        return s
    space = Space(s.loops + s.reductions)
    read = [(r.tensor, r.subs, r.flat) for r in reads(s.value)]
    for name, (block, phase) in dict(_blocks(read, space, specs, layouts)).items():
        n = dict(s.reductions).get(name, 0)
        if phase or n % block or n <= block:
            continue
        new = (name, n // block), (f"{name}.l", block)
        reductions = tuple(loop for old in s.reductions for loop in (new if old[0] == name else (old,)))
        s = replace(s, reductions=reductions, value=substitute(s.value, {name: _position(name, 0, n, block)}))
    return s


# -- the order of loops


def ordered(part: Sequence[Nest], specs: Specs, layouts: Layouts) -> list[Nest]:
    """Nests that share their loops, with these in the order in which the last tensor that they write in a layout lies;
    as they are, where an address is not linear in the indices."""
    found = [s for nest in part for s in nest.statements if s.tensor in layouts and not s.flat]
    if not found:
        return list(part)
    s, own = found[-1], part[0].loops
    dims, layout = specs[s.tensor].dims, layouts[s.tensor]
    form = Space(own).linear(linearize(layout.subscripts(s.subs, dims), layout.physical_dims(dims)))
    stride = {atom.name: abs(factor) for atom, factor in form.terms.items() if isinstance(atom, Idx)}
    if len(stride) < len(form.terms):
        return list(part)
    loops = tuple(sorted(own, key=lambda loop: -stride.get(loop[0], prod(layout.physical_dims(dims)) + 1)))
    return [Nest(loops, [replace(s, loops=loops) for s in nest.statements]) for nest in part]


def by_dims(d: BoundDefinition, layouts: Layouts) -> BoundDefinition:
    """The definition with statements that write all of a tensor of `layouts` by row-major numbers written by its dims.

    ``dst.flat[i] = src.flat[i]``  becomes  ``dst[n, c, h, w] = src.flat[((n·C + c)·H + h)·W + w]``
    """
    statements = [_by_dims(s, d.specs[s.tensor]) if s.tensor in layouts and s.flat else s for s in d.statements]
    return replace_body(d, statements)


def _by_dims(s: Statement, spec: TensorSpec) -> Statement:
    if s.arg is not None or len(s.loops) != 1 or s.loops[0][1] != spec.len or s.subs != (Idx(s.loops[0][0]),):
        return s
    name = s.loops[0][0]
    loops: tuple[Loop, ...] = tuple((f"{name}.{k}", n) for k, n in enumerate(spec.dims) if n > 1)
    subs: list[Node] = [Idx(f"{name}.{k}") if n > 1 else Const(0, I64) for k, n in enumerate(spec.dims)]
    value = Space(loops + s.reductions).simplify(substitute(s.value, {name: linearize(subs, spec.dims)}))
    return Statement(s.tensor, tuple(subs), s.op, value, loops, s.reductions, None, s.fresh)
