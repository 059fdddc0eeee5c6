"""Networks on several threads: results do not depend on how many, who calls, and from which process."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.backends.llvm.emitter import emit_module
from lightnet.backends.llvm.launch_list import touches
from lightnet.diagnostics import LightNetError
from lightnet.dialects.accesses import Use, use_of
from lightnet.dialects.launch import LaunchOp, kernels, launches
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.runtime.arrays import aligned
from lightnet.runtime.threads import MAX_THREADS, Threads, processors, quota
from lightnet_debug.steps import started
from lightnet_trust.interpreter.loops import LoopProgram

ROOT = Path(__file__).parents[3]
SQUEEZENET, LENET = (ROOT / "examples" / "nets" / name for name in ("squeezenet1.1.net", "lenet.net"))
SHUFFLEDET = ROOT / "tests" / "data" / "nets" / "il" / "shuffledet_dac_demo.net"

#: Large enough to be split, with values that are printed in between, and whose memory serves others afterwards.
PRINTING = """
builtin.module { func.func @main() -> tensor<2x40x500xf32> {
  %x = ln.input : tensor<2x40x500xf32> as "x"("x")
  %a = ln.softmax %x {axis = 2} : tensor<2x40x500xf32> as "a"("a")
  ln.print %a {msg = "a: "} as "p1"
  %b = ln.gelu %a : tensor<2x40x500xf32> as "b"("b")
  ln.print %b {msg = "b: "} as "p2"
  %c = ln.softmax %b {axis = 1} : tensor<2x40x500xf32> as "c"("c")
  ln.print %c {msg = "c: "} as "p3"
  %d = ln.gelu %c : tensor<2x40x500xf32> as "d"("d")
  func.return %d : tensor<2x40x500xf32>
} }"""


@pytest.fixture(scope="module")
def squeezenet():
    return lightnet.compile(SQUEEZENET, threads=3)


@pytest.fixture(scope="module")
def alone() -> Mapping[str, lightnet.Executable]:
    """The networks for one thread."""
    return {str(path): lightnet.compile(path, threads=1) for path in (SQUEEZENET, LENET)}


def feeds(executable, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=dims).astype(dtype) for name, (dims, dtype) in executable.inputs.items()}


def image(outputs: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def test_results_do_not_depend_on_threads(squeezenet, alone):
    """Kernels that are split, and barriers, but not one for each launch."""
    x = feeds(squeezenet)
    want = image(alone[str(SQUEEZENET)](x))
    for threads in (None, 1, 2, 3):
        assert image(squeezenet(x, threads=threads)) == want
    split = [op for op in launches(squeezenet.loops) if isinstance(op, LaunchOp) and op.most_threads == 3]
    assert len(split) > 20 and squeezenet.program.widest == squeezenet.options["threads"] == 3


def test_a_plan_of_another_kind():
    """Upstream's: workspace and scratch stand behind what was planned."""
    one, executable = (lightnet.compile(LENET, plan="upstream", threads=n) for n in (1, 3))
    assert executable.program.widest > 1
    assert image(executable(feeds(executable))) == image(one(feeds(one)))


def test_a_detector():
    """Sorts and other kernels of one block between split ones; outputs of several types."""
    one, three = (lightnet.compile(SHUFFLEDET, threads=n) for n in (1, 3))
    x = feeds(one)
    want = image(one(x))
    assert all(image(three(x, threads=n)) == want for n in (1, 2, 3))
    assert {1, 3} <= {op.most_threads for op in launches(three.loops)}
    assert len(touches(three.loops)) == len(launches(three.loops))


def test_level4_runs_on_any_threads_scratch():
    """The interpreter gives each block the scratch of some thread, poisoned before."""
    executable = lightnet.compile(LENET, threads=4, pipeline=None)
    arena, static = started(executable, feeds(executable))
    outputs = image(executable(feeds(executable)))
    for op in launches(executable.loops):
        assert isinstance(op, LaunchOp)
    memory = aligned(arena.bytes.size)
    memory[:] = arena.bytes
    LoopProgram(executable.loops).run_main(memory, static, seed=1)
    for tensor in executable.program.outputs:
        got = tensor.view({"arena": memory, "static": static})
        np.testing.assert_allclose(
            got, np.frombuffer(outputs[tensor.name], got.dtype).reshape(got.shape), rtol=1e-4, atol=1e-6
        )


