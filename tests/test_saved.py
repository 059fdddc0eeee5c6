"""`lightnet compile` and `lightnet run` with executables in files: one file for several processors, loaded without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.runtime import artifact, lnx, processor

ROOT = Path(__file__).parents[1]
CNN = str(ROOT / "examples" / "cnn.net")
X = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
X86 = pytest.mark.skipif(processor.architecture() != "x86_64", reason="code for x86-64")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    return tmp_path


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """What the reference interpreter computes."""
    return lightnet.compile(CNN, "none")({"picture": X})["classes"]


def run(*words: str) -> int:
    return main(list(words))


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 1
    return capsys.readouterr().err


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_compile_then_run(expected: np.ndarray) -> None:
    assert run("compile", CNN, "-o", "net.lnx") == 0
    assert run("run", "net.lnx", "-i", "picture=@x.npy", "-o", "y.npz", "--repeat", "2") == 0
    close(np.load("y.npz")["classes"], expected)
    np.save("expected.npy", expected)
    assert run("run", "net.lnx", "-i", "picture=@x.npy", "--compare", "expected.npy") == 0
    np.save("expected.npy", expected + 1)
    assert run("run", "net.lnx", "-i", "picture=@x.npy", "--compare", "expected.npy") == 1


def test_running_it_imports_no_compiler() -> None:
    assert run("compile", CNN, "-o", "net.lnx") == 0
    code = """
import sys
from lightnet.cli.lightnet import main
status = main(["run", "net.lnx", "-i", "picture=@x.npy", "-o", "y.npy"])
print(sorted({m.partition(".")[0] for m in sys.modules} & {"xdsl", "onnx", "onnxruntime", "llvmlite"}), status)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=".",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    # Where this linker does not know the objects, LLVM loads them.
    allowed = "[] 0" if processor.architecture() == "x86_64" and sys.platform == "linux" else "['llvmlite'] 0"
    assert done.stdout.splitlines()[-1] == allowed


