"""The expressions of optimizer descriptions: conditions, and what a new op's parameters are computed from.

They are the constant expressions of `ir/expr.py` over *accessors*, which name a part of the network: `self` is the op
that a rule is asked about, other variables are those that the rule gives names to.

    accessor := VAR "." ("name" | "optype" | "arch" | "elementwise" | "reduction" | "move" | "free")
              | VAR "." ("ins" | "outs" | "params") ".len"
              | VAR "." ("ins" | "outs") "[" ARG "]" ("." FIELD)?
                                                                           FIELD: name dtype len ndim dims dims[i] ...
              | VAR ".params[" ARG "]" ("[" i ("," j)* "]")? ("." FIELD)?  FIELD: type len int float double string ...
              | VAR ".derived[" ARG "]" ("[" i "]")?                       what the op's class computes
    topology := VAR ".outs[" ARG "]" "=>" (OPTYPE ".ins[" ARG "]")?        is it read so? (by nobody?)

ARG is an argument name of the op table or a number. What does not exist is an error at its place when the description
is loaded. An expression is parsed, never executed as code. Imports `ir` and the modules beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lightnet.diagnostics import LightNetError, near
from lightnet.ir.access import is_copy, is_elementwise, is_reduction
from lightnet.ir.constants import Value, constant_element
from lightnet.ir.expr import Name
from lightnet.ir.op import LnOp, name_of
from lightnet.ir.params import ptype_of
from lightnet.parsing import Token
from lightnet.runtime.numbers import as_realtype
from lightnet_descriptions import kinds, tensors
from lightnet_descriptions.expressions import KIND_OF_TYPE, ExpressionParser
from lightnet_descriptions.scope import Ops, Read, TensorRef, Var, evaluate_over, unknown_optype

_OP_FIELDS: dict[str, tuple[str, Callable[[LnOp], Value]]] = {
    "name": ("string", lambda op: name_of(op) or ""),
    "optype": ("string", lambda op: op.optype),
    "arch": ("string", lambda op: k.name.partition(".")[0] if (k := tensors.kernel_of(op)) else "none"),
    "elementwise": ("bool", lambda op: bool(is_elementwise(op))),
    "reduction": ("bool", is_reduction),
    "move": ("bool", lambda op: op.is_move or is_copy(op)),
    "free": ("bool", lambda op: any(True for _ in op.views())),
}
#: Parameters whose value upstream's ops put another one in the place of, and what an op derives it as.
_EFFECTIVE = {"padding": "pad"}
_SECTIONS = ("ins", "outs", "params", "derived")


class AccessorParser(ExpressionParser):
    """Expressions with accessors; `details.py` adds assignments on top of it."""

    def accessor(self) -> Name:
        start = self.next()
        var = self.scope.variables[start.text]
        self.used.add(var.name)
        self.expect(".")
        what = self.name("a field")
        if what.text in _OP_FIELDS:
            kind, of_op = _OP_FIELDS[what.text]
            return self.atom(kind, lambda ops: of_op(ops[var.name]), start.pos)
        if what.text not in _SECTIONS:
            known = ", ".join([*_OP_FIELDS, *_SECTIONS])
            self.error(f"an op has no field '{what.text}'; there are: {known}", what.pos)
        if what.text != "derived" and self.accept("."):
            return self.count(var, what.text, start.pos)
        if what.text in ("ins", "outs"):
            return self.tensor(var, what.text, start.pos)
        return self.param(var, start.pos) if what.text == "params" else self.derived(var, start.pos)

    def variable(self) -> Token:
        """The name of a variable that there is."""
        start = self.name("a variable")
        if start.text not in self.scope.variables:
            self.error(f"unknown variable '{start.text}'; there are: {', '.join(self.scope.variables)}", start.pos)
        return start

    def count(self, var: Var, section: str, pos: int) -> Name:
        """``.ins.len``: how many there are."""
        if (mark := self.name("len")).text != "len":
            self.error(f"'{section}' has the field len only; an argument is named in brackets", mark.pos)
        sizes = {"ins": lambda op: len(op.operands), "outs": lambda op: len(op.results)}
        size = sizes.get(section, lambda op: len(op.schema.params))
        return self.atom("number", lambda ops: size(ops[var.name]), pos)

    def argument(self, var: Var, section: str) -> str | int:
        """``[ARG]``: the name of an argument that the op has, or the number of a tensor."""
        self.expect("[")
        token = self.next()
        if token.kind == "num" and token.text.isdigit() and section != "params":
            arg: str | int = int(token.text[:9])
        elif token.kind == "name":
            arg = token.text
            self.check_argument(var, section, token)
        else:
            self.error(f"expected the name of an argument, got '{token.text}'", token.pos)
        self.expect("]")
        return arg

    def check_argument(self, var: Var, section: str, token: Token) -> None:
        names, variadic = var.args(section), var.variadic(section)
        if var.open:
            return
        if names is None:
            if section == "params":
                self.error(f"'{var.name}' is any op: nothing is known of its params", token.pos)
            return
        numbered = variadic is not None and re.fullmatch(re.escape(variadic) + r"[1-9]\d{0,8}", token.text)
        if numbered or (token.text in names and token.text != variadic):
            return
        shown = sorted(f"{n}<number>" if n == variadic else n for n in names)
        what = {"ins": "input tensor", "outs": "output tensor", "params": "param"}[section]
        hint = near(token.text, sorted(names)) or f"; it has: {', '.join(shown) or 'none'}"
        ops = " or ".join(c.optype for c in var.classes)
        self.error(f"{ops} has no {what} `{token.text}`{hint}", token.pos)

    def tensor(self, var: Var, section: str, pos: int) -> Name:
        ref = TensorRef(var.name, section, self.argument(var, section))
        if section == "outs" and self.accept("=>"):
            return self.topology(ref, pos)
        arch = self.scope.arch
        if not self.accept("."):
            return self.atom("tensor", lambda ops: tensors.source_name(ref.value(ops), arch), pos, ref)
        what = self.name("a field")
        if what.text in tensors.NOT_KNOWN:
            self.error(f"'{what.text}': {tensors.NOT_KNOWN[what.text]}", what.pos)
        if what.text not in tensors.FIELDS:
            self.error(f"a tensor has no field '{what.text}'; there are: {', '.join(tensors.FIELDS)}", what.pos)
        kind, read = tensors.FIELDS[what.text]
        if what.text == "name":  # as the tensor by itself
            return self.atom("tensor", lambda ops: read(ref.value(ops), arch), pos, ref)
        return self.elements(kind, lambda ops: read(ref.value(ops), arch), pos)

    def elements(self, kind: str, read: Read, pos: int) -> Name:
        """The value, its element ``[i]``, or the array of its elements ``[i, j]``."""
        if kind not in kinds.ELEMENT or not self.accept("["):
            return self.atom(kind, read, pos)
        picked = [self.expression()]
        while self.accept(","):
            picked.append(self.expression())
        self.expect("]")
        for p in picked:
            if p.kind != "number":
                self.error(f"a subscript is a number, not {kinds.SHOWN[p.kind]}", p.pos)

        def some(ops: Ops) -> tuple[Any, ...]:
            array = read(ops)
            return tuple(constant_element(array, [evaluate_over(p.expr, p.atoms, ops)], "the array") for p in picked)

        if len(picked) > 1:
            return self.atom(kind, some, pos)
        return self.atom(kinds.ELEMENT[kind], lambda ops: some(ops)[0], pos)

    def param(self, var: Var, pos: int) -> Name:
        if var.open:
            self.error(f"nothing is known of the params of '{var.name}', a kernel, before it is made", pos)
        arg = self.argument(var, "params")
        assert isinstance(arg, str)
        p = var.param(arg)
        kind = p.kind
        if any(c.schema.by_name[arg].kind != kind for c in var.classes):
            self.error(f"`{arg}` is not the same in {' and '.join(c.optype for c in var.classes)}", pos)

        def raw(ops: Ops) -> Any:
            op = ops[var.name]
            # As in upstream's ops, the padding that `autopad` gives takes the place of the one that is written.
            return op.derived_values().get(_EFFECTIVE.get(arg, ""), op.param_values()[arg])

        def read(ops: Ops) -> Any:
            return ops[var.name].schema.by_name[arg].read(raw(ops))

        if not self.accept("."):
            return self.elements(kind, read, pos)
        what = self.name("a field")
        if what.text == "type":
            return self.atom("string", lambda ops: ptype_of(raw(ops)), pos)
        if what.text in ("len", "array_len") and p.is_array:
            return self.atom("number", lambda ops: len(raw(ops)), pos)
        word = what.text.removeprefix("value_")
        realtype = word.removeprefix("array_")
        as_kind = KIND_OF_TYPE.get(realtype)
        if (
            as_kind is None
            or (kinds.ARRAY[as_kind] if p.is_array else as_kind) != kind
            or word.startswith("array_") != p.is_array
        ):
            self.error(f"param `{arg}` is {kinds.SHOWN[kind]} and has no field '{what.text}'", what.pos)
        if as_kind != "number":
            return self.elements(kind, read, pos)
        if p.is_array:
            return self.elements(kind, lambda ops: tuple(as_realtype(v, realtype) for v in raw(ops)), pos)
        return self.atom(kind, lambda ops: as_realtype(raw(ops), realtype), pos)

    def derived(self, var: Var, pos: int) -> Name:
        """A name for what the op's class derives from shapes and parameters: arrays of numbers, whose names only an op
        knows.
        """
        self.expect("[")
        name = self.name("the name of a derived value")
        self.expect("]")

        def read(ops: Ops) -> Any:
            values = ops[var.name].derived_values()
            if name.text not in values:
                known = ", ".join(values) or "none"
                raise LightNetError(f"{ops[var.name].optype} derives no `{name.text}`; there are: {known}")
            found = values[name.text]
            return tuple(found) if isinstance(found, list | tuple) else (found,)

        return self.elements("numbers", read, pos)

    def topology(self, ref: TensorRef, pos: int) -> Name:
        """``=> OPTYPE.ins[ARG]``: whether an op of that optype reads the tensor so; ``=>``: whether no op reads it."""
        if self.token.kind != "name":
            return self.atom("bool", lambda ops: not any(_consumers(ref, ops)), pos)
        optype = self.next()
        found = self.scope.optype(optype.text)
        if found is None or found.cls is None:
            self.error(unknown_optype(optype.text, self.scope), optype.pos)
        cls, concrete = found
        self.expect(".")
        if (mark := self.name("ins")).text != "ins":
            self.error(f"a tensor is read by one of `ins`, not of `{mark.text}`", mark.pos)
        arg = self.argument(Var(optype.text, (cls,)), "ins")

        def read(ops: Ops) -> bool:
            return any(
                op.name == cls.name  # another class may have taken its place
                and (arg == number or op.arg_names()[0][number] == arg)
                and (not concrete or tensors.kernel_of(op) is not None)
                for op, number in _consumers(ref, ops)
            )

        return self.atom("bool", read, pos)


def _consumers(ref: TensorRef, ops: Ops) -> Iterator[tuple[LnOp, int]]:
    return ((op, number) for op, number in tensors.readers(ref.value(ops)) if isinstance(op, LnOp))
