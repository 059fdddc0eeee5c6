"""A network as a list of statements: what the IL and JSON readers produce and the JSON writer takes.

It is text-near (nothing is checked here beyond its form) and knows no IR: `importer.py` turns it into an `ln` module,
`lightnet_export/netlist.py` makes it from one.
"""

from __future__ import annotations

from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import SourceLoc
from lightnet.ir.params import ParamValue
from lightnet.ir.resolving import resolve_beside
from lightnet.source import Texts

#: What a text begins with that stands for a size which each call decides, as in JSON IR's ``"?batch(1..16)"``.
OPEN_SIZE = "?"


@dataclass(slots=True)
class NetTensor:
    """A tensor in an op's argument list; `dims` and `offset` (bytes) are there in a planned network only, `layout` (a
    token) where memory is not row-major."""

    arg: str
    name: str
    dims: tuple[int, ...] | None = None
    offset: int | None = None
    layout: str | None = None


@dataclass(slots=True)
class NetParam:
    arg: str
    value: ParamValue


@dataclass(slots=True)
class NetOp:
    """One statement. `body` holds the ops of a kernel region (None for an ordinary op)."""

    name: str
    optype: str
    tensors_in: list[NetTensor]
    tensors_out: list[NetTensor]
    params: list[NetParam]
    loc: SourceLoc
    body: list[NetOp] | None = None


@dataclass(slots=True)
class Netlist:
    """`mem_sizes[i]` is the size in bytes of memory type i (a planned network); `texts` the source's, for carets.
    `is_il` says that it was written in IL, whose rules are upstream's."""

    ops: list[NetOp]
    file: str
    mem_sizes: list[int] | None = None
    texts: Texts = field(default_factory=Texts)
    #: Whatever else stood at the top level of the JSON (ignored by upstream; ours keeps its own keys under "lightnet").
    extra: dict = field(default_factory=dict)
    is_il: bool = False


def netlist_of(module: Any) -> Netlist:
    """The netlist of a module of level 1, 2 or 3, by what stands beside the package. Raises `LightNetError` for an op
    that no netlist can say, and where that is not installed."""
    return resolve_beside("lightnet_export.netlist:from_module", "writing JSON IR")(module)
