"""Kernels for sm_90a as loops of the CPU (pass `simt-to-cpu`): products by warpgroups, of stages that tensor maps fill. Factors are small
integers, so that sums are exact, and every bit agrees with NumPy."""

from __future__ import annotations

from functools import reduce
from itertools import islice

import numpy as np
import pytest
from cuda_device import Device
from hopper_kernels import (
    CONVS,
    PRODUCTS,
    Conv,
    Tile,
    conv_data,
    convolution,
    copied,
    im2col,
    integers,
    product,
    product_data,
    tiled,
)
from simt_loops import Loops, converted
from test_simt_to_cpu import END, ONE
from test_simt_to_cpu import HEAD as ONE_HEAD
from xdsl.dialects.builtin import MemRefType, bf16, f16

from lightnet.dialects.launch import kernels

WAYS = pytest.mark.parametrize("native", [True, False], ids=["native", "interpreted"])
#: The head of a kernel of 64 threads, with 64 elements of shared memory.
BLOCK = ONE + ONE_HEAD


def run(module, name: str, grid, tile: Tile, inputs, shape, native: bool = True) -> np.ndarray:
    return on(Loops(module, native, "sm_90a"), name, grid, tile, inputs, shape)


def on(device: Loops | Device, name: str, grid, tile: Tile, inputs, shape) -> np.ndarray:
    return device.run(name, grid, [tile.threads], inputs, np.full(shape, np.nan, np.float32))


# ---- copies ------------------------------------------------------------------------------------------------------------


def box_of(x: np.ndarray, at, box) -> np.ndarray:
    """A box of a tensor, with zeros outside."""
    places = [np.arange(i, i + n) for i, n in zip(at, box)]
    inside = [((p >= 0) & (p < n)).astype(np.int8) for p, n in zip(places, x.shape)]
    taken = x[np.ix_(*(p.clip(0, n - 1) for p, n in zip(places, x.shape)))]
    return taken * reduce(np.multiply, np.ix_(*inside))


def windows_of(x: np.ndarray, at, lower, upper, strides, tap) -> np.ndarray:
    """64 windows of a map, from one on: 64 channels of one tap of each."""
    n, h, w, _ = x.shape
    starts = (
        (i, y, x)
        for i in range(n + 64)
        for y in range(lower[0], h + upper[0], strides[0])
        for x in range(lower[1], w + upper[1], strides[1])
    )
    begin = (s for s in starts if s >= at[:3])
    return np.concatenate(
        [box_of(x, (i, r + tap[0], c + tap[1], at[3]), (1, 1, 1, 64))[0, 0] for i, r, c in islice(begin, 64)]
    )


@pytest.mark.parametrize(
    ("dims", "at", "box"),
    [
        ((70, 72), (-3, 16), (64, 64)),
        ((128, 128), (32, 64), (64, 64)),
        ((3, 40, 80), (2, 10, -8), (2, 32, 64)),
        ((2, 5, 9, 72), (1, -1, -2, 8), (1, 4, 16, 64)),
        ((2, 3, 3, 5, 64), (1, 1, 2, -1, 0), (2, 2, 2, 8, 64)),
        ((2, 3, 3, 5, 64), (-1, -1, -1, 2, 64), (2, 2, 2, 8, 64)),
    ],
    ids=str,
)
def test_a_box_of_a_tensor(dims, at, box):
    x, unit = integers(f16, *dims), np.eye(64, dtype=np.float16)
    module = copied(MemRefType(f16, dims), at, tiled(*box))
    for device in (Loops(module, True, "sm_90a"), Device(str(module), "sm_90a")):
        got = on(device, "copied", [1], Tile(64), [x, unit], (64, 64))
        np.testing.assert_array_equal(got, box_of(x, at, box).reshape(64, 64))


