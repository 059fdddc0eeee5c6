"""Compile time is bounded: by causes that are mended (what grows no faster than the network), by counts, and by a budget that names the op."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from network_cases import random_model
from xdsl.dialects import arith

import lightnet
from lightnet.backends.builder import Builder
from lightnet.diagnostics import LightNetError
from lightnet.ir import budget, passes
from lightnet.model import loads
from lightnet.passes.planning.spans import Spans
from lightnet_descriptions import load_descriptions, sampling
from lightnet_descriptions.reader import read_description


def wide(parts: int) -> str:
    """A network that slices a tensor into so many outputs."""
    names = [f"%{k}" for k in range(parts)]
    lines = [
        f"{name} = ln.slice %x {{axis = 0, start = {k}, len = 1}} : tensor<1x4xf32>" for k, name in enumerate(names)
    ]
    types = ", ".join(["tensor<1x4xf32>"] * parts)
    body = "\n".join([f'%x = ln.input {{required = true}} : tensor<{parts}x4xf32> as "i"("x")', *lines])
    return f"func.func @main() -> ({types}) {{\n{body}\nfunc.return {', '.join(names)} : {types}\n}}"


def work(action) -> int:
    """Calls of Python functions that `action` makes: what it does, whatever else the machine does."""
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def test_work_grows_with_the_number_of_outputs_alone():
    few, many = (work(lambda n=n: lightnet.compile(loads(wide(n), ".mlir"))) for n in (40, 160))
    assert many < 4 * few * 1.2


def test_a_spent_budget_names_pass_op_and_option():
    with pytest.raises(
        LightNetError, match=r"longer than the budget of 1e-06 s: it ended in pass 'bind' at ln\..*--compile-budget"
    ) as e:
        lightnet.compile(random_model(3), budget=1e-6)
    assert e.value.label == "compile.budget"


def test_a_spent_budget_names_the_op():
    model = loads(wide(2), ".mlir", "wide.mlir")
    op = list(model.main.body.block.ops)[1]
    with budget.limited(1e-9), pytest.raises(LightNetError, match=r"at ln\.slice") as e:
        budget.check(op)
    assert e.value.loc is not None and e.value.loc.file == "wide.mlir"


#: Passes whose work is bounded by counts, or by what somebody names: the pass behind them asks.
COUNTED = {"schedule", "grow-caches"}


@pytest.mark.parametrize(
    "options",
    [{}, {"target": "cuda", "on_cpu": True}, {"plan": "upstream"}, {"precision": "bf16"}, {"check_indices": True}],
    ids=str,
)
def test_every_pass_names_the_op_it_is_at(options, monkeypatch):
    """Whichever pass the budget ends in, the error has an op of the network (of the interpreter of the accelerator's code: a kernel)."""
    run, said = passes._run_pass, {}

    def spent(ctx, module, pass_, instrumentation):
        before = module.clone()
        run(ctx, module, pass_, instrumentation)
        try:
            with budget.limited(1e-9):
                pass_.apply(ctx, before)
        except LightNetError as error:
            assert error.label == "compile.budget", error
            said[pass_.name] = error.message
        else:
            said[pass_.name] = ""

    monkeypatch.setattr(passes, "_run_pass", spent)
    lightnet.compile(
        random_model(3), options.get("target", "cpu"), **{k: v for k, v in options.items() if k != "target"}
    )
    assert {"bind", "expand", "choose", "plan"} <= said.keys()
    silent = {n for n, text in said.items() if not re.search(rf"in pass '{n}' at ((ln|cpu|cuda)\.\w+ \"|@\w)", text)}
    assert silent <= COUNTED, {n: said[n] for n in silent}


def test_code_that_is_too_large_is_that_of_an_op():
    """Of the one that work began on last, in its place."""
    ops = list(loads(wide(2), ".mlir", "wide.mlir").main.body.block.ops)
    with budget.limited(1), pytest.raises(LightNetError, match=r"the code of ln\.slice has more than 1000") as e:
        list(budget.within(ops[:2]))
        budget.check_code(1001)
    assert e.value.label == "compile.code" and e.value.loc is not None and e.value.loc.line == 3


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "1"])
def test_a_budget_is_a_number_of_seconds(seconds):
    with pytest.raises(LightNetError, match="a budget is a number of seconds above 0"):
        lightnet.compile(random_model(3), budget=seconds)


def test_a_budget_inside_of_another_is_its_own_only_where_it_says_so():
    with budget.limited(50) as outer:
        with budget.limited() as same, budget.limited(7) as other:
            assert same is outer and other.seconds == 7


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_ops_lengthen_a_budget_that_nobody_gave(count):
    """Half a second for each op, whatever their number, and until the budget is spent as well; a given one stays."""
    with budget.limited() as default:
        rest, end = default.seconds, default.end
        budget.for_ops(count)
        assert default.seconds - rest == count * 0.5 == pytest.approx(default.end - end)
        with budget.limited(3) as given:
            budget.for_ops(count)
        assert given.seconds == 3 and default.seconds == rest + count * 0.5
    budget.for_ops(count)  # of no budget: nothing to lengthen


