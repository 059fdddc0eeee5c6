"""The IL reader, `${eval}` and il2json. Oracles: what upstream's il2json printed for five networks, and perl where it is installed."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from counting import calls, ends
from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.cli import il2json
from lightnet.diagnostics import MAX_ERRORS, LightNetError, SourceLoc
from lightnet.frontends import json_ir
from lightnet.frontends.il import evals
from lightnet.frontends.il import reader as il
from lightnet.frontends.il.eval_expr import evaluate_perl
from lightnet.frontends.importer import to_module

NETS = Path(__file__).parents[2] / "data" / "nets"
PERL = shutil.which("perl")
EXAMPLE = """create(| dst=tensor1 | dtype=TL_FLOAT, dims=[2, 4],
       data=[1, 2, 3, 4, 5, 6, 7, 8], ran=[0, 0], from_file=false);
slice(src=tensor1 | dst=tensor2 | axis=1, start=1, len=3);
print(src=tensor2 | | msg="tensor2:");
"""


def read(text: str, **options):
    return il.read(text, "net.net", **options)


def params(text: str, **options) -> dict:
    """The parameters of a one-statement network `a(||TEXT)`."""
    return {p.arg: p.value for p in read(f"a(||{text})", **options).ops[0].params}


def refusal(text: str, **options) -> LightNetError:
    with pytest.raises(LightNetError) as e:
        read(text, **options)
    assert e.value.loc is not None
    return e.value


# -- networks ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [p.stem for p in sorted((NETS / "il").glob("*.net"))])
def test_network_as_upstream(name, tmp_path):
    out = tmp_path / "out.json"
    assert il2json.main([str(NETS / "il" / f"{name}.net"), "-o", str(out)]) == 0
    assert json.loads(out.read_text()) == json.loads((NETS / "il2json" / f"{name}.json").read_text())


def test_example_of_the_documents():
    ops = read(EXAMPLE).ops
    assert [(o.name, o.optype) for o in ops] == [("create0", "create"), ("slice0", "slice"), ("print0", "print")]
    assert {p.arg: p.value for p in ops[0].params} == {
        "dtype": "TL_FLOAT",
        "dims": (2, 4),
        "data": (1, 2, 3, 4, 5, 6, 7, 8),
        "ran": (0, 0),
        "from_file": False,
    }
    assert [(t.arg, t.name) for t in ops[1].tensors_in + ops[1].tensors_out] == [("src", "tensor1"), ("dst", "tensor2")]
    assert ops[2].params[0].value == "tensor2:"
    assert [o.loc for o in ops] == [SourceLoc("net.net", n, 1) for n in (1, 3, 4)]


def test_names_count_per_type():
    assert [o.name for o in read("a(||);b(||);a(||);a(||);b(||)").ops] == ["a0", "b0", "a1", "a2", "b1"]


@pytest.mark.parametrize("text", ["", "  \n", ";;\n;", "// nothing", "#define A 1\n"])
def test_network_without_operators(text):
    assert read(text).ops == []
    assert json.loads(json_ir.write(read(text))) == {"ops": []}


# -- values -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("5.", 5.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-3", -0.0015),
        ("007", 7),
        ("true", True),
        ("false", False),
        ("null", None),
        ("name", "name"),
        ('"text"', "text"),
        ('""', ""),
        (r'"a\n\"b\\"', r"a\n\"b\\"),
        ('"a,b;c=d|e)f]g[h(i"', "a,b;c=d|e)f]g[h(i"),
        ('"// no comment"', "// no comment"),
        ('"é😀"', "é😀"),
        ("[1, -2,3]", (1, -2, 3)),
        ("[1,2.5,]", (1, 2.5)),
        ("[true,false]", (True, False)),
        ('["a", "b,c]"]', ("a", "b,c]")),
        ("[ 1 ]", (1,)),
        ("[null, null,]", (None, None)),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_value(text, value):
    found = params(f"x={text}, y=1 ,")
    assert found == {"x": value, "y": 1} and type(found["x"]) is type(value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a", "wrong syntax in\n    a"),
        ("a(x=y)", "wrong syntax in\n    a(x=y)"),
        ("a(x=y|z=w)", "wrong syntax"),
        ("a(|||)", "wrong syntax"),
        ("a(||", "wrong syntax"),
        ("a||)", "wrong syntax"),
        ("(||)", "wrong syntax"),
        ("1(||)", "wrong syntax"),
        ("a b(||)", "wrong syntax"),
        ("a(||) b(||)", "wrong syntax"),
        ("a(x=y,,z=w||)", "wrong syntax"),
        ("a(,||)", "wrong syntax"),
        ("a(||x=[1)", "wrong syntax"),
        ("a(||x=1])", "wrong syntax"),
        ("a(||x=[name])", "wrong syntax"),
        ("a(||x=[[1]])", "wrong syntax"),
        ("a(x||)", "wrong tensor name format in 'x'"),
        ("a(x=5||)", "wrong tensor name format in 'x=5'"),
        ('a(|x="y"|)', "wrong tensor name format in 'x=\"y\"'"),
        ("a(x=y z||)", "wrong tensor name format in 'x=y z'"),
        ("a(é=y||)", "wrong tensor name format"),
        ("a(||x)", "wrong param value format in 'x'"),
        ("a(||x=)", "wrong param value format in 'x='"),
        ("a(||x=- 5)", "wrong param value format in 'x=- 5'"),
        ("a(||x=0x10)", "wrong param value format in 'x=0x10'"),
        ("a(||x=1 2)", "wrong param value format in 'x=1 2'"),
        ("a(||x=y=z)", "wrong param value format"),
        ("a(||x=[])", "the array is empty"),
        ("a(||x=[1] 2)", "wrong param value format"),
        ("a(||x=[1,,2])", "wrong array param element format"),
        ("a(||x=[1 2])", "wrong array param element format in '1 2'"),
        ("a(||x=[1,0x2])", "wrong array param element format in '0x2'"),
        ("a(||x=[1,true])", "not a mixture"),
        ('a(||x=[1,"a"])', "not a mixture"),
        ("a(||x=[null, 1])", "not a mixture"),
        ("a(||x=1,x=2)", "'x' is given twice in a a"),
        ("a(x=y|x=z|)", "'x' is given twice"),
        ("a(||x=1e400)", "too large"),
        ("a(||x=-1e400)", "too large"),
        ("a(||x=18446744073709551616)", "does not fit 64 bits"),
        ("a(||x=" + "9" * 5000 + ")", "does not fit 64 bits"),
        ('a(||x="b)', "unterminated string"),
        ("a(||x='b')", "wrong param value format"),
        ("a(||x=y\0)", "NUL"),
        ("a(||x=\ud800)", "surrogate"),
        ("a(||x=${eval})", "unexpected end"),
        ("a(||x=${eval 1)", "${eval without its '}'"),
        ("a(||x=${5})", "wrong param value format"),
    ],
)
def test_refused(text, message):
    assert message in refusal(text).message


EXPECTED = {
    "a": "expected '(' behind the op's type 'a', got the end",
    "1(||)": "expected an op's type, got '1'",
    "a(x=y)": "expected ',' or the '|' behind the inputs, got ')'",
    "a(x=y|z=w)": "expected ',' or the '|' behind the outputs, got ')'",
    "a(||x=1": "expected ',' or the ')' behind the parameters, got the end",
    "a(||) b(||)": "expected ';' behind ')', got 'b'",
    "a(||))": "expected ';' behind ')', got ')'",
    "a(x||)": "expected '=' behind 'x', got '|'",
    "a(x=5||)": "expected a tensor's name for 'x', got '5'",
    "a(5=x||)": "expected an argument's name or the '|' behind the inputs, got '5'",
    "a(||5=x)": "expected a parameter's name or ')', got '5'",
    "a(||x=)": "expected a number, a string, a name, true, false, null or an array in [ ] for 'x', got ')'",
    "a(||x=[1 2])": "expected ',' or ']', got '2'",
    "a(||x=[1,,2])": "expected a number, a string, true, false or null, got ','",
    "a(||x=[1)": "expected ',' or ']' in the array, got ')'",
    "a(||x=[])": "expected a number, a string, true, false or null, got ']'",
}


@pytest.mark.parametrize("text", EXPECTED)
def test_what_was_expected_is_said(text):
    assert refusal(text).message.startswith(EXPECTED[text])


def test_all_mistakes_are_found_in_one_run():
    """Of the preprocessor, of ${eval} and of statements; what follows from a mistake that is known is not said again."""
    error = refusal(
        "#define m(x) a(x||)\nok(||);\nm(1,2);\nb(||x=${eval 1/0}, y=${eval 1/0});\nc(x=5||); d(||y=)\n;e(||) f(||);\n"
        'g(||x="open);\nh(;\nok(||);'
    )
    found = [error, *error.others]
    assert [(e.loc.line, e.loc.col) for e in found] == [(3, 1), (7, 7), (4, 7), (5, 5), (5, 17), (6, 8), (8, 3)]
    assert error.render().count(": error: ") == len(found) == error.render().count("^")


def test_a_failed_directive_ends_with_the_preprocessor():
    """The macros of a file that is not there would be an error at each use."""
    error = refusal('#include "macros.net"\nconv(a, b);\n#frob\nrelu(a);')
    assert [e.loc.line for e in (error, *error.others)] == [1, 3]


def test_only_so_many_mistakes_are_reported():
    error = refusal("a;" * 10_000)
    assert len(error.others) == MAX_ERRORS and "there are 20 errors" in error.others[-1].message
    found = []
    with pytest.raises(LightNetError, match="there are 200 errors"):
        read("a;" * 10_000, on_error=found.append)
    assert len(found) == 200


def test_places_of_statements_follow_line_directives():
    text = '#line 30 "model.y"\na(||);\n# 7\nb(||);\n#line 3 "other.y"\nc(||);'
    net = read(text)
    assert [o.loc for o in net.ops] == [
        SourceLoc("model.y", 30, 1),
        SourceLoc("model.y", 7, 1),
        SourceLoc("other.y", 3, 1),
    ]
    assert [net.texts.line(o.loc) for o in net.ops] == ["a(||);", "b(||);", "c(||);"]
    assert [o.loc.line for o in read(text, physical=True).ops] == [2, 4, 6]


def test_arrays_of_null_are_read_and_written(tmp_path):
    """As upstream's il2json has them; what reads the JSON refuses them, there and here."""
    text = json_ir.write(read("a(||x=[null, null])"))
    assert json.loads(text)["ops"][0]["params"] == [{"arg_name": "x", "value": [None, None]}]
    with pytest.raises(LightNetError, match="may not hold null"):
        json_ir.read(text, "a.json")


