"""Kernels on blocked maps whose height or width a call decides: each generator that says it builds them, compiled once, against the reference in float64
on maps that tiles like least; between guards, with halos that are wider than needed, in place, block by block, at level 4, and in networks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from test_open_gemm import agree, drawn, extra, guarded, kernel_of
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block

import lightnet
from lightnet.backends.cpu.open_maps import OpenMaps
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.launches import launch_memory_of
from lightnet.backends.llvm.jit import compile_module
from lightnet.cli import ln_opt
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.launch import kernel_symbols
from lightnet.dialects.ln.arith import Add
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.elementwise import Relu, Sigmoid
from lightnet.dialects.ln.move import Concat, Forward, Reshape, Slice, Transpose
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.dialects.ln.pool_nd import Avgpool
from lightnet.dialects.ln.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum
from lightnet.dialects.ln.resize import Interpolate, Upsample
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.passes.expand import ExpandPass
from lightnet.passes.layout import follow, set_layout
from lightnet.runtime.dims import Size, at, symbol, with_sizes
from lightnet.runtime.dtypes import BY_NAME
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram

N, H, W = symbol("n", 1, 3), symbol("h", 1, 96), symbol("w", 1, 96)
#: A size that is a multiple, and sizes of which every window without padding has one.
E, TALL, WIDE = symbol("e", 4, 96, 4), symbol("h", 3, 96), symbol("w", 3, 96)
#: Heights and widths: one pixel, less than a window, about a tile of any machine, a little more than several, and beyond.
SIZES = ((1, 1), (2, 1), (1, 5), (3, 6), (5, 7), (4, 14), (13, 15), (2, 29), (31, 33), (8, 64), (1, 91))


def made(kind: type[LnOp], dims: Sequence[Sequence[Size]], /, **params) -> LnOp:
    """An op on arguments of a block of its own."""
    block = Block(arg_types=[tensor_type(TensorSpec(tuple(d), BY_NAME["f32"])) for d in dims])
    return kind.make(list(block.args), params)


def conv(
    channels: int, outputs: int, size: tuple[int, int], dims: Sequence[Size] = (N, H, W), group: int = 1, **params
) -> LnOp:
    n, h, w = dims
    weight = (outputs, channels // group, *size)
    return made(Conv2d, [(n, channels, h, w), weight, (outputs,)], size=size, group=group, **params)


def deconv(channels: int, outputs: int, size: tuple[int, int], **params) -> LnOp:
    return made(Deconv2d, [(N, channels, H, W), (channels, outputs, *size), (outputs,)], size=size, **params)


def pool(channels: int, size: tuple[int, int], dims: Sequence[Size] = (N, H, W), **params) -> LnOp:
    n, h, w = dims
    return made(Maxpool2d, [(n, channels, h, w)], size=size, **params)


def mean(channels: int, size: tuple[int, int], dims: Sequence[Size] = (N, H, W), **params) -> LnOp:
    n, h, w = dims
    return made(Avgpool2d, [(n, channels, h, w)], size=size, **params)


def summed(dims: Sequence[Size], axis: int, length: Size, taps: int) -> LnOp:
    """Weighted sums along an axis, by tables of a length of their own."""
    specs = [
        TensorSpec(tuple(d), BY_NAME[t]) for d, t in ((dims, "f32"), ((length, taps), "i32"), ((length, taps), "f32"))
    ]
    return Interpolate.make(list(Block(arg_types=list(map(tensor_type, specs))).args), {"axis": axis})


SAME = {"padding": (1, 1, 1, 1)}
#: An op of each generator, as (alg, choices, op). Channels fill blocks or do not; windows have asymmetric padding, strides, dilations.
OPS: list[tuple[str, dict[str, str], Callable[[], LnOp]]] = [
    ("direct", {}, lambda: conv(16, 32, (3, 3), **SAME)), ("direct", {}, lambda: conv(5, 9, (3, 3), padding=(2, 0, 1, 3))),
    ("direct", {}, lambda: conv(24, 40, (1, 1))), ("direct", {}, lambda: conv(16, 17, (1, 1), stride=(2, 3))),
    ("direct", {}, lambda: conv(8, 64, (3, 3), stride=(2, 2), **SAME)), ("direct", {}, lambda: conv(3, 8, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3))),
    ("direct", {}, lambda: conv(6, 33, (3, 2), stride=(2, 1), dilation=(2, 3), padding=(4, 3, 4, 3))),
    ("direct", {}, lambda: conv(64, 32, (3, 3), group=2, **SAME)), ("direct", {}, lambda: conv(16, 16, (3, 3), dilation=(12, 12), padding=(12, 12, 12, 12))),
    ("direct", {}, lambda: conv(16, 32, (3, 3), (1, H, 20), **SAME)), ("direct", {}, lambda: conv(16, 32, (3, 3), (2, 9, W), **SAME)),
    ("direct", {}, lambda: conv(16, 32, (1, 1), (1, E, E))),
    # Many weights: tiles of several rows where maps are narrow.
    ("direct", {}, lambda: conv(64, 64, (3, 3), stride=(2, 2), **SAME)), ("direct", {}, lambda: conv(72, 60, (3, 3), (1, E, E), padding=(1, 1, 1, 1))),
    ("direct", {}, lambda: conv(128, 136, (1, 1), stride=(2, 2))), ("direct", {}, lambda: conv(40, 64, (3, 5), dilation=(2, 1), padding=(2, 2, 2, 2))),
    *((f"winograd{m}", {"order": order}, op) for m in (2, 4) for order in ("tiles", "panels") for op in (
        lambda: conv(16, 32, (3, 3), **SAME), lambda: conv(20, 9, (3, 3), padding=(2, 0, 1, 3)), lambda: conv(16, 40, (3, 3), (1, E, E), **SAME),
    )),
    *((f"winograd{m}", {"order": "tiles"}, op) for m in (2, 4) for op in (
        lambda: conv(16, 16, (3, 1), padding=(1, 0, 1, 0)), lambda: conv(16, 16, (1, 3), padding=(0, 1, 0, 1)),
        lambda: conv(16, 16, (3, 3), dilation=(2, 2), padding=(2, 2, 2, 2)), lambda: conv(16, 16, (3, 3), (1, 9, W), **SAME),
    )),
    ("depthwise", {}, lambda: conv(24, 24, (3, 3), group=24, **SAME)), ("depthwise", {}, lambda: conv(9, 9, (5, 5), group=9, stride=(2, 2), padding=(2, 1, 2, 3))),
    ("depthwise", {}, lambda: conv(8, 8, (3, 3), group=8, dilation=(2, 3), padding=(2, 3, 2, 3))), ("depthwise", {}, lambda: conv(16, 16, (7, 7), (1, 9, W), group=16, padding=(3, 3, 3, 3))),
    ("deconv", {}, lambda: deconv(16, 32, (2, 2), stride=(2, 2))), ("deconv", {}, lambda: deconv(9, 17, (4, 4), stride=(2, 2), **SAME)),
    ("deconv", {}, lambda: deconv(16, 8, (3, 3), stride=(1, 3), padding=(1, 0, 0, 1))), ("deconv", {}, lambda: deconv(16, 16, (3, 3), **SAME)),
    ("pool", {}, lambda: pool(16, (2, 2), (N, TALL, WIDE), stride=(2, 2))), ("pool", {}, lambda: pool(9, (3, 3), stride=(2, 2), **SAME)),
    ("pool", {}, lambda: pool(16, (5, 5), padding=(2, 2, 2, 2))), ("pool", {}, lambda: pool(16, (1, 3), (N, TALL, WIDE), stride=(1, 2))),
    ("pool", {}, lambda: mean(16, (3, 3), stride=(2, 2), **SAME)), ("pool", {}, lambda: mean(9, (2, 2), (N, TALL, WIDE), stride=(2, 2))),
    ("pool", {}, lambda: made(Avgpool, [(N, 9, H, W)], size=(3, 3), stride=(2, 2), count_include_pad=True, dilation=(1, 1), ceil=True, **SAME)),
    ("pool", {}, lambda: mean(16, (4, 5), (2, 9, W), padding=(1, 3, 2, 1))), ("pool", {}, lambda: mean(24, (1, 3), (1, H, 20), padding=(0, 1, 0, 1))),
    ("pool", {}, lambda: made(ReduceMean, [(N, 12, H, W)], axes=(2, 3))), ("pool", {}, lambda: made(ReduceMax, [(1, 16, H, 13)], axes=(2, 3))),
    ("pool", {}, lambda: made(ReduceSum, [(2, 33, E, W)], axes=(3, 2))), ("pool", {}, lambda: made(ReduceMin, [(1, 8, 1, W)], axes=(2, 3))),
    ("first", {}, lambda: conv(3, 16, (3, 3), stride=(2, 2), **SAME)), ("first", {}, lambda: conv(1, 9, (5, 3), padding=(3, 0, 1, 3))),
    ("first", {}, lambda: conv(4, 40, (3, 3), dilation=(2, 3), padding=(2, 3, 2, 3))), ("first", {}, lambda: conv(3, 48, (7, 7), stride=(2, 3), padding=(3, 3, 3, 3))),
    ("first", {}, lambda: conv(2, 16, (1, 1))), ("first", {}, lambda: conv(3, 17, (3, 3), (1, 9, W), **SAME)), ("first", {}, lambda: conv(3, 24, (3, 3), (2, H, 70), stride=(1, 2), **SAME)),
    ("map", {}, lambda: made(Relu, [(N, 12, H, W)])), ("map", {}, lambda: made(Sigmoid, [(2, 16, H, W)])),
    ("resample", {}, lambda: made(Upsample, [(N, 12, H, W)], mode="TL_NEAREST", scales=(1.0, 1.0, 2.0, 3.0))),
    ("resample", {}, lambda: made(Upsample, [(N, 12, H, 20)], mode="TL_NEAREST", scales=(1.0, 1.0, 2.0, 0.35))),
    ("resample", {}, lambda: summed((N, 12, H, W), 2, 2 * H, 2)), ("resample", {}, lambda: summed((N, 16, H, W), 3, 2 * W + 1, 2)),
    ("resample", {}, lambda: summed((2, 9, H, 11), 3, 7, 4)), ("resample", {}, lambda: summed((1, 17, 6, W), 2, W // 2 + 1, 1)),
]  # fmt: skip


@dataclass
class Run:
    """A kernel on open maps as a generator plans and builds it. A call fills guarded memory, runs all blocks of all launches, in machine code or in the
    interpreter, looks at the guards, and at the zeros around maps."""

    kernel: KernelOp
    alg: str
    features: str = "avx2"
    aliases: Mapping[int, int] | None = None
    interpreted: bool = False

    def __post_init__(self) -> None:
        kernel, machine = self.kernel, SELECTION.machine_of(self.features)
        ways = [g for g in SELECTION.usable(kernel, machine) if isinstance(g, OpenMaps) and g.alg == self.alg]
        if self.alg != "reorder":
            (form,) = [
                form for way in ways for form in way.forms(kernel.ops, list(kernel.terminator.operands), machine)
            ]
            outside = kernel.outside
            for argument, (rows, columns) in form.maps.items():
                set_layout(outside[argument], Blocked(machine.lanes, (rows + 1, columns)))
            for result in kernel.results:
                set_layout(result, Blocked(machine.lanes, (1, 2)))
            if self.aliases:  # one memory, one layout
                for result, operand in self.aliases.items():
                    set_layout(kernel.operands[operand], layout_of(kernel.results[result].type))
            follow(kernel)
        kernel.attributes["alg"] = StringAttr(self.alg)
        self.plan = plan = SELECTION.choose(kernel, machine, exact=False).plan
        assert isinstance(plan.generator, OpenMaps) and plan.alg == self.alg
        for number, layout in plan.weights.items():
            set_layout(kernel.operands[number], layout)
        follow(kernel)
        self.launches = plan.build(kernel, "k", self.aliases or {})
        self.memory = launch_memory_of(self.launches)
        module = ModuleOp([launch.function for launch in self.launches])
        module.verify()
        self.code = LoopProgram(module) if self.interpreted else compile_module(module, verify=True)

    def __call__(
        self, arrays: Sequence[np.ndarray], call: Mapping[str, int], backwards: bool = False
    ) -> list[np.ndarray]:
        memory = {}
        for i, (value, array) in enumerate(zip(self.kernel.operands, arrays)):
            packed = np.ascontiguousarray(layout_of(value.type).pack(array))
            memory["operand", i] = guarded(packed.nbytes)
            memory["operand", i][1][...] = packed.reshape(-1).view(np.uint8)
        results = []
        for i, value in enumerate(self.kernel.results):
            dims = tuple(at(d, call) for d in spec_of(value.type).dims)
            alias = (self.aliases or {}).get(i)
            physical = layout_of(value.type).physical_dims(dims)
            memory["result", i] = guarded(4 * int(np.prod(physical))) if alias is None else memory["operand", alias]
            results.append((value, dims, physical))
        memory["workspace", 0], memory["scratch", 0] = (
            guarded(at(self.memory.shared, call)),
            guarded(at(self.memory.scratch, call)),
        )
        for launch in self.launches:
            self._launch(launch, memory, call, backwards)
        for buffer, view in memory.values():
            start = view.ctypes.data - buffer.ctypes.data
            assert (buffer[:start] == 0xA5).all() and (buffer[start + view.nbytes :] == 0xA5).all(), "out of bounds"
        found = []
        for i, (value, dims, physical) in enumerate(results):
            layout, whole = layout_of(value.type), memory["result", i][1].view(np.float32).reshape(physical)
            found.append(layout.unpack(whole, dims).copy())
            assert np.array_equal(whole, layout.pack(found[-1])), "a halo or an unused lane is not zero"
        return found

    def _launch(self, launch, memory, call: Mapping[str, int], backwards: bool) -> None:
        parts = [memory[a.kind, a.number][1] for a in launch.args]
        numbers, grid = [call[name] for name in kernel_symbols(launch.function)], at(launch.grid, call)
        name = launch.function.sym_name.data
        if isinstance(self.code, LoopProgram):
            types = [a.type for a in launch.function.body.block.args[2 + len(numbers) :]]
            views = [p.view(memory_dtype(t)).reshape(-1, *t.get_shape()[1:]) for p, t in zip(parts, types)]
            self.code.launch(name, range(grid), [*numbers, *views])
            return
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * (2 + len(numbers)), *[ctypes.c_void_p] * len(parts))
        entry = run(self.code.kernel_address(name))
        for k in reversed(range(grid)) if backwards else [None]:
            entry(0 if k is None else k, grid if k is None else k + 1, *numbers, *(p.ctypes.data for p in parts))


def wanted(kernel: KernelOp, arrays: Sequence[np.ndarray], call: Mapping[str, int]) -> list[np.ndarray]:
    """What the ops of a kernel give, one after the other, in float64."""

    def size(s: Size) -> Size:
        return with_sizes(s, call)

    known = dict(zip(kernel.body.args, (a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays)))
    for op in kernel.ops:
        specs = [(spec_of(v.type).dims, spec_of(v.type).dtype.name.replace("f32", "f64")) for v in op.operands]
        types = [tensor_type(TensorSpec(tuple(map(size, dims)), BY_NAME[dtype])) for dims, dtype in specs]
        params = {name: _number(value, size) for name, value in op.written_params().items()}
        if isinstance(op, Reshape):  # whose dims are those of its result
            params["dims"] = tuple(map(size, op.result_specs[0].dims))
        static = type(op).make(list(Block(arg_types=types).args), params)
        found = static.reference(*(known[v] for v in op.operands))
        known.update(zip(op.results, found if isinstance(found, tuple) else [found]))
    return [known[v] for v in kernel.terminator.operands]


def _number(value, size):
    return tuple(_number(v, size) for v in value) if isinstance(value, tuple | list) else size(value)


def calls(kernel: KernelOp):
    """Calls of all sizes that give every value an element."""
    values = [*kernel.operands, *(r for op in kernel.ops for r in op.results)]
    for k, (h, w) in enumerate(SIZES):
        call = {"n": 1 + k % 3, "h": h, "w": w, "e": 4 * min(1 + k, 24)}
        symbols = {s for v in values for d in spec_of(v.type).open_dims for s in d.symbols}
        if all(s.low <= call[s.name] <= s.high for s in symbols) and all(
            at(d, call) > 0 for v in values for d in spec_of(v.type).dims
        ):
            yield call


def inputs(kernel: KernelOp, call: Mapping[str, int]) -> list[np.ndarray]:
    random = np.random.default_rng(sum(call.values()))
    specs = [spec_of(v.type) for v in kernel.operands]
    arrays = [drawn(random, spec.dims, call) for spec in specs]
    # Of tables, indices beyond both ends.
    return [(9 * a).astype(np.int32) if spec.dtype.name == "i32" else a for a, spec in zip(arrays, specs)]


def with_choices(op: LnOp, choices: Mapping[str, str]) -> KernelOp:
    kernel = CpuKernelOp.wrap([op])
    kernel.attributes.update({name: StringAttr(value) for name, value in choices.items()})
    return kernel


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("features", ["avx512", "avx2"])
@pytest.mark.parametrize("number", range(len(OPS)), ids=lambda k: f"{OPS[k][0]}-{k}")
def test_ops(number: int, features: str) -> None:
    alg, choices, op = OPS[number]
    kernel, ran = with_choices(op(), choices), 0
    run = Run(kernel, alg, features)
    for call in calls(kernel):
        arrays, ran = inputs(kernel, call), ran + 1
        agree(run(arrays, call)[0], wanted(kernel, arrays, call)[0], 5e-5)
    assert ran > 4


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("less", [0, 4])
@pytest.mark.parametrize("features", ["avx512", "avx2"])
@pytest.mark.parametrize("number", range(len(OPS)), ids=lambda k: f"{OPS[k][0]}-{k}")
def test_sizes_whose_remainder_is_known(number: int, features: str, less: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiples of 8, and 4 less: what they leave behind tiles is a number, and they may be smaller than a tile."""
    monkeypatch.setattr("test_open_maps.H", symbol("h", 8, 96, 8) - less)
    monkeypatch.setattr("test_open_maps.W", symbol("w", 8, 96, 8) - less)
    sizes = ((8, 8), (32, 8), (8, 16), (16, 24), (24, 32), (8, 56), (40, 88))
    monkeypatch.setattr("test_open_maps.SIZES", sizes)
    test_ops(number, features)


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("features", ["avx512", ""])
@pytest.mark.parametrize("number", range(len(OPS)), ids=lambda k: f"{OPS[k][0]}-{k}")
def test_maps_narrower_than_a_tile(number: int, features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every call: no tile is wider than what it reads."""
    monkeypatch.setattr("test_open_maps.H", symbol("h", 3, 40))
    monkeypatch.setattr("test_open_maps.W", symbol("w", 3, 7))
    monkeypatch.setattr("test_open_maps.SIZES", ((3, 3), (5, 4), (4, 5), (9, 6), (16, 7), (7, 3), (40, 7)))
    test_ops(number, features)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("columns", range(4, 15))
def test_widths_that_are_multiples(columns: int, rows: int, stride: int) -> None:
    """Of a width that is a multiple, code for some tails is left out: for none that comes up, in rows that are alone
    at the end of a band, or not."""
    h, w = symbol("h", 16, 512, 8), symbol("w", 8, 512, 8)
    kernel = with_choices(conv(64, 32, (3, 3), (1, h, w), stride=(stride, stride), **SAME), {})
    kernel.attributes.update({"tile": choice_attr((1, columns, 2, 8)), "band": choice_attr((rows, columns))})
    run = Run(kernel, "direct", "avx512")
    for width in range(8, 97, 8):
        call = {"h": 16, "w": width}
        arrays = inputs(kernel, call)
        agree(run(arrays, call)[0], wanted(kernel, arrays, call)[0], 5e-5)


@pytest.mark.parametrize("columns", [1, 3, 4])
def test_what_is_left_is_the_same_in_all_calls(columns: int) -> None:
    """One more than a multiple of the tile: the rest of a row is a number, though its width is none."""
    h, w = symbol("h", 1, 64), symbol("w", 12, 132, 12) + 1
    kernel = with_choices(conv(16, 32, (3, 3), (1, h, w), **SAME), {})
    kernel.attributes["tile"] = choice_attr((1, columns, 2, 8))
    run = Run(kernel, "direct", "avx512")
    for value in (12, 24, 132):
        arrays = inputs(kernel, call := {"h": 3, "w": value})
        agree(run(arrays, call)[0], wanted(kernel, arrays, call)[0], 5e-5)


@pytest.mark.parametrize(
    "number", [k for k, (alg, _, _) in enumerate(OPS) if k % 3 == 0 or alg in ("map", "resample")], ids=str
)
def test_blocks_share_the_work(number: int) -> None:
    """Each block by itself, in the other order: what threads do."""
    alg, choices, op = OPS[number]
    kernel = with_choices(op(), choices)
    run, call = Run(kernel, alg), {"n": 2, "h": 23, "w": 31, "e": 24}
    arrays = inputs(kernel, call)
    assert np.array_equal(run(arrays, call, backwards=True)[0], run(arrays, call)[0])


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("number", range(len(OPS)), ids=lambda k: f"{OPS[k][0]}-{k}")
def test_the_interpreter_agrees(number: int) -> None:
    """It checks each index, and rounds twice where the machine multiplies and adds in one step."""
    alg, choices, op = OPS[number]
    kernel, again = with_choices(op(), choices), with_choices(op(), choices)
    native, slow = Run(kernel, alg), Run(again, alg, interpreted=True)
    for h, w in ((3, 9), (6, 5)):
        call = {"n": 1, "h": h, "w": w, "e": 4}
        if all(at(d, call) > 0 for v in kernel.results for d in spec_of(v.type).dims):
            arrays = inputs(kernel, call)
            agree(slow(arrays, call)[0], native(arrays, call)[0], 5e-5)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("features", ["avx512", "avx2"])
@pytest.mark.parametrize("channels", [3, 16, 21])
def test_changes_of_layout(channels: int, features: str, back: bool) -> None:
    op = made(Forward, [(N, channels, H, W)])
    kernel, lanes = CpuKernelOp.wrap([op]), SELECTION.machine_of(features).lanes
    set_layout(kernel.operands[0] if back else kernel.results[0], Blocked(lanes, (1, 2)))
    follow(kernel)
    run = Run(kernel, "reorder", features)
    for call in calls(kernel):
        arrays = inputs(kernel, call)
        assert np.array_equal(run(arrays, call)[0], arrays[0])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("alg", "anchor"), [(OPS[k][0], k) for k in (0, 1, 12, 15, 32, 38, 42)], ids=str)
def test_an_epilogue(alg: str, anchor: int, in_place: bool) -> None:
    """Another map, a number a channel, and what a function makes of it; the map may be where the result goes."""
    _, choices, op = OPS[anchor]
    first = op()
    dims = first.result_specs[0].dims
    more, each = extra(dims), extra((dims[1], 1, 1))
    second = Add.make([first.results[0], more])
    third = Add.make([second.results[0], each])
    kernel = kernel_of([first, second, third, Relu.make([third.results[0]])], [*first.operands, more, each])
    kernel.attributes.update({name: StringAttr(value) for name, value in choices.items()})
    place = len(first.operands)
    run = Run(kernel, alg, aliases={0: place} if in_place else None)
    for call in calls(kernel):
        arrays = inputs(kernel, call)
        agree(run(arrays, call)[0], wanted(kernel, arrays, call)[0], 5e-5)


@pytest.mark.parametrize("features", ["avx512", "avx2"])
def test_few_pixels_are_computed_directly(features: str) -> None:
    """By the weights of the panels: the transforms have no block then, and the direct convolution none of more pixels."""
    kernel = with_choices(conv(24, 64, (3, 3), **SAME), {"order": "panels"})
    kernel.attributes["few"] = choice_attr([9])
    run = Run(kernel, "winograd4", features)
    assert len(run.launches) == 3
    for h, w in ((1, 1), (3, 3), (1, 9), (2, 5), (4, 4), (1, 10)):
        call = {"n": 2, "h": h, "w": w}
        arrays, grids = inputs(kernel, call), [at(launch.grid, call) for launch in run.launches]
        assert [grid > 0 for grid in grids] == ([False, False, True] if h * w <= 9 else [True, True, False])
        agree(run(arrays, call)[0], wanted(kernel, arrays, call)[0], 5e-5)
    uneven = with_choices(conv(24, 33, (3, 3), **SAME), {"order": "panels"})  # whose last panel is not full
    assert len(Run(uneven, "winograd4").launches) == 2


def test_few_pixels_are_those_of_maps_that_there_are() -> None:
    """Maps whose sides are multiples of four are whole tiles: of 8 x 8 pixels the transforms are quicker, of 4 x 8 the direct convolution."""
    found = []
    for dims in ((1, E, E), (1, H, W)):
        kernel = with_choices(conv(128, 128, (3, 3), dims, **SAME), {"order": "panels"})
        found.append(Run(kernel, "winograd4").plan.schedule.few)
    assert found[0] == 32 and found[1] in [side * rows for side in range(1, 16, 2) for rows in (side, side - 1)]


def test_what_is_not_taken() -> None:
    """Maps whose sizes are numbers, batches alone (they run in strips), padding that a call decides, and pools that count."""
    machine = SELECTION.machine_of("avx2")

    def taken(op: LnOp) -> set[str]:
        ways = [g for g in SELECTION.usable(CpuKernelOp.wrap([op]), machine) if isinstance(g, OpenMaps)]
        return {g.alg for g in ways if g.forms([op], list(op.results), machine)}

    assert taken(conv(16, 16, (3, 3), **SAME)) == {"direct", "winograd2", "winograd4"}
    assert taken(conv(16, 16, (3, 3), (N, 8, 8), **SAME)) == set()
    assert taken(conv(16, 16, (3, 3), stride=(2, 2), autopad="SAME_UPPER")) == set()
    assert taken(pool(16, (3, 3), stride=(2, 2), **SAME)) == {"pool"}
    assert taken(pool(16, (2, 2), stride=(2, 2))) == set()  # of a map of one pixel there would be no window


NETWORK = """<ir_version: 9, opset_import: ["" : 18]>
g (float[n, 3, h, w] x) => (float[n, 20, p, q] y, float[n, 8, r, s] z) <
    float[16, 3, 3, 3] a, float[16] b, float[32, 16, 3, 3] c, float[32] d, float[32, 16, 2, 2] e, float[16] f, float[20, 32, 3, 3] i, float[8, 20, 1, 1] j
> {
    t0 = Conv <pads = [1, 1, 1, 1]> (x, a, b)
    t1 = Relu (t0)
    t2 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t1)
    t3 = Conv <pads = [1, 1, 1, 1]> (t2, c, d)
    t4 = Sigmoid (t3)
    t5 = Mul (t3, t4)
    t6 = ConvTranspose <strides = [2, 2]> (t5, e, f)
    t7 = Concat <axis = 1> (t1, t6)
    y = Conv <pads = [1, 1, 1, 1]> (t7, i)
    z = Conv <strides = [2, 2]> (y, j)
}"""


#: The same without what needs even sizes.
CHAIN = """<ir_version: 9, opset_import: ["" : 18]>
g (float[1, 3, h, w] x) => (float[1, 20, p, q] y, float[1, 8, r, s] z) <float[16, 3, 3, 3] a, float[16] b, float[32, 16, 3, 3] c, float[20, 32, 3, 3] i, float[8, 20, 1, 1] j> {
    t0 = Conv <pads = [1, 1, 1, 1]> (x, a, b)
    t1 = Relu (t0)
    t2 = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (t1)
    t3 = Conv <pads = [1, 1, 1, 1]> (t2, c)
    t4 = Sigmoid (t3)
    t5 = Mul (t3, t4)
    y = Conv <pads = [1, 1, 1, 1]> (t5, i)
    z = Conv <strides = [2, 2]> (y, j)
}"""


def network(text: str = NETWORK) -> bytes:
    model, random = onnx.parser.parse_model(text), np.random.default_rng(4)
    for value in model.graph.value_info:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        array = random.standard_normal(dims).astype(np.float32) / np.sqrt(np.prod(dims[1:]))
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), value.name))
    return model.SerializeToString()


def shuffled(dims: Sequence[Size], groups: int) -> list[LnOp]:
    """The channels of a map in another order, as ShuffleNet has it."""
    n, c, h, w = dims
    first = made(Reshape, [dims], dims=(n, groups, c // groups, h, w))
    second = Transpose.make([first.results[0]], {"axes": (0, 2, 1, 3, 4)})
    return [first, second, Reshape.make([second.results[0]], {"dims": dims})]


#: Moves of channels: the ops, and what they read.
MOVES: list[Callable[[], list[LnOp]]] = [
    lambda: [made(Concat, [(1, 16, H, W), (1, 7, H, W)], axis=1)], lambda: [made(Concat, [(N, 3, H, W), (N, 9, H, W), (N, 30, H, W)], axis=1)],
    lambda: [made(Slice, [(N, 29, H, W)], axis=1, start=5, len=14)], lambda: [made(Slice, [(1, 58, 9, W)], axis=1, start=29, len=29)],
    lambda: shuffled((1, 24, H, W), 2), lambda: shuffled((N, 36, H, 5), 3),
]  # fmt: skip


@pytest.mark.parametrize("features", ["avx512", "avx2"])
@pytest.mark.parametrize("number", range(len(MOVES)))
def test_moves_of_channels(number: int, features: str) -> None:
    ops = MOVES[number]()
    kernel = kernel_of(ops, list(ops[0].operands))
    run = Run(kernel, "channels", features)
    for call in calls(kernel):
        arrays = inputs(kernel, call)
        assert np.array_equal(run(arrays, call)[0], wanted(kernel, arrays, call)[0])
        assert np.array_equal(run(arrays, call, backwards=True)[0], wanted(kernel, arrays, call)[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_in_a_network(threads: int) -> None:
    """A small U-Net: its convolutions are on maps in blocks."""
    data, random = network(), np.random.default_rng(5)
    session = onnxruntime.InferenceSession(data)
    dims = {"n": (1, 3), "h": "2..96:2", "w": "2..96:2"}
    run = lightnet.compile(lightnet.loads(data, ".onnx", dims=dims), threads=threads)
    kernels = [k for k in run.planned.walk() if isinstance(k, KernelOp)]
    anchors = [k for k in kernels if isinstance(k.ops[0], Conv2d | Deconv2d | Maxpool2d)]
    blocked = [k for k in anchors if any(isinstance(layout_of(v.type), Blocked) for v in (k.operands[0], k.results[0]))]
    assert len(anchors) == 6 and len(blocked) >= 5
    for shape in ((1, 3, 2, 2), (2, 3, 6, 46), (1, 3, 96, 34), (3, 3, 18, 18)):
        x = random.standard_normal(shape).astype(np.float32)
        for name, want in zip("yz", session.run(None, {"x": x})):
            agree(run(x=x)[name], want, 1e-4)
    assert {choice(k, "alg") for k in blocked} >= {"first", "pool", "deconv"}


@pytest.mark.parametrize("features", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("channels", "outputs", "groups"),
    [(64, 64, 16), (48, 96, 4), (36, 36, 3), (32, 16, 8), (40, 80, 10), (6, 10, 2)],
    ids=str,
)
def test_groups_of_part_blocks(channels: int, outputs: int, groups: int, features: str) -> None:
    """Groups that fill no block are put together, where these are few: the others stay on loops."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[1, 3, h, w] x) => (float[1, {outputs}, p, q] y) <
        float[{channels}, 3, 3, 3] a, float[{outputs}, {channels // groups}, 3, 3] b, float[{outputs}] c> {{
        t0 = Conv <pads = [1, 1, 1, 1]> (x, a)
        t1 = Relu (t0)
        t2 = Conv <pads = [0, 1, 2, 1], group = {groups}> (t1, b, c)
        y = Sigmoid (t2)
    }}"""
    data = network(text)
    ops = lightnet.loads(data, ".onnx", dims={"h": (1, 40), "w": (1, 40)}).module
    ExpandPass(features=features).apply(Context(), ops)
    lanes, each = SELECTION.machine_of(features).lanes, (channels // groups, outputs // groups)
    fits = [n for n in (2, 3, 4) if groups % n == 0 and each[0] * n % lanes == each[1] * n % lanes == 0]
    (grouped,) = [op for op in ops.walk() if isinstance(op, Conv2d) and op.operand_specs[0].dims[1] == channels]
    assert grouped.group == groups // (fits[0] if fits else groups if groups <= 4 else 1)
    session, run = (
        onnxruntime.InferenceSession(data),
        lightnet.compile(lightnet.loads(data, ".onnx", dims={"h": (1, 40), "w": (1, 40)}), threads=1),
    )
    for h, w in ((1, 1), (3, 40), (17, 9)):
        x = np.random.default_rng(h).standard_normal((1, 3, h, w)).astype(np.float32)
        agree(run(x=x)["y"], session.run(None, {"x": x})[0], 1e-4)


def test_a_network_is_compiled_once_by_default(tmp_path: Path) -> None:
    """Nothing is compiled for a call, and it goes into one file."""
    data = network(CHAIN)
    (tmp_path / "net.onnx").write_bytes(data)
    run = lightnet.compile(tmp_path / "net.onnx", threads=1)
    run.save(tmp_path / "net.lnx")
    saved, session = lightnet.load_executable(tmp_path / "net.lnx"), onnxruntime.InferenceSession(data)
    for shape in ((1, 3, 8, 6), (1, 3, 30, 22)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for name, want in zip("yz", session.run(None, {"x": x})):
            agree(run(x=x)[name], want, 1e-4)
            assert np.array_equal(saved(x=x)[name], run(x=x)[name])
    assert not run._cache  # for calls beyond it


def test_each_pass_keeps_the_results_of_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check`: on several calls, level 4 too, where a concatenation is made by two copies that share a function."""
    path = tmp_path / "net.onnx"
    path.write_bytes(network())
    words = ["--dim", "n=1", "--dim", "h=2..20:2", "--dim", "w=2..20:2", "--pass=@cpu", "--check", "-o", os.devnull]
    assert ln_opt.main([str(path), *words]) in (0, None), capsys.readouterr().err
    assert "passes keep the results" in capsys.readouterr().err


