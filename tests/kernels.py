"""Helpers of the kernel tests: ops from their samples, kernels around them, and running one kernel function natively."""

from __future__ import annotations

import ctypes

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from lightnet.backends.llvm.jit import compile_module
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import is_float, widened_array


def sample_ops(cls: type[LnOp]) -> list[tuple[LnOp, list[np.ndarray]]]:
    """Every sample of an op as (op, operand arrays)."""
    return [op_of(cls, case, seed) for seed, case in enumerate(cls.samples())]


def op_of(cls: type[LnOp], case, seed: int = 0) -> tuple[LnOp, list[np.ndarray]]:
    """An op on the arguments of a block of its own, and test data for it."""
    case = cls.schema.resolve(case)
    specs, kinds, names = [], [], []
    for field in cls.schema.operands:
        value = case.tensors[field.name]
        for i, spec in enumerate(value if field.variadic else (value,)):
            specs.append(spec)
            kinds.append(field.kind)
            names.append(f"{field.name}{i}" if field.variadic else field.name)
    block = Block(arg_types=[tensor_type(s) for s in specs])
    op = cls.make(list(block.args), case.params, name=cls.optype)
    block.add_op(op)
    tensors = dict(zip(names, specs))
    arrays = [cls.sample_data(n, k, s, tensors, case.params, seed) for n, k, s in zip(names, kinds, specs)]
    return op, arrays


def run_native(
    function: FuncOp,
    grid: int,
    arrays: list[np.ndarray],
    outputs: list[TensorSpec],
    others: tuple[FuncOp, ...] = (),
    aliases: dict[int, int] | None = None,
    workspace: int = 0,
) -> list[np.ndarray]:
    """Compile one kernel and run all its blocks; arguments are surrounded by guard bytes that must survive."""
    native = compile_module(ModuleOp([function, *others]), verify=True)
    aliases = aliases or {}
    guarded = [_guarded(a.nbytes) for a in arrays]
    for (_, view), a in zip(guarded, arrays):
        view[...] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    results = []
    for i, spec in enumerate(outputs):
        pair = guarded[aliases[i]] if i in aliases else _guarded(spec.nbytes)
        results.append(pair)
    pointers = [v.ctypes.data for _, v in guarded]
    pointers += [v.ctypes.data for i, (_, v) in enumerate(results) if i not in aliases]
    ws = _guarded(workspace)
    if workspace:
        pointers.append(ws[1].ctypes.data)
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
    call(native.kernel_address(function.sym_name.data))(0, grid, *pointers)
    for buffer, view in [*guarded, *results, ws]:
        start = view.ctypes.data - buffer.ctypes.data
        assert (buffer[:start] == 0xA5).all() and (buffer[start + view.nbytes :] == 0xA5).all(), "wrote out of bounds"
    for (_, view), a in zip(guarded, arrays):
        if not any(view is r[1] for r in results):
            assert bytes(view) == np.ascontiguousarray(a).tobytes(), "wrote an operand"
    return [v.view(s.dtype.np).reshape(s.dims).copy() for (_, v), s in zip(results, outputs)]


def _guarded(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    buffer = np.full(nbytes + 256, 0xA5, np.uint8)
    start = 64 + (-buffer.ctypes.data % 64)
    return buffer, buffer[start : start + nbytes]


def agree(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-4) -> None:
    """Floats: within tolerance of max|want|, and a reference that is finite; the rest: equal. A short float may be the
    next one, where rounding falls otherwise."""
    assert got.shape == want.shape and got.dtype == want.dtype
    if not is_float(want.dtype):
        np.testing.assert_array_equal(got, want)
        return
    if want.dtype.itemsize == 2:
        tolerance = max(tolerance, 2.0**-10 if want.dtype.kind == "f" else 2.0**-7)
        got, want = widened_array(got), widened_array(want)
    assert np.isfinite(want).all(), "the reference is not finite"
    scale = max(float(np.abs(want).max(initial=0)), 1e-30)
    error = float(np.abs(got.astype(np.float64) - want).max(initial=0)) / scale
    assert error <= tolerance, f"relative error {error}"
