"""Level 4 beside level 3: each distinct kernel function of a lowered module, on some blocks of its grid. Kernels of
threads (target cuda) run as what `simt-to-cpu` makes of a copy.

The planned module is executed op by op; before an op whose functions nobody has run yet, its launches run in the loop
interpreter on a copy of the memory, and what they write is compared with what the op gives. Imports the interpreters
and the files of this folder.
"""

from __future__ import annotations

import random
import sys
import time
from itertools import groupby

import numpy as np
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass

from lightnet.backends.interpreter.arena import POISON
from lightnet.backends.loop_cost import LoopCost
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.dialects import launch
from lightnet.dialects.accesses import LineAccesses
from lightnet.dialects.launch import LaunchOp
from lightnet.dialects.ln.source import Input, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.arrays import from_memory, to_memory
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.memory import MEMORY, memory_of, workspace_size
from lightnet.ir.module import main_of
from lightnet.ir.names import PLACES, WORKSPACE
from lightnet.ir.op import tensor_name
from lightnet.ir.rewrites import op_and_name
from lightnet.ir.runtime import ThreadRunner
from lightnet.ir.target import lowered_by
from lightnet.ir.types import spec_of
from lightnet.ir.views import place_of
from lightnet_trust.baseline import Baseline
from lightnet_trust.calls import lowered_call
from lightnet_trust.compare import Mismatch, differing, mismatch
from lightnet_trust.interpreter.loops import LoopProgram
from lightnet_trust.record import Difference, DifferenceError
from lightnet_trust.trace import TracedPlanned

PRIVATE = StringAttr("private")
#: Steps (ops of loops, roughly a microsecond each) that one kernel, and all of them, may take.
MAX_STEPS, MAX_ALL_STEPS = 600_000, 4_000_000
#: The same of launches as threads, all blocks of them.
MAX_THREAD_STEPS, MAX_ALL_THREAD_STEPS = 10_000_000, 40_000_000
#: Blocks of a grid that are run where not all of them can be, and seconds for them.
BLOCKS, SECONDS = 4, 0.2


def check_level4(
    ctx: Context, pass_: ModulePass, before: ModuleOp, module: ModuleOp, baseline: Baseline
) -> tuple[Difference | None, list[str]]:
    """The first difference between a planned module and what `pass_` lowered it to, and notes on what was not
    executed."""
    if not memory_of(before):
        return None, ["nothing is compared, as the module before it is not planned"]
    runtime = lowered_by(pass_.name)
    threads = runtime.as_threads(module)
    try:
        module = runtime.as_loops(ctx, module)
        lines = lines_by_op(ctx, pass_, before, module)
    except LightNetError as e:
        return None, [f"nothing is compared: {e.message}"]
    check = _Check(module, lines, threads)
    for values, runs in groupby(baseline.runs, lambda run: run[0].values):
        planned = before
        if values:
            planned, lowered, in_call = lowered_call(before, module, lines, values)
            check.begin_call(lowered, in_call, threads and threads.of_call(values))
        for data, reference in runs:
            try:
                _Lockstep(check, planned, data.contents, baseline.evaluator, reference, False).trace()
            except DifferenceError as e:
                return Difference(**{**vars(e.difference), "data": str(data)}), check.notes()
            if check.steps > MAX_STEPS or check.thread_steps > MAX_THREAD_STEPS:  # on further data where that is cheap
                break
            check.kinds.clear()
    return None, check.notes()


def lines_by_op(ctx: Context, pass_: ModulePass, before: ModuleOp, module: ModuleOp) -> dict[Operation, list[LaunchOp]]:
    """The launches that each op of a planned module became. How many there are follows from lowering the op alone; it
    is the lowered module's own launches that are returned. Raises `LightNetError` where the numbers do not fit."""
    lines = launch.lines_of(module)
    found: dict[Operation, list[LaunchOp]] = {}
    at = 0
    for op in main_of(before).body.block.ops:
        if isinstance(op, Source | OnceOp | func.ReturnOp):
            continue
        count = len(main_of(_lowered_alone(ctx, pass_, before, op)).body.block.ops) - 1  # the last one returns
        found[op] = [line for line in lines[at : at + count] if isinstance(line, LaunchOp)]
        at += count
    if at != len(lines):
        raise LightNetError(f"its {len(lines)} launches cannot be told apart: one op at a time gives {at}")
    return found


