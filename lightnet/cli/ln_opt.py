"""The `ln-opt` tool: reads a module, runs passes on it and prints it, with everything to watch and to test
that.

    ln-opt --pass=expand,combine{max-rounds=8},plan net.mlir

The input is `.mlir` text of any level, a network in another form (IL, JSON IR or NNVM, ONNX), or `-`. The module goes
to stdout (or to `-o FILE`, whole or not at all), everything else to stderr. xDSL is imported when there is something to
parse, so that listings and usage errors come at once.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.cli import checking, targets, watching
from lightnet.cli.common import ToolParser, run_tool, write_atomic
from lightnet.cli.network import add_budget, add_disable, add_load, add_shapes, names_of
from lightnet.cli.targets import add_target
from lightnet.cli.warning import Warnings, add_warnings
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.registry import FRONTENDS, TARGETS, runtime_of
from lightnet.ir.resolving import resolve_beside
from lightnet.ir.runtime import RUN_PASSES
from lightnet.source import STDIN_NAME, end_of, read_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from lightnet.ir.context import LnContext

MAX_INPUT = 256 << 20
_SPLIT = re.compile(r"^[^\S\n]*+// -----.*$", re.MULTILINE)
_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*+", re.DOTALL)
#: Options whose value is optional, as they are then spelt (argparse would take the file for the value).
_OPTIONAL_VALUE = watching.OPTIONAL_VALUE | checking.OPTIONAL_VALUE


def main(argv: list[str] | None = None) -> int:
    """The entry point; returns the exit status (1 for every error)."""
    return run_tool(_main, argv)


def _main(argv: list[str]) -> int:
    args = _parser(argv).parse_args([_OPTIONAL_VALUE.get(arg, arg) for arg in argv])
    try:
        return _run(args)
    except LightNetError:
        if args.traceback:
            traceback.print_exc()
        raise


def _run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        if args.load:
            from lightnet.plugins import loaded

            stack.enter_context(loaded(args.load))
        if args.list_passes or args.list_targets or args.list_ops:
            from lightnet.cli import listing

            wanted = [name for name in ("passes", "targets", "ops") if getattr(args, f"list_{name}")]
            write_atomic(args.output, "".join(getattr(listing, f"list_{name}")() for name in wanted))
            return 0
        checking.take_recipe(args)
        warnings = Warnings(args.warnings)
        stack.enter_context(warnings.of_descriptions())
        return _Run(args, warnings).run()


def _parser(argv: Sequence[str] | None = None) -> ToolParser:
    p = ToolParser(
        "ln-opt", description="Run passes on a module of any level and print the result.", allow_abbrev=False
    )
    p.add_argument("file", nargs="?", default="-", help=".mlir, .net, .json or .onnx file; - is stdin")
    p.add_argument(
        "-p",
        "--pass",
        "--passes",
        "--pass-pipeline",
        dest="passes",
        action="append",
        default=[],
        metavar="PIPELINE",
        help="passes and their options: expand,combine{max-rounds=8},plan; or a pipeline: @cpu, @cpu:plan (up to a "
        "level), @cpu-bands (without "
        "a pass), @cpu+after:combine:my-pass (with one); as MLIR writes it, too: builtin.module(expand,combine)",
    )
    add_disable(p)
    p.add_argument("-o", dest="output", default="-", metavar="FILE", help="write the module to FILE")
    p.add_argument(
        "--from", dest="format", metavar="FORMAT", help="mlir, net, json or onnx (default: by the file's name)"
    )
    p.add_argument("-I", dest="include", action="append", default=[], metavar="DIR", help="a folder for #include of IL")
    p.add_argument("--eval", default="arith", metavar="MODE", help="how ${eval} of IL is evaluated: arith, perl")
    p.add_argument("-f", "--weights", metavar="FILE", help="weights of an NNVM graph: its shapes follow from them")
    add_shapes(p)
    add_budget(p)
    add_load(p)
    add_warnings(p)
    p.add_argument("--allow-unregistered-dialect", action="store_true", help="accept ops that nobody defined")
    p.add_argument("--max-tokens", type=int, metavar="N", help="read larger .mlir files (default: 1000000 tokens)")
    p.add_argument("--split-input-file", action="store_true", help="process the parts between // ----- separately")
    options = p.add_argument_group("options of passes")
    add_target(
        options,
        RUN_PASSES,
        argv,
        "what passes compile for (default: the target of a pipeline that --pass names, else cpu)",
        None,
    )
    options.add_argument("--plan", metavar="KIND", help="option `plan` of the passes that have it: default, upstream")
    options.add_argument(
        "--layout",
        metavar="KIND",
        help="option `layout` of the passes that have it: blocked (cpu), nhwc (cuda) or plain",
    )
    watch = p.add_argument_group("watching")
    watching.add_options(watch)
    checking.add_options(p)
    watch.add_argument("--traceback", action="store_true", help="show where in the Python code an error arose")
    check = p.add_argument_group("checking")
    check.add_argument("--verify-each", action="store_true", help="verify after every pass, not only after the last")
    check.add_argument(
        "--verify-diagnostics",
        action="store_true",
        help="compare the errors with the expected-error comments of the input",
    )
    form = p.add_argument_group("output")
    form.add_argument("--print-op-generic", action="store_true", help="print MLIR's generic form")
    form.add_argument(
        "--emit",
        metavar="FORM,...",
        help="print what the target makes of the module: llvm, asm or obj of cpu, llvm, ptx (or asm) or obj of cuda, "
        "once it is lowered; c of one of "
        "yours; several go to files whose names begin with that of -o",
    )
    form.add_argument(
        "--irdl",
        metavar="FILE",
        help="print the module for MLIR's own tools, and write the dialects of its ops to FILE, which "
        "mlir-opt --irdl-file=FILE reads",
    )
    form.add_argument("--print-locations", action="store_true", help="print the source location of every op")
    form.add_argument(
        "--columns",
        type=int,
        metavar="N",
        help="break lists of the IR that reach beyond so many columns (default: 120; 0: none, for tests of long lines)",
    )
    for name in ("passes", "ops", "targets"):
        p.add_argument(f"--list-{name}", action="store_true", help=f"list the {name} and stop")
    return p


class _Run:
    """One run of the tool: the input's parts, each through the pipeline, into texts and errors."""

    def __init__(self, args: argparse.Namespace, warnings: Warnings):
        from lightnet.ir.passes import parse_pipeline

        self.args, self.warnings = args, warnings
        if args.target is None:
            args.target = _target_of(args.passes)
        if args.target not in TARGETS:
            raise LightNetError(f"unknown target '{args.target}'; there are: {', '.join(TARGETS)}")
        if args.format is not None and f".{args.format}" not in FRONTENDS:
            formats = ", ".join(suffix[1:] for suffix in FRONTENDS)
            raise LightNetError(f"unknown format '{args.format}'; there are: {formats}")
        if args.max_tokens is not None and args.max_tokens < 1:
            raise LightNetError(f"--max-tokens should be positive, and is {args.max_tokens}")
        self.emit = _Emission(args) if args.emit else None
        if args.irdl is not None and (args.emit or args.split_input_file or args.irdl == args.output):
            raise LightNetError(
                "--irdl is about one module, printed: leave out --emit and --split-input-file, and name two files"
            )
        defaults = {"target": args.target, "plan": args.plan, "layout": args.layout, **_told(args)}
        self.passes = parse_pipeline(",".join(args.passes), defaults)
        self.watching = watching.watching(args, self.passes)
        self.checking = checking.Checking(args)
        self.given = self._given()

    def _given(self) -> dict[str, Any]:
        """The shapes, values and weights that the arguments give a network."""
        args = self.args
        if not (args.shapes or args.dims or args.values or args.weights):
            return {}
        from lightnet.cli.feeding import dims_of, fed_values, shapes_of
        from lightnet.runtime.weights import open_weights

        weights = open_weights(args.weights) if args.weights else None
        shapes = shapes_of(args.shapes)
        dims = dims_of(args.dims, shapes)
        return {"shapes": shapes, "dims": dims, "values": fed_values(args.values), "weights": weights}

    def run(self) -> int:
        file = STDIN_NAME if self.args.file == "-" else self.args.file
        if self.binary(file):
            parts = [(1, file)]
        else:
            text = read_text(self.args.file, MAX_INPUT)
            parts = split_input(text) if self.args.split_input_file else [(1, text)]
        outputs: list[Any] = []
        problems: list[LightNetError] = []
        for first_line, part in parts:
            output, errors = self.part(part, file, first_line)
            outputs += [output] if output is not None else []
            problems += errors
        if self.watching is not None:
            self.watching.finish()
        if not problems:
            if self.emit is not None:
                self.emit.write(outputs)
            elif not (self.args.json and self.args.output == "-"):
                write_atomic(self.args.output, "// -----\n".join(outputs))
            return 0
        for problem in problems[:-1]:
            print(problem.render(), file=sys.stderr)
        raise problems[-1]

    def binary(self, file: str) -> bool:
        """Return whether the input is in a form that its front end reads from the file itself."""
        suffix = f".{self.args.format}" if self.args.format else Path(file).suffix.lower()
        return suffix in FRONTENDS and FRONTENDS.get(suffix).binary

    def part(self, text: str, file: str, first_line: int) -> tuple[Any, list[LightNetError]]:
        """The module of one part as text, or in the forms of --emit (None if there was an error), and what is wrong."""
        output, errors = None, []
        if self.watching is not None:
            self.watching.part += 1
        try:
            output = self.text(self.transformed(text, file, first_line))
        except LightNetError as e:
            errors.append(e)
        if not self.args.verify_diagnostics:
            return output, errors
        from lightnet.cli.expected import check_errors, parse_expected

        return output, check_errors(parse_expected(text, file, first_line), errors)

    def transformed(self, text: str, file: str, first_line: int) -> ModuleOp:
        from lightnet.ir.context import make_context

        ctx = make_context(allow_unregistered=self.args.allow_unregistered_dialect)
        ctx.max_tokens = self.args.max_tokens or ctx.max_tokens
        try:
            module = self.read(ctx, text, file, first_line)
            with self.stage("passes") if self.passes else nullcontext():
                self.run_passes(ctx, module)
        except LightNetError as e:
            raise ctx.sources.annotate(e) from e.__cause__
        return module

    def run_passes(self, ctx: LnContext, module: ModuleOp) -> None:
        from lightnet.passes.levels import driven

        with driven(names_of(self.args.disable)) as watchers:
            self.checking.run(ctx, module, self.passes, [*self.watchers(), *watchers])

    def read(self, ctx: LnContext, text: str, file: str, first_line: int) -> ModuleOp:
        from lightnet.ir.verify import verify_module

        with self.stage("parse") as stage:
            module = self.parse(ctx, text, file, first_line)
        if stage is not None:
            stage.made(module)
        with self.stage("verify"):
            verify_module(module, ctx)
            if self.passes or self.emit is not None:
                from lightnet.passes.levels import verify_level

                verify_level(module)
        return module

    def parse(self, ctx: LnContext, text: str, file: str, first_line: int) -> ModuleOp:
        kind = self.args.format or _format(file, text)
        if kind == "mlir":
            from lightnet.ir.parser import parse_mlir

            return parse_mlir(ctx, text, file, first_line=first_line)
        from lightnet.frontends.loading import ReadOptions, reshaped
        from lightnet.model import imported

        front_end = FRONTENDS.get(f".{kind}")
        found: list[tuple[SourceLoc, str]] = []
        options = ReadOptions(
            self.args.include, self.args.eval, on_warning=lambda loc, what: found.append((loc, what)), **self.given
        )
        try:
            module, self.checking.own_weights = imported(front_end, text, file, ctx, options, options.on_warning)
        except LightNetError as e:
            raise self.warnings.refused(e, found) from None
        self.warnings.show(found)
        return module if front_end.reshapes else reshaped(module, options)

    def text(self, module: ModuleOp) -> Any:
        from lightnet.ir.printer import module_text

        with self.stage("print"):
            if self.emit is not None:
                return self.emit.of(module)
            if self.args.irdl is not None:
                return self.for_mlir(module)
            return module_text(module, watching.text_form(self.args))

    def for_mlir(self, module: ModuleOp) -> str:
        """The text that MLIR's own tools read, once its dialects are written to where ``--irdl`` says."""
        text, dialects = resolve_beside("lightnet_xdsl.irdl:texts_for_mlir", "option '--irdl'")(module)
        write_atomic(self.args.irdl, dialects)
        return text

    def stage(self, name: str) -> Any:
        return self.watching.stage(name) if self.watching is not None else nullcontext()

    def watchers(self) -> list[Any]:
        return self.watching.watchers() if self.watching is not None else []


