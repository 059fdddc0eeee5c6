"""Saved executables whose dims each call decides: round trips, processes without the compiler, and files that lie."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.runtime import artifact, dim_bounds, lnx_check
from lightnet.runtime.dim_text import MAX_FACTORS, MAX_TERMS, parse_size, parse_sizes, text
from lightnet.runtime.dims import Dim, at, dim_max, dim_min, symbol
from lightnet.runtime.formats import CodeFormat
from lightnet.runtime.program import Program

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import fuzz_executables  # noqa: E402
import wheels  # noqa: E402
from test_grow_caches import network  # noqa: E402

F, I = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, **constants) -> onnx.ModelProto:
    """A model of nodes (op type, inputs, output, attributes), its inputs as name: (type, dims); the output is called ``out``."""
    made = [helper.make_node(op, i, [o], **a) for op, i, o, a in nodes]
    given = [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()]
    initializers = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(made, "g", given, [helper.make_empty_tensor_value_info("out")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random(*dims: int) -> np.ndarray:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def cnn() -> onnx.ModelProto:
    """A small residual network of any batch: convolutions, a pool, a classifier."""
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return model(
        [("Conv", ["x", "w1", "b1"], "c1", conv), ("Relu", ["c1"], "r1", {}), ("Conv", ["r1", "w2", "b2"], "c2", conv), ("Add", ["c2", "r1"], "s", {}),
         ("MaxPool", ["s"], "p", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("GlobalAveragePool", ["p"], "g", {}), ("Flatten", ["g"], "f", {}),
         ("MatMul", ["f", "w3"], "m", {}), ("Softmax", ["m"], "out", {"axis": 1})],
        {"x": (F, ["batch", 3, 16, 16])}, w1=random(8, 3, 3, 3), b1=random(8), w2=random(8, 8, 3, 3), b2=random(8), w3=random(8, 10),
    )  # fmt: skip


def tagger() -> onnx.ModelProto:
    """Rows of ids of any batch and length with a mask: embeddings, a layer of products, a softmax along the length."""
    return model(
        [("Gather", ["table", "ids"], "e", {"axis": 0}), ("MatMul", ["e", "w1"], "h", {}), ("Relu", ["h"], "r", {}), ("MatMul", ["r", "w2"], "t", {}),
         ("Unsqueeze", ["mask", "last"], "m", {}), ("Add", ["t", "m"], "a", {}), ("Softmax", ["a"], "out", {"axis": 1})],
        {"ids": (I, ["batch", "length"]), "mask": (F, ["batch", "length"])},
        table=random(2000, 16), w1=random(16, 256), w2=random(256, 5), last=np.array([2]),
    )  # fmt: skip


def pictures(batch: int) -> dict[str, np.ndarray]:
    return {"x": random(batch, 3, 16, 16)}


def sentences(batch: int, length: int) -> dict[str, np.ndarray]:
    return {"ids": np.arange(batch * length).reshape(batch, length) % 50, "mask": -np.abs(random(batch, length))}


NETS = {
    "cnn": (cnn, {"batch": (1, 16)}, [pictures(n) for n in (1, 16, 3, 1, 7)]),
    "tagger": (tagger, {"batch": (1, 8), "length": "4..256:4"}, [sentences(*s) for s in ((1, 4), (8, 256), (3, 60), (1, 4), (8, 12))]),
}  # fmt: skip


@pytest.fixture(scope="module", params=NETS)
def saved(request, tmp_path_factory) -> tuple[str, Any, Path, list[dict[str, np.ndarray]]]:
    """A network by name: its executable, the file of that, and what to call it with."""
    make, dims, calls = NETS[request.param]
    executable = lightnet.compile(lightnet.load(make(), dims=dims), threads=2)
    path = tmp_path_factory.mktemp("open") / "net.lnx"
    executable.save(path)
    return request.param, executable, path, calls


def equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> bool:
    return got.keys() == want.keys() and all(
        got[k].shape == v.shape and got[k].tobytes() == v.tobytes() for k, v in want.items()
    )


def test_it_computes_what_the_executable_does(saved) -> None:
    """Bit for bit, by every way of calling."""
    _, executable, path, calls = saved
    loaded = lightnet.load_executable(path)
    assert loaded.program == Program(**{**vars(executable.program), "objects": loaded.program.objects})
    assert (
        loaded.inputs == executable.inputs and loaded.outputs == executable.outputs and repr(loaded).count("batch(1..")
    )
    for feeds in calls:
        want = executable(feeds)
        assert equal(loaded(feeds), want) and equal(loaded(feeds), want)  # the second call takes the quick way
        assert (
            equal(loaded(*feeds.values()), want)
            and equal(loaded(**feeds), want)
            and equal(loaded(feeds, threads=1), want)
        )
        assert equal(loaded({k: v.tolist() if v.dtype == np.int64 else v for k, v in feeds.items()}), want)
        assert equal(asyncio.run(loaded.call_async(feeds)), want)
        for run in (executable, loaded):
            out = np.full_like(want["out"], np.nan)
            assert run(feeds, out=out)["out"] is out and equal({"out": out}, want)
            with pytest.raises(LightNetError, match=r"'out' has shape .* but the buffer has"):
                run(feeds, out=np.empty((99, 99), np.float32))
    with ThreadPoolExecutor(4) as pool:
        assert all(
            pool.map(lambda k: equal(loaded(calls[k % len(calls)]), executable(calls[k % len(calls)])), range(40))
        )


def test_it_goes_to_other_processes_and_is_closed(saved) -> None:
    _, executable, path, calls = saved
    loaded = lightnet.load_executable(path)
    for run in (loaded, executable):
        with pickle.loads(pickle.dumps(run)) as other:
            assert equal(other(calls[1]), executable(calls[1]))
        with pytest.raises(LightNetError, match="is closed"):
            other(calls[0])


RUN = """
import sys
import numpy as np
import lightnet
run = lightnet.load_executable(sys.argv[1])
for k in range(int(sys.argv[2])):
    np.savez(f"out{k}.npz", **run(dict(np.load(f"in{k}.npz"))))
