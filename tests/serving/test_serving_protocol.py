"""Requests and replies of the Open Inference Protocol as values: what comes in is what went out, and what is wrong is named."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Model, tensor

from lightnet.runtime.dtypes import DTYPES, STORED, convert
from lightnet_serving import protocol
from lightnet_serving.errors import RequestError, shown_value
from lightnet_serving.protocol import HEADER, InferenceRequest, Wanted, read_request, write_reply
from lightnet_serving.signature import Signature, common_rows, datatype_of

RNG = np.random.default_rng(5)


def signature(rows: int = 0, **inputs: Any) -> Signature:
    """Of a model with inputs as given (dims, dtype), and an output as each."""
    outputs = {f"{name}_out": of for name, of in inputs.items()}
    return Signature.of(Model(inputs, outputs, lambda **feeds: {}), rows)


X = signature(x=((2, 3), np.float32))
TWO = signature(x=((2, 3), np.float32), n=((2,), np.int64))


def test_names_of_element_types() -> None:
    """Those of the protocol's table; bytes for what is only stored in."""
    table = {
        "i1": "BOOL", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64", "ui8": "UINT8", "ui16": "UINT16",
        "ui32": "UINT32", "ui64": "UINT64", "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64",
    }  # fmt: skip
    assert {d.name: datatype_of(d) for d in DTYPES if not d.is_stored} == table
    assert {datatype_of(d) for d in STORED} == {"UINT8"}


BATCH = signature(rows=8, x=((8, 3), np.float32))
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


def body(*inputs: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def binary(name: str, array: np.ndarray, datatype: str) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(array.shape),
        "datatype": datatype,
        "parameters": {"binary_data_size": array.nbytes},
    }


@pytest.mark.parametrize("dtype", (*DTYPES, *STORED), ids=str)
def test_tensors_of_all_types_come_back(dtype: Any) -> None:
    """In JSON and in binary, flat and nested: what a client writes is what the model gets; what the model gives is what a client reads."""
    array = convert(RNG.normal(size=(2, 3)) * 40, dtype)
    sig, name = signature(x=((2, 3), dtype.np)), datatype_of(dtype)
    made, array = array, array.view(np.uint8) if dtype.is_stored else array
    values = array.astype(np.float64).tolist() if dtype.is_float else array.tolist()
    flat = [v for row in values for v in row]
    for data in (flat, values):
        got = read_request(body({"name": "x", "shape": [2, 3], "datatype": name, "data": data}), None, sig).feeds["x"]
        assert got.dtype == array.dtype and got.shape == (2, 3) and got.tobytes() == array.tobytes()
    head = body(binary("x", array, name))
    request = read_request(head + array.tobytes(), str(len(head)), sig)
    assert request.feeds["x"].tobytes() == array.tobytes() and request.feeds["x"].flags.aligned
    out = sig.outputs["x_out"]
    for is_binary in (False, True):
        text, headers = write_reply("m", "3", InferenceRequest({}, [Wanted(out, is_binary)], id="é"), {"x_out": made})
        length = int(headers.get(HEADER, len(text)))
        top = json.loads(text[:length])
        assert (top["model_name"], top["model_version"], top["id"]) == ("m", "3", "é")
        (item,) = top["outputs"]
        assert (item["name"], item["datatype"], item["shape"]) == ("x_out", name, [2, 3])
        if is_binary:
            assert text[length:] == array.tobytes() and item["parameters"]["binary_data_size"] == array.nbytes
        else:
            assert np.array(item["data"]).astype(array.dtype).tobytes() == array.tobytes() and length == len(text)


def test_no_number_is_lost() -> None:
    """NaN and infinities in valid JSON, both ways; integers beyond a double's; floats to the last bit."""
    special = np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e-45, 3.4e38]], np.float32)
    text, _ = write_reply("m", "1", InferenceRequest({}, [Wanted(X.outputs["x_out"], False)]), {"x_out": special})
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["outputs"][0]["data"]
    assert data[:3] == ["NaN", "Infinity", "-Infinity"]
    got = read_request(body({"name": "x", "shape": [2, 3], "datatype": "FP32", "data": data}), None, X).feeds["x"]
    assert got.tobytes() == special.tobytes()
    high = np.array([2**63 - 1, -(2**63)])
    sig = signature(n=((2,), np.int64))
    assert (read_request(body(tensor("n", high, "INT64")), None, sig).feeds["n"] == high).all()
    text, _ = write_reply("m", "1", InferenceRequest({}, [Wanted(sig.outputs["n_out"], False)]), {"n_out": high})
    assert json.loads(text)["outputs"][0]["data"] == high.tolist()


