"""`lightnet run --profile`: launches belong to the right kernels, figures add up, the trace is one that viewers read."""

from __future__ import annotations

import gc
import json
import re
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sampled_weights import sampled_weights
from xdsl.dialects.func import ReturnOp

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import LaunchOp, lines_of
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.target import get_target
from lightnet.passes.lower_cpu import _Lowering
from lightnet_debug import costs, roofline, steps
from lightnet_debug.profile import KernelTime, by_function, profile, profiled
from lightnet_debug.roofline import Peaks
from lightnet_debug.steps import InstanceStepper, idle, stepper, steps_of

NETS = Path(__file__).parents[1] / "data" / "nets" / "il"
SMALL = (
    "create(| dst=x | dtype=TL_FLOAT, dims=[1, 3, 12, 12], data=[1], ran=[-1, 1], from_file=false);\n"
    "create(| dst=w | dtype=TL_FLOAT, dims=[3, 3, 3, 3], data=[1], ran=[-1, 1], from_file=false);\n"
    "create(| dst=b | dtype=TL_FLOAT, dims=[3], data=[1], ran=[-1, 1], from_file=false);\n"
    "conv2d(src=x, weight=w, bias=b | dst=c | size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1],"
    ' group=1, autopad="NOTSET");\n'
    "relu(src=c | dst=r |);\n"
    "reshape(src=r | dst=f | dims=[3, 144]);\n"
    "softmax(src=f | dst=s | axis=1);\n"
    "transpose(src=s | dst=t | axes=[1, 0]);\n"
    "sort1d(src_key=v | dst_key=o | dir=\"TL_SORT_DIR_ASCENDING\");\n"
).replace("sort1d(", "create(| dst=v | dtype=TL_FLOAT, dims=[9], data=[3, 1, 2, 0, 0, 0, 0, 0, 0], ran=[0, 0], from_file=false);\nsort1d(")  # fmt: skip


def small() -> lightnet.Model:
    return lightnet.loads(SMALL, ".net", "small.net")


class _Recorded(_Lowering):
    """The lowering, saying how many lines each op became."""

    def run(self) -> None:
        self.counts: list[int] = []
        super().run()

    def lower(self, op) -> None:
        before = len(self.lines)
        super().lower(op)
        if not isinstance(op, Source | OnceOp | ReturnOp):
            self.counts.append(sum(isinstance(line, LaunchOp) for line in self.lines[before:]))


@pytest.mark.sampled(every=4, share=0.3)
@pytest.mark.parametrize(
    ("net", "plan"),
    [("small", "default"), ("small", "upstream"), ("shufflenetv2", "default"), ("squeezedet", "default")],
)
def test_launches_belong_to_their_kernels(net, plan):
    """The lowering itself says how many launches each kernel became; the steps, which see its results only, find the same."""
    model = small() if net == "small" else lightnet.load(NETS / f"{net}.net")
    executable = lightnet.compile(model, plan=plan)
    lowering = _Recorded(executable.planned.clone())
    lowering.run()
    steps = steps_of(executable.planned, executable.loops)
    assert [len(s.lines) for s in steps] == lowering.counts
    assert sum(lowering.counts) > 3


@pytest.mark.sampled(every=2, share=0.3)
@pytest.mark.parametrize("net", ["small", "shufflenetv2"])
def test_kernels_one_by_one_compute_what_a_call_does(net):
    path = NETS / f"{net}.net"
    model = small() if net == "small" else lightnet.load(path)
    if net != "small":
        model = lightnet.load(path, weights=sampled_weights(model), override=True)
    executable = lightnet.compile(model)
    want = executable()
    walk = stepper(executable)
    for _ in range(2):  # the second time from memory that has been used
        walk.restart()
        for step in walk.steps:
            for run in walk.calls(step):
                run()
        last = executable.planned.body.block.last_op.body.block.last_op
        for value, array in zip(last.operands, want.values()):
            np.testing.assert_array_equal(walk.read(value), array)
            assert np.ptp(array) > 0


