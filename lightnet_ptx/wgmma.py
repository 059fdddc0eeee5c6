"""The instructions of products by warpgroups, of factors in shared memory: `wgmma`. Imports NumPy. "PTX ISA", 9.7.15.

A product reads its factors from its issue until a `wgmma.wait_group` by the warpgroup covers it; its sums stay in
`products` for so long. Products are exact; sums are in float32, in an order that hardware does not share.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx import tree as ptx
from lightnet_ptx.clocks import GROUP
from lightnet_ptx.descriptors import DEPTH, descriptor, layout, pieces
from lightnet_ptx.products import ROWS, Products, no_warpgroups
from lightnet_ptx.rounding import bf16_to_f32, f16, f32

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Kernel, Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any
_FULL = np.uint32(0xFFFFFFFF)


def _products(batch: Batch) -> Products:
    """The products of a batch whose kernel has some."""
    assert batch.products is not None
    return batch.products


def _together(batch: Batch) -> bool:
    """Bring whole warpgroups together; False where none is complete."""
    if batch.threads % GROUP:
        no_warpgroups(batch)
    return batch.gather_warps(_FULL, GROUP)


class _Factor:
    """A factor of a product: its descriptor, its sign, and how it lies."""

    def __init__(self, site: Site, kind: str, size: int, operands: tuple[ptx.Operand, ...]) -> None:
        self.read, self.kind, self.size = site.reader(operands[0], "u64"), kind, size
        self.sign = _immediate(site, operands[1], (1, -1))
        self.by_k = bool(_immediate(site, operands[2], (0, 1)))

    def load(self, batch: Batch, groups: Array, product: list[tuple[Array, Array]]) -> Array:
        """The elements [groups, size, 16] in float32. What the product reads is added to `product`."""
        values = np.broadcast_to(self.read(batch.regs), batch.lanes).reshape(-1, GROUP)[groups]
        differ = values != values[:, :1]
        if differ.any():
            group, lane = (int(k[0]) for k in np.nonzero(differ))
            self._fail(batch, int(groups[group]) * GROUP + lane, "it differs within the warpgroup")
        found = np.zeros((len(groups), self.size, DEPTH), f32)
        for value in np.unique(values[:, 0]):
            mine = values[:, 0] == value
            found[mine] = self._load(batch, groups[mine], int(value), product)
        return found if self.sign == 1 else -found

    def _load(self, batch: Batch, groups: Array, value: int, product: list[tuple[Array, Array]]) -> Array:
        d = descriptor(value)
        if isinstance(d, str):
            self._fail(batch, int(groups[0]) * GROUP, d)
        parts = pieces(d, self.size, self.by_k)
        if int(parts[-1]) + 16 > batch.shared_bytes:
            batch.for_lanes(
                groups[:1] * GROUP,
                lambda: findings.outside(batch, "shared", int(parts[-1]), 16, 0, batch.shared_bytes),
            )
        base = groups * GROUP // batch.per_block * batch.shared_bytes
        offsets = (base[:, None] + parts).ravel()
        active = batch.lanes_at(None)
        positions = np.repeat(np.searchsorted(active, groups * GROUP), len(parts))
        batch.check_states(batch.shared, offsets, 16, positions, False)
        if batch.clocks is not None:
            granules = np.unique(batch.clocks.spread(parts, 16))
            batch.clocks.begin_reads(groups, granules)
            product.append((groups, granules))
        places = (base[:, None, None] + layout(d, self.size, self.by_k)) // 2
        words = batch.shared.data.view(np.uint16)[places]
        return words.view(f16).astype(f32) if self.kind == "f16" else bf16_to_f32(words)

    def _fail(self, batch: Batch, lane: int, reason: str) -> None:
        findings.fail(batch, "descriptor", f"the descriptor of a factor: {reason}", lane)


def _immediate(site: Site, operand: ptx.Operand, allowed: tuple[int, int]) -> int:
    if not isinstance(operand, ptx.Imm) or operand.kind != "int" or operand.value not in allowed:
        raise site.error(f"a number is expected here: {allowed[0]} or {allowed[1]}")
    return int(operand.value)


def _mma(site: Site, match: re.Match[str]) -> Step:
    """``wgmma.mma_async d, a, b, scale-d, scale-a, scale-b, trans-a, trans-b``: D = A B + D, or A B where scale-d is
    false."""
    site.count(8)
    cols, kind = int(match[1]), match[2]
    if cols % 8 or not 8 <= cols <= 256:
        raise site.error(f"{cols} columns: a multiple of 8 up to 256", "opcode")
    dest, a, b, scale, *numbers = site.operands
    if not isinstance(dest, ptx.Vec) or len(dest.items) != cols // 2:
        raise site.error(f"a vector of {cols // 2} registers is expected")
    slots = [site.slot(item, "f32") for item in dest.items]
    if None in slots or len(set(slots)) != len(slots):
        raise site.error("the sums are in different registers")
    key = tuple(slot for slot in slots if slot is not None)
    kernel = site.decoder.kernel
    kernel.sums |= set(key)
    site.touches("shared", 16)
    if isinstance(scale, ptx.Imm) and scale.value:
        site.uses |= set(key)
    scaled = site.reader(scale, "pred")
    factors = (
        _Factor(site, kind, ROWS, (a, numbers[0], numbers[2])),
        _Factor(site, kind, cols, (b, numbers[1], numbers[3])),
    )

    def run(batch: Batch) -> None:
        if not _together(batch):
            return
        groups = _products(batch).groups()
        adds = np.broadcast_to(scaled(batch.regs), batch.lanes).reshape(-1, GROUP)[groups]
        if (adds != adds[:, :1]).any():
            message = "whether sums are added to differs within the warpgroup"
            findings.fail(batch, "wgmma", message, int(groups[0]) * GROUP)
        read: list[tuple[Array, Array]] = []
        left, right = (f.load(batch, groups, read) for f in factors)
        product = _products(batch).begin(key, groups, adds[:, 0], left @ right.transpose(0, 2, 1))
        product.factors = read

    return run


def _simple(act: str) -> Any:
    def make(site: Site) -> Step:
        site.count(0)

        def run(batch: Batch) -> None:
            if _together(batch) and batch.products is not None:
                getattr(batch.products, act)()

        return run

    return make


def _wait(site: Site) -> Step:
    site.count(1)
    operand = site.operands[0]
    if not isinstance(operand, ptx.Imm) or operand.kind != "int" or not 0 <= operand.value <= 7:
        raise site.error("the number of groups is one of 0 to 7")
    left = int(operand.value)

    def run(batch: Batch) -> None:
        if _together(batch) and batch.products is not None:
            batch.products.wait(left)

    return run


def guarded(kernel: Kernel, sites: list[Site], steps: list[Step]) -> list[Step]:
    """The steps, where those that access registers of sums, and are no products themselves, say so."""
    if not kernel.sums:
        return steps
    number = {slot: i for i, slot in enumerate(sorted(kernel.sums))}
    found = []
    for site, step in zip(sites, steps):
        slots = sorted((site.uses | site.sets) & kernel.sums)
        if slots and not site.opcode.startswith("wgmma.mma_async"):
            step = _guard(step, np.array([number[s] for s in slots]), [kernel.names[s] for s in slots])
        found.append(step)
    return found


def _guard(step: Step, rows: Array, names: list[str]) -> Step:
    def run(batch: Batch) -> None:
        _products(batch).touch(rows, names)
        step(batch)

    return run


EXACT: dict[str, Any] = {
    "wgmma.fence.sync.aligned": _simple("fence"),
    "wgmma.commit_group.sync.aligned": _simple("commit"),
    "wgmma.wait_group.sync.aligned": _wait,
}
PATTERNS = [("wgmma", r"wgmma\.mma_async\.sync\.aligned\.m64n(\d{1,3})k16\.f32\.(f16|bf16)\.\2", _mma)]
