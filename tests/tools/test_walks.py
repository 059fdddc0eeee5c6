"""A generator is asked for its plan of a kernel once, and what follows goes by that plan (`tools/walks.py`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lightnet.backends.cpu.selection import SELECTION
from lightnet.ir.body import OfEqualKernels
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.passes import pipelines

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import walks


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("body", walks.BODIES)
def test_each_generator_is_asked_once_a_kernel(body: str, target: str) -> None:
    found = walks.walks(body, target)
    choose, lower = found.pop("choose"), found.pop(f"lower-{target}")
    assert choose.most["takes"] == choose.most["plan"] == 1
    assert {question for _, question in lower.asked} == {"build"} and lower.most["build"] == 1
    assert all(not walk.asked for walk in found.values()), "schedule, pack and plan go by the plan that was chosen"


def test_a_kernel_that_was_read_from_a_file_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its choices, which say all that the plan was."""
    model = walks.network("conv")
    run_pipeline(model.ctx, model.module, parse_pipeline(pipelines.default("cpu", until="plan"), {"target": "cpu"}))
    read = parse_mlir(make_context(), str(model.module), "planned.mlir")
    texts = []
    for module in (model.module, read):
        if module is read:
            monkeypatch.setattr(SELECTION, "_settled", OfEqualKernels())
        run_pipeline(make_context(), module, parse_pipeline("lower-cpu"))
        texts.append(str(module))
    assert texts[0] == texts[1]
