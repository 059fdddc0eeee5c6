"""What the LLVM back end refuses, and texts of LLVM IR that no run shows: level 4 as text in, a message or instructions out."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from level4_runner import parse
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from lightnet.backends.llvm import unlocked
from lightnet.backends.llvm.emitter import emit_module
from lightnet.backends.llvm.jit import CodeMachine
from lightnet.backends.llvm.machines import machine, variants
from lightnet.backends.llvm.values import leaf_lanes
from lightnet.diagnostics import LightNetError
from lightnet.dialects import launch
from lightnet.ir.context import make_context


def kernel(body: str, arguments: str = "", others: str = "") -> ModuleOp:
    """A kernel as it is written, verified or not: the emitter says itself what it does not have."""
    text = f"func.func @k(%lo: index, %hi: index{arguments}) {{\n{body}\nfunc.return\n}}\n{others}"
    return Parser(make_context(), text).parse_module()


X, V = ", %x: memref<4xf32>", ", %x: memref<4x8xf32>"
LOAD = "%c0 = arith.constant 0 : index\n%v = tile.load %x[%c0, %c0] dims [0, 1] : memref<4x8xf32>, vector<4x8xf32>\n"
#: What stands in a kernel, its arguments and other functions, and what is said of it.
REFUSED = {
    "memref.alloca: only static shapes are supported, got memref<4xf32, strided<[2]>>":
        ("%y = memref.alloca() : memref<4xf32, strided<[2]>>",),
    "memref.alloca: 262148 bytes of stack, at most 262144; use the workspace":
        ("%y = memref.alloca() : memref<65536xf32>\n%z = memref.alloca() : memref<1xi32>",),
    "memref.view: only static shapes are supported, got memref<2xf32, strided<[2]>>":
        ("%c0 = arith.constant 0 : index\n%y = memref.view %x[%c0][] : memref<64xi8> to memref<2xf32, strided<[2]>>", ", %x: memref<64xi8>"),
    "level 4 needs the identity layout, and a shape of which only the first extent may be open, got memref<4x?xf32>":
        ("", ", %x: memref<4x?xf32>"),
    "level 4 has no machine type for f128": ("%a = arith.constant 1.0 : f128",),
    "vector.broadcast: vector<4x8xf32> does not extend to vector<8xf32>":
        (LOAD + "%b = vector.broadcast %v : vector<4x8xf32> to vector<8xf32>", V),
    "vector.broadcast: vector<4x8xf32> does not extend to vector<2x4x16xf32>":
        (LOAD + "%b = vector.broadcast %v : vector<4x8xf32> to vector<2x4x16xf32>", V),
    "vector.extract: only static positions are supported at level 4":
        (LOAD + "%b = vector.extract %v[%c0] : vector<8xf32> from vector<4x8xf32>", V),
    "vector.extract: position [4] is outside (4, 8)":
        (LOAD + "%b = vector.extract %v[4] : vector<8xf32> from vector<4x8xf32>", V),
    "vector.shuffle: only vectors of one dimension are shuffled, got vector<4x8xf32>":
        (LOAD + "%b = vector.shuffle %v, %v [0, 1] : vector<4x8xf32>, vector<4x8xf32>", V),
    "scf.for: only index bounds are supported at level 4":
        ("%a = arith.constant 0 : i32\nscf.for %i = %a to %a step %a : i32 {\n}",),
    "a memref cannot be carried through control flow":
        ("%one = arith.constant 1 : index\n%y = scf.for %i = %lo to %hi step %one iter_args(%m = %x) -> (memref<4xf32>) {\n"
         "scf.yield %m : memref<4xf32>\n}", X),
    "a call of @f with several results is not supported":
        ("%a, %b = func.call @f() : () -> (i32, i32)", "",
         "func.func private @f() -> (i32, i32) {\n%a = arith.constant 1 : i32\nfunc.return %a, %a : i32, i32\n}"),
    "a function with several results is not supported":
        ("func.call @f() : () -> ()", "", "func.func private @f() {\n%a = arith.constant 1 : i32\nfunc.return %a, %a : i32, i32\n}"),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_it_does_not_have_is_refused(message: str) -> None:
    with pytest.raises(LightNetError) as error:
        emit_module(kernel(*REFUSED[message]))
    assert error.value.message == message and error.value.notes[-1][1].startswith("while emitting @")


def test_calls_of_functions_that_are_not_there_are_refused() -> None:
    with pytest.raises(LightNetError, match="call of an unknown function @nobody"):
        emit_module(kernel("func.call @nobody() : () -> ()"))


def test_a_call_that_gives_a_memref_is_refused() -> None:
    text = "%y = func.call @f(%x) : (memref<4xf32>) -> (memref<4xf32>)"
    with pytest.raises(LightNetError, match="a memref cannot be carried through control flow"):
        emit_module(
            kernel(
                text, X, "func.func private @f(%x: memref<4xf32>) -> memref<4xf32> {\nfunc.return %x : memref<4xf32>\n}"
            )
        )


def test_all_of_the_stack_may_be_used() -> None:
    assert "alloca [65536 x float], align 64" in emit_module(kernel("%y = memref.alloca() : memref<65536xf32>")).text


def test_a_loop_without_a_known_step_has_a_guard() -> None:
    """Where the step is no positive constant, how often it runs is not known, though its bounds are."""
    for step, guarded in (("1", False), ("0", True), ("-1", True)):
        body = f"%a = arith.constant 0 : index\n%b = arith.constant 3 : index\n%s = arith.constant {step} : index\n"
        text = emit_module(
            kernel(body + "scf.for %i = %a to %b step %s {\n%c = memref.load %x[%i] : memref<4xf32>\n}", X)
        ).text
        assert ("icmp slt i64 0, 3" in text) is guarded


def test_shuffles_leave_open_what_is_not_wanted() -> None:
    body = LOAD + (
        "%a = vector.extract %v[0] : vector<8xf32> from vector<4x8xf32>\n%b = vector.extract %v[1] : vector<8xf32> from vector<4x8xf32>\n"
        "%s = vector.shuffle %a, %b [0, -1, 9, 3] : vector<8xf32>, vector<8xf32>\n"
        "%p = tile.load %x[%c0, %c0] dims [1] : memref<4x8xf32>, vector<1xf32>\n"
        "%q = vector.shuffle %p, %p [-1, 1] : vector<1xf32>, vector<1xf32>\n"
        "tile.store %s, %x[%c0, %c0] dims [1] : vector<4xf32>, memref<4x8xf32>\n"
        "tile.store %q, %x[%c0, %c0] dims [1] : vector<2xf32>, memref<4x8xf32>"
    )
    text = emit_module(kernel(body, V)).text
    assert "<4 x i32> <i32 0, i32 poison, i32 9, i32 3>" in text
    assert re.search(r"insertelement <2 x float> poison, float poison, i64 0", text)


def test_copies_between_spaces_are_made_by_the_first_thread() -> None:
    """`tile.copy` from the first place to the second, beside a launch."""
    module = parse("func.func @main() {\ntile.copy 48 [static+16, arena+64]\nfunc.return\n}")
    assert isinstance(next(iter(launch.lines_of(module))), launch.CopyOp)
    main = emit_module(module).main
    assert (
        "%p0.0 = getelementptr i8, ptr %static, i64 16" in main
        and "%p0.1 = getelementptr i8, ptr %arena, i64 64" in main
    )
    assert "call void @llvm.memcpy.p0.p0.i64(ptr %p0.1, ptr %p0.0, i64 48, i1 false)" in main


def test_lanes_of_a_leaf() -> None:
    """All of a short row; of a long one a power of two, or a divisor that is more than twice as long."""
    rows = {
        (): 1,
        (0,): 1,
        (1,): 1,
        (5,): 5,
        (16,): 16,
        (17,): 1,
        (20,): 10,
        (24,): 8,
        (26,): 13,
        (48,): 16,
        (3, 22): 11,
    }
    assert {shape: leaf_lanes(shape, 16) for shape in rows} == rows


#: Ops that become one instruction or call of an intrinsic, which has their fast-math flags.
FLAGGED = {
    "arith.addf": "fadd", "arith.subf": "fsub", "arith.mulf": "fmul", "arith.divf": "fdiv",
    "arith.maxnumf": "@llvm.maxnum", "arith.minnumf": "@llvm.minnum", "math.absf": "@llvm.fabs",
    "math.sqrt": "@llvm.sqrt", "math.copysign": "@llvm.copysign", "math.floor": "@llvm.floor", "math.ceil": "@llvm.ceil",
    "math.trunc": "@llvm.trunc", "math.round": "@llvm.round", "math.roundeven": "@llvm.roundeven",
}  # fmt: skip
BINARY = {name for name in FLAGGED if name.startswith("arith.")} | {"math.copysign"}


@pytest.mark.parametrize("type", ["f32", "f64", "vector<8xf32>"])
@pytest.mark.parametrize(("given", "flags"), [
    ("", ["contract"]), ("fastmath<nnan>", ["nnan", "contract"]),
    ("fastmath<nsz,nnan,arcp>", ["nnan", "nsz", "arcp", "contract"]),
])  # fmt: skip
def test_instructions_have_the_flags_of_their_op(type: str, given: str, flags: list[str]) -> None:
    element = type.removeprefix("vector<8x").removesuffix(">")
    name, lines = f"memref<16x{element}>", ["%c0 = arith.constant 0 : index"]
    load, store = ("tile.load", "tile.store") if type != element else ("memref.load", "memref.store")
    dims, types = (" dims [0]", f"{name}, {type}") if type != element else ("", name)
    lines += [f"%a = {load} %x[%c0]{dims} : {types}", f"%b = {load} %y[%c0]{dims} : {types}"]
    for k, op in enumerate(FLAGGED):
        lines.append(f"%r{k} = {op} %a{', %b' if op in BINARY else ''} {given} : {type}")
        lines.append(f"{store} %r{k}, %z{k}[%c0]{dims} : {f'{type}, {name}' if type != element else name}")
    arguments = ", ".join(f"%{v}: {name}" for v in ("x", "y", *(f"z{k}" for k in range(len(FLAGGED)))))
    text = emit_module(kernel("\n".join(lines), f", {arguments}")).text
    for op, instruction in FLAGGED.items():
        kind, callee = ("call", rf">? {instruction}\b") if instruction.startswith("@") else (instruction, "")
        found = re.findall(rf"= {kind} ([a-z ]*)(?:<8 x )?(?:float|double){callee}", text)
        assert [one.split() for one in found] == [flags], op


# -- processors


@pytest.mark.parametrize("rest, is_short", [("x" * 93, True), ("x" * 94, False), ("a\nb", False)])
def test_triples_are_short_names(rest: str, is_short: bool) -> None:
    triple = f"x86_64-{rest}"
    if is_short:
        assert machine("avx2", triple) == CodeMachine("x86-64-v3", "", triple)
    else:
        with pytest.raises(LightNetError, match="a target triple is a short name such as aarch64-unknown-linux-gnu"):
            machine("avx2", triple)


@pytest.mark.parametrize("names, message", [
    (" , ", "--variants names no processor"), ("avx2,baseline,avx2", "--variants names 'avx2' twice"),
])  # fmt: skip
def test_variants_are_checked(names: str, message: str) -> None:
    with pytest.raises(LightNetError, match=message):
        variants(names)


# -- LLVM by way of llvmlite


def test_code_is_the_same_with_and_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where llvmlite does not tell its library, its own calls give the same optimized module, assembly and object."""

    def made() -> tuple[str, bytes, bytes]:
        target = CodeMachine.host().target_machine()
        module = llvm.parse_assembly(
            "define i32 @f(i32 %x) {\n%a = alloca i32\nstore i32 %x, ptr %a\n%b = load i32, ptr %a\nret i32 %b\n}"
        )
        builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options())
        unlocked.run_passes(builder.getModulePassManager(), module, builder)
        return str(module), *(unlocked.emit_code(target, module, kind) for kind in (unlocked.ASSEMBLY, unlocked.OBJECT))

    parallel, wanted = unlocked.is_parallel(), made()
    monkeypatch.setattr(unlocked, "_library", lambda: None)
    assert not unlocked.is_parallel() and made() == wanted
    assert parallel and "alloca" not in wanted[0] and b"ret" in wanted[1] and wanted[2][:4] != wanted[1][:4]
