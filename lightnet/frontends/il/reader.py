"""The reader of LightNet IL: preprocessed text, `${eval}` replaced, parsed into the operators of a `Netlist`.

Operators are named by their type and a count from 0 of each type. Imports the standard library, the netlist, the
preprocessor, the statements and diagnostics only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from lightnet.diagnostics import MAX_ERRORS, ErrorList, LightNetError, LimitError, SourceLoc
from lightnet.frontends.il.evals import MODES, substitute_evals
from lightnet.frontends.il.lexer import Token, TranslationMap, position
from lightnet.frontends.il.preprocessor import preprocess
from lightnet.frontends.il.statements import StatementError, located_statements
from lightnet.frontends.netlist import Netlist, NetOp
from lightnet.ir.collector import collector_paused
from lightnet.source import STDIN_NAME, check_text, read_text

MAX_FILE = 1 << 23  # bytes
MAX_OPS = 250_000
#: Errors that `on_error` gets at most.
MAX_REPORTED = 200


@collector_paused()
def read(
    text: str,
    path: str,
    *,
    include_dirs: Iterable[str] = (),
    eval_mode: str = "arith",
    defines: Iterable[str] = (),
    on_warning: Callable[[SourceLoc, str], None] | None = None,
    on_error: Callable[[LightNetError], None] | None = None,
    physical: bool = False,
) -> Netlist:
    """The network in `text`, which was read from `path` ("-" or "<stdin>" for standard input).

    `include_dirs`: folders that #include searches after the including file's. `defines`: macros, as `NAME` or
    `NAME=value`. `eval_mode`: "arith" or "perl" (which runs Perl code from the file). `on_warning` gets what #warning
    and redefinitions say. With `physical`, places are where they are, whatever `#line` says.

    Raises LightNetError, located in the user's file also within macros, for anything malformed or beyond the limits:
    the first mistake, with the others, up to a limit, in its `others`. With `on_error` each is reported there, and
    malformed statements are left out; all are where a directive failed, since what it should have defined is missing.
    """
    if eval_mode not in MODES:
        raise LightNetError(f"unknown eval mode '{eval_mode}'; the modes are: {', '.join(MODES)}")
    path = STDIN_NAME if path == "-" else path
    check_text(text, path)
    errors = ErrorList(on_error, MAX_ERRORS if on_error is None else MAX_REPORTED)
    try:
        translation = preprocess(
            text.removeprefix("\ufeff"), path, include_dirs, defines, errors=errors, physical=physical
        )
        if on_warning is not None:
            for loc, message in translation.warnings:
                on_warning(loc, message)
        ops: list[NetOp] = []
        if translation.is_whole:
            expanded, starts, tokens = substitute_evals(translation, eval_mode, errors)
            ops = _Reader(expanded, starts, tokens, translation.sources, errors).ops()
    except LightNetError as e:
        raise errors.joined(e) from None
    errors.check()
    return Netlist(ops, path, texts=translation.sources.texts(), is_il=True)


def read_file(path: str, **options) -> Netlist:
    """The network in a file ("-": standard input); the options of `read`."""
    return read(read_text(path, MAX_FILE), path, **options)


class _Reader:
    """The statements of one text; `starts` has the offset of each of the tokens, from which their places come."""

    def __init__(self, text: str, starts: list[int], tokens: list[Token], sources: TranslationMap, errors: ErrorList):
        self.text = text
        self.starts = starts
        self.tokens = tokens
        self.sources = sources
        self.errors = errors

    def ops(self) -> list[NetOp]:
        """The operators, with names and places."""
        counts: dict[str, int] = {}
        ops: list[NetOp] = []
        for start, end, op in located_statements(self.text):
            if isinstance(op, StatementError):
                if not self.failed_before(start, end):
                    self.errors.add(self.sources.error(op.message, self.token_at(op.at)))
                continue
            if len(ops) >= MAX_OPS:
                message = f"the network has more than {MAX_OPS} operators"
                raise self.sources.error(message, self.token_at(start), LimitError)
            op.loc = self.sources.loc(position(self.token_at(start)))
            number = counts.get(op.optype, 0)
            counts[op.optype] = number + 1
            op.name = f"{op.optype}{number}"
            ops.append(op)
        return ops

    def token_at(self, offset: int) -> Token:
        return self.tokens[max(0, bisect_right(self.starts, offset) - 1)]

    def failed_before(self, start: int, end: int) -> bool:
        """Return whether the preprocessor found a mistake in a statement: what is wrong with its text may come from
        that.
        """
        failed = self.sources.failed
        first, last = position(self.token_at(start)), position(self.token_at(end))
        i = bisect_left(failed, first)
        return i < len(failed) and failed[i] <= last
