"""The errors that the interpreter raises when a kernel does something wrong: LightNetErrors that stand at the line of
the PTX and name the kernel, block, thread, address and, of a race, the other party. Imports NumPy and
`lightnet.diagnostics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet_ptx.memory import OPAQUE, OUTSIDE, PENDING, UNSET, Store
from lightnet_ptx.races import ATOMIC, FAR, MIDDLE, NEAR, THREAD, Conflict

if TYPE_CHECKING:
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.threads import Threads

Array = Any


def fail(
    batch: Threads, label: str, message: str, lane: int, notes: tuple[tuple[SourceLoc | None, str], ...] = ()
) -> NoReturn:
    """Raise the finding ``ptx.<label>`` about the thread in `lane`, at the instruction that is being executed."""
    instruction, source = batch.kernel.sites[batch.here], batch.kernel.source
    text = source.text[instruction.pos :].split(";", 1)[0]
    where = f"in {who(batch, lane)} of kernel {batch.kernel.name}, at '{' '.join(text.split())};'"
    found: list[tuple[SourceLoc | None, str]] = [(None, where), *notes]
    raise LightNetError(
        message, source.loc(instruction.pos), f"ptx.{label}", source.line(instruction.pos).replace("\t", " "), found
    )


def who(batch: Threads, lane: int) -> str:
    """A thread in words."""
    return owner(batch, batch.first + int(batch.slot[lane]), int(batch.tid[lane]))


def owner(batch: Threads, block: int, thread: int) -> str:
    """``block (0, 0, 0), thread (5, 0, 0)``."""
    return f"block {batch.launch.block_index(block)}, thread {batch.launch.thread_index(thread)}"


def place(batch: Batch, store: Store, offset: int) -> str:
    """An address in words, from an offset into a store."""
    if store is batch.shared:
        return f"shared address {offset % batch.shared_bytes} ({batch.kernel.shared_name(offset % batch.shared_bytes)})"
    if store is batch.local:
        return f"local address {offset % max(batch.local_bytes, 1)}"
    return f"address {store.base + offset:#x} (byte {offset} of {store.name})"


def outside(batch: Batch, space: str, address: int, nbytes: int, position: int, size: int = 0) -> NoReturn:
    """An access outside all memory of its state space."""
    lane = batch.lane_of(position)
    if space in ("global", "const"):
        reason = batch.memory.near(address)
        fail(batch, "bounds", f"{nbytes} bytes at {address:#x} are in no allocation of {space} memory: {reason}", lane)
    kind = space.replace("kparam", "param")
    fail(
        batch,
        "bounds",
        f"{nbytes} bytes at {kind} address {address:#x} are outside its {size} bytes of {kind} memory",
        lane,
    )


def bad_state(
    batch: Batch, store: Store, offset: int, nbytes: int, position: int, state: Array, write: bool
) -> NoReturn:
    """A read of bytes that hold nothing, or an access to bytes that an asynchronous copy writes."""
    lane = batch.lane_of(position)
    where = f"{nbytes} bytes at {place(batch, store, offset)}"
    if (state == OUTSIDE).any():
        fail(batch, "bounds", f"{where}: they are in no variable", lane)
    verb = "overwrites" if write else "reads"
    if (state == OPAQUE).any():
        fail(batch, "mbarrier", f"{verb} {where}: it is an mbarrier", lane)
    if (state == PENDING).any():
        mbarriers = batch.mbarriers
        if mbarriers and (found := mbarriers.copy_to(offset + int(np.argmax(state == PENDING)))) is not None:
            m, copy = found
            phase = f"phase {m.phase - m.first} of {mbarriers.name(m)}"
            note = (
                _loc(batch, copy.here),
                f"the copy begins here, and is done when {phase} ends: wait for parity {m.parity}",
            )
            message = f"{verb} {where}, which a copy of a tensor that was not waited for will write"
            fail(batch, "tma", message, lane, (note,))
        fail(batch, "cp-async", f"{verb} {where}, which a cp.async that was not waited for will write", lane)
    count = int((state == UNSET).sum())
    fail(batch, "uninitialised", f"reads {where}, of which {count} bytes were never written", lane)


def race(
    batch: Batch, store: Store, offsets: Array, nbytes: int, positions: Array | None, conflict: Conflict, kind: str
) -> NoReturn:
    """Two accesses that nothing orders."""
    at = conflict.position
    lane = batch.lane_of(at if positions is None else int(positions[at]))
    thread = conflict.stamp & THREAD
    block = batch.first + int(batch.slot[lane]) if store is batch.shared else (conflict.stamp & MIDDLE) >> 10
    atomic = "an atomic " if conflict.kind == "write" and conflict.stamp & ATOMIC else "a "
    others = " and others" if conflict.kind == "read" and conflict.stamp & (NEAR | FAR) else ""
    mine = batch.first + int(batch.slot[lane])
    order = (
        "in another block of the launch, with no fence and atomic between"
        if block != mine
        else "with no barrier between"
    )
    if ".nc" in kind:
        order = "in the same launch"
    what = f"a {kind} of {nbytes} bytes at {place(batch, store, int(offsets[at]))}"
    message = f"race: {what} and {atomic}{conflict.kind} by {owner(batch, block, thread)}{others}, {order}"
    fail(batch, "race", message, lane)


def collision(
    batch: Batch, store: Store, offsets: Array, nbytes: int, positions: Array | None, lost: Array
) -> NoReturn:
    """Two threads that write different values to one place, in one instruction."""
    at = int(np.argmax(lost))
    same = np.nonzero(offsets == offsets[at])[0]
    other = int(same[-1]) if int(same[-1]) != at else int(same[0])
    lane, party = (batch.lane_of(i if positions is None else int(positions[i])) for i in (at, other))
    what = f"a write of {nbytes} bytes at {place(batch, store, int(offsets[at]))}"
    message = f"race: {what}, to which {who(batch, party)} writes another value at once"
    fail(batch, "race", message, lane)


def missing(batch: Threads, gone: int, lane: int, width: int) -> NoReturn:
    """An instruction of a warp or warpgroup that names a lane which has ended."""
    note = (_loc(batch, int(batch.exited_at[gone])), f"{who(batch, gone)} ended here")
    group = "warp" if width == 32 else "warpgroup"
    fail(batch, "missing-lane", f"lane {gone % width} of the {group} does not take part: it has ended", lane, (note,))


def _loc(batch: Threads, pc: int) -> SourceLoc | None:
    return batch.kernel.source.loc(batch.kernel.sites[pc].pos) if pc >= 0 else None


def deadlock(batch: Threads) -> NoReturn:
    """Threads wait, and no other thread can go on."""
    pc = min(batch.waiting)
    lanes = batch.waiting[pc]
    batch.here = pc
    lane = int(np.argmax(lanes))
    at_barrier = batch.barrier[lane] >= 0
    width = 128 if batch.kernel.sites[pc].opcode.startswith("wgmma") else 32
    group = batch.slot == batch.slot[lane]
    if not at_barrier:
        group &= batch.tid // width == batch.tid[lane] // width
    here = lanes & group
    absent = group & batch.valid & ~here
    notes = []
    for other, mask in sorted(batch.waiting.items()):
        stuck = mask & absent
        if other != pc and stuck.any():
            notes.append(
                (
                    _loc(batch, other),
                    f"{who(batch, int(np.argmax(stuck)))} and {int(stuck.sum()) - 1} more of them wait here",
                )
            )
    ended = absent & ~batch.alive
    if ended.any():
        first = int(np.argmax(ended))
        notes.append(
            (
                _loc(batch, int(batch.exited_at[first])),
                f"{who(batch, first)} and {int(ended.sum()) - 1} more of them ended here",
            )
        )
    kind = "block" if at_barrier else "warp" if width == 32 else "warpgroup"
    warp = group & ((batch.tid >> 5) == (batch.tid[lane] >> 5)) & batch.valid
    divergent = at_barrier and (warp & ~here).any()
    label = "divergent-barrier" if divergent else "barrier" if at_barrier else "missing-lane"
    how = ": a barrier in divergent control flow" if divergent else ""
    fail(
        batch,
        label,
        f"{int(here.sum())} of the {kind}'s threads wait here, {int(absent.sum())} never come{how}",
        lane,
        tuple(notes),
    )
