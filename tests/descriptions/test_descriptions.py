"""Operator descriptions: the four example ops against PyTorch and NumPy, the meaning of each member, and the way out and back."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from kernels import op_of
from test_ops import run_kernel

import lightnet
from lightnet.backends.expressions import bind_op
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.constraints import ConstraintError
from lightnet.ir.context import make_context
from lightnet.ir.expr import parse_expr
from lightnet.ir.notation import parse
from lightnet.ir.op import case
from lightnet.ir.parser import parse_mlir
from lightnet.ir.verify import verify_module
from lightnet.plugins import loaded
from lightnet_descriptions import export, load_description_file, load_descriptions, operators, pages, sampling
from lightnet_descriptions.reader import read_description
from lightnet_trust.interpreter.notation import evaluate_definition

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "described" / "ops.op"
MINE = {c.optype: c for ops in load_description_file(str(FILE)).families.values() for c in ops}
BUILT_IN = optypes()


def entry(**members) -> dict:
    """A description of an elementwise op `t`, with other members in place of some."""
    base = {
        "optype": "t", "author": "me", "arch": "none",
        "tensors_in": [{"arg_name": "src", "mtype": "LN_MEM_NONE"}],
        "tensors_out": [{"arg_name": "dst", "mtype": "LN_MEM_NONE", "dims": "src->dims", "dtype": "src->dtype"}],
        "params": [], "run": "dst[i...] = src[i...]",
    }  # fmt: skip
    return {k: v for k, v in (base | members).items() if v is not None}


def source(**members) -> dict:
    return {"arg_name": "src", "mtype": "LN_MEM_NONE", **members}


def result(**members) -> dict:
    return {"arg_name": "dst", "mtype": "LN_MEM_NONE", "dims": "src->dims", "dtype": "src->dtype", **members}


def number(name: str, realtype: str = "int", **members) -> dict:
    return {"arg_name": name, "ptype": "LN_PARAM_NUMBER", "realtype": realtype, **members}


def op_class(**members):
    (cls,) = operators.load_operators(read_description(json.dumps({"ops": [entry(**members)]}), "t.json"))
    return cls


def made(cls, **fields):
    return op_of(cls, case("f32", **fields))


def refused(match: str, **members) -> LightNetError:
    with pytest.raises(LightNetError, match=match) as caught:
        op_class(**members)
    assert caught.value.loc is not None and caught.value.loc.file == "t.json" and caught.value.loc.line
    return caught.value


# -- the four ops ----------------------------------------------------------------------------------------------------

CASES = [
    ("my_gelu", {"src": (3, 5)}), ("my_gelu", {"src": (1, 17, 3)}), ("my_gelu", {"src": ((7,), "f64")}), ("my_gelu", {"src": ()}),
    ("my_instance_norm", {"src": (2, 3, 5, 7), "scale": (3,), "bias": (3,)}),
    ("my_instance_norm", {"src": (1, 5, 9), "scale": (5,), "bias": (5,), "epsilon": 0.25}),
    ("my_pixel_shuffle", {"src": (1, 8, 3, 5), "r": 2}), ("my_pixel_shuffle", {"src": (2, 9, 1, 7), "r": 3}),
    ("my_pixel_shuffle", {"src": (1, 3, 2, 2), "r": 1}),
    ("my_depthwise", {"src": (1, 3, 7, 6), "weight": (3, 3, 3), "bias": (3,), "stride": (2, 1), "padding": (1, 1)}),
    ("my_depthwise", {"src": (2, 5, 8, 33), "weight": (5, 1, 4), "bias": (5,), "padding": (0, 2)}),
]  # fmt: skip


def numpy_of(name: str, params: dict, src: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """The four ops in float64, written apart from their descriptions."""
    x, others = src.astype(np.float64), [a.astype(np.float64) for a in rest]
    if name == "my_gelu":
        from math import erf, sqrt

        return np.vectorize(lambda v: 0.5 * v * (1 + erf(v / sqrt(2))), otypes=[float])(x)
    if name == "my_instance_norm":
        axes = tuple(range(2, x.ndim))
        shape = (1, -1, *(1 for _ in axes))
        normal = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + params.get("epsilon", 1e-5))
        return normal * others[0].reshape(shape) + others[1].reshape(shape)
    if name == "my_pixel_shuffle":
        (n, c, h, w), r = x.shape, params["r"]
        return x.reshape(n, c // r**2, r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // r**2, h * r, w * r)
    weight, bias = others
    (sy, sx), (py, px) = params.get("stride", (1, 1)), params.get("padding", (0, 0))
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[1:], axis=(2, 3))[:, :, ::sy, ::sx]
    return np.einsum("ncyxrq,crq->ncyx", windows, weight) + bias[:, None, None]


@pytest.mark.parametrize("name, fields", CASES)
def test_example_ops_against_numpy(name, fields):
    """In the interpreter and as machine code."""
    op, arrays = made(MINE[name], **fields)
    params = {p.name: getattr(op, p.name) for p in op.schema.params}
    want = numpy_of(name, params, *arrays)
    for got in (op.evaluate(arrays)[0], run_kernel(CpuKernelOp.wrap([op]), arrays)[0]):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name, fields", CASES)
def test_example_ops_against_pytorch(name, fields):
    torch = pytest.importorskip("torch")
    op, arrays = made(MINE[name], **fields)
    x, *rest = (torch.from_numpy(a) for a in arrays)
    f = torch.nn.functional
    want = {
        "my_gelu": lambda: f.gelu(x),
        "my_instance_norm": lambda: f.instance_norm(x, weight=rest[0], bias=rest[1], eps=op.epsilon),
        "my_pixel_shuffle": lambda: f.pixel_shuffle(x, op.r),
        "my_depthwise": lambda: f.conv2d(x, rest[0][:, None], rest[1], op.stride, op.padding, groups=x.shape[1]),
    }[name]().numpy()
    np.testing.assert_allclose(run_kernel(CpuKernelOp.wrap([op]), arrays)[0], want, rtol=2e-5, atol=2e-6)


def test_network_of_described_ops():
    """examples/described/ops.net on both targets, and planned as upstream's."""
    with loaded([str(FILE)]):
        model = lightnet.load(str(FILE.with_suffix(".net")))
        outputs = [lightnet.compile(model, target, plan=plan)()["large"]
                   for target, plan in (("none", "default"), ("cpu", "default"), ("cpu", "upstream"))]  # fmt: skip
    assert outputs[0].shape == (1, 1, 10, 14) and np.ptp(outputs[0]) > 0.1
    for got in outputs[1:]:
        np.testing.assert_allclose(got, outputs[0], rtol=1e-5, atol=1e-6)


