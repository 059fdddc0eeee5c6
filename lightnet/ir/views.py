"""The values of an op that may be the same memory: views (moves that cost nothing) and operands that may be
overwritten.

Planning merges such values, the checker allows them to overlap, the interpreter and the lowering write nothing for a
move whose places coincide. All three ask here, for single ops and for kernels (their bodies are composed). Offsets and
sizes that a call decides are `Dim`s; a move whose pieces are not in one order for all values is none. Imports the op
base, kernels, places and the parser of index notation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from lightnet.ir import notation
from lightnet.ir.expr import Index, is_flat, read_name, walk
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN, Blocked, ChannelsLast, Layout, byte_size, layout_of
from lightnet.ir.op import LnOp, places_of
from lightnet.ir.place import PlaceAttr
from lightnet.ir.reserved import grown
from lightnet.ir.types import TensorSpec, spec_of, storage_type
from lightnet.runtime.arrays import ALIGNMENT
from lightnet.runtime.dims import Undecided, common_divisor
from lightnet.runtime.program import is_port


class Piece(NamedTuple):
    """`size` bytes from byte `offset` of operand number `operand`."""

    operand: int
    offset: int
    size: int


class View(NamedTuple):
    """The op only moves: nothing need be done if the result's address is the operand's plus `delta` bytes. The smaller
    of the two lies inside the larger one then (`delta` is negative where the operand is part of the result)."""

    operand: int
    result: int
    delta: int


def place_of(value: SSAValue) -> PlaceAttr | None:
    """The place of a planned value; None before `plan` (and for block arguments)."""
    if not isinstance(value, OpResult):
        return None
    places = places_of(value.op)
    return places[value.index] if value.index < len(places) else None


def alignment_of(values: Sequence[SSAValue]) -> int:
    """The largest power of two, up to that of a memory space, that divides the address of each value; a port's is its
    element's. Values that have no place yet count as aligned."""
    places = [(v, p) for v in values if (p := place_of(v)) is not None]
    elements = (spec_of(v.type).dtype.size for v, p in places if is_port(p.space.data))
    return gcd(ALIGNMENT, *(common_divisor(p.offset.data) for _, p in places), *elements)


# -- moves -----------------------------------------------------------------------------------------------------------


def operand_pieces(op: Operation) -> list[list[Piece] | None]:
    """For each result: the runs of operand bytes that it consists of, in order; None where it is computed, or moved in
    another order."""
    try:
        if isinstance(op, KernelOp):
            return _kernel_pieces(op)
        return _pieces(op) if isinstance(op, LnOp) and op.is_move else [None] * len(op.results)
    except Undecided:
        return [None] * len(op.results)


def _pieces(op: LnOp) -> list[list[Piece] | None]:
    found: list[list[tuple[int, Piece]]] = [[] for _ in op.results]
    sizes = [byte_size(r.type) for r in op.results]
    for k, j, plain in op.views():
        if (offset := _in_layout(op.operands[k].type, op.results[j].type, plain)) is None:
            continue
        size = byte_size(op.operands[k].type)
        inside = size >= sizes[j]  # the result is a part of the operand
        found[j].append((0, Piece(k, offset, sizes[j])) if inside else (offset, Piece(k, 0, size)))
    return [_whole(parts, size) for parts, size in zip(found, sizes)]


def _in_layout(operand: Attribute, result: Attribute, offset: int) -> int | None:
    """The byte offset, in the layout that both types have, of a view that is at byte `offset` of row-major memory; None
    where the layout makes no view of it. In blocks of channels, whole blocks of whole pictures lie together, if there
    is one picture."""
    one, other = layout_of(operand), layout_of(result)
    if one is PLAIN and other is PLAIN:
        return offset
    if spec_of(operand) == spec_of(result) and _same_bytes(one, other, spec_of(operand).dims):
        return offset
    if one != other or not isinstance(one, Blocked):
        return None
    large, small = sorted((spec_of(operand), spec_of(result)), key=lambda s: -s.len)
    if large.len == 0:
        return 0
    if len(large.dims) != 4 or len(small.dims) != 4 or large.dims[0] != 1 or large.dims[2:] != small.dims[2:]:
        return None
    plane = large.dims[2] * large.dims[3] * large.dtype.size
    channel, end = offset // plane, offset // plane + small.dims[1]
    if offset % plane != 0 or channel % one.block != 0 or (end % one.block != 0 and end != large.dims[1]):
        return None
    return channel // one.block * _block_bytes(one, large)


