"""RE2's syntax, form by form: what a pattern matches is what Python's `re` says of the same pattern in its own syntax; and every refusal by its text."""

from __future__ import annotations

import itertools
import re
import string

import pytest

from lightnet.diagnostics import LightNetError
from lightnet.runtime.host import regex
from lightnet.runtime.host.regex import Regex

TEXTS = ["".join(t) for n in range(4) for t in itertools.product("aB\n_", repeat=n)] + ["aaaa", "é", "É", "a}", "a{2", "a{,2}", "a{2,1}", "-", "]", "^", "\\", "a.b", "(", "7", " ", "\t", "\x07", "\x01", "ſ", "k", "\u212a"]  # fmt: skip
#: A pattern of RE2, and the same in Python where that is another one.
PATTERNS = [
    ("",), ("a.",), ("(?s)a.",), ("(?s:.)a.",), ("(?-s)a.", "a."), ("(?s)a(?-s:.)", r"a[^\n]"), ("a$",  r"a\Z"), ("a$\nB", r"a\Z\nB"), ("(?m)a$\nB",), ("(?m)a\n^B",), ("a\n^B",), ("(?m:a$)\nB",), ("^a", ), (r"\Aa\z", r"\Aa\Z"),
    ("(?i)b",), ("(?i)[a-b]+",), ("(?i:b)B",), ("(?i)(?-i:b)B",), ("(?im)b$\nA",), ("(?U)a+",  "a+?"), ("(?i-s)b.", "(?i)b."), ("(?P<n>a)B",), ("(?<n_1>a)B", "(?P<n_1>a)B"), ("(?:a|B)*",), ("(a|)B",), ("a|", ), ("|a",), ("(|a|B){2}",),
    ("a{2}",), ("a{2,}",), ("a{1,3}",), ("a{0}B",), ("a{0,1}B",), ("a{2}?",), ("a*?B",), ("a+?",), ("a??B",), ("a{,2}", r"a\{,2\}"), ("a{2", r"a\{2"), ("a}", r"a\}"), ("a{123456}", r"a\{123456\}"), ("a{x}", r"a\{x\}"),
    (r"\Qa.b\E", r"a\.b"), (r"\Qa.b", r"a\.b"), (r"\Q\E", ""), (r"\Q(\E", r"\("), (r"\Qa\EB", "aB"), (r"\Q", ""),
    (r"\bB\b",), (r"a\BB",), (r"\B", r"(?!\b)"), (r"a\b\n",), (r"\w+", "[a-zA-Z0-9_]+"), (r"\W", r"[^a-zA-Z0-9_]"), (r"\d", "[0-9]"), (r"\D",  "[^0-9]"), (r"\s", "[ \t\n\r\f]"), (r"\S", "[^ \t\n\r\f]"), (r"[\w-]", "[a-zA-Z0-9_-]"), (r"[^\w]", "[^a-zA-Z0-9_]"), (r"[\Wa]", "[^b-zA-Z0-9_]"),
    ("[a-b]",), ("[^a]",), ("[^a-b]",), ("[]a]",), ("[^]a]",), ("[-a]",), ("[a-]",), ("[a-b-]",), (r"[\]-^]",), (r"[a\-B]",), ("[[:alpha:]]", "[a-zA-Z]"), ("[[:^alpha:]]", "[^a-zA-Z]"), ("[^[:alpha:]]", "[^a-zA-Z]"), ("[[:word:]-]", "[a-zA-Z0-9_-]"), ("[a[:digit:]]", "[a0-9]"), ("[[:a]", r"[\[:a]"), ("[a-a]",), ("(?i)[^b]", "[^bB]"),
    (r"\x61", "a"), (r"\x{61}B", "aB"), (r"\x{0000E9}", "é"), (r"[\x61-\x62]", "[ab]"), (r"\007", "\x07"), (r"\7" + "7", r"\?"), (r"\01", "\x01"), (r"\0611", "11"), (r"\a", "\x07"), (r"\.", r"\."), (r"\-", "-"), (r"\_", "_"), ("\\\\",),
    (r"\pL", "[a-zA-ZéÉſk\u212a]"), (r"\p{Lu}", "[BÉA-Z\u212a]"), (r"\PL", "[^a-zA-ZéÉſk\u212a]"), (r"\p{^Lu}", "[^BÉA-Z\u212a]"), (r"\P{^Lu}", "[BÉA-Z\u212a]"), (r"\p{Any}", "(?s:.)"), (r"\P{Any}", "[^\\s\\S]"), (r"[\pLa]", "[a-zA-ZéÉſk\u212a]"), (r"\p{Nd}", "[0-9]"),
]  # fmt: skip


def test_patterns() -> None:
    wrong = []
    for pattern, *other in PATTERNS:
        same = re.compile(other[0] if other else pattern)
        want = [same.fullmatch(t) is not None for t in TEXTS]
        got = Regex(pattern).matches(*TEXTS)
        wrong += [(pattern, t, g) for t, g, w in zip(TEXTS, got, want) if g != w]
    assert not wrong


#: The characters of each class by Python's `string`: those of ASCII alone.
POSIX = {
    "alnum": string.ascii_letters + string.digits, "alpha": string.ascii_letters, "ascii": "".join(map(chr, range(128))), "blank": "\t ",
    "cntrl": "".join(map(chr, [*range(32), 127])), "digit": string.digits, "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase, "print": string.ascii_letters + string.digits + string.punctuation + " ", "punct": string.punctuation,
    "space": string.whitespace, "upper": string.ascii_uppercase, "word": string.ascii_letters + string.digits + "_", "xdigit": string.hexdigits,
}  # fmt: skip
PERL = {"d": string.digits, "w": POSIX["word"], "s": string.whitespace.replace("\v", "")}
CHARACTERS = [*map(chr, range(256)), "ſ", "\u0663", "\u2003", "\u2028", "\u212a", "\uff11", "\uff3f", "\U0001d7d8"]


