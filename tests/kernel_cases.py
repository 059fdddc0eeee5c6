"""Random kernels: a window op of any geometry with a random elementwise epilogue, its operands, and what it should give.

The oracle is the ops' NumPy references. `run_pieces` runs one in ranges and orders as threads would, between guard bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from lightnet.backends.llvm.emitter import TargetVectors
from lightnet.backends.llvm.jit import CodeMachine, NativeModule, compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.elementwise import Elew, Lrelu, Relu, Sigmoid
from lightnet.dialects.ln.norm import Batchnorm
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.runtime.dtypes import BY_NAME

GUARD = 0xA5


@dataclass
class KernelCase:
    """A kernel, an array for each operand, the operand that each result overwrites, and the expected results."""

    kernel: CpuKernelOp
    arrays: list[np.ndarray]
    aliases: dict[int, int]
    want: list[np.ndarray]
    label: str

    @property
    def specs(self) -> list[TensorSpec]:
        return [spec_of(v.type) for v in self.kernel.terminator.operands]


@dataclass
class _Draft:
    """A kernel under construction: the block, an array for each argument, and the value of everything so far."""

    rng: np.random.Generator
    block: Block = field(default_factory=Block)
    arrays: list[np.ndarray] = field(default_factory=list)
    values: dict[SSAValue, np.ndarray] = field(default_factory=dict)
    label: list[str] = field(default_factory=list)

    def operand(self, array: np.ndarray) -> SSAValue:
        spec = TensorSpec(array.shape, BY_NAME["f64" if array.dtype == np.float64 else "f32"])
        arg = self.block.insert_arg(tensor_type(spec), len(self.arrays))
        self.arrays.append(array)
        self.values[arg] = array
        return arg

    def add(self, op: LnOp) -> SSAValue:
        self.block.add_op(op)
        with np.errstate(all="ignore"):
            self.values[op.results[0]] = np.asarray(op.reference(*(self.values[v] for v in op.operands)))
        self.label.append(f"{op.optype}{dict(op.param_values())}")
        return op.results[0]


def _pick(rng: np.random.Generator, *choices):
    return choices[int(rng.integers(len(choices)))]


def _pair(rng: np.random.Generator, *choices) -> tuple[int, int]:
    return (_pick(rng, *choices), _pick(rng, *choices))


def _normal(rng: np.random.Generator, shape: Sequence[int], dtype) -> np.ndarray:
    return rng.normal(size=tuple(shape)).astype(dtype)


def random_case(seed: int, small: bool = False, anchor: type[LnOp] | None = None) -> KernelCase:
    """The kernel of `seed`; `small` ones suit the level-4 interpreter."""
    rng = np.random.default_rng(seed)
    anchor = anchor or _pick(rng, Conv2d, Conv2d, Conv2d, Deconv2d, Maxpool2d, Avgpool2d)
    while True:
        draft = _Draft(rng)
        try:
            value = _anchor(draft, anchor, np.float64 if rng.random() < 0.15 else np.float32, small)
        except ConstraintError:
            continue
        if value is not None and spec_of(value.type).len:  # of what is empty there are no kernels
            break
    yielded = [value]
    for _ in range(int(rng.integers(0, 5))):
        value = _epilogue(draft, value, yielded)
        yielded.append(value)
    extra = [v for v in yielded[:-1] if rng.random() < 0.15]
    outputs = list(dict.fromkeys([value, *extra]))
    aliases = _aliases(draft, outputs)
    kernel = CpuKernelOp.around(draft.block, [], outputs)
    src = draft.arrays[0]
    label = f"seed {seed}: {src.dtype}{list(src.shape)} " + " -> ".join(draft.label)
    return KernelCase(kernel, draft.arrays, aliases, [draft.values[v] for v in outputs], f"{label} in place {aliases}")


def _anchor(draft: _Draft, cls: type[LnOp], dtype, small: bool) -> SSAValue | None:
    """A window op on random data; None where its result would be too large to be worth the time."""
    rng = draft.rng
    limit = 6000 if small else 150_000
    n = _pick(rng, 1, 1, 2, 3)
    h, w = (int(rng.integers(1, 12)), int(rng.integers(1, 24))) if small else (
        _pick(rng, 1, 2, 5, 7, int(rng.integers(1, 40))), _pick(rng, 1, 3, 8, 16, 17, int(rng.integers(1, 90))))  # fmt: skip
    channels = [1, 2, 3, 5, 8, 16, 17] if small else [1, 2, 3, 4, 7, 8, 9, 16, 17, 24, 32, 33, 64, 70]
    size, stride = _pair(rng, 1, 1, 2, 3, 3, 4, 5, 7), _pair(rng, 1, 1, 1, 2, 2, 3, 4)
    params: dict = {"size": size, "stride": stride, "autopad": "NOTSET"}
    if cls in (Conv2d, Deconv2d):
        params["dilation"] = _pair(rng, 1, 1, 1, 2, 3)
        params["padding"] = tuple(int(rng.integers(0, 2 + size[i % 2] + _pick(rng, 0, 0, 4))) for i in range(4))
    else:
        params["padding"] = tuple(int(rng.integers(0, size[i % 2])) for i in range(4))
        if cls is Avgpool2d and rng.random() < 0.7:
            params["padding"] = (0, 0, 0, 0)
    if rng.random() < 0.3:
        params["autopad"] = _pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    if rng.random() < 0.1:  # pixels are independent, or the window sees everything
        params |= {"padding": (0, 0, 0, 0), "stride": (1, 1), "autopad": "NOTSET"}
        if rng.random() < 0.5 and cls in (Conv2d, Deconv2d):
            h, w, params["dilation"] = min(h, 7), min(w, 7), (1, 1)
            params["size"] = (h, w)
    c = _pick(rng, *channels)
    if cls not in (Conv2d, Deconv2d):
        x = _normal(rng, (n, c, h, w), dtype)
        op = cls.make([draft.operand(x)], params)
        return draft.add(op) if op.result_specs[0].len <= limit else None
    group = _pick(rng, 1, 1, 1, 2, 3, 4)
    per_in, per_out = max(1, c // group), max(1, _pick(rng, *channels) // group)
    if rng.random() < 0.2:  # depthwise
        group, per_in, per_out = c, 1, _pick(rng, 1, 1, 2, 3)
    params["group"] = group
    if cls is Deconv2d:
        params["output_padding"] = (
            int(rng.integers(0, params["stride"][0])),
            int(rng.integers(0, params["stride"][1])),
        )
        if params["autopad"].startswith("SAME"):
            out = tuple(d * s for d, s in zip((h, w), params["stride"]))
            params["output_dims"] = (n, per_out * group, *out)
    weight = (group * per_out, per_in) if cls is Conv2d else (group * per_in, per_out)
    fan_in = per_in * params["size"][0] * params["size"][1]
    if n * group * per_out * fan_in * h * w > (60_000 if small else 30_000_000):
        return None
    x, k = _normal(rng, (n, group * per_in, h, w), dtype), _normal(rng, (*weight, *params["size"]), dtype)
    bias = _normal(rng, (group * per_out,), dtype)
    op = cls.make([draft.operand(x), draft.operand((k / np.sqrt(fan_in)).astype(dtype)), draft.operand(bias)], params)
    return draft.add(op) if op.result_specs[0].len <= limit else None


def _epilogue(draft: _Draft, value: SSAValue, before: list[SSAValue]) -> SSAValue:
    rng, spec = draft.rng, spec_of(value.type)
    dtype = spec.dtype.np
    kind = _pick(rng, "relu", "lrelu", "sigmoid", "norm", "residual", "residual", "self")
    if kind == "relu":
        return draft.add(Relu.make([value]))
    if kind == "lrelu":
        return draft.add(Lrelu.make([value], {"negslope": _pick(rng, 0.1, -0.5, 2, 0)}))
    if kind == "sigmoid":
        return draft.add(Sigmoid.make([value]))
    if kind == "norm":
        vectors = [rng.uniform(0.5, 1.5, spec.dims[1]).astype(dtype) for _ in range(4)]
        args = [draft.operand(v) for v in vectors]
        return draft.add(Batchnorm.make([value, *args], {"epsilon": 1e-3}))
    if kind == "self":  # an earlier value, still in registers
        return draft.add(Elew.make([value, _pick(rng, *before)], {"elew_op": _pick(rng, "TL_SUM", "TL_MAX", "TL_MUL")}))
    same = [a for a in draft.block.args if a.type == value.type]
    other = _pick(rng, *same) if same and rng.random() < 0.3 else draft.operand(_normal(rng, spec.dims, dtype))
    op = _pick(rng, "TL_SUM", "TL_SUM", "TL_SUB", "TL_MUL", "TL_MAX", "TL_MIN")
    return draft.add(Elew.make([value, other] if rng.random() < 0.5 else [other, value], {"elew_op": op}))


def _aliases(draft: _Draft, outputs: list[SSAValue]) -> dict[int, int]:
    """Some results take the bytes of operands that elementwise ops alone read."""
    anchor = draft.block.first_op
    assert anchor is not None
    free = [i for i, a in enumerate(draft.block.args) if a.type == outputs[0].type and a not in anchor.operands]
    aliases = {}
    for k in range(len(outputs)):
        if free and draft.rng.random() < 0.6:
            aliases[k] = free.pop(int(draft.rng.integers(len(free))))
    return aliases


class Memory:
    """Operands, results and workspace of one run, each between guard bytes."""

    def __init__(self, case: KernelCase, workspace: int, offset: int = 0):
        self.case = case
        self.operands = [self._guarded(a.nbytes) for a in case.arrays]
        for view, a in zip(self.operands, case.arrays):
            view[...] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        self.results = [
            self.operands[case.aliases[i]] if i in case.aliases else self._guarded(s.nbytes)
            for i, s in enumerate(case.specs)
        ]
        self.workspace = self._guarded(workspace)
        self.workspace[...] = 0xFF  # NaN, for every float type

    def _guarded(self, nbytes: int) -> np.ndarray:
        buffer = np.full(nbytes + 256, GUARD, np.uint8)
        start = 64 + (-buffer.ctypes.data % 64)
        view = buffer[start : start + nbytes]
        view[...] = 0xFF
        return view

    def arguments(self) -> list[np.ndarray]:
        fresh = [v for i, v in enumerate(self.results) if i not in self.case.aliases]
        return [*self.operands, *fresh, *([self.workspace] if len(self.workspace) else [])]

    def check(self) -> list[np.ndarray]:
        """The results, once nothing else was written."""
        for view in [*self.operands, *self.results, self.workspace]:
            buffer = view.base
            start = view.ctypes.data - buffer.ctypes.data
            assert (buffer[:start] == GUARD).all() and (buffer[start + len(view) :] == GUARD).all(), "out of bounds"
        for i, (view, a) in enumerate(zip(self.operands, self.case.arrays)):
            if i not in self.case.aliases.values():
                assert bytes(view) == np.ascontiguousarray(a).tobytes(), "wrote an operand"
        return [v.view(s.dtype.np).reshape(s.dims).copy() for v, s in zip(self.results, self.case.specs)]


def compiled(function, machine: CodeMachine | None = None, vectors: TargetVectors | None = None) -> NativeModule:
    return compile_module(ModuleOp([function]), machine=machine, vectors=vectors, verify=True)


def run_pieces(native: NativeModule, name: str, pieces: Sequence[tuple[int, int]], case: KernelCase,
               workspace: int) -> list[np.ndarray]:  # fmt: skip
    """Run the block ranges `pieces`, in order, on fresh memory."""
    memory = Memory(case, workspace)
    pointers = [v.ctypes.data for v in memory.arguments()]
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
    entry = call(native.kernel_address(name))
    for low, high in pieces:
        entry(low, high, *pointers)
    return memory.check()


def random_pieces(grid: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """[0, grid) in ranges, in random order, some of them empty."""
    cuts = sorted({0, grid, *(int(c) for c in rng.integers(0, grid + 1, 6))})
    pieces = [*pairwise(cuts), (cuts[0], cuts[0])]
    return [pieces[i] for i in rng.permutation(len(pieces))]
