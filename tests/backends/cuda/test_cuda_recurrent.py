"""Recurrent layers on target cuda (`recurrent`): a block of threads a sequence, in the PTX interpreter, where races, bounds and what was never
written are errors. The oracles are the ops' references, NumPy in float64, and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import ptxas
import pytest
from cuda_plans import planned
from cuda_runs import Regions
from kernels import agree, op_of
from sampling import draw
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block

import lightnet
from lightnet.backends.cuda.device import DEVICES, device_of
from lightnet.backends.cuda.recurrent import RECURRENT
from lightnet.backends.cuda.selection import SELECTION, choose
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.cuda_checks import ARCHS
from lightnet.dialects.cuda_launch import dynamic_shared
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.target import Request
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.ir.verify import verify_module
from lightnet.runtime.dtypes import BY_NAME
from lightnet_debug.steps import steps_of

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
#: An op with parameters of each kind of step: one product, two of them, params of units, one gate.
KINDS = (("lstm", {}), ("gru", {}), ("gru", {"linear_before_reset": True}), ("rnn", {}))
HIDDEN, LENS = (1, 3, 33, 130), (5, 0, 1, 9, -1, 3)


def layer(
    name: str, steps: int, batch: int, hidden: int, dtype: str = "f32", choices=None, yields=None, **params
) -> KernelOp:
    """A kernel of one layer, pinned to `recurrent` with these choices; `yields` are the numbers of the results that leave it."""
    gates = GATES[name] * hidden
    shapes = [(steps, batch, gates), (hidden, gates), (batch, hidden), (batch,)]
    shapes += {"lstm": [(batch, hidden), (3 * hidden,)], "gru": [(hidden,)], "rnn": []}[name]
    specs = [TensorSpec(s, BY_NAME["i32" if k == 3 else dtype]) for k, s in enumerate(shapes)]
    block = Block(arg_types=[tensor_type(s) for s in specs])
    op = optypes()[name].make(list(block.args), params, name=name)
    block.add_op(op)
    if yields is None:
        kernel = CudaKernelOp.wrap([op])
    else:
        kernel = CudaKernelOp.around(block, Block(arg_types=block.arg_types).args, [op.results[k] for k in yields])
    return pinned(kernel, **(choices or {}))


def pinned(kernel: KernelOp, **choices) -> KernelOp:
    """The kernel with the generator pinned, and with choices: those given, and the rest by the model."""
    kernel.attributes["alg"] = StringAttr("recurrent")
    kernel.attributes.update({k: choice_attr(v) for k, v in choices.items()})
    own = planned(RECURRENT, kernel).choices
    kernel.attributes.update({k: v for k, v in own.items() if k not in kernel.attributes})
    return kernel


def data_of(kernel: KernelOp, seed: int, lens: Sequence[int] = LENS) -> list[np.ndarray]:
    """Contents of the operands; weights are so small that states neither vanish nor saturate."""
    (op,), rng, found = kernel.ops, np.random.default_rng(seed), []
    for field, spec in zip(op.schema.operands, op.operand_specs, strict=True):
        if field.name == "lens":
            found.append(np.resize(np.array(lens, np.int32), spec.dims))
        else:
            scale = 1 / np.sqrt(op.sizes[2]) if field.name == "weight" else 1
            found.append((rng.uniform(-1, 1, spec.dims) * scale).astype(spec.dtype.np))
    return found


def check(kernels: Sequence[KernelOp], lens: Sequence[int] = LENS) -> None:
    """All kernels in one PTX module against the ops' references."""
    regions = Regions(kernels)
    for number, kernel in enumerate(kernels):
        (op,), arrays = kernel.ops, data_of(kernel, number, lens)
        wants = dict(zip(op.results, op.evaluate(arrays), strict=True))
        for got, value in zip(regions.run(number, arrays), kernel.terminator.operands, strict=True):
            agree(got, wants[value], 1e-5 if got.dtype == np.float32 else 1e-12)