def test_error_in_a_generated_statement_names_the_line_of_the_user():
    error = refusal(
        "#define relu(x) \\\n    relu(src=x | dst=5 |)\n#define two(x) relu(x); relu(y)\n\nok(||);\n  two(a);\n"
    )
    assert error.loc == SourceLoc("net.net", 6, 3) and error.source_line == "  two(a);"
    assert error.message == "expected a tensor's name for 'dst', got '5': wrong tensor name format in 'dst=5'"
    assert [(loc.line, text) for loc, text in error.notes] == [
        (1, "in expansion of macro 'relu'"),
        (3, "in expansion of macro 'two'"),
    ]


def test_locations_after_eval_and_in_macros():
    net = read("#define m(x) x(||);b(||)\na(||x=${eval 100*100});c(||);\n m(d); e(||x=${eval 1}); f(||)\n")
    assert [(o.optype, o.loc.line, o.loc.col) for o in net.ops] == [
        ("a", 2, 1),
        ("c", 2, 24),
        ("d", 3, 4),
        ("b", 3, 2),
        ("e", 3, 8),
        ("f", 3, 26),
    ]


# -- ${eval} ----------------------------------------------------------------------------------------------------------
# fmt: off
EXPRESSIONS = """2**53|2**62|3**30|3**40|7/2|6/2|-7%3|7%-3|-7.9%3|-2**2|2**-1|1e15|1e15+0|1e15/3|1e17+0|1e100|123456789012345678|0.1+0.2|1/3
9223372036854775807+1|18446744073709551615+1|1 . 2|1 .2|!1|!0|!1+1|int 7/2|int(-3.7)|010|0x1f|0b11|5 . -3|9007199254740993*3|(-2)**3|(-8)**63
1e19%7|5%2.7|-0.0|0*-1|2**50|2**52+1|10**16|3**33|7**19|15**15|16**15|2000000000000000/2|9007199254740994/2|36028797018963971/10|int(1e16+0.5)
abs(-1e15)|-(1e15)|"1e15"+0|" 5 "+1|""+1|-9223372036854775808-1|-9223372036854775808|1e20%7|-1e20%7|-7%1e20|0**0|1?"a":"b"|0 ? 1/0 : 4|1 || 1/0
0 && 1/0|5 <=> 5|2 <=> 3|!-1|-!1|1 + 1 . "x"|1.5 . 2|int 7/2 . 3|abs -5 + 2|sqrt 9 * 4|"5" . "6" + 1|1 lt 2|10 lt 9|2 ** 3 ** 2|0 ? 2 : 0 ? 4 : 5
min(3,1,2) . max(1.5,2)|floor(-2.5) . ceil(-2.5)|1 == 1 && 2 > 1|15 - 5 . 3|4 . 3 + 2|"a" eq 'a'|- -3|2+-3|(1+2)*3|116/2|5 + 6|1 ? 2 : 3 ? 4 : 5
"a\\$b"|'a\\n'|2**0.5|10/3*3|1e308*1e-308|360*2**-2|-5/2|100000*100000*100000*100000|5-5|1 < 2 == 1|1 > 2|.5|5.|1.e3|5 == 6""".replace("\n", "|").replace("||", "\n").split("|")
EXPRESSIONS = [e.replace("\n", "||") for e in EXPRESSIONS]
EXPRESSIONS += [e.strip() for e in """6 & 3; 6|3; 6^3; ~0; ~5 & 0xff; -1 & 255; -1|0; 1 << 4; 1 << 63; 1 << 64; 256 >> 4; -8 >> 60; 1 << -1; 16 >> -2
1.9 & 3; -1.9 & 255; 1e30 & 7; -1e30 | 1; "12" & 10; "12" | "3"; "ab" ^ "  "; ~"a" eq "x"; "12" & "6"; (1 == 2) | (1 == 2); !1 | 5; ~!1; 1_000 + 1
0xff_ff; 0b1_0; 0_17; 1_0.5_0; 1_0e1_0; .5_0; 0o17; 1 | 2 ^ 3 & 4; 1 | 2 == 2; 1 + 1 << 2; 1 << 1 + 1; int 7/2 << 1; int 15 & 6; 5 <=> 3 & 1
1 < 2 << 1; 2 ** 3 << 1; -1 >> 1; ~-1; ~~5; - ~5; 1 & 1 && 2; 0 || 4 | 1; 18446744073709551615 & ~1; 9223372036854775808 >> 63; 1 ? 2 | 1 : 4
"a" cmp "b"; 10 cmp 9; 2 . 1 & 5; exp(1) . log(10); "1.9" << 1; "-3" >> 62; 1 << 2.9; 1 << 1e30; 1 >> 1e30; "" | ""; ("" | "") + 1; 7 & "7"; ~0 + 1; 1__0; 1e17 + 1e17; 1 - 1e17; (1 == 1) + 1e17; (1 . 1e17) + 3; 1024 - ~3; 1e17 - !1""".replace("\n", ";").split(";")]
# fmt: on


