"""The threads of a batch of blocks: which stand where, which run, which wait, and what their registers hold. Imports
NumPy.

A register is an array over the lanes of the batch (blocks in order, each padded to whole warps), or one value that all
lanes share. Lanes that stand at the same instruction are a *fragment*, a mask; the fragment at the lowest instruction
runs first, and joins others where it comes to them, so that what diverged converges at the end of an `if` or a loop. An
instruction for which threads wait for each other (barriers, shuffles, mma) parks its lanes until all that it needs are
there. Any such order is one that hardware might take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx.ordering import Ordering

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Kernel

Array = Any
NEVER = 1 << 60
WARP = 32


class Geometry:
    """The geometry of a launch: `grid` and `block` in x, y, z, `shared` bytes of dynamic shared memory. `epoch` is the
    epoch in which it begins.
    """

    def __init__(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, epoch: int) -> None:
        self.grid, self.block, self.shared, self.epoch = grid, block, shared, epoch
        self.ordering = Ordering()
        self.threads = block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]

    def block_index(self, number: int) -> tuple[int, int, int]:
        """``%ctaid`` of the block of that number."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def thread_index(self, number: int) -> tuple[int, int, int]:
        """``%tid`` of the thread of that number in its block."""
        x, y, _ = self.block
        return number % x, number // x % y, number // (x * y)


