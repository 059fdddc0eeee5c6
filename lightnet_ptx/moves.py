"""Instructions that compute, from the tables, and moves: registers, constants, special registers, addresses, packing
and `cvta`. Imports NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import tree as ptx
from lightnet_ptx.memory import WINDOWS
from lightnet_ptx.tables import DTYPES, Row

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any
u32, u64 = np.uint32, np.uint64


def computing(row: Row) -> Callable[[Site], Step]:
    """The compiler of an instruction by a table's row."""

    def make(site: Site) -> Step:
        site.count(len(row.sources) + 1)
        wider = site.opcode.startswith("cvt")
        readers = [site.reader(o, k, wider) for o, k in zip(site.operands[1:], row.sources)]
        dest = site.operands[0]
        if isinstance(dest, ptx.Pair):
            return _two_predicates(site, row, readers, dest)
        dtype = DTYPES[row.dest]
        slot = site.slot(dest, row.dest, wider)
        widen = _widening(site, dest, dtype)  # of a conversion: others have registers of their size
        if widen is not None:
            inner = row.fn
            return _apply(lambda *xs: widen(inner(*xs)), readers, slot, widen.stored)
        return _apply(row.fn, readers, slot, np.dtype(bool) if row.dest == "pred" else np.dtype(f"u{dtype.itemsize}"))

    return make


def _widening(site: Site, dest: ptx.Operand, dtype: np.dtype) -> _Widen | None:
    found = site.register(dest)
    if found is None or dtype.kind not in "iu" or ptx.bytes_of(found[1]) == dtype.itemsize:
        return None
    return _Widen(dtype, ptx.bytes_of(found[1]))


class _Widen:
    """A shorter integer in a register, extended by its sign."""

    def __init__(self, dtype: np.dtype, size: int) -> None:
        self.wide, self.stored = np.dtype(f"{dtype.kind}{size}"), np.dtype(f"u{size}")

    def __call__(self, value: Array) -> Array:
        return np.asarray(value).astype(self.wide)


def _apply(fn: Callable[..., Array], readers: list[Any], slot: int | None, stored: np.dtype) -> Step:
    """The step for each number of operands: these run for nearly every instruction."""
    if len(readers) == 1:
        (a,) = readers
        return lambda batch: batch.put(slot, fn(a(batch.regs)).view(stored))
    if len(readers) == 2:
        a, b = readers

        def two(batch: Batch) -> None:
            regs = batch.regs
            batch.put(slot, fn(a(regs), b(regs)).view(stored))

        return two
    if len(readers) == 3:
        a, b, c = readers

        def three(batch: Batch) -> None:
            regs = batch.regs
            batch.put(slot, fn(a(regs), b(regs), c(regs)).view(stored))

        return three
    return lambda batch: batch.put(slot, fn(*(r(batch.regs) for r in readers)).view(stored))


def _two_predicates(site: Site, row: Row, readers: list[Any], dest: ptx.Pair) -> Step:
    """``setp ... p|q``: of a packed comparison the two results, else q is the opposite."""
    if row.dest != "pred":
        raise site.error("has one result")
    first, second = site.slot(dest.first, "pred"), site.slot(dest.second, "pred")
    both = site.opcode.endswith("x2")

    def run(batch: Batch) -> None:
        value = row.fn(*(r(batch.regs) for r in readers))
        if both:
            p, q = value[:, 0] if value.shape[1] == 1 else value
        else:
            p, q = value, np.logical_not(value)
        batch.put(first, p)
        batch.put(second, q)

    return run


