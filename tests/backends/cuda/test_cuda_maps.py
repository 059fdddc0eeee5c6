"""What runs on maps of target cuda, whose channels lie last: every op that has a tensor with four dims, against its reference; changes of
layout; unused lanes; and small networks that stay in one layout, against the CPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_maps import Maps, laid_out, map_forms
from kernels import agree, op_of
from sampling import draw
from xdsl.ir import Block

import lightnet
from lightnet.backends.cuda.base import MAP, is_all_epilogue
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.selection import SELECTION, choose
from lightnet.backends.selection import PINNED
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.frontends import mlir
from lightnet.ir import body
from lightnet.ir.context import make_context
from lightnet.ir.kernel import choice_attr
from lightnet.ir.layout import layout_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import Request
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.ir.views import overwritable
from lightnet.runtime.dtypes import BY_NAME

EXAMPLES = Path(__file__).parents[3] / "examples"

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}


def regions_of(name: str, alg: str) -> list:
    """(kernel on maps, arrays, references) of the samples of an op that a generator takes so."""
    found = []
    for i, sample in enumerate(OPS[name].samples()):
        op, arrays = op_of(OPS[name], sample, i)
        want = op.evaluate(arrays)
        for number in range(len(map_forms(CudaKernelOp.wrap([op]), alg))):
            kernel = CudaKernelOp.wrap([op])
            found.append((laid_out(kernel, map_forms(kernel, alg)[number], alg), arrays, want))
    return found


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_an_op_on_maps_agrees_with_its_reference(name):
    cases = draw(regions_of(name, "loops"), f"maps {name}", every=6)
    if not cases:
        return
    regions = Maps([kernel for kernel, _, _ in cases])
    for k, (_, arrays, wants) in enumerate(cases):
        for got, want in zip(regions.run(k, arrays), wants, strict=True):
            agree(got, want, 1e-5)


#: Tiles with edges on both sides, several pictures, whole tiles; few channels, in one group and in two; one pixel.
SHAPES = [(2, 37, 5, 7), (1, 64, 8, 8), (2, 3, 5, 7), (1, 6, 3, 3), (1, 4, 40, 5), (3, 33, 1, 1)]
TYPES = ("f32", "f16", "bf16", "f64", "i8", "ui16", "i64", "i1")


def a_forward(dims: tuple[int, ...], dtype: str) -> CudaKernelOp:
    block = Block(arg_types=[tensor_type(TensorSpec(dims, BY_NAME[dtype]))])
    op = optypes()["forward"].make(list(block.args), {}, name="forward")
    block.add_op(op)
    return CudaKernelOp.wrap([op])


@pytest.mark.parametrize("alg", ["reorder", "loops"])
@pytest.mark.parametrize("to_map", [True, False])
def test_a_change_of_layout_changes_no_element(to_map, alg):
    cases = [(dims, "f32") for dims in SHAPES] + [(SHAPES[k], t) for t in TYPES[1:] for k in (0, 2, 3)]
    regions = []
    for dims, dtype in cases:
        kernel = a_forward(dims, dtype)
        forms = [f for f in map_forms(kernel, alg) if bool(f.maps) != to_map and f.plain_results != to_map]
        (form,) = forms
        regions.append(laid_out(kernel, form, alg))
    maps, rng = Maps(regions), np.random.default_rng(0)
    for k, (dims, dtype) in enumerate(cases):
        array = (100 * rng.standard_normal(dims)).astype(BY_NAME[dtype].np)
        np.testing.assert_array_equal(maps.run(k, [array])[0], array, err_msg=f"{dims} of {dtype}")


def depthwise(
    dims: tuple[int, ...], size: tuple[int, int], dtype: str, epilogue: str = "", **params: object
) -> CudaKernelOp:
    """A depthwise convolution with an epilogue: of `y`, the bias `b` and a map `z` of the result's shape; `e` is what it yields."""
    c = dims[1]
    specs = [TensorSpec(d, BY_NAME[dtype]) for d in (dims, (c, 1, *size), (c,))]
    block = Block(arg_types=[tensor_type(s) for s in specs])
    conv = optypes()["conv2d"].make(list(block.args), {"group": c, "size": size, **params}, name="conv")
    block.add_op(conv)
    ops = [conv]
    if epilogue:
        other = block.insert_arg(conv.results[0].type, 3)
        ops.append(optypes()["add"].make([conv.results[0], other], {}, name="add"))
        ops.append(optypes()["lrelu"].make([ops[-1].results[0]], {"negslope": 0.1}, name="act"))
        block.add_ops(ops[1:])
    return CudaKernelOp.wrap(ops)


