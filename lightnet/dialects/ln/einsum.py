"""Einstein summation: `einsum`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.numeric import widened
from lightnet.ir.op import ConstraintError, LnOp, case, ln_op, operand, result, string
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME, DTYPES

_TERM = re.compile(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?", re.ASCII)


@dataclass(frozen=True)
class Equation:
    """An einsum equation on operands of known shapes: a label for each dimension (the dimensions of an ellipsis are
    ``.0``, ``.1``, … counted from the last one), and how far each ranges."""

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, int]


def parse_equation(text: str, shapes: Sequence[tuple[int, ...]]) -> Equation:
    """Read ``ij,jk->ik``; without ``->`` the output has the ellipsis, then the labels that occur once, in order.

    A dimension of 1 goes with any extent of its label. Raises `ConstraintError`.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise _wrong(text, f"it names {len(terms)} operands, there are {len(shapes)}")
    operands = tuple(_labels(text, term, len(shape)) for term, shape in zip(terms, shapes))
    extents: dict[str, int] = {}
    for labels, shape in zip(operands, shapes):
        for label, n in zip(labels, shape):
            known = extents.get(label, 1)
            if known != n and 1 not in (known, n):
                raise _wrong(text, f"'{label}' is {known} in one place and {n} in another")
            extents[label] = n if known == 1 else known
    dots = sorted((x for x in extents if x[0] == "."), key=lambda x: -int(x[1:]))
    if arrow:
        if "..." not in right and dots:
            dots = []  # summed over, as NumPy does not and ONNX leaves open
        output = _labels(text, right, len(right.replace("...", "")) + len(dots))
    else:
        flat = [x for labels in operands for x in labels]
        output = (*dots, *sorted(x for x in extents if x[0] != "." and flat.count(x) == 1))
    if len(set(output)) != len(output) or not set(output) <= set(extents):
        raise _wrong(text, "each label of the output should stand there once, and among the operands' labels")
    return Equation(operands, output, extents)


def _labels(text: str, term: str, ndim: int) -> tuple[str, ...]:
    if _TERM.fullmatch(term) is None:
        raise _wrong(text, f"'{term}' should be letters, with at most one '...'")
    before, dots, after = term.partition("...")
    rest = ndim - len(before) - len(after)
    if rest < 0 or (rest and not dots):
        raise _wrong(text, f"'{term}' does not label {ndim} dimensions")
    return (*before, *(f".{k}" for k in range(rest - 1, -1, -1)), *after)


def _wrong(text: str, why: str) -> ConstraintError:
    return ConstraintError(f'einsum: the equation "{text}": {why}', label="einsum.equation")


@ln_op
class Einsum(LnOp):
    """Sums of products by Einstein's convention: dimensions with the same label run together, and those that the output
    does not name are summed over. With or without ``->``; an ellipsis broadcasts. Integers wrap.

    ```mlir
    // %a : tensor<2x3x4xf32>, %b : tensor<2x4x5xf32>
    %y = ln.einsum %a, %b {equation = "bij,bjk->bik"} : tensor<2x3x5xf32>
    ```
    """

    optype = "einsum"
    src = operand(variadic=True, same_type="src1", dtypes=tuple(d.name for d in DTYPES if d.name != "i1"))
    dst = result()
    equation = string()

    @classmethod
    def infer(cls, t, p):
        equation = parse_equation(p.equation, [s.dims for s in t.src])
        return [TensorSpec(tuple(equation.extents[x] for x in equation.output), t.src[0].dtype)]

    def parsed(self) -> Equation:
        """The equation on the shapes of this op."""
        return parse_equation(self.equation, [s.dims for s in self.operand_specs])

    @property
    def definition(self):
        e = self.parsed()

        def index(label: str) -> str:
            return f"e{label[1:]}" if label[0] == "." else f"i_{label}"

        reads = []
        for k, (labels, spec) in enumerate(zip(e.operands, self.operand_specs)):
            subs = [index(x) if n == e.extents[x] else "0" for x, n in zip(labels, spec.dims)]
            reads.append(f"src{k + 1}[{', '.join(subs)}]")
        return f"dst[{', '.join(map(index, e.output))}] += {' * '.join(reads)}"

    def flops(self):
        trips = 1
        for n in self.parsed().extents.values():
            trips *= n
        return trips * len(self.operands)

    def reference(self, *src):
        """By broadcasting every operand to all labels: slow, but nothing of it is ours to get wrong twice."""
        e = self.parsed()
        letters = {x: k for k, x in enumerate(e.extents)}
        wide = list(map(widened, src))
        spread = []
        for x, labels in zip(wide, e.operands):
            dims = tuple(e.extents[label] for label in labels)
            spread += [np.broadcast_to(x, dims), [letters[label] for label in labels]]
        return np.asarray(np.einsum(*spread, [letters[x] for x in e.output]), src[0].dtype)

    @classmethod
    def samples(cls):
        return [
            case(src=[(3, 4), (4, 5)], equation="ij,jk->ik"),
            case(src=[(2, 3, 4), (2, 4, 5)], equation="bij, bjk -> bik"),
            case(src=[(3, 3)], equation="ii->i"), case(src=[(3, 3)], equation="ii"),
            case(src=[(2, 17)], equation="ij->j"),
            case(src=[(2, 1, 3, 4), (5, 4, 2)], equation="...ij,...jk"),
            case(src=[(3,), (5,), (2,)], equation="a,b,c->cab"),
            case("f64", src=[(2, 3), (2, 3)], equation="ij,ij->"), case("i32", src=[(2, 3), (3, 2)], equation="ij,jk"),
            *(case(t, src=[(2, 20), (20, 3)], equation="ij,jk->ki") for t in ("f16", "bf16") if t in BY_NAME),
            case(src=[(2, 0), (0, 3)], equation="ij,jk->ik"),
            case(src=[(2, 3, 4)], equation="a...->...a"), case(src=[()], equation="..."),
        ]  # fmt: skip
