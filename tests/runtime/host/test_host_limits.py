"""Limits and refusals of the host part, without a network: each bound at the number that is allowed and at the next one."""

from __future__ import annotations

import itertools
import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.runtime.host import ngrams, program, steps
from lightnet.runtime.host.program import CLASSES, HostProgram, HostTensor, evaluated, text_array
from lightnet.runtime.host.steps import HostStep, host_ops, texts
from lightnet.runtime.hosted import HostedExecutable

WORDS = texts(["a", "bc", "def"])
X = HostTensor("x", (3,), "text")


def step(op: str, inputs: int = 1, outputs: int = 1, name: str = "", **attributes: Any) -> HostStep:
    return HostStep(op, name, tuple("xyz"[:inputs]), tuple(f"o{k}" for k in range(outputs)), attributes)


def said(act: Any) -> Any:
    """What is said, or None."""
    try:
        act()
    except LightNetError as error:
        return error.message
    return None


# -- what ops refuse
ENCODER = "ai.onnx.ml.LabelEncoder"
NUMBERS = np.arange(3)
REFUSED = [
    (step("Concat", 2, axis=0), (WORDS, NUMBERS), "Concat: its operands are StringDType(), int64"),
    (step("Concat", 2, axis=0), (WORDS, WORDS), None),
    (step(ENCODER, keys_strings=["a"], values_int64s=[1, 2]), (WORDS,), f"{ENCODER}: it has 1 keys and 2 values"),
    (step(ENCODER, keys_strings=["a"], values_int64s=[1]), (NUMBERS,), f"{ENCODER}: its keys are text, and its input i64"),
    (step(ENCODER, keys_int64s=[1], values_int64s=[1]), (WORDS,), f"{ENCODER}: its keys are i64, and its input text"),
    (step(ENCODER, keys_int64s=[1], values_int64s=[5]), (NUMBERS,), None),
    (step(ENCODER, keys_int64s=[1], values_int64s=[5], default_tensor=np.array([1.5])), (NUMBERS,), f"{ENCODER}: its default is of another type than its values"),
    (step(ENCODER, keys_int64s=[1], values_int64s=[5], default_tensor=np.array([1, 2])), (NUMBERS,), f"{ENCODER}: its default is of another type than its values"),
    (step(ENCODER, keys_int64s=[1], values_int64s=[5], default_tensor=np.array([7])), (NUMBERS,), None),
    (step("Tile", 2), (WORDS, np.array([-1])), "Tile: its repeats [-1] are not those of a tensor of rank 1"),
    (step("Tile", 2), (WORDS, np.array([1, 1])), "Tile: its repeats [1, 1] are not those of a tensor of rank 1"),
    (step("Tile", 2), (WORDS, np.array([0])), None),
]  # fmt: skip


def test_functions_of_ops_stand_in_their_modules() -> None:
    """What runs a step is what its family's module has by that name, and can call."""
    for op in host_ops().values():
        assert getattr(sys.modules[op.function.__module__], op.function.__name__) is op.function, op.name


def test_what_steps_refuse() -> None:
    words = str(np.dtype(WORDS.dtype))
    for made, inputs, want in REFUSED:
        want = want and want.replace("StringDType()", words)
        assert said(lambda made=made, inputs=inputs: made.run(inputs)) == want, made


def test_numbers_of_a_slice_are_as_many_of_each() -> None:
    """Starts, ends, axes and steps, of which none is 0; of axes and steps there may be none. NumPy says what is cut."""
    x, cut = np.arange(12).reshape(3, 4), HostStep("Slice", "", ("x", "b", "e", "a", "s"), ("o",))
    for lens in itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (0, 1, 2)):
        b, e, a, s = ([*kind[:n]] for kind, n in zip(((1, -3, 0), (3, 3, 1), (0, 1), (1, 2)), lens))
        for strides in (s, [0 if k == len(s) - 1 else n for k, n in enumerate(s)]):
            inputs = (x, *(np.array(numbers, np.int64) for numbers in (b, e, a, strides)))
            axes, by = a or [*range(len(b))], strides or [1] * len(b)
            text = "axis 2 is out of range for a tensor of rank 2" if len(b) > x.ndim else None
            if len({len(b), len(e), len(axes), len(by)}) > 1 or 0 in by:
                text = f"its starts {b}, ends {e}, axes {axes} and steps {by} do not fit"
            if text is not None:
                assert said(lambda inputs=inputs: cut.run(inputs)) == f"Slice: {text}"
            else:
                want = x[tuple(map(slice, b, e, by))]
                np.testing.assert_array_equal(cut.run(inputs)[0], want)


