"""Rules of ops that move elements (`rewrites`), against what they do to elements: all that differ, with every parameter on small tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME

OPS = optypes()
SHAPES = [(3,), (2, 3), (1, 3), (3, 1, 2), (1, 1, 1)]


def strided(dims: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    axes = [[(start, step, n) for start in range(d) for step in (-1, 1, 2) for n in range(d + 1)] for d in dims[:2]]
    for found in product(*axes):
        rest = dims[2:]
        starts, steps, lens = zip(*found)
        yield {"starts": (*starts, *(0 for _ in rest)), "steps": (*steps, *(1 for _ in rest)), "lens": (*lens, *rest)}


#: Parameters that are tried of each op.
PARAMS = {
    "strided_slice": strided,
    "slice": lambda dims: (
        {"axis": k, "start": at, "len": n} for k, d in enumerate(dims) for at in range(d) for n in range(1, d + 1)
    ),
    "transpose": lambda dims: ({"axes": axes} for axes in permutations(range(len(dims)))),
    "reshape": lambda dims: ({"dims": other} for other in {*permutations(dims), (int(np.prod(dims)),)}),
    "tile": lambda dims: ({"repeats": times} for times in product((1, 2), repeat=len(dims))),
    "expand": lambda dims: ({"dims": tuple(d if d > 1 else n for d in dims)} for n in (1, 2)),
    "pad": lambda dims: (
        {"before": given[: len(dims)], "after": given[len(dims) :]} for given in product((0, 1), repeat=2 * len(dims))
    ),
}


def settled(op: LnOp) -> SSAValue:
    """The value of an op once its rules do not apply any more."""
    value: SSAValue = op.results[0]
    for _ in range(8):
        if not isinstance(value.owner, LnOp):
            return value
        found = next((new for r in value.owner.rewrites if (new := r.apply(value.owner)) is not None), None)
        if found is None:
            return value
        value = found.results[0] if isinstance(found, Operation) else found
    raise AssertionError(f"{op}: its rules do not settle")


def elements(value: SSAValue, x: np.ndarray) -> np.ndarray:
    """A value, where `x` is the argument that it follows from."""
    if not isinstance(value.owner, LnOp):
        return x
    return value.owner.evaluate([elements(operand, x) for operand in value.owner.operands])[0]


@pytest.mark.parametrize("name", PARAMS)
def test_rules_of_moves(name: str) -> None:
    """They keep every element, and an op that moves none is its operand: no kernel copies what nobody changed."""
    same = 0
    for dims in SHAPES:
        x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
        for params in PARAMS[name](dims):
            block = Block(arg_types=[tensor_type(TensorSpec(dims, BY_NAME["f32"]))])
            try:
                op = OPS[name].make([block.args[0]], params)
            except LightNetError:
                continue
            (want,), value = op.evaluate([x]), settled(op)
            np.testing.assert_array_equal(elements(value, x), want)
            if is_same := want.shape == x.shape and bool((want == x).all()):
                assert value is block.args[0], (dims, params)
            same += is_same
    assert same >= len(SHAPES)
