"""`tools/fuzz.py`: cases follow from their numbers, what a case may not do is seen and told apart, and faults come out smaller."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
from fuzzing import mutate, structured  # noqa: E402
from fuzzing.process import Outcome, outcomes  # noqa: E402
from fuzzing.shrink import smaller  # noqa: E402

MUTATORS = {
    "text": (mutate.of_text, b"conv2d(src=x, weight=w | dst=y | size=[3, 3]);\n"),
    "bytes": (mutate.of_bytes, bytes(range(64))),
    "json": (structured.of_json, json.dumps({"ops": [{"name": "a", "n": 1.5}, {"name": "b", "n": None}]}).encode()),
    "protobuf": (structured.of_protobuf, b"\x08\x07\x12\x03abc\x1a\x04\x08\x01\x10\x02"),
}
#: What the generator of quantised models makes at the least.
QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "Conv", "ConvTranspose", "Gemm",
             "MatMul", "MaxPool", "Concat"}  # fmt: skip
#: A worker whose target does what the first byte of its file says.
WORKER = f"""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(TOOLS)!r})
from fuzzing import process

class Planted:
    name, suffix = "planted", ".txt"
    def make(self, seed):
        return [b"fine", b"crash", b"exit", b"abort", b"hang", b"memory", b"wrong"][seed]
    def run(self, data, path, seen):
        assert path.read_bytes() == data
        seen["kind"] = [data.decode()]
        match data:
            case b"crash":
                {{}}["key"]
            case b"exit":
                sys.exit(0)
            case b"abort":
                os.abort()
            case b"hang":
                while True:
                    pass
            case b"memory":
                bytearray(process.BYTES * 3)
            case b"wrong":
                raise process.Fault("12 is not 'x'")
        return "fine"

