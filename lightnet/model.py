"""A network in memory: its level-1 module, its weights, and how a path becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from xdsl.context import Context as XdslContext
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from lightnet.frontends.source import STDIN_NAME, read_text
from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.registry import FRONTENDS
from lightnet.runtime.weights import WeightStore, open_weights

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

    @property
    def main(self) -> func.FuncOp:
        """The entry function."""
        return main_of(self.module)

    def __str__(self) -> str:
        return str(self.module)


def load(path: str | Path, weights: Weights = None, shapes: Mapping[str, Sequence[int]] | None = None, *,
         seed: int = 0, include_dirs: Sequence[str] = (), eval_mode: str = "arith",
         ctx: XdslContext | None = None) -> Model:  # fmt: skip
    """Read a network: LightNet IL (``.net``), JSON IR (``.json``), MLIR (``.mlir``); ``-`` is standard input, whose form
    is told from its text.

    `weights` is a file (``.wts``, ``.npz``, ``.safetensors``) or a mapping of arrays; `shapes` gives inputs other
    dimensions (the shapes of everything behind them follow); `seed` seeds contents declared random.
    Raises `LightNetError` for every mistake in the files.
    """
    path = str(path)
    text = read_text(path, MAX_SOURCE)
    name = STDIN_NAME if path == "-" else path
    suffix = Path(path).suffix
    if suffix not in FRONTENDS:
        suffix = sniff(text)
    return loads(text, suffix, name, weights, shapes, seed=seed, include_dirs=include_dirs, eval_mode=eval_mode, ctx=ctx)


def loads(text: str, suffix: str, name: str = "<text>", weights: Weights = None,
          shapes: Mapping[str, Sequence[int]] | None = None, *, seed: int = 0, include_dirs: Sequence[str] = (),
          eval_mode: str = "arith", ctx: XdslContext | None = None) -> Model:  # fmt: skip
    """As `load`, from text in the form that `suffix` names."""
    ctx = ctx or make_context()
    module = FRONTENDS.get(suffix)(text, name, ctx, include_dirs=include_dirs, eval_mode=eval_mode)
    if shapes:
        from lightnet.frontends.reshaping import with_shapes

        module = with_shapes(module, shapes)
    store = open_weights(weights) if weights is not None else None
    return Model(module, name, store, seed, ctx)


def sniff(text: str) -> str:
    """The front end of a text that has no file name: JSON starts with a brace, MLIR names a function or module."""
    import re

    bare = re.sub(r"//[^\n]*|/\*.*?\*/|\s+", " ", text[:4096], flags=re.DOTALL).lstrip()
    if bare.startswith("{"):
        return ".json"
    if re.match(r'(builtin\.module|module|func\.func|"builtin|%|#\w+\s*=)', bare):
        return ".mlir"
    return ".net"
