"""The generator ``attention``: softmax(Q·Kᵀ)·V in one kernel on the tensor cores, for factors of f16 and bf16.

Choice: ``tile`` = [rows of Q a block, keys a tile]. Imports the problem, the kernel and the model of a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from lightnet.backends.cuda.attention.kernel import AttentionKernel, AttentionSchedule, block_bytes
from lightnet.backends.cuda.attention.problem import HEAD_PIECE, Attention, attention_of
from lightnet.backends.cuda.base import Choices, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.gemm.mma_core import MMA_ROWS
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Forms, Plan
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.move import Reshape, Transpose
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form

#: Rows and keys that are tried (fewer keys where there are no more), and that a choice may have at most.
TRIED, FEW = tuple((rows, 64) for rows in (128, 64, 32, 16)), 32
MOST_ROWS, MOST_KEYS = 128, 128
#: Keys that few blocks go over, at most, and from how many blocks on they may be more: longer rows of few queries (a
#: step of a decoder) are cut in parts by the kernels of products.
MOST_ALONE, MANY_BLOCKS = 768, 96
#: Nanoseconds that a tile of keys takes however little is to be multiplied: barrier, copies, the maximum of a quad.
STEP = 450.0
#: The share of the tensor cores' rate that the two products have, beside exponentials and scaling.
RATE = 0.3
CHOICES = Choices("cuda.attention")


class AttentionGenerator(SimtGenerator):
    """Takes attention whose scores nobody else reads."""

    alg = "attention"
    runs_in_strips = False
    ends = (Matmul, Reshape, Transpose)

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if (p := attention_of(ops, yielded)) is None:
            return Refusal("it is no attention of f16 or bf16 on whole pieces")
        if not _is_short(p):
            return Refusal("few blocks would go over {} keys each", p.keys)
        return [Form({}, plain_results=True)]

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        p = _of(kernel)
        given = CHOICES.numbers(kernel, "tile", 2)
        limits = (MMA_ROWS, MOST_ROWS), (HEAD_PIECE, MOST_KEYS)
        if not all(0 < n <= most and not n % of for n, (of, most) in zip(given or (), limits)):
            what = f"rows are multiples of {MMA_ROWS} up to {MOST_ROWS}, keys of {HEAD_PIECE} up to {MOST_KEYS}"
            raise CHOICES.error(kernel, "tile", what)
        sizes = [given] if given is not None else [(r, FEW if p.keys <= FEW else k) for r, k in TRIED]
        tried = [AttentionSchedule(*both) for both in sizes]
        fitting = [s for s in tried if block_bytes(p, s) <= device.shared]
        if not fitting:
            raise CHOICES.error(kernel, "tile", f"a block has {device.shared} bytes of shared memory")
        time, made = min(((_time(p, s, device), s) for s in fitting), key=lambda found: (found[0], found[1].rows))
        return Plan.of(self, kernel, form, time, made, choices={"tile": choice_attr((made.rows, made.keys))})

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        return [AttentionKernel(kernel, _of(kernel), plan.schedule, name, aliases).launch()]


def _is_short(p: Attention) -> bool:
    """Return whether a block that goes over all keys alone is none to wait for: there are few of them, or so many
    blocks that a device has no processors for more."""
    return p.keys <= MOST_ALONE or p.heads * -(-p.rows // MMA_ROWS) >= MANY_BLOCKS


def _of(kernel: KernelOp) -> Attention:
    found = attention_of(kernel.ops, list(kernel.terminator.operands))
    assert found is not None, "a generator builds what it takes"
    return found


def _time(p: Attention, s: AttentionSchedule, device: DeviceModel) -> float:
    """Nanoseconds of a launch: blocks in waves, each of which goes over all keys."""
    blocks, steps = p.heads * -(-p.rows // s.rows), -(-p.keys // s.keys)
    resident = max(1, min((device.shared + 1024) // (block_bytes(p, s) + 1024), 16 // s.warps))
    rounds = -(-blocks // (device.processors * resident))
    at_once = min(resident, -(-blocks // device.processors))
    rate = device.tensor[p.scores.dtype.name] * device.by_warps * RATE / device.processors
    work = 2.0 * s.rows * s.keys * (p.width + p.columns) / rate
    return device.launch + rounds * steps * max(STEP, at_once * work)


ATTENTION = AttentionGenerator()
