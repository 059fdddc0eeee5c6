"""Machine code for tests of what ops mean: of each product of cases some run as a user's network would, the others without LLVM's optimizer, whose time
is fifteen times that of all else that LLVM does (23 ms a kernel, 1.6 without). What it makes of the emitted code is found by those that are drawn, another
share on each date, by the tests that compile networks, and by all where nothing is drawn (`dev.py full`).

Verifying level 4 takes as long as making it: what compiles verifies it in the first case of each test, whatever that tests, and in a share of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sampling

from lightnet.backends.llvm.jit import CodeMachine
from lightnet.compilation import VERIFY

#: Of the cases that need not be optimized, those that are nevertheless; and of all cases but first ones, those that verify level 4.
SHARE = 0.1
VERIFIED = 0.2


def machine(key: str, always: bool = False) -> CodeMachine:
    """This processor; code for it is optimized `always` or where the date draws the case called `key`."""
    host = CodeMachine.host()
    return host if always or sampling.is_drawn(f"optimized {key}", SHARE) else replace(host, optimized=False)


_PLAIN, _TRUSTED = pytest.StashKey[bool](), pytest.StashKey[bool]()


def settle(items: Sequence[pytest.Item]) -> None:
    """Say of each test marked ``meaning`` whether what it compiles for this processor is optimized, and of each test whether level 4 is verified: of each
    function the first, and a share of the others."""
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.split("[")[0]
        if name in seen:
            means = item.get_closest_marker("meaning") is not None
            item.stash[_PLAIN] = means and not sampling.is_drawn(f"optimized {item.nodeid}", SHARE)
            item.stash[_TRUSTED] = not sampling.is_drawn(f"verified {item.nodeid}", VERIFIED)
        seen.add(name)


@contextmanager
def of(item: pytest.Item) -> Iterator[None]:
    """While a test runs that is to do without: this processor is one whose code is not optimized, loops are not verified."""
    with pytest.MonkeyPatch.context() as patch:
        if item.stash.get(_PLAIN, False):
            plain = replace(CodeMachine.host(), optimized=False)
            patch.setattr(CodeMachine, "host", classmethod(lambda cls: plain))
        if item.stash.get(_TRUSTED, False):
            patch.setenv(VERIFY, "")
        yield
