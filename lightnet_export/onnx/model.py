"""ONNX export: a network of level 1 or 2 as an `onnx.ModelProto`.

Inputs become graph inputs, params initializers with their contents; a kernel is exported as its body, so a network may
be exported before and after fusion. Every op has an exporter in one of the other modules here (`graph.py` says how one
is written). The package `onnx` is optional and imported where it is needed. Imports the IR, the dialect and `graph.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.arguments import without_arguments
from lightnet.dialects.ln.move import Forward
from lightnet.dialects.ln.source import Create, Input, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.frontends.onnx.model import ELEM_TYPES
from lightnet.frontends.onnx.protos import need_onnx
from lightnet.ir.counts import counts_of
from lightnet.ir.host import refuse_host
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.locations import loc_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp, tensor_names
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.model import Model, Weights
from lightnet.passes.bind import is_data
from lightnet.runtime.dim_text import text
from lightnet.runtime.dims import Dim
from lightnet.runtime.weights import WeightStore, open_weights
from lightnet_export.onnx.graph import ExportGraph, node_protos

if TYPE_CHECKING:
    import onnx

#: A protobuf message is smaller than this.
MAX_BYTES = (1 << 31) - (1 << 20)


def to_onnx(model: Model | ModuleOp, *, weights: Weights = None, seed: int | None = None,
            inputs_as_params: bool = False, outputs: Sequence[str] | None = None) -> onnx.ModelProto:  # fmt: skip
    """The network as an ONNX model of opset 18, or of the newer one that an op needs, checked by `onnx.checker`.

    Graph inputs, outputs (in order) and values have the names of their tensors, nodes those of their ops. Params hold
    what `weights` (default: the model's) gives them, random contents belong to `seed` (default: the model's, or 0).
    `inputs_as_params` makes the inputs initializers too, with their default contents; `outputs` names further tensors
    to return. Dims that calls decide have their names (`dim_param`), without bounds. `print` and `fprint` are dropped;
    the model's doc string names them.

    Raises `LightNetError`: no package `onnx`; an op that ONNX cannot express (an integer convolution); an unknown name
    in `outputs`; weights that do not fit, or of over 2 GB in all. As in a run, params missing from the weights are 0.
    """
    need_onnx("ONNX export")
    module = without_arguments(model.module if isinstance(model, Model) else model)
    refuse_host(module, "an ONNX model of ours")
    store = open_weights(weights) if weights is not None else model.weights if isinstance(model, Model) else None
    seed = seed if seed is not None else model.seed if isinstance(model, Model) else 0
    if outputs:
        from lightnet.compiler import keep_outputs

        module = module.clone()
        keep_outputs(module, outputs)
    return _Export(store, seed, inputs_as_params).model(module)


def export(model: Model | ModuleOp, path: str | Path, **options: Any) -> None:
    """Write `to_onnx(model, **options)` to a file; ``-`` is standard output."""
    from lightnet.runtime.files import write_atomic

    write_atomic(str(path), to_onnx(model, **options).SerializeToString())


class _Export:
    """One export: the graph so far, and the ONNX name of every value."""

    def __init__(self, store: WeightStore | None, seed: int, inputs_as_params: bool):
        self.store, self.seed, self.inputs_as_params = store, seed, inputs_as_params
        self.graph = ExportGraph()
        self.names: dict[SSAValue, str] = {}
        self.specs: dict[str, TensorSpec] = {}
        self.inputs: list[str] = []
        self.sizes: dict[str, list[Any]] = {}  # of counted outputs, with names for dims
        self.dropped: list[str] = []
        self.nbytes = 0

    def model(self, module: ModuleOp) -> onnx.ModelProto:
        from onnx import checker, helper, numpy_helper

        main = main_of(module)
        self.graph.names.reserved = frozenset(n for op in main.walk() for n in tensor_names(op) if n)
        last = self.block(main.body.block)
        assert isinstance(last, ReturnOp)
        outputs = self.sized(last)
        known = {*self.inputs, *self.graph.initializers, *outputs}
        proto = helper.make_graph(
            list(node_protos(self.graph.nodes)), main.sym_name.data or "main",
            [self.value_info(n) for n in self.inputs], [self.value_info(n) for n in outputs],
            [numpy_helper.from_array(a, n) for n, a in self.graph.initializers.items()],
            value_info=[self.value_info(n) for n in self.specs if n not in known],
        )  # fmt: skip
        from lightnet import __version__

        opset = helper.make_opsetid("", self.graph.opset)
        note = f"without the run-time calls {', '.join(self.dropped)}" if self.dropped else ""
        model = helper.make_model(proto, producer_name="lightnet", producer_version=__version__, opset_imports=[opset],
                                  ir_version=helper.find_min_ir_version_for([opset]), doc_string=note)  # fmt: skip
        checker.check_model(model)
        return model

    def sized(self, last: Operation) -> list[str]:
        """The names of the outputs: those that are counted are cut to their true sizes, and keep their names; the
        counts are none."""
        names = [self.names[v] for v in last.operands]
        counts = counts_of(last)
        hidden, counted = {j for _, _, j in counts}, {i for i, _, _ in counts}
        for i in counted:
            name, spec = names[i], self.specs[names[i]]
            whole = self.graph.names.fresh(f"{name}.whole")
            for node in self.graph.nodes:
                node.inputs[:] = [whole if n == name else n for n in node.inputs]
                node.outputs[:] = [whole if n == name else n for n in node.outputs]
            rows = [(axis, j) for k, axis, j in counts if k == i]
            ends = [self.graph.reshape(names[j], [1]) for _, j in rows]
            end = ends[0] if len(ends) == 1 else self.graph.node("Concat", *ends, axis=0)
            starts, axes = self.graph.ints([0] * len(rows)), self.graph.ints([axis for axis, _ in rows])
            self.graph.node("Slice", whole, starts, end, axes)
            self.graph.nodes[-1].outputs[:] = [name]
            self.specs[whole] = spec
            self.sizes[name] = [names[dict(rows)[k]] if k in dict(rows) else n for k, n in enumerate(spec.dims)]
        return list(dict.fromkeys(n for i, n in enumerate(names) if i not in hidden))

    def value_info(self, name: str) -> onnx.ValueInfoProto:
        from onnx import helper

        spec = self.specs[name]
        dims = [text(d, {s.name for s in d.symbols}) if isinstance(d, Dim) else d
                for d in self.sizes.get(name, spec.dims)]  # fmt: skip
        return helper.make_tensor_value_info(name, ELEM_TYPES[spec.dtype.name], dims)

    # -- the walk

    def block(self, block: Block) -> Operation:
        """Export the ops of a block; returns its terminator."""
        for op in block.ops:
            if isinstance(op, ReturnOp | YieldOp):
                return op
            self.operation(op)
        raise AssertionError("a region without a terminator was verified")

    def operation(self, op: Operation) -> None:
        if isinstance(op, Source):
            self.source(op)
        elif isinstance(op, KernelOp | OnceOp):
            self.names.update(zip(op.body.args, (self.names[v] for v in op.operands)))
            last = self.block(op.body)
            self.names.update(zip(op.results, (self.names[v] for v in last.operands)))
        elif isinstance(op, LnOp) and op.is_host:
            self.dropped.append(f"{op.optype} `{op.op_name or '?'}`")
        elif isinstance(op, Forward) and op.tensor_names[0] == self.names[op.operands[0]]:
            # an output that is an input, or a param, under its name
            self.names[op.results[0]] = self.names[op.operands[0]]
        elif isinstance(op, LnOp):
            wanted = [n or f"{op.op_name or op.optype}/{r}" for n, r in zip(tensor_names(op), op.arg_names()[1])]
            names = self.graph.export(op, [self.names[v] for v in op.operands], wanted)
            for value, name in zip(op.results, names):
                self.define(value, name)
        else:
            raise LightNetError(f"{op.name} cannot be exported to ONNX: export the network before it is lowered",
                                loc_of(op), label="onnx.level")  # fmt: skip

    def source(self, op: Source) -> None:
        name = self.graph.claim(op.tensor_names[0] or op.op_name or op.optype)
        self.define(op.results[0], name)
        is_input = isinstance(op, Input) or (isinstance(op, Create) and is_data(op.results[0]))
        if is_input and not self.inputs_as_params:
            self.inputs.append(name)
            self.graph.learn_sizes(name, op.result_specs[0].dims)
            return
        self.nbytes += op.result_specs[0].nbytes
        if self.nbytes > MAX_BYTES:
            raise LightNetError("the params take more than 2 GB, which an ONNX file cannot hold", label="onnx.size")
        self.graph.initializers[name] = np.asarray(op.contents(self.store, self.seed), order="C")

    def define(self, value: SSAValue, name: str) -> None:
        self.names[value] = name
        self.specs[name] = spec_of(value.type)


def input_contents(model: Model, weights: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The default contents of every graph input of `to_onnx(model)`, by name: what a runtime is fed to compute what a
    call without arguments does."""
    store = open_weights(weights) if weights is not None else model.weights
    found: dict[str, np.ndarray] = {}
    for op in without_arguments(model.module).walk():
        if isinstance(op, Input) or (isinstance(op, Create) and is_data(op.results[0])):
            found[op.tensor_names[0] or op.op_name or op.optype] = op.contents(store, model.seed)
    return found
