"""JSON IR: reading, refusing, writing. Oracles: upstream's own files, the standard library's JSON parser."""

import json
import sys
from pathlib import Path

import pytest
from counting import calls, ends
from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends import json_ir
from lightnet.frontends.netlist import Netlist, NetOp, NetParam, NetTensor

NETS = Path(__file__).parents[2] / "data" / "nets"
OP = {"name": "a0", "optype": "a", "tensors_in": [], "tensors_out": [], "params": []}


def op(**changes) -> dict:
    """A well-formed operator with some keys changed, or removed where the value is `...`."""
    return {k: v for k, v in {**OP, **changes}.items() if v is not ...}


def text(*ops, **top) -> str:
    return json.dumps({"ops": list(ops), **top})


def refusal(source: str) -> LightNetError:
    with pytest.raises(LightNetError) as e:
        json_ir.read(source, "net.json")
    assert e.value.loc is not None and e.value.loc.file == "net.json"
    return e.value


def contents(ops: list[NetOp]) -> list:
    """All of the operators but their locations."""
    return [(o.name, o.optype, o.tensors_in, o.tensors_out, o.params, o.body and contents(o.body)) for o in ops]


# -- upstream's files -------------------------------------------------------------------------------------------------
FILES = sorted(p for d in ("il2json", "ir", "compiled-cpu") for p in (NETS / d).glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_upstream_file_is_read_and_written(path):
    source = path.read_text()
    net = json_ir.read(source, str(path))
    written = json_ir.write(net)
    assert json.loads(written) == json.loads(source)
    again = json_ir.read(written, str(path))
    assert contents(again.ops) == contents(net.ops) and again.mem_sizes == net.mem_sizes
    if path.parent.name == "il2json":
        assert written == source


def test_planned_file():
    net = json_ir.read((NETS / "compiled-cpu" / "squeezedet.json").read_text(), "s")
    assert net.mem_sizes == [0, 75757921, 0]
    assert net.ops[1].tensors_out == [NetTensor("dst", "conv1_conv_wts", (64, 3, 3, 3), 5750785)]


def test_reading_is_quick():
    """630 kB, 691 operators, of some hundred calls each."""
    source = (NETS / "il2json" / "yolov3_bak.json").read_text()
    with calls(at_most=500_000):
        assert len(json_ir.read(source, "y").ops) == 691


# -- form -------------------------------------------------------------------------------------------------------------
def test_words_are_joined_and_split():
    tensor = {"arg_name": "x", "name": "t", "dims": [2], "offset_h": 1, "offset_l": -1}
    net = json_ir.read(text(op(tensors_out=[tensor]), mem_sizes_h=[0, 3], mem_sizes_l=[5, 4294967295]), "n")
    assert net.ops[0].tensors_out[0].offset == (1 << 32) + 0xFFFFFFFF
    assert net.mem_sizes == [5, (3 << 32) + 0xFFFFFFFF]
    written = json.loads(json_ir.write(net))
    assert written["mem_sizes_h"] == [0, 3] and written["mem_sizes_l"] == [5, -1]
    assert written["ops"][0]["tensors_out"] == [tensor]


def test_kernel_region_and_extra_keys():
    inner = op(name="i", params=[{"arg_name": "p", "value": [1, 2.5]}])
    source = text(
        op(body=[inner, op(name="j", body=[])]),
        op(name="b0", what={"x": [1]}),
        lightnet={"target": "cpu", "é": [1, None]},
    )
    net = json_ir.read(source, "n")
    assert [o.name for o in net.ops[0].body] == ["i", "j"] and net.ops[0].body[1].body == [] and net.ops[1].body is None
    assert net.extra == {"lightnet": {"target": "cpu", "é": [1, None]}}
    again = json_ir.read(json_ir.write(net), "n")
    assert contents(again.ops) == contents(net.ops) and again.extra == net.extra


def test_each_operator_has_the_place_of_its_object():
    i, j, b = (json.dumps(op(name=n)) for n in "ijb")
    source = (
        '{\n "x": 1,\n "ops": [{"name":"a","optype":"t","tensors_in":[],"tensors_out":[],"params":[],\n   "body": ['
    )
    source += f"{i},\n   {j}]}},\n  {b}]}}"
    net = json_ir.read(source, "n")
    assert [o.loc for o in net.ops] == [SourceLoc("n", 3, 10), SourceLoc("n", 6, 3)]
    assert [o.loc for o in net.ops[0].body] == [SourceLoc("n", 4, 13), SourceLoc("n", 5, 4)]


def test_comments():
    source = '// a\n{ /* b\n */ "ops": [ // "c"\n' + json.dumps(op(name="x//y/*z*/")) + "/**/] } // d"
    net = json_ir.read(source, "n")
    assert net.ops[0].name == "x//y/*z*/" and net.ops[0].loc == SourceLoc("n", 4, 1)


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -5, 1.5, 1e-6, -0.0, 2**64 - 1, -(2**63), "", "é\n", [1, 2.5], [True], ["a", "b\\n"], [0]],
)
def test_value_survives(value):
    net = json_ir.read(text(op(params=[{"arg_name": "p", "value": value}])), "n")
    got = net.ops[0].params[0].value
    assert got == (tuple(value) if isinstance(value, list) else value) and repr(got) == repr(
        tuple(value) if isinstance(value, list) else value
    )
    assert repr(json_ir.read(json_ir.write(net), "n").ops[0].params[0].value) == repr(got)


