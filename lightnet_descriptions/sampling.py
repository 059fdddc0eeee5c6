"""Test cases of ops that bring none: shapes and parameters that satisfy an op's constraints, found by trying.

A guess takes what the schema says (ranks, dtypes, bounds), mends what equations among the constraints say
(``weight.dims[0] == src.dims[1]``), and is kept if the op's own checks let it pass. The search is deterministic and
bounded. Imports `ir`.
"""

from __future__ import annotations

import random
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir.constraints import check_op, constant_env
from lightnet.ir.expr import Attr, Binary, Expr, Index, Name, Num, parse_expr
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Case, Operand, Param, case
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME
from lightnet_descriptions.c.functions import together

TRIES = 300
WANTED = 3
#: Tries that satisfy the constraints, but not the definition: it is wrong for any.
MISFITS = 20
#: Steps of C that all tries may take together.
STEPS = 1_000_000
_DIMS = (3, 5, 2, 4, 1, 6, 7, 8)


def described_cases(cls: type[LnOp]) -> list[Case]:
    """Up to three test cases of different shapes; none if the search found none."""
    rng = random.Random(cls.optype)
    found: dict[object, Case] = {}
    misfits = 0
    with together(STEPS) as pool:
        for _ in range(TRIES):
            guess = _Guess(cls, rng)
            try:
                guess.mend()
                params = dict(guess.params)
                check_op(cls, guess.specs(), params)
            except LightNetError as e:
                misfits += e.label == f"{cls.optype}.run"
                if misfits == MISFITS or pool.is_empty:
                    break
                continue
            found.setdefault(repr((guess.dims, guess.params)), guess.case())
            if len(found) == WANTED:
                break
    return list(found.values())


class _Guess:
    """One try: dims and dtypes by operand, values by parameter."""

    def __init__(self, cls: type[LnOp], rng: random.Random):
        self.cls, self.schema, self.rng = cls, cls.schema, rng
        self.dims: dict[str, list[int]] = {}
        self.dtypes: dict[str, str] = {}
        self.params: dict[str, Any] = {}
        for operand in self.schema.operands:
            self.operand(operand)
        for param in self.schema.params:
            self.params[param.name] = self.param(param)

    def operand(self, o: Operand) -> None:
        like = o.same_shape
        if like is not None and self.first(like) in self.dims:
            self.dims[o.name] = list(self.dims[self.first(like)])
        else:
            rank = (
                o.rank
                if o.rank is not None
                else self.rng.choice([r for r in (4, 3, 2, 1) if r >= o.min_rank] or [o.min_rank])
            )
            self.dims[o.name] = [self.rng.choice(_DIMS) for _ in range(rank)]
        dtype = o.dtypes[0] if o.dtypes and "f32" not in o.dtypes else "f32"
        self.dtypes[o.name] = self.dtypes.get(self.first(o.same_type or ""), dtype)

    def first(self, name: str) -> str:
        """The field of a tensor's name: ``src1`` is the first of a variadic `src`."""
        variadic = self.schema.variadic_operand
        return variadic.name if variadic is not None and name == f"{variadic.name}1" else name

    def param(self, p: Param) -> Any:
        if p.in_type is not None:
            return p.in_type(TensorSpec((2, 3), BY_NAME["f32"]))
        if p.default is not ... and self.rng.random() < 0.5:
            return p.default
        if not p.is_array:
            return self.scalar(p)
        length = self.length(p)
        return tuple(self.scalar(p) for _ in range(length))

    def scalar(self, p: Param) -> Any:
        if p.kind == "null":
            return None
        if p.kind.startswith("bool"):
            return self.rng.random() < 0.5
        if p.kind.startswith("string"):
            return self.rng.choice(p.choices) if p.choices else "text"
        low = max((self.bound(b) for sign, b in p.bounds if sign in ("ge", "gt", "eq")), default=0)
        values = [low, low + 1, low + 2] if p.realtype == "int" else [low, low + 0.5, low + 1, low + 2]
        return self.rng.choice(values)

    def bound(self, bound: float | str) -> float:
        value = bound if not isinstance(bound, str) else self.evaluate(parse_expr(bound))
        return value if isinstance(value, int | float) and abs(value) < 1e6 else 0

    def length(self, p: Param) -> int:
        if p.length is None:
            return len(next(iter(self.dims.values()), [2, 3]))
        value = p.length if isinstance(p.length, int) else self.evaluate(parse_expr(str(p.length)))
        return value if isinstance(value, int) and 0 <= value <= 16 else 0

    def evaluate(self, e: Expr) -> Any:
        try:
            known = {k: v for k, v in self.params.items() if v is not None}
            return constants.evaluate(e, constant_env(self.cls, self.specs(), known))
        except LightNetError:
            return None

    # -- equations

    def mend(self) -> None:
        """Make the equations among the constraints true, where one side is a dimension or a parameter."""
        for _ in range(2):
            for text in self.cls.checks.values():
                for part in _conjuncts(parse_expr(text)):
                    if isinstance(part, Binary) and part.op == "==":
                        self.equate(part.left, part.right)

    def equate(self, left: Expr, right: Expr) -> None:
        a, b = self.evaluate(left), self.evaluate(right)
        if a != b and not self.assign(left, b):
            self.assign(right, a)

    def assign(self, to: Expr, value: Any) -> bool:
        match to:
            case Index(base=Attr(base=Name(name=name), attr="dims"), subs=(Num(value=int(k)),)) if name in self.dims:
                if (
                    not isinstance(value, int)
                    or isinstance(value, bool)
                    or not 0 <= value < 64
                    or k >= len(self.dims[name])
                ):
                    return False
                self.dims[name][k] = value
                return True
            case Index(base=Name(name=name), subs=(Num(value=int(k)),)) if isinstance(self.params.get(name), tuple):
                values = list(self.params[name])
                if not isinstance(value, int | float) or k >= len(values):
                    return False
                values[k] = value
                self.params[name] = tuple(values)
                return True
            case Name(name=name) if name in self.params and value is not None:
                self.params[name] = value
                return True
        return False

    # -- what it is

    def specs(self) -> list[TensorSpec]:
        specs: list[TensorSpec] = []
        for o in self.schema.operands:
            if o.name in self.dims and o.name in self.dtypes:
                spec = TensorSpec(tuple(self.dims[o.name]), BY_NAME[self.dtypes[o.name]])
                specs += [spec] * (2 if o.variadic else 1)
        return specs

    def case(self) -> Case:
        fields: dict[str, Any] = {}
        for o in self.schema.operands:
            spec = (tuple(self.dims[o.name]), self.dtypes[o.name])
            fields[o.name] = [spec, spec] if o.variadic else spec
        return case("f32", **fields, **self.params)


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "&&":
        return _conjuncts(e.left) + _conjuncts(e.right)
    return [e]
