"""Where IL changes its mind: each limit at the last text that is taken and the first that is not, each kind of number at the edge of its
words, each malformed directive. Conditions are worked as C99 6.10.1 says and GCC does, `${eval}` as perl 5.36 prints."""

from __future__ import annotations

import math
import resource

import pytest

from lightnet.diagnostics import LightNetError, LimitError, SourceLoc
from lightnet.frontends import il
from lightnet.frontends.il import eval_expr, evals, lexer, reader
from lightnet.frontends.il.eval_expr import evaluate_perl
from lightnet.frontends.il.eval_numbers import complement, perl_bits, perl_number, shifted
from lightnet.frontends.il.expansion import Limits
from lightnet.frontends.il.lexer import _TOKEN, NEWLINE, SPACE
from lightnet.frontends.il.preprocessor import preprocess

OP = "a(x=t || )"


def tokens(text: str, **options) -> str:
    """What is left of a text, with one blank between tokens."""
    found = preprocess(text, "net.net", **options).text
    return " ".join(m[0] for m in _TOKEN.finditer(found) if m.lastindex not in (SPACE, NEWLINE))


def refusal(function, *args, **options) -> str:
    with pytest.raises(LightNetError) as caught:
        function(*args, **options)
    return caught.value.message


HOLDS = """
(1 << 64) == 0; (1 << 63) < 0; (-1 >> 63) == -1; (-1 >> 64) == -1; (1 << -1) == 0; (-1 << -64) == -1; (4 >> -1) == 8
(0x7fffffffffffffff + 1) < 0; 0x7fffffffffffffff > -1; !(0x8000000000000000 > -1); 18446744073709551615 == -1
+1 == 1; -+1 < 0; ~+0 == -1; !+1 == 0
(0 ? 1u / 0 : -1) > 0; (0 ? 1 / 0u : -1) > 0; (0 ? 1 / 0 : -1) < 0; (0 ? 1 % 0u : -1) > 0
'\\n' == 10; '\\0' == 0; '\\377' == -1; '\\177' == 127; '\\200' == -128; '\\x7f' == 127; '\\x80' == -128; '\\'' == 39; '\\\\' == 92; '?' == 63
(0 / 5) == 0; (0 / -5) == 0; (-7 / 2) == -3; (7 / -2) == -3; (-7 / -2) == 3; (-7 % 2) == -1; (7 % -2) == 1; 010 == 8; 0b11 == 3; 1uL == 1
"""


def test_conditions_at_the_edges_of_words() -> None:
    for condition in HOLDS.replace("\n", ";").split(";"):
        if condition.strip():
            assert tokens(f"#if {condition}\nyes\n#endif") == "yes", condition
    digits = "0x" + "0" * 77 + "1"  # 80 characters
    assert tokens(f"#if {digits} == 1\nyes\n#endif") == "yes"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("18446744073709551616", "the integer '18446744073709551616' is too large"), ("09", "'09' is not an integer"), ("0x", "'0x' is not an integer"),
        ("0x" + "0" * 79, f"'0x{'0' * 38}' is not an integer"), ("1 2", "unexpected '2' in the condition"), ('"a"', "unexpected '\"a\"' in the condition"),
        ("(1", "expected ')' in the condition"), ("1 ? 2", "expected ':' in the condition"), ("1 % 0", "division by zero in the condition"),
        *((word, "unsupported character constant in the condition") for word in ("'ab'", "''", "'\\q'", "'\u00e9'", "'\\1234'", "'\\xfff'", "'a\\n'")),
    ],
)  # fmt: skip
def test_a_condition_that_is_none(condition: str, message: str) -> None:
    assert refusal(tokens, f"#if {condition}\n#endif") == message