@pytest.mark.parametrize(
    "text, value",
    [
        ("7/2", "3.5"),
        ("2+3*4", "14"),
        ("-7%3", "2"),
        ("-2**2", "-4"),
        ("2**3**2", "512"),
        ("1/3", "0.333333333333333"),
        ('"a" . 1+1', None),
        ("1==2", ""),
        ("5-5", "0"),
        ("1e15", "1e+15"),
        ('"conv" . 1 . "_" . 2*3', "conv1_6"),
        ("1 . 2", "12"),
        ("3 > 2 ? 10 : 1/0", "10"),
        ("010", "8"),
    ],
)
def test_arithmetic(text, value):
    if value is None:
        with pytest.raises(LightNetError, match="not a number"):
            evaluate_perl(text)
    else:
        assert evaluate_perl(text) == value


def perl(expressions: list[str]) -> list[str]:
    """What perl prints for each; ERR where it fails."""
    code = "use List::Util qw(min max); use POSIX qw(floor ceil); while(<STDIN>){chomp; my $r = eval $_; print $@ ? 'ERR' : unpack('H*', $r), qq(\\n)}"
    done = subprocess.run([PERL, "-e", code], input="\n".join(expressions), capture_output=True, text=True)
    found = done.stdout.split("\n")[: len(expressions)]
    return [v if v == "ERR" else bytes.fromhex(v).decode("latin-1") for v in found]


