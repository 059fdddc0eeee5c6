"""Each way that an attribute of an MXNet or NNVM op can be said, beside what `test_nnvm_ops` says of the op itself: absent, at its limit, one number
for a tuple, none for all axes. NumPy is the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from nnvm_graphs import run_op

from lightnet.diagnostics import LightNetError

RNG = np.random.default_rng(3)
X, PICTURE = RNG.uniform(-2, 2, (2, 3, 4)).astype(np.float32), RNG.uniform(-2, 2, (2, 4, 6, 6)).astype(np.float32)
M = X[0]
RANKS = np.argsort(-X, axis=-1, kind="stable").astype(np.float32)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


CASES = [
    ("Activation", [X], {"act_type": "log_sigmoid"}, [-np.log1p(np.exp(-X))]), ("LeakyReLU", [X], {"act_type": "gelu_tanh"}, [gelu(X)]),
    ("LeakyReLU", [X, np.float32([0.5])], {"act_type": "prelu"}, [np.where(X > 0, X, X / 2)]),
    ("LeakyReLU", [X, np.float32([0.5, 1, 2])], {"act_type": "prelu"}, [np.where(X > 0, X, X * np.float32([[0.5], [1], [2]]))]),
    ("cumsum", [X], {}, [np.cumsum(X)]), ("cumsum", [X], {"axis": 1}, [np.cumsum(X, 1)]), ("cumsum", [X], {"axis": -1}, [np.cumsum(X, -1)]),
    ("topk", [X], {"k": 0}, [RANKS]), ("topk", [X], {"k": 1}, [RANKS[..., :1]]), ("topk", [X], {"k": -1}, [RANKS]),
    ("softmax", [X], {"dtype": "float64"}, [(np.exp(X) / np.exp(X).sum(-1, keepdims=True)).astype(np.float64)]),
    ("sum", [X], {"axis": 1, "dtype": "float64"}, [X.sum(1).astype(np.float64)]), ("sum", [X], {}, [X.sum().reshape(1)]),
    ("argmax", [X], {"keepdims": "True"}, [np.int32([[[X.argmax()]]])]), ("argmax", [X], {}, [np.int32([X.argmax()])]), ("argmax", [X], {"axis": -1}, [np.int32(X.argmax(-1))]),
    ("collapse_sum", [X, X[:1]], {}, [X.sum(0, keepdims=True)]), ("collapse_sum", [X, X], {}, [X]), ("collapse_sum", [X, M], {}, [X.sum(0)]),
    ("L2Normalization", [PICTURE], {"mode": "spatial"}, [PICTURE / np.sqrt((PICTURE**2).sum((2, 3), keepdims=True))]),
    ("L2Normalization", [PICTURE], {"mode": "channel"}, [PICTURE / np.sqrt((PICTURE**2).sum(1, keepdims=True))]),
    ("L2Normalization", [PICTURE], {}, [PICTURE / np.sqrt((PICTURE**2).sum((1, 2, 3), keepdims=True))]),
    ("split", [X], {"num_outputs": 3}, np.split(X, 3, 1)), ("split", [X], {"num_outputs": 2, "axis": -1}, np.split(X, 2, -1)), ("split", [X], {"indices_or_sections": "3"}, np.split(X, 3, 1)),
    ("split", [X], {"indices_or_sections": "(1,)"}, np.split(X, [1], 1)), ("_split_v2", [X], {"indices": "(0, 1, 1)", "axis": 1}, [X[:, :1], X[:, 1:1], X[:, 1:]][:1]),
    ("_split_v2", [X], {"sections": 2}, np.split(X, 2)), ("_contrib_AdaptiveAvgPooling2D", [PICTURE], {"output_size": "3"}, [PICTURE.reshape(2, 4, 3, 2, 3, 2).mean((3, 5))]),
    ("_contrib_AdaptiveAvgPooling2D", [PICTURE], {"output_size": "(6, 2)"}, [PICTURE.reshape(2, 4, 6, 2, 3).mean(4)]), ("_contrib_AdaptiveAvgPooling2D", [PICTURE], {}, [PICTURE.mean((2, 3), keepdims=True)]),
    ("Reshape", [X], {"shape": "(0, -4, -1, 1, 0)"}, [X.reshape(2, 3, 1, 4)]), ("Reshape", [X], {"shape": "(-3, 0)"}, [X.reshape(6, 4)]), ("Reshape", [X], {"shape": "(-1, 0)", "reverse": "True"}, [X.reshape(6, 4)]),
    ("Reshape", [X], {"shape": "(-4, 1, 2, 0, 0)"}, [X.reshape(1, 2, 3, 4)]), ("Reshape", [X], {"shape": "(-2,)"}, [X]), ("Reshape", [X], {"shape": "(0, -4, 3, -1, 0)"}, [X.reshape(2, 3, 1, 4)]),
    ("Pooling", [PICTURE], {"pool_type": "lp", "global_pool": "True", "p_value": 2, "kernel": "(1, 1)"}, [np.sqrt((PICTURE**2).sum((2, 3), keepdims=True))]),
    ("Pooling", [PICTURE], {"pool_type": "sum", "global_pool": "True", "kernel": "(1, 1)"}, [PICTURE.sum((2, 3), keepdims=True)]),
    ("Pooling", [PICTURE], {"pool_type": "max", "pooling_convention": "same", "kernel": "(3, 3)", "stride": "(2, 2)"},
     [np.stack([[PICTURE[:, :, a : a + 3, b : b + 3].max((2, 3)) for b in (0, 2, 4)] for a in (0, 2, 4)]).transpose(2, 3, 0, 1)]),
    ("Embedding", [np.float64([0, 9, 2]), np.float32([[1, 2], [3, 4], [5, 6]])], {"input_dim": 3, "output_dim": 2}, [np.float32([[1, 2], [5, 6], [5, 6]])]),
    ("take", [M, np.float64([2, -1])], {"axis": 0}, [M[[2, 0]]]), ("broadcast_axis", [M[:1]], {"axis": 0, "size": 3}, [np.repeat(M[:1], 3, 0)]),
    ("reverse", [X], {"axis": "(1,)"}, [X[:, ::-1]]), ("reverse", [X], {"axis": 2}, [X[..., ::-1]]),
    # the smallest number that is taken
    ("depth_to_space", [PICTURE], {"block_size": 1}, [PICTURE]), ("space_to_depth", [PICTURE], {"block_size": 1}, [PICTURE]),
    ("LRN", [PICTURE], {"nsize": 1, "alpha": 0.5, "beta": 1, "knorm": 2}, [PICTURE / (2 + PICTURE**2 / 2)]), ("FullyConnected", [M, M[:1]], {"num_hidden": 1, "no_bias": "True"}, [M @ M[:1].T]),
    ("Convolution", [PICTURE, PICTURE[:1, :, :1, :1]], {"kernel": "(1, 1)", "num_filter": 1, "no_bias": "True"}, [np.einsum("nchw,c->nhw", PICTURE, PICTURE[0, :, 0, 0])[:, None]]),
    ("UpSampling", [PICTURE], {"scale": 1, "sample_type": "nearest"}, [PICTURE]), ("UpSampling", [PICTURE], {"scale": 2, "sample_type": "nearest"}, [PICTURE.repeat(2, 2).repeat(2, 3)]),
    ("_contrib_BilinearResize2D", [PICTURE], {"height": 1, "width": 6}, [PICTURE[:, :, :1]]), ("_contrib_BilinearResize2D", [PICTURE], {"height": 6, "width": 6}, [PICTURE]),
    ("_contrib_AdaptiveAvgPooling2D", [PICTURE], {"output_size": "(1, 2)"}, [PICTURE.reshape(2, 4, 6, 2, 3).mean((2, 4))[:, :, None]]),
    ("ROIPooling", [PICTURE, np.float32([[0, 0, 0, 5, 5]])], {"pooled_size": "(1, 1)", "spatial_scale": 1}, [PICTURE[:1].max((2, 3), keepdims=True)]),
    ("expand_like", [M, X], {"axis": "(0,)"}, [np.broadcast_to(M, X.shape)]), ("expand_like", [X[:1], X], {}, [np.broadcast_to(X[:1], X.shape)]), ("reshape_like", [X, X.reshape(6, 4)], {}, [X.reshape(6, 4)]),
    ("SequenceMask", [X, np.float32([1, 3])], {"axis": 1, "use_sequence_length": "True"}, [X * (np.arange(3) < np.float32([[1], [3]]))[..., None]]),
    ("SequenceLast", [X, np.float32([1, 3])], {"axis": 1, "use_sequence_length": "True"}, [np.stack([X[0, 0], X[1, 2]])]), ("SequenceReverse", [X], {}, [X[::-1]]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attrs", "want"), CASES, ids=lambda v: v if isinstance(v, str) else None)
def test_an_option(op: str, inputs: list, attrs: dict, want: list) -> None:
    found = run_op(op, inputs, attrs, heads=len(want))
    for a, b in zip(found, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("Embedding", [np.float32([0]), M], {"input_dim": 3, "output_dim": 5}, "'x1' should have shape [3, 5] here, but it has [3, 4]"),
        ("Activation", [X], {}, "needs the attribute 'act_type'"), ("depth_to_space", [PICTURE], {"block_size": 0}, "blocks of 0"), ("space_to_depth", [PICTURE], {"block_size": 0}, "blocks of 0"),
        ("Reshape", [X], {"shape": "(-5, 4)"}, "its shape holds -5"), ("transpose", [X], {"axes": "(0, 0.5, 1)"}, "its attribute 'axes' should be a tuple of integers, but is '(0, 0.5, 1)'"),
        ("_contrib_AdaptiveAvgPooling2D", [PICTURE], {"output_size": "(0, 1)"}, "an output of size [0, 1] is not possible"), ("LRN", [PICTURE], {"nsize": 0}, "LRN"), ("LRN", [PICTURE], {"nsize": 2}, "LRN"),
        ("FullyConnected", [M, M], {"num_hidden": 0}, "FullyConnected"), ("GroupNorm", [PICTURE, np.ones(4, np.float32), np.ones(4, np.float32)], {"num_groups": 0}, "GroupNorm"),
        ("GroupNorm", [PICTURE, np.ones(4, np.float32), np.ones(4, np.float32)], {"num_groups": 3}, "GroupNorm"), ("Convolution", [PICTURE, PICTURE], {"kernel": "(3, 3)", "num_filter": 0}, "Convolution"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)  # fmt: skip
def test_a_value_that_is_refused(op: str, inputs: list, attrs: dict, message: str) -> None:
    with pytest.raises(LightNetError) as caught:
        run_op(op, inputs, attrs)
    assert message in caught.value.message and "'y'" in caught.value.message and caught.value.label != "nnvm.handler"
