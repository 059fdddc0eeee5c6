"""Kernel regions that are products on target cuda, with what they should compute: cases, the generators' kernels of them, and a comparison in
the PTX interpreter, or on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from cuda_maps import Maps
from cuda_plans import candidates
from kernels import agree
from xdsl.ir import Block, SSAValue

from lightnet.backends.cuda.base import MAP
from lightnet.backends.cuda.gemm.problem import match
from lightnet.backends.cuda.selection import SELECTION
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.body import Body, build_body
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.passes.layout import follow, set_layout
from lightnet.runtime.dtypes import BY_NAME

#: (generator, type of the factors)
WAYS = [("simt", "f32"), ("mma", "f32"), ("mma", "f16"), ("mma", "bf16")]


class Case:
    """A kernel region, the values of its operands, and what it should compute."""

    def __init__(self, dtype: str = "f32", seed: int = 0):
        self.dtype, self.block, self.ops = dtype, Block(), list[LnOp]()
        self.rng = np.random.default_rng(seed)
        self.arrays: list[np.ndarray] = []

    def input(self, *dims: int, dtype: str | None = None, scale: float = 1.0) -> SSAValue:
        kind = BY_NAME[dtype or self.dtype]
        self.arrays.append((self.rng.standard_normal(dims) * scale).astype(np.float32).astype(kind.np))
        return self.block.insert_arg(tensor_type(TensorSpec(dims, kind)), len(self.block.args))

    def op(self, optype: str, *operands: SSAValue, **params) -> SSAValue:
        op = optypes()[optype].make(list(operands), params, name=optype)
        self.block.add_op(op)
        self.ops.append(op)
        return op.results[0]

    def conv(self, src: Sequence[int], out: int, size: Sequence[int], **params) -> SSAValue:
        x, per_group = self.input(*src), src[1] // params.get("group", 1)
        w = self.input(out, per_group, *size, scale=(per_group * size[0] * size[1]) ** -0.5)
        return self.op("conv2d", x, w, self.input(out), size=tuple(size), **params)

    def deconv(self, src: Sequence[int], out: int, size: Sequence[int], **params) -> SSAValue:
        """``deconv2d`` with weights such that results are about as large as the source."""
        x, spread = self.input(*src), src[1] * size[0] * size[1] / np.prod(params.get("stride", (1, 1)))
        w = self.input(src[1], out // params.get("group", 1), *size, scale=spread**-0.5)
        return self.op("deconv2d", x, w, self.input(out), size=tuple(size), **params)

    def product(self, a: Sequence[int], b: Sequence[int]) -> SSAValue:
        return self.op("matmul", self.input(*a), self.input(*b, scale=max(1, b[-2]) ** -0.5))

    def want(self, rounded: bool = False) -> list[np.ndarray]:
        """The references of the ops, one after the other; `rounded`: the factors of the product are rounded to tf32."""
        values: dict[SSAValue, np.ndarray] = dict(zip(self.block.args, self.arrays))
        for op in self.ops:
            arrays = [values[v] for v in op.operands]
            if rounded and op is self.ops[0]:
                arrays[:2] = map(tf32, arrays[:2])
            values.update(zip(op.results, op.evaluate(arrays)))
        return [values[self.ops[-1].results[0]]]

    def kernels(self, alg: str, **choices) -> list[KernelOp]:
        """The kernel in each form in which a generator takes it, laid out so."""
        made = []
        for number, form in enumerate(self.forms(alg)):
            if form.maps and not form.weights:
                continue  # weights that are computed lie as static ones do
            block = Block(arg_types=[a.type for a in self.block.args])
            values: dict[SSAValue, SSAValue] = dict(zip(self.block.args, block.args))
            ops = []
            for op in self.ops:
                ops.append(op.clone(values))
                block.add_op(ops[-1])
                values.update(zip(op.results, ops[-1].results))
            region = build_body(Body(tuple(ops), (ops[-1].results[0],)), CudaKernelOp)
            region.attributes["alg"] = choice_attr(alg)
            region.attributes.update({k: choice_attr(v) for k, v in choices.items()})
            made.append(laid_out(region, [f for g, f in candidates(region) if g.alg == alg][number]))
            self.keep = [block, *getattr(self, "keep", [])]
        return made

    def forms(self, alg: str) -> list[Form]:
        generator = next(g for g in SELECTION.generators() if g.alg == alg)
        return list(generator.takes(self.ops, [self.ops[-1].results[0]]))


def tf32(x: np.ndarray) -> np.ndarray:
    return ((np.ascontiguousarray(x).view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def laid_out(kernel: KernelOp, form: Form) -> KernelOp:
    """The kernel with the types that a form asks for, weights packed."""
    for arg, operand in zip(kernel.body.args, kernel.operands):
        if arg in form.maps:
            set_layout(operand, MAP)
        if arg in form.weights:
            set_layout(operand, match(kernel.ops, list(kernel.terminator.operands))[0].packed)
    if not form.plain_results:
        for result in kernel.results:
            set_layout(result, MAP)
    follow(kernel)
    for op in kernel.ops:
        for value in op.results:
            set_layout(value, layout_of(kernel.results[0].type))
    return kernel


def check(cases: Sequence[Case], alg: str, arch: str = "sm_80", **choices) -> list[KernelOp]:
    """All cases, in all forms, in one module; the kernels."""
    every = [(case, kernel) for case in cases for kernel in case.kernels(alg, **choices)]
    assert {id(case) for case, _ in every} == {id(case) for case in cases}, "a case was not taken"
    regions = Maps([kernel for _, kernel in every], arch)
    for number, (case, kernel) in enumerate(every):
        (got,) = regions.run(number, arguments(case, kernel))
        (want,) = case.want(rounded=alg == "mma" and case.dtype == "f32")
        agree(np.ascontiguousarray(got), want, 1e-5)
    return [kernel for _, kernel in every]


def arguments(case: Case, kernel: KernelOp) -> list[np.ndarray]:
    """The operands of a kernel: each value that its ops read, once, in order of use."""
    read = [v for op in case.ops for v in op.operands if v in case.block.args]
    return [case.arrays[v.index] for v in dict.fromkeys(read)]


def made(dtype: str, build: Callable[..., object], *args: object) -> Case:
    """A case of what `build_body` does with it."""
    case = Case(dtype, seed=len(args))
    build(case, *args)
    return case


CONVS = {
    "one channel, padded all round": lambda c: c.conv((1, 1, 5, 4), 1, (3, 3), padding=(1, 1, 1, 1)),
    "three channels, stride 2": lambda c: c.conv((1, 3, 9, 13), 8, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
    "five channels, batch 2, asymmetric padding": lambda c: c.conv((2, 5, 7, 6), 9, (3, 3), padding=(2, 0, 1, 3)),
    "dilation": lambda c: c.conv((1, 8, 9, 8), 6, (3, 3), stride=(2, 1), dilation=(2, 3), padding=(2, 3, 2, 3)),
    "padding larger than the picture": lambda c: c.conv((1, 3, 3, 2), 5, (3, 3), padding=(5, 4, 4, 5)),
    "cropped": lambda c: c.conv((1, 4, 9, 8), 4, (1, 1), stride=(4, 3), autopad="SAME_UPPER"),
    "1x1, many channels": lambda c: c.conv((2, 37, 6, 7), 70, (1, 1)),
    "1x1, stride 2": lambda c: c.conv((1, 12, 7, 7), 12, (1, 1), stride=(2, 2)),
    "1x1 on one pixel": lambda c: c.conv((3, 40, 1, 1), 33, (1, 1)),
    "a row of a window": lambda c: c.conv((1, 8, 3, 20), 20, (1, 5), padding=(0, 2, 0, 2)),
    "a dense layer": lambda c: c.conv((2, 5, 3, 4), 33, (3, 4)),
    "groups": lambda c: c.conv((1, 24, 5, 6), 16, (3, 3), group=2, padding=(1, 1, 1, 1)),
    "groups, 1x1": lambda c: c.conv((2, 16, 4, 3), 80, (1, 1), group=4),
    "K is a stage": lambda c: c.conv((1, 16, 4, 4), 16, (1, 1)),
}  # fmt: skip
PRODUCTS = [
    ((1, 1), (1, 1)), ((3, 4), (4, 5)), ((1, 37), (37, 130)), ((33, 17), (17, 1)), ((70, 40), (40, 101)), ((5, 64), (64, 12)),
    ((2, 3, 7, 9), (2, 3, 9, 19)), ((2, 5, 6), (6, 33)), ((7, 6), (3, 6, 20)), ((2, 1, 5, 8), (3, 8, 16)), ((1, 1, 4, 8), (1, 1, 8, 8)),
]  # fmt: skip


def _chain(c: Case, x: SSAValue, dims: tuple[int, ...]) -> SSAValue:
    """Values by column, a residual, and a function of many operations."""
    channels = dims[1] if len(dims) == 4 else dims[-1]
    vector = (1, channels, 1, 1) if len(dims) == 4 else (channels,)
    x = c.op("add", c.op("mul", x, c.input(*vector)), c.input(*dims))
    return c.op("silu", c.op("mul", c.input(), x))


EPILOGUES: dict[str, Callable[[Case, SSAValue, tuple[int, ...]], SSAValue]] = {
    "relu": lambda c, x, dims: c.op("relu", x),
    "residual": lambda c, x, dims: c.op("relu", c.op("add", x, c.input(*dims))),
    "chain": _chain,
    "clip": lambda c, x, dims: c.op("clip", x, lo=-0.5, hi=0.25),
    "twice": lambda c, x, dims: c.op("mul", x, c.op("sigmoid", x)),
}


def finished_conv(c: Case, finish: Callable[..., SSAValue], src: tuple[int, ...], out: int) -> None:
    finish(c, c.conv(src, out, (1, 1)), (src[0], out, *src[2:]))


def finished_product(c: Case, finish: Callable[..., SSAValue], a: tuple[int, ...], b: tuple[int, ...]) -> None:
    finish(c, c.product(a, b), (*a[:-1], b[-1]))
