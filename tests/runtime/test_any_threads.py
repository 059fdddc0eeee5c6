"""Code for any number of threads: how many there are is settled when it runs. Threads of Python stand in for the pool where a test is about
many of them, which would not all come in time otherwise."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime import instance, threads
from lightnet.runtime.arrays import aligned
from lightnet.runtime.threads import MAX_THREADS, processors, quota
from lightnet.tables import size
from lightnet_debug.steps import started

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import fuzz_executables

ROOT = Path(__file__).parents[2]
CNN = ROOT / "examples" / "cnn.net"
NETS = [ROOT / "examples" / "nets" / f"{name}.net" for name in ("squeezenet1.1", "mobilenetv2", "resnet18")]
DETECTOR = ROOT / "tests" / "data" / "nets" / "il" / "shuffledet_dac_demo.net"
P, I64 = ctypes.c_void_p, ctypes.c_int64
BODY, WAIT = ctypes.CFUNCTYPE(None, P, I64, I64, P, P), ctypes.CFUNCTYPE(None, P)
has_affinities = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="has no affinities")


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("LIGHTNET_THREADS", raising=False)
    monkeypatch.setattr(threads, "quota", lambda: MAX_THREADS)  # whatever that of this machine is
    monkeypatch.setattr(threads, "_quota_seen", (0.0, MAX_THREADS))
    yield
    threads._seen.until = 0.0


@pytest.fixture(scope="module")
def cnn() -> lightnet.Executable:
    return lightnet.compile(CNN, threads="any")


@pytest.fixture(scope="module")
def saved(cnn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("any") / "cnn.lnx"
    cnn.save(path)
    return path


def fed(executable) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=dims).astype(dtype) for name, (dims, dtype) in executable.inputs.items()}


def image(outputs) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def by_team(executable, count: int) -> dict[str, bytes]:
    """The outputs of a run on just so many threads, each of which but the first has exactly the scratch that the program says, full of NaN, in the
    middle of bytes that nobody may touch."""
    program, made = executable.program, executable.instance
    arena, static = started(executable, fed(executable))
    arena.frame[1] = static.ctypes.data
    room, margin = threading.Barrier(count), 4096
    wait = WAIT(lambda _: room.wait(60) and None)
    barrier = (P * 16)(ctypes.cast(wait, P))
    blocks = [aligned(program.scratch + 2 * margin) for _ in range(count)]
    for block in blocks:
        block[:] = 0x5A
        block[margin : margin + program.scratch] = 0xFF
    body = BODY(made._body)

    def work(number: int) -> None:
        scratch = blocks[number].ctypes.data + margin if number else None
        body(arena.address, number, count, ctypes.addressof(barrier) if count > 1 else None, scratch)

    team = [threading.Thread(target=work, args=(n,)) for n in range(1, count)]
    for t in team:
        t.start()
    work(0)
    for t in team:
        t.join()
    for block in blocks:
        assert (block[:margin] == 0x5A).all() and (block[margin + program.scratch :] == 0x5A).all()
    return {t.name: t.view(arena.memory(static)).tobytes() for t in program.outputs}


def test_results_do_not_depend_on_how_many(cnn) -> None:
    assert cnn.program.threads == MAX_THREADS and cnn.program.widest > 2 and cnn.program.scratch > 0
    want = image(cnn(fed(cnn), threads=1))
    for count in (1, 2, 3, 7, 64):
        assert by_team(cnn, count) == want
        assert image(cnn(fed(cnn), threads=count)) == want
    assert image(cnn(fed(cnn))) == want


@pytest.mark.slow
@pytest.mark.parametrize("path", [*NETS, DETECTOR], ids=lambda path: path.stem)
@pytest.mark.parametrize("shaped", ["any", 8])
def test_results_of_networks_do_not_depend_on_how_many(path: Path, shaped) -> None:
    executable = lightnet.compile(path, threads=shaped)
    want = image(executable(fed(executable), threads=1))
    assert executable.program.widest > 7
    for count in (1, 2, 7, 64):
        assert by_team(executable, count) == want
        assert image(executable(fed(executable), threads=min(count, executable.program.threads))) == want


def test_memory_is_that_of_one_thread() -> None:
    """What further threads need is neither in the arena nor in the file."""
    # Winograd's algorithm is chosen, and shaped, for the threads that there are: it is not what this is about.
    made = [lightnet.compile(CNN, threads=n, exact=True).program for n in (1, 4, "any")]
    assert len({program.memory["arena"] for program in made}) == 1


@has_affinities
def test_code_does_not_depend_on_the_machines_processors(saved: Path, tmp_path: Path) -> None:
    script = f"""
