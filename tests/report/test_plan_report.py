"""The report on a memory plan: what stands in each of its forms, and that the picture is well-formed and true to scale."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from lightnet.passes.planning import pack
from lightnet.passes.planning.buffers import Buffer
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
