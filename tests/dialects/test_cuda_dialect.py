"""The cuda dialect's analyses: which values threads share, what divides an offset, what launches and kernels have to agree on. The verifiers'
messages are in tests/filecheck/dialects/cuda-errors.mlir."""

from __future__ import annotations

import re

import ptxas
import pytest
from cuda_device import parse
from cuda_kernels import tensor_product, tiled_product
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import bf16, f16, f32
from xdsl.dialects.func import FuncOp

from lightnet.backends.cuda.nvptx import emit_ptx
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import DIVERGENT, UNIFORM, WARP_UNIFORM, divergence, divisor
from lightnet.dialects.cuda_launch import (
    CudaLaunchOp,
    cuda_kernels,
    cuda_launches,
    dynamic_shared,
    shared_layout,
    verify_cuda,
)
from lightnet.dialects.cuda_simt import BlockIdOp, LaneIdOp, SharedOp, Shuffle, ShuffleAttr, ShuffleOp, ThreadIdOp
from lightnet.ir.place import PlaceAttr

LEVELS = """
func.func @k(%x: memref<4096xf32>, %p: memref<4096xi64>) attributes {cuda.block = array<i32: BLOCK>} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 4 : index
  %s = cuda.shared : memref<64xi64, 3 : i32>
  %own = memref.alloca() : memref<8xi64>
  %tx = cuda.thread_id x
  %ty = cuda.thread_id y
  %b = cuda.block_id x
  %w = cuda.warp_id
  %l = cuda.lane_id
  VALUE
  %end = arith.addi %v, %zero : index
  func.return
}
"""


def level(value: str, block: str = "64, 4, 1") -> int:
    """How far the value called %v is the same."""
    module = parse(LEVELS.replace("BLOCK", block).replace("VALUE", value))
    (end,) = [op for op in module.walk() if isinstance(op, arith.AddiOp)][-1:]
    return divergence(end.lhs)[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("%v = arith.muli %b, %n : index", UNIFORM),
        ("%e = memref.load %p[%b] : memref<4096xi64>\n  %v = arith.index_cast %e : i64 to index", UNIFORM),
        ("%e = memref.load %s[%zero] : memref<64xi64, 3 : i32>\n  %v = arith.index_cast %e : i64 to index", UNIFORM),
        ("%e = memref.load %s[%w] : memref<64xi64, 3 : i32>\n  %v = arith.index_cast %e : i64 to index", WARP_UNIFORM),
        ("%v = arith.addi %w, %b : index", WARP_UNIFORM),
        ("%v = arith.addi %ty, %zero : index", WARP_UNIFORM),  # a row is two warps
        ("%v = arith.addi %tx, %zero : index", DIVERGENT),
        ("%warp = arith.constant 32 : index\n  %v = arith.divsi %tx, %warp : index", WARP_UNIFORM),
        ("%v = arith.divsi %tx, %n : index", DIVERGENT),
        ("%e = memref.load %own[%zero] : memref<8xi64>\n  %v = arith.index_cast %e : i64 to index", DIVERGENT),
        ("%e = memref.load %p[%l] : memref<4096xi64>\n  %v = arith.index_cast %e : i64 to index", DIVERGENT),
        ("%c = arith.cmpi eq, %l, %zero : index\n  %v = scf.if %c -> (index) {\n scf.yield %one : index\n } else {\n scf.yield %zero : index\n }",
         DIVERGENT),
        ("%c = arith.cmpi eq, %w, %zero : index\n  %v = scf.if %c -> (index) {\n scf.yield %one : index\n } else {\n scf.yield %zero : index\n }",
         WARP_UNIFORM),
        # As often as the lane's number says, so differently far.
        ("%v = scf.for %i = %zero to %l step %one iter_args(%a = %zero) -> (index) {\n %c = arith.addi %a, %one : index\n scf.yield %c : index\n }",
         DIVERGENT),
        ("%v = scf.for %i = %zero to %n step %one iter_args(%a = %b) -> (index) {\n %c = arith.addi %a, %i : index\n scf.yield %c : index\n }",
         UNIFORM),
        ("%v = scf.for %i = %zero to %n step %one iter_args(%a = %zero) -> (index) {\n scf.yield %w : index\n }", WARP_UNIFORM),
    ],
)  # fmt: skip
def test_divergence(value, expected):
    assert level(value) == expected


