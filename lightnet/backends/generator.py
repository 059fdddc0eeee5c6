"""The generator of kernels, and its plan for one: the same for all targets.

A generator makes the kernels of one family of bodies. It is asked for its plan of a kernel on a machine, once: what it
needs, what it would take, which choices it makes, how weights should lie, how much memory it wants, and by which
numbers it builds. A plan holds no IR, so that equal kernels share it (`selection.py` keeps it from `layout` and
`choose` to the lowering). Imports `ir`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, TypeVar

from xdsl.ir import Attribute, SSAValue

from lightnet.dataclasses import dataclass, field, replace
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Dim, Undecided, least
from lightnet.runtime.threads import MAX_THREADS

M = TypeVar("M")
Forms = Sequence[Form]


class GeneratorError(LightNetError):
    """A mistake of a generator, at its place: no refusal of a kernel, of which another generator may be asked."""

    def __init__(self, generator: Generator, method: str, what: str, expected: str, got: object):
        code = getattr(getattr(type(generator), method, None), "__code__", None)
        super().__init__(
            f"{method} of generator '{generator.alg}' ({type(generator).__name__}) gives {what}: expected {expected}, "
            f"got {got!r:.80}",
            code and SourceLoc(code.co_filename, code.co_firstlineno),
            label=f"generator.{method}",
        )


@dataclass(frozen=True)
class Plan:
    """A generator's plan for a kernel: what it would make of it. It is a function of the kernel's body, types and
    choices, and, where choices are missing, of the machine.

    `form` names operands by their numbers. `time` is nanoseconds on one thread (of a device: launches included), by a
    model. `choices` are all that the generator has, those that the kernel had among them; with these it plans the same.
    `weights` are the layouts of operands to be packed, by number. One thread uses `scratch_bytes` while it runs; one
    launch leaves `workspace_bytes` for the next, or shares them with other threads. More than `blocks` threads are of
    no use. `schedule` are the numbers that `Generator.build` goes by: tiles, orders of loops. `lean` is another plan of
    the same generator, of weights that take no more memory than plain ones.
    """

    generator: Generator
    form: Form
    time: float
    schedule: Any = None
    choices: Mapping[str, Attribute] = field(default_factory=dict)
    weights: Mapping[int, Layout] = field(default_factory=dict)
    scratch_bytes: int = 0
    workspace_bytes: int = 0
    blocks: int = MAX_THREADS
    lean: Plan | None = None

    def __post_init__(self) -> None:
        wrong = partial(GeneratorError, self.generator, "plan")
        time = self.time  # a plain number nearly always: the abstract types are slow to ask
        if not (type(time) is float or isinstance(time, Real)) or not time >= 0:
            raise wrong("a wrong time", "nanoseconds, 0 or more", time)
        for what, found, kind, meant in (("choices", self.choices, Attribute, "an attribute, as choice_attr(3)"),
                                         ("weights", self.weights, Layout, "a layout (ir/layout.py)")):  # fmt: skip
            if not (type(found) is dict or isinstance(found, Mapping)):
                raise wrong(f"wrong {what}", "a mapping", found)
            for name, value in found.items():
                if not isinstance(value, kind):
                    raise wrong(f"wrong {what}: {name}", meant, value)
        for what in ("scratch_bytes", "workspace_bytes", "blocks"):
            number = getattr(self, what)
            if type(number) is int and number >= 0:
                continue
            if not isinstance(number, Integral | Dim) or least(number) < 0:
                raise wrong(f"wrong {what}", "an integer, 0 or more", number)

    @classmethod
    def of(cls, generator: Generator, kernel: KernelOp, form: Form, time: float, schedule: Any = None,
           **fields: Any) -> Plan:  # fmt: skip
        """The plan of a generator for a kernel, whose block arguments `form` speaks of. Raises GeneratorError for what
        is none."""
        if not isinstance(form, Form):
            raise GeneratorError(generator, "plan", "a wrong form", "the Form that it was asked with", form)
        for number in fields.get("weights") or ():
            if not isinstance(number, int) or not 0 <= number < len(kernel.operands):
                expected = f"the number of one of {len(kernel.operands)} operands"
                raise GeneratorError(generator, "plan", "wrong weights", expected, number)
        return cls(generator, numbered(form, kernel), time, schedule, **fields)

    @property
    def alg(self) -> str:
        """The choice that names the generator."""
        return self.generator.alg

    @property
    def memory(self) -> int:
        """Bytes beside operands and results, of one thread and of all."""
        return align_up(self.scratch_bytes) + align_up(self.workspace_bytes)

    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Any]:
        """The launches of a kernel that this is the plan of; `aliases` maps a result to the operand whose memory it
        takes."""
        made = self.generator.build(kernel, self, name, aliases)
        if not isinstance(made, list | tuple) or not made or not all(hasattr(m, "functions") for m in made):
            raise GeneratorError(self.generator, "build", "no launches", "a list of launches, one at least", made)
        return list(made)


class Generator(ABC, Generic[M]):
    """Makes kernels of one family; `alg` is the choice that names it, `target` whose kernels they are."""

    alg: str
    target: ClassVar[str]
    #: Whether results are those of a direct evaluation but for the order of sums (Winograd's are not).
    exact: bool = True
    #: Whether it is asked by name alone, or where no other takes a kernel.
    last: bool = False
    #: Whether it takes any body, by its definitions, and is slow where others multiply.
    takes_all: bool = False
    #: Whether operands and results may lie at the front of larger tensors (`ir.reserved`).
    takes_reserved: bool = False
    #: What ends the bodies that `combine` should make for it though `backends/bodies.py` does not know them.
    ends: ClassVar[tuple[type[LnOp], ...]] = ()

    def is_for(self, machine: M) -> bool:
        """Return whether a machine has what the kernels need."""
        return True

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        """Return whether results for a body that it takes are those of a direct evaluation but for the order of
        sums.
        """
        return self.exact

    def effort(self, kernel: KernelOp) -> float:
        """The share of its definition's multiply-adds that a kernel runs as those of f32: less than 1 where it saves
        products (Winograd's), or one instruction does several."""
        return 1.0

    @abstractmethod
    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: M) -> Sequence[Form]:
        """The forms in which it takes a body, a `Refusal` where it is no generator for it. Ops may be those of a
        kernel, or a union that is not built yet; layouts of types do not count here."""

    def forms(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: M) -> Sequence[Form]:
        """The answer of `takes`, a refusal where calls would differ. Raises GeneratorError for what is no answer."""
        try:
            found = self.takes(ops, yielded, machine)
        except Undecided:
            return Refusal("it would take some calls, and others not")
        if not isinstance(found, list | tuple) or not all(isinstance(form, Form) for form in found):
            raise GeneratorError(self, "takes", "no forms", "a list of Form, an empty one to refuse", found)
        known = {v for op in ops for v in op.results} if found else ()
        for form in found:
            check_form(self, "form" if hasattr(self, "form") else "takes", form, known)
        return found

    @abstractmethod
    def plan(self, kernel: KernelOp, form: Form, machine: M) -> Plan:
        """The plan for a kernel in one of the forms that it is taken in. Choices that the kernel has stay, and may
        narrow the rest; raises `LightNetError` for one that cannot be. Layouts may not stand on the kernel's types yet:
        `layout` asks for plans, too."""

    def planned(self, kernel: KernelOp, form: Form, machine: M) -> Plan:
        """The answer of `plan`. Raises GeneratorError for what is none."""
        made = self.plan(kernel, form, machine)
        if not isinstance(made, Plan):
            raise GeneratorError(self, "plan", "no plan", "a Plan, as of Plan.of(...)", made)
        return made

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        """A plan of its own that was chosen, with what takes long to find out."""
        return plan

    @abstractmethod
    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Any]:
        """The launches; `aliases` maps a result to the operand whose memory it takes."""