def test_each_of_the_four_is_short():
    """Under 25 lines a description, what they inherit included."""
    blocks = {b.partition(" ")[0]: b.count("\n") for b in FILE.read_text().split("\n\n") if not b.startswith("//")}
    assert len(blocks) == 5
    assert all(count + blocks["my_unary"] < 25 for count in blocks.values())


def test_command_line(capsys, tmp_path):
    args = ["--load", str(FILE), str(FILE.with_suffix(".net"))]
    assert main(["-t", "none", *args]) == 0 and main(args) == 0
    assert main(["-c", "-o", str(tmp_path / "x.json"), *args]) == 0
    assert "my_depthwise" in (tmp_path / "x.json").read_text()


# -- like built-in ops -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MINE)
def test_text_and_docs(name):
    """An example that verifies and prints as it stands; the docstring names author and file."""
    cls = MINE[name]
    text = cls.__doc__ or ""
    assert "LightNet" in text and str(FILE) in text
    code = text.partition("```mlir\n")[2].partition("```")[0]
    first, _, rest = code.partition("\n")
    declared, body = first.removeprefix("// "), rest
    if not first.startswith("// "):  # the operands are all of the result's type
        declared, body = (
            ", ".join(f"{v} : {code.rpartition(' : ')[2].strip()}" for v in re.findall(r"%\w+", code)[1:]),
            code,
        )
    with loaded([str(FILE)]):
        ctx = make_context()
        module = parse_mlir(ctx, f"func.func @main({declared}) {{\n{body}func.return\n}}", "example")
        verify_module(module, ctx)
        assert str(parse_mlir(make_context(), str(module), "again")) == str(module)


@pytest.mark.parametrize("name", MINE)
def test_definition_in_numpy(name):
    for k, sample in enumerate(MINE[name].samples()):
        op, arrays = op_of(MINE[name], sample, k)
        names, (out,) = op.arg_names()
        np.testing.assert_array_equal(
            evaluate_definition(bind_op(op), dict(zip(names, arrays)))[out], op.reference(*arrays)[0]
        )


@pytest.mark.parametrize(
    "name, fields, label, text",
    [
        ("my_pixel_shuffle", {"src": (1, 6, 3, 3), "r": 2}, "src.check", "6 channels are no multiple of 4"),
        ("my_pixel_shuffle", {"src": (1, 6, 3), "r": 2}, "src.rank", "should be a 4-dimensional tensor"),
        ("my_pixel_shuffle", {"src": (1, 6, 3, 3), "r": 0}, "r.ge", "`r` param's value should be >= 1, but gets a 0"),
        ("my_pixel_shuffle", {"src": (1, 6, 3, 3), "r": "x"}, "r.type", "LN_PARAM_NUMBER, but gets a LN_PARAM_STRING"),
        ("my_pixel_shuffle", {"src": (1, 6, 3, 3)}, "r.missing", "needs a `r` param"),
        ("my_gelu", {"src": ((3,), "i32")}, "src.dtype", "`src`'s dtype should be f32 or f64, but gets a i32"),
        ("my_instance_norm", {"src": (1, 3, 4), "scale": (3,), "bias": (2,)}, "bias.length", "2 against 3"),
        ("my_instance_norm", {"src": (1, 3), "scale": (3,), "bias": (3,)}, "src.rank", "at least 3 dimensions"),
        ("my_depthwise", {"src": (1, 3, 4, 4), "weight": (3, 3, 3), "bias": (3,), "stride": (1,)}, "stride.length", "needs 2 elements"),
        ("my_depthwise", {"src": (1, 3, 4, 4), "weight": ((3, 3, 3), "f64"), "bias": (3,)}, "weight.same-type", "same data type"),
        ("my_depthwise", {"src": (1, 3, 1, 4), "weight": (3, 3, 3), "bias": (3,)}, "result-dims", "no negative dimensions"),
    ],
)  # fmt: skip
def test_constraints(name, fields, label, text):
    with pytest.raises(ConstraintError, match=text.replace("[", r"\[")) as caught:
        made(MINE[name], **fields)
    assert caught.value.label == f"{name}.{label}"


# -- members ---------------------------------------------------------------------------------------------------------


