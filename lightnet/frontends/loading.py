"""The front ends by file suffix, as the registry lists them: a source in, a module (and, from some, weights) out.

A front end is a `FrontEnd`: `read(source, name, ctx, options)` gives an `Imported`. The source is text, or for a
`binary` form the path of a file or its bytes; `name` stands in locations, and text is kept in the context's source map,
so that later errors can show the line. Each imports its reader when it is used, so that one form costs nothing to the
others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from xdsl.dialects.builtin import ModuleOp

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.context import sources_of
from lightnet.ir.locations import loc_of
from lightnet.ir.resolving import resolve_beside
from lightnet.runtime.weights import WeightStore

if TYPE_CHECKING:
    from lightnet.frontends.open_dims import DimTable
    from lightnet.runtime.host.program import HostProgram


@dataclass(frozen=True)
class ReadOptions:
    """The options of reading a network.

    `include_dirs`, `eval_mode` and `defines` are for IL; `on_warning` gets what a source warns of. `shapes` gives
    inputs their dims (numbers, or names of dims), `dims` gives named dims their ranges and leaves open what is open
    (None: it may not be), `values` makes inputs constants; `weights` is the store that the caller has opened, for forms
    whose shapes follow from their weights. `seed` is that of random ops, None where the network may have none
    (`frontends/random.py`).
    """

    include_dirs: Sequence[str] = ()
    eval_mode: str = "arith"
    defines: Sequence[str] = ()
    on_warning: Callable[[SourceLoc, str], None] | None = None
    shapes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dims: Mapping[str, Any] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    weights: WeightStore | None = None
    seed: int | str | None = None


class Imported(NamedTuple):
    """A network as a front end gives it: its level-1 (or planned) module, and the weights that came with it."""

    module: ModuleOp
    weights: WeightStore | None = None


@dataclass(frozen=True)
class FrontEnd:
    """One form of networks. `binary` forms are read from a path or bytes; `reshapes` says that `read` heeds
    `ReadOptions.shapes` and `ReadOptions.values` itself (other forms are reshaped afterwards, see `reshaping.py`).
    `suffixes` are those that a plugin's front end is registered under; ours stand in the registry."""

    read: Callable[[Any, str, Any, ReadOptions], Imported]
    binary: bool = False
    reshapes: bool = False
    suffixes: tuple[str, ...] = ()


class OpenError(LightNetError):
    """The network's shapes are open: they depend on the shapes or the values of `inputs`. `again(shapes, values)` reads
    the same source with more of these, `named(warn)` (where there is one) with symbols for open dims, which have the
    default ranges; `signature` has (dtype name, dims, an open one as None or a name) of every input. Of a network with
    text, all this is of its numbers, and `host` is its host part."""

    inputs: frozenset[str] = frozenset()
    host: HostProgram | None = None
    again: Callable[[Mapping[str, Sequence[int]], Mapping[str, Any]], Imported]
    named: Callable[[Callable[[SourceLoc, str], None]], Imported] | None = None
    signature: Mapping[str, tuple[str, tuple[int | str | None, ...] | None]]


def _il(text: str, name: str, ctx: Any, options: ReadOptions) -> Imported:
    from lightnet.frontends.il import reader as il
    from lightnet.frontends.importer import to_module

    sources_of(ctx).add(name, text)
    net = il.read(text, name, include_dirs=options.include_dirs, eval_mode=options.eval_mode, defines=options.defines,
                  on_warning=options.on_warning)  # fmt: skip
    sources_of(ctx).update(net.texts)
    module = to_module(net)
    warn_of_data(module, options)
    return Imported(module)


def _json(text: str, name: str, ctx: Any, options: ReadOptions) -> Imported:
    sources_of(ctx).add(name, text)
    if is_nnvm(text):
        from lightnet.frontends.open_dims import DimTable

        read = resolve_beside("lightnet_nnvm.importer:read", "the front end for NNVM")
        dims = DimTable(options.dims or {})
        found = dims.taught(lambda: read(text, name, shapes=_sized(options.shapes, dims), weights=options.weights))
        warn = options.on_warning or (lambda loc, message: None)
        for remark in dims.remarks:
            warn(SourceLoc(name), remark)
        return Imported(*found)
    from lightnet.frontends import json_ir
    from lightnet.frontends.importer import to_module

    module = to_module(json_ir.read(text, name))
    warn_of_data(module, options)
    return Imported(reshaped(module, options))


def _mlir(text: str, name: str, ctx: Any, options: ReadOptions) -> Imported:
    from lightnet.frontends import mlir

    return Imported(mlir.read(text, name, ctx))


def _onnx(source: str | bytes, name: str, ctx: Any, options: ReadOptions) -> Imported:
    from lightnet.frontends.onnx import importer, reader

    model = reader.read_model(source, name)
    if options.dims is None:
        return importer.read(model, options.shapes, options.values, options.seed)
    warn = options.on_warning or (lambda loc, message: None)
    return importer.read_named(model, options.shapes, options.values, options.seed, options.dims, warn)


def warn_of_data(module: ModuleOp, options: ReadOptions) -> None:
    """Warn of tensors whose `data` is shorter than they are; a single number says that contents do not matter, as
    everywhere."""
    from lightnet.dialects.ln.source import Source, holds_data

    if (warn := options.on_warning) is None:
        return
    for op in module.walk():
        if not isinstance(op, Source) or not holds_data(op.from_file, op.ran):
            continue
        if 1 < len(op.data) < (count := op.result_specs[0].len):
            name, where = op.tensor_names[0], loc_of(op) or SourceLoc("")
            warn(where, f"tensor '{name}' has {count} elements, and its data has {len(op.data)}: zeros follow")


def reshaped(module: ModuleOp, options: ReadOptions) -> ModuleOp:
    """The module for the shapes that the options ask for."""
    if options.values:
        raise LightNetError("values decide shapes in ONNX models only: feed this network's inputs when it runs")
    if not options.shapes:
        return module
    from lightnet.frontends.open_dims import DimTable
    from lightnet.frontends.reshaping import with_shapes

    return with_shapes(module, _sized(options.shapes, DimTable(options.dims or {})))


def _sized(shapes: Mapping[str, Any], dims: DimTable) -> dict[str, Any]:
    """The dims of inputs that the caller gives, with symbols for names."""
    return {
        name: dims.dims(name, (), given) if isinstance(given, list | tuple) else given for name, given in shapes.items()
    }


def is_nnvm(text: str) -> bool:
    """Return whether JSON text is an NNVM graph: it has `arg_nodes`, which LightNet's own form has not."""
    return re.search(r'"arg_nodes"\s*:', text) is not None


IL = FrontEnd(_il)
JSON = FrontEnd(_json, reshapes=True)
MLIR = FrontEnd(_mlir)
ONNX = FrontEnd(_onnx, binary=True, reshapes=True)
