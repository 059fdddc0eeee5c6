"""Modules of kernels as PTX: names, equal kernels, what is refused; and that LLVM's fatal errors cannot end the process."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from cuda_device import Device, N, op_kernel, parse

from lightnet.backends.cuda import codegen
from lightnet.backends.cuda.nvptx import emit_llvm, emit_program, emit_ptx
from lightnet.diagnostics import LightNetError

# ---- modules ----------------------------------------------------------------------------------------------------------------------

SCALE = op_kernel("scale", "arith.mulf %a, %a : f32", "f32", "f32", 1)
LAUNCH = (
    "func.func @main() {\n  cuda.launch @%s grid [1, 1, 1] block [%d, 1, 1] [arena+0, arena+256]\n  func.return\n}\n"
)


def test_equal_kernels_are_one_entry():
    twin, other = SCALE.replace("@scale", "@twin"), op_kernel("other.simt", "arith.addf %a, %a : f32", "f32", "f32", 1)
    program = emit_program(parse(SCALE + twin + other + LAUNCH % ("twin", N)))
    assert program.entries == {"scale": "scale", "twin": "scale", "other.simt": "other_simt"}
    assert program.text.count(".entry") == 2
    x = np.arange(N, dtype=np.float32)
    assert (Device(SCALE + twin).run("twin", [1], [N], [x], np.zeros(N, np.float32)) == x * x).all()


def test_entries_have_names_of_their_own():
    """Names that PTX spells alike."""
    kernels = (op_kernel(n, f"arith.{o} %a, %a : f32", "f32", "f32", 1) for n, o in (("a.b", "addf"), ("a_b", "mulf")))
    entries = emit_program(parse("".join(kernels))).entries
    assert sorted(entries.values()) == ["a_b", "a_b_1"]


@pytest.mark.parametrize(
    "name", ["kernel", "self", "add", "shared", "__dynamic_shared", "k_shared0", "ln.sin.f32", "1", "µ"]
)
def test_any_name_will_do(name, tmp_path):
    """Of a kernel, and of a function that it calls."""
    kernel = f"""
func.func private @"{name}"(%i: index, %x: memref<64xf32>, %y: memref<64xf32>) {{
  %a = memref.load %x[%i] : memref<64xf32>
  %s = math.sin %a : f32
  memref.store %s, %y[%i] : memref<64xf32>
  func.return
}}
func.func @k(%x: memref<64xf32>, %y: memref<64xf32>) attributes {{cuda.block = array<i32: 64, 1, 1>}} {{
  %t = cuda.thread_id x
  %s = cuda.shared : memref<20000xf32, 3 : i32>
  func.call @"{name}"(%t, %x, %y) : (index, memref<64xf32>, memref<64xf32>) -> ()
  func.return
}}
"""
    x, zero = np.linspace(-3, 3, N, dtype=np.float32), np.zeros(N, np.float32)
    np.testing.assert_allclose(Device(kernel).run("k", [1], [N], [x], zero), np.sin(x), rtol=1e-6)
    if name != "k":
        text = kernel.replace("@k(", '@"KERNEL"(').replace(f'@"{name}"', "@k").replace("KERNEL", name)
        np.testing.assert_allclose(Device(text).run(name, [1], [N], [x], zero), np.sin(x), rtol=1e-6)


def test_text_is_deterministic():
    text = SCALE + op_kernel("sine", "math.sin %a : f32", "f32", "f32", 1)
    outputs = set()
    for seed in ("1", "2"):
        code = f"import sys; sys.path[:0] = {sys.path!r}; from cuda_device import parse; from lightnet.backends.cuda.nvptx import emit_ptx; "
        done = subprocess.run([sys.executable, "-c", f"{code}print(emit_ptx(parse({text!r})))"], env={"PYTHONHASHSEED": seed},
                              capture_output=True, text=True, check=True)  # fmt: skip
        outputs.add(done.stdout)
    assert outputs == {emit_ptx(parse(text)) + "\n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCALE + LAUNCH % ("scale", 32), "is for blocks of (64, 1, 1) threads, launched with (32, 1, 1)"),
        (SCALE + LAUNCH % ("gone", N), "cuda.launch of @gone, which is no kernel of the module"),
        (SCALE + (LAUNCH % ("scale", N)).replace("[arena+0, arena+256]", "[arena+0]"), "@scale takes 2 memrefs, launched with 1 places"),
        (SCALE + (LAUNCH % ("scale", N)).replace(" [arena", " shared 64 [arena"), "takes 0 bytes of dynamic shared memory"),
        (SCALE.replace("array<i32: 64, 1, 1>", "array<i32: 64, 32, 1>"), "and 1024 together; got (64, 32, 1)"),
        ("func.func @k(%n: index) attributes {cuda.block = array<i32: 32, 1, 1>} {\n  func.return\n}", "the arguments of a kernel are memrefs"),
        ("func.func @k() -> index attributes {cuda.block = array<i32: 32, 1, 1>} {\n  %c = arith.constant 1 : index\n  func.return %c : index\n}",
         "a kernel returns nothing"),
        ("func.func @k() attributes {cuda.block = array<i32: 32, 1, 1>} {\n  func.call @k() : () -> ()\n  func.return\n}",
         "@k calls itself"),
        ("func.func private @f() {\n  func.call @f() : () -> ()\n  func.return\n}\nfunc.func @k() attributes {cuda.block = array<i32: 32, 1, 1>} {\n"
         "  func.call @f() : () -> ()\n  func.return\n}", "@f calls itself"),
        (SCALE.replace("arith.mulf %a, %a : f32", "arith.addf %a, %a : f32") + SCALE.replace("@scale", "@caller").replace(
            "%r = arith.mulf %a, %a : f32", "func.call @scale(%am, %y) : (memref<64xf32>, memref<64xf32>) -> ()\n  %r = arith.mulf %a, %a : f32"),
         "@scale is a kernel, and cannot be called"),
    ],
)  # fmt: skip
def test_refused(text, message):
    with pytest.raises(LightNetError) as error:
        emit_ptx(parse(text))
    assert message in str(error.value)


def test_a_refusal_says_in_which_functions():
    """The innermost first: that which has what is refused, its callers, the kernel."""
    bodies = {"f": "func.call @g() : () -> ()", "g": "%a = arith.constant 1.0 : f128"}
    text = "".join(f"func.func private @{name}() {{\n  {line}\n  func.return\n}}\n" for name, line in bodies.items())
    text += (
        "func.func @k() attributes {cuda.block = array<i32: 32, 1, 1>} {\n  func.call @f() : () -> ()\n  func.return\n}"
    )
    with pytest.raises(LightNetError, match="no machine type for f128") as error:
        emit_ptx(parse(text))
    assert [note for _, note in error.value.notes] == [f"while emitting @{name}" for name in ("g", "f", "k")]


def shared_kernel(size: int) -> str:
    return f"""
