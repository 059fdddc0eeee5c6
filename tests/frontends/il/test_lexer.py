"""Tokens of IL and their places: what `spell` writes reads back as the tokens that it was given, and every place is that of its character."""

from __future__ import annotations

import random
import re

import pytest

from lightnet.frontends.il.lexer import FROZEN, NAME, SourceFile, Token, TranslationMap, position, spell, token_kind

WORDS = ("a", "L", "u8", "U", "x$1", "0", "1.5e", "1e+5", ".5", "0x1f", '"s"', 'L"s"', "'c'", '"a\\"b"', "@", "`")
PUNCTUATORS = (
    *"!#%&()*+,-./:;<=>?[]^{|}~",
    *("...", "<<=", ">>=", "##", "%:%:", "%:", "<:", ":>", "<%", "%>", "->", "++", "--", "<<", ">>", "&&", "||", "-=", "==", "/="),
)  # fmt: skip


def tokens_of(text: str) -> list[Token]:
    return [token for line in SourceFile("net", text, 0, None).lines() for token in line]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_spelt_reads_back(seed: int) -> None:
    """Whatever stands beside whatever: names that are not to be expanded, and tokens with white space before them, too."""
    rng = random.Random(seed)
    for _ in range(400):
        words = rng.choices((*WORDS, *PUNCTUATORS), k=rng.randrange(1, 7))
        kinds = [token_kind(word) for word in words]
        given = [
            (FROZEN if kind == NAME and rng.random() < 0.3 else kind, word, rng.random() < 0.2, 0, None)
            for kind, word in zip(kinds, words)
        ]
        text, starts = spell(given)
        assert [text[at : at + len(word)] for at, word in zip(starts, words)] == words
        found = tokens_of(text)
        assert [(kind, word) for kind, word, *_ in found] == list(zip(kinds, words)), text
        assert [position(token) for token in found] == starts
        assert all(token[2] for token, one in zip(found, given) if one[2])


@pytest.mark.parametrize("seed", range(3))
def test_a_continued_line_keeps_the_places_of_its_characters(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        original = "".join(rng.choices(("a", "\n", "\\\n", "\\ \t\n", "b ", "\\", "1"), k=12))
        file = SourceFile("net", original, 0, None)
        kept = sorted(
            set(range(len(original))) - {k for m in re.finditer(r"\\[ \t]*\n", original) for k in range(*m.span())}
        )
        assert file.text == "".join(original[k] for k in kept)
        assert [file.original_offset(k) for k in range(len(kept))] == kept
        for k in kept:
            loc = file.loc(kept.index(k))
            before = original[:k].split("\n")
            assert (loc.line, loc.col) == (len(before), len(before[-1]) + 1)


def test_offsets_of_several_files_are_apart() -> None:
    """The place of a token is in the file that it stands in, and in its line there, whatever was read before."""
    sources = TranslationMap()
    texts = {"a.net": "one\n two", "b.h": "", "c.h": "\n\nthree four"}
    for name, text in texts.items():
        for line in sources.add(name, text).lines():
            for token in line:
                loc = sources.loc(position(token))
                assert loc.file == name
                assert texts[name].split("\n")[loc.line - 1][loc.col - 1 :].startswith(token[1])
