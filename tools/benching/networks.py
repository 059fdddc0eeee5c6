"""The networks of the benchmark, and how one is made ready: files that every engine reads, and what comes out of it.

A network of ours is written out in ONNX for the peers, with its contents beside it for us; an ONNX model is what all engines read.
The reference is the interpreter's result on the network in float64, whose every f32 is an f64. What was made ready stays in build/bench
until the network, or the code that reads it, changes. Imports lightnet and NumPy, onnx where a network is written out.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from compare_onnxruntime import Ranking, rankings
from sampled_weights import sampled_weights

import lightnet
from benching.engines import write_arrays
from benching.reference import error, expected
from lightnet.dialects.ln.source import Source, is_fed
from lightnet.ir.op import LnOp
from lightnet.model import Model
from lightnet.runtime.dtypes import BY_NP
from lightnet.runtime.initial import sample
from lightnet_debug import costs
from lightnet_export.onnx.model import export, input_contents

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "bench"
EXAMPLES, DATA = ROOT / "examples" / "nets", ROOT / "tests" / "data" / "nets" / "il"
#: The standard networks, which bring contents of their own.
STANDARD = ("mlp", "lenet", "squeezenet1.1", "mobilenetv2", "resnet18", "resnet50", "tiny-yolo")
#: Networks of the C implementation, whose contents are sampled, by the names of their files.
UPSTREAM = {"squeezedet": "squeezedet", "shuffledet": "shuffledet_dac_demo", "shufflenetv2": "shufflenetv2",
            "yolov3": "yolov3_bak", "erfnet": "erfnet_samepad"}  # fmt: skip
#: The set over which the geometric mean is taken.
NETWORKS = {n: EXAMPLES / f"{n}.net" for n in STANDARD} | {n: DATA / f"{f}.net" for n, f in UPSTREAM.items()}
#: Code that decides what a network is made into.
_SOURCES = ("lightnet/dialects/ln", "lightnet/frontends", "lightnet/runtime", "lightnet_export", "lightnet_nnvm", "tools/sampled_weights.py", "tools/benching/networks.py",
            "tools/benching/reference.py")  # fmt: skip


@dataclass
class Prepared:
    """A network as files. `flops` counts two for each multiply-add, of convolutions as if direct; `reference` has what should come
    out, by `oracle`, and `rankings` the sorts behind outputs (`compare_onnxruntime.Ranking`)."""

    name: str
    source: str
    flops: int
    onnx: str
    network: str
    feeds: str
    weights: str | None = None
    values: str | None = None
    shapes: dict[str, list[int]] = field(default_factory=dict)
    reference: str | None = None
    oracle: str = ""
    rankings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def job(self) -> dict[str, Any]:
        """The job as a worker has to know it (`engines.py`)."""
        return {"onnx": self.onnx, "network": self.network, "feeds": self.feeds, "weights": self.weights, "values": self.values,
                "shapes": self.shapes}  # fmt: skip


def prepare(path: str | Path, name: str | None = None, *, shapes: Mapping[str, Sequence[int]] | None = None,
            values: Mapping[str, np.ndarray] | None = None, feeds: Mapping[str, np.ndarray] | None = None,
            reference: bool = True) -> Prepared:  # fmt: skip
    """Make the network at a path ready. `shapes` closes the shapes of an ONNX model, `values` makes inputs of it constants; of
    both, what names no input is passed over. `feeds` are its inputs instead of noise. Raises `LightNetError` for a network that
    we cannot read, or whose shapes stay open."""
    path = Path(path).resolve()
    name = name or path.stem
    folder = FOLDER / f"{name.replace('/', '-').replace(' ', '-')}-{_key(path, shapes, values, feeds, reference)}"
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as made:
            work = Path(made) / "made"
            work.mkdir()
            found = (_onnx if path.suffix == ".onnx" else _own)(path, name, work, shapes, values, feeds, reference)
            (work / "prepared.json").write_text(json.dumps(asdict(found)))
            for other in FOLDER.glob(f"{folder.name.rpartition('-')[0]}-????????????"):
                shutil.rmtree(other, ignore_errors=True)
            try:
                work.rename(folder)
            except OSError:
                if not folder.exists():  # else somebody else made the same meanwhile
                    raise
    found = Prepared(**json.loads((folder / "prepared.json").read_text()))
    for part in ("onnx", "network", "feeds", "weights", "values", "reference"):
        if getattr(found, part) is not None:  # relative to the folder, or absolute
            setattr(found, part, str(folder / getattr(found, part)))
    return found


def _key(path: Path, *options: Any) -> str:
    digest = hashlib.sha256(path.read_bytes())
    for other in sorted(path.parent.glob("*.inc")) if path.suffix == ".net" else ():
        digest.update(other.read_bytes())
    for option in options:
        for name, value in sorted(option.items()) if isinstance(option, Mapping) else [("", option)]:
            array = np.asarray(value)
            digest.update(
                f"{name} {array.dtype} {array.shape}".encode() + (array.tobytes() if value is not None else b"")
            )
    for source in _SOURCES:
        files = [ROOT / source] if source.endswith(".py") else sorted((ROOT / source).rglob("*.py"))
        for file in files:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def contents(model: Model) -> dict[str, np.ndarray]:
    """The contents of every source of a network that can be fed, by name."""
    return {op.tensor_names[0] or op.op_name or "": np.asarray(op.contents(model.weights, model.seed))
            for op in model.main.walk() if is_fed(op)}  # fmt: skip


def flops(model: Model) -> int:
    """Operations of the network's multiply-adds, two each."""
    return 2 * sum(costs.macs(op) for op in model.main.walk() if isinstance(op, LnOp))


