"""Upstream's descriptions: its own ops in its style against our built-in ones, and what to write instead of its C code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernels import op_of
from test_descriptions import made, number, op_class, refused, result, source
from test_ops import run_kernel

from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.constraints import ConstraintError
from lightnet.ir.op import case
from lightnet_descriptions import load_description_file

FILE = Path(__file__).parents[1] / "data" / "upstream_style.op"
OPS = {c.optype: c for ops in load_description_file(str(FILE)).families.values() for c in ops}
BUILT_IN = optypes()
CONV = {"src": (2, 4, 7, 6), "weight": (6, 2, 3, 3), "bias": (6,), "group": 2, "size": (3, 3), "stride": (1, 2), "padding": (1, 0, 1, 1),
        "dilation": (2, 1), "autopad": "NOTSET"}  # fmt: skip
CASES = [
    ("slice", {"src": (2, 5, 3), "axis": 1, "start": 2, "len": 2}), ("slice", {"src": (4,), "axis": 0, "start": 0, "len": 4}),
    ("conv2d", CONV), ("elew", {"src1": (2, 3), "src2": (2, 3), "elew_op": "TL_SUB"}),
    ("elew", {"src1": ((4,), "i32"), "src2": ((4,), "i32"), "elew_op": "TL_DIV"}),
    ("arange", {"dtype": "TL_INT16", "start": 0.5, "stop": 7, "step": 2}), ("arange", {"dtype": "TL_DOUBLE", "start": 1, "stop": 2, "step": 0.25}),
    ("sort1d_by_key", {"src_key": (6,), "src_val": ((6,), "i32"), "dir": "TL_SORT_DIR_DESCENDING"}),
    ("detect_yolov3", {"feature": (1, 14, 3, 2), "anchors": (2, 2), "img_width": 60, "img_height": 40}),
    ("transpose", {"src": (2, 3, 4), "axes": (2, 0, 1)}),
]  # fmt: skip


@pytest.mark.parametrize("name, fields", CASES)
def test_upstream_ops(name, fields):
    op, arrays = op_of(OPS[f"u_{name}"], case("f32", **fields))
    want = op_of(BUILT_IN[name], case("f32", **fields))[0].evaluate(arrays)
    for got in (op.evaluate(arrays), run_kernel(CpuKernelOp.wrap([op]), arrays)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def test_upstream_concat_and_batchnorm():
    op, arrays = made(OPS["u_concat"], src1=(2, 4, 3), src2=(2, 5, 3), axis=1)
    np.testing.assert_array_equal(op.evaluate(arrays)[0], np.concatenate(arrays, 1))
    op, arrays = made(OPS["u_batchnorm"], src=(2, 3, 4, 5), scale=(3,), offset=(3,), mean=(3,), var=(3,), epsilon=0.5)
    x, scale, offset, mean, var = (a.reshape(1, -1, 1, 1) if a.ndim == 1 else a for a in arrays)
    want = scale * (x - mean) / np.sqrt(var + np.float32(0.5)) + offset
    np.testing.assert_allclose(op.evaluate(arrays)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name, fields, text",
    [
        ("slice", {"src": (2, 5), "axis": 2, "start": 0, "len": 1}, "`axis` param's value should be < 2, but gets a 2"),
        ("slice", {"src": (2, 5), "axis": 1, "start": 3, "len": 3}, "len + start <= src.dims[axis]"),
        ("conv2d", CONV | {"autopad": "FOO"}, "unsupported 'autopad' FOO"), ("conv2d", CONV | {"bias": (5,)}, "bias wants 6"),
        ("elew", {"src1": (2, 3), "src2": (2, 4), "elew_op": "TL_SUB"}, "should have the same shape"),
        ("arange", {"dtype": "TL_HALF", "start": 0, "stop": 1, "step": 1}, "TL_HALF"),
        ("concat", {"src1": (2, 4), "src2": (3, 5), "axis": 1}, "other dims differ"),
    ],
)  # fmt: skip
def test_upstream_checks(name, fields, text):
    with pytest.raises(ConstraintError) as caught:
        made(OPS[f"u_{name}"], **fields)
    assert text in str(caught.value)


def output(**members) -> list[dict]:
    return [{"arg_name": "dst", "mtype": "LN_MEM_NONE", "dtype": "src->dtype", **members}]


#: C that is outside of the language -> what the error says to write instead.
C_CODE = [
    ({"tensors_out": output(ndim=1, custom="dst_dim = ln_clone(src->dims, 4);")}, "did you mean dst_ndim, dst_dims"),
    ({"tensors_out": output(dims="ln_clone(src->dims, 4)")}, "`dims` is an expression for an array"),
    ({"tensors_out": output(dims="(int *)src->dims")}, "expected ')'"), ({"tensors_out": output(dims="(int[])src->dims")}, "expected '{' behind (int[])"),
    ({"custom": "while (src->ndim > 3) { }"}, "a loop is `for"), ({"custom": "switch (src->ndim) { }"}, "write `if` and `else`"),
    ({"custom": "goto end;"}, "write `if` and `else`"), ({"custom": "x[0] = 3;"}, "unknown name 'x'"),
    ({"custom": "int f(int x) { return x; }"}, "a function is not declared here"), ({"custom": "struct s x;"}, "`extra_privs` names constants"),
    ({"custom": "int (*f)(int);"}, "only what a table names is called"), ({"custom": "static int x = 1;"}, "leave it out"),
    ({"custom": "int x[2][2];"}, "one row behind the other"), ({"custom": "ln_opck_tensor_mtype_eq(src_entry, LN_MEM_NONE)"}, "the members mtype|expected ';'"),
    ({"check": "(src->ndim & 1) == 0"}, "bitand"), ({"check": "src->ndim == 0x4"}, "decimal"), ({"check": "src->ndim < 4u"}, "no suffix"),
    ({"check": 'src->ndim == 4, "a \\"b\\""'}, "no escapes"), ({"check": 'src->ndim == 4, "%s", src_name'}, "every error names the op"),
    ({"check": "*src->dims == 3"}, "no pointers"), ({"custom": 'op_arg->name == 1'}, "extra_privs"),
    ({"run": "tl_lrelu(src, dst, negslope);"}, "unknown function 'tl_lrelu'"), ({"run": "tl_tensor_lrelu(src, dst);"}, "takes 3 arguments, got 2"),
    ({"run": "tl_tensor_lrelu(src, dst, slope);"}, "unknown name 'slope'"), ({"run": "system(\"ls\");"}, "unknown function 'system'"),
    ({"run": "dst->shape = 1;"}, "'dst' has no member 'shape'"), ({"tensors_out": output(dims="src->dims[axes...]")}, "picks by an array"),
    ({"tensors_out": [result(owner="src")], "run": None, "calc_offset": "return te->ofset;"}, "one for each output|'te' has no member 'ofset'"),
    ({"params": [{"arg_name": "p", "ptype": "LN_PARAM_STRING", "realtype": "int"}]}, "needs a 'from_func'"),
    ({"tensors_out": [result(dims="dst_dims")]}, "unknown name 'dst_dims'"),
    ({"static_run": "double r = rand();", "run": None}, "random contents, which are those of `create`"),
]  # fmt: skip


@pytest.mark.parametrize("members, instead", C_CODE)
def test_c_code_says_what_to_write(members, instead):
    assert any(text in refused(".", **members).message for text in instead.split("|"))


def test_c_spellings_that_are_taken():
    """Comments, `return`, an empty `calc_offset`, arrays of parts."""
    cls = op_class(
        custom="/* a; b */ src->ndim > 0; // the rest", tensors_in=[source(min_ndim=1)], params=[number("k", ge=0, lt="src->dims[0]")],
        tensors_out=[result(owner="src_name", dims="{src->dims[1:src->ndim]}")], run=None,
        calc_offset="return k * ln_compute_length(src->ndim - 1, src->dims[1:src->ndim]) * tl_size_of(src->dtype);",
    )  # fmt: skip
    assert list(cls.checks.values()) == ["src.ndim > 0"]
    op, arrays = made(cls, src=(3, 4), k=2)
    np.testing.assert_array_equal(op.evaluate(arrays)[0], arrays[0][2])
    assert (
        not op_class(tensors_out=[result(owner="src")], run=None, calc_offset="").described.views[0].offset.strip("0")
    )


def test_variable_length_reads_every_input():
    cls = op_class(tensors_in=[source(arg_name="src1")], variable_length=True, run="dst[i...] = src1[i...] + src2[i...]",
                   tensors_out=[result(dims="src1->dims", dtype="src1->dtype")])  # fmt: skip
    made(cls, src=[(2,), (2,)])
    with pytest.raises(ConstraintError, match="never reads `src3`"):
        made(cls, src=[(2,), (2,), (2,)])


@pytest.mark.parametrize(
    "members, match",
    [
        ({"params": [number(f"p{i}") for i in range(1001)]}, "more than 1000 elements"),
        ({"extra_privs": [{"type": "int", "name": f"a{i}", "value": f"a{i - 1} + 1" if i else "1"} for i in range(400)]}, "nested more than"),
        ({"extra_privs": [{"type": "int", "name": f"a{i}", "value": f"a{i - 1} + a{i - 1}" if i else "1"} for i in range(40)]}, "4096 parts"),
    ],
)  # fmt: skip
def test_bounds(members, match):
    refused(match, **members)
