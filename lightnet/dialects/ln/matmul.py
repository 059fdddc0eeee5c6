"""Matrix products: `matmul`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from lightnet.dialects.ln.factors import product, rearranged, sizes
from lightnet.dialects.ln.move import Reshape, Transpose
from lightnet.dialects.ln.numeric import SHORT, broadcast_dims, cases
from lightnet.dialects.ln.rules import rule
from lightnet.ir.op import LnOp, case, ln_op, operand, result
from lightnet.ir.types import MAX_RANK, TensorSpec


# a[.., g*r, m, :] x (b repeated r times along g) = reshape(reshape(a)[.., g, r*m, :] x b): heads of a group are rows
@rule("matmul")
def matmul_of_repeated(op):
    if (b := rearranged(op.b)) is None or len(b.order) > MAX_RANK:
        return None
    *batch, inner, columns = b.axes
    head = next((k for k, axis in enumerate(batch) if any(f.repeats for f in axis)), None)
    if head is None or any(f.repeats for f in (*inner, *columns)):
        return None
    own = [f for f in batch[head] if not f.repeats]
    repeated = batch[head][len(own) :]
    behind = len(batch) - head - 1  # of the axis of heads, before the matrices
    if not all(f.repeats for f in repeated) or any(batch[head + 1 :]):
        return None
    rows, out = op.operand_specs[0].dims, op.result_specs[0].dims
    if len(rows) < behind + 3:
        return None
    *outer, heads = rows[: len(rows) - 2 - behind]
    if heads != out[-3 - behind] or any(n != 1 for n in out[len(out) - 2 - behind : -2]) or 0 in (*rows, *out):
        return None
    ones = (1,) * behind
    moved = [f for axis in b.axes for f in axis if not f.repeats]
    flat = Reshape.make([b.source], {"dims": sizes(b.order)})
    turned = Transpose.make([flat.dst], {"axes": tuple(b.order.index(f) for f in moved)})
    dims = (*map(product, batch[:head]), product(own), *ones, product(inner), product(columns))
    once = Reshape.make([turned.dst], {"dims": dims})
    dims = (*outer, product(own), *ones, product(repeated) * rows[-2], rows[-1])
    grouped = Reshape.make([op.a], {"dims": dims})
    joined = Matmul.make([grouped.dst, once.dst], name=op.op_name)
    return [flat, turned, once, grouped, joined, Reshape.make([joined.dst], {"dims": out})]


@ln_op
class Matmul(LnOp):
    """Products of matrices: [..., M, K] x [..., K, N] = [..., M, N], where the dimensions before broadcast as NumPy's
    do.

    dst[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]. The maths are ONNX's MatMul, for operands of rank 2 or
    more.

    ```mlir
    // %a : tensor<4x3x8xf32>, %b : tensor<8x5xf32>
    %y = ln.matmul %a, %b : tensor<4x3x5xf32>
    ```
    """

    optype = "matmul"
    a = operand(min_rank=2)
    b = operand(min_rank=2, same_type="a")
    dst = result()
    checks = {"inner": "a.dims[a.ndim - 1] == b.dims[b.ndim - 2]", "number": 'a.dtype != dtype("TL_BOOL")'}
    rewrites = (matmul_of_repeated,)

    @classmethod
    def infer(cls, t, p):
        batch = broadcast_dims("matmul", [TensorSpec(spec.dims[:-2], spec.dtype) for spec in (t.a, t.b)])
        return [TensorSpec((*batch, t.a.dims[-2], t.b.dims[-1]), t.a.dtype)]

    @property
    def definition(self) -> str:
        """A dimension of 1 that is repeated has the constant index 0."""
        out = self.result_specs[0].dims[:-2]
        names = [f"x{k}" for k in range(len(out))]

        def batch(dims: Sequence[int]) -> str:
            own = names[len(names) - len(dims) :]
            return "".join(f"{'0' if d == 1 else name}, " for d, name in zip(dims, own))

        a, b = (batch(s.dims[:-2]) for s in self.operand_specs)
        return f"dst[{''.join(n + ', ' for n in names)}m, n] += a[{a}m, k] * b[{b}k, n]"

    def flops(self):
        return 2 * self.result_specs[0].len * self.operand_specs[0].dims[-1]

    def reference(self, a, b):
        wide = np.float64 if self.operand_specs[0].dtype.is_float else a.dtype
        return np.matmul(a.astype(wide), b.astype(wide)).astype(a.dtype)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        fan_in = spec.dims[-2] if name == "b" else 1
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        return (data / np.sqrt(max(fan_in, 1))).astype(data.dtype) if spec.dtype.is_float else data

    @classmethod
    def samples(cls):
        return [
            case(a=(3, 4), b=(4, 5)), case(a=(1, 1), b=(1, 1)), case(a=(1, 37), b=(37, 130)),
            case(a=(33, 17), b=(17, 1)),
            case(a=(50, 40), b=(40, 101)), case(a=(2, 3, 7, 9), b=(2, 3, 9, 19)), case(a=(2, 5, 6), b=(6, 33)),
            case(a=(7, 6), b=(3, 6, 20)), case(a=(2, 1, 5, 8), b=(3, 8, 16)), case(a=(5, 3), b=(3, 2)),
            case("f64", a=(9, 20), b=(20, 70)), case("i32", a=(5, 6), b=(6, 9)), case("i64", a=(2, 3, 4), b=(4, 3)),
            *cases({"a": (5, 24), "b": (24, 17)}, SHORT), case(a=(3, 0), b=(0, 4)),
        ]  # fmt: skip


def gemm_shape(op: LnOp) -> tuple[int, int, int, int]:
    """(batch, M, K, N) of the products to compute; where `b` is one matrix, all of `a` counts as its rows."""
    a, b = op.operand_specs
    m, n = op.result_specs[0].dims[-2:]
    batch = prod(op.result_specs[0].dims[:-2])
    return (1, batch * m, a.dims[-1], n) if prod(b.dims[:-2]) == 1 else (batch, m, a.dims[-1], n)
