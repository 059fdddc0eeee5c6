"""The harness of `tools/bench_cuda.py`: its whole way on tiny sizes in the PTX interpreter, its tables, its refusals; and PyTorch's form of
our networks.
Nothing here asserts a time."""

from __future__ import annotations

import dataclasses
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import CudaUnavailable

pytest.importorskip("onnx")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import bench_cuda
import calibrate_cuda
from benching import cuda_engines, cuda_work, networks, torch_form

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


def options(*words: str) -> object:
    return bench_cuda.options().parse_args(words)


def test_the_whole_way_in_the_interpreter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Networks, products and convolutions in every precision, checked against the CPU."""
    file = tmp_path / "figures.json"
    assert bench_cuda.run(options("--emulate", "--small", "--rounds", "1", "--slice", "1e-9", "--json", str(file))) == 0
    found = json.loads(file.read_text())
    assert found["device"] == "PTX interpreter"
    assert {(r["group"], r["precision"]) for r in found["rows"]} == {
        (group, precision) for group in ("networks", "products", "convolutions") for precision in ("f32", "tf32", "f16")
    }
    engines = {"lightnet", "torch"} if find_spec("torch") is not None else {"lightnet"}
    for row in found["rows"]:
        ran = engines | {"lightnet-sm_90"} if row["precision"] == "f16" else engines
        assert row["seconds"].keys() == ran == row["errors"].keys() and not row["problems"]
        assert all(len(times) == 1 and times[0] > 0 for times in row["seconds"].values())
        assert all(0 <= e < cuda_work.TOLERANCE[row["precision"]] for e in row["errors"].values())
        assert row["flops"] > 0
    assert "PTX interpreter" in capsys.readouterr().out


def test_what_is_prepared_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """References are computed once, without a device; and kernels are timed one by one."""
    monkeypatch.setattr(cuda_work, "small", lambda: iter([lambda: cuda_work.perceptron("f16")]))
    words = (
        "--small",
        "--references",
        str(tmp_path / "references"),
        "--rounds",
        "1",
        "--slice",
        "1e-9",
        "--engines",
        "lightnet",
    )
    assert bench_cuda.run(options(*words, "--prepare")) == 0
    assert "perceptron, batch 2, sm_90a" in capsys.readouterr().out
    monkeypatch.setattr(cuda_work.Work, "_computed", lambda work: pytest.fail("it is there"))
    assert bench_cuda.run(options(*words, "--emulate", "--kernels")) == 0
    out = capsys.readouterr().out
    assert "lightnet: " in out and "matmul" in out
    (kept,) = (tmp_path / "references").iterdir()
    with np.load(kept) as found:
        np.savez(kept, **{name: found[name] + 1 for name in found.files})
    assert bench_cuda.run(options(*words, "--emulate")) == 1, "what came out is compared with it"


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none() -> None:
        raise CudaUnavailable("there is none in this test")

    monkeypatch.setattr(bench_cuda, "devices", none)
    monkeypatch.setattr(sys, "argv", ["bench_cuda.py"])
    assert bench_cuda.main() == 1
    assert capsys.readouterr().err == "nothing is measured: there is none in this test\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "resnet19"], "no network 'resnet19'"),
        (["--precisions", "f32,f8"], "no precision 'f8'"),
        (["--engines", "tvm"], "no engine 'tvm'"),
        (["--batches", "1,x"], "--batches takes numbers"),
        (["--rounds", "0"], "--rounds should be positive"),
        (["--emulate"], "--emulate goes with --small"),
        (["--emulate", "--small", "--write"], "not with --write"),
    ],
)
def test_wrong_options_are_errors(words: list[str], message: str) -> None:
    with pytest.raises(LightNetError, match=message):
        bench_cuda.run(options(*words))


def rows() -> list[bench_cuda.Row]:
    good = bench_cuda.Row("resnet18", "networks", "f16", 1, 4_000_000_000, {"lightnet": [1e-3, 3e-3, 1e-3], "torch": [2e-3, 2e-3, 2e-3],
                          "torch.compile": [1e-3] * 3}, {"lightnet": 1e-3, "torch": 1e-3})  # fmt: skip
    bad = bench_cuda.Row(
        "4x4x4", "products", "f32", 1, 128, {"torch": [1e-6]}, {"torch": 0.0}, {"lightnet": "ValueError: a | b"}
    )
    return [good, bad]


def test_page_has_tables_that_are_tables() -> None:
    about = {"device": "NVIDIA X (sm_90)", "versions": "v", "date": "today", "command": "c"}
    text = bench_cuda.page(rows(), about)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {len(bench_cuda.COLUMNS) + 1}
    assert "| resnet18 | 1 | 1 | – | 2 | 1 | 0.50 | 0.50–1.30 | 4 | – | 2 | 1.0e-03 |" in table
    assert "NVIDIA X (sm_90)" in text and "4x4x4, f32, batch 1: lightnet: ValueError" in text


def test_what_is_wrong_is_ours() -> None:
    good, bad = rows()
    assert not good.is_wrong and bad.is_wrong
    good.errors["lightnet-sm_90"] = 0.5
    assert good.is_wrong
    del good.errors["lightnet-sm_90"]
    good.errors["lightnet"] = 0.5
    assert good.is_wrong
    good.errors["lightnet"] = float("nan")
    assert good.is_wrong
    assert (
        bench_cuda.error([np.zeros(3)], [np.zeros(4)]) == np.inf == bench_cuda.error([np.full(3, np.nan)], [np.ones(3)])
    )
    assert bench_cuda.error([np.ones(2)], [np.array([1.0, 2.0])]) == 0.5


def test_networks_by_batch_are_the_networks() -> None:
    """Each picture of a batch gives what it gives alone."""
    work = cuda_work.network("lenet", "f32", 3)
    (name, pictures), (output, want) = *work.inputs.items(), *work.reference().items()
    alone = lightnet.compile(networks.loaded(networks.NETWORKS["lenet"]))
    assert len(pictures) == 3 == len(want)
    for picture, result in zip(pictures, want):
        np.testing.assert_allclose(alone({name: picture[None]})[output][0], result, rtol=1e-5, atol=1e-6)


def test_detectors_end_before_their_boxes() -> None:
    model = cuda_work.without_heads(lightnet.load(networks.NETWORKS["yolov3"]))
    assert not any(op.name == "ln.detect_yolov3" for op in model.main.body.block.ops)
    assert [v.type.get_shape()[1] for v in model.main.body.block.last_op.operands] == [255] * 3


#: Every form: padding on one side, a batch norm that is folded and one that is not, since its convolution has another reader.
FORMS = """
create(|dst=x|dtype=TL_FLOAT, dims=[2,6,9,8], ran=[-1,1], data=[0], from_file=false);
param(|dst=w1|dtype=TL_FLOAT, dims=[8,3,3,3], ran=[-1,1], data=[0], from_file=false);
param(|dst=b1|dtype=TL_FLOAT, dims=[8], ran=[-1,1], data=[0], from_file=false);
conv2d(src=x, weight=w1, bias=b1|dst=c1|group=2, size=[3,3], stride=[2,2], padding=[0,0,0,0], autopad="SAME_UPPER", dilation=[1,1]);
param(|dst=s|dtype=TL_FLOAT, dims=[8], ran=[0.5,1.5], data=[0], from_file=false);
param(|dst=o|dtype=TL_FLOAT, dims=[8], ran=[-1,1], data=[0], from_file=false);
param(|dst=m|dtype=TL_FLOAT, dims=[8], ran=[-1,1], data=[0], from_file=false);
param(|dst=v|dtype=TL_FLOAT, dims=[8], ran=[0.5,1.5], data=[0], from_file=false);
batchnorm(src=c1, scale=s, offset=o, mean=m, var=v|dst=n1|epsilon=1e-5);
lrelu(src=n1|dst=l|negslope=0.1);
param(|dst=w2|dtype=TL_FLOAT, dims=[8,8,1,1], ran=[-1,1], data=[0], from_file=false);
param(|dst=b2|dtype=TL_FLOAT, dims=[8], ran=[-1,1], data=[0], from_file=false);
conv2d(src=l, weight=w2, bias=b2|dst=c2|group=1, size=[1,1], stride=[1,1], padding=[0,0,0,0], autopad="NOTSET", dilation=[1,1]);
batchnorm(src=c2, scale=s, offset=o, mean=m, var=v|dst=n2|epsilon=1e-5);
elew(src1=n2, src2=c2|dst=e|elew_op=TL_SUM);
clip(src=e|dst=k|lo=-1, hi=2);
maxpool2d(src=k|dst=p|size=[3,3], stride=[1,1], padding=[1,1,1,1], autopad="NOTSET");
avgpool2d(src=p|dst=a|size=[3,3], stride=[2,2], padding=[1,1,1,1], autopad="NOTSET");
upsample(src=a|dst=u|mode=TL_NEAREST, scales=[1,1,2,2]);
sigmoid(src=u|dst=g|);
mul(src1=g, src2=u|dst=q|);
concat(src1=q, src2=u|dst=j|axis=1);
transpose(src=j|dst=t|axes=[0,2,3,1]);
reshape(src=t|dst=r|dims=[2,384]);
param(|dst=w3|dtype=TL_FLOAT, dims=[384,10], ran=[-0.1,0.1], data=[0], from_file=false);
matmul(a=r, b=w3|dst=z|);
softmax(src=z|dst=y|axis=1)
"""


@needs_torch
def test_pytorch_computes_the_same() -> None:
    model = lightnet.loads(FORMS, ".net")
    forms = {op.optype for op in model.main.body.block.ops if hasattr(op, "optype")}
    assert forms >= {*torch_form._FORMS} - {"add", "relu"}
    work = cuda_work.Work("forms", "networks", "f32", 2, "f32", model, 1)
    engine = cuda_engines.make("torch", work, emulate=True)
    assert bench_cuda.error(engine.outputs(), list(work.reference().values())) < 1e-5
    half = cuda_engines.make("torch", dataclasses.replace(work, precision="f16"), emulate=True)
    assert 1e-5 < bench_cuda.error(half.outputs(), list(work.reference().values())) < 3e-2


@needs_torch
def test_what_pytorch_has_no_form_for_is_an_error() -> None:
    text = "create(|dst=x|dtype=TL_FLOAT, dims=[4], ran=[-1,1], data=[0], from_file=false);\nerf(src=x|dst=y|)"
    model = lightnet.loads(text, ".net")
    with pytest.raises(LightNetError, match=r"'ln\.erf' has no form in PyTorch"):
        torch_form.module_of(model, networks.contents(model), "cpu", "float32")


# ---- the model against a device ---------------------------------------------------------------------------------------

PLANS = Path(__file__).parents[1] / "data" / "cuda" / "plans.json"


def test_what_was_measured_is_predicted_again(capsys: pytest.CaptureFixture[str]) -> None:
    """A product's plans of a record, with the model as it is: the better plan of two that lie far apart is said to be better."""
    rows = [r for r in calibrate_cuda.read(PLANS) if r.work == "1024x1024x1024 b1 sm_90a"]
    again = calibrate_cuda.predicted_again(rows)
    assert len(again) == len(rows) > 3 and all(r.predicted > 1000 for r in again)
    best, worst = (pick(again, key=lambda r: r.measured) for pick in (min, max))
    assert worst.measured > 1.5 * best.measured and worst.predicted > 1.2 * best.predicted
    worse, off = calibrate_cuda.report(again)
    assert 1 <= worse < 1.3 and 1 <= off < 1.6
    assert "as long as the fastest that was tried" in capsys.readouterr().out


@pytest.mark.slow
def test_the_model_chooses_well(capsys: pytest.CaptureFixture[str]) -> None:
    """Of plans that an H100 ran, those that the model prefers take little longer than the fastest."""
    worse, off = calibrate_cuda.report(calibrate_cuda.predicted_again(calibrate_cuda.read(PLANS)))
    assert worse < 1.04 and off < 1.2


def test_plans_that_are_tried_are_different() -> None:
    work = calibrate_cuda.made("64x64x96", "f16", 1)
    ((_, p),) = calibrate_cuda.products(work, "sm_90a", set())
    for gemm in (calibrate_cuda.MMA, calibrate_cuda.WGMMA):
        tried = calibrate_cuda.worth_trying(p, gemm, calibrate_cuda.device_of("sm_90a"), 9)
        assert len({plan for _, plan in tried}) == len(tried) == 9
        assert min(tried, key=lambda t: t[0])[0] == min(
            t for t, _ in gemm.family.plans(p, calibrate_cuda.device_of("sm_90a"), calibrate_cuda.Pinned())
        )
