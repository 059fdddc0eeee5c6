"""Networks whose dims calls decide on target cuda, in the PTX interpreter: compiled once for all shapes, static generators in strips of rows, memory that
grows, graphs of the last shapes, and saved files, which may lie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


from onnx import numpy_helper, parser  # noqa: E402
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, i64  # noqa: E402
from xdsl.ir import Block  # noqa: E402

import lightnet  # noqa: E402
from lightnet import LightNetError  # noqa: E402
from lightnet.backends.cuda import strips  # noqa: E402
from lightnet.backends.cuda.nvptx import emit_program  # noqa: E402
from lightnet.backends.cuda.selection import SELECTION  # noqa: E402
from lightnet.dialects.cuda import CudaKernelOp  # noqa: E402
from lightnet.dialects.ln.matmul import Matmul  # noqa: E402
from lightnet.ir.body import choice  # noqa: E402
from lightnet.ir.kernel import KernelOp  # noqa: E402
from lightnet.ir.memory import set_call_symbols  # noqa: E402
from lightnet.ir.names import PLACES  # noqa: E402
from lightnet.ir.parser import parse_mlir  # noqa: E402
from lightnet.ir.place import PlaceAttr  # noqa: E402
from lightnet.ir.types import TensorSpec, tensor_type  # noqa: E402
from lightnet.runtime import open_instance  # noqa: E402
from lightnet.runtime.cuda.program import CudaCode, KernelLine, _of_some  # noqa: E402
from lightnet.runtime.dims import symbol  # noqa: E402
from lightnet.runtime.dtypes import BY_NAME  # noqa: E402

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Net:
    """A network as ONNX text, the shapes of its weights, those of its calls, and the generators that its kernels should have."""

    inputs: str
    outputs: str
    weights: dict[str, Shape]
    body: str
    calls: tuple[Shape, ...]
    algs: frozenset[str]

    def model(self) -> onnx.ModelProto:
        text = f'<ir_version: 8, opset_import: ["" : 17]> g ({self.inputs}) => ({self.outputs}) {{ {self.body} }}'
        model = parser.parse_model(text)
        random = np.random.default_rng(3)
        for name, dims in self.weights.items():
            value = random.standard_normal(dims).astype(np.float32) / np.sqrt(np.prod(dims[1:] or (4,)))
            model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
        return model


NETS = {
    "mlp": Net(
        "float[N, 64] x", "float[N, 64] y", {"w": (64, 128), "b": (128,), "v": (128, 64)},
        "h = MatMul(x, w) c = Add(h, b) r = Relu(c) s = MatMul(r, v) y = Softmax<axis = 1>(s)",
        ((1, 64), (9, 64), (73, 64), (64, 64), (200, 64)), frozenset({"simt", "rows"}),
    ),
    "head": Net(  # rows of 40 bytes, at which no vector may begin
        "float[N, 16] x", "float[N, 10] y", {"w": (16, 10)}, "h = MatMul(x, w) y = Softmax<axis = 1>(h)",
        ((1, 16), (5, 16), (1024, 16)), frozenset({"loops"}),
    ),
    "cnn": Net(
        "float[N, 3, 12, 12] x", "float[N, 4] y", {"w": (8, 3, 3, 3), "d": (8, 1, 3, 3), "v": (8, 4)},
        "h = Conv<pads = [1, 1, 1, 1]>(x, w) a = Relu(h) e = Conv<pads = [1, 1, 1, 1], group = 8>(a, d) "
        "m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(e) p = GlobalAveragePool(m) f = Flatten(p) y = MatMul(f, v)",
        ((1, 3, 12, 12), (3, 3, 12, 12), (17, 3, 12, 12)), frozenset({"simt", "depthwise", "reorder", "rows", "loops"}),
    ),
    "picture": Net(
        "float[1, 3, H, W] x", "float[1, 4, P, Q] y", {"w": (8, 3, 3, 3), "d": (4, 8, 1, 1)},
        "h = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) a = Relu(h) y = Conv(a, d)",
        ((1, 3, 1, 1), (1, 3, 7, 5), (1, 3, 16, 32), (1, 3, 1, 1024)), frozenset({"loops"}),
    ),
    "attention": Net(
        "float[B, L, 64] x", "float[B, L, 64] y", {"w": (64, 64), "w2": (64, 64), "w3": (64, 64), "b": (64,)},
        "q = MatMul(x, w) k = MatMul(x, w2) v = MatMul(x, w3) t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) "
        "p = Softmax<axis = -1>(s) a = MatMul(p, v) z = Add(a, x) y = LayerNormalization<axis = -1>(z, b)",
        ((1, 1, 64), (2, 7, 64), (1, 64, 64), (3, 33, 64), (1, 130, 64)), frozenset({"simt", "rows", "loops"}),
    ),
}  # fmt: skip


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The things that are compiled meanwhile: modules, and programs of PTX."""
    found: list[str] = []

    def counting(path: str, what: str) -> None:
        module, _, name = path.rpartition(".")
        made = getattr(__import__(module, fromlist=[name]), name)

        def count(*args, **options):
            found.append(what)
            return made(*args, **options)

        monkeypatch.setattr(path, count)

    counting("lightnet.compiler.Compilation", "module")
    counting("lightnet.backends.cuda.module.emit_program", "program")
    yield found


