"""The page docs/edge-values.md: what floats at the edge become, found out by executing the ops' references. Imports lightnet; `tools/docs.py` writes it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from xdsl.ir import Block

from lightnet.backends.elementary.table import FUNCTIONS
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME, DType, convert, is_float

#: Families that reduce, pool, normalise or scan; and what takes extremes or clips, by name or by definition.
FAMILIES = ("reduce", "pool", "pool_nd", "norm", "scan")
_EXTREMES = re.compile("max|min|clip", re.IGNORECASE)
_TINY = float(np.finfo(np.float32).smallest_subnormal)
#: A column: its heading, the value that one element of the data has, and the value of all others.
COLUMNS: tuple[tuple[str, float, float], ...] = (
    ("NaN", np.nan, 1), ("inf", np.inf, 1), ("-inf", -np.inf, 1), ("-0, and 0", -0.0, 0.0), ("-0 alone", -0.0, -0.0),
    ("a denormal, and 0", _TINY, 0.0),
)  # fmt: skip
CASTS = (np.nan, np.inf, -np.inf, -0.0, 1.9, -1.9, 300.0, -300.0, 3e9, 1e20, 65519.0, 65520.0, 1e-45)
TEXT = """# Floats at the edge

What NaN, infinities, zeros of both signs, denormals and the largest numbers become. The tables are executed: each cell is what an op gives for f32, at the element that the
special value belongs to, by the reference that every target is held to: machine code for three kinds of processor, in blocks of channels and plain, PTX, and folded constants, in f32, f64, f16 and bf16
(`python tests/edge_values.py` lists what would differ).

