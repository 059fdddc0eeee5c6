"""What the language server knows of a document, without the protocol: diagnostics, hover, completion, definitions, outline, rename.

The oracle of names is xDSL's parser: whatever it says uses a value, the index has to find by text alone.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from counting import calls, ends

from lightnet.diagnostics import LightNetError
from lightnet.frontends.il import reader as il
from lightnet.frontends.importer import to_module
from lightnet.frontends.mlir import read
from lightnet.ir.printer import module_text
from lightnet_lsp import mlir_parser
from lightnet_lsp.documents import MAX_TEXT, Cancelled, Document, open_document
from lightnet_lsp.mlir_document import MlirDocument
from lightnet_lsp.op_docs import topic_markdown
from lightnet_lsp.text import Finding

ROOT = Path(__file__).parents[2]
NETS = ROOT / "tests" / "data" / "nets"
MLIR_FILES = sorted((ROOT / "tests" / "filecheck").rglob("*.mlir"))
HEAD = 'func.func @main() -> tensor<3xf32> {\n  %x = ln.input : tensor<3xf32> as ("img")\n  %y = ln.relu %x : tensor<3xf32> as "relu0"("y")\n'
TAIL = "  func.return %y : tensor<3xf32>\n}\n"
IL_HEAD = (
    "#define ROW(a, b) relu(src=a | dst=b |)\n"
    "create(| dst=x | dtype=TL_FLOAT, dims=[2, 2], data=[1, 2, 3, 4], ran=[0, 0], from_file=false);\n"
    "ROW(x, y);\n"
)


def at(text: str, suffix: str = ".mlir") -> tuple[Document, int]:
    """The document and the offset of the mark ``¦`` in it."""
    offset = text.index("¦")
    return open_document(text.replace("¦", ""), f"doc{suffix}"), offset


def completions(text: str, suffix: str = ".mlir") -> list[str]:
    document, offset = at(text, suffix)
    return [c.text for c in document.complete(offset)]


def hover(text: str, suffix: str = ".mlir") -> str:
    document, offset = at(text, suffix)
    found = document.hover(offset)
    return found.markdown if found is not None else ""


def places(text: str, suffix: str = ".mlir") -> list[tuple[int, str]]:
    """The references of what stands at the mark: lines (from 1) and texts, the definition first."""
    document, offset = at(text, suffix)
    spans = [p.span for p in document.references(offset)]
    return [(document.text.position(s.start)[0] + 1, document.text.text[s.start : s.end]) for s in spans]


def problems(text: str, path: str = "doc.mlir") -> list[tuple[int, int, str]]:
    """Line and column (from 1) and message of each finding."""
    document = open_document(text, path)
    return [(*(n + 1 for n in document.text.position(f.span.start)), f.message) for f in document.analyse()]


# -- diagnostics -----------------------------------------------------------------------------------------------------


def test_every_verifier_error_is_found() -> None:
    bad = (
        HEAD
        + "  %a = ln.relu %x : tensor<4xf32>\n  %b = ln.slice %x {axis = 1, start = 0, len = 1} : tensor<1xf32>\n"
        + TAIL
    )
    found = problems(bad + "// -----\n" + bad)
    assert [(line, col) for line, col, _ in found] == [(4, 8), (5, 8), (12, 8), (13, 8)]
    assert "its results should be tensor<3xf32>" in found[0][2] and "`axis`" in found[1][2]


def test_the_finding_has_the_constraint_and_the_span_of_the_op() -> None:
    document = open_document(
        HEAD + "  %b = ln.slice %x {axis = 1, start = 0, len = 1} : tensor<1xf32>\n" + TAIL, "d.mlir"
    )
    (found,) = document.analyse()
    assert (found.label, document.text.text[found.span.start : found.span.end]) == ("slice.axis.lt", "ln.slice")


def test_parsing_goes_on_after_a_mistake() -> None:
    found = problems(
        HEAD
        + "  %a = ln.rlu %x : tensor<3xf32>\n"  # line 4
        + "  %b = ln.relu %a : tensor<3xf32>\n"  # depends on the lost op: no mistake
        + "  %c = ln.relu %nope : tensor<3xf32>\n"
        + "  %d = cpu.kernel(%e = %b) {\n    %f = ln.sigmod %e : tensor<3xf32>\n    ln.yield %f\n  }\n"
        + "  %g = ln.relu %d {n = 1} : tensor<3xf32>\n"
        + "  %h = ln.relu %x : tensor<5xf32>\n"
        + "  func.return %d : tensor<3xf32>\n}\n"
        + "func.func @two(%p: f32) {\n  %q = arith.addf %p, %undefined : f32\n  func.return\n}\n"
    )
    assert [line for line, *_ in found] == [4, 6, 8, 11, 12, 16]
    assert "did you mean 'ln.relu'" in found[0][2] and "%undefined" in found[-1][2]


@pytest.mark.parametrize(
    "typed", ["%z = ", "%z = ln.", "%z = ln.elew %x, %y {", '%z = ln.elew %x, %y {elew_op = "TL', "}", "$", "%", "@"]
)
def test_a_line_that_is_being_typed_leaves_the_others_alone(typed: str) -> None:
    found = problems(
        HEAD
        + f"  {typed}\n  %b = ln.rlu %y : tensor<3xf32>\n"
        + TAIL
        + "func.func @two() {\n  ln.nope\n  func.return\n}\n"
    )
    assert found[0][0] in (3, 4, 5)
    assert any("ln.nope" in message for *_, message in found)


@pytest.mark.parametrize(
    "text", ["", "\n", "}", "{", "%", '"', "func.func", "// -----", "module", "\0", "\ud800", "é", "#", "{-#", "^bb0:"]
)
@pytest.mark.parametrize("suffix", [".mlir", ".net", ".json", ".op", ".txt"])
def test_no_text_is_too_short_or_too_odd(text: str, suffix: str) -> None:
    document = open_document(text, f"d{suffix}")
    assert all(isinstance(f, Finding) for f in document.analyse())
    for offset in range(len(text) + 1):
        document.hover(offset), document.complete(offset), document.definition(offset), document.references(offset)
    assert isinstance(document.symbols(), list)


def test_a_string_without_an_end_is_an_error_at_once() -> None:
    with ends():  # the time of a regular expression doubled with each character once
        assert problems(HEAD + f'  ln.print %x {{msg = "{"long " * 1000}\n' + TAIL)[0][:2] == (4, 22)


@pytest.mark.parametrize(
    "text", ["{ %a\n" * 20_000, "\n" * 100_000, "%a, " * 20_000, "func.func @f() {\n" * 5000, "$\n" * 20_000]
)
def test_time_is_linear_in_odd_texts(text: str) -> None:
    with ends():
        document = open_document(text, "odd.mlir")
        document.analyse(), document.symbols(), document.hover(len(text) // 2), document.complete(len(text))


def test_a_text_beyond_the_limit_is_left_alone() -> None:
    assert open_document("}" * (MAX_TEXT + 1), "big.mlir").analyse() == []


def test_patterns_in_pdl_are_checked() -> None:
    assert problems("pdl.pattern @p : benefit(1) {\n  pdl.nope\n}\n")[0][:2] == (2, 3)


def test_every_statement_of_a_network_is_checked() -> None:
    found = problems(
        IL_HEAD
        + "relu(src=nope | dst=z |); relu(src=z | dst=depends |);\n"
        + "slice(src=x | dst=q | axis=9, start=0, len=1);\nROW(y, y);\n",
        "d.net",
    )
    assert [(line, col) for line, col, _ in found] == [(4, 1), (5, 1), (6, 1)]


def test_a_malformed_statement_leaves_the_others_alone() -> None:
    found = problems(
        IL_HEAD + "relu(src=x | dst=);\nrelu(src=z | dst=w |);\nrelu(src=x, nope=x | dst=v |);\nnope(;\n", "d.net"
    )
    assert [(line, col) for line, col, _ in found] == [(4, 18), (6, 1), (7, 6)]


def test_errors_of_included_files_stand_at_the_include(tmp_path: Path) -> None:
    (tmp_path / "inc.h").write_text("#define OK\n#error broken\n")
    document = open_document('// net\n#include "inc.h"\n', str(tmp_path / "d.net"))
    (found,) = document.analyse()
    assert document.text.position(found.span.start) == (1, 1) and "inc.h:2:2: #error broken" in found.message
    assert found.related[0][0] == (str(tmp_path / "inc.h"), 2, 2)


def test_warnings_are_warnings() -> None:
    (found,) = open_document("#warning look\n", "d.net").analyse()
    assert (found.severity, found.message) == ("warning", "#warning look")


def test_no_code_of_a_network_runs() -> None:
    (found,) = open_document('slice(src=x | dst=y | axis=${eval system("true")}, start=0, len=1);', "d.net").analyse()
    assert "eval" in found.message or "system" in found.message


@pytest.mark.parametrize(
    ("text", "path", "place"),
    [
        (
            '{"ops": [\n  {"name": "a", "optype": "nope", "tensors_in": [], "tensors_out": [], "params": []}]}',
            "d.json",
            (2, 3),
        ),
        ('{"ops": [', "d.json", (1, 10)),
        ("my_op {\n  a: 1, a: 2\n}", "d.op", (2, 9)),
        ('{author: "x", arch: "cpu", name: "n",\n ops: [{optype: "nope", rules: []}]}', "d.json", (2, 18)),
        ('{"ops": [{"optype": "my_op", "author": "x",\n "arch": 5}]}', "d.json", (2, 10)),
    ],
)
def test_json_and_descriptions_are_checked(text: str, path: str, place: tuple[int, int]) -> None:
    assert problems(text, path)[0][:2] == place


def test_a_document_without_a_file_is_what_the_editor_says() -> None:
    for language, text in (("mlir", "ln.nope"), ("lightnet-il", "nope(|"), ("lightnet_op", "a {")):
        assert len(open_document(text, "Untitled-1", language=language).analyse()) == 1
    assert open_document("ln.nope", "Untitled-1", language="plaintext").analyse() == []


def test_other_json_is_none_of_our_business() -> None:
    assert problems('{"name": "x", "dependencies": {,}}', "package.json") == []


@pytest.mark.parametrize("path", [NETS / "il" / f"{n}.net" for n in ("squeezedet", "yolov3_bak")], ids=lambda p: p.stem)
def test_networks_have_no_findings(path: Path) -> None:
    text = path.read_text()
    assert problems(text, str(path)) == []
    module = module_text(to_module(il.read(text, str(path))))
    read(module, "m.mlir")
    with calls(at_most=4_000_000):  # 1.2 million for 700 ops
        assert problems(module) == []


def test_an_analysis_that_nobody_wants_stops() -> None:
    text = HEAD + "".join(f"  %v{i} = ln.relu %x : tensor<3xf32>\n" for i in range(200)) + TAIL
    calls = iter(range(10**6))
    with pytest.raises(Cancelled):
        open_document(text, "d.mlir").analyse(lambda: next(calls) > 20)
    assert next(calls) < 30


# -- names: the parser is the oracle ---------------------------------------------------------------------------------


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("path", MLIR_FILES, ids=lambda p: p.stem)
def test_the_index_finds_what_the_parser_finds(path: Path) -> None:
    document = MlirDocument(path.read_text(), str(path))
    statements = {s.name.start: s for s in document.index.statements}
    for offset, op in document.parsed.ops.items():
        statement = statements[offset]
        assert statement.op in (op.name, "module")
        if document.parsed.errors:
            continue  # uses inside of what did not parse count in the text only
        for definition in (*statement.results, *statement.arguments):
            values = document.values_of(definition)
            assert sum(len(list(v.uses)) for v in values) >= len(definition.uses)
            assert len(values) != 1 or len(list(values[0].uses)) == len(definition.uses), definition.name
    if not document.parsed.errors:
        assert set(statements) == set(document.parsed.ops)


@pytest.mark.parametrize("between", [",", ", ", ""])
def test_a_cursor_is_on_the_name_that_it_touches(between: str) -> None:
    """At each offset of a text: a name from its % to just behind it, and where two meet the second one."""
    text = HEAD + f"  %sum = ln.add %x{between}%y : tensor<3xf32>\n" + TAIL
    index = MlirDocument(text, "d.mlir").index
    names = list(re.finditer(r"%\w+", text))
    for offset in range(len(text) + 1):
        under = [m for m in names if m.start() <= offset <= m.end()]
        found = index.value_at(offset)
        assert (found and tuple(found[1])) == (under[-1].span() if under else None), offset
        assert found is None or found[0].name == under[-1].group()


def test_definitions_and_references() -> None:
    text = HEAD + '  %z = ln.elew %¦x, %y {elew_op = "TL_SUM"} : tensor<3xf32>\n' + TAIL
    assert places(text) == [(2, "%x"), (3, "%x"), (4, "%x")]
    document, offset = at(text)
    assert document.definition(offset).span.start == text.index("%x")  # type: ignore[union-attr]


def test_a_name_means_the_one_of_its_scope() -> None:
    text = "func.func @a() {\n  %x = ln.input : tensor<3xf32>\n  %y = cpu.kernel(%x = %x) {\n    %y = ln.relu %¦x : tensor<3xf32>\n    ln.yield %y\n  }\n  func.return\n}\nfunc.func @b() {\n  %x = ln.input : tensor<3xf32>\n}\n"
    assert places(text) == [(3, "%x"), (4, "%x")]
    assert places(text.replace("%¦x : ", "%x : ").replace("= %x) {", "= %¦x) {")) == [(2, "%x"), (3, "%x")]


def test_functions_of_each_part_of_a_split_file() -> None:
    part = "func.func @k() {\n  func.return\n}\nfunc.func @main() {\n  tile.launch @k grid 1 []\n  func.return\n}\n"
    assert places(part + "// -----\n" + part.replace("launch @k", "launch @¦k")) == [(9, "@k"), (13, "@k")]


def test_tensors_and_macros_of_il() -> None:
    assert places(IL_HEAD + "relu(src=¦x | dst=z |);\n", ".net") == [(2, "x"), (3, "x"), (4, "x")]
    document, offset = at(IL_HEAD.replace("ROW(x", "RO¦W(x"), ".net")
    assert document.definition(offset).span == (8, 11)  # type: ignore[union-attr]


def test_a_tensor_that_a_macro_makes_is_defined_where_that_is_called() -> None:
    text = "#define NEW(n) create(| dst=t ## n | dtype=TL_FLOAT, dims=[2], data=[1, 2], ran=[0, 0], from_file=false)\nNEW(1);\nrelu(src=¦t1 | dst=y |);\n"
    document, offset = at(text, ".net")
    assert document.analyse() == []
    assert document.text.position(document.definition(offset).span.start) == (1, 0)  # type: ignore[union-attr]


def test_a_file_that_cannot_be_included_is_no_definition() -> None:
    for name in ("gone.h", "/etc/passwd", "../../x", "a\0b"):
        assert open_document(f'#include "{name}"\n', "d.net").definition(12) is None


def test_included_macros_and_files(tmp_path: Path) -> None:
    (tmp_path / "inc.h").write_text("\n#define M(a) relu(src=a | dst=a ## 1 |)\n")
    document = open_document('#include "inc.h"\nM(x);\n', str(tmp_path / "d.net"))
    assert document.definition(12).other == (str(tmp_path / "inc.h"), 1, 1)  # type: ignore[union-attr]
    assert document.definition(18).other == (str(tmp_path / "inc.h"), 2, 9)  # type: ignore[union-attr]
    assert "#define M(a)" in document.hover(17).markdown  # type: ignore[union-attr]


def test_renaming() -> None:
    document, offset = at(HEAD.replace("%x =", "%¦x =") + TAIL)
    assert [document.text.text[p.span.start : p.span.end] for p in document.rename(offset, "img") or ()] == ["%x", "%x"]
    for name in ("%y", "a b", ""):
        with pytest.raises(LightNetError):
            document.rename(offset, name)
    assert document.rename(0, "z") is None


# -- hover, completion, outline --------------------------------------------------------------------------------------


def test_hover() -> None:
    use = '  %z = ln.elew %x, %y {elew_op = "TL_SUM"} : tensor<3xf32>\n' + TAIL
    assert "%x : tensor<3xf32>" in hover(HEAD + use.replace("%x", "%¦x"))
    assert "tensor `img`" in hover(HEAD + use.replace("%x", "%¦x")) and "12 bytes" in hover(
        HEAD + use.replace("%x", "%¦x")
    )
    assert "Arithmetic on two tensors" in hover(HEAD + use.replace("ln.elew", "ln.el¦ew"))
    assert "one of `TL_MUL`" in hover(HEAD + use.replace("elew_op", "elew¦_op"))
    assert "@main() -> tensor<3xf32>" in hover(HEAD.replace("@main", "@ma¦in") + TAIL)
    assert "Make each op a kernel" in hover("// RUN: ln-opt --pass=exp¦and,combine{max-ops=3} %s\n")
    assert "int, default 32" in hover("// RUN: ln-opt --pass=expand,combine{max-o¦ps=3} %s\n")
    assert hover("// expand¦\n") == ""


def test_hover_over_what_did_not_parse_says_what_the_text_says() -> None:
    found = hover(HEAD + "  %z = ln.rlu %¦y : tensor<3xf32>\n")
    assert "%y : tensor<3xf32>" in found and "`relu0`" in found


def test_hover_in_il_and_json() -> None:
    assert "`tensor<2x2xf32>`, made by `relu0`" in hover(IL_HEAD + "relu(src=¦y | dst=z |);", ".net")
    assert "relu(src= | dst= | )" in hover(IL_HEAD + "re¦lu(src=y | dst=z |);", ".net")
    assert "#define ROW" in hover(IL_HEAD.replace("ROW(x", "RO¦W(x"), ".net")
    assert "`axis` of `ln.slice`" in hover(IL_HEAD + "slice(src=x | dst=z | ax¦is=1, start=0, len=1);", ".net")
    assert "max(src, 0)" in hover('{"ops": [{"optype": "re¦lu"}]}', ".json")


def test_completion_of_ops_and_values() -> None:
    assert {"ln.elew", "arith.addf", "tile.load", "cpu.kernel"} <= set(completions(HEAD + "  %z = ln.el¦\n" + TAIL))
    assert completions(HEAD + "  %z = ln.elew %x, %¦\n}") == ["%y", "%x"]
    assert completions(HEAD + "}\nfunc.func @g() {\n  %q = ln.relu %¦\n}") == []
    assert completions("func.func @g(%a: f32) {\n  %q = cpu.kernel(%b = %a) {\n    ln.relu %¦\n}") == ["%b", "%a"]
    assert completions(HEAD + "  tile.launch @¦\n}\nfunc.func @k() {\n}") == ["@main", "@k"]


def test_completion_of_parameters_and_choices() -> None:
    use = "  %z = ln.conv2d %x, %y, %y "
    for rest in ("}\n" + TAIL, "\n" + TAIL, ""):  # closed, open, at the end
        assert completions(HEAD + use + "{¦" + rest)[0] == "size = "
        assert completions(HEAD + use + "{size = [3, 3], str¦" + rest) == [
            "group = ",
            "stride = ",
            "dilation = ",
            "padding = ",
            "autopad = ",
        ]
        assert completions(HEAD + use + "{autopad = ¦" + rest)[0] == '"NOTSET"'
        assert completions(HEAD + use + '{autopad = "SAME¦' + rest) == ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]


def test_completion_of_pipelines() -> None:
    assert {"expand", "plan", "cse"} <= set(completions("// RUN: ln-opt --pass=bind,exp¦ %s\n"))
    assert completions("// RUN: ln-opt -p 'combine{max-ops=3,¦' %s\n") == ["target=", "max-rounds="]
    assert "cpu" in completions("// RUN: ln-opt --target=¦ %s\n")
    assert completions("// a comment ¦\n") == []
    assert completions("// RUN: ln-opt --pass=no-such{¦ %s\n") == []


def test_completion_in_il() -> None:
    assert {"relu", "conv2d", "ROW"} <= set(completions(IL_HEAD + "re¦", ".net"))
    assert completions(IL_HEAD + "slice(¦", ".net") == ["src="]
    assert completions(IL_HEAD + "slice(src=¦", ".net") == ["x"]
    assert completions(IL_HEAD + "slice(src=x | ¦", ".net") == ["dst="]
    assert completions(IL_HEAD + "slice(src=x | dst=z | axis=1, ¦);", ".net") == ["start=", "len="]
    assert completions(IL_HEAD + "concat(src1=x, ¦", ".net") == ["src2="]
    assert "TL_SUM" in completions(IL_HEAD + "elew(src1=x, src2=y | dst=z | elew_op=¦);", ".net")
    assert "define" in completions("#de¦", ".net")


def test_the_outline() -> None:
    text = (
        HEAD
        + '  %k = cpu.kernel(%a = %y) {\n    %b = ln.relu %a : tensor<3xf32> as "r"("in_kernel")\n    ln.yield %b\n  } as ("out")\n'
        + TAIL
    )
    (main,) = open_document(text, "d.mlir").symbols()
    assert (main.name, main.kind) == ("@main", "Function")
    assert [c.name for c in main.children] == ["img", "y", "out"]
    assert [c.name for c in main.children[2].children] == ["in_kernel"]
    unnamed = open_document(text.replace(' as ("out")', ""), "d.mlir").symbols()[0]
    assert [c.name for c in unnamed.children] == ["img", "y", "%k"]
    for s in (main, *main.children):
        assert s.span.start <= s.selection.start and s.selection.end <= s.span.end
    assert [s.name for s in open_document(IL_HEAD, "d.net").symbols()] == ["ROW", "x", "ROW"]


@pytest.mark.parametrize(
    "text, path, entries",
    [
        ("first {\n  optype: x\n}\nsecond: first {\n}\n", "d.op", [("first", ""), ("second", "first")]),
        ('{"ops": [{"optype": "relu"}, {\n"optype" : "add"}]}', "d.json", [("relu", ""), ("add", "")]),
    ],
)
def test_the_outline_of_objects_and_of_json(text: str, path: str, entries: list[tuple[str, str]]) -> None:
    """Selecting an entry selects its name, inside of what it spans."""
    found = open_document(text, path).symbols()
    assert [(s.name, s.detail) for s in found] == entries
    for s in found:
        assert text[s.selection.start : s.selection.end] == s.name
        assert s.span.start <= s.selection.start and s.selection.end <= s.span.end


def test_a_mistake_in_a_region_leaves_the_places_of_the_ops_around_it() -> None:
    """An op that does not parse, at any depth and with results or none, leaves nothing behind: the ops after it and
    those around it are known by their own places, and names that its regions defined are free again."""
    after = " %b = ln.relu %x : tensor<3xf32>\n %a = ln.relu %b : tensor<3xf32>\n"
    for lost in (
        "%k = cpu.kernel(%a = %x) {\n %b = ln.relu %a : tensor<3xf32>\n ln.yield %b\n } : what\n",
        "%k:2 = cpu.kernel(%a = %x) {\n %b = cpu.kernel(%c = %a) {\n ln.yield %c\n } oh\n ln.yield %b\n } no\n",
        "%k = cpu.kernel(%a = %x) {\n %b = ln.relu %a : tensor<3xf32\n ln.yield %b\n }\n",
        "%l, %m = ln.relu %x : what\n",
        "ln.nope\n",
    ):
        for head, body, tail in (
            (HEAD, lost + "{}" + after, TAIL),
            (
                HEAD + "%o = cpu.kernel(%i = %x) {\n",
                (lost + "{}" + after).replace("%x", "%i"),
                " ln.yield %a\n }\n" + TAIL,
            ),
        ):
            text = head + body.replace("{}", "") + tail
            behind = len(head) + body.index("{}")
            parsed = mlir_parser.parse(text, "d.mlir")
            assert parsed.errors and all(text.count("\n", 0, behind) >= e.loc.line for e in parsed.errors)
            assert [op.name for place, op in parsed.ops.items() if place >= behind][:2] == ["ln.relu"] * 2
            for place, op in parsed.ops.items():
                assert text.startswith(op.name, place), (op.name, text[place:][:30])


# -- anything at all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_broken_documents_are_answered(seed: int) -> None:
    """Cut, doubled and changed documents: no question and no analysis raises."""
    random_ = random.Random(seed)
    path = random_.choice([*MLIR_FILES, NETS / "il" / "squeezedet.net", ROOT / "examples" / "example.json"])
    text = path.read_text()[: random_.randrange(200, 4000)]
    for _ in range(random_.randrange(1, 6)):
        at_, length = random_.randrange(len(text) + 1), random_.randrange(12)
        text = (
            text[:at_]
            + random_.choice(["", "{", "}", "%", '"', "(", "// -----\n", "\r\n", "=", "é", "𝔘"])
            + text[at_ + length :]
        )
    document = open_document(text, f"d{path.suffix}")
    for found in document.analyse():
        assert 0 <= found.span.start <= found.span.end <= len(document.text.text)
    for offset in [random_.randrange(len(text) + 1) for _ in range(40)]:
        document.hover(offset), document.complete(offset), document.definition(offset), document.references(offset)
    document.symbols()


def test_an_op_without_operands_of_its_own_is_shown_by_its_name():
    assert topic_markdown("op ln.once").startswith("```\nln.once\n```")
    assert topic_markdown("op ln.no-such") == topic_markdown("what") == ""
