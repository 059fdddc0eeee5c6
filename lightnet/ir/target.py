"""A target as a value: what a machine has, which ops it runs, and its own rules for each pass.

The fields are those of a LightNet architecture (document 004, "Architecture"): registered ops, expanders, combiners,
subgraph and schedule functions; and what a compiler with a memory plan needs besides: memory spaces, the kernel op,
layouts, choices and the lowering. A target is one folder under `backends/` and one row of `registry.TARGETS`; passes
take it by name, so that `--load` can add one. Imports xDSL, `ir` and the runtime's alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import RewritePattern

from lightnet.dataclasses import dataclass, field, replace
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout
from lightnet.ir.memory import ARENA, memory_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.registry import KERNELS, TARGETS, Table, patterns, resolve
from lightnet.ir.runtime import INTERPRETED, Runtime, Settings
from lightnet.ir.types import spec_of
from lightnet.runtime.arrays import ALIGNMENT
from lightnet.runtime.dims import typical

if TYPE_CHECKING:
    from lightnet.ir.rewrites import FilePattern
    from lightnet.passes.pipelines import Pipeline
    from lightnet.runtime.machine import Machine

GIB = 1 << 30


@dataclass(frozen=True)
class Space:
    """A memory space: the alignment of every place in it, and its capacity, both in bytes; and its memory type
    (document 004), by default one of the target's own, which is called as the target. What does not fit in stands in
    the arena, unless kernels cannot reach it there (`spills`)."""

    alignment: int = ALIGNMENT
    capacity: int = 16 * GIB
    mtype: str | None = None
    spills: bool = True


class PatternFile(Protocol):
    """Patterns that come with a target as data (`lightnet_descriptions.Description`): the pass that they are for. They
    are read when that pass runs: reading takes longer than a small network's passes."""

    @property
    def pass_name(self) -> str: ...

    def read(self) -> tuple[type[FilePattern], ...]: ...


Halo = tuple[int, int]


@dataclass(frozen=True)
class Form:
    """The form in which some generator of a target takes a body on maps in a layout of their own (`ir/layout.py`):
    `maps` are the values from outside that it reads as maps, with the halo (rows, columns) that each must have at
    least; `weights` those that it wants packed, which must be static. Every result is a map, or none is
    (`plain_results`). `tied`: all maps and results need the same layout. What else comes from outside stays plain.
    """

    maps: Mapping[SSAValue, Halo]
    weights: frozenset[SSAValue] = frozenset()
    plain_results: bool = False
    tied: bool = False


@dataclass(frozen=True)
class Blocking:
    """A target's offer for a kernel on maps in the layout `map` (before a halo is added), and nanoseconds of both
    ways, roughly."""

    form: Form
    map: Layout
    blocked: float
    plain: float


@dataclass(frozen=True)
class Request:
    """The request that kernels are chosen for: the `features` of a machine (what they mean is the target's business),
    the `threads` that a kernel is shaped for, and the `most` that may share it (0: as many), and whether results should
    be `exact`: those of a direct evaluation but for the order of sums; `weight_memory` is how many bytes transformed
    weights may take beyond the plain ones (None: what the target thinks right), `precision` to what the factors of
    products of f32 may be rounded; `special` are the values of symbols, by name, for which open kernels should have
    faster code of their own.
    """

    features: str = ""
    threads: int = 1
    exact: bool = False
    weight_memory: int | None = None
    precision: str = "f32"
    most: int = 0
    special: Mapping[str, Sequence[int]] = field(default_factory=dict)


#: Bytes that a change of layout moves in a nanosecond, read and written.
REORDER_RATE = 20.0


def reorder_time(value: SSAValue, layout: Layout) -> float:
    """Nanoseconds, roughly, that a map takes from row-major memory to a layout of maps, or back, on a processor."""
    spec = spec_of(value.type)
    return typical(spec.nbytes + layout.size(spec)) / REORDER_RATE


def unfusable(body: Body) -> str | None:
    """The reason why the loops of a body's definitions cannot be one kernel; None where they can."""
    alone = next((op for op in body.ops if op.definition is None or op.has_builder or op.is_host), None)
    return None if alone is None else f"{alone.name} has no definition in index notation: it stands alone in its kernel"


