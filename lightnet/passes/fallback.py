"""The plainer way for a kernel that no generator takes as it stands: on row-major memory, then op by op. What `choose`
falls back on, so that no network is refused for how the passes before it laid it out. Imports the passes layout and
defuse.
"""

from __future__ import annotations

import warnings

from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import FallbackWarning, LightNetError
from lightnet.ir import rewrites
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN, Blocked, ChannelsLast, is_plain, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.names import FreshNames
from lightnet.ir.target import Target
from lightnet.passes.defuse import split
from lightnet.passes.graph import tensor_names_in
from lightnet.passes.layout import change_layout, changes_layout, follow, set_layout


def plainer(kernel: KernelOp, refusal: LightNetError, target: Target, module: ModuleOp) -> list[KernelOp]:
    """Kernels in the place of one that was refused, in order: itself on row-major memory between changes of layout, or,
    where it is there already or only a merged kernel on maps, its ops one by one. Warns that it did. Raises `refusal`
    where nothing is plainer: for a single op on row-major memory or a change of layout, for one with choices (what is
    pinned is done or refused), for weights that are packed and for a network with a plan, in which nothing new has a
    place."""
    maps = [v for v in (*kernel.operands, *kernel.results) if not layout_of(v.type).is_plain]
    movable = all(isinstance(layout_of(v.type), Blocked | ChannelsLast) for v in maps)
    simple = changes_layout(kernel) or (not maps and len(kernel.ops) == 1)
    if kernel.choices or memory_of(module) or not movable or simple:
        raise refusal
    step = rewrites.begin("fall-back", [kernel], required=True)
    assert step is not None
    ways = []
    made = [kernel]
    if maps:
        made = _on_plain(kernel, target, FreshNames(tensor_names_in(module)))
        ways.append("on row-major memory")
    if len(kernel.ops) > 1 and (not maps or not target.accepts(Body.of(kernel))):
        at = made.index(kernel)
        made[at : at + 1] = split(kernel)
        ways.append("op by op")
    step.done(made)
    text = f"{refusal.message}: it runs {', '.join(ways)}, which is slower"
    warnings.warn(FallbackWarning(text, refusal.loc or loc_of(made[0])), stacklevel=2)
    return made


def _on_plain(kernel: KernelOp, target: Target, names: FreshNames) -> list[KernelOp]:
    """The kernel with row-major operands and results, the changes of layout before and behind it among them."""
    before: list[KernelOp] = []
    for value in dict.fromkeys(kernel.operands):
        if not layout_of(value.type).is_plain:
            before.append(change_layout(target, value, PLAIN, {kernel}, names))
    behind: list[KernelOp] = []
    for result in kernel.results:
        layout = layout_of(result.type)
        if layout.is_plain:
            continue
        set_layout(result, PLAIN)
        if users := {use.operation for use in result.uses}:
            behind.append(change_layout(target, result, layout, users, names))
    follow(kernel)
    assert is_plain(kernel)
    return [*before, kernel, *behind]
