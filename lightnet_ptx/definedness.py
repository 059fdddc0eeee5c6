"""The registers that may be read before they are written, and what watches them when the kernel runs. Imports NumPy.

A must-be-assigned analysis over the control-flow graph (forward, intersection at joins). LLVM passes values on that it
never made (`undef`), so moves and stores may copy what is undefined; anything else that reads it is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightnet_ptx import findings

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site


def watched(sites: list[Site], steps: list[Step]) -> tuple[frozenset[int], list[Step]]:
    """The registers that need watching, and the steps with what watches them."""
    early = _read_early(sites)
    while True:  # what is copied from a watched register is watched
        more = {d for site in sites if site.copies and site.uses & early for d in site.sets} - early
        if not more:
            break
        early |= more
    if not early:
        return frozenset(), steps
    return frozenset(early), [_watch(site, step, early) for site, step in zip(sites, steps)]


def _blocks(sites: list[Site]) -> tuple[list[int], list[list[int]]]:
    """The starts of basic blocks, and the blocks that may follow each."""
    leaders = {0}
    for i, site in enumerate(sites):
        if site.target or not site.falls_through:
            leaders |= {*site.target, i + 1}
    starts = sorted(i for i in leaders if i < len(sites))
    number = {start: i for i, start in enumerate(starts)}
    follow: list[list[int]] = []
    for i, _ in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(sites)
        last = sites[end - 1]
        after = [number[t] for t in last.target]
        if last.falls_through and end < len(sites):
            after.append(number[end])
        follow.append(after)
    return starts, follow


def _assigned(site: Site) -> int:
    """The registers that are surely set, as bits."""
    if site.instruction.guard is not None:
        return 0
    return sum(1 << slot for slot in site.sets)


def _read_early(sites: list[Site]) -> set[int]:
    starts, follow = _blocks(sites)
    ends = [*starts[1:], len(sites)]
    gives = [0] * len(starts)
    for b, (start, end) in enumerate(zip(starts, ends)):
        for site in sites[start:end]:
            gives[b] |= _assigned(site)
    everything = -1
    entering = [0] + [everything] * (len(starts) - 1)
    work = [0]
    while work:
        b = work.pop()
        out = entering[b] | gives[b]
        for after in follow[b]:
            if entering[after] & out != entering[after]:
                entering[after] &= out
                work.append(after)
    early: set[int] = set()
    reached = _reachable(follow)
    for b, (start, end) in enumerate(zip(starts, ends)):
        if b not in reached:
            continue
        known = entering[b]
        for site in sites[start:end]:
            early |= {slot for slot in site.uses if not known >> slot & 1}
            known |= _assigned(site)
    return early


def _reachable(follow: list[list[int]]) -> set[int]:
    seen, work = {0}, [0]
    while work:
        for after in follow[work.pop()]:
            if after not in seen:
                seen.add(after)
                work.append(after)
    return seen


def _watch(site: Site, step: Step, early: set[int]) -> Step:
    uses, sets = sorted(site.uses & early), sorted(site.sets & early)
    if not uses and not sets:
        return step
    if site.copies:
        return _copy(step, uses, sets)
    return _checked(step, uses, sets)


def _checked(step: Step, uses: list[int], sets: list[int]) -> Step:
    def run(batch: Batch) -> None:
        for slot in uses:
            bad = ~batch.defined[slot] & batch.mask_array()
            if bad.any():
                name = batch.kernel.names[slot]
                findings.fail(
                    batch, "uninitialised", f"register {name} is read, and was never written", int(np.argmax(bad))
                )
        before = batch.mask_array()
        step(batch)
        for slot in sets:
            batch.defined[slot] |= before

    return run


def _copy(step: Step, uses: list[int], sets: list[int]) -> Step:
    def run(batch: Batch) -> None:
        for slot in uses:
            if batch.regs[slot] is None:
                kind = batch.kernel.kinds[slot]
                batch.regs[slot] = kind.type(0)
        mask = batch.mask_array()
        known = np.ones(batch.lanes, bool)
        for slot in uses:
            known &= batch.defined[slot]
        step(batch)
        for slot in sets:
            batch.defined[slot] = np.where(mask, known, batch.defined[slot])

    return run
