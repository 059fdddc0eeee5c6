"""What the language server answers at each place of a statement, for each kind of op, parameter and option; and its words to the editor."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_lsp_documents import HEAD, IL_HEAD, TAIL, at, completions, hover, places, problems
from xdsl.passes import ModulePass

from lightnet.diagnostics import SourceLoc
from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet_lsp import documents, op_docs, pipelines
from lightnet_lsp.documents import open_document
from lightnet_lsp.text import Finding, Span, Text

pytest.importorskip("pygls", reason="the extra lsp is not installed")

from lsprotocol import types as lsp

from lightnet_lsp import protocol
from lightnet_lsp.server import LightNetServer, Opened, make_server

URI = "untitled:net.mlir"


# -- IL --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("relu(¦", ["src="]), ("relu(src=x, ¦", []), ("relu(src=x | ¦", ["dst="]), ("relu(src=x | dst=z, ¦", []), ("relu(src=x | dst=z | | ¦", []),
        ("relu(src=x | dst=¦", []), ("relu(src=x | dst=z | nope=¦", []), ("relu(src=¦ | dst=after |); relu(src=x | dst=later |)", ["x"]),
        ("concat(src1=x, src2=x, ¦", ["src3="]), ("concat(src1=x | dst=z | axis=¦", []), ("create(| dst=z | from_file=¦", ["true", "false"]),
        ("create(| dst=z | from_file=tr¦", ["true", "false"]), ("create(| dst=z | dims=[1, ¦", []), ("create(| dst=z | dims=[1], ran¦", ["dtype=", "data=", "ran=", "from_file="]),
        ("nope(¦", []), ("relu ¦", []), ("relu(src ¦", []), ("relu(src=x y¦", []), ('#error "¦', []), ("// re¦", []), ("elew(src1=x, src2=x | dst=z | elew_op=TL_SUM, ¦", []),
    ],
)  # fmt: skip
def test_what_may_be_typed_in_il(typed: str, proposed: list[str]) -> None:
    found = completions(IL_HEAD + typed, ".net")
    if typed.endswith("ran¦"):
        assert set(found) <= set(proposed) | {"param_file=", "p_name="} and "dims=" not in found and "ran=" in found
    else:
        assert found == proposed


def test_proposals_replace_what_is_typed() -> None:
    for text, suffix, width in ((IL_HEAD + "relu(sr¦", ".net", 2), (IL_HEAD + "relu(¦", ".net", 0), (HEAD + "  %z = ln.re¦\n" + TAIL, ".mlir", 5), ("// RUN: ln-opt --pass=exp¦ %s\n", ".mlir", 3),
                                ("// RUN: ln-opt --pass=bind,¦ %s\n", ".mlir", 0), ("\n// RUN: ln-opt --target=c¦", ".mlir", 1)):  # fmt: skip
        document, offset = at(text, suffix)
        spans = {c.span for c in document.complete(offset)}
        assert spans == {Span(offset - width, offset)}, text


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("relu(sr¦c=x | dst=z |);", "operand `src` of `relu`: data"), ("concat(src¦2=x | dst=z | axis=0);", "operand `src2` of `concat`: data, type of `src1`, one or more"),
        ("relu(no¦pe=x | dst=z |);", ""), ("relu(src1¦=x | dst=z |);", ""), ("relu(src=x | ds¦t=z |);", ""), ("no¦pe(src=x | dst=z |);", ""), ("nope(sr¦c=x | dst=z |);", ""),
    ],
)  # fmt: skip
def test_arguments_of_il_are_told(statement: str, text: str) -> None:
    found = hover(IL_HEAD + statement, ".net")
    assert found == text


def test_where_names_of_il_are_defined() -> None:
    text = IL_HEAD + "relu(src=¦x | dst=z |);\n"
    document, offset = at(text, ".net")
    place = document.definition(offset)
    assert place is not None and document.text.position(place.span.start) == (1, 13)
    document, offset = at(IL_HEAD + "relu(src=¦nowhere | dst=z |);\n", ".net")
    assert document.definition(offset) is None and document.references(offset) != []
    document, offset = at("#define A relu\nA¦(src=x | dst=y |);\nA(src=y | dst=z |);\n", ".net")
    assert [document.text.position(p.span.start)[0] for p in document.references(offset)] == [1, 2]


# -- MLIR ------------------------------------------------------------------------------------------------------------


def test_patterns_that_verify_are_checked_as_patterns() -> None:
    bad = 'pdl.pattern @p : benefit(1) {\n  %x = operand\n  %o = operation "ln.nope"(%x : !pdl.value)\n  rewrite %o {\n    replace %o with (%x : !pdl.value)\n  }\n}\n'
    found = problems(bad)
    assert len(found) == 1 and "ln.nope" in found[0][2]
    assert problems(bad + "// -----\n") == []  # parts are for tests of the tool


def test_groups_of_results_and_block_arguments_are_found() -> None:
    text = "func.func @f(%a: i1) {\n  %r:2 = scf.if %a -> (i32, i32) {\n    %c = arith.constant 1 : i32\n    scf.yield %c, %c : i32, i32\n  } else {\n    %d = arith.constant 2 : i32\n    scf.yield %d, %d : i32, i32\n  }\n  %s = arith.addi %r#0, %¦r#1 : i32\n  func.return\n}\n"
    assert [line for line, _ in places(text)] == [2, 9, 9]
    assert "%r" in hover(text)
    block = "func.func @f(%a: i32) {\n  cf.br ^bb1(%a : i32)\n^bb1(%b: i32):\n  %s = arith.addi %¦b, %a : i32\n  func.return\n}\n"
    assert places(block) == [(3, "%b"), (4, "%b")]
    assert completions(block.replace("%¦b", "%¦"))[:1] == ["%b"]


def test_values_of_parameters_in_mlir() -> None:
    assert completions(HEAD + "  %z = ln.layernorm %x {nope = ¦}\n" + TAIL) == []
    assert completions(HEAD + "  %z = ln.cumsum %x {reverse = ¦}\n" + TAIL) == ["true", "false"]
    assert completions(HEAD + '  %z = ln.conv2d %x, %y, %y {nope = "¦"}\n' + TAIL) == []
    document, offset = at(HEAD + "  tile.launch @no¦where\n" + TAIL)
    assert document.definition(offset) is None


# -- what is said of ops and passes --------------------------------------------------------------------------------------


def operand(**more: object) -> SimpleNamespace:
    return SimpleNamespace(**{"role": "data", "rank": None, "min_rank": 0, "dtypes": (), "same_type": None, "same_shape": None, "variadic": False} | more)  # fmt: skip


def test_words_on_ops() -> None:
    for given, text in (
        ({}, "data"), ({"role": "shape"}, "known when the network is loaded"), ({"rank": 0}, "data, rank 0"), ({"min_rank": 2}, "data, rank ≥ 2"), ({"variadic": True}, "data, one or more"),
        ({"dtypes": ("f32", "f64"), "same_type": "a", "same_shape": "b"}, "data, f32 or f64, type of `a`, shape of `b`"),
    ):  # fmt: skip
        assert op_docs.operand_text(operand(**given)) == text
    concat = op_docs.topic_markdown("il concat")
    assert (
        concat.startswith("```\nconcat(src1=, … | dst= | axis=)\n```")
        and "* `src`: data, type of `src1`, one or more\n" in concat
        and "* `dst`: result\n" in concat
    )
    assert op_docs.topic_markdown("op ln.concat").startswith("```\n%dst = ln.concat %src, … {axis}\n```")
    assert op_docs.topic_markdown("op ln.relu").startswith("```\n%dst = ln.relu %src\n```")
    assert op_docs.topic_markdown("op arith.addf").startswith("```\narith.addf\n```")
    assert (
        op_docs.topic_markdown("il arith.addf")
        == op_docs.topic_markdown("pass no-such")
        == op_docs.topic_markdown("op")
        == ""
    )
    expand = op_docs.topic_markdown("pass expand")
    assert expand.startswith("pass `expand`\n\nMake each op a kernel") and expand == op_docs.pass_markdown("expand")


def test_every_op_is_shown_in_il_with_all_its_names() -> None:
    """The tensors and parameters in order, and the first of several with what tells that there may be more."""
    for optype, op in built_in_optypes().items():
        shown = re.match(r"```\n(\w+)\((.*) \| (.*) \| (.*)\)\n```", op_docs.topic_markdown(f"il {optype}"))
        assert shown is not None and shown[1] == optype
        schema = op.schema
        sides = (
            schema.operand_names(len(schema.operands)),
            schema.result_names(len(schema.results)),
            list(schema.by_name),
        )
        assert [re.findall(r"(\w+)=", shown[k]) for k in (2, 3, 4)] == [*sides], optype
        variadic = [any(t.variadic for t in side) for side in (schema.operands, schema.results)]
        assert ["…" in shown[k] for k in (2, 3)] == variadic, optype


def test_words_on_options_of_passes() -> None:
    @dataclass(frozen=True)
    class Pass(ModulePass):
        """Does this. And that."""

        name = "p"
        wide: int
        text_of: str = "x"

    options = op_docs.pass_options(Pass)
    assert (
        list(options) == ["wide", "text-of"]
        and "default" not in options["wide"]
        and options["text-of"].endswith(", default x")
    )
    assert op_docs.pass_class("no-such") is None and op_docs.pass_markdown("no-such") is None


def test_pipelines_in_comments() -> None:
    line = "// RUN: ln-opt --pass=expand,combine{max-ops=3} -t cpu %s"
    words = {w: line.index(w) for w in ("ln-opt", "expand", "combine", "max-ops", "3}", "cpu", "%s")}
    found = pipelines.hover(line, words["expand"], 100)
    assert found is not None and found.span == (100 + words["expand"], 106 + words["expand"])
    assert pipelines.hover(line, words["expand"] + 6, 0).span == (words["expand"], words["expand"] + 6)  # type: ignore[union-attr]
    assert "option `max-ops` of pass `combine`: int" in pipelines.hover(line, words["max-ops"], 0).markdown  # type: ignore[union-attr]
    assert all(pipelines.hover(line, words[w], 0) is None for w in ("ln-opt", "3}", "cpu", "%s"))
    assert (
        pipelines.hover("// --pass=no-such{max-ops=3}", 20, 0) is None
        and pipelines.hover("// --pass=combine{nope=3}", 20, 0) is None
    )
    assert pipelines.hover("--pass=expand", 8, 0) is None and pipelines.hover("// --pass= expand", 13, 0) is None
    assert pipelines.complete("// --pass=combine{max-ops=¦", 26, 0) == []
    long = "// --pass=expand "
    assert (
        pipelines.hover(long.ljust(pipelines.MAX_LINE), 12, 0) is not None
        and pipelines.hover(long.ljust(pipelines.MAX_LINE + 1), 12, 0) is None
    )


# -- documents and the protocol ------------------------------------------------------------------------------------------


def test_which_document_a_text_is(monkeypatch) -> None:
    monkeypatch.setattr(documents, "MAX_TEXT", 5)
    assert (
        type(open_document("12345", "d.mlir")).__name__ == "MlirDocument"
        and type(open_document("123456", "d.mlir")).__name__ == "Document"
    )
    for path, kind in (
        ("d.onnx", "Document"),
        ("d.txt", "Document"),
        ("d.NET", "IlDocument"),
        ("d.op", "JsonDocument"),
        ("d.json", "JsonDocument"),
    ):
        assert type(open_document("", path)).__name__ == kind
    nnvm = '{"nodes": [], "arg_nodes": [], "heads": []}'
    monkeypatch.undo()
    assert len(problems(nnvm, "d.json")) == 1


def test_a_finding_in_the_words_of_the_protocol(tmp_path: Path) -> None:
    own, other = str(tmp_path / "d.net"), tmp_path / "o.h"
    other.write_text("a\nbc\n")
    text, units = Text("x\n𝔘 z\n"), protocol.Units("utf-16")
    uri = Path(own).as_uri()
    related = [
        (SourceLoc(own, 2, 3), "here"),
        (SourceLoc(str(other), 2, 2), "there"),
        (SourceLoc(str(tmp_path / "gone"), 1, 1), "nowhere"),
    ]
    found = protocol.diagnostic(Finding(Span(2, 3), "m" * 5000, label="l", related=related), uri, text, units)
    assert [(r.location.uri, r.location.range.start.line, r.location.range.start.character, r.message) for r in found.related_information or ()] == [
        (uri, 1, 3, "here"), (other.as_uri(), 1, 1, "there")]  # fmt: skip
    assert (found.range.start.line, found.range.end.character, found.code, found.source, found.severity) == (
        1,
        2,
        "l",
        "LightNet",
        lsp.DiagnosticSeverity.Error,
    )
    assert found.message == "m" * 4000
    assert protocol.diagnostic(Finding(Span(0, 0), "m"), uri, text, units).related_information is None
    assert (
        protocol._line_of(SourceLoc(str(tmp_path), 1, 2)) == ""
        and protocol._line_of(SourceLoc(str(other), 2, 2)) == "bc"
    )
    assert protocol._line_of(SourceLoc(str(other), 2, 1)) == "" and protocol._line_of(SourceLoc(str(other), 0, 2)) == ""


def serve(server: LightNetServer, name: str, params: object) -> object:
    """What a feature of the server answers."""
    answer = server.protocol.fm.features[name](params)
    return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer


def test_what_the_server_answers() -> None:
    server = make_server()
    document = open_document(HEAD + TAIL, "net.mlir")
    server.opened[URI] = Opened(document, 1)
    where = SimpleNamespace(text_document=SimpleNamespace(uri=URI), position=lsp.Position(2, 16))
    server.protocol._workspace = SimpleNamespace(position_encoding="utf-16")
    for declared, lines in ((True, [1, 2]), (False, [2])):
        where.context = SimpleNamespace(include_declaration=declared)
        assert [p.range.start.line for p in serve(server, lsp.TEXT_DOCUMENT_REFERENCES, where)] == lines
    for name in ("img", "%img"):
        where.new_name = name
        assert [e.new_text for e in serve(server, lsp.TEXT_DOCUMENT_RENAME, where).changes[URI]] == ["%img"] * 2
    for data, text in (("il relu", "relu(src= | dst= | )"), (None, None), (5, None), ("op no.such", None)):
        item = serve(server, lsp.COMPLETION_ITEM_RESOLVE, lsp.CompletionItem("x", data=data))
        assert item.documentation is None if text is None else text in item.documentation.value

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    broken = SimpleNamespace(path="p", analyse=fail, text=document.text)
    assert server.findings(Opened(broken, 1)) == [] and asyncio.run(server.ask(broken, fail, 7)) == 7
    assert server.findings(Opened(document, 1)) == []
    stale = Opened(document, 1)
    stale.is_stale = True
    assert server.findings(stale) is None
    sent: list = []
    server.text_document_publish_diagnostics = sent.append
    for opened in (stale, Opened(broken, 3)):
        asyncio.run(server.publish(URI, opened, 0))
    assert [(p.uri, p.version, p.diagnostics) for p in sent] == [(URI, 3, [])]
    taken: list = []
    server.take = lambda *given: taken.append(given)
    serve(server, lsp.TEXT_DOCUMENT_DID_SAVE, None)
    assert taken == [(URI, 0)]
    server.drop(URI)
    server.drop(URI)
    assert server.opened == {}
