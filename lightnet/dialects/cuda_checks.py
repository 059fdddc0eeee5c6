"""The questions that the verifiers of the `cuda` dialect ask: what an architecture has, which values are the same in
all threads, and what divides an offset.

Everything is found in the function that an op stands in, so that an op can verify itself. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    FixedBitwidthType,
    IntegerAttr,
    MemRefType,
    i32,
)
from xdsl.dialects.memref import ViewOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.tile_memory import is_plain_memref
from lightnet.runtime.arrays import ALIGNMENT

#: Architecture -> bytes of shared memory that a block may have (CUDA C++ Programming Guide, "Compute Capabilities").
ARCHS = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10, "sm_90a": 227 << 10}
#: Bytes of shared memory that a kernel may have without asking for them at its launch.
STATIC_SHARED = 48 << 10
MAX_BLOCK_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)
WARP = 32

#: The label of what is wrong with a module's kernels and launches.
VERIFY_LABEL = "cuda.verify"

#: The attribute that makes a function a kernel: the threads of its blocks along x, y and z.
BLOCK_ATTRIBUTE = "cuda.block"
#: The memory space of shared memory, as in NVVM.
SHARED = IntegerAttr(3, i32)


# ---- kernels -------------------------------------------------------------------------------------------------------


def block_of(function: func.FuncOp) -> tuple[int, int, int] | None:
    """The threads of a kernel's blocks; None where the function is no kernel. Raises VerifyException for what cannot be
    launched."""
    attr = function.attributes.get(BLOCK_ATTRIBUTE)
    if attr is None:
        return None
    numbers = tuple(attr.get_values()) if isinstance(attr, DenseArrayBase) else ()
    if len(numbers) != 3 or not all(isinstance(n, int) for n in numbers):
        raise VerifyException(f"{BLOCK_ATTRIBUTE} is three numbers of threads, array<i32: 128, 1, 1>, got {attr}")
    require_block(numbers)
    return numbers


def require_block(threads: tuple[int, ...]) -> None:
    """Raises VerifyException for a block of more threads than there may be."""
    if any(not 1 <= n <= most for n, most in zip(threads, MAX_BLOCK)) or prod(threads) > MAX_BLOCK_THREADS:
        raise VerifyException(
            f"a block has at most {MAX_BLOCK} threads along x, y, z, and {MAX_BLOCK_THREADS} together; got {threads}"
        )


def function_of(op: Operation) -> func.FuncOp | None:
    """The function that an op stands in."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, func.FuncOp):
        parent = parent.parent_op()
    return parent


def block_around(op: Operation) -> tuple[int, int, int] | None:
    """The threads of a block of the kernel that an op stands in; None where it stands in none."""
    function = function_of(op)
    return None if function is None else block_of(function)


def require_kernel(op: Operation) -> tuple[int, int, int]:
    """The threads of a block of the kernel that `op` stands in. Raises VerifyException where it stands elsewhere."""
    block = block_around(op)
    if block is None:
        raise VerifyException(
            f"it stands in no kernel: only functions with {BLOCK_ATTRIBUTE} may wait, or share memory, between threads"
        )
    return block


def require_full_warps(op: Operation) -> None:
    """Raises VerifyException unless all warps of the kernel have all their lanes, as an op of all lanes needs them."""
    block = require_kernel(op)
    if prod(block) % WARP:
        raise VerifyException(
            f"all lanes of a warp take part: a block of {prod(block)} threads is no multiple of {WARP}"
        )


def is_shared(type: Attribute) -> bool:
    """Return whether a type is a memref in shared memory."""
    return isinstance(type, MemRefType) and type.memory_space == SHARED


def require_memref(type: Attribute, what: str, shared: bool) -> MemRefType[Attribute]:
    """Raises VerifyException unless `type` is a plain memref, in shared memory or not."""
    if not isinstance(type, MemRefType) or not is_plain_memref(type) or DYNAMIC_INDEX in type.get_shape():
        raise VerifyException(f"{what}: expected a memref with a static shape and the identity layout, got {type}")
    if is_shared(type) != shared:
        raise VerifyException(f"{what}: expected a memref in {'shared' if shared else 'global'} memory, got {type}")
    return type


# ---- which values are the same in all threads ------------------------------------------------------------------------

#: How far a value is the same: in all threads of a block, in those of a warp, or in none but one.
UNIFORM, WARP_UNIFORM, DIVERGENT = range(3)
_ACROSS = {"block": UNIFORM, "warp": WARP_UNIFORM}


