"""Upstream's own operator descriptions, as they are: all load, and where our ops have their names both compute the same.

The files (tests/data/upstream) are somebody else's; what they compute is compared with our own ops, which have oracles of their own, with
NumPy, and for whole networks module by module: an op that stands for one of ours is that op once it is compiled.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import upstream_mutants
from kernels import op_of
from test_descriptions import entry, number, op_class, source
from test_ops import run_kernel
from xdsl.ir import Block

import lightnet
from lightnet import model, plugins
from lightnet.cli.lightnet import main
from lightnet.diagnostics import DescriptionWarning, LightNetError
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.dialect import built_in_optypes, optypes
from lightnet.ir.constraints import ConstraintError
from lightnet.ir.context import make_context
from lightnet.ir.op import case
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.passes import pipelines
from lightnet_descriptions import load_description_file, load_descriptions
from lightnet_descriptions.reader import read_description

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "upstream"
NETS = ROOT / "tests" / "data" / "nets"
BUILT_IN = built_in_optypes()


@cache
def classes() -> dict[str, type]:
    found = [
        cls
        for path in upstream_mutants.FILES
        for ops in load_description_file(str(path)).families.values()
        for cls in ops
    ]
    return {cls.optype: cls for cls in found}


def base(cls) -> str:
    return cls.optype if cls.arch == "none" else cls.optype.removesuffix(f"_{cls.arch}")


def test_all_load():
    assert len(upstream_mutants.FILES) == 37
    found = classes()
    assert Counter(cls.arch for cls in found.values()) == {"none": 34, "cpu": 33, "cuda": 32, "cudnn": 1, "dpu": 4}
    (tensorrt,) = read_description(
        (DATA / "op" / "tensorrt.op").read_text(), "t.op"
    ).objects.values()  # the 105th: no op of its own
    assert tensorrt.plain()["autogen"] is False


def instances(cls, most: int):
    """Ops of `cls` on test cases of ours, each with ours and the arrays; what a description refuses is left out (empty tensors)."""
    ours = BUILT_IN[base(cls)]
    for sample in ours.samples()[:most]:
        want, arrays = op_of(ours, sample)
        operands, arrays = list(want.operands), list(arrays)
        if cls.optype == "dot_product_cuda":  # takes its workspaces, too
            spec = TensorSpec((1,), want.operand_specs[0].dtype)
            operands += Block(arg_types=[tensor_type(spec)] * 2).args
            arrays += [np.zeros(1, spec.dtype.np)] * 2
        if len(operands) != len(cls.schema.operands):  # concat of three
            continue
        try:
            yield cls.make(operands, dict(want.param_values())), want, arrays
        except ConstraintError:
            pass


NAMED = [
    name for name in classes() if base(classes()[name]) in BUILT_IN and not BUILT_IN[base(classes()[name])].is_host
]


@pytest.mark.parametrize("most", [2, pytest.param(99, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::lightnet.diagnostics.DescriptionWarning")
def test_same_as_ours(most):
    """Every op that has the name of one of ours gives the same, bit for bit, on the same operands."""
    ran = Counter()
    for name in NAMED:
        for op, want, arrays in instances(classes()[name], most):
            for a, b in zip(op.evaluate(arrays), want.evaluate(arrays[: len(want.operands)]), strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)
            ran[name] += 1
    assert set(NAMED) - set(ran) == {"create", "create_cpu", "create_cuda"}  # whose contents are the network's


def test_loops_compile():
    """Loops over elements are index notation, which targets compile."""
    for op, want, arrays in instances(classes()["arange_cpu"], 3):
        assert op.decomposition() is None
        for a, b in zip(run_kernel(CpuKernelOp.wrap([op]), arrays), want.evaluate(arrays), strict=True):
            np.testing.assert_array_equal(a, b)


def test_bn2scale():
    """Upstream divides by the variance, not by its root: a loaded file means what it says."""
    cls = classes()["bn2scale_wts_cpu"]
    op, arrays = op_of(cls, case("f32", src_mean=(5,), src_var=(5,), src_scale=(5,), src_offset=(5,), epsilon=0.5))
    mean, var, scale, offset = arrays
    want = [scale / (var + np.float32(0.5)), offset - mean * scale / (var + np.float32(0.5)), np.ones(5, np.float32)]
    for got in (op.evaluate(arrays), run_kernel(CpuKernelOp.wrap([op]), arrays)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_dpu():
    """The DPU's instructions, by NumPy; each says that its hardware is not here."""
    rng = np.random.default_rng(0)
    x, w, b = rng.random((7, 16), np.float32), rng.random((6, 8, 1, 1), np.float32), rng.random(6, np.float32)
    op, _ = op_of(
        classes()["conv1x1_dpu"],
        case("f32", src=(7, 16), weight=(6, 8, 1, 1), bias=(6,), stride=2, padding=(1, 2), group=2),
    )
    padded = np.pad(x, ((1, 2), (0, 0)))[::2]
    want = np.concatenate([padded[:, g * 8 : g * 8 + 8] @ w[g * 3 : g * 3 + 3, :, 0, 0].T for g in (0, 1)], 1) + b
    with pytest.warns(
        DescriptionWarning, match="of 'dpu', which is not here: the interpreter computes it by its definition$"
    ):
        np.testing.assert_allclose(op.evaluate([x, w, b])[0], want, rtol=1e-5)
    w = rng.random((6, 16, 3, 3), np.float32)
    op, _ = op_of(
        classes()["conv3x3_dpu"],
        case(
            "f32",
            src1=(7, 16),
            src2=(7, 16),
            src3=(7, 16),
            weight=(6, 16, 3, 3),
            bias=(6,),
            stride=1,
            padding=(1, 1),
            group=1,
        ),
    )
    lines = [rng.random((7, 16), np.float32) for _ in range(3)]
    wide = [np.pad(line, ((1, 3), (0, 0))) for line in lines]
    want = sum(wide[r][q : q + 9] @ w[:, :, r, q].T for r in range(3) for q in range(3)) + b
    with pytest.warns(DescriptionWarning):
        np.testing.assert_allclose(op.evaluate([*lines, w, b])[0], want, rtol=1e-5)
        for name in ("ldmr", "ldmr_dpu"):
            op, (x,) = op_of(classes()[name], case("f32", src=(3, 5)))
            np.testing.assert_array_equal(op.evaluate([x])[0], np.pad(x, ((0, 0), (0, 3))))
        op, (x,) = op_of(classes()["svmr_dpu"], case("f32", src=(3, 8)))
        np.testing.assert_array_equal(op.evaluate([x])[0], x)
    with pytest.raises(ConstraintError, match="multiple of 8"):
        op_of(classes()["svmr_dpu"], case("f32", src=(3, 5)))