def test_param_types():
    """Every ptype, from_func, choices, bounds that are expressions, lengths, defaults."""
    params = [
        number("axis", lt="src->ndim", ge=0), number("x", "double", ne=0, default="-inf"),
        {"arg_name": "mode", "ptype": "LN_PARAM_STRING", "realtype": "int", "from_func": "tl_resize_type_from_str"},
        {"arg_name": "word", "ptype": "LN_PARAM_STRING", "choices": ["a", "b"], "default": "a"},
        {"arg_name": "flag", "ptype": "LN_PARAM_BOOL", "check": "flag == P || true, \"%d\", flag".replace("P", "flag_entry->value_bool")},
        {"arg_name": "nums", "ptype": "LN_PARAM_ARRAY_NUMBER", "realtype": "float", "len": "src->ndim", "gt": -1},
        {"arg_name": "words", "ptype": "LN_PARAM_ARRAY_STRING", "choices": ["a", "b"], "default": ["b", "b"]},
        {"arg_name": "flags", "ptype": "LN_PARAM_ARRAY_BOOL", "len": 2},
        {"arg_name": "nothing", "ptype": "LN_PARAM_NULL"},
    ]  # fmt: skip
    cls = op_class(params=params)
    good = {"src": (2, 3), "axis": 1, "mode": "TL_LINEAR", "flag": True, "nums": (0.5, 1), "flags": (True, False)}
    op, _ = made(cls, **good)
    assert (op.x, op.word, op.words, op.nothing) == (-np.inf, "a", ("b", "b"), None)
    for wrong, label in (
        ({"axis": 2}, "axis.lt"), ({"mode": "TL_CUBIC"}, "mode.value"), ({"words": ("a", "c")}, "words.value"),
        ({"nums": (1,)}, "nums.length"), ({"nums": (1, -1)}, "nums.gt"), ({"flags": (True,)}, "flags.length"), ({"x": 0}, "x.ne"),
    ):  # fmt: skip
        with pytest.raises(ConstraintError) as caught:
            made(cls, **good | wrong)
        assert caught.value.label == f"t.{label}"


@pytest.mark.parametrize(
    "text, holds",
    [
        ("src->dims[0] == 2 && src->ndim == 2", True), ("src->len == 6 || nonsense_free(1)", None), ("src->len != 6", False),
        ("src->dtype == TL_FLOAT", True), ('src->dtype == "TL_FLOAT"', True), ("src->dtype != TL_DOUBLE && src_entry->dtype == TL_FLOAT", True),
        ("src_entry->mtype == LN_MEM_NONE", True), ("src_entry->isstatic", None), ("src->data[0] > 0", None),
        ('ln_streq(s, "x")', True), ("dt == TL_INT8", True), ('dt == "TL_INT8"', True), ('ln_streq(dt, "TL_INT16")', False),
        ("n_entry->value_int == 3", True), ("n_entry->value_double == 3", None), ("a_entry->array_len == 2", True),
        ("a_entry->value_array_float[1] == 1.5", True), ("n_entry->type == LN_PARAM_NUMBER", True), ("a == {0.5, 1.5}", True),
        ("a == [0.5, 2]", False), ("tensors_in_n == 1 && tensors_out_n == 1 && params_n == 4", True),
        ("ln_output_dim_conv(9, 3, 2, 2, 1) == 5", True), ("ln_compute_output_dim(9, 4, 2, 3) == 5", True), ("ln_output_dim_deconv(5, 3, 2, 2, 0, 1) == 9", True),
        ("ln_compute_length(2, src->dims) == 6", True), ("ln_next_multiple_power2(13, 8) == 16", True), ("fabs(-1.5) == 1.5", True),
        ("op_arg->arch == op_arg->arch", True), ('ln_streq(op_arg->optype, "t")', True), ("op_arg->name == n", None),
        ("half == 1 && priv->half == 1", True), ("twice == 2", True), ("sizeof(src->dtype) == 4", True), ("n = 3", None), ("nn == 3", None),
        ("tl_tensor_issameshape(src, src)", True), ("src->dims[axis", None), ("for (;;) {}", None), ("src->shape[0] == 1", None),
    ],
)  # fmt: skip
def test_snippets(text, holds):
    """What upstream's snippets may refer to; None where it has no meaning in a constraint."""
    params = [
        number("n"), {"arg_name": "s", "ptype": "LN_PARAM_STRING"},
        {"arg_name": "dt", "ptype": "LN_PARAM_STRING", "realtype": "int", "from_func": "tl_dtype_from_str"},
        {"arg_name": "a", "ptype": "LN_PARAM_ARRAY_NUMBER", "realtype": "float"},
    ]  # fmt: skip
    privs = [{"type": "int", "name": "half", "value": "n / 2"}, {"type": "int", "name": "twice", "value": "half * 2"}]
    members = {"params": params, "extra_privs": privs, "checks": [{"check": text, "label": "it"}]}
    fields = {"src": (2, 3), "n": 3, "s": "x", "dt": "TL_INT8", "a": (0.5, 1.5)}
    if holds is None:
        refused(".", **members)
    elif holds:
        made(op_class(**members), **fields)
    else:
        with pytest.raises(ConstraintError) as caught:
            made(op_class(**members), **fields)
        assert caught.value.label == "t.it"


def test_checks_and_messages():
    """`check`, `checks`, `custom`, `cleanup` and `post_run`, in upstream's order, with upstream's text."""
    cls = op_class(
        tensors_in=[source(check="src->len > 0", custom='ln_opck_satisfy_msg(src->ndim < 4, "rank %d", src->ndim); src->ndim > 0')],
        tensors_out=[result(custom='dst->len < 100, "large"', cleanup="dst_dims[0] != 7")],
        params=[number("n", checks=["n != 3", {"check": 'n != 4, "no %d in %s", n, "t"', "label": "four"}])],
        custom="n != 5", post_run="dst->ndim != 3 ;", check="n != 6",
    )  # fmt: skip
    assert list(cls.checks) == ["src.check", "src.custom", "src.custom-2", "n.check", "four", "check", "custom"]
    wrong = {
        "src.check": ((0, 2), 1), "src.custom": ((1, 1, 1, 1), 1), "src.custom-2": ((), 1), "n.check": ((1,), 3), "four": ((1,), 4),
        "check": ((1,), 6), "custom": ((1,), 5), "dst.custom": ((10, 10), 1), "dst.cleanup": ((7,), 1), "post-run": ((1, 1, 1), 1),
    }  # fmt: skip
    texts = {"src.custom": 'should satisfy: "rank 4"', "four": 'should satisfy: "no 4 in t"', "dst.custom": '"large"'}
    for label, (dims, n) in wrong.items():
        with pytest.raises(ConstraintError, match=texts.get(label, "should satisfy")) as caught:
            made(cls, src=dims, n=n)
        assert caught.value.label == f"t.{label}"
    made(cls, src=(2, 2), n=1)


