"""The forms of a network lowered for a processor, for people and their tools: LLVM IR, assembly, an object. Imports
LLVM.

`cpu` and `triple` name the processor as `lightnet compile` does. Files that C calls are another matter (`deploy.py`):
these have the kernels and the launch list as LightNet itself calls them.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.llvm.emitter import Emitted, emit_module
from lightnet.backends.llvm.jit import Compiler
from lightnet.backends.llvm.library import link_in
from lightnet.backends.llvm.machines import THIS_MACHINE, machine
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import kernels
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp


def emit_llvm(module: ModuleOp, cpu: str = THIS_MACHINE, triple: str | None = None) -> str:
    """LLVM IR as it is emitted, before LLVM's own passes: the width of vectors is the processor's. Raises LightNetError
    for a module that is not lowered."""
    return _emitted(module, cpu, triple)[0].text


def emit_asm(module: ModuleOp, cpu: str = THIS_MACHINE, triple: str | None = None) -> str:
    """The machine code as assembly text."""
    compiler, linked = _compiled(module, cpu, triple)
    return compiler.target.emit_assembly(linked)


def emit_obj(module: ModuleOp, cpu: str = THIS_MACHINE, triple: str | None = None) -> bytes:
    """The machine code as one relocatable object."""
    compiler, linked = _compiled(module, cpu, triple)
    return compiler.emit(linked)


def _emitted(module: ModuleOp, cpu: str, triple: str | None) -> tuple[Emitted, Compiler]:
    graph = next((op for op in module.walk() if isinstance(op, LnOp | KernelOp)), None)
    if graph is not None or not kernels(module):
        raise LightNetError(
            "target 'cpu' emits code of loops: run its passes up to lower-cpu first",
            loc_of(graph or module),
            "emit.level",
        )
    target = machine(cpu, triple)
    return emit_module(module, target.vectors), Compiler(target)


def _compiled(module: ModuleOp, cpu: str, triple: str | None) -> tuple[Compiler, llvm.ModuleRef]:
    emitted, compiler = _emitted(module, cpu, triple)
    context = llvm.create_context()
    return compiler, link_in(compiler.module("", context=context), emitted, compiler, context)
