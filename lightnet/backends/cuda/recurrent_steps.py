"""A recurrence as a launch for each step, whose blocks share the units: where all weights are more than one processor
reads in the time of a launch.

All steps are launches of one function, or of two where a step has two products. Of the two pieces of workspace that
each state has, a step reads what the one before it wrote, and writes the other; which step it is stands in memory, too.
Imports the parts that it shares with the function of all steps.

    start | step h0 -> ws0 | step ws0 -> ws1 | step ws1 -> ws0 | … | step … -> h
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, MemRefType, i32
from xdsl.ir import SSAValue

from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.recurrent_layer import (
    Multiplier,
    RecurrentCode,
    RecurrentLayer,
    RecurrentSchedule,
    state_names,
)
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.launches import Argument
from lightnet.dataclasses import replace
from lightnet.dialects.cuda_checks import WARP
from lightnet.dialects.ln.recurrent import Recurrent
from lightnet.ir.kernel import KernelOp
from lightnet.runtime.arrays import align_up

#: Where the number of a step stands.
NUMBER = MemRefType(i32, [1])


class RecurrentSteps(RecurrentLayer):
    """The launches of a layer: that of the first step's number, then for each step one a product."""

    def __init__(self, kernel: KernelOp, name: str, way: RecurrentSchedule):
        super().__init__(kernel, way)
        self.name = name

    def build(self) -> list[SimtLaunch]:
        """All of them, of one function for the first number and one for each product."""
        first = KernelFunction(self.kernel, self.name, (WARP, 1, 1), {}, reads=[], writes=[],
                               workspace=[(NUMBER, counter_byte(self.op, 0))])  # fmt: skip
        with first.b.when(first.b.cmpi("eq", first.b.thread_id(), first.b.index(0))):
            first.b.store(first.b.const(self.steps - 1 if self.op.reverse else 0, i32), first.workspace[0], [0])
        count = len(self.op.products())
        made = [StepFunction(self.kernel, f"{self.name}_{k + 1}", self.way, k).build() for k in range(count)]
        return [first.launch((1, 1, 1))] + [
            replace(launch, args=(*launch.args, *self.memory_of(step))) for step in range(self.steps) for launch in made
        ]

    def memory_of(self, step: int) -> list[Argument]:
        """The memory that a step reads and writes beside operands and y: of each state the old and the new one, the
        numbers, and what passes from its first product to its second.
        """
        found = []
        for k, name in enumerate(self.names):
            old, new = (Argument("workspace", (2 * k + n % 2) * _state_bytes(self.op)) for n in (step - 1, step))
            if step == 0:
                old = Argument("operand", [*self.kernel.body.args].index(self.operands[f"{name}0"]))  # type: ignore[arg-type]
            if step == self.steps - 1 and self.results[name] in self.yielded:
                new = Argument("result", self.yielded.index(self.results[name]))
            found += [old, new]
        found += [Argument("workspace", counter_byte(self.op, step + n)) for n in (0, 1)]
        behind = counter_byte(self.op, 0) + 2 * align_up(4)
        return found + [Argument("workspace", behind + n * _state_bytes(self.op)) for n in range(passed_by(self.op))]


def passed_by(op: Recurrent) -> int:
    """Tensors [B, H] that pass from the first product of a step to the second: the state that this takes, and the sums
    of the gates of the first but for its last one, which has gone into that state."""
    return op.products()[0][1] if len(op.products()) > 1 else 0


def _state_bytes(op: Recurrent) -> int:
    _, batch, hidden = op.sizes
    return align_up(batch * hidden * op.operand_specs[0].dtype.size)


def counter_byte(op: Recurrent, step: int) -> int:
    """The byte of workspace at which the number of a step stands: behind two of each state."""
    return 2 * len(state_names(op)) * _state_bytes(op) + step % 2 * align_up(4)


def step_workspace(op: Recurrent) -> int:
    """Bytes of workspace."""
    return counter_byte(op, 0) + 2 * align_up(4) + passed_by(op) * _state_bytes(op)


