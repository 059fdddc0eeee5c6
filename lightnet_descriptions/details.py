"""The ops that take the place of matched ones: the new ops of `replace`, and the assignments of `details` that fill
them.

    assignment := VAR "." ("ins" | "outs" | "params") ("[" ARG "]")? "=" value
    ARG        := NAME | NAME "$@" NAME? | NAME "$^" NAME?

`$@` is the next free number behind that name, `$^` the same number once more: ``cat.ins[src$@]`` adds an operand. An op
with a variable number of operands takes them so, or by number. A whole section (``conv.params = self.params``) copies
what both ops have and no other line sets. ``new.outs[a] = old.outs[b]`` (or ``old.outs[b] = `` any tensor) says what
takes the place of a result.

All of it is checked when the description is loaded: each operand and each parameter without a default is given, of the
right kind, from what stands before it; and each result of a lone matched op is taken over. Imports `ir` and the modules
beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Create, ParamOp
from lightnet.ir.expr import Str
from lightnet.ir.kernel import KernelOp, LayerEntry
from lightnet.ir.op import LnOp
from lightnet.ir.params import ParamValue
from lightnet.ir.registry import KERNELS
from lightnet_descriptions import kinds
from lightnet_descriptions.accessors import AccessorParser
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.scope import Expression, Ops, Optype, RuleScope, TensorRef, Var, unknown_optype
from lightnet_descriptions.tensors import origin, outside, source_name

#: The new ops and the details of one rule: more is refused, so that checking them takes no time.
MAX_NEW, MAX_DETAILS = 64, 1024


@dataclass
class NewOp:
    """An op of `replace`: what its operands and parameters are, as the details say. Of an optype with an `arch`
    (``relu_cpu``) there is a kernel around the op; what a `create` becomes is no input."""

    var: str
    cls: type[LnOp]
    arch: str | None
    item: DescribedValue
    optype: str  # as it is written
    operands: dict[str, TensorRef] = field(default_factory=dict)
    params: dict[str, Expression] = field(default_factory=dict)
    copied: dict[str, str] = field(default_factory=dict)  # parameter -> the variable it is copied from
    names: dict[str, Expression] = field(default_factory=dict)  # result -> the name of its tensor

    def build(self, ops: Ops) -> LnOp:
        """The op, not inserted anywhere. Raises `LightNetError` at its entry for a violated constraint."""
        params: dict[str, ParamValue] = {k: ops[var].param_values()[k] for k, var in self.copied.items()}
        params |= {k: e.value(ops) for k, e in self.params.items()}  # type: ignore[misc]
        values = [self.operands[name].value(ops) for name in self.operand_order()]
        try:
            return (ParamOp if self.cls is Create else self.cls).make(values, params)
        except LightNetError as e:
            raise self.item.error(f"the new op `{self.var}`: {e.message}", e.label) from None

    def operand_order(self) -> list[str]:
        names = self.cls.schema.operand_names(len(self.operands))
        return [n for n in names if n in self.operands]


@dataclass
class NewKernel:
    """A kernel of `replace` whose optype names the arch (``tensorrt``): its tensors and parameters have the names that
    the details give them, as in the entry of a network file (`tensorrt/layers.py`)."""

    var: str
    arch: str
    item: DescribedValue
    optype: str
    operands: dict[str, TensorRef] = field(default_factory=dict)
    outs: dict[str, TensorRef] = field(default_factory=dict)
    params: dict[str, Expression] = field(default_factory=dict)

    def build(self, ops: Ops) -> KernelOp:
        """The kernel, not inserted anywhere. Raises `LightNetError` at its entry for layers that there cannot be."""
        # Tensors are told apart by what they are: a network need not name them.
        tokens: dict[SSAValue, str] = {}

        def token(ref: TensorRef) -> str:
            value = origin(ref.value(ops))
            return tokens.setdefault(value, source_name(value, self.arch) or f"%{len(tokens)}")

        ins = [(arg, token(ref)) for arg, ref in self.operands.items()]
        values = {token(ref): outside(value := ref.value(ops)) or value for ref in self.operands.values()}
        outs = [(arg, token(ref)) for arg, ref in self.outs.items()]
        params = {k: token(e.tensor) if e.tensor is not None else e.value(ops) for k, e in self.params.items()}
        try:
            return KERNELS.get(self.arch).of_entry(LayerEntry(ins, outs, params), values)
        except LightNetError as e:
            raise self.item.error(f"the new kernel `{self.var}`: {e.message}", e.label) from None


New = NewOp | NewKernel


@dataclass(frozen=True)
class Replacement:
    """The new ops in order, and the tensor that takes the place of each result of the matched ops that is read
    elsewhere."""

    new_ops: tuple[New, ...]
    results: Mapping[tuple[str, str], TensorRef]


@dataclass(frozen=True)
class Renamed:
    """`replace` with an optype alone: the op keeps its name, tensors and parameters."""

    cls: type[LnOp]
    arch: str | None
    item: DescribedValue


def replacement(
    replace: Sequence[DescribedValue],
    details: Sequence[DescribedValue],
    scope: RuleScope,
    linked: Mapping[tuple[str, str | int], TensorRef],
) -> Replacement:
    """The replacement that `replace` (entries ``OPTYPE VAR``) and `details` say. `linked` are the operands of matched
    ops that other matched ops make."""
    for what, entries, most in (("ops", replace, MAX_NEW), ("details", details, MAX_DETAILS)):
        if len(entries) > most:
            raise entries[most].error(f"more than {most} {what} in one rule")
    builder = _Builder(scope, linked)
    for entry in replace:
        builder.declare(entry)
    for line in details:
        builder.assign(line)
    return builder.finish()


def removal(item: DescribedValue, details: Sequence[DescribedValue], scope: RuleScope, cls: type[LnOp]) -> Replacement:
    """``replace: []``: what takes the place of the results of `self`, an op of class `cls`, a tensor that is there
    already.

    Upstream's generated code forgets to say that it matched, so that nothing happens there. Here details may say which
    tensor it is (``self.outs[dst] = self.ins[src]``); without them it is the one data operand of an op with one result.
    """
    schema = cls.schema
    if details:
        made = replacement([], details, scope, {})
        missing = [r.name for r in schema.results if ("self", r.name) not in made.results]
        if missing:
            raise item.error(f"nothing takes the place of self.outs[{missing[0]}]")
        return made
    data = [o for o in schema.operands if o.role == "data"]
    if len(schema.results) != 1 or len(data) != 1 or data[0].variadic or schema.results[0].variadic:
        raise item.error(
            f"what takes the place of the results of {cls.optype}? say 'self.outs[ARG] = self.ins[ARG]' in details"
        )
    return Replacement((), {("self", schema.results[0].name): TensorRef("self", "ins", data[0].name)})


def split_entry(item: DescribedValue) -> tuple[str, str]:
    """``OPTYPE VAR`` (or ``OPTYPE``) in two."""
    if not isinstance(item.value, str):
        raise item.error(f"expected 'OPTYPE VAR', got {item.kind}")
    words = item.value.split()
    if not 1 <= len(words) <= 2:
        raise item.error(f"expected 'OPTYPE VAR', got '{item.value[:80]}'")
    return words[0], words[1] if len(words) == 2 else ""


def optype_of(text: str, item: DescribedValue, scope: RuleScope) -> Optype:
    """The op type that an optype names; an unknown one is an error at `item`."""
    found = scope.optype(text)
    if found is None:
        raise item.error(unknown_optype(text, scope), "unknown-optype")
    return found


def class_of(text: str, item: DescribedValue, scope: RuleScope) -> tuple[type[LnOp], str | None]:
    """The class of an optype that is an op's, and the arch of the kernel around it."""
    cls, arch = optype_of(text, item, scope)
    if cls is None:
        raise item.error(f"'{text}' is a kernel of several ops, and has no place here", "unknown-optype")
    return cls, arch


