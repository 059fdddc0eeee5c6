"""The common part of lowering planned kernels for all targets that have kernel functions and a launch list (level 3 →
level 4).

Kernels of equal structure, choices, alias pattern and alignment share their functions, whatever their names and places;
a move whose pieces stand in place lowers to nothing, and pieces that do not are copied; run-time calls become lines of
``@main``. A target's own pass says what a kernel becomes, and how a launch of it is written. Imports `ir`, the builder
and the launch dialect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Generic, TypeVar

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.launches import Argument, Launch, LaunchMemory, Made
from lightnet.backends.launches import launch_memory_of as memory_of_launches
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import COPY, CopyOp, HostOp
from lightnet.dialects.ln.move import Copy
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import budget
from lightnet.ir.body import structure
from lightnet.ir.instances import symbols_in
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import (
    ARENA,
    STATIC,
    WORKSPACE_SIZE,
    memory_of,
    set_call_symbols,
    set_memory,
    size_attr,
    workspace_size,
)
from lightnet.ir.module import main_of
from lightnet.ir.op import TENSORS, WORKSPACE, LnOp, places_of
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import TensorSpec, flat_memref
from lightnet.ir.views import Piece, alignment_of, operand_pieces, place_of
from lightnet.runtime.arrays import ALIGNMENT, align_up
from lightnet.runtime.dim_bounds import are_apart
from lightnet.runtime.dims import Dim, Size, common_divisor, dim_max, is_never_below
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.program import is_port

M = TypeVar("M", bound=Made)


class Lowering(ABC, Generic[M]):
    """One planned module, lowered in place by `run`. `name` is the pass; choices in `free` change no function."""

    name: str
    free: tuple[str, ...] = (WORKSPACE_SIZE,)

    def __init__(self, module: ModuleOp):
        self.module = module
        self.functions: list[func.FuncOp] = []
        self.known: dict[object, list[M]] = {}
        self.needed: dict[object, LaunchMemory] = {}
        self.lines: list[Operation] = []
        self.names: dict[str, int] = {}
        self.added: Size = 0

    # -- what a target says

    @abstractmethod
    def generate(self, op: KernelOp, name: str, aliases: Mapping[int, int]) -> list[M]:
        """The launches of a kernel; `aliases` maps a result to the operand whose memory it takes."""

    @abstractmethod
    def adapted(self, launch: Launch) -> M:
        """A launch of a loop function over its blocks, as the target has it."""

    @abstractmethod
    def line(self, op: KernelOp, made: M, places: Sequence[PlaceAttr], memory: LaunchMemory) -> Operation:
        """The line of ``@main`` that runs a launch on memory at `places`."""

    # -- the module

    @property
    def arena_end(self) -> int:
        """The first byte behind the planned arena, aligned."""
        return align_up(memory_of(self.module)[ARENA])

    def settle_memory(self, ops: Iterable[Operation]) -> None:
        """Say how large each space is now: the arena with what was added, and ports in which something stands, if only
        for a caller."""
        standing = {place.space.data for op in ops for place in places_of(op)}
        sizes = {k: n for k, n in memory_of(self.module).items() if k in standing or not is_port(k)}
        if self.added != 0:
            sizes[ARENA] = self.arena_end + self.added
        if sizes != memory_of(self.module):
            set_memory(self.module, sizes)

    def run(self) -> None:
        main = main_of(self.module)
        for op in main.body.block.ops:
            try:
                budget.check(op)
                self.lower(op)
            except LightNetError as e:
                raise e.at(loc_of(op)) from None
        self.settle_memory(main.body.block.ops)
        set_call_symbols(self.module, (s for s, _ in symbols_in(self.module)))
        self.module.body.block.erase_op(main)
        block = self.module.body.block
        block.add_ops(self.functions)
        entry = Builder(func.FuncOp("main", ((), ())))
        entry.block.add_ops(self.lines)
        block.add_op(entry.finish())

    def lower(self, op: Operation) -> None:
        """Add the lines of an op of ``@main``, which have its place and the names of its results."""
        first = len(self.lines)
        self.add_lines(op)
        names = op.attributes.get(TENSORS)
        for line in self.lines[first:]:
            line.location = op.location
            if names is not None:
                line.attributes[TENSORS] = names

    def add_lines(self, op: Operation) -> None:
        if isinstance(op, Source | OnceOp | func.ReturnOp):
            return
        if isinstance(op, LnOp) and op.is_host:
            self.lines.append(_host_call(op))
            return
        if not isinstance(op, KernelOp):
            raise LightNetError(
                f"{op.name} cannot be lowered: the module is at no level that {self.name} takes (run expand)"
            )
        if any(place_of(r) is None for r in op.results):
            raise LightNetError(f"{op.name} has no place: run plan before {self.name}")
        pieces = operand_pieces(op)
        if (between := _between_spaces(op)) is not None:
            self.lines.append(between)
        elif len(moved := [p for p in pieces if p is not None]) == len(pieces):
            self.copy(op, moved)
        else:
            self.launch(op)

    # -- moves

    def copy(self, op: KernelOp, pieces: list[list[Piece]]) -> None:
        """Copy the pieces of a move that do not stand in place."""
        for result, parts in zip(op.results, pieces):
            to = placed(result)
            at = to.offset.data
            for operand, offset, size in parts:
                source = placed(op.operands[operand])
                start = source.offset.data + offset
                if (source.space, start) != (to.space, at):
                    unit = gcd(alignment_of([op.operands[operand], result]), *map(common_divisor, (start, at, size)), 8)
                    made = self.copied(size, unit)
                    places = [PlaceAttr(source.space, start), PlaceAttr(to.space, at)]
                    self.lines.append(self.line(op, made, places, LaunchMemory(0, 0)))
                at += size

    def copied(self, size: Size, unit: int) -> M:
        """The op that copies `size` bytes, `unit` at a time."""
        key = ("copy", size, unit)
        if key not in self.known:
            type = flat_memref(TensorSpec((size // unit,), BY_NAME[f"i{unit * 8}"]))
            symbols = size.symbols if isinstance(size, Dim) else ()
            b = Builder.kernel(self.fresh(COPY), [type, type], hints=["from", "to"], symbols=symbols)
            with b.loop(b.lo, b.hi) as i:
                b.store(b.load(b.args[0], [i.iv]), b.args[1], [i.iv])
            arguments = (Argument("operand", 0), Argument("result", 0))
            self.add(key, [self.adapted(Launch(b.finish(), size // unit, arguments))], unit)
        return self.known[key][0]

    # -- kernels

    def launch(self, op: KernelOp) -> None:
        aliases = _aliases(op)
        workspace = _workspace(op)
        apart = alignment_of([*op.operands, *op.results])  # which generators look at
        align = gcd(apart, common_divisor(workspace.offset.data) if workspace is not None else 0)
        values: dict[SSAValue, object] = {a: ("arg", i) for i, a in enumerate(op.body.args)}
        body = structure(list(op.body.ops), values)
        choices = tuple(sorted((k, v) for k, v in op.choices.items() if k not in self.free))
        key = (body, tuple(op.operand_types), choices, tuple(sorted(aliases.items())), apart, align)
        if key not in self.known:
            self.add(key, self.generate(op, self.fresh(_title(op)), aliases), align)
        memory, launches = self.needed[key], self.known[key]
        size = memory.size
        if workspace is not None and not is_never_below(workspace_size(op), size):
            raise LightNetError(f"{op.name} needs a workspace of {size} bytes, and {workspace_size(op)} are planned: "
                                "run choose and "
                                "plan again", label="kernel.workspace")  # fmt: skip
        if workspace is None and size != 0:  # planned elsewhere, without our workspace: it goes behind everything
            self.added = dim_max(self.added, size)
            workspace = PlaceAttr(ARENA, self.arena_end)
        for made in launches:
            self.lines.append(self.line(op, made, [_argument(op, a, workspace, memory) for a in made.args], memory))

    def add(self, key: object, launches: list[M], align: int) -> None:
        """Keep launches for equal kernels, whose memrefs are aligned to `align` bytes."""
        for function in dict.fromkeys(f for made in launches for f in made.functions):  # one may be launched often
            if align != ALIGNMENT:
                function.attributes["tile.align"] = IntegerAttr(align, i64)
            self.functions.append(function)
        self.known[key] = launches
        self.needed[key] = memory_of_launches(launches)

    def fresh(self, title: str) -> str:
        number = self.names[title] = self.names.get(title, -1) + 1
        return f"{title}_{number}"


def _argument(op: KernelOp, argument: Argument, workspace: PlaceAttr | None, memory: LaunchMemory) -> PlaceAttr:
    """The place of a launch's argument."""
    if argument.kind == "operand":
        return placed(op.operands[argument.number])
    if argument.kind == "result":
        return placed(op.results[argument.number])
    assert workspace is not None
    behind = align_up(memory.shared) if argument.kind == "scratch" else 0
    return PlaceAttr(workspace.space, workspace.offset.data + behind + argument.number)


