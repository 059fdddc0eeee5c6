"""Text through the server: `BYTES` of the Open Inference Protocol, as strings of JSON and as bytes behind their number."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from serving import Model, served, tensor

from lightnet_serving.errors import RequestError
from lightnet_serving.protocol import HEADER, InferenceRequest, Wanted, read_request, write_reply
from lightnet_serving.signature import JSON_BASE, JSON_ELEMENT, MAX_OPEN, TEXT_ELEMENT, Signature

WORDS = ["", "a", "çow 🐄", 'quote " \\ \n\0', "x" * 300]
INFER = "/v2/models/m/infer"


def text(*words: str) -> np.ndarray:
    found = np.empty(len(words), object)
    found[:] = words
    return found


def packed(*words: str | bytes) -> bytes:
    raw = [w.encode() if isinstance(w, str) else w for w in words]
    return b"".join(len(w).to_bytes(4, "little") + w for w in raw)


def signature(*dims: Any, rows: int = 0) -> Signature:
    model = Model({"t": (dims, object)}, {"u": (dims, object)}, lambda t: {"u": t})
    return Signature.of(model, rows)


def asked(size: int, shape: list[int], **more: Any) -> bytes:
    item = {"name": "t", "shape": shape, "datatype": "BYTES", "parameters": {"binary_data_size": size}}
    return json.dumps({"inputs": [item], **more}).encode()


@pytest.mark.parametrize("binary", [False, True])
def test_texts_come_back(binary: bool) -> None:
    """In JSON and in binary: what a client writes is what the model gets, and what it gives is what a client reads."""
    sig, array = signature(len(WORDS)), text(*WORDS)
    assert sig.described()["inputs"] == [{"name": "t", "datatype": "BYTES", "shape": [len(WORDS)]}]
    if binary:
        head = asked(len(packed(*WORDS)), [len(WORDS)])
        request = read_request(head + packed(*WORDS), str(len(head)), sig)
    else:
        request = read_request(json.dumps({"inputs": [tensor("t", array, "BYTES")]}).encode(), None, sig)
    assert request.feeds["t"].dtype == object and request.feeds["t"].tolist() == WORDS
    reply, headers = write_reply("m", "1", InferenceRequest({}, [Wanted(sig.outputs["u"], binary)]), {"u": array})
    length = int(headers.get(HEADER, len(reply)))
    (item,) = json.loads(reply[:length])["outputs"]
    assert (item["datatype"], item["shape"]) == ("BYTES", [len(WORDS)])
    assert reply[length:] == packed(*WORDS) if binary else item["data"] == WORDS


def test_open_dims_and_one_text() -> None:
    """A size that the call decides is -1; a body without JSON is one text."""
    sig = signature(None, 1)
    assert sig.described()["inputs"][0]["shape"] == [-1, 1] and sig.body_limit > 100 * TEXT_ELEMENT
    for n in (0, 3):
        item = {"name": "t", "shape": [n, 1], "datatype": "BYTES", "data": ["é"] * n}
        assert read_request(json.dumps({"inputs": [item]}).encode(), None, sig).feeds["t"].shape == (n, 1)
    assert read_request("é\0".encode(), "0", sig).feeds["t"].tolist() == [["é\0"]]
    assert Signature.of(Model({}, {"u": (None, object)}, dict)).described()["outputs"][0]["shape"] == [-1]


def one(shape: list[int], data: list[Any], datatype: str = "BYTES") -> bytes:
    return json.dumps({"inputs": [{"name": "t", "shape": shape, "datatype": datatype, "data": data}]}).encode()


#: The JSON of a request, the bytes behind it, and what the answer says.
WRONG = {
    "short": (asked(3, [1]), b"abc", "the 3 bytes of input 't' end within element 0 of 1"),
    "length": (asked(6, [1]), b"\xff\xff\xff\x7fab", "end within element 0 of 1"),
    "long": (asked(6, [1]), packed("a") + b"b", "take 5 bytes, but there are 6"),
    "fewer": (asked(5, [2]), packed("a"), "end within element 1 of 2"),
    "body": (asked(9, [1]), packed("a"), "the body ends within the bytes"),
    "utf-8": (asked(5, [1]), packed(b"\xff"), "element 0 of input 't' is not in UTF-8"),
    "number": (one([1], [1]), b"", "element 0 is 1"),
    "none": (one([1], [None]), b"", "should be strings"),
    "count": (one([2], ["a"]), b"", "2 elements"),
    "type": (one([1], [1], "FP32"), b"", "has datatype BYTES"),
    "surrogate": (one([2], ["a", "\ud83d"]), b"", "element 1 of 'data' of input 't' is not text"),
    "huge": (one([1 << 70], []), b"", "has at most"),
    "huge, in binary": (asked(0, [1 << 63]), b"", "has at most"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    head, raw, words = WRONG[case]
    with pytest.raises(RequestError) as e:
        read_request(head + raw, str(len(head)), signature(None))
    assert e.value.status == 400 and words in e.value.message


#: Shapes that no array has, though the number of their elements is 0 modulo 2^64, or 0.
HUGE = [[1 << 32, 1 << 32], [1 << 70, 1], [1 << 62, 0], [1 << 70, 0], [1 << 32, 1 << 31, 2], [(1 << 26) + 1, 0]]


@pytest.mark.parametrize("dtype, name", [(object, "BYTES"), (np.float32, "FP32")])
@pytest.mark.parametrize("shape", HUGE, ids=str)
def test_shapes_beyond_any_array(dtype: Any, name: str, shape: list[int]) -> None:
    """Dims that the call decides are refused by their product, of Python's integers, in JSON and in binary."""
    dims = (None,) * len(shape)
    sig = Signature.of(Model({"t": (dims, dtype)}, {"u": (dims, dtype)}, lambda t: {"u": t}))  # type: ignore[dict-item]
    head = json.dumps(
        json.loads(asked(0, shape)) | {"inputs": [json.loads(asked(0, shape))["inputs"][0] | {"datatype": name}]}
    )
    for body, length in ((one(shape, [], name), None), (head.encode(), str(len(head)))):
        with pytest.raises(RequestError, match="has at most 67108864 elements, but gets shape"):
            read_request(body, length, sig)
    empty = read_request(one([7, *[0] * (len(shape) - 1)], [], name), None, sig).feeds["t"]
    assert empty.shape == (7, *[0] * (len(shape) - 1))


