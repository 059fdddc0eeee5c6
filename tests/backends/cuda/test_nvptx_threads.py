"""Kernels whose threads work together, in the PTX interpreter: shared memory, barriers, shuffles, asynchronous copies, tensor cores. And
the same ones with a barrier, a wait or the zeros taken out, which it has to find."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cuda_device import Device
from cuda_kernels import tensor_product, tiled_product
from xdsl.dialects.builtin import ModuleOp, bf16, f16, f32

from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_memory import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from lightnet.dialects.cuda_simt import BarrierOp

TYPES = {f16: np.float16, bf16: ml_dtypes.bfloat16, f32: np.float32}


def tf32(x: np.ndarray) -> np.ndarray:
    """f32 without the 13 bits that tensor cores leave out."""
    return (x.view(np.uint32) & 0xFFFFE000).view(np.float32)


def matrices(m: int, n: int, k: int, type) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * n * k)
    drawn = (tf32(rng.standard_normal(shape).astype(np.float32)) for shape in ((m, k), (n, k)))
    a, b = (x.astype(TYPES[type]) for x in drawn)
    return a, b


def multiply(module: ModuleOp, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    m, n = len(a), len(b)
    out = np.full((m, n), np.nan, np.float32)
    return Device(str(module)).run("product", [-(-n // 16), -(-m // 32)], [64], [a, b], out)


def test_tiled_product():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 48)).astype(np.float32), rng.standard_normal((48, 32)).astype(np.float32)
    out = np.full((32, 32), np.nan, np.float32)
    got = Device(str(tiled_product(32, 32, 48))).run("product", [2, 2], [16, 16], [a, b], out)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("sizes", [(32, 16, 64), (33, 17, 40), (5, 3, 8), (64, 40, 136)], ids=str)
def test_tensor_product(type, sizes):
    """Sums of exact products, in f32; rows and columns that fill no tile, depths that fill no stage."""
    a, b = matrices(*sizes, type)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(multiply(tensor_product(*sizes, type), a, b), want, rtol=1e-5, atol=1e-5)


def without(module: ModuleOp, kind: type, number: int) -> ModuleOp:
    """A copy without the number-th op of a kind; a copy to shared memory, without its zeros."""
    changed = module.clone()
    op = [op for op in changed.walk() if isinstance(op, kind)][number]
    if isinstance(op, AsyncCopyOp):
        rest = (op.destination, op.destination_indices, op.source, op.source_indices)
        op.parent_block().insert_op_before(AsyncCopyOp(*rest, None, bytes=op.bytes.value.data), op)
    op.detach()
    op.erase()
    return changed


COUNTS = {BarrierOp: 1, AsyncWaitOp: 2, AsyncCommitOp: 3, AsyncCopyOp: 9}
MUTANTS = [(kind, i) for kind, n in COUNTS.items() for i in range(n)]
#: Behind the last trip nothing is on its way that is read again: the last wait only keeps copies from outliving the block.
HARMLESS = {(AsyncWaitOp, 1)}


@pytest.mark.interpreter
@pytest.mark.parametrize(("kind", "number"), MUTANTS, ids=lambda x: getattr(x, "name", str(x)))
def test_mutants_are_found(kind, number):
    module = tensor_product(33, 17, 200, f16)
    assert sum(isinstance(op, kind) for op in module.walk()) == COUNTS[kind]
    a, b = matrices(33, 17, 200, f16)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    try:
        got = multiply(without(module, kind, number), a, b)
    except LightNetError:
        return
    assert ((kind, number) in HARMLESS) == np.allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.interpreter
def test_tiled_product_without_a_barrier():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    for number in range(2):
        changed = without(tiled_product(32, 32, 32), BarrierOp, number)
        with pytest.raises(LightNetError, match="race"):
            Device(str(changed)).run("product", [2, 2], [16, 16], [a, b], np.zeros((32, 32), np.float32))


SHUFFLES = """
func.func @k(%x: memref<64xf32>, %n: memref<64xi32>, %y: memref<4x64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %three = arith.constant 3 : index
  %five = arith.constant 5 : index
  %t = cuda.thread_id x
  %v = memref.load %x[%t] : memref<64xf32>
  %k = memref.load %n[%t] : memref<64xi32>
  %lane = arith.index_cast %k : i32 to index
  %a = cuda.shuffle xor %v, %five : f32
  memref.store %a, %y[%zero, %t] : memref<4x64xf32>
  %b = cuda.shuffle up %v, %three : f32
  memref.store %b, %y[%one, %t] : memref<4x64xf32>
  %c = cuda.shuffle down %v, %three : f32
  memref.store %c, %y[%two, %t] : memref<4x64xf32>
  %d = cuda.shuffle idx %v, %lane : f32
  memref.store %d, %y[%three, %t] : memref<4x64xf32>
  func.return
}
"""


def test_shuffles():
    rng = np.random.default_rng(0)
    x, n = rng.standard_normal(64).astype(np.float32), rng.integers(0, 32, 64).astype(np.int32)
    got = Device(SHUFFLES).run("k", [1], [64], [x, n], np.zeros((4, 64), np.float32))
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    want = [lane ^ 5, np.where(lane < 3, lane, lane - 3), np.where(lane > 28, lane, lane + 3), n]
    assert (got == x[warp + np.array(want)]).all()


#: The sum of a row: within warps by shuffles, between them through shared memory, by the first warp.
ROW_SUMS = """
func.func @sums(%x: memref<3x256xf32>, %y: memref<3xf32>) attributes {cuda.block = array<i32: 64, 4, 1>} {
  %s = cuda.shared : memref<8xf32, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %eight = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %row = cuda.block_id x
  %tx = cuda.thread_id x
  %ty = cuda.thread_id y
  %w = cuda.warp_id
  %l = cuda.lane_id
  %first = arith.muli %ty, %c64 : index
  %t = arith.addi %first, %tx : index
  %v = memref.load %x[%row, %t] : memref<3x256xf32>
  %five = arith.constant 5 : index
  %sum, %last = scf.for %i = %zero to %five step %one iter_args(%a = %v, %d = %c16) -> (f32, index) {
    %b = cuda.shuffle xor %a, %d : f32
    %c = arith.addf %a, %b : f32
    %h = arith.divui %d, %two : index
    scf.yield %c, %h : f32, index
  }
  %leader = arith.cmpi eq, %l, %zero : index
  scf.if %leader {
    memref.store %sum, %s[%w] : memref<8xf32, 3 : i32>
  }
  cuda.barrier
  %is_first = arith.cmpi eq, %w, %zero : index
  scf.if %is_first {
    %m = arith.remui %l, %eight : index
    %part = memref.load %s[%m] : memref<8xf32, 3 : i32>
    %three = arith.constant 3 : index
    %four = arith.constant 4 : index
    %all, %rest = scf.for %i = %zero to %three step %one iter_args(%a = %part, %d = %four) -> (f32, index) {
      %b = cuda.shuffle xor %a, %d : f32
      %c = arith.addf %a, %b : f32
      %h = arith.divui %d, %two : index
      scf.yield %c, %h : f32, index
    }
    scf.if %leader {
      memref.store %all, %y[%row] : memref<3xf32>
    }
  }
  func.return
}
"""


def test_sums_of_rows():
    x = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    got = Device(ROW_SUMS).run("sums", [3], [64, 4], [x], np.zeros(3, np.float32))
    np.testing.assert_allclose(got, x.sum(1, dtype=np.float64), rtol=1e-5, atol=1e-5)


ROUND_TF32 = """
func.func @k(%x: memref<64xf32>, %y: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %t = cuda.thread_id x
  %v = memref.load %x[%t] : memref<64xf32>
  %r = cuda.round_tf32 %v : f32
  memref.store %r, %y[%t] : memref<64xf32>
  func.return
}
"""


def test_round_tf32():
    """To nearest, ties away from zero."""
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    x[:4] = 1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 - 2.0**-23, 0
    got = Device(ROUND_TF32).run("k", [1], [64], [x], np.zeros(64, np.float32))
    want = ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
    assert (tf32(got) == want).all()


#: More than 48 KiB of shared memory, and an array of a thread's own.
MEMORIES = """
func.func @large(%x: memref<128xf32>, %y: memref<128xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %s = cuda.shared : memref<8192xf32, 3 : i32>
  %r = cuda.shared : memref<64x128xf32, 3 : i32>
  %t = cuda.thread_id x
  %row = arith.constant 63 : index
  %v = memref.load %x[%t] : memref<128xf32>
  %w = arith.addf %v, %v : f32
  memref.store %v, %s[%t] : memref<8192xf32, 3 : i32>
  memref.store %w, %r[%row, %t] : memref<64x128xf32, 3 : i32>
  cuda.barrier
  %last = arith.constant 127 : index
  %o = arith.subi %last, %t : index
  %a = memref.load %s[%o] : memref<8192xf32, 3 : i32>
  %b = memref.load %r[%row, %o] : memref<64x128xf32, 3 : i32>
  %c = arith.subf %b, %a : f32
  memref.store %c, %y[%t] : memref<128xf32>
  func.return
}
func.func @own(%x: memref<128x8xf32>, %n: memref<128xi32>, %y: memref<128xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = memref.alloca() : memref<8xf32>
  %t = cuda.thread_id x
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  scf.for %i = %zero to %eight step %one {
    %v = memref.load %x[%t, %i] : memref<128x8xf32>
    memref.store %v, %m[%i] : memref<8xf32>
  }
  %k = memref.load %n[%t] : memref<128xi32>
  %j = arith.index_cast %k : i32 to index
  %v = memref.load %m[%j] : memref<8xf32>
  memref.store %v, %y[%t] : memref<128xf32>
  func.return
}
"""


def test_memories():
    rng = np.random.default_rng(0)
    x, n = rng.standard_normal((128, 8)).astype(np.float32), rng.integers(0, 8, 128).astype(np.int32)
    device, out = Device(MEMORIES), np.zeros(128, np.float32)
    column = np.ascontiguousarray(x[:, 0])
    assert (device.run("large", [1], [128], [column], out) == column[::-1]).all()
    assert (device.run("own", [1], [128], [x, n], out) == x[np.arange(128), n]).all()
