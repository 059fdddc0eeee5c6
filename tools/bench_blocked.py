"""The speed of the kernels on blocked maps: time of one thread, share of the FMA peak in the same rotation, time to
make them.

Run: ``python tools/bench_blocked.py [family ...] [--only TEXT] [--rounds N] [--peers] [--avx2]``. Every case runs once a round, in turn, on the
processor time of the thread, so that what else the machine does counts for little; the table has the minimum and the median.
With ``--peers``, ONNX Runtime runs the same layer on one thread: eight in a row where its result fits, of which the table has an
eighth, else one, with the copies to and from its own layout.
A family is a function that lists its cases.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np
from machine import machine
from xdsl.dialects.builtin import ModuleOp

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from blocked_kernels import kernel_of, lay_out

from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel
from lightnet.backends.llvm.emitter import emit_module
from lightnet.backends.llvm.jit import CodeMachine as Processor
from lightnet.backends.llvm.jit import compile_module
from lightnet.ir.arrays import to_memory
from lightnet.ir.layout import byte_size
from lightnet.ir.resolving import resolve
from lightnet.ir.target import Halo
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.runtime.arrays import aligned
from lightnet_debug import roofline

#: Seconds that one measurement lasts at least.
SLICE = 4e-4


@dataclass
class Case:
    """A body for one generator. `work` counts multiply-adds (of pools: the elements that windows read); `choices` pins some; `out` is
    the halo of its results; `peer` the ONNX op and attributes to chain. The cases `behind` it run with it, each on what the one before
    made."""

    name: str
    generator: str
    operands: Mapping[str, str]
    body: str
    work: int
    choices: Mapping[str, object] = field(default_factory=dict)
    out: Halo = (0, 0)
    peer: tuple[str, Mapping[str, object], Sequence[Sequence[int]]] | None = None
    behind: Sequence[Case] = ()


def tensor(*dims: int) -> str:
    """The type of a tensor of f32."""
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


# -- families ----------------------------------------------------------------------------------------------------------


def window(generator: str, src: tuple[int, ...], out: int, size: int, stride: int = 1, pad: int = 0, group: int = 1,
           halo: Halo = (0, 0), **choices: object) -> Case:  # fmt: skip
    """A convolution with a square window and ReLU."""
    n, c, h, w = src
    dims = (n, out, *((s + 2 * pad - size) // stride + 1 for s in (h, w)))
    weight = (out, c // group, size, size)
    params = f"size = [{size}, {size}], stride = [{stride}, {stride}], padding = {[pad] * 4}, group = {group}"
    body = f"%s = ln.conv2d %x, %w, %b {{{params}}} : {tensor(*dims)} %y = ln.relu %s : {tensor(*dims)} ln.yield %y"
    operands = {"x": tensor(*src), "w": tensor(*weight), "b": tensor(out)}
    attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "group": group}
    peer = ("Conv", attributes, [src, dims, weight, (out,)])
    what = f" {' '.join(f'{k}={v}' for k, v in choices.items())}" if choices else ""
    name = f"{size}x{size} s{stride} {c}->{out} @{h}{what}"
    return Case(name, generator, operands, body, prod(dims) * prod(weight[1:]), choices, halo, peer)


def depthwise() -> list[Case]:
    shapes = [(32, 112, 1), (96, 112, 2), (144, 56, 1), (192, 28, 1), (384, 14, 1), (576, 14, 2), (960, 7, 1)]
    return [window("depthwise:DEPTHWISE", (1, c, n, n), c, 3, stride, 1, c) for c, n, stride in shapes] + [
        window("depthwise:DEPTHWISE", (1, 120, 28, 28), 120, 5, 1, 2, 120)
    ]


def first() -> list[Case]:
    layers = [(32, 3, 2, 1), (64, 7, 2, 3), (64, 3, 2, 0), (16, 3, 1, 1), (24, 3, 2, 1), (64, 3, 1, 1)]
    return [window("first:FIRST", (1, 3, 224, 224), o, k, s, p) for o, k, s, p in layers] + [
        window("first:FIRST", (1, 1, 28, 28), 32, 5)
    ]


def pooling(kind: str, c: int, n: int, size: int, stride: int, pad: int) -> Case:
    """A pool with a square window."""
    src, dims = (1, c, n, n), (1, c, *[(n + 2 * pad - size) // stride + 1] * 2)
    params = f"size = [{size}, {size}], stride = [{stride}, {stride}], padding = {[pad] * 4}"
    body = f"%y = ln.{kind}pool2d %x {{{params}}} : {tensor(*dims)} ln.yield %y"
    attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    peer = ({"max": "MaxPool", "avg": "AveragePool"}[kind], attributes, [src, dims])
    work = prod(dims) * size**2
    return Case(f"{kind} {size}x{size} s{stride} {c} @{n}", "pool:POOL", {"x": tensor(*src)}, body, work, peer=peer)


def pool() -> list[Case]:
    layers = [("max", 64, 112, 3, 2, 1), ("max", 64, 111, 3, 2, 0), ("max", 16, 416, 2, 2, 0), ("max", 256, 26, 2, 2, 0),
              ("max", 256, 28, 3, 1, 1), ("max", 512, 13, 5, 1, 2), ("max", 512, 13, 13, 1, 6), ("avg", 192, 28, 3, 1, 1),
              ("avg", 512, 7, 7, 1, 0), ("avg", 1280, 7, 7, 1, 0), ("avg", 96, 112, 112, 1, 0)]  # fmt: skip
    return [pooling(*layer) for layer in layers]


def pooled(n: int, out: int, size: int, stride: int, pad: int, window: tuple[int, int, int], **choices: object) -> Case:
    """The first convolution of a network, ReLU, and a maximum with this size, stride and padding."""
    side = (n + 2 * pad - size) // stride + 1
    last = (side + 2 * window[2] - window[0]) // window[1] + 1
    dims, result = (1, out, side, side), (1, out, last, last)
    conv = f"size = [{size}, {size}], stride = [{stride}, {stride}], padding = {[pad] * 4}"
    pool = f"size = {[window[0]] * 2}, stride = {[window[1]] * 2}, padding = {[window[2]] * 4}"
    body = (
        f"%s = ln.conv2d %x, %w, %b {{{conv}}} : {tensor(*dims)} %r = ln.relu %s : {tensor(*dims)} "
        f"%y = ln.maxpool2d %r {{{pool}}} : {tensor(*result)} ln.yield %y"
    )
    operands = {"x": tensor(1, 3, n, n), "w": tensor(out, 3, size, size), "b": tensor(out)}
    what = "".join(f" {k}={v}" for k, v in choices.items())
    name = f"{size}x{size} s{stride} 3->{out} @{n} max {window[0]}x{window[0]} s{window[1]}{what}"
    return Case(name, "first_pool:FIRST_POOL", operands, body, prod(dims) * 3 * size**2, choices)


def first_pool() -> list[Case]:
    """ResNet's, SqueezeNet's and tiny-yolo's first layers: apart, and as one."""
    apart = [
        window("first:FIRST", (1, 3, n, n), *rest)
        for n, *rest in ((224, 64, 7, 2, 3), (224, 64, 3, 2, 0), (416, 16, 3, 1, 1))
    ]
    pools = [pooling("max", 64, 112, 3, 2, 1), pooling("max", 64, 111, 3, 2, 0), pooling("max", 16, 416, 2, 2, 0)]
    layers = [(224, 64, 7, 2, 3, (3, 2, 1)), (224, 64, 3, 2, 0, (3, 2, 0)), (416, 16, 3, 1, 1, (2, 2, 0))]
    return [*apart, *pools, *(pooled(*layer) for layer in layers)]


