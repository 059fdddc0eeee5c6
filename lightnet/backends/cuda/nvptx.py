"""Level 4 of cuda to PTX: `emit_ptx`.

Kernels become LLVM IR text by the emitter of the CPU's kernels, one lane wide, with the ops of the `cuda` dialect
added; `codegen.py` makes PTX of that, one kernel at a time (`assembly.py`). Equal kernels become one entry. Imports
xDSL; LLVM through `assembly`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from math import gcd

from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp
from xdsl.dialects.func import FuncOp

from lightnet.backends.cuda import nvptx_hopper, nvptx_ops
from lightnet.backends.cuda.assembly import KERNEL_NAME, Assembler
from lightnet.backends.cuda.quotients import QUOTIENTS
from lightnet.backends.elementary.emission import definitions
from lightnet.backends.elementary.table import is_function
from lightnet.backends.llvm import control, emitter
from lightnet.backends.llvm.function import FunctionEmitter, flatten
from lightnet.backends.llvm.memory_ops import stored_type
from lightnet.backends.llvm.values import Lin, Mem, llvm_type, size_of
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import argument_alignment, block_of
from lightnet.dialects.cuda_hopper import tensor_maps
from lightnet.dialects.cuda_launch import cuda_kernels, verify_cuda
from lightnet.dialects.launch import kernels
from lightnet.dialects.tile_memory import is_plain_memref
from lightnet.runtime.cuda import tensor_map

HANDLERS = {**emitter.HANDLERS, **nvptx_ops.HANDLERS, **nvptx_hopper.HANDLERS}
#: What a tensor map is as a parameter: its bytes, which stay where they are.
_TENSOR_MAP = f'ptr byval([{tensor_map.BYTES} x i8]) align {tensor_map.MAP_ALIGNMENT} "nvvm.grid_constant"'

#: Bytes of a vector, at most. LLVM makes one load of several to neighbours, and a longer one where alignment says that
#: it cannot fault; of memory that is smaller, the longer one would read what lies behind.
SMALL = 16


@dataclass(frozen=True)
class Ptx:
    """A module's kernels as PTX `text`; `entries` maps a kernel's name in the module to its name in the text."""

    text: str
    entries: dict[str, str]


def emit_ptx(module: ModuleOp, arch: str = "sm_80", ptx: int = 80) -> str:
    """The PTX text of a module's kernels, for an architecture (``sm_80``, ``sm_90``, …) and a version of PTX (80: 8.0).
    Raises LightNetError for an op or a form that level 4 of cuda does not have."""
    return emit_program(module, arch, ptx).text


def emit_program(module: ModuleOp, arch: str = "sm_80", ptx: int = 80) -> Ptx:
    """As `emit_ptx`, with the names of the entries."""
    texts, table = _verified(module, arch)
    with Assembler(arch, ptx) as assembler:
        entries = {}
        for name, function in table.items():
            seen = len(texts.entries)
            entries[name] = texts.kernel(name, function)
            if len(texts.entries) > seen:
                assembler.add(texts.alone(entries[name]), entries[name])
        if not texts.entries:
            assembler.add(texts.text)
        return Ptx(assembler.text(), entries)


def emit_llvm(module: ModuleOp, arch: str = "sm_80") -> tuple[str, dict[str, str]]:
    """The LLVM IR text of a module's kernels, before LLVM's own passes, and the entries' names by those of the
    kernels."""
    texts, table = _verified(module, arch)
    entries = {name: texts.kernel(name, function) for name, function in table.items()}
    return texts.text, entries


def _verified(module: ModuleOp, arch: str) -> tuple[_Texts, dict[str, FuncOp]]:
    """The texts of a module, none emitted yet, and its kernels."""
    verify_cuda(module, arch)
    return _Texts(kernels(module)), cuda_kernels(module)


class _Texts:
    """The texts of a module's functions; those that are equal stand once."""

    def __init__(self, functions: dict[str, FuncOp]):
        self._functions = functions
        self._defined: dict[str, str] = {}  # text -> symbol
        self._helpers: dict[str, str] = {}  # name -> symbol
        self._bodies: dict[str, str] = {}  # symbol -> text, with `SELF`
        self._needs: dict[str, tuple[set[str], set[str]]] = {}  # symbol -> declarations, helpers
        self._active: list[str] = []
        #: The symbols of the kernels.
        self.entries: list[str] = []

    @property
    def text(self) -> str:
        """All functions, as one module."""
        return self._module(list(self._bodies))

    def alone(self, entry: str) -> str:
        """One kernel and what it calls, as a module, in which the kernel's name is `assembly.KERNEL_NAME`, whatever it
        is here."""
        needed, waiting = {entry}, [entry]
        while waiting:
            new = self._needs[waiting.pop()][1] - needed
            needed |= new
            waiting += new
        return self._module([symbol for symbol in self._bodies if symbol in needed], KERNEL_NAME)

    def _module(self, symbols: Sequence[str], name: str | None = None) -> str:
        lines = set().union(*(self._needs[symbol][0] for symbol in symbols))
        declared = sorted(line for line in lines if not is_function(line))
        library = definitions(line for line in lines if is_function(line))
        bodies = [
            self._bodies[s].replace(nvptx_ops.SELF, s if name is None or s not in self.entries else name)
            for s in symbols
        ]
        return "\n\n".join(["\n".join(dict.fromkeys(declared + library.declared)), *library.texts, *bodies]) + "\n"

    def kernel(self, name: str, function: FuncOp) -> str:
        """Emit a kernel, unless an equal one is there; the name of its entry."""
        e, text, called = self._emit(name, function)
        own = sorted(line for line in e.declared if nvptx_ops.SHARED_SYMBOL in line)
        symbol = self._define("\n".join([*own, text]), lambda: self._fresh(name), e.declared - set(own), called)
        if symbol not in self.entries:
            self.entries.append(symbol)
        return symbol

    def _define(self, text: str, symbol: Callable[[], str], declared: set[str], called: set[str]) -> str:
        """Add a function's text, in which `SELF` stands for its symbol, with what it needs; the symbol."""
        if text not in self._defined:
            self._defined[text] = made = symbol()
            self._bodies[made] = text
            self._needs[made] = declared, called
        return self._defined[text]

    def _fresh(self, name: str) -> str:
        """A name that PTX takes, which no other entry has."""
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
        plain = plain if plain[:1].isalpha() else f"k_{plain}"
        taken, symbol, number = set(self._defined.values()), plain, 0
        while symbol in taken:
            number += 1
            symbol = f"{plain}_{number}"
        return symbol

    def _helper(self, name: str) -> str:
        """Emit a function that others call; its symbol, which is made of its text."""
        if name in self._helpers:
            return self._helpers[name]
        if name not in self._functions:
            raise LightNetError(f"call of an unknown function @{name}")
        if name in self._active:
            raise LightNetError(f"@{name} calls itself")
        function = self._functions[name]
        if block_of(function) is not None:
            raise LightNetError(f"@{name} is a kernel, and cannot be called")
        e, text, called = self._emit(name, function)
        symbol = "f" + hashlib.sha256(text.encode()).hexdigest()[:20]
        self._helpers[name] = self._define(text, lambda: symbol, e.declared, called)
        return symbol

    def _emit(self, name: str, function: FuncOp) -> tuple[FunctionEmitter, str, set[str]]:
        """The text of a function, whose callees are emitted, and their symbols."""
        e = FunctionEmitter(1, tiled=False, handlers=HANDLERS, has_half=True, has_bfloat=True, elementary=QUOTIENTS)
        self._active.append(name)
        try:
            text = _function_text(e, function)
            called = {callee: self._helper(callee) for callee in sorted(e.calls)}
            for callee, symbol in called.items():
                text = text.replace(f"@{control.quoted(callee)}(", f"@{symbol}(")
        except LightNetError as error:
            error.notes.append((None, f"while emitting @{name}"))
            raise
        finally:
            e.forget()
        self._active.pop()
        return e, text, set(called.values())


