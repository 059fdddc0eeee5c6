"""Detectors' ops of MXNet and NNVM. MXNet's against what MXNet 1.9.1 computed (`data/nnvm/vision-cases.json`), NNVM's against loops that
are written here from what `topi.vision` documents; on the interpreter, the processor and, interpreted, an NVIDIA device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnvm_graphs import Graph, run, run_op

import lightnet
from lightnet.diagnostics import LightNetError

DATA = Path(__file__).parents[1] / "data" / "nnvm"
RECORDED = json.loads((DATA / "vision-cases.json").read_text())
#: One recorded case of each op, for targets on which compiling takes time.
ONE_OF_EACH = sorted(
    {case["op"]: k for k, case in reversed([*enumerate(RECORDED)]) if "Prior" not in case["op"]}.values()
)
NATIVE: dict[str, dict[str, Any]] = {"cpu": {}, "cuda": {"emulate": True}}


def run_on(target: str, op: str, inputs: list[np.ndarray], attrs: dict[str, Any], heads: int) -> list[np.ndarray]:
    """The outputs of one op on a target."""
    if target == "none":
        return run_op(op, inputs, attrs, heads)
    g = Graph()
    node = g.op(op, "y", *(g.var(f"x{i}") for i in range(len(inputs))), **attrs)[0]
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    shapes = {name: x.shape for name, x in feeds.items()}
    model = lightnet.loads(g.text(*([node, i, 0] for i in range(heads))), ".json", shapes=shapes)
    return list(lightnet.compile(model, target, **NATIVE[target])(feeds).values())


def check_recorded(number: int, target: str) -> None:
    case, arrays = RECORDED[number], np.load(DATA / "vision-ref.npz")
    inputs = [arrays[f"{number}_in{i}"] for i in range(case["inputs"])]
    found = run_on(target, case["op"], inputs, case["attrs"], case["outputs"])
    for i, array in enumerate(found):
        want = arrays[f"{number}_out{i}"]
        assert array.shape == want.shape
        # Coordinates are of f32 arithmetic in another order, up to 100; what stays and what goes is exact.
        np.testing.assert_allclose(array, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("number", range(len(RECORDED)), ids=lambda k: f"{RECORDED[k]['op']}-{k}")
def test_as_mxnet(number: int) -> None:
    check_recorded(number, "none")


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("number", [k for k in ONE_OF_EACH if RECORDED[k]["op"] == "ROIPooling"])
def test_regions_in_native_code(number: int, target: str) -> None:
    check_recorded(number, target)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(RECORDED)), ids=lambda k: f"{RECORDED[k]['op']}-{k}")
def test_as_mxnet_on_the_processor(number: int) -> None:
    check_recorded(number, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("number", ONE_OF_EACH, ids=lambda k: RECORDED[k]["op"])
def test_as_mxnet_on_cuda(number: int) -> None:
    check_recorded(number, "cuda")


# -- anchors


@pytest.mark.parametrize(
    ("op", "version", "first", "aspect"),
    [
        ("multibox_prior", None, 1.0, 0.5), ("_contrib_MultiBoxPrior", 10400, 1.0, 0.5), ("_contrib_MultiBoxPrior", 1100, 1.0, 1.0),
        ("_contrib_MultiBoxPrior", 10500, 4.0, 0.5), ("MultiBoxPrior", None, 4.0, 0.5),
    ],
)  # fmt: skip
def test_first_ratio_and_aspect_by_version(op: str, version: int | None, first: float, aspect: float) -> None:
    g = Graph()
    x = np.zeros((1, 1, 1, 2), np.float32)
    head = g.op(op, "y", g.var("x"), sizes="(0.4, 0.1)", ratios="(4, 1)")
    more = {} if version is None else {"attrs": {"mxnet_version": ["int", version]}}
    (found,) = run(g.text(head, **more), {"x": x})
    want = []
    for centre in (0.25, 0.75):
        for size, ratio in ((0.4, first), (0.1, first), (0.4, 1.0)):
            w, h = size * aspect * ratio**0.5 / 2, size / ratio**0.5 / 2
            want.append([centre - w, 0.5 - h, centre + w, 0.5 + h])
    np.testing.assert_allclose(found, np.float32([want]), rtol=1e-6)


# -- NNVM's suppression, row by row


def overlap(a: np.ndarray, b: np.ndarray) -> np.float32:
    w = max(np.float32(0), min(a[2], b[2]) - max(a[0], b[0]))
    h = max(np.float32(0), min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return np.float32(0) if union <= 0 else w * h / union


def get_valid_counts(data: np.ndarray, score_threshold=0.0, id_index=0, score_index=1) -> tuple[np.ndarray, np.ndarray]:
    counts, out = np.zeros(len(data), np.int32), np.full_like(data, -1)
    for b, rows in enumerate(data):
        for row in rows:
            if row[score_index] > score_threshold and (id_index < 0 or row[id_index] >= 0):
                out[b, counts[b]] = row
                counts[b] += 1
    return counts, out


def sorted_rows(rows: np.ndarray, count: int, score_index: int) -> list[int]:
    return sorted(range(count), key=lambda i: -rows[i, score_index])


def non_max_suppression(data, counts, max_output_size=-1, iou_threshold=0.5, force_suppress=False, top_k=-1, id_index=0, coord_start=2,
                        score_index=1, return_indices=True, invalid_to_bottom=False) -> np.ndarray:  # fmt: skip
    out, where = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    for b, (rows, count) in enumerate(zip(data, counts)):
        order = sorted_rows(rows, count, score_index) if iou_threshold > 0 else list(range(count))
        if iou_threshold > 0 and 0 < top_k < count:
            order = order[:top_k]
        where[b, : len(order)] = order
        out[b, : len(order)] = rows[order]

        def counts_now(k, b=b):
            return out[b, k, score_index] > 0 and (id_index < 0 or out[b, k, id_index] >= 0)

        for j in range(count if iou_threshold > 0 else 0):
            for k in range(j + 1, count):
                if (
                    counts_now(j)
                    and counts_now(k)
                    and (force_suppress or id_index < 0 or out[b, j, id_index] == out[b, k, id_index])
                ):
                    boxes = [out[b, i, coord_start : coord_start + 4] for i in (j, k)]
                    if overlap(*boxes) >= np.float32(iou_threshold):
                        out[b, k, score_index] = where[b, k] = -1
                        if id_index >= 0:
                            out[b, k, id_index] = -1
        kept = 0
        for j in range(count if max_output_size > 0 else 0):
            if out[b, j, 0] >= 0:
                kept += 1
                if kept > max_output_size:
                    out[b, j], where[b, j] = -1, -1
        if invalid_to_bottom and not return_indices:
            good = out[b][out[b, :, 0] >= 0]
            out[b] = -1
            out[b, : len(good)] = good
    return where if return_indices else out


def nms(data, counts, nms_threshold=0.5, force_suppress=False, nms_topk=-1) -> np.ndarray:
    """NNVM before 0.6."""
    out = np.full_like(data, -1)
    for b, (rows, count) in enumerate(zip(data, counts)):
        out[b, :count] = rows[:count]
        if not 0 < nms_threshold < 1:
            continue
        kept = nms_topk if 0 < nms_topk < count else count
        out[b, :kept] = rows[sorted_rows(rows, count, 1)[:kept]]
        for j in range(count):
            for k in range(j + 1, count):
                same = force_suppress or out[b, j, 0] == out[b, k, 0]
                if (
                    out[b, j, 0] >= 0
                    and out[b, k, 0] >= 0
                    and same
                    and overlap(out[b, j, 2:], out[b, k, 2:]) >= np.float32(nms_threshold)
                ):
                    out[b, k, 0] = -1
    return out


def transform_loc(
    probs, deltas, anchors, clip=True, threshold=0.01, variances=(0.1, 0.1, 0.2, 0.2)
) -> tuple[np.ndarray, np.ndarray]:
    batch, classes, count = probs.shape
    out, counts = np.full((batch, count, 6), -1, np.float32), np.zeros(batch, np.int32)
    for b in range(batch):
        for i in range(count):
            score, identity = np.float32(-1), 0
            for c in range(1, classes):
                if probs[b, c, i] > score:
                    score, identity = probs[b, c, i], c
            if identity == 0 or score < np.float32(threshold):
                continue
            left, top, right, bottom = anchors[0, i].astype(np.float64)
            dx, dy, dw, dh = deltas[b, 4 * i : 4 * i + 4] * np.float64(variances)
            x, y = (left + right) / 2 + dx * (right - left), (top + bottom) / 2 + dy * (bottom - top)
            w, h = np.exp(dw) * (right - left) / 2, np.exp(dh) * (bottom - top) / 2
            corners = np.array([x - w, y - h, x + w, y + h])
            out[b, counts[b]] = [identity - 1, score, *(np.clip(corners, 0, 1) if clip else corners)]
            counts[b] += 1
    return out, counts


def rows_of(seed: int, batch: int, count: int, width: int = 6) -> np.ndarray:
    """Rows (class from -1 to 2, score, corners, …), some of whose scores are equal or below 0, and some of whose boxes are the wrong way round."""
    rng = np.random.default_rng(seed)
    low, size = rng.uniform(0, 1, (batch, count, 2)), rng.uniform(-0.05, 0.6, (batch, count, 2))
    score = np.round(rng.uniform(-0.2, 1, (batch, count, 1)), 1)
    columns = [
        rng.integers(-1, 3, (batch, count, 1)),
        score,
        low,
        low + size,
        rng.uniform(0, 1, (batch, count, width - 6)),
    ]
    return np.concatenate(columns, axis=-1).astype(np.float32)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"score_threshold": 0.4},
        {"score_threshold": 0.3, "id_index": -1},
        {"id_index": 1, "score_index": 0, "score_threshold": -1},
    ],
)
def test_valid_counts(attrs: dict[str, Any]) -> None:
    data = rows_of(1, 3, 11)
    counts, rows = run_op("get_valid_counts", [data], attrs, heads=2)
    wanted = get_valid_counts(data, **attrs)
    assert counts.dtype == np.int32
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_array_equal(rows, wanted[1])


SUPPRESSIONS: list[dict[str, Any]] = [
    {}, {"return_indices": False}, {"return_indices": False, "invalid_to_bottom": True, "iou_threshold": 0.2},
    {"force_suppress": True, "iou_threshold": 0.1}, {"force_suppress": True, "return_indices": False, "top_k": 7},
    {"top_k": 5, "iou_threshold": 0.3}, {"max_output_size": 3, "return_indices": False, "iou_threshold": 0.3},
    {"max_output_size": 2, "iou_threshold": 0.9, "top_k": 6}, {"max_output_size": 1}, {"iou_threshold": 0}, {"iou_threshold": 0, "return_indices": False},
    {"id_index": -1, "return_indices": False, "iou_threshold": 0.2}, {"return_indices": False, "max_output_size": 4, "invalid_to_bottom": True},
]  # fmt: skip


@pytest.mark.parametrize("attrs", SUPPRESSIONS, ids=str)
def test_non_max_suppression(attrs: dict[str, Any]) -> None:
    data, counts = rows_of(2, 4, 13), np.int32([13, 0, 1, 9])
    (found,) = run_op("non_max_suppression", [data, counts], attrs)
    want = non_max_suppression(data, counts, **attrs)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def test_suppression_of_rows_in_another_order() -> None:
    data, counts = np.roll(rows_of(3, 1, 12, width=7), 1, axis=2), np.int32([12])
    attrs = {"id_index": 1, "score_index": 2, "coord_start": 3, "return_indices": False, "iou_threshold": 0.2}
    (found,) = run_op("non_max_suppression", [data, counts], attrs)
    np.testing.assert_array_equal(found, non_max_suppression(data, counts, **attrs))


def test_an_overlap_of_the_threshold_suppresses_in_nnvm_alone() -> None:
    row = [0, 0.9, 0, 0, 1, 1]
    data = np.float32(
        [[row, [0, 0.8, 0, 0, 0.5, 1], [0, 0.7, 0.25, 0, 0.5, 1]]]
    )  # which overlap by a half and a quarter of the first
    (found,) = run_op("non_max_suppression", [data, np.int32([3])], {"iou_threshold": 0.5})
    np.testing.assert_array_equal(found, [[0, -1, 2]])
    (found,) = run_op("_contrib_box_nms", [data], {"overlap_thresh": 0.5})
    np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize("target", [pytest.param(t, marks=pytest.mark.slow) for t in NATIVE])
@pytest.mark.parametrize("attrs", SUPPRESSIONS[1:8:3], ids=str)
def test_non_max_suppression_in_native_code(attrs: dict[str, Any], target: str) -> None:
    data, counts = rows_of(4, 3, 10), np.int32([10, 0, 8])
    (found,) = run_on(target, "non_max_suppression", [data, counts], attrs, 1)
    np.testing.assert_array_equal(found, non_max_suppression(data, counts, **attrs))


@pytest.mark.parametrize(
    "attrs",
    [{}, {"nms_threshold": 0.2, "force_suppress": True}, {"nms_topk": 4, "nms_threshold": 0.3}, {"nms_threshold": 1}],
)
def test_suppression_before_0_6(attrs: dict[str, Any]) -> None:
    data, counts = rows_of(5, 3, 12), np.int32([12, 0, 7])
    (found,) = run_op("nms", [data, counts], attrs)
    np.testing.assert_array_equal(found, nms(data, counts, **attrs))


@pytest.mark.parametrize(
    "attrs",
    [{}, {"threshold": -5}, {"threshold": 0.5, "clip": False}, {"variances": (0.3, 0.2, 0.1, 0.4), "threshold": 0.35}],
)
def test_transform_loc(attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    probs, deltas = rng.uniform(0, 1, (2, 3, 9)).astype(np.float32), rng.normal(size=(2, 36)).astype(np.float32)
    probs[0, 1:, 4] = -2
    anchors = rows_of(7, 1, 9)[..., 2:]
    rows, counts = run_op("multibox_transform_loc", [probs, deltas, anchors], attrs, heads=2)
    wanted = transform_loc(probs, deltas, anchors, **attrs)
    np.testing.assert_allclose(rows, wanted[0], rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(counts, wanted[1])
    assert counts.dtype == np.int32


def test_a_detector_of_nnvm() -> None:
    """The pair that NNVM writes for `_contrib_MultiBoxDetection`; without classes there is nothing to find."""
    rng = np.random.default_rng(8)
    arrays = {"p": rng.uniform(0, 1, (2, 3, 8)), "d": rng.normal(size=(2, 32)) * 0.3, "a": rows_of(9, 1, 8)[..., 2:]}
    feeds = {k: np.float32(v) for k, v in arrays.items()}
    g = Graph()
    decoded = g.op("multibox_transform_loc", "t", *(g.var(k) for k in feeds), threshold=0.3)
    found = g.op("non_max_suppression", "y", decoded, [decoded[0], 1, 0], return_indices=False, iou_threshold=0.1)
    want = non_max_suppression(*transform_loc(*feeds.values(), threshold=0.3), return_indices=False, iou_threshold=0.1)
    np.testing.assert_allclose(run(g.text(found), feeds)[0], want, rtol=2e-6, atol=2e-6)
    alone = [feeds["p"][:, :1], feeds["d"], feeds["a"]]
    rows, counts = run_op("multibox_transform_loc", alone, heads=2)
    assert (rows == -1).all() and (counts == 0).all()
    assert (run_op("_contrib_MultiBoxDetection", alone)[0] == -1).all()


# -- darknet's


def darknet_reorg(x: np.ndarray, stride: int) -> np.ndarray:
    """`reorg_cpu` of darknet: element (b, k, j, i) of a result with x's shape is at this place of x's memory."""
    batch, channels, height, width = x.shape
    flat, out, depth = x.reshape(-1), np.empty(x.size, x.dtype), channels // stride**2
    for b, k, j, i in np.ndindex(x.shape):
        group, part = k % depth, k // depth
        column, row = i * stride + part % stride, j * stride + part // stride
        out[i + width * (j + height * (k + channels * b))] = flat[
            column + width * stride * (row + height * stride * (group + depth * b))
        ]
    return out.reshape(batch, channels * stride**2, height // stride, width // stride)


@pytest.mark.parametrize(
    ("shape", "stride"), [((1, 4, 4, 6), 2), ((2, 8, 4, 4), 2), ((1, 9, 3, 6), 3), ((2, 3, 2, 5), 1)]
)
def test_reorg(shape: tuple[int, ...], stride: int) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for op in ("yolo_reorg", "yolo2_reorg"):
        np.testing.assert_array_equal(run_op(op, [x], {"stride": str(stride)})[0], darknet_reorg(x, stride))


@pytest.mark.parametrize(("background", "softmax"), [("0", "1"), ("1", "1"), ("0", "0")])
def test_region(background: str, softmax: str) -> None:
    x = np.random.default_rng(3).normal(size=(2, 16, 2, 3)).astype(np.float32)
    want = x.reshape(2, 2, 8, 2, 3).astype(np.float64)
    first = 4 if background == "1" else 5
    for k in {0, 1, *range(4, first)}:
        want[:, :, k] = 1 / (1 + np.exp(-want[:, :, k]))
    if softmax == "1":
        e = np.exp(want[:, :, first:])
        want[:, :, first:] = e / e.sum(2, keepdims=True)
    attrs = {"n": "2", "classes": "3", "coords": "4", "background": background, "softmax": softmax}
    np.testing.assert_allclose(run_op("yolo_region", [x], attrs)[0], want.reshape(x.shape), rtol=1e-5)


# -- regions


def test_the_example_of_roi_pooling() -> None:
    """Of MXNet's documentation."""
    x = np.arange(48, dtype=np.float32).reshape(1, 1, 8, 6)
    regions = np.float32([[0, 0, 0, 4, 4]])
    for scale, want in ((1.0, [[14, 16], [26, 28]]), (0.7, [[7, 9], [19, 21]])):
        (found,) = run_op("ROIPooling", [x, regions], {"pooled_size": "(2, 2)", "spatial_scale": scale})
        np.testing.assert_array_equal(found, np.float32([[want]]))