def algs_of(executable) -> frozenset[str]:
    return frozenset(str(choice(op, "alg")) for op in executable.planned.walk() if isinstance(op, KernelOp))


def data(dims: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))


@pytest.mark.parametrize("options", [{"emulate": True}, {"on_cpu": True}], ids=["emulated", "as loops"])
@pytest.mark.parametrize("name", NETS)
def test_a_network_is_compiled_once_for_all_shapes(name: str, options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    net = NETS[name]
    model = net.model()
    reference = ort.InferenceSession(model.SerializeToString())
    with counted(monkeypatch) as compiled:
        run = lightnet.compile(lightnet.load(model), "cuda", **options)
        assert algs_of(run) == net.algs
        for dims in (*net.calls, net.calls[0]):
            x = data(dims)
            close(run({"x": x})["y"], reference.run(None, {"x": x})[0])
    assert compiled.count("module") == 1 and compiled.count("program") == (0 if "on_cpu" in options else 1)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_tensor_cores_serve_open_rows(precision: str) -> None:
    net = NETS["mlp"]
    model = net.model()
    run = lightnet.compile(lightnet.load(model), "cuda", precision=precision, emulate=True)
    assert "mma" in algs_of(run)
    reference = ort.InferenceSession(model.SerializeToString())
    for n in (1, 9, 73):
        x = data((n, 64))
        want = reference.run(None, {"x": x})[0]
        assert float(np.abs(run({"x": x})["y"] - want).max()) < {"f16": 0.02, "bf16": 0.1}[precision]


@pytest.fixture(scope="module")
def mlp():
    model = NETS["mlp"].model()
    return lightnet.compile(lightnet.load(model, dims={"N": (1, 200)}), "cuda", emulate=True), ort.InferenceSession(
        model.SerializeToString()
    )


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 63, 64, 65, 71, 72, 73, 128, 191, 199, 200])
def test_strips_cover_every_number_of_rows(mlp, n: int) -> None:
    run, reference = mlp
    x = data((n, 64))
    close(run({"x": x})["y"], reference.run(None, {"x": x})[0])


def test_strips_share_weights_where_these_are_more_than_a_row(mlp) -> None:
    """Kernels of 64 rows, of 8 and of one: each on a grid of its own, which is empty where a call has no such strip."""
    run, _ = mlp
    run({"x": data((64, 64))})
    lines = [line for line in run.native.code.lines if line.kernel.startswith("matmul")]
    grids = {line.kernel: line.grid[0] for line in lines}
    assert len(grids) >= 2 * len(strips.SHARING)
    code = run.native.code.at(run.program.symbols, (64,))
    empty = [line for line in code.lines if isinstance(line, KernelLine) and 0 in line.grid]
    assert empty and all(launch is None or 0 not in launch.grid for launch in run.instance.of((64,)).launches)
    assert sum(launch is None for launch in run.instance.of((64,)).launches) == len(empty)


