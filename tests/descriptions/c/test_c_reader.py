"""The C of descriptions: its parser, its machine against a C compiler, what is refused, and the bounds."""

from __future__ import annotations

import itertools
import math
import random
import re
import shutil
import struct
import subprocess
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.diagnostics import DescriptionWarning, LightNetError
from lightnet.ir.schema import Param
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.numbers import FLT_MAX
from lightnet_descriptions import c, code
from lightnet_descriptions.c import lexer, library, parser


def run(text: str, **names):
    m = c.CMachine({**library.NAMES, **names}, library.FUNCTIONS)
    return c.plain(m.run(c.parse_code(text), text))


@pytest.mark.parametrize(
    "text, value",
    [
        ("int s = 0; for (int i = 0; i < 5; i++) { if (i == 1) continue; if (i == 4) break; s += i; } return s;", 5),
        ("int a[] = {1, 2, 3}, *p = &a[1]; p[1] = 7; return *p + a[2];", 9), ("int a[3] = {4}; return a[0] + a[1] + a[2];", 4),
        ("int *p = ln_alloc(3 * sizeof(int)); p[2] = 5; return p[0] + p[2];", 5), ("int x = 3; int *p = &x; *p += 2; return x;", 5),
        ("int a[] = {1, 2, 3}; int *b = ln_clone(a, sizeof(a)); b[0] = 9; return a[0] * 10 + b[0];", 19),
        ("int a[] = {1, 2, 3}; int b[3]; memmove(b, a, sizeof(int) * 2); return b[0] + b[1] + b[2];", 3),
        ("return 7 / -2 * 100 + 7 % -2;", -299), ("return (int)-3.9 + (int)3.9f;", 0), ("return 1 << 4 | 3 & 6 ^ 1;", 19), ("return 0x1F + 010 + 'A';", 104),
        ("return 1 ? 2 : 1 / 0;", 2), ("return 0 && 1 / 0 || 1;", 1), ("int i = 3; int j = i++ + --i; return j * 10 + i;", 63),
        ('char s[8]; sprintf(s, "%d-%s", 4, "ab"); return ln_streq(s, "4-ab");', 1), ('return "a" "b";', "ab"), ("return (double)1 / 4;", 0.25),
        ("char s[LN_MAXLINE]; int d[] = {2, 3}; return ln_sprint_shape(s, 2, d);", "[2, 3]"), ("return TL_FLOAT == TL_FLOAT && TL_FLOAT != TL_INT8;", 1),
        ('return tl_dtype_from_str("TL_HUGE") == -1;', 1), ("int x; { int x = 4; } x = 1; return x;", 1), ("return;", None), ("int i, j, s = 0; for (i = 0, j = 9; i < j; i++, j -= 2) s += j; return s;", 21), ("int i = 4; return (i++, i += 2, i * 10);", 70), ("return sizeof(double) + sizeof(int *);", 16),
        ("return ceil(7.0 / 2) + floorf(2.5f);", 6.0), ("return tl_dtype_max_double(TL_INT8);", 127.0), ("int p[4]; int d[] = {5, 6}, s[] = {2, 2}, k[] = {3, 3}, o[] = {1, 1}; "
         'ln_autopadding_conv(p, d, k, s, o, 2, "SAME_UPPER"); return (int[]){p[0], p[1], p[2], p[3]};', (1, 0, 1, 1)),
    ],
)  # fmt: skip
def test_values(text, value):
    assert run(text) == value


