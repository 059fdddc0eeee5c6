"""Executing a module of level 1 to 3 on given contents, tensor by tensor, beside what an earlier module gave.

A tensor that an earlier execution knew under the same name is compared when it is computed. Where it agrees within
rounding, the earlier array goes on in its place: errors do not pile up until a sort or an argmax turns round, and what
follows is found in the evaluator's memory. Imports the interpreter, `ir` and the files of this folder below it.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.backends.interpreter.graph import Planned, ValueMachine, feedable_ops
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.effect import Fprint, Print
from lightnet.dialects.ln.source import Source, is_fed
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of, value_name
from lightnet.ir.names import name_of, tensor_name
from lightnet.ir.op import LnOp
from lightnet.ir.rewrites import op_and_name
from lightnet.ir.types import spec_of
from lightnet.runtime.arrays import same_bytes
from lightnet.runtime.dtypes import DType, round_to
from lightnet_trust.compare import Mismatch, mismatch, tolerance
from lightnet_trust.evaluation import RememberingEvaluator
from lightnet_trust.exact import inexact
from lightnet_trust.record import Difference, DifferenceError, Fed, Output, Trace

#: Bytes of one tensor of a module that is executed.
MAX_TENSOR_BYTES = 2 << 30


def execute(
    module: ModuleOp,
    contents: Mapping[str, np.ndarray],
    evaluator: RememberingEvaluator,
    reference: Trace | None = None,
    *,
    exact: bool = False,
    rounded: DType | None = None,
    in_floats: Collection[str] = (),
) -> Trace:
    """Execute `module` with the sources' `contents` (by `source_key`); a source without any holds what the network
    gives it.

    With a `reference`, raises `DifferenceError` at the first difference from it. Tensors of f32 may be of the type
    `rounded` now, and results differ by what rounding to it explains. Raises `LightNetError` for a module that cannot
    be executed, and whatever an op's reference raises.
    """
    check_size(module)
    machine = TracedPlanned if memory_of(module) else TracedGraph
    return machine(module, contents, evaluator, reference, exact, rounded, in_floats).trace()


def source_key(op: Source) -> str:
    """The name of a source in `contents`: its tensor's name, or where it stands, which passes keep."""
    if (name := op.tensor_names[0] or name_of(op)) is not None:
        return name
    loc = loc_of(op)
    return f"%{op.results[0].name_hint or ''} at {loc}"


def check_size(module: ModuleOp) -> None:
    """Raise `LightNetError` for a module with a tensor that takes more memory than a check should."""
    for op in main_of(module).walk():
        for result in op.results if isinstance(op, LnOp) else ():
            if (size := spec_of(result.type).nbytes) > MAX_TENSOR_BYTES:
                limit = f"tensors of more than {MAX_TENSOR_BYTES >> 20} MiB are not executed"
                raise LightNetError(f"'{value_name(result)}' takes {size >> 20} MiB: {limit}", loc_of(op))


