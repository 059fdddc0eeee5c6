"""Remarks (`lightnet_report/remarks.py`): every refusal has a sentence, figures are those by which passes decide, and who does not ask for them sees no
difference."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import lightnet
from lightnet.cli import ln_opt
from lightnet.cli.lightnet import main as lightnet_main
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.refusal import Refusal, begins_otherwise, refusal_reason
from lightnet.plugins import load
from lightnet_report import html
from lightnet_report.explain import gives_up_because, stop_of
from lightnet_report.recorder import Recorder
from lightnet_report.remarks import KINDS, Remark, Remarks, remarks_json, remarks_of, times

EXAMPLES = Path(__file__).parents[2] / "examples"
CNN = EXAMPLES / "cnn.net"
TARGETS = ["cpu", "cuda"]


def collected(path: Path, pipeline: str, *wanted: str) -> list[Remark]:
    """The remarks of passes on a network."""
    model, found = lightnet.load(path), Remarks(wanted)
    run_pipeline(model.ctx, model.module, parse_pipeline(pipeline), [found])
    return found.remarks


def test_a_refusal_is_empty_and_has_a_sentence() -> None:
    refusal = Refusal("its window is {} x {}, as {}", 7, 7, Refusal("it is wide"))
    assert not refusal and list(refusal) == [] and refusal_reason(refusal) == "its window is 7 x 7, as it is wide"
    assert (
        refusal_reason(None) == refusal_reason([]) == refusal_reason(False) == ""
        and refusal_reason(Refusal("{} stays")) == "{} stays"
    )
    assert refusal_reason(begins_otherwise((), "a sort")) == "it begins with no op, not with a sort"


@pytest.mark.parametrize("target", TARGETS)
def test_every_remark_has_a_reason(target: str) -> None:
    """On a real pipeline: no sentence ends at its colon, and each kind and pass that has to say something does."""
    found = collected(CNN, f"@{target}:kernels")
    assert {r.kind for r in found} == set(KINDS)
    assert {"expand", "combine", "layout", "choose", "simplify"} <= {r.pass_name for r in found}
    for remark in found:
        assert re.search(r"[\w)`\"'}…]$", remark.text) and "{}" not in remark.text and ": :" not in remark.text, remark
        assert remark.kind == "cost" or not remark.figures
    missed = [r for r in found if r.kind == "missed" and r.pass_name == "combine"]
    assert missed and all(": " in r.text for r in missed) and all(r.where is not None for r in missed)


def test_figures_are_those_that_decide() -> None:
    """The chosen generator is the first of the figures, and the fastest of those that are asked first; `layout` takes maps where they save time."""
    costs = collected(CNN, "@cpu:kernels", "cost")
    chosen = [r for r in costs if r.pass_name == "choose"]
    assert len(chosen) >= 4
    for remark in chosen:
        first, *others = remark.figures.items()
        assert f"runs on '{first[0]}'" in remark.text and all(
            first[1] <= time for alg, time in others if alg != "loops"
        )
    (softmax,) = (r for r in costs if r.pass_name == "layout" and r.op == "classes")
    assert softmax.figures["maps"] > softmax.figures["plain"] and "stays on row-major tensors" in softmax.text


def test_remarks_change_nothing() -> None:
    texts = []
    for watchers in ([], [Remarks()]):
        model = lightnet.load(CNN)
        run_pipeline(model.ctx, model.module, parse_pipeline("@cpu"), watchers)
        texts.append(str(model.module))
    assert texts[0] == texts[1]


def test_what_is_wanted() -> None:
    """By kind, by pass, by both; each remark once, though `simplify` and `hoist` stand twice in the pipeline."""
    every = collected(CNN, "@cpu:kernels")
    assert len({r.key for r in every}) == len(every)
    for wanted in (["missed"], ["choose"], ["cost", "missed", "layout", "choose"]):
        kinds = set(wanted) & set(KINDS) or set(KINDS)
        passes = set(wanted) - set(KINDS) or {r.pass_name for r in every}
        some = collected(CNN, "@cpu:kernels", *wanted)
        assert some == [r for r in every if r.kind in kinds and r.pass_name in passes] and some
    assert collected(CNN, "@cpu:kernels", "*") == every


def test_python_api_and_json() -> None:
    found = remarks_of(CNN, wanted=["cost", "choose"], layout="plain")
    rows = json.loads(remarks_json(found))
    assert len(rows) == len(found) > 0
    for row, remark in zip(rows, found):
        assert row["kind"] == "cost" and row["pass"] == "choose" and row["text"] == remark.text
        assert row["line"] == remark.where.line and row["nanoseconds"].keys() == remark.figures.keys()


def test_tools_show_them(tmp_path: Path, capfd) -> None:
    status = lightnet_main(["run", str(CNN), "--remarks", "missed,combine"])
    err = capfd.readouterr().err.splitlines()
    assert (
        status == 0
        and err
        and all(re.match(r".*cnn\.net:\d+:\d+: remark: .* \[missed: combine\]$", line) for line in err)
    )
    out = tmp_path / "r.json"
    assert (
        ln_opt.main([str(CNN), "--pass=@cpu:kernels", "-o", str(tmp_path / "o.mlir"), "--remarks-json", str(out)]) == 0
    )
    assert not capfd.readouterr().err and {row["kind"] for row in json.loads(out.read_text())} == set(KINDS)


def test_page_has_them() -> None:
    model, recorder, remarks = lightnet.load(CNN), Recorder(), Remarks(("missed", "cost"))
    run_pipeline(model.ctx, model.module, parse_pipeline("@cpu:plan"), [recorder, remarks])
    text = html.page(recorder, "cnn", html.NOT_RUN, remarks)
    data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    assert len(data["remarks"]) == len(remarks.remarks) > 20 and data["remarks_left_out"] == 0
    assert [kind for kind, *_ in data["remarks"]] == [r.kind for r in remarks.remarks] and 'name: "remarks"' in text


# -- reasons of who gives none


def early(op, other=3):
    if op is None or other > 5:
        return None
    if not (op and other):
        return None
    return None if other == 4 else op


def test_the_guard_that_returned() -> None:
    """The part of an `or`, of a negated `and`, of a conditional expression; nothing where a function did not run."""

    def stop(*args: object) -> str:
        found = stop_of(early, lambda: early(*args))
        assert found is not None and found.place.startswith("test_remarks.py:")
        return found.condition

    assert stop(None) == "op is None" and stop(1, 9) == "other > 5"
    assert stop(1, 0) == "not other" and stop(0) == "not op"
    assert stop(1, 4) == "other == 4"
    assert stop_of(early, lambda: None) is None
    assert re.fullmatch(r"`op is None` \(test_remarks\.py:\d+\)", gives_up_because(early, None))


def test_a_plugin_that_gives_no_reason_gets_its_source() -> None:
    """The condition of a generator that returns None, and of a target's `accepts`."""
    with load(EXAMPLES / "my_kernel.py"):
        found = collected(EXAMPLES / "cnn.net", "@cpu:kernels", "missed", "choose")
    crop = [r for r in found if "cannot run on 'crop'" in r.text]
    assert crop and all(
        re.search(r": `not isinstance\(ops\[0\], Slice\)` \(my_kernel\.py:\d+\)$", r.text) for r in crop
    )
    with load(EXAMPLES / "my_target.py"):
        model, remarks = lightnet.loads(CHAIN, ".net"), Remarks(("missed", "combine"))
        run_pipeline(model.ctx, model.module, parse_pipeline("bind,expand,combine", {"target": "toy"}), [remarks])
    texts = [r.text for r in remarks.remarks if "not merged" in r.text]
    assert texts and all(
        "target 'toy' accepts no such kernel: `not len(body.ops) <= 2` (my_target.py:" in t for t in texts
    )


CHAIN = """
create(| dst=x | dtype=TL_FLOAT, dims=[3]);
exp(src=x | dst=a |);
neg(src=a | dst=b |);
exp(src=b | dst=c |);
"""


def test_a_definition_with_a_local_tensor_says_what_keeps_it_from_merging() -> None:
    """F2 of a newcomer's list: an op described in several statements stays a kernel of its own, and the remark says which statements."""
    with load(EXAMPLES / "described" / "ops.op"):
        found = collected(EXAMPLES / "described" / "ops.net", "@cpu:kernels", "missed", "combine")
    (gelu,) = (r for r in found if "its reader 'active' (my_gelu)" in r.text)
    assert (
        "3 statements (with the local tensor 'mean', 'var')" in gelu.text and "an elementwise op has one" in gelu.text
    )


def test_times_are_readable() -> None:
    assert [times(t) for t in (0.5, 12.345, 1500, 268_000, 2.5e6, 3e9)] == [
        "0.5 ns",
        "12.3 ns",
        "1.5 us",
        "268 us",
        "2.5 ms",
        "3 s",
    ]