TENSOR = {"arg_name": "x", "name": "t"}
BAD_FORM = {
    "no top object": ("[]", "top object should have an 'ops' item"),
    "no ops": ("{}", "top object should have an 'ops' item"),
    "ops no array": ('{"ops": {}}', "item 'ops' has to be an Array"),
    "op no object": (text(5), "op 0 should be an object, not a number"),
    "no name": (text(op(name=...)), 'op 0 doesn\'t have a "name" key'),
    "no optype": (text(op(optype=...)), "op 'a0' doesn't have a \"optype\" key"),
    "no tensors_in": (text(op(tensors_in=...)), 'doesn\'t have a "tensors_in" key'),
    "no tensors_out": (text(op(tensors_out=...)), 'doesn\'t have a "tensors_out" key'),
    "no params": (text(op(params=...)), 'doesn\'t have a "params" key'),
    "name no string": (text(op(name=7)), '"name" of op 0 should be a string, not a number'),
    "empty name": (text(op(name="")), "is empty"),
    "name with a line end": (text(op(name="a\nb")), "cannot be printed"),
    "name with a surrogate": (text(op(name="a\ud800")), "cannot be printed"),
    "params no array": (text(op(params={})), '"params" of op \'a0\' should be an array, not an object'),
    "tensor no object": (text(op(tensors_in=["x"])), "should be an object, not a string"),
    "tensor without arg_name": (text(op(tensors_in=[{"name": "x"}])), 'doesn\'t have a "arg_name" key'),
    "tensor without name": (text(op(tensors_out=[{"arg_name": "x"}])), 'doesn\'t have a "name" key'),
    "param without value": (text(op(params=[{"arg_name": "x"}])), 'doesn\'t have a "value" key'),
    "param without arg_name": (text(op(params=[{"value": 1}])), 'doesn\'t have a "arg_name" key'),
    "empty array": (text(op(params=[{"arg_name": "x", "value": []}])), "is empty"),
    "mixed array": (text(op(params=[{"arg_name": "x", "value": [1, "a"]}])), "not a mixture"),
    "bool and number": (text(op(params=[{"arg_name": "x", "value": [1, True]}])), "not a mixture"),
    "nested array": (text(op(params=[{"arg_name": "x", "value": [[1]]}])), "may not hold an array"),
    "null in an array": (text(op(params=[{"arg_name": "x", "value": [1, None]}])), "may not hold null"),
    "object as value": (text(op(params=[{"arg_name": "x", "value": {}}])), "may not be an object"),
    "NUL in a string": (text(op(params=[{"arg_name": "x", "value": "a\0"}])), "NUL"),
    "surrogate in a string": (text(op(params=[{"arg_name": "x", "value": ["a", "\ud800"]}])), "surrogate"),
    "equal arguments": (text(op(tensors_in=[TENSOR], params=[{"arg_name": "x", "value": 1}])), "two arguments 'x'"),
    "equal operators": (text(OP, OP), "two operators are named 'a0'"),
    "equal operators in a body": (text(op(body=[OP, OP])), "have the same name"),
    "body no array": (text(op(body=5)), '"body" of op'),
    "dims": (text(op(tensors_in=[{**TENSOR, "dims": [1, -1]}])), "'dims' of tensor 't'"),
    "dims of floats": (text(op(tensors_in=[{**TENSOR, "dims": [1.5]}])), "'dims' of tensor 't'"),
    "half an offset": (text(op(tensors_in=[{**TENSOR, "offset_l": 1}])), "needs 'offset_h' and 'offset_l'"),
    "offset too large": (text(op(tensors_in=[{**TENSOR, "offset_h": 0, "offset_l": 2**32}])), "32-bit"),
    "negative offset": (text(op(tensors_in=[{**TENSOR, "offset_h": -1, "offset_l": 0}])), "negative"),
    "half the sizes": (text(mem_sizes_h=[0]), "needs its partner"),
    "sizes of different length": (text(mem_sizes_h=[0], mem_sizes_l=[0, 1]), "same length"),
    "sizes no array": (text(mem_sizes_h=5, mem_sizes_l=[0, 1]), "array of 32-bit integers"),
    "deep extra": ('{"ops": [], "x": ' + "[" * 101 + "]" * 101 + "}", "deeper than 100"),
    "deep unknown key": (text(op(x=json.loads("[" * 99 + "]" * 99))), "deeper than 100"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FORM)
def test_bad_form(name):
    source, message = BAD_FORM[name]
    assert message in refusal(source).message


GOOD = text(op(params=[{"arg_name": "p", "value": 1}]))
#: What Python's reader calls it from 3.13 on, and we before.
ILLEGAL_COMMA = "illegal trailing comma" if sys.version_info >= (3, 13) else "expected a value"
BAD_TEXT = {
    "empty": ("", "too early"), "blank": (" \n", "too early"), "truncated": (GOOD[:-1], "too early"), "trailing comma": (GOOD[:-1] + ",}", "expected a key"),
    "trailing comma in an array": (GOOD.replace("}]}", "},]}", 1), ILLEGAL_COMMA), "more text": (GOOD + " x", "more text after the end"),
    "two values": (GOOD + GOOD, "more text"), "NaN": (GOOD.replace("1}", "NaN}"), "not valid JSON: NaN"), "Infinity": (GOOD.replace("1}", "-Infinity}"), "Infinity"),
    "1e400": (GOOD.replace("1}", "1e400}"), "too large"), "long integer": (GOOD.replace("1}", "18446744073709551616}"), "64 bits"),
    "very long integer": (GOOD.replace("1}", "9" * 5000 + "}"), "64 bits"), "single quotes": (GOOD.replace('"', "'"), "expected a key"),
    "key without quotes": ("{ops: []}", "expected a key"), "no colon": ('{"ops" []}', "expected ':'"), "line end in a string": ('{"o\nps": []}', "control character"),
    "bad escape": ('{"\\x": []}', "escape"), "open string": ('{"ops', "unterminated string"), "open comment": (GOOD + "/*", "unterminated comment"),
    "deep": ("[" * 100_000, "deeper than 100"), "deep objects": ('{"a":' * 100_000, "deeper than 100"), "NUL": (GOOD + "\0", "NUL"),
    "byte order mark": ("\ufeff" + GOOD, "byte order mark"), "octal": (GOOD.replace("1}", "01}"), "not valid JSON"), "plus": (GOOD.replace("1}", "+1}"), "not valid JSON"),
    "hexadecimal": (GOOD.replace("1}", "0x1}"), "not valid JSON"), "equal keys at the top": ('{"ops": [],\n"ops": []}', 'the key "ops" stands twice'),
    "equal keys": (GOOD.replace('"name"', '"name": "b", "name"'), 'the key "name" stands twice'),
    "equal keys in an unknown part": (text(op(x=1)).replace('"x": 1', '"x": [{"y": 1, "y": 2}]'), 'the key "y" stands twice'),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text(name):
    source, message = BAD_TEXT[name]
    assert message in refusal(source).message


@pytest.mark.parametrize(
    "source, line, col",
    [
        ('{"ops": [\n  {"name": "a",\n   "optype": 5}]}', 3, 14),
        ('{"ops": [\n  {"name": "a",\n   "x": {"y": 1,\n  "y": 2}}]}', 4, 3),
        ('{"ops": [\n  {"name": "a",\n   "x": [1, 99999999999999999999]}]}', 3, 13),
        (
            '{"ops": [\n {"name": "a", "optype": "b", "tensors_in": [], "tensors_out": [],\n "params": [{"arg_name": "p", "value": [1,\n  null]}]}]}',
            4,
            3,
        ),
        ('{"ops": [],\n "ops": []}', 2, 2),
        ('{"ops": [] // é\n /* \n */ x}', 3, 5),
    ],
)
def test_place_of_an_error(source, line, col):
    assert refusal(source).loc == SourceLoc("net.json", line, col)


# -- limits -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "source",
    [
        '{"ops": [], "x": [' + "[]," * 5_000_000 + "1]}",
        '{"ops": [' + "1," * 9_000_000 + "1]}",
        "/**/" * 2_000_000 + GOOD,
        " " * ((1 << 26) + 200),
    ],
    ids=["containers", "commas", "comments", "size"],
)
def test_too_large_is_refused_at_once(source):
    with calls(at_most=5000), ends(), pytest.raises(LightNetError, match="too large"):
        json_ir.read(source, "n")


def test_writing_an_infinite_number_is_an_error():
    net = Netlist([NetOp("a", "b", [], [], [NetParam("p", float("inf"))], SourceLoc("n"))], "n")
    with pytest.raises(LightNetError, match="infinite"):
        json_ir.write(net)


# -- properties -------------------------------------------------------------------------------------------------------
NAME = st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=6)
NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False))
STRINGS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    STRINGS,
    *(st.lists(s, min_size=1, max_size=3).map(tuple) for s in (NUMBERS, STRINGS, st.booleans())),
)
SIZES = st.integers(0, 2**63 - 1)


