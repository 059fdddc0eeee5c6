"""Kernels do not care who runs which of their blocks: each block alone, in random order, on scratch that is poison, gives to the bit
what one range gives. Every op on its largest sample, in grids as fine as they get; register-tiled kernels on random geometry."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import random_case
from kernels import op_of
from sampling import draw
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Block

import lightnet
from lightnet.backends import loop_function
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.launches import Launch, LaunchMemory, launch_memory_of
from lightnet.backends.llvm.jit import NativeModule, compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.launch import LaunchOp, launches
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.matmul import Matmul
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.runtime.arrays import align_up, aligned
from lightnet.runtime.dtypes import BY_NAME
from lightnet_debug.steps import started

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}


class Run:
    """A kernel's launches on memory of its own: operands, results, workspace, and scratch behind it."""

    def __init__(
        self, native: NativeModule, launches: list[Launch], kernel, arrays: list[np.ndarray], aliases: dict[int, int]
    ):
        self.native, self.launches, self.memory = native, launches, launch_memory_of(launches)
        self.specs = [spec_of(v.type) for v in kernel.results]
        self.places = {("operand", i): _filled(a) for i, a in enumerate(arrays)}
        for i, spec in enumerate(self.specs):
            place = self.places["operand", aliases[i]] if i in aliases else _poison(spec.nbytes)
            self.places["result", i] = place
        self.workspace = _poison(self.memory.size)

    def run(self, order: np.random.Generator | None) -> list[bytes]:
        """The results: of whole ranges, or of single blocks in random order."""
        for launch in self.launches:
            blocks = (
                [(0, launch.grid)] if order is None else [(b, b + 1) for b in order.permutation(launch.grid).tolist()]
            )
            pointers = [self.address(a) for a in launch.args]
            call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
            entry = call(self.native.kernel_address(launch.function.sym_name.data))
            if order is not None:
                before = self.image()
                for nothing in (0, launch.grid):
                    entry(nothing, nothing, *pointers)
                assert self.image() == before, "an empty range writes"
            for low, high in blocks:
                self.workspace[align_up(self.memory.shared) :] = 0xFF
                entry(low, high, *pointers)
        return [self.places["result", i][: s.nbytes].tobytes() for i, s in enumerate(self.specs)]

    def image(self) -> list[bytes]:
        return [place.tobytes() for place in (*self.places.values(), self.workspace)]

    def address(self, argument) -> int:
        if argument.kind == "workspace":
            return self.workspace.ctypes.data + argument.number
        if argument.kind == "scratch":
            return self.workspace.ctypes.data + align_up(self.memory.shared) + argument.number
        return self.places[argument.kind, argument.number].ctypes.data


def _poison(nbytes: int) -> np.ndarray:
    memory = aligned(max(nbytes, 1))
    memory[:] = 0xFF
    return memory


