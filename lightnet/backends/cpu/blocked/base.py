"""What all kernels on blocked maps share: what a generator is, the memrefs, the epilogue on tiles, halos and unused lanes.

A map [N, C, H, W] in the layout ``c16h1`` is the memref [N, ceil(C/16), H+2, W+2, 16]. A tile of it is [rows, columns, vectors, 16]:
pixels by blocks of channels, in the order in which `tile.fma` makes it from pixels [rows, columns, K] and weights [K, vectors, 16].
Positions are logical: the halo of each map is added where it is read or written. Imports the builder, the epilogue and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Builder, Index, vector_type
from lightnet.backends.cpu.expressions import Evaluator, runs_on_tiles
from lightnet.backends.cpu.expressions import Tile as PlainTile
from lightnet.backends.cpu.launches import Argument, Launch
from lightnet.diagnostics import LightNetError
from lightnet.ir import bound
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, Layout, Packed, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr, TensorSpec, spec_of, storage_type
from lightnet.runtime.arrays import align_up

NO_HALO: Halo = (0, 0)


@dataclass(frozen=True)
class Machine:
    """The processor as the cost model sees it, one core. Sizes in bytes, rates per nanosecond (G/s)."""

    lanes: int = 16  # of f32 in a vector
    registers: int = 32  # vector registers
    flops: float = 236.0  # floating-point operations: 2 a multiply-add
    l1: int = 48 << 10
    l2: int = 1 << 20
    l2_bytes: float = 160.0  # read from the second-level cache
    l3_bytes: float = 90.0
    dram_bytes: float = 36.0
    threads: int = 1
    #: Times that transformed weights (Winograd's) may be as large as the weights: 4 allows all, 1 none.
    growth: float = 4.0


@runtime_checkable
class Generator(Protocol):
    """Makes kernel functions of one family; `alg` is the choice that names it. A class that derives from it has no choices, packs
    no weights and needs no memory unless it says so."""

    alg: str
    #: Whether results are those of a direct evaluation but for the order of sums (Winograd's are not).
    exact: bool = True

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], lanes: int) -> Form | None:
        """What the body needs, None where this is no generator for it. Ops may be those of a kernel, or a union that is not
        built yet; layouts of types do not count here."""

    def choices(self, kernel: KernelOp, machine: Machine) -> Mapping[str, Attribute]:
        """Tile, order and so on, by a model of the machine; those that the kernel has already are kept and may narrow the rest."""
        return {}

    def cost(self, kernel: KernelOp, machine: Machine) -> float:
        """Nanoseconds on one thread, roughly, with the kernel's present choices (or the default ones)."""

    def weights(self, kernel: KernelOp) -> Mapping[int, Layout]:
        """The layouts of operands to be packed, by operand number, for the kernel's choices."""
        return {}

    def scratch_bytes(self, kernel: KernelOp) -> int:
        """Bytes of memory that one thread uses while it runs."""
        return 0

    def workspace_bytes(self, kernel: KernelOp) -> int:
        """Bytes that one launch of the kernel leaves for the next, shared by all threads."""
        return 0

    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        """The functions; `aliases` maps a result to the operand whose memory it takes."""


# -- bodies ----------------------------------------------------------------------------------------------------------


def epilogue_form(anchor: LnOp, rest: Sequence[LnOp], yielded: Sequence[SSAValue], halos: Mapping[SSAValue, Halo],
                  weights: Sequence[SSAValue] = ()) -> Form | None:  # fmt: skip
    """The form of a body that is `anchor` and elementwise ops `rest` on its result, of f32 and of its shape [N, C, H, W]; `halos`
    has the maps that the anchor reads. None where the rest is no epilogue. Operands of the epilogue that have the result's shape
    and [N, C, 1, 1] are maps; vectors by channel are packed as ``v16``, so they must be static; scalars stay plain."""
    form = elementwise_form(anchor.result_specs[0], rest, yielded, halos, weights, anchor.results)
    inside = set(anchor.results)
    for op in rest:
        if not inside & set(op.operands):
            return None
        inside |= set(op.results)
    return form


