"""The target `npu`: a made-up accelerator, whole, with an array of multipliers, a vector unit, and 192 KiB of memory.

    lightnet run --load examples/accelerator -t npu net.onnx -i random

It computes in f32 only. Results that fit stand in `sram`, all else in `arena`, its DRAM; what several kernels read of
an input is copied there once. `emit_c.py` writes C, which stands for what a real machine's compiler would take;
`runtime.py` has it compiled, and runs it; `dma.py` is what copies.
"""

from collections.abc import Mapping
from math import ceil, prod

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Dialect, Operation, OpResult
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from lightnet.backends.kernel_loops import loop_workspace_bytes
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.move import Concat, Copy, Slice
from lightnet.dialects.ln.source import Input
from lightnet.ir.access import is_elementwise
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import WORKSPACE_SIZE
from lightnet.ir.op import LnOp
from lightnet.ir.registry import pattern
from lightnet.ir.target import Space, Target
from lightnet.ir.types import spec_of

from .emit_c import emit_c
from .runtime import RUNTIME

SRAM = 192 * 1024  # bytes
POOLS = {"maxpool2d", "avgpool2d"}
MOVES = {"reshape", "transpose", "slice", "concat"}


class NpuKernelOp(KernelOp):
    """A kernel of the accelerator: what it runs at once: one op, or a convolution or pool with elementwise ops behind
    it.
    """

    name = "npu.kernel"


def is_depthwise(conv: Conv2d) -> bool:
    return conv.group == conv.weight.type.get_shape()[0] == conv.src.type.get_shape()[1]


def supports(op: LnOp) -> bool:
    """The single ops that it has, asked of one; `expand` lists all others of a network in one error."""
    if any(s.dtype.name != "f32" for s in (*op.operand_specs, *op.result_specs)):
        return False
    if isinstance(op, Conv2d):
        return op.group == 1 or is_depthwise(op)
    return op.optype in POOLS | MOVES or is_elementwise(op)


@pattern("expand", target="npu")
class SplitGroups(RewritePattern):
    # conv(x, w, b in g groups) = concat over i of conv(group i of the channels of x, of the outputs of w, of b)
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Conv2d) or op.group == 1 or is_depthwise(op):
            return
        new: list[LnOp] = []
        parts = []
        for i in range(op.group):
            lengths = [(v, axis, v.type.get_shape()[axis] // op.group) for v, axis in zip(op.operands, (1, 0, 0))]
            cut = [Slice.make([v], {"axis": axis, "start": i * n, "len": n}) for v, axis, n in lengths]
            conv = Conv2d.make([c.dst for c in cut], {**op.param_values(), "group": 1})
            new += [*cut, conv]
            parts.append(conv.dst)
        rewriter.replace(op, [*new, Concat.make(parts, {"axis": 1})])


def accepts(body: Body) -> str | None:
    """The form of what `combine` may make of two kernels: up to three elementwise ops of its shape behind a convolution
    or a pool.
    """
    first, *rest = body.ops
    anchored = isinstance(first, Conv2d) or first.optype in POOLS
    shape = first.result_specs
    same = all(is_elementwise(op) and op.operand_specs == shape * len(op.operands) for op in rest)
    return "epilogue" if anchored and same and len(rest) <= 3 and len(body.yielded) == 1 else None


@pattern("subgraph", target="npu")
class LoadOnce(RewritePattern):
    # f(x), g(x) = f(y), g(y) where y = copy(x), for an input x that fits into the near memory: it is loaded once
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Input) or spec_of(op.dst.type).nbytes > SRAM // 2:
            return
        readers = [use.operation for use in op.dst.uses]
        if len(set(readers)) < 2 or not all(isinstance(reader, NpuKernelOp) for reader in readers):
            return
        near = NpuKernelOp.wrap([Copy.make([op.dst])])
        rewriter.insert(near, InsertPoint.after(op))
        op.dst.replace_uses_with_if(near.results[0], lambda use: use.operation is not near)


# -- the cost model: which unit runs a kernel, and for how long

ARRAY_MACS, VECTOR_FLOPS, DMA_BYTES = 256, 32, 16  # a cycle
START = {"array": 400, "vector": 20}  # cycles to begin


def cost(kernel: KernelOp, unit: str) -> int:
    """Cycles of a kernel on a unit: computing and moving overlap, so the longer one counts. The array is a matrix
    product of [outputs, inputs * size] with the pixels, 16 x 16 of it a cycle."""
    flops = sum(op.flops() for op in kernel.ops if not op.is_move)
    compute = ceil(flops / VECTOR_FLOPS)
    if unit == "array":
        outputs, *inner = kernel.ops[0].operand_specs[1].dims
        pixels = prod(kernel.ops[0].result_specs[0].dims) // outputs
        compute = ceil(outputs / 16) * ceil(prod(inner) / 16) * pixels
    values = [v for v in (*kernel.operands, *kernel.results) if not (isinstance(v, OpResult) and home(v) == "sram")]
    return START[unit] + max(compute, ceil(sum(spec_of(v.type).nbytes for v in values) / DMA_BYTES))


def choose(kernel: KernelOp, features: str) -> Mapping[str, Attribute]:
    """`unit` and `cycles`, by the cost; and the bytes of workspace that the loops need."""
    units = ["vector"]
    if isinstance(kernel.ops[0], Conv2d) and kernel.ops[0].group == 1:
        units.append("array")
    unit = min(units, key=lambda unit: cost(kernel, unit))
    choices = {"unit": StringAttr(unit), "cycles": IntegerAttr(cost(kernel, unit), i64)}
    return {**choices, WORKSPACE_SIZE: IntegerAttr(n, i64)} if (n := loop_workspace_bytes(kernel)) else choices


def home(value: OpResult) -> str:
    """The space of a result: of what the host reads, or takes more than half of the memory, the DRAM."""
    if spec_of(value.type).nbytes > SRAM // 2 or not isinstance(value.op, NpuKernelOp):
        return "arena"
    read = (use.operation for use in value.uses)
    host = any(isinstance(op, ReturnOp) or getattr(op, "is_host", False) for op in read)
    return "arena" if host else "sram"


NPU = Target(
    "npu",
    spaces={"arena": Space(), "static": Space(), "sram": Space(alignment=64, capacity=SRAM)},
    kernel="npu",
    supports=supports,
    accepts=accepts,
    choose=choose,
    home=home,
    machine=RUNTIME.form.machine,
    lowering="lower-cpu",
    runtime=RUNTIME,
    emitters={"c": emit_c},
)
Npu = Dialect("npu", [NpuKernelOp], [])
