"""Stochastic arithmetic on ONNX models: noise of the size of a rounding behind each node that computes floats, in the bodies of regions and of functions, and on
the terms of sums, which may be far larger than their sum (J. Vignes, "A stochastic arithmetic for reliable scientific computation", 1993). Imports onnx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.inliner import inline_selected_functions

#: Relative rounding of a type, with room for sums in another order.
EPS = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
#: Ops that hand floats on as they are: noise belongs to those that compute. Quantised steps count as computing before they round.
MOVES = {"Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Constant",
         "ConstantOfShape", "Shape", "Range", "Pad", "DepthToSpace", "SpaceToDepth", "Where", "Trilu", "Dropout", "MaxPool", "If", "Loop", "Scan", "Compress"}  # fmt: skip
#: Types of float that get noise.
NOISY = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
#: Ops that add terms, or take differences of them, which may be far larger than the result, or that round a quotient: noise belongs to what they read.
TERMS = {"Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "ReduceSum", "ReduceMean", "Sum", "Mean", "GlobalAveragePool", "AveragePool", "LogSoftmax", "LayerNormalization",
         "GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization", "SoftmaxCrossEntropyLoss", "QuantizeLinear"}  # fmt: skip
#: Ops of which exp(x) - 1 is a part, whose rounding is that of 1.
UNITS = {"Elu", "Celu", "Selu"}
#: Functions within which rounding is larger than what rounding of their operands makes, or which round to integers what they compute: noise goes
#: into their bodies.
OPENED = [("", "Gelu"), ("", "DynamicQuantizeLinear")]


def shaped(data: bytes, feeds: Mapping[str, np.ndarray]) -> bytes:
    """The model with `OPENED` functions inlined, and with the type of each initializer and value of its graph written down, for these feeds."""
    model = onnx.load_from_string(data)
    graph = model.graph
    for x in graph.input:
        if x.name in feeds:
            x.type.CopyFrom(helper.make_tensor_type_proto(x.type.tensor_type.elem_type, feeds[x.name].shape))
    model = _typed(model)
    if {("", node.op_type) for node in graph.node} & set(OPENED):
        model = _typed(inline_selected_functions(model, OPENED, inline_schema_functions=True))
    return model.SerializeToString()


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    known = {v.name: v.type for v in (*graph.input, *graph.value_info)}
    graph.value_info.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer if t.name not in known
    )
    for node in graph.node:  # which inference passes over
        if node.op_type == "GroupNormalization" and node.output[0] not in known and node.input[0] in known:
            graph.value_info.append(helper.make_value_info(node.output[0], known[node.input[0]]))
            return _typed(model)
    return model


def _factor(kind: Any, size: float, rng: np.random.Generator) -> np.ndarray:
    """1 + `size` · noise in the shape of a type; where that is open, one for all elements."""
    dims = kind.shape.dim if kind.HasField("shape") else ()
    closed = all(d.HasField("dim_value") for d in dims)
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return np.asarray(1 + size * rng.uniform(-1, 1, [d.dim_value for d in dims] if closed else ()), dtype)


def _exponents(graph: onnx.GraphProto) -> set[str]:
    """The values that exponents are made of: a power of 1.9999 has no value where that of 2 has one."""
    found = {node.input[1] for node in graph.node if node.op_type == "Pow"}
    for node in reversed(graph.node):
        if node.op_type in ("Cast", "CastLike", "Identity") and node.output[0] in found:
            found.add(node.input[0])
    return found


def _product(source: str, target: str, factor: np.ndarray, op: str = "Mul") -> list[onnx.NodeProto]:
    """Nodes that multiply by a constant, or add it."""
    return [
        helper.make_node("Constant", [], [f"f·{target}"], value=numpy_helper.from_array(factor)),
        helper.make_node(op, [source, f"f·{target}"], [target]),
    ]


def noisy(data: bytes, seed: int, eps: float = 0.0) -> bytes:
    """A `shaped` model with noise behind each node that computes floats. Of a network that computes with a relative rounding of `eps`: on what it is fed and
    its constants, too, in odd runs as large as several roundings come to; in run 0, f32 is rounded to so many bits."""
    rounds, much = bool(eps) and seed == 0, eps * (2 if seed % 2 else 0.5)
    model = onnx.load_from_string(data)
    graph, rng = model.graph, np.random.default_rng(seed)
    types = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output, *graph.input)}
    ends = {o.name for o in graph.output}
    opset = next(o.version for o in model.opset_import if not o.domain)
    nodes: list[onnx.NodeProto] = []
    names: dict[str, str] = {}
    exact = _exponents(graph)
    if eps:  # data is rounded, too
        feeds = {x.name for x in graph.input} - {t.name for t in graph.initializer}
        made = [n for n in graph.node if n.op_type == "Constant" and n.output[0] not in exact]
        constants = [t for t in graph.initializer if t.name not in exact]
        constants += [a.t for node in made for a in node.attribute if a.HasField("t")]
        for t in [t for t in constants if t.data_type == TensorProto.FLOAT]:
            array = numpy_helper.to_array(t)
            near = _rounded(array, eps) if rounds else array * (1 + much * rng.uniform(-1, 1, array.shape))
            with np.errstate(over="ignore"):
                t.CopyFrom(numpy_helper.from_array(near.astype(np.float32), t.name))
        for name in sorted(n for n in feeds - exact if types[n].elem_type == TensorProto.FLOAT):
            names[name] = f"n·{name}"
            if rounds:
                nodes += _rounding(name, names[name], eps, opset)
                continue
            nodes += _product(name, names[name], _factor(types[name], much, rng))
    for node in graph.node:
        bodies = any(a.HasField("g") for a in node.attribute)
        if not bodies:
            node.input[:] = [names.get(n, n) for n in node.input]
        if node.op_type in TERMS and not eps:
            nodes += _disturb_terms(node, types, rng)
        nodes.append(node)
        for a in node.attribute:
            if a.HasField("g"):
                _disturb(a.g, eps, rng)
        for i, out in enumerate(node.output):
            kind = types[out].elem_type if out in types else 0
            if out in exact or (node.op_type in MOVES and not bodies) or kind not in NOISY:
                continue
            if rounds and kind == TensorProto.FLOAT:
                if out in ends or _captured(graph, out):
                    node.output[i] = f"s·{out}"
                    nodes += _rounding(f"s·{out}", out, eps, opset)
                else:
                    nodes += _rounding(out, f"n·{out}", eps, opset)
                    names[out] = f"n·{out}"
                continue
            factor = _factor(types[out], max(eps, EPS[str(helper.tensor_dtype_to_np_dtype(kind))] / 8), rng)
            if node.op_type in UNITS:
                node.output[i] = f"u·{out}"
                nodes += _product(node.output[i], f"a·{out}", factor)
                nodes += _product(f"a·{out}", out, _factor(types[out], EPS["float32"] / 8, rng) - 1, "Add")
            elif out in ends or _captured(graph, out):
                node.output[i] = f"s·{out}"
                nodes += _product(node.output[i], out, factor)
            else:
                names[out] = f"n·{out}"
                nodes += _product(out, names[out], factor)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    return model.SerializeToString()


def _disturb_terms(node: onnx.NodeProto, types: Mapping[str, Any], rng: np.random.Generator) -> list[onnx.NodeProto]:
    """Let a node read its float operands with noise of their type's rounding on each element; returns the nodes that make it."""
    made: list[onnx.NodeProto] = []
    for i, name in enumerate(node.input):
        kind = types[name].elem_type if name in types else 0
        dtype = str(helper.tensor_dtype_to_np_dtype(kind)) if kind else ""
        if dtype not in EPS or dtype == "bfloat16":
            continue
        node.input[i] = f"t·{node.output[0]}·{i}"
        made += _product(name, node.input[i], _factor(types[name], EPS[dtype] / 8, rng))
    return made


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