# -- what is refused

ROWS, COUNTS = np.zeros((2, 5, 6), np.float32), np.zeros(2, np.int32)
PROBS, DELTAS, ANCHORS = np.zeros((2, 3, 5), np.float32), np.zeros((2, 20), np.float32), np.zeros((1, 5, 4), np.float32)
MAP, REGIONS = np.zeros((1, 8, 4, 4), np.float32), np.zeros((3, 5), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("non_max_suppression", [ROWS, COUNTS], {"score_index": "6"}, "each at a place of its own, but a row has 6 numbers, score_index is 6"),
        ("non_max_suppression", [ROWS, COUNTS], {"coord_start": "1"}, "each at a place of its own"),
        ("non_max_suppression", [ROWS, COUNTS[:1]], {}, r"its valid_count should have shape \[2\], but has \[1\]"),
        ("non_max_suppression", [ROWS[0], COUNTS], {}, r"its data should have shape \[\?, \?, \?\], but has \[5, 6\]"),
        ("non_max_suppression", [ROWS, COUNTS], {"top_k": "x"}, "'top_k' should be an integer, but is 'x'"),
        ("non_max_suppression", [ROWS], {}, "needs 2 inputs, but gets 1"),
        ("nms", [ROWS[..., :5], COUNTS], {}, r"its data should have shape \[\?, \?, 6\]"),
        ("get_valid_counts", [ROWS], {"score_index": "9"}, "score_index 9 is no number of a row of 6"),
        ("get_valid_counts", [ROWS], {"score_index": "-1"}, "score_index -1 is no number of a row of 6"),
        ("get_valid_counts", [ROWS], {"id_index": "6"}, "id_index 6 is no number of a row of 6"),
        ("_contrib_box_nms", [ROWS], {"id_index": "2"}, "each at a place of its own"),
        ("_contrib_box_nms", [ROWS], {"in_format": "polar"}, "'in_format' is 'polar'; there are: corner, center"),
        ("multibox_transform_loc", [PROBS, DELTAS[:, :8], ANCHORS], {}, r"its loc_pred should have shape \[2, 20\], but has \[2, 8\]"),
        ("_contrib_MultiBoxDetection", [PROBS, DELTAS, ANCHORS[:, :4]], {}, r"its anchor should have shape \[1, 5, 4\]"),
        ("_contrib_MultiBoxDetection", [PROBS, DELTAS, ANCHORS], {"variances": "(1, 2)"}, "'variances' should have four numbers"),
        ("multibox_prior", [MAP], {"steps": "(0.1, -1)"}, "'steps' should be both given or both not"),
        ("multibox_prior", [MAP], {"ratios": "(0, 1)"}, "ratios above 0"),
        ("yolo_reorg", [MAP], {"stride": "3"}, "its stride 3 should be above 0, divide height and width"),
        ("yolo_reorg", [MAP], {"stride": "0"}, "its stride 0 should be above 0"),
        ("yolo_region", [MAP], {"n": "2", "classes": "3", "coords": "4"}, "are not the channels of"),
        ("yolo_region", [MAP], {"n": "1", "classes": "3"}, "needs the attribute 'coords'"),
        ("ROIPooling", [MAP, REGIONS], {"pooled_size": "(2,)", "spatial_scale": "1"}, "pooled_size should be two numbers above 0"),
        ("ROIPooling", [MAP, REGIONS], {"pooled_size": "(2, 2)"}, "needs the attribute 'spatial_scale'"),
        ("ROIPooling", [MAP, REGIONS[:, :4]], {"pooled_size": "(2, 2)", "spatial_scale": "1"}, "takes regions of five numbers"),
        ("ROIPooling", [MAP, REGIONS], {"pooled_size": "(2, 2)", "spatial_scale": "-1"}, "scale"),
        ("_contrib_Proposal", [MAP, MAP, REGIONS], {}, "two channels for each of the 12 anchors"),
        ("_contrib_Proposal", [np.zeros((2, 2, 4, 4), np.float32), MAP, REGIONS], {"scales": "(1,)", "ratios": "(1,)"}, "takes one picture, but gets 2"),
        ("_contrib_Proposal", [MAP[:, :2], MAP[:, :4], REGIONS], {"scales": "(1,)", "ratios": "(1,)"}, r"should have shape \[1, 3\]"),
        ("_contrib_Proposal", [MAP[:, :2], MAP[:, :4], REGIONS[:1, :3]], {"scales": "(1,)", "ratios": "(1,)", "rpn_post_nms_top_n": "0"},
         "rpn_post_nms_top_n should be above 0"),
    ],
)  # fmt: skip
def test_errors_name_the_node(op: str, inputs: list[np.ndarray], attrs: dict[str, str], message: str) -> None:
    with pytest.raises(LightNetError, match=message) as e:
        run_op(op, inputs, attrs)
    places = [
        e.value.loc,
        *(loc for loc, _ in e.value.notes),
    ]  # of what is valid and not supported, notes name the nodes
    assert any(loc is not None and loc.file == "graph.json" and loc.line > 1 for loc in places)
    assert op in str(e.value)


