"""Definitions over the dims that memory has, where layouts say that an element lies otherwise than row-major.

    dst[n, c, y, x] = f(src[n, c, y, x])                for n, c < 40, y, x

with both in blocks of 16 channels becomes two statements, whose last loops are lanes that follow each other in memory,
and in whose subscripts nothing is divided:

    dst[n, b, y, x, l] = f(src[n, b, y, x, l])          for n, b < 2, y, x, l < 16
    dst[n, 2, y, x, l] = l < 8 ? f(src[n, 2, y, x, l]) : 0       for n, y, x, l < 16

What layouts have beyond a tensor (a halo, lanes behind the last channel) is written with zeros, as the second statement
does where lanes can be computed that are none. All that follows (`loops.py`) knows row-major tensors. Imports `ir`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    block_and_lane,
    indices,
    reads,
    rebuild,
    shifted_index,
    substitute,
)
from lightnet.ir.fusion import Nest, delinearize, inside, linearize
from lightnet.ir.layout import Box, ChannelsLast, Layout
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, dim_min, greatest
from lightnet.runtime.dtypes import DType

#: Tensors that lie otherwise than row-major, by name: in any layout that is lossless.
Layouts = Mapping[str, Layout]
#: The length of the blocks that a loop walks, and after how many steps the first whole one begins.
Cut = tuple[int, int]


@dataclass(frozen=True)
class Lanes(Layout):
    """A tensor of any rank with dimension `dim` in blocks, the block innermost: what launches hand to each other."""

    dim: int
    block: int

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        blocks = -(-dims[self.dim] // self.block)
        return (*dims[: self.dim], blocks, *dims[self.dim + 1 :], self.block)

    def subscripts(self, subs: Sequence[Node], dims: Sequence[int]) -> tuple[Node, ...]:
        block, lane = block_and_lane(subs[self.dim], self.block)
        return (*subs[: self.dim], block, *subs[self.dim + 1 :], lane)

    def gaps(self, dims: Sequence[int]) -> list[Box]:
        end = self.physical_dims(dims)[self.dim] * self.block
        return [tuple((dims[k], end) if k == self.dim else (0, n) for k, n in enumerate(dims))]


def laid_out(d: BoundDefinition, layouts: Layouts) -> BoundDefinition:
    """The definition over the dims that the tensors of `layouts` have in memory."""
    if not layouts:
        return d
    d = _args_apart(by_dims(d, layouts), layouts)
    rewriter = _Rewriter(d, {**layouts, **_near(d, layouts)})
    statements = tuple(new for s in d.statements for new in rewriter.statements(s))
    operands, results, locals = (tuple(map(rewriter.stored, part)) for part in (d.operands, d.results, d.locals))
    return BoundDefinition(operands, results, locals, statements)


def gaps(d: BoundDefinition, layouts: Layouts) -> list[Nest]:
    """Zeros wherever the memory of results has more than these, over the dims that it has."""
    rewriter = _Rewriter(d, layouts)
    found = [s for n, spec in d.results if n in layouts for s in _zeros(n, spec, layouts[n])]
    return [Nest(new.loops, [new]) for s in found for new in rewriter.statements(s)]


def covers(nests: Sequence[Nest], zeros: Nest) -> bool:
    """Return whether one of the nests writes all that one of `gaps` does."""
    (wanted,) = zeros.statements
    return any(s.tensor == wanted.tensor and not s.flat and _contains(s, wanted) for n in nests for s in n.statements)


def _contains(s: Statement, other: Statement) -> bool:
    """Return whether the box that a statement writes contains that of another one."""
    boxes = zip(box_of(s.subs, s.loops), box_of(other.subs, other.loops))
    return all(a <= c and d <= b for (a, b), (c, d) in boxes)


def box_of(subs: Sequence[Node], loops: Sequence[Loop]) -> list[tuple[float, float]]:
    """The lowest and the highest value of each subscript, or numbers beyond them."""
    space = IndexSpace(loops)
    return [space.interval(space.linear(sub).node()) for sub in subs]


def _zeros(name: str, spec: TensorSpec, layout: Layout) -> Iterator[Statement]:
    for box in layout.gaps(spec.dims) if greatest(spec.len) else []:
        if all(low < high for low, high in box):
            loops = tuple((f"z{k}", high - low) for k, (low, high) in enumerate(box))
            subs = tuple(shifted_index(Idx(z), low) for (z, _), (low, _) in zip(loops, box))
            yield Statement(name, subs, "=", _zero(spec.dtype), loops)


def _zero(dtype: DType) -> Const:
    return Const(0.0 if dtype.is_float else 0, dtype)


# -- before layouts are looked at


def by_dims(d: BoundDefinition, layouts: Layouts) -> BoundDefinition:
    """The definition with statements that write all of a tensor of `layouts` by row-major numbers written by its dims.

    ``dst.flat[i] = src.flat[i]``  becomes  ``dst[n, c, h, w] = src.flat[((n·C + c)·H + h)·W + w]``
    """
    statements = [_by_dims(s, d.specs[s.tensor]) if s.tensor in layouts and s.flat else s for s in d.statements]
    return BoundDefinition(d.operands, d.results, d.locals, tuple(statements))


def _by_dims(s: Statement, spec: TensorSpec) -> Statement:
    if s.arg is not None or len(s.loops) != 1 or s.loops[0][1] != spec.len or s.subs != (Idx(s.loops[0][0]),):
        return s
    name = s.loops[0][0]
    loops: tuple[Loop, ...] = tuple((f"{name}.{k}", n) for k, n in enumerate(spec.dims) if greatest(n) > 1)
    subs: list[Node] = [Idx(f"{name}.{k}") if greatest(n) > 1 else Const(0, I64) for k, n in enumerate(spec.dims)]
    value = IndexSpace(loops + s.reductions).simplify(substitute(s.value, {name: linearize(subs, spec.dims)}))
    return Statement(s.tensor, tuple(subs), s.op, value, loops, s.reductions, None, s.fresh)


def _args_apart(d: BoundDefinition, layouts: Layouts) -> BoundDefinition:
    """The definition where a statement that writes a value and its position writes both to one place: where these lie
    in two ways, by way of locals."""
    statements: list[Statement] = []
    locals = list(d.locals)
    for s in d.statements:
        if s.arg is None or layouts.get(s.tensor) == layouts.get(s.arg):
            statements.append(s)
            continue
        near = {t: f"{t}.found" for t in s.targets}
        locals += [(new, d.specs[t]) for t, new in near.items()]
        statements.append(replace(s, tensor=near[s.tensor], arg=near[s.arg]))
        for t, new in near.items():
            value = Read(new, s.subs, None, d.specs[t].dtype, s.flat)
            statements.append(Statement(t, s.subs, "=", value, s.loops, flat=s.flat))
    return BoundDefinition(d.operands, d.results, tuple(dict(locals).items()), tuple(statements))


def _near(d: BoundDefinition, layouts: Layouts) -> dict[str, Layout]:
    """Layouts of locals, in which they lie as what they are computed from, or what is computed of them, does: a value
    and its position, which one statement writes to one place, both or neither."""
    found: dict[str, Layout] = {}
    last = any(isinstance(layout, ChannelsLast) for layout in layouts.values())
    locals = dict(d.locals)
    pairs = {t: s.targets for s in d.statements if s.arg is not None for t in s.targets}
    for t in [t for t, pair in pairs.items() if not locals.keys() >= set(pair)]:
        locals.pop(t, None)
    for s in d.statements:
        known = {**layouts, **found}
        space = IndexSpace(s.loops + s.reductions)
        accesses = [(s.tensor, s.subs, s.flat), *((r.tensor, r.subs, r.flat) for r in reads(s.value))]
        walked = dict(_blocks(accesses, space, d.specs, known))
        for tensor, subs, flat in accesses:
            if tensor not in locals or tensor in found or flat:
                continue
            near: list[Layout] = [ChannelsLast()] if last and locals[tensor].ndim == 4 else []
            for k, sub in enumerate(subs):
                if isinstance(sub, Idx) and walked.get(sub.name, (0, 1))[1] == 0:
                    near.append(Lanes(k, walked[sub.name][0]))
            found.update((t, near[0]) for t in pairs.get(tensor, (tensor,)) if near)
    return found


def _blocks(
    accesses: Sequence[tuple[str, Sequence[Node], bool]],
    space: IndexSpace,
    specs: Mapping[str, TensorSpec],
    layouts: Layouts,
) -> Iterator[tuple[str, Cut]]:
    """The indices that walk through blocks of layouts, one element after the other."""
    for tensor, subs, flat in accesses:
        if tensor not in layouts:
            continue
        dims = specs[tensor].dims
        for sub in layouts[tensor].subscripts(delinearize(subs[0], dims) if flat else subs, dims):
            match sub:
                case Apply(fn="mod", args=(index, Const(value=value))) if not isinstance(value, Dim):
                    form, block = space.linear(index), int(value)
                case _:
                    continue
            ((atom, factor),) = form.terms.items() if len(form.terms) == 1 else ((None, 0),)
            if isinstance(atom, Idx) and factor == 1 and block > 1:
                yield atom.name, (block, -form.const % block)


# -- rewriting statements


class _Rewriter:
    """Puts statements of `d` on the memory of tensors in `layouts`."""

    def __init__(self, d: BoundDefinition, layouts: Layouts):
        self.specs, self.layouts = d.specs, layouts
        #: Locals in whose unused lanes nobody has written: only operands and results have zeros there by themselves.
        self.partial = {name for name, _ in d.locals}
        #: Where something is summed, what comes before and after it has to have its loops.
        self.may_widen = all(s.op == "=" for s in d.statements)

    def stored(self, tensor: tuple[str, TensorSpec]) -> tuple[str, TensorSpec]:
        """A tensor with the shape of its memory."""
        name, spec = tensor
        return name, TensorSpec(
            self.layouts[name].physical_dims(spec.dims), spec.dtype
        ) if name in self.layouts else spec

    def statements(self, s: Statement) -> list[Statement]:
        """The statements that one becomes; together they write the same."""
        found = [s]
        for name, cut in self.cuts(s).items():
            found = [piece for part in found for piece in self.pieces(part, name, cut)]
        return [self.placed(self.reductions_cut(piece)) for piece in found]

    # -- cutting loops where blocks begin

    def cuts(self, s: Statement) -> dict[str, Cut]:
        """The loops to cut, by what is written, or, where that is row-major, by what is read along its last loop."""
        space, loops = IndexSpace(s.loops + s.reductions), dict(s.loops)
        if s.tensor in self.layouts:
            found = self.blocks([(s.tensor, s.subs, s.flat)], space)
        else:
            last = s.loops[-1][0] if s.loops else ""
            found = ((name, cut) for name, cut in self.blocks(_accesses(s), space) if name == last)
        first: dict[str, Cut] = {}
        for name, cut in found:
            if name in loops:
                first.setdefault(name, cut)
        return first

    def blocks(
        self, accesses: Sequence[tuple[str, Sequence[Node], bool]], space: IndexSpace
    ) -> Iterator[tuple[str, Cut]]:
        return _blocks(accesses, space, self.specs, self.layouts)

    def pieces(self, s: Statement, name: str, cut: Cut) -> list[Statement]:
        """A statement whose loop `name` is cut: what is before the first whole block, these, and what is behind."""
        n, (block, phase) = dict(s.loops)[name], cut
        head = dim_min(phase, n)
        whole = (n - head) // block
        end = head + whole * block
        parts = [(0, 1, head), (head, whole, block), (end, 1, n - end)]
        found = [_piece(s, name, *part) for part in parts if greatest(part[1] * part[2]) > 0]
        if not isinstance(n, Dim) and end < n and not head and (wide := self.widened(s, name, end, block)) is not None:
            found[-1] = wide
        return found

    def widened(self, s: Statement, name: str, start: int, block: int) -> Statement | None:
        """The elements behind the last whole block as a whole block, with zeros in the lanes that are none: a vector is
        computed at once. None where something is not there to be read in those lanes, or they belong to others."""
        if not self.may_widen or s.tensor not in self.layouts or s.flat:
            return None
        spec, wide, n = self.specs[s.tensor], _piece(s, name, start, 1, block), dict(s.loops)[name]
        lanes = next(_zeros(s.tensor, spec, self.layouts[s.tensor]), None)
        if lanes is None or not _contains(wide, lanes) or not self.is_there(wide, f"{name}.l"):
            return None
        inside = Apply("lt", (Idx(f"{name}.l"), Const(n - start, I64)), BOOL)
        self.partial.discard(s.tensor)
        return replace(wide, value=Apply("select", (inside, wide.value, _zero(spec.dtype)), spec.dtype))

    def is_there(self, s: Statement, lane: str) -> bool:
        """Return whether memory has what a statement reads, along all lanes, and it was written."""
        space = IndexSpace(s.loops)
        for tensor, subs, flat in _accesses(s):
            dims = self.specs[tensor].dims
            sizes: Sequence[int] = (prod(dims),) if flat else dims
            if tensor in self.layouts and tensor not in self.partial:
                subs, sizes = self.subscripts(tensor, subs, flat), self.layouts[tensor].physical_dims(dims)
            if not all(space.inside(sub, n) for sub, n in zip(subs, sizes) if lane in indices(sub)):
                return False
        return True

    def reductions_cut(self, s: Statement) -> Statement:
        """A statement whose reductions are cut in two where they walk through whole blocks alone."""
        if s.arg is not None or not s.reductions:
            return s
        for name, (block, phase) in dict(self.blocks(_accesses(s), IndexSpace(s.loops + s.reductions))).items():
            n = dict(s.reductions).get(name)
            if n is None or phase or n % block != 0 or greatest(n) <= block:
                continue
            new = (name, n // block), (f"{name}.l", block)
            reductions = tuple(loop for old in s.reductions for loop in (new if old[0] == name else (old,)))
            s = replace(s, reductions=reductions, value=substitute(s.value, {name: _position(name, 0, n, block)}))
        return s

    # -- where elements lie

    def subscripts(self, tensor: str, subs: Sequence[Node], flat: bool) -> tuple[Node, ...]:
        """Subscripts of a tensor of `layouts`, in its memory."""
        dims = self.specs[tensor].dims
        return self.layouts[tensor].subscripts(delinearize(subs[0], dims) if flat else subs, dims)

    def placed(self, s: Statement) -> Statement:
        """A statement on memory, its loops in the order in which what it writes lies."""
        space = IndexSpace(s.loops + s.reductions)
        s = replace(s, value=space.simplify(self.node(s.value)))
        if s.tensor not in self.layouts:
            return s
        subs = tuple(space.linear(sub).node() for sub in self.subscripts(s.tensor, s.subs, s.flat))
        dims = self.layouts[s.tensor].physical_dims(self.specs[s.tensor].dims)
        form = space.linear(linearize(subs, dims))
        stride = {atom.name: abs(factor) for atom, factor in form.terms.items() if isinstance(atom, Idx)}
        loops = s.loops
        if len(stride) == len(form.terms):
            loops = tuple(sorted(loops, key=lambda loop: -stride.get(loop[0], prod(dims) + 1)))
        return replace(s, subs=subs, flat=False, loops=loops)

    def node(self, node: Node) -> Node:
        """Reads of memory; fillers as explicit guards."""
        new = rebuild(node, self.node)
        if not isinstance(new, Read) or new.tensor not in self.layouts:
            return new
        read = Read(new.tensor, self.subscripts(new.tensor, new.subs, new.flat), None, new.dtype)
        if new.filler is None:
            return read
        dims = self.specs[new.tensor].dims
        cond = inside(new.subs, [(0, n) for n in ((prod(dims),) if new.flat else dims)])
        return Apply("select", (cond, read, new.filler), new.dtype)


def _accesses(s: Statement) -> list[tuple[str, Sequence[Node], bool]]:
    """The accesses that a statement reads by."""
    return [(r.tensor, r.subs, r.flat) for r in reads(s.value)]


def _piece(s: Statement, name: str, start: int, count: int, length: int) -> Statement:
    """A statement from `start` of a loop on, for `count` blocks of `length`."""
    new = ((name, count), (f"{name}.l", length)) if count != 1 else ((f"{name}.l", length),)
    by = {name: _position(name, start, count, length)}
    loops = tuple(loop for old in s.loops for loop in (new if old[0] == name else (old,)))
    return replace(s, loops=loops, subs=tuple(substitute(sub, by) for sub in s.subs), value=substitute(s.value, by))


def _position(name: str, start: int, count: int, length: int) -> Node:
    lane = shifted_index(Idx(f"{name}.l"), start)
    return lane if count == 1 else Apply("add", (Apply("mul", (Idx(name), Const(length, I64)), I64), lane), I64)