def ours(expression: str) -> str:
    try:
        return evaluate_perl(expression)
    except LightNetError:
        return "ERR"


@pytest.mark.skipif(not PERL, reason="perl is what is bounded")
@pytest.mark.parametrize(
    ("script", "limit", "value", "message"),
    [
        (b"print 'x' x 300", "OUTPUT", 299, "gave more than 299 bytes"),
        (b"sleep 9", "WALL_SECONDS", 0.1, "took more than 0.1 s"),
    ],
)
def test_perl_is_bounded(monkeypatch, script, limit, value, message):
    assert evals._run_perl(PERL, b"print 'x' x 300") == b"x" * 300
    monkeypatch.setattr(evals, limit, value)
    with pytest.raises(LightNetError, match=message):
        evals._run_perl(PERL, script)


@pytest.mark.skipif(not PERL, reason="perl is what is ended")
@pytest.mark.parametrize("ready, seconds, answer", [("print 7; close STDOUT", 60, b"7"), ("", 0.2, None)])
def test_perl_is_ended_with_its_answer(monkeypatch, tmp_path, ready, seconds, answer):
    """Nobody waits for a script that goes on behind its answer, or that gives none: what it would do then is not done."""
    monkeypatch.setattr(evals, "WALL_SECONDS", seconds)
    script = f"{ready}; select undef, undef, undef, 6; mkdir '{tmp_path}/late';".encode()
    try:
        assert evals._run_perl(PERL, script) == answer
    except LightNetError:
        assert answer is None
    assert not (tmp_path / "late").exists()


