"""``loops``: any kernel, from the definitions of its ops or their loop-level builder, a thread for each point of the
independent loops, or for four that follow each other in memory.

    func.func @relu_0(%lo, %hi, %x: …, %y: …) {      func.func @relu_0(%x: …, %y: …) attributes {cuda.block = …} {
      scf.for %b = %lo to %hi {…}                 →      %i = block_id · 128 + thread_id
    }                                                    scf.if (%i < grid) { scf.for %b = %i to %i + 1 {…} }

What definitions say runs on row-major tensors and on maps. Imports the loops and the builder of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends import kernel_loops
from lightnet.backends.bodies import is_free
from lightnet.backends.cuda.base import MAP, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.simt import Simt, SimtLaunch
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.backends.loops import launches_by_point
from lightnet.dataclasses import replace
from lightnet.dialects.launch import kernel_symbols
from lightnet.dialects.ln.move import Forward
from lightnet.ir.access import is_elementwise
from lightnet.ir.instances import typical_kernel
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import greatest

#: Threads of a block of the kernels here: four warps, which no registers that a thread may have keep from running.
THREADS = 128
#: Shares of the device's rates that such kernels reach, of the cores and of memory: where a thread has elements that
#: follow each other in all that it reads, and where it has one.
SEVERAL, ONE = (0.1, 0.7), (0.05, 0.35)
#: Share of the rate of the cores where a result is a sum of so many operations: nothing is read once for several of
#: them. Nanoseconds that a thread takes for one, with what it waits for.
SUMS, SHORT_SUM, STEP = 0.02, 64, 2.5
#: Nanoseconds that one thread takes for an element, where it does all of a block's work (of a sort, all of it).
ALONE = 50.0


class Loops(SimtGenerator):
    """Takes any body on row-major tensors. Where it is made of definitions and a tensor from or for outside has four
    dims, it takes these as maps, too; a single result that has, is one as well. A change of layout is taken in each
    direction."""

    alg = "loops"
    takes_open = takes_all = True

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> list[Form]:
        plain = Form({}, plain_results=True)
        if any(op.has_builder or op.definition is None for op in ops):
            return [plain]
        made = {r for op in ops for r in op.results}
        outside = dict.fromkeys(v for op in ops for v in op.operands if v not in made)
        maps = {v: (0, 0) for v in (*outside, *(y for y in yielded if y not in made)) if spec_of(v.type).ndim == 4}
        plain_results = len(yielded) != 1 or spec_of(yielded[0].type).ndim != 4
        if not maps and plain_results:
            return [plain]
        found = [plain, Form(maps, plain_results=plain_results)]
        if is_reorder(ops, yielded):
            found += [Form({}), Form(maps, plain_results=True)]
        return found

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        return Plan.of(self, kernel, form, _time(typical_kernel(kernel), form, device))

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        return replace(plan, workspace_bytes=kernel_loops.loop_workspace_bytes(kernel, None))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        return [simt(launch) for launch in kernel_loops.generate(kernel, name, aliases, None) if launch.grid != 0]


def _time(kernel: KernelOp, form: Form, device: DeviceModel) -> float:
    """Nanoseconds of a kernel in a form."""
    values = [*kernel.operands, *kernel.results]
    if (alone := kernel_loops.builder_op(kernel)) is not None:
        return device.launch + ALONE * sum(spec_of(v.type).len for v in values) / alone.blocks()
    on_maps = bool(form.maps) or not form.plain_results
    if not on_maps and len(kernel.ops) == 1 and is_free(kernel.ops[0]):
        return 0.0
    cores, memory = SEVERAL if _fills_accesses(kernel, on_maps, form.plain_results) else ONE
    flops, each = sum(op.flops() for op in kernel.ops), max((_flops_of_one(op) for op in kernel.ops), default=0.0)
    cores = cores if each < SHORT_SUM else SUMS
    traffic = sum(_bytes(v, on_maps) for v in values) / (memory * device.bytes)
    return _launches(kernel) * device.launch + max(flops / (cores * device.flops), traffic) + STEP * each


def is_reorder(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> bool:
    """Return whether a body is one `forward` of a tensor with four dims: a change of layout, if its types say so."""
    return (
        len(ops) == 1
        and isinstance(ops[0], Forward)
        and list(yielded) == [ops[0].dst]
        and ops[0].operand_specs[0].ndim == 4
    )


def _fills_accesses(kernel: KernelOp, on_maps: bool, plain_results: bool) -> bool:
    """Return whether the elements that a thread has follow each other in most of what it reads and writes."""
    if on_maps:
        return not plain_results and all(
            spec_of(v.type).dims[1] % 4 == 0 for v in (*kernel.operands, *kernel.results) if spec_of(v.type).ndim == 4
        )
    return all(map(is_elementwise, kernel.ops)) and all(spec_of(r.type).len % 4 == 0 for r in kernel.results)


def _flops_of_one(op: LnOp) -> float:
    """Operations for one element of a result, or of what is reduced on the way to it."""
    statements = kernel_loops.bind_op(op).statements if op.definition else ()
    longest = max((s.trips / max(1, s.size) for s in statements), default=1)
    return max(op.flops() / max(1, max(s.len for s in op.result_specs)), longest)


def _launches(kernel: KernelOp) -> int:
    """The launches of a kernel: one more wherever a nest of loops reads what the threads of an earlier one leave, as
    may be where an op has more than one."""
    if len(kernel.ops) == 1:
        return launches_by_point(kernel_loops.bind_op(kernel.ops[0])) if kernel.ops[0].definition else 1
    several = any(len(kernel_loops.bind_op(op).statements) > 1 for op in kernel.ops)
    return launches_by_point(kernel_loops.composed(kernel)) if several else 1


def _bytes(value: SSAValue, on_maps: bool) -> int:
    spec = spec_of(value.type)
    return MAP.size(spec) if on_maps and spec.ndim == 4 else spec.nbytes


def simt(launch: Launch) -> SimtLaunch:
    """A loop function as a kernel, with one thread for each of its blocks."""
    inner, n, symbols = launch.function.body.block, launch.grid, kernel_symbols(launch.function)
    threads = min(THREADS, max(1, -(-greatest(n) // 32)) * 32)
    block = (threads, 1, 1)
    memrefs = [t for t in inner.arg_types if isinstance(t, MemRefType)]
    hints = [arg.name_hint for arg in inner.args[len(inner.args) - len(memrefs) :]]
    b = Simt.thread(launch.function.sym_name.data, memrefs, block, hints, launch.function.location, symbols)
    number = b.add(b.mul(b.block_id(), threads), b.thread_id())
    number.name_hint = "thread"
    with b.when(b.below(number, n)):
        given = (number, b.add(number, 1), *map(b.symbol_value, symbols), *b.args)
        for arg, value in zip(inner.args, given, strict=True):
            arg.replace_all_uses_with(value)
        for op in list(inner.ops)[:-1]:
            op.detach()
            b.append(op)
    return SimtLaunch(b.finish(), (-(-n // threads), 1, 1), block, launch.args, workspace=launch.workspace)


LOOPS = Loops()