# ---- what it computes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GATES))
def test_samples_agree_with_the_reference(name):
    """Both types, all activations, clipping, peepholes, time in both directions."""
    cases = [op_of(optypes()[name], sample, i) for i, sample in enumerate(optypes()[name].samples())]
    regions = Regions([pinned(CudaKernelOp.wrap([op])) for op, _ in cases])
    for number, (op, arrays) in enumerate(cases):
        for got, want in zip(regions.run(number, arrays), op.evaluate(arrays), strict=True):
            agree(got, want, 1e-5)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("name, params", KINDS)
def test_sizes_and_lengths(name, params, hidden):
    """Lengths of 0, 1, some, all, too many and less than no steps, in both directions."""
    check(
        [layer(name, 5, batch, hidden, reverse=reverse, **params) for batch, reverse in product((1, 6), (False, True))]
    )


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("name, params", KINDS)
def test_double_precision(name, params):
    sizes = draw(HIDDEN, f"f64 {name} {params}", every=2, start=KINDS.index((name, params)))
    check([layer(name, 4, 3, hidden, "f64", reverse=True, clip=0.5, **params) for hidden in sizes])


#: Threads, sequences of a block, whether weights are held: one warp for several columns and units each; slices with and without a rest; blocks
#: with fewer sequences than others.
WAYS = [(32, 1, 0), (64, 2, 0), (96, 3, 0), (1024, 1, 0), (128, 1, 1), (416, 4, 1)]


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("name, params", KINDS)
def test_every_way_gives_the_same(name, params):
    """Also where the time of sequences of several lengths runs backward in one block."""
    found = [{"units": 0, "threads": t, "sequences": s, "held": h} for t, s, h in WAYS]
    drawn = draw(enumerate(found), f"ways {name} {params}", every=4, start=KINDS.index((name, params)))
    check([layer(name, 5, 7, 33, choices=way, reverse=bool(k % 2), **params) for k, way in drawn])
    some = found[1::4]
    check([layer(name, 3, 5, 20, "f64", way, reverse=bool(k % 2), **params) for k, way in enumerate(some)], (3, 1, 2))


#: Units, threads and sequences of a block, whether weights are held: the last blocks have fewer units, or sequences, than the others.
STEPS = [(4, 128, 1, 0), (4, 128, 1, 1), (8, 256, 2, 1), (32, 128, 3, 0), (16, 512, 4, 1)]


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("name, params", KINDS)
def test_steps_that_are_launches_give_the_same(name, params):
    found = [dict(zip(("units", "threads", "sequences", "held"), way)) for way in STEPS]
    kernels = [
        layer(name, 4, 7, (33, 36, 130)[k % 3], choices=way, reverse=bool(k % 2), **params)
        for k, way in enumerate(found)
    ]
    check(draw(kernels, f"steps {name} {params}", every=4, start=KINDS.index((name, params))))
    regions = Regions(kernels[:1])
    count = len(kernels[0].ops[0].products())
    assert len(regions.launches[0]) == 1 + 4 * count
    assert len({launch.function for launch in regions.launches[0]}) == 1 + count, (
        "functions that are launched four times"
    )


def test_states_go_where_they_are_read():
    """One step alone, from the initial to the last state; states that nobody reads; f64, whose accesses are of two elements."""
    way = {"units": 4, "threads": 128, "sequences": 2, "held": 1}
    check([layer("lstm", 1, 5, 20, choices=way), layer("lstm", 1, 3, 20, choices=way, yields=(2,)), layer("lstm", 2, 5, 20, "f64", way),
           layer("lstm", 3, 2, 21, choices=way, yields=(0,)), layer("rnn", 3, 2, 20, choices=way, yields=(1,)), layer("gru", 1, 2, 20, choices=way, yields=(1,))], (3, 1, 0))  # fmt: skip


def test_many_units_a_thread():
    """130 units of a warp, and 520 gate outputs: several turns of both."""
    few = {"units": 0, "threads": 64, "sequences": 1, "held": 0}
    check([layer(name, 3, 2, 130, choices=few, **params) for name, params in KINDS], (3, 2))


@pytest.mark.parametrize("yields", [(0,), (1,), (2,), (2, 0)])
def test_results_that_nobody_reads_are_not_written(yields):
    check([layer("lstm", 4, 2, 9, yields=yields, reverse=reverse) for reverse in (False, True)])