def new_variable(name: str, item: DescribedValue, taken: Mapping[str, object]) -> str:
    """`name`, if it can be a variable that is not one already."""
    if not name.isidentifier() or not name.isascii():
        raise item.error(f"'{name}' is no name of a variable")
    if name in taken:
        raise item.error(f"the variable '{name}' is taken")
    return name


@dataclass(frozen=True)
class _Target:
    """The left side of an assignment: an argument (None: the whole section) of a variable."""

    var: str
    section: str
    arg: str | None
    pos: int


class _Line(AccessorParser):
    """One assignment."""

    def __init__(self, item: DescribedValue, scope: RuleScope, numbers: dict[tuple[str, str, str], int]):
        super().__init__(item, scope)
        self.numbers = numbers

    def target(self) -> _Target:
        start = self.variable()
        self.expect(".")
        section = self.name("ins, outs or params")
        if section.text not in ("ins", "outs", "params"):
            self.error(f"expected ins, outs or params, got '{section.text}'", section.pos)
        arg = self.numbered(start.text, section.text) if self.accept("[") else None
        self.expect("=")
        return _Target(start.text, section.text, arg, start.pos)

    def numbered(self, var: str, section: str) -> str:
        """An argument's name, its number put in for ``$@`` or ``$^``."""
        token = self.name("the name of an argument")
        text = token.text
        if mark := self.accept("$@", "$^"):
            key, last = (var, section, text), (var, "", text)  # `outs[dst$@]` and `params[dst$^_shape]` are one number
            if mark.text == "$@":
                self.numbers[key] = self.numbers[last] = self.numbers.get(key, 0) + 1
            elif last not in self.numbers:
                self.error(f"'{text}$^' repeats the number of a '{text}$@' before it, and there is none", mark.pos)
            text += str(self.numbers[last]) + (self.next().text if self.token.kind in ("name", "num") else "")
        self.expect("]")
        self.check_argument(self.scope.variables[var], section, token._replace(text=text))
        return text


