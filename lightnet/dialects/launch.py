"""The lines of `@main` at level 4: `tile.launch`, `tile.copy` and `tile.host`, what they have in common with those of
other targets, and finding and checking them in a module.

Imports xDSL, `ir` and the runtime's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import (
    ArrayAttr,
    FixedBitwidthType,
    IndexType,
    IntAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.ir.names import SUFFIX, parse_suffix, print_suffix
from lightnet.ir.place import PlaceAttr, parse_places, print_places
from lightnet.ir.types import format_param_value, parse_open_size
from lightnet.runtime.arrays import ALIGNMENT
from lightnet.runtime.dims import Size, common_divisor, greatest, is_never_below
from lightnet.runtime.threads import MAX_THREADS


class LaunchLine(IRDLOperation):
    """A line that runs a kernel: `callee`, on memory at the places `args`. Each target that has launches has an op of
    this kind."""

    if TYPE_CHECKING:
        callee: SymbolRefAttr
        args: ArrayAttr[PlaceAttr]

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on how it runs, for people."""
        raise NotImplementedError

    @classmethod
    def verify_module(cls, module: ModuleOp) -> None:
        """Check all launches of this kind in a module against their functions. Raises VerifyException, or LightNetError
        at one."""


@irdl_op_definition
class LaunchOp(LaunchLine):
    """Run a kernel over its grid: ``tile.launch @k grid 12 [arena+0, static+64]``; one place a memref argument.

    ``tile.launch @k grid 12 threads 2 scratch 4096 [arena+0, arena+8192]`` may run on two threads, each on consecutive
    blocks; its last place is scratch: memory that a block leaves nothing in for others, 4096 bytes (a multiple of 64)
    of thread 0; other threads have memory of their own for it. Without ``threads`` it runs on thread 0. Behind a line
    stand the names of the tensors that it writes: ``as ("y")``.
    """

    name = "tile.launch"

    callee = prop_def(SymbolRefAttr)
    grid = prop_def(IntegerAttr)
    args = prop_def(ArrayAttr[PlaceAttr])
    threads = opt_prop_def(IntegerAttr)
    scratch = opt_prop_def(IntegerAttr)

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(
        self, callee: str | SymbolRefAttr, grid: Size, args: Sequence[PlaceAttr], *, threads: int = 1, scratch: Size = 0
    ):
        super().__init__(
            properties={
                "callee": SymbolRefAttr(callee) if isinstance(callee, str) else callee,
                "grid": _size_attr(grid),
                "args": ArrayAttr(args),
                "threads": IntegerAttr(threads, i64) if threads != 1 else None,
                "scratch": _size_attr(scratch) if scratch != 0 else None,
            }
        )

    @property
    def most_threads(self) -> int:
        """Threads that may run it at a time: no more than it has blocks."""
        threads = 1 if self.threads is None else self.threads.value.data
        return max(1, min(threads, greatest(self.blocks)))

    @property
    def blocks(self) -> Size:
        """The number of blocks of its grid."""
        return self.grid.value.data

    @property
    def notes(self) -> tuple[str, ...]:
        threads = (f"{self.most_threads} threads",) if self.most_threads > 1 else ()
        return (f"grid {self.blocks!s}", *threads)

    @classmethod
    def verify_module(cls, module: ModuleOp) -> None:
        verify_launches(module)

    @property
    def scratch_bytes(self) -> Size:
        """Bytes of scratch of one thread, behind the last place; 0 where there is none."""
        return 0 if self.scratch is None else self.scratch.value.data

    def verify_(self) -> None:
        if not is_never_below(self.blocks, 0):
            raise VerifyException("a grid has at least 0 blocks")
        if self.threads is not None and not 1 <= self.threads.value.data <= MAX_THREADS:
            raise VerifyException(f"a launch runs on 1 to {MAX_THREADS} threads, not {self.threads.value.data}")
        if self.scratch is None:
            return
        if not is_never_below(self.scratch_bytes, 0) or common_divisor(self.scratch_bytes) % ALIGNMENT:
            raise VerifyException(f"scratch is a multiple of {ALIGNMENT}, not {self.scratch_bytes}")
        if not self.args.data:
            raise VerifyException("the last place of a launch with scratch is that of the scratch, and there is none")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.callee)
        printer.print_string(f" grid {format_param_value(self.blocks)} ")
        if self.threads is not None:
            printer.print_string(f"threads {self.threads.value.data} ")
        if self.scratch is not None:
            printer.print_string(f"scratch {format_param_value(self.scratch_bytes)} ")
        print_places(printer, self.args.data)
        print_line_end(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        callee = SymbolRefAttr(parser.parse_symbol_name())
        parser.parse_keyword("grid")
        grid = _size(parser)
        threads = _number(parser) if parser.parse_optional_keyword("threads") else None
        scratch = _size(parser) if parser.parse_optional_keyword("scratch") else None
        op = cls(callee, grid, parse_places(parser))
        if threads is not None:
            op.properties["threads"] = IntegerAttr(threads, i64)
        if scratch is not None:
            op.properties["scratch"] = _size_attr(scratch)
        parse_line_end(parser, op)
        return op


def print_line_end(printer: Printer, line: Operation) -> None:
    """The end of any line: its attributes, and the names of the tensors that it writes, as in front of level 4."""
    printer.print_op_attributes(line.attributes, reserved_attr_names=SUFFIX)
    print_suffix(printer, line)


def parse_line_end(parser: Parser, line: Operation) -> None:
    """Read what `print_line_end` prints; the op gets it."""
    line.attributes |= parser.parse_optional_attr_dict()
    parse_suffix(parser, line.attributes)


def _size_attr(size: Size) -> IntegerAttr:
    return IntegerAttr(IntAttr(size), i64)  # a number, or a `Dim`


def _size(parser: Parser) -> Size:
    size = parse_open_size(parser)
    return _number(parser) if size is None else size


def _number(parser: Parser) -> int:
    return parser.parse_integer(allow_boolean=False, allow_negative=False)


@irdl_op_definition
class HostOp(IRDLOperation):
    """A run-time call, in order with the launches: ``tile.host "print" [arena+1024] {msg = "x"}``."""

    name = "tile.host"

    service = prop_def(StringAttr)
    args = prop_def(ArrayAttr[PlaceAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(self, service: str, args: Sequence[PlaceAttr], attributes: dict[str, Attribute] | None = None):
        super().__init__(
            properties={"service": StringAttr(service), "args": ArrayAttr(args)}, attributes=attributes or {}
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.service.data)
        printer.print_string(" ")
        print_places(printer, self.args.data)
        print_line_end(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> HostOp:
        op = cls(parser.parse_str_literal(), parse_places(parser))
        parse_line_end(parser, op)
        return op


@irdl_op_definition
class CopyOp(IRDLOperation):
    """A copy between two memory spaces, in order with the launches, which the target's machine makes
    (`Target.machine`): ``tile.copy 4096 [arena+0, sram+64]`` copies 4096 bytes from the first place to the second."""

    name = "tile.copy"

    nbytes = prop_def(IntegerAttr)
    args = prop_def(ArrayAttr[PlaceAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(self, nbytes: int, source: PlaceAttr, to: PlaceAttr):
        super().__init__(properties={"nbytes": IntegerAttr(nbytes, i64), "args": ArrayAttr([source, to])})

    @property
    def size(self) -> int:
        """The number of bytes that it copies."""
        return self.nbytes.value.data

    def verify_(self) -> None:
        if self.size < 0 or len(self.args) != 2:
            raise VerifyException("a copy has a number of bytes, at least 0, and two places: from where, and to where")
        source, to = self.args
        apart = max(source.offset.data, to.offset.data) - min(source.offset.data, to.offset.data)
        if source.space == to.space and apart < self.size:
            raise VerifyException("the bytes that a copy reads and those that it writes overlap")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.size} ")
        print_places(printer, self.args.data)
        print_line_end(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> CopyOp:
        nbytes, at = _number(parser), parser.pos
        places = parse_places(parser)
        if len(places) != 2:
            parser.raise_error(
                f"tile.copy takes two places, from where and to where, not {len(places)}", at, parser.pos
            )
        op = cls(nbytes, *places)
        parse_line_end(parser, op)
        return op


#: A line of `@main`.
Line = LaunchLine | HostOp | CopyOp


#: The title of functions that copy bytes: a piece of a move is a launch of one.
COPY = "copy"


def copies_piece(line: LaunchLine) -> bool:
    """Return whether a launch is a piece of a move."""
    return line.callee.string_value().startswith(f"{COPY}_")


def lines_of(module: ModuleOp) -> list[Line]:
    """The lines of `@main`, of any target, in order; empty when the module has none."""
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main" and op.body.blocks:
            return [line for line in op.body.block.ops if isinstance(line, Line)]
    return []


def launches(module: ModuleOp) -> list[LaunchOp | HostOp]:
    """The lines of `@main` that run on processors, in order; empty when the module has none."""
    return [line for line in lines_of(module) if isinstance(line, LaunchOp | HostOp)]


def kernels(module: ModuleOp) -> dict[str, FuncOp]:
    """The functions of the module with a body, other than `@main`, by name."""
    functions = (op for op in module.ops if isinstance(op, FuncOp))
    return {f.sym_name.data: f for f in functions if f.sym_name.data != "main" and f.body.blocks}


def verify_launches(module: ModuleOp) -> None:
    """Check every launch against its kernel (one pass; an op verifier would search the module for each launch).

    Raises VerifyException: an unknown kernel, a number of places other than that of the memref arguments, or scratch
    that is smaller than the memref that stands for it.
    """
    table = kernels(module)
    for op in launches(module):
        if not isinstance(op, LaunchOp):
            continue
        name = op.callee.string_value()
        if name not in table:
            raise VerifyException(f"tile.launch of an unknown kernel @{name}")
        first = 2 + len(kernel_symbols(table[name]))
        memrefs = table[name].body.block.arg_types[first:]
        if set(table[name].body.block.arg_types[:first]) != {IndexType()}:
            raise VerifyException(f"@{name} is no kernel: its first arguments are the block range (two indices)")
        if len(memrefs) != len(op.args) or not all(isinstance(m, MemRefType) for m in memrefs):
            raise VerifyException(f"@{name} takes {len(memrefs)} memrefs, launched with {len(op.args)} places")
        if op.scratch_bytes and op.scratch_bytes < (size := memref_bytes(memrefs[-1])):
            raise VerifyException(f"@{name} takes {size} bytes of scratch, launched with {op.scratch_bytes}")


#: Attribute of a kernel function: the names of the symbols whose values are its arguments behind the block range.
SYMBOLS = "tile.symbols"


def kernel_symbols(function: FuncOp) -> tuple[str, ...]:
    """The names of the symbols that a kernel function takes."""
    names = function.attributes.get(SYMBOLS)
    return tuple(n.data for n in names if isinstance(n, StringAttr)) if isinstance(names, ArrayAttr) else ()


def memref_bytes(type: Attribute) -> int:
    """Bytes of a memref; 0 of any other type, and where its length is open."""
    if isinstance(type, MemRefType) and isinstance(type.element_type, FixedBitwidthType):
        return prod(max(n, 0) for n in type.get_shape()) * type.element_type.size
    return 0
