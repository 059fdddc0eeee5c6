"""The sources of tensors: `create` and what `bind` makes of it (`input`, `param`), `constant`, `zeros`, `arange`,
`rearange`."""

from __future__ import annotations

import math
from typing import ClassVar, TypeGuard

import numpy as np
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.irdl import traits_def
from xdsl.traits import Pure

from lightnet.dialects.ln.rules import rule
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.constraints import Message
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import (
    ConstraintError,
    LnOp,
    boolean,
    case,
    dims_of_result,
    dtype_of_result,
    ln_op,
    number,
    numbers,
    operand,
    result,
)
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_TL, convert
from lightnet.runtime.initial import initial_contents

#: Elements of the largest constant whose value passes read: scalars, axes, scales of a few channels, no weights.
MAX_KNOWN = 16


def holds_data(from_file: bool, ran: tuple[float, ...]) -> bool:
    """Return whether `data` is what a tensor holds: neither the weight store nor random numbers."""
    return not from_file and tuple(ran) == (0, 0)


class Source(LnOp):
    """A tensor whose contents stand outside the program: from the weight store (`from_file`), random in `ran`
    (uniform, seeded by the tensor's name), or `data` converted element by element."""

    unique = True
    traits = traits_def(Pure())
    dst = result(dims="dims", dtype="dtype", static=True)
    dtype = dtype_of_result(stored=True)
    dims = dims_of_result(ge=0)
    ran = numbers("double", 2, default=(0, 0))
    data = numbers("double", default=(0,))
    from_file = boolean(default=False)
    checks = {
        "ran-order": "ran[0] <= ran[1]",
        "data-length": "from_file || ran != 0 || data == [0] || len(data) <= prod(dims)",
    }
    messages: ClassVar = {
        "data-length": Message(
            "a tensor of %d elements %s should have no more data, but gets %d numbers",
            ("prod(dims)", "dims", "len(data)"),
        )
    }
    work = 0

    def contents(self, store, seed: int = 0, missing: list[str] | None = None, loc=None) -> np.ndarray:
        """The tensor's contents at load time; `store` is a weight store or None. `missing` gets the tensor's name when
        the store should hold it and does not (zeros). Raises LightNetError, at `loc`, when the store holds something of
        another size or type."""
        spec = self.result_specs[0]
        name = self.tensor_names[0] or self.op_name or "?"
        return initial_contents(
            name,
            spec.dims,
            spec.dtype,
            ran=self.ran,
            data=self.data,
            from_file=self.from_file,
            store=store,
            seed=seed,
            missing=missing,
            loc=loc,
        )


@ln_op
class Create(Source):
    """A tensor as the source network declares it; `bind` makes it an `input` or a `param`.

    ```mlir
    %x = ln.create {data = [1, 2, 3]} : tensor<3xf32>
    ```
    """

    optype = "create"


@ln_op
class Input(Source):
    """A tensor that a caller may feed; its contents are the default. One that is `required` has none: every call feeds
    it.

    ```mlir
    %x = ln.input {from_file = true} : tensor<1x3x8x8xf32> as "create0"("image")
    ```
    """

    optype = "input"
    required = boolean(default=False)


@ln_op
class ParamOp(Source):
    """A tensor that is constant from call to call: weights and the like. Anybody may feed it, so no pass reads its
    value. One that is `required` has no contents but those of the weight store: a call without these is an error.

    ```mlir
    %w = ln.param {from_file = true} : tensor<4x3x3x3xf32> as "create1"("conv1_wts")
    ```
    """

    optype = "param"
    required = boolean(default=False)


@ln_op
class ConstantOp(ParamOp):
    """A tensor that the network itself spells out, in `data`: nobody can feed it, and a pass may read its value
    (`known`), where it has at most 16 elements.

    ```mlir
    %s = ln.constant {data = [0.5]} : tensor<f32> as "scale"("scale")
    ```
    """

    optype = "constant"
    unique = False  # its name is nobody's to feed: equal ones are one
    checks = Source.checks | {"spelt": "!from_file && !required && ran == 0"}


def is_fed(op: Operation) -> TypeGuard[Source]:
    """Return whether an op is a source that a caller may feed."""
    return isinstance(op, Source) and not isinstance(op, ConstantOp)


def known(value: SSAValue) -> np.ndarray | None:
    """The value of a tensor that the program spells out (`constant`, `zeros`, `arange`), also where it enters a kernel
    or stands in an `ln.once`: an array of its dims and dtype. None of any other, and of one with more than `MAX_KNOWN`
    elements."""
    while True:
        if isinstance(value, BlockArgument) and isinstance(kernel := value.block.parent_op(), KernelOp):
            value = kernel.operands[value.index]
        elif isinstance(value, OpResult) and isinstance(value.op, OnceOp):
            value = value.op.terminator.operands[value.index]
        else:
            break
    op = value.owner
    if not isinstance(op, ConstantOp | Zeros | Arange) or op.result_specs[0].open_dims:
        return None
    if op.result_specs[0].len > MAX_KNOWN:
        return None
    return op.contents(None) if isinstance(op, ConstantOp) else op.reference()