@pytest.mark.parametrize(
    ("dims", "at", "lower", "upper", "strides", "tap"),
    [
        ((2, 6, 7, 64), (0, 0, 0, 0), (0, 0), (0, 0), (1, 1), (0, 0)),
        ((3, 6, 7, 80), (0, 3, 5, 24), (-1, -1), (-1, -1), (1, 1), (2, 1)),
        ((5, 9, 11, 64), (1, -2, 2, 0), (-2, -1), (0, -1), (2, 3), (1, 2)),
        ((2, 5, 5, 64), (1, 3, 3, 0), (-3, -1), (3, 1), (3, 2), (0, 0)),
    ],
    ids=str,
)
def test_windows_of_a_map(dims, at, lower, upper, strides, tap):
    """Over the ends of rows and pictures, and beyond the last picture."""
    x, unit = integers(f16, *dims), np.eye(64, dtype=np.float16)
    module = copied(MemRefType(f16, dims), at, im2col(64, lower, upper, strides), tap)
    for device in (Loops(module, True, "sm_90a"), Device(str(module), "sm_90a")):
        got = on(device, "copied", [1], Tile(64), [x, unit], (64, 64))
        np.testing.assert_array_equal(got, windows_of(x, at, lower, upper, strides, tap))


# ---- products ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize(
    ("sizes", "type", "tile", "native"),
    [
        *((*case, True) for case in PRODUCTS),
        ((1, 70, 10, 72), f16, Tile(8, stages=2), False),
        ((1, 40, 72, 72), bf16, Tile(64, by_k=True), False),
        ((1, 1, 1, 8), bf16, Tile(40, warpgroups=2), True),
    ],
    ids=str,
)
def test_product(sizes, type, tile, native):
    batch, m, n, k = sizes
    inputs, want = product_data(sizes, type, tile)
    module, grid = product(m, n, k, type, tile, batch)
    np.testing.assert_array_equal(run(module, "product", grid, tile, inputs, want.shape, native), want)


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize(
    ("conv", "type", "tile"), [*CONVS, (Conv((4, 5, 6, 200), 72, (1, 1), (2, 3)), bf16, Tile(72))], ids=str
)
def test_convolution(conv, type, tile):
    inputs, want = conv_data(conv, type)
    module, grid = convolution(conv, type, tile)
    np.testing.assert_array_equal(run(module, "conv", grid, tile, inputs, want.shape), want)


def test_sums_of_a_ring_take_one_array():
    """Products add to the array of the loop's sums, and nothing is copied from trip to trip."""
    tile = Tile(64, products=2)
    module, grid = product(128, 64, 256, f16, tile)
    module = converted(module, "product", grid, [128 * 512, 64 * 512, 128 * 256], arch="sm_90a")
    (function,) = [f for name, f in kernels(module).items() if name == "product"]
    calls = [op for op in function.walk() if op.name == "func.call"]
    assert len(calls) == 2 and len({op.operands[-1] for op in calls}) == 2
    (trip,) = {op.parent_op().parent_op() for op in calls}
    stored = [op for op in trip.walk() if op.name in ("tile.store", "memref.store")]
    assert all(op.memref.type.element_type == f16 for op in stored)


#: The head of a kernel of one product: x and w in stages, the sums of nothing, and thread 0 by itself.
HEAD = """func.func @k(%x: memref<64x64xf16>, %w: memref<8x64xf16>, %y: memref<3x128x1x2x2xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %three = arith.constant 3 : index
  %t = cuda.thread_id x
  %s = cuda.shared : memref<64x64xf16, 3 : i32>
  %r = cuda.shared : memref<8x64xf16, 3 : i32>
  %m = cuda.shared : memref<1xi64, 3 : i32>
  %none = arith.constant dense<0.0> : vector<1x2x2xf32>
  %bytes = arith.constant 9216 : index
  %leads = arith.cmpi eq, %t, %zero : index
  scf.if %leads {
    cuda.mbarrier_init %m[%zero] count 1 : memref<1xi64, 3 : i32>
    cuda.mbarrier_fence
  }
  cuda.barrier
  scf.if %leads {
    cuda.mbarrier_expect %m[%zero], %bytes : memref<1xi64, 3 : i32>
    cuda.tma_load %s[%zero, %zero], %x[%zero, %zero] by #cuda.tiled<array<i64: 64, 64>>, %m[%zero] : memref<64x64xf16, 3 : i32>, memref<64x64xf16>, memref<1xi64, 3 : i32>
    cuda.tma_load %r[%zero, %zero], %w[%zero, %zero] by #cuda.tiled<array<i64: 8, 64>>, %m[%zero] : memref<8x64xf16, 3 : i32>, memref<8x64xf16>, memref<1xi64, 3 : i32>
  }
  cuda.mbarrier_wait %m[%zero], %zero : memref<1xi64, 3 : i32>
"""


