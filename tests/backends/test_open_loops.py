"""Loops of ops where one dim of their operands is a symbol, on both targets: compiled once, run for several of its values, against the reference of the
static op. Kernels of cuda run in the PTX interpreter, on memory of the very sizes."""

from __future__ import annotations

import ctypes
from functools import cache, partial

import numpy as np
import pytest
from machine_code import machine
from sampling import draw
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.utils.exceptions import VerifyException

from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.cuda.nvptx import emit_program
from lightnet.backends.cuda.selection import SELECTION as CUDA
from lightnet.backends.llvm.jit import compile_module
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.launch import kernel_symbols
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.instances import changed_value
from lightnet.ir.memory import set_call_symbols
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.arrays import aligned
from lightnet.runtime.cuda.driver import DeviceLaunch
from lightnet.runtime.dims import Dim, Undecided, at, symbol
from lightnet_ptx.emulator import Emulator

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}
#: Parameters that repeat a shape.
SHAPES = ("dims", "shape")
#: Builders of loops whose workspace has rows of open length, which memrefs of level 4 cannot have; results without a static number; scales of floats.
CLOSED = {
    "gru",
    "lstm",
    "rnn",
    "sort1d",
    "sort1d_by_key",
    "non_max_suppression",
    "unique",
    "scatter",
    "upsample",
    "rearange",
}


def operands_of(cls, sample):
    """The types of a sample's operands, how each is drawn and called, and the parameters."""
    case = cls.schema.resolve(sample)
    specs, kinds, names = [], [], []
    for field in cls.schema.operands:
        value = case.tensors.get(field.name)
        for i, spec in enumerate(value if field.variadic else (value,)):
            specs.append(spec)
            kinds.append(field.kind)
            names.append(f"{field.name}{i}" if field.variadic else field.name)
    return specs, kinds, names, dict(case.params)


def built(cls, specs, params):
    block = Block(arg_types=[tensor_type(s) for s in specs])
    op = cls.make(list(block.args), params, name=cls.optype)
    block.add_op(op)
    return op


def opened(cls, specs, params, number: int):
    """The op with a symbol wherever a dim is `number`: from 0 or 1 on if it takes that, else from the number. None where only the number will do."""
    for low in (0, 1, number):
        s = symbol("s", low, 3 * number)
        new = [TensorSpec(tuple(s if d == number else d for d in x.dims), x.dtype) for x in specs]
        shapes = {
            k: tuple(s if e == number else e for e in v)
            for k, v in params.items()
            if k in SHAPES and isinstance(v, tuple)
        }
        try:
            return built(cls, new, params | shapes), (low, max(low, 1), number, 2 * number + 1, 3 * number)
        except Undecided:
            continue
        except LightNetError:
            return None
    return None


@cache
def cases(name: str):
    """A sample and a number among its dims, for all of them."""
    found = []
    for sample in OPS[name].samples():
        specs = operands_of(OPS[name], sample)[0]
        found += [(sample, n) for n in sorted({d for s in specs for d in s.dims if d > 1})]
    return found


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", sorted(OPS))
def test_open_loops_agree_with_the_reference(name, target):
    cls, ran = OPS[name], 0
    for k, (sample, number) in enumerate(draw(cases(name), f"open {name}", every=7)):
        specs, kinds, names, params = operands_of(cls, sample)
        if (found := opened(cls, specs, params, number)) is None:
            continue
        op, values = found
        try:
            run = COMPILED[target](op)
        except (LightNetError, VerifyException):  # what loops cannot say for all calls is refused
            continue
        for value in sorted(set(values)):
            call = {"s": value}
            shut = [TensorSpec(tuple(at(d, call) for d in s.dims), s.dtype) for s in op.operand_specs]
            given = {
                k: changed_value(v, partial(at, values=call))
                for k, v in op.param_values().items()
                if k in op.written_params()
            }
            tensors = dict(zip(names, shut))
            try:
                arrays = [cls.sample_data(n, kind, s, tensors, given, k) for n, kind, s in zip(names, kinds, shut)]
                static = built(cls, shut, given)
            except LightNetError:  # other numbers than those of the sample fit together no more
                continue
            wants = static.evaluate(arrays)
            if not all(np.isfinite(w.astype(np.float64)).all() for w in wants if w.dtype.kind in "fV"):
                continue
            for got, want in zip(run(arrays, static.result_specs, call), wants, strict=True):
                close(got, want)
            ran += 1
    if not ran:
        pytest.skip("no dim of what is drawn may be open")


def close(got, want) -> None:
    """Equal but for the order of sums: within 1e-5 of the largest value, or of 1, and a rounding of short floats."""
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.size:
        most = max(1.0, float(np.abs(want.astype(np.float64)).max()))
        assert (
            float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max())
            <= {2: 2.0**-7}.get(want.dtype.itemsize, 1e-5) * most
        )


