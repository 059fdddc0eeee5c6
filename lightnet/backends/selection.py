"""The generator that makes a kernel, and its plan: the answers to `layout`, `choose`, `pack` and the lowering, of any
target.

Nothing is measured: a plan says what its kernel takes on a machine, by a model. Each generator is asked for its plan of
a kernel once: the one that is chosen is kept under what the kernel then is, its body, types and choices. Who changes
any of these asks anew, and so does who reads a file whose kernels have chosen. Imports what generators are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from lightnet.backends.generator import Generator, GeneratorError, Plan, form_of_arguments
from lightnet.backends.kernel_loops import writes_nothing
from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import OfEqualKernels, choice, kernel_identity
from lightnet.ir.kernel import KernelOp, choice_attr, choice_integers
from lightnet.ir.layout import Layout, layout_of, with_layout
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import WORKSPACE_SIZE, size_attr, workspace_size
from lightnet.ir.names import WORKSPACE
from lightnet.ir.refusal import Refusal
from lightnet.ir.registry import Table, load_installed
from lightnet.ir.target import Blocking, Form, Request
from lightnet.ir.types import ParamAttr
from lightnet.ir.views import place_of
from lightnet.runtime.dims import is_never_below

M = TypeVar("M")
Candidate = tuple[Generator, Form]
#: What a pinned `alg` adds to the time of the other ways, in nanoseconds: no other reason counts as much.
PINNED = 1e12
#: Choices that say how a kernel is run, and nothing of its code.
OF_RUNS = ("threads", WORKSPACE_SIZE, "specialize")


@dataclass(frozen=True)
class Chosen:
    """The plan of a kernel, all that it was chosen from, and what is written on the kernel."""

    plan: Plan
    offers: tuple[Plan, ...]
    choices: Mapping[str, Attribute]


class Selection(ABC, Generic[M]):
    """The generators of a target, and the plans that were made by them. `name` is what errors call the target."""

    def __init__(self, name: str, table: Table):
        self.name, self.table = name, table
        self._chosen: OfEqualKernels[Chosen] = OfEqualKernels()
        self._settled: OfEqualKernels[Plan] = OfEqualKernels()
        self._blockings: OfEqualKernels[Blocking | Refusal] = OfEqualKernels()
        #: By kernel, not by what equal ones share: offers depend on the machine, and not on what was compiled before.
        self._made: WeakKeyDictionary[KernelOp, Chosen] = WeakKeyDictionary()

    # -- what a target says

    @abstractmethod
    def fits(self, generator: Generator, form: Form, kernel: KernelOp, machine: M) -> bool | Refusal:
        """Return whether the layouts of a kernel's operands and results are what a generator asks for by a form, or
        will be once `pack` has run.
        """

    @abstractmethod
    def machine_for(self, kernel: KernelOp) -> M | None:
        """The machine that a kernel with choices is for, by these and its layouts; None where they name none."""

    def refuse(self, kernel: KernelOp, machine: M, usable: Sequence[Candidate]) -> NoReturn:
        """Raise `LightNetError` for a kernel that no generator takes with its layouts and choices."""
        pinned, what = choice(kernel, "alg"), f"{kernel.name} of {', '.join(op.optype for op in kernel.ops)}"
        lanes = kernel.attributes.get("lanes")
        what += f" with layouts {layouts(kernel)}" + (f", lanes = {choice_integers(lanes)}" if lanes else "")
        what += f", alg = '{pinned}'" if pinned is not None else ""
        fitting = dict.fromkeys(g.alg for g, form in usable if self.fits(g, form, kernel, machine))
        others = f"; alg may be {', '.join(fitting)}" if fitting else ""
        others += self.remedy(pinned, kernel, machine, usable)
        raise LightNetError(f"no generator of {self.name} takes {what}{others}", loc_of(kernel), label="choose.alg")

    def remedy(self, pinned: str | None, kernel: KernelOp, machine: M, usable: Sequence[Candidate]) -> str:
        """The end of that error: why the algorithm that is pinned does not take it, and what to do."""
        return ""

    def usable(self, kernel: KernelOp, machine: M) -> Iterable[Generator]:
        """The generators that may take a kernel."""
        return (g for g in self.generators() if g.is_for(machine))

    def named_by(self, plan: Plan, machine: M) -> dict[str, Attribute]:
        """The choices that name a plan's generator."""
        return {"alg": StringAttr(plan.alg)}

    def default(self, kernel: KernelOp) -> str | None:
        """The `alg` of a kernel that has none, or none that fits; None where there has to be one."""
        return None

    @abstractmethod
    def machine_of(self, features: str) -> M:
        """The machine that features name."""

    def machine_asked(self, kernel: KernelOp, request: Request) -> M:
        """The machine that a kernel is chosen for, where this is asked for."""
        return self.machine_of(request.features)

    @abstractmethod
    def origins(self, kernel: KernelOp) -> Hashable:
        """The part of where operands come from that counts for `numbered_blocking`."""

    @abstractmethod
    def numbered_blocking(self, kernel: KernelOp, machine: M) -> Blocking | Refusal:
        """`blocking`, asked anew; its form names operands by number."""

    # -- before there are layouts

    def blocking(self, kernel: KernelOp, features: str) -> Blocking | Refusal:
        """The run of a kernel on maps (`Target.blocking`)."""
        beside = features, self.origins(kernel), self.table.version
        found = self._blockings.get(kernel, beside, lambda: self.numbered_blocking(kernel, self.machine_of(features)))
        return replace(found, form=form_of_arguments(found.form, kernel)) if isinstance(found, Blocking) else found

    # -- who takes a kernel

    def generators(self) -> tuple[Generator, ...]:
        """All of them, plugins' included, in order of preference where they cost the same."""
        load_installed()
        return _generators(self.table, self.table.version)

    def candidates(self, kernel: KernelOp, machine: M) -> list[Candidate]:
        """The generators that take a kernel's body, once for each form."""
        ops, yielded = kernel.ops, list(kernel.terminator.operands)
        return [(g, form) for g in self.usable(kernel, machine) for form in g.forms(ops, yielded, machine)]

    def offers(self, kernel: KernelOp, found: Sequence[Candidate], machine: M) -> list[Plan]:
        """The plans of candidates. One that cannot have a choice of the kernel is out; raises its `LightNetError` where
        all are."""
        plans, refusals = [], []
        for generator, form in found:
            try:
                plans.append(generator.planned(kernel, form, machine))
            except GeneratorError:
                raise
            except LightNetError as error:  # a tile, say, that is one of another generator
                refusals.append(error)
        if refusals and not plans:
            raise refusals[0]
        return plans

    # -- choosing

    def choose(self, kernel: KernelOp, machine: M, exact: bool) -> Chosen:
        """The plan that takes least time, among those of all generators that take a kernel with its layouts (of those
        that its `alg` names, if it has one; of none that is inexact if it has to be `exact`). Raises `LightNetError`
        where none does.
        """
        owners = tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)
        placed = bool(kernel.results) and place_of(kernel.results[0]) is not None
        key = machine, exact, owners, placed, self.table.version
        made = self._chosen.get(kernel, key, lambda: self._choose(kernel, machine, exact))
        self._made[kernel] = made
        return made

    def made(self, kernel: KernelOp) -> Chosen | None:
        """The last answer of `choose` for this kernel; None where it was not asked."""
        return self._made.get(kernel)

    def _choose(self, kernel: KernelOp, machine: M, exact: bool) -> Chosen:
        if "alg" in kernel.attributes and choice(kernel, "alg") is None:
            raise LightNetError(
                f'the choice alg of {kernel.name} is a name, as in alg = "direct"', loc_of(kernel), label="choose.alg"
            )
        usable = self.candidates(kernel, machine)
        found = [(g, form) for g, form in usable if self.allows(g, form, kernel, machine, exact)]
        if choice(kernel, "alg") is None:
            found = [f for f in found if not f[0].last] or found
        if not found:
            self.refuse(kernel, machine, usable)
        offers = self.offers(kernel, found, machine)
        return self.chosen(kernel, min(offers, key=lambda p: p.time), offers, machine)

    def allows(self, generator: Generator, form: Form, kernel: KernelOp, machine: M, exact: bool) -> bool | Refusal:
        """Return whether a generator that takes a kernel's body may make the kernel: by its `alg`, and its layouts."""
        if (pinned := choice(kernel, "alg")) not in (None, generator.alg):
            return Refusal("the kernel is for '{}'", pinned)
        if pinned is None and exact and not generator.is_exact(kernel.ops):
            return Refusal("it sums something else than the definition, and results are to be exact")
        return self.fits(generator, form, kernel, machine)

    def chosen(self, kernel: KernelOp, plan: Plan, offers: Sequence[Plan], machine: M) -> Chosen:
        """A plan as what a kernel has chosen, which is kept for the passes to come."""
        plan = plan.generator.completed(kernel, plan)
        own = written_choices(plan.choices)
        made = Chosen(plan, tuple(offers), {**self.named_by(plan, machine), **own})
        types = list(kernel.operand_types)
        self._keep(kernel, types, made)
        for number, layout in plan.weights.items():
            types[number] = with_layout(types[number], layout)
        self._keep(kernel, types, made)
        return made

    def _keep(self, kernel: KernelOp, types: Sequence[Attribute], made: Chosen) -> None:
        self._settled.keep(self._key(kernel, types, {**made.choices, **kernel.attributes}), made.plan)

    def _key(self, kernel: KernelOp, types: Sequence[Attribute], attributes: Mapping[str, Attribute]) -> Hashable:
        known = {k: v for k, v in attributes.items() if k not in OF_RUNS}
        return kernel_identity(kernel, types, known), self.table.version

    # -- what was chosen

    def found(self, kernel: KernelOp) -> Plan | None:
        """The plan that a kernel has chosen, as its choices and layouts say; None where they name no generator. Its
        time may be that on another machine than was asked for: `made` has the plan as it was chosen."""
        key = self._key(kernel, kernel.operand_types, kernel.attributes)
        if (known := self._settled.find(key)) is None and (known := self._read(kernel)) is not None:
            self._settled.keep(key, known)
        return known

    def _read(self, kernel: KernelOp) -> Plan | None:
        """`found`, asked anew: of a kernel that was not chosen for here, but read from a file, or changed since."""
        machine = self.machine_for(kernel)
        if machine is None:
            return None
        found = self.candidates(kernel, machine)
        for alg in (choice(kernel, "alg"), self.default(kernel)):
            for generator, form in found:
                if generator.alg == alg and self.fits(generator, form, kernel, machine):
                    return generator.completed(kernel, generator.planned(kernel, form, machine))
        return None

    def packing(self, kernel: KernelOp) -> Mapping[int, Layout]:
        """The layouts of a kernel's weights (`Target.packing`)."""
        plan = self.found(kernel)
        return {} if plan is None else plan.weights

    def predicted(self, kernel: KernelOp) -> float | None:
        """The nanoseconds that a kernel takes as it has chosen (`Target.predicted`)."""
        plan = self.found(kernel)
        return None if plan is None else plan.time

    def plan_of(self, kernel: KernelOp) -> Plan:
        """The plan by which a kernel is built. Raises `LightNetError` where its choices and layouts name none."""
        if (plan := self.found(kernel)) is None:
            alg = choice(kernel, "alg")
            raise LightNetError(f"no generator of {self.name} takes this {kernel.name} with alg = {alg!r} in layouts "
                                f"{layouts(kernel)}: run choose "
                                "and pack", loc_of(kernel), label=f"{kernel.name}.layout")  # fmt: skip
        return plan

    def generate(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list:
        """The launches of a kernel; `aliases` maps a result to the operand whose memory it takes."""
        if writes_nothing(kernel):
            return []
        plan = self.plan_of(kernel)
        for number, layout in plan.weights.items():
            if (found := layout_of(kernel.operands[number].type)) != layout:
                raise LightNetError(f"operand {number} of this {kernel.name} is {found}, its choices want {layout}: "
                                    "run pack behind choose",
                                    loc_of(kernel), label=f"{kernel.name}.packed")  # fmt: skip
        return plan.build(kernel, name, aliases)

    def workspace_bytes(self, kernel: KernelOp) -> int:
        """Bytes that the launches of a kernel use beside its operands and results."""
        return 0 if writes_nothing(kernel) else self.plan_of(kernel).memory


def written_choices(choices: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """A plan's choices as they are written on a kernel."""
    return {k: choice_attr(v.data) if isinstance(v, ParamAttr) else v for k, v in choices.items()}  # type: ignore[arg-type]


@lru_cache(maxsize=4)
def _generators(table: Table, version: int) -> tuple[Generator, ...]:
    """The generators that a table holds at this version of it: the passes ask for every kernel."""
    return tuple(table.in_order())


def with_workspace(kernel: KernelOp, made: Chosen) -> dict[str, Attribute]:
    """The choices of a kernel, and the bytes of workspace that its plan needs, if there are not as many already."""
    choices = dict(made.choices)
    size = 0 if writes_nothing(kernel) else made.plan.memory
    if not is_never_below(workspace_size(kernel), size):
        for stale in (WORKSPACE_SIZE, WORKSPACE):  # chosen, and planned, for a body that was another one
            kernel.attributes.pop(stale, None)
        choices[WORKSPACE_SIZE] = size_attr(size)
    return choices


def has_maps(form: Form) -> bool:
    """Return whether a form has anything that is a map."""
    return bool(form.maps) or not form.plain_results


def layouts(kernel: KernelOp) -> str:
    """The layouts of a kernel's operands and results, for errors."""
    return ", ".join(dict.fromkeys(str(layout_of(v.type)) for v in (*kernel.operands, *kernel.results)))
