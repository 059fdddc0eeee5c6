"""`arith` and `math` as LLVM instructions, on scalars and, leaf by leaf, on vectors. Part of the emitter.

One table entry an op: a function of the operands' texts. What differs from plain LLVM:

* float arithmetic may contract (``a * b + c`` may become one fused operation); other fast-math flags come from the op;
* integer division is total: ``x / 0`` and ``x % 0`` are 0, and ``min / -1`` wraps;
* ``fptosi`` and ``fptoui`` saturate, NaN becomes 0 (where MLIR leaves the value open).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IndexType, IntegerAttr, VectorType
from xdsl.ir import Operation, SSAValue

from lightnet.backends.elementary.table import BY_OP
from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.short_floats import SHORT, element_text, is_short, short_float, to_odd, widen
from lightnet.backends.llvm.values import (
    Lin,
    Vec,
    float_literal,
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


def _binary(instruction: str) -> Emit:
    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.ins(f"{instruction} {t} {a[0]}, {a[1]}")

    return emit


def _float_binary(instruction: str) -> Emit:
    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.ins(f"{instruction} {_flags(op)}{t} {a[0]}, {a[1]}")

    return emit


def _cast(instruction: str) -> Emit:
    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.ins(f"{instruction} {t} {a[0]} to {r}")

    return emit


def _intrinsic(name: str) -> Emit:
    """An overloaded intrinsic on floats, whose operands have the result's type."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.intrinsic(name, r, [(r, x) for x in a], _flags(op))

    return emit


def _int_intrinsic(name: str, extra: str = "") -> Emit:
    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return e.intrinsic(name, r, [(r, x) for x in a] + ([("i1", extra)] if extra else []))

    return emit


def _saturating(instruction: str) -> Emit:
    """Float or double (short floats are widened before) to integer: the nearest that there is, NaN as 0. LLVM's own
    intrinsic for that takes vectors apart, so the value is moved into the range first: to its end, or where a float
    does not hold that exactly, to the last float before."""
    signed = instruction == "fptosi"

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        source, bits = element_text(t), int(element_text(r)[1:])
        digits = bits - 1 if signed else bits
        low, high = (-(2**digits) if signed else 0), 2**digits - 1
        cond = leaf_type("i1", lanes)

        def number(value: float) -> str:
            return splat_literal(source, lanes, float_literal(float(value), source))

        def choose(test: str, yes: str, no: str, type: str) -> str:
            return e.ins(f"select {cond} {test}, {type} {yes}, {type} {no}")

        x = choose(e.ins(f"fcmp ord {t} {a[0]}, {number(0)}"), a[0], number(0), t)
        x = choose(e.ins(f"fcmp ogt {t} {x}, {number(low)}"), x, number(low), t)
        last = high if digits <= _DIGITS[source] else 2**digits - 2 ** (digits - _DIGITS[source])
        whole = e.ins(
            f"{instruction} {t} {choose(e.ins(f'fcmp olt {t} {x}, {number(last)}'), x, number(last), t)} to {r}"
        )
        if last == high:
            return whole
        above = e.ins(f"fcmp oge {t} {x}, {number(2**digits)}")
        return choose(above, splat_literal(element_text(r), lanes, str(high)), whole, r)

    return emit


#: Digits of the significand.
_DIGITS = {"float": 24, "double": 53}


