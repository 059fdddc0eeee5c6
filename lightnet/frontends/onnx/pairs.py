"""Operators of ONNX that are one `ln` op, and the other way round: tables that importer and exporter both read.

An operator is imported as the op beside it. An op is exported as the operator, unless `lightnet_export/onnx/` has an
exporter of its own for it, as ONNX's takes fewer types or means something else in a corner. Imports nothing.
"""

#: Functions of one tensor, without attributes.
UNARY = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal",
    "Floor": "floor", "Ceil": "ceil", "Round": "round_even", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "Erf": "erf", "Not": "logical_not", "BitwiseNot": "bit_not", "IsNaN": "isnan", "Relu": "relu",
    "Sigmoid": "sigmoid", "HardSwish": "hard_swish", "Mish": "mish", "Softplus": "softplus", "Softsign": "softsign",
}  # fmt: skip

#: Functions of one tensor with attributes: the op, and its parameters by ONNX's attributes with their defaults.
ACTIVATIONS: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "LeakyRelu": ("lrelu", {"alpha": ("negslope", 0.01)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}),
    "Selu": ("selu", {"alpha": ("alpha", 1.67326319217681884765625), "gamma": ("gamma", 1.05070102214813232421875)}),
    "Celu": ("celu", {"alpha": ("alpha", 1.0)}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": ("alpha", 1.0)}),
    "Shrink": ("shrink", {"lambd": ("lambd", 0.5), "bias": ("bias", 0.0)}),
    "Swish": ("silu", {"alpha": ("beta", 1.0)}),
}

#: Functions of two tensors that broadcast: arithmetic, comparisons, bits of integers, and of bools.
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div",
}  # fmt: skip
COMPARISONS = {"Equal": "equal", "Less": "less", "LessOrEqual": "less_equal"}
BITWISE = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}
LOGICAL = {"And": "bit_and", "Or": "bit_or", "Xor": "bit_xor"}
#: Of two tensors or more.
EXTREMES = {"Max": "maximum", "Min": "minimum"}

#: Along axes.
REDUCTIONS = {
    "ReduceSum": "reduce_sum", "ReduceProd": "reduce_prod", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceMean": "reduce_mean",
}  # fmt: skip
ARG_EXTREMES = {"ArgMax": "argmax", "ArgMin": "argmin"}
SCANS = {"CumSum": "cumsum", "CumProd": "cumprod"}
SOFTMAXES = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}

#: Activations of LSTM, GRU and RNN: LightNet's name, and the default alpha and beta of those that have them.
RECURRENT: dict[str, tuple[str, float | None, float | None]] = {
    "Sigmoid": ("sigmoid", None, None), "Tanh": ("tanh", None, None), "Relu": ("relu", None, None),
    "Affine": ("affine", 1.0, 0.0), "LeakyRelu": ("leaky_relu", 0.01, None),
    "ThresholdedRelu": ("thresholded_relu", 1.0, None), "ScaledTanh": ("scaled_tanh", 1.0, 1.0),
    "HardSigmoid": ("hard_sigmoid", 0.2, 0.5), "Elu": ("elu", 1.0, None), "Softsign": ("softsign", None, None),
    "Softplus": ("softplus", None, None),
}  # fmt: skip
