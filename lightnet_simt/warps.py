"""The common work of warps, on arrays with a value a lane: products of fragments, and matrices read as fragments.

Which lane holds what is said in `dialects/cuda_matrix.py`: of the 16 x k elements of A lane 4g + i has, in register
2q + h, those of row 8h + g from column k/2 · q + e·i on, e elements a register (2 of 16-bit types, else 1); of the k x
8 elements of B, in register r, those of column g from row k/2 · r + e·i on; of C, in register h, the columns 2i and
2i + 1 of row 8h + g. Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import Float32Type, FunctionType, MemRefType, StringAttr, f32, i8, i32
from xdsl.ir import Attribute, Block, Region, SSAValue

from lightnet.backends.builder import INDEX, Builder, Index
from lightnet.dialects.cuda_matrix import SHAPES
from lightnet.ir.types import memref_type_of, vector_type_of

#: The bits of f32 that tensor cores take.
_TF32 = ~0x1FFF
#: Rows of C that are multiplied at a time.
_ROWS = 4


class PrivateFunction(Builder):
    """Builds a function that kernels call. `args` are all that it takes."""

    @classmethod
    def make(cls, name: str, types: Sequence[Attribute]) -> PrivateFunction:
        function = func.FuncOp(name, FunctionType.from_lists(types, []), Region(Block(arg_types=types)))
        function.sym_visibility = StringAttr("private")
        return cls(function)

    @property
    def args(self) -> Sequence[SSAValue]:
        return self.entry.args


def mma_types(element: Attribute, threads: int) -> list[MemRefType]:
    """The arrays of A, B, C and D, [threads, …], as `mma_function` takes them."""
    each = SHAPES[type(element)][2] // 8
    shapes = ((element, [2, 2, each]), (element, [2, each]), (f32, [2, 2]), (f32, [2, 2]))
    return [MemRefType(e, [threads, *shape]) for e, shape in shapes]


def mma_function(name: str, element: Attribute, threads: int) -> func.FuncOp:
    """``name(first, a, b, c, d)``: `cuda.mma` of the warp whose first thread is `first`; d may be c. Products and sums
    of 16-bit types are f32, in another order than tensor cores add in."""
    b = PrivateFunction.make(name, [INDEX, *mma_types(element, threads)])
    first, a, right, c, d = b.args
    k = SHAPES[type(element)][2]
    each, half = k // 8, k // 2
    room = b.append(memref.AllocaOp.get(i8, 64, [4 * (16 * k + 8 * k + 128)])).results[0]
    at_b, at_c = 4 * 16 * k, 4 * 24 * k

    def view(offset: int, *shape: int) -> SSAValue:
        return b.view(room, offset, MemRefType(f32, shape))

    by_lane_a, by_lane_b, by_lane_c = view(0, 2, 8, 2, half), view(at_b, 2, half, 8), view(at_c, 2, 8, 8)
    with b.loop(0, 8, name="g") as g, b.loop(0, 4) as i:
        lane, at = b.add(b.add(first, b.mul(g.iv, 4)), i.iv), b.mul(i.iv, each)
        own = b.tile_load(a, [lane, 0, 0, 0], [1, 2, 3], [2, 2, each])
        b.tile_store(_extended(b, own), by_lane_a, [0, g.iv, 0, at], [2, 0, 3])
        own = b.tile_load(right, [lane, 0, 0], [1, 2], [2, each])
        b.tile_store(_extended(b, own), by_lane_b, [0, at, g.iv], [0, 1])
        own = b.tile_load(c, [lane, 0, 0], [1, 2], [2, 2])
        b.tile_store(own, by_lane_c, [0, g.iv, b.mul(i.iv, 2)], [0, 2])
    rows, columns, sums = view(0, 16, k), view(at_b, k, 8), view(at_c, 16, 8)
    with b.loop(0, 16, _ROWS, name="row") as row:
        total = b.tile_load(sums, [row.iv, 0], [0, 1], [_ROWS, 8])
        left = b.tile_load(rows, [row.iv, 0], [0, 1], [_ROWS, k])
        total = b.fma(left, b.tile_load(columns, [0, 0], [0, 1], [k, 8]), total)
        b.tile_store(total, sums, [row.iv, 0], [0, 1])
    with b.loop(0, 8, name="g") as g, b.loop(0, 4) as i:
        lane = b.add(b.add(first, b.mul(g.iv, 4)), i.iv)
        own = b.tile_load(by_lane_c, [0, g.iv, b.mul(i.iv, 2)], [0, 2], [2, 2])
        b.tile_store(own, d, [lane, 0, 0], [1, 2])
    return b.finish()


def _extended(b: Builder, value: SSAValue) -> SSAValue:
    """Elements of a fragment as the f32 that tensor cores take them for."""
    if not isinstance(vector_type_of(value).element_type, Float32Type):
        return b.cast("extf", value, f32)
    bits = b.cast("bitcast", value, i32)
    return b.cast("bitcast", b.op(arith.AndIOp, bits, b.const(_TF32, bits.type)), f32)


def read_row(
    b: Builder, source: SSAValue, indices: list[SSAValue], fragments: SSAValue, place: tuple[Index, Index, Index],
    trans: bool
) -> None:  # fmt: skip
    """Read what lane `s` of `cuda.ldmatrix` names: a row of 16 bytes of `source`, whose elements go to the fragments,
    [threads, matrices, e], of the lanes that get them. `place` is the first thread of the warp, the matrix, and the row
    in it."""
    first, matrix, row = place
    last, each = len(indices) - 1, memref_type_of(fragments).get_shape()[2]
    if not trans:  # lanes 4·row to 4·row + 3
        read = b.tile_load(source, indices, [last, last], [4, each], steps=[each, 1])
        b.tile_store(read, fragments, [b.add(first, b.mul(row, 4)), matrix, 0], [0, 2])
        return
    pair, element = b.divmod(row, 2)
    read = b.tile_load(source, indices, [last], [8])
    b.tile_store(read, fragments, [b.add(first, pair), matrix, element], [0], steps=[4])