def test_a_constraint_that_cannot_be_computed():
    """A subscript outside of its array, or a string beside a number, is an error of that constraint."""
    for check in ("src->dims[7] > 1", "src->dtype > 1", 'src->ndim > 9, "%d", src->dims[3]'):
        with pytest.raises(ConstraintError) as caught:
            made(op_class(check=check), src=(2,))
        assert caught.value.label == "t.check" and caught.value.message.startswith("t: `t` should satisfy")
    with pytest.raises(ConstraintError, match=r"bound \"src\.dims\[2\]\": subscript 2") as caught:
        made(op_class(params=[number("n", lt="src->dims[2]")]), src=(2,), n=0)
    assert caught.value.label == "t.n.lt"
    with pytest.raises(ConstraintError, match='is no number: "f32"'):
        made(op_class(params=[number("n", lt="src->dtype")]), src=(2,), n=0)


def test_result_types():
    """dims as a string, an array, from another tensor, or the length of a vector; later results refer to earlier ones."""
    second = {"arg_name": "arg", "mtype": "LN_MEM_NONE", "len": "dst->len * 2", "dtype": "TL_INT32", "ndim": 1}
    cls = op_class(
        tensors_out=[result(dims=["src->dims[0] / 2", 3], dtype="TL_DOUBLE", len=6), second],
        run="dst[i, j] = f64(src[i]); arg[i] = 1",
    )
    op, arrays = made(cls, src=(4,))
    assert [str(s) for s in op.result_specs] == ["tensor<2x3xf64>", "tensor<12xi32>"]
    assert op.evaluate(arrays)[1].tolist() == [1] * 12
    like = op_class(tensors_out=[{"arg_name": "dst", "mtype": "LN_MEM_NONE", "sameshape": "src", "sametype": "src"}])
    assert made(like, src=(2, 3))[0].result_specs[0].dims == (2, 3)
    with pytest.raises(ConstraintError, match="the dims of its result"):
        made(op_class(tensors_out=[result(dims="src->ndim")]), src=(2,))
    with pytest.raises(ConstraintError, match=r"dst\.len == 7"):
        made(op_class(tensors_out=[result(len=7)]), src=(2,))


def test_variable_length():
    cls = op_class(
        variable_length=True, tensors_in=[source(arg_name="src1", sametype="src1", sameshape="src1")],
        tensors_out=[result(dims="src1->dims", dtype="src1->dtype")], run="dst[i...] = src1[i...] + src2[i...]",
    )  # fmt: skip
    op, arrays = made(cls, src=[(3,), (3,)])
    np.testing.assert_array_equal(op.evaluate(arrays)[0], arrays[0] + arrays[1])
    with pytest.raises(ConstraintError, match="same shape"):
        made(cls, src=[(3,), (4,)])


def test_private_constants_and_enumerators_in_run():
    cls = op_class(
        params=[{"arg_name": "op", "ptype": "LN_PARAM_STRING", "from_func": "tl_elew_op_from_str"}],
        extra_privs=[{"type": "double *", "name": "taps", "value": "{0.5, src->dims[0]}"}],
        run="dst[i] = op == TL_SUM ? src[i] + taps[0] : src[i] * taps[1]",
    )
    for name, want in (("TL_SUM", lambda x: x + np.float32(0.5)), ("TL_MUL", lambda x: x * np.float32(3))):
        op, arrays = made(cls, src=(3,), op=name)
        np.testing.assert_array_equal(op.evaluate(arrays)[0], want(arrays[0]))


def test_view_of_an_owner():
    """`owner` and `calc_offset`: no copy once planned, and the bytes from there on."""
    cls = op_class(
        run=None, params=[number("row", ge=0, lt="src->dims[0]")],
        tensors_out=[result(dims=["src->dims[1]"], owner="src_name")],
        calc_offset="row * src->dims[1] * tl_size_of(src->dtype)",
    )  # fmt: skip
    op, arrays = made(cls, src=(3, 5), row=2)
    assert op.is_move and list(op.views()) == [(0, 0, 40)]
    np.testing.assert_array_equal(op.evaluate(arrays)[0], arrays[0][2])
    np.testing.assert_array_equal(run_kernel(CpuKernelOp.wrap([op]), arrays)[0], arrays[0][2])
    whole = op_class(run=None, tensors_out=[result(dims=["src->len"], owner="src")])
    assert list(made(whole, src=(2, 3))[0].views()) == [(0, 0, 0)]
    outside = op_class(run=None, tensors_out=[result(owner="src")], calc_offset="4")
    with pytest.raises(ConstraintError, match="does not lie inside of its owner"):
        made(outside, src=(3,))
    odd = op_class(run=None, tensors_out=[result(dims=[1], owner="src")], calc_offset="2")
    with pytest.raises(ConstraintError, match="no whole number of elements"):
        made(odd, src=(3,))
    refused("leave 'run' out", tensors_out=[result(owner="src")], calc_offset="0")
    for run in (None, "dst[i...] = src[i...]", "tl_tensor_lrelu(src, dst, 1);"):
        refused("outputs with an 'owner'", calc_offset="0", run=run)


def test_written_over_its_owner():
    """`owner` with a `run` writes in place: later readers of the input see the result, as upstream's do."""
    text = json.dumps({"ops": [entry(tensors_out=[result(owner="src")], run="dst[i...] = src[i...] + 1")]})
    cls = operators.load_operators(read_description(text, "t.json"))[0]
    assert cls.schema.results[0].overwrites and not made(cls, src=(3,))[0].is_move
    with pytest.raises(ConstraintError, match="written over `src`"):
        made(op_class(tensors_out=[result(owner="src", dims=["src->len"])], run="dst[i] = 1"), src=(2, 3))