CONV = {"src": (1, 4, 7, 6), "weight": (6, 2, 3, 3), "bias": (6,), "group": 2, "size": (3, 3), "stride": (1, 2), "padding": (1, 0, 1, 1), "dilation": (1, 1), "autopad": "NOTSET"}  # fmt: skip


@pytest.mark.parametrize(
    "name, fields, text",
    [
        ("conv2d", CONV | {"bias": (5,)}, "'bias' ([5]) should have the size of dims[0] of 'weight' ([6, 2, 3, 3])"),
        ("conv2d", CONV | {"group": 1}, "'weight' ([6, 2, 3, 3])'s dims[1] multiplies group (1) should be equal"), ("conv2d", CONV | {"size": (3, 2)}, "'size' ([3, 2])"),
        ("conv2d_cpu", CONV | {"size": (3, 3, 3)}, "needs 2 elements, but gets 3"), ("slice", {"src": (2, 5), "axis": 1, "start": 3, "len": 3}, "len + start <= src.dims[axis]"),
        ("concat", {"src1": (2, 4), "src2": (3, 5), "axis": 1}, "except in the dimension corresponding to 'axis' 1"), ("concat", {"src1": (2, 4), "src2": (2, 5), "axis": 2}, "'axis' 2 should match"),
        ("transpose", {"src": (2, 3), "axes": (0, 0)}, "'axes' should match the shape of 'src'"), ("transpose", {"src": (2, 3), "axes": (0, 5)}, "index 5 of memory of ln_alloc is not in 0..1"),
        ("reshape", {"src": (2, 3), "dims": (4,)}, "'src' ([2, 3]) tensor's length 6 should be equal to the reshaped ([4]) length 4"), ("arange", {"dtype": "TL_INT8", "start": 0, "stop": 300, "step": 1}, "`stop` param's value should be <= 127.0"),
        ("arange", {"dtype": "TL_INT8", "start": 5, "stop": 3, "step": 1}, "should be > 5"), ("rearange", {"src": (3,), "start": 0, "stop": 4, "step": 1}, "ceil((stop - start) / step) = 4"),
        ("deconv2d", {"src": (1, 3, 4, 5), "weight": (3, 2, 3, 3), "bias": (2,), "group": 1, "size": (3, 3), "stride": (2, 2), "output_dims": (1, 2, 9, 9), "padding": (0, 0, 0, 0),
                      "output_padding": (0, 0), "dilation": (1, 1), "autopad": "NOTSET"}, "has unmatched 'output_dims'([1, 2, 9, 9]) and 'dst->dims'([1, 2, 9, 11])"),
        ("maxpool2d", {"src": (1, 2, 8, 9), "size": (3, 3), "stride": (2, 2), "padding": (0, 0, 0, 0), "autopad": "SAME_UPPER"}, "which it computes as, gives"),
    ],
)  # fmt: skip
def test_checks(name, fields, text):
    """What the C of a description checks, in its words, with a note of the place."""
    with pytest.raises(ConstraintError) as caught:
        op_of(classes()[name], case("f32", **fields))
    assert text in caught.value.message
    if "custom" in str(caught.value.label):
        loc, note = caught.value.notes[0]
        assert str(loc).startswith(str(DATA / "op" / f"{base(classes()[name])}.op:")) and "description" in note