def test_chosen_outputs() -> None:
    inputs = [tensor("x", VALUES), tensor("n", np.array([1, 2]), "INT64")]

    def wanted(**more: Any) -> list[tuple[str, bool]]:
        return [(w.tensor.name, w.binary) for w in read_request(body(*inputs, **more), None, TWO).wanted]

    assert wanted() == wanted(outputs=[]) == [("x_out", False), ("n_out", False)]
    assert wanted(parameters={"binary_data_output": True}) == [("x_out", True), ("n_out", True)]
    assert wanted(outputs=[{"name": "n_out"}]) == [("n_out", False)]
    both = [{"name": "n_out", "parameters": {"binary_data": False}}, {"name": "x_out"}]
    assert wanted(outputs=both, parameters={"binary_data_output": True}) == [("n_out", False), ("x_out", True)]


def test_rows() -> None:
    """Where requests are put together, their first dim is their own."""
    request = read_request(body(tensor("x", VALUES)), None, BATCH)
    assert request.rows == 2 and request.feeds["x"].shape == (2, 3)
    assert read_request(VALUES.tobytes(), "0", BATCH).rows == 2  # without any JSON
    assert BATCH.described()["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert common_rows(BATCH) == 8 and common_rows(X) == 2
    assert (
        common_rows(signature(x=((2, 3), np.float32), y=((3, 2), np.float32)))
        == common_rows(signature(x=((), np.float32)))
        == 0
    )


CASES = [
    # the request, the header, and words of the error
    (b"", None, "the body is no JSON"),
    (b"\xff\xfe\xfd", None, "the body is no JSON"),
    (b"[" * 10_000, None, "nested too deeply"),
    (b"9" * 5000, None, "the body is no JSON"),
    (b"[]", None, "should be a JSON object, and is []"),
    (b"{}", None, "'inputs' should be a list of tensors, and is not there"),
    (body(7), None, "'inputs[0]' should be an object, and is 7"),
    (body({}), None, "'inputs[0].name' should be a string, and is not there"),
    (body(tensor("X", VALUES)), None, 'no input "X"'),
    (body(), None, "the model needs input 'x' (FP32[2, 3]), which the request has not"),
    (body(tensor("x", VALUES), tensor("x", VALUES)), None, "input 'x' is there twice"),
    (body({**tensor("x", VALUES), "shape": "2x3"}), None, "'shape' of input 'x' should be a list of integers"),
    (body({**tensor("x", VALUES), "shape": [2, True]}), None, "'shape' of input 'x' should be a list of integers"),
    (body({**tensor("x", VALUES), "shape": [3, 2]}), None, "input 'x' has shape [2, 3], but gets [3, 2]"),
    (body({**tensor("x", VALUES), "shape": [2**70, 3]}), None, "input 'x' has shape [2, 3], but gets"),
    (body(tensor("x", VALUES, "FP64")), None, 'input \'x\' has datatype FP32, but gets "FP64"'),
    (body({**tensor("x", VALUES), "data": 5}), None, "'data' of input 'x' should be a list, and is 5"),
    (body({**tensor("x", VALUES), "data": [1, 2]}), None, "should have 6 elements, as shape [2, 3] says, and has 2"),
    (body({**tensor("x", VALUES), "data": [[1, 2, 3]]}), None, "should have 2 rows, as shape [2, 3] says, and has 1"),
    (body({**tensor("x", VALUES), "data": [[1, 2, 3], [4, 5]]}), None, "should have lists of 3 at depth 1"),
    (body({**tensor("x", VALUES), "data": [[1, 2, 3], 4]}), None, "nested like shape [2, 3], and has 4 at depth 1"),
    (body({**tensor("x", VALUES), "data": [1, 2, True, 4, 5, 6]}), None, "should be numbers (FP32), and element 2 is true"),
    (body({**tensor("x", VALUES), "data": [1, 2, "3", 4, 5, 6]}), None, 'should be numbers (FP32), and element 2 is "3"'),
    (body({**tensor("x", VALUES), "data": [1, 2, 3, 4, 1e39, 6]}), None, "element 4, 1e+39, is beyond the range of FP32"),
    (body({**tensor("x", VALUES), "data": [1, 2, 3, 4, 10**400, 6]}), None, "element 4 is beyond the range of FP32"),
    (body({k: v for k, v in tensor("x", VALUES).items() if k != "data"}), None, "neither 'data' nor the parameter"),
    (body(tensor("x", VALUES), id=5), None, "'id' should be a string, and is 5"),
    (body(tensor("x", VALUES), parameters=[]), None, "'parameters' of the request should be an object"),
    (body(tensor("x", VALUES), parameters={"binary_data_output": 1}), None, "should be true or false, and is 1"),
    (body(tensor("x", VALUES), outputs=3), None, "'outputs' should be a list, and is 3"),
    (body(tensor("x", VALUES), outputs=[{"name": "x"}]), None, 'no output "x"; there are: x_out'),
    (body(tensor("x", VALUES), outputs=[{"name": "x_out"}] * 2), None, "output 'x_out' is there twice"),
    (body(tensor("x", VALUES), outputs=[{"name": "x_out", "parameters": {"classification": 3}}]), None, "'classification'"),
    (body(tensor("x", VALUES, parameters={"shared_memory_region": "r"})), None, "'shared_memory_region'"),
    (body(tensor("x", VALUES)), "+5", "should be a number of bytes, and is"),
    (body(tensor("x", VALUES)), "9999", "says 9999 bytes, and the body has"),
    (body(binary("x", VALUES, "FP32")), None, "the body ends within the bytes of input 'x': 0 of 24 are there"),
    (body(tensor("x", VALUES, parameters={"binary_data_size": 24})), None, "has both 'data' and the parameter"),
    (body(tensor("x", VALUES)) + b"1234", str(len(body(tensor("x", VALUES)))), "4 bytes follow the JSON"),
    (VALUES.tobytes()[:-1], "0", "input 'x' of FP32[2, 3] takes 24 bytes, but gets 23"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "header", "words"), CASES, ids=range(len(CASES)))
def test_what_is_wrong_is_named(data: bytes, header: str | None, words: str) -> None:
    with pytest.raises(RequestError) as e:
        read_request(data, header, X)
    assert e.value.status == 400 and words in e.value.message and len(e.value.message) < 400


def test_more_that_is_wrong() -> None:
    def message(data: bytes, sig: Signature, header: str | None = None) -> str:
        with pytest.raises(RequestError) as e:
            read_request(data, header, sig)
        return f"{e.value.status} {e.value.message}"

    assert "input 'x' has 1 to 8 rows, but gets 9" in message(body(tensor("x", np.zeros((9, 3)))), BATCH)
    assert "input 'x' has 1 to 8 rows, but gets 0" in message(b"", BATCH, "0")
    assert "'n' (INT64[2])" in message(body(tensor("x", VALUES)), TWO)
    assert "for models of one input, and this one has 2" in message(b"", TWO, "0")
    rows = signature(rows=4, x=((4, 1), np.float32), y=((4, 1), np.float32))
    assert "'x' 1, 'y' 2" in message(body(tensor("x", np.zeros((1, 1))), tensor("y", np.zeros((2, 1)))), rows)
    assert message(b" " * (X.json_limit + 1), X).startswith("413 ")
    small = signature(n=((2,), np.int8))
    assert "element 1, 128, is beyond the range of INT8" in message(
        body(tensor("n", np.array([0, 128]), "INT8")), small
    )
    flag = signature(b=((2,), np.bool_))
    head = body({"name": "b", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}})
    assert "bytes of 0 or 1" in message(head + b"\1\2", flag, str(len(head)))


