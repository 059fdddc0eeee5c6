"""The choices of quantisation, and the tables of ops that they are about. Imports diagnostics alone."""

from __future__ import annotations

from collections.abc import Iterable

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

#: Ways to choose a tensor's range from the values that it takes on the calibration data.
METHODS = ("minmax", "percentile", "mse")
#: Ways to choose the range of weights, of which all values are known.
WEIGHT_METHODS = ("minmax", "mse")
TYPES = ("u8", "s8")
SYMMETRIC = ("weights", "activations", "both", "none")

#: Ops that multiply by weights, or two activations: what quantisation is for.
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
#: Ops that compute elementwise or take means, in 8-bit integers where their inputs and their output are such.
POINTWISE = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "AveragePool",
    "GlobalAveragePool",
    "ReduceMean",
    "Sigmoid",
    "Tanh",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "PRelu",
    "Elu",
    "Gelu",
    "Softmax",
)
#: Ops of `POINTWISE` that are quantised unless others are asked for: sums of residuals, and means.
DEFAULT_POINTWISE = ("Add", "AveragePool", "GlobalAveragePool")


@dataclass(frozen=True)
class QuantizeOptions:
    """Choices of `quantize`. Raises LightNetError for a value that there is not.

    `method` is how ranges of activations come from their values (`METHODS`; `percentile` is the share in percent, more
    than 50 and at most 100, that "percentile" keeps); `weight_method` the same of weights (`WEIGHT_METHODS`).
    `activation_type` and `weight_type` are ``u8`` or ``s8``; what is `symmetric` ("weights", "activations", "both" or
    "none") has its zero point in the middle, 0 of s8 and 128 of u8. `per_channel` gives each output channel of a weight
    a scale of its own; `reduce_range` keeps weights in 7 bits, for processors that add pairs of products in 16.
    `ops` are the `PRODUCTS` and `POINTWISE` to quantise; `exclude` names nodes, tensors or op types that stay in
    float32. At most `samples` calls of the calibration data are made (None: all), of which the first `report_samples`
    are what the accuracy report is measured on (0: no report).
    """

    method: str = "minmax"
    percentile: float = 99.99
    weight_method: str = "minmax"
    activation_type: str = "u8"
    weight_type: str = "s8"
    symmetric: str = "weights"
    per_channel: bool = True
    reduce_range: bool = False
    ops: tuple[str, ...] = PRODUCTS + DEFAULT_POINTWISE
    exclude: tuple[str, ...] = ()
    samples: int | None = None
    report_samples: int = 32

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS)
        _one_of("weight method", self.weight_method, WEIGHT_METHODS)
        _one_of("activation type", self.activation_type, TYPES)
        _one_of("weight type", self.weight_type, TYPES)
        _one_of("symmetric", self.symmetric, SYMMETRIC)
        if not 50 < self.percentile <= 100:
            raise LightNetError(f"percentile should be more than 50 and at most 100, and is {self.percentile}")
        for op in self.ops:
            _one_of("op to quantise", op, PRODUCTS + POINTWISE)
        for name, least in (("samples", 1), ("report_samples", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise LightNetError(f"{name} should be at least {least}, and is {value}")

    @property
    def symmetric_weights(self) -> bool:
        """True if weights have their zero point in the middle."""
        return self.symmetric in ("weights", "both")

    @property
    def symmetric_activations(self) -> bool:
        """True if activations have their zero point in the middle."""
        return self.symmetric in ("activations", "both")

    def said(self) -> dict[str, str | float | int | bool | list[str]]:
        """The choices that decide the numbers of the result, for a file's metadata."""
        found: dict[str, str | float | int | bool | list[str]] = {"method": self.method}
        if self.method == "percentile":
            found["percentile"] = self.percentile
        found |= {
            "weight_method": self.weight_method,
            "activations": self.activation_type,
            "weights": self.weight_type,
            "symmetric": self.symmetric,
            "per_channel": self.per_channel,
            "reduce_range": self.reduce_range,
            "ops": list(self.ops),
            "exclude": list(self.exclude),
        }
        return found


def _one_of(what: str, given: str, known: Iterable[str]) -> None:
    if given not in known:
        from lightnet.runtime.program import unknown

        raise unknown(what, given, known)
