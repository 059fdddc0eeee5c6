"""Mutated ONNX models for `test_onnx_reader.py`: each a name, a model (bytes, or a function that writes files into a folder), and
what the refusal must say (None where the model may as well be accepted). Everything is made here, the same each time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, TypeProto, helper

Edit = Callable[[ModelProto], object]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Mutant(NamedTuple):
    what: str
    model: bytes | Callable[[Path], None]
    refusal: str | None


def base() -> ModelProto:
    """A valid model with everything in it that the reader looks at, and nothing that is slow to compile."""
    rng = np.random.default_rng(1)
    scale = rng.standard_normal((1, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Twice", ["a"], ["b"], "twice", domain="local"),
        helper.make_node("Mul", ["b", "scale"], ["c"], "mul"),
        helper.make_node("Add", ["c", "bias"], ["d"], "add"),
        helper.make_node("Reshape", ["d", "shape"], ["e"], "reshape"),
        helper.make_node("If", ["flag"], ["f"], "if", then_branch=branch("Neg", "e"), else_branch=branch("Abs", "e")),
        helper.make_node("LeakyRelu", ["f"], ["y"], "leaky", alpha=0.25),
    ]
    initializers = [
        TensorProto(name="scale", dims=[1, 4], data_type=FLOAT, raw_data=scale.tobytes()),
        helper.make_tensor("bias", FLOAT, [4], [1.0, 2.0, 3.0, 4.0]),
        helper.make_tensor("shape", INT64, [2], [4, -1]),
        helper.make_tensor("flag", TensorProto.BOOL, [], [True]),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [2, 4])], [value("y", [4, 2])], initializers)
    body = [helper.make_node("Add", ["p", "p"], ["q"])]
    twice = helper.make_function("local", "Twice", ["p"], ["q"], body, [helper.make_opsetid("", 17)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=8)


def branch(op_type: str, name: str, output: str = "o") -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op_type, [name], [output])], "branch", [], [value(output, None)])


def value(name: str, dims: list[int | str] | None, code: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, dims)


def writer(edit: Edit) -> Callable[[Path], None]:
    """Writes a model that takes long to make, when it is asked for: who counts mutants does not wait."""

    def write(folder: Path) -> None:
        (folder / "model.onnx").write_bytes(edited(edit))

    return write


def edited(edit: Edit) -> bytes:
    model = base()
    edit(model)
    return model.SerializeToString()


def tensor(name: str, dims: list[int], code: int = FLOAT, **fields: object) -> TensorProto:
    return TensorProto(name=name, dims=dims, data_type=code, **fields)  # type: ignore[arg-type]


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def node(model: ModelProto, index: int) -> onnx.NodeProto:
    return model.graph.node[index]


# -- bytes


def truncated() -> Iterator[Mutant]:
    data = base().SerializeToString()
    for i in range(40):
        end = len(data) * i // 40
        yield Mutant(f"truncated to {end} bytes", data[:end], "")


def flipped() -> Iterator[Mutant]:
    """Flips of one bit, and of a byte into an extreme one, in the part that describes the network."""
    rng = random.Random(5)
    data = base().SerializeToString()
    for _ in range(110):
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        yield Mutant(f"bit {bit} of byte {at} flipped", _with(data, at, data[at] ^ 1 << bit), None)
    for _ in range(30):
        at, byte = rng.randrange(len(data)), rng.choice((0, 0x7F, 0x80, 0xFF))
        yield Mutant(f"byte {at} set to {byte}", _with(data, at, byte), None)


def _with(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]


def wire() -> Iterator[Mutant]:
    data = base().SerializeToString()
    for what, bad, refusal in [
        ("an empty file", b"", "it is empty"),
        ("text", b"ir_version: 8\ngraph {}\n" * 10, "not a valid ONNX model"),
        ("zeros", bytes(1000), "wire type 0"),
        ("ones", b"\xff" * 1000, "longer than 64 bits"),
        ("a zip archive", b"PK\x03\x04" + bytes(100), "not a valid ONNX model"),
        ("a pickle", b"\x80\x04\x95\x1f\x00\x00\x00cos\nsystem\n(S'touch owned'\ntR.", "not a valid ONNX model"),
        ("random bytes", random.Random(1).randbytes(10_000), "not a valid ONNX model"),
        ("a tail of zeros", data + bytes(8), "wire type 0"),
        ("a group", data + b"\x0b\x0c", "wire type 3"),
        ("wire type 7", data + b"\x0f", "wire type 7"),
        ("a second graph", data + field(7, base().graph.SerializeToString()), "graph is given twice"),
        ("two versions", data + b"\x08\x08", "ir_version is given twice"),
        ("a graph that is a number", b"\x08\x08\x38\x01", "field 7 of wire type 0"),
        ("a version that is a string", b"\x0a\x01a", "field 1 of wire type 2"),
        ("a field of 2^63 bytes", b"\x08\x08\x3a" + varint((1 << 63) - 1), "cut off"),
        ("a field of 2^64 - 1 bytes", b"\x08\x08\x3a" + varint(-1) + b"\x08\x08", "cut off"),
        ("a number of 11 bytes", b"\x08" + b"\x80" * 10 + b"\x01", "longer than 64 bits"),
        ("millions of unknown fields", data + b"\xf0\x0f\x01" * 1_100_000, "more than 1048576 fields"),
        ("an unknown field", data + b"\xf0\x0f\x01", None),
        ("a graph in pieces of deep messages", b"\x08\x08" + nested(100_000), "nested deeper than 16"),
        ("types inside of types", edited(lambda m: deep_type(m.graph.input[0].type, 40)), "types are nested deeper"),
        ("lengths that are off by one", data.replace(b"\x12\x01a", b"\x12\x02a"), ""),
    ]:
        yield Mutant(what, bad, refusal)


def nested(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph, and so on: every length is right."""
    kept = 60  # beyond this many, only the lengths matter
    inner = b""
    for _ in range(min(depth, kept)):
        attribute = field(1, b"g") + varint(20 << 3) + b"\x05" + field(6, inner)
        inner = field(1, field(4, b"If") + field(5, attribute))
    return field(7, inner)


