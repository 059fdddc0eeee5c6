"""Params that hold the same contents: one takes the place of the others, before any pass runs.

A model that ties weights may have them as several tensors of equal bytes, or as one and its transpose (exporters
compute a transpose of a constant). No pass reads what a param holds; who compiles has the weights, and does this first.
Only params from a weight store of at least `LEAST` bytes are looked at; most are told apart by a few elements. What is
tied can be fed no other contents than its twin (`Executable`). Imports the dialect and the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Transpose
from lightnet.dialects.ln.source import ParamOp
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import set_tensor_names
from lightnet.ir.types import TensorSpec
from lightnet.runtime.files import release_pages
from lightnet.runtime.weights import WeightStore

#: Bytes of the smallest param that is compared.
LEAST = 1 << 16
#: Rows that are compared at a time, and params of which a few elements are read, before pages of their files are given
#: back.
ROWS, READ = 256, 16


@dataclass(frozen=True)
class Tied:
    """The param in whose place another one stands, `twin`, or its transpose, and the type that it has."""

    twin: str
    spec: TensorSpec


def tie(module: ModuleOp, store: WeightStore | None) -> dict[str, Tied]:
    """Let readers of a param whose contents are those of an earlier one, or their transpose, read that one. What was
    tied, by name."""
    if store is None or memory_of(module):
        return {}
    found: dict[str, Tied] = {}
    kept: dict[tuple[object, ...], list[ParamOp]] = {}
    ops = [op for op in main_of(module).body.block.ops if isinstance(op, ParamOp) and _may_be_tied(op, store)]
    for k, op in enumerate(ops):
        if (array := _array(op, store)) is None:
            continue
        spec = op.result_specs[0]
        matrix = array.reshape(len(array), -1)
        twins = [(t, False) for t in kept.get((spec, _sample(matrix)), ())]
        if spec.ndim == 2:
            twins += [(t, True) for t in kept.get((TensorSpec(spec.dims[::-1], spec.dtype), _sample(matrix.T)), ())]
        twin = next((t for t in twins if _equal(t[0], matrix, store, t[1])), None)
        if twin is None:
            kept.setdefault((spec, _sample(matrix)), []).append(op)
        else:
            found[_name(op)] = Tied(_name(twin[0]), spec)
            _replace(op, *twin)
        if k % READ == READ - 1:
            release_pages()
    if ops:
        release_pages()
    return found


def _name(op: ParamOp) -> str:
    return op.tensor_names[0] or ""


def _may_be_tied(op: ParamOp, store: WeightStore) -> bool:
    spec, name = op.result_specs[0], _name(op)
    used = not any(isinstance(use.operation, ReturnOp) for use in op.dst.uses)
    return op.from_file and spec.nbytes >= LEAST and name in store and store.dtype(name) == spec.dtype and used


def _replace(op: ParamOp, twin: ParamOp, is_turned: bool) -> None:
    value, block = twin.dst, op.parent
    assert block is not None
    if is_turned:
        turned = Transpose.make([value], {"axes": (1, 0)})
        turned.location = op.location
        block.insert_op_before(turned, op)
        set_tensor_names(turned, op.tensor_names)
        value = turned.results[0]
    op.dst.replace_all_uses_with(value)
    op.detach()
    op.erase()


def _array(op: ParamOp, store: WeightStore) -> np.ndarray | None:
    """The contents of a param as integers, None where they are not in memory or in a mapped file as they are, or do not
    fit."""
    try:
        array = op.contents(store)
    except LightNetError:
        return None  # which is said where it is loaded
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return array.view(f"u{array.itemsize}") if isinstance(base, memoryview) and array.itemsize <= 8 else None


def _sample(matrix: np.ndarray) -> bytes:
    """Elements at the corners, of which the transpose has those of the transpose."""
    rows, columns = (sorted({0, min(1, n - 1), n - 1}) for n in matrix.shape)
    return matrix[np.ix_(rows, columns)].tobytes()


def _equal(twin: ParamOp, matrix: np.ndarray, store: WeightStore, is_turned: bool) -> bool:
    """Return whether what a param holds is `matrix`, bit for bit, or its transpose."""
    other = _array(twin, store)
    assert other is not None
    other = other.T if is_turned else other.reshape(matrix.shape)
    return all(_same(matrix[i : i + ROWS], other[i : i + ROWS]) for i in range(0, len(matrix), ROWS))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    release_pages()
    return np.array_equal(a, b)


def check_fed(tied: Mapping[str, Tied], fed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The feeds, less the params that are tied. Raises `LightNetError` where params that are tied are not fed
    alike."""
    groups: dict[str, list[str]] = {}
    for name, found in tied.items():
        groups.setdefault(found.twin, []).append(name)
    for twin, names in groups.items():
        if twin not in fed and not any(name in fed for name in names):
            continue
        first = fed.get(twin)
        if first is None or not all(name in fed and _agree(first, fed[name]) for name in names):
            raise LightNetError(
                f"the params {', '.join((twin, *names))} held the same contents when the network was compiled, and are "
                "one in memory: feed all of "
                "them, alike, or compile with the contents that they should have",
                label="feed.tied",
            )
    return {name: array for name, array in fed.items() if name not in tied}


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.shape == b.shape and a.tobytes() == b.tobytes()) or (
        a.ndim == 2 and a.T.shape == b.shape and a.T.tobytes() == b.tobytes()
    )
