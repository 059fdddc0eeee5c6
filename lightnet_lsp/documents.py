"""One open document of an editor: which kind it is, and what every kind can be asked. No protocol, no threads.

A document is made anew for each version of the text. What needs a parse is found by `analyse`, once, in a worker; the
rest comes from the text alone, so that it answers while the text is broken. Imports `text` and the registry; the kinds
are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import FRONTENDS
from lightnet_lsp.text import Completion, Finding, Hover, Place, Symbol, Text, findings

#: A larger document is not analysed: an editor asks again at each key.
MAX_TEXT = 4 << 20


class Cancelled(BaseException):
    """The analysis is of no use any more: the text has changed. No `Exception`, which a parser would report."""


class Document:
    """A document that nothing is known about: no finding, no answer. The kinds override what they know."""

    def __init__(self, text: str, path: str):
        self.path = path
        self.text = Text(text)

    def analyse(self, is_cancelled: Callable[[], bool] = lambda: False) -> list[Finding]:
        """Parse and verify: all that is wrong. Raises `Cancelled` soon after `is_cancelled`."""
        return findings(self.errors(is_cancelled), self.text, self.path)

    def errors(self, is_cancelled: Callable[[], bool]) -> list[LightNetError]:
        return []

    def hover(self, offset: int) -> Hover | None:
        """The hover for what stands at an offset."""
        return None

    def complete(self, offset: int) -> list[Completion]:
        """The completions that may be typed at an offset."""
        return []

    def definition(self, offset: int) -> Place | None:
        """The place where the name at an offset is defined."""
        return None

    def references(self, offset: int) -> list[Place]:
        """Every place of the name at an offset, its definition first."""
        return []

    def symbols(self) -> list[Symbol]:
        """The outline."""
        return []

    def rename(self, offset: int, name: str) -> list[Place] | None:
        """The places to replace by `name`; None for what cannot be renamed. Raises `LightNetError` for a name that does
        not do."""
        return None


@dataclass(frozen=True)
class Settings:
    """The settings that the user told the server: folders for `#include`."""

    include_dirs: tuple[str, ...] = ()


class ImportedDocument(Document):
    """A network in a form that a plugin reads: diagnostics only."""

    def errors(self, is_cancelled: Callable[[], bool]) -> list[LightNetError]:
        from lightnet.frontends.loading import OpenError, ReadOptions
        from lightnet.ir.context import make_context

        try:
            FRONTENDS.get(PurePath(self.path).suffix.lower()).read(
                self.text.text, self.path, make_context(), ReadOptions()
            )
        except OpenError:
            pass  # shapes that the inputs decide are no mistake of the file
        except LightNetError as e:
            return [e]
        return []


#: The suffix of a document that has none of ours, by the language that the editor says it is in.
_LANGUAGES = {"mlir": ".mlir", "lightnet-il": ".net", "lightnet_il": ".net", "lightnet-op": ".op", "lightnet_op": ".op"}


def open_document(text: str, path: str, settings: Settings = Settings(), language: str = "") -> Document:
    """The document in `text`, of the kind that the suffix of `path` says, or else the editor's name of its language."""
    if len(text) > MAX_TEXT:
        return Document(text, path)
    suffix = PurePath(path).suffix.lower()
    if suffix == ".op":
        language = "lightnet-op"
    if suffix not in FRONTENDS:
        suffix = _LANGUAGES.get(language, "")
    match suffix:
        case ".mlir":
            from lightnet_lsp.mlir_document import MlirDocument

            return MlirDocument(text, path)
        case ".net":
            from lightnet_lsp.il_document import IlDocument

            return IlDocument(text, path, settings.include_dirs)
        case ".json" | ".op":
            from lightnet_lsp.json_document import JsonDocument

            return JsonDocument(text, path, is_op_text=suffix == ".op")
    return (
        ImportedDocument(text, path)
        if suffix in FRONTENDS and not FRONTENDS.get(suffix).binary
        else Document(text, path)
    )
