"""Write a network with open dims to ONNX: ``python tools/opening/export.py NAME FOLDER``.

FOLDER gets `model.onnx`. Weights follow from one seed. Needs torch, torchvision, transformers, onnx and onnxscript, and none of LightNet.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from architectures.parts import Calls

from opening import modules
from opening.networks import NETWORKS, OpenNetwork

OPSET = 18


def dynamic(network: OpenNetwork, module: Any) -> dict[str, Any]:
    """The exporter's arguments on open dims: their names by tracing, symbols with bounds by graph capture."""
    if network.exporter == "script":
        axes = {n: {k: d for k, d in enumerate(i.dims) if isinstance(d, str)} for n, i in network.inputs.items()}
        return {"dynamic_axes": axes}
    symbols: dict[str, Any] = {}
    for name, b in network.dims.items():  # a dim by 32 is 32 times a symbol
        low, high = b.low // b.multiple, b.high // b.multiple
        symbol = torch.export.Dim(b.unit(name), min=low, max=high)
        symbols[name] = symbol if b.multiple == 1 else b.multiple * symbol
    found = tuple({k: symbols[d] for k, d in enumerate(i.dims) if isinstance(d, str)} for i in network.inputs.values())
    return {"dynamic_shapes": (found,) if isinstance(module, Calls) else found}  # `*inputs` is one argument


def main() -> None:
    """Make and export one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(NETWORKS))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    network = NETWORKS[args.name]
    module = getattr(modules, network.make)()
    example = network.feeds({n: b.at((b.low + b.high) // 8 + 3 * b.multiple) for n, b in network.dims.items()})
    args.folder.mkdir(parents=True, exist_ok=True)
    more: dict[str, Any] = (
        {"dynamo": False} if network.exporter == "script" else {"dynamo": True, "external_data": False}
    )
    part = args.folder / "part.onnx"
    torch.onnx.export(module, tuple(map(torch.from_numpy, example.values())), str(part), input_names=list(example), opset_version=OPSET,
                      output_names=list(network.outputs), **more, **dynamic(network, module))  # fmt: skip
    part.rename(args.folder / "model.onnx")


if __name__ == "__main__":
    main()