def multiply(result: str, sums: str) -> str:
    """A product, waited for."""
    return f"""
    {result}_ = cuda.warpgroup_mma %s[%zero], %r[%zero], {sums} : memref<64x64xf16, 3 : i32>, memref<8x64xf16, 3 : i32>, vector<1x2x2xf32>
    {result} = cuda.warpgroup_wait {result}_ pending 0 : vector<1x2x2xf32>
"""


def write(sums: str, at: str) -> str:
    return f"    tile.store {sums}, %y[{at}, %t, %zero, %zero, %zero] dims [2, 3, 4] : vector<1x2x2xf32>, memref<3x128x1x2x2xf32>\n"


#: Sums that several ops read: each has them as they were.
READ_TWICE = (
    multiply("%a", "%none") + multiply("%b", "%a") + multiply("%c", "%a") + write("%a", "%zero") + write("%b", "%one") + write("%c", "%two")
), (1, 2, 2)  # fmt: skip

#: Sums from in front of a loop, which each trip adds to anew.
ANEW = (
    multiply("%a", "%none") + "  scf.for %i = %zero to %three step %one {"
    + multiply("%b", "%a") + write("%b", "%i") + "  }\n"
), (2, 2, 2)  # fmt: skip

#: Sums that threads compute with, of which a product takes what comes out.
COMPUTED = (
    multiply("%a", "%none") + "  %d = arith.addf %a, %a : vector<1x2x2xf32>\n  cuda.barrier\n" + multiply("%b", "%d")
    + "  %e = arith.addf %b, %d : vector<1x2x2xf32>\n  cuda.barrier\n"
    + write("%a", "%zero") + write("%d", "%one") + write("%e", "%two")
), (1, 2, 5)  # fmt: skip

#: Sums that a condition chooses.
CHOSEN = (
    (
        """  %z = scf.for %i = %zero to %three step %one iter_args(%a = %none) -> (vector<1x2x2xf32>) {
    %first = arith.cmpi eq, %i, %zero : index
    %b = scf.if %first -> (vector<1x2x2xf32>) {
      scf.yield %a : vector<1x2x2xf32>
    } else {"""
        + multiply("%c", "%a")
        + """      scf.yield %c : vector<1x2x2xf32>
    }
"""
        + write("%b", "%i")
        + """    scf.yield %b : vector<1x2x2xf32>
  }
"""
    ),
    (0, 1, 2),
)


@pytest.mark.sampled(every=3, share=0.3)
@WAYS
@pytest.mark.parametrize("case", [READ_TWICE, ANEW, COMPUTED, CHOSEN], ids=["twice", "anew", "computed", "chosen"])
def test_sums_are_values(case, native):
    """Though products add to them in place: each result is so many times the product."""
    body, times = case
    x, w = integers(f16, 64, 64), integers(f16, 8, 64)
    got = run(HEAD + body + END, "k", [1], Tile(8), [x, w], (3, 128, 1, 2, 2), native)
    one = x.astype(np.float64) @ w.astype(np.float64).T
    warp, g, q = (v[:, None, None] for v in np.unravel_index(np.arange(128), (4, 8, 4)))
    h, i = np.indices((2, 2))
    own = one[16 * warp + g + 8 * h, 2 * q + i]
    np.testing.assert_array_equal(got[:, :, 0], [n * own for n in times])


# ---- waits -------------------------------------------------------------------------------------------------------------

