"""The first half of an operator description: its names, tensors, parameters, constants and the types of its results.

`operators.py` reads the rest. Imports `ir`, the op table and the modules beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from xdsl.ir import Operation

from lightnet.descriptions import ccode, fields, parts, snippets
from lightnet.descriptions.described import DescribedOp, ResultRule
from lightnet.descriptions.reader import Item
from lightnet.descriptions.snippets import Names, Tensor
from lightnet.dialects.ln.dialect import ops
from lightnet.ir.expr import Expr, format_expr
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Operand, Param, Result

OP = {
    "optype": "s", "author": "s", "arch": "s", "tensors_in": "a", "tensors_out": "a", "params": "a", "autogen": "b",
    "variable_length": "b", "extra_privs": "a", "check": "s", "checks": "a", "custom": "s", "static_run": "s", "run": "s", "post_run": "s",
    "calc_offset": "so", "doc": "s", "flops": "s", "samples": "a",
}  # fmt: skip
REQUIRED = ("optype", "author", "arch", "tensors_in", "tensors_out", "params")
#: `NAME(optype)`: the code of a built-in op, where a description cannot say what it does.
CODE_OF = re.compile(r"\s*(infer|builtin|views|derived|flops)\s*\(\s*(\w+)\s*\)\s*", re.ASCII)


def built_in(item: Item, kind: str) -> type[LnOp] | None:
    """The op whose code a member names as ``kind(optype)``; None if it says something else."""
    if not isinstance(item.value, str) or (m := CODE_OF.fullmatch(item.value)) is None or m[1] != kind:
        return None
    known = _known(ops())
    optype = fields.one_of(Item(m[2], item.source, item.position(m.start(2))), "op", list(known))
    return known[optype]


@lru_cache(1)
def _known(classes: tuple[type[Operation], ...]) -> dict[str, type[LnOp]]:
    return {op.optype: op for op in classes if issubclass(op, LnOp)}


@dataclass
class Parts:
    """What is collected of one description."""

    operands: dict[str, Operand] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    constraints: parts.Constraints = field(default_factory=parts.Constraints)
    #: Values by name that stand in the class (the definition, flags), and in its `Described`.
    namespace: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)
    base: type[LnOp] | None = None


class Signature:
    """Reads what an op takes and gives; `parts` collects it."""

    def __init__(self, item: Item, file: str):
        self.item, self.file = item, file
        self.m = fields.members(item, "an operator description", OP)
        self.parts = Parts()

    def read(self) -> None:
        """Read the members, in upstream's order of checks."""
        fields.members(self.item, "an operator description", OP, REQUIRED)
        self.optype, self.arch = self.names_of_op()
        self.names = self.names_of_parts()
        self.inputs()
        self.params()
        self.privates()
        self.outputs()
        self.parts.constraints.of(self.m, "", self.names)

    def names_of_op(self) -> tuple[str, str]:
        """The optype and the architecture: ``X``, or ``X_<arch>`` of a target."""
        optype = fields.identifier(self.m["optype"], "an optype")
        arch = fields.identifier(self.m["arch"], "an architecture")
        if arch != "none" and not (optype.endswith(f"_{arch}") and len(optype) > len(arch) + 1):
            raise self.m["optype"].error(f"an optype of the architecture '{arch}' ends with '_{arch}'")
        return optype, arch

    # -- tensors and parameters

    def names_of_parts(self) -> Names:
        """The tensors by name, so that the snippets of each may refer to all."""
        found: list[dict[str, Tensor]] = [{}, {}]
        self.tensors: list[list[tuple[str, Item, dict[str, Item]]]] = [[], []]
        taken: dict[str, Item] = {}
        op_variadic = bool(self.m["variable_length"].value) if "variable_length" in self.m else False
        for k, (key, known) in enumerate((("tensors_in", parts.INPUT), ("tensors_out", parts.OUTPUT))):
            items = fields.elements(self.m[key], f"'{key}'")
            for number, item in enumerate(items):
                name, info, members = parts.tensor_info(item, known, f"an entry of '{key}'", self.arch)
                last = number == len(items) - 1
                if self.is_variadic(members, op_variadic and k == 0 and last):
                    if not last:
                        raise members["variable_length"].error("only the last tensor may be of variable length")
                    name = name.rstrip("0123456789") or name
                self.free(name, members["arg_name"], taken)
                found[k][name] = info
                self.tensors[k].append((name, item, members))
        for item in fields.elements(self.m["params"], "'params'"):
            members = fields.members(item, "an entry of 'params'", parts.PARAM, ["arg_name", "ptype"])
            self.free(fields.identifier(members["arg_name"], "the 'arg_name' of a param"), members["arg_name"], taken)
        self.taken = taken
        variadic = op_variadic or any(self.is_variadic(m, False) for _, _, m in (*self.tensors[0], *self.tensors[1]))
        return Names(self.optype, self.arch, found[0], found[1], {}, {}, frozenset(), variadic)

    @staticmethod
    def is_variadic(members: Mapping[str, Item], default: bool) -> bool:
        return bool(members["variable_length"].value) if "variable_length" in members else default

    def free(self, name: str, item: Item, taken: dict[str, Item]) -> None:
        """A name that is not taken yet, by the description or by the class of an op."""
        if name in taken:
            raise item.error(f"the name '{name}' is taken by the one at {taken[name].loc}")
        if hasattr(DescribedOp, name):
            raise item.error(f"the name '{name}' is taken by the classes of ops; choose another one")
        taken[name] = item

    def inputs(self) -> None:
        last = self.tensors[0][-1][0] if self.tensors[0] else None
        op_variadic = "variable_length" in self.m and bool(self.m["variable_length"].value)
        if op_variadic and last is None:
            raise self.m["variable_length"].error("an op of variable length has an input that may be repeated")
        # Upstream's snippets of a tensor see all params; a check runs when the op's types and params are known.
        later = self.with_all_params()
        for name, _, members in self.tensors[0]:
            variadic = self.is_variadic(members, op_variadic and name == last)
            self.parts.operands[name] = parts.operand(name, members, later, self.parts.constraints, variadic=variadic)

    def with_all_params(self) -> Names:
        names = self.names
        for item in fields.elements(self.m["params"], "'params'"):
            members = fields.members(item, "an entry of 'params'", parts.PARAM, ["arg_name", "ptype"])
            names = parts.with_param(names, parts.param_type(str(members["arg_name"].value), members))
        return names

    def params(self) -> None:
        for item in fields.elements(self.m["params"], "'params'"):
            members = fields.members(item, "an entry of 'params'", parts.PARAM)
            p = parts.param(str(members["arg_name"].value), members, self.names, self.parts.constraints)
            self.names = parts.with_param(self.names, p)
            self.parts.params[p.name] = p

    def privates(self) -> None:
        """The extra members of the private structure: named constants, each with the expression for its value."""
        constants: dict[str, Expr | None] = {}
        texts: list[tuple[str, str]] = []
        for item in fields.elements(self.m["extra_privs"], "'extra_privs'") if "extra_privs" in self.m else ():
            members = fields.members(
                item, "an entry of 'extra_privs'", {"type": "s", "name": "s", "value": "ns"}, ["type", "name"]
            )
            name = fields.identifier(members["name"], "the name of a private member")
            self.free(name, members["name"], self.taken)
            if (value := members.get("value")) is None:
                continue  # memory that C code would fill in: kept, and nothing that an expression may name
            if (code := built_in(value, "derived")) is not None:
                self.needs_names_of(code, value)
                self.parts.described["constants_of"] = code
                constants[name] = None
                continue
            constants[name] = snippets.resolve(ccode.parse(value), self.names, value)
            texts.append((name, format_expr(constants[name])))
            self.names = _with_constants(self.names, constants)
        self.names = _with_constants(self.names, constants)
        self.parts.described["constants"] = tuple(texts)

    # -- results

    def outputs(self) -> None:
        shape_of = self.shape_rule()
        self.parts.described["shape_of"] = shape_of
        computed = any(key in self.m for key in ("run", "static_run"))
        writes = computed and "calc_offset" not in self.m
        rules: list[ResultRule] = []
        names, known = self.names, dict[str, Tensor]()
        for name, item, members in self.tensors[1]:
            parts.result_checks(name, members, names, self.parts.constraints)
            self.parts.results[name] = parts.result(members, names, writes_owner=writes and "owner" in members,
                                                    static="static_run" in self.m)  # fmt: skip
            if shape_of is None:
                rules.append(
                    ResultRule(name, *parts.result_type(name, item, members, replace(names, outputs=dict(known))))
                )
            known[name] = names.outputs[name]
        self.parts.described["results"] = tuple(rules)

    def shape_rule(self) -> type[LnOp] | None:
        """The built-in op whose code infers the types of the results, where `dims` names it."""
        found = [(m["dims"], built_in(m["dims"], "infer")) for _, _, m in self.tensors[1] if "dims" in m]
        code = next((c for _, c in found if c is not None), None)
        if code is None:
            return None
        for name, item, members in self.tensors[1]:
            if "dims" not in members or built_in(members["dims"], "infer") is not code:
                raise item.error(
                    f"the output '{name}' needs the dims 'infer({code.optype})', too: it infers every result"
                )
            for key in ("dtype", "sametype", "sameshape"):
                if key in members:
                    raise members[key].key_error(f"'infer({code.optype})' says the {key.removeprefix('same')} already")
        self.needs_names_of(code, self.tensors[1][0][2]["dims"])
        if len(code.schema.results) != len(self.tensors[1]):
            raise self.m["tensors_out"].error(f"'infer({code.optype})' is for {len(code.schema.results)} results")
        return code

    def needs_names_of(self, code: type[LnOp], item: Item) -> None:
        """The code of a built-in op reads operands and parameters by their names."""
        inputs = [name for name, _, _ in self.tensors[0]]
        wanted = [o.name for o in code.schema.operands]
        if inputs[: len(wanted)] != wanted:
            raise item.error(f"the code of {code.optype} takes the inputs {', '.join(wanted) or 'none'}, in this order; "
                             f"there are: {', '.join(inputs) or 'none'}")  # fmt: skip
        names = {str(m.value["arg_name"].value) for m in self.m["params"].value}  # type: ignore[union-attr, index, call-overload]
        if missing := [p.name for p in code.schema.params if p.name not in names]:
            raise item.error(f"the code of {code.optype} reads the param '{missing[0]}', which there is not")


def _with_constants(names: Names, constants: Mapping[str, Expr | None]) -> Names:
    return replace(names, constants=dict(constants))
