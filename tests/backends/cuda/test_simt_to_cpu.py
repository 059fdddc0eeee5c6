"""Kernels of threads as loops of the CPU (pass `simt-to-cpu`), natively and in the interpreter of level 4: what the same kernels give in the
PTX interpreter, or what NumPy says; and networks of target cuda at full size, against target cpu and ONNX Runtime."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import test_nvptx_threads as threads
from cuda_device import Device, parse
from cuda_kernels import tensor_product, tiled_product
from random_kernels import BLOCKS, INPUTS, THREADS, random_kernel
from simt_loops import Loops, converted
from test_cuda_networks import EXAMPLES, fed, same
from xdsl.dialects.builtin import IndexType, MemRefType, bf16, f16, f32, f64, i1, i8, i16, i32, i64

import lightnet
from lightnet.backends.cuda.selection import SELECTION
from lightnet.cli import ln_opt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import kernels, launches
from lightnet.ir.context import make_context
from lightnet.ir.memory import memory_of
from lightnet_simt.ops import bytes_of
from lightnet_simt.simt_to_cpu import SimtToCpuPass

WAYS = pytest.mark.parametrize("native", [True, False], ids=["native", "interpreted"])
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@cache
def picks(count: int, below: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, below, count).astype(np.int32)


# ---- control flow ----------------------------------------------------------------------------------------------------

HEAD = """  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %n = arith.constant 64 : index
  %t = cuda.thread_id x
  %w = cuda.warp_id
  %s = cuda.shared : memref<64xf32, 3 : i32>
"""
END = "  func.return\n}\n"
ONE = "func.func @k(%x: memref<64xf32>, %y: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {\n"

#: As many rounds as the first element says, which all threads read; each passes its value on to its neighbour.
WHILE = ONE + HEAD + """  %v = memref.load %x[%t] : memref<64xf32>
  %limit = memref.load %x[%zero] : memref<64xf32>
  %half = arith.constant 0.5 : f32
  %next = arith.addi %t, %one : index
  %beside = arith.remui %next, %n : index
  %a, %left = scf.while (%a0 = %v, %l0 = %limit) : (f32, f32) -> (f32, f32) {
    %none = arith.constant 0.0 : f32
    %more = arith.cmpf ogt, %l0, %none : f32
    memref.store %a0, %s[%t] : memref<64xf32, 3 : i32>
    cuda.barrier
    scf.condition(%more) %a0, %l0 : f32, f32
  } do {
  ^bb0(%a1: f32, %l1: f32):
    %b = memref.load %s[%beside] : memref<64xf32, 3 : i32>
    %c = arith.addf %a1, %b : f32
    cuda.barrier
    %l2 = arith.subf %l1, %half : f32
    scf.yield %c, %l2 : f32, f32
  }
  memref.store %a, %y[%t] : memref<64xf32>
""" + END  # fmt: skip

#: What two values of a loop become by changing places, an i1, a vector and an array of a thread's own, all across barriers.
KEPT = ONE + HEAD + """  %three = arith.constant 3 : index
  %v = memref.load %x[%t] : memref<64xf32>
  %double = arith.addf %v, %v : f32
  %own = memref.alloca() : memref<2xf32>
  memref.store %v, %own[%zero] : memref<2xf32>
  memref.store %double, %own[%one] : memref<2xf32>
  %large = arith.cmpf ogt, %v, %double : f32
  %wide = vector.broadcast %v : f32 to vector<4xf32>
  cuda.barrier
  %p, %q, %r = scf.for %i = %zero to %three step %one iter_args(%a = %v, %b = %double, %c = %wide) -> (f32, f32, vector<4xf32>) {
    memref.store %a, %s[%t] : memref<64xf32, 3 : i32>
    cuda.barrier
    %next = arith.addi %t, %i : index
    %beside = arith.remui %next, %n : index
    %other = memref.load %s[%beside] : memref<64xf32, 3 : i32>
    %many = vector.broadcast %other : f32 to vector<4xf32>
    %sum = arith.addf %c, %many : vector<4xf32>
    cuda.barrier
    scf.yield %b, %a, %sum : f32, f32, vector<4xf32>
  }
  %e = vector.extract %r[2] : f32 from vector<4xf32>
  %m = arith.select %large, %two, %zero : index
  %half = arith.divui %m, %two : index
  %o = memref.load %own[%half] : memref<2xf32>
  %pq = arith.subf %p, %q : f32
  %eo = arith.addf %e, %o : f32
  %all = arith.addf %pq, %eo : f32
  memref.store %all, %y[%t] : memref<64xf32>
