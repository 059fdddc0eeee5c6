"""Targets of every reader: mutants of the files that tests and examples have, and of ONNX's own models where that package is installed.

A file is read or refused with a `LightNetError`, within limits. A network that is read verifies, and its text reads back as the same text. Descriptions and
patterns are loaded and forgotten again; stores of weights give every tensor that they name; a `.lnx` that loads gives its outputs.
"""

from __future__ import annotations

import io
import random
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzzing import mutate, structured
from fuzzing.process import Fault, Target

ROOT = Path(__file__).resolve().parent.parent.parent
PLACES = (ROOT / "tests" / "data", ROOT / "examples", ROOT / "tests" / "filecheck")
#: Bytes of a file of the corpus: larger ones say nothing that smaller ones do not, and cost time.
LARGE = 24_000

Mutator = Callable[[bytes, mutate.Pool, random.Random], bytes]
Run = Callable[[bytes, Path, dict[str, list[str]]], str]


@dataclass(frozen=True)
class Reader:
    """A reader: its corpus, how its files are changed, and what is done with one."""

    name: str
    suffix: str
    corpus: Callable[[], list[bytes]]
    mutator: Mutator
    do: Run

    def make(self, seed: int) -> bytes:
        rng = random.Random(f"{self.name} {seed}")
        files = corpus_of(self)
        return self.mutator(rng.choice(files), files, rng)

    def run(self, data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
        from lightnet.diagnostics import LightNetError

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.do(data, path, seen)
        except LightNetError as e:
            str(e), e.render()
            seen["reason"] = [e.label or "-"]
            return "refused"


#: Where `prepare` has put the files of each reader, for the processes that change them.
FOLDER: list[Path] = []


@cache
def corpus_of(reader: Reader) -> list[bytes]:
    """The files of a reader that it takes: others are mutants already, of which nothing more comes."""
    if FOLDER and (prepared := sorted((FOLDER[0] / reader.name).glob("*"))):
        return [path.read_bytes() for path in prepared]
    found = reader.corpus()
    if reader.name != "onnx":  # of which there are hundreds, and all are right
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            path = Path(folder) / f"file{reader.suffix}"
            taken = []
            for data in found:
                path.write_bytes(data)
                if reader.run(data, path, {}) != "refused":
                    taken.append(data)
            found = taken
    assert found, f"the corpus of '{reader.name}' has no file that is read"
    return found


def prepare(targets: Iterable[Target], folder: Path) -> None:
    """Write the corpora of readers, so that each process need not find them again."""
    for target in targets:
        if isinstance(target, Reader):
            (folder / target.name).mkdir(parents=True)
            for i, data in enumerate(corpus_of(target)):
                (folder / target.name / f"{i:05d}").write_bytes(data)


def files(suffix: str, where: Callable[[Path], bool] = lambda path: True) -> list[bytes]:
    """The contents of small files with a suffix, below the folders of tests and examples."""
    found = (p for place in PLACES for p in sorted(place.rglob(f"*{suffix}")) if p.stat().st_size <= LARGE and where(p))
    return [part for p in found for part in re.split(rb"(?m)^// -----.*\n", p.read_bytes())]


def network(**options: Any) -> Run:
    """Read a network in one of the forms of `FRONTENDS`."""

    def do(data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
        import lightnet
        from lightnet.frontends import mlir
        from lightnet.ir.printer import module_text

        model = lightnet.load(path, **options)
        seen["op"] = sorted({op.name for op in model.module.walk()})
        text = module_text(model.module)
        again = module_text(mlir.read(text, "again.mlir"))
        if again != text:
            line = next((a, b) for a, b in zip([*text.splitlines(), "end"], [*again.splitlines(), "end"]) if a != b)
            raise Fault(f"the text does not read back as itself: {line[0]!r} is {line[1]!r}")
        return "read"

    return do


def plugin(data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
    """Load a file of descriptions or patterns."""
    import lightnet

    with lightnet.plugins.load(path, replace=path.suffix != ".mlir") as found:
        seen["optype"] = sorted({cls.optype for p in found for cls in p.ops if hasattr(cls, "optype")})
    return "loaded"


def weights(data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
    """Open a store and read every tensor."""
    from lightnet.runtime.weights import open_weights

    store = open_weights(path)
    for name in list(store)[:64] if hasattr(store, "__iter__") else []:
        store[name]
    return "read"


def executable(data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
    """Load a saved executable, and call it: its checksums refuse whatever is not weights."""
    import lightnet

    run = lightnet.load_executable(path)
    run()
    return "ran"


def _onnx() -> list[bytes]:
    """Models of ONNX's own tests, and one of each op's cases."""
    import onnx
    from onnx.backend.test.case.node import collect_testcases

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    stored = [p.read_bytes() for p in sorted(folder.rglob("*.onnx")) if p.stat().st_size <= LARGE]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            case.model.graph.node[0].op_type: case.model
            for case in collect_testcases(None)
            if case.model and case.model.graph.node
        }
    return stored + [model.SerializeToString() for model in made.values()]


def _weights(suffix: str) -> Callable[[], list[bytes]]:
    def found() -> list[bytes]:
        return files(suffix) or [_store(suffix)]

    return found


def _store(suffix: str) -> bytes:
    """A small store of three tensors."""
    import json

    import numpy as np

    arrays = {"w": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "b": np.ones(3, np.float64), "i": np.arange(5)}
    out = io.BytesIO()
    if suffix == ".npz":
        np.savez(out, **arrays)  # type: ignore[arg-type]
        return out.getvalue()
    if suffix == ".wts":
        from lightnet.runtime.wts import write_wts

        write_wts(out, {"w": arrays["w"], "b": np.ones(3, np.float32)})
        return out.getvalue()
    header, body = {}, b""
    for (name, a), kind in zip(arrays.items(), ("F32", "F64", "I64")):
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [len(body), len(body) + a.nbytes]}
        body += a.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _executables() -> list[bytes]:
    """A saved executable of an example."""
    import lightnet

    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name in ("cnn.net", "example.net"):
            lightnet.compile(ROOT / "examples" / name).save(Path(folder) / "x.lnx")
            found.append((Path(folder) / "x.lnx").read_bytes())
    return found


def _is_description(path: Path) -> bool:
    return path.suffix == ".json" and any(
        word in path.read_bytes()[:4000] for word in (b'"root_optype"', b'"tensors_in"', b'"expander"', b'"optype"')
    )


def readers() -> Iterator[Target]:
    """Every reader there is."""
    yield Reader("il", ".net", lambda: files(".net"), mutate.of_text, network())
    yield Reader("mlir", ".mlir", lambda: files(".mlir", lambda p: b"ln." in p.read_bytes()), mutate.of_text, network())
    yield Reader(
        "json", ".json", lambda: files(".json", lambda p: b'"ops"' in p.read_bytes()), structured.of_json, network()
    )
    yield Reader(
        "nnvm", ".json", lambda: files("-symbol.json"), structured.of_json, network(shapes={"data": (1, 3, 32, 32)})
    )
    yield Reader("onnx", ".onnx", _onnx, structured.of_protobuf, network())
    yield Reader("op", ".op", lambda: files(".op"), mutate.of_text, plugin)
    yield Reader("rules", ".json", lambda: files(".json", _is_description), structured.of_json, plugin)
    yield Reader(
        "pdl", ".mlir", lambda: files(".mlir", lambda p: b"pdl.pattern" in p.read_bytes()), mutate.of_text, plugin
    )
    yield Reader("npz", ".npz", _weights(".npz"), mutate.of_zip, weights)
    yield Reader("safetensors", ".safetensors", _weights(".safetensors"), mutate.of_bytes, weights)
    yield Reader("wts", ".wts", _weights(".wts"), mutate.of_text, weights)
    yield Reader("params", ".params", lambda: files(".params"), mutate.of_bytes, weights)
    yield Reader("lnx", ".lnx", _executables, mutate.of_bytes, executable)
