"""The grammars of editors/: every pattern compiles, and what they say of files agrees with the lexers of xDSL and of IL.

The tokeniser is the part of TextMate's algorithm that the grammars use: at each place of a line the pattern that matches first, the
earlier one of equals, and a stack of open begin/end rules. Where Oniguruma and Python differ, the patterns use neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from lightnet.frontends.il.lexer import NAME, NUMBER, STRING, SourceFile
from lightnet_lsp.mlir_parser import parse

ROOT = Path(__file__).parents[2]
EDITOR = ROOT / "editors" / "vscode"
GRAMMARS = {path.name.split(".")[0]: json.loads(path.read_text()) for path in EDITOR.glob("syntaxes/*.json")}
MLIR_FILES = sorted((ROOT / "tests" / "filecheck").rglob("*.mlir"))
IL_FILES = [ROOT / "tests" / "data" / "nets" / "il" / f"{n}.net" for n in ("squeezedet", "yolov3_bak")]


class Grammar:
    """A grammar's tokeniser: `scopes(text)` gives, for each character, the names of the rules around it."""

    def __init__(self, grammar: dict[str, Any]):
        self.grammar = grammar

    def rules(self, rules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for rule in rules:
            if include := rule.get("include"):
                rule = self.grammar["repository"][include[1:]]
            if "match" in rule or "begin" in rule:
                yield rule
            else:
                yield from self.rules(rule["patterns"])

    def scopes(self, text: str) -> list[str]:
        found = [""] * len(text)
        stack: list[dict[str, Any]] = []
        start = 0
        for line in text.splitlines(keepends=True):
            at = 0
            while at < len(line):
                at, stack = self.step(line, at, stack, start, found)
            start += len(line)
        return found

    def step(
        self, line: str, at: int, stack: list[dict[str, Any]], start: int, found: list[str]
    ) -> tuple[int, list[dict[str, Any]]]:
        top = stack[-1] if stack else None
        best: tuple[int, int, re.Match[str], dict[str, Any] | None] | None = None
        inner = top.get("patterns", []) if top else self.grammar["patterns"]
        candidates: list[tuple[str, dict[str, Any] | None]] = [(top["end"], None)] if top else []
        candidates += [(rule.get("match") or rule["begin"], rule) for rule in self.rules(inner)]
        for order, (pattern, rule) in enumerate(candidates):
            m = re.compile(pattern).search(line, at)
            if m and (best is None or (m.start(), order) < best[:2]):
                best = m.start(), order, m, rule
        outer = " ".join(r.get("name", "") for r in stack)
        if best is None:
            self.mark(found, start + at, start + len(line), outer)
            return len(line), stack
        m, rule = best[2], best[3]
        self.mark(found, start + at, start + m.start(), outer)
        name = outer if rule is None else f"{outer} {rule.get('name', '')}"
        self.mark(found, start + m.start(), start + m.end(), name)
        captures = (
            (rule or top or {}).get("captures" if rule and "match" in rule else "beginCaptures", {}) if rule else {}
        )
        for group, capture in captures.items():
            self.mark(found, start + m.start(int(group)), start + m.end(int(group)), f"{name} {capture['name']}")
        if rule is None:
            return max(m.end(), at + (m.end() == at and m.end() == len(line))), stack[:-1]
        stack = [*stack, rule] if "begin" in rule else stack
        return m.end() if m.end() > at or "begin" in rule else at + 1, stack

    @staticmethod
    def mark(found: list[str], start: int, end: int, name: str) -> None:
        if start >= 0:
            found[start:end] = [name.strip()] * (end - start)


def regexes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k in ("match", "begin", "end"))
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from regexes(inner)


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_pattern_compiles_and_matches_something(name: str) -> None:
    found = list(regexes(GRAMMARS[name]))
    assert found
    for pattern in found:
        compiled = re.compile(pattern)
        assert compiled.match("") is None or pattern.endswith("$"), f"{pattern} matches nothing at all, for ever"


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_include_is_there(name: str) -> None:
    includes = re.findall(r'"include": "#([^"]*)"', json.dumps(GRAMMARS[name]))
    assert set(includes) <= set(GRAMMARS[name]["repository"])


def test_the_extension_names_files_that_are_there() -> None:
    package = json.loads((EDITOR / "package.json").read_text())
    contributes = package["contributes"]
    paths = [package["main"], *(g["path"] for g in contributes["grammars"])]
    paths += [language["configuration"] for language in contributes["languages"]]
    assert all((EDITOR / path).is_file() for path in paths)
    assert {g["scopeName"] for g in contributes["grammars"]} == {g["scopeName"] for g in GRAMMARS.values()}
    assert {g["language"] for g in contributes["grammars"]} == {language["id"] for language in contributes["languages"]}
    configuration = json.loads((EDITOR / "language-configuration.json").read_text())
    re.compile(configuration["wordPattern"])