def test_what_launches_nothing():
    """A host op and kernels without elements, of moves and of what computes, stand among the steps, and the others keep their launches."""
    types = "tensor<0x8xf32>, tensor<4x0xf32>, tensor<0x8xf32>, tensor<4x3xf32>, tensor<3x4xf32>"
    model = lightnet.loads(f"""builtin.module {{ func.func @main() -> ({types}) {{
      %x = ln.input : tensor<0x8xf32> as "x"("x")
      %z = ln.input : tensor<3x4xf32> as "z"("z")
      %e = ln.input : tensor<0x4xf32> as "e"("e")
      %a = ln.exp %x : tensor<0x8xf32> as "a"("a")
      %s = ln.softmax %z {{axis = 1}} : tensor<3x4xf32> as "s"("s")
      ln.print %s {{msg = "s:"}}
      %b = ln.transpose %e {{axes = [1, 0]}} : tensor<4x0xf32> as "b"("b")
      %c = ln.concat %e, %e {{axis = 1}} : tensor<0x8xf32> as "c"("c")
      %t = ln.transpose %s {{axes = [1, 0]}} : tensor<4x3xf32> as "t"("t")
      %r = ln.relu %z : tensor<3x4xf32> as "r"("r")
      func.return %a, %b, %c, %t, %r : {types}
    }} }}""", ".mlir")  # fmt: skip
    executable = lightnet.compile(model)
    found = [
        (name, len(step.lines))
        for step in steps_of(executable.planned, executable.loops)
        for name in re.findall(r'as "\w+"\("(\w)"\)|ln\.(print)', str(step.op))
    ]
    assert [(a or b, count) for (a, b), count in found] == [
        ("a", 0), ("s", 1), ("print", 0), ("b", 0), ("c", 0), ("t", 1), ("r", 1)
    ]  # fmt: skip


class _Instance:
    """Stands in for an instance that runs its launch list itself: what is asked of it, in order."""

    def __init__(self, program: lightnet.Executable, asked: list | None = None):
        self.launches = [line for step in steps_of(program.planned, program.loops) for line in step.lines]
        self.program, self.asked = program, [] if asked is None else asked

    def apart(self) -> _Instance:
        self.asked.append("apart")
        return _Instance(self.program, self.asked)

    def start(self, feeds: dict, static: np.ndarray) -> None:
        self.asked.append(("start", *sorted(feeds)))

    def __getattr__(self, name: str):
        return lambda *args: self.asked.append((name, *args) if args else name)


def test_kernels_of_an_instance_that_runs_its_list_itself():
    """They are its launches by number, in memory of their own, which is given back with the last reference."""
    text = (
        "create(| dst=x | dtype=TL_FLOAT, dims=[4], data=[1], ran=[-1, 1], from_file=false);\nrelu(src=x | dst=r |);\n"
    )
    executable = lightnet.compile(lightnet.loads(f"{text}softmax(src=r | dst=s | axis=0);\n", ".net", "two.net"))
    feeds = {"x": np.ones(4, np.float32)}
    stands_in = SimpleNamespace(planned=executable.planned, loops=executable.loops, filled=executable.filled)
    stands_in.instance = _Instance(executable)
    walk, asked = InstanceStepper(stands_in, feeds), stands_in.instance.asked
    assert [s.op for s in walk.steps] == [s.op for s in steps_of(executable.planned, executable.loops)]
    start = asked[1]
    assert asked == ["apart", start] and start[0] == "start" and "x" in start
    asked.clear()
    for step in walk.steps:
        assert walk.seconds(step) >= 0
    assert asked == [("launch", k) for k in range(len(stands_in.instance.launches))]
    asked.clear()
    walk.restart()
    walk.call_whole()
    assert walk.whole_seconds() >= 0 and walk.peaks() is None
    assert asked == [start, *["launch_all", "wait"] * 2]
    asked.clear()
    del walk
    gc.collect()
    assert asked == ["release"]


