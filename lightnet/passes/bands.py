"""`bands`: chains of kernels that run in bands of rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir import budget, rewrites
from lightnet.ir.body import Body, build_body, replace_kernels
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Request, Target, get_target
from lightnet.passes.graph import graphs
from lightnet.passes.layout import follow, set_layout


@dataclass(frozen=True)
class BandsPass(LnPass):
    """Make one kernel of a chain of kernels where the target says that the maps in between are better never stored as a
    whole.

    ```mlir
    %e = cpu.kernel(%x_ = %x, ...) { conv2d 1x1, clip }                %y = cpu.kernel(%x_ = %x, ...) {
    %d = cpu.kernel(%e_ = %e, ...) { conv2d 3x3, depthwise, clip }  ->   conv2d 1x1, clip, conv2d 3x3, depthwise, clip,
    %y = cpu.kernel(%d_ = %d, ...) { conv2d 1x1 }                        conv2d 1x1 }
    ```

    Such a kernel works in bands of rows of its result, so that what it computes on the way stays in the cache. On the
    CPU these are inverted residuals and depthwise-separable convolutions on blocked maps, a first convolution before
    them or before a pool included: the pass stands behind `layout`. Whether it pays depends on `features` and
    `threads`, as in `choose`. `defuse` takes the kernel apart again.
    """

    name = "bands"
    level = "kernels"
    target: str = "cpu"
    features: str = ""
    threads: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        request = Request(self.features, self.threads)
        for block in graphs(op):
            for kernel in budget.within(list(block.ops)):
                if isinstance(kernel, KernelOp) and kernel.parent is block:
                    chain = target.chain(kernel, request)
                    if len(chain) > 1 and (step := rewrites.begin("bands", chain[::-1])) is not None:
                        step.done([_merge(chain, target)])


def _merge(chain: list[KernelOp], target: Target) -> KernelOp:
    """One kernel of several, in the place of the last. The values in between are no longer stored, so their layouts
    go."""
    body, last = Body.of(chain[0]), chain[-1]
    for before, kernel in pairwise(chain):
        body = Body.union(body, before.results, Body.of(kernel))
    kernel = build_body(body, target.kernel_op)
    for op in kernel.ops:
        for result in op.results:
            set_layout(result, PLAIN)
    for old, new in zip(last.results, kernel.results):
        new._type = old.type
    replace_kernels(chain, kernel)
    follow(kernel)
    return kernel