class _Builder:
    def __init__(self, scope: RuleScope, linked: Mapping[tuple[str, str | int], TensorRef]):
        self.scope, self.linked = scope, linked
        self.matched = set(scope.variables)
        self.new: dict[str, New] = {}
        self.results: dict[tuple[str, str], TensorRef] = {}
        self.numbers: dict[tuple[str, str, str], int] = {}

    def declare(self, item: DescribedValue) -> None:
        text, name = split_entry(item)
        if not name:
            raise item.error(f"a new op needs a name for the details to fill it: '{text} {text[:1]}'")
        cls, arch = optype_of(text, item, self.scope)
        var = new_variable(name, item, self.scope.variables)
        if cls is None:
            assert arch is not None
            self.new[var] = NewKernel(var, arch, item, text)
            self.scope = self.scope.with_vars(Var(var, (), open=True))
            return
        self.new[var] = NewOp(var, cls, arch, item, text)
        self.scope = self.scope.with_vars(Var(var, (cls,)))

    def assign(self, item: DescribedValue) -> None:
        line = _Line(item, self.scope, self.numbers)
        target = line.target()
        if target.arg is None:
            return self.copy(line, target)
        value = line.expression()
        line.finish()
        if target.section == "params":
            self.param(line, target, value)
        elif target.section == "ins":
            self.operand(line, target, value)
        else:
            self.result(line, target, value)
        return None

    # -- operands

    def operand(self, line: _Line, target: _Target, value: Expression) -> None:
        new = self.is_new(line, target)
        assert target.arg is not None
        if value.tensor is None:
            line.error("an operand is a tensor: VAR.ins[ARG] or VAR.outs[ARG]", value.pos)
        if target.arg in new.operands:
            line.error(f"`{target.var}.ins[{target.arg}]` is assigned twice", target.pos)
        new.operands[target.arg] = self.readable(line, new, value.tensor, value.pos)

    def readable(self, line: _Line, new: NewOp, ref: TensorRef, pos: int) -> TensorRef:
        """The tensor, if it is there when the new op is: an operand of a matched op that no matched op makes, or a
        tensor of a new op before this one."""
        if ref.var in self.matched:
            if ref.section == "outs":
                line.error(f"{ref} is gone with the op that makes it", pos)
            if (ref.var, ref.arg) in self.linked:
                line.error(f"{ref} is {self.linked[ref.var, ref.arg]}, which is gone with the op that makes it", pos)
            return ref
        order = list(self.new)
        if order.index(ref.var) >= order.index(new.var):
            line.error(f"'{ref.var}' stands behind '{new.var}' in replace: it cannot be read there", pos)
        return self.new[ref.var].operands.get(str(ref.arg), ref) if ref.section == "ins" else ref

    # -- parameters

    def param(self, line: _Line, target: _Target, value: Expression) -> None:
        new = self.is_new(line, target)
        assert target.arg is not None
        if target.arg in new.params:
            line.error(f"`{target.var}.params[{target.arg}]` is assigned twice", target.pos)
        if isinstance(new, NewKernel):
            new.params[target.arg] = value
            return
        p = new.cls.schema.by_name[target.arg]
        if (got := kinds.value_kind(value.kind)) != p.kind:
            line.error(
                f"param `{p.name}` of {new.cls.optype} is {kinds.SHOWN[p.kind]}, not {kinds.SHOWN[got]}", value.pos
            )
        if p.choices and isinstance(value.expr, Str) and value.expr.value not in p.choices:
            line.error(f"param `{p.name}` of {new.cls.optype} is one of {', '.join(p.choices)}", value.pos)
        self.check_there(line, new, value.used, value.pos)
        new.params[target.arg] = value

    def check_there(self, line: _Line, new: NewOp, used: Iterable[str], pos: int) -> None:
        """An op is made of what was made before it."""
        order = list(self.new)
        if late := [var for var in order[order.index(new.var) :] if var in used]:
            line.error(f"'{late[0]}' is not there yet when '{new.var}' is made", pos)

    def copy(self, line: _Line, target: _Target) -> None:
        """``new.params = old.params``, ``new.ins = old.ins``: what both have."""
        new = self.is_new(line, target)
        if isinstance(new, NewKernel):
            line.error(
                f"each argument of a kernel is assigned by its name: {target.var}.{target.section}[NAME] = …",
                target.pos,
            )
        start = line.name("a variable")
        if start.text not in self.scope.variables or not self.scope.variables[start.text].classes:
            line.error(f"expected a variable whose optype is known, got '{start.text}'", start.pos)
        line.expect(".")
        if target.section == "outs" or (word := line.name(target.section)).text != target.section:
            line.error("a whole section is assigned from the same one: a.params = b.params, a.ins = b.ins", target.pos)
        line.finish()
        source = self.scope.variables[start.text]
        there = source.args(target.section) or set()
        if target.section == "params":
            self.check_there(line, new, [start.text], word.pos)
            alike = (p for p in new.cls.schema.params if p.name in there and source.param(p.name).kind == p.kind)
            new.copied |= {p.name: start.text for p in alike}
            return
        for o in new.cls.schema.operands:
            if o.name in there and not o.variadic and o.name not in new.operands:
                ref = TensorRef(start.text, "ins", o.name)
                new.operands[o.name] = self.readable(line, new, ref, start.pos)

    # -- results

    def result(self, line: _Line, target: _Target, value: Expression) -> None:
        assert target.arg is not None
        ref, key = value.tensor, (target.var, target.arg)
        new = self.new.get(target.var)
        if isinstance(new, NewKernel) and ref is not None:
            new.outs[target.arg] = ref
            if ref.section != "outs" or ref.var not in self.matched:
                return  # no tensor that there is already: an error once the rule is applied, as upstream has it
        if target.var in self.matched:
            if ref is None:
                line.error("what takes the place of a result is a tensor", value.pos)
            if ref.var in self.matched and (ref.section == "outs" or (ref.var, ref.arg) in self.linked):
                line.error(f"{ref} is gone with the op that makes it", value.pos)
        elif ref is not None and ref.var in self.matched and ref.section == "outs":
            key, ref = (ref.var, self.result_name(ref)), TensorRef(target.var, "outs", target.arg)
        elif value.kind == "string" and ref is None and isinstance(new, NewOp):
            new.names[target.arg] = value
            return
        else:
            line.error("a result takes the place of a matched op's result, or is given a name", value.pos)
        if key in self.results:
            line.error(f"`{key[0]}.outs[{key[1]}]` is taken over twice", target.pos)
        self.results[key] = ref

    def result_name(self, ref: TensorRef) -> str:
        if isinstance(ref.arg, str):
            return ref.arg
        classes = self.scope.variables[ref.var].classes
        names = [r.name for r in classes[0].schema.results] if classes else []
        return names[ref.arg] if ref.arg < len(names) else str(ref.arg)

    def is_new(self, line: _Line, target: _Target) -> New:
        if target.var not in self.new:
            line.error(f"'{target.var}' is matched: only its outs can be assigned", target.pos)
        return self.new[target.var]

    # -- the end

    def finish(self) -> Replacement:
        for new in self.new.values():
            if isinstance(new, NewKernel):
                if "op1" not in new.params:
                    raise new.item.error(f"the details give no layer of the kernel: `{new.var}.params[op$@] = …`")
                continue
            schema = new.cls.schema
            missing = [o.name for o in schema.operands if not o.variadic and o.name not in new.operands]
            if missing:
                raise new.item.error(f"the details give no `{new.var}.ins[{missing[0]}]`")
            if schema.variadic_operand is not None:
                self.check_numbering(new, schema.variadic_operand.name)
            given = {*new.params, *new.copied}
            absent = [p.name for p in schema.params if p.default is ... and p.name not in given]
            if absent:
                raise new.item.error(f"the details give no `{new.var}.params[{absent[0]}]`")
            new.copied = {k: v for k, v in new.copied.items() if k not in new.params}
        return Replacement(tuple(self.new.values()), self.results)

    @staticmethod
    def check_numbering(new: NewOp, name: str) -> None:
        fixed = sum(not o.variadic for o in new.cls.schema.operands)
        count = len(new.operands) - fixed
        gap = next((i for i in range(1, max(count, 1) + 1) if f"{name}{i}" not in new.operands), None)
        if gap is not None:
            raise new.item.error(f"the details give no `{new.var}.ins[{name}{gap}]`")
