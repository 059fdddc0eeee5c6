"""The target `cpu`: kernels on plain memory, run in process or from an object file.

Every op runs from its definition or its loop-level builder, so `supports` refuses only what has neither; what is faster
than that stands in `combiners`, `expanders` and the kernel generators of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute

from lightnet.backends.cpu.blocked import budget, selection
from lightnet.backends.cpu.blocked.bands_body import chain_around
from lightnet.backends.cpu.blocked.base import Machine
from lightnet.backends.cpu.blocked.first_pool import pair_around
from lightnet.backends.cpu.blocked.selection import blocking, is_blocked, machine_of, packing
from lightnet.backends.cpu.combiners import accepts
from lightnet.backends.cpu.expanders import EXPANDERS, supports
from lightnet.backends.cpu.generators import most_blocks, tiled_generator, workspace_bytes
from lightnet.backends.cpu.parallel import THREADS, worthwhile
from lightnet.backends.cpu.subgraphs import SUBGRAPHS
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import OfEqualKernels, choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, STATIC, WORKSPACE_SIZE, workspace_size
from lightnet.ir.names import WORKSPACE
from lightnet.ir.registry import GENERATORS
from lightnet.ir.target import Description, Request, Space, Target
from lightnet.ir.views import place_of


def choose(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    """`alg` and what goes with it: on blocked maps what `blocked/selection.py` finds cheapest; on plain ones ``direct``
    (register-tiled, for vectors of `lanes`) where that generator takes the body, else ``loops``. And the bytes of workspace that
    the generator needs, if any."""
    owners = tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)
    beside = request, owners, place_of(kernel.results[0]) is None if kernel.results else None, GENERATORS.version
    choices = dict(_CHOICES.get(kernel, beside, lambda: _choices(kernel, request)))
    if WORKSPACE_SIZE in choices:
        for stale in (WORKSPACE_SIZE, WORKSPACE):  # chosen, and planned, for a body that was another one
            kernel.attributes.pop(stale, None)
    kernel.attributes.update({k: v for k, v in choices.items() if k not in kernel.attributes and k != WORKSPACE_SIZE})
    return choices


_CHOICES: OfEqualKernels[Mapping[str, Attribute]] = OfEqualKernels()


def _choices(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    """`choose`, asked anew. The kernel has the choices afterwards."""
    machine = machine_of(request.features, request.threads)
    if "alg" in kernel.attributes and choice(kernel, "alg") is None:
        raise LightNetError(
            f'the choice alg of {kernel.name} is a name, as in alg = "direct"', loc_of(kernel), label="choose.alg"
        )
    if is_blocked(kernel) or selection.packs(kernel, machine, request.exact):
        choices = dict(selection.choose(kernel, machine, request.exact))
    else:
        choices = _plain_choices(kernel, machine.lanes)
    kernel.attributes.update({k: v for k, v in choices.items() if k not in kernel.attributes})
    if (threads := _threads(kernel, request, machine)) > 1 and THREADS not in kernel.attributes:
        choices[THREADS] = kernel.attributes[THREADS] = IntegerAttr(threads, i64)
    if (size := workspace_bytes(kernel)) > workspace_size(kernel):
        choices[WORKSPACE_SIZE] = IntegerAttr(size, i64)
    return choices


def settle(kernels: Sequence[KernelOp], request: Request) -> None:
    """Keep transformed weights within what they may take beyond the plain ones (`blocked/budget.py`)."""
    machine = machine_of(request.features, request.threads)
    for kernel, choices in budget.changes(kernels, machine, request.weight_memory).items():
        kernel.attributes = budget.without_choices(kernel, choices)
        kernel.attributes.update(choose(kernel, request))


def chain(kernel: KernelOp, request: Request) -> list[KernelOp]:
    """The kernels on blocked maps around one of a depthwise convolution, or of a pool, that save time in bands of rows."""
    machine = machine_of(request.features, request.threads)
    return (chain_around(kernel, machine) or pair_around(kernel, machine)) if is_blocked(kernel) else []


def _threads(kernel: KernelOp, request: Request, machine: Machine) -> int:
    """As many threads as the kernel has blocks for and its work pays for."""
    most = request.most or request.threads
    if most == 1:
        return 1
    return worthwhile(selection.cost_of(kernel, machine), min(most, most_blocks(kernel)))


def _plain_choices(kernel: KernelOp, lanes: int) -> dict[str, Attribute]:
    tiles = tiled_generator(kernel.ops, kernel.terminator.operands) is not None
    alg = choice(kernel, "alg") or ("direct" if tiles else "loops")
    if alg not in (selection.PLAIN_ALGS if tiles else ("loops",)):
        raise LightNetError(f"no generator of the CPU takes {kernel.name} of {', '.join(op.optype for op in kernel.ops)} on plain "
                            f"tensors with its choice alg = '{alg}'", loc_of(kernel), label="choose.alg")  # fmt: skip
    choices: dict[str, Attribute] = {"alg": StringAttr(alg)}
    if alg == "direct":
        choices["lanes"] = IntegerAttr(lanes, i64)
    return choices


#: Below so many bytes, copying an array takes less time than what NumPy takes to say where it is, and to make an aligned one.
PORTS = 1 << 18


def _emitter(name: str) -> Callable[..., str | bytes]:
    """The function called `name` of `emitters.py`, which is imported when it is called: it needs LLVM."""

    def emit(module: ModuleOp, cpu: str = "host", triple: str | None = None) -> str | bytes:
        from lightnet.backends.cpu import emitters

        return getattr(emitters, name)(module, cpu, triple)

    return emit


CPU = Target(
    "cpu",
    spaces={ARENA: Space(), STATIC: Space()},
    kernel="cpu",
    supports=supports,
    accepts=accepts,
    choose=choose,
    settle=settle,
    expanders=EXPANDERS,
    subgraphs=SUBGRAPHS,
    descriptions=(Description("lightnet.backends.cpu:subgraphs.json", "subgraph", frozenset({"maxpool2d"})),),
    layouts=("blocked", "plain"),
    blocking=blocking,
    chain=chain,
    packing=packing,
    ports=PORTS,
    lowering="lower-cpu",
    runtime="lightnet.backends.cpu.runtime:RUNTIME",
    emitters={form: _emitter(f"emit_{form}") for form in ("llvm", "asm", "obj")},
)