def deep_type(proto: TypeProto, depth: int) -> None:
    proto.Clear()
    for _ in range(depth):
        proto = proto.sequence_type.elem_type
    proto.tensor_type.elem_type = FLOAT


# -- names and order


def names() -> Iterator[Mutant]:
    def rename(index: int, **change: object) -> Edit:
        def edit(m: ModelProto) -> None:
            for key, new in change.items():
                what = getattr(node(m, index), key)
                what[0] = new

        return edit

    for what, edit, refusal in [
        ("an undefined input", rename(3, input="nothing"), r"node 3 'add' \(Add\): its input 'nothing' is not defined"),
        ("a node that reads itself", rename(0, input="a"), r"node 0 'relu' \(Relu\): it is on a cycle: 'a' <- 'a'"),
        ("a cycle of three", rename(2, input="d"), r"it is on a cycle: 'd' <- 'c' <- 'd'"),
        ("a long cycle", rename(0, input="y"), r"it is on a cycle: 'y' <- 'f' <- "),
        ("nodes in the wrong order", swap(2, 3), r"'c' is defined later, by node 3 'mul' \(Mul\)"),
        ("nodes in reverse", lambda m: swap_all(m), "is on a cycle|is defined later"),
        ("two nodes with one output", rename(2, output="a"), r"node 2 'mul' \(Mul\): its output 'a' is defined twice"),
        ("an output named as an input", rename(2, output="x"), "'x' is defined twice"),
        ("an output named as an initializer", rename(2, output="bias"), "'bias' is defined twice"),
        ("an initializer given twice", lambda m: m.graph.initializer.append(m.graph.initializer[1]), "'bias' is defined twice"),
        ("an initializer without a name", lambda m: m.graph.initializer[1].ClearField("name"), "initializer 1: it has no name"),
        ("an input declared twice", lambda m: m.graph.input.append(m.graph.input[0]), "input 'x' is declared twice"),
        ("an input without a name", lambda m: m.graph.input[0].ClearField("name"), "input 0: it has no name"),
        ("an input without a type", lambda m: m.graph.input[0].ClearField("type"), "input 'x': its type is not given"),
        ("an output declared twice", lambda m: m.graph.output.append(m.graph.output[0]), "output 'y' is declared twice"),
        ("an undefined output", lambda m: setattr(m.graph.output[0], "name", "z"), "output 'z' of the graph is not defined"),
        ("no outputs", lambda m: m.graph.ClearField("output"), "has no outputs"),
        ("no graph", lambda m: m.ClearField("graph"), "has no graph"),
        ("an empty graph", lambda m: m.graph.Clear(), "has no outputs"),
        ("no nodes", lambda m: m.graph.ClearField("node"), "output 'y' of the graph is not defined"),
        ("no op type", lambda m: node(m, 0).ClearField("op_type"), "node 0: it has no op type"),
        ("an unknown op", lambda m: setattr(node(m, 0), "op_type", "Nonsense"), "Nonsense"),
        ("an unknown domain", lambda m: setattr(node(m, 0), "domain", "other"), "does not import the domain 'other'"),
        ("a subgraph that reads what comes later", subgraph_reads("y"), "'y' is not defined"),
        ("a subgraph that reads nothing", subgraph_reads("nothing"), r"attribute 'else_branch': node 0 \(Neg\): its input 'nothing'"),
        ("a subgraph that reads itself", subgraph_reads("o"), "on a cycle: 'o' <- 'o'"),
        ("a subgraph without its output", lambda m: setattr(node(m, 5).attribute[0].g.output[0], "name", "z"), "output 'z'"),
        ("a name of a million characters", rename(2, output="n" * 1_000_000), "1000000 bytes is longer than the limit"),
        ("a node name of a million characters", lambda m: setattr(node(m, 2), "name", "n" * 1_000_000), "longer than the limit"),
        ("an op type of a million characters", lambda m: setattr(node(m, 2), "op_type", "n" * 1_000_000), "longer than the limit"),
        ("a name with a line break", rename(2, output="a\nb"), "is not printable"),
        ("a name with an escape sequence", rename(2, output="\x1b[2J"), "is not printable"),
        ("a name with NUL", rename(2, output="a\0b"), "is not printable"),
        ("a name that turns the text around", rename(2, output="\u202eabc"), "is not printable"),
        ("a thousand inputs", lambda m: node(m, 0).input.extend(["x"] * 1000), "inputs, but gets|needs"),
        ("no inputs", lambda m: node(m, 0).ClearField("input"), "needs 1"),
        ("a million inputs", lambda m: node(m, 0).input.extend(["x"] * 1_000_000), "needs|inputs|large"),
        ("no outputs of a node", lambda m: node(m, 0).ClearField("output"), "'a' is not defined"),
        ("a thousand outputs", lambda m: node(m, 6).output.extend(map(str, range(1000))), "output"),
    ]:  # fmt: skip
        yield Mutant(what, edited(edit), refusal)
    yield Mutant("a name that is not UTF-8", base().SerializeToString().replace(b"relu", b"re\xffu"), "not valid UTF-8")


