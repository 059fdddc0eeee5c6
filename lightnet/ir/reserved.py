"""Tensors that can grow where they are: the layout with memory for more elements along an axis, and which results are
an operand that has grown.

A decoder takes its keys and values of the tokens before, and gives them back with those of the token that it was
called on. Where both lie in memory for the most that there may be, at the same places, nothing has to be copied: the op
that joins them (`LnOp.extends`) writes what is new. Imports layouts, kernels and the op base.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.dataclasses import dataclass
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import greatest

_TOKEN = re.compile(r"r(\d{1,2})x([1-9]\d{0,17})")


@dataclass(frozen=True)
class Reserved(Layout):
    """A tensor at the front of a larger row-major one, which is `most` elements long along `axis`, however long the
    tensor is. What lies behind it is for nobody to read or write. Token: ``r2x512``."""

    axis: int = 0
    most: int = 1

    @classmethod
    def of(cls, token: str) -> Reserved | None:
        """The layout that a token names, None where it names none of these."""
        match = _TOKEN.fullmatch(token)
        return None if match is None else cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"r{self.axis}x{self.most}"

    def fits(self, dims: Sequence[int]) -> bool:
        return self.axis < len(dims) and greatest(dims[self.axis]) <= self.most

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        return (*dims[: self.axis], self.most, *dims[self.axis + 1 :])

    def pack_parts(self, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
        memory[tuple(map(slice, array.shape))] = array
        yield array.nbytes

    def unpack(self, memory: np.ndarray, dims: Sequence[int]) -> np.ndarray:
        return np.ascontiguousarray(memory[tuple(map(slice, dims))])


def row_major_dims(type: Attribute) -> tuple[int, ...]:
    """The dims of the row-major memory at whose front a tensor lies: its own, or those with what is reserved."""
    layout, dims = layout_of(type), spec_of(type).dims
    return layout.physical_dims(dims) if isinstance(layout, Reserved) else dims


def grown(op: Operation) -> list[tuple[int, int]]:
    """The (operand, result) pairs of an op, or of a kernel of one op, where the result is the operand at the same
    subscripts, and in the same memory, with more elements behind it along the axis that this is reserved along."""
    inner = op.ops[0] if isinstance(op, KernelOp) and len(op.ops) == 1 else op
    if not isinstance(inner, LnOp) or not inner.extends:
        return []
    old, new = inner.operands[0], inner.results[0]
    if not _grows(old, new) or old in inner.operands[1:]:
        return []
    if inner is op:
        return [(0, 0)]
    assert isinstance(op, KernelOp)
    k = list(op.body.args).index(old)  # type: ignore[arg-type]  # one op reads arguments alone
    alone = list(op.operands).count(op.operands[k]) == 1
    return [(k, j) for j, value in enumerate(op.terminator.operands) if value is new] if alone else []


def _grows(old: SSAValue, new: SSAValue) -> bool:
    layout = layout_of(old.type)
    if not isinstance(layout, Reserved) or layout_of(new.type) != layout:
        return False
    return row_major_dims(old.type) == row_major_dims(new.type)
