"""Write one architecture to ONNX: ``python tools/architectures/export.py NAME FOLDER [--exporter dynamo|script]``.

FOLDER gets `model.onnx`, what it is fed (`feeds.npz`), and what PyTorch computes from it in float64 (`want.npz`; in float32 where the
network has parts that take no other, which `export.json` says). Weights and inputs follow from one seed. Needs torch,
torchvision, timm, transformers, diffusers, onnx and onnxscript, and none of LightNet.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from architectures import ARCHITECTURES, TRACED, Example
from architectures.parts import awake

OPSET = 18


def computed(example: Example) -> tuple[list[np.ndarray], str]:
    """The results that PyTorch computes, and their type."""
    inputs = tuple(example.inputs.values())
    with torch.no_grad():
        plain = _arrays(example.module(*inputs))
        try:
            torch.set_default_dtype(torch.float64)
            double = copy.deepcopy(example.module).double()
            exact = _arrays(double(*(t.double() if t.is_floating_point() else t for t in inputs)))
        except (RuntimeError, TypeError, ValueError):
            return plain, "float32"
        finally:
            torch.set_default_dtype(torch.float32)
    if [a.shape for a in exact] != [a.shape for a in plain]:  # suppression that rounding changes
        return plain, "float32"
    return exact, "float64"


def _arrays(found: Any) -> list[np.ndarray]:
    return [t.numpy() for t in (found if isinstance(found, tuple | list) else (found,))]


def export(example: Example, path: Path, exporter: str) -> None:
    """Write the model with PyTorch's exporter: `dynamo` by graph capture, `script` by tracing."""
    options: dict[str, Any] = {"dynamo": exporter == "dynamo", "opset_version": OPSET}
    if exporter == "dynamo":
        options["external_data"] = False
    torch.onnx.export(example.module, tuple(example.inputs.values()), str(path), input_names=list(example.inputs),
                      output_names=list(example.outputs), **options)  # fmt: skip


def main() -> None:
    """Make and export one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(ARCHITECTURES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--exporter", choices=("dynamo", "script"), help="default: dynamo where it takes the network")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    exporter = args.exporter or ("script" if args.name in TRACED else "dynamo")
    example = ARCHITECTURES[args.name]()
    awake(example.module)
    args.folder.mkdir(parents=True, exist_ok=True)
    want, oracle = computed(example)
    export(example, args.folder / "model.onnx", exporter)
    np.savez(args.folder / "feeds.npz", **{n: t.numpy() for n, t in example.inputs.items()})
    np.savez(args.folder / "want.npz", **dict(zip(example.outputs, want)))
    about = {"name": args.name, "exporter": exporter, "oracle": oracle, "torch": version("torch")}
    (args.folder / "export.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
