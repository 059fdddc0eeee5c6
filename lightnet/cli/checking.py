"""The options by which `ln-opt` makes a pipeline trusted: `--check`, `--bisect`, `--rewrite-limit`, `--reproducer`,
`--pattern-timeout`.

The options, and the run of a pipeline under them. Imports what checks only where an option asks for it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lightnet.cli.network import names_of
from lightnet.cli.progress import stages
from lightnet.diagnostics import LightNetError
from lightnet.ir.resolving import resolve_beside
from lightnet.source import read_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from lightnet.ir.context import LnContext
    from lightnet.runtime.weights import WeightStore
    from lightnet_trust.bisect import Found
    from lightnet_trust.check import Checker, CheckOptions
    from lightnet_trust.judges import CommandJudge
    from lightnet_trust.reproducer import Reproducer

#: Options whose value may be left out, as they are then spelt.
OPTIONAL_VALUE = {"--check": "--check=pass"}
MODES = ("pass", "rewrite", "exact")
#: The package of the checker.
TRUST = "lightnet_trust"
KINDS = ("ordinary", "awkward", "nonfinite")
#: Seconds that one match of a pattern may take.
PATTERN_TIMEOUT = 60.0
#: What a reproducer says about options: the attribute of the arguments, and of what type its value is.
_RECORDED: dict[str, tuple[str, type]] = {
    "check": ("check", str),
    "check-data": ("check_data", str),
    "check-seed": ("check_seed", int),
    "verify-each": ("verify_each", bool),
    "rewrite-limit": ("rewrite_limit", int),
    "disable": ("disable", str),
    "allow-unregistered-dialect": ("allow_unregistered_dialect", bool),
    "max-tokens": ("max_tokens", int),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this module."""
    group = parser.add_argument_group("trust")
    option = group.add_argument
    option("--check", metavar="[=rewrite|exact]",
           help="execute the module before and after each pass (or each rewrite; exact: in a prime field, too), and "
           "say which pass, pattern and op changed a result first")  # fmt: skip
    option("--check-data", metavar="KIND,...",
           help=f"what it is executed on: {', '.join(KINDS)} (default: ordinary,awkward; a small "
           "module on more)")  # fmt: skip
    option("--check-seed", type=int, default=0, metavar="N", help="the seed of that data (default: 0)")
    option("--json", action="store_true", help="the verdict of --check or --bisect as JSON, in the place of the module")
    option("--bisect", action="store_true", help="find the rewrite that makes the pipeline's result wrong, by their"
           " count; with --check=exact by comparing in the field")  # fmt: skip
    option("--bisect-command", metavar="COMMAND",
           help="who judges the result: exits with status 0 where it is right; the path of "
           "the module takes the place of {}, or is the last argument")  # fmt: skip
    option("--rewrite-limit", type=int, metavar="N",
           help="do the first N rewrites of the pipeline only, and those that a pass "
           "cannot do without")  # fmt: skip
    option("--pattern-timeout", type=float, default=PATTERN_TIMEOUT, metavar="SECONDS",
           help=f"stop a pattern that matches one op for so long (default: {PATTERN_TIMEOUT:g}; 0: never)")  # fmt: skip
    option(
        "--reproducer", metavar="FILE", help="write the module and the pipeline to FILE when a pass or a check fails"
    )
    option("--run-reproducer", action="store_true", help="the input is such a file: do what it says")


def take_recipe(args: argparse.Namespace) -> None:
    """Let the arguments be those that a reproducer, which is the input, says. Plugins are not loaded for a file's sake:
    what it needs, the arguments must name."""
    _check_here(args)
    if not args.run_reproducer:
        return
    from lightnet_trust.reproducer import read_recipe

    if args.file == "-":
        raise LightNetError("--run-reproducer takes a file, not stdin")
    recipe = read_recipe(read_text(args.file, 256 << 20), args.file)
    if recipe.weights is not None and not args.weights:
        sys.stderr.write(f"note: the weights were those of {recipe.weights!r:.200}; without -f others are drawn\n")
    missing = [name for name in recipe.load if name not in args.load]
    if missing and not args.load:
        given = "".join(f" --load {shlex.quote(name)}" for name in recipe.load)
        raise LightNetError(f"the reproducer needs plugins, which are code: give them with{given}")
    args.passes, args.format = [recipe.pipeline], "mlir"
    for key, value in recipe.options.items():
        attribute, kind = _RECORDED.get(key, ("", object))
        if not attribute or not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise LightNetError(f"the reproducer has an unknown option, or a wrong value of it: {key:.80}")
        setattr(args, attribute, value)


def _check_here(args: argparse.Namespace) -> None:
    """Raise LightNetError for an option that asks for the checker, which stands in a package beside, where that is not
    installed."""
    for name in ("check", "bisect", "bisect_command", "reproducer", "run_reproducer"):
        if getattr(args, name):
            resolve_beside(TRUST, f"option '--{name.replace('_', '-')}'")


def _words(file: str) -> list[str]:
    """The options that load a file."""
    from lightnet.plugins import Replacing

    return ["--load", file, *(["--replace"] if isinstance(file, Replacing) else [])]


