"""`vector`, and the arithmetic of `tile` that folds tiles, as LLVM instructions: what works on registers alone.
Part of the emitter; see `function.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.scalar_ops import ELEMENTWISE
from lightnet.backends.llvm.short_floats import MULTIPLIED
from lightnet.backends.llvm.values import Vec, leaf_type, mangled, row_major, slice_offsets, splat_literal
from lightnet.diagnostics import LightNetError
from lightnet.dialects import tile_arith
from lightnet.ir.types import vector_type_of


def _broadcast(e: FunctionEmitter, op: vector.BroadcastOp) -> None:
    type = op.vector.type
    if not isinstance(op.source.type, VectorType):
        text = e.operand(op.source)
        vec = e.vec(type, lambda f: e.splat(vec.elem, vec.lanes, text), lambda i: text)
        e.bind(op.vector, vec)
        return
    source, target = e.get_vec(op.source), type.get_shape()
    lead = len(target) - len(source.shape)
    if lead < 0 or any(s not in (1, t) for s, t in zip(source.shape, target[lead:])):
        raise LightNetError(f"vector.broadcast: {op.source.type} does not extend to {type}")
    steps = (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(source.shape, row_major(source.shape)))
    origin = slice_offsets(target, steps)

    def make_leaf(f: int) -> str:
        first = origin[f * vec.lanes]
        if source.shape[-1] == target[-1]:
            return source.leaf(first // vec.lanes)
        return e.splat(vec.elem, vec.lanes, e.element(source, first))

    vec = e.vec(type, make_leaf, lambda i: e.element(source, origin[i]), source.roots)
    e.bind(op.vector, vec)


def _vector_fma(e: FunctionEmitter, op: vector.FMAOp) -> None:
    operands = [e.get_vec(v) for v in (op.lhs, op.rhs, op.acc)]
    type = operands[0].leaf_type

    def make_leaf(f: int) -> str:
        return e.intrinsic("fma", type, [(type, v.leaf(f)) for v in operands])

    roots = operands[0].roots | operands[1].roots | operands[2].roots
    e.bind(op.res, e.vec(op.res.type, make_leaf, roots=roots))


def _position(op: vector.ExtractOp | vector.InsertOp, shape: tuple[int, ...]) -> int:
    """The row-major offset of a static position."""
    position = op.static_position.get_values()
    if op.dynamic_position:
        raise LightNetError(f"{op.name}: only static positions are supported at level 4")
    if any(not 0 <= p < n for p, n in zip(position, shape)):
        raise LightNetError(f"{op.name}: position {list(position)} is outside {shape}")
    return sum(p * s for p, s in zip(position, row_major(shape)))


def _extract(e: FunctionEmitter, op: vector.ExtractOp) -> None:
    source = e.get_vec(op.vector)
    first = _position(op, source.shape)
    if not isinstance(op.result.type, VectorType):
        e.scalar_result(op.result, e.element(source, first))
        return
    vec = e.vec(
        op.result.type,
        lambda f: source.leaf(first // source.lanes + f),
        lambda i: e.element(source, first + i),
        source.roots,
    )
    e.bind(op.result, vec)


def _insert(e: FunctionEmitter, op: vector.InsertOp) -> None:
    dest = e.get_vec(op.dest)
    first = _position(op, dest.shape)
    leaves = [dest.leaf(f) for f in range(dest.count)]
    f = first // dest.lanes
    if isinstance(op.source.type, VectorType):
        source = e.get_vec(op.source)
        leaves[f : f + source.count] = [source.leaf(k) for k in range(source.count)]
    elif dest.lanes == 1:
        leaves[f] = e.operand(op.source)
    else:
        text = f"{dest.leaf_type} {leaves[f]}, {dest.elem} {e.operand(op.source)}, i64 {first % dest.lanes}"
        leaves[f] = e.ins(f"insertelement {text}")
    e.vals[op.result] = Vec.of_leaves(dest.elem, dest.shape, dest.lanes, leaves)


def _tile_fma(e: FunctionEmitter, op: tile_arith.FmaOp) -> None:
    type = e.get_vec(op.acc).leaf_type
    call = e.declared_call(f"llvm.fma.{mangled(type)}", type, (type, type, type))
    _contract(e, op, lambda x, y, total: e.ins(f"{call}({type} {x}, {type} {y}, {type} {total})"))


def _tile_dot(e: FunctionEmitter, op: tile_arith.DotOp) -> None:
    """By the processor's instruction for it, where it has one; else of bytes by that for words."""
    acc, kind = e.get_vec(op.acc), op.kind.data
    if kind == "bfloats":
        _contract(e, op, partial(_bfloat_pairs, e, acc.lanes))
        return
    type = acc.leaf_type
    words, floats = leaf_type("i16", 2 * acc.lanes), leaf_type("float", acc.lanes)
    name = _PAIRS.get(acc.lanes) if e.dots.pairs else None
    fours = _FOURS.get(acc.lanes) if kind == "bytes" and e.dots.bytes else None

    def as_words(value: str) -> str:
        return e.shared(("words", value), lambda: e.ins(f"bitcast {type} {value} to {words}"))

    def of_words(total: str, x: str, y: str) -> str:
        if name is not None:
            made = e.ins(e.call_text(name, type, [(words, as_words(x)), (words, as_words(y))]))
            return e.ins(f"add {type} {total}, {made}")
        for a, b in zip(_signed_words(e, acc.lanes, x), _signed_words(e, acc.lanes, y)):
            total = e.ins(f"add {type} {total}, {e.ins(f'mul {type} {a}, {b}')}")
        return total

    def step(x: str, y: str, total: str) -> str:
        if fours is not None:
            return e.ins(e.call_text(fours, type, [(type, total), (type, x), (type, y)]))
        pairs = [(x, y)]
        if kind == "bytes":
            pairs = list(zip(*(_byte_pairs(e, acc.lanes, v, signed) for v, signed in ((x, False), (y, True)))))
        for a, b in pairs:
            total = of_words(total, a, b)
        if not e.tiled or name is None:
            return total
        # or LLVM adds products of several steps to each other first, for which there are no registers
        fenced = e.intrinsic("arithmetic.fence", floats, [(floats, e.ins(f"bitcast {type} {total} to {floats}"))])
        return e.ins(f"bitcast {floats} {fenced} to {type}")

    _contract(e, op, step)


