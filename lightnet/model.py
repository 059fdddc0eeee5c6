"""A network in memory: its level-1 module, its weights, and how a path becomes one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from xdsl.context import Context as XdslContext
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.source import Create, Input, Source
from lightnet.ir.budget import limited
from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.names import FreshNames, set_tensor_names, tensor_name
from lightnet.ir.op import LnOp
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.registry import FRONTENDS
from lightnet.ir.resolving import resolve_beside
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.passes.bind import is_data
from lightnet.passes.graph import tensor_names_in
from lightnet.passes.levels import verify_level
from lightnet.runtime.arrays import converted
from lightnet.runtime.weights import WeightStore, open_weights
from lightnet.source import STDIN_NAME, read_text

#: Tensors and kinds of ops that a model's `repr` shows.
_SHOWN = 8
#: Largest source file.
MAX_SOURCE = 1 << 28

Weights = str | Path | Mapping[str, np.ndarray] | WeightStore | None


@dataclass
class Model:
    """A network: `module` (level 1, or planned when the source was), `weights` (or None), the `seed` of random
    contents, and the context its locations and dialects live in."""

    module: ModuleOp
    source: str
    weights: WeightStore | None = None
    seed: int = 0
    ctx: XdslContext = field(default_factory=make_context)
    #: What the source warns of (#warning, a macro defined again).
    warnings: list[tuple[SourceLoc, str]] = field(default_factory=list)
    #: Whether `weights` are the source's own: others that a caller gives go before them, and do not replace them.
    brings_weights: bool = False

    @property
    def main(self) -> func.FuncOp:
        """The entry function."""
        return main_of(self.module)

    def __str__(self) -> str:
        return str(self.module)

    def __repr__(self) -> str:
        """Its inputs and outputs, and its ops by their type."""
        last = self.main.body.block.last_op
        takes = [
            _named_type(op.dst)
            for op in self.main.walk()
            if isinstance(op, Input) or (isinstance(op, Create) and is_data(op.dst))
        ]
        gives = [_named_type(value) for value in last.operands] if last is not None else []
        ops = Counter(op.optype for op in self.main.walk() if isinstance(op, LnOp) and not isinstance(op, Source))
        kinds = ", ".join(f"{name} {count}" for name, count in ops.most_common(_SHOWN)) + ", ..." * (len(ops) > _SHOWN)
        ends = " -> ".join(
            ", ".join(side[:_SHOWN]) + ", ..." * (len(side) > _SHOWN) or "nothing" for side in (takes, gives)
        )
        return f"<lightnet.Model {self.source}: {ends}; {ops.total()} ops: {kinds or 'none'}>"

    def _repr_html_(self) -> str:
        html: str = resolve_beside("lightnet_report.notebook:model_html", "the picture of a network")(self)
        return html

    def find(self, optype: str) -> list[LnOp]:
        """The ops of a type (``conv2d``), in their order, those inside of kernels, too."""
        return [op for op in self.module.walk() if isinstance(op, LnOp) and op.optype == optype]

    def run(self, passes: str, target: str = "cpu") -> Self:
        """Run passes on the module, in place, as ``ln-opt --pass`` names them. Returns the model; raises
        `LightNetError` as `parse_pipeline` and `run_pipeline` do."""
        run_pipeline(self.ctx, self.module, parse_pipeline(passes, {"target": target}))
        return self


def _named_type(value: SSAValue) -> str:
    """A tensor's name and type, as ``x float32[1, 3]``, dims that calls decide by their names."""
    spec = spec_of(value.type)
    return f"{tensor_name(value) or '?'} {spec.dtype.np}[{', '.join(map(str, spec.dims))}]"


