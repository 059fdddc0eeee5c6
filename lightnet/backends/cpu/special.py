"""Kernels of an open network that have faster functions for values that somebody named (`specialize`).

A kernel whose dims a call decides is a general plan and, for each *case*, values that symbols have, the plan of the
static kernel of these values, which reads the same weights in the same layouts. All of them are launched; the grids of
those that a call does not mean are empty. A case that would take as long by both models is none. Imports the base of
generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import product
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.cpu.blocked.base import AdaptedGenerator, BlockedGenerator, ProcessorModel, choice_error
from lightnet.backends.generator import Plan, form_of_arguments
from lightnet.backends.kernel_loops import writes_nothing
from lightnet.backends.launches import Argument, Launch
from lightnet.backends.open_rows import one_row
from lightnet.backends.selection import written_choices
from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import SYMBOLS, kernel_symbols, memref_bytes
from lightnet.ir.instances import changed_kernel, is_open, symbols_in, typical_kernel
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.types import spec_of
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Size, Symbol, dim_max, dim_min, typical, with_sizes

#: The choice that holds the cases: dictionaries of choices, and of values by symbol (`AT`).
SPECIAL, AT, EXACT = "special", "at", "exact"
#: The attribute of a kernel that asks for cases while it chooses.
ASKED = "specialize"
#: Cases of one kernel, at most: each is code of its own.
MOST = 16
#: Part of the general plan's time that a case may take, to be worth its code.
GAIN = 0.97
_BYTES = MemRefType(IntegerType(8), [DYNAMIC_INDEX])
#: The plans of a static kernel, of exact algorithms alone if so asked.
Offers = Callable[[KernelOp, bool], Sequence[Plan]]


@dataclass(frozen=True)
class SpecialCase:
    """The plan of a kernel where symbols have `values`."""

    values: Mapping[str, int]
    plan: Plan

    def may_meet(self, other: SpecialCase) -> bool:
        """Return whether a call may be of both, of which it runs the first."""
        return all(other.values.get(name, value) == value for name, value in self.values.items())


class Special(AdaptedGenerator):
    """The kernels of another generator, and of any for the cases."""

    def plan(self, kernel: KernelOp, form: Any, machine: ProcessorModel) -> Plan:
        raise NotImplementedError("`with_cases` asks the others")

    def form(self, ops: Any, yielded: Any, machine: ProcessorModel) -> None:
        raise NotImplementedError("`with_cases` asks the others")

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        general, cases = plan.schedule
        done = [
            replace(c, plan=c.plan.generator.completed(_at(kernel, c.values, c.plan.choices), c.plan)) for c in cases
        ]
        return _of(general.generator.completed(kernel, general), done, symbols_in_kernel(kernel))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        (general, cases), symbols = plan.schedule, symbols_in_kernel(kernel)
        others: Size = 1
        made, seen = list[Launch](), list[SpecialCase]()
        for case in cases:
            meant = _is_meant(case.values, symbols)
            others = others * (1 - meant)
            for earlier in filter(case.may_meet, seen):
                meant = meant * (1 - _is_meant(earlier.values, symbols))
            seen.append(case)
            functions: dict[func.FuncOp, func.FuncOp] = {}  # one may be launched again
            for launch in case.plan.build(_at(kernel, case.values, case.plan.choices), name, aliases):
                function = functions.get(launch.function) or _on_open_maps(launch, kernel)
                functions[launch.function] = function
                made.append(Launch(function, launch.grid * meant, launch.args, _workspace_of(launch)))
        found = general.generator.build(kernel, general, name, aliases)
        made = [*(replace(launch, grid=launch.grid * others) for launch in found), *made]
        for k, function in enumerate(dict.fromkeys(launch.function for launch in made)):
            function.sym_name = StringAttr(f"{name}_{k}" if k else name)  # as functions of one kernel are called
        return made


@contextmanager
def asking(kernel: KernelOp, values: Mapping[str, Sequence[int]], exact: bool) -> Iterator[None]:
    """Ask for cases of a kernel, `exact` ones or any, unless some are pinned: all combinations of the `values` of
    symbols that its dims have. Raises `LightNetError` for more than `MOST`."""
    known = symbols_in_kernel(kernel) if values and SPECIAL not in kernel.attributes else {}
    names = [name for name in values if name in known]
    found = [dict(zip(names, chosen)) for chosen in product(*(values[name] for name in names)) if names]
    if len(found) > MOST:
        message = f"{len(found)} combinations of values of {', '.join(names)}: at most {MOST} have code of their own"
        raise choice_error(kernel, "choose.specialize", message)
    if found:
        marks = {EXACT: UnitAttr()} if exact else {}
        kernel.attributes[ASKED] = ArrayAttr([DictionaryAttr({AT: _said(values), **marks}) for values in found])
    try:
        yield
    finally:
        kernel.attributes.pop(ASKED, None)


def _said(values: Mapping[str, int]) -> DictionaryAttr:
    return DictionaryAttr({name: choice_attr(value) for name, value in values.items()})


def with_cases(kernel: KernelOp, general: Plan, offers: Offers, machine: ProcessorModel) -> Plan:
    """The plan of a kernel with those of the cases that its choice `special` asks for, of which each gains by it.
    Raises `LightNetError` where that choice is none."""
    found, symbols = list[SpecialCase](), symbols_in_kernel(kernel)
    for values, pinned in _asked(kernel, symbols):
        if any(case.values.items() <= values.items() for case in found):
            continue  # all of its calls are of an earlier one
        exact = pinned.pop(EXACT, None) is not None
        if writes_nothing(static := _at(kernel, values, pinned)):
            continue
        plans = [p for p in offers(static, exact) if dict(p.weights) == dict(general.weights)]
        best = min(plans, key=lambda p: (p.generator.last, p.time), default=None)
        if best is not None and (pinned or _gains(kernel, general, values, best, machine)):
            found.append(SpecialCase(values, best))
    return _of(general, found, symbols) if found else general


def _gains(kernel: KernelOp, general: Plan, values: Mapping[str, int], best: Plan, machine: ProcessorModel) -> bool:
    """Return whether the best plan for values is worth its code. Kernels in strips are static ones already; on open
    maps models say it. All others gain: models count their operations, and not what constant sizes save."""
    if one_row(kernel.ops, kernel.terminator.operands) is not None:
        return False
    if not isinstance(general.generator, AdaptedGenerator):
        return True
    copy = typical_kernel(kernel, lambda size: with_sizes(size, _around(values, symbols_in_kernel(kernel))))
    copy.attributes.update(written_choices(general.choices))
    try:
        plan = general.generator.planned(copy, form_of_arguments(general.form, copy), machine)
    except LightNetError:  # a tile that is none of so small a map
        return True
    return best.time < GAIN * plan.time


def _around(values: Mapping[str, int], symbols: Mapping[str, Symbol]) -> dict[str, Size]:
    """Symbols of which these values are typical."""
    found = {}
    for name, value in values.items():
        s = symbols[name]
        low, high = (value, s.high) if value >= s.typical else (min(s.low, value), 4 * value)
        found[name] = replace(s, low=low, high=high).dim
        assert typical(found[name]) == value
    return found


def _asked(kernel: KernelOp, symbols: Mapping[str, Symbol]) -> Iterator[tuple[dict[str, int], dict[str, Attribute]]]:
    """The values by symbol of each case that a kernel's choice asks for, and the choices that are pinned for it."""
    asked = kernel.attributes.get(SPECIAL, kernel.attributes.get(ASKED))
    for case in asked if isinstance(asked, ArrayAttr) else () if asked is None else (asked,):
        at = case.data.get(AT) if isinstance(case, DictionaryAttr) else None
        given = at.data if isinstance(at, DictionaryAttr) else {}
        values = {name: v.value.data for name, v in given.items() if isinstance(v, IntegerAttr)}
        try:
            for name, value in values.items():
                symbols[name].check(value)
        except (KeyError, ValueError) as e:
            said = e if isinstance(e, ValueError) else f"no dim of the kernel has {e}"
            raise choice_error(kernel, "choose.special", f"{SPECIAL}: {said}") from None
        if not values or len(values) < len(given):
            message = f"{SPECIAL} = {asked}: each case has values of symbols, as {{{AT} = {{length = 128}}}}"
            raise choice_error(kernel, "choose.special", message)
        assert isinstance(case, DictionaryAttr)
        yield values, {name: attr for name, attr in case.data.items() if name != AT}


