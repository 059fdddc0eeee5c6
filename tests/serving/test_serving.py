"""The server in this process: what is answered, by whom, and in how many calls; and the command itself, once."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx")

from serving import Model, affine, served, tensor  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet_serving.batching import mixes_rows  # noqa: E402
from lightnet_serving.protocol import HEADER  # noqa: E402
from lightnet_serving.repository import ModelSource, Repository, ServingOptions  # noqa: E402

ROOT = Path(__file__).parents[2]
INFER = "/v2/models/m/infer"
RNG = np.random.default_rng(1)


def asked(x: np.ndarray, **more: Any) -> dict[str, Any]:
    return {"inputs": [tensor("x", x)], **more}


def answer(reply: Any, name: str = "y") -> np.ndarray:
    assert reply.status_code == 200, reply.text
    item = next(t for t in reply.json()["outputs"] if t["name"] == name)
    return np.array(item["data"]).reshape(item["shape"])


def metric(text: str, name: str, **labels: str) -> float:
    """A value in Prometheus' text, read by its own parser."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


# -- what is answered


def test_what_the_server_says_of_itself() -> None:
    async def talk(client: Any, _: Any) -> None:
        async def get(path: str, status: int = 200) -> Any:
            reply = await client.get(path)
            assert reply.status_code == status and reply.headers["content-type"] == "application/json"
            return reply.json()

        about = await get("/v2")
        assert about["name"] == "lightnet" and "binary_tensor_data" in about["extensions"]
        await get("/v2/health/live")
        await get("/v2/health/ready")
        for base in ("/v2/models/m", "/v2/models/m/versions/1"):
            found = await get(base)
            assert found["name"] == "m" and found["versions"] == ["1"]
            assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [8, 4]}]
            assert found["outputs"][1] == {"name": "z", "datatype": "BOOL", "shape": [8]}
            assert (await get(f"{base}/ready"))["ready"] is True
        for path in ("/v2/models/k", "/v2/models/k/ready", "/v2/models/m/versions/2", "/v3"):
            assert (await get(path, 404))["error"]
        assert (await get(INFER, 405))["error"]

    served(affine(), talk)


