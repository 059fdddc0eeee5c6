"""Whole networks, compiled for the CPU, against ONNX Runtime on their ONNX export (`tools/compare_onnxruntime.py`), and the
detection op against vectors of the C implementation."""

from __future__ import annotations

from pathlib import Path

import compare_onnxruntime as compare
import numpy as np
import pytest
from sampled_weights import sampled_weights

import lightnet
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.initial import sample

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parent.parent
NETS = ROOT / "tests" / "data" / "nets"

SLOW = {"erfnet_samepad.net", "yolov3_bak.net"}
IL = [
    pytest.param(p, marks=pytest.mark.slow if p.name in SLOW else (), id=p.stem)
    for p in sorted((NETS / "il").iterdir())
]


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("path", IL)
def test_network_agrees_with_onnxruntime(path):
    model = compare.sampled_model(str(path))
    findings = compare.compare(model, lightnet.compile(model)())
    assert findings
    assert [f for f in findings if f.problem] == []
    assert all(f.spread > 1e-3 for f in findings), "an output that hardly varies shows little"


#: The hand-written networks print and return nothing: these are the tensors that they print.
PRINTED = {
    "test_ops.json": ["slice1", "reshape1", "maxreduce1_dst", "elew1", "transpose1"],
    "cuda_test.json": ["slice1", "reshape1", "maxreduce_arg1_dst", "maxreduce_arg1_arg", "elew1", "transpose1"],
}


@pytest.mark.parametrize("file", sorted(PRINTED))
def test_printed_tensors_agree_with_onnxruntime(file, capsys):
    model = lightnet.load(NETS / "ir" / file)
    names = PRINTED[file]
    got = lightnet.compile(model, outputs=names)()
    want = compare.onnxruntime_outputs(model, names)
    assert list(got) == names == list(want)
    for name in names:
        finding = compare.compare_arrays(name, got[name], want[name])
        assert not finding.problem, finding
    assert not want.pop("zeros1", np.zeros(1)).any()


def test_a_wrong_network_is_found_out():
    """The comparison can fail: one param changed by a thousandth, in our run only."""
    path = str(NETS / "il" / "shufflenetv2.net")
    model = compare.sampled_model(path)
    got = lightnet.compile(model)({"conv6_bias": model.weights["conv6_bias"] + np.float32(1e-3)})
    findings = compare.compare(model, got)
    assert [f.name for f in findings if f.problem] == ["pred"]


def test_picks_are_compared_by_score():
    """Two nearly equal scores may change places; a row of another element may not appear."""
    model = lightnet.load(NETS / "il" / "squeezedet.net")
    ranking = next(compare.rankings(model))
    rng = np.random.default_rng(0)
    keys = rng.permutation(np.linspace(0, 1, 50)).astype(np.float32)
    keys[keys.argsort()[-2]] = keys.max() - np.float32(1e-7)
    order = np.argsort(-keys, kind="stable")
    dense = {output: rng.normal(size=(50 * stride)).astype(np.float32) for output, _, stride in ranking.picks}
    want = {ranking.keys: keys, ranking.sorted_keys: keys[order], ranking.values: np.arange(50, dtype=np.int32)}
    swapped = order.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    for output, source, stride in ranking.picks:
        want[source] = dense[output]
        want[output] = dense[output].reshape(-1, stride)[order[:8]].reshape(-1)

    def problems(picked):
        got = {o: dense[o].reshape(-1, s)[picked[:8]].reshape(-1) for o, _, s in ranking.picks}
        return [f for f in compare.compare_ranking(ranking, got, want) if f.problem]

    assert problems(order) == problems(swapped) == []
    swapped[[1, 5]] = swapped[[5, 1]]
    assert len(problems(swapped)) == len(ranking.picks)


SMALL = """
    create(|dst=x|dtype=TL_FLOAT, dims=[1,3,9,9], ran=[0,255], data=[0], from_file=true);
    create(|dst=w|dtype=TL_FLOAT, dims=[16,3,3,3], ran=[-10,10], data=[0], from_file=false);
    create(|dst=b|dtype=TL_FLOAT, dims=[16], ran=[0,0], data=[0], from_file=false);
    conv2d(src=x, weight=w, bias=b|dst=c|group=1, size=[3,3], stride=[1,1], padding=[1,1,1,1], autopad="NOTSET",
           dilation=[1,1]);
    create(|dst=s|dtype=TL_FLOAT, dims=[16], ran=[0,0], data=[0], from_file=false);
    create(|dst=o|dtype=TL_FLOAT, dims=[16], ran=[0,0], data=[0], from_file=false);
    create(|dst=m|dtype=TL_FLOAT, dims=[16], ran=[0,0], data=[0], from_file=false);
    create(|dst=v|dtype=TL_FLOAT, dims=[16], ran=[0,0], data=[0], from_file=false);
    batchnorm(src=c, scale=s, offset=o, mean=m, var=v|dst=n|epsilon=1e-5); relu(src=n|dst=y|)
"""


