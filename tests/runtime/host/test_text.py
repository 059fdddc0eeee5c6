"""Networks with text: a host part before and behind the network of numbers. Oracle: ONNX Runtime, and for patterns its RE2."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import random
from dataclasses import replace
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from text_models import FEEDS, ML, by_reference, by_runtime, model, node, of_op, pipeline, text  # noqa: E402

import lightnet  # noqa: E402
from lightnet.compiled import Compiled  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.onnx import split  # noqa: E402
from lightnet.frontends.onnx.reader import read_model  # noqa: E402
from lightnet.runtime.host import program, regex  # noqa: E402
from lightnet.runtime.host.program import HostProgram  # noqa: E402
from lightnet.runtime.host.regex import Regex  # noqa: E402
from lightnet.runtime.host.steps import HostStep, host_ops  # noqa: E402

pytestmark = pytest.mark.meaning

WORDS = text("a", "", "The", "the", "A b", "a", "7")
GRID_OF_NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
GRID = text("x", "y", "z", "x", "", "longer", dims=(2, 3))


def agree(network: Any, feeds: dict[str, Any], got: dict[str, Any] | None = None, oracle: Any = by_runtime) -> None:
    """Raise AssertionError where we differ from the oracle."""
    want = oracle(network, feeds)
    got = lightnet.compile(network)(feeds) if got is None else got
    assert list(got) == list(want)
    for name, array in want.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        if array.dtype == object:
            assert got[name].tolist() == array.tolist()
        else:
            np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


# -- one op


CASES: dict[str, list[Any]] = {
    "StringNormalizer": [
        ({"x": x}, {"locale": "C", "case_change_action": action, "is_case_sensitive": sensitive, "stopwords": stop})
        for x in (WORDS, WORDS.reshape(1, -1), text("the"))
        for action in ("NONE", "LOWER", "UPPER")
        for sensitive in (0, 1)
        for stop in (["the", "a"], [""])
    ] + [({"x": text("Über", "éa", "ß")}, {"locale": "C.UTF-8", "case_change_action": a, "stopwords": ["ÜBER"]}) for a in ("LOWER", "UPPER")],
    "StringConcat": [({"x": WORDS, "y": text("!")}, {}), ({"x": GRID, "y": text("1", "2", dims=(2, 1))}, {}),
                     ({"x": text("q", dims=()), "y": text("r", dims=())}, {}), ({"x": np.empty((0, 2), object), "y": text("r")}, {})],
    "StringSplit": [({"x": text("a,b", ",", "", "a,,b,c", "x")}, {"delimiter": d, "maxsplit": m}) for d in (",", ",,") for m in (1, 2)]
    + [({"x": text(" a  b ", "c\td", "", "e", dims=(2, 2))}, {"maxsplit": 1}), ({"x": text(" a  b ", "c d")}, {"delimiter": ""})],
    "Equal": [({"x": GRID, "y": text("x", "y", "z")}, {}), ({"x": WORDS, "y": WORDS[::-1].copy()}, {})],
    "Identity": [({"x": GRID}, {})],
    "Transpose": [({"x": GRID}, {"perm": [1, 0]})],
    "Flatten": [({"x": GRID.reshape(1, 2, 3)}, {"axis": 2})],
    "Shape": [({"x": GRID}, {})],
    "Size": [({"x": GRID}, {})],
    "Concat": [({"x": GRID, "y": GRID}, {"axis": a}) for a in (0, -1)],
    "Where": [({"c": np.array([[True], [False]]), "x": GRID, "y": text("o")}, {})],
    "Gather": [({"x": GRID, "i": np.array([[2, -1], [0, 0]])}, {"axis": 1})],
    "GatherElements": [({"x": GRID, "i": np.array([[1, -1, 0]])}, {"axis": 0})],
}  # fmt: skip


@pytest.mark.parametrize("op", CASES)
def test_op(op: str) -> None:
    for feeds, attributes in CASES[op]:
        outputs = 2 if op == "StringSplit" else 1
        # Of an empty element, and of blanks that are no spaces, ONNX Runtime does not do what ONNX says.
        agree(
            of_op(op, feeds, outputs, **attributes), feeds, oracle=by_reference if op == "StringSplit" else by_runtime
        )


#: Ops whose results' shapes follow from what a call feeds.
FED: dict[str, list[Any]] = {
    "Compress": [({"x": WORDS, "c": np.array([True, False, True])}, {})], "Unique": [({"x": WORDS}, {})],
}  # fmt: skip


def test_shapes_that_are_said_before_a_call_hold_in_it() -> None:
    """Also as the values of a Shape behind the op: what an example of these dims would give, another feed need not."""
    for op, cases in {**CASES, **FED}.items():
        for feeds, attributes in cases[:1]:
            network = of_op(op, feeds, 2 if op == "StringSplit" else 1, **attributes)
            network.graph.node.append(node("Shape", ["y0"], ["dims"]))
            network.graph.output.append(helper.make_empty_tensor_value_info("dims"))
            run = lightnet.compile(network)
            got = run(feeds)
            assert got["dims"].tolist() == list(got["y0"].shape), op
            for name, (dims, _) in run.outputs.items():
                said = got[name].shape if dims is None else dims
                assert len(said) == got[name].ndim and all(
                    d in (None, n) for d, n in zip(said, got[name].shape, strict=True)
                ), (op, name, dims)


def test_ops_with_operands() -> None:
    """Ops whose second operand decides a shape, as a constant, and as something that a call feeds."""
    for op, feeds, number, attributes in [
        ("Reshape", GRID, [3, -1], {}), ("Reshape", GRID, [0, 3, 1], {}), ("Expand", GRID, [2, 1, 3], {}), ("Tile", GRID, [1, 2], {}),
        ("Unsqueeze", GRID, [0, -1], {}), ("Squeeze", GRID.reshape(1, 2, 3), [0], {}),
    ]:  # fmt: skip
        operand = np.array(number, np.int64)
        agree(of_op(op, {"x": feeds}, constants={"n": operand}, **attributes), {"x": feeds})
        agree(of_op(op, {"x": feeds, "n": operand}, **attributes), {"x": feeds, "n": operand})
    rng, ends = random.Random(1), (-(1 << 63), -9, -4, -3, -2, -1, 0, 1, 2, 3, 9, 1 << 40)
    cuts = [[[rng.choice(ends)], [rng.choice(ends)], [1], [rng.choice((-4, -2, -1, 1, 2))]] for _ in range(20)]
    for sliced in (*cuts, [[2, 0], [0, 9], [1, 0], [-2, 1]], [[-9], [-9], [1], [-1]]):
        weights = {k: np.array(v) for k, v in zip(("b", "e", "a", "s"), sliced)}
        agree(of_op("Slice", {"x": GRID}, constants=weights), {"x": GRID})
        numbers = of_op("Slice", {"x": GRID_OF_NUMBERS}, constants=weights)
        agree(numbers, {"x": GRID_OF_NUMBERS}, lightnet.compile(numbers, "none")({"x": GRID_OF_NUMBERS}))
    agree(of_op("Split", {"x": GRID}, 2, constants={"n": np.array([1, 2])}, axis=1), {"x": GRID})
    agree(of_op("Unique", {"x": WORDS}, 4), {"x": WORDS})


def test_dims_that_a_call_decides() -> None:
    """Of the numbers of an op the first few are fed, and the others constants: what is said of the dims before a call holds in it."""
    for op, x, numbers in (
        ("Slice", GRID, {"b": [1], "e": [9], "a": [1], "s": [1]}), ("Slice", GRID, {"b": [-1, 2], "e": [-9, 0], "a": [0, 1], "s": [-1, -2]}),
        ("Reshape", GRID, {"n": [3, -1]}), ("Expand", GRID, {"n": [2, 1, 3]}), ("Tile", GRID, {"n": [1, 2]}),
        ("Unsqueeze", GRID, {"n": [0]}), ("Squeeze", GRID.reshape(1, 2, 3), {"n": [0]}), ("Split", GRID, {"n": [2]}),
    ):  # fmt: skip
        arrays = {name: np.array(value, np.int64) for name, value in numbers.items()}
        for fed in range(len(arrays) + 1):
            feeds = {"x": x, **dict(list(arrays.items())[:fed])}
            network = of_op(op, feeds, constants=dict(list(arrays.items())[fed:]))
            executable = lightnet.compile(network)
            said, got = executable.outputs["y0"][0], executable(feeds)
            agree(network, feeds, got)
            if said is not None:
                dims = got["y0"].shape
                assert len(said) == len(dims) and all(d in (n, None) or isinstance(d, str) for d, n in zip(said, dims))
            assert (said == got["y0"].shape) == (fed == 0), (op, fed, said)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_ngrams(mode: str) -> None:
    """Words in rows and alone, 1 to 3 words, 0 to 2 skips."""
    pool = ["a", "b", "c", "a", "b", "b", "c", "a", "a", "a", "b", "c", "c", "c", "a"]
    rng = random.Random(mode)
    for low, high, skips in ((1, 1, 0), (1, 1, 2), (2, 2, 0), (1, 3, 0), (2, 3, 2), (1, 3, 1)):
        x = text(*rng.choices("abcd", k=24), dims=(3, 8))
        places = list(range(8))
        rng.shuffle(places)
        facts = {"mode": mode, "pool_strings": pool, "ngram_counts": [0, 3, 9], "ngram_indexes": places, "min_gram_length": low,
                 "max_gram_length": high, "max_skip_count": skips}  # fmt: skip
        if mode != "TF":
            facts["weights"] = [0.5 + k for k in range(8)]
        agree(of_op("TfIdfVectorizer", {"x": x}, **facts), {"x": x})
        agree(of_op("TfIdfVectorizer", {"x": x[0]}, **facts), {"x": x[0]})
        numbers = np.vectorize("abcd".index)(x)  # of which the network itself counts
        facts["pool_int64s"] = ["abcd".index(word) for word in facts.pop("pool_strings")]
        network = of_op("TfIdfVectorizer", {"x": numbers}, **facts)
        agree(network, {"x": numbers}, lightnet.compile(network, "none")({"x": numbers}))


def test_tables() -> None:
    """LabelEncoder of all opsets between text and numbers, CategoryMapper, OneHotEncoder, ArrayFeatureExtractor."""
    numbers = np.array([3, 1, -7, 2], np.int64)
    agree(
        of_op("LabelEncoder", {"x": GRID}, domain=ML, keys_strings=["x", "longer"], values_int64s=[4, 5]), {"x": GRID}
    )
    agree(
        of_op(
            "LabelEncoder", {"x": GRID}, domain=ML, keys_strings=["x", "z"], values_floats=[0.5, 2.0], default_float=9.0
        ),
        {"x": GRID},
    )
    agree(
        of_op(
            "LabelEncoder",
            {"x": GRID},
            domain=ML,
            keys_strings=["x", "z"],
            values_strings=["u", "v"],
            default_string="w",
        ),
        {"x": GRID},
    )
    agree(
        of_op("LabelEncoder", {"x": numbers}, domain=ML, keys_int64s=[1, 2, 3], values_strings=["u", "v", "w"]),
        {"x": numbers},
    )
    agree(of_op("LabelEncoder", {"x": GRID}, domain=ML, ml=1, classes_strings=["x", "z"], default_int64=7), {"x": GRID})
    agree(
        of_op("LabelEncoder", {"x": numbers}, domain=ML, ml=1, classes_strings=["x", "y", "z"], default_string="n"),
        {"x": numbers},
    )
    tensors = {"keys_tensor": numpy_helper.from_array(text("x", "y")), "values_tensor": numpy_helper.from_array(np.array([5, 6], np.int64)),
               "default_tensor": numpy_helper.from_array(np.array([-3], np.int64))}  # fmt: skip
    agree(of_op("LabelEncoder", {"x": GRID}, domain=ML, ml=4, **tensors), {"x": GRID})
    facts = {"cats_strings": ["x", "z"], "cats_int64s": [3, 1]}
    agree(of_op("CategoryMapper", {"x": GRID}, domain=ML, ml=1, default_int64=-4, **facts), {"x": GRID})
    agree(of_op("CategoryMapper", {"x": numbers}, domain=ML, ml=1, default_string="?", **facts), {"x": numbers})
    agree(of_op("OneHotEncoder", {"x": GRID}, domain=ML, ml=1, cats_strings=["z", "x"], zeros=1), {"x": GRID})
    agree(
        of_op("ArrayFeatureExtractor", {"x": GRID, "i": np.array([2, 0])}, domain=ML, ml=1),
        {"x": GRID, "i": np.array([2, 0])},
    )
    with pytest.raises(LightNetError, match="'y' is none of its categories"):
        lightnet.compile(of_op("OneHotEncoder", {"x": GRID}, domain=ML, ml=1, cats_strings=["z", "x"], zeros=0))(
            {"x": GRID}
        )


def test_cast() -> None:
    """Numbers from text as ONNX Runtime reads them, text of numbers as it writes them, and what is no number."""
    for to, x in ((TensorProto.FLOAT, text("1.5", "-2e3", "NaN", "-INF", "+7", ".5")), (TensorProto.INT64, text("7", "-12")),
                  (TensorProto.DOUBLE, text("0.1", "1e300"))):  # fmt: skip
        agree(of_op("Cast", {"x": x}, to=to), {"x": x})
    rng = np.random.default_rng(3)
    for x in (np.array([0, -5, 1 << 40]), np.array([True, False]), np.array([0.0, 1.5, -0.1, 1e-7, 3e20, np.nan, np.inf], np.float32),
              rng.normal(size=50).astype(np.float32)):  # fmt: skip
        network = of_op("Cast", {"x": x}, to=TensorProto.STRING)
        got = lightnet.compile(network)({"x": x})["y0"]
        if x.dtype.kind == "f":  # that it reads back is all that ONNX says
            assert [np.float32(v) for v in got] == pytest.approx(x.tolist(), abs=0, nan_ok=True)
        else:
            agree(network, {"x": x}, {"y0": got})
    for wrong in ("", "1.5", "x", "1_0", " 7", "9" * 30):
        with pytest.raises(LightNetError, match="is no"):
            lightnet.compile(of_op("Cast", {"x": text(wrong)}, to=TensorProto.INT32))({"x": text(wrong)})


# -- patterns


ATOMS = r"a b A é k K 0 _ . \d \w \s \D \W \b \B ^ $ \A \z [ab] [^a] [a-c] [[:alpha:]] [[:^digit:]] [\d_] [^\W] \pL \p{Lu} \PN [\p{L}0] \x41 \x{e9} \n \. " \
        r"\Qa.b\E \101 []a] [a-] [K-\x{212a}] \07 { a{,2} [^]a] \p{^Lu} [[:word:]]".split(" ")  # fmt: skip


def _pattern(rng: random.Random, depth: int = 0) -> str:
    k = rng.random()
    if depth > 3 or k < 0.4:
        return rng.choice(ATOMS)
    if k < 0.7:
        return rng.choice(("", "|")).join(_pattern(rng, depth + 1) for _ in range(2))
    if k < 0.83:
        group = rng.choice(("(", "(?:", "(?i:", "(?s:", "(?P<n>", "(?m:", "(?i-s:", "(?:(?i)", "(?:(?U)"))
        return f"{group}{_pattern(rng, depth + 1)})"
    return f"(?:{_pattern(rng, depth + 1)}){rng.choice(('*', '+', '?', '{2}', '{1,3}', '{0,2}', '{2,}', '*?', '+?'))}"


def _compare_patterns(count: int, seed: int) -> None:
    """Random patterns, and mutations of them that may be none, on random text: the same matches, and the same refusals, as RE2."""
    rng = random.Random(seed)
    for i in range(count):
        pattern = _pattern(rng)
        if i % 4 == 0:
            at = rng.randrange(len(pattern))
            pattern = (
                pattern[:at] + rng.choice("\\()[]{}*+?|a^-:") * rng.randrange(2) + pattern[at + rng.randrange(2) :]
            )
        x = text(
            *("".join(rng.choices("abAcC kKé0_1.\nÉK-]{ſ,2", k=rng.choice((0, 1, 1, 2, 3, 5)))) for _ in range(20))
        )
        try:
            want = by_runtime(of_op("RegexFullMatch", {"x": x}, pattern=pattern), {"x": x})["y0"].tolist()
        except Exception:  # RE2 does not take it
            want = None
        try:
            got = Regex(pattern).matches(*x)
        except LightNetError:
            got = None
        assert got == want, pattern


#: Patterns at the borders of the syntax, of which mutations seldom make one.
EDGES = r"a{2}{3} a*{2} a{1}?{2} a{2}{,3} \pC \PC \x4 \x \x{} [\x4] \p \p{ \p{L (?-)a (?i-)a (?i (?P<n [a- [z--] [--z] [\d-z] [a-\d] a|* ^* \b+a a{0} " \
        r"(a{0}){3} (?i)* \Q\E* \x{0} \x{41 (?U:a+)".split(" ")  # fmt: skip


def test_edges_of_patterns() -> None:
    x = text("a", "aa", "AA", "", "a{2}{,3}", "\ue000", "\u0378", "-", "5", "\0", "aaaaaa", "x{41")
    for pattern in EDGES:
        try:
            want = by_runtime(of_op("RegexFullMatch", {"x": x}, pattern=pattern), {"x": x})["y0"].tolist()
        except Exception:  # RE2 does not take it
            want = None
        try:
            got = Regex(pattern).matches(*x)
        except LightNetError:
            got = None
        assert got == want, pattern


def test_patterns() -> None:
    _compare_patterns(120, 0)


@pytest.mark.slow
def test_more_patterns() -> None:
    _compare_patterns(4000, 1)


def test_patterns_are_linear() -> None:
    """What takes a matcher that tries again longer than the age of the universe."""
    for pattern in ("(a*)*b", "(a|aa)+$b", "(a|a?)+b", "([a-z]+)*Z", "(?:a?){500}a{500}b"):
        assert Regex(pattern).matches("a" * 2000) == [False]
    for pattern in (
        "a" * 20_000,
        "((a{1000}){1000})",
        "a{0}{1000}{1000}{1000}",
        "((" + "a{0}" * 4000 + "){1000}){16}",
        "((" + "|" * 16000 + "){1000}){16}",
        "a" + "{1}" * 5000,
        "a" + r"\Q\E*" * 3000,
        r"\x{41",
        r"[\x{41",
        r"\p{L",
        "(" * 200 + ")" * 200,
        "a{1001}",
        r"(a)\1",
        "(?=a)",
        "(?<!a)",
        "a++",
    ):
        with pytest.raises(LightNetError, match="pattern"):
            Regex(pattern)


def test_memory_of_patterns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of states that are kept, and states that are visited, whatever pattern and text: each text here asks for sets of its own."""
    rng = random.Random(2)
    wide = Regex("[ab]*a[ab]{1000}")
    texts = ["".join(rng.choices("ab", k=1500)) for _ in range(2)]
    assert wide.matches(*texts) == [t[-1001] == "a" for t in texts]
    kept = {id(s): len(s) for (key, _, _), found in wide._next.items() for s in (key, found)}
    assert sum(kept.values()) <= regex.MAX_KEPT + 2000
    monkeypatch.setattr(regex, "MAX_VISITS", 100_000)
    with pytest.raises(LightNetError, match="visits"):
        wide.matches(texts[0][::-1])
    assert Regex("a*b").matches("a" * 50_000 + "b") == [True]
    with pytest.raises(LightNetError, match="visits"):  # of the ends, too
        Regex("a*b").matches(*[""] * 100_001)


