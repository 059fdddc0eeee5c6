"""What a generator of a user's gives wrong is an error at its own method, which says what was expected and what came; it is no refusal, behind which
another generator is taken in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.plugins import load

EXAMPLES = Path(__file__).parents[2] / "examples"
FORM = "return epilogue_form(ops[0], ops[1:], yielded, {ops[0].src: NO_HALO})"
TIME = "Plan.of(self, kernel, form, time,"
CHOICES = 'choices={"pixels": pixels}'
BUILD = "return [CropKernel(kernel, name, lanes_of(kernel), aliases).build(plan.schedule)]"

#: The part of the example that is changed, into what, the method at fault, and what its error says.
MISTAKES = [
    (CHOICES, 'choices={"px": 3}', "plan", r"wrong choices: px: expected an attribute, as choice_attr\(3\), got 3"),
    (CHOICES, "choices=['px']", "plan", r"wrong choices: expected a mapping, got \['px'\]"),
    (CHOICES, f"{CHOICES}, weights={{7: 3}}", "plan", "wrong weights: expected the number of one of 1 operands, got 7"),
    (CHOICES, f"{CHOICES}, weights={{0: 3}}", "plan", r"wrong weights: 0: expected a layout \(ir/layout.py\), got 3"),
    (CHOICES, f"{CHOICES}, scratch_bytes=-5", "plan", "wrong scratch_bytes: expected an integer, 0 or more, got -5"),
    (CHOICES, f"{CHOICES}, workspace_bytes=.5", "plan", "wrong workspace_bytes: expected an integer, .* got 0.5"),
    (CHOICES, f"{CHOICES}, blocks='a'", "plan", "wrong blocks: expected an integer, 0 or more, got 'a'"),
    (TIME, "Plan.of(self, kernel, form, 'x',", "plan", "a wrong time: expected nanoseconds, 0 or more, got 'x'"),
    (TIME, "Plan.of(self, kernel, form, float('nan'),", "plan", "a wrong time: .* got nan"),
    (TIME, "Plan.of(self, kernel, form, -1.0,", "plan", "a wrong time: .* got -1.0"),
    (TIME, "Plan.of(self, kernel, None, time,", "plan", "a wrong form: expected the Form that it was asked with"),
    ("return Plan.of(", "made = Plan.of(", "plan", r"no plan: expected a Plan, as of Plan.of\(...\), got None"),
    (FORM, "return True", "form", r"no form: expected a Form, a Refusal \(or None\) to refuse, got True"),
    (FORM, "return Form({ops[0].src: 3})", "form", r"a wrong form: expected halos \(rows, columns\), 0 or more, got 3"),
    (
        FORM,
        "return Form({ops[0].dst: (0, 0)})",
        "form",
        "a wrong form: expected values from outside of the body, got .rows.",
    ),
    (BUILD, "return None", "build", "no launches: expected a list of launches, one at least, got None"),
    (BUILD, "return []", "build", r"no launches: .* got \[\]"),
    (BUILD, "return [3]", "build", r"no launches: .* got \[3\]"),
    (BUILD, BUILD.replace("[", "").replace("]", ""), "build", "no launches: .* got Launch"),
]


@pytest.mark.parametrize(
    ("part", "mistake", "method", "says"), MISTAKES, ids=[f"{m[2]}: {m[1][:60]}" for m in MISTAKES]
)
def test_mistake_of_a_generator_is_an_error_at_its_method(tmp_path: Path, part, mistake, method, says) -> None:
    text = (EXAMPLES / "my_kernel.py").read_text("utf-8")
    assert part in text
    (path := tmp_path / "k.py").write_text(text.replace(part, mistake), "utf-8")
    line = next(i for i, row in enumerate(text.splitlines(), 1) if row.startswith(f"    def {method}("))
    expected = rf"{method} of generator 'crop' \(Crop\) gives {says}"
    with load(path), pytest.raises(LightNetError, match=expected) as e:
        lightnet.compile(EXAMPLES / "my_kernel.mlir", "cpu")
    assert e.value.render().startswith(f"{path}:{line}: error:")


def test_takes_of_a_generator_of_threads(tmp_path: Path) -> None:
    text = (EXAMPLES / "my_cuda_kernel.py").read_text("utf-8")
    start = text.index("    def takes(")
    body = text.index("\n", text.index("->", start)) + 1
    for mistake in ("return None", "return [None]", "return True"):
        (path := tmp_path / "k.py").write_text(f"{text[:body]}        {mistake}\n{text[body:]}", "utf-8")
        with load(path), pytest.raises(LightNetError, match=r"takes of generator .turn. .* gives no forms") as e:
            lightnet.compile(EXAMPLES / "my_cuda_kernel.mlir", "cuda")
        assert e.value.loc.file == str(path)
