"""Features of ai.onnx.ml: scalers, encoders, and what puts columns together and takes them apart. Imports the
composites and the table of handlers."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightnet.frontends.composites import concat, one_hot, unsqueeze
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.indexing import take
from lightnet_ml.scores import ML, needs_floats


@onnx_op("Scaler", domain=ML)
def scaler(n: Node, x: Value) -> Value:
    """(x - offset) * scale, each one for all columns, or for each."""
    g, x = n.g, n.g.cast(x, "f32")
    for optype, name, neutral in (("sub", "offset", 0.0), ("mul", "scale", 1.0)):
        vector = np.array(n.floats(name, (neutral,)), np.float32)
        if len(vector) not in (1, x.dims[-1]):
            n.fail(f"its {name} has {len(vector)} elements for {x.spec}")
        x = g.op(optype, x, g.constant(vector))
    return x


@onnx_op("Normalizer", domain=ML)
def normalizer(n: Node, x: Value) -> Value:
    """Rows over their largest magnitude, the sum of these, or the root of the sum of squares; a row of zeros stays."""
    g, x, kind = n.g, n.g.cast(x, "f32"), n.string("norm", "MAX")
    axes = (x.ndim - 1,)
    if kind == "L2":
        norm = g.op("sqrt", g.op("reduce_sum", g.op("mul", x, x), axes=axes))
    elif kind in ("L1", "MAX"):
        norm = g.op("reduce_sum" if kind == "L1" else "reduce_max", g.op("abs", x), axes=axes)
    else:
        n.fail(f"its norm is {kind}; there are L1, L2 and MAX")
    return g.op("div", x, g.op("where", g.op("equal", norm, g.scalar(0, "f32")), g.scalar(1, "f32"), norm))


@onnx_op("Binarizer", domain=ML)
def binarizer(n: Node, x: Value) -> Value:
    return n.g.cast(n.g.op("less", n.g.scalar(n.float("threshold", 0.0), x.dtype), x), x.dtype)


@onnx_op("Imputer", domain=ML)
def imputer(n: Node, x: Value) -> Value:
    """Values for what is missing: NaN, or the number that stands for it."""
    g = n.g
    if x.dtype.is_float:
        values, missing = n.floats("imputed_value_floats"), n.float("replaced_value_float", 0.0)
    else:
        values, missing = n.ints("imputed_value_int64s"), n.int("replaced_value_int64", 0)
    if len(values) not in (1, x.dims[-1]):
        n.fail(f"it has {len(values)} values for {x.spec}")
    hole = g.op("isnan", x) if np.isnan(missing) else g.op("equal", x, g.scalar(missing, x.dtype))
    return g.op("where", hole, g.constant(np.array(values), x.dtype), x)


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(n: Node, x: Value) -> Value:
    """1 where the element is each of the categories, along a new last axis."""
    g, cats = n.g, n.ints("cats_int64s", ())
    if not cats:
        n.unsupported("categories that are texts: a network has tensors of numbers")
    if not n.int("zeros", 1):
        n.unsupported("zeros = 0, an error for other categories")
    index = g.cast(x, "i64")
    if cats == tuple(range(len(cats))):
        return g.cast(one_hot(g, index, len(cats), x.ndim), "f32")
    return g.cast(g.op("equal", unsqueeze(g, index, [x.ndim]), g.constant(np.array(cats, np.int64))), "f32")


@onnx_op("LabelEncoder", domain=ML)
def label_encoder(n: Node, x: Value) -> Value:
    """Each element by the pair of which it is the key; the default where there is none. From version 4 on, NaN is a key
    like others."""
    g = n.g
    keys, values = _side(n, "keys"), _side(n, "values")
    if keys is None or values is None:
        n.unsupported("keys or values that are texts: a network has tensors of numbers")
    if len(keys) != len(values) or not len(keys):
        n.fail(f"it has {len(keys)} keys and {len(values)} values")
    keys = g.constant(np.asarray(keys), x.dtype)
    wide = unsqueeze(g, x, [x.ndim])
    same = g.op("equal", wide, keys)
    if x.dtype.is_float and n.opset >= 4:
        same = g.op("bit_or", same, g.op("bit_and", g.op("isnan", wide), g.op("isnan", keys)))
    number = g.cast(same, "i32")
    axes = (x.ndim,)
    index = g.reshape(g.op("argmax", number, axis=x.ndim), x.dims)
    there = g.reshape(g.op("reduce_max", number, axes=axes), x.dims)
    table = g.constant(np.asarray(values))
    default = _default(n, table)
    return g.op("where", g.op("equal", there, g.scalar(1, "i32")), take(g, table, index, 0), default)


def _side(n: Node, name: str) -> Any:
    """Keys or values, as an array; None for texts."""
    for kind, get, dtype in (("int64s", n.ints, np.int64), ("floats", n.floats, np.float32)):
        if n.has(f"{name}_{kind}"):
            return np.array(get(f"{name}_{kind}"), dtype)
    tensor = n.tensor(f"{name}_tensor")
    return tensor.reshape(-1) if tensor is not None else None


def _default(n: Node, table: Value) -> Value:
    tensor = n.tensor("default_tensor")
    if tensor is not None:
        return n.g.scalar(tensor.reshape(-1)[0], table.dtype)
    return n.g.scalar(
        n.float("default_float", -0.0) if table.dtype.is_float else n.int("default_int64", -1), table.dtype
    )


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(n: Node, *parts: Value) -> Value:
    """Columns beside each other, as f32; a vector is a column for each of its elements."""
    g = n.g
    rows = [g.cast(g.reshape(p, (1, p.len)) if p.ndim == 1 else p, "f32") for p in parts]
    return concat(g, rows, 1)


@onnx_op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(n: Node, x: Value, index: Value) -> Value:
    """The elements of the last axis that `index` names; of a vector, as one row."""
    y = take(n.g, x, n.g.reshape(index, (index.len,)), x.ndim - 1)
    return n.g.reshape(y, (1, index.len)) if x.ndim == 1 else y


@onnx_op("ZipMap", domain=ML)
def zip_map(n: Node, x: Value) -> Value:
    """The scores as they are: maps from labels to columns are what a host part makes of them (`split.py`)."""
    labels = len(n.node.attributes.get("classlabels_strings") or n.node.attributes.get("classlabels_int64s") or ())
    if x.ndim not in (1, 2) or x.dims[-1] != labels:
        n.fail(f"it has {labels} labels for {x.spec}")
    return needs_floats(n, x)


@onnx_op("CategoryMapper", "CastMap", "DictVectorizer", domain=ML)
def of_texts(n: Node, x: Value) -> Value:
    return n.unsupported("texts and maps within a network, which has tensors of numbers")