@pytest.mark.parametrize(
    "text, place, message",
    [
        ("int x = 1;\nreturn x / 0;", "2:8", "a division by zero"), ("int a[2]; a[2] = 1;", "1:11", "index 2 of 'a' is not in 0..1"),
        ("return y;", "1:8", "unknown name 'y'"), ("int x; return x;", "1:15", "read before it is given a value"), ("int x = 3000000000;", "1:9", "does not fit int"),
        ("return ln_aloc(3);", "1:8", "did you mean ln_alloc"), ("return ln_streq(1);", "1:8", "takes 2 arguments, got 1"), ("return src;", None, None),
        ("src->dims[0] = 1;", "1:1", "cannot be written"), ("src->len = 1;", "1:1", "cannot be assigned"), ("return src->shape;", "1:8", "has no member 'shape'"),
        ("return src->dims[9];", "1:8", "is not in 0..1"), ("for (;;) { }", "1:", "more than 200000 steps"), ("char *p = ln_alloc(1 << 40);", "1:11", "more than 1048576 bytes"),
        ("int a[1 << 30];", "1:", "more than 1048576 bytes"), ("return 1 << 63 << 1;", "1:", "does not fit 64 bits"), ("do { } while (1);", "1:1", "a loop is `for"),
        ("return (1;", "1:10", "expected ')'"), ("x = ;", "1:5", "expected an expression"), ('return "abc;', "1:8", "unterminated string"), ("/* x", "1:1", "unterminated comment"),
        ("{ int x = 1;", "1:1", "no '}'"), ("int *p = ln_alloc(4); float *q = p;", None, None), ("int *p = 5;", "1:10", "is no int *"), ("ln_free(5);", "1:1", "was not allocated"),
        ('return "a" == "a";', "1:8", "ln_streq"), ("char s[2]; sprintf(s, \"abc\");", "1:12", "does not fit"), ("return 1.5 % 2;", "1:8", "takes integers"),
        ("5 = x;", "1:3", "only a variable"), ("return 09;", "1:8", "no octal number"), ("int f() { return 1; }", "1:6", "a function is not declared here"), ("break;", "1:1", "stand in loops"),
    ],
)  # fmt: skip
def test_refused(text, place, message):
    src = c.tensor("src", (2, 3), "TL_FLOAT")
    if message is None:
        run(text, src=src)
        return
    with pytest.raises(c.CodeError) as caught:
        run(text, src=src)
    assert message in caught.value.message
    assert str(caught.value.loc).startswith(f"<snippet>:{place}")


@pytest.mark.parametrize(
    "text, value",
    [
        ('char s[9]; sprintf(s, "%d%%", 4); return ln_streq(s, "4%");', 1), ('char s[9]; sprintf(s, "%ld %lu", 4, 5); return ln_streq(s, "4 5");', 1),
        ('char s[9]; snprintf(s, 3, "%s", "abcdef"); return strlen(s) * 10 + ln_streq(s, "ab");', 21),
        ('return strcmp("a", "b") * 10 + strcmp("b", "a") * 3 + strcmp("a", "a");', -7), ("float x = -1.0 / 0.0; return x < 0;", 1),
        ("double n = 0.0 / 0; return n != n;", 1), ("int *p = NULL; return p == NULL && !p;", 1), ("int *p = 0; return p == 0;", 1),
        ("int a[3]; return &a[2] - &a[0];", 2), ("int a[] = {1, 2, 3}; int *p = a + 2; return *(p - 1) * 10 + *p;", 23),
        ("int a[3]; return a == a && a != &a[1];", 1), ("return sizeof(int) + sizeof(double) * 10 + sizeof(char *) * 100 + sizeof(char) * 1000;", 1884),
        ("int a[3]; int x; double d; return sizeof(a) + sizeof x * 100 + sizeof(d) * 1000;", 8412), ("return sizeof(1) * 10 + sizeof(2.5);", 48),
        ('char s[] = "abc"; return s[1] + sizeof(s);', 102), ("return (int[]){1, 2}[1];", 2), ("unsigned long long x = 3; return x;", 3),
        ("long int x = 2; const int y = 1; return x + y;", 3), ('return "\\101\\x42\\n";', "AB\n"), ("return '\\n' + '\\0';", 10),
        ("int a[2] = {1, 2}; memset(a, 0, 8); return a[0] + a[1];", 0), ("int a[2] = {1, 2}; memset(a, 0, 4); return a[0] * 10 + a[1];", 2),
        ("return fabs(-2.5) * 10 + abs(-3) + ceil(1.2) * 100 + floor(-1.2) * 1000;", -1772.0), ("return round(-2.5) * 10 + trunc(-2.7);", -32.0),
        ("return fmax(1.5, 2) + fmin(0.0 / 0, 3) + fmax(-4, 0.0 / 0);", 1.0), ("return sqrt(-1.0) != sqrt(-1.0);", 1), ("assert(1); return 1;", 1),
        ("return pow(0, -1) == 1.0 / 0 && pow(10, 400) == 1.0 / 0 && pow(2, 10) == 1024 && pow(-8, 0.5) != 0;", 1),
        ("int x = 5; return --x * 10 + x--;", 44), ("int x = 1; x <<= 3; x |= 1; x ^= 3; x &= ~8; x %= 4; return x;", 2), ('return !0 + !5 + !"a";', 1),
        ("return 5 > 3 > 1;", 0), ("return -7 >> 1;", -4), ("int x = 3; x += 1.9; return x;", 4), ("return (1, 2);", 2), ("return +3 - -3;", 6),
        ("int p[2] = {1, 2}; return *&p[1];", 2), ("int x = 3; if (x) ; else x = 4; return x;", 3), ("int a[2] = {1, 2}; return ln_compute_length(2, a);", 2),
    ],
)  # fmt: skip
def test_as_in_c(text, value):
    """Texts, pointers, sizes, memory, floats that are not finite: what each is in C."""
    assert run(text) == value


