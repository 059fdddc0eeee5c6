"""Level 4 to LLVM IR text: one text a kernel (named by its content) and one for `@main`.

`emit_module` is the entry. A kernel's text depends on its body and types alone, so equal kernels have equal texts and
are compiled once. Imports xDSL, no LLVM.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from lightnet.backends.llvm import control, index_ops, scalar_ops, tile_ops
from lightnet.backends.llvm.function import Function, flatten
from lightnet.backends.llvm.values import llvm_type
from lightnet.diagnostics import LightNetError
from lightnet.dialects import launch
from lightnet.ir.memory import ARENA, STATIC
from lightnet.runtime.program import ENTRY

HANDLERS = {**scalar_ops.HANDLERS, **index_ops.HANDLERS, **tile_ops.HANDLERS, **control.HANDLERS}

#: The memory spaces that the entry takes a pointer for, in its order.
SPACES = (ARENA, STATIC)
#: Launches in one function of the launch list: code generation is superlinear in the size of a block.
CHUNK = 256


@dataclass(frozen=True)
class Vectors:
    """The target's vectors: `width` lanes of f32 a register, and LLVM's preferred width in bits; whether it has instructions
    between `half` and float."""

    width: int = 16
    half: bool = False

    @property
    def bits(self) -> int:
        return 32 * self.width


@dataclass(frozen=True)
class Emitted:
    """LLVM IR text of a module: `kernels` maps a symbol to (text, runs O2), `symbols` a kernel's name to its symbol."""

    kernels: dict[str, tuple[str, bool]]
    symbols: dict[str, str]
    main: str | None

    @property
    def text(self) -> str:
        """All of it, for people."""
        names = {symbol: name for name, symbol in reversed(self.symbols.items())}
        parts = [f"; @{names[symbol]}\n{text}" for symbol, (text, _) in self.kernels.items()]
        return "\n".join([*parts, self.main or ""])


def emit_module(module: ModuleOp, vectors: Vectors = Vectors()) -> Emitted:
    """Emit every kernel and the launch list. Raises LightNetError for an op or a form that level 4 does not have."""
    functions = launch.kernels(module)
    try:
        launch.verify_launches(module)
    except VerifyException as error:
        raise LightNetError(str(error)) from None
    kernels, symbols = {}, {}
    for name, function in functions.items():
        if function.sym_visibility is not None and function.sym_visibility.data == "private":
            continue
        text, optimize = emit_kernel(function, functions, vectors)
        symbol = symbols[name] = "k" + hashlib.sha256(f"{optimize}{text}".encode()).hexdigest()[:20]
        kernels[symbol] = (text.replace("@kernel(", f"@{symbol}(", 1), optimize)
    lines = launch.launches(module)
    has_main = any(isinstance(op, FuncOp) and op.sym_name.data == "main" for op in module.ops)
    return Emitted(kernels, symbols, emit_main(lines, symbols) if has_main else None)


def emit_kernel(function: FuncOp, functions: dict[str, FuncOp], vectors: Vectors = Vectors()) -> tuple[str, bool]:
    """The text of one kernel, called ``@kernel``, with the private functions it calls; and whether O2 runs on it."""
    mode = function.attributes.get("tile.opt")
    optimize = not (isinstance(mode, StringAttr) and mode.data == "none")
    texts, declared, done = [], set(), set()
    waiting = [(function, "kernel")]
    while waiting:
        current, name = waiting.pop()
        e = Function(vectors.width, tiled=not optimize, handlers=HANDLERS, has_half=vectors.half)
        try:
            texts.append(_function_text(e, current, name, vectors, optimize))
        except LightNetError as error:
            error.notes.append((None, f"while emitting @{current.sym_name.data}"))
            raise
        declared |= e.declared
        for callee in sorted(e.calls - done):
            if callee not in functions:
                raise LightNetError(f"call of an unknown function @{callee}")
            done.add(callee)
            waiting.append((functions[callee], callee))
    return "\n".join([*sorted(declared), *texts, _attributes(vectors, optimize)]), optimize


