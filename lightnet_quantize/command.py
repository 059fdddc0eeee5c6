"""`lightnet quantize NET -o Q.onnx --data CALIB.npz`: quantise a float32 network to 8 bits, as QDQ ONNX, which every
runtime reads.

The data has an array for each input, with samples along its first axis. What each layer's quantisation costs is a table
on stdout, or JSON (docs/quantize.md).
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from lightnet.cli import common, feeding
from lightnet.cli.progress import stages
from lightnet.diagnostics import LightNetError, printable
from lightnet_quantize.options import (
    DEFAULT_POINTWISE,
    METHODS,
    POINTWISE,
    PRODUCTS,
    SYMMETRIC,
    TYPES,
    WEIGHT_METHODS,
    QuantizeOptions,
)


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    args = _parser().parse_args(argv)
    options = _options(args)
    if args.output != "-":
        _check_writable(args.output)
    from lightnet_quantize.quantizer import quantize

    with stages(f"quantising {os.path.basename(args.network)}") as stage:
        found = quantize(
            args.network,
            args.data,
            options,
            weights=args.weights_file,
            shapes=feeding.shapes_of(args.shapes) or None,
            stage=stage,
        )
    written = found.save(args.output, args.external)
    if args.output == "-":
        return 0
    if found.report is not None and args.json:
        print(found.report.json())
    elif found.report is not None:
        _show(found.report)
    if not args.json:
        print(f"wrote {', '.join(written)}")
    return 0


def _parser() -> common.ToolParser:
    default = QuantizeOptions()
    parser = common.ToolParser(
        "lightnet quantize",
        description="Quantise a float32 network to 8 bits, as QDQ ONNX.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("network", metavar="NET", help="a network: .onnx, -symbol.json, .net, .json or .mlir")
    option("-o", "--output", metavar="FILE", required=True, help="write the quantised model; - is stdout")
    option(
        "--data",
        metavar="FILE.npz",
        required=True,
        help="calibration data: an array for each input, samples along the first axis",
    )
    option(
        "--method",
        choices=METHODS,
        default=default.method,
        help="ranges of activations: their extremes (default), extremes without outliers, or the least square error",
    )
    option(
        "--percentile",
        type=float,
        metavar="P",
        default=default.percentile,
        help=f"the share of values that --method percentile keeps, in percent (default: {default.percentile})",
    )
    option(
        "--weight-method",
        choices=WEIGHT_METHODS,
        default=default.weight_method,
        help="ranges of weights: their extremes (default), or the least square error",
    )
    option(
        "--activation-type",
        choices=TYPES,
        default=default.activation_type,
        help="the type of activations (default: u8)",
    )
    option("--weight-type", choices=TYPES, default=default.weight_type, help="the type of weights (default: s8)")
    option(
        "--symmetric",
        choices=SYMMETRIC,
        default=default.symmetric,
        help="what has its zero point in the middle (default: weights)",
    )
    option("--per-tensor", action="store_true", help="a scale for each weight, instead of one for each output channel")
    option(
        "--reduce-range",
        action="store_true",
        help="weights of 7 bits, for x86 without VNNI, where runtimes add pairs of products in 16 bits",
    )
    option(
        "--ops",
        metavar="OP,...",
        help=f"the op types to quantise, of {', '.join(PRODUCTS + POINTWISE)} (default: "
        f"{', '.join(PRODUCTS + DEFAULT_POINTWISE)})",
    )
    option(
        "--also",
        metavar="OP,...",
        action="append",
        default=[],
        help="op types to quantise beside those of the default",
    )
    option(
        "--exclude",
        metavar="NAME",
        action="append",
        default=[],
        help="a node, a tensor or an op type that stays in float32; may be given several times",
    )
    option("--samples", type=int, metavar="N", help="make at most N calls of the data (default: all)")
    option(
        "--report-samples",
        type=int,
        metavar="N",
        default=default.report_samples,
        help=f"measure accuracy on the first N calls (default: {default.report_samples}; 0 for no report)",
    )
    option("--json", action="store_true", help="the report as JSON")
    option("--external", action="store_true", help="write the weights to FILE.data beside the model")
    option("-f", "--weights", metavar="FILE", dest="weights_file", help="weights of a network that brings none")
    option("--shape", metavar="NAME=1x3x224x224", action="append", default=[], dest="shapes",
           help="the dims of an input, of a network that is no ONNX model")  # fmt: skip
    return parser


def _options(args: argparse.Namespace) -> QuantizeOptions:
    from lightnet.cli.network import names_of

    ops = names_of([args.ops]) if args.ops is not None else QuantizeOptions().ops
    return QuantizeOptions(
        method=args.method, percentile=args.percentile, weight_method=args.weight_method,
        activation_type=args.activation_type, weight_type=args.weight_type, symmetric=args.symmetric,
        per_channel=not args.per_tensor, reduce_range=args.reduce_range,
        ops=tuple(dict.fromkeys((*ops, *names_of(args.also)))), exclude=tuple(args.exclude), samples=args.samples,
        report_samples=0 if args.output == "-" else args.report_samples,  # stdout is the model
    )  # fmt: skip


def _check_writable(path: str) -> None:
    """Raise LightNetError at once where the result could not be written after minutes."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or os.path.isdir(path):
        why = "is a folder" if os.path.isdir(path) else f"there is no folder '{folder}'"
        raise LightNetError(f"cannot write '{path}': {why}")


def _show(report: Any) -> None:
    """Print a report: with the package rich on a terminal, else as plain text."""
    console = _terminal()
    if console is None:
        print(report.text())
        return
    from rich.table import Table
    from rich.text import Text

    from lightnet_quantize.report import HEADER

    shown = Table(title="what each layer's quantisation costs")
    for k, title in enumerate(HEADER):
        shown.add_column(title, justify="left" if k < 2 else "right", overflow="fold")
    for row in report.rows():
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console.print(shown)
    for line in report.total():
        console.print(Text(line))


def _terminal() -> Any:
    """A console of rich for stdout; None where that is no terminal, or rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console()
    return console if console.is_terminal else None
