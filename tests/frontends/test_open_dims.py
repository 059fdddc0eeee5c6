"""What an op teaches of open dims: facts under which it holds, or none, whatever it asked about."""

from __future__ import annotations

from functools import partial

import violations as v

from lightnet.diagnostics import LightNetError
from lightnet.frontends.open_dims import equal, facts_of_least, learnt
from lightnet.ir.constraints import check_op
from lightnet.ir.instances import changed_value
from lightnet.runtime.dims import Undecided, least, symbol, with_sizes

A, B = symbol("a", 1, 64), symbol("b", 1, 64)
#: Sizes that a call decides: of one symbol and of two, with outcomes that the range of a symbol says, and without.
SIZES = (A, A * 2, A + B, A * B, A * A, A // 3 + 1)


def test_what_an_op_teaches_holds() -> None:
    """Each op with each of its lengths open: the facts that are learnt make it right, else nothing is learnt."""
    held = nothing = 0
    for optype, cls in v.OPS.items():
        base = v.bases(cls)[0]
        for i, spec in enumerate(base.specs):
            for axis in range(len(spec.dims)):
                for size in SIZES:
                    specs = list(base.specs)
                    specs[i] = spec._replace(dims=(*spec.dims[:axis], size, *spec.dims[axis + 1 :]))
                    try:
                        check_op(cls, specs, dict(base.params))
                        continue
                    except (Undecided, LightNetError) as e:
                        facts = learnt(cls, specs, dict(base.params), e)
                    if facts is None:
                        nothing += 1
                        continue
                    held += 1
                    specs = [s._replace(dims=tuple(with_sizes(d, facts) for d in s.dims)) for s in specs]
                    params = {k: changed_value(p, partial(with_sizes, by=facts)) for k, p in base.params}
                    assert facts, optype
                    check_op(cls, specs, params)
    assert held > 100 and nothing > 100


def test_facts_decide_what_they_are_of() -> None:
    for size in SIZES:
        for number in (-1, 0, 1, 2, 5, 63, 64, 65, 5000):
            if (facts := facts_of_least(size - number)) is not None:
                assert least(with_sizes(size - number, facts)) >= 0, (size, number, facts)
            if (facts := equal(size - number)) is not None:
                assert with_sizes(size - number, facts) == 0, (size, number, facts)
