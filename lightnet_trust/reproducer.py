"""One file that replays a failure: the module before the pass that failed, and in its first lines the pipeline from
there on and every option that counts.

The file is `.mlir` text. Weights are not in it, but the store's name and the seed; plugins are not in it either, and
are never loaded because a file names them: whoever replays it gives ``--load`` again. Imports `ir`'s printing and
passes.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet import __version__
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.passes import Instrumentation
from lightnet.ir.printer import TextForm, module_text
from lightnet.ir.rewrites import current
from lightnet.runtime.files import write_atomic
from lightnet_trust.check import CheckError, CheckOptions, run_checked

MARK = "// lightnet-reproducer: "
#: Bytes of the line that describes a reproducer.
MAX_LINE = 1 << 20
_PACKAGES = ("xdsl", "numpy", "llvmlite")


@dataclass(frozen=True)
class Recipe:
    """The recipe of a run: the pipeline's text, plugin files to load, the tool's options by their long names, and the
    file that weights came from, if any.
    """

    pipeline: str
    load: tuple[str, ...]
    options: Mapping[str, Any]
    weights: str | None = None


class Reproducer(Instrumentation):
    """Writes `path` when a pass fails, or (`failed`) when anything else is found wrong with its result. `options` go
    into the recipe; a ``rewrite-limit`` counts from the failing pass on. Where a check on `data` found a difference
    that it does not find from that pass on, the file has the first module and the whole pipeline."""

    def __init__(
        self,
        ctx: Context,
        path: str,
        load: Sequence[str],
        options: Mapping[str, Any] | None,
        data: CheckOptions,
        weights: str | None,
    ):
        self.ctx, self.path, self.load, self.options = ctx, path, tuple(load), dict(options or {})
        self.data, self.weights = data, weights
        self.written = False
        self.problem: str | None = None
        self._passes: Sequence[ModulePass] = ()
        self._at = -1
        self._first: ModuleOp | None = None
        self._before: ModuleOp | None = None
        self._rewrites = 0

    def before_pipeline(self, passes: Sequence[ModulePass], module: ModuleOp) -> None:
        self._passes, self._at = passes, -1
        self._first = module.clone()

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self._at += 1
        self._before = self._first if self._at == 0 else module.clone()
        self._rewrites = current().count

    def pass_failed(self, pass_: ModulePass, module: ModuleOp, error: Exception) -> None:
        self.failed(error)

    def failed(self, error: BaseException) -> bool:
        """Write the file, once; whether it is there. Where it cannot be written, `problem` says why: `error` is what
        counts."""
        if self.written or self.problem is not None or self._before is None or self._first is None:
            return self.written
        at, module, options = self._at, self._before, dict(self.options)
        if isinstance(error, CheckError) and not self._shows(module, self._passes[at]):
            at, module = 0, self._first
        if (limit := options.get("rewrite-limit")) is not None:
            options["rewrite-limit"] = max(0, limit - self._rewrites) if at else limit
        pipeline = ",".join(str(p.spec()) for p in self._passes[at:])
        try:
            write_atomic(self.path, reproducer_text(module, Recipe(pipeline, self.load, options, self.weights), error))
            self.written = True
        except LightNetError as e:
            self.problem = e.message
        return self.written

    def _shows(self, module: ModuleOp, pass_: ModulePass) -> bool:
        """Return whether a check of this pass alone finds a difference, too: data is drawn for the module as it is."""
        try:
            return not run_checked(self.ctx, module.clone(), [pass_], self.data).ok
        except LightNetError:
            return False


def reproducer_text(module: ModuleOp, recipe: Recipe, error: BaseException) -> str:
    """The file's text."""
    message = error.message if isinstance(error, LightNetError) else f"{type(error).__name__}: {error}"
    described = {
        "pipeline": recipe.pipeline,
        "load": list(recipe.load),
        "options": dict(recipe.options),
        "weights": recipe.weights,
        "versions": versions(),
    }
    lines = [
        MARK + json.dumps(described, ensure_ascii=True),
        "// Replay it: ln-opt --run-reproducer FILE" + "".join(f" --load {_quoted(name)}" for name in recipe.load),
        *(f"// {line}" for line in f"error: {message}".encode("ascii", "backslashreplace").decode().splitlines()),
    ]
    try:
        text = module_text(module)
    except Exception:  # a module that its own printers do not take
        text = module_text(module, TextForm(generic=True))
    return "\n".join(lines) + "\n" + text


def _quoted(name: str) -> str:
    """A file's name as a shell takes it, on one line."""
    return shlex.quote(name).encode("ascii", "backslashreplace").decode().replace("\n", "\\n")


def versions() -> dict[str, str]:
    """The versions that the failure was seen with."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "lightnet": __version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def read_recipe(text: str, file: str) -> Recipe:
    """The recipe that a reproducer says is to be run. Raises `LightNetError` for a text that is none."""
    first, _, _ = text.partition("\n")
    place = SourceLoc(file, 1, 1)
    if not first.startswith(MARK):
        raise LightNetError(f"not a reproducer: its first line should begin with `{MARK.strip()}`", place)
    try:
        found = json.loads(first[len(MARK) :]) if len(first) <= MAX_LINE else None
    except (ValueError, RecursionError) as e:
        raise LightNetError(f"the reproducer's first line is malformed: {e}", place) from None
    load, options = (found.get(k, d) for k, d in (("load", []), ("options", {}))) if isinstance(found, dict) else (0, 0)
    if not isinstance(found, dict) or not isinstance(found.get("pipeline"), str):
        raise LightNetError("the reproducer's first line should be an object with a pipeline", place)
    if not isinstance(options, dict) or not isinstance(load, list) or not all(isinstance(n, str) for n in load):
        raise LightNetError("the reproducer's `options` should be an object, its `load` an array of strings", place)
    weights = found.get("weights")
    return Recipe(found["pipeline"], tuple(load), options, weights if isinstance(weights, str) else None)
