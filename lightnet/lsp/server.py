"""The language server: the protocol around `documents.py`, on pygls. It speaks over stdin and stdout.

Each version of a text is a new `Document`. Its diagnostics are made in a worker thread a moment after the last key, and dropped if
the text has changed by then. Questions have a worker of their own, so that they never wait for diagnostics. Nothing that goes wrong
in an analysis ends the server: it goes to stderr, which editors keep as the server's log. Imports pygls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from lightnet.diagnostics import LightNetError
from lightnet.lsp import protocol
from lightnet.lsp.documents import Cancelled, Document, Settings, open_document
from lightnet.lsp.text import Finding, Place, Span, Text

#: Seconds without a key before a text is analysed.
DEBOUNCE = 0.15
#: Diagnostics of one document that are sent.
MAX_FINDINGS = 200
T = TypeVar("T")


@dataclass
class Opened:
    """A document as the editor has it, the analysis under way, and whether its text was replaced meanwhile."""

    document: Document
    version: int | None
    task: asyncio.Task[None] | None = None
    is_stale: bool = False


class LightNetServer(LanguageServer):
    """The server and the documents that are open in it."""

    def __init__(self, settings: Settings = Settings()):
        # Whole texts: pygls applies partial changes by Python's idea of lines, which is not the protocol's.
        super().__init__("ln-lsp", _version(), text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.settings = settings
        self.opened: dict[str, Opened] = {}
        self.analyses = ThreadPoolExecutor(1, "analysis")
        self.questions = ThreadPoolExecutor(1, "questions")

    @property
    def units(self) -> protocol.Units:
        return protocol.Units(str(getattr(encoding := self.workspace.position_encoding, "value", encoding)))

    # -- documents

    def take(self, uri: str, delay: float) -> None:
        """Take up the present text of a document, and analyse it after `delay` seconds without another one."""
        self.drop(uri)
        source = self.workspace.get_text_document(uri)
        path, language = protocol.path_of(uri), source.language_id or ""
        opened = Opened(open_document(source.source, path, self.settings, language), source.version)
        self.opened[uri] = opened
        opened.task = asyncio.get_running_loop().create_task(self.publish(uri, opened, delay))

    def drop(self, uri: str) -> None:
        """Stop what is being done for a document."""
        if (opened := self.opened.pop(uri, None)) is not None:
            opened.is_stale = True
            if opened.task is not None:
                opened.task.cancel()

    async def publish(self, uri: str, opened: Opened, delay: float) -> None:
        await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self.analyses, self.findings, opened)
        if found is None or opened.is_stale:
            return
        text, units = opened.document.text, self.units
        diagnostics = [protocol.diagnostic(f, uri, text, units) for f in found[:MAX_FINDINGS]]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics, opened.version))

    def findings(self, opened: Opened) -> list[Finding] | None:
        """In the worker: what is wrong with a document; None if nobody wants to know any more."""
        try:
            return opened.document.analyse(lambda: opened.is_stale) if not opened.is_stale else None
        except Cancelled:
            return None
        except Exception:
            logging.exception("the analysis of %s failed", opened.document.path)
            return []

    async def ask(self, uri: str, question: Callable[[Document], T], otherwise: T) -> T:
        """The answer of an open document, found in the worker; `otherwise` for a document that is not open."""
        if (opened := self.opened.get(uri)) is None:
            return otherwise
        try:
            return await asyncio.get_running_loop().run_in_executor(self.questions, question, opened.document)
        except LightNetError:
            raise
        except Exception:
            logging.exception("a question about %s failed", opened.document.path)
            return otherwise

    async def ask_at(
        self, params: lsp.TextDocumentPositionParams, question: Callable[[Document, int], T], otherwise: T
    ) -> T:
        """As `ask`, about a position."""
        units = self.units
        return await self.ask(
            params.text_document.uri,
            lambda document: question(document, units.offset(document.text, params.position)),
            otherwise,
        )

    def range_in(self, uri: str, span: Span) -> lsp.Range:
        return self.units.range(self.opened[uri].document.text, span)

    def location(self, uri: str, place: Place) -> lsp.Location:
        if place.other is not None:
            return protocol.location(place.other, Text(""), self.units)
        return lsp.Location(uri, self.range_in(uri, place.span))


def make_server(settings: Settings = Settings()) -> LightNetServer:
    """A server with every feature; `start_io` runs it."""
    server = LightNetServer(settings)
    _add_documents(server)
    _add_questions(server)
    _add_names(server)
    return server


def _add_documents(server: LightNetServer) -> None:
    @server.feature(lsp.INITIALIZED)
    async def initialized(ls: LightNetServer, _: lsp.InitializedParams) -> None:
        asyncio.get_running_loop().run_in_executor(ls.questions, _warm_up)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(ls: LightNetServer, params: lsp.DidOpenTextDocumentParams) -> None:
        ls.take(params.text_document.uri, 0)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: LightNetServer, params: lsp.DidChangeTextDocumentParams) -> None:
        ls.take(params.text_document.uri, DEBOUNCE)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(ls: LightNetServer, _: lsp.DidSaveTextDocumentParams) -> None:
        for uri in list(ls.opened):  # whatever includes the file that was saved
            ls.take(uri, 0)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(ls: LightNetServer, params: lsp.DidCloseTextDocumentParams) -> None:
        ls.drop(params.text_document.uri)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))

    @server.feature(lsp.SHUTDOWN)
    async def shutdown(ls: LightNetServer, _: Any) -> None:
        for uri in list(ls.opened):
            ls.drop(uri)


def _add_questions(server: LightNetServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(ls: LightNetServer, params: lsp.HoverParams) -> lsp.Hover | None:
        found = await ls.ask_at(params, lambda d, at: d.hover(at), None)
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown)
        return lsp.Hover(content, ls.range_in(params.text_document.uri, found.span))

    # A quote and a sign of a value begin something; a letter always asks.
    options = lsp.CompletionOptions(trigger_characters=list('.%@#"{(=,|'), resolve_provider=True)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    async def complete(ls: LightNetServer, params: lsp.CompletionParams) -> lsp.CompletionList:
        found = await ls.ask_at(params, lambda d, at: d.complete(at), [])
        uri = params.text_document.uri
        items = [protocol.item(c, number, ls.range_in(uri, c.span)) for number, c in enumerate(found)]
        return lsp.CompletionList(is_incomplete=False, items=items)

    @server.feature(lsp.COMPLETION_ITEM_RESOLVE)
    async def resolve(ls: LightNetServer, params: lsp.CompletionItem) -> lsp.CompletionItem:
        from lightnet.lsp import op_docs

        topic = params.data if isinstance(params.data, str) else ""
        markdown = await asyncio.get_running_loop().run_in_executor(ls.questions, op_docs.topic_markdown, topic)
        params.documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, markdown) if markdown else None
        return params

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(ls: LightNetServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        uri = params.text_document.uri
        found = await ls.ask(uri, lambda d: d.symbols(), [])
        return [protocol.symbol(s, lambda span: ls.range_in(uri, span)) for s in found]


def _add_names(server: LightNetServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def definition(ls: LightNetServer, params: lsp.DefinitionParams) -> lsp.Location | None:
        place = await ls.ask_at(params, lambda d, at: d.definition(at), None)
        return ls.location(params.text_document.uri, place) if place is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def references(ls: LightNetServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        places = await ls.ask_at(params, lambda d, at: d.references(at), [])
        if places and not params.context.include_declaration:
            declared = await ls.ask_at(params, lambda d, at: d.definition(at), None)
            places = [p for p in places if p != declared]
        return [ls.location(uri, p) for p in places]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    async def rename(ls: LightNetServer, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        uri, name = params.text_document.uri, params.new_name
        try:
            places = await ls.ask_at(params, lambda d, at: d.rename(at, name), None)
        except LightNetError as e:
            raise JsonRpcInvalidParams(e.message) from None
        if places is None:
            return None
        new = name if name.startswith("%") else f"%{name}"
        return lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(ls.range_in(uri, p.span), new) for p in places]})


def _warm_up() -> None:
    """Import the ops while the user looks at the file."""
    from lightnet.lsp import op_docs

    op_docs.all_ops()


def _version() -> str:
    try:
        return version("lightnet")
    except PackageNotFoundError:
        return "0"