def swap(i: int, j: int) -> Edit:
    def edit(m: ModelProto) -> None:
        first, second = onnx.NodeProto(), onnx.NodeProto()
        first.CopyFrom(node(m, i))
        second.CopyFrom(node(m, j))
        node(m, i).CopyFrom(second)
        node(m, j).CopyFrom(first)

    return edit


def swap_all(m: ModelProto) -> None:
    nodes = list(m.graph.node)[::-1]
    del m.graph.node[:]
    m.graph.node.extend(nodes)


def subgraph_reads(name: str) -> Edit:
    return lambda m: node(m, 5).attribute[0].g.CopyFrom(branch("Neg", name))


# -- tensors


def tensors() -> Iterator[Mutant]:
    def replace(new: TensorProto, index: int = 0) -> Edit:
        return lambda m: m.graph.initializer[index].CopyFrom(new)

    big = 1 << 62
    for what, new, refusal in [
        ("a negative dim", tensor("scale", [1, -4], raw_data=bytes(16)), r"tensor 'scale' has a negative dim: \[1, -4\]"),
        ("two negative dims", tensor("scale", [-1, -4], raw_data=bytes(16)), "negative dim"),
        ("a dim of -2^63", tensor("scale", [-(1 << 63)], raw_data=bytes(16)), "negative dim"),
        ("2^62 elements", tensor("scale", [big], raw_data=bytes(16)), "too large"),
        ("2^124 elements", tensor("scale", [big, big], raw_data=bytes(16)), "too large"),
        ("2^64 elements, which wrap to 0", tensor("scale", [1 << 32, 1 << 32]), "too large"),
        ("2^66 bytes, which wrap to 16", tensor("scale", [(1 << 62) + 1, 4], raw_data=bytes(16)), "too large"),
        ("huge dims and a 0", tensor("scale", [big, big, 0]), "too large"),
        ("2^38 elements without data", tensor("scale", [1 << 19, 1 << 19]), "needs 274877906944 values of data, and has 0"),
        ("a tensor of 1,000 dims", tensor("scale", [1] * 1000, raw_data=bytes(4)), "longer than 64"),
        ("a tensor of 20 dims", tensor("scale", [1] * 18 + [1, 4], raw_data=bytes(16)), "rank"),
        ("no data", tensor("scale", [1, 4]), "needs 4 values of data, and has 0"),
        ("too little data", tensor("scale", [1, 4], raw_data=bytes(15)), "needs 16 bytes of data, and has 15"),
        ("too much data", tensor("scale", [1, 4], raw_data=bytes(20)), "needs 16 bytes of data, and has 20"),
        ("too few floats", tensor("scale", [1, 4], float_data=[1.0]), "needs 4 values of data, and has 1"),
        ("too many floats", tensor("scale", [1, 4], float_data=[1.0] * 9), "needs 4 values of data, and has 9"),
        ("data twice", tensor("scale", [1, 4], raw_data=bytes(16), float_data=[0.0] * 4), "twice"),
        ("data in the wrong field", tensor("scale", [1, 4], int32_data=[0] * 4), "data in int32_data, not in float_data"),
        ("data in two fields", tensor("scale", [1, 4], float_data=[0] * 4, int64_data=[0]), "data in int64_data"),
        ("no type", tensor("scale", [1, 4], 0, raw_data=bytes(16)), "unknown element type 0"),
        ("type 99", tensor("scale", [1, 4], 99, raw_data=bytes(16)), "unknown element type 99"),
        ("type -1", tensor("scale", [1, 4], -1, raw_data=bytes(16)), "unknown element type -1"),
        ("another type of the same size", tensor("scale", [1, 4], TensorProto.INT32, raw_data=bytes(16)), "mul|type"),
        ("another type of another size", tensor("scale", [1, 4], TensorProto.DOUBLE, raw_data=bytes(16)), "needs 32 bytes"),
        ("strings", tensor("scale", [1, 4], TensorProto.STRING, string_data=[b"a"] * 4), "it has text"),
        ("float8", tensor("scale", [1, 4], TensorProto.FLOAT8E4M3FN, raw_data=bytes(4)), "stored as f8E4M3FN"),
        ("int4", tensor("scale", [1, 4], TensorProto.INT4, raw_data=bytes(2)), "stored as i4"),
        ("complex numbers", tensor("scale", [1, 4], TensorProto.COMPLEX64, raw_data=bytes(32)), "COMPLEX64"),
        ("a segment", tensor("scale", [1, 4], segment=TensorProto.Segment(begin=0, end=4), raw_data=bytes(16)), "segment"),
        ("an unknown place of data", tensor("scale", [1, 4], data_location=1, raw_data=bytes(16)), "in the model and outside"),
        ("dims that do not fit the op", tensor("scale", [3, 5], raw_data=bytes(60)), "mul"),
        ("an empty tensor that does not fit", tensor("scale", [0, 7]), "mul"),
        ("NaN and infinity", tensor("scale", [1, 4], float_data=[np.nan, np.inf, -np.inf, -0.0]), None),
    ]:  # fmt: skip
        yield Mutant(what, edited(replace(new)), refusal)
    for what, new, refusal in [
        ("a shape of 2^80 elements", tensor("shape", [2], INT64, int64_data=[1 << 40, 1 << 40]), "reshape"),
        ("a negative shape", tensor("shape", [2], INT64, int64_data=[-5, 2]), "reshape"),
        ("two open dims", tensor("shape", [2], INT64, int64_data=[-1, -1]), "reshape"),
        ("a shape of floats", tensor("shape", [2], FLOAT, float_data=[4, -1]), "reshape"),
        ("a shape of extreme numbers", tensor("shape", [2], INT64, int64_data=[-(1 << 63), (1 << 63) - 1]), "reshape"),
        ("a shape of too many numbers", tensor("shape", [2], INT64, int64_data=[1] * 200_000), "and has 200000"),
        ("a shape of a million dims", tensor("shape", [1_000_000], INT64, int64_data=[1] * 1_000_000), "reshape"),
    ]:
        yield Mutant(what, edited(replace(new, 2)), refusal)
    yield from sparse()


