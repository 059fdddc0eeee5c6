"""The core of products on tensor cores, in the PTX interpreter: all types, B by columns and by k, tiles from the menu, against float64; that it
meets no bank conflicts; and that fragments, slots and columns taken for each other are noticed."""

from __future__ import annotations

from math import prod

import cuda_drivers
import ml_dtypes
import numpy as np
import pytest
from cuda_device import Device
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, ModuleOp, VectorType, bf16, f16, f32, f64

from lightnet.backends.cuda.gemm.core import ProductTile
from lightnet.backends.cuda.gemm.mma_core import MmaCore, product_tiles, warps_across
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_matrix import LdmatrixOp, MmaOp
from lightnet.ir.verify import verify_module
from lightnet_ptx.machine import Batch

TYPES = {f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32}
#: One mma for each side and no more, an odd number of fragments of B, of 1, 2 and 4 columns a load, warps along rows, columns and both.
TILES = [
    ProductTile(16, 8, 16, 2, (1, 1)),
    ProductTile(32, 24, 32, 2, (1, 1)),
    ProductTile(32, 16, 16, 3, (2, 1)),
    ProductTile(48, 96, 16, 2, (1, 3)),
    ProductTile(64, 64, 32, 2, (2, 2)),
    ProductTile(128, 64, 16, 2, (4, 2)),
]


def tf32(x: np.ndarray) -> np.ndarray:
    """f32 rounded to 10 bits behind the point, ties away from zero: as `cuda.round_tf32`."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def product(tile: ProductTile, element, by_k: bool, steps: int) -> ModuleOp:
    """A block's tile of C = A Bᵀ of `steps` stages, each copied to shared memory before it is multiplied."""
    core, depth = MmaCore(tile, element, by_k), steps * tile.depth
    right = (depth, tile.cols) if by_k else (tile.cols, depth)
    types = [
        MemRefType(element, (tile.rows, depth)),
        MemRefType(element, right),
        MemRefType(f32, (tile.rows, tile.cols)),
    ]
    b = Simt.thread("product", types, (core.threads, 1, 1))
    b_rows, b_width = (tile.depth, tile.cols) if by_k else (tile.cols, tile.depth)
    a_shared = b.shared([tile.stages * tile.rows, core.a_pitch], element)
    b_shared = b.shared([tile.stages * b_rows, core.b_pitch], element)

    def copy(to, source, rows: int, width: int, slot, at, order=lambda line: line) -> None:
        """`rows` x `width` elements from `at` on into a slot, one a thread and trip; `order` says which line is where."""
        with b.loop(b.thread_id(), rows * width, core.threads) as items:
            row, col = b.divmod(items.iv, width)
            value = b.load(source, [b.add(at[0], order(row)), b.add(at[1], col)])
            b.store(value, to, [b.add(b.mul(slot, rows), row), col])

    with b.loop(0, steps, 1, core.begin(b)) as stages:
        slot, k = b.divmod(stages.iv, tile.stages)[1], b.mul(stages.iv, tile.depth)
        copy(a_shared, b.args[0], tile.rows, tile.depth, slot, (0, k))
        order = (lambda line: line) if by_k else (lambda line: core.column(b, line, 0, tile.cols))
        copy(b_shared, b.args[1], b_rows, b_width, slot, (k, 0) if by_k else (0, k), order)
        b.barrier()
        stages.yields(*core.step(b, a_shared, b_shared, slot, stages.args))
        b.barrier()
    for value, row, col, step in core.finished(b, stages.results):
        rows, cols = value.type.get_shape()
        for i in range(rows):
            line = b.get(vector.ExtractOp(value, [i], VectorType(f32, [cols])))
            b.tile_store(line, b.args[2], [b.add(row, i * step), col], [1])
    return ModuleOp([b.finish()])


