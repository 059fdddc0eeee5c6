"""Runs `lightnet` under limits and reports what it used: a process that imports the compiler once and forks for each
request.

A request is a line of JSON on standard input (``argv``, ``cwd``, ``stdin``: a file), an answer one on standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
from typing import Any

import commands

ADDRESS_SPACE = 6 << 30
SECONDS = 60  # of processor time, ten times what anything here takes, after which a run is killed; one that only waits is after TOO_LONG
TOO_LONG = 600


def child(request: dict[str, Any], out: int, err: int) -> None:
    """Become the command; never returns."""
    status = 99
    try:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(TOO_LONG)
        os.dup2(os.open(request.get("stdin", os.devnull), os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(request["cwd"])
        from lightnet.cli.lightnet import main

        try:
            status = main(request["argv"])
        except SystemExit as e:
            status = int(e.code or 0)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    os._exit(status)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            child(request, out.fileno(), err.fileno())
        _, status, usage = os.wait4(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(100_000).decode("utf-8", "replace"))
    status = os.waitstatus_to_exitcode(status)
    return {"status": status, "rss": usage.ru_maxrss << 10, "out": texts[0], "err": texts[1]}


def main() -> None:
    commands.warm()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
