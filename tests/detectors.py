"""Heads of detectors with their suppression inside, in the spellings of exporters: graphs of ONNX ops, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from counted_graphs import Graph


def yolo_batched(g: Graph, boxes: int = 60, classes: int = 4) -> list[str]:
    """As Ultralytics' and YOLOv5's exports for ONNX Runtime: one NonMaxSuppression over all classes, whose rows pick boxes, scores and
    classes of [1, 4 + classes, boxes] (centres and sizes), as one [n, 7] and its parts."""
    from onnx import helper

    raw = _raw(g, boxes, classes)
    turned = g.add("Transpose", [raw], perm=[0, 2, 1])
    centres, scores = g.add("Split", [turned, g.const([4, classes])], outputs=2, axis=2)
    by_class = g.add("Transpose", [scores], perm=[0, 2, 1])
    limits = [g.const([20]), g.const([0.45], np.float32), g.const([0.25], np.float32)]
    picked = g.add("NonMaxSuppression", [centres, by_class, *limits], center_point_box=1)
    batch, which, index = g.add("Split", [picked, g.const([1, 1, 1])], outputs=3, axis=1)
    flat = g.add("Squeeze", [index, g.const([1])])
    corners = g.add("Squeeze", [g.add("Gather", [centres, flat], axis=1), g.const([0])])
    place = g.add("Concat", [batch, which, index], axis=1)
    score = g.add("Unsqueeze", [g.add("GatherND", [by_class, place]), g.const([1])])
    numbers = [g.add("Cast", [x], to=1) for x in (batch, which)]
    rows = g.add("Concat", [numbers[0], corners, numbers[1], score], axis=1)
    g.nodes.append(helper.make_node("Identity", [which], ["classes"]))
    g.nodes.append(helper.make_node("Identity", [rows], ["detections"]))
    return ["detections", "classes"]


def yolo_offset(g: Graph, boxes: int = 60, classes: int = 4) -> list[str]:
    """The best class of each box; those above a score, moved apart by class (torchvision's batched_nms); the best 10 of what stays."""
    from onnx import helper

    raw = _raw(g, boxes, classes)
    rows = g.add("Squeeze", [g.add("Transpose", [raw], perm=[0, 2, 1]), g.const([0])])
    corners, scores = g.add("Split", [rows, g.const([4, classes])], outputs=2, axis=1)
    best, which = g.add("ReduceMax", [scores], axes=[1], keepdims=0), g.add("ArgMax", [scores], axis=1, keepdims=0)
    there = g.add("NonZero", [g.add("Greater", [best, g.const(0.3, np.float32)])])
    index = g.add("Squeeze", [there, g.const([0])])
    corners, best, which = (g.add("Gather", [x, index], axis=0) for x in (corners, best, which))
    half = g.add("Mul", [g.add("Slice", [corners, g.const([2]), g.const([4]), g.const([1])]), g.const(0.5, np.float32)])
    centre = g.add("Slice", [corners, g.const([0]), g.const([2]), g.const([1])])
    corners = g.add("Concat", [g.add("Sub", [centre, half]), g.add("Add", [centre, half])], axis=1)
    largest = g.add(
        "ReduceMax",
        [g.add("Concat", [g.add("Reshape", [corners, g.const([-1])]), g.const([0.0], np.float32)], axis=0)],
        keepdims=0,
    )
    offset = g.add("Mul", [g.add("Cast", [which], to=1), g.add("Add", [largest, g.const(1, np.float32)])])
    moved = g.add("Add", [corners, g.add("Unsqueeze", [offset, g.const([1])])])
    three = [
        g.add("Unsqueeze", [moved, g.const([0])]),
        g.add("Unsqueeze", [g.add("Unsqueeze", [best, g.const([0])]), g.const([0])]),
    ]
    picked = g.add("NonMaxSuppression", [*three, g.const([1 << 40]), g.const([0.5], np.float32)])
    keep = g.add("Squeeze", [g.add("Gather", [picked, g.const([2])], axis=1), g.const([1])])
    keep = g.add("Slice", [keep, g.const([0]), g.const([10]), g.const([0])])
    for name, x in (("boxes", corners), ("scores", best), ("classes", which)):
        g.nodes.append(helper.make_node("Gather", [x, keep], [name], axis=0))
    return ["boxes", "scores", "classes"]


def yolo_masked(g: Graph, boxes: int = 60, classes: int = 4) -> list[str]:
    """Compress and GatherND by flags, TopK of min(n, 30), suppression of what is left, padded to 30 rows."""
    from onnx import helper

    raw = _raw(g, boxes, classes)
    rows = g.add("Squeeze", [g.add("Transpose", [raw], perm=[0, 2, 1]), g.const([0])])
    scores = g.add("Slice", [rows, g.const([4]), g.const([4 + classes]), g.const([1])])
    best = g.add("ReduceMax", [scores], axes=[1], keepdims=0)
    kept = g.add("Compress", [rows, g.add("Greater", [best, g.const(0.4, np.float32)])], axis=0)
    best = g.add(
        "ReduceMax", [g.add("Slice", [kept, g.const([4]), g.const([4 + classes]), g.const([1])])], axes=[1], keepdims=0
    )
    size = g.add("Gather", [g.add("Shape", [best]), g.const([0])], axis=0)
    top = g.add("ReduceMin", [g.add("Concat", [size, g.const([30])], axis=0)], keepdims=1)
    values, order = g.add("TopK", [best, top], outputs=2, axis=0)
    kept = g.add("Gather", [kept, order], axis=0)
    corners = g.add("Slice", [kept, g.const([0]), g.const([4]), g.const([1])])
    inputs = [g.add("Unsqueeze", [corners, g.const([0])]), g.add("Reshape", [values, g.const([1, 1, -1])])]
    picked = g.add(
        "NonMaxSuppression",
        [*inputs, g.const([30]), g.const([0.5], np.float32), g.const([0.0], np.float32)],
        center_point_box=1,
    )
    index = g.add("Slice", [picked, g.const([2]), g.const([3]), g.const([1])])
    g.nodes.append(helper.make_node("GatherND", [kept, index], ["rows"]))
    count = g.add("Gather", [g.add("Shape", ["rows"]), g.const([0])], axis=0)
    more = g.add("Sub", [g.const([30]), count])
    pads = g.add("Concat", [g.const([0, 0]), more, g.const([0])], axis=0)
    g.nodes.append(helper.make_node("Pad", ["rows", pads], ["padded"]))
    return ["rows", "padded"]


HEADS: dict[str, Callable[..., list[str]]] = {f.__name__: f for f in (yolo_batched, yolo_offset, yolo_masked)}


def _raw(g: Graph, boxes: int, classes: int) -> str:
    """[1, 4 + classes, boxes]: the raw output of a network, by a convolution from an input."""
    features = 3
    g.inputs["features"] = np.zeros((1, features, 1, boxes), np.float32)
    weights = g.rng.standard_normal((4 + classes, features, 1, 1)).astype(np.float32)
    made = g.add(
        "Reshape", [g.add("Conv", ["features", g.const(weights, np.float32)]), g.const([1, 4 + classes, boxes])]
    )
    numbers, scores = g.add("Split", [made, g.const([4, classes])], outputs=2, axis=1)
    size = g.add("Mul", [g.add("Sigmoid", [numbers]), g.const(np.array([8, 8, 4, 4]).reshape(4, 1), np.float32)])
    return g.add("Concat", [size, g.add("Sigmoid", [scores])], axis=1)


def detector(name: str, boxes: int = 60, classes: int = 4) -> bytes:
    """The model called `name` of `HEADS`, with an input ``features`` [1, 3, 1, boxes]."""
    from onnx import TensorProto, helper, numpy_helper

    g = Graph(np.random.default_rng(len(name)))
    outputs = HEADS[name](g, boxes, classes)
    whole = {"classes": TensorProto.INT64}
    graph = helper.make_graph(
        g.nodes, name, [helper.make_tensor_value_info("features", TensorProto.FLOAT, (1, 3, 1, boxes))],
        [helper.make_tensor_value_info(n, whole.get(n, TensorProto.FLOAT), None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in g.constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
