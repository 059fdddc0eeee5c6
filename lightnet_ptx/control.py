"""Branches, ends, barriers and fences. Imports NumPy. "PTX ISA", 9.7.12 (control flow) and 9.7.13 (synchronisation)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx import tree as ptx

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any


def _branch(site: Site) -> Step:
    site.count(1)
    target = site.label(site.operands[0])
    site.target = (target,)
    guard = site.instruction.guard
    if guard is None:
        site.falls_through = False

        def jump(batch: Batch) -> None:
            batch.pc = target

        return jump
    operand = ptx.Reg(guard[0])
    test = site.reader(ptx.Not(operand) if guard[1] else operand, "pred")
    return lambda batch: batch.branch(test(batch.regs), target)


def _indexed(site: Site) -> Step:
    """``brx.idx index, table``."""
    site.count(2)
    index, targets = site.reader(site.operands[0], "u32"), site.table(site.operands[1])
    site.target, site.falls_through = tuple(targets), False

    def run(batch: Batch) -> None:
        chosen = batch.active(index(batch.regs))
        if (chosen >= len(targets)).any():
            lane = batch.lane_of(int(np.argmax(chosen >= len(targets))))
            findings.fail(batch, "bounds", f"index {int(chosen.max())} of a table of {len(targets)} labels", lane)
        full = np.full(batch.lanes, len(targets), np.uint32)
        full[slice(None) if batch.indices is None else batch.indices] = chosen
        here = batch.mask_array()
        for i in np.unique(chosen):
            batch.suspend(targets[i], here & (full == i))
        batch.leave()

    return run


def _exit(site: Site) -> Step:
    site.count(0)
    site.falls_through = False
    return lambda batch: batch.exit()


def _trap(site: Site) -> Step:
    site.count(0)
    site.falls_through = False
    return lambda batch: findings.fail(batch, "trap", "the kernel stops with a trap", batch.first_lane())


def _nothing(site: Site) -> Step:
    """A step that only takes time; and fences within a block: what it orders there needs a barrier."""
    return lambda batch: None


def _fence(site: Site, match: re.Match[str]) -> Step:
    """The interpreter runs in one order that all threads see; what a fence orders is of interest for races alone."""
    if match[1] == "cta":
        return _nothing(site)
    return lambda batch: batch.launch.ordering.fence(batch) if batch.check else None


def _barrier(site: Site, match: re.Match[str]) -> Step:
    """``bar.sync a {, b}``: wait until b threads of the block (all, without b) have come to barrier a. ``.aligned``:
    whole warps at once.
    """
    aligned = match[1] == "bar" or match[2] is not None
    operands = site.count(1, 2)
    ident = site.reader(site.operands[0], "u32")
    count = site.reader(site.operands[1], "u32") if operands == 2 else None

    def run(batch: Batch) -> None:
        number = ident(batch.regs)
        size = None if count is None else count(batch.regs)
        if (most := int(np.max(batch.active(number)))) > 15:
            findings.fail(batch, "barrier", f"barrier {most}: there are 0 to 15", batch.first_lane())
        if (
            batch.whole
            and np.ndim(number) == 0
            and (size is None or (np.ndim(size) == 0 and int(size) == batch.threads))
        ):
            batch.epoch = batch.epoch + 1
            batch.restamp()
            if batch.clocks is not None:
                batch.clocks.barrier(batch.valid, batch.per_block)
            return
        _wait(batch, batch.active(number), None if size is None else batch.active(size), aligned)

    return run


def _wait(batch: Batch, numbers: Array, sizes: Array | None, aligned: bool) -> None:
    """Park the fragment, and let go the blocks whose barriers are complete."""
    mask = batch.mask_array()
    old = batch.waiting.get(batch.here)
    batch.waiting[batch.here] = mask if old is None else mask | old
    batch.barrier[mask] = numbers
    want = np.full(batch.lanes, batch.threads, np.int64)
    if sizes is not None:
        want[mask] = sizes
        if (sizes % 32 != 0).any() or (sizes > batch.per_block).any():
            findings.fail(
                batch,
                "barrier",
                f"a barrier of {int(sizes[0])} threads: no multiple of 32, or more than the block has",
                batch.first_lane(),
            )
    batch.leave()
    for number in np.unique(numbers):
        _release(batch, int(number), np.where(mask, want, 0), aligned)


def _release(batch: Batch, number: int, want: Array, aligned: bool) -> None:
    at = (batch.barrier == number).reshape(batch.count, -1)
    need = want.reshape(batch.count, -1).max(axis=1)
    arrived = at.sum(axis=1)
    done = (need > 0) & (arrived >= np.minimum(need, batch.threads)) & (arrived > 0)
    if not done.any():
        return
    lanes = (at & done[:, None]).ravel()
    if aligned:
        _check_aligned(batch, lanes)
    for pc in list(batch.waiting):
        going = batch.waiting[pc] & lanes
        if not going.any():
            continue
        rest = batch.waiting.pop(pc) & ~going
        if rest.any():
            batch.waiting[pc] = rest
        batch.suspend(pc + 1, going)
    batch.barrier[lanes] = -1
    latest = np.where(lanes, batch.epoch, 0).reshape(batch.count, -1).max(axis=1)
    batch.epoch = np.where(lanes, np.repeat(latest, batch.per_block) + 1, batch.epoch)
    batch.restamp()
    if batch.clocks is not None:
        batch.clocks.barrier(lanes, batch.per_block)


def _check_aligned(batch: Batch, lanes: np.ndarray) -> None:
    """All threads of a warp must come to an aligned barrier at one instruction."""
    for pc, waiting in sorted(batch.waiting.items()):
        here = (waiting & lanes).reshape(-1, 32)
        warps = here.any(axis=1)
        split = warps & (here != batch.valid.reshape(-1, 32)).any(axis=1)
        if split.any():
            batch.here = pc
            lane = int(np.argmax(np.repeat(split, 32) & here.ravel()))
            others = lanes & ~waiting & np.repeat(split, 32)
            where = [p for p, w in batch.waiting.items() if (w & others).any()]
            source = batch.kernel.source
            notes = tuple((source.loc(batch.kernel.sites[p].pos), "other threads of the warp wait here") for p in where)
            findings.fail(
                batch,
                "divergent-barrier",
                "a barrier in divergent control flow: not all threads of the warp come here",
                lane,
                notes,
            )


def _warp_sync(site: Site) -> Step:
    """``bar.warp.sync mask``: orders the memory accesses of the lanes."""
    site.count(1)
    members = site.reader(site.operands[0], "u32")

    def run(batch: Batch) -> None:
        if not batch.gather_warps(members(batch.regs)):
            return
        if batch.clocks is not None:
            batch.clocks.barrier(batch.mask_array(), 32)
            return
        batch.clock = batch.clock + batch.mask_array()
        batch.restamp()

    return run


EXACT = {
    "bra": _branch,
    "bra.uni": _branch,
    "brx.idx": _indexed,
    "brx.idx.uni": _indexed,
    "ret": _exit,
    "ret.uni": _exit,
    "exit": _exit,
    "trap": _trap,
    "bar.warp.sync": _warp_sync,
}
PATTERNS = [
    ("bar", r"(bar)(?:\.cta)?\.sync()", _barrier),
    ("barrier", r"(barrier)(?:\.cta)?\.sync(\.aligned)?", _barrier),
    ("membar", r"membar\.(cta|gl|sys)", _fence),
    ("fence", r"fence(?:\.(?:acq_rel|sc|acquire|release))?\.(cta|cluster|gpu|sys)", _fence),
    ("griddepcontrol", r"griddepcontrol\.(wait|launch_dependents)", lambda site, match: _nothing(site)),
    ("setmaxnreg", r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32", lambda site, match: _nothing(site)),
    ("prefetch", r"prefetch(?:\.param|\.const)?\.(tensormap)", lambda site, match: _nothing(site)),
    ("nanosleep", r"nanosleep\.(u32)", lambda site, match: _nothing(site)),
]
