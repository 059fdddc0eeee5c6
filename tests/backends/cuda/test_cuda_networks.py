"""Whole networks on target cuda, in the PTX interpreter: the CPU's results, with everything poisoned that the plan lets die; the ways
to compile, save, print and refuse."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from cuda_runs import Recorded

import lightnet
from lightnet.cli import lightnet as cli
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Source
from lightnet.ir.layout import byte_size
from lightnet.ir.module import main_of
from lightnet.ir.views import place_of
from lightnet.runtime.cuda.driver import CudaUnavailable, devices
from lightnet.runtime.cuda.program import CudaCode, CudaInstance, HostLine, KernelLine
from lightnet_ptx.emulator import Emulator

EXAMPLES = Path(__file__).parents[3] / "examples"
NETWORKS = ("cnn.net", "nets/lenet.net", "nets/mlp.net")

#: A convolution, a softmax of several launches with workspace, moves, a result in place, and two that are printed.
SMALL = """
create(| dst=x | dtype=TL_FLOAT, dims=[1, 3, 6, 7], data=[1], ran=[-1, 1], from_file=false);
create(| dst=w | dtype=TL_FLOAT, dims=[4, 3, 3, 3], data=[1], ran=[-1, 1], from_file=false);
create(| dst=b | dtype=TL_FLOAT, dims=[4], data=[1], ran=[-1, 1], from_file=false);
conv2d(src=x, weight=w, bias=b | dst=c | group=1, size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]);
relu(src=c | dst=r |);
transpose(src=r | dst=t | axes=[0, 2, 3, 1]);
softmax(src=t | dst=s | axis=3);
print(src=s | | msg="s");
reshape(src=s | dst=y | dims=[42, 4]);
"""


def fed(executable, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.random(dims, np.float32).astype(dtype) for name, (dims, dtype) in executable.inputs.items()}


def same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert np.isfinite(array).all() and array.std() > 0, "a constant proves nothing"
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5 * np.abs(array).max())


@pytest.mark.parametrize("net", NETWORKS)
def test_a_network_has_the_results_of_the_cpu(net):
    on_cpu, on_cuda = lightnet.compile(EXAMPLES / net), lightnet.compile(EXAMPLES / net, "cuda", emulate=True)
    for seed in range(2):
        same(on_cuda(fed(on_cpu, seed)), on_cpu(fed(on_cpu, seed)))


@pytest.mark.gpu
@pytest.mark.parametrize("net", [*NETWORKS, "nets/squeezenet1.1.net", "nets/resnet18.net", "nets/mobilenetv2.net"])
def test_a_network_has_the_results_of_the_cpu_on_a_device(net):
    try:
        devices()
    except CudaUnavailable as error:
        pytest.skip(error.message)
    on_cpu, on_cuda = lightnet.compile(EXAMPLES / net), lightnet.compile(EXAMPLES / net, "cuda")
    for seed in range(2):
        feeds = fed(on_cpu, seed)
        got, want = on_cuda(feeds), on_cpu(feeds)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=1e-4 * np.abs(array).max())


def test_calls_from_several_threads_run_one_after_the_other():
    executable = lightnet.compile(EXAMPLES / "nets/mlp.net", "cuda", emulate=True)
    feeds = [fed(executable, seed) for seed in range(4)]
    want = [executable(f) for f in feeds]
    with ThreadPoolExecutor(4) as pool:
        for found, expected in zip(pool.map(executable, feeds), want):
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array)


def test_no_kernel_reads_what_the_plan_lets_die():
    """After each op of the planned network, all bytes of the arena that no later op reads count as never written: the interpreter
    reports whoever reads them."""
    executable = lightnet.compile(lightnet.loads(SMALL, ".net"), "cuda", emulate=True)
    feeds = fed(executable)
    want = executable(feeds, stream=io.StringIO())
    run_poisoned(executable, feeds)
    got = {t.name: executable.instance._read(t) for t in executable.program.outputs if t.name in want}
    for name in got:
        np.testing.assert_array_equal(got[name], want[name])


def test_poison_finds_a_plan_that_is_wrong():
    """The same, on a network two of whose tensors share bytes that they should not: the second conv writes what is still read."""
    executable = lightnet.compile(EXAMPLES / "cnn.net", "cuda", emulate=True)
    run_poisoned(executable, fed(executable))
    with pytest.raises(LightNetError, match="never written"):
        run_poisoned(executable, fed(executable), early=1)


def run_poisoned(executable, feeds, early: int = 0) -> None:
    """Run op by op, and poison what is dead behind each; `early` is how many ops too soon a value dies."""
    recorded = Recorded(executable.planned.clone())
    recorded.run()
    instance: CudaInstance = executable.instance
    arena, driver = instance.address["arena"], instance.driver
    driver.poison(arena, instance.program.memory["arena"])
    instance._stale = instance._uploaded = None
    instance._start(feeds, instance.static)
    ops = list(main_of(executable.planned).body.block.ops)
    position = {op: i for i, op in enumerate(ops)}
    lines, counts = iter(instance.code.lines), iter(recorded.counts)
    module = driver.load(instance.code.ptx)
    for i, op in enumerate(ops[:-1]):
        if isinstance(op, Source) or op.name == "ln.once":
            continue
        for _ in range(next(counts)):
            line = next(lines)
            if isinstance(line, KernelLine):
                driver.launch(instance._launch(module, line))
        alive = np.zeros(instance.program.memory["arena"], bool)
        for value in (r for o in ops[: i + 1] for r in o.results):
            place, last = place_of(value), max((position[use.operation] for use in value.uses), default=-1)
            if place is not None and place.space.data == "arena" and last - early > i:
                alive[place.offset.data : place.offset.data + byte_size(value.type)] = True
        edges = np.flatnonzero(np.diff(np.concatenate(([True], alive, [True])).astype(np.int8)))
        for begin, end in zip(edges[::2], edges[1::2]):
            driver.poison(arena + int(begin), int(end - begin))
    assert next(lines, None) is None


def test_what_is_fed_holds_for_one_call_only():
    executable = lightnet.compile(lightnet.loads(SMALL, ".net"), "cuda", emulate=True)
    quiet = {"stream": io.StringIO()}
    before, feeds = executable(**quiet)["y"], fed(executable)
    fed_input, fed_param = executable(feeds, **quiet)["y"], executable({"b": np.ones(4, np.float32)}, **quiet)["y"]
    assert (before != fed_input).any() and (before != fed_param).any()
    np.testing.assert_array_equal(executable(**quiet)["y"], before)
    np.testing.assert_array_equal(executable(feeds, **quiet)["y"], fed_input)
    on_cpu = lightnet.compile(lightnet.loads(SMALL, ".net"))
    np.testing.assert_allclose(on_cpu({"b": np.ones(4, np.float32)}, **quiet)["y"], fed_param, rtol=1e-5)


def test_print_is_in_order_with_the_kernels():
    texts = []
    for target, options in (("cpu", {}), ("cuda", {"emulate": True})):
        executable = lightnet.compile(lightnet.loads(SMALL, ".net"), target, **options)
        executable(
            {"w": np.zeros((4, 3, 3, 3), np.float32), "b": np.zeros(4, np.float32)}, stream=(out := io.StringIO())
        )
        texts.append(out.getvalue())
    assert texts[0] == texts[1] and "0.25" in texts[0]
    lines = executable.instance.code.lines
    assert [type(line) for line in lines].count(HostLine) == 1 and isinstance(lines[0], KernelLine)


def test_a_saved_executable_needs_neither_xdsl_nor_llvm(tmp_path):
    executable = lightnet.compile(lightnet.loads(SMALL, ".net"), "cuda", emulate=True)
    executable.save(tmp_path / "net.lnx")
    feeds = fed(executable)
    np.savez(tmp_path / "feeds.npz", **feeds)
    code = f"""
