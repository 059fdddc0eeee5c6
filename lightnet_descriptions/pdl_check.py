"""The checks of a PDL pattern without a network: whether its ops, parameters and native functions exist, whether
matching comes to all of it, and whether its rewrite can be carried out. Gives the `PdlMatcher` of one that is right.
Imports xDSL's dialect, the op table and the matching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from xdsl.dialects import pdl
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, IntegerType, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.diagnostics import LightNetError, near
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.params import ParamValue, ptype_of
from lightnet.ir.types import ParamAttr
from lightnet_descriptions.pdl_match import CONSTRAINTS, REWRITES, Climb, PdlMatcher, name_of_pattern, parent_of
from lightnet_descriptions.rules import Bindings


def fail(op: Operation, message: str) -> NoReturn:
    raise LightNetError(message, loc_of(op), label="pdl.pattern")


class PatternChecker:
    """Everything that can be said of a pattern without a network."""

    def __init__(self, pattern: pdl.PatternOp):
        self.name = pattern.sym_name.data if pattern.sym_name else ""
        self.classes = {f"ln.{name}": cls for name, cls in optypes().items()}
        self.body = list(pattern.body.block.ops)
        rewrite = self.body[-1]
        assert isinstance(rewrite, pdl.RewriteOp)  # verified
        self.rewrite = rewrite
        self.matched = [op for op in self.body if isinstance(op, pdl.OperationOp)]
        self.constants: Bindings = {}

    def matcher(self) -> PdlMatcher:
        if self.rewrite.name_ is not None:
            fail(self.rewrite, "a rewrite has its ops in a region: there are no external rewrite functions")
        inner = [op for block in self.rewrite.body.blocks for op in block.ops]
        for op in (*self.body[:-1], *inner):
            self.check(op, op.parent_op() is self.rewrite)
        root = self.root()
        self.check_rewrite(inner, root)
        constraints = tuple(op for op in self.body if isinstance(op, pdl.ApplyNativeConstraintOp))
        climbs = tuple(self.climbs(root))
        self.check_bound(constraints)
        return PdlMatcher(self.name, root, climbs, constraints, self.rewrite, self.constants, self.classes)

    def check(self, op: Operation, makes: bool) -> None:
        """One op of the pattern, or (`makes`) of its rewrite."""
        match op:
            case pdl.OperationOp():
                self.operation(op, makes)
            case pdl.AttributeOp():
                if op.value_type is not None:
                    fail(op, "parameters have no MLIR type: give a value, or leave the attribute open")
                if op.value is not None:
                    self.constants[op.output] = _param(op, op.value)
            case pdl.TypeOp() if op.constantType is not None:
                self.constants[op.result] = op.constantType
            case pdl.TypeOp() | pdl.OperandOp() | pdl.OperandsOp() if not makes:
                pass
            case pdl.ResultOp() | pdl.ResultsOp():
                self.result(op)
            case pdl.ApplyNativeConstraintOp() if not makes:
                _native(op, CONSTRAINTS, "constraint")
                if op.res:
                    fail(op, "native constraints have no results here")
            case pdl.ApplyNativeRewriteOp() if makes:
                _native(op, REWRITES, "rewrite")
                if [r.type for r in op.res] != [pdl.AttributeType()]:
                    fail(op, f'native rewrite "{op.constraint_name.data}" has one result, a !pdl.attribute')
            case pdl.ReplaceOp() | pdl.EraseOp() | pdl.RangeOp() if makes:
                pass
            case _:
                fail(op, f"{op.name} cannot stand in a {'rewrite' if makes else 'pattern'} here")

    def op_class(self, op: pdl.OperationOp) -> type[LnOp]:
        if op.opName is None:
            fail(op, 'an op of a pattern needs a name: pdl.operation "ln.relu"')
        name = op.opName.data
        if name not in self.classes:
            fail(op, f"unknown op '{name}'{near(name, self.classes)}")
        return self.classes[name]

    def operation(self, op: pdl.OperationOp, makes: bool) -> None:
        cls = self.op_class(op)
        schema = cls.schema
        fixed = sum(not o.variadic for o in schema.operands)
        ranges = sum(isinstance(v.type, pdl.RangeType) for v in op.operand_values)
        count = len(op.operand_values)
        if ranges > 1 and not makes:
            fail(op, "at most one of the operands to match is a range")
        if not ranges and (count <= fixed if schema.variadic_operand else count != fixed):
            need = f"at least {fixed + 1}" if schema.variadic_operand else str(fixed)
            fail(op, f"{cls.name} needs {need} operands, and has {count} here")
        if op.type_values and schema.variadic_result is None and len(op.type_values) != len(schema.results):
            fail(op, f"{cls.name} has {len(schema.results)} results, and {len(op.type_values)} types here")
        keys = [k.data for k in op.attributeValueNames]
        for i, (key, value) in enumerate(zip(keys, op.attribute_values)):
            if key not in schema.by_name or key in keys[:i]:
                there = ", ".join(schema.by_name) or "none"
                problem = "is given twice" if key in keys[:i] else f"is no parameter of {cls.name}; there are: {there}"
                fail(op, f"'{key}' {problem}")
            self.constant(op, cls, key, value)
        for p in schema.params if makes else ():
            if p.default is ... and p.name not in keys:
                fail(op, f"{cls.name} needs its parameter '{p.name}'")

    @staticmethod
    def constant(op: pdl.OperationOp, cls: type[LnOp], key: str, value: SSAValue) -> None:
        """A parameter that is constant has to be of the parameter's type."""
        owner, field = value.owner, cls.schema.by_name[key]
        if not isinstance(owner, pdl.AttributeOp) or owner.value is None:
            return
        constant = _param(owner, owner.value)
        if constant == () and field.is_array:
            return
        if (got := ptype_of(constant)) != field.ptype:
            fail(op, f"parameter '{key}' of {cls.name} is of type {field.ptype}, and gets a {got}")
        for choice in constant if isinstance(constant, tuple) else (constant,):
            if field.choices and choice not in field.choices:
                fail(op, f"parameter '{key}' of {cls.name} is one of {', '.join(field.choices)}, and not '{choice}'")

    def result(self, op: pdl.ResultOp | pdl.ResultsOp) -> None:
        parent = op.parent_.owner
        if isinstance(op, pdl.ResultsOp):
            if op.index is not None:
                fail(op, "ops have no groups of results: pdl.results of %op, or pdl.result 0 of %op")
            return
        assert isinstance(parent, pdl.OperationOp)
        schema, index = self.op_class(parent).schema, op.index.value.data
        if index < 0 or (schema.variadic_result is None and index >= len(schema.results)):
            fail(op, f"{name_of_pattern(parent)} has {len(schema.results)} results, and no number {index}")

    # -- the whole

    def root(self) -> pdl.OperationOp:
        """The op that matching starts at: what the rewrite names, else the one op whose results no other one reads."""
        if self.rewrite.root is not None:
            owner = self.rewrite.root.owner
            assert isinstance(owner, pdl.OperationOp)
            return owner
        free = [op for op in self.matched if not any(_reads(other, op) for other in self.matched)]
        if len(free) != 1:
            fail(self.rewrite, "the rewrite should name the op to start at: pdl.rewrite %op")
        return free[0]

    def climbs(self, root: pdl.OperationOp) -> Iterator[Climb]:
        """The ways to the ops that no operand of the root leads to; all of them, or it is an error."""
        reached: set[SSAValue] = set()
        ops: list[pdl.OperationOp] = []
        _reach(root, reached, ops)
        while left := [op for op in self.matched if op not in ops]:
            found = next((c for op in left if (c := _climb(op, reached)) is not None), None)
            if found is None:
                fail(left[0], "the op shares no operand with those that matching comes to before it")
            yield found
            _reach(found.op, reached, ops)
        self.reached = reached

    def check_bound(self, constraints: Sequence[Operation]) -> None:
        """Whatever is used has to be known after matching: bound by it, constant, or a result of an op that is
        matched."""
        for op in (*constraints, *self.rewrite.body.block.ops):
            for value in op.operands:
                owner = value.owner
                made_here = isinstance(owner, Operation) and owner.parent_op() is self.rewrite
                result = isinstance(owner, pdl.ResultOp | pdl.ResultsOp | pdl.OperationOp)
                if not (made_here or result or value in self.reached or value in self.constants):
                    fail(op, "uses a value that nothing in the pattern decides")

    def check_rewrite(self, inner: Sequence[Operation], root: pdl.OperationOp) -> None:
        gone: list[SSAValue] = []
        for op in inner:
            if isinstance(op, pdl.ReplaceOp | pdl.EraseOp):
                owner = op.op_value.owner
                if owner not in self.matched or op.op_value in gone:
                    fail(op, "only an op that is matched can be replaced or erased, and once")
                gone.append(op.op_value)
            if isinstance(op, pdl.ReplaceOp):
                self.replacement(op)
        if root.op not in gone:
            fail(self.rewrite, "the rewrite neither replaces nor erases the op it starts at: it would match for ever")
        for op in inner:
            values = op.repl_values if isinstance(op, pdl.ReplaceOp) else op.operands
            for value in () if isinstance(op, pdl.EraseOp) else values:
                owner = value.owner
                if isinstance(owner, pdl.ResultOp | pdl.ResultsOp) and owner.parent_ in gone:
                    fail(op, "uses a result of an op that the rewrite removes")
            if isinstance(op, pdl.ReplaceOp) and op.repl_operation in gone:
                fail(op, "an op that the rewrite removes cannot take the place of another one")

    def replacement(self, op: pdl.ReplaceOp) -> None:
        """As many values as results, where both numbers are known."""
        old, new = op.op_value.owner, op.repl_operation.owner if op.repl_operation else None
        schemas = [self.op_class(o).schema for o in (old, new) if isinstance(o, pdl.OperationOp)]
        counts = [len(s.results) if s.variadic_result is None else None for s in schemas]
        if new is None and not any(isinstance(v.type, pdl.RangeType) for v in op.repl_values):
            counts.append(len(op.repl_values))
        if len(counts) == 2 and None not in counts and counts[0] != counts[1]:
            assert isinstance(old, pdl.OperationOp)
            fail(op, f"{name_of_pattern(old)} has {counts[0]} results, and {counts[1]} values would take their place")


