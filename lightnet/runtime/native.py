"""Machine code in this process: objects linked by LLVM's JIT linker, and the entry that runs a network.

It loads what `backends.llvm.jit` made, now or in an earlier process, and compiles nothing. Imports NumPy and llvmlite.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm

from lightnet.diagnostics import LightNetError
from lightnet.runtime.program import ENTRY

_MAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_numbers = itertools.count()


def initialize() -> None:
    """Make LLVM's host target available; harmless when done before."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class NativeCode:
    """Linked objects. Keep it alive while an address from it is in use.

    `objects` are relocatable object files (`bytes`); symbols that they leave open come from the process (libm).
    LightNetError if they do not link.
    """

    def __init__(self, objects: Sequence[bytes]):
        initialize()
        self._jit = llvm.create_lljit_compiler(use_jit_link=True)
        builder = llvm.JITLibraryBuilder()
        for image in objects:
            builder.add_object_img(image)
        builder.add_current_process()
        self._name = f"lightnet.{next(_numbers)}"
        try:
            self._library = builder.link(self._jit, self._name)
        except RuntimeError as error:
            raise LightNetError(f"the compiled objects do not link: {error}") from None
        self._trackers: list[object] = []

    def address(self, symbol: str) -> int:
        """The address of a symbol; LightNetError when there is none."""
        try:
            tracker = self._jit.lookup(self._name, symbol)
        except RuntimeError as error:
            raise LightNetError(f"the compiled objects have no '{symbol}': {error}") from None
        self._trackers.append(tracker)  # its collection would unload the library
        return tracker[symbol]

    def entry(self) -> Callable[[int], None]:
        """`ENTRY`, as a function of the address of a frame."""
        return _MAIN(self.address(ENTRY))
