"""The registries: passes, targets, front ends, op families and patterns; one table each, imported on demand.

A row is ``name -> "module:Attribute"``, so that listing costs nothing and grep finds everything. Plugins add rows with
`Table.add`; a clash is an error that names both sides. Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from lightnet.diagnostics import LightNetError


def resolve(row: str) -> Any:
    """The object that ``module:Attribute`` names, or the module that ``module`` names, imported."""
    module, _, attribute = row.partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def where_from(row: Any) -> str:
    """Where the object of a row comes from, as ``module:Attribute``."""
    return row if isinstance(row, str) else f"{row.__module__}:{getattr(row, '__name__', row)}"


class Table:
    """One registry: names to objects, or to ``module:Attribute`` strings that are imported when asked for."""

    def __init__(self, kind: str, rows: dict[str, str]):
        self.kind = kind
        self._rows: dict[str, Any] = dict(rows)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._rows))

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def where(self, name: str) -> str:
        """Where `name` comes from, for listings and clashes."""
        return where_from(self._rows[name])

    def add(self, name: str, row: Any) -> None:
        """Add a row; `row` is an object or a ``module:Attribute`` string."""
        if name in self._rows and self._rows[name] is not row:
            raise LightNetError(
                f"{self.kind} '{name}' is defined twice: by {self.where(name)} and by {where_from(row)}"
            )
        self._rows[name] = row

    def get(self, name: str) -> Any:
        """The object called `name`; an unknown name is an error that lists the names there are."""
        if name not in self._rows:
            raise LightNetError(f"unknown {self.kind} '{name}'; there are: {', '.join(self)}")
        row = self._rows[name]
        if isinstance(row, str):
            self._rows[name] = row = resolve(row)
        return row


PASSES = Table("pass", {
    "bind": "lightnet.passes.bind:BindPass",
    "fold": "lightnet.passes.fold:FoldPass",
    "ln-cse": "lightnet.passes.cse:CsePass",
    "ln-dce": "lightnet.passes.dce:DcePass",
    "decompose": "lightnet.passes.decompose:DecomposePass",
    "fold-batchnorm": "lightnet.passes.fold_batchnorm:FoldBatchnormPass",
    "simplify": "lightnet.passes.simplify:SimplifyPass",
    "expand": "lightnet.passes.expand:ExpandPass",
    "combine": "lightnet.passes.combine:CombinePass",
    "defuse": "lightnet.passes.defuse:DefusePass",
    "subgraph": "lightnet.passes.subgraph:SubgraphPass",
    "layout": "lightnet.passes.layout:LayoutPass",
    "choose": "lightnet.passes.choose:ChoosePass",
    "hoist": "lightnet.passes.hoist:HoistPass",
    "schedule": "lightnet.passes.schedule:SchedulePass",
    "plan": "lightnet.passes.plan:PlanPass",
    "check-plan": "lightnet.passes.check_plan:CheckPlanPass",
    "lower-cpu": "lightnet.passes.lower_cpu:LowerCpuPass",
})  # fmt: skip

TARGETS = Table("target", {
    "none": "lightnet.backends.interpreter.target:NONE",
    "cpu": "lightnet.backends.cpu.target:CPU",
})  # fmt: skip

#: The kernel op of each target that has one.
KERNELS = Table("kernel op", {
    "cpu": "lightnet.dialects.cpu:CpuKernelOp",
})  # fmt: skip

#: Front ends by file suffix (`frontends/loading.py` says what they take).
FRONTENDS = Table("front end", {
    ".net": "lightnet.frontends.loading:IL",
    ".json": "lightnet.frontends.loading:JSON",
    ".mlir": "lightnet.frontends.loading:MLIR",
    ".onnx": "lightnet.frontends.loading:ONNX",
})  # fmt: skip

#: Families of handlers of ONNX ops: importing a module registers its handlers (`frontends/onnx/node.py`).
ONNX_OPS = Table("family of ONNX ops", {
    name: f"lightnet.frontends.onnx.ops.{name}"
    for name in ("elementwise", "quantized", "microsoft", "shape", "indexing", "reduce", "nn", "norm", "attention", "resize", "sampling", "recurrent", "control", "signal", "text", "sequence")
})  # fmt: skip

#: Families of exporters to ONNX: importing a module registers its exporters (`frontends/onnx/export/graph.py`).
ONNX_EXPORTERS = Table("family of ONNX exporters", {
    name: f"lightnet.frontends.onnx.export.{name}"
    for name in ("move", "elementwise", "arith", "reduce", "indexing", "window", "norm", "recurrent", "sampling")
})  # fmt: skip

#: Families of handlers of NNVM's and MXNet's ops (`frontends/nnvm/node.py`).
NNVM_OPS = Table("family of NNVM ops", {
    name: f"lightnet.frontends.nnvm.ops.{name}"
    for name in (
        "convolution", "norm", "elementwise", "reduce", "shape", "slicing", "constant", "indexing", "resize", "sampling",
        "recurrent", "detection",
    )
})  # fmt: skip

#: Families of exporters to NNVM (`frontends/nnvm/export/calls.py`).
NNVM_EXPORTERS = Table("family of NNVM exporters", {
    name: f"lightnet.frontends.nnvm.export.{name}" for name in ("layers", "ops")
})  # fmt: skip

#: Op families of the ln dialect: a module that holds the op classes of one family.
FAMILIES = Table("op family", {
    name: f"lightnet.dialects.ln.{name}:OPS"
    for name in (
        "source", "conv", "pool", "norm", "elementwise", "move", "rearrange", "indexing", "scatter", "scan", "reduce",
        "einsum", "resize", "sort", "detection", "effect",
        "structure", "boxes", "matmul", "conv_nd", "pool_nd", "recurrent", "spatial", "arith", "unary", "activation",
    )
})  # fmt: skip

#: Patterns by (pass, target): what `expand`, `combine` … apply, beside what a target lists itself.
_PATTERNS: dict[tuple[str, str], list[type]] = {}


def pattern(pass_name: str, target: str = "*") -> Callable[[type], type]:
    """Class decorator: add a rewrite pattern to one of our passes, for one target or for all (``*``)."""

    def register(cls: type) -> type:
        _PATTERNS.setdefault((pass_name, target), []).append(cls)
        return cls

    return register


def patterns(pass_name: str, target: str) -> list[type]:
    """The registered patterns of a pass for a target, in order of registration."""
    return [*_PATTERNS.get((pass_name, target), []), *_PATTERNS.get((pass_name, "*"), [])]
