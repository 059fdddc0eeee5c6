"""What sm_90a adds to cuda, up to machine code: what has to hold of whole kernels, where memory stands, tensor maps as parameters, and what ptxas makes
of it. The messages of single ops are in tests/filecheck/dialects/cuda-hopper-errors.mlir, the text of PTX in tests/filecheck/backends/ptx-hopper.mlir."""

from __future__ import annotations

import re

import ptxas
import pytest
from cuda_device import parse
from hopper_kernels import Conv, Tile, convolution, copied, im2col, product, tiled
from xdsl.dialects.builtin import MemRefType, ModuleOp, bf16, f16
from xdsl.utils.exceptions import VerifyException

from lightnet.backends.cuda import nvptx_hopper
from lightnet.backends.cuda.nvptx import emit_program, emit_ptx
from lightnet.diagnostics import LightNetError
from lightnet.dialects import cuda_hopper, cuda_mbarrier
from lightnet.dialects.cuda import Cuda
from lightnet.dialects.cuda_hopper import tensor_map, tensor_maps
from lightnet.dialects.cuda_launch import cuda_kernels, shared_layout, verify_cuda
from lightnet.dialects.cuda_stages import OnlyOn
from lightnet.runtime.cuda.tensor_map import Im2col, TensorMap

KERNEL = """
func.func @k(%x: memref<1x64x64xf16>, %y: memref<64x64xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %few = cuda.shared : memref<3xf32, 3 : i32>
  %a = cuda.shared : memref<64x64xf16, 3 : i32>
  %b = cuda.shared : memref<64x64xf16, 3 : i32>
  %m = cuda.shared : memref<2xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 4 : index
  %grid = cuda.grid_dim x
  %same = arith.cmpi eq, %grid, %one : index
  %c = arith.constant dense<0.0> : vector<1x2x2xf32>
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<64x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<2xi64, 3 : i32>
  BODY
  func.return
}
"""
#: Short forms of ops in bodies.
MMA = " : memref<64x64xf16, 3 : i32>, memref<64x64xf16, 3 : i32>, vector<1x2x2xf32>"
SUMS = "vector<1x2x2xf32>"
BEGIN = "%d = cuda.warpgroup_mma %a[%zero], %b[%zero], %c" + MMA
LOOP = "scf.for %i = %zero to %n step %one iter_args(%s = %c) -> (" + SUMS + ") {"
STEP = "%e = cuda.warpgroup_mma %a[%zero], %b[%zero], %s" + MMA


def verify(body: str, arch: str = "sm_90a") -> None:
    module = parse(KERNEL.replace("BODY", body))
    verify_cuda(module, arch)


# ---- what has to hold of a kernel ------------------------------------------------------------------------------------