class _Emission:
    """The request of ``--emit``: forms of the target, to one place or to a file each."""

    def __init__(self, args: argparse.Namespace):
        from lightnet.ir.target import get_target

        self.output, self.target = args.output, get_target(args.target)
        self.forms = names_of(args.emit)
        self.options = targets.given(args)
        if not self.forms:
            raise LightNetError(f"--emit names nothing; there are: {', '.join(self.target.emitters) or 'none'}")
        for form in self.forms:
            self.target.emitter(form, self.options)
        if len(self.forms) > 1 and (args.output == "-" or args.split_input_file):
            raise LightNetError(
                "--emit of several forms goes to files: say with -o what their names begin with, without "
                "--split-input-file"
            )

    def of(self, module: ModuleOp) -> list[str | bytes]:
        """The module in each form."""
        return [self.target.emit(form, module, **self.options) for form in self.forms]

    def write(self, parts: Sequence[Sequence[str | bytes]]) -> None:
        """Write what `of` gave for each part of the input."""
        if len(self.forms) > 1:
            from lightnet.deploy import KINDS

            suffixes = {**KINDS, **self.target.own_runtime.files}
            for form, content in zip(self.forms, parts[0]):
                write_atomic(f"{self.output}{suffixes.get(form, f'.{form}')}", content)
            return
        contents = [part[0] for part in parts]
        if all(isinstance(content, str) for content in contents):
            write_atomic(self.output, "// -----\n".join(map(str, contents)))
        elif len(contents) == 1:
            write_atomic(self.output, contents[0])
        else:
            raise LightNetError(
                f"--emit={self.forms[0]} of several parts is not one file: leave out --split-input-file"
            )


