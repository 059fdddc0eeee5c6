"""Kernels of rows on target cuda: reductions, softmax and norms by teams of threads, in the PTX interpreter, where races, bounds and what was
never written are errors. The oracle is NumPy in float64, written here where an op's own reference might share a mistake."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import ptxas
import pytest
from cuda_maps import Maps, laid_out, map_forms
from cuda_plans import planned
from cuda_runs import Regions
from kernels import agree, op_of
from sampling import draw
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block

import lightnet
from lightnet.backends.cuda.rows.generator import ROWS
from lightnet.backends.cuda.selection import SELECTION, choose
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.body import Body, build_body
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.target import Request
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.runtime.dtypes import BY_NAME, is_float

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}
FLOATS = ("f32", "f16", "bf16", "f64")
INTS = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")
LENGTHS = (1, 2, 31, 32, 33, 1000, 5000)


def kernel_of(name: str, shapes: Sequence[tuple[int, ...]], dtype: str = "f32", **params) -> KernelOp:
    """A kernel around one op on tensors of these shapes."""
    block = Block(arg_types=[tensor_type(TensorSpec(s, BY_NAME[dtype])) for s in shapes])
    op = OPS[name].make(list(block.args), params, name=name)
    block.add_op(op)
    return CudaKernelOp.wrap([op])


def by_rows(kernel: KernelOp, **choices) -> KernelOp:
    """The kernel with the generator pinned, and with choices: those given, and the rest by the model. Nothing is pinned where nothing is
    reduced, as over an axis of length 1."""
    if not ROWS.takes(kernel.ops, list(kernel.terminator.operands)):
        return kernel
    kernel.attributes["alg"] = StringAttr("rows")
    kernel.attributes.update({k: choice_attr(v) for k, v in choices.items()})
    own = planned(ROWS, kernel).choices
    kernel.attributes.update({k: v for k, v in own.items() if k not in kernel.attributes})
    return kernel


def data_of(kernel: KernelOp, seed: int = 0) -> list[np.ndarray]:
    """Contents for the operands: floats around 0, all numbers of an integer type."""
    rng, found = np.random.default_rng(seed), []
    for value in kernel.operands:
        spec = spec_of(value.type)
        if spec.dtype.kind == "bool":
            found.append(rng.random(spec.dims) < 0.7)
        elif is_float(spec.dtype.np):
            found.append(rng.uniform(-2, 2, spec.dims).astype(spec.dtype.np))
        else:
            low, high = spec.dtype.limits
            found.append(rng.integers(low, high, spec.dims, dtype=spec.dtype.np, endpoint=True))
    return found


def check(kernels: Sequence[KernelOp], wants=None) -> None:
    """All kernels in one PTX module against the ops' references, or against `wants`."""
    regions = Regions(kernels)
    for number, kernel in enumerate(kernels):
        arrays = data_of(kernel, number)
        expected = kernel.ops[0].evaluate(arrays) if wants is None else wants(kernel, arrays)
        for got, want in zip(regions.run(number, arrays), expected, strict=True):
            agree(got, want, 1e-5)


# ---- every op -------------------------------------------------------------------------------------------------------


def taken(name: str) -> list[tuple[KernelOp, list[np.ndarray]]]:
    """The samples of an op that rows take."""
    found = []
    for i, sample in enumerate(OPS[name].samples()):
        op, arrays = op_of(OPS[name], sample, i)
        kernel = CudaKernelOp.wrap([op])
        if ROWS.takes(kernel.ops, list(kernel.terminator.operands)):
            found.append((by_rows(kernel), arrays))
    return found