process.SECONDS = 0.5
process.worker(lambda name: Planted(), Path(sys.argv[-1]))
"""


def test_what_a_case_may_not_do(tmp_path: Path) -> None:
    """Each fault is seen for what it is, and the cases behind it still run."""
    order = [0, 1, 2, 3, 4, 5, 6, 0]
    script = tmp_path / "planted.py"
    script.write_text(WORKER)
    cases = [("planted", seed) for seed in order]
    found = dict(enumerate(o for _, o in outcomes(cases, [sys.executable, str(script)], tmp_path / "scratch", 1)))
    assert [o.word for o in found.values()] == ["fine", "crash", "crash", "ended", "hang", "memory", "wrong", "fine"]
    assert found[0].covered == {"kind": ["fine"]} and not found[0].fault and not found[7].fault
    assert found[1].signature.startswith("KeyError") and "KeyError" in found[1].fault
    assert found[2].signature.startswith("SystemExit") and found[3].signature == "ended with signal SIGABRT"
    assert found[6].signature == "Fault _ is not _" and "12 is not 'x'" in found[6].fault
    assert len({found[i].key for i in range(1, 7)}) == 6


@pytest.mark.parametrize("kind", MUTATORS)
def test_mutants_follow_from_their_number(kind: str) -> None:
    change, data = MUTATORS[kind]
    made = [[change(data, [data, b"other words"], random.Random(seed)) for seed in range(300)] for _ in range(2)]
    assert made[0] == made[1] and len(set(made[0])) > 100


def test_fields_are_written_as_they_were_read() -> None:
    """A message of every wire type, with one inside."""
    data = (
        MUTATORS["protobuf"][1]
        + b"\x25\1\2\3\4"
        + b"\x29\1\2\3\4\5\6\7\x08"
        + b"\xf8\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    )
    message = structured._message(data)
    assert message is not None and structured._written(message) == data
    assert structured._message(data[:-1]) is None and structured._message(b"\x07") is None


def test_a_fault_is_made_smaller() -> None:
    data = b"".join(b"line %d\n" % i for i in range(50))
    asked = []

    def same(candidate: bytes) -> bool:
        asked.append(candidate)
        return b"e 17" in candidate and b"e 31" in candidate

    assert smaller(data, same) in (b"e 17e 31", b"e 17\ne 31") and len(asked) <= 301
    assert smaller(data, lambda d: False) == data


def test_random_graphs_are_valid() -> None:
    """Same number, same model; the checker of ONNX takes them, with their shapes."""
    onnx = pytest.importorskip("onnx")
    from fuzzing.graphs import model_of

    ops = set()
    for seed in range(25):
        model = onnx.load_from_string(model_of(seed))
        onnx.checker.check_model(model, full_check=True)
        assert model.SerializeToString() == model_of(seed)
        ops |= {n.op_type for n in model.graph.node}
    assert len(ops) > 20


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say what threads do")
@pytest.mark.parametrize(
    "code", ["import time; print(flush=True); time.sleep(99)", "print(flush=True)\nwhile True: pass"]
)
def test_a_process_that_waits_is_told_from_one_that_gets_no_processor(code: str) -> None:
    """What is asleep hangs; what could run does not as long as it has had no time, and does then."""
    from fuzzing.process import SECONDS, Worker, cpu_seconds

    worker = Worker.__new__(Worker)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker.process:
        assert worker.process.stdout is not None and worker.process.stdout.readline()
        worker.used = cpu_seconds(worker.process.pid)
        is_busy = "while" in code
        assert any(worker.is_starved() == is_busy for _ in range(500) if not time.sleep(0.01))
        worker.used -= 2 * SECONDS
        assert not worker.is_starved()
        worker.process.kill()


@pytest.mark.parametrize("name, kinds, of", [("models", 70, set()), ("quantized", 30, QUANTIZED)])
def test_random_models_are_valid(name: str, kinds: int, of: set[str]) -> None:
    """Those of the second generator: same number, same model; of all opsets, with bodies, and nearly all run in ONNX Runtime."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing import models_target
    from fuzzing.models_target import feeds_of, oracle

    made = {"models": models_target.Models, "quantized": models_target.Quantized}[name]().make

    ops, opsets, refused = set(), set(), 0
    for seed in range(40):
        data = made(seed)
        model = onnx.load_from_string(data)
        assert data == made(seed)
        ops |= {n.op_type for n in model.graph.node}
        opsets.add(model.opset_import[0].version)
        try:
            found = oracle.runtime(data, feeds_of(model, random.Random(0)))
        except Exception:
            refused += 1
        else:
            assert list(found) == [o.name for o in model.graph.output]
    assert len(ops) > kinds and ops >= of and len(opsets) > 8 and refused <= 4


def test_noise_tells_a_tie_from_a_fault() -> None:
    """An element that rounding decides may be another one, and one that it does not may not."""
    helper = pytest.importorskip("onnx.helper")
    pytest.importorskip("onnxruntime")
    from fuzzing.models import oracle

    graph = helper.make_graph(
        [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Floor", ["s"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, [3])], [helper.make_tensor_value_info(n, 1, [3]) for n in "sy"],
    )  # fmt: skip
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    feeds = {"x": np.array([np.pi, 1, 2], np.float32)}  # the sine of the first is -8.7e-8
    want = {"s": np.array([0, 0.84147098, 0.90929743], np.float32), "y": np.array([0, 0, 0], np.float32)}
    tie, fault = ({**want, "y": want["y"] - np.eye(3, dtype=np.float32)[i]} for i in (0, 1))
    spread = oracle.spreads(data, {"x": feeds["x"] * np.float32(1)}, want)
    assert not oracle.differences(want, want)
    assert oracle.differences(tie, want) and not oracle.differences(tie, want, spread=spread)
    assert oracle.differences(fault, want, spread=spread)
    assert oracle.differences({"y": want["y"], "s": want["s"]}, want)  # in another order


def spread_of(nodes: list, feeds: dict, opset: int = 17, eps: float = 0.0, **info: Any) -> tuple:
    """What ONNX Runtime makes of nodes that give ``y``, and its spread under noise."""
    from fuzzing.models import oracle
    from onnx import helper, numpy_helper

    inputs = [helper.make_tensor_value_info(k, 1, info.get(k, list(v.shape))) for k, v in feeds.items() if k[0] == "x"]
    given = [numpy_helper.from_array(v, k) for k, v in feeds.items() if k[0] != "x"]
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes], "g", inputs,
        [helper.make_tensor_value_info("y", 1, None)], given,
    )  # fmt: skip
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    feeds = {k: v for k, v in feeds.items() if k[0] == "x"}
    want = oracle.runtime(data, feeds)
    return want["y"], oracle.spreads(data, feeds, want, eps)["y"]


