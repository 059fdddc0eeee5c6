"""The record that an execution of a module leaves behind, and the differences of two: plain data.

Imports NumPy, the `ln` dialect's sources and `ir`.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import SourceLoc
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.params import ParamValue
from lightnet.ir.types import TensorSpec
from lightnet_trust.compare import Mismatch

#: Bytes of named tensors that a trace keeps to compare with; outputs are always kept.
TRACE_BUDGET = 1 << 30


@dataclass(frozen=True)
class Difference:
    """The first thing that is not as it was. `kind`: ``value`` (a tensor), ``interface`` (inputs, outputs, their
    types), ``effect`` (a print), ``memory`` (bytes overwritten while they are needed), ``fails`` (it does not execute
    or verify).

    `what` says it in one line; `loc` and `op` are the place and the label of the op that computes it afterwards, if
    there is one; `data` names the data set.
    """

    kind: str
    what: str
    tensor: str | None = None
    loc: SourceLoc | None = None
    op: str | None = None
    mismatch: Mismatch | None = None
    data: str = ""

    def __str__(self) -> str:
        return self.what


class DifferenceError(Exception):
    """A `Difference` on its way out of an execution."""

    def __init__(self, difference: Difference):
        super().__init__(difference.what)
        self.difference = difference


@dataclass(frozen=True)
class Fed:
    """Something that can be fed: its type, what it is (``ln.input`` …), what it holds where nobody feeds it (`ran`,
    `data` and `from_file` as the network has them), and whether it is read only when a network is loaded."""

    spec: TensorSpec
    kind: str
    own: tuple[ParamValue, ...]
    once: bool

    @classmethod
    def of(cls, op: Source) -> Self:
        values = op.param_values()
        own = tuple(values[key] for key in ("ran", "data", "from_file"))
        return cls(op.result_specs[0], op.name, own, isinstance(op.parent_op(), OnceOp))

    def changed(self, before: Fed) -> str | None:
        """The name of what is not as it was before, if anything."""
        if self.spec != before.spec:
            return f"was {before.spec} before and is {self.spec} after"
        if self.own != before.own:
            held = f"held {before.own!r:.80} where nobody feeds it (ran, data, from_file)"
            return f"{held}, and holds {self.own!r:.80} after"
        if before.kind not in ("ln.create", self.kind):
            return f"was an {before.kind} before and is an {self.kind} after"
        return None


@dataclass
class Output:
    """An operand of `func.return`."""

    name: str | None
    spec: TensorSpec
    array: np.ndarray | None = None  #: None where the module does not say (a plan by upstream's rules)


@dataclass
class Trace:
    """The record of an execution: tensors by name in program order (a name that two different ones have is left out),
    outputs, what was printed, and what can be fed. `unkept` counts tensors left out for want of memory.

    Of a tensor there are two arrays: what its op gave, which the next execution is compared with, and the earlier array
    that went on in its place.
    """

    values: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    shown: list[tuple[str, np.ndarray]] = field(default_factory=list)
    fed: dict[str, Fed] = field(default_factory=dict)
    compared: int = 0
    unkept: int = 0
    ambiguous: set[str] = field(default_factory=set)
    _bytes: int = field(default=0, init=False)

    def keep(self, name: str, given: np.ndarray, passed_on: np.ndarray) -> None:
        if name in self.ambiguous:
            return
        known = self.values.get(name)
        if known is None:
            if self._bytes + given.nbytes > TRACE_BUDGET:
                self.unkept += 1
                return
            self._bytes += given.nbytes
            self.values[name] = (given, passed_on)
        elif known[1] is not passed_on:
            self.ambiguous.add(name)
            del self.values[name]
