"""Maps at the ends of networks: ZipMap, DictVectorizer, CastMap. Oracle: ONNX Runtime, and ONNX's reference evaluator for what its Python cannot feed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from text_models import ML, by_reference, by_runtime, node, text  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.runtime.host import maps  # noqa: E402
from lightnet.runtime.hosted import of_tensors  # noqa: E402

TYPES = {"text": TensorProto.STRING, "i64": TensorProto.INT64, "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE}
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def map_info(name: str, keys: str, values: str, many: bool = False) -> Any:
    """An input or output that is a map, or a sequence of them."""
    found = helper.make_map_type_proto(TYPES[keys], helper.make_tensor_type_proto(TYPES[values], []))
    return helper.make_value_info(name, helper.make_sequence_type_proto(found) if many else found)


def graph(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> onnx.ModelProto:
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, weights),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)], ir_version=8,
    )  # fmt: skip


def zipped(labels: dict[str, Any], rows: Any = ("N", 3)) -> onnx.ModelProto:
    """Scores and their maps."""
    ends = [map_info("maps", "text" if "classlabels_strings" in labels else "i64", "f32", many=True)]
    nodes = [node("Softmax", ["x"], ["p"]), node("ZipMap", ["p"], ["maps"], domain=ML, **labels)]
    return graph(
        nodes,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, rows)],
        [*ends, helper.make_empty_tensor_value_info("p")],
    )


LABELS = [
    {"classlabels_int64s": [3, 1, -2]},
    {"classlabels_strings": ["b", "é", "Z"]},
    {"classlabels_strings": ["b", "b", "a"]},
]


def alike(got: Any, want: Any) -> None:
    """Raise AssertionError where lists of maps differ in keys, order or types, or in values beyond rounding."""
    assert type(got) is list and len(got) == len(want)
    for mine, theirs in zip(got, want):
        assert list(mine) == list(theirs)
        assert [*map(type, mine), *map(type, mine.values())] == [*map(type, theirs), *map(type, theirs.values())]
        np.testing.assert_allclose(list(mine.values()), list(theirs.values()), rtol=1e-5)


@pytest.mark.parametrize("labels", LABELS, ids=["numbers", "texts", "one label twice"])
def test_scores_by_label(labels: dict[str, Any]) -> None:
    source, run = zipped(labels), lightnet.compile(zipped(labels, (4, 3)))
    alike(run(X)["maps"], by_runtime(source, {"x": X})["maps"])
    for x in (X[:1], X[:0]):
        want = by_runtime(source, {"x": x})
        alike(run.host.after[0].run([want["p"]])[0].tolist(), want["maps"])
    alike(run.host.after[0].run([X[0]])[0].tolist(), run.host.after[0].run([X[:1]])[0].tolist())  # a vector is one row


def test_every_way_in_and_out(tmp_path: Path) -> None:
    """Saved, as `.mlir`, pickled, interpreted, asked for alone, and as tensors."""
    source = zipped(LABELS[1], (4, 3)).SerializeToString()
    network = lightnet.loads(source, ".onnx")
    run = lightnet.compile(network)
    want = run(X)["maps"]
    run.save(tmp_path / "m.lnx")
    for found in (lightnet.load_executable(tmp_path / "m.lnx"), pickle.loads(pickle.dumps(run)), lightnet.compile(source, "none"),
                  lightnet.compile(lightnet.loads(str(network), ".mlir"))):  # fmt: skip
        alike(found(X, outputs=["maps"])["maps"], want)
        assert found.outputs["maps"] == ((4,), np.dtype(object)) and list(found.outputs) == ["maps", "p"]
    with pytest.raises(LightNetError, match="'maps' is text or maps, which each call makes anew"):
        run(X, out={"maps": np.empty(4, object)})
    out = np.empty((4, 3), np.float32)
    assert run(X, out={"p": out})["p"] is out
    tensors = of_tensors(run)
    np.testing.assert_array_equal(tensors(X)["maps"], tensors(X)["p"])
    assert tensors.outputs["maps"][0] == (4, 3)


def test_files_for_c(tmp_path: Path) -> None:
    """C gets the scores as a tensor where names are all that the host adds; a map that is fed is refused by name."""
    from lightnet import deploy

    deploy.emit(lightnet.compile(zipped(LABELS[0], (4, 3)), threads=1), {"header": tmp_path / "m.h"}, "m")
    assert "maps" in (tmp_path / "m.h").read_text()
    with pytest.raises(LightNetError, match=r"'header'.*DictVectorizer"):
        deploy.emit(lightnet.compile(vectorizer("text", "f32"), threads=1), {"header": tmp_path / "v.h"}, "v")


def vectorizer(keys: str, values: str) -> onnx.ModelProto:
    vocabulary = {"string_vocabulary": ["a", "b", "c"]} if keys == "text" else {"int64_vocabulary": [7, -1, 5]}
    return graph([node("DictVectorizer", ["d"], ["y"], domain=ML, **vocabulary)], [map_info("d", keys, values)],
                 [helper.make_tensor_value_info("y", TYPES[values], None)])  # fmt: skip


FED = [("text", "f32", {"c": 0.1, "other": 2.0, "a": float("inf")}), ("i64", "f32", {7: -1.5, 5: 2}), ("text", "i64", {"b": 1 << 60}),
       ("text", "f64", {"b": 0.1}), ("i64", "f64", {-1: 0.1}), ("i64", "text", {5: "x"})]  # fmt: skip


@pytest.mark.parametrize(("keys", "values", "fed"), FED, ids=str)
def test_vectors_of_maps(keys: str, values: str, fed: dict[Any, Any]) -> None:
    source = vectorizer(keys, values)
    run = lightnet.compile(source)
    got = run({"d": fed})["y"]
    if values == "f32":
        want = by_runtime(source, {"d": {k: float(v) for k, v in fed.items()}})["y"]
    else:  # which ONNX Runtime's Python has no way to feed
        columns = {"text": "abc", "i64": (7, -1, 5)}[keys]
        want = np.array([[fed.get(k, "" if values == "text" else 0) for k in columns]], got.dtype)
        if values != "text":
            np.testing.assert_array_equal(by_reference(source, {"d": fed})["y"].reshape(1, -1)[:, :3], want)
    assert got.dtype == want.dtype and got.tolist() == want.tolist()
    assert (run({"d": {}})["y"] == ("" if values == "text" else 0)).all() and got.shape == run.outputs["y"][0]


@pytest.mark.parametrize("form", [{}, {"map_form": "SPARSE", "max_map": 3}])
@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_INT64", "TO_STRING"])
def test_casts_of_maps(to: str, form: dict[str, Any]) -> None:
    dtype = {"TO_FLOAT": "f32", "TO_INT64": "i64", "TO_STRING": "text"}[to]
    ends = [helper.make_tensor_value_info("y", TYPES[dtype], None)]
    source = graph([node("CastMap", ["d"], ["y"], domain=ML, cast_to=to, **form)], [map_info("d", "i64", "f32")], ends)
    for fed in ({2: 1.75, 0: -2.5}, {5: 1e10, 1: 1 / 3}):
        got, want = lightnet.compile(source)({"d": fed})["y"], by_runtime(source, {"d": fed})["y"]
        assert got.dtype == want.dtype and got.tolist() == want.tolist()
    words = graph([node("CastMap", ["d"], ["y"], domain=ML, cast_to=to, **form)], [map_info("d", "i64", "text")], ends)
    got = lightnet.compile(words)({"d": {1: "12", 0: "-3"}})["y"]
    assert got.reshape(-1)[:2].tolist() == {"f32": [-3.0, 12.0], "i64": [-3, 12], "text": ["-3", "12"]}[dtype]


@pytest.mark.parametrize(("keys", "values", "fed", "message"), [
    ("text", "f32", 3, "takes a dict, map(text,f32), but gets a int"), ("text", "f32", {1: 1.0}, "takes keys of text, but gets 1"),
    ("i64", "f32", {"a": 1.0}, "takes keys of i64, but gets 'a'"), ("i64", "f32", {1 << 63: 1.0}, "takes keys of i64"),
    ("i64", "f32", {True: 1.0}, "but gets True"), ("text", "f32", {"a": "1"}, "takes values of f32, but gets '1'"),
    ("text", "f32", {"a": 1e300}, "takes values of f32, but gets 1e+300"), ("text", "i64", {"a": 1.5}, "takes values of i64, but gets 1.5"),
    ("text", "f32", {"\ud800": 1.0}, "takes keys of text"), ("i64", "text", {1: b"x"}, "takes values of text, but gets b'x'"),
])  # fmt: skip
def test_what_is_no_such_map(keys: str, values: str, fed: Any, message: str) -> None:
    with pytest.raises(LightNetError) as error:
        maps.map_array("d", maps.map_kind(keys, values), fed)
    assert message in str(error.value) and "'d'" in str(error.value)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    run, takes = lightnet.compile(zipped(LABELS[0], (4, 3))), lightnet.compile(vectorizer("text", "f32"))
    monkeypatch.setattr(maps, "MAX_PAIRS", 11)
    with pytest.raises(LightNetError, match=r"ZipMap.*12 pairs; at most 11"):
        run(X)
    with pytest.raises(LightNetError, match="'d' gets more than 11 pairs"):
        takes({"d": dict.fromkeys(map(str, range(12)), 0.0)})


def test_what_is_refused() -> None:
    """Labels that do not fit, ops that take no maps, maps of other types, a shape or a value for a map."""
    scores = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])
    listed = map_info("maps", "i64", "f32", many=True)
    zip_map = node("ZipMap", ["x"], ["maps"], domain=ML, classlabels_int64s=[1, 2, 3], name="zip")
    other = map_info("d", "i64", "f32")
    other.type.map_type.key_type = TensorProto.INT32
    vectors = node("DictVectorizer", ["d"], ["y"], domain=ML, int64_vocabulary=[1], name="vec")
    free = helper.make_empty_tensor_value_info("y")
    for nodes, inputs, outputs, message in (
        ([node("ZipMap", ["x"], ["maps"], domain=ML, classlabels_int64s=[1])], [scores], [listed], "it has 1 labels for"),
        ([node("ZipMap", ["x"], ["maps"], domain=ML)], [scores], [listed], "either classlabels_strings or"),
        ([zip_map, node("Identity", ["maps"], ["y"])], [scores], [free], "it takes no map, and its input is one (map(i64,f32))"),
        ([zip_map, node("Relu", ["maps"], ["y"])], [scores], [free], "it has text or maps, and there is no step"),
        ([vectors], [other], [free], "map("),
        ([node("DictVectorizer", ["x"], ["y"], domain=ML, int64_vocabulary=[1])], [scores], [free], "maps within a network"),
        ([node("CastMap", ["d"], ["y"], domain=ML)], [map_info("d", "text", "f32")], [free], "of map(text,f32)"),
    ):  # fmt: skip
        with pytest.raises(LightNetError) as error:
            lightnet.compile(graph(nodes, inputs, outputs))
        assert message in str(error.value) + str(error.value.notes)
    for given in ({"shapes": {"d": (1,)}}, {"values": {"d": {}}}):
        with pytest.raises(LightNetError, match="'d' is a map"):
            lightnet.loads(vectorizer("text", "f32").SerializeToString(), ".onnx", **given)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lightnet.cli.lightnet import main

    onnx.save(zipped(LABELS[0], (4, 3)), tmp_path / "m.onnx")
    onnx.save(vectorizer("i64", "f32"), tmp_path / "v.onnx")
    np.save(tmp_path / "x.npy", X)

    def said(*words: Any, status: int = 0) -> str:
        assert main([str(word) for word in words]) == status
        out = capsys.readouterr()
        return out.out + out.err

    lnx, out = tmp_path / "m.lnx", tmp_path / "out.json"
    said("compile", tmp_path / "m.onnx", "-o", lnx)
    for path in (tmp_path / "m.onnx", lnx):
        assert "map(i64,f32)" in (about := said("inspect", path)) and "ZipMap" in about
    table = said("run", lnx, "-i", f"x=@{tmp_path}/x.npy", "-o", out)
    assert [line.split()[:3] for line in table.splitlines() if line.startswith("maps")] == [["maps", "maps", "4"]]
    found = json.loads(out.read_text())
    assert list(found["maps"][0]) == ["-2", "1", "3"] and found["maps"][0]["3"] == found["p"][0][0]
    assert said("run", tmp_path / "m.onnx", "-i", "random", "--compare", "onnxruntime").count("agrees") == 2
    assert "output 'maps' is a list of maps: write .json" in said(
        "run", lnx, "-i", "random", "-o", tmp_path / "o.npz", status=1
    )
    (tmp_path / "d.json").write_text('{"7": 1.5}')
    (tmp_path / "l.json").write_text("[1]")
    for given in ('{"7": 1.5}', f"@{tmp_path}/d.json"):
        said("run", tmp_path / "v.onnx", "-i", f"d={given}", "-o", out)
        assert json.loads(out.read_text()) == {"y": [[1.5, 0.0, 0.0]]}
    for given, message in (("random", "feed it a JSON object"), ("{", "malformed"), ('{"a": 1}', "gets 'a'"), ("3", "feed it a JSON object"),
                           (f"@{tmp_path}/l.json", "takes a JSON object")):  # fmt: skip
        assert message in said("run", tmp_path / "v.onnx", "-i", f"d={given}", status=1)


def test_served_as_tensors() -> None:
    """Scores are served as a tensor, beside text that is fed; a map that is fed is refused with what to do."""
    from lightnet_serving.signature import Signature

    nodes = [node("OneHotEncoder", ["c"], ["hot"], domain=ML, cats_strings=["a", "b"]), node("Softmax", ["hot"], ["p"]),
             node("ZipMap", ["p"], ["maps"], domain=ML, classlabels_strings=["u", "v"])]  # fmt: skip
    source = graph(
        nodes,
        [helper.make_tensor_value_info("c", TensorProto.STRING, [2])],
        [map_info("maps", "text", "f32", many=True)],
    )
    run = lightnet.compile(source)
    words = text("b", "z")
    alike(run({"c": words})["maps"], by_runtime(source, {"c": words})["maps"])
    with pytest.raises(LightNetError, match="'maps' is a map"):
        Signature.of(run)
    tensors = of_tensors(run)
    (about,) = Signature.of(tensors).described()["outputs"]
    assert about == {"name": "maps", "datatype": "FP32", "shape": [2, 2]}
    assert tensors({"c": words})["maps"].tolist() == [list(row.values()) for row in run({"c": words})["maps"]]
    with pytest.raises(LightNetError, match=r"input 'd' is a map.*without its DictVectorizer"):
        of_tensors(lightnet.compile(vectorizer("text", "f32")))
