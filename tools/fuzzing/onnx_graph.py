"""An ONNX graph that grows node by node; ONNX's own shape inference says what each node gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

#: Elements of a tensor, and of all of a graph: more takes time and shows no more.
LARGEST, ALL = 60_000, 400_000


class Value(NamedTuple):
    """A tensor of the graph. `exact`: no rounding stands behind it; `level`: by how many nodes it is behind the inputs."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    exact: bool


@dataclass
class Graph:
    """A graph that grows."""

    rng: random.Random
    values: list[Value] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    elements: int = 0

    def array(self, array: np.ndarray, hint: str = "c") -> Value:
        """A constant."""
        from onnx import numpy_helper

        name = f"{hint}{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Value(name, array.shape, array.dtype, True)

    def normal(self, *shape: int, scale: float = 1.0) -> Value:
        seed = self.rng.randrange(2**32)
        return self.array((scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32), "w")

    def ints(self, *numbers: int) -> Value:
        return self.array(np.array(numbers, np.int64))

    def put(
        self, op: str, operands: Sequence[Value | None], outputs: int = 1, exact: bool | None = None, **attributes: Any
    ) -> list[Value]:
        """A node; its results, unless there is none that can be used (too large, or of no known shape)."""
        from onnx import helper

        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, [o.name if o is not None else "" for o in operands], names, **attributes)
        made = _inferred(node, [o for o in operands if o is not None], self.constants)
        if (
            made is None
            or any(int(np.prod(s)) > LARGEST for s, _ in made)
            or self.elements + sum(int(np.prod(s)) for s, _ in made) > ALL
        ):
            return []
        if any(0 in s for s, _ in made) and self.rng.random() < 0.95:
            return []  # nothing comes of no elements, and ONNX Runtime refuses some windows that fit nowhere
        self.nodes.append(node)
        known = all(o.exact for o in operands if o is not None) if exact is None else exact
        found = [Value(n, s, t, known) for n, (s, t) in zip(names, made)]
        self.elements += sum(int(np.prod(v.shape)) for v in found)
        self.values += [v for v in found if 0 not in v.shape]
        return found

    def pick(
        self,
        rank: int | Sequence[int] | None = None,
        dtype: type = np.float32,
        exact: bool = False,
        where: Callable[[Value], bool] = lambda v: True,
    ) -> Value | None:
        """A value with these properties, late ones rather than early ones; None where there is none."""
        ranks = range(9) if rank is None else (rank,) if isinstance(rank, int) else rank
        found = [
            v for v in self.values if len(v.shape) in ranks and v.dtype == dtype and (v.exact or not exact) and where(v)
        ]
        return found[-1 - min(len(found) - 1, int(self.rng.expovariate(0.5)))] if found else None


def _inferred(
    node: Any, operands: Sequence[Value], constants: Sequence[Any]
) -> list[tuple[tuple[int, ...], np.dtype]] | None:
    """The shapes and dtypes of a node's results; None where ONNX cannot tell them."""
    from onnx import helper, shape_inference

    infos = [
        helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for v in {v.name: v for v in operands}.values()
    ]
    held = [c for c in constants if c.name in {v.name for v in operands}]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in node.output], held)
    try:
        inferred = shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]), strict_mode=True, data_prop=True
        )
    except Exception:
        return None
    found = []
    for out in inferred.graph.output:
        kind = out.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        if not kind.HasField("shape") or not kind.elem_type or min(dims, default=1) < 0:
            return None
        found.append((tuple(dims), helper.tensor_dtype_to_np_dtype(kind.elem_type)))
    return found


OPSET = 20
STEPS: list[tuple[int, Callable[[Graph], object]]] = []


def step(weight: int = 1) -> Callable[[Callable[[Graph], object]], Callable[[Graph], object]]:
    """Register a way to grow a graph."""

    def register(grow: Callable[[Graph], object]) -> Callable[[Graph], object]:
        STEPS.append((weight, grow))
        return grow

    return register
