"""The structural ops: `ln.once`, a region evaluated when a network is loaded, and `ln.yield` (`ir/kernel.py`); and what
a network's function consists of."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure

from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp, RegionOp, YieldOp, parse_isolated, parse_types
from lightnet.ir.locations import loc_of
from lightnet.ir.op import SUFFIX, LnOp, parse_suffix, print_suffix


class OnceOp(RegionOp):
    """The ops that depend on params alone, evaluated when the network is loaded and again when a param is fed:
    upstream's `static_run`, in SSA. Its results are the static tensors.

    ```mlir
    %w = ln.once {
      %w0 = ln.param {from_file = true} : tensor<4x3xf32> as "create1"("w")
      ln.yield %w0
    } : tensor<4x3xf32>
    ```
    Attributes that are no suffix stand in front: ``ln.once attributes {note} { ... }``.
    """

    name = "ln.once"
    traits = traits_def(IsolatedFromAbove(), Pure())

    @classmethod
    def of(cls, body: Region, attributes: dict[str, Attribute] | None = None) -> Self:
        last = body.block.last_op
        assert isinstance(last, YieldOp)
        return cls.create(result_types=[v.type for v in last.operands], regions=[body], attributes=attributes or {})

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        given = parser.parse_optional_attr_dict_with_keyword(SUFFIX)
        region = parse_isolated(parser)
        types = parse_types(parser)
        attributes = dict(given.data) if given is not None else {}
        parse_suffix(parser, attributes)
        return cls.create(result_types=types, regions=[region], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes, reserved_attr_names=SUFFIX, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.regions[0], print_entry_block_args=False)
        self.print_types(printer)
        print_suffix(printer, self)


def planned_ops(block: Block) -> list[Operation]:
    """The ops of a network in order, `func.return` last. Raises `LightNetError` for an op that cannot be planned."""
    ops = list(block.ops)
    for op in ops:
        known = isinstance(op, LnOp | KernelOp | OnceOp)
        if not known and not (isinstance(op, ReturnOp) and op is ops[-1]):
            raise LightNetError(
                f"'{op.name}' cannot be planned: main holds ln ops, kernels, ln.once and func.return",
                loc_of(op),
                label="plan.op",
            )
    if not ops or not isinstance(ops[-1], ReturnOp):
        raise LightNetError("main should end with func.return", label="plan.op")
    if block.args:
        main = block.parent_op()
        text = "@main has arguments: the pass 'bind' makes inputs of them"
        raise LightNetError(text, loc_of(main) if main is not None else None, label="plan.arguments")
    return ops


OPS = (OnceOp, YieldOp)
