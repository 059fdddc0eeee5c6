"""docs/conformance.md: totals, what works by op, dtype and opset, and everything that does not, by reason.

Imports the standard library and what the results are made of.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from suites.cases import DOMAINS, DTYPES, NNVM_TOLERANCE, ONNX_SUITES, SUITES
from suites.domains import TOLERANCE
from suites.problem import Case
from suites.runners import PASS, RUNNERS, STATUSES, UNSUPPORTED, Result

#: By runner, then by case key.
Results = Mapping[str, Mapping[str, Result]]

SUITE_TEXT = {
    "node": "one op each",
    "node-expanded": "the function body of one op",
    "simple": "small models",
    "pytorch-converted": "PyTorch layers",
    "pytorch-operator": "PyTorch operators",
    "real": "whole networks",
    "com.microsoft": "ONNX Runtime's own ops",
    "ai.onnx.ml": "trees, machines and encoders",
    "nnvm": "NNVM and MXNet networks",
}
#: Tags of a case (suites/cases.py) that are the reason where we refuse it, first match first.
TAGS = ("training", "ai.onnx.ml", "string", "sequence", "optional", "control flow", "random numbers", "element type",
        "data-dependent shape")  # fmt: skip
#: Reasons told from the refusal.
MESSAGES = (
    ("element type", r"type [A-Z0-9]+ is not supported|dtype|element type"),
    ("data-dependent shape", r"data-dependent|(depends?|follows?) (on|from) (the )?(data|contents)"),
    ("random numbers", r"random numbers"),
    ("coded pictures", r"decodes a file of a picture"),
    ("missing op", r"the op is not supported"),
    ("old opset", r"opset \d+ is not supported"),
)


def reason(case: Case, result: Result) -> str:
    """The group of a case that does not pass."""
    if result.status != UNSUPPORTED:
        return result.status
    for tag in TAGS:
        if tag in case.tags:
            return tag
    return next((name for name, pattern in MESSAGES if re.search(pattern, result.detail, re.IGNORECASE)), "other")


def page(cases: Sequence[Case], results: Results, command: str, where: str) -> str:
    """The whole page."""
    ours = results["lightnet"]
    return "\n".join([
        f"<!-- Written by `{command}`. -->\n",
        "# Conformance\n",
        *_summary(cases, results),
        f"Measured on {where}.",
        "The cases that pass are the floor in `tests/data/conformance_floor.json`, which the tests do not let fall.\n",
        "## Totals\n", *_totals(cases, results),
        "## Why the others do not pass\n", *_reasons(cases, ours),
        "## By op\n", *_ops([c for c in cases if c.suite.startswith("node")], ours),
        *_beyond([c for c in cases if c.suite in DOMAINS], ours),
        "## Every case that does not pass\n", *_failures(cases, ours),
    ])  # fmt: skip


def _summary(cases: Sequence[Case], results: Results) -> list[str]:
    ours = results["lightnet"]
    passing = [c for c in cases if ours[c.key].status == PASS]
    count = {suite: _of(passing, suite) for suite in SUITES}
    total = {suite: _of(cases, suite) for suite in SUITES}
    pytorch = [sum(n[s] for s in ("pytorch-converted", "pytorch-operator")) for n in (count, total)]
    plain = [c for c in cases if c.suite == "node" and not c.tags]
    within = sum(ours[c.key].status == PASS for c in plain)
    nnvm = f"* **{count['nnvm']} of {total['nnvm']}** NNVM and MXNet networks, against MXNet's outputs"
    beyond = ", ".join(f"**{count[d]} of {total[d]}** cases of {d}" for d in DOMAINS if total[d])
    return [
        "LightNet, compiled for the CPU, passes\n",
        f"* **{count['real']} of {total['real']}** whole networks, **{pytorch[0]} of {pytorch[1]}** PyTorch exports and "
        f"**{count['node']} of {total['node']}** single-op cases of ONNX's backend suite",
        f"* **{within} of {len(plain)}** of those single-op cases that have dense tensors of {', '.join(DTYPES.values())} and no control "
        "flow, training, random numbers, or shapes that follow from data",
        *([nnvm] if total["nnvm"] else []),
        *([f"* {beyond}, against ONNX Runtime"] if beyond else []),
        "",
        "A case passes where every output has the dtype, the shape and the values that the suite expects, within the suite's own",
        f"tolerances (NNVM networks: within {NNVM_TOLERANCE:g} of the largest value), and comes out of machine code that we made. Inputs that",
        "decide shapes are compiled in. Where that leaves constants only, they are computed by the NumPy references of the ops, and no",
        f"kernel runs: so it is in {sum(ours[c.key].folded for c in passing)} of the {len(passing)} cases that pass (column *constant*).",
        f"What ops on text give is made by the host part of a network, in NumPy: so are all outputs of {sum(ours[c.key].hosted for c in passing)} cases (column *host*). Every runtime gets the same cases,",
        "inputs and tolerances. The whole networks of ONNX's suite have constants for weights; those of NNVM have random or trained",
        "ones, and say more. `unsupported` is a refusal that says so; ONNX Runtime refuses opsets that are newer than it knows, too.\n",
    ]


def _of(cases: Iterable[Case], suite: str) -> int:
    return sum(c.suite == suite for c in cases)


def _totals(cases: Sequence[Case], results: Results) -> list[str]:
    runners = list(results)
    rows = []
    groups = [(f"{suite}: {SUITE_TEXT[suite]}", [c for c in cases if c.suite == suite]) for suite in SUITES]
    onnx = [c for c in cases if c.suite in ONNX_SUITES]
    for title, of in (*groups, ("**all of ONNX**", onnx)):
        if of:
            cells = [_passed(of, results[r]) for r in runners]
            folded, hosted = (sum(getattr(results["lightnet"][c.key], n) for c in of) for n in ("folded", "hosted"))
            rows.append((title, str(len(of)), cells[0], str(folded or ""), str(hosted or ""), *cells[1:]))
    names = [RUNNERS[r].name for r in runners]
    lines = table(("suite", "cases", names[0], "constant", "host", *names[1:]), rows)
    lines += ["Of ONNX's cases, by status:\n"]
    counts = {r: Counter(results[r][c.key].status for c in onnx) for r in runners}
    return lines + table(("status", *names), [(s, *(str(counts[r][s]) for r in runners)) for s in STATUSES])


def _passed(cases: Sequence[Case], results: Mapping[str, Result]) -> str:
    known = [results[c.key] for c in cases if c.key in results]
    if not known:
        return "–"
    passed = sum(r.status == PASS for r in known)
    return f"{passed} ({100 * passed / len(cases):.0f} %)" if passed != len(cases) else f"{passed} (all)"


def _reasons(cases: Sequence[Case], ours: Mapping[str, Result]) -> list[str]:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if ours[case.key].status != PASS:
            groups[reason(case, ours[case.key])].append(case)
    rows = [
        (name, *(str(n) if (n := sum(c.suite == s for c in of)) else "" for s in SUITES), _example(of, ours))
        for name, of in sorted(groups.items(), key=lambda g: -len(g[1]))
    ]
    return table(("reason", *SUITES, "for example"), rows)


def _example(cases: Sequence[Case], ours: Mapping[str, Result]) -> str:
    """The commonest message."""
    (text, _), *_ = Counter(ours[c.key].detail for c in cases).most_common(1)
    return _short(text.replace(" (docs/add-an-op.md)", ""), 160)


def _short(text: str, limit: int) -> str:
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _ops(cases: Sequence[Case], ours: Mapping[str, Result]) -> list[str]:
    """One row an op: how many of its cases pass, by the version of the op and by the dtype of its first input."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_op[case.op].append(case)
    rows = []
    for op, of in sorted(by_op.items(), key=lambda o: ("." in o[0], o[0].lower())):
        plain, expanded = ([c for c in of if c.suite == s] for s in ("node", "node-expanded"))
        missing = Counter(reason(c, ours[c.key]) for c in of if ours[c.key].status != PASS)
        rows.append((
            op, _ratio(plain, ours), _ratio(expanded, ours), _split(of, ours, lambda c: str(c.since), int),
            _split(of, ours, lambda c: DTYPES.get(c.dtype, c.dtype), _dtype_rank),
            ", ".join(f"{n} {name}" for name, n in missing.most_common()),
        ))  # fmt: skip
    text = (
        "Passing cases of each op and of its function body; then all of them by the version of the op (the opset that it dates from)\n"
        "and by the dtype of the first input, with `(n/m)` where n of m pass, and struck out where none does.\n"
    )
    return [text, *table(("op", "cases", "expanded", "since opset", "dtypes", "missing"), rows)]


