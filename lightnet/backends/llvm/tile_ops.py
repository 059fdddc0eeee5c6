"""`memref`, `vector` and `tile` as LLVM instructions. Part of the emitter; see `function.py`.

A leaf of a slice is one vector load or store where memory is contiguous, a broadcast where the step is 0, two or more
loads and a shuffle for a small constant step, and a gather or scatter otherwise. Masks come from the static `valid`
extents and the run-time `lanes`.
"""

from __future__ import annotations

from math import gcd, prod

from xdsl.dialects import memref, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from lightnet.backends.llvm.function import Function, Handler
from lightnet.backends.llvm.scalar_ops import ELEMENTWISE
from lightnet.backends.llvm.values import (
    Lin,
    Mem,
    Vec,
    leaf_type,
    llvm_type,
    mangled,
    row_major,
    size_of,
    slice_offsets,
    slice_valid,
    splat_literal,
)
from lightnet.diagnostics import LightNetError
from lightnet.dialects import tile

#: Largest step for which a strided leaf is read by whole vectors and shuffles.
MAX_SHUFFLE_STEP = 4
#: Bytes of a cache line.
LINE = 64
#: Bytes of stack that a kernel may ask for; larger memory is planned as its workspace.
MAX_STACK = 256 << 10


# ---- memref ------------------------------------------------------------------------------------------------------


def _in_memory(elem: str) -> str:
    """The type of an element in memory: an i1 is a byte."""
    return "i8" if elem == "i1" else elem


def _align(base: int, const: int) -> int:
    """The largest power of two that divides both, at most 64."""
    g = gcd(base, const, 64)
    return g & -g


def _load(e: Function, op: memref.LoadOp) -> None:
    mem, elem = e.vals[op.memref], llvm_type(op.res.type)
    assert isinstance(mem, Mem)
    offset, align = e.address(mem, op.indices, elem)
    e.scalar_result(op.res, _load_element(e, mem.root, offset, 0, align, elem))


def _load_element(e: Function, root: str, offset: Lin, extra: int, align: int, elem: str) -> str:
    pointer = e.pointer(root, offset, extra)
    loads = e.scopes[-1].loads.setdefault(root, {})
    key = (pointer, elem)
    if key not in loads:
        align = _align(align, offset.const + extra)
        text = e.ins(f"load {_in_memory(elem)}, ptr {pointer}, align {align}")
        loads[key] = e.ins(f"icmp ne i8 {text}, 0") if elem == "i1" else text
    return loads[key]


def _store(e: Function, op: memref.StoreOp) -> None:
    mem, elem = e.vals[op.memref], llvm_type(op.value.type)
    assert isinstance(mem, Mem)
    offset, align = e.address(mem, op.indices, elem)
    e.written(mem.root)
    _store_element(e, mem.root, offset, 0, align, elem, e.operand(op.value))


def _store_element(e: Function, root: str, offset: Lin, extra: int, align: int, elem: str, text: str) -> None:
    if elem == "i1":
        text = e.ins(f"zext i1 {text} to i8")
    pointer = e.pointer(root, offset, extra)
    e.emit(f"store {_in_memory(elem)} {text}, ptr {pointer}, align {_align(align, offset.const + extra)}")


def _alloca(e: Function, op: memref.AllocaOp) -> None:
    type = op.memref.type
    if not tile.is_plain(type):
        raise LightNetError(f"memref.alloca: only static shapes are supported, got {type}")
    elem, count = llvm_type(type.element_type), prod(type.get_shape())
    e.stack += count * size_of(elem)
    if e.stack > MAX_STACK:
        raise LightNetError(f"memref.alloca: {e.stack} bytes of stack, at most {MAX_STACK}; use the workspace")
    name = e.name()
    e.entry.append(f"{name} = alloca [{count} x {_in_memory(elem)}], align 64")
    e.vals[op.memref] = Mem(name, Lin(0), type, 64)


def _view(e: Function, op: memref.ViewOp) -> None:
    mem = e.vals[op.source]
    assert isinstance(mem, Mem)
    if not tile.is_plain(op.result.type):
        raise LightNetError(f"memref.view: only static shapes are supported, got {op.result.type}")
    e.vals[op.result] = Mem(mem.root, mem.offset + e.get_index(op.byte_shift), op.result.type, mem.align)


# ---- vector ------------------------------------------------------------------------------------------------------


def _broadcast(e: Function, op: vector.BroadcastOp) -> None:
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


def _vector_fma(e: Function, op: vector.FMAOp) -> None:
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


def _extract(e: Function, op: vector.ExtractOp) -> None:
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


def _insert(e: Function, op: vector.InsertOp) -> None:
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


# ---- tile slices -------------------------------------------------------------------------------------------------