def test_shapes_of_proposals_follow() -> None:
    """A graph says the shape of the scores alone."""
    g = Graph()
    head = g.op(
        "_contrib_Proposal",
        "y",
        *(g.var(k) for k in ("p", "d", "info")),
        scales="(1,)",
        ratios="(1,)",
        rpn_post_nms_top_n=3,
    )
    model = lightnet.loads(g.text(head), ".json", shapes={"p": (1, 2, 2, 2)})
    shapes: dict[str, Callable[..., Any]] = {
        op.tensor_names[0]: op.result_specs[0].dims for op in model.main.walk() if op.name == "ln.input"
    }
    assert shapes == {"p": (1, 2, 2, 2), "d": (1, 4, 2, 2), "info": (1, 3)}


NASTY = ["", "None", "-1", "0", "1e300", "nan", "-inf", "99999999999999999", "2147483647", "(", "(1, 2", "()", "(0,)", "(-1, 3)", "(nan, 1)", "True", "corner", "'x'"]  # fmt: skip
ATTRIBUTES = {
    "multibox_prior": ([MAP], "sizes ratios steps offsets clip"),
    "multibox_transform_loc": ([PROBS, DELTAS, ANCHORS], "clip threshold variances"),
    "_contrib_MultiBoxDetection": ([PROBS, DELTAS, ANCHORS], "clip threshold variances nms_threshold nms_topk force_suppress"),
    "_contrib_box_nms": ([ROWS], "overlap_thresh valid_thresh topk coord_start score_index id_index background_id in_format out_format force_suppress"),
    "get_valid_counts": ([ROWS], "score_threshold id_index score_index"),
    "non_max_suppression": ([ROWS, COUNTS], "max_output_size iou_threshold force_suppress top_k id_index coord_start score_index return_indices invalid_to_bottom"),
    "nms": ([ROWS, COUNTS], "nms_threshold force_suppress nms_topk"),
    "yolo_reorg": ([MAP], "stride"),
    "yolo_region": ([MAP], "n classes coords background softmax"),
    "ROIPooling": ([MAP, REGIONS], "pooled_size spatial_scale"),
    "_contrib_Proposal": ([MAP, MAP, REGIONS], "scales ratios feature_stride rpn_pre_nms_top_n rpn_post_nms_top_n rpn_min_size threshold iou_loss"),
}  # fmt: skip


@pytest.mark.parametrize("op", ATTRIBUTES)
def test_any_attribute_imports_or_is_an_error(op: str) -> None:
    """No exception of Python's, and nothing that is large or takes long."""
    inputs, names = ATTRIBUTES[op]
    rng = np.random.default_rng(len(op))
    for _ in range(40):
        attrs = {name: str(rng.choice(NASTY)) for name in names.split() if rng.random() < 0.4}
        g = Graph()
        head = g.op(op, "y", *(g.var(f"x{i}") for i in range(len(inputs))), **attrs)
        shapes = {f"x{i}": x.shape for i, x in enumerate(inputs)}
        try:
            lightnet.loads(g.text(head), ".json", shapes=shapes)
        except LightNetError as e:
            assert "Error:" not in e.message, (attrs, e.message)
