"""The forms of code: how each stands in a file, and what loads and calls it.

A format goes by the first word of `Program.triple`: that of a processor for machine code of this process, another one
for a device. A target outside of the package brings one with its runtime (`ir/runtime.py`), or adds it with `add`,
where there is no compiler. Imports the diagnostics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from lightnet.diagnostics import LightNetError

if TYPE_CHECKING:
    import numpy as np

    from lightnet.runtime.instance import Callee
    from lightnet.runtime.machine import Opened
    from lightnet.runtime.program import Program


class CodeFormat:
    """A form of code. `name` is what `Program.triple` begins with, `options` are what loading takes beside the file
    (``lightnet.load_executable(path, emulate=True)``)."""

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    #: Whether it runs programs whose sizes calls decide.
    takes_symbols: ClassVar[bool] = False

    def requires(self, program: Program) -> Sequence[str]:
        """The features that a processor must have to run a program."""
        return ()

    def packed(self, program: Program, code: Any) -> tuple[dict[str, Any], bytes]:
        """The part of a file that code is: facts, as JSON values, and bytes. Facts are signed and checked, but trusted
        as far as the code is.
        """
        raise NotImplementedError

    def objects(self, facts: Mapping[str, Any], body: memoryview) -> tuple[bytes, ...]:
        """`Program.objects` of a file."""
        return ()

    def unpacked(self, program: Program, facts: Mapping[str, Any], body: memoryview) -> Any:
        """The code of a file. Raises ValueError, LookupError, TypeError or LightNetError for what is none, or reaches
        out of the program's memory."""
        raise NotImplementedError

    def opened(self, program: Program, code: Any, options: Mapping[str, Any]) -> Opened | None:
        """The machine that a loaded program runs on, with the options of loading; None: this process, which needs no
        opening."""
        return None

    def instance(self, program: Program, code: Any, static: np.ndarray, defaults: Mapping[str, np.ndarray],
                 opened: Opened | None) -> Callee:  # fmt: skip
        """A program ready to be called: `static` has the bytes of the static space, `defaults` the contents of inputs
        and residents, `opened` is its machine."""
        raise NotImplementedError


#: The processors that machine code goes by, the format of that, and the formats of devices: ``module:Attribute``,
#: imported when code of theirs is saved or loaded.
PROCESSORS, NATIVE = ("x86_64", "aarch64"), "lightnet.runtime.native_format:NATIVE"
CODE_FORMATS: dict[str, str | CodeFormat] = {"nvptx64": "lightnet.runtime.cuda.format:PTX"}


def add(format: CodeFormat) -> None:
    """Make a format known where no target brings it."""
    CODE_FORMATS[format.name] = format


def format_of(triple: str, target: str | None = None) -> CodeFormat:
    """The format of code that a target made for a triple. Raises `LightNetError` where the target is not known here."""
    name = triple.partition("-")[0]
    found = CODE_FORMATS.get(triple, CODE_FORMATS.get(name))
    if found is None and name not in PROCESSORS and target is not None:
        found = _of_target(target)
    if found is None:
        found = NATIVE
    if isinstance(found, CodeFormat):
        return found
    module, _, attribute = found.partition(":")
    return getattr(import_module(module), attribute)


def _of_target(target: str) -> CodeFormat:
    from lightnet.ir.registry import runtime_of

    try:
        return runtime_of(target).format
    except (ImportError, LightNetError):
        raise LightNetError(f"the code is for target '{target}', which nothing here knows: load the plugin that it "
                            "comes from (--load)",
                            label="lnx.format") from None  # fmt: skip