# -- special registers
def _thread_part(axis: int) -> Callable[[Batch], Array]:
    def run(batch: Batch) -> Array:
        x, y, _ = batch.launch.block
        return ((batch.tid % x) if axis == 0 else (batch.tid // x % y) if axis == 1 else (batch.tid // (x * y))).astype(
            u32
        )

    return run


def _block_part(axis: int) -> Callable[[Batch], Array]:
    def run(batch: Batch) -> Array:
        x, y, _ = batch.launch.grid
        block = batch.first + batch.slot if batch.count > 1 else np.int64(batch.first)
        return ((block % x) if axis == 0 else (block // x % y) if axis == 1 else (block // (x * y))).astype(u32)

    return run


def _size(what: str, axis: int) -> Callable[[Batch], Array]:
    return lambda batch: u32(getattr(batch.launch, what)[axis])


def _lane(batch: Batch) -> Array:
    return (batch.tid % 32).astype(u32)


def _lane_mask(kind: str) -> Callable[[Batch], Array]:
    def run(batch: Batch) -> Array:
        bit = u32(1) << _lane(batch)
        below = bit - u32(1)
        return {"eq": bit, "lt": below, "le": below | bit, "gt": ~(below | bit), "ge": ~below}[kind]

    return run


_SPECIAL: dict[str, Callable[[Batch], Array]] = {
    **{f"%tid.{a}": _thread_part(i) for i, a in enumerate("xyz")},
    **{f"%ctaid.{a}": _block_part(i) for i, a in enumerate("xyz")},
    **{f"%ntid.{a}": _size("block", i) for i, a in enumerate("xyz")},
    **{f"%nctaid.{a}": _size("grid", i) for i, a in enumerate("xyz")},
    "%laneid": _lane,
    "%warpid": lambda b: (b.tid // 32).astype(u32),
    "%nwarpid": lambda b: u32(b.per_block // 32),
    "%smid": lambda b: u32(0),
    "%nsmid": lambda b: u32(1),
    "%gridid": lambda b: u32(0),
    **{f"%lanemask_{k}": _lane_mask(k) for k in ("eq", "lt", "le", "gt", "ge")},
}
#: Special registers that change: they count the instructions of the batch.
_CLOCKS: dict[str, Any] = {"%clock": u32, "%clock64": u64, "%globaltimer": u64, "%clock_hi": u32}


def _special(site: Site, name: str, kind: str) -> Step | None:
    if name in _CLOCKS:
        word = _CLOCKS[name]
        slot = site.slot(site.operands[0], f"u{8 * word().itemsize}")
        return lambda batch: batch.put(slot, word(batch.steps))
    compute = _SPECIAL.get(name)
    if compute is None:
        return None
    slot = site.slot(site.operands[0], kind)
    dtype = np.dtype(f"u{DTYPES[kind].itemsize}")

    def run(batch: Batch) -> None:
        value = batch.special.get(name)
        if value is None:
            value = batch.special[name] = compute(batch)
        batch.put(slot, value.astype(dtype))

    return run


# -- moves
def _move(site: Site, match: re.Match[str]) -> Step:
    site.count(2)
    kind = match[1]
    dest, source = site.operands
    if isinstance(source, ptx.Vec):
        return _pack(site, kind, source)
    if isinstance(dest, ptx.Vec):
        return _unpack(site, kind, dest)
    if isinstance(source, ptx.Reg) and (step := _special(site, source.name, kind)):
        return step
    read, slot = site.reader(source, kind), site.slot(dest, kind)
    site.copies = True
    stored = np.dtype(bool) if kind == "pred" else np.dtype(f"u{DTYPES[kind].itemsize}")
    return lambda batch: batch.put(slot, read(batch.regs).view(stored))


def _part(site: Site, kind: str, count: int) -> np.dtype:
    size = DTYPES[kind].itemsize // max(count, 1)
    if size * count != DTYPES[kind].itemsize or size not in (1, 2, 4):
        raise site.error(f"a vector of {count} for {kind}")
    return np.dtype(f"u{size}")


def _pack(site: Site, kind: str, source: ptx.Vec) -> Step:
    """``mov.b32 d, {low, high}``."""
    part, word = _part(site, kind, len(source.items)), DTYPES[kind].type
    bits = 8 * part.itemsize
    readers = [site.reader(o, f"b{bits}", bits == 8) for o in source.items]
    slot = site.slot(site.operands[0], kind)
    site.copies = True

    def run(batch: Batch) -> None:
        value = readers[0](batch.regs).astype(word)
        for i, read in enumerate(readers[1:], 1):
            value = value | (read(batch.regs).astype(word) << word(i * bits))
        batch.put(slot, value)

    return run


def _unpack(site: Site, kind: str, dest: ptx.Vec) -> Step:
    part, word = _part(site, kind, len(dest.items)), DTYPES[kind].type
    bits = 8 * part.itemsize
    read = site.reader(site.operands[1], kind)
    slots = [site.slot(o, f"b{bits}", bits == 8) for o in dest.items]
    stored = [site.decoder.kernel.kinds[s] if s is not None else part for s in slots]
    site.copies = True

    def run(batch: Batch) -> None:
        value = read(batch.regs)
        for i, slot in enumerate(slots):
            batch.put(slot, (value >> word(i * bits)).astype(part).astype(stored[i]))

    return run


def _cvta(site: Site, match: re.Match[str]) -> Step:
    """To and from generic addresses: global ones are the same."""
    site.count(2)
    to, space = match[1] is not None, match[2].replace("param", "kparam")
    base = u64(WINDOWS.get(space, 0))
    read, slot = site.reader(site.operands[1], "u64"), site.slot(site.operands[0], "u64")
    if to:
        return lambda batch: batch.put(slot, read(batch.regs) - base)
    return lambda batch: batch.put(slot, read(batch.regs) + base)


EXACT: dict[str, Callable[[Site], Step]] = {}
PATTERNS = [
    ("mov", r"mov\.(pred|[bus](?:16|32|64)|f32|f64)", _move),
    ("cvta", r"cvta(\.to)?\.(global|shared|local|const|param)\.u64", _cvta),
]
