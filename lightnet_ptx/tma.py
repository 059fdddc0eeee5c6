"""Copies from a tensor to shared memory by a tensor map (TMA), which an mbarrier is told of. Imports NumPy.

"PTX ISA", 5.5 (tensors: tiled and im2col mode, swizzling) and 9.7.9.27 (cp.async.bulk.tensor). A copy reads its source
when it is issued; its destination counts as being written from then on, until a phase of the mbarrier ends that
somebody waits for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.tensor_map import BYTES, MAP_ALIGNMENT, MOST_OFFSET, Im2col, TensorMap
from lightnet_ptx import findings
from lightnet_ptx import tree as ptx
from lightnet_ptx.mbarriers import mbarriers_of, offsets_of
from lightnet_ptx.memory import PENDING, SET, WINDOW_SIZE, WINDOWS, Store, of_state
from lightnet_ptx.phases import SIZE, Copy
from lightnet_ptx.tensor_map import decode

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any
#: What divides the address of a destination.
DESTINATION = 128
_SET = of_state(SET, 2)


def swizzled(addresses: Array, width: int = 128) -> Array:
    """The addresses where bytes at shared addresses stand with the swizzle of `width` bytes: pieces of 16 bytes change
    places within a row, by the number of the row of 128 bytes ("PTX ISA", swizzling modes: of 128 bytes, bits 4 to 6
    are combined with bits 7 to 9).
    """
    return addresses ^ (((addresses >> 7) & (width // 16 - 1)) << 4)


class _Fault(Exception):
    """A copy that a device would not do; the message says why."""


def windows(dims: tuple[int, ...], map: Im2col, at: tuple[int, ...], offsets: tuple[int, ...]) -> tuple[Array, ...]:
    """The indices (n, y, x) of the pixels that a copy by windows takes of a tensor [N, H, W, C], one a window: windows
    begin where `map` says, the first at `at`, and the pixel is `offsets` further. Raises `_Fault` where no window
    begins at `at`."""
    _, height, width, _ = dims
    index, counts = [], []
    for size, low, high, stride, first in zip((height, width), map.lower, map.upper, map.strides, at[1:3]):
        count = (size - 1 + high - low) // stride + 1
        step, rest = divmod(first - low, stride)
        if rest or not 0 <= step < count:
            raise _Fault(f"no window begins at {first}: they begin at {low}, every {stride}, up to {size - 1 + high}")
        index.append(step)
        counts.append(count)
    number = (at[0] * counts[0] + index[0]) * counts[1] + index[1] + np.arange(map.pixels)
    n, inside = np.divmod(number, counts[0] * counts[1])
    y, x = np.divmod(inside, counts[1])
    return (
        n,
        y * map.strides[0] + map.lower[0] + offsets[0],
        x * map.strides[1] + map.lower[1] + offsets[1],
    )


def elements(map: TensorMap, at: tuple[int, ...], offsets: tuple[int, ...]) -> tuple[Array, Array]:
    """The numbers of the elements that a copy takes, in the tensor in row-major order, as they lie in the destination
    without a swizzle; and whether there is such an element. `at` are the coordinates, outermost first. Raises
    `_Fault`."""
    strides = [s // map.strides[-1] for s in map.strides]
    if map.im2col is None:
        parts = [np.arange(n) + first for n, first in zip(map.box, at)]
        number, inside = np.zeros((1,) * len(parts), np.int64), np.ones((1,) * len(parts), bool)
        for axis, (part, size, stride) in enumerate(zip(parts, map.dims, strides)):
            shape = [-1 if i == axis else 1 for i in range(len(parts))]
            number = number + (part * stride).reshape(shape)
            inside = inside & ((part >= 0) & (part < size)).reshape(shape)
        return number.ravel(), np.broadcast_to(inside, number.shape).ravel()
    if any(not 0 <= o <= MOST_OFFSET for o in offsets):
        raise _Fault(f"offsets {list(offsets)} in a window: each is 0 to {MOST_OFFSET}")
    channel = at[3] + np.arange(map.im2col.channels)
    number = channel[None]
    inside = ((channel >= 0) & (channel < map.dims[3]))[None]
    for part, size, stride in zip(windows(map.dims, map.im2col, at, offsets), map.dims, strides):
        number = number + (part * stride)[:, None]
        inside = inside & ((part >= 0) & (part < size))[:, None]
    return number.ravel(), inside.ravel()


def _issue(site: Site, match: re.Match[str]) -> Step:
    """``cp.async.bulk.tensor.4d… [to], [map, {coordinates}], [mbarrier] {, {offsets}}``; coordinates and offsets have
    the innermost first."""
    rank, im2col = int(match[1]), match[2] == ".im2col"
    site.count(4 if im2col else 3)
    kernel = site.decoder.kernel
    kernel.mbarriers = True
    source = site.operands[1]
    if not isinstance(source, ptx.Address) or len(source.coordinates) != rank:
        raise site.error(f"[map, {{{rank} coordinates}}] is expected")
    to, _ = site.address(site.operands[0], "shared")
    map_at, space = site.address(replace(source, coordinates=()), "generic")
    barrier, _ = site.address(site.operands[2], "shared")
    coordinates = [site.reader(c, "s32") for c in source.coordinates]
    offsets = [site.reader(o, "u16") for o in _offsets(site, rank)] if im2col else []
    site.touches("shared", SIZE)

    def run(batch: Batch) -> None:
        regs = batch.regs
        begin, where = batch.active(to(regs)).astype(np.int64), batch.active(map_at(regs))
        bars = offsets_of(batch, batch.active(barrier(regs)))
        ats = np.stack([batch.active(c(regs)) for c in reversed(coordinates)], axis=1).tolist()
        taps = (
            np.stack([batch.active(o(regs)) for o in reversed(offsets)], axis=1).tolist() if im2col else [()] * len(ats)
        )
        raws = _maps(batch, space, where)
        for i, (at, tap) in enumerate(zip(ats, taps)):
            _Issue(batch, i).run(raws[i].tobytes(), int(begin[i]), int(bars[i]), tuple(at), tuple(tap), im2col)

    return run


def _offsets(site: Site, rank: int) -> tuple[ptx.Operand, ...]:
    operand = site.operands[3]
    if not isinstance(operand, ptx.Vec) or len(operand.items) != rank - 2:
        raise site.error(f"{rank - 2} offsets in braces are expected")
    return operand.items


def _maps(batch: Batch, space: str, addresses: Array) -> Array:
    """The bytes of the maps of the active lanes, [lanes, 128]. The copy engine reads them: it has no thread's memory,
    and no block's."""
    batch.require_aligned(addresses, MAP_ALIGNMENT)
    for own in ("shared", "local"):
        inside = (addresses >= np.uint64(WINDOWS[own])) & (addresses < np.uint64(WINDOWS[own] + WINDOW_SIZE))
        if inside.any():
            message = f"the map is in {own} memory: maps are parameters, constant or global"
            findings.fail(batch, "tma", message, batch.lane_of(int(np.argmax(inside))))
    parts = [batch.load(space, addresses + np.uint64(i), np.dtype(np.uint64), 2) for i in range(0, BYTES, 16)]
    return np.concatenate(parts, axis=1).view(np.uint8)