@st.composite
def netops(draw, depth=2) -> NetOp:
    arguments = iter(draw(st.lists(NAME, unique=True, min_size=4, max_size=4)))
    tensors = [
        NetTensor(
            next(arguments),
            draw(NAME),
            draw(st.none() | st.lists(SIZES, max_size=3).map(tuple)),
            draw(st.none() | SIZES),
        )
        for _ in range(2)
    ]
    params = [NetParam(a, draw(VALUES)) for a in arguments]
    body = draw(st.none() | st.lists(netops(depth - 1), max_size=2, unique_by=lambda o: o.name)) if depth else None
    return NetOp(draw(NAME), draw(NAME), tensors[:1], tensors[1:], params, SourceLoc("n"), body)


@settings(max_examples=60, deadline=None)
@given(st.lists(netops(), max_size=3, unique_by=lambda o: o.name), st.none() | st.lists(SIZES, max_size=3))
def test_written_and_read_again_is_the_same(ops, sizes):
    net = Netlist(ops, "n", sizes, extra={"lightnet": {"a": [1, None, "x"]}})
    written = json_ir.write(net)
    again = json_ir.read(written, "n")
    assert repr(contents(again.ops)) == repr(contents(ops)) and again.mem_sizes == sizes and again.extra == net.extra
    json.loads(written)


