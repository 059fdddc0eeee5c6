"""What people watch a run with, on target cuda: kernels one by one on memory of their own, their times, every tensor, where NaN begins."""

from __future__ import annotations

import gc
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.dialects.cuda_launch import CudaLaunchOp
from lightnet.runtime.cuda import machine
from lightnet_debug.alone import alone
from lightnet_debug.differences import compare_layers
from lightnet_debug.profile import profiled
from lightnet_debug.steps import stepper
from lightnet_debug.tensors import first_non_finite, tensors
from lightnet_ptx.emulator import Emulator
from lightnet_report import html
from lightnet_report.recorder import Recorder

EXAMPLES = Path(__file__).parents[3] / "examples"

#: A kernel of several launches (a long softmax), one in place, a free move, a print, and two outputs.
NET = """
create(| dst=x | dtype=TL_FLOAT, dims=[1, 3, 6, 7], data=[1], ran=[-1, 1], from_file=false);
create(| dst=w | dtype=TL_FLOAT, dims=[4, 3, 3, 3], data=[1], ran=[-1, 1], from_file=false);
create(| dst=b | dtype=TL_FLOAT, dims=[4], data=[1], ran=[-1, 1], from_file=false);
create(| dst=v | dtype=TL_FLOAT, dims=[1, 300], data=[1], ran=[-1, 1], from_file=false);
conv2d(src=x, weight=w, bias=b | dst=c | group=1, size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]);
relu(src=c | dst=r |);
transpose(src=r | dst=t | axes=[0, 2, 3, 1]);
softmax(src=t | dst=s | axis=3);
print(src=s | | msg="s");
reshape(src=s | dst=y | dims=[42, 4]);
log(src=v | dst=l |);
sqrt(src=l | dst=q |);
softmax(src=q | dst=z | axis=1);
"""
QUIET = NET.replace('print(src=s | | msg="s");\n', "")


def compiled(text: str = QUIET, target: str = "cuda", **options):
    on = {"emulate": True} if target == "cuda" else {}
    return lightnet.compile(lightnet.loads(text, ".net", "watched.net"), target, **on, **options)


def fed(executable, low: float = 2.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.uniform(low, 3, dims).astype(dtype) for name, (dims, dtype) in executable.inputs.items()}


def run_all(walk) -> None:
    for step in walk.steps:
        for run in walk.calls(step):
            run()


# ---- kernel by kernel ------------------------------------------------------------------------------------------------


def test_kernels_one_by_one_compute_what_a_call_does():
    """Twice, the second time on memory that has been used; a call in between is left alone, and leaves alone."""
    executable = compiled()
    feeds = fed(executable)
    want = executable(feeds)
    walk = stepper(executable, feeds)
    assert all(isinstance(line, CudaLaunchOp) for step in walk.steps for line in step.lines)
    for _ in range(2):
        walk.restart()
        half = len(walk.steps) // 2
        for number, step in enumerate(walk.steps):
            for run in walk.calls(step):
                run()
            if number == half:
                executable(fed(executable, low=1.0))
        returned = executable.planned.body.block.last_op.body.block.last_op
        for value, array in zip(returned.operands, want.values(), strict=True):
            np.testing.assert_array_equal(walk.read(value), array)
            assert np.ptp(array) > 0


def test_the_whole_is_what_its_kernels_are():
    executable = compiled()
    walk = stepper(executable, fed(executable))
    walk.call_whole()
    returned = executable.planned.body.block.last_op.body.block.last_op
    whole = [walk.read(value) for value in returned.operands]
    walk.restart()
    run_all(walk)
    for value, array in zip(returned.operands, whole):
        np.testing.assert_array_equal(walk.read(value), array)


def test_launches_belong_to_their_kernels():
    """Rows that are cut in pieces are three launches of one kernel; a move that costs nothing is none."""
    text = "create(| dst=x | dtype=TL_FLOAT, dims=[1, 200000], data=[1], ran=[-1, 1], from_file=false);\nsoftmax(src=x | dst=y | axis=1);\n"
    (step,) = stepper(compiled(text)).steps
    assert len(step.lines) == 3
    steps = stepper(compiled()).steps
    lines = {name.data: len(step.lines) for step in steps for name in step.op.attributes["ln.tensors"].data}
    assert lines["y"] == 0 and lines["z"] == 1


def test_params_are_fed():
    executable = compiled()
    feeds = {**fed(executable), "w": np.full((4, 3, 3, 3), 0.25, np.float32)}
    want, walk = executable(feeds), stepper(executable, feeds)
    run_all(walk)
    returned = executable.planned.body.block.last_op.body.block.last_op
    for value, array in zip(returned.operands, want.values()):
        np.testing.assert_array_equal(walk.read(value), array)


def test_memory_is_given_back():
    executable = compiled()
    feeds, gpu = fed(executable), executable.instance.driver
    taken, freed = [], []
    alloc, free = gpu.alloc, gpu.free
    gpu.alloc = lambda size: taken.append(alloc(size)) or taken[-1]
    gpu.free = lambda address: freed.append(address) or free(address)
    tensors(executable, feeds)
    gc.collect()
    assert taken and sorted(taken) == sorted(freed)
    assert executable(feeds).keys() == {"y", "z"}


# ---- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [NET, QUIET])
def test_tensors_are_those_of_the_cpu(text):
    """Also of a network that prints; maps are read in their layout."""
    on_cuda, on_cpu = compiled(text), compiled(text, "cpu")
    feeds = fed(on_cpu)
    got, want = tensors(on_cuda, feeds), tensors(on_cpu, feeds)
    assert {"x", "r", "s", "y", "z"} <= got.arrays.keys()
    for name in got.arrays.keys() & want.arrays.keys():
        np.testing.assert_allclose(got.arrays[name], want.arrays[name], rtol=1e-4, atol=1e-5)