def factors(tile: ProductTile, element, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """A [rows, depth] and B [cols, depth], with all bits that the type has."""
    rng = np.random.default_rng(tile.rows + tile.cols)
    depth = steps * tile.depth
    a, b = (rng.standard_normal((n, depth)).astype(np.float32).astype(TYPES[element]) for n in (tile.rows, tile.cols))
    return a, b


def multiply(module: ModuleOp, tile: ProductTile, a: np.ndarray, b: np.ndarray, by_k: bool) -> np.ndarray:
    out = np.full((len(a), len(b)), np.nan, np.float32)
    threads = 32 * tile.across[0] * tile.across[1]
    return Device(str(module)).run("product", [1], [threads], [a, np.ascontiguousarray(b.T) if by_k else b], out)


def error(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The largest error relative to sum |a||b|, which sums in f32 of exact products of the rounded factors have."""
    if a.dtype == np.float32:
        a, b = tf32(a), tf32(b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((np.abs(got - a @ b.T) / (np.abs(a) @ np.abs(b.T))).max())


def checked(tile: ProductTile, element, by_k: bool, steps: int = 3) -> None:
    module = product(tile, element, by_k, steps)
    verify_module(module)
    a, b = factors(tile, element, steps)
    assert error(multiply(module, tile, a, b, by_k), a, b) < 1e-5


@pytest.fixture
def reads(monkeypatch) -> list[tuple[np.ndarray, int]]:
    """The addresses in shared memory that are read at a time, and the bytes at each."""
    seen, load = [], Batch.load

    def recorded(self, space, addresses, dtype, count, *rest, **options):
        if space == "shared":
            seen.append((np.array(addresses), dtype.itemsize * count))
        return load(self, space, addresses, dtype, count, *rest, **options)

    monkeypatch.setattr(Batch, "load", recorded)
    return seen


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("by_k", [False, True], ids=["columns", "k"])
@pytest.mark.parametrize("element", TYPES, ids=str)
@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.rows}x{t.cols}")
def test_product(tile, element, by_k, reads):
    """Sums are right, and the lanes that are served together (as many as ask for 128 bytes) find theirs in the 32 banks of four bytes."""
    checked(tile, element, by_k)
    if cuda_drivers.on_device():
        return
    assert reads
    for addresses, size in reads:
        words = addresses.reshape(-1, 128 // size)[:, :, None] // 4 + np.arange(size // 4)
        assert (np.sort(words.reshape(len(words), 32) % 32) == np.arange(32)).all()


@pytest.mark.parametrize("element", [f16, f32], ids=str)
def test_large_tile(element):
    rows, cols, depth = next(s for s in product_tiles(element) if s[:2] == (128, 128))
    checked(ProductTile(rows, cols, depth, 2, warps_across(rows, cols)), element, element is f32, 2)


def test_menu():
    """Every tile of the menu is one that a core takes, and its sums leave registers for the factors."""
    for element in TYPES:
        found = product_tiles(element)
        assert len(set(found)) == len(found)
        assert {(128, 128), (128, 64), (64, 64), (64, 32), (32, 32)} <= {s[:2] for s in found}
        assert {prod(warps_across(*s[:2])) for s in found} == {2, 4, 8} and prod(warps_across(128, 128)) == 8
        for rows, cols, depth in found:
            core = MmaCore(ProductTile(rows, cols, depth, 2, warps_across(rows, cols)), element)
            assert rows * cols // core.threads <= 128
    assert product_tiles(f64) == []


@pytest.mark.parametrize(
    "tile, element",
    [
        (ProductTile(24, 8, 16, 2, (1, 1)), f16),
        (ProductTile(32, 12, 16, 2, (1, 1)), f16),
        (ProductTile(32, 16, 16, 2, (1, 4)), f16),
        (ProductTile(32, 16, 8, 2, (1, 1)), f16),
        (ProductTile(32, 16, 12, 2, (1, 1)), f32),
        (ProductTile(32, 16, 16, 2, (0, 1)), f32),
        (ProductTile(32, 16, 16, 2, (1, 1)), f64),
    ],
    ids=str,
)
def test_tiles_without_whole_fragments_are_refused(tile, element):
    with pytest.raises(LightNetError, match=r"whole fragments|f64"):
        MmaCore(tile, element)


def test_tiles_that_registers_do_not_hold_are_refused():
    """Code is written out for each product of fragments: a thread with thousands of sums would take LLVM minutes."""
    with pytest.raises(LightNetError, match="sums at most"):
        MmaCore(ProductTile(512, 512, 16, 2, (1, 1)), f16)
    MmaCore(ProductTile(128, 256, 16, 2, (2, 4)), f16)


# ---- what is taken for each other ----------------------------------------------------------------------------------------

MUTATED = ProductTile(32, 32, 16, 2, (1, 2))


def wrong(module: ModuleOp, by_k: bool) -> bool:
    a, b = factors(MUTATED, f16, 3)
    try:
        return not error(multiply(module, MUTATED, a, b, by_k), a, b) < 1e-3
    except LightNetError:
        return True


def ops(module: ModuleOp, kind: type) -> list:
    return [op for op in module.walk() if isinstance(op, kind)]


@pytest.mark.parametrize("by_k", [False, True], ids=["columns", "k"])
def test_a_fragment_taken_for_another_is_noticed(by_k):
    """Each operand of each mma replaced by that of another."""
    module = product(MUTATED, f16, by_k, 3)
    assert not wrong(module, by_k)
    count = len(ops(module, MmaOp))
    assert count == 4
    for number in range(count):
        for operand in range(2):
            changed = module.clone()
            products = ops(changed, MmaOp)
            others = {m.operands[operand] for m in products} - {products[number].operands[operand]}
            products[number].operands[operand] = others.pop()
            assert wrong(changed, by_k)


@pytest.mark.parametrize("by_k", [False, True], ids=["columns", "k"])
def test_another_slot_row_or_column_is_noticed(by_k):
    """Each `ldmatrix` reading the next row or eight columns further on, or in the other slot."""
    module = product(MUTATED, f16, by_k, 3)
    for number, op in enumerate(ops(module, LdmatrixOp)):
        rows = op.memref.type.get_shape()[0]
        for dim, by in ((0, 1), (0, rows // 2), (1, 8)):
            changed = module.clone()
            load = ops(changed, LdmatrixOp)[number]
            offset = arith.ConstantOp(IntegerAttr(by, IndexType()))
            moved = arith.AddiOp(load.indices[dim], offset)
            extent = arith.ConstantOp(IntegerAttr(op.memref.type.get_shape()[dim], IndexType()))
            around = arith.RemSIOp(moved, extent)
            for new in (offset, moved, extent, around):
                load.parent.insert_op_before(new, load)
            load.operands[1 + dim] = around.result
            assert wrong(changed, by_k)