def test_no_steps_leave_the_state():
    check([layer("lstm", 0, 2, 5), layer("gru", 0, 1, 33), layer("rnn", 3, 3, 4)], (0,))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_states_of_less_than_an_access_verify(dtype):
    """No slice of the weights reaches beyond them, in code of no trips either: with any sizes, held or not."""
    for (name, params), hidden, held in product(KINDS, (1, 2, 3, 5), (0, 1)):
        way = {"units": 0, "threads": 32, "sequences": 1, "held": held}
        for launch in SELECTION.generate(layer(name, 2, 1, hidden, dtype, way, **params), "k", {}):
            verify_module(ModuleOp([*launch.functions]))


def test_what_is_not_finite_stays_in_its_sequence():
    """Weights that are infinite, and a state that is no number, whether rows of weights are made up behind the last or not."""
    for held in (False, True):
        kernel = layer(
            "rnn", 2, 3, 33, choices={"units": 0, "threads": 192, "sequences": 3, "held": held}, f="affine", alpha=1.0
        )
        arrays = data_of(kernel, 0, (2,))
        arrays[1][32, 7], arrays[2][1, 5] = np.inf, np.nan
        got = Regions([kernel]).run(0, arrays)
        with np.errstate(invalid="ignore"):
            wants = kernel.ops[0].evaluate(arrays)
        for found, want in zip(got, wants, strict=True):
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))
            np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
            np.testing.assert_allclose(found[..., 0, 8:], want[..., 0, 8:], rtol=1e-5, atol=1e-6)


# ---- networks --------------------------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, *dims: int) -> np.ndarray:
    return rng.standard_normal(dims).astype(np.float32)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("where", ["emulate", "on_cpu"])
