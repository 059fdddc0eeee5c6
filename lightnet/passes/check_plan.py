"""`check-plan`: is the plan of a module right? It trusts nothing but the IR and the places written on it.

The checker runs the network on a map of each memory space that records, for every byte, which byte of which computed
value it holds (moves copy those records). Every operand must be found whole at its place when its op runs, outputs at
the end, and inputs and static tensors after that too, since the next call needs them. Within an op, a result may touch
an operand only where the op is a move whose bytes stand in place, or where the operand is read at exactly the element
that is written. So disjoint lifetimes need no notion of liveness here: what nobody reads any more may be overwritten.
Where calls decide sizes and offsets, the map holds what is proved for all values of symbols, and a plan is right if
that is enough.

Plans by upstream's rules (`ln.plan = "upstream"`) may also write results over the operand that owns their memory, and
lose static tensors and outputs that nobody consumes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input, Source
from lightnet.dialects.ln.structure import OnceOp, planned_ops
from lightnet.ir.interval_map import IntervalMap, OpenIntervalMap
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import is_upstream, memory_of, workspace_size
from lightnet.ir.module import main_of, op_label, value_name
from lightnet.ir.op import WORKSPACE, LnOp, places_of
from lightnet.ir.passes import LnPass
from lightnet.ir.place import PlaceAttr
from lightnet.ir.reserved import grown
from lightnet.ir.types import spec_of
from lightnet.ir.views import cut_pieces, joined_pieces, operand_pieces, overwritable
from lightnet.passes.plan import CAPACITY
from lightnet.runtime.dim_bounds import are_apart
from lightnet.runtime.dims import Dim, Size, Undecided, dim_max, dim_min, greatest, is_known, is_never_below
from lightnet.runtime.program import is_port, ports_of

#: (leaf, offset, size): bytes of a computed value, or of None where nothing is known to stand.
Run = tuple["Leaf | None", int, int]


@dataclass(frozen=True)
class CheckPlanPass(LnPass):
    """Check a planned module. `capacity` (bytes, for each space) and `alignment` (bytes; of values that share no memory
    with another) are checked when given."""

    name = "check-plan"
    level = "plan"

    capacity: int | None = None
    alignment: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_plan(op, capacity=self.capacity or CAPACITY, alignment=self.alignment)


def check_plan(module: ModuleOp, *, capacity: int = CAPACITY, alignment: int | None = None) -> None:
    """Raise `LightNetError` unless every value of `module` has a place at which it survives until its last use."""
    _Checker(module, capacity, alignment).run()


@dataclass(frozen=True, eq=False)
class Leaf:
    """A piece that an op writes: a result, or the garbage of a workspace."""

    name: str
    op: str
    where: str


class ByteMap:
    """A memory space as runs of known bytes: what each byte is of, and the place where the first byte of that would
    stand. Parts written in place leave the whole whole."""

    def __init__(self, is_open: bool = False) -> None:
        self._bytes: IntervalMap[tuple[Leaf | None, int]] = OpenIntervalMap() if is_open else IntervalMap()

    def write(self, at: int, runs: list[Run]) -> None:
        """Put `runs` one behind the other from byte `at` on."""
        for leaf, offset, size in runs:
            self._bytes.set(at, at + size, (leaf, at - offset))
            at += size

    def read(self, at: int, size: int) -> list[Run]:
        """The contents of `size` bytes from `at` on."""
        parts = self._bytes.parts(at, at + size)
        return [(None, 0, b - a) if known is None else (known[0], a - known[1], b - a) for a, b, known in parts]

    def forget(self, leaves: Collection[Leaf | None]) -> None:
        """Drop what nobody reads any more, where each fact costs time."""
        if isinstance(self._bytes, OpenIntervalMap) and leaves:
            self._bytes.drop(lambda value: value[0] in leaves)


class _Checker:
    def __init__(self, module: ModuleOp, capacity: int, alignment: int | None):
        self.upstream = is_upstream(module)
        self.capacity = capacity
        self.alignment = alignment
        self.sizes = memory_of(module)
        self.ops = planned_ops(main_of(module).body.block)
        if not self.sizes:
            raise LightNetError("the module has no plan: run the plan pass first", label="check-plan.unplanned")
        values = [r for op in self.ops for r in op.results]
        offsets = [p.offset.data for op in self.ops for p in (*places_of(op), *self.workspace(op))]
        self.is_open = not is_known([*self.sizes.values(), *map(_size, values), *offsets])
        self.maps = {space: ByteMap(self.is_open) for space in self.sizes}
        self.content: dict[SSAValue, list[Run]] = {}
        self.kept: list[OpResult] = []  # what must survive the run
        self.caches = {op.operands[k] for op in self.ops for k, _ in grown(op)}  # which become results where they are
        self.read_last: dict[Leaf | None, Operation] = {}  # where calls decide sizes: which op reads a leaf last

    def run(self) -> None:
        self.check_ranges()
        self.check_ports()
        for op in self.ops:
            if isinstance(op, Source | OnceOp):
                self.load(op)
        if self.is_open:
            self.trace()
        for op in self.ops:
            self.step(op)
        if self.upstream:
            return
        for value in self.kept:
            self.expect(value, self.ops[-1], "the next call needs")

    # -- places by themselves

    def check_ranges(self) -> None:
        for space, size in self.sizes.items():
            if greatest(size) > self.capacity:
                up_to = f", up to {size.high}" if isinstance(size, Dim) else ""
                raise LightNetError(
                    f"memory space '{space}' has {size} bytes{up_to}, the capacity is {self.capacity}",
                    label="check-plan.capacity",
                )
        for op in self.ops:
            if len(places_of(op)) != len(op.results):
                raise self.error(op, "planned", f"has {len(op.results)} results, but {len(places_of(op))} places")
            for value in op.results:
                self.check_range(op, value)
            for place in self.workspace(op):
                self.check_bounds(op, "its workspace", place, workspace_size(op))

    def is_inside(self, space: str, end: Size) -> bool:
        """Return whether an end is proved to be inside of its space: by itself, or as it is not behind the end of
        another value which is. A space is as long as the maximum of ends, of which each is left out that is proved not
        to be behind another: what such steps prove need not be seen in one."""
        limit = self.sizes[space]
        if is_never_below(limit, end):
            return True
        places = [(self.place(v), byte_size(v.type)) for op in self.ops for v in op.results]
        ends = {place.offset.data + size for place, size in places if place.space.data == space}
        return any(is_never_below(other, end) and is_never_below(limit, other) for other in ends)

    def check_ports(self) -> None:
        """A port is, as a whole, the memory of one input or of one output, or of both, where one grows into the other;
        one in which nothing stands is nobody's."""
        last = self.ops[-1] if self.ops else None
        returned = [v for v in last.operands if isinstance(v, OpResult)] if isinstance(last, ReturnOp) else []
        inputs = [op.results[0] for op in self.ops if isinstance(op, Input)]
        standing = {self.place(v).space.data for op in self.ops for v in op.results}
        for space in ports_of(space for space in self.sizes if space in standing):
            kinds = {"input": inputs} if not space.startswith("out") else {}
            kinds |= {"output": returned} if not space.startswith("in") else {}
            for what, values in kinds.items():
                if any(self.place(v) == PlaceAttr(space, 0) and _size(v) == self.sizes[space] for v in values):
                    continue
                raise LightNetError(f"the plan is wrong: port '{space}' of {self.sizes[space]} bytes is the memory of "
                                    f"no {what}",
                                    label="check-plan.port")  # fmt: skip
            if space.startswith("cache"):
                self.check_cache(space)
        for op in self.ops:
            for place in map(self.place, op.results):
                fits = isinstance(op, Input) and not place.space.data.startswith("out")
                if isinstance(op, Source | OnceOp) and is_port(place.space.data) and not fits:
                    raise self.error(op, "port", f"stands at {place}, which is for another")
            for place in self.workspace(op):
                if is_port(place.space.data):
                    raise self.error(op, "port", f"its workspace stands at {place}, which is the caller's memory")

    def check_cache(self, space: str) -> None:
        """Raise where more stands in a port than an input that grows, and the output that it becomes."""
        pairs = ((op.operands[k], op.results[j]) for op in self.ops for k, j in grown(op))
        standing = {v for op in self.ops for v in op.results if self.place(v).space.data == space}
        if not any(standing == {*pair} for pair in pairs):
            raise LightNetError(f"the plan is wrong: in '{space}' stands more than an input that grows, and the output "
                                "that it becomes", label="check-plan.port")  # fmt: skip

    def check_range(self, op: Operation, value: OpResult) -> None:
        spec, place = spec_of(value.type), self.place(value)
        self.check_bounds(op, f"'{value_name(value)}'", place, byte_size(value.type))
        unit = 1 if self.upstream else spec.dtype.size
        if self.alignment is not None and not self.shares(value):
            unit = self.alignment
        if place.offset.data % unit != 0:
            raise self.error(
                op, "alignment", f"'{value_name(value)}' stands at {place}, which is no multiple of {unit}"
            )

    def check_bounds(self, op: Operation, what: str, place: PlaceAttr, size: int) -> None:
        limit = self.sizes.get(place.space.data)
        if limit is None:
            raise self.error(op, "space", f"{what} stands at {place}; the module's spaces are {', '.join(self.sizes)}")
        if not self.is_inside(place.space.data, place.offset.data + size):
            raise self.error(op, "bounds", f"{what} takes {_bytes(place, size)}, but the space has {limit} bytes")

    def shares(self, value: OpResult) -> bool:
        """Return whether a value is a part of another one or has parts: then only its group is aligned."""
        others = [*value.op.operands, *(r for use in value.uses for r in use.operation.results)]
        return any(isinstance(o, OpResult) and places_of(o.op) and self.overlap(value, o) for o in others)

    # -- the run

    def load(self, op: Operation) -> None:
        """Put in memory what is there before the first op: inputs, params and results of ln.once."""
        for value in op.results:
            place, size = self.place(value), byte_size(value.type)
            for leaf, _, _ in self.maps[place.space.data].read(place.offset.data, size):
                if leaf is not None:
                    raise self.error(
                        op,
                        "overlap",
                        f"'{value_name(value)}' at {_bytes(place, size)} overlaps "
                        f"'{leaf.name}' of `{leaf.op}` at {leaf.where}; both live throughout",
                    )
            self.store(op, value, None)
            if value not in self.caches or not place.space.data.startswith("cache"):
                self.kept.append(value)

    def trace(self) -> None:
        """Find which op reads each leaf last."""
        for op in self.ops:
            for value in op.operands if not isinstance(op, Source | OnceOp) else ():
                self.read_last.update((leaf, op) for leaf, _, _ in self.content.get(value, ()))
            for value, runs in self.moved(op).items() if not isinstance(op, Source | OnceOp) else ():
                self.content[value] = self.content_of(op, value, runs)
                self.read_last.update((leaf, op) for leaf, _, _ in self.content[value])
        for value in self.kept:
            for leaf, _, _ in self.content[value]:
                self.read_last.pop(leaf, None)

    def step(self, op: Operation) -> None:
        if isinstance(op, Source | OnceOp):
            return
        if not (isinstance(op, ReturnOp) and self.upstream):
            for value in op.operands:
                if isinstance(value, OpResult):
                    self.expect(value, op, f"`{op_label(op)}` reads")
        new = self.moved(op)
        self.check_op(op, new)
        for place in self.workspace(op):
            garbage = Leaf(f"workspace of {op_label(op)}", op_label(op), _bytes(place, workspace_size(op)))
            self.maps[place.space.data].write(place.offset.data, [(garbage, 0, workspace_size(op))])
            self.maps[place.space.data].forget([garbage])
        for value, runs in new.items():
            self.store(op, value, runs)
        if self.read_last:
            dead = {leaf for leaf, last in self.read_last.items() if last is op}
            for space in self.maps.values():
                space.forget(dead)

    def moved(self, op: Operation) -> dict[OpResult, list[Run] | None]:
        """The contents of results that are moved; None of those that are computed."""
        new: dict[OpResult, list[Run] | None] = {}
        for value, pieces in zip(op.results, operand_pieces(op)):
            parts = None if pieces is None else [_cut(self.content[op.operands[k]], at, n) for k, at, n in pieces]
            known = [part for part in parts or () if part is not None]
            whole = parts is not None and len(known) == len(parts)
            new[value] = joined_pieces([run for part in known for run in part]) if whole else None
        return new

    def content_of(self, op: Operation, value: OpResult, runs: list[Run] | None) -> list[Run]:
        """The contents of a result: `runs`, or bytes of its own."""
        if (known := self.content.get(value)) is not None:
            return known
        size = _size(value)
        own = Leaf(value_name(value), op_label(op), _bytes(self.place(value), size))
        return [] if size == 0 else runs or [(own, 0, size)]

    def store(self, op: Operation, value: OpResult, runs: list[Run] | None) -> None:
        self.content[value] = self.content_of(op, value, runs)
        place = self.place(value)
        self.maps[place.space.data].write(place.offset.data, self.content[value])

    def expect(self, value: OpResult, op: Operation, who: str) -> None:
        """The value must stand whole at its place."""
        place, at = self.place(value), 0
        found = self.maps[place.space.data].read(place.offset.data, byte_size(value.type))
        wanted = joined_pieces(self.content[value])
        if found == wanted:
            return
        for leaf, offset, size in found:
            if leaf is None or _cut(wanted, at, size) != [(leaf, offset, size)]:
                nothing = "what other values may have written" if isinstance(at + size, Dim) else "nothing known"
                by = f"'{leaf.name}' of `{leaf.op}` at {leaf.where}" if leaf is not None else nothing
                raise self.error(
                    op,
                    "overlap",
                    f"{who} '{value_name(value)}' of `{op_label(value.op)}` at "
                    f"{_bytes(place, byte_size(value.type))}, but {size} of its bytes from "
                    f"{place.space.data}+{place.offset.data + at} on hold {by}",
                )
            at += size
        raise AssertionError("unequal runs without a difference")

    def check_op(self, op: Operation, new: dict[OpResult, list[Run] | None]) -> None:
        """Check that what an op writes does not damage what the same op reads, nor anything else that it writes."""
        pairs: list[tuple[int, int]] | None = None
        for j, (value, runs) in enumerate(new.items()):
            written: OpResult | None = None  # the operand that the result takes the bytes of
            for k, operand in enumerate(op.operands):
                if not isinstance(operand, OpResult) or (shared := self.overlap(value, operand)) is None:
                    continue
                if runs is not None and self.stands(op, j, operand) and self.same_content(value, runs, operand, shared):
                    continue
                pairs = overwritable(op) if pairs is None else pairs
                if self.place(value) == self.place(operand) and ((k, j) in pairs or self.owns(op, k, j)):
                    if written is not None and written is not operand and not self.upstream:
                        raise self.error(
                            op,
                            "overlap",
                            f"its result {self.described(value)} overlaps two operands, "
                            f"{self.described(written)} and {self.described(operand)}",
                        )
                    written = operand
                    continue
                raise self.error(
                    op,
                    "overlap",
                    f"its result {self.described(value)} overlaps its operand "
                    f"{self.described(operand)} of `{op_label(operand.op)}`, which it does not read at "
                    "exactly the element that it writes",
                )
            for other in list(new)[:j]:
                if self.overlap(value, other) is not None:
                    raise self.error(
                        op, "overlap", f"its results {self.described(other)} and {self.described(value)} overlap"
                    )
        for place in self.workspace(op):
            for value in [*op.results, *op.operands]:
                if isinstance(value, OpResult) and _meet(place, workspace_size(op), self.place(value), _size(value)):
                    raise self.error(
                        op,
                        "overlap",
                        f"its workspace at {_bytes(place, workspace_size(op))} overlaps "
                        f"{self.described(value)} of `{op_label(value.op)}`",
                    )

    def stands(self, op: Operation, j: int, read: OpResult) -> bool:
        """Return whether a move need not copy anything from the operand `read` to result `j`."""
        to, source = self.place(op.results[j]), self.place(read)
        at = to.offset.data
        for operand, offset, size in operand_pieces(op)[j] or ():
            if op.operands[operand] is read and source.offset.data + offset != at:
                return False
            at += size
        return True

    def same_content(self, value: OpResult, runs: list[Run], operand: OpResult, shared: tuple[int, int]) -> bool:
        lo, hi = shared
        ours = _cut(runs, lo - self.place(value).offset.data, hi - lo)
        theirs = _cut(self.content[operand], lo - self.place(operand).offset.data, hi - lo)
        return ours is not None and theirs is not None and joined_pieces(ours) == joined_pieces(theirs)

    def owns(self, op: Operation, k: int, j: int) -> bool:
        """Upstream's rule: the result is made in its owner's memory."""
        if not self.upstream:
            return False
        inner = op.ops[0] if isinstance(op, KernelOp) and len(op.ops) == 1 else op
        if not isinstance(inner, LnOp):
            return False
        operands, _ = inner.arg_names()
        owner = inner.schema.results[min(j, len(inner.schema.results) - 1)].owner
        return owner is not None and operands.index(owner) == k

    # -- helpers

    def place(self, value: OpResult) -> PlaceAttr:
        return places_of(value.op)[value.index]

    def overlap(self, a: OpResult, b: OpResult) -> tuple[int, int] | None:
        """The bytes that two values share."""
        p, q = self.place(a), self.place(b)
        if p.space != q.space:
            return None
        if are_apart(p.offset.data, _size(a), q.offset.data, _size(b)):
            return None
        lo = dim_max(p.offset.data, q.offset.data)
        hi = dim_min(p.offset.data + _size(a), q.offset.data + _size(b))
        return (lo, hi) if lo != hi else None  # type: ignore[return-value]

    def workspace(self, op: Operation) -> list[PlaceAttr]:
        attr = op.attributes.get(WORKSPACE)
        return [p for p in attr if isinstance(p, PlaceAttr)] if isinstance(attr, ArrayAttr) else []

    def described(self, value: OpResult) -> str:
        return f"'{value_name(value)}' at {_bytes(self.place(value), _size(value))}"

    def error(self, op: Operation, label: str, text: str) -> LightNetError:
        return LightNetError(f"the plan is wrong: `{op_label(op)}`: {text}", loc_of(op), f"check-plan.{label}")


def _size(value: SSAValue) -> int:
    return byte_size(value.type)


def _cut(runs: list[Run], at: int, size: int) -> list[Run] | None:
    """The part of runs from byte `at` on; None where calls differ in what it is."""
    try:
        return cut_pieces(runs, at, size)
    except Undecided:
        return None


def _bytes(place: PlaceAttr, size: int) -> str:
    return f"{place.space.data} [{place.offset.data}, {place.offset.data + size})"


def _meet(a: PlaceAttr, size_a: int, b: PlaceAttr, size_b: int) -> bool:
    return a.space == b.space and not are_apart(a.offset.data, size_a, b.offset.data, size_b)
