"""Products on target cuda, `simt` and `mma`: convolutions, dense layers and products of tensors in ugly shapes, epilogues, split sums and pinned
choices, in the PTX interpreter against the references; and networks against the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from cuda_cases import Graph
from cuda_maps import Maps
from cuda_plans import timed
from cuda_products import (
    CONVS,
    EPILOGUES,
    PRODUCTS,
    WAYS,
    Case,
    arguments,
    check,
    finished_conv,
    finished_product,
    made,
)
from kernels import agree
from sampling import draw
from xdsl.dialects.builtin import IntegerAttr, f16, i64
from xdsl.utils.exceptions import VerifyException

import lightnet
from lightnet.backends.cuda.device import DEVICES
from lightnet.backends.cuda.gemm import epilogue
from lightnet.backends.cuda.gemm.generator import MMA, SIMT, SIMT_TILES
from lightnet.backends.cuda.gemm.mma_core import product_tiles
from lightnet.backends.cuda.gemm.model import Pinned
from lightnet.backends.cuda.gemm.problem import match
from lightnet.backends.cuda.selection import SELECTION, choose
from lightnet.backends.cuda.simt import Simt
from lightnet.compilation import Compilation
from lightnet.diagnostics import LightNetError
from lightnet.executable import Executable
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import layout_of
from lightnet.ir.module import main_of
from lightnet.ir.target import Request
from lightnet.ir.views import alignment_of
from lightnet.passes import pipelines
from lightnet.runtime.dtypes import BY_NAME
from lightnet_debug.steps import steps_of

EXAMPLES = Path(__file__).parents[3] / "examples"
T = TypeVar("T")


def some(cases: Iterable[T], alg: str, dtype: str, splits: int = 1) -> list[T]:
    """Of each generator and type other cases: together they have every one."""
    return draw(cases, f"{alg} {dtype} {splits}", every=4, start=WAYS.index((alg, dtype)) + splits - 1)


@pytest.mark.parametrize("alg, dtype", WAYS)
def test_convolutions(alg, dtype):
    check([made(dtype, build) for build in some(CONVS.values(), alg, dtype)], alg)


@pytest.mark.parametrize("alg, dtype", WAYS)
def test_products(alg, dtype):
    check([made(dtype, Case.product, a, b) for a, b in some(PRODUCTS, alg, dtype)], alg)


def test_a_dense_layer_is_taken_on_maps_and_plain():
    kernels = check([made("f32", CONVS["a dense layer"])], "simt")
    assert [layout_of(k.results[0].type).is_plain for k in kernels] == [False, True]


# ---- epilogues -------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("alg, dtype, splits", [*((*way, 1) for way in WAYS), ("simt", "f32", 2), ("mma", "f16", 2)])
def test_epilogues(alg, dtype, splits):
    cases = []
    for finish in EPILOGUES.values():
        for src, out in [((2, 36, 5, 3), 7), ((1, 36, 4, 4), 16)]:
            cases.append((finished_conv, finish, src, out))
        cases.append((finished_product, finish, (2, 6, 36), (36, 9)))
    check([made(dtype, *case) for case in some(cases, alg, dtype, splits)], alg, splits=splits)


def test_split_sums_of_several_products():
    """Each product of a batch, and each group of a convolution, has parts, values that are added to it, and a place in
    the result of its own: of one and two of them, where to count them is easily left out."""
    by_matrix = lambda c, x, dims: c.op("add", c.op("mul", x, c.input(dims[0], 1, 9)), c.input(1, 5, 9))  # noqa: E731
    cases = [made("f32", finished_product, by_matrix, (n, 5, 20), (n, 20, 9)) for n in (1, 2)]
    grouped = made("f32", lambda c: c.op("relu", c.conv((1, 40, 1, 3), 24, (1, 1), group=2)))
    check([*cases, grouped], "simt", splits=2)


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("alg, dtype", WAYS)
def test_values_by_row_and_by_matrix(alg, dtype):
    """What attention adds: a mask for all heads, one by picture, a value for each row."""
    shapes = [(5, 9), (2, 1, 1, 9), (2, 1, 5, 1), (1, 3, 5, 9), (2, 3, 5, 9), (9,)]
    check([made(dtype, masked, shape) for shape in some(shapes, alg, dtype)], alg)


def masked(c: Case, mask: tuple[int, ...]) -> None:
    c.op("add", c.product((2, 3, 5, 8), (2, 3, 8, 9)), c.input(*mask))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_results_of_another_type(dtype):
    def build(c: Case) -> None:
        c.op("relu", c.op("cast", c.conv((1, 8, 4, 5), 12, (3, 3), padding=(1, 1, 1, 1)), dtype="TL_FLOAT"))

    check([made(dtype, build)], "mma")
    check([made("f32", lambda c: c.op("cast", c.product((6, 9), (9, 8)), dtype=BY_NAME[dtype].tl))], "simt")


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("optype", ["gelu", "exp", "tanh", "hard_swish", "leaky", "abs", "sqrt"])
def test_functions(optype):
    def build(c: Case) -> None:
        x = c.op("relu", c.product((5, 8), (8, 6)))
        c.op("lrelu", x, negslope=0.1) if optype == "leaky" else c.op(optype, x)

    check([made("f32", build)], "simt")


def _onto_itself(c: Case, src: tuple[int, ...], size: tuple[int, int]) -> None:
    """The convolution of a map, and the map."""
    y = c.conv(src, src[1], size, padding=(size[0] // 2, size[1] // 2) * 2)
    c.op("add", y, c.block.args[0])


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("alg, dtype", WAYS)
def test_what_is_multiplied_may_be_added(alg, dtype):
    cases = [((2, 8, 5, 4), (3, 3)), ((1, 7, 5, 4), (1, 1)), ((3, 12, 1, 1), (1, 1))]
    check([made(dtype, _onto_itself, *case) for case in cases], alg)
    check([made(dtype, lambda c: c.op("add", c.product((9, 6), (6, 6)), c.block.args[0]))], alg, splits=1)


def test_a_residual_may_be_the_result():
    """The memory of the operand that is added is that of the result; split and not, in whole vectors and not."""
    for out, splits in [(16, 1), (7, 1), (16, 3)]:
        case = made("f32", finished_conv, EPILOGUES["residual"], (1, 40, 5, 5), out)
        (kernel, *_) = case.kernels("simt", splits=splits)
        residual = len(kernel.operands) - 1
        regions = Aliased([kernel], {0: residual})
        (got,) = regions.run(0, arguments(case, kernel))
        agree(np.ascontiguousarray(got), case.want()[0], 1e-5)


class Aliased(Maps):
    """A region whose result takes an operand's memory."""

    def __init__(self, regions: Sequence[KernelOp], aliases: dict[int, int]):
        self.aliases, known = aliases, SELECTION.generate
        try:
            SELECTION.generate = lambda kernel, name, _: known(kernel, name, aliases)
            super().__init__(regions)
        finally:
            del SELECTION.generate

    def launch(self, number, memory) -> None:
        super().launch(number, memory | {("result", r): memory["operand", o] for r, o in self.aliases.items()})

    def run(self, number, arrays):
        taken: list[int] = []
        alloc = self.gpu.alloc
        self.gpu.alloc = lambda size: taken.append(alloc(size)) or taken[-1]
        super_result = Maps.result
        self.result = lambda address, value: super_result(self, taken[next(iter(self.aliases.values()))], value)
        try:
            return super().run(number, arrays)
        finally:
            self.gpu.alloc = alloc