CANCELLING = {
    "product": ([("MatMul", ["x", "w"], ["y"])], {"x": [[100.0, 1]], "w": [[1.0], [-100]]}),
    "gelu": ([("Gelu", ["x"], ["y"])], {"x": [-4.0, -4.5]}),
    "elu": ([("Elu", ["x"], ["y"])], {"x": [-1e-3, -1e-4]}),
    "norm": ([("LayerNormalization", ["x", "w"], ["y"], {"epsilon": 1e-9})], {"x": [[1000.0, 1000.5]], "w": [1.0, 1]}),
}


@pytest.mark.parametrize("case", CANCELLING)
def test_noise_is_on_terms(case: str) -> None:
    """A sum is uncertain by the rounding of its terms, however small it is, and a function by that of its body."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    nodes, feeds = CANCELLING[case]
    y, spread = spread_of(nodes, {k: np.array(v, np.float32) for k, v in feeds.items()}, 20)
    exact = {"product": 0, "gelu": -4 * 3.167e-5, "elu": 0, "norm": -1}[case]
    assert abs(y.ravel()[0] - exact) < 1e-2
    term = {"product": 100, "gelu": 2, "elu": 1, "norm": 1000 / 0.25}[case]
    assert 1e-8 * term < spread.max() < 2e-5 * term


def test_noise_leaves_exponents_and_open_dims() -> None:
    """A square stays one, of negative numbers, too, and dims that a file leaves open get noise as others do; before opset 9 as behind it."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    nodes = [("Mul", ["x", "x"], ["m"]), ("Sub", ["m", "c"], ["s"]), ("Pow", ["s", "two"], ["y"])]
    feeds = {"x": np.array([0.5, -0.25, np.inf], np.float32), "c": np.float32(1), "two": np.float32(2)}
    for opset in (7, 8, 9, 15):
        for eps in (0.0, 2.0**-10):
            y, spread = spread_of(nodes, feeds, opset, eps, x=["n"])
            assert np.allclose(y[:2], [0.5625, 0.87890625]) and 0 < spread[:2].max() < 0.05, (opset, eps)


def test_rounding_makes_integers_of_what_is_near_them() -> None:
    """Under bfloat16, floor(x) < x is false of 1.001, which noise never says: one run rounds. Elements far from integers stay faults."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.models import oracle

    node = onnx.helper.make_node
    graph = onnx.helper.make_graph([node("Floor", ["x"], ["f"]), node("Less", ["f", "x"], ["y"])], "g",
                                   [onnx.helper.make_tensor_value_info("x", 1, [3])], [onnx.helper.make_tensor_value_info("y", 9, [3])])  # fmt: skip
    data = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=4
    ).SerializeToString()
    feeds, eps = {"x": np.array([1.001, 1.5, -0.3], np.float32)}, 2.0**-7
    want = oracle.runtime(data, feeds)
    spread = oracle.spreads(data, feeds, want, eps)
    assert oracle.differences({"y": np.array([False, True, True])}, want, 8 * eps, spread) == {}
    assert oracle.differences({"y": np.array([True, False, True])}, want, 8 * eps, spread)


@pytest.mark.parametrize("mask", [-np.inf, np.inf, np.finfo(np.float32).min, 1e30])
@pytest.mark.parametrize("is_fed", [True, False])
def test_masks_excuse_nothing(mask: float, is_fed: bool) -> None:
    """Under bfloat16, of values that are infinite or too large to be rounded, as masks of attentions have: what is made of them has no endless
    spread, and a wrong value stays a fault."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.models import oracle

    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    masks = np.array([0, mask, 0], np.float32)
    given = [onnx.numpy_helper.from_array(masks, "m")] if not is_fed else []
    graph = onnx.helper.make_graph([node("Add", ["x", "m"], ["a"]), node("Atan", ["a"], ["y"])], "g",
                                   [info("x", 1, [3]), *([info("m", 1, [3])] if is_fed else [])], [info("y", 1, [3])], given)  # fmt: skip
    data = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=7
    ).SerializeToString()
    feeds, eps = {"x": np.array([0.5, 1, 2], np.float32), **({"m": masks} if is_fed else {})}, 2.0**-7
    want = oracle.runtime(data, feeds)
    spread = oracle.spreads(data, feeds, want, eps)
    assert np.isfinite(spread["y"]).all()
    assert oracle.differences(want, want, 8 * eps, spread) == {}
    for i in range(3):
        assert oracle.differences({"y": want["y"] * (1 - 2 * np.eye(3, dtype=np.float32)[i])}, want, 8 * eps, spread)