def spelt(array: np.ndarray) -> tuple[int | float, ...] | None:
    """The elements as the numbers of `data`, or None where doubles cannot say them exactly (or not finitely)."""
    if array.dtype.kind in "iub":
        values = tuple(int(v) for v in array.reshape(-1).tolist())
        return values if all(abs(v) <= 1 << 53 for v in values) and values else None
    numbers = array.astype(np.float64).ravel()
    negative_zeros = (numbers == 0) & np.signbit(numbers)
    return tuple(numbers.tolist()) if len(numbers) and np.isfinite(numbers).all() and not negative_zeros.any() else None


@ln_op
class Zeros(LnOp):
    """Zeros, written on every run.

    ```mlir
    %x = ln.zeros : tensor<2x3xf32>
    ```
    """

    optype = "zeros"
    dst = result(dims="dims", dtype="dtype")
    dtype = dtype_of_result()
    dims = dims_of_result(ge=0)
    definition = "dst[i...] = 0"

    def reference(self):
        spec = self.result_specs[0]
        return np.zeros(spec.dims, spec.dtype.np)

    @classmethod
    def samples(cls):
        return [
            case(dims=(2, 3), dtype="TL_FLOAT"),
            case(dims=(1,), dtype="TL_INT8"),
            case(dims=(2, 1, 5), dtype="TL_BOOL"),
            case(dims=(), dtype="TL_FLOAT"),
            case(dims=(0, 2), dtype="TL_INT32"),
        ]


class _Range(LnOp):
    start = number("double")
    stop = number("double")
    step = number("double")
    checks = {"step": "step > 0", "order": "stop > start"}
    definition = "dst[i] = sat(start + i * step, dst)"

    def reference(self, *_):
        spec = self.result_specs[0]
        return convert(self.start + np.arange(spec.dims[0]) * self.step, spec.dtype)


def range_length(start: float, stop: float, step: float) -> int:
    """ceil((stop - start) / step); more than any tensor holds where that overflows."""
    count = (stop - start) / step
    return math.ceil(count) if math.isfinite(count) else 1 << 63


def _in_range(dtype: str, *values: float) -> bool:
    d = BY_TL[dtype]
    low, high = d.limits
    return all(low <= v <= high for v in values)


@ln_op
class Arange(_Range):
    """start, start + step, … below stop, in one dimension.

    ```mlir
    %x = ln.arange {start = 0, stop = 5, step = 2} : tensor<3xi32>
    ```
    """

    optype = "arange"
    dst = result(static=True)
    dtype = dtype_of_result()

    @classmethod
    def infer(cls, t, p):
        if not _in_range(p.dtype, p.start, p.stop, p.step):
            raise ConstraintError(
                f"arange: `start`, `stop` and `step` should lie in the range of {p.dtype}, but get "
                f"{p.start}, {p.stop}, {p.step}",
                label="arange.dtype-range",
            )
        return [TensorSpec((range_length(p.start, p.stop, p.step),), BY_TL[p.dtype])]

    @classmethod
    def samples(cls):
        return [
            case(dtype="TL_FLOAT", start=-1.5, stop=1, step=0.25), case(dtype="TL_INT32", start=0, stop=17, step=1),
            case(dtype="TL_UINT8", start=3, stop=200, step=7),
        ]  # fmt: skip


# rearange(x) = arange, in the type of x
@rule("rearange")
def rearange_is_arange(op):
    params = {k: op.properties[k].data for k in ("start", "stop", "step")}
    try:
        return Arange.make([], {"dtype": op.result_specs[0].dtype.tl, **params})
    except ConstraintError:  # a range that saturates: arange refuses it
        return None


@ln_op
class Rearange(_Range):
    """A range in the type and length of `src`, whose contents do not matter.

    ```mlir
    %y = ln.rearange %x {start = 0, stop = 3, step = 1} : tensor<3xi32>
    ```
    """

    optype = "rearange"
    rewrites = (rearange_is_arange,)
    src = operand(rank=1)
    dst = result(owner="src", overwrites=True)

    @classmethod
    def infer(cls, t, p):
        if (n := range_length(p.start, p.stop, p.step)) != t.src.len:
            raise ConstraintError(
                f"rearange: the range should have as many elements as {t.src}: expected {t.src.len}, got {n}",
                label="rearange.length",
            )
        return [t.src]

    @classmethod
    def samples(cls):
        return [case("i32", src=(17,), start=0, stop=17, step=1), case(src=(1,), start=2, stop=3, step=1)]
