"""The target `cpu`: kernels on plain memory, run in process or from an object file.

Every op runs from its definition or its loop-level builder, so `supports` refuses only what has neither; what is faster
than that stands in `combiners`, `subgraphs` and the kernel generators of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute

from lightnet.backends.cpu import budget
from lightnet.backends.cpu.blocked.bands_body import chain_around, chains_around, form_of, is_taken, producer_of
from lightnet.backends.cpu.blocked.base import processor_model_of
from lightnet.backends.cpu.blocked.first_pool import pair_around
from lightnet.backends.cpu.expanders import CPU_EXPANDERS
from lightnet.backends.cpu.parallel import THREADS, worthwhile
from lightnet.backends.cpu.plain import accepts
from lightnet.backends.cpu.selection import SELECTION, is_blocked
from lightnet.backends.cpu.special import asking
from lightnet.backends.cpu.strips import found_among_rows
from lightnet.backends.cpu.subgraphs import SUBGRAPHS
from lightnet.backends.selection import Chosen, with_workspace
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.memory import ARENA, STATIC
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.registry import GENERATORS
from lightnet.ir.target import Request, Space, Target

if TYPE_CHECKING:
    from lightnet.passes.pipelines import Pipeline


def supports(op: LnOp) -> bool:
    """Return whether the CPU can run `op` by itself: from its definition, or by its loop-level builder."""
    return op.definition is not None or op.has_builder


def _choose(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    """The choices of a kernel (`Target.choose`): `alg`, what goes with it, the threads that share it, and the bytes of
    workspace that it needs."""
    machine = SELECTION.machine_asked(kernel, request)
    with asking(kernel, request.special, request.exact):
        return _choices(kernel, SELECTION.choose(kernel, machine, request.exact), request)


def _choices(kernel: KernelOp, made: Chosen, request: Request) -> Mapping[str, Attribute]:
    """The attributes that are written on a kernel: as many threads as its plan has blocks for, and its work pays
    for.
    """
    choices, most = with_workspace(kernel, made), request.most or request.threads
    threads = worthwhile(made.plan.time, min(most, made.plan.blocks)) if most > 1 else 1
    known = threads == 1 or THREADS in kernel.attributes
    return choices if known else {**choices, THREADS: IntegerAttr(threads, i64)}


def settle(kernels: Sequence[KernelOp], request: Request) -> None:
    """Keep transformed weights within what they may take beyond the plain ones (`budget.py`)."""
    for kernel, plan in budget.changes(kernels, request.weight_memory).items():
        for name in kernel.choices:
            del kernel.attributes[name]
        machine = SELECTION.machine_asked(kernel, request)
        with asking(kernel, request.special, request.exact):
            made = SELECTION.chosen(kernel, plan, (plan,), machine)
        choices = _choices(kernel, made, request)
        kernel.attributes.update({k: choices[k] for k in ("alg", "order") if k in choices})  # what changed comes first
        kernel.attributes.update(choices)


def chain(kernel: KernelOp, request: Request) -> list[KernelOp]:
    """The kernels on blocked maps around one of a depthwise convolution, or of a pool, that save time in bands of
    rows."""
    machine = processor_model_of(request.features, request.threads)

    def found(kernel: KernelOp) -> list[KernelOp]:
        return chain_around(kernel, machine) or list(pair_around(kernel, machine))

    if not is_blocked(kernel):
        return []
    return found_among_rows(kernel, found) if is_open((*kernel.operands, *kernel.results)) else found(kernel)


def chains(kernel: KernelOp, request: Request) -> Iterator[tuple[list[KernelOp], float | Refusal]]:
    """The chains of which `chain` takes the best, of kernels of numbers, by the model or with the reason why not."""
    if not is_blocked(kernel) or is_open((*kernel.operands, *kernel.results)):
        return
    machine = processor_model_of(request.features, request.threads)
    for kernels, gain in chains_around(kernel, machine):
        yield kernels, gain if isinstance(gain, Refusal) else is_taken(kernels, form_of, machine) and gain
    pair = pair_around(kernel, machine)
    if not isinstance(pair, Refusal):  # the map in between is neither written nor read
        yield list(pair), byte_size(pair[0].results[0].type) / machine.l3_bytes
    elif pair.why and (producer := producer_of(kernel)) is not None:
        yield [producer, kernel], pair


#: Below so many bytes, copying an array takes less time than what NumPy takes to say where it is, and to make an
#: aligned one.
PORTS = 1 << 18


def _emitter(name: str) -> Callable[..., str | bytes]:
    """The function called `name` of `emitters.py`, which is imported when it is called: it needs LLVM."""

    def emit(module: ModuleOp, cpu: str = "host", triple: str | None = None) -> str | bytes:
        from lightnet.backends.cpu import emitters

        return getattr(emitters, name)(module, cpu, triple)

    return emit


#: The precisions in which products alone are short.
SHORTENED = ("bf16", "auto")


def _pipeline(default: Pipeline) -> Pipeline:
    """With products of integers and of bf16, which kernels multiply two at a time; a precision asks for the latter."""
    if "move-scales" not in default.passes:
        return default
    found = default.after("move-scales", "integers")
    asked = next((to for to in SHORTENED if f"precision{{to={to}}}" in default.passes), None)
    if asked is None:
        return found.before("hoist", "short-products")
    return found.before("hoist", f"short-products{{to={asked}}}").without("precision")


CPU = Target(
    "cpu",
    spaces={ARENA: Space(), STATIC: Space()},
    kernel="cpu",
    supports=supports,
    accepts=accepts,
    choose=_choose,
    selection=SELECTION,
    settle=settle,
    expanders=CPU_EXPANDERS,
    subgraphs=SUBGRAPHS,
    layouts=("blocked", "plain"),
    generators=GENERATORS,
    blocking=SELECTION.blocking,
    chain=chain,
    chains=chains,
    packing=SELECTION.packing,
    predicted=SELECTION.predicted,
    ports=PORTS,
    cascades=True,
    multiplies_bytes=lambda features: processor_model_of(features).has_bytes,
    multiplies_short=lambda features: processor_model_of(features).bfloats,
    precisions=("auto",),
    specializes=True,
    pipeline=_pipeline,
    lowering="lower-cpu",
    runtime="lightnet.backends.cpu.runtime:RUNTIME",
    emitters={form: _emitter(f"emit_{form}") for form in ("llvm", "asm", "obj")},
)