def test_infer_in_json_and_in_binary() -> None:
    x = RNG.normal(size=(8, 4)).astype(np.float32)

    async def talk(client: Any, _: Any) -> None:
        reply = await client.post(INFER, json=asked(x, id="a"))
        assert (answer(reply) == 2 * x + 1).all() and (answer(reply, "z") == (x.sum(axis=1) > 0)).all()
        top = reply.json()
        assert (top["model_name"], top["model_version"], top["id"]) == ("m", "1", "a")
        item = {"name": "x", "shape": [8, 4], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
        outputs = [{"name": "z"}, {"name": "y", "parameters": {"binary_data": True}}]
        head = json.dumps({"inputs": [item], "outputs": outputs}).encode()
        reply = await client.post(INFER, content=head + x.tobytes(), headers={HEADER: str(len(head))})
        length = int(reply.headers[HEADER])
        assert reply.headers["content-type"] == "application/octet-stream"
        z, y = json.loads(reply.content[:length])["outputs"]
        assert z["data"] == (x.sum(axis=1) > 0).tolist()
        assert y["parameters"] == {"binary_data_size": x.nbytes} and reply.content[length:] == (2 * x + 1).tobytes()

    served(affine(), talk)


def test_large_tensors_go_by_way_of_threads() -> None:
    """What takes long to read and write is not read on the loop's thread; the answer is the same."""
    model = Model({"x": ((300, 100), np.float32)}, {"y": ((300, 100), np.float32)}, lambda x: {"y": -x})
    x = RNG.normal(size=(300, 100)).astype(np.float32)
    seen: set[str] = set()

    async def talk(client: Any, service: Any) -> None:
        submit = service._codec.submit

        def watched(function: Any, *arguments: Any) -> Any:
            seen.add(function.__name__)
            return submit(function, *arguments)

        service._codec.submit = watched
        assert (answer(await client.post(INFER, json=asked(x))) == -x).all()

    served(model, talk)
    assert seen == {"read_request", "write_reply"}


def test_inputs_with_contents_of_their_own_may_be_left_out() -> None:
    class Program:
        required = ("x",)

    model = Model({"x": ((2,), np.float32), "k": ((2,), np.float32)}, {"y": ((2,), np.float32)},
                  lambda x, k=np.float32(3): {"y": x * k})  # fmt: skip
    model.program = Program()  # type: ignore[attr-defined]

    async def talk(client: Any, _: Any) -> None:
        x = np.array([1, 2], np.float32)
        assert answer(await client.post(INFER, json=asked(x))).tolist() == [3, 6]
        both = {"inputs": [tensor("x", x), tensor("k", x)]}
        assert answer(await client.post(INFER, json=both)).tolist() == [1, 4]

    served(model, talk)


# -- calls and batches


def test_requests_share_calls_and_get_their_own_rows() -> None:
    """Forty requests of one to three rows: each gets its rows, in fewer calls than requests, and none of more rows than there are."""
    model = affine(8)
    rows = [RNG.normal(size=(1 + k % 3, 4)).astype(np.float32) for k in range(40)]

    async def talk(client: Any, _: Any) -> str:
        model.calls.clear()  # those of looking whether rows mix
        replies = await asyncio.gather(*(client.post(INFER, json=asked(x)) for x in rows))
        for x, reply in zip(rows, replies):
            assert answer(reply).shape == x.shape and (answer(reply) == 2 * x + 1).all()
            assert (answer(reply, "z") == (x.sum(axis=1) > 0)).all()
        return (await client.get("/metrics")).text

    text = served(model, talk, delay=1.0, queue=64)  # a full call begins at once, and the last at the latest
    assert len(model.calls) <= 20 and set(model.calls) == {8}
    assert metric(text, "lightnet_batch_requests_count") == len(model.calls)
    assert metric(text, "lightnet_batch_requests_sum") == 40
    assert metric(text, "lightnet_rows_total") == sum(map(len, rows))


def test_no_request_waits_longer_than_the_delay() -> None:
    async def talk(client: Any, _: Any) -> None:
        x = np.ones((1, 4), np.float32)
        assert (answer(await client.post(INFER, json=asked(x))) == 3).all()  # alone, with seven rows of zeros

    served(affine(), talk, delay=0.01, timeout=20)


def test_a_request_that_the_network_refuses_fails_alone() -> None:
    def call(x: np.ndarray) -> dict[str, np.ndarray]:
        if (x < 0).any():
            raise LightNetError("x is negative", label="check.sign")
        return {"y": x}

    model = Model({"x": ((8, 1), np.int32)}, {"y": ((8, 1), np.int32)}, call)

    async def talk(client: Any, _: Any) -> list[int]:
        items = [{"inputs": [tensor("x", np.array([[v]]), "INT32")]} for v in (1, -1, 2, 3, -5, 4, 5, 6)]
        replies = await asyncio.gather(*(client.post(INFER, json=item) for item in items))
        assert replies[1].json() == {"error": "x is negative"}
        return [r.status_code for r in replies]

    assert served(model, talk, delay=1.0) == [200, 400, 200, 200, 400, 200, 200, 200]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("y", lambda x: {"y": x - x.mean(axis=0)}),
        ("y", lambda x: {"y": np.cumsum(x, axis=0)}),
        ("y", lambda x: {"y": x / (1 + np.abs(x).max())}),
        ("y", lambda x: {"y": np.sort(x, axis=0)}),
        ("y", lambda x: {"y": x + np.arange(8, dtype=x.dtype)[:, None]}),  # not of others, but of its place
        (None, lambda x: {"y": np.tanh(x)}),
        (None, lambda x: {"y": x / (1 + np.abs(x).sum(axis=1, keepdims=True))}),
    ],
)
def test_networks_whose_rows_depend_on_others_are_found(name: str | None, function: Any) -> None:
    assert mixes_rows(lambda feeds: function(**feeds), {"x": ((8, 3), np.dtype(np.float32))}, 8) == name