#: What one thread writes behind its wait for all others, which have read before they arrive.
LAST_OF_ALL = """  %v = memref.load %x[%t] : memref<64xf32>
  %m = cuda.shared : memref<1xi64, 3 : i32>
  %leads = arith.cmpi eq, %t, %zero : index
  scf.if %leads {
    cuda.mbarrier_init %m[%zero] count 64 : memref<1xi64, 3 : i32>
  }
  memref.store %v, %s[%t] : memref<64xf32, 3 : i32>
  cuda.barrier
  %last = arith.constant 63 : index
  %other = arith.subi %last, %t : index
  %read = memref.load %s[%other] : memref<64xf32, 3 : i32>
  cuda.mbarrier_arrive %m[%zero] : memref<1xi64, 3 : i32>
  scf.if %leads {
    cuda.mbarrier_wait %m[%zero], %zero : memref<1xi64, 3 : i32>
    scf.for %i = %zero to %n step %one {
      memref.store %read, %s[%i] : memref<64xf32, 3 : i32>
    }
  }
  memref.store %read, %y[%t] : memref<64xf32>
"""

#: What the last thread writes, half by half, for which all wait.
FIRST_OF_ALL = """  %m = cuda.shared : memref<1xi64, 3 : i32>
  %last = arith.constant 63 : index
  %half = arith.constant 32 : index
  %other = arith.subi %last, %t : index
  %upper = arith.divui %other, %half : index
  %leads = arith.cmpi eq, %t, %last : index
  %none = arith.constant 0.0 : f32
  scf.if %leads {
    cuda.mbarrier_init %m[%zero] count 1 : memref<1xi64, 3 : i32>
  }
  cuda.barrier
  %found = scf.for %i = %zero to %two step %one iter_args(%before = %none) -> (f32) {
    %begin = arith.muli %i, %half : index
    %end = arith.addi %begin, %half : index
    scf.if %leads {
      scf.for %j = %begin to %end step %one {
        %own = memref.load %x[%j] : memref<64xf32>
        memref.store %own, %s[%j] : memref<64xf32, 3 : i32>
      }
      cuda.mbarrier_arrive %m[%zero] : memref<1xi64, 3 : i32>
    }
    cuda.mbarrier_wait %m[%zero], %i : memref<1xi64, 3 : i32>
    %mine = arith.cmpi eq, %upper, %i : index
    %read = scf.if %mine -> (f32) {
      %there = memref.load %s[%other] : memref<64xf32, 3 : i32>
      scf.yield %there : f32
    } else {
      scf.yield %before : f32
    }
    scf.yield %read : f32
  }
  memref.store %found, %y[%t] : memref<64xf32>
"""


@WAYS
@pytest.mark.parametrize("text", [LAST_OF_ALL, FIRST_OF_ALL], ids=["one waits", "all wait"])
def test_waits_for_an_mbarrier(text, native):
    x = np.arange(64, dtype=np.float32)
    got = Loops(BLOCK + text + END, native, "sm_90a").run("k", [1], [64], [x], np.zeros(64, np.float32))
    np.testing.assert_array_equal(got, x[::-1])


#: Sums of fragments from in front of a loop, which each trip adds to anew: what `cuda.mma` adds to in place is not those.
FRAGMENTS = """func.func @k(%x: memref<64x64xf16>, %w: memref<8x64xf16>, %y: memref<3x32x2x2xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %t = cuda.thread_id x
  %none = arith.constant dense<0.0> : vector<2x2xf32>
  %a = arith.constant dense<1.0> : vector<4x2xf16>
  %b = arith.constant dense<1.0> : vector<2x2xf16>
  %c = cuda.mma %a, %b, %none : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
  scf.for %i = %zero to %three step %one {
    %d = cuda.mma %a, %b, %c : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
    tile.store %d, %y[%i, %t, %zero, %zero] dims [2, 3] : vector<2x2xf32>, memref<3x32x2x2xf32>
  }
"""


def test_fragments_from_in_front_of_a_loop():
    inputs = [np.zeros((64, 64), np.float16), np.zeros((8, 64), np.float16)]
    got = Loops(FRAGMENTS + END, True).run("k", [1], [32], inputs, np.zeros((3, 32, 2, 2), np.float32))
    np.testing.assert_array_equal(got, np.full(got.shape, 32.0))