@pytest.mark.skipif(not PERL, reason="perl is the oracle")
def test_arithmetic_as_perl():
    assert dict(zip(EXPRESSIONS, map(ours, EXPRESSIONS))) == dict(zip(EXPRESSIONS, perl(EXPRESSIONS)))


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(
            [
                "0",
                "1",
                "2",
                "3",
                "7",
                "16",
                "0.5",
                "2.5",
                "1e3",
                "100",
                "416",
                "1000003",
                '"3"',
                "1_024",
                "0x1F",
                "-3",
            ]
        )
    a, b = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    op = rng.choice(
        [
            "+",
            "-",
            "*",
            "/",
            "%",
            "**",
            ".",
            "==",
            "<",
            ">=",
            "<=>",
            "&&",
            "||",
            "&",
            "|",
            "^",
            "<<",
            ">>",
            "~",
            "?",
            "u-",
            "!",
            "int",
            "abs",
            "max",
            "(",
            "and",
            "or",
            "xor",
            "not",
        ]
    )
    forms = {
        "?": f"{a} ? {b} : {a}", "u-": f"- {a}", "!": f"!{a}", "~": f"~{a}", "int": f"int({a})", "abs": f"abs {a}", "max": f"max(int({a}) % 4099, int({b}) % 4099)", "(": f"({a})", "not": rng.choice((f"not {a}", f"not({a})", f"(not {a})")),
    }  # fmt: skip
    return forms.get(op) or (f"({a}) {op} ({b})" if rng.random() < 0.5 else f"{a} {op} {b}")


#: Expressions of the comparison with perl; LIGHTNET_IL_EXPRESSIONS=200000 is a long run.
EXPRESSION_COUNT = int(os.environ.get("LIGHTNET_IL_EXPRESSIONS", "1500"))


@pytest.mark.skipif(not PERL, reason="perl is the oracle")
def test_random_arithmetic_as_perl():
    """Ours may refuse more (chained comparisons, infinities), but what it gives is what Perl gives."""
    rng = random.Random(7)
    taken = 0
    for _ in range(0, EXPRESSION_COUNT, 5000):
        expressions = [random_expression(rng, 4) for _ in range(min(EXPRESSION_COUNT, 5000))]
        wrong = [(e, p, o) for e, p in zip(expressions, perl(expressions)) if (o := ours(e)) != p and o != "ERR"]
        assert wrong == []
        taken += sum(ours(e) != "ERR" for e in expressions)
    assert taken > EXPRESSION_COUNT / 3


def test_eval_is_textual_and_nests():
    found = params('x=${eval 1+1}, y=[${eval 2*${eval 3+4}}, 3], z=t${eval 1+1}_${ eval 5}, w="a${eval 2}b"')
    assert found == {"x": 2, "y": (14, 3), "z": "t2_5", "w": "a2b"}
    assert params("x=${eval \n 2 *\n 3}")["x"] == 6
    assert [
        p.value for p in read("#define H 12\n#define N ${eval H * 2}\n#define M ${eval N + 1}\na(||x=M)").ops[0].params
    ] == [25]