def test_unknown_autopad_is_a_warning():
    with (
        pytest.warns(DescriptionWarning, match="unsupported 'autopad' FOO"),
        pytest.raises(ConstraintError),
    ):  # upstream only warns; ours refuses it
        op_of(classes()["conv2d"], case("f32", **CONV | {"autopad": "FOO"}))


# -- in the place of ours --------------------------------------------------------------------------------------------

REPLACED = (plugins.Replacing(str(DATA / "op")), str(DATA / "ep" / "ep_cpu.json"))


def planned(net: Path, target: str, plan: str, *load: str) -> str:
    """The module of a network, planned."""
    with plugins.loaded(load):
        module = model.load(net).module
        options = {"target": target} | ({"plan": plan} if plan != "default" else {})
        run_pipeline(make_context(), module, parse_pipeline(pipelines.default(target, plan, "plan"), options))
        return str(module)


@pytest.mark.parametrize(
    "net, target, plan",
    [
        ("ir/test_ops.json", "cpu", "upstream"), ("ir/test_ops.json", "cpu", "default"), ("ir/test_ops.json", "cuda", "default"), ("il/squeezedet.net", "cpu", "upstream"),
        *(pytest.param(f"il/{net.name}", target, plan, marks=pytest.mark.slow) for net in sorted((NETS / "il").glob("*.net"))
          for target, plan in (("cpu", "upstream"), ("cpu", "default"), ("cuda", "default"))),
    ],
)  # fmt: skip
def test_networks(net, target, plan):
    """Networks of upstream's own ops, expanded by upstream's own rules, become what they become of ours: kernels, choices, places."""
    rules = REPLACED[1:] if target == "cpu" else ()
    assert planned(NETS / net, target, plan, *REPLACED[:1], *rules) == planned(NETS / net, target, plan, *rules)


