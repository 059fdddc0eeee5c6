"""Reads, imports and compiles ONNX models under limits: a line with a path in, a line of JSON out.

An answer has the stage that refused ("" for a model that was accepted), the message, CPU seconds, and this process's peak
memory so far in bytes. What is no `LightNetError` is a bug: its traceback is in "crash".
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import traceback
from typing import Any

import lightnet
from lightnet.diagnostics import LightNetError

ADDRESS_SPACE = 6 << 30
SECONDS = 20  # after which a model is given up


def stopped(signum: int, frame: Any) -> None:
    raise TimeoutError(f"stopped after {SECONDS} s")


def answer(path: str) -> dict[str, Any]:
    result: dict[str, Any] = {"stage": "", "message": "", "crash": ""}
    start = time.process_time()
    stage = "load"
    signal.alarm(SECONDS)
    try:
        model = lightnet.load(path)
        stage = "compile"
        lightnet.compile(model)
    except LightNetError as error:
        result.update(stage=stage, message=str(error))
    except BaseException:
        result.update(stage=stage, crash=traceback.format_exc())
    signal.alarm(0)
    result["seconds"] = time.process_time() - start
    result["rss"] = peak_bytes()
    return result


def peak_bytes() -> int:
    """This process's peak memory; `ru_maxrss` would count that of the process that forked it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, stopped)
    for line in sys.stdin:
        print(json.dumps(answer(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
