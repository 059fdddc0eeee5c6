"""The shape of loop nests, before code is built: index divisions that a cut of a loop makes vanish."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from kernels import run_native

from lightnet.backends.loop_addresses import Addresses
from lightnet.backends.loop_shapes import TILE, collapsed_reductions, turned, unfolded
from lightnet.backends.loops import LOOP_BLOCKS, lower_definition
from lightnet.ir.bound import Apply, Read, walk_nodes
from lightnet.ir.fusion import linearize, nests
from lightnet.ir.notation import bind
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME
from lightnet_trust.interpreter.notation import evaluate_definition


def divisions(nest) -> int:
    nodes = (n for s in nest.statements for root in (*s.subs, s.value) for n in walk_nodes(root))
    return sum(isinstance(n, Apply) and n.fn in ("floordiv", "mod") for n in nodes)


def bound(text: str, src: tuple[int, ...], dst: tuple[int, ...]):
    f32 = BY_NAME["f32"]
    return bind(text, {"src": TensorSpec(src, f32), "dst": TensorSpec(dst, f32)}, {}, ["dst"])


def test_a_channel_shuffle_has_no_divisions():
    """Row-major numbers of [2, 12, 5], where the 12 channels are 3 groups of 4 that change places: three cuts."""
    text = "dst.flat[i] = src.flat[i / 60 * 60 + (i / 5 % 3) * 20 + (i / 15 % 4) * 5 + i % 5]"
    definition = bound(text, (120,), (120,))
    (nest,) = nests(definition)
    after = unfolded(nest, 0)
    assert divisions(nest) > 0 and divisions(after) == 0
    assert [n for _, n in after.loops] == [2, 4, 3, 5]
    x = np.arange(120, dtype=np.float32)
    want = x.reshape(2, 3, 4, 5).swapaxes(1, 2).reshape(120)
    np.testing.assert_array_equal(evaluate_definition(definition, {"src": x})["dst"], want)
    assert "divsi" not in str(lower_definition("k", definition).kernels[0].func.body)


def test_what_does_not_divide_stays():
    """7 does not divide 20, and nothing is gained by cutting elsewhere."""
    (nest,) = nests(bound("dst.flat[i] = src.flat[i % 7]", (7,), (20,)))
    assert unfolded(nest, 0) is nest


def test_shared_loops_are_not_cut():
    """The loops in front are those of the grid, which other nests share."""
    (nest,) = nests(bound("dst[i, j] = src[i / 2, j]", (4, 3), (8, 3)))
    assert unfolded(nest, 1) is nest
    assert [n for _, n in unfolded(nest, 0).loops] == [4, 2, 3]


@pytest.mark.parametrize("axes, loops", [((2, 3), [30]), ((1, 3), [4, 6]), ((1, 2, 3), [120])])
def test_adjacent_reductions_are_one_loop(axes, loops):
    """A mean over rows and columns runs over pixels; axes that are apart stay two loops."""
    kept = [f"x{k}" if k not in axes else "0" for k in range(4)]
    read = ", ".join(f"x{k}" if k not in axes else f"r{k}" for k in range(4))
    dims = tuple(1 if k in axes else n for k, n in enumerate((3, 4, 5, 6)))
    definition = bound(f"dst[{', '.join(kept)}] += src[{read}]", (3, 4, 5, 6), dims)
    (statement,) = definition.statements
    flat = replace(statement, value=flattened(statement.value, (3, 4, 5, 6)))
    assert [n for _, n in collapsed_reductions(flat).reductions] == loops


def flattened(read, dims):
    """The read by its linear address, as loops are lowered from."""
    return Read(read.tensor, (linearize(read.subs, dims),), None, read.dtype, True)


@pytest.mark.parametrize(
    "rows, columns, tiled", [(512, 40, True), (1024, 131, True), (515, 131, False), (20, 1024, True)]
)
def test_transposes_run_in_tiles(rows, columns, tiled):
    """What reads across rows that are a power of two apart goes by tiles, the ends of which may be smaller."""
    definition = bound("dst[i, j] = 2 * src[j, i]", (columns, rows), (rows, columns))
    x = np.random.default_rng(0).normal(size=(columns, rows)).astype(np.float32)
    (kernel,) = lower_definition("k", definition).kernels
    assert ("minsi" in str(kernel.func)) == tiled
    (got,) = run_native(kernel.func, kernel.grid, [x], [TensorSpec((rows, columns), BY_NAME["f32"])])
    np.testing.assert_array_equal(got, 2 * x.T)


@pytest.mark.parametrize(
    "order", [(1, 0), (1, 2, 0), (2, 0, 1), (2, 1, 0), (3, 1, 2, 0), (2, 3, 0, 1), (2, 1, 3, 0)], ids=str
)
def test_a_turned_nest_has_each_loop_once(order):
    """The axis along which the source lies comes second to last, the last one stays; a block is a row of tiles, and no
    element is written twice."""
    dims = (512, 40, 64, 48)[: len(order)]
    names = [f"x{k}" for k in range(len(order))]
    read = ", ".join(names[order.index(k)] for k in range(len(order)))
    definition = bound(f"dst[{', '.join(names)}] = src[{read}]", dims, tuple(dims[k] for k in order))
    (nest,) = (Addresses(definition.specs, {}).flat(nest, 0) for nest in nests(definition))
    found = turned(nest)
    assert sorted(found.loops) == sorted(nest.loops) and found.loops[-1] == nest.loops[-1]
    assert all(s.loops == found.loops for s in found.statements)
    *outer, (_, rows), _ = found.loops
    assert rows % dims[-1] == 0, "axes that lie beside each other in both are one loop"
    (kernel,) = lower_definition("k", definition).kernels
    assert kernel.grid == prod(n for _, n in outer) * -(-rows // TILE[0])


@pytest.mark.parametrize("n", [(1 << 18) + 1, 300_007])
@pytest.mark.parametrize("text", ["dst[i] = 2 * src[i]", "dst[i] = src[i / 2]", "dst[i] = src[n - 1 - i]"])
def test_a_long_loop_is_cut_into_pieces(text, n):
    """There are blocks enough for threads, none of which has all the work, and they write each element."""
    definition = bound(text.replace("n", str(n)), (n,), (n,))
    x = np.random.default_rng(0).normal(size=n).astype(np.float32)
    (kernel,) = lower_definition("k", definition).kernels
    assert 16 <= kernel.grid <= LOOP_BLOCKS
    (got,) = run_native(kernel.func, kernel.grid, [x], [TensorSpec((n,), BY_NAME["f32"])])
    np.testing.assert_array_equal(got, evaluate_definition(definition, {"src": x})["dst"])
