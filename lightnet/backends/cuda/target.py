"""The target `cuda`: kernels as PTX, for NVIDIA devices or the emulator.

Every op runs from its definition or its loop-level builder, as on the CPU, so that no network is refused; what is
faster stands in the table of generators (`selection.py`). Maps lie with the channels last where that saves time.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cuda.arch import ARCH_ATTRIBUTE, arch_of
from lightnet.backends.cuda.attention.merge import MergeAttention
from lightnet.backends.cuda.combiners import accepts
from lightnet.backends.cuda.expanders import EXPANDERS
from lightnet.backends.cuda.selection import SELECTION, choose, cuda_reorder_time
from lightnet.backends.subgraphs import InterleaveConcat
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import BLOCK_ATTRIBUTE
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, STATIC
from lightnet.ir.op import LnOp
from lightnet.ir.registry import CUDA_GENERATORS
from lightnet.ir.target import Space, Target

#: Up to so many bytes, a launch is too small for a device, and branches should run at the same time.
APART = 4 << 20
#: What `cuMemAlloc` aligns to, and what every access of a kernel could ask for.
ALIGNMENT = 256


def supports(op: LnOp) -> bool:
    """Return whether `op` runs by itself: from its definition, or by its loop-level builder."""
    return op.definition is not None or op.has_builder


def emit_ptx(module: ModuleOp, arch: str | None = None) -> str:
    """The PTX of a lowered module, for the architecture that it names, or another. Raises LightNetError for any other
    module."""
    from lightnet.backends.cuda import nvptx  # LLVM

    return nvptx.emit_ptx(module, arch or _arch(module))


def emit_llvm(module: ModuleOp, arch: str | None = None) -> str:
    """The LLVM IR of a lowered module's kernels, before LLVM's own passes. Raises LightNetError for any other."""
    from lightnet.backends.cuda import nvptx

    return nvptx.emit_llvm(module, arch or _arch(module))[0]


def emit_obj(module: ModuleOp, arch: str | None = None) -> bytes:
    """The machine code of a lowered module's kernels, a cubin, by NVIDIA's ptxas. Raises LightNetError where that is
    not there."""
    from lightnet.backends.cuda.assembler import assemble

    arch = arch or _arch(module)
    return assemble(emit_ptx(module, arch), arch)


def _arch(module: ModuleOp) -> str:
    if (arch := arch_of(module)) is not None:
        return arch
    if any(BLOCK_ATTRIBUTE in op.attributes for op in module.ops):
        wanted = f'{ARCH_ATTRIBUTE} = "sm_80", or another one, in its attributes'
        raise LightNetError(f"the module does not say which architecture its kernels are for: {wanted}", loc_of(module))
    raise LightNetError("target 'cuda' emits kernels of threads: run its passes up to lower-cuda first", loc_of(module))


CUDA = Target(
    "cuda",
    spaces={ARENA: Space(ALIGNMENT), STATIC: Space(ALIGNMENT)},
    kernel="cuda",
    supports=supports,
    accepts=accepts,
    generators=CUDA_GENERATORS,
    choose=choose,
    selection=SELECTION,
    expanders=EXPANDERS,
    combiners=(MergeAttention,),
    subgraphs=(InterleaveConcat,),
    layouts=("nhwc", "plain"),
    blocking=SELECTION.blocking,
    packing=SELECTION.packing,
    predicted=SELECTION.predicted,
    reorder=cuda_reorder_time,
    apart=APART,
    lowering="lower-cuda",
    runtime="lightnet.backends.cuda.runtime:RUNTIME",
    precisions=("tf32",),
    machine="lightnet.runtime.cuda.machine:MACHINE",
    emitters={"ptx": emit_ptx, "llvm": emit_llvm, "asm": emit_ptx, "obj": emit_obj},
)
