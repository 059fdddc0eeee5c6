"""`tools/mutants.py`: `--check` catches wrong rewrites and names them, and the tool tells a mutant that is caught from one that
is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from mutants import MUTANTS  # noqa: E402
from mutations.mutant import mutated  # noqa: E402

#: One of each kind: a rule, the driver, folding, common subexpressions, an effect, a batch norm, `ln.once`, a pass of one step,
#: a kernel, a subgraph, a merge, a plan.
HANDFUL = (
    "permutations-swapped", "driver-drops-names", "minus-zero-is-zero", "parameters-ignored", "print-is-dead", "epsilon-lost",
    "yields-swapped", "contents-lost-at-binding", "operands-reversed", "sides-swapped", "consumer-dropped",
    "overwrites-what-is-read-later", "weights-of-another-kernel", "columns-of-halo-left",
)  # fmt: skip


def run(*words: str, script: str = "") -> tuple[int, str]:
    """The tool, in a process without the project in it: mutants are applied when modules are imported."""
    command = [sys.executable, "-c", script] if script else [sys.executable, str(TOOLS / "mutants.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TOOLS)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_list() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 40
    assert {"simplify", "fold", "ln-cse", "ln-dce", "fold-batchnorm", "hoist", "expand", "subgraph", "combine", "bind", "schedule",
            "plan"} <= {m.pass_name for m in MUTANTS}  # fmt: skip
    status, text = run("--list")
    assert status == 0 and len(text.splitlines()) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_up_to_date(mutant) -> None:
    """The text that a mutant changes stands in the sources: whoever rewrites that code says what would be wrong now."""
    assert mutated(mutant.edits)


def test_handful_is_caught() -> None:
    status, text = run("--only", ",".join(HANDFUL))
    assert (status, text.splitlines()[-1]) == (0, f"{len(HANDFUL)} mutants: {len(HANDFUL)} caught"), text


@pytest.mark.slow
def test_all_are_caught() -> None:
    status, text = run()
    assert (status, text.splitlines()[-1]) == (0, f"{len(MUTANTS)} mutants: {len(MUTANTS)} caught"), text


def test_what_is_not_caught_is_told_apart() -> None:
    """A mutant that changes nothing survives, one that crashes or does not verify is none, one that another is blamed for
    is misnamed, and a network on which the project itself is wrong proves nothing."""
    script = r"""
import sys
from dataclasses import replace
import mutants
from mutations.mutant import Edit
one = next(m for m in mutants.MUTANTS if m.name == "outer-start-alone")
file, old = one.edits[0].file, one.edits[0].old
sound = replace(one.edits[0], new=old.replace("inner.start + op.start", "op.start + inner.start"))
crash = replace(one.edits[0], new=old.replace("inner.start + op.start", "op.nothing"))
longer = replace(one.edits[0], new=old.replace('"len": op.len', '"len": op.len + 1'))
mutants.MUTANTS = (
    replace(one, name="sound", edits=(sound,)),
    replace(one, name="crash", edits=(crash,)),
    replace(one, name="longer", edits=(longer,)),
    replace(one, name="other", pattern="slice_of_concat"),
    replace(one, name="stale", edits=(replace(one.edits[0], old="nowhere"),)),
    replace(one, name="broken", network="func.return %x : tensor<4xf32>"),
)
sys.exit(mutants.main([]))
"""
    status, text = run(script=script)
    verdicts = dict(
        re.findall(r"^(\w+) +simplify, \w+ +(survives|invalid|misnamed|caught|fails without) ", text, re.MULTILINE)
    )
    assert status == 1 and verdicts == {
        "sound": "survives", "crash": "invalid", "longer": "invalid", "other": "misnamed", "stale": "invalid",
        "broken": "fails without",
    }, text  # fmt: skip


def test_unknown_name() -> None:
    done = subprocess.run(
        [sys.executable, "mutants.py", "--only", "no-such"], capture_output=True, text=True, cwd=TOOLS
    )
    assert done.returncode == 1 and done.stderr == "no mutant is called 'no-such'; --list shows all\n"
