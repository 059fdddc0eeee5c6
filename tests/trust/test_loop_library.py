"""The meaning of level 4 in NumPy, function by function: against Python's integers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import MemRefType, f32

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import storage_type
from lightnet.runtime.dtypes import BY_NAME
from lightnet_trust.interpreter import loop_library as lib
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram, _area, array_at


@pytest.mark.parametrize("kind", [int, np.int8, np.int64])
def test_integer_division(kind: type) -> None:
    """Of either sign, by zero, of indices (Python's ints) and of machine integers."""
    for a in (-7, -6, -1, 0, 1, 6, 7):
        for b in (-3, -1, 0, 1, 2, 7):
            x, y = kind(a), kind(b)
            quotient = int(a / b) if b else 0
            assert lib.divide(x, y, True) == quotient
            assert lib.remainder(x, y, True) == (a - b * quotient if b else 0)
            assert lib.floor_divide(x, y, up=False) == (a // b if b else 0)
            assert lib.floor_divide(x, y, up=True) == (-(-a // b) if b else 0)
            if min(a, b) >= 0:
                assert lib.ceil_divide_unsigned(x, y) == (-(-a // b) if b else 0)


def test_bits_as_numbers() -> None:
    """A true i1 is -1 as a signed number, 1 as an unsigned one; other numbers are what they are."""
    bits = np.array([True, False])
    assert (
        lib.signed_bit(bits).tolist() == [-1, 0]
        and lib.signed_bit(np.bool_(True)) == -1
        and lib.to_index(np.bool_(True)) == -1
    )
    assert lib.signed_bit(5) == 5 and lib.signed_bit(np.int8(-5)) == -5
    assert lib.resize(bits, np.dtype(np.int32), True).tolist() == [-1, 0]
    assert lib.resize(bits, np.dtype(np.int32), False).tolist() == [1, 0]
    assert lib.unsigned(-1) == (1 << 64) - 1 and lib.like(lib.unsigned(-1), 0) == -1


def refuse(indices) -> None:
    raise IndexError(str(list(indices)))


def test_slices_touch_what_their_extents_and_lanes_leave() -> None:
    """Nothing for no lanes; of bytes a truth; of memory that lies before or behind the memref, an error."""
    memory = np.arange(12, dtype=np.int32).reshape(3, 4)
    piece = lib.Slice((2, 3), (0, 1), (1, 1), (2, 3), 2)
    assert piece.load(memory, (1, 1), None, False, refuse).tolist() == [[5, 6, 7], [9, 10, 11]]
    assert piece.load(memory, (1, 1), 2, False, refuse).tolist() == [[5, 6, 0], [9, 10, 0]]
    for none in (0, -1):
        assert not piece.load(memory, (1, 1), none, False, refuse).any()
        piece.store(np.ones((2, 3), np.int32), memory, (1, 1), none, refuse)
    assert memory.tolist() == np.arange(12).reshape(3, 4).tolist()
    truth = piece.load((memory % 2 * 7).astype(np.uint8), (0, 0), None, True, refuse)
    assert truth.dtype == np.bool_ and truth.tolist() == [[False, True, False], [False, True, False]]
    for at in ((-1, 0), (2, 0), (0, 2), (0, -1)):
        with pytest.raises(IndexError):
            piece.load(memory, at, None, False, refuse)
    back = lib.Slice((4,), (1,), (-1,), (4,), 2)
    assert back.load(memory, (2, 3), None, False, refuse).tolist() == [11, 10, 9, 8]
    for at in ((2, 2), (2, 4)):
        with pytest.raises(IndexError):
            back.load(memory, at, None, False, refuse)


def test_views_lie_in_their_workspace() -> None:
    workspace = np.arange(16, dtype=np.uint8)
    half = np.dtype(np.int16)
    assert lib.view(workspace, 12, (2,), half, refuse).tolist() == workspace[12:].view(half).tolist()
    for offset in (-2, 13, 14):
        with pytest.raises(IndexError, match=rf"\[{offset}\]"):
            lib.view(workspace, offset, (2,), half, refuse)


@pytest.mark.parametrize("dtype", ["i1", "i8", "ui8", "i16", "i32", "i64", "ui64", "f16", "bf16", "f32", "f64"])
def test_memory_that_nobody_has_written(dtype: str) -> None:
    """NaN; in integers the bytes that our tests put around the memory of native kernels: both show the same numbers."""
    kind = memory_dtype(MemRefType(storage_type(BY_NAME[dtype]), [2, 3]))
    made = lib.poison((2, 3), kind)
    assert made.shape == (2, 3) and made.dtype == kind
    assert np.isnan(made.astype(np.float64)).all() if BY_NAME[dtype].is_float else set(made.tobytes()) == {0xA5}
    assert lib.poison((), kind).shape == () and lib.poison((0, 3), kind).shape == (0, 3)


def test_memory_of_launches_is_checked() -> None:
    """To the last byte of a space; a space that is not there; a function that is not there."""
    spaces = {"arena": np.zeros(64, np.uint8)}
    memref = MemRefType(f32, [4])
    assert array_at(spaces, PlaceAttr("arena", 48), memref).shape == (4,)
    assert _area(spaces, PlaceAttr("arena", 48), 16).nbytes == 16
    for place in (PlaceAttr("arena", 52), PlaceAttr("moon", 0)):
        with pytest.raises(LightNetError, match=r"memref<4xf32> at .* does not fit its memory"):
            array_at(spaces, place, memref)
        with pytest.raises(LightNetError, match=r"16 bytes at .* do not fit their memory"):
            _area(spaces, place, 16)
    program = LoopProgram(
        parse_mlir(make_context(), "func.func @k(%lo: index, %hi: index) {\nfunc.return\n}", "k.mlir")
    )
    with pytest.raises(LightNetError, match="level 4 has no function @nobody"):
        program.function("nobody")