def sparse() -> Iterator[Mutant]:
    def replace(dims: list[int], values: TensorProto, indices: TensorProto) -> Edit:
        def edit(m: ModelProto) -> None:
            del m.graph.initializer[0]
            m.graph.sparse_initializer.append(onnx.SparseTensorProto(dims=dims, values=values, indices=indices))

        return edit

    def values(count: int) -> TensorProto:
        return tensor("scale", [count], float_data=[1.0] * count)

    def indices(dims: list[int], numbers: list[int]) -> TensorProto:
        return tensor("", dims, INT64, int64_data=numbers)

    for what, edit, refusal in [
        ("a sparse tensor", replace([1, 4], values(2), indices([2], [1, 3])), None),
        ("a sparse tensor by coordinates", replace([1, 4], values(2), indices([2, 2], [0, 1, 0, 3])), None),
        ("a sparse tensor of 2^40 bytes", replace([1 << 19, 1 << 19], values(1), indices([1], [3])), "dense, it has more"),
        ("a sparse index out of range", replace([1, 4], values(1), indices([1], [4])), "outside of its dims"),
        ("a negative sparse index", replace([1, 4], values(1), indices([1], [-1])), "outside of its dims"),
        ("a sparse coordinate out of range", replace([1, 4], values(1), indices([1, 2], [1, 0])), "outside of its dims"),
        ("a sparse index twice", replace([1, 4], values(2), indices([2], [1, 1])), "do not rise"),
        ("sparse indices of another count", replace([1, 4], values(2), indices([3], [0, 1, 2])), "and indices of dims"),
        ("sparse indices of floats", replace([1, 4], values(1), values(1)), "type f32"),
        ("sparse values of rank 2", replace([1, 4], tensor("scale", [1, 1], float_data=[1]), indices([1], [0])), r"needs \[N\]"),
        ("no sparse values", lambda m: m.graph.sparse_initializer.append(onnx.SparseTensorProto()), "no values or no indices"),
    ]:  # fmt: skip
        yield Mutant(what, edited(edit), refusal)


# -- attributes