def _function_text(e: Function, function: FuncOp, name: str, vectors: Vectors, optimize: bool) -> str:
    block = function.body.block
    align = function.attributes.get("tile.align")
    alignment = align.value.data if isinstance(align, IntegerAttr) else 64
    is_kernel = name == "kernel"
    parameters = control.bind_arguments(e, block, alignment if is_kernel else 1, exclusive=is_kernel)
    e.block(block)
    results = function.function_type.outputs.data
    result = llvm_type(results[0]) if results else "void"
    linkage, symbol = ("", name) if is_kernel else ("internal ", control.quoted(name))
    body = "\n".join(line if line.endswith(":") else "  " + line for line in flatten(e.scopes[0].lines, []))
    entry = "".join(f"  {line}\n" for line in e.entry)
    return f"define {linkage}{result} @{symbol}({', '.join(parameters)}) #0 {{\nentry:\n{entry}{body}\n}}"


def _attributes(vectors: Vectors, optimize: bool) -> str:
    """Function attributes. The generic scheduling model keeps accumulators in registers where the host's spills them."""
    tuning = "" if optimize else ' "tune-cpu"="generic" "stackrealign"'
    return f'attributes #0 = {{ nounwind "no-trapping-math"="true" "prefer-vector-width"="{vectors.bits}"{tuning} }}\n'


def emit_main(lines: list[launch.LaunchOp | launch.HostOp], symbols: dict[str, str]) -> str:
    """The launch list as `@ln_main`, in functions of `CHUNK` lines each."""
    declared: dict[str, str] = {}
    chunks, host_calls = [], 0
    signature = "(ptr %arena, ptr %static, ptr %host)"
    for start in range(0, len(lines), CHUNK):
        text = [f"define internal void @main.{len(chunks)}{signature} #0 {{"]
        part = lines[start : start + CHUNK]
        most = max((len(op.args) for op in part if isinstance(op, launch.HostOp)), default=0)
        if most:
            text.append(f"  %args = alloca [{most} x ptr], align 8")
        for n, op in enumerate(part):
            pointers = [_place(text, place, f"%p{n}.{k}") for k, place in enumerate(op.args)]
            if isinstance(op, launch.HostOp):
                _host_call(text, pointers, host_calls, f"%a{n}")
                host_calls += 1
                continue
            symbol = symbols[op.callee.string_value()]
            declared[symbol] = f"declare void @{symbol}(i64, i64{', ptr' * len(pointers)}) #0"
            args = "".join(f", ptr {p}" for p in pointers)
            text.append(f"  call void @{symbol}(i64 0, i64 {op.grid.value.data}{args})")
        chunks.append("\n".join([*text, "  ret void", "}"]))
    calls = "".join(f"  call void @main.{c}(ptr %arena, ptr %static, ptr %host)\n" for c in range(len(chunks)))
    entry = f"define void @{ENTRY}{signature} #0 {{\n{calls}  ret void\n}}"
    return "\n".join([*declared.values(), *chunks, entry, "attributes #0 = { nounwind }\n"])


def _place(text: list[str], place: Operation, name: str) -> str:
    space, offset = place.space.data, place.offset.data
    if space not in SPACES:
        raise LightNetError(f"the CPU has no memory space '{space}'; there are: {', '.join(SPACES)}")
    if not offset:
        return f"%{space}"
    text.append(f"  {name} = getelementptr i8, ptr %{space}, i64 {offset}")
    return name


def _host_call(text: list[str], pointers: list[str], call: int, name: str) -> None:
    for k, pointer in enumerate(pointers):
        slot = "%args"
        if k:
            slot = f"{name}.{k}"
            text.append(f"  {slot} = getelementptr ptr, ptr %args, i64 {k}")
        text.append(f"  store ptr {pointer}, ptr {slot}, align 8")
    text.append(f"  call void %host(i64 {call}, ptr {'%args' if pointers else 'null'})")