@pytest.mark.parametrize("dtype, name", [(object, "BYTES"), (np.float32, "FP32"), (np.int64, "INT64")])
@pytest.mark.parametrize("wrong", [0, 0.0, None, False, "", {}, 1])
def test_rows_that_are_none(dtype: Any, name: str, wrong: Any) -> None:
    """An element beside lists is refused, whatever its truth is."""
    sig = Signature.of(Model({"t": ((2, 2), dtype)}, {}, dict))
    with pytest.raises(RequestError, match=r"nested like shape \[2, 2\], and has .* at depth 1"):
        read_request(one([2, 2], [[1, 2], wrong], name), None, sig)


def test_a_body_without_json_of_several_texts() -> None:
    with pytest.raises(RequestError, match=r"has no shape, and input 't' is BYTES\[2\]"):
        read_request(b"ab", "0", signature(2))


def test_requests_with_text_share_calls() -> None:
    """Rows that nobody asked for are empty texts, and each request gets the texts of its own rows."""
    model = Model({"t": ((4, 1), object)}, {"u": ((4, 1), object), "n": ((4,), np.int64)},
                  lambda t: {"u": t + "!", "n": np.array([len(v) for v in t[:, 0]])})  # fmt: skip

    async def talk(client: Any, service: Any) -> None:
        import asyncio

        async def one(*words: str) -> None:
            item = tensor("t", text(*words).reshape(-1, 1), "BYTES")
            u, n = (await client.post(INFER, json={"inputs": [item]})).json()["outputs"]
            assert u["data"] == [f"{w}!" for w in words] and n["data"] == [len(w) for w in words]

        before = len(model.calls)
        await asyncio.gather(one("a"), one("bc", ""), one("ç"))
        assert len(model.calls) - before == 1

    served(model, talk, delay=5.0)