class Traced(ValueMachine):
    """The interpreter, observed."""

    def __init__(
        self,
        module: ModuleOp,
        contents: Mapping[str, np.ndarray],
        evaluator: RememberingEvaluator,
        reference: Trace | None,
        exact: bool,
        rounded: DType | None = None,
        in_floats: Collection[str] = (),
    ):
        self.contents, self.evaluator, self.reference, self.exact = contents, evaluator, reference, exact
        self.rounded, self.in_floats = rounded, in_floats
        self.least = 0.0 if rounded is None else tolerance(rounded.np)
        self.found = Trace(fed={source_key(op): Fed.of(op) for op in feedable_ops(module)})
        self.op: Operation | None = None
        if reference is not None:
            self.check_interface()
        super().__init__(module, {}, None, 0, io.StringIO(), ".")

    def trace(self) -> Trace:
        for i, op in enumerate(self.ops[:-1]):
            self.op = op
            self.step(i, op)
            self.retire(i, op)
        self.op = None
        self.check_outputs()
        for i, value in enumerate(self.ops[-1].operands):
            self.returned(i, value)
        if self.reference is not None and len(self.found.shown) < len(self.reference.shown):
            missing = self.reference.shown[len(self.found.shown)][0]
            raise self.differs("effect", f"{missing} does not happen any more")
        return self.found

    # -- values

    def evaluate(self, op: Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        if isinstance(op, Source):
            arrays = [self.contents_of(op)]
        elif isinstance(op, LnOp):
            arrays = [self.unrounded(op)] if self.is_unrounded(op) else self.evaluator.evaluate(op, operands)
        else:
            arrays = super().evaluate(op, operands)
        return [self.observed(op, value, array) for value, array in zip(op.results, arrays, strict=True)]

    def contents_of(self, op: Source) -> np.ndarray:
        array = self.contents.get(source_key(op)) if is_fed(op) else None
        spec = op.result_specs[0]
        if array is not None and (array.shape, array.dtype) == (spec.dims, spec.dtype.np):
            return array
        return self.evaluator.intern(np.array(op.contents(None, 0)))  # a pass made it: it says itself what it holds

    def observed(self, op: Operation, value: SSAValue, array: np.ndarray) -> np.ndarray:
        """`array`, or the reference's array of this name if they agree."""
        name = tensor_name(value)
        if name is None:
            return array
        passed_on = array
        if (known := self.found.values.get(name)) is not None and array is known[1]:
            return array  # what a kernel yields was compared in its body
        if self.reference is not None and name in self.reference.values:
            before, passed_on = (self.as_rounded(a, array) for a in self.reference.values[name])
            self.compare(f"'{name}'", name, before, array, op)
        self.found.keep(name, array, passed_on)
        return passed_on

    def as_rounded(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """The tensor that is of f32 in the reference, in the type that it is rounded to now."""
        if self.rounded is None or before.dtype != np.float32 or after.dtype != self.rounded.np:
            return before
        return self.evaluator.intern(round_to(before, self.rounded))

    def is_unrounded(self, op: LnOp) -> bool:
        """Return whether an op makes f32 again of a tensor that agreed with one of f32. That one goes on: what reads it
        is of f32, and checked as such.
        """
        if self.rounded is None or self.reference is None or not isinstance(op, Cast):
            return False
        known = self.reference.values.get(tensor_name(op.src) or "")
        pair = [s.dtype.np for s in (*op.operand_specs, *op.result_specs)]
        return known is not None and known[1].dtype == np.float32 and pair == [self.rounded.np, np.float32]

    def unrounded(self, op: LnOp) -> np.ndarray:
        assert self.reference is not None
        return self.reference.values[tensor_name(op.operands[0]) or ""][1]

    def compare(self, what: str, name: str | None, before: np.ndarray, after: np.ndarray, op: Operation | None) -> None:
        """Raise where the two do not agree."""
        self.found.compared += 1
        if after is before:
            return
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            text = f"{what} was {_type(before)} before and is {_type(after)} after"
            raise self.differs("interface", text, op, name)
        found = mismatch(before, after, self.exact, self.least)
        if found is not None:
            raise self.differs("value", f"{what}{found}", op, name, found)
        key = name or what
        if self.rounded is None and key not in self.in_floats and (found := inexact(before, after)) is not None:
            count = f"{found.count} of {found.total} elements differ"
            text = f"{what} is right up to rounding only: computed exactly (in a prime field), {count}"
            raise self.differs("exact", text, op, key, found)

    def differs(
        self, kind: str, what: str, op: Operation | None = None, name: str | None = None, found: Mismatch | None = None
    ) -> DifferenceError:
        loc = loc_of(op) if op is not None else None
        label = op_and_name(op) if op is not None else None
        return DifferenceError(Difference(kind, what, name, loc, label, found))

    # -- the interface

    def check_interface(self) -> None:
        assert self.reference is not None
        for key, now in self.found.fed.items():
            change = now.changed(self.reference.fed.get(key, now))
            if change is not None:
                raise self.differs("interface", f"'{key}', which can be fed, {change}")
            if now.once and now.kind == "ln.input":
                raise self.differs(
                    "interface", f"'{key}' is an input, but is read only once, when the network is loaded"
                )

    def check_outputs(self) -> None:
        values = list(self.ops[-1].operands)
        self.found.outputs = [Output(tensor_name(v), spec_of(v.type)) for v in values]
        if self.reference is None:
            return
        before = self.reference.outputs
        if len(values) != len(before):
            raise self.differs("interface", f"there were {len(before)} outputs before, and are {len(values)} after")
        for i, (old, new, value) in enumerate(zip(before, self.found.outputs, values)):
            owner = value.owner if isinstance(value.owner, Operation) else None
            if old.name is not None and old.name != new.name:
                now = f"'{new.name}'" if new.name else "without a name"
                raise self.differs(
                    "interface", f"output {i} was '{old.name}' before and is {now} after", owner, old.name
                )
            if old.name is None and new.name is not None and any(o.name == new.name for o in before):
                text = f"output {i}, which had no name, has that of another output, '{new.name}'"
                raise self.differs("interface", text, owner, new.name)
            if old.spec != new.spec:
                text = f"output {i} was {old.spec} before and is {new.spec} after"
                raise self.differs("interface", text, owner, old.name)

    def returned(self, i: int, value: SSAValue) -> None:
        array = self.read(value)
        if self.reference is not None and (before := self.reference.outputs[i].array) is not None:
            name = tensor_name(value)
            owner = value.owner if isinstance(value.owner, Operation) else None
            what = f"output '{name}'" if name else f"output {i}"
            self.compare(what, name, before, array, owner)
        self.found.outputs[i].array = array

    def show(self, op: Print | Fprint) -> None:
        what = f"{op.optype} of {op.msg!r}"
        array = self.read(op.operands[0])
        at = len(self.found.shown)
        if self.reference is not None:
            if at >= len(self.reference.shown):
                raise self.differs("effect", f"{what} did not happen before", op)
            before, old = self.reference.shown[at]
            if before != what:
                raise self.differs("effect", f"{before} was next before, and {what} is after", op)
            self.compare(f"the tensor of the {what} ", None, old, array, op)
        self.found.shown.append((what, array))


class TracedGraph(Traced, ValueMachine):
    """Levels 1 and 2."""


class TracedPlanned(Traced, Planned):
    """Level 3: what is read from the arena is compared with what was written there, when it is read."""

    def __init__(self, *args, **options):
        self.known: dict[SSAValue, np.ndarray] = {}
        super().__init__(*args, **options)

    def step(self, i: int, op: Operation) -> None:
        super().step(i, op)
        if self.copied_apart(op) and op.operands[0] in self.known:
            self.known[op.results[0]] = self.known[op.operands[0]]

    def observed(self, op: Operation, value: SSAValue, array: np.ndarray) -> np.ndarray:
        self.known[value] = array = super().observed(op, value, array)
        return array

    def read(self, value: SSAValue) -> np.ndarray:
        array = super().read(value)
        written = self.known.get(value)
        if written is None:
            return self.evaluator.intern(array)
        if same_bytes(written, array):
            return written
        reader = f" before {op_and_name(self.op)} reads it" if self.op is not None else " before the end"
        found = mismatch(written, array, exact=True)
        detail = f": {value_name(value)}{found}" if found is not None else ""
        text = f"the memory of '{value_name(value)}' is overwritten{reader}{detail}"
        raise self.differs("memory", text, self.op, tensor_name(value), found)

    def retire(self, i: int, op: Operation) -> None:
        before = set(self.live)
        super().retire(i, op)
        for value in before - set(self.live):
            self.known.pop(value, None)

    def returned(self, i: int, value: SSAValue) -> None:
        if not self.upstream:  # upstream's plans overwrite outputs that nobody reads
            super().returned(i, value)


def _type(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