# ---- tiles and choices -----------------------------------------------------------------------------------------------


def _tiles() -> list:
    """Those of the menus that are not too slow here; the others are as these."""
    small = [t for t in SIMT_TILES if t[0] * t[1] <= 128 * 64]
    fragments = [s for s in product_tiles(f16) if s[0] * s[1] <= 64 * 32]
    return [("simt", "f32", tile) for tile in small] + [("mma", "f16", tile) for tile in fragments[::2]]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("alg, dtype, tile", _tiles())
def test_every_tile(alg, dtype, tile):
    """By columns and by k, on more than one tile of rows and columns where these are small, with tails."""
    rows, cols = min(tile[0] + 3, 70), min(tile[1] + 5, 70)
    conv = made(dtype, Case.conv, (1, 28, 2, rows), cols, (1, 3))
    product = made(dtype, Case.product, (rows, 75), (75, cols))
    check([conv, product], alg, tile=tile, stages=3, splits=2 if tile[2] <= 32 else 1)


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_rings(stages):
    check([made("f32", Case.product, (9, 150), (150, 33))], "simt", tile=(32, 32, 16), stages=stages, splits=1)


def chosen(kernel: KernelOp, arch: str = "sm_80", **request) -> dict[str, object]:
    return {name: str(value) for name, value in choose(kernel, Request(arch, **request)).items()}


