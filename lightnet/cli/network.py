"""A network as a command line names it: the options of reading one, and how it is compiled, also where its shapes are
open.

Imports xDSL and the compiler only when a network is read, so that usage errors come at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.cli import targets, watching
from lightnet.cli.warning import Warnings
from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import runtime_of

if TYPE_CHECKING:
    from lightnet.diagnostics import SourceLoc
    from lightnet.frontends.loading import OpenError
    from lightnet.model import Model

#: Runtimes that ``--compare`` takes the expected outputs from, by the network itself.
PEERS = ("onnxruntime", "interpreter")
SEED = (
    "of contents declared random, of `-i random`, and of an ONNX model's random ops; input: the network gets an input, "
    "seed, for these"
)


def seed_of(text: str) -> int | str:
    """The value of ``--seed``: an integer, or ``input``."""
    try:
        return text if text == "input" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text:.40}' is not an integer or 'input'") from None


def seed_number(seed: int | str | None) -> int:
    """The seed of what is random beside the network's own ops."""
    return seed if isinstance(seed, int) else 0


def add_shapes(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The options ``--shape`` and ``--value``, which every tool that reads networks has."""
    parser.add_argument("--shape", metavar="NAME=1x3x224x224", action="append", default=[], dest="shapes",
                        help="the dims of an input; those of everything behind it follow")  # fmt: skip
    parser.add_argument("--dim", metavar="NAME=1..512", action="append", default=[], dest="dims",
                        help="the range of a named dim that stays open: 1..512, or 32..1024:32 (by 32)")  # fmt: skip
    parser.add_argument(
        "--value",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="values",
        help="make an input of an ONNX model a constant: @FILE.npy, @FILE.npz:key, or 1,2,3",
    )


def add_planning(parser: argparse.ArgumentParser) -> None:
    """The options ``--plan`` and ``--layout``, for tools that compile networks."""
    parser.add_argument("--plan", metavar="KIND", default="default",
                        help="memory planning: default, or upstream as the C implementation")  # fmt: skip
    add_layout(parser)


def add_layout(parser: argparse.ArgumentParser) -> None:
    """The option ``--layout``."""
    parser.add_argument("--layout", metavar="KIND",
                        help="layouts of intermediate tensors, one of the target's: blocked (the default of cpu), nhwc "
                             "(that of cuda) or plain")  # fmt: skip


def add_precision(parser: argparse.ArgumentParser) -> None:
    """The options ``--precision`` and ``--check-indices``, for tools that compile networks."""
    parser.add_argument(
        "--precision",
        metavar="TYPE",
        help="what a network of f32 computes in: f32 (default); f16 or bf16, with inputs and outputs as they are; "
        "cuda: tf32; cpu: bf16 is for products alone, where it is faster, and auto is what is fastest",
    )
    parser.add_argument(
        "--check-indices",
        action="store_true",
        help="fail where an index (of a Gather, a Scatter, an embedding) is outside of its axis, instead of clamping "
        "it",
    )


def add_disable(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The option ``--disable``, for tools that run passes."""
    parser.add_argument("--disable", metavar="NAME,...", action="append", default=[],
                        help="switch passes and patterns off by name")  # fmt: skip


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """The options ``--pass``, ``--tuned``, ``--remarks`` and ``--disable``, for tools that compile networks."""
    parser.add_argument("-p", "--pass", "--passes", dest="pipeline", metavar="PIPELINE",
                        help="run these passes instead of the target's: @cpu, @cpu:plan, @cpu-bands, "
                             "@cpu+after:combine:my-pass, or a list")  # fmt: skip
    parser.add_argument("--tuned", metavar="FILE", help="choices that `lightnet tune` measured")
    watching.add_remarks(parser)
    add_disable(parser)


def names_of(values: Sequence[str]) -> tuple[str, ...]:
    """The names in an option that takes a list of them and may stand several times, or in one such list: each once."""
    values = [values] if isinstance(values, str) else values
    return tuple(dict.fromkeys(name.strip() for value in values for name in value.split(",") if name.strip()))


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `lightnet.compile` that `add_precision`, `add_pipeline` and `targets.add_target` add, as far as
    they are given."""
    named = {name: getattr(args, name, None) for name in ("precision", "check_indices", "pipeline", "tuned")}
    named |= {"disable": names_of(getattr(args, "disable", ()))}
    if getattr(args, "remarks", ()):
        named["instrumentation"] = [watching.remarks(names_of(args.remarks))]
    return {**{name: value for name, value in named.items() if value}, **targets.given(args)}


def run_options(args: argparse.Namespace) -> dict[str, Any]:
    """`compile_options` of a network that is compiled to be run here and now (`Runtime.here`)."""
    own = runtime_of(args.target).here(targets.given(args))
    return {**compile_options(args), **own}


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option ``--trust``, for tools that read executables."""
    parser.add_argument("--trust", metavar="PATH", action="append",
                        help="take only an executable that one of these public keys signed: a PEM file, or a folder of "
                             "them")  # fmt: skip


def add_budget(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The option ``--compile-budget``, which every tool has that compiles."""
    parser.add_argument("--compile-budget", metavar="SECONDS", type=float, dest="compile_budget",
                        help="processor time that reading, and compiling, may take, each (default: 120, and more for a "
                             "large network)")  # fmt: skip


def add_load(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The option ``--load``, which every tool has that reads networks or modules: `plugins.loaded(args.load)`."""
    parser.add_argument("--load", metavar="FILE", action="append", default=[],
                        help="add what a file defines: Python (.py or a folder), descriptions (.json, .op, or a "
                             "folder), PDL patterns (.mlir)")  # fmt: skip
    parser.add_argument("--replace", action=_Replace, nargs=0, dest="load", default=argparse.SUPPRESS,
                        help="the ops of the --load before it may take the places of ops that there are")  # fmt: skip


class _Replace(argparse.Action):
    """``--replace``: marks the file in front of it."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        from lightnet.plugins import Replacing

        if not namespace.load:
            raise LightNetError("--replace stands behind the --load whose ops take the places of others")
        namespace.load = [*namespace.load[:-1], Replacing(namespace.load[-1])]


def add_loading(parser: argparse.ArgumentParser, weights: str = "--weights") -> None:
    """Add the options that say how a network is read. `weights` is the long name of the option for them, which
    upstream's `lightnet` calls otherwise."""
    option = parser.add_argument
    option("-f", weights, metavar="FILE", dest="datafile", help="weights: .wts, .npz, .safetensors or .params")
    add_shapes(parser)
    option("--seed", metavar="N", type=seed_of, help=SEED)
    option("-I", "--include", metavar="DIR", action="append", default=[], help="a folder for #include of IL")
    option("-D", "--define", metavar="NAME[=VALUE]", action="append", default=[], help="define a macro of IL")
    option("--eval", metavar="MODE", default="arith", help="what ${eval} of IL may hold: arith; perl runs code")
    add_budget(parser)
    add_load(parser)


class Network:
    """The network that the arguments name. Where its shapes are open (`opened`), it is compiled when it is called."""

    def __init__(self, args: argparse.Namespace, path: str):
        from lightnet import model
        from lightnet.cli import feeding
        from lightnet.frontends.loading import OpenError
        from lightnet.ir.budget import limited

        self.path = path
        self.weights = args.datafile
        self.shapes, self.values = feeding.shapes_of(args.shapes), feeding.fed_values(args.values)
        dims = feeding.dims_of(args.dims, self.shapes)
        self._model: Model | None = None
        self.opened: OpenError | None = None
        self.budget: float | None = args.compile_budget
        self._reading = {"shapes": self.shapes, "dims": dims, "values": self.values, "seed": args.seed,
                         "include_dirs": args.include, "eval_mode": args.eval, "defines": args.define}  # fmt: skip
        try:
            with limited(self.budget):
                self._model = model.load_closed(path, weights=args.datafile, **self._reading)
        except OpenError as e:
            self.opened = e
        except LightNetError as e:
            raise Warnings(getattr(args, "warnings", ())).refused(e, e.warnings) from None

    @property
    def is_onnx(self) -> bool:
        """True if the file itself is an ONNX model."""
        return Path(self.path).suffix.lower() == ".onnx"

    @property
    def warnings(self) -> list[tuple[SourceLoc, str]]:
        """The warnings of the source."""
        return self._model.warnings if self._model is not None else []

    def model(self) -> Model:
        """The network in memory. Raises the `OpenError` where its shapes are open."""
        if self._model is None:
            assert self.opened is not None
            raise self.opened
        return self._model

    def named(self) -> Model:
        """The network in memory, with symbols for open dims where nobody gave them sizes. Raises the `OpenError` where
        there can be none."""
        if self._model is None:
            from lightnet import model
            from lightnet.ir.budget import limited

            assert self.opened is not None
            if self.opened.named is None:
                raise self.opened
            with limited(self.budget):
                self._model = model.load(self.path, weights=self.weights, **self._reading)
        return self._model

    def compile(self, target: str, outputs: Sequence[str] = (), **options: Any) -> Any:
        """An `Executable`, or a `SpecializingExecutable` where shapes are open; `outputs` keeps further tensors by
        name, `options` are those of `lightnet.compile`."""
        from lightnet import compiler

        options["budget"] = self.budget
        if self._model is not None:
            return compiler.compile(self._model, target, outputs=outputs, **options)
        assert self.opened is not None
        return compiler.compile(self.opened, target, weights=self.weights, outputs=outputs, **options)

    def line(self, loc: SourceLoc | None) -> str | None:
        """The line of the source at a place, where the source is text."""
        from lightnet.ir.context import sources_of

        return sources_of(self._model.ctx).line(loc) if self._model is not None else None
