"""Remarks on kernels that calls make slower: those that would have another algorithm if all dims were numbers.

A watcher of pipelines: behind `choose`, it asks the target for the choices of each open kernel as it is in the typical
call, and says where they are others. Imports `ir` and the pass.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.cli.warning import show_warning
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.body import choice
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import unplan
from lightnet.ir.module import value_name
from lightnet.ir.passes import Instrumentation
from lightnet.ir.target import Request, Target, get_target
from lightnet.ir.types import spec_of
from lightnet.passes.choose import ChoosePass
from lightnet.passes.graph import graphs
from lightnet_report.calls import dim_names, open_info, typical_module

Remark = tuple[SourceLoc | None, str]


class OpenRemarks(Instrumentation):
    """Collects the remarks on what `choose` chose; with `is_shown`, they go to stderr."""

    def __init__(self, is_shown: bool = False):
        self.is_shown = is_shown
        self.remarks: list[Remark] = []

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if not isinstance(pass_, ChoosePass):
            return
        request = Request(pass_.features, pass_.threads, pass_.exact, pass_.weight_memory, pass_.precision, pass_.most)
        found = open_remarks(module, get_target(pass_.target), request)
        self.remarks += found
        for where, text in found if self.is_shown else ():
            show_warning(text, where, kind="remark")


def open_remarks(module: ModuleOp, target: Target, request: Request) -> list[Remark]:
    """The remarks on a module whose kernels have their choices: for each that has another algorithm than it would have
    with numbers, where it stands, and a sentence on which, and because of what dims."""
    calls = open_info(module)
    if calls is None:
        return []
    typical = typical_module(module)
    unplan(typical)
    found: list[Remark] = []
    for block, numbers in zip(graphs(module), graphs(typical)):
        for kernel, static in zip(block.ops, numbers.ops):
            if not isinstance(kernel, KernelOp) or not is_open((*kernel.operands, *kernel.results)):
                continue
            assert isinstance(static, KernelOp)
            alg, better = choice(kernel, "alg"), _free_choice(static, target, request)
            if alg is not None and better not in (None, alg):
                ops = "+".join(op.optype for op in kernel.ops)
                text = f"'{_name(kernel)}' ({ops}) runs on '{alg}', as {_open_dims(kernel)}; "
                found.append((loc_of(kernel.ops[-1]), f"{text}where {calls.typical} it could run on '{better}'"))
    return found


def _free_choice(kernel: KernelOp, target: Target, request: Request) -> str | None:
    """The algorithm that a kernel gets that has no choices yet; None where the target has none for it."""
    for name in kernel.choices:
        del kernel.attributes[name]
    try:
        kernel.attributes.update(target.choose(kernel, request))
    except LightNetError:
        return None
    return choice(kernel, "alg")


def _name(kernel: KernelOp) -> str:
    return ", ".join(map(value_name, kernel.results))


def _open_dims(kernel: KernelOp) -> str:
    """The dims of a kernel that calls decide: ``calls decide dim 0 of 'r1' (batch)``."""
    value = next(v for v in (*kernel.results, *kernel.operands) if spec_of(v.type).open_dims)
    dims = spec_of(value.type).dims
    axes = [axis for axis, name in enumerate(dim_names(dims)) if isinstance(name, str)]
    which = f"dim {axes[0]}" if len(axes) == 1 else f"dims {', '.join(map(str, axes))}"
    return f"calls decide {which} of '{value_name(value)}' ({', '.join(str(dim_names(dims)[axis]) for axis in axes)})"