def test_divergence_of_thread_numbers_depends_on_the_block():
    assert level("%v = arith.addi %ty, %zero : index", "48, 2, 1") == DIVERGENT
    assert level("%v = arith.addi %tx, %zero : index", "1, 64, 1") == UNIFORM
    assert level("%v = arith.addi %ty, %zero : index", "1, 64, 1") == DIVERGENT


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("%v = arith.muli %tx, %n : index", 4),
        ("%m = arith.muli %tx, %n : index\n  %v = arith.addi %m, %one : index", 1),
        ("%c = arith.constant 12 : index\n  %m = arith.muli %tx, %c : index\n  %d = arith.constant 8 : index\n  %v = arith.subi %m, %d : index", 4),
        ("%c = arith.constant 24 : index\n  %m = arith.muli %tx, %c : index\n  %d = arith.constant 36 : index\n  %v = arith.remui %m, %d : index", 12),
        ("%v = arith.muli %tx, %zero : index", 0),
        ("%c = arith.constant 24 : index\n  %m = arith.muli %tx, %c : index\n  %k = arith.muli %ty, %n : index\n  %v = arith.xori %m, %k : index", 4),
        ("%c = arith.constant 24 : index\n  %v = arith.andi %tx, %c : index", 8),
        ("%v = arith.divui %tx, %n : index", 1),
    ],
)  # fmt: skip
def test_divisor(value, expected):
    module = parse(LEVELS.replace("BLOCK", "64, 4, 1").replace("VALUE", value))
    (end,) = [op for op in module.walk() if isinstance(op, arith.AddiOp)][-1:]
    assert divisor(end.lhs) == expected


def test_divisor_of_a_long_chain_is_quick():
    """Each value twice the one before: as many paths as 2^200."""
    lines = ["%v0 = arith.muli %tx, %n : index"]
    lines += [f"%v{k + 1} = arith.addi %v{k}, %v{k} : index" for k in range(200)]
    module = parse(
        LEVELS.replace("BLOCK", "64, 4, 1").replace("VALUE", "\n".join([*lines, "%v = arith.muli %v200, %one : index"]))
    )
    (end,) = [op for op in module.walk() if isinstance(op, arith.AddiOp)][-1:]
    assert divisor(end.lhs) == 1  # no further back than that; what is not known is 1
    assert divergence(end.lhs)[0] == DIVERGENT


def test_constructors():
    """What generators build, as it prints."""
    thread, block, lane = ThreadIdOp("y"), BlockIdOp(), LaneIdOp()
    assert [str(op).partition("= ")[2] for op in (thread, block, lane)] == [
        "cuda.thread_id y",
        "cuda.block_id x",
        "cuda.lane_id",
    ]
    shared = SharedOp([4, 8], f32)
    assert str(shared).endswith("cuda.shared : memref<4x8xf32, 3 : i32>")
    load = memref.LoadOp.get(shared, [thread, lane])
    assert "cuda.shuffle down" in str(ShuffleOp(load, lane, mode=ShuffleAttr(Shuffle.DOWN)))
    launch = CudaLaunchOp("k", [1, 2, 3], [32, 1, 1], [PlaceAttr("arena", 64)], shared=1 << 16)
    launch.verify()
    assert str(launch) == "cuda.launch @k grid [1, 2, 3] block [32, 1, 1] shared 65536 [arena+64]"


SHARED = """
func.func @k(%x: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %a = cuda.shared : memref<3xi8, 3 : i32>
  %b = cuda.shared : memref<SIZExf32, 3 : i32>
  func.return
}
func.func @main() {
  cuda.launch @k grid [2, 1, 1] block [64, 1, 1] [arena+0]
  func.return
}
"""