import sys, io, numpy as np
for name in ("xdsl", "llvmlite"):
    sys.modules[name] = None
from lightnet.runtime.artifact import load_executable
run = load_executable({str(tmp_path / "net.lnx")!r}, emulate=True)
np.save({str(tmp_path / "y.npy")!r}, run(dict(np.load({str(tmp_path / "feeds.npz")!r})), stream=io.StringIO())["y"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), executable(feeds, stream=io.StringIO())["y"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda h: h["lines"][0].update(places=[["arena", 1 << 40]]),
        lambda h: h["lines"][0].update(places=[["attic", 0]]),
        lambda h: h["lines"][0].update(grid=[1, 1]),
        lambda h: h["lines"][0].pop("kernel"),
        lambda h: h["lines"].append({"number": 7, "place": ["arena", 0]}),
    ],
)
def test_a_damaged_launch_list_is_refused(damage):
    """`SavedExecutable` makes one error of these."""
    executable = lightnet.compile(lightnet.loads(SMALL, ".net"), "cuda", emulate=True)
    code, program = executable.native.code, executable.program
    header = json.loads(json.dumps(code.header()))
    assert CudaCode.from_header(header, code.ptx, program) == code
    damage(header)
    with pytest.raises((ValueError, TypeError, KeyError)):
        CudaCode.from_header(header, code.ptx, program)


