"""Find out which rewrites are exact: ``python tools/exactness.py [--record] [FILE...]``.

Runs the pipelines of the FileCheck tests, the networks of the mutants and the examples with `--check=exact` after each rewrite.
A pattern is ``exact`` where what it makes is, as a formula, what was there, ``in floats`` where it is only nearly; those that no
network here has are left out. Prints a table; `--record` writes `tests/data/exactness.json`, which docs/patterns.md shows.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/data/exactness.json"
EXACT, IN_FLOATS = "exact", "in floats"
#: What the networks that are examples go through.
EXAMPLES = ("@cpu:plan", "bind,simplify,fold-batchnorm,simplify")
NETWORKS = ("cnn.net", "example.net", "nets/lenet.net", "nets/mlp.net")


#: Lines that make %y of %x, of the type that stands before them, for rules of `simplify` that no other network here has.
RULES = (
    ("2x3xui8", "%y = ln.abs %x : tensor<2x3xui8>"),
    ("2x3xf32", "%a = ln.bitcast %x : tensor<2x3xi32>\n%y = ln.bitcast %a : tensor<2x3xf32>"),
    ("2x3xf32", "%a = ln.cast %x : tensor<2x3xf64>\n%y = ln.cast %a : tensor<2x3xf32>"),
    ("2x3xf32", "%a = ln.clip %x {lo = -1, hi = 0.5} : tensor<2x3xf32>\n%y = ln.clip %a {lo = -0.5, hi = 1} : tensor<2x3xf32>"),
    ("2x3xf32", "%y = ln.concat %x {axis = 0} : tensor<2x3xf32>"),
    ("1x3xf32", "%a = ln.expand %x : tensor<2x3xf32>\n%y = ln.expand %a : tensor<4x2x3xf32>"),
    ("2x3xf32", "%y = ln.expand %x : tensor<1x2x3xf32>"),
    ("2x3xf32", "%a = ln.abs %x : tensor<2x3xf32>\n%y = ln.abs %a : tensor<2x3xf32>"),
    ("2x3xf32", "%a = ln.neg %x : tensor<2x3xf32>\n%y = ln.neg %a : tensor<2x3xf32>"),
    ("2x3xf32", "%y = ln.lrelu %x {negslope = 1} : tensor<2x3xf32>"),
    ("2x3xf32", "%y = ln.pad %x {before = [0, 0], after = [0, 0]} : tensor<2x3xf32>"),
    ("2x1xf32", "%y = ln.reduce_sum %x {axes = [1]} : tensor<2x1xf32>"),
    ("2x3xf32", "%y = ln.maximum %x, %x : tensor<2x3xf32>"),
    ("2x3xf32", "%y = ln.strided_slice %x {starts = [0, 0], steps = [1, 1], lens = [2, 3]} : tensor<2x3xf32>"),
    ("4x3xf32", "%y = ln.strided_slice %x {starts = [1, 0], steps = [1, 1], lens = [2, 3]} : tensor<2x3xf32>"),
    ("2x3xf32", "%y = ln.tile %x {repeats = [1, 1]} : tensor<2x3xf32>"),
    ("2x3xf32", "%c = ln.less %x, %x : tensor<2x3xi1>\n%y = ln.where %c, %x, %x : tensor<2x3xf32>"),
)  # fmt: skip
#: Targets on which a sample of each op is expanded.
TARGETS = ("cpu", "cuda", "tensorrt")


class Subject(NamedTuple):
    """A module to run passes on: what it is called, its text (or the path of an example), the pipeline, the target, and files to load."""

    name: str
    text: str
    is_il: bool
    passes: str
    target: str
    load: tuple[str, ...] = ()


def subjects() -> Iterator[Subject]:
    """All that is run."""
    from mutants import MUTANTS

    for m in MUTANTS:
        yield Subject(m.name, m.text, False, m.passes, "cpu")
    for path in sorted((ROOT / "tests/filecheck").rglob("*.mlir")):
        text = path.read_text("utf-8")
        for line in dict.fromkeys(re.findall(r"RUN: (ln-opt [^|>]*)", text)):
            words = shlex.split(line.replace("%S", str(path.parent)))
            options = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
            options.add_argument("--pass", "-p", dest="passes")
            options.add_argument("--target", "-t", default="cpu")
            options.add_argument("--load", action="append", default=[])
            found, _ = options.parse_known_args(words)
            if found.passes is None:
                continue
            for k, part in enumerate(text.split("// -----") if "--split-input-file" in line else [text]):
                yield Subject(f"{path.stem}.{k}", part, False, found.passes, found.target, tuple(found.load))
    yield from rules()
    for k, (type, body) in enumerate(RULES):
        result = body.rpartition(": ")[2]
        text = (
            f"func.func @main() -> {result} {{\n%x = ln.input : tensor<{type}>\n{body}\nfunc.return %y : {result}\n}}\n"
        )
        yield Subject(f"rule {k}", text, False, "simplify", "cpu")
    for name, text in spelt():
        yield Subject(name, text, False, "bind,simplify,recognize{rules=norms,activations}", "cpu")
    for name, text in samples():
        for target in TARGETS:
            yield Subject(f"sample of {name}, {target}", text, False, "expand,combine", target)
    for name in NETWORKS:
        for passes in EXAMPLES:
            yield Subject(name, str(ROOT / "examples" / name), True, passes, "cpu")


def rules() -> Iterator[Subject]:
    """The networks of `tests/data/rules.mlir`."""
    for text in (ROOT / "tests/data/rules.mlir").read_text("utf-8").split("// -----"):
        said = dict(re.findall(r"// ([A-Z]+): (.+)", text))
        load = (str(ROOT / said["LOAD"]),) if "LOAD" in said else ()
        name = f"rules of {re.sub(r'[^a-z]+', ' ', said['PASSES'])}"
        yield Subject(name, text, False, said["PASSES"], said.get("TARGET", "cpu"), load)


def spelt() -> Iterator[tuple[str, str]]:
    """The graphs that exporters write of one op, as they are imported."""
    sys.path.insert(0, str(ROOT / "tests"))
    from spelt_out import SPELLINGS, spelling

    import lightnet

    for name in SPELLINGS:
        yield name, str(lightnet.loads(spelling(name, (2, 3, 8)).model.SerializeToString(), ".onnx").module)


def samples() -> Iterator[tuple[str, str]]:
    """Each op and a network of one of its samples."""
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp, ReturnOp

    from lightnet.dialects.ln.dialect import optypes
    from lightnet.dialects.ln.source import Input

    for name, cls in sorted(optypes().items()):
        for sample in cls.samples()[:4]:
            case = cls.schema.resolve(sample)
            values = [(field.variadic, case.tensors[field.name]) for field in cls.schema.operands]
            specs = [spec for many, value in values for spec in (value if many else (value,))]
            inputs = [Input.make([], {"dtype": spec.dtype.tl, "dims": spec.dims}) for spec in specs]
            op = cls.make([i.results[0] for i in inputs], case.params, name=name)
            main = FuncOp("main", ((), op.result_types))
            main.body.block.add_ops([*inputs, op, ReturnOp(*op.results)])
            yield name, str(ModuleOp([main]))


def measured(subject: Subject) -> dict[str, str]:
    """By pattern that the passes apply, whether all its rewrites were exact. Raises `LightNetError` for what does not run."""
    import lightnet
    from lightnet.frontends import mlir
    from lightnet.ir.context import make_context
    from lightnet.ir.passes import parse_pipeline, run_pipeline
    from lightnet.plugins import loaded
    from lightnet_trust.check import Checker, CheckOptions

    found: dict[str, str] = {}

    class Watch(Checker):
        """Takes note of each rewrite, and goes on."""

        def rewrote(self, rewrite) -> None:
            rounds = self.options.rounding_of(self._current[0]) is not None
            found[rewrite.pattern] = IN_FLOATS if rounds else found.get(rewrite.pattern, EXACT)
            super().rewrote(rewrite)

        def is_lawful(self, difference, pass_, rewrite) -> bool:
            if difference.kind != "exact" or rewrite is None or difference.tensor in self.baseline.in_floats:
                return False
            found[rewrite.pattern] = IN_FLOATS
            self.baseline.in_floats.add(difference.tensor)
            return True

    with loaded(subject.load):
        if subject.is_il:
            net = lightnet.load(subject.text)
            ctx, module = net.ctx, net.module
        else:
            ctx = make_context()
            module = mlir.read(subject.text, subject.name, ctx)
        watch = Watch(ctx, CheckOptions(("ordinary",), in_field=True), each_rewrite=True)
        run_pipeline(ctx, module, parse_pipeline(subject.passes, {"target": subject.target}), [watch])
    return found


def all_measured() -> tuple[dict[str, str], list[str]]:
    """By pattern, whether it was exact wherever it applied; and what did not run, and why."""
    from lightnet.diagnostics import LightNetError
    from lightnet.ir.rewrites import pattern_name
    from lightnet.passes.patterns import every

    own = {pattern_name(cls) for _, _, cls in every()}
    found: dict[str, str] = {}
    failed: list[str] = []
    for subject in subjects():
        try:
            for pattern, how in measured(subject).items():
                if subject.load and pattern not in own:  # of a plugin
                    continue
                if how == IN_FLOATS or pattern not in found:
                    if how == IN_FLOATS and found.get(pattern) != IN_FLOATS:
                        failed.append(f"{subject.name} [{subject.passes}]: {pattern} is in floats")
                    found[pattern] = how
        except LightNetError as e:
            failed.append(f"{subject.name} [{subject.passes}]: {e.message[:150]}")
        except Exception as e:
            failed.append(f"{subject.name} [{subject.passes}]: {type(e).__name__} {e!s:.100}")
    return dict(sorted(found.items())), failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    args = parser.parse_args()
    found, failed = all_measured()
    for pattern, how in found.items():
        print(f"{pattern:40s} {how}")
    for line in failed:
        print(line, file=sys.stderr)
    if args.record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
