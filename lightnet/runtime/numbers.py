"""The number model of operator parameters: a number is at once a double, a float and an int, each saturated.

LightNet keeps every number of a network (``stride``, ``epsilon``, ...) as the double that was written; an operator
reads it through its *realtype*, ``int``, ``float`` or ``double``. A value beyond the range of the type becomes the
nearest value inside it. Imports NumPy and the standard library only.
"""

from __future__ import annotations

import math
import sys

import numpy as np

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
FLT_MAX = float(np.finfo(np.float32).max)
DBL_MAX = sys.float_info.max


def as_int(value: int | float) -> int:
    """`value` as a C int: truncated toward zero, saturated to 32 bits; NaN is 0."""
    if value != value:
        return 0
    if value <= INT_MIN:
        return INT_MIN
    if value >= INT_MAX:
        return INT_MAX
    return math.trunc(value)


def as_float(value: int | float) -> float:
    """`value` rounded to the nearest float32, saturated to its finite range; NaN stays NaN."""
    if value >= FLT_MAX:
        return FLT_MAX
    if value <= -FLT_MAX:
        return -FLT_MAX
    with np.errstate(under="ignore"):
        return float(np.float32(float(value)))


def as_double(value: int | float) -> float:
    """`value` as a double; an integer beyond the range of doubles saturates (infinities and NaN stay)."""
    try:
        return float(value)
    except OverflowError:
        return DBL_MAX if value > 0 else -DBL_MAX


_REALTYPES = {"int": as_int, "float": as_float, "double": as_double}


def as_realtype(value: int | float, realtype: str) -> int | float:
    """`value` as an operator reads it; `realtype` is int, float or double (KeyError for another)."""
    return _REALTYPES[realtype](value)
