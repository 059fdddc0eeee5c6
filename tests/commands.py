"""The project's commands for tests that run shell scripts: each is a process of its own, but forked from one that has imported the
compiler, which every command would do for a second before it begins.

`folder()` goes first on PATH. Its programs hand their arguments, folder, environment and standard streams to the server, and end as the
command ends; what a command does to its process (plugins, variables, limits) ends with it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Packages that commands need.
PACKAGES = (
    "lightnet",
    "lightnet_debug",
    "lightnet_descriptions",
    "lightnet_export",
    "lightnet_ml",
    "lightnet_nnvm",
    "lightnet_ort",
    "lightnet_report",
    "lightnet_simt",
    "lightnet_trust",
    "lightnet_xdsl",
)

#: A program of the folder: it imports what it needs and no more, as it starts for each command.
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
request = json.dumps([words, os.getcwd(), dict(os.environ)]).encode("utf-8", "surrogateescape")
socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
server.sendall(request)
status = int(server.makefile().read() or 70)
if status < 0:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def entries() -> dict[str, str]:
    """The commands of pyproject.toml, as ``module:function`` by name."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]


@cache
def folder() -> str:
    """A folder with a program for each command, and the server that they ask; both go with this process. Where the system has no
    descriptors of processes (Linux has), the folder of the real programs."""
    if not hasattr(os, "pidfd_open"):
        return str(Path(sys.executable).parent)
    path = tempfile.mkdtemp(prefix="lightnet-commands-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    address = os.path.join(path, ".server")
    for name in entries():
        program = Path(path, name)
        program.write_text(CLIENT.format(python=sys.executable, path=address))
        program.chmod(0o755)
    words = [sys.executable, __file__, address]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert server.stdin is not None and server.stdout is not None
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # which ends it; atexit calls the last first
    assert server.stdout.readline() == b"ready\n"
    return path


def environment() -> dict[str, str]:
    """The environment of this process, with `folder()` before all else on PATH; loops are verified where a user's would be."""
    path = os.pathsep.join([folder(), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "LIGHTNET_VERIFY": ""}


def serve(address: str) -> None:
    """Run the commands that clients ask for, each in a process of its own, until standard input ends."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    print("ready", flush=True)
    running: dict[
        int, tuple[int, socket.socket]
    ] = {}  # by the descriptor that says when it ends: its number, and who waits for it
    while True:
        ready = select.select([listening, sys.stdin, *running], [], [])[0]
        if sys.stdin in ready:
            return
        if listening in ready:
            client, _ = listening.accept()
            pid = _started(client)
            running[os.pidfd_open(pid)] = pid, client
        for ended in running.keys() & set(ready):
            pid, client = running.pop(ended)
            _, status = os.waitpid(pid, 0)
            os.close(ended)
            with client, suppress(OSError):
                client.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _started(client: socket.socket) -> int:
    """The number of the process of the command that a client asks for."""
    head, streams, _, _ = socket.recv_fds(client, 8, 3)
    size, data = int.from_bytes(head, "little"), b""
    while len(data) < size and (part := client.recv(1 << 16)):
        data += part
    pid = os.fork()
    if pid == 0:
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, max(streams) + 1)
        _become(*json.loads(data.decode("utf-8", "surrogateescape")))
    for stream in streams:
        os.close(stream)
    return pid


def _become(words: list[str], where: str, variables: dict[str, str]) -> None:
    """Run a command as its script would, and end."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.chdir(where)
    os.environ.clear()
    os.environ.update(variables)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")
    sys.argv = words
    sys.path.insert(0, str(Path(sys.executable).parent))
    module, _, name = entries()[words[0]].partition(":")
    sys.exit(getattr(import_module(module), name)())


def warm() -> None:
    """Import what commands import; what is not installed is left to those that ask for it."""
    from lightnet.ir.collector import collector_paused

    paths = [(import_module(name).__path__, f"{name}.") for name in PACKAGES]
    for found in (m for path, prefix in paths for m in pkgutil.walk_packages(path, prefix, onerror=lambda name: None)):
        with suppress(ImportError):
            import_module(found.name)
    gc.freeze()
    with collector_paused():  # which counts what is frozen, here and not in each process
        pass


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    warm()
    serve(sys.argv[1])
