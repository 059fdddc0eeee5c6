"""The clients of tools/soak.py: proper and malformed requests, and a look at every answer."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException

import numpy as np

PATH = "/v2/models/net/infer"


def ask(connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    data = reply.read()
    if reply.getheader("Inference-Header-Content-Length"):
        data = data[int(reply.headers["Inference-Header-Content-Length"]) :]
    return reply.status, data


class Client(threading.Thread):
    """Asks a server until a time, and looks at every answer."""

    def __init__(
        self, connect: Callable[[], HTTPConnection], until: float, number: int, x: np.ndarray, answers: list[np.ndarray]
    ):
        super().__init__()
        self.connect, self.until, self.rng = connect, until, random.Random(f"{number} {until}")
        self.x, self.answers = x, answers
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []

    def run(self) -> None:
        """Ask, one request after the other."""
        connection = self.connect()
        while time.monotonic() < self.until:
            if self.rng.random() < 0.02:
                connection.close()  # the next request opens another
            try:
                self.malformed(connection) if self.rng.random() < 0.1 else self.proper(connection)
            except (OSError, HTTPException):
                self.counts["no connection"] += 1
                connection.close()
                time.sleep(0.01)
        connection.close()

    def proper(self, connection: HTTPConnection) -> None:
        """A request of some rows, in binary."""
        count = self.rng.randint(1, 3)
        start = self.rng.randrange(len(self.x) - count)
        rows = self.x[start : start + count]
        head, headers = described(rows)
        begin = time.perf_counter()
        status, data = ask(connection, PATH, head + rows.tobytes(), headers)
        seconds = time.perf_counter() - begin
        if status not in (
            200,
            503,
        ):  # busy, or without a descriptor, is what a server may be; a proper request is not wrong
            self.counts[f"REFUSED, status {status}: {data[:200]!r}"] += 1
            return
        self.counts[f"status {status}"] += 1
        if status != 200:
            return
        self.seconds.append(seconds)
        y = np.frombuffer(data, np.float32).reshape(count, -1)
        if not any(np.abs(y - answer[start : start + count]).max() < 1e-4 for answer in self.answers):
            self.counts["WRONG"] += 1

    def malformed(self, connection: HTTPConnection) -> None:
        """A request with something changed in it, which may not be answered by 200 or 500."""
        rows = self.x[:2]
        head, headers = described(rows)
        body = head + rows.tobytes()
        kind = self.rng.randrange(5)
        if kind == 0:
            body = body[: self.rng.randrange(len(body))]
        elif kind == 1:
            head = head.replace(b"FP32", b"INT8")
            body = head + rows.tobytes()
        elif kind == 2:
            headers["Inference-Header-Content-Length"] = self.rng.choice(["-1", "x", "99999", "1"])
        elif kind == 3:
            body = bytes(self.rng.randrange(256) for _ in range(50)) + body
        else:
            body = b"[" * 5000
            headers = {}
        status, data = ask(connection, PATH, body, headers)
        fine = (400 <= status < 500 or status == 503) and (b"Traceback" not in data)
        self.counts["malformed, refused" if fine else f"MALFORMED, status {status}"] += 1


def described(rows: np.ndarray) -> tuple[bytes, dict[str, str]]:
    """The JSON of a request, and its headers."""
    item = {"name": "x", "shape": list(rows.shape), "datatype": "FP32", "parameters": {"binary_data_size": rows.nbytes}}
    head = json.dumps({"inputs": [item], "parameters": {"binary_data_output": True}}).encode()
    return head, {"Inference-Header-Content-Length": str(len(head))}