def test_command_line(tmp_path, capfd):
    """The document's example by upstream's files: its three lines, and its plan."""
    net = tmp_path / "n.net"
    net.write_text('create(| dst=tensor1 | dtype=TL_FLOAT, dims=[2, 4], data=[1, 2, 3, 4, 5, 6, 7, 8], ran=[0, 0], from_file=false);'
                   'slice(src=tensor1 | dst=tensor2 | axis=1, start=1, len=3); print(src=tensor2 | | msg="tensor2:");')  # fmt: skip
    options = ["--load", str(DATA / "op"), "--replace", "--load", REPLACED[1]]
    texts = {}
    for name, extra in (("a", options), ("b", [])):
        out = tmp_path / f"{name}.json"
        assert main(["-t", "cpu", "--plan=upstream", *extra, str(net), "-o", str(out)]) == 0
        shown, errors = capfd.readouterr()
        assert shown.startswith("tensor2:\n[[2.000 3.000 4.000]\n [6.000 7.000 8.000]]\n") and not errors
        texts[name] = json.loads(out.read_text())
    assert texts["a"] == texts["b"] and [op["optype"] for op in texts["a"]["ops"]] == [
        "create_cpu",
        "slice_cpu",
        "print_cpu",
    ]
    assert main(["-r", *options, str(tmp_path / "a.json")]) == 0
    assert "[6.000 7.000 8.000]]" in capfd.readouterr().out
    assert main(["-t", "none", *options[:3], str(net)]) == 0


def test_clash_names_both(capfd):
    with pytest.raises(LightNetError) as caught, plugins.load(DATA / "op" / "relu.op"):
        pass
    assert "op 'ln.relu' is defined twice" in caught.value.message
    assert "lightnet.dialects.ln.elementwise:Relu" in caught.value.message and "relu.op:2:" in caught.value.message
    assert main(["--replace", "--load", str(DATA / "op"), "x.net"]) == 1
    assert "stands behind the --load" in capfd.readouterr().err


def test_replace(tmp_path):
    """A file takes the place of an op, for as long as it is loaded, and with its own checks."""
    text = entry(optype="relu", run="tl_tensor_lrelu(src, dst, 0.5);", tensors_in=[source(ndim=1)])
    for name, document in (
        ("a.json", {"replace": True, "ops": [text]}),
        ("b.json", {"ops": [text | {"replace": True}]}),
        ("c.json", text | {"replace": True}),
    ):
        (tmp_path / name).write_text(json.dumps(document))
        with plugins.load(tmp_path / name):
            net = tmp_path / "n.net"
            net.write_text(
                "create(| dst=x | dtype=TL_FLOAT, dims=[2], data=[-4, 3], ran=[0, 0], from_file=false); relu(src=x | dst=y |);"
            )
            for target in ("cpu", "none"):
                np.testing.assert_array_equal(lightnet.compile(model.load(net), target)()["y"], [-2, 3])
            net.write_text(net.read_text().replace("[2]", "[2, 1]"))
            with pytest.raises(LightNetError, match="1-dimensional"):
                model.load(net)
        assert optypes()["relu"] is BUILT_IN["relu"]
    (tmp_path / "c.json").write_text(json.dumps(text))
    with pytest.raises(LightNetError, match="defined twice"), plugins.load(tmp_path / "c.json"):
        pass
    with plugins.load(tmp_path / "c.json", replace=True):
        assert optypes()["relu"] is not BUILT_IN["relu"]


def test_static_is_checked(tmp_path):
    net = tmp_path / "n.net"
    net.write_text("create(| dst=x | dtype=TL_FLOAT, dims=[2], data=[1, 2], ran=[0, 0], from_file=false); relu(src=x | dst=y |);"
                   "bn2scale_wts_cpu(src_mean=y, src_var=y, src_scale=y, src_offset=y | dst_scale=a, dst_shift=b, dst_power=c | epsilon=1);")  # fmt: skip
    with plugins.load(DATA / "op" / "bn2scale_wts.op"):
        for target in ("cpu", "none"):
            with pytest.raises(LightNetError, match="`src_mean` should be static, but `y` is not") as caught:
                lightnet.compile(model.load(net), target)
            assert caught.value.loc.line == 1 and caught.value.label == "bn2scale_wts_cpu.src_mean.static"
        net.write_text(net.read_text().replace("relu(src=x | dst=y |);", "").replace("=y", "=x"))
        np.testing.assert_allclose(lightnet.compile(model.load(net), "cpu")()["a"], [0.5, 2 / 3], rtol=1e-6)


