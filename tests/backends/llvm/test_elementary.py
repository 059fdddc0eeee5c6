"""The elementary functions: the accuracy that their table states, by machine code of this processor, against long double; what C gives at the edges; the same
bits from one lane and many, and from the PTX interpreter; and that no kernel needs a library."""

from __future__ import annotations

import ctypes
import math as standard
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from cuda_device import Device
from sampling import draw

from lightnet.backends.cuda.nvptx import emit_llvm
from lightnet.backends.elementary import emission
from lightnet.backends.elementary.table import FUNCTIONS
from lightnet.backends.llvm.emitter import TargetVectors, emit_module
from lightnet.backends.llvm.function import FunctionEmitter
from lightnet.backends.llvm.jit import CodeMachine, Compiler, compile_module
from lightnet.backends.llvm.machines import CPUS, machine
from lightnet.backends.llvm.values import leaf_type, literal
from lightnet.ir.context import make_context
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.ir.parser import parse_mlir
from lightnet.runtime import elf
from lightnet.runtime.native import NativeCode
from lightnet.runtime.processor import architecture

TYPES = {"f32": ("float", np.float32), "f64": ("double", np.float64)}
#: Units in the last place that a result may be off.
LIMITS = {name: {"f32": row.float_ulp, "f64": row.double_ulp} for name, row in FUNCTIONS.items()}
CASES = [(name, t) for name in FUNCTIONS for t in TYPES]
SAMPLES = 20000

_LONG = np.finfo(np.longdouble).nmant > 60
needs_long_double = pytest.mark.skipif(not _LONG, reason="no long double of more digits than double")


