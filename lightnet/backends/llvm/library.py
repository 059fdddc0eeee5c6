"""A network as one LLVM module with a C interface: the kernels, the launch list, and a function that C calls.

    int NAME_run(void *arena, const float *x, ..., float *y, ...);

runs the launch list. It reads inputs and writes outputs where the pointers say if the program has ports for them; the
others, small ones, are copied into the arena and out of it. A network that is compiled for several threads has
``NAME_run_threads``, too, whose first argument says how many (0: as many as there are processors), and
``NAME_scratch_bytes``, what these take beside the arena. What a call decides of sizes are arguments behind the arena
(``int64_t``), and of ``NAME_arena_bytes``; ``NAME_tensor_bytes`` says what inputs and outputs take. All else is
internal to the module. The static tensors are an array `NAME_weights`, which the object file defines
(`runtime.elf.with_data`). Imports llvmlite, the runtime and the code generator.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.binding as llvm

from lightnet.backends.llvm.emitter import Emitted
from lightnet.backends.llvm.jit import CodeMachine, Compiler
from lightnet.backends.llvm.pool import pool_text, scratch_stride
from lightnet.backends.llvm.sizes import SizeTexts
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime import elf
from lightnet.runtime.arrays import ALIGNMENT
from lightnet.runtime.dims import Dim, dim_max
from lightnet.runtime.pool import COUNT_ENTRY, POOL_ENTRY
from lightnet.runtime.program import BODY_ENTRY, FRAME, MAIN_ENTRY, Program, Tensor

#: What `NAME_run` returns.
OK, BAD_ARENA, BAD_TENSOR, BAD_VALUE = 0, 1, 2, 3
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
    functions = ("run", "run_threads", "arena_bytes", "tensor_bytes", "scratch_bytes", "weights")
    exported = {f"{name}_{what}" for what in functions}
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


def is_decided(tensor: Tensor, program: Program) -> bool:
    """Return whether the symbols of the program decide a tensor's size: of what nothing reads, others may."""
    return all(s in program.symbols for d in tensor.dims if isinstance(d, Dim) for s in d.symbols)


def wrapper(name: str, program: Program, static: int, threads: int) -> str:
    """LLVM IR of the functions that C calls, for a program whose launches use so many threads at most."""
    tensors = signature(program)
    symbols = "".join(f", i64 %d{k}" for k in range(len(program.symbols)))
    pointers = symbols + "".join(f", ptr %t{i}" for i in range(len(tensors)))
    declared: dict[str, str] = {}
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
        *_arena_bytes(name, program, symbols[2:], declared),
        *(_tensor_bytes(name, program, symbols, declared) if symbols else ()),
        f"define i32 @{name}_run(ptr %arena{pointers}) #0 {{",
        f"  %status = call i32 @{name}.call(i64 1, ptr %arena{pointers})", "  ret i32 %status", "}",
        *(several if threads > 1 else ()),
        *_call(name, program, f"@{name}_weights" if static else "null", pointers, threads, declared),
        "attributes #0 = { nounwind }",
    ]  # fmt: skip
    return "\n".join([*lines, *(line for line in declared.values() if line not in lines)])


def _sizes(program: Program, declared: dict[str, str]) -> SizeTexts:
    """Sizes of a function that has the values of the symbols as arguments."""
    return SizeTexts(program.symbols, 0, declared, [f"%d{k}" for k in range(len(program.symbols))])


def _checked(program: Program, status: str) -> list[str]:
    """The lines that return `status` for a value that a symbol cannot have."""
    lines, bad = [], "false"
    for k, s in enumerate(program.symbols):
        lines.append(f"  %rest{k} = urem i64 %d{k}, {s.multiple}")
        for j, test in enumerate((f"slt i64 %d{k}, {s.low}", f"sgt i64 %d{k}, {s.high}", f"ne i64 %rest{k}, 0")):
            lines += [f"  %is{k}.{j} = icmp {test}", f"  %bad{k}.{j} = or i1 %is{k}.{j}, {bad}"]
            bad = f"%bad{k}.{j}"
    return [*lines, f"  br i1 {bad}, label %unfit, label %fit", f"unfit:\n  ret {status}", "fit:"] if lines else []


def _arena_bytes(name: str, program: Program, symbols: str, declared: dict[str, str]) -> list[str]:
    """The function of the bytes of the arena; 0 for values that there are not."""
    sizes = _sizes(program, declared)
    found = sizes.of(dim_max(program.memory.get("arena", 0), 1))
    return [
        f"define i64 @{name}_arena_bytes({symbols}) #0 {{",
        *_checked(program, "i64 0"), *sizes.lines, f"  ret i64 {found}\n}}",
    ]  # fmt: skip


