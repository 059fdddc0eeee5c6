"""The corners of the ops' meaning: NaN, infinities, -0.0, overflow, every dtype, bools, ranks 1 to 8, dimensions of 1, indices
that fall outside, odd ratios. Reference, definition, level-4 interpreter and machine code must agree, NaN for NaN."""

from __future__ import annotations

import ctypes
import itertools
from functools import partial

import numpy as np
import pytest
from kernel_cases import KernelCase, Memory
from machine_code import machine
from sampling import draw
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block

from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.expressions import bind_op
from lightnet.backends.launches import launch_memory_of
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DTYPES, DType, is_float, widened_array
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram
from lightnet_trust.interpreter.notation import evaluate_definition

OPS = optypes()
FLOATS = [d for d in DTYPES if d.is_float]
#: What submean takes.
NUMBERS = [d for d in DTYPES if d.kind != "bool" and not d.is_short]
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e3, -1e3, 88.7, -104.0, 709.8, 1e38, -3e38, 1e-40,
           -1e-45, 1.17e-38)  # fmt: skip


def corners(d: DType) -> np.ndarray:
    """Values of a dtype at which arithmetic changes its course."""
    if d.is_float:
        with np.errstate(over="ignore"):
            return np.array(SPECIAL).astype(d.np)
    if d.kind == "bool":
        return np.array([True, False, True, True, False], np.bool_)
    info = np.iinfo(d.np)
    found = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, info.max // 2, info.max // 2 + 1]
    return np.array(found + ([-1, -2, -7] if info.min else [100]), d.np)


def fill(shape, d: DType, seed: int = 0) -> np.ndarray:
    values = corners(d)
    count = int(np.prod(shape))
    rng = np.random.default_rng(seed)
    return np.concatenate([values, rng.choice(values, count)])[:count].reshape(shape)


