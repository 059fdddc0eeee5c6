"""``reorder``: changes of layout, row-major [N, C, H, W] to maps [N, H, W, C'], and back.

Both sides are a matrix [C, H·W] a picture, one of them transposed. A block moves a tile of it through shared memory, so
that neighbouring threads have neighbouring elements on both sides. Where there are few channels, a thread has four of a
pixel instead: its neighbours have them of the next pixels. Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.base import MAP, SimtGenerator, memory_time
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.loops import is_reorder
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Forms, Plan
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of, storage_type

#: Elements along both sides of a tile, and rows of it that a block's threads move at once.
SIDE, ROWS = 32, 8
#: Up to so many channels a thread has some of a pixel; it has this many of them.
FEW, GROUP = 16, 4
#: Threads of a block that has no tile.
THREADS = 128


class Reorder(SimtGenerator):
    """One `forward` of a tensor with four dims; here the types decide."""

    alg = "reorder"

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if not is_reorder(ops, yielded) or not spec_of(yielded[0].type).len:
            return Refusal("it is no change of a map's layout")
        return [Form({}), Form({ops[0].operands[0]: (0, 0)}, plain_results=True)]

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        spec = spec_of(kernel.results[0].type)
        return Plan.of(self, kernel, form, memory_time(spec.nbytes + MAP.size(spec), device))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        assert not aliases, "memory of two layouts cannot be shared"
        few = MAP.physical_dims(spec_of(kernel.results[0].type).dims)[3] <= FEW
        return [(_Pixels if few else _Tiles)(kernel, name).build()]


class _Reorder:
    """Builds one function. `forward` says that the result is the map; both memories are seen as matrices, [N, C, H·W]
    and [N, H·W, C']."""

    block = (THREADS, 1, 1)

    def __init__(self, kernel: KernelOp, name: str):
        dims = spec_of(kernel.results[0].type).dims
        self.pictures, self.channels, self.pixels = dims[0], dims[1], dims[2] * dims[3]
        self.lanes = MAP.physical_dims(dims)[3]
        self.forward = layout_of(kernel.results[0].type) == MAP
        self.function = KernelFunction(kernel, name, self.block, {}, shape=self.shape)
        self.b = self.function.b
        (self.source,), self.target = self.function.inputs.values(), self.function.outputs[0]
        self.zero = self.b.const(0, storage_type(spec_of(kernel.results[0].type).dtype))

    def shape(self, value: SSAValue) -> Sequence[int]:
        """The matrix that a value's memory is."""
        dims = spec_of(value.type).dims
        n, c, pixels = dims[0], dims[1], dims[2] * dims[3]
        return (n, c, pixels) if layout_of(value.type).is_plain else (n, pixels, MAP.physical_dims(dims)[3])

    def build(self) -> SimtLaunch:
        raise NotImplementedError

    def read(self, at: Sequence[Index], inside: SSAValue | None) -> SSAValue:
        """An element of the source, zero where it is not inside (None: it is)."""
        if inside is None:
            return self.b.load(self.source, at)
        return self.b.choose(inside, lambda: [self.b.load(self.source, at)], lambda: [self.zero])[0]

    def write(self, value: SSAValue, at: Sequence[Index], inside: SSAValue | None) -> None:
        if inside is None:
            return self.b.store(value, self.target, at)
        with self.b.when(inside):
            self.b.store(value, self.target, at)


class _Tiles(_Reorder):
    """A block has a tile of 32 channels and 32 pixels, in rows of 33 elements, so that its columns lie in different
    banks."""

    block = (SIDE, ROWS, 1)

    def build(self) -> SimtLaunch:
        b, forward = self.b, self.forward
        channel_tiles, pixel_tiles = -(-self.lanes // SIDE), -(-self.pixels // SIDE)
        rest, pixel = b.divmod(b.block_id(), pixel_tiles)
        n, channel = b.divmod(rest, channel_tiles)
        x, y = b.thread_id("x"), b.thread_id("y")
        tile = b.shared((SIDE, SIDE + 1), self.zero.type, name="tile")
        first = {"channel": b.mul(channel, SIDE), "pixel": b.mul(pixel, SIDE)}
        rows, cols = ("channel", "pixel") if forward else ("pixel", "channel")
        for k in range(0, SIDE, ROWS):
            row = b.add(y, k)
            at = {rows: b.add(first[rows], row), cols: b.add(first[cols], x)}
            b.store(self.read([n, at[rows], at[cols]], self.inside(at, self.channels)), tile, [row, x])
        b.barrier()
        for k in range(0, SIDE, ROWS):
            row = b.add(y, k)
            at = {cols: b.add(first[cols], row), rows: b.add(first[rows], x)}
            limit = self.lanes if forward else self.channels
            self.write(b.load(tile, [x, row]), [n, at[cols], at[rows]], self.inside(at, limit))
        return self.function.launch((self.pictures * channel_tiles * pixel_tiles, 1, 1))

    def inside(self, at: Mapping[str, SSAValue], channels: int) -> SSAValue | None:
        """Return whether a pixel and a channel are inside; None where all are."""
        b = self.b
        tests = [b.below(at[k], n) for k, n in (("channel", channels), ("pixel", self.pixels)) if n % SIDE]
        return None if not tests else tests[0] if len(tests) == 1 else b.both(*tests)


class _Pixels(_Reorder):
    """A thread has four channels of a pixel: 16 bytes of f32 of the map."""

    def build(self) -> SimtLaunch:
        b, groups = self.b, self.lanes // GROUP
        total = self.pictures * groups * self.pixels
        number = b.add(b.mul(b.block_id(), THREADS), b.thread_id())
        with b.when(b.below(number, total)):
            rest, pixel = b.divmod(number, self.pixels)
            n, group = b.divmod(rest, groups)
            channels = [b.add(b.mul(group, GROUP), k) for k in range(GROUP)]
            inside = [self.inside(k, c, groups) for k, c in enumerate(channels)]
            plain, lanes = ([n, c, pixel] for c in channels), ([n, pixel, c] for c in channels)
            if self.forward:
                found = [self.zero if i is False else self.read(at, i) for at, i in zip(plain, inside)]
                for value, at in zip(found, lanes):
                    self.write(value, at, None)
            else:
                found = [self.read(at, None) for at in lanes]
                for value, at, i in zip(found, plain, inside):
                    if i is not False:
                        self.write(value, at, i)
        return self.function.launch((-(-total // THREADS), 1, 1))

    def inside(self, k: int, channel: SSAValue, groups: int) -> SSAValue | bool | None:
        """Return whether channel number `k` of a group is one; None where it is in all groups, False where it is in
        none.
        """
        if not self.channels % GROUP or k < self.channels % GROUP:
            return None
        return False if groups == 1 else self.b.below(channel, self.channels)


REORDER = Reorder()