def test_what_onnx_runtime_is_known_to_do_otherwise() -> None:
    """Resize to 8.5 elements under align_corners: the oracle is ONNX's reference evaluator, of this node alone; a wrong value stays one."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.quirks import by_node
    from onnx.reference import ReferenceEvaluator

    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    for scale, has_quirk in ((0.5, True), (2.0, False)):
        scales = onnx.numpy_helper.from_array(np.array([1, 1, 1, scale], np.float32), "s")
        nodes = [
            node("Resize", ["x", "", "s"], ["r"], mode="linear", coordinate_transformation_mode="align_corners"),
            node("Neg", ["r"], ["y"]),
        ]
        graph = onnx.helper.make_graph(
            nodes, "g", [info("x", 1, [1, 1, 2, 17])], [onnx.helper.make_empty_tensor_value_info("y")], [scales]
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        x = np.random.default_rng(0).normal(size=(1, 1, 2, 17)).astype(np.float32)
        found = by_node(model, {"x": x})
        assert (found is not None) == has_quirk
        if found is not None:
            np.testing.assert_allclose(
                found["y"], ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-5, atol=1e-6
            )
            assert found["y"].shape[-1] == 8


def test_equal_numbers_are_normalized_to_zero() -> None:
    """ONNX Runtime's root of a variance below 0 is no finding of ours; where numbers differ it stays the oracle."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.quirks import by_node

    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [info("x", 1, [1, 2, 2, 2])], [info("y", 1, [1, 2, 2, 2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    x = np.full((1, 2, 2, 2), 0.1, np.float32)
    assert (by_node(model, {"x": x})["y"] == 0).all()
    x[0, 1, 0] = 1  # one channel is still of equal numbers
    assert by_node(model, {"x": x}) is not None
    assert by_node(model, {"x": np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)}) is None


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"])
def test_products_of_bytes_are_summed_exactly(op: str) -> None:
    """Where ONNX Runtime's sums of 16 bits may saturate, the oracle is ONNX's reference evaluator, as exact as NumPy's sums of 64 bits."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.quirks import by_node

    rng, is_conv, scaled = np.random.default_rng(4), "Conv" in op, op.startswith("QLinear")
    for largest in (127, 3):  # the second of sums that nothing saturates
        x, w = rng.integers(200, 255, (3, 5), np.uint8), rng.integers(largest - 1, largest + 1, (5, 2)).astype(np.int8)
        fed = {"x": x.reshape(3, 5, 1, 1) if is_conv else x, "w": w.T.reshape(2, 5, 1, 1) if is_conv else w}
        step, zero = np.array(0.5, np.float32), {"u": np.array(128, np.uint8), "i": np.array(0, np.int8)}
        given = {
            "x": fed["x"],
            "xs": step,
            "xz": zero["u"],
            "w": fed["w"],
            "ws": step,
            "wz": zero["i"],
            "ys": np.array(300, np.float32),
            "yz": zero["u"],
        }
        names = list(given) if scaled else ["x", "w", "xz", "wz"]
        infos = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(given[n].dtype), given[n].shape)
            for n in names
        ]
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(op, names, ["y"])], "g", infos, [onnx.helper.make_empty_tensor_value_info("y")]
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
        found = by_node(model, {n: given[n] for n in names})
        assert (found is not None) == (largest == 127)
        if found is not None:
            want = (x.astype(np.int64) - 128) @ w.astype(np.int64)
            want = np.clip(np.round(want * 0.25 / 300) + 128, 0, 255) if scaled else want
            np.testing.assert_array_equal(found["y"].reshape(want.shape), want)


def test_noise_goes_into_functions_that_round() -> None:
    """Of ONNX's functions, those that make integers of floats they compute have noise inside: noise on their operands alone leaves the largest at 255, which a
    rounded step makes 254. A value that is off by more stays a fault."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.models import noise, oracle

    for schema in onnx.defs.get_all_schemas():
        types = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        reads, makes = (
            [types.get(p.type_str, {p.type_str}) for p in ports] for ports in (schema.inputs, schema.outputs)
        )
        if (
            schema.has_function
            and any("tensor(float)" in t for t in reads)
            and any(t <= {"tensor(uint8)", "tensor(int8)"} for t in makes)
        ):
            assert (schema.domain, schema.name) in noise.OPENED, schema.name
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [3])],
        [onnx.helper.make_tensor_value_info("y", 2, [3])],
    )
    data = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=7
    ).SerializeToString()
    feeds = {"x": np.array([0, 1.99, 0.003], np.float32)}
    want = oracle.runtime(data, feeds)
    spread = oracle.spreads(data, feeds, want, 2.0**-7)
    assert oracle.differences({"y": want["y"] - np.eye(3, dtype=np.uint8)[1]}, want, spread=spread) == {}
    assert oracle.differences({"y": want["y"] + 9 * np.eye(3, dtype=np.uint8)[0]}, want, spread=spread)


