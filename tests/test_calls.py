"""Calls from Python: by name, in order, by keyword; arrays of other libraries without a copy; buffers for the outputs; what is refused."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import as_array
from lightnet.runtime.dlpack import _NAME, _Tensor

#: Large enough for ports (256 KiB), and not: outputs of both kinds, of several types.
NET = """
builtin.module { func.func @main() -> (tensor<{n}x64xf32>, tensor<{n}x64xf32>, tensor<{n}x1xi64>) {
  %x = ln.input : tensor<{n}x64xf32> as "x"("image")
  %z = ln.input : tensor<{n}x64xf32> as "z"("mask")
  %w = ln.param {ran = [-1, 1]} : tensor<64xf32> as "w"("weight")
  %a = ln.elew %x, %z {elew_op = "TL_SUB"} : tensor<{n}x64xf32> as "a"("a")
  %r = ln.relu %a : tensor<{n}x64xf32> as "r"("r")
  %m = ln.argmax %a {axis = 1} : tensor<{n}x1xi64> as "m"("m")
  func.return %a, %r, %m : tensor<{n}x64xf32>, tensor<{n}x64xf32>, tensor<{n}x1xi64>
} }"""
RNG = np.random.default_rng(0)


def text(n: int) -> str:
    found = NET.replace("{n}", str(n))
    return "\n".join(line for line in found.splitlines() if "%w" not in line)


@pytest.fixture(scope="module", params=["small", "large", "interpreted", "saved"])
def run(request, tmp_path_factory):
    n = 2000 if request.param in ("large", "saved") else 3
    made = lightnet.compile(lightnet.loads(text(n), ".mlir"), "none" if request.param == "interpreted" else "cpu")
    if request.param != "saved":
        return made
    path = tmp_path_factory.mktemp("calls") / "net.lnx"
    made.save(path)
    return lightnet.load_executable(path)


@pytest.fixture
def fed(run) -> tuple[np.ndarray, np.ndarray]:
    dims = run.inputs["image"][0]
    return RNG.standard_normal(dims).astype("f"), RNG.standard_normal(dims).astype("f")


def right(found, x, z) -> None:
    a = np.asarray(x, "f") - np.asarray(z, "f")
    np.testing.assert_array_equal(found["a"], a)
    np.testing.assert_array_equal(found["r"], np.maximum(a, 0))
    np.testing.assert_array_equal(found["m"], a.argmax(1)[:, None])


def refused(call, *words: str) -> None:
    with pytest.raises(LightNetError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_every_way_to_feed(run, fed) -> None:
    x, z = fed
    for call in (
        lambda: run({"image": x, "mask": z}), lambda: run(x, z), lambda: run(image=x, mask=z), lambda: run(x, mask=z),
        lambda: run({"mask": z}, image=x), lambda: run.run(mask=z, image=x), lambda: run(None, image=x, mask=z),
        lambda: run(x.tolist(), z), lambda: run(x.astype(np.float64), z),
    ):  # fmt: skip
        right(call(), x, z)


def test_what_is_fed_wrongly_is_named(run, fed) -> None:
    x, z = fed
    refused(lambda: run(x, z, x), "has 2 inputs (image, mask), but gets 3 arrays")
    refused(lambda: run(x, image=x, mask=z), "input 'image' is fed twice")
    refused(lambda: run({"image": x}, z), "a mapping by name, or arrays in the order of the inputs, not both")
    refused(lambda: run(imaeg=x, mask=z), "is called 'imaeg'", "did you mean image?")
    refused(lambda: run(x[:1], z), "'image' has shape", "but gets [1, 64]")
    refused(lambda: run(x, z.astype(complex)), "'mask' takes float32, but gets complex128")
    refused(lambda: run(x, object()), "'mask'")


def test_layouts_of_inputs(run, fed) -> None:
    """Read-only, of any strides, misaligned, big-endian: all right, and never written to."""
    x, z = fed
    raw = np.zeros(x.nbytes + 1, np.uint8)
    misaligned = raw[1:].view("f").reshape(x.shape)
    misaligned[...] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    wide = np.repeat(x, 2, axis=1)
    for array in (
        np.asfortranarray(x),
        wide[:, ::2],
        x[::-1, ::-1].copy()[::-1, ::-1],
        misaligned,
        read_only,
        x.astype(">f4"),
    ):
        before = array.copy()
        right(run(array, z), x, z)
        np.testing.assert_array_equal(array, before)


def buffers(run) -> dict[str, np.ndarray]:
    return {name: np.full(dims, 7, dtype) for name, (dims, dtype) in run.outputs.items()}


def test_outputs_are_written_where_they_should_be(run, fed) -> None:
    x, z = fed
    out = buffers(run)
    for _ in range(2):
        found = run(x, z, out=out)
        right(found, x, z)
        assert list(found) == ["a", "r", "m"] and all(found[name] is out[name] for name in out)
    some = {"r": out["r"]}
    some["r"][...] = 7
    found = run(x, z, out=some)
    right(found, x, z)
    assert found["r"] is some["r"] and not np.shares_memory(found["a"], out["a"])
    found = run(x, z, outputs="m", out=out["m"])
    assert list(found) == ["m"] and found["m"] is out["m"]
    right(run({"image": z, "mask": x}), z, x)
    np.testing.assert_array_equal(out["m"], (x - z).argmax(1)[:, None])


def test_options_of_a_call_like_one_before(run, fed, capsys) -> None:
    """A call that does what the last one did may go a shorter way; each option, and an input by keyword, takes it away."""
    x, z = fed
    feeds = {"image": x, "mask": z}
    for _ in range(3):
        right(run(feeds), x, z)
        out = buffers(run)
        found = run(feeds, out=out)
        assert all(found[name] is out[name] for name in out)
        right(out, x, z)
        assert list(run(feeds, outputs=["m", "a"])) == ["m", "a"]
        refused(lambda: run(feeds, threads=0), "threads")
        refused(lambda: run(feeds, mask=z), "mask")
        right(run(feeds, stream=None), x, z)


def test_a_buffer_may_be_what_is_fed(run, fed) -> None:
    """Outputs are as if they were written when everything has been read."""
    x, z = fed
    want = run(x, z)
    both = x.copy()
    found = run(both, z, out={"a": both})
    assert found["a"] is both
    for name in want:
        np.testing.assert_array_equal(found[name], want[name])


def test_buffers_that_do_not_fit(run, fed) -> None:
    x, z = fed
    dims = run.outputs["a"][0]
    read_only = np.empty(dims, "f")
    read_only.flags.writeable = False
    misaligned = np.zeros(4 * dims[0] * dims[1] + 1, np.uint8)[1:].view("f").reshape(dims)
    shared = np.empty(dims, "f")
    for out, words in (
        (np.empty(dims, "f"), ("out is one array, and there are 3 outputs",)),
        ({"b": np.empty(dims, "f")}, ("no output of this call is called 'b'",)),
        ({"a": np.empty(dims[::-1], "f")}, ("'a' has shape", "but the buffer has")),
        ({"a": np.empty(dims)}, ("'a' is of float32, but the buffer is of float64",)),
        ({"a": np.empty(dims[::-1], "f").T}, ("the buffer of 'a' is not contiguous",)),
        ({"a": read_only}, ("the buffer of 'a' is not writable",)),
        ({"a": misaligned}, ("the buffer of 'a' is not aligned",)),
        ({"a": shared, "r": shared}, ("'a' and 'r' share memory",)),
        ({"a": [[1.0]]}, ("'a' takes an array to write to, not a list",)),
    ):
        refused(lambda out=out: run(x, z, out=out), *words)
    refused(lambda: run(x, z, outputs=["a"], out={"r": shared}), "no output of this call is called 'r'")


class Foreign:
    """An array of another library: it has DLPack alone."""

    def __init__(self, array: np.ndarray, code: int | None = None, device: tuple[int, int] = (1, 0)):
        self.array, self.code, self.device = array, code, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: object) -> object:
        capsule = self.array.__dlpack__()
        if self.code is not None:
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
            _Tensor.from_address(get(capsule, _NAME)).code = self.code
        return capsule


def test_dlpack(run, fed) -> None:
    x, z = fed
    right(run(Foreign(x), Foreign(np.asfortranarray(z))), x, z)
    out = buffers(run)
    found = run(x, z, out={name: Foreign(array) for name, array in out.items()})
    right(out, x, z)
    right(found, x, z)
    refused(
        lambda: run(Foreign(x, device=(2, 1)), z),
        "'image' takes an array of float32, but its memory is on a device (cuda:1)",
    )
    refused(lambda: run(Foreign(x, code=5), z), "'image'", "DLPack's 5, 32 bits")


def test_dlpack_is_no_copy_and_holds_its_memory() -> None:
    x = RNG.standard_normal((4, 6)).astype("f")
    for array in (x, x[::-1, ::2], x.T, x[:0], x[2, 3]):
        if not array.flags.writeable:
            continue
        found = as_array("x", Foreign(np.asarray(array)))
        np.testing.assert_array_equal(found, array)
        assert found.shape == array.shape and (not array.size or np.shares_memory(found, x) or array.ndim == 0)
    held = as_array("x", Foreign(RNG.standard_normal(100_000)))
    want = held.copy()
    _ = [RNG.standard_normal(100_000) for _ in range(3)]  # what was freed would be used again
    np.testing.assert_array_equal(held, want)
    import gc
    import weakref

    class Counted(np.ndarray):
        pass

    source = RNG.standard_normal(8).view(Counted)
    gone = weakref.ref(source)
    view = as_array("x", Foreign(source))
    del source
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_dlpack_types(kind: str) -> None:
    array = RNG.integers(0, 2, (3, 5)).astype(kind)
    found = as_array("x", Foreign(array))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bfloat16_by_dlpack() -> None:
    dtypes = pytest.importorskip("ml_dtypes")
    array = RNG.standard_normal((3, 5)).astype(dtypes.bfloat16)
    found = as_array("x", Foreign(array.view(np.uint16), code=4))
    assert found.dtype == array.dtype and found.view(np.uint16).tolist() == array.view(np.uint16).tolist()


def test_torch(run, fed) -> None:
    """The library that most arrays come from; where it is installed."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, z = fed
    right(run(torch.tensor(x), torch.tensor(z).t().contiguous().t()), x, z)
    out = {name: torch.from_numpy(array) for name, array in buffers(run).items()}
    run(x, z, out=out)
    right({name: tensor.numpy() for name, tensor in out.items()}, x, z)
    half = torch.tensor(x).bfloat16()
    right(run(half, z), half.float().numpy(), z)
    refused(lambda: run(torch.tensor(x, requires_grad=True), z), "requires grad")