class _Slice:
    """A slice while it is emitted: byte offsets of its elements, and which of them are touched."""

    def __init__(self, e: Function, op: tile.LoadOp | tile.StoreOp, elem: str, lanes: int):
        mem = e.vals[op.memref]
        assert isinstance(mem, Mem)
        shape, dims, steps, valid = op.slice()
        self.e, self.elem, self.lanes, self.root = e, elem, lanes, mem.root
        size, strides = size_of(elem), mem.strides
        byte_steps = tuple(strides[d] * s * size for d, s in zip(dims, steps))
        self.base, self.align = e.address(mem, op.indices, elem)
        self.offsets = slice_offsets(shape, byte_steps)
        self.inside = slice_valid(shape, valid) if valid != shape else None
        self.step = byte_steps[-1] // size if shape[-1] > 1 else 1  # of the last dimension, in elements
        self.extent = e.get_index(op.lanes) if op.lanes is not None else None
        self.last = shape[-1]

    def touched(self, f: int) -> list[bool] | None:
        """Which lanes of leaf f the static extents leave; None for all of them."""
        if self.inside is None:
            return None
        lanes = self.inside[f * self.lanes : (f + 1) * self.lanes]
        return None if all(lanes) else lanes

    def whole(self, f: int) -> bool:
        return self.extent is None and self.touched(f) is None

    def mask(self, f: int) -> str:
        """The mask of leaf f as an operand of type <lanes x i1> (i1 for one lane)."""
        static = self.touched(f)
        type = leaf_type("i1", self.lanes)
        bits = ["true" if ok else "false" for ok in static or [True] * self.lanes]
        const = bits[0] if self.lanes == 1 else f"<{', '.join(f'i1 {b}' for b in bits)}>"
        if self.extent is None:
            return const
        mask = self._dynamic_mask(self.extent + Lin(-(f * self.lanes % self.last)))
        return mask if static is None else self.e.ins(f"and {type} {mask}, {const}")

    def _dynamic_mask(self, left: Lin) -> str:
        """Lanes below `left`, made where its deepest symbol is."""
        e, depth, n = self.e, left.depth, self.lanes
        bound = e.index(left)
        if n == 1:
            return e.hoisted(depth, ("mask", left, 1), f"icmp sgt i64 {bound}, 0")
        type = leaf_type("i64", n)
        first = e.hoisted(depth, ("first", left, n), f"insertelement {type} poison, i64 {bound}, i64 0")
        shuffle = f"shufflevector {type} {first}, {type} poison, <{n} x i32> zeroinitializer"
        all_ = e.hoisted(depth, ("all", left, n), shuffle)
        iota = f"<{', '.join(f'i64 {k}' for k in range(n))}>"
        return e.hoisted(depth, ("mask", left, n), f"icmp sgt {type} {all_}, {iota}")

    def pointers(self, f: int) -> str:
        """The addresses of leaf f's lanes as a vector of pointers, for a gather or scatter."""
        first = self.offsets[f * self.lanes]
        base = self.e.pointer(self.root, self.base, first)
        n, step = self.lanes, self.step * size_of(self.elem)
        if n == 1:
            return base
        deltas = f"<{n} x i64> <{', '.join(f'i64 {k * step}' for k in range(n))}>"
        return self.e.ins(f"getelementptr i8, ptr {base}, {deltas}")


def _tile_load(e: Function, op: tile.LoadOp) -> None:
    vec = e.vec(op.result.type, lambda f: _cached_leaf(e, s, f), lambda i: _load_lane(e, s, vec, i))
    s = _Slice(e, op, vec.elem, vec.lanes)
    vec.roots = frozenset([s.root])
    e.bind(op.result, vec)


def _cached_leaf(e: Function, s: _Slice, f: int) -> str:
    """Leaf f of a slice; equal leaves of a block are loaded once between stores."""
    first = s.offsets[f * s.lanes]
    touched = s.touched(f)
    loads = e.scopes[-1].loads.setdefault(s.root, {})
    key = (
        s.base,
        first,
        s.elem,
        s.lanes,
        s.step,
        s.extent,
        s.extent and f * s.lanes % s.last,
        touched and tuple(touched),
    )
    if key not in loads:
        loads[key] = _load_leaf(e, s, f)
    return loads[key]