def test_the_tensor_of_a_create_that_a_caller_may_feed_is_static(tmp_path):
    """`x` is read as data, too, so that it becomes an input; every `create` of upstream's is static."""
    op = dict(optype="table", author="me", arch="none", params=[], run="dst[i...] = src[i...] * 2",
              tensors_in=[dict(arg_name="src", mtype="LN_MEM_NONE", dtype="TL_FLOAT", static=True)],
              tensors_out=[dict(arg_name="dst", mtype="LN_MEM_NONE", dims="src->dims", dtype="src->dtype")])  # fmt: skip
    (tmp_path / "table.json").write_text(json.dumps(op))
    create = "create(| dst=x | dtype=TL_FLOAT, dims=[2], data=[1, 2], from_file={}); relu(src=x | dst=y |);"
    with plugins.load(tmp_path / "table.json"):
        for file in ("false", "true"):
            (tmp_path / "n.net").write_text(f"{create.format(file)} table(src=x | dst=z |);")
            run = lightnet.compile(model.load(tmp_path / "n.net"), "cpu")
            np.testing.assert_array_equal(run({"x": np.float32([3, 4])})["z"], [6, 8])
        (tmp_path / "n.net").write_text(f"{create.format('true')} table(src=y | dst=z |);")
        with pytest.raises(LightNetError, match="should be static, but `y` is not"):
            lightnet.compile(model.load(tmp_path / "n.net"), "cpu")


# -- C of one's own --------------------------------------------------------------------------------------------------


def made(**members):
    return op_of(op_class(**members), case("f32", src=(3, 4)))


def test_a_run_that_calls_is_the_graph_of_its_calls():
    """Several calls, a branch and a loop on what is known, an in-place write."""
    run = """
        tl_tensor_lrelu(src, dst, slope);
        for (int i = 0; i < 2; i++)
            if (src->dims[0] == 3)
                tl_tensor_elew(dst, src, dst, TL_SUM);
            else
                tl_tensor_elew(dst, src, dst, TL_MUL);"""
    op, (x,) = op_of(op_class(run=run, params=[number("slope", "float")]), case("f32", src=(3, 4), slope=0.5))
    want = np.where(x >= 0, x, x * np.float32(0.5)) + x + x
    np.testing.assert_array_equal(op.evaluate([x])[0], want)
    ops, values = op.decomposition()
    assert [inner.name for inner in ops] == ["ln.lrelu", "ln.elew", "ln.elew"] and values == [ops[-1].results[0]]


@pytest.mark.parametrize("mode", ["TL_NEAREST", "TL_LINEAR"])
def test_a_function_of_the_same_meaning_is_the_op_by_its_name(mode):
    """Upstream's upsample calls the function of resize."""
    op, _ = op_of(classes()["upsample_cpu"], case("f32", src=(2, 3), mode=mode, scales=(2, 3)))
    ((inner,), _) = op.decomposed()
    assert inner.name == "ln.upsample" and inner.mode == mode


def test_a_call_with_numbers_of_its_own_is_not_the_op_by_its_name():
    slope = [number("negslope", "float")]
    members = dict(optype="lrelu", replace=True, params=slope, run="tl_tensor_lrelu(src, dst, 0.5);")
    op, (x,) = op_of(op_class(**members), case("f32", src=(3, 4), negslope=0.25))
    np.testing.assert_array_equal(op.evaluate([x])[0], np.where(x >= 0, x, x / 2))