def _same_bytes(one: Layout, other: Layout, dims: Sequence[int]) -> bool:
    """Return whether a tensor has the same memory in both layouts: [N, C, 1, 1] in whole blocks of channels, or with
    the channels last and none added, is plain memory.
    """
    if one == other:
        return True

    def is_flat(layout: Layout) -> bool:
        if layout.is_plain or len(dims) != 4 or dims[2:] != (1, 1):
            return layout.is_plain
        if isinstance(layout, ChannelsLast):
            return not dims[1] % layout.multiple
        return isinstance(layout, Blocked) and layout.halo == (0, 0) and not dims[1] % layout.block

    return is_flat(one) and is_flat(other)


def _block_bytes(layout: Blocked, spec: TensorSpec) -> int:
    """Bytes of one block of channels of one picture."""
    return prod(layout.physical_dims(spec.dims)[2:]) * spec.dtype.size


def _whole(parts: list[tuple[int, Piece]], size: int) -> list[Piece] | None:
    """The pieces in order of their place in the result, if they fill it; empty ones are left out."""
    if size == 0:
        return []
    parts = sorted(part for part in parts if part[1].size != 0)
    end = 0
    for at, piece in parts:
        if at != end:
            return None
        end += piece.size
    return [p for _, p in parts] if end == size and parts else None


def _kernel_pieces(kernel: KernelOp) -> list[list[Piece] | None]:
    known: dict[SSAValue, list[Piece] | None] = {
        a: [Piece(k, 0, n)] if (n := byte_size(a.type)) != 0 else [] for k, a in enumerate(kernel.body.args)
    }
    for op in kernel.ops:
        if not op.is_move:  # nothing behind a computation is a view
            return [None] * len(kernel.results)
        for value, pieces in zip(op.results, operand_pieces(op)):
            known[value] = _composed(pieces, [known.get(o) for o in op.operands])
    return [known.get(v) for v in kernel.terminator.operands]


def _composed(pieces: list[Piece] | None, operands: Sequence[list[Piece] | None]) -> list[Piece] | None:
    if pieces is None:
        return None
    out: list[tuple[int, int, int]] = []
    for k, offset, size in pieces:
        inner = operands[k]
        if inner is None:
            return None
        out += cut_pieces(inner, offset, size)
    return [Piece(*p) for p in joined_pieces(out)]


def cut_pieces(pieces: Sequence[tuple[Any, int, int]], offset: int, size: int) -> list[tuple[Any, int, int]]:
    """The part of a run of (source, offset, size) pieces from byte `offset` on."""
    out: list[tuple[Any, int, int]] = []
    at = 0
    for piece in pieces:
        lo, hi = max(at, offset), min(at + piece[2], offset + size)
        if lo < hi:
            out.append((piece[0], piece[1] + lo - at, hi - lo))
        at += piece[2]
    return out


def joined_pieces(pieces: Sequence[tuple[Any, int, int]]) -> list[tuple[Any, int, int]]:
    """The same bytes in as few pieces as can be."""
    out: list[tuple[Any, int, int]] = []
    for piece in pieces:
        if out and out[-1][0] == piece[0] and out[-1][1] + out[-1][2] == piece[1]:
            out[-1] = (piece[0], out[-1][1], out[-1][2] + piece[2])
        else:
            out.append(tuple(piece))
    return out


def views_of(op: Operation) -> list[View]:
    """The pairs of an operand and a result that may share memory because the op only moves."""
    views = []
    for j, pieces in enumerate(operand_pieces(op)):
        if pieces is None:
            continue
        if len(pieces) == 1:
            views.append(View(pieces[0].operand, j, pieces[0].offset))
            continue
        at = 0
        for k, offset, size in pieces:
            if offset == 0 and size == byte_size(op.operands[k].type):
                views.append(View(k, j, -at))
            at += size
    return views


def moves_left(op: Operation) -> list[tuple[int, int | None]]:
    """The moves that a planned op has to do: (result, operand) for each piece of a move that does not stand in place,
    or (result, None) for a result that is computed.
    """
    left: list[tuple[int, int | None]] = []
    for j, pieces in enumerate(operand_pieces(op)):
        to = place_of(op.results[j])
        if pieces is None or to is None:
            left.append((j, None))
            continue
        at = to.offset.data
        for k, offset, size in pieces:
            source = place_of(op.operands[k])
            if source is None or source.space != to.space or source.offset.data + offset != at:
                left.append((j, k))
            at += size
    return left