def _reads(op: pdl.OperationOp, other: pdl.OperationOp) -> bool:
    owners = (v.owner for v in op.operand_values)
    return any(isinstance(o, pdl.ResultOp | pdl.ResultsOp) and o.parent_ is other.op for o in owners)


def _reach(op: pdl.OperationOp, reached: set[SSAValue], ops: list[pdl.OperationOp]) -> None:
    """Add what matching `op` binds, through its operands."""
    todo = [op]
    while todo:
        op = todo.pop()
        if op in ops:
            continue
        ops.append(op)
        reached.update((op.op, *op.operand_values, *op.attribute_values, *op.type_values))
        for value in op.operand_values:
            owner = value.owner
            if isinstance(owner, pdl.ResultOp | pdl.ResultsOp):
                todo.append(parent_of(owner))
            elif isinstance(owner, pdl.OperandOp | pdl.OperandsOp) and owner.value_type is not None:
                reached.add(owner.value_type)


def _climb(op: pdl.OperationOp, reached: set[SSAValue]) -> Climb | None:
    for index, value in enumerate(op.operand_values):
        if isinstance(value.type, pdl.RangeType):
            return None
        known = value in reached or (isinstance(value.owner, pdl.ResultOp) and value.owner.parent_ in reached)
        if known:
            return Climb(op, value, index)
    return None