def attributes() -> Iterator[Mutant]:
    def alpha(**fields: object) -> Edit:
        def edit(m: ModelProto) -> None:
            attribute = node(m, 6).attribute[0]
            attribute.Clear()
            attribute.MergeFrom(AttributeProto(**fields))  # type: ignore[arg-type]

        return edit

    kinds = AttributeProto
    for what, edit, refusal in [
        ("an attribute without a name", alpha(f=1.0, type=kinds.FLOAT), "attribute '': it has no name"),
        ("an attribute without a type", alpha(name="alpha", f=1.0), r"node 6 'leaky' \(LeakyRelu\): attribute 'alpha': .*unknown type 0"),
        ("an attribute of type 99", _raw_type(99), "unknown type 99"),
        ("an attribute of another type", alpha(name="alpha", i=1, type=kinds.FLOAT), "another type"),
        ("an attribute of two types", alpha(name="alpha", i=1, f=1.0, type=kinds.FLOAT), "another type"),
        ("an int for a float", alpha(name="alpha", i=1, type=kinds.INT), None),
        ("a string for a float", alpha(name="alpha", s=b"1.0", type=kinds.STRING), "leaky.*alpha"),
        ("ints for a float", alpha(name="alpha", ints=[1], type=kinds.INTS), "leaky.*alpha"),
        ("a tensor without contents", alpha(name="alpha", type=kinds.TENSOR), "no value"),
        ("a graph without contents", alpha(name="alpha", type=kinds.GRAPH), "no value"),
        ("an empty graph for a float", alpha(name="alpha", g=onnx.GraphProto(), type=kinds.GRAPH), "leaky.*alpha"),
        ("a tensor for a float", alpha(name="alpha", t=tensor("t", [], float_data=[1.0]), type=kinds.TENSOR), "leaky.*alpha"),
        ("a malformed tensor for a float", alpha(name="alpha", t=tensor("t", [3]), type=kinds.TENSOR), "needs 3 values"),
        ("an attribute given twice", lambda m: node(m, 6).attribute.append(node(m, 6).attribute[0]), "given twice"),
        ("a reference outside of a function", alpha(name="alpha", ref_attr_name="a", type=kinds.FLOAT), "outside of a function"),
        ("a value and a reference", alpha(name="alpha", f=1.0, ref_attr_name="a", type=kinds.FLOAT), "refers to another"),
        ("a list of a million, not packed", alpha(name="alpha", ints=[300] * 1_100_000, type=kinds.INTS), "1048576 fields"),
        ("a float that is NaN", alpha(name="alpha", f=float("nan"), type=kinds.FLOAT), None),
        ("no branches", lambda m: node(m, 5).ClearField("attribute"), "if"),
        ("a branch that is a number", lambda m: node(m, 5).attribute[0].MergeFrom(kinds(type=kinds.INT, i=1)), "another type"),
        ("an unknown attribute", alpha(name="other", f=1.0, type=kinds.FLOAT), None),
    ]:  # fmt: skip
        yield Mutant(what, edited(edit), refusal)
    attribute = field(1, b"axes") + varint(20 << 3) + b"\x07" + field(8, varint(300) * 2_000_000)
    last = field(4, b"Relu") + field(1, b"y") + field(2, b"z") + field(5, attribute)
    yield Mutant("a list of 2 million, packed", with_node(last), "longer than 1048576 numbers")
    text = field(1, b"axes") + varint(20 << 3) + b"\x03" + field(4, b"s" * 20_000_000)
    last = field(4, b"Relu") + field(1, b"y") + field(2, b"z") + field(5, text)
    yield Mutant("a string of 20 million characters", with_node(last), None)


def with_node(node: bytes) -> bytes:
    """The base model with one more node, which protobuf's classes would not write so."""
    model = base()
    graph = model.graph.SerializeToString() + field(1, node)
    model.ClearField("graph")
    return model.SerializeToString() + field(7, graph)


def _raw_type(code: int) -> Edit:
    """An enumerator that protobuf's Python classes do not take."""

    def edit(m: ModelProto) -> None:
        attribute = node(m, 6).attribute[0]
        attribute.ClearField("type")
        attribute.MergeFromString(varint(20 << 3) + varint(code))

    return edit


# -- nodes that no op takes