def caller(name: str, t: str) -> str:
    """A loop that applies a function to arrays."""
    type, arity = TYPES[t][0], FUNCTIONS[name].arity
    loads = "".join(
        f"  %g{k} = getelementptr {type}, ptr %p{k}, i64 %i\n  %a{k} = load {type}, ptr %g{k}\n" for k in range(arity)
    )
    args = ", ".join(f"{type} %a{k}" for k in range(arity))
    return f"""define void @{name}_{t}(i64 %n, {", ".join(f"ptr %p{k}" for k in range(arity))}, ptr %r) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{loads}  %v = call {type} @ln.{name}.{t}({args})
  %g = getelementptr {type}, ptr %r, i64 %i
  store {type} %v, ptr %g
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


def machines() -> list[CodeMachine]:
    """This processor, and, on three days in ten, one of its architecture without fused multiply-adds and rounding: compiling for it takes seconds."""
    others = [CodeMachine("x86-64", "")] if architecture() == "x86_64" else []
    return [CodeMachine.host(), *draw(others, "elementary functions", every=0, share=0.3)]


@pytest.fixture(scope="module", params=machines(), ids=lambda machine: machine.cpu)
def functions(request) -> Callable[..., np.ndarray]:
    """Applies a function to arrays: ``apply(name, type, *arrays)``."""
    declared = [f"declare {TYPES[t][0]} @ln.{n}.{t}({', '.join([TYPES[t][0]] * FUNCTIONS[n].arity)})" for n, t in CASES]
    library = emission.definitions(declared, request.param.has_fma)
    text = "\n".join([*library.declared, *library.texts, *(caller(*case) for case in CASES)])
    code = NativeCode([Compiler(request.param).run(text, True, verify=True)])

    def apply(name: str, t: str, *arrays: np.ndarray) -> np.ndarray:
        out = np.empty_like(arrays[0])
        pointers = [ctypes.c_void_p] * (len(arrays) + 1)
        function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *pointers)(code.address(f"{name}_{t}"))
        function(len(out), *(a.ctypes.data for a in (*arrays, out)))
        return out

    apply.fused = request.param.has_fma
    return apply


_NUMPY = {n: f"arc{n[1:]}" for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")} | {"pow": "power"}


def reference(name: str, *arrays: np.ndarray) -> np.ndarray:
    if name == "erf":
        return np.array([standard.erf(x) for x in arrays[0]], np.longdouble)
    with np.errstate(all="ignore"):
        return getattr(np, _NUMPY.get(name, name))(*(a.astype(np.longdouble) for a in arrays))


def sizes(low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """Numbers whose logarithms are spread evenly."""
    return np.exp(rng.uniform(np.log(low), np.log(high), SAMPLES))


def domain(name: str, t: str, rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """Arguments across what a function is defined for."""
    wide = t == "f64"
    tiny, huge = (1e-300, 1e300) if wide else (1e-37, 3e38)
    end = 709.0 if wide else 88.0
    sign = rng.choice([-1.0, 1.0], SAMPLES)
    any_size = sizes(tiny, huge, rng)
    match name:
        case "exp" | "exp2" | "expm1":
            found = [rng.uniform(-end if name != "expm1" else -40, end, SAMPLES), sign * sizes(1e-10, 2, rng)]
        case "log" | "log2" | "log10":
            found = [any_size, rng.uniform(0.5, 2, SAMPLES)]
        case "log1p":
            found = [sign * sizes(1e-17, 0.99, rng), sizes(1e-5, 1e30, rng)]
        case "acosh":
            found = [1 + sizes(1e-10, 1e30, rng)]
        case "sinh" | "cosh" | "tanh":
            found = [sign * sizes(1e-10, end, rng)]
        case "asin" | "acos" | "atanh":
            found = [rng.uniform(-1, 1, SAMPLES), sign * sizes(1e-10, 1, rng), sign * (1 - sizes(1e-12, 1, rng))]
        case "sin" | "cos" | "tan":
            found = [rng.uniform(-10, 10, SAMPLES), rng.uniform(-2e5, 2e5, SAMPLES), sign * any_size]
        case "erf":
            found = [rng.uniform(-6.5, 6.5, SAMPLES), sign * sizes(1e-10, 1, rng)]
        case "pow":
            return [
                (sizes(1e-5, 1e5, rng).astype(TYPES[t][1]), rng.uniform(-5, 5, SAMPLES).astype(TYPES[t][1])),
                (rng.uniform(0.9, 1.1, SAMPLES).astype(TYPES[t][1]), (sign * sizes(1, 800, rng)).astype(TYPES[t][1])),
            ]
        case "atan2":
            return [
                ((sign * sizes(1e-5, 1e5, rng)).astype(TYPES[t][1]), rng.standard_normal(SAMPLES).astype(TYPES[t][1]))
            ]
        case _:
            found = [sign * any_size, rng.uniform(-3, 3, SAMPLES)]
    return [(x.astype(TYPES[t][1]),) for x in found]


@needs_long_double
@pytest.mark.parametrize(("name", "t"), CASES)
def test_accuracy(functions, name, t):
    rng = np.random.default_rng(sum(map(ord, name)))
    dtype = TYPES[t][1]
    for arrays in domain(name, t, rng):
        got, want = functions(name, t, *arrays), reference(name, *arrays)
        rounded = want.astype(dtype)
        normal = np.isfinite(rounded) & (np.abs(rounded) >= np.finfo(dtype).tiny)
        assert (np.isfinite(got) == np.isfinite(rounded)).all()
        with np.errstate(invalid="ignore"):
            off = np.abs(got.astype(np.longdouble) - want) / np.spacing(np.abs(rounded))
        k = int(np.argmax(np.where(normal, off, 0)))
        # Subnormal results are left out: they have fewer digits. erf is compared with a double, half a unit off itself.
        limit = LIMITS[name][t] + (0.5 if name == "erf" else 0) + (0 if functions.fused else 0.5)
        assert off[k] <= limit, f"{name}({[a[k] for a in arrays]}) = {got[k]}, {off[k]} ulp"


def special(dtype: type) -> np.ndarray:
    info = np.finfo(dtype)
    ends = [info.max, info.tiny, info.smallest_subnormal, 1 + info.eps, 1 - info.eps / 2, np.inf]
    numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 8, 10, 100, 1000, 1e10, 1e15, 2.0**53, 3.0000001, *ends]
    with np.errstate(over="ignore"):
        return np.array([s * x for x in numbers for s in (1, -1)] + [np.nan], dtype)


@needs_long_double
@pytest.mark.parametrize(("name", "t"), CASES)
def test_special_values(functions, name, t):
    """Zeros with their sign, infinities, NaN, the ends of the range: as C has them."""
    dtype = TYPES[t][1]
    x = special(dtype)
    arrays = [a.ravel() for a in np.meshgrid(x, x)] if FUNCTIONS[name].arity == 2 else [x]
    got = functions(name, t, *arrays)
    with np.errstate(all="ignore"):
        want = reference(name, *arrays).astype(dtype)
        near = (got == want) | (np.abs(got - want) <= 4 * np.spacing(np.abs(want)))
    same = (np.isnan(got) & np.isnan(want)) | (near & (np.signbit(got) == np.signbit(want)))
    assert same.all(), [(*(a[k] for a in arrays), got[k], want[k]) for k in np.flatnonzero(~same)[:5]]


def test_powers_of_integers_are_exact(functions):
    """Powers of integers are computed as powers of doubles, and cut to integers."""
    base, exponent = (x.ravel().astype(np.float64) for x in np.meshgrid(np.arange(-60, 61), np.arange(30)))
    exact = [int(b) ** int(e) for b, e in zip(base, exponent)]
    got = functions("pow", "f64", base, exponent)
    assert [g for g, w in zip(got, exact) if abs(w) <= 2**53] == [w for w in exact if abs(w) <= 2**53]


def test_index_notation_has_no_function_without_a_definition():
    """A square root is an instruction everywhere."""
    assert set(FLOAT_FUNCTIONS) - {"sqrt"} <= set(FUNCTIONS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_without_instructions(dtype):
    """Halves, neighbours of whole numbers, numbers without digits behind the point, and the special ones."""
    near = np.concatenate(
        [np.nextafter(n, [-np.inf, np.inf, n], dtype=dtype) for n in np.arange(-6, 6.5, 0.5, dtype=dtype)]
    )
    digits = np.finfo(dtype).nmant
    x = np.concatenate(
        [
            near,
            special(dtype),
            np.array([2.0**k + d for k in range(digits - 2, digits + 3) for d in (0, 0.5, -0.5)], dtype),
        ]
    )
    vectors = TargetVectors(4, rounding=False)
    for name in ROUNDINGS:
        t = "f32" if dtype is np.float32 else "f64"
        text = loop(f"math.{name}", t, len(x))
        compiled, out = compile_module(parse_mlir(make_context(), text), vectors=vectors), np.empty_like(x)
        assert f"llvm.{name}." not in compiled.llvm_ir
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 2)(compiled.kernel_address("k"))(
            0, 1, x.ctypes.data, out.ctypes.data
        )
        with np.errstate(invalid="ignore"):
            away = np.copysign(np.floor(np.abs(x)) + (np.abs(x) - np.floor(np.abs(x)) >= 0.5), x)
            want = away if name == "round" else getattr(np, {"roundeven": "rint"}.get(name, name))(x)
        same = (out == want) & (np.signbit(out) == np.signbit(want)) | np.isnan(out) & np.isnan(want)
        assert same.all(), (name, x[~same][:3], out[~same][:3])


def test_the_interpreter_gives_the_same_bits(functions):
    """One kernel a function, on special values and random ones."""
    if not functions.fused:
        pytest.skip("a device multiplies and adds in one step")
    rng, n = np.random.default_rng(0), 256
    device = Device("".join(kernel(name, t, n) for name, t in CASES))
    for name, t in CASES:
        dtype = TYPES[t][1]
        drawn = [(rng.standard_normal(n) * 10.0 ** rng.uniform(-8, 8, n)).astype(dtype) for _ in range(2)]
        if name in ("asin", "acos", "atanh"):
            drawn[0] = rng.uniform(-1, 1, n).astype(dtype)
        if name.startswith(("log", "pow", "acosh")):
            drawn[0] = np.abs(drawn[0])
        values = special(dtype)
        drawn[0][: len(values)] = values
        arrays = drawn[: FUNCTIONS[name].arity]
        got = device.run(f"{name}_{t}", [2], [n // 2], arrays, np.zeros(n, dtype))
        want = functions(name, t, *arrays)
        same = (got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")) | (np.isnan(got) & np.isnan(want))
        assert same.all(), (name, t, [(*(a[k] for a in arrays), got[k], want[k]) for k in np.flatnonzero(~same)[:3]])


def kernel(name: str, t: str, n: int) -> str:
    op, binary = {"pow": "powf"}.get(name, name), FUNCTIONS[name].arity == 2
    return f"""