# -- any change of a request

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4) | st.sampled_from(
    ["x", "n", "FP32", "INT64", "BYTES", "NaN", "\ud800"])  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in items for p in places(item, (*path, key)))]


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_changed_requests_are_answered_or_named(data: st.DataObject) -> None:
    """A part of a request replaced or left out: it is refused as a request, or what is read is what NumPy makes of it."""
    top: Any = {"id": "a", "parameters": {"binary_data_output": False}, "outputs": [{"name": "x_out", "parameters": {}}],
                "inputs": [tensor("x", VALUES), tensor("n", np.array([3, -4]), "INT64")]}  # fmt: skip
    top = copy.deepcopy(top)
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from([p for p in places(top) if p]))
        holder = top
        for key in path:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[last] = data.draw(JSON)
        else:
            del holder[last]
    text = json.dumps(top).encode()
    cut = data.draw(st.sampled_from([None, None, len(text) // 2]))
    header = data.draw(st.sampled_from([None, None, None, str(len(text)), "1", "-1", "²"]))
    try:
        request = read_request(text[:cut], header, TWO)
    except RequestError as e:
        assert e.status in (400, 413) and e.message.isprintable() and len(e.message) < 600
        json.dumps(e.message).encode()
        return
    for item in top["inputs"]:
        got = request.feeds[item["name"]]
        special = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
        flat = [special.get(v, v) if isinstance(v, str) else v for v in np.array(item["data"], object).reshape(-1)]
        want = np.array(flat, np.float64 if got.dtype.kind == "f" else np.int64).astype(got.dtype)
        assert np.array_equal(got.reshape(-1), want, equal_nan=got.dtype.kind == "f")


# -- each number at its limit


@pytest.mark.parametrize(("value", "shown"), [
    ("a" * 57, '"' + "a" * 57 + '"'), ("a" * 58, '"' + "a" * 58 + '"'), ("a" * 59, '"' + "a" * 59 + "…"), ("a" * 99, '"' + "a" * 59 + "…"), ("é", '"\\u00e9"'),
    ([1, 2], "[1, 2]"), ([0] * 60, "[0" + ", 0" * 19 + ",…"), ([0] * 61, "a list of 61"), ([1, []], "a list of 2"), ([{}], "a list of 1"), ({}, "an object of 0"), ({"a": 1}, "an object of 1"),
    (5, "5"), (True, "true"), (None, "null"), (2.5, "2.5"), ((1 << 400) - 1, str((1 << 400) - 1)[:60] + "…"), (1 << 400, "an integer of hundreds of digits"), (-(1 << 400), "an integer of hundreds of digits"),
])  # fmt: skip
def test_values_in_answers(value: Any, shown: str) -> None:
    assert shown_value(value) == shown


def refused(message: bytes, header: str | None, of: Signature) -> str | None:
    try:
        read_request(message, header, of)
    except RequestError as error:
        return error.message
    return None


WHOLE = body(tensor("x", VALUES))
BINARY = binary("x", VALUES, "FP32")
TEXTS = signature(t=((2,), np.dtype(object)))


def with_size(size: Any) -> bytes:
    return body({**BINARY, "parameters": {"binary_data_size": size}})


def test_lengths_of_requests() -> None:
    size = len(WHOLE)
    for header, says in (
        (str(size), None), (str(size + 1), f"the header {HEADER} says {size + 1} bytes, and the body has {size}"),
        ("0" * (18 - len(str(size))) + str(size), None), ("0" * (19 - len(str(size))) + str(size), f'the header {HEADER} should be a number of bytes, and is "{size:019}"'),
        ("-1", f'the header {HEADER} should be a number of bytes, and is "-1"'), ("", f'the header {HEADER} should be a number of bytes, and is ""'),
        ("²", f'the header {HEADER} should be a number of bytes, and is "\\u00b2"'),
    ):  # fmt: skip
        assert refused(WHOLE, header, X) == says
    long = WHOLE.ljust(X.json_limit)
    assert refused(long, None, X) is None
    assert (
        refused(long + b" ", None, X)
        == f"the JSON of a request may have {X.json_limit} bytes here, and has {X.json_limit + 1}"
    )


def test_sizes_of_binary_data() -> None:
    raw = VALUES.tobytes()
    for size, says in (
        (24, None), (23, "input 'x' of FP32[2, 3] takes 24 bytes, but gets 23"), (0, "input 'x' of FP32[2, 3] takes 24 bytes, but gets 0"),
        (-1, "'binary_data_size' of input 'x' should be a number of bytes, and is -1"), (True, "'binary_data_size' of input 'x' should be a number of bytes, and is true"),
        ("24", "'binary_data_size' of input 'x' should be a number of bytes, and is \"24\""), (24.0, "'binary_data_size' of input 'x' should be a number of bytes, and is 24.0"),
    ):  # fmt: skip
        head = with_size(size)
        assert refused(head + raw, str(len(head)), X) == says
    head = with_size(24)
    assert (
        refused(head + raw[:-1], str(len(head)), X) == "the body ends within the bytes of input 'x': 23 of 24 are there"
    )
    assert (
        refused(head + raw + b"0", str(len(head)), X)
        == "25 bytes follow the JSON, and the inputs' 'binary_data_size' make 24"
    )


def test_bodies_that_are_bytes_alone() -> None:
    raw = np.arange(24, dtype=np.float32).tobytes()
    whole = read_request(raw[:24], "0", X)
    assert (whole.feeds["x"].shape, whole.rows, [w.binary for w in whole.wanted]) == ((2, 3), 0, [True])
    for rows in (1, 7, 8):
        found = read_request(np.zeros((rows, 3), np.float32).tobytes(), "0", BATCH)
        assert (found.feeds["x"].shape, found.rows) == ((rows, 3), rows)
    assert refused(b"", "0", BATCH) == "input 'x' has 1 to 8 rows, but gets 0"
    assert refused(np.zeros((9, 3), np.float32).tobytes(), "0", BATCH) == "input 'x' has 1 to 8 rows, but gets 9"
    assert refused(raw[:13], "0", BATCH) == "input 'x' of FP32[1, 3] takes 12 bytes, but gets 13"
    assert refused(raw[:23], "0", X) == "input 'x' of FP32[2, 3] takes 24 bytes, but gets 23"
    assert refused(raw, "0", TWO) == "a body without JSON is for models of one input, and this one has 2"
    assert refused(b"", "0", signature(rows=8, x=((8, 0), np.float32))) == "input 'x' has 1 to 8 rows, but gets 0"
    assert refused(b"a", "0", TEXTS) == "a body without JSON has no shape, and input 't' is BYTES[2]"
    one = read_request("é".encode(), "0", signature(t=((1, 1), np.dtype(object))))
    assert (one.feeds["t"].tolist(), one.rows) == ([["é"]], 0)
    row = read_request(b"a", "0", signature(rows=4, t=((4, 1), np.dtype(object))))
    assert (row.feeds["t"].tolist(), row.rows) == ([["a"]], 1)


def test_texts_in_bytes() -> None:
    def sent(raw: bytes, size: int | None = None) -> str | None:
        item = {
            "name": "t",
            "shape": [2],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(raw) if size is None else size},
        }
        head = body(item)
        return refused(head + raw, str(len(head)), TEXTS)

    def packed(*texts: bytes) -> bytes:
        return b"".join(len(t).to_bytes(4, "little") + t for t in texts)

    assert sent(packed(b"ab", b"")) is None
    for cut in (1, 4, 5):
        raw = packed(b"ab", b"c")[:-cut]
        assert sent(raw) == f"the {len(raw)} bytes of input 't' end within element 1 of 2"
    assert sent(b"") == "the 0 bytes of input 't' end within element 0 of 2"
    assert sent(packed(b"a", b"b") + b"x") == "the 2 elements of input 't' take 10 bytes, but there are 11"
    assert sent(packed(b"a", b"\xff")) == "element 1 of input 't' is not in UTF-8: invalid start byte at byte 0"
    assert sent(packed(b"a", b"b"), 11) == "the body ends within the bytes of input 't': 10 of 11 are there"


def test_rows_of_inputs() -> None:
    two = signature(rows=8, x=((8, 3), np.float32), n=((8,), np.int64))
    x, n = np.zeros((2, 3), np.float32), np.zeros(3, np.int64)
    assert (
        refused(body(tensor("x", x), tensor("n", n, datatype="INT64")), None, two)
        == "all inputs of a request have as many rows, but get 'x' 2, 'n' 3"
    )
    assert read_request(body(tensor("x", x), tensor("n", n[:2], datatype="INT64")), None, two).rows == 2
    for kept, rows in (((8, 3), 8), ((), 0), ((0, 3), 0), ((-1, 3), 0)):
        assert common_rows(signature(x=(kept, np.float32))) == rows
    assert common_rows(signature(x=((8,), np.float32), n=((4,), np.float32))) == 0
    assert common_rows(Signature.of(Model({}, {"y": ((8,), np.float32)}, lambda: {}), 0)) == 0


def test_a_reply_is_json_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has no NaN: one that is left in it is an error here, and not of whoever reads it."""
    monkeypatch.setattr(protocol, "values_of", lambda tensor, array: array.tolist())
    for value in (np.nan, np.inf, -np.inf):
        values = np.full((2, 3), value, np.float32)
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_reply("m", "1", InferenceRequest({}, [Wanted(X.outputs["x_out"], False)]), {"x_out": values})


def test_infinite_values_in_replies() -> None:
    values = np.array([[np.inf, -np.inf, np.nan], [1.5, -0.0, 0.0]], np.float32)
    text, _ = write_reply("m", "1", InferenceRequest({}, [Wanted(X.outputs["x_out"], False)]), {"x_out": values})
    assert json.loads(text)["outputs"][0]["data"] == ["Infinity", "-Infinity", "NaN", 1.5, -0.0, 0.0]