assert not {"xdsl", "llvmlite", "onnx"} & set(sys.modules)
"""


def test_numpy_is_all_that_it_needs(saved, tmp_path: Path) -> None:
    """In a process that has lightnet-runtime, NumPy and the standard library, the command too."""
    _, executable, path, calls = saved
    tree, beside = tmp_path / "runtime", tmp_path / "numpy"
    tree.mkdir(), beside.mkdir()
    wheels.lay_out_runtime(tree)
    for name in ("numpy", "numpy.libs"):
        if (Path(np.__file__).parents[1] / name).exists():
            (beside / name).symlink_to(Path(np.__file__).parents[1] / name)
    for k, feeds in enumerate(calls):
        np.savez(tmp_path / f"in{k}.npz", **feeds)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{tree}{os.pathsep}{beside}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = "import sys; from lightnet.cli.lightnet import main; sys.exit(main(sys.argv[1:]))"
    fed = [word for name in calls[0] for word in ("-i", f"{name}=@in1.npz:{name}")]
    for words in (
        (RUN, str(path), str(len(calls))),
        (command, "inspect", str(path)),
        (command, "run", str(path), *fed, "-o", "command.npz"),
    ):
        done = subprocess.run(
            [sys.executable, "-S", "-c", *words],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    for k, feeds in enumerate(calls):
        assert equal(dict(np.load(tmp_path / f"out{k}.npz")), executable(feeds))
    assert equal(dict(np.load(tmp_path / "command.npz")), executable(calls[1]))


def test_the_commands(saved, capsys, monkeypatch, tmp_path: Path) -> None:
    name, executable, path, calls = saved
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "batch(1..16)" in shown if name == "cnn" else "dims          batch(1..8), length(4..256 by 4)" in shown
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["symbols"] == executable.program.symbol_texts
        and parse_size(found["memory"]["arena"]) == executable.program.memory["arena"]
    )
    shapes = [word for n, a in calls[2].items() for word in ("--shape", f"{n}={'x'.join(map(str, a.shape))}")]
    assert main(["run", str(path), "-i", "zeros", *shapes]) == 0
    assert "x".join(map(str, executable(calls[2])["out"].shape)) in capsys.readouterr().out
    for words, says in (
        (["-i", "zeros", *shapes, "--profile"], "--profile needs numbers for dims"),
        (["-i", "zeros", "--dim", "batch=1..4"], "--dim needs the network"),
    ):
        assert main(["run", str(path), *words]) == 1
        assert says in capsys.readouterr().err


def test_the_file_is_as_small_as_that_of_one_shape(saved, tmp_path: Path) -> None:
    name, _, path, calls = saved
    make, _, _ = NETS[name]
    static = lightnet.compile(lightnet.load(make(), shapes={n: a.shape for n, a in calls[2].items()}), threads=2)
    static.save(tmp_path / "static.lnx")
    assert path.stat().st_size <= 1.3 * (tmp_path / "static.lnx").stat().st_size


def test_shapes_that_do_not_fit(saved) -> None:
    name, _, path, _ = saved
    loaded = lightnet.load_executable(path)
    if name == "cnn":
        wrong = [
            (pictures(17), "batch is 17, not in 1..16"),
            ({}, "needs input 'x'"),
            ({"x": random(1, 3, 16, 17)}, r"gets \[1, 3, 16, 17\]"),
        ]
    else:
        wrong = [(sentences(1, 6), r"dim 1 of 'ids' is 6: length\(4..256 by 4\) is never that"), (sentences(9, 8), "batch is 9"),
                 ({**sentences(1, 8), "mask": random(1, 12)}, "should be 8, as length is 8 by dim 1 of 'ids'"),
                 ({"ids": np.zeros((1, 8), np.int64)}, "needs input 'mask'")]  # fmt: skip
    for feeds, says in wrong:
        with pytest.raises(LightNetError, match=says):
            loaded(feeds)


def test_dims_of_what_nothing_reads(tmp_path: Path) -> None:
    """They are checked where they are fed, and may be left out."""
    text = """func.func @main() -> tensor<?x4xf32, #ln.dims<"n(1..9)">> {
      %0 = ln.input : tensor<?x4xf32, #ln.dims<"n(1..9)">> as ("x")
      %1 = ln.input : tensor<?x?xf32, #ln.dims<"k(1..3), n(1..9)">> as ("nothing")
      %2 = ln.relu %0 : tensor<?x4xf32, #ln.dims<"n(1..9)">> as ("y")
      func.return %2 : tensor<?x4xf32, #ln.dims<"n(1..9)">>
    }"""
    executable = lightnet.compile(lightnet.loads(text, ".mlir"))
    executable.save(tmp_path / "net.lnx")
    for run in (executable, lightnet.load_executable(tmp_path / "net.lnx")):
        assert (
            run({"x": -random(5, 4)})["y"].shape
            == run({"x": -random(5, 4), "nothing": random(2, 5)})["y"].shape
            == (5, 4)
        )
        for dims, says in (((2, 6), "should be 5"), ((4, 5), "k is 4"), ((5,), "but gets")):
            with pytest.raises(LightNetError, match=says):
                run({"x": random(5, 4), "nothing": random(*dims)})


# -- files that lie


def file_of(pipeline: str) -> tuple[bytes, Callable[[int, int], dict[str, np.ndarray]]]:
    net = lightnet.loads(fuzz_executables._OPEN, ".mlir", weights={"w": np.ones((16, 8), np.float32)})
    data = pickle.dumps(lightnet.compile(net, pipeline=pipeline))
    return pickle.loads(data)._made.args[0], lambda batch, n: {"x": random(batch, n, 16), "m": random(batch, n, 8)}


@pytest.fixture(scope="module")
def honest() -> tuple[bytes, Callable[[int, int], dict[str, np.ndarray]]]:
    """The bytes of a file, all of whose tensors stand in the arena, and what it is called with."""
    return file_of("@cpu:kernels,plan{ports=0},lower-cpu")


@pytest.fixture(scope="module")
def ported() -> tuple[bytes, Callable[[int, int], dict[str, np.ndarray]]]:
    """One whose inputs and outputs are the caller's memory."""
    return file_of("@cpu:kernels,plan{ports=65536},lower-cpu")


