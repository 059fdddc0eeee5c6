"""`--print-ir-before` and its like: the module as text around passes."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import TextIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass, field
from lightnet.ir.passes import Instrumentation
from lightnet.ir.printer import TextForm, module_text

#: Stands for every pass in `--print-ir-before` and `--print-ir-after`.
EVERY = "*"


@dataclass
class PrintIR(Instrumentation):
    """Prints the module before and after the named passes, or as a diff after the passes that change it."""

    stream: TextIO
    before: Collection[str]
    after: Collection[str]
    after_change: bool
    form: TextForm
    _previous: str = field(default="", init=False)

    def text(self, module: ModuleOp) -> str:
        return module_text(module, self.form)

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if self.after_change and not self._previous:
            self._previous = self.text(module)
        if _wanted(pass_.name, self.before):
            self.stream.write(f"// ----- IR before {pass_.spec()} -----\n{self.text(module)}")

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if _wanted(pass_.name, self.after):
            self.stream.write(f"// ----- IR after {pass_.spec()} -----\n{self.text(module)}")
        if not self.after_change:
            return
        old, self._previous = self._previous, self.text(module)
        before, after = (s.splitlines(keepends=True) for s in (old, self._previous))
        diff = difflib.unified_diff(before, after, f"before {pass_.name}", f"after {pass_.name}", n=2)
        self.stream.write("".join(diff) or f"// ----- no change by {pass_.spec()} -----\n")


def _wanted(name: str, names: Collection[str]) -> bool:
    return EVERY in names or name in names
