"""One kernel of a compiled network alone: on the operands that it really gets, does it compute what the references of
its ops do?

That tells a fault of the generated code from one of a rewrite, a weight or an earlier kernel, and finds the op inside
of a fused kernel at which NaN begins. Imports steps and arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass
from lightnet.ir.kernel import KernelOp
from lightnet.ir.names import tensor_names
from lightnet.ir.op import LnOp
from lightnet_debug.arrays import ArrayDifference, difference
from lightnet_debug.steps import specialized, stepper
from lightnet_debug.tensors import is_finite


@dataclass(frozen=True)
class Alone:
    """A kernel on its own operands: how its compiled results differ from those of the references of its ops, and the
    first of its ops (None: there is none) that makes NaN or infinity of finite operands, by the references."""

    kernel: KernelOp
    differences: tuple[ArrayDifference, ...]
    non_finite: LnOp | None

    @property
    def agrees(self) -> bool:
        """True if the compiled code computes what the ops of the kernel mean."""
        return all(d.agrees for d in self.differences)


def alone(
    executable: Any, feeds: Mapping[str, Any] | None, name: str, rtol: float = 1e-4, atol: float | None = None
) -> Alone | None:
    """The kernel that makes the tensor `name`, on the operands that it gets in a run on `feeds`. None where no kernel
    of compiled code makes it. Raises `LightNetError` as a call does."""
    executable, feeds = specialized(executable, feeds)
    if not executable.is_native:
        return None
    walk = stepper(executable, feeds)
    for step in walk.steps:
        kernel = step.op if isinstance(step.op, KernelOp) and name in tensor_names(step.op) else None
        operands = [walk.read(v) for v in kernel.operands] if kernel is not None else []  # it may overwrite them
        for run in walk.calls(step):
            run()
        if kernel is not None:
            got = [walk.read(r) for r in kernel.results]
            return _checked(kernel, operands, got, rtol, atol)
    return None


def _checked(
    kernel: KernelOp, operands: list[np.ndarray], got: list[np.ndarray], rtol: float, atol: float | None
) -> Alone:
    values: dict[SSAValue, np.ndarray] = dict(zip(kernel.body.args, operands))
    first: LnOp | None = None
    for op in kernel.ops:
        read = [values[v] for v in op.operands]
        made = op.evaluate(read)
        if first is None and not all(map(is_finite, made)) and all(map(is_finite, read)):
            first = op
        values.update(zip(op.results, made))
    want = [values[v] for v in kernel.terminator.operands]
    return Alone(kernel, tuple(difference(a, b, rtol, atol) for a, b in zip(got, want)), first)