def test_groups_stay_apart_where_results_have_to_be_exact() -> None:
    """Put together, groups have the weight 0 for others' channels, times which an infinity is no number."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x, y = (helper.make_tensor_value_info(n, kind, [1, 8, "h", "w"]) for n in "xy")
    graph = helper.make_graph([node], "g", [x], [y], [onnx.numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    array = np.random.default_rng(1).standard_normal((1, 8, 9, 10)).astype(np.float32)
    array[0, 0, 3, 3] = np.inf
    loaded = lightnet.load(model, dims={"h": "1..64", "w": "1..64"})
    found = lightnet.compile(loaded, exact=True, threads=1)({"x": array})["y"]
    assert np.isfinite(found[:, 4:]).all() and not np.isfinite(found[:, :4]).all()


@pytest.mark.parametrize("op, reduce", [("avgpool2d", np.mean), ("maxpool2d", np.max)])
def test_a_window_as_long_as_the_map(op: str, reduce) -> None:
    """Its taps are for loops, whose number a call decides, where it is not the whole map."""
    given, made = 'tensor<1x16x?x?xf32, #ln.dims<"h(1..64), w(1..64)">>', 'tensor<1x16x1x?xf32, #ln.dims<"w(1..64)">>'
    text = f"""func.func @main() -> {made} {{
  %x = ln.input {{required = true}} : {given} as ("x")
  %r = ln.relu %x : {given}
  %y = ln.{op} %r {{size = [?"h(1..64)", 1]}} : {made} as ("y")
  func.return %y : {made}
}}"""
    run = lightnet.compile(lightnet.loads(text, ".mlir"), threads=1)
    for h, w in ((1, 1), (5, 9), (33, 20)):
        x = np.random.default_rng(h).standard_normal((1, 16, h, w)).astype(np.float32)
        np.testing.assert_allclose(run({"x": x})["y"], reduce(np.maximum(x, 0), 2, keepdims=True), rtol=1e-5, atol=1e-6)
