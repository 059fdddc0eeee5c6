"""Which generator takes a kernel, and with which choices: what the passes layout, choose and pack, and the lowering, ask of cuda.

Nothing is measured: each generator has a model of its time on a `Device`. Imports the table of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cuda.base import MAP, Generator
from lightnet.backends.cuda.device import Device, device_of
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.kernel_loops import writes_nothing
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import OfEqualKernels, choice
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import ChannelsLast, Layout, Packed, Phases, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import WORKSPACE_SIZE, workspace_size
from lightnet.ir.names import WORKSPACE
from lightnet.ir.registry import CUDA_GENERATORS, load_installed
from lightnet.ir.target import Blocking, Form, Request
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.ir.views import place_of

#: What factors of products of f32 may be rounded to.
PRECISIONS = ("f32", "tf32")
#: The generator that takes every kernel.
ANYTHING = "loops"
#: What a pinned `alg` adds to the time of the other way, in nanoseconds: no other reason counts as much.
PINNED = 1e12


def generators() -> tuple[Generator, ...]:
    """All of them, plugins' included, in order of preference where they cost the same."""
    load_installed()
    return _generators(CUDA_GENERATORS.version)


@lru_cache(maxsize=1)
def _generators(version: int) -> tuple[Generator, ...]:
    return tuple(CUDA_GENERATORS.in_order())


Candidate = tuple[Generator, Form]


def candidates(kernel: KernelOp, device: Device | None = None) -> list[Candidate]:
    """The generators that take a kernel's body, once for each form: those for `device`, or all."""
    ops, yielded = kernel.ops, list(kernel.terminator.operands)
    usable = [g for g in generators() if device is None or g.is_for(device)]
    return [(g, form) for g in usable for form in g.takes(ops, yielded)]


def has_maps(form: Form) -> bool:
    """Whether a form has anything that is a map."""
    return bool(form.maps) or not form.plain_results


def blocking(kernel: KernelOp, features: str) -> Blocking | None:
    """How a kernel would run on maps (`Target.blocking`)."""
    args = list(kernel.body.args)
    static = tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)

    def make() -> tuple[dict[int, tuple[int, int]], frozenset[int], bool, float, float] | None:
        found = _blocking(kernel, device_of(features), [a for a, s in zip(args, static) if s])
        if found is None:
            return None
        form = found.form
        maps = {v.index: halo for v, halo in form.maps.items()}  # type: ignore[attr-defined]
        weights = frozenset(v.index for v in form.weights)  # type: ignore[attr-defined]
        return maps, weights, form.plain_results, found.blocked, found.plain

    known = _BLOCKINGS.get(kernel, (features, static, CUDA_GENERATORS.version), make)
    if known is None:
        return None
    maps, weights, plain_results, blocked, plain = known
    form = Form({args[i]: h for i, h in maps.items()}, frozenset(args[i] for i in weights), plain_results)
    return Blocking(form, MAP, blocked, plain)


#: In terms of the numbers of operands: what is kept keeps no IR.
_BLOCKINGS: OfEqualKernels[tuple[dict[int, tuple[int, int]], frozenset[int], bool, float, float] | None] = (
    OfEqualKernels()
)


def _blocking(kernel: KernelOp, device: Device, static: Sequence[SSAValue]) -> Blocking | None:
    """`blocking`, asked anew. Products on tensor cores are left out: that they round is decided later, and layouts do not depend on it."""
    pinned = choice(kernel, "alg")
    found = [(g, form) for g, form in candidates(kernel, device) if form.weights.issubset(static)]
    ways: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    for number, (g, form) in enumerate(found):
        if pinned == g.alg or (pinned is None and g.is_exact(kernel.ops)):
            ways[has_maps(form)].append((g.cost(kernel, form, device), number))
    if not ways[True]:
        return None
    cost, number = min(ways[True])
    plain = min(ways[False])[0] if ways[False] else PINNED
    return Blocking(found[number][1], MAP, cost, plain)


def reorder_time(value: SSAValue, layout: Layout) -> float:
    """Nanoseconds of a change of layout, roughly (`Target.reorder`): where the memory is the same, none."""
    spec, device = spec_of(value.type), device_of("")
    if spec.ndim == 4 and spec.dims[2:] == (1, 1) and not spec.dims[1] % MAP.multiple:
        return 0.0
    return device.launch + (spec.nbytes + layout.size(spec)) / (0.6 * device.bytes)


def fits(form: Form, kernel: KernelOp) -> bool:
    """Whether the layouts of a kernel's operands and results are what a form asks for, or will be once `pack` has run: weights that are
    not packed yet are static, and have no place."""
    planned = any(place_of(r) is not None for r in kernel.results)
    static = {a for a, v in zip(kernel.body.args, kernel.operands) if isinstance(v.owner, OnceOp)}

    def ok(value: SSAValue) -> bool:
        layout = layout_of(value.type)
        if value in form.maps:
            return layout == MAP
        if value in form.weights:
            return isinstance(layout, ChannelsLast | Packed | Phases) or (value in static and not planned)
        return layout.is_plain

    wanted = Layout() if form.plain_results else MAP
    return all(layout_of(r.type) == wanted for r in kernel.results) and all(map(ok, kernel.body.args))


