"""The results that a model should give: ONNX Runtime without its optimisations, with a tolerance that the model's own
rounding decides.

Where results differ, the graph is run again in stochastic arithmetic (J. Vignes, "A stochastic arithmetic for reliable scientific computation", 1993): every float
that a node computes is multiplied by 1 + e, e random of the size of its type's rounding (`fuzzing.models.noise`). An element may differ by some times what these runs
differ by, so that a tie that rounding decides (a floor, an argmax) is no fault, and a wrong value of a stable element is. Where a network computes in shorter floats,
the first of these runs rounds to them instead: that makes integers of what was near them, as noise never does. ONNX's reference evaluator is asked last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from compare_onnxruntime import WIDE_SUMS
from onnx import helper

from fuzzing.models.noise import EPS, noisy, shaped

#: What ONNX Runtime's approximations of tanh and sigmoid in recurrent layers are off by, of results of up to 1.
RECURRENT = {"RNN": 2e-5, "GRU": 2e-5, "LSTM": 2e-5}
#: How many noisy runs, and how many times their spread an element may differ by.
RUNS, SPREAD = 4, 8
#: How many times as many runs there are before a difference counts as a fault: of two numbers that are equal but for their rounding, which one an
#: argmax takes is the same in five runs once in sixteen networks.
AGAIN = 6

Arrays = dict[str, np.ndarray]


def runtime(data: bytes, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """ONNX Runtime's outputs, by name; raises what it raises."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry(*WIDE_SUMS)
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    run = ort.RunOptions()
    run.log_severity_level = 4
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds), run)))


def reference(data: bytes, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs of ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    model = onnx.load_from_string(data)
    with np.errstate(all="ignore"):
        values = ReferenceEvaluator(model).run(None, dict(feeds))
    return {o.name: np.asarray(v) for o, v in zip(model.graph.output, values)}


def differences(
    got: Mapping[str, np.ndarray],
    want: Arrays,
    eps: float | Mapping[str, float] = 0.0,
    spread: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """The mistakes of outputs, by name: their names, types, shapes, and values beyond what rounding explains."""
    if list(got) != list(want):
        return {"": f"outputs are called {list(got)}, expected {list(want)}"}
    least = eps if isinstance(eps, Mapping) else dict.fromkeys(want, eps)
    found = {n: _difference(n, got[n], want[n], least[n], (spread or {}).get(n, 0)) for n in want}
    return {name: said for name, said in found.items() if said}


def _difference(name: str, got: np.ndarray, want: np.ndarray, eps: float, spread: Any) -> str:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"'{name}' is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if not want.size:
        return ""
    if np.shape(spread) not in ((), want.shape):
        spread = 0
    if want.dtype.kind not in "fV":
        off = (got != want) & ~(np.asarray(spread) > 0)
        if not off.any():
            return ""
        i = tuple(int(n) for n in np.argwhere(off)[0])
        return (
            f"'{name}' {want.dtype} has wrong elements: {off.sum()} of {off.size}, at {i}: {got[i]}, expected {want[i]}"
        )
    a, b = (np.asarray(v, np.float64) for v in (got, want))
    finite = b[np.isfinite(b)]
    size = float(np.abs(finite).max()) if finite.size else 0.0
    eps = max(eps, EPS.get(str(want.dtype), 2e-6))
    with np.errstate(all="ignore"):
        off = ~(
            (a == b)
            | (np.isnan(a) & np.isnan(b))
            | (np.abs(a - b) <= eps * (np.abs(b) + 0.5 * size + 1e-3) + SPREAD * np.asarray(spread))
        )
    off &= ~np.isnan(np.asarray(spread))
    if not off.any():
        return ""
    i = tuple(int(n) for n in np.argwhere(off)[0])
    return f"'{name}' {want.dtype} has wrong values: {off.sum()} of {off.size}, at {i}: {a[i]:.9g}, expected {b[i]:.9g} (largest {size:.3g})"


def roundings(data: bytes, least: float = 0.0) -> dict[str, float]:
    """The relative rounding of each output: that of the shortest type of float on the way to it, and `least` at the least."""
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(data)).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.output, *graph.input)}
    kinds |= {t.name: t.data_type for t in graph.initializer}
    found: dict[str, float] = {}

    def own(name: str) -> float:
        kind = kinds.get(name, 0)
        return EPS.get(str(helper.tensor_dtype_to_np_dtype(kind)), least) if kind else EPS["float32"]

    for node in graph.node:
        read = [*node.input, *(n for a in node.attribute if a.HasField("g") for inner in a.g.node for n in inner.input)]
        most = max((found.get(n, own(n)) for n in read if n), default=least)
        most = max(most, RECURRENT.get(node.op_type, 0.0))
        found |= {n: max(most, own(n), least) for n in node.output if n}
    return {o.name: found.get(o.name, max(own(o.name), least)) for o in graph.output}


def spreads(data: bytes, feeds: Mapping[str, np.ndarray], want: Arrays, eps: float = 0.0, times: int = 1) -> Arrays:
    """The distance that each element moves under noise; NaN where it is finite in some runs only. Of `times` as many
    runs as usual. Raises what the last run raised where all fail: an oracle without noise would call rounding a fault.
    """
    found: Arrays = {}
    failed, runs = None, times * (4 * RUNS if eps else RUNS)
    data = shaped(data, feeds)
    for run in range(runs):
        try:
            other = runtime(noisy(data, run, eps), feeds)
        except Exception as error:  # a shape that a value decides
            failed = error
        else:
            for name, value in other.items():
                if name not in want:  # what upstream's plans do not return
                    continue
                if value.shape != want[name].shape:
                    found[name] = np.full(want[name].shape, np.nan)
                    continue
                a, b = (np.asarray(v, np.float64) for v in (value, want[name]))
                with np.errstate(all="ignore"):
                    moved = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
                found[name] = np.maximum(found.get(name, 0), moved)
    if failed is not None and not found:
        raise failed
    return found
