"""Module → netlist: level 1 as the source network's statements, levels 2 and 3 as lowered ops and kernel regions.

* `ln.input`, `ln.param` and `ln.constant` are written as `create`; which was which stands under ``lightnet.roles``.
  Behind `expand` they, and `print`, have the suffix of the memory type in which their tensor stands (``create_cuda``).
* A kernel of one op without choices is that op with the target's suffix (``conv2d_cpu``), as upstream writes it; any
  other kernel is an op ``cpu.kernel`` with a `body`, and its choices are params. In a region, `arg_name` is a tensor's
  name inside and `name` the one outside. `ln.once` is an op ``once`` with a body.
* An output that is called like another tensor (an ONNX model's, behind an input of that name) has another name in the
  netlist; ``lightnet.output_names`` says what it is called.
* A planned network has dims (logical ones) and offsets on every tensor of main. Its spaces lie one behind the other in
  one numbering, which starts at 64, since an offset of 0 means "unplanned" to upstream; ``lightnet.spaces`` maps each
  to [first byte, size]. A plan by upstream's rules has a numbering, and a size, for each memory type, as upstream
  writes it.

`importer.to_module` reads all of it back. Imports the IR and the netlist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, ModuleOp, StringAttr, UnitAttr, i1
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.source import ConstantOp, Create, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.frontends.netlist import Netlist, NetOp, NetParam, NetTensor, ParamValue
from lightnet.ir.counts import counts_of
from lightnet.ir.host import refuse_host
from lightnet.ir.instances import is_open_value, refuse_open
from lightnet.ir.kernel import CompositeKernelOp, KernelOp, YieldOp
from lightnet.ir.layout import layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import MTYPE, is_upstream, memory_of, memory_type, memory_types
from lightnet.ir.module import main_of
from lightnet.ir.op import WORKSPACE, LnOp, name_of, tensor_name, tensor_names
from lightnet.ir.place import PlaceAttr
from lightnet.ir.target import get_target
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.ir.views import place_of

#: First byte of the first memory space, and the multiple at which each next one starts.
BASE = 64


def from_module(module: ModuleOp) -> Netlist:
    """The netlist of a module of level 1, 2 or 3. Raises `LightNetError` for an op that no netlist can say."""
    refuse_host(module, "a netlist (IL, JSON IR)")
    if memory_of(module):  # words of 32 bits say where tensors stand
        refuse_open(module, "a planned netlist (JSON IR)")
    return _Exporter(module).run()


class _Names:
    """Unique names: a wanted one if it is free, else ``<prefix><n>`` with n one more than the largest in use."""

    def __init__(self, taken: Iterable[str | None]):
        self.used = {t for t in taken if t}
        self.given: set[str] = set()
        self.largest: dict[str, int] = {}
        for name in self.used:
            self._note(name)

    def take(self, wanted: str | None, prefix: str) -> str:
        if wanted and wanted not in self.given:
            name = wanted
        else:
            name = f"{prefix}{self.largest.get(prefix, 0) + 1}"
        self.given.add(name)
        self._note(name)
        return name

    def take_exact(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the number that makes it new."""
        if wanted in self.given or wanted in self.used:
            return self.take(None, f"{wanted}_")
        return self.take(wanted, wanted)

    def _note(self, name: str) -> None:
        match = re.fullmatch(r"(.*?)(\d{1,18})", name, re.DOTALL)
        if match:
            self.largest[match[1]] = max(self.largest.get(match[1], 0), int(match[2]))


class _Scope:
    """The names of one block: ops, tensors, and the name of each value."""

    def __init__(self, block: Block):
        self.ops = _Names(name_of(op) for op in block.ops)
        self.tensors = _Names(n for op in block.ops for n in tensor_names(op))
        self.of: dict[SSAValue, str] = {}
        self.overwritten: set[SSAValue] = set()


