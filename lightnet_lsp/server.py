"""The language server: the protocol around `documents.py`, on pygls. It speaks over stdin and stdout.

Each version of a text is a new `Document`. Its diagnostics are made in a worker thread a moment after the last key, and
dropped if the text has changed by then. Questions have a worker of their own, so that they never wait for diagnostics.
Nothing that goes wrong in an analysis ends the server: it goes to stderr, which editors keep as the server's log.
Imports pygls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from lightnet import __version__
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet_lsp import protocol
from lightnet_lsp.connection import Connection
from lightnet_lsp.documents import Cancelled, Document, Settings, open_document
from lightnet_lsp.text import Completion, Finding, Place, Symbol, Text

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

    def __init__(self, settings: Settings):
        # Whole texts: pygls applies partial changes by Python's idea of lines, which is not the protocol's.
        full = lsp.TextDocumentSyncKind.Full
        super().__init__("ln-lsp", __version__, text_document_sync_kind=full, protocol_cls=Connection)
        self.settings = settings
        self.is_shut_down = False
        self.exit_status = 0  # that of the process: 1 if the editor says `exit` without `shutdown`
        self.opened: dict[str, Opened] = {}
        self.analyses = ThreadPoolExecutor(1, "analysis")
        self.questions = ThreadPoolExecutor(1, "questions")

    @property
    def units(self) -> protocol.Units:
        return protocol.Units(str(getattr(encoding := self.workspace.position_encoding, "value", encoding)))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Into the log: pygls would have the editor pop it up."""
        logging.error("%s", error)

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

    def document(self, uri: str) -> Document:
        """An open document as it is now, which is what a request that comes now asks about; for any other an empty
        one."""
        opened = self.opened.get(uri)
        return opened.document if opened is not None else Document("", protocol.path_of(uri))

    async def ask(self, document: Document, question: Callable[[Document], T], otherwise: T) -> T:
        """The answer of a document, found in the worker."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.questions, question, document)
        except LightNetError:
            raise
        except Exception:
            logging.exception("a question about %s failed", document.path)
            return otherwise

    async def ask_at(
        self, document: Document, position: lsp.Position, question: Callable[[Document, int], T], otherwise: T
    ) -> T:
        """As `ask`, about a position."""
        units = self.units
        return await self.ask(document, lambda d: question(d, units.offset(d.text, position)), otherwise)

    def location(self, uri: str, document: Document, place: Place) -> lsp.Location:
        if place.other is not None:
            return protocol.location(place.other, Text(""), self.units)
        return lsp.Location(uri, self.units.range(document.text, place.span))


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
    def shutdown(ls: LightNetServer, _: Any) -> None:
        ls.is_shut_down = True
        for uri in list(ls.opened):
            ls.drop(uri)

    @server.feature(lsp.EXIT)
    def leave(ls: LightNetServer, _: Any) -> None:
        ls.exit_status = 0 if ls.is_shut_down else 1


def _add_questions(server: LightNetServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(ls: LightNetServer, params: lsp.HoverParams) -> lsp.Hover | None:
        document = ls.document(params.text_document.uri)
        found = await ls.ask_at(document, params.position, lambda d, at: d.hover(at), None)
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown)
        return lsp.Hover(content, ls.units.range(document.text, found.span))

    # A quote and a sign of a value begin something; a letter always asks.
    options = lsp.CompletionOptions(trigger_characters=list('.%@#"{(=,|'), resolve_provider=True)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    async def complete(ls: LightNetServer, params: lsp.CompletionParams) -> lsp.CompletionList:
        document, units = ls.document(params.text_document.uri), ls.units
        found: list[Completion] = await ls.ask_at(document, params.position, lambda d, at: d.complete(at), [])
        items = [protocol.item(c, number, units.range(document.text, c.span)) for number, c in enumerate(found)]
        return lsp.CompletionList(is_incomplete=False, items=items)

    @server.feature(lsp.COMPLETION_ITEM_RESOLVE)
    async def resolve(ls: LightNetServer, params: lsp.CompletionItem) -> lsp.CompletionItem:
        from lightnet_lsp import op_docs

        topic = params.data if isinstance(params.data, str) else ""
        markdown = await asyncio.get_running_loop().run_in_executor(ls.questions, op_docs.topic_markdown, topic)
        params.documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, markdown) if markdown else None
        return params

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(ls: LightNetServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        document, units = ls.document(params.text_document.uri), ls.units
        found: list[Symbol] = await ls.ask(document, lambda d: d.symbols(), [])
        return [protocol.symbol(s, lambda span: units.range(document.text, span)) for s in found]


def _add_names(server: LightNetServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def definition(ls: LightNetServer, params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        document = ls.document(uri)
        place = await ls.ask_at(document, params.position, lambda d, at: d.definition(at), None)
        return ls.location(uri, document, place) if place is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def references(ls: LightNetServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        document = ls.document(uri)
        places: list[Place] = await ls.ask_at(document, params.position, lambda d, at: d.references(at), [])
        if places and not params.context.include_declaration:
            declared = await ls.ask_at(document, params.position, lambda d, at: d.definition(at), None)
            places = [p for p in places if p != declared]
        return [ls.location(uri, document, p) for p in places]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    async def rename(ls: LightNetServer, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        uri, name = params.text_document.uri, params.new_name
        document, units = ls.document(uri), ls.units
        try:
            places = await ls.ask_at(document, params.position, lambda d, at: d.rename(at, name), None)
        except LightNetError as e:
            raise JsonRpcInvalidParams(e.message) from None
        if places is None:
            return None
        new = name if name.startswith("%") else f"%{name}"
        return lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(units.range(document.text, p.span), new) for p in places]})


def _warm_up() -> None:
    """Import the ops while the user looks at the file."""
    from lightnet_lsp import op_docs

    op_docs.all_ops()