""" + END  # fmt: skip

#: One warp adds its lanes up, the other takes what stands there; in a loop a warp repeats that as often as its number says.
WARPS = ONE + HEAD + """  %v = memref.load %x[%t] : memref<64xf32>
  %first = arith.cmpi eq, %w, %zero : index
  %a = scf.if %first -> (f32) {
    %b = cuda.shuffle xor %v, %two : f32
    %c = arith.addf %v, %b : f32
    scf.yield %c : f32
  } else {
    scf.yield %v : f32
  }
  %rounds = arith.addi %w, %two : index
  %d = scf.for %i = %zero to %rounds step %one iter_args(%e = %a) -> (f32) {
    %f = cuda.shuffle down %e, %one : f32
    %g = arith.addf %e, %f : f32
    scf.yield %g : f32
  }
  memref.store %d, %y[%t] : memref<64xf32>
""" + END  # fmt: skip


@WAYS
@pytest.mark.parametrize("text", [WHILE, KEPT, WARPS], ids=["while", "kept", "warps"])
def test_control_flow_with_barriers_inside(text, native):
    x = normal(64)
    x[0] = 2.0
    out = np.zeros(64, np.float32)
    want = Device(text).run("k", [1], [64], [x], out)
    assert want.std() > 0
    np.testing.assert_array_equal(Loops(text, native).run("k", [1], [64], [x], out), want)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", [*range(16), 309])
def test_random_kernels(seed):
    """Integers, so that every bit has to agree with the PTX interpreter, which also says that the kernel is without races."""
    text, block = random_kernel(seed)
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-100, 100, BLOCKS * THREADS, dtype=np.int32) for _ in range(INPUTS)]
    out = np.zeros(BLOCKS * THREADS, np.int32)
    want = Device(text).run("k", [BLOCKS], block, arrays, out)
    np.testing.assert_array_equal(Loops(text, seed % 8 == 0).run("k", [BLOCKS], block, arrays, out), want)


# ---- what threads do together ------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    ("text", "name", "grid", "block", "inputs", "out"),
    [
        (threads.SHUFFLES, "k", [1], [64], [normal(64), picks(64, 32)], (4, 64)),
        (threads.ROW_SUMS, "sums", [3], [64, 4], [normal(3, 256)], (3,)),
        (threads.ROUND_TF32, "k", [1], [64], [normal(64)], (64,)),
        (threads.MEMORIES, "large", [1], [128], [normal(128)], (128,)),
        (threads.MEMORIES, "own", [1], [128], [normal(128, 8), picks(128, 8)], (128,)),
    ],
    ids=["shuffles", "sums", "round", "large", "own"],
)
def test_kernels_of_the_ptx_interpreter(text, name, grid, block, inputs, out, native):
    zeros = np.zeros(out, np.float32)
    want = Device(text).run(name, grid, block, inputs, zeros)
    np.testing.assert_array_equal(Loops(text, native).run(name, grid, block, inputs, zeros), want)


@WAYS
def test_round_tf32_of_what_is_not_finite(native):
    x = np.full(64, 1 + 2.0**-11, np.float32)
    x[:5] = np.inf, -np.inf, np.nan, np.finfo(np.float32).max, -0.0
    got = Loops(threads.ROUND_TF32, native).run("k", [1], [64], [x], np.zeros(64, np.float32))
    want = np.where(np.isfinite(x), ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32), x)
    np.testing.assert_array_equal(got, want)
    assert np.signbit(got[4])


@WAYS
def test_tiled_product(native):
    a, b, out = normal(32, 48), normal(48, 64), np.full((32, 64), np.nan, np.float32)
    got = Loops(tiled_product(32, 64, 48), native).run("product", [4, 2], [16, 16], [a, b], out)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(every=2, share=0.2, by="type")
@pytest.mark.parametrize("type", threads.TYPES, ids=str)
@pytest.mark.parametrize(
    ("sizes", "native"), [((33, 17, 40), False), ((5, 3, 8), True), ((64, 40, 136), True)], ids=str
)
def test_tensor_product(type, sizes, native):
    """Sums of exact products, in f32; rows and columns that fill no tile, depths that fill no stage: zeros stand behind them."""
    m, n, _ = sizes
    a, b = threads.matrices(*sizes, type)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    out = np.full((m, n), np.nan, np.float32)
    got = Loops(tensor_product(*sizes, type), native).run("product", [-(-n // 16), -(-m // 32)], [64], [a, b], out)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


#: Matrices read transposed, one and two at a time: each lane writes what it got.
TRANSPOSED = """
func.func @k(%x: memref<16x24xf16>, %y: memref<2x32x2xf16>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<16x24xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %c24 = arith.constant 24 : index
  %l = cuda.lane_id
  scf.for %i = %zero to %c16 step %one {
    %inside = arith.cmpi slt, %l, %c24 : index
    scf.if %inside {
      %v = memref.load %x[%i, %l] : memref<16x24xf16>
      memref.store %v, %s[%i, %l] : memref<16x24xf16, 3 : i32>
    }
  }
  cuda.barrier
  %row = arith.remui %l, %c16 : index
  %a = cuda.ldmatrix %s[%row, %eight] tiles 2 trans : memref<16x24xf16, 3 : i32>, vector<2x2xf16>
  scf.for %e = %zero to %one step %one {
    %p = vector.extract %a[0, 0] : f16 from vector<2x2xf16>
    %q = vector.extract %a[0, 1] : f16 from vector<2x2xf16>
    %r = vector.extract %a[1, 0] : f16 from vector<2x2xf16>
    %t = vector.extract %a[1, 1] : f16 from vector<2x2xf16>
    memref.store %p, %y[%zero, %l, %zero] : memref<2x32x2xf16>
    memref.store %q, %y[%zero, %l, %one] : memref<2x32x2xf16>
    memref.store %r, %y[%one, %l, %zero] : memref<2x32x2xf16>
    memref.store %t, %y[%one, %l, %one] : memref<2x32x2xf16>
  }
  func.return
}
"""


@WAYS
def test_matrices_are_read_transposed(native):
    x, out = normal(16, 24).astype(np.float16), np.zeros((2, 32, 2), np.float16)
    got = Loops(TRANSPOSED, native).run("k", [1], [32], [x], out)
    lane = np.arange(32)
    for m in range(2):
        for e in range(2):
            np.testing.assert_array_equal(got[m, :, e], x[8 * m + 2 * (lane % 4) + e, 8 + lane // 4])
    np.testing.assert_array_equal(got, Device(TRANSPOSED).run("k", [1], [32], [x], out))


#: Copies of 8 elements, from rows of 4 to rows of 2, of which the thread's number says how much is read.
COPIES = """
func.func @k(%x: memref<64x4xf16>, %y: memref<128x2xf16>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<128x2xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %four = arith.constant 4 : index
  %nine = arith.constant 9 : index
  %t = cuda.thread_id x
  %from = arith.muli %t, %two : index
  %to = arith.muli %t, %four : index
  %part = arith.remui %t, %nine : index
  %size = arith.muli %part, %two : index
  cuda.async_copy %s[%to, %zero], %x[%from, %zero] bytes 16 size %size : memref<128x2xf16, 3 : i32>, memref<64x4xf16>
  cuda.async_commit
  cuda.async_wait 0
  cuda.barrier
  scf.for %i = %zero to %four step %one {
    %row = arith.addi %to, %i : index
    scf.for %j = %zero to %two step %one {
      %v = memref.load %s[%row, %j] : memref<128x2xf16, 3 : i32>
      memref.store %v, %y[%row, %j] : memref<128x2xf16>
    }
  }
  func.return
}
"""


@WAYS
def test_copies_reach_across_rows_and_are_filled_up_with_zeros(native):
    x, out = normal(64, 4).astype(np.float16), np.full((128, 2), np.nan, np.float16)
    got = Loops(COPIES, native).run("k", [1], [32], [x], out)
    flat = x.reshape(32, 8)
    want = np.where(np.arange(8) < (np.arange(32) % 9)[:, None], flat, 0)
    np.testing.assert_array_equal(got.reshape(32, 8), want)
    np.testing.assert_array_equal(got, Device(COPIES).run("k", [1], [32], [x], out))


def test_fragments_that_are_added_to_take_one_array():
    """The sums of the products of a loop stay where they are: nothing is copied from trip to trip."""
    module = converted(tensor_product(32, 16, 64, f16), "product", [1], [32 * 128, 16 * 128, 32 * 64])
    (function,) = [f for name, f in kernels(module).items() if name == "product"]
    calls = [op for op in function.walk() if op.name == "func.call"]
    assert len(calls) == 4 and all(op.operands[3].owner is op.operands[4].owner for op in calls)


# ---- launches --------------------------------------------------------------------------------------------------------

TWO_GRIDS = """
builtin.module attributes {ln.memory = {static = 0, arena = 12288}, cuda.arch = "sm_80"} {
  func.func @k(%y: memref<12x64xi32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
    %s = cuda.shared : memref<64xi32, 3 : i32>
    %t = cuda.thread_id x
    %x = cuda.block_id x
    %b = cuda.block_id y
    %z = cuda.block_id z
    %nx = cuda.grid_dim x
    %ny = cuda.grid_dim y
    %zy = arith.muli %z, %ny : index
    %row = arith.addi %zy, %b : index
    %rows = arith.muli %row, %nx : index
    %i = arith.addi %rows, %x : index
    %ten = arith.constant 10 : index
    %high = arith.muli %z, %ten : index
    %both = arith.addi %high, %b : index
    %higher = arith.muli %both, %ten : index
    %value = arith.addi %higher, %x : index
    %v = arith.index_cast %value : index to i32
    memref.store %v, %s[%t] : memref<64xi32, 3 : i32>
    cuda.barrier
    %last = arith.constant 63 : index
    %o = arith.subi %last, %t : index
    %r = memref.load %s[%o] : memref<64xi32, 3 : i32>
    memref.store %r, %y[%i, %t] : memref<12x64xi32>
    func.return
  }
  func.func @main() {
    cuda.launch @k grid [2, 3, 2] block [64, 1, 1] [arena+0]
    cuda.launch @k grid [12, 1, 1] block [64, 1, 1] [arena+4096]
    cuda.launch @k grid [2, 3, 2] block [64, 1, 1] [arena+8192]
    func.return
  }
}
"""


def test_a_kernel_has_a_function_for_each_grid_and_threads_have_scratch_of_their_own():
    from lightnet_trust.interpreter.loops import run_main

    module = parse(TWO_GRIDS)
    SimtToCpuPass(threads=3).apply(make_context(), module)
    module = parse(str(module))
    assert list(kernels(module)) == ["k", "k_0"]
    lines = launches(module)
    assert [line.callee.string_value() for line in lines] == ["k", "k_0", "k"]
    assert all(line.most_threads == 3 and line.grid.value.data == 12 for line in lines)
    scratch = lines[0].scratch_bytes
    assert scratch == 256 and memory_of(module)["arena"] == 12288 + scratch
    arena = np.zeros(memory_of(module)["arena"], np.uint8)
    run_main(module, arena)
    found = arena[:12288].view(np.int32).reshape(3, 1024)[:, :768].reshape(3, 12, 64)
    z, y, x = np.indices((2, 3, 2)).reshape(3, 12)
    np.testing.assert_array_equal(found[0], np.broadcast_to((100 * z + 10 * y + x)[:, None], (12, 64)))
    np.testing.assert_array_equal(found[1], np.broadcast_to(np.arange(12)[:, None], (12, 64)))
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @main() {\n func.return\n}", "no kernels for cuda: run lower-cuda"),
        (TWO_GRIDS.replace("sm_80", "sm_1"), "unknown architecture 'sm_1'"),
        (TWO_GRIDS.replace("launch @k grid [12", "launch @other grid [12"), "@other, which is no kernel"),
        (
            TWO_GRIDS.replace("%t = cuda", "%own = memref.alloca() : memref<1000000xf64>\n    %t = cuda").replace(
                "    cuda.barrier\n",
                "    cuda.barrier\n    %q = arith.constant 0 : index\n    %f = memref.load %own[%q] : memref<1000000xf64>\n",
            ),
            "a block wants more than",
        ),
    ],
)
def test_refusals(text, message):
    with pytest.raises(LightNetError, match=re.escape(message)):
        SimtToCpuPass().apply(make_context(), parse(text))


# ---- networks --------------------------------------------------------------------------------------------------------

NETS = [
    "nets/squeezenet1.1.net",
    pytest.param("nets/resnet18.net", marks=pytest.mark.slow),
    pytest.param("nets/mobilenetv2.net", marks=pytest.mark.slow),
    pytest.param("nets/resnet50.net", marks=pytest.mark.slow),
    pytest.param("nets/tiny-yolo.net", marks=pytest.mark.slow),
]


@pytest.mark.optimized
@pytest.mark.parametrize("net", NETS)
def test_a_network_has_the_results_of_the_cpu(net):
    on_cpu, of_cuda = (
        lightnet.compile(EXAMPLES / net),
        lightnet.compile(EXAMPLES / net, "cuda", on_cpu=True, threads=2),
    )
    same(of_cuda(fed(on_cpu)), on_cpu(fed(on_cpu)))


@pytest.mark.optimized
@pytest.mark.parametrize(
    "name",
    [
        "shufflenetv2",
        pytest.param("squeezedet", marks=pytest.mark.slow),
        pytest.param("erfnet_samepad", marks=pytest.mark.slow),
    ],
)
def test_a_network_agrees_with_onnxruntime(name):
    from test_networks import NETS, compare

    model = compare.sampled_model(str(NETS / "il" / f"{name}.net"))
    findings = compare.compare(model, lightnet.compile(model, "cuda", on_cpu=True)())
    assert findings
    assert [f for f in findings if f.problem] == []


#: Ten and eleven bits of the factors are left, of bf16 eight: errors relative to the largest value.
TOLERANCES = {"tf32": 1e-3, "f16": 2e-3, "bf16": 2e-2}


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("net", "precision"),
    [
        ("cnn.net", "f16"),
        ("cnn.net", "bf16"),
        *(
            pytest.param(f"nets/{net}.net", precision, marks=pytest.mark.slow)
            for net in ("squeezenet1.1", "resnet18", "mobilenetv2")
            for precision in TOLERANCES
        ),
    ],
)
def test_a_network_on_tensor_cores(net, precision):
    on_cpu = lightnet.compile(EXAMPLES / net)
    of_cuda = lightnet.compile(EXAMPLES / net, "cuda", precision=precision, on_cpu=True)
    assert any(name.startswith("mma_") for name in kernels(of_cuda.loops))
    got, want = of_cuda(fed(on_cpu)), on_cpu(fed(on_cpu))
    for name, array in want.items():
        error = np.abs(got[name] - array).max() / np.abs(array).max()
        assert 0 < error < TOLERANCES[precision], name


def test_an_executable_of_loops_is_one_of_the_cpu(tmp_path):
    """It is saved and loaded, and takes threads and fed params, as others."""
    executable = lightnet.compile(EXAMPLES / "nets/lenet.net", "cuda", on_cpu=True, threads=2)
    feeds = fed(executable)
    want = executable(feeds)
    assert executable.arch is None and executable.threads == 2
    executable.save(tmp_path / "net.lnx")
    for name, array in lightnet.load_executable(tmp_path / "net.lnx")(feeds, threads=1).items():
        np.testing.assert_array_equal(array, want[name])


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("cpu", {"on_cpu": True}, "'on_cpu' is of target cuda"),
        ("cuda", {"on_cpu": True, "emulate": True}, "choose one of them"),
    ],
)
def test_options_that_do_not_go_together(target, options, message):
    with pytest.raises(LightNetError, match=message):
        lightnet.compile(EXAMPLES / "cnn.net", target, **options)


# ---- the check of level 4 ----------------------------------------------------------------------------------------------

PIPELINE = "bind,simplify,expand,combine,choose,plan,lower-cuda"


def test_what_kernels_of_threads_compute_is_checked(capsys):
    assert ln_opt.main(["--target=cuda", f"--pass={PIPELINE}", "--check", str(EXAMPLES / "nets/mlp.net")]) == 0
    found = re.search(r"lower-cuda: (\d+) of (\d+) kernel functions are executed", capsys.readouterr().err)
    assert found is not None and found[1] == found[2] != "0"


def test_a_generator_of_threads_that_is_wrong_is_found(monkeypatch, capsys):
    """The last block is left out."""
    right = SELECTION.generate

    def wrong(kernel, name, aliases):
        made = right(kernel, name, aliases)
        return [replace(m, grid=(max(1, m.grid[0] - 1), *m.grid[1:])) for m in made]

    monkeypatch.setattr(SELECTION, "generate", wrong)
    assert ln_opt.main(["--target=cuda", f"--pass={PIPELINE}", "--check", str(EXAMPLES / "nets/mlp.net")]) == 1
    assert "pass 'lower-cuda' changed the result" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(), (1,), (13,), (4, 0, 3), (2, 3, 5)], ids=str)
def test_bytes_of_arrays(shape):
    """Of each type as NumPy has it: a truth value is a byte."""
    types = {i1: "bool", i8: "i1", i16: "i2", i32: "i4", i64: "i8", f16: "f2", bf16: "u2", f32: "f4", f64: "f8"}
    types[IndexType()] = "i8"
    for type, dtype in types.items():
        assert bytes_of(MemRefType(type, shape)) == np.empty(shape, dtype).nbytes, type
