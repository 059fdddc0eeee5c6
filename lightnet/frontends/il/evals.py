"""The `${eval EXPR}` of IL: found in preprocessed text, evaluated innermost first, and replaced by the text of the
value.

`arith` (the default) evaluates by `eval_expr`; `perl` runs one child process with limits for all expressions of a file,
for files that the user trusts. Imports the standard library, `eval_expr`, the preprocessor's result type and
diagnostics only.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import ErrorList, LightNetError
from lightnet.frontends.il.eval_expr import evaluate_perl
from lightnet.frontends.il.lexer import Token
from lightnet.frontends.il.preprocessor import Translation

MODES = ("arith", "perl")
MAX_DEPTH = 50
MAX_TEXT = 1 << 26

#: Limits of the Perl process: processor seconds, wall seconds, bytes of memory, bytes of output.
CPU_SECONDS, WALL_SECONDS, MEMORY, OUTPUT = 2, 5, 512 << 20, 1 << 24

_MARK = re.compile(r"\$\{\s*eval\b|\}")


@dataclass
class _Eval:
    """One expression: its span in the text and the parts between which nested ones stand."""

    start: int
    end: int = 0
    parts: list[str | _Eval] = field(default_factory=list)
    last: int = 0


class EvalError(Exception):
    """A LightNetError without a place, and the offset of the expression it is about."""

    def __init__(self, error: LightNetError, offset: int):
        super().__init__(error.message)
        self.error = error
        self.offset = offset


def substitute_evals(translation: Translation, mode: str, errors: ErrorList) -> tuple[str, list[int], list[Token]]:
    """The text with every `${eval}` replaced, and for each token that is left its offset and the token, for locations.

    A value stands where its expression stood, so text around it joins it. An expression that is malformed or refused is
    an error, and becomes 0.
    """
    text, starts, tokens = translation.text, translation.starts, translation.tokens
    if "${" not in text:
        return text, starts, tokens

    def located(e: EvalError) -> LightNetError:
        token = tokens[max(0, bisect_right(starts, e.offset) - 1)]
        error = translation.sources.error(e.error.message, token)
        error.notes = e.error.notes + error.notes
        return error

    try:
        found = _find(text)
        values = _arith(found, lambda e: errors.add(located(e))) if mode == "arith" else _perl(found)
    except EvalError as e:
        raise located(e) from None
    except LightNetError as e:  # of no expression in particular: perl is not there, or took too long
        raise e if e.loc is not None else located(EvalError(e, found[0].start)) from None
    return _splice(text, starts, tokens, found, values)


def _find(text: str) -> list[_Eval]:
    """The outermost expressions; an expression goes to the first `}` after it, so that nested ones are found first."""
    found: list[_Eval] = []
    open_: list[_Eval] = []
    for m in _MARK.finditer(text):
        if m[0] != "}":
            if len(open_) >= MAX_DEPTH:
                raise EvalError(LightNetError("${eval} is nested too deeply"), m.start())
            open_.append(_Eval(m.start(), last=m.end()))
        elif open_:
            node = open_.pop()
            node.end = m.end()
            node.parts.append(text[node.last : m.start()])
            if open_:
                outer = open_[-1]
                outer.parts += [text[outer.last : node.start], node]
                outer.last = node.end
            else:
                found.append(node)
    if open_:
        raise EvalError(LightNetError("${eval without its '}'"), open_[0].start)
    return found


def _splice(
    text: str, starts: list[int], tokens: list[Token], found: list[_Eval], values: list[str]
) -> tuple[str, list[int], list[Token]]:
    parts: list[str] = []
    new_starts: list[int] = []
    new_tokens: list[Token] = []
    at = length = index = 0
    for node, value in zip(found, values):
        stop = bisect_left(starts, node.start)
        new_starts += [s - at + length for s in starts[index:stop]]
        new_tokens += tokens[index:stop]
        parts += [text[at : node.start], value]
        length += node.start - at
        new_starts.append(length)
        new_tokens.append(tokens[max(0, bisect_right(starts, node.start) - 1)])
        length += len(value)
        if length > MAX_TEXT:
            raise LightNetError(f"the network is too large: more than {MAX_TEXT} characters after ${{eval}}")
        at, index = node.end, bisect_left(starts, node.end)
    new_starts += [s - at + length for s in starts[index:]]
    new_tokens += tokens[index:]
    return "".join([*parts, text[at:]]), new_starts, new_tokens


def _arith(found: list[_Eval], on_error: Callable[[EvalError], None]) -> list[str]:
    """All values; one that fails is 0, and is reported once."""
    known: dict[str, str] = {}

    def value(node: _Eval) -> str:
        expression = "".join(p if isinstance(p, str) else value(p) for p in node.parts)
        if expression not in known:
            known[expression] = "0"
            try:
                known[expression] = evaluate_perl(expression)
            except LightNetError as e:
                raise EvalError(e, node.start) from None
        return known[expression]

    def value_or_zero(node: _Eval) -> str:
        try:
            return value(node)
        except EvalError as e:
            on_error(e)
            return "0"

    return [value_or_zero(node) for node in found]


# -- Perl -------------------------------------------------------------------------------------------------------------
# The child answers on a private copy of its stdout, one record a value: its length, a colon, its bytes. A failure is
# "!", the number of the expression, a colon, and Perl's message. Expressions share one interpreter, so that a variable
# set in one is seen by the next.
_PROLOGUE = """sub __ln_eval {
    my $r = eval $_[1];
    if ($@ ne '') {
        print {$main::__ln_out} "!$_[0]:" . substr($@, 0, 500);
        close $main::__ln_out; require POSIX; POSIX::_exit(1)
    }
    return defined $r ? $r : '';
}
open(STDIN, '<', '/dev/null');
open($main::__ln_out, '>&', \\*STDOUT);
open(STDOUT, '>', '/dev/null');
sub __ln_put { print {$main::__ln_out} length($_[0]) . ':' . $_[0] }
"""


def _perl(found: list[_Eval]) -> list[str]:
    """All values, from one Perl process."""
    import shutil

    perl = shutil.which("perl")
    if perl is None:
        raise LightNetError("--eval=perl needs the program perl, which is not installed")
    nodes: list[_Eval] = []

    def code(node: _Eval) -> str:
        parts = [_quote(p) if isinstance(p, str) else code(p) for p in node.parts]
        nodes.append(node)
        return f"__ln_eval({len(nodes) - 1}, {' . '.join(parts)})"

    script = _PROLOGUE + "".join(f"__ln_put({code(node)});\n" for node in found)
    return _records(_run_perl(perl, script.encode()), found, nodes)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _limit_child() -> None:
    """In the child: no more than its share of time and memory, no file, no process."""
    import resource

    for what, limit in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def _run_perl(perl: str, script: bytes) -> bytes:
    """The output of the script. It is read from an unnamed file, as standard input; the environment is empty."""
    import selectors
    import signal
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as source:
        source.write(script)
        source.seek(0)
        child = subprocess.Popen([perl, "-"], stdin=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={},
                                 start_new_session=True, preexec_fn=_limit_child)  # fmt: skip
    deadline = time.monotonic() + WALL_SECONDS
    pipe = child.stdout
    assert pipe is not None
    out, fd = bytearray(), pipe.fileno()
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise LightNetError(f"${{eval}} in Perl took more than {WALL_SECONDS} s")
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    return bytes(out)
                out += chunk
                if len(out) > OUTPUT:
                    raise LightNetError(f"${{eval}} in Perl gave more than {OUTPUT} bytes")
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        pipe.close()


def _records(out: bytes, found: list[_Eval], nodes: list[_Eval]) -> list[str]:
    values: list[str] = []
    at = 0
    while at < len(out):
        head, colon, _ = out[at : at + 24].partition(b":")
        body = at + len(head) + 1
        if colon and head[:1] == b"!" and head[1:].isdigit() and int(head[1:]) < len(nodes):
            reason = out[body:].decode("utf-8", "replace").split("\n")[0]
            raise EvalError(LightNetError(f"Perl in ${{eval}}: {reason}"), nodes[int(head[1:])].start)
        if not (colon and head.isdigit() and body + int(head) <= len(out)):
            break
        at = body + int(head)
        values.append(out[body:at].decode("utf-8", "replace"))
    if len(values) < len(found):
        what = "stopped: it took too long, used too much memory, or ended by itself"
        raise EvalError(LightNetError(f"Perl in ${{eval}} {what}"), found[len(values)].start)
    return values