class _Issue:
    """One copy by one thread, at a position among the active ones."""

    def __init__(self, batch: Batch, position: int) -> None:
        self.batch, self.position, self.lane = batch, position, batch.lane_of(position)

    def fail(self, message: str, label: str = "tma") -> NoReturn:
        findings.fail(self.batch, label, message, self.lane)

    def run(self, raw: bytes, to: int, bar: int, at: tuple[int, ...], tap: tuple[int, ...], im2col: bool) -> None:
        """Begin the copy: `to` is a shared address, `bar` the mbarrier's place in the batch's shared memory."""
        try:
            address, map = decode(raw)
            if len(map.dims) != len(at) or (map.im2col is not None) != im2col:
                kind = "windows" if map.im2col else "boxes"
                raise _Fault(f"the map is one of {kind} of a tensor of {len(map.dims)} dimensions")
            numbers, inside = elements(map, at, tap)
        except (_Fault, LightNetError) as error:
            self.fail(getattr(error, "message", str(error)))
        batch = self.batch
        m = mbarriers_of(batch).find(bar, self.lane, copies=True)
        values = self._read(address, map, numbers, inside)
        if to % DESTINATION:
            self.fail(f"the destination {to:#x} is no multiple of {DESTINATION}", "misaligned")
        if to + values.nbytes > batch.shared_bytes:
            findings.outside(batch, "shared", to, values.nbytes, self.position, batch.shared_bytes)
        base = int(batch.slot[self.lane]) * batch.shared_bytes
        offsets = swizzled(to + np.arange(0, values.nbytes, 16)) + base
        shared = batch.shared
        batch.check_states(shared, offsets, 16, np.full(len(offsets), self.position), True)
        if batch.clocks is not None:
            batch.clocks.begin_copy(self.lane, batch.clocks.spread(offsets, 16))
        shared.states(16)[offsets // 16] = of_state(PENDING, 16)
        mbarriers_of(batch).begin(m, Copy(offsets, values.view(np.uint8).reshape(-1, 16), self.lane, batch.here))

    def _read(self, address: int, map: TensorMap, numbers: Array, inside: Array) -> Array:
        """The elements, as 16 bits each; zeros where there is none."""
        batch, size = self.batch, map.nbytes
        store = batch.memory.at(address)
        if store is None or address + size > store.base + store.nbytes or store.space != "global":
            findings.outside(batch, "global", address, size, self.position)
        begin = (address - store.base) // 2
        wanted = numbers[inside] + begin
        if store.state is not None and len(wanted):
            unset = store.state.view(np.uint16)[wanted] != _SET
            if unset.any():
                where = findings.place(batch, store, 2 * int(wanted[int(np.argmax(unset))]))
                self.fail(f"copies from {where}, which was never written", "uninitialised")
        self._note(store, 2 * wanted)
        values = np.zeros(len(numbers), np.uint16)
        values[inside] = store.data.view(np.uint16)[wanted]
        return values

    def _note(self, store: Store, offsets: Array) -> None:
        """Look for races of the reads."""
        batch = self.batch
        races = batch.races_of(store)
        if races is None or not len(offsets):
            return
        granules = offsets // races.granule
        granules = granules[np.concatenate(([True], granules[1:] != granules[:-1]))]
        offsets = granules * races.granule
        conflict = races.read(offsets, races.granule, np.full(len(offsets), batch.stamps[self.lane]), False)
        if conflict:
            findings.race(batch, store, offsets, races.granule, np.full(len(offsets), self.position), conflict, "read")


EXACT: dict[str, Any] = {}
PATTERNS = [
    (
        "cp",
        r"cp\.async\.bulk\.tensor\.([2-5])d\.shared::cluster\.global(\.tile)?\.mbarrier::complete_tx::bytes",
        _issue,
    ),
    ("cp", r"cp\.async\.bulk\.tensor\.(4)d\.shared::cluster\.global(\.im2col)\.mbarrier::complete_tx::bytes", _issue),
]
