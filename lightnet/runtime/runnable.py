"""The base of every executable: a network that is called, tells what it takes and gives, and can be closed.
`lightnet.Executable` (compiled here), `SavedExecutable` (from a file) and `SpecializingExecutable` (compiled for the
shapes of each call) are of this class.

Imports NumPy, the standard library and the rest of the runtime.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.calls import Invocation, buffers_of, feeds_of
from lightnet.runtime.threads import processors

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: The threads on which awaited calls run, by process: a child of `fork` has none of its parent's.
_executors: dict[int, ThreadPoolExecutor] = {}
_SHOWN = 4


def _executor() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # which takes longer to import than a small network to load

    pid = os.getpid()
    if pid not in _executors:
        _executors.setdefault(pid, ThreadPoolExecutor(processors(), thread_name_prefix="lightnet"))
    return _executors[pid]


class Runnable(ABC):
    """A network that is called: with a mapping of arrays by input name, with arrays in the order of `inputs`, or by
    keyword. It returns a dict of arrays by output name. Calls from several threads are safe."""

    #: Does the common case of a call without checks and look-ups, or gives None.
    _quick: Any = None

    def __call__(
        self,
        *feeds: Any,
        out: Any = None,
        outputs: Sequence[str] | None = None,
        stream: TextIO | None = None,
        threads: int | None = None,
        **named: Any,
    ) -> dict[str, np.ndarray]:
        """Run the network on what is fed: anything that NumPy makes an array of, and what has `__dlpack__`; shapes must
        agree, float64 is rounded to float32, and integers convert where they fit (`runtime.arrays`). Inputs called like
        an option below go into the mapping.

        Returns the outputs by name, or only those called `outputs`. `out`, a mapping by output name or one array of the
        only output, has the arrays that outputs are written to: of just their shape and dtype, contiguous and writable.
        `print` ops write to `stream` (default: standard output). `threads` is how many threads the call may use
        (default: as many as the network is compiled for, or where that was without a number as LIGHTNET_THREADS says,
        and no more than this thread may use processors at the moment). Raises `LightNetError` for an unknown name, an
        array that does not fit, more threads than the network is compiled for, and an executable that is closed.
        """
        quick = self._quick  # who closes this meanwhile takes it away
        if (
            quick is not None
            and not named
            and out is None
            and outputs is None
            and threads is None
            and len(feeds) == 1
            and (found := quick(feeds[0])) is not None
        ):
            return found
        given = feeds_of(feeds, named, self.inputs)
        buffers = None if out is None else buffers_of(out, self._out_types(given), outputs)
        return self._run(Invocation(given, outputs, buffers, stream, threads))

    run = __call__

    async def call_async(self, *feeds: Any, **options: Any) -> dict[str, np.ndarray]:
        """As a call, awaited: the event loop goes on meanwhile. Calls run on threads that all executables share, one
        for each processor; one that has begun goes on where who awaits it is cancelled, so do not write to its arrays
        until then."""
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(_executor(), partial(self, *feeds, **options))

    @abstractmethod
    def _run(self, call: Invocation) -> dict[str, np.ndarray]:
        """The results of a call."""

    def _out_types(self, feeds: Mapping[str, Any]) -> Any:
        """Shape and dtype of what a call on `feeds` gives."""
        return self.outputs

    # -- what it is

    @property
    @abstractmethod
    def inputs(self) -> dict[str, Any]:
        """Shape and dtype of every input by name, in the order of the network."""

    @property
    @abstractmethod
    def outputs(self) -> dict[str, Any]:
        """Shape and dtype of every output by name, in order."""

    @property
    @abstractmethod
    def params(self) -> dict[str, Any]:
        """Shape and dtype of every param that a call may feed, by name."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """The number of threads that a call may use that gives no number: as many as it is compiled for, and no more
        than the calling thread's processors, of which others may be taken away later.
        """

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options that it was compiled with: `target`, `cpu`, `threads` and the others of `lightnet.compile`."""

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """The oddities of the weights and the plan."""

    @property
    @abstractmethod
    def plan(self) -> Any:
        """The memory plan's report: `plan` (peak, bound, ratio), `text()`, `json()`, `svg()`, `html()`. Needs the
        compiler."""

    def prepare(self) -> None:  # noqa: B027
        """Do now what the first call would do beside computing."""

    # -- the end

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True if it was closed."""

    @abstractmethod
    def close(self) -> None:
        """Give back its memory, and the machine that it runs on. A call afterwards is an error, one that runs goes on
        to its end; closing again does nothing. An executable that nobody refers to is closed, too; ``with`` closes at
        its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.is_closed:
            raise closed()

    def __repr__(self) -> str:
        kind = type(self).__name__
        if self.is_closed:
            return f"<lightnet.{kind}, closed>"
        try:
            takes, gives = (_listed(types) or "nothing" for types in (self.inputs, self.outputs))
        except LightNetError as error:
            return f"<lightnet.{kind}: {error.message:.100}>"
        options = self.options
        where = options.get("arch") or options.get("cpu") or ""
        count = self.threads
        runs = f"{count} thread{'s' * (count != 1)}"
        return f"<lightnet.{kind} for {options.get('target', '?')} {where}: {takes} -> {gives}; {runs}>"


def closed() -> LightNetError:
    """The error of who calls a closed executable."""
    return LightNetError("the executable is closed: compile or load the network again")


def _listed(types: Mapping[str, Any]) -> str:
    shown = [f"{name} {dtype}{_dims(dims)}" for name, (dims, dtype) in list(types.items())[:_SHOWN]]
    return ", ".join(shown) + ", ..." * (len(types) > _SHOWN)


def _dims(dims: Sequence[Any] | None) -> str:
    return "[...]" if dims is None else f"[{', '.join('?' if d is None else str(d) for d in dims)}]"