def _beyond(cases: Sequence[Case], ours: Mapping[str, Result]) -> list[str]:
    """One row an op of the domains beyond the standard."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_op[case.op].append(case)
    rows = [(op, _ratio(of, ours)) for op, of in sorted(by_op.items(), key=lambda o: o[0].lower())]
    text = (
        "Each case is one node, with optional inputs, attributes, forms of masks and the like as the op's kernels in ONNX Runtime take them; what it\n"
        f"computes is expected, within {TOLERANCE:g} of the largest value, or a step of 8 bits. (ONNX's own cases of ai.onnx.ml are in the table above.)\n"
    )
    return ["## Beyond the standard\n", text, *table(("op", "cases"), rows)] if rows else []


def _ratio(cases: Sequence[Case], ours: Mapping[str, Result]) -> str:
    passed = sum(ours[c.key].status == PASS for c in cases)
    return "" if not cases else f"✓ {passed}" if passed == len(cases) else f"{passed}/{len(cases)}"


def _split(cases: Sequence[Case], ours: Mapping[str, Result], key: Callable[[Case], str], order: Callable) -> str:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[key(case)].append(case)
    parts = []
    for name in sorted(groups, key=order):
        passed, total = sum(ours[c.key].status == PASS for c in groups[name]), len(groups[name])
        parts.append(name if passed == total else f"{name} ({passed}/{total})" if passed else f"~~{name}~~")
    return ", ".join(parts)


def _dtype_rank(name: str) -> tuple[int, str]:
    known = list(DTYPES.values())
    return (known.index(name) if name in known else len(known), name)


#: What is to be said of a kind of failure; `tests/tools/test_conformance.py` holds it.
NOTES = {
    "wrong": "These expect what the NumPy that wrote them rounded: 1.9e-7 where a sum of the DFT is 0 (ours is 3e-15), "
    "and f16 sums of f16 products (ours are f32, and nearer to the sums in f64).",
}


def _failures(cases: Sequence[Case], ours: Mapping[str, Result]) -> list[str]:
    """Names under the message that they have in common, the worst kind first."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case in cases:
        result = ours[case.key]
        if result.status != PASS:
            name = case.name if case.suite == "node" else case.key
            text = _generic(result.detail) if result.status == UNSUPPORTED else result.detail
            groups[reason(case, result), text].append(name)
    kinds = [s for s in STATUSES if s not in (PASS, UNSUPPORTED)]
    lines = []
    for kind in sorted({k for k, _ in groups}, key=lambda k: (k not in kinds, k)):
        lines.append(f"### {kind}\n")
        of = sorted(
            ((text, names) for (k, text), names in groups.items() if k == kind), key=lambda g: (-len(g[1]), g[0])
        )
        lines += [f"* {_short(text, 240)}: {', '.join(f'`{n}`' for n in sorted(names))}" for text, names in of]
        lines += ["", NOTES[kind]] if kind in NOTES else []
        lines.append("")
    return lines


def _generic(text: str) -> str:
    """A message without what differs from case to case: figures, names, element types, further refusals."""
    first = text.partition("; ")[0].partition(" yet: it needs a handler")[0]
    for pattern, word in (
        (r"'[^']*'(, '[^']*')*", "'…'"),
        (r"\btype [A-Z0-9]+\b", "type …"),
    ):
        first = re.sub(pattern, word, first)
    return first


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table and an empty line."""
    return [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}", *(f"| {' | '.join(r)} |" for r in rows), ""]