def numbers(*values: int) -> str:
    return str(choice_attr(values if len(values) > 1 else values[0]))


def test_choices_that_a_kernel_has_are_kept():
    case = made("f32", Case.conv, (1, 64, 14, 14), 64, (3, 3))
    (free,) = case.kernels("simt")
    assert {"tile", "stages", "splits"} <= chosen(free).keys()
    for choices in (
        {"tile": (64, 32, 16)},
        {"splits": 3},
        {"stages": 2},
        {"tile": (16, 64, 8), "splits": 5, "stages": 3},
    ):
        (kernel,) = case.kernels("simt", **choices)
        found = chosen(kernel)
        for name, value in choices.items():
            assert found[name] == numbers(*(value if isinstance(value, tuple) else (value,)))


@pytest.mark.parametrize(
    "name, value, label",
    [
        ("tile", (64, 32), "cuda.gemm.tile"), ("tile", 3, "cuda.gemm.tile"), ("tile", (0, 1, 2), "cuda.gemm.tile"),
        ("tile", (1, 1 << 30, 4), "cuda.gemm.tile"), ("tile", (64, 30, 16), "cuda.simt"), ("tile", (64, 32, 5), "cuda.simt"),
        ("tile", (3, 5, 7), "cuda.simt"), ("tile", (128, 256, 128), "cuda.gemm.stages"), ("tile", "large", "cuda.gemm.tile"),
        ("stages", 1, "cuda.gemm.stages"), ("stages", 99, "cuda.gemm.stages"), ("stages", (2, 3), "cuda.gemm.stages"),
        ("splits", 0, "cuda.gemm.splits"), ("splits", -1, "cuda.gemm.splits"), ("splits", 1 << 40, "cuda.gemm.splits"), ("splits", "many", "cuda.gemm.splits"),
        ("splits", 3, "cuda.gemm.splits"),
    ],
)  # fmt: skip
def test_bad_choices_are_refused(name, value, label):
    case = made("f32", Case.conv, (1, 8, 5, 5), 8, (1, 1))
    (kernel,) = case.kernels("simt", **{name: value})
    with pytest.raises(LightNetError) as error:
        choose(kernel, Request("sm_80"))
    assert error.value.label == label


def test_tensor_cores_need_whole_fragments():
    case = made("f16", Case.conv, (1, 8, 5, 5), 8, (1, 1))
    (kernel,) = case.kernels("mma", tile=(24, 8, 16))
    with pytest.raises(LightNetError) as error:
        choose(kernel, Request("sm_80"))
    assert error.value.label == "cuda.mma"


def test_rounding_is_asked_for():
    """Factors of f32 are rounded to tf32 only where the precision says so; f16 is always multiplied on tensor cores."""
    case = made("f32", Case.conv, (1, 64, 28, 28), 64, (3, 3))
    (kernel,) = case.kernels("simt")
    del kernel.attributes["alg"]
    assert chosen(kernel)["alg"] == '"simt"'
    assert chosen(kernel, precision="tf32")["alg"] == '"mma"'
    assert chosen(kernel, precision="tf32", exact=True)["alg"] == '"simt"'
    (short,) = made("f16", Case.conv, (1, 64, 28, 28), 64, (3, 3)).kernels("mma")
    del short.attributes["alg"]
    assert chosen(short)["alg"] == '"mma"'


