"""Fusion and loops: composed definitions against unfused evaluation, kernel functions against the NumPy evaluator.

The kernels run in the level-4 interpreter (bounds checked, blocks shuffled) and as machine code, all of a test's
definitions in one module.
"""

import ctypes

import numpy as np
import pytest
import test_notation as t
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import op_of
from machine_code import machine, verified
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.kernel_loops import bind_op
from lightnet.backends.llvm.jit import compile_module
from lightnet.backends.loops import lower_definition
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.fusion import Part, compose, inline, merge, nests
from lightnet.ir.notation import bind
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME, DTYPES
from lightnet_trust.interpreter.loops import LoopProgram
from lightnet_trust.interpreter.notation import evaluate_definition

F32 = BY_NAME["f32"]


def draw(spec: TensorSpec, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *spec.dims])
    if spec.dtype.is_float:
        return rng.normal(size=spec.dims).astype(spec.dtype.np)
    return rng.integers(0, 2 if spec.dtype.kind == "bool" else 100, spec.dims).astype(spec.dtype.np)


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 64 bytes, as kernels may assume."""
    raw = np.empty(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + values.nbytes].view(values.dtype)
    copy[:] = values
    return copy


def buffers(definition, lowered, arrays, aliases=None):
    """Rank-1 buffers by name: operands, poisoned results and workspace; a bool takes a byte."""
    specs = dict(definition.results) | dict(lowered.workspace)
    memory = {n: np.full(s.len, 99, "u1" if s.dtype.kind == "bool" else s.dtype.np) for n, s in specs.items()}
    memory |= {n: a.reshape(-1).view("u1" if a.dtype == bool else a.dtype) for n, a in arrays.items()}
    memory = {n: aligned(a) for n, a in memory.items()}
    for operand, result in (aliases or {}).items():
        memory[result] = memory[operand]
    return memory


def signless(array):
    return array.view(f"i{array.itemsize}") if array.dtype.kind in "iu" else array


def check(cases, native=True, tolerance=1e-5, blocks=5):
    """Lower every (definition, arrays[, aliases]), run it in the interpreter and natively, compare with `evaluate_definition`."""
    lowered = [
        lower_definition(f"k{i}", c[0], aliases=(c[2] if len(c) > 2 else {}), blocks=blocks)
        for i, c in enumerate(cases)
    ]
    module = verified(ModuleOp([k.func for low in lowered for k in low.kernels]))
    target = machine(str(cases[0][0]))
    program, code = LoopProgram(module), compile_module(module, machine=target, verify=True) if native else None
    for case, low in zip(cases, lowered):
        definition, arrays = case[:2]
        aliases = case[2] if len(case) > 2 else {}
        want = evaluate_definition(definition, arrays)
        interpreted, native_memory = (
            buffers(definition, low, arrays, aliases),
            buffers(definition, low, arrays, aliases),
        )
        for kernel in low.kernels:
            name = kernel.func.sym_name.data
            blocks = np.random.default_rng(1).permutation(kernel.grid).tolist()
            program.launch(name, blocks, [signless(interpreted[a]) for a in kernel.args])
            if code is not None:
                pointers = [native_memory[a].ctypes.data_as(ctypes.c_void_p) for a in kernel.args]
                kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
                function = kind(code.kernel_address(name))
                for block in blocks:
                    function(block, block + 1, *pointers)
        for result, spec in definition.results:
            for memory in (interpreted, native_memory) if native else (interpreted,):
                got = memory[result].view(spec.dtype.np).reshape(spec.dims)
                scale = (
                    max(1.0, float(np.abs(want[result][np.isfinite(want[result])]).max(initial=0)))
                    if spec.dtype.is_float
                    else 0
                )
                np.testing.assert_allclose(
                    got, want[result], rtol=tolerance, atol=tolerance * scale, err_msg=f"{result} of\n{definition}"
                )


def op(text, shapes, results, params=None, dtype="f32", **arrays):
    """A case: operands drawn from shapes (a tuple, or a spec), results given as shapes or specs."""
    spec = lambda s: s if isinstance(s, TensorSpec) else TensorSpec(tuple(s), BY_NAME[dtype])  # noqa: E731
    data = {n: draw(spec(s), k) for k, (n, s) in enumerate(shapes.items())} | arrays
    return t.bound(text, data, params or {}, **{n: spec(s) for n, s in results.items()}), data


I32 = BY_NAME["i32"]
CONV = {"stride": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "group": 1}
GROUPED = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "group": 2}
POOL = {"size": (3, 2), "stride": (2, 1), "padding": (1, 0, 1, 1)}
YOLO = {"box_centers": (1, 2, 2, 2, 5), "box_sizes": (1, 2, 2, 2, 5), "boxes": (1, 2, 4, 2, 5)} | {
    "confs": (1, 2, 1, 2, 5),
    "probs": (1, 2, 3, 2, 5),
}
CASES = {
    "conv2d": op(t.CONV2D, {"src": (2, 3, 5, 7), "weight": (4, 3, 3, 2), "bias": (4,)}, {"dst": (2, 4, 3, 6)}, CONV),
    "conv2d-grouped": op(t.CONV2D, {"src": (1, 4, 5, 5), "weight": (6, 2, 3, 3), "bias": (6,)}, {"dst": (1, 6, 5, 5)}, GROUPED),
    "conv2d-1x1": op(t.CONV2D, {"src": (1, 8, 30, 40), "weight": (16, 8, 1, 1), "bias": (16,)}, {"dst": (1, 16, 30, 40)},
                     GROUPED | {"padding": (0, 0, 0, 0), "group": 1}),
    "deconv2d": op(t.DECONV2D, {"src": (1, 2, 3, 4), "weight": (2, 3, 3, 3), "bias": (3,)}, {"dst": (1, 3, 5, 7)},
                   CONV | {"stride": (2, 2), "padding": (1, 0, 1, 2), "dilation": (1, 1)}),
    "maxpool2d": op(t.MAXPOOL, {"src": (2, 3, 7, 5)}, {"dst": (2, 3, 4, 5)}, POOL),
    "avgpool2d": op(t.AVGPOOL, {"src": (2, 3, 7, 5)}, {"dst": (2, 3, 4, 5)}, POOL),
    "softmax": op(t.SOFTMAX, {"src": (2, 5, 3)}, {"dst": (2, 5, 3)}, {"axis": 1}),
    "softmax-large": op(t.SOFTMAX, {"src": (20, 300, 4)}, {"dst": (20, 300, 4)}, {"axis": 1}),
    "softmax-one-block": op(t.SOFTMAX, {"src": (1, 40, 900)}, {"dst": (1, 40, 900)}, {"axis": 1}),
    "concat": op(t.CONCAT, {"src1": (2, 3, 4), "src2": (2, 2, 4)}, {"dst": (2, 5, 4)}, {"axis": 1}),
    "slice": op(t.SLICE, {"src": (4, 7, 3)}, {"dst": (4, 2, 3)}, {"axis": 1, "start": 3}),
    "transpose": op(t.TRANSPOSE, {"src": (2, 3, 4, 5)}, {"dst": (4, 2, 5, 3)}, {"axes": (2, 0, 3, 1)}),
    "reshape": op(t.RESHAPE, {"src": (2, 3, 4)}, {"dst": (4, 6)}),
    "maxreduce_arg": op(t.MAXREDUCE_ARG, {"src": (2, 9, 3)}, {"dst": (2, 1, 3), "arg": TensorSpec((2, 1, 3), I32)}, {"axis": 1}),
    "argmax-nan": op(t.MAXREDUCE_ARG, {}, {"dst": (1, 1), "arg": TensorSpec((1, 1), I32)}, {"axis": 1},
                     src=np.array([[1, np.nan, 3, np.nan]], np.float32)),
    "dot_product": op(t.DOT_PRODUCT, {"src1": (3, 50, 7), "src2": (3, 50, 7)}, {"dst": (1,)}),
    "resize": op(t.RESIZE, {"src": (1, 2, 5, 6)}, {"dst": (1, 2, 13, 4)}),
    "pick1d": op(t.PICK1D, {"src": (12,)}, {"dst": (12,)}, {"stride": 2, "len": 6},
                 src_index=np.array([2, 0, 5, -7, 2**31 - 1, -(2**31)], np.int32)),
    "submean": op(t.SUBMEAN, {"src": TensorSpec((4, 5, 3), BY_NAME["ui8"])}, {"dst": TensorSpec((3, 4, 5), BY_NAME["i8"])},
                  {"mean": (1.5, 100.25, -300.0)}),
    "transform_bbox": op(t.TRANSFORM_BBOX, {"src_delta": (1, 2, 3, 2, 4), "src_anchor": (1, 2, 3, 2, 4)}, {"dst": (1, 2, 3, 2, 4)},
                         dict(width=31, height=17, img_width=64, img_height=48, x_shift=3, y_shift=-2)),
    "detect_yolov3": op(t.DETECT_YOLOV3, {"feature": (1, 16, 2, 5), "anchors": (2, 2)}, YOLO, {"img_width": 416, "img_height": 320}),
    "batchnorm": op("dst[n, c, k...] = scale[c] * (src[n, c, k...] - mean[c]) / sqrt(abs(var[c]) + epsilon) + offset[c]",
                    {"src": (2, 3, 4, 50), **dict.fromkeys(("scale", "mean", "var", "offset"), (3,))}, {"dst": (2, 3, 4, 50)},
                    {"epsilon": 1e-3}),
    "arange": op(t.ARANGE, {}, {"dst": (9,)}, {"start": -1.5, "step": 0.75}),
    "large-elementwise": op("dst[i...] = tanh(src[i...]) * 2 + 1", {"src": (1, 70, 40, 50)}, {"dst": (1, 70, 40, 50)}),
    "long-vector": op("dst[i] = floor(src[i] * 8) / 8 + round(src[i])", {"src": (100003,)}, {"dst": (100003,)}),
    "guards": op("dst[i, j] = i > 0 && src[i - 1, j] > 0 ? src[i - 1, j] : j == 0 ? 7 : -src[i, j - 1]", {"src": (4, 5)}, {"dst": (4, 5)}),
    "casts": op("dst[i] = i8(src[i] * 100) + i8(i16(300)) / i8(3)", {"src": (50,)}, {"dst": TensorSpec((50,), BY_NAME["i8"])}),
    "rows-conv": op(t.CONV2D, {"src": (1, 3, 9, 37), "weight": (4, 3, 3, 5), "bias": (4,)}, {"dst": (1, 4, 4, 17)},
                    {"stride": (2, 2), "padding": (1, 3, 0, 2), "dilation": (1, 2), "group": 1}),
    "rows-depthwise": op(t.CONV2D, {"src": (2, 3, 9, 20), "weight": (3, 1, 3, 3), "bias": (3,)}, {"dst": (2, 3, 9, 20)},
                         GROUPED | {"group": 3}),
    "rows-deconv": op(t.DECONV2D, {"src": (1, 2, 3, 9), "weight": (2, 3, 3, 4), "bias": (3,)}, {"dst": (1, 3, 7, 20)},
                      {"stride": (2, 2), "padding": (0, 0, 0, 0), "dilation": (1, 1), "group": 1}),
    "rows-maxpool": op(t.MAXPOOL, {"src": (1, 2, 9, 31)}, {"dst": (1, 2, 6, 32)}, {"size": (4, 2), "stride": (2, 1), "padding": (3, 1, 3, 1)}),
    "rows-avgpool": op(t.AVGPOOL, {"src": (1, 2, 9, 31)}, {"dst": (1, 2, 9, 31)}, {"size": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1)}),
    "rows-bool": op("dst[j] += src[i, j]", {"src": TensorSpec((5, 40), BY_NAME["i1"])}, {"dst": TensorSpec((40,), BY_NAME["i1"])}),
    "rows-i8": op("dst[j] = src[0, j]\ndst[j] *= src[i, j]\ndst[j] = dst[j] + src[1, j]", {"src": TensorSpec((5, 40), BY_NAME["i8"])},
                  {"dst": TensorSpec((40,), BY_NAME["i8"])}),
    "rows-long": op("dst[j] min= src[i, j]", {"src": (3, 30011)}, {"dst": (30011,)}),
    "many-blocks": op("dst[i, j] += a[i, k] * b[k, j]", {"a": (40, 30), "b": (30, 50)}, {"dst": (40, 50)}),
}  # fmt: skip


def test_ops():
    check([(bound, arrays) for bound, arrays in CASES.values()])


@pytest.mark.parametrize("name", ["MUL", "DIV", "SUM", "SUB", "MAX", "MIN", "POW"])
def test_elementwise_arithmetic_in_every_dtype(name):
    cases = []
    for dtype in DTYPES:
        values = [0, 1, 2, 3, 7, 100] if dtype.kind in ("uint", "bool") else [0, 1, -1, 2, -3, 7, -100, 100]
        if dtype.kind in ("int", "uint"):
            values += [np.iinfo(dtype.np).max, np.iinfo(dtype.np).min]
        a, b = (np.array(v, dtype.np) for v in zip(*[(x, y) for x in values for y in values]))
        arrays = {"src1": np.abs(a) if dtype.is_float else a, "src2": b}
        cases.append((t.bound(t.ELEW, arrays, {"elew_op": f"TL_{name}"}, dst=TensorSpec(a.shape, dtype)), arrays))
    check(cases, tolerance=1e-6 if name == "POW" else 0)


@pytest.mark.parametrize("op_", ["max=", "min=", "+=", "*="])
def test_reductions_in_every_dtype(op_):
    cases = []
    for dtype in DTYPES:
        arrays = {"src": draw(TensorSpec((3, 70), dtype))}
        cases.append((t.bound(f"dst[i] {op_} src[i, j]", arrays, dst=TensorSpec((3,), dtype)), arrays))
    check(cases, tolerance=1e-4)


def test_casts_between_all_dtypes():
    cases = []
    for a in DTYPES:
        values = [0, 1, 2, 100, 127] + ([] if a.kind in ("uint", "bool") else [-1, -100, -128])
        values += [np.iinfo(a.np).max, np.iinfo(a.np).min] if a.kind in ("int", "uint") else []
        values += [0.5, -2.7, 1e10, -1e30, np.inf, -np.inf, np.nan] if a.is_float else []
        arrays = {"src": np.array(values, a.np)}
        for b in DTYPES:
            cases.append((t.bound(f"dst[i] = {b}(src[i])", arrays, dst=TensorSpec(arrays["src"].shape, b)), arrays))
    check(cases, tolerance=0)


# --- Fusion ---------------------------------------------------------------------------------------------------------


def chain(steps, first):
    """Parts of a linear chain: every step is (text, params, result dims), operand `a` the previous value."""
    parts, value, spec = [], "v0", TensorSpec(first, F32)
    for k, (text, params, dims) in enumerate(steps):
        tensors = {"a": spec, "r": TensorSpec(tuple(dims), F32)}
        parts.append(Part(bind(text, tensors, params, ["r"]), (value,), (f"v{k + 1}",)))
        value, spec = f"v{k + 1}", tensors["r"]
    return parts, value


def test_epilogues_share_the_nest_of_the_reduction():
    specs = {"src": (1, 3, 8, 8), "weight": (4, 3, 3, 3), "bias": (4,), "dst": (1, 4, 8, 8)}
    specs = {n: TensorSpec(d, F32) for n, d in specs.items()}
    conv = bind(t.CONV2D, specs, GROUPED | {"group": 1}, ["dst"])
    add = bind("r[i...] = a[i...] + b[i...]", dict.fromkeys("abr", specs["dst"]), {}, ["r"])
    relu = bind("r[i...] = max(a[i...], 0)", dict.fromkeys("ar", specs["dst"]), {}, ["r"])
    parts = [Part(conv, ("x", "w", "c"), ("y",)), Part(add, ("y", "skip"), ("s",)), Part(relu, ("s",), ("o",))]
    fused = compose(parts, ["o"])
    assert [n for n, _ in fused.operands] == ["x", "w", "c", "skip"]
    assert len(nests(fused)) == 1
    arrays = {n: draw(s, k) for k, (n, s) in enumerate(fused.operands)}
    np.testing.assert_allclose(
        evaluate_definition(fused, arrays)["o"], evaluate_definition(merge(parts, ["o"]), arrays)["o"]
    )
    check([(fused, arrays)])


def test_a_padded_read_of_an_inlined_map_gives_the_filler_outside():
    plus = bind("r[i...] = a[i...] + 5", {"a": TensorSpec((4,), F32), "r": TensorSpec((4,), F32)}, {}, ["r"])
    window = bind(
        "d[i] += r[i + k - 1 | 0] for k < 3", {"r": TensorSpec((4,), F32), "d": TensorSpec((4,), F32)}, {}, ["d"]
    )
    fused = inline(window, plus, "r")
    assert len(fused.statements) == 1
    got = evaluate_definition(fused, {"a": np.arange(4, dtype=np.float32)})["d"]
    assert got.tolist() == [11, 18, 21, 15]
    check([(fused, {"a": np.arange(4, dtype=np.float32)})])


def test_a_slice_keeps_its_own_bounds_when_inlined():
    cut = bind("r[i] = a[i]", {"a": TensorSpec((6,), F32), "r": TensorSpec((3,), F32)}, {}, ["r"])
    window = bind("d[i] = r[i + 1 | -1]", {"r": TensorSpec((3,), F32), "d": TensorSpec((3,), F32)}, {}, ["d"])
    fused = inline(window, cut, "r")
    assert evaluate_definition(fused, {"a": np.arange(6, dtype=np.float32)})["d"].tolist() == [1, 2, -1]


def test_inlining_a_concat_reads_each_part_under_its_guard():
    case, arrays = CASES["concat"]
    scale = bind("d[i...] = dst[i...] * 2", {n: TensorSpec((2, 5, 4), F32) for n in ("dst", "d")}, {}, ["d"])
    fused = inline(scale, case, "dst")
    assert len(fused.statements) == 1
    np.testing.assert_array_equal(evaluate_definition(fused, arrays)["d"], evaluate_definition(case, arrays)["dst"] * 2)
    check([(fused, arrays)])


def test_expensive_values_that_many_read_are_stored():
    step = "r[i] = tanh(a[i] + a[7 - i])"
    parts, last = chain([(step, {}, (8,))] * 12, (8,))
    fused = compose(parts, [last])
    assert len(fused.statements) > 5
    assert max(len(str(s)) for s in fused.statements) < 2000
    arrays = {"v0": draw(TensorSpec((8,), F32))}
    np.testing.assert_allclose(
        evaluate_definition(fused, arrays)[last], evaluate_definition(merge(parts, [last]), arrays)[last], rtol=1e-5
    )
    check([(fused, arrays)])


def test_yielding_an_operand_or_a_value_twice():
    parts, last = chain([("r[i] = a[i] + 1", {}, (5,))], (5,))
    fused = compose(parts, [last, last, "v0"])
    out = list(evaluate_definition(fused, {"v0": np.zeros(5, np.float32)}).values())
    assert [a.tolist() for a in out] == [[1] * 5, [1] * 5, [0] * 5]
    named = compose(parts, [last, last, "v0"], results=["x", "y", "z"])
    assert [n for n, _ in named.results] == [last, "y", "z"]


def test_each_point_of_the_loops_may_be_a_block():
    """As a GPU's threads have it. The strided windows among them are those of loops with a step, which may have no trip: nothing may be
    read for these (bounds are checked)."""
    cases = []
    for name in ("deconv2d", "conv2d", "softmax", "reduce_sum", "avgpool2d", "transpose", "lrn"):
        for seed, sample in enumerate(optypes()[name].samples()):
            op, arrays = op_of(optypes()[name], sample, seed)
            if sum(a.size for a in arrays) < 1000 and op.definition is not None:
                cases.append((bind_op(op), dict(zip(op.arg_names()[0], arrays))))
    check(cases, blocks=None, tolerance=1e-4)


def test_in_place_operands_share_memory():
    a = {"a": t.normal(30, 400), "b": t.normal(30, 400, seed=1)}
    case = t.bound("u[i...] = exp(a[i...])\ndst[i...] = u[i...] * a[i...] + b[i...]", a, dst=(30, 400))
    check([(case, a, {"a": "dst"})])


MAPS = [
    "r[i...] = a[i...] * 2 + 1",
    "r[i...] = max(a[i...], 0)",
    "r[i...] = tanh(a[i...])",
    "r[i...] = a[i...] * a[i...]",
]


@st.composite
def chains(draw_):
    """Random chains of maps, moves, windows and reductions over tensors of rank 1 to 4."""
    dims = tuple(draw_(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    first, steps = dims, []
    for _ in range(draw_(st.integers(1, 6))):
        kind = draw_(
            st.sampled_from(["map", "transpose", "slice", "pad", "reshape", "window", "reduce", "flip", "concat"])
        )
        axis = draw_(st.integers(0, len(dims) - 1))
        text, params = draw_(st.sampled_from(MAPS)), {"axis": axis}
        new = list(dims)
        if kind == "transpose":
            axes = draw_(st.permutations(range(len(dims))))
            text, params, new = "r[i...] = a[i[inverse(axes)]...]", {"axes": tuple(axes)}, [dims[k] for k in axes]
        elif kind == "slice":
            start = draw_(st.integers(0, dims[axis] - 1))
            new[axis] = draw_(st.integers(1, dims[axis] - start))
            text, params = "r[i:axis..., j, k...] = a[i..., j + start, k...]", {"axis": axis, "start": start}
        elif kind == "pad":
            new[axis] += 2
            text = "r[i:axis..., j, k...] = a[i..., j - 1, k... | -3]"
        elif kind == "flip":
            text = "r[i:axis..., j, k...] = a[i..., a.dims[axis] - 1 - j, k...]"
        elif kind == "reshape":
            size = int(np.prod(dims))
            head = draw_(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
            text, new = "r.flat[i] = a.flat[i]", [head, size // head]
        elif kind == "window":
            text = "r[i:axis..., j, k...] += a[i..., j + q - 1, k... | 0] * (q + 1) for q < 3"
        elif kind == "reduce":
            new[axis] = 1
            text = "r[i:axis..., 0, k...] max= a[i..., j, k...]"
        elif kind == "concat":
            new[axis] *= 2
            text = (
                "r[i:axis..., j, k...] = a[i..., j, k...] for j < a.dims[axis]\n"
                "r[i:axis..., j + a.dims[axis], k...] = -a[i..., j, k...]"
            )
        if np.prod(new) > 3000:
            continue
        steps.append((text, params, tuple(new)))
        dims = tuple(new)
    return first, steps or [(MAPS[0], {}, dims)]


@settings(max_examples=60, deadline=None)
@given(chains(), st.booleans())
def test_fused_chains_equal_unfused_ones(case, twice):
    first, steps = case
    parts, last = chain(steps, first)
    arrays = {"v0": draw(TensorSpec(first, F32))}
    yielded = [last, "v1"] if twice and last != "v1" else [last]
    fused, plain = compose(parts, yielded), merge(parts, yielded)
    value = arrays["v0"]
    for part in parts:
        ((name, _),) = part.definition.operands
        value = next(iter(evaluate_definition(part.definition, {name: value}).values()))
    for result in (evaluate_definition(fused, arrays), evaluate_definition(plain, arrays)):
        np.testing.assert_allclose(result[last], value, rtol=1e-5, atol=1e-5)
    check([(fused, arrays), (plain, arrays)], native=False)


IN_VECTORS = {
    "one row, cut into pieces": op("dst[i] = max(x[i] * 2 + y[i], 0)", {"x": (12304,), "y": (12304,)}, {"dst": (12304,)}),
    "a value by channel": op("dst[n, c, i] = x[n, c, i] + b[c]", {"x": (2, 3, 32), "b": (3,)}, {"dst": (2, 3, 32)}),
    "values by column": op("dst[n, c] = x[n, c] * b[c]", {"x": (5, 48), "b": (48,)}, {"dst": (5, 48)}),
    "functions and a choice": op("dst[i] = x[i] < 0 ? exp(x[i]) - 1 : sqrt(x[i]) - 0.5", {"x": (64,)}, {"dst": (64,)}),
    "conditions": op(
        "dst[i] = x[i] < 0 && y[i] < 1 || !(x[i] <= y[i]) ? -x[i] : y[i]", {"x": (64,), "y": (64,)}, {"dst": (64,)}
    ),
    "a test": op("dst[i] = x[i] < y[i]", {"x": (64,), "y": (64,)}, {"dst": TensorSpec((64,), BY_NAME["i1"])}),
    "halves": op("dst[i] = x[i] * x[i] + 1", {"x": (96,)}, {"dst": (96,)}, dtype="f16"),
    "doubles": op("dst[i] = abs(x[i]) / 3", {"x": (24,)}, {"dst": (24,)}, dtype="f64"),
    "another type": op("dst[i] = f32(x[i]) + 1", {"x": TensorSpec((64,), BY_NAME["f64"])}, {"dst": (64,)}),
    "boxes": op(
        "dst[i, j] = a[i, j] for j < 32\ndst[i, j + 32] = b[i, j]", {"a": (3, 32), "b": (3, 16)}, {"dst": (3, 48)}
    ),
    "two results": op("a[i] = x[i] * 2\nb[i] = a[i] - x[i]", {"x": (48,)}, {"a": (48,), "b": (48,)}),
}  # fmt: skip
ONE_BY_ONE = {
    "an odd length": op("dst[i] = x[i] + 1", {"x": (49,)}, {"dst": (49,)}),
    "integers": op("dst[i] = x[i] + 1", {"x": (64,)}, {"dst": (64,)}, dtype="i32"),
    "long functions": op("dst[i] = sin(x[i])", {"x": (64,)}, {"dst": (64,)}),
    "what is read in steps": op("dst[i] = x[2 * i]", {"x": (128,)}, {"dst": (64,)}),
    "a transpose": op("dst[i, j] = x[j, i]", {"x": (64, 32)}, {"dst": (32, 64)}),
    "the index itself": op("dst[i] = x[i] * f32(i)", {"x": (64,)}, {"dst": (64,)}),
    "a sum": op("dst[i] += x[k, i]", {"x": (8, 64)}, {"dst": (64,)}),
    "a map and a sum": op("t[i] = x[i] * 2\ns[] += t[i]", {"x": (64,)}, {"s": (), "t": (64,)}),
}


def test_maps_of_floats_are_vectors():
    """They need nothing of LLVM's middle end; whatever else is in a function leaves it scalar."""
    for cases, mode in ((IN_VECTORS, "none"), (ONE_BY_ONE, "O2")):
        for name, (definition, _) in cases.items():
            modes = {k.func.attributes["tile.opt"].data for k in lower_definition("k", definition).kernels}
            assert mode in modes and (mode == "O2" or len(modes) == 1), name
    check([*IN_VECTORS.values(), *ONE_BY_ONE.values()])
    definition, arrays = op("dst[i] = x[i] * 2 + 1", {"x": (4096,)}, {"dst": (4096,)})
    check([(definition, arrays, {"x": "dst"})])
