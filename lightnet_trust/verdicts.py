"""The verdicts that programs read: of the check of passes, of reductions, of comparisons, in one shape.

    {"tool": "check", "verdict": "wrong", "ok": false, "error": {"message": …, "place": …, …}, "notes": […], …}

`SCHEMA` says the shape (JSON Schema, 2020-12), `FIELDS` what each tool has beside. ``ok`` is true where the tool's exit
status is 0. Numbers are in the units that a field's name ends in. Imports the files of this folder where they are asked
for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError, SourceLoc

if TYPE_CHECKING:
    from lightnet.cli.checking import Checking
    from lightnet_trust.check import Checker
    from lightnet_trust.isolate import Isolation
    from lightnet_trust.reduce import Reduction

#: The words that a tool's ``verdict`` may be.
WORDS = {
    "check": ("right", "wrong", "unchecked", "fails"),
    "bisect": ("right", "wrong", "fails"),
    "reduce": ("reduced", "stopped", "fails"),
    "isolate": ("isolated", "stopped", "fails"),
    "compare": ("faster", "slower", "no difference", "undecided", "fails"),
    "judge": ("right", "wrong", "slower", "fails"),
    "passes": ("done", "fails"),
    "inspect": ("done", "fails"),
}
#: What a verdict has beside, by tool: the field, its type in JSON Schema, and what it says.
FIELDS: dict[str, tuple[tuple[str, Any, str], ...]] = {
    "check": (
        ("passes", "integer", "passes that keep the results"),
        ("compared", "integer", "tensors compared, on all data"),
        ("data", "string", "the kinds of data"),
        ("seed", "integer", "the seed of the data"),
        ("pass", ["string", "null"], "the pass that is wrong"),
        ("pattern", ["string", "null"], "its pattern"),
        ("rewrite", ["integer", "null"], "the number of the rewrite"),
        ("changed", ["string", "null"], "what changed: value, exact, interface, effect, memory, fails"),
    ),
    "bisect": (
        ("rewrites", "integer", "rewrites of the pipeline"),
        ("runs", "integer", "how often it ran"),
        ("pass", ["string", "null"], "the pass that is wrong"),
        ("pattern", ["string", "null"], "its pattern"),
        ("rewrite", ["integer", "null"], "the number of the rewrite"),
        ("changed", ["string", "null"], "what changed"),
    ),
    "reduce": (
        ("ops_before", "integer", "ops of the module"),
        ("ops", "integer", "ops that are left"),
        ("tests", "integer", "candidates tested"),
        ("stopped", ["string", "null"], "why it ended early"),
        ("module", "string", "what is left, as text"),
    ),
    "isolate": (
        ("pipeline", "string", "the passes that are left"),
        ("passes_before", "integer", "passes of the pipeline"),
        ("passes", "integer", "passes that are left"),
        ("finding", "string", "what each step had to show"),
        ("pattern", ["string", "null"], "the pattern that is wrong"),
        ("shown", "object", "the error that the passes end in on what is left, as in `error`"),
    ),
    "compare": (
        ("ratio", ["object", "null"], "time of B by that of A: ratio, low, high, confidence, samples"),
        ("margin", "number", "below which share a difference is none"),
        ("seconds_measured", "number", "how long it took"),
        ("clock", "string", "what was measured"),
        ("a", "object", "side A: what, seconds, memory, code_bytes"),
        ("b", "object", "side B"),
        ("outputs", "array", "outputs: name, equal, constant, mismatch, absolute, relative, of_largest"),
        ("kernels", "array", "kernels matched: name, a, b (ns, predicted_ns, kernels), same_code, ratio"),
    ),
    "judge": (
        ("networks", "array", "network, right, problem, error, verdict, ratio, memory, code_bytes, kernels, seconds"),
    ),
    "passes": (("module", "string", "the module behind the passes, as text"),),
    "inspect": (("report", "object", "what `lightnet inspect --json` prints"),),
}  # fmt: skip
#: What else a tool has: that of another.
ALSO = {"isolate": "reduce"}

_PLACE = {
    "type": ["object", "null"],
    "properties": {"file": {"type": "string"}, "line": {"type": "integer"}, "column": {"type": "integer"}},
    "required": ["file", "line", "column"],
    "additionalProperties": False,
}
_ERROR = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "label": {"type": ["string", "null"]},
        "place": {"$ref": "#/$defs/place"},
        "source": {"type": ["string", "null"]},
        "notes": {"type": "array", "items": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "place": {"$ref": "#/$defs/place"}},
            "required": ["message", "place"],
            "additionalProperties": False,
        }},
        "text": {"type": "string"},
    },
    "required": ["message", "label", "place", "source", "notes", "text"],
    "additionalProperties": False,
}  # fmt: skip
#: The fields of every verdict.
COMMON: dict[str, Any] = {
    "tool": {"enum": list(WORDS)},
    "verdict": {"type": "string"},
    "ok": {"type": "boolean"},
    "error": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/error"}]},
    "notes": {"type": "array", "items": {"type": "string"}},
}


def fields(tool: str) -> tuple[tuple[str, Any, str], ...]:
    """The fields of a tool's verdict beside the common ones, where it is about more than an error."""
    return (*FIELDS[tool], *(FIELDS[ALSO[tool]] if tool in ALSO else ()))


