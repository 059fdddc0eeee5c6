"""Sorting by digits: many keys, against NumPy's stable sort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.dialects.ln.radix import WORTH


def sorted_by(path: Path, key: np.ndarray, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    """Keys and the numbers of the elements, as a network of one op gives them."""
    kind = {"f": "f32", "i": "i32", "u": "ui32"}[key.dtype.kind]
    n, direction = len(key), "DESCENDING" if descending else "ASCENDING"
    text = f"""
func.func @main() -> (tensor<{n}x{kind}>, tensor<{n}xi32>) {{
  %k = ln.input : tensor<{n}x{kind}> as ("k")
  %v = ln.input : tensor<{n}xi32> as ("v")
  %a, %b = ln.sort1d_by_key %k, %v {{dir = "TL_SORT_DIR_{direction}"}} : tensor<{n}x{kind}>, tensor<{n}xi32> as ("a", "b")
  func.return %a, %b : tensor<{n}x{kind}>, tensor<{n}xi32>
}}"""
    path.write_text(text)
    found = lightnet.compile(lightnet.load(str(path)))({"k": key, "v": np.arange(n, dtype=np.int32)})
    return found["a"], found["b"]


def wanted(key: np.ndarray, descending: bool) -> np.ndarray:
    """The stable order; NaN is the largest key."""
    order = np.argsort(key, kind="stable")
    return len(key) - 1 - np.argsort(key[::-1], kind="stable")[::-1] if descending else order


def keys(kind: str, n: int) -> np.ndarray:
    random = np.random.default_rng(n)
    if kind == "f32":
        found = random.standard_normal(n).astype(np.float32)
        special = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0]
        found[random.permutation(n)[: n // 3]] = random.choice(np.array(special, np.float32), n // 3)
        return found
    low, high = (-(2**31), 2**31) if kind == "i32" else (0, 2**32)
    found = random.integers(low, high, n)
    found[: n // 4] = random.integers(0, 3, n // 4)
    return found.astype(np.int32 if kind == "i32" else np.uint32)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["f32", "i32", "ui32"])
@pytest.mark.parametrize("n", [WORTH - 1, WORTH, 3001])
def test_keys_and_values_are_in_order(tmp_path, kind, n, descending):
    key = keys(kind, n)
    order = wanted(key, descending)
    got, values = sorted_by(tmp_path / "sort.mlir", key, descending)
    np.testing.assert_array_equal(values, order)
    assert got.tobytes() == key[order].tobytes()  # -0 and NaN as they came in