def nodes() -> Iterator[Mutant]:
    def one(op_type: str, *dims: list[int], inputs: str | None = None, opset: int = 18, **attributes: object) -> bytes:
        """A model of one node with inputs a, b, ... of these dims; `inputs` names others, a blank for none."""
        names = "abcdef"[: len(dims)]
        taken = ["" if n == " " else n for n in (names if inputs is None else inputs)]
        last = helper.make_node(op_type, taken, ["y"], "it", **attributes)
        infos = [value(n, d, INT64 if n == "f" else FLOAT) for n, d in zip(names, dims)]
        graph = helper.make_graph([last], "g", infos, [value("y", None)])
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
        ).SerializeToString()

    x, w, huge = [1, 2, 6, 6], [4, 2, 3, 3], (1 << 31) - 1
    for what, model, refusal in [
        ("Conv with a stride of 0", one("Conv", x, w, strides=[0, 1]), "strides .* should be positive"),
        ("Conv with a dilation of 0", one("Conv", x, w, dilations=[0, 1]), "dilations .* should be positive"),
        ("Conv with a stride of -2^63", one("Conv", x, w, strides=[-(1 << 63), 1]), "strides .* should be positive"),
        ("Conv with a stride of 2^62", one("Conv", x, w, strides=[1 << 62, 1]), None),
        ("Conv with huge padding", one("Conv", x, w, pads=[1 << 62] * 4), "it"),
        ("Conv with 3 strides", one("Conv", x, w, strides=[1, 1, 1]), "strides .* should have 2 elements"),
        ("Conv in 0 groups", one("Conv", x, w, group=0), "it"),
        ("Conv in -2 groups", one("Conv", x, w, group=-2), "it"),
        ("Conv in 2^62 groups", one("Conv", x, w, group=1 << 62), "it"),
        ("Conv without weights", one("Conv", x, inputs="a "), "needs"),
        ("Conv with weights of 2^31 channels", one("Conv", x, [huge, 2, 3, 3]), None),
        ("ConvTranspose in -2 groups", one("ConvTranspose", x, [2, 1, 3, 3], group=-2), "it"),
        ("ConvTranspose in 2^62 groups", one("ConvTranspose", x, [2, 1, 3, 3], group=1 << 62), "it"),
        ("MaxPool of size 0", one("MaxPool", x, kernel_shape=[0, 2]), "kernel_shape .* should be positive"),
        (
            "AveragePool of stride 0",
            one("AveragePool", x, kernel_shape=[2, 2], strides=[0, 1], ceil_mode=1),
            "positive",
        ),
        ("Concat of nothing", one("Concat", axis=0), "needs"),
        ("Concat of an absent input", one("Concat", x, inputs=" a", axis=0), "needs its input 0"),
        ("Concat of scalars", one("Concat", [], [], axis=0), "it"),
        ("Concat along axis 9", one("Concat", x, x, axis=9), "axis 9 is out of range"),
        ("Split of a scalar", one("Split", [], num_outputs=1), "scalar"),
        ("Split into a million", one("Split", [7], num_outputs=1_000_000), "num_outputs"),
        ("Transpose with a wrong axis", one("Transpose", x, perm=[0, 1, 2, 9]), "it"),
        ("Transpose with one axis twice", one("Transpose", x, perm=[0, 1, 2, 2]), "it"),
        ("Softmax along axis -9", one("Softmax", x, axis=-9), "axis -9 is out of range"),
        ("Einsum of nothing", one("Einsum", equation="->"), "needs"),
        ("Einsum of an absent input", one("Einsum", [3], inputs=" a", equation="i,i->"), "needs its input 0"),
        ("Einsum without sense", one("Einsum", [3], equation="))i..j->->"), "it"),
        ("Resize of opset 10 without scales", one("Resize", x, opset=10), "needs scales"),
        ("Resize without scales", one("Resize", x), "needs scales or sizes"),
        ("Range of two numbers", one("Range", [2], [1], [1]), "scalars"),
        (
            "Attention over no heads",
            one("Attention", [2, 4, 4, 8], [2, 0, 6, 8], [2, 0, 6, 8], opset=24),
            "its 4 heads",
        ),
        (
            "Attention with a mask of 2^40",
            one("Attention", [1, 1, 1 << 20, 8], [1, 1, 1 << 20, 8], [1, 1, 1 << 20, 8], opset=24, is_causal=1),
            "a mask of",
        ),
        ("MatMul that does not fit", one("MatMul", [2, 3], [4, 5]), "it"),
        ("MatMul of 2^62 numbers", one("MatMul", [huge, 2], [2, huge]), "it"),
        ("Gemm with a vector", one("Gemm", [2, 3], [3]), "it"),
        ("LSTM with a hidden size of -1", one("LSTM", [3, 1, 4], [1, 8, 4], [1, 8, 2], hidden_size=-1), None),
        ("LSTM with weights that do not fit", one("LSTM", [3, 1, 4], [1, 7, 4], [1, 8, 3]), "it"),
        ("Flatten at axis 9", one("Flatten", x, axis=9), "it"),
        ("ReduceSum along data", one("ReduceSum", x, [1]), "it"),
        ("an attribute of NaN", one("LeakyRelu", x, alpha=float("nan")), None),
        ("BatchNormalization with one input", one("BatchNormalization", x), "needs"),
        ("DepthToSpace in blocks of 0", one("DepthToSpace", x, blocksize=0), "it"),
        ("Expand to data", one("Expand", [1], [2]), "it"),
        ("Hardmax over 2^31 - 1 elements", one("Hardmax", [huge]), "an axis of classes of 2147483647 elements"),
        ("OneHot of a depth from data", one("OneHot", [3], [1], [2]), "it"),
    ]:
        yield Mutant(what, model, refusal)


# -- versions


def versions() -> Iterator[Mutant]:
    def opset(version: int) -> Edit:
        return lambda m: setattr(m.opset_import[0], "version", version)

    for version in (-1, 0, 29, 1000, 1 << 62):
        yield Mutant(f"opset {version}", edited(opset(version)), f"opset {version} is not supported")
    for version in (1, 5):
        yield Mutant(
            f"opset {version}", edited(opset(version)), f"opset {version} is older than 6, and cannot be converted"
        )
    for version in (7, 13, 28):
        yield Mutant(f"opset {version}", edited(opset(version)), None)
    for version in (-1, 0, 2, 15, 1 << 40):
        yield Mutant(
            f"IR version {version}", edited(lambda m, v=version: setattr(m, "ir_version", v)), f"IR version {version}"
        )
    for what, edit, refusal in [
        ("no opsets", lambda m: m.ClearField("opset_import"), "does not import the domain 'ai.onnx'"),
        (
            "two opsets",
            lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 18)),
            "'ai.onnx' is imported twice",
        ),
        ("a domain of version 0", lambda m: setattr(m.opset_import[1], "version", 0), "opset 0 of domain 'local'"),
        ("a quantised op of no domain", lambda m: setattr(node(m, 0), "domain", "com.microsoft"), "import the domain"),
    ]:
        yield Mutant(what, edited(edit), refusal)


# -- functions


