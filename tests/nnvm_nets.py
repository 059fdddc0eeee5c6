"""The networks of tests/data/nnvm: what is fed to them, and what they should give."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "nnvm"
#: Of max|ref|: float32 sums of some thousand products, in another order.
TOLERANCE = 1e-4
#: Networks whose outputs are rows (class, score, box), and the output that has the scores.
DETECTORS = ("ssd_512_mobilenet1.0",)
SCORES = "ssd0_slice_axis42_output"


def seeded(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers that belong to a name."""
    rs = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFFFFFF)
    return rs.standard_normal(int(np.prod(shape))).reshape(shape)


def parameter(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The parameter of a network that has no ``.params``: a function of its name and shape, of a size that keeps activations
    bounded."""
    x = seeded(name, shape)
    n = name.lower()
    if n.endswith(("running_var", "moving_var")):
        v = 0.5 + np.abs(x) * 0.5
    elif n.endswith(("running_mean", "moving_mean")):
        v = 0.1 * x
    elif n.endswith("gamma"):
        v = 1.0 + 0.1 * x
    elif n.endswith(("beta", "bias")):
        v = 0.05 * x
    else:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else int(shape[0])
        v = x * np.sqrt(2.0 / max(fan_in, 1))
    return v.astype(np.float32)


def picture(name: str, shape: tuple[int, ...], vocabulary: int | None = None) -> np.ndarray:
    """What an input is fed: normal numbers, or indices below `vocabulary`."""
    v = seeded("input:" + name, shape).astype(np.float32)
    return (np.abs(v * 1000).astype(np.int64) % vocabulary).astype(np.float32) if vocabulary else v


@dataclass(frozen=True)
class Net:
    """One network by its tag."""

    tag: str

    @property
    def path(self) -> Path:
        return DATA / f"{self.tag}-symbol.json"

    @property
    def meta(self) -> dict[str, Any]:
        return json.loads((DATA / f"{self.tag}-meta.json").read_text())

    def weights(self) -> Path | dict[str, np.ndarray]:
        file = DATA / f"{self.tag}-0000.params"
        if file.exists():
            return file
        meta = self.meta
        shapes = {**meta["params"], **meta["aux"]}
        return {k: parameter(k, tuple(v)) for k, v in shapes.items() if k not in meta["labels"]}

    def feeds(self) -> dict[str, np.ndarray]:
        meta = self.meta
        return {k: picture(k, tuple(v), meta.get("int_inputs", {}).get(k)) for k, v in meta["inputs"].items()}

    def aligned(self, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs in an order in which they can be compared. The rows of a detector stand in falling order of score, and where
        scores differ by less than a rounding error any order is right: each reference row gets the row next to it, if all
        rows are used just once."""
        expected = self.references()
        if self.tag not in DETECTORS or any(found[k].shape != v.shape for k, v in expected.items()):
            return found
        rows, wanted = (np.concatenate(list(d.values()), axis=-1)[0] for d in (found, expected))
        order = np.abs(rows[:, None] - wanted[None]).max(-1).argmin(0)
        ties = np.abs(found[SCORES][0, order] - found[SCORES][0]).max() < 1e-6
        if not ties or len(set(order.tolist())) != len(order):
            return found
        return {k: v[:, order] for k, v in found.items()}

    def references(self) -> dict[str, np.ndarray]:
        found = np.load(DATA / f"{self.tag}-ref.npz")
        return {o["name"]: found[f"out{i}"] for i, o in enumerate(self.meta["outputs"])}


class OldNet(Net):
    """The small network that each old version of MXNet wrote, with that version's ``.params``."""

    def weights(self) -> Path:
        return DATA / f"{self.tag}-0000.params"

    def feeds(self) -> dict[str, np.ndarray]:
        return {"data": picture("data", (2, 3, 17, 17))}

    def references(self) -> dict[str, np.ndarray]:
        return {"softmax_output": np.load(DATA / f"{self.tag}-out.npy")}


def old_nets() -> list[Net]:
    """One network as MXNet 0.11 to 1.9 wrote it."""
    return [OldNet(f"old/{p.name.removesuffix('-out.npy')}") for p in sorted((DATA / "old").glob("*-out.npy"))]


def nets() -> list[Net]:
    """Every network that has reference outputs and a table of its shapes."""
    tags = [str(p.relative_to(DATA))[: -len("-meta.json")] for p in sorted(DATA.rglob("*-meta.json"))]
    return [Net(tag) for tag in tags if (DATA / f"{tag}-ref.npz").exists()]


def error(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """The largest difference, relative to the largest magnitude of the output it is in."""
    return max(float(np.abs(found[k] - v).max() / np.abs(v).max()) for k, v in expected.items())
