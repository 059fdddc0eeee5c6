"""Export of a level-1 module to NNVM graph JSON, in pure NNVM op names (document 003).

Nodes stand as NNVM writes them: depth first from the heads, the inputs of a node right before it. A param becomes a
variable of its tensor's name; what it holds stays in the network's weights (`model.weights`), whose names these are.
The shapes and types of all entries are written as NNVM's InferShape and InferType do, so that the graph can be read
back as it is. What NNVM lacks is listed at once. Imports the IR and the exporters of ops (`calls.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input, ParamOp, Source
from lightnet.frontends.handlers import list_refused
from lightnet.ir.host import refuse_host
from lightnet.ir.instances import refuse_open
from lightnet.ir.locations import loc_of
from lightnet.ir.module import main_of, output_names
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.runtime.files import write_atomic
from lightnet.runtime.weights import WeightStore
from lightnet_export.nnvm.calls import DTYPE_NAMES, Exporting, NodeCall, NotInNnvm, plan
from lightnet_nnvm.pairs import DTYPE_NUMBERS, OUTPUT_NAMES

if TYPE_CHECKING:
    from lightnet.model import Model

#: Elements of the largest param whose contents may decide what is written (a bias of zeros is none).
MAX_READ = 1 << 16
_OUTPUT = "_output"

Entry = list[int]


def to_nnvm(model: Model | ModuleOp) -> str:
    """The network as NNVM graph JSON.

    Nodes are named after their ops, variables after their tensors: those are the names of the weights. Raises
    `LightNetError`, with a list, for ops that NNVM does not have, and for a module that is lowered already.
    """
    module = model if isinstance(model, ModuleOp) else model.module
    refuse_host(module, "an NNVM graph")
    refuse_open(module, "an NNVM graph")
    store = None if isinstance(model, ModuleOp) else model.weights
    seed = 0 if isinstance(model, ModuleOp) else model.seed
    return json.dumps(_Export(store, seed).graph(module), indent=2) + "\n"


def export(model: Model | ModuleOp, path: str | Path) -> None:
    """Write `to_nnvm(model)` to a file; ``-`` is standard output."""
    write_atomic(str(path), to_nnvm(model))


class _Export(Exporting):
    def __init__(self, store: WeightStore | None, seed: int):
        self.store, self.seed = store, seed
        self.nodes: list[dict[str, Any]] = []
        self.specs: list[list[TensorSpec]] = []
        self.entries: dict[SSAValue, Entry] = {}
        self.calls: dict[LnOp, NodeCall] = {}
        self.names = FreshNames()
        self.heads: dict[LnOp, str] = {}
        self.refused: dict[LnOp, str] = {}

    def graph(self, module: ModuleOp) -> Mapping[str, Any]:
        last = main_of(module).body.block.last_op
        assert isinstance(last, ReturnOp)
        if not last.operands:
            raise LightNetError("the network has no outputs, and an NNVM graph has at least one", label="nnvm.outputs")
        self.names.taken.update(
            _variable(op) for op in main_of(module).walk() if isinstance(op, Source) and not _is_constant(op)
        )
        self.reserve(last.operands)
        heads = [self.visit(v) for v in output_names(last).values()]
        if self.refused:
            raise self.refusal()
        pointers = [0]
        for specs in self.specs:
            pointers.append(pointers[-1] + len(specs))
        entries = [spec for specs in self.specs for spec in specs]
        return {
            "nodes": self.nodes,
            "arg_nodes": [i for i, node in enumerate(self.nodes) if node["op"] == "null"],
            "heads": heads,
            "node_row_ptr": pointers,
            "attrs": {
                "shape": ["list_shape", [list(s.dims) for s in entries]],
                "dtype": ["list_int", [DTYPE_NUMBERS.index(s.dtype.name) for s in entries]],
                OUTPUT_NAMES: ["list_str", list(output_names(last).keys())],
            },
        }

    def reserve(self, outputs: Sequence[SSAValue]) -> None:
        """An output that is called ``<name>_output``, as MXNet calls that of a node, is made by the node of that
        name."""
        for op in {v.owner for v in outputs if isinstance(v.owner, LnOp) and not isinstance(v.owner, Source)}:
            tensor = op.tensor_names[0] or ""
            if tensor.endswith(_OUTPUT) and len(op.results) == 1 and tensor != _OUTPUT:
                name = tensor.removesuffix(_OUTPUT)
                if name not in self.names.taken:
                    self.heads[op] = name
        self.names.taken.update(self.heads.values())

    # -- the walk

    def visit(self, root: SSAValue) -> Entry:
        """The entry of a value; everything that it needs is written before it."""
        stack = [root]
        while stack:
            value = stack[-1]
            if value in self.entries:
                stack.pop()
                continue
            op = value.owner
            if not isinstance(op, LnOp):
                raise LightNetError("only a network of level 1 can be exported to NNVM: export it before it is lowered",
                                    loc_of(op) if isinstance(op, Operation) else None, label="nnvm.level")  # fmt: skip
            if isinstance(op, Source) and _is_constant(op):
                self.entries[value] = self.constant(op)
                continue
            if isinstance(op, Source):
                self.entries[value] = self.node("null", _variable(op), [], {}, [spec_of(value.type)])
                continue
            call = self.call(op)
            missing = [v for v in call.leaves() if v not in self.entries]
            if missing:
                stack += reversed(missing)
                continue
            name = self.heads.get(op) or self.names.fresh(call.name or op.op_name or op.optype)
            index = self.write(call, name, op.result_specs)[0]
            self.entries.update((result, [index, i, 0]) for i, result in enumerate(op.results))
        return self.entries[root]

    def constant(self, op: Source) -> Entry:
        """A param whose contents stand in the module: one number throughout is NNVM's `full`."""
        spec, contents = op.result_specs[0], op.contents(None)
        attrs: dict[str, Any] = {}
        if spec.len and spec.ndim and (contents == contents.reshape(-1)[0]).all() and spec.dtype.name in DTYPE_NAMES:
            attrs = {
                "shape": spec.dims,
                "dtype": DTYPE_NAMES[spec.dtype.name],
                "fill_value": contents.reshape(-1)[0].item(),
            }
        else:
            self.refused[op] = "a constant of several numbers, which NNVM's graphs do not hold"
        return self.node("full", self.names.fresh(_variable(op)), [], attrs, [spec])

    def call(self, op: LnOp) -> NodeCall:
        """The call that the op becomes; for one that NNVM lacks, a stand-in, so that the walk finds the others."""
        if op not in self.calls:
            try:
                self.calls[op] = plan(op, self)
            except NotInNnvm as e:
                self.refused[op] = str(e)
                self.calls[op] = NodeCall("unsupported", tuple(op.operands), {})
        return self.calls[op]

    def write(self, call: NodeCall, name: str, specs: list[TensorSpec]) -> Entry:
        """Write a call, those inside of it first."""
        inputs = []
        for i, operand in enumerate(call.operands):
            if isinstance(operand, NodeCall):
                assert operand.spec is not None
                inputs.append(self.write(operand, self.names.fresh(f"{name}_{operand.op}{i}"), [operand.spec]))
            else:
                inputs.append(self.entries[operand])
        return self.node(call.op, name, inputs, call.attrs, specs)

    def node(self, op: str, name: str, inputs: list[Entry], attrs: Mapping[str, Any], specs: list[TensorSpec]) -> Entry:
        node: dict[str, Any] = {"op": op, "name": name, "inputs": inputs}
        if attrs:
            node["attrs"] = {k: str(v) for k, v in attrs.items()}
        self.nodes.append(node)
        self.specs.append(specs)
        return [len(self.nodes) - 1, 0, 0]

    # -- for the exporters of ops

    def contents(self, value: SSAValue) -> np.ndarray | None:
        """The contents of a param, where that is known and small; None for anything else."""
        op = value.owner
        if not isinstance(op, Source) or isinstance(op, Input) or spec_of(value.type).len > MAX_READ:
            return None
        if op.from_file and (self.store is None or op.tensor_names[0] not in self.store):
            return None
        return op.contents(self.store, self.seed)

    # -- refusing

    def refusal(self) -> LightNetError:
        error = LightNetError(f"{len(self.refused)} ops cannot be exported to NNVM", label="nnvm.unsupported")
        refused = ((op.optype, f"'{op.op_name or '?'}'", why, loc_of(op)) for op, why in self.refused.items())
        return list_refused(error, refused)


def _is_constant(op: Source) -> bool:
    """Return whether what a param holds stands in the module."""
    return isinstance(op, ParamOp) and not op.from_file and tuple(op.ran) == (0, 0)


def _variable(op: Source) -> str:
    """The name of a variable: that of its tensor, by which weights and feeds go."""
    return op.tensor_names[0] or op.op_name or op.optype