DIRECTIVES = {
    "#undef": "expected a macro's name behind #undef", "#undef 3": "expected a macro's name behind #undef",
    "#ifdef\n#endif": "expected a macro's name behind #ifdef", "#ifndef 3\n#endif": "expected a macro's name behind #ifndef",
    "#line": "expected a line number up to 2147483647 behind #line, got ''", "#line 0x3": "expected a line number up to 2147483647 behind #line, got '0x3'",
    **{f"#if defined{rest}\n#endif": "'defined' needs a macro's name" for rest in ("", " 3", "(", "(A", "(A B)", "(3)", "()", " (")},
    '#include ""': 'expected "FILE" or <FILE> behind #include', "#include <>": 'expected "FILE" or <FILE> behind #include',
    '#include "a" "b"': 'expected "FILE" or <FILE> behind #include', "#include <a": 'expected "FILE" or <FILE> behind #include',
    "#include a>": 'expected "FILE" or <FILE> behind #include', "#import 3": 'expected "FILE" or <FILE> behind #import',
    '#define f(x) x\nf(\n#include "n"\n)': "#include inside the arguments of a macro", '#define f(x) x\nf(\n#import "n"\n)': "#import inside the arguments of a macro",
    "#define f(x) x\n#if f(1\n1)\n#endif": "unterminated call of macro 'f': expected ')'",
    "#define 3": "#define needs a name", "#define f(": "the parameter list of the macro has no ')'", "#define f(a": "the parameter list of the macro has no ')'",
    "#define f(a,": "the parameter list of the macro has no ')'", "#define f(a...": "the parameter list of the macro has no ')'",
    "#define f(..., a)": "the parameter list of the macro has no ')'", "#define f(a,)": "')' cannot be a parameter of a macro",
    "#define f(3)": "'3' cannot be a parameter of a macro", "#define f(__VA_ARGS__)": "'__VA_ARGS__' cannot be a parameter of a macro",
    "#define f(__VA_OPT__)": "'__VA_OPT__' cannot be a parameter of a macro", "#define f(+)": "'+' cannot be a parameter of a macro",
    "#define __VA_ARGS__ 1": "'__VA_ARGS__' cannot be defined",
}  # fmt: skip


def test_malformed_directives() -> None:
    for text, message in DIRECTIVES.items():
        with pytest.raises(LightNetError) as caught:
            tokens(text)
        assert caught.value.message == message, text


TEXTS = {
    "#define f(x) x\n#define g f(g)\ng g": "g g",  # a name that is being replaced stays, in an argument too
    "#define f(x) x\n#define g f(h)\n#define h g\ng h": "g h",
    "#define f( ) 1\n#define g(a, b...) a(b)\nf() g(1) g(1, 2, 3)": "1 1 ( ) 1 ( 2 , 3 )",
    "#pragma push_macro(\"A\")\n#define A 1\nA\n#pragma pop_macro(\"A\")\nA": "1 A",  # what was not defined is not again
    "#define A 1\n#pragma push_macro(A)\n#undef A\n#pragma pop_macro(A)\nA": "A",  # without quotes it is another pragma
    '#define A 1\n#pragma push_macro("A") x\n#undef A\n#pragma pop_macro("A") x\nA': "A",
    '#define A 1\n#pragma keep_macro("A")\n#undef A\n#pragma pop_macro("A")\nA': "A",
    "#define A 1\n#ident \"x\"\n#sccs \"y\"\nA": "1",
    "#if defined A || defined(B)\n1\n#else\n2\n#endif": "2",
    "__COUNTER__ __COUNTER__ __INCLUDE_LEVEL__": "0 1 0",
}  # fmt: skip


def test_what_is_left_of_texts() -> None:
    for text, left in TEXTS.items():
        assert tokens(text) == left, text


