"""What a process keeps of kernels that it has compiled: bounded, however many there were."""

from __future__ import annotations

import gc
import os
import signal
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import lightnet
from lightnet.backends.cpu.runtime import RUNTIME
from lightnet.backends.llvm import apart, jit
from lightnet.backends.llvm.function import FunctionEmitter
from lightnet.backends.llvm.values import Vec
from lightnet.diagnostics import LightNetError

#: KiB that a process may grow by. The runs of the middle end that happen in it leave 70 KiB each.
MOST_GROWTH = 5 << 10


def text(number: int) -> str:
    """A kernel that writes a number: one of its own for each, and next to no work for LLVM."""
    return f"define void @k{number}(i64 %lo, i64 %hi, ptr %y) {{ store i64 {number}, ptr %y\n ret void }}"


@pytest.fixture
def children(monkeypatch):
    """All runs of the middle end happen in children."""
    monkeypatch.setattr(apart, "OWN", 0)
    monkeypatch.setattr(apart, "_usable", True)
    yield
    apart._end()


def anonymous_kib() -> int:
    """Memory of this process that no file backs."""
    gc.collect()
    with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:"))


GROWTH = """
import test_compiler_memory as t
from lightnet.backends.llvm import apart, jit
from lightnet.backends.llvm.function import FunctionEmitter
from lightnet.backends.llvm.values import Vec
apart.OWN = {own}
jit.MOST_BYTES = 1 << 20
machine = jit.CodeMachine.host()
def compile_some(start, count):
    for at in range(start, start + count, 50):
        jit.compile_texts({{f"k{{i}}": (t.text(i), True) for i in range(at, at + 50)}}, machine, threads=1)
compile_some(0, 50)
before = t.anonymous_kib()
compile_some(50, {count})
print(t.anonymous_kib() - before)
"""


def growth(count: int, own: int) -> int:
    """KiB that a process of its own grows by while it compiles `count` kernels, `own` of all at most by itself."""
    code = GROWTH.format(count=count, own=own)
    env = {**os.environ, "LIGHTNET_CACHE": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return int(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="the system does not tell what a process takes"
)
def test_memory_is_bounded_over_some_hundred_kernels() -> None:
    assert growth(120, own=0) < MOST_GROWTH < growth(120, own=1000), "and the bound is one that can be exceeded"


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="the system does not tell what a process takes"
)
def test_memory_is_bounded_over_thousands_of_kernels() -> None:
    assert growth(5000, own=apart.OWN) < 70 * apart.OWN + MOST_GROWTH


def test_children_make_the_same_objects(children) -> None:
    machine = jit.CodeMachine.host()
    compiler = jit.Compiler(machine)
    assert compiler.run(text(1), True, False) == compiler.emit(compiler.module(text(1), True))
    assert apart._idle, "it was a child that made it"


def test_errors_of_children_are_raised(children) -> None:
    with pytest.raises(LightNetError, match="LLVM refuses the emitted code"):
        jit.Compiler(jit.CodeMachine.host()).run("define nonsense", True, False)


def test_a_child_that_dies_is_done_without(children) -> None:
    compiler = jit.Compiler(jit.CodeMachine.host())
    wanted = compiler.run(text(2), True, False)
    os.kill(apart._idle[0].process.pid, signal.SIGKILL)
    assert compiler.run(text(2), True, False) == wanted and not apart._idle
    assert compiler.run(text(2), True, False) == wanted and apart._idle, "the next one is another child's"


def test_children_are_replaced_and_forks_start_their_own(children, monkeypatch) -> None:
    monkeypatch.setattr(apart, "PER_CHILD", 2)
    compiler = jit.Compiler(jit.CodeMachine.host())
    compiler.run(text(3), True, False)
    first = apart._idle[0].process
    if (fork := os.fork()) == 0:
        os._exit(bool(apart._idle))
    assert os.waitpid(fork, 0)[1] == 0
    compiler.run(text(4), True, False)
    assert not apart._idle and first.returncode == 0


def test_objects_that_are_remembered_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(jit, "MOST_BYTES", 100)
    objects, machine = jit._Objects(), jit.CodeMachine.host()
    objects.add(machine, {"a": bytes(60), "b": bytes(40)})
    assert objects.get(machine, "a") is not None and len(objects) == 2
    objects.add(machine, {"c": bytes(40)})
    assert objects.get(machine, "b") is None and objects.get(machine, "a") is not None and len(objects) == 2


