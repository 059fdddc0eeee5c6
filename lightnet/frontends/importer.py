"""Netlist → module: one `ln` op a statement; a planned netlist becomes kernels with places (level 3).

Document 000 defines the form, lightnet-upstream's compiled files the planned one. Every mistake is a `LightNetError` at
the statement's location.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    UnitAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue

from lightnet.diagnostics import MAX_ERRORS, ErrorList, LightNetError, near
from lightnet.dialects.ln.dialect import find_op, optypes
from lightnet.dialects.ln.source import Create, Input, ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.frontends import planned
from lightnet.frontends.netlist import OPEN_SIZE, Netlist, NetOp, NetTensor, ParamValue
from lightnet.ir.collector import collector_paused
from lightnet.ir.counts import Count, counts_of, set_counts
from lightnet.ir.instances import check_ranges
from lightnet.ir.kernel import CompositeKernelOp, KernelOp, LayerEntry, YieldOp
from lightnet.ir.layout import Layout, byte_size, with_layout
from lightnet.ir.locations import file_loc, set_loc
from lightnet.ir.memory import ARENA, MEMORY_TYPES, MTYPE, PLAN_RULES, STATIC, TYPES, set_memory
from lightnet.ir.op import OP_NAME, PLACES, WORKSPACE, LnOp, set_tensor_names, tensor_names
from lightnet.ir.place import PlaceAttr
from lightnet.ir.registry import KERNELS, TARGETS
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of
from lightnet.runtime.dim_text import parse_size
from lightnet.runtime.numbers import INT_MAX, INT_MIN

#: What an optype of upstream's ends in, in front of the arch, whose operands or results are parts of each other.
NOCOPY = "_nocopy"


@collector_paused()
def to_module(netlist: Netlist, on_error: Callable[[LightNetError], None] | None = None) -> ModuleOp:
    """Build the module: level 1, or level 2 or 3 where the netlist has kernel regions or offsets.

    Raises LightNetError: the first mistake, with those of other statements, up to a limit, in its `others`. With
    `on_error` each goes there instead of being raised, and the module lacks that statement and what reads its tensors.
    """
    errors = ErrorList(on_error, MAX_ERRORS if on_error is None else None)
    try:
        module = _Importer(netlist, errors).run()
        check_ranges(module)
    except LightNetError as e:
        raise errors.joined(e) from None
    errors.check()
    return module


def unregistered(netlist: Netlist) -> list[NetOp]:
    """The statements whose optype is no op, those behind others of them too, at which `to_module` does not arrive."""
    importer = _Importer(netlist, ErrorList())
    found = []
    for op in netlist.ops:
        try:
            if op.body is None:
                importer.op_class(op)
        except LightNetError:
            found.append(op)
    return found


class _LostError(Exception):
    """A region whose statements are left out does not make what it should."""


class _Importer:
    def __init__(self, netlist: Netlist, errors: ErrorList):
        self.netlist = netlist
        self.errors = errors
        self.lost: set[str] = set()  # tensors of statements that are left out
        self.classes = optypes()
        self.types = planned.netlist_memory_types(netlist)
        self.spaces = planned.spaces(netlist, self.types)
        self.roles, self.outputs = planned.roles(netlist), planned.ours(netlist).get("outputs")
        self.required = planned.role_names(netlist, "required")
        self.depth = 0

    def run(self) -> ModuleOp:
        block = Block()
        scope = _Scope()
        for op in self.netlist.ops:
            self.located(op, partial(self.statement, op, block, scope))
        outputs = self.chosen(scope) if self.outputs is not None and not self.lost else scope.outputs()
        if not self.lost:
            self.name_outputs(scope)
        last = func.ReturnOp(*outputs)
        block.add_op(last)
        set_counts(last, self.counts(scope, outputs))
        counts_of(last)  # raises where they do not fit
        main = func.FuncOp("main", ((), [v.type for v in outputs]), Region(block))
        module = ModuleOp([main])
        if self.spaces:
            set_memory(module, {k: n for k, (_, n) in self.spaces.items()})
            if "spaces" not in planned.ours(self.netlist):
                module.attributes[PLAN_RULES] = StringAttr("upstream")
                if set(self.types.values()) != {"cpu"}:
                    types = {space: StringAttr(mtype) for space, mtype in self.types.items()}
                    module.attributes[TYPES] = DictionaryAttr(types)
        return module

    def counts(self, scope: _Scope, outputs: list[SSAValue]) -> list[Count]:
        """The counted dims that the file names, checked."""
        found: list[Count] = []
        for row in planned.ours(self.netlist).get("counts") or ():
            named = isinstance(row, tuple | list) and [type(x) for x in row] == [str, int, str]
            if not named or not all(scope.values.get(row[k]) in outputs for k in (0, 2)):
                raise LightNetError(
                    "'counts' should be a list of [output, axis, output that counts it]", label="counts"
                )
            found.append((outputs.index(scope.values[row[0]]), row[1], outputs.index(scope.values[row[2]])))
        return found

    def chosen(self, scope: _Scope) -> list[SSAValue]:
        """The outputs that the file names (a pipeline may have kept others than the unconsumed tensors)."""
        names = self.outputs if isinstance(self.outputs, list) else [self.outputs]
        for name in names:
            if not isinstance(name, str) or name not in scope.defined:
                raise LightNetError(f"'outputs' names {name!r}, which is no tensor of the network")
        return [scope.defined[name] for name in names]

    def name_outputs(self, scope: _Scope) -> None:
        """Give outputs the names that the file says they have, and others may have, too."""
        renamed = planned.ours(self.netlist).get("output_names", {})
        if not isinstance(renamed, dict):
            raise LightNetError("'output_names' should map tensors to names")
        for tensor, name in renamed.items():
            value = scope.defined.get(tensor)
            if not isinstance(name, str) or not name or not isinstance(value, OpResult):
                raise LightNetError(
                    f"'output_names' calls {tensor!r} {name!r}: it should name tensors of the network, by strings"
                )
            names = tensor_names(value.op)
            set_tensor_names(value.op, [name if k == value.index else n for k, n in enumerate(names)])

    def located(self, op: NetOp, build: Callable[[], None]) -> None:
        if self.lost and any(t.name in self.lost for t in op.tensors_in):
            self.lost.update(t.name for t in op.tensors_out)
            return
        try:
            build()
        except _LostError:  # an error is known already
            self.lost.update(t.name for t in op.tensors_out)
        except LightNetError as e:
            self.errors.add(e.at(op.loc, self.netlist.texts.line(op.loc)))
            self.lost.update(t.name for t in op.tensors_out)

    def statement(self, op: NetOp, block: Block, scope: _Scope) -> None:
        scope.define_op(op.name)
        if op.body is not None:
            built: Operation = self.region(op, scope)
        else:
            built = self.layers(op, scope) if self.is_composite(op.optype) else self.plain(op, scope)
        set_loc(built, file_loc(op.loc))
        block.add_op(built)
        self.place(op, built)

    # -- ops that list layers

    def is_composite(self, optype: str) -> bool:
        return optype not in self.classes and optype in KERNELS and issubclass(KERNELS.get(optype), CompositeKernelOp)

    def layers(self, op: NetOp, scope: _Scope) -> Operation:
        """The kernel that an op of upstream's with a list of layers stands for."""
        values = {t.name: scope.read(op, t.name) for t in op.tensors_in}
        ins, outs = ([(t.arg, t.name) for t in tensors] for tensors in (op.tensors_in, op.tensors_out))
        params = {p.arg: p.value for p in op.params}
        built = KERNELS.get(op.optype).of_entry(LayerEntry(ins, outs, params), values)
        built.attributes[OP_NAME] = StringAttr(op.name)
        scope.use(list(values.values()))
        for tensor, value in zip(op.tensors_out, built.results):
            scope.define(tensor.name, value)
        return built

    # -- ordinary ops

    def plain(self, op: NetOp, scope: _Scope) -> Operation:
        cls, target = self.op_class(op)
        operands = None
        if (stand := getattr(cls, "stands_for", None)) is not None and (stand.is_host or issubclass(stand, Source)):
            operands = self.arguments(op, cls, scope)
            cls.make(operands, self.params(op, cls), name=op.name)  # what its description checks
            cls, target = stand, cls.arch if cls.arch != "none" else None
        if cls is Create and op.tensors_out:
            cls = ParamOp if self.depth else self.roles.get(op.tensors_out[0].name, Create)
        operands = self.arguments(op, cls, scope) if operands is None else operands
        params = self.params(op, cls)
        if cls in (Input, ParamOp) and op.tensors_out[0].name in self.required:
            params["required"] = True
        specs = len(op.tensors_out)
        built = cls.make(operands, params, name=op.name, location=file_loc(op.loc))
        if cls.is_host and (inner := built.decomposed()) is not None:
            built.erase()  # what it prints, by the op that prints
            (built,) = inner[0]
        if specs != len(built.results):
            message = f" needs {len(built.results)} output tensors, but gets {specs} output tensors"
            raise _mistake(op, message, f"{cls.optype}.result-count")
        self.check_elements(op, cls, built)
        names = op.tensors_out  # dst1, dst2, … in the order given
        if cls.schema.variadic_result is None:
            names = self.ordered("output tensor", op, op.tensors_out, cls.schema.result_names(specs))
        set_tensor_names(built, [t.name for t in names])
        for tensor, value in zip(names, built.results):
            if tensor.layout is not None:
                value._type = with_layout(value.type, Layout.parse(tensor.layout))
        scope.use(operands)
        outer: Operation = built
        if target and (cls.is_host or isinstance(built, Source)):
            if target != "cpu" and target in MEMORY_TYPES:
                built.attributes[MTYPE] = StringAttr(target)
        elif target:
            parts = built.decomposed() if cls.arch != "none" else None
            inner = parts[0] if parts is not None else [built]
            outer = KERNELS.get(target).wrap(inner)
            for op_ in dict.fromkeys((*reversed(inner), built)):
                op_.erase()  # the kernel has clones
        for tensor, value, result in zip(names, outer.results, _result_fields(cls, len(names))):
            scope.define(tensor.name, value, overwritten=_overwritten(cls, built, operands, result))
        return outer

    def op_class(self, op: NetOp) -> tuple[type[LnOp], str | None]:
        """The class of an optype, and the target when the optype is a lowered one (``conv2d_cpu``). ``X_nocopy_ARCH``
        is X: that what it moves stands in place from the start is a matter of plans, for every op with `views`."""
        if (cls := find_op(op.optype, self.classes)) is not None:
            return cls, cls.arch if cls.arch != "none" and self.spaces else None
        base, _, target = op.optype.rpartition("_")
        if target in KERNELS and (cls := find_op(base, self.classes)) is not None:
            return cls, target
        if target in KERNELS and base.endswith(NOCOPY):
            cls = find_op(base.removesuffix(NOCOPY), self.classes)
            if cls is not None and cls.views is not LnOp.views:
                return cls, target
        hint = near(op.optype, self.classes)
        raise LightNetError(f"op {op.name}'s optype {op.optype} is not registered{hint}", label="unknown-optype")

    def arguments(self, op: NetOp, cls: type[LnOp], scope: _Scope) -> list[SSAValue]:
        count = len(op.tensors_in)
        fixed = sum(not o.variadic for o in cls.schema.operands)
        if count != fixed and cls.schema.variadic_operand is None:
            message = f" needs {fixed} input tensors, but gets {count} input tensors"
            raise _mistake(op, message, f"{cls.optype}.operand-count")
        variadic = cls.schema.variadic_operand
        if variadic is None or variadic.by_name:
            tensors = self.ordered("input tensor", op, op.tensors_in, cls.schema.operand_names(count))
        else:
            tensors = op.tensors_in  # src1, src2, … in the order given
        return [scope.read(op, t.name) for t in tensors]

    def ordered(self, what: str, op: NetOp, tensors: list[NetTensor], names: list[str]) -> list[NetTensor]:
        """The tensors in the order of the op's argument names."""
        by_arg = {t.arg: t for t in tensors}
        for name in names:
            if name not in by_arg:
                other = next((f", and has none called `{arg}`" for arg in by_arg if arg not in names), "")
                raise _mistake(op, f" needs a `{name}` {what}{other}", f"{op.optype}.arg-name")
        return [by_arg[n] for n in names]

    def params(self, op: NetOp, cls: type[LnOp]) -> dict[str, ParamValue]:
        """The parameters by name. An array without elements (the dims of a tensor of rank 0) is written null."""
        values = {p.arg: p.value for p in op.params}
        for p in cls.schema.params:
            value = values.get(p.name, ...)
            if value is None and p.is_array:
                values[p.name] = ()
                continue
            if p.kind.startswith("number"):
                value = self.sized(op, cls, p.name, value)
                values |= {} if value is ... else {p.name: value}
            if p.realtype == "int" and p.kind.startswith("number"):
                self.check_integers(op, cls, p.name, value)
        return values

    def sized(self, op: NetOp, cls: type[LnOp], name: str, value: Any) -> Any:
        """A parameter of numbers in which texts are sizes that calls decide."""
        if isinstance(value, tuple):
            return tuple(self.sized(op, cls, name, v) for v in value)
        if not isinstance(value, str) or not value.startswith(OPEN_SIZE):
            return value
        try:
            return parse_size(value.removeprefix(OPEN_SIZE))
        except LightNetError as e:
            raise _mistake(
                op, f"'s `{name}` param has the size '{value}': {e.message}", f"{cls.optype}.{name}.size"
            ) from e

    def check_integers(self, op: NetOp, cls: type[LnOp], name: str, value: ParamValue) -> None:
        """Refuse integers beyond 32 bits: read as C's int they would be others, which nobody means."""
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not INT_MIN <= number <= INT_MAX:
                message = f"'s `{name}` param's value should fit an integer of 32 bits, but gets a {number}"
                raise _mistake(op, message, f"{cls.optype}.{name}.range")

    def check_elements(self, op: NetOp, cls: type[LnOp], built: Operation) -> None:
        """Refuse a tensor without elements in IL, as upstream does; JSON IR has those of networks from elsewhere."""
        for tensor, value in zip(op.tensors_out, built.results):
            if self.netlist.is_il and 0 in (dims := spec_of(value.type).dims):
                message = f"'s tensor `{tensor.name}` should have elements, but gets the dims {list(dims)}"
                raise _mistake(op, message, f"{cls.optype}.empty")

    # -- regions: kernels and ln.once

    def region(self, op: NetOp, scope: _Scope) -> Operation:
        """A kernel or `ln.once`. Inside, tensors go by their `arg_name`s."""
        once = op.optype == "once"
        target = op.optype.partition(".")[0]
        if not once and (target not in KERNELS or op.optype != KERNELS.get(target).name):
            raise LightNetError(f"op {op.name}: '{op.optype}' is no kernel of a target ({', '.join(TARGETS)})")
        operands = [scope.read(op, t.name) for t in op.tensors_in]
        if once and operands:
            raise LightNetError(f"op {op.name}: an op 'once' has no input tensors")
        block = Block(arg_types=[v.type for v in operands])
        for argument, value in zip(block.args, operands):
            argument.name_hint = value.name_hint
        inner = _Scope({t.arg: a for t, a in zip(op.tensors_in, block.args)})
        self.depth += 1
        for sub in op.body or ():
            self.located(sub, partial(self.statement, sub, block, inner))
        self.depth -= 1
        if any(t.arg in self.lost for t in op.tensors_out):
            raise _LostError
        yielded = [inner.read(op, t.arg) for t in op.tensors_out]
        if once:
            block.add_op(YieldOp.of(yielded))
            built: Operation = OnceOp.of(Region(block))
        else:
            choices = {p.arg: _choice(op, p.arg, p.value) for p in op.params if p.arg != WORKSPACE}
            built = KERNELS.get(target).around(block, operands, yielded, choices)
            self.workspace(op, built)
        set_tensor_names(built, [t.name for t in op.tensors_out])
        scope.use(operands)
        for tensor, value in zip(op.tensors_out, built.results):
            scope.define(tensor.name, value)
        return built

    def workspace(self, op: NetOp, built: Operation) -> None:
        """The places of a kernel's workspace, which the file keeps as a parameter with their offsets."""
        value = next((p.value for p in op.params if p.arg == WORKSPACE), None)
        if value is None:
            return
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise LightNetError(f"op {op.name}: '{WORKSPACE}' should be an array of offsets")
        built.attributes[WORKSPACE] = ArrayAttr(
            [self.place_at(f"the workspace of {op.name}", int(v), 1) for v in value]
        )

    # -- plans

    def place(self, op: NetOp, built: Operation) -> None:
        if not self.spaces or all(t.offset is None for t in op.tensors_out):
            return
        tensors = op.tensors_out
        alone = isinstance(built, KernelOp) and op.body is None and not isinstance(built, CompositeKernelOp)
        if isinstance(inner := built.ops[0] if alone else built, LnOp):
            tensors = self.in_order(inner, tensors)
        places = []
        for tensor, value in zip(tensors, built.results):
            if tensor.offset is None:
                raise LightNetError(f"op {op.name}: tensor '{tensor.name}' has no offset")
            if tensor.dims is not None and tensor.dims != spec_of(value.type).dims:
                raise LightNetError(
                    f"op {op.name}: tensor '{tensor.name}' has dims {list(tensor.dims)}, but the op makes "
                    f"{spec_of(value.type)}"
                )
            home = STATIC if isinstance(built, ParamOp | OnceOp) and not self.types else self.home(built, value)
            places.append(self.place_at(f"tensor '{tensor.name}'", tensor.offset, byte_size(value.type), home))
        built.attributes[PLACES] = ArrayAttr(places)

    def home(self, op: Operation, value: SSAValue) -> str:
        """The memory space in which a result stands: in a plan by upstream's rules that of its memory type."""
        said = op.attributes.get(MTYPE)
        mtype = said.data if isinstance(said, StringAttr) else "cpu"
        if isinstance(op, KernelOp):
            mtype = get_target(op.name.partition(".")[0]).mtype_of(value)
        return next((space for space, type in self.types.items() if type == mtype), ARENA)

    def in_order(self, op: LnOp, tensors: list[NetTensor]) -> list[NetTensor]:
        """Output tensors in the order of the op's results (they were checked when it was built)."""
        if op.schema.variadic_result is not None:
            return tensors
        by_arg = {t.arg: t for t in tensors}
        names = op.arg_names()[1]
        return [by_arg[name] for name in names] if by_arg.keys() == set(names) else tensors

    def place_at(self, what: str, offset: int, nbytes: int, home: str = ARENA) -> PlaceAttr:
        """The place of data. What is empty may stand at the end of a space, where another one begins: `home`
        decides."""
        for space, (base, size) in sorted(self.spaces.items(), key=lambda s: s[0] != home):
            if self.types and space != home:
                continue  # each memory type has a numbering of its own
            if base <= offset < base + max(size, 0 if nbytes else 1) and offset + nbytes <= base + size:
                return PlaceAttr(space, offset - base)
        raise LightNetError(f"data of {what} ({nbytes} bytes at {offset}) exceeds the planned memory")


