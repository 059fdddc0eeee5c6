"""`lightnet tune`, and files of tuned choices: what is in one, who reads it, and what happens where it does not fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.passes import parse_pipeline
from lightnet.model import load
from lightnet.passes.tuned import kernel_key, tuned_choices, tuned_text
from lightnet_bench import tuning
from lightnet_bench.intervals import Interval
from lightnet_bench.tuning import Form, Tunable, Tuning, _Forms, _note

ROOT = Path(__file__).parents[2]
CNN, LENET = str(ROOT / "examples" / "cnn.net"), str(ROOT / "examples" / "nets" / "lenet.net")


@pytest.fixture(scope="module")
def forms() -> dict[str, Tunable]:
    """The distinct kernels of a network, and their forms."""
    found = _Forms()
    lightnet.compile(LENET, threads=1, instrumentation=[found])
    return found.found


def choices_of(executable: Any) -> dict[str, Any]:
    """The choices of each kernel, by key."""
    return {kernel_key(k): k.choices for k in executable.planned.walk() if isinstance(k, KernelOp)}


def test_forms_are_near_the_best(forms: dict[str, Tunable]) -> None:
    """The model's form is the first; others are of no more than 1.3 times its time, and differ from each other."""
    assert any(len(k.forms) > 1 for k in forms.values())
    for kernel in forms.values():
        first, *others = kernel.forms
        assert all(f.predicted <= tuning.WITHIN * first.predicted for f in others) and len(others) <= tuning.FORMS
        assert len({f.text for f in kernel.forms}) == len(kernel.forms)


def test_every_form_runs_and_is_right(forms: dict[str, Tunable]) -> None:
    """All kernels in their next form at once, until there is none: each file is taken, and results stay but for the
    order of sums."""
    plain = lightnet.compile(LENET, threads=1)
    feeds = {n: np.random.default_rng(0).normal(size=s).astype(t) for n, (s, t) in plain.inputs.items()}
    expected, taken = plain(feeds), 0
    for number in range(1, 1 + max(len(k.forms) for k in forms.values()) - 1):
        tried = {k.key: k.forms[number] for k in forms.values() if len(k.forms) > number}
        again = _Forms()
        made = lightnet.compile(LENET, threads=1, tuned=tuning._lines(tried), instrumentation=[again])
        for key, form in tried.items():
            chosen = again.found[key].forms[0].choices
            assert all(chosen.get(name) == value for name, value in form.choices.items()), form.text
            taken += 1
        for name, value in made(feeds).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-5)
    assert taken


def of_cnn(tmp_path: Path) -> tuple[str, str]:
    """A file that says `loops` for a kernel of the network that another algorithm has, and the kernel's key."""
    found = _Forms()
    lightnet.compile(CNN, threads=1, layout="plain", instrumentation=[found])
    key = next(k.key for k in found.found.values() if "alg=loops" not in k.forms[0].text)
    (tmp_path / "cnn.tuned").write_text(
        f"# mine\n\n{key} alg=loops  # because\n0123456789abcdef alg=direct; tile=[1, 2]\n"
    )
    return str(tmp_path / "cnn.tuned"), key


def algs(executable: Any) -> list[str]:
    return sorted(k.attributes["alg"].data for k in executable.planned.walk() if isinstance(k, KernelOp))