class StepFunction(RecurrentCode):
    """Builds the function of one product of a step; that of the last one ends the step."""

    def __init__(self, kernel: KernelOp, name: str, way: RecurrentSchedule, product: int):
        super().__init__(kernel, way)
        self.product, self.p, y = product, self.products[product], self.results["y"]
        self.gate, self.is_last = self.p.first // self.hidden, product == len(self.products) - 1
        state, count = MemRefType(self.element, [self.batch, self.hidden]), 2 * len(self.names)
        types = [*[state] * count, NUMBER, NUMBER, *[state] * passed_by(self.op)]
        self.write_to(KernelFunction(
            kernel, name, (way.threads, 1, 1), {},
            reads=[v for n, v in self.operands.items() if n.removesuffix("0") not in self.names],
            writes=[self.yielded.index(y)] if self.is_last and y in self.yielded else [],
            workspace=[(type, 0) for type in types],
        ))  # fmt: skip
        memory = list(self.function.workspace)
        self.old, self.new = dict(zip(self.names, memory[:count:2])), dict(zip(self.names, memory[1:count:2]))
        self.numbers, self.passed = memory[count : count + 2], memory[count + 2 :]

    def build(self) -> SimtLaunch:
        """The launch, whose `args` lack the workspace."""
        self.step()
        whole = self.function.launch((-(-self.hidden // self.way.units), -(-self.batch // self.way.sequences), 1))
        return replace(whole, args=whole.args[: len(whole.args) - len(self.function.workspace)])

    def step(self) -> None:
        """The body of the function. Weights that are held are on their way while the state is copied to shared
        memory."""
        b, p, way = self.b, self.p, self.way
        self.thread, self.first = b.thread_id(), b.mul(b.block_id("y"), way.sequences)
        self.t = b.op(arith.IndexCastOp, b.load(self.numbers[0], [0]), type=IndexType())
        self.state = b.shared([way.sequences, p.slices * p.rows], self.element, name="state")
        self.partial = b.shared([way.sequences, p.slices, p.columns], self.element, name="partial")
        piece, group = b.divmod(self.thread, p.groups)
        thread = Multiplier(b, p, self.state, self.memory("weight"), piece, self.column(group))
        held = thread.held(-(-way.threads // p.groups)) if way.held else None
        self.unit()
        x = self.inputs_at(self.t, self.n, self.j)
        self.fetch()
        b.barrier()
        with b.where(self.has_slice(p, piece)):
            self.multiply(thread, self.partial, group, held)
        b.barrier()
        with b.where(self.there):
            self.finish(x) if self.is_last else self.pass_on(x)
        if self.is_last:
            self.advance()

    def advance(self) -> None:
        """One thread says which step is the next."""
        b, zero = self.b, self.b.index(0)
        with b.where(*(b.cmpi("eq", v, zero) for v in (self.thread, b.block_id("x"), b.block_id("y")))):
            after = b.const(-1 if self.op.reverse else 1, i32)
            b.store(b.op(arith.AddiOp, b.load(self.numbers[0], [0]), after), self.numbers[1], [0])

    def column(self, group: SSAValue) -> SSAValue:
        """The first column of the weights of a group of the block's; behind the last unit, that of the last group."""
        b, each = self.b, self.way.units // self.p.width
        gate, within = b.divmod(group, each)
        number = b.add(b.mul(b.block_id("x"), each), within)
        if self.hidden % self.way.units:
            number = b.least(number, self.hidden // self.p.width - 1)
        return b.add(b.add(b.mul(gate, self.hidden), b.mul(number, self.p.width)), self.p.first)

    def unit(self) -> None:
        """The unit of the thread: its numbers in the block (`r`, `within`) and in the tensors (`n`, `j`), and whether
        it is `there`; else these are of one that is."""
        b, units, total = self.b, self.way.units, self.way.units * self.way.sequences
        place, doubts = self.thread, list[SSAValue]()
        if total < self.way.threads:
            place, doubts = b.least(place, total - 1), [b.below(place, total)]
        self.r, self.within = b.divmod(place, units)
        self.j, self.n = b.add(b.mul(b.block_id("x"), units), self.within), b.add(self.first, self.r)
        if self.hidden % units:
            doubts.append(b.below(self.j, self.hidden))
            self.j = b.least(self.j, self.hidden - 1)
        if self.batch % self.way.sequences:
            doubts.append(b.below(self.n, self.batch))
            self.n = b.least(self.n, self.batch - 1)
        self.there = b.every(*doubts)

    def fetch(self) -> None:
        """The state that the product takes to shared memory, and zeros behind it; for a sequence that is none, the last
        one's."""
        b, width, threads = self.b, self.p.width, self.way.threads
        each, source = self.hidden // width, self.passed[0] if self.product else self.old["h"]
        with b.loop(self.thread, self.way.sequences * each, threads, name="e") as e:
            r, k = b.divmod(e.iv, each)
            n, at = b.add(self.first, r), b.mul(k, width)
            n = b.least(n, self.batch - 1) if self.batch % self.way.sequences else n
            b.tile_store(b.tile_load(source, [n, at], [1], (width,)), self.state, [r, at], [1])
        self.clear_behind([self.state], self.p.slices * self.p.rows)

    def totals(self) -> list[SSAValue]:
        """The state's part of the gate outputs of the unit that are columns of the product."""
        columns = (self.b.add(gate * self.way.units, self.within) for gate in range(self.p.columns // self.way.units))
        return [self.summed(self.p, self.partial, self.r, column) for column in columns]

    def pass_on(self, x: Sequence[SSAValue]) -> None:
        """The state that the second product takes, and the sums that the end of the step needs."""
        b, at, (*sums, last) = self.b, [self.n, self.j], self.totals()
        total = self.maths.add(x[self.gate + len(sums)], last)
        for value, memory in zip(
            (self.op.between(self.maths, total, b.load(self.old["h"], at)), *sums), self.passed, strict=True
        ):
            b.store(value, memory, at)

    def finish(self, x: Sequence[SSAValue]) -> None:
        """The new state of the unit and the result; where the sequence has ended, the old state and 0."""
        b, at = self.b, [self.n, self.j]
        products = self.totals()
        if self.product:  # of the gate that has gone into the state nothing is asked
            products = [*(b.load(m, at) for m in self.passed[1:]), self.maths.number(0), *products]
        constants = self.constants_at(self.j)
        old = {name: b.load(memory, at) for name, memory in self.old.items()}
        new = self.op.unit(self.maths, x, products, old, constants)
        steps = b.op(arith.IndexCastOp, b.load(self.memory("lens"), [self.n]), type=IndexType())
        on = b.below(self.t, steps)
        for name, value in new.items():
            b.store(b.select(on, value, old[name]), self.new[name], at)
        for y in self.function.outputs.values():
            b.store(b.select(on, new["h"], self.maths.number(0)), y, [self.t, *at])
