"""The pass `repeat-launch`: a kernel does some of its blocks twice, so that a network takes longer by a known share and
computes the same. For `lightnet compare --load`, behind `lower-cpu`; ``tools/planted.py`` says which kernel and how many.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import LaunchOp, lines_of
from lightnet.ir.passes import LnPass


@dataclass(frozen=True)
class RepeatLaunchPass(LnPass):
    """Launch a kernel again, on its first blocks. (0 of them: nothing is planted.)

    ```mlir
    tile.launch @k grid 12 […]  ->  tile.launch @k grid 3 […]
                                    tile.launch @k grid 12 […]
    ```

    Blocks may be done twice where no result takes the memory of an operand. `line` counts the launches of `@main`.
    """

    name = "repeat-launch"
    level = "loops"
    line: int = 0
    blocks: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        lines = lines_of(op)
        if not 0 <= self.line < len(lines) or not isinstance(launch := lines[self.line], LaunchOp):
            raise LightNetError(f"repeat-launch: there is no launch {self.line}")
        grid = launch.grid.value.data
        if not isinstance(grid, int) or not 0 <= self.blocks <= grid:
            raise LightNetError(f"repeat-launch: launch {self.line} has {grid} blocks, fewer than {self.blocks}")
        if self.blocks and launch.parent is not None:
            scratch = launch.scratch.value.data if launch.scratch is not None else 0
            again = LaunchOp(
                launch.callee, self.blocks, list(launch.args), threads=launch.most_threads, scratch=scratch
            )
            launch.parent.insert_op_before(again, launch)
