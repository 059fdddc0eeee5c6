"""Ops and forms of NNVM's that networks rarely have, against NumPy, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nnvm_graphs import run_op
from test_nnvm_ops import PICTURE, data

from lightnet.diagnostics import LightNetError

M, CUBE, PAIR = data(3, 4), data(2, 3, 4), data(2, 1, 4)
LEFT, QUERIES, KEYS = np.float32([1, 3, 0]), data(5, 2, 6), data(4, 2, 12)
BOXES = [(1, 12, 3, 4), (1, 24, 3, 4), (1, 3)]


def heads(x: np.ndarray, parts: int) -> np.ndarray:
    """[T, B, 2 * parts * d] as parts of [B * 2, T, d]."""
    time, batch, width = x.shape
    split = x.reshape(time, batch, 2, parts, width // (2 * parts))
    return split.transpose(3, 1, 2, 0, 4).reshape(parts, batch * 2, time, -1)


def upsampled(x: np.ndarray, weight: np.ndarray, scale: int) -> np.ndarray:
    """A transposed convolution of each channel on its own."""
    size, pad = weight.shape[-1], -(-(scale - 1) // 2)
    rows, cols = ((d - 1) * scale + size for d in x.shape[2:])
    full = np.zeros((*x.shape[:2], rows, cols))
    for i in range(x.shape[2]):
        for j in range(x.shape[3]):
            full[:, :, i * scale : i * scale + size, j * scale : j * scale + size] += (
                x[:, :, i, j, None, None] * weight[:, 0]
            )
    return full[:, :, pad : rows - pad, pad : cols - pad]


def bilinear(x: np.ndarray, size: tuple[int, int], aligned: bool) -> np.ndarray:
    """Each axis on its own."""
    for axis, n in zip((2, 3), size):
        d = x.shape[axis]
        at = np.arange(n) * (d - 1) / (n - 1) if aligned else (np.arange(n) + 0.5) * d / n - 0.5
        at = np.clip(at, 0, d - 1)
        low = np.minimum(np.floor(at).astype(int), d - 2)
        part = (at - low).reshape(-1, *(1,) * (3 - axis))
        x = np.take(x, low, axis) * (1 - part) + np.take(x, low + 1, axis) * part
    return x


WEIGHT = {n: data(4, 1, 2 * n - n % 2, 2 * n - n % 2) for n in (2, 3)}
Q, (K, V), ATTENTION = heads(QUERIES, 1)[0], heads(KEYS, 2), data(4, 5, 4)
GRID_Y, GRID_X = np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 2), indexing="ij")
#: Rows of class, score, box and a number more, which do not meet: all stay, the best first; and their boxes by centre and size.
DETECTED = np.float32([[[0, 0.5, 1, 2, 3, 6, 7], [1, 0.75, 10, 20, 14, 22, 8]]])
CENTRED = np.float32([[[1, 0.75, 12, 21, 4, 2, 8], [0, 0.5, 2, 4, 2, 4, 7]]])
#: op, inputs, attributes, what it gives.
CASES: list[tuple[str, tuple, dict[str, Any], np.ndarray]] = [
    ("UpSampling", (PICTURE, WEIGHT[2]), dict(scale=2, sample_type="bilinear", num_filter=4), upsampled(PICTURE, WEIGHT[2], 2)),
    ("UpSampling", (PICTURE, WEIGHT[3]), dict(scale=3, sample_type="bilinear", num_filter=4), upsampled(PICTURE, WEIGHT[3], 3)),
    ("UpSampling", (PICTURE, PICTURE[..., ::2, ::2]), dict(scale=2, sample_type="nearest", multi_input_mode="sum", num_args=2),
     PICTURE.repeat(2, 2).repeat(2, 3) + PICTURE[..., ::2, ::2].repeat(4, 2).repeat(4, 3)),
    ("resize", (PICTURE,), dict(size="(9, 8)", method="BILINEAR"), bilinear(PICTURE, (9, 8), True)),
    ("resize", (PICTURE,), dict(size="(9, 8)", method="BILINEAR", align_corners="False"), bilinear(PICTURE, (9, 8), False)),
    ("upsampling", (PICTURE,), dict(scale=2, method="BILINEAR"), bilinear(PICTURE, (12, 12), False)),
    ("upsampling", (PICTURE.transpose(0, 2, 3, 1),), dict(scale=2, layout="NHWC"), PICTURE.transpose(0, 2, 3, 1).repeat(2, 1).repeat(2, 2)),
    ("_contrib_BilinearResize2D", (PICTURE, data(1, 1, 5, 9)), dict(mode="like"), bilinear(PICTURE, (5, 9), True)),
    ("_contrib_BilinearResize2D", (PICTURE,), dict(scale_height=1.5, scale_width=2), bilinear(PICTURE, (9, 12), True)),
    ("_contrib_box_nms", (DETECTED,), dict(id_index=0, out_format="center"), CENTRED),
    ("_contrib_box_nms", (CENTRED,), dict(id_index=0, in_format="center"), DETECTED[:, ::-1]),
    ("_contrib_box_nms", (DETECTED[..., 1:],), dict(coord_start=1, score_index=0, out_format="center"), CENTRED[..., 1:]),
    ("_contrib_box_nms", (DETECTED[..., :6],), dict(id_index=0), DETECTED[:, ::-1, :6]),
    ("batch_take", (M, LEFT), {}, M[range(3), [1, 3, 0]]),
    ("scatter_nd", (np.float32([5, 7]), np.float32([[0, 2], [1, 3]])), dict(shape="(3, 4)"),
     np.float32([[0, 5, 0, 0], [0] * 4, [0, 0, 0, 7]])),
    ("broadcast_like", (PAIR, data(5, 3)), dict(lhs_axes="(1,)", rhs_axes="(1,)"), np.broadcast_to(PAIR, (2, 3, 4))),
    ("broadcast_like", (PAIR, CUBE), {}, np.broadcast_to(PAIR, (2, 3, 4))),
    ("expand_like", (data(2, 4) * 0 + 3, CUBE), dict(axis="(1,)"), np.full((2, 3, 4), 3.0)),
    ("Reshape", (data(6, 4),), dict(shape="(-4, 2, -1, -2)"), None),
    ("_contrib_interleaved_matmul_encdec_qk", (QUERIES, KEYS), dict(heads=2), Q @ K.swapaxes(1, 2) / 3**0.5),
    ("_contrib_interleaved_matmul_encdec_qk", (QUERIES, KEYS), dict(heads=1), np.einsum(
        "tbd,sbd->bts", QUERIES, KEYS.reshape(*KEYS.shape[:2], 2, -1)[:, :, 0]) / 6**0.5),
    ("_contrib_interleaved_matmul_encdec_valatt", (KEYS, ATTENTION), dict(heads=2),
     (ATTENTION @ V).reshape(2, 2, 5, 3).transpose(2, 0, 1, 3).reshape(5, 2, 6)),
    ("amp_multicast", (M, M.astype(np.float16)), dict(num_outputs=2), M),
    ("split", (PICTURE,), dict(indices_or_sections=2), PICTURE[:, :2]),
    ("SoftmaxOutput", (PICTURE, data(2, 4, 6)), dict(preserve_shape="True"),
     np.exp(PICTURE) / np.exp(PICTURE).sum(3, keepdims=True)),
    ("LinearRegressionOutput", (M, M), {}, M), ("SVMOutput", (M, LEFT), {}, M), ("MAERegressionOutput", (M, M), {}, M),
    ("GridGenerator", (np.float32([[1, 0, 0, 0, 1, 0]]),), dict(transform_type="affine", target_shape="(3, 2)"),
     np.stack([GRID_X, GRID_Y])[None]),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}-{at}")
def test_a_form(at: int) -> None:
    op, inputs, attrs, want = CASES[at]
    want = inputs[0].reshape(2, 3, 4) if want is None else want
    (found,) = run_op(op, inputs, attrs)
    assert found.shape == want.shape and (want.dtype == np.float64 or found.dtype.kind == want.dtype.kind)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


#: op, inputs, attributes, message.
REFUSALS: list[tuple[str, tuple, dict[str, Any], str]] = [
    ("resize", (PICTURE,), dict(size="(9,)"), "should be two numbers"),
    ("resize", (PICTURE,), dict(size="(0, 4)"), "not possible"),
    ("resize", (PICTURE,), dict(size="(4, 0)", method="BILINEAR"), "not possible"),
    ("resize", (M,), dict(size="(4, 4)"), "should have 4|rank"),
    ("_contrib_BilinearResize2D", (PICTURE,), dict(mode="like"), "mode=like needs a second input"),
    ("UpSampling", (PICTURE, WEIGHT[3]), dict(scale=2, sample_type="bilinear"), "should have shape"),
    ("UpSampling", (M,), dict(scale=2, sample_type="nearest"), "rank|should have 4"),
    ("broadcast_like", (M,), {}, "needs a second input|inputs"),
    ("_contrib_interleaved_matmul_encdec_qk", (QUERIES, KEYS), dict(heads=4), "6 features cannot be split into 4 heads of 1 parts"),
    ("_contrib_interleaved_matmul_encdec_qk", (QUERIES, KEYS), dict(heads=0), "cannot be split into 0 heads"),
    *(("SpatialTransformer", (PICTURE, data(2, 6)), {"transform_type": kind, "target_shape": "(2, 2)",
        "sampler_type": by}, message)
      for kind, by, message in (("warp", "bilinear", "'transform_type' is 'warp'; there are: affine"),
                                ("affine", "nearest", "'sampler_type' is 'nearest'; there are: bilinear"))),
    *((op, (np.zeros(65537, np.float32),), {attribute: 65537, "axis": 0}, "cannot be split into 65537 equal parts")
      for op, attribute in (("SliceChannel", "num_outputs"), ("split", "indices_or_sections"),
                            ("_split_v2", "sections"))),
    ("lrn", (PICTURE,), dict(axis=2), "normalisation across axis 2"),
    ("conv2d", (PICTURE, data(5, 4, 3, 3)), dict(kernel_size="(3, 3)", channels=5, use_bias="False", kernel_layout="XY"), "the weights' layout is 'XY'"),
    ("_contrib_ROIAlign", (PICTURE, data(1, 5)), dict(pooled_size="(2, 2)", spatial_scale=1, position_sensitive="True"), "position-sensitive"),
    ("GridGenerator", (data(1, 6),), dict(transform_type="affine", target_shape="(0, 2)"), "not possible"),
    ("_contrib_Proposal", tuple(np.ones(s, np.float32) for s in BOXES), {}, "two channels for each of the 12 anchors"),
    ("_contrib_Proposal", (data(2, 24, 3, 4), data(2, 48, 3, 4), data(2, 3)), {}, "takes one picture, but gets 2"),
    ("_contrib_Proposal", (data(1, 24, 3, 4), data(1, 48, 3, 4), data(1, 3)), dict(rpn_post_nms_top_n=0), "should be above 0"),
    ("_contrib_Proposal", (data(1, 24, 3, 4), data(1, 48, 3, 4), data(1, 3)), dict(feature_stride=0), "should be above 0"),
    ("_contrib_Proposal", (data(1, 24, 3, 4), data(1, 48, 3, 4), data(1, 3)), dict(ratios="(0.5, 0, 2)"), "should be above 0"),
    ("_contrib_MultiBoxDetection", (data(1, 3, 5), data(1, 20), data(1, 5, 4)), dict(variances="(1, 2, 3)"), "should have four numbers"),
    ("yolo_reorg", (PICTURE,), dict(stride=4), "yolo|stride"), ("yolo_reorg", (PICTURE,), dict(stride=0), "yolo|stride"),
    ("RNN", (data(2, 1, 3), data(70), data(1, 1, 4)), dict(mode="rnn_tanh", state_size=4, num_layers=0), "0 layers"),
    ("RNN", (data(2, 1, 3), data(70), data(1, 1, 4)), dict(mode="rnn_tanh", state_size=0, num_layers=1), "layers of 0"),
    ("RNN", (data(2, 1, 3), data(144), data(1, 1, 4)), dict(mode="lstm", state_size=4, num_layers=1), "states"),
    ("RNN", (data(2, 1, 3), data(36), data(1, 1, 4)), dict(mode="rnn_tanh", state_size=4, num_layers=1, use_sequence_length="True"),
     "needs the lengths"),
    ("RNN", (data(2, 1, 3), data(36), data(1, 1, 4)), dict(mode="rnn_tanh", state_size=4, num_layers=1, projection_size=3),
     "attribute 'projection_size'"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row[0]} {row[3]}")
def test_a_refusal(row: tuple[str, tuple, dict[str, Any], str]) -> None:
    op, inputs, attrs, message = row
    with pytest.raises(LightNetError, match=message):
        run_op(op, inputs, attrs)
