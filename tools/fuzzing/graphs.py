"""The target `graphs`: random ONNX graphs, compiled with options drawn at random, against ONNX Runtime.

Results agree to a part in 2,000 of an output's largest magnitude; where ONNX Runtime disagrees, ONNX's reference evaluator has a word, and
what moves under noise may differ by that (`fuzzing.models.oracle`). A refusal is a fault: these graphs are valid.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from compare_onnxruntime import WIDE_SUMS

from fuzzing import onnx_steps  # noqa: F401  registers its steps
from fuzzing.models import oracle
from fuzzing.onnx_graph import OPSET, STEPS, Graph, Value
from fuzzing.process import Fault
from fuzzing.quirks import by_node
from fuzzing.refusals import DOCUMENTED

#: The part of an output's largest magnitude that its elements may differ by.
ROUNDING = 5e-4
#: What a graph is compiled with, as `lightnet.compile` takes it.
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"exact": True}, {"layout": "plain"}, {"threads": 2}, {"cpu": "x86-64-v3"}, {"cpu": "x86-64"}, {"target": "none"}, {"weight_memory": 0},
    {"target": "cuda", "on_cpu": True},
)  # fmt: skip


def grown(seed: int) -> tuple[Graph, list[Value]]:
    """A graph and its outputs: what nobody reads, and something that is read as well."""
    r = random.Random(f"graphs {seed}")
    g = Graph(r)
    for i in range(r.choice((1, 1, 1, 2, 3))):
        rank = r.choice((1, 2, 3, 4, 4, 4, 4, 4, 5))
        dims = [r.choice((1, 1, 2, 3)), *(r.choice((1, 2, 3, 4, 5, 8, 13, 16, 17)) for _ in range(rank - 1))]
        g.inputs.append(Value(f"x{i}", tuple(dims), np.dtype(np.float32), True))
    g.values += g.inputs
    wanted = r.choice((1, 2, 3, 5, 8, 13, 20))
    weights, ways = zip(*STEPS)
    for _ in range(8 * wanted):
        if len(g.nodes) >= wanted:
            break
        r.choices(ways, weights)[0](g)
    read = {name for node in g.nodes for name in node.input}
    made = {name for node in g.nodes for name in node.output}
    outputs = [v for v in g.values if v.name in made and (v.name not in read or r.random() < 0.1)]
    return g, outputs


def model_of(seed: int) -> bytes:
    """The model of a number."""
    from onnx import helper

    g, outputs = grown(seed)
    while not outputs:
        seed += 10**12
        g, outputs = grown(seed)

    def info(v: Value) -> Any:
        return helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)

    used = {name for node in g.nodes for name in node.input}
    graph = helper.make_graph(
        g.nodes,
        f"g{seed}",
        [info(v) for v in g.inputs],
        [info(v) for v in outputs],
        [c for c in g.constants if c.name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10).SerializeToString()


class Graphs:
    """Random graphs through the compiler."""

    name, suffix = "graphs", ".onnx"

    def make(self, seed: int) -> bytes:
        return model_of(seed)

    def run(self, data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
        import onnx

        import lightnet
        from lightnet.diagnostics import LightNetError

        model = onnx.load_from_string(data)
        rng = np.random.default_rng(len(data))
        feeds = {
            v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32)
            for v in model.graph.input
        }
        want = _runtime(data, feeds)
        if want is None:
            return "no oracle"
        options = dict(OPTIONS[len(data) % len(OPTIONS)])
        seen["option"] = [str(options)]
        seen["ONNX op"] = sorted({n.op_type for n in model.graph.node})
        watch = _watch()
        try:
            found = lightnet.compile(path, instrumentation=[watch], **options)(feeds)
        except LightNetError as e:
            if e.label in DOCUMENTED:
                return "refused as documented"
            raise Fault(f"refused: {e.message}\nwith {options}") from e
        seen["pattern"] = sorted(watch.seen)
        seen["pair of patterns"] = sorted(f"{a}, {b}" for a in watch.seen for b in watch.seen if a < b)
        wrong = [name for name in want if not _close(found[name], want[name])]
        if wrong and (second := _evaluated(model, feeds)) is not None:
            wrong = [name for name in wrong if not _close(found[name], second[name])]
            seen["ONNX Runtime is wrong"] = [] if wrong else sorted({n.op_type for n in model.graph.node})
        if wrong and (third := by_node(model, feeds)) is not None:
            wrong = [name for name in wrong if not _close(found[name], third[name])]
        if wrong:  # a norm of equal numbers, and what is made of it, is what rounding makes of it
            spread = oracle.spreads(data, feeds, want)
            wrong = [n for n in wrong if oracle.differences({n: found[n]}, {n: want[n]}, ROUNDING, spread)]
        if wrong:
            raise Fault(f"wrong: {[n.op_type for n in model.graph.node]}\n{', '.join(wrong)} with {options}")
        return "right"


def _watch() -> Any:
    from lightnet.ir.passes import Instrumentation

    class Watch(Instrumentation):
        """A watch on the patterns that were applied."""

        wants_rewrites = True
        wants_text = False

        def __init__(self) -> None:
            self.seen: set[str] = set()

        def rewrote(self, rewrite: Any) -> None:
            self.seen.add(rewrite.pattern)

    return Watch()


@cache
def _quiet() -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # what it fuses may be wrong, too
    options.add_session_config_entry(*WIDE_SUMS)
    return options


def _runtime(data: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The results of ONNX Runtime; None where it refuses the graph or it is not finite, which says little."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(data, _quiet(), providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        found = dict(zip(names, session.run(names, feeds)))
    except Exception:
        return None
    return (
        found
        if all(np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e6 for a in found.values() if a.dtype.kind == "f")
        else None
    )


def _evaluated(model: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(model)
        return dict(zip(evaluator.output_names, evaluator.run(None, feeds)))
    except Exception:
        return None


def _close(found: np.ndarray, want: np.ndarray) -> bool:
    if found.shape != want.shape or found.dtype != want.dtype:
        return False
    if want.dtype.kind != "f":
        return bool(np.array_equal(found, want))
    largest = max(float(np.abs(want).max(initial=0)), 1e-3)
    return bool(
        np.isfinite(found).all() and np.abs(found.astype(np.float64) - want).max(initial=0) <= ROUNDING * largest
    )