@pytest.mark.parametrize(
    "build",
    [
        lambda c: c.conv((1, 6, 5, 5), 6, (3, 3), group=3),  # groups of two channels
        lambda c: c.op("relu", c.op("conv2d", x := c.input(1, 4, 1, 1), c.input(4, 4, 1, 1), c.input(4), size=(1, 1))) and x,
        lambda c: c.op("matmul", x := c.input(5, 5), x),  # seen in two ways
        lambda c: c.op("equal", c.product((3, 4), (4, 5)), c.input(3, 5)),  # no float
        lambda c: c.op("add", c.conv((2, 4, 3, 3), 4, (1, 1)), c.input(2, 4, 1, 1)),  # by picture and channel
        lambda c: c.product((3, 0), (0, 4)),
    ],
)  # fmt: skip
def test_what_is_left_to_others(build):
    case = made("f32", build)
    assert (case.forms("simt") == []) == (case.ops[-1].optype != "relu")


def test_doubles_are_left_to_loops():
    assert made("f64", Case.product, (3, 4), (4, 5)).forms("simt") == []


# ---- the model -------------------------------------------------------------------------------------------------------


def plan(generator, dtype: str, build: Callable[..., object], *args: object, arch: str = "sm_80"):
    case = made(dtype, build, *args)
    problem = match(case.ops, [case.ops[-1].results[0]])[0]
    return problem, *generator.family.best(problem, DEVICES[arch], Pinned())


def test_small_grids_are_split():
    """49 pixels of 512 channels are few tiles for so many processors, and K is 4608."""
    problem, _, found = plan(SIMT, "f32", Case.conv, (1, 512, 7, 7), 512, (3, 3))
    assert found.splits > 1 and found.blocks(problem) >= 64
    problem, _, found = plan(SIMT, "f32", Case.conv, (16, 64, 56, 56), 64, (3, 3))
    assert found.splits == 1


def test_one_row_takes_as_long_as_its_matrix_is_read():
    _, time, found = plan(SIMT, "f32", Case.product, (1, 4096), (4096, 4096))
    assert found.tile.rows == 1
    assert time < 2.5 * (4 * 4096 * 4096 / DEVICES["sm_80"].bytes) + 2 * DEVICES["sm_80"].launch


def test_large_products_take_large_tiles():
    for generator, dtype, share in ((SIMT, "f32", 0.5), (MMA, "f16", 0.3)):
        problem, time, found = plan(generator, dtype, Case.product, (4096, 512), (512, 4096))
        assert found.tile.rows * found.tile.cols >= 128 * 128 and found.splits == 1
        device = DEVICES["sm_80"]
        flops = 2 * problem.rows * problem.cols * problem.depth
        assert flops / time > share * (device.flops if dtype == "f32" else device.tensor[dtype]) / 2


# ---- what proves it --------------------------------------------------------------------------------------------------


@pytest.mark.interpreter
@pytest.mark.parametrize("what", ["barrier", "wait", "zeros", "lanes", "commit"])
def test_what_is_left_out_is_noticed(what, monkeypatch):
    """Without a barrier, without waiting, with what lies outside read, with lanes not filled: the interpreter, or the lanes, tell."""
    if what in ("barrier", "wait", "commit"):
        monkeypatch.setattr(Simt, what, lambda self, *args: None)
    elif what == "zeros":
        copy = Simt.async_copy
        monkeypatch.setattr(Simt, "async_copy", lambda self, *args: copy(self, *args[:5]))
    else:
        monkeypatch.setattr(epilogue._Piece, "_filled", lambda self, value: value)
    case = made("f32", finished_conv, lambda c, x, dims: c.op("exp", x), (1, 20, 5, 5), 7)
    with pytest.raises((LightNetError, AssertionError)):
        check([case], "simt", tile=(32, 32, 16), stages=3, splits=1)