def test_the_size_of_a_function_is_bounded_wherever_it_is_built():
    b = Builder.kernel("k", [])
    with budget.limited(1), pytest.raises(LightNetError, match="more than 1000 operations") as e:
        for _ in range(2000):
            b.op(arith.AddiOp, b.lo, b.hi)
    assert e.value.label == "compile.code" and len(b.block.ops) < 1400


DECONV = """
func.func @main() -> tensor<1x1x{rows}x{rows}xf32> {{
  %x = ln.input {{required = true}} : tensor<1x1x2x2xf32> as "i"("x")
  %w = ln.param {{required = true}} : tensor<1x1x3x3xf32> as "w"("w")
  %b = ln.param {{required = true}} : tensor<1xf32> as "b"("b")
  %y = ln.deconv2d %x, %w, %b {{size = [3, 3], stride = [{stride}, {stride}]}} : tensor<1x1x{rows}x{rows}xf32>
  func.return %y : tensor<1x1x{rows}x{rows}xf32>
}}
"""


@pytest.mark.parametrize("stride", [2, 500])
def test_strides_of_transposed_convolutions_are_not_written_out(stride):
    """10,000 x 10,000 phases of their own took minutes."""
    text = DECONV.format(stride=stride, rows=stride + 3)
    loops = lightnet.compile(loads(text, ".mlir"), layout="plain")._compilation.loops
    assert sum(1 for _ in loops.walk()) < 2000


def test_padding_is_not_written_out():
    text = """
func.func @main() -> tensor<1x1x1x40000xf32> {
  %x = ln.input {required = true} : tensor<1x1x1x4xf32> as "i"("x")
  %w = ln.param {required = true} : tensor<1x1x1x3xf32> as "w"("w")
  %b = ln.param {required = true} : tensor<1xf32> as "b"("b")
  %y = ln.conv2d %x, %w, %b {size = [1, 3], padding = [0, 19999, 0, 19999]} : tensor<1x1x1x40000xf32>
  func.return %y : tensor<1x1x1x40000xf32>
}
"""
    loops = lightnet.compile(loads(text, ".mlir"), layout="plain")._compilation.loops
    assert sum(1 for _ in loops.walk()) < 2000


ENDLESS = """
one {{ author: "x", arch: "none", optype: "one", params: [], custom: '{code}',
  tensors_in: [{{ arg_name: "src", mtype: "LN_MEM_NONE", dtypes: ["f32"] }}],
  tensors_out: [{{ arg_name: "dst", mtype: "LN_MEM_NONE", dims: "src->dims", dtype: "src->dtype" }}],
  run: "dst[i...] = src[i...]" }}
"""


@pytest.mark.parametrize(
    "code",
    [
        "for (;;) ;",
        "char b[900000]; for (;;) memset(b, 0, 900000);",
        'char b[900000]; char c[9]; for (;;) sprintf(c, "%s", b);',
    ],
)
def test_c_of_a_description_ends_however_often_it_is_tried(code, monkeypatch):
    monkeypatch.setattr(sampling, "STEPS", 30_000)
    (cls,) = (
        c for f in load_descriptions(read_description(ENDLESS.format(code=code), "x.op")).families.values() for c in f
    )
    assert cls.samples() == []
    assert work(lambda: sampling.described_cases(cls)) < 600_000


def test_a_text_ends_at_its_zero_and_begins_where_the_pointer_is():
    from lightnet_descriptions.c.values import CBuffer, Pointer, text_of

    buffer = CBuffer("char", [*"ab\0cd", "\0"])
    assert [text_of(Pointer(buffer, k)) for k in (0, 1, 2, 3)] == ["ab", "b", "", "cd"]


def test_spans_are_found_as_by_looking_at_all():
    import random

    class Span:
        def __init__(self, offset, size, upper):
            self.offset, self.size, self.upper = offset, size, upper

    rng = random.Random(1)
    for _ in range(50):
        spans, kept = Spans(), []
        for now in range(60):
            if rng.random() < 0.15 and kept:
                other, more = (
                    Spans(),
                    [Span(rng.randrange(40), rng.choice((0, 1, 3, 16)), now + rng.randrange(1, 9)) for _ in range(5)],
                )
                for s in more:
                    other.add(s)
                other.meeting(0, 99, 0, now)
                spans.absorb(other, 7)
                kept += more
            span = Span(rng.randrange(60), rng.choice((0, 1, 2, 5, 8, 40)), now + rng.randrange(1, 30))
            spans.add(span)
            kept.append(span)
            low, position = rng.randrange(-5, 60), rng.randrange(now + 1)
            high = low + rng.randrange(1, 30)
            want = {s for s in kept if s.upper > position and s.offset < high and low < s.offset + s.size}
            assert set(spans.meeting(low, high, position, now)) == want


@pytest.mark.slow
@pytest.mark.parametrize("op", ["deconv2d", "slice", "pad"])
def test_extreme_attributes_compile_soon(op):
    """`python tests/extreme_ops.py` looks at all ops; this at those that failed, or could."""
    script = Path(__file__).parents[1] / "extreme_ops.py"
    found = subprocess.run([sys.executable, script, "--op", op, "--of", "20"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
