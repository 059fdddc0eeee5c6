"""The reference interpreter of levels 1 to 3: every op by its NumPy reference.

Levels 1 and 2 compute on arrays. Level 3, a planned module, really reads and writes the planned bytes: a value is
stored at its place, an operand is loaded from its place when its op runs, a move whose places coincide writes nothing,
and bytes are poisoned before they are written and after their last use. So a wrong plan gives wrong results. Imports
the IR, the runtime, and `arena`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TextIO

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from lightnet.backends.interpreter.arena import Arenas, Range
from lightnet.diagnostics import DescriptionWarning, LightNetError
from lightnet.dialects.ln.arguments import without_arguments
from lightnet.dialects.ln.effect import Fprint, Print
from lightnet.dialects.ln.move import Copy
from lightnet.dialects.ln.source import Source, is_fed
from lightnet.dialects.ln.structure import OnceOp, planned_ops
from lightnet.ir.arrays import from_memory, to_memory
from lightnet.ir.counts import counts_of
from lightnet.ir.instances import instance_of, symbols_of
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.layout import byte_size, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import is_upstream, memory_of, workspace_size
from lightnet.ir.module import main_of, output_names, value_name
from lightnet.ir.op import WORKSPACE, LnOp, tensor_name, tensor_names
from lightnet.ir.target import is_here
from lightnet.ir.views import moves_left, overwritable, place_of, views_of
from lightnet.runtime.machine import PROCESS, Area
from lightnet.runtime.open_instance import call_values
from lightnet.runtime.printing import open_fprint, print_tensor
from lightnet.runtime.program import sized
from lightnet.runtime.weights import WeightStore


def run(
    module: ModuleOp,
    inputs: Mapping[str, np.ndarray] | None = None,
    store: WeightStore | None = None,
    *,
    seed: int = 0,
    outputs: Sequence[str] | None = None,
    stream: TextIO | None = None,
    folder: str = ".",
    values: MutableMapping[str, np.ndarray] | None = None,
    copy: Callable[[Area, Area], None] | None = None,
) -> dict[str, np.ndarray]:
    """Run a module of level 1, 2 or 3 and return its outputs by tensor name, in the order of `func.return`, those that
    are counted at their true size.

    `inputs` feeds tensors (`create`, `input` or `param`) by name, with arrays of exactly their shape and dtype; all
    others hold what `store` or the network gives them (`seed` for random ones). `outputs` asks for tensors of main by
    name instead. `print` writes to `stream` (default: stdout), `fprint` below `folder`. `values`, if given, receives
    every named tensor of main. `copy`, if given, moves bytes from the host into the spaces of a planned module and
    back, and between two of them (`runtime.machine.Machine.copy`). Raises `LightNetError` for an unknown name or an
    array that does not fit.
    """
    module = _of_call(without_arguments(module), inputs or {})
    given = inputs or {}, store, seed, stream or sys.stdout, folder
    machine = Planned(module, *given, copy=copy) if memory_of(module) else ValueMachine(module, *given)
    for arch in dict.fromkeys(type(op).dialect_name() for op in machine.ops if isinstance(op, KernelOp)):
        if not is_here(arch):
            text = f"target '{arch}' has no code here: the interpreter computes its kernels by the ops in them"
            warnings.warn(text, DescriptionWarning, stacklevel=2)
    return machine.run(outputs, values)


def _of_call(module: ModuleOp, inputs: Mapping[str, np.ndarray]) -> ModuleOp:
    """The module, or, where calls decide sizes in it, a copy for a call on these inputs."""
    if not (symbols := symbols_of(module)):
        return module
    dims = {op.tensor_names[0] or "": op.result_specs[0].dims for op in feedable_ops(module)}
    return instance_of(module, call_values(dims, {n: np.shape(a) for n, a in inputs.items()}, symbols.values()))


def feedable_ops(module: ModuleOp) -> Iterator[Source]:
    """Every op that can be fed, in `ln.once` too."""
    for op in main_of(module).walk():
        if is_fed(op):
            yield op


def check_feed(op: Source, array: np.ndarray) -> np.ndarray:
    """`array` as the contents of `op`. Lists and scalars are converted; an array must have the very dtype."""
    spec, name = op.result_specs[0], op.tensor_names[0]
    try:
        value = array if isinstance(array, np.ndarray) else np.asarray(array, spec.dtype.np)
    except (TypeError, ValueError, OverflowError) as e:
        raise LightNetError(f"tensor '{name}' is {spec} and cannot be fed with this: {e}", label="feed.value") from None
    if value.shape != spec.dims or value.dtype != spec.dtype.np:
        raise LightNetError(
            f"tensor '{name}' has shape {list(spec.dims)} and dtype {spec.dtype.np}, but is fed with "
            f"shape {list(value.shape)} and dtype {value.dtype}",
            label="feed.type",
        )
    return value


class ValueMachine:
    """Levels 1 and 2: values are arrays."""

    def __init__(
        self,
        module: ModuleOp,
        inputs: Mapping[str, np.ndarray],
        store: WeightStore | None,
        seed: int,
        stream: TextIO,
        folder: str,
    ):
        self.module, self.store, self.seed, self.stream, self.folder = module, store, seed, stream, folder
        self.ops = planned_ops(main_of(module).body.block)
        self.feeds = self.checked(inputs)
        self.env: dict[SSAValue, np.ndarray] = {}
        self.positions = {op: i for i, op in enumerate(self.ops)}

    def checked(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        known = {op.tensor_names[0]: op for op in feedable_ops(self.module)}
        for name in inputs:
            if name not in known:
                there = ", ".join(sorted(n for n in known if n)[:20]) or "none"
                raise LightNetError(f"'{name}' is no tensor that can be fed; there are: {there}", label="feed.name")
        return {name: check_feed(known[name], array) for name, array in inputs.items()}

    def run(
        self, outputs: Sequence[str] | None, values: MutableMapping[str, np.ndarray] | None
    ) -> dict[str, np.ndarray]:
        wanted = self.wanted(outputs)
        found: dict[str, np.ndarray] = {}
        watched = set(wanted.values())
        for i, op in enumerate(self.ops[:-1]):
            self.step(i, op)
            for value in op.results:
                name = tensor_name(value)
                if values is not None and name:
                    values[name] = self.read(value).copy()
                if outputs is not None and value in watched:
                    found.update({n: self.fetch(value).copy() for n, v in wanted.items() if v is value})
            self.retire(i, op)
        if outputs is not None:
            return {name: found[name] for name in wanted}
        names = list(wanted)
        counts = [(names[i], axis, names[j]) for i, axis, j in counts_of(self.ops[-1])]
        return sized({name: self.fetch(value) for name, value in wanted.items()}, counts)

    def fetch(self, value: SSAValue) -> np.ndarray:
        """A value as the host gets it."""
        return self.read(value)

    def wanted(self, outputs: Sequence[str] | None) -> dict[str, SSAValue]:
        """The values to return, by name."""
        if outputs is None:
            return output_names(self.ops[-1])
        known = {n: v for op in self.ops for n, v in zip(tensor_names(op), op.results) if n}
        for name in outputs:
            if name not in known:
                raise LightNetError(
                    f"'{name}' is no tensor of the network, or a pass removed it (fusion keeps only what "
                    "leaves a kernel)",
                    label="output.name",
                )
        return {name: known[name] for name in outputs}

    def step(self, i: int, op: Operation) -> None:
        if isinstance(op, Print | Fprint):
            self.show(op)
            return
        operands = [self.read(v) for v in op.operands]
        for value, array in zip(op.results, self.evaluate(op, operands)):
            self.env[value] = array

    def read(self, value: SSAValue) -> np.ndarray:
        return self.env[value]

    def retire(self, i: int, op: Operation) -> None:
        """Retire what ends with the op at position `i`; arrays are dropped after their last use."""
        for value in op.operands:
            if all(self.positions.get(use.operation, -1) <= i for use in value.uses):
                self.env.pop(value, None)

    # -- ops

    def evaluate(self, op: Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of an op, a kernel or a region."""
        if isinstance(op, Source):
            name = op.tensor_names[0]
            return [self.feeds[name] if name in self.feeds else op.contents(self.store, self.seed, loc=loc_of(op))]
        if isinstance(op, KernelOp):
            return self.block(op.body, dict(zip(op.body.args, operands)))
        if isinstance(op, OnceOp):
            return self.block(op.body, {})
        assert isinstance(op, LnOp)
        return op.evaluate(operands)

    def block(self, block: Block, env: dict[SSAValue, np.ndarray]) -> list[np.ndarray]:
        for op in block.ops:
            if isinstance(op, YieldOp):
                return [env[v] for v in op.operands]
            env.update(zip(op.results, self.evaluate(op, [env[v] for v in op.operands])))
        raise AssertionError("a region without a yield was verified")

    def show(self, op: Print | Fprint) -> None:
        array = self.fetch(op.operands[0])
        if isinstance(op, Print):
            print_tensor(self.stream, op.msg, array)
            return
        try:
            with open_fprint(op.file, self.folder) as file:
                print_tensor(file, op.msg, array)
        except OSError as e:
            sys.stderr.write(f"warning: fprint cannot write {op.file!a}: {e.strerror}\n")
        except LightNetError as e:
            raise e.at(loc_of(op)) from None


