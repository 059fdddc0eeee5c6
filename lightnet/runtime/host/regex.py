"""Regular expressions in RE2's syntax, matched in time that is linear in the text.

A pattern becomes a nondeterministic automaton (Thompson, "Regular expression search algorithm", 1968), whose sets of
states are made states of a deterministic one as text asks for them. There are no backreferences and no look-around,
which RE2 has not either, so that nothing is tried twice. Whether all of a text matches does not depend on greediness,
which is read and passed over. A pattern beyond the limits, or with what this reader does not know, is refused.

Source: the page of RE2's syntax (github.com/google/re2/wiki/Syntax). Imports the standard library.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NoReturn

from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError

#: Characters of a pattern, nodes that its automaton is made of (those that are repeated as often), nesting of groups.
MAX_PATTERN, MAX_NODES, MAX_DEPTH = 1 << 14, 1 << 15, 100
#: States in the sets of states that are kept, and those that are visited to match the texts of one call.
MAX_KEPT, MAX_VISITS = 1 << 18, 1 << 28
#: States that are visited to find matches within the texts of one call: each place may be the start of one, so that it
#: takes longer than the text is.
MAX_SEARCH = 1 << 25
#: The largest count of a repetition, as in RE2.
MAX_REPEAT = 1000

#: Whether a character is in a set.
Test = Callable[[str], bool]


@dataclass(frozen=True)
class _Flags:
    """``i``: case does not matter; ``m``: ^ and $ match at lines, too; ``s``: . matches a newline; ``U`` changes
    greediness, which does not matter."""

    i: bool = False
    m: bool = False
    s: bool = False


def _in_word(c: str) -> bool:
    return c.isascii() and (c.isalnum() or c == "_")


#: Perl's classes and POSIX's, which are ASCII.
_PERL: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "w": _in_word,
    "s": lambda c: c in "\t\n\f\r ",
}
_POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(), "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ", "cntrl": lambda c: c < " " or c == "\x7f", "digit": _PERL["d"],
    "graph": lambda c: "!" <= c <= "~", "lower": lambda c: "a" <= c <= "z", "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(), "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z", "word": _in_word,
    "xdigit": lambda c: c.isascii() and c in "0123456789abcdefABCDEF",
}  # fmt: skip
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
#: What holds between two characters ("" at an end of the text).
_BETWEEN: dict[str, Callable[[str, str], bool]] = {
    "begin": lambda a, b: not a,
    "end": lambda a, b: not b,
    "line begin": lambda a, b: not a or a == "\n",
    "line end": lambda a, b: not b or b == "\n",
    "boundary": lambda a, b: bool(a and _in_word(a)) != bool(b and _in_word(b)),
    "no boundary": lambda a, b: bool(a and _in_word(a)) == bool(b and _in_word(b)),
}


def _cases(c: str) -> set[str]:
    """A character in its cases."""
    found = {c}
    for _ in range(2):
        found |= {d for e in list(found) for d in (e.lower(), e.upper()) if len(d) == 1}
    return found


@dataclass(frozen=True)
class _Node:
    """A node of the parsed pattern: ``char`` with a test, ``between``, ``cat`` and ``alt`` of parts, ``repeat`` of
    one."""

    kind: str
    parts: tuple[_Node, ...] = ()
    test: Test | None = None
    word: str = ""
    least: int = 0
    most: int | None = None


class _Parser:
    """Reads a pattern; `LightNetError` with the place where it is not understood."""

    def __init__(self, pattern: str):
        self.pattern, self.at = pattern, 0

    def fail(self, message: str) -> NoReturn:
        raise LightNetError(f"pattern '{self.pattern:.80}', character {self.at}: {message}", label="host.regex")

    def next(self, ahead: int = 1) -> str:
        return self.pattern[self.at : self.at + ahead]

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at) and text:
            self.at += len(text)
            return True
        return False

    def parse(self) -> _Node:
        found, _ = self.alternatives(_Flags(), 0)
        if self.at < len(self.pattern):
            self.fail("unexpected )")
        return found

    def alternatives(self, flags: _Flags, depth: int) -> tuple[_Node, _Flags]:
        """Alternatives up to a closing bracket, and the flags that hold then."""
        if depth > MAX_DEPTH:
            self.fail(f"groups nested deeper than {MAX_DEPTH}")
        branches: list[_Node] = []
        parts: list[_Node] = []
        while (c := self.next()) and c != ")":
            if self.take("|"):
                branches.append(_Node("cat", tuple(parts)))
                parts = []
            elif c == "(":
                found, flags = self.group(flags, depth)
                parts += found
            elif (count := self.repetition(parts)) is not None:
                parts[-1] = _Node("repeat", (parts[-1],), least=count[0], most=count[1])
            else:
                parts += self.atom(flags)
        branches.append(_Node("cat", tuple(parts)))
        return _Node("alt", tuple(branches)), flags

    def group(self, flags: _Flags, depth: int) -> tuple[list[_Node], _Flags]:
        """A group, or flags for what follows."""
        self.at += 1
        inner = flags
        if self.take("?"):
            if self.take("P<") or (self.next() == "<" and self.next(2) not in ("<=", "<!") and self.take("<")):
                end = self.pattern.find(">", self.at)
                if end < 0 or not all(map(_in_word, self.pattern[self.at : end])) or end == self.at:
                    self.fail("the name of a group is malformed")
                self.at = end + 1
            else:
                inner = self.flags(flags)
                if self.take(")"):
                    return [], inner
                if not self.take(":"):
                    self.fail(f"RE2 has no group (?{self.next()}")
        found, _ = self.alternatives(inner, depth + 1)
        if not self.take(")"):
            self.fail("missing )")
        return [found], flags

    def flags(self, flags: _Flags) -> _Flags:
        value, given = True, {}
        while (c := self.next()) and c in "imsU-":
            self.at += 1
            if c == "-":
                if not value:
                    self.fail("a second -")
                value = False
                if self.next() in ("", ":", ")"):
                    self.fail("no flag behind -")
            elif c != "U":
                given[c] = value
        return replace(flags, **given)

    def repetition(self, before: Sequence[_Node]) -> tuple[int, int | None] | None:
        """The counts of a repetition that stands here, behind the nodes `before`."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        begin = self.at
        if (found := simple.get(self.next())) is not None:
            self.at += 1
        elif self.next() != "{" or (found := self.counts()) is None:
            return None
        if not before or before[-1].kind == "repeat":
            self.at = begin
            self.fail("a repetition of a repetition" if before else "nothing to repeat")
        self.take("?")
        return found

    def counts(self) -> tuple[int, int | None] | None:
        """``{n}``, ``{n,}`` or ``{n,m}``; None where a brace is a character."""
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : end].partition(",") if end > 0 else ("", "", "")
        numbers = [low, *([high] if high else [])]
        if not all(n.isascii() and n.isdigit() and len(n) < 6 for n in numbers):
            return None
        self.at = end + 1
        least = int(low)
        most = None if comma and not high else int(high or low)
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            self.fail(f"repetitions are from 0 to {MAX_REPEAT} in order")
        return least, most

    def atom(self, flags: _Flags) -> list[_Node]:
        c = self.next()
        self.at += 1
        if c == ".":
            return [_Node("char", test=(lambda x: True) if flags.s else (lambda x: x != "\n"))]
        if c == "^":
            return [_Node("between", word="line begin" if flags.m else "begin")]
        if c == "$":
            return [_Node("between", word="line end" if flags.m else "end")]
        if c == "[":
            return [self.char_class(flags)]
        if c != "\\":
            return [self.literal(c, flags)]
        e = self.next()
        if word := {"A": "begin", "z": "end", "b": "boundary", "B": "no boundary"}.get(e):
            self.at += 1
            return [_Node("between", word=word)]
        if e == "Q":
            end = self.pattern.find("\\E", self.at)
            text = self.pattern[self.at + 1 : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return [self.literal(x, flags) for x in text]
        if (test := self.named_class(flags)) is not None:
            return [_Node("char", test=test)]
        return [self.literal(self.escaped(), flags)]

    @staticmethod
    def literal(c: str, flags: _Flags) -> _Node:
        if flags.i and len(cases := _cases(c)) > 1:
            return _Node("char", test=lambda x: bool(_cases(x) & cases))
        return _Node("char", test=lambda x: x == c)

    def named_class(self, flags: _Flags) -> Test | None:
        r"""``\d`` and its like, ``\pL``, ``\p{Lu}``, ``\PN``, behind the backslash."""
        e = self.next()
        if e.lower() in _PERL and e:
            self.at += 1
            return _folded(_PERL[e.lower()], flags, e.isupper())
        if e not in ("p", "P"):
            return None
        self.at += 1
        name = self.next()
        self.at += 1
        if name == "{":
            end = self.pattern.find("}", self.at)
            name = self.pattern[self.at : max(end, self.at)]
            self.at += len(name) + 1
        negated = (e == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name != "Any" and name not in _CATEGORIES:
            self.fail(f"Unicode class '{name:.20}' is not supported (categories are: L, Lu, N, …)")
        return _folded(lambda c: name == "Any" or _is_of_category(c, name), flags, negated)

    def escaped(self) -> str:
        """The character that an escape stands for, behind the backslash."""
        e = self.next()
        if not e:
            self.fail("a backslash at the end")
        self.at += 1
        if e in _ESCAPES:
            return _ESCAPES[e]
        if e == "x":
            is_braced = self.take("{")
            end = self.pattern.find("}", self.at) if is_braced else self.at + 2
            digits = self.pattern[self.at : max(end, self.at)]
            if (
                not (1 if is_braced else 2) <= len(digits) <= 6
                or set(digits) - set("0123456789abcdefABCDEF")
                or int(digits, 16) > 0x10FFFF
            ):
                self.fail("a malformed \\x")
            self.at = end + is_braced
            return chr(int(digits, 16))
        if e in "01234567":
            digits = e
            while len(digits) < 3 and self.next() and self.next() in "01234567":
                digits += self.next()
                self.at += 1
            if e != "0" and len(digits) == 1:
                self.fail(f"RE2 has no backreference \\{e}")
            return chr(int(digits, 8))
        if e.isascii() and not e.isalnum():
            return e
        self.fail(f"RE2 has no escape \\{e}")

    def char_class(self, flags: _Flags) -> _Node:
        """A class in brackets, behind the first of them."""
        negated = self.take("^")
        tests: list[Test] = []
        first = True
        while first or self.next() != "]":
            first = False
            if not self.next():
                self.fail("missing ]")
            if self.next(2) == "[:" and self.pattern.find(":]", self.at + 2) > 0:
                tests.append(self.posix(flags))
                continue
            if self.next() == "\\":
                self.at += 1
                if (test := self.named_class(flags)) is not None:
                    tests.append(test)
                    continue
                low = self.escaped()
            else:
                low = self.next()
                self.at += 1
            tests.append(self.span(low, flags))
        self.at += 1
        return _Node("char", test=lambda c: any(test(c) for test in tests) != negated)

    def span(self, low: str, flags: _Flags) -> Test:
        """``low`` alone, or up to what stands behind a hyphen."""
        high = low
        if self.next() == "-" and self.next(2) not in ("-", "-]"):
            self.at += 1
            if self.take("\\"):
                high = self.escaped()
            else:
                high = self.next()
                self.at += 1
            if high < low:
                self.fail(f"the range {low}-{high} is empty")
        return _folded(lambda c: low <= c <= high, flags)

    def posix(self, flags: _Flags) -> Test:
        end = self.pattern.find(":]", self.at + 2)
        name = self.pattern[self.at + 2 : end]
        if name.removeprefix("^") not in _POSIX:
            self.fail(f"no class is called [:{name:.20}:]")
        self.at = end + 2
        return _folded(_POSIX[name.removeprefix("^")], flags, name.startswith("^"))


_CATEGORIES = {*"LMNPSZC", *(
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs".split())}  # fmt: skip


def _is_of_category(c: str, name: str) -> bool:
    """Return whether a character is in a category; one that Unicode has not given out (``Cn``) is in none."""
    category = unicodedata.category(c)
    return category.startswith(name) and category != "Cn"


def _folded(test: Test, flags: _Flags, negated: bool = False) -> Test:
    """A class, and its negation: where case does not matter, that of the class with all cases."""
    if flags.i:
        return lambda c: any(map(test, _cases(c))) != negated
    return (lambda c: not test(c)) if negated else test


class Regex:
    """A compiled pattern. Calls from several threads are safe."""

    def __init__(self, pattern: str):
        if len(pattern) > MAX_PATTERN:
            raise LightNetError(f"a pattern of {len(pattern)} characters; at most {MAX_PATTERN}", label="host.regex")
        self.pattern = pattern
        #: Of each state: a test and the state behind it, or conditions and where they lead without a character.
        self.tests: list[tuple[Test, int] | None] = [None]  # the first one accepts
        self.empty: list[list[tuple[str, int]]] = [[]]
        self._nodes = 0
        self.start = frozenset((self._states(_Parser(pattern).parse(), 0),))
        self._looks_back = any(word for ways in self.empty for word, _ in ways)
        self._next: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._ends: dict[tuple[frozenset[int], str, str], bool] = {}
        self._kept = 0  # states in the sets of `_next`

    @staticmethod
    @lru_cache(32)
    def of(pattern: str) -> Regex:
        """The regular expression of a pattern, compiled once."""
        return Regex(pattern)

    def _new(self, test: tuple[Test, int] | None, empty: list[tuple[str, int]]) -> int:
        self.tests.append(test)
        self.empty.append(empty)
        return len(self.tests) - 1

    def _states(self, node: _Node, then: int) -> int:
        """The state from which what `node` matches leads to `then`."""
        self._nodes += 1 + len(node.parts)
        if self._nodes > MAX_NODES:
            raise LightNetError(f"pattern '{self.pattern:.80}' has more than {MAX_NODES} nodes", label="host.regex")
        if node.kind == "char":
            assert node.test is not None
            return self._new((node.test, then), [])
        if node.kind == "between":
            return self._new(None, [(node.word, then)])
        if node.kind == "alt":
            return self._new(None, [("", self._states(part, then)) for part in node.parts])
        if node.kind == "cat":
            for part in reversed(node.parts):
                then = self._states(part, then)
            return then
        (inner,) = node.parts
        if node.most is None:
            loop = self._new(None, [])
            self.empty[loop] += [("", self._states(inner, loop)), ("", then)]
            then = loop
        else:
            for _ in range(node.most - node.least):
                then = self._new(None, [("", self._states(inner, then)), ("", then)])
        for _ in range(node.least):
            then = self._states(inner, then)
        return then

    def _closure(self, states: frozenset[int], a: str, b: str) -> set[int]:
        """The states that are reached without a character, between characters `a` and `b`."""
        seen: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            waiting += [to for word, to in self.empty[state] if not word or _BETWEEN[word](a, b)]
        return seen

    def _step(self, states: frozenset[int], a: str, b: str) -> tuple[frozenset[int], int]:
        """The states behind character `b`, from `states` behind `a`, and what finding them took. At the end
        of the text, where `b` is "", they are the accepting one, or none."""
        key = states, a, b
        if (found := self._next.get(key)) is not None:
            return found, 1
        closure = self._closure(states, a, b)
        moves = [move for state in closure if (move := self.tests[state]) is not None]
        holds = {test: bool(b) and test(b) for test in {test for test, _ in moves}}  # states of a repetition share one
        found = frozenset([to for test, to in moves if holds[test]] if b else closure & {0})
        if self._kept > MAX_KEPT:
            self._next.clear()
            self._ends.clear()
            self._kept = 0
        self._kept += len(states) + len(found) + 2
        self._next[key] = found
        return found, len(closure) + len(self.pattern)  # which bounds what its tests ask

    def _accepts(self, states: frozenset[int], a: str, b: str) -> bool:
        """Return whether a match may end between characters `a` and `b`."""
        key = states, a, b
        if (found := self._ends.get(key)) is None:
            found = self._ends[key] = 0 in self._closure(states, a, b)
            self._kept += len(states)
        return found

    def _longest(self, text: str, start: int) -> tuple[int, int]:
        """The end of the longest match that begins at `start`, -1 if there is none; and what finding it took."""
        states, end, visits = self.start, -1, 1
        before = text[start - 1 : start] if self._looks_back else ""
        for at in range(start, len(text) + 1):
            c = text[at : at + 1]
            if self._accepts(states, before, c):
                end = at
            if not c:
                break
            states, visited = self._step(states, before, c)
            visits += visited
            if not states:
                break
            before = c if self._looks_back else ""
        return end, visits

    def spans(self, *texts: str) -> list[list[tuple[int, int]]]:
        """The places of the matches in each text, (start, end): of all that there are the leftmost, and of these the
        longest, one behind the other, and a character further behind an empty one. Raises LightNetError where that
        takes more than `MAX_SEARCH`."""
        visits, found = 0, []
        for text in texts:
            places, at = [], 0
            while at <= len(text):
                end, visited = self._longest(text, at)
                visits += visited
                if visits > MAX_SEARCH:
                    message = f"pattern '{self.pattern:.80}' visits more than {MAX_SEARCH} states"
                    raise LightNetError(message, label="host.size")
                if end >= 0:
                    places.append((at, end))
                at = max(end, at + 1)
            found.append(places)
        return found

    def matches(self, *texts: str) -> list[bool]:
        """Return whether all of each text matches. Raises LightNetError where that takes more than `MAX_VISITS`."""
        visits, matched = 0, []
        for text in texts:
            states, before = self.start, ""
            for c in chain(text, ("",)):
                states, visited = self._step(states, before, c)
                visits += visited
                if visits > MAX_VISITS:
                    message = f"pattern '{self.pattern:.80}' visits more than {MAX_VISITS} states"
                    raise LightNetError(message, label="host.size")
                if not states:
                    break
                before = c if self._looks_back else ""
            matched.append(bool(states))
        return matched
