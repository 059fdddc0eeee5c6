"""The Python API: load, compile, call; feeds, outputs, data, saving, threads, upstream's plans. The oracle is NumPy, written
here, apart from the project's references."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime import artifact

RNG = np.random.default_rng(7)
X = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32)
W = RNG.standard_normal((3, 2)).astype(np.float32)  # a 1x1 convolution
B, SCALE, OFFSET, MEAN, VAR = (RNG.uniform(0.5, 1.5, 3).astype(np.float32) for _ in range(5))
WEIGHTS = {"w": W.reshape(3, 2, 1, 1), "b": B, "scale": SCALE, "offset": OFFSET, "mean": MEAN, "var": VAR}


def create(name: str, dims: list[int], dtype: str = "TL_FLOAT", from_file: bool = True, data: str = "0") -> str:
    flag = str(from_file).lower()
    return f"create(| dst={name} | dtype={dtype}, dims={dims}, data=[{data}], ran=[0,0], from_file={flag});\n"


CONV = (
    create("x", [1, 2, 4, 4], from_file=False, data=",".join(str(float(v)) for v in X.ravel()))
    + create("w", [3, 2, 1, 1])
    + "".join(create(n, [3]) for n in ("b", "scale", "offset", "mean", "var"))
    + "conv2d(src=x, weight=w, bias=b | dst=c | group=1, size=[1,1], stride=[1,1], dilation=[1,1], padding=[0,0,0,0],"
    ' autopad="NOTSET");\n'
    "batchnorm(src=c, scale=scale, offset=offset, mean=mean, var=var | dst=n | epsilon=0.00001);\n"
    "relu(src=n | dst=r |);\nsigmoid(src=r | dst=y |);\nslice(src=r | dst=part | axis=1, start=1, len=1);\n"
)


def expected(x=X, w=W, b=B, scale=SCALE, mean=MEAN, var=VAR) -> dict[str, np.ndarray]:
    c = np.einsum("nchw,oc->nohw", np.float64(x), w) + np.float64(b)[:, None, None]
    k = np.float64(scale) / np.sqrt(np.float64(var) + 1e-5)
    r = np.maximum(k[:, None, None] * (c - np.float64(mean)[:, None, None]) + OFFSET[:, None, None], 0)
    return {"y": 1 / (1 + np.exp(-r)), "part": r[:, 1:2], "c": c, "r": r}


def agree(got: dict[str, np.ndarray], want: dict[str, np.ndarray], names: tuple[str, ...] = ("y", "part")) -> None:
    """Upstream's plan loses `y` (`Results.lost`)."""
    assert list(got) == [n for n in names if n not in getattr(got, "lost", ())]
    names = tuple(got)
    for name in names:
        assert np.abs(got[name] - want[name]).max() <= 1e-5 * np.abs(want[name]).max(), name


class Results(dict):
    lost = ("y",)


class Upstream:
    """An executable whose results say what upstream's plan loses."""

    def __init__(self, run):
        self.run = run

    def __getattr__(self, name):
        return getattr(self.run, name)

    def __call__(self, *args, **options):
        return Results(self.run(*args, **options))


@pytest.fixture(scope="module")
def model() -> lightnet.Model:
    return lightnet.loads(CONV, ".net", "conv.net", WEIGHTS)


@pytest.fixture(scope="module")
def executable(model):
    return lightnet.compile(model)


@pytest.fixture(scope="module", params=["cpu", "upstream", "none"])
def any_executable(request, model):
    if request.param == "upstream":
        return Upstream(lightnet.compile(model, plan="upstream"))
    return lightnet.compile(model, request.param)