def run_from_python_threads(executable, want: list[dict[str, bytes]], callers: int, calls: int) -> None:
    """`callers` threads, each `calls` calls on changing inputs; every result is checked."""
    failed: list[object] = []
    inputs = [feeds(executable, seed) for seed in range(len(want))]

    def work(number: int) -> None:
        try:
            for k in range(calls):
                at = (k + number) % len(want)
                if image(executable(inputs[at], threads=1 + (k % executable.threads))) != want[at]:
                    failed.append((number, k))
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(callers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_ten_thousand_runs_from_several_threads(alone):
    executable, one = lightnet.compile(LENET, threads=2), alone[str(LENET)]
    want = [image(one(feeds(one, seed))) for seed in range(5)]
    run_from_python_threads(executable, want, callers=4, calls=2500)


@pytest.mark.slow
def test_a_thousand_runs_of_a_large_network_from_several_threads(squeezenet, alone):
    want = [image(alone[str(SQUEEZENET)](feeds(squeezenet, seed))) for seed in range(5)]
    run_from_python_threads(squeezenet, want, callers=4, calls=250)


def test_many_executables_at_once(squeezenet, alone):
    """They share the pool; who finds it in use does without."""
    others = [lightnet.compile(LENET, threads=n) for n in (2, 4)]
    executables = [(squeezenet, str(SQUEEZENET)), *((e, str(LENET)) for e in others)]
    cases = [(e, feeds(e), image(alone[path](feeds(e)))) for e, path in executables]
    failed: list[object] = []

    def work(executable, x, want) -> None:
        for _ in range(10):
            if image(executable(x)) != want:
                failed.append(executable)

    threads = [threading.Thread(target=work, args=case) for case in cases]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_more_threads_than_processors(alone):
    """Slower than it could be, but it ends."""
    executable = lightnet.compile(LENET, threads=8)
    x, want = feeds(executable), image(alone[str(LENET)](feeds(executable)))
    executable(x)
    assert all(image(executable(x)) == want for _ in range(50))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_fork_after_use(alone):
    executable = lightnet.compile(LENET, threads=2)
    x, want = feeds(executable), image(alone[str(LENET)](feeds(executable)))
    assert image(executable(x)) == want
    children = []
    for _ in range(3):
        if (child := os.fork()) == 0:
            signal.alarm(30)
            os._exit(0 if all(image(executable(x)) == want for _ in range(20)) else 1)
        children.append(child)
    assert all(image(executable(x)) == want for _ in range(20))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_host_calls_see_the_tensors():
    """What is printed is whole when it is, and in order; the printed tensors are overwritten only then."""
    one, two = (lightnet.compile(lightnet.loads(PRINTING, ".mlir"), threads=n) for n in (1, 3))
    assert two.program.widest == 3 and len(two.program.hosts) == 3
    x, shown = feeds(one), []
    for executable, threads in ((one, 1), (two, 1), (two, 2), (two, 3), (two, 3)):
        stream = io.StringIO()
        executable(x, stream=stream, threads=threads)
        shown.append(stream.getvalue())
    assert len(shown[0]) > 10_000 and set(shown) == {shown[0]}


def test_an_error_of_a_host_call_leaves_the_pool_free():
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no room")

    executable = lightnet.compile(lightnet.loads(PRINTING, ".mlir"), threads=2)
    x = feeds(executable)
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            executable(x, stream=Broken())
    stream = io.StringIO()
    executable(x, stream=stream)
    assert stream.getvalue()


def test_a_saved_executable(tmp_path, squeezenet, alone):
    """It brings the pool's code, and is called from a process that can compile nothing."""
    path = tmp_path / "net.lnx"
    squeezenet.save(path)
    loaded = lightnet.load_executable(path)
    x, want = feeds(squeezenet), image(alone[str(SQUEEZENET)](feeds(squeezenet)))
    assert loaded.program.threads == 3
    assert all(image(loaded(x, threads=n)) == want for n in (None, 1, 2))
    with pytest.raises(LightNetError, match="compiled for 3 threads"):
        loaded(x, threads=4)
    np.savez(tmp_path / "x.npz", **x)
    script = f"""
import sys, numpy as np
from lightnet.runtime.artifact import load_executable
x = dict(np.load({str(tmp_path / "x.npz")!r}))
out = load_executable({str(path)!r})(x)
np.savez({str(tmp_path / "out.npz")!r}, **out)
print("xdsl" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False"], done.stderr
    with np.load(tmp_path / "out.npz") as out:
        assert image(dict(out)) == want


def test_a_network_too_small_for_threads_has_no_pool():
    module = lightnet.loads(
        """
builtin.module { func.func @main() -> tensor<4xf32> {
  %x = ln.input : tensor<4xf32> as "x"("x")
  %y = ln.relu %x : tensor<4xf32> as "y"("y")
  func.return %y : tensor<4xf32>
} }""",
        ".mlir",
    )
    executable = lightnet.compile(module, threads=8)
    assert executable.options["threads"] == 8 and executable.program.widest == 1
    assert "ln_pool_run" not in "".join(map(repr, executable.native.objects))
    assert executable({"x": np.array([-1, 2, -3, 4], "f")}, threads=8)["y"].tolist() == [0, 2, 0, 4]


def test_how_many(monkeypatch, squeezenet):
    monkeypatch.delenv("LIGHTNET_THREADS", raising=False)
    assert (
        Threads.asked().used
        == processors()
        == lightnet.compile(LENET).threads
        == min(len(os.sched_getaffinity(0)), quota())
    )
    assert lightnet.compile(LENET, "none").threads == 1
    monkeypatch.setenv("LIGHTNET_THREADS", " 2 ")
    assert lightnet.compile(LENET).threads == 2 and lightnet.compile(LENET, threads=1).threads == 1
    for text in ("0", "two", "-1", "1e3", "9" * 5000, str(MAX_THREADS + 1)):
        monkeypatch.setenv("LIGHTNET_THREADS", text)
        with pytest.raises(LightNetError, match="LIGHTNET_THREADS"):
            lightnet.compile(LENET)
    for value in (0, -1, MAX_THREADS + 1, 10**30, "2", 2.0, True, [2]):
        with pytest.raises(LightNetError, match="threads"):
            lightnet.compile(LENET, threads=value)
        with pytest.raises(LightNetError, match="threads"):
            squeezenet(feeds(squeezenet), threads=value)
    assert lightnet.compile(LENET, threads=np.int64(2)).threads == 2


def test_the_command_line(tmp_path, capfd):
    from lightnet.cli import common
    from lightnet.cli import lightnet as tool

    saved = str(tmp_path / "net.lnx")
    assert common.run_tool(tool.main, ["compile", str(LENET), "-o", saved, "--threads", "2"]) == 0
    outputs = []
    for source, threads in ((str(LENET), "1"), (str(LENET), "3"), (saved, "1"), (saved, "2")):
        out = str(tmp_path / f"{len(outputs)}.npz")
        assert common.run_tool(tool.main, ["run", source, "-i", "random", "-o", out, "--threads", threads]) == 0
        with np.load(out) as arrays:
            outputs.append(image(dict(arrays)))
    assert all(o == outputs[0] for o in outputs)
    assert common.run_tool(tool.main, ["run", saved, "-i", "random", "--threads", "3"]) == 1
    assert common.run_tool(tool.main, ["run", str(LENET), "-i", "random", "--threads", "0"]) == 1
    errors = capfd.readouterr().err
    assert "compiled for 2 threads" in errors and "from 1 to 256, and is 0" in errors


def test_a_context():
    context = lightnet.Context().init(LENET).compile(threads=2)
    context.load()
    context.run(feeds(lightnet.compile(LENET, threads=1)), threads=1)
    with pytest.raises(LightNetError, match="compiled for 2 threads"):
        context.run({}, threads=3)


def test_scratch_holds_the_memref_that_stands_for_it():
    text = """
func.func @k(%lo: index, %hi: index, %s: memref<32xf32>) { func.return }
func.func @main() {
  tile.launch @k grid 2 threads 2 scratch 64 [arena]
  func.return
}"""
    what = "@k takes 128 bytes of scratch, launched with 64"
    with pytest.raises(LightNetError, match=what):
        lightnet.loads(text, ".mlir")
    with pytest.raises(LightNetError, match=what):
        emit_module(parse_mlir(make_context(), text, "t.mlir"))


def test_what_a_function_does_with_its_memrefs():
    """Through views; a hint is nothing; whatever is unknown counts as both."""
    text = """
func.func private @callee(%m: memref<4xf32>) { func.return }
func.func @k(%lo: index, %hi: index, %r: memref<4xf32>, %w: memref<4xf32>, %v: memref<64xi8>, %h: memref<4xf32>, %c: memref<4xf32>) {
  %x = memref.load %r[%lo] : memref<4xf32>
  memref.store %x, %w[%lo] : memref<4xf32>
  %view = memref.view %v[%lo][] : memref<64xi8> to memref<4xf32>
  %y = memref.load %view[%lo] : memref<4xf32>
  tile.prefetch %h[%lo] bytes 16 : memref<4xf32>
  func.call @callee(%c) : (memref<4xf32>) -> ()
  func.return
}"""
    function = kernels(lightnet.loads(text, ".mlir").module)["k"]
    found = [use_of(argument) for argument in function.body.block.args[2:]]
    assert found == [Use(True, False), Use(False, True), Use(True, False, True), Use(False, False), Use(True, True)]
