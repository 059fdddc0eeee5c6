"""Reading ONNX models: what protobuf's own classes read, we read; what is malformed is refused, soon and within 500 MB, by name."""

from __future__ import annotations

import contextlib
import gc
import glob
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_mutants as mutants
import pytest
from google.protobuf.descriptor import FieldDescriptor
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from onnx_mutants import base, edited, field, tensor, varint

from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx import wire
from lightnet.frontends.onnx.external import MAX_LOCATION, ExternalFiles
from lightnet.frontends.onnx.model import ELEM_TYPES, ONNX_TYPES, AttributeRef, OnnxGraph, OnnxTensor, type_name
from lightnet.frontends.onnx.reader import NEWEST_IR, NEWEST_OPSET, read_function, read_model
from lightnet.runtime.dtypes import BY_NAME, BY_NP
from lightnet.runtime.stored import FORMATS

RUNNER = Path(__file__).parents[2] / "onnx_mutants_runner.py"
BYTES, LENGTH = 500 << 20, 4000

# -- mutated models


@pytest.fixture(scope="module")
def load() -> Iterator[Callable[[Path], dict[str, Any]]]:
    """Load and compile a model in a process that does so for all of them."""
    process = subprocess.Popen([sys.executable, str(RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    sent, received = process.stdin, process.stdout

    def run(path: Path) -> dict[str, Any]:
        print(path, file=sent, flush=True)
        return json.loads(received.readline())

    yield run
    sent.close()
    process.wait(timeout=30)


def test_the_model_that_is_mutated_is_accepted(load, tmp_path):
    (tmp_path / "model.onnx").write_bytes(base().SerializeToString())
    onnx.checker.check_model(base())
    got = load(tmp_path / "model.onnx")
    assert not got["message"] and not got["crash"], got


def test_there_are_enough_mutants():
    assert sum(len(list(family())) for family in mutants.FAMILIES) >= 400


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("family", mutants.FAMILIES, ids=lambda f: f.__name__)
def test_mutants(load, tmp_path, family):
    """A refusal says what the table expects, in time, and tells nothing of other files."""
    wrong = []
    for i, mutant in enumerate(family()):
        folder = tmp_path / str(i) / "model"
        folder.mkdir(parents=True)
        if callable(mutant.model):
            mutant.model(folder)
        else:
            (folder / "model.onnx").write_bytes(mutant.model)
        before = sorted(os.listdir(folder))
        got = load(folder / "model.onnx")
        message = got["message"]
        if problem := _problem(mutant.refusal, message, got):
            wrong.append(f"{mutant.what}: {problem}: {message[-500:]}{got['crash'][-1500:]}")
        assert sorted(os.listdir(folder)) == before
        (folder / "model.onnx").unlink()
    assert not wrong, "\n".join(wrong)


def _problem(refusal: str | None, message: str, got: dict[str, Any]) -> str:
    if got["crash"] or "crashed" in message or "[onnx.handler]" in message:
        return f"an error of ours in {got['stage']}"
    if got["rss"] > BYTES:
        return f"took {got['rss'] >> 20} MiB"
    if refusal is not None and not message:
        return "was accepted"
    if message and not re.search(r"model\.onnx: error: |/w\.bin|^[^\n]*: error: ", message):
        return "no location"
    if refusal is not None and not re.search(refusal, message):
        return f"should say '{refusal}'"
    return "a long message" if len(message) > LENGTH else ""


# -- agreement with protobuf


def same_tensor(ours: OnnxTensor, theirs: TensorProto) -> None:
    assert (ours.name, ours.dims, ours.dtype) == (theirs.name, tuple(theirs.dims), type_name(theirs.data_type))
    if ours.dtype in BY_NAME:
        want, got = numpy_helper.to_array(theirs), ours.load()
        assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
        assert got.flags.c_contiguous and not got.flags.writeable


def same_attribute(ours: Any, theirs: AttributeProto) -> None:
    if theirs.ref_attr_name:
        assert ours == AttributeRef(theirs.ref_attr_name)
        return
    want = helper.get_attribute_value(theirs)
    if theirs.type == AttributeProto.TENSOR:
        same_tensor(ours, want)
    elif theirs.type == AttributeProto.GRAPH:
        same_graph(ours, want)
    elif theirs.type == AttributeProto.STRING:
        assert (ours if isinstance(ours, bytes) else ours.encode()) == want
    elif theirs.type == AttributeProto.STRINGS:
        assert [s.encode() for s in ours] == list(want)
    elif theirs.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        assert np.array_equal(ours, np.array(want), equal_nan=True)
    elif theirs.type in (AttributeProto.INT, AttributeProto.FLOAT):
        assert type(ours) is type(want) and (ours == want or ours != ours)


def same_nodes(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for got, want in zip(ours, theirs):
        assert (got.name, got.op_type, got.domain) == (
            want.name,
            want.op_type,
            want.domain.replace("ai.onnx", "", want.domain == "ai.onnx"),
        )
        assert (got.inputs, got.outputs) == (tuple(want.input), tuple(want.output))
        assert got.attributes.keys() == {a.name for a in want.attribute}
        for attribute in want.attribute:
            same_attribute(got.attributes[attribute.name], attribute)
        if all(1 <= a.type <= 8 and a.type not in (4, 5) and not a.ref_attr_name for a in want.attribute):
            assert same_fields(got.proto, want)


def same_fields(ours: Any, theirs: Any) -> bool:
    """Whether two NodeProtos agree in what a function body may depend on."""

    def fields(node: Any) -> tuple[Any, ...]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        return node.name, node.op_type, list(node.input), list(node.output), str(attributes)

    return fields(ours) == fields(theirs)


def same_graph(ours: OnnxGraph, theirs: Any) -> None:
    same_nodes(ours.nodes, theirs.node)
    for got, want in zip((*ours.inputs, *ours.outputs), (*theirs.input, *theirs.output), strict=True):
        assert got.name == want.name
        if want.type.HasField("tensor_type"):
            kind = want.type.tensor_type
            assert got.dtype == (type_name(kind.elem_type) or "undefined")
            dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
            assert got.dims == (tuple(dims) if kind.HasField("shape") else None)
    for constant in theirs.initializer:
        same_tensor(ours.initializers[constant.name], constant)


def same_model(data: bytes, name: str) -> None:
    ours, theirs = read_model(data, name), ModelProto.FromString(data)
    assert ours.opsets == {"" if o.domain == "ai.onnx" else o.domain: o.version for o in theirs.opset_import}
    same_graph(ours.graph, theirs.graph)
    for function in theirs.functions:
        same_nodes(
            ours.functions["" if function.domain == "ai.onnx" else function.domain, function.name].nodes, function.node
        )


def test_models_of_the_backend_suite():
    """PyTorch exports, the real networks, sequences, optionals, subgraphs."""
    paths = glob.glob(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/**/*.onnx"), recursive=True)
    assert len(paths) > 100
    for path in paths:
        same_model(Path(path).read_bytes(), path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_node_cases_of_the_backend_suite():
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if case.model.opset_import[0].version >= 6 or case.model.opset_import[0].domain:
            same_model(case.model.SerializeToString(), case.name)


def test_standard_functions():
    count = 0
    for schema in onnx.defs.get_all_schemas_with_history():
        for version in schema.function_opset_versions:
            data = schema.get_function_with_opset_version(version)
            ours, theirs = read_function(data), onnx.FunctionProto.FromString(data)
            same_nodes(ours.nodes, theirs.node)
            assert (ours.inputs, ours.outputs) == (tuple(theirs.input), tuple(theirs.output))
            assert {*ours.attributes, *ours.defaults} == {*theirs.attribute, *(a.name for a in theirs.attribute_proto)}
            count += 1
    assert count > 20


def test_versions_are_those_of_the_package():
    """A newer package means new ops, and maybe new rules: read its release notes, then raise the numbers."""
    assert (NEWEST_OPSET, NEWEST_IR) >= (onnx.defs.onnx_opset_version(), onnx.IR_VERSION)


@pytest.mark.parametrize(
    "code",
    [c for c in TensorProto.DataType.values() if type_name(c) in BY_NAME and type_name(c) not in FORMATS],
    ids=type_name,
)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_contents_of_every_type(code, raw):
    dtype = BY_NAME[type_name(code)].np
    rng = np.random.default_rng(code)
    bits = rng.integers(0, 256, (3, 5, dtype.itemsize), np.uint8)
    array = (bits[..., 0] > 99) if dtype.kind == "b" else bits.view(dtype)[..., 0]
    if raw:
        proto = numpy_helper.from_array(np.ascontiguousarray(array), "scale")
        proto.raw_data = array.tobytes()
    else:
        array = np.ascontiguousarray(array)
        halves = dtype.itemsize == 2 and dtype.kind not in "iu"
        values = array.view(np.uint16 if halves else np.uint8 if dtype.kind == "b" else dtype)
        proto = TensorProto(name="scale", dims=[3, 5], data_type=code)
        getattr(proto, helper.tensor_dtype_to_field(code)).extend(values.ravel().tolist())
    model = base()
    model.graph.initializer.append(proto)
    model.graph.initializer[-1].name = "t"
    got = read_model(model.SerializeToString()).graph.initializers["t"].load()
    assert got.dtype == dtype and got.tobytes() == array.tobytes()
    assert got.dtype in BY_NP


FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


@pytest.mark.parametrize(
    "code",
    [c for c in TensorProto.DataType.values() if type_name(c) in BY_NAME and type_name(c) not in FORMATS],
    ids=type_name,
)
def test_the_field_of_every_type(code):
    """What stands in another typed field is refused, alone and beside the right one, which ONNX's table says."""
    right = helper.tensor_dtype_to_field(code)
    for field_name in FIELDS:
        for fields in {(field_name,), tuple({right, field_name})}:
            proto = TensorProto(name="t", dims=[2], data_type=code)
            for name in fields:
                getattr(proto, name).extend([b"a", b"b"] if name == "string_data" else [1, 1])
            model = base()
            model.graph.initializer.append(proto)
            data = model.SerializeToString()
            if field_name == right:
                assert read_model(data).graph.initializers["t"].load().shape == (2,)
                continue
            with pytest.raises(LightNetError) as error:
                read_model(data)
            words = f"tensor 't' of type {type_name(code)} has data in {field_name}, not in {right}"
            assert words in error.value.message, fields


def test_numbers_that_are_packed_and_numbers_that_are_not():
    """A typed field may come in several pieces, in one each, and with numbers longer than they need to be."""
    pieces = field(7, varint(1) + varint(-2)) + b"\x38" + varint(1 << 62) + field(7, b"\x85\x80\x80\x00")
    proto = b"\x08\x04\x10\x07" + pieces + field(8, b"t")
    model = base()
    graph = model.graph.SerializeToString() + field(5, proto)
    model.ClearField("graph")
    data = model.SerializeToString() + field(7, graph)
    assert read_model(data).graph.initializers["t"].load().tolist() == [1, -2, 1 << 62, 5]
    same_model(data, "")


def test_many_integers_are_decoded_piece_by_piece():
    numbers = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 400_000)
    numbers[::3] %= 100
    model = base()
    model.graph.initializer.append(helper.make_tensor("t", TensorProto.INT64, [len(numbers)], numbers))
    assert np.array_equal(read_model(model.SerializeToString()).graph.initializers["t"].load(), numbers)


def test_any_nonzero_byte_is_a_true_bool():
    model = base()
    model.graph.initializer.append(tensor("t", [4], TensorProto.BOOL, raw_data=b"\x00\x01\x02\xff"))
    got = read_model(model.SerializeToString()).graph.initializers["t"].load()
    assert got.dtype == bool and got.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_any_nonzero_number_is_a_true_bool():
    """One whose low byte is 0, too: other types wrap."""
    numbers = [0, 1, 2, 256, 1 << 30, -1, -(1 << 31)]
    model = base()
    model.graph.initializer.append(tensor("t", [7], TensorProto.BOOL, int32_data=numbers))
    got = read_model(model.SerializeToString()).graph.initializers["t"].load()
    assert got.dtype == bool and got.view(np.uint8).tolist() == [0, *[1] * 6]


@pytest.mark.parametrize("dims, indices", [([1, 5], [1, 3]), ([2, 2], [[0, 1], [1, 1]])], ids=["flat", "coordinates"])
def test_sparse_tensors_become_dense(dims, indices):
    values = tensor("s", [2], float_data=[2.0, 4.0])
    where = numpy_helper.from_array(np.array(indices, np.int64))
    model = base()
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(dims=dims, values=values, indices=where))
    want = np.zeros(dims, np.float32)
    want[tuple(np.transpose(indices)) if np.ndim(indices) == 2 else np.unravel_index(indices, dims)] = [2, 4]
    assert np.array_equal(read_model(model.SerializeToString()).graph.initializers["s"].load(), want)


def test_open_dims():
    def shape(*dims: int | str | None) -> bytes:
        return edited(lambda m: m.graph.input[0].CopyFrom(mutants.value("x", list(dims))))

    assert read_model(shape("n", 4)).graph.inputs[0].dims == ("n", 4)
    assert read_model(shape(None, -1, "?", 0)).graph.inputs[0].dims == (None, None, None, 0)


# -- nodes for the package onnx


def test_a_node_with_bound_attributes_as_a_message():
    model = read_model(base().SerializeToString())
    node = model.graph.nodes[6]
    assert helper.get_attribute_value(node.proto.attribute[0]) == 0.25
    data = edited(
        lambda m: (m.functions[0].attribute.append("alpha"), m.functions[0].node[0].CopyFrom(mutants.reference()))
    )
    node = read_model(data).functions["local", "Twice"].nodes[0]
    assert node.attributes == {"alpha": AttributeRef("alpha")}
    assert not node.proto.attribute
    bound = replace(node, attributes={"alpha": 0.5, "value": model.graph.initializers["scale"]}).proto
    assert [(a.name, a.f, a.ref_attr_name) for a in bound.attribute] == [("alpha", 0.5, ""), ("value", 0.0, "")]
    branch = {a.name: a.g for a in model.graph.nodes[5].proto.attribute}["then_branch"]
    assert [(n.op_type, list(n.input), list(n.output)) for n in branch.node] == [("Neg", ["e"], ["o"])]
    assert numpy_helper.to_array(bound.attribute[1].t).tobytes() == model.graph.initializers["scale"].load().tobytes()


def test_reading_needs_no_package(monkeypatch):
    data = base().SerializeToString()
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = read_model(data)
    with pytest.raises(LightNetError, match=r"pip install 'lightnet-compiler\[onnx\]"):
        _ = model.graph.nodes[0].proto


# -- files


def with_external(path: Path, **entries: object) -> None:
    def edit(model: ModelProto) -> None:
        new = tensor("scale", [1, 4], data_location=TensorProto.EXTERNAL)
        for key, text in {"location": "w.bin", **entries}.items():
            new.external_data.add(key=key, value=str(text))
        model.graph.initializer[0].CopyFrom(new)

    path.write_bytes(edited(edit))


def test_external_data(tmp_path):
    want = np.arange(4, dtype=np.float32).reshape(1, 4)
    (tmp_path / "w.bin").write_bytes(bytes(7) + want.tobytes() + bytes(3))
    with_external(tmp_path / "model.onnx", offset=7, length=16)
    got = read_model(tmp_path / "model.onnx").graph.initializers["scale"].load()
    assert got.tobytes() == want.tobytes()


def test_external_data_is_beside_the_real_model(tmp_path):
    """The folder is that of the file that a link to a model leads to, and of no other."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w.bin").write_bytes(bytes(16))
    with_external(tmp_path / "real" / "model.onnx")
    os.symlink("real/model.onnx", tmp_path / "model.onnx")
    assert read_model(tmp_path / "model.onnx").graph.initializers["scale"].load().shape == (1, 4)
    with_external(tmp_path / "alone.onnx")
    with pytest.raises(LightNetError, match="No such file"):
        read_model(tmp_path / "alone.onnx")


@pytest.mark.parametrize(("location", "refusal"), [
    ("{folder}/w.bin", "it is an absolute path"), ("/w.bin", "it is an absolute path"),
    ("//w.bin", "it is an absolute path"),
    ("../{name}/w.bin", "is not below the model's folder"), ("sub/../w.bin", "is not below the model's folder"),
    ("./.", "is not below the model's folder"), ("sub", "is not a regular file"), ("", "is not a file name"),
    ("w.bin\n", "is not a file name"), ("w.bin/w.bin", "Not a directory"), ("{long}", "is not a file name"),
    ("w.bin", None), (".//w.bin", None), ("sub//./w.bin", None), ("..w.bin", None),
])  # fmt: skip
def test_a_location_is_below_the_model(tmp_path: Path, location: str, refusal: str | None) -> None:
    """What is refused is so though there is a file, beside the model or below it, that the location may mean."""
    (tmp_path / "sub").mkdir()
    for name in ("w.bin", "..w.bin", "sub/w.bin"):
        (tmp_path / name).write_bytes(b"abcd")
    location = location.format(folder=tmp_path, name=tmp_path.name, long="./" * (MAX_LOCATION // 2) + "w.bin")
    files = ExternalFiles(str(tmp_path / "model.onnx"), True)
    if refusal is None:
        assert bytes(files.view(location)) == b"abcd" and files.size(location) == 4
    else:
        with pytest.raises(LightNetError, match=re.escape(refusal)) as caught:
            files.view(location)
        assert caught.value.label == "onnx.external" and caught.value.loc is not None


def test_a_model_in_memory_has_no_external_data(tmp_path, monkeypatch):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with_external(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LightNetError, match="the model itself is no file"):
        read_model((tmp_path / "model.onnx").read_bytes(), "model.onnx")


def opened_below(folder: Path) -> list[str]:
    """What of a folder this process has open: the paths of descriptors, which may be gone by now."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if Path(path).is_relative_to(folder)]


def test_external_data_leaves_nothing_open(tmp_path):
    """Of every location, right and wrong: neither the folders on the way nor the file, once nobody has the contents."""
    taken = 0
    for number, mutant in enumerate(mutants.external()):
        (folder := tmp_path / f"{number}" / "m").mkdir(parents=True)
        assert callable(mutant.model)
        mutant.model(folder)
        try:
            model = read_model(folder / "model.onnx")
            model.graph.initializers["scale"].load()
            taken += 1
            del model
        except LightNetError:
            pass
        gc.collect(0)
        assert opened_below(tmp_path) == [], mutant
    assert number > 30 and 3 <= taken < number


@pytest.mark.parametrize("how", ["shorter", "link"])
def test_external_data_that_changes_after_reading(tmp_path, how):
    """Each load checks again: between reading and loading, somebody may exchange the file."""
    file = tmp_path / "w.bin"
    file.write_bytes(bytes(16))
    with_external(tmp_path / "model.onnx")
    model = read_model(tmp_path / "model.onnx")
    file.unlink()
    if how == "shorter":
        file.write_bytes(bytes(8))
    else:
        (tmp_path / "secret").write_bytes(bytes(16))
        file.symlink_to("secret")
    with pytest.raises(LightNetError, match="shorter" if how == "shorter" else "symbolic link"):
        model.graph.initializers["scale"].load()


@pytest.mark.parametrize("name", ["none.onnx", "folder", "pipe", "a" * 300, "/dev/zero"])
def test_files_that_are_none(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LightNetError, match=r"cannot open|not a regular file"):
        read_model(tmp_path / name)


def test_a_file_beyond_the_limit_of_protobuf(tmp_path):
    with open(tmp_path / "model.onnx", "wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(LightNetError, match="the file is too large"):
        read_model(tmp_path / "model.onnx")


MEMORY = """
import sys
from lightnet.frontends.onnx.reader import read_model

def used():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) << 10

before = used()
model = read_model(sys.argv[1])
total = sum(float(t.load().sum()) for t in model.graph.initializers.values())
print(used() - before, total)
"""


def test_a_large_model_is_held_once(tmp_path):
    """500 MB of weights cost the mapped file and the tensor that is being looked at, no more."""
    path, count, size = tmp_path / "model.onnx", 50, 10_000_000
    model = base()
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    heads = []
    for i in range(count):
        front = b"\x08" + varint(size // 4) + b"\x10\x01" + field(8, f"t{i}".encode())
        front += varint(9 << 3 | 2) + varint(size)
        heads.append(varint(5 << 3 | 2) + varint(len(front) + size) + front)
    length = len(graph) + sum(map(len, heads)) + count * size
    with open(path, "wb") as file:  # zeros are holes in the file
        file.write(model.SerializeToString() + varint(7 << 3 | 2) + varint(length) + graph)
        for head in heads:
            file.write(head)
            file.seek(size, os.SEEK_CUR)
        file.truncate(file.tell())
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
    used, total = done.stdout.split()
    assert int(used) < 40 << 20 and np.isfinite(float(total))


def test_errors_name_the_file_or_say_bytes():
    for words, where in (({}, "<bytes>"), ({"name": "m.onnx"}, "m.onnx")):
        with pytest.raises(LightNetError) as error:
            read_model(b"garbage\xff", **words)
        assert error.value.loc.file == where


def test_errors_say_where_they_are_and_nothing_of_what_was_read_before():
    """Nodes with attributes and graphs inside, functions, inputs and initializers come first in turn."""
    inner = helper.make_graph([helper.make_node("Abs", ["x"], ["b"])], "g", [], [mutants.value("b", [2])])
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=inner, else_branch=inner)
    nothing = onnx.NodeProto(output=["z"])

    def spoilt(change: Callable[[ModelProto], object]) -> str:
        model = base()
        model.graph.node.extend([node, node])
        model.functions.extend(
            helper.make_function("d", name, ["x"], ["y"], [node], model.opset_import) for name in "fg"
        )
        change(model)
        with pytest.raises(LightNetError) as error:
            read_model(model.SerializeToString())
        return error.value.message

    count = len(base().graph.node) + 2
    assert spoilt(lambda m: m.graph.node.append(nothing)) == f"node {count}: it has no op type"
    assert spoilt(lambda m: m.functions[-1].node.append(nothing)) == "function 'g': node 1: it has no op type"
    assert spoilt(lambda m: m.functions[-1].node[0].attribute[1].g.node.append(nothing)) == (
        "function 'g': node 0 'n' (If): attribute 'then_branch': node 1: it has no op type"
    )
    assert spoilt(lambda m: m.functions.append(onnx.FunctionProto(domain="d"))) == "function '': it has no name"
    assert spoilt(lambda m: m.graph.output.append(mutants.value("o", [-5]))) == "output 'o': it has a negative dim: -5"
    first = len(base().graph.initializer)
    assert spoilt(lambda m: m.graph.initializer.append(tensor("", [1], float_data=[1.0]))) == (
        f"initializer {first}: it has no name"
    )


def test_an_initializer_that_stands_twice():
    model = base()
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(LightNetError, match=f"'{model.graph.initializer[0].name}' is defined twice"):
        read_model(model.SerializeToString())


# -- tables


def test_messages_are_those_of_onnx() -> None:
    """Names, numbers, kinds and repetition of the fields that we read are those of ONNX's own descriptors."""
    kinds = {FieldDescriptor.TYPE_FLOAT: "float", FieldDescriptor.TYPE_DOUBLE: "double", FieldDescriptor.TYPE_STRING: "bytes",
             FieldDescriptor.TYPE_BYTES: "bytes", FieldDescriptor.TYPE_MESSAGE: "bytes"}  # fmt: skip
    messages = [m for m in vars(wire).values() if isinstance(m, wire.WireMessage)]
    assert len(messages) == 16
    for message in messages:
        descriptor = onnx
        for name in message.name.split("."):
            descriptor = getattr(descriptor, name)
        fields = descriptor.DESCRIPTOR.fields_by_number
        for number, name in message.numbers.items():
            field = fields[number]
            assert field.name == name, message.name
            kind = wire._WIRE[kinds.get(field.type, "int")]
            assert message.tags[number << 3 | kind] == (name, field.is_repeated), f"{message.name}.{name}"


def test_element_types_are_those_of_onnx() -> None:
    """Every type that this release of ONNX has is called as there; those that we hold have its number, and NumPy's type."""
    assert {code: name for name, code in TensorProto.DataType.items() if code}.items() <= ONNX_TYPES.items()
    for name, code in ELEM_TYPES.items():
        want = helper.tensor_dtype_to_np_dtype(code)
        assert BY_NAME[name].np == want or BY_NAME[name].is_short, name
        assert type_name(code) == name