@pytest.fixture(scope="module")
def saved(executable, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "conv.lnx"
    executable.save(path)
    return path


def refused(call, *parts: str) -> LightNetError:
    with pytest.raises(LightNetError) as info:
        call()
    for part in parts:
        assert part in str(info.value), info.value
    return info.value


# -- calling


def test_outputs_are_what_nobody_consumes_in_order(any_executable):
    agree(any_executable(), expected())
    assert list(any_executable.outputs) == ["y", "part"]
    assert any_executable.inputs == {"x": ((1, 2, 4, 4), np.dtype(np.float32))}
    assert set(any_executable.params) == set(WEIGHTS)


def test_feeds_do_not_leak_into_the_next_call(any_executable):
    other = X[:, :, ::-1] + 1
    agree(any_executable({"x": other}), expected(other))
    agree(any_executable(), expected())
    agree(any_executable({"w": 2 * WEIGHTS["w"], "var": 3 * VAR}), expected(w=2 * W, var=3 * VAR))
    agree(any_executable({"w": 2 * WEIGHTS["w"], "var": 3 * VAR, "x": other}), expected(other, 2 * W, var=3 * VAR))
    agree(any_executable({"mean": MEAN + 1}), expected(mean=MEAN + 1))
    agree(any_executable(), expected())


def test_a_caller_may_change_the_results(executable):
    executable()["y"][:] = 5
    agree(executable(), expected())


def test_a_feed_converts_where_its_kind_of_number_stays(any_executable):
    agree(any_executable({"x": X.astype(np.float64)}), expected())
    agree(any_executable({"x": X.tolist()}), expected())
    agree(any_executable({"x": np.asfortranarray(X).astype(">f4")}), expected())
    ints = np.arange(32).reshape(1, 2, 4, 4)
    agree(any_executable({"x": ints}), expected(ints))


@pytest.mark.parametrize(
    "value, words",
    [
        (X[0], "'x' has shape [1, 2, 4, 4], but gets [2, 4, 4]"),
        (X.astype(complex), "'x' takes float32, but gets complex128"),
        (X > 0, "'x' takes float32, but gets bool"),
        (np.full(X.shape, 1e300), "values beyond its range"),
        ([[1, 2], [3]], "'x' takes an array of float32, but gets none"),
        (np.full(X.shape, None), "but gets object"),
        ("text", "but gets []"),
    ],
)
def test_a_feed_that_does_not_fit(any_executable, value, words):
    refused(lambda: any_executable({"x": value}), words)


def test_integers_convert_where_they_fit():
    net = lightnet.loads(create("i", [3], "TL_UINT8", False) + "relu(src=i|dst=o|);", ".net")
    run = lightnet.compile(net)
    assert run({"i": np.array([0, 3, 255])})["o"].tolist() == [0, 3, 255]
    refused(lambda: run({"i": [0, 3, 256]}), "'i' takes uint8, but gets values from 0 to 256")
    refused(lambda: run({"i": [0, 3, -1]}), "values from -1")
    refused(lambda: run({"i": [0.5, 3, 1]}), "'i' takes uint8, but gets float64")


def test_names_that_cannot_be_fed(any_executable):
    refused(lambda: any_executable({"c": X}), "tensor 'c' cannot be fed: the network computes it")
    refused(lambda: any_executable({"xx": X}), "no input or param is called 'xx'; there are: x")


def test_an_input_that_simplification_leaves_without_use_can_be_fed():
    text = (
        create("a", [2], from_file=False)
        + create("b", [2], from_file=False)
        + ("concat(src1=a, src2=b | dst=ab | axis=0); slice(src=ab | dst=y | axis=0, start=0, len=2);")
    )
    run = lightnet.compile(lightnet.loads(text, ".net"))
    assert run({"a": [1, 2], "b": [3, 4]})["y"].tolist() == [1, 2]
    refused(lambda: run({"b": [1]}), "'b' has shape [2]")


def test_printing_goes_to_the_stream(model):
    net = lightnet.loads(create("a", [2], from_file=False, data="1, 2") + 'print(src=a||msg="a is");', ".net")
    for target in ("cpu", "none"):
        out = io.StringIO()
        lightnet.compile(net, target)({"a": [3, 4]}, stream=out)
        assert out.getvalue() == "a is\n[3.000 4.000]\n"


def test_calls_from_several_threads(model):
    run = lightnet.compile(model)
    feeds = [X * i for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for x, got in zip(feeds, pool.map(lambda x: run({"x": x}), feeds)):
            agree(got, expected(x))
        scales = [SCALE * i for i in range(1, 9)]
        for s, got in zip(scales, pool.map(lambda s: run({"scale": s}), scales)):
            agree(got, expected(scale=s))


def test_threads_that_print():
    net = lightnet.loads(create("a", [2], from_file=False) + 'relu(src=a|dst=r|);print(src=r||msg="");', ".net")
    run = lightnet.compile(net)
    streams = [io.StringIO() for _ in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: run({"a": [i, i]}, stream=streams[i]), range(40)))
    assert [s.getvalue() for s in streams] == [f"\n[{i}.000 {i}.000]\n" for i in range(40)]


# -- outputs


def test_outputs_keep_intermediate_tensors(model):
    agree(lightnet.compile(model, outputs=["c", "r"])(), expected(), ("y", "part", "c", "r"))
    run = lightnet.compile(model, outputs=["x"])
    np.testing.assert_array_equal(run()["x"], X)
    refused(lambda: lightnet.compile(model, outputs=["cc"]), "no tensor is called 'cc'; there are: c")


def test_a_call_may_choose_outputs(any_executable):
    agree(any_executable(outputs=["part"]), expected(), ("part",))
    refused(lambda: any_executable(outputs=["zz"]), "no tensor is called 'zz'")


def test_a_tensor_that_fusion_removed_says_what_to_do(executable):
    error = refused(lambda: executable(outputs=["n"]), "'n' does not exist in the compiled network", "outputs=['n']")
    assert "fusion" in str(error)


def test_a_tensor_whose_memory_is_reused_says_what_to_do(model):
    run = lightnet.compile(model, plan="upstream")
    refused(lambda: run(outputs=["c"]), "memory is used again", "outputs=['c']")


# -- looking inside


def test_every_stage_can_be_seen(executable):
    assert "ln.create" in executable.ir("source") and "at arena+" in executable.ir()
    assert "cpu.kernel" in executable.ir("combine") and "tile.launch" in executable.ir("lower-cpu")
    assert "define" in executable.llvm_ir and "ret" in executable.assembly
    assert executable.plan.plan.peak >= executable.plan.plan.bound > 0
    assert "peak" in executable.plan.text() and json.loads(executable.plan.json())
    refused(lambda: executable.ir("nothing"), "no pass 'nothing'", "plan")


def test_target_none_has_no_code(model):
    run = lightnet.compile(model, "none")
    for ask in (lambda: run.llvm_ir, lambda: run.assembly, lambda: run.save("/tmp/never")):
        refused(ask, "no machine code")
    refused(lambda: run.plan, "no memory plan")
    assert "ln.input" in run.ir()


def test_unknown_choices_list_what_there_is(model):
    refused(
        lambda: lightnet.compile(model, "gpu"), "unknown target 'gpu'; there are: cpu, cuda, cudnn, dpu, none, tensorrt"
    )
    refused(lambda: lightnet.compile(model, plan="best"), "unknown plan 'best'; there are: default, upstream")


# -- weights


def test_weights_in_memory_convert_as_feeds_do(model):
    doubles = {k: np.float64(v) for k, v in WEIGHTS.items()}
    agree(lightnet.compile(lightnet.loads(CONV, ".net", weights=doubles))(), expected())
    agree(lightnet.compile(lightnet.loads(CONV, ".net"), weights=doubles)(), expected())
    refused(lambda: lightnet.loads(CONV, ".net", weights={**WEIGHTS, "b": B > 0}), "'b' takes float32, but gets bool")


def test_weights_from_a_file(tmp_path):
    np.savez(tmp_path / "w.npz", **WEIGHTS)
    (tmp_path / "conv.net").write_text(CONV)
    agree(lightnet.compile(lightnet.load(tmp_path / "conv.net", tmp_path / "w.npz"))(), expected())
    np.savez(tmp_path / "bad.npz", **{**WEIGHTS, "b": np.zeros(4, np.float32)})
    run = lightnet.compile(tmp_path / "conv.net", weights=tmp_path / "bad.npz")  # compiling needs no weights
    error = refused(run, "weight 'b'", "4 elements")
    assert error.loc is not None and error.loc.file.endswith("conv.net") and error.loc.line == 3


def test_missing_and_unused_weights_are_warnings():
    some = {k: v for k, v in WEIGHTS.items() if k != "b"} | {"extra": B}
    for target in ("cpu", "none"):
        run = lightnet.compile(lightnet.loads(CONV, ".net", weights=some), target)
        assert run.warnings == ["weight b is missing: it holds zeros", "ignore unused weight extra"]
        assert run.missing == ["b"]
        agree(run(), expected(b=np.zeros(3)))
    (warning,) = lightnet.compile(lightnet.loads(CONV, ".net")).warnings
    assert warning.startswith("no weights are given: 6 tensors hold zeros (w, b, scale, ...)")


# -- other shapes


def test_other_shapes_are_inferred_through_the_network():
    net = lightnet.loads(CONV, ".net", weights=WEIGHTS, shapes={"x": [2, 2, 5, 7]})
    x = RNG.standard_normal((2, 2, 5, 7)).astype(np.float32)
    agree(lightnet.compile(net)({"x": x}), expected(x))
    agree(lightnet.compile(net, "none")({"x": x}), expected(x))


def test_shapes_that_the_network_cannot_take(tmp_path):
    (tmp_path / "a.net").write_text(CONV + "reshape(src=c | dst=q | dims=[3, 16]);")
    error = refused(
        lambda: lightnet.load(tmp_path / "a.net", shapes={"x": [1, 2, 5, 5]}),
        "reshape `reshape0`",
        "tensor<1x3x5x5xf32>",
        'should satisfy "prod(dims) == src.len", but gets 48 against 75',
        "[reshape.length]",
    )
    assert error.loc is not None and error.loc.line == CONV.count("\n") + 1
    refused(lambda: lightnet.load(tmp_path / "a.net", shapes={"x": [1, 3, 4, 4]}), "conv2d `conv2d0`", "in-channels")
    refused(lambda: lightnet.load(tmp_path / "a.net", shapes={"x": [2, 4, 4]}), "conv2d `conv2d0`", "4-dimensional")
    refused(lambda: lightnet.load(tmp_path / "a.net", shapes={"c": [1]}), "no input or param is called 'c'")
    for dims in ([], [0, 2], [1.5], "12", 3, [-1], [None], [2**40]):
        refused(lambda dims=dims: lightnet.loads(CONV, ".net", shapes={"x": dims}))


def test_scatter_keeps_its_number_of_results():
    text = create("x", [2, 3], from_file=False) + "scatter(src=x | dst1=a, dst2=b |);"
    assert lightnet.compile(lightnet.loads(text, ".net", shapes={"x": [2, 5]})).outputs["b"][0] == (5,)
    refused(lambda: lightnet.loads(text, ".net", shapes={"x": [3, 3]}), "scatter `scatter0`", "3 results, and has 2")


# -- saving


def test_a_saved_executable_runs_without_the_compiler(saved):
    code = """
import sys, io, numpy as np, lightnet
run = lightnet.load_executable(sys.argv[1])
print(run()["y"].astype(float).sum(), run({"x": np.zeros((1, 2, 4, 4))})["y"].astype(float).sum(), list(run.inputs), list(run.outputs))
assert "xdsl" not in sys.modules, [m for m in sys.modules if "xdsl" in m][:3]
"""
    out = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    loaded, zeros, *names = out.stdout.split(maxsplit=2)
    assert abs(float(loaded) - expected()["y"].sum()) < 1e-3
    assert abs(float(zeros) - expected(0 * X)["y"].sum()) < 1e-3
    assert names[0].strip() == "['x'] ['y', 'part']"


def test_a_saved_executable_explains_itself(saved):
    run = lightnet.load_executable(saved)
    agree(run(), expected())
    agree(run(outputs=["part"]), expected(), ("part",))
    refused(lambda: run({"w": WEIGHTS["w"]}), "param 'w' is fixed in a saved executable")
    refused(lambda: run({"q": X}), "no input is called 'q'")
    refused(lambda: run(outputs=["n"]), "outputs=['n']")


def test_upstreams_plan_can_be_saved(model, tmp_path):
    lightnet.compile(model, plan="upstream").save(tmp_path / "u.lnx")
    run = Upstream(lightnet.load_executable(tmp_path / "u.lnx"))
    for x in (X, 2 * X):
        agree(run({"x": x}), expected(x))
    agree(run(), expected())


def test_damaged_and_foreign_files_are_refused(saved, tmp_path):
    data = saved.read_bytes()
    bad = tmp_path / "bad.lnx"
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[20 : 20 + length])
    code = header["sections"]["code0"]["offset"]
    cases = {
        b"": "no executable saved", b"hello": "no executable saved", data[:15]: "no executable saved",
        data[:1000]: "damaged", data[:-5000]: "damaged",
        data[:200] + b"#" + data[201:]: "damaged",
        data[:code] + b"#" + data[code + 1 :]: "section 'code0'",
        data[:8] + b"\xff" * 8 + data[16:]: "damaged",
    }  # fmt: skip
    for content, words in cases.items():
        bad.write_bytes(content)
        refused(lambda: lightnet.load_executable(bad), words, "bad.lnx")
    refused(lambda: lightnet.load_executable(tmp_path / "none.lnx"), "cannot open")
    refused(lambda: lightnet.load_executable(tmp_path), "not a regular file")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"cpu": "sapphirerapids", "features": "+xop,+fma4,+avx512fp16,+never-heard-of"}, "lacks"),
        ({"triple": "sparc64-unknown-linux-gnu"}, "is for sparc64 processors"),
        ({"inputs": 3}, "nothing sensible"),
        ({"memory": {"arena": 1}}, "nothing sensible"),
    ],
)
def test_code_for_another_machine_and_nonsense(executable, tmp_path, change, words):
    class Changed:
        objects = executable.program.objects

        def header(self):
            return executable.program.header() | change

        def __getattr__(self, name):
            return change.get(name, getattr(executable.program, name))

    variant = artifact.Variant(Changed(), executable.instance.static, {})
    artifact.save(tmp_path / "x.lnx", [variant], {})
    refused(lambda: lightnet.load_executable(tmp_path / "x.lnx"), words)


