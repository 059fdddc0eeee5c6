"""What operators of other domains than ONNX's own do not allow: those of training, and ONNX Runtime's. A row each, as in `test_onnx_refusals`."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
from test_onnx_refusals import f, i, refused, s

MS, TRAINING = "com.microsoft:", "ai.onnx.preview.training:"
MOMENTUM = {"alpha": 0.9, "beta": 0.9, "mode": "standard", "norm_coefficient": 0.0}
HEADS = {"num_heads": 2}
ONE, STEP = s(0.1, np.float32), s(0)
U8 = np.ones((2, 2), np.uint8)


def attention(message: str, x=(1, 3, 4), w=(4, 12), past=None, length=None, **more):
    rest = [None] * 3 if past is None and length is None else [None, past, None]
    inputs = [f(*x), f(*w), f(12), *rest, *([] if length is None else [length])]
    return (f"{MS}Attention", inputs, HEADS | more, message)


def heads(message: str, q=(1, 3, 4), k=(1, 3, 4), v=(1, 3, 4), rest=(), **more):
    return (
        f"{MS}MultiHeadAttention",
        [*(None if x is None else f(*x) for x in (q, k, v)), *rest],
        HEADS | more,
        message,
    )


def grouped(message: str, *rest, q=(1, 3, 8), k=(1, 3, 4), total=3, **more):
    inputs = [f(*q), f(*k), f(*k), None, None, np.array([2], np.int32), s(total, np.int32), *rest]
    return (f"{MS}GroupQueryAttention", inputs, {"num_heads": 4, "kv_num_heads": 2} | more, message)


ROWS = [
    (f"{TRAINING}Momentum", [ONE, STEP, f(2), f(2), f(2)], MOMENTUM | {"mode": "x"}, "its mode is 'x'; there are standard and nesterov"),
    (f"{TRAINING}Momentum", [ONE, STEP, f(2), f(2)], MOMENTUM, "its 2 inputs should be 3 for each tensor"),
    (f"{TRAINING}Momentum", [ONE, STEP, f(2), f(2), f(2), f(2)], MOMENTUM, "its 4 inputs should be 3 for each tensor"),
    (f"{TRAINING}Adagrad", [ONE, STEP], {}, "its 0 inputs should be 3 for each tensor"),
    (f"{TRAINING}Adagrad", [ONE, STEP, f(2), f(3), f(2)], {}, "a tensor of tensor<2xf32> has gradients and states of tensor<3xf32>, tensor<2xf32>"),
    # attention with its projections
    attention(r"should be \[batch, length, size\] and its weights a matrix", x=(3, 4)),
    attention("and its weights a matrix", w=(1, 4, 12)),
    attention("Attention with do_rotary", do_rotary=1),
    attention("Attention with past_present_share_buffer", past_present_share_buffer=1),
    attention("a past of which a part counts", length=s(1, np.int32)),
    attention(r"12 columns of weights are not Q, K and V of \[4, 8\]", qkv_hidden_sizes=[4, 8]),
    attention(r"12 columns of weights are not Q, K and V of \[4, 4, 5\]", qkv_hidden_sizes=[4, 4, 5]),
    attention(r"12 columns of weights are not Q, K and V of \[6, 6, 0\]", qkv_hidden_sizes=[6, 6, 0]),
    attention(r"its past should be \[2, batch, heads, length, size\], but is", past=f(2, 2, 2, 2)),
    attention("its past should be", past=f(3, 1, 2, 2, 2)),
    attention(r"should be \[batch, length, elements of 3 heads\]", num_heads=3),
    attention("elements of 0 heads", num_heads=0),
    attention("heads of Q .*, K .* and V .* do not fit", qkv_hidden_sizes=[4, 2, 6]),
    attention("a constant of 16785409 elements is not possible", x=(1, 4097, 4), unidirectional=1),
    # attention over given keys and values
    heads("a past of which a part counts, or of beams", rest=[None] * 5 + [s(1, np.int32)]),
    heads("it needs keys and values", k=None, v=None),
    heads("it needs keys and values", v=None),
    heads("its bias should have 12 elements, but is tensor<11xf32>", rest=[f(11)]),
    heads("heads of Q .* do not fit", k=(1, 3, 6)),
    heads("heads of Q .* do not fit", v=(1, 2, 4)),
    heads("heads of Q .* do not fit", k=(1, 3, 3, 2), v=(1, 3, 3, 2)),
    # grouped heads
    grouped("GroupQueryAttention with a quantised cache, norms of Q and K, or lengths of queries", *[None] * 5, f(2)),
    grouped("GroupQueryAttention with qk_output", qk_output=1),
    grouped("GroupQueryAttention with sliding_window_cache", sliding_window_cache=1),
    grouped("with do_rotary it needs tables of cosines and sines", do_rotary=1),
    grouped("with do_rotary it needs tables of cosines and sines", f(3, 1), do_rotary=1),
    grouped("a mask of 8193 x 8193 elements", q=(1, 8193, 8), k=(1, 8193, 4), total=8193),
    # layers
    (f"{MS}NhwcFusedConv", [f(2, 3), f(1, 1, 1)], {}, r"should be \[N, ..., C\] with one spatial axis or more, but is tensor<2x3xf32>"),
    (f"{MS}FusedConv", [f(1, 1, 4), f(1, 1, 2)], {"activation": "Clip", "activation_params": [0.0]}, r"the activation Clip \[0.0\]"),
    (f"{MS}FusedConv", [f(1, 1, 4), f(1, 1, 2)], {"activation": "Swish"}, r"the activation Swish \[\]"),
    (f"{MS}SkipLayerNormalization", [f(1, 2, 3), f(2, 2, 3), f(3)], {}, "its skip tensor<2x2x3xf32> should broadcast to its input tensor<1x2x3xf32>"),
    *((f"{MS}EmbedLayerNormalization", [np.zeros(ids, np.int32), segments, f(9, 4), f(positions, 4), table, f(4), f(4)], {}, message)
      for ids, segments, positions, table, message in (
          ((3,), None, 8, None, r"its word ids should be \[batch, length\], but are tensor<3xi32>"),
          ((1, 3), np.zeros((1, 3), np.int32), 8, None, "segment ids and their table belong together"),
          ((1, 3), None, 8, f(2, 4), "segment ids and their table belong together"), ((1, 3), None, 2, None, "it has 3 positions, and its table 2"))),
    (f"{MS}GroupNorm", [f(2, 4), f(4), f(4)], {"groups": 2, "activation": 0}, "should be a batch of pictures, but is tensor<2x4xf32>"),
    *((f"{MS}GroupNorm", [f(2, 3, 5, 4), f(4), f(4)], {"groups": k, "activation": 0}, f"4 channels are not {k} groups") for k in (0, 3)),
    # packed weights
    *((f"{MS}MatMulNBits", [f(2, 32), np.zeros((3, 2, 8), np.uint8), f(6), *rest], {"K": 32, "N": 3, "block_size": 16} | more, message)
      for rest, more, message in (([], {"weight_prepacked": 1}, "weights that are packed for a device"), ([], {"bits": 3}, "weights of 3 bits"),
          ([], {"block_size": 0}, "blocks of 0 weights of 4 bits are no whole bytes"), ([], {"block_size": 15}, "blocks of 15 weights of 4 bits are no whole bytes"),
          ([], {"N": 4}, "are not a 32 x 4 matrix of 4 bits in blocks of 16"), ([], {"K": 33}, "are not a 33 x 3 matrix of 4 bits in blocks of 16"),
          ([np.zeros(4, np.uint8)], {}, "its zero points tensor<4xui8> are not 3 x 2 of 4 bits"))),
    *((f"{MS}GatherBlockQuantized", [np.zeros((4, 8), np.uint8), i(0), f(*scales)], {"block_size": 16} | more, message)
      for scales, more, message in (((4, 1), {"bits": 3}, "data of 3 bits"), ((4, 2), {}, "do not fit data tensor<4x16xui8> in blocks of 16 along axis 1"),
                                    ((1, 16), {"quantize_axis": 0, "block_size": 2}, "in blocks of 2 along axis 0"))),
    (f"{MS}QLinearConcat", [f(), np.zeros((), np.uint8), U8, f()], {"axis": 0}, "its inputs come in threes: tensor, scale, zero point"),
    (f"{MS}QLinearConcat", [f(), np.zeros((), np.uint8)], {"axis": 0}, "its inputs come in threes: tensor, scale, zero point"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].partition(':')[2]} {row[3]}")
def test_a_refusal_of_another_domain(row) -> None:
    refused(*row)
