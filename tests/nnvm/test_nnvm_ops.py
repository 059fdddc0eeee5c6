"""The ops of MXNet and NNVM, each against what NumPy computes: names, defaults and shapes are MXNet's documentation's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from nnvm_graphs import Graph, run, run_op

from lightnet.diagnostics import LightNetError
from lightnet_nnvm.node import handlers

RNG = np.random.default_rng(11)


def data(*shape: int, low: float = -2, high: float = 2) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


X, Y = data(2, 3, 4), data(2, 3, 4)
POSITIVE, UNIT = data(2, 3, 4, low=0.1), data(2, 3, 4, low=-0.9, high=0.9)
PICTURE = data(2, 4, 6, 6)


@dataclass
class Case:
    op: str
    inputs: tuple[np.ndarray, ...]
    want: Any  # an array, or several
    attrs: dict[str, Any] = field(default_factory=dict)
    tol: float = 2e-6

    def wanted(self) -> list[np.ndarray]:
        return [np.asarray(w) for w in (self.want if isinstance(self.want, tuple) else (self.want,))]


CASES: list[Case] = []


def case(op: str, *inputs: np.ndarray, want: Any, tol: float = 2e-6, **attrs: Any) -> None:
    CASES.append(Case(op, inputs, want, attrs, tol))


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


# -- element by element
UNARY: dict[str, tuple[Callable, np.ndarray]] = {
    "relu": (lambda x: np.maximum(x, 0), X), "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), X), "tanh": (np.tanh, X),
    "exp": (np.exp, X), "log": (np.log, POSITIVE), "sqrt": (np.sqrt, POSITIVE), "abs": (np.abs, X), "sign": (np.sign, X),
    "floor": (np.floor, X), "ceil": (np.ceil, X), "negative": (np.negative, X), "reciprocal": (np.reciprocal, POSITIVE),
    "sin": (np.sin, X), "cos": (np.cos, X), "tan": (np.tan, UNIT), "arcsin": (np.arcsin, UNIT), "arccos": (np.arccos, UNIT),
    "arctan": (np.arctan, X), "sinh": (np.sinh, X), "cosh": (np.cosh, X), "arcsinh": (np.arcsinh, X),
    "arccosh": (np.arccosh, POSITIVE + 1), "arctanh": (np.arctanh, UNIT), "erf": (erf, X),
    "softsign": (lambda x: x / (1 + np.abs(x)), X), "fix": (np.trunc, X), "trunc": (np.trunc, X), "cbrt": (np.cbrt, X),
    "square": (np.square, X), "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE), "rcbrt": (lambda x: 1 / np.cbrt(x), POSITIVE),
    "log2": (np.log2, POSITIVE), "log10": (np.log10, POSITIVE), "log1p": (np.log1p, POSITIVE), "expm1": (np.expm1, X),
    "degrees": (np.degrees, X), "radians": (np.radians, X), "identity": (lambda x: x, X), "_copy": (lambda x: x, X),
    "copy": (lambda x: x, X), "BlockGrad": (lambda x: x, X), "Dropout": (lambda x: x, X),
    "log_sigmoid": (lambda x: -np.log1p(np.exp(-x)), X), "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), X),
    "logical_not": (lambda x: (x == 0).astype(np.float32), np.float32([0, 1, 0.5])),
    "round": (lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), np.float32([-1.5, 1.5, -1.9, 1.4, 0.5])),
    "rint": (lambda x: np.float32([-2, 1, -2, 1, 2]), np.float32([-1.5, 1.5, -1.9, 1.4, 1.6])),
}  # fmt: skip
for name, (function, x) in UNARY.items():
    case(name, x, want=function(x.astype(np.float64)), tol=2e-5)
case("round", np.float32([0.49999997, -0.49999997, 8388609]), want=np.float32([0, 0, 8388609]), tol=1e-9)
case("log1p", np.float32([1e-6, -1e-6]), want=np.log1p(np.float64([1e-6, -1e-6])) * 1.0, tol=1e-7)
case("expm1", np.float32([1e-6, -1e-6]), want=np.expm1(np.float64([1e-6, -1e-6])), tol=1e-7)

ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
SHORT = {"plus": np.add, "minus": np.subtract, "maximum": np.maximum, "minimum": np.minimum, "hypot": np.hypot}
COMPARE = {"equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
           "lesser": np.less, "lesser_equal": np.less_equal}  # fmt: skip
ROW = np.float32([[[1, -1, 0.5, 2]]])
EQUALS = np.where(np.arange(24).reshape(2, 3, 4) % 3 == 0, X, Y)
for name, function in ARITHMETIC.items():
    case(f"elemwise_{name}", X, Y, want=function(X, Y))
    case(f"_{name.capitalize()}", X, Y, want=function(X, Y))
for name, function in {**ARITHMETIC, **SHORT}.items():
    case(f"broadcast_{name}", X, ROW, want=function(X, ROW))
    case(f"_{name}_scalar", X, want=function(X, np.float32(1.5)), scalar="1.5")
for name, function in {"rminus": np.subtract, "rdiv": np.divide}.items():
    case(f"_{name}_scalar", POSITIVE, want=function(np.float32(3), POSITIVE), scalar=3)
for name, function in COMPARE.items():
    case(f"_{name}", X, EQUALS, want=function(X, EQUALS).astype(np.float32))
    case(f"broadcast_{name}", X, ROW, want=function(X, ROW).astype(np.float32))
    case(f"_{name}_scalar", X, want=function(X, np.float32(0.25)).astype(np.float32), scalar=0.25)
for name, function in (("greater", np.greater), ("less", np.less)):
    case(name, X, Y, want=function(X, Y).astype(np.float32))
WHOLE, SHIFT = np.float32([[1, -5, 1 << 20], [7, 0, -1]]), np.float32([[3, 1, 4]])
case("broadcast_left_shift", WHOLE, SHIFT, want=WHOLE * 2.0**SHIFT)
case("broadcast_right_shift", WHOLE, SHIFT, want=WHOLE / 2.0**SHIFT)
case("__lshift_scalar__", WHOLE, want=WHOLE * 4, scalar=2)
case("__rshift_scalar__", WHOLE, want=WHOLE / 4, scalar=2)
case("block_grad", X, want=X)
case("collapse_sum", X, X[:1, :, :1], want=X.sum((0, 2), keepdims=True))
case("collapse_sum", X, X[0, 0], want=X.sum((0, 1)))
case("broadcast_power", POSITIVE, ROW, want=np.power(POSITIVE.astype(float), ROW), tol=1e-5)
case("_rpower_scalar", X, want=np.power(2.0, X), scalar=2, tol=1e-5)
case("_mod_scalar", X, want=np.mod(X, np.float32(0.75)), scalar=0.75, tol=1e-5)
case("_Plus", X, Y, want=X + Y)
case("_PlusScalar", X, want=X + 2, scalar=2)
case("__add_scalar__", X, want=X + 2, scalar=2)
case("__rsub_scalar__", X, want=2 - X, scalar=2)
case("broadcast_less", X, ROW, want=(X < ROW).astype(np.float32))
case("add_n", X, Y, X, want=X + Y + X)
case("ElementWiseSum", X, want=X)
case("broadcast_logical_and", np.float32([0, 1, 2, 0]), np.float32([0, 0, 3, 1]), want=np.float32([0, 0, 1, 0]))
case("smooth_l1", X, scalar=2, want=np.where(np.abs(X) < 0.25, 2 * X * X, np.abs(X) - 0.125))
case("clip", X, want=np.clip(X, -1, 0.5), a_min=-1, a_max=0.5)
case("hard_sigmoid", X, want=np.clip(0.2 * X + 0.5, 0, 1))
case("_contrib_div_sqrt_dim", X, want=X / 2)

# -- activations
case("Activation", X, want=np.log1p(np.exp(X)), act_type="softrelu")
case("Activation", X, want=np.maximum(X, 0), act_type="relu")
case("LeakyReLU", X, want=np.where(X > 0, X, 0.25 * X))
case("LeakyReLU", X, want=np.where(X > 0, X, 0.1 * (np.exp(X) - 1)), act_type="elu", slope=0.1)
case(
    "LeakyReLU", X, want=1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * (np.exp(X) - 1)), act_type="selu"
)
case("LeakyReLU", X, want=X * 0.5 * (1 + erf(X / math.sqrt(2))), act_type="gelu", tol=1e-5)
case("LeakyReLU", X, want=np.where(X > 0, X, (0.125 + 0.334) / 2 * X), act_type="rrelu")
case(
    "LeakyReLU",
    X,
    np.float32([0.1, 0.2, 0.3]),
    want=np.where(X > 0, X, X * np.float32([[0.1], [0.2], [0.3]])),
    act_type="prelu",
)
case("prelu", X, np.float32([0.1, 0.2, 0.3]), want=np.where(X > 0, X, X * np.float32([[0.1], [0.2], [0.3]])))
case("leaky_relu", X, want=np.where(X > 0, X, 0.3 * X), alpha=0.3)

# -- reductions
case("sum", X, want=X.sum(keepdims=True).reshape(1))
case("sum", X, want=X.sum((0, 2)), axis="(0, 2)")
case("sum_axis", X, want=X.sum(1, keepdims=True), axis=1, keepdims=True)
case("mean", X, want=X.mean((0, 2)), axis=1, exclude="True")
case("max", X, want=X.max(-1), axis="-1")
case("min", X, want=X.min(0), axis="(0,)")
case("prod", X, want=X.prod(2), axis=2)
NANS = np.float32([[1, np.nan, 2], [np.nan, 3, 4]])
case("nansum", NANS, want=np.nansum(NANS, 1), axis=1)
case("nanprod", NANS, want=np.nanprod(NANS, 0), axis=0)
case("norm", X, want=np.sqrt((X.astype(float) ** 2).sum()).reshape(1))
case("norm", X, want=np.abs(X).sum(1), ord=1, axis=1)
case("argmax", X, want=X.argmax(1).astype(np.int32), axis=1)
case("argmin", X, want=np.int32([X.argmin()]))
case("argmax_channel", X[0], want=X[0].argmax(1).astype(np.float32))
ORDER = np.argsort(-X, axis=-1, kind="stable")
case("topk", X, want=ORDER[..., :2].astype(np.float32), k=2)
case(
    "topk",
    X,
    want=(np.sort(X, 1)[:, :2], np.argsort(X, 1)[:, :2].astype(np.float32)),
    k=2,
    axis=1,
    ret_typ="both",
    is_ascend=1,
)
case("sort", X, want=np.sort(X, -1))
case("sort", X, want=-np.sort(-X.reshape(-1)), is_ascend="False", axis="None")
case("argsort", X, want=np.argsort(X, 0, kind="stable").astype(np.float32), axis=0)

# -- products
A, B = data(2, 3, 4), data(2, 4, 5)
case("batch_dot", A, B, want=A @ B, tol=1e-5)
case("batch_dot", A, B.transpose(0, 2, 1).copy(), want=A @ B, transpose_b=True, tol=1e-5)
case("_linalg_gemm2", A, B, want=2 * (A @ B), alpha=2, tol=1e-5)
case("dot", A, data(4, 5), want=None, tol=1e-5)
CASES[-1].want = np.tensordot(CASES[-1].inputs[0], CASES[-1].inputs[1], 1)
case("dot", A[0], A[1], want=A[0].T @ A[1], transpose_a=True, tol=1e-5)
case("dot", A[0], B[1].T.copy(), want=A[0] @ B[1], transpose_b=True, tol=1e-5)
case("dot", A[0].T.copy(), B[1].T.copy(), want=A[0] @ B[1], transpose_a=True, transpose_b=True, tol=1e-5)
case("dense", A[0], data(5, 4), want=None, units=5, use_bias=False, tol=1e-5)
CASES[-1].want = A[0] @ CASES[-1].inputs[1].T
case("FullyConnected", A, data(5, 12), want=None, num_hidden=5, no_bias=True, tol=1e-5)
CASES[-1].want = A.reshape(2, 12) @ CASES[-1].inputs[1].T
case("FullyConnected", A, data(5, 4), want=None, num_hidden=5, no_bias=True, flatten=False, tol=1e-5)
CASES[-1].want = A @ CASES[-1].inputs[1].T


def attention(qkv: np.ndarray, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Self-attention on [T, B, heads * 3 * d] in float64: scores and (for those scores) outputs."""
    time, batch, _ = qkv.shape
    q, k, v = np.moveaxis(qkv.reshape(time, batch, heads, 3, -1).astype(float), 3, 0)
    scores = np.einsum("tbhd,sbhd->bhts", q, k) / math.sqrt(q.shape[-1])
    out = np.einsum("bhts,sbhd->tbhd", scores, v)
    return scores.reshape(batch * heads, time, time), out.reshape(time, batch, -1)


