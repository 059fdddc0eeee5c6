"""Our dialects as IRDL, for the modules that `for_mlir.py` prints: what MLIR's tools then check is names, numbers of
operands, results and regions, and types as far as IRDL says them.

    ln-opt net.onnx --pass=@cpu:plan --irdl=net.irdl.mlir -o net.mlir
    mlir-opt --irdl-file=net.irdl.mlir net.mlir

IRDL as MLIR 20 and later read it (parameters, operands and results have names). An op of ours says more than IRDL can
(dims, types that follow from others, bounds of parameters): our own verifier stays the one that decides. Imports xDSL's
IRDL dialect and what describes our ops.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from xdsl.builder import Builder, InsertPoint
from xdsl.dialects import irdl
from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    AttrConstraint,
    BaseAttr,
    EqAttrConstraint,
    IRDLOperation,
    OptionalDef,
    RangeConstraint,
    RangeLengthConstraint,
    RangeOf,
    RangeVarConstraint,
    VarConstraint,
    VariadicDef,
)
from xdsl.printer import Printer

from lightnet.ir.context import OURS
from lightnet.ir.kernel import RegionOp
from lightnet.ir.op import LnOp
from lightnet.ir.registry import DIALECTS
from lightnet.ir.types import ParamAttr
from lightnet_xdsl.for_mlir import attribute_name, is_open, is_plain, op_name, text_for_mlir, widths

TENSOR = "!builtin.tensor"
#: MLIR's names of what our ops ask for.
_NAMES: dict[type[Attribute], str] = {
    Float16Type: "builtin.f16",
    Float32Type: "builtin.f32",
    Float64Type: "builtin.f64",
    BFloat16Type: "builtin.bf16",
    IndexType: "builtin.index",
    IntegerType: "builtin.integer",
    VectorType: "builtin.vector",
    TensorType: "builtin.tensor",
    MemRefType: "builtin.memref",
}
SINGLE, OPTIONAL, VARIADIC = irdl.VariadicityAttr.SINGLE, irdl.VariadicityAttr.OPTIONAL, irdl.VariadicityAttr.VARIADIC


def texts_for_mlir(module: ModuleOp) -> tuple[str, str]:
    """A module and its dialects, as MLIR's tools read them."""
    dialects = irdl_of(module)
    return text_for_mlir(module), dialects


def irdl_of(module: ModuleOp) -> str:
    """The dialects of ours that a module uses, or that define attributes of theirs, as IRDL text."""
    used = {op.name.partition(".")[0] for op in module.walk()}
    most = widths(module)
    ops = [_dialect(name, DIALECTS.get(name), most, module) for name in OURS if name in used or name == "ln"]
    stream = StringIO()
    Printer(stream=stream).print_op(ModuleOp(ops))
    return stream.getvalue() + "\n"


def _dialect(name: str, dialect: Dialect, most: dict[tuple[str, str], int], module: ModuleOp) -> irdl.DialectOp:
    block = Block()
    builder = Builder(InsertPoint.at_end(block))
    for attribute in dialect.attributes:
        builder.insert(_attribute(attribute))
    known = {op.name: op for op in dialect.operations}
    # ops that come with a target, and no dialect lists
    known |= {op.name: type(op) for op in module.walk() if op.name.startswith(f"{name}.") and op.name not in known}
    for op in known.values():
        builder.insert(_Definition(op, most).made())
    return irdl.DialectOp(name, Region(block))


def _attribute(attribute: type[Attribute]) -> irdl.AttributeOp:
    """An attribute with its parameters, or with one, its text or value."""
    names = ["value"]
    if is_plain(attribute):
        assert issubclass(attribute, ParametrizedAttribute)
        names = [name for name, _ in attribute.get_irdl_definition().parameters]
    block = Block()
    builder = Builder(InsertPoint.at_end(block))
    found = [builder.insert(irdl.AnyOp()).output for _ in names]
    builder.insert(irdl.ParametersOp(found, ArrayAttr(map(StringAttr, names))))
    return irdl.AttributeOp(attribute_name(attribute).partition(".")[2], Region(block))


