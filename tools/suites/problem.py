"""The problem of a case: a model with inputs and expected outputs, made when it is asked for. Imports onnx and
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Feeds = dict[str, Any]


@dataclass
class Problem:
    """The problem that a runner gets. `model` is an ONNX model, or the path of an NNVM graph with its `weights` and
    input `shapes`.

    `sets` are pairs of feeds and expected outputs by name, in the model's order; an absent optional input is not fed.
    An output agrees within atol + rtol * |expected|, or, where `of_largest` is given, within that part of max|expected|.
    """

    model: onnx.ModelProto | Path
    sets: list[tuple[Feeds, dict[str, Any]]]
    rtol: float = 1e-3
    atol: float = 1e-7
    of_largest: float | None = None
    weights: Mapping[str, np.ndarray] | Path | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Brings outputs whose order is free (boxes of equal score) into an order in which they can be compared.
    align: Callable[[dict[str, Any]], dict[str, Any]] = dict


@dataclass(frozen=True)
class Case:
    """One case. `op` and `since` (the op's version) are of node cases; `dtype` is that of its first input; `tags` say what
    it needs beyond dense tensors of usual element types and straight-line code (``sequence``, ``string`` …)."""

    suite: str
    name: str
    load: Callable[[], Problem]
    op: str = ""
    since: int = 0
    dtype: str = ""
    tags: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """Suite and name: unique."""
        return f"{self.suite}/{self.name}"