@pytest.mark.parametrize("op", ["<<", ">>"])
def test_shifts_are_by_less_than_the_bits_of_a_number(op):
    """By 0 to 63: Python says what that is, and by anything else is undefined in C, whatever is shifted."""
    for number, by in itertools.product((0, 1, -1, 5), range(-2, 68)):
        text = f"return {number} {op} {by};"
        want = number << by if op == "<<" and by >= 0 else number >> max(by, 0)
        if 0 <= by < 64 and -(1 << 63) <= want < 1 << 64:
            assert run(text) == want, text
        else:
            said = f"a shift by {by}" if not 0 <= by < 64 else "does not fit 64 bits"
            with pytest.raises(c.CodeError, match=re.escape(said)):
                run(text)


def test_texts_of_tokens():
    """A comment and a string may go over lines; letters, digits and blanks are those of ASCII, but in comments and strings."""
    assert run("/* 1;\n * // 2\n **/ int x = 3; // 4\nreturn /*\n*/ x;") == 3
    assert run('return strlen("a\\\nb");') == 3  # an escape, whatever the character
    others = [chr(code) for code in range(128, 0x3100) if chr(code).isalnum() or chr(code).isspace()]
    assert len({unicodedata.category(other) for other in others}) > 8
    every = "".join(others[::40])
    assert run(f'/*{every}*/ return ln_streq("{every}", s); //{every}', s=every) == 1
    for text in (text for other in others[::9] for text in (other, f"a{other}", f"1{other}")):
        with pytest.raises(LightNetError, match="unexpected character"):
            lexer.tokens(text)


@pytest.mark.parametrize(
    "text, place, message",
    [
        ("return strlen(5);", "1:8", "expected a string, got 5"), ("int a = 3; return a[0];", "1:19", "3 is no array"), ("return 3[0];", "1:8", "3 is no array"),
        ("int d[] = {2}; char s[9]; return ln_sprint_shape(s, 2, d);", "1:34", "2 elements are read of an array of 1"), ("return tl_size_of(5);", "1:8", "5 is no dtype"),
        ("int x = 1.0 / 0;", "1:9", "inf is no int"), ("return 1 << -1;", "1:8", "a shift by -1"), ("return 1 >> 70;", "1:8", "a shift by 70"),
        ('return -"a";', "1:8", "'-' takes a number, not \"a\""), ('return "a" * 2;', "1:8", "'*' takes numbers, not \"a\""), ("return ~1.5;", "1:8", "takes integers"),
        ("int a[3]; int b[3]; return &a[1] - &b[0];", "1:28", "pointers into two arrays"), ("int a[3]; a = 0;", "1:11", "'a' is an array: assign its elements"),
        ("int a[2]; return a[1.5];", "1:18", "a subscript is an integer, not 1.5"), ("int x; int x;", "1:12", "'x' is declared twice"), ("void x;", "1:6", "'x' cannot be void"),
        ("int a[2] = 5;", "1:5", "elements in braces"), ("int a[];", "1:5", "the array 'a' needs a length"), ("int a[-1];", "1:7", "cannot have the length -1"),
        ('char s[2] = "abc";', "1:8", "an array of 4 elements cannot have the length 2"), ("int a[1] = {1, 2};", "1:7", "of 2 elements cannot have the length 1"),
        ("int a[2] = {[1] = 3};", "1:13", "in order, without names"), ("int 5;", "1:5", "expected the name of a variable, got '5'"),
        ("return src->5;", "1:13", "expected the name of a member, got '5'"), ("return (src->dims)(1);", "1:19", "only a function that a table names"),
        ("#include <x.h>", "1:1", "a directive of the preprocessor"), ("return 99999999999999999999;", "1:8", "more than 64 bits"), ("return 1e999;", "1:8", "is too large"),
        ("memset(5, 0, 4);", "1:1", "expected memory, got 5"), ("int a[2] = {1, 2}; memset(a, 1, 8);", "1:20", "memset writes zeros"),
        ("int a[2]; double b[2]; memmove(a, b, 8);", "1:24", "memory of double is moved to memory of int"), ("memmove(1, 2, 3);", "1:1", "expected two arrays"),
        ("int a[2]; void *p = ln_alloc(8); memmove(a, p, 8);", "1:34", "memory of ln_alloc has no type to be moved as"),
        ("int a[2] = {1, 2}; void *p = ln_alloc(8); memmove(p, a, 8);", "1:43", "memory of ln_alloc has no type to be moved as"),
        ("void *p = ln_alloc(8), *q = ln_alloc(8); memmove(p, q, 8);", "1:42", "memory of ln_alloc has no type to be moved as"),
        ("int a[2] = {1, 2}; int b[4]; memmove(b, a, 16);", "1:30", "16 bytes are read of 'a', which has 2 elements"), ("return ln_clone(3, 4);", "1:8", "expected an array, got 3"),
        ("int a[2] = {1, 2}; return *ln_clone(a, 12);", "1:28", "12 bytes are read of 'a'"), ('ln_alloc("a");', "1:1", '"a" is no number of bytes'),
        ("void *p = ln_alloc(8); return p[0];", "1:31", "give the pointer a type"), ("assert(1 == 2);", "1:1", "the assertion does not hold"),
        ("double x = 3; return x % 2;", "1:22", "'%' takes integers"), ("return (char)300;", "1:14", "300 does not fit char"), ("return (int)3000000000.0;", "1:13", "does not fit int"),
        ("int a[2] = {1, 2}; return ln_compute_length(3, a);", "1:27", "3 elements are read of an array of 2"), ('return ln_streq("a", 3);', "1:8", "expected a string, got 3"),
    ],
)  # fmt: skip
def test_what_code_may_not_do(text, place, message):
    """One row a check of the machine and of the parser."""
    with pytest.raises(c.CodeError) as caught:
        run(text, src=c.tensor("src", (2, 3), "TL_FLOAT"))
    assert message in caught.value.message
    assert str(caught.value.loc).startswith(f"<snippet>:{place}")