def test_every_op_of_sm_90a_is_emitted_and_only_there():
    """An op that the check of architectures did not know would come to LLVM on others, too."""
    own = {op for op in Cuda.operations if op.__module__ in (cuda_hopper.__name__, cuda_mbarrier.__name__)}
    bound = {op for op in Cuda.operations if op.get_trait(OnlyOn) is not None}
    assert bound == set(nvptx_hopper.HANDLERS) == own


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_other_architectures_do_not_have_the_ops(arch):
    """And say so: LLVM would end the process for some of them."""
    module = parse(KERNEL.replace("BODY", ""))
    with pytest.raises(LightNetError, match=f"cuda.tma_load is of sm_90a, and the kernel is for {arch}"):
        emit_ptx(module, arch)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%v = memref.load %x[%zero, %zero, %zero] : memref<1x64x64xf16>",
         "argument 0 is copied by a tensor map, and memref.load takes it, too"),
        ("cuda.tma_load %b[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 32, 64>>, %m[%zero]"
         " : memref<64x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<2xi64, 3 : i32>",
         "argument 0 is copied by two tensor maps"),
        ("%v = memref.load %a[%zero, %zero] : memref<64x64xf16, 3 : i32>",
         "rows of a stage are of cuda.tma_load and cuda.warpgroup_mma alone; memref.load takes them, too"),
        ("%v = memref.load %m[%zero] : memref<2xi64, 3 : i32>", "mbarriers are of their own ops alone; memref.load takes them, too"),
        # ---- sums that are under way
        (BEGIN, "nobody waits for sums that are under way"),
        (f"{BEGIN}\n%e = cuda.warpgroup_wait %d pending 1 : {SUMS}", "nobody waits for sums that are under way"),
        (f"{BEGIN}\n%v = vector.extract %d[0, 0, 0] : f32 from {SUMS}", "until a cuda.warpgroup_wait leaves none pending, and vector.extract takes them"),
        (f"{BEGIN}\n%e = cuda.warpgroup_wait %d pending 1 : {SUMS}\n%v = arith.addf %e, %c : {SUMS}", "and arith.addf takes them"),
        (f"{BEGIN}\n%e, %f = cuda.warpgroup_wait %d, %d pending 0 : {SUMS}, {SUMS}", "cannot both take them"),
        (f"%r = {LOOP}\n{STEP}\nscf.yield %e : {SUMS}\n}}", "nobody waits"),
        (f"%r = {LOOP}\n{STEP}\nscf.yield %e : {SUMS}\n}}\n%v = arith.addf %r, %r : {SUMS}", "arith.addf and arith.addf cannot both take them"),
        # What the loop began the last time is what it begins with.
        (f"%r = {LOOP}\n%v = arith.addf %s, %c : {SUMS}\n%e = cuda.warpgroup_mma %a[%zero], %b[%zero], %v{MMA}\nscf.yield %e : {SUMS}\n}}\n"
         f"%w = cuda.warpgroup_wait %r pending 0 : {SUMS}",
         "and arith.addf takes them"),
        (f"{BEGIN}\n%r = scf.if %same -> ({SUMS}) {{\nscf.yield %d : {SUMS}\n}} else {{\nscf.yield %c : {SUMS}\n}}\n%v = arith.addf %r, %c : {SUMS}",
         "and arith.addf takes them"),
        (f"{BEGIN}\n%r = scf.while (%s = %d) : ({SUMS}) -> ({SUMS}) {{\nscf.condition(%same) %s : {SUMS}\n}} do {{\n^bb0(%t: {SUMS}):\nscf.yield %t : {SUMS}\n}}",
         "scf.while takes them"),
    ],
)  # fmt: skip
def test_what_is_under_way_is_left_alone(body, message):
    with pytest.raises(LightNetError, match=re.escape(message)) as error:
        verify(body)
    assert error.value.loc is not None and error.value.loc.line > 2  # at an op, not at the function


@pytest.mark.parametrize(
    "body",
    [
        "",
        # Sums go round a loop under way, and through a branch.
        f"%r = {LOOP}\n{STEP}\n%f = cuda.warpgroup_wait %e pending 1 : {SUMS}\nscf.yield %f : {SUMS}\n}}\n"
        f"%w = cuda.warpgroup_wait %r pending 0 : {SUMS}\n%v = arith.addf %w, %w : {SUMS}",
        f"{BEGIN}\n%r = scf.if %same -> ({SUMS}) {{\nscf.yield %d : {SUMS}\n}} else {{\nscf.yield %c : {SUMS}\n}}\n"
        f"%w = cuda.warpgroup_wait %r pending 0 : {SUMS}",
        # Sums that wait within the loop are numbers as others are.
        f"%r = {LOOP}\n{STEP}\n%f = cuda.warpgroup_wait %e pending 0 : {SUMS}\n%v = arith.addf %f, %f : {SUMS}\nscf.yield %v : {SUMS}\n}}",
    ],
)
def test_what_is_waited_for_is_free(body):
    verify(body)