func.func @k(%x: memref<64xf32>) attributes {{cuda.block = array<i32: 64, 1, 1>}} {{
  %s = cuda.shared : memref<{size}xi8, 3 : i32>
  func.return
}}
"""


def test_shared_memory_of_an_architecture():
    """163 KiB on sm_80, 227 on sm_90."""
    module = parse(shared_kernel(200 << 10))
    with pytest.raises(LightNetError, match="204800 bytes of shared memory, and a block of sm_80 has 166912"):
        emit_ptx(module)
    assert ".entry k" in emit_ptx(module, "sm_90")


@pytest.mark.parametrize(
    ("arch", "version", "message"),
    [
        ("sm_70", 80, "unknown architecture"),
        ("sm_80", 91, "no version 91 of PTX"),
        ("sm_90a", 78, "no version 78 of PTX for sm_90a"),
    ],
)
def test_unknown_versions(arch, version, message):
    """LLVM would end the process, or take another version."""
    with pytest.raises(LightNetError, match=message):
        emit_ptx(parse(SCALE), arch, version)
    with pytest.raises(LightNetError, match=message):
        codegen.ptx("", arch, version)


# ---- LLVM's fatal errors -----------------------------------------------------------------------------------------------------------


def test_a_library_function_is_an_error():
    """LLVM cannot select it, and would end the process."""
    text = "declare float @llvm.log.f32(float)\ndefine ptx_kernel void @k(ptr addrspace(1) %p) {\n  %x = load float, ptr addrspace(1) %p\n" \
        "  %y = call float @llvm.log.f32(float %x)\n  store float %y, ptr addrspace(1) %p\n  ret void\n}"  # fmt: skip
    with pytest.raises(LightNetError, match=r"the GPU has no function @llvm\.log\.f32"):
        codegen.ptx(text, "sm_80", 80)


def test_what_llvm_makes_itself_is_looked_at_too(monkeypatch):
    """Where optimising makes an intrinsic that is not known, the text is compiled as it is."""
    monkeypatch.setattr(codegen.apart, "is_due", lambda: False)  # in this process, where the table is another
    text = op_kernel("flip", "arith.maximumf %a, %b : f16", "f16", "f16", 2)
    llvm_ir, _ = emit_llvm(parse(text))
    assert "llvm.maximum.f16" not in llvm_ir
    codegen.ptx.cache_clear()
    assert "max.NaN.f16" in codegen.ptx(llvm_ir, "sm_80", 80)
    codegen.ptx.cache_clear()
    monkeypatch.setattr(codegen, "ALLOWED", codegen.ALLOWED - {"llvm.maximum.f16"})
    assert "max.NaN.f32" in codegen.ptx(llvm_ir, "sm_80", 80)
    codegen.ptx.cache_clear()


_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
_GLOBAL, _SHARED = "ptr addrspace(1)", "ptr addrspace(3)"


def signature(symbol: str) -> tuple[str, list[str]]:
    """The result's type and the operands of an intrinsic of `codegen.ALLOWED`: types, or types with a constant."""
    family, _, last = symbol.removeprefix("llvm.").rpartition(".")
    t = _LLVM.get(last, last)
    if symbol in codegen.MEMORY:
        spaces = ["ptr" if p == "p0" else f"ptr addrspace({p[1]})" for p in symbol.split(".")[2:-1]]
        return "void", [*spaces, *(["i8"] if len(spaces) == 1 else []), "i64", "i1 false"]
    if symbol in codegen.SILENT:
        names = {"llvm.assume": ["i1"], "llvm.experimental.noalias.scope.decl": ["metadata !{!0}"]}
        return "void", names.get(symbol, ["ptr %own"])
    if symbol.startswith("llvm.nvvm."):
        return nvvm_signature(symbol)
    if family == "is.fpclass":
        return "i1", [t, "i32 504"]
    if family.endswith("with.overflow"):
        return f"{{ {t}, i1 }}", [t, t]
    if family[1:4] == "cmp":
        return family.rpartition(".")[2], [t, t]
    one = ("ceil", "fabs", "floor", "rint", "round", "roundeven", "sqrt", "trunc", "bitreverse", "ctpop", "bswap")
    if family in ("abs", "ctlz", "cttz"):
        return t, [t, "i1 false"]
    return t, [t] * (3 if family in ("fma", "fmuladd", "fshl", "fshr") else 1 if family in one else 2)


