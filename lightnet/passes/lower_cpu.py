"""`lower-cpu`: planned kernels become kernel functions and `@main` a list of launches (level 3 → level 4).

A move whose pieces stand in place lowers to nothing; pieces that do not are copied. Kernels of equal structure,
choices, alias pattern and alignment share one function, whatever their names and places.

    %y = cpu.kernel(%x_ = %x) {…ln.relu…} at arena+64        func.func @relu_0(%lo: index, %hi: index, %x: …, %y: …) {…}
                                                        →    func.func @main() {
                                                               tile.launch @relu_0 grid 1 [arena+0, arena+64]
                                                               func.return }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cpu.parallel import THREADS, threads_of
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.launches import Launch, LaunchMemory
from lightnet.dialects.launch import LaunchOp
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import WORKSPACE_SIZE
from lightnet.ir.passes import LnPass
from lightnet.ir.place import PlaceAttr
from lightnet.passes.lowering import Lowering
from lightnet.runtime.dims import greatest


class LowerCpuPass(LnPass):
    """Lower planned kernels to functions of loops and a list of launches."""

    name = "lower-cpu"
    level, makes = "plan", "loops"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        _Lowering(op).run()


class _Lowering(Lowering[Launch]):
    name = "lower-cpu"
    free = (WORKSPACE_SIZE, THREADS)

    def generate(self, op: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return SELECTION.generate(op, name, aliases)

    def adapted(self, launch: Launch) -> Launch:
        return launch

    def line(self, op: KernelOp, made: Launch, places: Sequence[PlaceAttr], memory: LaunchMemory) -> LaunchOp:
        name, used = made.function.sym_name.data, max(1, min(threads_of(op), greatest(made.grid)))
        scratch = memory.scratch if any(a.kind == "scratch" for a in made.args) else 0
        return LaunchOp(name, made.grid, places, threads=used, scratch=scratch)
