"""ONNX export. Each op's every sample, exported alone and run by ONNX Runtime (by ONNX's reference evaluator where ONNX
Runtime has no kernel for a type), equals the op's own reference: the references are checked by an oracle that is not ours.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from kernels import agree, op_of
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.source import Input
from lightnet.frontends.onnx_export import export, input_contents, to_onnx
from lightnet.frontends.onnx_graph import NOT_EXPORTED, exporters
from lightnet.ir.op import LnOp

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference")
ort = pytest.importorskip("onnxruntime")

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}
CASES = [(name, i) for name, cls in sorted(OPS.items()) for i in range(len(cls.samples()))]


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_onnx(model, feeds) -> tuple[str, list[np.ndarray]]:
    """Run a model; returns which evaluator did, too."""
    feeds = {i.name: feeds[i.name] for i in model.graph.input}
    try:
        return "onnxruntime", session(model).run(None, feeds)
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        with np.errstate(all="ignore"):
            return "reference", evaluator.ReferenceEvaluator(model).run(None, feeds)


def module_of(op: LnOp) -> tuple[ModuleOp, list[str]]:
    """A network of one op on inputs; and the names of the inputs."""
    names = [f"in{i}" for i in range(len(op.operands))]
    sources = [Input.make([], {"dtype": s.dtype.tl, "dims": s.dims, "from_file": True}, name=n, tensors=[n])
               for n, s in zip(names, op.operand_specs)]  # fmt: skip
    op = type(op).build_unchecked([s.results[0] for s in sources], op.param_values(), op.result_specs, name="op",
                                  tensors=[f"out{i}" for i in range(len(op.results))])  # fmt: skip
    block = Block([*sources, op, func.ReturnOp(*op.results)])
    main = func.FuncOp("main", ([], [r.type for r in op.results]), Region(block))
    return ModuleOp([main]), names


def exported(op: LnOp, arrays) -> tuple[str, list[np.ndarray]]:
    module, names = module_of(op)
    model = to_onnx(module)
    onnx.checker.check_model(model, full_check=True)  # its shape inference agrees with ours
    return run_onnx(model, dict(zip(names, arrays)))


def test_every_op_has_an_exporter_or_a_reason():
    assert set(exporters()) | set(NOT_EXPORTED) == set(optypes())
    assert not set(exporters()) & set(NOT_EXPORTED)


@pytest.mark.parametrize("name, index", CASES)
def test_exported_op_agrees_with_the_reference(name, index):
    op, arrays = op_of(OPS[name], OPS[name].samples()[index], index)
    want = op.reference(*arrays)
    want = [np.asarray(a) for a in (want if isinstance(want, tuple) else (want,))]
    _, got = exported(op, arrays)
    for array, reference in zip(got, want, strict=True):
        agree(np.asarray(array), reference)