def pairs(d: DType) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of corners."""
    a, b = np.meshgrid(corners(d), corners(d))
    return a.reshape(1, -1).copy(), b.reshape(1, -1).copy()


def cases():
    for d in DTYPES:
        yield from _of_any_type(d)
        yield from _moves(d)
    for d in FLOATS:
        yield from _of_floats(d)
    yield from _indices()
    yield from _submeans()


def _of_any_type(d: DType):
    x = fill((1, 61), d)
    yield "relu", d, {}, [x]
    for slope in (0.1, -2.5, 1e30, 0):
        yield "lrelu", d, {"negslope": slope}, [x]
    for op in ("MUL", "DIV", "SUM", "SUB", "MAX", "MIN", "POW"):
        yield "elew", d, {"elew_op": f"TL_{op}"}, list(pairs(d))
    for seed, axis in itertools.product(range(3), range(3)):
        x = fill((3, 5, 4), d, seed)
        yield "maxreduce", d, {"axis": axis}, [x]
        yield "maxreduce_arg", d, {"axis": axis}, [x]
    for n in (1, 2, 45):
        for direction in ("ASCENDING", "DESCENDING"):
            key = np.random.default_rng(n).permutation(fill((n,), d, n))
            yield "sort1d", d, {"dir": f"TL_SORT_DIR_{direction}"}, [key]
            yield "sort1d_by_key", d, {"dir": f"TL_SORT_DIR_{direction}"}, [key, np.arange(n, dtype=np.int32)]
    for n in (1, 7, 40):
        if not d.is_float:
            yield "dot_product", d, {}, [fill((n,), d), fill((n,), d, 1)]
    for size, stride in (((2, 2), (1, 1)), ((3, 2), (2, 2)), ((1, 1), (1, 1))):
        window = {"size": size, "stride": stride, "padding": (0, size[1] - 1, size[0] - 1, 0)}
        yield "maxpool2d", d, window, [fill((1, 2, 5, 19), d, 3)]
    if d.kind != "bool":
        yield "rearange", d, {"start": 0, "stop": 5, "step": 1}, [fill((5,), d)]


def _moves(d: DType):
    for rank in (1, 2, 3, 4, 5, 8):
        dims = ([2, 1, 3, 1, 2, 1, 2, 1] if rank > 5 else [2, 3, 1, 4, 1])[:rank]
        x = fill(dims, d, rank)
        yield "forward", d, {}, [x]
        yield "relu", d, {}, [x]
        yield "reshape", d, {"dims": (x.size,)}, [x]
        yield "transpose", d, {"axes": tuple(reversed(range(rank)))}, [x]
        yield "transpose", d, {"axes": (*range(1, rank), 0)}, [x]
        yield "concat", d, {"axis": rank - 1}, [x, x]
        yield "concat", d, {"axis": 0}, [x, fill([1, *dims[1:]], d, 9)]
        yield "slice", d, {"axis": rank - 1, "start": dims[-1] - 1, "len": 1}, [x]
        yield "slice", d, {"axis": 0, "start": 1, "len": 1}, [x]
        yield "maxreduce", d, {"axis": rank // 2}, [x]
        if rank < 8:
            yield "gather", d, {}, [x, x]
        yield "upsample", d, {"scales": (1.5, *[2] * (rank - 1))}, [x]
        yield "resize", d, {"dims": tuple(max(1, (7 * n) // 5 - 1) for n in dims)}, [x]
        if rank > 1:
            yield "scatter", d, {}, [x]
        if d.is_float:
            yield "softmax", d, {"axis": rank - 1}, [x]


def _of_floats(d: DType):
    yield "sigmoid", d, {}, [fill((1, 61), d)]
    for rows in ([1e3, -1e3, 0], [1e38, 1e38, -1e38], [-np.inf, 0, 1], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1],
                 [np.nan, 0, 1], [88.8, 88.7, -200]):  # fmt: skip
        yield "softmax", d, {"axis": 1}, [np.array([rows], d.np)]
        yield "softmax", d, {"axis": 0}, [np.tile(np.array(rows, d.np)[:, None], (1, 19))]
    x = fill((1, 3, 4, 5), d)
    vectors = [np.array(v, d.np) for v in ([1, -1, 0], [0, 2, np.inf], [0, 1, 1], [1, 0, 4])]
    yield "batchnorm", d, {"epsilon": 1e-5}, [x, *vectors]
    for seed in range(3):
        picture = fill((1, 2, 5, 20), d, seed)
        picture[np.isfinite(picture) & (np.abs(picture) > 1e30)] = 2  # whether a sum overflows is a matter of its order
        yield "avgpool2d", d, {"size": (2, 2), "padding": (1, 0, 0, 1)}, [picture]
        yield "avgpool2d", d, {"size": (3, 2)}, [picture]
        weight = np.array([1, -1, 0, 2], d.np).reshape(2, 2, 1, 1)
        yield "conv2d", d, {"size": (1, 1)}, [picture, weight, np.zeros(2, d.np)]
        yield "conv2d", d, {"size": (1, 1), "padding": (1, 1, 1, 1)}, [picture, weight, np.zeros(2, d.np)]
    for old, new in itertools.product((1, 2, 3, 7, 10, 33), (1, 2, 5, 9, 40)):
        yield "resize", d, {"dims": (new,)}, [np.arange(old, dtype=d.np)]


def _indices():
    index = np.array([0, -1, 5, 4, 2**31 - 1, -(2**31), 3, 6], np.int32)
    for d in (DTYPES[1], DTYPES[5], BY_NAME["i1"]):
        for stride in (1, 2, 3, 5):
            yield "pick1d", d, {"len": 8, "stride": stride}, [fill((11,), d), index]
    yield "pick1d", DTYPES[1], {"len": 3, "stride": 1}, [np.ones(1, np.float32), index]


def _submeans():
    for source in NUMBERS:
        x = fill((5, 4, 3), source)
        for target in NUMBERS:
            yield "submean", target, {"mean": (0.5, -1e3, 3e9), "dtype": target.tl}, [x]


def _label(case) -> str:
    name, d, params, arrays = case
    return f"{name}-{d}-{list(params.values())}-{arrays[0].dtype}{list(arrays[0].shape)}"


GROUPS = {k: list(v) for k, v in itertools.groupby(sorted(cases(), key=lambda c: c[0]), key=lambda c: c[0])}


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("name", sorted(GROUPS))
def test_corners(name):
    for number, case in enumerate(draw(GROUPS[name], f"corners {name}", every=23, by=lambda case: case[1].name)):
        for direct in (False, True):
            check(case, direct, machine(_label(case), always=not number))


def check(case, direct: bool, target: CodeMachine) -> None:
    name, _, params, arrays = case
    label = _label(case)
    block = Block(arg_types=[tensor_type(TensorSpec(a.shape, BY_NP[a.dtype])) for a in arrays])
    op = OPS[name].make(list(block.args), params)
    block.add_op(op)
    kernel = CpuKernelOp.wrap([op])
    if direct:
        kernel.attributes["alg"] = StringAttr("direct")
        if SELECTION.plan_of(kernel).alg != "direct":
            return
    with np.errstate(all="ignore"):
        want = op.evaluate(arrays)
    for array, spec in zip(want, op.result_specs, strict=True):
        assert (array.shape, array.dtype) == (spec.dims, spec.dtype.np), label
    if op.definition is not None and not direct:
        names, results = op.arg_names()
        got = evaluate_definition(bind_op(op), dict(zip(names, arrays)))
        for result, w in zip(results, want):
            agree(got[result], w, f"{label}: definition", op.is_move)
    run = KernelCase(kernel, arrays, {}, want, label)
    for got, how in ((loops(run, partial(native, target)), "native"), (loops(run, interpreted), "level 4")):
        for a, w in zip(got, want, strict=True):
            agree(a, w, f"{label}: {how} {'tiled' if direct else ''}", op.is_move)


#: Relative; and the size below which denormals may be flushed, or a step is larger. A short float may be the next one.
TOLERANCES = {"f64": (1e-12, 1e-300), "f32": (1e-5, 1e-37), "f16": (2.0**-10, 2.0**-23), "bf16": (2.0**-7, 1e-37)}


def agree(got: np.ndarray, want: np.ndarray, label: str, exact: bool) -> None:
    if exact or not is_float(want.dtype):
        np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), want.view(f"u{want.itemsize}"), label)
    else:
        rtol, smallest = TOLERANCES[BY_NP[want.dtype].name]
        got, want = widened_array(got), widened_array(want)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=smallest, err_msg=label)


def loops(case: KernelCase, run) -> list[np.ndarray]:
    memory = Memory(case, SELECTION.workspace_bytes(case.kernel))
    spaces = {"operand": memory.operands, "result": memory.results}
    launches = SELECTION.generate(case.kernel, "k", {})
    beside = {"workspace": memory.workspace, "scratch": memory.workspace[align_up(launch_memory_of(launches).shared) :]}
    for launch in launches:
        views = [beside[a.kind][a.number :] if a.kind in beside else spaces[a.kind][a.number] for a in launch.args]
        run(launch, views)
    return memory.check()


def native(target: CodeMachine, launch, views) -> None:
    compiled = compile_module(ModuleOp([launch.function.clone()]), machine=target, verify=True)
    pointers = [v.ctypes.data for v in views]
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
    call(compiled.kernel_address(launch.function.sym_name.data))(0, launch.grid, *pointers)


def interpreted(launch, views) -> None:
    types = launch.function.function_type.inputs.data[2:]
    arrays = []
    for view, type in zip(views, types, strict=True):
        dtype, shape = memory_dtype(type), type.get_shape()
        arrays.append(view[: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape))
    LoopProgram(ModuleOp([launch.function.clone()])).launch(launch.function.sym_name.data, range(launch.grid), arrays)