#: Token kinds of xDSL's lexer, and the scope that each has to have.
SCOPE_OF = {
    MLIRTokenKind.PERCENT_IDENT: "variable.other",
    MLIRTokenKind.AT_IDENT: "entity.name.function",
    MLIRTokenKind.CARET_IDENT: "entity.name.label",
    MLIRTokenKind.STRING_LIT: ("string.quoted", "entity.name.function.op"),
    MLIRTokenKind.INTEGER_LIT: "constant.numeric",
    MLIRTokenKind.FLOAT_LIT: "constant.numeric",
}


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("path", MLIR_FILES, ids=lambda p: p.stem)
def test_the_grammar_of_mlir_agrees_with_the_lexer(path: Path) -> None:
    text = path.read_text()
    scopes = Grammar(GRAMMARS["ln-mlir"]).scopes(text)
    lexer = MLIRLexer(Input(text, str(path)))
    try:
        while (token := lexer.lex()).kind is not MLIRTokenKind.EOF:
            wanted = SCOPE_OF.get(token.kind)
            scope = scopes[token.span.start]
            if wanted and "meta.type" not in scope:
                assert any(w in scope for w in ([wanted] if isinstance(wanted, str) else wanted)), (token.text, scope)
    except Exception as e:
        if type(e).__name__ != "ParseError":  # of files that are about errors
            raise
    for at in parse(text, str(path)).ops:
        assert "op.ln-mlir" in scopes[at] or "support.class.dialect" in scopes[at] or "keyword.other" in scopes[at], (
            text[at:]
        )
    assert all(scope for c, scope in zip(text, scopes) if not c.isspace() and c != "$")


def test_types_have_shapes_and_elements_and_end_where_they_end() -> None:
    text = "%x = memref.load %y[%i] : memref<?x64xf32, strided<[64, 1]>> loc(#here)\n"
    scopes = Grammar(GRAMMARS["ln-mlir"]).scopes(text)
    assert "constant.numeric.shape" in scopes[text.index("?x64")]
    assert "storage.type" in scopes[text.index("f32")]
    assert "meta.type" in scopes[text.index(">>") + 1]
    assert "meta.type" not in scopes[text.index("loc")] and "alias" in scopes[text.index("#here")]


def test_comments_are_comments() -> None:
    text = "// RUN: ln-opt %s\n%x = ln.relu %y // why\n// CHECK-NEXT: ln.relu\n  // expected-error@+1 {{no}}\n"
    scopes = Grammar(GRAMMARS["ln-mlir"]).scopes(text)
    assert "keyword.other.directive" in scopes[3]
    assert all(scopes[text.index(word)].startswith("comment.line") for word in ("ln-opt", "why", "no}}"))
    assert "variable.other" in scopes[text.index("%y")]


@pytest.mark.parametrize("path", IL_FILES, ids=lambda p: p.stem)
def test_the_grammar_of_il_agrees_with_the_lexer(path: Path) -> None:
    text = path.read_text()
    scopes = Grammar(GRAMMARS["lightnet-il"]).scopes(text)
    source = SourceFile(path.name, text, 0, None)
    wanted = {
        NAME: ("variable", "support", "constant", "keyword", "entity"),
        STRING: ("string",),
        NUMBER: ("constant",),
    }
    for line in source.lines():
        for kind, token, _, at, _ in line:
            scope = scopes[source.original_offset(at)]
            assert not scope.startswith("comment"), token
            if kind in wanted:
                assert any(w in scope for w in wanted[kind]), (token, scope)


def test_the_grammar_of_descriptions() -> None:
    text = "base {\n  optype: \"x\", // why\n  run: 'dst[i] += src[i]',\n}\nmy_op : base { checks: [ - ], n: 1.5e3, t: true }\n"
    scopes = Grammar(GRAMMARS["lightnet-op"]).scopes(text)
    for word, scope in {
        "base": "entity.name.type", "optype": "variable.other.property", '"x"': "string.quoted.double", "why": "comment.line",
        "dst": "string.quoted.single", "+=": "keyword.operator", "my_op": "entity.name.type", "base {": "entity",
        "- ]": "keyword.operator.delete", "1.5e3": "constant.numeric", "true": "constant.language",
    }.items():  # fmt: skip
        assert scope in scopes[text.index(word)], (word, scopes[text.index(word)])
    assert "inherited-class" in scopes[text.rindex("base")]