def _bfloat_pairs(e: FunctionEmitter, lanes: int, x: str, y: str, total: str) -> str:
    """A sum of f32 and the products of two pairs of bf16, by the instruction, or as floats, halves before zeros."""
    type, floats = leaf_type("i32", lanes), leaf_type("float", lanes)
    if e.dots.bfloats and lanes in (4, 8, 16):
        short = leaf_type(MULTIPLIED, 2 * lanes)
        pairs = [(short, e.shared((short, v), partial(e.ins, f"bitcast {type} {v} to {short}"))) for v in (x, y)]
        return e.ins(e.call_text(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", floats, [(floats, total), *pairs]))

    def half(text: str, instruction: str) -> str:
        made = f"{instruction} {type} {text}, {splat_literal('i32', lanes, '16' if instruction == 'shl' else '-65536')}"
        return e.shared((text, instruction), lambda: e.ins(f"bitcast {type} {e.ins(made)} to {floats}"))

    for instruction in ("and", "shl"):
        factors = [(floats, half(v, instruction)) for v in (x, y)]
        total = e.intrinsic("fma", floats, [*factors, (floats, total)])
    return total


#: x86's products of pairs of words, added, by the pairs of a register, and those of four bytes, added to a sum.
_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_FOURS = {lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}" for lanes in _PAIRS}


def _signed_words(e: FunctionEmitter, lanes: int, text: str) -> tuple[str, str]:
    """The low and the high words of a leaf of i32, with their signs."""
    type, by = leaf_type("i32", lanes), splat_literal("i32", lanes, "16")
    return e.ins(f"ashr {type} {e.ins(f'shl {type} {text}, {by}')}, {by}"), e.ins(f"ashr {type} {text}, {by}")


def _byte_pairs(e: FunctionEmitter, lanes: int, text: str, signed: bool) -> tuple[str, str]:
    """The bytes of a leaf of i32 as words: those in front of each word, and those behind."""
    type, words = leaf_type("i32", lanes), leaf_type("i16", 2 * lanes)
    by, shift = splat_literal("i16", 2 * lanes, "8"), "ashr" if signed else "lshr"

    def made() -> str:
        value = e.ins(f"bitcast {type} {text} to {words}")
        low = e.ins(f"{shift} {words} {e.ins(f'shl {words} {value}, {by}')}, {by}")
        high = e.ins(f"{shift} {words} {value}, {by}")
        return " ".join(e.ins(f"bitcast {words} {part} to {type}") for part in (low, high))

    low, high = e.shared(("bytes", text, signed), made).split()
    return low, high


def _contract(
    e: FunctionEmitter, op: tile_arith.FmaOp | tile_arith.DotOp, step: Callable[[str, str, str], str]
) -> None:
    """The micro-kernel: for each k, each row of `a` broadcast times the vectors of `b`; eager, k outermost. `step` adds
    one such product to a sum."""
    a, b, acc = (e.get_vec(v) for v in (op.a, op.b, op.acc))
    depth = b.shape[0]
    columns = b.count // depth
    rows = acc.count // columns
    leaves = [acc.leaf(f) for f in range(acc.count)]
    for k in range(depth):
        vectors = [b.leaf(k * columns + n) for n in range(columns)]
        for p in range(rows):
            factor = e.splat(a.elem, acc.lanes, e.element(a, p * depth + k))
            for n in range(columns):
                leaves[p * columns + n] = step(factor, vectors[n], leaves[p * columns + n])
    e.vals[op.result] = Vec.of_leaves(acc.elem, acc.shape, acc.lanes, leaves)


#: LLVM's horizontal reductions and the instructions for two leaves, by kind: (float, integer).
_COMBINE = {
    "add": ("fadd reassoc contract", "add"), "mul": ("fmul reassoc contract", "mul"),
    "max": ("maximum", "smax"), "min": ("minimum", "smin"), "umax": ("umax", "umax"), "umin": ("umin", "umin"),
}  # fmt: skip
_ACROSS = {
    "add": ("fadd", "add"), "mul": ("fmul", "mul"), "max": ("fmaximum", "smax"), "min": ("fminimum", "smin"),
    "umax": ("umax", "umax"), "umin": ("umin", "umin"),
}  # fmt: skip


def _reduce(e: FunctionEmitter, op: tile_arith.ReduceOp) -> None:
    """Fold leaf by leaf across registers first, then across the lanes of one register."""
    vec, kind, dims = e.get_vec(op.value), op.kind.data, op.dims.get_values()
    integer = vec.elem.startswith("i")
    rank = len(vec.shape)
    kept = tuple(n for d, n in enumerate(vec.shape) if d not in dims)
    kept_strides = iter(row_major(kept))
    target = slice_offsets(vec.shape, tuple(0 if d in dims else next(kept_strides) for d in range(rank)))
    folds_lanes = rank - 1 in dims

    def combine(x: str, y: str, type: str) -> str:
        return _combine(e, _COMBINE[kind][integer], type, x, y)

    groups: dict[int, list[int]] = {}
    for f in range(vec.count):
        groups.setdefault(target[f * vec.lanes], []).append(f)

    def folded(first: int) -> str:
        leaves = [vec.leaf(f) for f in groups[first]]
        while len(leaves) > 1:  # pairwise: a shallow tree, also the more accurate sum
            pairs = [combine(x, y, vec.leaf_type) for x, y in zip(leaves[::2], leaves[1::2])]
            leaves = pairs + leaves[len(pairs) * 2 :]
        return _across(e, vec, kind, integer, leaves[0]) if folds_lanes else leaves[0]

    if not kept:
        e.scalar_result(op.result, folded(0))
        return
    type = vector_type_of(op.result)
    if folds_lanes:
        parts = [folded(t) for t in sorted(groups)]
        result = e.vec(
            type,
            lambda f: e.leaf_of_elements(vec.elem, parts[f * result.lanes : (f + 1) * result.lanes]),
            parts.__getitem__,
        )
    else:
        firsts = sorted(groups)
        result = e.vec(type, lambda f: folded(firsts[f]), roots=vec.roots)
    e.bind(op.result, result)


def _combine(e: FunctionEmitter, instruction: str, type: str, x: str, y: str) -> str:
    if instruction in ("maximum", "minimum", "smax", "smin", "umax", "umin"):
        return e.intrinsic(instruction, type, [(type, x), (type, y)])
    return e.ins(f"{instruction} {type} {x}, {y}")


def _across(e: FunctionEmitter, vec: Vec, kind: str, integer: bool, leaf: str) -> str:
    """Fold the lanes of one leaf."""
    if vec.lanes == 1:
        return leaf
    name = f"vector.reduce.{_ACROSS[kind][integer]}"
    args, flags = [(vec.leaf_type, leaf)], ""
    if kind in ("add", "mul") and not integer:
        args, flags = [(vec.elem, "-0.0" if kind == "add" else "1.0"), *args], "reassoc "
    return e.intrinsic(name, vec.elem, args, flags, suffix=mangled(vec.leaf_type))


HANDLERS: dict[type[Operation], Handler] = {
    vector.BroadcastOp: _broadcast,
    vector.FMAOp: _vector_fma,
    vector.ExtractOp: _extract,
    vector.InsertOp: _insert,
    tile_arith.FmaOp: _tile_fma,
    tile_arith.DotOp: _tile_dot,
    tile_arith.ReduceOp: _reduce,
}
assert not set(HANDLERS) & set(ELEMENTWISE)