def _load_lane(e: Function, s: _Slice, vec: Vec, i: int) -> str:
    """One element by a scalar load."""
    if s.extent is not None:
        leaf = vec.leaf(i // vec.lanes)
        return e.ins(f"extractelement {vec.leaf_type} {leaf}, i64 {i % vec.lanes}")
    if s.inside is not None and not s.inside[i]:
        return zero_literal(s.elem)
    return _load_element(e, s.root, s.base, s.offsets[i], s.align, s.elem)


def zero_literal(elem: str) -> str:
    return {"i1": "false"}.get(elem, "0" if elem.startswith("i") else "0.0")


def _load_leaf(e: Function, s: _Slice, f: int) -> str:
    n, elem, first = s.lanes, s.elem, s.offsets[f * s.lanes]
    if s.touched(f) is not None and not any(s.touched(f) or ()):
        return splat_literal(elem, n, zero_literal(elem))
    if s.whole(f):
        if n == 1 or s.step == 0:
            return e.splat(elem, n, _load_element(e, s.root, s.base, first, s.align, elem))
        if s.step == 1:
            return _load_vector(e, s, first)
        if 2 <= s.step <= MAX_SHUFFLE_STEP:
            return _load_strided(e, s, first)
    return _load_masked(e, s, f)


def _load_vector(e: Function, s: _Slice, extra: int) -> str:
    """`lanes` contiguous elements."""
    memory = leaf_type(_in_memory(s.elem), s.lanes)
    pointer = e.pointer(s.root, s.base, extra)
    text = e.ins(f"load {memory}, ptr {pointer}, align {_align(s.align, s.base.const + extra)}")
    return e.ins(f"icmp ne {memory} {text}, zeroinitializer") if s.elem == "i1" else text


def _load_strided(e: Function, s: _Slice, first: int) -> str:
    """Every step-th element: contiguous loads that cover the span exactly, merged by shuffles of two at a time."""
    n, size, type = s.lanes, size_of(s.elem), leaf_type(s.elem, s.lanes)
    span = (n - 1) * s.step + 1
    starts = [*range(0, span - n, n), span - n]
    parts = [_load_vector(e, s, first + start * size) for start in starts]
    #: Of lane k: which part has it (the first that reaches it), and where.
    source = [next((p, k * s.step - b) for p, b in enumerate(starts) if k * s.step < b + n) for k in range(n)]
    merged = parts[0]
    for p in range(1, len(parts)):
        lanes = []
        for k, (part, lane) in enumerate(source):
            known = lane if p == 1 else k
            lanes.append(f"i32 {n + lane}" if part == p else f"i32 {known}" if part < p else "i32 poison")
        picks = f"<{n} x i32> <{', '.join(lanes)}>"
        merged = e.ins(f"shufflevector {type} {merged}, {type} {parts[p]}, {picks}")
    return merged


def _load_masked(e: Function, s: _Slice, f: int) -> str:
    """A leaf of which some lanes are not touched (they are 0), or whose lanes lie far apart."""
    n, elem, mask = s.lanes, s.elem, s.mask(f)
    memory = leaf_type(_in_memory(elem), n)
    if n == 1:
        memory, mask = f"<1 x {_in_memory(elem)}>", e.ins(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
    if s.step == 1 or n == 1:
        extra = s.offsets[f * n]
        align = _align(s.align, s.base.const + extra)
        args = [(f"ptr align {align}", e.pointer(s.root, s.base, extra))]
        name, suffix = "masked.load", f"{mangled(memory)}.p0"
    else:
        args = [(f"<{n} x ptr> align {size_of(elem)}", s.pointers(f))]
        name, suffix = "masked.gather", f"{mangled(memory)}.v{n}p0"
    args += [(f"<{n} x i1>", mask), (memory, "zeroinitializer")]
    text = e.intrinsic(name, memory, args, suffix=suffix)
    if elem == "i1":
        text = e.ins(f"icmp ne {memory} {text}, zeroinitializer")
    return e.ins(f"extractelement <1 x {elem}> {text}, i64 0") if n == 1 else text


def _tile_store(e: Function, op: tile.StoreOp) -> None:
    vec = e.get_vec(op.value)
    s = _Slice(e, op, vec.elem, vec.lanes)
    e.written(s.root)
    for f in range(vec.count):
        touched = s.touched(f)
        if touched is not None and not any(touched):
            continue
        if s.whole(f) and (vec.lanes == 1 or s.step == 1):
            _store_vector(e, s, s.offsets[f * s.lanes], vec.leaf(f))
        elif s.extent is None and s.step != 1:
            for lane in range(vec.lanes):
                if touched is None or touched[lane]:
                    i = f * vec.lanes + lane
                    _store_element(e, s.root, s.base, s.offsets[i], s.align, s.elem, e.element(vec, i))
        else:
            _store_masked(e, s, f, vec.leaf(f))


def _store_vector(e: Function, s: _Slice, extra: int, text: str) -> None:
    memory = leaf_type(_in_memory(s.elem), s.lanes)
    if s.elem == "i1":
        text = e.ins(f"zext {leaf_type('i1', s.lanes)} {text} to {memory}")
    pointer = e.pointer(s.root, s.base, extra)
    e.emit(f"store {memory} {text}, ptr {pointer}, align {_align(s.align, s.base.const + extra)}")


def _store_masked(e: Function, s: _Slice, f: int, text: str) -> None:
    n, mask = s.lanes, s.mask(f)
    memory = leaf_type(_in_memory(s.elem), n)
    if s.elem == "i1":
        text = e.ins(f"zext {leaf_type('i1', n)} {text} to {memory}")
    if n == 1:
        memory, mask = f"<1 x {_in_memory(s.elem)}>", e.ins(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        text = e.ins(f"insertelement {memory} poison, {_in_memory(s.elem)} {text}, i64 0")
    extra = s.offsets[f * n]
    if s.step == 1 or n == 1:
        align = _align(s.align, s.base.const + extra)
        target = (f"ptr align {align}", e.pointer(s.root, s.base, extra))
        symbol = f"llvm.masked.store.{mangled(memory)}.p0"
    else:
        target = (f"<{n} x ptr> align {size_of(s.elem)}", s.pointers(f))
        symbol = f"llvm.masked.scatter.{mangled(memory)}.v{n}p0"
    e.emit(e.call_text(symbol, "void", [(memory, text), target, (f"<{n} x i1>", mask)]))


def _prefetch(e: Function, op: tile.PrefetchOp) -> None:
    """One instruction a line, to the first level and up: hints that stop at the second one slow some kernels down (of the processor
    measured, by up to 40 %, depending on where the memory lies), and gain nothing."""
    mem = e.vals[op.memref]
    assert isinstance(mem, Mem)
    offset, _ = e.address(mem, op.indices, llvm_type(mem.type.element_type))
    write = "0" if op.write is None else "1"
    for extra in range(0, op.bytes.value.data, LINE):
        args = [("ptr", e.pointer(mem.root, offset, extra)), ("i32", write), ("i32", "3"), ("i32", "1")]
        e.emit(e.call_text("llvm.prefetch.p0", "void", args))


# ---- tile arithmetic ---------------------------------------------------------------------------------------------


def _tile_fma(e: Function, op: tile.FmaOp) -> None:
    """The micro-kernel: for each k, each row of `a` broadcast times the vectors of `b`; eager, k outermost."""
    a, b, acc = (e.get_vec(v) for v in (op.a, op.b, op.acc))
    depth, type = b.shape[0], acc.leaf_type
    columns = b.count // depth
    rows = acc.count // columns
    leaves = [acc.leaf(f) for f in range(acc.count)]
    call = e.declared_call(f"llvm.fma.{mangled(type)}", type, (type, type, type))
    for k in range(depth):
        vectors = [b.leaf(k * columns + n) for n in range(columns)]
        for p in range(rows):
            factor = e.splat(acc.elem, acc.lanes, e.element(a, p * depth + k))
            for n in range(columns):
                leaves[p * columns + n] = e.ins(
                    f"{call}({type} {factor}, {type} {vectors[n]}, {type} {leaves[p * columns + n]})"
                )
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


def _reduce(e: Function, op: tile.ReduceOp) -> None:
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
    if folds_lanes:
        parts = [folded(t) for t in sorted(groups)]
        result = e.vec(
            op.result.type,
            lambda f: e.leaf_of_elements(vec.elem, parts[f * result.lanes : (f + 1) * result.lanes]),
            parts.__getitem__,
        )
    else:
        firsts = sorted(groups)
        result = e.vec(op.result.type, lambda f: folded(firsts[f]), roots=vec.roots)
    e.bind(op.result, result)


def _combine(e: Function, instruction: str, type: str, x: str, y: str) -> str:
    if instruction in ("maximum", "minimum", "smax", "smin", "umax", "umin"):
        return e.intrinsic(instruction, type, [(type, x), (type, y)])
    return e.ins(f"{instruction} {type} {x}, {y}")


def _across(e: Function, vec: Vec, kind: str, integer: bool, leaf: str) -> str:
    """Fold the lanes of one leaf."""
    if vec.lanes == 1:
        return leaf
    name = f"vector.reduce.{_ACROSS[kind][integer]}"
    args, flags = [(vec.leaf_type, leaf)], ""
    if kind in ("add", "mul") and not integer:
        args, flags = [(vec.elem, "-0.0" if kind == "add" else "1.0"), *args], "reassoc "
    return e.intrinsic(name, vec.elem, args, flags, suffix=mangled(vec.leaf_type))


HANDLERS: dict[type[Operation], Handler] = {
    memref.LoadOp: _load,
    memref.StoreOp: _store,
    memref.AllocaOp: _alloca,
    memref.ViewOp: _view,
    vector.BroadcastOp: _broadcast,
    vector.FMAOp: _vector_fma,
    vector.ExtractOp: _extract,
    vector.InsertOp: _insert,
    tile.LoadOp: _tile_load,
    tile.StoreOp: _tile_store,
    tile.PrefetchOp: _prefetch,
    tile.FmaOp: _tile_fma,
    tile.ReduceOp: _reduce,
}
assert not set(HANDLERS) & set(ELEMENTWISE)
