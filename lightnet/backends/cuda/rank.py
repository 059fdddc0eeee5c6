"""``rank``: sorts. An element's place is the number of those that go before it, and each element counts them on its
own.

That is n² comparisons (Knuth, volume 3, 5.2, "comparison counting"), which n threads make at once; what compares fewer
is one thread's work, or many launches. A block has 32 keys, a lane each; its warps share what these are compared with,
so that all lanes of one read the same key. Imports the base of generators and how keys compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, i32
from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import Simt, SimtLaunch
from lightnet.backends.generator import Forms, Plan
from lightnet.dialects.cuda_checks import WARP
from lightnet.dialects.ln.sort import Sort1d, Sort1dByKey, goes_before
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of, storage_type
from lightnet.ir.views import place_of
from lightnet.runtime.arrays import align_up

#: Warps of a block, and threads of one that copies.
WARPS, THREADS = 8, 128
#: Operations of a comparison, the share of the rate of the cores that they reach, and nanoseconds of one in a warp that
#: runs alone.
OPERATIONS, SHARE, STEP = 10, 0.3, 10.0


class Rank(SimtGenerator):
    """Takes a sort, of keys of any type, with what moves along."""

    alg = "rank"

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if len(ops) != 1 or not isinstance(ops[0], Sort1d | Sort1dByKey) or list(yielded) != list(ops[0].results):
            return begins_otherwise(ops, "a sort alone")
        return [Form({}, plain_results=True)] if ops[0].operand_specs[0].len else Refusal("it has no elements")

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        n = kernel.ops[0].operand_specs[0].len
        time = 2 * device.launch + n * n * OPERATIONS / (SHARE * device.flops) + n / WARPS * STEP
        places = {place_of(v) for v in kernel.operands} - {None}
        in_place = any(place_of(r) in places for r in kernel.results)  # which a plan of upstream's kind has
        size = sum(align_up(spec_of(r.type).nbytes) for r in kernel.results) if in_place else 0
        return Plan.of(self, kernel, form, time, workspace_bytes=size)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        """Build the launches. Where a result takes an operand's memory, all go through workspace: others still read
        what would be overwritten.
        """
        if not aliases:
            return [_ranked(kernel, KernelFunction(kernel, name, (WARP * WARPS, 1, 1), aliases))]
        space, at = [], 0
        for spec in (spec_of(r.type) for r in kernel.results):
            space.append((MemRefType(storage_type(spec.dtype), [spec.len]), at))
            at += align_up(spec.nbytes)
        first = KernelFunction(kernel, name, (WARP * WARPS, 1, 1), {}, writes=[], workspace=space)
        second = KernelFunction(kernel, f"{name}_1", (THREADS, 1, 1), aliases, reads=[], workspace=space)
        return [_ranked(kernel, first), _copied(second, space[0][0].get_shape()[0])]


def _ranked(kernel: KernelOp, f: KernelFunction) -> SimtLaunch:
    """Every element to its place in the results, or in the workspace."""
    b, (op,) = f.b, kernel.ops
    assert isinstance(op, Sort1d | Sort1dByKey)
    n, dtype = op.operand_specs[0].len, op.operand_specs[0].dtype
    sources, targets = [f.inputs[v] for v in op.operands], list(f.outputs.values()) or f.workspace
    lane, warp, share = b.lane_id(), b.warp_id(), -(-n // WARPS)
    number = b.add(b.mul(b.block_id(), WARP), lane)
    own = b.least(number, n - 1)
    key, low = b.load(sources[0], [own]), b.mul(warp, share)
    descending = op.dir == "TL_SORT_DIR_DESCENDING"
    with b.loop(low, b.least(b.add(low, share), n), 1, [b.const(0, i32)], name="others") as others:
        other = b.load(sources[0], [others.iv])
        later = _no(b, goes_before(b, key, other, dtype, descending))
        ahead = b.both(b.below(others.iv, own), later)  # of equal ones the first stays first
        goes = b.op(arith.OrIOp, goes_before(b, other, key, dtype, descending), ahead)
        others.yields(b.op(arith.AddiOp, others.args[0], b.op(arith.ExtUIOp, goes, type=i32)))
    counts = b.shared([WARPS, WARP], i32, name="counts")
    b.store(others.results[0], counts, [warp, lane])
    b.barrier()
    with b.when(b.both(b.cmpi("eq", warp, b.index(0)), b.below(number, n))):
        place = b.load(counts, [0, lane])
        for w in range(1, WARPS):
            place = b.op(arith.AddiOp, place, b.load(counts, [w, lane]))
        to = b.op(arith.IndexCastOp, place, type=IndexType())
        for source, target in zip(sources, targets, strict=True):
            b.store(b.load(source, [own]), target, [to])
    return f.launch((-(-n // WARP), 1, 1))


def _no(b: Simt, condition: SSAValue) -> SSAValue:
    return b.op(arith.XOrIOp, condition, b.const(1, IntegerType(1)))


def _copied(f: KernelFunction, n: int) -> SimtLaunch:
    """The workspace to the results."""
    b = f.b
    number = b.add(b.mul(b.block_id(), THREADS), b.thread_id())
    with b.when(b.below(number, n)):
        for source, target in zip(f.workspace, f.outputs.values(), strict=True):
            b.store(b.load(source, [number]), target, [number])
    return f.launch((-(-n // THREADS), 1, 1))


RANK = Rank()