def load(path: str | Path, weights: Weights = None, shapes: Mapping[str, Sequence[Any]] | None = None, *,
         dims: Mapping[str, Any] | None = None, values: Mapping[str, Any] | None = None, override: bool = False,
         seed: int | str | None = None,
         include_dirs: Sequence[str] = (),
         eval_mode: str = "arith", defines: Sequence[str] = (), ctx: XdslContext | None = None) -> Model:  # fmt: skip
    """Read a network: LightNet IL (``.net``), JSON IR or an NNVM or MXNet graph (``.json``), MLIR (``.mlir``), ONNX
    (``.onnx``); ``-`` is standard input, whose form is told from its text.

    An `onnx.ModelProto` is read as its bytes are. `weights` is a file (``.wts``, ``.npz``, ``.safetensors``,
    ``.params``) or a mapping of arrays, which go before those that the network brings along; with `override` it also
    fills every tensor that it names where the network gives contents of its own (``from_file=false``); `shapes` gives
    inputs other dimensions (the shapes of everything behind them follow), and decides those that a graph leaves open;
    the others stay open, from 1 to 1024 unless `dims` gives them ranges, as ``{"batch": (1, 16), "height": (32, 1024,
    32)}``, by their names in an ONNX model or in `shapes` (``{"ids": ["batch", "2*n"]}``), those without a name being
    ``ids.1`` (axis 1); what the model asks of them beyond that is in the warnings;
    `values` makes inputs of an ONNX model constants. `seed` seeds contents declared random (0 unless given) and, where
    it is given, an ONNX model's random ops, which are refused without one: an integer, or ``"input"``, which makes it
    an input of the network called ``seed``. `include_dirs`, `defines` and `eval_mode` (``arith``, or ``perl``, which
    runs code from the file) are for IL. Raises `LightNetError` for every mistake in the files, `OpenError` where more
    of `shapes` or `values` is needed.
    """
    return _model(*_source(path), weights, shapes, values, override, seed, ctx, dims=dims,
                  include_dirs=include_dirs, eval_mode=eval_mode, defines=defines)  # fmt: skip


def load_closed(source: Any, weights: Weights = None, shapes: Mapping[str, Sequence[Any]] | None = None,
                **options: Any) -> Model:  # fmt: skip
    """As `load` (of an ONNX model's bytes, too), but dims that nobody named are an `OpenError`, by which who calls can
    read the model as it likes."""
    found = (source, ".onnx", "<text>") if isinstance(source, bytes) else _source(source)
    return _model(*found, weights, shapes, names=False, **options)


def _source(path: Any) -> tuple[str | bytes, str, str]:
    """The text or bytes to read, their form by suffix, and their name."""
    if hasattr(path, "SerializeToString"):  # an onnx.ModelProto
        return path.SerializeToString(), ".onnx", "<model>"
    return _found(path)


def _found(path: Any) -> tuple[str, str, str]:
    """The text at a path (the path itself, where its form is read from the file), its form by suffix, and its name."""
    if not isinstance(path, str | os.PathLike):
        raise LightNetError(
            f"a network to load is a path, or an onnx.ModelProto, not a {type(path).__name__}: `loads` takes text and "
            "bytes"
        )
    path = os.fspath(path)
    name = STDIN_NAME if path == "-" else path
    suffix = Path(path).suffix.lower()
    if suffix in FRONTENDS and FRONTENDS.get(suffix).binary:
        return path, suffix, name
    text = read_text(path, MAX_SOURCE)
    return text, suffix if suffix in FRONTENDS else sniff(text), name


def loads(source: str | bytes, suffix: str, name: str = "<text>", weights: Weights = None,
          shapes: Mapping[str, Sequence[Any]] | None = None, *, dims: Mapping[str, Any] | None = None,
          values: Mapping[str, Any] | None = None,
          override: bool = False, seed: int | str | None = None, include_dirs: Sequence[str] = (),
          eval_mode: str = "arith",
          defines: Sequence[str] = (), ctx: XdslContext | None = None) -> Model:  # fmt: skip
    """As `load`, from text (of an ONNX model: its bytes) in the form that `suffix` names."""
    if isinstance(source, str) == FRONTENDS.get(suffix).binary:
        raise LightNetError(
            f"a network in the form {suffix} is read from {'bytes' if isinstance(source, str) else 'text'}"
        )
    return _model(source, suffix, name, weights, shapes, values, override, seed, ctx, dims=dims,
                  include_dirs=include_dirs, eval_mode=eval_mode, defines=defines)  # fmt: skip


