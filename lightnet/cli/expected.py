"""``--verify-diagnostics``: compares the errors of a run with the ``// expected-error {{...}}`` comments of its input.

    expected-error {{text}}         an error on this line whose message contains the text
    expected-error@+2 {{text}}      two lines below (@-1: one above; @above, @below: the next line without a
                                    comment of this kind; @unknown: an error without a location)
    expected-error-re {{a {{[0-9]+}} b}}   the text holds regular expressions in inner braces

`expected-note` asks for a note; notes that nobody expects are no failure. Imports the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc

_COMMENT = re.compile(
    r"expected-(?P<kind>error|note)(?P<re>-re)?\s*(?:@(?P<at>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*)\}\}\s*$"
)
_MALFORMED = re.compile(r"//.*\bexpected-(error|note)\b")


@dataclass
class Expected:
    """One comment: what it waits for, on which line (0: no location), and where it stands."""

    kind: str
    pattern: re.Pattern[str]
    text: str
    line: int
    where: SourceLoc
    met: bool = False

    def matches(self, kind: str, loc: SourceLoc | None, message: str) -> bool:
        line = loc.line if loc is not None and loc.file == self.where.file else 0
        return not self.met and kind == self.kind and line == self.line and self.pattern.search(message) is not None


def parse_expected(text: str, file: str, first_line: int = 1) -> list[Expected]:
    """The comments of one input. Raises `LightNetError` for one that is malformed."""
    lines = text.split("\n")
    expected = []
    for i, line in enumerate(lines):
        if not _MALFORMED.search(line):
            continue
        where = SourceLoc(file, first_line + i, line.index("expected-") + 1)
        if (match := _COMMENT.search(line)) is None:
            form = "expected-error[-re][@+N|@-N|@above|@below|@unknown] {{text}}"
            raise LightNetError(f"malformed expectation; write {form}", where, source_line=line)
        target = _target_line(match["at"], i, lines)
        pattern = _regex(match["text"]) if match["re"] else re.escape(match["text"])
        try:
            compiled = re.compile(pattern)
        except re.error as e:
            raise LightNetError(f"malformed regular expression: {e}", where, source_line=line) from None
        line_no = 0 if target is None else first_line + target
        expected.append(Expected(match["kind"], compiled, match["text"], line_no, where))
    return expected


def _target_line(at: str | None, here: int, lines: Sequence[str]) -> int | None:
    if at == "unknown":
        return None
    if at not in ("above", "below"):
        return here + int(at or 0)
    step = -1 if at == "above" else 1
    here += step
    while 0 <= here < len(lines) and _MALFORMED.search(lines[here]):
        here += step
    return here


def _regex(text: str) -> str:
    """`{{...}}` inside the text are regular expressions, the rest is literal."""
    parts = re.split(r"\{\{(.*?)\}\}", text)
    return "".join(f"(?:{part})" if i % 2 else re.escape(part) for i, part in enumerate(parts))


def check_errors(expected: Sequence[Expected], errors: Sequence[LightNetError]) -> list[LightNetError]:
    """The mistakes: errors that nobody expected, and expectations that no error met."""
    problems = []
    for error in errors:
        message = f"{error.message} [{error.label}]" if error.label else error.message
        if not _meet(expected, "error", error.loc, message):
            problems.append(LightNetError(f"unexpected error: {message}", error.loc, None, error.source_line))
        for loc, note in error.notes:
            _meet(expected, "note", loc, note)
    for e in expected:
        if not e.met:
            problems.append(LightNetError(f"expected {e.kind} was not produced: {e.text}", e.where))
    return problems


def _meet(expected: Sequence[Expected], kind: str, loc: SourceLoc | None, message: str) -> bool:
    for e in expected:
        if e.matches(kind, loc, message):
            e.met = True
            return True
    return False
