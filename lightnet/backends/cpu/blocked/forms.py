"""The bodies that most generators of blocked maps take: elementwise ops, behind an anchor (a convolution, a pool) or
alone, and what these need.

Imports the epilogue and layouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from xdsl.ir import SSAValue

from lightnet.backends.cpu.blocked.base import NO_HALO
from lightnet.backends.expressions import IN_REGISTERS, ON_TILES, runs_on_tiles
from lightnet.ir.body import epilogue_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import MAX_HALO, Blocked, Layout, Packed, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import TensorSpec, spec_of

#: What most anchors give.
FLOAT_SUMS = frozenset(("f32",))


def convolution_form(ops: Sequence[LnOp], yielded: Sequence[SSAValue], kind: type[LnOp],
                     halo_of: Callable[[Any], Halo | Refusal],
                     sums: Collection[str] = FLOAT_SUMS) -> Form | Refusal:  # fmt: skip
    """The form of a body that is a convolution (an op of `kind` with operands src, weight and perhaps a bias) and an
    epilogue, see `epilogue_form`. `halo_of` says with how much halo the convolution reads its map, or refuses."""
    if not ops or not isinstance(ops[0], kind):
        return begins_otherwise(ops, f"a {kind.optype}")
    conv, (src, weight, *bias) = ops[0], ops[0].operands
    if conv.operand_specs[0].len == 0 or conv.result_specs[0].len == 0:
        return Refusal("there are no pixels or no channels")
    halo = halo_of(conv)
    if isinstance(halo, Refusal):
        return halo
    if max(halo) > MAX_HALO:
        return Refusal("it reads its map with a halo of {}, and maps have at most {}", max(halo), MAX_HALO)
    return epilogue_form(conv, ops[1:], yielded, {src: halo}, [weight], bias, sums)


def epilogue_form(anchor: LnOp, rest: Sequence[LnOp], yielded: Sequence[SSAValue], halos: Mapping[SSAValue, Halo],
                  weights: Sequence[SSAValue] = (), vectors: Sequence[SSAValue] = (),
                  sums: Collection[str] = FLOAT_SUMS) -> Form | Refusal:  # fmt: skip
    """The form of a body that is `anchor`, with a result of one of the types `sums`, and elementwise ops `rest` on it,
    of `ON_TILES` and of its shape [N, C, H, W]; `halos` has the maps that the anchor reads, `weights` what it wants
    packed in a way of its own, `vectors` its vectors by channel. Operands of the epilogue that have the result's shape
    and [N, C, 1, 1] are maps; vectors by channel are packed as ``v16``, so they must be static; scalars stay plain."""
    reads = Counter(v for op in (anchor, *rest) for v in op.operands)
    alone = {v for v in anchor.operands if v not in halos and v not in vectors}
    if any(reads[v] > 1 for v in alone.union(weights)):
        return Refusal("its weights are read by other ops, too, and lie in memory in one way only")
    form = elementwise_form(anchor.result_specs[0], rest, yielded, halos, (*weights, *vectors), anchor.results, sums)
    epilogue = epilogue_of([anchor, *rest], lambda op: True)
    return epilogue if isinstance(epilogue, Refusal) else form


def elementwise_form(shape: TensorSpec, ops: Sequence[LnOp], yielded: Sequence[SSAValue],
                     halos: Mapping[SSAValue, Halo], weights: Sequence[SSAValue] = (),
                     given: Sequence[SSAValue] = (), sums: Collection[str] = FLOAT_SUMS) -> Form | Refusal:  # fmt: skip
    """The form of elementwise ops with results like `shape`, [N, C, H, W], of one of the types `sums`, on the values
    `given`, which are in registers, and on others; see `epilogue_form`."""
    if shape.dtype.name not in sums or shape.ndim != 4 or shape.len == 0:
        return Refusal("its result is {}, not [N, C, H, W] of {}", shape, " or ".join(sorted(sums)))
    inside, maps, packed = set(given), dict(halos), set(weights)
    for op in ops:
        if [s.dims for s in op.result_specs] != [shape.dims]:
            return Refusal("{} has another shape than {}", op.optype, shape)
        if not (taken := runs_on_tiles(op, casts=True)):
            return Refusal("{}", taken)
        if (kind := op.result_specs[0].dtype.name) not in IN_REGISTERS:
            return Refusal("{} makes {}, which registers do not hold", op.optype, kind)
        for value in op.operands:
            dims = (spec := spec_of(value.type)).dims
            if value in inside:
                continue
            if spec.dtype.name not in ON_TILES:
                return Refusal("{} reads {}, which tiles do not hold", op.optype, spec.dtype)
            if dims == shape.dims or (len(dims) == 4 and spec.len > 1 and dims[1:] == (shape.dims[1], 1, 1)):
                maps.setdefault(value, NO_HALO)
            elif all(d == 1 for d in dims):
                continue
            elif len(dims) < 4 and dims[0] == shape.dims[1] and all(d == 1 for d in dims[1:]):
                packed.add(value)
            else:
                return Refusal("{} reads a tensor {}, no map, no vector by channel and no scalar", op.optype, spec)
        inside |= set(op.results)
    stored = all(spec_of(v.type).dtype.name in ON_TILES for v in yielded) and inside >= set(yielded)
    return Form(maps, frozenset(packed)) if stored else Refusal("it yields what its ops do not make, or tiles have not")


def lies_right(form: Form, inputs: Sequence[SSAValue], results: Sequence[SSAValue], lanes: int) -> bool | Refusal:
    """Return whether the layouts of what a body reads (`inputs`, the values that `form` speaks of) and of what it makes
    are what a generator needs: all maps are in blocks of `lanes` channels, with halos that are wide enough, tied ones
    in one layout, and what is neither a map nor weights is plain.
    """

    def is_map(layout: Layout) -> TypeGuard[Blocked]:
        return isinstance(layout, Blocked) and layout.block == lanes

    def ok(value: SSAValue) -> bool:
        layout = layout_of(value.type)
        if value not in form.maps:
            return layout.is_plain or (value in form.weights and isinstance(layout, Packed))
        halo = form.maps[value]
        return is_map(layout) and layout.halo[0] >= halo[0] and layout.halo[1] >= halo[1]

    if form.tied and len({layout_of(v.type) for v in (*form.maps, *results)}) > 1:
        return Refusal("it has maps in several layouts, which have to be one")
    if not all(layout_of(v.type).is_plain if form.plain_results else is_map(layout_of(v.type)) for v in results):
        made = "row-major tensors" if form.plain_results else "maps in blocks of channels"
        return Refusal("it makes {}, and here results lie as {}", made, layout_of(results[0].type))
    odd = next((v for v in inputs if not ok(v)), None)
    return odd is None or Refusal("an operand lies as {}, and it reads it otherwise", layout_of(odd.type))


def keeps_zero(ops: Sequence[LnOp]) -> bool:
    """Return whether elementwise ops give 0 where everything they read is 0: then unused lanes, whose weights and
    biases are 0, stay 0.
    """
    inside = {r for op in ops for r in op.results}
    for op in ops:
        if any(s.len == 1 and v not in inside for s, v in zip(op.operand_specs, op.operands)):
            return False  # a scalar, which need not be 0
        zeros = [np.zeros(s.dims[:0] + (1,) * s.ndim, s.dtype.np) for s in op.operand_specs]
        with np.errstate(all="ignore"):
            found = op.reference(*zeros)
        found = found[0] if isinstance(found, tuple | list) else found
        if np.any(np.asarray(found) != 0):
            return False
    return True


def weight_layouts(
    kernel: KernelOp, form: Form, lanes: int, packed: Mapping[SSAValue, Layout] | None = None
) -> dict[int, Layout]:
    """The layouts of what a kernel wants packed, by operand number: one value a channel as vectors, and others as
    `packed` says."""
    number = kernel.number_of
    flat = {v: spec_of(v.type).dims for v in form.weights}
    vectors: dict[int, Layout] = {
        number(v): Packed("v", lanes) for v, dims in flat.items() if all(d == 1 for d in dims[1:])
    }
    return vectors | {number(v): layout for v, layout in (packed or {}).items()}