@pytest.mark.parametrize(
    ("types", "taken"),
    [("c" * 32, 4096), ("c" * 33, 4224), ("c" + "-" * 496, 4096), ("c" + "-" * 497, 4104), ("-" * 496 + "c", 4096), ("-" * 497 + "c", 4160)],
    ids=["32 maps", "33 maps", "496 behind", "497 behind", "496 before", "497 before"],
)  # fmt: skip
def test_parameters_are_bounded(types, taken):
    """A tensor map (c) takes 128 bytes of the 4 KiB, at a multiple of 64, another memref (-) the 8 of its address."""
    copy = (
        "cuda.tma_load %a[%zero, %zero], %x{}[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero]"
        " : memref<64x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<1xi64, 3 : i32>"
    )
    args = ", ".join(f"%x{n}: memref<1x64x64xf16>" for n in range(len(types)))
    copies = "\n".join(copy.format(n) for n, kind in enumerate(types) if kind == "c")
    module = parse(
        f"func.func @k({args}) attributes {{cuda.block = array<i32: 128, 1, 1>}} {{\n"
        "%a = cuda.shared : memref<64x64xf16, 3 : i32>\n%m = cuda.shared : memref<1xi64, 3 : i32>\n"
        f"%zero = arith.constant 0 : index\n{copies}\nfunc.return\n}}"
    )
    if taken <= 4096:
        verify_cuda(module, "sm_90a")
        return
    with pytest.raises(LightNetError, match=f"a kernel takes 4096 bytes of parameters, not {taken}"):
        verify_cuda(module, "sm_90a")


# ---- memory, and parameters --------------------------------------------------------------------------------------------


def test_stages_begin_at_multiples_of_what_is_swizzled():
    (kernel,) = cuda_kernels(
        parse(KERNEL.replace("BODY", f"{BEGIN}\n%w = cuda.warpgroup_wait %d pending 0 : {SUMS}"))
    ).values()
    assert shared_layout(kernel) == ([0, 1024, 9216, 17408], 17424)  # 3 floats; two stages; mbarriers


def test_dynamic_memory_is_declared_alike_by_all_kernels():
    """One declaration serves kernels with stages and without."""
    modules = [product(128, 128, 256, f16, Tile(128, 1, 2, 3))[0], parse(BIG)]
    ops = [op for module in modules for op in module.ops]
    for op in ops:
        op.detach()
    ptx = emit_ptx(ModuleOp(ops), "sm_90a")
    assert re.findall(r"\.extern .*__dynamic_shared.*", ptx) == [".extern .shared .align 1024 .b8 __dynamic_shared[];"]


BIG = """
func.func @big(%y: memref<16384xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %s = cuda.shared : memref<16384xf32, 3 : i32>
  %t = cuda.thread_id x
  %v = memref.load %y[%t] : memref<16384xf32>
  memref.store %v, %s[%t] : memref<16384xf32, 3 : i32>
  cuda.barrier
  %w = memref.load %s[%t] : memref<16384xf32, 3 : i32>
  memref.store %w, %y[%t] : memref<16384xf32>
  func.return
}
"""


def test_arguments_that_are_copied_are_maps():
    conv = Conv((2, 9, 8, 128), 96, (3, 2), strides=(2, 1), padding=(1, 0), dilation=(1, 3))
    (kernel,) = cuda_kernels(convolution(conv, bf16, Tile(96))[0]).values()
    maps = {n: tensor_map(kernel.function_type.inputs.data[n], map) for n, map in tensor_maps(kernel).items()}
    windows = Im2col(64, 64, (-1, 0), (-1, -3), (2, 1))
    assert maps == {
        0: TensorMap("bf16", (2, 9, 8, 128), (), windows),
        1: TensorMap("bf16", (96, 6, 128), (96, 1, 64)),
    }


def test_kernels_that_differ_in_their_maps_alone_are_one_entry():
    """What is copied is said at the launch: the code is the same."""
    modules = [copied(MemRefType(f16, shape), [0] * 3, tiled(*box)) for shape, box in
               [((1, 64, 64), (1, 64, 64)), ((8, 32, 128), (2, 32, 64)), ((4, 100, 64), (1, 64, 64))]]  # fmt: skip
    kernels = [kernel for module in modules for kernel in module.ops]
    for n, kernel in enumerate(kernels):
        kernel.detach()
        kernel.properties["sym_name"] = type(kernel.properties["sym_name"])(f"copied_{n}")
    program = emit_program(ModuleOp(kernels), "sm_90a")
    assert set(program.entries.values()) == {"copied_0"}
    assert program.text.count(".visible .entry") == 1


