"""The macros that are there from the start: `__LINE__`, `__FILE__`, `__DATE__`, `__COUNTER__`, `__has_include`, …

`__DATE__` and `__TIME__` are those of the translation, or of SOURCE_DATE_EPOCH (seconds, UTC) where that is set: a
network that uses them differs from day to day, which is its own doing. Imports the lexer, macros and diagnostics only.
"""

from __future__ import annotations

import os
import time
from time import struct_time
from typing import TYPE_CHECKING

from lightnet.frontends.il.lexer import NUMBER, STRING, Token
from lightnet.frontends.il.macros import Macro

if TYPE_CHECKING:
    from lightnet.frontends.il.expansion import Expansion
    from lightnet.frontends.il.preprocessor import Preprocessor

#: What cannot be made of tokens here: text that is read before a network.
PREDEFINED = "#define __STDC_VERSION__ 201710L\n#define _Pragma(x)\n"
_LAST = 253402300799  # of the year 9999
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


class Predefined:
    """The handlers of the macros of one translation."""

    def __init__(self, preprocessor: Preprocessor):
        self.preprocessor = preprocessor
        self.count = 0
        self._now: time.struct_time | None = None

    def macros(self) -> dict[str, Macro]:
        """The macros, by name."""
        one: Token = (NUMBER, "1", False, -1, None)
        handlers = {
            "__LINE__": self.line, "__FILE__": self.file, "__COUNTER__": self.counter, "__INCLUDE_LEVEL__": self.level,
            "__DATE__": self.date, "__TIME__": self.time, "__STDC__": None, "__STDC_HOSTED__": None,
        }  # fmt: skip
        found = {name: Macro(name, -1, None, False, [one], handler=handler) for name, handler in handlers.items()}
        reader = self.preprocessor.has_include
        return found | {"__has_include": Macro("__has_include", -1, None, False, [one], reader=reader)}

    def line(self, use: Expansion) -> tuple[int, str]:
        return NUMBER, str(self.preprocessor.presumed(use.root).line)

    def file(self, use: Expansion) -> tuple[int, str]:
        return _quoted(self.preprocessor.presumed(use.root).file)

    def counter(self, use: Expansion) -> tuple[int, str]:
        self.count += 1
        return NUMBER, str(self.count - 1)

    def level(self, use: Expansion) -> tuple[int, str]:
        return NUMBER, str(self.preprocessor.file.level)

    def date(self, use: Expansion) -> tuple[int, str]:
        now = self.now(use)
        return _quoted(f"{_MONTHS[now.tm_mon - 1]} {now.tm_mday:2} {now.tm_year:04}")

    def time(self, use: Expansion) -> tuple[int, str]:
        return _quoted(time.strftime("%H:%M:%S", self.now(use)))

    def now(self, use: Expansion) -> struct_time:
        """The time of the translation; one moment for all of it."""
        if self._now is None:
            epoch = os.environ.get("SOURCE_DATE_EPOCH")
            self._now = time.localtime()
            if epoch is not None and epoch.isascii() and epoch.isdigit() and int(epoch[:16]) <= _LAST:
                self._now = time.gmtime(int(epoch))
            elif epoch is not None:
                at: Token = (NUMBER, "", False, use.root, None)
                wanted = f"a number of seconds up to {_LAST}, and is {epoch[:40]!r}"
                self.preprocessor.report(f"the environment variable SOURCE_DATE_EPOCH should be {wanted}", at)
        return self._now


def _quoted(text: str) -> tuple[int, str]:
    return STRING, '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