def test_a_file_is_read_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `compile(tuned=)`, `choose{from=}` and `--tuned`; an executable carries it, and is such a file itself. Keys of
    no kernel are passed over."""
    path, _ = of_cnn(tmp_path)
    plain = lightnet.compile(CNN, threads=1, layout="plain")
    tuned = lightnet.compile(CNN, threads=1, layout="plain", tuned=path)
    assert algs(tuned) != algs(plain) and algs(tuned).count("loops") > algs(plain).count("loops")
    tuned.save(tmp_path / "cnn.lnx")
    assert lightnet.load_executable(tmp_path / "cnn.lnx").options["tuned"].startswith("# mine\n")
    for source in (path, str(tmp_path / "cnn.lnx")):
        assert algs(lightnet.compile(CNN, threads=1, layout="plain", tuned=source)) == algs(tuned)
        named = f'@cpu-choose+after:bands:choose{{from="{source}"}}'
        assert algs(lightnet.compile(CNN, threads=1, layout="plain", pipeline=named)) == algs(tuned)
    assert main(["compile", CNN, "--layout=plain", "--threads=1", "--tuned", path, "-o", str(tmp_path / "b.lnx")]) == 0
    assert lightnet.load_executable(tmp_path / "b.lnx").options["tuned"] == tuned.options["tuned"]
    assert main(["run", str(tmp_path / "b.lnx"), "--tuned", path]) == 1
    assert "--tuned needs the network" in capsys.readouterr().err
    plain.save(tmp_path / "plain.lnx")
    with pytest.raises(LightNetError, match="carries no tuned choices"):
        lightnet.compile(CNN, tuned=str(tmp_path / "plain.lnx"))


def test_choices_that_cannot_be_are_passed_over(tmp_path: Path) -> None:
    """A tile of another generator, an algorithm of none: the model chooses, as without the file."""
    found = _Forms()
    plain = lightnet.compile(LENET, threads=1, instrumentation=[found])
    text = "".join(f"{key} alg=nix; tile=[3, 3]\n" for key in found.found) + "\n"
    assert algs(lightnet.compile(LENET, threads=1, tuned=text)) == algs(plain)


@pytest.mark.parametrize("line", ["abc", "abc alg", "abc alg=", "abc =direct", "abc alg=direct; tile"])
def test_mistakes_in_a_file(line: str, tmp_path: Path) -> None:
    (tmp_path / "x.tuned").write_text(f"# fine\nabc alg=direct\n{line}\n")
    with pytest.raises(LightNetError, match="expected a key and choices") as error:
        lightnet.compile(CNN, tuned=str(tmp_path / "x.tuned"))
    assert error.value.render().startswith(f"{tmp_path / 'x.tuned'}:3: error: ")


def test_names_do_not_count_for_keys() -> None:
    """The same network under other names has the same keys; another size has others."""

    def keys(text: str) -> set[str]:
        model = lightnet.loads(text, ".mlir")
        return set(choices_of(lightnet.compile(model, threads=1, layout="plain")))

    text = "func.func @main(%{x}: tensor<{n}xf32>) -> tensor<{n}xf32> {{\n %y = ln.relu %{x} : tensor<{n}xf32>\n func.return %y : tensor<{n}xf32>\n}}"
    try:
        first = keys(text.format(x="a", n=64))
    except LightNetError:
        pytest.skip("the text form takes no such function")
    assert first == keys(text.format(x="b", n=64)) != keys(text.format(x="a", n=128))


def test_the_command_writes_a_file_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it finds faster, results are those of the network, and every kept line is one of its kernels."""
    monkeypatch.setattr(tuning, "FORMS", 2)
    assert main(["tune", CNN, "--budget", "0.5s", "-o", str(tmp_path / "cnn.tuned")]) == 0
    shown = capsys.readouterr().out
    assert "measured/predicted" in shown and "faster in another form" in shown
    text = (tmp_path / "cnn.tuned").read_text()
    assert text.startswith("# cnn.net, tuned on ")
    tuned_choices(tuned_text(str(tmp_path / "cnn.tuned")))
    made = lightnet.compile(CNN, threads=1, tuned=str(tmp_path / "cnn.tuned"))
    plain = lightnet.compile(CNN, threads=1)
    for name, value in made().items():
        np.testing.assert_allclose(value, plain()[name], rtol=1e-3, atol=1e-5)
    assert main(["tune", CNN, "-t", "cuda"]) == 1
    assert "tune is for kernels of target cpu" in capsys.readouterr().err


# -- parts


def tuned_kernels() -> Tuning:
    first, other, third = Form({}, 100.0), Form({}, 110.0), Form({}, 120.0)
    return Tuning("net", "here", [Tunable("k1", ["a", "b"], [first, other]), Tunable("k2", ["c"], [third])])


def kernels(**seconds: list[float]) -> list[Any]:
    return [SimpleNamespace(name=name, seconds=times) for name, times in seconds.items()]


def test_a_form_is_kept_where_it_is_faster_for_certain() -> None:
    """Times of equal kernels are added up; a trial that is one of many asks for more."""
    found = tuned_kernels()
    names = {"a": "k1", "b": "k1", "c": "k2"}
    noise = [1.0 + 0.01 * (k % 3) for k in range(12)]
    first = kernels(a=[2e-7 * n for n in noise], b=[4e-7 * n for n in noise], c=[1e-7] * 12)
    faster = kernels(a=[1e-7 * n for n in noise[::-1]], b=[2e-7 * n for n in noise], c=[1e-7] * 12)
    _note(found, {"k1": found.kernels[0].forms[1]}, names, first, faster, 0.95, 4)
    one, two = found.kernels
    assert one.best is one.forms[1] and two.best is two.forms[0] and found.better == [one]
    assert one.forms[0].seconds == pytest.approx(3.03e-7, rel=0.02) and one.best.ratio.ratio == pytest.approx(
        0.5, rel=0.02
    )
    few = tuned_kernels()
    _note(
        few,
        {"k1": few.kernels[0].forms[1]},
        names,
        kernels(a=[2e-7] * 4, b=[2e-7] * 4),
        kernels(a=[1e-7] * 4, b=[1e-7] * 4),
        0.95,
        4,
    )
    assert not few.better


def test_nothing_is_kept_where_the_whole_is_slower() -> None:
    found = tuned_kernels()
    form = found.kernels[0].forms[1]
    form.choices, form.seconds, form.ratio = {}, 1e-7, Interval(0.5, 0.4, 0.6, 0.95, 20)
    assert "k1 " in found.file()
    found.kept = False
    assert found.file() == "# net, tuned on here\n" and "0 kernels of 2" in found.text()


def test_the_study_counts_pairs() -> None:
    """Of two forms, does the model know the faster one?"""
    found = tuned_kernels()
    found.kernels[0].forms[0].seconds, found.kernels[0].forms[1].seconds = 2e-7, 3e-7
    assert found.study() == [
        "measured over predicted: median 2.36 of 2 forms; the faster of two forms is told in 1 of 1 pairs"
    ]


def test_options_spelt_as_words_of_python() -> None:
    (choose,) = parse_pipeline('choose{from="x.tuned"}')
    assert choose.tuned == "x.tuned"
    assert load(CNN) is not None