def test_classes_of_characters() -> None:
    """Each with each character of Latin-1, and letters, digits and blanks of other scripts; and what is not in it."""
    assert (POSIX.keys(), PERL.keys()) == (regex._POSIX.keys(), regex._PERL.keys())
    found = {f"[[:{name}:]]": chars for name, chars in POSIX.items()} | {f"\\{c}": chars for c, chars in PERL.items()}
    others = {f"[[:^{name}:]]": chars for name, chars in POSIX.items()} | {f"\\{c.upper()}": PERL[c] for c in PERL}
    for inside, patterns in ((True, found), (False, others)):
        for pattern, chars in patterns.items():
            got = "".join(itertools.compress(CHARACTERS, Regex(pattern).matches(*CHARACTERS)))
            assert got == "".join(c for c in CHARACTERS if (c in chars) == inside), pattern


#: A pattern, the character at which it is refused, and why.
REFUSED = [
    ("a)", 1, "unexpected )"), ("(a", 2, "missing )"), ("(?a)", 2, "RE2 has no group (?a"), ("(?=a)", 2, "RE2 has no group (?="), ("(?<=a)", 2, "RE2 has no group (?<"), ("(?<!a)", 2, "RE2 has no group (?<"),
    ("(?P<>a)", 4, "the name of a group is malformed"), ("(?P<a-b>a)", 4, "the name of a group is malformed"), ("(?P<ab", 4, "the name of a group is malformed"), ("(?<é>a)", 3, "the name of a group is malformed"), ("(?P=n)", 2, "RE2 has no group (?P"),
    ("(?i-)", 4, "no flag behind -"), ("(?-:a)", 3, "no flag behind -"), ("(?i-", 4, "no flag behind -"), ("(?i-s-m)", 6, "a second -"), ("(?ix)", 3, "RE2 has no group (?x"),
    ("*a", 0, "nothing to repeat"), ("|+", 1, "nothing to repeat"), ("(?i)?", 4, "nothing to repeat"), ("a**", 2, "a repetition of a repetition"), ("a{2}{3}", 4, "a repetition of a repetition"), ("a??+", 3, "a repetition of a repetition"), ("{2}", 0, "nothing to repeat"),
    ("a{1001}", 7, "repetitions are from 0 to 1000 in order"), ("a{2,1}", 6, "repetitions are from 0 to 1000 in order"), ("a{1,1001}", 9, "repetitions are from 0 to 1000 in order"),
    ("[a", 2, "missing ]"), ("[", 1, "missing ]"), ("[]", 2, "missing ]"), ("[b-a]", 4, "the range b-a is empty"), ("[[:nope:]]", 1, "no class is called [:nope:]"), ("[[:^^alpha:]]", 1, "no class is called [:^^alpha:]"),
    ("a\\", 2, "a backslash at the end"), (r"\1", 2, r"RE2 has no backreference \1"), (r"\8", 2, r"RE2 has no escape \8"), (r"\y", 2, r"RE2 has no escape \y"), (r"\é", 2, r"RE2 has no escape \é"),
    (r"\x6", 2, r"a malformed \x"), (r"\xg1", 2, r"a malformed \x"), (r"\x{}", 3, r"a malformed \x"), (r"\x{61", 3, r"a malformed \x"), (r"\x{110000}", 3, r"a malformed \x"), (r"\x{0000061}", 3, r"a malformed \x"),
    (r"\p{Greek}", 9, "Unicode class 'Greek' is not supported (categories are: L, Lu, N, …)"), (r"\pX", 3, "Unicode class 'X' is not supported (categories are: L, Lu, N, …)"), (r"\p", 3, "Unicode class '' is not supported (categories are: L, Lu, N, …)"),
]  # fmt: skip


def said(pattern: str) -> str | None:
    try:
        Regex(pattern)
    except LightNetError as error:
        return error.message
    return None


def test_refusals() -> None:
    found = [(p, said(p)) for p, _, _ in REFUSED]
    assert found == [(p, f"pattern '{p}', character {at}: {why}") for p, at, why in REFUSED]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for good, bad, why in (
        ("a{1000}", "a{1001}", "pattern 'a{1001}', character 7: repetitions are from 0 to 1000 in order"),
        ("(" * regex.MAX_DEPTH + ")" * regex.MAX_DEPTH, "(" * (regex.MAX_DEPTH + 1), f"groups nested deeper than {regex.MAX_DEPTH}"),
        (r"\x{10FFFF}", r"\x{110000}", r"a malformed \x"),
    ):  # fmt: skip
        assert said(good) is None and str(said(bad)).endswith(why)
    monkeypatch.setattr(regex, "MAX_NODES", 9)  # one and one part, one and three parts, three
    assert said("abc") is None and said("abcd") == "pattern 'abcd' has more than 9 nodes"
    monkeypatch.setattr(regex, "MAX_PATTERN", 3)
    assert said("abc") is None and said("abcd") == "a pattern of 4 characters; at most 3"


def test_sets_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than may be kept are forgotten, and found again."""
    made = Regex("(a|B)*a(a|B){3}")
    want = made.matches(*TEXTS, "aBaBaBB", "BBBBBBB")
    for most in (0, 1, 5, 50):
        monkeypatch.setattr(regex, "MAX_KEPT", most)
        again = Regex("(a|B)*a(a|B){3}")
        assert again.matches(*TEXTS, "aBaBaBB", "BBBBBBB") == want
        assert again._kept <= most + 40
