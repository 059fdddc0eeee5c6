"""The elements of a tensor that those of a rearrangement of it are, as far as dims are products of *factors*.

    [2, T, 64] -> reshape [2, 1, T, 64] -> expand [2, 4, T, 64] -> reshape [8, T, 64] -> transpose [8, 64, T]

has axes of the factors (2, 4 that repeats), (64) and (T) of a tensor of the factors 2, T, 64. A reshape whose dims cut
through a factor splits it. Dims that a call decides are factors like others. Imports `ir` and `ln` ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.move import Reshape, Transpose
from lightnet.dialects.ln.rearrange import Expand
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import Dim, Size


@dataclass(frozen=True, eq=False)
class Factor:
    """A factor of a dim: it counts steps along its source, or repeats what is there."""

    size: Size
    repeats: bool = False


@dataclass(frozen=True)
class Rearranged:
    """A rearrangement of `source`: its elements in row-major order are counted by the factors of `order`, those of the
    rearrangement by the factors of each of its `axes`. No factor is 1."""

    source: SSAValue
    order: tuple[Factor, ...]
    axes: tuple[tuple[Factor, ...], ...]


def rearranged(value: SSAValue) -> Rearranged | None:
    """The rearrangement that a value is, by the ops that only move elements, as far up as there are such; None where a
    dim is 0, or is no product of factors."""
    chain: list[LnOp] = []
    while isinstance(op := value.owner, Reshape | Transpose | Expand):
        chain.append(op)
        value = op.src
    dims = spec_of(value.type).dims
    if 0 in dims:
        return None
    axes = [[] if d == 1 else [Factor(d)] for d in dims]
    order = [f for axis in axes for f in axis]
    for op in reversed(chain):
        wanted = op.result_specs[0].dims
        if isinstance(op, Transpose):
            axes = [axes[a] for a in op.axes]
        elif isinstance(op, Expand):
            axes = _expanded(axes, op.operand_specs[0].dims, wanted)
        else:
            flat = [f for axis in axes for f in axis]
            if (found := _regrouped(flat, wanted)) is None:
                return None
            axes, parts = found
            order = [part for f in order for part in parts[f]]
    return Rearranged(value, tuple(order), tuple(map(tuple, axes)))


def _expanded(axes: list[list[Factor]], old: Sequence[Size], new: Sequence[Size]) -> list[list[Factor]]:
    """The axes behind an expansion of dims to others."""
    before = len(new) - len(old)
    found = [[] if n == 1 else [Factor(n, True)] for n in new[:before]]
    for axis, n, m in zip(axes, old, new[before:]):
        found.append(axis if n == m else [Factor(m, True)])
    return found


def _regrouped(
    flat: Sequence[Factor], dims: Sequence[Size]
) -> tuple[list[list[Factor]], dict[Factor, list[Factor]]] | None:
    """The factors of each dim of a reshape, and those that factors were cut into; None where dims are no products."""
    rest, axes = [(f, f) for f in reversed(flat)], []  # with the factor that each is a part of
    parts: dict[Factor, list[Factor]] = {f: [] for f in flat}
    for dim in dims:
        axis: list[Factor] = []
        made: Size = 1
        while made != dim:
            if not rest:
                return None
            factor, whole = rest.pop()
            if (inner := _inner(made, factor.size, dim)) is not None:
                rest.append((Factor(inner, factor.repeats), whole))
                factor = Factor(factor.size // inner, factor.repeats)
            axis.append(factor)
            parts[whole].append(factor)
            made = made * factor.size
        axes.append(axis)
    return None if rest else (axes, parts)


def _inner(made: Size, size: Size, dim: Size) -> int | None:
    """The inner part of a factor that is too large for the rest of a dim; None where it fits, or cannot be cut."""
    if isinstance(made, Dim) or isinstance(size, Dim) or isinstance(dim, Dim) or made * size <= dim:
        return None
    wanted, left = divmod(dim, made)
    return size // wanted if not left and wanted > 1 and size % wanted == 0 else None


def sizes(factors: Iterable[Factor]) -> tuple[Size, ...]:
    """The sizes of factors."""
    return tuple(f.size for f in factors)


def product(factors: Iterable[Factor]) -> Size:
    """The dim that factors make."""
    return prod(sizes(factors), start=1)
