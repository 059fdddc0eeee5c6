"""The function of a recurrence: a block of threads runs through the steps of one sequence, or of a few that read the
same weights.

A step is a product of the state with the weights, [H] x [H, G], and then what the op says a unit makes of its gate
outputs. In the product a thread has a few neighbouring gate outputs, a vector of 16 bytes, so that lanes read
neighbouring addresses, and one slice of the state's elements; the slices' partial sums meet in shared memory, where the
state is, too. Two barriers a product are what a step waits for. Imports the builder of threads and the recurrent ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import SSAValue

from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.recurrent_layer import Multiplier, Product, RecurrentCode, RecurrentSchedule, pitch_of
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.dataclasses import dataclass
from lightnet.ir.kernel import KernelOp


@dataclass(frozen=True)
class _Unit:
    """A unit of a sequence that the thread has: its numbers in the block and in the tensors, and whether there is one
    at all."""

    within: SSAValue
    sequence: SSAValue
    number: SSAValue
    there: SSAValue | None


class RecurrentFunction(RecurrentCode):
    """Builds the function."""

    def __init__(self, kernel: KernelOp, name: str, way: RecurrentSchedule, aliases: Mapping[int, int]):
        super().__init__(kernel, way)
        self.write_to(KernelFunction(kernel, name, (way.threads, 1, 1), aliases))
        outputs, yielded = self.function.outputs, self.yielded
        self.outputs = {n: outputs[yielded.index(v)] for n, v in self.results.items() if v in yielded}

    def build(self) -> SimtLaunch:
        """The whole launch."""
        b, count = self.b, self.way.sequences
        self.thread, self.first = b.thread_id(), b.mul(b.block_id(), count)
        pitch = pitch_of(self.op, self.products)
        self.states = {"h": b.shared([count, pitch], self.element)}
        if "c" in self.names:
            self.states["c"] = b.shared([count, self.hidden], self.element, name="c")
        self.factors = [self.states["h"], *(b.shared([count, pitch], self.element) for _ in self.products[1:])]
        self.partial = [b.shared([count, p.slices, p.columns], self.element) for p in self.products]
        self.units = self.find_units()
        lens = [self.length(b.add(self.first, r)) for r in range(count)]
        self.begin(pitch)
        constants = [self.constants_at(unit.number) for unit in self.units]
        weights = [self.held_rows(k) for k in range(len(self.products))] if self.way.held else []
        longest = lens[0]
        for other in lens[1:]:
            longest = b.op(arith.MaxSIOp, longest, other)
        b.barrier()
        with b.loop(0, longest, name="step") as step:
            t = b.op(arith.SubiOp, b.add(longest, -1), step.iv) if self.op.reverse else step.iv
            self.step(t, lens, constants, weights)
        self.end(lens)
        return self.function.launch((-(-self.batch // count), 1, 1))

    # ---- units and sequences

    def find_units(self) -> list[_Unit]:
        """The units of the thread: neighbouring threads have neighbouring units."""
        b, total, found = self.b, self.way.sequences * self.hidden, []
        for start in range(0, total, self.way.threads):
            place, there = b.add(self.thread, start), None
            if start + self.way.threads > total:
                place, there = b.least(place, total - 1), b.below(place, total)
            within, number = b.divmod(place, self.hidden) if self.way.sequences > 1 else (b.index(0), place)
            found.append(_Unit(within, b.add(self.first, within), number, there))
        return found

    def is_sequence(self, n: SSAValue) -> SSAValue | None:
        """Return whether the batch has a sequence `n`; None where there is no doubt."""
        return self.b.below(n, self.batch) if self.batch % self.way.sequences else None

    def length(self, n: SSAValue) -> SSAValue:
        """The steps of sequence `n`, in [0, T]; 0 where there is none."""
        b, inside = self.b, self.is_sequence(n)
        at = n if inside is None else b.least(n, self.batch - 1)
        steps = b.op(arith.IndexCastOp, b.load(self.memory("lens"), [at]), type=IndexType())
        steps = b.least(b.op(arith.MaxSIOp, steps, b.index(0)), self.steps)
        return steps if inside is None else b.select(inside, steps, b.index(0))

    def begin(self, pitch: int) -> None:
        """The initial states to shared memory, zeros behind them, and for sequences that are none."""
        b, zero = self.b, self.maths.number(0)
        for unit in self.units:
            inside = self.is_sequence(unit.sequence)
            at = unit.sequence if inside is None else b.least(unit.sequence, self.batch - 1)
            for name, state in self.states.items():
                value = b.load(self.memory(f"{name}0"), [at, unit.number])
                with self.b.where(unit.there):
                    b.store(
                        value if inside is None else b.select(inside, value, zero), state, [unit.within, unit.number]
                    )
        self.clear_behind(self.factors, pitch)

    def end(self, lens: Sequence[SSAValue]) -> None:
        """The last states, and zeros as the results of the steps that a sequence does not have."""
        b = self.b
        for unit in self.units:
            with self.b.where(unit.there, self.is_sequence(unit.sequence)):
                for name, state in self.states.items():
                    if name in self.outputs:
                        b.store(
                            b.load(state, [unit.within, unit.number]), self.outputs[name], [unit.sequence, unit.number]
                        )
        if "y" not in self.outputs:
            return
        for r, steps in enumerate(lens):
            n = b.add(self.first, r)
            with b.where(self.is_sequence(n)), b.loop(steps, self.steps, name="t") as t:
                with b.loop(self.thread, self.hidden, self.way.threads, name="j") as j:
                    b.store(self.maths.number(0), self.outputs["y"], [t.iv, n, j.iv])

    # ---- a step

    def step(self, t: SSAValue, lens: Sequence[SSAValue], constants: Sequence[list[SSAValue]],
             weights: Sequence[list[SSAValue]]) -> None:  # fmt: skip
        """One step of all sequences of the block. What the inputs add is on its way while the products are made."""
        b, op = self.b, self.op
        inputs = [self.inputs_of(unit, t) for unit in self.units]
        for number, product in enumerate(self.products):
            if number:
                gate = product.first // self.hidden - 1
                for unit, x in zip(self.units, inputs, strict=True):
                    with self.b.where(unit.there):
                        at = [unit.within, unit.number]
                        total = self.maths.add(x[gate], self.sum_of(unit, gate))
                        b.store(op.between(self.maths, total, b.load(self.states["h"], at)), self.factors[number], at)
                b.barrier()
            self.multiply_all(number, product, weights[number] if weights else None)
            b.barrier()
        for unit, x, beside in zip(self.units, inputs, constants, strict=True):
            with self.b.where(unit.there):
                self.finish(unit, t, lens, x, beside)
        b.barrier()

    def finish(self, unit: _Unit, t: SSAValue, lens: Sequence[SSAValue], x: Sequence[SSAValue],
               beside: Sequence[SSAValue]) -> None:  # fmt: skip
        """The new state of a unit, and the result: of sequences that have a step `t`."""
        b, at = self.b, [unit.within, unit.number]
        old = {name: b.load(state, at) for name, state in self.states.items()}
        totals = [self.sum_of(unit, gate) for gate in range(self.op.count)]
        new = self.op.unit(self.maths, x, totals, old, beside)
        active = None
        if len(lens) > 1:
            own = lens[0]
            for r, steps in enumerate(lens[1:], 1):
                own = b.select(b.cmpi("eq", unit.within, b.index(r)), steps, own)
            active = b.below(t, own)
        with self.b.where(active):
            for name, value in new.items():
                b.store(value, self.states[name], at)
            if "y" in self.outputs:
                b.store(new["h"], self.outputs["y"], [t, unit.sequence, unit.number])

    def inputs_of(self, unit: _Unit, t: SSAValue) -> list[SSAValue]:
        """The inputs' part of the gate outputs of a unit; of a sequence that is none, those of the last one."""
        n = unit.sequence if self.is_sequence(unit.sequence) is None else self.b.least(unit.sequence, self.batch - 1)
        return self.inputs_at(t, n, unit.number)

    def sum_of(self, unit: _Unit, gate: int) -> SSAValue:
        """The state's part of a gate output of a unit: the sum of the slices' sums."""
        first = gate * self.hidden
        number, p = next((k, p) for k, p in enumerate(self.products) if p.first <= first < p.first + p.columns)
        return self.summed(p, self.partial[number], unit.within, self.b.add(first - p.first, unit.number))

    # ---- products

    def multiplier(self, number: int, piece: SSAValue, group: SSAValue) -> Multiplier:
        """The multiplier that makes the sums of a slice and a group of columns of a product."""
        p = self.products[number]
        column = self.b.add(self.b.mul(group, p.width), p.first)
        return Multiplier(self.b, p, self.factors[number], self.memory("weight"), piece, column)

    def held_rows(self, number: int) -> list[SSAValue]:
        """The thread's weights of a product, once for all steps."""
        groups = self.products[number].groups
        return self.multiplier(number, *self.b.divmod(self.thread, groups)).held(-(-self.way.threads // groups))

    def multiply_all(self, number: int, p: Product, held: Sequence[SSAValue] | None) -> None:
        """The partial sums of a product to shared memory."""
        b, threads, partial = self.b, self.way.threads, self.partial[number]
        if p.groups > threads:
            with b.loop(self.thread, p.groups, threads, name="turn") as turn:
                self.multiply(self.multiplier(number, b.index(0), turn.iv), partial, turn.iv, None)
            return
        piece, group = b.divmod(self.thread, p.groups)
        with b.where(self.has_slice(p, piece)):
            self.multiply(self.multiplier(number, piece, group), partial, group, held)
