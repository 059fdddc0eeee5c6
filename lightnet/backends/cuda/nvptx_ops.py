"""The ops of the `cuda` dialect as intrinsics of LLVM's NVPTX target. Part of the emitter; see
`backends/llvm/function.py`.

Addresses are generic pointers, as everywhere in the emitter: LLVM infers the address spaces of the PTX. What waits for
other threads also forgets what was loaded. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import Operation, SSAValue

from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.memory_ops import stored_type
from lightnet.backends.llvm.values import Lin, Mem, llvm_type, size_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects import cuda_matrix, cuda_memory, cuda_simt
from lightnet.dialects.cuda_checks import block_of, function_of, shared_allocations
from lightnet.dialects.cuda_launch import dynamic_shared, shared_alignment, shared_layout
from lightnet.dialects.cuda_stages import SWIZZLED

#: Stands for the symbol of the function that is being emitted; no symbol is spelt so.
SELF = "<self>"
#: The shared memory of a kernel, and the dynamic one of all kernels. No entry's name begins so.
SHARED_SYMBOL = f"@__{SELF}_shared"
DYNAMIC = "@__dynamic_shared"

_REGISTERS: dict[type[Operation], str] = {
    cuda_simt.ThreadIdOp: "tid",
    cuda_simt.BlockIdOp: "ctaid",
    cuda_simt.BlockDimOp: "ntid",
    cuda_simt.GridDimOp: "nctaid",
}


# ---- threads -------------------------------------------------------------------------------------------------------


def _special(e: FunctionEmitter, register: str) -> Lin:
    """A special register, read once, at the entry."""
    symbol = f"llvm.nvvm.read.ptx.sreg.{register}"
    e.declared.add(f"declare i32 @{symbol}()")
    narrow = e.hoisted(0, ("sreg", register), f"call i32 @{symbol}()")
    return e.symbol_at(e.hoisted(0, ("zext", register), f"zext nneg i32 {narrow} to i64"), 0)


def _id(e: FunctionEmitter, op: Operation) -> None:
    dim = op.properties["dim"].data  # type: ignore[attr-defined]
    e.vals[op.results[0]] = _special(e, f"{_REGISTERS[type(op)]}.{dim}")


def _lane_id(e: FunctionEmitter, op: Operation) -> None:
    e.vals[op.results[0]] = _special(e, "laneid")


def _warp_id(e: FunctionEmitter, op: Operation) -> None:
    """From the number of the thread: the register %warpid may change while a thread runs (PTX ISA)."""
    function = function_of(op)
    block = None if function is None else block_of(function)
    if block is None:
        raise LightNetError("cuda.warp_id stands in no kernel")
    number = Lin(0)
    for dim, stride in zip("xyz", (1, block[0], block[0] * block[1])):
        if block["xyz".index(dim)] > 1:
            number = number + _special(e, f"tid.{dim}").scaled(stride)
    if not number.terms:
        e.vals[op.results[0]] = number
        return
    e.vals[op.results[0]] = e.symbol_at(e.hoisted(0, ("warp",), f"lshr i64 {e.index(number)}, 5"), 0)


def _barrier(e: FunctionEmitter, op: Operation) -> None:
    e.settle()
    e.emit(e.call_text("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")]))


#: The intrinsic, and the operand that says where a warp ends: lane 31, of `up` lane 0.
_SHUFFLES = {"xor": ("bfly", 31), "up": ("up", 0), "down": ("down", 31), "idx": ("idx", 31)}


def _shuffle(e: FunctionEmitter, op: cuda_simt.ShuffleOp) -> None:
    kind, bound = _SHUFFLES[op.mode.data.value]
    type = llvm_type(op.value.type)
    symbol = f"llvm.nvvm.shfl.sync.{kind}.{'f32' if type == 'float' else 'i32'}"
    args = [("i32", "-1"), (type, e.operand(op.value)), ("i32", narrowed_index(e, op.lane)), ("i32", str(bound))]
    e.vals[op.result] = e.ins(e.call_text(symbol, type, args))


def narrowed_index(e: FunctionEmitter, index: SSAValue, bits: int = 32) -> str:
    """An index as an operand of so many bits."""
    text = e.operand(index)
    return e.ins(f"trunc i64 {text} to i{bits}") if text.startswith("%") else text


# ---- shared memory ---------------------------------------------------------------------------------------------------


def _shared(e: FunctionEmitter, op: cuda_simt.SharedOp) -> None:
    function, type = function_of(op), op.result.type
    assert function is not None
    number, align = shared_allocations(function).index(op), shared_alignment(op)
    if dynamic_shared(function):
        # All kernels have one declaration of it, so it is aligned as the most demanding of them asks.
        e.declared.add(f"{DYNAMIC} = external addrspace(3) global [0 x i8], align {SWIZZLED}")
        offset = shared_layout(function)[0][number]
        begin = f"getelementptr (i8, ptr addrspace(3) {DYNAMIC}, i64 {offset})"
    else:
        size = prod(type.get_shape()) * size_of(stored_type(llvm_type(type.element_type)))
        begin = f"{SHARED_SYMBOL}{number}"
        e.declared.add(f"{begin} = internal addrspace(3) global [{size} x i8] undef, align {align}")
    root = e.hoisted(0, ("shared", number), f"addrspacecast ptr addrspace(3) {begin} to ptr")
    e.vals[op.result] = Mem(root, Lin(0), type, align)


def _address(e: FunctionEmitter, value: SSAValue, indices: Sequence[SSAValue], space: int, inside: bool = True) -> str:
    """The pointer to an element, in an address space; `inside`: the element is one of the memref's."""
    mem = e.vals[value]
    assert isinstance(mem, Mem)
    offset, _ = e.address(mem, indices, llvm_type(mem.type.element_type))
    pointer = (
        e.pointer(mem.root, offset) if inside else e.ins(f"getelementptr i8, ptr {mem.root}, i64 {e.index(offset)}")
    )
    return e.ins(f"addrspacecast ptr {pointer} to ptr addrspace({space})")


