"""Control flow and sequences of ONNX: results against ONNX Runtime (of SequenceMap, its reference evaluator), for sizes of one and of several; what is refused, check by check."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from test_counted import session  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.onnx import importer  # noqa: E402

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7


def values(names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_empty_tensor_value_info(name) for name in names.split()]


def graph(nodes: list, takes: str, gives: str, constants: dict[str, Any] | None = None) -> onnx.GraphProto:
    """Nodes (op, inputs, outputs, attributes); those of `takes` are of any type."""
    made = [helper.make_node(op, ins.split(), outs.split(), outs.split()[0], **more) for op, ins, outs, more in nodes]
    return helper.make_graph(
        made,
        "g",
        values(takes),
        values(gives),
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )


def model(nodes: list, gives: str, constants: dict[str, Any] | None = None, opset: int = 17) -> onnx.ModelProto:
    """A network of x [2, 3, 4]."""
    g = graph(nodes, "", gives, constants)
    g.input.append(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, X.shape))
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


#: The sum of all rows so far, and of each row twice itself.
SUMS = graph([("Add", "s r", "t", {}), ("Add", "r r", "u", {}), ("Identity", "t", "v", {})], "s r", "t u v")
PAIRS = graph([("Add", "s a", "t", {}), ("Sub", "b a", "u", {})], "s a b", "t u")
TWICE = graph([("Add", "r r", "u", {})], "r", "u")
DIFFERENCE = graph([("Sub", "a b", "u", {})], "a b", "u")

RESULTS = [
    *(([("Scan", "s x", "a b c", {"body": SUMS, "num_scan_inputs": 1} | more)], "a b c", {"s": np.zeros(dims, np.float32)})
      for dims, more in (((3, 4), {}), ((2, 4), {"scan_input_axes": [1]}), ((2, 3), {"scan_input_axes": [-1], "scan_input_directions": [1]}),
                         ((3, 4), {"scan_output_directions": [0, 1]}), ((3, 4), {"scan_output_directions": [1, 0], "scan_output_axes": [1, -1]}),
                         ((3, 4), {"scan_input_directions": [1], "scan_output_directions": [1, 1], "scan_output_axes": [2, 0]}))),
    ([("Scan", "s x x", "a b", {"body": PAIRS, "num_scan_inputs": 2, "scan_input_directions": [0, 1]})], "a b", {"s": np.zeros((3, 4), np.float32)}),
    *(([("SplitToSequence", "x n" if n is not None else "x", "q", {"axis": axis} | more), ("SequenceAt", "q k", "y", {}), ("SequenceLength", "q", "z", {})], "y z",
       {"k": np.int64(at)} | ({} if n is None else {"n": np.asarray(n)}))
      for n, axis, at, more in ((None, 1, 2, {}), (None, 2, -1, {"keepdims": 0}), (2, 1, -1, {}), (2, 2, 0, {}), ([1, 2], 1, 1, {}), ([3, 0, 1], 2, 2, {}), (9, 0, 0, {}))),
    *(([("SplitToSequence", "x", "q", {"axis": 1}), ("SequenceInsert", "q x k" if at is not None else "q x", "p", {}), ("SequenceAt", "p j", "y", {})], "y",
       {"j": np.int64(j)} | ({} if at is None else {"k": np.int64(at)})) for at, j in ((None, 3), (0, 0), (-1, 2), (3, -1), (-3, 0))),
    *(([("SplitToSequence", "x", "q", {"axis": 2}), ("SequenceErase", "q k" if at is not None else "q", "p", {}), ("ConcatFromSequence", "p", "y", {"axis": 1})], "y",
       {} if at is None else {"k": np.int64(at)}) for at in (None, 0, 2, -1, -4)),
    *(([("SplitToSequence", "x", "q", {"axis": 0, "keepdims": 0}), ("ConcatFromSequence", "q", "y", {"axis": axis, "new_axis": 1})], "y", {}) for axis in (0, 1, -1)),
    ([("SplitToSequence", "x", "q", {"axis": 1}), ("SequenceMap", "q", "p", {"body": TWICE}), ("ConcatFromSequence", "p", "y", {"axis": 1})], "y", {}),
    ([("SplitToSequence", "x", "q", {"axis": 0}), ("SequenceMap", "q q", "p", {"body": DIFFERENCE}), ("SequenceMap", "q x", "r", {"body": DIFFERENCE}),
      ("ConcatFromSequence", "p", "y", {"axis": 0}), ("ConcatFromSequence", "r", "z", {"axis": 0})], "y z", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    "row", RESULTS, ids=lambda row: f"{row[0][0][0]} {row[0][0][3]} {[n[0] for n in row[0][1:]]}"[:90]
)
def test_results(row) -> None:
    nodes, gives, constants = row
    proto = model(nodes, gives, constants)
    oracle = (
        session(proto.SerializeToString()) if all(n[0] != "SequenceMap" for n in nodes) else ReferenceEvaluator(proto)
    )
    wanted = oracle.run(None, {"x": X})
    found = lightnet.compile(proto.SerializeToString(), target="none")({"x": X})
    for (name, array), want in zip(found.items(), wanted, strict=True):
        np.testing.assert_array_equal(array, want, name)
        assert array.shape == np.shape(want)


def test_scan_of_opset_8() -> None:
    """The entries of a batch, each on its own, with states of their own."""
    body = graph([("Add", "s r", "t", {}), ("Add", "t r", "u", {})], "s r", "t u")
    start = np.arange(8, dtype=np.float32).reshape(2, 4)
    nodes = [("Identity", "x", "i", {})]
    for directions, order in (([0], slice(None)), ([1], slice(None, None, -1))):
        proto = model(nodes, "a b", {"s": start}, opset=8)
        proto.graph.node.append(
            helper.make_node("Scan", ["", "s", "i"], ["a", "b"], body=body, num_scan_inputs=1, directions=directions)
        )
        found = lightnet.compile(proto.SerializeToString(), target="none")({"x": X})
        rows = X[:, order]
        sums = np.cumsum(np.concatenate([start[:, None], rows], 1), 1)
        np.testing.assert_array_equal(found["a"], sums[:, -1])
        np.testing.assert_array_equal(found["b"], sums[:, 1:] + rows)


COUNT = graph([("Identity", "c", "d", {}), ("Add", "s s", "t", {})], "i c s", "d t")
COLLECTS = graph([("Identity", "c", "d", {}), ("SequenceConstruct", "i", "q", {})], "i c", "d q")
GIVES_SEQUENCE = graph([("SequenceConstruct", "r", "q", {})], "r", "q")
SCAN_SEQUENCE = graph([("SequenceConstruct", "r", "q", {})], "r", "q")
PARTS = ("SplitToSequence", "x", "q", {"axis": 1})
#: Nodes, constants, message, opset.
REFUSED: list[tuple] = [
    ([PARTS, ("SequenceInsert", "q q", "p", {})], {}, "a sequence of sequences"),
    ([PARTS, ("SequenceMap", "q", "p", {"body": GIVES_SEQUENCE})], {}, "a sequence of sequences"),
    ([PARTS, ("SequenceConstruct", "x", "r", {}), ("SequenceMap", "q r", "p", {"body": DIFFERENCE})], {}, "its sequences should have one length"),
    ([("SequenceEmpty", "", "q", {}), ("SequenceErase", "q", "p", {})], {}, "its sequence is empty"),
    ([("SequenceEmpty", "", "q", {}), ("ConcatFromSequence", "q", "y", {"axis": 0})], {}, "an empty sequence, whose tensors have no shape"),
    ([("SequenceConstruct", "x k", "q", {}), ("ConcatFromSequence", "q", "y", {"axis": 0})], {"k": np.float32([1])},
     "tensors of one rank, not 0, can be joined: tensor<2x3x4xf32>, tensor<1xf32>"),
    ([("SequenceConstruct", "k k", "q", {}), ("ConcatFromSequence", "q", "y", {"axis": 0})], {"k": np.float32(1)}, ""),
    ([PARTS, ("SequenceAt", "q k", "y", {})], {"k": np.int64([0, 1])}, "its position should be one integer"),
    ([PARTS, ("SequenceAt", "q q", "y", {})], {}, "its position should be one integer"),
    *(([PARTS, ("SequenceAt", "q k", "y", {})], {"k": np.int64(at)}, f"position {at} is out of range for a sequence of 3 tensors") for at in (3, -4)),
    *(([PARTS, ("SequenceErase", "q k", "y", {})], {"k": np.int64(at)}, f"position {at} is out of range for a sequence of 3 tensors") for at in (3, -4)),
    *(([PARTS, ("SequenceInsert", "q x k", "y", {})], {"k": np.int64(at)}, f"position {at} is out of range for a sequence of 3 tensors") for at in (4, -4)),
    ([("SequenceLength", "x", "y", {})], {}, "its input should be a sequence, but is tensor<2x3x4xf32>"),
    ([("Optional", "", "y", {})], {}, "an optional without an element"),
    ([("SplitToSequence", "k", "q", {})], {"k": np.zeros(4097, np.float32)}, "a sequence of more than 4096 tensors"),
    ([("SplitToSequence", "k n", "q", {})], {"k": np.zeros(4097, np.float32), "n": np.int64(1)}, "a sequence of more than 4096 tensors"),
    ([("SplitToSequence", "k n", "q", {})], {"k": np.zeros(4097, np.float32), "n": np.ones(4097, np.int64)}, "a sequence of more than 4096 tensors"),
    # loops and scans
    ([PARTS, ("Loop", "q", "y", {"body": COUNT})], {}, "its number of trips is a sequence"),
    ([PARTS, ("Loop", "n q x", "y", {"body": COUNT})], {"n": np.int64(1)}, "the condition of Loop should be one bool, and is a sequence"),
    ([("Loop", "n k", "y", {"body": COLLECTS})], {"n": np.int64(1), "k": np.bool_(True)}, "a Loop that collects sequences"),
    ([("Scan", "x", "y", {"body": SCAN_SEQUENCE, "num_scan_inputs": 1})], {}, "a Scan of sequences"),
    ([("Scan", "k", "y", {"body": TWICE, "num_scan_inputs": 1})], {"k": np.zeros((0, 2), np.float32)}, r"should have one length, and have \[0\]"),
]  # fmt: skip


def refused(proto: onnx.ModelProto, message: str) -> None:
    with pytest.raises(LightNetError) as caught:
        lightnet.loads(proto.SerializeToString(), ".onnx")
    words = [caught.value.message, *(note for _, note in caught.value.notes)]
    assert any(re.search(message, text) for text in words), words
    assert caught.value.label


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[0][-1][0]} {row[2]}"[:80])
def test_refusals(row) -> None:
    nodes, constants, message = row
    refused(model(nodes, nodes[-1][2].split()[-1], constants), message)


@pytest.mark.parametrize(("inputs", "message"), [
    (["", "x", "k"], "its inputs should have one batch size"), (["", "e"], "its inputs should have one batch size"), (["n", "x"], "lengths of sequences in a Scan of opset 8"),
    (["", "many"], "a Scan of more than .* batch entries"), (["", "scalar"], "its inputs should have one batch size"),
])  # fmt: skip
def test_refusals_of_opset_8(inputs: list[str], message: str) -> None:
    constants = {"k": np.zeros((3, 2), np.float32), "e": np.zeros((0, 2), np.float32), "n": np.int64([3, 3]), "many": np.zeros((1 << 14, 2), np.float32),
                 "scalar": np.float32(1)}  # fmt: skip
    proto = model([("Identity", "x", "i", {})], "y", constants, opset=8)
    proto.graph.node.append(helper.make_node("Scan", inputs, ["y"], body=TWICE, num_scan_inputs=len(inputs) - 1))
    refused(proto, message)


#: Subgraphs that add 1 to `v` around them, and to their argument.
PLUS = graph([("Add", "v one", "w", {})], "", "w")
TRIP = graph([("Identity", "c", "d", {}), ("Add", "s one", "t", {})], "i c s", "d t")
ROW = graph([("Add", "r one", "u", {})], "r", "u")


def plus_one(at: int, kind: str) -> list[tuple]:
    """Nodes that make v<at + 1> of v<at> by a subgraph of a kind."""
    before, after = f"v{at}", f"v{at + 1}"
    renamed = onnx.GraphProto.FromString(PLUS.SerializeToString())
    renamed.node[0].input[0] = before
    return {
        "If": [("If", "yes", after, {"then_branch": renamed, "else_branch": renamed})],
        "Loop": [("Loop", f"trips yes {before}", after, {"body": TRIP})],
        "Scan": [("Scan", before, after, {"body": ROW, "num_scan_inputs": 1})],
        "SequenceMap": [
            ("SequenceConstruct", before, f"p{at}", {}),
            ("SequenceMap", f"p{at}", f"q{at}", {"body": ROW}),
            ("SequenceAt", f"q{at} zero", after, {}),
        ],
        "a function": [("PlusOne", before, after, {"domain": "local"})],
    }[kind]


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan", "SequenceMap", "a function"])
def test_a_scope_ends_with_its_subgraph(kind: str) -> None:
    """Of many behind each other none is deeper than the first; and what one names, the next does not see."""
    count = importer.MAX_DEPTH + 2
    constants = {"one": np.float32(1), "yes": np.bool_(True), "trips": np.int64(1), "zero": np.int64(0)}
    nodes = [("Identity", "x", "v0", {}), *(node for at in range(count) for node in plus_one(at, kind))]
    function = helper.make_function(
        "local", "PlusOne", ["s"], ["t"],
        [helper.make_node("Constant", [], ["k"], value_float=1.0), helper.make_node("Add", ["s", "k"], ["t"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip

    def proto(nodes: list) -> bytes:
        made = model(nodes, nodes[-1][2], constants)
        made.opset_import.append(helper.make_opsetid("local", 1))
        made.functions.append(function)
        return made.SerializeToString()

    found = lightnet.compile(proto(nodes), target="none")({"x": X})
    np.testing.assert_array_equal(found[f"v{count}"], X + count)
    inner = {"If": "w", "Loop": "t", "a function": "k"}.get(kind, "u")
    sees = graph([("Neg", inner, "n", {})], "", "n")
    with pytest.raises(LightNetError, match=f"'{inner}' is not defined"):
        lightnet.loads(proto([*nodes, ("If", "yes", "y", {"then_branch": sees, "else_branch": sees})]), ".onnx")


@pytest.mark.slow
def test_the_most_elements_of_a_sequence() -> None:
    """A sequence may have 4096 tensors; one more is refused where it is inserted."""
    whole = model(
        [("SplitToSequence", "k", "q", {}), ("SequenceLength", "q", "y", {})], "y", {"k": np.zeros(4096, np.float32)}
    )
    assert lightnet.compile(whole.SerializeToString(), target="none")({"x": X})["y"] == 4096
    refused(model([("SplitToSequence", "k", "q", {}), ("SequenceInsert", "q x", "p", {})], "p", {"k": np.zeros(4096, np.float32)}),
            "a sequence of more than 4096 tensors")  # fmt: skip