def _at(kernel: KernelOp, values: Mapping[str, int], choices: Mapping[str, Attribute]) -> KernelOp:
    """A copy of a kernel where symbols have values, with these choices."""

    def size(size: Size) -> Size:
        return with_sizes(size, values)

    lanes = {k: v for k, v in kernel.attributes.items() if k == "lanes"}
    return changed_kernel(kernel, lambda dims: tuple(map(size, dims)), size, {**lanes, **written_choices(choices)})


def symbols_in_kernel(kernel: KernelOp) -> dict[str, Symbol]:
    """The symbols that the types and parameters of a kernel have, by name."""
    read = (s for v in kernel.operands for d in spec_of(v.type).open_dims for s in d.symbols)
    return {s.name: s for s in (*read, *(s for s, _ in symbols_in(kernel)))}


def _of(general: Plan, cases: Sequence[SpecialCase], symbols: Mapping[str, Symbol]) -> Plan:
    """A plan of the general one and of cases."""
    said = []
    for case in cases:
        own = written_choices(case.plan.choices)
        said.append(DictionaryAttr({AT: _said(case.values), "alg": StringAttr(case.plan.alg), **own}))
    # In all calls: sizes that jump where symbols have values are more than what plans can be proved by.
    shared = [align_up(c.plan.workspace_bytes) for c in cases]
    assert isinstance(general.generator, BlockedGenerator)
    return replace(
        general, generator=Special(general.generator), schedule=(general, tuple(cases)),
        choices={**general.choices, SPECIAL: ArrayAttr(said)},
        scratch_bytes=reduce(dim_max, (c.plan.scratch_bytes for c in cases), general.scratch_bytes),
        workspace_bytes=reduce(dim_max, shared, general.workspace_bytes),
        blocks=max(general.blocks, *(c.plan.blocks for c in cases)), lean=None,
    )  # fmt: skip


