"""f16 and bf16: conversions over every value, against NumPy and ml_dtypes; storage at each level; vector code."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
import test_notation as t
from test_loops import aligned, check
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.llvm.emitter import TargetVectors
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet.backends.loops import lower_definition
from lightnet.ir.bound import Read
from lightnet.runtime.dtypes import BY_NAME, BY_NP

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
SHORT = pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
#: The host's own conversions, and integer arithmetic.
HALF = pytest.mark.parametrize("half", [True, False], ids=["instructions", "integers"])


def native(definition, source: np.ndarray, half: bool) -> np.ndarray:
    """A map of one operand, run as machine code."""
    (kernel,) = lower_definition("k", definition).kernels
    host = CodeMachine.host().vectors
    vectors = TargetVectors(host.width, half and host.half)
    code = compile_module(ModuleOp([kernel.func]), vectors=vectors, verify=True)
    memory = {
        "src": aligned(source),
        "dst": aligned(np.zeros(definition.specs["dst"].len, definition.specs["dst"].dtype.np)),
    }
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    kind(code.kernel_address("k"))(0, kernel.grid, *(memory[a].ctypes.data for a in kernel.args))
    return memory["dst"]


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, but for which NaN it is."""
    bits = f"u{want.itemsize}"
    nan = np.isnan(want)
    assert got.dtype == want.dtype and (np.isnan(got) == nan).all()
    np.testing.assert_array_equal(got[~nan].view(bits), want[~nan].view(bits))


@SHORT
@HALF
def test_every_short_float_widens_exactly(dtype, half):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    definition = t.bound("dst[i] = f32(src[i])", {"src": every}, dst=np.zeros(every.shape, np.float32))
    same(native(definition, every, half), every.astype(np.float32))


