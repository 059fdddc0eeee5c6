"""`memref` and `tile.prefetch` as LLVM instructions, and the loads and stores of single elements that slices use, too.
Part of the emitter; see `function.py`.
"""

from __future__ import annotations

from math import gcd, prod

from xdsl.dialects import memref
from xdsl.ir import Operation

from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.values import Lin, Mem, llvm_type, size_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects import tile_memory

#: Bytes of a cache line.
LINE = 64
#: Bytes of stack that a kernel may ask for; larger memory is planned as its workspace.
MAX_STACK = 256 << 10


def stored_type(elem: str) -> str:
    """The type of an element in memory: an i1 is a byte."""
    return "i8" if elem == "i1" else elem


def alignment(base: int, const: int) -> int:
    """The largest power of two that divides both, at most 64."""
    g = gcd(base, const, 64)
    return g & -g


def _load(e: FunctionEmitter, op: memref.LoadOp) -> None:
    mem, elem = e.vals[op.memref], llvm_type(op.res.type)
    assert isinstance(mem, Mem)
    offset, align = e.address(mem, op.indices, elem)
    e.scalar_result(op.res, load_element(e, mem.root, offset, 0, align, elem))


def load_element(e: FunctionEmitter, root: str, offset: Lin, extra: int, align: int, elem: str) -> str:
    """One element, `offset` + `extra` bytes behind `root`; `align` bytes are what `root` and the variable part of the
    offset promise. Equal elements of a block are loaded once between stores."""
    pointer = e.pointer(root, offset, extra)
    loads = e.scopes[-1].loads.setdefault(root, {})
    key = (pointer, elem)
    if key not in loads:
        align = alignment(align, offset.const + extra)
        text = e.ins(f"load {stored_type(elem)}, ptr {pointer}, align {align}")
        loads[key] = e.ins(f"icmp ne i8 {text}, 0") if elem == "i1" else text
    return loads[key]


def _store(e: FunctionEmitter, op: memref.StoreOp) -> None:
    mem, elem = e.vals[op.memref], llvm_type(op.value.type)
    assert isinstance(mem, Mem)
    offset, align = e.address(mem, op.indices, elem)
    e.written(mem.root)
    store_element(e, mem.root, offset, 0, align, elem, e.operand(op.value))


def store_element(e: FunctionEmitter, root: str, offset: Lin, extra: int, align: int, elem: str, text: str) -> None:
    """The converse of `load_element`. The caller has told `FunctionEmitter.written` of the root."""
    if elem == "i1":
        text = e.ins(f"zext i1 {text} to i8")
    pointer = e.pointer(root, offset, extra)
    e.emit(f"store {stored_type(elem)} {text}, ptr {pointer}, align {alignment(align, offset.const + extra)}")


def _alloca(e: FunctionEmitter, op: memref.AllocaOp) -> None:
    type = op.memref.type
    if not tile_memory.is_plain_memref(type) or -1 in type.get_shape():
        raise LightNetError(f"memref.alloca: only static shapes are supported, got {type}")
    elem, count = llvm_type(type.element_type), prod(type.get_shape())
    e.stack += count * size_of(elem)
    if e.stack > MAX_STACK:
        raise LightNetError(f"memref.alloca: {e.stack} bytes of stack, at most {MAX_STACK}; use the workspace")
    name = e.name()
    e.entry.append(f"{name} = alloca [{count} x {stored_type(elem)}], align 64")
    e.vals[op.memref] = Mem(name, Lin(0), type, 64)


def _view(e: FunctionEmitter, op: memref.ViewOp) -> None:
    mem = e.vals[op.source]
    assert isinstance(mem, Mem)
    if not tile_memory.is_plain_memref(op.result.type):
        raise LightNetError(f"memref.view: only static shapes are supported, got {op.result.type}")
    e.vals[op.result] = Mem(mem.root, mem.offset + e.get_index(op.byte_shift), op.result.type, mem.align)


def _prefetch(e: FunctionEmitter, op: tile_memory.PrefetchOp) -> None:
    """One instruction a line, to the first level and up: hints that stop at the second one slow some kernels down (of
    the processor measured, by up to 40 %, depending on where the memory lies), and gain nothing."""
    mem = e.vals[op.memref]
    assert isinstance(mem, Mem)
    offset, _ = e.address(mem, op.indices, llvm_type(mem.type.element_type))
    write = "0" if op.write is None else "1"
    for extra in range(0, op.bytes.value.data, LINE):
        args = [("ptr", e.pointer(mem.root, offset, extra)), ("i32", write), ("i32", "3"), ("i32", "1")]
        e.emit(e.call_text("llvm.prefetch.p0", "void", args))


HANDLERS: dict[type[Operation], Handler] = {
    memref.LoadOp: _load,
    memref.StoreOp: _store,
    memref.AllocaOp: _alloca,
    memref.ViewOp: _view,
    tile_memory.PrefetchOp: _prefetch,
}
