"""PTX in NVIDIA's driver: compiling it, what the driver says of it, and its kernels. Imports the standard library."""

from __future__ import annotations

import ctypes
import re
import weakref
from ctypes import c_char_p, c_int, c_void_p

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc, near
from lightnet.runtime.cuda import api
from lightnet.runtime.cuda.api import CudaError
from lightnet.runtime.cuda.context import DeviceContext
from lightnet.runtime.cuda.driver import runs_on

#: Bytes of each of the driver's two logs of a load, and the lines that an error shows.
_LOG_BYTES, _LOG_LINES = 1 << 14, 20
#: Bytes of shared memory that a block has without asking for more (CUDA C++ Programming Guide, on compute capability
#: 8.0).
_PLAIN_SHARED = 48 << 10

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TARGET = re.compile(r"\.target\s+(\w+)")
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?")
_TYPE = re.compile(r"\.[busf](8|16|32|64)\b")
_LENGTH = re.compile(r"\[\s*(\d+)\s*\]")


@dataclass(eq=False)
class DeviceFunction:
    """A kernel. `parameters` are the sizes of its parameters in bytes, `static_shared` the bytes of shared memory that
    it declares, `dynamic_limit` those that a launch may ask for as things stand."""

    module: LoadedModule  # which stays loaded as long as a kernel of it is known
    name: str
    handle: int
    parameters: tuple[int, ...]
    static_shared: int
    dynamic_limit: int


class LoadedModule:
    """A PTX text, compiled for the device of a context; unloaded when it is collected. `log` is what the driver said
    meanwhile.

    Raises LightNetError, at the PTX's line and with the driver's log, where the driver refuses it.
    """

    def __init__(self, context: DeviceContext, ptx: str):
        self._context = context
        self._parameters = parameter_sizes(ptx)
        self._functions: dict[str, DeviceFunction] = {}
        handle = c_void_p()
        info, errors = (ctypes.create_string_buffer(_LOG_BYTES) for _ in range(2))
        options = {
            api.JIT_INFO_LOG: ctypes.addressof(info),
            api.JIT_INFO_LOG_BYTES: _LOG_BYTES,
            api.JIT_ERROR_LOG: ctypes.addressof(errors),
            api.JIT_ERROR_LOG_BYTES: _LOG_BYTES,
            api.JIT_LINE_INFO: 1,  # lets debuggers name the PTX's lines
        }
        keys, values = (c_int * len(options))(*options), (c_void_p * len(options))(*options.values())
        with context.current():
            try:
                context("cuModuleLoadDataEx", handle, c_char_p(_image(ptx)), len(options), keys, values)
            except CudaError as error:
                if error.code in api.STICKY or error.code == api.OUT_OF_MEMORY:
                    raise
                raise _refusal(error, ptx, errors.value.decode("utf-8", "replace")) from None
            self._handle = context.hold("cuModuleUnload", handle.value or 0)
        self.log = info.value.decode("utf-8", "replace")
        weakref.finalize(self, context.discard, "cuModuleUnload", self._handle).atexit = False

    def function(self, name: str) -> DeviceFunction:
        """The kernel of that name; LightNetError if there is none."""
        if name not in self._parameters:
            raise LightNetError(f"the PTX has no kernel '{name}'{near(name, self._parameters)}")
        if name not in self._functions:
            self._functions[name] = self._find(name)
        return self._functions[name]

    def _find(self, name: str) -> DeviceFunction:
        handle, static = c_void_p(), c_int()
        with self._context.current():
            # This is also what puts the code on the device, where the driver loads lazily: a capture could not.
            self._context("cuModuleGetFunction", handle, self._handle, name.encode())
            self._context("cuFuncGetAttribute", static, api.FUNCTION_SHARED_BYTES, handle)
        limit = max(0, _PLAIN_SHARED - static.value)
        return DeviceFunction(self, name, handle.value or 0, self._parameters[name], static.value, limit)


def check_target(ptx: str, arch: str, name: str) -> None:
    """Raise LightNetError, at the line, for PTX whose target the device of that architecture and name does not run. The
    driver would say of ``sm_90a`` only that there is no code for the device."""
    head = ptx.partition("{")[0]  # directives of a module stand before its kernels
    found = _TARGET.search(_COMMENT.sub(_blank, head))
    if found is None or runs_on(found[1], arch):
        return
    own = (
        ", of which only devices of that very capability have all instructions" if found[1].endswith(("a", "f")) else ""
    )
    line = ptx.count("\n", 0, found.start(1))
    raise LightNetError(
        f"the PTX is for {found[1]}{own}, and {name} is {arch}: compile for it (--arch=sm_80 runs on all)",
        SourceLoc("<ptx>", line + 1),
        source_line=ptx.splitlines()[line],
    )


def _blank(comment: re.Match[str]) -> str:
    """Nothing, in as many characters and lines."""
    return re.sub(r"[^\n]", " ", comment[0])


def parameter_sizes(ptx: str) -> dict[str, tuple[int, ...]]:
    """The kernels of a PTX text, each with the sizes of its parameters in bytes (PTX ISA, ``.entry``)."""
    entries = _ENTRY.finditer(_COMMENT.sub(" ", ptx))
    return {m[1]: tuple(_size(p) for p in (m[2] or "").split(",") if p.strip()) for m in entries}


def _size(parameter: str) -> int:
    element, length = _TYPE.search(parameter), _LENGTH.search(parameter)
    return (int(element[1]) // 8 if element else 0) * (int(length[1]) if length else 1)


def _image(ptx: str) -> bytes:
    image = ptx.encode("utf-8", "replace")
    if b"\0" in image:
        raise LightNetError("the PTX holds a null character, which the driver would take for its end")
    return image


def _refusal(error: CudaError, ptx: str, log: str) -> LightNetError:
    """The error for PTX that the driver does not take; its log names lines as ptxas does."""
    notes: list[tuple[SourceLoc | None, str]] = [(None, line) for line in log.splitlines() if line.strip()]
    found = re.search(r"\bline (\d+)", log)
    lines = ptx.splitlines()
    number = int(found[1]) if found else 0
    source_line = lines[number - 1] if 0 < number <= len(lines) else None
    message = f"the CUDA driver refuses the PTX: {error.reason}"
    return LightNetError(message, SourceLoc("<ptx>", number), source_line=source_line, notes=notes[:_LOG_LINES])
