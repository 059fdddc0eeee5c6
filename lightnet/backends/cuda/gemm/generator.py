"""The generators of products: ``simt``, exact in f32 on the ordinary cores, and ``mma``, on the tensor cores;
`wgmma.py` has the one for sm_90a.

They take a convolution on maps (groups have channels in whole fours), a dense layer, and a product of tensors, with
elementwise ops behind it. Choices: ``tile`` = [rows, columns, depth], ``stages`` of the ring, ``splits`` of K. Imports
the problem, the model and the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod

from xdsl.dialects.builtin import f16
from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import FLOATS, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.gemm import kernel as kernels
from lightnet.backends.cuda.gemm.core import ProductTile
from lightnet.backends.cuda.gemm.kernel import GemmSchedule
from lightnet.backends.cuda.gemm.mma_core import MmaCore, product_tiles
from lightnet.backends.cuda.gemm.model import Family, Pinned, Speed
from lightnet.backends.cuda.gemm.problem import GemmProblem, match
from lightnet.backends.cuda.gemm.simt_core import SimtCore, across_of
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Plan
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import MAX_GRID, WARP
from lightnet.ir.kernel import KernelOp, choice_attr, choice_integers
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import storage_type

#: Tiles [rows, columns, depth] of the ordinary cores: square ones, and flat ones for few rows or columns.
SIMT_TILES = (
    (128, 128, 16), (128, 64, 16), (64, 128, 16), (64, 64, 16), (128, 32, 16), (32, 128, 16), (64, 32, 16),
    (32, 64, 16), (32, 32, 16),
    (16, 64, 16), (16, 128, 16), (8, 64, 16), (8, 128, 16), (4, 128, 16), (1, 128, 16), (128, 16, 16),
)  # fmt: skip
#: Sums that a thread should have at least, where warps multiply.
LEAST_SUMS = 32
#: Sums of a thread at which tensor cores have half of their rate.
TENSOR_HALF = 19.0
#: What a choice may be, at most.
MOST_STAGES, MOST_SIZE = 8, 512


class Gemm(SimtGenerator):
    """Products on one family of cores."""

    def __init__(self, alg: str, family: Family, dtypes: Sequence[str]):
        self.alg, self.family, self.dtypes = alg, family, dtypes

    def suits(self, problem: GemmProblem) -> bool:
        """Return whether its cores can compute a product."""
        return problem.dtype.name in self.dtypes

    def takes(
        self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None
    ) -> Sequence[Form]:
        return [p.form() for p in match(ops, yielded) if self.suits(p)]

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        return self.alg == "simt" or ops[0].operand_specs[0].dtype.is_short

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        problem = problem_of(kernel, form)
        time, made = self.best(kernel, problem, self._pinned(kernel), device, "splits")
        tile = made.tile
        return Plan.of(
            self, kernel, form, time, made,
            choices={
                "tile": choice_attr((tile.rows, tile.cols, tile.depth)),
                "stages": choice_attr(tile.stages),
                "splits": choice_attr(made.splits),
            },
            weights={a.index: problem.packed for a in kernel.body.args if a is problem.b and problem.is_map},
            workspace_bytes=kernels.workspace_bytes(problem, made.splits),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        return self.launches(kernel, name, aliases, problem_of(kernel, plan.form), plan.schedule)

    def launches(
        self,
        kernel: KernelOp,
        name: str,
        aliases: Mapping[int, int],
        problem: GemmProblem,
        schedule: GemmSchedule,
        at: int = 0,
    ) -> list[SimtLaunch]:
        """The launches of one product of a kernel; `at` is the byte of the workspace at which its own begins."""
        return kernels.build(kernel, name, aliases, problem, self.family.make(problem, schedule.tile), schedule, at)

    def best(
        self, kernel: KernelOp, problem: GemmProblem, pinned: Pinned, device: DeviceModel, choice: str
    ) -> tuple[float, GemmSchedule]:
        """The best schedule for a product of a kernel on `device`, and its nanoseconds, among those that agree with
        what is `pinned`. Raises `LightNetError` where none does; `choice` is what says the splits."""
        try:
            if pinned.splits is not None:
                most = self._most_parts(problem, pinned.tile)
                if not 1 <= pinned.splits <= most:
                    raise refused(kernel, choice, f"K, of {problem.depth}, is cut into 1 to {most} parts")
            return self.family.best(problem, device, pinned)
        except LightNetError as error:
            raise LightNetError(error.message, loc_of(kernel), label=error.label) from None

    def _most_parts(self, problem: GemmProblem, tile: ProductTile | None) -> int:
        """Parts that K may be cut into: a stage each, of the shallowest tile where none is given. Raises
        `LightNetError` for a tile that no core has."""
        tiles = self.family.tiles(problem) if tile is None else (tile,)
        return min(max(self.family.make(problem, t).stages(problem) for t in tiles), MAX_GRID[2])

    def _pinned(self, kernel: KernelOp) -> Pinned:
        """The choices that a kernel has. Raises `LightNetError` for one that is no number, or too large."""
        sizes, ring = chosen_numbers(kernel, "tile", 3), chosen_numbers(kernel, "stages", 1)
        splits = chosen_numbers(kernel, "splits", 1)
        if sizes is not None:
            check_sizes(kernel, "tile", sizes)
        if ring is not None:
            check_ring(kernel, "stages", ring[0])
        tile = None
        if sizes is not None:
            rows, cols, depth = sizes
            tile = ProductTile(rows, cols, depth, ring[0] if ring is not None else 2, self.family.across(rows, cols))
        return Pinned(tile, None if ring is None else ring[0], None if splits is None else splits[0])


def _simt_tiles(problem: GemmProblem) -> Iterator[ProductTile]:
    for rows, cols, depth in SIMT_TILES:
        yield ProductTile(rows, cols, depth, 2, across_of(rows, cols))


def _mma_tiles(problem: GemmProblem) -> Iterator[ProductTile]:
    for rows, cols, depth, across in product_tiles(storage_type(problem.dtype)):
        if across == mma_across(rows, cols):
            yield ProductTile(rows, cols, depth, 2, across)


@cache
def mma_across(rows: int, cols: int) -> tuple[int, int]:
    """Warps along rows and columns of a tile: as many as have `LEAST_SUMS` sums a thread, else as few as there may
    be."""
    found = [s.across for s in product_tiles(f16) if (s.rows, s.cols) == (rows, cols)]
    large = [a for a in found if rows * cols >= LEAST_SUMS * WARP * prod(a)]
    return large[0] if large else found[-1] if found else (1, 1)


def refused(kernel: KernelOp, name: str, why: str) -> LightNetError:
    return LightNetError(f"{name} = {kernel.attributes[name]}: {why}", loc_of(kernel), label=f"cuda.gemm.{name}")


def check_sizes(kernel: KernelOp, name: str, sizes: Sequence[int]) -> None:
    """Raises `LightNetError` where the choice `name` has sizes of a tile that none has."""
    if min(sizes) < 1 or max(sizes) > MOST_SIZE:
        raise refused(kernel, name, f"sizes are 1 to {MOST_SIZE}")


def check_ring(kernel: KernelOp, name: str, stages: int) -> None:
    """The same of the stages of a ring."""
    if not 2 <= stages <= MOST_STAGES:
        raise refused(kernel, name, f"a ring has 2 to {MOST_STAGES} stages")


def chosen_numbers(kernel: KernelOp, name: str, length: int) -> tuple[int, ...] | None:
    """A choice of so many integers (one: no array), None where the kernel has none. Raises `LightNetError` for anything
    else."""
    attr = kernel.attributes.get(name)
    if attr is None:
        return None
    found = choice_integers(attr)
    if length == 1 and isinstance(found, int):
        return (found,)
    if length == 1 or not isinstance(found, tuple) or len(found) != length:
        raise refused(kernel, name, "expected " + (f"an array of {length} integers" if length > 1 else "an integer"))
    return found


def problem_of(kernel: KernelOp, form: Form) -> GemmProblem:
    """The problem of a kernel in one of its forms."""
    found = match(kernel.ops, list(kernel.terminator.operands))
    return next(p for p in found if p.is_map == bool(form.maps))


SIMT = Gemm(
    "simt",
    Family(_simt_tiles, across_of, SimtCore, lambda p, device: Speed(0.85 * device.flops, 8.0)),
    ("f32",),
)
MMA = Gemm(
    "mma",
    Family(
        _mma_tiles,
        mma_across,
        MmaCore,
        lambda p, device: Speed(device.tensor[p.dtype.name] * device.by_warps, TENSOR_HALF),
    ),
    FLOATS,
)
