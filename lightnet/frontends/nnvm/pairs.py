"""Ops of NNVM that are one `ln` op, and the other way round: tables that importer and exporter both read. Imports
nothing.

An op's name in MXNet alone (`MXNET_UNARY`, `ALIASES`) is imported, and not exported: a model is written in NNVM's own
ops.
"""

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
REDUCTIONS = {
    "sum": "reduce_sum",
    "mean": "reduce_mean",
    "max": "reduce_max",
    "min": "reduce_min",
    "prod": "reduce_prod",
}
MXNET_REDUCTIONS = {"sum_axis": "reduce_sum", "max_axis": "reduce_max", "min_axis": "reduce_min",
                    "nansum": "reduce_sum",
                    "nanprod": "reduce_prod"}  # fmt: skip