# -- whole networks


def test_every_way_in_and_out(tmp_path: Path) -> None:
    """Compiled, interpreted, as `.mlir`, saved, from bytes and pickled: the same texts and scores."""
    source, network = pipeline(), lightnet.loads(pipeline().SerializeToString(), ".onnx")
    run = lightnet.compile(source)
    run.save(tmp_path / "n.lnx")
    again = lightnet.loads(str(network), ".mlir", weights=network.weights)
    for found in (run, lightnet.compile(source, "none"), lightnet.compile(again), lightnet.load_executable(tmp_path / "n.lnx"),
                  lightnet.load_executable((tmp_path / "n.lnx").read_bytes()), pickle.loads(pickle.dumps(run)), lightnet.compile(pipeline("N"))):  # fmt: skip
        got = found(FEEDS)
        agree(source, FEEDS, got)
        assert (
            list(found.inputs) == ["colour", "x"] and list(found.outputs) == ["label", "p"] and "colour" in repr(found)
        )
        assert found(FEEDS, outputs=["label"])["label"].tolist() == got["label"].tolist()
    onnx.save(pipeline("N"), tmp_path / "open.onnx")
    opened = pickle.loads(pickle.dumps(lightnet.compile(tmp_path / "open.onnx")))
    agree(source, FEEDS, opened(FEEDS))
    assert isinstance(run, Compiled) and isinstance(opened, Compiled) and run.specialized(FEEDS) is run
    with pytest.raises(LightNetError, match="specialized"):
        opened.save(tmp_path / "open.lnx")
    closed = opened.specialized(FEEDS)
    closed.save(tmp_path / "closed.lnx")
    for found in (closed, lightnet.load_executable(tmp_path / "closed.lnx")):
        agree(source, FEEDS, found(FEEDS))
    assert str(closed.program.bound) and closed.ir() == str(closed.planned) and closed.is_native and not closed.missing
    out = np.zeros((4, 3), np.float32)
    run(FEEDS, out={"p": out})
    np.testing.assert_array_equal(out, got["p"])
    lists = {"colour": [["red"], ["blue"], ["nope"], ["green"]], "x": FEEDS["x"]}
    strings = {"colour": np.array(lists["colour"]), "x": FEEDS["x"]}
    assert run(lists)["label"].tolist() == run(strings)["label"].tolist() == got["label"].tolist()
    run.close()
    with pytest.raises(LightNetError, match="closed"):
        run(FEEDS)


