"""A target as a value: what a machine has, which ops it runs, and its own rules for each pass.

The fields are those of a LightNet architecture (document 004, "Architecture"): registered ops, expanders, combiners,
subgraph and schedule functions; and what a compiler with a memory plan needs besides: memory spaces, the kernel op,
layouts, choices and the lowering. A target is one folder under `backends/` and one row of
`registry.TARGETS`; passes take it by name, so that `--load` can add one. Imports xDSL, `ir` and the runtime's alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from xdsl.ir import Attribute, Block, Operation
from xdsl.pattern_rewriter import RewritePattern

from lightnet.diagnostics import LightNetError
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.registry import KERNELS, TARGETS, patterns
from lightnet.runtime.arrays import ALIGNMENT

GIB = 1 << 30


@dataclass(frozen=True)
class Space:
    """A memory space: the alignment of every place in it, and its capacity, both in bytes."""

    alignment: int = ALIGNMENT
    capacity: int = 16 * GIB


def _everything(op: LnOp) -> bool:
    return True


def _nothing(body: Body) -> str | None:
    return None


def _no_choices(kernel: KernelOp, features: str) -> Mapping[str, Attribute]:
    return {}


@dataclass(frozen=True)
class Target:
    """One architecture. `name` is its row in `registry.TARGETS`.

    `kernel` names its kernel op in `registry.KERNELS` (None: the target runs level 1, and `expand` leaves it alone).
    `supports(op)` says whether one op by itself becomes a kernel; `accepts(body)` names the generator that takes a body
    of several ops, None if there is none. `expanders`, `combiners` and `subgraphs` are rewrite patterns of the passes
    `expand`, `combine` and `subgraph`, beside those of `registry.patterns`; `schedule` gives a block's ops another
    order. `choose(kernel, features)` gives the choices of a kernel for a machine. `lowering` names the pass from level
    3 to 4.
    """

    name: str
    spaces: Mapping[str, Space] = field(default_factory=dict)
    kernel: str | None = None
    supports: Callable[[LnOp], bool] = _everything
    accepts: Callable[[Body], str | None] = _nothing
    choose: Callable[[KernelOp, str], Mapping[str, Attribute]] = _no_choices
    expanders: tuple[type[RewritePattern], ...] = ()
    combiners: tuple[type[RewritePattern], ...] = ()
    subgraphs: tuple[type[RewritePattern], ...] = ()
    schedule: Callable[[Block], list[Operation]] | None = None
    layouts: tuple[str, ...] = ("plain",)
    lowering: str | None = None

    @property
    def kernel_op(self) -> type[KernelOp]:
        """The class of its kernel region; an error for a target that has none."""
        if self.kernel is None:
            raise LightNetError(f"target '{self.name}' has no kernels: it runs the graph as it is")
        return KERNELS.get(self.kernel)

    def patterns(self, pass_name: str) -> list[RewritePattern]:
        """The patterns of `expand`, `combine` or `subgraph`: those that files registered for it, then its own."""
        own = {"expand": self.expanders, "combine": self.combiners, "subgraph": self.subgraphs}[pass_name]
        return [cls() for cls in (*patterns(pass_name, self.name), *own)]


def get_target(name: str) -> Target:
    """The target called `name`; an unknown name is an error that lists the targets."""
    target = TARGETS.get(name)
    if not isinstance(target, Target):
        raise LightNetError(f"target '{name}' ({TARGETS.where(name)}) is not a Target")
    return target


def with_capacity(target: Target, space: str, capacity: int) -> Target:
    """`target` with another capacity, in bytes, for one memory space."""
    if space not in target.spaces:
        raise LightNetError(
            f"target '{target.name}' has no memory space '{space}'; there are: {', '.join(target.spaces)}"
        )
    resized = replace(target.spaces[space], capacity=capacity)
    return replace(target, spaces={**target.spaces, space: resized})


__all__ = ["Body", "Space", "Target", "get_target", "with_capacity"]
