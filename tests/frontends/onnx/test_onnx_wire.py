"""Protobuf's wire format by its bytes: numbers of every length, lists that are packed, split and cut off, each limit at the last that is taken."""

from __future__ import annotations

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.frontends import resampling
from lightnet.frontends.onnx import wire
from lightnet.frontends.random import normal_of, uniform_of


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def reader(data: bytes) -> wire.Wire:
    return wire.Wire(memoryview(data), "m.onnx")


NUMBERS = [0, 1, 127, 128, 300, 1 << 20, (1 << 63) - 1, -1, -(1 << 63), -300]


def refusal(run, *args) -> str:
    with pytest.raises(LightNetError) as caught:
        run(*args)
    return caught.value.message


@pytest.mark.parametrize("times", [1, 40])
def test_lists_of_numbers(times: int, monkeypatch) -> None:
    """Few numbers are read one by one, many at once, in pieces, also where a piece ends within a number."""
    numbers = NUMBERS * times
    data = b"".join(map(varint, numbers))
    for chunk in (1 << 20, 11, 17):
        monkeypatch.setattr(wire, "_CHUNK", chunk)
        found = reader(data)
        assert found.ints([(0, len(data))], len(numbers)) == tuple(numbers)
        assert found.count_varints([(0, len(data)), (0, 0)]) == len(numbers)
        assert np.concatenate(list(found.varints([(0, len(data))]))).tolist() == numbers
        assert refusal(found.ints, [(0, len(data))], len(numbers) - 1).endswith(
            f"a list is longer than {len(numbers) - 1} numbers"
        )
    half = len(b"".join(map(varint, numbers[:5])))
    assert found.ints([(0, half), (half, len(data))], len(numbers)) == tuple(numbers)
    assert found.ints([], 0) == ()


def test_numbers_that_are_cut_off() -> None:
    for data in (b"\x80", b"\x01\x80", b"\xff" * 9):
        assert refusal(lambda d=data: reader(d).count_varints([(0, len(d))])).endswith("a number is cut off")
        assert "a number is cut off" in refusal(lambda d=data: reader(d).ints([(0, len(d))], 99))
    assert refusal(lambda: reader(b"\x80" * 10 + b"\x01").ints([(0, 11)], 9)).endswith(
        "a number is longer than 64 bits"
    )
    for data in (b"\x80" * 10 + b"\x01", b"\x80" * 5):
        assert refusal(lambda d=data: list(reader(d).varints([(0, len(d))]))).endswith(
            "a number is cut off or longer than 64 bits"
        )
    assert refusal(lambda: reader(b"\0" * 6).count_fixed([(0, 4), (4, 6)], 4)).endswith(
        "2 bytes do not hold numbers of 4 bytes"
    )


def test_floats_in_one_piece_and_in_several() -> None:
    values = np.array([1.5, -2, 3e38, 0], "<f4")
    data = b"__" + values.tobytes() + b"_" + values[:1].tobytes()
    found = reader(data)
    assert found.fixed([(2, 18)], np.dtype("<f4")).tolist() == values.tolist()
    assert found.fixed([(2, 10), (10, 10), (10, 18), (19, 23)], np.dtype("<f4")).tolist() == [*values.tolist(), 1.5]
    assert found.fixed([], np.dtype("<f4")).size == 0 and found.float((2, 6)) == 1.5


def test_names() -> None:
    data = "name\u00e9".encode() + b"\xff\x07"
    found = reader(data)
    assert found.text((0, 6), 6) == "name\u00e9" and found.text((0, 0), 0) == ""
    assert refusal(lambda: found.text((0, 6), 5)).endswith("a name of 6 bytes is longer than the limit of 5")
    assert refusal(lambda: found.text((5, 7), 9)).endswith(
        "a name is not valid UTF-8"
    ) and "is not printable" in refusal(lambda: found.text((7, 8), 9))


def test_coordinates_of_each_mode() -> None:
    """ONNX's Resize, worked by hand: an axis of 4 elements."""
    for mode, length, scale, roi, want in (
        ("align_corners", 7, 7 / 4, (0, 1), np.arange(7) / 2), ("align_corners", 1, 1 / 4, (0, 1), [0]), ("asymmetric", 2, 0.5, (0, 1), [0, 2]),
        ("tf_half_pixel_for_nn", 2, 0.5, (0, 1), [1, 3]), ("tf_crop_and_resize", 1, 0.25, (0.5, 1), [2.25]), ("tf_crop_and_resize", 3, 0.75, (0, 0.5), [0, 0.75, 1.5]),
        ("half_pixel", 2, 0.5, (0, 1), [0.5, 2.5]), ("pytorch_half_pixel", 1, 0.25, (0, 1), [0]), ("pytorch_half_pixel", 2, 0.5, (0, 1), [0.5, 2.5]),
        ("half_pixel_symmetric", 2, 0.6, (0, 1), 4 / 2 * (1 - 2 / 2.4) + (np.arange(2) + 0.5) / 0.6 - 0.5),
    ):  # fmt: skip
        np.testing.assert_allclose(resampling.coordinates(mode, 4, length, scale, roi), want, atol=1e-12)
    index, weight = resampling.taps(np.array([-9.0, 9.0]), 4, 1.0, "linear", exclude_outside=True)
    assert index.shape == weight.shape == (2, 1) and not weight.any()


def test_random_numbers_of_both_widths() -> None:
    """24 bits of a word for f32, 53 of two for f64; Box and Muller's transform of them."""
    top, mid, zero = (np.array([w], np.uint64) for w in ((1 << 32) - 1, 1 << 31, 0))
    wide, narrow = np.dtype("f8"), np.dtype("f4")
    assert (
        uniform_of([top, top], wide).tolist() == [1 - 2.0**-53]
        and uniform_of([mid, zero], wide).tolist() == [0.5]
        and uniform_of([zero, top], wide).tolist() == [((1 << 21) - 1) * 2.0**-53]
    )
    assert uniform_of([top], narrow).tolist() == [1 - 2.0**-24] and uniform_of([mid], narrow).dtype == narrow
    for words, dtype, u, v in (
        ([mid, zero, mid, zero], wide, 0.5 + 2.0**-53, 0.5),
        ([mid, mid], narrow, 0.5, 0.5),
        ([zero, zero, zero, zero], wide, 2.0**-53, 0),
        ([zero, zero], narrow, 2.0**-24, 0),
    ):
        found = normal_of(words, dtype)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v), rtol=1e-6)
