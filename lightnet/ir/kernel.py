"""The kernel region, common to all targets: a region of `ln` ops that becomes one function at level 4; and the
terminator of all regions, `ln.yield`.

The body is the semantics; the attributes are choices (algorithm, tile, band): removing every choice may change rounding
and nothing else. A target derives one op class of its own (`cpu.kernel`); everything else here is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerAttr, IntegerType, StringAttr, UnitAttr, i1, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from lightnet.dataclasses import dataclass, field
from lightnet.ir.op import (
    SUFFIX,
    LnOp,
    parse_operands,
    parse_suffix,
    print_suffix,
    resolve_value,
    set_tensor_names,
    tensor_name,
)
from lightnet.ir.params import ParamValue
from lightnet.ir.types import ParamAttr


class YieldOp(Operation):
    """Ends a kernel or an `ln.once` region: its operands are the results of the op around it.

    ```mlir
    ln.yield %a, %b
    ```
    """

    name = "ln.yield"
    traits = traits_def(IsTerminator(), Pure())

    @classmethod
    def of(cls, values: Sequence[SSAValue]) -> Self:
        return cls.create(operands=values)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return cls.create(operands=parse_operands(parser), attributes=parser.parse_optional_attr_dict())

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(self.attributes)


class RegionOp(Operation):
    """An op around one isolated block of `ln` ops, whose results are what `ln.yield` at its end names."""

    @property
    def body(self) -> Block:
        return self.regions[0].block

    @property
    def terminator(self) -> YieldOp:
        last = self.body.last_op
        assert isinstance(last, YieldOp)
        return last

    def verify_(self) -> None:
        if len(self.regions) != 1 or len(self.regions[0].blocks) != 1:
            raise VerifyException(f"{self.name}: it should have one region of one block")
        if not isinstance(self.body.last_op, YieldOp):
            raise VerifyException(f"{self.name}: its region should end with ln.yield")
        if tuple(self.terminator.operand_types) != tuple(self.result_types):
            raise VerifyException(f"{self.name}: the types yielded should be the types of its results")

    def print_types(self, printer: Printer) -> None:
        """Print the types of the results, behind the region."""
        if self.results:
            printer.print_string(" : ")
            printer.print_list(self.results, lambda r: printer.print_attribute(r.type))


def parse_types(parser: Parser) -> list[Attribute]:
    """The types of results behind a region; empty where there are none."""
    if parser.parse_optional_punctuation(":") is None:
        return []
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def parse_isolated(parser: Parser, arguments: Sequence[Parser.Argument] | None = None) -> Region:
    """A region that sees no value from outside; hiding them also spares a copy of all of them."""
    values, parser.ssa_values = parser.ssa_values, {}
    region = parser.parse_region(arguments)
    parser.ssa_values = values
    return region


class KernelOp(RegionOp):
    """``<target>.kernel(%x_ = %x, %w_ = %w) choices {…} { … ln.yield %r } : tensor<4xf32> at arena+0 as ("y")``.

    Isolated from above: its block arguments are its operands, one for one. Results are what the region yields; their
    types, which say it again to who reads, may be left out.
    """

    traits = traits_def(IsolatedFromAbove(), Pure())
    #: Loops of its kernels may have vectors: a target whose code comes of level 4 by its own hand gets scalars.
    in_vectors: ClassVar[bool] = False

    @classmethod
    def wrap(cls, ops: Sequence[LnOp], choices: dict[str, Attribute] | None = None) -> Self:
        """A kernel around clones of `ops` (in order, each using values from outside or earlier ones); every result is
        yielded. The caller replaces the ops by it. Names of tensors go to the kernel's results, too."""
        outside: dict[SSAValue, int] = {}
        inside = {r for op in ops for r in op.results}
        for op in ops:
            for value in op.operands:
                if value not in inside:
                    outside.setdefault(value, len(outside))
        block = Block(arg_types=[v.type for v in outside])
        mapping: dict[SSAValue, SSAValue] = dict(zip(outside, block.args))
        for value, arg in mapping.items():
            arg.name_hint = value.name_hint
        clones = [op.clone(mapping) for op in ops]
        for op, clone in zip(ops, clones):
            clone.location = op.location
        block.add_ops(clones)
        return cls.around(block, list(outside), [r for op in clones for r in op.results], choices)

    @classmethod
    def around(
        cls,
        block: Block,
        operands: Sequence[SSAValue],
        yielded: Sequence[SSAValue],
        choices: dict[str, Attribute] | None = None,
    ) -> Self:
        """A kernel whose body is `block` (ended here with a yield of `yielded`)."""
        block.add_op(YieldOp.of(yielded))
        kernel = cls.create(
            operands=operands, result_types=[v.type for v in yielded], regions=[Region(block)], attributes=choices or {}
        )
        kernel.refresh_names()
        return kernel

    def refresh_names(self) -> None:
        """Name the results after the values yielded."""
        yielded = self.terminator.operands
        set_tensor_names(self, [tensor_name(v) for v in yielded])
        for result, value in zip(self.results, yielded):
            if result.name_hint is None:
                result.name_hint = value.name_hint

    @property
    def ops(self) -> list[LnOp]:
        """The ops of the body, the terminator left out."""
        return [op for op in self.body.ops if type(op) is not YieldOp]

    def number_of(self, value: SSAValue) -> int:
        """The number of the operand that a value of the body is: an argument of its block."""
        assert isinstance(value, BlockArgument) and value.block is self.body
        return value.index

    @property
    def outside(self) -> dict[SSAValue, SSAValue]:
        """The operand that each argument of the body is."""
        return dict(zip(self.body.args, self.operands))

    @property
    def choices(self) -> dict[str, Attribute]:
        """The attributes that are choices (names and places are not)."""
        return {k: v for k, v in self.attributes.items() if k not in SUFFIX}

    def verify_(self) -> None:
        super().verify_()
        if tuple(a.type for a in self.body.args) != tuple(self.operand_types):
            raise VerifyException(f"{self.name}: its block arguments should have the types of its operands")
        for op in self.ops:
            if getattr(op, "is_host", False):
                raise VerifyException(f"{self.name}: {op.name} runs in the host and cannot stand in a kernel")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_punctuation("(")
        arguments: list[Parser.Argument] = []
        operands: list[SSAValue] = []
        while not parser.parse_optional_punctuation(")"):
            if arguments:
                parser.parse_punctuation(",")
            argument = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operands.append(resolve_value(parser, parser.parse_unresolved_operand()))
            arguments.append(argument.resolve(operands[-1].type))
        attributes: dict[str, Attribute] = {}
        if parser.parse_optional_keyword("choices"):
            attributes = parser.parse_optional_attr_dict()
        region = parse_isolated(parser, arguments)
        last, at = region.block.last_op, parser.pos
        if not isinstance(last, YieldOp):
            parser.raise_error("a kernel's region should end with ln.yield")
        yielded = [v.type for v in last.operands]
        if (types := parse_types(parser)) and types != yielded:
            expected, got = (", ".join(map(str, found)) for found in (yielded, types))
            parser.raise_error(f"a kernel has the types that it yields: expected {expected}, got {got}", at, parser.pos)
        parse_suffix(parser, attributes)
        return cls.create(operands=operands, result_types=yielded, regions=[region], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string("(")
        outer = [(a, v) for a, v in zip(self.body.args, self.operands)]
        # The printer is already in the kernel's scope: operands keep the names they have outside.
        for i, (arg, value) in enumerate(outer):
            printer.print_string(", " if i else "")
            printer.print_ssa_value(arg)
            printer.print_string(" = ")
            printer.print_operand(value)
        printer.print_string(") ")
        if choices := self.choices:
            printer.print_string("choices {")
            for i, (key, chosen) in enumerate(choices.items()):
                printer.print_string(", " if i else "")
                printer.print_identifier_or_string_literal(key)
                if not isinstance(chosen, UnitAttr):
                    printer.print_string(" = ")
                    _print_choice(printer, chosen)
            printer.print_string("} ")
        printer.print_region(self.regions[0], print_entry_block_args=False)
        self.print_types(printer)
        print_suffix(printer, self)


def choice_attr(value: str | int | Sequence[int]) -> Attribute:
    """A choice as an attribute: a word, a number (bool included), or an array of numbers."""
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, bool):
        return IntegerAttr(int(value), i1)
    return IntegerAttr(value, i64) if isinstance(value, int) else ArrayAttr([IntegerAttr(int(v), i64) for v in value])