def test_sampled_weights_belong_to_names_and_seed():
    model = lightnet.loads(SMALL, ".net")
    one, same, other = sampled_weights(model), sampled_weights(model), sampled_weights(model, 1)
    assert set(one) == set("xwbsomv")
    assert all(np.array_equal(one[n], same[n]) for n in one)
    assert not any(np.array_equal(one[n], other[n]) for n in one)


def test_sampled_activations_are_well_conditioned():
    weights = sampled_weights(lightnet.loads(SMALL, ".net"))
    model = lightnet.loads(SMALL, ".net", weights=weights, override=True)
    got = lightnet.compile(model, outputs=["c", "n"])()
    for name in ("c", "n"):
        assert np.abs(got[name].mean(axis=(0, 2, 3)) - 1).max() < 0.5
        assert 0.5 < got[name].var(axis=(0, 2, 3)).mean() < 2
    assert 0.05 < (got["y"] == 0).mean() < 0.4
    assert (weights["v"] > 0).all() and 200 < weights["x"].max() <= 255


def test_channels_of_one_element_are_drawn_too():
    """A channel that does not vary counts as one of mean 0 and of the mean square of all, so that channels stay different."""
    text = """
    create(|dst=x|dtype=TL_FLOAT, dims=[1,3,1,1], ran=[0,0], data=[3,4,5], from_file=false);
    create(|dst=s|dtype=TL_FLOAT, dims=[3], ran=[0,0], data=[0], from_file=false);
    create(|dst=o|dtype=TL_FLOAT, dims=[3], ran=[0,0], data=[0], from_file=false);
    create(|dst=m|dtype=TL_FLOAT, dims=[3], ran=[0,0], data=[0], from_file=false);
    create(|dst=v|dtype=TL_FLOAT, dims=[3], ran=[0,0], data=[0], from_file=false);
    batchnorm(src=x, scale=s, offset=o, mean=m, var=v|dst=y|epsilon=1e-5);
    """
    weights, drawn = sampled_weights(lightnet.loads(text, ".net")), {}
    for name, kind in (("m", "mean"), ("v", "variance")):
        drawn[name] = sample(name, kind, (3,), BY_NAME["f32"]).astype(np.float64)
    assert weights["x"].ravel().tolist() == [3, 4, 5]
    square = (9 + 16 + 25) / 3
    np.testing.assert_allclose(weights["m"], np.sqrt(square) * drawn["m"], rtol=1e-6)
    np.testing.assert_allclose(weights["v"], square * drawn["v"], rtol=1e-6)


def test_overriding_weights_fill_what_the_network_fills_itself():
    text = "create(|dst=x|dtype=TL_FLOAT, dims=[2], ran=[0,0], data=[1,2], from_file=false); relu(src=x|dst=y|)"
    weights = {"x": np.array([3, -4], np.float32)}
    kept = lightnet.compile(lightnet.loads(text, ".net", weights=weights))()
    replaced = lightnet.compile(lightnet.loads(text, ".net", weights=weights, override=True))()
    assert kept["y"].tolist() == [1, 2] and replaced["y"].tolist() == [3, 0]


def vector(name: str, shape: tuple[int, ...]) -> np.ndarray:
    text = (ROOT / "tests" / "data" / "yolov3" / f"{name}.txt").read_text()
    return np.array(text.replace("[", " ").replace("]", " ").split(), np.float32).reshape(shape)


def test_detect_yolov3_agrees_with_the_vectors():
    names = ("box_centers", "box_sizes", "boxes", "confs", "probs")
    text = """
        create(|dst=feature|dtype=TL_FLOAT, dims=[1,24,5,5], ran=[0,0], data=[0], from_file=true);
        create(|dst=anchors|dtype=TL_FLOAT, dims=[3,2], ran=[0,0], data=[0], from_file=true);
        detect_yolov3(feature=feature, anchors=anchors|box_centers=box_centers, box_sizes=box_sizes, boxes=boxes,
                      confs=confs, probs=probs|img_width=160, img_height=160)
    """
    weights = {"anchors": vector("anchors", (3, 2)), "feature": vector("feature", (1, 24, 5, 5))}
    got = lightnet.compile(lightnet.loads(text, ".net", weights=weights))()
    for name, channels in zip(names, (2, 2, 4, 1, 3)):
        want = vector(name, (1, 3, channels, 5, 5))
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4 * np.abs(want).max(), err_msg=name)