def test_in_place_op_in_a_network(tmp_path):
    """Later readers of the owner see the result; the plan clobbers nothing that is read before."""
    op = entry(tensors_out=[result(owner="src")], run="dst[i...] = src[i...] + 1")
    (tmp_path / "t.json").write_text(json.dumps({"ops": [op]}))
    create = 'create( | dst=x | dtype="TL_FLOAT", dims=[3], ran=[0, 0], data=[1, 2, 3], from_file=false);\n'
    (tmp_path / "t.net").write_text(create + "relu(src=x | dst=a |);\nt(src=x | dst=y |);\nrelu(src=x | dst=b |);\n")
    with loaded([str(tmp_path / "t.json")]):
        model = lightnet.load(str(tmp_path / "t.net"))
        for target in ("none", "cpu"):
            outputs = lightnet.compile(model, target)()
            assert (outputs["a"].tolist(), outputs["b"].tolist()) == ([1, 2, 3], [2, 3, 4])


def test_kernel_of_the_page():
    """The kernel that docs/describe-an-op.md shows is a cumulative sum."""
    page = (ROOT / "docs" / "describe-an-op.md").read_text("utf-8")
    (text,) = [b.partition("```")[0] for b in page.split("```js\n") if "my_scan" in b]
    (cls,) = operators.load_operators(read_description(f"{{ops: [{text}]}}", "page"))
    op, arrays = made(cls, src=(7,))
    for got in (op.evaluate(arrays), run_kernel(CpuKernelOp.wrap([op]), arrays)):
        np.testing.assert_allclose(got[0], np.cumsum(arrays[0]), rtol=1e-6)


def test_static_run_is_computed_at_load(tmp_path):
    """A table of an op without inputs stands in `ln.once` after `hoist`; on both targets it is there."""
    table = entry(
        optype="table", tensors_in=[], tensors_out=[result(dims=["n"], dtype="TL_FLOAT", static=True)],
        params=[number("n", gt=0)], run=None, static_run="dst[i] = f32(i * i)",
    )  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"ops": [table, entry(run="dst[i...] = src[i...] + 1")]}))
    (tmp_path / "t.net").write_text("table( | dst=x | n=4);\nt(src=x | dst=y |);\n")
    with loaded([str(tmp_path / "t.json")]):
        model = lightnet.load(str(tmp_path / "t.net"))
        for target in ("none", "cpu"):
            executable = lightnet.compile(model, target)
            assert executable()["y"].tolist() == [1, 2, 5, 10]
        assert "ln.once" in str(executable.planned)


def test_architecture_binds_to_a_target(tmp_path):
    """An op of another architecture is refused by name, with its place in the network; one without `run`, too."""
    ops = [
        entry(optype="t_cpu", arch="cpu", tensors_in=[source(mtype="LN_MEM_CPU")], tensors_out=[result(mtype="LN_MEM_CPU")]),
        entry(optype="t_dpu", arch="dpu", tensors_in=[source(mtype="LN_MEM_DPU")], tensors_out=[result(mtype="LN_MEM_CPU")]),
        entry(optype="empty", run=""),
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"ops": ops}))
    create = 'create( | dst=x | dtype="TL_FLOAT", dims=[3], ran=[0, 0], data=[1, 2, 3], from_file=false);\n'
    with loaded([str(tmp_path / "t.json")]):
        for optype, problem in (("t_cpu", None), ("t_dpu", "it is an op of the target 'dpu'"), ("empty", "no 'run'")):
            net = tmp_path / f"{optype}.net"
            net.write_text(create + f"{optype}(src=x | dst=y |);\n")
            if problem is None:
                assert lightnet.compile(lightnet.load(str(net)), "cpu")()["y"].tolist() == [1, 2, 3]
                continue
            with pytest.raises(LightNetError, match=problem) as caught:
                lightnet.compile(lightnet.load(str(net)), "cpu")
            assert f"optype {optype}" in caught.value.message and caught.value.loc.line == 2
        with pytest.raises(LightNetError, match="'run' not defined"):
            lightnet.compile(lightnet.load(str(tmp_path / "empty.net")), "none")()


KERNEL = """
func.func @kernel(%src: memref<${src->len}xf32>, %dst: memref<${dst->len}x${dst->dtype}>, %w: memref<${4 * src->len}xi8>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant ${src->len} : index
  %half = arith.constant ${k} : f32
  scf.for %i = %zero to %n step %one {
    %x = memref.load %src[%i] : memref<${src->len}xf32>
    %y = arith.mulf %x, %half : f32
    memref.store %y, %dst[%i] : memref<${dst->len}xf32>
  }
  func.return
}
"""


def test_inline_kernel():
    """On both targets, with a workspace; wrong signatures and ops are errors that name the place in the description."""
    cls = op_class(run=KERNEL, params=[number("k", "float")], samples=[{"src": "3x5xf32", "k": 0.5}])
    op, arrays = made(cls, src=(3, 7), k=0.5)
    assert op.has_builder and op.workspace_bytes() == 84
    for got in (op.evaluate(arrays), run_kernel(CpuKernelOp.wrap([op]), arrays)):
        np.testing.assert_array_equal(got[0], arrays[0] * np.float32(0.5))
    for old, new, match in (
        ("%w: memref<${4 * src->len}xi8>", "%w: memref<4xf64>", "should take"), ("step %one", "step %n2", "kernel"),
        ("arith.mulf", "arith.nonsense", "nonsense"), ("memref.store %y, %dst[%i]", "memref.store %y, %src[%i, %i]", "kernel"),
        ("step %one", "step %zero", "positive"), ("func.return", "func.call @f() : () -> ()\nfunc.return", "func.call"),
        ("${k}", "${kk}", "unknown name 'kk'"), ("${k}", "${k", "without a '}'"), ("${k}", "${k +}", "expected an expression"),
    ):  # fmt: skip
        error = refused(
            match,
            run=KERNEL.replace(old, new, 1),
            params=[number("k", "float")],
            samples=[{"src": "3x5xf32", "k": 0.5}],
        )
        assert error.loc.file == "t.json"
    with pytest.raises(LightNetError, match=r"out of bounds|outside"):
        far = op_class(run=KERNEL.replace("%dst[%i]", "%dst[%n]"), params=[number("k", "float")])
        op, arrays = made(far, src=(3,), k=1)
        op.evaluate(arrays)