@dataclass(frozen=True)
class Target:
    """One architecture. `name` is its row in `registry.TARGETS`.

    `kernel` names its kernel op in `registry.KERNELS` (None: the target runs level 1, and `expand` leaves it alone).
    `supports(op)` says whether one op by itself becomes a kernel; `accepts(body)` names the generator that takes a body
    of several ops, or is the `Refusal` of one that none takes; `refuses(body)` why it cannot be one kernel at all, for
    fusion that a description asks for. `expanders`, `combiners` and `subgraphs` are rewrite patterns of the passes
    `expand`, `combine` and `subgraph`, beside those of `registry.patterns`; `descriptions` has more of them, as data;
    `schedule` gives a block's ops another order. `generators` is the table of those that make its kernels
    (`backends/generator.py`). `choose(kernel, request)` gives the choices of a kernel: an algorithm, a tile, by what it
    costs; `selection` is what compares its generators (`backends/selection.py`), if it has any; `settle(kernels,
    request)` then may change those of kernels whose algorithm nobody pinned, for what only all of them together show.
    `home(value)` names the memory space that a computed value should stand in (None: all stand in the arena); what does
    not fit there stands in the arena. `ports` is from how many bytes on inputs and outputs are memory of the caller,
    read and written where it is (0: they are copied into the arena and out of it). `apart` is up to how many bytes
    values share none with those of ops nearby that may run at the same time (0: ops run one after the other, and all
    may share). `cascades` says whether large maps, with the layout ``plain``, are computed in stripes of rows for the
    sake of memory (the pass `cascade`). `blocking(kernel, features)` says how a kernel would run on blocked maps,
    `chain(kernel, request)` which kernels around it (in order, it among them) should become one that runs in bands of
    rows (`chains`: those that it chose from, with the nanoseconds that each saves, or why it cannot be),
    `packing(kernel)` which layouts its operands that are weights should have for its choices, by operand number;
    `predicted(kernel)` is what a kernel takes with its choices, in nanoseconds of one thread, by the target's model;
    `reorder(value, layout)` is what a change between row-major memory and a layout of maps costs, in nanoseconds.
    `machine` is what networks run on, whatever runs them: it is opened when an executable is made, closed with it, and
    copies between memory spaces (a `Machine`, or ``module:Attribute``). `arches` are others whose kernels its networks
    may hold. `upstream` names the passes that upstream's architecture runs behind its expander, when its plans are
    reproduced. `pipeline` makes its own pipeline of the default one: ``lambda default: default.after("combine",
    "tile-rows")``; it is called ``@name``. `lowering` names the pass from level 3 to 4; without one, the planned
    network runs in the interpreter. `runtime` is how launches become code, and how that is loaded, called, stepped
    through and saved, with which options and files (a `Runtime`, or ``module:Attribute``). `takes_open` says whether
    sizes may be for calls to decide, `specializes` whether `choose` has faster code for values of these
    (`Request.special`). `precisions` are what it may compute in beside what every target may (tf32 of tensor cores).
    `multiplies_bytes(features)` says whether four products of bytes are no dearer than two of words,
    `multiplies_short(features)` whether two of bf16 are no dearer than one of f32. `emitters` write the planned network
    in other forms, by name: a function of the module to text or bytes, which may take options by name (`cpu`, `triple`,
    `arch`: of what machine the code is).
    """

    name: str
    spaces: Mapping[str, Space] = field(default_factory=dict)
    kernel: str | None = None
    supports: Callable[[LnOp], bool] = lambda op: True
    accepts: Callable[[Body], str | Refusal | None] = lambda body: Refusal("each op is a kernel of its own")
    refuses: Callable[[Body], str | None] = unfusable
    generators: Table | None = None
    choose: Callable[[KernelOp, Request], Mapping[str, Attribute]] = lambda kernel, request: {}
    selection: Any = None
    settle: Callable[[Sequence[KernelOp], Request], None] = lambda kernels, request: None
    expanders: tuple[type[RewritePattern], ...] = ()
    combiners: tuple[type[RewritePattern], ...] = ()
    subgraphs: tuple[type[RewritePattern], ...] = ()
    descriptions: tuple[PatternFile, ...] = ()
    schedule: Callable[[Block], list[Operation]] | None = None
    layouts: tuple[str, ...] = ("plain",)
    blocking: Callable[[KernelOp, str], Blocking | Refusal | None] = lambda kernel, features: None
    chain: Callable[[KernelOp, Request], list[KernelOp]] = lambda kernel, request: []
    chains: Callable[[KernelOp, Request], Iterable[tuple[list[KernelOp], float | Refusal]]] = lambda kernel, request: ()
    packing: Callable[[KernelOp], Mapping[int, Layout]] = lambda kernel: {}
    predicted: Callable[[KernelOp], float | None] = lambda kernel: None
    reorder: Callable[[SSAValue, Layout], float] = reorder_time
    home: Callable[[OpResult], str] | None = None
    ports: int = 0
    apart: int = 0
    cascades: bool = False
    multiplies_bytes: Callable[[str], bool] = lambda features: False
    multiplies_short: Callable[[str], bool] = lambda features: False
    takes_open: bool = True
    specializes: bool = False
    lowering: str | None = None
    machine: str | Machine = "lightnet.runtime.machine:PROCESS"
    upstream: tuple[str, ...] = ()
    pipeline: Callable[[Pipeline], Pipeline] | None = None
    arches: tuple[str, ...] = ()
    runtime: str | Runtime = INTERPRETED
    precisions: tuple[str, ...] = ()
    emitters: Mapping[str, Callable[..., str | bytes]] = field(default_factory=dict)

    @property
    def kernel_op(self) -> type[KernelOp]:
        """The class of its kernel region; an error for a target that has none."""
        if self.kernel is None:
            raise LightNetError(f"target '{self.name}' has no kernels: it runs the graph as it is")
        return KERNELS.get(self.kernel)

    @property
    def opened_by(self) -> Machine:
        """Its machine."""
        return resolve(self.machine) if isinstance(self.machine, str) else self.machine

    @property
    def own_runtime(self) -> Runtime:
        """Its runtime."""
        return resolve(self.runtime) if isinstance(self.runtime, str) else self.runtime

    def settings(self, **options: Any) -> Settings:
        """The settings that options of its own come to. Raises `LightNetError` as `Runtime.given` and `Runtime.settle`
        do.
        """
        return self.own_runtime.settle(self.own_runtime.given(self.name, options))

    def emitter(self, form: str, options: Iterable[str] = ()) -> Callable[..., str | bytes]:
        """The emitter that makes a module into `form`. Raises LightNetError for a form that the target has not, and for
        options that it does not take.
        """
        if form not in self.emitters:
            there = ", ".join(self.emitters) or "none"
            raise LightNetError(f"target '{self.name}' has no emitter for '{form}'; there are: {there}")
        taken = signature(self.emitters[form]).parameters
        if unknown := [name for name in options if name not in taken]:
            raise LightNetError(f"--{unknown[0]} says nothing to target '{self.name}' about '{form}'")
        return self.emitters[form]

    def emit(self, form: str, module: ModuleOp, **options: str) -> str | bytes:
        """A module in another form. Raises LightNetError as `emitter` does, and for a network without a plan."""
        emitter = self.emitter(form, options)
        if not memory_of(module) and any(isinstance(op, LnOp | KernelOp) for op in module.walk()):
            raise LightNetError(f"target '{self.name}' emits planned networks: run its passes up to plan first")
        return emitter(module, **options)

    def space_of(self, value: SSAValue) -> str:
        """The memory space that a value should stand in: what `home` says, or the arena."""
        return self.home(value) if self.home is not None and isinstance(value, OpResult) else ARENA

    def mtype_of(self, value: SSAValue) -> str:
        """The memory type of the space that a value should stand in."""
        return self.mtype(self.space_of(value))

    def mtype(self, space: str) -> str:
        """The memory type of a space: ``cuda`` of what is ``LN_MEM_CUDA`` in document 004."""
        return self.spaces.get(space, Space()).mtype or self.name

    def patterns(self, pass_name: str) -> list[RewritePattern]:
        """The patterns of `expand`, `combine` or `subgraph`: those that files registered for them, then its own."""
        own = {"expand": self.expanders, "combine": self.combiners, "subgraph": self.subgraphs}[pass_name]
        described = [cls for d in self.descriptions if d.pass_name == pass_name for cls in d.read()]
        return [cls() for cls in (*patterns(pass_name, self.name), *own, *described)]


