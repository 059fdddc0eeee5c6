"""An attribute that a node does not give has the value that ONNX's schema says: what is read is the same, letter by
letter, as with that value written out. The nodes are those of ONNX's own cases, each attribute of each op once or
twice. So is what one version of an op reads and what another one does that has the same inputs, outputs and
attributes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from suites.cases import Case, cases_in, modules  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.onnx.node import Node  # noqa: E402
from lightnet.frontends.onnx.pairs import ACTIVATIONS, RECURRENT  # noqa: E402

#: Cases for an attribute, those whose inputs have the most dimensions.
CASES = 2
SCHEMAS = onnx.defs.get_all_schemas_with_history()
#: The schema's default is one for each of two directions, whether there are two or not.
NO_DEFAULT = ("RNN", "activations")
#: The first version of the set of ops whose operands broadcast as they do today.
BROADCASTING = 7


@pytest.fixture(autouse=True)
def decimal_attributes(monkeypatch):
    """A model has 0.01 as an f32, 0.0099999998: either is read as the decimal here."""
    read = Node._attribute

    def decimal(self, *args):
        value = read(self, *args)
        return float(str(np.float32(value))) if isinstance(value, float) else value

    monkeypatch.setattr(Node, "_attribute", decimal)


def test_most_cases_are_read():
    """A comparison of two refusals says little."""
    cases = [cases[0] for module in modules()[::8] for cases in by_op(module).values()]
    taken = sum("func.return" in text(case.load().model) for case in cases)
    assert taken > 0.7 * len(cases) > 10


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("module", modules())
def test_an_attribute_that_is_not_given_is_its_default(module):
    for op, cases in by_op(module).items():
        for attribute in defaults_of(cases[0]):
            if (op, attribute.name) == NO_DEFAULT:
                continue
            for case in cases[:CASES]:
                without, written = (with_attribute(case, attribute, is_given) for is_given in (False, True))
                assert text(without) == text(written), f"{op}, {attribute.name}: {case.key}"


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("module", modules())
def test_versions_that_say_the_same_are_read_alike(module):
    """Versions of an op that differ in its types alone, or in words: one text of each case, under any of them."""
    for op, cases in by_op(module).items():
        schemas = versions_of(cases[0])
        newest = next(s for s in schemas if s.since_version <= cases[0].since)
        alike = [
            s.since_version
            for s in schemas
            if form(s) == form(newest) and (s.domain or s.since_version >= BROADCASTING)
        ]
        for case in {frozenset(a.name for a in c.load().model.graph.node[0].attribute): c for c in cases}.values():
            found = {version: text(under_version(case, version)) for version in alike}
            assert len(set(found.values())) <= 1, f"{op}: {case.key}: {found}"


def versions_of(case: Case) -> list[onnx.defs.OpSchema]:
    """All versions of an op, the newest first."""
    node = case.load().model.graph.node[0]
    found = [s for s in SCHEMAS if (s.domain, s.name) == (node.domain, node.op_type)]
    return sorted(found, key=lambda s: -s.since_version)


def form(schema: onnx.defs.OpSchema) -> tuple:
    """What a node of an op looks like: its inputs, outputs and attributes, with their defaults."""
    attributes = sorted((a.name, str(a.default_value), a.required) for a in schema.attributes.values())
    return [(i.name, i.option) for i in schema.inputs], [(o.name, o.option) for o in schema.outputs], attributes


def under_version(case: Case, version: int) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(case.load().model.SerializeToString())
    for opset in model.opset_import:
        if opset.domain == model.graph.node[0].domain:
            opset.version = version
    return model


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
    """The network that is read; of a model that is refused, the message."""
    try:
        return str(lightnet.loads(model.SerializeToString(), ".onnx").main)
    except LightNetError as e:
        return e.message


def test_activations_of_recurrent_layers_have_the_defaults_of_the_operators():
    """ONNX's text of LSTM, GRU and RNN: "default values are the same as of corresponding ONNX operators". Affine and
    ScaledTanh are operators no more."""
    once = {"Affine": {"alpha": 1.0, "beta": 0.0}, "ScaledTanh": {"alpha": 1.0, "beta": 1.0}}
    for name, (_, *found) in RECURRENT.items():
        attributes = once.get(name)
        if attributes is None:
            given = onnx.defs.get_schema(name).attributes.values()
            attributes = {a.name: np.float32(onnx.helper.get_attribute_value(a.default_value)) for a in given}
        assert [None if v is None else np.float32(v) for v in found] == [attributes.get(k) for k in ("alpha", "beta")]


def test_every_activation_has_a_schema_with_its_defaults():
    """The table's defaults, all of them, whether or not ONNX has a case of the op."""
    for name, (_, params) in ACTIVATIONS.items():
        given = onnx.defs.get_schema(name).attributes
        assert params.keys() == given.keys(), name
        for key, (_, default) in params.items():
            assert np.float32(default) == np.float32(onnx.helper.get_attribute_value(given[key].default_value)), name