# -- overwriting an operand ------------------------------------------------------------------------------------------


def overwritable(op: Operation) -> list[tuple[int, int]]:
    """(operand, result) pairs that may have the same memory, as far as the op is concerned: the operand is read at
    exactly the element that is written, or not at all, and no other result needs it."""
    if pairs := grown(op):
        return pairs
    rows = _relations(op)
    pairs = []
    for k, row in enumerate(rows):
        needing = [j for j, relation in enumerate(row) if relation is not None]
        for j, relation in enumerate(row):
            sizes = [spec_of(v.type) for v in (op.operands[k], op.results[j])]
            layouts = [layout_of(v.type) for v in (op.operands[k], op.results[j])]
            one_type = storage_type(sizes[0].dtype) == storage_type(sizes[1].dtype)  # one memref stands for both
            same = one_type and sizes[0].nbytes == sizes[1].nbytes and layouts[0] == layouts[1]
            # With gaps, or in another order, an element of the same row-major number stands elsewhere where the dims
            # are others.
            same = same and (layouts[0].is_plain or sizes[0].dims == sizes[1].dims)
            if same and relation is not False and needing in ([], [j]):
                pairs.append((k, j))
    return pairs


def _relations(op: Operation) -> list[list[bool | None]]:
    """relation[operand][result]: None where the result does not depend on the operand, True where each of its elements
    depends on the operand's element of the same row-major number alone, False else."""
    if isinstance(op, KernelOp):
        return _kernel_relations(op)
    if not isinstance(op, LnOp) or op.is_host:
        return [[False] * len(op.results) for _ in op.operands]
    pieces = operand_pieces(op)
    operands, results = op.arg_names()
    text = op.definition
    table = _definition_relations(text, tuple(operands), tuple(results)) if isinstance(text, str) else None
    rows: list[list[bool | None]] = []
    for k, operand in enumerate(op.operands):
        spec, row = spec_of(operand.type), []
        for j, result in enumerate(op.results):
            relation = table[k][j] if table else False
            other = spec_of(result.type)
            if pieces[j] == [Piece(k, 0, byte_size(result.type))] and other.nbytes == spec.nbytes:
                relation = True  # a reshape: other subscripts, the same row-major number
            elif relation and spec.dims != other.dims:
                relation = False
            row.append(relation)
        rows.append(row)
    return rows


def _kernel_relations(kernel: KernelOp) -> list[list[bool | None]]:
    """Compose the relations of the body's ops, for all block arguments at once."""
    args = kernel.body.args
    known: dict[SSAValue, list[bool | None]] = {a: [True if a is b else None for b in args] for a in args}
    for op in kernel.ops:
        rows = _relations(op)
        for j, value in enumerate(op.results):
            column: list[bool | None] = [None] * len(args)
            for k, operand in enumerate(op.operands):
                if rows[k][j] is None:
                    continue
                for n, inner in enumerate(known[operand]):
                    if inner is not None:
                        column[n] = inner and bool(rows[k][j]) and column[n] is not False
            known[value] = column
    columns = [known[v] for v in kernel.terminator.operands]
    return [[column[n] for column in columns] for n in range(len(args))]


@lru_cache(1024)
def _definition_relations(
    text: str, operands: tuple[str, ...], results: tuple[str, ...]
) -> tuple[tuple[bool | None, ...], ...]:
    """The relations of one op from its definition: True where every read of the operand stands in an ``=`` statement,
    under the very subscripts that are written (equal dims are the caller's to check), and before which no statement
    has written the result."""
    statements = notation.parse(text).statements
    rows = []
    for operand in operands:
        needs: set[str] = {operand}  # the operand and the tensors that depend on it
        exact = True
        written: set[str] = set()
        for s in statements:
            found = [e for e in walk(s.value) if isinstance(e, Index)]
            own = [i for i in found if read_name(i) == operand]
            targets = {t.name for t in s.targets}
            if any(read_name(i) in needs for i in found) or targets & needs:
                needs |= targets
            if own and (s.op != "=" or written & set(results) or any(i.filler is not None for i in own)):
                exact = False
            # A local that depends on the operand would be read later, perhaps at another element.
            if own and not targets <= set(results):
                exact = False
            if any(i.subs != t.subs or is_flat(i) != t.flat for i in own for t in s.targets):
                exact = False
            written |= targets
        rows.append(tuple(None if r not in needs else exact for r in results))
    return tuple(rows)