def direct() -> list[Case]:
    """ResNet's and MobileNetV2's layers; name: window, stride, channels, input."""
    d = "conv:DIRECT"
    square = [window(d, (1, c, n, n), c, 3, 1, 1, halo=(0, 1)) for c, n in ((64, 56), (128, 28), (256, 14), (512, 7))]
    strided = [window(d, (1, c, n, n), 2 * c, 3, 2, 1) for c, n in ((64, 56), (128, 28), (256, 14))]
    points = [(64, 56, 64), (64, 56, 256), (256, 28, 256), (256, 14, 256), (1024, 14, 256), (512, 7, 512), (512, 7, 2048),
              (96, 14, 576), (24, 56, 144), (320, 7, 1280), (1280, 1, 1000)]  # fmt: skip
    pointwise = [window(d, (1, c, n, n), o, 1) for c, n, o in points]
    return [
        *square,
        *strided,
        *pointwise,
        window(d, (1, 256, 56, 56), 512, 1, 2),
        window(d, (1, 256, 14, 14), 512, 1, 1, halo=(0, 1)),
    ]


def winograd() -> list[Case]:
    """The share of the peak counts the multiply-adds of the direct convolution."""
    cases = []
    for c, height, width, size in ((64, 56, 56, (3, 3)), (128, 28, 28, (3, 3)), (256, 14, 14, (3, 3)), (512, 7, 7, (3, 3)),
                                   (64, 90, 160, (3, 1)), (64, 90, 160, (1, 3)), (128, 45, 80, (3, 1))):  # fmt: skip
        t, pad = tensor(1, c, height, width), [k // 2 for k in size] * 2
        body = f"%s = ln.conv2d %x, %w, %b {{size = {list(size)}, padding = {pad}}} : {t} %y = ln.relu %s : {t} ln.yield %y"
        operands = {"x": t, "w": tensor(c, c, *size), "b": tensor(c)}
        peer = ("Conv", {"kernel_shape": size, "pads": pad}, [(1, c, height, width)] * 2 + [(c, c, *size), (c,)])
        for name, generator in (("direct", "conv:DIRECT"), ("F4", "winograd:WINOGRAD4"), ("F2", "winograd:WINOGRAD2")):
            case = f"{name} {size[0]}x{size[1]} {c}->{c} @{height}x{width}"
            work = c * c * height * width * prod(size)
            cases.append(
                Case(case, generator, operands, body, work, out=(1, 1), peer=peer if name == "direct" else None)
            )
    return cases


def product(m: int, k: int, n: int) -> Case:
    """A product with a packed matrix, and ReLU."""
    t = tensor(m, n)
    body = f"%s = ln.matmul %a, %b : {t} %y = ln.relu %s : {t} ln.yield %y"
    peer = ("MatMul", {}, [(m, k), (m, n), (k, n)])
    return Case(f"{m}x{k}x{n}", "dense:DENSE", {"a": tensor(m, k), "b": tensor(k, n)}, body, m * k * n, peer=peer)


def dense() -> list[Case]:
    many = [(256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (128, 256, 1024), (196, 192, 768), (3136, 576, 64),
            (784, 1152, 128), (196, 2304, 256), (49, 4608, 512), (128, 768, 3072)]  # fmt: skip
    few = [(1, 784, 512), (1, 512, 256), (1, 256, 10), (2, 784, 512), (3, 784, 512), (4, 784, 512), (5, 784, 512), (1, 1280, 1000),
           (1, 2048, 1000)]  # fmt: skip
    shapes = many + few
    return [product(*shape) for shape in shapes]


def elementwise() -> list[Case]:
    """Bound by memory: look at the bytes a second."""
    cases = []
    for c, n in ((64, 112), (64, 56), (128, 28), (512, 7)):
        t = tensor(1, c, n, n)
        total = f'%s = ln.elew %a, %b {{elew_op = "TL_SUM"}} : {t} %y = ln.relu %s : {t} ln.yield %y'
        cases.append(Case(f"add, relu {c} @{n}", "maps:MAPS", {"a": t, "b": t}, total, c * n * n))
        silu = f"%y = ln.silu %a : {t} ln.yield %y"
        cases.append(Case(f"silu {c} @{n}", "maps:MAPS", {"a": t}, silu, c * n * n))
    return cases


def moves() -> list[Case]:
    """Changes of layout, moves of channels, resampling."""

    def one(name: str, generator: str, source: str, op: str, result: str, n: int, out: Halo = (0, 0)) -> Case:
        return Case(f"{name} @{n}", generator, {"x": source}, f"%y = {op} : {result} ln.yield %y", 0, out=out)

    cases = []
    for c, n in ((64, 112), (64, 56), (24, 56), (512, 7)):
        plain, blocked = tensor(1, c, n, n), tensor(1, c, n, n)[:-1] + ', #ln.layout<"c16">>'
        for out in ((0, 0), (1, 1)):
            cases.append(
                one(f"to blocks, halo {out[0]}, {c}", "reorder:REORDER", plain, "ln.forward %x", blocked, n, out)
            )
        cases.append(one(f"to plain {c}", "reorder:REORDER", blocked, "ln.forward %x", plain, n))
        last = tensor(1, n, n, c)
        cases.append(one(f"channels last {c}", "nhwc:NHWC", plain, "ln.transpose %x {axes = [0, 2, 3, 1]}", last, n))
    for c, n in ((24, 28), (48, 14), (96, 7), (58, 28)):
        half, stacked = tensor(1, c, n, n), tensor(1, c, 1, n, n)
        body = (
            f"%0 = ln.reshape %a : {stacked} %1 = ln.reshape %b : {stacked} %2 = ln.concat %0, %1 {{axis = 2}} : "
            f"{tensor(1, c, 2, n, n)} %y = ln.reshape %2 : {tensor(1, 2 * c, n, n)} ln.yield %y"
        )
        cases.append(Case(f"shuffle 2x{c} @{n}", "channels:CHANNELS", {"a": half, "b": half}, body, 0))
    for c, n in ((256, 13), (128, 26)):
        larger = tensor(1, c, 2 * n, 2 * n)
        cases.append(one(f"twice as large {c}", "maps:RESAMPLE", tensor(1, c, n, n), "ln.resize %x", larger, n))
    return cases


def residual(c: int, n: int, wide: int, out: int, stride: int = 1) -> list[Case]:
    """An inverted residual (without its sum; `wide` 0: its depthwise and last convolution): three kernels, and one in bands of rows."""
    side, channels = (n - 1) // stride + 1, wide or c
    layers = [
        ("depthwise:DEPTHWISE", (1, channels, n, n), channels, 3, stride, 1, channels),
        ("conv:DIRECT", (1, channels, side, side), out, 1),
    ]
    if wide:
        layers.insert(0, ("conv:DIRECT", (1, c, n, n), wide, 1, 1, 0, 1, (1, 1)))
    first, *rest = (window(*layer) for layer in layers)
    operands, lines, work = {"x": first.operands["x"]}, [], 0
    for i, case in enumerate((first, *rest)):  # the bodies in a row, their names numbered
        operands |= {f"{name}{i}": type for name, type in case.operands.items() if name != "x"}
        line = re.sub(r"%(\w)", rf"%\g<1>{i}", case.body.partition(" ln.yield")[0])
        lines.append(line.replace(f"%x{i}", f"%y{i - 1}" if i else "%x"))
        work += case.work
    what = f"{c}->" * bool(wide) + f"{channels}->{out} s{stride} @{n}"
    body = " ".join(lines) + f" ln.yield %y{len(rest)}"
    return [
        replace(first, name=f"{what} apart", work=work, behind=rest),
        Case(f"{what} bands", "bands:BANDS", operands, body, work),
    ]


def bands() -> list[Case]:
    """MobileNetV2's blocks, and some of MobileNetV1's."""
    blocks = [(32, 112, 0, 16), (16, 112, 96, 24, 2), (24, 56, 144, 24), (24, 56, 144, 32, 2), (32, 28, 192, 32), (32, 28, 192, 64, 2),
              (64, 14, 384, 64), (64, 14, 384, 96), (96, 14, 576, 96), (96, 14, 576, 160, 2), (160, 7, 960, 160), (160, 7, 960, 320),
              (64, 112, 0, 128, 2), (128, 56, 0, 128), (256, 28, 0, 256), (512, 14, 0, 512)]  # fmt: skip
    return [case for block in blocks for case in residual(*block)]


def transposed() -> list[Case]:
    """ERFNet's upsamplers: windows of 2x2 and 3x3, stride 2."""
    cases = []
    for c, h, w, o, size in ((128, 45, 80, 64, 2), (64, 90, 160, 32, 2), (128, 45, 80, 64, 3)):
        dims, more = (1, o, 2 * h, 2 * w), size - 2
        params = f"size = [{size}, {size}], stride = [2, 2], padding = {[more] * 4}, output_padding = {[more] * 2}"
        body = (
            f"%s = ln.deconv2d %x, %w, %b {{{params}}} : {tensor(*dims)} %y = ln.relu %s : {tensor(*dims)} ln.yield %y"
        )
        operands = {"x": tensor(1, c, h, w), "w": tensor(c, o, size, size), "b": tensor(o)}
        cases.append(
            Case(f"deconv {size}x{size} {c}->{o} @{h}x{w}", "deconv:DECONV", operands, body, c * o * h * w * size**2)
        )
    return cases


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "winograd": winograd,
    "direct": direct,
    "transposed": transposed,
    "depthwise": depthwise,
    "first": first,
    "pool": pool,
    "first-pool": first_pool,
    "dense": dense,
    "elementwise": elementwise,
    "moves": moves,
    "bands": bands,
}


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass
class Ready:
    """A compiled case: a call, and the milliseconds of Python and of LLVM that it took to make; ops of its functions."""

    call: Callable[[], None]
    python: float = 0.0
    llvm: float = 0.0
    ops: int = 0
    traffic: int = 0

    def then(self, other: Ready) -> Ready:
        """Both, one after the other."""

        def call() -> None:
            self.call()
            other.call()

        return Ready(call, *(getattr(self, k) + getattr(other, k) for k in ("python", "llvm", "ops", "traffic")))


def prepare(case: Case, model: ProcessorModel, processor: Processor, source: np.ndarray | None = None) -> Ready:
    """Build, compile and place the operands of a case, the first of which stands in `source` already if that is given."""
    generator: BlockedGenerator = resolve(f"lightnet.backends.cpu.blocked.{case.generator}")
    own = f'"c{model.lanes}"'
    operands = {name: type.replace('"c16"', own) for name, type in case.operands.items()}
    kernel = kernel_of(operands, case.body.replace('"c16"', own))
    kernel.attributes.update({k: ParamAttr(v) for k, v in case.choices.items()})
    plan = lay_out(kernel, generator, model, out=case.out)
    start = time.thread_time()
    launches = plan.build(kernel, "kernel", {})
    module = ModuleOp([launch.function for launch in launches])
    emit_module(module, processor.vectors)
    python = time.thread_time() - start
    start = time.thread_time()
    native = compile_module(module, machine=processor)
    llvm = time.thread_time() - start
    random = np.random.default_rng(0)
    inputs = [_placed(to_memory(v.type, _random(random, spec_of(v.type).dims))) for v in kernel.operands]
    if source is not None:
        assert source.nbytes == inputs[0].nbytes, "what a case makes is laid out as the one behind it reads"
        inputs[0] = source
    results = [_placed(np.zeros(byte_size(v.type), np.uint8)) for v in kernel.results]
    scratch = aligned(max(plan.scratch_bytes, 64))
    scratch[:] = 0  # pages that were never written are all one page of zeros, which stays in the first-level cache
    workspace = aligned(max(plan.workspace_bytes, 64))
    workspace[:] = 0
    calls = []
    for launch in launches:
        signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(launch.args))
        pointers = []
        for argument in launch.args:
            memory = {"operand": inputs, "result": results}.get(argument.kind)
            near = workspace if argument.kind == "workspace" else scratch
            pointers.append(memory[argument.number].ctypes.data if memory else near.ctypes.data + argument.number)
        function = signature(native.kernel_address(launch.function.sym_name.data))
        calls.append((function, 0, launch.grid, *pointers))

    def call() -> None:
        for function, *arguments in calls:
            function(*arguments)

    call.keep = (native, inputs, results, scratch, workspace)
    traffic = sum(m.nbytes for m in (*inputs, *results))
    ready = Ready(call, 1e3 * python, 1e3 * llvm, sum(1 for _ in module.walk()), traffic)
    if not case.behind:
        return ready
    following, *rest = case.behind
    return ready.then(prepare(replace(following, behind=rest), model, processor, results[0]))


