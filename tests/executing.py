"""Executing modules before and after a pass: the oracle of the pass tests is NumPy, by each op's reference."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.backends.interpreter.graph import feedable_ops, run
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.runtime.initial import sample


def feeds_of(module: ModuleOp, seed: int = 0) -> dict[str, np.ndarray]:
    """Test data for every input and param, drawn by tensor name and by what the first op does with it; so weights are
    scaled, variances positive, and indices in range. Every source must have a name."""
    feeds = {}
    for op in feedable_ops(module):
        (name,) = op.tensor_names
        assert name is not None, "a source without a name cannot be fed"
        spec = spec_of(op.results[0].type)
        kind = next(kinds(op.results[0]), "data")
        feeds[name] = sample(name, kind, spec.dims, spec.dtype, seed)
    return feeds


def kinds(value: SSAValue) -> Iterator[str]:
    """How the ops that read a value declare it, in kernels too."""
    for use in value.uses:
        if isinstance(use.operation, LnOp):
            yield use.operation.schema.operand_fields(len(use.operation.operands))[use.index].kind
        elif isinstance(use.operation, KernelOp):
            yield from kinds(use.operation.body.args[use.index])


def run_graph(module: ModuleOp, feeds: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str]:
    """The outputs by name, and what was printed. Data for sources that the module does not have (any more) is ignored."""
    known = {op.tensor_names[0] for op in feedable_ops(module)}
    printed = io.StringIO()
    outputs = run(module, {k: v for k, v in feeds.items() if k in known}, stream=printed)
    return outputs, printed.getvalue()


def assert_equal(before: tuple[dict, str], after: tuple[dict, str], rounding: float = 0.0) -> None:
    """Same names in the same order, same prints, same values: bit for bit, or within `rounding` of the largest."""
    assert list(before[0]) == list(after[0])
    assert before[1] == after[1]
    for name, old in before[0].items():
        new = after[0][name]
        assert (old.shape, old.dtype) == (new.shape, new.dtype), name
        assert np.isfinite(old.astype(np.float64)).all(), f"{name}: a comparison of NaN with NaN proves nothing"
        if rounding == 0 or old.dtype.kind != "f":
            assert old.tobytes() == new.tobytes(), name
        else:
            assert np.abs(old - new).max() <= rounding * max(np.abs(old).max(), 1e-30), name