def _told(args: argparse.Namespace) -> dict[str, Any]:
    """The options of passes that follow from those of the target, where some are given."""
    given = targets.given(args)
    if not given:
        return {}
    runtime = runtime_of(args.target)
    known = {option.name for option in runtime.options}
    for name in given:
        if name not in known:
            raise LightNetError(f"--{name.replace('_', '-')} says nothing to target '{args.target}'")
    told = runtime.settle(runtime.given(args.target, given)).passes
    return dict(told)


def _target_of(passes: Sequence[str]) -> str:
    """The target of the first pipeline that passes name; cpu where they name none."""
    if not any("@" in text for text in passes):
        return "cpu"
    from lightnet.passes.pipelines import target_of

    return target_of(passes) or "cpu"


def split_input(text: str) -> list[tuple[int, str]]:
    """The parts between lines ``// -----``, each with the number of its first line."""
    parts, start = [], 0
    line = 1
    for mark in _SPLIT.finditer(text):
        parts.append((line, text[start : mark.start()]))
        line += text.count("\n", start, mark.end())
        start = mark.end()
    return [*parts, (line, text[start:])]


def _format(file: str, text: str) -> str:
    """The format of an input, by its name, else by its first character: JSON IR is an object, a module never is."""
    suffix = file.rpartition(".")[2].lower()
    if f".{suffix}" in FRONTENDS:
        return suffix
    start = end_of(_BLANK, text)
    return "json" if text.startswith("{", start) and not text.startswith("{-#", start) else "mlir"


if __name__ == "__main__":
    sys.exit(main())