def test_a_move_of_one_call_alone():
    """Two columns side by side are computed where calls decide how long they are; in a call of one row they would be two copies."""
    text = """
func.func @main() -> tensor<?x2xf32, #ln.dims<"n(1..8)">> {
  %x = ln.input : tensor<?x1xf32, #ln.dims<"n(1..8)">> as ("x")
  %a = ln.relu %x : tensor<?x1xf32, #ln.dims<"n(1..8)">> as ("a")
  %b = ln.neg %x : tensor<?x1xf32, #ln.dims<"n(1..8)">> as ("b")
  %c = ln.concat %a, %b {axis = 1} : tensor<?x2xf32, #ln.dims<"n(1..8)">> as ("c")
  %y = ln.softmax %c {axis = 1} : tensor<?x2xf32, #ln.dims<"n(1..8)">> as ("y")
  func.return %y : tensor<?x2xf32, #ln.dims<"n(1..8)">>
}
"""
    executable = lightnet.compile(lightnet.loads(text, ".mlir"))
    for rows in (1, 3):
        of_call = executable.specialized({"x": np.ones((rows, 1), np.float32)})
        launched = [[line.callee.string_value() for line in s.lines] for s in steps_of(of_call.planned, of_call.loops)]
        assert list(chain(*launched)) == [line.callee.string_value() for line in lines_of(of_call.loops)]
        assert all(found for found in launched)


def test_kernels_of_a_profile():
    found = profiled(lightnet.compile(small()), rounds=3)
    kernels = {k.name: k for k in found.kernels}
    assert list(kernels) == ["r", "s", "t", "o"]  # the reshape costs nothing
    conv = kernels["r"]
    assert (
        conv.ops == ("conv2d conv2d0", "relu relu0") and conv.function.startswith("conv2d_relu") and conv.launches == 1
    )
    assert conv.flops == 3 * 144 * (2 * 27 + 1) and conv.bytes == 4 * (2 * 3 * 144 + 3 * 27 + 3)
    assert conv.shapes == "1x3x12x12 3x3x3x3 3 -> 1x3x12x12" and conv.where.line == 4
    assert all(k.seconds >= 0 and k.bound_seconds > 0 for k in found.kernels)
    assert conv.seconds > 0 and found.whole_seconds > 0
    assert found.seconds == pytest.approx(sum(k.seconds for k in found.kernels))
    assert profile(lightnet.compile(small()), rounds=1)[0].flops == conv.flops


def test_times_add_up():
    """The kernels of a network take about as long as the whole: no unit is another, and none counts twice. A busy machine is given a factor of ten."""
    found = profiled(lightnet.compile(lightnet.load(NETS / "shufflenetv2.net")), rounds=5)
    assert 0.1 < found.seconds / found.whole_seconds < 10
    conv = max(found.kernels, key=lambda k: k.flops)
    assert 0.002 < conv.share_of_bound < 1.2


CONVOLUTION = """
func.func @main() -> tensor<1x32x24x24xf32> {
  %x = ln.input : tensor<1x32x24x24xf32> as ("x")
  %w = ln.param : tensor<32x32x3x3xf32> as ("w")
  %b = ln.param : tensor<32xf32> as ("b")
  %y = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x24x24xf32> as ("y")
  func.return %y : tensor<1x32x24x24xf32>
}
"""


@pytest.mark.parametrize(
    ("alg", "effort"), [("direct", 1), ("winograd2", 16 / (4 * 9)), ("winograd4", 36 / (16 * 9)), ("dot", 1 / 2)]
)
def test_what_an_algorithm_saves_is_no_work(alg, effort):
    """The bound counts the products that a kernel computes: F(m, 3) has (m + 2)^2 in the place of 9 m^2, and one of bf16 is two of f32."""
    machine, short, text = "{features=avx512bf16}", "", CONVOLUTION
    if alg == "dot":  # of a window that Winograd's algorithm does nothing for
        short = "short-products{to=bf16 features=avx512bf16},"
        for old, new in (("1x32x", "1x256x"), ("32x32x3x3", "256x256x1x1"), ("<32x", "<256x"), ("[3, 3]", "[1, 1]")):
            text = text.replace(old, new)
        text = text.replace(", padding = [1, 1, 1, 1]", "")
    model = lightnet.loads(text, ".mlir")
    choose = f'choose{{features=avx512bf16 set="y.alg={alg}"}}'
    model.run(f"bind,simplify,{short}hoist,expand,combine,layout{machine},{choose}")
    kernel = max(model.module.walk(), key=lambda op: costs.flops(op) if isinstance(op, KernelOp) else 0)
    assert kernel.attributes["alg"].data == alg
    assert costs.executed(kernel, get_target("cpu").selection) == pytest.approx(effort * costs.flops(kernel))
    assert (
        costs.executed(kernel, None)
        == costs.flops(kernel)
        == kernel.ops[0].flops() + sum(o.flops() for o in kernel.ops[1:])
    )