def test_loading_it_imports_nothing_that_it_does_not_need() -> None:
    assert run("compile", CNN, "-o", "net.lnx") == 0
    code = """
import sys, numpy as np, lightnet
y = lightnet.load_executable("net.lnx")({"picture": np.load("x.npy")})
print(sorted({m.partition(".")[0] for m in sys.modules} & {"xdsl", "onnx", "llvmlite", "ml_dtypes", "hashlib", "argparse"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]" or processor.architecture() != "x86_64"


def test_the_default_name_is_the_networks(folder: Path) -> None:
    (folder / "small.net").write_text(Path(CNN).read_text())
    assert run("compile", "small.net") == 0
    assert artifact.is_saved("small.lnx") and not artifact.is_saved("small.net")


@pytest.mark.parametrize("required", [True, False])
def test_inputs_that_each_call_feeds_take_no_place_in_the_file(required: bool, folder: Path) -> None:
    """Others have contents, which a call without them reads."""
    size, given = 1 << 18, "{required = true} " if required else ""
    text = f"""func.func @main() -> tensor<{size}xf32> {{
  %x = ln.input {given}: tensor<{size}xf32> as "x"
  %y = ln.relu %x : tensor<{size}xf32> as "y"
  return %y : tensor<{size}xf32>
}}"""
    lightnet.compile(lightnet.loads(text, ".mlir")).save(folder / "x.lnx")
    assert (os.path.getsize(folder / "x.lnx") < size) == required
    loaded = lightnet.load_executable(folder / "x.lnx")
    x = np.linspace(-1, 1, size, dtype=np.float32)
    assert np.array_equal(*loaded({"x": x}).values(), np.maximum(x, 0))
    if required:
        with pytest.raises(LightNetError, match="x"):
            loaded({})
        assert np.array_equal(*loaded({"x": x}).values(), np.maximum(x, 0)), "and it goes on"
    else:
        assert [y.shape for y in loaded({}).values()] == [(size,)]


def test_what_cannot_be_read_is_not_taken_for_another_file(folder: Path) -> None:
    """A missing file, one without permission, and no descriptor left are errors; a pipe is not read, which would give its bytes once."""
    with pytest.raises(LightNetError, match=r"^none: error: cannot open: No such file"):
        artifact.is_saved("none")
    with pytest.raises(LightNetError, match="cannot open"):
        artifact.is_saved("a\0b")
    os.mkfifo("pipe")
    assert not artifact.is_saved("pipe") and not artifact.is_saved(".")
    for command in ("run", "compile", "inspect"):
        assert run(command, "none") == 1
    Path("small.lnx").write_bytes(b"LNEXE")
    assert artifact.is_saved("small.lnx")


@X86
def test_the_best_variant_that_runs_is_taken(expected: np.ndarray, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert run("compile", CNN, "-o", "net.lnx", "--variants=baseline,avx512,avx2") == 0
    levels = {
        "x86-64-v4": processor.LEVEL_FEATURES["x86-64-v4"],
        "x86-64-v3": processor.LEVEL_FEATURES["x86-64-v3"],
        "x86-64": (),
    }
    for name, features in levels.items():
        if not set(features) <= processor.supported():
            continue
        with monkeypatch.context() as patch:
            patch.setattr(processor, "supported", lambda features=features: frozenset(features))
            loaded = lightnet.load_executable("net.lnx")
        assert loaded.program.cpu == name and loaded.variants == list(levels)
        close(loaded({"picture": X})["classes"], expected)


@X86
def test_variants_share_equal_weights() -> None:
    run("compile", CNN, "-o", "one.lnx", "--cpu=x86-64")
    run("compile", CNN, "-o", "two.lnx", "--variants=x86-64-v2,baseline")
    lengths = []
    for name in ("one.lnx", "two.lnx"):
        data = Path(name).read_bytes()
        header = json.loads(data[20 : 20 + int.from_bytes(data[8:16], "little")])
        lengths.append([n for n in header["sections"] if n.startswith("static")])
    assert lengths == [["static0"], ["static0"]]


@X86
def test_code_for_another_processor_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("compile", CNN, "-o", "arm.lnx", "--cpu=generic-aarch64")
    assert "arm.lnx: error: the executable is for aarch64 processors, and this is a x86_64" in error(
        capsys, "run", "arm.lnx"
    )
    run("compile", CNN, "-o", "net.lnx", "--variants=avx512,avx2")
    monkeypatch.setattr(processor, "supported", lambda: frozenset({"avx", "sse3"}))
    shown = error(capsys, "run", "net.lnx")
    assert "the executable is for x86-64-v3" in shown and "lacks ssse3" in shown and "and 4 more" in shown
    foreign = lightnet.compile(CNN, cpu="avx2")
    with pytest.raises(LightNetError, match="the code is for x86-64-v3, and this processor"):
        foreign({"picture": X})


@pytest.mark.parametrize("words", [(), pytest.param(("--cpu=x86-64-v2",), marks=X86)])
def test_upstreams_plan(words: tuple[str, ...], expected: np.ndarray) -> None:
    """Params stand in the arena there, and are written again before each run; also where nothing was linked before it was saved."""
    assert run("compile", CNN, "-o", "net.lnx", "--plan=upstream", *words) == 0
    loaded = lightnet.load_executable("net.lnx")
    for _ in range(2):
        close(loaded({"picture": X})["classes"], expected)


@pytest.mark.parametrize(
    "words, says",
    [
        (("run", "net.lnx", "--layers", "--compare", "interpreter"), "--layers needs the network"),
        (("run", "net.lnx", "-t", "none"), "-t none needs the network"),
        (("run", "net.lnx", "-i", "nothing=zeros"), "no input or param is called 'nothing'"),
        (("compile", CNN, "-o", ""), "-o is empty"),
        (("compile", CNN, "--emit=exe"), "cannot emit 'exe' for target cpu"),
        (("compile", CNN, "--emit=,"), "--emit names nothing"),
        (("compile", CNN, "--cpu=z80"), "unknown processor 'z80'"),
        (("compile", CNN, "--variants=avx2,avx2"), "names 'avx2' twice"),
        (("compile", CNN, "--variants=,"), "names no processor"),
        (("compile", CNN, "--variants=avx2", "--emit=obj"), "--variants is for --emit=lnx"),
        (("compile", CNN, "--variants=avx2", "--cpu=avx2"), "give one of them"),
        (("compile", CNN, "--triple=sparc-unknown-unknown"), "name one with --cpu"),
        (("compile", CNN, "--cpu=avx2", "--triple=aarch64-unknown-linux-gnu"), "is another architecture"),
        (("compile", CNN, "--emit=obj,header", "-o", "-"), "is for one kind of file"),
        (("compile", CNN, "-o", "no/such/folder.lnx"), "cannot write 'no/such/folder.lnx'"),
        (("compile", "absent.net"), "absent.net"),
        (("compile", "net.lnx"), "net.lnx: error: compile needs the network, and this is a compiled executable"),
    ],
)
def test_mistakes(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "net.lnx" in words:
        run("compile", CNN, "-o", "net.lnx")
    shown = error(capsys, *words)
    assert says in shown and "Traceback" not in shown
    assert {p.name for p in Path().iterdir()} <= {"x.npy", "net.lnx"}  # nothing half-written


def test_print_works_in_a_saved_executable(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.net").write_text(
        'create(|dst=x|dtype=TL_FLOAT, dims=[2], data=[0], from_file=false);\nprint(src=x||msg="here");\nrelu(src=x|dst=y|);\n'
    )
    run("compile", "p.net")
    assert run("run", "p.lnx", "-i", "x=1,2") == 0
    assert "[1.000 2.000]" in capsys.readouterr().out


def test_the_file_may_go_while_it_is_used(expected: np.ndarray) -> None:
    run("compile", CNN, "-o", "net.lnx")
    loaded = lightnet.load_executable("net.lnx")
    os.unlink("net.lnx")
    close(loaded({"picture": X})["classes"], expected)


def test_weights_are_mapped_once() -> None:
    """40 MB of weights, of which a run reads a little: a copy of them would show in the memory of the process. Linux's
    VmHWM is that of the program; `ru_maxrss` is never below that of the process which started it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    onnx = pytest.importorskip("onnx")
    table = np.random.default_rng(0).standard_normal((100_000, 100)).astype("f")
    nodes = [onnx.helper.make_node("Gather", ["t", "x"], ["y"])]
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [4])]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 100])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(table, "t")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), "big.onnx")
    rows = [0, 5, 50_000, 99_999]
    np.save("rows.npy", table[rows])
    assert run("compile", "big.onnx") == 0
    code = """
import sys, numpy as np
from lightnet.runtime.artifact import load_executable
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
run = load_executable(sys.argv[1])
y = run({"x": np.array([0, 5, 50000, 99999])})["y"]
print(peak() - before, np.array_equal(y, np.load("rows.npy")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "big.lnx"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    grown, good = done.stdout.split()
    assert good == "True" and int(grown) < 12 << 20, done.stderr


def test_a_header_that_says_anything() -> None:
    """Whatever stands in the header, loading ends in an executable or an error: no crash, no other exception."""
    run("compile", CNN, "-o", "net.lnx")
    data = Path("net.lnx").read_bytes()
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[20 : 20 + length])
    rng = np.random.default_rng(0)
    values = (-1, 0, 1, 2**40, 2**70, -(2**63), 1.5, "", "x", None, [], {}, [1], True, float("nan"))

    def places(node: object) -> list[tuple[object, object]]:
        items = (
            list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
        )
        return [place for key, child in items for place in [(node, key), *places(child)]]

    for _ in range(300):
        changed = json.loads(json.dumps(header))
        there = places(changed)
        node, key = there[rng.integers(len(there))]
        node[key] = values[rng.integers(len(values))]
        text = json.dumps(changed).encode()
        if len(text) > length:
            continue
        text = text.ljust(length)
        Path("bad.lnx").write_bytes(lnx.packed_header(text) + data[20 + length :])
        try:
            lightnet.load_executable("bad.lnx")
        except LightNetError as e:
            assert "bad.lnx" in str(e) or "allocate" in str(e)


@X86
def test_the_processors_features_are_those_that_llvm_finds() -> None:
    import llvmlite.binding as llvm

    found = {name for name, on in llvm.get_host_cpu_features().items() if on}
    assert processor.supported() <= found
    levels = set(processor.LEVEL_FEATURES["x86-64-v4"])
    assert processor.supported() & levels == found & levels
