"""A network keeps its outputs through every form (`round_trips.py`): their names, their order and their values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_graphs
import pytest
from round_trips import FORMS, awkward, check

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.frontends import json_ir
from lightnet.ir.module import main_of, output_names
from lightnet.model import Model, loads
from lightnet_export.netlist import from_module

#: Networks for each form; code is made for the executables alone.
QUICK = {form: range(2) if form == "lnx" else range(6) for form in FORMS}


@pytest.mark.sampled(every=5, share=0.2, by="form")
@pytest.mark.parametrize("form, seed", [(form, seed) for form, seeds in QUICK.items() for seed in seeds])
def test_outputs_come_back(form, seed, tmp_path):
    assert not check(seed, form, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", range(100, 200, 20))
def test_outputs_of_many_come_back(form, first, tmp_path):
    said = 0
    for seed in range(first, first + (5 if form == "lnx" else 20)):
        found = check(seed, form, tmp_path)
        assert not found, (seed, found)
        said += found is None
    assert said


@pytest.mark.parametrize("plan", [None, "default", "upstream"])
@pytest.mark.parametrize("seed", [12, 14])
def test_json_keeps_outputs_of_onnx_models(plan, seed):
    """The value behind an output, which other nodes read, has its name, too: 23 of 38 networks came back with other names."""
    random = onnx_graphs.random_graph(seed, 12)
    model = loads(random.model(), ".onnx")
    module = model.module if plan is None else lightnet.compile(model, plan=plan).planned
    back = loads(json_ir.write(from_module(module)), ".json", weights=model.weights)
    names = list(output_names(main_of(back.module).body.block.last_op))
    assert names == random.outputs
    if plan != "upstream":  # where outputs may be overwritten
        read = {
            op.tensor_names[0] for op in graph.feedable_ops(back.module)
        }  # what nobody reads is gone from a compiled network
        got = graph.run(back.module, {k: v for k, v in random.feeds().items() if k in read}, back.weights)
        for name in names:
            np.testing.assert_allclose(got[name], random.values[name].array, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("renamed", [[], {"nothing": "y"}, {"t0": 1}, {"t0": ""}, "t0"])
def test_names_of_outputs_in_json_are_checked(renamed):
    text = json.loads(json_ir.write(from_module(awkward(1))))
    text.setdefault("lightnet", {})["output_names"] = renamed
    with pytest.raises(LightNetError, match="output_names"):
        loads(json.dumps(text), ".json")


@pytest.mark.parametrize(
    "names", [None, ["list_str"], ["list_str", [1]], ["list_str", ["a", "b", "c", "d"] * 9], ["list_str", ["\n"]]]
)
def test_names_of_outputs_in_nnvm_graphs_may_be_anything(names):
    """An attribute of a graph is somebody else's, too: what does not fit is not taken."""
    from lightnet_export.nnvm.model import to_nnvm

    text = json.loads(to_nnvm(Model(awkward(13), "")))
    plain = json.loads(json.dumps(text))
    del plain["attrs"]["output_names"]
    text["attrs"]["output_names"] = names
    one, other = (
        list(output_names(main_of(loads(json.dumps(t), ".json").module).body.block.last_op)) for t in (text, plain)
    )
    assert one == other and len(one) > 1


@pytest.mark.parametrize("exported", [lightnet.to_nnvm, lightnet.to_onnx], ids=["nnvm", "onnx"])
def test_a_module_is_exported_like_the_model_that_it_is_of(exported) -> None:
    model = lightnet.load(Path(__file__).parents[2] / "examples" / "nets" / "lenet.net")
    assert exported(model) == exported(model.module)