#: Rows and columns that strips do not fill; strides, dilation, windows larger than the picture, asymmetric padding, no padding.
WINDOWS = [
    ((2, 8, 7, 9), (3, 3), {"padding": (1, 1, 1, 1)}),
    ((1, 4, 12, 13), (3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2)}),
    ((1, 12, 9, 8), (3, 2), {"padding": (2, 0, 2, 1), "dilation": (2, 3)}),
    ((1, 4, 3, 3), (5, 5), {"padding": (2, 2, 2, 2)}),
    ((1, 8, 8, 8), (3, 3), {}),
]


@pytest.mark.parametrize("dtype, tolerance", [("f32", 1e-5), ("f16", 2e-3), ("bf16", 2e-2)])
def test_depthwise_convolutions_agree_with_their_reference(dtype, tolerance):
    """With an epilogue that reads another map, for each strip; sums are of f32, so what is rounded is what is stored."""
    cases, rng = [], np.random.default_rng(0)
    for number, (dims, size, params) in enumerate(WINDOWS):
        for strip in (1, 2, 4):
            kernel = depthwise(dims, size, dtype, "add" if number % 2 else "", **params)
            forms = map_forms(kernel, "depthwise")
            assert len(forms) == 1 and len(forms[0].maps) == 1 + number % 2
            arrays = [
                rng.standard_normal(spec_of(v.type).dims).astype(spec_of(v.type).dtype.np) for v in kernel.operands
            ]
            cases.append((laid_out(kernel, forms[0], "depthwise", strip=strip), arrays))
    regions = Maps([kernel for kernel, _ in cases])
    for k, (kernel, arrays) in enumerate(cases):
        for got, want in zip(regions.run(k, arrays), references(kernel, arrays), strict=True):
            agree(got, want, tolerance)


@pytest.mark.parametrize("strip", [3, 0, 1000, "two", (2,)])
def test_strips_that_cannot_be_are_refused(strip):
    """Where choices are made, and where a kernel comes with its layouts and choices from a file."""
    kernel = depthwise(*WINDOWS[0][:2], "f32", "", padding=(1, 1, 1, 1))
    laid_out(kernel, map_forms(kernel, "depthwise")[0], "depthwise")
    kernel.attributes["strip"] = choice_attr(strip)
    for lower in (lambda: choose(kernel, Request("sm_80")), lambda: SELECTION.generate(kernel, "k", {})):
        with pytest.raises(LightNetError) as error:
            lower()
        assert error.value.label == "cuda.strip"