def functions() -> Iterator[Mutant]:
    def body(*nodes: onnx.NodeProto) -> Edit:
        def edit(m: ModelProto) -> None:
            del m.functions[0].node[:]
            m.functions[0].node.extend(nodes)

        return edit

    def call(name: str, source: str, output: str) -> onnx.NodeProto:
        return helper.make_node(name, [source], [output], domain="local")

    def chain(count: int, calls: int, closed: bool = False) -> Edit:
        """Functions F0 to F<count>, each of which calls the next `calls` times."""

        def edit(m: ModelProto) -> None:
            ids = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
            for i in range(count):
                after = f"F{i + 1}" if i + 1 < count or not closed else "F0"
                names = ["p", *(f"t{k}" for k in range(calls - 1)), "q"]
                last = i + 1 == count and not closed
                nodes = [helper.make_node("Neg", ["p"], ["q"])] if last else [
                    call(after, a, b) for a, b in pairwise(names)]  # fmt: skip
                m.functions.append(helper.make_function("local", f"F{i}", ["p"], ["q"], nodes, ids))
            node(m, 1).op_type = "F0"

        return edit

    for what, edit, refusal in [
        ("a function that calls itself", body(call("Twice", "p", "q")), "'Twice' calls itself: 'Twice' -> 'Twice'"),
        ("functions that call each other", chain(3, 1, closed=True), "calls itself: 'F0' -> 'F1' -> 'F2' -> 'F0'"),
        ("functions that double", chain(22, 2), "expand to more than"),
        ("functions that grow by 1,000", chain(6, 1000), "expand to more than"),
        ("deep functions", chain(1000, 1), "call each other deeper"),
        ("a chain of ten functions", chain(10, 1), None),
        (
            "a function given twice",
            lambda m: m.functions.append(m.functions[0]),
            "'Twice' of domain 'local' is defined twice",
        ),
        ("a function without a name", lambda m: m.functions[0].ClearField("name"), "function '': it has no name"),
        ("a function without nodes", body(), "output 'q' is not defined"),
        ("a function with an undefined name", body(helper.make_node("Neg", ["z"], ["q"])), "'z' is not defined"),
        ("a function that reads the graph", body(helper.make_node("Neg", ["x"], ["q"])), "'x' is not defined"),
        ("a function with a cycle", body(helper.make_node("Neg", ["q"], ["q"])), "on a cycle"),
        ("a function with an input twice", lambda m: m.functions[0].input.append("p"), "input 'p' is declared twice"),
        (
            "a function with an unknown domain",
            body(helper.make_node("A", ["p"], ["q"], domain="d")),
            "import the domain 'd'",
        ),
        ("a function of opset 100", lambda m: setattr(m.functions[0].opset_import[0], "version", 100), "opset 100"),
        ("a reference to no attribute", body(reference()), "refers to the attribute 'alpha' of the function"),
        ("an overload", lambda m: setattr(m.functions[0], "overload", "2"), "overloads"),
        (
            "a call with too many inputs",
            lambda m: node(m, 1).input.extend(["a"] * 5),
            r"node 1 'twice' \(Twice\): it has 6 inputs, and its function 1",
        ),
    ]:
        yield Mutant(what, edited(edit), refusal)


def reference() -> onnx.NodeProto:
    result = helper.make_node("LeakyRelu", ["p"], ["q"])
    result.attribute.append(AttributeProto(name="alpha", ref_attr_name="alpha", type=AttributeProto.FLOAT))
    return result


# -- sizes


def sizes() -> Iterator[Mutant]:
    def dims(*dims: int | str) -> Edit:
        return lambda m: m.graph.input[0].CopyFrom(value("x", list(dims)))

    def many_nodes(m: ModelProto) -> None:
        m.graph.node.extend(helper.make_node("Relu", ["x"], [f"z{i}"]) for i in range(140_000))

    def many_initializers(m: ModelProto) -> None:
        m.graph.initializer.extend(tensor(f"t{i}", [0]) for i in range(100_000))

    def endless(m: ModelProto) -> None:
        inputs = [value("i", [], INT64), value("k", [], TensorProto.BOOL), value("s", [2, 4])]
        loop = helper.make_graph([], "body", inputs, [value("k", [], TensorProto.BOOL), value("s", [2, 4])])
        node(m, 0).CopyFrom(helper.make_node("Loop", ["", "flag", "x"], ["a"], "loop", body=loop))

    def deep_ifs(m: ModelProto) -> None:
        graph = branch("Neg", "e")
        for _ in range(10):
            inner = helper.make_node("If", ["flag"], ["o"], then_branch=graph, else_branch=graph)
            graph = helper.make_graph([inner], "g", [], [value("o", None)])
        node(m, 5).attribute[0].g.CopyFrom(graph)

    for what, edit, refusal in [
        ("an input of 2^62 elements", dims(1 << 62), "x"),
        ("an input of 2^80 elements", dims(1 << 40, 1 << 40), "x"),
        ("an input of 1,000 dims", dims(*[1] * 1000), "rank"),
        ("an input with a dim of -5", dims(-5, 4), "input 'x': it has a negative dim: -5"),
        ("an input with an open dim", dims(-1, 4), None),
        ("an input with a symbol", dims("n", 4), None),
        ("an input of another shape", dims(2, 5), "mul"),
        ("an empty input", dims(0, 4), None),
        ("an input of no type", lambda m: m.graph.input[0].type.tensor_type.ClearField("elem_type"), "type"),
        ("an input of type 77", lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77), "type 77"),
        ("an input of strings", lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 8), "it has text"),
        ("an input of a sequence", lambda m: deep_type(m.graph.input[0].type, 2), r"sequence\(sequence\(f32\)\)"),
        ("140,000 nodes", many_nodes, "more than 131072 nodes"),
        ("100,000 empty initializers", many_initializers, None),
        ("a loop without end", endless, "Loop of more than 4096 trips"),
        ("branches that double", deep_ifs, None),
    ]:
        yield Mutant(what, writer(edit), refusal)


# -- external data