class Compiled:
    """The loops of an op, as machine code."""

    def __init__(self, op):
        kernel = CpuKernelOp.wrap([op])
        self.launches = SELECTION.generate(kernel, "k", {})
        self.workspace = SELECTION.workspace_bytes(kernel)
        target = machine(str(kernel))
        self.code = [
            compile_module(ModuleOp([launch.function]), machine=target, verify=True) for launch in self.launches
        ]

    def __call__(self, arrays, results, call):
        memory = {("operand", i): aligned(max(a.nbytes, 1)) for i, a in enumerate(arrays)}
        for i, a in enumerate(arrays):
            memory["operand", i][: a.nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        memory |= {("result", i): aligned(max(s.nbytes, 1)) for i, s in enumerate(results)}
        workspace = aligned(at(self.workspace, call) + 64)
        for launch, code in zip(self.launches, self.code):
            pointers = [
                workspace.ctypes.data + at(a.number, call)
                if a.kind == "workspace"
                else memory[a.kind, a.number].ctypes.data
                for a in launch.args
            ]
            numbers = [call[name] for name in kernel_symbols(launch.function)]
            run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * (2 + len(numbers)), *[ctypes.c_void_p] * len(pointers))
            run(code.kernel_address(launch.function.sym_name.data))(0, at(launch.grid, call), *numbers, *pointers)
        return [memory["result", i][: s.nbytes].view(s.dtype.np).reshape(s.dims) for i, s in enumerate(results)]


class Emulated:
    """The same as kernels of threads, in the PTX interpreter."""

    def __init__(self, op):
        kernel = CudaKernelOp.wrap([op])
        self.launches = CUDA.generate(kernel, "k", {})
        self.workspace = CUDA.workspace_bytes(kernel)
        symbols = {s for spec in (*op.operand_specs, *op.result_specs) for d in spec.open_dims for s in d.symbols}
        module = ModuleOp([launch.function for launch in self.launches])
        set_call_symbols(module, symbols)
        module.verify()
        self.program = emit_program(module)
        self.gpu = Emulator()
        self.module = self.gpu.load(self.program.text)

    def __call__(self, arrays, results, call):
        sizes = {("operand", i): a.nbytes for i, a in enumerate(arrays)}
        sizes |= {("result", i): s.nbytes for i, s in enumerate(results)}
        sizes["workspace", 0] = at(self.workspace, call)
        base = {what: self.gpu.alloc(max(size, 1)) for what, size in sizes.items()}
        for i, a in enumerate(arrays):
            if a.nbytes:
                self.gpu.upload(base["operand", i], np.ascontiguousarray(a))
        for launch in self.launches:
            args = [
                base["workspace", 0] + at(a.number, call) if a.kind == "workspace" else base[a.kind, a.number]
                for a in launch.args
            ]
            numbers = [("s64", call[name]) for name in kernel_symbols(launch.function)]
            grid = tuple(at(n, call) for n in launch.grid)
            function = self.module.function(self.program.entries[launch.function.sym_name.data])
            if 0 not in grid:
                self.gpu.launch(DeviceLaunch(function, grid, launch.block, 0, (*numbers, *args)))
        found = [np.empty(s.dims, s.dtype.np) for s in results]
        for i, array in enumerate(found):
            if array.nbytes:
                self.gpu.download(base["result", i], array)
        for address in base.values():
            self.gpu.free(address)
        return found


COMPILED = {"cpu": Compiled, "cuda": Emulated}


def test_a_loop_knows_nothing_of_the_typical_number():
    """The function of an open op takes the symbol, and its grid is a dim: no number of the typical network stands in it but for costs."""
    n = symbol("n", 1, 300)
    op = built(
        OPS["relu"],
        [TensorSpec((n, 3), OPS["relu"].samples() and operands_of(OPS["relu"], OPS["relu"].samples()[0])[0][0].dtype)],
        {},
    )
    (launch,) = SELECTION.generate(CpuKernelOp.wrap([op]), "k", {})
    assert kernel_symbols(launch.function) == ("n",)
    assert isinstance(launch.grid, Dim) or launch.grid == 1


def test_blocks_do_not_divide_by_what_a_call_decides():
    """The loops that the nests of a definition share are one where addresses allow it: dividing by a symbol takes as long as some vectors."""
    b, n = symbol("b", 1, 16), symbol("n", 1, 300)
    src = TensorSpec((b, n, 64), operands_of(OPS["layernorm"], OPS["layernorm"].samples()[0])[0][0].dtype)
    (launch,) = SELECTION.generate(CpuKernelOp.wrap([built(OPS["layernorm"], [src], {"axis": 2})]), "k", {})
    assert launch.grid == b * n
    assert not [op for op in launch.function.walk() if op.name in ("arith.divsi", "arith.remsi")]