def _lowered_alone(ctx: Context, pass_: ModulePass, before: ModuleOp, op: Operation) -> ModuleOp:
    block = Block()
    values: dict[SSAValue, SSAValue] = {}
    for value in dict.fromkeys(op.operands):
        source = Input.make([], {"dtype": spec_of(value.type).dtype.tl, "dims": spec_of(value.type).dims})
        source.results[0]._type = value.type
        if (place := place_of(value)) is not None:
            source.attributes[PLACES] = ArrayAttr([place])
        block.add_op(source)
        values[value] = source.results[0]
    block.add_ops([op.clone(values), func.ReturnOp()])
    main = func.FuncOp("main", ((), ()))
    main.body.detach_block(main.body.block)
    main.body.add_block(block)
    module = ModuleOp([main], attributes={MEMORY: before.attributes[MEMORY]})
    pass_.apply(ctx, module)
    return module


@dataclass
class _Check:
    """The part of a lowered module that has been run."""

    module: ModuleOp
    lines: dict[Operation, list[LaunchOp]]
    #: Of kernels of threads, their launches as these; of each launch of loops there is one.
    threads: ThreadRunner | None
    as_loops: set[str] = field(default_factory=set)
    as_threads: set[str] = field(default_factory=set)
    kinds: set[tuple[frozenset[str], str]] = field(default_factory=set)
    partly: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    steps: int = 0

    def __post_init__(self) -> None:
        self.program = LoopProgram(self.module)
        self.steps_of = LoopCost(self.program.functions).of
        self.accesses = LineAccesses(self.module)
        self.random = random.Random(0)
        every = [line for line in launch.launches(self.module) if isinstance(line, LaunchOp)]
        self.launches = dict(zip(every, self.threads.launches, strict=True)) if self.threads is not None else {}
        self.thread_steps = 0

    def begin_call(
        self, module: ModuleOp, lines: dict[Operation, list[LaunchOp]], threads: ThreadRunner | None
    ) -> None:
        """Go on with what a network whose dims calls decide is in another call."""
        self.module, self.lines, self.threads = module, lines, threads
        self.steps = 0
        self.kinds.clear()
        self.__post_init__()

    @property
    def run(self) -> set[str]:
        """The functions that were executed in some way."""
        return self.as_loops | self.as_threads

    def notes(self) -> list[str]:
        every = sum(f.sym_visibility != PRIVATE for f in self.program.functions.values())
        notes = [
            f"{len(self.run)} of {every} kernel functions are executed, {len(self.partly)} of them on some blocks only"
        ]
        if self.threads is not None:
            only = f", {n} only so" if (n := len(self.as_threads - self.as_loops)) else ""
            notes.append(f"{len(self.as_threads)} of them as threads, in the interpreter of PTX{only}")
        left = sorted(self.skipped - self.run)
        if left:
            names = ", ".join(f"@{n}" for n in left[:8]) + (", ..." if len(left) > 8 else "")
            notes.append(f"not executed, as that takes too long: {names}")
        return notes

    def wanted(self, op: KernelOp) -> list[LaunchOp]:
        """The launches of an op if nobody has run their functions yet, for a kernel that computes the same, and they
        can be afforded in some way."""
        lines = self.lines.get(op, [])
        names = {line.callee.string_value() for line in lines}
        kind = (frozenset(names), _computes(op))
        if not names or kind in self.kinds:
            return []
        if not (self.affords_loops(lines) or self.affords_threads(lines)):
            self.skipped |= names
            return []
        self.kinds.add(kind)
        return lines

    def loop_cost(self, lines: list[LaunchOp]) -> int:
        """Steps of the blocks that launches run at least as loops: one of each, or all (where launches follow that need
        what these give)."""
        grids = [line.grid.value.data if len(lines) > 1 else min(1, line.grid.value.data) for line in lines]
        return sum(self.steps_of(line.callee.string_value()) * grid for line, grid in zip(lines, grids, strict=True))

    def affords_loops(self, lines: list[LaunchOp]) -> bool:
        cost = self.loop_cost(lines)
        return cost <= MAX_STEPS and self.steps + cost <= MAX_ALL_STEPS

    def thread_cost(self, lines: list[LaunchOp]) -> int:
        """Steps of all threads of launches: the lower one of two estimates, by the loops, which know thread numbers,
        and by the threads' own ops, of which a product of matrices is one."""
        if self.threads is None:
            return 0
        loops = [self.steps_of(line.callee.string_value()) * line.grid.value.data for line in lines]
        own = [self.threads.cost(self.launches[line]) for line in lines]
        return sum(map(min, loops, own))

    def affords_threads(self, lines: list[LaunchOp]) -> bool:
        cost = self.thread_cost(lines)
        return (
            self.threads is not None and cost <= MAX_THREAD_STEPS and self.thread_steps + cost <= MAX_ALL_THREAD_STEPS
        )

    def execute(self, lines: list[LaunchOp], spaces: dict[str, np.ndarray]) -> bool:
        """Run launches on memory; whether all blocks of all of them ran."""
        complete = True
        self.steps += self.loop_cost(lines)
        for line in lines:
            name, grid = line.callee.string_value(), line.grid.value.data
            order = self.random.sample(range(grid), grid if len(lines) > 1 else min(grid, 4096))
            done = self.blocks(line, order, spaces, every=len(lines) > 1)
            complete &= done == grid
            self.as_loops.add(name)
            if done < grid:
                self.partly.add(name)
        return complete

    def execute_threads(self, lines: list[LaunchOp], spaces: dict[str, np.ndarray]) -> None:
        """Run launches as threads, all blocks of them."""
        assert self.threads is not None
        self.thread_steps += self.thread_cost(lines)
        self.threads.run([self.launches[line] for line in lines], spaces)
        self.as_threads |= {line.callee.string_value() for line in lines}

    def blocks(self, line: LaunchOp, order: list[int], spaces: dict[str, np.ndarray], every: bool) -> int:
        """Run the first blocks of `order`, and more as long as they are quick (or all of them), each on the scratch of
        some thread; how many."""
        name, start = line.callee.string_value(), time.perf_counter()
        for i, block in enumerate(order):
            if not every and i >= BLOCKS and time.perf_counter() - start > SECONDS / 2:
                return i
            if not i or line.scratch_bytes:
                arrays = self.program.arrays_of(line, spaces, self.random.randrange(line.most_threads))
            self.program.launch(name, [block], arrays)
            if not every and time.perf_counter() - start > SECONDS:
                return i + 1
        return len(order)


