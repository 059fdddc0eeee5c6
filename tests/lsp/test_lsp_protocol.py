"""The rules of the Language Server Protocol, byte by byte: no client library stands between the test and `ln-lsp`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the extra lsp is not installed")

from lightnet.diagnostics import SourceLoc
from lightnet_lsp.documents import open_document
from lightnet_lsp.protocol import Units, location
from lightnet_lsp.text import Text

URI = (Path(__file__).parents[1] / "no folder" / "net.mlir").as_uri()  # which escapes the blank
TEXT = 'func.func @main() {\n  %x = ln.input : tensor<3xf32> as ("x")\n  func.return\n}\n'
IL = "#define ACT(a, b) relu(src=a | dst=b |)\ninput(| dst=relu2 |); // relu ACT\n/* relu\nACT re */ ACT(relu2, y);\n"


def request(number: int, method: str, params: Any = None) -> dict[str, Any]:
    return {"id": number, "method": method, "params": params}


def notice(method: str, params: Any = None) -> dict[str, Any]:
    return {"method": method, "params": params}


def about(line: int, character: int) -> dict[str, Any]:
    return {"textDocument": {"uri": URI}, "position": {"line": line, "character": character}}


def opened(text: str) -> dict[str, Any]:
    return notice("textDocument/didOpen", {"textDocument": {"uri": URI, "languageId": "", "version": 1, "text": text}})


def talk(*messages: dict[str, Any]) -> tuple[int, dict[int, dict[str, Any]]]:
    """Send all messages at once and wait for an answer to each request; the exit status, and the answers by their numbers."""
    bodies = [json.dumps({"jsonrpc": "2.0", **m}).encode() for m in messages]
    wanted, answers = {m["id"] for m in messages if "id" in m}, {}
    command = [sys.executable, "-m", "lightnet_lsp.__main__"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None and server.stdout is not None
        guard = threading.Timer(20, server.kill)
        guard.start()
        server.stdin.write(b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(b), b) for b in bodies))
        server.stdin.flush()
        while wanted - set(answers) and (header := server.stdout.readline()):
            server.stdout.readline()  # the type of the content
            server.stdout.readline()
            message = json.loads(server.stdout.read(int(header.removeprefix(b"Content-Length: "))))
            assert message.get("method") != "window/showMessage", message
            answers[message.get("id", -1)] = message
        server.stdin.close()
        status = server.wait()
        guard.cancel()
    return status, answers


INITIALIZE = request(0, "initialize", {"processId": None, "rootUri": None, "capabilities": {}})


def test_every_request_is_answered_also_a_malformed_an_early_and_a_late_one() -> None:
    hover = "textDocument/hover"
    status, answers = talk(
        request(1, hover, about(0, 0)),
        INITIALIZE,
        request(2, hover, {"nothing": 1}),
        request(3, hover),
        request(4, hover, about(2**32, 0)),
        request(5, "no/such"),
        request(99, "shutdown"),
        request(6, hover, about(0, 0)),
        notice("exit"),
    )
    codes = {number: a["error"]["code"] for number, a in answers.items() if "error" in a}
    assert codes == {1: -32002, 2: -32602, 3: -32602, 4: -32602, 5: -32601, 6: -32600}
    assert status == 0 and {0, 99} <= set(answers)


def test_exit_without_shutdown_is_a_failure() -> None:
    assert talk(INITIALIZE, notice("exit"))[0] == 1


def test_a_question_is_about_the_text_before_the_next_change() -> None:
    change = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": "x"}]}
    symbols = {"textDocument": {"uri": URI}}
    status, answers = talk(
        INITIALIZE,
        opened(TEXT),
        request(1, "textDocument/documentSymbol", symbols),
        request(2, "textDocument/hover", about(1, 3)),
        notice("textDocument/didChange", change),
        request(3, "textDocument/definition", about(1, 3)),
        notice("textDocument/didClose", symbols),
        request(4, "textDocument/hover", about(1, 3)),
        request(5, "textDocument/rename", {**about(1, 3), "newName": "z"}),
    )
    assert status == 0 and not any("error" in a for a in answers.values())
    (main,) = answers[1]["result"]
    assert main["range"]["end"] == {"line": 3, "character": 1}
    assert answers[2]["result"]["range"]["end"] == {"line": 1, "character": 4}
    assert answers[3]["result"] is answers[4]["result"] is answers[5]["result"] is None


def test_a_place_in_another_file_counts_the_units_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a b.h"
    file.write_text("\n/* 𝔘 */ #define A\n", encoding="utf-8")
    found = location(SourceLoc(str(file), 2, 17), Text(""), Units("utf-16"))
    assert (found.range.start.line, found.range.start.character) == (1, 17) and found.uri.endswith("/a%20b.h")
    gone = location(SourceLoc(str(tmp_path / "gone.h"), 2, 17), Text(""), Units("utf-16"))
    assert (gone.range.start.line, gone.range.start.character) == (1, 16)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_of_the_protocol_ends_a_line(end: str) -> None:
    document = open_document(TEXT.replace('("x")', '("x") $').replace("\n", end), "net.mlir")
    (found,) = document.analyse()
    assert document.text.position(found.span.start) == (1, 41)


def test_a_comment_of_il_says_nothing_and_proposes_nothing() -> None:
    document = open_document(IL, "net.net")
    for comment in ("relu ACT\n", "relu\nACT", "ACT re */", "re */"):
        at = IL.index(comment) + 2
        assert document.hover(at) is None and document.definition(at) is None and document.complete(at) == []
    body = IL.index("relu")
    assert document.hover(body).span == (body, body + 4)  # type: ignore[union-attr]
    assert document.definition(IL.index("ACT(relu2") + 3) is not None
    string = 'error "http://x"; re'
    assert open_document(string, "net.net").complete(len(string))
