"""The functions of floats that index notation has: one row each, on numbers, on arrays, and what one costs.

Constant expressions take them on numbers, the interpreters on arrays; kernels compute the op of that name in MLIR's
`math`, by `backends/elementary`. Imports the standard library and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class FloatFunction(NamedTuple):
    """A row. `of_number` may raise Python's errors outside of the domain; `cost` is rough cycles of an element. Code of
    what `is_long` is not repeated for several elements."""

    of_number: Callable[[float], float]
    of_array: Callable[..., Any]
    cost: int = 15
    is_long: bool = True


def _sinh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > 711 else math.sinh(x)


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)[()]


FLOAT_FUNCTIONS: dict[str, FloatFunction] = {
    "exp": FloatFunction(math.exp, np.exp, 10, False),
    "log": FloatFunction(math.log, np.log, 10, False),
    "sqrt": FloatFunction(math.sqrt, np.sqrt, 4, False),
    "tanh": FloatFunction(math.tanh, np.tanh, 15, False),
    "erf": FloatFunction(math.erf, _erf, 15, False),
    "sin": FloatFunction(math.sin, np.sin),
    "cos": FloatFunction(math.cos, np.cos),
    "tan": FloatFunction(math.tan, np.tan),
    "asin": FloatFunction(math.asin, np.arcsin),
    "acos": FloatFunction(math.acos, np.arccos),
    "atan": FloatFunction(math.atan, np.arctan),
    "sinh": FloatFunction(_sinh, np.sinh),
    "cosh": FloatFunction(math.cosh, np.cosh),
    "asinh": FloatFunction(math.asinh, np.arcsinh),
    "acosh": FloatFunction(math.acosh, np.arccosh),
    "atanh": FloatFunction(_atanh, np.arctanh),
}
