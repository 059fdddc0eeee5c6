"""`arith` and `math` as LLVM instructions, on scalars and, leaf by leaf, on vectors. Part of the emitter.

One table entry an op: a function of the operands' texts. What differs from plain LLVM:

* float arithmetic may contract (``a * b + c`` may become one fused operation); other fast-math flags come from the op;
* integer division is total: ``x / 0`` and ``x % 0`` are 0, and ``min / -1`` wraps;
* ``fptosi`` and ``fptoui`` saturate, NaN becomes 0 (where MLIR leaves the value open).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IndexType, IntegerAttr, VectorType
from xdsl.ir import Operation, SSAValue

from lightnet.backends.elementary.code import DIGITS, BodyText, TypedText
from lightnet.backends.elementary.table import BY_OP
from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.short_floats import SHORT_TYPES, element_text, is_short, short_float, to_odd, widen
from lightnet.backends.llvm.values import (
    Lin,
    Vec,
    leaf_type,
    literal,
    llvm_type,
    splat_literal,
)
from lightnet.diagnostics import LightNetError
from lightnet.dialects import tile_arith

#: (emitter, op, operand texts, operand type, result type, lanes) -> operand text of the result
#: It gets ops of the class that it stands under.
Emit = Callable[[FunctionEmitter, Any, list[str], str, str, int], str]

_FLAG_ORDER = ("reassoc", "nnan", "ninf", "nsz", "arcp", "contract", "afn")


def _flags(op: Operation) -> str:
    """Fast-math flags, with a blank behind: those of the op, and `contract`."""
    attr = op.properties.get("fastmath")
    given = {str(f) for f in attr.data} if isinstance(attr, arith.FastMathFlagsAttr) else set()
    return "".join(f"{f} " for f in _FLAG_ORDER if f in given or f == "contract")


def _instruction(name: str, flagged: bool = False) -> Emit:
    """An instruction on one operand or two of one type, which has the op's fast-math flags or none."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.ins(f"{name} {_flags(op) if flagged else ''}{t} {', '.join(a)}")

    return emit


def _cast(instruction: str) -> Emit:
    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.ins(f"{instruction} {t} {a[0]} to {r}")

    return emit


def _intrinsic(name: str, extra: str = "", flagged: bool = False) -> Emit:
    """An overloaded intrinsic, whose operands have the result's type."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        args = [(r, x) for x in a] + ([("i1", extra)] if extra else [])
        return e.intrinsic(name, r, args, _flags(op) if flagged else "")

    return emit


def _saturating(instruction: str) -> Emit:
    """Float or double (short floats are widened before) to integer: the nearest that there is, NaN as 0. LLVM's own
    intrinsic for that takes vectors apart, so the value is moved into the range first: to its end, or where a float
    does not hold that exactly, to the last float before."""
    signed = instruction == "fptosi"

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        c, source, target = BodyText(e, lanes), element_text(t), element_text(r)
        digits = int(target[1:]) - signed
        low, high = (-(2**digits) if signed else 0), 2**digits - 1
        x = TypedText(c, source, a[0])
        bounds = _bounds(op.operands[0])
        if bounds is not None and low <= bounds[0] <= bounds[1] <= high:
            return c.cast(instruction, x, target).text
        x = c.select(x.compare("ord", "", 0), x, 0)
        x = c.select(x > low, x, low)
        held = DIGITS[source] + 1
        last = high if digits <= held else 2**digits - 2 ** (digits - held)
        whole = c.cast(instruction, c.select(x < last, x, last), target)
        return whole.text if last == high else c.select(x >= 2**digits, high, whole).text

    return emit


# min(x > low ? x : low, high) is within low and high, and no NaN
def _bounds(value: SSAValue) -> tuple[float, float] | None:
    """The numbers between which a vector of floats lies, where that can be read off the ops that make it."""
    least = value.owner
    if not isinstance(least, arith.MinimumfOp) or not isinstance(chosen := least.lhs.owner, tile_arith.SelectOp):
        return None
    test, low, high = chosen.mask.owner, _splat(chosen.b), _splat(least.rhs)
    if not isinstance(test, tile_arith.CmpOp) or test.predicate.data != "olt" or low is None or high is None:
        return None
    return (low, max(low, high)) if test.a is chosen.b and test.b is chosen.a else None


def _splat(value: SSAValue) -> float | None:
    """The number that a constant vector has everywhere."""
    attr = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    if not isinstance(attr, DenseIntOrFPElementsAttr) or not attr.is_splat():
        return None
    return float(attr.get_values()[0])


def _extremum(name: str, predicate: str) -> Emit:
    """`maximumf`/`minimumf` (NaN wins). With a constant, a compare and select: one machine instruction."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        x, number = (a[1], a[0]) if _is_number(a[0]) else (a[0], a[1])
        if not _is_number(number):
            return e.intrinsic(name, r, [(r, x), (r, number)])
        kept = e.ins(f"fcmp {predicate} {r} {number}, {x}")  # false for NaN: x stays
        return e.ins(f"select {leaf_type('i1', lanes)} {kept}, {r} {number}, {r} {x}")

    return emit