#: What the generator is for; products of matrices and convolutions without padding come along.
REDUCTIONS = ("argmax", "argmin", "dot_product", "l2norm", "layernorm", "log_softmax", "maxreduce", "maxreduce_arg", "reduce_max",
              "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "rmsnorm", "softmax")  # fmt: skip


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_samples_agree_with_the_reference(name):
    cases = draw(taken(name), f"rows {name}", every=6)
    assert cases or name not in REDUCTIONS
    if not cases:
        return
    regions = Regions([kernel for kernel, _ in cases])
    for number, (kernel, arrays) in enumerate(cases):
        for got, want in zip(regions.run(number, arrays), kernel.ops[0].evaluate(arrays), strict=True):
            agree(got, want, 1e-5)


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_samples_on_maps_agree_with_the_reference(name):
    cases = []
    for i, sample in enumerate(OPS[name].samples()):
        op, arrays = op_of(OPS[name], sample, i)
        kernel = CudaKernelOp.wrap([op])
        cases += [
            (by_rows(laid_out(kernel, form, "rows")), arrays, op.evaluate(arrays)) for form in map_forms(kernel, "rows")
        ]
    cases = draw(cases, f"rows on maps {name}", every=6)
    if not cases:
        return
    regions = Maps([kernel for kernel, _, _ in cases])
    for number, (_, arrays, wants) in enumerate(cases):
        for got, want in zip(regions.run(number, arrays), wants, strict=True):
            agree(got, want, 1e-5)


# ---- lengths, axes, types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_along_rows_and_along_columns(length):
    """Contiguous rows, rows across, and one row alone."""
    few = 3 if length > 100 else 70
    kernels = [by_rows(kernel_of("softmax", [(few, length)], axis=1)), by_rows(kernel_of("softmax", [(length, few)], axis=0)),
               by_rows(kernel_of("layernorm", [(few, length)], axis=1)), by_rows(kernel_of("reduce_sum", [(length,)], axes=(0,))),
               by_rows(kernel_of("reduce_mean", [(2, length, few)], axes=(1,))),
               by_rows(kernel_of("argmax", [(few, length)], axis=1)), by_rows(kernel_of("maxreduce_arg", [(length, few)], axis=0)),
               by_rows(kernel_of("log_softmax", [(few, length)], axis=1))]  # fmt: skip
    check(draw(kernels, f"rows of {length}", every=3, start=length))


@pytest.mark.parametrize("shape", [(37,), (3, 37), (2, 5, 7), (2, 3, 4, 5), (2, 3, 1, 4, 5)])
def test_every_axis_of_every_rank(shape):
    kernels = []
    for axis in range(len(shape)):
        kernels += [
            by_rows(kernel_of(name, [shape], axis=axis)) for name in ("softmax", "argmin", "layernorm", "maxreduce_arg")
        ]
        kernels.append(by_rows(kernel_of("reduce_max", [shape], axes=(axis,))))
    pairs = [(0, k) for k in range(1, len(shape))] + ([(len(shape) - 1, 1)] if len(shape) > 2 else [])
    kernels += [by_rows(kernel_of("reduce_sum", [shape], axes=axes)) for axes in pairs]
    check(draw(kernels, f"axes of {shape}", every=3, start=len(shape)))


@pytest.mark.sampled(every=2, share=0.2)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "i1"])
def test_every_type(dtype):
    """Narrow types, wide ones, and bools go from lane to lane as 32 bits, and through shared memory as they are."""
    names = ["reduce_max", "reduce_min"] + (["reduce_sum", "reduce_prod"] if dtype != "i1" else [])
    if dtype not in ("i1", "i64", "ui64"):  # whose reference divides in f64
        names.append("reduce_mean")
    kernels = []
    for shape, axis in (((3, 40), 1), ((40, 3), 0), ((2, 1500), 1)):
        kernels += [
            by_rows(kernel_of(n, [shape], dtype, axes=(axis,))) for n in names if shape[1] < 100 or n != "reduce_prod"
        ]
        kernels += [by_rows(kernel_of(n, [shape], dtype, axis=axis)) for n in ("argmax", "maxreduce_arg")]
        if dtype in FLOATS:
            kernels += [by_rows(kernel_of(n, [shape], dtype, axis=axis)) for n in ("softmax", "l2norm")]
    check(draw(kernels, f"rows of {dtype}", every=7, start=(*FLOATS, *INTS, "i1").index(dtype)))


def test_sums_of_halves_are_in_single_precision():
    """4096 times 1 is 2048 where the sum is of f16, and overflows where halves of 60000 are added."""
    kernel = by_rows(kernel_of("reduce_mean", [(2, 4096)], "f16", axes=(1,)))
    got = Regions([kernel]).run(0, [np.stack([np.ones(4096), np.full(4096, 6e4)]).astype(np.float16)])
    np.testing.assert_array_equal(got[0].ravel(), np.array([1, 6e4], np.float16))


