"""The inspection of a network, before anybody runs it: its ops with shapes and costs, its parameters, the memory it
takes, and what of it cannot run, all at once. Weights are not needed.

    inspect(lightnet.load("squeezedet.net")).text()

A network that cannot be imported is described by `survey.py`, in the same form, with what can be said of its graph
alone. Imports costs, the passes and what is below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue

from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input, ParamOp, Source
from lightnet.ir.host import host_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of, value_name
from lightnet.ir.names import name_of, tensor_names
from lightnet.ir.op import LnOp
from lightnet.ir.passes import Instrumentation, parse_pipeline, run_pipeline
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of
from lightnet.ir.views import moves_left
from lightnet.passes import pipelines
from lightnet.passes.graph import graphs
from lightnet.runtime.program import ports_of
from lightnet_debug import costs
from lightnet_report.calls import dim_names, open_info, typical_module
from lightnet_report.facts import FlowInfo, Inspection, MemoryInfo, Missing, OpInfo, TensorInfo
from lightnet_report.graph import graph_of
from lightnet_report.plan_report import plan_report
from lightnet_report.remarks import OpenKernels

if TYPE_CHECKING:
    from lightnet.model import Model
    from lightnet.runtime.host.program import HostProgram, HostTensor


def inspect(model: Model, target: str = "cpu", layout: str | None = None) -> Inspection:
    """Inspect what a network is, and what it takes on a target, as it is compiled with this `layout` (None: the
    target's own). Raises `LightNetError` for an unknown target only."""
    get_target(target)
    module = model.module.clone()
    run_pipeline(model.ctx, module, parse_pipeline("bind"))
    calls, interface = open_info(module), _interface(module)
    module = typical_module(module)
    main = main_of(module)
    ops = list(main.walk())
    params = [op for op in ops if isinstance(op, ParamOp)]
    specs = [op.result_specs[0] for op in params]
    found = Inspection(
        model.source,
        *interface,
        tuple(op_info(op) for op in ops if isinstance(op, LnOp) and not isinstance(op, Source)),
        sum(s.len for s in specs),
        sum(s.nbytes for s in specs),
        weights_given=model.weights is not None,
        weights_missing=tuple(n for op in ops if isinstance(op, Source) for n in [_lacking(op, model)] if n),
        flow=_flow(module),
        calls=calls,
    )
    if (host := host_of(model.module)) is not None:
        found = _with_host(found, host)
    return _planned(found, model, target, layout)


def _interface(module: ModuleOp) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """The inputs and outputs of a module, the dims that calls decide by name."""
    main = main_of(module)
    last = main.body.block.last_op
    assert isinstance(last, ReturnOp)
    inputs = (op.dst for op in main.walk() if isinstance(op, Input))
    return tuple(map(_tensor_info, inputs)), tuple(map(_tensor_info, last.operands))


def _with_host(found: Inspection, host: HostProgram) -> Inspection:
    """With the inputs and outputs of the whole, beside those of the network that the host part does not make or
    read."""
    made, read = set(host.entering), {*host.leaving, *(name for step in host.after for name in step.outputs)}
    known = {t.name: t for t in (*found.inputs, *found.outputs)}

    def whole(tensors: Sequence[HostTensor], others: Sequence[TensorInfo], gone: set[str]) -> tuple[TensorInfo, ...]:
        named = [
            known[t.name] if t.name in known and t.name not in gone else TensorInfo(t.name, t.dims, t.dtype)
            for t in tensors
        ]
        names = {t.name for t in tensors}
        return (*named, *(t for t in others if t.name not in gone and t.name not in names))

    return replace(
        found,
        inputs=whole(host.inputs, found.inputs, made),
        outputs=whole(host.outputs, found.outputs, read),
        host=str(host),
    )


def _flow(module: ModuleOp) -> FlowInfo:
    graph = graph_of(module).picture()
    layers = graph.layers()
    outliers = tuple(node.label for node in graph.outliers())
    return FlowInfo(len(graph.edges), len(layers), max(map(len, layers), default=0), outliers)


def _lacking(op: Source, model: Model) -> str | None:
    """The name of a source whose contents a weight file should hold, and does not."""
    name = op.tensor_names[0] or op.op_name or "?"
    wanted = (isinstance(op, ParamOp) and op.required) or op.from_file
    return name if wanted and name not in (model.weights or ()) else None


def op_info(op: LnOp) -> OpInfo:
    """One op of a network, and what it costs."""
    params = [v for v in op.operands if isinstance(v.owner, ParamOp)]
    data = [v for v in op.operands if not isinstance(v.owner, ParamOp)]
    name = name_of(op) or next((n for n in tensor_names(op) if n), "")
    return OpInfo(
        name, op.optype, tuple(map(_tensor_info, data)), tuple(map(_tensor_info, op.results)),
        sum(spec_of(v.type).len for v in params), costs.flops(op), costs.macs(op), costs.bytes_moved(op), loc_of(op),
    )  # fmt: skip


def _tensor_info(value: SSAValue) -> TensorInfo:
    """The name and type of a value."""
    spec = spec_of(value.type)
    return TensorInfo(value_name(value), dim_names(spec.dims), spec.dtype.name)


class _Failure(Instrumentation):
    """Keeps the name of the pass that failed; what it left is in the module."""

    name = ""

    def pass_failed(self, pass_: Any, module: ModuleOp, error: Exception) -> None:
        self.name = pass_.name


def _planned(found: Inspection, model: Model, target: str, layout: str | None) -> Inspection:
    """With what planning for a target says: memory, or what the target cannot run."""
    architecture = get_target(target)
    if architecture.kernel is None:
        return found
    module = model.module.clone()
    text = pipelines.default(target, until="plan", planned=bool(memory_of(module)), layout=layout)
    failure, remarks = _Failure(), OpenKernels()
    try:
        options = {"target": target, "plan": "default", "layout": layout, **architecture.settings().passes}
        run_pipeline(model.ctx, module, parse_pipeline(text, options), [failure, remarks])
    except LightNetError as e:
        if failure.name == "expand" and e.label != "target.dims" and (missing := _unsupported(module, target)):
            return replace(found, missing=missing)
        return replace(found, problem=f"target {target} does not take it: {e.message}")
    return replace(found, memory=_memory(module, target), remarks=tuple(remark.text for remark in remarks.found))


def _unsupported(module: ModuleOp, target: str) -> tuple[Missing, ...]:
    """The ops that `expand` left without a kernel, by type."""
    left = [
        op for block in graphs(module) for op in block.ops
        if isinstance(op, LnOp) and not isinstance(op, Source) and not op.is_host
    ]  # fmt: skip
    by_type: dict[str, list[LnOp]] = {}
    for op in left:
        by_type.setdefault(op.optype, []).append(op)
    reason = f"target {target} has no kernel for it"
    return tuple(Missing(t, reason, tuple(_who(op) for op in ops), loc_of(ops[0])) for t, ops in by_type.items())


def _who(op: LnOp) -> str:
    return op.op_name or next((n for n in op.tensor_names if n), "without a name")


def _memory(module: ModuleOp, target: str) -> MemoryInfo:
    report = plan_report(module)
    plan, module = report.plan, typical_module(module)
    kernels = [op for op in main_of(module).body.block.ops if isinstance(op, KernelOp) and moves_left(op)]
    traffic = sum(map(costs.bytes_moved, kernels))
    memory = memory_of(module)
    ports = sum(memory[space] for space in ports_of(memory))
    static = memory.get("static", 0)
    return MemoryInfo(target, plan.peak, plan.bound, static, ports, len(kernels), traffic, report.calls)
