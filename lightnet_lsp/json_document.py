"""A document of JSON: a network (LightNet's JSON IR or an NNVM graph), or descriptions of ops or rewrites, as `.op`
text is, too.

Other JSON is none of our business: it has no findings. Imports `frontends`, and `descriptions` when a document has
some.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lightnet.diagnostics import LightNetError
from lightnet.frontends import json_ir
from lightnet.frontends.importer import to_module
from lightnet.frontends.loading import OpenError, is_nnvm
from lightnet_lsp import op_docs
from lightnet_lsp.documents import Document
from lightnet_lsp.text import Hover, Span, Symbol

_OPTYPE = re.compile(r'"optype"\s*:\s*"(\w+)"')
_OBJECT = re.compile(r"^(\w+)\s*(?::\s*(\w+))?\s*\{", re.MULTILINE)
#: Keys that descriptions have together: what they are for, which networks do not say, and what they describe.
_DESCRIBES = tuple(re.compile(rf"""["']?\b(?:{k})["']?\s*:""") for k in ("arch", "ops|optype|combiners|subgraphs"))
#: Keys of a network.
_NETWORK = re.compile(r'"(?:ops|optype|tensors_in|tensors_out)"\s*:')


class JsonDocument(Document):
    """`is_op_text` says that it is `.op` text."""

    def __init__(self, text: str, path: str, *, is_op_text: bool):
        super().__init__(text, path)
        self.is_op_text = is_op_text

    def errors(self, is_cancelled: Callable[[], bool]) -> list[LightNetError]:
        found: list[LightNetError] = []
        try:
            self.read(found)
        except OpenError:
            pass  # shapes that weights or inputs decide are no mistake of the file
        except LightNetError as e:
            found.append(e)
        return found

    def read(self, found: list[LightNetError]) -> None:
        """Read the document as what it is; mistakes are raised, or added where reading can go on."""
        text = self.text.text
        if self.is_op_text or all(key.search(text) for key in _DESCRIBES):
            from lightnet_descriptions import load_descriptions, reader

            load_descriptions(reader.read_description(text, self.path))
        elif is_nnvm(text):
            from lightnet_nnvm import importer

            importer.read(text, self.path)
        elif _NETWORK.search(text):
            to_module(json_ir.read(text, self.path), found.append)

    def hover(self, offset: int) -> Hover | None:
        """The op whose name stands behind ``"optype"``."""
        line, _ = self.text.position(offset)
        start = self.text.starts[line]
        for m in _OPTYPE.finditer(self.text.text, start, start + len(self.text.line(line))):
            op = op_docs.ln_op(m[1])
            if op is not None and m.start(1) <= offset <= m.end(1):
                return Hover(Span(*m.span(1)), op_docs.op_markdown(op, il=True))
        return None

    def symbols(self) -> list[Symbol]:
        """The objects of `.op` text, the ops of JSON."""
        if self.is_op_text:
            objects = _OBJECT.finditer(self.text.text)
            return [Symbol(m[1], m[2] or "", "Class", Span(*m.span()), Span(*m.span(1))) for m in objects]
        ops = _OPTYPE.finditer(self.text.text)
        return [Symbol(m[1], "", "Function", Span(*m.span()), Span(*m.span(1))) for m in ops]
