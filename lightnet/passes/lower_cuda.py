"""`lower-cuda`: planned kernels become SIMT kernels and `@main` a list of launches (level 3 → level 4).

A move whose pieces stand in place lowers to nothing; pieces that do not are copied. Kernels of equal structure,
choices, alias pattern and alignment share their functions, whatever their names and places.

    %y = cuda.kernel(%x_ = %x) {…ln.relu…} at arena+256
    →
    func.func @relu_0(%x: …, %y: …) attributes {cuda.block = …} {…}
    func.func @main() {
      cuda.launch @relu_0 grid [2, 1, 1] block [128, 1, 1] [arena+0, arena+256]
      func.return }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr

from lightnet.backends.cuda.arch import ARCH_ATTRIBUTE
from lightnet.backends.cuda.loops import simt
from lightnet.backends.cuda.selection import SELECTION
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.launches import Launch, LaunchMemory
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import ARCHS
from lightnet.dialects.cuda_launch import CudaLaunchOp, dynamic_shared
from lightnet.ir.kernel import KernelOp
from lightnet.ir.passes import LnPass
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import spec_of
from lightnet.passes.lowering import Lowering, placed


@dataclass(frozen=True)
class LowerCudaPass(LnPass):
    """Lower planned kernels to SIMT kernels and a list of launches.

    `arch` is the architecture that the kernels are for: ``sm_80``, which all later ones run, ``sm_90``, …
    """

    name = "lower-cuda"
    level, makes = "plan", "loops"
    arch: str = "sm_80"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.arch not in ARCHS:
            raise LightNetError(
                f"unknown architecture '{self.arch:.40}'; there are: {', '.join(ARCHS)}", label="lower-cuda.arch"
            )
        op.attributes[ARCH_ATTRIBUTE] = StringAttr(self.arch)
        _Lowering(op).run()


class _Lowering(Lowering[SimtLaunch]):
    name = "lower-cuda"

    def launch(self, op: KernelOp) -> None:
        for value in (*op.operands, *op.results):
            place, size = placed(value), spec_of(value.type).dtype.size
            if place.offset.data % size:
                raise LightNetError(
                    f"a tensor stands at {place.space.data}+{place.offset.data}, and a device reads elements of {size} "
                    "bytes at multiples "
                    f"of {size} alone: plan with the default plan",
                    label="lower-cuda.alignment",
                )
        super().launch(op)

    def generate(self, op: KernelOp, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        return SELECTION.generate(op, name, aliases)

    def adapted(self, launch: Launch) -> SimtLaunch:
        return simt(launch)

    def line(self, op: KernelOp, made: SimtLaunch, places: Sequence[PlaceAttr], memory: LaunchMemory) -> CudaLaunchOp:
        name, shared = made.function.sym_name.data, dynamic_shared(made.function)
        return CudaLaunchOp(name, made.grid, made.block, places, shared=shared)
