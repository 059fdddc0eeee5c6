"""The generators of products: ``simt``, exact in f32 on the ordinary cores, and ``mma``, on the tensor cores;
`wgmma.py` has the one for sm_90a.

They take a convolution on maps (groups have channels in whole fours), a dense layer, and a product of tensors, with
elementwise ops behind it. Choices: ``tile`` = [rows, columns, depth], ``stages`` of the ring, ``splits`` of K. Imports
the problem, the model and the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import PRODUCT_TYPES, Choices, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.gemm import kernel as kernels
from lightnet.backends.cuda.gemm.kernel import GemmSchedule
from lightnet.backends.cuda.gemm.mma_core import MmaCore, product_tiles, warps_across
from lightnet.backends.cuda.gemm.model import Family, Pinned, Speed
from lightnet.backends.cuda.gemm.problem import GemmProblem, match
from lightnet.backends.cuda.gemm.simt_core import SimtCore, across_of
from lightnet.backends.cuda.kernel import KernelTask
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Forms, Plan
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import MAX_GRID
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import storage_type

#: Tiles [rows, columns, depth] of the ordinary cores: square ones, and flat ones for few rows or columns.
SIMT_TILES = (
    (128, 128, 16), (128, 64, 16), (64, 128, 16), (64, 64, 16), (128, 32, 16), (32, 128, 16), (64, 32, 16),
    (32, 64, 16), (32, 32, 16),
    (16, 64, 16), (16, 128, 16), (8, 64, 16), (8, 128, 16), (4, 128, 16), (1, 128, 16), (128, 16, 16),
)  # fmt: skip
#: Sums of a thread at which tensor cores have half of their rate.
TENSOR_HALF = 19.0
#: What a choice may be, at most.
MOST_STAGES, MOST_SIZE = 8, 512
CHOICES = Choices("cuda.gemm")


class Gemm(SimtGenerator):
    """Products on one family of cores."""

    def __init__(self, alg: str, family: Family, dtypes: Sequence[str]):
        self.alg, self.family, self.dtypes = alg, family, dtypes

    def suits(self, problem: GemmProblem) -> bool:
        """Return whether its cores can compute a product."""
        return problem.dtype.name in self.dtypes

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if not (found := match(ops, yielded)):
            return Refusal("it is no product with an epilogue (begins with {})", ops[0].optype)
        fitting = [p.form() for p in found if self.suits(p)]
        return fitting or Refusal("its cores compute no such product of {}", found[0].dtype)

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        return self.alg == "simt" or ops[0].operand_specs[0].dtype.is_short

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        problem = problem_of(kernel, form)
        stages, splits = (CHOICES.number(kernel, name) for name in ("stages", "splits"))
        pinned = checked_pins(kernel, "tile", Pinned(CHOICES.numbers(kernel, "tile", 3), stages, splits))
        time, made = self.best(kernel, problem, pinned, device, "splits")
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
        return self.launches(KernelTask(kernel, name, aliases), problem_of(kernel, plan.form), plan.schedule)

    def launches(self, task: KernelTask, problem: GemmProblem, schedule: GemmSchedule, at: int = 0) -> list[SimtLaunch]:
        """The launches of one product of a kernel; `at` is the byte of the workspace at which its own begins."""
        return kernels.build(task, problem, self.family.make(problem, schedule.tile), schedule, at)

    def best(
        self, kernel: KernelOp, problem: GemmProblem, pinned: Pinned, device: DeviceModel, choice: str
    ) -> tuple[float, GemmSchedule]:
        """The best schedule for a product of a kernel on `device`, and its nanoseconds, among those that agree with
        what is `pinned`. Raises `LightNetError` where none does; `choice` is what says the splits."""
        try:
            if pinned.splits is not None:
                most = self._most_parts(problem, pinned.sizes)
                if not 1 <= pinned.splits <= most:
                    raise CHOICES.error(kernel, choice, f"K, of {problem.depth}, is cut into 1 to {most} parts")
            return self.family.best(problem, device, pinned)
        except LightNetError as error:
            raise LightNetError(error.message, loc_of(kernel), label=error.label) from None

    def _most_parts(self, problem: GemmProblem, sizes: tuple[int, ...] | None) -> int:
        """Parts that K may be cut into: a stage each, of the shallowest tile where none is given. Raises
        `LightNetError` for a tile that no core has."""
        tiles = [self.family.tile(s, 2) for s in (self.family.tiles(problem) if sizes is None else (sizes,))]
        return min(max(self.family.make(problem, tile).stages(problem) for tile in tiles), MAX_GRID[2])


def checked_pins(kernel: KernelOp, name: str, pinned: Pinned) -> Pinned:
    """The choices of a product. Raises `LightNetError` for a size that no tile has, of the choice `name`, and a ring
    that there is not, of the choice ``stages`` where a kernel has that."""
    if pinned.sizes is not None and not 1 <= min(pinned.sizes) <= max(pinned.sizes) <= MOST_SIZE:
        raise CHOICES.error(kernel, name, f"sizes are 1 to {MOST_SIZE}")
    if pinned.stages is not None and not 2 <= pinned.stages <= MOST_STAGES:
        own = "stages" if "stages" in kernel.attributes else name
        raise CHOICES.error(kernel, own, f"a ring has 2 to {MOST_STAGES} stages")
    return pinned


def problem_of(kernel: KernelOp, form: Form) -> GemmProblem:
    """The problem of a kernel in one of its forms."""
    found = match(kernel.ops, list(kernel.terminator.operands))
    return next(p for p in found if p.is_map == bool(form.maps))


SIMT = Gemm(
    "simt",
    Family(lambda p: SIMT_TILES, across_of, SimtCore, lambda p, device: Speed(0.85 * device.flops, 8.0)),
    ("f32",),
)
MMA = Gemm(
    "mma",
    Family(
        lambda p: product_tiles(storage_type(p.dtype)),
        warps_across,
        MmaCore,
        lambda p, device: Speed(device.tensor[p.dtype.name] * device.by_warps, TENSOR_HALF),
    ),
    PRODUCT_TYPES,
)