@pytest.mark.parametrize(
    ("limit", "most", "text", "message"),
    [
        ("result", 3, "a b c", "the network has more than 2 tokens"),
        ("text", 3, "ab c", "the network is too large: more than 2 characters after preprocessing"),
        ("token_length", 4, "#define s(x) #x\ns(a b)", "# makes a string that is too long"),
        ("token_length", 4, "#define p(x) x##x\np(ab)", "## makes a token that is too long"),
        ("nesting", 2, "#define f(x) x\nf(f(1))", "macro calls are nested too deeply"),
    ],
)  # fmt: skip
def test_the_limits_of_a_translation(limit: str, most: int, text: str, message: str) -> None:
    """What a limit allows is taken, and one more is not."""
    assert tokens(text, limits=Limits(**{limit: most}))
    with pytest.raises(LimitError) as caught:
        preprocess(text, "net.net", limits=Limits(**{limit: most - 1}))
    assert caught.value.message == message


def test_files_that_are_included_are_counted_and_say_where_they_are(tmp_path) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "b").write_text("\n #frob\n")
    main = str(tmp_path / "net.net")
    text = '#include "a"\n#include "a"\n'
    assert preprocess(text, main, limits=Limits(includes=2)).text.split() == ["1", "1"]
    assert refusal(preprocess, text, main, limits=Limits(includes=1)) == "more than 1 #include"
    assert preprocess(text, main, limits=Limits(include_depth=1)).text.split() == ["1", "1"]
    assert refusal(preprocess, text, main, limits=Limits(include_depth=0)) == "#include is nested too deeply"
    for physical in (False, True):
        with pytest.raises(LightNetError) as caught:
            preprocess('#line 9\n#include "b"\n', main, physical=physical)
        assert caught.value.loc == SourceLoc(str(tmp_path / "b"), 2, 3)
        assert caught.value.notes == [(SourceLoc(main, 2 if physical else 9, 2), "included from here")]


def test_macros_around_a_mistake_are_named() -> None:
    """Up to eight of them; one that is predefined has no place."""
    with pytest.raises(LightNetError) as caught:
        il.reader.read("__STDC__", "net.net")
    assert caught.value.notes == [(None, "in expansion of macro '__STDC__'")]
    for count, shown in ((8, 8), (9, 9)):
        chain = "".join(f"#define a{k} a{k - 1}\n" for k in range(1, count))
        with pytest.raises(LightNetError) as caught:
            il.reader.read(f"#define a0 +\n{chain}a{count - 1}", "net.net")
        words = [note for _, note in caught.value.notes]
        assert len(words) == shown
        assert ("(1 more macros)" in words) == (count == 9), words
        assert words[0] == "in expansion of macro 'a0'" and words[-1] == f"in expansion of macro 'a{count - 1}'"
    with pytest.raises(LightNetError) as caught:
        tokens("#define f(x) x\nf(1, 2)")
    assert caught.value.notes == [(SourceLoc("net.net", 1, 9), "macro 'f' is defined here")]


def test_the_limits_of_the_reader(monkeypatch) -> None:
    assert refusal(il.reader.read, OP, "n", eval_mode="x") == "unknown eval mode 'x'; the modes are: arith, perl"
    warnings: list = []
    assert len(il.reader.read(f"#warning w\n{OP}; {OP}", "-", on_warning=lambda *w: warnings.append(w)).ops) == 2
    assert warnings == [(SourceLoc("<stdin>", 1, 2), "#warning w")]
    monkeypatch.setattr(reader, "MAX_OPS", 2)
    assert len(reader.read(f"{OP}; {OP}", "n").ops) == 2
    assert refusal(reader.read, f"{OP}; {OP}; {OP}", "n") == "the network has more than 2 operators"
    monkeypatch.setattr(lexer, "MAX_TOKENS", 3)
    source = lexer.TranslationMap().add("n", "a b")
    assert [[t[1] for t in line] for line in source.lines()] == [["a", "b"]]
    source = lexer.TranslationMap().add("n", "a b c")
    assert refusal(list, source.lines()) == "'n' is too large: more than 3 tokens"