def chosen(kernel: KernelOp) -> Generator | None:
    """The generator that a kernel's choices and layouts name; without a choice the one that takes all."""
    alg = choice(kernel, "alg") or ANYTHING
    return next((g for g, form in candidates(kernel) if g.alg == alg and fits(form, kernel)), None)


def generator_of(kernel: KernelOp) -> Generator:
    """The generator that makes a kernel. Raises `LightNetError` where its choices and layouts name none."""
    if (found := chosen(kernel)) is None:
        raise LightNetError(f"no generator of cuda takes {_what(kernel)} with {_ways(kernel)}: run choose", loc_of(kernel),
                            label="cuda.kernel.alg")  # fmt: skip
    return found


def choose(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    """The choices of a kernel (`Target.choose`): of the generators that take it with its layouts (that which its `alg` names, if it has
    one) the one that costs least. Raises `LightNetError` where none does."""
    if request.precision not in PRECISIONS:
        raise LightNetError(
            f"unknown precision '{request.precision:.40}'; there are: {', '.join(PRECISIONS)}", label="choose.precision"
        )
    owners = tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)
    placed = bool(kernel.results) and place_of(kernel.results[0]) is not None
    beside = request, owners, placed, CUDA_GENERATORS.version
    choices = dict(_CHOICES.get(kernel, beside, lambda: _choices(kernel, request)))
    if WORKSPACE_SIZE in choices:
        for stale in (WORKSPACE_SIZE, WORKSPACE):  # chosen, and planned, for a body that was another one
            kernel.attributes.pop(stale, None)
    return choices


_CHOICES: OfEqualKernels[Mapping[str, Attribute]] = OfEqualKernels()


def _choices(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    device = device_of(request.features)
    if "alg" in kernel.attributes and choice(kernel, "alg") is None:
        raise LightNetError(
            f'the choice alg of {kernel.name} is a name, as in alg = "loops"', loc_of(kernel), label="choose.alg"
        )
    pinned, rounds = choice(kernel, "alg"), request.precision == "tf32" and not request.exact
    found, usable = [], candidates(kernel, device)
    for generator, form in usable:
        if fits(form, kernel) and (
            pinned == generator.alg or (pinned is None and (rounds or generator.is_exact(kernel.ops)))
        ):
            found.append((generator.cost(kernel, form, device), len(found), generator))
    if not found:
        others = ", ".join(dict.fromkeys(g.alg for g, form in usable if fits(form, kernel)))
        text = f"; alg may be {others}" if others else ""
        if pinned in {g.alg for g in generators() if not g.is_for(device)}:
            text += f"; '{pinned}' is not for {device.arch}"
        elif forms := [form for g, form in usable if g.alg == pinned]:
            static = {a for a, v in zip(kernel.body.args, kernel.operands) if isinstance(v.owner, OnceOp)}
            if any(form.weights <= static for form in forms):
                text += f"; '{pinned}' takes it in other layouts: write choices {{alg = \"{pinned}\"}} on the kernel before the pass layout"
            else:
                text += f"; '{pinned}' takes it with weights that are static"
        raise LightNetError(
            f"no generator of cuda takes {_what(kernel)} with {_ways(kernel)}{text}", loc_of(kernel), label="choose.alg"
        )
    generator = min(found, key=lambda f: f[:2])[2]
    choices: dict[str, Attribute] = {"alg": StringAttr(generator.alg)}
    before = dict(kernel.attributes)
    try:
        kernel.attributes.update({k: v for k, v in choices.items() if k not in kernel.attributes})
        own = generator.choices(kernel, device)
        choices |= {k: choice_attr(v.data) if isinstance(v, ParamAttr) else v for k, v in own.items()}
        kernel.attributes.update({k: v for k, v in choices.items() if k not in kernel.attributes})
        if (size := generator.workspace_bytes(kernel)) > workspace_size(kernel):
            choices[WORKSPACE_SIZE] = IntegerAttr(size, i64)
    finally:
        kernel.attributes = before
    return choices


def packing(kernel: KernelOp) -> Mapping[int, Layout]:
    """The layouts of a kernel's weights (`Target.packing`)."""

    def make() -> Mapping[int, Layout]:
        generator = chosen(kernel)
        return {} if generator is None else generator.weights(kernel)

    owners = tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)
    return _PACKINGS.get(kernel, (CUDA_GENERATORS.version, owners), make)


_PACKINGS: OfEqualKernels[Mapping[int, Layout]] = OfEqualKernels()


def generate(kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
    """The launches of a kernel; `aliases` maps a result to the operand whose memory it takes."""
    return [] if writes_nothing(kernel) else generator_of(kernel).build(kernel, name, aliases)


def workspace_bytes(kernel: KernelOp) -> int:
    """Bytes of workspace that the launches of a kernel share."""
    return 0 if writes_nothing(kernel) else generator_of(kernel).workspace_bytes(kernel)


def _what(kernel: KernelOp) -> str:
    return f"{kernel.name} of {', '.join(op.optype for op in kernel.ops)}"


def _ways(kernel: KernelOp) -> str:
    layouts = ", ".join(dict.fromkeys(str(layout_of(v.type)) for v in (*kernel.operands, *kernel.results)))
    pinned = choice(kernel, "alg")
    return f"layouts {layouts}" + (f", alg = '{pinned}'" if pinned is not None else "")