def test_a_network_with_params_names_inputs_only() -> None:
    made = lightnet.compile(Path(__file__).parents[1] / "examples" / "nets" / "lenet.net")
    refused(
        lambda: made(inptu=np.zeros((1, 1, 28, 28))),
        "is called 'inptu'; there are: input",
        "did you mean input?",
        "params",
    )


def test_open_shapes(tmp_path) -> None:
    """A `SpecializingExecutable` is called, awaited, closed and handed over like the others."""
    import asyncio
    import pickle

    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Sub", ["a", "b"], ["c"])], "g",
        [helper.make_tensor_value_info(n, kind, ["n", 4]) for n in "ab"], [helper.make_tensor_value_info("c", kind, ["n", 4])],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "open.onnx"
    )
    run = lightnet.compile(tmp_path / "open.onnx")
    assert (
        list(run.inputs) == ["a", "b"]
        and run.outputs["c"][1] == np.float32
        and [str(d) for d in run.outputs["c"][0]] == ["n(1..1024)", "4"]
        and run.options["target"] == "cpu"
        and "a float32" in repr(run)
    )
    for n in (1, 3, 1025):  # the last one beyond the range that `run` is compiled for
        a, b = RNG.standard_normal((2, n, 4)).astype("f")
        out = np.empty((n, 4), "f")
        for found in (run(a, b), run(b=b, a=a), run(a, b, out=out), asyncio.run(run.call_async(a, b))):
            np.testing.assert_array_equal(found["c"], a - b)
        np.testing.assert_array_equal(out, a - b)
    assert run.warnings == [] and run.plan.calls.ranges == {"n": "in 1..1024"}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(run))(a, b)["c"], a - b)
    refused(lambda: run(a, b, out=np.empty((n, 5), "f")), "'c' has shape [1025, 4]")
    refused(lambda: lightnet.compile(tmp_path / "open.onnx", "none").plan, "for each set of shapes")
    with run:
        pass
    refused(lambda: run(a, b), "closed")