def test_how_long_a_number_may_be() -> None:
    """400 characters of a float and 41 of an integer, its sign among them, whatever they are: Python says what number that is."""
    for dtype, most, pads in (("f64", 400, ("0", "+0", "-0", "0.0", ".0", "1e0")), ("i64", 41, ("+0", "-0"))):
        cast = step("Cast", to=dtype)
        for pad in pads:
            text = pad + "0" * (most - len(pad) - 1) + "7"
            assert cast.run([texts([text])])[0].tolist() == [(float if dtype == "f64" else int)(text)], text
            longer = f"{pad}0{text[len(pad) :]}"
            assert said(lambda cast=cast, longer=longer: cast.run([texts([longer])])).startswith(
                f"Cast: '{longer[:40]}' is no "
            )


def test_sizes_of_a_split_divide_its_axis() -> None:
    """As many as there are outputs, none below 0, together all of the axis: NumPy says what is cut. Without sizes all
    are alike but those at the end, which may have less."""
    x = np.arange(12).reshape(3, 4)
    for axis, count in itertools.product((0, 1, -1), (1, 2, 3)):
        dim, outputs = x.shape[axis], tuple("abc"[:count])
        alike = -(-dim // count)
        shared = [len(range(dim)[i * alike : (i + 1) * alike]) for i in range(count)]
        for sizes in itertools.chain.from_iterable(itertools.product(range(-1, 6), repeat=n) for n in range(1, 4)):
            given = HostStep("Split", "", ("x", "s"), outputs, {"axis": axis}), (x, np.array(sizes, np.int64))
            older = HostStep("Split", "", ("x",), outputs, {"axis": axis, "split": sizes}), (x,)
            for (made, inputs), shown in ((given, [*sizes]), (older, sizes)):
                if len(sizes) == count and sum(sizes) == dim and -1 not in sizes:
                    assert_parts(made.run(inputs), np.split(x, np.cumsum(sizes)[:-1], axis))
                else:
                    want = f"Split: its sizes {shown} do not divide {dim} elements among {count} outputs"
                    assert said(lambda made=made, inputs=inputs: made.run(inputs)) == want
        plain = HostStep("Split", "", ("x",), outputs, {"axis": axis})
        assert_parts(plain.run((x,)), np.split(x, np.cumsum(shared)[:-1], axis))


def assert_parts(found: Any, want: list[np.ndarray]) -> None:
    assert len(found) == len(want)
    for part, other in zip(found, want):
        np.testing.assert_array_equal(part, other)


def test_the_pairs_of_an_encoder() -> None:
    def run(x: np.ndarray, **attributes: Any) -> list[Any]:
        return step(ENCODER, **attributes).run([x])[0].tolist()

    assert run(NUMBERS, keys_int64s=[1, 2, 1], values_int64s=[5, 6, 8]) == [-1, 8, 6]
    assert run(NUMBERS, keys_int64s=[1], values_int64s=[5], default_int64=9) == [9, 5, 9]
    assert run(NUMBERS, keys_int64s=[1], values_int64s=[5], default_tensor=np.array([[7]])) == [7, 5, 7]
    nan = np.array([np.nan, 1.5, -np.nan], np.float32)
    assert run(nan, keys_floats=[float("nan"), 2.5], values_strings=["none", "two"]) == ["none", "_Unused", "none"]
    found = run(nan, keys_floats=[1.5], values_floats=[2.0])
    assert found == [0, 2, 0] and np.signbit(found[0])


def test_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made = step("Size", name="n")
    monkeypatch.setattr(steps, "MAX_ELEMENTS", 12)
    monkeypatch.setattr(steps, "MAX_CHARACTERS", 5)
    assert made.room([3, np.int64(4)]) == (3, 4) and made.room([1] * steps.MAX_RANK) == (1,) * steps.MAX_RANK
    assert made.room([]) == () and made.room([0, 99]) == (0, 99)
    assert said(lambda: made.room([13])) == "its result [13] would have more than 12 elements"
    assert said(lambda: made.room([2, -1])) == "its result would have the shape [2, -1]"
    many = [1] * (steps.MAX_RANK + 1)
    assert said(lambda: made.room(many)) == f"its result would have the shape {many}"
    assert said(lambda: made.characters(5)) is None
    assert said(lambda: made.characters(6)) == "its result would have 6 characters; at most 5 are made"


def test_the_work_of_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    made = step("TfIdfVectorizer", mode="TF", pool_strings=["a", "a", "b"], ngram_counts=[0, 1], ngram_indexes=[0, 1], min_gram_length=1, max_gram_length=2, max_skip_count=1)  # fmt: skip
    x = texts(["a", "b", "a", "c"]).reshape(1, 4)
    monkeypatch.setattr(ngrams, "MAX_WORK", 4 * 2 * 2)
    assert made.run([x])[0].tolist() == [[2, 1]]
    monkeypatch.setattr(ngrams, "MAX_WORK", 4 * 2 * 2 - 1)
    assert said(lambda: made.run([x])) == "TfIdfVectorizer: 4 words with n-grams of 2 and 1 skips"


# -- what comes in
def test_texts_that_are_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_array("x", "one").shape == () and text_array("x", [["a"], ["b"]]).shape == (2, 1)
    monkeypatch.setattr(program, "MAX_ELEMENTS", 3)
    monkeypatch.setattr(program, "MAX_CHARACTERS", 6)
    assert text_array("x", WORDS).tolist() == ["a", "bc", "def"]
    assert said(lambda: text_array("x", ["a"] * 4)) == "'x' gets more than 3 elements"
    assert said(lambda: text_array("x", ["a", "bc", "defg"])) == "'x' gets more than 6 characters"
    assert (
        said(lambda: text_array("x", np.array([b"a"], object))) == "'x' takes text, but gets bytes: decode them first"
    )
    assert said(lambda: text_array("x", np.array([1, "a"], object))) == "'x' takes text, but gets a int in it"
    assert said(lambda: text_array("x", np.zeros(2))) == "'x' takes text, but gets float64"


def test_tensors_that_are_fed() -> None:
    open_, ranked = HostTensor("x", None, "i64"), HostTensor("x", (None, "n", 2), "text")
    assert open_.checked(np.zeros((2, 3), np.int64)).shape == (2, 3)
    assert ranked.checked(np.full((1, 5, 2), "a")).shape == (1, 5, 2)
    assert said(lambda: ranked.checked(np.full((5, 2), "a"))) == "'x' has shape [?, n, 2], but gets [5, 2]"
    assert said(lambda: ranked.checked(np.full((1, 5, 3), "a"))) == "'x' has shape [?, n, 2], but gets [1, 5, 3]"
    assert said(lambda: HostTensor("x", (), "i64").checked([1])) == "'x' has shape [], but gets [1]"


def test_what_steps_may_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of one result; bytes and characters of all of them, where what shares memory counts once."""
    made = step("Concat", 2, name="c", axis=0)
    joined = step("StringConcat", 2, name="j")
    env = {"x": NUMBERS, "y": NUMBERS}
    for name, most, steps_, limit in (
        ("MAX_ELEMENTS", 6, [made], "its result has more than 5 elements"),
        ("MAX_BYTES", 48, [made], "with its result, the steps have made more than 47 bytes"),
    ):
        for enough in (True, False):
            with monkeypatch.context() as patch:
                patch.setattr(program, name, most - (not enough))
                want = None if enough else f"Concat 'c': {limit}"
                assert said(lambda steps_=steps_: evaluated(steps_, dict(env))) == want
    for enough in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(program, "MAX_CHARACTERS", 12 - (not enough))
            want = None if enough else "StringConcat 'j': with its result, the steps have made more than 11 characters"
            assert said(lambda: evaluated([joined], {"x": WORDS, "y": WORDS})) == want
    views = [HostStep("Identity", "", ("x",), ("a",)), HostStep("Identity", "", ("a",), ("b",))]
    with monkeypatch.context() as patch:
        patch.setattr(program, "MAX_BYTES", 0)
        patch.setattr(program, "MAX_CHARACTERS", 0)
        assert evaluated(views, {"x": WORDS})["b"].tolist() == WORDS.tolist()


def test_what_a_step_does_not_read() -> None:
    """An operand that is absent is None."""
    cut = HostStep("Slice", "", ("x", "b", "e", "", "s"), ("o",))
    env = {"x": WORDS, "b": np.array([0]), "e": np.array([3]), "s": np.array([2])}
    assert evaluated([cut], env)["o"].tolist() == ["a", "def"]


# -- programs
def test_outputs_whose_type_nobody_says() -> None:
    """A network has an output's type, or the host part; one that neither knows is left out, until a call makes it."""
    network = SimpleNamespace(outputs={"y": ((3,), np.dtype("f4")), "w": ((2,), np.dtype("i4"))})
    behind = HostStep("Identity", "", ("y",), ("z",))
    for dtype, want in (
        ("f32", {"z": ((3,), np.dtype("f4"))}),
        ("text", {"z": ((3,), np.dtype(object))}),
        ("", {}),
    ):
        outputs = tuple(HostTensor(name, (3,), kind) for name, kind in (("z", dtype), ("w", "")))
        host = HostProgram((), outputs, (), (behind,), {}, leaving=("y",))
        assert HostedExecutable(network, host).outputs == {**want, "w": ((2,), np.dtype("i4"))}


def of_classes(inputs: tuple[str, ...] = ("y",), outputs: tuple[str, ...] = ("y",)) -> HostStep:
    return HostStep(CLASSES, "", inputs, outputs, {"keys_int64s": (0, 1), "values_strings": ("no", "yes")})


def test_programs_that_only_name_classes() -> None:
    number = HostTensor("x", (2,), "f32")
    identity = HostStep("Identity", "", ("x",), ("x",))
    for inputs, before, after, only in (
        ((number,), (), (of_classes(),), True),
        ((number,), (), (), True),
        ((X,), (), (of_classes(),), False),
        ((number,), (identity,), (of_classes(),), False),
        ((number,), (), (of_classes(outputs=("z",)),), False),
        ((number,), (), (of_classes(), identity), False),
    ):
        made = HostProgram(inputs, (), before, after, {})
        assert made.names_only == only
    made = HostProgram((number,), (), (identity,), (of_classes(), identity, of_classes(outputs=("z",))), {})
    assert made.classes() == {"y": ("no", "yes")}
    assert str(made) == f"before the network: Identity; after the network: {CLASSES}, Identity"
    assert str(HostProgram((), (), (), (), {})) == "text goes through as it is"
    assert str(HostProgram((), (), (identity,), (), {})) == "before the network: Identity"


def test_programs_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {
        "i": np.array([[1, -2]]),
        "b": np.array([True, False]),
        "f": np.array([1.5], np.float32),
        "t": texts(["é"]),
    }
    made = HostProgram(
        (X, HostTensor("n", None, "")),
        (HostTensor("o", (None, "k", 2), "i64"),),
        (),
        (of_classes(("x",), ("o",)),),
        constants,
    )
    found = HostProgram.from_json(made.to_json())
    assert found.to_json() == made.to_json() and (found.inputs, found.outputs) == (made.inputs, made.outputs)
    for name, array in constants.items():
        assert found.constants[name].tolist() == array.tolist() and found.constants[name].dtype == array.dtype
    text = made.to_json()
    monkeypatch.setattr(program, "MAX_JSON", len(text))
    HostProgram.from_json(text)
    assert said(lambda: HostProgram.from_json(text + " ")) == f"the host part is longer than {len(text)} characters"


def wrong(path: tuple[Any, ...], value: Any) -> str:
    made = HostProgram(
        (X,), (HostTensor("o", (3,), "i64"),), (), (of_classes(("x",), ("o",)),), {"i": np.array([1, 2])}, ("i",)
    )
    found = json.loads(made.to_json())
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(found)


@pytest.mark.parametrize(("path", "value", "message"), [
    (("inputs", 0, 2), "i5", "has a tensor of type 'i5'"),
    (("inputs", 0, 1), [-1], "has a dim -1"),
    (("inputs", 0, 1), [True], "has a dim True"),
    (("inputs", 0, 0), 5, "has a value 5"),
    (("constants", "i", "dims"), [3], "has 2 elements for [3]"),
    (("constants", "i", "data"), [1, "a"], "has a value 'a'"),
    (("constants", "i", "data"), [1, 1.5], "has a value 1.5"),
    (("after", 0, 0), "Nothing", "has a step of no op: 'Nothing'"),
    (("after", 0, 2), ["none"], "reads 'none', which nothing makes"),
    (("entering",), ["none"], "gives the network 'none', which nothing makes"),
])  # fmt: skip
def test_programs_that_are_none(path: tuple[Any, ...], value: Any, message: str) -> None:
    assert said(lambda: HostProgram.from_json(wrong(path, value))) == f"the host part {message}"


def test_every_op_is_checked_without_attributes() -> None:
    """`check` of a step refuses, or takes it; it raises nothing else."""
    for name, op in host_ops().items():
        said(lambda op=op, name=name: op.check(step(name)))
