"""The report on a compilation as one HTML file: graph, differences, memory plan, rewrites and kernel times, in a
browser without a network.

The page is `page/page.html` with its style sheet, its scripts and the data put in. The data is JSON in a script element
that is never run; the scripts put it into the page as text nodes only. So whatever a model calls its tensors stays
text; and the page's policy allows no request, and no script but these. Imports the recorder and `layout`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import printable
from lightnet_report.dfg import DataNode, DataTensor
from lightnet_report.layout import layout
from lightnet_report.plan_report import PlanReport
from lightnet_report.recorder import Recorder, Snapshot
from lightnet_report.remarks import Remarks

if TYPE_CHECKING:
    from lightnet_debug.profile import KernelTime, Profile

PAGE = Path(__file__).parent / "page"
SCRIPTS = (
    "core.js",
    "passes.js",
    "camera.js",
    "nodes.js",
    "graph.js",
    "diff.js",
    "plan.js",
    "rewrites.js",
    "remarks.js",
    "kernels.js",
    "start.js",
)

#: Pixels of a character and of a line in a node, and around them (page.css has the same font).
CHARACTER, LINE, MARGIN = 7.3, 17, 9
#: Characters of a line in a node, inner ops that it lists, nodes that are drawn, and characters of any one text.
LONGEST, INNER, NODES, TEXT = 34, 12, 4000, 20_000
#: Remarks that the page has.
REMARKS = 5000

NOT_RUN = "The network was not run: `lightnet --report FILE.html NET` runs it and times its kernels."


def page(recorder: Recorder, title: str, profile: Profile | str = NOT_RUN, remarks: Remarks | None = None) -> str:
    """The report as the text of an HTML file.

    `profile` has the times of the kernels of a run, or is a sentence that says why there are none; `remarks` are those
    of the pipelines.
    """
    data = {
        "title": title,
        "error": recorder.error,
        **_stages(recorder.snapshots),
        "stats": recorder.as_json(),
        "rewrites": [[r.number, r.pass_name, r.pattern, str(r.where or ""), r.root, _clipped(r.before),
                      _clipped(r.after), int(r.required)]
                     for r in recorder.applied],
        "rewrites_left_out": recorder.left_out,
        "remarks": _remarks(remarks),
        "remarks_left_out": 0 if remarks is None else max(len(remarks.remarks) - REMARKS, 0) + remarks.left_out,
        "plans": {space: _plan(report) for space, report in recorder.plans.items()},
        **({"kernels": profile} if isinstance(profile, str) else _times(profile)),
    }  # fmt: skip
    if recorder.note:
        data["title"] = title = f"{title} ({recorder.note})"
    boot, style = _file("boot.js"), _file("page.css")
    script = '"use strict";\n' + "".join(map(_file, SCRIPTS))
    parts = {
        "TITLE": _text(title), "STYLE": style, "BOOT": boot, "DATA": script_json(data), "SCRIPT": script,
        "SCRIPT HASHES": f"{_hash(boot)} {_hash(script)}", "STYLE HASH": _hash(style),
    }  # fmt: skip
    return "".join(parts.get(part, part) for part in _file("page.html").split("@@"))


def _remarks(remarks: Remarks | None) -> list[list[Any]]:
    """[kind, pass, op, where, text, nanoseconds by way] of each."""
    return [[r.kind, r.pass_name, _clip(r.op), str(r.where or ""), _clip(r.text, 1000), [*map(list, r.figures.items())]]
            for r in (remarks.remarks[:REMARKS] if remarks is not None else ())]  # fmt: skip


def _file(name: str) -> str:
    return (PAGE / name).read_text("utf-8")


def _hash(text: str) -> str:
    """The source of a content security policy that allows an inline script, or style sheet, of this text and no
    other."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def script_json(data: Any) -> str:
    """JSON that may stand in a script element: no text in it can end the element, or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: str) -> str:
    """Text for HTML outside of scripts."""
    return escape(printable(text)).replace("@", "&#64;")


def _clipped(texts: Sequence[str]) -> list[str]:
    return [t if len(t) <= TEXT else t[:TEXT] + "…" for t in texts]


# -- stages ----------------------------------------------------------------------------------------------------------


def _stages(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """The stages. Texts are numbers of lines in one table, as most lines are the same at every stage; a graph that is
    as before is the number of the stage that has it."""
    numbers: dict[str, int] = {}
    stages: list[dict[str, Any]] = []
    drawn: dict[str, int] = {}
    for k, stage in enumerate(snapshots):
        lines = stage.text.removesuffix("\n").split("\n")
        graph = _graph(stage)
        key = json.dumps({**graph, "nodes": [n[:-1] for n in graph["nodes"]]})  # but for the lines of the text
        same = drawn.setdefault(key, k)
        spans = {"spans": [n[-1] for n in graph["nodes"]]}
        shown = graph if same == k else same
        stages.append(
            {
                "name": stage.name,
                "text": [numbers.setdefault(line, len(numbers)) for line in lines],
                "graph": shown,
                **spans,
            }
        )
    return {"lines": [line if len(line) <= TEXT else line[:TEXT] + "…" for line in numbers], "stages": stages}


def _graph(stage: Snapshot) -> dict[str, Any]:
    """Nodes with centre and size, and edges with their bends: [x, y, w, h, kind, title, optype, where, results,
    weights, inner, notes, group, lines] and [source, target, tensor, bends]."""
    graph = stage.graph
    count = min(len(graph.nodes), NODES)
    edges = [e for e in graph.edges if (e.target or 0) < count]
    sizes = [node_size(node) for node in graph.nodes[:count]]
    drawing = layout(sizes, [e.ends for e in edges])
    nodes = [
        [
            round(x),
            round(y),
            round(w),
            round(h),
            node.kind,
            _clip(node.title),
            node.optype,
            str(node.where or ""),
            *_details(node),
            node.group,
            span,
        ]
        for node, (x, y), (w, h), span in zip(graph.nodes, drawing.centers, sizes, stage.lines)
    ]
    return {
        "width": round(drawing.width), "height": round(drawing.height), "nodes": nodes,
        "edges": [[e.source, e.target, _tensor(e.tensor), [[round(x), round(y)] for x, y in bends]] for e,
                  bends in zip(edges, drawing.bends)],
        "left_out": graph.left_out + len(graph.nodes) - count,
    }  # fmt: skip


def node_size(node: DataNode) -> tuple[float, float]:
    """A node shows its title, its op (or the ops in it), and its first result."""
    rows = node_lines(node)
    return max(len(r) for r in rows) * CHARACTER + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN


def node_lines(node: DataNode) -> list[str]:
    """The lines of a node in the picture."""
    inner = [" ".join(filter(None, (i.optype, i.title))) for i in node.inner[:INNER]]
    if len(node.inner) > INNER:
        inner.append(f"… {len(node.inner) - INNER} more")
    types = [f"{r.type}" for r in node.results[:1]]
    return [s if len(s) <= LONGEST else s[: LONGEST - 1] + "…" for s in [node.title, *(inner or [node.optype]), *types]]


def _details(node: DataNode) -> tuple[Any, ...]:
    inner = [[i.optype, _clip(i.title), *map(_clip, i.tensors)] for i in node.inner]
    return [_tensor(t) for t in node.results], [_tensor(t) for t in node.weights], inner, [_clip(n) for n in node.notes]


def _tensor(tensor: DataTensor) -> list[str]:
    return [_clip(tensor.name), tensor.type, tensor.place]


def _clip(text: str, longest: int = 400) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


# -- plan and kernels ------------------------------------------------------------------------------------------------


def _plan(report: PlanReport) -> dict[str, Any]:
    data = json.loads(report.json())
    data["buffers"] = [[_clip(b["id"]), b["offset"], b["size"], b["live"]] for b in data["buffers"]]
    data["ops"] = [_clip(op, 80) for op in data.get("ops", [])]
    return data


def _times(profile: Profile) -> dict[str, Any]:
    kernels = [_kernel(k) for k in profile.kernels]
    sentences = (f"times: {profile.clock}" if profile.clock else "", profile.machine)
    machine = ". ".join(s[0].upper() + s[1:] for s in sentences if s)
    return {"kernels": kernels, "whole": profile.whole_seconds, "machine": machine}


def _kernel(k: KernelTime) -> list[Any]:
    ops = [_clip(op, 80) for op in k.ops]
    return [
        _clip(k.name),
        k.function,
        ops,
        k.launches,
        k.seconds,
        k.flops,
        k.bytes,
        k.bound_seconds,
        k.shapes,
        str(k.where or ""),
    ]
