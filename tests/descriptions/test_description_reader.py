"""The reader of descriptions: both dialects, inheritance, places, and what is malformed."""

import ast
import json
import random
import re

import pytest

from lightnet.diagnostics import LightNetError
from lightnet_descriptions import description_kind, load_description_file
from lightnet_descriptions.reader import read_description

OP = """// what both have
base {
    optype: "slice", arch: 'none', author: `me`,
    tensors_in: [{arg_name: "src", mtype: "LN_MEM_NONE", ndim: 4}, {arg_name: "index", mtype: "LN_MEM_NONE"},],
    params: [{arg_name: "axis", lt: "src->ndim"}],
    run: "one\\ttwo \\"three\\"",
},
cpu : base {
    optype: "slice_cpu", arch: "cpu", run: -,
    tensors_in: [{mtype: "LN_MEM_CPU"}, -],
    params: [{lt: -, ge: 0}, {arg_name: "len", gt: -1.5e1}],
}
"""


def test_inheritance():
    document = read_description(OP, "f.op")
    assert document.kind == "op" and list(document.objects) == ["base", "cpu"]
    assert document.objects["base"].plain()["run"] == 'one\ttwo "three"'
    assert document.objects["cpu"].plain() == {
        "optype": "slice_cpu", "arch": "cpu", "author": "me",
        "tensors_in": [{"arg_name": "src", "mtype": "LN_MEM_CPU", "ndim": 4}],
        "params": [{"arg_name": "axis", "ge": 0}, {"arg_name": "len", "gt": -15.0}],
    }  # fmt: skip


def test_places_of_what_is_inherited_and_of_strings():
    document = read_description(OP, "f.op")
    cpu = document.objects["cpu"].value
    assert str(cpu["author"].loc) == "f.op:3:45"  # in the base
    assert str(cpu["optype"].loc) == "f.op:9:14" and str(cpu["optype"].key_loc) == "f.op:9:5"
    run = document.objects["base"].value["run"]
    error = run.error_at(run.value.index("three"), "here")
    assert (error.loc.line, error.loc.col) == (6, 6 + OP.split("\n")[5][5:].index("three"))
    assert error.source_line == OP.split("\n")[5]


def test_json():
    text = "{\"ops\": [{\"a\": [1, 2.5, -3, true, null], 'b': {}, // comment\n c: '''two\nlines'''},], /* end */}"
    document = read_description(text, "f.json")
    assert document.kind == "json"
    assert document.objects[""].plain() == {"ops": [{"a": [1, 2.5, -3, True, None], "b": {}, "c": "two\nlines"}]}
    item = document.objects[""].value["ops"].value[0].value["c"]
    assert str(item.loc) == "f.json:2:8" and item.error_at(4, "x").loc.line == 3


def test_json_reads_as_json():
    """What is JSON means what the standard library reads."""
    rng = random.Random(0)

    def value(depth):
        kind = rng.randrange(8 if depth < 4 else 6)
        if kind == 6:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        if kind == 7:
            return {f'k{i}"\\\n': value(depth + 1) for i in range(rng.randrange(4))}
        return [None, True, rng.randrange(-(10**9), 10**9), rng.random() * 1e9, "é\"\\\n\t/'", ""][kind]

    for indent in (None, 2):
        for _ in range(100):
            top = {"top": value(0)}
            assert read_description(json.dumps(top, indent=indent), "f").objects[""].plain() == top


def test_kinds():
    def kind(text):
        return description_kind(read_description(text, "f.json"))

    assert kind('{"ops": [{"optype": "a", "author": "me", "arch": "none"}]}') == "operators"
    assert kind('{"author": "me", "arch": "cpu", "ops": [{"optype": "a", "rules": []}]}') == "optimizer"
    assert kind('{"combiners": []}') == "optimizer"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a {", "1:4", "expected a key or '}', got the end of the text"),
        ("a { b: }", "1:8", "expected a value, got '}'"),
        ("a { b 1 }", "1:7", "expected ':' behind the key 'b'"),
        ("a { b: 1 c: 2 }", "1:10", "expected ',' or '}'"),
        ("a { b: 1, b: 2 }", "1:11", "the key 'b' stands twice"),
        ("a { b: [1 2] }", "1:11", "expected ',' or ']'"),
        ('a { b: "x\n" }', "1:8", "unterminated string"),
        ("a { b: `x }", "1:8", "unterminated string"),
        ("a {} /* x", "1:6", "unterminated comment"),
        ("a {} a {}", "1:6", "'a' is defined twice; the first stands at f.op:1:1"),
        ("a : b {}", "1:5", "unknown base 'b'; defined before it: none"),
        ("a : {}", "1:5", "expected the name of a base"),
        ("a []", "1:3", "expected '{' behind 'a'"),
        ("a {} 5", "1:6", "expected the name of an object"),
        ("[1]", "1:1", "expected an object"),
        ("{} {}", "1:4", "expected the end of the text"),
        ("a { b: 123456789012345678901234 }", "1:8", "does not fit 64 bits"),
        ("a { b: 1e999 }", "1:8", "too large"),
        ("a { b: yes }", "1:8", "expected a value, got 'yes'"),
        ("a { b: @ }", "1:8", "unexpected character '@'"),
        ("a { b: " + "[" * 80 + "]" * 80 + "}", "1:72", "nested deeper than 64 levels"),
    ],
)
def test_malformed(text, place, message):
    with pytest.raises(LightNetError) as e:
        read_description(text, "f.op")
    assert str(e.value.loc) == f"f.op:{place}" and message in str(e.value)


@pytest.mark.parametrize("before", ["", "a "])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{ k: ", "}"), ("[{ k: [", "]}]")])
def test_depth_counts_alike_in_both_dialects(before, opening, closing):
    """64 objects and arrays in one another, the outermost included and a number or text in the last besides."""
    for depth in range(60, 70):
        times, rest = divmod(depth - 1, opening.count("[") + opening.count("{"))
        text = before + "{ k: " + "[" * rest + opening * times + "LEAF" + closing * times + "]" * rest + " }"
        for leaf in ("7", "'x'"):
            if depth <= 64:
                found = read_description(text.replace("LEAF", leaf), "f").objects[before.strip()].plain()
                want = re.sub(r"\bk\b", "'k'", text.removeprefix(before)).replace("LEAF", leaf)
                assert found == ast.literal_eval(want)
            else:
                with pytest.raises(LightNetError, match="nested deeper than 64 levels"):
                    read_description(text.replace("LEAF", leaf), "f")


def test_inheritance_is_linear():
    """Derived objects share what they inherit."""
    many = ", ".join(f"k{i}: [{i}]" for i in range(2000))
    text = "a { x: {" + many + "} }\n" + "\n".join(f"b{i} : a {{ y: {i} }}" for i in range(3000))
    assert len(read_description(text, "f.op").objects) == 3001
    doubling = "a0 { x: [1] }\n" + "\n".join(
        f"a{i} : a{i - 1} {{ x: [[1], [2]], y{i}: {{z: 1}} }}" for i in range(1, 2000)
    )
    with pytest.raises(LightNetError, match="more than 200000 values"):
        read_description(doubling, "f.op")


@pytest.mark.parametrize("name", ["empty.op", "empty.json"])
def test_an_empty_file_describes_nothing(tmp_path, name):
    path = tmp_path / name
    path.write_text("// nothing\n")
    with pytest.raises(LightNetError, match="the file is empty"):
        load_description_file(str(path))