def test_a_kernel_that_is_one_block_has_its_time():
    """A kernel of one block does all its work in it: a call of it is timed less what calling costs, and no less."""
    text = (
        "create(| dst=v | dtype=TL_FLOAT, dims=[20000], data=[0], ran=[-1, 1], from_file=false);\n"
        'sort1d(src_key=v | dst_key=o | dir="TL_SORT_DIR_ASCENDING");\nsigmoid(src=o | dst=s |);\n'
    )
    found = profiled(lightnet.compile(lightnet.loads(text, ".net", "sort.net")), rounds=3)
    sort, other = found.kernels
    assert sort.name == "o" and sort.seconds > 0.1 * found.whole_seconds > 0.01 * other.seconds
    assert sort.seconds > 20e-6  # 20,000 elements, some passes


def test_limits_are_measured_around_the_kernels(monkeypatch):
    """Clocks change: the machine is measured once before all kernels, and its arithmetic once more behind them."""
    done: list[str] = []
    for name, result in (
        ("measured", Peaks(1e9, ((1024, 1e9),))),
        ("raised", Peaks(2e9, ((1024, 1e9),))),
        ("_net_seconds", 1.0),
    ):
        monkeypatch.setattr(steps, name, lambda *_, name=name, result=result: done.append(name) or result)
    found = profiled(lightnet.compile(small()), rounds=2)
    launches = 3 * sum(k.launches for k in found.kernels)
    assert done == ["measured", *["_net_seconds"] * launches, "measured", "raised"]
    assert found.peaks.flops == 2e9 and [k.seconds for k in found.kernels] == [k.launches for k in found.kernels]


def test_calling_nothing():
    line = steps_of(*(getattr(lightnet.compile(small()), a) for a in ("planned", "loops")))[0].lines[0]
    call = idle(line)
    assert call() is None and len(call.args) == 2 + len(line.args)


def test_grouped_by_function():
    one = KernelTime("a", "f", ("relu r",), 1, 2.0, 10, 100, 1.0)
    merged = by_function(
        [one, KernelTime("b", "g", (), 1, 5.0, 1, 1, 0.5), KernelTime("c", "f", (), 2, 4.0, 20, 200, 3.0)]
    )
    assert [(k.name, k.launches, k.seconds, k.flops, k.bytes, k.bound_seconds) for k in merged] == [
        ("a and 1 more", 3, 6.0, 30, 300, 4.0), ("b", 1, 5.0, 1, 1, 0.5)]  # fmt: skip


def test_roofline():
    peaks = Peaks(100e9, ((1 << 10, 400e9), (1 << 20, 50e9)))
    assert peaks.bound(10**9, 4) == pytest.approx(0.01)  # bound by arithmetic
    assert peaks.bound(10**9, 4, item=8) == pytest.approx(0.02)
    assert peaks.bound(1, 1 << 16) == pytest.approx((1 << 16) / 400e9)  # it may be in the first cache
    assert peaks.bound(1, 1 << 30) == pytest.approx((1 << 30) / 50e9)
    assert peaks.bound(0, 0) == 0
    found = roofline.measured()
    assert found is roofline.measured()
    assert 1e9 < found.flops < 2e12
    again = roofline.raised(found)
    assert again.flops >= found.flops and again.bandwidth == found.bandwidth
    assert roofline.raised(Peaks(1e15, ())) == Peaks(1e15, ())
    rates = [rate for _, rate in found.bandwidth]
    assert rates == sorted(rates, reverse=True) and 1e8 < rates[-1] <= rates[0] < 5e12