def test_text_through_the_network_alone() -> None:
    """Shapes that text decides, an output that is an input, numbers that go with text, and labels that text ops read again."""
    words = model(
        [node("StringNormalizer", ["w"], ["n"], case_change_action="LOWER", stopwords=["the"], locale="C"),
         node("TfIdfVectorizer", ["n"], ["v"], mode="TF", pool_strings=["a", "b", "a", "b"], ngram_counts=[0, 2], ngram_indexes=[0, 1, 2],
              min_gram_length=1, max_gram_length=2, max_skip_count=0),
         node("MatMul", ["v", "W"], ["y"])], [("w", ["C"])], ["y", "w"], {"W": np.ones((3, 4), np.float32)})  # fmt: skip
    run = lightnet.compile(words)
    assert not hasattr(run.network, "signature")  # what the network is fed has one shape, whatever the text
    for x in (text("The", "a", "B", "a", "b"), text("the"), text("b")):
        agree(words, {"w": x}, run({"w": x}))
    split = model([node("StringSplit", ["t"], ["s", "n"], delimiter=","), node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
                   node("Add", ["f", "f"], ["g"]), node("Relu", ["g"], ["y"])], [("t", [2])], ["y", "n"])  # fmt: skip
    run = lightnet.compile(split)
    for x in (text("1,2", "3,4"), text("1.5,-2,7", "3,4,-1")):
        agree(split, {"t": x}, run({"t": x}))
    pulled = model([node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["r"]), node("Concat", ["r", "one"], ["shape"], axis=0),
                    node("Reshape", ["t", "shape"], ["y"]), node("Mul", ["x", "x"], ["z"])],
                   [("t", [4]), ("x", [4, 2], TensorProto.FLOAT)], ["y", "z"], {"zero": np.array([0]), "one": np.array([1])})  # fmt: skip
    feeds = {"t": text(*"abcd"), "x": FEEDS["x"]}
    agree(pulled, feeds)
    named = copy.deepcopy(pipeline())
    named.graph.node.append(node("StringConcat", ["label", "mark"], ["shout"]))
    named.graph.initializer.append(numpy_helper.from_array(text("!"), "mark"))
    named.graph.output.append(helper.make_empty_tensor_value_info("shout"))
    agree(named, FEEDS)