def test_an_inline_kernel_computes_in_its_workspace():
    """Behind the tensors, in both engines: each element of the result is what the kernel left there."""
    through = (
        "    %seven = arith.constant 7 : i8\n    memref.store %seven, %w[%i] : memref<${4 * src->len}xi8>\n"
        "    %left = memref.load %w[%i] : memref<${4 * src->len}xi8>\n    %more = arith.sitofp %left : i8 to f32\n"
        "    %y = arith.addf %x, %more : f32\n"
    )
    cls = op_class(run=KERNEL.replace("    %y = arith.mulf %x, %half : f32\n", through), params=[number("k", "float")])
    op, arrays = made(cls, src=(3, 7), k=0.5)
    for got in (op.evaluate(arrays), run_kernel(CpuKernelOp.wrap([op]), arrays)):
        np.testing.assert_array_equal(got[0], arrays[0] + np.float32(7))


def test_definition_that_does_not_fit_names_both_places():
    """An index that may fall outside shows when an op is made: at the op, with a note at the description."""
    cls = op_class(run="dst[i] = src[i + 1]")
    with pytest.raises(ConstraintError, match="its definition does not fit tensor<3xf32>") as caught:
        made(cls, src=(3,))
    ((place, _),) = caught.value.notes
    assert place.file == "t.json" and caught.value.label == "t.run"
    refused("the sample does not satisfy the description", run="dst[i] = src[i + 1]", samples=[{"src": [3]}])


def test_autogen_false_is_kept_and_skipped(tmp_path, capsys):
    text = json.dumps({"ops": [entry(autogen=False, optype="no"), entry()]})
    assert [c.optype for c in operators.load_operators(read_description(text, "t.json"))] == ["t"]
    (tmp_path / "t.json").write_text(text)
    assert main(["describe", str(tmp_path / "t.json")]) == 0
    assert [d["optype"] for d in json.loads(capsys.readouterr().out)["ops"]] == ["no", "t"]


@pytest.mark.parametrize(
    "members, match",
    [
        ({"optype": "t_gpu", "arch": "cpu"}, "ends with '_cpu'"), ({"arch": "x y"}, "identifier"), ({"author": None}, "needs a member 'author'"),
        ({"tensors_in": [source(mtype="LN_MEM_CUDA")]}, "has no tensors in 'LN_MEM_CUDA'"), ({"rum": "x"}, "did you mean run"),
        ({"tensors_in": [source(), source()]}, "is taken by the one at"), ({"tensors_in": [source(arg_name="operands")]}, "taken by the classes"),
        ({"tensors_in": [source(ndim=9)]}, "from 0 to 8"), ({"tensors_in": [source(sametype="nope")]}, "unknown input tensor"),
        ({"tensors_out": [result(dims=None)]}, "but is null"), ({"tensors_out": [result(owner="nope")]}, "unknown input tensor"),
        ({"params": [{"arg_name": "n", "ptype": "LN_PARAM_NUMBER"}]}, "needs a 'realtype'"), ({"params": [number("n", default="x")]}, "the default"),
        ({"params": [{"arg_name": "n", "ptype": "LN_PARAM_STRING", "gt": 1}]}, "is for numbers"), ({"params": [number("n", len=2)]}, "for arrays"),
        ({"params": [{"arg_name": "n", "ptype": "LN_PARAM_STRING", "from_func": "strlen"}]}, "unknown conversion"),
        ({"run": "for (i = 0; i < n; i++) dst[i] = src[i];"}, "unknown name 'i'"),
        ({"run": "dst[i...] = tanh2(src[i...])"}, "unknown function 'tanh2'"), ({"run": "dst[i...] = scr[i...]"}, "did you mean src"),
        ({"run": "src[i...] = 1"}, "is an input"), ({"run": "x[i...] = src[i...]"}, "never writes the output 'dst'"),
        ({"custom": "char *s = system(4);"}, "unknown function 'system'"), ({"extra_privs": [{"type": "int"}]}, "needs a member 'name'"),
        ({"cleanup": "true"}, "no member 'cleanup'"), ({"run": "builtin(nope)"}, "unknown op 'nope'"), ({"run": "builtin(conv2d)"}, "takes the inputs"),
        ({"samples": [{"src": "3xf33"}]}, "is written"), ({"samples": [{}]}, "needs a member 'src'"),
        ({"calc_offset": "views(slice)"}, "takes the inputs|reads the param"), ({"checks": ["1 +"]}, "expected an expression"),
    ],
)  # fmt: skip
def test_malformed(members, match):
    assert "\n  " in refused(match, **members).render()


def test_optype_twice():
    with pytest.raises(LightNetError, match=r"described twice; the first stands at t.json:1:\d+"):
        operators.load_operators(read_description(json.dumps({"ops": [entry(), entry()]}), "t.json"))


