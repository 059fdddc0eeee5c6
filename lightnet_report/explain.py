"""The reason why a pattern left an op as it is: the first of its conditions that failed.

A rule of a description or in PDL says it itself (`why_not(op, rewriter)`). One in Python is asked once more, under a
trace of its own function: what it returned from is a guard in its source, of whose parts the first that holds is the
reason. Nothing of this runs unless somebody asks for remarks. Imports nothing of passes.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dataclasses import dataclass

#: Characters of a condition that are shown.
LONGEST = 160


def left_because(pattern: RewritePattern, op: Operation, rewriter: PatternRewriter) -> str | None:
    """The reason why `pattern`, which has just left `op` as it is, did; None where it is not for such ops at all: then
    its root does not match."""
    own = getattr(pattern, "why_not", None)
    if own is not None:
        return own(op, rewriter)
    rule = getattr(type(pattern), "apply", None)  # a `@rule` function of the op
    function = rule if callable(rule) else type(pattern).match_and_rewrite
    found = stop_of(function, lambda: pattern.match_and_rewrite(op, rewriter))
    if found is None or _tells_kinds(found.condition, function):
        return None
    return str(found)


def gives_up_because(function: Callable[..., Any], *args: Any) -> str:
    """The reason why a function of somebody's own returned nothing and gave no reason (`refusal.Refusal`): the guard in
    its source."""
    found = stop_of(inspect.unwrap(function), lambda: function(*args))
    return "it does not say why" if found is None else str(found)


@dataclass(frozen=True)
class Stop:
    """The place where a function returned, and the condition there (empty: the function went to its end)."""

    file: str
    line: int
    condition: str

    @property
    def place(self) -> str:
        """``arith.py:41``."""
        return f"{Path(self.file).name}:{self.line}"

    def __str__(self) -> str:
        return f"`{self.condition}` ({self.place})" if self.condition else f"it ends at {self.place}"


def stop_of(function: Callable[..., Any], call: Callable[[], Any]) -> Stop | None:
    """The place where the first run of `function` in `call` returned; None where it did not run, or its source is
    unknown. What `call` raises is not for this."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is None:
        return None
    found: list[Stop] = []

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code is code and not found else None

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "return" and not found:
            found.append(_stop(code, frame))
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    except Exception:
        return None  # it did not leave the op
    finally:
        sys.settrace(before)
    return found[0] if found else None


def _stop(code: CodeType, frame: FrameType) -> Stop:
    test = _tests(code).get(frame.f_lineno)
    if test is None:
        return Stop(code.co_filename, frame.f_lineno, "")
    holding = next((part for part in _parts(test) if _holds(part, frame)), test)
    text = ast.unparse(holding)
    return Stop(code.co_filename, holding.lineno, text if len(text) <= LONGEST else text[:LONGEST] + "…")


@lru_cache(256)
def _tests(code: CodeType) -> dict[int, ast.expr]:
    """The conditions under which a function returns, by each line of the statement that it then is at. Places are those
    in the file."""
    linecache.checkcache(code.co_filename)
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return {}
    ast.increment_lineno(tree, first - 1)
    found: dict[int, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            for last in node.body[-1:]:
                if isinstance(last, ast.Return | ast.Continue):
                    found.update(dict.fromkeys(range(last.lineno, (last.end_lineno or last.lineno) + 1), node.test))
            if not node.orelse:  # the function may end behind it: then the condition did not hold
                found.setdefault(node.lineno, ast.UnaryOp(ast.Not(), node.test, lineno=node.lineno, col_offset=0))
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.IfExp):
            test = node.value.test
            if not _is_none(node.value.body):
                test = ast.UnaryOp(ast.Not(), test, lineno=test.lineno, col_offset=test.col_offset)
            found.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), test))
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    """The conditions any of which makes a test hold: those of an `or`, and of a negated `and`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        for value in test.values:
            yield from _parts(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.BoolOp) \
            and isinstance(test.operand.op, ast.And):  # fmt: skip
        for value in test.operand.values:
            yield from _parts(ast.copy_location(ast.UnaryOp(ast.Not(), value), value))
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.UnaryOp) \
            and isinstance(test.operand.op, ast.Not):  # fmt: skip
        yield from _parts(test.operand.operand)
    else:
        yield test


def _holds(part: ast.expr, frame: FrameType) -> bool:
    """Return whether a condition of a frame that returns holds; names that it binds bind no name of the frame."""
    try:
        code = compile(ast.fix_missing_locations(ast.Expression(part)), "<condition>", "eval")
        return bool(eval(code, {**frame.f_globals, **frame.f_locals}))
    except Exception:
        return False


def _tells_kinds(condition: str, function: Callable[..., Any]) -> bool:
    """Return whether a condition says that the op is no such op: its class or name, or those of a kernel's first op."""
    names = [name for name in inspect.unwrap(function).__code__.co_varnames if name not in ("self", "rewriter")]
    root = re.escape(names[0]) if names else "op"
    return re.match(rf"not isinstance\(\(?(\w+ := )?{root}(\.ops\[0\])?\)?,|{root}\.name ", condition) is not None