def test_what_is_refused() -> None:
    """Text between two networks, ops that no step has, subgraphs, and every such node is named at once."""
    between = model([node("Relu", ["x"], ["r"]), node("Cast", ["r"], ["t"], to=TensorProto.STRING, name="back"),
                     node("TfIdfVectorizer", ["t"], ["v"], mode="TF", pool_strings=["1"], ngram_counts=[0], ngram_indexes=[0], min_gram_length=1,
                          max_gram_length=1, max_skip_count=0),
                     node("MatMul", ["v", "W"], ["y"], name="last")], [("x", [3], TensorProto.FLOAT)], ["y"], {"W": np.ones((1, 1), np.float32)})  # fmt: skip
    with pytest.raises(LightNetError) as error:
        lightnet.compile(between)
    assert (
        error.value.label == "onnx.unsupported"
        and "'last'" in str(error.value.notes)
        and "behind it" in str(error.value.notes)
    )
    pad = of_op("Pad", {"x": GRID}, constants={"n": np.array([0, 0, 1, 1])}, mode="edge")
    with pytest.raises(LightNetError) as error:
        lightnet.compile(pad)
    assert "Pad" in str(error.value.notes) and "text" in str(error.value.notes)
    run = lightnet.compile(pipeline())
    for feeds, message in (({"x": FEEDS["x"]}, "'colour'"), ({**FEEDS, "hot": 1}, "'hot'"), ({**FEEDS, "colour": FEEDS["x"]}, "takes text"),
                           ({**FEEDS, "colour": text("a")}, "has shape"), ({**FEEDS, "colour": [[b"red"]] * 4}, "bytes"),
                           ({**FEEDS, "x": text("a")}, "'x'"), ({**FEEDS, "colour": text(1, 2, 3, 4, dims=(4, 1))}, "int")):  # fmt: skip
        with pytest.raises(LightNetError, match=message):
            run(feeds)


