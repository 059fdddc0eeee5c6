"""`tile.load` and `tile.store` as LLVM instructions. Part of the emitter; see `function.py`.

A leaf of a slice is one vector load or store where memory is contiguous, a broadcast where the step is 0, two or more
loads and a shuffle for a small constant step, and a gather or scatter otherwise. Masks come from the static `valid`
extents and the run-time `lanes`.
"""

from __future__ import annotations

from xdsl.ir import Operation

from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.memory_ops import alignment, load_element, store_element, stored_type
from lightnet.backends.llvm.values import (
    Lin,
    Mem,
    leaf_type,
    mangled,
    size_of,
    slice_offsets,
    slice_valid,
    splat_literal,
)
from lightnet.dialects import tile_memory

#: Largest step for which a strided leaf is read by whole vectors and shuffles.
MAX_SHUFFLE_STEP = 4


class _Slice:
    """A slice while it is emitted: byte offsets of its elements, and which of them are touched."""

    def __init__(self, e: FunctionEmitter, op: tile_memory.LoadOp | tile_memory.StoreOp, elem: str, lanes: int):
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
        """The lanes of leaf f that the static extents leave; None for all of them."""
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
        """The addresses of leaf f's lanes, of which there are several, as a vector: for a gather or scatter."""
        first = self.offsets[f * self.lanes]
        base = self.e.pointer(self.root, self.base, first)
        n, step = self.lanes, self.step * size_of(self.elem)
        deltas = f"<{n} x i64> <{', '.join(f'i64 {k * step}' for k in range(n))}>"
        return self.e.ins(f"getelementptr i8, ptr {base}, {deltas}")


def _load(e: FunctionEmitter, op: tile_memory.LoadOp) -> None:
    vec = e.vec(op.result.type, lambda f: _cached_leaf(e, s, f), lambda i: _load_lane(e, s, i))
    s = _Slice(e, op, vec.elem, vec.lanes)
    vec.roots = frozenset([s.root])
    e.bind(op.result, vec)


def _cached_leaf(e: FunctionEmitter, s: _Slice, f: int) -> str:
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


def _load_lane(e: FunctionEmitter, s: _Slice, i: int) -> str | None:
    """One element by a scalar load; None where only a run knows whether it is loaded at all."""
    if s.extent is not None:
        return None
    if s.inside is not None and not s.inside[i]:
        return _zero_literal(s.elem)
    return load_element(e, s.root, s.base, s.offsets[i], s.align, s.elem)


def _zero_literal(elem: str) -> str:
    return {"i1": "false"}.get(elem, "0" if elem.startswith("i") else "0.0")


def _load_leaf(e: FunctionEmitter, s: _Slice, f: int) -> str:
    n, elem, first = s.lanes, s.elem, s.offsets[f * s.lanes]
    if s.touched(f) is not None and not any(s.touched(f) or ()):
        return splat_literal(elem, n, _zero_literal(elem))
    if s.whole(f):
        if n == 1 or s.step == 0:
            return e.splat(elem, n, load_element(e, s.root, s.base, first, s.align, elem))
        if s.step == 1:
            return _load_vector(e, s, first)
        if 2 <= s.step <= MAX_SHUFFLE_STEP:
            return _load_strided(e, s, first)
    return _load_masked(e, s, f)


def _load_vector(e: FunctionEmitter, s: _Slice, extra: int) -> str:
    """`lanes` contiguous elements."""
    memory = leaf_type(stored_type(s.elem), s.lanes)
    pointer = e.pointer(s.root, s.base, extra)
    text = e.ins(f"load {memory}, ptr {pointer}, align {alignment(s.align, s.base.const + extra)}")
    return e.ins(f"icmp ne {memory} {text}, zeroinitializer") if s.elem == "i1" else text


def _load_strided(e: FunctionEmitter, s: _Slice, first: int) -> str:
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


def _load_masked(e: FunctionEmitter, s: _Slice, f: int) -> str:
    """A leaf of which some lanes are not touched (they are 0), or whose lanes lie far apart."""
    n, elem, mask = s.lanes, s.elem, s.mask(f)
    memory = leaf_type(stored_type(elem), n)
    if n == 1:
        memory, mask = f"<1 x {stored_type(elem)}>", e.ins(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
    if s.step == 1 or n == 1:
        extra = s.offsets[f * n]
        align = alignment(s.align, s.base.const + extra)
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


def _store(e: FunctionEmitter, op: tile_memory.StoreOp) -> None:
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
                    store_element(e, s.root, s.base, s.offsets[i], s.align, s.elem, e.element(vec, i))
        else:
            _store_masked(e, s, f, vec.leaf(f))


def _store_vector(e: FunctionEmitter, s: _Slice, extra: int, text: str) -> None:
    memory = leaf_type(stored_type(s.elem), s.lanes)
    if s.elem == "i1":
        text = e.ins(f"zext {leaf_type('i1', s.lanes)} {text} to {memory}")
    pointer = e.pointer(s.root, s.base, extra)
    e.emit(f"store {memory} {text}, ptr {pointer}, align {alignment(s.align, s.base.const + extra)}")


def _store_masked(e: FunctionEmitter, s: _Slice, f: int, text: str) -> None:
    n, mask = s.lanes, s.mask(f)
    memory = leaf_type(stored_type(s.elem), n)
    if s.elem == "i1":
        text = e.ins(f"zext {leaf_type('i1', n)} {text} to {memory}")
    if n == 1:
        memory, mask = f"<1 x {stored_type(s.elem)}>", e.ins(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        text = e.ins(f"insertelement {memory} poison, {stored_type(s.elem)} {text}, i64 0")
    extra = s.offsets[f * n]
    if s.step == 1 or n == 1:
        align = alignment(s.align, s.base.const + extra)
        target = (f"ptr align {align}", e.pointer(s.root, s.base, extra))
        symbol = f"llvm.masked.store.{mangled(memory)}.p0"
    else:
        target = (f"<{n} x ptr> align {size_of(s.elem)}", s.pointers(f))
        symbol = f"llvm.masked.scatter.{mangled(memory)}.v{n}p0"
    e.emit(e.call_text(symbol, "void", [(memory, text), target, (f"<{n} x i1>", mask)]))


HANDLERS: dict[type[Operation], Handler] = {tile_memory.LoadOp: _load, tile_memory.StoreOp: _store}
