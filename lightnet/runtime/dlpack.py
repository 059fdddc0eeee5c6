"""Arrays of other libraries by DLPack, the protocol of `__dlpack__`, without a copy: what NumPy's own reader takes, and
bfloat16, which it does not. Source: dlpack.h, version 0.8 (`DLManagedTensor`). Imports NumPy and the standard library.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME

#: Kinds of devices whose memory this process reads: the CPU's, and what CUDA and ROCm pin of it.
_HERE = {1, 3, 11}
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda, managed", 14: "oneapi"}
#: DLPack's codes of element types, with their bits.
_TYPES = {
    (4, 16): "bf16", (2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (6, 8): "i1",
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)}, **{(1, bits): f"ui{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Held:
    """Bytes that a capsule keeps alive: as it is not consumed, it gives them back when it is collected."""

    def __init__(self, capsule: object, address: int, nbytes: int):
        self.capsule = capsule
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}


def from_dlpack(value: Any) -> np.ndarray:
    """The memory of an object with `__dlpack__`, as an array. LightNetError where it is on a device, or of a type that
    we do not have; what the object raises itself."""
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        if int(kind) not in _HERE:
            raise LightNetError(
                f"its memory is on a device ({_DEVICES.get(int(kind), int(kind))}:{number}): copy it to the CPU first"
            )
    capsule = value.__dlpack__()
    tensor = _Tensor.from_address(_pointer(capsule))
    if tensor.device_type not in _HERE:
        raise LightNetError(f"its memory is on a device ({_DEVICES.get(tensor.device_type, tensor.device_type)})")
    dtype = BY_NAME.get(_TYPES.get((tensor.code, tensor.bits), ""))
    if dtype is None or tensor.lanes != 1:
        raise LightNetError(
            f"its elements are of a type (DLPack's {tensor.code}, {tensor.bits} bits) that no tensor here has"
        )
    dims = tuple(tensor.shape[i] for i in range(tensor.ndim))
    steps = [tensor.strides[i] if tensor.strides else prod(dims[i + 1 :]) for i in range(tensor.ndim)]
    if not prod(dims):
        return np.empty(dims, dtype.np)
    low = sum(s * (d - 1) for d, s in zip(dims, steps) if s < 0) * dtype.size
    high = sum(s * (d - 1) for d, s in zip(dims, steps) if s > 0) * dtype.size + dtype.size
    raw = np.asarray(_Held(capsule, tensor.data + tensor.byte_offset + low, high - low))
    return np.ndarray(dims, dtype.np, raw, -low, [s * dtype.size for s in steps])


def _pointer(capsule: object) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    return pointer(capsule, _NAME)