def _async_copy(e: FunctionEmitter, op: cuda_memory.AsyncCopyOp) -> None:
    """Copies of 16 bytes pass by the first-level cache (cg): what is shared is not read again."""
    mem = e.vals[op.destination]
    assert isinstance(mem, Mem)
    e.written(mem.root)
    size = op.bytes.value.data
    args = [
        ("ptr addrspace(3)", _address(e, op.destination, op.destination_indices, 3)),
        ("ptr addrspace(1)", _address(e, op.source, op.source_indices, 1, inside=op.size is None)),
    ]
    symbol = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    if op.size is not None:
        symbol, args = f"{symbol}.s", [*args, ("i32", narrowed_index(e, op.size))]
    e.emit(e.call_text(symbol, "void", args))


def _async_commit(e: FunctionEmitter, op: Operation) -> None:
    e.emit(e.call_text("llvm.nvvm.cp.async.commit.group", "void", []))


def _async_wait(e: FunctionEmitter, op: cuda_memory.AsyncWaitOp) -> None:
    e.settle()
    e.emit(e.call_text("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(op.groups.value.data))]))


# ---- matrices ------------------------------------------------------------------------------------------------------


def _ldmatrix(e: FunctionEmitter, op: cuda_matrix.LdmatrixOp) -> None:
    count, elem = op.tiles.value.data, llvm_type(op.result.type.element_type)
    symbol = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if op.trans is not None else ''}.b16.p3"
    pointer = _address(e, op.memref, op.indices, 3)
    type = "i32" if count == 1 else f"{{ {', '.join(['i32'] * count)} }}"
    whole = e.ins(e.call_text(symbol, type, [("ptr addrspace(3)", pointer)]))
    registers = [whole] if count == 1 else [e.ins(f"extractvalue {type} {whole}, {k}") for k in range(count)]
    e.bind_parts(op.result, [part for r in registers for part in _unpacked(e, r, elem)])


def _unpacked(e: FunctionEmitter, register: str, elem: str) -> list[str]:
    """The elements in a register of 32 bits."""
    if elem == "float":
        return [e.ins(f"bitcast i32 {register} to float")]
    pair = e.ins(f"bitcast i32 {register} to <2 x {elem}>")
    return [e.ins(f"extractelement <2 x {elem}> {pair}, i64 {k}") for k in range(2)]


def _packed(e: FunctionEmitter, parts: Sequence[str], elem: str) -> list[tuple[str, str]]:
    """Elements as the registers that `mma` takes: (type, operand)."""
    if elem == "float":
        return [("i32", e.ins(f"bitcast float {part} to i32")) for part in parts]
    pairs = [e.leaf_of_elements(elem, parts[k : k + 2]) for k in range(0, len(parts), 2)]
    if elem == "half":
        return [("<2 x half>", pair) for pair in pairs]
    return [("i32", e.ins(f"bitcast <2 x bfloat> {pair} to i32")) for pair in pairs]


_MMA = {"half": "m16n8k16.row.col.f32.f32", "bfloat": "m16n8k16.row.col.bf16", "float": "m16n8k8.row.col.tf32"}


def _mma(e: FunctionEmitter, op: cuda_matrix.MmaOp) -> None:
    elem, type = llvm_type(op.a.type.element_type), "{ float, float, float, float }"
    args = [register for fragment in (op.a, op.b) for register in _packed(e, e.parts(fragment), elem)]
    args += [("float", part) for part in e.parts(op.c)]
    whole = e.ins(e.call_text(f"llvm.nvvm.mma.{_MMA[elem]}", type, args))
    e.bind_parts(op.result, [e.ins(f"extractvalue {type} {whole}, {k}") for k in range(4)])


def _round_tf32(e: FunctionEmitter, op: cuda_matrix.RoundTf32Op) -> None:
    bits = e.ins(e.call_text("llvm.nvvm.f2tf32.rna", "i32", [("float", e.operand(op.value))]))
    e.vals[op.result] = e.ins(f"bitcast i32 {bits} to float")


HANDLERS: dict[type[Operation], Handler] = {
    **dict.fromkeys(_REGISTERS, _id),
    cuda_simt.LaneIdOp: _lane_id,
    cuda_simt.WarpIdOp: _warp_id,
    cuda_simt.BarrierOp: _barrier,
    cuda_simt.ShuffleOp: _shuffle,
    cuda_simt.SharedOp: _shared,
    cuda_memory.AsyncCopyOp: _async_copy,
    cuda_memory.AsyncCommitOp: _async_commit,
    cuda_memory.AsyncWaitOp: _async_wait,
    cuda_matrix.LdmatrixOp: _ldmatrix,
    cuda_matrix.MmaOp: _mma,
    cuda_matrix.RoundTf32Op: _round_tf32,
}