QKV = data(5, 2, 2 * 3 * 4)
SCORES, OUT = attention(QKV, 2)
case("_contrib_interleaved_matmul_selfatt_qk", QKV, want=SCORES, heads=2, tol=1e-5)
case("_contrib_interleaved_matmul_selfatt_valatt", QKV, SCORES.astype(np.float32), want=OUT, heads=2, tol=1e-4)

# -- shapes: MXNet's documentation has these of Reshape
for old, shape, new in [((2, 3, 4), "(4, 0, 2)", (4, 3, 2)), ((2, 3, 4), "(2, 0, 0)", (2, 3, 4)), ((2, 3, 4), "(6, 1, -1)", (6, 1, 4)),
                        ((2, 3, 4), "(3, -1, 8)", (3, 1, 8)), ((2, 3, 4), "(-1,)", (24,)), ((2, 3, 4), "(-2,)", (2, 3, 4)),
                        ((2, 3, 4), "(2, -2)", (2, 3, 4)), ((2, 3, 4), "(-2, 1, 1)", (2, 3, 4, 1, 1)),
                        ((2, 3, 4), "(-3, 4)", (6, 4)), ((2, 3, 4, 5), "(-3, -3)", (6, 20)), ((2, 3, 4), "(0, -3)", (2, 12)),
                        ((2, 3, 4), "(-3, -2)", (6, 4)), ((2, 3, 4), "(-4, 1, 2, -2)", (1, 2, 3, 4)),
                        ((2, 3, 4), "(2, -4, -1, 3, -2)", (2, 1, 3, 4))]:  # fmt: skip
    flat = np.arange(math.prod(old), dtype=np.float32)
    case("Reshape", flat.reshape(old), want=flat.reshape(new), shape=shape)