def test_a_strip_of_the_wrong_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips that begin at another row than is left leave rows that nobody writes."""
    made = strips.cover_rows
    monkeypatch.setattr(strips, "cover_rows", lambda *args, **options: [(n, 0) for n, _ in made(*args, **options)])
    model = NETS["mlp"].model()
    run = lightnet.compile(lightnet.load(model, dims={"N": (1, 200)}), "cuda", emulate=True)
    with pytest.raises(LightNetError, match="never written"):
        run({"x": data((73, 64))})


# -- memory and graphs


def test_memory_grows_and_graphs_of_the_last_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_instance, "KEPT", 3)
    model = NETS["mlp"].model()
    run = lightnet.compile(lightnet.load(model, dims={"N": (1, 200)}), "cuda", emulate=True)
    reference = ort.InferenceSession(model.SerializeToString())
    spaces, sizes, moves = run.instance.spaces, [], []
    loaded, graph, uploads = [], type(run.instance.driver).graph, []
    monkeypatch.setattr(type(run.instance.driver), "graph", lambda *args: loaded.append(1) or graph(*args))
    upload = type(run.instance.driver).upload
    monkeypatch.setattr(
        type(run.instance.driver),
        "upload",
        lambda gpu, at, array: uploads.append(array.nbytes) or upload(gpu, at, array),
    )
    for n in (2, 90, 2, 90, 2, 3, 4, 5, 2):
        x = data((n, 64))
        close(run({"x": x})["y"], reference.run(None, {"x": x})[0])
        sizes.append(spaces._sizes["arena"])
        moves.append(spaces.moves)
        assert len(run.instance._made) <= 3
    assert sizes[0] < sizes[1] and set(sizes[1:]) == {sizes[1]} and moves[1:] == [moves[1]] * 8
    assert sizes[1] <= run.instance.of((90,)).program.memory["arena"] * 17 / 16
    # One graph a shape, one more for the shape whose memory has moved, and one for the shape that others have pushed out.
    assert len(loaded) == 7
    static = run.program.memory["static"]
    assert uploads.count(static) == 1, "the weights are uploaded once"


def test_shapes_share_memory_and_do_not_see_each_other(mlp) -> None:
    """What another shape leaves in the arena is none of a call's inputs."""
    run, reference = mlp
    inputs = [data((n, 64)) for n in (5, 40, 5)]
    inputs[2] = inputs[0] * 2
    for x in (*inputs, inputs[0]):
        close(run({"x": x})["y"], reference.run(None, {"x": x})[0])


def test_more_than_a_device_has_is_an_error_and_the_next_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = NETS["mlp"].model()
    run = lightnet.compile(lightnet.load(model, dims={"N": (1, 200)}), "cuda", emulate=True)
    reference = ort.InferenceSession(model.SerializeToString())
    x = data((2, 64))
    close(run({"x": x})["y"], reference.run(None, {"x": x})[0])
    needed = run.program.memory["static"] + run.instance.of((50,)).program.memory["arena"] - 1
    monkeypatch.setattr(run.instance.driver, "memory_bytes", needed)
    with pytest.raises(LightNetError, match="bytes of device memory, and PTX interpreter has"):
        run({"x": data((200, 64))})
    close(run({"x": x})["y"], reference.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("after", "there", "wanted"),
    [
        ([(), (0,), (1,)], [1, 1, 1], [(), (0,), (1,)]),
        ([(), (0,), (1,)], [1, 0, 1], [(), (0,)]),
        ([(), (), (0, 1), (2,)], [1, 1, 0, 1], [(), (), (0, 1)]),
        ([(), (0,), (0,), (1, 2)], [0, 1, 0, 1], [(), (0,)]),
        ([(), (0,), (1,), (2,)], [0, 0, 0, 0], []),
    ],
)
def test_what_waits_for_an_empty_launch_waits_for_what_that_waits_for(after, there, wanted) -> None:
    assert _of_some(after, list(map(bool, there))) == wanted


# -- files


def test_a_saved_network_runs_every_shape(mlp, tmp_path) -> None:
    run, _ = mlp
    run.save(tmp_path / "net.lnx")
    loaded = lightnet.load_executable(tmp_path / "net.lnx", emulate=True)
    for n in (1, 73, 200, 8):
        x = data((n, 64))
        np.testing.assert_array_equal(loaded({"x": x})["y"], run({"x": x})["y"])
    with pytest.raises(LightNetError, match=r"dim 0 of 'x' is 201: N is 201, not in 1\.\.200"):
        loaded({"x": data((201, 64))})