def references(kernel: CudaKernelOp, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What a kernel yields, op by op by their references."""
    values = dict(zip(kernel.body.args, arrays))
    for op in kernel.ops:
        values.update(zip(op.results, op.evaluate([values[v] for v in op.operands])))
    return [values[v] for v in kernel.terminator.operands]


#: Two branches, concatenated, their channels shuffled, with a residual, a slice, padding, LRN, upsampling and a dense end; %d channels are a branch's.
NETWORK = """
create(| dst=x | dtype=TL_FLOAT, dims=[2, 3, 9, 10], data=[1], ran=[-1, 1], from_file=false);
create(| dst=w1 | dtype=TL_FLOAT, dims=[{c}, 3, 3, 3], data=[1], ran=[-1, 1], from_file=false);
create(| dst=b1 | dtype=TL_FLOAT, dims=[{c}], data=[1], ran=[-1, 1], from_file=false);
conv2d(src=x, weight=w1, bias=b1 | dst=c1 | group=1, size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]);
relu(src=c1 | dst=r1 |);
maxpool2d(src=r1 | dst=p1 | size=[3, 3], stride=[2, 2], padding=[1, 1, 1, 1]);
create(| dst=w2 | dtype=TL_FLOAT, dims=[{c}, 1, 3, 3], data=[1], ran=[-1, 1], from_file=false);
conv2d(src=p1, weight=w2, bias=b1 | dst=d1 | group={c}, size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]);
elew(src1=d1, src2=p1 | dst=a1 | elew_op="TL_SUM");
concat(src1=a1, src2=p1 | dst=j | axis=1);
reshape(src=j | dst=s1 | dims=[2, 2, {c}, 25]);
transpose(src=s1 | dst=s2 | axes=[0, 2, 1, 3]);
reshape(src=s2 | dst=s3 | dims=[2, {cc}, 5, 5]);
lrn(src=s3 | dst=l | size=3, alpha=0.1, beta=0.75, bias=1);
slice(src=l | dst=k | axis=1, start=1, len={c});
upsample(src=k | dst=u | scales=[1, 1, 2, 2]);
avgpool2d(src=u | dst=g | size=[10, 10], stride=[10, 10], padding=[0, 0, 0, 0]);
reshape(src=u | dst=f | dims=[2, {n}]);
"""


@pytest.mark.parametrize("channels", [4, 6])
def test_a_network_on_maps_has_the_results_of_the_cpu(channels, monkeypatch):
    """All kernels that can run on maps do, changes of layout at the borders alone, by both ways of a memory plan: the emulator
    finds who reads what is not written."""
    text = NETWORK.format(c=channels, cc=2 * channels, n=100 * channels)
    on_cpu = lightnet.compile(lightnet.loads(text, ".net"))
    blocking, fresh = SELECTION.numbered_blocking, body.OfEqualKernels()

    def on_maps(*args):
        found = blocking(*args)
        return None if found is None else replace(found, plain=PINNED)

    monkeypatch.setattr(SELECTION, "numbered_blocking", on_maps)
    monkeypatch.setattr(SELECTION, "_blockings", fresh)
    on_cuda = lightnet.compile(lightnet.loads(text, ".net"), "cuda", emulate=True)
    kernels = [op for op in on_cuda.planned.walk() if isinstance(op, CudaKernelOp)]
    changes = [k for k in kernels if [op.optype for op in k.ops] == ["forward"]]
    assert len(changes) <= 3 and sum(layout_of(r.type) == MAP for k in kernels for r in k.results) >= 8
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 9, 10)).astype(np.float32)}
    got, want = on_cuda(feeds), on_cpu(feeds)
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert array.std() > 0
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5 * np.abs(array).max())


#: Op, shapes, parameters, and accesses of 16 bytes that its kernel makes of f32 and of f16.
WIDE = [
    ("relu", [(1, 64, 7, 7)], {}, 2),
    ("add", [(1, 8, 5, 5), (1, 8, 5, 5)], {}, 3),
    ("concat", [(1, 8, 5, 5), (1, 16, 5, 5)], {"axis": 1}, 4),
    ("slice", [(1, 24, 5, 5)], {"axis": 1, "start": 8, "len": 8}, 2),
    ("maxpool2d", [(1, 16, 9, 9)], {"size": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0)}, 2),
    ("pad", [(1, 8, 5, 5)], {"before": (0, 0, 1, 1), "after": (0, 0, 1, 2)}, 2),
]


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name, shapes, params, count", WIDE, ids=[case[0] for case in WIDE])
def test_threads_move_16_bytes_at_once(name, shapes, params, count, dtype):
    """As PTX: vectors on maps, whose channels fill them; at least so many accesses, loops may be unrolled. Nothing is read or written otherwise."""
    block = Block(arg_types=[tensor_type(TensorSpec(dims, BY_NAME[dtype])) for dims in shapes])
    op = optypes()[name].make(list(block.args), params, name=name)
    block.add_op(op)
    kernel = CudaKernelOp.wrap([op])
    text = Maps([laid_out(kernel, map_forms(kernel, "loops")[0], "loops")]).program.text
    accesses = re.findall(r"(?:ld|st)\.global\.(?:nc\.)?([\w.]+)", text)
    assert len(accesses) >= count and set(accesses) == {"v4.b32"}


@pytest.mark.optimized
def test_rows_of_elements_are_vectors_on_row_major_tensors_too():
    block = Block(arg_types=[tensor_type(TensorSpec((6, 30), BY_NAME["f32"]))] * 2)
    op = optypes()["add"].make(list(block.args), {}, name="add")
    block.add_op(op)
    text = Maps([CudaKernelOp.wrap([op])]).program.text
    assert re.findall(r"(?:ld|st)\.global\.(?:nc\.)?([\w.]+)", text) == ["v4.b32"] * 3


@pytest.mark.parametrize("net, most", [("squeezenet1.1", 2), ("mobilenetv2", 2), ("resnet18", 2), ("tiny-yolo", 2)])
def test_a_network_of_convolutions_stays_on_maps(net, most):
    """Changes of layout at its input and its output alone."""
    module = lightnet.load(EXAMPLES / f"nets/{net}.net").module.clone()
    run_pipeline(make_context(), module, parse_pipeline("bind,simplify,fold-batchnorm,hoist,expand,subgraph,hoist,combine,layout",
                                                        {"target": "cuda"}))  # fmt: skip
    kernels = [op for op in module.walk() if isinstance(op, CudaKernelOp)]
    changes = [
        k for k in kernels if layout_of(k.operands[0].type) != layout_of(k.results[0].type) and len(k.operands) == 1
    ]
    assert len([k for k in changes if k.ops[0].optype == "forward"]) <= most
    convolutions = [k for k in kernels if k.ops[0].optype == "conv2d"]
    assert convolutions and all(layout_of(k.results[0].type) == MAP for k in convolutions)


@pytest.mark.parametrize("ops, yielded", [
    ("%0 = ln.relu %a : tensor<1x4x2x6xf32>\n%1 = ln.reshape %0 : tensor<1x8x2x3xf32>", "%1"),
    # The reshape is between tensors of the body, which are plain: that the layouts of operand and result are one says nothing.
    ("%0 = ln.relu %a : tensor<1x4x2x6xf32>\n%1 = ln.reshape %0 : tensor<1x8x2x3xf32>\n%2 = ln.exp %1 : tensor<1x8x2x3xf32>", "%2"),
], ids=["last", "between"])  # fmt: skip
def test_a_reshape_of_a_map_is_not_computed_in_place(ops, yielded):
    """Equal sizes and row-major numbers, but elements of a number stand elsewhere."""
    text = f"""builtin.module {{
      func.func @main() -> tensor<1x8x2x3xf32> {{
        %x = ln.input : tensor<1x4x2x6xf32> as ("x")
        %y = cuda.kernel(%a = %x) {{
          {ops}
          ln.yield {yielded}
        }} as ("y")
        func.return %y : tensor<1x8x2x3xf32>
      }}
    }}"""
    kernel = next(op for op in mlir.read(text, "net.mlir", make_context()).walk() if isinstance(op, CudaKernelOp))
    assert overwritable(kernel) == [(0, 0)]
    (form,) = map_forms(kernel, "loops")
    made = laid_out(kernel, form, "loops")
    assert layout_of(made.operands[0].type) == layout_of(made.results[0].type) == MAP
    assert overwritable(made) == []


@pytest.mark.parametrize(
    "yielded, taken",
    [(y, True) for y in ("s", "y", "z", "szy", "ys")] + [(y, False) for y in ("", "ss", "yzy", "x", "zx", "r")],
)
@pytest.mark.parametrize("group", [1, 24])
def test_what_an_epilogue_may_yield(group, yielded, taken):
    """What the body makes, at least one value of it, and none twice: each is memory that the kernel writes."""
    spec = TensorSpec((1, 24, 5, 7), BY_NAME["f32"])
    weights = TensorSpec((24, 24 // group, 3, 3), BY_NAME["f32"])
    block = Block(arg_types=[tensor_type(t) for t in (spec, weights, TensorSpec((24,), BY_NAME["f32"]), spec)])
    x, w, b, r = block.args
    params = {"group": group, "size": (3, 3), "stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
    conv = optypes()["conv2d"].make([x, w, b], params, name="s")
    relu = optypes()["relu"].make([conv.results[0]], {}, name="y")
    add = optypes()["add"].make([relu.results[0], r], {}, name="z")
    ops = [conv, relu, add]
    block.add_ops(ops)
    named = {"x": x, "r": r, **{name: op.results[0] for name, op in zip("syz", ops)}}
    assert bool(is_all_epilogue(ops, [named[name] for name in yielded], range(4))) == taken
    (generator,) = (g for g in SELECTION.generators() if g.alg == ("depthwise" if group == 24 else "simt"))
    assert bool(generator.takes(ops, [named[name] for name in yielded], device_of("sm_80"))) == taken