def test_layout_of_shared_memory():
    """Allocations one behind the other; above 48 KiB a launch asks for them."""
    for size, dynamic in ((100, 0), (12160, 0), (12256, 0), (12257, 128 + 4 * 12257)):
        kernel = cuda_kernels(parse(SHARED.replace("SIZE", str(size))))["k"]
        assert shared_layout(kernel) == ([0, 128], 128 + 4 * size)
        assert dynamic_shared(kernel) == dynamic


def test_launches_are_checked():
    module = parse(SHARED.replace("SIZE", "64"))
    verify_cuda(module, "sm_80")
    assert [str(op) for op in cuda_launches(module)] == ["cuda.launch @k grid [2, 1, 1] block [64, 1, 1] [arena+0]"]
    with pytest.raises(LightNetError, match="unknown architecture 'sm_75'"):
        verify_cuda(module, "sm_75")
    with pytest.raises(LightNetError, match="takes 80128 bytes of dynamic shared memory, launched with 0"):
        verify_cuda(parse(SHARED.replace("SIZE", "20000")), "sm_80")
    many = ", ".join(f"%a{k}: memref<1xf32>" for k in range(513))
    with pytest.raises(LightNetError, match="a kernel takes 4096 bytes of parameters, not 4104"):
        verify_cuda(
            parse(f"func.func @k({many}) attributes {{cuda.block = array<i32: 32, 1, 1>}} {{\n  func.return\n}}"),
            "sm_80",
        )


@pytest.mark.parametrize(("memory", "place", "fits"), [
    ("arena = 256", "arena+0", True), ("arena = 255", "arena+0", False), ("arena = 512", "arena+256", True), ("arena = 512", "arena+260", False),
    ("static = 512", "arena+0", False), ("arena = 256", "arena+99999999", False),
])  # fmt: skip
def test_launches_stay_in_the_memory_of_their_module(memory, place, fits):
    text = SHARED.replace("SIZE", "64").replace("arena+0", place)
    module = parse(f"builtin.module attributes {{ln.memory = {{{memory} : i64}}}} {{{text}}}")
    if fits:
        verify_cuda(module, "sm_80")
        return
    with pytest.raises(LightNetError, match=r"@k: 256 bytes at arena\+\d+, and the module's memory has \d+ there"):
        verify_cuda(module, "sm_80")


@pytest.mark.parametrize(("align", "place", "message"), [
    ("", "arena+8", "@k takes memrefs at multiples of 64 bytes, and is launched with arena+8"),
    ("8", "arena+8", None), ("8", "arena+4", "multiples of 8 bytes, and is launched with arena+4"),
    *((text, "arena+0", f"tile.align is a power of two, in bytes, got {text}") for text in ("0", "12", "-8", '"8"', "8.0")),
])  # fmt: skip
def test_memrefs_are_aligned_as_their_kernel_takes_them(align, place, message):
    """Vectors and copies are proven to be aligned on that condition. A copy by the engine, and a load of four elements, is a fault elsewhere."""
    text = SHARED.replace("SIZE", "64").replace("arena+0", place)
    text = text.replace("attributes {", f"attributes {{tile.align = {align}, ") if align else text
    if message is None:
        verify_cuda(parse(text), "sm_80")
        return
    with pytest.raises(LightNetError, match=re.escape(message)):
        verify_cuda(parse(text), "sm_80")


def test_functions_of_other_targets_are_no_kernels():
    module = parse("func.func @loops(%lo: index, %hi: index, %x: memref<4xf32>) {\n  func.return\n}")
    assert cuda_kernels(module) == {} and cuda_launches(module) == []
    assert isinstance(next(iter(module.ops)), FuncOp)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptxas_takes_the_kernels(arch):
    """Without spilling registers."""
    ptxas.require()
    for module in (tiled_product(32, 32, 48), *(tensor_product(33, 17, 40, type) for type in (f16, bf16, f32))):
        found = ptxas.assembled(emit_ptx(module, arch), arch)
        assert found.kernels and not found.warnings and not any(usage.spills for usage in found.kernels.values())