def test_what_has_no_batch_is_called_alone() -> None:
    """Dims that differ, or rows that depend on others: shapes stay fixed, and the server says why."""
    mixing = Model({"x": ((4, 1), np.float32)}, {"y": ((4, 1), np.float32)}, lambda x: {"y": x - x.mean(axis=0)})
    odd = Model({"x": ((4, 1), np.float32)}, {"y": ((), np.float32)}, lambda x: {"y": x.sum()})

    async def talk(client: Any, service: Any) -> list[str]:
        for name in ("mixing", "odd"):
            found = (await client.get(f"/v2/models/{name}")).json()
            assert found["inputs"][0]["shape"] == [4, 1]
            reply = await client.post(f"/v2/models/{name}/infer", json=asked(np.ones((2, 1), np.float32)))
            assert reply.status_code == 400 and "has shape [4, 1], but gets [2, 1]" in reply.json()["error"]
        x = np.array([[1], [2], [3], [6]], np.float32)
        reply = await client.post("/v2/models/mixing/infer", json=asked(x))
        assert answer(reply).tolist() == [[-2], [-1], [0], [3]]
        return service.repository.notes

    notes = served({"mixing": mixing, "odd": odd}, talk, delay=0.0)
    assert len(notes) == 2 and "rows of output 'y' depend" in notes[0] and "no batch in common" in notes[1]


def test_calls_run_at_the_same_time_and_the_loop_goes_on() -> None:
    """Two calls wait for each other, which they could not one after the other; meanwhile the server answers."""
    barrier, begun = threading.Barrier(3), threading.Semaphore(0)

    def call(x: np.ndarray) -> dict[str, np.ndarray]:
        begun.release()
        barrier.wait(30)
        return {"y": x}

    model = Model({"x": ((1,), np.float32)}, {"y": ((1,), np.float32)}, call)

    async def talk(client: Any, _: Any) -> None:
        item = asked(np.ones(1, np.float32))
        tasks = [asyncio.create_task(client.post(INFER, json=item)) for _ in range(2)]
        while not begun._value >= 2:  # type: ignore[attr-defined]
            assert (await client.get("/v2/health/live")).status_code == 200
            await asyncio.sleep(0)  # in one process, asking may never leave the loop
        await asyncio.to_thread(barrier.wait, 30)
        for task in tasks:
            answer(await task)

    served(model, talk, workers=2)


# -- limits


