"""Atomic read-modify-write operations: `atom` and `red`. Imports NumPy. "PTX ISA", 9.7.13.5 and 9.7.13.6.

Lanes of one instruction that name the same address take their turns in the order of lanes; hardware may take any. So
sums of floats may differ from hardware's in the last bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx.access import space_of
from lightnet_ptx.rounding import bf16_to_f32, f32_to_bf16
from lightnet_ptx.tables import DTYPES, packed

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any
Function = Callable[..., Array]

_ANY = ("b32", "b64")
_INT = ("u32", "s32", "u64", "s64")
#: Types by operation.
_TYPES: dict[str, tuple[str, ...]] = {
    "and": _ANY,
    "or": _ANY,
    "xor": _ANY,
    "exch": _ANY,
    "cas": ("b16", *_ANY),
    "min": _INT,
    "max": _INT,
    "inc": ("u32",),
    "dec": ("u32",),
    "add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.f16x2", "noftz.bf16", "noftz.bf16x2"),
}
_SIMPLE: dict[str, Function] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "add": np.add,
    "exch": lambda old, b: b,
    "inc": lambda old, b: np.where(old >= b, np.uint32(0), old + np.uint32(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - np.uint32(1)),
    "cas": lambda old, b, c: np.where(old == b, c, old),
}


def _function(op: str, kind: str) -> Function:
    if kind in ("bf16", "bf16x2"):
        add: Function = lambda a, b: f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))  # noqa: E731
        return add if kind == "bf16" else packed(add, np.uint16)
    return packed(np.add, np.float16) if kind == "f16x2" else _SIMPLE[op]


def _atomic(site: Site, match: re.Match[str]) -> Step:
    reduction, meaning, named, op, kind = match[1] == "red", match[2] or "", match[3], match[4], match[5]
    if kind not in _TYPES[op] or (reduction and op in ("exch", "cas")):
        raise site.error(f"instruction {site.opcode} is not understood", "opcode")
    kind = kind.removeprefix("noftz.")
    sources = 2 if op == "cas" else 1
    site.count((1 if reduction else 2) + sources)
    operands = site.operands if reduction else site.operands[1:]
    address, space = site.address(operands[0], space_of(named))
    dtype = DTYPES[kind]
    site.touches(space, dtype.itemsize)
    readers = [site.reader(o, kind) for o in operands[1:]]
    slot = None if reduction else site.slot(site.operands[0], kind)
    stored = np.dtype(f"u{dtype.itemsize}")
    fn = _function(op, kind)

    def run(batch: Batch) -> None:
        values = [batch.active(read(batch.regs)) for read in readers]
        where = batch.active(address(batch.regs))
        batch.order(space, where, not reduction, True, meaning)
        old = _update(batch, space, where, values, fn, dtype)
        batch.put_active(slot, old.view(stored))

    return run


def _update(batch: Batch, space: str, addresses: Array, values: list[Array], fn: Function, dtype: np.dtype) -> Array:
    """Apply `fn` for each lane; what was there before each."""
    nbytes, result = dtype.itemsize, np.zeros(len(addresses), dtype)
    for store, offsets, positions in batch.places(space, addresses, nbytes):
        if store.state is not None:
            batch.check_states(store, offsets, nbytes, positions, False)
        batch.note_write(store, offsets, nbytes, positions, True, None)
        cells, mine = store.rows(dtype, 1), [v if positions is None else v[positions] for v in values]
        at = offsets // nbytes
        got = np.zeros(len(at), dtype)
        for turn in _turns(at):
            got[turn] = cells[at[turn]]
            cells[at[turn]] = fn(got[turn], *(v[turn] for v in mine))
        result[slice(None) if positions is None else positions] = got
    return result


def _turns(at: Array) -> list[Array]:
    """Positions in groups of which each names a cell once: the first of each, the second of each, ..."""
    order = np.argsort(at, kind="stable")
    cells = at[order]
    first = np.concatenate(([True], cells[1:] != cells[:-1]))
    starts = np.nonzero(first)[0]
    rank = np.arange(len(at)) - np.repeat(starts, np.diff(np.append(starts, len(at))))
    if rank.max() == 0:
        return [np.arange(len(at))]
    by_rank = np.argsort(rank, kind="stable")
    return [order[part] for part in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])]


_OPS = "|".join(_TYPES)
EXACT: dict[str, Any] = {}
_ORDER = r"(?:\.(relaxed|acquire|release|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?"
PATTERNS = [
    (root, rf"({root}){_ORDER}(?:\.(global|shared|shared::cta))?\.({_OPS})\.([\w.]+)", _atomic)
    for root in ("atom", "red")
]
