"""`--check` of networks whose dims calls decide: each pass is executed on several calls, level 4 too, and a fault that only
some calls show is found, with the values of the symbols in the message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.cli import ln_opt
from lightnet.dialects.cuda_checks import block_of
from lightnet.dialects.launch import LaunchOp, kernel_symbols, kernels, launches
from lightnet.ir.context import make_context
from lightnet.ir.instances import symbols_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.names import PLACES
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import LnPass, parse_pipeline
from lightnet.ir.place import PlaceAttr
from lightnet.passes.lower_cpu import LowerCpuPass
from lightnet.passes.lower_cuda import LowerCudaPass
from lightnet.runtime.dims import Symbol, symbol
from lightnet_trust.calls import MAX_ELEMENTS, drawn_calls
from lightnet_trust.check import CheckOptions, PipelineVerdict, compare_modules, run_checked

DIMS = '#ln.dims<"batch(1..6), n(8..64 by 8)">'
NET = f"""
func.func @main() -> tensor<?x?xf32, {DIMS}> {{
  %x = ln.input : tensor<?x?xf32, {DIMS}> as ("x")
  %m = ln.input : tensor<?x?xf32, {DIMS}> as ("m")
  %a = ln.relu %x : tensor<?x?xf32, {DIMS}> as ("a")
  %s = ln.softmax %a {{axis = 1}} : tensor<?x?xf32, {DIMS}> as ("s")
  %y = ln.add %s, %m : tensor<?x?xf32, {DIMS}> as ("y")
  func.return %y : tensor<?x?xf32, {DIMS}>
}}
"""
PLANNED = {
    target: f"bind,simplify,expand{{target={target}}},combine{{target={target}}},choose{{target={target}}},schedule,plan{{target={target}}}"
    for target in ("cpu", "cuda")
}
LOWERINGS = {"cpu": LowerCpuPass, "cuda": LowerCudaPass}
targets = pytest.mark.parametrize("target", ["cpu", "cuda"])


def module() -> tuple[Context, ModuleOp]:
    ctx = make_context()
    return ctx, parse_mlir(ctx, NET, "net.mlir")


def checked(passes: list[LnPass], **options) -> PipelineVerdict:
    ctx, net = module()
    return run_checked(ctx, net, passes, CheckOptions(**options))


@targets
def test_the_pipeline_of_the_target_is_right_on_all_calls(target: str) -> None:
    verdict = checked([*parse_pipeline(PLANNED[target]), LOWERINGS[target]()])
    assert verdict.ok
    note, *more = verdict.notes
    count = {"cpu": 3, "cuda": 6}[target]  # a launch for each of the softmax's reductions
    assert note.startswith(f"lower-{target}: {count} of {count} kernel functions are executed")
    assert more == ([f"lower-cuda: {count} of them as threads, in the interpreter of PTX"] if target == "cuda" else [])


def test_strips_of_threads_are_right_on_all_calls() -> None:
    """Products of rows: kernels of 64 rows, of 8 and of one, each executed as threads in calls that have such strips."""
    text = """func.func @main() -> tensor<?x64xf32, #ln.dims<"n(1..80)">> {
      %x = ln.input : tensor<?x64xf32, #ln.dims<"n(1..80)">> as ("x")
      %w = ln.param : tensor<64x64xf32> as ("w")
      %y = ln.matmul %x, %w : tensor<?x64xf32, #ln.dims<"n(1..80)">> as ("y")
      func.return %y : tensor<?x64xf32, #ln.dims<"n(1..80)">>
    }"""
    passes = [*parse_pipeline(PLANNED["cuda"].replace("choose{target=cuda}", 'choose{target=cuda set="y.alg=simt"}'))]
    ctx = make_context()
    verdict = run_checked(ctx, parse_mlir(ctx, text, "net.mlir"), [*passes, LowerCudaPass()], CheckOptions())
    assert verdict.ok and "3 of them as threads" in verdict.notes[-1]


# -- calls


def test_calls_are_the_ugly_ones_within_the_bounds() -> None:
    """The lowest, odd ones that differ, vectors and what is beside them, the highest; multiples stay multiples."""
    _, net = module()
    calls = drawn_calls(net, symbols_of(net))
    assert calls[0] == {"batch": 1, "n": 8} and {"batch": 6, "n": 64} in calls
    assert all(1 <= c["batch"] <= 6 and c["n"] in range(8, 65, 8) for c in calls)
    assert len({tuple(c.items()) for c in calls}) == len(calls) >= 4
    assert {"batch": 3, "n": 8} in calls and {"batch": 1, "n": 64} not in calls[:1]


def test_a_call_that_is_too_large_is_not_drawn() -> None:
    ctx = make_context()
    text = NET.replace("n(8..64 by 8)", "n(8..8000000 by 8)")
    net = parse_mlir(ctx, text, "net.mlir")
    for call in drawn_calls(net, symbols_of(net)):
        assert 5 * call["batch"] * call["n"] <= MAX_ELEMENTS


def test_drawn_values_are_of_all_magnitudes() -> None:
    """Among calls of many seeds, as many values have one digit as have six."""
    ctx = make_context()
    net = parse_mlir(ctx, NET.replace(f", {DIMS}", "").replace("?x?", "2x8"), "net.mlir")
    symbols = {"n": Symbol("n", 1, 10**6)}
    fixed = set.intersection(*({call["n"] for call in drawn_calls(net, symbols, seed)} for seed in range(8)))
    drawn = [call["n"] for seed in range(300) for call in drawn_calls(net, symbols, seed) if call["n"] not in fixed]
    assert len(drawn) > 250
    for digits in range(1, 7):
        share = sum(len(str(n)) == digits for n in drawn) / len(drawn)
        assert 0.08 < share < 0.27, digits


def test_a_static_network_has_one_call_without_values() -> None:
    ctx = make_context()
    text = NET.replace(f", {DIMS}", "").replace("?x?", "2x8")
    assert drawn_calls(parse_mlir(ctx, text, "net.mlir"), {}) == [{}]


def test_symbols_are_found_in_types_and_in_kernels() -> None:
    _, net = module()
    assert symbols_of(net) == {"batch": Symbol("batch", 1, 6), "n": Symbol("n", 8, 64, 8)}
    assert symbol("n", 8, 64, 8).symbols == {symbols_of(net)["n"]}


# -- faults


class WrongAxis(LnPass):
    """Makes the softmax one along the wrong axis."""

    name = "wrong-axis"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in op.walk():
            if inner.name == "ln.softmax":
                inner.properties["axis"] = type(inner.properties["axis"])(0)


def test_a_wrong_pass_is_found_and_the_call_is_named() -> None:
    verdict = checked([*parse_pipeline("bind"), WrongAxis()])
    assert verdict.pass_name == "wrong-axis" and verdict.difference is not None
    assert verdict.difference.data == "data set 'ordinary', seed 0, where batch = 1, n = 8"
    assert "where batch = 1, n = 8" in verdict.error.render()


class WrongPlace(LnPass):
    """Puts what the first kernel makes to byte 128, where it stands in the smallest call, and something else in others."""

    name = "wrong-place"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first = next(o for o in op.walk() if isinstance(o, KernelOp))
        first.attributes[PLACES] = ArrayAttr([PlaceAttr("arena", 128)])


def test_memory_that_only_longer_calls_share_is_found() -> None:
    """A kernel that overwrites what another one reads."""
    verdict = checked([*parse_pipeline("bind,expand,choose,schedule,plan"), WrongPlace()])
    assert verdict.difference is not None and verdict.pass_name == "wrong-place"
    assert verdict.difference.data and "batch = 1, n = 8" not in verdict.difference.data


def changed_lowering(change: Callable[[ModuleOp], None], target: str = "cpu") -> LnPass:
    class Changed(LOWERINGS[target]):  # type: ignore[misc]
        def apply(self, ctx: Context, op: ModuleOp) -> None:
            super().apply(ctx, op)
            change(op)

    return Changed()


def taken_for(name: str, value: Callable[[SSAValue], list[Operation]]) -> Callable[[ModuleOp], None]:
    """Let kernels take another number for a symbol: the last of the ops that `value` makes of its own."""

    def change(net: ModuleOp) -> None:
        taken = 0
        for function in kernels(net).values():
            symbols, first = kernel_symbols(function), 0 if block_of(function) else 2
            block = function.body.block
            for argument in [block.args[first + symbols.index(name)]] if name in symbols else ():
                made = value(argument)
                argument.replace_all_uses_with(made[-1].results[0])
                block.insert_ops_before(made, block.first_op)
                for op in made:
                    op.operands = [argument if v is made[-1].results[0] else v for v in op.operands]
                taken += 1
        assert taken

    return change


def number(n: int) -> arith.ConstantOp:
    return arith.ConstantOp(IntegerAttr(n, IndexType()))


def less(n: int) -> Callable[[SSAValue], list[Operation]]:
    def made(value: SSAValue) -> list[Operation]:
        by = number(n)
        return [by, arith.SubiOp(value, by.result)]

    return made


@targets
def test_a_row_that_is_left_out_is_found(target: str) -> None:
    verdict = checked([*parse_pipeline(PLANNED[target]), changed_lowering(taken_for("batch", less(1)), target)])
    assert verdict.difference is not None and verdict.difference.kind == "value"
    assert "where batch = 1, n = 8" in verdict.difference.data


@targets
def test_the_code_of_one_call_is_found_wrong_in_another(target: str) -> None:
    """Right where n is 8, and the first calls have that."""
    lowering = changed_lowering(taken_for("n", lambda value: [number(8)]), target)
    verdict = checked([*parse_pipeline(PLANNED[target]), lowering])
    assert verdict.difference is not None and "n = 8" not in verdict.difference.data


@targets
def test_an_access_behind_a_tensor_is_found(target: str) -> None:
    """Memrefs of open length have that of their tensor in a call. Threads behind a tensor are beyond the grid, and do nothing, but in the last block."""
    verdict = checked([*parse_pipeline(PLANNED[target]), changed_lowering(taken_for("batch", less(-1)), target)])
    assert verdict.difference is not None and verdict.difference.kind == "fails"
    assert "fails: " in verdict.difference.what


def test_a_grid_that_is_too_small_is_found_where_there_are_more_blocks() -> None:
    def one_block(net: ModuleOp) -> None:
        for line in launches(net):
            if isinstance(line, LaunchOp):
                line.properties["grid"] = IntegerAttr(1, 64)

    verdict = checked([*parse_pipeline(PLANNED["cpu"]), changed_lowering(one_block)])
    assert verdict.difference is not None and "batch = 1," not in verdict.difference.data


def test_compared_modules_may_be_open() -> None:
    _, before = module()
    _, after = module()
    assert compare_modules(before, after) is None
    WrongAxis().apply(make_context(), after)
    difference = compare_modules(before, after)
    assert difference is not None and "batch = " in difference.data


# -- tools


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.mlir"
    path.write_text(NET)
    return path


@pytest.mark.parametrize("mode", ["--check", "--check=rewrite", "--bisect"])
def test_the_tool_checks_open_networks(net, mode, capsys) -> None:
    assert ln_opt.main([str(net), mode, "--pass=@cpu", "-o", str(net.parent / "out.mlir")]) == 0
    err = capsys.readouterr().err
    assert "not executed" not in err and "nothing is" not in err
    if "check" in mode:
        assert "where batch = 1, n = 8; batch = 3, n = 8;" in err and "batch = 6, n = 64" in err


def test_a_reproducer_replays_what_an_open_network_shows(net, capsys, tmp_path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from xdsl.pattern_rewriter import RewritePattern\n"
        "from lightnet.dialects.ln.unary import Neg\nfrom lightnet.ir.registry import pattern\n\n\n"
        '@pattern("expand", "cpu")\nclass ReluIsNeg(RewritePattern):\n    """relu(x) = -x"""\n\n'
        "    def match_and_rewrite(self, op, rewriter):\n        if op.name == 'ln.relu':\n"
        "            rewriter.replace(op, [Neg.make(list(op.operands))])\n"
    )
    words = ["--load", str(tmp_path / "wrong.py"), "--reproducer", str(tmp_path / "found.mlir")]
    assert ln_opt.main([str(net), "--check", "--pass=bind,expand,plan", *words]) == 1
    err = capsys.readouterr().err
    assert "pattern 'ReluIsNeg' of pass 'expand' changed the result" in err and "where batch = " in err
    assert ln_opt.main(["--run-reproducer", str(tmp_path / "found.mlir"), *words[:2]]) == 1
    assert "ReluIsNeg" in capsys.readouterr().err


def test_numbers_of_the_check_are_those_of_numpy() -> None:
    """What the check takes for right is: its outputs, on its own data, are NumPy's."""
    from lightnet_trust.baseline import Baseline

    _, net = module()
    for data, trace in Baseline(net, CheckOptions(("ordinary",))).runs:
        x, m = data.contents["x"].astype(np.float64), data.contents["m"]
        assert x.shape == (data.values["batch"], data.values["n"])
        e = np.exp(np.maximum(x, 0))
        np.testing.assert_allclose(trace.outputs[0].array, e / e.sum(1, keepdims=True) + m, rtol=1e-5, atol=1e-5)