def test_more_noise_tells_ties_that_some_runs_leave() -> None:
    """Of two numbers that are equal but for their rounding an argmax may take either one, in each of 20 rows; where none is near the largest, it may not."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.models import oracle

    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node("Sin", ["x"], ["s"]), node("ArgMax", ["s"], ["y"], axis=1)],
        "g",
        [info("x", 1, [21, 3])],
        [info("y", 7, [21, 1])],
    )
    data = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    first = np.append(np.random.default_rng(0).uniform(1.1, 1.4, 20), 0.1)
    feeds = {"x": np.stack([first, np.pi - first, first - 0.1], 1).astype(np.float32)}
    feeds["x"][20, 1] = 1
    want = oracle.runtime(data, feeds)
    spread = oracle.spreads(data, feeds, want, times=oracle.AGAIN)
    other = np.where(np.arange(21)[:, None] < 20, 1 - want["y"], want["y"])
    assert want["y"][20] == 1 and oracle.differences({"y": other}, want, spread=spread) == {}
    other[20] = 2
    assert "1 of 21" in oracle.differences({"y": other}, want, spread=spread)["y"]


def test_documented_refusals_are_labels_that_exist() -> None:
    from fuzzing.refusals import DOCUMENTED

    page = (TOOLS.parent / "docs" / "trust.md").read_text()
    assert all(f"`{label}`" in page for label in DOCUMENTED)


def test_outcomes_say_where() -> None:
    assert Outcome("x", signature="a").key == Outcome("y", signature="a").key != Outcome("x", signature="b").key


def test_noise_reaches_a_quotient_that_is_rounded() -> None:
    """What a call feeds may lie between two steps of a QuantizeLinear: either is right there, and nowhere else."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from fuzzing.models import oracle

    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [3])],
        [onnx.helper.make_tensor_value_info("y", 2, [3])],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in (("s", np.float32(0.1)), ("z", np.uint8(3)))],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    data = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    feeds = {"x": np.asarray([0.25, 4.45, 0.26], np.float32)}
    want = oracle.runtime(data, feeds)
    spread = oracle.spreads(data, feeds, want, times=oracle.AGAIN)
    assert [bool(s) for s in spread["y"] > 0] == [True, True, False]