def lied(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file with another program in its header, all sums right."""
    parts = fuzz_executables.Parts(data)
    change(parts.header["variants"][0]["program"])
    found = parts.file()
    assert found != data
    return found


def tensor(kind: str, index: int, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda program: program[kind][index].update(fields)


#: A run-time call, as it stands in a header.
CALL = {"kind": "print", "msg": "x", "dtype": "f32", "file": ""}
LIES = [
    (lambda p: p["memory"].update(arena="64*batch(1..4)"), "the code was compiled for another memory"),
    (lambda p: p["memory"].update(arena=64), "the code was compiled for another memory"),
    (lambda p: p.update(symbols=["batch(1..5)", "n(1..600)"]), "two ranges"),
    (lambda p: p.update(symbols=["n(1..600)", "batch(1..4)"]), "the code was compiled for another symbols"),
    (lambda p: p.update(symbols=["batch(1..4)"]), "no size that the program's symbols decide"),
    (lambda p: p.update(symbols=["batch(1..4)", "batch(1..4)", "n(1..600)"]), "stands twice"),
    (lambda p: p.update(symbols=["2*batch(1..4)", "n(1..600)"]), "is no symbol"),
    (lambda p: p.update(symbols=["7", "n(1..600)"]), "no size that"),
    (lambda p: p.update(symbols=[7]), "one of the symbols is no name"),
    (lambda p: p.update(symbols={}), "the list of symbols is no list"),
    (tensor("inputs", 1, offset="64*batch*n + 1000000000"), "'m' lies outside of its memory"),
    (tensor("inputs", 1, offset="64*batch*n - 1000000000"), "the offset of 'm' is"),
    (tensor("inputs", 1, offset="64*batch*k(1..9)"), "no size that the program's symbols decide"),
    *((tensor(kind, 0, dims=["batch", "k(1..9)", 8]), "no size that the program's symbols decide") for kind in ("inputs", "outputs")),
    (lambda p: p["memory"].update(arena="64*k(1..9)"), "no size that the program's symbols decide"),
    (lambda p: p.update(hosts=[CALL | {"dims": ["batch", "k(1..9)"]}]), "no size that the program's symbols decide"),
    (lambda p: p.update(hosts=[CALL | {"dims": ["batch", "n"]}]), "the code was compiled for another hosts"),
    (tensor("inputs", 1, offset="64*batch*"), "expected a dim"),
    (tensor("inputs", 1, offset="7"), "no size that"),
    (tensor("inputs", 0, dims=["batch", "n", "n*n*n"]), "'x' lies outside of its memory"),
    (tensor("inputs", 0, dims=["batch*" * MAX_FACTORS + "n"]), f"more than {MAX_TERMS} terms, or {MAX_FACTORS} factors"),
    (tensor("inputs", 0, dims=["(batch + n)*" * 7 + "(batch + n)*n"]), f"more than {MAX_TERMS} terms, or {MAX_FACTORS} factors"),
    (tensor("inputs", 0, dims=None), "the shape of 'x' is no list"),
    (tensor("inputs", 0, dims=["batch", "n", -16]), "a dimension of 'x' is -16"),
    (tensor("outputs", 0, dims=["batch", "-n", 8]), "a dimension of 'r' is -"),
    (tensor("inputs", 0, space="static"), "stands where nothing is written"),
    (lambda p: p.update(required=["m"]), "'x' has no contents"),
    (lambda p: p.update(residents=[p["inputs"][0]]), "'x' has no contents"),
    (lambda p: p["memory"].update(static="64*n"), "the code was compiled for another memory"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), LIES)
def test_what_a_file_cannot_say(honest, change, says: str) -> None:
    data, _ = honest
    with pytest.raises(LightNetError) as e:
        lightnet.load_executable(lied(data, change))
    assert says in str(e.value)


@pytest.mark.parametrize(("dims", "says"), [
    (["+".join(["batch"] * 3000)], "dims of more than"),
    (["n"] * 65, "has 65 dimensions"),
    ([f"({'n + batch*' * 30}n)*{'(n + batch)*' * 6}n"], f"more than {MAX_TERMS} terms"),
])  # fmt: skip
def test_what_is_too_long(honest, dims, says: str) -> None:
    """In a header that has room for it."""
    program = lightnet.load_executable(honest[0]).program
    header = program.header()
    header["inputs"][0]["dims"] = dims
    lnx_check.check_program(header)
    with pytest.raises((LightNetError, lnx_check.Lie), match=says):
        lnx_check.check_places(Program.from_header(header, ()).examples[0])


@pytest.mark.parametrize(("change", "says"), [
    (tensor("outputs", 0, offset="max(64, 400*n - 60000)*batch"), "'r' lies outside of its memory"),
    (tensor("inputs", 1, offset="64*batch*n - 200*max(batch*n, 1000) + 200000"), "the offset of 'm' is -"),
    (tensor("inputs", 0, dims=["batch", "n", "16 + max(0, n - 200)"]), "'x' "),
])  # fmt: skip
def test_what_is_wrong_in_some_calls_only(honest, change, says: str) -> None:
    """The smallest and typical values are checked when a file is loaded; each call's, before anything runs."""
    data, feeds = honest
    loaded, right = lightnet.load_executable(lied(data, change)), lightnet.load_executable(data)
    given = feeds(4, 600)
    if "16 +" in str(change.__closure__[0].cell_contents):
        given["x"] = random(4, 600, 416)
    for _ in range(2):
        with pytest.raises(LightNetError, match=r"the executable lies where batch is 4, n is 600: ") as e:
            loaded(given)
        assert says in str(e.value)
    assert right(feeds(4, 600))["r"].shape == (4, 600, 8)


@pytest.mark.parametrize(("change", "says"), [
    (tensor("inputs", 0, dims=["batch", "n", "n*n*n"]), "a port that no tensor stands at"),
    (lambda p: p.update(residents=[p["inputs"][0]]), "'x' is not all of its port"),
    (lambda p: p["memory"].update(out0="64*n"), "the code was compiled for another memory"),
])  # fmt: skip
def test_what_a_file_cannot_say_of_ports(ported, change, says: str) -> None:
    with pytest.raises(LightNetError, match=says):
        lightnet.load_executable(lied(ported[0], change))


@pytest.mark.parametrize("change", [
    tensor("inputs", 0, dims=["batch", "n", "16 + max(0, n - 200)"]),
    tensor("outputs", 0, dims=["batch", "n - max(0, n - 200)", 8]),
])  # fmt: skip
def test_a_port_that_some_calls_do_not_fill(ported, change) -> None:
    data, feeds = ported
    loaded, given = lightnet.load_executable(lied(data, change)), feeds(4, 600)
    if "16 +" in str(change.__closure__[0].cell_contents):
        given["x"] = random(4, 600, 416)
    with pytest.raises(LightNetError, match="the executable lies where batch is 4, n is 600: "):
        loaded(given)
    assert lightnet.load_executable(data)(feeds(4, 600))["r"].shape == (4, 600, 8)


@pytest.fixture(scope="module")
def growing() -> bytes:
    """The bytes of a file whose input grows into its output."""
    run = lightnet.compile(lightnet.loads(network((2, 1, 5), 1), ".mlir"), caches="all")
    return pickle.loads(pickle.dumps(run))._made.args[0]


@pytest.mark.parametrize(("change", "says"), [
    (tensor("inputs", 0, grows=[1, 30]), "'k' lies outside of its memory"),
    (tensor("inputs", 0, grows=[1, 19]), "'k' cannot become 'all'"),
    (tensor("inputs", 0, grows=[0, 40]), "'k' cannot become 'all'"),
    (tensor("inputs", 0, grows=[3, 40]), "'k' grows along no axis"),
    (tensor("inputs", 0, grows=[-1, 40]), "an axis is -1"),
    (tensor("inputs", 0, grows=[1]), "'k' grows along no axis"),
    (tensor("inputs", 0, grows=[1, "past"]), "what 'k' has memory for"),
    (tensor("inputs", 0, grows="2"), "how 'k' grows is no list"),
    (tensor("inputs", 0, grows=[]), "grows, and becomes nothing"),
    (tensor("inputs", 0, space="arena", dims=[2, 1, 1], grows=[]), "grows, and becomes nothing"),
    (tensor("inputs", 1, space="cache0"), "'n' grows, and becomes nothing"),
    (tensor("inputs", 0, offset=40), "'k' lies outside of its memory"),
    (tensor("outputs", 0, dims=[1, "past + 1", 5]), "'k' cannot become 'all'"),
    (tensor("outputs", 0, dims=[2, "past", 4]), "'k' cannot become 'all'"),
    (tensor("outputs", 0, dtype="i32"), "'k' cannot become 'all'"),
    (lambda p: p["memory"].update(cache0=1600), "the code was compiled for another memory"),
])  # fmt: skip
def test_what_a_file_cannot_say_of_what_grows(growing: bytes, change, says: str) -> None:
    with pytest.raises(LightNetError) as e:
        lightnet.load_executable(lied(growing, change))
    assert says in str(e.value)


@pytest.mark.parametrize("dims", ["past + 1 + 10*max(0, past - 8)", "past + 1 - 4*max(0, past - 8)"])
def test_what_grows_otherwise_in_some_calls(growing: bytes, dims: str) -> None:
    """Too far, or back, in a call of a length that was not looked at: in quick calls and others."""
    lying = lightnet.load_executable(lied(growing, tensor("outputs", 0, dims=[2, dims, 5])))
    feeds = {"k": random(2, 12, 5), "n": random(2, 1, 5)}
    for given in (feeds, {**feeds, "n": feeds["n"].astype(np.float64)}):
        with pytest.raises(LightNetError, match="the executable lies where past is 12: "):
            lying(given)
    assert lightnet.load_executable(growing)(feeds)["all"].shape == (2, 13, 5)


def test_changed_files_of_what_grows_are_refused_or_run(growing: bytes) -> None:
    said = [outcome for _, outcome in fuzz_executables.results(range(100), {"open": growing})]
    assert not [s for s in said if s.startswith("FOUND")]


def test_a_dim_elsewhere_only_gives_other_numbers(honest) -> None:
    """What is fed decides the values, and these are within the bounds that the code was compiled for."""
    data, feeds = honest
    swapped = lightnet.load_executable(lied(data, tensor("inputs", 0, dims=["n", "batch", 16])))
    with pytest.raises(LightNetError, match="'m' has shape"):
        swapped(feeds(2, 3))
    given = {"x": random(9, 2, 16), "m": random(2, 9, 8)}
    assert swapped(given)["r"].shape == (2, 9, 8)


def test_changed_files_are_refused_or_run(honest) -> None:
    """Between pages that cannot be touched, in a process of its own (`tools/fuzz_executables.py`)."""
    data, _ = honest
    said = [outcome for _, outcome in fuzz_executables.results(range(150), {"open": data})]
    assert not [s for s in said if s.startswith("FOUND")] and said.count("ran") > 20 and said.count("refused") > 50


def test_code_of_a_format_that_knows_no_symbols(honest, monkeypatch) -> None:
    from lightnet.runtime.native_format import NativeFormat

    assert not CodeFormat.takes_symbols
    monkeypatch.setattr(NativeFormat, "takes_symbols", False)
    with pytest.raises(LightNetError, match="whose dims calls decide"):
        lightnet.load_executable(honest[0])


# -- texts of sizes


def test_sizes_are_read_as_they_are_written() -> None:
    """Nothing is proved, and what is canonical is what it was."""
    a, b, h = symbol("a", 1, 100), symbol("b", 0, 7), symbol("h", 32, 512, 32)
    sizes = [
        a * b + 3, (a + 1) // 2, 64 * ((3 * a * b + 1) // 2) - h // 4, dim_max(a, 3 * b), dim_min(a * a, h) * 4 + (dim_max(a, b) // 3),
        (a // 3) * ((b + 5) // 4), -a + 200, (h // 64) * 2, dim_max(dim_max(a, h), 7 * b),
    ]  # fmt: skip
    for size in sizes:
        assert isinstance(size, Dim)
        known = {s.name: s.dim for s in size.symbols}
        assert (
            parse_size(text(size), as_written=True)
            == size
            == parse_size(text(size, set(known)), known, as_written=True)
        )
    assert parse_sizes("max(3, 4), 7 floordiv 2, 7 mod 4, 7 ceildiv 2", as_written=True) == (4, 3, 3, 4)
    (odd,) = parse_sizes("max(a(1..9), 0) mod 2", as_written=True)
    assert "max(" in text(odd)  # which the other reader finds to be a


def test_sizes_that_take_long_to_prove_are_read_at_once(monkeypatch) -> None:
    """Whatever stands there, reading it asks for no bounds, of which some take minutes."""

    def never(*args):
        raise AssertionError("a proof")

    monkeypatch.setattr(dim_bounds, "_least", never)
    monkeypatch.setattr(dim_bounds, "is_proved", never)
    deep = "a(1..16)"
    for k in range(5):
        deep = f"max(({deep} + b(1..512)) floordiv {k + 2}, min(a(1..16)*b(1..512) - c(1..100), {deep}))"
        size = parse_size(deep, as_written=True)
        assert isinstance(size, Dim) and at(size, {"a": 3, "b": 500, "c": 7}) >= 0
    with pytest.raises(AssertionError, match="a proof"):
        parse_size(deep)


def test_what_does_not_read_back_is_not_saved(honest, tmp_path: Path) -> None:
    """Sizes that the program's symbols do not decide."""
    executable = lightnet.load_executable(honest[0])
    odd = symbol("n'", 1, 9)
    program = replace(executable.program, symbols=tuple(odd.symbols), memory={"arena": 64 * odd})
    with pytest.raises(ValueError, match="is no size that the program's symbols decide"):
        artifact.save(tmp_path / "net.lnx", [artifact.Variant(program, np.zeros(512, np.uint8), {})], {})
    assert not list(tmp_path.iterdir())


def test_needs_name_the_symbols(honest) -> None:
    program = lightnet.load_executable(honest[0]).program
    assert lnx_check.needs(program)["symbols"] == ["batch(1..4)", "n(1..600)"]
