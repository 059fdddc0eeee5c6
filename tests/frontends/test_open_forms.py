"""Dims that calls decide, in JSON IR and in NNVM graphs: read, written, and run beside the same network with numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import agree
from nnvm_nets import DATA, Net, picture

import lightnet
from lightnet import LightNetError
from lightnet.cli import ln_opt
from lightnet.frontends import json_ir
from lightnet_export.netlist import from_module

NET = """
builtin.module {
  func.func @main() -> (tensor<?x?x8xf32, #ln.dims<"batch(1..4), 2*n(1..50)">>, tensor<?x?xf32, #ln.dims<"batch(1..4), 16*n(1..50)">>) {
    %x = ln.input : tensor<?x?x16xf32, #ln.dims<"batch(1..4), 2*n(1..50)">> as ("x")
    %w = ln.param {from_file = true} : tensor<16x8xf32> as ("w")
    %y = ln.matmul %x, %w : tensor<?x?x8xf32, #ln.dims<"batch(1..4), 2*n(1..50)">>
    %s = ln.softmax %y {axis = 1} : tensor<?x?x8xf32, #ln.dims<"batch(1..4), 2*n(1..50)">> as ("s")
    %r = ln.reshape %y : tensor<?x?xf32, #ln.dims<"batch(1..4), 16*n(1..50)">> as ("r")
    func.return %s, %r : tensor<?x?x8xf32, #ln.dims<"batch(1..4), 2*n(1..50)">>, tensor<?x?xf32, #ln.dims<"batch(1..4), 16*n(1..50)">>
  }
}
"""


@pytest.fixture
def model(tmp_path: Path) -> lightnet.Model:
    (tmp_path / "net.mlir").write_text(NET)
    weights = {"w": np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)}
    return lightnet.load(tmp_path / "net.mlir", weights=weights)


def test_json_keeps_open_dims(model: lightnet.Model, tmp_path: Path) -> None:
    """What is written reads as the same network, at level 1 and with kernels."""
    text = json_ir.write(from_module(model.module))
    params = {
        p["arg_name"]: p["value"] for op in json.loads(text)["ops"] for p in op["params"] if op["optype"] == "reshape"
    }
    assert params["dims"] == ["?batch(1..4)", "?16*n(1..50)"]
    (tmp_path / "net.json").write_text(text)
    read = lightnet.load(tmp_path / "net.json", weights=model.weights)
    assert json_ir.write(from_module(read.module)) == text
    runs = lightnet.compile(model), lightnet.compile(read)
    assert [run.inputs for run in runs] == [runs[0].inputs] * 2
    for batch, n in ((1, 2), (3, 34), (4, 100)):
        x = np.random.default_rng(n).standard_normal((batch, n, 16)).astype(np.float32)
        first, second = (run(x=x) for run in runs)
        assert first.keys() == second.keys() == {"s", "r"}
        assert all(np.array_equal(first[k], second[k]) for k in first)
    (tmp_path / "net.mlir").write_text(NET)
    words = [str(tmp_path / "net.mlir"), "--pass=expand,combine", "-o"]
    assert ln_opt.main([*words, str(tmp_path / "kernels.mlir")]) == 0
    kernels = lightnet.load(tmp_path / "kernels.mlir").module
    text = json_ir.write(from_module(kernels))
    (tmp_path / "kernels.json").write_text(text)
    assert json_ir.write(from_module(lightnet.load(tmp_path / "kernels.json").module)) == text


def test_json_of_a_plan_needs_numbers(model: lightnet.Model) -> None:
    with pytest.raises(
        LightNetError, match=r"a planned netlist \(JSON IR\) needs numbers for sizes, and each call decides 'batch'"
    ):
        from_module(lightnet.compile(model).planned)


def create(name: str, dims: list[Any]) -> dict[str, Any]:
    values = {"dtype": "TL_FLOAT", "dims": dims, "ran": [0, 0], "data": [0], "from_file": False}
    return {"name": name, "optype": "create", "tensors_in": [], "tensors_out": [{"arg_name": "dst", "name": name}],
            "params": [{"arg_name": k, "value": v} for k, v in values.items()]}  # fmt: skip


def relu(name: str, source: str) -> dict[str, Any]:
    ends = {"tensors_in": [{"arg_name": "src", "name": source}], "tensors_out": [{"arg_name": "dst", "name": name}]}
    return {"name": name, "optype": "relu", **ends, "params": []}


@pytest.mark.parametrize(
    "dims, message",
    [
        (["?a(1..4)", 2], None),
        (["?a(1..4)", "?2*a(1..4)"], None),
        (["?7", 2], None),
        (["?a", 2], "create: `x`'s `dims` param has the size '?a': the bounds of 'a' are missing"),
        (["?a(1..", 2], "`dims` param has the size '?a(1..': expected a number"),
        (["a(1..4)", 2], "the array of param 'dims' of op 'x' should hold numbers, strings or booleans, not a mixture"),
        (["?a(1..4)", 1.5], "the array of param 'dims' of op 'x' should hold numbers, strings or booleans, not a mixture"),
        (["?a(1..4)", "?a(1..5)"], "'a' is in 1..5 here and in 1..4 before: a name has one range"),
    ],
)  # fmt: skip
def test_sizes_in_json(
    dims: list[Any], message: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"ops": [create("x", dims), relu("y", "x")]}))
    assert ln_opt.main([str(path), "-o", str(tmp_path / "out.mlir")]) == (message is not None)
    err = capsys.readouterr().err
    assert (
        (err == "" and (tmp_path / "out.mlir").exists())
        if message is None
        else (message in err and "net.json:1:" in err)
    )


def test_a_name_has_one_range_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.mlir"
    types = [f'tensor<?xf32, #ln.dims<"a(1..{high})">>' for high in (4, 8)]
    lines = [f'%{name} = ln.input : {type} as ("{name}")' for name, type in zip("xy", types)]
    path.write_text(
        "\n".join(
            [f"func.func @main() -> ({', '.join(types)}) {{", *lines, f"func.return %x, %y : {', '.join(types)}", "}"]
        )
    )
    assert ln_opt.main([str(path)]) == 1
    assert "net.mlir:3:6: error: 'a' is in 1..8 here and in 1..4 before" in capsys.readouterr().err


# -- NNVM --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["cifar_resnet20_v1", "mobilenet0.25", "lenet_module"])
def test_a_graph_of_any_batch(tag: str) -> None:
    """MXNet's own output of one picture, and of several what each gives alone."""
    net = Net(tag)
    shape = net.meta["inputs"]["data"]
    shapes = {"data": ["batch", *shape[1:]], **{name: ["batch"] for name in net.meta["labels"]}}
    model = lightnet.load(net.path, shapes=shapes, dims={"batch": (1, 4)}, weights=net.weights())
    run, known = lightnet.compile(model), net.feeds()
    labels = {name: np.zeros(shape[:1], np.float32) for name in net.meta["labels"] if name in run.inputs}
    for name, want in net.references().items():
        agree(run({**known, **labels})[name], want, 1e-4)
    pictures = np.concatenate([picture(f"p{k}", tuple(shape))[:1] for k in range(3)])
    all_of = run(data=pictures, **{k: np.zeros(3, np.float32) for k in labels})
    for k in range(3):
        one = run(data=pictures[k : k + 1], **{name: np.zeros(1, np.float32) for name in labels})
        for name, value in one.items():
            agree(all_of[name][k : k + 1], value, 1e-5)


def test_a_graph_of_any_size() -> None:
    """Height and width, against the graph with numbers."""
    net = Net("resnet18_v1")
    weights = net.weights()
    model = lightnet.load(
        net.path, shapes={"data": [1, 3, "h", "w"]}, dims={"h": "32..128:32", "w": "32..128:32"}, weights=weights
    )
    run = lightnet.compile(model, threads=1)
    for h, w in ((32, 64), (128, 96)):
        x = np.random.default_rng(h).standard_normal((1, 3, h, w)).astype(np.float32)
        static = lightnet.compile(lightnet.load(net.path, shapes={"data": x.shape}, weights=weights), threads=1)
        for name, want in static(data=x).items():
            agree(run(data=x)[name], want, 1e-4)


def test_what_a_graph_needs_numbers_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Windows by the convention ``full`` round up: said at the node, by every tool."""
    path = DATA / "squeezenet1.1-symbol.json"
    assert ln_opt.main([str(path), "--shape", "data=1x3xhxw", "--dim", "h=32..256:32", "--dim", "w=32..256:32"]) == 1
    err = capsys.readouterr().err
    assert "note: Pooling ('squeezenet1_1_pool0_fwd'): error: it needs the number" in err and "give it a number" in err