def floats_around(dtype) -> np.ndarray:
    """Every short float, its midpoints to the next one, their neighbours; random bits."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32).view(np.uint32)
    half_step = np.uint32(1 << (12 if dtype == F16 else 15))
    bits = [every + d for d in (0, half_step - 1, half_step, half_step + 1)]
    bits.append(np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32))
    return np.concatenate(bits).astype(np.uint32).view(np.float32)


@SHORT
@HALF
def test_floats_round_to_nearest_even(dtype, half):
    values = floats_around(dtype)
    definition = t.bound("dst[i] = src[i]", {"src": values}, dst=np.zeros(values.shape, dtype))
    with np.errstate(over="ignore"):
        same(native(definition, values, half), values.astype(dtype))


@HALF
def test_doubles_are_rounded_once(half):
    rng = np.random.default_rng(1)
    ties = rng.integers(0, 0x7C00, 4000).astype(np.uint16).view(F16).astype(np.float64)
    ties += np.spacing(ties.astype(F16)).astype(np.float64) / 2  # halfway to the next
    values = np.concatenate(
        [ties, ties * (1 + 2.0**-40), ties * (1 - 2.0**-40), -ties, [np.nan, np.inf, 1e300, 5e-324]]
    )
    definition = t.bound("dst[i] = f16(src[i])", {"src": values}, dst=np.zeros(values.shape, F16))
    with np.errstate(over="ignore"):
        same(native(definition, values, half), values.astype(F16))


@SHORT
def test_arithmetic_is_in_f32_and_rounded_where_it_is_stored(dtype):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 6, 70)).astype(dtype)
    wide = x.astype(np.float32), y.astype(np.float32)
    cases = {
        "dst[i,j] = src[i,j] * other[i,j] + src[i,j]": wide[0] * wide[1] + wide[0],
        "dst[i,j] = src[i,j-1|0] + 1": np.pad(wide[0], ((0, 0), (1, 0)))[:, :-1] + 1,
        "local[i,j] = src[i,j] * 1024\n dst[i,j] = local[i,j] * 1024 / 1048576": wide[0],
    }
    for text, want in cases.items():
        arrays = {"src": x} | ({"other": y} if "other" in text else {})
        np.testing.assert_array_equal(
            t.run(text, arrays, dst=x).astype(np.float32), want.astype(dtype).astype(np.float32)
        )
        check([(t.bound(text, arrays, dst=x), arrays)], tolerance=2.0**-7)


@SHORT
def test_reductions_accumulate_in_f32(dtype):
    ones = np.ones((3, 5000), dtype)  # a sum in the type would stop at 2048, or at 256
    text = "dst[i] += src[i,j]\n dst[i] = dst[i] / 5000"
    definition = t.bound(text, {"src": ones}, dst=np.zeros(3, dtype))
    assert [str(s.dtype) for _, s in definition.locals] == ["f32"]
    assert t.run(text, {"src": ones}, dst=np.zeros(3, dtype)).tolist() == [1, 1, 1]
    check([(definition, {"src": ones})])
    x = np.random.default_rng(3).permutation(300).reshape(3, 100).astype(dtype)
    results = {"dst": np.zeros(3, dtype), "arg": np.zeros(3, np.int32)}
    got = t.run("dst[i], arg[i] argmax= src[i,j]", {"src": x}, **results)
    assert got["arg"].tolist() == x.astype(np.float32).argmax(1).tolist()
    check([(t.bound("dst[j] max= src[i,j]", {"src": x}, dst=x[0]), {"src": x})])


@SHORT
def test_moves_do_not_convert(dtype):
    x = np.zeros((4, 5), dtype)
    for text in ("dst[i,j] = src[j,i]", "dst[i,j] = src[j,i+1|0]", f"dst[i,j] = {BY_NP[dtype]}(src[j,i])"):
        (statement,) = t.bound(text, {"src": np.zeros((5, 4), dtype)}, dst=x).statements
        assert isinstance(statement.value, Read)


@SHORT
def test_conversions_from_and_to_every_type(dtype):
    values = np.array([0, 1, -1, 2.5, 100000, -1e30, 1e39, np.inf, -np.inf, np.nan])
    cases = []
    for name in ("f64", "f32", "f16", "bf16", "i8", "i32", "ui64", "i1"):
        other = BY_NAME[name]
        with np.errstate(all="ignore"):
            source = {"src": values.astype(other.np)}
            short = {"src": values.astype(dtype)}
        for fn in ("sat", "wrap"):
            cases += [
                (t.bound(f"dst[i] = {fn}(src[i], dst)", source, dst=np.zeros(10, dtype)), source),
                (t.bound(f"dst[i] = {fn}(src[i], dst)", short, dst=np.zeros(10, other.np)), short),
            ]
    check(cases)
    with np.errstate(all="ignore"):
        x = {"src": values.astype(np.float32)}
    finite = t.run("dst[i] = sat(src[i], dst)", x, dst=np.zeros(10, F16)).tolist()
    assert finite[4:9] == [65504, -65504, np.inf, np.inf, -np.inf]  # 1e39 is infinite in f32
    assert t.run("dst[i] = wrap(src[i], dst)", x, dst=np.zeros(10, F16)).tolist()[4:6] == [np.inf, -np.inf]


@SHORT
def test_bits(dtype):
    every = np.arange(1 << 16, dtype=np.uint16)
    there = t.bound("dst[i] = bitcast(src[i], dst)", {"src": every}, dst=np.zeros(1 << 16, dtype))
    back = t.bound("dst[i] = bitcast(src[i], dst)", {"src": every.view(dtype)}, dst=every)
    assert (native(there, every, True).view(np.uint16) == every).all()
    assert (native(back, every.view(dtype), True) == every).all()


@SHORT
@pytest.mark.parametrize("half", [True, False])
def test_vector_code_without_library_calls(dtype, half):
    x = np.zeros(4096, dtype)
    (kernel,) = lower_definition("k", t.bound("dst[i] = src[i] + other[i]", {"src": x, "other": x}, dst=x)).kernels
    host = CodeMachine.host()
    code = compile_module(
        ModuleOp([kernel.func]), vectors=TargetVectors(host.vectors.width, half and host.vectors.half)
    )
    assert "call" not in code.assembly
    if "x86" in str(host.target_machine().triple):
        assert "vaddps" in code.assembly or "addps" in code.assembly
        assert not half or dtype == BF16 or not host.vectors.half or "vcvtph2ps" in code.assembly


def test_strided_bfloats_move_as_bits():
    """LLVM's vectoriser makes vectors of bfloat of strided elements that its instruction selection for AVX512-BF16 ends the process over; of bits it
    makes what runs."""
    import lightnet

    text = """func.func @main() -> tensor<8x1xf32> {
      %x = ln.input : tensor<8x5xf32>
      %i = ln.input : tensor<1xi64>
      %s = ln.cast %x : tensor<8x5xbf16>
      %t = ln.take %s, %i {axis = 1} : tensor<8x1xbf16>
      %y = ln.cast %t : tensor<8x1xf32>
      func.return %y : tensor<8x1xf32>
    }"""
    run = lightnet.compile(lightnet.loads(text, ".mlir"))
    names = list(run.inputs)
    assert "load bfloat" not in run.llvm_ir and "store bfloat" not in run.llvm_ir and "bf16" in str(run.loops)
    x = np.arange(40, dtype=np.float32).reshape(8, 5)
    got = run({names[0]: x, names[1]: np.array([3])})
    np.testing.assert_array_equal(next(iter(got.values())), x[:, 3:4])


CPUS = ["x86-64", "x86-64-v3", "x86-64-v4", "sapphirerapids", "znver5"]


@pytest.mark.parametrize("type", ["bf16", "vector<8xbf16>", "vector<2xbf16>"])
def test_values_that_pass_through_are_bits(type):
    """A bfloat that a branch, a loop or a choice passes on is its bits on every processor: of vectors of bfloat LLVM makes
    calls of a run-time library where there are no instructions for them."""
    lanes = int(type[7]) if "<" in type else 1
    load, store = ("tile.load", "tile.store") if lanes > 1 else ("memref.load", "memref.store")
    of, to = (f", {type}", f"{type}, ") if lanes > 1 else ("", "")
    dims = " dims [0]" if lanes > 1 else ""
    text = f"""func.func @k(%lo: index, %hi: index, %x: memref<64xbf16>, %y: memref<64xbf16>) {{
      %zero = arith.constant {f"dense<1.0> : {type}" if lanes > 1 else "1.0 : bf16"}
      %c0 = arith.constant 0 : index
      %one = arith.constant 1 : index
      %four = arith.constant 4 : index
      %odd = arith.cmpi slt, %lo, %one : index
      %a = scf.if %odd -> ({type}) {{
        %l = {load} %x[%c0]{dims} : memref<64xbf16>{of}
        scf.yield %l : {type}
      }} else {{
        scf.yield %zero : {type}
      }}
      %b = scf.for %i = %c0 to %four step %one iter_args(%c = %a) -> ({type}) {{
        %l = {load} %x[%i]{dims} : memref<64xbf16>{of}
        %even = arith.cmpi slt, %i, %hi : index
        %d = arith.select %even, %c, %l : {type}
        scf.yield %d : {type}
      }}
      {store} %b, %y[%c0]{dims} : {to}memref<64xbf16>
      func.return
    }}"""
    from lightnet.ir.context import make_context
    from lightnet.ir.parser import parse_mlir

    module = parse_mlir(make_context(), text)
    for cpu in CPUS:
        machine = CodeMachine(cpu, "", "x86_64-unknown-linux-gnu")
        code = compile_module(module, machine=machine, verify=True)
        assert "bfloat" not in code.llvm_ir and "i16" in code.llvm_ir and "call" not in code.assembly
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    code = compile_module(module, verify=True)
    x = aligned(np.arange(-3, 61).astype(BF16))
    for low, high in ((0, 4), (1, 4), (0, 2)):
        y = aligned(np.zeros(64, BF16))
        call(code.kernel_address("k"))(low, high, x.ctypes.data, y.ctypes.data)
        want = x[3 : 3 + lanes] if high < 4 else x[:lanes] if low < 1 else np.ones(lanes, BF16)
        same(y[:lanes], want)
