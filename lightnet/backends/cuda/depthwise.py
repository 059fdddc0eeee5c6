"""``depthwise``: convolutions with one channel a group, on maps, with the elementwise ops that follow.

There is one multiply-add for each element that is read, so a thread has four channels of a strip of a row of the
output: what it reads of a row of the input serves several pixels. Weights lie in pieces of four channels (``d4``).
Imports the base of generators and the evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cuda.base import PRODUCT_TYPES, Choices, SimtGenerator, is_all_epilogue, memory_time
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import Simt, SimtLaunch
from lightnet.backends.expressions import TileEvaluator, TileView
from lightnet.backends.generator import Forms, Plan
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir import bound
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of, storage_type

#: Channels of a thread; columns of a window at most, all of which are in code; pixels of a strip.
LANES, WIDEST, STRIPS = 4, 16, (4, 2, 1)
#: Columns of the input that a strip reads, at most: 4 registers each.
COLUMNS = 12
#: Threads of a block, and threads for each of the device's processors that hide what they wait for.
THREADS, BUSY = 128, 256
CHOICES = Choices("cuda")


class Depthwise(SimtGenerator):
    """Takes a depthwise `conv2d` whose channels are a multiple of four, with an epilogue."""

    alg = "depthwise"

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if not ops or not isinstance(ops[0], Conv2d) or not _is_depthwise(ops[0]):
            return begins_otherwise(ops, "a depthwise conv2d of whole vectors of channels")
        if not (taken := is_all_epilogue(ops, yielded, range(4))):
            return Refusal("{}", taken)
        src, weight, _ = ops[0].operands
        inside = {r for op in ops for r in op.results}
        dims = ops[0].result_specs[0].dims
        wide = [v for op in ops[1:] for v in op.operands if spec_of(v.type).dims == dims and v not in inside]
        others = {v for op in ops for v in op.operands} - {src, *wide}
        narrow = (v for op in ops[1:] for v in op.operands if spec_of(v.type).dims != dims)
        if weight in (src, *wide) or src in narrow or weight not in others:
            return Refusal("its map or its weights are seen in two ways")
        return [Form(dict.fromkeys((src, *wide), (0, 0)), frozenset([weight]))]

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        conv, strip = kernel.ops[0], strip_of(kernel, device)
        size = sum(spec_of(v.type).nbytes for v in (*kernel.operands, *kernel.results))
        time = max(memory_time(size, device), device.launch + conv.flops() / (0.25 * device.flops))
        weights = {kernel.number_of(conv.operands[1]): Packed("d", LANES)}
        return Plan.of(self, kernel, form, time, strip, choices={"strip": choice_attr(strip)}, weights=weights)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        return [_Kernel(kernel, plan.schedule, name, aliases).build()]


def _is_depthwise(conv: Conv2d) -> bool:
    src, weight, _ = conv.operand_specs
    return (
        conv.group == src.dims[1] == weight.dims[0]
        and src.dims[1] % LANES == 0
        and weight.dims[3] <= WIDEST
        and src.dtype.name in PRODUCT_TYPES
        and 0 not in (src.len, weight.len, conv.result_specs[0].len)
    )


def strip_of(kernel: KernelOp, device: DeviceModel) -> int:
    """Pixels of a row that a thread has: the kernel's choice (`LightNetError` for one that cannot be), else as many as
    leave enough threads."""
    conv, given = kernel.ops[0], CHOICES.number(kernel, "strip")
    assert isinstance(conv, Conv2d)
    fitting = [s for s in STRIPS if s == 1 or len(_columns(conv, s)) <= COLUMNS]
    if given is not None:
        if given not in fitting:
            raise CHOICES.error(kernel, "strip", f"a thread has {', '.join(map(str, fitting))} pixels")
        return given
    n, c, h, w = conv.result_specs[0].dims
    enough = BUSY * device.processors
    return next((s for s in fitting if n * c // LANES * h * -(-w // s) >= enough), 1)


def _columns(conv: Conv2d, strip: int) -> list[int]:
    """The columns of the input that a strip reads, from that under the first column of the first window."""
    step, across = conv.stride[1], conv.dilation[1]
    return sorted({x * step + k * across for x, k in product(range(strip), range(conv.size[1]))})


class _Kernel:
    """Builds one function. Threads run through the channels, then along rows, so that neighbours read neighbouring
    addresses."""

    def __init__(self, kernel: KernelOp, strip: int, name: str, aliases: Mapping[int, int]):
        conv = kernel.ops[0]
        assert isinstance(conv, Conv2d)
        self.kernel, self.conv, self.strip = kernel, conv, strip
        self.function = KernelFunction(kernel, name, (THREADS, 1, 1), aliases)
        self.b = self.function.b
        self.src, self.weight, self.bias = (self.function.inputs[v] for v in conv.operands)
        self.top, self.left = conv.derived_values()["pad"][:2]
        self.zero = self.b.const(0.0, vector_type((LANES,), f32))

    def build(self) -> SimtLaunch:
        b, (n, c, h, w) = self.b, self.conv.result_specs[0].dims
        sizes = (n, h, -(-w // self.strip), c // LANES)
        number = b.add(b.mul(b.block_id(), THREADS), b.thread_id())
        with b.when(b.below(number, prod(sizes))):
            rest, group = b.divmod(number, sizes[3])
            rest, strip = b.divmod(rest, sizes[2])
            picture, row = b.divmod(rest, sizes[1])
            self.thread(picture, row, b.mul(strip, self.strip), b.mul(group, LANES), group)
        return self.function.launch((-(-prod(sizes) // THREADS), 1, 1))

    def thread(self, n: SSAValue, y: SSAValue, x: SSAValue, channel: SSAValue, group: SSAValue) -> None:
        """Four channels of a strip that begins at column `x` of row `y`."""
        b, conv = self.b, self.conv
        start = b.widened(b.tile_load(self.bias, [channel], [0], (LANES,)))
        height, rows = conv.operand_specs[0].dims[2], conv.size[0]
        reach = (conv.result_specs[0].dims[2] - 1) * conv.stride[0] + (rows - 1) * conv.dilation[0] - self.top
        with b.loop(0, rows, carry=[start] * self.strip) as loop:
            at = b.add(b.add(b.mul(y, conv.stride[0]), b.mul(loop.iv, conv.dilation[0])), -self.top)

            def row() -> list[SSAValue]:
                return self.row([n, at, x, channel], [group, loop.iv], loop.args)

            if self.top == 0 and reach < height:
                loop.yields(*row())
            else:
                loop.yields(*b.choose(_inside(b, at, height), row, lambda: list(loop.args)))
        width = conv.result_specs[0].dims[3]
        for k, total in enumerate(loop.results):
            column = b.add(x, k)
            if k == 0 or width % self.strip == 0:
                self.pixel([n, channel, y, column], total)
            else:
                with b.when(b.below(column, width)):
                    self.pixel([n, channel, y, column], total)

    def row(self, at: Sequence[SSAValue], weights: Sequence[SSAValue], sums: Sequence[SSAValue]) -> list[SSAValue]:
        """The sums with one row of all windows of the strip: `at` is [picture, row of the input, first column of the
        output, channel]."""
        b, conv = self.b, self.conv
        n, y, x, channel = at
        first = b.add(b.mul(x, conv.stride[1]), -self.left)
        found = {off: self.column(n, y, first, off, channel) for off in _columns(conv, self.strip)}
        sums = list(sums)
        for k in range(conv.size[1]):
            factor = b.widened(b.tile_load(self.weight, [*weights, k, 0], [3], (LANES,)))
            for p in range(self.strip):
                part = b.op(arith.MulfOp, found[p * conv.stride[1] + k * conv.dilation[1]], factor)
                sums[p] = b.op(arith.AddfOp, sums[p], part)
        return sums

    def column(self, n: SSAValue, y: SSAValue, first: SSAValue, off: int, channel: SSAValue) -> SSAValue:
        """An element of the input; zeros beside the picture, for which the first column is read."""
        b, conv = self.b, self.conv
        width = conv.operand_specs[0].dims[3]
        strips = -(-conv.result_specs[0].dims[3] // self.strip)
        last = (strips - 1) * self.strip * conv.stride[1] + off - self.left
        x = b.add(first, off)
        if off >= self.left and last < width:
            return b.widened(b.tile_load(self.src, [n, y, x, channel], [3], (LANES,)))
        inside = _inside(b, x, width)
        value = b.tile_load(self.src, [n, y, b.select(inside, x, b.index(0)), channel], [3], (LANES,))
        return b.select(inside, b.widened(value), self.zero)

    def pixel(self, at: Sequence[Index], total: SSAValue) -> None:
        """The ops behind the convolution for the four channels at [n, c, y, x], and what the kernel yields."""
        b, conv = self.b, self.conv
        evaluator = _Pixel(b, TileView(at, [1], (LANES,), [1], None), self.function.inputs.__getitem__)
        dtype = conv.result_specs[0].dtype
        evaluator.registers[conv.results[0]] = b.cast("truncf", total, storage_type(dtype)) if dtype.is_short else total
        for op in self.kernel.ops[1:]:
            evaluator.run(op)
        n, c, y, x = at
        for number, memref in self.function.outputs.items():
            value = evaluator.registers[self.kernel.terminator.operands[number]]
            b.tile_store(value, memref, [n, y, x, c], [3])


class _Pixel(TileEvaluator):
    """Evaluates ops on channels of a pixel. What has the shape of the result is a map, all else is row-major."""

    def read(self, value: SSAValue, subs: Sequence[bound.Node]) -> SSAValue:
        if value in self.registers or spec_of(value.type).dims != self.dims:
            return super().read(value, subs)
        n, c, y, x = self.tile.indices
        return self.b.tile_load(self.memory(value), [n, y, x, c], [3], self.tile.shape)


def _inside(b: Simt, at: SSAValue, extent: int) -> SSAValue:
    """Return whether ``0 <= at < extent``."""
    return b.both(b.below(-1, at), b.below(at, extent))


DEPTHWISE = Depthwise()