PEAK = """
import sys, lightnet
executable = lightnet.compile(sys.argv[1])
executable.prepare()
words = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(words["VmHWM"].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell what a process takes")
def test_a_model_s_file_does_not_count_beside_its_packed_weights(tmp_path) -> None:
    """200 MB of weights, from a file and packed: without giving pages back, the peak is above twice that."""
    onnx = pytest.importorskip("onnx")
    count, dim = 12, 2048
    arrays = [np.full((dim, dim), 0.5, np.float32) for _ in range(count)]
    nodes = [onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, dim]) for name in ("x0", f"x{count}")]
    weights = [onnx.numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(
        onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]),
        tmp_path / "m.onnx",
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PEAK, str(tmp_path / "m.onnx")]
    peak = int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert peak < 1.1 * count * dim * dim * 4 / 1024 + 150 * 1024


def test_few_weights_are_held_beside_the_packed_ones() -> None:
    """However the ops of `ln.once` stand: those that dequantise before all that pack."""
    onnx = pytest.importorskip("onnx")
    count, dim = 16, 512
    scale = onnx.numpy_helper.from_array(np.float32(0.5), "s")
    weights = [onnx.numpy_helper.from_array(np.full((dim, dim), i, np.int8), f"q{i}") for i in range(count)]
    nodes = [onnx.helper.make_node("DequantizeLinear", [f"q{i}", "s"], [f"w{i}"]) for i in range(count)]
    nodes += [onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, dim]) for name in ("x0", f"x{count}")]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], [scale, *weights])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    executable = lightnet.compile(model.SerializeToString(), threads=1)
    _ = executable.native
    tracemalloc.start()
    executable.prepare()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = count * dim * dim * 4
    assert executable.program.memory["static"] >= size
    assert peak < 1.6 * size, "all of them dequantised would be as much again"


NETS = Path(__file__).parents[3] / "examples" / "nets"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lenet.net", {}),
        ("lenet.net", {"layout": "plain"}),
        ("squeezedet.net", {}),
        ("squeezenet1.1.net", {"cpu": "avx2"}),
        ("lenet.net", {"target": "cuda"}),
    ],
)
def test_emitters_leave_no_cycles(name: str, options: dict[str, str]) -> None:
    """The collector rests while kernels are emitted: what leads back to itself would stay until all are."""
    executable = lightnet.compile(NETS / name, **options)
    gc.collect()
    gc.disable()
    try:
        assert executable.native is not None
        left = [type(o).__name__ for o in gc.get_objects() if type(o) in (FunctionEmitter, Vec)]
    finally:
        gc.enable()
    assert left == []


def library_pages(of: str) -> dict[str, int]:
    """KiB of LLVM's library in this process, by what may be done with them: as `/proc/self/smaps` says of `of`."""
    found: dict[str, int] = {}
    rights = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and ":" not in words[0]:
            rights = words[1] if line.endswith(str(llvm.ffi.lib._name)) else ""
        elif rights and words[0] == f"{of}:":
            found[rights] = found.get(rights, 0) + int(words[1])
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say what a process holds")
def test_llvm_gives_its_pages_back() -> None:
    """Of code and constants hardly anything stays, what was relocated does, and LLVM goes on as before."""
    from lightnet.backends.llvm.jit import CodeMachine, Compiler
    from lightnet.runtime.native import _constant_parts, release_library

    compiler = Compiler(CodeMachine.host())

    def compiled(number: int) -> bytes:
        """An object that this process makes, whatever it has compiled before."""
        return compiler.emit(compiler.module(text(number), True))

    before, own = compiled(1), library_pages("Anonymous")
    assert library_pages("Rss")["r-xp"] > 8 << 10 and sum(own.values()) > 1 << 10
    release_library()
    after = library_pages("Rss")
    assert after.get("r-xp", 0) < 1 << 10 and after.get("r--p", 0) < own.get("r--p", 0) + (4 << 10)
    assert library_pages("Anonymous") == own
    assert compiled(1) == before and compiled(2)
    parts = _constant_parts(str(llvm.ffi.lib._name))
    assert len(parts) >= 2 and all(begin < end for begin, end in parts)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say what a process holds")
@pytest.mark.parametrize(("weights", "kept"), [(0, True), (1 << 20, True), ((1 << 20) + 1, False), (1 << 40, False)])
def test_llvm_gives_its_pages_back_before_many_weights(weights: int, kept: bool) -> None:
    """Where few follow, mapping the pages again would cost more than they take."""
    compiler = jit.Compiler(jit.CodeMachine.host())
    compiler.emit(compiler.module(text(100), True))
    before = library_pages("Rss")["r-xp"]
    RUNTIME.made_all(weights)
    after = library_pages("Rss").get("r-xp", 0)
    assert before > 1 << 10 and (after > 1 << 10) == kept


def test_pages_of_two_segments_are_kept(tmp_path: Path) -> None:
    """A page of a file that has part of a segment that is written may be the process's own: of the others, whole pages alone."""
    from lightnet.runtime.native import PAGE, _constant_parts

    written, constant = 6, 4  # flags of a segment: read and write, read
    segments = [
        (written, 0, PAGE + 100),
        (constant, PAGE + 100, 3 * PAGE),
        (constant, 5 * PAGE, 2 * PAGE),
        (constant, 8 * PAGE + 1, 9),
    ]
    table = b"".join(struct.pack("<IIQQQQQQ", 1, flags, at, at, at, size, size, PAGE) for flags, at, size in segments)
    head = struct.pack("<4sBB10xHHIQQQIHHH", b"\x7fELF", 2, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments))
    path = tmp_path / "some.so"
    path.write_bytes(head.ljust(64, b"\0") + table)
    assert _constant_parts(str(path)) == [(2 * PAGE, 4 * PAGE), (5 * PAGE, 7 * PAGE)]
    path.write_bytes(b"\x7fELF\x01" + bytes(60))
    assert _constant_parts(str(tmp_path / ".." / tmp_path.name / "some.so")) == []