# ---- values ---------------------------------------------------------------------------------------------------------

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    "team",
    [("row", (4, 32)), ("row", (1, 128)), ("row", (16, 8)), ("row", (32, 1)), ("column", (32, 4)), ("column", (8, 8))],
)
def test_ties_and_what_is_no_number(team):
    """The first (or last) of equal extremes wins, a NaN wins over every number, rows of -inf have place 0."""
    rows = np.zeros((8, 67), np.float32)
    rows[0, [5, 37, 66]] = 3
    rows[1, [40, 8]] = NAN
    rows[1, 3] = INF
    rows[2] = -INF
    rows[3] = INF
    rows[4, 66] = NAN
    rows[5] = np.arange(67) % 3
    rows[6] = NAN
    rows[7, 0] = -0.0
    choices = {"order": team[0], "team": team[1]}
    make = [("argmax", {}), ("argmin", {}), ("argmax", {"last": True}), ("maxreduce_arg", {})]
    kernels = [by_rows(kernel_of(n, [rows.shape], axis=1, **p), **choices) for n, p in make]
    kernels.append(by_rows(kernel_of("reduce_max", [rows.shape], axes=(1,)), **choices))
    kernels.append(by_rows(kernel_of("reduce_min", [rows.shape], axes=(1,)), **choices))
    regions = Regions(kernels)
    got = [regions.run(k, [rows]) for k in range(len(kernels))]
    np.testing.assert_array_equal(got[0][0].ravel(), rows.argmax(1))
    np.testing.assert_array_equal(got[1][0].ravel(), rows.argmin(1))
    best = [np.flatnonzero((r == r.max()) | np.isnan(r))[-1] for r in rows]
    np.testing.assert_array_equal(got[2][0].ravel(), best)
    np.testing.assert_array_equal(got[3][1].ravel(), rows.argmax(1))
    np.testing.assert_array_equal(got[3][0].ravel(), rows.max(1))
    np.testing.assert_array_equal(got[4][0].ravel(), rows.max(1))
    np.testing.assert_array_equal(got[5][0].ravel(), rows.min(1))


