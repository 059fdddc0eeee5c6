"""What choices and features of a processor may say: each kind of value, and the limits of numbers."""

from __future__ import annotations

import pytest
from blocked_kernels import kernel_of
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute

from lightnet.backends.cpu.blocked.bands_parts import _flag
from lightnet.backends.cpu.blocked.base import MACHINES, ProcessorModel, processor_model_of, read_rate
from lightnet.backends.cpu.parallel import MAX_THREADS, THREADS, threads_of, worthwhile
from lightnet.backends.cpu.runtime import host_features
from lightnet.backends.llvm.machines import ALIASES, CPUS, machine
from lightnet.diagnostics import LightNetError
from lightnet.ir.types import ParamAttr


def with_choice(name: str, value: Attribute | None):
    kernel = kernel_of({"x": "tensor<4xf32>"}, "%y = ln.relu %x : tensor<4xf32> ln.yield %y")
    if value is not None:
        kernel.attributes[name] = value
    return kernel


@pytest.mark.parametrize(
    ("value", "number"),
    [(None, 1), (IntegerAttr(1, i64), 1), (IntegerAttr(3, i64), 3), (ParamAttr(2), 2), (ParamAttr(MAX_THREADS), MAX_THREADS)],
)  # fmt: skip
def test_threads_are_a_number(value: Attribute | None, number: int) -> None:
    assert threads_of(with_choice(THREADS, value)) == number


@pytest.mark.parametrize(
    ("value", "shown"),
    [(IntegerAttr(0, i64), "0"), (ParamAttr(MAX_THREADS + 1), str(MAX_THREADS + 1)), (ParamAttr(True), "True"), (ParamAttr(1.5), "1.5"),
     (StringAttr("two"), "'\"two\"'")],
)  # fmt: skip
def test_what_is_no_number_of_threads(value: Attribute, shown: str) -> None:
    with pytest.raises(LightNetError) as error:
        threads_of(with_choice(THREADS, value))
    assert error.value.message == f"the choice threads of cpu.kernel is a number from 1 to {MAX_THREADS}, not {shown}"


def test_threads_that_work_pays_for() -> None:
    assert [worthwhile(cost, 4) for cost in (0, 999, 1000, 1999, 2000, 3999, 4000, 9e9)] == [1, 1, 1, 1, 2, 3, 4, 4]


def test_flags_are_true_or_false() -> None:
    for value, flag in ((None, None), (ParamAttr(True), True), (ParamAttr(False), False), (ParamAttr(0), False), (IntegerAttr(1, i64), True),
                        (IntegerAttr(0, i64), False), (IntegerAttr(-1, i1), True)):  # fmt: skip
        assert _flag(with_choice("packed", value), "packed") is flag
    for value in (ParamAttr(2), IntegerAttr(2, i64), StringAttr("true")):
        with pytest.raises(LightNetError, match="packed is true or false"):
            _flag(with_choice("packed", value), "packed")


def test_processors_have_names() -> None:
    assert processor_model_of("", 3) == ProcessorModel(threads=3)
    assert processor_model_of("neon") == MACHINES["neon"]
    with pytest.raises(
        LightNetError, match="unknown CPU feature 'avx3'; there are: avx512, avx512vnni, avx512bf16, avx2, neon"
    ):
        processor_model_of("avx3")


@pytest.mark.parametrize("name", [*CPUS, *ALIASES])
def test_kernels_are_shaped_for_the_vectors_of_a_processor(name: str) -> None:
    """The features that follow from a processor's name: of a model with as many lanes as its vectors have, and of the same name
    where the processor is called so."""
    features = host_features(machine(name))
    assert processor_model_of(features).lanes == machine(name).vectors.width
    assert features == name or name not in MACHINES


def test_memory_that_data_of_a_size_comes_from() -> None:
    machine = ProcessorModel(l2=1 << 20, l2_bytes=3.0, l3_bytes=2.0, dram_bytes=1.0)
    sizes = (0, 1 << 20, (1 << 20) + 1, 16 << 20, (16 << 20) + 1)
    assert [read_rate(machine, size) for size in sizes] == [3.0, 3.0, 2.0, 2.0, 1.0]