def test_what_goes_to_other_processes_runs_there_as_here() -> None:
    """Code for cuda that runs in the PTX interpreter does so behind `pickle`, and tells its options alike."""
    import pickle

    text = "create(|dst=x|dtype=TL_FLOAT, dims=[2,4], ran=[-1,1], data=[0], from_file=false);\nrelu(src=x|dst=y|);\n"
    x = RNG.standard_normal((2, 4)).astype("f")
    for target, options in (("cuda", {"emulate": True}), ("cpu", {"check_indices": True}), ("none", {})):
        run = lightnet.compile(lightnet.loads(text, ".net"), target, **options)
        again = pickle.loads(pickle.dumps(run))
        np.testing.assert_array_equal(again(x)["y"], np.maximum(x, 0))
        assert {k: again.options[k] for k in options} == {k: run.options[k] for k in options} == options


def test_a_network_that_is_interpreted_goes_to_other_processes_with_its_weights() -> None:
    import pickle

    nets = Path(__file__).parents[1] / "examples" / "nets"
    weights = {"w1": RNG.standard_normal((3, 4)).astype("f")}
    text = """func.func @main(%x: tensor<2x3xf32>) -> tensor<2x4xf32> {
        %w = ln.param {from_file = true, required = true} : tensor<3x4xf32> as "w"("w1")
        %y = ln.matmul %x, %w : tensor<2x4xf32> as "m"("y")
        func.return %y : tensor<2x4xf32>
    }"""
    run = lightnet.compile(lightnet.loads(text, ".mlir", weights=weights), "none")
    x = RNG.standard_normal((2, 3)).astype("f")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(run))(x)["y"], run(x)["y"])
    np.testing.assert_allclose(run(x)["y"], x @ weights["w1"], rtol=1e-5)
    random = lightnet.compile(nets / "mlp.net", "none", seed=7)  # contents by a seed
    fed = {name: np.ones(dims, dtype) for name, (dims, dtype) in random.inputs.items()}
    again = pickle.loads(pickle.dumps(random))
    for name, array in random(fed).items():
        np.testing.assert_array_equal(again(fed)[name], array)
