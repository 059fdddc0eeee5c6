"""The kernels of a product: one that multiplies, and, where K is split between blocks, one that adds the parts up.

A block has a tile of C: a core makes its sums, the epilogue finishes them. Imports the core's interface and the
epilogue.
"""

from __future__ import annotations

from functools import partial
from math import prod

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import MemRefType, VectorType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.gemm.core import Core, Corner, Fragment, ProductTile, TileBlock
from lightnet.backends.cuda.gemm.epilogue import Epilogue
from lightnet.backends.cuda.gemm.problem import GemmProblem
from lightnet.backends.cuda.kernel import KernelFunction, KernelTask
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.dataclasses import dataclass
from lightnet.ir.views import alignment_of
from lightnet.runtime.arrays import align_up

#: Threads of a block that adds parts up, and columns of each thread; columns of a fragment, at most.
THREADS, VECTOR, WIDEST = 128, 4, 8


@dataclass(frozen=True)
class GemmSchedule:
    """The cut of a product: tiles of C, and K in `splits` parts, each a whole number of stages."""

    tile: ProductTile
    splits: int

    def tiles(self, p: GemmProblem) -> tuple[int, int]:
        """Tiles along the rows and the columns of a product."""
        return -(-p.rows // self.tile.rows), -(-p.written // self.tile.cols)

    def steps(self, stages: int) -> int:
        """Stages that a block multiplies, of those of a product."""
        return -(-stages // self.splits)

    def blocks(self, p: GemmProblem) -> int:
        """Blocks of the grid."""
        return p.batch * prod(self.tiles(p)) * self.splits


def parts(p: GemmProblem, splits: int) -> MemRefType:
    """Sums over parts of K: [parts, rows of all products, columns]."""
    return MemRefType(f32, [splits, p.batch * p.rows, -(-p.cols // WIDEST) * WIDEST])


def workspace_bytes(p: GemmProblem, splits: int) -> int:
    """Bytes of the sums over parts of K."""
    return 0 if splits == 1 else align_up(4 * prod(parts(p, splits).get_shape()))


def build(task: KernelTask, p: GemmProblem, core: Core, schedule: GemmSchedule, at: int = 0) -> list[SimtLaunch]:
    """The launches of a product; `at` is the byte of the workspace at which its own begins."""
    launches = [_Product(task, p, core, schedule, at).launch()]
    if schedule.splits > 1:
        launches.append(_added(task, p, schedule.splits, at))
    return launches


class _Product:
    """The kernel that multiplies."""

    def __init__(self, task: KernelTask, p: GemmProblem, core: Core, schedule: GemmSchedule, at: int):
        self.p, self.core, self.schedule, self.tile, kernel = p, core, schedule, schedule.tile, task.kernel
        self.align = alignment_of([*kernel.operands, *kernel.results])
        block, shape = (core.threads, 1, 1), partial(core.shape, p)
        if schedule.splits == 1:
            reads = [a for a in kernel.body.args if any(a in op.operands for op in p.ops)]
            self.f = KernelFunction(kernel, task.name, block, task.aliases, reads=reads, shape=shape)
        else:
            space = [(parts(p, schedule.splits), at)]
            self.f = KernelFunction(
                kernel, task.name, block, {}, reads=[p.a, p.b], writes=[], workspace=space, shape=shape
            )
        self.b = self.f.b

    def launch(self) -> SimtLaunch:
        b, (down, along), tile = self.b, self.schedule.tiles(self.p), self.tile
        rest, column = b.divmod(b.block_id("x"), along)
        product, row = b.divmod(rest, down) if self.p.batch > 1 else (b.index(0), rest)
        self.part: Index = b.block_id("z") if self.schedule.splits > 1 else 0
        self.corner = Corner(product, b.mul(row, tile.rows), b.mul(column, tile.cols), tile.rows, tile.cols)
        steps = self.schedule.steps(self.core.stages(self.p))
        block = TileBlock(self.f, self.p, self.corner, b.mul(self.part, steps), steps, self.align)
        fragments = self.core.fragments(block)
        if self.schedule.splits == 1:
            epilogue = Epilogue(self.f, self.p, self.corner)
            for fragment in fragments:
                epilogue.write(fragment)
        else:
            for fragment in fragments:
                self._keep(fragment)
        return self.f.launch((self.p.batch * down * along, 1, self.schedule.splits))

    def _keep(self, fragment: Fragment) -> None:
        """Write sums over a part of K."""
        b, p, at, memory = self.b, self.p, self.corner, self.f.workspace[0]
        rows, width = fragment.value.type.get_shape()  # type: ignore[attr-defined]
        pitch = parts(p, 1).get_shape()[2]
        col = b.add(at.col, fragment.col)
        has_col = None if pitch % at.cols == 0 else b.below(col, pitch)
        for i in range(rows):
            row = b.add(b.add(at.row, fragment.row), i * fragment.row_step)
            has_row = b.below(row, p.rows) if p.rows % at.rows else None
            line = b.get(vector.ExtractOp(fragment.value, [i], VectorType(f32, [width])))
            where = [self.part, b.add(b.mul(at.product, p.rows), row), col]
            with b.where(has_row, has_col):
                b.tile_store(line, memory, where, [2])


def _added(task: KernelTask, p: GemmProblem, splits: int, at: int) -> SimtLaunch:
    """The kernel that adds the parts up, always in the same order, and finishes: four columns of a row a thread."""
    space = parts(p, splits)
    _, rows, pitch = space.get_shape()
    read = {v for op in p.epilogue for v in op.operands} | ({p.bias} if p.bias is not None else set())
    f = KernelFunction(
        task.kernel, f"{task.name}_1", (THREADS, 1, 1), task.aliases,
        reads=[a for a in task.kernel.body.args if a in read], workspace=[(space, at)], shape=p.shape,
    )  # fmt: skip
    b, count = f.b, rows * pitch // VECTOR
    number = b.add(b.mul(b.block_id(), THREADS), b.thread_id())
    line, piece = b.divmod(number, pitch // VECTOR)
    product, row = b.divmod(line, p.rows) if p.batch > 1 else (b.index(0), line)
    with b.when(b.below(number, count)):
        col = b.mul(piece, VECTOR)

        def part(n: Index) -> SSAValue:
            return b.tile_load(f.workspace[0], [n, line, col], [1, 2], (1, VECTOR))

        with b.loop(1, splits, 1, [part(0)]) as loop:
            loop.yields(b.op(arith.AddfOp, loop.args[0], part(loop.iv)))
        cols = 1 if p.written == pitch else pitch
        Epilogue(f, p, Corner(product, row, col, 1, cols)).write(Fragment(loop.results[0], b.index(0), b.index(0), 1))
    return f.launch((-(-count // THREADS), 1, 1))
