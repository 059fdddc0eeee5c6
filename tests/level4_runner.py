"""Helpers of the level-4 tests: run a kernel natively and in the interpreter, and compare."""

from __future__ import annotations

import ctypes

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from lightnet.backends.llvm.emitter import TargetVectors, emit_module
from lightnet.backends.llvm.jit import NativeModule, compile_module
from lightnet.ir.context import make_context
from lightnet.ir.verify import verify_module
from lightnet_trust.interpreter.loops import LoopProgram


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    verify_module(module)
    return module


def round_trip(module: ModuleOp) -> None:
    """The module prints, parses back to the same, and gives the same LLVM text."""
    verify_module(module)
    again = parse(str(module))
    assert str(again) == str(module)
    assert emit_module(again).text == emit_module(module).text


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 64 bytes; bools become bytes."""
    array = array.astype(np.uint8) if array.dtype == np.bool_ else array
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def native(compiled: NativeModule, name: str, grid: int, arrays: list[np.ndarray]) -> list[np.ndarray]:
    arrays = [aligned(a) for a in arrays]
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))
    kernel(compiled.kernel_address(name))(0, grid, *[a.ctypes.data for a in arrays])
    return arrays


def interpreted(module: ModuleOp, name: str, grid: int, arrays: list[np.ndarray]) -> list[np.ndarray]:
    arrays = [aligned(a) for a in arrays]
    order = np.random.default_rng(0).permutation(grid).tolist()
    LoopProgram(module).launch(name, order, arrays)
    return arrays


def run(module: ModuleOp, arrays: list[np.ndarray], grid: int = 1, name: str = "k", rtol=1e-5, atol=1e-5):
    """Run @k on copies of `arrays` with both back ends and all vector widths; the arrays afterwards, once they agree."""
    round_trip(module)
    expected = interpreted(module, name, grid, arrays)
    for width in (16, 4):
        compiled = compile_module(module, vectors=TargetVectors(width), verify=True)
        for got, want in zip(native(compiled, name, grid, arrays), expected):
            if got.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
            else:
                np.testing.assert_array_equal(got, want)
    return expected
