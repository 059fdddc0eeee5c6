"""Random ONNX graphs (`onnx_graphs`) through the front end and the compiler, against ONNX Runtime node by node: machine code for all,
and for some of them the references, a pipeline without some of its passes, or the way back through ONNX export.
``LIGHTNET_FUZZ=N`` runs N times as many graphs, from other seeds."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import onnx
from onnx_graphs import Known, RandomGraph, differences, random_graph, run_node, session, shrink
from pass_lists import some_passes

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.loading import OpenError
from lightnet.runtime import instance

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
FIRST, BLOCKS, MOST = (10_000, 15 * FACTOR, 25) if FACTOR else (0, 9, 7)

#: Bytes before and behind every arena that nobody may write.
GUARD = 1 << 15


class Arenas:
    """In place of `runtime.instance.aligned`: memory between guards."""

    def __init__(self) -> None:
        self.made: list[tuple[np.ndarray, slice]] = []

    def __call__(self, nbytes: int, alignment: int = 64) -> np.ndarray:
        whole = np.full(nbytes + 2 * GUARD + alignment, 0xA5, np.uint8)
        start = GUARD + -whole.ctypes.data % alignment
        self.made.append((whole, slice(start, start + nbytes)))
        return whole[start : start + nbytes]

    def written_outside(self) -> bool:
        made, self.made = self.made, []
        return any((w[: at.start] != 0xA5).any() or (w[at.stop :] != 0xA5).any() for w, at in made)


ARENAS = Arenas()


@pytest.fixture(autouse=True)
def _guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "aligned", ARENAS)


def native(graph: RandomGraph) -> dict[str, np.ndarray]:
    return lightnet.compile(graph.model())(graph.feeds())


def by_reference(graph: RandomGraph) -> dict[str, np.ndarray]:
    return lightnet.compile(graph.model(), "none")(graph.feeds())


def fewer_passes(graph: RandomGraph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(len(graph.values))
    kept = [*some_passes(rng, 0.5), "lower-cpu"]
    shapes = {name: a.shape for name, a in graph.feeds().items()}
    spec = ",".join(kept).replace("plan,", "plan{ports=1},")
    return lightnet.compile(lightnet.loads(graph.model(), ".onnx", shapes=shapes), pipeline=spec)(graph.feeds())


def exported(graph: RandomGraph) -> dict[str, np.ndarray]:
    shapes = {name: a.shape for name, a in graph.feeds().items()}
    proto = lightnet.to_onnx(lightnet.loads(graph.model(), ".onnx", shapes=shapes))
    names = {i.name for i in proto.graph.input}
    try:
        run = session(proto)
    except Exception as refusal:
        assert "NOT_IMPLEMENTED" in str(refusal)  # ONNX Runtime has no such kernel
        return {n: graph.values[n].array for n in graph.outputs}
    found = run.run(None, {n: a for n, a in graph.feeds().items() if n in names})
    return dict(zip([o.name for o in proto.graph.output], found))


def failure(graph: RandomGraph, way) -> str | None:
    ARENAS.made.clear()
    try:
        found = differences(graph, way(graph))
    except OpenError as e:
        return None if way is not native else f"refused: {e}"  # an input decides a shape
    except LightNetError as e:
        return f"refused: {e}"
    return "wrote outside of its memory" if ARENAS.written_outside() else found


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_graphs(block: int) -> None:
    """Ten graphs; what fails is shown as a small graph that fails in the same way."""
    for seed in range(FIRST + 10 * block, FIRST + 10 * block + 10):
        graph = random_graph(seed, MOST)
        for way in (native, (by_reference, fewer_passes, exported)[seed % 3]):
            if graph.outputs and (found := failure(graph, way)) is not None:
                small = shrink(graph, lambda g, way=way: failure(g, way) is not None)
                pytest.fail(f"seed {seed}, {way.__name__}: {found}\nin small: {failure(small, way)}\n{small}")


def test_shrinks() -> None:
    """The search for a small graph finds the one node that is to blame."""
    graph = next(g for seed in range(100) if (g := random_graph(seed)) and any(n.op_type == "Softmax" for n in g.nodes)
                 and g.outputs and _has(g, "Softmax"))  # fmt: skip
    small = shrink(graph, lambda g: _has(g, "Softmax"))
    assert [n.op_type for n in small.nodes] == ["Softmax"] and len(small.outputs) == 1
    assert differences(small, native(small)) is None
    wrong = {n: a + 1 for n, a in native(small).items()}
    assert differences(small, wrong) is not None


# -- what they found -------------------------------------------------------------------------------------------------


def one_chain(opset: int, x: np.ndarray, *nodes: tuple[str, dict], outputs: int = 1) -> RandomGraph:
    """A chain of ops of one operand, whose last values are returned."""
    graph = RandomGraph(opset, {"x": Known(x, 0.0, "input", False)})
    name = "x"
    for k, (op, attributes) in enumerate(nodes):
        node = onnx.helper.make_node(op, [name], [f"y{k}"], **attributes)
        (made,) = run_node(node, opset, {name: graph.values[name].array}, set())
        name = f"y{k}"
        graph.nodes.append(node)
        graph.values[name] = Known(made, 1e-6, "node", False)
    graph.outputs = [f"y{k}" for k in range(len(nodes))][-outputs:]
    return graph


def test_local_of_a_fused_kernel_has_workspace() -> None:
    """A shuffle that is dear to recompute is stored between the ops of a kernel, none of which has a local of its own."""
    x = np.random.default_rng(0).standard_normal((1, 4, 48, 41)).astype(np.float32)
    graph = one_chain(15, x, ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}), ("Shrink", {"lambd": 0.5}))
    assert failure(graph, native) is None


def test_export_names_outputs_that_are_params() -> None:
    graph = one_chain(15, np.ones((2, 3), np.float32), ("Relu", {}), ("Shape", {}), outputs=2)
    assert failure(graph, exported) is None


def _has(graph: RandomGraph, op: str) -> bool:
    made = {n for node in graph.nodes if node.op_type == op for n in node.output}
    return bool(made & set(graph.outputs))