def _function_text(e: FunctionEmitter, function: FuncOp) -> str:
    block = block_of(function)
    bind = _helper_arguments if block is None else _kernel_arguments
    parameters = bind(e, function)
    e.block(function.body.block)
    results = function.function_type.outputs.data
    body = "\n".join(line if line.endswith(":") else "  " + line for line in flatten(e.scopes[0].lines, []))
    entry = "".join(f"  {line}\n" for line in e.entry)
    if block is None:
        head, attributes = f"internal {llvm_type(results[0]) if results else 'void'}", "nounwind alwaysinline"
    else:
        # Without a least number of blocks a processor, ptxas rather spills than takes a thread more than 32 registers.
        bounds = f'"nvvm.reqntid"="{",".join(map(str, block))}" "nvvm.minctasm"="1"'
        head, attributes = "ptx_kernel void", f"nounwind {bounds}"
    return f"define {head} @{nvptx_ops.SELF}({', '.join(parameters)}) {attributes} {{\nentry:\n{entry}{body}\n}}"


def _kernel_arguments(e: FunctionEmitter, function: FuncOp) -> list[str]:
    """Bind a kernel's arguments: values of symbols; pointers to global memory, none of which overlaps one that is
    written, taken for generic ones; and tensor maps."""
    maps = tensor_maps(function)
    align = argument_alignment(function)
    texts = []
    for n, arg in enumerate(function.body.block.args):
        if isinstance(arg.type, IndexType):
            texts.append(f"i64 %number{n}")
            e.vals[arg] = e.symbol_at(f"%number{n}", 0)
            continue
        type, size = _memref(arg.type)
        if n in maps:
            texts.append(f"{_TENSOR_MAP} %map{n}")
            e.vals[arg] = Mem(f"%map{n}", Lin(0), type, tensor_map.MAP_ALIGNMENT)
            continue
        reach = f" dereferenceable({size})" if size else ""
        own = gcd(size, align) if 0 < size < SMALL else align
        texts.append(f"ptr addrspace(1) noalias align {own}{reach} %global{n}")
        e.entry.append(f"%arg{n} = addrspacecast ptr addrspace(1) %global{n} to ptr")
        e.vals[arg] = Mem(f"%arg{n}", Lin(0), type, own)
    return texts


def _helper_arguments(e: FunctionEmitter, function: FuncOp) -> list[str]:
    """Bind the arguments of a function that is called; of its memory only the elements' alignment is known until it is
    inlined."""
    texts = []
    for n, arg in enumerate(function.body.block.args):
        name = f"%arg{n}"
        if isinstance(arg.type, MemRefType):
            type, _ = _memref(arg.type)
            e.vals[arg] = Mem(name, Lin(0), type, size_of(stored_type(llvm_type(type.element_type))))
            texts.append(f"ptr {name}")
        else:
            texts.append(f"{llvm_type(arg.type)} {name}")
            e.vals[arg] = e.symbol_at(name, 0) if isinstance(arg.type, IndexType) else name
    return texts


def _memref(type: object) -> tuple[MemRefType, int]:
    """A memref of level 4, and its bytes: 0 where its length is open."""
    if not isinstance(type, MemRefType) or not is_plain_memref(type):
        raise LightNetError(
            f"level 4 needs the identity layout, and a shape of which only the first extent may be open, got {type}"
        )
    size = size_of(stored_type(llvm_type(type.element_type)))
    for n in type.get_shape():
        size *= max(n, 0)
    return type, size