class _Exporter:
    def __init__(self, module: ModuleOp):
        self.module = module
        self.block = main_of(module).body.block
        self.kernels = {op.name.partition(".")[0] for op in self.block.ops if isinstance(op, KernelOp)}
        self.upstream = is_upstream(module)
        self.target = get_target(max(self.kernels)) if self.kernels else None
        self.types = memory_types(module) if self.upstream else {}
        self.spaces = self.bases()
        self.roles: dict[str, list[str]] = {"input": [], "param": [], "constant": [], "required": []}
        #: Outputs whose names others have in the netlist, where names are unique: name there -> name.
        self.renamed: dict[str, str] = {}
        self.order = {op: i for i, op in enumerate(self.block.ops)}

    def bases(self) -> dict[str, tuple[int, int]] | None:
        """(first byte in the file's numbering, size) of each memory space; None for a module without a plan."""
        base, spaces = BASE, {}
        for name, size in memory_of(self.module).items():
            if self.upstream:
                spaces[name] = (0, size)
                continue
            spaces[name] = (base, size)
            base = -(-(base + size) // BASE) * BASE
        return spaces or None

    def run(self) -> Netlist:
        scope = _Scope(self.block)
        ops: list[NetOp] = []
        for op in self.block.ops:
            if not isinstance(op, ReturnOp):
                ops += self.statement(op, scope, planned=self.spaces is not None)
        last = self.block.last_op
        returned = list(last.operands) if isinstance(last, ReturnOp) else []
        outputs = [self.read(v, scope, last) for v in returned]
        called = {scope.of[v]: tensor_name(v) or f"output{i}" for i, v in enumerate(returned)}
        self.renamed = {name: wanted for name, wanted in called.items() if name != wanted}
        file = next((l.file for op in self.block.ops if (l := loc_of(op)) is not None), "<module>")
        return Netlist(ops, file, self.mem_sizes(), extra=self.extra(ops, outputs))

    def mem_sizes(self) -> list[int] | None:
        if self.spaces is None:
            return None
        if not self.upstream:
            return [0, max((base + size for base, size in self.spaces.values()), default=0)]
        sizes = {memory_type(mtype).index: self.spaces[space][1] for space, mtype in self.types.items()}
        return [sizes.get(i, 0) for i in range(max(sizes) + 1)]

    def extra(self, ops: Sequence[NetOp], outputs: list[str]) -> dict[str, Any]:
        """The facts that upstream's form cannot say, under ``lightnet``; upstream ignores it."""
        ours: dict[str, Any] = {}
        if self.spaces is not None and not self.upstream:
            ours["spaces"] = {name: list(span) for name, span in self.spaces.items()}
        if roles := {k: v for k, v in self.roles.items() if v}:
            ours["roles"] = roles
        consumed = {t.name for op in ops for t in op.tensors_in}
        if outputs != [t.name for op in ops for t in op.tensors_out if t.name not in consumed]:
            ours["outputs"] = outputs
        if self.renamed:
            ours["output_names"] = self.renamed
        if (last := self.block.last_op) is not None and (counts := counts_of(last)):
            ours["outputs"] = outputs
            ours["counts"] = [[outputs[i], axis, outputs[j]] for i, axis, j in counts]
        return {"lightnet": ours} if ours else {}

    # -- statements

    def statement(self, op: Operation, scope: _Scope, planned: bool) -> list[NetOp]:
        if isinstance(op, KernelOp):
            if isinstance(op, CompositeKernelOp) and op.is_entry() and not op.choices:
                return [self.entry(op, scope, planned)]
            inner = _flat(op)
            if inner is not None and not self.reread(op, inner):
                return self.ordinary(op, inner, scope, planned)
            return [self.region(op, scope, planned)]
        if isinstance(op, OnceOp):
            return [self.region(op, scope, planned)]
        if isinstance(op, LnOp):
            return self.ordinary(op, op, scope, planned)
        raise LightNetError(f"'{op.name}' has no form in a netlist", loc_of(op))

    def ordinary(self, outer: Operation, op: LnOp, scope: _Scope, planned: bool) -> list[NetOp]:
        """An op of the ln dialect, alone or in a kernel of its own."""
        source = isinstance(op, Source)
        is_top = outer.parent is self.block
        base = "create" if source and (is_top or not isinstance(op, ConstantOp)) else op.optype
        suffix = self.suffix(outer, op)
        optype = f"{base}_{suffix}" if suffix else base
        name = scope.ops.take(name_of(op), base)
        ins, outs = op.arg_names()
        operands = list(outer.operands)
        if isinstance(outer, KernelOp):
            across = outer.outside
            operands = [across[v] for v in op.operands]
        again = [] if isinstance(outer, KernelOp) else self.reread(outer, op)
        before = [self.copied(outer, operands[k], scope, planned) for k in again]
        tensors_in = [self.tensor(arg, v, scope, planned, outer) for arg, v in zip(ins, operands)]
        for k, copy in zip(again, before):
            tensors_in[k].name = copy.tensors_out[0].name
        tensors_out = [
            self.define(arg, v, scope, planned, name, n) for arg, v, n in zip(outs, outer.results, tensor_names(outer))
        ]
        if source and not isinstance(op, Create) and is_top:
            self.roles[op.optype].append(tensors_out[0].name)
        values = op.param_values()
        if values.pop("required", False):
            self.roles["required"].append(tensors_out[0].name)
        params = [NetParam(k, None if v == () else v) for k, v in values.items()]  # no netlist has an empty array
        return [*before, NetOp(name, optype, tensors_in, tensors_out, params, _loc(op))]

    def suffix(self, outer: Operation, op: LnOp) -> str | None:
        """The arch behind an optype: the kernel's, or the memory type in which what enters or leaves the network
        stands."""
        if op.arch != "none":
            return None  # the optype has it
        if isinstance(outer, KernelOp):
            return outer.name.partition(".")[0]
        if not isinstance(op, Source) and not op.is_host:
            return None
        if self.target is None or outer.parent is not self.block:
            said = outer.attributes.get(MTYPE)
            return said.data if isinstance(said, StringAttr) else None
        value = op.operands[0] if op.is_host else op.results[0]
        return self.target.mtype_of(value)

    def entry(self, op: CompositeKernelOp, scope: _Scope, planned: bool) -> NetOp:
        """A kernel for which upstream has one op with a list of layers."""
        kind = op.name.partition(".")[0]
        name = scope.ops.take(name_of(op), kind)
        tensors_in = [self.tensor("", value, scope, planned, op) for value in op.operands]
        tensors_out = [
            self.define(f"dst{n}", value, scope, planned, name, wanted)
            for n, (value, wanted) in enumerate(zip(op.results, tensor_names(op)), 1)
        ]
        found = op.entry([t.name for t in tensors_in], [t.name for t in tensors_out])
        for tensor, (arg, _) in zip(tensors_in, found.ins):
            tensor.arg = arg
        params = [NetParam(key, value) for key, value in found.params.items()]
        return NetOp(name, kind, tensors_in, tensors_out, params, _loc(op))

    def region(self, op: KernelOp | OnceOp, scope: _Scope, planned: bool) -> NetOp:
        """A kernel or `ln.once` as an op with a body."""
        once = isinstance(op, OnceOp)
        name = scope.ops.take(name_of(op), "once" if once else "kernel")
        inner = _Scope(op.body)
        tensors_in = []
        for arg, value in zip(op.body.args, op.operands):
            tensor = self.tensor("", value, scope, planned, op)
            tensor.arg = inner.of[arg] = inner.tensors.take_exact(tensor.name)
            tensors_in.append(tensor)
        body: list[NetOp] = []
        for sub in op.body.ops:
            if not isinstance(sub, YieldOp):
                body += self.statement(sub, inner, planned=False)
        tensors_out = []
        for value, source, wanted in zip(op.results, op.terminator.operands, tensor_names(op)):
            tensor = self.define(inner.of[source], value, scope, planned, name, wanted)
            tensors_out.append(tensor)
        choices = op.choices if isinstance(op, KernelOp) else {}
        params = [NetParam(k, _choice(op, k, v)) for k, v in choices.items()]
        if isinstance(work := op.attributes.get(WORKSPACE), ArrayAttr):
            params.append(NetParam(WORKSPACE, tuple(self.offset(p) for p in work if isinstance(p, PlaceAttr))))
        return NetOp(name, "once" if once else op.name, tensors_in, tensors_out, params, _loc(op), body)

    # -- tensors

    def read(self, value: SSAValue, scope: _Scope, op: Operation | None) -> str:
        name = scope.of.get(value)
        if name is None:
            loc = loc_of(op) if op is not None else None
            raise LightNetError("an operand is defined neither by an op nor by the region around it", loc)
        return name

    def tensor(self, arg: str, value: SSAValue, scope: _Scope, planned: bool, op: Operation) -> NetTensor:
        return self.located(NetTensor(arg, self.read(value, scope, op)), value, planned)

    def define(self, arg: str, value: SSAValue, scope: _Scope, planned: bool, op: str, wanted: str | None) -> NetTensor:
        scope.of[value] = (
            scope.tensors.take(wanted, "") if _free(scope, wanted) else scope.tensors.take_exact(f"{op}_{arg}")
        )
        return self.located(NetTensor(arg, scope.of[value]), value, planned)

    def located(self, tensor: NetTensor, value: SSAValue, planned: bool) -> NetTensor:
        if not (layout := layout_of(value.type)).is_plain:
            tensor.layout = str(layout)
        if planned:
            tensor.dims = spec_of(value.type).dims
            place = place_of(value)
            tensor.offset = None if place is None else self.offset(place)
        return tensor

    def offset(self, place: PlaceAttr) -> int:
        assert self.spaces is not None
        if place.space.data not in self.spaces:
            raise LightNetError(f"a value stands at {place}; the module's spaces are {', '.join(self.spaces)}")
        return self.spaces[place.space.data][0] + place.offset.data

    # -- ops that overwrite their source in a netlist

    def reread(self, outer: Operation, op: LnOp) -> list[int]:
        """The operands that the netlist's op overwrites and that are read again: behind it, or by it (in the IR all are
        values)."""
        owners = {r.owner for r in op.schema.results if r.overwrites}
        if not owners or outer.parent is None:
            return []
        names = op.arg_names()[0]
        block = list(outer.parent.ops) if outer.parent is not self.block else None
        order: Callable[[Operation], int] = self.order.__getitem__ if block is None else block.index

        def again(value: SSAValue) -> bool:
            twice = sum(v is value for v in op.operands) > 1
            return twice or any(order(u.operation) > order(outer) for u in value.uses if u.operation is not outer)

        return [k for k, (name, value) in enumerate(zip(names, outer.operands)) if name in owners and again(value)]

    def copied(self, outer: Operation, value: SSAValue, scope: _Scope, planned: bool) -> NetOp:
        """A copy of an operand, for an op that would overwrite what is read later."""
        if planned:
            raise LightNetError(
                "a tensor that is overwritten in the netlist is read again later: wrap the op in a kernel (expand)",
                loc_of(outer),
            )
        name = scope.ops.take(None, "slice")
        source = NetTensor("src", self.read(value, scope, outer))
        copy = NetTensor("dst", scope.tensors.take_exact(f"{name}_dst"))
        params = [NetParam("axis", 0), NetParam("start", 0), NetParam("len", spec_of(value.type).dims[0])]
        return NetOp(name, "slice", [source], [copy], params, _loc(outer))


def _free(scope: _Scope, wanted: str | None) -> bool:
    return wanted is not None and wanted not in scope.tensors.given


def _flat(kernel: KernelOp) -> LnOp | None:
    """The one op of a kernel that reading `<optype>_<target>` gives again, or None."""
    ops = kernel.ops
    if len(ops) != 1 or kernel.choices or name_of(kernel) is not None or WORKSPACE in kernel.attributes:
        return None
    op = ops[0]
    if isinstance(op, Source):
        return None
    whole = list(dict.fromkeys(op.operands)) == list(kernel.body.args)
    yielded = list(kernel.terminator.operands) == list(op.results)
    distinct = len(set(kernel.operands)) == len(kernel.operands)
    return op if whole and yielded and distinct and tensor_names(op) == tensor_names(kernel) else None


def _choice(op: Operation, key: str, attr: Attribute) -> ParamValue:
    """A choice of a kernel as a parameter's value. An array of a netlist is not empty, and of one kind."""
    match attr:
        case ParamAttr() if attr.data != () and not is_open_value(attr.data):
            return attr.data
        case UnitAttr():
            return None
        case StringAttr():
            return attr.data
        case IntegerAttr():
            return bool(attr.value.data) if attr.type == i1 else attr.value.data
        case FloatAttr():
            return attr.value.data
        case ArrayAttr():
            values = tuple(_choice(op, key, a) for a in attr)
            kinds = {float if type(v) is int else type(v) for v in values}
            if len(kinds) == 1 and kinds <= {float, str, bool}:
                return values
    raise LightNetError(f"choice '{key}' of {op.name} is {attr}, which JSON cannot say", loc_of(op))


def _loc(op: Operation) -> SourceLoc:
    return loc_of(op) or SourceLoc("<module>")
