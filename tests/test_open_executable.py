"""Executables whose dims each call decides, on both targets (cuda in the PTX interpreter): one compilation and one plan for all shapes."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet import LightNetError
from lightnet.runtime.open_instance import OpenInstance
from lightnet.runtime.plain_calls import KEPT

NET = """
builtin.module {
  func.func @main() -> tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">> {
    %x = ln.input : tensor<?x?x16xf32, #ln.dims<"batch(1..4), n(1..100)">> as ("x")
    %m = ln.input : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">> as ("m")
    %w = ln.param {from_file = true} : tensor<16x8xf32> as ("w")
    %y = ln.matmul %x, %w : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">>
    %z = ln.mul %y, %m : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">>
    %s = ln.softmax %z {axis = 1} : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">>
    %r = ln.add %s, %m : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">> as ("r")
    func.return %r : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..100)">>
  }
}
"""


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def network(tmp_path_factory, weights, request):
    path = tmp_path_factory.mktemp("open") / "net.mlir"
    path.write_text(NET)
    options = {"emulate": True} if request.param == "cuda" else {}
    return lightnet.compile(path, request.param, weights={"w": weights}, **options)


def feeds(batch: int, n: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch * 1000 + n)
    return {
        "x": random.standard_normal((batch, n, 16)).astype(np.float32),
        "m": random.standard_normal((batch, n, 8)).astype(np.float32),
    }


def wanted(given, w):
    z = (given["x"].astype(np.float64) @ w) * given["m"]
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) + given["m"]


@pytest.mark.parametrize("batch, n", [(1, 1), (4, 100), (2, 7), (1, 64), (3, 33), (4, 1), (1, 1)])
def test_one_executable_runs_every_shape(network, weights, batch, n):
    given = feeds(batch, n)
    for _ in range(2):  # the second call takes the quick way
        np.testing.assert_allclose(network(given)["r"], wanted(given, weights), rtol=1e-5, atol=1e-5)


def test_threads_wait_for_each_other(tmp_path, weights):
    """Lines whose bytes each call decides are apart only where that is known: no thread reads what another has not written yet."""
    path = tmp_path / "net.mlir"
    path.write_text(NET.replace("n(1..100)", "n(1..9000)"))
    network = lightnet.compile(path, weights={"w": weights}, threads=2)
    assert "call void @wait" in network.llvm_ir
    for n in (9000, 1, 640, 8999):
        given = feeds(4, n)
        for _ in range(5):
            np.testing.assert_allclose(network(given)["r"], wanted(given, weights), rtol=1e-5, atol=1e-5)


def test_nothing_is_compiled_for_a_shape(network, weights, monkeypatch):
    network.prepare()

    def never(*args, **options):
        raise AssertionError("a call compiles")

    monkeypatch.setattr("lightnet.backends.llvm.jit.compile_module", never)
    monkeypatch.setattr("lightnet.backends.cuda.nvptx.emit_program", never)
    monkeypatch.setattr("lightnet.compilation.run_pipeline", never)
    given = feeds(2, 91)
    np.testing.assert_allclose(network(given)["r"], wanted(given, weights), rtol=1e-5, atol=1e-5)


def test_memory_does_not_grow_with_the_number_of_shapes(network, weights):
    """The room of a call is little larger than its largest shape needs, whatever shapes there were; of the last ones there are instances."""
    for n in range(1, 100):
        network(feeds(1 + n % 4, n))
    largest = network.instance.of((4, 100)).program.memory["arena"]
    if isinstance(network.instance, OpenInstance):
        (room,) = network.instance._rooms._idle
        used = room.bytes.nbytes
    else:
        used = network.instance.spaces._sizes["arena"]
    assert used <= largest * 17 / 16
    assert len(network.instance._made) <= KEPT


@pytest.mark.parametrize(
    ("x", "m", "message"),
    [
        ((2, 101, 16), (2, 101, 8), "dim 1 of 'x' is 101: n is 101, not in 1..100"),
        ((5, 3, 16), (5, 3, 8), "dim 0 of 'x' is 5: batch is 5, not in 1..4"),
        ((2, 3, 15), (2, 3, 8), "'x' has shape [batch(1..4), n(1..100), 16], but gets [2, 3, 15]"),
        (
            (2, 3, 16),
            (2, 4, 8),
            "'m' has shape [batch(1..4), n(1..100), 8], but gets [2, 4, 8]: dim 1 should be 3, as n is 3 by dim 1 of 'x'",
        ),
        ((2, 3), (2, 3, 8), "'x' has shape"),
    ],
)
def test_shapes_that_do_not_fit_are_named(network, x, m, message):
    with pytest.raises(LightNetError) as e:
        network({"x": np.zeros(x, np.float32), "m": np.zeros(m, np.float32)})
    assert message in str(e.value)


def test_what_is_missing_is_named(network):
    with pytest.raises(LightNetError, match="'m'"):
        network({"x": np.zeros((1, 2, 16), np.float32)})


@pytest.mark.parametrize(("target", "options"), [("cpu", {}), ("cuda", {"emulate": True})])
def test_run_time_calls_take_tensors_as_they_are_in_a_call(target: str, options: dict, tmp_path, capsys) -> None:
    """A `print` between two kernels, compiled here and read from a file."""
    type_ = 'tensor<?x4xf32, #ln.dims<"n(1..9)">>'
    text = f"""func.func @main() -> {type_} {{
      %x = ln.input : {type_} as ("x")
      %y = ln.relu %x : {type_} as ("y")
      ln.print %y {{msg = "y is"}}
      %z = ln.tanh %y : {type_} as ("z")
      func.return %z : {type_}
    }}"""
    made = lightnet.compile(lightnet.loads(text, ".mlir"), target, **options)
    made.save(tmp_path / "net.lnx")
    loaded = lightnet.load_executable(tmp_path / "net.lnx", **options)
    for run in (made, loaded):
        for n in (2, 1, 9):
            x = np.full((n, 4), n, np.float32)
            np.testing.assert_allclose(run({"x": x})["z"], np.tanh(x), rtol=1e-6)
            printed = capsys.readouterr().out
            assert printed.startswith("y is") and printed.count(f"{n}.000") == 4 * n