@pytest.mark.parametrize("word", sorted(parser.REFUSED))
@pytest.mark.parametrize("text", ["WORD;", "int x = 1 +\n WORD;", "return (WORD);", "int x = WORD(3);"])
def test_what_to_write_instead_of_a_word(word, text):
    """Of C that is no part of the language, where a statement stands and where an expression does."""
    with pytest.raises(c.CodeError) as caught:
        c.parse_code(text.replace("WORD", word))
    line = text[: text.index("WORD")].count("\n") + 1
    assert f"'{word}' is not taken here: {parser.REFUSED[word]}" == caught.value.message
    assert caught.value.loc.line == line


@pytest.mark.parametrize("text", ["(" * 500 + "1" + ")" * 500, "-" * 5000 + "1", "1" + "+1" * 5000, "a" + "[0]" * 5000, "1" * 5000, "{" * 5000, "if (1) " * 5000,
                                  "x" * (1 << 17), ";" * 20000, "1 ? " * 3000 + "1"])  # fmt: skip
def test_deep_and_long_texts_are_refused(text):
    for read in (c.parse_code, c.parse_expression):
        with pytest.raises(c.CodeError):
            read(text)


def test_warnings_and_errors_of_code():
    with pytest.warns(DescriptionWarning, match="unsupported 'autopad' FOO"):
        run('ln_msg_warn("unsupported \'autopad\' %s", "FOO");')
    with pytest.raises(c.CodeError, match="op 'x' is 3"):
        run('ln_msg_inter_error("op \'%s\' is %d", "x", 3);')


def test_one_expression():
    t = c.tensor("t", (3, 700), "TL_FLOAT")
    assert c.evaluate_c("(int[]){tl_tensor_dot_product_cuda_ws_len(t)}", {"t": t}) == (2,)
    version = {**library.FUNCTIONS, "version": c.CFunction(lambda m, v: -1 if v == "4.0.0" else 1, 1, 1)}
    assert c.evaluate_c('version("4.0.0") < 0 && axis == 1', {"axis": 1}, version) == 1
    assert c.evaluate_c("tl_dtype_name(t->dtype)", {"t": t}) == "TL_FLOAT"


def test_head():
    c.check_head('#include "arch/ln_cuda.h"\n#include <stdio.h> // x\nint count;\n/* c */')
    for text in ("#define X 1", "#include x", "f();", "int f(int x) { return x; }"):
        with pytest.raises(c.CodeError):
            c.check_head(text)


