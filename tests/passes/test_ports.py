"""Ports: inputs that kernels read, and outputs that they write, in the caller's memory."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from guarded import guarded
from network_cases import other_feeds, random_model
from ports import with_ports

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.memory import memory_of
from lightnet.runtime.lnx_check import check_places
from lightnet.runtime.program import FRAME, Program, is_port, ports_of
from lightnet_debug.profile import profiled
from lightnet_debug.steps import started

CHAIN = """
func.func @main(%x : tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>) {
  %y = ln.relu %x : tensor<2x3x4xf32>
  %z = ln.sigmoid %y : tensor<2x3x4xf32> as ("z")
  return %z : tensor<2x3x4xf32>
}
"""
SHAPES = """
func.func @main() -> (tensor<12xf32>, tensor<3x4xf32>, tensor<12xf32>, tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x6xf32>) {
  %x = ln.input {required = true} : tensor<2x6xf32> as ("x")
  %v = ln.input {required = true} : tensor<3x4xf32> as ("v")
  %flat = ln.reshape %x : tensor<12xf32> as ("flat")
  %r = ln.relu %flat : tensor<12xf32> as ("r")
  %back = ln.reshape %r : tensor<3x4xf32> as ("back")
  %both = ln.concat %back, %v {axis = 0} : tensor<6x4xf32> as ("both")
  %part = ln.slice %both {axis = 0, start = 1, len = 2} : tensor<2x4xf32> as ("part")
  return %r, %back, %flat, %both, %part, %x : tensor<12xf32>, tensor<3x4xf32>, tensor<12xf32>, tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x6xf32>
}
"""


def compiled(text: str, ports: int = 1, **options: object) -> lightnet.Executable:
    return lightnet.compile(lightnet.loads(text, ".mlir"), pipeline=with_ports(ports), **options)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-np.maximum(x.astype(np.float64), 0)))).astype(np.float32)


def random(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def test_names() -> None:
    assert all(map(is_port, ("in0", "in12", "out3"))) and not any(
        map(is_port, ("in", "in01", "out1x", "arena", "inn1"))
    )
    assert ports_of(["static", "in1", "arena", "out0"]) == ("in1", "out0")


def test_the_plan_and_the_code_say_so() -> None:
    run = compiled(CHAIN)
    assert memory_of(run.planned) == {"static": 0, "arena": 0, "in0": 96, "out0": 96}
    assert run.program.ports == ("in0", "out0")
    assert re.search(r"tile\.launch @\w+ grid \d+.*\[in0\+0, out0\+0\]", str(run.loops))
    assert "%in0 = load ptr" in run.llvm_ir and len(FRAME) == 3
    assert not compiled(CHAIN, 97).program.ports and not compiled(CHAIN, 0).program.ports
    assert not lightnet.compile(lightnet.loads(CHAIN, ".mlir"), plan="upstream").program.ports


def test_the_targets_own_size() -> None:
    large = CHAIN.replace("2x3x4", "2x3x16384")
    assert lightnet.compile(lightnet.loads(large, ".mlir")).program.ports == ("in0", "out0")
    assert not lightnet.compile(lightnet.loads(CHAIN, ".mlir")).program.ports


@pytest.mark.parametrize("threads", [1, 2])
def test_arrays_of_any_kind(threads: int) -> None:
    """Read-only, at odd addresses, with strides, of another dtype, a list; none is changed, and each result is the caller's."""
    run = compiled(CHAIN, threads=threads)
    x = random(2, 3, 4)
    raw = np.zeros(x.nbytes + 4, np.uint8)
    odd = raw[4:].view(np.float32).reshape(x.shape)
    odd[:] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    feeds = [
        x,
        odd,
        fixed,
        x.transpose(0, 2, 1).copy().transpose(0, 2, 1),
        x.astype(np.float64),
        x.tolist(),
        x[::-1].copy()[::-1],
    ]
    before = [np.array(f) for f in feeds]
    results = [run({"x": f})["z"] for _ in range(2) for f in feeds]
    for got in results:
        np.testing.assert_allclose(got, sigmoid(x), rtol=1e-6)
        assert got.flags.writeable and got.flags.c_contiguous
    for f, b in zip(feeds, before):
        np.testing.assert_array_equal(np.array(f), b)
    assert len({r.ctypes.data for r in results}) == len(results), "results share memory"
    kept = results[0].copy()
    run({"x": -x})
    np.testing.assert_array_equal(results[0], kept)
    with pytest.raises(LightNetError):
        run({"x": x[:1]})
    np.testing.assert_allclose(run({"x": run({"x": x})["z"]})["z"], sigmoid(sigmoid(x)), rtol=1e-6)


def test_nothing_beyond_an_array_is_touched() -> None:
    """Sizes that fill no vector, at the end of a page behind which there is none."""
    for n in (1, 3, 15, 17, 33, 100):
        run = compiled(CHAIN.replace("2x3x4", f"1x{n}x1"))
        x = guarded(4 * n, 4).view(np.float32).reshape(1, n, 1)
        x[:] = random(1, n, 1)
        np.testing.assert_allclose(run({"x": x})["z"], sigmoid(x), rtol=1e-6)


