"""The ops of `cuda_hopper` and `cuda_mbarrier` as PTX of sm_90a. Part of the emitter; see `nvptx_ops.py`.

They are inline assembly: LLVM ends the process for an intrinsic that an architecture lacks, while PTX that is wrong is
refused by name. What waits for other threads, or tells them something, also forgets what was loaded. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue
from xdsl.traits import is_side_effect_free

from lightnet.backends.cuda.nvptx_ops import narrowed_index
from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.values import Mem, llvm_type
from lightnet.dialects import cuda_hopper as hopper
from lightnet.dialects.cuda_mbarrier import (
    MbarrierArriveOp,
    MbarrierExpectOp,
    MbarrierFenceOp,
    MbarrierInitOp,
    MbarrierWaitOp,
)
from lightnet.dialects.cuda_stages import PANEL, SWIZZLED, WARPGROUP_ROWS
from lightnet.runtime.cuda.tensor_map import SWIZZLED_ROW

#: What an operand of inline assembly is, by its type: a register of 16, 32 or 64 bits (LLVM Language Reference,
#: "Inline Assembler Expressions", NVPTX).
_REGISTERS = {"i16": "h", "i32": "r", "i64": "l", "ptr": "l"}
#: The k of one `wgmma` of 16-bit factors.
_DEPTH = 16
#: What ends a line of inline assembly, as LLVM's strings have it.
_NEXT = r"\0A\09"


def _asm(e: FunctionEmitter, lines: Sequence[str], args: Sequence[tuple[str, str]]) -> None:
    """Emit inline assembly without a result; args, (type, operand), are ``$0``, ``$1`` and so on in it."""
    constraints = ",".join([*(_REGISTERS[type] for type, _ in args), "~{memory}"])
    operands = ", ".join(f"{type} {operand}" for type, operand in args)
    e.emit(f'call void asm sideeffect "{_NEXT.join(lines)}", "{constraints}"({operands}) convergent')


def _on_sums(
    e: FunctionEmitter, lines: Sequence[str], sums: Sequence[str], args: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """Emit inline assembly that changes `sums` in their registers, which are ``$0``, ``$1`` and so on in it; `args`
    follow. The sums."""
    count = len(sums)
    type = f"{{ {', '.join(['float'] * count)} }}"
    taken = [*(_REGISTERS[t] for t, _ in args), *map(str, range(count))]
    constraints = ",".join([*["=f"] * count, *taken, "~{memory}"])
    operands = ", ".join([*(f"{t} {a}" for t, a in args), *(f"float {s}" for s in sums)])
    whole = e.ins(f'call {type} asm sideeffect "{_NEXT.join(lines)}", "{constraints}"({operands}) convergent')
    return [e.ins(f"extractvalue {type} {whole}, {k}") for k in range(count)]


def _shared(e: FunctionEmitter, memref: SSAValue, indices: Sequence[SSAValue]) -> str:
    """The address of an element in the shared memory of the block, 32 bits: that is no pointer whose address space LLVM
    would infer."""
    mem = e.vals[memref]
    assert isinstance(mem, Mem)
    near = e.hoisted(0, ("near", mem.root), f"addrspacecast ptr {mem.root} to ptr addrspace(3)")
    begin = e.hoisted(0, ("number", mem.root), f"ptrtoint ptr addrspace(3) {near} to i32")
    offset = e.address(mem, indices, llvm_type(mem.type.element_type))[0]
    if not offset.terms and not offset.const:
        return begin
    text = e.index(offset)
    return e.ins(f"add i32 {begin}, {e.ins(f'trunc i64 {text} to i32') if offset.terms else text}")


# ---- mbarriers -----------------------------------------------------------------------------------------------------


def _on_mbarrier(lines: Sequence[str], operand: Callable[[FunctionEmitter, Any], str] | None = None) -> Handler:
    """The emitter of an op on an mbarrier, which is ``$0`` in the assembly; ``$1`` is an operand of 32 bits."""

    def emit(e: FunctionEmitter, op: Any) -> None:
        e.settle()
        args = [("i32", _shared(e, op.barriers, [op.index]))]
        _asm(e, lines, args if operand is None else [*args, ("i32", operand(e, op))])

    return emit


def _mbarrier_fence(e: FunctionEmitter, op: MbarrierFenceOp) -> None:
    """For other threads, and for copies, which see memory by another way (PTX ISA, "Async proxy")."""
    e.settle()
    _asm(e, ["fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;"], [])


#: `try_wait` may give up; so it is asked again. The label is none of LLVM's, which begin with $L: nobody unrolls this
#: loop or counts its trips.
_WAIT = (
    "{",
    ".reg .pred %ended;",
    "WAIT_${:uid}:",
    "mbarrier.try_wait.parity.shared::cta.b64 %ended, [$0], $1;",
    "@!%ended bra WAIT_${:uid};",
    "}",
)


# ---- copies by tensor maps -------------------------------------------------------------------------------------------


def _tma_load(e: FunctionEmitter, op: hopper.TmaLoadOp) -> None:
    """Coordinates, which are signed, and offsets, which are not, stand with the innermost first."""
    tensor = e.vals[op.source]
    assert isinstance(tensor, Mem)
    mode = "im2col" if isinstance(op.map, hopper.Im2colAttr) else "tile"
    args = [("i32", _shared(e, op.destination, op.destination_indices)), ("ptr", tensor.root)]
    args += [("i32", narrowed_index(e, index)) for index in reversed(op.source_indices)]
    args.append(("i32", _shared(e, op.barriers, [op.index])))
    rank = len(op.source_indices)
    coordinates = ", ".join(f"${k + 2}" for k in range(rank))
    offsets = ""
    if op.offsets:
        offsets = f", {{{', '.join(f'${k + rank + 3}' for k in range(len(op.offsets)))}}}"
        args += [("i16", narrowed_index(e, index, 16)) for index in reversed(op.offsets)]
    symbol = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
    _asm(e, [f"{symbol} [$0], [$1, {{{coordinates}}}], [${rank + 2}]{offsets};"], args)


# ---- products by warpgroups ------------------------------------------------------------------------------------------

#: Bytes that a matrix descriptor can tell apart: of an address it has the bits below ("matrix-descriptor-encode").
#: ptxas puts the block's number in its cluster above them, which would change the length that stands there.
_SPACE = 1 << 18
#: The upper half of a matrix descriptor (PTX ISA, "Matrix descriptor"): swizzle 1 is that of 128 bytes, and the stride,
#: in units of 16 bytes, leads from 8 rows to the next. By k, that is from 8 k to the next.
_UPPER = 1 << 30 | SWIZZLED >> 4
#: The leading length, in the same units, above 16 bits of address: from the first columns of B that lie beside each
#: other to the next. Where k lies along rows it has no meaning, and is 1.
_LEADING = {False: 1 << 16, True: PANEL * SWIZZLED_ROW >> 4 << 16}


def _descriptors(e: FunctionEmitter, memref: SSAValue, row: SSAValue, by_k: bool) -> list[str]:
    """The descriptors of a factor, one for each `_DEPTH` of its k: 32 bytes further along rows, or so many rows
    further. What is added stays in the lower half, so that the upper one is known to be the same in all threads."""
    place = e.ins(f"lshr i32 {e.ins(f'and i32 {_shared(e, memref, [row])}, {_SPACE - 1}')}, 4")
    step = _DEPTH * (SWIZZLED_ROW if by_k else 2) >> 4
    found = []
    for k in range(PANEL // _DEPTH):
        lower = e.ins(f"add i32 {place}, {_LEADING[by_k] + k * step}")
        found.append(e.ins(f"or i64 {e.ins(f'zext i32 {lower} to i64')}, {_UPPER << 32}"))
    return found


def _begun_together(e: FunctionEmitter, op: hopper.WarpgroupMmaOp) -> list[hopper.WarpgroupMmaOp]:
    """The products from `op` on that have nothing but pure ops between them, such as compute their rows, and do not
    take the sums of each other. They, and what is between, are emitted now."""
    found, begun = [op], {op.result}
    between: list[Operation] = []
    following = op.next_op
    while following is not None and begun.isdisjoint(following.operands):
        if isinstance(following, hopper.WarpgroupMmaOp):
            for pure in between:
                e.op(pure)
            e.ahead.update(between, [following])
            between.clear()
            found.append(following)
            begun.add(following.result)
        elif following.regions or not is_side_effect_free(following):
            break
        else:
            between.append(following)
        following = following.next_op
    return found


def _warpgroup_mma(e: FunctionEmitter, op: hopper.WarpgroupMmaOp) -> None:
    """Products that are begun together are one piece of assembly: between them nothing may touch a register of sums, or
    ptxas waits for the first ones before it begins the next."""
    ops = _begun_together(e, op)
    sums = [e.parts(product.c) for product in ops]
    registers = iter(range(sum(map(len, sums))))
    descriptors: list[str] = []
    lines = ["wgmma.fence.sync.aligned;"]
    for product, own in zip(ops, sums):
        names = ", ".join(f"${next(registers)}" for _ in own)
        lines += _product(e, product, names, sum(map(len, sums)), descriptors)
    done = iter(_on_sums(e, lines, [part for own in sums for part in own], [("i64", d) for d in descriptors]))
    for product, own in zip(ops, sums):
        e.bind_parts(product.result, [next(done) for _ in own])


def _product(e: FunctionEmitter, op: hopper.WarpgroupMmaOp, sums: str, first: int, descriptors: list[str]) -> list[str]:
    """The lines of one product, on registers of sums: one for each `_DEPTH` of its k. Its descriptors are added to
    `descriptors`, which are the operands from number `first` on."""
    by_k, element = op.by_k is not None, op.a.type.element_type
    a, b = _descriptors(e, op.a, op.row, False), _descriptors(e, op.b, op.first, by_k)
    at = first + len(descriptors)
    descriptors += [*a, *b]
    shape = f"m{WARPGROUP_ROWS}n{hopper.sum_columns(op.c.type)}k{_DEPTH}"
    symbol = f"wgmma.mma_async.sync.aligned.{shape}.f32.{element}.{element}"
    products = [f"{symbol} {{{sums}}}, ${at + k}, ${at + len(a) + k}, 1, 1, 1, 0, {int(by_k)};" for k in range(len(a))]
    return [*products, "wgmma.commit_group.sync.aligned;"]


def _warpgroup_wait(e: FunctionEmitter, op: hopper.WarpgroupWaitOp) -> None:
    sums = [e.parts(value) for value in op.sums]
    line = f"wgmma.wait_group.sync.aligned {op.pending.value.data};"
    waited = iter(_on_sums(e, [line], [part for parts in sums for part in parts]))
    for result, parts in zip(op.res, sums):
        e.bind_parts(result, [next(waited) for _ in parts])


HANDLERS: dict[type[Operation], Handler] = {
    MbarrierInitOp: _on_mbarrier(
        ["mbarrier.init.shared::cta.b64 [$0], $1;"], lambda e, op: str(op.arrivals.value.data)
    ),
    MbarrierFenceOp: _mbarrier_fence,
    MbarrierExpectOp: _on_mbarrier(
        ["mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"], lambda e, op: narrowed_index(e, op.bytes)
    ),
    MbarrierArriveOp: _on_mbarrier(["mbarrier.arrive.shared::cta.b64 _, [$0];"]),
    MbarrierWaitOp: _on_mbarrier(_WAIT, lambda e, op: narrowed_index(e, op.parity)),
    hopper.TmaLoadOp: _tma_load,
    hopper.WarpgroupMmaOp: _warpgroup_mma,
    hopper.WarpgroupWaitOp: _warpgroup_wait,
}