class _Scope:
    """The tensor table: names to values, who was consumed, and op names."""

    def __init__(self, values: dict[str, SSAValue] | None = None):
        self.values = dict(values or {})
        self.names: dict[SSAValue, list[str]] = {v: [n] for n, v in self.values.items()}
        self.defined: dict[str, SSAValue] = {}
        self.consumed: set[SSAValue] = set()
        self.ops: set[str] = set()

    def define_op(self, name: str) -> None:
        if name in self.ops:
            raise LightNetError(f"op name '{name}' is defined twice", label="op-name-twice")
        self.ops.add(name)

    def read(self, op: NetOp, name: str) -> SSAValue:
        value = self.values.get(name)
        if value is None:
            raise _mistake(op, f"'s tensor `{name}` should have been defined before", "tensor-undefined")
        return value

    def use(self, operands: list[SSAValue]) -> None:
        self.consumed.update(operands)

    def define(self, name: str, value: SSAValue, overwritten: SSAValue | None = None) -> None:
        if name in self.values:
            raise LightNetError(f"tensor `{name}` shouldn't have been defined before", label="tensor-twice")
        names = self.names.pop(overwritten, []) if overwritten is not None else []
        self.names[value] = [name, *names]  # later readers of an overwritten source see the result
        for n in self.names[value]:
            self.values[n] = value
        self.defined[name] = value

    def outputs(self) -> list[SSAValue]:
        """Every tensor that nobody consumes, in order of definition."""
        return [v for v in self.defined.values() if v not in self.consumed]


def _mistake(op: NetOp, message: str, label: str) -> LightNetError:
    return LightNetError(f"{op.optype}: `{op.name}`{message}", label=label)


def _result_fields(cls: type[LnOp], count: int) -> list:
    fixed = [r for r in cls.schema.results if not r.variadic]
    return fixed + [cls.schema.variadic_result] * (count - len(fixed))


def _overwritten(cls: type[LnOp], op: LnOp, operands: list[SSAValue], result) -> SSAValue | None:
    if not result.overwrites:
        return None
    names = cls.schema.operand_names(len(operands))
    return operands[names.index(result.owner)]


def _choice(op: NetOp, key: str, value: ParamValue) -> Attribute:
    """A choice of a kernel: the attribute that the same text in `.mlir` would be."""
    match value:
        case None:
            return UnitAttr()
        case bool():
            return BoolAttr.from_bool(value)
        case str():
            return StringAttr(value)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
    return ArrayAttr([_choice(op, key, v) for v in value])
