"""What is chosen and planned for every network that comes with the project: recorded in ``data/shipped``, one file a network, so that a change
of structure can be seen to change nothing that it does not mean to. ``python tests/shipped.py [NAME…]`` records them anew.

For each `Setting` (a processor or a device, threads, layout, plan) a row an op of the planned network: its form, choices, layouts and
places; a row a launch: how it runs, and digests of its function's text and of the places. A row's text stands once in a file, with the
settings that have it. Nothing is emitted: no LLVM.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nnvm_nets import Net
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue, TypeAttribute

import lightnet
from lightnet.dialects.launch import LaunchLine, kernels, lines_of
from lightnet.dialects.ln.source import ParamOp
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.memory import WORKSPACE_SIZE, memory_of
from lightnet.ir.module import main_of
from lightnet.ir.names import WORKSPACE, tensor_name
from lightnet.ir.op import LnOp
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import get_target
from lightnet.ir.views import place_of
from lightnet.passes import pipelines

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "data" / "shipped"


@dataclass(frozen=True)
class Setting:
    """For whom a network is compiled."""

    features: str
    target: str = "cpu"
    threads: int = 1
    layout: str | None = None
    plan: str = "default"

    @property
    def name(self) -> str:
        threads = f"x{self.threads}" if self.threads > 1 else ""
        return "-".join(
            filter(None, (self.target, self.features + threads, self.layout, self.plan.replace("default", "")))
        )

    def options(self) -> dict[str, Any]:
        arch = {"arch": self.features} if self.target == "cuda" else {}
        return {"target": self.target, "features": self.features, "threads": self.threads, "most": self.threads,
                "layout": self.layout, "plan": self.plan, **arch}  # fmt: skip


#: ``neon`` is also what a processor of x86 without AVX takes: registers of four numbers.
SETTINGS = {
    one.name: one
    for one in (
        Setting("avx512"), Setting("avx2"), Setting("neon"), Setting("avx512", threads=4), Setting("avx2", layout="plain"),
        Setting("avx512", plan="upstream"), Setting("sm_80", "cuda"), Setting("sm_90a", "cuda"),
    )
}  # fmt: skip


def _networks() -> dict[str, Path]:
    """The networks that compile as they are; of examples/ some need what other files define."""
    files = [*ROOT.glob("examples/nets/*.net"), *(ROOT / "examples" / f"{n}.net" for n in ("cnn", "example"))]
    names = {f.stem for f in files}
    files += [f for f in ROOT.glob("tests/data/nets/il/*.net") if f.stem not in names]
    return {f.stem: f for f in sorted(files)}


#: Beside them some of NNVM, for ops that those have not: recurrences, detection, hard swish.
NNVM = ("lstm_embed", "mobilenetv3_small", "ssd_512_mobilenet1.0")
NETWORKS: dict[str, Path | Net] = {**_networks(), **{name: Net(name) for name in NNVM}}
Rows = dict[str, str]


@cache
def source_of(network: str) -> ModuleOp:
    source = NETWORKS[network]
    if isinstance(source, Net):
        shapes = {**source.meta["inputs"], **source.meta["params"], **source.meta["aux"]}
        return lightnet.load(source.path, shapes=shapes).module
    return lightnet.load(source).module


def rows_of(network: str, setting: Setting) -> Rows:
    """What is decided for a network, by what it is about."""
    module, ctx = source_of(network).clone(), make_context()
    spec = pipelines.default(setting.target, setting.plan, layout=setting.layout)
    run_pipeline(ctx, module, parse_pipeline(spec, setting.options())[:-1], verify=False)
    rows = {"memory": " ".join(f"{space}={size}" for space, size in sorted(memory_of(module).items()))}
    rows |= dict(_planned(module))
    lowering = get_target(setting.target).lowering
    assert lowering is not None
    run_pipeline(ctx, module, parse_pipeline(lowering, setting.options()), verify=False)
    return rows | dict(_lowered(module))


def _planned(module: ModuleOp) -> Iterator[tuple[str, str]]:
    once = [op for op in module.walk() if isinstance(op.parent_op(), LnOp) and op.results]
    for number, op in enumerate((*once, *main_of(module).body.block.ops)):
        if not op.results or isinstance(op, ParamOp):
            continue
        name = ",".join(tensor_name(r) or "" for r in op.results) or f"op {number}"
        rows = {name: f"{_form(op)} -> {', '.join(_type(r) for r in op.results)}"}
        if place := _place(op):
            rows[f"{name} at"] = place
        yield from rows.items()


def _form(op: Operation) -> str:
    if not isinstance(op, KernelOp):
        return op.name
    choices = " ".join(f"{k}={_short(v)}" for k, v in op.choices.items() if k != WORKSPACE_SIZE)
    return f"{op.name} {'+'.join(inner.optype for inner in op.ops)} {{{choices}}}"


def _short(value: Any) -> str:
    if isinstance(value, ArrayAttr):
        return f"[{','.join(map(_short, value.data))}]"
    return str(value.value.data if isinstance(value, IntegerAttr) else getattr(value, "data", value))


def _type(value: Any) -> str:
    layout = layout_of(value.type)
    return "x".join(map(str, (*value.type.get_shape(), value.type.element_type))) + (
        "" if layout.is_plain else f" {layout}"
    )


def _place(op: Operation) -> str:
    places = " ".join(str(place_of(r)) for r in op.results if place_of(r) is not None)
    size, work = (op.attributes.get(key) for key in (WORKSPACE_SIZE, WORKSPACE))
    return places if size is None else f"{places} work {_short(size)} @ {' '.join(map(str, getattr(work, 'data', ())))}"


def _lowered(module: ModuleOp) -> Iterator[tuple[str, str]]:
    codes = {name: digest(fingerprint(function)) for name, function in kernels(module).items()}
    for number, line in enumerate(lines_of(module)):
        if isinstance(line, LaunchLine):
            name = line.callee.string_value()
            places = digest(" ".join(map(str, line.args.data)))
            yield f"line {number}", f"@{name} {' '.join(line.notes)} code {codes[name]} places {places}"
        else:
            yield f"line {number}", f"{line.name} {digest(str(line))}"


def fingerprint(function: Operation) -> str:
    """What a function does, whatever its values are called and however it is printed."""
    numbers: defaultdict[SSAValue, int] = defaultdict(lambda: len(numbers))  # in the order in which they are defined
    lines = []
    for op in function.walk():
        for region in op.regions:
            for block in region.blocks:
                lines.append(f"block {[(numbers[a], _text(a.type)) for a in block.args]}")
        members = sorted((k, _text(v)) for k, v in (*op.attributes.items(), *op.properties.items()))
        results = [(numbers[r], _text(r.type)) for r in op.results]
        lines.append(f"{op.name} {[numbers[v] for v in op.operands]} {members} {results}")
    return "\n".join(lines)


def _text(value: Attribute) -> str:
    """The text of an attribute. Equal ones may have several (-0.0 is equal to 0.0), but for types and numbers that are whole."""
    return _known_text(value) if isinstance(value, TypeAttribute | IntegerAttr) else str(value)


_known_text = cache(str)


def digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


# -- the files -------------------------------------------------------------------------------------------------------


def file_of(network: str) -> Path:
    return FOLDER / f"{network}.json"


def recorded(network: str, setting: str) -> Rows:
    """The rows that a network's file has for a setting."""
    table = json.loads(file_of(network).read_text("utf-8"))
    return {row: text for row, texts in table.items() for text, names in texts.items() if setting in names.split()}


def record(network: str) -> None:
    table: dict[str, dict[str, str]] = {}
    for name, setting in SETTINGS.items():
        for row, text in rows_of(network, setting).items():
            texts = table.setdefault(row, {})
            texts[text] = f"{texts[text]} {name}" if text in texts else name
    FOLDER.mkdir(exist_ok=True)
    file_of(network).write_text(json.dumps(table, indent=0) + "\n", "utf-8")


def differences(found: Rows, wanted: Rows) -> list[str]:
    """What changed, for people: choices before the places and code that follow from them."""
    rows = [row for row in (*wanted, *(r for r in found if r not in wanted)) if found.get(row) != wanted.get(row)]
    rows.sort(key=lambda row: (row.startswith("line "), row.endswith(" at")))
    return [
        f"{row}:\n    was {wanted.get(row, '(not there)')}\n    is  {found.get(row, '(not there)')}" for row in rows
    ]


if __name__ == "__main__":
    for one in sys.argv[1:] or NETWORKS:
        record(one)
