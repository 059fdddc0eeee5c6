"""Texts with a mistake are answered as was recorded (`answers.py`): which error, where, in which words; what is still read is read as it was, and
networks of other sizes become the same loops. That
answers are good, the tests of each reader say."""

from __future__ import annotations

import json

import answers
import pytest

RECORDED = json.loads(answers.FILE.read_text("utf-8"))
MEANT = "where the change is meant, run python tests/answers.py"


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize(
    "form, part", [(f, k) for f, rows in RECORDED["texts"].items() for k in range(0, len(rows), answers.FORMS[f].part)]
)
def test_answers_are_those_recorded(form: str, part: int) -> None:
    rows = list(RECORDED["texts"][form].items())[part : part + answers.FORMS[form].part]
    assert {row: answers.answer(form, row) for row, _ in rows} == dict(rows), MEANT


@pytest.mark.parametrize("optype", sorted(answers.OPS))
def test_checks_of_ops_answer_as_recorded(optype: str) -> None:
    """Everything that is one step away from a sample of the op: the error, or the types of the results."""
    assert answers.op_answers(optype) == RECORDED["ops"][optype], MEANT


def test_no_program_is_refused() -> None:
    """Of networks that are right, but for those of which a call has to say more."""
    for row, answer in RECORDED["texts"]["programs"].items():
        assert answer.startswith("read as") or "it needs to know whether" in answer, f"{row}: {answer}"


def test_every_op_and_form_has_answers() -> None:
    assert RECORDED["texts"].keys() == answers.FORMS.keys() and RECORDED["ops"].keys() == answers.OPS.keys()
    for form, rows in RECORDED["texts"].items():
        refused = [a for a in rows.values() if not a.rpartition("\n")[2].startswith("read as")]
        assert len(refused) > 20 or form in ("documents", "programs"), f"{form}: {len(refused)}"