def test_beyond_the_queue_there_is_503_and_nothing_is_lost() -> None:
    gate = threading.Event()

    def call(x: np.ndarray) -> dict[str, np.ndarray]:
        gate.wait(30)
        return {"y": x}

    model = Model({"x": ((1,), np.float32)}, {"y": ((1,), np.float32)}, call)

    async def talk(client: Any, service: Any) -> str:
        item = asked(np.ones(1, np.float32))
        tasks = [asyncio.create_task(client.post(INFER, json=item)) for _ in range(9)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(3):  # those that were refused
            await asyncio.sleep(0)
        text = (await client.get("/metrics")).text
        assert metric(text, "lightnet_requests_accepted") == 4 and metric(text, "lightnet_queue_size") == 3
        gate.set()
        replies = await asyncio.gather(*tasks)
        assert sorted(r.status_code for r in replies) == [200] * 4 + [503] * 5
        for reply in replies:
            if reply.status_code == 503:
                assert int(reply.headers["retry-after"]) >= 1 and "has 4 requests" in reply.json()["error"]
        assert (await client.post(INFER, json=item)).status_code == 200
        return (await client.get("/metrics")).text

    text = served(model, talk, queue=4)
    assert metric(text, "lightnet_requests_accepted") == 0
    assert metric(text, "lightnet_request_failures_total", status="503") == 5
    assert metric(text, "lightnet_requests_total", status="200") == 5


def test_a_request_that_takes_too_long_is_given_up() -> None:
    """One that runs, and one behind it, which is never run."""
    gate = threading.Event()

    def call(x: np.ndarray) -> dict[str, np.ndarray]:
        gate.wait(30)
        return {"y": x}

    model = Model({"x": ((1,), np.float32)}, {"y": ((1,), np.float32)}, call)

    async def talk(client: Any, _: Any) -> None:
        item = asked(np.ones(1, np.float32))
        replies = await asyncio.gather(*(client.post(INFER, json=item) for _ in range(2)))
        assert [r.status_code for r in replies] == [504, 504]
        assert {r.json()["error"].rpartition(": ")[2] for r in replies} == {"it runs", "it was not begun"}
        gate.set()

    served(model, talk, timeout=0.2)
    assert len(model.calls) == 1


def test_large_bodies_are_not_read() -> None:
    async def talk(client: Any, service: Any) -> None:
        limit = service.repository.model("m").signature.body_limit
        sent = 0

        async def endless() -> Any:
            nonlocal sent
            for _ in range(1000):
                sent += 10_000
                yield bytes(10_000)

        reply = await client.post(INFER, content=endless())
        assert reply.status_code == 413 and f"may have {limit} bytes" in reply.json()["error"]
        reply = await client.post(INFER, content=b"", headers={"Content-Length": "9" * 30})
        assert reply.status_code == 413
        reply = await client.post(INFER, content=b"1", headers={"Content-Encoding": "gzip"})
        assert reply.status_code == 415

    served(affine(), talk)

    async def small(client: Any, _: Any) -> None:
        assert (await client.post(INFER, json=asked(np.ones((8, 4), np.float32)))).status_code == 413

    served(affine(), small, max_body=100)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def talk(client: Any, _: Any) -> None:
        async def slow() -> Any:
            yield b"{"
            await asyncio.sleep(30)

        reply = await client.post(INFER, content=slow())
        assert reply.status_code == 408

    served(affine(), talk, timeout=0.2)


def test_a_bug_is_no_traceback_for_the_client(capsys: pytest.CaptureFixture[str]) -> None:
    def call(x: np.ndarray) -> dict[str, np.ndarray]:
        raise ZeroDivisionError("secret")

    async def talk(client: Any, _: Any) -> str:
        reply = await client.post(INFER, json=asked(np.ones(1, np.float32)))
        assert reply.status_code == 500 and reply.json() == {"error": "internal error: the server's log has more"}
        return (await client.get("/metrics")).text

    text = served(Model({"x": ((1,), np.float32)}, {"y": ((1,), np.float32)}, call), talk)
    assert "secret" in capsys.readouterr().err and metric(text, "lightnet_request_failures_total", status="500") == 1


# -- the repository


def test_versions() -> None:
    async def main() -> None:
        sources = [ModelSource("m", lambda s=s: affine(1, scale=s), v) for v, s in (("2", 2.0), ("10", 10.0))]
        from serving import Service, make_app

        service = Service(sources, ServingOptions()).open()
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=make_app(service)), base_url="http://test"
        ) as client:
            x = np.ones((1, 4), np.float32)
            for path, scale in (("m", 10), ("m/versions/2", 2), ("m/versions/10", 10)):
                assert (answer(await client.post(f"/v2/models/{path}/infer", json=asked(x))) == scale + 1).all()
            assert (await client.get("/v2/models/m")).json()["versions"] == ["2", "10"]
        await service.close()

    asyncio.run(main())
    with pytest.raises(LightNetError, match="given twice as version 1"):
        source = ModelSource("m", affine)
        Repository([source, source], ServingOptions(), None)  # type: ignore[arg-type]