def test_a_run_that_calls_a_convolution_is_that_convolution(tmp_path):
    d = {"optype": "my_conv", "author": "me", "arch": "none",
         "tensors_in": [{"arg_name": n, "mtype": "LN_MEM_NONE"} for n in ("image", "kernel", "shift")],
         "tensors_out": [{"arg_name": "out", "mtype": "LN_MEM_NONE", "dtype": "image->dtype", "ndim": 4, "custom":
                          "out_dims = (int[]){image->dims[0], kernel->dims[0], image->dims[2] - 2, image->dims[3] - 2};"}], "params": [],
         "run": 'tl_tensor_conv2d(image, kernel, shift, out, 1, (int[]){3, 3}, (int[]){1, 1}, (int[]){1, 1}, (int[]){0, 0, 0, 0}, "NOTSET");'}  # fmt: skip
    (tmp_path / "d.json").write_text(json.dumps(d))
    (tmp_path / "n.net").write_text("".join(f"create(| dst={n} | dtype=TL_FLOAT, dims={dims}, data=[0], ran=[-1, 1], from_file=false);" for n, dims in
                                            (("x", [1, 3, 8, 9]), ("w", [4, 3, 3, 3]), ("b", [4]))) + "my_conv(image=x, kernel=w, shift=b | out=y |);")  # fmt: skip
    with plugins.load(tmp_path / "d.json"):
        values = [lightnet.compile(model.load(tmp_path / "n.net"), t)()["y"] for t in ("cpu", "none")]
        module = planned(tmp_path / "n.net", "cpu", "default")
    np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)
    assert "ln.conv2d" in module and "ln.my_conv" not in module


@pytest.mark.parametrize(
    "run, want",
    [
        ("float *x = src->data, *y = dst->data; for (int i = 0; i < src->len; i++) y[i] = x[i] > 0 ? sqrt(x[i]) : -x[i] / 2;", lambda x: np.where(x > 0, np.sqrt(np.abs(x)), -x / 2)),
        ("float *x = src->data; float *y = dst->data; float t; for (int i = 0; i < dst->len; ++i) { t = x[i] * 2; y[i] = t + i; }", lambda x: x * 2 + np.arange(12, dtype=np.float32).reshape(3, 4)),
        ("memmove(dst->data, src->data, tl_tensor_size(src));", lambda x: x), ("float *y = dst->data; for (int i = 0; i < 12; i++) y[i] = src->ndim;", lambda x: np.full_like(x, 2)),
        ("float *x = src->data, *y = dst->data; int i = 2; for (int i = 0; i < src->len; i++) y[i] = x[i]; for (int j = 0; j < dst->len; j++) y[j] = y[j] * i;", lambda x: x * 2),
        ("float *x = src->data, *y = dst->data; for (int i = 0; i < src->len; i++) y[i] = fmax(x[i], 0);", None),
    ],
)  # fmt: skip
def test_loops_over_elements(run, want):
    if want is None:
        with pytest.raises(ConstraintError, match="expected a number"):
            made(run=run)
        return
    op, (x,) = made(run=run)
    for got in (op.evaluate([x])[0], run_kernel(CpuKernelOp.wrap([op]), [x])[0]):
        np.testing.assert_allclose(got, want(x), rtol=1e-6)


@pytest.mark.parametrize(
    "run, message",
    [
        ("tl_tensor_lrelu(src, src, 1);", "never writes the output 'dst'"), ("tl_tensor_lrelu(dst, dst, 1);", "'dst' is read before it is written"),
        ("if (0) tl_tensor_lrelu(src, dst, 1);", "never writes the output 'dst'"), ("tl_tensor_lrelu(src->data, dst, 1);", "expected a tensor"),
        ("float *x = src->data, *y = dst->data; float s = 0; for (int i = 0; i < src->len; i++) { s += x[i]; y[i] = s; }", "no turn of a loop over elements knows of another"),
        ("float *x = src->data, *y = dst->data; for (int i = 1; i < src->len; i++) y[i] = x[i];", "a loop over elements is"),
        ("float *x = src->data, *y = dst->data; for (int i = 0; i < src->len; i++) y[i] = y[i - 1] + x[i];", "is read before it is written"),
        ("float *x = src->data; for (int i = 0; i < src->len; i++) x[i] = 0;", "is an input, and is written"),
        ("float *x = src->data, *y = dst->data; for (int i = 0; i < src->len; i++) if (x[i] > 0) y[i] = 0;", "no branch can be taken"),
        ("double *x = src->data; float *y = dst->data; for (int i = 0; i < 3; i++) y[i] = x[i];", "is of float, and is taken for double"),
        ("float *x = src->data, *y = dst->data; for (int i = 0; i < 99; i++) y[i] = x[i];", "does not fit"),
        ("tl_tensor_lrelu(src, dst, 1); float *y = dst->data; for (int i = 0; i < 3; i++) y[i] = 0;", "make two ops of it"),
        ("for (int i = 0; i < 1000000; i++) ; tl_tensor_lrelu(src, dst, 1);", "more than 200000 steps"), ("tl_tensor_maxreduce(src, dst, NULL, 0);", "which it computes as, gives"),
        ("tl_tensor_lrelu(src, dst, 1 / 0);", "a division by zero"), ("memset(dst->data, 0, 4);", "memset writes 4 bytes"),
    ],
)  # fmt: skip
def test_runs_that_are_refused(run, message):
    """At the op, with a note of the place in the description."""
    with pytest.raises(ConstraintError) as caught:
        made(run=run)
    assert message in caught.value.message
    assert caught.value.notes and caught.value.notes[0][0].file == "t.json"


