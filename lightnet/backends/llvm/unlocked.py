"""LLVM without llvmlite's lock, for the two calls that take the time: the middle end, and the making of code.

llvmlite serialises every call in the process. LLVM itself needs only that a context and a target machine stay with one
thread, which its callers see to. Imports llvmlite.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import llvmlite.binding as llvm

from lightnet.diagnostics import LightNetError

#: What a target machine makes of a module (LLVM's `CodeGenFileType`).
ASSEMBLY, OBJECT = 0, 1


@lru_cache(1)
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(llvm.ffi.lib._name)
        library.LLVMPY_TargetMachineEmitToMemory.restype = ctypes.c_void_p
        library.LLVMPY_RunNewModulePassManager.restype = None
    except (AttributeError, OSError):
        return None
    return library


def is_parallel() -> bool:
    """Return whether several threads can work at once: not where this llvmlite does not tell its library."""
    return _library() is not None


def emit_code(machine: llvm.TargetMachine, module: llvm.ModuleRef, kind: int) -> bytes:
    """The code of a module: `OBJECT`, or `ASSEMBLY` (UTF-8). Raises `LightNetError` where the machine has none for
    it."""
    library = _library()
    if library is None:
        return machine.emit_object(module) if kind == OBJECT else machine.emit_assembly(module).encode()
    message = ctypes.c_char_p()
    memory = library.LLVMPY_TargetMachineEmitToMemory(machine._ptr, module._ptr, kind, ctypes.byref(message))
    if not memory:
        raise LightNetError(f"LLVM cannot make code for this machine: {(message.value or b'').decode()}")
    buffer = ctypes.cast(memory, llvm.ffi.LLVMMemoryBufferRef)
    try:
        start = llvm.ffi.lib.LLVMPY_GetBufferStart(buffer)
        return ctypes.string_at(start, llvm.ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def run_passes(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Run passes over a module."""
    library = _library()
    if library is None:
        passes.run(module, builder)
    else:
        library.LLVMPY_RunNewModulePassManager(passes._ptr, module._ptr, builder._ptr)
