"""The option ``-W``: which warnings a tool shows, and whether they are errors. Imports diagnostics only.

There are two kinds, as upstream has them: warnings, and internal ones, those that a rule of an optimizer description
gives (`warn`). Both are shown unless said otherwise; ``-Wno-warn`` silences both.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings as python_warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from lightnet.diagnostics import DescriptionWarning, ErrorList, InternalWarning, LightNetError, SourceLoc, printable

#: What -W takes.
KINDS = ("warn", "no-warn", "inter", "no-inter", "error", "no-error")
Message = str | tuple[SourceLoc | None, str]


def add_warnings(parser: argparse.ArgumentParser) -> None:
    """The options ``-W`` and ``-w``."""
    option = parser.add_argument
    option(
        "-W",
        "--warning",
        metavar="KIND",
        action="append",
        default=[],
        dest="warnings",
        help=f"{'/'.join(KINDS)}: show warnings, show those of rules (internal ones), make warnings errors",
    )
    option("-w", "--no-warnings", action="append_const", const="no-warn", dest="warnings", help="no warnings")


class Warnings:
    """The kinds of warnings that the options ask for; of two that contradict each other the last one counts. Raises
    `LightNetError` for an unknown kind.
    """

    def __init__(self, kinds: Sequence[str]):
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise LightNetError(f"unknown kind of warning '{unknown[0]}'; there are: {', '.join(KINDS)}")

        def last(default: str, other: str) -> str:
            return next((kind for kind in reversed(kinds) if kind in (default, other)), default)

        self.shown = last("warn", "no-warn") == "warn"
        self.internal_shown = self.shown and last("inter", "no-inter") == "inter"
        self.are_errors = last("no-error", "error") == "error"

    def show(self, messages: Sequence[Message]) -> None:
        """Print warnings on stderr, those of the source with their places. Raises them, as `LightNetError`, under
        ``-Werror``."""
        if not self.shown:
            return
        errors = ErrorList()
        try:
            for message in messages:
                loc, text = message if isinstance(message, tuple) else (None, message)
                if self.are_errors:
                    errors.add(LightNetError(text, loc, label="Werror"))
                else:
                    show_warning(text, loc)
        except LightNetError as e:
            raise errors.joined(e) from None
        errors.check()

    def refused(self, error: LightNetError, messages: Sequence[Message]) -> LightNetError:
        """The error, to be raised, of a source that warned of something before it was refused: the warnings are shown
        here or, under ``-Werror``, are errors before it."""
        errors = ErrorList(limit=None)
        try:
            self.show(messages)
        except LightNetError as e:
            errors.found = [e, *e.others]
        return errors.joined(error)

    @contextmanager
    def of_descriptions(self) -> Iterator[None]:
        """Treat what descriptions warn of so, internal warnings among it, while a network is compiled and run."""
        with python_warnings.catch_warnings():
            if not self.shown:
                python_warnings.simplefilter("ignore", DescriptionWarning)
            elif not self.internal_shown:
                python_warnings.simplefilter("ignore", InternalWarning)
            if self.are_errors:
                python_warnings.showwarning = _raised(python_warnings.showwarning)
            yield


def _raised(show: Callable[..., None]) -> Callable[..., None]:
    """`warnings.showwarning` under ``-Werror``; those of others go through `show`."""

    def raised(message: Warning | str, category: type[Warning], *place: object) -> None:
        if isinstance(message, DescriptionWarning):
            raise LightNetError(message.message, message.loc, label="Werror")
        show(message, category, *place)

    return raised


def show_warning(text: str, loc: SourceLoc | None = None, kind: str = "warning") -> None:
    """A line on stderr, as compilers write it."""
    where = f"{loc}: " if loc else ""
    print(f"{printable(where)}{coloured(f'{kind}: ', '35', sys.stderr)}{printable(text)}", file=sys.stderr)


def coloured(text: str, code: str, stream: TextIO) -> str:
    """`text` in a colour of the terminal, if `stream` is one."""
    return f"\033[{code}m{text}\033[0m" if stream.isatty() and "NO_COLOR" not in os.environ else text
