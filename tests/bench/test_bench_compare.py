"""`lightnet compare`: what it takes, what it says, and when it fails. No test here rests on a time."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lightnet
from lightnet.cli.lightnet import main
from lightnet_bench.comparison import compared
from lightnet_bench.kernels import Kernel, matched

ROOT = Path(__file__).parents[2]
CNN = str(ROOT / "examples" / "cnn.net")
REPEAT = str(ROOT / "tools" / "benching" / "repeat_launch.py")


def compare(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert main(["compare", *words, "--limit", "0.2", "--json"]) == status
    return json.loads(capsys.readouterr().out)


def onnx_net(path: Path, scale: float) -> str:
    """``y = relu(x) * scale``."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Mul", ["r", "s"], ["y"])]
    s = helper.make_tensor("s", TensorProto.FLOAT, [], [scale])
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], [s])), path)
    return str(path)


def test_a_network_with_itself_runs_the_same_code(capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(capsys, CNN)
    assert found["outputs"] and all(o["equal"] for o in found["outputs"])
    assert found["kernels"] and all(k["same_code"] for k in found["kernels"])
    assert found["a"]["memory"] == found["b"]["memory"] and found["a"]["code_bytes"] == found["b"]["code_bytes"] > 0
    assert found["ratio"]["samples"] >= 10 and found["clock"] == "processor time of one thread"


def test_pipelines_of_one_network(capsys: pytest.CaptureFixture[str]) -> None:
    """Layouts and passes are those of each side; a kernel that was two has both beside it, with what the model said."""
    found = compare(capsys, CNN, "--a", "--pass=@cpu-combine", "--b=--layout=plain")
    assert found["a"]["what"].endswith("--pass=@cpu-combine") and found["b"]["what"].endswith("--layout=plain")
    counts = [(len(k["a"]["kernels"]), len(k["b"]["kernels"])) for k in found["kernels"]]
    assert any(a > b > 0 for a, b in counts)
    assert all(k["a"]["predicted_ns"] > 0 and k["b"]["predicted_ns"] > 0 for k in found["kernels"] if min(
        len(k["a"]["kernels"]), len(k["b"]["kernels"])) > 0)  # fmt: skip
    assert all(o["of_largest"] < 1e-5 for o in found["outputs"])


def test_saved_and_planned_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network, its plan as text, and an executable of it: the same kernels."""
    executable = lightnet.compile(CNN)
    executable.save(tmp_path / "cnn.lnx")
    (tmp_path / "cnn.mlir").write_text(executable.ir())
    for other in ("cnn.lnx", "cnn.mlir"):
        found = compare(capsys, CNN, str(tmp_path / other))
        assert all(o["equal"] for o in found["outputs"]) and not found["notes"]
        assert all(k["same_code"] for k in found["kernels"]), other


def test_outputs_that_differ_fail_where_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 against 2.02 times: off by a hundredth of the largest value."""
    nets = onnx_net(tmp_path / "a.onnx", 2.0), onnx_net(tmp_path / "b.onnx", 2.02)
    found = compare(capsys, *nets)
    assert found["outputs"][0]["of_largest"] == pytest.approx(0.01, rel=1e-3)
    compare(capsys, *nets, "--fail-error", "0.02")
    compare(capsys, *nets, "--fail-error", "0.005", status=1)


def test_ratios_fail_where_they_are_certain(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever takes time takes more than none, and less than a million times as much."""
    assert compare(capsys, CNN, "--fail-above", "1e6")["verdict"]
    assert main(["compare", CNN, "--limit", "0.2", "--fail-above", "1e-6"]) == 1
    assert "FAILS: B takes more than 1e-06 times A's time" in capsys.readouterr().out


def test_planted_work_changes_nothing_but_time(capsys: pytest.CaptureFixture[str]) -> None:
    """What tools/planted.py plants: blocks that are done twice."""
    found = compare(capsys, CNN, "--load", REPEAT, "--b=--pass='@cpu+after:lower-cpu:repeat-launch{line=0 blocks=1}'")
    assert all(o["equal"] for o in found["outputs"])
    assert main(["compare", CNN, "--load", REPEAT, "--b=--pass='@cpu+after:lower-cpu:repeat-launch{line=99}'"]) == 1
    assert "there is no launch 99" in capsys.readouterr().err


def test_plain_text_and_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", CNN, "--b", "--layout plain", "--limit", "0.2"]
    assert main(words) == 0
    plain = capsys.readouterr()
    assert "B/A" in plain.out and "predicted" in plain.out and "output '" in plain.out and not plain.err
    rich = pytest.importorskip("rich.console", reason="rich is not installed")
    from lightnet_bench import command as tool

    shown = io.StringIO()
    monkeypatch.setattr(tool, "terminal", lambda: rich.Console(file=shown, force_terminal=True, width=200))
    assert main(words) == 0
    assert all(word in shown.getvalue() for word in ("B/A", "predicted", "kernels that differ", "output '"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.net"], "no.net: error: "),
        ([CNN, CNN, CNN], "compare takes one network or two, and gets 3"),
        ([CNN, "--limit", "0"], "--limit should be between 0 and 3600 s, and is 0.0"),
        ([CNN, "--margin", "1"], "--margin should be a share between 0 and 1"),
        ([CNN, "--fail-above", "nan"], "--fail-above should not be negative"),
        ([CNN, "--b", "--pass='@cpu"], "--b: no closing quotation in"),
        ([CNN, "--b", "--pas=@cpu"], "unknown option '--pas'; did you mean --pass"),
        ([CNN, "--b", "--pass=@cpu-band"], "band"),
        ([CNN, "-i", "nix=random"], "no input or param is called 'nix'"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) if "unknown option" in message else _nothing():
        assert main(["compare", "--b=--layout=plain", *words]) == 1
    found = capsys.readouterr().err
    assert message in found and "Traceback" not in found


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def test_sides_take_the_same_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", CNN, onnx_net(tmp_path / "a.onnx", 2.0)]) == 1
    assert "the sides differ in what they take: A has no input 'x', which B has" in capsys.readouterr().err


# -- parts


def kernel(name: str, *inside: str, code: Any = None, seconds: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Kernel:
    step: Any = SimpleNamespace()
    return Kernel(name, frozenset((name, *inside)), "relu", "", 1.0, code, step, list(seconds))


def test_kernels_are_matched_by_what_they_compute() -> None:
    """Merged ones with their parts, whichever side they are on; what one side alone computes stays by itself, and order
    does not count."""
    first = [kernel("a"), kernel("b"), kernel("c"), kernel("d", "m"), kernel("only")]
    second = [kernel("c"), kernel("b", "a"), kernel("d"), kernel("reorder")]
    found = [(tuple(k.name for k in m.kernels[0]), tuple(k.name for k in m.kernels[1])) for m in matched(first, second)]
    assert found == [(("a", "b"), ("b",)), (("c",), ("c",)), (("d",), ("d",)), (("only",), ()), ((), ("reorder",))]


def test_times_of_matched_kernels_are_sums() -> None:
    first = [kernel("a", seconds=(1.0, 2.0, 3.0)), kernel("b", seconds=(1.0, 1.0, 1.0))]
    (found,) = matched(first, [kernel("b", "a", seconds=(4.0, 6.0, 8.0))])
    assert found.seconds == (3.0, 6.0) and found.gain == 3.0 and found.ratio is not None
    assert found.ratio.ratio == pytest.approx(2.0) and found.predicted == (2.0, 1.0) and not found.same


def test_the_same_code_is_known_by_its_key() -> None:
    def same(a: Any, b: Any) -> bool:
        return matched([kernel("a", code=a)], [kernel("a", code=b)])[0].same

    assert same((("k1", "4"),), (("k1", "4"),)) and not same((("k1", "4"),), (("k1", "8"),)) and not same(None, None)


def test_outputs_beside_each_other() -> None:
    """Equal bits, equal numbers, constants, NaN, other shapes, what one side has."""
    one = np.array([1.0, -2.0, 4.0], np.float32)
    a = {"x": one, "z": np.zeros(3, np.float32), "n": one, "s": one, "only": one}
    b = {"x": one.copy(), "z": -np.zeros(3, np.float32), "n": np.array([1, np.nan, 4], np.float32), "s": one[:2]}
    found = {o.name: o for o in compared(a, b)}
    assert found["x"].equal and found["x"].error == 0 and not found["x"].constant
    assert not found["z"].equal and found["z"].error == 0 and found["z"].constant and "says little" in str(found["z"])
    assert np.isinf(found["n"].error) and np.isinf(found["s"].error) and np.isinf(found["only"].error)
    assert "only A gives it" in str(found["only"]) and "equal to the bit" in str(found["x"])
