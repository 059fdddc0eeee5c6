"""A network in memory: its level-1 module, its weights, and how a path becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from xdsl.context import Context as XdslContext
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import SourceLoc
from lightnet.dialects.ln.source import Source
from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.registry import FRONTENDS
from lightnet.ir.types import ParamAttr
from lightnet.runtime.arrays import converted
from lightnet.runtime.weights import WeightStore, open_weights
from lightnet.source import STDIN_NAME, read_text

#: Largest source file.
MAX_SOURCE = 1 << 28

Weights = str | Path | Mapping[str, np.ndarray] | WeightStore | None


@dataclass
class Model:
    """A network: `module` (level 1, or planned when the source was), `weights` (or None), the `seed` of random contents,
    and the context its locations and dialects live in."""

    module: ModuleOp
    source: str
    weights: WeightStore | None = None
    seed: int = 0
    ctx: XdslContext = field(default_factory=make_context)
    #: What the source warns of (#warning, a macro defined again).
    warnings: list[tuple[SourceLoc, str]] = field(default_factory=list)

    @property
    def main(self) -> func.FuncOp:
        """The entry function."""
        return main_of(self.module)

    def __str__(self) -> str:
        return str(self.module)


def load(path: str | Path, weights: Weights = None, shapes: Mapping[str, Sequence[int]] | None = None, *,
         override: bool = False, seed: int = 0, include_dirs: Sequence[str] = (), eval_mode: str = "arith",
         defines: Sequence[str] = (), ctx: XdslContext | None = None) -> Model:  # fmt: skip
    """Read a network: LightNet IL (``.net``), JSON IR (``.json``), MLIR (``.mlir``); ``-`` is standard input, whose form
    is told from its text.

    `weights` is a file (``.wts``, ``.npz``, ``.safetensors``) or a mapping of arrays; with `override` it also fills every
    tensor that it names where the network gives contents of its own (``from_file=false``); `shapes` gives inputs other
    dimensions (the shapes of everything behind them follow); `seed` seeds contents declared random.
    `include_dirs`, `defines` and `eval_mode` (``arith``, or ``perl``, which runs code from the file) are for IL.
    Raises `LightNetError` for every mistake in the files.
    """
    path = str(path)
    text = read_text(path, MAX_SOURCE)
    name = STDIN_NAME if path == "-" else path
    suffix = Path(path).suffix
    if suffix not in FRONTENDS:
        suffix = sniff(text)
    return loads(text, suffix, name, weights, shapes, override=override, seed=seed, include_dirs=include_dirs,
                 eval_mode=eval_mode, defines=defines, ctx=ctx)  # fmt: skip


def loads(text: str, suffix: str, name: str = "<text>", weights: Weights = None,
          shapes: Mapping[str, Sequence[int]] | None = None, *, override: bool = False, seed: int = 0,
          include_dirs: Sequence[str] = (), eval_mode: str = "arith", defines: Sequence[str] = (),
          ctx: XdslContext | None = None) -> Model:  # fmt: skip
    """As `load`, from text in the form that `suffix` names."""
    ctx = ctx or make_context()
    warnings: list[tuple[SourceLoc, str]] = []
    module = FRONTENDS.get(suffix)(text, name, ctx, include_dirs=include_dirs, eval_mode=eval_mode, defines=defines,
                                   on_warning=lambda loc, message: warnings.append((loc, message)))  # fmt: skip
    if shapes:
        from lightnet.frontends.reshaping import with_shapes

        module = with_shapes(module, shapes)
    store = open_store(weights, module) if weights is not None else None
    if override and store is not None:
        take_from_store(module, store)
    return Model(module, name, store, seed, ctx, warnings)


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