class Checking:
    """The options, checked, and how a pipeline runs under them."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        if args.check is not None and args.check not in MODES:
            raise LightNetError(f"--check takes {', '.join(MODES[:-1])} or {MODES[-1]}, but gets '{args.check}'")
        self.data = kinds_of_data(args.check_data)
        if args.rewrite_limit is not None and args.rewrite_limit < 0:
            raise LightNetError("--rewrite-limit should be at least 0")
        self.bisecting = args.bisect or args.bisect_command is not None
        how = (None, "exact") if args.bisect_command is None else (None,)
        if self.bisecting and (args.check not in how or args.rewrite_limit is not None):
            raise LightNetError("--bisect runs the pipeline its own way: leave --rewrite-limit out, and --check but for"
                                " --check=exact, by which it compares exactly")  # fmt: skip
        if args.json and not (self.bisecting or args.check):
            raise LightNetError("--json is the form of a verdict: it goes with --check or --bisect")
        self.command = _command(args.bisect_command)
        self.checker: Checker | None = None
        self.progress: Any = None
        self.found: Found | None = None
        #: Weights that the network brings along; those of the arguments go before them.
        self.own_weights: WeightStore | None = None
        self._reproduced = False

    def run(self, ctx: LnContext, module: ModuleOp, passes: Sequence[ModulePass], watchers: list[Any]) -> None:
        """Run the passes, checked as the options say."""
        from lightnet.ir.watchdog import pattern_timeout

        told = resolve_beside(f"{TRUST}.verdicts:printed", "option '--json'")(self) if self.args.json else nullcontext()
        shown = stages("checking") if self.args.check else nullcontext()
        with pattern_timeout(self.args.pattern_timeout), told, shown as self.progress:
            if self.bisecting:
                self._bisect(ctx, module, passes)
            self._run(ctx, module, passes, watchers)

    def _run(self, ctx: LnContext, module: ModuleOp, passes: Sequence[ModulePass], watchers: list[Any]) -> None:
        from lightnet.ir.budget import limited
        from lightnet.ir.passes import Instrumentation, run_pipeline

        class Position(Instrumentation):
            """Knows the pass that is running."""

            pass_: ModulePass | None = None

            def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
                self.pass_ = pass_

        self.checker, reproducer, position = (checker := self._checker(ctx)), self._reproducer(ctx), Position()
        watchers = [position, *watchers, *(w for w in (checker, reproducer) if w is not None)]
        limit = self.args.rewrite_limit
        try:
            try:
                with limited(self.args.compile_budget):
                    run_pipeline(ctx, module, passes, watchers, verify_each=self.args.verify_each, rewrite_limit=limit)
            except KeyboardInterrupt:
                if position.pass_ is None:
                    raise
                raise LightNetError(f"interrupted in pass '{position.pass_.name}'") from None
        except LightNetError as e:
            if reproducer is not None:
                self._note(e, reproducer)
            raise
        if checker is not None:
            sys.stderr.write(checker.summary())

    def _note(self, error: LightNetError, reproducer: Reproducer) -> None:
        """Say at the error how to replay it, or why that is not possible."""
        self._reproduced = reproducer.failed(error)
        loads = [word for file in self.args.load for word in _words(file)]
        command = shlex.join(["ln-opt", "--run-reproducer", self.args.reproducer, *loads])
        if self._reproduced:
            error.notes.append((None, f"{command} replays it"))
        elif reproducer.problem is not None:
            error.notes.append((None, f"there is no reproducer: {reproducer.problem}"))

    def _bisect(self, ctx: LnContext, module: ModuleOp, passes: Sequence[ModulePass]) -> None:
        from lightnet_trust.bisect import bisect

        self.found = found = bisect(ctx, module, passes, self._options(), self.command)
        if found.error is not None:
            raise found.error
        runs = f"{found.runs} run{'s' if found.runs > 1 else ''}"
        said = [
            f"the result is right after all {found.rewrites} rewrites ({runs})",
            *(f"note: {n}" for n in found.notes),
        ]
        sys.stderr.writelines(f"bisect: {line}\n" for line in said)

    def _options(self) -> CheckOptions:
        from lightnet.model import combined
        from lightnet.runtime.weights import open_weights
        from lightnet_trust.check import CheckOptions

        given = open_weights(self.args.weights) if self.args.weights else None
        store = combined(self.own_weights, given)
        return CheckOptions(self.data, self.args.check_seed, store, in_field=self.args.check == "exact")

    def _checker(self, ctx: LnContext) -> Checker | None:
        if self.args.check is None or self.bisecting:
            return None
        from lightnet_trust.check import Checker

        return Checker(ctx, self._options(), each_rewrite=self.args.check == "rewrite", progress=self.progress)

    def _reproducer(self, ctx: LnContext) -> Reproducer | None:
        if self.args.reproducer is None or self._reproduced:  # of several parts, the first that fails
            return None
        from lightnet_trust.reproducer import Reproducer

        values = {key: getattr(self.args, attribute) for key, (attribute, _) in _RECORDED.items()}
        values["disable"] = ",".join(names_of(self.args.disable))
        recorded = {k: v for k, v in values.items() if v not in (None, False, "")}
        store = self.args.weights or (self.args.file if self.own_weights is not None else None)
        return Reproducer(ctx, self.args.reproducer, self.args.load, recorded, self._options(), store)


def kinds_of_data(text: str | None) -> tuple[str, ...] | None:
    """The value of `--check-data`."""
    if text is None:
        return None
    kinds = names_of(text)
    if unknown := [name for name in kinds if name not in KINDS]:
        raise LightNetError(f"--check-data: unknown kind '{unknown[0]}'; there are: {', '.join(KINDS)}")
    if not kinds:
        raise LightNetError("--check-data takes at least one kind of data")
    return kinds


def _command(text: str | None) -> CommandJudge | None:
    if text is None:
        return None
    from lightnet_trust.judges import CommandJudge

    try:
        words = shlex.split(text)
    except ValueError as e:
        raise LightNetError(f"--bisect-command: {str(e).lower()} in '{text:.80}'") from None
    if not words:
        raise LightNetError("--bisect-command takes a command")
    return CommandJudge(words)