def choice_integers(attr: Attribute) -> int | tuple[int, ...] | None:
    """The value of a choice, however it was written, that is an integer or an array of integers; None for any other."""
    value = attr.data if isinstance(attr, ParamAttr | ArrayAttr) else attr
    if not isinstance(value, tuple | list):
        return _integer(value)
    found = tuple(n for v in value if (n := _integer(v)) is not None)
    return found if len(found) == len(value) else None


def _integer(value: object) -> int | None:
    number = value.value.data if isinstance(value, IntegerAttr) else value
    return number if type(number) is int else None


def _print_choice(printer: Printer, value: Attribute) -> None:
    """As MLIR does, but for the type of a number that is i64 anyway where none is written."""
    match value:
        case IntegerAttr(type=IntegerType(width=IntAttr(data=64))):
            printer.print_string(str(value.value.data))
        case ArrayAttr():
            printer.print_string("[")
            printer.print_list(value.data, lambda v: _print_choice(printer, v))
            printer.print_string("]")
        case _:
            printer.print_attribute(value)


@dataclass
class LayerEntry:
    """An op of upstream's that lists layers, as a file has it: (argument, tensor) of what goes in and comes out, and
    the parameters."""

    ins: list[tuple[str, str]] = field(default_factory=list)
    outs: list[tuple[str, str]] = field(default_factory=list)
    params: dict[str, ParamValue] = field(default_factory=dict)


class CompositeKernelOp(KernelOp):
    """A kernel of several ops that one op of upstream's stands for, whose parameters list them as layers
    (`tensorrt`)."""

    @classmethod
    def of_entry(cls, entry: LayerEntry, values: Mapping[str, SSAValue]) -> Self:
        """The kernel of an entry, not inserted, whose operands are `values` by the tensors' names in the entry. Raises
        `LightNetError` for layers that are none."""
        raise NotImplementedError

    def is_entry(self) -> bool:
        """Return whether all ops in it are layers."""
        raise NotImplementedError

    def entry(self, outside: Sequence[str], results: Sequence[str]) -> LayerEntry:
        """Its entry; `outside` and `results` are the names of its operands and results."""
        raise NotImplementedError