def test_softmax_of_rows_that_are_no_numbers():
    """A row with a NaN or inf is NaN, large numbers do not overflow, -inf has no share; other rows are left alone."""
    rows = np.random.default_rng(0).uniform(-1, 1, (6, 100)).astype(np.float32)
    rows[1, 7], rows[2, 3], rows[3, 5:90], rows[4] = NAN, INF, -INF, rows[4] * 1e4
    got = Regions([by_rows(kernel_of("softmax", [rows.shape], axis=1))]).run(0, [rows])[0]
    wide = rows.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(wide - wide.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    assert np.isnan(got[1]).all() and np.isnan(got[2]).any()
    for k in (0, 3, 4, 5):
        np.testing.assert_allclose(got[k], want[k], rtol=1e-5, atol=1e-7)


# ---- choices --------------------------------------------------------------------------------------------------------

TEAMS = [("row", (128, 1)), ("row", (32, 4)), ("row", (4, 32)), ("row", (2, 64)), ("row", (1, 512)), ("column", (32, 1)), ("column", (32, 8)),
         ("column", (4, 16)), ("column", (1, 64)), ("column", (16, 32))]  # fmt: skip


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("order, team", TEAMS)
def test_every_team_gives_the_same(order, team):
    """Held in registers and not, with teams behind the last point, rows that are no multiple of the team."""
    choices = {"order": order, "team": team}
    kernels = [by_rows(kernel_of("softmax", [(37, 45)], axis=1), **choices), by_rows(kernel_of("softmax", [(45, 37)], axis=0), **choices),
               by_rows(kernel_of("layernorm", [(3, 2600)], axis=1), **choices), by_rows(kernel_of("maxreduce_arg", [(3, 2600)], axis=1), **choices),
               by_rows(kernel_of("reduce_sum", [(3, 50, 7)], "f64", axes=(0, 2)), **choices),
               by_rows(kernel_of("reduce_max", [(3, 50, 7)], "i8", axes=(1,)), **choices)]  # fmt: skip
    check(draw(kernels, f"team {order} {team}", every=3, start=TEAMS.index((order, team))))


PIECES = [2, 7, 64]


@pytest.mark.parametrize("pieces", PIECES)
def test_rows_in_pieces(pieces):
    """Launches that leave partial results for the next; pieces without an element, when there are more than elements."""
    choices = {"order": "row", "team": (2, 32), "pieces": pieces}
    shapes = [("softmax", (3, 1000), {"axis": 1}), ("layernorm", (2, 2048), {"axis": 1}), ("maxreduce_arg", (3, 1001), {"axis": 1}),
              ("argmin", (3, 1001), {"axis": 1}), ("reduce_mean", (5, 1000), {"axes": (0, 1)}), ("log_softmax", (3, 100), {"axis": 1}),
              ("reduce_sum", (4, 6, 50), {"axes": (0, 2)})]  # fmt: skip
    shapes = draw(shapes, f"rows in {pieces}", every=3, start=PIECES.index(pieces))
    check([by_rows(kernel_of(name, [shape], **params), **choices) for name, shape, params in shapes])
    columns = {"order": "column", "team": (16, 4), "pieces": pieces}
    check([by_rows(kernel_of("reduce_max", [(300, 37)], "f16", axes=(0,)), **columns),
           by_rows(kernel_of("softmax", [(300, 37)], axis=0), **columns)])  # fmt: skip


def test_partial_results_of_narrow_types():
    """A bool is a byte in memory, the sum of i8 wraps in each piece, and a NaN's place survives."""
    choices = {"order": "row", "team": (1, 32), "pieces": 3}
    check([by_rows(kernel_of("reduce_max", [(2, 500)], "i1", axes=(1,)), **choices),
           by_rows(kernel_of("reduce_sum", [(2, 500)], "i8", axes=(1,)), **choices),
           by_rows(kernel_of("maxreduce_arg", [(2, 500)], "i64", axis=1), **choices)])  # fmt: skip
    rows = np.zeros((2, 500), np.float32)
    rows[0, [499, 250]], rows[1] = NAN, -INF
    got = Regions([by_rows(kernel_of("maxreduce_arg", [(2, 500)], axis=1), **choices)]).run(0, [rows])
    np.testing.assert_array_equal(got[1].ravel(), [250, 0])


@pytest.mark.parametrize("choices, label", [
    ({"team": (3, 32)}, "team"), ({"team": (1, 16)}, "team"), ({"team": (64, 64)}, "team"), ({"order": "diagonal"}, "team"),
    ({"order": "column", "team": (64, 1)}, "team"), ({"width": 3}, "width"), ({"width": 0}, "width"), ({"pieces": 0}, "pieces"),
    ({"pieces": 1 << 20}, "pieces"), ({"team": (1, 2, 3)}, "team"), ({"width": "wide"}, "width"), ({"order": 7}, "order"),
])  # fmt: skip
def test_choices_that_cannot_be_are_refused(choices, label):
    kernel = kernel_of("softmax", [(8, 100)], axis=1)
    with pytest.raises(LightNetError) as error:
        by_rows(kernel, **choices)
    assert error.value.label == f"cuda.rows.{label}"


def test_code_is_not_written_out_for_whole_rows():
    """A thread takes some neighbours of a row at a time, for each of which there is code."""
    with pytest.raises(LightNetError) as error:
        by_rows(kernel_of("reduce_sum", [(2, 4096)], axes=(1,)), width=4096)
    assert error.value.label == "cuda.rows.width"


# ---- what it takes, and when it is chosen ----------------------------------------------------------------------------


def takes(name: str, shapes, **params) -> bool:
    kernel = kernel_of(name, shapes, **params)
    return bool(ROWS.takes(kernel.ops, list(kernel.terminator.operands)))


def test_windows_and_maps_are_left_to_others():
    assert not takes("maxpool2d", [(1, 3, 9, 9)], size=(3, 3), stride=(2, 2))
    assert not takes("avgpool2d", [(1, 3, 8, 8)], size=(2, 2), stride=(2, 2))
    assert not takes("relu", [(3, 4)])
    assert not takes("softmax", [(3, 0)], axis=1)
    assert takes("avgpool2d", [(1, 3, 7, 7)], size=(7, 7))


@pytest.mark.parametrize("name, shape, params", [
    ("softmax", (1, 1000), {"axis": 1}), ("softmax", (64, 128, 128), {"axis": 2}), ("reduce_sum", (1 << 24,), {"axes": (0,)}),
    ("layernorm", (512, 768), {"axis": 1}), ("avgpool2d", (1, 1280, 7, 7), {"size": (7, 7)}), ("argmax", (32, 1000), {"axis": 1}),
])  # fmt: skip
def test_it_is_chosen_for_reductions(name, shape, params):
    choices = choose(kernel_of(name, [shape], **params), Request())
    assert choices["alg"] == StringAttr("rows")


def test_few_long_rows_are_cut_and_many_short_ones_are_not():
    long = planned(ROWS, kernel_of("reduce_sum", [(1 << 22,)], axes=(0,))).choices
    short = planned(ROWS, kernel_of("reduce_sum", [(1 << 12, 1 << 10)], axes=(1,))).choices
    assert long["pieces"].value.data > 50 and short["pieces"].value.data == 1


def test_columns_are_read_along_rows():
    """Where points lie along memory, neighbours work on neighbouring points."""
    found = planned(ROWS, kernel_of("reduce_max", [(64, 1 << 12)], axes=(0,))).choices
    order, across = found["order"].data, found["team"].data[0].value.data
    assert across >= 32 or order == "column"


# ---- bodies, places, networks ----------------------------------------------------------------------------------------


def test_an_epilogue_is_part_of_the_kernel():
    """What is added to a global mean, and an activation; also where the result takes the memory of what is added."""
    specs = [TensorSpec((2, 5, 6, 7), BY_NAME["f32"]), TensorSpec((2, 5, 1, 1), BY_NAME["f32"])]
    block = Block(arg_types=[tensor_type(s) for s in specs])
    pool = OPS["avgpool2d"].make([block.args[0]], {"size": (6, 7)}, name="pool")
    added = OPS["add"].make([pool.results[0], block.args[1]], {}, name="added")
    relu = OPS["relu"].make([added.results[0]], {}, name="relu")
    for op in (pool, added, relu):
        block.add_op(op)
    fused = CudaKernelOp.wrap([pool, added, relu])
    fused.terminator.operands = [fused.terminator.operands[-1]]
    fused = build_body(Body.of(fused), CudaKernelOp)
    arrays = data_of(fused)
    want = np.maximum(arrays[0].astype(np.float64).mean((2, 3), keepdims=True) + arrays[1], 0).astype(np.float32)
    for aliases in ({}, {0: 1}):
        agree(InPlace([by_rows(fused, team=(2, 64))], aliases).run(0, arrays)[0], want, 1e-5)


class InPlace(Regions):
    """Regions whose results take the memory of operands."""

    def __init__(self, regions, aliases: dict[int, int]):
        self.aliases = aliases
        generate, SELECTION.generate = SELECTION.generate, lambda k, name, _: generate(k, name, aliases)
        try:
            super().__init__(regions)
        finally:
            del SELECTION.generate

    def launch(self, number: int, memory) -> None:
        for result, operand in self.aliases.items():
            memory["result", result] = memory["operand", operand]
        super().launch(number, memory)


def test_channels_behind_the_last_are_zero_on_maps():
    """Global pools and a softmax over channels, of 1, 3, 4 and 5 channels (`Maps` looks at the lanes behind the last one)."""
    cases = []
    for channels in (1, 3, 4, 5):
        for name, params in (("avgpool2d", {"size": (6, 5)}), ("softmax", {"axis": 1}), ("softmax", {"axis": 3}),
                             ("reduce_max", {"axes": (2, 3)}), ("reduce_sum", {"axes": (1,)}), ("argmax", {"axis": 1})):  # fmt: skip
            kernel = kernel_of(name, [(2, channels, 6, 5)], **params)
            cases += [by_rows(laid_out(kernel, form, "rows")) for form in map_forms(kernel, "rows")]
    assert len(cases) == 21, "all but what runs over one channel"
    regions = Maps(cases)
    for number, kernel in enumerate(cases):
        arrays = data_of(kernel, number)
        for got, want in zip(regions.run(number, arrays), kernel.ops[0].evaluate(arrays), strict=True):
            agree(got, want, 1e-5)


# ---- what proves it --------------------------------------------------------------------------------------------------


@pytest.mark.interpreter
def test_the_barrier_is_missed(monkeypatch):
    """Without the barrier between the warps of a team the interpreter finds the race."""
    monkeypatch.setattr(Simt, "barrier", lambda self: None)
    kernel = by_rows(kernel_of("reduce_sum", [(2, 500)], axes=(1,)), order="row", team=(1, 128))
    with pytest.raises(LightNetError, match=r"race|never written"):
        Regions([kernel]).run(0, data_of(kernel))


@pytest.mark.optimized
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_no_register_spills(arch):
    """Rows held in registers, of the types and widths that take most of them."""
    ptxas.require()
    kernels = [by_rows(kernel_of("softmax", [(64, 4096)], t, axis=1)) for t in FLOATS]
    kernels += [by_rows(kernel_of("softmax", [(4, 8192)], axis=1), team=(1, 256), width=4), by_rows(kernel_of("softmax", [(4, 8192)], axis=1), team=(1, 512)),
                by_rows(kernel_of("layernorm", [(512, 768)], axis=1)), by_rows(kernel_of("softmax", [(2, 21, 64, 64)], axis=1)),
                by_rows(kernel_of("maxreduce_arg", [(32, 1000)], "f64", axis=1)), by_rows(kernel_of("reduce_sum", [(1 << 22,)], axes=(0,))),
                by_rows(kernel_of("softmax", [(2, 1 << 20)], axis=1))]  # fmt: skip
    regions = Regions(kernels)
    made = ptxas.assembled(regions.program.text, arch)
    assert len(made.kernels) == sum(len(launches) for launches in regions.launches)
    assert not [name for name, used in made.kernels.items() if used.spills or used.stack]


@pytest.mark.optimized
def test_rows_are_read_by_vectors():
    """Four elements of f32, or eight of f16, are one access, both ways."""
    for dtype in ("f32", "f16"):
        text = Regions([by_rows(kernel_of("softmax", [(64, 4096)], dtype, axis=1))]).program.text
        assert "ld.global.nc.v4" in text and "st.global.v4" in text
        assert "st.global.b32" not in text and "st.global.b16" not in text


NET = """
create(| dst=x | dtype=TL_FLOAT, dims=[2, 6, 5, 7], data=[1], ran=[-1, 1], from_file=false);
relu(src=x | dst=r |);
softmax(src=r | dst=s | axis=1);
avgpool2d(src=s | dst=p | size=[5, 7], stride=[1, 1], padding=[0, 0, 0, 0]);
reshape(src=p | dst=q | dims=[2, 6]);
softmax(src=q | dst=y | axis=1);
argmax(src=s | dst=z | axis=1);
"""


@pytest.mark.parametrize("where", ["emulate", "on_cpu"])
def test_a_network_has_the_results_of_the_cpu(where):
    on_cpu = lightnet.compile(lightnet.loads(NET, ".net"))
    on_cuda = lightnet.compile(lightnet.loads(NET, ".net"), "cuda", **{where: True})
    assert "cuda.shuffle" in str(on_cuda.loops) or where == "on_cpu"
    feeds = {name: np.random.default_rng(0).uniform(-1, 1, dims).astype(t) for name, (dims, t) in on_cpu.inputs.items()}
    got, want = on_cuda(feeds), on_cpu(feeds)
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-7)


def test_long_rows_as_loops_on_a_processor():
    """Full size, in pieces, by another way than the PTX interpreter's."""
    text = "create(| dst=x | dtype=TL_FLOAT, dims=[2, 300000], data=[1], ran=[-1, 1], from_file=false);\nsoftmax(src=x | dst=y | axis=1);\n"
    executable = lightnet.compile(lightnet.loads(text, ".net"), "cuda", on_cpu=True)
    x = np.random.default_rng(0).uniform(-9, 9, (2, 300000)).astype(np.float32)
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(executable({"x": x})["y"], e / e.sum(1, keepdims=True), rtol=1e-5)
