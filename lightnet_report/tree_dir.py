"""`--print-ir-tree-dir DIR`: the module after every pass in a file of its own, with what the pass changed. Imports
`ir`.

    DIR/00_input.mlir   01_bind.mlir   01_bind.diff   02_simplify.mlir ...

A folder holds the files of one run: those of an earlier one go, anything else is never touched. Each file appears
whole.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.diagnostics import LightNetError
from lightnet.ir.passes import Instrumentation
from lightnet.ir.printer import TextForm, module_text
from lightnet.runtime.files import write_atomic

#: The file that makes a folder ours, and lists what was written into it.
MARK = ".lightnet-ir"
MARK_TEXT = "Written by --print-ir-tree-dir, with the files below; the next run replaces them.\n"

_OURS = re.compile(r"(part\d+/)?\d\d+_[\w.-]{1,100}\.(mlir|diff)")


class Folder:
    """A folder for the files of one run: those of an earlier run are removed, and no other file is ever replaced.

    Raises `LightNetError` where it is no folder, or holds files and is not ours.
    """

    def __init__(self, path: Path):
        self.path = path
        with self._trouble():
            if path.exists() and not path.is_dir():
                raise LightNetError(f"'{path}' is a file: --print-ir-tree-dir takes a folder")
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                self._clear()
            write_atomic(path / MARK, MARK_TEXT)

    def write(self, name: str, text: str) -> None:
        """Write the file `name` (it may stand in a folder), and note that it is ours."""
        file = self.path / name
        with self._trouble():
            if file.exists() or file.is_symlink():
                raise LightNetError(f"'{file}' is there already, and not of an earlier --print-ir-tree-dir")
            file.parent.mkdir(exist_ok=True)
            with open(self.path / MARK, "a", encoding="utf-8") as mark:
                mark.write(f"{name}\n")
            write_atomic(file, text)

    def _clear(self) -> None:
        mark = self.path / MARK
        if not mark.is_file():
            raise LightNetError(
                f"'{self.path}' is not empty, and not of an earlier --print-ir-tree-dir: give another folder"
            )
        for name in mark.read_text("utf-8", "replace").split("\n"):
            if _OURS.fullmatch(name):
                (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise LightNetError(f"cannot write into the folder '{self.path}': {e.strerror or e}") from None


class IRTree(Instrumentation):
    """Writes the files of one module into `folder`; `prefix` is in front of their names (``part2/``)."""

    def __init__(self, folder: Folder, prefix: str = "", form: TextForm = TextForm()):
        self.folder, self.prefix, self.form = folder, prefix, form
        self._count = -1
        self._previous = ""
        self._written = False

    def before_pipeline(self, passes: Sequence[ModulePass], module: ModuleOp) -> None:
        if self._count < 0:
            self.write("input", self.text(module))

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self._written = False

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.write(pass_.name, self.text(module))
        self._written = True

    def pass_failed(self, pass_: ModulePass, module: ModuleOp, error: Exception) -> None:
        """Write what the pass left, which need not verify, nor print; it is there where a check failed after it."""
        if self._written:
            return
        try:
            text = self.text(module)
        except Exception as e:
            text = f"// the module cannot be printed: {type(e).__name__}\n"
        self.write(f"{pass_.name}.failed", text)

    def text(self, module: ModuleOp) -> str:
        return module_text(module, self.form)

    def write(self, name: str, text: str) -> None:
        """The file of one stage, and but for the first the difference to the one before (empty where there is none)."""
        self._count += 1
        stem = f"{self.prefix}{self._count:02}_{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:80]}"
        self.folder.write(f"{stem}.mlir", text)
        if self._count:
            before, after = (s.splitlines(keepends=True) for s in (self._previous, text))
            diff = difflib.unified_diff(before, after, f"before {name}", f"after {name}", n=3)
            self.folder.write(f"{stem}.diff", "".join(diff))
        self._previous = text