def get_target(name: str) -> Target:
    """The target called `name`; an unknown name is an error that lists the targets."""
    target = TARGETS.get(name)
    if not isinstance(target, Target):
        raise LightNetError(f"target '{name}' ({TARGETS.where(name)}) is not a Target")
    return target


def lowered_by(pass_name: str) -> Runtime:
    """The runtime of the launches that a pass makes: that of the first target whose `lowering` it is. One that is no
    target's has launches of loops, as far as anybody knows."""
    for name in TARGETS:
        target = get_target(name)
        if target.lowering == pass_name:
            return target.own_runtime
    return INTERPRETED


def with_capacity(target: Target, space: str, capacity: int) -> Target:
    """`target` with another capacity, in bytes, for one memory space."""
    if space not in target.spaces:
        raise LightNetError(
            f"target '{target.name}' has no memory space '{space}'; there are: {', '.join(target.spaces)}"
        )
    resized = replace(target.spaces[space], capacity=capacity)
    return replace(target, spaces={**target.spaces, space: resized})


__all__ = [
    "Blocking", "Body", "Form", "Halo", "PatternFile", "Request", "Space", "Target", "get_target", "reorder_time",
    "with_capacity",
]  # fmt: skip


def is_here(arch: str) -> bool:
    """Return whether there is code for an architecture: a target that lowers its kernels, or none."""
    return arch == "none" or (arch in TARGETS and get_target(arch).lowering is not None)
