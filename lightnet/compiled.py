"""The surface that all share which `lightnet.compile` gives, whatever the network. Imports the runtime."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.ir.resolving import resolve_beside
from lightnet.runtime.runnable import Runnable

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from lightnet.runtime.program import Program


class Compiled(Runnable):
    """The result of `lightnet.compile`: an `Executable`, or, of a network whose shapes are open, a
    `SpecializingExecutable`; of one with text at its ends a `HostedCompiled` around either. All have what is here;
    where shapes are open, what there is for each set of them is an error that names `specialized`, and lists tell of
    what has been compiled so far."""

    def _repr_html_(self) -> str:
        html: str = resolve_beside("lightnet_report.notebook:executable_html", "the picture of a plan")(self)
        return html

    @abstractmethod
    def specialized(self, feeds: Mapping[str, Any] | None = None) -> Compiled:
        """The executable that runs inputs like `feeds`, compiled if there is none yet: itself, where shapes are not
        open."""

    @property
    @abstractmethod
    def is_native(self) -> bool:
        """True if there is code; else the reference interpreter runs the network."""

    @property
    @abstractmethod
    def missing(self) -> list[str]:
        """The tensors that should come from the weight store, and are not in it: they hold zeros."""

    @property
    @abstractmethod
    def weight_warnings(self) -> list[str]:
        """The oddities of the weights."""

    @property
    @abstractmethod
    def planned(self) -> ModuleOp:
        """The planned module (level 3); of target none the bound network."""

    @property
    @abstractmethod
    def program(self) -> Program:
        """The code and its interface."""

    @abstractmethod
    def ir(self, stage: str | None = None) -> str:
        """The IR after the pass called `stage`; ``source`` is the network as it came in. Default: the planned
        module."""

    def save(
        self,
        path: str | Path,
        variants: Sequence[Any] = (),
        sign: str | os.PathLike[str] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Write the executable with its data to one file, which `lightnet.load_executable` runs without compiling.

        `variants` are the same network compiled for other processors, in descending order of what they ask for: a
        loader takes the first that it can run, this one above all. `sign` is the file of the private key to sign it
        with (`runtime.signing`). `texts` stand in the file by name, beside its own.
        """
        self._save(path, variants, sign, dict(texts or {}))

    @abstractmethod
    def _save(self, path: str | Path, variants: Sequence[Any], sign: Any, texts: dict[str, str]) -> None:
        """`save`, of an executable of this kind."""


def in_text(executable: Any, store: Any, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """The call by which `pickle` makes an executable again that has no code: of text, weights and options."""
    weights = {name: store[name] for name in executable.params if name in store} if store is not None else None
    return _compiled_again, (executable.ir("source"), weights, seed, executable.options)


def _compiled_again(text: str, weights: Any, seed: int, options: dict[str, Any]) -> Any:
    from lightnet.compiler import compile
    from lightnet.model import loads

    return compile(loads(text, ".mlir", weights=weights, seed=seed), **options)
