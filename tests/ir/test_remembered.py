"""What compiling makes once and uses again: it is never stale, and no check passes because another one did."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest
from blocked_networks import random_network
from counting import calls
from xdsl.dialects import test as xdsl_test
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, ModuleOp, StringAttr, TensorType, f32, i1

import lightnet
from lightnet.backends.cpu.blocked.conv_model import Geometry
from lightnet.backends.expressions import bind_op
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.norm import Batchnorm, Softmax
from lightnet.ir import collector
from lightnet.ir.arrays import to_memory
from lightnet.ir.body import OfEqualKernels
from lightnet.ir.constraints import ConstraintError
from lightnet.ir.context import make_context
from lightnet.ir.layout import Layout, with_layout
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import ParamAttr, TensorSpec, element_type, spec_of, tensor_type
from lightnet.passes import pipelines
from lightnet.runtime.dtypes import BY_NAME

F32 = BY_NAME["f32"]
WINDOW = {"group": 1, "size": (3, 3), "stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1), "autopad": "NOTSET"}  # fmt: skip


def values(*dims: tuple[int, ...]) -> list:
    return list(xdsl_test.TestOp(result_types=[tensor_type(TensorSpec(d, F32)) for d in dims]).results)


def test_what_follows_from_an_op_changes_with_it() -> None:
    conv = Conv2d.make(values((1, 8, 9, 9), (4, 8, 3, 3), (4,)), WINDOW)
    assert Geometry.of(conv) is Geometry.of(conv)
    assert tuple(conv.derived_values()["pad"]) == (1, 1, 1, 1)
    conv.properties["padding"] = ParamAttr((2, 2, 0, 0))
    assert tuple(conv.derived_values()["pad"]) == (2, 2, 0, 0)
    assert Geometry.of(conv).before == (2, 2)
    conv.operands = values((1, 8, 5, 7), (4, 8, 3, 3), (4,))
    assert Geometry.of(conv).size == (5, 7)


def test_the_spec_of_a_type_is_made_once() -> None:
    """It is asked for at every step of every pass. Types that are equal have equal specs, others do not."""
    specs = [TensorSpec(dims, BY_NAME[dtype]) for dims in ((), (2, 3), (3, 2), (0,)) for dtype in ("f32", "i8", "ui8")]
    elements = [element_type(spec.dtype) for spec in specs]
    types = [TensorType(element, spec.dims) for element, spec in zip(elements, specs)]  # not the interned ones
    assert [spec_of(type) for type in types] == specs
    for type in types:
        assert spec_of(type) is spec_of(type)
        with calls(at_most=12):  # counting itself takes some
            spec_of(type)
    for wrong in (f32, TensorType(i1, [DYNAMIC_INDEX]), TensorType(IntegerType(7), [2])):
        for _ in range(2):  # what is refused is refused again
            with pytest.raises(TypeError):
                spec_of(wrong)


def test_a_right_op_lets_no_wrong_one_pass() -> None:
    """1, 1.0 and true are equal, and as keys the same; true is no axis, and 3 is none of these dims."""
    for good in (1, 1.0):
        assert Softmax.make(values((2, 3)), {"axis": good}).dst.type.get_shape() == (2, 3)
    for bad in (True, "1", 3, -1):
        with pytest.raises(ConstraintError, match="axis"):
            Softmax.make(values((2, 3)), {"axis": bad})
    params: dict = {}
    for _ in range(2):  # defaults are filled in the second time, too
        op = Batchnorm.make(values((1, 3, 2, 2), *[(3,)] * 4), params)
        assert op.properties["epsilon"].data == 1e-5


def test_bound_definitions_follow_types() -> None:
    one, other = (Relu.make(values(dims)) for dims in ((2, 3), (2, 5)))
    assert bind_op(one) is bind_op(Relu.make(values((2, 3))))
    assert bind_op(one).results != bind_op(other).results


@pytest.mark.parametrize(
    ("token", "dims"),
    [
        ("plain", (3, 5)), ("o32i16", (40, 21, 3, 2)), ("o16", (20, 3, 3, 3)), ("w4o16", (20, 5, 3, 3)), ("w2o16", (20, 5, 1, 3)),
        ("t16i8", (9, 20, 2, 2)), ("d16", (20, 1, 3, 3)), ("n32", (7, 40)), ("v16", (20, 1, 1)), ("c16h1x2", (2, 20, 3, 4)), ("h1", (1, 2, 3, 3)),
    ],
)  # fmt: skip
def test_packed_in_place(token: str, dims: tuple[int, ...]) -> None:
    """Memory that is given holds what memory of its own would; it has every element of the tensor, and zeros besides."""
    array = np.random.default_rng(0).uniform(1, 2, dims).astype(np.float32)
    layout = Layout.parse(token)
    type = with_layout(tensor_type(TensorSpec(dims, F32)), layout)
    memory = np.zeros(int(np.prod(layout.physical_dims(dims))) * 4, np.uint8)
    assert to_memory(type, array, memory) is memory
    np.testing.assert_array_equal(memory, to_memory(type, array))
    if layout.is_lossless:
        assert np.array_equal(np.sort(memory.view(np.float32))[-array.size :], np.sort(array, axis=None))
        assert np.count_nonzero(memory.view(np.float32)) == array.size


def test_batchnorm_of_many_channels() -> None:
    """The reference works in steps of channels: more of them than one step takes, against one formula in float64."""
    rng = np.random.default_rng(1)
    src, channels = rng.standard_normal((2, 300, 11, 13)).astype(np.float32), (300,)
    s, o, m, v = (rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(4))
    op = Batchnorm.make(values(src.shape, *[channels] * 4))
    (got,) = op.evaluate([src, s, o, m, v])
    s, o, m, v = (a.astype(np.float64)[:, None, None] for a in (s, o, m, v))
    np.testing.assert_allclose(got, (src - m) * s / np.sqrt(v + 1e-5) + o, rtol=1e-6, atol=1e-6)


def test_fed_params_do_not_stay_in_memory() -> None:
    """Static tensors are packed where they will stand: in fresh memory for every set of params."""
    text = """create(|dst=x|dtype=TL_FLOAT, dims=[1,4], ran=[0,0], data=[1,1,1,1], from_file=false);