def _is_number(text: str) -> bool:
    """Return whether an operand is a float literal other than NaN, alone or as a splat."""
    return not text.startswith(("%", "<", "poison")) and not any(nan in text for nan in _NANS)


#: NaN as `float_literal` writes it: double and float, half, bfloat.
_NANS = ("0x7FF8", "0xH7E", "0xR7FC")


def _divide(instruction: str) -> Emit:
    """Total integer division and remainder."""
    signed, remainder = instruction[0] == "s", instruction.endswith("rem")

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        c, elem = BodyText(e, lanes), element_text(t)
        x, y = (TypedText(c, elem, text) for text in a)
        if not y.text.startswith(("%", "<")) and y.text not in (c.const(0, elem).text, c.const(-1, elem).text):
            return e.ins(f"{instruction} {x.typed}, {y.text}")
        zero = risky = y.equals(0)
        if signed:
            minus = y.equals(-1)
            risky = zero | minus
        safe = c.select(risky, 1, y)
        result = c.ins(elem, f"{instruction} {x.typed}, {safe.text}")  # x % 1 is 0 already
        if remainder:
            return result.text
        if signed:
            result = c.select(minus, 0 - x, result)
        return c.select(zero, 0, result).text

    return emit


def _rounded_divide(up: bool, signed: bool) -> Emit:
    """`floordivsi`, `ceildivsi`, `ceildivui`: the quotient, corrected where the remainder says so."""
    prefix = "s" if signed else "u"

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        c, elem = BodyText(e, lanes), element_text(t)
        quotient, rest = (
            TypedText(c, elem, _divide(f"{prefix}{what}")(e, op, a, t, r, lanes)) for what in ("div", "rem")
        )
        off = rest.differs(0)
        if signed:  # the signs of remainder and divisor differ: the true quotient is below the truncated one
            mixed = rest ^ TypedText(c, elem, a[1])
            off = off & (mixed >= 0 if up else mixed < 0)
        step = c.cast("zext", off, elem)
        return (quotient + step if up else quotient - step).text

    return emit


