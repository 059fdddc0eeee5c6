"""The lines of `@main` for cuda: `cuda.launch`, and finding and checking them, and the kernels that they run, in a
module.

Imports xDSL and `ir.place`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    SymbolRefAttr,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.dialects.accesses import Access, LineAccesses
from lightnet.dialects.cuda_checks import (
    ARCHS,
    MAX_GRID,
    STATIC_SHARED,
    VERIFY_LABEL,
    argument_alignment,
    block_of,
    require_block,
    shared_allocations,
)
from lightnet.dialects.cuda_flight import verify_flight
from lightnet.dialects.cuda_hopper import is_swizzled, tensor_maps
from lightnet.dialects.cuda_stages import SWIZZLED
from lightnet.dialects.launch import (
    LaunchLine,
    LaunchOp,
    kernel_symbols,
    kernels,
    lines_of,
    memref_bytes,
    parse_line_end,
    print_line_end,
)
from lightnet.dialects.tile_syntax import ints, parse_ints, print_ints
from lightnet.ir.interval_map import SpaceMap
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import call_symbols, memory_of
from lightnet.ir.place import PlaceAttr, parse_places, print_places
from lightnet.ir.resolving import resolve
from lightnet.ir.types import format_param_value, parse_open_size
from lightnet.runtime.cuda.tensor_map import BYTES, MAP_ALIGNMENT
from lightnet.runtime.dims import Size, common_divisor, greatest, is_never_below

#: Every allocation of shared memory begins at a multiple of so many bytes, rows of a stage (`cuda_hopper`) at one of
#: `SWIZZLED`.
SHARED_ALIGNMENT = 128
#: Bytes of a kernel's parameters (PTX ISA, "Kernel Function Parameters", before 8.1), and of a memref's address or the
#: value of a symbol.
MAX_PARAMETERS, POINTER = 4096, 8
#: What tells the architecture of a module; of the backend, on which this does not depend.
ARCH_OF = "lightnet.backends.cuda.arch:arch_of"


@irdl_op_definition
class CudaLaunchOp(LaunchLine):
    """Run a kernel on every block of a grid: ``cuda.launch @k grid [32, 1, 1] block [128, 1, 1] [arena+0, static+64]``;
    one place a memref argument. A size of the grid that a call decides is ``grid [?"4*batch(1..16)", 1, 1]``; in a call
    that makes it 0 nothing runs.

    ``… block [128, 1, 1] shared 65536 [arena+0]`` gives each block so many bytes of dynamic shared memory: those of a
    kernel whose `cuda.shared` allocations are together more than 48 KiB.
    """

    name = "cuda.launch"

    callee = prop_def(SymbolRefAttr)
    grid = prop_def(ArrayAttr[IntegerAttr])
    block = prop_def(DenseArrayBase)
    args = prop_def(ArrayAttr[PlaceAttr])
    shared = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(
        self,
        callee: str | SymbolRefAttr,
        grid: Sequence[Size],
        block: Sequence[int],
        args: Sequence[PlaceAttr],
        *,
        shared: int,
    ):
        super().__init__(
            properties={
                "callee": SymbolRefAttr(callee) if isinstance(callee, str) else callee,
                "grid": ArrayAttr([IntegerAttr(IntAttr(n), i64) for n in grid]),  # type: ignore[arg-type]  # or `Dim`s
                "block": ints(block),
                "args": ArrayAttr(args),
                "shared": IntegerAttr(shared, i64) if shared else None,
            }
        )

    @property
    def notes(self) -> tuple[str, ...]:
        found = (("grid", self.grid_sizes), ("block", self.block.get_values()))
        sizes = (f"{what} {'x'.join(map(str, size))}" for what, size in found)
        return (*sizes, *([f"shared {self.shared_bytes} bytes"] if self.shared_bytes else []))

    @classmethod
    def verify_module(cls, module: ModuleOp) -> None:
        """Check them for the architecture that the module says; one that says none is checked when it is emitted for
        one."""
        if (arch := resolve(ARCH_OF)(module)) is not None:
            verify_cuda(module, arch)

    @property
    def grid_sizes(self) -> tuple[Size, Size, Size]:
        """Blocks of its grid along x, y and z."""
        x, y, z = (n.value.data for n in self.grid)
        return x, y, z

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        return 0 if self.shared is None else self.shared.value.data

    def verify_(self) -> None:
        grid, block = tuple(n.value.data for n in self.grid), tuple(self.block.get_values())
        if len(grid) != 3 or len(block) != 3:
            raise VerifyException("a grid and a block have three dimensions: grid [32, 1, 1] block [128, 1, 1]")
        if not all(
            is_never_below(n, int(isinstance(n, int))) and greatest(n) <= most for n, most in zip(grid, MAX_GRID)
        ):
            got = f"({', '.join(map(str, grid))})"
            raise VerifyException(f"a grid has 1 to {MAX_GRID} blocks along x, y, z; got {got}")
        require_block(block)
        if not 0 <= self.shared_bytes <= max(ARCHS.values()):
            raise VerifyException(f"a block has at most {max(ARCHS.values())} bytes of shared memory")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.callee)
        printer.print_string(f" grid {format_param_value(self.grid_sizes)}")
        print_ints(printer, "block", self.block)
        if self.shared is not None:
            printer.print_string(f" shared {self.shared_bytes}")
        printer.print_string(" ")
        print_places(printer, self.args.data)
        print_line_end(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> CudaLaunchOp:
        callee = SymbolRefAttr(parser.parse_symbol_name())
        grid: Sequence[Size] | None = None
        if parser.parse_optional_keyword("grid") is not None:
            grid = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_size(parser))
        block = parse_ints(parser, "block")
        if grid is None or block is None:
            parser.raise_error("expected `grid [x, y, z] block [x, y, z]`")
        shared = 0
        if parser.parse_optional_keyword("shared"):
            shared = parser.parse_integer(allow_boolean=False, allow_negative=False)
        op = cls(callee, grid, block.get_values(), parse_places(parser), shared=shared)
        parse_line_end(parser, op)
        return op


def _parse_size(parser: Parser) -> Size:
    size = parse_open_size(parser)
    return parser.parse_integer() if size is None else size


def cuda_launches(module: ModuleOp) -> list[CudaLaunchOp]:
    """The launches of `@main`, in order; empty when the module has none."""
    return [line for line in lines_of(module) if isinstance(line, CudaLaunchOp)]


def cuda_kernels(module: ModuleOp) -> dict[str, FuncOp]:
    """The functions of a module that can be launched, by name. Raises VerifyException for a block that cannot be."""
    return {name: f for name, f in kernels(module).items() if block_of(f) is not None}


def shared_alignment(allocation: Operation) -> int:
    """The number that divides the address of a `cuda.shared`."""
    return SWIZZLED if is_swizzled(allocation.results[0]) else SHARED_ALIGNMENT


def shared_layout(kernel: FuncOp) -> tuple[list[int], int]:
    """The offset of each `cuda.shared` of a kernel, and the bytes of all of them."""
    offsets, end = [], 0
    for op in shared_allocations(kernel):
        align = shared_alignment(op)
        offsets.append(end := -(-end // align) * align)
        end += memref_bytes(op.results[0].type)
    return offsets, end


def dynamic_shared(kernel: FuncOp) -> int:
    """Bytes of shared memory that a launch of a kernel has to ask for: all that it has, if that is more than 48 KiB,
    else 0."""
    size = shared_layout(kernel)[1]
    return size if size > STATIC_SHARED else 0


def parameter_bytes(kernel: FuncOp) -> int:
    """Bytes of a kernel's parameters: the value of each symbol, and one a memref: its address, or in the place of one
    that is copied a tensor map."""
    maps, end = tensor_maps(kernel), 0
    for number in range(len(kernel.function_type.inputs.data)):
        size, align = (BYTES, MAP_ALIGNMENT) if number in maps else (POINTER, POINTER)
        end = -(-end // align) * align + size
    return end


def verify_cuda(module: ModuleOp, arch: str) -> None:
    """Check the kernels of a module for an architecture, and every launch against its kernel (one pass: an op verifier
    would search the module for each launch).

    Raises LightNetError at the function or the launch: an architecture that is not in `ARCHS`, more shared memory than
    it has, a kernel with arguments other than symbols of a call and memrefs, or with results, a launch of an unknown
    kernel, of one of another target, or with other threads, places or dynamic shared memory than it takes, on bytes
    that the module's memory does not have or that are aligned less than it takes, or on memrefs that overlap one that
    is written. Of what calls decide, what is proved for all of them holds: how long memrefs of open length are, nothing
    here says.
    """
    if arch not in ARCHS:
        raise LightNetError(
            f"unknown architecture '{arch:.40}'; there are: {', '.join(ARCHS)}", loc_of(module), VERIFY_LABEL
        )
    at: Operation = module
    try:
        table, memory = cuda_kernels(module), memory_of(module)
        known = {s.name for s in call_symbols(module)}
        for name, at in table.items():
            _verify_kernel(name, at, arch, known)
        accesses = LineAccesses(module)
        for at in lines_of(module):
            _verify_launch(at, table, memory)
            if isinstance(at, CudaLaunchOp):
                _verify_apart(at, accesses.of(at))
                _verify_aligned(at, table[at.callee.string_value()])
    except VerifyException as error:
        raise LightNetError(str(error), loc_of(at), VERIFY_LABEL) from None


def _verify_kernel(name: str, function: FuncOp, arch: str, known: set[str]) -> None:
    if function.function_type.outputs.data:
        raise VerifyException(f"@{name}: a kernel returns nothing")
    symbols, types = kernel_symbols(function), function.function_type.inputs.data
    if unknown := [s for s in symbols if s not in known]:
        raise VerifyException(f"@{name} takes the value of '{unknown[0]}', which no call brings")
    if types[: len(symbols)] != (IndexType(),) * len(symbols) or not all(map(_is_memref, types[len(symbols) :])):
        raise VerifyException(f"@{name}: the arguments of a kernel are memrefs, behind an index a symbol")
    if (taken := parameter_bytes(function)) > MAX_PARAMETERS:
        raise VerifyException(
            f"@{name}: a kernel takes {MAX_PARAMETERS} bytes of parameters, not {taken}: a memref has {POINTER}, a "
            f"tensor map {BYTES}"
        )
    size = shared_layout(function)[1]
    if size > ARCHS[arch]:
        raise VerifyException(f"@{name}: {size} bytes of shared memory, and a block of {arch} has {ARCHS[arch]}")
    verify_flight(function, arch)


def _is_memref(type: Attribute) -> bool:
    return isinstance(type, MemRefType)


def _verify_launch(op: Operation, table: dict[str, FuncOp], memory: dict[str, int]) -> None:
    if isinstance(op, LaunchOp):
        raise VerifyException("tile.launch is of loops of the CPU: kernels of threads are launched by cuda.launch")
    if not isinstance(op, CudaLaunchOp):
        return
    name = op.callee.string_value()
    if name not in table:
        raise VerifyException(f"cuda.launch of @{name}, which is no kernel of the module")
    function = table[name]
    block, given = block_of(function), tuple(op.block.get_values())
    if given != block:
        raise VerifyException(f"@{name} is for blocks of {block} threads, launched with {given}")
    types = function.function_type.inputs.data[len(kernel_symbols(function)) :]
    if len(types) != len(op.args):
        raise VerifyException(f"@{name} takes {len(types)} memrefs, launched with {len(op.args)} places")
    for place, type in zip(op.args, types) if memory else ():
        space, begin, size = place.space.data, place.offset.data, memref_bytes(type)
        if not is_never_below(memory.get(space, 0), begin + size):
            raise VerifyException(
                f"@{name}: {size} bytes at {space}+{begin}, and the module's memory has {memory.get(space, 0)} there"
            )
    if op.shared_bytes != (wanted := dynamic_shared(function)):
        raise VerifyException(f"@{name} takes {wanted} bytes of dynamic shared memory, launched with {op.shared_bytes}")


def _verify_apart(op: CudaLaunchOp, accesses: Sequence[Access]) -> None:
    """Raises VerifyException for a memref of a launch that is written and overlaps another one: code takes each to be
    the only way to its bytes."""
    seen, written = SpaceMap[Access](), SpaceMap[Access]()
    for access in sorted((a for a in accesses if not a.is_open), key=lambda a: a.begin):
        known = seen if access.writes else written
        for other in known[access.space].values(access.begin, access.end):
            at, beside = (f"{a.end - a.begin} bytes at {a.space}+{a.begin}" for a in (access, other))
            raise VerifyException(
                f"@{op.callee.string_value()}: memrefs of a kernel do not overlap one that it writes, and {at} overlap "
                f"{beside}"
            )
        for table in (seen, written) if access.writes else (seen,):
            table[access.space].set(access.begin, access.end, access)


def _verify_aligned(op: CudaLaunchOp, function: FuncOp) -> None:
    """Raises VerifyException for a memref of a launch that is aligned less than the kernel's vectors and copies are
    proven to be."""
    align = argument_alignment(function)
    for place in op.args:
        if common_divisor(place.offset.data) % align:
            where = f"{place.space.data}+{place.offset.data}"
            raise VerifyException(
                f"@{op.callee.string_value()} takes memrefs at multiples of {align} bytes, and is launched with {where}"
            )
