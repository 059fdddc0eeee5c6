"""The machine that models of time on the CPU know, and what a kernel's choices say.

Imports layouts and what generators are; `forms.py` has what most bodies have in common, `kernel.py` the kernels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.ir import Attribute, SSAValue

from lightnet.backends import generator
from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp, choice_integers
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo
from lightnet.runtime.dims import Size

NO_HALO: Halo = (0, 0)
#: A kernel on the smallest and on the largest maps.
Ends = tuple[KernelOp, KernelOp]


@dataclass(frozen=True)
class ProcessorModel:
    """The processor as the cost model sees it, one core. Sizes in bytes, rates per nanosecond (G/s); the values are
    those of an AMD Zen 5 core; `python tools/calibrate.py` prints what the machine at hand gives beside them.
    """

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
    #: Multiply-adds of floats in whose time there is one product of two words, and of four bytes (`tile.dot`; measured
    #: on AMD Zen 3 for AVX2, where the product and the addition are two instructions; of bytes where none is for them,
    #: what taking them apart costs).
    words: float = 1.0
    bytes: float = 1.0
    #: Whether one of two bf16 takes no more time than a multiply-add of floats.
    bfloats: bool = False

    @property
    def has_bytes(self) -> bool:
        """True if four bytes are no dearer to multiply than two words."""
        return self.bytes <= self.words

    def product(self, together: int) -> float:
        """Multiply-adds of floats in whose time there is one product of so many elements `together`."""
        return {1: 1.0, 2: self.words, 4: self.bytes}[together]


#: What the cost model knows of processors, by the feature that decides.
MACHINES = {
    "avx512": ProcessorModel(words=2.0, bytes=7.0),
    "avx512vnni": ProcessorModel(),
    "avx512bf16": ProcessorModel(bfloats=True),
    "avx2": ProcessorModel(lanes=8, registers=16, flops=118.0, words=1.3, bytes=5.0),
    "neon": ProcessorModel(lanes=4, registers=32, flops=59.0, words=4.0, bytes=10.0),
}
#: Channels in a block of the maps that kernels are made for.
LANES = frozenset(machine.lanes for machine in MACHINES.values())
_BY_LANES = {machine.lanes: machine for machine in MACHINES.values()}


def processor_model_of(features: str, threads: int = 1) -> ProcessorModel:
    """The model of a machine with these features. Raises `LightNetError` for unknown ones."""
    if features and features not in MACHINES:
        raise LightNetError(f"unknown CPU feature '{features}'; there are: {', '.join(MACHINES)}")
    return replace(MACHINES[features or "avx512vnni"], threads=threads)


def machine_for(kernel: KernelOp) -> ProcessorModel | None:
    """The machine that a kernel's maps and choices are for; None where these say nothing, or name lanes that none
    has."""
    return _BY_LANES.get(lanes_of(kernel))


class BlockedGenerator(generator.Generator[ProcessorModel]):
    """A generator of the CPU's kernels, which takes a body in one form, or in none."""

    target = "cpu"
    #: Whether its kernels may be on maps, as `layout` should know.
    on_maps = True
    #: Whether it takes open bodies as they are: others take them row by row (`strips.py`).
    takes_open = False
    #: Whether its kernels may be on maps whose height or width a call decides (`open_maps.py`).
    opens = False

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> generator.Plan:
        """The plan for a kernel on open maps: `kernel` has the typical ones, for which it says the time, `ends` have
        the smallest and the largest. What it says besides holds for maps of any size."""
        return self.plan(kernel, form, machine)

    def ways(self, kernel: KernelOp) -> Sequence[Mapping[str, Attribute]]:
        """Choices of an open kernel between which only all of its maps together can decide."""
        return ({},)

    def open_memory(self, kernel: KernelOp, plan: generator.Plan) -> tuple[Size, Size]:
        """The `scratch_bytes` and `workspace_bytes` of a plan of `opened`, for the open kernel."""
        return plan.scratch_bytes, plan.workspace_bytes

    @abstractmethod
    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal | None:
        """The form of a body, a refusal where this is no generator for it. Ops may be those of a kernel, or a union
        that is not built yet; layouts of types do not count here."""

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Sequence[Form]:
        form = self.form(ops, yielded, machine)
        if not isinstance(form, Form | Refusal | None):
            raise generator.GeneratorError(self, "form", "no form", "a Form, a Refusal (or None) to refuse", form)
        return (form,) if isinstance(form, Form) else () if form is None else form


class AdaptedGenerator(BlockedGenerator):
    """The kernels of another generator, for bodies that it does not take as they are."""

    def __init__(self, inner: BlockedGenerator):
        self.inner = inner
        self.alg, self.exact, self.last, self.on_maps = inner.alg, inner.exact, inner.last, inner.on_maps

    def is_for(self, machine: ProcessorModel) -> bool:
        return self.inner.is_for(machine)

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        return self.inner.is_exact(ops)


class KernelGenerator(BlockedGenerator):
    """A generator of which each kernel is one function."""

    def __init__(self, function: Callable[..., Any]):
        """`function` makes what builds the function of a kernel, given the kernel, the plan's schedule, a name and
        aliases."""
        self.function = function

    def build(self, kernel: KernelOp, plan: generator.Plan, name: str, aliases: Mapping[int, int]) -> list[Any]:
        return [self.function(kernel, plan.schedule, name, aliases).build()]


def read_rate(machine: ProcessorModel, size: int) -> float:
    """Bytes a nanosecond that memory gives for data of `size` bytes which a kernel walks once."""
    return (
        machine.l2_bytes if size <= machine.l2 else machine.l3_bytes if size <= 16 * machine.l2 else machine.dram_bytes
    )


def blocks_of(channels: int, lanes: int) -> int:
    """Blocks of `lanes` channels."""
    return -(-channels // lanes)


def lanes_of(kernel: KernelOp) -> int:
    """Channels in a block of the maps of a kernel; without maps, elements of the vectors that it is for (0: nothing
    says)."""
    layouts = [layout_of(v.type) for v in (*kernel.operands, *kernel.results)]
    return next((layout.block for layout in layouts if isinstance(layout, Blocked)), chosen_lanes(kernel))


def chosen_lanes(kernel: KernelOp) -> int:
    """The kernel's choice `lanes`; 0 where it has none, -1 where that is no number."""
    attr = kernel.attributes.get("lanes")
    value = 0 if attr is None else choice_integers(attr)
    return value if isinstance(value, int) else -1


def choice_error(kernel: KernelOp, label: str, message: str) -> LightNetError:
    """The error that a kernel cannot have one of its choices."""
    return LightNetError(message, loc_of(kernel), label=label)


def choice_ints(kernel: KernelOp, name: str, length: int | None = None) -> tuple[int, ...] | None:
    """A choice of a kernel that is an array of integers, `length` of them if that is given; None where it has none.
    `LightNetError` for anything else."""
    attr = kernel.attributes.get(name)
    if attr is None:
        return None
    found = choice_integers(attr)
    if not isinstance(found, tuple) or (length is not None and len(found) != length):
        what = "integers" if length is None else f"{length} integer{'s' * (length > 1)}"
        raise choice_error(kernel, f"choice.{name}", f"choice {name} = {attr}: expected an array of {what}")
    return found