def test_the_launch_list_reads_back_as_it_is(mlp) -> None:
    run, _ = mlp
    code = run.native.code
    text = json.dumps(code.header())
    assert CudaCode.from_header(json.loads(text), code.ptx, run.program) == code


@pytest.mark.parametrize("offset", ["N - 2", "1000000 - N", "99999999", "M"])
def test_a_launch_list_that_lies_is_refused(mlp, offset: str) -> None:
    """A place outside of memory in a small call, in a large one, or in all; a symbol that there is not."""
    run, _ = mlp
    header = json.loads(json.dumps(run.native.code.header()))
    line = next(line for line in header["lines"] if isinstance(line["places"][-1][1], str))
    line["places"][-1][1] = offset if not offset.isdigit() else int(offset)
    with pytest.raises((ValueError, LightNetError)):
        CudaCode.from_header(header, run.native.code.ptx, run.program)


def test_a_place_that_lies_in_some_calls_is_refused_there(mlp) -> None:
    """Loading looks at the least and at typical values; any other is looked at in its call."""
    run, _ = mlp
    instance = run.runtime.format.instance(
        run.program, run.native.code, run.instance.static, run.instance.defaults, run._machine
    )
    instance.is_read = True
    first = next(k for k, line in enumerate(instance.code.lines) if isinstance(line, KernelLine))
    line = instance.code.lines[first]
    (symbol,) = run.program.symbols
    far = 10**7 * ((symbol.dim - 1) // 150)  # from N = 151 on
    lying = replace(line, places=((line.places[0][0], far), *line.places[1:]))
    instance.code = replace(
        instance.code, lines=(*instance.code.lines[:first], lying, *instance.code.lines[first + 1 :])
    )
    assert instance.of((100,)) is not None
    with pytest.raises(
        LightNetError, match="the executable lies where N is 160: ValueError: a place outside of memory"
    ):
        instance.of((160,))


# -- the dialect


OPEN = """builtin.module attributes {ln.memory = {static = 0, arena = #ln.param<?"256*n(1..9)">}, cuda.arch = "sm_80", ln.symbols = #ln.param<[?"n(1..9)"]>} {
  func.func @k(%n: index, %x: memref<?xf32>) attributes {cuda.block = array<i32: 32, 1, 1>, tile.symbols = ["n"]} {
    func.return
  }
  func.func @main() {
    cuda.launch @k grid [GRID, 1, 1] block [32, 1, 1] [arena+PLACE]
    func.return
  }
}"""


def launched(grid: str = '?"2*n(1..9)"', place: str = '?"64*n(1..9)"', text: str = OPEN) -> None:
    from lightnet.ir.context import make_context

    module = parse_mlir(make_context(), text.replace("GRID", grid).replace("PLACE", place), "k.mlir")
    module.verify()
    from lightnet.dialects.cuda_launch import CudaLaunchOp

    CudaLaunchOp.verify_module(module)
    again = parse_mlir(make_context(), str(module), "k.mlir")
    assert str(again) == str(module)


def test_launches_of_open_grids_print_and_parse() -> None:
    launched()
    launched("3", "0")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": '?"n(1..9) - 2"'}, "a grid has 1 to"),
        ({"grid": '?"999999999*n(1..9)"'}, "a grid has 1 to"),
        ({"place": '?"257*n(1..9)"'}, "the module's memory has"),
        ({"place": '?"4*n(1..9)"'}, "at multiples of 64 bytes"),
        ({"text": OPEN.replace('["n"]', '["m"]')}, "@k takes the value of 'm', which no call brings"),
        ({"text": OPEN.replace("%n: index", "%n: i32")}, "behind an index a symbol"),
    ],
)
def test_launches_that_cannot_be_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        launched(**changes)


def test_faster_code_for_values_of_dims_is_for_the_processor() -> None:
    model = lightnet.load(NETS["mlp"].model())
    with pytest.raises(LightNetError, match=r"target cuda has no faster code for values of dims \(N\)"):
        lightnet.compile(model, "cuda", specialize={"N": 64})


def test_calls_of_several_threads_share_memory(mlp) -> None:
    run, _ = mlp
    inputs = {n: data((n, 64)) for n in (1, 3, 9, 17)}
    wanted = {n: run({"x": x})["y"] for n, x in inputs.items()}
    with ThreadPoolExecutor(4) as pool:
        for n, got in pool.map(lambda n: (n, run({"x": inputs[n]})["y"]), [*inputs] * 3):
            np.testing.assert_array_equal(got, wanted[n])