def _of(tool: str) -> dict[str, Any]:
    """The schema of one tool's verdicts: one that ``fails`` has an error, and may have nothing beside."""
    own = {name: {"type": type_} for name, type_, _ in fields(tool)}
    words = list(WORDS[tool])
    return {
        "if": {"properties": {"tool": {"const": tool}}, "required": ["tool"]},
        "then": {
            "properties": {**COMMON, "tool": {"const": tool}, "verdict": {"enum": words}, **own},
            "additionalProperties": False,
            "if": {"properties": {"verdict": {"const": "fails"}}, "required": ["verdict"]},
            "then": {"properties": {"error": {"$ref": "#/$defs/error"}, "ok": {"const": False}}},
            "else": {"required": list(own)},
        },
    }


#: The shape of all verdicts, in JSON Schema.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "LightNet verdict",
    "type": "object",
    "properties": COMMON,
    "required": list(COMMON),
    "$defs": {"place": _PLACE, "error": _ERROR},
    "allOf": [_of(tool) for tool in WORDS],
}


def verdict(
    tool: str, word: str, ok: bool, error: LightNetError | None = None, notes: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    """A verdict, as JSON values."""
    assert word in WORDS[tool], word
    told = error_values(error) if error is not None else None
    return {"tool": tool, "verdict": word, "ok": ok, "error": told, "notes": notes or [], **more}


def failed(tool: str, error: LightNetError) -> dict[str, Any]:
    """The verdict of a tool that could not come to one."""
    return verdict(tool, "fails", False, error)


def error_values(error: LightNetError) -> dict[str, Any]:
    """An error as JSON values: its message, label, place, source line and notes, and as a tool prints it."""
    return {
        "message": error.message,
        "label": error.label,
        "place": _place(error.loc),
        "source": error.source_line,
        "notes": [{"message": text, "place": _place(loc)} for loc, text in error.notes],
        "text": error.render(),
    }


def _place(loc: SourceLoc | None) -> dict[str, Any] | None:
    return None if loc is None else {"file": str(loc.file), "line": loc.line, "column": loc.col}


def _blamed(error: LightNetError | None) -> dict[str, Any]:
    """The pass, pattern and rewrite that an error blames."""
    from lightnet_trust.check import CheckError

    if not isinstance(error, CheckError):
        return {"pass": None, "pattern": None, "rewrite": None, "changed": None}
    made = error.rewrite
    return {
        "pass": error.pass_name,
        "pattern": made.pattern if made else None,
        "rewrite": made.number if made else None,
        "changed": error.difference.kind,
    }


def check_verdict(checker: Checker, error: LightNetError | None = None) -> dict[str, Any]:
    """The verdict of a check that has ended, with the error that it ended in, if it did."""
    from lightnet_trust.check import CheckError

    base = checker.baseline
    word = "right" if checker.passes else "unchecked"
    if error is not None:
        word = "wrong" if isinstance(error, CheckError) else "fails"
    notes = [*checker.notes, *(base.notes() if base is not None else ())]
    return verdict(
        "check", word, error is None, error, notes, passes=checker.passes, compared=checker.compared,
        data=checker.data, seed=checker.options.seed, **_blamed(error),
    )  # fmt: skip


def bisect_verdict(found: Any) -> dict[str, Any]:
    """The verdict of a bisection (`bisect.Found`)."""
    word = "right" if found.error is None else "wrong"
    more = {"rewrites": found.rewrites, "runs": found.runs, **_blamed(found.error)}
    return verdict("bisect", word, found.error is None, found.error, list(found.notes), **more)


def reduce_verdict(found: Reduction) -> dict[str, Any]:
    """The verdict of a reduction."""
    return verdict("reduce", "stopped" if found.stopped else "reduced", not found.interrupted, **_reduction(found))


def _reduction(found: Reduction) -> dict[str, Any]:
    return {
        "ops_before": found.ops_before,
        "ops": found.ops_after,
        "tests": found.tests,
        "stopped": found.stopped,
        "module": found.text,
    }


def isolate_verdict(found: Isolation) -> dict[str, Any]:
    """The verdict of a fault that is isolated; its module is the file that replays it."""
    reduction = found.reduction
    more = {**_reduction(reduction), "ops_before": found.ops_before, "tests": found.tests, "module": found.reproducer()}
    return verdict(
        "isolate", "stopped" if reduction.stopped else "isolated", not reduction.interrupted,
        pipeline=found.pipeline, passes_before=found.passes_before, passes=found.passes_after, finding=found.finding,
        pattern=found.pattern, shown=error_values(found.error), **more,
    )  # fmt: skip


@contextmanager
def printed(checking: Checking) -> Iterator[None]:
    """Print the verdict of ``ln-opt --check --json`` (or ``--bisect``) when the block ends, in a line of JSON."""
    tool = "bisect" if checking.bisecting else "check"
    error: LightNetError | None = None
    try:
        yield
    except LightNetError as e:
        error = e
        raise
    finally:
        told: dict[str, Any] | None
        if checking.found is not None:
            told = bisect_verdict(checking.found)
        elif checking.checker is not None:
            told = check_verdict(checking.checker, error)
        else:
            told = failed(tool, error) if error is not None else None
        if told is not None:
            print(json.dumps(told))