def _random(random: np.random.Generator, dims: Sequence[int]) -> np.ndarray:
    return random.standard_normal(dims).astype(np.float32)


def _placed(memory: np.ndarray) -> np.ndarray:
    copy = aligned(max(memory.nbytes, 64))
    copy[: memory.nbytes] = memory
    return copy


def peak_call(processor: Processor) -> tuple[Callable[[], None], int]:
    """A call that makes that many multiply-adds of f32."""
    width = processor.vectors.width
    native = compile_module(ModuleOp([roofline.fma_kernel(width).finish()]), machine=processor)
    memory = aligned(4 * roofline.CHAINS * width)
    memory[:] = 0
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(native.kernel_address("peak"))

    def call() -> None:
        function(0, 1, memory.ctypes.data)

    call.keep = (native, memory)
    return call, roofline.CHAINS * width * roofline.UNROLLED * roofline.TRIPS


def chained(case: Case) -> int:
    """The number of copies of a case's layer that its peer runs: eight where they fit together."""
    assert case.peer is not None
    return 8 if case.peer[2][0] == case.peer[2][1] else 1


def peer_call(case: Case) -> Callable[[], None]:
    """ONNX Runtime on copies of the case's layer, with a ReLU behind each convolution."""
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    op, attributes, (src, dst, *weights) = case.peer
    length = chained(case)
    random, nodes, given = np.random.default_rng(0), [], []
    for k in range(length):
        names = []
        for i, dims in enumerate(weights):
            names.append(f"w{k}_{i}")
            given.append(numpy_helper.from_array(_random(random, dims) / np.float32(prod(dims[1:]) ** 0.5), names[-1]))
        made = f"s{k}" if op == "Conv" else f"x{k + 1}"
        nodes.append(helper.make_node(op, [f"x{k}", *names], [made], **attributes))
        if op == "Conv":
            nodes.append(helper.make_node("Relu", [made], [f"x{k + 1}"]))
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, d) for n, d in (("x0", src), (f"x{length}", dst))]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {"x0": _random(random, src)}
    return lambda: session.run(None, feed)


