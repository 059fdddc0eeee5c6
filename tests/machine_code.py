"""Machine code for tests of what ops mean: of each product of cases some run as a user's network would, the others without LLVM's optimizer, whose time
is fifteen times that of all else that LLVM does (23 ms a kernel, 1.6 without). What it makes of the emitted code is found by those that are drawn, another
share on each date, by the tests that compile networks, and by all where nothing is drawn (`dev.py full`). Nor is level 4 of these verified, which takes
as long as making it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sampling

from lightnet.backends.llvm.jit import CodeMachine
from lightnet.compilation import VERIFY

#: Of the cases that need not be optimized, those that are nevertheless.
SHARE = 0.1


def machine(key: str, always: bool = False) -> CodeMachine:
    """This processor; code for it is optimized `always` or where the date draws the case called `key`."""
    host = CodeMachine.host()
    return host if always or sampling.is_drawn(f"optimized {key}", SHARE) else replace(host, optimized=False)


_PLAIN = pytest.StashKey[bool]()


def settle(items: Sequence[pytest.Item]) -> None:
    """Say of each test marked ``meaning`` whether what it compiles for this processor is optimized: of each function the first, and a share of the
    others."""
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("meaning") is not None:
            name = item.nodeid.split("[")[0]
            item.stash[_PLAIN] = name in seen and not sampling.is_drawn(f"optimized {item.nodeid}", SHARE)
            seen.add(name)


@contextmanager
def of(item: pytest.Item) -> Iterator[None]:
    """While a test runs that is to do without: this processor is one whose code is not optimized, and loops are not verified."""
    with pytest.MonkeyPatch.context() as patch:
        if item.stash.get(_PLAIN, False):
            plain = replace(CodeMachine.host(), optimized=False)
            patch.setattr(CodeMachine, "host", classmethod(lambda cls: plain))
            patch.setenv(VERIFY, "")
        yield