def test_loading_again_beside_requests() -> None:
    """Requests that are there run on what they were read for; what does not load leaves what is there."""
    gate, made = threading.Event(), []

    def load() -> Model:
        if len(made) == 2:
            made.append(affine())
            raise OSError(errno.EMFILE, "Too many open files")
        if len(made) == 3:
            raise LightNetError("m.lnx: the file is damaged")
        model = affine(1, scale=float(len(made)))
        if not made:
            inner = model.function
            model.function = lambda x: gate.wait(30) and inner(x)
        made.append(model)
        return model

    x = np.ones((1, 4), np.float32)

    async def talk(client: Any, service: Any) -> None:
        path = "/v2/repository/models/m/load"
        first = asyncio.create_task(client.post(INFER, json=asked(x)))
        while not len(service.repository.model("m").queue._running):
            await asyncio.sleep(0)
        assert (await client.post(path)).status_code == 200
        second = asyncio.create_task(client.post(INFER, json=asked(x)))
        await asyncio.sleep(0.05)
        assert not made[0].closed
        gate.set()
        assert (answer(await first) == 1).all() and (answer(await second) == 2).all()
        reply = await client.post(path)
        assert reply.status_code == 503 and "Too many open files" in reply.json()["error"]
        reply = await client.post(path)
        assert reply.status_code == 400 and "damaged" in reply.json()["error"]
        assert (answer(await client.post(INFER, json=asked(x))) == 2).all()
        while not made[0].closed:
            await asyncio.sleep(0)
        index = (await client.post("/v2/repository/index", json={})).json()
        assert index == [{"name": "m", "version": "1", "state": "READY", "reason": ""}]
        assert (await client.post("/v2/repository/models/m/unload")).status_code == 200
        assert (await client.post(INFER, json=asked(x))).status_code == 503
        assert (await client.get("/v2/health/ready")).status_code == 503
        assert (await client.post("/v2/repository/models/k/load")).status_code == 404
        text = (await client.get("/metrics")).text
        assert metric(text, "lightnet_loads_total", outcome="ok") == 2
        assert metric(text, "lightnet_loads_total", outcome="error") == 2

    served({"m": load}, talk, control=True)

    async def without(client: Any, _: Any) -> None:
        for what in ("load", "unload"):
            assert (await client.post(f"/v2/repository/models/m/{what}")).status_code == 403

    served(affine(), without)


def test_a_model_is_not_closed_while_a_body_comes() -> None:
    """One that is replaced between a request's head and its body answers the request still."""
    made: list[Model] = []

    def load() -> Model:
        made.append(affine(1, scale=float(len(made))))
        return made[-1]

    x = np.ones((1, 4), np.float32)
    body = json.dumps(asked(x)).encode()

    async def talk(client: Any, service: Any) -> None:
        begun, going = asyncio.Event(), asyncio.Event()

        async def parts() -> Any:
            yield body[:10]
            begun.set()
            await going.wait()
            yield body[10:]

        reply = asyncio.create_task(client.post(INFER, content=parts()))
        await begun.wait()
        old = service.repository.model("m")
        while not old._users:  # its head has come
            await asyncio.sleep(0)
        assert (await client.post("/v2/repository/models/m/load")).status_code == 200
        await asyncio.sleep(0.02)
        assert not made[0].closed
        going.set()
        assert (answer(await reply) == 1).all()
        while not made[0].closed:
            await asyncio.sleep(0)

    served({"m": load}, talk, control=True)


# -- the command


