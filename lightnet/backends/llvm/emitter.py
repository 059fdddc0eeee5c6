"""Level 4 to LLVM IR text: one text a kernel (named by its content) and one for `@main`.

`emit_module` is the entry. A kernel's text depends on its body and types alone, so equal kernels have equal texts and
are compiled once. Imports xDSL, no LLVM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import VerifyException

from lightnet.backends.elementary.table import is_function
from lightnet.backends.llvm import control, index_ops, memory_ops, scalar_ops, shuffle_ops, slice_ops, vector_ops
from lightnet.backends.llvm.function import FunctionEmitter, flatten
from lightnet.backends.llvm.launch_list import emit_main, thread_scratch_of
from lightnet.backends.llvm.short_floats import bfloats_as_bits
from lightnet.backends.llvm.values import Dots, llvm_type
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects import launch
from lightnet.ir import budget

HANDLERS = {
    **scalar_ops.HANDLERS,
    **index_ops.HANDLERS,
    **memory_ops.HANDLERS,
    **slice_ops.HANDLERS,
    **vector_ops.HANDLERS,
    **shuffle_ops.HANDLERS,
    **control.HANDLERS,
}


@dataclass(frozen=True)
class TargetVectors:
    """The target's vectors: `width` lanes of f32 a register, and LLVM's preferred width in bits; whether it has
    instructions between `half` and float, multiplies and adds in one step (`fma`), has `rounding` to whole
    numbers, and which sums of products (`dots`)."""

    width: int = 16
    half: bool = False
    fma: bool = True
    rounding: bool = True
    dots: Dots = Dots()

    @property
    def bits(self) -> int:
        return 32 * self.width


@dataclass(frozen=True)
class Emitted:
    """LLVM IR text of a module: `kernels` maps a symbol to (text, runs O2), `symbols` a kernel's name to its symbol;
    `threads` is how many any launch makes use of, `scratch` how many bytes each of these but the first needs
    (`launch_list.thread_scratch_of`)."""

    kernels: dict[str, tuple[str, bool]]
    symbols: dict[str, str]
    main: str | None
    threads: int
    scratch: int

    @property
    def text(self) -> str:
        """All of it, for people."""
        names = {symbol: name for name, symbol in reversed(self.symbols.items())}
        parts = [f"; @{names[symbol]}\n{text}" for symbol, (text, _) in self.kernels.items()]
        return "\n".join([*parts, self.main or ""])


def emit_module(
    module: ModuleOp,
    vectors: TargetVectors = TargetVectors(),
    on_kernel: Callable[[str, str, bool], None] | None = None,
) -> Emitted:
    """Emit every kernel and the launch list. `on_kernel` is told of each kernel when it is emitted: its symbol, its
    text, and whether O2 runs on it. Raises LightNetError for an op or a form that level 4 does not have."""
    functions = launch.kernels(module)
    try:
        launch.verify_launches(module)
    except VerifyException as error:
        raise LightNetError(str(error)) from None
    kernels, symbols = {}, {}
    for name, function in functions.items():
        budget.check(what=f"@{name}")
        if function.sym_visibility is not None and function.sym_visibility.data == "private":
            continue
        text, optimize = emit_kernel(function, functions, vectors)
        symbol = symbols[name] = "k" + hashlib.sha256(f"{optimize}{text}".encode()).hexdigest()[:20]
        kernels[symbol] = (text.replace("@kernel(", f"@{symbol}(", 1), optimize)
        if on_kernel is not None:
            on_kernel(symbol, *kernels[symbol])
    has_main = any(isinstance(op, FuncOp) and op.sym_name.data == "main" for op in module.ops)
    threads = max((op.most_threads for op in launch.launches(module) if isinstance(op, launch.LaunchOp)), default=1)
    main = emit_main(module, symbols) if has_main else None
    return Emitted(kernels, symbols, main, threads, thread_scratch_of(launch.launches(module)))


def emit_kernel(function: FuncOp, functions: dict[str, FuncOp], vectors: TargetVectors) -> tuple[str, bool]:
    """The text of one kernel, called ``@kernel``, with the private functions it calls; and whether O2 runs on it."""
    mode = function.attributes.get("tile.opt")
    optimize = not (isinstance(mode, StringAttr) and mode.data == "none")
    texts: list[str] = []
    declared: set[str] = set()
    done: set[str] = set()
    waiting = [(function, "kernel")]
    while waiting:
        current, name = waiting.pop()
        e = FunctionEmitter(
            vectors.width,
            not optimize,
            HANDLERS,
            vectors.half,
            has_fma=vectors.fma,
            has_rounding=vectors.rounding,
            dots=vectors.dots,
        )
        try:
            texts.append(_function_text(e, current, name, vectors, optimize))
        except LightNetError as error:
            error.notes.append((None, f"while emitting @{current.sym_name.data}"))
            raise
        finally:
            e.forget()
        declared |= e.declared
        for callee in sorted(e.calls - done):
            if callee not in functions:
                raise LightNetError(f"call of an unknown function @{callee}")
            done.add(callee)
            waiting.append((functions[callee], callee))
    if any(map(is_function, declared)):
        declared = _with_definitions(declared, texts, vectors)
    declarations = sorted({bfloats_as_bits(line) for line in declared})  # which then may be those of integers, too
    return "\n".join([*declarations, *map(bfloats_as_bits, texts), _attributes(vectors, optimize)]), optimize


def _with_definitions(declared: set[str], texts: list[str], vectors: TargetVectors) -> set[str]:
    """Add the definitions of elementary functions to the texts; the declarations that are left."""
    from lightnet.backends.elementary.emission import definitions

    library = definitions(filter(is_function, declared), vectors.fma)
    texts += library.texts
    return {line for line in declared if not is_function(line)}.union(library.declared)


def _function_text(e: FunctionEmitter, function: FuncOp, name: str, vectors: TargetVectors, optimize: bool) -> str:
    block = function.body.block
    align = function.attributes.get("tile.align")
    alignment = align.value.data if isinstance(align, IntegerAttr) else 64
    is_kernel = name == "kernel"
    parameters = control.declare_arguments(e, block, alignment if is_kernel else 1, exclusive=is_kernel)
    e.block(block)
    results = function.function_type.outputs.data
    result = llvm_type(results[0]) if results else "void"
    linkage, symbol = ("", name) if is_kernel else ("internal ", control.quoted(name))
    body = "\n".join(line if line.endswith(":") else "  " + line for line in flatten(e.scopes[0].lines, []))
    entry = "".join(f"  {line}\n" for line in e.entry)
    return f"define {linkage}{result} @{symbol}({', '.join(parameters)}) #0 {{\nentry:\n{entry}{body}\n}}"


def _attributes(vectors: TargetVectors, optimize: bool) -> str:
    """Function attributes. The generic scheduling model keeps accumulators in registers where the host's spills
    them."""
    tuning = "" if optimize else ' "tune-cpu"="generic" "stackrealign"'
    return f'attributes #0 = {{ nounwind "no-trapping-math"="true" "prefer-vector-width"="{vectors.bits}"{tuning} }}\n'