class _Definition:
    """The definition of one op, as it is built."""

    def __init__(self, op: type[Operation], most: dict[tuple[str, str], int]):
        self.op, self.most = op, most
        self.block = Block()
        self.builder = Builder(InsertPoint.at_end(self.block))
        self.variables: dict[str, SSAValue] = {}

    def made(self) -> irdl.OperationOp:
        for side, kind in (("operands", irdl.OperandsOp), ("results", irdl.ResultsOp)):
            if found := self.fields(side):
                names, variadicities, values = zip(*found)
                places = irdl.VariadicityArrayAttr(ArrayAttr(variadicities))
                self.builder.insert(kind(list(values), places, ArrayAttr(map(StringAttr, names))))
        if required := self.attributes():
            self.builder.insert(irdl.AttributesOp.get(required))
        if count := self.regions():
            made = [self.builder.insert(irdl.RegionOp.create(result_types=[irdl.RegionType()])) for _ in range(count)]
            called = ArrayAttr([StringAttr(f"region{n}") for n in range(count)])
            self.builder.insert(irdl.RegionsOp([region.output for region in made], called))
        return irdl.OperationOp(op_name(self.op.name).partition(".")[2], Region(self.block))

    def fields(self, side: str) -> list[tuple[str, irdl.VariadicityAttr, SSAValue]]:
        """Name, number and type of each operand or result; of an op with any number of them a place each."""
        if is_open(self.op, side):
            base = TENSOR if issubclass(self.op, LnOp) else None
            width = self.most.get((self.op.name, side), 0)
            return [(f"{side[:-1]}{n}", OPTIONAL, self.based(base)) for n in range(width)]
        if issubclass(self.op, LnOp):
            declared = self.op.schema.operands if side == "operands" else self.op.schema.results
            return [(field.name, SINGLE, self.based(TENSOR)) for field in declared]
        if not issubclass(self.op, IRDLOperation):
            return []
        found = getattr(self.op.get_irdl_definition(), side)
        return [(name, _number(field), self.of_range(field.constr)) for name, field in found]

    def attributes(self) -> dict[str, SSAValue]:
        """The parameters, or properties, that have to be there."""
        if issubclass(self.op, LnOp):
            needed = [p.name for p in self.op.schema.params if p.default is ... and p.in_type is None]
            return {name: self.based(_name(ParamAttr)) for name in needed}
        if not issubclass(self.op, IRDLOperation):
            return {}
        found = self.op.get_irdl_definition().properties.items()
        return {name: self.of(field.constr) for name, field in found if not isinstance(field, OptionalDef)}

    def regions(self) -> int:
        """The number of regions."""
        if issubclass(self.op, IRDLOperation):
            return len(self.op.get_irdl_definition().regions)
        return 1 if issubclass(self.op, RegionOp) else 0

    def of_range(self, constraint: RangeConstraint) -> SSAValue:
        """The type of an operand or result; what is repeated has one type in IRDL, as it has in our ops."""
        if isinstance(constraint, RangeLengthConstraint | RangeVarConstraint):
            return self.of_range(constraint.constraint)
        return self.of(constraint.constr) if isinstance(constraint, RangeOf) else self.based(None)

    def of(self, constraint: AttrConstraint) -> SSAValue:
        """A constraint, any where IRDL has none like it; a variable is one value, which IRDL takes for one type. Any of
        several is any, too: MLIR 22 does not load `irdl.any_of` of bases."""
        if isinstance(constraint, VarConstraint):
            if constraint.name not in self.variables:
                self.variables[constraint.name] = self.of(constraint.constraint)
            return self.variables[constraint.name]
        if isinstance(constraint, EqAttrConstraint):
            return self.builder.insert(irdl.IsOp(constraint.attr)).output
        if isinstance(constraint, BaseAttr):
            return self.based(_name(constraint.attr))
        return self.based(None)

    def based(self, name: str | SymbolRefAttr | None) -> SSAValue:
        """A type or attribute of this name, or any."""
        return self.builder.insert(irdl.AnyOp() if name is None else irdl.BaseOp(name)).output


def _number(field: Any) -> irdl.VariadicityAttr:
    if isinstance(field, OptionalDef):
        return OPTIONAL
    return VARIADIC if isinstance(field, VariadicDef) else SINGLE


def _name(attribute: type[Attribute]) -> str | SymbolRefAttr | None:
    """The name that IRDL has for an attribute or type; None for one that MLIR calls otherwise than xDSL."""
    dialect, _, name = attribute_name(attribute).partition(".")
    if dialect in OURS:
        return SymbolRefAttr(dialect, [name])
    return f"{'!' if issubclass(attribute, TypeAttribute) else '#'}{_NAMES[attribute]}" if attribute in _NAMES else None
