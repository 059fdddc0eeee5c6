"""The preprocessor of IL. The oracle is `gcc -E` where it is installed, compared token by token; the expected texts stand here for when it is not."""

import ast
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import il_programs
import pytest
from counting import ends
from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.diagnostics import MAX_ERRORS, LightNetError, LimitError, SourceLoc
from lightnet.frontends.il.expansion import Limits
from lightnet.frontends.il.lexer import _TOKEN, NEWLINE, SPACE
from lightnet.frontends.il.preprocessor import preprocess

NETS = Path(__file__).parents[2] / "data" / "nets" / "il"
GCC = shutil.which("gcc")


def tokens(text: str) -> list[str]:
    return [m[0] for m in _TOKEN.finditer(text) if m.lastindex not in (SPACE, NEWLINE)]


def expand(text: str, **options) -> str:
    return preprocess(text, "net.net", **options).text


def gcc(text: str, *options: str) -> list[str] | None:
    """What gcc -E makes of a text; None if it calls it an error."""
    command = [GCC, "-E", "-P", "-w", "-Ulinux", "-Uunix", *options, "-x", "c", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return tokens(done.stdout) if done.returncode == 0 else None


# Each case: a program, and its tokens, blank-separated.
CASES = {
    "object-like": ("#define A 1\nA B A", "1 B 1"),
    "a name defined later is found when the body is read again": ("#define A B\n#define B 2\nA", "2"),
    "a macro is not expanded within itself": ("#define f(x) f(x+1)\nf(f(1))", "f ( f ( 1 + 1 ) + 1 )"),
    "mutual recursion stops": ("#define f g\n#define g f\nf g f", "f g f"),
    "a frozen name stays frozen": ("#define ff(x) x ff\nff(1)(2)", "1 ff ( 2 )"),
    "a name within a call that its own macro began stays frozen where the call is read again": (
        "#define id(x) <x>\n#define obj id(obj\n#define two(x, y) x|y\n#define f(a) two(a f\nobj )\nf(1)(2), f)", "< obj > 1 f ( 2 ) | f",
    ),
    "a call may be completed after the replacement": ("#define f(x) [x]\n#define g f\ng(1) g (2) g\n(3) g", "[ 1 ] [ 2 ] [ 3 ] f"),
    "function-like without parentheses is a name": ("#define f(x) x\nf f+1 f", "f f + 1 f"),
    "white space before the parenthesis makes it object-like": ("#define f (x)\nf(1)", "( x ) ( 1 )"),
    "nested parentheses hold commas": ("#define f(a,b) b a\nf((1,2),3)", "3 ( 1 , 2 )"),
    "arguments over lines": ("#define f(a,\\\n b) b-a\nf(1,\n\n2\n)", "2 - 1"),
    "empty arguments": ("#define f(a,b) <a|b>\nf(,) f( ,1)", "< | > < | 1 >"),
    "no arguments": ("#define f() 1\nf() f( )", "1 1"),
    "paste": ("#define f(a) a##_w _##a\nf(x)", "x_w _x"),
    "paste takes arguments unexpanded": ("#define A 1\n#define f(a) a##2 a\nf(A)", "A2 1"),
    "paste with an empty side": ("#define f(a,b) a##b\nf(,x) f(x,) [f(,)] f(,)f(1,2)", "x x [ ] 12"),
    "paste of several tokens joins the inner ones": ("#define f(a,b) a##b\nf(1 2,3 4)", "1 23 4"),
    "the pasted name is expanded": ("#define AB 7\n#define f(a,b) a##b\nf(A,B)", "7"),
    "paste through a second macro": ("#define A x\n#define c(a,b) a##b\n#define d(a,b) c(a,b)\nd(A,1) c(A,1)", "x1 A1"),
    "paste in an object-like macro": ("#define A x ## y\nA", "xy"),
    "chain of pastes": ("#define f(a,b,c) a##b##c\nf(1,,3) f(,,3) f(x,y,z)", "13 3 xyz"),
    "stringize": ('#define s(x) #x\ns( a  b ) s("q\\n") s() s(\'"\')', '"a b" "\\"q\\\\n\\"" "" "\'\\"\'"'),
    "stringize takes the argument unexpanded": ("#define A 1\n#define s(x) #x\n#define t(x) s(x)\ns(A) t(A)", '"A" "1"'),
    "variable arguments": ("#define v(a, ...) a __VA_ARGS__\nv(1) v(1,2) v(1,2,3) v(1,(2,3))", "1 1 2 1 2 , 3 1 ( 2 , 3 )"),
    "the comma goes with the variable argument": ("#define v(a, ...) a, ## __VA_ARGS__\nv(1) v(1,2,3)", "1 1 , 2 , 3"),
    "named variable argument": ("#define v(a, r...) a(r)\nv(1,2,3)", "1 ( 2 , 3 )"),
    "redefinition and undef": ("#define A 1\nA\n#undef A\nA\n#define A 2\nA", "1 A 2"),
    "conditions": ("#if 1\na\n#else\nb\n#endif\n#if 0\nc\n#elif 1\nd\n#elif 1/0\ne\n#endif", "a d"),
    "nested conditions in a group that is skipped": ("#if 0\n#if 1\na\n#else\nb\n#endif\n#bad\n#else\nc\n#endif", "c"),
    "ifdef and ifndef": ("#define A\n#ifdef A\n1\n#endif\n#ifndef A\n2\n#else\n3\n#endif", "1 3"),
    "defined": ("#define A\n#if defined A && defined(A) && !defined B\n1\n#endif", "1"),
    "defined in a macro's body": ("#define X 1\n#define HAS defined(X)\n#if HAS\n1\n#endif", "1"),
    "unknown names are 0": ("#if foo\n1\n#else\n2\n#endif", "2"),
    "arithmetic": ("#if (3*4-2)/5 == 2 && -7/2 == -3 && -7%3 == -1 && (1<<4) == 0x10 && 'a' == 97 && 010 == 8\n1\n#endif", "1"),
    "unsigned arithmetic": ("#if -1 > 0u && ~0u == 0xffffffffffffffff && (2 ? -1 : 0u) > 0\n1\n#endif", "1"),
    "only what is needed is evaluated": ("#if 1 || 1/0\n1\n#endif\n#if 0 && 1%0\n#else\n2\n#endif\n#if 1 ? 2 : 1/0\n3\n#endif", "1 2 3"),
    "precedence": ("#if 1 | 2 ^ 3 & 4 == 4 && 1 < 2 == 1\n1\n#endif\n#if 2 - 1 - 1 == 0 && 2 * 3 % 4 == 2\n2\n#endif", "1 2"),
    "comments": ("a/* x */b // y\n/* 1\n2 */ c \"/* no */\" '//'", "a b c \"/* no */\" '//'"),
    "a comment with a line end does not end a directive": ("#define A 1 /* x\n y */ + 2\nA", "1 + 2"),
    "line continuation inside a name": ("#define AB 1\nA\\\nB", "1"),
    "line continuation with trailing blanks": ("#define A 1 \\  \n 2\nA", "1 2"),
    "carriage returns": ("#define A 1 \\\r\n 2\r\nA\r\n", "1 2"),
    "a null directive, white space in one, #line": ("#\n # define A 1\n#line 7\nA", "1"),
    "numbers keep their signs and letters": ("#define e 9\n1e+5 1.e 0x1p-3 .5e 1e-e", "1e+5 1.e 0x1p-3 .5e 1e-e"),
    "minus before a negative macro": ("#define N -5\na=-N", "a = - - 5"),
    "names do not join": ("#define A x\nA A.A", "x x . x"),
    "dollar": ("#define c 4\n${eval c-1} x$y", "$ { eval 4 - 1 } x$y"),
    "the name of a macro inside a string": ('#define A 1\n"A" A', '"A" 1'),
    "an argument is expanded apart from the rest": ("#define f(x) x (1)\n#define g(x) [x]\nf(g) f(f)", "[ 1 ] f ( 1 )"),
    "predefined": ("__LINE__\n#define L __LINE__\nL\n__STDC__", "1 3 1"),
    "elifdef and elifndef": (
        "#define A\n#if 0\n1\n#elifdef A\n2\n#elifndef B\n3\n#endif\n#ifdef B\n#elifdef B\n4\n#elifndef B\n5\n#else\n6\n#endif", "2 5",
    ),
    "elifdef in a group that is skipped": ("#if 0\n#if 0\n#elifdef A\n1\n#endif\n#elifndef A\n2\n#endif\n#if 1\n3\n#elifdef\n4\n#endif", "2 3"),
    "the comma operator in a condition": ("#if (1,2) == 2\n1\n#endif\n#if 1,0\n#else\n2\n#endif\n#if 0 ? 1 : 0,3\n3\n#endif", "1 2 3"),
    "digraphs": ("%:define f(a) %:a a%:%:_ <: %>\nf(x) %:%: <::>%:", '"x" x_ <: %> %:%: <: :> %:'),
    "#line": ('#line 7\n__LINE__ \\\n __LINE__\n#define N 30\n#line N "a.y"\n\n__LINE__ __FILE__\n# 3 "b\\\\c"\n__LINE__ __FILE__',
              '7 8 31 "a.y" 3 "b\\\\c"'),
    "__VA_OPT__": ("#define f(x,...) f(x __VA_OPT__(,) __VA_ARGS__)\nf(1) f(1,2) f(1,) f()", "f(1) f(1 , 2) f(1) f()"),
    "__VA_OPT__ looks at the expanded argument": ("#define E\n#define f(...) [__VA_OPT__(x)]\nf(E) f(E E) f(E 1) f(,)", "[] [] [x] [x]"),
    "__VA_OPT__ as an operand of ##": ("#define f(x,...) a ## __VA_OPT__(x y) ## b\nf(1) f(1,2) f(,2)\n#define g(x,...) a ## __VA_OPT__(x x x) ## b\ng(f,1) g(,1)",
                                  "ab a1 yb a yb af f fb a b"),
    "# __VA_OPT__": ('#define f(x,...) #__VA_OPT__(x ## x  x "q")\nf(1) f(1,2)', '"" "11 1 \\"q\\""'),
    "P1042 examples": (
        "#define F(a,...) f(0 __VA_OPT__(,) __VA_ARGS__)\n#define EMP\nF(EMP) F(,EMP)\n#define H3(X, ...) #__VA_OPT__(X##X X##X)\nH3(, 0)\n"
        "#define H4(X, ...) __VA_OPT__(a X ## X) ## b\nH4(, 1)\n#define H5A(...) __VA_OPT__()/**/__VA_OPT__()\n#define H5B(X) a ## X ## b\n"
        "#define H5C(X) H5B(X)\nH5C(H5A())", 'f(0) f(0) "" a b ab',
    ),
    "__VA_OPT__ elsewhere is a name": ("#define f(x) __VA_OPT__(x)\nf(1) __VA_OPT__(2)", "__VA_OPT__(1) __VA_OPT__(2)"),
    "__has_include": (
        '#ifdef __has_include\n1\n#endif\n#if defined(__has_include) && !__has_include("nothing.h")\n2\n#endif\n#define H <none.h>\n'
        "#if __has_include(H) || __has_include(<no/ne.h>)\n3\n#endif", "1 2",
    ),
    "strings with a prefix": ('#define L 1\n#define f(a,b) a##b #b\nL"x" u8"y" L "z" f(L,"q") f(u,8"")\n#if L\'a\' == 97\nL\'x\'\n#endif',
                              'L"x" u8"y" 1 "z" L"q" "\\"q\\"" u8 "" "8\\"\\"" L\'x\''),
    "push_macro and pop_macro": ('#define A 1\n#pragma push_macro("A")\n#undef A\nA\n#pragma pop_macro("A")\nA\n#pragma pop_macro("A")\nA', "A 1 1"),
    "C99 example 3": (
        "#define x 3\n#define f(a) f(x * (a))\n#undef x\n#define x 2\n#define g f\n#define z z[0]\n#define h g(~\n"
        "#define m(a) a(w)\n#define w 0,1\n#define t(a) a\n#define p() int\n#define q(x) x\n#define r(x,y) x ## y\n"
        "f(y+1) + f(f(z)) % t(t(g)(0) + t)(1);\ng(x+(3,4)-w) | h 5) & m\n(f)^m(m);\np() i[q()] = { q(1), r(2,3), r(4,), r(,5), r(,) };",
        "f ( 2 * ( y + 1 ) ) + f ( 2 * ( f ( 2 * ( z [ 0 ] ) ) ) ) % f ( 2 * ( 0 ) ) + t ( 1 ) ; f ( 2 * ( 2 + ( 3 , 4 ) - 0 , 1 ) ) | "
        "f ( 2 * ( ~ 5 ) ) & f ( 2 * ( 0 , 1 ) ) ^ m ( 0 , 1 ) ; int i [ ] = { 1 , 23 , 4 , 5 , } ;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    text, expected = CASES[name]
    assert tokens(expand(text)) == tokens(expected)


@pytest.mark.skipif(not GCC, reason="gcc is the oracle")
@pytest.mark.parametrize("name", CASES)
def test_case_is_what_gcc_says(name):
    text, expected = CASES[name]
    assert gcc(text) == tokens(expected)


@pytest.mark.skipif(not GCC, reason="gcc is the oracle")
@pytest.mark.parametrize("net", sorted(NETS.glob("*.net")), ids=lambda p: p.stem)
def test_network_as_gcc(net):
    text = net.read_text()
    assert tokens(preprocess(text, str(net)).text) == gcc(text)


_WORD = st.sampled_from(["a", "b", "f", "g", "h", "x", "1", "2", ",", "(", ")", "+", "f(", "g(", "h(", " ", "-"])
_BODY = st.lists(st.one_of(_WORD, st.sampled_from(["x##y", "#x", "x", "y", "x##_", "__VA_ARGS__"])), max_size=7).map(
    " ".join
)


@pytest.mark.skipif(not GCC, reason="gcc is the oracle")
@settings(max_examples=60, deadline=None)
@given(_BODY, _BODY, _BODY, st.lists(_WORD, max_size=14).map("".join))
def test_random_programs_as_gcc(f, g, a, text):
    """Random macros and random uses: the same tokens as gcc, or both find a mistake (gcc accepts some ## that makes no token)."""
    program = (
        f"#define f(x,y) {f}\n#define g(x,...) {g.replace('y', 'x')}\n#define a {a}\n#define h(x) f(x,a)\n{text}\n"
    )
    expected = gcc(program)
    try:
        ours = tokens(expand(program))
    except LightNetError:
        assert expected is None
        return
    assert expected is not None and ours == expected


#: Programs of the comparison with gcc; LIGHTNET_IL_PROGRAMS=20000 is a long run, from LIGHTNET_IL_SEED on.
PROGRAM_COUNT = int(os.environ.get("LIGHTNET_IL_PROGRAMS", "80"))
SEED = int(os.environ.get("LIGHTNET_IL_SEED", "0"))


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headers")
    for name, text in il_programs.HEADERS.items():
        (folder / name).write_text(text)
    return folder


def ours(text: str, folder: Path) -> list[str] | None:
    """What we make of a text; None for an error."""
    try:
        return tokens(preprocess(text, "<stdin>", include_dirs=[str(folder)]).text)
    except LightNetError as e:
        assert e.loc is not None or isinstance(e, LimitError)
        return None


@pytest.mark.skipif(not GCC, reason="gcc is the oracle")
@pytest.mark.parametrize("part", range(8))
def test_program_of_every_kind_as_gcc(headers, part):
    """Macros of all kinds, `__VA_OPT__`, digraphs, conditions with commas, #line, #include: the same tokens as gcc, or an error in both."""
    for seed in range(SEED + part, SEED + PROGRAM_COUNT, 8):
        text = il_programs.Program(random.Random(seed)).text
        assert ours(text, headers) == gcc(text, "-I", str(headers)), f"seed {seed}:\n{text}"


ERRORS = {
    "#error": ("a\n#error no  such 'thing'", 2, "#error no such 'thing'"),
    "unterminated #if": ("#if 1\na", 1, "#if without #endif"),
    "#else twice": ("#if 1\n#else\n#else\n#endif", 3, "#else after #else"),
    "#elif after #else": ("#if 1\n#else\n#elif 1\n#endif", 3, "#elif after #else"),
    "#endif alone": ("\n#endif", 2, "#endif without #if"),
    "unknown directive": ("#frobnicate", 1, "unknown directive '#frobnicate'"),
    "too few arguments": ("#define f(a,b) a\n\nf(1)", 3, "macro 'f' takes 2 arguments, not 1"),
    "too many arguments": ("#define f(a) a\nf(1,2)", 2, "macro 'f' takes 1 arguments, not 2"),
    "too few before the variable ones": ("#define f(a,b,...) a\nf(1)", 2, "macro 'f' takes 2 or more arguments, not 1"),
    "unterminated call": ("#define f(a) a\nf(1,\n2", 2, "unterminated call of macro 'f'"),
    "paste": ("#define f(a,b) a##b\nf(+,x)", 2, "## of '+' and 'x' gives no valid token"),
    "paste at the end": ("#define f(a) a##\n", 1, "'##' cannot stand at an end of a macro's body"),
    "stringize of no parameter": ("#define f(a) #b\n", 1, "'#' has to stand before a parameter"),
    "define without a name": ("#define\n", 1, "#define needs a name"),
    "define defined": ("#define defined 1\n", 1, "'defined' cannot be defined"),
    "two equal parameters": ("#define f(a,a) 1\n", 1, "two parameters 'a'"),
    "parameter list": ("#define f(a b) 1\n", 1, "has no ')'"),
    "division by zero": ("#if 1/0\n#endif", 1, "division by zero"),
    "empty condition": ("#if\n#endif", 1, "the condition is empty"),
    "condition": ("#if 1 +\n#endif", 1, "ends too early"),
    "condition: float": ("#if 1.5\n#endif", 1, "'1.5' is not an integer"),
    "condition: nesting": ("#if " + "(" * 1000 + "1" + ")" * 1000 + "\n#endif", 1, "nested too deeply"),
    "unterminated string": ('a\n"b\n', 2, "unterminated string"),
    "unterminated comment": ("a\n/* b\n", 2, "unterminated comment"),
    "an #elifdef without a name": ("#if 0\n#elifdef\n#endif", 2, "expected a macro's name behind #elifdef"),
    "an #elifdef after #else": ("#if 0\n#else\n#elifdef A\n#endif", 3, "#elifdef after #else"),
    "a directive that is misspelled": ("#elsif 1", 1, "unknown directive '#elsif'; did you mean #elif or #else?"),
    "#line without a number": ("#line x", 1, "expected a line number up to 2147483647 behind #line, got 'x'"),
    "#line with a large number": ("#line 2147483648", 1, "expected a line number"),
    "#line with another name": ("#line 3 <x>", 1, "expected a file's name in quotes behind the line number, got '<'"),
    "a line marker": ('# 3 x "y"', 1, "expected a file's name in quotes"),
    "nested __VA_OPT__": ("#define f(...) __VA_OPT__(a __VA_OPT__(b))", 1, "__VA_OPT__ may not stand in a __VA_OPT__"),
    "open __VA_OPT__": ("#define f(...) __VA_OPT__(a", 1, "__VA_OPT__ has no ')'"),
    "__VA_OPT__ alone": ("#define f(...) __VA_OPT__ a", 1, "expected '(' behind __VA_OPT__"),
    "## in __VA_OPT__": ("#define f(...) __VA_OPT__(## a)", 1, "'##' cannot stand at an end of __VA_OPT__"),
    "define __VA_OPT__": ("#define __VA_OPT__ 1", 1, "'__VA_OPT__' cannot be defined"),
    "__has_include in text": ('__has_include("x")', 1, "__has_include stands outside of #if"),
    "__has_include of nothing": (
        "#if __has_include\n#endif",
        1,
        "expected a file's name in parentheses behind __has_include",
    ),
    "__has_include without an end": ('#if __has_include("x"\n#endif', 1, "expected a file's name in parentheses"),
    "__has_include of a number": ("#if __has_include(1)\n#endif", 1, 'expected "FILE" or <FILE> behind __has_include'),
    "a comma at the end of a condition": ("#if 1,\n#endif", 1, "ends too early"),
    "#include of nothing": ("#include\n", 1, 'expected "FILE" or <FILE> behind #include'),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    text, line, message = ERRORS[name]
    with pytest.raises(LightNetError) as e:
        expand(text)
    assert message in e.value.message
    assert e.value.loc is not None and (e.value.loc.file, e.value.loc.line) == ("net.net", line)


def test_errors_are_found_together_and_cascades_are_not():
    """Each mistake once: a failed call gives its name, a failed #if counts as false."""
    text = "#define f(a) ##a\n#frob\nf(1,2) f(1)\n#if 1 +\n#bad\n#endif\n#include <x>\n#endif\n"
    with pytest.raises(LightNetError) as e:
        expand(text)
    found = [e.value, *e.value.others]
    assert [x.loc.line for x in found] == [1, 2, 4, 7, 8]
    with pytest.raises(LightNetError) as e:
        expand("#define f(a) a##_\n#define g(a) a##2\nf(1)\ng(1,2) f(+) g(.) g(-)")
    assert [(x.loc.line, x.loc.col) for x in (e.value, *e.value.others)] == [(4, 1), (4, 8), (4, 18)]


def test_only_so_many_errors_are_reported():
    with pytest.raises(LightNetError) as e:
        expand("#frob\n" * 1000)
    found = [e.value, *e.value.others]
    assert len(found) == MAX_ERRORS + 1 and isinstance(found[-1], LimitError)
    assert e.value.render().count("error: ") == MAX_ERRORS + 1


def test_line_directives_move_messages_and_not_the_line_that_is_shown():
    text = '\n#line 70 "made.y"\n\n  #frob\n# 5\n#bad\n'
    with pytest.raises(LightNetError) as e:
        expand(text)
    found = [e.value, *e.value.others]
    assert [(x.loc, x.source_line) for x in found] == [
        (SourceLoc("made.y", 71, 4), "  #frob"),
        (SourceLoc("made.y", 5, 2), "#bad"),
    ]
    with pytest.raises(LightNetError) as e:
        expand(text, physical=True)
    assert [x.loc for x in (e.value, *e.value.others)] == [SourceLoc("net.net", 4, 4), SourceLoc("net.net", 6, 2)]


@pytest.mark.parametrize("epoch", ["0", "86399", "1700000000", "253402300799"])
def test_date_and_time_are_those_of_the_epoch_that_is_given(monkeypatch, epoch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    found = tokens(expand("__DATE__ __TIME__"))
    if epoch == "1700000000":
        assert found == ['"Nov 14 2023"', '"22:13:20"']
    if GCC:
        assert found == gcc("__DATE__ __TIME__")


def test_date_and_time_without_an_epoch_are_now(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    before = time.localtime()
    date, clock = tokens(expand("__DATE__ __TIME__ __TIME__"))[:2]
    read = time.strptime(f"{date} {clock}", '"%b %d %Y" "%H:%M:%S"')
    assert before <= read <= time.localtime() or read[:6] in (before[:6], time.localtime()[:6])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(LightNetError, match="SOURCE_DATE_EPOCH should be a number of seconds"):
        expand("__DATE__")


def test_error_inside_macros_names_the_line_of_the_user_and_the_macros():
    with pytest.raises(LightNetError) as e:
        expand("#define cat(a, b) a##b\n#define outer(x) \\\n    cat(x, +)\n\n   outer(y)\n")
    assert e.value.loc == SourceLoc("net.net", 5, 4)
    assert e.value.source_line == "   outer(y)"
    assert e.value.notes == [
        (SourceLoc("net.net", 1, 9), "in expansion of macro 'cat'"),
        (SourceLoc("net.net", 2, 9), "in expansion of macro 'outer'"),
    ]


def test_warnings_and_defines():
    found = preprocess("#define A 1\n#define A 1\n#define A 2\n#warning look  here\nA B C", "n", defines=["B=4", "C"])
    assert [m for _, m in found.warnings] == ["'A' is defined again", "#warning look here"]
    assert tokens(found.text) == ["2", "4", "1"]


BOMBS = {
    "doubling": "#define a0 x x\n" + "".join(f"#define a{i} a{i-1} a{i-1}\n" for i in range(1, 40)) + "a39",
    "doubling calls": "#define f(x) x x\n" + "f(" * 50 + "y" + ")" * 50,
    "deep calls": "#define f(x) x\n" + "f(" * 5000 + "y" + ")" * 5000,
    "pasted length": "#define c(x) x##x\n#define d(x) c(x)\n#define z0 xxxxxxxx\n"
    + "".join(f"#define z{i} d(z{i-1})\n" for i in range(1, 40)) + "z39",
    "long strings": '#define s0 "' + "a" * 100_000 + '"\n' + "".join(f"#define s{i} s{i-1} s{i-1}\n" for i in range(1, 17)) + "s16",
    "nested conditions": "#if 1\n" * 1000,
    "empty expansions": "#define e\n#define e0 e e\n" + "".join(f"#define e{i} e{i-1} e{i-1}\n" for i in range(1, 40)) + "e39",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_refused_quickly(name):
    with ends(), pytest.raises(LightNetError):
        expand(BOMBS[name])


@pytest.fixture
def folder(tmp_path):
    """A network's folder with a file below it, an include folder, and a secret outside both."""
    for name, text in {
        "net/sub/inner.h": '#include "side.h"\n#include "../top.h"\n',
        "net/sub/side.h": "side",
        "net/top.h": "top",
        "lib/lib.h": "lib",
        "secret": "SECRET",
        "net/self.h": '#include "self.h"\n#include "self.h"\n',
        "net/broken.h": "a\n#error here\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def included(folder, line: str, **options) -> str:
    return preprocess(line + "\n", str(folder / "net" / "main.net"), **options).text.strip()


def test_include_reads_beside_the_includer_and_in_the_folders(folder):
    assert included(folder, '#include "sub/inner.h"') == "side top"
    assert included(folder, "#include <lib.h>", include_dirs=[str(folder / "lib")]) == "lib"
    assert included(folder, '#include "lib.h"', include_dirs=[str(folder / "lib")]) == "lib"
    assert included(folder, '#define F "top.h"\n#include F') == "top"
    with pytest.raises(LightNetError, match="no such file"):
        included(folder, "#include <top.h>")


def test_include_reads_above_the_includer_and_absolute_paths_where_a_folder_is_named(folder):
    """`-I` says which folders may be read, however the file is named."""
    (folder / "net" / "nn").mkdir()
    (folder / "macros.h").write_text("macros")
    main = str(folder / "net" / "nn" / "main.net")

    def read(line: str, *dirs: str) -> str:
        return preprocess(line + "\n", main, include_dirs=[str(folder / d) for d in dirs]).text.strip()

    assert read('#include "../top.h"', "net") == "top"
    assert read('#include "../../macros.h"', ".") == "macros"
    assert read('#include "../sub/inner.h"', "net") == "side top"
    assert read(f'#include "{folder}/macros.h"', ".") == "macros"
    for line, dirs in (('#include "../top.h"', ()), ('#include "../../macros.h"', ("net",)), (f'#include "{folder}/macros.h"', ("net",)),
                       (f'#include "{main}"', ())):  # fmt: skip
        with pytest.raises(LightNetError, match=r"refused: it is outside .* \(name its folder with -I\)"):
            read(line, *dirs)


def test_has_include_says_what_include_would_read(folder):
    def has(name: str, **options) -> bool:
        return included(folder, f"#if __has_include({name})\nyes\n#endif", **options) == "yes"

    os.link(folder / "secret", folder / "net" / "hard")
    assert has('"top.h"') and has('"sub/inner.h"') and not has("<top.h>") and not has('"sub"')
    assert has("<lib.h>", include_dirs=[str(folder / "lib")]) and has('"lib.h"', include_dirs=[str(folder / "lib")])
    # What may not be read counts as what is not there, so that nothing is learned about it.
    assert not any(map(has, ('"../secret"', '"/etc/passwd"', '"hard"', '"nothing.h"')))


def test_import_reads_a_file_once(folder):
    assert included(folder, '#import "top.h"\n#import "top.h"\n#include "top.h"') == "top"


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret", "sub/../../secret", "link", "linked/secret", "hard", "fifo", "sub"]
)
def test_include_refuses_what_it_may_not_read(folder, name):
    (folder / "net" / "link").symlink_to(folder / "secret")
    (folder / "net" / "linked").symlink_to(folder)
    os.link(folder / "secret", folder / "net" / "hard")
    os.mkfifo(folder / "net" / "fifo")
    with pytest.raises(LightNetError, match="refused") as e:
        included(folder, f'x\n#include "{name}"')
    assert e.value.loc is not None and e.value.loc.line == 2
    assert "SECRET" not in e.value.render()


def test_a_refusal_does_not_say_whether_the_file_exists(folder):
    def message(name):
        with pytest.raises(LightNetError) as e:
            included(folder, f'#include "../{name}"')
        return e.value.message.replace(name, "NAME")

    assert message("secret") == message("nothing")


def test_calls_beside_each_other_are_not_nested():
    """However many: a limit is of calls within arguments of calls."""
    calls = " ".join(["F(F(x))"] * (Limits().nesting + 5))
    assert expand(f"#define F(a) a + a\n{calls}").split().count("x") == 4 * (Limits().nesting + 5)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("(1 ? 5 : 7) == 5", True), ("(0 ? 5 : 7) == 7", True), ("(2 ? 3 : 4) == 3", True), ("(1 ? -1 : 0) > 0", False), ("(1 ? -1 : 0u) > 0", True),
        ("(0 ? 0u : -1) > 0", True), ("(0 ? 0 : -1) > 0", False), ("(1 ? 2 : 1 / 0) == 2", True), ("(0 ? 1 / 0 : 2) == 2", True),
        ("(0 ? 1 : 0 ? 2 : 3) == 3", True), ("(1 ? 0 ? 4 : 5 : 6) == 5", True), ("(0u ? 1 : -1) < 0", True),
    ],
)  # fmt: skip
def test_a_choice_in_a_condition(condition: str, holds: bool) -> None:
    """One side is evaluated; the type is that of both, so that an unsigned other side makes -1 large (C11, 6.10.1 and 6.5.15)."""
    assert expand(f"#if {condition}\nyes\n#else\nno\n#endif").split() == ["yes" if holds else "no"]


@pytest.mark.parametrize("escape", [*"ntrabfv\\'\"?", "0", "7", "101", "x41", "x7f"])
def test_an_escape_is_the_character_that_python_has_for_it(escape: str) -> None:
    """All of C's simple escapes (C11, 6.4.4.4), octal and hexadecimal ones; Python has the same, but for the question mark."""
    value = ord("?") if escape == "?" else ord(ast.literal_eval(f"'\\{escape}'"))
    assert expand(f"#if '\\{escape}' == {value}\nyes\n#else\nno\n#endif").split() == ["yes"]


def test_calls_within_arguments_are_nested_as_deeply_as_the_limit_says():
    most = Limits().nesting

    def nested(depth: int) -> str:
        return expand("#define F(a) a\n" + "F(" * depth + "x" + ")" * depth)

    assert nested(most).split() == ["x"]
    with pytest.raises(LightNetError, match="macro calls are nested too deeply"):
        nested(most + 1)


def test_include_of_itself_ends(folder):
    with pytest.raises(LightNetError, match="nested too deeply"):
        included(folder, '#include "self.h"')


def test_error_in_an_included_file_names_both(folder):
    with pytest.raises(LightNetError) as e:
        included(folder, '\n#include "broken.h"')
    assert e.value.loc == SourceLoc(str(folder / "net" / "broken.h"), 2, 2)
    assert e.value.notes[-1] == (SourceLoc(str(folder / "net" / "main.net"), 2, 2), "included from here")
