"""What the readers of graphs refuse: JSON IR whose ops do not go together, NNVM at the limits of its numbers."""

from __future__ import annotations

import json

import pytest
from nnvm_graphs import Graph as NnvmGraph

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends import json_ir
from lightnet.frontends.graph import Graph
from lightnet.frontends.handlers import MAX_LISTED, MAX_NAMED, list_refused
from lightnet.frontends.importer import WORKSPACE, to_module
from lightnet_nnvm import reader


def op(name: str, optype: str, ins: dict, outs: dict, body: list | None = None, **params: object) -> dict:
    tensors = [
        [{"arg_name": a, **(t if isinstance(t, dict) else {"name": t})} for a, t in side.items()]
        for side in (ins, outs)
    ]
    entry = {
        "name": name,
        "optype": optype,
        "tensors_in": tensors[0],
        "tensors_out": tensors[1],
        "params": [{"arg_name": k, "value": v} for k, v in params.items()],
    }
    return entry if body is None else entry | {"body": body}


X = op("c", "create", {}, {"dst": "x"}, dtype="TL_FLOAT", dims=[2, 3], data=[0], ran=[0, 0], from_file=False)
INNER = [op("i", "relu", {"src": "a"}, {"dst": "b"})]
PLAN = {"mem_sizes_h": [0, 0, 0], "mem_sizes_l": [0, 100, 0]}


def refusal(*ops: dict, **top: object) -> str:
    with pytest.raises(LightNetError) as caught:
        to_module(json_ir.read(json.dumps({"ops": [X, *ops], **top}), "n.json"))
    return caught.value.message


def test_ops_that_do_not_go_together() -> None:
    offsets = "op k: 'workspace' should be an array of offsets".replace("workspace", WORKSPACE)
    relu = op("r", "relu", {"src": "x"}, {"dst": "y"})
    assert refusal(op("o", "once", {"a": "x"}, {}, [])) == "op o: an op 'once' has no input tensors"
    for value in (3, ["a"], "a", [0.5]):
        assert refusal(op("k", "cpu.kernel", {"a": "x"}, {"b": "y"}, INNER, **{WORKSPACE: value})) == offsets
    for counts in ([["y", 0]], [["y", "0", "y"]], ["y"], [["x", 0, "y"]], [["y", 0, "x"]], [["y", 0, "nobody"]]):
        assert (
            refusal(relu, lightnet={"counts": counts})
            == "'counts' should be a list of [output, axis, output that counts it]"
        )
    assert refusal(op("k", "nowhere.kernel", {"a": "x"}, {"b": "y"}, INNER).copy()).startswith(
        "op k: 'nowhere.kernel' is no kernel of a target ("
    )
    assert (
        refusal(op("r", "relu", {"src": "nobody"}, {"dst": "y"}))
        == "relu: `r`'s tensor `nobody` should have been defined before"
    )
    assert refusal(op("r", "relu", {"src": "x"}, {"dst": "x"})) == "tensor `x` shouldn't have been defined before"
    assert refusal(op("r", "relu", {"from": "x"}, {"dst": "y"})).startswith("relu: `r` needs a `src` ")


def test_plans_that_are_none() -> None:
    first, second = (r.name for r in Graph("n").classes["topk"].schema.results)
    top = op("t", "topk", {"src": "x"}, {first: {"name": "v", "offset_h": 0, "offset_l": 0}, second: "i"}, axis=1, k=2)
    message = refusal(top, **PLAN)
    assert message == "op t: tensor 'i' has no offset", message
    dims = op("r", "relu", {"src": "x"}, {"dst": {"name": "y", "dims": [3, 2], "offset_h": 0, "offset_l": 0}})
    assert refusal(dims, **PLAN).startswith("op r: tensor 'y' has dims [3, 2], but the op makes ")
    beyond = op("r", "relu", {"src": "x"}, {"dst": {"name": "y", "dims": [2, 3], "offset_h": 0, "offset_l": 77}})
    assert refusal(beyond, **PLAN) == "data of tensor 'y' (24 bytes at 77) exceeds the planned memory"
    fits = op("r", "relu", {"src": "x"}, {"dst": {"name": "y", "dims": [2, 3], "offset_h": 0, "offset_l": 76}})
    to_module(json_ir.read(json.dumps({"ops": [X, fits], **PLAN}), "n.json"))
    for spaces, message in (([], "'spaces' should map a memory space to [base, size]"), ({"a": 3}, "'spaces' should map a memory space to [base, size]"),
                            ({"a": [0]}, "'spaces' should map a memory space to [base, size]"), ({"a b": [0, 1]}, "'spaces' should map identifiers to a first byte and a size of at least 0"),
                            ({"a": [-1, 1]}, "'spaces' should map identifiers to a first byte and a size of at least 0"), ({"a": [0, -1]}, "'spaces' should map identifiers to a first byte and a size of at least 0")):  # fmt: skip
        if spaces != []:
            assert refusal(**PLAN, lightnet={"spaces": spaces}) == message, spaces


