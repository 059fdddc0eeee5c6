"""The builder of networks (`frontends/graph.py`) without a model: what is known when a network is read, of every op."""

from __future__ import annotations

import numpy as np
import pytest
from empty_ops import OPS

from lightnet.frontends.graph import NOT_FOLDED, Graph, Value


def smallest(optype: str) -> tuple[list[np.ndarray], dict]:
    """Operands and parameters of the sample of an op that has the fewest elements, but some."""
    cls, found = OPS[optype], []
    for sample in cls.samples():
        case = cls.schema.resolve(sample)
        fields = [(case.tensors[f.name] if f.variadic else (case.tensors[f.name],)) for f in cls.schema.operands]
        specs = [s for value in fields for s in value]
        found.append((min(s.len for s in specs) == 0, sum(s.len for s in specs), len(found), specs, dict(case.params)))
    *_, specs, params = min(found)
    fields, names = cls.schema.operand_fields(len(specs)), cls.schema.operand_names(len(specs))
    tensors = dict(zip(names, specs))
    return [cls.sample_data(n, f.kind, s, tensors, params, 1) for n, f, s in zip(names, fields, specs)], params


def results_of(g: Graph, optype: str, operands: list[Value], params: dict) -> tuple[Value, ...]:
    found = g.op(optype, *operands, **params)
    return found if isinstance(found, tuple) else (found,)


def test_what_is_known_of_a_result_is_nobodys_to_change() -> None:
    """Constants are shared: by every op that reads them, and by the module that spells them. They are no view of each other."""
    folded = set()
    for optype in OPS:
        arrays, params = smallest(optype)
        g = Graph("n")
        operands = [g.constant(a) for a in arrays]
        before = [v.known.copy() for v in operands]
        results = results_of(g, optype, operands, params)
        assert {v.is_known for v in results} == {optype not in NOT_FOLDED}, optype
        for value in results if optype not in NOT_FOLDED else ():
            folded.add(optype)
            assert value.known.shape == value.dims and value.known.dtype == value.dtype.np, optype
            assert not any(np.shares_memory(value.known, v.known) for v in operands), optype
            with pytest.raises(ValueError, match="read-only"):
                value.known[...] = 0
        for value, old in zip(operands, before):
            assert not value.known.flags.writeable and value.known.tobytes() == old.tobytes(), optype
    assert folded == set(OPS) - NOT_FOLDED


def test_a_constant_is_a_copy_that_is_nobodys_to_change() -> None:
    g, mine = Graph("n"), np.arange(6, dtype=np.float32).reshape(2, 3)
    made = [
        g.constant(mine),
        g.table((2, 3), "f32", lambda: np.ones((2, 3))),
        g.scalar(1.5, "f32"),
        g.constant(mine, "f64"),
    ]
    mine[:] = 7
    for value in made:
        assert not value.known.flags.writeable and 7 not in value.known