def _extremum(name: str, predicate: str) -> Emit:
    """`maximumf`/`minimumf` (NaN wins). With a constant, a compare and select: one machine instruction."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        x, c = (a[1], a[0]) if _is_number(a[0]) else (a[0], a[1])
        if not _is_number(c):
            return e.intrinsic(name, r, [(r, x), (r, c)])
        kept = e.ins(f"fcmp {predicate} {r} {c}, {x}")  # false for NaN: x stays
        cond = f"<{lanes} x i1>" if lanes > 1 else "i1"
        return e.ins(f"select {cond} {kept}, {r} {c}, {r} {x}")

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
        x, y = a
        elem = t[1:-1].partition(" x ")[2] if lanes > 1 else t
        cond = f"<{lanes} x i1>" if lanes > 1 else "i1"
        const = {k: splat_literal(elem, lanes, k) for k in ("0", "1", "-1")}
        if not y.startswith(("%", "<")) and y not in (const["0"], const["-1"]):
            return e.ins(f"{instruction} {t} {x}, {y}")
        zero = e.ins(f"icmp eq {t} {y}, {const['0']}")
        risky = zero
        if signed:
            minus = e.ins(f"icmp eq {t} {y}, {const['-1']}")
            risky = e.ins(f"or {cond} {zero}, {minus}")
        safe = e.ins(f"select {cond} {risky}, {t} {const['1']}, {t} {y}")
        result = e.ins(f"{instruction} {t} {x}, {safe}")  # x % 1 is 0 already
        if remainder:
            return result
        if signed:
            negated = e.ins(f"sub {t} {const['0']}, {x}")
            result = e.ins(f"select {cond} {minus}, {t} {negated}, {t} {result}")
        return e.ins(f"select {cond} {zero}, {t} {const['0']}, {t} {result}")

    return emit


def _rounded_divide(up: bool, signed: bool) -> Emit:
    """`floordivsi`, `ceildivsi`, `ceildivui`: the quotient, corrected where the remainder says so."""
    prefix = "s" if signed else "u"

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        elem = t[1:-1].partition(" x ")[2] if lanes > 1 else t
        cond = f"<{lanes} x i1>" if lanes > 1 else "i1"
        zero = splat_literal(elem, lanes, "0")
        quotient = _divide(f"{prefix}div")(e, op, a, t, r, lanes)
        rest = _divide(f"{prefix}rem")(e, op, a, t, r, lanes)
        off = e.ins(f"icmp ne {t} {rest}, {zero}")
        if signed:  # the signs of remainder and divisor differ: the true quotient is below the truncated one
            mixed = e.ins(f"xor {t} {rest}, {a[1]}")
            sign = e.ins(f"icmp {'sge' if up else 'slt'} {t} {mixed}, {zero}")
            off = e.ins(f"and {cond} {off}, {sign}")
        step = e.ins(f"zext {cond} {off} to {t}")
        return e.ins(f"{'add' if up else 'sub'} {t} {quotient}, {step}")

    return emit


def _cmpi(e: FunctionEmitter, op: arith.CmpiOp, a: list[str], t: str, r: str, lanes: int) -> str:
    predicate = arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
    return e.ins(f"icmp {predicate} {t} {a[0]}, {a[1]}")


def _cmpf(e: FunctionEmitter, op: arith.CmpfOp, a: list[str], t: str, r: str, lanes: int) -> str:
    predicate = arith.CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]
    return e.ins(f"fcmp {predicate} {t} {a[0]}, {a[1]}")


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
        if source in SHORT:
            a, t = [widen(e, x, source, lanes) for x in a], leaf_type("float", lanes)
        if target not in SHORT:
            return emit(e, op, a, t, r, lanes)
        return short_float(e, emit(e, op, a, t, leaf_type("float", lanes), lanes), target, lanes)

    return wide


def _fma(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    return e.intrinsic("fma", r, [(r, x) for x in a])


def _negf(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    return e.ins(f"fneg {t} {a[0]}")


def _rsqrt(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    elem = r[1:-1].partition(" x ")[2] if lanes > 1 else r
    root = e.intrinsic("sqrt", r, [(r, a[0])])
    return e.ins(f"fdiv contract {r} {splat_literal(elem, lanes, float_literal(1.0, elem))}, {root}")


def _elementary(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    from lightnet.backends.elementary import emission

    return emission.emit_call(e, op, a, t, r, lanes)


def _rounded(name: str) -> Emit:
    """A whole number of a float: an instruction, or arithmetic where the processor has none."""

    def emit(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        if e.has_rounding:
            return _intrinsic(name)(e, op, a, t, r, lanes)
        from lightnet.backends.elementary import emission, rounding

        return emission.in_place(getattr(rounding, name), e, a, r, lanes)

    return emit


ELEMENTWISE: dict[type[Operation], Emit] = {
    arith.AddiOp: _binary("add"), arith.SubiOp: _binary("sub"), arith.MuliOp: _binary("mul"),
    arith.AndIOp: _binary("and"), arith.OrIOp: _binary("or"), arith.XOrIOp: _binary("xor"),
    arith.ShLIOp: _binary("shl"), arith.ShRUIOp: _binary("lshr"), arith.ShRSIOp: _binary("ashr"),
    arith.DivSIOp: _divide("sdiv"), arith.DivUIOp: _divide("udiv"),
    arith.RemSIOp: _divide("srem"), arith.RemUIOp: _divide("urem"),
    arith.FloorDivSIOp: _rounded_divide(up=False, signed=True),
    arith.CeilDivSIOp: _rounded_divide(up=True, signed=True),
    arith.CeilDivUIOp: _rounded_divide(up=True, signed=False),
    arith.MaxSIOp: _int_intrinsic("smax"), arith.MinSIOp: _int_intrinsic("smin"),
    arith.MaxUIOp: _int_intrinsic("umax"), arith.MinUIOp: _int_intrinsic("umin"),
    arith.AddfOp: _float_binary("fadd"), arith.SubfOp: _float_binary("fsub"),
    arith.MulfOp: _float_binary("fmul"), arith.DivfOp: _float_binary("fdiv"), arith.NegfOp: _negf,
    arith.MaximumfOp: _extremum("maximum", "ogt"), arith.MinimumfOp: _extremum("minimum", "olt"),
    arith.MaxnumfOp: _intrinsic("maxnum"), arith.MinnumfOp: _intrinsic("minnum"),
    arith.CmpiOp: _cmpi, arith.CmpfOp: _cmpf,
    arith.ExtFOp: _CASTS["extf"], arith.TruncFOp: _CASTS["truncf"], arith.ExtSIOp: _CASTS["extsi"],
    arith.ExtUIOp: _CASTS["extui"], arith.TruncIOp: _CASTS["trunci"], arith.SIToFPOp: _CASTS["sitofp"],
    arith.UIToFPOp: _CASTS["uitofp"], arith.FPToSIOp: _CASTS["fptosi"], arith.FPToUIOp: _CASTS["fptoui"],
    arith.BitcastOp: _CASTS["bitcast"], tile_arith.CmpOp: _cmp, tile_arith.CastOp: _tile_cast,
    math.RsqrtOp: _rsqrt, math.AbsIOp: _int_intrinsic("abs", "false"),
    math.CountLeadingZerosOp: _int_intrinsic("ctlz", "false"),
    math.CountTrailingZerosOp: _int_intrinsic("cttz", "false"),
    math.CtPopOp: _int_intrinsic("ctpop"),
    math.AbsFOp: _intrinsic("fabs"), math.SqrtOp: _intrinsic("sqrt"), math.CopySignOp: _intrinsic("copysign"),
    math.FloorOp: _rounded("floor"), math.CeilOp: _rounded("ceil"), math.TruncOp: _rounded("trunc"),
    math.RoundOp: _rounded("round"), math.RoundEvenOp: _rounded("roundeven"), math.FmaOp: _fma,
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
        if (source in SHORT or llvm_type(result.type) in SHORT) and _computes(op):
            emit = _in_float(emit)
        texts = [e.operand(v) for v in op.operands]
        e.scalar_result(result, emit(e, op, texts, source, llvm_type(result.type), 1))
        return
    operands = [e.get_vec(v) for v in op.operands]
    first, lanes, out = operands[0], operands[0].lanes, llvm_type(result.type.element_type)
    if (first.elem in SHORT or out in SHORT) and _computes(op):
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