def timed(call: Callable[[], None], repeat: int) -> float:
    """Seconds of this thread that a call takes."""
    start = time.thread_time()
    for _ in range(repeat):
        call()
    return (time.thread_time() - start) / repeat


def repeats(call: Callable[[], None]) -> int:
    call()
    return max(1, min(1000, round(SLICE / max(timed(call, 3), 1e-7))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="family", help=f"of {', '.join(FAMILIES)}; all unless given")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", action="store_true", help="measure ONNX Runtime in the same rotation")
    parser.add_argument("--avx2", action="store_true", help="for vectors of 8 and 16 registers, and beside their peak")
    options = parser.parse_args()
    for name in options.families:
        if name not in FAMILIES:
            parser.error(f"there is no family '{name}'; there are: {', '.join(FAMILIES)}")
    processor = Processor("x86-64-v3", "") if options.avx2 else Processor.host()
    width = processor.vectors.width
    model = ProcessorModel() if width == 16 else ProcessorModel(lanes=width, registers=16 if width == 8 else 32)
    cases = [c for f in options.families or FAMILIES for c in FAMILIES[f]() if options.only in c.name]
    ready = [prepare(case, model, processor) for case in cases]
    top, top_work = peak_call(processor)
    calls = [top, *(r.call for r in ready)]
    peers = {i: len(calls) + k for k, i in enumerate(i for i, c in enumerate(cases) if options.peers and c.peer)}
    calls += [peer_call(cases[i]) for i in peers]
    counts = [repeats(call) for call in calls]
    times = np.array([[timed(c, k) for c, k in zip(calls, counts)] for _ in range(options.rounds)])
    peak = top_work / times[:, 0].min()
    print(f"{machine('llvmlite')}; peak {2e-9 * peak:.0f} GFLOP/s; {options.rounds} rounds; us: minimum, median")
    print(
        f"{'kernel':44} {'min':>8} {'median':>8} {'% peak':>7} {'GB/s':>6} {'peer':>8} {'ops':>5} {'py ms':>6} {'code ms':>8}"
    )
    for i, (case, r) in enumerate(zip(cases, ready)):
        own = times[:, 1 + i]
        share = np.median(case.work / own / (top_work / times[:, 0]))
        peer = f"{1e6 * times[:, peers[i]].min() / chained(case):8.1f}" if i in peers else " " * 8
        print(
            f"{case.name:44} {1e6 * own.min():8.1f} {1e6 * np.median(own):8.1f} {100 * share:7.1f} "
            f"{1e-9 * r.traffic / own.min():6.0f} {peer} {r.ops:5} {r.python:6.1f} {r.llvm:8.1f}"
        )


if __name__ == "__main__":
    main()