def nnvm(**changes: object) -> str:
    g = NnvmGraph()
    data = g.data(g.op("relu", "z", g.op("relu", "y", g.var("x"), long="12345")))
    for path, value in changes.items():
        inner, steps = data, [int(s) if s.isdigit() else s for s in path.split("__")]
        for step in steps[:-1]:
            inner = inner[step]
        inner[steps[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": [[3, 0, 0]]}, "head 0, [3, 0], is no output of the 3 nodes"), ({"heads": [[0, 1, 0]]}, "head 0, [0, 1], is no output of the 3 nodes"),
        ({"arg_nodes": [3]}, "'arg_nodes' has 3, which is no variable of the graph"), ({"nodes__1__inputs": [[3, 0, 0]]}, "input 3 does not exist: there are 3 nodes"),
        ({"nodes__1__control_deps": [3]}, "control dependency 3 does not exist: there are 3 nodes"), ({"nodes__1__op": ""}, "node 1: 'op' is empty"),
        ({"node_row_ptr": [0, 1, 0, 2]}, "'node_row_ptr' has to ascend and to have 4 numbers"), ({"node_row_ptr": [0, 1, 2]}, "'node_row_ptr' has to ascend and to have 4 numbers"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else None,
)  # fmt: skip
def test_numbers_of_nnvm_that_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(LightNetError) as caught:
        reader.read(nnvm(**changes), "-")
    assert message in caught.value.message
    assert caught.value.loc is not None and caught.value.loc.file == "<stdin>"


def test_the_limits_of_nnvm(monkeypatch) -> None:
    for name, most, message in (("MAX_NODES", 3, "the graph has more than 2 nodes"), ("MAX_ATTRIBUTE", 5, "attribute 'long' is longer than 4 characters"),
                                ("MAX_NAME", 4, "'op' is longer than 3 characters or cannot be printed")):  # fmt: skip
        monkeypatch.setattr(reader, name, most)
        found = reader.read(nnvm(node_row_ptr=[0, 1, 1, 2]), "n.json")
        assert [n.op for n in found.nodes] == ["null", "relu", "relu"] and isinstance(found.nodes[0].loc, SourceLoc)
        monkeypatch.setattr(reader, name, most - 1)
        with pytest.raises(LightNetError) as caught:
            reader.read(nnvm(), "n.json")
        assert message in caught.value.message
        monkeypatch.undo()


@pytest.mark.parametrize("kinds", [0, 1, MAX_LISTED - 1, MAX_LISTED, MAX_LISTED + 1, 3 * MAX_LISTED])
@pytest.mark.parametrize("nodes", [1, MAX_NAMED, MAX_NAMED + 1, 3 * MAX_NAMED])
def test_every_refusal_is_named_or_counted(kinds: int, nodes: int) -> None:
    """One note for each op and reason, at the first node; what is too much to be listed is counted, and only that."""
    places = [SourceLoc("n.json", 1 + i) for i in range(kinds * nodes)]
    refused = [(f"op{i % kinds // 2}", f"n{i}", f"why{i % kinds % 2}", place) for i, place in enumerate(places)]
    error = list_refused(LightNetError("no"), refused)
    listed, rest = error.notes[:MAX_LISTED], error.notes[MAX_LISTED:]
    assert len(listed) == min(kinds, MAX_LISTED)
    assert rest == ([(None, f"and {kinds - MAX_LISTED} more kinds")] if kinds > MAX_LISTED else [])
    for k, (loc, text) in enumerate(listed):
        names = [f"n{i}" for i in range(k, kinds * nodes, kinds)]
        more = f" and {nodes - MAX_NAMED} more" if nodes > MAX_NAMED else ""
        assert loc is places[k] and text == f"op{k // 2} ({', '.join(names[:MAX_NAMED])}{more}): why{k % 2}"
