"""Machine code for tests of what ops mean: the first of each file and some that a date draws run as a user's network would, the others without LLVM's
optimizer, whose time is fifteen times that of all else that LLVM does (23 ms a kernel, 1.6 without). What it makes of the emitted code is found by those,
by the conformance suites and the tests of whole networks, which are marked ``optimized``, and by all where nothing is drawn (`dev.py full`).

Verifying level 4 takes as long as making it: what compiles verifies it in the first case of each test, whatever that tests, and in a share of the others.

The compiler is imported when the first test runs, since pytest's own process, which only starts others, and runs that collect need none of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
import sampling

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from lightnet.backends.llvm.jit import CodeMachine

#: Files of tests of kernels of cuda whose results are looked at, and not their PTX.
CUDA = (
    "cuda_deconv",
    "cuda_gemm",
    "cuda_join",
    "cuda_maps",
    "cuda_mma",
    "cuda_rank",
    "cuda_recurrent",
    "cuda_rows",
    "cuda_scaled",
    "cuda_wgmma",
    "fuzz_cuda",
)
#: Where tests are of what models and kernels compute; in other folders, those marked ``meaning``. The paths begin in tests/.
MEANING = (
    "backends/cpu/",
    "backends/interpreter/",
    "backends/cuda/test_simt",
    *(f"backends/cuda/test_{name}.py" for name in CUDA),
    "backends/test_",
    "dialects/",
    "frontends/",
    "descriptions/",
    "export/",
    "trust/",
    "passes/",
)
#: Of the cases that need not be optimized, those that are nevertheless; and of all cases but first ones, those that verify level 4.
SHARE = 0.1
VERIFIED = 0.2


def machine(key: str, always: bool = False) -> CodeMachine:
    """This processor; code for it is optimized `always` or where the date draws the case called `key`."""
    host = _unpatched()[0]()  # whatever this processor is to the test that runs
    return host if always or sampling.is_drawn(f"optimized {key}", SHARE) else replace(host, optimized=False)


_PLAIN, _TRUSTED = pytest.StashKey[bool](), pytest.StashKey[bool]()


@cache
def _unpatched() -> tuple[Callable[[], CodeMachine], Callable[..., str]]:
    """This processor, and what makes PTX, as they are before a test changes them: `of` asks before any runs."""
    from lightnet.backends.cuda import codegen
    from lightnet.backends.llvm.jit import CodeMachine

    return CodeMachine.host, codegen.ptx


def is_verified() -> bool:
    """Whether level 4 of what the running test compiles is verified."""
    from lightnet.compilation import VERIFY

    return bool(os.environ.get(VERIFY))


def verified(module: ModuleOp) -> ModuleOp:
    """The module, verified where `is_verified`."""
    if is_verified():
        from lightnet.ir.verify import verify_module

        verify_module(module)
    return module


def settle(items: Sequence[pytest.Item]) -> None:
    """Say of each test of meaning whether what it compiles for this processor is optimized: of each file the first, and a share of the others; and of
    each test whether level 4 is verified: of each function the first, and a share of the others."""
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.split("[")[0]
        file = name.split("::")[0]
        if file in seen and _means(item, file):
            item.stash[_PLAIN] = not sampling.is_drawn(f"optimized {item.nodeid}", SHARE)
        if name in seen:
            item.stash[_TRUSTED] = not sampling.is_drawn(f"verified {item.nodeid}", VERIFIED)
        seen |= {name, file}


def _plain_ptx(text: str, arch: str, version: int) -> str:
    """PTX that LLVM does not optimize, unless it may have ``wgmma``, whose registers would be copied while it runs."""
    return _unpatched()[1](text, arch, version, 3 if arch == "sm_90a" else 0)


def _means(item: pytest.Item, file: str) -> bool:
    if item.get_closest_marker("optimized") is not None:
        return False
    return file.removeprefix("tests/").startswith(MEANING) or item.get_closest_marker("meaning") is not None


@contextmanager
def of(item: pytest.Item) -> Iterator[None]:
    """While a test runs that is to do without: this processor is one whose code is not optimized, loops are not verified."""
    from lightnet.backends.cuda import assembly, codegen
    from lightnet.backends.llvm.jit import CodeMachine
    from lightnet.compilation import VERIFY

    _unpatched()
    with pytest.MonkeyPatch.context() as patch:
        if item.stash.get(_PLAIN, False):
            plain = replace(CodeMachine.host(), optimized=False)
            patch.setattr(CodeMachine, "host", classmethod(lambda cls: plain))
            patch.setattr(codegen, "ptx", _plain_ptx)
            patch.setattr(assembly, "FORMAT", f"{assembly.FORMAT} plain")  # of the keys of the cache on disk
        if item.stash.get(_TRUSTED, False):
            patch.setenv(VERIFY, "")
        yield