TENFOLD = np.arange(200, dtype=np.float32).reshape(10, 5, 4)
case("Reshape", TENFOLD, want=TENFOLD.reshape(40, 5), shape="(-1, 0)")
case("Reshape", TENFOLD, want=TENFOLD.reshape(50, 4), shape="(-1, 0)", reverse=1)
case("Reshape", X, want=X.reshape(2, 12), target_shape="(2, 0)")
case("reshape_like", X, data(6, 4), want=X.reshape(6, 4))
case("Flatten", X, want=X.reshape(2, 12))
case("expand_dims", X, want=X[:, None], axis=1)
case("expand_dims", X, want=X[..., None, None], axis=-1, num_newaxis=2)
case("squeeze", X[:, None, :1], want=X[:, 0])
case("squeeze", X[:, None, :1], want=X[:, :1], axis=1)
case("transpose", X, want=X.T)
case("transpose", X, want=X.transpose(1, 2, 0), axes="(1, 2, 0)")
case("SwapAxis", X, want=X.swapaxes(0, 2), dim1=0, dim2=2)
case("Concat", X, Y, want=np.concatenate([X, Y], 1), num_args=2)
case("concatenate", X, Y, want=np.concatenate([X, Y], 0), axis=0)
case("stack", X, Y, want=np.stack([X, Y], 2), axis=2)
case("slice", X, want=X[1:, ::2], begin="(1, None)", end="(None, None)", step="(None, 2)")
case("slice", X, want=X[:, ::-1, 1:3], begin="(0, None, 1)", end="(2, None, -1)", step="(1, -1, 1)")
case("strided_slice", X, want=X[0:2, 1:3, 0:4:2], begin="[0, 1, 0]", end="[2, 3, 4]", stride="[1, 1, 2]")
case("slice_axis", X, want=X[..., 1:3], axis=-1, begin=1, end=-1)
case("slice_axis", X, want=X[:, -2:], axis=1, begin=-2, end="None")
case("slice_like", X, data(1, 2, 9), want=X[:1, :2], axes="(0, 1)")
case("Crop", PICTURE, want=PICTURE[:, :, 1:4, 2:6], offset="(1, 2)", h_w="(3, 4)", num_args=1)
case("Crop", PICTURE, data(1, 1, 2, 2), want=PICTURE[:, :, 2:4, 2:4], center_crop=True, num_args=2)
case("SliceChannel", X, want=tuple(X[:, i] for i in range(3)), num_outputs=3, squeeze_axis=True)
case("split", X, want=(X[..., :2], X[..., 2:]), indices_or_sections=2, axis=-1)
case("split", X, want=(X[..., :1], X[..., 1:3], X[..., 3:]), indices_or_sections="(1, 3)", axis=2)
case("_split_v2", X, want=(X[..., :1], X[..., 1:]), indices="(0, 1)", axis=2, sections=0)
case("tile", X, want=np.tile(X, (2, 1, 1, 2)), reps="(2, 1, 1, 2)")
case("repeat", X, want=np.repeat(X, 2, 1), repeats=2, axis=1)
case("repeat", X, want=np.repeat(X, 3), repeats=3)
case("reverse", X, want=X[:, ::-1, ::-1], axis="(1, 2)")
case("Pad", PICTURE, want=np.pad(PICTURE, [(0, 0), (0, 0), (1, 2), (0, 3)], constant_values=5), mode="constant",
     pad_width="(0, 0, 0, 0, 1, 2, 0, 3)", constant_value=5)  # fmt: skip
case(
    "Pad",
    PICTURE,
    want=np.pad(PICTURE, [(0, 0), (0, 0), (1, 2), (0, 3)], "reflect"),
    mode="reflect",
    pad_width="(0,0,0,0,1,2,0,3)",
)
case("pad", X, want=np.pad(X, [(0, 0), (1, 1), (0, 2)]), pad_width="((0, 0), (1, 1), (0, 2))")
case("broadcast_to", X[:, :1], want=np.broadcast_to(X[:, :1], (2, 5, 4)), shape="(0, 5, 0)")
case("broadcast_axis", X[:, :1], want=np.broadcast_to(X[:, :1], (2, 5, 4)), axis=1, size=5)
case("broadcast_like", X[:, :1], Y, want=np.broadcast_to(X[:, :1], (2, 3, 4)))
case("zeros_like", X, want=0 * X)
case("ones_like", X, want=0 * X + 1)
case("full_like", X, want=0 * X + 3, fill_value=3)
case("_contrib_arange_like", X, want=np.float32([0, 1, 2]), axis=1)
case("shape_array", X, want=np.int64([2, 3, 4]))
case("size_array", X, want=np.int64([24]))
case("Cast", X, want=np.trunc(X).astype(np.int32), dtype="int32")
BLOCKS = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
case(
    "depth_to_space",
    BLOCKS,
    want=BLOCKS.reshape(1, 2, 2, 1, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 4, 4),
    block_size=2,
)
case(
    "space_to_depth",
    PICTURE,
    want=PICTURE.reshape(2, 4, 3, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 16, 3, 3),
    block_size=2,
)

