"""Which texts of descriptions are expressions and which are code, by the functions that they call."""

from __future__ import annotations

import json

import pytest

from lightnet.ir import constants
from lightnet_descriptions import ccode, code
from lightnet_descriptions.c import library
from lightnet_descriptions.helpers import HELPERS
from lightnet_descriptions.reader import DescribedValue, read_description

#: What an expression may call, beside what a check is said by.
OF_EXPRESSIONS = {*constants.FUNCTIONS, *constants.ARRAY_FUNCTIONS, *HELPERS, "tl_size_of"}
CHECKS = {"ln_opck_satisfy", "ln_opck_satisfy_msg"}
#: Names that upstream may have and we do not know: what they begin with says that they are of its C.
OF_UPSTREAM = {"ln_no_such", "tl_no_such", "LN_NO_SUCH", "cudnnNoSuch", "ln_opck_no_such"}
#: Names that are nobody's, which is said where they stand: they need not be read as C for that.
UNKNOWN = {"no_such", "lnx", "tlx", "LNX", "cudann", "_ln_x", "cudn"}


def described(text: str) -> DescribedValue:
    return read_description(json.dumps({"custom": text}), "d.json").objects[""].value["custom"]


@pytest.mark.parametrize("text", ["{}(x, 1)", "x > 1;\n{}(x)", '{}(x, 1), "message"'])
def test_a_call_of_what_only_code_has_makes_code(text: str) -> None:
    """Of every function that the C of descriptions has, and of others of upstream's that it has not."""
    names = {*library.FUNCTIONS, *code.FUNCTIONS, *OF_EXPRESSIONS, *OF_UPSTREAM, *UNKNOWN} - CHECKS
    assert {"memmove", "sprintf", "ln_alloc", "abs", "ln_streq", "tl_size_of"} <= names
    read_as_code = {name for name in names if ccode.statements(described(text.format(name))) is None}
    assert read_as_code == names - OF_EXPRESSIONS - UNKNOWN


def test_checks_are_constraints() -> None:
    for name in CHECKS:
        assert ccode.statements(described(f'{name}(x > 1, "message");')) is not None, name