def _comparison(instruction: str, predicates: Sequence[str]) -> Emit:
    """`cmpi` or `cmpf`, whose predicates are numbers."""

    def emit(e: FunctionEmitter, op: Any, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.ins(f"{instruction} {predicates[op.predicate.value.data]} {t} {a[0]}, {a[1]}")

    return emit


def _cmp(e: FunctionEmitter, op: tile_arith.CmpOp, a: list[str], t: str, r: str, lanes: int) -> str:
    """`tile.cmp`."""
    predicate = op.predicate.data
    instruction = "fcmp" if any(f in t for f in ("half", "bfloat", "float", "double")) else "icmp"
    return e.ins(f"{instruction} {predicate} {t} {a[0]}, {a[1]}")


def _tile_cast(e: FunctionEmitter, op: tile_arith.CastOp, a: list[str], t: str, r: str, lanes: int) -> str:
    """`tile.cast`: the arith op of that name."""
    return _CASTS[op.kind.data](e, op, a, t, r, lanes)


def _extend(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    """`extf`; of a short float to double by way of float."""
    if not is_short(t):
        return _cast("fpext")(e, op, a, t, r, lanes)
    wide = widen(e, a[0], element_text(t), lanes)
    return wide if element_text(r) == "float" else e.ins(f"fpext {leaf_type('float', lanes)} {wide} to {r}")


def _truncate(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    """`truncf`; of double to a short float by way of float, rounded once."""
    if not is_short(r):
        return _cast("fptrunc")(e, op, a, t, r, lanes)
    return short_float(e, to_odd(e, a[0], lanes) if element_text(t) == "double" else a[0], element_text(r), lanes)


_CASTS: dict[str, Emit] = {
    "extf": _extend, "truncf": _truncate, "extsi": _cast("sext"), "extui": _cast("zext"),
    "trunci": _cast("trunc"), "sitofp": _cast("sitofp"), "uitofp": _cast("uitofp"),
    "fptosi": _saturating("fptosi"), "fptoui": _saturating("fptoui"), "bitcast": _cast("bitcast"),
}  # fmt: skip


def _in_float(emit: Emit) -> Emit:
    """An op on short floats: computed in float, and rounded."""

    def wide(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        source, target = element_text(t), element_text(r)
        if source in SHORT_TYPES:
            a, t = [widen(e, x, source, lanes) for x in a], leaf_type("float", lanes)
        if target not in SHORT_TYPES:
            return emit(e, op, a, t, r, lanes)
        return short_float(e, emit(e, op, a, t, leaf_type("float", lanes), lanes), target, lanes)

    return wide


def _rsqrt(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    root = e.intrinsic("sqrt", r, [(r, a[0])])
    return e.ins(f"fdiv contract {BodyText(e, lanes).const(1.0, element_text(r)).typed}, {root}")


def _elementary(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    from lightnet.backends.elementary import emission

    return emission.emit_call(e, op, a, t, r, lanes)


def _rounded(name: str) -> Emit:
    """A whole number of a float: an instruction, or arithmetic where the processor has none."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        if e.has_rounding:
            return _intrinsic(name, flagged=True)(e, op, a, t, r, lanes)
        from lightnet.backends.elementary import emission, rounding

        return emission.in_place(getattr(rounding, name), e, a, r, lanes)

    return emit


ELEMENTWISE: dict[type[Operation], Emit] = {
    arith.AddiOp: _instruction("add"), arith.SubiOp: _instruction("sub"), arith.MuliOp: _instruction("mul"),
    arith.AndIOp: _instruction("and"), arith.OrIOp: _instruction("or"), arith.XOrIOp: _instruction("xor"),
    arith.ShLIOp: _instruction("shl"), arith.ShRUIOp: _instruction("lshr"), arith.ShRSIOp: _instruction("ashr"),
    arith.DivSIOp: _divide("sdiv"), arith.DivUIOp: _divide("udiv"),
    arith.RemSIOp: _divide("srem"), arith.RemUIOp: _divide("urem"),
    arith.FloorDivSIOp: _rounded_divide(up=False, signed=True),
    arith.CeilDivSIOp: _rounded_divide(up=True, signed=True),
    arith.CeilDivUIOp: _rounded_divide(up=True, signed=False),
    arith.MaxSIOp: _intrinsic("smax"), arith.MinSIOp: _intrinsic("smin"),
    arith.MaxUIOp: _intrinsic("umax"), arith.MinUIOp: _intrinsic("umin"),
    arith.AddfOp: _instruction("fadd", flagged=True), arith.SubfOp: _instruction("fsub", flagged=True),
    arith.MulfOp: _instruction("fmul", flagged=True), arith.DivfOp: _instruction("fdiv", flagged=True),
    arith.NegfOp: _instruction("fneg"),
    arith.MaximumfOp: _extremum("maximum", "ogt"), arith.MinimumfOp: _extremum("minimum", "olt"),
    arith.MaxnumfOp: _intrinsic("maxnum", flagged=True), arith.MinnumfOp: _intrinsic("minnum", flagged=True),
    arith.CmpiOp: _comparison("icmp", arith.CMPI_COMPARISON_OPERATIONS),
    arith.CmpfOp: _comparison("fcmp", arith.CMPF_COMPARISON_OPERATIONS),
    arith.ExtFOp: _CASTS["extf"], arith.TruncFOp: _CASTS["truncf"], arith.ExtSIOp: _CASTS["extsi"],
    arith.ExtUIOp: _CASTS["extui"], arith.TruncIOp: _CASTS["trunci"], arith.SIToFPOp: _CASTS["sitofp"],
    arith.UIToFPOp: _CASTS["uitofp"], arith.FPToSIOp: _CASTS["fptosi"], arith.FPToUIOp: _CASTS["fptoui"],
    arith.BitcastOp: _CASTS["bitcast"], tile_arith.CmpOp: _cmp, tile_arith.CastOp: _tile_cast,
    math.RsqrtOp: _rsqrt, math.AbsIOp: _intrinsic("abs", "false"),
    math.CountLeadingZerosOp: _intrinsic("ctlz", "false"),
    math.CountTrailingZerosOp: _intrinsic("cttz", "false"),
    math.CtPopOp: _intrinsic("ctpop"),
    math.AbsFOp: _intrinsic("fabs", flagged=True), math.SqrtOp: _intrinsic("sqrt", flagged=True),
    math.CopySignOp: _intrinsic("copysign", flagged=True),
    math.FloorOp: _rounded("floor"), math.CeilOp: _rounded("ceil"), math.TruncOp: _rounded("trunc"),
    math.RoundOp: _rounded("round"), math.RoundEvenOp: _rounded("roundeven"), math.FmaOp: _intrinsic("fma"),
    **dict.fromkeys(BY_OP, _elementary),
}  # fmt: skip


def _computes(op: Operation) -> bool:
    """Return whether an op with short floats is arithmetic on them, and no conversion that takes them as they are."""
    if isinstance(op, tile_arith.CastOp):
        return op.kind.data not in ("extf", "truncf", "bitcast")
    return not isinstance(op, arith.ExtFOp | arith.TruncFOp | arith.BitcastOp)


def elementwise(e: FunctionEmitter, op: Operation) -> None:
    """Any op of `ELEMENTWISE`, on scalars or vectors."""
    emit, result = e.elementary.get(type(op), ELEMENTWISE[type(op)]), op.results[0]
    if not isinstance(result.type, VectorType):
        source = llvm_type(op.operands[0].type)
        if (source in SHORT_TYPES or llvm_type(result.type) in SHORT_TYPES) and _computes(op):
            emit = _in_float(emit)
        texts = [e.operand(v) for v in op.operands]
        e.scalar_result(result, emit(e, op, texts, source, llvm_type(result.type), 1))
        return
    operands = [e.get_vec(v) for v in op.operands]
    first, lanes, out = operands[0], operands[0].lanes, llvm_type(result.type.element_type)
    if (first.elem in SHORT_TYPES or out in SHORT_TYPES) and _computes(op):
        emit = _in_float(emit)

    def make_leaf(f: int) -> str:
        return emit(e, op, [v.leaf(f) for v in operands], first.leaf_type, leaf_type(out, lanes), lanes)

    def make_scalar(i: int) -> str:
        return emit(e, op, [e.element(v, i) for v in operands], first.elem, out, 1)

    e.bind(result, e.vec(result.type, make_leaf, make_scalar, _roots(operands)))


def _roots(vectors: list[Vec]) -> frozenset[str]:
    return frozenset().union(*(v.roots for v in vectors))


# ---- constants, select, casts ------------------------------------------------------------------------------------


def _constant(e: FunctionEmitter, op: arith.ConstantOp) -> None:
    type, value = op.result.type, op.value
    if isinstance(type, VectorType):
        return _constant_vector(e, op.result, type, value)
    assert isinstance(value, IntegerAttr | FloatAttr)
    number = value.value.data
    e.vals[op.result] = Lin(int(number)) if isinstance(type, IndexType) else literal(number, llvm_type(type))


def _constant_vector(e: FunctionEmitter, result: SSAValue, type: VectorType, value: object) -> None:
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise LightNetError(f"unsupported constant {value}")
    elem = llvm_type(type.element_type)
    numbers = value.get_values()
    if value.is_splat():
        text = literal(numbers[0], elem)
        vec = e.vec(type, lambda f: splat_literal(elem, vec.lanes, text), lambda i: text)
    else:
        texts = [literal(n, elem) for n in numbers]

        def make_leaf(f: int) -> str:
            lanes = texts[f * vec.lanes : (f + 1) * vec.lanes]
            return lanes[0] if vec.lanes == 1 else f"<{', '.join(f'{elem} {t}' for t in lanes)}>"

        vec = e.vec(type, make_leaf, texts.__getitem__)
    e.vals[result] = vec


def _select(e: FunctionEmitter, op: arith.SelectOp) -> None:
    result = op.result
    if not isinstance(result.type, VectorType):
        type, cond = llvm_type(result.type), e.operand(op.cond)
        if cond in ("true", "false"):
            e.vals[result] = e.vals[op.lhs if cond == "true" else op.rhs]
            return
        text = f"select i1 {cond}, {type} {e.operand(op.lhs)}, {type} {e.operand(op.rhs)}"
        e.scalar_result(result, e.ins(text))
        return
    cond, a, b = e.operand(op.cond), e.get_vec(op.lhs), e.get_vec(op.rhs)

    def make_leaf(f: int) -> str:
        return e.ins(f"select i1 {cond}, {a.leaf_type} {a.leaf(f)}, {a.leaf_type} {b.leaf(f)}")

    def make_scalar(i: int) -> str:
        return e.ins(f"select i1 {cond}, {a.elem} {e.element(a, i)}, {a.elem} {e.element(b, i)}")

    e.bind(result, e.vec(result.type, make_leaf, make_scalar, _roots([a, b])))


def _vector_select(e: FunctionEmitter, op: tile_arith.SelectOp) -> None:
    mask, a, b = (e.get_vec(v) for v in op.operands)

    def make_leaf(f: int) -> str:
        text = f"select {mask.leaf_type} {mask.leaf(f)}, {a.leaf_type} {a.leaf(f)}, {a.leaf_type} {b.leaf(f)}"
        return e.ins(text)

    def make_scalar(i: int) -> str:
        return e.ins(f"select i1 {e.element(mask, i)}, {a.elem} {e.element(a, i)}, {a.elem} {e.element(b, i)}")

    e.bind(op.result, e.vec(op.result.type, make_leaf, make_scalar, _roots([mask, a, b])))


def _index_cast(e: FunctionEmitter, op: arith.IndexCastOp) -> None:
    source, target = op.input.type, op.result.type
    bits, text = int(llvm_type(target)[1:]), e.operand(op.input)
    known = int(llvm_type(source)[1:])
    if bits != known and text.startswith("%"):
        text = e.ins(f"{'trunc' if bits < known else 'sext'} i{known} {text} to i{bits}")
    if isinstance(target, IndexType):
        e.bind_parts(op.result, [text])
    else:
        e.vals[op.result] = text


HANDLERS: dict[type[Operation], Handler] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    arith.ConstantOp: _constant,
    arith.SelectOp: _select,
    tile_arith.SelectOp: _vector_select,
    arith.IndexCastOp: _index_cast,
}
