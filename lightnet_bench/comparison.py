"""All that there is to say of two sides: time, memory, code, outputs, kernels; as text and as JSON.

`compare` measures. Imports sides, rotation and kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import same_bytes
from lightnet.tables import shortened, size, some, table
from lightnet_bench import kernels
from lightnet_bench.intervals import FASTER, MARGIN, NO_DIFFERENCE, SLOWER, UNDECIDED, Interval
from lightnet_bench.rotation import Paired, paired
from lightnet_bench.sides import Side
from lightnet_debug.arrays import ArrayDifference, difference
from lightnet_trust.verdicts import verdict

#: Seconds that are measured at most, and the part of them that is for kernels.
LIMIT, FOR_KERNELS = 14.0, 0.15
#: Rows of the table of kernels.
TOP = 20
HEADER = ("kernel", "ops", "A us", "B us", "B/A", "predicted", "choices of A", "of B")
_MEANING = {
    SLOWER: "B is slower",
    FASTER: "B is faster",
    NO_DIFFERENCE: "no difference",
    UNDECIDED: "undecided: no difference was found, and one of this size not ruled out",
}


@dataclass(frozen=True)
class Output:
    """An output of both sides: how far B's is from A's, whether they are equal to the bit, and whether A's is one
    number throughout, so that agreement says little."""

    name: str
    difference: ArrayDifference
    equal: bool
    constant: bool

    @property
    def error(self) -> float:
        """The largest error as a share of the largest value; infinite where they are not numbers alike."""
        return self.difference.scaled

    def __str__(self) -> str:
        found = self.difference
        text = "equal to the bit" if self.equal else found.mismatch or (
            f"largest error {found.absolute:.3g}, {self.error:.2g} of the largest value, "
            f"{found.relative:.2g} of an element's own")  # fmt: skip
        return text + (" (A's is constant: that says little)" if self.constant else "")


@dataclass(frozen=True)
class Comparison:
    """Two sides, measured. `times` are the calls, `margin` the difference that counts as none, `clock` says what times
    are of; `kernels` is empty where they could not be timed, for the reason in `notes`."""

    sides: tuple[Side, Side]
    times: Paired
    margin: float
    clock: str
    outputs: tuple[Output, ...]
    kernels: tuple[kernels.Matched, ...]
    notes: tuple[str, ...]

    @property
    def ratio(self) -> Interval:
        """The time of a call of B over that of A."""
        return self.times.interval()

    @property
    def verdict(self) -> str:
        """One of `intervals.SLOWER` and its like, about B."""
        return self.ratio.verdict(self.margin)

    @property
    def error(self) -> float:
        """The largest error of an output, as a share of its largest value."""
        return max((output.error for output in self.outputs), default=0.0)

    def head(self) -> list[tuple[str, str]]:
        """The lines above the kernels: a name and a sentence each."""
        a, b = self.sides
        first, second = self.times.medians
        calls = f"{1e3 * first:.4g} ms and {1e3 * second:.4g} ms a call"
        found = self.ratio
        lines = [
            ("A", a.text),
            ("B", b.text),
            ("time", f"B/A {found}: {_MEANING[self.verdict]}"),
            ("", f"{calls} ({some(len(self.times.logs), 'pair')} in {self.times.took:.1f} s; {self.clock}; interval: "
                 f"{found.confidence:.0%}; below {self.margin:.1%} is no difference)"),
        ]  # fmt: skip
        memory = [side.memory for side in self.sides]
        for name in dict.fromkeys((*memory[0], *memory[1])):
            lines.append((f"memory, {name}", _change(memory[0].get(name, 0), memory[1].get(name, 0))))
        codes = [side.code_bytes for side in self.sides]
        if codes[0] is not None and codes[1] is not None:
            lines.append(("code", _change(codes[0], codes[1])))
        lines += [(f"output '{shortened(o.name, 40)}'", str(o)) for o in self.outputs]
        return lines + [("note", note) for note in self.notes]

    def rows(self) -> list[tuple[str, ...]]:
        """The kernels whose time changed most, without those that run the same code."""
        changed = sorted((k for k in self.kernels if not k.same), key=lambda k: -abs(k.gain))
        return [_row(k) for k in changed[:TOP]]

    def foot(self) -> list[str]:
        """The lines below the kernels."""
        if not self.kernels:
            return []
        same = [k for k in self.kernels if k.same]
        rest = len(self.kernels) - len(same) - TOP
        lines = [f"and {some(rest, 'more kernel')} that differ"] if rest > 0 else []
        if same:
            first, second = (sum(k.seconds[i] for k in same) for i in (0, 1))
            lines.append(f"{some(len(same), 'kernel')} run the same code on both sides: {1e6 * first:.0f} us and "
                         f"{1e6 * second:.0f} us")  # fmt: skip
        return lines

    def text(self) -> str:
        """All of it, as plain text."""
        head = self.head()
        width = max(len(name) for name, _ in head)
        lines = [f"{name.ljust(width)}  {text}".rstrip() for name, text in head]
        if rows := self.rows():
            lines += ["", table(HEADER, rows)]
        return "\n".join([*lines, *([""] if self.kernels else []), *self.foot()])

    def values(self, ok: bool = True) -> dict[str, Any]:
        """All of it, as the JSON values of a verdict (`lightnet_trust.verdicts`), `ok` where it exceeds no limit
        that was asked for: times in seconds, but of kernels in nanoseconds."""
        medians = self.times.medians
        sides = [
            {"what": side.text, "seconds": medians[i], "memory": side.memory, "code_bytes": side.code_bytes}
            for i, side in enumerate(self.sides)
        ]
        outputs = [
            {"name": o.name, "equal": o.equal, "constant": o.constant, "mismatch": o.difference.mismatch,
             "absolute": o.difference.absolute, "relative": o.difference.relative,
             "of_largest": o.error if np.isfinite(o.error) else None}
            for o in self.outputs
        ]  # fmt: skip
        return verdict(
            "compare", self.verdict, ok, notes=list(self.notes), ratio=kernels.ratio_json(self.ratio),
            margin=self.margin, seconds_measured=self.times.took, clock=self.clock, a=sides[0], b=sides[1],
            outputs=outputs, kernels=[k.json() for k in self.kernels],
        )  # fmt: skip


def compare(
    sides: tuple[Side, Side],
    limit: float = LIMIT,
    margin: float = MARGIN,
    above: float | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Measure two sides for at most `limit` seconds: until it is decided which is faster by more than `margin` (or,
    with `above`, on which side of that ratio they are), then their kernels. Raises LightNetError as a call does."""
    progress("outputs")
    outputs = compared(*(side.call() for side in sides))
    own = [side.clock for side in sides]
    clock, of = (time.thread_time, "processor time of one thread") if None not in own else (time.perf_counter, "time")
    progress("calls")
    places = sides[0].places(), sides[1].places()
    times = paired(places, (1 - FOR_KERNELS) * limit, lambda found: found.is_decided(margin, above), clock, seed,
                   lambda found, took: progress(f"B/A {found}"))  # fmt: skip
    progress("kernels")
    notes, matched = [], list[kernels.Matched]()
    try:
        matched = kernels.timed(sides, FOR_KERNELS * limit, seed)
    except LightNetError as error:
        notes.append(f"kernels are not timed: {error.message}")
    return Comparison(sides, times, margin, of, tuple(outputs), tuple(matched), tuple(notes))


def compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Output]:
    """The outputs of two sides by name, in the order of the first; what one side lacks is a mismatch."""
    found = []
    for name in dict.fromkeys((*first, *second)):
        if name not in first or name not in second:
            which = "A" if name in first else "B"
            found.append(Output(name, ArrayDifference(mismatch=f"only {which} gives it"), False, False))
            continue
        a, b = first[name], second[name]
        arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and not a.dtype.hasobject
        alike = arrays and a.shape == b.shape and a.dtype == b.dtype
        equal = same_bytes(a, b) if alike else not arrays and a is not None and bool(np.all(np.asarray(a == b)))
        constant = arrays and a.size > 1 and bool((a == a.reshape(-1)[0]).all())
        found.append(Output(name, difference(b, a), equal, constant))
    return found


def _change(first: int, second: int) -> str:
    text = f"{size(first)} and {size(second)}"
    return f"{text} ({second / first - 1:+.1%})" if first and first != second else text


def _row(k: kernels.Matched) -> tuple[str, ...]:
    ops = [" | ".join(kernel.ops for kernel in side) for side in k.kernels]
    told = ops[0] if ops[0] == ops[1] else f"{ops[0] or '-'} -> {ops[1] or '-'}"
    choices = ["; ".join(kernel.choices for kernel in side) for side in k.kernels]
    guess = [f"{1e-3 * p:.1f}" if p is not None else "?" for p in k.predicted]
    times = [f"{1e6 * s:.1f}" if side else "-" for s, side in zip(k.seconds, k.kernels)]
    ratio = str(k.ratio) if k.ratio is not None else ""
    shown = [shortened(c, 44) for c in choices]
    return shortened(k.name, 28), shortened(told, 40), *times, ratio, f"{guess[0]} {guess[1]}", *shown
