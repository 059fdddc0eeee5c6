"""Machine code for tests of what ops mean: of each product of cases some run as a user's network would, the others without LLVM's optimizer, whose time
is fifteen times that of all else that LLVM does (23 ms a kernel, 1.6 without). What it makes of the emitted code is found by those that are drawn, another
share on each date, by the tests that compile networks, and by all where nothing is drawn (`dev.py full`)."""

from __future__ import annotations

from dataclasses import replace

import sampling

from lightnet.backends.llvm.jit import Machine

#: Of the cases that need not be optimized, those that are nevertheless.
SHARE = 0.2


def machine(key: str, always: bool = False) -> Machine:
    """This processor; code for it is optimized `always` or where the date draws the case called `key`."""
    host = Machine.host()
    return host if always or sampling.is_drawn(f"optimized {key}", SHARE) else replace(host, optimized=False)
