"""Arrays of other libraries by DLPack, from tensors that are laid out here as the protocol's header says; and what a call is fed with."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.runtime import arrays
from lightnet.runtime.dlpack import _Tensor, from_dlpack

CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class Foreign:
    """The memory of a NumPy array, as an object that has DLPack alone. `fields` differ from what is right."""

    def __init__(self, array: np.ndarray, strided: bool = True, **fields: Any):
        self.array, size = array, array.itemsize
        self.dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        self.steps = (ctypes.c_int64 * max(array.ndim, 1))(*(s // size for s in array.strides))
        steps = self.steps if strided else None
        values = {"data": array.ctypes.data, "device_type": 1, "device_id": 0, "ndim": array.ndim, "code": CODES[array.dtype.kind],
                  "bits": 8 * size, "lanes": 1, "byte_offset": 0, **fields}  # fmt: skip
        self.tensor = _Tensor(**values)
        self.tensor.shape = ctypes.cast(self.dims, ctypes.POINTER(ctypes.c_int64))
        self.tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))

    def __dlpack__(self) -> object:
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


class WithDevice(Foreign):
    device = (1, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


WHOLE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
VIEWS = [WHOLE, WHOLE[:, ::-1], WHOLE[::-1, :, ::-2], WHOLE.transpose(2, 0, 1), WHOLE[:, :, :1], WHOLE[:, :0], WHOLE[1, 2, 3:].reshape(()),
         np.broadcast_to(WHOLE[0, 0, :1], (3, 1)), WHOLE[:, 1:2, ::3], WHOLE.astype(np.float64), WHOLE.astype(np.uint8), WHOLE > 5]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS, ids=[str(i) for i in range(len(VIEWS))])
def test_memory_is_shared(view: np.ndarray) -> None:
    found = from_dlpack(WithDevice(view))
    assert found.dtype == view.dtype and found.shape == view.shape and found.tolist() == view.tolist()
    assert not view.size or np.shares_memory(found, view)
    assert arrays.as_array("x", Foreign(view)).tolist() == view.tolist()


def test_tensors_without_strides_and_behind_an_offset() -> None:
    assert from_dlpack(Foreign(WHOLE, strided=False)).tolist() == WHOLE.tolist()
    assert from_dlpack(Foreign(WHOLE[0], byte_offset=48)).tolist() == WHOLE[1].tolist()
    short = np.array([1.5, -2], np.float32).view(np.uint16)[1::2]
    assert from_dlpack(Foreign(short, code=4)).astype(np.float32).tolist() == [1.5, -2]


@pytest.mark.parametrize(("fields", "message"), [
    ({"device_type": 2}, "its memory is on a device (cuda)"),
    ({"device_type": 99}, "its memory is on a device (99)"),
    ({"code": 5}, "its elements are of a type (DLPack's 5, 32 bits) that no tensor here has"),
    ({"lanes": 2}, "its elements are of a type (DLPack's 0, 32 bits) that no tensor here has"),
])  # fmt: skip
def test_tensors_that_are_not_read(fields: dict[str, int], message: str) -> None:
    with pytest.raises(LightNetError) as caught:
        from_dlpack(Foreign(WHOLE, **fields))
    assert caught.value.message == message


def test_memory_on_a_device() -> None:
    class Elsewhere(WithDevice):
        device = (10, 3)

        def __dlpack__(self) -> object:
            raise AssertionError("nothing is asked of it")

    with pytest.raises(LightNetError, match=r"its memory is on a device \(rocm:3\): copy it to the CPU first"):
        from_dlpack(Elsewhere(WHOLE))
    with pytest.raises(LightNetError, match=r"'x' takes an array, but its memory is on a device \(rocm:3\)"):
        arrays.as_array("x", Elsewhere(WHOLE))


def test_objects_that_have_arrays_too() -> None:
    """NumPy's way goes first; DLPack where that fails."""

    class Both(WithDevice):
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            return np.array([7])

    class Neither(WithDevice):
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise TypeError("no")

    assert arrays.as_array("x", Both(WHOLE)).tolist() == [7]
    assert arrays.as_array("x", Neither(WHOLE)).tolist() == WHOLE.tolist()


def test_what_a_call_is_fed_with() -> None:
    assert arrays.by_name(None) == {} and arrays.by_name({"x": 1}) == {"x": 1}
    with pytest.raises(LightNetError, match=r"a network is fed by name, as in run\(\{'x': array\}\), not with a list"):
        arrays.by_name([1])  # type: ignore[arg-type]
