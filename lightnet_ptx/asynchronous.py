"""`cp.async`: copies from global to shared memory that land when a thread waits for them. Imports NumPy. "PTX ISA",
9.7.9.25.

A copy reads its source when it is issued, and its destination counts as being written from then on: until the issuing
thread has waited, any access to it is a finding. Groups are per thread.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet_ptx.memory import PENDING, SET, of_state

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any


@dataclass(frozen=True)
class _Copy:
    """One instruction's copies: by lane, where they go (offsets into the batch's shared memory), the words, and the
    group.
    """

    lanes: Array
    offsets: Array
    values: Array
    groups: Array


class Copies:
    """The copies of a batch that are under way."""

    def __init__(self, lanes: int) -> None:
        self.committed = np.zeros(lanes, np.int64)
        self.open: list[_Copy] = []

    def land(self, batch: Batch, upto: Array) -> None:
        """Finish the copies of the active lanes in groups before `upto` (by lane)."""
        mask, rest = batch.mask_array(), []
        for copy in self.open:
            done = mask[copy.lanes] & (copy.groups < upto[copy.lanes])
            if done.any():
                _land(batch, copy, done)
            if not done.all():
                left = ~done
                rest.append(_Copy(copy.lanes[left], copy.offsets[left], copy.values[left], copy.groups[left]))
        self.open = rest


def _land(batch: Batch, copy: _Copy, done: Array) -> None:
    store, offsets = batch.shared, copy.offsets[done]
    values = copy.values[done]
    nbytes = values.dtype.itemsize * values.shape[1]
    store.rows(values.dtype, values.shape[1]).reshape(-1, values.shape[1])[offsets // nbytes] = values
    store.states(nbytes)[offsets // nbytes] = of_state(SET, nbytes)
    if store.races is not None:  # the write happens between issue and wait: for others, at both
        each = nbytes // min(store.races.granule, nbytes)
        granules = (offsets[:, None] // store.races.granule + np.arange(each)).ravel()
        store.races.writes[granules] = np.repeat(batch.shared_stamps[copy.lanes[done]], each)


def _copies(batch: Batch) -> Copies:
    if batch.copies is None:
        batch.copies = Copies(batch.lanes)
    return batch.copies


def _issue(site: Site, match: re.Match[str]) -> Step:
    """``cp.async.ca.shared.global [to], [from], size {, read}``: copies `read` bytes, and fills up with zeros to
    `size`.
    """
    operands = site.count(3, 4)
    to, _ = site.address(site.operands[0], "shared")
    source, _ = site.address(site.operands[1], "global")
    size = getattr(site.operands[2], "value", None)
    if size not in (4, 8, 16) or (match[1] == "cg" and size != 16):
        raise site.error("copies 4, 8 or 16 bytes (.cg: 16)")
    size = int(size)
    read = site.reader(site.operands[3], "u32") if operands == 4 else None
    site.touches("shared", size)
    site.touches("global", 4 if read else size)
    dtype, count = np.dtype(np.uint32), size // 4

    def run(batch: Batch) -> None:
        regs = batch.regs
        values = _fetch(batch, batch.active(source(regs)), size, None if read is None else batch.active(read(regs)))
        ((store, offsets, _),) = batch.places("shared", batch.active(to(regs)), size)
        batch.check_states(store, offsets, size, None, True)
        batch.note_write(store, offsets, size, None, False, None)
        store.states(size)[offsets // size] = of_state(PENDING, size)
        copies, lanes = _copies(batch), batch.indices
        lanes = np.arange(batch.lanes) if lanes is None else lanes
        copies.open.append(_Copy(lanes, offsets, values.reshape(-1, count).astype(dtype), copies.committed[lanes]))

    return run


def _fetch(batch: Batch, addresses: Array, size: int, read: Array | None) -> Array:
    """Fetch what the active lanes copy, as words [lanes, size / 4]: bytes beyond `read` are zeros, and not looked
    at.
    """
    from lightnet_ptx import findings

    word = np.dtype(np.uint32)
    if read is None or (read == size).all():
        return batch.load("global", addresses, word, size // 4).reshape(-1, size // 4)
    if (read > size).any():
        findings.fail(
            batch,
            "cp-async",
            f"reads {int(read.max())} bytes of a copy of {size}",
            batch.lane_of(int(np.argmax(read > size))),
        )
    values = np.zeros((len(addresses), size), np.uint8)
    lanes = batch.indices
    lanes = np.arange(batch.lanes) if lanes is None else lanes
    for amount in np.unique(read):
        where = np.nonzero(read == amount)[0]
        for at, step in _pieces(int(amount)):
            from_ = addresses[where] + np.uint64(at)
            part = batch.for_lanes(lanes[where], partial(batch.load, "global", from_, np.dtype(f"u{step}"), 1))
            values[where, at : at + step] = part.view(np.uint8).reshape(-1, step)
    return values.view(word)


def _pieces(nbytes: int) -> list[tuple[int, int]]:
    """A number of bytes as (offset, size) of aligned accesses."""
    found, at = [], 0
    while at < nbytes:
        step = max(s for s in (1, 2, 4, 8) if s <= nbytes - at and at % s == 0)
        found.append((at, step))
        at += step
    return found


def _commit(site: Site) -> Step:
    site.count(0)

    def run(batch: Batch) -> None:
        _copies(batch).committed[slice(None) if batch.indices is None else batch.indices] += 1

    return run


def _wait_group(site: Site) -> Step:
    """Wait for all but the last N groups that were committed."""
    site.count(1)
    left = site.reader(site.operands[0], "u32")

    def run(batch: Batch) -> None:
        copies = _copies(batch)
        copies.land(batch, copies.committed - np.int64(left(batch.regs)))

    return run


def _wait_all(site: Site) -> Step:
    site.count(0)

    def run(batch: Batch) -> None:
        copies = _copies(batch)
        copies.land(batch, copies.committed + 1)

    return run


EXACT = {"cp.async.commit_group": _commit, "cp.async.wait_group": _wait_group, "cp.async.wait_all": _wait_all}
PATTERNS = [("cp", r"cp\.async\.(ca|cg)\.shared(?:::cta)?\.global(?:\.L2::(?:64B|128B|256B))?", _issue)]
