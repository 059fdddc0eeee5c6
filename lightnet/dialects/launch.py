"""The lines of `@main` at level 4: `tile.launch` and `tile.host`, and finding and checking them in a module.

Imports xDSL and `ir.place`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.ir.place import PlaceAttr, parse_places, print_places


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Run a kernel over its grid: ``tile.launch @k grid 12 [arena+0, static+64]``; one place a memref argument."""

    name = "tile.launch"

    callee = prop_def(SymbolRefAttr)
    grid = prop_def(IntegerAttr)
    args = prop_def(ArrayAttr[PlaceAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(self, callee: str | SymbolRefAttr, grid: int, args: Sequence[PlaceAttr]):
        super().__init__(
            properties={
                "callee": SymbolRefAttr(callee) if isinstance(callee, str) else callee,
                "grid": IntegerAttr(grid, i64),
                "args": ArrayAttr(args),
            }
        )

    def verify_(self) -> None:
        if self.grid.value.data < 0:
            raise VerifyException("a grid has at least 0 blocks")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.callee)
        printer.print_string(f" grid {self.grid.value.data} ")
        print_places(printer, self.args.data)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        callee = SymbolRefAttr(parser.parse_symbol_name())
        parser.parse_keyword("grid")
        grid = parser.parse_integer(allow_boolean=False, allow_negative=False)
        op = cls(callee, grid, parse_places(parser))
        op.attributes |= parser.parse_optional_attr_dict()
        return op


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
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> HostOp:
        service = parser.parse_str_literal()
        return cls(service, parse_places(parser), parser.parse_optional_attr_dict())


def launches(module: ModuleOp) -> list[LaunchOp | HostOp]:
    """The lines of `@main`, in order; empty when the module has none."""
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main":
            return [line for line in op.body.block.ops if isinstance(line, LaunchOp | HostOp)]
    return []


def kernels(module: ModuleOp) -> dict[str, FuncOp]:
    """The functions of the module with a body, other than `@main`, by name."""
    functions = (op for op in module.ops if isinstance(op, FuncOp))
    return {f.sym_name.data: f for f in functions if f.sym_name.data != "main" and f.body.blocks}


def verify_launches(module: ModuleOp) -> None:
    """Check every launch against its kernel (one pass; an op verifier would search the module for each launch).

    Raises VerifyException: an unknown kernel, or a number of places other than that of the memref arguments.
    """
    table = kernels(module)
    for op in launches(module):
        if not isinstance(op, LaunchOp):
            continue
        name = op.callee.string_value()
        if name not in table:
            raise VerifyException(f"tile.launch of an unknown kernel @{name}")
        memrefs = table[name].body.block.arg_types[2:]
        if table[name].body.block.arg_types[:2] != (IndexType(), IndexType()):
            raise VerifyException(f"@{name} is no kernel: its first arguments are the block range (two indices)")
        if len(memrefs) != len(op.args) or not all(isinstance(m, MemRefType) for m in memrefs):
            raise VerifyException(f"@{name} takes {len(memrefs)} memrefs, launched with {len(op.args)} places")
