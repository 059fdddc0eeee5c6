"""Layouts and parameters' values: tokens at their limits, the shapes that each is for, and how values are read, told apart and printed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerType, StringAttr
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.layout import PLAIN, Layout, LayoutAttr, byte_size, with_layout
from lightnet.ir.types import ParamAttr, TensorSpec, format_param_value, parse_param_value, tensor_type
from lightnet.runtime.dtypes import BY_NAME

#: Texts that name a layout, the largest of each number, and texts that name none: one more, what cannot go together, what is not canonical.
TOKENS = ["plain", "c2", "c1024", "h1", "h64", "h0x1", "h64x63", "c16h1", "c16h2x0", "nhwc1", "nhwc1024", "o32", "o1024", "o32i16", "o32i1024", "t32i16", "d16", "n64",
          "v8", "w4o32", "w2o32", "s1x1nhwc1", "s2x3nhwc4", "s99x99nhwc1024"]  # fmt: skip
NO_TOKENS = ["", "c", "c0", "c1", "c1025", "c9999", "h0", "h65", "h1x65", "h1x1", "c16h0", "nhwc0", "nhwc1025", "o1025", "o32i1025", "o32i0", "t32", "d16i2", "n64i2", "v8i2",
             "w3o32", "w4d16", "w4t32i16", "w4o32i16", "w4n8", "s0x1nhwc1", "s100x1nhwc1", "s1x1nhwc1025", "s1x1", "x", "C16", "c16 "]  # fmt: skip


def test_tokens() -> None:
    for token in TOKENS:
        assert str(Layout.parse(token)) == token
    for token in NO_TOKENS:
        with pytest.raises(LightNetError, match=f"^error: '{token}' is no layout: "):
            Layout.parse(token)


#: A layout, shapes that it is for, and shapes that it is not for.
SHAPES: list[tuple[str, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    ("plain", [(), (2,), (1, 2, 3, 4, 5)], []), ("c4", [(1, 3, 2, 2), (0, 0, 0, 0)], [(1, 3, 2), (1, 3, 2, 2, 1), ()]), ("nhwc4", [(1, 3, 2, 2)], [(3, 2, 2)]),
    ("n8", [(3, 4)], [(3,), (3, 4, 1)]), ("v8", [(3,), (3, 1), (3, 1, 1)], [(), (3, 2), (1, 3), (3, 1, 2)]), ("d8", [(4, 1, 3, 3)], [(4, 2, 3, 3), (4, 1, 3)]),
    ("o8", [(4, 2, 5, 5)], [(4, 2, 5), (4, 2)]), ("o8i2", [(4, 2, 5, 5)], [(4,)]), ("t8i2", [(4, 2, 5, 5)], [(4, 2)]),
    ("w4o8", [(4, 2, 3, 3), (4, 2, 3, 1), (4, 2, 1, 3)], [(4, 2, 1, 1), (4, 2, 3, 2), (4, 2, 5, 5), (4, 2, 3)]),
    ("s2x1nhwc4", [(4, 2, 2, 1), (4, 2, 3, 3)], [(4, 2, 1, 1), (4, 2, 2), (4, 2, 2, 0)]),
]  # fmt: skip


def test_shapes() -> None:
    for token, right, wrong in SHAPES:
        layout = Layout.parse(token)
        for dims in right:
            assert layout.fits(dims)
            made = with_layout(tensor_type(TensorSpec(dims, BY_NAME["f32"])), layout)
            assert byte_size(made) == layout.size(TensorSpec(dims, BY_NAME["f32"]))
        for dims in wrong:
            spec = TensorSpec(dims, BY_NAME["f32"])
            plain = tensor_type(spec)
            assert not layout.fits(dims)
            with pytest.raises(LightNetError, match=f"layout '{token}' is not for {spec}".replace("(", r"\(")):
                with_layout(plain, layout)
            with pytest.raises(LightNetError, match=f"layout '{token}' is not for {spec}"):
                byte_size(type(plain)(plain.element_type, plain.get_shape(), LayoutAttr(layout)))
    with pytest.raises(VerifyException, match=r"^the plain layout is the one without an encoding$"):
        LayoutAttr(PLAIN)


#: The text of a value, the value, and how it is printed (None: as it was written).
VALUES = [
    ("null", None, None), ('"a"', "a", None), ("true", True, None), ("false", False, None), ("7", 7, None), ("-7", -7, None), ("1.5", 1.5, None), ("-inf", -math.inf, None),
    ("inf", math.inf, None), ("1.0e+30", 1e30, None), ("[]", (), None), ("[1, 2]", (1, 2), None), ("[1, 2.5]", (1, 2.5), None), ('["a"]', ("a",), None),
    ("[true, false]", (True, False), None), ('"\\09\\22"', '\t"', '"\\t\\""'), ("-0.0", -0.0, None), ("[-0.0, 1]", (-0.0, 1), None),
]  # fmt: skip
ONE_KIND = "the elements of an array must be all numbers, all strings or all bools"
WRONG = [
    ('[1, "a"]', ONE_KIND),
    ("[1, true]", ONE_KIND),
    ("[null]", ONE_KIND),
    ("[null, 1]", ONE_KIND),
    ('["a", null]', ONE_KIND),
    ('[true, "a"]', ONE_KIND),
    ("--1", "a number has one sign"),
]


def test_values_of_parameters() -> None:
    for text, value, printed in VALUES:
        found = parse_param_value(Parser(make_context(), text))
        assert repr(found) == repr(value)
        assert format_param_value(found) == (printed or text)
        assert ParamAttr(found) == ParamAttr(value) and hash(ParamAttr(found)) == hash(ParamAttr(value))
    assert math.isnan(parse_param_value(Parser(make_context(), "nan"))) and format_param_value(math.nan) == "nan"
    for text, message in WRONG:
        with pytest.raises(ParseError, match=message):
            parse_param_value(Parser(make_context(), text))


def test_parameters_are_told_apart() -> None:
    assert (
        ParamAttr(0.0) != ParamAttr(-0.0)
        and ParamAttr((1.0, 0.0)) != ParamAttr((1.0, -0.0))
        and ParamAttr(-1.0) == ParamAttr(-1.0)
    )
    assert ParamAttr("a") != StringAttr("a") and ParamAttr(1) != IntegerType(1)
    plain = ParamAttr([np.float32(0.5), np.int64(3)]).data
    assert (
        plain == (0.5, 3) and [type(x) for x in plain] == [float, int] and type(ParamAttr(np.float64(2)).data) is float
    )