def _title(kernel: KernelOp) -> str:
    """A name from the ops of a body: ``conv2d_relu``."""
    types = [op.optype for op in kernel.ops]
    return "_".join(types[:3]) + ("_etc" if len(types) > 3 else "")


def placed(value: SSAValue) -> PlaceAttr:
    """The place of a value; LightNetError where nothing is planned."""
    place = place_of(value)
    if place is None:
        raise LightNetError("a value has no place: run plan before lowering")
    return place


def _workspace(op: KernelOp) -> PlaceAttr | None:
    attr = op.attributes.get(WORKSPACE)
    return attr.data[0] if isinstance(attr, ArrayAttr) and attr.data else None


def _aliases(op: KernelOp) -> dict[int, int]:
    """Results that take the memory of an operand: result -> operand. Any other overlap of a result with an operand
    would break the promise that a function's memrefs are apart."""
    aliases: dict[int, int] = {}
    for j, result in enumerate(op.results):
        low, high = _bytes(result)
        for k, operand in enumerate(op.operands):
            start, end = _bytes(operand)
            if placed(operand).space != placed(result).space or are_apart(low, high - low, start, end - start):
                continue
            if low == high or start == end:  # nothing to share
                continue
            if (start, end) != (low, high) or j in aliases or k in aliases.values():
                raise LightNetError(
                    f"the plan lets result {j} of a {op.name} overlap its operand {k}: it cannot be lowered"
                )
            aliases[j] = k
    return aliases


def _bytes(value: SSAValue) -> tuple[Size, Size]:
    """The byte range of a planned value in its space."""
    start = placed(value).offset.data
    return start, start + byte_size(value.type)


def _between_spaces(op: KernelOp) -> CopyOp | None:
    """The line for a kernel that only copies from one memory space to another, of which one is not the ordinary memory
    of kernels (the arena, the static space, the caller's)."""
    if len(op.ops) != 1 or not isinstance(op.ops[0], Copy):
        return None
    source, to = placed(op.operands[0]), placed(op.results[0])
    spaces = {source.space.data, to.space.data}
    if len(spaces) == 1 or spaces <= {ARENA, STATIC} or any(map(is_port, spaces)):
        return None
    return CopyOp(byte_size(op.results[0].type), source, to)


def _host_call(op: LnOp) -> HostOp:
    """A run-time call: its parameters, and the type of its tensor."""
    spec = op.operand_specs[0]
    attributes: dict[str, Attribute] = {k: StringAttr(str(v)) for k, v in op.param_values().items()}
    attributes["dims"] = ArrayAttr([size_attr(d) for d in spec.dims])
    attributes["dtype"] = StringAttr(spec.dtype.name)
    return HostOp(op.optype, [placed(op.operands[0])], attributes)
