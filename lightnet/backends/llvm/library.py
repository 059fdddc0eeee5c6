"""A network as one LLVM module with a C interface: the kernels, the launch list, and a function that C calls.

    int NAME_run(void *arena, const float *x, ..., float *y, ...);

runs the launch list. It reads inputs and writes outputs where the pointers say if the program has ports for them; the
others, small ones, are copied into the arena and out of it. A network that is compiled for several threads has
``NAME_run_threads``, too, whose first argument says how many (0: as many as there are processors), and
``NAME_scratch_bytes``, what these take beside the arena. All else is internal to the module. The static tensors are an
array `NAME_weights`, which the object file defines (`runtime.elf.with_data`). Imports llvmlite, the runtime and the
code generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm

from lightnet.backends.llvm.emitter import Emitted
from lightnet.backends.llvm.jit import CodeMachine, Compiler
from lightnet.backends.llvm.pool import pool_text, scratch_stride
from lightnet.diagnostics import LightNetError
from lightnet.runtime import elf
from lightnet.runtime.arrays import ALIGNMENT
from lightnet.runtime.pool import COUNT_ENTRY, POOL_ENTRY
from lightnet.runtime.program import BODY_ENTRY, FRAME, MAIN_ENTRY, Program, Tensor

#: What `NAME_run` returns.
OK, BAD_ARENA, BAD_TENSOR = 0, 1, 2
#: The code reaches its constants within 2 GiB of itself.
LARGEST_STATIC = (1 << 31) - (1 << 26)


@dataclass(frozen=True)
class Library:
    """The module of a network for C, under the prefix `name` of its symbols; `static` is the size of its table of
    weights, `threads` how many it can use."""

    name: str
    module: llvm.ModuleRef
    compiler: Compiler
    static: int
    threads: int

    @property
    def weights(self) -> str:
        """The symbol of the table of weights."""
        return f"{self.name}_weights"

    def llvm_ir(self) -> str:
        """The module as text."""
        return str(self.module)

    def assembly(self, weights_file: str) -> str:
        """Assembly text, which takes the weights from `weights_file` when it is assembled."""
        text = self.compiler.target.emit_assembly(self.module)
        if not self.static:
            return text
        quoted = weights_file.replace("\\", "\\\\").replace('"', '\\"')
        lines = (
            f"\t.section\t.rodata.{self.weights},\"a\"", f"\t.balign\t{ALIGNMENT}", f"\t.hidden\t{self.weights}",
            f"\t.globl\t{self.weights}", f"{self.weights}:", f'\t.incbin\t"{quoted}"',
            f"\t.size\t{self.weights}, {self.static}",
        )  # fmt: skip
        return "\n".join([text, *lines, ""])

    def object(self) -> tuple[bytes, bytes]:
        """A relocatable object, in two parts: the weights stand between them."""
        image = self.compiler.emit(self.module)
        if not self.static:
            return image, b""
        return elf.with_data(image, self.weights, self.static, ALIGNMENT)


def library(name: str, emitted: Emitted, program: Program, machine: CodeMachine) -> Library:
    """The module for a program that `emitted` has the code of. Raises LightNetError for what C has no place for:
    run-time calls (print), and plans of upstream's kind, which keep params in the arena; and systems whose objects are
    not ELF files."""
    if program.hosts:
        kinds = ", ".join(sorted({call.kind for call in program.hosts}))
        raise LightNetError(f"the network has run-time calls ({kinds}), for which C code has no place: take these ops "
                            "out of it, or "
                            "compile it to .lnx")  # fmt: skip
    if program.residents or program.restore or program.overwritten:
        raise LightNetError("a plan of upstream's kind keeps params in the arena: C code needs --plan=default")
    assert emitted.main is not None
    static = program.memory.get("static", 0)
    if static > LARGEST_STATIC:
        raise LightNetError(
            f"the weights of {static} bytes are too many for an object file, of which {LARGEST_STATIC} is the most"
        )
    compiler, context = Compiler(machine), llvm.create_context()
    if not elf.is_elf(compiler.emit(compiler.module(""))):
        raise LightNetError(
            f"code for C is made for systems with ELF objects (Linux, BSD), and not for {compiler.target.triple}"
        )
    module = compiler.module(wrapper(name, program, static, emitted.threads), context=context)
    link_in(module, emitted, compiler, context)
    exported = {f"{name}_{what}" for what in ("run", "run_threads", "arena_bytes", "scratch_bytes", "weights")}
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in exported:
            value.linkage = llvm.Linkage.internal
    module.verify()
    return Library(name, module, compiler, static, emitted.threads)


def link_in(module: llvm.ModuleRef, emitted: Emitted, compiler: Compiler, context: llvm.ContextRef) -> llvm.ModuleRef:
    """Add to a module all that was emitted, optimised as each part asks for, and what its threads need; the module."""
    for text, optimize in emitted.kernels.values():
        module.link_in(compiler.module(text, optimize, context=context))
    if emitted.threads > 1:
        module.link_in(compiler.module(pool_text(compiler.target.triple), context=context))
    if emitted.main is not None:
        main = compiler.module(emitted.main, context=context)
        for function in main.functions:
            if not function.is_declaration:  # it is long and runs once: fast code generation
                function.add_function_attribute("noinline")
                function.add_function_attribute("optnone")
        module.link_in(main)
    return module


def signature(program: Program) -> list[Tensor]:
    """The tensors that `NAME_run` takes pointers for: the inputs, those too that nothing reads, then the outputs."""
    return [*program.inputs, *program.unread, *program.outputs]


def wrapper(name: str, program: Program, static: int, threads: int = 1) -> str:
    """LLVM IR of the functions that C calls, for a program whose launches use so many threads at most."""
    tensors = signature(program)
    pointers = "".join(f", ptr %t{i}" for i in range(len(tensors)))
    several = [
        f"declare void @{BODY_ENTRY}(ptr, i64, i64, ptr, ptr)", f"declare void @{POOL_ENTRY}(ptr, ptr, i64, i64)",
        f"declare i64 @{COUNT_ENTRY}()",
        f"define i32 @{name}_run_threads(i32 %threads, ptr %arena{pointers}) #0 {{",
        "entry:", "  %said = sext i32 %threads to i64", "  %open = icmp eq i32 %threads, 0",
        "  br i1 %open, label %ask, label %go",
        f"ask:\n  %there = call i64 @{COUNT_ENTRY}()", "  %found = call i64 @llvm.umin.i64(i64 %there, i64 2147483647)",
        "  br label %go",
        "go:\n  %wanted = phi i64 [ %said, %entry ], [ %found, %ask ]",
        f"  %count = call i64 @llvm.smin.i64(i64 %wanted, i64 {threads})",
        f"  %status = call i32 @{name}.call(i64 %count, ptr %arena{pointers})", "  ret i32 %status", "}",
        f"define i64 @{name}_scratch_bytes(i32 %threads) #0 {{",
        f"  %few = call i32 @llvm.smin.i32(i32 %threads, i32 {threads})",
        "  %one = call i32 @llvm.smax.i32(i32 %few, i32 1)",
        "  %others = sub i32 %one, 1", "  %wide = zext i32 %others to i64",
        f"  %bytes = mul i64 %wide, {scratch_stride(program.scratch)}", "  ret i64 %bytes", "}",
        "declare i32 @llvm.smin.i32(i32, i32)", "declare i32 @llvm.smax.i32(i32, i32)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.umin.i64(i64, i64)",
    ]  # fmt: skip
    lines = [
        f"@{name}_weights = external hidden constant [{static} x i8], align {ALIGNMENT}" if static else "",
        f"declare void @{MAIN_ENTRY}(ptr)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 "
        "immarg)",
        f"define i64 @{name}_arena_bytes() #0 {{\n  ret i64 {max(program.memory.get('arena', 0), 1)}\n}}",
        f"define i32 @{name}_run(ptr %arena{pointers}) #0 {{",
        f"  %status = call i32 @{name}.call(i64 1, ptr %arena{pointers})", "  ret i32 %status", "}",
        *(several if threads > 1 else ()),
        *_call(name, program, f"@{name}_weights" if static else "null", pointers, threads),
        "attributes #0 = { nounwind }",
    ]  # fmt: skip
    return "\n".join(lines)


def _call(name: str, program: Program, static: str, pointers: str, threads: int) -> list[str]:
    """The function that checks the pointers, makes the frame, copies, and runs the launch list on so many threads as it
    is told."""
    tensors = signature(program)
    made = len(tensors) - len(program.outputs)
    unread = range(len(program.inputs), made)
    given = {t.space: i for i, t in enumerate(tensors) if i not in unread and program.port_tensors().get(t.space) is t}
    bases = {"arena": "%arena", "static": static, **{space: f"%t{i}" for space, i in given.items()}}
    copied = [i for i in range(len(tensors)) if i not in given.values() and i not in unread and tensors[i].nbytes]
    lines = [
        f"define internal i32 @{name}.call(i64 %threads, ptr %arena{pointers}) #0 {{",
        f"  %frame = alloca [{len(FRAME) + len(given)} x ptr], align 8",
        "  %address = ptrtoint ptr %arena to i64",
        f"  %rest = and i64 %address, {ALIGNMENT - 1}",
        "  %odd = icmp ne i64 %rest, 0",
        "  %none = icmp eq ptr %arena, null",
        "  %bad = or i1 %odd, %none",
        "  br i1 %bad, label %refuse, label %check",
        f"refuse:\n  ret i32 {BAD_ARENA}",
        f"lacking:\n  ret i32 {BAD_TENSOR}",
        "check:",
    ]
    for i in sorted([*copied, *given.values()]):
        lines += [f"  %n{i} = icmp eq ptr %t{i}, null", f"  br i1 %n{i}, label %lacking, label %given{i}", f"given{i}:"]
    words = {"arena": "%arena", "static": static, "host": "null", **{s: bases[s] for s in program.ports}}
    for k, word in enumerate(words.values()):
        lines += [f"  %f{k} = getelementptr ptr, ptr %frame, i64 {k}", f"  store ptr {word}, ptr %f{k}, align 8"]
    for i in copied:
        if i < made:
            lines += _copy(i, tensors[i], bases[tensors[i].space], into=True)
    if threads > 1:
        lines += [
            "  %alone = icmp sle i64 %threads, 1", "  br i1 %alone, label %one, label %several",
            f"several:\n  call void @{POOL_ENTRY}(ptr @{BODY_ENTRY}, ptr %frame, i64 %threads, i64 {program.scratch})",
            "  br label %done",
            "one:",
        ]  # fmt: skip
    lines += [f"  call void @{MAIN_ENTRY}(ptr %frame)", "  br label %done", "done:"]
    for i in copied:
        if i >= made:
            lines += _copy(i, tensors[i], bases[tensors[i].space], into=False)
    return [*lines, f"  ret i32 {OK}", "}"]


def _copy(i: int, tensor: Tensor, base: str, into: bool) -> Sequence[str]:
    """Copy tensor `i` from its pointer to its place, or back."""
    place, pointer = f"%p{i}", f"%t{i}"
    target, source = (place, pointer) if into else (pointer, place)
    return [
        f"  {place} = getelementptr i8, ptr {base}, i64 {tensor.offset}",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {tensor.nbytes}, i1 false)",
    ]
