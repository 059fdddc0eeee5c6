"""What an op teaches of open dims: facts under which it holds, or none, whatever it asked about."""

from __future__ import annotations

from functools import partial

import violations as v

from lightnet.diagnostics import LightNetError
from lightnet.frontends.open_dims import equal, facts_of_least, learnt
from lightnet.ir.constraints import check_op
from lightnet.ir.instances import changed_value
from lightnet.runtime.dims import Undecided, greatest, least, symbol, with_sizes

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


def test_no_fact_is_stronger_than_the_op_needs() -> None:
    """Each sample of each op with each number among its dims open from 1 to 40: where the op takes all numbers of a range, and no others, so do the
    facts; where it takes others (one that broadcasts, multiples), they leave some of those."""
    ranges = others = 0
    too_strong = []
    for optype, cls in v.OPS.items():
        for sample in {repr((s.tensors, s.params)): s for s in cls.samples()}.values():
            case = cls.schema.resolve(sample)
            given = [case.tensors.get(field.name) for field in cls.schema.operands]
            specs = [s for field, x in zip(cls.schema.operands, given) for s in (x if field.variadic else (x,))]
            for i, axis in ((i, axis) for i, s in enumerate(specs) for axis in range(s.ndim)):

                def of(size, i=i, axis=axis, specs=specs):
                    return [
                        s._replace(dims=(*s.dims[:axis], size, *s.dims[axis + 1 :])) if k == i else s
                        for k, s in enumerate(specs)
                    ]

                def right(size, of=of, cls=cls, case=case):
                    try:
                        check_op(cls, of(size), dict(case.params))
                    except LightNetError:
                        return False
                    return True

                n = symbol("n", 1, 40)
                try:
                    check_op(cls, of(n), dict(case.params))
                    continue
                except (Undecided, LightNetError) as e:
                    facts = learnt(cls, of(n), dict(case.params), e)
                if facts is None:
                    continue
                taken = [k for k in range(1, 41) if right(k)]
                left = facts.get("n", n)
                kept = [
                    k
                    for k in range(1, 41)
                    if least(left) <= k <= greatest(left) and (k - least(left)) % _step(left) == 0
                ]
                assert set(kept) <= set(taken) and kept, (optype, specs, i, axis, facts, taken)
                if len(taken) > 2 and taken == list(range(taken[0], taken[-1] + 1)):
                    ranges += 1
                    if kept != taken:
                        too_strong.append((optype, str(specs[i]), axis, str(left), taken[0], taken[-1]))
                else:
                    others += 1
    assert too_strong == [] and ranges > 100 and others > 20


def _step(size) -> int:
    return next(iter(size.symbols)).multiple if not isinstance(size, int) else 1
