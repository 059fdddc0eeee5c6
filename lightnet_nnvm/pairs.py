"""Ops of NNVM that are one `ln` op, and the other way round: tables that importer and exporter both read. Imports
nothing of ours.

An op's name in MXNet alone (`MXNET_UNARY`, `ALIASES`) is imported, and not exported: a model is written in NNVM's own
ops.
"""

from typing import Any

#: Functions of one tensor.
UNARY = {
    "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "abs",
    "negative": "neg", "floor": "floor", "ceil": "ceil", "copy": "forward",
}  # fmt: skip
MXNET_UNARY = {
    "sign": "sign", "reciprocal": "reciprocal", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "erf": "erf", "softsign": "softsign", "mish": "mish",
    **dict.fromkeys(("_copy", "identity", "BlockGrad", "block_grad", "stop_gradient", "MakeLoss", "make_loss",
                     "IdentityAttachKLSparseReg"), "forward"),
}  # fmt: skip

#: Functions of two tensors: ``elemwise_add``, ``broadcast_add``, ``__add_scalar__`` and so on.
ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "mod": "mod", "pow": "pow", "max": "maximum",
    "min": "minimum",
}  # fmt: skip
COMPARISONS = {"equal": "equal", "less": "less", "less_equal": "less_equal"}
#: Further names of some of them.
ALIASES = {"plus": "add", "minus": "sub", "power": "pow", "maximum": "max", "minimum": "min", "lesser": "less",
           "lesser_equal": "less_equal"}  # fmt: skip

#: Along axes.
REDUCTIONS = {"sum": "reduce_sum", "mean": "reduce_mean", "max": "reduce_max", "min": "reduce_min",
              "prod": "reduce_prod"}  # fmt: skip
MXNET_REDUCTIONS = {"sum_axis": "reduce_sum", "max_axis": "reduce_max", "min_axis": "reduce_min",
                    "nansum": "reduce_sum", "nanprod": "reduce_prod"}  # fmt: skip

#: Functions of one tensor with attributes: the op, and its parameters by NNVM's attributes with their defaults (`...`:
#: there is none).
ACTIVATIONS: dict[str, tuple[str, dict[str, tuple[str, Any]]]] = {
    "clip": ("clip", {"a_min": ("lo", ...), "a_max": ("hi", ...)}),
    "leaky_relu": ("lrelu", {"alpha": ("negslope", 0.25)}),
}
MXNET_ACTIVATIONS = {"hard_sigmoid": ("hard_sigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)})}
#: What is exported so, and imported with more to it: the operator, and the parameters that are its attributes.
EXPORTED = {
    "softmax": ("softmax", {"axis": "axis"}), "log_softmax": ("log_softmax", {"axis": "axis"}),
    "transpose": ("transpose", {"axes": "axes"}), "concat": ("concatenate", {"axis": "axis"}),
    "tile": ("tile", {"reps": "repeats"}), "take": ("take", {"axis": "axis"}), "copy": ("copy", {}),
    **{optype: (name, {}) for name, optype in UNARY.items()},
    **{optype: (name, {a: p for a, (p, _) in params.items()}) for name, (optype, params) in ACTIVATIONS.items()},
}  # fmt: skip

#: MXNet's and NumPy's names of element types, and MXNet's numbers of them.
NNVM_DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "uint8": "ui8", "int32": "i32", "int8": "i8",
          "int64": "i64", "bool": "i1", "int16": "i16", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64",
          "bfloat16": "bf16"}  # fmt: skip
DTYPE_NUMBERS = ("f32", "f64", "f16", "ui8", "i32", "i8", "i64", "i1", "i16", "ui16", "ui32", "ui64", "bf16")
#: The attribute of a graph with the names of its outputs, ``["list_str", [name]]``: ours, since NNVM calls an output
#: after its node.
OUTPUT_NAMES = "output_names"
