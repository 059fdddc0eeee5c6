"""Networks whose dims each call decides: what their inputs are, within which bounds, and the shapes that are drawn from these.

Names and numbers only: `modules.py` makes the networks with PyTorch, and `export.py` writes them. Imports NumPy.
"""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "open"
#: Extents that tiles, vectors and blocks like least: one less and one more than a power of two, and primes.
UGLY = (1, 2, 3, 5, 7, 13, 17, 31, 33, 63, 65, 97, 127, 129, 191, 251, 257, 383, 509, 511)


@dataclass(frozen=True)
class Input:
    """An input: its dims are numbers and names of open dims; `kind` is noise, ids (below `high`), or mask (ones, then zeros)."""

    dims: tuple[int | str, ...]
    kind: str = "noise"
    high: int = 0


@dataclass(frozen=True)
class Bounds:
    """The values of an open dim: multiples of `multiple` from `low` to `high`."""

    low: int
    high: int
    multiple: int = 1

    def at(self, value: float) -> int:
        """The nearest value that there is."""
        return min(max(round(value / self.multiple) * self.multiple, self.low), self.high)

    @property
    def ugly(self) -> list[int]:
        """The values of UGLY that there are, in multiples."""
        return [u * self.multiple for u in UGLY if self.low <= u * self.multiple <= self.high]

    def unit(self, name: str) -> str:
        """The name of what it is a multiple of."""
        return name if self.multiple == 1 else f"{name}_{self.multiple}"

    @property
    def text(self) -> str:
        """As `lightnet.load(dims=…)` takes it."""
        return f"{self.low}..{self.high}" + (f":{self.multiple}" if self.multiple > 1 else "")