# -- indices
ROWS = data(5, 3)
case("take", ROWS, np.float32([[0, 4], [2, 9]]), want=ROWS[[[0, 4], [2, 4]]], axis=0)
case("take", ROWS, np.float32([-1, 6]), want=ROWS[[4, 1]], axis=0, mode="wrap")
case("take", ROWS, np.int32([2, 0]), want=ROWS[:, [2, 0]], axis=1)
case("Embedding", np.float32([[1, 3], [0, 4]]), ROWS, want=ROWS[[[1, 3], [0, 4]]], input_dim=5, output_dim=3)
case("pick", ROWS, np.float32([0, 2, 1, 1, 9]), want=ROWS[range(5), [0, 2, 1, 1, 2]])
case("pick", ROWS, np.float32([[0, 2, 1]]), want=ROWS[[0, 2, 1], range(3)][None], axis=0, keepdims=True)
case("gather_nd", ROWS, np.float32([[1, 4], [0, 2]]), want=ROWS[[1, 4], [0, 2]])
case(
    "one_hot",
    np.float32([1, 0, 2]),
    want=np.eye(3, dtype=np.float32)[[1, 0, 2]] * 4 - 1,
    depth=3,
    on_value=3,
    off_value=-1,
)
case("where", np.float32([0, 1]), X, Y, want=np.stack([Y[0], X[1]]))
case("where", (X > 0).astype(np.float32), X, Y, want=np.where(X > 0, X, Y))
SEQUENCE = data(4, 3, 2)
LENGTHS = np.float32([1, 4, 2])
INSIDE = np.arange(4)[:, None, None] < LENGTHS[:, None]
case("SequenceMask", SEQUENCE, LENGTHS, want=np.where(INSIDE, SEQUENCE, -1), use_sequence_length=True, value=-1)
case("SequenceLast", SEQUENCE, LENGTHS, want=SEQUENCE[[0, 3, 1], range(3)], use_sequence_length=True)
case("SequenceLast", SEQUENCE, want=SEQUENCE[-1])
case("SequenceReverse", SEQUENCE, want=SEQUENCE[::-1])


# -- norms
def standard(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


G3, B3 = np.float32([1, 2, 3]), np.float32([0.5, 0, -1])
G4, B4 = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, -1, 1])
case("LayerNorm", X, G4, B4, want=standard(X, (2,), 1e-5) * G4 + B4, tol=1e-5)
case("LayerNorm", X, G3, B3, want=standard(X, (1,), 1e-5) * G3[:, None] + B3[:, None], axis=1, tol=1e-5)
case("InstanceNorm", X, G3, B3, want=standard(X, (2,), 1e-3) * G3[:, None] + B3[:, None], tol=1e-5)
case("GroupNorm", PICTURE, G4, B4, num_groups=2, tol=1e-5,
     want=standard(PICTURE.reshape(2, 2, -1), (2,), 1e-5).reshape(PICTURE.shape) * G4[:, None, None] + B4[:, None, None])  # fmt: skip
case("L2Normalization", X, want=X / np.sqrt((X**2).sum((1, 2), keepdims=True) + 1e-10))
case("L2Normalization", X, want=X / np.sqrt((X**2).sum(1, keepdims=True) + 1e-10), mode="channel")
case("l2_normalize", X, want=X / np.sqrt(np.maximum((X**2).sum(1, keepdims=True), 1e-3)), axis=1, eps=1e-3)