# -- upstream's plans, and plans read again

CLOBBER = create("x", [8], from_file=False, data="1,-2,3,-4,5,-6,7,-8") + (
    "relu(src=x | dst=early |);\nlrelu(src=x | dst=a | negslope=2);\nlrelu(src=a | dst=late | negslope=2);\n"
)


def test_upstreams_plan_says_which_outputs_are_gone():
    net = lightnet.loads(CLOBBER, ".net")
    run = lightnet.compile(net, plan="upstream")
    x = np.float32([1, -2, 3, -4, 5, -6, 7, -8])
    got = run()
    assert list(run.outputs) == ["early", "late"] and list(got) == ["late"]
    np.testing.assert_array_equal(got["late"], np.where(x < 0, 4 * x, x))
    assert run.warnings == ["output early is overwritten by lrelu0, as in upstream's plan, and not returned"]
    refused(lambda: run(outputs=["early"]), "overwritten by 'lrelu0'", "default plan")
    np.testing.assert_array_equal(lightnet.compile(net)()["early"], np.maximum(x, 0))


def test_what_upstreams_plan_overwrites_is_there_again_in_the_next_call():
    text = (
        create("x", [4], from_file=False, data="4,1,3,2")
        + create("b", [4])
        + (
            'sort1d(src_key=x | dst_key=s | dir="TL_SORT_DIR_ASCENDING");\nelew(src1=s, src2=b | dst=y | elew_op="TL_SUM");'
        )
    )
    b = np.float32([10, 20, 30, 40])
    run = lightnet.compile(lightnet.loads(text, ".net", weights={"b": b}), plan="upstream")
    assert run.program.restore == ("x",)
    for feeds, want in (
        ({}, [11, 22, 33, 44]),
        ({"x": [9, 8, 7, 6]}, [16, 27, 38, 49]),
        ({}, [11, 22, 33, 44]),
        ({"b": [0, 0, 0, 0]}, [1, 2, 3, 4]),
        ({}, [11, 22, 33, 44]),
    ):
        assert run(feeds)["y"].tolist() == want