def _rounding(source: str, target: str, eps: float, opset: int) -> list[onnx.NodeProto]:
    """`_rounded` as nodes. Before opset 9 there is neither IsNaN nor Where: what is too large is clipped there."""
    large, rest, by, near, lost, used = (f"{word}·{target}" for word in ("large", "rest", "by", "near", "lost", "used"))
    node, old = helper.make_node, opset < 9
    first = node("Clip", [source], [used], min=-1e30, max=1e30) if old else node("Identity", [source], [used])
    last = [node("IsNaN", [near], [lost]), node("Where", [lost, source, near], [target])]
    return [
        first,
        node("Constant", [], [by], value=numpy_helper.from_array(_splitter(eps))),
        node("Mul", [used, by], [large]),
        node("Sub", [large, used], [rest]),
        node("Sub", [large, rest], [target if old else near]),
        *([] if old else last),
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
            if node.op_type in MOVES or kind not in NOISY:
                continue
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            node.output[i] = f"s·{out}"
            value = np.asarray(1 + max(eps, EPS[str(dtype)] / 8) * rng.uniform(-1, 1), dtype)
            nodes += _product(node.output[i], out, value)
    del body.node[:]
    body.node.extend(nodes)


def _captured(graph: onnx.GraphProto, name: str) -> bool:
    """Return whether the body of a region reads a tensor."""
    return any(
        name in inner.input for node in graph.node for a in node.attribute if a.HasField("g") for inner in a.g.node
    )
