"""The structural ops: `ln.once`, a region evaluated when a network is loaded, and `ln.yield` (`ir/kernel.py`)."""

from __future__ import annotations

from typing import Self

from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from lightnet.ir.kernel import YieldOp
from lightnet.ir.op import parse_suffix, print_suffix


class OnceOp(Operation):
    """What depends on params alone, evaluated when the network is loaded and again when a param is fed: upstream's
    `static_run`, in SSA. Its results are the static tensors.

    ```mlir
    %w = ln.once {
      %w0 = ln.param {from_file = true} : tensor<4x3xf32> as "create1"("w")
      ln.yield %w0
    } : tensor<4x3xf32>
    ```
    """

    name = "ln.once"
    traits = traits_def(IsolatedFromAbove(), Pure())

    @classmethod
    def of(cls, body: Region, attributes: dict[str, Attribute] | None = None) -> Self:
        last = body.block.last_op
        assert isinstance(last, YieldOp)
        return cls.create(result_types=[v.type for v in last.operands], regions=[body], attributes=attributes or {})

    @property
    def body(self) -> Block:
        return self.regions[0].block

    @property
    def terminator(self) -> YieldOp:
        last = self.body.last_op
        assert isinstance(last, YieldOp)
        return last

    def verify_(self) -> None:
        last = self.body.last_op
        if not isinstance(last, YieldOp):
            raise VerifyException("ln.once: its region should end with ln.yield")
        if tuple(last.operand_types) != tuple(self.result_types):
            raise VerifyException("ln.once: the types yielded should be the types of its results")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        values, parser.ssa_values = parser.ssa_values, {}  # isolated from above; also keeps scopes cheap
        region = parser.parse_region()
        parser.ssa_values = values
        types: list[Attribute] = []
        if parser.parse_optional_punctuation(":"):
            types = list(parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type))
        attributes: dict[str, Attribute] = {}
        parse_suffix(parser, attributes)
        return cls.create(result_types=types, regions=[region], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_region(self.regions[0], print_entry_block_args=False)
        if self.results:
            printer.print_string(" : ")
            printer.print_list(self.results, lambda r: printer.print_attribute(r.type))
        print_suffix(printer, self)


OPS = (OnceOp, YieldOp)
