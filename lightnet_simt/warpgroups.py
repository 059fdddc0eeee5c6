"""The common work of warpgroups: products of stages, on sums that stand as matrices.

The sums of a product are opaque while it is under way, so they need not stand as a value a thread: all of a block are
one matrix [64 · warpgroups, N], which products add to in place and of which a thread, when it wants its share, reads
what `dialects/cuda_hopper.py` says it has. Stages stand as they are declared; nothing is swizzled, as no index sees the
swizzle. Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import MemRefType, f32, i8
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import INDEX, Builder, Index
from lightnet.dialects.cuda_stages import PANEL, WARPGROUP, WARPGROUP_ROWS
from lightnet.ir.types import memref_type_of
from lightnet_simt.warps import PrivateFunction, mma_function

#: Rows and columns of C whose sums stand in registers: half of those of AVX-512 (more than AVX2 has, where that is as
#: fast as fewer).
_TILE = 8, 32
#: Steps of k that one trip of the innermost loop makes, and rows and columns of a block that is transposed.
_UNROLL = _SQUARE = 8


# ---- where sums stand ------------------------------------------------------------------------------------------------


def sums_array(threads: int, cols: int) -> MemRefType:
    """The sums [64 · warpgroups, cols] of all threads of a block, by warpgroup, warp w, h, g, j, q and i: row 16w + g +
    8h of a warpgroup, column 8j + 2q + i."""
    return MemRefType(f32, [threads // WARPGROUP, 4, 2, 8, cols // 8, 4, 2])


#: The dimensions of a `sums_array` along which the sums [j, h, i] of one thread lie.
SUMS_DIMS = 4, 2, 6


def sums_at(b: Builder, number: Index) -> list[Index]:
    """The place in a `sums_array` where the sums of a thread begin: it is lane 4g + q of its warp."""
    group, rest = b.divmod(number, WARPGROUP)
    warp, lane = b.divmod(rest, 32)
    g, q = b.divmod(lane, 4)
    return [group, warp, 0, g, 0, q, 0]


# ---- products --------------------------------------------------------------------------------------------------------


def product_types(a: MemRefType, right: MemRefType, threads: int, cols: int) -> list[MemRefType]:
    """The memrefs of A, B and the sums, as `product_function` takes them."""
    return [a, right, MemRefType(f32, [threads // WARPGROUP * WARPGROUP_ROWS, cols])]


def product_function(name: str, types: list[MemRefType], by_k: bool) -> func.FuncOp:
    """``name(at, row, first, a, b, sums)``: `cuda.warpgroup_mma` of the warpgroup whose sums are the rows of `sums`
    from `at` on, added to in place. Products and sums are f32.

    A panel of B is widened to f32 at a time, and lies in the cache while all rows meet it.
    """
    b = PrivateFunction.make(name, [INDEX, INDEX, INDEX, *types])
    at, row, first, a, right, sums = b.args
    cols = types[2].get_shape()[1]
    room = b.append(memref.AllocaOp.get(i8, 64, [4 * PANEL * (WARPGROUP_ROWS + _TILE[1])])).results[0]
    rows = b.view(room, 0, MemRefType(f32, [WARPGROUP_ROWS, PANEL]))
    with b.loop(0, WARPGROUP_ROWS) as i:
        wide = b.cast("extf", b.tile_load(a, [b.add(row, i.iv), 0], [1], [PANEL]), f32)
        b.tile_store(wide, rows, [i.iv, 0], [1])
    for begin, end, width in _panels(cols):
        panel = b.view(room, 4 * PANEL * WARPGROUP_ROWS, MemRefType(f32, [PANEL, width]))
        with b.loop(begin, end, width, name="col") as col:
            if by_k:
                _panel_by_k(b, right, first, col.iv, panel)
            else:
                _panel_by_columns(b, right, b.add(first, col.iv), panel)
            with b.loop(0, WARPGROUP_ROWS, _TILE[0]) as i:
                _tile(b, (rows, i.iv), panel, (sums, b.add(at, i.iv), col.iv))
    return b.finish()


def _panels(cols: int) -> Iterator[tuple[int, int, int]]:
    """Columns in panels of a width, and what is left: (begin, end, width)."""
    whole = cols // _TILE[1] * _TILE[1]
    if whole:
        yield 0, whole, _TILE[1]
    if cols > whole:
        yield whole, cols, cols - whole


def _panel_by_k(b: Builder, right: SSAValue, first: SSAValue, col: SSAValue, panel: SSAValue) -> None:
    """Columns of a B by k, of which 64 lie in the same rows."""
    width = memref_type_of(panel).get_shape()[1]
    part, at = b.divmod(col, PANEL)
    line = b.add(first, b.mul(part, PANEL))
    with b.loop(0, PANEL, name="k") as k:
        wide = b.cast("extf", b.tile_load(right, [b.add(line, k.iv), at], [1], [width]), f32)
        b.tile_store(wide, panel, [k.iv, 0], [1])


def _panel_by_columns(b: Builder, right: SSAValue, line: SSAValue, panel: SSAValue) -> None:
    """Columns of a B whose rows are columns: squares of it, transposed."""
    with b.loop(0, PANEL, _SQUARE, name="k") as k:
        for col in range(0, memref_type_of(panel).get_shape()[1], _SQUARE):
            lines = [b.tile_load(right, [b.add(line, col + i), k.iv], [1], [_SQUARE]) for i in range(_SQUARE)]
            turned = b.transpose([b.cast("extf", v, f32) for v in lines])
            for i, own in enumerate(turned):
                b.tile_store(own, panel, [b.add(k.iv, i), col], [1])


def _tile(b: Builder, left: tuple[SSAValue, SSAValue], panel: SSAValue,
          place: tuple[SSAValue, SSAValue, SSAValue]) -> None:  # fmt: skip
    """Add the product of some rows and a panel to the sums, which stand in registers meanwhile."""
    (rows, row), (sums, at, col) = left, place
    shape = _TILE[0], memref_type_of(panel).get_shape()[1]
    with b.loop(0, PANEL, _UNROLL, [b.tile_load(sums, [at, col], [0, 1], shape)], name="k") as k:
        own = b.tile_load(rows, [row, k.iv], [0, 1], [shape[0], _UNROLL])
        other = b.tile_load(panel, [k.iv, 0], [0, 1], [_UNROLL, shape[1]])
        k.yields(b.fma(own, other, k.args[0]))
    b.tile_store(k.results[0], sums, [at, col], [0, 1])


# ---- for a module ----------------------------------------------------------------------------------------------------


class Helpers:
    """The private functions that kernels of a module call: a product of fragments or of stages each for its types."""

    def __init__(self, taken: set[str]):
        self.taken, self.functions = taken, dict[Hashable, func.FuncOp]()

    def fresh(self, name: str) -> str:
        """A name for a function that no other has."""
        found, number = name, 0
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def mma(self, element: Attribute, threads: int) -> str:
        """The name of the product of the fragments of a warp."""
        return self._of(
            f"mma_{element}_{threads}", (element, threads), lambda name: mma_function(name, element, threads)
        )

    def product(self, types: list[MemRefType], by_k: bool) -> str:
        """The name of the product of stages by a warpgroup."""
        name = f"wgmma_{types[0].element_type}_{types[2].get_shape()[1]}"
        return self._of(name, (*types, by_k), lambda name: product_function(name, types, by_k))

    def _of(self, name: str, key: Hashable, make: Callable[[str], func.FuncOp]) -> str:
        if key not in self.functions:
            self.functions[key] = make(self.fresh(name))
        return self.functions[key].sym_name.data
