"""The functions of NVIDIA's driver library that we call, with the types of their arguments, and with every result
checked.

Names and types are those of the CUDA Driver API; a name's ``_v2`` is the version that the header has meant since CUDA
12.0, the least that is taken. Nothing is loaded until a device is asked for. Imports the standard library.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import LEAST_VERSION, CudaUnavailable, Device

LIBRARY = "libcuda.so.1"

_int_p, _size_p, _handle_p = POINTER(c_int), POINTER(c_size_t), POINTER(c_void_p)
_u32_p, _u64_p = POINTER(c_uint), POINTER(c_uint64)
_device, _address = c_int, c_uint64  # CUdevice, CUdeviceptr


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2: a kernel of a graph."""

    _fields_ = [
        ("func", c_void_p), *((f"{what}Dim{dim}", c_uint) for what in ("grid", "block") for dim in "XYZ"),
        ("sharedMemBytes", c_uint),
        ("kernelParams", _handle_p), ("extra", _handle_p), ("kern", c_void_p), ("ctx", c_void_p),
    ]  # fmt: skip


#: Function -> the types of its arguments; all give a CUresult. Handles (CUcontext, CUstream, ...) are pointers.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_int_p,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (_int_p,),
    "cuDeviceGet": (_int_p, c_int),
    "cuDeviceGetName": (c_char_p, c_int, _device),
    "cuDeviceTotalMem_v2": (_size_p, _device),
    "cuDeviceGetAttribute": (_int_p, c_int, _device),
    "cuDevicePrimaryCtxRetain": (_handle_p, _device),
    "cuDevicePrimaryCtxRelease_v2": (_device,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (_handle_p,),
    "cuModuleLoadDataEx": (_handle_p, c_char_p, c_uint, POINTER(c_int), _handle_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_handle_p, c_void_p, c_char_p),
    "cuFuncGetAttribute": (_int_p, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuMemAlloc_v2": (POINTER(_address), c_size_t),
    "cuMemFree_v2": (_address,),
    "cuMemGetInfo_v2": (_size_p, _size_p),
    "cuMemHostAlloc": (_handle_p, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (_address, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _address, c_size_t, c_void_p),
    "cuMemsetD8Async": (_address, c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (_handle_p, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuGraphCreate": (_handle_p, c_uint),
    "cuGraphAddKernelNode_v2": (_handle_p, c_void_p, _handle_p, c_size_t, POINTER(KernelNode)),
    "cuGraphInstantiateWithFlags": (_handle_p, c_void_p, c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuEventCreate": (_handle_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, _handle_p, _handle_p),
    "cuTensorMapEncodeTiled": (c_void_p, c_int, c_uint, c_void_p, _u64_p, _u64_p, _u32_p, _u32_p, *[c_int] * 4),
    "cuTensorMapEncodeIm2col": (
        c_void_p,
        c_int,
        c_uint,
        c_void_p,
        _u64_p,
        _u64_p,
        _int_p,
        _int_p,
        c_uint,
        c_uint,
        _u32_p,
        *[c_int] * 4,
    ),
}

# Values of the API's enumerations.
DEVICE_CAPABILITY_MAJOR, DEVICE_CAPABILITY_MINOR, DEVICE_SHARED_PER_BLOCK_OPTIN = 75, 76, 97
FUNCTION_SHARED_BYTES, FUNCTION_MAX_DYNAMIC_SHARED_BYTES = 1, 8
JIT_INFO_LOG, JIT_INFO_LOG_BYTES, JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES, JIT_LINE_INFO = 3, 4, 5, 6, 13
#: CUtensorMapDataType, by our names of types.
MAP_TYPES = {"f16": 6, "bf16": 9}
MAP_INTERLEAVE_NONE, MAP_SWIZZLE_128B, MAP_PROMOTION_128B, MAP_FILL_ZERO = 0, 3, 2, 0
STREAM_NON_BLOCKING, EVENT_DEFAULT, EVENT_DISABLE_TIMING = 1, 0, 2
OUT_OF_MEMORY, NOT_INITIALIZED = 2, 3
#: After one of these the device's memory and kernels are gone for this process, whose every further call fails.
STICKY = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})


class CudaError(LightNetError):
    """A call that failed: `code` is the CUresult, `reason` its name and what it means."""

    def __init__(self, function: str, code: int, reason: str):
        super().__init__(f"{function.removesuffix('_v2')} failed: {reason}")
        self.code, self.reason = code, reason


class Api:
    """The driver library, initialised. Raises CudaUnavailable where that cannot be."""

    def __init__(self, library: str = LIBRARY):
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            why = str(error).removeprefix(f"{library}: ")
            raise CudaUnavailable(f"{LIBRARY}, which comes with NVIDIA's driver, does not load: {why}") from None
        self._functions: dict[str, Any] = {}
        self._pid = os.getpid()
        try:
            self("cuInit", 0)
        except CudaError as error:
            forked = " (a parent process used CUDA before it forked this one?)" if error.code == NOT_INITIALIZED else ""
            raise CudaUnavailable(f"{error.message}{forked}") from None
        version = c_int()
        self("cuDriverGetVersion", version)
        self.version = version.value // 1000, version.value % 1000 // 10
        if self.version < LEAST_VERSION:
            has, least = (".".join(map(str, v)) for v in (self.version, LEAST_VERSION))
            raise CudaUnavailable(f"the driver is for CUDA {has}, and PTX 8.0 takes one for {least} or later")

    def __call__(self, name: str, *args: Any) -> None:
        """Call a function of `SIGNATURES`; a ctypes value goes as its address where a pointer is expected. Raises
        CudaError unless the result is CUDA_SUCCESS, LightNetError in a child process."""
        self.check_process()
        if code := self.attempt(name, *args):
            raise CudaError(name, code, self._reason(code))

    def attempt(self, name: str, *args: Any) -> int:
        """Call a function, and give its result. For cleaning up, where an error would hide the one that led there."""
        return (self._functions.get(name) or self._bind(name))(*args)

    @property
    def is_ours(self) -> bool:
        """False in a process that was forked since: nothing may be called there."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        """Raise LightNetError in a process that was forked since."""
        if not self.is_ours:
            raise LightNetError(
                "CUDA was initialised before this process was forked, and a child cannot use it: open the device in "
                "the child alone, "
                "or start the child with multiprocessing's method 'spawn'"
            )

    def _bind(self, name: str) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CudaUnavailable(f"{LIBRARY} has no {name}: the driver is too old, or no driver") from None
        function.argtypes, function.restype = SIGNATURES[name], c_int
        self._functions[name] = function
        return function

    def _reason(self, code: int) -> str:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()  # stays null where the driver does not know the code
            self.attempt(name, code, text)
            texts.append((text.value or b"").decode("utf-8", "replace"))
        name, meaning = texts
        return f"{name or f'error {code}'}{f' ({meaning})' if meaning else ''}"

    def device_attribute(self, device: int, attribute: int) -> int:
        """The value of an attribute of a device."""
        value = c_int()
        self("cuDeviceGetAttribute", value, attribute, device)
        return value.value


_connected: list[Api] = []


def connect() -> Api:
    """The driver library, initialised once a process. Raises CudaUnavailable."""
    if not _connected:
        _connected.append(Api())
    return _connected[0]


def device_list(api: Api) -> list[Device]:
    """The devices that the driver shows, at least one; CudaUnavailable if there is none."""
    count = c_int()
    api("cuDeviceGetCount", count)
    if count.value < 1:
        raise CudaUnavailable("the driver shows no device (CUDA_VISIBLE_DEVICES may hide some)")
    return [_describe(api, ordinal) for ordinal in range(count.value)]


def _describe(api: Api, ordinal: int) -> Device:
    device, nbytes = c_int(), c_size_t()
    api("cuDeviceGet", device, ordinal)
    name = ctypes.create_string_buffer(256)
    api("cuDeviceGetName", name, len(name), device.value)
    api("cuDeviceTotalMem_v2", nbytes, device.value)
    major = api.device_attribute(device.value, DEVICE_CAPABILITY_MAJOR)
    minor = api.device_attribute(device.value, DEVICE_CAPABILITY_MINOR)
    shared = api.device_attribute(device.value, DEVICE_SHARED_PER_BLOCK_OPTIN)
    return Device(ordinal, name.value.decode("utf-8", "replace"), (major, minor), nbytes.value, api.version, shared)
