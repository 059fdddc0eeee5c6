"""Loads and stores, of one element or a vector, in every state space. Imports NumPy. Source: "PTX ISA", 9.7.9."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import tree as ptx
from lightnet_ptx.tables import DTYPES

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any

_SCOPE = r"\.(?:cta|cluster|gpu|sys)"
_SPACE = r"(?:\.(global|shared|shared::cta|local|const|param|param::entry|param::func))?"
_TYPE = r"(?:\.(v2|v4))?\.([bsu](?:8|16|32|64)|f32|f64)"
_HINTS = r"(?:\.L1::(?:evict_normal|evict_unchanged|evict_first|evict_last|no_allocate))?(?:\.L2::(?:64B|128B|256B))?"
_LD = (
    rf"ld(\.weak|\.volatile|\.relaxed{_SCOPE}|\.acquire{_SCOPE})?{_SPACE}"
    rf"(?:\.(?:ca|cg|cs|lu|cv))?(\.nc)?{_HINTS}{_TYPE}"
)
_ST = rf"st(\.weak|\.volatile|\.relaxed{_SCOPE}|\.release{_SCOPE})?{_SPACE}(?:\.(?:wb|cg|cs|wt))?{_HINTS}{_TYPE}"


def space_of(name: str | None) -> str:
    """The state space that a modifier names; none is the generic one."""
    return (name or "generic").split("::")[0]


def _items(site: Site, operand: ptx.Operand, vector: str | None) -> tuple[ptx.Operand, ...]:
    if vector is None:
        return (operand,)
    if not isinstance(operand, ptx.Vec) or len(operand.items) != int(vector[1:]):
        raise site.error(f"a vector of {vector[1:]} registers is expected")
    return operand.items


def _load(site: Site, match: re.Match[str]) -> Step:
    """A vector may have elements that nobody reads: LLVM makes a vector of four out of three loads where the address is
    aligned for that, and such a one is never beyond the end of a page. They do not count as accesses."""
    site.count(2)
    order, named, hint, vector, kind = match.groups()
    constant = hint is not None
    if constant and named != "global":
        raise site.error(".nc is for global memory")
    items = _items(site, site.operands[0], vector)
    address, space = site.address(site.operands[1], space_of(named))
    dtype, count = DTYPES[kind], len(items)
    live = [i for i, item in enumerate(items) if not site.decoder.is_unread(item)]
    several = 0 < len(live) < count
    site.touches(space, dtype.itemsize * (1 if several else count))
    slots = [site.slot(item, kind, True) for item in items]
    kinds = site.decoder.kernel.kinds
    stored = [kinds[s] if s is not None else dtype for s in slots]
    wide = [np.dtype(f"{'i' if kind[0] == 's' else 'u'}{d.itemsize}") for d in stored]
    strong = order not in (None, ".weak")
    meaning = order.split(".")[1] if order else ""
    if space == "kparam":
        return _param(site, address, dtype, slots, wide, stored)
    raw = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{dtype.itemsize}")

    def run_live(batch: Batch) -> None:
        where = batch.active(address(batch.regs))
        batch.require_aligned(where, dtype.itemsize * count)
        for i in live:
            slot, at = slots[i], where + np.uint64(i * dtype.itemsize)
            values = batch.load(space, at, raw, 1, strong, constant)
            batch.put_active(slot, values.astype(wide[i], copy=False).view(stored[i]))

    if several:
        return run_live

    def run(batch: Batch) -> None:
        where = batch.active(address(batch.regs))
        values = batch.load(space, where, raw, count, strong, constant)
        if strong:
            batch.order(space, where, True, False, meaning)
        if count == 1:
            batch.put_active(slots[0], values.astype(wide[0], copy=False).view(stored[0]))
            return
        for i, slot in enumerate(slots):
            batch.put_active(slot, np.ascontiguousarray(values[:, i]).astype(wide[i], copy=False).view(stored[i]))

    return run


def _param(
    site: Site, address: Any, dtype: np.dtype, slots: list[int | None], wide: list[np.dtype], stored: list[np.dtype]
) -> Step:
    """From the kernel's parameters: mostly at one address for all threads, and then one value."""
    raw = np.dtype(f"{wide[0].kind}{dtype.itemsize}")

    def run(batch: Batch) -> None:
        where = np.asarray(address(batch.regs))
        same = where.ndim == 0
        values = batch.load("kparam", where.reshape(1) if same else batch.active(where), raw, len(slots)).reshape(
            -1, len(slots)
        )
        for i, slot in enumerate(slots):
            column = np.ascontiguousarray(values[:, i]).astype(wide[i]).view(stored[i])
            if same:
                batch.put(slot, column[0])
            else:
                batch.put_active(slot, column)

    return run


def _store(site: Site, match: re.Match[str]) -> Step:
    site.count(2)
    order, named, vector, kind = match.groups()
    address, space = site.address(site.operands[0], space_of(named))
    items = _items(site, site.operands[1], vector)
    bits = f"b{8 * DTYPES[kind].itemsize}"
    count = len(items)
    site.touches(space, DTYPES[kind].itemsize * count)
    before = set(site.uses)
    readers = [site.reader(item, kind if isinstance(item, ptx.Imm) else bits, True) for item in items]
    values_from = site.uses - before
    dtype = DTYPES[bits]
    strong = order not in (None, ".weak")
    meaning = order.split(".")[1] if order else ""
    if count == 1 and values_from and not before & values_from:
        site.copies = True  # the bytes become undefined, if the register is

    def run(batch: Batch) -> None:
        columns = [batch.active(read(batch.regs)).view(dtype) for read in readers]
        values = columns[0] if count == 1 else np.stack(columns, axis=1)
        state: Array = 1
        if site.copies and batch.defined:
            for slot in values_from:
                if slot in batch.defined:
                    state = batch.active(batch.defined[slot]).astype(np.uint8)
        where = batch.active(address(batch.regs))
        if strong:
            batch.order(space, where, False, True, meaning)
        batch.store(space, where, values, count, strong, state)

    return run


EXACT: dict[str, Any] = {}
PATTERNS = [("ld", _LD, _load), ("st", _ST, _store)]