def test_op_of_a_built_in_one():
    """`builtin(X)`: sorting, which index notation does not say, under another name and with a bound of one's own."""
    d = export.describe(BUILT_IN["sort1d"])
    members = [d["tensors_in"][0] | {"len": 5}]
    cls = op_class(**d | {"optype": "sort_five", "tensors_in": members, "samples": None})
    op, arrays = made(cls, src_key=(5,), dir="TL_SORT_DIR_ASCENDING")
    np.testing.assert_array_equal(run_kernel(CpuKernelOp.wrap([op]), arrays)[0], np.sort(arrays[0]))
    with pytest.raises(ConstraintError, match=r"src_key\.len == 5"):
        made(cls, src_key=(4,), dir="TL_SORT_DIR_ASCENDING")


def test_params_that_an_op_of_a_built_in_name_needs():
    """Without code of its own it computes as the built-in op, if it has the params that a network cannot leave out
    (they have no default, and are in no result's type); one without these, or with others, computes nobody knows what.
    """
    kept = ("arg_name", "ptype", "realtype", "from_func", "choices")

    def stands(cls, names: list[str]) -> bool:
        schema, known = cls.schema, {p["arg_name"]: {k: p[k] for k in kept if k in p} for p in params}
        ins = schema.operand_names(2 if schema.variadic_operand else len(schema.operands))
        outs = schema.result_names(len(schema.results))
        made = op_class(
            optype=f"{cls.optype}_x",
            arch="x",
            tensors_in=[source(arg_name=n) for n in ins],
            tensors_out=[result(arg_name=n, dims="[1]", dtype="TL_FLOAT") for n in outs],
            params=[known.get(n, number(n)) for n in names],
            run=None,
        )
        return made.stands_for is cls

    for cls in BUILT_IN.values():
        params = export.describe(cls)["params"]
        needed = [p["arg_name"] for p in params if not p.keys() & {"default", "from_result"}]
        assert stands(cls, needed) and not (needed and stands(cls, needed[1:])), cls.optype
        if cls.optype in ("relu", "conv2d", "cast"):
            every = [p["arg_name"] for p in params]
            assert stands(cls, every) and not stands(cls, [*every, "another"]), cls.optype


# -- out and back ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=5, share=0.2)
@pytest.mark.parametrize("form", export.FORMATS)
@pytest.mark.parametrize("optype", BUILT_IN)
def test_built_in_ops_come_back(optype, form):
    """Schema, constraints, definition and shape rule of every op; and each of its test cases gives the same results."""
    cls = BUILT_IN[optype]
    text = export.description_text([export.describe(cls)], form)
    (back,) = operators.load_operators(read_description(text, f"x.{form}"))
    assert back.schema == cls.schema and dict(back.checks) == dict(cls.checks)
    if isinstance(cls.definition, str):
        assert str(parse(back.definition)) == str(parse(cls.definition))
    assert (back.is_move, back.is_host, back.has_builder, back.unique) == (
        cls.is_move,
        cls.is_host,
        cls.has_builder,
        cls.unique,
    )
    assert export.describe(back) == export.describe(cls)
    if form == "op":
        return
    for seed, sample in enumerate(cls.samples()):
        op, arrays = op_of(cls, sample, seed)
        again = back.build_unchecked(list(op.operands), op.param_values(), op.result_specs)
        again.verify_()
        assert list(again.views()) == list(op.views()) and again.flops() == op.flops()
        for got, want in zip(again.evaluate(arrays), op.evaluate(arrays), strict=True):
            close(got, want)


def test_what_is_there_before_a_run_is_said_by_its_member():
    """`static_run` alone says it, as upstream's descriptions do, which have no member `static`: an op computes in it just where its results
    are static."""
    texts = [export.describe(cls) for cls in BUILT_IN.values()]
    for text in texts:
        for made in text["tensors_out"]:
            made.pop("static", None)
    found = operators.load_operators(read_description(export.description_text(texts), "x.json"))
    for back in found:
        static = [r.static for r in back.schema.results]
        assert static == [r.static for r in BUILT_IN[back.optype].schema.results], back.optype
    assert {back.optype for back in found if any(r.static for r in back.schema.results)} >= {"create", "arange"}


def close(got: np.ndarray, want: np.ndarray) -> None:
    """Equal, or of floats within the rounding of a sum in f32, or of one short float."""
    assert got.dtype == want.dtype
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
    else:
        tolerance = 1e-2 if got.dtype.itemsize == 2 else 1e-4
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", export.FORMATS)
def test_described_ops_come_back(form):
    """A description is kept as it was, notes and all."""
    wanted = [
        entry(_note={"by": "me"}, doc='Two\nlines with `ticks` and "quotes".'),
        *map(export.describe, MINE.values()),
    ]
    text = export.description_text(wanted, form)
    assert list(map(export.describe, operators.load_operators(read_description(text, "x")))) == wanted


def test_automatic_test_cases():
    """Ops without samples get test cases from their constraints."""
    for name, cls in MINE.items():
        d = {k: v for k, v in export.describe(cls).items() if k != "samples"}
        (bare,) = operators.load_operators(read_description(export.description_text([d]), "x.json"))
        assert bare.samples(), name
        for sample in bare.samples():
            op, arrays = op_of(bare, sample)
            assert np.isfinite(op.evaluate(arrays)[0]).all()
        assert pages.page_example(bare)


def test_equations_of_test_cases_are_made_true():
    """The left side becomes what the right one is where it can be set, else the right one becomes what the left is."""
    settable = ("src.dims[0]", "b.dims[1]", "v[1]", "n")
    numbers = [number("n"), {**number("v"), "ptype": "LN_PARAM_ARRAY_NUMBER", "len": 2}]
    inputs = [source(check="src->ndim == 2"), source(arg_name="b", check="b->ndim == 2")]
    for left, right in permutations((*settable, "3 + 4"), 2):
        cls = op_class(tensors_in=inputs, params=numbers, checks=[f"{left} == {right}"])
        changed = 0
        for seed in range(6):
            guess = sampling._Guess(cls, random.Random(seed))
            guess.dims = {"src": [2, 3], "b": [4, 5]}
            guess.params = {"n": 8, "v": (6, 9)}
            before = [guess.evaluate(parse_expr(side)) for side in (left, right)]
            guess.mend()
            after = [guess.evaluate(parse_expr(side)) for side in (left, right)]
            kept = before[left in settable]
            assert after == [kept, kept], (left, right)
            changed += before != after
        assert changed


