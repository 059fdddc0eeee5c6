"""The data that a network is executed on to check a pass: seeded contents for everything that can be fed.

Contents are drawn by tensor name and by the operand that a tensor is, then fitted, so that activations neither vanish,
explode nor go constant, and a wrong rewrite shows. Imports the dialect, the interpreter's references and the runtime.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.effect import Fprint, Print
from lightnet.dialects.ln.source import Source, is_fed
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BFLOAT16, DType, convert, is_float
from lightnet.runtime.initial import sample, uniform
from lightnet.runtime.weights import WeightStore
from lightnet_trust.calls import Values, call_text
from lightnet_trust.evaluation import RememberingEvaluator
from lightnet_trust.trace import check_size, source_key

#: The kinds of data: ``ordinary``; ``awkward``, with zeros, -0, ties, negatives and large numbers, small variances,
#: negative scales, literals of params perturbed (anybody may feed them); ``nonfinite``, as ordinary with some NaN and
#: infinities among the data.
KINDS = ("ordinary", "awkward", "nonfinite")

#: What awkward data consists of; a network that is not finite on the first gets the second.
WIDE = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -7.0, 1e-3, 100.0, -100.0, 0.1)
NARROW = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.25, -0.25, 2.0, 0.1)
#: Deviation of what a layer with weights gives: small ones let the epsilon of a normalisation behind it show.
DEVIATION = {"ordinary": 1.0, "awkward": 0.02, "nonfinite": 1.0}


@dataclass(frozen=True)
class DataSet:
    """Contents by source (`trace.source_key`), interned by the evaluator that executes on them; of a network whose dims
    calls decide, for a call in which its symbols have these `values`. `literals` is what the network itself says that
    those hold whose contents were perturbed."""

    kind: str
    seed: int
    contents: dict[str, np.ndarray]
    values: Values = field(default_factory=dict)
    literals: dict[str, np.ndarray] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f", where {call_text(self.values)}" if self.values else ""
        return f"data set '{self.kind}', seed {self.seed}{where}"


def draw(
    module: ModuleOp, kind: str, seed: int, evaluator: RememberingEvaluator, store: WeightStore | None = None
) -> DataSet:
    """Contents for every source of a module of level 1 to 3, of one of `KINDS`.

    A source with literal contents keeps them, one that `store` names holds what is there (neither goes for floats of
    the awkward kind); others are drawn by how their first reader declares the operand (`LnOp.sample_data`). Weights are
    then scaled such that what their op gives has a deviation of 1 (Krähenbühl et al., "Data-dependent Initializations
    of Convolutional Neural Networks", 2016, section 3), and a batch norm's statistics are near the true ones. Costs
    about one execution, which the evaluator remembers. Raises `LightNetError` for a module that cannot be executed.
    """
    check_size(module)
    with np.errstate(all="ignore"):
        drawer = _Drawer(kind, seed, evaluator, store, WIDE)
        if not drawer.run(module) and kind == "awkward":
            drawer = _Drawer(kind, seed, evaluator, store, NARROW)
            drawer.run(module)
    return DataSet(kind, seed, drawer.contents, literals=drawer.literals)


class _Drawer:
    """One walk through the program, kernels included; values belong to the ones outside that block arguments stand
    for."""

    def __init__(
        self,
        kind: str,
        seed: int,
        evaluator: RememberingEvaluator,
        store: WeightStore | None,
        palette: tuple[float, ...],
    ):
        self.kind, self.seed, self.evaluator, self.store, self.palette = kind, seed, evaluator, store, palette
        self.contents: dict[str, np.ndarray] = {}
        self.literals: dict[str, np.ndarray] = {}
        self.values: dict[SSAValue, np.ndarray] = {}
        self.root: dict[SSAValue, SSAValue] = {}
        self.drawn: set[SSAValue] = set()  # sources that no op has read yet
        self.hints: Counter[str] = Counter()

    def run(self, module: ModuleOp) -> bool:
        """Draw everything; whether the outputs are finite."""
        block = main_of(module).body.block
        self.block(block)
        last = block.last_op
        results = [self.values.get(self.origin(v)) for v in last.operands] if last is not None else []
        return all(np.isfinite(a.astype(np.float64)).all() for a in results if a is not None)

    def block(self, block) -> None:
        for op in block.ops:
            if isinstance(op, KernelOp | OnceOp):
                self.region(op)
            elif isinstance(op, Source):
                self.source(op)
            elif isinstance(op, LnOp) and not isinstance(op, Print | Fprint):
                self.compute(op)

    def region(self, op: KernelOp | OnceOp) -> None:
        self.root.update((arg, self.origin(v)) for arg, v in zip(op.body.args, op.operands))
        self.block(op.body)
        for result, value in zip(op.results, op.terminator.operands):
            self.root[result] = self.origin(value)

    def origin(self, value: SSAValue) -> SSAValue:
        return self.root.get(value, value)

    # -- sources

    def source(self, op: Source) -> None:
        value, key = op.results[0], source_key(op)
        if not is_fed(op):
            self.values[value] = self.evaluator.intern(np.array(op.contents(None)))
            return
        if key not in self.contents:
            self.contents[key] = self.evaluator.intern(self.fresh(op, self.seed_name(op)))
        if not self.is_given(op):
            self.drawn.add(value)
        self.values[value] = self.contents[key]

    def seed_name(self, op: Source) -> str:
        """The name that the contents' randomness comes from: the tensor's name. A source without any is told by its SSA
        name and the sources of this name before it, so that it holds the same when the module is printed and read
        again.
        """
        if (name := op.tensor_names[0] or op.op_name) is not None:
            return name
        hint = op.results[0].name_hint or ""
        self.hints[hint] += 1
        return f"%{hint}.{self.hints[hint]}"

    def is_given(self, op: Source) -> bool:
        """Return whether the network, or the store, says what a source holds."""
        if op.from_file:
            stored = self.store is not None and (op.tensor_names[0] or "") in self.store
            return stored and not (self.kind == "awkward" and op.result_specs[0].dtype.is_float)
        return tuple(op.ran) == (0, 0) and tuple(op.data) != (0,)

    def fresh(self, op: Source, key: str) -> np.ndarray:
        spec = op.result_specs[0]
        if self.is_given(op):
            own = np.array(op.contents(self.store, self.seed))
            if self.kind != "awkward" or op.from_file or not spec.dtype.is_float:
                return own
            self.literals[source_key(op)] = own
            return self.perturbed(key, own, spec.dtype)
        reader = _reader(op.results[0])
        if reader is None:
            return sample(key, "data", spec.dims, spec.dtype, self.seed)
        user, at = reader
        field = user.schema.operand_fields(len(user.operands))[at]
        constrained = type(user).sample_data.__func__ is not LnOp.sample_data.__func__
        array = self.sampled(user, at, field.kind, spec, key)
        if tuple(op.ran) != (0, 0) and not spec.dtype.is_float and not constrained and field.kind == "data":
            return convert(np.floor(uniform(key, self.seed, spec.len, *op.ran)), spec.dtype).reshape(spec.dims)
        if self.kind == "awkward":
            return self.awkward(key, field.kind, array, spec.dtype, constrained and not isinstance(user, Cast))
        return self.broken(key, array) if self.kind == "nonfinite" and field.kind == "data" else array

    def sampled(self, user: LnOp, at: int, kind: str, spec: TensorSpec, key: str) -> np.ndarray:
        names = user.schema.operand_names(len(user.operands))
        tensors = dict(zip(names, user.operand_specs))
        seed = zlib.crc32(f"{self.seed}:{key}".encode("utf-8", "surrogatepass"))
        array = user.sample_data(names[at], kind, spec, tensors, user.param_values(), seed)
        array = np.array(convert(array, spec.dtype)).reshape(spec.dims)
        if spec.dtype.is_float and kind == "data" and array.size and (array < 0).all():
            array.reshape(-1)[0] *= -1  # of a few numbers all may be negative, and rectify to nothing
        return array

    # -- awkward contents

    def perturbed(self, key: str, own: np.ndarray, dtype: DType) -> np.ndarray:
        """Literal contents that somebody has fed otherwise: floats of the same sign, up to a half larger."""
        factor = uniform(f"{key}/factor", self.seed, own.size, 1.0, 1.5).reshape(own.shape)
        return convert(own.astype(np.float64) * factor, dtype)

    def awkward(self, key: str, kind: str, array: np.ndarray, dtype: DType, constrained: bool) -> np.ndarray:
        """Every other element (of weights, every fourth) is one of the palette, in the range of what was drawn where
        the op has a range; scales may be negative."""
        if dtype.kind == "bool" or kind in ("index", "anchor", "variance", "mean"):
            return array
        pick = uniform(f"{key}/pick", self.seed, array.size, 0, 1).reshape(array.shape)
        if kind == "scale":
            pick.reshape(-1)[:1] = 0  # at least one
            return convert(np.where(pick < 0.3, -array.astype(np.float64), array), dtype)
        if kind == "weight":
            return convert(np.where(pick < 0.25, 0.0, array.astype(np.float64)), dtype)
        palette = np.array(self.palette) if dtype.is_float else _whole_numbers(dtype)
        if constrained:
            drawn = array.astype(np.float64)[np.isfinite(array.astype(np.float64))]
            palette = palette[(palette >= drawn.min(initial=0)) & (palette <= drawn.max(initial=0))]
        # One after the other, so that a few elements are few of a kind.
        first = int(uniform(f"{key}/first", self.seed, 1, 0, len(palette))[0])
        values = palette[(np.cumsum(pick < 0.5) + first) % len(palette)].reshape(array.shape)
        if not dtype.is_float:
            return np.where(pick < 0.5, values, array)
        return convert(
            np.where(pick < 0.5, values * 0.01 if kind == "bias" else values, array.astype(np.float64)), dtype
        )

    def broken(self, key: str, array: np.ndarray) -> np.ndarray:
        """One element in ten is NaN or infinite; of types of 16 bits, whose sums are in f32, one in five is large,
        too."""
        dtype = array.dtype
        if not is_float(dtype):
            return array
        pick = uniform(f"{key}/broken", self.seed, array.size, 0, 30).reshape(array.shape)
        pick.reshape(-1)[:1] = uniform(f"{key}/first", self.seed, 1, 0, 3)  # at least one
        wide = array.astype(np.float64)
        if dtype.itemsize < 4:
            wide = np.where(pick > 24, np.where(wide < 0, -1, 1) * (1e6 if dtype == BFLOAT16 else 3e4), wide)
        return np.select([pick < i + 1 for i in range(3)], [np.nan, np.inf, -np.inf], wide).astype(dtype)

    # -- computing, and fitting to the data

    def compute(self, op: LnOp) -> None:
        operands = [self.origin(v) for v in op.operands]
        fields = op.schema.operand_fields(len(op.operands))
        fresh = [v in self.drawn for v in operands]
        self.drawn.difference_update(operands)
        arrays = [self.values[v] for v in operands]
        results = self.evaluator.evaluate(op, arrays)
        fit = _fit(op, fields, fresh)
        if fit is not None and (changed := fit(arrays, results, fields, DEVIATION[self.kind])):
            for i, array in changed.items():
                array = self.evaluator.intern(array.astype(arrays[i].dtype))
                self.values[operands[i]] = self.contents[source_key(operands[i].owner)] = array
            fitted = [self.values[v] for v in operands]
            if (
                isinstance(op, Conv2d | Deconv2d) and arrays[1].any()
            ):  # linear in both: scaling by a power of two commutes with all rounding
                self.evaluator.remember(op, fitted, [_rescaled(results[0], arrays, fitted)])
            results = self.evaluator.evaluate(op, fitted)
        self.values.update(zip(op.results, results))


def _whole_numbers(dtype: DType) -> np.ndarray:
    """The numbers that awkward data of an integer type consists of: a third of the maximum has as many digits as there
    are.
    """
    numbers = [*dtype.limits, dtype.limits[1] // 3, 0, 1, 2, 2, 7, 100]
    return convert(np.array(numbers), dtype) if dtype.is_stored else np.array(numbers, dtype.np)


_Fit = Callable[[list[np.ndarray], list[np.ndarray], list, float], dict[int, np.ndarray]]


def _fit(op: LnOp, fields: list, fresh: list[bool]) -> _Fit | None:
    """The fit of the drawn operands of an op to its data, if they are: those that change should be fresh floats."""
    if not op.results or not op.result_specs[0].dtype.is_float:
        return None
    kinds = {f.kind for f in fields if f.role == "param"}
    if kinds >= {"mean", "variance"}:
        changed, fit = ("mean", "variance"), _fit_statistics
    elif "weight" in kinds and kinds <= {"weight", "bias"}:
        changed, fit = ("weight", "bias"), _fit_weights
    else:
        return None
    return fit if all(new for f, new in zip(fields, fresh) if f.kind in changed) else None


def _fit_weights(
    arrays: list[np.ndarray], results: list[np.ndarray], fields: list, deviation: float
) -> dict[int, np.ndarray]:
    """Scale weights and biases by one power of two, where the result, which is linear in them, is far from the
    deviation wished for."""
    with np.errstate(all="ignore"):
        std = float(results[0].astype(np.float64).std()) if results[0].size else 0.0
    if not np.isfinite(std) or std == 0 or 0.25 <= std / deviation <= 4:
        return {}
    factor = 2.0 ** round(math.log2(deviation / std))
    return {i: arrays[i] * arrays[i].dtype.type(factor) for i, f in enumerate(fields) if f.kind in ("weight", "bias")}


def _rescaled(result: np.ndarray, before: list[np.ndarray], after: list[np.ndarray]) -> np.ndarray:
    """The result of a convolution after weights and biases were scaled by one power of two."""
    at = int(np.argmax(np.abs(before[1].reshape(-1).astype(np.float64))))
    factor = float(after[1].reshape(-1)[at]) / float(before[1].reshape(-1)[at])
    return result * result.dtype.type(factor)


def _fit_statistics(
    arrays: list[np.ndarray], results: list[np.ndarray], fields: list, deviation: float
) -> dict[int, np.ndarray]:
    """Fit statistics: what was drawn is relative to the data's own statistics by channel (axis 1 of [N, C, ...]): mean
    + deviation * drawn, variance * drawn. A channel that does not vary keeps what was drawn.
    """
    data = arrays[0].astype(np.float64)
    axes = (0, *range(2, data.ndim))
    if data.ndim < 2 or any(
        arrays[i].shape != (data.shape[1],) for i, f in enumerate(fields) if f.kind in ("mean", "variance")
    ):
        return {}
    with np.errstate(all="ignore"):
        mean, variance = data.mean(axes), data.var(axes)
        flat = ~(variance > 1e-12 * np.square(mean)) | (variance == 0) | ~np.isfinite(variance)
        mean, variance = np.where(flat, 0, mean), np.where(flat, 1, variance)
    changed = {}
    for i, f in enumerate(fields):
        drawn = arrays[i].astype(np.float64)
        if f.kind == "mean":
            changed[i] = mean + np.sqrt(variance) * drawn
        elif f.kind == "variance":
            changed[i] = variance * drawn
    return changed


def _reader(value: SSAValue) -> tuple[LnOp, int] | None:
    """The first op that reads a value, in kernels and out of `ln.once` too, and as which operand; one of the host only
    where no other reads it."""
    return min(_uses(value), key=lambda use: use[0].is_host, default=None)


def _uses(value: SSAValue) -> Iterator[tuple[LnOp, int]]:
    for use in value.uses:
        user: Operation = use.operation
        if isinstance(user, LnOp):
            yield user, use.index
        elif isinstance(user, KernelOp):
            yield from _uses(user.body.args[use.index])
        elif isinstance(user, YieldOp) and isinstance(once := user.parent_op(), OnceOp):
            yield from _uses(once.results[use.index])