@limited()
def _model(source: str | bytes, suffix: str, name: str, weights: Weights, shapes: Mapping[str, Sequence[int]] | None,
           values: Mapping[str, Any] | None = None, override: bool = False, seed: int | str | None = None,
           ctx: XdslContext | None = None, names: bool = True, **options: Any) -> Model:  # fmt: skip
    """The model. Where it leaves dims open they are symbols, with `names`."""
    from lightnet.frontends.loading import ReadOptions, reshaped

    ctx = ctx or make_context()
    warnings: list[tuple[SourceLoc, str]] = [
        (SourceLoc(name), f"input '{given}' gets the shape {list(dims)}, which has no elements")
        for given, dims in (shapes or {}).items() if isinstance(dims, list | tuple) and 0 in dims
    ]  # fmt: skip
    opened = open_weights(weights) if weights is not None else None

    def warn(loc: SourceLoc, message: str) -> None:
        warnings.append((loc, message))

    given = ReadOptions(on_warning=warn, shapes=dict(shapes or {}),
                    values=dict(values or {}), weights=opened, seed=seed, **options)  # fmt: skip
    front_end = FRONTENDS.get(suffix)
    try:
        module, own = imported(front_end, source, name, ctx, given, warn if names else None)
        verify_level(module)
    except LightNetError as e:
        e.warnings = warnings
        raise
    if not front_end.reshapes:
        module = reshaped(module, given)
    name_sources(module)
    store = open_store(weights, module) if weights is not None else None
    if override and store is not None:
        take_from_store(module, store)
    return Model(
        module, name, combined(own, store), seed if isinstance(seed, int) else 0, ctx, warnings, own is not None
    )


def imported(front_end: Any, source: str | bytes, name: str, ctx: Any, given: Any, warn: Any) -> Any:
    """The module that a front end reads, with these `ReadOptions`. With `warn`, open dims are symbols where they can
    be; what that teaches of them is said there."""
    from lightnet.frontends.loading import OpenError

    try:
        return front_end.read(source, name, ctx, given)
    except OpenError as e:
        if warn is None or e.named is None or e.host is not None:  # of text, calls alone know how much there is
            raise
        try:
            return e.named(warn)
        except LightNetError:
            raise e from None


def name_sources(module: ModuleOp) -> None:
    """Give every input and param without a name one, by which it is fed and its contents are found: its SSA name, or
    ``source``."""
    nameless = [op for op in module.walk() if isinstance(op, Source) and not op.tensor_names[0]]
    names = FreshNames(tensor_names_in(module)) if nameless else FreshNames()
    for op in nameless:
        set_tensor_names(op, [names.fresh(op.results[0].name_hint or "source")])


def combined(own: WeightStore | None, given: WeightStore | None) -> WeightStore | None:
    """The store of a network that brings weights of its own: `given` goes before `own`."""
    if own is None or given is None:
        return given if own is None else own
    return own.under(given)


def take_from_store(module: ModuleOp, store: WeightStore) -> None:
    """Let every input and param that `store` names take its contents from there."""
    for op in module.walk():
        if isinstance(op, Source) and op.tensor_names[0] in store:
            op.properties["from_file"] = ParamAttr(True)


def open_store(weights: str | Path | Mapping[str, np.ndarray] | WeightStore, module: ModuleOp) -> WeightStore:
    """The weight store for a network. Arrays of a mapping become of the dtype of the tensor they are for, as fed arrays
    do (`runtime.arrays`: float64 is rounded to float32); a file's arrays must have it."""
    if isinstance(weights, WeightStore) or not isinstance(weights, Mapping):
        return open_weights(weights)
    arrays = dict(weights)
    for op in main_of(module).walk():
        if isinstance(op, Source) and (name := op.tensor_names[0]) in arrays:
            value = np.asarray(arrays[name])
            arrays[name] = value if value.dtype.hasobject else converted(name, value, op.result_specs[0].dtype)
    return open_weights(arrays)


def sniff(text: str) -> str:
    """The front end of a text that has no file name: JSON starts with a brace, MLIR names a function or module."""
    import re

    bare = re.sub(r"//[^\n]*|/\*.*?\*/|\s+", " ", text[:4096], flags=re.DOTALL).lstrip()
    if bare.startswith("{"):
        return ".json"
    if re.match(r'(builtin\.module|module|func\.func|"builtin|%|#\w+\s*=)', bare):
        return ".mlir"
    return ".net"