@pytest.mark.parametrize("kind, hidden", [("LSTM", 34), ("GRU", 34), ("RNN", 34), ("LSTM", 260), ("GRU", 512)])
def test_layers_of_onnx_agree_with_its_runtime(kind, hidden, where):
    """Both directions, biases, initial states, lengths, peepholes; steps that are launches, which wait for each other and not for those of the
    other direction."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, rng, (steps, batch, size) = onnx.helper, np.random.default_rng(0), (5, 3, 7)
    gates = GATES[kind.lower()]
    weights = {"w": normal(rng, 2, gates * hidden, size) / 2, "r": normal(rng, 2, gates * hidden, hidden) / hidden**0.5,
               "b": normal(rng, 2, 2 * gates * hidden), "h": normal(rng, 2, batch, hidden)}  # fmt: skip
    inputs, outputs = ["x", "w", "r", "b", "lens", "h"], ["y", "last"]
    if kind == "LSTM":
        weights |= {"c": normal(rng, 2, batch, hidden), "p": normal(rng, 2, 3 * hidden)}
        inputs, outputs = [*inputs, "c", "p"], [*outputs, "cell"]
    feeds = {"x": normal(rng, steps, batch, size), "lens": np.array([5, 1, 2], np.int32)}
    node = helper.make_node(kind, inputs, outputs, direction="bidirectional", hidden_size=hidden, clip=1.5)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()],
    )  # fmt: skip
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    want = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(outputs, feeds)
    executable = lightnet.compile(data, "cuda", **{where: True})
    loops = str(executable.loops)
    assert where == "on_cpu" or loops.count("cuda.barrier") >= 6 or loops.count("cuda.launch @") > 2 * steps
    if where == "emulate":  # however often a function is launched, a profile knows whose it is
        lines = [
            len(s.lines) for s in steps_of(executable.planned, executable.loops) if s.op.ops[0].optype == kind.lower()
        ]
        assert lines == ([1, 1] if hidden < 100 else [1 + steps * (1 + (kind == "GRU"))] * 2)
    got = executable(feeds)
    for name, array in zip(outputs, want, strict=True):
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)


# ---- choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, params", KINDS)
@pytest.mark.parametrize(
    "steps, batch, hidden", [(1, 1, 1), (100, 1, 64), (50, 32, 256), (10, 1, 2048), (20, 2000, 128)]
)
def test_it_is_chosen(name, params, steps, batch, hidden):
    kernel = layer(name, steps, batch, hidden, **params)
    kernel.attributes.clear()
    assert choose(kernel, Request())["alg"] == StringAttr("recurrent")


def test_what_the_model_chooses():
    """The weights of 64 units are held by a block, those of 512 are read by many, a launch a step; a large batch shares what is read."""
    small, large, many = (
        planned(RECURRENT, layer("lstm", 9, b, h), device_of("sm_90")).choices
        for b, h in ((1, 64), (1, 512), (4000, 96))
    )
    assert small["units"].value.data == 0 and small["held"].value.data == 1 and small["sequences"].value.data == 1
    assert large["units"].value.data > 0
    assert many["units"].value.data == 0 and many["sequences"].value.data > 1
    for kernel in (layer("gru", 600, 1, 512), layer("lstm", 5000, 1, 512), layer("lstm", 0, 1, 512)):
        own = planned(RECURRENT, kernel, device_of("sm_90")).choices
        assert own["units"].value.data == 0, "too many lines, and no step that writes the state"


def test_a_way_for_a_larger_device_is_built():
    """What is chosen for sm_90 may take more shared memory than sm_80 has."""
    way = {"units": 0, "threads": 1024, "sequences": 12, "held": 0}
    kernel = layer("lstm", 2, 12, 256)
    kernel.attributes.update({k: choice_attr(v) for k, v in way.items()})
    assert dynamic_shared(SELECTION.generate(kernel, "k", {})[0].function) > ARCHS["sm_80"]
    with pytest.raises(LightNetError):
        planned(RECURRENT, kernel, device_of("sm_80"))


def test_more_steps_more_sequences_and_more_units_cost_more():
    for arch in DEVICES:
        sizes = [(10, 1, 32), (100, 1, 32), (100, 1, 300), (100, 5000, 300)]
        costs = [planned(RECURRENT, layer("lstm", *s), device_of(arch)).time for s in sizes]
        assert costs == sorted(set(costs))


def _body(kernel: KernelOp):
    return kernel.ops, list(kernel.terminator.operands)


@pytest.mark.parametrize("choices, label", [
    ({"threads": 48}, "threads"), ({"threads": 0}, "threads"), ({"threads": 2048}, "threads"), ({"threads": "many"}, "threads"),
    ({"sequences": 0}, "sequences"), ({"sequences": 3}, "sequences"), ({"sequences": (1, 2)}, "sequences"), ({"held": "yes"}, "held"),
    ({"threads": 32, "units": 0}, "threads"), ({"threads": 256, "held": 1, "units": 0}, "held"), ({"units": 6}, "units"), ({"units": -4}, "units"),
    ({"units": 1 << 40}, "units"), ({"units": 64, "threads": 32}, "threads"), ({"units": 64, "threads": 64, "sequences": 2}, "sequences"),
])  # fmt: skip
def test_choices_that_cannot_be_are_refused(choices, label):
    with pytest.raises(LightNetError) as error:
        layer("lstm", 5, 2, 512, choices=choices)
    assert error.value.label == f"cuda.recurrent.{label}"


REASONS = {
    "threads": ((-32, 0, 1, 31, 33, 1025, 1056), "they are whole warps of 32, and at most 1024"),
    "sequences": ((-1, 0, 3, 5), "a block runs 1 to 2 of the 2 sequences"),
    "units": ((-64, -1), "a multiple of an access; there are at most 1024 launches, one a product"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "number"), [(name, n) for name, (numbers, _) in REASONS.items() for n in numbers])
def test_numbers_that_cannot_be_are_refused_for_what_they_are(name, number):
    """Not for what they leave no room for."""
    with pytest.raises(LightNetError) as error:
        layer("lstm", 5, 2, 33, choices={name: number})
    assert error.value.message == f"{name} = {number} : i64: {REASONS[name][1]}"


def test_layers_that_a_block_has_no_room_for_are_left_to_others():
    """The states and sums of 5000 units; and what is no layer that stands alone."""
    block = Block(arg_types=[tensor_type(TensorSpec(s, BY_NAME[t])) for s, t in
                             [((1, 1, 5000), "f32"), ((5000, 5000), "f32"), ((1, 5000), "f32"), ((1,), "i32")]])  # fmt: skip
    op = optypes()["rnn"].make(list(block.args), {}, name="rnn")
    assert not RECURRENT.takes([op], list(op.results))
    small = layer("rnn", 2, 2, 3)
    (rnn,) = small.ops
    relu = optypes()["relu"].make([rnn.results[0]], {}, name="relu")
    assert RECURRENT.takes([rnn], [rnn.results[0]]) and not RECURRENT.takes([rnn, relu], list(relu.results))
    assert not RECURRENT.takes([rnn], [rnn.results[0], rnn.results[0]]) and not RECURRENT.takes(
        [relu], list(relu.results)
    )
    relu.erase()


# ---- what proves it --------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.interpreter
@pytest.mark.parametrize(
    "name, params, barriers",
    [("lstm", {}, 3), ("rnn", {}, 3), ("gru", {}, 5), ("gru", {"linear_before_reset": True}, 3)],
)
@pytest.mark.parametrize("held", [False, True])
def test_each_barrier_is_missed(name, params, barriers, held, monkeypatch):
    """Without any one of the barriers the interpreter finds a race."""
    kernel = layer(name, 3, 2, 40, choices={"units": 0, "threads": 128, "sequences": 1, "held": held}, **params)
    assert_each_is_missed(kernel, barriers, monkeypatch)


@pytest.mark.interpreter
@pytest.mark.parametrize("name, barriers", [("lstm", 2), ("gru", 4)])
def test_each_barrier_of_a_step_is_missed(name, barriers, monkeypatch):
    kernel = layer(name, 3, 2, 40, choices={"units": 8, "threads": 128, "sequences": 1})
    assert_each_is_missed(kernel, barriers, monkeypatch)


def assert_each_is_missed(kernel: KernelOp, barriers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of its barriers a kernel is at fault."""
    arrays, barrier = data_of(kernel, 0, (3,)), Simt.barrier
    for left_out in range(barriers):
        made = iter(range(99))
        monkeypatch.setattr(Simt, "barrier", lambda b: None if next(made) == left_out else barrier(b))  # noqa: B023
        regions = Regions([kernel])
        assert next(made) == barriers
        with pytest.raises(LightNetError, match=r"race|never written"):
            regions.run(0, arrays)