def check_form(generator: Generator, method: str, form: Form, inside: Collection[SSAValue]) -> None:
    """Raise GeneratorError for a form that speaks of values that ops make (`inside`), or of halos that are none."""
    if wrong := next((v for v in (*form.maps, *form.weights) if v in inside), None):
        raise GeneratorError(generator, method, "a wrong form", "values from outside of the body", wrong.name_hint)
    for halo in form.maps.values():
        if not isinstance(halo, tuple) or len(halo) != 2 or not all(isinstance(n, int) and n >= 0 for n in halo):
            raise GeneratorError(generator, method, "a wrong form", "halos (rows, columns), 0 or more", halo)


def numbered(form: Form, kernel: KernelOp) -> Form:
    """A form that speaks of operands by number, where it spoke of block arguments."""
    number = {arg: i for i, arg in enumerate(kernel.body.args)}
    return _renamed(form, number)


def form_of_arguments(form: Form, kernel: KernelOp) -> Form:
    """A form that speaks of block arguments, where it spoke of operands by number."""
    return _renamed(form, dict(enumerate(kernel.body.args)))


def _renamed(form: Form, names: Mapping[Any, Any]) -> Form:
    maps = {names[v]: halo for v, halo in form.maps.items()}
    return replace(form, maps=maps, weights=frozenset(names[v] for v in form.weights))
