"""The pool of threads of this process, which all its executables share. Imports the standard library.

Every executable that may use several threads brings the pool's code; the first that runs on several provides the one
that is used from then on. Its code stays where it is as long as the process lives, past the interpreter's end: the
workers never leave it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Protocol

#: The pool's entry, ``void (ptr body, ptr frame, i64 threads, i64 scratch)``: runs the body of a network on so many
#: threads, each of which but the first gets so many bytes of scratch.
POOL_ENTRY = "ln_pool_run"
#: ``i64 ()``: how many processors the calling thread may run on.
COUNT_ENTRY = "ln_pool_processors"
Run = Callable[[int, int, int, int], None]

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_shared: dict[str, tuple[Run, object]] = {}


class HasSymbols(Protocol):
    def address(self, symbol: str) -> int:
        """The address of a global symbol."""


def pool_run(code: HasSymbols) -> Run:
    """The entry of the process's pool; that of `code` if there is none yet."""
    if POOL_ENTRY not in _shared:
        # One of several threads that come here at once wins; no lock, which a fork could leave taken.
        made = _RUN(code.address(POOL_ENTRY)), code
        if _shared.setdefault(POOL_ENTRY, made) is made:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return _shared[POOL_ENTRY][0]
