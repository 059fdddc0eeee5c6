"""Passes and pipelines: what a pass is, how ``expand,combine{max-rounds=8},plan`` becomes a list of them, and the run
that times, prints and verifies between them.

A pass is an xDSL `ModulePass` (a frozen dataclass; its fields are its options). The table is `registry.PASSES`. Imports
xDSL and the lower modules of `ir`; a pass's own file is imported when a pipeline names it.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils import arg_spec
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException

from lightnet.diagnostics import LightNetError, SourceLoc, alike
from lightnet.ir import budget
from lightnet.ir.collector import collector_paused
from lightnet.ir.context import sources_of
from lightnet.ir.registry import PASSES
from lightnet.ir.resolving import resolve
from lightnet.ir.rewrites import Rewrite, Rewrites, crash_place, is_disabled, recording
from lightnet.ir.rewriting import inherit, keep_names, rewrite_greedily
from lightnet.ir.verify import verify_module
from lightnet.runtime.dtypes import DType

#: A pipeline as MLIR's tools write it.
_OF_MODULES = re.compile(r"\s*(?:builtin\.)?module\((.*)\)\s*", re.DOTALL)
#: What a pipeline's name stands for, and what a module promises at its level: looked up when they are asked for.
NAMED, VERIFY_LEVEL = "lightnet.passes.pipelines:expanded", "lightnet.passes.levels:verify_level"

__all__ = [
    "Instrumentation", "LnPass", "ModulePass", "Rewrite", "inherit", "keep_names", "option_text", "parse_pipeline",
    "rewrite_greedily", "run_pipeline",
]  # fmt: skip

#: xDSL's own passes that a pipeline may name; they run at every level.
XDSL_PASSES = {
    "canonicalize": "xdsl.transforms.canonicalize:CanonicalizePass",
    "cse": "xdsl.transforms.common_subexpression_elimination:CommonSubexpressionElimination",
    "dce": "xdsl.transforms.dead_code_elimination:DeadCodeElimination",
}


@dataclass(frozen=True)
class LnPass(ModulePass):
    """Base of our passes. A subclass has a `name` and `apply`; one with options is a frozen dataclass of them.

    A field ``target: str`` takes the value of ``--target`` unless the pipeline gives another.
    """

    #: The level from which on it finds something to do (`passes/levels.py`); None: at any, as far as is known.
    level: ClassVar[str | None] = None
    #: Options that are spelt otherwise than their fields, whose names Python keeps for itself.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: The level that it makes of the one before (``loops``); None: as long as one does not matter.
    makes: ClassVar[str | None] = None

    @property
    def rounds_to(self) -> DType | None:
        """The type to which the pass may round what is f32: results may then differ by as much. None: it keeps
        types."""
        return None


class Instrumentation:
    """A watcher of a pipeline; a subclass overrides what it needs."""

    #: Whether `rewrote` is to be called, and with texts, which cost printing each op that is looked at.
    wants_rewrites: bool = False
    wants_text: bool = False

    def before_pipeline(self, passes: Sequence[ModulePass], module: ModuleOp) -> None:
        """Called before the first pass."""

    def after_pipeline(self, module: ModuleOp) -> None:
        """Called after the last pass, when the module has verified."""

    def rewrote(self, rewrite: Rewrite) -> None:
        """Called after each rewrite inside a pass; the module is consistent."""

    def pass_failed(self, pass_: ModulePass, module: ModuleOp, error: Exception) -> None:
        """Called when a pass, or the verifier or a check after it, raised `error`, which is about to be reported; the
        module is as the pass left it."""

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        """Called before a pass runs."""

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        """Called after a pass ran, before the verifier; not called when the pass fails."""

    def before_verify(self) -> None:
        """Called before the module is verified."""

    def after_verify(self) -> None:
        """Called after the module verified."""


@collector_paused()
def run_pipeline(
    ctx: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    instrumentation: Sequence[Instrumentation] = (),
    *,
    verify_each: bool = False,
    verify: bool = True,
    rewrite_limit: int | None = None,
) -> None:
    """Run `passes` on `module` in place, and verify the result unless not asked to. With `verify_each` it is verified
    after every pass, and with it what the module's level promises (`passes/levels.py`). Passes that are switched off
    (`rewrites.disabling`) are left out.

    With a `rewrite_limit`, only so many rewrites happen, counted through all passes, and those that a pass cannot do
    without (`ir/rewrites.py`). Raises `LightNetError` when a pass fails or leaves a module that does not verify; the
    error names the pass.
    """
    with recording(Rewrites((w for w in instrumentation if w.wants_rewrites), rewrite_limit)) as rewrites:
        for watcher in instrumentation:
            watcher.before_pipeline(passes, module)
        for i, pass_ in enumerate(passes):
            if is_disabled(pass_.name):
                continue
            rewrites.pass_name = pass_.name
            budget.check(module)
            _run_pass(ctx, module, pass_, instrumentation)
            if verify_each or (verify and i == len(passes) - 1):
                _verify(ctx, module, pass_, instrumentation, verify_each, exact=verify_each or len(passes) == 1)
        for watcher in instrumentation:
            watcher.after_pipeline(module)


def _run_pass(ctx: Context, module: ModuleOp, pass_: ModulePass, instrumentation: Sequence[Instrumentation]) -> None:
    for watcher in instrumentation:
        watcher.before_pass(pass_, module)
    try:
        pass_.apply(ctx, module)
    except Exception as e:
        for watcher in instrumentation:
            watcher.pass_failed(pass_, module, e)
        raise sources_of(ctx).annotate(_pass_error(pass_, e)) from e
    try:
        for watcher in instrumentation:
            watcher.after_pass(pass_, module)
    except LightNetError as e:  # of a check
        for watcher in instrumentation:
            watcher.pass_failed(pass_, module, e)
        raise


def _verify(
    ctx: Context,
    module: ModuleOp,
    pass_: ModulePass,
    instrumentation: Sequence[Instrumentation],
    level: bool,
    exact: bool,
) -> None:
    for watcher in instrumentation:
        watcher.before_verify()
    try:
        verify_module(module, ctx)
        if level:
            resolve(VERIFY_LEVEL)(module)
    except LightNetError as e:
        for watcher in instrumentation:
            watcher.pass_failed(pass_, module, e)
        hint = f"pass '{pass_.name}' made it" if exact else "--verify-each names the pass that made it"
        e.notes.append((None, f"the module does not verify after the passes: {hint}"))
        raise
    for watcher in reversed(instrumentation):
        watcher.after_verify()


def _pass_error(pass_: ModulePass, error: Exception) -> LightNetError:
    """The error that a user sees for an exception that a pass let out."""
    if isinstance(error, LightNetError):
        error.notes.append((None, f"in pass '{pass_.name}'"))
        return error
    if isinstance(error, DiagnosticException):
        return LightNetError(f"pass '{pass_.name}': {_one_line(error)}")
    if isinstance(error, RecursionError):
        return LightNetError(f"pass '{pass_.name}': the module is nested too deeply")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = SourceLoc(frame.filename.rsplit("/", 1)[-1], frame.lineno or 0)
    text = f"pass '{pass_.name}' crashed: {type(error).__name__}: {_one_line(error)}"
    notes: list[tuple[SourceLoc | None, str]] = [(where, f"in {frame.name}; --traceback shows more")]
    place = crash_place(error)
    return LightNetError(text, place[0] if place else None, notes=[place, *notes] if place else notes)


def _one_line(error: Exception) -> str:
    return (str(error).strip().split("\n", 1)[0])[:600]


# -- the pipeline string -----------------------------------------------------------------------------------


def parse_pipeline(text: str, defaults: Mapping[str, Any] | None = None) -> list[ModulePass]:
    """The passes that `text` names, with their options.

    `defaults` gives values to options by name (``target``) in every pass that has such an option and is not given it. A
    word that begins with @ is a pipeline's name, and what is to be changed in it: ``@cpu``, ``@cpu:plan``,
    ``@cpu-bands``, ``@cpu+after:combine:my-pass`` (`passes/pipelines.py`). What MLIR writes around passes of modules,
    ``builtin.module(...)``, may stand around them. Raises `LightNetError` for a malformed text,
    an unknown pass, pipeline or option, or a value of the wrong type.
    """
    if nested := _OF_MODULES.fullmatch(text):
        text = nested[1]
    if "@" in text:
        text, defaults = resolve(NAMED)(text, defaults or {})
    if '"' not in text:
        text = re.sub(r"\s*,\s*", ",", text.strip())
    try:
        specs = list(arg_spec.parse_pipeline(text))
    except ArgSpecParseError as e:
        raise _syntax_error(text, e) from None
    except Exception as e:  # xDSL's number parsing
        raise LightNetError(f"malformed pass pipeline: {_one_line(e)}") from e
    return [_make_pass(spec.normalize_parameter_names(), defaults or {}) for spec in specs]


def _syntax_error(text: str, error: ArgSpecParseError) -> LightNetError:
    lines = str(error).rstrip().split("\n")
    place = re.search(r"pass-pipeline:(\d+):(\d+)", str(error))
    line, col = (int(place[1]), int(place[2])) if place else (0, 0)
    source = text.split("\n")[line - 1] if line else None
    what = lines[-1].strip().replace("Unknown token", 'a value of such signs stands in quotes, as in {set="a.b=c"}')
    if source is not None and re.match(r"(\.[\w.]+)?\(", source[col - 1 :]):
        what = "passes do not nest: all run on the module, one behind the other (options stand in braces)"
        what += ": write " + ",".join(re.findall(r"\b(?!builtin\b|func\b|module\b)[\w-]+(?:{[^}]*})?", source))
    return LightNetError(what, SourceLoc("<passes>", line, col), source_line=source)


def find_pass(name: str) -> type[ModulePass]:
    """The class of the pass called `name`; an unknown name is an error that lists the passes."""
    if name in XDSL_PASSES and name not in PASSES:
        return resolve(XDSL_PASSES[name])
    if name not in PASSES and not PASSES.has_row(name):
        close = alike(name, [*PASSES, *XDSL_PASSES], 1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        there = f"{', '.join([*PASSES, *XDSL_PASSES])}; pipelines, such as @cpu or @cpu:plan, begin with @"
        raise LightNetError(f"unknown pass '{name}'; {hint}there are: {there}")
    return PASSES.get(name)


def _make_pass(spec: arg_spec.ArgSpec, defaults: Mapping[str, Any]) -> ModulePass:
    cls = find_pass(spec.name)
    options = _options(cls)
    said = {getattr(cls, "renamed", {}).get(k, k): v for k, v in spec.parameters.items()}
    given = {k: (v,) for k, v in defaults.items() if k in options and v is not None} | said
    for key, value in given.items():
        _check_option(spec.name, key, value, options)
    try:
        return cls.from_spec(arg_spec.ArgSpec(spec.name, given))
    except ValueError as e:
        raise LightNetError(f"pass '{spec.name}': {_one_line(e)}") from e


@cache
def _options(cls: type[ModulePass]) -> dict[str, Any]:
    """The types of a pass's options by name, of which evaluating the annotations takes a tenth of a millisecond."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init and f.name != "name"}


def _check_option(name: str, key: str, value: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    spelled = key.replace("_", "-")
    if key not in options:
        known = ", ".join(f"{k.replace('_', '-')}: {option_text(t)}" for k, t in options.items())
        raise LightNetError(f"pass '{name}' has no option '{spelled}'; there are: {known or 'none'}")
    try:
        arg_spec._convert_arg_to_type(value, options[key])
    except ValueError:
        got = ",".join(str(v).lower() if isinstance(v, bool) else repr(v) for v in value) or "nothing"
        text = f"pass '{name}': option '{spelled}' takes {option_text(options[key])}, but gets {got}"
        raise LightNetError(text) from None


def option_text(hint: Any) -> str:
    """The type of an option as help and errors write it."""
    return hint.__name__ if isinstance(hint, type) and not getattr(hint, "__args__", None) else str(hint)
