"""`lightnet inspect`: costs against hand counts and published ones, everything that is missing at once, open shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lightnet
from lightnet import tables
from lightnet.cli.lightnet import main
from lightnet.diagnostics import printable
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME
from lightnet_debug import costs
from lightnet_report.inspection import inspect

NETS = Path(__file__).parents[1] / "data" / "nets" / "il"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    """Run `lightnet inspect` in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main(["inspect", *map(str, args)])
        except SystemExit as e:
            status = e.code or 0
        return status, *capfd.readouterr()

    return run


# -- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "macs", "digits", "ops"),
    [("squeezedet", 5.28e9, 1e7, 99), ("shufflenetv2", 40e6, 1e6, 243), ("yolov3_bak", 31.9e9, 1e8, 249)],
)
def test_published_networks(net, macs, digits, ops):
    """Multiply-adds as LightNet's own documents count them."""
    found = inspect(lightnet.load(NETS / f"{net}.net"), "none")
    assert found.macs == pytest.approx(macs, abs=digits)
    assert len(found.ops) == ops == sum(found.op_counts.values())
    assert found.memory is None and found.runs


def test_small_network_by_hand():
    """A convolution, a batch norm and a pool, each figure counted by hand."""
    text = (
        "create(| dst=x | dtype=TL_FLOAT, dims=[2, 3, 10, 10], data=[1], ran=[0, 0], from_file=false);\n"
        "create(| dst=w | dtype=TL_FLOAT, dims=[8, 3, 3, 3], data=[1], ran=[0, 0], from_file=true);\n"
        "create(| dst=b | dtype=TL_FLOAT, dims=[8], data=[1], ran=[0, 0], from_file=true);\n"
        "conv2d(src=x, weight=w, bias=b | dst=c | size=[3, 3], stride=[2, 2], padding=[1, 1, 1, 1], dilation=[1, 1],"
        ' group=1, autopad="NOTSET");\n'
        'maxpool2d(src=c | dst=p | size=[2, 2], stride=[1, 1], padding=[0, 0, 0, 0], autopad="NOTSET");\n'
    )
    model = lightnet.loads(text, ".net", "small.net")
    found = inspect(model)
    conv, pool = found.ops
    assert (conv.name, conv.op, conv.params, conv.where.line) == ("conv2d0", "conv2d", 8 * 27 + 8, 4)
    assert conv.macs == 2 * 8 * 5 * 5 * 27 and conv.flops == 2 * conv.macs
    assert conv.bytes == 4 * (2 * 3 * 100 + 8 * 27 + 8 + 2 * 8 * 25)
    assert (pool.macs, pool.flops, pool.bytes) == (0, 2 * 8 * 16 * 4, 4 * (2 * 8 * 25 + 2 * 8 * 16))
    assert (found.params, found.params_bytes) == (8 * 27 + 8, 4 * (8 * 27 + 8))
    assert [str(t) for t in found.inputs] == ["x 2x3x10x10 f32"] and [t.dims for t in found.outputs] == [(2, 8, 4, 4)]
    assert found.weights_missing == ("w", "b") and not found.weights_given
    plan = lightnet.compile(model).plan.plan
    assert (found.memory.activations, found.memory.lower_bound) == (plan.peak, plan.bound)


def built(optype: str, dims: list[tuple[int, ...]], **params) -> LnOp:
    from xdsl.ir import Block

    block = Block(arg_types=[tensor_type(TensorSpec(d, BY_NAME["f32"])) for d in dims])
    op = optypes()[optype].make(list(block.args), params)
    block.add_op(op)
    return op