def test_what_a_message_quotes_is_cut() -> None:
    """Up to 200 characters of a statement are shown whole, and an array's element up to its end."""
    for length, dots in ((200, ""), (201, "...")):
        message = refusal(reader.read, "a" * (length - 1) + "+", "n")
        assert message.endswith(f"wrong syntax in\n    {('a' * (length - 1) + '+')[:200]}{dots}")
    assert refusal(reader.read, "a(||x=[1 ? 2, 3])", "n").endswith("wrong array param element format in '1 ? 2'")
    assert refusal(reader.read, "a(||x=[1, ? (2), 3])", "n").endswith("wrong array param element format in '? (2)'")
    assert refusal(reader.read, "a(||x=[?", "n").endswith("wrong array param element format in '?'")


VALUES = """
9007199254740992.0 + 1 = 9.00719925474099e+15; 9007199254740991.0 + 1 = 9007199254740992; 9007199254740992 / 2 = 4.5035996273705e+15
9007199254740994 / 2 = 4503599627370497; 4611686018427387904.0 + 1.0 = 4.61168601842739e+18; 18446744073709551614 + 1 = 18446744073709551615
18446744073709551615 + 1 = 1.84467440737096e+19; -18446744073709551615 + 0 = -1.84467440737096e+19; -9223372036854775808 - 1 = -9.22337203685478e+18
5 % -36893488147419103232 = -3.68934881474191e+19; -5 % 36893488147419103232 = 3.68934881474191e+19; -5 % -36893488147419103232 = -5
5 % 36893488147419103232 = 5; 36893488147419103232 % 18446744073709551616 = 0; 0 ** 2 = 0; 0 ** 0 = 1; (-2) ** 3 = -8; (-3) ** 3 = -27
(-2) ** 63 = -9.22337203685478e+18; (-1e300) ** 1.5 > 0 =; (-1e300) ** 3 < 0 = 1; (-1e300) ** 2 > 0 = 1; 1e300 ** 3 > 0 = 1; 0 ** -1 > 1 = 1
sqrt(0) = 0; exp(1000) > 1 = 1; "9223372036854775808.0" + 0 = 9.22337203685478e+18; "11e17" + 3 = 1100000000000000003; "9223372036854774784e0" + 0 = 9223372036854774784; "12.0" + 0 = 12
1 << 63 = 9223372036854775808; 1 << 64 = 0; 1 << -1 = 0; 8 << -3 = 1; 1 >> 63 = 0; 18446744073709551615 >> 63 = 1; 18446744073709551615 >> 64 = 0
1 << 64.5 = 0; 1 << -1e9 = 0; 3 << 1.9 = 6; "a" | "bc" = cc; "abc" & "a" = a; "ab" ^ "ab" . "c" = \0\0c
"""


def test_perl_at_the_edges_of_its_numbers() -> None:
    for line in VALUES.replace("\n", ";").split(";"):
        expression, _, value = line.rpartition(" =")
        if line.strip():
            assert evaluate_perl(expression) == value.strip(" ").replace("\\0", "\0"), line
    assert evaluate_perl("0" * 78 + "7") == "7"
    assert evaluate_perl(" " * (eval_expr.MAX_LENGTH - 1) + "7") == "7"
    assert math.isnan(perl_number(math.nan))
    assert perl_bits("|", "\xff", "a") == "\xff" and perl_bits("&", "", "") == "" and perl_bits("|", "", "a") == "a"
    assert complement("\xff\0") == "\0\xff" and complement("") == "" and complement(0) == (1 << 64) - 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0" * 80, "; the number is too long"), ("min 1", "; expected '('"), ("abs(1, 2)", "abs() takes one argument in ${eval}, not 2"),
        ("min(1, 9**9**9 - 9**9**9)", "the value of ${eval} is not a finite number"), ("max(9**9**9 - 9**9**9, 1)", "the value of ${eval} is not a finite number"),
        ("sqrt(-1)", "square root of a negative number in ${eval}"), ("log(0)", "logarithm of a number that is not positive in ${eval}"),
        ("log(-1)", "logarithm of a number that is not positive in ${eval}"), ('"\u0100" & "a"', "'&' of strings in ${eval} takes characters of one byte"),
        ('~"\u0100"', "'~' of a string in ${eval} takes characters of one byte"), ("1 << (9**9**9 - 9**9**9)", "a bit operator in ${eval} takes no infinite number"),
        ("9**9**9 | 1", "a bit operator in ${eval} takes no infinite number"), ("5 % 0.5", "modulo by zero or of an infinite number in ${eval}"),
        ("5 % 9**9**9", "modulo by zero or of an infinite number in ${eval}"), ("9**9**9 % 5", "modulo by zero or of an infinite number in ${eval}"),
        (" " * eval_expr.MAX_LENGTH + "7", f"the expression of ${{eval}} is longer than {eval_expr.MAX_LENGTH} characters"),
    ],
    ids=lambda v: v[:20],
)  # fmt: skip
def test_perl_is_refused(expression: str, message: str) -> None:
    assert refusal(evaluate_perl, expression).endswith(message)