@pytest.mark.parametrize(
    "text",
    [
        "$x",
        "`ls`",
        'system("ls")',
        "open F",
        "a",
        "1;2",
        "1 2",
        "qw(a)",
        '"$x"',
        '"@x"',
        "1 x 2",
        "1 not 1",
        "1 + not 1",
        "1 and",
        "or 1",
        "1 & ",
        "1 <<< 2",
        "0x_",
        "1e_",
        "x()",
        "()",
        "int()",
        "[1]",
        "08",
        "0b12",
    ],
)
def test_anything_but_arithmetic_is_refused(text):
    error = refusal(f"\na(||x=${{eval {text}}})")
    assert error.loc == SourceLoc("net.net", 2, 7) or "unterminated" in error.message
    assert any("--eval=perl" in note for _, note in error.notes) or "argument" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "-9**9**9",
        "1/0",
        "1%0",
        "sqrt(-1)",
        "(-1)**0.5",
        "((((" * 500,
        "-" * 70000 + "1",
        "int " * 9999 + "1",
        "2**" * 9999 + "1",
        '"' + "a" * 60000 + '" . "' + "b" * 60000 + '"',
        "9" * 5000,
        "1e999",
        "1?" * 9999 + "1",
    ],
)
def test_eval_is_bounded(text):
    with calls(at_most=2_000_000), ends():
        refusal(f"a(||x=${{eval {text}}})")


@pytest.mark.skipif(not PERL, reason="needs perl")
class TestPerl:
    def test_values(self):
        text = 'x=t${eval join("_", map $_*2, 1..3)}, y=${eval $n = 5}, z=${eval $n * ${eval 1+1}}, s=0${eval ""}'
        assert params(text, eval_mode="perl") == {"x": "t2_4_6", "y": 5, "z": 10, "s": 0}

    def test_failure_is_located(self):
        error = refusal("a(||x=1);\nb(||x=${eval die 7})", eval_mode="perl")
        assert error.loc == SourceLoc("net.net", 2, 7) and "Perl in ${eval}" in error.message

    @pytest.mark.parametrize("code", ["1 while 1", '"a" x 3e9', "exit 0", "kill 9, $$", "my @a = (1) x 1e9"])
    def test_limits(self, code):
        refusal(f"a(||x=${{eval {code}}})", eval_mode="perl")

    def test_child_has_no_environment_no_input_and_writes_no_file(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SECRET", "1")
        target = tmp_path / "made"
        text = f"x=${{eval scalar keys %ENV}}, y=${{eval defined(<STDIN>) ? 1 : 2}}, z=${{eval open(F, '>{target}'); print F 'a' x 9999; close F; 3}}"
        try:
            found = params(text, eval_mode="perl")
            assert found["x"] == 0 and found["y"] == 2
        except LightNetError:
            pass  # the signal of the file limit ends the child
        assert not target.exists() or target.stat().st_size == 0


def test_perl_missing_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LightNetError, match="needs the program perl"):
        read("a(||x=${eval 1})", eval_mode="perl")