def require_uniform(op: Operation, group: str) -> None:
    """Raises VerifyException if threads of one ``block`` (or ``warp``) may part before they come to `op`: if the
    condition or the bounds of anything around it depend on what differs between them."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, func.FuncOp):
        for value in _decides(parent):
            level, witness = divergence(value)
            if level > _ACROSS[group]:
                raise VerifyException(
                    f"all threads of a {group} come to it together, and it stands under {parent.name}, which depends "
                    f"on {witness}"
                )
        parent = parent.parent_op()


def _decides(op: Operation) -> Iterator[SSAValue]:
    """The values that say which threads run the region of `op`, and how often."""
    match op:
        case scf.IfOp():
            yield op.cond
        case scf.ForOp():
            yield from (op.lb, op.ub, op.step)
        case scf.WhileOp():
            condition = op.before_region.block.last_op
            assert isinstance(condition, scf.ConditionOp)
            yield condition.condition
        case _:
            raise VerifyException(f"nothing is known of the control flow of {op.name}")


def divergence(value: SSAValue) -> tuple[int, str]:
    """The extent to which a value is the same between threads, and the name of what makes it differ. A value is as
    divergent as the worst of what it is computed from; what memory holds is as divergent as the address.
    """
    seen, waiting = {value}, [value]
    worst, witness = UNIFORM, ""
    while waiting:
        current = waiting.pop()
        level = _source(current)
        if level > worst:
            worst, witness = level, current.owner.name if isinstance(current.owner, Operation) else "an argument"
        if level != DIVERGENT:
            more = [v for v in _computed_from(current) if v not in seen]
            seen.update(more)
            waiting += more
    return worst, witness


#: Ops whose result is the thread's own, whatever they take.
_OWN = (
    "cuda.lane_id", "cuda.ldmatrix", "cuda.mma", "cuda.shuffle", "cuda.warpgroup_mma", "cuda.warpgroup_wait",
    "func.call",
    "memref.alloca", "memref.atomic_rmw",
)  # fmt: skip


def _source(value: SSAValue) -> int:
    """The divergence that begins at a value."""
    op = value.owner
    if not isinstance(op, Operation):
        return UNIFORM
    if op.name == "cuda.warp_id":
        return WARP_UNIFORM
    if op.name == "cuda.thread_id":
        return _of_thread_id(op)
    if _counts_warps(op):
        return WARP_UNIFORM
    return DIVERGENT if op.name in _OWN else UNIFORM


def _counts_warps(op: Operation) -> bool:
    """Return whether it is ``thread_id x / n`` of whole warps n, where rows of threads are whole warps, too."""
    if not isinstance(op, arith.DivSIOp | arith.DivUIOp):
        return False
    thread, block = op.lhs.owner, block_around(op)
    if block is None or not isinstance(thread, Operation) or thread.name != "cuda.thread_id":
        return False
    along = thread.properties["dim"].data == "x"  # type: ignore[attr-defined]
    rows = block[0] % WARP == 0 or block[1:] == (1, 1)
    return along and rows and isinstance(op.rhs.owner, arith.ConstantOp) and divisor(op.rhs) % WARP == 0


def _of_thread_id(op: Operation) -> int:
    """Warps are consecutive threads, x fastest: along y, threads differ within a warp only where a row is no whole
    number of warps."""
    block = block_around(op)
    if block is None:
        return DIVERGENT
    dim = "xyz".index(op.properties["dim"].data)  # type: ignore[attr-defined]
    if block[dim] == 1:
        return UNIFORM
    return WARP_UNIFORM if dim and prod(block[:dim]) % WARP == 0 else DIVERGENT


def _computed_from(value: SSAValue) -> Sequence[SSAValue]:
    """The values that `value` depends on directly, around loops and through branches."""
    if isinstance(value, BlockArgument):
        return _argument_from(value)
    assert isinstance(value, OpResult)
    op, index = value.op, value.index
    match op:
        case scf.IfOp():
            yields = [region.block.last_op for region in op.regions if region.blocks]
            return [op.cond, *(y.operands[index] for y in yields if y is not None)]
        case scf.ForOp():
            return [op.lb, op.ub, op.step, op.iter_args[index], _yielded(op.body.block.last_op, index)]
        case scf.WhileOp():
            condition = op.before_region.block.last_op
            assert isinstance(condition, scf.ConditionOp)
            return [condition.condition, condition.args[index]]
        case _:
            return () if _counts_warps(op) else tuple(op.operands)


def _argument_from(value: BlockArgument) -> Sequence[SSAValue]:
    parent, index = value.block.parent_op(), value.index
    if isinstance(parent, scf.ForOp):
        if index == 0:
            return [parent.lb, parent.step]
        return [parent.iter_args[index - 1], _yielded(parent.body.block.last_op, index - 1)]
    if isinstance(parent, scf.WhileOp):
        if value.block is parent.before_region.block:
            return [parent.arguments[index], _yielded(parent.after_region.block.last_op, index)]
        condition = parent.before_region.block.last_op
        assert isinstance(condition, scf.ConditionOp)
        return [condition.args[index]]
    return ()


def _yielded(terminator: Operation | None, index: int) -> SSAValue:
    assert isinstance(terminator, scf.YieldOp)
    return terminator.operands[index]


# ---- what divides an offset ------------------------------------------------------------------------------------------


def require_aligned(memref: SSAValue, indices: Sequence[SSAValue], wanted: int, what: str) -> None:
    """Raises VerifyException unless the address of an element is proven to be a multiple of `wanted` bytes."""
    memref_type = memref.type
    assert isinstance(memref_type, MemRefType)
    element = memref_type.element_type
    assert isinstance(element, FixedBitwidthType)
    found, stride = _alignment(memref), element.size
    for index, extent in zip(reversed(indices), reversed(memref_type.get_shape())):
        found = gcd(found, divisor(index) * stride)
        stride *= extent
    if found % wanted:
        raise VerifyException(
            f"{what}: the address has to be a multiple of {wanted} bytes, and what is known of its indices makes it "
            f"one of {found}"
        )


def _alignment(memref: SSAValue) -> int:
    """The number that divides the address of a memref: of an argument of a kernel as its attribute says, of a view what
    its place leaves of that, of shared memory more than anything asks for.
    """
    if isinstance(memref.owner, ViewOp):
        return gcd(_alignment(memref.owner.source), divisor(memref.owner.byte_shift))
    function = memref.block.parent_op() if isinstance(memref, BlockArgument) else None
    return ALIGNMENT if function is None else argument_alignment(function)


def argument_alignment(function: Operation) -> int:
    """The number that divides the addresses of a function's memrefs: its `tile.align`, a power of two. Raises
    VerifyException for anything else there.
    """
    given = function.attributes.get("tile.align")
    if given is None:
        return ALIGNMENT
    number = given.value.data if isinstance(given, IntegerAttr) else 0
    if number < 1 or number & (number - 1):
        raise VerifyException(f"tile.align is a power of two, in bytes, got {given}")
    return number


#: How far back `divisor` looks.
_LOOKS = 64


def divisor(value: SSAValue) -> int:
    """A number that divides an index, by how it is computed; 0 of what is always 0."""
    return _divisor(value, {}, _LOOKS)


def _divisor(value: SSAValue, known: dict[SSAValue, int], looks: int) -> int:
    if value not in known:
        known[value] = _divisor_of(value, known, looks - 1) if looks else 1
    return known[value]


def _divisor_of(value: SSAValue, known: dict[SSAValue, int], looks: int) -> int:
    op = value.owner
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        if not isinstance(loop, scf.ForOp) or value.index:
            return 1
        return gcd(_divisor(loop.lb, known, looks), _divisor(loop.step, known, looks))
    if isinstance(op, arith.ConstantOp):
        return abs(op.value.value.data) if isinstance(op.value, IntegerAttr) else 1
    if not isinstance(op, _FOLLOWED):
        return 1
    if isinstance(op, arith.IndexCastOp):
        return _divisor(op.input, known, looks)
    a, b = (_divisor(v, known, looks) for v in op.operands[-2:])
    if isinstance(op, arith.MuliOp):
        return a * b
    if isinstance(op, arith.AndIOp):  # the bits that are 0 in either operand
        return max(a & -a, b & -b) if a and b else 0
    if isinstance(op, arith.OrIOp | arith.XOrIOp):
        return gcd(a & -a, b & -b)
    return gcd(a, b)


_FOLLOWED = (
    arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.RemSIOp, arith.RemUIOp, arith.MinSIOp, arith.MaxSIOp,
    arith.SelectOp, arith.IndexCastOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp,
)  # fmt: skip


def shared_allocations(function: func.FuncOp) -> list[Operation]:
    """The `cuda.shared` ops of a kernel, in order."""
    return [op for op in function.body.block.ops if op.name == "cuda.shared"] if function.body.blocks else []