def test_where_nan_begins():
    """The logarithm of a number below 0, inside a kernel of three ops, the last of which spreads it over a row."""
    executable = compiled()
    feeds = fed(executable)
    feeds["v"][0, 7] = -1
    (bad,) = first_non_finite(tensors(executable, feeds), executable)
    assert (bad.name, bad.nans, bad.kernel) == ("z", 300, "log log0 + sqrt sqrt0 + softmax softmax1")
    assert alone(executable, feeds, "z").non_finite.optype == "log"


def test_a_kernel_that_is_wrong_is_found():
    """PTX in which one softmax divides the wrong way round: its tensor is the first that differs, and its kernel is blamed."""
    executable = compiled()
    code = executable.native.code
    name = next(line.kernel for line in code.lines if "softmax" in line.kernel)
    start = code.ptx.index(f".entry {name}(")
    end = code.ptx.find(".entry", start + 10)
    own = code.ptx[start:end]
    assert "div.rn.f32" in own
    executable.native.code = replace(
        code, ptx=code.ptx[:start] + own.replace("div.rn.f32", "mul.rn.f32") + code.ptx[end:]
    )
    feeds = fed(executable)
    want = tensors(compiled(target="cpu"), feeds).arrays
    layers = compare_layers(tensors(executable, feeds), want, 1e-4, None)
    wrong = [layer.name for layer in layers if not layer.difference.agrees]
    assert wrong[0] == "s"
    assert not alone(executable, feeds, "s").agrees
    assert alone(executable, feeds, "r").agrees


# ---- times -----------------------------------------------------------------------------------------------------------


def test_a_profile_of_the_interpreter_says_that_it_is_one():
    """One round, however many are asked for, no bound, and no time of the whole."""
    found = profiled(compiled(), rounds=50)
    assert found.rounds == 1 and found.whole_seconds is None and found.peaks is None
    assert all(k.seconds > 0 and k.bound_seconds == 0 for k in found.kernels)
    assert {"r", "s", "z"} <= {k.name for k in found.kernels}
    text = found.text()
    assert "times: of the PTX interpreter, which say nothing about a device" in text and "this machine" not in text
    plain = json.loads(found.json())["lightnet"]
    assert plain["peaks"] is None and plain["clock"] == found.clock
    assert "Times: of the PTX interpreter" in html.page(Recorder(), "watched", found)


class Device:
    """The interpreter as if it were a device, whose kernels take 5 microseconds and a pair of events 1; what it is asked is noted."""

    def __init__(self):
        self.inner, self.asked = Emulator("sm_90"), []
        self.is_emulated = False
        self.name, self.arch, self.memory_bytes = "a device", "sm_90", 1 << 34

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def fill(self, address, byte, size):
        self.asked.append("fill")

    def launch(self, launch):
        self.asked.append("launch")
        self.inner.launch(launch)

    def time(self, call):
        before = len(self.asked)
        self.asked.append("time")
        call()
        return 1e-6 + 5e-6 * self.asked[before:].count("launch")


def test_a_profile_of_a_device(monkeypatch):
    """Events, with the device kept busy before each, less what two events take; the bound is that of a data sheet."""
    device = Device()
    monkeypatch.setattr(machine, "open_driver", lambda emulate, arch: device)
    executable = lightnet.compile(lightnet.loads(QUIET, ".net"), "cuda", arch="sm_90")
    found = profiled(executable, fed(executable), rounds=2)
    assert (
        found.clock == "of a device, by events, caches empty" and found.rounds == 2 and found.whole_seconds is not None
    )
    for kernel in found.kernels:
        assert kernel.seconds == pytest.approx(5e-6 * kernel.launches)
        assert kernel.bound_seconds > 0
    assert "a data sheet for sm_90" in found.text()
    assert device.asked.count("fill") == device.asked.count("time")
    assert all(device.asked[k - 1] == "fill" for k, what in enumerate(device.asked) if what == "time")


# ---- command line ----------------------------------------------------------------------------------------------------


def lightnet_run(*words: str) -> int:
    from lightnet.cli.run import main

    return main([str(EXAMPLES / "nets/lenet.net"), "-t", "cuda", "--emulate", "-i", "random", *words])


def test_the_options_of_run(tmp_path, capsys):
    assert lightnet_run("--profile", "--check-nan", "--dump-tensors", str(tmp_path / "all.npz")) == 0
    text = capsys.readouterr().out
    assert "PTX interpreter" in text and "no NaN or infinity" in text and "wrote" in text
    with np.load(tmp_path / "all.npz") as found:
        assert {"conv1", "pool2", "classes"} <= set(found.files)
    assert lightnet_run("--compare", "interpreter", "--layers") == 0
    assert "all 8 tensors agree" in capsys.readouterr().out
    assert lightnet_run("--compare", "interpreter", "--layers", "--tensors", "hidden1_sum") == 0
    assert "compiled again with 1 more output" in capsys.readouterr().out


def test_kernels_as_loops_on_a_processor():
    """`on_cpu`: the launches still belong to their kernels."""
    executable = lightnet.compile(lightnet.loads(QUIET, ".net"), "cuda", on_cpu=True)
    feeds = fed(executable)
    want = tensors(compiled(target="cpu"), feeds).arrays
    got = tensors(executable, feeds).arrays
    for name in got.keys() & want.keys():
        np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5)
    assert profiled(executable, feeds, rounds=1).clock == "processor time of one thread"


def test_prints_stay_silent():
    executable = compiled(NET)
    stream = io.StringIO()
    executable(fed(executable), stream=stream)
    assert "s" in stream.getvalue()
    assert profiled(executable, fed(executable)).whole_seconds is None