def test_kernels_run_one_by_one_in_a_call(mlp) -> None:
    """A profile has memory of its own, and the launches of a call, of which some are on empty grids."""
    from lightnet_debug.cuda_steps import DeviceStepper

    run, reference = mlp
    x = data((72, 64))
    one = run.specialized({"x": x})
    stepper = DeviceStepper(one, {"x": x})
    for step in stepper.steps:
        for call in stepper.calls(step):
            call()
    (place,) = (t for t in one.program.outputs)
    got = stepper.instance.bytes_at((place.space, place.offset), place.nbytes).view(np.float32).reshape(place.dims)
    close(got, reference.run(None, {"x": x})[0])


@pytest.mark.parametrize("offset", [4, 256])
def test_strips_stand_where_a_plan_puts_them(offset: int) -> None:
    """Of memory that begins at no whole access, kernels copy single elements, as static ones do."""
    n = symbol("n", 1, 200)
    f32 = BY_NAME["f32"]
    block = Block(arg_types=[tensor_type(TensorSpec(dims, f32)) for dims in ((n, 64), (64, 256))])
    op = Matmul.make(list(block.args), {})
    block.add_op(op)
    kernel = CudaKernelOp.wrap([op])
    kernel.attributes |= {"alg": StringAttr("simt"), PLACES: ArrayAttr([PlaceAttr("arena", offset)])}
    launches = SELECTION.generate(kernel, "k", {})
    module = ModuleOp(list(dict.fromkeys(launch.function for launch in launches)))
    for function in module.ops:
        function.attributes["tile.align"] = IntegerAttr(min(offset, 256), i64)
    set_call_symbols(module, n.symbols)
    assert len(emit_program(module).entries) == len(strips.SHARING) + 1
    copied = {op.bytes.value.data for op in module.walk() if op.name == "cuda.async_copy"}
    assert copied and (max(copied) > 4) is (offset % 16 == 0)


def test_calls_in_which_there_are_no_rows() -> None:
    """Every launch is on an empty grid, and nothing is copied."""
    type_ = 'tensor<?x64xf32, #ln.dims<"n(0..90)">>'
    text = f"""func.func @main() -> {type_} {{
      %x = ln.input : {type_} as ("x")
      %w = ln.input : tensor<64x64xf32> as ("w")
      %b = ln.matmul %x, %w : {type_} as ("b")
      %y = ln.softmax %b {{axis = 1}} : {type_} as ("y")
      func.return %y : {type_}
    }}"""
    run = lightnet.compile(lightnet.loads(text, ".mlir"), "cuda", emulate=True)
    assert "rows" in algs_of(run)
    w = data((64, 64)) / 8
    for n in (0, 3, 0, 73, 90, 0):
        x = data((n, 64))
        h = np.exp(x.astype(np.float64) @ w)
        close(run({"x": x, "w": w})["y"], h / h.sum(1, keepdims=True))


def test_a_cache_grows_in_calls() -> None:
    """The keys of a decoder: each call has one row more, of none at first, and memory grows a few times alone."""
    past, now = 'tensor<?x64xf32, #ln.dims<"n(0..200)">>', 'tensor<?x64xf32, #ln.dims<"n(0..200) + 1">>'
    text = f"""func.func @main() -> ({now}, tensor<1x64xf32>) {{
      %past = ln.input : {past} as ("past")
      %x = ln.input : tensor<1x64xf32> as ("x")
      %keys = ln.concat %past, %x {{axis = 0}} : {now} as ("keys")
      %y = ln.reduce_sum %keys {{axes = [0]}} : tensor<1x64xf32> as ("y")
      func.return %keys, %y : {now}, tensor<1x64xf32>
    }}"""
    run = lightnet.compile(lightnet.loads(text, ".mlir"), "cuda", emulate=True)
    keys = np.empty((0, 64), np.float32)
    for k in range(90):
        x = data((1, 64)) * k
        found = run({"past": keys, "x": x})
        keys = np.concatenate([keys, x])
        np.testing.assert_array_equal(found["keys"], keys)
        close(found["y"], keys.astype(np.float64).sum(0, keepdims=True))
        keys = found["keys"]
    assert run.instance.spaces.moves < 60