@pytest.mark.parametrize(
    ("dims", "shapes", "message"),
    [
        ([2], {}, "the shape of 'k', 'w', which ops on text give the network, follows from what the text says: each call decides, and no file has it"),
        (["n"], {"x": [2]}, "the shape of 'k', 'w', which ops on text give the network, follows from what the text says: each call decides, and no file has it"),
        (["n"], {}, "the model leaves the shape of 'x' [n] open: give it, as in --shape x=1 (in Python: lightnet.compile(path, shapes={name: dims}))"),
    ],
    ids=["closed", "given", "open"],
)  # fmt: skip
def test_shapes_that_the_text_decides(dims: list, shapes: dict, message: str) -> None:
    """How many words there are is known in a call; only what a file can say is asked for."""
    table = {"domain": ML, "keys_strings": ["a"], "values_int64s": [1], "default_int64": 0}
    made = model([node("StringSplit", ["x"], ["words", "count"], delimiter=" "), node("LabelEncoder", ["words"], ["k"], **table),
                  node("StringSplit", ["x"], ["parts", "many"], delimiter="-"), node("LabelEncoder", ["parts"], ["w"], **table),
                  node("Neg", ["k"], ["y"]), node("Neg", ["w"], ["z"])], [("x", dims)], ["y", "z"])  # fmt: skip
    with pytest.raises(LightNetError) as error:
        lightnet.load(made, shapes=shapes)
    assert error.value.message == message
    run = lightnet.compile(made)
    for words in (("a b c-a", "a"), ("a", "b-b")):
        feeds = {"x": text(*words)}
        found, want = run(feeds), by_reference(made, feeds)
        assert all(np.array_equal(found[name], want[name]) for name in ("y", "z"))


def test_operands_that_an_op_has_not() -> None:
    """Each op of a host part with each operand absent, with one less and one more than it has, and with one more output: refused when it is read,
    by the name of its node; the same in a file."""
    whole = HostProgram.from_json(lightnet.compile(pipeline()).host.to_json())
    for name, op in host_ops().items():
        given = list(signature(op.function).parameters.values())[1:]
        least = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in given)
        is_open = given[-1].kind is inspect.Parameter.VAR_POSITIONAL
        wrong = [["colour"] * k + [""] + ["colour"] * (least - k - 1) for k in range(least)]
        wrong += [["colour"] * (least - 1)] if least else [[]]
        wrong += [] if is_open else [["colour"] * (len(given) + 1)]
        for inputs in wrong:
            step = HostStep(name, "odd", tuple(inputs), ("new",))
            with pytest.raises(LightNetError, match=r"(needs|takes) \d inputs"):
                op.check(step)
            with pytest.raises(LightNetError, match=r"the host part.*'odd'.*inputs"):
                replace(whole, after=(*whole.after, step)).check()
    for kind, inputs, outputs in (("StringConcat", ["x", ""], 1), ("StringConcat", ["x"], 1), ("StringConcat", ["x"] * 3, 1),
                                  ("StringConcat", ["x", "x"], 2), ("Unique", ["x"], 6), ("StringSplit", ["x"], 3)):  # fmt: skip
        names = [f"y{i}" for i in range(outputs)]
        with pytest.raises(LightNetError) as error:
            lightnet.compile(model([node(kind, inputs, names, name="odd")], [("x", [2])], names))
        assert "'odd'" in str(error.value.notes) and (
            "inputs" in str(error.value.notes) or "outputs" in str(error.value.notes)
        )