def test_a_map_has_the_numbers_that_it_should():
    with pytest.raises(VerifyException, match="the extents of a box: expected 3 integers"):
        tensor_map(MemRefType(f16, (1, 64, 64)), tiled(64, 64))
    with pytest.raises(VerifyException, match="of rows and columns: expected 2 integers"):
        tensor_map(MemRefType(f16, (1, 8, 8, 64)), im2col(64, (0,), (0, 0), (1, 1)))


def test_products_of_the_same_sums_are_begun_one_after_the_other():
    body = (
        f"{BEGIN}\n%e = cuda.warpgroup_mma %a[%zero], %b[%zero], %d{MMA}\n"
        f"%f = cuda.warpgroup_mma %b[%zero], %a[%zero], %c{MMA}\n%g, %h = cuda.warpgroup_wait %e, %f pending 0 : {SUMS}, {SUMS}"
    )
    ptx = emit_ptx(parse(KERNEL.replace("BODY", body)), "sm_90a")
    # The first alone; the second and the third.
    pieces = [piece.count("commit_group") for piece in ptx.split("wgmma.fence.sync.aligned;")]
    assert pieces == [0, 1, 2]


# ---- ptxas ---------------------------------------------------------------------------------------------------------

PRODUCTS = [
    # columns, products and warpgroups of a tile; stages; by k; element
    (Tile(8, 1, 1, 2), f16),
    (Tile(128, 1, 2, 4), f16),
    (Tile(256, 1, 2, 3), bf16),
    (Tile(128, 2, 2, 4), f16),
    (Tile(200, 1, 1, 3), bf16),
    (Tile(64, 2, 1, 3, by_k=True), bf16),
    (Tile(128, 2, 2, 3, by_k=True), f16),
    (Tile(256, 1, 1, 3, by_k=True), f16),
]


def _name(value: object) -> str | None:
    if isinstance(value, Tile):
        return f"{value.rows}x{value.cols}{'-by-k' if value.by_k else ''}-{value.warpgroups}"
    return str(value)


def _assembled(module: ModuleOp) -> tuple[ptxas.Usage, ptxas.Assembled]:
    module.verify()
    found = ptxas.assembled(emit_ptx(module, "sm_90a"), "sm_90a")
    assert found.warnings == ()
    (usage,) = found.kernels.values()
    assert usage.spills == usage.stack == 0
    return usage, found


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("tile", "element"), PRODUCTS, ids=_name)
def test_products_assemble_without_waits_of_the_assembler(tile, element):
    """No spills; and ptxas neither warns (C7510: products are serialized) nor adds waits (C7517): sums go round the loop where they are."""
    usage, _ = _assembled(product(512, 512, 1024, element, tile)[0])
    assert usage.registers <= 40 + tile.products * (tile.cols // 2 + 32) + 32


@pytest.mark.parametrize(
    "conv", [Conv((2, 14, 14, 256), 256, (3, 3), padding=(1, 1)), Conv((1, 8, 8, 64), 64, (1, 1), strides=(2, 2))]
)
def test_convolutions_assemble(conv):
    _assembled(convolution(conv, f16, Tile(64, 1, 2))[0])


def test_machine_code_has_the_instructions():
    """`wgmma` of the whole width, copies by maps, and mbarriers."""
    _, found = _assembled(product(512, 512, 1024, bf16, Tile(256, 1, 2, 3))[0])
    (counts,) = ptxas.machine_code(found.cubin).values()
    families = ptxas.families(counts)
    assert counts["HGMMA.64x256x16.F32.BF16"] == families["HGMMA"] > 0
    assert "HMMA" not in families
    assert counts["UTMALDG.3D"] and counts["SYNCS.EXCH.64"] and counts["SYNCS.PHASECHK.TRANS64.TRYWAIT"]


def test_machine_code_of_a_convolution_copies_windows():
    conv = Conv((2, 14, 14, 128), 64, (3, 3), padding=(1, 1))
    _, found = _assembled(convolution(conv, f16, Tile(64, 1, 1))[0])
    (counts,) = ptxas.machine_code(found.cubin).values()
    assert counts["UTMALDG.4D.IM2COL"] and counts["UTMALDG.3D"] and counts["HGMMA.64x64x16.F32"]