@dataclass(frozen=True)
class OpenNetwork:
    """A network by name: the function of `modules.py` that makes it, its inputs, outputs and open dims, and PyTorch's exporter (`dynamo`
    by graph capture, `script` by tracing). `cache` pairs inputs with the outputs that the next call feeds to them."""

    name: str
    make: str
    exporter: str
    inputs: Mapping[str, Input]
    dims: Mapping[str, Bounds]
    outputs: tuple[str, ...] = ("y",)
    cache: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> OpenNetwork:
        """The network that `dataclasses.asdict` described."""
        inputs = {n: Input(**{**i, "dims": tuple(i["dims"])}) for n, i in about["inputs"].items()}
        dims = {n: Bounds(**b) for n, b in about["dims"].items()}
        cache = tuple((old, new) for old, new in about["cache"])
        return cls(**{**about, "inputs": inputs, "dims": dims, "outputs": tuple(about["outputs"]), "cache": cache})

    @property
    def ranges(self) -> dict[str, str]:
        """The bounds as `lightnet.load` takes them: graph capture names a dim by 32 as 32 times a name."""
        if self.exporter == "script":
            return {name: b.text for name, b in self.dims.items()}
        return {b.unit(name): Bounds(b.low // b.multiple, b.high // b.multiple).text for name, b in self.dims.items()}

    def shapes(self, numbers: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs where the open dims have these numbers."""
        return {n: tuple(d if isinstance(d, int) else _number(d, numbers) for d in i.dims)
                for n, i in self.inputs.items()}  # fmt: skip

    def feeds(self, numbers: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
        """Inputs of that shape."""
        generator = np.random.default_rng(seed)
        return {n: _content(self.inputs[n], dims, generator) for n, dims in self.shapes(numbers).items()}

    def drawn(self, count: int, seed: int = 0, most: float = math.inf) -> list[dict[str, int]]:
        """So many shapes by a seed: the corners of the bounds, then ugly ones, then any (log-uniform); none has more than `most` times
        the elements of the smallest of the largest input."""
        every = self._every(random.Random(f"{self.name} {seed}"))
        found: list[dict[str, int]] = []
        for _, numbers in zip(range(200 * count), every):
            if len(found) == count:
                break
            if numbers not in found and self.weight(numbers) <= most:
                found.append(numbers)
        return found

    def weight(self, numbers: Mapping[str, int]) -> float:
        """The product of the open dims over that of their lowest values."""
        return math.prod(numbers[n] / max(b.low, 1) for n, b in self.dims.items())

    def _every(self, rng: random.Random) -> Iterator[dict[str, int]]:
        bounds = self.dims
        yield {n: b.low for n, b in bounds.items()}
        yield {n: b.high for n, b in bounds.items()}
        if len(bounds) > 1:
            for n in bounds:
                yield {m: b.high if m == n else b.low for m, b in bounds.items()}
        for _ in range(8):
            yield {n: rng.choice(b.ugly) for n, b in bounds.items()}
        while True:
            yield self.random(rng)

    def random(self, rng: random.Random) -> dict[str, int]:
        """One shape, each dim log-uniform within its bounds."""
        return {n: b.at(math.exp(rng.uniform(math.log(max(b.low, 1)), math.log(b.high)))) for n, b in self.dims.items()}


def _number(text: str, numbers: Mapping[str, int]) -> int:
    """A dim as inputs spell it: a name, or ``past + 1``."""
    name, _, more = text.partition(" + ")
    return numbers[name] + int(more or 0)


def _content(given: Input, dims: Sequence[int], generator: np.random.Generator) -> np.ndarray:
    if given.kind == "ids":
        return generator.integers(0, given.high, dims)
    if given.kind == "mask":  # the first row is full, others are padded behind
        rows = np.arange(dims[0])[:, None]
        return (np.arange(dims[1]) < np.maximum(dims[1] - rows * dims[1] // (2 * max(dims[0], 1)), 1)).astype(np.int64)
    return generator.standard_normal(dims, np.float32)


def _pictures(name: str, make: str, exporter: str = "dynamo") -> OpenNetwork:
    return OpenNetwork(name, make, exporter, {"x": Input(("batch", 3, 224, 224))}, {"batch": Bounds(1, 32)})


def _sized(name: str, make: str, exporter: str, high: int = 512) -> OpenNetwork:
    dims = {"height": Bounds(32, high, 32), "width": Bounds(32, high, 32)}
    return OpenNetwork(name, make, exporter, {"x": Input((1, 3, "height", "width"))}, dims)


def _bert(name: str, exporter: str) -> OpenNetwork:
    inputs = {"ids": Input(("batch", "length"), "ids", 8192), "mask": Input(("batch", "length"), "mask")}
    return OpenNetwork(name, "bert", exporter, inputs, {"batch": Bounds(1, 16), "length": Bounds(1, 512)})


def _decoder(name: str, make: str, layers: int, heads: int, width: int, vocabulary: int) -> OpenNetwork:
    names = [f"{kind}{layer}" for layer in range(layers) for kind in "kv"]
    inputs = {"ids": Input((1, 1), "ids", vocabulary)} | {n: Input((1, heads, "past", width)) for n in names}
    cache = tuple((n, f"new_{n}") for n in names)
    return OpenNetwork(
        name, make, "dynamo", inputs, {"past": Bounds(1, 255)}, ("logits", *(new for _, new in cache)), cache
    )


_ALL = (
    _bert("bert, dynamo", "dynamo"),
    _bert("bert, script", "script"),
    _pictures("resnet18", "resnet18"),
    _pictures("mobilenet_v2", "mobilenet_v2"),
    _pictures("squeezenet1_1", "squeezenet1_1", "script"),
    _sized("u-net", "unet", "dynamo"),
    _sized("yolo head", "yolo", "script"),
    OpenNetwork("lstm tagger", "tagger", "script", {"ids": Input((1, "length"), "ids", 8192)}, {"length": Bounds(1, 512)}),
    OpenNetwork("whisper encoder", "whisper", "dynamo", {"mel": Input((1, 80, "frames"))}, {"frames": Bounds(2, 3000, 2)}),
    _decoder("gpt2, decode", "gpt2", 4, 4, 64, 8192),
    _decoder("llama, decode", "llama", 4, 2, 64, 8192),
)  # fmt: skip
#: The networks of the tables, by name.
NETWORKS = {n.name: n for n in _ALL}


def exported(network: OpenNetwork, python: str | None) -> Path:
    """The ONNX file of a network, which the interpreter `python` (one with PyTorch) writes where it is not there yet. Raises
    `RuntimeError`, with a line to show, where it cannot be had."""
    folder = FOLDER / network.name.replace(", ", "-").replace(" ", "-")
    path = folder / "model.onnx"
    if path.exists():
        return path
    if python is None:
        raise RuntimeError(f"{network.name}: not exported yet (--torch PYTHON, an interpreter with torch, makes it)")
    command: list[Any] = [python, Path(__file__).with_name("export.py"), network.name, folder]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise RuntimeError(f"{network.name}: not exported: {last[:300]}")
    return path
