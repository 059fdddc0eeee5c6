"""Mbarriers: objects in shared memory that count arrivals and the bytes of copies. Imports NumPy.

"PTX ISA", 9.7.13.15 (mbarrier) and its "Phase completion": a phase ends when neither arrivals nor bytes are missing.
Whoever asks for a phase is told once that it has not ended, as an earlier question would be (unless the thread is
behind its end already), and stops there the next time until it has, so that no order of threads starves another. A copy
lands as late as can be: when somebody waits for a phase that lacks its bytes alone. `clocks` says what the end of a
phase orders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import SourceLoc
from lightnet_ptx import findings
from lightnet_ptx.clocks import MOST_MBARRIERS, owners
from lightnet_ptx.memory import OPAQUE, SET, UNSET, of_state

if TYPE_CHECKING:
    from lightnet_ptx.machine import Batch

Array = Any
#: Bytes of an mbarrier, and the most arrivals or bytes that a phase counts.
SIZE, MOST = 8, (1 << 20) - 1


@dataclass
class Copy:
    """A copy that is under way: 16 bytes each at `offsets` into the batch's shared memory. `here` is its instruction,
    `lane` who began it."""

    offsets: Array
    values: Array
    lane: int
    here: int

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


@dataclass
class Mbarrier:
    """An mbarrier. `offset` is its place in the batch's shared memory, `column` that in the clocks; `phase` counts
    those that have ended, of all mbarriers at this place, and the first of this one has the number `first`."""

    offset: int
    column: int
    count: int
    lane: int
    first: int
    phase: int
    pending: int
    missing: int = 0  # bytes
    copies: list[Copy] = field(default_factory=list)
    given: Any = None  # what all arrivals so far are behind
    ended: Any = None  # and those of the phases that have ended
    fenced: int = 0  # the time of the fence that made it visible, in the clocks of the warp that made it

    @property
    def parity(self) -> int:
        """The parity of the phase that has not ended."""
        return (self.phase - self.first) & 1

    @property
    def under_way(self) -> int:
        """Bytes that copies still bring."""
        return sum(copy.nbytes for copy in self.copies)


class Mbarriers:
    """The mbarriers of a batch, and which lanes wait for them."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.at: dict[int, Mbarrier] = {}
        #: For each place that ever had an mbarrier: its column, and how many phases have ended.
        self._columns: dict[int, tuple[int, int]] = {}
        self._used = np.zeros(batch.count, int)
        #: Of which mbarrier (by its offset) a lane waits for a phase, and its parity; -1 for none.
        self.parked = np.full(batch.lanes, -1, np.int64)
        self.parity = np.zeros(batch.lanes, np.int64)
        #: The instruction by which a lane asked in vain, -1 for none.
        self.asked = np.full(batch.lanes, -1, np.int64)

    # -- in words
    def name(self, m: Mbarrier) -> str:
        """``the mbarrier at shared address 16 (bars+16)``."""
        return f"the mbarrier at {findings.place(self.batch, self.batch.shared, m.offset)}"

    def state(self, m: Mbarrier) -> str:
        """The description of what the phase of an mbarrier lacks, in words."""
        text = f"its phase {m.phase - m.first} waits for {m.pending} of {m.count} arrivals and {m.missing} bytes"
        return text + (f"; copies bring {m.under_way}" if m.copies else ", which no copy brings" * (m.missing > 0))

    def fail(self, label: str, message: str, lane: int) -> NoReturn:
        findings.fail(self.batch, label, message, lane)

    # -- life
    def init(self, lane: int, position: int, offset: int, count: int) -> None:
        """Make an mbarrier. The thread is at that position among the active ones."""
        if not 1 <= count <= MOST:
            self.fail("mbarrier", f"an mbarrier of {count} arrivals: 1 to {MOST}", lane)
        if offset in self.at:
            self.fail("mbarrier", f"{self.name(self.at[offset])} is there already, and was not made invalid", lane)
        where = np.array([offset])
        self.batch.check_states(self.batch.shared, where, SIZE, None, True)
        self.batch.note_write(self.batch.shared, where, SIZE, np.array([position]), False, None)
        block = int(self.batch.slot[lane])
        if offset not in self._columns:
            if self._used[block] == MOST_MBARRIERS:
                self.fail("limit", f"more than {MOST_MBARRIERS} mbarriers of a block are not understood", lane)
            self._columns[offset] = (owners(self.batch.per_block) + int(self._used[block]), 0)
            self._used[block] += 1
        column, phase = self._columns[offset]
        self.at[offset] = Mbarrier(offset, column, count, lane, phase, phase, count)
        self.batch.shared.states(SIZE)[offset // SIZE] = of_state(OPAQUE, SIZE)

    def invalidate(self, m: Mbarrier, lane: int) -> None:
        """End an mbarrier: its bytes may be used for other things."""
        if m.copies or (self.parked == m.offset).any():
            self.fail("mbarrier", f"{self.name(m)} ends, while copies or threads use it: {self.state(m)}", lane)
        self._columns[m.offset] = (m.column, m.phase)
        del self.at[m.offset]
        self.batch.shared.states(SIZE)[m.offset // SIZE] = of_state(UNSET, SIZE)

    def fence(self, lanes: Array) -> None:
        """Threads (a mask) let others see the mbarriers that they made."""
        clocks = self.batch.clocks
        for m in self.at.values():
            if lanes[m.lane] and not m.fenced:
                block, warp = divmod(m.lane // 32, self.batch.per_block // 32)
                m.fenced = int(clocks.time[block, warp]) if clocks is not None else 1

    def find(self, offset: int, lane: int, copies: bool = False, lanes: Any = None) -> Mbarrier:
        """The mbarrier that a thread (or `lanes`) uses, itself or (`copies`) for a copy. A finding where it is none, or
        nothing lets the thread see it."""
        m = self.at.get(offset)
        if m is None:
            where = findings.place(self.batch, self.batch.shared, offset)
            self.fail("mbarrier", f"there is no mbarrier at {where}: mbarrier.init makes one", lane)
        clocks, lanes = self.batch.clocks, np.array([lane]) if lanes is None else lanes
        if clocks is None:
            return m
        others = lanes != m.lane
        if not m.fenced and (copies or others.any()):
            self.fail(
                "mbarrier", f"{self.name(m)} is used with no fence.mbarrier_init since it was made", int(lanes[-1])
            )
        behind = clocks.seen[lanes, m.lane // 32 % clocks.warps] >= m.fenced
        if (others & ~behind).any():
            maker, lane = findings.who(self.batch, m.lane), int(lanes[int(np.argmax(others & ~behind))])
            self.fail("mbarrier", f"{self.name(m)} is used with no barrier since {maker} made it", lane)
        return m

    # -- counting
    def _require_phase(self, m: Mbarrier, lane: int, what: str) -> None:
        """A finding where what a thread does could count for the phase before, since the thread is not behind its
        end."""
        clocks = self.batch.clocks
        if clocks is not None and m.phase > m.first and clocks.seen[lane, m.column] < m.phase:
            number = m.phase - m.first
            of = f"phase {number} of {self.name(m)}, and could be one of phase {number - 1}"
            self.fail("mbarrier", f"race: {what} {of}, whose end nothing orders before it", lane)

    def expect(self, m: Mbarrier, nbytes: int, lane: int) -> None:
        """Let the phase wait for more bytes."""
        self._require_phase(m, lane, f"tells of {nbytes} bytes in")
        m.missing += nbytes
        if m.missing > MOST:
            self.fail("mbarrier", f"{self.name(m)} waits for {m.missing} bytes, at most {MOST}", lane)

    def arrive(self, m: Mbarrier, lane: int, count: int) -> None:
        """A thread arrives `count` times."""
        if not 1 <= count <= m.pending:
            self.fail("mbarrier", f"arrives {count} times at {self.name(m)}: {self.state(m)}", lane)
        self._require_phase(m, lane, "arrives in")
        clocks = self.batch.clocks
        if clocks is not None:
            given = clocks.release(lane)
            m.given = given if m.given is None else np.maximum(m.given, given)
        m.pending -= count
        self._settle(m, lane)

    def begin(self, m: Mbarrier, copy: Copy) -> None:
        """A copy begins, and will bring its bytes to the phase."""
        self._require_phase(m, copy.lane, "begins a copy for")
        m.copies.append(copy)
        if (self.parked == m.offset).any():
            self._settle(m, copy.lane)

    def copy_to(self, offset: int) -> tuple[Mbarrier, Copy] | None:
        """The copy that will write a byte of the batch's shared memory, and the mbarrier that it tells."""
        for m in self.at.values():
            for copy in m.copies:
                if (copy.offsets // 16 == offset // 16).any():
                    return m, copy
        return None

    def _settle(self, m: Mbarrier, lane: int) -> None:
        """End the phase, where nothing is missing, or only bytes that somebody waits for."""
        if m.pending:
            return
        if not m.missing:
            self._end(m)
        elif m.under_way > m.missing:
            self.fail("mbarrier", f"{self.name(m)} is told of fewer bytes than copies bring: {self.state(m)}", lane)
        elif m.under_way == m.missing and (self.parked == m.offset).any():
            for copy in m.copies:
                self._land(m, copy)
            m.copies = []
            self._end(m)

    def _land(self, m: Mbarrier, copy: Copy) -> None:
        shared = self.batch.shared
        shared.rows(np.dtype(np.uint8), 16)[copy.offsets // 16] = copy.values
        shared.states(16)[copy.offsets // 16] = of_state(SET, 16)
        if self.batch.clocks is not None:
            self.batch.clocks.end_copy(self.batch.clocks.spread(copy.offsets, 16), m.column, m.phase + 1)

    def _end(self, m: Mbarrier) -> None:
        batch = self.batch
        m.phase += 1
        m.pending, m.missing = m.count, 0
        if batch.clocks is not None:
            m.ended = m.given.copy()
            m.ended[m.column] = m.phase
        going = self.parked == m.offset
        if not going.any():
            return
        self.parked[going] = -1
        batch.resume(going)

    def wait(self, m: Mbarrier, lanes: Array, parity: int) -> bool:
        """Threads (numbers) wait for the phase of a parity; whether it has ended. They are behind it then. Where it has
        not, those that asked before are parked."""
        again = lanes[self.asked[lanes] == self.batch.here]
        self.asked[lanes] = self.batch.here
        if not len(again) and (m.parity == parity or not self._knows(m, lanes)):
            return False
        if m.parity == parity:
            self.parked[again] = m.offset
            self.parity[again] = parity
            self._settle(m, int(again[0]))
            if m.parity == parity:
                return False
        self.asked[lanes] = -1
        if self.batch.clocks is not None and m.ended is not None:
            self.batch.clocks.acquire(lanes, m.ended)
        return True

    def _knows(self, m: Mbarrier, lanes: Array) -> bool:
        """Return whether threads are behind the last phase that has ended."""
        clocks = self.batch.clocks
        return clocks is None or m.phase == m.first or bool((clocks.seen[lanes, m.column] >= m.phase).all())

    def deadlock(self) -> None:
        """A finding where threads wait for a phase that nothing ends."""
        lanes = np.nonzero(self.parked >= 0)[0]
        if not len(lanes):
            return
        lane = int(lanes[0])
        m = self.at[int(self.parked[lane])]
        here = next(pc for pc, mask in self.batch.waiting.items() if mask[lane])
        self.batch.here = here
        count = int((self.parked == m.offset).sum())
        notes: list[tuple[SourceLoc | None, str]] = []
        for other in self.at.values():
            number = int((self.parked == other.offset).sum())
            if number and other is not m and len(notes) < 8:
                notes.append((None, f"{number} threads wait for {self.name(other)}: {self.state(other)}"))
        message = (
            f"deadlock: {count} threads wait for parity {int(self.parity[lane])} of {self.name(m)}: {self.state(m)}"
        )
        findings.fail(self.batch, "mbarrier", message, lane, tuple(notes))

    def end(self) -> None:
        """All threads have ended: a finding where a copy is still under way."""
        for m in self.at.values():
            for copy in m.copies:
                self.batch.here = copy.here
                message = f"the block ends while a copy of {copy.nbytes} bytes to its memory is under way"
                self.fail("tma", f"{message}: nobody waited for {self.name(m)}", copy.lane)