def test_outputs_that_share_bytes() -> None:
    """Views of each other, of an input, and parts of a larger tensor: all right, none an alias of another or of what is fed."""
    run = compiled(SHAPES)
    x, v = random(2, 6), random(3, 4)
    r = np.maximum(x.reshape(12), 0)
    both = np.concatenate([r.reshape(3, 4), v])
    wanted = {"r": r, "back": r.reshape(3, 4), "flat": x.reshape(12), "both": both, "part": both[1:3], "x": x}
    assert run.program.ports
    for _ in range(2):
        found = run({"x": x, "v": v})
        assert list(found) == list(wanted)
        for name, want in wanted.items():
            np.testing.assert_array_equal(found[name], want, err_msg=name)
        arrays = [x, v, *found.values()]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_one_array_fed_twice() -> None:
    text = """func.func @main(%a : tensor<5x3xf32>, %b : tensor<5x3xf32>) -> (tensor<5x3xf32>) {
      %s = ln.elew %a, %b {elew_op = "TL_SUB"} : tensor<5x3xf32> as ("s")
      return %s : tensor<5x3xf32> }"""
    run = compiled(text)
    assert run.program.ports == ("in0", "in1", "out0")
    x = random(5, 3)
    assert not run({"a": x, "b": x})["s"].any()


def test_what_is_not_fed_holds_its_contents() -> None:
    """IL inputs have contents of their own."""
    text = (Path(__file__).parents[2] / "examples" / "cnn.net").read_text()
    plain = lightnet.compile(lightnet.loads(text, ".net"))
    run = lightnet.compile(lightnet.loads(text, ".net"), pipeline=with_ports())
    assert "in0" in run.program.ports
    fed = {name: random(*dims) for name, (dims, _) in run.inputs.items()}
    for feeds in ({}, fed, {}):
        for name, want in plain(feeds).items():
            np.testing.assert_array_equal(run(feeds)[name], want)


def test_saved_and_loaded(tmp_path: Path) -> None:
    run = compiled(SHAPES)
    run.save(tmp_path / "net.lnx")
    loaded = lightnet.load_executable(tmp_path / "net.lnx")
    feeds = {"x": random(2, 6), "v": random(3, 4)}
    for name, want in run(feeds).items():
        np.testing.assert_array_equal(loaded(feeds)[name], want)
    header = run.program.header()
    header["memory"] = {**header["memory"], "in7": 64}
    with pytest.raises(ValueError, match="port"):
        check_places(Program.from_header(header, ()))


def test_kernels_one_by_one_stay_where_they_are() -> None:
    """Who calls kernels at addresses (the profiler) writes inputs again, and the ports stay."""
    run = compiled(CHAIN)
    arena, _ = started(run, {"x": random(2, 3, 4).astype(np.float64)})
    before = list(arena.frame)
    started(run, {"x": random(2, 3, 4).astype(np.float64)}, arena)
    assert list(arena.frame) == before and set(arena.ports) == {"in0", "out0"}
    assert profiled(run, {"x": random(2, 3, 4)}, rounds=1).kernels


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("in0 = 96", "in0 = 192", "port 'in0' of 192 bytes is the memory of no input"),
        ("out0", "in7", "port 'in7' of 96 bytes is the memory of no input"),
        ("in0", "out7", "port 'out7' of 96 bytes is the memory of no output"),
        ("in0 = 96", "in0 = 96, arena = 0", "Duplicate key"),
        ("at in0+0", "at out0+0", "stands at out0.0, which is for another"),
    ],
)
def test_plans_from_files_with_odd_ports(old: str, new: str, message: str) -> None:
    planned = str(compiled(CHAIN).planned)
    assert old in planned
    with pytest.raises(LightNetError, match=message):
        lightnet.compile(lightnet.loads(planned.replace(old, new), ".mlir"), compiled=True)


def test_a_planned_module_goes_through_a_file() -> None:
    planned, x = str(compiled(CHAIN).planned), random(2, 3, 4)
    lacking = planned.replace("static = 0 : i64, ", "").replace("static = 0, ", "")
    for text in (planned, lacking, planned.replace("in0 = 96", "in9 = 96 : i64, in0 = 96")):  # in which nothing stands
        run = lightnet.compile(lightnet.loads(text, ".mlir"), compiled=True)
        assert run.program.ports == ("in0", "out0") and not run.program.overwritten
        np.testing.assert_allclose(run({"x": x})["z"], sigmoid(x), rtol=1e-6)


def test_a_number_of_bytes() -> None:
    with pytest.raises(LightNetError, match="ports is a number of bytes"):
        compiled(CHAIN, -1)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int) -> None:
    """Bit for bit what the same network computes in its arena."""
    model = random_model(seed)
    plain, run = (lightnet.compile(model, pipeline=with_ports(n), threads=1 + seed % 2) for n in (0, 1))
    names = [*plain.inputs, *plain.params]
    other = {n: a for n, a in other_feeds(model.module, names, seed).items() if n in names}
    for feeds in ({}, other, {}):
        want, found = plain(feeds), run(feeds)
        assert list(want) == list(found)
        assert [a.tobytes() for a in want.values()] == [a.tobytes() for a in found.values()]
