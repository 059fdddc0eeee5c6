"""`--trace-rewrites`: each application of a pattern as it happens, with its place, before and after. Imports `ir`."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import TextIO

from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import printable
from lightnet.ir.passes import Instrumentation
from lightnet.ir.rewrites import Rewrite

#: Stands for every pattern.
EVERY = "*"
#: Columns of a line where the stream is no terminal; ops that each side of a rewrite shows.
COLUMNS, OPS = 160, 12

RED, GREEN, BOLD, DIM = "31", "32", "1", "2"

_OP = re.compile(r"(?:^|= |\{ |\s)([a-z_]\w*\.[a-z_][\w.]*)")


class TraceRewrites(Instrumentation):
    """Writes a paragraph for each rewrite whose pattern, pass or op is called for by `wanted` (names, or shell
    patterns)."""

    wants_rewrites = True
    wants_text = True

    def __init__(self, stream: TextIO, wanted: Collection[str] = (EVERY,)):
        self.stream, self.wanted = stream, wanted
        self.colours = stream.isatty() and "NO_COLOR" not in os.environ
        self.seen: Counter[str] = Counter()
        self.shown = 0
        self.width = shutil.get_terminal_size((COLUMNS, 24)).columns if stream.isatty() else COLUMNS

    def rewrote(self, rewrite: Rewrite) -> None:
        self.seen[rewrite.pattern] += 1
        if matches(rewrite, self.wanted):
            self.shown += 1
            self.stream.write(self.paragraph(rewrite))

    def after_pipeline(self, module: ModuleOp) -> None:
        """Say what there was where nothing is called as `wanted`: it may be a slip."""
        if self.shown:
            return
        applied = ", ".join(f"{printable(name)} ({n})" for name, n in self.seen.most_common(20))
        what = "" if EVERY in self.wanted else f" of {', '.join(self.wanted)}"
        self.stream.write(f"no rewrite{what}; patterns that were applied: {applied or 'none'}\n")

    def paragraph(self, rewrite: Rewrite) -> str:
        """A heading, then a line for each op that was there (-), and for each that is there now (+)."""
        where = f"  {rewrite.where}" if rewrite.where else ""
        required = "  (required)" if rewrite.required else ""
        heading = f"rewrite {rewrite.number}: {rewrite.pass_name}: {self.coloured(printable(rewrite.pattern), BOLD)}"
        rest = self.coloured(printable(f"  on {rewrite.root}{where}{required}"), DIM)
        lines = [heading + rest]
        for sign, colour, ops in (("-", RED, rewrite.before), ("+", GREEN, rewrite.after)):
            lines += [self.coloured(f"  {sign} {text}", colour) for text in aligned_lines(ops[:OPS], self.width - 4)]
            if len(ops) > OPS:
                lines.append(self.coloured(f"  {sign} … {len(ops) - OPS} more", colour))
        if not rewrite.after:
            lines.append(self.coloured("  + (nothing)", GREEN))
        return "\n".join(lines) + "\n"

    def coloured(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colours else text


def matches(rewrite: Rewrite, wanted: Collection[str]) -> bool:
    """Return whether a rewrite is one of those that `wanted` names by pattern, pass, or the op or name that it
    matched.
    """
    op, _, name = rewrite.root.partition(" ")
    about = (rewrite.pattern, rewrite.pass_name, op, op.removeprefix("ln."), name.strip('"').removeprefix("%"))
    return any(fnmatchcase(text, want) for want in wanted for text in about)


def aligned_lines(ops: Sequence[str], width: int) -> list[str]:
    """The lines of some ops with their ``=`` below each other, bodies elided, none wider than `width`."""
    split = [printable(elided(text)).partition(" = ") for text in ops]
    heads = [head for head, equals, _ in split if equals and head.startswith("%") and len(head) <= 30]
    pad = max(map(len, heads), default=0)
    lines = [
        f"{head:{pad}}{equals}{tail}" if equals and head.startswith("%") else head + equals + tail
        for head, equals, tail in split
    ]
    return [line if len(line) <= width else line[: max(width - 1, 1)] + "…" for line in lines]


def elided(text: str) -> str:
    """The line of an op with each region replaced by the names of the ops in it: ``{ ln.conv2d, ln.relu }``.

    A brace opens a region if an op stands in it; of others, which hold parameters, nothing is left out.
    """
    out, position = [], 0
    for start, end in _braces(text):
        inside = text[start + 1 : end]
        names = [n for n in _OP.findall(_without_strings(inside)) if not n.endswith(".yield")]
        if not inside.startswith(" ") or not names:
            continue
        out += [
            text[position:start],
            "{ ",
            ", ".join(names[:6]),
            f", … {len(names) - 6} more" if len(names) > 6 else "",
            " ",
        ]
        position = end
    return "".join([*out, text[position:]])


def _braces(text: str) -> list[tuple[int, int]]:
    """The places where the outermost braces open and close, those in strings left alone."""
    found, depth, start, in_string, k = [], 0, 0, False, 0
    while k < len(text):
        c = text[k]
        if in_string:
            k += c == "\\"
            in_string = c != '"'
        elif c == '"':
            in_string = True
        elif c == "{":
            start = start if depth else k
            depth += 1
        elif c == "}" and depth:
            depth -= 1
            if not depth:
                found.append((start, k))
        k += 1
    return found


def _without_strings(text: str) -> str:
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