def test_replies_are_not_held_back() -> None:
    """A connection sends at once (no Nagle's algorithm, by which the second part of a reply waits for an acknowledgement)."""
    from lightnet_serving.server import listen

    async def main() -> int:
        options: list[int] = []

        async def connected(reader: Any, writer: asyncio.StreamWriter) -> None:
            options.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as sock:
            server = await asyncio.start_server(connected, sock=sock)
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            await reader.read()
            writer.close()
            server.close()
        return options[0]

    assert asyncio.run(main()) != 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_socket_listens_on_addresses_of_both_kinds(host: str) -> None:
    """From the start: clients wait in its queue until the server answers, and no other server gets the port."""
    from lightnet_serving.server import listen

    try:
        with socket.socket(socket.AF_INET6 if host == "::1" else socket.AF_INET) as free:
            free.bind((host, 0))
    except OSError as e:
        pytest.skip(f"this machine has no address {host}: {e}")
    with listen(host, 0) as sock:
        assert sock.getsockname()[0] == host
        port = sock.getsockname()[1]
        with socket.create_connection((host, port), timeout=10) as client:
            assert client.getpeername()[:2] == (host, port)
        with pytest.raises(LightNetError, match=f"cannot listen on {re.escape(host)}:{port}: Address already in use"):
            listen(host, port)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A perceptron of eight rows, saved."""
    folder = tmp_path_factory.mktemp("serve")
    rows = "create(| dst=x | dtype=TL_FLOAT, dims=[8, 16], data=[0], ran=[-1, 1], from_file=false);\n"
    (folder / "mlp.net").write_text(rows + "softmax(src=x | dst=y | axis=1);\n")
    lightnet.compile(folder / "mlp.net").save(folder / "mlp.lnx")
    return folder / "mlp.lnx"


def start(*words: str) -> tuple[subprocess.Popen[str], str]:
    """The command, and the address that it serves on."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lightnet.cli.lightnet", "serve", "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"on (http://\S+)", line):
            return process, found[1]
    raise AssertionError(f"no server: {process.wait()}")


def test_command(saved: Path) -> None:
    """A request over a socket, SIGHUP, a stop that finishes what is accepted, and status 0."""
    pytest.importorskip("uvicorn")
    process, address = start(str(saved), f"other:3={saved}", "--batch-delay", "300", "--workers", "1")
    try:
        assert process.stderr is not None
        run = lightnet.load_executable(saved)
        x = RNG.normal(size=(8, 16)).astype(np.float32)
        with httpx.Client(base_url=address, timeout=60) as client:
            reply = client.post("/v2/models/mlp/infer", json=asked(x))
            assert np.array_equal(answer(reply).astype(np.float32), run({"x": x})["y"])
            assert client.get("/v2/models/other/versions/3").json()["versions"] == ["3"]
            process.send_signal(signal.SIGHUP)
            assert "loaded mlp again" in process.stderr.readline()
            results: list[Any] = []
            ask = threading.Thread(
                target=lambda: results.append(client.post("/v2/models/other/infer", json=asked(x[:3])))
            )
            ask.start()  # it waits for others to share its call
            while metric(httpx.get(f"{address}/metrics").text, "lightnet_requests_accepted") < 1 and not results:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            ask.join(60)
            assert np.array_equal(answer(results[0]).astype(np.float32), run({"x": x})["y"][:3])
        assert process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/v2")
    finally:
        process.kill()
        process.communicate()


def test_a_network_is_compiled_first(saved: Path) -> None:
    """With the options of `lightnet compile`, for as many threads as a call may use."""
    from lightnet_serving import command as serve

    args = serve._parser().parse_args([f"n={saved.with_suffix('.net')}", "--threads", "2", "--workers", "1"])
    (source,) = serve._sources(args)
    assert source.name == "n"
    x = RNG.normal(size=(8, 16)).astype(np.float32)

    async def talk(client: Any, _: Any) -> None:
        reply = await client.post("/v2/models/n/infer", json=asked(x))
        assert np.array_equal(answer(reply).astype(np.float32), lightnet.load_executable(saved)({"x": x})["y"])

    served({"n": source.load}, talk)


@pytest.mark.slow
def test_soak() -> None:
    """Each of the things that go wrong, for some seconds: no wrong answer, and no crash."""
    command = [sys.executable, str(ROOT / "tools" / "soak.py"), "--minutes", "0.27", "--no-peer", "--replace", "rename"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"wrong answers +0\n", done.stdout)


def test_wrong_arguments(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each, and status 1."""
    from lightnet.cli.lightnet import main

    (tmp_path / "bad.lnx").write_bytes(b"LNEXE4\n\0" + bytes(100))
    cases = {
        (str(tmp_path / "none.lnx"),): "none.lnx: error: ",
        (str(tmp_path / "bad.lnx"),): "bad.lnx",
        (str(saved), str(saved)): "given twice as version 1",
        (f"a/b={saved}",): "cannot be a model's name",
        (str(saved), "--queue", "0"): "--queue should be at least 1",
        (str(saved), "--threads", "200"): "compiled for 1",
        (str(saved), "--host", "256.1.1.1"): "cannot listen on 256.1.1.1",
        (str(saved), "--port", "99999999"): "cannot listen on",
    }
    for words, message in cases.items():
        assert main(["serve", "--port", "0", *words]) == 1, words
        err = capsys.readouterr().err
        assert message in err and "Traceback" not in err, err
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: name.startswith("lightnet") or None)
    assert main(["serve", str(saved)]) == 1
    assert (
        "needs starlette, uvicorn, prometheus_client: pip install 'lightnet-compiler[serve]'" in capsys.readouterr().err
    )