* **NaN goes through.** A sum, a mean, a product, an extreme, a pool, a norm and a softmax with a NaN in it are NaN: ONNX leaves it open for extremes, NumPy and ONNX's reference evaluator do it, and a NaN
  that is lost is a fault that nobody finds. `argmax` and `argmin` give the place of the first NaN (NumPy's rule); `sort1d` and `topk` take it for the largest number.
* **Infinities are numbers**: inf - inf is NaN, so a softmax or a norm with an infinity in its row is NaN where that difference is taken (-inf in a softmax is a weight of 0).
* **Denormals are kept**; nothing flushes them.
* **-0.** Moves and what goes element by element keep it. `clip` compares, so -0 within [0, 6] stays -0 (ONNX Runtime and PyTorch; NumPy gives the bound). A sum begins at 0, so that of -0 alone is 0 however it is cut
  in parts; a sum of one element is that element. `maximum` and `minimum` order -0 before 0 (IEEE 754-2019). Not promised is the sign of a zero that is the extreme of zeros of both signs in a pool or
  a reduction, which are equal to a comparison (kernels on maps in blocks of channels take the last), and that of a zero which a norm gives.
* **Sums are made in f32** of f32, f16 and bf16, in an order that depends on the target: whether a sum of numbers of both signs near the largest overflows depends on it, too. One of numbers of one sign, or of squares, that is beyond
  f32 is infinite on every target, so the mean of such numbers is infinite, a norm by their squares 0 (as in ONNX Runtime), their layer norm NaN (its: 0). Norms subtract the mean before they square, so a
  large mean does not overflow a small variance.
* **Casts.** A float becomes an integer by truncation, and the nearest there is where it is out of range; NaN becomes 0. ONNX leaves that undefined (x86 gives the least integer, ARM saturates): saturating is the same on every machine.
  From integer to narrower integer the low bits stay where the network says so (`wrap`, as ONNX and C), else it saturates. A float out of the range of a narrower float is an infinity with
  `wrap` (ONNX), the largest number else.
"""


def decided() -> dict[str, type[LnOp]]:
    """The ops that the page lists: those of floats in the families, and those that clip or take extremes."""
    found = {}
    for name, cls in sorted(optypes().items()):
        if cls.schema.operands and (cls.__module__.rpartition(".")[2] in FAMILIES or _EXTREMES.search(name)):
            found[name] = cls
    return found


def page() -> str:
    """The page's text."""
    rows = [row for name, cls in decided().items() if (row := _row(name, cls)) is not None]
    head = ("op", *(column for column, _, _ in COLUMNS))
    casts = [(shown(x), *(shown(_cast(x, dtype)) for dtype in _TARGETS)) for x in CASTS]
    return "\n".join([
        TEXT, "## Reductions, pools, norms, extremes", "One element of the data is the first number, all others the second (or 1); parameters are 1.", "",
        *_table(head, rows), "## Casts of f32", "Those of `cast`, saturating; `f16` and `bf16` as ONNX's Cast (`wrap`).", "",
        *_table(("from", *_TARGETS), casts), ELEMENTARY, "",
        *_table(("function", "f32", "f64", "method"),
                [(f.name, f"{f.float_ulp:g}", f"{f.double_ulp:g}", f.method) for f in FUNCTIONS.values()]),
    ])  # fmt: skip


ELEMENTARY = """## Elementary functions

Every target computes them by the same definitions (`backends/elementary`), which need no library: the same bits on each processor that multiplies and adds in one step. Those of f32 are mostly computed in double
and rounded, without branches, so they vectorise; those of f16 and bf16 are those of f32, rounded. How far results are off at most, in units in the last place (half a unit more for f64 on processors without fused
multiply-adds); at NaN, infinities, zeros and outside of the domain they are what C's Annex F says, and sin, cos and tan are as exact of the largest arguments as of small ones. f64 is held to 3 units, and not to 1:
networks have little of it, and pairs of doubles all through would take twice the time."""


_TARGETS = ("i8", "ui8", "i32", "i64", "i1", "f16", "bf16")


def _cast(value: float, dtype: str) -> Any:
    target = BY_NAME[dtype]
    with np.errstate(all="ignore"):
        op = optypes()["cast"].make(
            list(Block(arg_types=[tensor_type(TensorSpec((1,), BY_NAME["f32"]))]).args),
            {"dtype": target.tl, "mode": "wrap" if target.is_float else "saturate"},
        )
        return op.evaluate([np.array([value], np.float32)])[0][0]


def _row(name: str, cls: type[LnOp]) -> tuple[str, ...] | None:
    """The op on each column, by its first sample of f32 in which more than one element counts."""
    for sample in cls.samples():
        case = cls.schema.resolve(sample)
        fields = [f for f in cls.schema.operands for _ in (case.tensors[f.name] if f.variadic else (0,))]
        specs = [
            s for f in cls.schema.operands for s in (case.tensors[f.name] if f.variadic else (case.tensors[f.name],))
        ]
        if any(s.dtype.name != "f32" for s in specs) or specs[0].len < 2:
            continue
        op = cls.make(list(Block(arg_types=[tensor_type(s) for s in specs]).args), dict(case.params))
        arrays = [_ones(s, f.kind) for s, f in zip(specs, fields)]
        cells = []
        for _, special, other in COLUMNS:
            data = np.full(specs[0].dims, other, np.float32)
            data.reshape(-1)[0] = special
            cells.append(shown(op.evaluate([data, *arrays[1:]])[0].reshape(-1)[0]))
        return (f"[{name}](ops.md#ln{name})", *cells)
    return None


def _ones(spec: TensorSpec, kind: str) -> np.ndarray:
    return convert(np.ones(spec.dims), spec.dtype) if isinstance(spec.dtype, DType) else np.ones(spec.dims, np.float32)


def shown(value: Any) -> str:
    """A number as the tables have it: its sign with a zero, few digits."""
    if isinstance(value, np.bool_ | bool):
        return str(bool(value)).lower()
    if not is_float(np.asarray(value).dtype):
        return str(int(value))
    x = float(value)
    if x != x:
        return "NaN"
    return "-0" if x == 0 and np.signbit(x) else f"{x:.4g}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows), ""]