def test_a_network_that_is_larger_than_the_device_is_refused():
    executable = lightnet.compile(EXAMPLES / "cnn.net", "cuda", emulate=True)
    made = executable.instance
    with pytest.raises(LightNetError, match=r"needs \d+ bytes of device memory, and PTX interpreter has 100000"):
        CudaInstance(made.program, made.code, made.static, made.defaults, Emulator(memory_bytes=100_000))


def test_a_saved_executable_for_processors_is_not_emulated(tmp_path):
    lightnet.compile(lightnet.loads(SMALL, ".net")).save(tmp_path / "net.lnx")
    with pytest.raises(LightNetError, match=r"the executable's code \(native\) takes no option 'emulate'"):
        lightnet.load_executable(tmp_path / "net.lnx", emulate=True)


def test_a_network_is_compiled_without_a_device(monkeypatch):
    """And says so when it is called."""
    from lightnet.runtime.cuda import libcuda

    def none() -> None:
        raise CudaUnavailable("there is none in this test")

    monkeypatch.setattr(libcuda, "LibCuda", none)
    executable = lightnet.compile(EXAMPLES / "cnn.net", "cuda", arch="sm_90")
    assert ".target sm_90" in executable.ptx and ".version 8.0" in executable.ptx and executable.arch == "sm_90"
    assert executable.ptx == lightnet.compile(EXAMPLES / "cnn.net", "cuda", arch="sm_90").ptx
    with pytest.raises(CudaUnavailable, match="there is none in this test; --emulate runs without one"):
        executable(fed(executable))


@pytest.mark.parametrize(
    ("target", "options", "match"),
    [
        ("cuda", {"arch": "sm_70"}, "unknown architecture 'sm_70'; there are: sm_80"),
        ("cuda", {"layout": "blocked"}, "blocked"),
        (
            "cuda",
            {"pipeline": "bind,expand,plan{plan=upstream alignment=1},choose,lower-cuda"},
            "elements of 4 bytes at multiples of 4 alone: plan with the default plan",
        ),
        (
            "cuda",
            {"cpu": "x86-64-v3"},
            "target 'cuda' has no option 'cpu' .'cpu' is of target cpu.; its own are arch, emulate, on_cpu",
        ),
        ("cpu", {"emulate": True}, "'emulate' is of target cuda"),
        ("none", {"arch": "sm_80"}, ".'arch' is of target cuda.; it has none of its own"),
    ],
)
def test_options_that_mean_nothing_are_refused(target, options, match):
    with pytest.raises(LightNetError, match=match):
        lightnet.compile(EXAMPLES / "cnn.net", target, **options)


def test_what_there_is_not_for_cuda_is_refused():
    with pytest.raises(LightNetError, match="there is no PTX"):
        _ = lightnet.compile(EXAMPLES / "cnn.net").ptx


def test_command_line(tmp_path, capfd, monkeypatch):
    from lightnet.cli.common import run_tool

    monkeypatch.chdir(tmp_path)
    net = str(EXAMPLES / "cnn.net")
    for words, status, wanted in [
        (["run", net, "-t", "cuda", "--emulate", "-i", "random", "--compare", "interpreter"], 0, "agrees"),
        (["compile", net, "--target=cuda", "--arch=sm_90", "--emit=ptx,mlir,lnx", "-o", "net"], 0, ""),
        (["run", "net.lnx", "--emulate", "-i", "random"], 0, "classes"),
        (
            ["run", "net.lnx", "--emulate", "-i", "random", "--profile", "--rounds=1"],
            0,
            "times: of the PTX interpreter",
        ),
        (["compile", net, "--target=cuda", "-o", "80.lnx"], 0, ""),
        (["run", "80.lnx", "--emulate", "-i", "random"], 0, "classes"),
        (["inspect", "80.lnx"], 0, "sm_80"),  # without a device, as nothing runs
        (["compile", net, "--target=cuda", "--emit=obj"], 1, "cannot emit 'obj' for target cuda"),
        (["compile", net, "--emit=ptx"], 1, "'ptx' is of target cuda"),
        (["compile", net, "--target=cuda", "--cpu=x86-64"], 1, "'cpu' is of target cpu"),
    ]:
        assert run_tool(cli.main, words) == status, words
        out, err = capfd.readouterr()
        assert wanted in (err if status else out), (words, out, err)
    assert Path("net.ptx").read_text().count(".entry") >= 3 and "cuda.launch" in Path("net.mlir").read_text()