@settings(max_examples=120, deadline=None)
@given(st.floats(), st.floats(), st.sampled_from("+-*/"))
def test_a_float_is_what_numpy_rounds_to(a: float, b: float, op: str) -> None:
    """A double that becomes a `float`, and arithmetic on two: NumPy's float32, with infinities and NaN. Only a finite double
    beyond the range is the last number that there is, as where networks hold it."""
    with np.errstate(all="ignore"):
        x, y = (np.float32(min(max(v, -FLT_MAX), FLT_MAX) if math.isfinite(v) else v) for v in (a, b))
        double = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op](np.float64(x), np.float64(y))
        want = [np.float32(np.clip(v, -FLT_MAX, FLT_MAX) if np.isfinite(v) else v) for v in (a, b, double)]
    names = {"a": a, "b": b}
    got = [run(text, **names) for text in ("return (float)a;", "return (float)b;", f"return (float)a {op} (float)b;")]
    np.testing.assert_array_equal(got, want)


# -- against a C compiler ---------------------------------------------------------------------------------------------

TYPES = {"int": "%d", "double": "%.17g", "float": "%.9g", "long": "%ld"}


def expression(rng: random.Random, kind: str, depth: int) -> str:
    """A random expression of `a` (int), `b` (int), `x` (double) and `y` (float), without what C leaves undefined."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(
            ("a", "b", str(rng.randrange(100)), "(-3)") if kind == "int" else ("x", "y", "a", "1.25", "0.1f", "3")
        )
    one, two = (expression(rng, kind, depth - 1) for _ in range(2))
    if kind == "int":
        op = rng.choice(("+", "-", "*", "/", "%", "&", "|", "^", "<", ">=", "==", "&&", "||", "?", "!", "~", "(int)"))
        match op:
            case "/" | "%":
                return f"({one} {op} ({rng.choice((-7, 3, 5))}))"
            case "*":
                return f"(({one}) % 1000 * ({two} % 1000))"
            case "+" | "-":
                return f"(({one}) % 100000 {op} ({two}) % 100000)"
            case "?":
                return f"({one} ? {two} : {one})"
            case "!" | "~":
                return f"({op}{one})"
            case "(int)":
                return f"(int)({expression(rng, 'double', 1)} * 0.5)"
        return f"({one} {op} {two})"
    op = rng.choice(("+", "-", "*", "(float)", "?", "(int)"))
    if op == "?":
        return f"({one} < {two} ? {one} : {two})"
    return f"{op}({one})" if op.startswith("(") else f"({one} {op} {two})"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_against_gcc(tmp_path: Path, count):
    """Random programs of the language mean what they mean in C."""
    rng = random.Random(count)
    bodies, kinds = [], []
    for _ in range(count):
        kind = rng.choice(("int", "int", "double", "float"))
        e = expression(rng, "int" if kind == "int" else "double", 3)
        loop = f"for (int i = 0; i < {rng.randrange(4)}; i++) {{ if (i == {rng.randrange(3)}) continue; a = (a + i * 3) % 1000; t[i] = a; }}"
        bodies.append(f"int a = {rng.randrange(-50, 50)}, b = {rng.randrange(1, 20)}; double x = {rng.random() * 9 - 4}; float y = {rng.random():.3f}f; "
                      f"int t[4] = {{1, 2}}; {loop} {kind} r = {e}; r += t[{rng.randrange(4)}]; return r;")  # fmt: skip
        kinds.append(kind)
    functions = "\n".join(f"{k} f{n}(void) {{ {body} }}" for n, (k, body) in enumerate(zip(kinds, bodies)))
    calls = "\n".join(f'printf("{TYPES[k]}\\n", f{n}());' for n, k in enumerate(kinds))
    source = tmp_path / "t.c"
    source.write_text(f"#include <stdio.h>\n{functions}\nint main(void) {{ {calls} return 0; }}\n")
    subprocess.run(["gcc", "-w", "-O0", "-ffp-contract=off", "-o", tmp_path / "t", source], check=True)
    lines = subprocess.run([tmp_path / "t"], check=True, capture_output=True, text=True).stdout.split()
    for body, kind, line in zip(bodies, kinds, lines, strict=True):
        got = run(body)
        if kind == "int":
            assert got == int(line), body
        else:
            want = float(line)
            got = struct.unpack("f", struct.pack("f", got))[0] if kind == "float" else got
            assert got == pytest.approx(want, rel=1e-7 if kind == "float" else 1e-15, abs=0) or (
                math.isnan(got) and math.isnan(want)
            ), body


def test_steps_are_counted_for_all_texts_of_a_machine():
    m = c.CMachine({}, {}, c.RunBudget(steps=100))
    text = "int s = 0;"
    m.run(c.parse_code(text), text)
    loop = "for (int i = 0; i < 1000; i++) s += i;"
    with pytest.raises(c.CodeError, match="steps"):
        m.run(c.parse_code(loop), loop)


@pytest.mark.parametrize("call", [
    "memmove(b, a, N)", "memset(b, 0, N)", "ln_clone(a, N)", "strlen(a)", "strcmp(a, b)",
    "ln_streq(a, b)", 'sprintf(b, "%s", a)', "memmove(b, a, 0)",
])  # fmt: skip
def test_what_functions_go_through_takes_steps(call):
    """One for every 8 elements of the arrays that they are given, so that a loop of such calls ends as any does."""

    def steps(length):
        text = f"char a[{length}], b[{length}]; {call.replace('N', str(length))};"
        m = c.CMachine(library.NAMES, library.FUNCTIONS)
        m.run(c.parse_code(text), text)
        return c.RunBudget().steps - m.budget.steps

    arrays = sum(f"{name}," in call or f" {name}" in call or f"({name}" in call for name in "ab")
    assert [steps(8 * k) - steps(8) for k in (2, 10, 101)] == [arrays * k for k in (1, 9, 100)]
    loop = f"char a[8000], b[8000]; for (;;) {call.replace('N', '8000')};"
    with pytest.raises(c.CodeError, match=r"more than 200000 steps|more than 1048576 bytes"):
        run(loop)


# -- padding, types, and what they are compared with ------------------------------------------------------------------

CONV = "int p[4]; int i[] = {%s}, k[] = {%s}, s[] = {%s}, d[] = {%s}; ln_autopadding_conv(p, i, k, s, d, 2, %s); return (int[]){p[0], p[1], p[2], p[3]};"
DECONV = ("int p[4]; int i[] = {%s}, o[] = {%s}, k[] = {%s}, s[] = {%s}, m[] = {%s}, d[] = {%s}; ln_autopadding_deconv(p, i, o, k, s, m, d, 2, %s); "
          "return (int[]){p[0], p[1], p[2], p[3]};")  # fmt: skip


@pytest.mark.parametrize(("form", "values", "padding"), [
    (CONV, ("5, 6", "3, 4", "2, 3", "1, 2", '"SAME_UPPER"'), (1, 2, 1, 2)), (CONV, ("4, 7", "3, 4", "2, 2", "1, 1", '"SAME_UPPER"'), (0, 1, 1, 2)),
    (CONV, ("4, 7", "3, 4", "2, 2", "1, 1", '"SAME_LOWER"'), (1, 2, 0, 1)), (CONV, ("4, 7", "3, 4", "2, 2", "1, 1", '"VALID"'), (0, 0, 0, 0)),
    (DECONV, ("3, 4", "5, 9", "3, 4", "2, 2", "0, 1", "1, 2", '"SAME_UPPER"'), (1, 2, 1, 3)), (DECONV, ("3, 4", "5, 9", "3, 4", "2, 2", "0, 1", "1, 2", '"SAME_LOWER"'), (1, 3, 1, 2)),
    (DECONV, ("3, 4", "10, 9", "3, 4", "2, 2", "0, 1", "1, 2", '"SAME_UPPER"'), (-1, 2, -2, 3)), (DECONV, ("3, 4", "5, 9", "3, 4", "2, 2", "0, 1", "1, 2", '"VALID"'), (0, 0, 0, 0)),
])  # fmt: skip
def test_automatic_padding(form, values, padding):
    """By hand: of a convolution (ceil(i / s) - 1) s + (k - 1) d + 1 - i in all, transposed s (i - 1) + m + (k - 1) d + 1 - o; the odd one behind for UPPER."""
    assert run(form % values) == padding


@pytest.mark.parametrize(("text", "message"), [
    ('int p[4]; int i[] = {1}; ln_autopadding_conv(p, i, i, i, i, 0, "VALID");', "0 dimensions are padded; there are 1 to 8"),
    ('int p[4]; int i[] = {1}; ln_autopadding_conv(p, i, i, i, i, 9, "VALID");', "9 dimensions are padded; there are 1 to 8"),
    ('int i[] = {1}; ln_autopadding_conv(5, i, i, i, i, 1, "VALID");', "expected the array of the padding, got 5"),
    ("return tl_tensor_size(5);", "expected a tensor, got 5"), ("return tl_tensor_issameshape(a, NULL);", "expected a tensor, got NULL"),
    ('return tl_tensor_size("abc");', 'expected a tensor, got "abc"'), ('char s[] = "abc"; return tl_tensor_size(s);', 'expected a tensor, got "abc"'),
    ("int x; return tl_tensor_size(&x);", "expected a tensor, got a pointer to 'x'"), ("return tl_size_of(ln_alloc(4));", "a pointer to memory of ln_alloc is no dtype"),
    ("return strlen(a);", "expected a string, got tensor 'a'"), ("int x; void *p = &x; return (&x)[1];", "'x' is one value, and no array"),
    ("a->name = 3;", ""),
])  # fmt: skip
def test_values_in_messages(text, message):
    with pytest.raises(c.CodeError) as caught:
        run(text, a=c.tensor("a", (2, 3), "TL_FLOAT"))
    assert message in caught.value.message


@pytest.mark.parametrize(("text", "value"), [
    ("return tl_tensor_issameshape(a, b);", 0), ("return tl_tensor_issameshape(a, a2);", 1), ("return tl_tensor_issameshape(a, flat);", 0),
    ("return tl_tensor_size(a) * 100 + tl_tensor_size(h);", 2412), ("return abs(-3) * 10 + labs(4);", 34), ("return trunc(-2.7) + fabs(-0.25) + round(2.5) * 10;", 28.25),
    ("return floor(1.0 / 0) == 1.0 / 0 && trunc(-1.0 / 0) < 0;", 1), ("return tl_dtype_min_double(TL_INT8);", -128.0),
    ("ln_bool x = 3; bool y = 0.5; return x * 10 + y;", 10), ("char x = 'A'; int y = TL_INT8; return x == 65;", 1),
    ("return (TL_FLOAT == 1) * 100 + (TL_FLOAT == 0) * 10 + (TL_FLOAT == 2);", 100), ("return (1 == TL_FLOAT) * 100 + (0 == TL_FLOAT) * 10 + (TL_DOUBLE == 0);", 101),
    ("int x = 3; int *p = &x; return *&*p;", 3), ("return (ndim) - 1;", 4), ("return (ndim) * 2;", 10), ("return sizeof(ndim) + sizeof(a);", 12),
    ("int x = 4; long y = 5; return (x) + (y);", 9), ("if (0.5) return 1; return 2;", 1), ("if (0.0) return 1; return 2;", 2), ("if (a) return 1; return 2;", 1),
    ("if (NULL) return 1; return 2;", 2), ('if ("") return 1; return 2;', 1), ("return a->dims == a->dims;", 1), ("return a->dims != b->dims;", 1),
])  # fmt: skip
def test_tensors_and_types(text, value):
    tensors = {"a": (2, 3), "a2": (2, 3), "b": (3, 2), "flat": (6,)}
    names = {k: c.tensor(k, dims, "TL_FLOAT") for k, dims in tensors.items()} | {"h": c.tensor("h", (3, 2), "TL_INT16")}
    assert run(text, ndim=5, **names) == value


@pytest.mark.parametrize(("text", "place", "message"), [
    ("1 2", "1:3", "expected the end of the expression, got '2'"), ("f(1) { }", "1:6", "expected the end of the expression, got '{'"), ("1;", None, None),
    ("(", "1:2", "expected an expression"),
])  # fmt: skip
def test_expressions_that_go_on(text, place, message):
    if message is None:
        assert c.plain(c.evaluate_c(text, {})) == 1
        return
    with pytest.raises(c.CodeError) as caught:
        c.parse_expression(text)
    assert message in caught.value.message and str(caught.value.loc) == f"<snippet>:{place}"


@pytest.mark.parametrize(("text", "place", "message"), [
    ("f(1) { return 1; }", "1:6", "a function is not defined here"), ("const = 3;", "1:7", "expected a type, got '='"), ("int a[] = {1 2};", "1:14", "expected ',' or '}', got '2'"),
    ("return (int){3};", "1:13", "a structure cannot be written here; an array is (int[]){a, b}"), ("x = (tl_shape *){3};", "1:17", "an array is (tl_shape *[]){a, b}"),
])  # fmt: skip
def test_what_the_parser_refuses(text, place, message):
    with pytest.raises(c.CodeError) as caught:
        c.parse_code(text)
    assert message in caught.value.message and str(caught.value.loc) == f"<snippet>:{place}"


@pytest.mark.parametrize(("text", "message"), [
    ("ln_opck_satisfy(x > 2);", None), ("ln_opck_satisfy(x > 3);", "x > 3"), ("ln_opck_satisfy(x > 3 && x < 9); x = 1;", "ln_opck_satisfy(x > 3 && x < 9)"),
    ('ln_opck_satisfy_msg(x == 4, "x is %d, not %d", x, 4);', "x is 3, not 4"), ('ln_opck_satisfy_msg(x == 3, "x is %d", x);', None),
    *((f"ln_opck_param_int_{op}(n, {bound});", None if holds else f"`size` param's value should be {sign} {bound}, but gets a 3")
      for op, sign, rows in (("eq", "==", {3: 1, 2: 0, 4: 0}), ("ne", "!=", {3: 0, 2: 1, 4: 1}), ("gt", ">", {2: 1, 3: 0, 4: 0}), ("ge", ">=", {2: 1, 3: 1, 4: 0}),
                             ("lt", "<", {2: 0, 3: 0, 4: 1}), ("le", "<=", {2: 0, 3: 1, 4: 1})) for bound, holds in rows.items()),
    ("ln_opck_param_float_lt(n, 3.5);", None), ("ln_opck_param_double_ge(n, 3.5);", "`size` param's value should be >= 3.5, but gets a 3"),
    ("ln_opck_tensor_ndim(src_entry, 2);", None), ("ln_opck_tensor_ndim(src_entry, 3);", "the ndim of tensor `src` should be 3, but is 2"),
    ("ln_opck_tensor_len(src_entry, 6);", None), ("ln_opck_tensor_len(src_entry, 5);", "the len of tensor `src` should be 5, but is 6"),
    ("ln_opck_tensor_dtype_eq(src_entry, TL_FLOAT);", None), ("ln_opck_tensor_dtype_eq(dst_entry, TL_FLOAT);", "the dtype of tensor `dst` should be TL_FLOAT, but is TL_INT8"),
    ("ln_opck_tensor_mtype_eq(src_entry, LN_MEM_CPU);", None), ("ln_opck_tensor_mtype_eq(dst_entry, LN_MEM_CPU);", "the mtype of tensor `dst` should be LN_MEM_CPU, but is LN_MEM_NONE"),
    ("ln_opck_tensor_issametype(src_entry, src_entry);", None), ("ln_opck_tensor_issametype(src_entry, dst_entry);", "the dtype of tensor `src` should be TL_INT8, but is TL_FLOAT"),
    ("ln_opck_tensor_issameshape(src_entry, dst_entry);", None), ("ln_opck_tensor_issameshape(src_entry, turned_entry);", "the shape of tensor `src` should be"),
    ("ln_opck_tensor_isstatic(src_entry);", None), ("ln_opck_tensor_isstatic(dst_entry);", "tensor `dst` should be static"),
    ("ln_opck_tensor_isnotstatic(dst_entry);", None), ("ln_opck_tensor_isnotstatic(src_entry);", "tensor `src` should not be static"),
    ("ln_opck_tensor_ndim(x, 2);", "expected an entry, got 3"), ("return src->data;", "what 'src' holds is not known while an op is checked"),
    ("return src->shape;", "a tensor has no member 'shape'; there are: dims, ndim, len, dtype, data"),
    ("return src_entry->offset;", "'src_entry->offset' is not known while an op is checked"),
])  # fmt: skip
def test_upstreams_checks(text, message):
    """Upstream's macros on entries: a tensor 'src' [2, 3] of f32 on the cpu that is static, 'dst' of i8, 'turned' [3, 2]; a param `size` of 3."""
    f32, i8 = BY_NAME["f32"], BY_NAME["i8"]
    specs = {
        "src": ((2, 3), f32, "LN_MEM_CPU", True),
        "dst": ((2, 3), i8, "LN_MEM_NONE", False),
        "turned": ((3, 2), f32, "LN_MEM_CPU", True),
    }
    names = {**library.NAMES, "x": 3}
    for name, (dims, dtype, mtype, static) in specs.items():
        names[name] = code._tensor(name, TensorSpec(dims, dtype))
        names[f"{name}_entry"] = code.entry(name, names[name], mtype, static)
    names["n"] = code.param_entry(Param("number", "int", name="size"), 3, 3)
    machine = c.CMachine(names, code.FUNCTIONS)
    machine.declare("x", "int", 0, 3)
    if message is None:
        machine.run(c.parse_code(text), text)
        return
    with pytest.raises(c.CodeError) as caught:
        machine.run(c.parse_code(text), text)
    assert message in caught.value.message