def test_offsets_of_views():
    """`calc_offset` in C: what the owner's offset is added to."""
    row = [
        {
            "arg_name": "dst",
            "mtype": "LN_MEM_NONE",
            "dtype": "src->dtype",
            "ndim": 1,
            "owner": "src_name",
            "custom": "dst_dims = ln_clone(&src->dims[1], sizeof(int));",
        }
    ]
    offset = "if (k < 0) return te->offset; return src_entry->offset + k * src->dims[1] * tl_size_of(src->dtype);"
    cls = op_class(tensors_out=row, run=None, params=[number("k")], calc_offset=offset)
    op, (x,) = op_of(cls, case("f32", src=(3, 4), k=2))
    assert list(op.views()) == [(0, 0, 32)]
    np.testing.assert_array_equal(op.evaluate([x])[0], x[2])
    for k, message in ((3, "does not lie inside"), (-1, "'dst_entry->offset' is not known")):
        with pytest.raises(ConstraintError, match=message):
            op_of(cls, case("f32", src=(3, 4), k=k))
    made_before = "return src_entry->offset + k * dst->len * tl_size_of(dst->dtype);"
    cls = op_class(tensors_out=row, run=None, params=[number("k")], calc_offset=made_before)
    for k in (0, 1, 2):  # in rows of the output, which is not as long as its owner
        op, (x,) = op_of(cls, case("f32", src=(3, 4), k=k))
        assert list(op.views()) == [(0, 0, 16 * k)]
        for got in (op.evaluate([x])[0], run_kernel(CpuKernelOp.wrap([op]), [x])[0]):
            np.testing.assert_array_equal(got, x[k])
    for name in ("dst_dims", "dst_ndim", "dst_dtype"):  # what makes an output is no name where it is there
        with pytest.raises(LightNetError, match=f"unknown name '{name}'"):
            op_class(tensors_out=row, run=None, calc_offset=f"{name} = 0; return src_entry->offset;")


def test_small_things_of_upstream(tmp_path):
    """`#` comments, one op without an array around it, the later of two equal keys (of JSON), `priv->name` in `run`."""
    d = json.dumps(
        entry(
            extra_privs=[{"type": "int", "name": "two", "value": "src->ndim"}], run="dst[i...] = src[i...] * priv->two"
        )
    )
    text = "# a comment\n" + d.replace('"author":', '"author": "nobody", # the later one counts\n"author":')
    ((cls,),) = load_descriptions(read_description(text, "t.json")).families.values()
    assert cls.described.author != "nobody"
    op, (x,) = op_of(cls, case("f32", src=(3, 4)))
    np.testing.assert_array_equal(op.evaluate([x])[0], x * 2)


