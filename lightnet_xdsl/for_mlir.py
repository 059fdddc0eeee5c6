"""A module as text that MLIR's own tools read beside the IRDL of its dialects (`irdl.py`), which `mlir-opt` loads.

It is MLIR's generic form, and differs from ln-opt's in four ways, since dialects that IRDL defines have no code:
parameters stand among the attributes; an attribute's text is in MLIR's own attributes (a number, a string, an array of
these), or one string; an op with any number of operands or results, whose types differ, says how many there are in
``operandSegmentSizes`` and ``resultSegmentSizes``, of as many places as such an op has at most in the module (a
variadic operand of IRDL has one type); and behind ``ln.yield`` stands an op that MLIR knows for the end of a block.
Imports xDSL's printer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from math import isfinite
from struct import pack

from xdsl.dialects.builtin import BuiltinAttribute, DenseArrayBase, ModuleOp, i32
from xdsl.ir import Attribute, Data, Operation, ParametrizedAttribute
from xdsl.printer import Printer

from lightnet.ir.kernel import RegionOp, YieldOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import ParamAttr

#: Integers that MLIR reads as they are, without a type.
_SMALL = 2**63
#: The op that ends a block for MLIR.
UNREACHABLE = '"llvm.unreachable"() : () -> ()'
#: The attribute that says how many operands, or results, each place has.
SEGMENTS = {"operands": "operandSegmentSizes", "results": "resultSegmentSizes"}


def text_for_mlir(module: ModuleOp) -> str:
    """The module in the form that `mlir-opt --irdl-file` reads."""
    stream, most = StringIO(), widths(module)
    printer = MlirPrinter(stream)
    with _segments(module, most):
        printer.print_op(module)
    text = stream.getvalue() + "\n"
    for name in {op.name for op in module.walk() if op.name != op_name(op.name)}:
        text = text.replace(f'"{name}"(', f'"{op_name(name)}"(')
    return text


def op_name(name: str) -> str:
    """The name of an op in IRDL, which has no capital letters."""
    return name.lower()


def is_open(op: type[Operation], side: str) -> bool:
    """Return whether ops of a class have any number of operands (``operands``) or ``results``, of any types."""
    if issubclass(op, LnOp):
        schema = op.schema
        return (schema.variadic_operand if side == "operands" else schema.variadic_result) is not None
    return issubclass(op, RegionOp) or (issubclass(op, YieldOp) and side == "operands")


def widths(module: ModuleOp) -> dict[tuple[str, str], int]:
    """The most operands and results of each op of the module that has any number of them, by its name and the side."""
    most: dict[tuple[str, str], int] = {}
    for op in module.walk():
        for side in SEGMENTS:
            if is_open(type(op), side):
                most[op.name, side] = max(most.get((op.name, side), 0), len(getattr(op, side)))
    return most


@contextmanager
def _segments(module: ModuleOp, most: dict[tuple[str, str], int]) -> Iterator[None]:
    """Ops of the module say inside of the block how many operands and results their places have."""
    told: list[tuple[Operation, str]] = []
    for op in module.walk():
        for side, attribute in SEGMENTS.items():
            if is_open(type(op), side):
                count, width = len(getattr(op, side)), most[op.name, side]
                op.attributes[attribute] = DenseArrayBase.from_list(i32, [1] * count + [0] * (width - count))
                told.append((op, attribute))
    try:
        yield
    finally:
        for op, attribute in told:
            del op.attributes[attribute]


class MlirPrinter(Printer):
    """Prints the generic form, with attributes of other dialects as those of a dialect that IRDL defines."""

    def __init__(self, stream: StringIO):
        super().__init__(stream=stream, print_generic_format=True, print_properties_as_attributes=True)

    def print_op(self, op: Operation) -> None:
        super().print_op(op)
        if isinstance(op, YieldOp):  # nothing of IRDL says that it ends a block
            self._print_new_line()
            self.print_string(UNREACHABLE)

    def print_attribute(self, attribute: Attribute) -> None:
        if isinstance(attribute, BuiltinAttribute):
            return super().print_attribute(attribute)
        self.print_string(f"#{attribute_name(type(attribute))}<")
        if isinstance(attribute, ParamAttr):
            self.print_string(_value(attribute.data))
        elif is_plain(type(attribute)):
            assert isinstance(attribute, ParametrizedAttribute)
            self.print_list(attribute.parameters, self.print_attribute)
        else:
            self.print_string(_quoted(_inner_text(attribute)))
        self.print_string(">")


def attribute_name(attribute: type[Attribute]) -> str:
    """The name of an attribute; that of parameters is ``ln.value``, since in IRDL ops and attributes share their names,
    and ``ln.param`` is an op."""
    return "ln.value" if attribute is ParamAttr else attribute.name


def is_plain(attribute: type[Attribute]) -> bool:
    """Return whether an attribute's text is that of its parameters, as xDSL prints it."""
    own = getattr(attribute, "print_parameters", None)
    return issubclass(attribute, ParametrizedAttribute) and own is ParametrizedAttribute.print_parameters


def _inner_text(attribute: Attribute) -> str:
    """The text between the angle brackets."""
    stream = StringIO()
    printer = Printer(stream=stream)
    if isinstance(attribute, Data):
        attribute.print_parameter(printer)
    else:
        assert isinstance(attribute, ParametrizedAttribute)
        attribute.print_parameters(printer)
    text = stream.getvalue().strip()
    text = text.removeprefix("<").removesuffix(">") if text.startswith("<") else text
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _value(value: object) -> str:
    """A parameter's value as an attribute of MLIR."""
    if value is None:
        return "unit"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) < _SMALL:
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return _quoted(str(value))


def _float(value: float) -> str:
    """A double; its bits where it has no digits."""
    if not isfinite(value):
        return f"0x{pack('>d', value).hex().upper()} : f64"
    digits = repr(value)
    mantissa, e, exponent = digits.partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent


def _quoted(text: str) -> str:
    """A string literal of MLIR: bytes that do not print are hexadecimal."""
    data = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data) + '"'