def _filled(array: np.ndarray) -> np.ndarray:
    memory = _poison(array.nbytes)
    memory[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memory


def check(cases: list[tuple], seed: int) -> int:
    """Compare both ways of (kernel, arrays, aliases, label); how many launches had several blocks."""
    built = [SELECTION.generate(kernel, f"k{i}", aliases) for i, (kernel, _, aliases, _) in enumerate(cases)]
    native = compile_module(ModuleOp([launch.function for made in built for launch in made]))
    rng, split = np.random.default_rng(seed), 0
    for made, (kernel, arrays, aliases, label) in zip(built, cases):
        split += sum(launch.grid > 1 for launch in made)
        want = Run(native, made, kernel, arrays, aliases).run(None)
        assert Run(native, made, kernel, arrays, aliases).run(rng) == want, label
    return split


def largest(cls: type[LnOp]) -> tuple:
    """The kernel of an op's largest sample that has elements."""

    def size(pair) -> int:
        op, _ = pair
        return sum(s.len for s in op.result_specs)

    op, arrays = max((op_of(cls, case, seed) for seed, case in enumerate(cls.samples())), key=size)
    return CpuKernelOp.wrap([op]), arrays, {}, op.optype


def test_every_op(monkeypatch):
    """Loops in grids as fine as they get; ops with loops of their own have one block, and do nothing on an empty range."""
    monkeypatch.setattr(loop_function, "BLOCK_TRIPS", 4)
    cases = [largest(cls) for _, cls in draw(sorted(OPS.items()), "split grids", every=3, share=0.2)]
    assert check(cases, 0) > len(cases) // 2


def direct(kernel: CpuKernelOp, lanes: int = 16) -> CpuKernelOp:
    kernel.attributes.update({"alg": StringAttr("direct"), "lanes": IntegerAttr(lanes, i64)})
    assert SELECTION.plan_of(kernel).alg == "direct"
    return kernel


def test_windows_of_any_geometry():
    cases = []
    for seed in range(24):
        case = random_case(seed, small=True)
        cases.append((_closed(case.kernel), case.arrays, case.aliases, case.label))
    assert check(cases, 1) > 8


def _closed(kernel: CpuKernelOp) -> CpuKernelOp:
    """The kernel with operands: arguments of a block of its own."""
    block = Block(arg_types=[a.type for a in kernel.body.args])
    kernel.operands = list(block.args)
    kernel.detached = block  # kept alive with it
    return direct(kernel)


def conv(c: int, o: int, size: int, hw: tuple[int, int], group: int = 1, stride: int = 1, pad: int = 0) -> tuple:
    """A convolution with a relu."""
    f32, rng = BY_NAME["f32"], np.random.default_rng(c + o)
    shapes = [(1, c, *hw), (o, c // group, size, size), (o,)]
    block = Block(arg_types=[tensor_type(TensorSpec(s, f32)) for s in shapes])
    params = {
        "size": (size, size),
        "stride": (stride, stride),
        "padding": (pad,) * 4,
        "group": group,
        "autopad": "NOTSET",
    }
    op = Conv2d.make(list(block.args), params)
    relu = Relu.make([op.results[0]])
    block.add_ops([op, relu])
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    kernel = direct(CpuKernelOp.wrap([op, relu]))
    return kernel, arrays, {}, f"conv {shapes}"


@pytest.mark.parametrize("case", [
    (24, 70, 3, (9, 17), 1, 1, 1), (16, 64, 3, (7, 7), 1, 1, 1), (32, 96, 1, (5, 20)), (8, 40, 3, (12, 12), 1, 2, 1),
    (12, 44, 3, (7, 9), 2, 1, 1), (6, 100, 5, (5, 5)), (3, 16, 7, (30, 30), 1, 2, 3),
])  # fmt: skip
def test_outputs_are_cut_into_pieces(case):
    """Grids that bands of rows leave too coarse; the staged input is staged again by whoever starts in the middle of a band."""
    kernel, *rest = conv(*case)
    launches = SELECTION.generate(kernel, "k", {})
    assert sum(launch.grid for launch in launches) == SELECTION.plan_of(kernel).blocks
    assert launches[0].grid >= (4 if case[1] > 16 else 1)
    check([(kernel, *rest)], 2)


def test_products_of_matrices():
    cases = []
    for m, k, n in ((40, 70, 200), (1, 64, 1000), (33, 128, 500)):
        f32, rng = BY_NAME["f32"], np.random.default_rng(m)
        block = Block(arg_types=[tensor_type(TensorSpec(s, f32)) for s in ((m, k), (k, n))])
        op = Matmul.make(list(block.args))
        block.add_op(op)
        arrays = [rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n))]
        kernel = direct(CpuKernelOp.wrap([op]))
        assert SELECTION.generate(kernel, "k", {})[0].grid == SELECTION.plan_of(kernel).blocks
        cases.append((kernel, arrays, {}, f"{m}x{k}x{n}"))
    assert check(cases, 3) == 3


def test_memory_of_a_kernel():
    assert LaunchMemory(0, 0).size == 0
    assert LaunchMemory(10, 128).size == 64 + 128


@pytest.mark.sampled(every=4, share=0.3)
@pytest.mark.optimized
@pytest.mark.parametrize(
    "name, layout",
    [("lenet", "plain"), ("squeezenet1.1", "plain"), ("squeezenet1.1", "blocked"), ("mobilenetv2", "blocked")],
)
def test_a_network_block_by_block(name, layout):
    """Whatever generators it takes: each launch in single blocks, in random order, on the poisoned scratch of random threads."""
    path = Path(__file__).parents[2] / "examples" / "nets" / f"{name}.net"
    executable = lightnet.compile(path, threads=3, layout=layout)
    rng = np.random.default_rng(5)
    feeds = {n: rng.normal(size=dims).astype(dtype) for n, (dims, dtype) in executable.inputs.items()}
    want = executable(feeds, threads=1)
    arena, static = started(executable, feeds)
    memory, other = arena.memory(static), aligned(max(executable.program.scratch, 1))
    for line in launches(executable.loops):
        assert isinstance(line, LaunchOp)
        pointers = [memory[p.space.data].ctypes.data + p.offset.data for p in line.args]
        call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
        entry = call(executable.native.kernel_address(line.callee.string_value()))
        grid, size = line.grid.value.data, line.scratch_bytes
        for block in rng.permutation(grid).tolist():
            if size:
                place = line.args.data[-1].offset.data
                of_thread_0 = bool(rng.integers(2)) or line.most_threads == 1
                scratch = arena.bytes[place : place + size] if of_thread_0 else other[:size]
                scratch[:] = 0xFF
                pointers[-1] = scratch.ctypes.data
            entry(block, block + 1, *pointers)
    for tensor in executable.program.outputs:
        assert tensor.view(memory).tobytes() == want[tensor.name].tobytes()