# ---- networks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def products_first(monkeypatch):
    """All that it takes goes to `simt`, whatever the model says of networks so small."""
    timed(monkeypatch, SIMT, lambda kernel: 1.0)


@pytest.mark.sampled(every=2, share=0.2)
@pytest.mark.parametrize("net", ["cnn.net", "nets/lenet.net", "nets/mlp.net"])
@pytest.mark.parametrize("options", [{}, {"layout": "plain"}])
def test_a_network_has_the_results_of_the_cpu(net, options, products_first):
    on_cpu, on_cuda = (
        lightnet.compile(EXAMPLES / net),
        lightnet.compile(EXAMPLES / net, "cuda", emulate=True, **options),
    )
    kernels = [op for op in main_of(on_cuda.planned).body.block.ops if isinstance(op, KernelOp)]
    assert any(str(k.attributes.get("alg")) == '"simt"' for k in kernels) or (
        "plain" in options.values() and "mlp" not in net
    )
    rng = np.random.default_rng(0)
    feeds = {name: rng.random(dims, np.float32).astype(dtype) for name, (dims, dtype) in on_cpu.inputs.items()}
    for (name, got), want in zip(on_cuda(feeds).items(), on_cpu(feeds).values(), strict=True):
        assert want.std() > 0, name
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max(), err_msg=name)


#: The rows of a matrix begin four bytes behind a multiple of 16, and so do those of the product.
UNALIGNED = """
create(| dst=x | dtype=TL_FLOAT, dims=[601], data=[1], ran=[-1, 1], from_file=false);
create(| dst=w | dtype=TL_FLOAT, dims=[20, 12], data=[1], ran=[-1, 1], from_file=false);
create(| dst=z | dtype=TL_FLOAT, dims=[1], data=[1], ran=[-1, 1], from_file=false);
slice(src=x | dst=c | axis=0, start=1, len=600);
reshape(src=c | dst=a | dims=[30, 20]);
matmul(a=a, b=w | dst=r |);
reshape(src=r | dst=f | dims=[360]);
relu(src=z | dst=n |);
concat(src1=n, src2=f | dst=y | axis=0);
"""


def test_views_at_any_address(products_first):
    """A view stands where its elements do, which need be no multiple of what a thread copies at a time."""
    executable = lightnet.compile(lightnet.loads(UNALIGNED, ".net"), "cuda", emulate=True)
    kernels = [op for op in main_of(executable.planned).body.block.ops if isinstance(op, KernelOp)]
    (product,) = (k for k in kernels if k.attributes.get("alg") == choice_attr("simt"))
    assert alignment_of(product.operands) == alignment_of(product.results) == 4
    np.testing.assert_allclose(executable()["y"], lightnet.compile(lightnet.loads(UNALIGNED, ".net"))()["y"], atol=1e-5)


def test_copies_from_memory_that_is_not_aligned_are_refused(products_first):
    """A kernel says what its memory is aligned to; the verifier takes it at its word."""
    module = lightnet.compile(lightnet.loads(UNALIGNED, ".net"), "cuda").loops.clone()
    (kernel,) = (f for f in module.walk() if "tile.align" in f.attributes and "async_copy" in str(f))
    kernel.verify()
    kernel.attributes["tile.align"] = IntegerAttr(2, i64)
    with pytest.raises(VerifyException, match="multiple of 4 bytes"):
        kernel.verify()


def test_both_launches_of_a_split_product_belong_to_its_kernel():
    """What profiles and looks into networks runs them kernel by kernel, and finds the launches by their names."""
    graph = Graph()
    graph.conv(graph.input(1, 512, 4, 4), 512, 3)
    executable = Executable(
        Compilation(
            graph.module(), *pipelines.pipeline_of("cuda").parsed({"target": "cuda"}), make_context(), target="cuda"
        ),
        None,
        0,
    )
    steps = {step.op.ops[0].optype: step for step in steps_of(executable.planned, executable.loops)}
    conv = steps["conv2d"]
    assert str(conv.op.attributes["alg"]) == '"simt"' and len(conv.lines) == 2