def test_lengths_of_arrays_in_test_cases():
    """A number, an expression of dims and earlier parameters, or the rank; none where no such array would do."""
    for given, want in (
        (2, 2), ("3", 3), ("src->ndim", 4), ("src->ndim - 2", 2), ("src->dims[0] * n", 15), ("n - 4", 0), ("n + 16", 0),
        ("n - 3", 0), ("n / 0", 0), (None, 4),
    ):  # fmt: skip
        array = {**number("v"), "ptype": "LN_PARAM_ARRAY_NUMBER", **({} if given is None else {"len": given})}
        cls = op_class(tensors_in=[source(check="src->ndim == 4")], params=[number("n"), array])
        guess = sampling._Guess(cls, random.Random(0))
        guess.dims, guess.params = {"src": [5, 2, 3, 1]}, {"n": 3}
        assert guess.length(cls.schema.params[1]) == len(guess.param(cls.schema.params[1])) == want, given


@pytest.mark.parametrize("dtype", ["TL_FLOAT", "TL_DOUBLE", "TL_INT32", "TL_UINT8", "TL_FLOAT16", "TL_BOOL"])
def test_automatic_test_cases_have_the_types_that_others_have(dtype):
    """Of another input, of one that has it of another, and of several inputs that have it of the first."""

    def like(name: str, other: str, **members) -> dict:
        return source(arg_name=name, sameshape="src", sametype=other, **members)

    for others, names in (
        ([like("b", "src"), like("c", "b")], ("src", "b", "c")),
        ([like("b", "src", variable_length=True)], ("src", "b1", "b2")),
    ):
        run = f"dst[i...] = {' + '.join(f'{name}[i...]' for name in names)}"
        cls = op_class(tensors_in=[source(dtype=dtype), *others], run=run)
        assert cls.samples(), names
        for sample in cls.samples():
            op, _ = op_of(cls, sample)
            assert [spec.dtype.tl for spec in op.operand_specs] == [dtype] * 3


def test_describe_command(capsys, tmp_path):
    assert main(["describe", "--all", "-o", str(tmp_path / "all.json")]) == 0
    assert len(load_description_file(str(tmp_path / "all.json")).families.popitem()[1]) == len(BUILT_IN)
    assert main(["describe", str(FILE), "-o", str(tmp_path / "x.op")]) == 0
    assert (tmp_path / "x.op").read_text("utf-8").splitlines()[0].endswith("{") and main(["describe", str(FILE)]) == 0
    assert len(json.loads(capsys.readouterr().out)["ops"]) == 4
    assert main(["describe", "my_gelu", "--load", str(tmp_path / "x.op")]) == 0
    assert json.loads(capsys.readouterr().out)["ops"][0]["optype"] == "my_gelu"
    assert main(["describe", "slize"]) == 1 and "did you mean slice" in capsys.readouterr().err
    assert main(["describe"]) == 1


# -- speed -----------------------------------------------------------------------------------------------------------


def test_loading_ops_costs_so_many_calls_each():
    """An op takes some 5,000 calls of Python functions (1.8 ms), however many there are: a count, as time depends on others."""

    def calls(copies: int) -> int:
        text = "".join(FILE.read_text().replace("my_", f"my{copies}x{i}_") for i in range(copies))
        count = 0

        def counted(frame, event, arg) -> None:
            nonlocal count
            count += event == "call"

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            (found,) = load_descriptions(read_description(text, "x.op")).families.values()
        finally:
            sys.setprofile(before)
        assert len(found) == 4 * copies
        return count

    calls(1)  # imports, and what is remembered
    few, many = calls(2), calls(20)
    assert many < 11 * few and many < 80 * 6000, (few, many)


def test_kinds_of_files_are_told_apart():
    """`lightnet_descriptions` imports nothing until a file is loaded."""
    code = "import sys, lightnet_descriptions; assert not [m for m in sys.modules if m.startswith('xdsl')]"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_private_member_without_a_value_is_kept():
    """Document 002's form: what code would fill in. It is exported, and no name of an expression."""
    private = [{"type": "float *", "name": "buffer"}, {"type": "int", "name": "k", "value": 2}]
    (cls,) = operators.load_operators(
        read_description(json.dumps({"ops": [entry(extra_privs=private, run="dst[i...] = src[i...] * k")]}), "t.json")
    )
    assert export.describe(cls)["extra_privs"] == private
    assert "unknown name 'buffer'" in refused("buffer", extra_privs=private, check="buffer > 0").render()


@pytest.mark.parametrize("before", ["", "\\n  ", "\\n\\n    "], ids=["first line", "second line", "third line"])
def test_a_mistake_that_an_op_shows_is_noted_at_its_place(before: str) -> None:
    """What a definition says of its operands is wrong or right for an op: the error is the op's, with a note of line and column in
    the description, where its string goes on over several lines, too."""
    members = entry(run="X", tensors_out=[result(dims="[src->dims[0], 2]")])
    text = json.dumps({"ops": [members]}, indent=1).replace('"X"', f'"{before}dst[i, j] = src[i, j] + src[j, i]"')
    (cls,) = operators.load_operators(read_description(text, "t.json"))
    with pytest.raises(ConstraintError) as caught:
        op_of(cls, case("f32", src=(3, 2)))
    ((loc, what),) = caught.value.notes
    line, found = next((i, t) for i, t in enumerate(text.splitlines(), 1) if '"run"' in t)
    assert what == "here, in its description" and (loc.file, loc.line) == ("t.json", line)
    assert loc.col == found.index("= src[i, j]") + 1
