"""The figures of a network whose dims calls decide: those of the typical call, and the memory of the smallest and the
largest.

Imports `ir` and dims.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from lightnet.dataclasses import dataclass
from lightnet.ir.instances import instance_of, symbols_of
from lightnet.ir.memory import call_symbols, memory_of
from lightnet.runtime.dim_text import text
from lightnet.runtime.dims import Dim, Size, at
from lightnet.tables import size


@dataclass(frozen=True)
class CallInfo:
    """A call: the values of the symbols (``batch = 4``), and the bytes of one memory space in it."""

    kind: str
    values: dict[str, int]
    nbytes: int | None

    def __str__(self) -> str:
        return ", ".join(f"{name} = {n}" for name, n in self.values.items())


@dataclass(frozen=True)
class OpenInfo:
    """The dims that calls decide: their `ranges` by name (``in 1..16``), the calls in which each has its lowest, its
    typical and its highest value, and the bytes of one memory space as a formula ("" where nothing is planned).
    Figures of the report are those of the typical call."""

    ranges: dict[str, str]
    calls: tuple[CallInfo, ...]
    formula: str

    @property
    def typical(self) -> CallInfo:
        return self.calls[1]

    @property
    def note(self) -> str:
        """The call that the figures are of, in a sentence."""
        ranges = ", ".join(f"{name} {domain}" for name, domain in self.ranges.items())
        return f"each call decides: {ranges}; figures are for {self.typical}"

    def memory_lines(self) -> list[str]:
        """The memory by call, a line for each, and the formula."""
        lines = [f"  {call.kind:7}  {size(call.nbytes)} ({call.nbytes:,} bytes) where {call}"
                 for call in self.calls if call.nbytes is not None]  # fmt: skip
        return [*lines, f"  in all   {self.formula}"] if lines else []


def open_info(module: ModuleOp, space: str = "") -> OpenInfo | None:
    """The dims of a module of any level that calls decide, with the bytes of a memory space if it is planned; None
    where there are none."""
    symbols = symbols_of(module) or {s.name: s for s in call_symbols(module)}
    if not symbols:
        return None
    nbytes: Size | None = memory_of(module).get(space)
    calls = []
    for kind in ("low", "typical", "high"):
        values = {name: getattr(symbols[name], kind) for name in sorted(symbols)}
        calls.append(CallInfo(kind, values, None if nbytes is None else at(nbytes, values)))
    ranges = {name: symbols[name].domain for name in sorted(symbols)}
    return OpenInfo(ranges, tuple(calls), "" if nbytes is None else text(nbytes, set(symbols)))


def typical_module(module: ModuleOp) -> ModuleOp:
    """The module as it is in the typical call; itself where calls decide nothing."""
    found = open_info(module)
    return module if found is None else instance_of(module, found.typical.values)


def dim_names(dims: tuple[Size, ...]) -> tuple[int | str, ...]:
    """Dims as reports show them: those that calls decide by their names (``batch``, ``2*length + 1``)."""
    return tuple(text(d, {s.name for s in d.symbols}) if isinstance(d, Dim) else d for d in dims)
