"""Cases of ops beyond the standard (domains com.microsoft and ai.onnx.ml): those of the tests, a model of one node each, against ONNX Runtime.

Without ONNX Runtime there are none. Imports onnx, NumPy and tests/onnx_microsoft.py, tests/onnx_ml.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from compare_onnxruntime import WIDE_SUMS
from onnx import helper, numpy_helper

from suites.problem import Case, Problem

#: What an output may differ by, of its largest value: sums of floats in another order.
TOLERANCE = 2e-5
#: Versions of ONNX and of its file format that ONNX Runtime has had for long.
OPSET, IR_VERSION = 17, 8


def domain_cases(domain: str) -> list[Case]:
    """The cases of a domain."""
    if find_spec("onnxruntime") is None:
        return []
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    return list(_microsoft() if domain == "com.microsoft" else _ml())


def _microsoft() -> Iterator[Case]:
    from onnx_microsoft import cases

    for op, of in cases().items():
        for k, (inputs, attributes, outputs, constants) in enumerate(of):
            yield _case("com.microsoft", op, k, inputs, attributes, outputs, constants, 1)


def _ml() -> Iterator[Case]:
    from onnx_ml import cases

    for op, of in cases().items():
        for k, (inputs, outputs, version, constants, attributes) in enumerate(of):
            yield _case("ai.onnx.ml", op, k, inputs, attributes, outputs, constants, version)


def _case(domain: str, op: str, number: int, inputs: Mapping[str, np.ndarray | None], attributes: Mapping[str, Any], outputs: int,
          constants: Sequence[str], version: int) -> Case:  # fmt: skip
    load = partial(_problem, domain, op, inputs, attributes, outputs, constants, version)
    first = next(a for a in inputs.values() if a is not None)
    dtype = onnx.TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(first.dtype)).lower()
    return Case(domain, f"{op.lower()}_{number}", load, f"{domain}.{op}", version, dtype)


def _problem(domain: str, op: str, inputs: Mapping[str, np.ndarray | None], attributes: Mapping[str, Any], outputs: int,
             constants: Sequence[str], version: int) -> Problem:  # fmt: skip
    names = ["" if a is None else name for name, a in inputs.items()]
    while not names[-1]:
        names.pop()
    results = [f"y{k}" for k in range(outputs)]
    there = {name: a for name, a in inputs.items() if a is not None}
    feeds = {name: a for name, a in there.items() if name not in constants}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in there.items() if name not in feeds]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(y) for y in results], tensors)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(domain, version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    want = _expected(model, feeds, results)
    align = (
        partial(_without_nobodys, inputs["ends"], feeds["q"].shape[1], want) if op == "GroupQueryAttention" else dict
    )
    if op.startswith("Q") and want["y0"].dtype.itemsize == 1:  # a number between two of them may become either
        return Problem(model, [(feeds, want)], rtol=0, atol=1, align=align)
    return Problem(model, [(feeds, want)], of_largest=TOLERANCE, align=align)


def _expected(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The results that ONNX Runtime computes, one op after the other."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.add_session_config_entry(*WIDE_SUMS)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(list(names), dict(feeds))))


def _without_nobodys(
    ends: np.ndarray, rows: int, want: Mapping[str, np.ndarray], got: Mapping[str, Any]
) -> dict[str, Any]:
    """Of a shorter entry of the batch, the rows and the keys behind its end are nobody's: they are those that are expected."""
    found = {}
    for name, array in got.items():
        found[name] = array = np.array(array)
        for entry, end in enumerate(ends):
            if name == "y0" and rows > 1:
                array[entry, end + 1 :] = want[name][entry, end + 1 :]
            elif name != "y0":
                array[entry, :, end + 1 :] = want[name][entry, :, end + 1 :]
    return found