def lrn(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    padded = np.pad(x.astype(float) ** 2, [(0, 0), (size // 2,) * 2, (0, 0), (0, 0)])
    window = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    return x / (bias + alpha / size * window) ** beta


case("LRN", PICTURE, want=lrn(PICTURE, 3, 1e-4, 0.75, 2), nsize=3)
case("lrn", PICTURE, want=lrn(PICTURE, 5, 0.5, 0.5, 1), size=5, alpha=0.5, beta=0.5, bias=1)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x.astype(float) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


case("softmax", X, want=softmax(X, -1))
case("softmax", X, want=softmax(X / 2, 1), axis=1, temperature=2)
case("softmin", X, want=softmax(-X, -1))
case("log_softmax", X, want=np.log(softmax(X, 0)), axis=0)
case("SoftmaxActivation", X, want=softmax(X.reshape(2, 12), 1).reshape(X.shape))
case("SoftmaxActivation", X, want=softmax(X, 1), mode="channel")
case("SoftmaxOutput", X, want=softmax(X, 1), multi_output=True)
case("LogisticRegressionOutput", X, want=1 / (1 + np.exp(-X)))
STATES = [np.float32(v) for v in ([1, 2, 3], [0, 1, 2], [0.5, 0, 1], [1, 4, 9])]
case("batch_norm", X, *STATES, epsilon=1e-3,
     want=(X - STATES[2][:, None]) / np.sqrt(STATES[3] + 1e-3)[:, None] * STATES[0][:, None] + STATES[1][:, None])  # fmt: skip
case(
    "batch_norm",
    X,
    *STATES,
    scale=False,
    center=False,
    want=(X - STATES[2][:, None]) / np.sqrt(STATES[3] + 1e-5)[:, None],
)


# -- pools: straight from MXNet's formulas, one window at a time
def pooled(x: np.ndarray, k: int, s: int, p: int, kind: str, full: bool, include: bool) -> np.ndarray:
    size = x.shape[2]
    count = (math.ceil if full else math.floor)((size + 2 * p - k) / s) + 1
    out = np.empty((*x.shape[:2], count, count))
    for i in range(count):
        for j in range(count):
            starts = [i * s - p, j * s - p]
            ends = [min(v + k, size + p) for v in starts]
            area = (ends[0] - starts[0]) * (ends[1] - starts[1])
            (y0, x0), (y1, x1) = [max(v, 0) for v in starts], [min(v, size) for v in ends]
            part = x[:, :, y0:y1, x0:x1].astype(float)
            if kind == "max":
                out[:, :, i, j] = part.max((2, 3))
            elif kind == "lp":
                out[:, :, i, j] = np.sqrt((part**2).sum((2, 3)))
            else:
                total = part.sum((2, 3))
                out[:, :, i, j] = total if kind == "sum" else total / (area if include else (y1 - y0) * (x1 - x0))
    return out


for kind in ("max", "avg", "sum", "lp"):
    for k, s, p in ((3, 2, 1), (2, 2, 0), (3, 2, 0)):
        for convention in ("valid", "full"):
            for include in (True, False) if kind == "avg" else (True,):
                case("Pooling", PICTURE, want=pooled(PICTURE, k, s, p, kind, convention == "full", include), kernel=f"({k}, {k})",
                     stride=f"({s}, {s})", pad=f"({p}, {p})", pool_type=kind, pooling_convention=convention,
                     count_include_pad=include, tol=1e-5)  # fmt: skip
case("Pooling", PICTURE, want=PICTURE.mean((2, 3), keepdims=True), kernel="(1, 1)", global_pool=True, pool_type="avg")
case("Pooling", X, want=np.maximum(X[..., :3], X[..., 1:]), kernel="(2,)")
case("avg_pool2d", PICTURE, want=pooled(PICTURE, 3, 2, 1, "avg", False, False), pool_size="(3, 3)", strides="(2, 2)",
     padding="(1, 1)", tol=1e-5)  # fmt: skip
case("max_pool2d", PICTURE.transpose(0, 2, 3, 1).copy(), want=pooled(PICTURE, 2, 2, 0, "max", False, True).transpose(0, 2, 3, 1),
     pool_size="(2, 2)", strides="(2, 2)", layout="NHWC")  # fmt: skip
case("global_max_pool2d", PICTURE, want=PICTURE.max((2, 3), keepdims=True))


# -- convolutions of other kinds than the networks have
def convolved(x: np.ndarray, w: np.ndarray, stride: int, pad: int) -> np.ndarray:
    """One spatial axis."""
    padded = np.pad(x.astype(float), [(0, 0), (0, 0), (pad, pad)])
    count = (padded.shape[2] - w.shape[2]) // stride + 1
    return np.stack(
        [np.einsum("nck,ock->no", padded[:, :, i * stride : i * stride + w.shape[2]], w) for i in range(count)], 2
    )


LINE, KERNEL = data(2, 3, 9), data(4, 3, 3)
case("Convolution", LINE, KERNEL, want=convolved(LINE, KERNEL, 2, 1), kernel="(3,)", num_filter=4, stride="(2,)", pad="(1,)",
     no_bias=True, tol=1e-5)  # fmt: skip
VOLUME, CUBE = data(1, 2, 3, 4, 4), data(3, 2, 2, 2, 2)
case("Convolution", VOLUME, CUBE, kernel="(2, 2, 2)", num_filter=3, no_bias=True, tol=1e-5, want=np.stack([
    np.stack([np.stack([np.einsum("ncijk,ocijk->no", VOLUME[:, :, z : z + 2, y : y + 2, x : x + 2], CUBE) for x in range(3)], -1)
              for y in range(3)], -2) for z in range(2)], -3))  # fmt: skip
NHWC, HWIO = data(1, 4, 4, 3), data(1, 1, 3, 5)
case("conv2d", NHWC, HWIO, want=NHWC @ HWIO[0, 0], kernel_size="(1, 1)", channels=5, layout="NHWC", kernel_layout="HWIO",
     use_bias=False, tol=1e-5)  # fmt: skip
UP = data(3, 2, 2, 2)
SPREAD = np.einsum("nihw,iokl->nohkwl", LINE[:, :, :6].reshape(2, 3, 2, 3), UP).reshape(2, 2, 4, 6)
case("Deconvolution", LINE[:, :, :6].reshape(2, 3, 2, 3).copy(), UP, want=SPREAD, kernel="(2, 2)", stride="(2, 2)", num_filter=2,
     tol=1e-5)  # fmt: skip
case("Deconvolution", LINE[:, :, :6].reshape(2, 3, 2, 3).copy(), UP, want=SPREAD[:, :, 1:, 1:], kernel="(2, 2)", stride="(2, 2)",
     num_filter=2, target_shape="(3, 5)", tol=1e-5)  # fmt: skip

# -- resampling
case("UpSampling", PICTURE, want=PICTURE.repeat(2, 2).repeat(2, 3), scale=2, sample_type="nearest")
case("upsampling", PICTURE, want=PICTURE.repeat(3, 2).repeat(3, 3), scale=3)
GRID = np.linspace(0, 5, 11)
BETWEEN = np.apply_along_axis(lambda r: np.interp(GRID, range(6), r), 3, PICTURE)
BETWEEN = np.apply_along_axis(lambda r: np.interp(GRID, range(6), r), 2, BETWEEN)
case("_contrib_BilinearResize2D", PICTURE, want=BETWEEN, height=11, width=11, tol=1e-5)
PARTS = [(0, 2), (1, 3), (3, 5), (4, 6)]
ADAPTED = np.stack([np.stack([PICTURE[:, :, a:b, c:d].mean((2, 3)) for c, d in PARTS], -1) for a, b in PARTS], -2)
case("_contrib_AdaptiveAvgPooling2D", PICTURE, want=ADAPTED, output_size="(4, 4)", tol=1e-5)
case("_contrib_AdaptiveAvgPooling2D", PICTURE, want=PICTURE.mean((2, 3), keepdims=True))

THETA = np.float32([[1, 0, 0, 0, 1, 0], [-1, 0, 0, 0, 1, 0]])
case("SpatialTransformer", PICTURE, THETA, want=np.stack([PICTURE[0], PICTURE[1][..., ::-1]]), target_shape="(6, 6)",
     transform_type="affine", sampler_type="bilinear", tol=1e-5)  # fmt: skip
SHIFTED = np.pad(PICTURE[..., 1:], [(0, 0)] * 3 + [(0, 1)])  # each place is read one element to the right; outside is 0
FLOW = np.zeros((2, 2, 6, 6), np.float32)
FLOW[:, 0] = 1
PLACES = np.stack(np.broadcast_arrays((np.arange(6) + 1) * 0.4 - 1, np.arange(6)[:, None] * 0.4 - 1))
case("GridGenerator", FLOW, want=np.stack([PLACES] * 2), transform_type="warp", tol=1e-5)
case("BilinearSampler", PICTURE, np.stack([PLACES] * 2).astype(np.float32), want=SHIFTED, tol=1e-4)
REGIONS = np.float32([[1, 0, 0, 4, 4], [0, 1, 1, 3, 5]])
# One sample in each cell, at its centre, where no interpolation is needed on this ramp.
RAMP = np.broadcast_to(np.arange(6, dtype=np.float32), (2, 1, 6, 6)).copy()
case("_contrib_ROIAlign", RAMP, REGIONS, want=np.float32([[[[1, 3]] * 2], [[[1.5, 2.5]] * 2]]), pooled_size="(2, 2)",
     spatial_scale=1, sample_ratio=1, tol=1e-5)  # fmt: skip
case("moments", X, want=(X.mean((0, 2)), X.var((0, 2))), axes="(0, 2)", tol=1e-5)
case("cumsum", X, want=np.cumsum(X, 1), axis=1, tol=1e-5)

# -- boxes: the example of MXNet's documentation
BOXES = np.float32([[0, 0.5, 0.1, 0.1, 0.2, 0.2], [1, 0.4, 0.1, 0.1, 0.2, 0.2], [0, 0.3, 0.1, 0.1, 0.14, 0.14],
                    [2, 0.6, 0.5, 0.5, 0.7, 0.8]])  # fmt: skip
NONE = np.full((1, 6), -1)
case("_contrib_box_nms", BOXES, want=np.concatenate([BOXES[3:], BOXES[:1], NONE, NONE]), overlap_thresh=0.1, coord_start=2,
     score_index=1, id_index=0, force_suppress=True)  # fmt: skip
case("_contrib_box_nms", BOXES, want=np.concatenate([BOXES[3:], BOXES[:2], NONE]), overlap_thresh=0.1, coord_start=2,
     score_index=1, id_index=0)  # fmt: skip
case("_contrib_box_nms", BOXES, want=np.concatenate([BOXES[3:], NONE, NONE, NONE]), topk=1, id_index=0)
case("_contrib_box_nms", BOXES, want=np.concatenate([BOXES[3:], BOXES[1:2], NONE, NONE]), valid_thresh=0.35, id_index=0,
     background_id=0)  # fmt: skip
DELTAS, ANCHORS = data(1, 2, 4), np.float32([[[1, 2, 3, 6], [0, 0, 2, 2]]])
CENTRE, SIZE = (ANCHORS[..., :2] + ANCHORS[..., 2:]) / 2, ANCHORS[..., 2:] - ANCHORS[..., :2]
MOVED, REACH = DELTAS[..., :2] * 0.1 * SIZE + CENTRE, np.exp(DELTAS[..., 2:] * 0.2) * SIZE / 2
case("_contrib_box_decode", DELTAS, ANCHORS, want=np.concatenate([MOVED - REACH, MOVED + REACH], -1), std0=0.1, std1=0.1, std2=0.2,
     std3=0.2, format="corner", tol=1e-5)  # fmt: skip
CORNERS = [[x + 0.25 - w / 2, y + 0.5 - h / 2, x + 0.25 + w / 2, y + 0.5 + h / 2] for y in (0,) for x in (0, 0.5)
           for w, h in ((0.4 / 2, 0.4), (0.2 / 2, 0.2), (0.4 / 2 * 2**0.5, 0.4 / 2**0.5))]  # fmt: skip
case(
    "_contrib_MultiBoxPrior",
    data(1, 3, 1, 2),
    want=np.float32([CORNERS]),
    sizes="(0.4, 0.2)",
    ratios="(1, 2)",
    tol=1e-6,
)


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: f"{CASES[i].op}-{i}")
def test_op(index: int) -> None:
    c = CASES[index]
    wanted = c.wanted()
    found = run_op(c.op, c.inputs, c.attrs, heads=len(wanted))
    check(c, found)


def check(c: Case, found: list[np.ndarray]) -> None:
    for array, want in zip(found, c.wanted(), strict=True):
        assert array.shape == want.shape
        if want.dtype.kind in "iu":
            assert array.dtype == want.dtype
        np.testing.assert_allclose(array, want, rtol=c.tol, atol=c.tol * max(1e-3, np.abs(want).max()))


@pytest.mark.parametrize("shape", [(), (2,), (1, 2, 2, 2, 2)], ids=str)
def test_inputs_of_any_rank_are_taken_or_refused(shape: tuple[int, ...]) -> None:
    """Each input of each op in turn: what does not go with an op is an error that names its node."""
    refused, first = 0, {c.op: c for c in CASES[::-1]}
    for c in first.values():
        for i, x in enumerate(c.inputs):
            inputs = [np.ones(shape, x.dtype) if k == i else y for k, y in enumerate(c.inputs)]
            try:
                run_op(c.op, inputs, c.attrs, heads=len(c.wanted()))
            except LightNetError as e:
                assert "'y'" in str(e) or "'x" in str(e), f"{c.op}: {e}"
                refused += 1
    assert refused > 50


@pytest.mark.slow
def test_all_ops_on_the_cpu() -> None:
    """One graph with every case."""
    g, feeds, heads = Graph(), {}, []
    for i, c in enumerate(CASES):
        entries = []
        for j, x in enumerate(c.inputs):
            feeds[f"x{i}_{j}"] = x
            entries.append(g.var(f"x{i}_{j}"))
        node = g.op(c.op, f"y{i}", *entries, **c.attrs)[0]
        heads += [[node, k, 0] for k in range(len(c.wanted()))]
    found = run(g.text(*heads), feeds, target="cpu")
    for c in CASES:
        mine, found = found[: len(c.wanted())], found[len(c.wanted()) :]
        check(c, mine)


def test_constants_without_inputs() -> None:
    g = Graph()
    heads = [g.op("_zeros", "z", shape="(2, 3)"), g.op("_ones", "o", shape="(2,)", dtype="int32"), g.op("_full", "f", shape="(2,)", value=1.5),
             g.op("_arange", "a", start=1, stop=4, repeat=2), g.op("_arange", "b", start=3), g.op("full", "g", shape="(1,)", fill_value=2)]  # fmt: skip
    heads += [g.op("_linspace", "l", start=0, stop=1, num=3), g.op("_eye", "e", N=2, M=3, k=1)]
    found = run(g.text(*heads))
    assert [f.tolist() for f in found] == [[[0] * 3] * 2, [1, 1], [1.5, 1.5], [1, 1, 2, 2, 3, 3], [0, 1, 2], [2], [0, 0.5, 1],
                                           [[0, 1, 0], [0, 0, 1]]]  # fmt: skip
    assert found[1].dtype == np.int32


def gru(x: np.ndarray, w: list[np.ndarray], h: np.ndarray) -> np.ndarray:
    """cuDNN's GRU, which MXNet's is: gates reset, update, new; the reset gate multiplies the state's part, bias included."""
    wi, wh, bi, bh = w
    for step in x:
        a, b = np.split(step @ wi.T + bi, 3, -1), np.split(h @ wh.T + bh, 3, -1)
        r, z = (1 / (1 + np.exp(-(p + q))) for p, q in zip(a[:2], b[:2]))
        h = (1 - z) * np.tanh(a[2] + r * b[2]) + z * h
        yield h


def test_gru_and_plain_rnn() -> None:
    x, h = data(5, 2, 3), data(1, 2, 4)
    parts = [data(12, 3), data(12, 4), data(12), data(12)]
    flat = np.concatenate([p.reshape(-1) for p in parts])
    found = run_op(
        "RNN", (x, flat, h), {"mode": "gru", "state_size": 4, "num_layers": 1, "state_outputs": True}, heads=2
    )
    want = np.stack(list(gru(x.astype(float), parts, h[0].astype(float))))
    np.testing.assert_allclose(found[0], want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[1][0], want[-1], rtol=0, atol=1e-5)
    plain = [data(4, 3), data(4, 4), data(4), data(4)]
    flat = np.concatenate([p.reshape(-1) for p in plain])
    (found,) = run_op("RNN", (x, flat, h), {"mode": "rnn_tanh", "state_size": 4, "num_layers": 1})
    state = h[0].astype(float)
    for step, y in zip(x, found):
        state = np.tanh(step @ plain[0].T + plain[2] + state @ plain[1].T + plain[3])
        np.testing.assert_allclose(y, state, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("mode, gates", [("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)])
def test_lengths_of_sequences(mode: str, gates: int, dtype: type) -> None:
    """A sequence of a batch gives, in both directions of two layers, what its first steps give alone; then zeros."""
    lens, hidden, both = np.array([4, 1, 3], dtype), 2, 2
    count = sum(both * gates * hidden * (size + hidden + 2) for size in (3, both * hidden))
    rng = np.random.default_rng(3)
    x, flat, *states = (
        rng.uniform(-1, 1, dims).astype(np.float32)
        for dims in ((4, 3, 3), count, *[(2 * both, 3, hidden)] * (1 + (mode == "lstm")))
    )
    attrs = {"mode": mode, "state_size": hidden, "num_layers": 2, "bidirectional": True, "state_outputs": True}
    y, *last = run_op("RNN", (x, flat, *states, lens), attrs | {"use_sequence_length": True}, heads=1 + len(states))
    for k, steps in enumerate(lens.astype(int)):
        alone = (x[:steps, k : k + 1], flat, *(s[:, k : k + 1] for s in states))
        want, *want_last = run_op("RNN", alone, attrs, heads=1 + len(states))
        np.testing.assert_allclose(y[:steps, k : k + 1], want, rtol=0, atol=1e-6)
        assert not y[steps:, k].any()
        for a, b in zip(last, want_last, strict=True):
            np.testing.assert_allclose(a[:, k : k + 1], b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attrs", [{}, {"axis": 0}], ids=str)
def test_an_op_without_inputs_is_refused(attrs: dict[str, int]) -> None:
    """Each op, those of any number of inputs included: at its node, and by a check, not by what fails further on."""
    refused = 0
    for op in handlers():
        try:
            run_op(op, (), attrs)
        except LightNetError as e:
            assert "'y'" in str(e) and e.label != "nnvm.handler", f"{op}: {e}"
            refused += 1
    assert refused > 500


@pytest.mark.parametrize("op, inputs, attrs, message", [
    ("Reshape", (X,), {"shape": "(5, -1)"}, "cannot become"), ("Reshape", (X,), {"shape": "(-1, -1)"}, "more than one -1"),
    ("Reshape", (X,), {"shape": "(-3, -3)"}, "more dims"), ("elemwise_add", (X, ROW), {}, "one shape"),
    ("sum", (X,), {"axis": 7}, "axis 7"), ("sum", (X,), {"axis": "(1, 1)"}, "twice"), ("SliceChannel", (X,), {"num_outputs": 2}, "equal parts"),
    ("_arange", (), {"start": 0, "stop": 1e30}, "no range"), ("_zeros", (), {"shape": "(99999999999, 99999999999)"}, "not possible"),
    ("tile", (X,), {"reps": "(1000000000, 1000000000)"}, "tile|bytes|possible|large"), ("clip", (X,), {}, "a_min"), ("Pad", (X,), {"pad_width": "(1, 1)"}, "6 integers"),
    ("RNN", (X, X[0], X), {"mode": "lstm", "state_size": 4, "num_layers": 1}, "states|shape"),
    ("one_hot", (X,), {"depth": 1 << 40}, "not possible"), ("Convolution", (PICTURE,), {"kernel": "(3, 3)", "num_filter": 4}, "inputs"),
])  # fmt: skip
def test_what_cannot_be_is_refused(op: str, inputs: tuple, attrs: dict, message: str) -> None:
    with pytest.raises(LightNetError, match=message) as caught:
        run_op(op, inputs, attrs)
    assert caught.value.loc is not None


M, V, WEIGHT, OTHER = data(2, 3), data(3), data(4, PICTURE.shape[1], 3, 3), data(PICTURE.shape[1], 4, 3, 3)
REFUSALS = [
 ("split",(M,),{"indices_or_sections":"(5, 1)"},"cannot be split at"),
 ("SliceChannel",(M,),{"num_outputs":1,"axis":1,"squeeze_axis":"True"},"squeeze_axis needs parts of length 1"),
 ("strided_slice",(M,),{"begin":"(0,)","end":"(2,)","stride":"(0,)"},"a step of 0"),
 ("slice",(M,),{"begin":"(0,)","end":"(2,)","step":"(0,)"},"step"),
 ("Crop",(PICTURE,),{"h_w":"(90, 90)"},"does not fit in|not possible"),
 ("Crop",(PICTURE,),{"h_w":"(1, 1)","offset":"(9, 9)"},"does not fit in"),
 ("expand_dims",(M,),{"axis":0,"num_newaxis":-1},"new axes are not possible"),
 ("squeeze",(M,),{"axis":"(0,)"},"should have length 1"),
 ("transpose",(M,),{"axes":"(0,)"},"should be as many as"),
 ("depth_to_space",(PICTURE,),{"block_size":7},"cannot be split into blocks of 7"),
 ("space_to_depth",(PICTURE,),{"block_size":7},"cannot be split into blocks of 7"),
 ("Reshape",(M,),{"shape":"(-4, 2)"},"should be followed by two dims"),
 ("Reshape",(M,),{"shape":"(-4, 5, -1, 3)"},"cannot be split into"),
 ("Reshape",(M,),{"shape":"(-7, 2)"},"its shape holds -7"),
 ("norm",(M,),{"ord":3},"a norm of order 3"),
 ("argmax",(M,),{"axis":"(0, 1)"},"several axes"),
 ("topk",(M,),{"ret_typ":"mask"},"ret_typ=mask"),
 ("topk",(M,),{"ret_typ":"other"},"there are"),
 ("LRN",(PICTURE,),{"nsize":4},"its window should be odd, but is 4"),
 ("lrn",(PICTURE,),{"size":4},"its window should be odd, but is 4"),
 ("LayerNorm",(M,V,V),{"output_mean_var":"True"},"output_mean_var"),
 ("Dropout",(M,),{"mode":"always"},"random at inference"),
 ("Activation",(M,),{"act_type":"foo"},"activation 'foo'"),
 ("LeakyReLU",(M,),{"act_type":"foo"},"activation 'foo'"),
 ("Embedding",(V,M),{"input_dim":3,"output_dim":3},"should have shape"),
 ("SequenceMask",(M,V),{"use_sequence_length":"True","axis":3},"axis"),
 ("SequenceMask",(X,V),{"use_sequence_length":"True","axis":2},"time is axis 0 or 1, not 2"),
 ("SequenceReverse",(X,data(2)),{"use_sequence_length":"True","axis":1},"another axis than 0|axis"),
 ("Pooling",(PICTURE,),{"kernel":"(2, 2)","pool_type":"lp","p_value":5},"an lp pool of order 5"),
 ("Pooling",(PICTURE,),{"kernel":"(2, 2)","stride":"(0, 1)"},"not possible"),
 ("Pooling",(PICTURE,),{"kernel":"(2, 2)","pool_type":"med"},"there are"),
 ("Deconvolution",(PICTURE,OTHER),{"kernel":"(3, 3)","num_filter":4,"target_shape":"(1, 2, 3)","no_bias":"True"},"should have 2 numbers"),
 ("Deconvolution",(PICTURE,OTHER),{"kernel":"(3, 3)","num_filter":4,"target_shape":"(9,)","no_bias":"True"},"should have 2 numbers"),
 ("Deconvolution",(PICTURE,OTHER),{"kernel":"(3, 3)","num_filter":4,"target_shape":"(900, 900)","no_bias":"True"},"is larger than the result"),
 ("FullyConnected",(M,data(4, 3)),{"num_hidden":0,"no_bias":"True"},"cannot make 0 outputs of"),
 ("FullyConnected",(M,data(4, 3)),{"num_hidden":-4,"no_bias":"True"},"cannot make -4 outputs of"),
 ("FullyConnected",(M[0, 0],data(4, 3)),{"num_hidden":4,"no_bias":"True"},"cannot make 4 outputs of"),
 ("dense",(M,data(4, 3)),{"units":0,"use_bias":"False"},"cannot make 0 outputs of"),
 ("dense",(M[0, 0],data(4, 3)),{"units":4,"use_bias":"False"},"cannot make 4 outputs of"),
 ("Convolution",(PICTURE,WEIGHT,data(5)),{"kernel":"(3, 3)","num_filter":4},"should have shape"),
 ("Convolution",(PICTURE,WEIGHT),{"num_filter":4,"no_bias":"True"},"needs the attribute 'kernel'"),
 ("Convolution",(PICTURE,WEIGHT),{"num_filter":4,"no_bias":"True","kernel":"(3, x)"},"should be a tuple of integers"),
 ("cast",(M,),{"dtype":"float7"},"element type 'float7'"),
 ("cast",(M,),{},"dtype"),
 ("arange",(),{"start":0,"infer_range":"True"},"inferred"),
 ("UpSampling",(PICTURE,),{"scale":0,"sample_type":"nearest"},"scale of 1 or more"),
 ("UpSampling",(PICTURE,),{"scale":2,"sample_type":"bilinear","num_filter":2},"needs a weight|inputs"),
 ("_contrib_BilinearResize2D",(PICTURE,),{"height":0,"width":0},"not possible"),
 ("_contrib_AdaptiveAvgPooling2D",(PICTURE,),{"output_size":"(0, 2)"},"not possible"),
 ("ROIPooling",(PICTURE,data(1, 5)),{"pooled_size":"(0, 2)","spatial_scale":1},"above 0"),
 ("ROIPooling",(PICTURE,data(1, 5)),{"pooled_size":"(2,)","spatial_scale":1},"two numbers"),
 ("softmax",(M,V),{"use_length":"True"},"lengths of a softmax|inputs"),
 ("multibox_prior",(PICTURE,),{"sizes":"()","ratios":"()"},"at least one"),
 ("multibox_prior",(PICTURE,),{"steps":"(1, -1)"},"both given or both not"),
 ("smooth_l1",(M,),{"scalar":1e200},"its scalar squared"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row[0]} {row[3]}")
def test_a_refusal(row: tuple[str, tuple, dict, str]) -> None:
    """One row a check, which no other check stands in for."""
    op, inputs, attrs, message = row
    with pytest.raises(LightNetError, match=message) as caught:
        run_op(op, inputs, attrs)
    assert caught.value.loc is not None and caught.value.label != "nnvm.handler"


def test_levels_1_to_4_of_nnvm_are_there() -> None:
    """The core operators of NNVM's documentation."""
    level1 = "dense relu tanh softmax log_softmax sigmoid exp log sqrt elemwise_add elemwise_sub elemwise_mul elemwise_div flatten " \
        "concatenate expand_dims squeeze split dropout batch_norm pad matmul"  # fmt: skip
    level2 = "conv2d conv2d_transpose max_pool2d avg_pool2d global_max_pool2d global_avg_pool2d upsampling"
    level3 = "reshape copy negative floor ceil round trunc abs leaky_relu prelu __add_scalar__ __sub_scalar__ __rsub_scalar__ " \
        "__mul_scalar__ __div_scalar__ __rdiv_scalar__ __pow_scalar__ __rpow_scalar__ elemwise_sum ones_like zeros_like cast"  # fmt: skip
    level4 = "transpose broadcast_to sum min max mean prod broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_mod " \
        "broadcast_pow broadcast_max broadcast_min broadcast_equal broadcast_not_equal broadcast_greater broadcast_less " \
        "broadcast_greater_equal broadcast_less_equal clip strided_slice slice_like take argmax argmin full full_like ones zeros " \
        "flip l2_normalize lrn where gather_nd expand_like reshape_like"  # fmt: skip
    names = f"{level1} {level2} {level3} {level4}".split()
    assert [n for n in names if n not in handlers()] == []