class Threads:
    """Some blocks of a launch, `count` from `first` on.

    `pc` is the next instruction of the running fragment, `here` the one that is being executed, and `mask` the
    fragment's lanes (None: all that there are). `partial` says whether threads that have not ended are elsewhere;
    `whole`, that no thread has ended and all are here.
    """

    def __init__(self, kernel: Kernel, launch: Geometry, first: int, count: int) -> None:
        self.kernel, self.launch, self.first, self.count = kernel, launch, first, count
        self.threads = launch.threads
        self.per_block = -(-self.threads // WARP) * WARP
        self.lanes = count * self.per_block
        lane = np.arange(self.lanes)
        #: The block of a lane, counted within the batch, and the thread within its block.
        self.slot, self.tid = lane // self.per_block, lane % self.per_block
        self.valid = self.tid < self.threads
        self.padded = self.per_block != self.threads
        self.alive = self.valid.copy()
        self.exited_at = np.full(self.lanes, -1, np.int32)
        self.pc, self.here, self.stop, self.steps = 0, 0, NEVER, 0
        self.mask: np.ndarray | None = self.valid if self.padded else None
        self._indices: np.ndarray | None = None
        self.partial, self.whole, self.some_exited = False, True, False
        self.pending: dict[int, np.ndarray] = {}
        self.waiting: dict[int, np.ndarray] = {}
        #: Which barrier a lane waits at, or -1.
        self.barrier = np.full(self.lanes, -1, np.int16)
        self.regs: list[Array] = [None] * kernel.slots
        self.defined: dict[int, np.ndarray] = {s: np.zeros(self.lanes, bool) for s in kernel.tracked}
        self.special: dict[str, Array] = {}

    # -- fragments
    def select(self) -> bool:
        """Take up the fragment at the lowest instruction; False where all threads have ended."""
        if self.pc != NEVER:
            self.suspend(self.pc, self.mask_array())
        if not self.pending:
            if self.waiting:
                self.stuck()
            return False
        self.pc = min(self.pending)
        self.set_mask(self.pending.pop(self.pc))
        return True

    def suspend(self, pc: int, mask: np.ndarray) -> None:
        """Let lanes go on at `pc` when it is their turn."""
        old = self.pending.get(pc)
        self.pending[pc] = mask if old is None else mask | old

    def stuck(self) -> None:
        """Threads wait, and no other thread can go on: a finding."""
        findings.deadlock(self)

    def park(self, lanes: np.ndarray) -> bool:
        """Let lanes of the fragment (a mask) wait at this instruction until `resume`; whether others go on."""
        old = self.waiting.get(self.here)
        self.waiting[self.here] = lanes if old is None else lanes | old
        rest = self.mask_array() & ~lanes
        if not rest.any():
            self.leave()
            return False
        self.set_mask(rest)
        return True

    def resume(self, lanes: np.ndarray) -> None:
        """Let those of the lanes (a mask) that wait execute their instruction again, when it is their turn."""
        for pc in list(self.waiting):
            going = self.waiting[pc] & lanes
            if not going.any():
                continue
            rest = self.waiting.pop(pc) & ~going
            if rest.any():
                self.waiting[pc] = rest
            self.suspend(pc, going)
        if self.pc != NEVER and self.pending:
            self.stop = min(self.pending)

    def leave(self) -> None:
        """The running fragment has no lanes left here."""
        self.pc = NEVER
        self.stop = 0

    def set_mask(self, mask: np.ndarray) -> None:
        """Make these lanes, at `pc`, the running fragment."""
        self._indices = None
        self.partial = bool(self.pending or self.waiting)
        self.stop = min(self.pending) if self.pending else NEVER
        self.whole = not self.partial and not self.some_exited
        self.mask = None if self.whole and not self.padded else mask

    def mask_array(self) -> np.ndarray:
        """The lanes of the fragment, as a mask."""
        return np.ones(self.lanes, bool) if self.mask is None else self.mask

    def branch(self, taken: Array, target: int) -> None:
        """Go to `target` where `taken` holds."""
        if np.ndim(taken) == 0:
            if taken:
                self.pc = target
            return
        going = taken if self.mask is None else taken & self.mask
        if not going.any():
            return
        staying = self.mask_array() & ~going
        if not staying.any():
            self.pc = target
            return
        self.suspend(target, going)
        self.set_mask(staying)

    def exit(self) -> None:
        """The threads of the fragment end."""
        mask = self.mask_array()
        self.alive &= ~mask
        self.exited_at[mask] = self.here
        self.some_exited = True
        self.leave()

    def masked(self, mask: np.ndarray, run: Callable[[Any], None]) -> None:
        """Execute an instruction that moves no thread for some lanes of the fragment."""
        saved = self.mask, self._indices, self.partial, self.whole
        self.mask, self._indices, self.partial, self.whole = mask, None, True, False
        run(self)
        self.mask, self._indices, self.partial, self.whole = saved

    def for_lanes(self, lanes: Array, run: Callable[[], Any]) -> Any:
        """`run`, with these lanes alone active."""
        mask = np.zeros(self.lanes, bool)
        mask[lanes] = True
        saved = self.mask, self._indices
        self.mask, self._indices = mask, None
        found = run()
        self.mask, self._indices = saved
        return found

    # -- registers
    @property
    def indices(self) -> np.ndarray | None:
        """The lanes of the fragment in order, None for all."""
        if self.mask is None:
            return None
        if self._indices is None:
            self._indices = np.nonzero(self.mask)[0]
        return self._indices

    def put(self, slot: int | None, value: Array) -> None:
        """Write a register from values over all lanes (those of other lanes are ignored), or one value. No slot is the
        sink ``_``."""
        if slot is None:
            return
        if self.partial:
            old = self.regs[slot]
            if old is None:
                old = value.dtype.type(0)
            value = np.where(self.mask_array(), value, old)
        self.regs[slot] = value

    def put_active(self, slot: int | None, values: Array) -> None:
        """Write a register from values of the active lanes."""
        if slot is None:
            return
        lanes = self.indices
        if lanes is not None:
            old = self.regs[slot] if self.partial else None
            full = np.zeros(self.lanes, values.dtype) if old is None else np.array(np.broadcast_to(old, self.lanes))
            full[lanes] = values
            values = full
        self.regs[slot] = values

    def active(self, value: Array) -> Array:
        """The values of the active lanes, as an array."""
        lanes = self.indices
        if np.ndim(value) == 0:
            return np.full(self.lanes if lanes is None else len(lanes), value)
        return value if lanes is None else value[lanes]

    def lane_of(self, position: int) -> int:
        """The lane of a position among the active ones."""
        lanes = self.indices
        return position if lanes is None else int(lanes[position])

    def register(self, name: str) -> Array:
        """The contents of a register, over all lanes; None where nothing was written. For debuggers: the innermost of
        that name.
        """
        slots = [slot for slot, has in self.kernel.names.items() if has == name]
        value = self.regs[slots[-1]] if slots else None
        return None if value is None else np.broadcast_to(value, self.lanes)

    def first_lane(self) -> int:
        """The first active lane."""
        return self.lane_of(0)

    # -- threads that wait for each other
    def gather_warps(self, members: Array, width: int = WARP) -> bool:
        """Bring lanes that execute a warp's instruction together: those whose warps are complete are the fragment then;
        the others wait.

        `members` is the instruction's mask of lanes, over the lanes. False where no warp is complete. `width` is 128
        for an instruction of warpgroups, which all of their lanes execute.
        """
        full = np.ndim(members) == 0 and int(members) == 0xFFFFFFFF
        if self.whole and full:
            return True
        here = self.mask_array()
        parked = self.waiting.pop(self.here, None)
        if parked is not None:
            here = here | parked
        need = self._groups(here, width) & self.valid if full else self._members(members, here)
        lost = need & ~here & ~self.alive
        if lost.any():
            findings.missing(self, int(np.argmax(lost)), int(np.argmax(here & self._groups(lost, width))), width)
        complete = ~self._groups(need & ~here, width) & here
        rest = here & ~complete
        if rest.any():
            self.waiting[self.here] = rest
        if not complete.any():
            self.leave()
            return False
        self.set_mask(complete)
        return True

    def _groups(self, mask: np.ndarray, width: int) -> np.ndarray:
        """All lanes of the warps (or warpgroups) that some lanes are in."""
        return np.repeat(mask.reshape(-1, width).any(axis=1), width)

    def _members(self, members: Array, here: np.ndarray) -> np.ndarray:
        """The lanes that the executing ones of each warp name."""
        bits = np.broadcast_to(members, self.lanes).astype(np.uint32)
        named = np.where(here, bits, 0).reshape(-1, WARP)
        union = np.bitwise_or.reduce(named, axis=1)
        differ = here & (bits != np.repeat(union, WARP))
        own = here & ((bits >> (self.tid % WARP).astype(np.uint32)) & 1 == 0)
        if (differ | own).any():
            lane = int(np.argmax(differ | own))
            findings.fail(
                self,
                "members",
                f"the mask of lanes is {bits[lane]:#x}: it differs in the warp, or leaves out a lane that is here",
                lane,
            )
        return ((union[:, None] >> np.arange(WARP, dtype=np.uint32)) & 1).astype(bool).ravel() & self.valid