def _tensor_bytes(name: str, program: Program, symbols: str, declared: dict[str, str]) -> list[str]:
    """The function of the bytes of a tensor by its number in `signature`, which writes the dims where there is a
    pointer; 0 for a number or values that there are not."""
    sizes, tensors = _sizes(program, declared), signature(program)
    decided = [i for i, t in enumerate(tensors) if is_decided(t, program)]
    found = [(i, sizes.of(tensors[i].nbytes), [sizes.of(d) for d in tensors[i].dims]) for i in decided]
    cases = " ".join(f"i32 {i}, label %tensor{i}" for i in decided)
    lines = [
        f"define i64 @{name}_tensor_bytes(i32 %tensor{symbols}, ptr %dims) #0 {{",
        *_checked(program, "i64 0"), *sizes.lines,
        "  %quiet = icmp eq ptr %dims, null", f"  switch i32 %tensor, label %unfit [ {cases} ]",
    ]  # fmt: skip
    for i, nbytes, dims in found:
        lines += [f"tensor{i}:\n  br i1 %quiet, label %done{i}, label %write{i}", f"write{i}:"]
        for k, dim in enumerate(dims):
            lines += [f"  %at{i}.{k} = getelementptr i64, ptr %dims, i64 {k}", f"  store i64 {dim}, ptr %at{i}.{k}"]
        lines += [f"  br label %done{i}", f"done{i}:\n  ret i64 {nbytes}"]
    return [*lines, "}"]


def _call(name: str, program: Program, static: str, pointers: str, threads: int, declared: dict[str, str]) -> list[str]:
    """The function that checks the pointers, makes the frame, copies, and runs the launch list on so many threads as it
    is told."""
    tensors = signature(program)
    made = len(tensors) - len(program.outputs)
    unread = range(len(program.inputs), made)
    given = {t.space: i for i, t in enumerate(tensors) if i not in unread and program.port_tensors().get(t.space) is t}
    grown = [tuple(map(tensors.index, pair)) for pair in program.caches().values()]
    given |= {tensors[new].space: new for _, new in grown}
    bases = {"arena": "%arena", "static": static, **{space: f"%t{i}" for space, i in given.items()}}
    apart = {*given.values(), *unread, *(old for old, _ in grown)}
    copied = [i for i in range(len(tensors)) if i not in apart and tensors[i].nbytes != 0]
    sizes = _sizes(program, declared)
    spans = {i: (sizes.of(tensors[i].offset), sizes.of(tensors[i].nbytes)) for i in copied}
    lines = [
        f"define internal i32 @{name}.call(i64 %threads, ptr %arena{pointers}) #0 {{",
        f"  %frame = alloca [{len(FRAME) + len(given) + len(program.symbols)} x ptr], align 8",
        *_checked(program, f"i32 {BAD_VALUE}"),
        *sizes.lines,
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
        lines += [f"  %z{i} = icmp eq ptr %t{i}, null", f"  br i1 %z{i}, label %lacking, label %given{i}", f"given{i}:"]
    for old, new in grown:  # one array
        lines += [f"  %y{old} = icmp eq ptr %t{old}, %t{new}", f"  br i1 %y{old}, label %one{old}, label %lacking",
                  f"one{old}:"]  # fmt: skip
    words = {"arena": "%arena", "static": static, "host": "null", **{s: bases[s] for s in program.ports}}
    values = [f"ptr {word}" for word in words.values()] + [f"i64 %d{k}" for k in range(len(program.symbols))]
    for k, value in enumerate(values):
        lines += [f"  %f{k} = getelementptr ptr, ptr %frame, i64 {k}", f"  store {value}, ptr %f{k}, align 8"]
    for i in copied:
        if i < made:
            lines += _copy(i, bases[tensors[i].space], *spans[i], into=True)
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
            lines += _copy(i, bases[tensors[i].space], *spans[i], into=False)
    return [*lines, f"  ret i32 {OK}", "}"]


def _copy(i: int, base: str, offset: str, nbytes: str, into: bool) -> Sequence[str]:
    """Copy tensor `i` from its pointer to its place, or back."""
    place, pointer = f"%p{i}", f"%t{i}"
    target, source = (place, pointer) if into else (pointer, place)
    return [
        f"  {place} = getelementptr i8, ptr {base}, i64 {offset}",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)",
    ]