func.func @{name}_{t}(%x: memref<{n}x{t}>{f", %z: memref<{n}x{t}>" if binary else ""}, %y: memref<{n}x{t}>)
    attributes {{cuda.block = array<i32: {n // 2}, 1, 1>}} {{
  %t = cuda.thread_id x
  %b = cuda.block_id x
  %h = arith.constant {n // 2} : index
  %m = arith.muli %b, %h : index
  %i = arith.addi %m, %t : index
  %a = memref.load %x[%i] : memref<{n}x{t}>
  {f"%c = memref.load %z[%i] : memref<{n}x{t}>" if binary else ""}
  %r = math.{op} %a{", %c" if binary else ""} : {t}
  memref.store %r, %y[%i] : memref<{n}x{t}>
  func.return
}}
"""


def in_lanes(name: str, lanes: int) -> str:
    """A function of float on so many neighbours, in place."""
    e, type, row = FunctionEmitter(lanes, True, {}), leaf_type("float", lanes), FUNCTIONS[name]
    loads = [f"%x{k} = load {type}, ptr %p{k}, align 4" for k in range(row.arity)]
    result = emission.in_place(row.definition("float"), e, [f"%x{k}" for k in range(row.arity)], type, lanes)
    head = f"define void @{name}_{lanes}({', '.join(f'ptr %p{k}' for k in range(row.arity))}, ptr %r) {{"
    lines = [*sorted(e.declared), head, *loads, *e.scopes[0].lines, f"store {type} {result}, ptr %r, align 4"]
    return "\n".join([*lines, "ret void", "}"])


def parts_of(dtype: type) -> dict[str, tuple[Callable, Callable, np.ndarray]]:
    """What our functions are made of: (code, the same by NumPy, arguments)."""
    info, rng = np.finfo(dtype), np.random.default_rng(3)
    half = 2.0 ** (info.nmant - 1)
    whole = np.concatenate([np.arange(9), rng.integers(0, int(half), 50), [half - 1]]).astype(dtype)
    near = np.concatenate([[0, 0.25, 0.5, 1.5, 2.5, 1e5 + 0.5], rng.uniform(0, 1e4, 50), [half / 2 - 0.5]]).astype(
        dtype
    )
    large = np.array([2 * half - 0.5, 2 * half - 1, 2 * half, 4 * half - 1, 4 * half + 2, np.inf, np.nan], dtype)
    powers = np.arange(info.minexp, info.maxexp, 7).astype(dtype)
    integer = {np.float32: "i32", np.float64: "i64"}[dtype]

    def to_integer(c, x):
        return c.cast("fptosi", x, integer)

    def two_to(x):
        return np.ldexp(dtype(1), x.astype(np.int64))

    return {
        "whole_part": (lambda c, x: c.whole_part(x), np.rint, np.concatenate([near, large])),
        "round": (lambda c, x: c.round(x)[0], np.rint, np.concatenate([near, -near])),
        "round_bits": (
            lambda c, x: c.cast("sitofp", c.round(x)[1], x.type),
            lambda x: np.rint(x) + dtype(0),
            np.concatenate([near, -near]),
        ),
        "counted": (lambda c, x: c.counted(to_integer(c, x), x.type), lambda x: x, whole),
        "power": (lambda c, x: c.power_of_two(to_integer(c, x), x.type), two_to, powers),
        "scale": (
            lambda c, x: c.scale(c.const(1.5, x.type), to_integer(c, x)),
            lambda x: dtype(1.5) * two_to(x),
            powers,
        ),
    }


@pytest.mark.parametrize("type, dtype", TYPES.values(), ids=TYPES)
def test_the_parts_of_functions_are_exact(type: str, dtype: type):
    """Arithmetic on the digits of floats, of one element and in lanes."""
    parts = parts_of(dtype)
    for lanes in (1, 4):
        texts, wide = [], leaf_type(type, lanes)
        for name, (code, _, _) in parts.items():
            e = FunctionEmitter(lanes, True, {})
            result = emission.in_place(code, e, ["%x"], wide, lanes)
            head = f"define void @{name}(ptr %p, ptr %r) {{"
            load, store = f"%x = load {wide}, ptr %p, align 4", f"store {wide} {result}, ptr %r, align 4"
            texts.append("\n".join([*sorted(e.declared), head, load, *e.scopes[0].lines, store, "ret void", "}"]))
        code = NativeCode([Compiler(CodeMachine.host()).run(text, False, verify=True) for text in texts])
        for name, (_, meaning, x) in parts.items():
            x = np.resize(x, -(-len(x) // lanes) * lanes)
            out, function = np.empty_like(x), ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address(name))
            for k in range(0, len(x), lanes):
                function(x[k:].ctypes.data, out[k:].ctypes.data)
            np.testing.assert_array_equal(out, meaning(x), err_msg=name)


def test_lanes_give_the_bits_of_one_element():
    """Of float, in vectors: as epilogues of tiled kernels have them."""
    x = special(np.float32)[:32]
    x, y = np.concatenate([x, np.linspace(-3, 9, 32, dtype=np.float32)]), np.linspace(-4, 3, 64, dtype=np.float32)
    for name, row in FUNCTIONS.items():
        code = NativeCode([Compiler(CodeMachine.host()).run(in_lanes(name, k), False, verify=True) for k in (1, 16)])
        results = {lanes: np.empty_like(x) for lanes in (1, 16)}
        for lanes, out in results.items():
            pointers = [ctypes.c_void_p] * (row.arity + 1)
            function = ctypes.CFUNCTYPE(None, *pointers)(code.address(f"{name}_{lanes}"))
            for k in range(0, len(x), lanes):
                function(*(a[k:].ctypes.data for a in (x, y)[: row.arity]), out[k:].ctypes.data)
        same = (results[1].view(np.uint32) == results[16].view(np.uint32)) | np.isnan(results[1]) & np.isnan(
            results[16]
        )
        assert same.all(), name


def loop(op: str, t: str, n: int) -> str:
    """A kernel of level 4 that applies an op, of two operands to one of them twice, to n elements."""
    operands = "%a, %a" if op in ("math.powf", "math.atan2") else "%a"
    return f"""func.func @k(%lo: index, %hi: index, %x: memref<{n}x{t}>, %y: memref<{n}x{t}>) attributes {{tile.opt = "O2"}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant {n} : index
      scf.for %i = %c0 to %n step %c1 {{
        %a = memref.load %x[%i] : memref<{n}x{t}>
        %r = {op} {operands} : {t}
        memref.store %r, %y[%i] : memref<{n}x{t}>
      }}
      func.return
    }}"""


def test_loops_of_float_vectorise():
    """Each function of f32: products and sums of vectors, and nothing but intrinsics is called."""
    target = machine("x86-64-v3", "x86_64-unknown-linux-gnu")
    for row in FUNCTIONS.values():
        ((text, optimize),) = emit_module(
            parse_mlir(make_context(), loop(row.op.name, "f32", 256)), target.vectors
        ).kernels.values()
        made = str(Compiler(target).module(text, optimize))
        assert re.search(r"@llvm.fma.v(4|8|16)f(32|64)\(", made), row.name
        assert not re.search(r"call[^\n]*@(?!llvm\.)", made), row.name


def test_code_for_no_processor_in_particular_multiplies_and_adds_in_one_step():
    """Where a target does not, ln 2 is cut so that its product with a whole number is exact."""
    module = parse_mlir(make_context(), loop("math.exp", "f32", 256))
    ours, fused, apart = (
        emit_module(module, *given).text
        for given in ((), (TargetVectors(16, fma=True),), (TargetVectors(16, fma=False),))
    )
    assert ours == fused != apart


@pytest.mark.parametrize("t", TYPES)
def test_code_for_devices_has_products_with_their_errors_in_one_step(t: str):
    """Without a fused instruction a factor is split by 2^27 + 1 (Veltkamp), and ln 2 is cut: not on devices."""
    text = every_op([t])
    fused, apart = (
        emit_module(parse_mlir(make_context(), text), TargetVectors(16, fma=fma)).text for fma in (True, False)
    )
    device = text.replace("%lo: index, %hi: index, ", "").replace(
        ") {", ") attributes {cuda.block = array<i32: 1, 1, 1>} {"
    )
    made, _ = emit_llvm(parse_mlir(make_context(), device))
    constants = {
        which: set(re.findall(r"0x[0-9A-F]{16}", code)) for which, code in (("fused", fused), ("apart", apart))
    }
    only_apart = constants["apart"] - constants["fused"]
    assert literal(2.0**27 + 1, "double") in only_apart
    assert not only_apart & set(re.findall(r"0x[0-9A-F]{16}", made))


ROUNDINGS = ("floor", "ceil", "trunc", "round", "roundeven")


def every_op(types: Sequence[str]) -> str:
    """A kernel of level 4 that applies every float op of `math` but `fma` to element 0, one result an element."""
    lines, count = [], 0
    for t in types:
        lines += [f"%{t}{k} = memref.load %{p}{t}[%c0] : memref<1x{t}>" for k, p in enumerate("xz")]
        for op in [row.op.name for row in FUNCTIONS.values()] + [
            f"math.{n}" for n in (*ROUNDINGS, "sqrt", "rsqrt", "copysign")
        ]:
            binary = op in ("math.powf", "math.atan2", "math.copysign")
            lines += [
                f"%v{count} = {op} %{t}0{f', %{t}1' if binary else ''} : {t}",
                f"memref.store %v{count}, %y{t}[%c0] : memref<1x{t}>",
            ]
            count += 1
    arguments = ", ".join(f"%{p}{t}: memref<1x{t}>" for t in types for p in "xzy")
    body = "\n".join(lines)
    return (
        f"func.func @k(%lo: index, %hi: index, {arguments}) {{\n%c0 = arith.constant 0 : index\n{body}\nfunc.return\n}}"
    )


@pytest.mark.parametrize("cpu", CPUS)
def test_no_kernel_needs_a_library(cpu):
    """On any processor, of any float."""
    module = parse_mlir(make_context(), every_op(("f32", "f64", "f16", "bf16")))
    compiled = compile_module(module, machine=machine(cpu, f"{CPUS[cpu][0]}-unknown-linux-gnu"))
    (image,) = compiled.objects
    assert [s.name for s in elf.read_object(image).symbols if s.section == 0 and s.name] == []


QUOTIENTS = """
func.func @f16(%x: memref<64xf16>, %y: memref<64xf32>, %z: memref<64xf16>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %i = cuda.thread_id x
  %a = memref.load %x[%i] : memref<64xf16>
  %b = memref.load %y[%i] : memref<64xf32>
  %w = arith.extf %a : f16 to f32
  %q = arith.divf %w, %b : f32
  %s = arith.truncf %q : f32 to f16
  %e = math.erf %s : f16
  %t = math.tanh %e : f16
  memref.store %t, %z[%i] : memref<64xf16>
  func.return
}
func.func @f32(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %i = cuda.thread_id x
  %a = memref.load %x[%i] : memref<64xf32>
  %b = memref.load %y[%i] : memref<64xf32>
  %q = arith.divf %a, %b : f32
  %e = math.erf %q : f32
  memref.store %e, %z[%i] : memref<64xf32>
  func.return
}
"""


def test_quotients_are_quick_where_their_results_are_rounded():
    """To 16 bits, the error of `div.full` and `div.approx` is nothing; of f32, quotients stay right to the last bit."""
    device = Device(QUOTIENTS)
    short, full = (
        text
        for _, _, text in (part.partition(".entry") for part in re.split(r"(?=\.visible)", device.ptx.text))
        if text
    )
    assert short.lstrip().startswith("f16") and full.lstrip().startswith("f32")
    assert [short.count(f"div.{how}.f32") for how in ("full", "approx", "rn")] == [1, 2, 0]
    assert [full.count(f"div.{how}.f32") for how in ("full", "approx", "rn")] == [0, 0, 2]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(64).astype(np.float16), rng.uniform(0.1, 8, 64).astype(np.float32)
    got = device.run("f16", [1], [64], [x, y], np.zeros(64, np.float16))
    q = (x.astype(np.float64) / y).astype(np.float16).astype(np.float64)
    want = np.tanh(np.array([standard.erf(v) for v in q]).astype(np.float16).astype(np.float64))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=1e-6)