def external() -> Iterator[Mutant]:
    def model(location: str = "w.bin", **entries: object) -> bytes:
        def edit(m: ModelProto) -> None:
            new = tensor("scale", [1, 4], data_location=TensorProto.EXTERNAL)
            for key, text in {"location": location, **entries}.items():
                new.external_data.add(key=key, value=str(text))
            m.graph.initializer[0].CopyFrom(new)

        return edited(edit)

    def case(
        what: str, refusal: str | None, data: bytes, prepare: Callable[[Path], object] = lambda folder: None
    ) -> Mutant:
        def write(folder: Path) -> None:
            (folder / "w.bin").write_bytes(bytes(16))
            prepare(folder)
            (folder / "model.onnx").write_bytes(data)

        return Mutant(what, write, refusal)

    def outside(folder: Path) -> None:
        (folder.parent / "secret.bin").write_bytes(bytes(16))

    def link(target: str, name: str, is_folder: bool = False) -> Callable[[Path], None]:
        def prepare(folder: Path) -> None:
            outside(folder)
            (folder / "sub").mkdir()
            (folder / "sub" / "w.bin").write_bytes(bytes(16))
            os.symlink(target, folder / name, target_is_directory=is_folder)

        return prepare

    def hard_link(folder: Path) -> None:
        outside(folder)
        os.link(folder.parent / "secret.bin", folder / "hard.bin")

    def sub(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "w.bin").write_bytes(bytes(16))

    yield case("external data", None, model())
    yield case("external data with offset and length", None, model(offset=0, length=16))
    yield case("external data in a folder", None, model("./sub//w.bin"), sub)
    yield case("a missing file", "No such file", model("none.bin"))
    yield case("an absolute path", "absolute path", model("/secret.bin"))
    yield case("an absolute path to a device", "absolute path", model("/dev/zero"))
    yield case("a path up", "not below the model's folder", model("../secret.bin"), outside)
    yield case("a path up and down", "not below the model's folder", model("sub/../../secret.bin"), outside)
    yield case("a path up that ends inside", "not below the model's folder", model("sub/../w.bin"), sub)
    yield case("a path up by backslashes", "No such file", model("..\\secret.bin"), outside)
    yield case("a URL", "No such file", model("https://example.org/secret.bin"))
    yield case("a home folder", "No such file", model("~/secret.bin"))
    yield case("a variable", "No such file", model("$HOME/secret.bin"))
    yield case("an address in memory", "absolute path|No such file", model("*/_ORT_MEM_ADDR_/*", offset=1 << 40))
    yield case("no location", "is not a file name", model(""))
    yield case("a location of dots", "not below the model's folder", model("./."))
    yield case("a location with NUL", "not printable", model("w.bin\0.txt"))
    yield case("a location of 100,000 characters", "longer than the limit", model("w" * 100_000))
    yield case("a location of 300 characters", "too long", model("w" * 300))
    yield case("a symbolic link out", "symbolic link 'l.bin'", model("l.bin"), link("../secret.bin", "l.bin"))
    yield case("a symbolic link inside", "symbolic link 'l.bin'", model("l.bin"), link("w.bin", "l.bin"))
    yield case("a symbolic link to itself", "symbolic link 'l.bin'", model("l.bin"), link("l.bin", "l.bin"))
    yield case("a symbolic link to nothing", "symbolic link 'l.bin'", model("l.bin"), link("nothing", "l.bin"))
    yield case("a linked folder", "symbolic link 'up'", model("up/secret.bin"), link("..", "up", True))
    yield case("a linked folder inside", "symbolic link 'l'", model("l/w.bin"), link("sub", "l", True))
    yield case("a linked root", "symbolic link 'root'", model("root/etc/passwd"), link("/", "root", True))
    yield case("a hard link", "a hard link", model("hard.bin"), hard_link)
    yield case("a folder", "not a regular file", model("sub"), sub)
    yield case("a file as a folder", "Not a directory", model("w.bin/x"))
    yield case("a pipe", "not a regular file", model("pipe"), lambda folder: os.mkfifo(folder / "pipe"))
    yield case("a file that is too short", "not in the 8", model(), lambda f: (f / "w.bin").write_bytes(bytes(8)))
    yield case("an empty file", "not in the 0", model(), lambda f: (f / "w.bin").write_bytes(b""))
    yield case("an offset past the end", "bytes 16 to 32 are not in the 16", model(offset=16))
    yield case("an offset of 2^60", "are not in the 16", model(offset=1 << 60))
    yield case("an offset beyond 64 bits", "is not a number", model(offset=1 << 70))
    yield case("a negative offset", "the offset '-4' of its external data is not a number", model(offset=-4))
    yield case("an offset in words", "is not a number", model(offset="four"))
    yield case("an offset in other digits", "is not a number", model(offset="\u0664"))
    yield case("a length that is too small", "needs 16 bytes of data, and its external data states 8", model(length=8))
    yield case("a length that is too large", "external data states 64", model(length=64))
    yield case("a negative length", "is not a number", model(length=-1))
    yield case("in the model and outside", "in the model and outside", _twice(model()))
    yield case("an unknown key", None, model(checksum="0", other="x"))


def _twice(data: bytes) -> bytes:
    model = ModelProto.FromString(data)
    model.graph.initializer[0].raw_data = bytes(16)
    return model.SerializeToString()


FAMILIES = (truncated, flipped, wire, names, tensors, attributes, nodes, versions, functions, sizes, external)