# -- il2json ----------------------------------------------------------------------------------------------------------
def test_options_before_or_after_and_pipes(tmp_path):
    source, expected = tmp_path / "ex.net", json_ir.write(read(EXAMPLE))
    source.write_text(EXAMPLE)
    for i, arguments in enumerate((["FILE", "-o", "OUT"], ["-o", "OUT", "FILE"], ["--outfile=OUT", "FILE"])):
        out = tmp_path / f"{i}.json"
        assert il2json.main([a.replace("OUT", str(out)).replace("FILE", str(source)) for a in arguments]) == 0
        assert out.read_text() == expected
    command = [sys.executable, "-m", "lightnet.cli.il2json"]
    for arguments in ([], ["-"], [str(source)]):
        done = subprocess.run(command + arguments, input=EXAMPLE, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--frobnicate"],
        ["missing.net"],
        ["."],
        ["a", "b"],
        ["-o"],
        ["--eval=ruby", "ok.net"],
        ["bad.net"],
        ["bad.net", "-o", "out.json"],
        ["ok.net", "-o", "no/such/folder"],
        ["fifo"],
        ["latin1.net"],
    ],
)
def test_exit_status_and_nothing_left(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.net").write_text("a(||)")
    (tmp_path / "bad.net").write_text("a(|)")
    (tmp_path / "latin1.net").write_bytes(b'a(||);\nb(||x="\xe9")')
    os.mkfifo(tmp_path / "fifo")
    before = sorted(os.listdir(tmp_path))
    try:
        status = il2json.main(arguments)
    except SystemExit as e:
        status = e.code
    out, err = capsys.readouterr()
    assert status == 1 and out == "" and "error: " in err and "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == before


def test_failure_keeps_the_old_file(tmp_path):
    out, bad = tmp_path / "out.json", tmp_path / "bad.net"
    out.write_text("old")
    bad.write_text("a(")
    assert il2json.main([str(bad), "-o", str(out)]) == 1 and out.read_text() == "old"


def test_help_and_macros_from_the_command_line(capsys, monkeypatch, tmp_path):
    with pytest.raises(SystemExit) as e:
        il2json.main(["-h"])
    assert e.value.code == 0 and "--outfile" in capsys.readouterr().out
    source = tmp_path / "n.net"
    source.write_text("a(||x=N)")
    out = tmp_path / "o"
    assert il2json.main(["-DN=7", str(source), "-o", str(out)]) == 0
    assert json.loads(out.read_text())["ops"][0]["params"][0]["value"] == 7


def test_start_is_light():
    """il2json is used in pipes and scripts: it must not load xDSL or numpy."""
    code = "import sys, lightnet.cli.il2json; print([m for m in ('xdsl', 'numpy', 'subprocess') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# -- fuzz -------------------------------------------------------------------------------------------------------------
SEED = (NETS / "il" / "shuffledet_dac_demo.net").read_text()[:6000]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_mutated_network_is_read_or_refused(data):
    """A network with pieces removed, doubled and replaced gives a Netlist or a LightNetError, nothing else."""
    text = EXAMPLE if data.draw(st.booleans()) else SEED
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
        piece = data.draw(
            st.sampled_from(
                [
                    "",
                    "(",
                    ")",
                    "|",
                    '"',
                    "#",
                    "##",
                    "${eval ",
                    "}",
                    "\\\n",
                    "[",
                    "/*",
                    "#if 0\n",
                    "\n#define a a\n",
                    "\0",
                    "é",
                    text[i : i + 40],
                ]
            )
        )
        text = text[:i] + piece + text[i if data.draw(st.booleans()) else min(j, i + 30) :]
    try:
        net = read(text)
    except LightNetError as e:
        assert e.render()
        return
    assert [o.name for o in json_ir.read(json_ir.write(net), "x").ops] == [o.name for o in net.ops]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab_1. ,;=|()[]{}\"'#\n\\$+-/*%?:!<>e\0é", max_size=60))
def test_random_text_is_read_or_refused(text):
    for candidate in (text, f"a(||x=${{eval {text}}})", f"#define f(x) {text}\nf({text})", f"#if {text}\n#endif"):
        try:
            read(candidate)
        except LightNetError as e:
            assert e.render()


def test_reading_from_standard_input(monkeypatch):
    read_end, write_end = os.pipe()
    os.write(write_end, b"a(||)")
    os.close(write_end)
    with open(read_end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        net = il.read_file("-")
    assert net.file == "<stdin>" and net.ops[0].loc == SourceLoc("<stdin>", 1, 1)


#: The statement behind `create` of [2, 3]: what makes a tensor without elements.
EMPTY = {
    "create": "create(| dst=e | dtype=TL_FLOAT, dims=[2, 0], data=[0], ran=[0, 0], from_file=false);",
    "slice": "slice(src=x | dst=e | axis=1, start=1, len=0);",
    "zeros": "zeros(| dst=e | dtype=TL_FLOAT, dims=[0]);",
}


@pytest.mark.parametrize("optype", EMPTY)
def test_empty_tensors_are_refused_in_il_alone(optype):
    """Upstream has none; JSON IR says what other readers read, too."""
    source = "create(| dst=x | dtype=TL_FLOAT, dims=[2, 3], data=[0], ran=[0, 0], from_file=false);\n" + EMPTY[optype]
    netlist = read(source)
    with pytest.raises(LightNetError, match="tensor `e` should have elements") as error:
        to_module(netlist)
    assert error.value.label == f"{optype}.empty" and error.value.loc.line == 2
    module = to_module(json_ir.read(json_ir.write(netlist), "n.json"))
    assert optype in str(module)