@cache
def chosen_by_the_model() -> tuple[str, frozenset[str]]:
    """Layers of many sizes as PTX, and the entries."""
    sizes = [(1, 33), (1, 64), (1, 100), (1, 128), (64, 256), (1, 512), (500, 128), (1, 1024)]
    kernels = [layer(name, 50, b, h, **params) for (name, params), (b, h) in product(KINDS, sizes)]
    kernels += [layer(name, 50, b, h, "f64") for name, b, h in (("lstm", 1, 64), ("gru", 8, 200), ("rnn", 300, 64))]
    program = Regions(kernels).program
    return program.text, frozenset(program.entries.values())


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_no_register_spills(arch):
    """What the model chooses: weights that are held, read ahead, shared by sequences, or by launches. Some of it is in `test_ptxas.py` always."""
    ptxas.require()
    text, entries = chosen_by_the_model()
    made = ptxas.assembled(text, arch)
    assert made.kernels.keys() == entries
    assert not [name for name, used in made.kernels.items() if used.spills or used.stack]


@pytest.mark.optimized
@pytest.mark.parametrize("held", [False, True])
def test_weights_are_read_by_vectors(held):
    """Four of f32 at a time, and the states, too; where they are held, all before the first step."""
    text = Regions([layer("lstm", 50, 1, 64, choices={"units": 0, "threads": 256, "held": held})]).program.text
    first = text.index("bar.sync")
    assert "ld.shared.v4" in text[first:] and text.count("ld.global.nc.v4") >= 8
    assert ("ld.global.nc.v4" in text[first:]) != held


def test_bodies_that_are_no_layer_alone():
    """A result twice, which one memory cannot be; what is no result of the layer; two ops."""
    ops, yielded = _body(layer("lstm", 3, 2, 8))
    assert RECURRENT.takes(ops, yielded)
    assert not RECURRENT.takes(ops, [yielded[0], yielded[0]])
    assert not RECURRENT.takes(ops, [ops[0].operands[0]])
    assert not RECURRENT.takes([*ops, *ops], yielded)