def _computes(kernel: KernelOp) -> str:
    """The meaning of a kernel, names and places left out. Kernels that differ in it must not share a function;
    `lower-cpu` has its own idea of that, which is what is checked."""
    numbers: dict[SSAValue, int] = {arg: i for i, arg in enumerate(kernel.body.args)}
    found: list[object] = []
    for op in kernel.body.ops:
        types, properties = map(str, op.result_types), (f"{k} = {v}" for k, v in sorted(op.properties.items()))
        found.append((op.name, [numbers[v] for v in op.operands], [*types], [*properties]))
        for result in op.results:
            numbers[result] = len(numbers)
    return repr(found)


class _Lockstep(TracedPlanned):
    """The planned module, with the launches of each op beside it."""

    def __init__(self, check: _Check, *args):
        self.check = check
        super().__init__(*args)

    def step(self, i: int, op: Operation) -> None:
        if not isinstance(op, KernelOp) or self.copied_apart(op):
            super().step(i, op)  # of a copy between spaces nothing is launched, and nothing computed
            return
        every = self.check.lines.get(op, [])
        self.check_places(op, every)
        lines = self.check.wanted(op)
        spaces = self.memory() if lines or not every else {}
        super().step(i, op)
        if lines:
            self.compare_launches(op, lines, spaces)
        elif not every:
            self.compare_results(op, "no launch", spaces, [(v, True, False) for v in op.results])

    def check_places(self, op: KernelOp, lines: list[LaunchOp]) -> None:
        """Every memref of a launch lies in an operand, a result or the workspace of the op, or behind the planned
        arena."""
        allowed = [self.range(v) for v in (*op.operands, *op.results)]
        work = op.attributes.get(WORKSPACE)
        places = work.data if isinstance(work, ArrayAttr) else ()
        allowed += [(p.space.data, p.offset.data, p.offset.data + workspace_size(op)) for p in places]
        allowed += [(name, len(space), sys.maxsize) for name, space in self.arenas.spaces.items()]
        for line in lines:
            for place, a in zip(line.args, self.check.accesses.of(line)):
                if not any(s == a.space and low <= a.begin and a.end <= high for s, low, high in allowed):
                    text = (
                        f"@{line.callee.string_value()} is launched on {place}, which is no memory of {op_and_name(op)}"
                    )
                    raise self.differs("memory", text, op)

    def memory(self) -> dict[str, np.ndarray]:
        """A copy of the memory spaces, as large as the lowered module wants them."""
        spaces = {}
        for name, size in memory_of(self.check.module).items():
            now = self.arenas.spaces.get(name, np.zeros(0, np.uint8))
            spaces[name] = np.full(max(size, len(now)), POISON, np.uint8)
            spaces[name][: len(now)] = now
        return spaces

    def compare_launches(self, op: Operation, lines: list[LaunchOp], spaces: dict[str, np.ndarray]) -> None:
        in_place = self.poison_results(op, spaces)
        names = ", ".join(dict.fromkeys(f"@{line.callee.string_value()}" for line in lines))
        again = {name: space.copy() for name, space in spaces.items()} if self.check.threads is not None else {}
        if self.check.affords_loops(lines):
            try:
                complete = self.check.execute(lines, spaces)
            except LightNetError as e:
                raise self.differs("fails", f"{names}, which {op_and_name(op)} became, fails: {e.message}", op) from e
            self.compare_results(op, names, spaces, [(v, complete, o) for v, o in zip(op.results, in_place)])
        if not self.check.affords_threads(lines):
            return
        try:
            self.check.execute_threads(lines, again)
        except LightNetError as e:
            text = f"{names}, which {op_and_name(op)} became, fails as threads: {e.message}"
            raise self.differs("threads", text, op) from e
        self.compare_results(op, f"{names}, as threads,", again, [(v, True, o) for v, o in zip(op.results, in_place)])

    def compare_results(
        self, op: Operation, who: str, spaces: dict[str, np.ndarray], results: list[tuple[SSAValue, bool, bool]]
    ) -> None:
        """Compare what stands in memory with each result of `op`; with it, whether it is all there, and whether it
        stands in place of an operand."""
        for i, (value, complete, in_place) in enumerate(results):
            space, low, high = self.range(value)
            expected = self.known.get(value)
            if low == high or expected is None:
                continue
            try:
                found = _written_wrong(value.type, expected, spaces[space][low:high], complete, in_place)
            except LightNetError as e:
                raise self.differs("halo", f"{who}: {e.message}", op, tensor_name(value)) from e
            if found:
                what = f"'{name}'" if (name := tensor_name(value)) else f"result {i} of {op_and_name(op)}"
                text = f"{who} gives another value of {what}: at {list(found.index)} it{str(found).partition(']')[2]}"
                raise self.differs("value", text, op, tensor_name(value), found)

    def poison_results(self, op: Operation, spaces: dict[str, np.ndarray]) -> list[bool]:
        """Poison the results' bytes where no operand lies; for each result, whether one does."""
        operands = [self.range(v) for v in op.operands]
        in_place = []
        for value in op.results:
            space, low, high = self.range(value)
            shares = any(s == space and a < high and low < b for s, a, b in operands)
            in_place.append(shares)
            if not shares:
                spaces[space][low:high] = POISON
        return in_place


def _written_wrong(
    type: Attribute, expected: np.ndarray, raw: np.ndarray, complete: bool, in_place: bool
) -> Mismatch | None:
    """The place where the bytes `raw` of a value of this type differ from an expected array. Bytes that are poison
    still were not written, which is wrong only where all blocks ran (blocks of a copy may be smaller than elements).
    Results in place of an operand are looked at then only, too.
    """
    if in_place and not complete:
        return None
    got = from_memory(type, np.array(raw))
    if not complete:  # a byte that was written may look like poison: what is right as it stands is taken so
        filled = from_memory(type, np.where(raw == POISON, to_memory(type, expected), raw))
        got = np.where(differing(expected, got, exact=False), filled, got)
    if complete and (to_memory(type, got) != raw).any():
        raise LightNetError(f"halo or unused lanes of a {layout_of(type)} are not 0")
    return mismatch(expected, got, exact=False)
