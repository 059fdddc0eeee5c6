"""Checks of an op's declaration: what a message says is what the check takes."""

from __future__ import annotations

import re

import violations as v

from lightnet.ir.constraints import ConstraintError, check_op
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME

COUNTS = range(8)


def test_the_number_of_operands_that_an_op_says_it_needs_is_what_it_takes() -> None:
    """Each op, with 0 to 7 operands: either those numbers are taken that the messages about the others say, or more."""
    kinds = set()
    for optype, cls in v.OPS.items():
        base = v.bases(cls)[0]
        specs = [*base.specs, *[base.specs[-1] if base.specs else TensorSpec((1,), BY_NAME["f32"])] * len(COUNTS)]
        taken, said = [], set()
        for count in COUNTS:
            try:
                check_op(cls, specs[:count], dict(base.params), "it")
                taken.append(count)
            except ConstraintError as e:
                if e.label != f"{optype}.operand-count":
                    taken.append(count)
                    continue
                found = re.search(r" needs (at least )?(\d+) input tensors, but gets (\d+)$", e.message)
                assert found is not None and int(found[3]) == count, e.message
                said.add((bool(found[1]), int(found[2])))
        ((is_least, number),) = said
        assert taken == (list(COUNTS[number:]) if is_least else [number]), f"{optype}: {said}"
        assert len(base.specs) in taken
        kinds.add(is_least)
    assert kinds == {False, True}
