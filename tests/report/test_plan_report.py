"""The report on a memory plan: what stands in each of its forms, and that the picture is well-formed and true to scale."""

from __future__ import annotations

import json
from html import unescape
from xml.etree import ElementTree

import pytest

from lightnet.passes.planning import pack
from lightnet.passes.planning.buffers import Buffer
from lightnet_report.calls import CallInfo, OpenInfo
from lightnet_report.plan_picture import _round_step
from lightnet_report.plan_report import PlanReport

NASTY = "a<b>&\"'\x1b\x00]]>"


def test_the_report_holds_peak_bound_and_every_buffer():
    buffers = [Buffer("x", 0, 3, 100, 64), Buffer(NASTY, 1, 9, 28, 64, ((3, 5),)), Buffer("z", 3, 5, 4, 64)]
    plan = pack(buffers)
    made = PlanReport(buffers, plan, ops=["create", "conv"])
    text = made.text()
    assert f"peak         {plan.peak} bytes" in text and "lower bound" in text and "[1, 3) [5, 9)" in text
    assert "\x1b" not in text and "\x00" not in text
    data = json.loads(made.json())
    assert (data["peak"], data["bound"], data["ratio"]) == (plan.peak, plan.bound, plan.ratio)
    assert {e["id"]: e["offset"] for e in data["buffers"]} == plan.offsets
    assert data["ops"] == ["create", "conv"]


def test_the_picture_is_well_formed_and_true_to_scale():
    buffers = [Buffer("x", 0, 3, 100), Buffer(NASTY, 1, 9, 28, 1, ((3, 5),)), Buffer("z", 3, 5, 50)]
    plan = pack(buffers)
    root = ElementTree.fromstring(PlanReport(buffers, plan, ops=["create"]).svg(NASTY))
    space = "{http://www.w3.org/2000/svg}"
    areas = {}
    for group in root.findall(f"{space}g"):
        name = group.find(f"{space}title").text.split("\n")[0]
        areas[name] = sum(float(r.get("width")) * float(r.get("height")) for r in group.findall(f"{space}rect"))
    x, nasty, z = (areas[n] for n in ("x", "a<b>&\"'\\x1b\\x00]]>", "z"))
    assert nasty / x == pytest.approx(28 * 6 / 300, rel=0.01)
    assert z / x == pytest.approx(50 * 2 / 300, rel=0.01)
    html = PlanReport(buffers, plan).html(NASTY)
    assert "<b>" not in html and "script" not in html and "http" not in html.replace("http://www.w3.org/2000/svg", "")


def test_an_empty_plan_has_a_report():
    made = PlanReport([], pack([]))
    assert "peak         0 bytes" in made.text()
    ElementTree.fromstring(made.svg())


@pytest.mark.parametrize("form", ["x.txt", "x.html"])
def test_what_calls_decide_is_told(form: str):
    """The ranges, the call that the figures are of, and the memory of each call and in all, in each form to read."""
    calls = OpenInfo(
        {"n<m": "in 1..16", "k": "in 2..4"},
        tuple(
            CallInfo(kind, {"n<m": n, "k": k}, 1000 * n)
            for kind, n, k in (("low", 1, 2), ("typical", 4, 3), ("high", 16, 4))
        ),
        "1000 * n<m",
    )
    buffers = [Buffer("x", 0, 3, 100)]
    text = PlanReport(buffers, pack(buffers), calls=calls).in_form(form)
    if form.endswith("html"):
        assert "n<m" not in text
        text = unescape(text)
    for part in ("n<m in 1..16, k in 2..4; figures are for n<m = 4, k = 3", "1000 * n<m", "low",
                 "1,000 bytes) where n<m = 1, k = 2", "4,000 bytes) where n<m = 4, k = 3",
                 "16,000 bytes) where n<m = 16, k = 4"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize("base", [2, 10])
def test_steps_of_axes_are_round(base: int):
    """The least power of two, or 1, 2 or 5 times a power of ten, that makes at most so many parts."""
    steps = [2**k for k in range(40)] if base == 2 else [m * 10**k for k in range(12) for m in (1, 2, 5)]
    for count in (1, 8, 10):
        for span in (0, 1, *(n + d for n in (2, 3, 10, 16, 20, 50, 100, 160, 999, 10**6, 7 << 20) for d in (-1, 0, 1))):
            assert _round_step(span, count, base) == next(s for s in steps if span <= count * s), (span, count)


@pytest.mark.parametrize("total", [1, 5, 8, 100, 4096, 5 << 20, 3 << 30])
def test_lines_of_the_picture_have_their_bytes_beside_them(total: int):
    """A line for each round number of bytes up to the peak, as far from the one of 0 as that many bytes are high."""
    buffers = [Buffer("x", 0, 3, total)]
    root = ElementTree.fromstring(PlanReport(buffers, pack(buffers)).svg("plan"))
    space, units = "{http://www.w3.org/2000/svg}", {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    lines = [float(e.get("y1")) for e in root.iter(f"{space}line") if e.get("class") == "grid"]
    texts = [e for e in root.iter(f"{space}text") if e.get("text-anchor") == "end" and not e.get("class")]
    assert [float(e.get("y")) - 4 for e in texts] == pytest.approx(lines, abs=0.11)
    numbers = [float(n) * units[unit] for n, unit in (e.text.split() for e in texts)]
    assert numbers[0] == 0 and numbers == sorted(set(numbers)) and total / 2 < numbers[-1] <= total
    (rectangle,) = (e for e in root.iter(f"{space}rect") if (e.get("class") or "").startswith("b "))
    heights = [(lines[0] - y) / float(rectangle.get("height")) * total for y in lines]
    assert heights == pytest.approx(numbers, rel=0.01, abs=total * 0.01)
