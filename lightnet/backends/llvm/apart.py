"""Runs of LLVM's middle end in processes of their own, once this one has done many of them.

Each run of a default pipeline leaves some 70 KB behind that nothing gives back (objects of `InstCombinePass`, LLVM 22
in llvmlite 0.50, found with heaptrack), and a pass manager cannot be used twice. A process that compiles for hours
would grow without end, so only its first `OWN` runs happen in it; later ones happen in children, which end after
`PER_CHILD` each. A child is a Python that is told what to run on its standard input and ends with it. Where none can be
started, or one dies, the work happens here. Imports diagnostics; the child, what it is told.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import IO

from lightnet.diagnostics import LightNetError

#: Runs that happen in this process: 28 MB. Larger than the number of kernels of any network that we know.
OWN = 400
#: Runs of a child before it is replaced: it is then twice as large as when it began.
PER_CHILD = 600
#: Children that wait for further work, at most.
IDLE = 2

_lock = threading.Lock()
_done = 0
_usable = True
_idle: list[_Child] = []


def is_due() -> bool:
    """Count a run of the middle end; whether it should happen in a child."""
    global _done
    with _lock:
        _done += 1
        return _done > OWN and _usable


def run_apart(task: str, *args: str | int | bool) -> bytes | None:
    """The result of the function ``module:name`` for `args`, in a child; None where there is no child. Raises the
    `LightNetError` that it raises."""
    with _lock:
        child = _idle.pop() if _idle else None
    try:
        child = child or _Child()
        answer = child.ask(task, args)
    except (OSError, EOFError):
        _give_up(child)
        return None
    with _lock:
        keep = child.asked < PER_CHILD and len(_idle) < IDLE
        if keep:
            _idle.append(child)
    if not keep:
        child.close()
    if isinstance(answer, LightNetError):
        raise answer
    return answer


def _give_up(child: _Child | None) -> None:
    """A child that answered before has died, of this work perhaps; one that never did will not the next time."""
    global _usable
    if child is None or child.asked <= 1:
        _usable = False
    if child is not None:
        child.close()


class _Child:
    """A process that runs what it is asked, one request at a time."""

    def __init__(self) -> None:
        import subprocess

        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import {_serve.__name__}; "
        code += f"{_serve.__name__}(sys.stdin.buffer, sys.stdout.buffer)"
        self.asked = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process alone
        )

    def ask(self, task: str, args: tuple[str | int | bool, ...]) -> bytes | LightNetError:
        """The answer to a request. Raises OSError or EOFError where the process has ended."""
        self.asked += 1
        assert self.process.stdin is not None and self.process.stdout is not None
        _send(self.process.stdin, b"T", json.dumps([task, args]).encode())
        kind, data = _receive(self.process.stdout)
        return data if kind == b"R" else LightNetError(**json.loads(data))

    def close(self) -> None:
        """End the process and wait for that."""
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        self.process.wait()


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests, as a child, until there are no more."""
    while True:
        try:
            _, data = _receive(requests)
        except EOFError:
            return
        task, args = json.loads(data)
        module, _, name = task.partition(":")
        try:
            _send(answers, b"R", getattr(import_module(module), name)(*args))
        except LightNetError as error:
            _send(answers, b"E", json.dumps({"message": error.message, "label": error.label}).encode())


def _send(stream: IO[bytes], kind: bytes, data: bytes) -> None:
    stream.write(kind + len(data).to_bytes(8, "little") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, bytes]:
    head = stream.read(9)
    size = int.from_bytes(head[1:], "little")
    if len(head) < 9 or len(data := stream.read(size)) < size:
        raise EOFError
    return head[:1], data


def _forget() -> None:
    """In a fork: the children are the other process's, and so are their pipes."""
    global _lock, _idle
    _lock, _idle = threading.Lock(), []


@atexit.register
def _end() -> None:
    while _idle:
        _idle.pop().close()


os.register_at_fork(after_in_child=_forget)
