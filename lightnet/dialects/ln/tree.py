"""Decision trees: `tree_step`, a step from each node to a child. As many of them as the deepest tree is deep lead to
the leaves."""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.indexing import in_range
from lightnet.ir.op import LnOp, case, ln_op, operand, result
from lightnet.runtime.initial import sample


@ln_op
class TreeStep(LnOp):
    """From nodes `node` [N, T] of trees to a child of each: ``child[k]`` of node k where
    ``x[n, feature[k]] <= threshold[k]``, else the one behind it (so for NaN). All trees' nodes stand in one list,
    tables of M elements; a leaf has itself as its child, and a condition that always holds. An index outside of its
    axis is clamped.

    ```mlir
    // %x : tensor<8x4xf32>, %node : tensor<8x3xi32>, %feature : tensor<20xi32>, %threshold : tensor<20xf32>
    // %child : tensor<20xi32>
    %y = ln.tree_step %x, %node, %feature, %threshold, %child : tensor<8x3xi32>
    ```
    """

    optype = "tree_step"
    x = operand(rank=2, dtypes=("f32", "f64"))
    node = operand(kind="index", rank=2, dtypes=("i32",))
    feature = operand(kind="index", rank=1, dtypes=("i32",))
    threshold = operand(same_type="x", same_shape="feature")
    child = operand(kind="index", same_type="node", same_shape="feature")
    dst = result(dims="node.dims", dtype="node")
    checks = {"rows": "x.dims[0] == node.dims[0]", "elements": "feature.dims[0] > 0 && x.dims[1] > 0"}
    definition = "dst[n, t] = child[node[n, t]] + (x[n, feature[node[n, t]]] <= threshold[node[n, t]] ? 0 : 1)"

    def reference(self, x, node, feature, threshold, child):
        k = in_range(node, len(child))
        value = np.take_along_axis(x, in_range(feature[k], x.shape[1]), 1) if k.size else np.zeros(k.shape, x.dtype)
        return (child[k] + ~(value <= threshold[k])).astype(np.int32)

    def flops(self):
        return self.operand_specs[1].len

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if kind != "index":
            return super().sample_data(name, kind, spec, tensors, params, seed)
        limit = (
            tensors["x"].dims[1]
            if spec.dims == tensors["feature"].dims and "feature" in name
            else tensors["feature"].dims[0]
        )
        return sample(name, "index", spec.dims, spec.dtype, seed=seed, bound=max(limit - 1, 1))

    @classmethod
    def samples(cls):
        def of(n: int, f: int, t: int, m: int, kind: str = "f32"):
            return case(
                kind, x=(n, f), node=((n, t), "i32"), feature=((m,), "i32"), threshold=(m,), child=((m,), "i32")
            )

        return [
            of(8, 4, 3, 20),
            of(1, 5, 33, 100),
            of(40, 3, 1, 7),
            of(6, 2, 4, 9, "f64"),
            of(0, 3, 2, 5),
            of(3, 3, 0, 5),
        ]