def test_ngrams_of_any_number() -> None:
    """Counts and indexes from a file that are far out: refused when it is read, or what ONNX says, in no time."""
    facts = {"mode": "TF", "pool_strings": ["a", "b"], "ngram_counts": [0], "ngram_indexes": [0, 1], "min_gram_length": 1,
             "max_gram_length": 1, "max_skip_count": 0}  # fmt: skip
    far = (1 << 63) - 1
    for x in (text("a", "b", "a"), np.empty((1, 0), object)):
        for change in (
            {"max_skip_count": far - 1},
            {"max_gram_length": far},
            {"max_gram_length": far, "max_skip_count": far - 1},
        ):
            got = lightnet.compile(of_op("TfIdfVectorizer", {"x": x}, **{**facts, **change}))({"x": x})["y0"]
            assert got.reshape(-1).tolist() == ([2.0, 1.0] if x.size else [0.0, 0.0])
        for change in ({"ngram_indexes": [0, far]}, {"ngram_indexes": [-3, -4]}, {"ngram_indexes": [0, 1 << 26]}):
            with pytest.raises(LightNetError, match=r"TfIdfVectorizer .*its (result|ngram_indexes)"):
                lightnet.compile(of_op("TfIdfVectorizer", {"x": x}, **{**facts, **change}))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that doubles with each node, and tensors that are declared large."""
    names = ["x", *(f"t{i}" for i in range(60))]
    doubling = model([node("StringConcat", [a, a], [b]) for a, b in pairwise(names)], [("x", [1])], ["t59"])
    run = lightnet.compile(doubling)
    with pytest.raises(LightNetError, match="characters"):
        run({"x": text("word")})
    grown = of_op("Expand", {"x": text("a")}, constants={"n": np.array([1 << 40])})
    with pytest.raises(LightNetError, match="elements"):
        lightnet.compile(grown)({"x": text("a")})
    names = ["x", *(f"t{i}" for i in range(60))]
    monkeypatch.setattr(program, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(program, "MAX_CHARACTERS", 1 << 18)
    many = model(
        [node("Tile", ["x", "n"], [b]) for b in names[1:]], [("x", [1])], names[1:], {"n": np.array([1 << 12])}
    )
    with pytest.raises(LightNetError, match=r"Tile.*bytes"):
        lightnet.compile(many)({"x": text("a")})
    wide = model([node("StringConcat", ["x", "x"], [b]) for b in names[1:]], [("x", [1])], names[1:])
    with pytest.raises(LightNetError, match=r"StringConcat.*characters"):
        lightnet.compile(wide)({"x": text("a" * (1 << 12))})
    moved = model([node("Transpose", [a], [b]) for a, b in pairwise(names)], [("x", [1 << 16])], ["t59"])
    same = text("a").repeat(1 << 16)
    assert lightnet.compile(moved)({"x": same})["t59"] is not None  # which takes no memory
    for delimiter in (",", ""):
        long = of_op("StringSplit", {"x": text(*"a" * 9000)}, 2, delimiter=delimiter)
        x = text("a, " * 9000, *["b"] * 8999)
        with pytest.raises(LightNetError, match="elements"):
            lightnet.compile(long)({"x": x})


def test_other_forms_say_that_they_cannot(tmp_path: Path) -> None:
    """C, JSON IR, ONNX and NNVM have no place for a host part; labels alone are numbers of classes in C, as of old."""
    from lightnet import deploy
    from lightnet_export.netlist import from_module

    network = lightnet.loads(pipeline().SerializeToString(), ".onnx")
    from lightnet_export.nnvm.model import to_nnvm

    for write in (
        lambda: from_module(network.module),
        lambda: lightnet.to_onnx(network),
        lambda: to_nnvm(network),
    ):
        with pytest.raises(LightNetError, match="OneHotEncoder") as error:
            write()
        assert error.value.label == "host.form"
    with pytest.raises(LightNetError, match=r"'header'.*OneHotEncoder"):
        deploy.emit(lightnet.compile(network, threads=1), {"header": tmp_path / "n.h"}, "n")
    labels = model([node("LinearClassifier", ["s"], ["label", "p"], coefficients=[1.0, 0, 0, 1], classlabels_strings=["a", "b"], domain=ML)],
                   [("s", [3, 2], TensorProto.FLOAT)], ["label", "p"])  # fmt: skip
    run = lightnet.compile(labels, threads=1)
    assert run.host.classes() == {"label": ("a", "b")}
    deploy.emit(run, {"header": tmp_path / "n.h"}, "n")
    assert "label" in (tmp_path / "n.h").read_text()


def test_host_parts_are_checked() -> None:
    """A host part is data: whatever a file says instead, it is refused, or it is a program that a call evaluates or refuses."""
    good = lightnet.compile(pipeline()).host.to_json()
    assert HostProgram.from_json(good).to_json() == good
    rng = random.Random(5)
    junk: list[Any] = [None, -1, 1 << 70, 1.5, "x", [], {}, ["x"], {"dtype": "text", "dims": [2], "data": ["a"]}, True]
    refused = 0
    for _ in range(1500):
        value = json.loads(good)
        at, key = value, rng.choice(list(value))
        while isinstance(at[key], dict | list) and len(at[key]) and rng.random() < 0.8:
            at = at[key]
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        at[key] = rng.choice(junk)
        try:
            program = HostProgram.from_json(json.dumps(value))
            program.left(program.entered(FEEDS), {"label": np.zeros(4, np.int64), "p": FEEDS["x"]})
        except LightNetError:
            refused += 1
    assert 500 < refused < 1500
    for wrong in ("", "[]", "{", good.replace("OneHotEncoder", "Loader"), good.replace('"colour"]', '"nothing"]')):
        with pytest.raises(LightNetError, match="the host part"):
            HostProgram.from_json(wrong)


class Odd(dict[str, Any]):
    """Attributes of any name, that are there or not, of any value."""

    VALUES = (0, 1, -1, 3, 1 << 62, -(1 << 63), 1 << 70, 0.5, float("nan"), "a", "", "TF", "LOWER", "text", "f32", "i8", "a*", "(", "b,", True,
              (), ("a", "b"), ("a", "b", "c"), (0, 1), (0,), (1, -1), (0.5, 2.0), (1 << 62, 0), "map(text,f32)", "map(i64,text)", "TO_INT64", "SPARSE", np.array([1, 2]), text("a", "b"),
              np.zeros((2, 2), np.float32))  # fmt: skip

    def __init__(self, rng: random.Random):
        self.rng = rng

    def __contains__(self, name: object) -> bool:
        return self.rng.random() < 0.3

    def get(self, name: str, default: Any = None) -> Any:
        return default if self.rng.random() < 0.4 else self.rng.choice(self.VALUES)


@pytest.mark.parametrize("op", sorted(host_ops()))
def test_odd_steps(op: str) -> None:
    """Any operands and attributes: a result, or an error that names the step, in no time and little memory."""
    rng = random.Random(op)
    given = [WORDS, GRID, np.empty((0, 2), object), np.empty((1, 0), object), text("x", dims=()), np.arange(3), np.array([1, -1]), np.array(1 << 62),
             np.array([[0.5, np.nan]], np.float32), np.array([True, False, True]), np.array({"a": 1.0}, object),
             np.array({-1: "x", 5: "7"}, object)]  # fmt: skip
    takes = list(signature(host_ops()[op].function).parameters.values())[1:]
    for _ in range(400):
        operands = [None if p.default is None and rng.random() < 0.3 else rng.choice(given) for p in takes]
        try:
            found = HostStep(op, "odd", ("n",) * len(operands), ("o",) * rng.choice((1, 1, 2)), Odd(rng)).run(operands)
        except LightNetError as error:
            assert "'odd'" in error.message
        else:
            assert all(isinstance(array, np.ndarray) for array in found)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text from JSON, from .npy and as words; what comes out goes to a file; `inspect` says what runs on the host."""
    from lightnet.cli.lightnet import main

    path, out = tmp_path / "n.onnx", tmp_path / "out.npz"
    onnx.save(pipeline(), path)
    (tmp_path / "c.json").write_text(json.dumps(FEEDS["colour"].tolist()))
    np.save(tmp_path / "c.npy", FEEDS["colour"].astype(str))
    np.save(tmp_path / "x.npy", FEEDS["x"])
    want = by_runtime(pipeline(), FEEDS)["label"].tolist()

    def said(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    lnx = tmp_path / "n.lnx"
    said("compile", str(path), "-o", str(lnx))
    for name in (path, lnx):
        for colours in (f"@{tmp_path}/c.json", f"@{tmp_path}/c.npy", json.dumps(FEEDS["colour"].tolist())):
            said("run", str(name), "-i", f"colour={colours}", "-i", f"x=@{tmp_path}/x.npy", "-o", str(out))
            assert np.load(out)["label"].tolist() == want
        assert "OneHotEncoder" in said("inspect", str(name)) and "text" in said("inspect", str(name))
        assert "OneHotEncoder" in json.loads(said("inspect", str(name), "--json"))["host"]
    assert "agrees" in said("run", str(path), "-i", "colour=red", "-i", "x=random", "--compare", "onnxruntime")
    assert "agrees" in said(
        "run", str(path), "-i", "colour=zeros", "-i", "x=random", "--compare", "interpreter", "--layers"
    )


NGRAMS = {"mode": "TF", "pool_strings": ["a", "b"], "ngram_counts": [0], "ngram_indexes": [0, 1], "min_gram_length": 1, "max_gram_length": 1,
          "max_skip_count": 0}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), [
    ({"mode": "TFI"}, "its mode is 'TFI'; there are TF, IDF and TFIDF"), ({"max_skip_count": -1}, "n-grams of 1 to 1 words with -1 skips"),
    ({"min_gram_length": 2}, "n-grams of 2 to 1 words with 0 skips"), ({"min_gram_length": 0}, "n-grams of 0 to 1 words with 0 skips"),
    ({"weights": [1.0]}, "it has 1 weights for 2 n-grams"), ({"ngram_counts": [0, 1]}, "ngram_counts [0, 1] do not divide its pool of 2 words into n-grams"),
    ({"ngram_counts": [2, 0]}, "do not divide its pool"), ({"ngram_counts": [0, 3]}, "do not divide its pool"), ({"ngram_counts": [-1]}, "do not divide its pool"),
    ({"ngram_indexes": [0]}, "it has 1 ngram_indexes for more n-grams"),
])  # fmt: skip
def test_ngrams_that_cannot_be(change: dict[str, Any], message: str) -> None:
    """Said when the text is there at the latest, with the op."""
    with pytest.raises(LightNetError) as error:
        lightnet.compile(of_op("TfIdfVectorizer", {"x": text("a")}, **{**NGRAMS, **change}))({"x": text("a")})
    assert message in str(error.value) or any(message in note for _, note in error.value.notes)