def test_what_a_call_decides_is_not_shared() -> None:
    """Rows of several lengths do not fit into one call, and what is refused beside others is served alone."""
    from lightnet.diagnostics import LightNetError

    def numbers(t: np.ndarray) -> dict[str, np.ndarray]:
        if not all(v.isdigit() for v in t.reshape(-1)):
            raise LightNetError("this is no number")
        return {"u": t.astype(np.int64)}

    class Open(Model):
        def __call__(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return self.function(**feeds)

    cases = [
        (Open({"t": ((2, None), object)}, {"u": ((2,), object)}, lambda t: {"u": t.sum(axis=1)}), [2, 3], "no batch in common"),
        (Open({"t": ((2, 3), object)}, {"u": ((2, None), object)}, lambda t: {"u": t}), [2, 3], "no batch in common"),
        (Model({"t": ((2,), object)}, {"u": ((2,), np.int64)}, numbers), [2], "refuses rows .*: this is no number"),
    ]  # fmt: skip

    for model, shape, words in cases:

        async def talk(client: Any, service: Any, shape: list[int] = shape, words: str = words) -> None:
            assert re.search(words, service.repository.notes[0])
            data = [str(i) for i in range(np.prod(shape))]
            reply = await client.post(INFER, json={"inputs": [tensor("t", text(*data).reshape(shape), "BYTES")]})
            assert reply.status_code == 200, reply.text

        served(model, talk, delay=0.01)


def test_a_network_with_text() -> None:
    """Categories and numbers in, labels and scores out, as ONNX Runtime gives them; rows that the call decides, too."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from text_models import FEEDS, by_runtime, pipeline

    import lightnet

    want = by_runtime(pipeline(), FEEDS)

    async def talk(client: Any, _: Any) -> None:
        about = (await client.get("/v2/models/m")).json()
        assert [(t["datatype"], t["shape"][1:]) for t in about["inputs"]] == [("BYTES", [1]), ("FP32", [2])]
        items = [tensor("colour", FEEDS["colour"], "BYTES"), tensor("x", FEEDS["x"])]
        reply = await client.post(INFER, json={"inputs": items})
        assert reply.status_code == 200, reply.text
        label, scores = reply.json()["outputs"]
        assert label["datatype"] == "BYTES" and label["data"] == want["label"].tolist()
        assert np.allclose(scores["data"], want["p"].reshape(-1), atol=1e-6)
        lost = await client.post(INFER, json={"inputs": items[1:]})
        assert lost.status_code == 400 and "'colour' (BYTES" in lost.json()["error"]

    from lightnet_serving.command import _Threads

    served(lightnet.compile(pipeline()), talk)
    served(
        _Threads(lightnet.compile(pipeline()), 1), talk
    )  # `lightnet serve --threads`: what text becomes is no input there, either


def test_sizes_that_nobody_knows_have_a_ceiling() -> None:
    """Text and open dims together; what the model's closed numbers take comes on top of it."""
    inputs = {"t": ((None, None, None), object), "x": ((3, 5), np.float32)}
    sig = Signature.of(Model(inputs, {"u": ((3,), np.float32)}, lambda t, x: {"u": x}), 0)
    assert sig.body_limit == JSON_BASE + MAX_OPEN + 15 * JSON_ELEMENT == sig.json_limit
    known = Signature.of(
        Model({"x": ((1 << 12, 1 << 12), np.float32)}, {"u": ((3,), np.float32)}, lambda x: {"u": x}), 0
    )
    assert known.body_limit > 1 << 24 and known.body_limit == JSON_BASE + (JSON_ELEMENT << 24)


def test_long_texts_are_written_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few elements may be long: characters count, not references."""
    import threading

    from lightnet_serving import app

    seen: list[str] = []
    written = app.protocol.write_reply
    monkeypatch.setattr(
        app.protocol, "write_reply", lambda *a: (seen.append(threading.current_thread().name), written(*a))[1]
    )
    model = Model({"t": ((2,), object)}, {"u": ((2,), object)}, lambda t: {"u": t})

    async def talk(client: Any, _: Any) -> None:
        for words in (text("a", "b"), text("a", "b" * 20_000)):
            assert (await client.post(INFER, json={"inputs": [tensor("t", words, "BYTES")]})).status_code == 200

    served(model, talk)
    assert "codec" not in seen[0] and "codec" in seen[1]
