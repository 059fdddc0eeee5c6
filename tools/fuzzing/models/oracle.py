"""What a model should give: ONNX Runtime without its optimisations, with a tolerance that the model's own rounding decides.

Where results differ, the graph is run again in stochastic arithmetic (J. Vignes, "A stochastic arithmetic for reliable scientific computation", 1993): every float
that a node computes is multiplied by 1 + e, e random of the size of its type's rounding. An element may differ by some times what these runs differ by, so that a
tie that rounding decides (a floor, an argmax) is no fault, and a wrong value of a stable element is. Where a network computes in shorter floats, the first of these runs
rounds to them instead: that makes integers of what was near them, as noise never does. ONNX's reference evaluator is asked last.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Relative rounding of a type, with room for sums in another order.
EPS = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
#: What ONNX Runtime's approximations of tanh and sigmoid in recurrent layers are off by, of results of up to 1.
RECURRENT = {"RNN": 2e-5, "GRU": 2e-5, "LSTM": 2e-5}
#: How many noisy runs, and how many times their spread an element may differ by.
RUNS, SPREAD = 4, 8
#: Ops that hand floats on as they are: noise belongs to those that compute. Quantised steps count as computing before they round.
MOVES = {"Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Constant",
         "ConstantOfShape", "Shape", "Range", "Pad", "DepthToSpace", "SpaceToDepth", "Where", "Trilu", "Dropout", "MaxPool", "If", "Loop", "Scan", "Compress"}  # fmt: skip

Arrays = dict[str, np.ndarray]


def runtime(data: bytes, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """ONNX Runtime's outputs, by name; raises what it raises."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
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
    """What is wrong with outputs, by name: their names, types, shapes, and values beyond what rounding explains."""
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


def spreads(data: bytes, feeds: Mapping[str, np.ndarray], want: Arrays, eps: float = 0.0) -> Arrays:
    """How far each element moves under noise; NaN where it is finite in some runs only."""
    found: Arrays = {}
    for run in range(4 * RUNS if eps else RUNS):
        with suppress(Exception):  # a shape that a value decides
            other = runtime(noisy(data, run, eps), feeds)
            for name, value in other.items():
                if value.shape != want[name].shape:
                    found[name] = np.full(want[name].shape, np.nan)
                    continue
                a, b = (np.asarray(v, np.float64) for v in (value, want[name]))
                with np.errstate(all="ignore"):
                    moved = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
                found[name] = np.maximum(found.get(name, 0), moved)
    return found