def _is_meant(values: Mapping[str, int], symbols: Mapping[str, Symbol]) -> Size:
    """1 in a call that gives symbols these values, else 0."""
    apart: Size = 0
    for name, value in values.items():
        off = symbols[name].dim - value
        apart = reduce(dim_max, (off, -off), apart)
    return 1 - dim_min(apart, 1)


def _workspace_of(launch: Launch) -> Size:
    """Bytes of workspace that a launch takes."""
    types = launch.function.body.block.arg_types[-len(launch.args) :]
    fixed = [a.number + memref_bytes(t) for a, t in zip(launch.args, types) if a.kind == "workspace"]
    return reduce(dim_max, fixed, launch.workspace)


def _on_open_maps(launch: Launch, kernel: KernelOp) -> func.FuncOp:
    """The function of a launch on tensors of one size as one on those of any: it is launched for that size alone, and
    nothing may be known of others' memory."""
    inner, block = launch.function, launch.function.body.block
    names = kernel_symbols(inner)
    types = block.arg_types[2 + len(names) :]
    whole = [_BYTES if _is_taken_whole(argument, type, kernel) else type for argument, type in zip(launch.args, types)]
    if whole == list(types):
        return inner
    hints = [a.name_hint for a in block.args[2 + len(names) :]]
    symbols = [s for s in symbols_in_kernel(kernel).values() if s.name in names]
    b = Builder.kernel(inner.sym_name.data, whole, hints=hints, location=inner.location, symbols=symbols)
    b.function.attributes.update({k: v for k, v in inner.attributes.items() if k != SYMBOLS})
    given: list[SSAValue] = list(b.entry.args[: 2 + len(names)])
    for argument, type, taken in zip(b.args, types, whole):
        assert isinstance(type, MemRefType)
        given.append(argument if type == taken else b.view(argument, 0, type, argument.name_hint))
    for old, new in zip(block.args, given):
        old.replace_all_uses_with(new)
    for op in list(block.ops):
        op.detach()
        b.block.add_op(op)
    return b.function


def _is_taken_whole(argument: Argument, type: Attribute, kernel: KernelOp) -> bool:
    """Return whether an argument of one size stands for a tensor of any, or for workspace that others need not have."""
    assert isinstance(type, MemRefType)
    if DYNAMIC_INDEX in type.get_shape() or argument.kind == "scratch":
        return False
    values = {"operand": kernel.operands, "result": kernel.results}.get(argument.kind)
    return values is None or is_open([values[argument.number]])