@pytest.mark.parametrize(
    ("op", "macs"),
    [
        (("matmul", [(5, 6, 7), (5, 7, 3)], {}), 5 * 6 * 7 * 3),
        (("conv2d", [(1, 8, 9, 9), (8, 1, 3, 3), (8,)], {"size": (3, 3), "group": 8}), 8 * 49 * 9),
        (("deconv2d", [(1, 4, 5, 5), (4, 6, 2, 2), (6,)], {"size": (2, 2), "stride": (2, 2)}), 4 * 25 * 6 * 4),
        (("einsum", [(2, 3), (3, 4)], {"equation": "ij,jk->ik"}), 24),
        (("softmax", [(4, 4)], {"axis": 1}), 0),
        (("relu", [(4, 4)], {}), 0),
        (("batchnorm", [(1, 3, 4, 4), (3,), (3,), (3,), (3,)], {}), 0),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_multiply_adds(op, macs):
    optype, dims, params = op
    assert costs.macs(built(optype, dims, **params)) == macs


@pytest.mark.parametrize(
    ("optype", "operands", "params", "nbytes"),
    [
        ("take", [("f32", 1000, 8), ("i64", 3)], {"axis": 0}, 2 * 3 * 8 * 4 + 3 * 8),
        ("pick1d", [("f32", 1000), ("i32", 1000)], {"len": 4, "stride": 1}, 3 * 4 * 4),
    ],
)
def test_a_lookup_reads_what_it_takes(optype, operands, params, nbytes):
    """A few rows of a table of a thousand are not the whole table."""
    from xdsl.ir import Block

    block = Block(arg_types=[tensor_type(TensorSpec(tuple(dims), BY_NAME[dtype])) for dtype, *dims in operands])
    op = optypes()[optype].make(list(block.args), params)
    block.add_op(op)
    assert (costs.flops(op), costs.bytes_moved(op)) == (0, nbytes)


# -- the tool --------------------------------------------------------------------------------------------------------


def test_an_executable(tmp_path, capsys) -> None:
    made = lightnet.compile(str(Path(__file__).parents[2] / "examples" / "cnn.net"))
    made.save(tmp_path / "cnn.lnx")
    assert main(["inspect", str(tmp_path / "cnn.lnx")]) == 0
    page = capsys.readouterr().out
    assert (
        "picture  float32  1x3x32x32" in page and f"compiled for  {made.program.cpu}" in page and "plan=default" in page
    )
    assert main(["inspect", str(tmp_path / "cnn.lnx"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"] == made.program.memory and found["outputs"][0]["name"] == "classes" and not found["signed"]
    assert main(["inspect", str(tmp_path / "cnn.lnx"), "--layers"]) == 1
    assert "--layers needs the network, and this is a compiled executable" in capsys.readouterr().err


def test_page_and_json(cli):
    net = NETS / "squeezedet.net"
    status, page, err = cli(net)
    assert (status, err) == (0, "")
    peak = lightnet.compile(net).plan.plan.peak  # which differs with the processor's vectors
    plain = lightnet.compile(net, layout="plain").plan.plan.peak
    assert 38e6 < plain < 39e6 and plain != peak
    assert f"{plain:,} bytes" in cli(net, "--layout=plain")[1]
    assert "5.28 GMAC" in page and f"{peak:,} bytes" in page and "conv2d 32, relu 31" in page
    assert "no weight file is given for 66 tensors (input," in page
    layers = cli(net, "--layers")[1]
    assert len(layers.splitlines()) == len(page.splitlines()) + 99 + 2
    assert next(line for line in layers.splitlines() if line.startswith("conv2d0 ")).endswith("55:1")
    status, text, _ = cli(net, "--json", "-t", "none")
    found = json.loads(text)
    assert (status, found["macs"], found["memory"], len(found["ops"])) == (0, 5283053568, None, 99)
    assert found["ops"][0]["outputs"][0]["dims"] == [1, 64, 192, 624] and found["ops"][0]["where"].endswith(":55:1")
    assert cli(net, "-t", "nonesuch")[0] == 1
    assert cli("nonesuch.net")[0] == 1


SOFTMAX = "create(| dst=x0 | dtype=TL_FLOAT, dims=[2, 3], data=[1], ran=[0, 0], from_file=false);\n" + "".join(
    f"softmax(src=x{i} | dst=x{i + 1} | axis=1);\n" for i in range(25)
)


def test_everything_that_a_target_cannot_run(cli):
    """All 25, although an error lists 20."""
    Path("n.net").write_text(SOFTMAX)
    status, page, _ = cli("n.net", "--load", ROOT / "examples" / "my_target.py", "-t", "toy")
    assert status == 1 and "cannot run (25 in all)" in page
    assert "n.net:2:1: softmax x25 (softmax0, softmax1, softmax2, softmax3, softmax4 and 20 more)" in page


def test_statements_that_cannot_be_imported(cli):
    """Every unknown op of IL at once, and the other mistakes too."""
    text = (
        SOFTMAX.splitlines()[0]
        + "\nwhat(src=x0 | dst=a | k=1);\nwhat(src=x0 | dst=b | k=1);\nsoftmax(src=x0 | dst=c | axis=9);\n"
    )
    Path("n.net").write_text(text)
    status, page, _ = cli("n.net")
    assert status == 1 and "what x2 (what0, what1)" in page and "n.net:4:1: softmax" in page
    Path("n.net").write_text(text + "other(src=a | dst=d | );\nwhat(src=d | dst=e | k=1);\n")
    status, page, _ = cli("n.net")  # those that read what another of them makes
    assert status == 1 and "what x3 (what0, what1, what2)" in page and "other x1 (other0)" in page
    Path("n.net").write_text("softmax(src=x0 | dst=a")
    status, page, err = cli("n.net")
    assert (status, page) == (1, "") and "error" in err


def test_missing_weights_are_named(cli):
    import numpy as np

    Path("n.net").write_text(
        "".join(
            f"create(| dst={n} | dtype=TL_FLOAT, dims=[2], data=[1], ran=[0, 0], from_file=true);\n" for n in ("a", "b")
        )
        + 'elew(src1=a, src2=b | dst=c | elew_op="TL_SUM");\n'
    )
    np.savez("w.npz", a=np.float32([1, 2]))
    assert "weights: no given file has 1 tensor (b)" in cli("n.net", "-f", "w.npz")[1]


# -- ONNX ------------------------------------------------------------------------------------------------------------


def onnx_model(path: str, dims: list, nodes: list, opsets: dict[str, int]) -> None:
    onnx = pytest.importorskip("onnx")
    h, float_ = onnx.helper, onnx.TensorProto.FLOAT
    import numpy as np

    weight = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    graph = h.make_graph(
        [h.make_node(op, i, o, name=name, domain=domain) for op, i, o, name, domain in nodes], "g",
        [h.make_tensor_value_info("x", float_, dims)], [h.make_tensor_value_info("y", float_, None)], [weight],
    )  # fmt: skip
    imports = [h.make_opsetid(d, v) for d, v in opsets.items()]
    onnx.save(h.make_model(graph, opset_imports=imports, ir_version=9), path)


CONV = ("Conv", ["x", "w"], ["c"], "conv/a:0", "")


def test_open_shapes_are_shown_as_such(cli):
    onnx_model("m.onnx", ["N", 3, 8, 8], [CONV, ("Relu", ["c"], ["y"], "act", "")], {"": 17})
    status, page, _ = cli("m.onnx", "--layers")
    assert status == 0
    assert "x Nx3x8x8 f32" in page and "each call decides: N in 1..1024; figures are for N = 256" in page
    assert "parameters: 112 (112), 448 B" in page and f"{256 * 4 * 36 * 27 / 1e3:.3g} kMAC" in page
    status, page, _ = cli("m.onnx", "--shape", "x=2x3x8x8")
    assert status == 0 and f"{2 * 4 * 36 * 27 / 1e3:.3g} kMAC" in page


@pytest.mark.parametrize("batch", [1, "N"])
def test_every_op_that_onnx_has_and_we_lack(cli, batch):
    """By op, domain and opset, with counts and reasons, also where shapes are open."""
    nodes = [
        CONV, ("Foo", ["c"], ["f"], "foo1", "my"), ("Foo", ["f"], ["f2"], "foo2", "my"),
        ("StringNormalizer", ["f2"], ["r"], "norm", ""), ("Relu", ["r"], ["y"], "act", ""),
    ]  # fmt: skip
    onnx_model("m.onnx", [batch, 3, 8, 8], nodes, {"": 17, "my": 3})
    status, page, _ = cli("m.onnx", "--layers")
    assert status == 1 and "opset 17, opset 3 of my" in page and "cannot run (3 in all)" in page
    assert "my.Foo (opset 3) x2 ('foo1', 'foo2'): there is no such op" in page
    assert "StringNormalizer (opset 17) x1 ('norm'): it computes text" in page
    assert ("1x4x6x6" in page) == (batch == 1)  # what comes before is inferred
    found = json.loads(cli("m.onnx", "--json")[1])
    assert [(m["op"], len(m["names"])) for m in found["missing"]] == [
        ("my.Foo (opset 3)", 2),
        ("StringNormalizer (opset 17)", 1),
    ]


def test_nodes_of_a_graph_without_handlers(cli):
    graph = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "strange", "name": "s1", "inputs": [[0, 0, 0]]},
            {"op": "strange", "name": "s2", "inputs": [[1, 0, 0]]},
        ],
        "arg_nodes": [0],
        "heads": [[2, 0, 0]],
    }
    Path("n.json").write_text(json.dumps(graph))
    status, page, _ = cli("n.json")
    assert status == 1 and "strange x2 (s1, s2): there is no lowering" in page and "input  x ?" in page


@pytest.mark.parametrize(("name", "macs"), [("resnet50", 4.089e9), ("vgg19", 19.632e9), ("squeezenet", 0.349e9)])
def test_networks_that_others_counted(name, macs):
    """torchvision's documentation states 4.09, 19.63 and 0.35 GMAC for these three (batch 1, 224x224)."""
    onnx = pytest.importorskip("onnx")
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.exists():
        pytest.skip("this version of onnx brings no such model")
    assert inspect(lightnet.load(path), "none").macs == pytest.approx(macs, rel=1e-3)


def test_columns():
    """Figures stand to the right, words and shapes to the left."""
    rows = [("a", "1x3", "12", "5.28 G", ""), ("bc", "4", "7", "", "")]
    assert tables.table(("n", "shape", "us", "flops", "rest"), rows).split("\n") == [
        "n   shape  us   flops  rest",
        "a   1x3    12  5.28 G",
        "bc  4       7",
    ]


def test_names_break_no_line(cli):
    Path("n.mlir").write_text(
        'func.func @main() -> tensor<2xf32> {\n  %x = ln.create : tensor<2xf32> as "c"("in\\0Aoutput forged 1x1 f32\\1B[2J")\n'
        '  %y = ln.relu %x : tensor<2xf32> as "r"("y")\n  func.return %y : tensor<2xf32>\n}\n'
    )
    status, page, _ = cli("n.mlir", "--layers")
    assert status == 0 and "  input  in\\noutput forged 1x1 f32\\x1b[2J 2 f32\n" in page
    status, _, err = cli("n.mlir", "--target", "no\x1b[2J")
    assert status == 1 and "unknown target 'no\\x1b[2J'" in err


def test_names_do_not_reach_the_terminal_raw(cli):
    """An escape sequence, or half a surrogate pair, in a name is shown as an escape."""
    name = "e\x1b[2J\ud800é"
    assert printable(f"{name}\n", "\n") == "e\\x1b[2J\\ud800é\n"
    assert tables.table(("a",), [("x\ny",)]) == "a\nx\\ny"
    graph = {"nodes": [{"op": "null", "name": name, "inputs": []}, {"op": "strange", "name": name, "inputs": [[0, 0, 0]]}],
             "arg_nodes": [0], "heads": [[1, 0, 0]]}  # fmt: skip
    Path("n.json").write_text(json.dumps(graph))
    for words in ((), ("--layers",), ("--json",)):
        status, out, err = cli("n.json", *words)
        assert status == 1 and "\x1b" not in out + err


def test_of_target_cuda():
    """What it is planned for is no feature of this machine."""
    found = inspect(lightnet.load(ROOT / "examples" / "cnn.net"), "cuda", "plain")
    assert found.runs and found.memory is not None and found.memory.kernels == 4