def nvvm_signature(symbol: str) -> tuple[str, list[str]]:
    name = symbol.removeprefix("llvm.nvvm.")
    if name.startswith("read."):
        return "i32", []
    if name.startswith("shfl"):
        t = "float" if name.endswith("f32") else "i32"
        return t, ["i32", t, "i32", "i32 31"]
    if name.startswith("cp.async.c") and "shared" in name:
        return "void", [_SHARED, _GLOBAL, *(["i32"] if name.endswith(".s") else [])]
    if name.startswith("ldmatrix"):
        count = int(name.split(".x")[1][0])
        return ("i32" if count == 1 else f"{{ {', '.join(['i32'] * count)} }}"), [_SHARED]
    if name.startswith("mma"):
        return "{ float, float, float, float }", ["<2 x half>" if name.endswith("f32.f32") else "i32"] * 6 + [
            "float"
        ] * 4
    simple = {
        "div.full": ("float", ["float", "float"]),
        "f2tf32.rna": ("i32", ["float"]),
        "cp.async.commit.group": ("void", []),
    }
    return simple.get(name, ("void", ["i32 0"]))


def use(symbol: str) -> str:
    """A kernel that calls an intrinsic on what it loads, and stores what it gets."""
    result, operands = signature(symbol)
    lines, given = ["  %own = alloca [64 x i8]", "  %l = addrspacecast ptr %own to ptr addrspace(5)"], []
    for k, operand in enumerate(operands):
        type, _, constant = operand.partition(" ") if not operand.startswith(("ptr a", "<")) else (operand, "", "")
        pointers = {"ptr": "%g", _GLOBAL: "%p", _SHARED: "@s", "ptr addrspace(5)": "%l"}
        if constant or operand in pointers:
            given.append(f"{type} {constant or pointers[operand]}")
        else:
            lines += [f"  %q{k} = getelementptr i64, {_GLOBAL} %p, i64 {k}", f"  %a{k} = load {type}, {_GLOBAL} %q{k}"]
            given.append(f"{type} %a{k}")
    call = f"call {result} @{symbol}({', '.join(given)})"
    lines.append(f"  {call}" if result == "void" else f"  %r = {call}\n  store {result} %r, {_GLOBAL} %p")
    types = ", ".join(g.split(" !")[0].rpartition(" ")[0] if "!" not in g else "metadata" for g in given)
    return "\n".join(["@s = internal addrspace(3) global [1024 x i8] undef, align 16", f"declare {result} @{symbol}({types})",
                      f"define ptx_kernel void @k({_GLOBAL} %p, ptr %g) {{", *lines, "  ret void", "}", '!0 = !{!0, !1}', '!1 = !{!1}'])  # fmt: skip


CHILD = """
import json
import sys
from lightnet.backends.cuda import codegen
for name, text in json.load(sys.stdin).items():
    print(name, flush=True)
    assert ".entry" in codegen.ptx(text, sys.argv[1], 80)
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_allowed_intrinsic_can_be_selected(arch):
    """Each alone, in a child process, which LLVM may end."""
    texts = {symbol: use(symbol) for symbol in sorted(codegen.ALLOWED)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, arch], input=json.dumps(texts), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
    assert done.stdout.split() == sorted(texts)