def elementwise_form(shape: TensorSpec, ops: Sequence[LnOp], yielded: Sequence[SSAValue],
                     halos: Mapping[SSAValue, Halo], weights: Sequence[SSAValue] = (),
                     given: Sequence[SSAValue] = ()) -> Form | None:  # fmt: skip
    """The form of elementwise ops with results of `shape`, [N, C, H, W] of f32, on the values `given`, which are in registers, and
    on others; see `epilogue_form`."""
    if shape.dtype.name != "f32" or shape.ndim != 4 or shape.len == 0:
        return None
    inside, maps, packed = set(given), dict(halos), set(weights)
    for op in ops:
        if op.result_specs != [shape] or not runs_on_tiles(op):
            return None
        for value in op.operands:
            spec = spec_of(value.type)
            dims = spec.dims
            if value in inside:
                continue
            if spec.dtype != shape.dtype:
                return None
            if dims == shape.dims or (len(dims) == 4 and spec.len > 1 and dims[1:] == (shape.dims[1], 1, 1)):
                maps.setdefault(value, NO_HALO)
            elif all(d == 1 for d in dims):
                continue
            elif len(dims) < 4 and dims[0] == shape.dims[1] and all(d == 1 for d in dims[1:]):
                packed.add(value)
            else:
                return None
        inside |= set(op.results)
    return Form(maps, frozenset(packed)) if inside >= set(yielded) else None


def keeps_zero(ops: Sequence[LnOp]) -> bool:
    """Whether elementwise ops give 0 where everything they read is 0: then unused lanes, whose weights and biases are 0, stay 0."""
    inside = {r for op in ops for r in op.results}
    for op in ops:
        if any(s.len == 1 and v not in inside for s, v in zip(op.operand_specs, op.operands)):
            return False  # a scalar, which need not be 0
        zeros = [np.zeros(s.dims[:0] + (1,) * s.ndim, s.dtype.np) for s in op.operand_specs]
        with np.errstate(all="ignore"):
            found = op.reference(*zeros)
        found = found[0] if isinstance(found, tuple | list) else found
        if np.any(np.asarray(found) != 0):
            return False
    return True


def read_rate(machine: Machine, size: int) -> float:
    """Bytes a nanosecond that memory gives for data of `size` bytes which a kernel walks once."""
    return (
        machine.l2_bytes if size <= machine.l2 else machine.l3_bytes if size <= 16 * machine.l2 else machine.dram_bytes
    )


def map_lanes(kernel: KernelOp) -> int:
    """Channels in a block of the maps of a kernel."""
    layouts = [layout_of(v.type) for v in (*kernel.operands, *kernel.results)]
    return next(layout.block for layout in layouts if isinstance(layout, Blocked))


#: Pixels of a row up to which rows are joined, where there is no halo between them.
SHORT_ROW = 64


def joined_rows(values: Iterable[SSAValue], picture: tuple[int, int]) -> int:
    """How many rows of a picture (height, width) may count as one long row: 1 where one of the maps of that size has a halo."""
    height, width = picture
    for value in values:
        layout = layout_of(value.type)
        if isinstance(layout, Blocked) and layout.halo != NO_HALO and spec_of(value.type).dims[2:] == picture:
            return 1
    return next(k for k in range(1, height + 1) if height % k == 0 and (k * width >= SHORT_ROW or k == height))


