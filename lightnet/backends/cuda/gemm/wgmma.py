"""The generator ``wgmma``: products of f16 and bf16 on the tensor cores of sm_90a, by warpgroups (`wgmma_core.py`).

It takes what ``mma`` takes, where the copy engine can bring the factors: convolutions without groups whose pixels are
whole pieces of 16 bytes, and dense layers and products whose rows are. Imports the generators of products.
"""

from __future__ import annotations

from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.gemm.generator import MMA, TENSOR_HALF, Gemm
from lightnet.backends.cuda.gemm.kernel import GemmSchedule
from lightnet.backends.cuda.gemm.model import Family, Pinned, Speed
from lightnet.backends.cuda.gemm.problem import GemmProblem
from lightnet.backends.cuda.gemm.wgmma_core import WgmmaCore, reaches
from lightnet.backends.cuda.kernel import KernelTask
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.dialects.cuda_stages import PANEL, STAGES_ARCH, WARPGROUP_ROWS
from lightnet.ir.views import alignment_of
from lightnet.runtime.cuda.tensor_map import MAP_PIECE

#: Tiles [rows, columns], the largest first: two warpgroups from 128 rows on.
TILES = (
    (128, 256), (256, 128), (128, 192), (128, 128), (64, 256), (256, 64), (64, 128), (128, 64), (64, 64), (128, 32),
    (64, 32), (64, 16),
)  # fmt: skip


def _across(rows: int, cols: int) -> tuple[int, int]:
    """Warpgroups along rows and columns of a tile."""
    return (2 if rows % (2 * WARPGROUP_ROWS) == 0 else 1), 1


def _tiles(problem: GemmProblem) -> list[tuple[int, int, int]]:
    return [(rows, cols, PANEL) for rows, cols in TILES if not problem.by_k or cols % PANEL == 0]


class Warpgroups(Gemm):
    """Products on one architecture."""

    runs_in_strips = False  # the copy engine's map is of one tensor

    def suits(self, problem: GemmProblem) -> bool:
        return super().suits(problem) and reaches(problem)

    def is_for(self, device: DeviceModel) -> bool:
        return device.arch == STAGES_ARCH

    def launches(self, task: KernelTask, problem: GemmProblem, schedule: GemmSchedule, at: int = 0) -> list[SimtLaunch]:
        """The launches. A view may begin where the copy engine cannot, which is known after planning only: then warps
        copy and multiply (``mma``), with as many splits, for which there is workspace."""
        if alignment_of([*task.kernel.operands, *task.kernel.results]) % MAP_PIECE == 0:
            return super().launches(task, problem, schedule, at)
        _, instead = MMA.family.best(problem, device_of(""), Pinned(splits=schedule.splits))
        return MMA.launches(task, problem, instead, at)


WGMMA = Warpgroups(
    "wgmma",
    Family(_tiles, _across, WgmmaCore, lambda p, device: Speed(device.tensor[p.dtype.name], TENSOR_HALF)),
    ("f16", "bf16"),
)