import os, lightnet
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
lightnet.compile({str(CNN)!r}).save({str(tmp_path / "one.lnx")!r})
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    assert (tmp_path / "one.lnx").read_bytes() == saved.read_bytes()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What runs ask of the pool: how many threads."""
    numbers: list[int] = []
    real = instance.pool_run

    def pool_run(code):
        run = real(code)

        def noted(body: int, frame: int, count: int, scratch: int) -> None:
            numbers.append(count)
            run(body, frame, count, scratch)

        return noted

    monkeypatch.setattr(instance, "pool_run", pool_run)
    return numbers


def available(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let there be so many processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)
    threads._seen.until = 0.0


def test_a_call_takes_the_processors_that_there_are(saved: Path, monkeypatch, asked: list[int]) -> None:
    """Of a network without a number; of others no more than that, and than there are. Whoever says a number gets it, and the quick way of a call
    is no other."""
    run = lightnet.load_executable(saved)
    x, widest = fed(run), run.program.widest
    for count in (1, 2, 4, 3, 500, 1):
        available(monkeypatch, count)
        for _ in range(3):
            run(x)
        assert asked == [min(count, widest)] * 3 * (count > 1)
        assert run.threads == min(count, MAX_THREADS)
        asked.clear()
    available(monkeypatch, 2)
    run(x, threads=3), run(x, threads=1), run(x, threads=MAX_THREADS)
    assert asked == [3, widest]
    with pytest.raises(LightNetError, match="from 1 to 256"):
        run(x, threads=MAX_THREADS + 1)


def test_a_number_is_a_bound(monkeypatch, asked: list[int]) -> None:
    run = lightnet.compile(CNN, threads=3)
    x = fed(run)
    for count, expected in ((8, 3), (2, 2)):
        available(monkeypatch, count)
        run(x)
        assert asked.pop() == expected and run.threads == expected and run.options["threads"] == 3
    with pytest.raises(LightNetError, match="compiled for 3 threads, and cannot run on 4"):
        run(x, threads=4)


def test_the_environment_says_where_nobody_does(saved: Path, monkeypatch, asked: list[int]) -> None:
    """When a network is loaded: for one without a number. A number of the compiler's caller is stronger."""
    available(monkeypatch, 8)
    monkeypatch.setenv("LIGHTNET_THREADS", "2")
    run = lightnet.load_executable(saved)
    bound, free = (lightnet.compile(CNN, threads=n) for n in (3, "any"))
    for executable in (run, bound, free):
        executable(fed(executable))
    assert asked == [2, 3, 2] and (run.threads, bound.threads, free.threads) == (2, 3, 2)
    assert "threads" not in run.options and "threads" not in free.options
    monkeypatch.setenv("LIGHTNET_THREADS", "nine")
    with pytest.raises(LightNetError, match="LIGHTNET_THREADS is a number of threads, not 'nine'"):
        lightnet.load_executable(saved)