def test_a_shift_by_no_number() -> None:
    assert refusal(shifted, 1, math.nan) == "a bit operator in ${eval} takes no infinite number"


def test_the_limits_of_eval(monkeypatch) -> None:
    def params(text: str) -> dict:
        return {p.arg: p.value for p in reader.read(f"a(||{text})", "n").ops[0].params}

    nested = "x=${eval ${eval ${eval 1}+1}+1}"
    monkeypatch.setattr(evals, "MAX_DEPTH", 3)
    assert params(nested) == {"x": 3}
    monkeypatch.setattr(evals, "MAX_DEPTH", 2)
    assert refusal(params, nested) == "${eval} is nested too deeply"
    monkeypatch.setattr(evals, "MAX_TEXT", len(" a(||x=7"))
    assert params("x=${eval 7}") == {"x": 7}
    monkeypatch.setattr(evals, "MAX_TEXT", len(" a(||x="))
    assert refusal(params, "x=${eval 7}") == "the network is too large: more than 7 characters after ${eval}"


def test_what_perl_answers_is_checked() -> None:
    """Records of a length, a colon and bytes; '!' and a number where an expression failed; all that was asked for."""
    found = nodes = [evals._Eval(k) for k in range(2)]
    assert evals._records(b"1:a0:", found, nodes) == ["a", ""]
    assert evals._records(b"2:\xc3\xa93:1:2", found, nodes) == ["\u00e9", "1:2"]
    stopped = "Perl in ${eval} stopped: it took too long, used too much memory, or ended by itself"
    for out, message, at in (
        (b"", stopped, 0), (b"1:a", stopped, 1), (b"1:a2:b", stopped, 1), (b"1:ax", stopped, 1), (b"1:a:", stopped, 1), (b"1:a-1:", stopped, 1),
        (b"1:a1", stopped, 1), (b"!0:bad\nmore", "Perl in ${eval}: bad", 0), (b"1:a!1:worse", "Perl in ${eval}: worse", 1), (b"1:a!2:x", stopped, 1),
        (b"1:a!:x", stopped, 1), (b"1:a!1", stopped, 1),
    ):  # fmt: skip
        with pytest.raises(evals.EvalError) as caught:
            evals._records(out, found, nodes)
        assert (caught.value.error.message, caught.value.offset) == (message, at), out


def test_perl_gets_its_share_and_no_files_and_processes(monkeypatch) -> None:
    given: dict = {}
    monkeypatch.setattr(resource, "setrlimit", given.__setitem__)
    evals._limit_child()
    assert given == {
        resource.RLIMIT_CPU: (2, 2), resource.RLIMIT_AS: (1 << 29, 1 << 29), resource.RLIMIT_FSIZE: (0, 0), resource.RLIMIT_NPROC: (0, 0),
        resource.RLIMIT_CORE: (0, 0),
    }  # fmt: skip