def noisy(data: bytes, seed: int, eps: float = 0.0) -> bytes:
    """The model with noise behind each node that computes floats. Of a network that computes with a relative rounding of `eps`: on what it is fed and
    its constants, too, in odd runs as large as several roundings come to; in run 0, f32 is rounded to so many bits."""
    rounds, much = bool(eps) and seed == 0, eps * (2 if seed % 2 else 0.5)
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(data))
    graph, rng = model.graph, np.random.default_rng(seed)
    types = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output, *graph.input)}
    ends = {o.name for o in graph.output}
    nodes: list[onnx.NodeProto] = []
    names: dict[str, str] = {}
    if eps:  # data is rounded, too
        feeds = {x.name for x in graph.input} - {t.name for t in graph.initializer}
        constants = [
            *graph.initializer,
            *(a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")),
        ]
        for t in [t for t in constants if t.data_type == TensorProto.FLOAT]:
            array = numpy_helper.to_array(t)
            near = _rounded(array, eps) if rounds else array * (1 + much * rng.uniform(-1, 1, array.shape))
            with np.errstate(over="ignore"):
                t.CopyFrom(numpy_helper.from_array(near.astype(np.float32), t.name))
        for name in sorted(n for n in feeds if types[n].elem_type == TensorProto.FLOAT):
            names[name] = f"n·{name}"
            if rounds:
                nodes += _rounding(name, names[name], eps)
                continue
            factor = 1 + much * rng.uniform(-1, 1, [d.dim_value for d in types[name].shape.dim])
            nodes.append(
                helper.make_node(
                    "Constant", [], [f"f·{name}"], value=numpy_helper.from_array(factor.astype(np.float32))
                )
            )
            nodes.append(helper.make_node("Mul", [name, f"f·{name}"], [names[name]]))
    for node in graph.node:
        bodies = any(a.HasField("g") for a in node.attribute)
        if not bodies:
            node.input[:] = [names.get(n, n) for n in node.input]
        nodes.append(node)
        for a in node.attribute:
            if a.HasField("g"):
                _disturb(a.g, eps, rng)
        for i, out in enumerate(node.output):
            kind = types[out].elem_type if out in types else 0
            if (node.op_type in MOVES and not bodies) or kind not in (
                TensorProto.FLOAT,
                TensorProto.DOUBLE,
                TensorProto.FLOAT16,
            ):
                continue
            if rounds and kind == TensorProto.FLOAT:
                if out in ends or _captured(graph, out):
                    node.output[i] = f"s·{out}"
                    nodes += _rounding(f"s·{out}", out, eps)
                else:
                    nodes += _rounding(out, f"n·{out}", eps)
                    names[out] = f"n·{out}"
                continue
            shape = [d.dim_value for d in types[out].shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            size = max(eps, EPS[str(dtype)] / 8)
            factor, noise, source = (f"{word}·{out}" for word in ("f", "n", "s"))
            graph.initializer.append(
                numpy_helper.from_array(np.asarray(1 + size * rng.uniform(-1, 1, shape), dtype), factor)
            )
            if model.ir_version < 4:
                graph.input.append(helper.make_tensor_value_info(factor, kind, shape))
            if out in ends or _captured(graph, out):
                node.output[i] = source
                nodes.append(helper.make_node("Mul", [source, factor], [out]))
            else:
                nodes.append(helper.make_node("Mul", [out, factor], [noise]))
                names[out] = noise
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    return model.SerializeToString()


def _splitter(eps: float) -> np.ndarray:
    """2^s + 1 that leaves of a float's 24 bits as many as a type has whose numbers lie `eps` apart (T. J. Dekker, "A floating-point technique for extending the
    available precision", 1971)."""
    return np.asarray(2.0 ** (23 + np.log2(eps)) + 1, np.float32)


def _rounded(array: np.ndarray, eps: float) -> np.ndarray:
    """f32 values rounded to the nearest of a type whose numbers lie `eps` apart; what is infinite, or too large for that, stays: of a NaN
    in one run, `spreads` would excuse all that is made."""
    with np.errstate(all="ignore"):
        large = array.astype(np.float32) * _splitter(eps)
        near = large - (large - array)
    return np.where(np.isnan(near), array, near)


def _rounding(source: str, target: str, eps: float) -> list[onnx.NodeProto]:
    """`_rounded` as nodes."""
    large, rest, by, near, lost = (f"{word}·{target}" for word in ("large", "rest", "by", "near", "lost"))
    return [
        helper.make_node("Constant", [], [by], value=numpy_helper.from_array(_splitter(eps))),
        helper.make_node("Mul", [source, by], [large]),
        helper.make_node("Sub", [large, source], [rest]),
        helper.make_node("Sub", [large, rest], [near]),
        helper.make_node("IsNaN", [near], [lost]),
        helper.make_node("Where", [lost, source, near], [target]),
    ]


def _disturb(body: onnx.GraphProto, eps: float, rng: np.random.Generator) -> None:
    """Put noise behind each node of a body whose type is known: one factor for all elements, and in every turn."""
    types = {v.name: v.type.tensor_type.elem_type for v in (*body.value_info, *body.output)}
    nodes: list[onnx.NodeProto] = []
    for node in body.node:
        nodes.append(node)
        for a in node.attribute:
            if a.HasField("g"):
                _disturb(a.g, eps, rng)
        for i, out in enumerate(node.output):
            kind = types.get(out, 0)
            if node.op_type in MOVES or kind not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
                continue
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            factor, source = f"f·{out}", f"s·{out}"
            value = np.asarray(1 + max(eps, EPS[str(dtype)] / 8) * rng.uniform(-1, 1), dtype)
            node.output[i] = source
            nodes.append(helper.make_node("Constant", [], [factor], value=numpy_helper.from_array(value)))
            nodes.append(helper.make_node("Mul", [source, factor], [out]))
    del body.node[:]
    body.node.extend(nodes)


def _captured(graph: onnx.GraphProto, name: str) -> bool:
    """Whether the body of a region reads a tensor."""
    return any(
        name in inner.input for node in graph.node for a in node.attribute if a.HasField("g") for inner in a.g.node
    )