def loaded(path: str | Path) -> Model:
    """A network of ours with contents: its own, or sampled ones where a file should have them (or it is one of UPSTREAM)."""
    model = lightnet.load(path)
    sampled = Path(path).stem in UPSTREAM.values() or any(
        op.from_file for op in model.main.walk() if isinstance(op, Source)
    )
    given = sampled_weights(model) if sampled else contents(model)
    return lightnet.load(path, weights=given, override=True)


def _own(path: Path, name: str, folder: Path, shapes: Any, values: Any, feeds: Any, reference: bool) -> Prepared:
    model = loaded(path)
    given = contents(model)
    write_arrays(str(folder / "weights.npz"), given)
    export(model, folder / "model.onnx")
    fed = input_contents(model) | {n: a for n, a in (feeds or {}).items() if n in given}
    write_arrays(str(folder / "feeds.npz"), fed)
    found = Prepared(name, str(path), flops(model), "model.onnx", str(path), "feeds.npz", "weights.npz")
    return _referenced(found, model, given | fed, folder) if reference else found


def _onnx(path: Path, name: str, folder: Path, shapes: Any, values: Any, feeds: Any, reference: bool) -> Prepared:
    names = set(_input_names(path))
    shapes = {n: list(d) for n, d in (shapes or {}).items() if n in names}
    values = {n: np.asarray(a) for n, a in (values or {}).items() if n in names}
    model = lightnet.load(path, shapes=shapes, values=values)
    found = Prepared(name, str(path), flops(model), str(path), str(path), "feeds.npz", shapes=shapes)
    types = lightnet.compile(model, target="none").inputs
    noise = {n: sample(n, "data", d, BY_NP[np.dtype(t)], 0) for n, (d, t) in types.items() if n not in (feeds or {})}
    fed = {n: a for n, a in {**noise, **(feeds or {})}.items() if n in names}
    write_arrays(str(folder / "feeds.npz"), fed | values)
    if values:
        write_arrays(str(folder / "values.npz"), values)
        found.values = "values.npz"
    return _referenced(found, model, contents(model) | fed, folder) if reference else found


def _input_names(path: Path) -> list[str]:
    from lightnet.frontends.onnx.reader import read_model

    graph = read_model(str(path)).graph
    return [i.name for i in graph.inputs]


def _referenced(found: Prepared, model: Model, given: Mapping[str, np.ndarray], folder: Path) -> Prepared:
    """With what should come out, and how its sorts are compared."""
    arrays, found.oracle = expected(model, given)
    if arrays:
        write_arrays(str(folder / "reference.npz"), arrays)
        found.reference = "reference.npz"
    found.rankings = [asdict(r) for r in rankings(model)]
    return found


def error_of(prepared: Prepared, outputs: str | Path) -> float:
    """The distance of the outputs in a file from what `prepared.reference` has (`reference.error`)."""
    found = [Ranking(**{**r, "picks": tuple(map(tuple, r["picks"]))}) for r in prepared.rankings]
    assert prepared.reference is not None
    return error(dict(np.load(outputs)), dict(np.load(prepared.reference)), found)
