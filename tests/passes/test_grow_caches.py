"""Inputs that become outputs where they are: results, memory, and what is refused."""

from __future__ import annotations

import ctypes
import pickle
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.passes.check_plan import check_plan
from lightnet.runtime.dtypes import BY_NAME

pytestmark = pytest.mark.meaning

TYPES = ["f32", "f64", "f16", "i8", "i64"]


def network(dims: tuple[int, ...], axis: int, dtype: str = "f32", most: int = 20, step: int = 1, batch: int = 0) -> str:
    """A tensor that grows by `step` along an axis, and sums along the axis of what it has become. With a `batch`, its
    first dim is open as well."""

    def type(length: str, reduced: bool = False) -> str:
        shape = [str(d) for d in dims]
        opened = [f"batch(1..{batch})"] * bool(batch)
        shape[axis] = "1" if reduced else "?" if not length.isdigit() else length
        opened += [] if reduced or length.isdigit() else [length]
        if batch:
            shape[0] = "?"
        encoding = f', #ln.dims<"{", ".join(opened)}">' if opened else ""
        return f"tensor<{'x'.join(shape)}x{dtype}{encoding}>"

    old, new = type(f"past(0..{most - step})"), type(f"past(0..{most - step}) + {step}")
    return f"""func.func @main() -> ({new}, {type("1", True)}) {{
  %k = ln.input {{required = true}} : {old} as ("k")
  %n = ln.input {{required = true}} : {type(str(step))} as ("n")
  %all = ln.concat %k, %n {{axis = {axis}}} : {new} as ("all")
  %sum = ln.reduce_sum %all {{axes = [{axis}]}} : {type("1", True)} as ("sum")
  func.return %all, %sum : {new}, {type("1", True)}
}}"""


def compiled(text: str, caches: dict[str, str] | str = "all", **options):
    return lightnet.compile(lightnet.loads(text, ".mlir"), caches=caches, **options)


