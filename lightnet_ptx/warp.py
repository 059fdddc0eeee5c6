"""Instructions by which the lanes of a warp exchange values: shuffles, votes, matches, reductions. Imports NumPy. "PTX
ISA", 9.7.9.6, 9.7.13.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx import tree as ptx
from lightnet_ptx.tables import DTYPES

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any
u32 = np.uint32
WARP = 32


def _lanes(batch: Batch, value: Array) -> Array:
    """A value by warp: [warps, 32]."""
    return np.broadcast_to(value, batch.lanes).reshape(-1, WARP)


def _here(batch: Batch) -> Array:
    return batch.mask_array().reshape(-1, WARP)


def _to_warp(batch: Batch, value: Array) -> Array:
    """One value a warp, for all its lanes."""
    return np.repeat(value, WARP)


def _two(site: Site, kind: str) -> tuple[int | None, int | None]:
    dest = site.operands[0]
    if isinstance(dest, ptx.Pair):
        return site.slot(dest.first, kind), site.slot(dest.second, "pred")
    return site.slot(dest, kind), None


def _shuffle(site: Site, match: re.Match[str]) -> Step:
    """``shfl.sync.mode d|p, a, b, c, members``: the value of a lane that `b` says, in the segments that `c` says."""
    site.count(5)
    mode = match[1]
    slot, valid = _two(site, "b32")
    value, b, c, members = (site.reader(o, "b32") for o in site.operands[1:])

    def run(batch: Batch) -> None:
        if not batch.gather_warps(members(batch.regs)):
            return
        regs = batch.regs
        source, inside = _source(mode, _lanes(batch, b(regs)).astype(np.int64), _lanes(batch, c(regs)).astype(np.int64))
        here = _here(batch)
        silent = here & ~np.take_along_axis(here, source, axis=1)
        if silent.any():
            lane = int(np.argmax(silent))
            findings.fail(
                batch,
                "missing-lane",
                f"reads from lane {int(source.ravel()[lane])} of its warp, which does not take part",
                lane,
            )
        batch.put(slot, np.take_along_axis(_lanes(batch, value(regs)), source, axis=1).ravel())
        batch.put(valid, inside.ravel())

    return run


def _source(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane that each reads from, and whether that is inside its segment (else it is the lane itself)."""
    lane = np.arange(WARP)
    b, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    low = lane & segment
    high = low | (clamp & ~segment)
    if mode == "up":
        source = lane - b
        inside = source >= high
    else:
        source = {"down": lane + b, "bfly": lane ^ b, "idx": low | (b & ~segment)}[mode]
        inside = source <= high
    return np.where(inside, source, lane), inside


def _vote(site: Site, match: re.Match[str]) -> Step:
    site.count(3)
    mode = match[1]
    slot = site.slot(site.operands[0], "b32" if mode == "ballot" else "pred")
    test, members = site.reader(site.operands[1], "pred"), site.reader(site.operands[2], "b32")

    def run(batch: Batch) -> None:
        if not batch.gather_warps(members(batch.regs)):
            return
        hold, here = _lanes(batch, test(batch.regs)), _here(batch)
        yes = hold & here
        if mode == "ballot":
            batch.put(slot, _to_warp(batch, _bits(yes)))
            return
        every = (hold | ~here).all(axis=1)
        result = {"all": every, "any": yes.any(axis=1), "uni": every | ~yes.any(axis=1)}[mode]
        batch.put(slot, _to_warp(batch, result))

    return run


def _bits(lanes: Array) -> Array:
    """[..., 32] bools as words."""
    return (lanes.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=-1).astype(u32)


def _elect(site: Site) -> Step:
    """``elect.sync d|p, members``: p is true in one lane of the warp, whose number is d: here the first."""
    site.count(2)
    slot, chosen = _two(site, "b32")
    members = site.reader(site.operands[1], "b32")

    def run(batch: Batch) -> None:
        if not batch.gather_warps(members(batch.regs)):
            return
        first = np.argmax(_here(batch), axis=1)
        batch.put(slot, _to_warp(batch, first.astype(u32)))
        batch.put(chosen, batch.tid % WARP == _to_warp(batch, first))

    return run


def _active(site: Site) -> Step:
    site.count(1)
    slot = site.slot(site.operands[0], "b32")
    return lambda batch: batch.put(slot, _to_warp(batch, _bits(_here(batch))))


def _match_lanes(site: Site, match: re.Match[str]) -> Step:
    """``match.any d, a, members``: the lanes with the same value; ``match.all``: all of them if they agree, else 0."""
    site.count(3)
    mode, kind = match[1], match[2]
    slot, agree = _two(site, "b32")
    value, members = site.reader(site.operands[1], kind), site.reader(site.operands[2], "b32")

    def run(batch: Batch) -> None:
        if not batch.gather_warps(members(batch.regs)):
            return
        values, here = _lanes(batch, value(batch.regs)), _here(batch)
        equal = (values[:, :, None] == values[:, None, :]) & here[:, None, :]
        words = _bits(equal)
        if mode == "all":
            everyone = _bits(here)[:, None]
            same = words == everyone
            words = np.where(same, words, u32(0))
            batch.put(agree, same.ravel())
        batch.put(slot, words.ravel())

    return run


_REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _reduce(site: Site, match: re.Match[str]) -> Step:
    site.count(3)
    ufunc, dtype = _REDUCE[match[1]], DTYPES[match[2]]
    info = np.iinfo(dtype)
    neutral = dtype.type({"add": 0, "or": 0, "xor": 0, "and": info.max, "min": info.max, "max": info.min}[match[1]])
    slot = site.slot(site.operands[0], match[2])
    value, members = site.reader(site.operands[1], match[2]), site.reader(site.operands[2], "b32")

    def run(batch: Batch) -> None:
        if not batch.gather_warps(members(batch.regs)):
            return
        values = np.where(_here(batch), _lanes(batch, value(batch.regs)), neutral)
        batch.put(slot, _to_warp(batch, ufunc.reduce(values, axis=1, dtype=dtype)).view(u32))

    return run


EXACT = {"activemask.b32": _active, "elect.sync": _elect}
PATTERNS = [
    ("shfl", r"shfl\.sync\.(up|down|bfly|idx)\.b32", _shuffle),
    ("vote", r"vote\.sync\.(all|any|uni)\.pred", _vote),
    ("vote", r"vote\.sync\.(ballot)\.b32", _vote),
    ("match", r"match\.(any|all)\.sync\.(b32|b64)", _match_lanes),
    ("redux", r"redux\.sync\.(add|min|max)\.([su]32)", _reduce),
    ("redux", r"redux\.sync\.(and|or|xor)\.(b32)", _reduce),
]
