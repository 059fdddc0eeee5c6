"""Every op on the floats at the edge: NaN, infinities, zeros of both signs, denormals, the largest. All targets must agree to the letter.

    python tests/edge_values.py [OP ...] [--dtype f32] [--target cpu]

The ops, their samples and the references come from the registry. What is the same: NaN for NaN, infinities and zeros with their signs, other numbers up to
rounding (integers and moves to the bit).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from kernels import sample_ops
from op_cases import beside
from xdsl.ir import Block

import lightnet
from lightnet.backends.kernel_loops import bind_op
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.intervals import has_positions
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.model import Model
from lightnet.runtime.dtypes import BY_NAME, BY_NP, is_float, widened_array

HOST = ("create", "input", "param", "print", "fprint")
OPS = {name: cls for name, cls in sorted(optypes().items()) if name not in HOST and cls.schema.operands}
DTYPES = ("f32", "f64", "f16", "bf16")
#: In a definition: an extreme of several elements, and of any.
REDUCED, EXTREMES = re.compile(r"\b(?:arg)?(?:max|min)="), re.compile(r"\b(?:arg)?(?:min|max)=|\b(?:min|max|clamp)\(")
#: Ops of which docs/edge-values.md says what they do: of these families, and those that clip or take extremes, by their definitions.
FAMILIES = ("reduce", "pool", "pool_nd", "norm", "scan", "sort")
#: Nothing but this.
ONLY = (-0.0, -0.0)
#: Nothing but numbers of one sign near the largest of the type, and those whose squares are beyond it, as parts of it or of its root: sums of both signs depend on
#: their order.
LARGE, SQUARES = (0.94, 0.88, 0.85), (1.6, 1.4)
#: What is sprinkled over ordinary numbers, a set a case.
SPRINKLED = {
    "nan": (np.nan,),
    "inf": (np.inf, -np.inf),
    "+inf": (np.inf,),
    "-inf": (-np.inf,),
    "zero": (0.0, -0.0),
    "-0": (-0.0,),
    "only -0": ONLY,
    "all": (np.nan, np.inf, -np.inf, 0.0, -0.0),
    "large": LARGE,
    "squares": SQUARES,
}
#: Elements of the largest operand.
MOST = 4000


def decided() -> list[str]:
    """The ops that the page is about, but for those that read at places which floats give."""
    found = []
    for name, cls in OPS.items():
        ops = [op for op, _ in sample_ops(cls) if op.definition and EXTREMES.search(op.definition)]
        if cls.__module__.rpartition(".")[2] in FAMILIES or (ops and not has_positions(bind_op(ops[0]))):
            found.append(name)
    return found


@dataclass(frozen=True)
class Edge:
    """One op on operands with special values, and what its reference gives."""

    cls: type[LnOp]
    sample: int
    what: str
    specs: tuple[TensorSpec, ...]
    params: dict[str, Any]
    arrays: list[np.ndarray]
    want: list[np.ndarray]
    definition: str

    def __str__(self) -> str:
        shown = {k: v for k, v in self.params.items() if self.cls.schema.by_name[k].default != v}
        return f"{self.cls.optype} sample {self.sample} ({', '.join(map(str, self.specs))}) {shown}, {self.what}"


def limits_of(dtype: np.dtype) -> float:
    """The largest number of a type of floats."""
    return BY_NP[dtype].limits[1]


def sprinkled(array: np.ndarray, values: tuple[float, ...], rng: np.random.Generator) -> np.ndarray:
    """`array` with some of its elements replaced; all of one, where it is the first row."""
    flat = array.astype(array.dtype, copy=True).reshape(-1)
    if flat.size:
        count = max(1, flat.size // 12)
        at = rng.choice(flat.size, count, replace=False)
        whole = values in (ONLY, LARGE, SQUARES)
        at = slice(None) if whole else at
        count = flat.size if whole else count
        top = float(limits_of(array.dtype)) if values in (LARGE, SQUARES) else 1.0
        scale = top**0.5 if values == SQUARES else top
        flat[at] = (scale * np.array(values, np.float64)[rng.integers(len(values), size=count)]).astype(array.dtype)
    return flat.reshape(array.shape)


def cases(name: str, dtype: str, most: int | None = None) -> Iterator[Edge]:
    """The cases of an op whose data is of a type of floats."""
    cls = OPS[name]
    d = BY_NAME[dtype]
    found = 0
    for number, sample in enumerate(cls.samples()):
        case = cls.schema.resolve(sample)
        fields = [f for f in cls.schema.operands for _ in (case.tensors[f.name] if f.variadic else (0,))]
        specs = [
            s for f in cls.schema.operands for s in (case.tensors[f.name] if f.variadic else (case.tensors[f.name],))
        ]
        if not any(s.dtype.name == "f32" for s in specs) or any(s.len > MOST or not s.len for s in specs):
            continue
        retyped = tuple(TensorSpec(s.dims, d) if s.dtype.name == "f32" else s for s in specs)
        for what, values in SPRINKLED.items():
            if values in (LARGE, SQUARES) and cls.__module__.rpartition(".")[2] not in FAMILIES:
                continue  # weights, or places, of both signs
            edge = _edge(cls, number, what, values, retyped, fields, dict(case.params), found)
            if edge is None:
                break
            yield edge
            found += 1
            if most is not None and found >= most:
                return


def _edge(cls: type[LnOp], number: int, what: str, values: tuple[float, ...], specs: tuple[TensorSpec, ...], fields: list, params: dict[str, Any],
          seed: int) -> Edge | None:  # fmt: skip
    rng = np.random.default_rng([seed, number])
    try:
        op = cls.make(list(Block(arg_types=[tensor_type(s) for s in specs]).args), dict(params))
    except LightNetError:
        return None
    names = op.arg_names()[0]
    tensors = dict(zip(names, specs))
    arrays = [cls.sample_data(n, f.kind, s, tensors, params, seed) for n, f, s in zip(names, fields, specs)]
    arrays = [
        sprinkled(a, values, rng) if is_float(a.dtype) and f.kind == "data" else a for a, f in zip(arrays, fields)
    ]
    return Edge(cls, number, what, specs, params, arrays, op.evaluate(arrays), op.definition or "")


def model_of(found: list[Edge]) -> tuple[Model, dict[str, np.ndarray]]:
    """A network of all cases beside each other, and what to feed it."""
    return beside(found, "edge values")


TARGETS: dict[str, Callable[[Model], Any]] = {
    "cpu": lambda model: lightnet.compile(model),
    "plain": lambda model: lightnet.compile(model, layout="plain"),
    "x86-64-v3": lambda model: lightnet.compile(model, cpu="x86-64-v3"),
    "x86-64": lambda model: lightnet.compile(model, cpu="x86-64"),
    "cuda": lambda model: lightnet.compile(model, "cuda", on_cpu=True),
    "ptx": lambda model: lightnet.compile(model, "cuda", emulate=True),
}

#: Relative; and what a number may differ by that is nearly nothing. A short float may be the next one.
TOLERANCES = {"f64": (1e-9, 1e-12), "f32": (2e-4, 1e-5), "f16": (4e-3, 1e-3), "bf16": (3e-2, 1e-2)}


def letter(array: np.ndarray) -> np.ndarray:
    """What kind of number each element is: NaN 0, infinity 1, −infinity −1, 0 is 2, −0 is −2, another 3."""
    a = widened_array(array).astype(np.float64)
    kind = np.full(a.shape, 3)
    kind[np.isnan(a)] = 0
    kind[np.isposinf(a)], kind[np.isneginf(a)] = 1, -1
    zero = a == 0
    kind[zero] = np.where(np.signbit(a[zero]), -2, 2)
    return kind


def signs_count(case: Edge) -> bool:
    """Whether the sign of a zero is promised: not of what a norm gives, and not of the extreme of zeros of both signs."""
    family = case.cls.__module__.rpartition(".")[2]
    takes_both = "zero" in case.what or case.what == "all"
    return family != "norm" and not (takes_both and REDUCED.search(case.definition))


def difference(got: np.ndarray, want: np.ndarray, signs: bool = True) -> str | None:
    """What is not the same to the letter; `signs` says whether 0 and -0 are two letters."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if not is_float(want.dtype):
        wrong = np.flatnonzero((got != want).reshape(-1))
        return (
            None
            if not wrong.size
            else f"{wrong.size} of {want.size}: {got.reshape(-1)[wrong[0]]} for {want.reshape(-1)[wrong[0]]} at {wrong[0]}"
        )
    rtol, atol = TOLERANCES[BY_NP[want.dtype].name]
    a, b = widened_array(got).astype(np.float64), widened_array(want).astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    near = np.zeros(a.shape, bool)
    with np.errstate(all="ignore"):
        near[finite] = np.abs(a - b)[finite] <= atol + rtol * np.abs(b)[finite]
    kinds = (letter(got), letter(want)) if signs else (np.abs(letter(got)), np.abs(letter(want)))
    if not signs:  # infinities have theirs
        kinds = tuple(np.where(np.isinf(x), np.sign(x), k) for x, k in zip((a, b), kinds))
    # What rounding makes nothing of may be a zero in one, and nearly one in the other.
    nothing = finite & (np.abs(a) <= atol) & (np.abs(b) <= atol) & ((a != 0) | (b != 0))
    same = np.where(finite, near & ((kinds[0] == kinds[1]) | nothing), kinds[0] == kinds[1])
    wrong = np.flatnonzero(~same.reshape(-1))
    if not wrong.size:
        return None
    k = int(wrong[0])
    return f"{wrong.size} of {want.size}: {a.reshape(-1)[k]:g} for {b.reshape(-1)[k]:g} at {k}"


def differences(name: str | list[str], dtype: str, target: str, most: int | None = None) -> list[str]:
    """What a target makes of an op's special values otherwise than its reference."""
    found = [case for one in ([name] if isinstance(name, str) else name) for case in cases(one, dtype, most)]
    if not found:
        return []
    model, feeds = model_of(found)
    got = TARGETS[target](model)(feeds)
    wrong = []
    for k, case in enumerate(found):
        for j, want in enumerate(case.want):
            if (said := difference(got[f"y{k}_{j}"], want, signs_count(case))) is not None:
                wrong.append(f"{target}: {case}: {said}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--target", action="append")
    args = parser.parse_args()
    count = 0
    for name in args.ops or OPS:
        for dtype in args.dtype or DTYPES:
            for target in args.target or TARGETS:
                try:
                    wrong = differences(name, dtype, target)
                except Exception as e:
                    wrong = [f"{target}: {name} {dtype}: {type(e).__name__}: {str(e)[:300]}"]
                for line in wrong:
                    print(line, flush=True)
                    count += 1
    print(f"{count} differences")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