SEED = json_ir.write(json_ir.read((NETS / "ir" / "test_ops.json").read_text(), "t"))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mutated_text_is_read_or_refused(data):
    """What we take is JSON to the standard library too (comments apart), and nothing but a LightNetError comes out otherwise."""
    source = SEED
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(0, len(source)))
        piece = data.draw(
            st.sampled_from(
                [
                    "",
                    "{",
                    "}",
                    "[",
                    "]",
                    '"',
                    ",",
                    ":",
                    "null",
                    "1e5",
                    "-",
                    "\\",
                    "\0",
                    "é",
                    '"body": [],',
                    '"dims": [1],',
                    '"x": 1,',
                    "99",
                ]
            )
        )
        source = source[:i] + piece + source[i + data.draw(st.integers(0, 12)) :]
    try:
        net = json_ir.read(source, "n")
    except LightNetError as e:
        assert e.render()
        return
    assert len(net.ops) == len(json.loads(source)["ops"])


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='{}[]":,0123456789.eE+-ntaf \n\\u/*opsm\0', max_size=40))
def test_random_text_is_read_or_refused(source):
    for candidate in (source, f'{{"ops": [], "x": {source}}}', f'{{"ops": [{source}]}}'):
        try:
            json_ir.read(candidate, "n")
        except LightNetError as e:
            assert e.render()
