"""The values of types that are only stored in, all patterns of their bits, as ml_dtypes has them; and numbers at the ends of their ranges."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from lightnet.runtime import numbers, stored
from lightnet.runtime.dtypes import BY_NAME

ml_dtypes = pytest.importorskip("ml_dtypes")
NAMES = {
    "i4": "int4", "ui4": "uint4", "i2": "int2", "ui2": "uint2", "f8E4M3FN": "float8_e4m3fn", "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E8M0FNU": "float8_e8m0fnu", "f4E2M1FN": "float4_e2m1fn",
}  # fmt: skip


def test_every_pattern_of_bits() -> None:
    assert stored.FORMATS.keys() == NAMES.keys()
    for name, theirs in NAMES.items():
        form = stored.FORMATS[name]
        found = stored._values.__wrapped__(form)
        want = np.arange(1 << form.bits, dtype=np.uint8).view(getattr(ml_dtypes, theirs))
        want = want.astype(np.int64 if form.mantissa is None else np.float32)
        np.testing.assert_array_equal(found, want, name)
        kept = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(found[kept]), np.signbit(want[kept]), name)
        whole = np.uint8 if theirs.startswith("u") else np.int8
        carrier = np.dtype(whole if form.mantissa is None else np.float32)
        assert found.dtype == np.dtype(BY_NAME[form.carrier].np) == carrier, name
        finite = want[np.isfinite(want)]
        assert BY_NAME[name].limits == (finite.min(), finite.max()), name


def test_limits_of_types() -> None:
    for name, dtype in {"i8": np.int8, "ui64": np.uint64, "i32": np.int32}.items():
        info = np.iinfo(dtype)
        assert BY_NAME[name].limits == (info.min, info.max)
    for name, kind in {"f16": np.float16, "f32": np.float32, "f64": np.float64}.items():
        assert BY_NAME[name].limits == (float(np.finfo(kind).min), float(np.finfo(kind).max))
    most = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert BY_NAME["bf16"].limits == (-most, most) and BY_NAME["i1"].limits == (0, 1)


@pytest.mark.parametrize(("value", "int_", "float_", "double"), [
    (2**31 - 1, 2**31 - 1, 2.0**31, 2.0**31 - 1), (2**31, 2**31 - 1, 2.0**31, 2.0**31), (-(2**31), -(2**31), -(2.0**31), -(2.0**31)),
    (-(2**31) - 1, -(2**31), -(2.0**31), -(2.0**31) - 1), (-(2**31) + 1, -(2**31) + 1, -(2.0**31), -(2.0**31) + 1), (-2.7, -2, float(np.float32(-2.7)), -2.7), (2.7, 2, float(np.float32(2.7)), 2.7),
    (numbers.FLT_MAX, 2**31 - 1, numbers.FLT_MAX, numbers.FLT_MAX), (1e39, 2**31 - 1, numbers.FLT_MAX, 1e39), (-1e39, -(2**31), -numbers.FLT_MAX, -1e39),
    (10**400, 2**31 - 1, numbers.FLT_MAX, sys.float_info.max), (-(10**400), -(2**31), -numbers.FLT_MAX, -sys.float_info.max), (math.inf, 2**31 - 1, numbers.FLT_MAX, math.inf),
    (0, 0, 0.0, 0.0), (1e-46, 0, 0.0, 1e-46),
])  # fmt: skip
def test_numbers_that_operators_read(value: float, int_: int, float_: float, double: float) -> None:
    assert (
        numbers.as_realtype(value, "int"),
        numbers.as_realtype(value, "float"),
        numbers.as_realtype(value, "double"),
    ) == (int_, float_, double)


def test_what_is_no_number() -> None:
    assert (
        numbers.as_int(math.nan) == 0
        and math.isnan(numbers.as_float(math.nan))
        and math.isnan(numbers.as_double(math.nan))
    )
