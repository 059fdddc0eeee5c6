"""The target `tensorrt`: layers of TensorRT in `tensorrt.kernel`s, ops that it has not in kernels of cuda, of levels 1
to 3.

Which op becomes what says `ep_tensorrt.json`, LightNet's own description (its NOTICE: LICENSE.MIT.txt); `combine` joins
layers that follow each other into one engine. Values stand in the memory of the device, weights in the host's. There is
no TensorRT here: the planned network runs in the interpreter, by what the layers stand for.
"""

from __future__ import annotations

from functools import cache

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.source import Source
from lightnet.ir.body import Body, build_body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.memory import ARENA, HOST_SPACE, MTYPE, STATIC
from lightnet.ir.op import LnOp
from lightnet.ir.registry import KERNELS, TARGETS
from lightnet.ir.target import Space, Target
from lightnet.ir.types import spec_of
from lightnet_descriptions import Description
from lightnet_descriptions.arches import TensorrtKernelOp
from lightnet_descriptions.tensorrt.layers import is_layer

TABLE = Description("lightnet_descriptions.tensorrt:ep_tensorrt.json", "expand")


@cache
def _described() -> frozenset[type[LnOp]]:
    """The ops that the table has rules for."""
    return frozenset(pattern.rule.matcher.cls for pattern in TABLE.read())  # type: ignore[attr-defined]


class StaysWithCuda(RewritePattern):
    # op = the kernel of cuda that runs it, where the table says nothing of op
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, LnOp) or type(op) in _described() or not TARGETS.get("cuda").supports(op):
            return
        if op.refusal("cuda") is None:
            rewriter.replace(op, KERNELS.get("cuda").wrap([op]))


class JoinLayers(RewritePattern):
    # engine(layers), engine(more layers) = engine(layers, more layers), of one batch size
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, TensorrtKernelOp) or _is_engine(_before(op), op):
            return
        run = [op]
        while _is_engine(following := _behind(run[-1]), op):
            run.append(following)
        if len(run) == 1:
            return
        inside, inner = set(run), dict[SSAValue, SSAValue]()
        outside: dict[SSAValue, SSAValue] = {}
        for kernel in run:
            outside |= {arg: inner.get(v, v) for arg, v in kernel.outside.items()}
            inner |= zip(kernel.results, kernel.terminator.operands)
        kept = [r for k in run for r in k.results if k is run[-1] or any(use.operation not in inside for use in r.uses)]
        # The ops move into the new kernel, so what they make is looked up before.
        body = Body(tuple(o for k in run for o in k.ops), tuple(inner[r] for r in kept), outside)
        joined = build_body(body, TensorrtKernelOp)
        set_loc(joined, fused(run))
        rewriter.insert(joined)
        for kernel in reversed(run):
            rewriter.replace(kernel, [], [joined.results[kept.index(r)] if r in kept else None for r in kernel.results])


def _before(op: Operation) -> Operation | None:
    before = op.prev_op
    while isinstance(before, Source):
        before = before.prev_op
    return before


def _behind(op: Operation) -> Operation | None:
    behind = op.next_op
    while isinstance(behind, Source):
        behind = behind.next_op
    return behind


def _is_engine(op: Operation | None, other: TensorrtKernelOp) -> bool:
    """Return whether `op` is an engine of the batch size of `other`."""
    return isinstance(op, TensorrtKernelOp) and _batch(op) == _batch(other)


def _batch(kernel: TensorrtKernelOp) -> int:
    return spec_of(kernel.ops[0].operands[0].type).dims[0]


def home(value: SSAValue) -> str:
    """The memory that a value stands in: what a kernel of the CPU makes, and what nothing says to be of cuda, in the
    host's."""
    op = value.owner
    if isinstance(op, KernelOp):
        return HOST_SPACE if op.name == "cpu.kernel" else ARENA
    said = op.attributes.get(MTYPE) if isinstance(op, Source) else None
    return HOST_SPACE if isinstance(op, Source) and (said is None or said.data == "cpu") else ARENA  # type: ignore[attr-defined]


TENSORRT = Target(
    "tensorrt",
    spaces={ARENA: Space(256, mtype="cuda"), STATIC: Space(256, mtype="cpu"), HOST_SPACE: Space(256, mtype="cpu")},
    kernel="tensorrt",
    supports=is_layer,
    expanders=(StaysWithCuda,),
    combiners=(JoinLayers,),
    descriptions=(TABLE,),
    home=home,
    upstream=("combine",),
    arches=("cpu", "cuda"),
)
"""LightNet's tensorrt: the expander description as data, the window over adjacent engines as `JoinLayers`."""
