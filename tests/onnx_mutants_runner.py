"""Reads, imports and compiles ONNX models under limits: a line with a path in, a line of JSON out.

An answer has the stage that refused ("" for a model that was accepted), the message, and this process's peak
memory so far in bytes. What is no `LightNetError` is a bug, as is what does not end: its traceback is in "crash".
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
from typing import Any

from counting import ends

import lightnet
from lightnet.diagnostics import LightNetError

ADDRESS_SPACE = 6 << 30


def answer(path: str) -> dict[str, Any]:
    result: dict[str, Any] = {"stage": "", "message": "", "crash": ""}
    stage = "load"
    try:
        with ends():
            model = lightnet.load(path)
            stage = "compile"
            lightnet.compile(model)
    except LightNetError as error:
        result.update(stage=stage, message=str(error))
    except BaseException:
        result.update(stage=stage, crash=traceback.format_exc())
    result["rss"] = peak_bytes()
    return result


def peak_bytes() -> int:
    """This process's peak memory; `ru_maxrss` would count that of the process that forked it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for line in sys.stdin:
        print(json.dumps(answer(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
