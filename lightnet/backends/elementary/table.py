"""The elementary functions: one row each, by which kernels of every target compute them, with no library.

A row names the definitions and says how arguments are reduced, by whose method, and how large errors are. Definitions
are IR of basic operations (`code`), so they give the same bits on every processor that multiplies and adds in one step,
on a device, and in the interpreter of PTX. Those of float have no branches, stand in place, and vectorise; those of
double are functions. Imports xDSL; a definition's module when it is asked for.
"""

from __future__ import annotations

from importlib import import_module

from xdsl.dialects import math
from xdsl.ir import Operation

from lightnet.backends.elementary.code import BodyText, Definition, TypedText
from lightnet.dataclasses import dataclass

#: What symbols of functions begin with.
PREFIX = "ln."


def is_function(declaration: str) -> bool:
    """Return whether a line declares one of our functions."""
    return f"@{PREFIX}" in declaration and declaration.startswith("declare")


@dataclass(frozen=True)
class Elementary:
    """A row: the op, its operands, the module that has the definition of double called `name`, and with `is_float` one
    of float, ``name_float``; other floats are computed in double, and rounded. `float_ulp` and `double_ulp` are what
    results are off at most, in units in the last place: `tests/backends/llvm/test_elementary.py` holds them."""

    op: type[Operation]
    module: str
    float_ulp: float
    double_ulp: float
    method: str
    is_float: bool = False
    arity: int = 1

    @property
    def name(self) -> str:
        """The function's name: the op's in MLIR, C's where they differ."""
        name = self.op.name.partition(".")[2]
        return {"powf": "pow"}.get(name, name)

    def definition(self, type: str) -> Definition:
        """The definition that computes it, of LLVM's type `float` or `double`."""
        module = import_module(f"lightnet.backends.elementary.{self.module}")
        if type == "float":
            return getattr(module, f"{self.name}_float") if self.is_float else _rounded(self.definition("double"))
        return getattr(module, self.name)


def _rounded(double: Definition) -> Definition:
    """A function of float, as that of double, rounded."""

    def body(c: BodyText, *args: TypedText) -> TypedText:
        return c.cast("fptrunc", double(c, *(c.cast("fpext", x, "double") for x in args)), "float")

    return body


_EXP, _CIRCLE, _RATIONAL = "exponential", "circle", "rational"
_BY_LN2 = "n ln 2 + r, Taylor's sum (Cody and Waite 1980)"
_ARTANH = "2^k m, 2 artanh(f / (2 + f)) (fdlibm)"
_BY_PI = "n pi/2 + r (Payne and Hanek 1983), Taylor's sums"
_BY_EIGHTHS = "arctan within an eighth of a turn of three angles, a polynomial fitted to 4e-18"
_ROWS = (
    Elementary(math.ExpOp, _EXP, 1.0, 1.0, _BY_LN2, True),
    Elementary(math.Exp2Op, _EXP, 0.501, 1.0, "n + r, Taylor's sum of r ln 2", True),
    Elementary(math.ExpM1Op, _EXP, 0.501, 2.0, _BY_LN2),
    Elementary(math.LogOp, _EXP, 0.501, 1.3, _ARTANH, True),
    Elementary(math.Log1pOp, _EXP, 0.501, 2.0, "log of the sum and what it lost"),
    Elementary(math.Log2Op, _EXP, 0.501, 0.51, f"{_ARTANH}, of double in pairs (Dekker 1971)", True),
    Elementary(math.Log10Op, _EXP, 0.501, 0.51, f"{_ARTANH}, of double in pairs (Dekker 1971)", True),
    Elementary(math.PowFOp, _EXP, 0.501, 0.55, "exp(y log x), of double in pairs (Dekker 1971)", True, 2),
    Elementary(math.CbrtOp, _EXP, 0.501, 0.51, "exp(log(x) / 3), a step of Newton's"),
    Elementary(math.SinhOp, _EXP, 0.501, 2.8, "expm1 below 22, exp(x/2) squared beyond"),
    Elementary(math.CoshOp, _EXP, 0.501, 2.8, "exp below 22, exp(x/2) squared beyond"),
    Elementary(math.TanhOp, _RATIONAL, 4.5, 2.6, "a rational function fitted to 2e-8; of double expm1", True),
    Elementary(math.AsinhOp, _EXP, 0.501, 2.0, "log1p below 2^28, log beyond"),
    Elementary(math.AcoshOp, _EXP, 0.501, 2.2, "log1p below 2^28, log beyond"),
    Elementary(math.AtanhOp, _EXP, 0.501, 2.6, "log1p(2x / (1 - x)) / 2"),
    Elementary(math.SinOp, _CIRCLE, 0.501, 0.8, _BY_PI, True),
    Elementary(math.CosOp, _CIRCLE, 0.501, 0.8, _BY_PI, True),
    Elementary(math.TanOp, _CIRCLE, 0.501, 2.2, f"{_BY_PI}, their quotient", True),
    Elementary(math.AsinOp, _CIRCLE, 0.501, 2.8, f"arctan(x / sqrt(1 - x²)): {_BY_EIGHTHS}"),
    Elementary(math.AcosOp, _CIRCLE, 0.501, 2.9, f"2 arctan(sqrt((1 - x) / (1 + x))): {_BY_EIGHTHS}"),
    Elementary(math.AtanOp, _CIRCLE, 0.501, 2.2, _BY_EIGHTHS),
    Elementary(math.Atan2Op, _CIRCLE, 0.501, 2.2, _BY_EIGHTHS, arity=2),
    Elementary(math.ErfOp, _RATIONAL, 4.5, 2.1, "a rational function fitted to 2e-8; of double two polynomials", True),
)  # fmt: skip
#: Every function by its name, and by its op.
FUNCTIONS = {row.name: row for row in _ROWS}
BY_OP = {row.op: row for row in _ROWS}