@pytest.mark.parametrize("plan", ["default", "upstream"])
def test_a_planned_network_read_again_runs_equal(model, plan):
    from lightnet.frontends import json_ir
    from lightnet_export.netlist import from_module

    first = lightnet.compile(model, plan=plan)
    text = json_ir.write(from_module(first.planned))
    again = lightnet.compile(lightnet.loads(text, ".json", weights=WEIGHTS), compiled=True)
    for feeds in ({}, {"x": 3 * X}, {"w": 2 * WEIGHTS["w"]}, {}):
        a, b = first(feeds), again(feeds)
        assert list(a) == list(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    refused(lambda: lightnet.compile(lightnet.loads(text, ".json"), outputs=["c"]), "is planned: choose outputs before")
    refused(lambda: lightnet.compile(model, compiled=True), "conv.net: the network is not planned")
    refused(lambda: lightnet.loads(text, ".json", shapes={"x": [1, 2, 5, 5]}), "not compiled yet")


def test_models_of_the_package_onnx():
    """A `ModelProto` is loaded and compiled as its bytes are; what is no network is said so in a line."""
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    value = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 2]) for n in "xy"]
    proto = onnx.helper.make_model(onnx.helper.make_graph([node], "g", value[:1], value[1:]),
                                   opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
    x = np.float32([[-1, 2]])
    for run in (
        lightnet.compile(proto),
        lightnet.compile(proto, shapes={"x": [1, 2]}),
        lightnet.compile(proto.SerializeToString(), shapes={"x": [1, 2]}),
        lightnet.compile(lightnet.load(proto, shapes={"x": [1, 2]})),
    ):
        np.testing.assert_array_equal(run(x)["y"], [[0, 2]])
    for call in (lightnet.load, lightnet.compile):
        assert "not a list" in str(refused(lambda call=call: call([1]), "a network to"))
    refused(
        lambda: lightnet.compile(lightnet.load(proto, shapes={"x": [1, 2]}), shapes={"x": [1, 2]}),
        "lightnet.load(path, shapes=...)",
    )
    assert (
        lightnet.load(proto, shapes={"x": [0, 2]}).warnings[0][1]
        == "input 'x' gets the shape [0, 2], which has no elements"
    )


def test_type_checkers_see_what_is_found_at_run_time():
    """The names that the package imports for them are those that it finds when they are asked for, in the same modules."""
    tree = ast.parse(Path(lightnet.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == lightnet._API | dict.fromkeys(("deploy", "plugins"), "lightnet")