def test_ngrams_of_a_rank_that_they_have_not() -> None:
    x = text("a", "b", dims=(1, 1, 2))
    with pytest.raises(LightNetError) as error:
        lightnet.compile(of_op("TfIdfVectorizer", {"x": x}, **NGRAMS))({"x": x})
    assert "its input should be [C] or [N, C], but is [1, 1, 2]" in str(error.value)


def test_constants_that_steps_read() -> None:
    """Nodes of each kind of value: text that is joined, places, axes, and numbers that are text then."""
    x = text("x", "y", "z")

    def constant(name: str, **value: Any):
        return node("Constant", [], [name], **value)

    join = node("StringConcat", ["t", "c"], ["y"])
    for value in (
        {"value_string": "!"},
        {"value_strings": ["1", "2", "3"]},
        {"value": numpy_helper.from_array(text("a", "b", "c"))},
    ):
        agree(model([constant("c", **value), join], [("t", [3])], ["y"]), {"t": x})
    gather = node("Gather", ["t", "c"], ["y"])
    for value in ({"value_int": 2}, {"value_ints": [-1, 0]}, {"value": numpy_helper.from_array(np.array([[1], [2]]))}):
        agree(model([constant("c", **value), gather], [("t", [3])], ["y"]), {"t": x})
    for value in (
        {"value_int": -7},
        {"value_ints": [3, -1, 0]},
        {"value_float": 2.5},
        {"value_floats": [0.5, -3.0, 7.0]},
    ):
        cast = node("Cast", ["c"], ["s"], to=TensorProto.STRING)
        agree(
            model([constant("c", **value), cast, node("StringConcat", ["t", "s"], ["y"])], [("t", [3])], ["y"]),
            {"t": x},
        )
    # Types that are only stored in: the network says what they stand for, of a node and of a constant of the graph alike.
    for kind in (TensorProto.FLOAT8E5M2, TensorProto.INT4):
        c = helper.make_tensor("c", kind, [3], [0, 1, 3])
        nodes = [node("Cast", ["c"], ["s"], to=TensorProto.STRING), node("StringConcat", ["t", "s"], ["y"])]
        of_node, of_graph = (
            model([constant("c", value=c), *nodes], [("t", [3])], ["y"]),
            model(nodes, [("t", [3])], ["y"]),
        )
        of_graph.graph.initializer.append(c)
        for network in (of_node, of_graph):
            assert lightnet.compile(network)({"t": x})["y"].tolist() == ["x0", "y1", "z3"]
    bad = model([constant("c", value_string=b"\xff"), join], [("t", [3])], ["y"])
    with pytest.raises(LightNetError) as error:
        lightnet.compile(bad)
    assert "UTF-8" in str(error.value) + str(error.value.notes)


