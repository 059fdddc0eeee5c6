"""The facts about a network, as values, text and JSON: the form of every inspection. Imports tables and
diagnostics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from lightnet.dataclasses import asdict, dataclass, field
from lightnet.diagnostics import SourceLoc, printable
from lightnet.tables import count, shape, shortened, size, some, table
from lightnet_report.calls import OpenInfo

#: Names of ops, or of weights, that a line of text shows.
MAX_NAMED = 5

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class TensorInfo:
    """A tensor: an open dim is None or its name, `dims` is None where the rank is not known, `dtype` "" where the type
    is not."""

    name: str
    dims: Dims | None
    dtype: str

    def __str__(self) -> str:
        return printable(f"{self.name} {shape(self.dims)} {self.dtype}".rstrip())


@dataclass(frozen=True)
class OpInfo:
    """One op. `inputs` are its operands but for the params, of which it reads `params` elements. Costs are None where
    shapes are open: `flops` operations, `macs` of them in multiply-adds (two operations each), `bytes` to read and
    write."""

    name: str
    op: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    params: int
    flops: int | None
    macs: int | None
    bytes: int | None
    where: SourceLoc | None


@dataclass(frozen=True)
class Missing:
    """Ops of one type that cannot run, for one reason; `where` is the place of the first."""

    op: str
    reason: str
    names: tuple[str, ...]
    where: SourceLoc | None = None

    def __str__(self) -> str:
        more = f" and {len(self.names) - MAX_NAMED} more" if len(self.names) > MAX_NAMED else ""
        place = f"{self.where}: " if self.where is not None and self.where.line else ""
        return printable(
            f"{place}{self.op} x{len(self.names)} ({', '.join(self.names[:MAX_NAMED])}{more}): {self.reason}"
        )


@dataclass(frozen=True)
class MemoryInfo:
    """The planned network, in bytes: `activations` is the peak of the arena and `lower_bound` the most that is live at
    once; `static` are weights as the target keeps them, `ports` large inputs and outputs, which are the caller's
    memory; `kernels` read and write `traffic` bytes. Where calls decide sizes (`calls`), these are of the typical
    one."""

    target: str
    activations: int
    lower_bound: int
    static: int
    ports: int
    kernels: int
    traffic: int
    calls: OpenInfo | None = None

    @property
    def own(self) -> int:
        """Bytes that a network has for itself while it runs, without those of its caller: activations and weights."""
        return self.activations + self.static


@dataclass(frozen=True)
class FlowInfo:
    """The data-flow graph of the network without its weights (`dfg.py`): how many topological layers of inputs, ops
    and outputs it has, how many of them are in the largest, and the names of those that are linked with no other."""

    edges: int
    layers: int
    widest: int
    outliers: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """The facts about a network. `opsets` are an ONNX model's by domain. `missing` lists what the front end or the
    target cannot run, `problem` says what else stands in the way, `opened` which shapes a call has to decide;
    `weights_missing` are the tensors that a weight file has to hold and that no given one has. `host` says what of it
    runs on the host: ops on text. Where calls decide sizes (`calls`), figures are of the typical one, and
    `remarks` say which kernels are slower for it."""

    source: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    ops: tuple[OpInfo, ...]
    params: int
    params_bytes: int
    missing: tuple[Missing, ...] = ()
    memory: MemoryInfo | None = None
    problem: str = ""
    opened: str = ""
    weights_given: bool = False
    weights_missing: tuple[str, ...] = ()
    opsets: dict[str, int] = field(default_factory=dict)
    flow: FlowInfo | None = None
    host: str = ""
    calls: OpenInfo | None = None
    remarks: tuple[str, ...] = ()

    @property
    def op_counts(self) -> dict[str, int]:
        """The number of ops of each type, the most frequent first."""
        return dict(Counter(op.op for op in self.ops).most_common())

    @property
    def flops(self) -> int | None:
        """Operations of one run; None where shapes are open."""
        return _sum(op.flops for op in self.ops)

    @property
    def macs(self) -> int | None:
        """Multiply-adds of one run."""
        return _sum(op.macs for op in self.ops)

    @property
    def bytes(self) -> int | None:
        """Bytes that the ops read and write, each for itself."""
        return _sum(op.bytes for op in self.ops)

    @property
    def runs(self) -> bool:
        """True if nothing is known that keeps it from being compiled."""
        return not self.missing and not self.problem

    def json(self) -> str:
        """Everything, as JSON."""
        plain = asdict(self)
        for op, info in zip(plain["ops"], self.ops):
            op["where"] = str(info.where) if info.where else None
        for missing, one in zip(plain["missing"], self.missing):
            missing["where"] = str(one.where) if one.where else None
        totals = {"flops": self.flops, "macs": self.macs, "bytes": self.bytes, "op_counts": self.op_counts}
        return json.dumps({**plain, **totals}, indent=1)

    def text(self, layers: bool = False) -> str:
        """A page for a terminal, on which no name out of a file breaks a line; with `layers`, the table of all ops."""
        lines = [printable(self.source), *self._interface(), "", *self._counts()]
        if layers:
            lines += ["", table(_LAYERS, (_layer(op, self.source) for op in self.ops))]
        lines += ["", *self._totals()]
        if self.remarks:
            lines += ["", "remarks:", *(printable(f"  {text}") for text in self.remarks)]
        if self.missing:
            number = sum(len(m.names) for m in self.missing)
            lines += ["", f"cannot run ({number} in all):", *(f"  {m}" for m in self.missing)]
        for text in (self.opened, self.problem):
            lines += ["", printable(text, "\n")] if text else []
        return "\n".join(lines)

    def _interface(self) -> list[str]:
        sets = [f"opset {v}{f' of {d}' if d else ''}" for d, v in self.opsets.items()]
        return [*([f"  {', '.join(sets)}"] if sets else []), *(f"  input  {t}" for t in self.inputs),
                *(f"  output {t}" for t in self.outputs),
                *([printable(f"  {self.calls.note}")] if self.calls is not None else []),
                *([printable(f"  on the host, in NumPy: {self.host}")] if self.host else [])]  # fmt: skip

    def _counts(self) -> list[str]:
        lines = [f"{some(len(self.ops), 'op')}: " + ", ".join(f"{op} {n}" for op, n in self.op_counts.items())]
        if (flow := self.flow) is not None:
            more = ", ..." if len(flow.outliers) > MAX_NAMED else ""
            apart = f"; linked with nothing: {', '.join(flow.outliers[:MAX_NAMED])}{more}" * bool(flow.outliers)
            lines.append(
                f"graph without params: {some(flow.edges, 'edge')}, {some(flow.layers, 'layer')}, "
                f"at most {flow.widest} side by side{apart}"
            )
        return [printable(line) for line in lines]

    def _totals(self) -> list[str]:
        lines = [f"parameters: {count(self.params)} ({self.params:,}), {size(self.params_bytes)}"]
        if self.flops is not None and self.macs is not None and self.bytes is not None:
            lines.append(f"work: {count(self.flops, 'FLOP')}, of it {count(self.macs, 'MAC')} (two FLOP each)")
            lines.append(f"memory traffic of the ops one by one: {size(self.bytes)}")
        if (m := self.memory) is not None:
            lines.append(
                f"memory on target {m.target}: activations {size(m.activations)} ({m.activations:,} bytes; at least "
                f"{m.lower_bound:,} are live at once), weights {size(m.static)}: {m.own:,} bytes"
                + f"; beside these the caller's inputs and outputs {size(m.ports)} ({m.ports:,} bytes)"
                * bool(m.ports)
            )
            lines += m.calls.memory_lines() if m.calls is not None else []
            lines.append(f"kernels after fusion: {m.kernels}, memory traffic {size(m.traffic)}")
        if self.weights_missing:
            more = ", ..." if len(self.weights_missing) > MAX_NAMED else ""
            named = printable(", ".join(self.weights_missing[:MAX_NAMED])) + more
            which = "no given file has" if self.weights_given else "no weight file is given for"
            lines.append(f"weights: {which} {some(len(self.weights_missing), 'tensor')} ({named})")
        return lines


_LAYERS = ("name", "op", "inputs", "outputs", "params", "FLOP", "MAC", "bytes", "source")


def _layer(op: OpInfo, source: str) -> tuple[str, ...]:
    inputs, outputs = (" ".join(shape(t.dims) for t in tensors) for tensors in (op.inputs, op.outputs))
    work = ("?" if x is None else count(x) if x else "" for x in (op.flops, op.macs))
    return (shortened(op.name, 40), shortened(op.op, 24), shortened(inputs, 50), shortened(outputs, 40),
            count(op.params) if op.params else "", *work, "?" if op.bytes is None else size(op.bytes),
            _place(op.where, source))  # fmt: skip


def _place(where: SourceLoc | None, source: str) -> str:
    """A line of the network's file, or another place in full."""
    if where is None or not where.line:
        return ""
    return f"{where.line}:{where.col}" if where.file == source else str(where)


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def grouped(refused: Iterable[tuple[str, str, str, SourceLoc | None]]) -> tuple[Missing, ...]:
    """(op, name, reason, place) of what cannot run, by op and reason."""
    groups: dict[tuple[str, str], list[tuple[str, SourceLoc | None]]] = {}
    for op, name, reason, where in refused:
        groups.setdefault((op, reason), []).append((name, where))
    return tuple(Missing(op, reason, tuple(n for n, _ in items), items[0][1]) for (op, reason), items in groups.items())