def test_code_sees_params_that_code_changed():
    """As in upstream's one function: what `custom` writes into a param, later code and `run` see."""
    members = {"params": [{"arg_name": "pad", "ptype": "LN_PARAM_ARRAY_NUMBER", "realtype": "int", "custom": "int total = 0; for (int i = 0; i < pad_entry->array_len; i++) { pad[i] = pad[i] + 1; total += pad[i]; }"}],
               "tensors_out": [{"arg_name": "dst", "mtype": "LN_MEM_NONE", "dtype": "src->dtype", "ndim": "src->ndim", "custom": "dst_dims = (int[]){src->dims[0], pad[1]};"}],
               "custom": 'ln_opck_satisfy_msg(total < 20, "total is %d", total);', "run": "tl_tensor_slice(src, dst, 1, 0, pad[1]);"}  # fmt: skip
    cls = op_class(**members)
    op, (x,) = op_of(cls, case("f32", src=(3, 4), pad=(5, 1)))
    np.testing.assert_array_equal(op.evaluate([x])[0], x[:, :2])
    with pytest.raises(ConstraintError, match="total is 22"):
        op_of(cls, case("f32", src=(3, 4), pad=(18, 2)))


def test_prints(tmp_path, capfd, monkeypatch):
    """`print` and `fprint` by the C of their descriptions: nothing of it is run as C."""
    monkeypatch.chdir(tmp_path)
    net = tmp_path / "n.net"
    net.write_text("create(| dst=x | dtype=TL_INT32, dims=[2], data=[1, 2], ran=[0, 0], from_file=false);"
                   'print_cpu(src=x | | msg="x %s:"); fprint_cpu(src=x | | msg="to a file", file="out.txt");')  # fmt: skip
    with plugins.load(DATA / "op" / "print.op", DATA / "op" / "fprint.op", replace=True):
        lightnet.compile(model.load(net))()
    assert capfd.readouterr().out == "x %s:\n[1 2]\n" and (tmp_path / "out.txt").read_text() == "to a file\n[1 2]\n"


# -- mutants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count, seed", [(110, 3), pytest.param(5000, 4, marks=pytest.mark.slow)])
def test_mutants(count, seed):
    counts = Counter(upstream_mutants.outcome(name, text) for name, text in upstream_mutants.mutants(count, seed))
    assert counts["refused"] > count / 2 and counts["loaded"] > count / 20


def test_private_members_have_the_types_of_their_declarations():
    """Numbers are cut to their types, pointers give memory a type, handles of libraries take any pointer; `run` has what `custom` gave."""
    kinds = {
        "z": "int",
        "f": "float",
        "d": "const double",
        "p": "int *",
        "s": "const char *",
        "n": "size_t",
        "h": "cudnnTensorDescriptor_t",
    }
    custom = """
        priv->z = src->dims[0] * 3 / 2.0;
        priv->f = 0.1;
        priv->d = priv->f;
        priv->p = ln_alloc(2 * sizeof(int));
        priv->p[1] = priv->z;
        priv->s = "text";
        priv->n = priv->p[0] + priv->p[1];
        priv->h = ln_alloc(8);
        int *q = &priv->z;
        *q += 1;
        if (priv->z != 5 || priv->n != 4 || priv->d == 0.1)
            ln_msg_error("z %d, n %d, d %f", priv->z, priv->n, priv->d);
    """
    run = "tl_tensor_lrelu(src, dst, priv->z * 0.5f);"
    op, (x,) = made(custom=custom, run=run, extra_privs=[{"type": t, "name": n} for n, t in kinds.items()])
    np.testing.assert_allclose(op.evaluate([x])[0], np.where(x > 0, x, x * np.float32(2.5)), rtol=1e-6)


@pytest.mark.parametrize("type, code, text", [
    ("int *", "priv->z = 3;", "3 is no int *"), ("handle_t", "priv->z = 3;", "3 is no void *"), ("int", "priv->z = ln_alloc(4);", "memory of ln_alloc"),
    ("int", "priv->y = 3;", "'priv' has no member 'y'"), ("int", "int *q = &priv->z; q[1] = 2;", "'z' of priv is one value, and no array"),
])  # fmt: skip
def test_private_members_refuse_what_their_types_do(type, code, text):
    with pytest.raises((LightNetError, ConstraintError)) as caught:
        made(custom=code, run="tl_tensor_relu(src, dst);", extra_privs=[{"type": type, "name": "z"}])
    assert text in str(caught.value)