def numbers(rng: np.random.Generator, dims: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.integers(-3, 4, dims).astype(BY_NAME[dtype].np)  # whose sums are exact in any order


CASES = [
    ((1, 2, 1, 4), 2, 1), ((2, 3, 1, 17), 2, 3), ((2, 1, 5), 1, 1), ((1, 8), 0, 2), ((3, 5, 1), 2, 1), ((1,), 0, 1),
    ((2, 2, 3, 1, 2), 3, 1), ((1, 4, 64, 1), 3, 1),
]  # fmt: skip


@pytest.mark.sampled(every=7, by="dtype")
@pytest.mark.parametrize("dims, axis, step", CASES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_growing_along_any_axis(dims, axis, step, dtype) -> None:
    """From nothing to the most: each call gives what was there with the new behind it, in the same memory."""
    rng = np.random.default_rng(1)
    run = compiled(network(dims, axis, dtype, step=step))
    found = wanted = numbers(rng, tuple(0 if k == axis else d for k, d in enumerate(dims)), dtype)
    new = tuple(step if k == axis else d for k, d in enumerate(dims))
    for k in range(20 // step):
        before, n = found, numbers(rng, new, dtype)
        out = run({"k": before, "n": n})
        found, wanted = out["all"], np.concatenate([wanted, n], axis)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(out["sum"], wanted.sum(axis, keepdims=True, dtype=wanted.dtype))
        assert k == 0 or np.shares_memory(before, found)


def test_two_open_dims() -> None:
    """The memory has the batch of the call that begins it; another batch is another array."""
    rng = np.random.default_rng(2)
    run = compiled(network((1, 3, 1, 5), 2, batch=6))
    for batch in (4, 1, 6):
        found = wanted = numbers(rng, (batch, 3, 2, 5), "f32")
        for _ in range(4):
            before, n = found, numbers(rng, (batch, 3, 1, 5), "f32")
            found = run({"k": before, "n": n})["all"]
            wanted = np.concatenate([wanted, n], 2)
            np.testing.assert_array_equal(found, wanted)
        assert np.shares_memory(before, found)
        fewer = run({"k": found[: batch // 2 + 1], "n": n[: batch // 2 + 1]})["all"]
        assert np.shares_memory(fewer, found) == (batch // 2 + 1 == batch)
        np.testing.assert_array_equal(fewer, np.concatenate([wanted, n], 2)[: batch // 2 + 1])


def ways(text: str, tmp_path: Path):
    """An executable, and what it becomes: of a file, of another process, of one call, on two threads, on plain maps."""
    run = compiled(text)
    run.save(str(tmp_path / "x.lnx"))
    return {
        "compiled": run,
        "saved": lightnet.load_executable(str(tmp_path / "x.lnx")),
        "pickled": pickle.loads(pickle.dumps(run)),
        "threads": compiled(text, threads=2),
        "named": compiled(text, {"k": "all"}, layout="plain"),
        "special": compiled(text, specialize={"past": [7, 20]}),
    }


ATTENTION = """func.func @main() -> (tensor<1x2x3x64xf32>, tensor<1x2x?x64xf32, #ln.dims<"past(1..300) + 1">>) {
  %q = ln.input {required = true} : tensor<1x2x3x64xf32> as ("q")
  %n = ln.input {required = true} : tensor<1x2x1x64xf32> as ("n")
  %k = ln.input {required = true} : tensor<1x2x?x64xf32, #ln.dims<"past(1..300)">> as ("k")
  %all = ln.concat %k, %n {axis = 2} : tensor<1x2x?x64xf32, #ln.dims<"past(1..300) + 1">> as ("all")
  %t = ln.transpose %all {axes = [0, 1, 3, 2]} : tensor<1x2x64x?xf32, #ln.dims<"past(1..300) + 1">> as ("t")
  %s = ln.matmul %q, %t : tensor<1x2x3x?xf32, #ln.dims<"past(1..300) + 1">> as ("s")
  %p = ln.softmax %s {axis = 3} : tensor<1x2x3x?xf32, #ln.dims<"past(1..300) + 1">> as ("p")
  %y = ln.matmul %p, %all : tensor<1x2x3x64xf32> as ("y")
  func.return %y, %all : tensor<1x2x3x64xf32>, tensor<1x2x?x64xf32, #ln.dims<"past(1..300) + 1">>
}"""


def attention(q: np.ndarray, kept: np.ndarray) -> np.ndarray:
    q, kept = q.astype(np.float64), kept.astype(np.float64)
    s = q @ kept.swapaxes(2, 3)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ kept


@pytest.mark.parametrize("way", ["compiled", "saved", "pickled", "threads", "named", "special"])
def test_attention_reads_what_has_grown(way: str, tmp_path: Path) -> None:
    """Products of open matrices and loops read at the front of memory for more; quick calls and others give the same."""
    rng = np.random.default_rng(3)
    run = ways(ATTENTION, tmp_path)[way]
    found = wanted = rng.standard_normal((1, 2, 5, 64)).astype(np.float32)
    for step in range(40):
        q, n = (rng.standard_normal((1, 2, rows, 64)).astype(np.float32) for rows in (3, 1))
        before = found
        feeds = {"q": q.astype(np.float64) if step % 3 == 2 else q, "k": before, "n": n}  # quick, or not
        out = run(feeds) if step % 4 else run(feeds, outputs=["y", "all"])
        found, wanted = out["all"], np.concatenate([wanted, n], 2)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_allclose(out["y"], attention(q, wanted), rtol=1e-4, atol=1e-5)
        assert np.shares_memory(before, found) == (step > 0)
    assert found.strides == (2 * 301 * 256, 301 * 256, 256, 4)


def test_a_call_is_a_function_of_what_it_is_fed() -> None:
    """Arrays that were returned keep their elements; an array that has grown already, a part of one, and one in another
    order are copied."""
    rng = np.random.default_rng(4)
    run = compiled(network((2, 3, 1, 5), 2))
    news = [numbers(rng, (2, 3, 1, 5), "f32") for _ in range(6)]
    first = run({"k": numbers(rng, (2, 3, 4, 5), "f32"), "n": news[0]})["all"]
    kept = first.copy()
    one, other = (run({"k": first, "n": n})["all"] for n in news[1:3])
    assert np.shares_memory(first, one) and not np.shares_memory(one, other)
    for found, n in ((one, news[1]), (other, news[2])):
        np.testing.assert_array_equal(found, np.concatenate([kept, n], 2))
    np.testing.assert_array_equal(first, kept)
    shorter, later, turned = one[:, :, :3], one[:, :, 1:], one[::-1]
    for part in (shorter, later, turned, one.astype(np.float64), one.tolist()):
        wanted = np.concatenate([np.array(part, np.float32), news[3]], 2)
        found = run({"k": part, "n": news[3]})["all"]
        np.testing.assert_array_equal(found, wanted)
        assert not np.shares_memory(found, one)
    again = run({"k": one[:, :, :], "n": news[4]})["all"]  # another array of the same elements is as good
    assert np.shares_memory(again, one)
    with pytest.raises(LightNetError, match="past"):
        run({"k": numbers(rng, (2, 3, 20, 5), "f32"), "n": news[5]})


TWO = """func.func @main() -> ({new}, {new}) {{
  %a = ln.input {{required = true}} : {old} as ("a")
  %b = ln.input {{required = true}} : {old} as ("b")
  %n = ln.input {{required = true}} : tensor<2x?x3xf32, #ln.dims<"step(0..3)">> as ("n")
  %x = ln.concat %a, %n {{axis = 1}} : {new} as ("x")
  %m = ln.neg %n : tensor<2x?x3xf32, #ln.dims<"step(0..3)">>
  %y = ln.concat %b, %m {{axis = 1}} : {new} as ("y")
  func.return %x, %y : {new}, {new}
}}""".format(
    old='tensor<2x?x3xf32, #ln.dims<"past(0..12)">>', new='tensor<2x?x3xf32, #ln.dims<"past(0..12) + step(0..3)">>'
)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(9))
def test_any_history_of_calls(seed: int) -> None:
    """Calls on arrays of any earlier calls, of one cache and of the other, whole, in part and copied: each result is what its own feeds say,
    and no array that was returned changes."""
    rng = np.random.default_rng(seed)
    run = compiled(TWO)
    assert len(run.program.caches()) == 2
    known = [(array, array.copy()) for array in (numbers(rng, (2, k % 3, 3), "f32") for k in range(4))]
    grown = 0
    for _ in range(60):
        length = int(rng.choice([a.shape[1] for a, _ in known]))
        alike = [pair for pair in known if pair[0].shape[1] >= length]
        (a, old_a), (b, old_b) = (alike[rng.integers(len(alike))] for _ in range(2))
        n = numbers(rng, (2, rng.integers(0, 4), 3), "f32")
        feeds = {"a": a[:, :length], "b": b[:, :length] if rng.random() < 0.8 else b[:, :length].copy(), "n": n}
        out = run(
            feeds if rng.random() < 0.7 else {k: v.astype(np.float64) if k == "n" else v for k, v in feeds.items()}
        )
        for got, old, new in ((out["x"], old_a, n), (out["y"], old_b, -n)):
            np.testing.assert_array_equal(got, np.concatenate([old[:, :length], new], 1))
            if got.shape[1] <= 12:
                known.append((got, got.copy()))
        grown += np.shares_memory(out["x"], a)
        for array, kept in known:
            np.testing.assert_array_equal(array, kept)
    assert grown > 3


def test_memory_is_of_one_axis_and_one_type() -> None:
    """Arrays of memory of the same dims, that grows along another axis, and of other bytes of the same strides, are copied."""
    rows, columns = compiled(network((1, 8), 0, most=4)), compiled(network((4, 1), 1, most=8))
    a = rows({"k": np.ones((3, 8), np.float32), "n": np.full((1, 8), 7, np.float32)})["all"]
    b = columns({"k": a[:, :4], "n": np.full((4, 1), 99, np.float32)})["all"]
    assert a.shape == (4, 8) and (a[:3] == 1).all() and (a[3] == 7).all() and (b[:, 4] == 99).all()
    doubles, singles = compiled(network((4,), 0, "f64", most=9)), compiled(network((4,), 0, "f32", most=9))
    wide = doubles({"k": np.arange(2.0), "n": np.ones(1)})["all"]
    found = singles({"k": wide.view(np.float32)[::2][:2], "n": np.ones(1, np.float32)})["all"]
    np.testing.assert_array_equal(wide, [0, 1, 1])
    np.testing.assert_array_equal(found, [*wide.view(np.float32)[:4:2], 1])


def test_a_call_that_adds_nothing() -> None:
    run = compiled(TWO)
    feeds = {
        "a": np.ones((2, 5, 3), np.float32),
        "b": np.ones((2, 5, 3), np.float32),
        "n": np.zeros((2, 0, 3), np.float32),
    }
    x = run(feeds, outputs=["x", "y"])["x"]
    run({"a": x[:, :2], "b": x[:, :2].copy(), "n": np.full((2, 1, 3), 99, np.float32)})
    assert x.shape == (2, 5, 3) and (x == 1).all()


def test_tools_that_look_inside() -> None:
    """A profile and the tensors of a call have the memory, too, for as long as they look."""
    from lightnet_debug.profile import profile
    from lightnet_debug.tensors import tensors

    run = compiled(ATTENTION)
    rng = np.random.default_rng(7)
    feeds = {
        name: rng.standard_normal((1, 2, rows, 64)).astype(np.float32) for name, rows in (("q", 3), ("k", 9), ("n", 1))
    }
    assert profile(run, feeds, rounds=2)
    found = tensors(run, feeds).arrays
    np.testing.assert_array_equal(found["all"], np.concatenate([feeds["k"], feeds["n"]], 2))


def test_steps_of_an_input_in_another_order() -> None:
    """Who runs kernels one by one feeds memory as it lies: an array that lies otherwise is copied first."""
    from lightnet_debug.steps import stepper

    text = """func.func @main() -> tensor<512x512xf32> {
  %a = ln.input {required = true} : tensor<512x512xf32> as ("a")
  %y = ln.relu %a : tensor<512x512xf32> as ("y")
  func.return %y : tensor<512x512xf32>
}"""
    run = lightnet.compile(lightnet.loads(text, ".mlir"))
    a = np.random.default_rng(8).standard_normal((512, 512)).astype(np.float32).T
    steps = stepper(run, {"a": a})
    steps.call_whole()
    memory = steps.arena.memory(steps.static)
    np.testing.assert_array_equal(run.program.outputs[0].view(memory), np.maximum(a, 0))


READERS = {
    "merged": ("reshape %all", "8x?x64"),
    "grouped": ("reshape %all", "1x2x4x?x64"),
    "turned": ("transpose %all {axes = [0, 2, 1, 3]}", "1x?x8x64"),
}


@pytest.mark.parametrize("reader", ["merged", "grouped", "turned"])
def test_readers_that_see_other_dims(reader: str) -> None:
    """Networks that compile without caches do with them."""
    op, dims = READERS[reader]
    length = "past(0..30) + 1"
    new = f'tensor<1x8x?x64xf32, #ln.dims<"{length}">>'
    seen = f'tensor<{dims}xf32, #ln.dims<"{length}">>'
    text = f"""func.func @main() -> ({new}, {seen}) {{
  %k = ln.input {{required = true}} : tensor<1x8x?x64xf32, #ln.dims<"past(0..30)">> as ("k")
  %n = ln.input {{required = true}} : tensor<1x8x1x64xf32> as ("n")
  %all = ln.concat %k, %n {{axis = 2}} : {new} as ("all")
  %v = ln.{op} : {seen} as ("v")
  %y = ln.neg %v : {seen} as ("y")
  func.return %all, %y : {new}, {seen}
}}"""
    rng = np.random.default_rng(9)
    run, plain = compiled(text), compiled(text, "")
    assert run.program.caches() and not plain.program.caches()
    k = rng.standard_normal((1, 8, 0, 64)).astype(np.float32)
    for _ in range(4):
        feeds = {"k": k, "n": rng.standard_normal((1, 8, 1, 64)).astype(np.float32)}
        found, wanted = run(feeds), plain(feeds)
        for name in ("all", "y"):
            np.testing.assert_array_equal(found[name], wanted[name])
        k = found["all"]


def test_a_kernel_that_makes_two_is_split() -> None:
    new = 'tensor<2x?x3xf32, #ln.dims<"past(0..12) + 1">>'
    old = 'tensor<2x?x3xf32, #ln.dims<"past(0..12)">>'
    text = f"""func.func @main() -> ({new}, {new}) {{
  %a = ln.input {{required = true}} : {old} as ("a")
  %b = ln.input {{required = true}} : {old} as ("b")
  %n = ln.input {{required = true}} : tensor<2x1x3xf32> as ("n")
  %x, %y = cpu.kernel(%a_ = %a, %b_ = %b, %n_ = %n) {{
    %x_ = ln.concat %a_, %n_ {{axis = 1}} : {new} as ("x")
    %y_ = ln.concat %b_, %n_ {{axis = 1}} : {new} as ("y")
    ln.yield %x_, %y_
  }} : {new}, {new} as ("x", "y")
  func.return %x, %y : {new}, {new}
}}"""
    run = compiled(text, pipeline="@cpu-layout")
    assert len(run.program.caches()) == 2


@pytest.mark.parametrize("caches", [["k=all"], True, b"all", 7])
def test_a_mistake_of_the_option_is_named(caches: object) -> None:
    with pytest.raises(LightNetError, match="expected a mapping of inputs to outputs, or 'all'"):
        compiled(network((2, 1, 5), 1), caches)  # type: ignore[arg-type]


def test_an_output_may_have_a_buffer() -> None:
    rng = np.random.default_rng(5)
    run = compiled(network((2, 1, 5), 1))
    k, n, out = numbers(rng, (2, 3, 5), "f32"), numbers(rng, (2, 1, 5), "f32"), np.empty((2, 4, 5), np.float32)
    assert run({"k": k, "n": n}, out={"all": out})["all"] is out
    np.testing.assert_array_equal(out, np.concatenate([k, n], 1))


def test_of_threads_on_one_input_one_grows() -> None:
    rng = np.random.default_rng(6)
    run = compiled(network((2, 1, 5), 1))
    start = run({"k": numbers(rng, (2, 3, 5), "f32"), "n": numbers(rng, (2, 1, 5), "f32")})["all"]
    news = [np.full((2, 1, 5), k, np.float32) for k in range(16)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: run({"k": start, "n": n})["all"], news))
    for array, n in zip(found, news):
        np.testing.assert_array_equal(array, np.concatenate([start, n], 1))
    assert sum(np.shares_memory(start, array) for array in found) == 1


def test_levels_agree_and_the_plan_is_checked() -> None:
    """One place for both in the plan, which the checker takes; a later reader of the input makes it wrong."""
    text = network((2, 1, 5), 1)
    run = compiled(text)
    planned = str(run.planned)
    assert planned.count("at cache0+0") == 2 and run.program.memory["cache0"] == 2 * 20 * 5 * 4
    check_plan(run.planned)
    feeds = {"k": np.ones((2, 3, 5), np.float32), "n": np.full((2, 1, 5), 2, np.float32)}
    one = run.specialized(feeds)
    for other in (compiled(text, target="cpu", pipeline="@cpu+before:bands:fold"), one):
        np.testing.assert_array_equal(other(feeds)["all"], np.concatenate(list(feeds.values()), 1))
    late = planned.replace(
        "    func.return",
        "    %late = cpu.kernel(%k_9 = %k) choices {alg = \"loops\"} {\n      %l = ln.relu %k_9 : "
        'tensor<2x?x5xf32, #ln.dims<"past(0..19)">>\n      ln.yield %l\n    } : tensor<2x?x5xf32, '
        '#ln.dims<"past(0..19)">> at arena+0\n    func.return',
    )  # fmt: skip
    with pytest.raises(LightNetError, match="the plan is wrong"):
        check_plan(parse_mlir(make_context(), late, "late.mlir"))


REFUSED = {
    "k=nothing": "no output is called 'nothing'",
    "x=all": "no input is called 'x'",
    "n=all": "begins with the input",
    "k=sum": "begins with the input",
    "k": "expected INPUT=OUTPUT",
}


@pytest.mark.parametrize("caches", REFUSED)
def test_what_cannot_grow_is_refused(caches: str) -> None:
    with pytest.raises(LightNetError, match=REFUSED[caches]):
        compiled(network((2, 1, 5), 1), caches)


def test_what_else_reads_the_input_is_named() -> None:
    old = 'tensor<2x?x5xf32, #ln.dims<"past(0..19)">>'
    text = network((2, 1, 5), 1).replace("{\n", f'{{\n  %x = ln.input {{required = true}} : {old} as ("x")\n', 1)
    text = text.replace("  func.return %all, %sum", f"  %y = ln.add %k, %x : {old}\n  func.return %all, %y")
    text = text.replace("tensor<2x1x5xf32>) {", f"{old}) {{").replace("tensor<2x1x5xf32>\n}", f"{old}\n}}")
    with pytest.raises(LightNetError, match="something else reads the input"):
        compiled(text, "k=all")
    assert not compiled(text, "all").program.caches()


def test_of_fixed_lengths_nothing_grows() -> None:
    text = """func.func @main() -> tensor<2x4xf32> {
  %k = ln.input {required = true} : tensor<2x3xf32> as ("k")
  %n = ln.input {required = true} : tensor<2x1xf32> as ("n")
  %all = ln.concat %k, %n {axis = 1} : tensor<2x4xf32> as ("all")
  func.return %all : tensor<2x4xf32>
}"""
    with pytest.raises(LightNetError, match="nothing grows"):
        compiled(text, "k=all")


@pytest.mark.parametrize("target", ["cuda", "none"])
def test_other_targets_say_that_they_cannot(target: str) -> None:
    with pytest.raises(LightNetError, match=r"caches: |numbers"):
        compiled(network((2, 1, 5), 1), target=target)


C = r"""
#include "x.h"
static _Alignas(64) char arena[X_MOST_ARENA_BYTES];
int main(void) {
  static float k[2][20][5];
  float n[2][1][5], sum[2][1][5];
  for (int p = 0; p < 20; p++) {
    for (int i = 0; i < 10; i++) n[i / 5][0][i % 5] = (float)(p * 10 + i);
    if (x_run(arena, p, &k[0][0][0], &n[0][0][0], &k[0][0][0], &sum[0][0][0]) != X_OK) return 1;
    for (int i = 0; i < 10; i++) for (int q = 0; q <= p; q++) if (k[i / 5][q][i % 5] != q * 10 + i) return 2;
    for (int i = 0; i < 10; i++) if (sum[i / 5][0][i % 5] != 10 * p * (p + 1) / 2 + (p + 1) * i) return 3;
  }
  int dims[] = X_IN_K_MEMORY_DIMS;
  if (dims[0] != 2 || dims[1] != 20 || dims[2] != 5 || sizeof k != x_tensor_bytes(X_IN_K_TENSOR, 7, 0)) return 4;
  return x_run(arena, 3, &k[0][0][0], &n[0][0][0], &sum[0][0][0], &sum[0][0][0]) == X_BAD_TENSOR ? 0 : 5;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_in_c_both_are_one_pointer(tmp_path: Path) -> None:
    from lightnet import deploy

    run = compiled(network((2, 1, 5), 1), threads=1)
    deploy.emit(run, {"obj": tmp_path / "x.o", "header": tmp_path / "x.h"}, "x")
    (tmp_path / "main.c").write_text(C)
    subprocess.run(["cc", "-std=c11", "-o", "main", "main.c", "x.o", "-lm"], cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "main")]).returncode == 0


def test_memory_is_private_to_a_process_and_lives_as_long_as_its_arrays() -> None:
    from lightnet.runtime.growing import GrowingMemory, Growth, grow

    growth = Growth((2, 8, 4), (2, 3, 4), 1, np.dtype(np.float32))
    array, memory = grow(np.ones((2, 2, 4), np.float32), growth)
    assert ctypes.c_float.from_address(memory.address).value == 1.0 and array[:, :2].all()
    part = array[1:, :, 2:]
    assert isinstance(memory, GrowingMemory)
    gone = ref(memory)
    del array, memory
    assert gone() is not None
    np.testing.assert_array_equal(part[:, :2], 1)