def blocks_of(channels: int, lanes: int) -> int:
    """Blocks of `lanes` channels."""
    return -(-channels // lanes)


# -- kernels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """A tile of the result: picture `n`, from block `block` of channels and logical row `y` and column `x` on, of `shape`
    (rows, columns, vectors, lanes). `used` lanes of the last block of channels are channels (all
    of them where the others stay 0 by themselves)."""

    n: Index
    block: Index
    y: Index
    x: Index
    shape: tuple[int, int, int, int]
    used: int
    #: Rows and columns of the result from one pixel of the tile to the next.
    steps: tuple[int, int] = (1, 1)

    @property
    def strides(self) -> list[int] | None:
        """The steps of a slice of a map; None where its pixels are neighbours."""
        return None if self.steps == (1, 1) else [*self.steps, 1, 1]


@dataclass(frozen=True)
class Window:
    """Some rows of one picture of a map, in memory that is used again: those from row `first` of the layout on, or (`ring`) each row
    at its number modulo `ring`, so that the last so many rows are there. Of all blocks of channels, or those from `block` on."""

    first: Index = 0
    ring: int = 0
    block: Index = 0

    def within(self, b: Builder, block: Index) -> Index:
        """The block of the memory for a block of the map."""
        return block if b.number(self.block) == 0 else b.op(arith.SubiOp, b.index(block), b.index(self.block))

    def row(self, b: Builder, row: Index) -> Index:
        """The row of the memory for a row of the layout."""
        row = row if b.number(self.first) == 0 else b.op(arith.SubiOp, b.index(row), b.index(self.first))
        return b.op(arith.RemSIOp, b.index(row), b.index(self.ring)) if self.ring else row


@dataclass
class Host:
    """The function that a kernel's code becomes part of, instead of a function of its own: its builder, the memrefs of the kernel's
    operands and results, and the `windows` of maps that are not there as a whole."""

    b: Builder
    inputs: dict[SSAValue, SSAValue]
    results: list[SSAValue]
    windows: dict[SSAValue, Window]


class BlockedKernel:
    """A kernel function under construction. Memrefs: the kernel's operands, its results (but for those in `aliases`, which take an
    operand's memory), then `workspace` bytes, which the launches of the kernel share, and `scratch` bytes of the thread."""

    #: Whether the anchor makes each lane of all channels: then an infinity or NaN of any of them reaches unused lanes, too, as
    #: infinity * 0 is NaN.
    mixes_channels = False

    def __init__(self, kernel: KernelOp, name: str, lanes: int, aliases: Mapping[int, int], scratch: int = 0,
                 workspace: int = 0, host: Host | None = None):  # fmt: skip
        self.kernel, self.ops, self.lanes = kernel, kernel.ops, lanes
        self.anchor: LnOp = kernel.ops[0]
        self.yielded = list(kernel.terminator.operands)
        self.element = storage_type(self.anchor.result_specs[0].dtype)
        self.windows: Mapping[SSAValue, Window] = {}
        #: Whether a tile may lie on another: what is computed again would read its own result where that overwrites an operand.
        self.overlaps = not aliases
        if host is not None:
            self.b, self.inputs, self.results, self.windows = host.b, host.inputs, host.results, host.windows
            return
        fresh = [i for i in range(len(self.yielded)) if i not in aliases]
        values = [*kernel.body.args, *(self.yielded[i] for i in fresh)]
        types = [self.memref(v) for v in values]
        self.scratch_bytes = align_up(scratch) if scratch else 0
        types += [MemRefType(IntegerType(8), [align_up(size)]) for size in (workspace, scratch) if size]
        self.b = Builder.kernel(name, types, opt="none")
        args = list(self.b.args)
        self.inputs: dict[SSAValue, SSAValue] = dict(zip(kernel.body.args, args))
        made = dict(zip(fresh, args[len(kernel.body.args) :]))
        self.results = [args[aliases[i]] if i in aliases else made[i] for i in range(len(self.yielded))]
        self.scratch: SSAValue | None = args[-1] if scratch else None
        self.workspace: SSAValue | None = args[-2 if scratch else -1] if workspace else None
        operands = [Argument("operand", i) for i in range(len(kernel.operands))]
        tail = [Argument(kind, 0) for kind, size in (("workspace", workspace), ("scratch", scratch)) if size]
        self.arguments = (*operands, *(Argument("result", i) for i in fresh), *tail)

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a value from outside or of a result: a kernel may see the same bytes under other dims."""
        return memref_of(value.type)

    # -- geometry

    def halo(self, value: SSAValue) -> Halo:
        """The halo of a map."""
        layout = layout_of(value.type)
        return layout.halo if isinstance(layout, Blocked) else NO_HALO

    def at(self, value: SSAValue, n: Index, block: Index, y: Index, x: Index, lane: Index = 0) -> list[Index]:
        """The memref indices of a logical position of a map."""
        rows, cols = self.halo(value)
        return [*self.held(value, n, block, self.b.add(y, rows)), self.b.add(x, cols), lane]

    def held(self, value: SSAValue, n: Index, block: Index, row: Index) -> tuple[Index, Index, Index]:
        """Where the memref of a map has a picture, a block and a row of its layout: there, unless it holds a window only."""
        window = self.windows.get(value)
        return (n, block, row) if window is None else (0, window.within(self.b, block), window.row(self.b, row))

    @property
    def masked(self) -> int:
        """Lanes of the last block that are channels, where the others would not stay 0 by themselves; else 0."""
        channels = self.anchor.result_specs[0].dims[1]
        return channels % self.lanes if self.mixes_channels or not keeps_zero(self.ops[1:]) else 0

    @cached_property
    def used(self) -> int:
        """What a `Tile` says of lanes that are channels: how many are in the last block, or all."""
        return self.masked or self.lanes

    # -- writing

    def finish(self, tile: Tile, value: SSAValue) -> None:
        """Run the epilogue on a finished tile of the anchor's result, and store what the kernel yields."""
        evaluator = BlockedEvaluator(self, tile)
        evaluator.registers[self.anchor.results[0]] = value
        for op in self.ops[1:]:
            evaluator.run(op)
        for yielded, memref in zip(self.yielded, self.results):
            self.put(tile, evaluator.registers[yielded], yielded, memref)

    def put(self, tile: Tile, value: SSAValue, yielded: SSAValue, memref: SSAValue) -> None:
        """Store a tile of a result; lanes of the last vector that are no channels become 0."""
        b, where = self.b, self.at(yielded, tile.n, tile.block, tile.y, tile.x)

        def store(cleared: bool) -> None:
            kept = self.without_unused(tile, value) if cleared else value
            b.tile_store(kept, memref, where, [2, 3, 1, 4], steps=tile.strides)

        block, last = b.add(tile.block, tile.shape[2] - 1), blocks_of(spec_of(yielded.type).dims[1], self.lanes) - 1
        known = b.number(block)
        if known is not None or tile.used == self.lanes:
            store(known == last and tile.used < self.lanes)
            return
        for predicate, cleared in (("ne", False), ("eq", True)):
            with b.when(b.cmpi(predicate, b.index(block), b.index(last))):
                store(cleared)

    def without_unused(self, tile: Tile, value: SSAValue) -> SSAValue:
        """A tile with 0 in the lanes of its last vector that are no channels."""
        b, (_, _, vectors, lanes) = self.b, tile.shape
        bits = [v < vectors - 1 or lane < tile.used for v in range(vectors) for lane in range(lanes)]
        mask = b.broadcast(b.mask((1, 1, vectors, lanes), bits), tile.shape)
        return b.select(mask, value, b.broadcast(b.const(0.0, self.element), tile.shape))

    def zero_halos(self, n: Index, block: Index, blocks: int, first: Index, last: Index) -> None:
        """Write the halo of every result around its rows [first, last): the columns beside them, and the rows above and below where
        they are the first and the last of the picture. For `blocks` blocks of channels from `block` on."""
        for yielded, memref in zip(self.yielded, self.results):
            if self.halo(yielded) != NO_HALO:
                self.zero_halo(yielded, memref, n, block, blocks, first, last)

    def zero_halo(
        self, value: SSAValue, memref: SSAValue, n: Index, block: Index, blocks: int, first: Index, last: Index
    ) -> None:
        """`zero_halos` of one result."""
        b, (rows, cols) = self.b, self.halo(value)
        _, _, height, width = spec_of(value.type).dims
        zero = b.const(0.0, self.element)
        with b.loop(0, blocks) as v:
            at = b.add(block, v.iv)
            if cols:
                column = b.broadcast(zero, (cols, self.lanes))
                with b.loop(b.add(first, rows), b.add(last, rows)) as y:
                    for x in (0, width + cols):
                        b.tile_store(column, memref, [n, at, y.iv, x, 0], [3, 4])
            if rows:
                pixel = b.broadcast(zero, (self.lanes,))
                for edge, position, start in ((first, 0, 0), (last, height, height + rows)):
                    with self.only(edge, position), b.loop(start, start + rows) as y, b.loop(0, width + 2 * cols) as x:
                        b.tile_store(pixel, memref, [n, at, y.iv, x.iv, 0], [4])

    def row_end(self, first: Index, band: int, rows: int) -> Index:
        """The end of the band of rows that starts at `first`."""
        end = self.b.add(first, band)
        return end if rows % band == 0 else self.b.op(arith.MinSIOp, self.b.index(end), self.b.index(rows))

    def across(self, width: int, columns: int, body: Callable[[Index, int], None]) -> None:
        """`body` on tiles of [0, width), given the first column and how many: the last tile lies on the one before, or is narrower."""
        b, rest = self.b, width % columns
        if rest and self.overlaps:
            with b.loop(0, width, columns) as x:
                body(b.op(arith.MinSIOp, x.iv, b.index(width - columns)), columns)
            return
        with b.loop(0, width - rest, columns) as x:
            body(x.iv, columns)
        if rest:
            body(width - rest, rest)

    def down(self, first: Index, last: Index, height: int, rows: int, body: Callable[[Index, int], None]) -> None:
        """`body` on tiles of the rows [first, last) of `height`, given the first row and how many: what the last rows of a picture leave
        is a tile that lies on the one before, or single rows. A range is whole tiles, or all rows."""
        b, rest = self.b, height % rows
        if rest == 0 or self.overlaps:
            with b.loop(first, last, rows) as y:
                body(b.op(arith.MinSIOp, y.iv, b.index(height - rows)) if rest else y.iv, rows)
            return
        with b.loop(first, height - rest, rows) as y:
            body(y.iv, rows)
        with b.loop(height - rest, last) as y:
            body(y.iv, 1)

    @contextmanager
    def only(self, value: Index, number: int) -> Iterator[None]:
        """What is built inside runs where an index equals a number."""
        known = self.b.number(value)
        if known is not None and known == number:
            yield
            return
        with self.b.when(self.b.cmpi("eq", self.b.index(value), self.b.index(number))):
            yield

    # -- the grid

    def coordinates(self, block: SSAValue, extents: Sequence[int]) -> list[Index]:
        """A block's number as indices, the last extent running fastest."""
        found: list[Index] = []
        for extent in reversed(extents[1:]):
            block, index = self.b.divmod(block, extent)
            found.insert(0, index)
        return [block, *found]

    def done(self, grid: int) -> Launch:
        """The finished function over `grid` blocks."""
        return Launch(self.b.finish(), grid, self.arguments)


def memref_of(type: Attribute) -> MemRefType:
    """The memref of a tensor in its layout."""
    spec = spec_of(type)
    return MemRefType(storage_type(spec.dtype), layout_of(type).physical_dims(spec.dims))


class BlockedEvaluator(Evaluator):
    """Evaluates elementwise definitions on tiles of blocked maps."""

    def __init__(self, owner: BlockedKernel, tile: Tile):
        indices = [tile.n, 0, tile.y, tile.x]
        super().__init__(
            owner.b, PlainTile(indices, (2, 3, 1, 1), tile.shape, (1, 1, 1, 1), None), owner.inputs.__getitem__
        )
        self.owner, self.blocked = owner, tile
        self.narrow = False  # whether what is evaluated is one value a channel: a tile of one pixel

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is evaluated."""
        return (1, 1, *self.blocked.shape[2:]) if self.narrow else self.blocked.shape

    def type(self, element: Attribute) -> Attribute:
        return vector_type(self.shape, element)

    def _node(self, node, names, position, cache) -> SSAValue:
        """What depends on the channel alone is computed once, then repeated for each pixel."""
        if self.narrow or not isinstance(node, bound.Apply) or not self.by_channel(node, names):
            return super()._node(node, names, position, cache)
        self.narrow = True
        value = super()._node(node, names, position, {})
        self.narrow = False
        return self.b.broadcast(value, self.shape)

    def by_channel(self, node: bound.Node, names: Mapping[str, SSAValue]) -> bool:
        """Whether a node reads no map and nothing that is in registers."""
        values = [names[r.tensor] for r in bound.reads(node)]
        return all(v not in self.registers and spec_of(v.type).dims != self.dims for v in values)

    def read(self, value: SSAValue, subs: Sequence[bound.Node], position: Mapping[str, int]) -> SSAValue:
        """The tile of `value` at the current position: a map of the result's shape, or one value a channel (and picture) or in all,
        repeated."""
        if value in self.registers:
            return self.registers[value]
        b, tile, owner = self.b, self.blocked, self.owner
        memref, dims = owner.inputs[value], spec_of(value.type).dims
        if dims == self.dims:
            where = owner.at(value, tile.n, tile.block, tile.y, tile.x)
            return b.tile_load(memref, where, [2, 3, 1, 4], tile.shape, steps=tile.strides)
        if layout_of(value.type).is_plain:  # one value in all
            return b.broadcast(b.load(memref, [0] * len(memref.type.get_shape())), self.shape)
        walked = {position[s.name] for s in subs if isinstance(s, bound.Idx)}
        shape = (1, 1, *tile.shape[2:])
        if len(memref.type.get_shape()) == 2:  # a vector by channel: [blocks, lanes]
            lanes = b.tile_load(memref, [tile.block, 0], [0, 0, 0, 1], shape, steps=[0, 0, 1, 1])
        else:  # a map [N, C, 1, 1]
            lanes = b.tile_load(
                memref, owner.at(value, tile.n if 0 in walked else 0, tile.block, 0, 0), [2, 3, 1, 4], shape
            )
        return lanes if self.narrow else b.broadcast(lanes, tile.shape)


def choice_ints(kernel: KernelOp, name: str, length: int | None = None) -> tuple[int, ...] | None:
    """A choice of a kernel that is an array of integers, `length` of them if that is given; None where it has none. `LightNetError`
    for anything else."""
    attr = kernel.attributes.get(name)
    if attr is None:
        return None
    values = attr.data if isinstance(attr, ParamAttr | ArrayAttr) else None
    items = values if isinstance(values, tuple | list) else (None,)
    found = tuple(v.value.data if isinstance(v, IntegerAttr) else v for v in items)
    if not all(type(v) is int for v in found) or (length is not None and len(found) != length):
        what = "integers" if length is None else f"{length} integer{'s' * (length > 1)}"
        raise LightNetError(
            f"choice {name} = {attr}: expected an array of {what}", loc_of(kernel), label=f"choice.{name}"
        )
    return found


def vector_layouts(kernel: KernelOp, form: Form, lanes: int) -> dict[int, Layout]:
    """The layouts of what a kernel wants packed that is one value a channel."""
    outside = dict(zip(kernel.body.args, range(len(kernel.operands))))
    flat = {v: spec_of(v.type).dims for v in form.weights}
    return {outside[v]: Packed("v", lanes) for v, dims in flat.items() if all(d == 1 for d in dims[1:])}
