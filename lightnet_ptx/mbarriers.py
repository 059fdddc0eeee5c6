"""Instructions on mbarriers (`phases`), and the fences that let others see them. Imports NumPy. "PTX ISA",
9.7.13.15."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import tree as ptx
from lightnet_ptx.phases import SIZE, Mbarriers

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any


def mbarriers_of(batch: Batch) -> Mbarriers:
    """The mbarriers of a batch whose kernel has such instructions."""
    assert batch.mbarriers is not None
    return batch.mbarriers


def _lanes(batch: Batch) -> Array:
    lanes = batch.indices
    return np.arange(batch.lanes) if lanes is None else lanes


def offsets_of(batch: Batch, addresses: Array) -> Array:
    """The offsets where mbarriers at shared addresses of the active lanes stand in the batch's shared memory."""
    ((_, offsets, _),) = batch.places("shared", addresses, SIZE)
    return offsets


def _address(site: Site, operand: ptx.Operand) -> Any:
    address, _ = site.address(operand, "shared")
    site.decoder.kernel.mbarriers = True
    site.touches("shared", SIZE)
    return address


def _init(site: Site, match: re.Match[str]) -> Step:
    site.count(2)
    address, count = _address(site, site.operands[0]), site.reader(site.operands[1], "u32")

    def run(batch: Batch) -> None:
        offsets = offsets_of(batch, batch.active(address(batch.regs)))
        counts = batch.active(count(batch.regs)).tolist()
        for i, (lane, offset, n) in enumerate(zip(_lanes(batch).tolist(), offsets.tolist(), counts)):
            mbarriers_of(batch).init(lane, i, offset, n)

    return run


def _inval(site: Site, match: re.Match[str]) -> Step:
    site.count(1)
    address = _address(site, site.operands[0])

    def run(batch: Batch) -> None:
        offsets = offsets_of(batch, batch.active(address(batch.regs)))
        for lane, offset in zip(_lanes(batch).tolist(), offsets.tolist()):
            mbarriers_of(batch).invalidate(mbarriers_of(batch).find(offset, lane), lane)

    return run


def _arrive(site: Site, match: re.Match[str]) -> Step:
    """``mbarrier.arrive state, [m] {, count}``, ``mbarrier.arrive.expect_tx state, [m], bytes``: the state, which only
    waits by state could use, goes to the sink ``_`` alone."""
    expects = match[1] is not None
    operands = site.count(3) if expects else site.count(2, 3)
    if not isinstance(site.operands[0], ptx.Reg) or site.operands[0].name != "_":
        raise site.error(
            "the state of an mbarrier is not understood: wait by parity, and let it go to _", "unsupported"
        )
    address = _address(site, site.operands[1])
    number = site.reader(site.operands[2], "u32") if operands == 3 else None

    def run(batch: Batch) -> None:
        offsets = offsets_of(batch, batch.active(address(batch.regs)))
        numbers = np.ones(len(offsets), np.int64) if number is None else batch.active(number(batch.regs))
        for lane, offset, n in zip(_lanes(batch).tolist(), offsets.tolist(), numbers.tolist()):
            m = mbarriers_of(batch).find(offset, lane)
            if expects:
                mbarriers_of(batch).expect(m, n, lane)
            mbarriers_of(batch).arrive(m, lane, 1 if expects else n)
        if batch.clocks is not None:
            batch.clocks.stamp()

    return run


def _expect(site: Site, match: re.Match[str]) -> Step:
    site.count(2)
    address, number = _address(site, site.operands[0]), site.reader(site.operands[1], "u32")

    def run(batch: Batch) -> None:
        offsets = offsets_of(batch, batch.active(address(batch.regs)))
        for lane, offset, n in zip(_lanes(batch).tolist(), offsets.tolist(), batch.active(number(batch.regs)).tolist()):
            mbarriers_of(batch).expect(mbarriers_of(batch).find(offset, lane), n, lane)

    return run


def _wait(site: Site, match: re.Match[str]) -> Step:
    """``mbarrier.try_wait.parity p, [m], parity {, time}``: whether the phase has ended."""
    site.count(*(3, 4) if match[1] == "try" else (3,))
    slot = site.slot(site.operands[0], "pred")
    address, parity = _address(site, site.operands[1]), site.reader(site.operands[2], "u32")
    for operand in site.operands[3:]:
        site.reader(operand, "u32")

    def run(batch: Batch) -> None:
        offsets = offsets_of(batch, batch.active(address(batch.regs)))
        wanted, lanes = batch.active(parity(batch.regs)).astype(np.int64), _lanes(batch)
        if (wanted > 1).any():
            at = int(np.argmax(wanted > 1))
            mbarriers_of(batch).fail(
                "mbarrier", f"waits for parity {int(wanted[at])}: a phase has 0 or 1", int(lanes[at])
            )
        ended = np.zeros(batch.lanes, bool)
        for key in np.unique(offsets * 2 + wanted):
            mine = lanes[offsets * 2 + wanted == key]
            m = mbarriers_of(batch).find(int(key) // 2, int(mine[0]), lanes=mine)
            ended[mine] = mbarriers_of(batch).wait(m, mine, int(key) % 2)
        stay = np.zeros(batch.lanes, bool)
        stay[lanes] = mbarriers_of(batch).parked[lanes] >= 0
        if stay.any() and not batch.park(stay):
            return
        batch.put(slot, ended)

    return run


def _fence(site: Site) -> Step:
    """For copies, `wgmma` and other threads: mbarriers that this thread made, and (`fence.proxy.async`) what it
    stored."""
    site.count(0)
    stores = site.opcode.startswith("fence.proxy")

    def run(batch: Batch) -> None:
        if batch.mbarriers is not None:
            mbarriers_of(batch).fence(batch.mask_array())
        if stores and batch.clocks is not None:
            batch.clocks.fence(batch.mask_array())

    return run


EXACT: dict[str, Any] = {
    "fence.mbarrier_init.release.cluster": _fence,
    "fence.proxy.async": _fence,
    "fence.proxy.async.shared::cta": _fence,
}
_HERE = r"\.shared(?:::cta)?\.b64"
PATTERNS = [
    ("mbarrier", rf"mbarrier\.init{_HERE}", _init),
    ("mbarrier", rf"mbarrier\.inval{_HERE}", _inval),
    ("mbarrier", rf"mbarrier\.arrive(\.expect_tx)?(?:\.release\.cta)?{_HERE}", _arrive),
    ("mbarrier", rf"mbarrier\.expect_tx(?:\.relaxed\.cta)?{_HERE}", _expect),
    ("mbarrier", rf"mbarrier\.(try|test)_wait\.parity(?:\.acquire\.cta)?{_HERE}", _wait),
]
