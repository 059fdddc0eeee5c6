"""com.microsoft.Tokenizer, which skl2onnx puts before each TF-IDF. Oracle: ONNX Runtime."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper
from text_models import by_runtime, model, node, text

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime.host import regex
from lightnet.runtime.host.regex import Regex
from lightnet.runtime.host.steps import HostStep

BASE: dict[str, Any] = {"mark": 0, "pad_value": "#", "mincharnum": 1}
WORDS = text("hello  world", "a,b c", "", "xyéz ", "ab.cd,,ef", "\n a\tb_1")
KINDS: list[dict[str, Any]] = [
    *({"separators": s} for s in ([" "], [""], [",", " "], [" ", ","], [",,", ","], ["[,. ]"], ["."], [r"\."], ["a*"], [" ", ""], ["b|bc?"], ["$", "^a"])),
    *({"tokenexp": p} for p in ("[a-z]+", ".", "a|ab", "[a-zA-Z0-9_]+", "(a)(b)?", "x*", r"\b\w\w+\b", "^a|b$", "[^a]b", "a.|.b.", "(?i)HE|L+")),
    {"tokenexp": "a", "separators": ["b"]},
]  # fmt: skip


def tokens(words: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    return HostStep("com.microsoft.Tokenizer", "t", ("x",), ("y",), attributes).run([words])[0]


def network(words: np.ndarray, attributes: dict[str, Any]) -> Any:
    found = model([node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attributes)], [("x", words.shape)], ["y"])
    found.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tokens(kind: dict[str, Any]) -> None:
    for change in ({}, {"mark": 1}, {"mincharnum": 2}):
        attributes = {**BASE, **kind, **change}
        for words in (WORDS, WORDS.reshape(2, 3)):
            try:
                want = by_runtime(network(words, attributes), {"x": words})["y"]
            except Exception:  # of its own kinds: characters of two characters
                assert change == {"mincharnum": 2} and kind in ({"separators": [""]}, {"tokenexp": "."})
                continue
            got = tokens(words, attributes)
            assert got.shape == want.shape and got.tolist() == want.tolist(), attributes


def test_random_patterns() -> None:
    """The leftmost and longest match, of patterns of all operators."""
    rng = random.Random(7)

    def pattern(depth: int = 0) -> str:
        kind = rng.randrange(7) if depth < 3 else 0
        inner = [pattern(depth + 1) for _ in range(2)] if kind else []
        return [rng.choice(["a", "b", "[ab]", ".", "c"]), f"(?:{'|'.join(inner)})", "".join(inner), f"(?:{inner[0]})*" if inner else "", f"(?:{inner[0]})?" if inner else "",
                f"(?:{inner[0]})+" if inner else "", f"{inner[0]}{rng.choice(['^', '$', chr(92) + 'b'])}{inner[1]}" if inner else ""][kind]  # fmt: skip

    for _ in range(150):
        attributes = {**BASE, rng.choice(["tokenexp", "separators"]): pattern()}
        if "separators" in attributes:
            attributes["separators"] = [attributes["separators"]]
        words = text(*("".join(rng.choices("abc \n", k=rng.randrange(12))) for _ in range(8)))
        got, want = tokens(words, attributes), by_runtime(network(words, attributes), {"x": words})["y"]
        assert got.shape == want.shape and got.tolist() == want.tolist(), (attributes, words)


def test_a_network_with_tokens() -> None:
    """Words of texts, counted and weighed, as scikit-learn's pipelines do; of any number of texts."""
    nodes = [
        node("Tokenizer", ["t"], ["w"], domain="com.microsoft", **{**BASE, "tokenexp": "[a-z]+"}),
        node("TfIdfVectorizer", ["w"], ["v"], mode="TF", pool_strings=["cat", "dog"], ngram_counts=[0], ngram_indexes=[0, 1], min_gram_length=1, max_gram_length=1,
             max_skip_count=0), node("MatMul", ["v", "W"], ["y"])]  # fmt: skip
    source = model(nodes, [("t", ["N"])], ["y"], {"W": np.array([[1], [10]], np.float32)})
    source.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    words = text("a cat, a dog", "", "cat cat")
    got = lightnet.compile(source)({"t": words})["y"]
    np.testing.assert_array_equal(got, by_runtime(source, {"t": words})["y"])
    assert got.tolist() == [[11], [0], [2]]


@pytest.mark.parametrize(("attributes", "message"), [
    ({}, "either separators or a tokenexp"), ({"tokenexp": "("}, "pattern"),
    ({"separators": ["a", "("]}, "pattern"), ({"tokenexp": "a", "mincharnum": 0}, "its mincharnum is 0"), ({"tokenexp": ".", "mincharnum": 2}, "its mincharnum is 2"),
])  # fmt: skip
def test_what_is_refused(attributes: dict[str, Any], message: str) -> None:
    """When the model is read."""
    with pytest.raises(LightNetError) as error:
        lightnet.loads(network(WORDS, {**BASE, **attributes}).SerializeToString(), ".onnx")
    assert message in str(error.value)


def test_time_and_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LightNetError, match=r"its input should be \[C\] or \[N, C\]"):
        tokens(WORDS.reshape(1, 2, 3), {**BASE, "tokenexp": "a"})
    monkeypatch.setattr(regex, "MAX_SEARCH", 10_000)
    with pytest.raises(LightNetError, match="visits more than 10000 states"):
        Regex("[ab]*c").spans("a" * 500)  # each start is tried to the end
    assert Regex("[ab]*c").spans("a" * 50 + "c") == [[(0, 51)]]