def _native(op: Any, table: dict[str, tuple[tuple[str, ...], Any]], what: str) -> None:
    name = op.constraint_name.data
    if name not in table:
        fail(op, f'unknown native {what} "{name}"; there are: {", ".join(table)}')
    kinds = {pdl.AttributeType: "a", pdl.ValueType: "v", pdl.OperationType: "o"}
    got = "".join(kinds.get(type(v.type), "?") for v in op.args)
    if got not in table[name][0]:
        words = {"a": "attribute", "v": "value", "o": "operation"}
        takes = " or ".join(", ".join(words[k] for k in form) for form in table[name][0])
        fail(op, f'native {what} "{name}" takes {takes}')


def _param(op: Operation, attribute: Attribute) -> ParamValue:
    """The parameter's value that an attribute of a pattern stands for."""
    match attribute:
        case ParamAttr():
            return attribute.data
        case StringAttr():
            return attribute.data
        case IntegerAttr():
            value = attribute.value.data
            return bool(value) if attribute.type == IntegerType(1) else value
        case FloatAttr():
            return attribute.value.data
        case DenseArrayBase():
            return tuple(attribute.get_values())
        case ArrayAttr():
            values = [_param(op, a) for a in attribute]
            scalars = tuple(v for v in values if v is not None and not isinstance(v, tuple))
            kinds = {bool if isinstance(v, bool) else str if isinstance(v, str) else float for v in scalars}
            if len(kinds) <= 1 and len(scalars) == len(values):
                return scalars
    fail(op, f"{attribute} is no parameter: a number, a string, a bool, or an array of one of these")