class Planned(ValueMachine):
    """Level 3: values are bytes at places."""

    def __init__(self, module: ModuleOp, *args, copy: Callable[[Area, Area], None] | None = None, **options):
        super().__init__(module, *args, **options)
        self.move = copy or (lambda to, source: PROCESS.copy(None, to, source))
        self.arenas = Arenas(memory_of(module))
        self.upstream = is_upstream(module)
        self.live: dict[SSAValue, Range] = {}
        self.lossy: dict[SSAValue, np.ndarray] = {}  # static tensors that cannot be read back exactly
        for op in self.ops:
            if isinstance(op, Source | OnceOp):
                for value, array in zip(op.results, self.evaluate(op, [])):
                    self.keep(value, array)

    def keep(self, value: SSAValue, array: np.ndarray | None) -> None:
        if array is not None:
            if isinstance(value.owner, Source | OnceOp):
                self.upload(value, array)
            else:
                self.arenas.store(self.place(value), value.type, array)
            if not layout_of(value.type).is_lossless:
                self.lossy[value] = array
        self.live[value] = self.range(value)

    def place(self, value: SSAValue):
        place = place_of(value)
        if place is None:
            raise LightNetError(f"'{value_name(value)}' has no place, but the module is planned", label="plan.place")
        return place

    def read(self, value: SSAValue) -> np.ndarray:
        return self.lossy[value] if value in self.lossy else self.arenas.load(self.place(value), value.type)

    def upload(self, value: SSAValue, array: np.ndarray) -> None:
        """Write what comes from the host to its place."""
        self.move(self.area(value), Area.of(np.ascontiguousarray(to_memory(value.type, array))))

    def fetch(self, value: SSAValue) -> np.ndarray:
        """Read a value from its place to the host."""
        if value in self.lossy:
            return self.lossy[value]
        found = np.empty(byte_size(value.type), np.uint8)
        self.move(Area.of(found), self.area(value))
        return from_memory(value.type, found)

    def area(self, value: SSAValue) -> Area:
        place, size = self.place(value), byte_size(value.type)
        return Area(place.space.data, self.arenas.bytes_at(place, size), size)

    def copied_apart(self, op: Operation) -> bool:
        """Return whether an op only copies from one space to another, which is for the machine to do."""
        alone = isinstance(op, KernelOp) and len(op.ops) == 1 and isinstance(op.ops[0], Copy)
        return alone and self.place(op.operands[0]).space != self.place(op.results[0]).space

    def step(self, i: int, op: Operation) -> None:
        if isinstance(op, Source | OnceOp):
            return
        if isinstance(op, Print | Fprint):
            self.show(op)
            return
        if self.copied_apart(op):
            self.move(self.area(op.results[0]), self.area(op.operands[0]))
            self.keep(op.results[0], None)
            return
        written = {j for j, _ in moves_left(op)}
        self.scribble(op, written)
        operands = [self.read(v) for v in op.operands]
        results = self.evaluate(op, operands)
        for j, (value, array) in enumerate(zip(op.results, results)):
            self.keep(value, array if j in written else None)
        self.scribble(op, set())

    def scribble(self, op: Operation, written: Iterable[int]) -> None:
        """A kernel may use its workspace, and write its results, before it has read all of its operands; only operands
        that it may overwrite, or that stand in place, are spared."""
        attr = op.attributes.get(WORKSPACE)
        for place in attr if isinstance(attr, ArrayAttr) else ():
            self.arenas.bytes_at(place, workspace_size(op))
            at = place.offset.data
            self.arenas.poison((place.space.data, at, at + workspace_size(op)))
        pairs = overwritable(op) if written else []
        parts = {k for j, k in self.pieces_in_place(op)} if written else set()
        for j in written:
            to = self.range(op.results[j])
            spared = [
                self.range(v)
                for k, v in enumerate(op.operands)
                if ((k, j) in pairs or self.upstream) and self.place(v) == self.place(op.results[j])
            ]
            spared += [self.range(op.operands[k]) for k in parts]
            self.arenas.poison(to, spared)

    def pieces_in_place(self, op: Operation) -> list[tuple[int, int]]:
        """(result, operand) of each move that stands in place already."""
        found = []
        for k, j, delta in views_of(op):
            a, b = self.place(op.operands[k]), self.place(op.results[j])
            if a.space == b.space and a.offset.data + delta == b.offset.data:
                found.append((j, k))
        return found

    def range(self, value: SSAValue) -> Range:
        place = self.place(value)
        return place.space.data, place.offset.data, place.offset.data + byte_size(value.type)

    def retire(self, i: int, op: Operation) -> None:
        """Poison what no live value needs any more."""
        dead = [v for v in (*op.operands, *op.results) if self.ends_at(v, i)]
        areas = [area for v in dict.fromkeys(dead) if (area := self.live.pop(v, None)) is not None]
        for area in areas:
            self.arenas.poison(area, self.live.values())

    def ends_at(self, value: SSAValue, i: int) -> bool:
        if isinstance(value.owner, Source | OnceOp) and not self.upstream:
            return False
        return all(self.positions.get(use.operation, -1) <= i for use in value.uses)
