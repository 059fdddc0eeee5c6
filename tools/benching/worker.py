"""One engine in a process of its own, commanded over pipes: ``python worker.py JOB`` (`rotation.Worker` starts it).

JOB is JSON (`engines.py` says what it holds), with `cores`, to which the process is bound before any library makes threads, and
`spawned`, the monotonic time at which the parent started it. One JSON object a line goes each way: first what starting took, then
an answer to each command. Between commands the process is blocked on its pipe; before it answers, it waits until its threads have
stopped spinning, so that they do not run in somebody else's slice. Imports engines.py and the standard library.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

STEP = 0.005
#: Seconds to wait for threads that spin, and the part of a step in which none of them runs.
PATIENCE, IDLE = 0.5, 0.1


def settled() -> float:
    """Wait until this process has used no processor time for a while; the seconds that it used meanwhile. (ONNX Runtime's threads spin
    for 30 ms after a call, OpenVINO's for 1 ms.)"""
    start, end, quiet = time.process_time(), time.monotonic() + PATIENCE, 0
    while time.monotonic() < end and quiet < 2:
        before = time.process_time()
        time.sleep(STEP)
        quiet = quiet + 1 if time.process_time() - before < IDLE * STEP else 0
    return time.process_time() - start


def timed(call: Callable[[], Any], seconds: float, clock: Callable[[], float], least: int) -> list[float]:
    """Seconds of each call, for about `seconds` and at least `least` calls, after a tenth of that (at least one call) uncounted."""
    end = time.monotonic() + seconds / 10
    call()
    while time.monotonic() < end:
        call()
    times: list[float] = []
    end = time.monotonic() + seconds
    while len(times) < least or time.monotonic() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return times


def peak_memory() -> int:
    """The largest resident set of this process in bytes. (`getrusage` has that of the parent before `exec`, too.)"""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def answer(engine: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Do what a command says."""
    what = command["do"]
    if what == "run":
        clock = time.process_time if command.get("clock") == "cpu" else time.perf_counter
        if hasattr(engine, "rate"):
            return {"rate": engine.rate(command["seconds"])}
        times = timed(engine.call, command["seconds"], clock, command.get("least", 3))
        return {"median": statistics.median(times), "min": min(times), "calls": len(times), "spun": settled()}
    if what == "feed":
        return fed(engine, command["network"], command["numbers"], command["seed"])
    if what == "stream":
        return streamed(engine, command["network"], command["numbers"], command["seed"])
    if what == "decode":
        return decoded(engine, command["network"], command["tokens"])
    if what == "outputs":
        from engines import write_arrays

        write_arrays(command["path"], engine.outputs())
        return {}
    if what == "save":
        engine.save(command["path"])
        return {}
    if what == "profile":
        return {"text": engine.profile()}
    raise ValueError(what)


def fed(engine: Any, about: dict[str, Any], numbers: dict[str, int], seed: int) -> dict[str, Any]:
    """Give the engine inputs of another shape of an open network; what the first call on them took."""
    engine.feed(_network(about).feeds(numbers, seed))
    start = time.perf_counter()
    engine.call()
    return {"first": time.perf_counter() - start, "memory": peak_memory(), **engine.info()}


def streamed(engine: Any, about: dict[str, Any], requests: list[dict[str, int]], seed: int) -> dict[str, Any]:
    """The seconds of each of some calls of an open network, every one of a shape of its own."""
    network, times = _network(about), []
    for k, numbers in enumerate(requests):
        engine.feed(network.feeds(numbers, seed + k))
        start = time.perf_counter()
        engine.call()
        times.append(time.perf_counter() - start)
    spun = settled()
    return {"times": times, "memory": peak_memory(), "spun": spun}


def decoded(engine: Any, about: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Tokens, each the likeliest one after those before, which are in the cache that goes back in; the seconds of each call."""
    network, times, chosen = _network(about), [], []
    for _ in range(tokens):
        start = time.perf_counter()
        found = engine.outputs()
        times.append(time.perf_counter() - start)
        chosen.append(int(found[network.outputs[0]].reshape(-1).argmax()))
        (ids,) = (n for n, i in network.inputs.items() if i.kind == "ids")
        engine.feeds = {**engine.feeds, **{old: found[new] for old, new in network.cache}}
        engine.feeds[ids] = engine.feeds[ids] * 0 + chosen[-1]
    settled()
    return {"times": times, "tokens": chosen, "memory": peak_memory()}


def _network(about: dict[str, Any]) -> Any:
    """The network with open dims that a command describes."""
    tools = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if tools not in sys.path:
        sys.path.append(tools)
    from opening.networks import OpenNetwork

    return OpenNetwork.read(about)


def started(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The engine with its network loaded and called once, and the seconds of each step since the process was spawned."""
    import numpy as np
    from engines import ENGINES

    feeds = dict(np.load(job["feeds"])) if job.get("feeds") else {}
    engine = ENGINES[job["engine"]](job, feeds)
    imported = time.monotonic()
    engine.load()
    loaded = time.monotonic()
    engine.call()
    done = time.monotonic()
    report = {"imports": imported - job["spawned"], "load": loaded - imported, "first": done - loaded,
              "total": done - job["spawned"], "memory": peak_memory()}  # fmt: skip
    return engine, report | engine.info()


def main() -> None:
    """Serve until the pipe closes."""
    job = json.loads(sys.argv[1])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job["cores"])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not get between

    def send(reply: dict[str, Any]) -> None:
        print(json.dumps(reply), file=channel, flush=True)

    engine = None
    try:
        engine, report = started(job)
        settled()
        send(report)
    except Exception as e:
        send({"error": f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"})
    gc.collect()
    gc.freeze()
    gc.disable()
    for line in sys.stdin:
        try:
            send(answer(engine, json.loads(line)))
        except Exception as e:
            send({"error": f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"})


if __name__ == "__main__":
    main()
