"""The CPU's patterns of `expand` (`backends/cpu/expanders.py`)."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline

#: Queries with keys that lie row by row, and a mask.
KEYS = """func.func @main() -> {out} {{
  %q = ln.input : tensor<{q}xf32> as ("q")
  %k = ln.{keys} : {type} as ("k")
  %t = ln.transpose %k {{axes = [{axes}]}} : {turned}
  %p = ln.matmul %q, %t : {out} as ("p")
  %y = ln.relu %p : {out} as ("y")
  func.return %y : {out}
}}"""


def text(q: tuple[int, ...], k: tuple[int | str, ...], keys: str = "input") -> str:
    """The product of `q` with the transpose of `k`, whose dim of columns may be open."""

    def tensor(dims: tuple[int | str, ...]) -> str:
        shape = "x".join("?" if isinstance(d, str) else str(d) for d in dims)
        opens = ", ".join(f"{d}(1..90)" for d in dims if isinstance(d, str))
        return f"tensor<{shape}xf32" + (f', #ln.dims<"{opens}">>' if opens else ">")

    batch = np.broadcast_shapes(q[:-2], k[:-2])
    axes = (*range(len(k) - 2), len(k) - 1, len(k) - 2)
    return KEYS.format(q="x".join(map(str, q)), keys=keys, type=tensor(k), turned=tensor(tuple(k[a] for a in axes)),
                       axes=", ".join(map(str, axes)), out=tensor((*batch, q[-2], k[-2])))  # fmt: skip


def kernels(source: str) -> list[str]:
    """The ops of the kernels."""
    module = parse_mlir(make_context(), source)
    run_pipeline(make_context(), module, parse_pipeline("@cpu:kernels", {"target": "cpu"}), verify_each=True)
    printed = str(module)
    return [op for op in ("einsum", "matmul", "transpose") if f"ln.{op}" in printed]


@pytest.mark.parametrize(("q", "k"), [
    ((1, 64), ("n", 64)), ((2, 1, 32), (2, "n", 32)), ((1, 4, 8, 40), (1, 4, "n", 40)), ((3, 17), (29, 17)),
    ((2, 3, 4, 16), (1, 3, 33, 16)), ((1, 1, 2, 100), (2, "n", 100)), ((4, 5, 64), ("n", 64)),
])  # fmt: skip
def test_few_rows_read_keys_where_they_lie(q: tuple[int, ...], k: tuple[int | str, ...]) -> None:
    source = text(q, k)
    is_few = np.prod(q[:-1]) <= 8 if len(k) == 2 else q[-2] <= 8
    assert kernels(source) == (["einsum"] if is_few else ["matmul", "transpose"])
    run, rng = lightnet.compile(lightnet.loads(source, ".mlir")), np.random.default_rng(0)
    for n in (1, 7, 33, 90) if "n" in k else (0,):
        a = rng.standard_normal(q, np.float32)
        b = rng.standard_normal([n if d == "n" else d for d in k], np.float32)
        expected = np.maximum(a.astype(float) @ b.astype(float).swapaxes(-1, -2), 0)
        np.testing.assert_allclose(run({"q": a, "k": b})["y"], expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("what", "source"), [
    ("many rows", text((9, 64), ("n", 64))),
    ("short sums", text((1, 8), ("n", 8))),
    ("weights are turned over once", text((1, 64), (90, 64), "param")),
])  # fmt: skip
def test_others_are_products(what: str, source: str) -> None:
    assert "einsum" not in kernels(source), what


def test_a_transpose_that_is_read_elsewhere_stays() -> None:
    source = text((1, 32), (5, 32)).replace("func.return %y", "%z = ln.exp %t : tensor<32x5xf32>\n  func.return %y, %z")
    source = source.replace("-> tensor<1x5xf32>", "-> (tensor<1x5xf32>, tensor<32x5xf32>)")
    source = source.replace("%y, %z : tensor<1x5xf32>", "%y, %z : tensor<1x5xf32>, tensor<32x5xf32>")
    assert kernels(source) == ["einsum", "transpose"]