@pytest.mark.parametrize("value", [
    {"value_int": 2}, {"value_ints": [2, 0]}, {"value": numpy_helper.from_array(np.array([[1], [2]]))}, "initializer",
], ids=str)  # fmt: skip
@pytest.mark.parametrize("is_read_by_numbers", [False, True])
def test_steps_stand_before_the_network_where_constants_are_known(value: Any, is_read_by_numbers: bool) -> None:
    """However a constant is written, and whoever reads it too: what reads text and constants waits for no network."""
    nodes = [node("Gather", ["t", "c"], ["y"])]
    if is_read_by_numbers:
        nodes.append(node("Mul", ["c", "x"], ["z"]))
    if value != "initializer":
        nodes.insert(0, node("Constant", [], ["c"], **value))
    constants = {"c": np.array([2, 1])} if value == "initializer" else {}
    outputs = ["y", "z"] if is_read_by_numbers else ["y"]
    source = model(nodes, [("t", [3])] + [("x", [1], TensorProto.INT64)] * is_read_by_numbers, outputs, constants)
    feeds = {"t": text("p", "q", "r")} | ({"x": np.array([3])} if is_read_by_numbers else {})
    agree(source, feeds)
    parted = split.part(read_model(source.SerializeToString()), {}, {})
    assert [step.op for step in parted.host.before] == ["Gather"] and not parted.host.after and not parted.host.leaving
    assert [o.name for o in parted.model.graph.outputs] == outputs[1:]
    assert parted.host.constants.keys() == {"c"}


@pytest.mark.parametrize(("read", "kept"), [
    ([], []), (["r"], ["Shape", "Gather"]), (["s"], ["Shape"]), (["shape"], ["Shape", "Gather", "Concat"]),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("given", [[], ["r"], ["s", "shape"]], ids=str)
def test_the_network_computes_nothing_that_steps_alone_need(read: list[str], kept: list[str], given: list[str]) -> None:
    """Nodes that steps repeat before the network stay in it only where a node that stays reads them: outputs are the
    steps'."""
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["r"]),
             node("Concat", ["r", "one"], ["shape"], axis=0), node("Reshape", ["t", "shape"], ["y"]),
             node("Mul", ["x", "x"], ["z"]), *(node("Add", [n, n], ["w"]) for n in read)]  # fmt: skip
    outputs = ["y", "z", *given, *("w" for _ in read)]
    constants = {"zero": np.array([0]), "one": np.array([1])}
    source = model(nodes, [("t", [4]), ("x", [4, 2], TensorProto.FLOAT)], outputs, constants)
    agree(source, {"t": text(*"abcd"), "x": FEEDS["x"]})
    parted = split.part(read_model(source.SerializeToString()), {}, {})
    assert [step.op for step in parted.host.before] == ["Shape", "Gather", "Concat", "Reshape"]
    assert [n.op_type for n in parted.model.graph.nodes] == [*kept, "Mul", *("Add" for _ in read)]


def test_ops_are_tried_on_text_of_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What dims follow is learnt on empty texts: of an op that moves elements on a few, of one that reads dims alone on
    as many as a call may bring. Beyond, each call decides, and a network of fixed shapes cannot be made."""
    monkeypatch.setattr(split, "MAX_EXAMPLE", 4)
    monkeypatch.setattr(split, "MAX_ELEMENTS", 16)
    rows = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "first"], ["n"]), node("Expand", ["one", "n"], ["t"])]
    weights = {"one": text("1"), "first": np.array([0])}
    for nodes, given, most in ((rows, weights, 16), ([node("Flatten", ["x"], ["t"])], weights, 4)):
        for columns in (1, 2, 3, 8, 9):
            end = [node("Equal", ["t", "one"], ["y"]), node("Not", ["y"], ["z"])]
            made = model([*nodes, *end], [("x", [2, columns])], ["z"], given)
            if columns == 3:
                feeds = {"x": text(*"012121", dims=(2, 3))}
                agree(made, feeds, lightnet.compile(made, "none")(feeds))
            if 2 * columns <= most:
                lightnet.loads(made.SerializeToString(), ".onnx")
                continue
            with pytest.raises(LightNetError, match="follows from what the text says: each call decides"):
                lightnet.loads(made.SerializeToString(), ".onnx")


@pytest.mark.parametrize(("op", "wrong", "message"), [
    ("RegexFullMatch", {"pattern": "(a"}, "pattern"), ("RegexFullMatch", {}, "needs the attribute 'pattern'"),
    ("StringNormalizer", {"case_change_action": "TITLE"}, "its case_change_action is 'TITLE'"), ("TfIdfVectorizer", {**NGRAMS, "mode": "TFI"}, "its mode is 'TFI'"),
])  # fmt: skip
def test_wrong_attributes_are_found_when_a_model_is_read(op: str, wrong: dict[str, Any], message: str) -> None:
    """Not by the first call: of an input of any dims."""
    source = model([node(op, ["x"], ["y"], **wrong)], [("x", ["N"])], ["y"]).SerializeToString()
    with pytest.raises(LightNetError) as error:
        lightnet.loads(source, ".onnx", shapes={"x": (2,)})
    assert message in str(error.value)
