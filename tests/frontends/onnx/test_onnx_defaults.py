"""An attribute that a node does not give has the value that ONNX's schema says: what is read is the same, letter by letter, as with that
value written out. The nodes are those of ONNX's own cases, each attribute of each op once or twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from suites.cases import Case, cases_in, modules  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402

#: Cases for an attribute, those whose inputs have the most dimensions.
CASES = 2


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("module", modules())
def test_an_attribute_that_is_not_given_is_its_default(module):
    for op, cases in by_op(module).items():
        for attribute in defaults_of(cases[0]):
            for case in cases[:CASES]:
                without, written = (with_attribute(case, attribute, is_given) for is_given in (False, True))
                assert text(without) == text(written), f"{op}, {attribute.name}: {case.key}"


def by_op(module: str) -> dict[str, list[Case]]:
    """The cases of one node, by op: those of the newest version, of the most dimensions first."""
    ops: dict[str, list[Case]] = {}
    for case in cases_in(module):
        if len(case.load().model.graph.node) == 1:
            ops.setdefault(case.op, []).append(case)
    return {op: sorted(cases, key=lambda c: (-c.since, -dimensions(c))) for op, cases in ops.items()}


def dimensions(case: Case) -> int:
    return sum(len(v.type.tensor_type.shape.dim) for v in case.load().model.graph.input)


def defaults_of(case: Case) -> list[onnx.AttributeProto]:
    """The attributes that have a default."""
    op = case.load().model.graph.node[0]
    schema = onnx.defs.get_schema(op.op_type, case.since, op.domain)
    return [a.default_value for a in schema.attributes.values() if a.default_value.name]


def with_attribute(case: Case, attribute: onnx.AttributeProto, is_given: bool) -> onnx.ModelProto:
    """The model with the attribute, or without."""
    model = onnx.ModelProto.FromString(case.load().model.SerializeToString())
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name != attribute.name]
    del node.attribute[:]
    node.attribute.extend([*kept, attribute] if is_given else kept)
    return model


def text(model: onnx.ModelProto) -> str:
    """What is read; of one that is refused, the message."""
    try:
        return str(lightnet.load(model.SerializeToString()).module)
    except LightNetError as e:
        return e.message
