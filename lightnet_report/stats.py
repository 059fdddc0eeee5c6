"""`--stats`: what each pass did in numbers: rewrites by pattern, ops by name, bytes, operations, time. Imports `ir`,
dialects.

A *measure* is of a module at one moment, a *stage* of a pass, with the measures around it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from lightnet import tables
from lightnet.dataclasses import dataclass, field
from lightnet.dialects.launch import LaunchLine, lines_of, memref_bytes
from lightnet.dialects.ln.source import ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.layout import byte_size
from lightnet.ir.memory import memory_of
from lightnet.ir.op import LnOp
from lightnet.ir.passes import Instrumentation
from lightnet.ir.rewrites import Rewrite
from lightnet_debug import costs
from lightnet_report.calls import open_info, typical_module


@dataclass(frozen=True)
class Measure:
    """A module in numbers: ops by name; bytes of the tensors that ops compute at each run, and of those that are there
    before (params and results of `ln.once`); floating-point operations of a run (from `ln` ops: none at level 4); bytes
    of each memory space once planned; launches of level 4."""

    ops: Counter[str]
    tensor_bytes: int
    static_bytes: int
    flops: int
    memory: dict[str, int]
    launches: int

    @classmethod
    def of(cls, module: ModuleOp) -> Measure:
        """Measure a module of any level; where calls decide sizes, as it is in the typical one."""
        module = typical_module(module)
        ops: Counter[str] = Counter()
        tensors = static = flops = 0
        for op, once in _walk(module):
            ops[op.name] += 1
            if once:
                continue
            if isinstance(op, ParamOp | OnceOp):
                static += sum(nbytes(r.type) for r in op.results)
                continue
            if isinstance(op.parent_op(), FuncOp):
                tensors += sum(nbytes(r.type) for r in op.results if isinstance(r.type, TensorType))
            flops += costs.flops(op) if isinstance(op, LnOp) else 0
        count = sum(isinstance(line, LaunchLine) for line in lines_of(module))
        return cls(ops, tensors, static, flops, memory_of(module), count)

    @property
    def count(self) -> int:
        """The number of ops."""
        return self.ops.total()

    def as_json(self) -> dict[str, Any]:
        """The measure as JSON values."""
        return {
            "ops": self.count, "by_name": dict(sorted(self.ops.items())), "tensor_bytes": self.tensor_bytes,
            "static_bytes": self.static_bytes, "flops": self.flops, "memory": self.memory, "launches": self.launches,
        }  # fmt: skip


def _walk(module: ModuleOp) -> Iterator[tuple[Operation, bool]]:
    """Every op, and whether it stands in an `ln.once`, whose work is no part of a run."""
    stack: list[tuple[Operation, bool]] = [(module, False)]
    while stack:
        op, once = stack.pop()
        yield op, once
        inside = once or isinstance(op, OnceOp)
        stack += [
            (o, inside)
            for region in reversed(op.regions)
            for block in reversed(region.blocks)
            for o in reversed(list(block.ops))
        ]


def nbytes(type: Attribute) -> int:
    """Bytes of a tensor or memref type; 0 of any other."""
    if isinstance(type, TensorType):
        try:
            return byte_size(type)
        except TypeError:
            return 0
    return memref_bytes(type)


@dataclass
class _Stage:
    """A pass: seconds, rewrites by pattern, the measures before and after (None where it failed)."""

    name: str
    before: Measure
    after: Measure | None = None
    seconds: float = 0.0
    rewrites: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """The stage as JSON values; `seconds` is the only one that differs between equal runs."""
        after = self.after.as_json() if self.after is not None else None
        changed = op_changes(self.before, self.after) if self.after is not None else {}
        return {"pass": self.name, "seconds": round(self.seconds, 6), "rewrites": dict(self.rewrites.most_common()),
                "changed": changed, "after": after}  # fmt: skip


def op_changes(before: Measure, after: Measure) -> dict[str, tuple[int, int]]:
    """The numbers of ops of a name that there were and are, where that differs; the largest difference first."""
    names = {n for n in {*before.ops, *after.ops} if before.ops[n] != after.ops[n]}
    return {
        n: (before.ops[n], after.ops[n]) for n in sorted(names, key=lambda n: (-abs(before.ops[n] - after.ops[n]), n))
    }


class Stats(Instrumentation):
    """Collects the stages of the pipelines that it watches; measuring is not timed."""

    wants_rewrites = True

    def __init__(self) -> None:
        self.first: Measure | None = None
        self.stages: list[_Stage] = []
        self.note = ""  # of what call the figures are, where calls differ
        self._start = 0.0

    def before_pipeline(self, passes: Sequence[ModulePass], module: ModuleOp) -> None:
        if self.first is None:
            self.first = Measure.of(module)
            self.note = found.note if (found := open_info(module)) is not None else ""

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        last = self.stages[-1].after if self.stages else self.first
        self.stages.append(_Stage(str(pass_.spec()), last or Measure.of(module)))
        self._start = time.perf_counter()

    def rewrote(self, rewrite: Rewrite) -> None:
        self.stages[-1].rewrites[rewrite.pattern] += 1

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        stage = self.stages[-1]
        stage.seconds = time.perf_counter() - self._start
        stage.after = Measure.of(module)

    def pass_failed(self, pass_: ModulePass, module: ModuleOp, error: Exception) -> None:
        if self.stages and self.stages[-1].after is None:
            self.stages[-1].seconds = time.perf_counter() - self._start

    def as_json(self) -> dict[str, Any]:
        """The figures that were collected, as JSON values."""
        first = self.first.as_json() if self.first is not None else None
        note = {"note": self.note} if self.note else {}
        return {**note, "input": first, "passes": [s.as_json() for s in self.stages]}

    def json(self) -> str:
        """`as_json` as text."""
        return json.dumps(self.as_json(), indent=1) + "\n"

    def text(self) -> str:
        """A table with a line for each pass, then the rewrites and the changes in ops, by pass."""
        header = ("pass", "ms", "ops", "tensors", "static", "arena", "flops", "launches", "rewrites")
        rows = [_row("(input)", "", self.first, 0)] if self.first is not None else []
        rows += [_row(s.name, f"{s.seconds * 1e3:.1f}", s.after, s.rewrites.total()) for s in self.stages]
        lines = [tables.table(header, rows)]
        rewrites, changed = ([row for stage in self.stages for row in part(stage)] for part in (_rewrites, _changes))
        if rewrites:
            lines += ["", tables.table(("pass", "pattern", "rewrites"), rewrites)]
        if changed:
            lines += ["", tables.table(("pass", "op", "before", "after"), changed)]
        lines += ["", self.note] if self.note else []
        return "\n".join(lines) + "\n"


def _row(name: str, ms: str, m: Measure | None, rewrites: int) -> tuple[str, ...]:
    if m is None:
        return (name, ms, "failed", "", "", "", "", "", str(rewrites or ""))
    arena, static = m.memory.get("arena", 0), m.memory.get("static", m.static_bytes)
    sizes = [tables.size(n) if n else "" for n in (m.tensor_bytes, static, arena)]
    sizes.append(tables.count(m.flops) if m.flops else "")
    return (name, ms, str(m.count), *sizes, str(m.launches or ""), str(rewrites or ""))


def _rewrites(stage: _Stage) -> list[tuple[str, ...]]:
    return [(stage.name, pattern, f"{times}") for pattern, times in stage.rewrites.most_common()]


def _changes(stage: _Stage) -> list[tuple[str, ...]]:
    if stage.after is None:
        return []
    return [
        (stage.name, name, str(was), str(now)) for name, (was, now) in op_changes(stage.before, stage.after).items()
    ]