@has_affinities
def test_affinities_are_seen() -> None:
    there = os.sched_getaffinity(0)
    found = []

    def look() -> None:
        os.sched_setaffinity(0, {min(there)})
        threads._seen.until = 0.0
        found.append(processors())

    other = threading.Thread(target=look)
    other.start()
    other.join()
    threads._seen.until = 0.0
    assert found == [1] and processors() == len(there)


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b", {"cpu.max": "max 100000", "a/cpu.max": "350000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/a/b", {"a/cpu.max": "800000 100000", "a/b/cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 1),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/../..", {"cpu.max": "400000 100000"}, 4),
        ("0::/a", {"cpu.max": "500000 100000"}, 5),
        ("0::/a", {"a/cpu.max": "nonsense"}, MAX_THREADS),
        ("0::/a", {"a/cpu.max": "100000 0"}, MAX_THREADS),
        ("3:cpu:/a", {"a/cpu.max": "100000 100000"}, MAX_THREADS),
        ("0::/a", {}, MAX_THREADS),
    ],
)
def test_quotas(tmp_path: Path, group: str, files: dict[str, str], expected: int) -> None:
    """Of the group, and of those around it."""
    (tmp_path / "own").write_text(f"12:memory:/x\n{group}\n")
    for name, text in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert quota(str(tmp_path / "own"), str(tmp_path / "mounted")) == expected
    assert quota(str(tmp_path / "none"), str(tmp_path / "mounted")) == MAX_THREADS


def test_a_quota_limits(monkeypatch) -> None:
    available(monkeypatch, 8)
    monkeypatch.setattr(threads, "quota", lambda: 3)
    assert processors() == 3


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux lists them")
def test_executables_share_one_pool(saved: Path) -> None:
    """It grows to what the largest run asked for, whoever calls; callers at the same time bring no further threads."""
    script = f"""
import os, threading, time, numpy as np, lightnet
count = lambda: len(os.listdir("/proc/self/task"))
runs = [lightnet.load_executable({str(saved)!r}) for _ in range(3)]
x = {{n: np.ones(d, t) for n, (d, t) in runs[0].inputs.items()}}
before, found = count(), []
for run, threads in zip(runs, (2, 4, 3)):
    for _ in range(20): run(x, threads=threads)
    found.append(count() - before)
callers = [threading.Thread(target=lambda: [run(x, threads=4) for run in runs for _ in range(50)]) for _ in range(6)]
for c in callers: c.start()
found.append(max(0, count() - before - 6))
for c in callers: c.join()
end = time.monotonic() + 20
while count() - before > found[2] and time.monotonic() < end: time.sleep(0.01)  # the system takes a moment to end a thread
print(*found, count() - before)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second, third, meanwhile, after = map(int, done.stdout.split())
    assert (first, second, third, after) == (1, 3, 3, 3) and meanwhile <= 3


@pytest.mark.parametrize("more", [-64, 64, -(1 << 62), 1 << 40, 1.0, None])
def test_a_file_cannot_lie_about_scratch(saved: Path, more) -> None:
    """The code knows how much it takes; the header has to agree, and not only with itself."""
    parts = fuzz_executables.Parts(saved.read_bytes())
    program = parts.header["variants"][0]["program"]
    program["scratch"] = more if more in (None, 1.0) else program["scratch"] + more
    with pytest.raises(LightNetError, match=r"the header says nothing sensible.*scratch"):
        lightnet.load_executable(parts.file())


def test_the_command_line(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from lightnet.cli import common
    from lightnet.cli import lightnet as tool

    folder = saved.parent
    assert common.run_tool(tool.main, ["compile", str(CNN), "-o", str(folder / "any.lnx"), "--threads", "any"]) == 0
    assert (folder / "any.lnx").read_bytes() == saved.read_bytes()
    assert ", any number of threads, " in capfd.readouterr().out
    words = ["-o", str(folder / "net.h"), "--emit=header", "--name", "net"]
    assert common.run_tool(tool.main, ["compile", str(CNN), *words]) == 0
    assert "run_threads" not in (folder / "net.h").read_text()
    assert common.run_tool(tool.main, ["compile", str(CNN), *words, "--threads", "any"]) == 0
    assert "int net_run_threads(int threads," in (folder / "net.h").read_text()
    capfd.readouterr()
    assert common.run_tool(tool.main, ["inspect", str(saved)]) == 0
    shown = capfd.readouterr().out
    assert "threads       any number of threads" in shown
    assert common.run_tool(tool.main, ["inspect", str(saved), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["threads"] is None and found["scratch"] > 0
    assert f"each thread but the first {size(found['scratch'])}\n" in shown
    with pytest.raises(SystemExit):
        common.run_tool(tool.main, ["compile", str(CNN), "--threads", "some"])