create(|dst=w|dtype=TL_FLOAT, dims=[4,3], ran=[0,0], data=[1,2,3], from_file=true);
matmul(a=x, b=w|dst=y|)"""
    run = lightnet.compile(lightnet.loads(text, ".net"))
    x = np.ones((1, 4), np.float32)
    for w in (np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)):
        np.testing.assert_array_equal(run({"x": x, "w": w})["y"], x @ w)


# -- kernels that are equal


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_known_of_equal_kernels_changes_nothing(
    seed: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planned module is the same where each kernel is asked about anew."""
    module, _ = random_network(seed, 20)
    text = planned(module.clone(), threads)
    monkeypatch.setattr(OfEqualKernels, "get", lambda self, kernel, beside, make: make())
    assert planned(module, threads) == text


def planned(module: ModuleOp, threads: int) -> str:
    options = {"target": "cpu", "threads": threads}
    run_pipeline(make_context(), module, parse_pipeline(pipelines.default("cpu", until="plan"), options))
    return str(module)


def test_kernels_are_equal_in_all_that_counts() -> None:
    """Equal kernels share what is found out; another type, parameter, choice, op or request does not."""
    known: OfEqualKernels[int] = OfEqualKernels()
    count = itertools.count()

    def number(dims: tuple[int, ...] = (2, 3), axis: int = 1, beside: object = None, **choices: str) -> int:
        made = Softmax.make(values(dims), {"axis": axis}, name=f"s{next(count)}")
        kernel = CpuKernelOp.wrap([made], {k: StringAttr(v) for k, v in choices.items()})
        return known.get(kernel, beside, lambda: next(count))

    first = number()
    assert number() == first
    others = [number((2, 5)), number(axis=0), number(alg="loops"), number(alg="direct"), number(beside=2)]
    assert len({first, *others}) == 6
    relu = CpuKernelOp.wrap([Relu.make(values((2, 3)))])
    assert known.get(relu, None, lambda: -1) == -1


def test_what_is_known_of_kernels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfEqualKernels, "MOST", 4)
    known: OfEqualKernels[int] = OfEqualKernels()
    for n in range(1, 20):
        kernel = CpuKernelOp.wrap([Relu.make(values((n,)))])
        assert known.get(kernel, None, lambda n=n: n) == n
        assert len(known._found) <= 4


# -- the collector


def test_garbage_made_in_a_pause_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not new objects are handed to the oldest generation: a full collection finds what is dead, and frozen objects stay
    so."""
    for unseen in (0, 1 << 30):
        monkeypatch.setattr(collector, "_UNSEEN", unseen)
        with collector.collector_paused():
            assert not gc.isenabled()
            knot = Knot()
            knot.itself = knot
            alive = weakref.ref(knot)
            del knot
            assert alive() is not None
        assert gc.isenabled()
        gc.collect()
        assert alive() is None


def test_pauses_hand_over_so_many_objects_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_handed", 0)
    monkeypatch.setattr(collector, "_UNSEEN", 5000)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # pytest's objects are frozen (conftest.py)
    young = []
    gc.collect(0)  # what other tests have made counts, too
    for _ in range(4):
        with collector.collector_paused():
            made = [[] for _ in range(2200)]  # some lists are used again, and do not count
            young.append(gc.get_count()[0] > 2000)
        young[-1] &= gc.get_count()[0] < 2000
        assert len(made) == 2200
    gc.freeze()  # as they were
    assert young[0] and collector._handed <= 5000


def test_frozen_objects_stay_frozen_and_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting walks over all of them, which would be most of the time of a small compilation."""
    monkeypatch.setattr(collector, "_handed", 0)
    asked, count = [], gc.get_freeze_count
    gc.freeze()
    frozen = count()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(1) or count())
    for _ in range(3):
        with collector.collector_paused():
            made = [[] for _ in range(1000)]
    assert made and count() >= frozen - 100  # some die by themselves
    assert len(asked) == 1


class Knot:
    itself: Knot
