"""The language server as an editor sees it: pygls' client talks to `ln-lsp` over stdin and stdout."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the extra lsp is not installed")

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from lightnet.diagnostics import SourceLoc
from lightnet.frontends.il import reader as il
from lightnet.frontends.importer import to_module
from lightnet.ir.printer import module_text
from lightnet_lsp.protocol import Units
from lightnet_lsp.text import Text

ROOT = Path(__file__).parents[2]
TEXT = (
    '// RUN: ln-opt --pass=expand %s  𝔘\nfunc.func @main() -> tensor<3xf32> {\n  %x = ln.input : tensor<3xf32> as "𝔘"("img")\n'
    '  %y = ln.elew %x, %x {elew_op = "TL_SUM"} : tensor<3xf32>\n  func.return %y : tensor<3xf32>\n}\n'
)


class Editor:
    """An editor with one document."""

    def __init__(self, client: LanguageClient, uri: str):
        self.client, self.uri, self.version = client, uri, 0
        self.document = lsp.TextDocumentIdentifier(uri)
        self.published: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: lsp.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

    def open(self, text: str, language: str = "mlir") -> None:
        self.version = 1
        item = lsp.TextDocumentItem(self.uri, language, self.version, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, text: str) -> None:
        self.version += 1
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        identifier = lsp.VersionedTextDocumentIdentifier(self.version, self.uri)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(identifier, [change]))

    async def diagnostics(self) -> list[lsp.Diagnostic]:
        """The diagnostics of the present version; those of earlier ones are passed over."""
        while True:
            found = await self.published.get()
            if found.version in (self.version, None):
                return list(found.diagnostics)


@asynccontextmanager
async def editor(uri: str, *arguments: str) -> AsyncIterator[Editor]:
    client = LanguageClient("test", "1")
    await client.start_io(sys.executable, "-m", "lightnet_lsp.__main__", *arguments)
    answer = await client.initialize_async(lsp.InitializeParams(capabilities=lsp.ClientCapabilities()))
    assert answer.server_info is not None and answer.server_info.name == "ln-lsp"
    client.initialized(lsp.InitializedParams())
    yield Editor(client, uri)
    await client.shutdown_async(None)
    client.exit(None)
    assert await asyncio.wait_for(client._server.wait(), 10) == 0  # type: ignore[union-attr]
    await client.stop()


def session(run: Callable[[Editor], Awaitable[None]], uri: str, *arguments: str) -> None:
    async def whole() -> None:
        async with editor(uri, *arguments) as e:
            await run(e)

    asyncio.run(asyncio.wait_for(whole(), 60))


def uri_of(path: Path) -> str:
    return path.resolve().as_uri()


def test_a_session(tmp_path: Path) -> None:
    async def run(e: Editor) -> None:
        e.open(TEXT)
        assert await e.diagnostics() == []

        e.change(TEXT.replace("TL_SUM", "TL_NOPE"))
        (found,) = await e.diagnostics()
        assert found.range == lsp.Range(lsp.Position(3, 7), lsp.Position(3, 14))
        assert (found.severity, found.code) == (
            lsp.DiagnosticSeverity.Error,
            "elew.elew_op.value",
        ) and "TL_SUM" in found.message

        position = lsp.Position(3, 15)
        hover = await e.client.text_document_hover_async(lsp.HoverParams(e.document, position))
        assert "%x : tensor<3xf32>" in hover.contents.value and hover.range.start == lsp.Position(3, 15)

        definition = await e.client.text_document_definition_async(lsp.DefinitionParams(e.document, position))
        assert definition.range == lsp.Range(lsp.Position(2, 2), lsp.Position(2, 4)) and definition.uri == e.uri

        context = lsp.ReferenceContext(include_declaration=True)
        references = await e.client.text_document_references_async(lsp.ReferenceParams(context, e.document, position))
        assert [r.range.start.line for r in references] == [2, 3, 3]

        edit = await e.client.text_document_rename_async(lsp.RenameParams(e.document, position, "img"))
        assert [(t.range.start.line, t.new_text) for t in edit.changes[e.uri]] == [
            (2, "%img"),
            (3, "%img"),
            (3, "%img"),
        ]
        with pytest.raises(JsonRpcException, match="%y is used already"):
            await e.client.text_document_rename_async(lsp.RenameParams(e.document, position, "%y"))

        (main,) = await e.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(e.document))
        assert main.name == "@main" and [c.name for c in main.children] == ["img", "%y"]

        e.change(TEXT.replace('{elew_op = "TL_SUM"}', "{"))
        params = lsp.CompletionParams(e.document, lsp.Position(3, 23))
        completion = await e.client.text_document_completion_async(params)
        assert [i.label for i in completion.items] == ["elew_op"]
        assert completion.items[0].text_edit.new_text == "elew_op = "
        assert (await e.diagnostics())[0].range.start.line == 3

        params = lsp.CompletionParams(e.document, lsp.Position(3, 11))
        (elew,) = (i for i in (await e.client.text_document_completion_async(params)).items if i.label == "ln.elew")
        assert "Arithmetic on two tensors" in (await e.client.completion_item_resolve_async(elew)).documentation.value

        e.client.text_document_did_close(lsp.DidCloseTextDocumentParams(e.document))
        assert await e.diagnostics() == []
        assert await e.client.text_document_hover_async(lsp.HoverParams(e.document, position)) is None

    session(run, uri_of(tmp_path / "net.mlir"))


def test_positions_count_utf16_units(tmp_path: Path) -> None:
    async def run(e: Editor) -> None:
        line = '  %x = ln.input : tensor<3xf32> as "𝔘"("img")'
        e.open(TEXT.replace(line, f"{line} $"))
        (found,) = await e.diagnostics()
        assert found.range.start == lsp.Position(2, len(line) + 2)

    session(run, uri_of(tmp_path / "net.mlir"))
    whole = Text("first\nsecond line\nthird")
    assert whole.span_at(SourceLoc("f", 2, 0)) == (6, 17)  # no column: the line
    assert whole.span_at(SourceLoc("f", 2, 8)) == (13, 17) and whole.span_at(SourceLoc("f", 0, 0)) == (0, 0)
    text = Text("a𝔘b\r\nx")
    for encoding, column in (("utf-8", 5), ("utf-16", 3), ("utf-32", 2)):
        units = Units(encoding)
        assert units.position(text, 2) == lsp.Position(0, column)
        assert units.offset(text, lsp.Position(0, column)) == 2
        assert units.offset(text, lsp.Position(0, 99)) == 3
        assert units.offset(text, lsp.Position(1, 1)) == 5
        assert units.offset(text, lsp.Position(9, 9)) == 5


def test_typing_in_a_large_network_gets_the_last_version_only(tmp_path: Path) -> None:
    path = ROOT / "tests" / "data" / "nets" / "il" / "yolov3_bak.net"
    text = module_text(to_module(il.read(path.read_text(), str(path))))

    async def run(e: Editor) -> None:
        e.open(text)
        broken = text.replace("func.return", "func.retur ")
        for length in range(1, 12):  # a key each 10 ms
            e.change(broken + "// " + "x" * length)
            await asyncio.sleep(0.01)
        asked = asyncio.get_running_loop().time()
        await e.client.text_document_hover_async(lsp.HoverParams(e.document, lsp.Position(0, 2)))
        assert asyncio.get_running_loop().time() - asked < 5
        (found,) = await e.diagnostics()
        assert "func.retur" in found.message
        assert e.published.empty()

    session(run, uri_of(tmp_path / "big.mlir"))


def test_include_folders_loaded_ops_and_a_plugin_that_prints(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "layers.h").write_text("#define ACT(a, b) relu(src=a | dst=b |)\n")
    loud = tmp_path / "loud.py"
    loud.write_text('import os\nprint("Content-Length: 5")\nos.write(1, b"noise")\n')
    net = "#include <layers.h>\n" + (ROOT / "examples" / "described" / "ops.net").read_text()
    net += "\nscaled_square(src=image | dst=squared | scale=0.5);\n"

    def position(text: str) -> lsp.Position:
        before = net[: net.index(text) + 1]
        return lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)

    async def run(e: Editor) -> None:
        e.open(net, "lightnet-il")
        assert await e.diagnostics() == []
        for op in ("my_gelu(", "scaled_square("):  # described, and written in Python
            hover = await e.client.text_document_hover_async(lsp.HoverParams(e.document, position(f"\n{op}")))
            assert op in hover.contents.value
        definition = await e.client.text_document_definition_async(lsp.DefinitionParams(e.document, position("layers")))
        assert definition.uri == uri_of(tmp_path / "include" / "layers.h")

    files = (ROOT / "examples" / "my_op.py", ROOT / "examples" / "described" / "ops.op", loud)
    loads = [argument for file in files for argument in ("--load", str(file))]
    session(run, uri_of(tmp_path / "net.net"), "-I", str(tmp_path / "include"), *loads)


def test_it_ends_when_the_editor_is_gone() -> None:
    command = [sys.executable, "-m", "lightnet_lsp.__main__"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120).returncode == 0


def test_without_pygls_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['pygls'] = None; from lightnet_lsp.__main__ import main; sys.exit(main([]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout) == (1, "")
    assert (
        run.stderr == "error: the language server needs pygls: install it with pip install 'lightnet-compiler[lsp]'\n"
    )


def test_a_file_that_cannot_be_loaded_is_one_error() -> None:
    command = [sys.executable, "-m", "lightnet_lsp.__main__", "--load", "gone.py"]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert run.returncode == 1 and run.stderr.count("\n") == 1 and "gone.py" in run.stderr