def test_costs_of_a_kernel_are_those_of_its_ops():
    executable = lightnet.compile(small())
    kernels = [op for op in executable.planned.body.block.last_op.body.block.ops if isinstance(op, KernelOp)]
    ops = [op for kernel in kernels for op in kernel.ops]
    assert sum(map(costs.flops, kernels)) == sum(op.flops() for op in ops)


@pytest.mark.parametrize(("op", "each"), [("relu", 1), ("elu", 4), ("selu", 4), ("celu", 4), ("gelu", 8)])
def test_operations_of_activations(op: str, each: int) -> None:
    """What an element costs, by which plans are compared."""
    text = f"func.func @main(%x : tensor<3x5xf32>) {{ %y = ln.{op} %x : tensor<3x5xf32> func.return }}"
    module = parse_mlir(make_context(), text, "one.mlir")
    assert sum(map(costs.flops, module.walk())) == 15 * each


def test_what_cannot_be_profiled():
    for target, why in (("none", "target none has none here"), ("tensorrt", "target tensorrt has none here")):
        with pytest.raises(LightNetError, match=f"no machine code to profile: {why}"):
            profile(lightnet.compile(small(), target))
    with pytest.raises(LightNetError, match="the pipeline ends before the launches of target cpu"):
        profile(lightnet.compile(small(), pipeline="@cpu:plan"))
    with pytest.raises(LightNetError, match="at least one round"):
        profile(lightnet.compile(small()), rounds=0)


# -- the tool --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("n.net").write_text(SMALL)

    def run(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(["run", *map(str, args)])
        return status, *capfd.readouterr()

    return run


def test_table(cli):
    for words in (("--profile", "n.net"), ("n.net", "--profile", "--rounds", 2)):
        status, out, err = cli(*words)
        assert (status, err) == (0, "")
        table = out.split("\n\n")[1].splitlines()
        assert table[0].split()[:4] == ["kernel", "ops", "function", "us"]
        assert sorted(line.split()[0] for line in table[1:]) == ["o", "r", "s", "t"]
        assert "sum of 4 kernels" in out and "one call of the network" in out and "roofline bound" in out


def test_trace(cli):
    """The JSON object form of the trace event format: complete events, in microseconds, one behind the other."""
    assert cli("n.net", "--profile=trace.json")[0] == 0
    text = Path("trace.json").read_text()
    found = json.loads(text)
    assert text == json.dumps(found, indent=1) + "\n"  # lines are short, and blanks few: traces are large
    events = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in events] == ["sum of kernels", "r", "s", "t", "o"]
    assert all({"name", "ph", "ts", "dur", "pid", "tid"} <= set(e) for e in events)
    for before, after in pairwise(events[1:]):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"])
    assert events[-1]["ts"] + events[-1]["dur"] == pytest.approx(events[0]["dur"])
    assert [k["name"] for k in found["lightnet"]["kernels"]] == ["r", "s", "t", "o"]


def test_a_network_that_prints_and_one_without_code(cli):
    Path("p.net").write_text(SMALL + 'print(src=r || msg="r:");\n')
    status, out, _ = cli("p.net", "--profile")
    assert status == 0 and out.count("r:\n") == 1 and "one call of the network" not in out
    status, _, err = cli("n.net", "--profile", "-t", "none")
    assert status == 1 and "no machine code to profile" in err


def test_open_shapes(cli):
    onnx = pytest.importorskip("onnx")
    h, float_ = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [h.make_node("Exp", ["x"], ["e"]), h.make_node("Softmax", ["e"], ["y"])]
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info("x", float_, ["N", 40])], [h.make_tensor_value_info("y", float_, None)]
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), "m.onnx")
    status, out, err = cli("m.onnx", "-i", "x=random", "--shape", "x=3x40", "--profile")
    assert (status, err) == (0, "") and "3x40 -> 3x40" in out
    np.save("x.npy", np.ones((5, 40), np.float32))
    status, out, err = cli("m.onnx", "-i", "x=@x.npy", "--profile")
    assert (status, err) == (0, "") and "5x40 -> 5x40" in out
