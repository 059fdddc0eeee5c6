"""`vector.shuffle` and `tile.transpose` as LLVM instructions. Part of the emitter; see `function.py`.

Registers are shuffled two at a time. A transpose of tiles of more than one dimension only renames registers; squares of
numbers are shuffles, and the rest is put together number by number.
"""

from __future__ import annotations

from functools import partial

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.values import Vec, row_major
from lightnet.diagnostics import LightNetError
from lightnet.dialects import tile_arith


def _shuffle(e: FunctionEmitter, op: vector.ShuffleOp) -> None:
    """Elements of two vectors of one dimension: one instruction where all are registers of one length."""
    first, second = e.get_vec(op.v1), e.get_vec(op.v2)
    if len(first.shape) != 1:
        raise LightNetError(f"vector.shuffle: only vectors of one dimension are shuffled, got {op.v1.type}")
    mask, n = op.mask.get_values(), first.shape[0]
    picks = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in mask)

    def make_leaf(f: int) -> str:
        if first.shape == second.shape == (first.lanes,) and min(first.lanes, vec.lanes) > 1 and vec.count == 1:
            kind = first.leaf_type
            return e.ins(
                f"shufflevector {kind} {first.leaf(0)}, {kind} {second.leaf(0)}, <{len(mask)} x i32> <{picks}>"
            )
        wanted = mask[f * vec.lanes : (f + 1) * vec.lanes]
        return e.leaf_of_elements(vec.elem, [element(k) for k in wanted])

    def element(k: int) -> str:
        return "poison" if k < 0 else e.element(first, k) if k < n else e.element(second, k - n)

    vec = e.vec(op.result.type, make_leaf, roots=first.roots | second.roots)
    e.bind(op.result, vec)


def _transpose(e: FunctionEmitter, op: tile_arith.TransposeOp) -> None:
    sources = [e.get_vec(v) for v in op.operands_]
    roots = frozenset().union(*(s.roots for s in sources))
    n = len(sources)
    if sources[0].shape == (n,) == (sources[0].lanes,) and n >= 4 and n & (n - 1) == 0:
        columns: list[str] = []

        def column(j: int) -> str:
            if not columns:
                columns.extend(_transposed_square(e, [s.leaf(0) for s in sources], sources[0].leaf_type))
            return columns[j]

        def leaf(j: int, f: int) -> str:
            return column(j)

        for j, result in enumerate(op.results_):
            e.bind(result, e.vec(result.type, partial(leaf, j), roots=roots))
        return
    for j, result in enumerate(op.results_):
        e.bind(result, _transposed(e, sources, j, result.type, roots))


def _transposed_square(e: FunctionEmitter, rows: list[str], type: str) -> list[str]:
    """The columns of n rows of n elements, n a power of two from 4 on: log2(n) rounds of n shuffles of two registers.
    The first two rounds stay inside groups of four elements (unpack instructions), the others move whole groups."""
    n = len(rows)

    def shuffle(a: str, b: str, lanes: list[int]) -> str:
        picks = ", ".join(f"i32 {k}" for k in lanes)
        return e.ins(f"shufflevector {type} {a}, {type} {b}, <{n} x i32> <{picks}>")

    def zipped(a: str, b: str, size: int, half: int) -> str:
        """Of each group of four: its lower or upper half, in units of `size` elements from both by turns."""
        lanes = []
        for group in range(0, n, 4):
            for unit in range(group + 2 * half, group + 2 * half + 2, size):
                lanes += [*range(unit, unit + size), *range(n + unit, n + unit + size)]
        return shuffle(a, b, lanes)

    quads: list[list[str]] = []  # [four rows][k]: group g has elements 4g + k of the four
    for q in range(0, n, 4):
        r = rows[q : q + 4]
        pairs = [[zipped(r[i], r[i + 1], 1, half) for half in (0, 1)] for i in (0, 2)]
        quads.append([zipped(pairs[0][k // 2], pairs[1][k // 2], 2, k % 2) for k in range(4)])
    columns = [""] * n
    for k in range(4):
        parts = [quad[k] for quad in quads]
        for _ in range(
            (n // 4).bit_length() - 1
        ):  # even groups of each pair, then the odd ones: log2 rounds transpose groups
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            groups = n // 4
            parts = [
                shuffle(a, b, [4 * g + i for g in range(odd, 2 * groups, 2) for i in range(4)])
                for odd in (0, 1)
                for a, b in pairs
            ]
        for g, part in enumerate(parts):
            columns[4 * g + k] = part
    return columns


def _transposed(e: FunctionEmitter, sources: list[Vec], j: int, type: VectorType, roots: frozenset[str]) -> Vec:
    """Row j of every source, as one tile."""
    row = row_major(sources[0].shape)[0]

    def make_scalar(i: int) -> str:
        source, rest = divmod(i, row)
        return e.element(sources[source], j * row + rest)

    def make_leaf(f: int) -> str:
        if len(sources[0].shape) == 1:
            return e.leaf_of_elements(vec.elem, [make_scalar(f * vec.lanes + k) for k in range(vec.lanes)])
        source, rest = divmod(f, row // vec.lanes)
        return sources[source].leaf(j * (row // vec.lanes) + rest)

    vec = e.vec(type, make_leaf, make_scalar, roots)
    return vec


HANDLERS: dict[type[Operation], Handler] = {vector.ShuffleOp: _shuffle, tile_arith.TransposeOp: _transpose}
