"""The first half of an operator description: its names, tensors, parameters, constants and the types of its results.

`operators.py` reads the rest. Imports `ir`, the op table and the modules beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from lightnet.dataclasses import dataclass, field, replace
from lightnet.dialects.ln.dialect import built_in_optypes, optypes
from lightnet.ir.expr import Expr, format_expr
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Operand, Param, Result
from lightnet_descriptions import c, calls, ccode, code, fields, parts, running, snippets, steps
from lightnet_descriptions.described import DescribedOp, ResultRule
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.snippets import DescribedTensor, Names

OP = {
    "optype": "s", "author": "s", "arch": "s", "tensors_in": "a", "tensors_out": "a", "params": "a", "autogen": "b",
    "variable_length": "b", "extra_privs": "a", "check": "s", "checks": "a", "custom": "s", "static_run": "s",
    "run": "s", "post_run": "s",
    "calc_offset": "so", "doc": "s", "flops": "s", "samples": "a", "replace": "b",
}  # fmt: skip
REQUIRED = ("optype", "author", "arch", "tensors_in", "tensors_out", "params")
#: `NAME(optype)`: the code of a built-in op, where a description cannot say what it does.
CODE_OF = re.compile(r"\s*(infer|builtin|views|derived|flops)\s*\(\s*(\w+)\s*\)\s*", re.ASCII)


_RANDOM = re.compile(rf"\b(?:{'|'.join(running.RANDOM)})\s*\(")


def built_in_of(item: DescribedValue, kind: str) -> type[LnOp] | None:
    """The op whose code a member names as ``kind(optype)``; None if it says something else."""
    if not isinstance(item.value, str) or (m := CODE_OF.fullmatch(item.value)) is None or m[1] != kind:
        return None
    known = {**optypes(), **built_in_optypes()}
    optype = fields.one_of(DescribedValue(m[2], item.source, item.position(m.start(2))), "op", list(known))
    return known[optype]


@dataclass
class Parts:
    """The parts that are collected of one description."""

    operands: dict[str, Operand] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    constraints: parts.Constraints = field(default_factory=parts.Constraints)
    #: Values by name that stand in the class (the definition, flags), and in its `DescribedOp`.
    namespace: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)
    base: type[LnOp] | None = None


class SignatureReader:
    """Reads what an op takes and gives; `parts` collects it."""

    def __init__(self, item: DescribedValue, file: str, *, replace: bool = False):
        self.item, self.file, self.replace = item, file, replace
        self.m = fields.members(item, "an operator description", OP)
        self.parts = Parts()

    def read(self) -> None:
        """Read the members, in upstream's order of checks."""
        fields.members(self.item, "an operator description", OP, REQUIRED)
        self.optype, self.arch = self.names_of_op()
        self.names = self.names_of_parts()
        self.named = self.named_built_in()
        self.stands_for = None if self.named is None or self.has_code_of_its_own() else self.named
        self.inputs()
        self.params()
        self.privates()
        self.outputs()
        self.parts.constraints.of(self.m, "", self.names)
        self.code()

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
        found: list[dict[str, DescribedTensor]] = [{}, {}]
        self.tensors: list[list[tuple[str, DescribedValue, dict[str, DescribedValue]]]] = [[], []]
        taken: dict[str, DescribedValue] = {}
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
        items = fields.elements(self.m["params"], "'params'")
        self.param_members = [
            fields.members(i, "an entry of 'params'", parts.PARAM, ["arg_name", "ptype"]) for i in items
        ]
        for members in self.param_members:
            self.free(fields.identifier(members["arg_name"], "the 'arg_name' of a param"), members["arg_name"], taken)
        self.taken = taken
        variadic = op_variadic or any(self.is_variadic(m, False) for _, _, m in (*self.tensors[0], *self.tensors[1]))
        members = fields.elements(self.m["extra_privs"], "'extra_privs'") if "extra_privs" in self.m else []
        privates = {
            str(i.value["name"].value): str(i.value["type"].value)
            for i in members
            if isinstance(i.value, dict) and {"name", "type"} <= i.value.keys()
        }
        return Names(self.optype, self.arch, found[0], found[1], {}, {}, frozenset(), variadic, privates)

    @staticmethod
    def is_variadic(members: Mapping[str, DescribedValue], default: bool) -> bool:
        return bool(members["variable_length"].value) if "variable_length" in members else default

    def free(self, name: str, item: DescribedValue, taken: dict[str, DescribedValue]) -> None:
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
            self.parts.operands[name] = parts.described_operand(
                name, members, later, self.parts.constraints, variadic=variadic
            )

    def with_all_params(self) -> Names:
        names = self.names
        for members in self.param_members:
            names = parts.with_param(names, parts.param_type(str(members["arg_name"].value), members))
        return names

    def params(self) -> None:
        for members in self.param_members:
            p = parts.param(str(members["arg_name"].value), members, self.names, self.parts.constraints)
            p = self.as_built_in(p)
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
            if (code := built_in_of(value, "derived")) is not None:
                self.needs_names_of(code, value)
                self.parts.described["constants_of"] = code
                constants[name] = None
                continue
            constants[name] = snippets.resolve_names(ccode.parse_item(value), self.names, value)
            texts.append((name, format_expr(constants[name])))
            self.names = _with_constants(self.names, constants)
        self.names = _with_constants(self.names, constants)
        self.parts.described["constants"] = tuple(texts)

    # -- code

    def named_built_in(self) -> type[LnOp] | None:
        """The built-in op of the same name (without ``_<arch>``), with the same tensors and params."""
        known = built_in_optypes().get(
            self.optype if self.arch == "none" else self.optype.removesuffix(f"_{self.arch}")
        )
        if known is None:
            return None
        names = [[name for name, _, _ in side] for side in self.tensors]
        theirs = [known.schema.operand_names(len(names[0])), known.schema.result_names(len(names[1]))]
        given = {str(m["arg_name"].value) for m in self.param_members}
        needed = {p.name for p in known.schema.params if p.default is ... and p.in_type is None}
        return known if names == theirs and needed <= given <= set(known.schema.by_name) else None

    def has_code_of_its_own(self) -> bool:
        """Return whether the description says what the op computes. A `static_run` that fills with random numbers does
        not: that is what `create` means here.
        """
        texts = [str(self.m[k].value) for k in ("run", "static_run") if k in self.m]
        return any(t.strip() and not _RANDOM.search(t) for t in texts)

    def as_built_in(self, p: Param) -> Param:
        """A param of an op that stands for a built-in one: what that one may leave out, this one may."""
        theirs = None if self.stands_for is None else self.stands_for.schema.by_name[p.name]
        if theirs is None or theirs.kind != p.kind:
            return p
        return replace(
            p, default=theirs.default if p.default is ... else p.default, in_type=p.in_type or theirs.in_type
        )

    def code(self) -> None:
        """Read the members that hold C: what runs before the results are known, what makes a result, and what is only
        checked."""
        before: list[code.Code] = []
        self.parts.described["code_of"] = made = dict[str, code.Code]()
        outputs = dict.fromkeys(self.parts.results, False)
        declared: dict[str, str] = {}
        found = self.parts.constraints.code
        for label, item, prefix in sorted(found, key=lambda entry: entry[2] in self.parts.results):
            late = label.endswith((".cleanup", "post-run"))
            seen = {
                n: n == prefix and not late for n in outputs if late or list(outputs).index(n) <= self.number(prefix)
            }
            scope = self.scope(seen, run=label.endswith("post-run"))
            if not late:
                scope.declared = declared
            read = code.read_code(item, label, scope)
            if not late and prefix in self.parts.results:
                made[prefix] = read
            elif not late:
                before.append(read)
        self.parts.described |= {"code": tuple(before), "names": self.names}

    def number(self, name: str) -> int:
        """The number of a result; -1 for what is none, and sees no results."""
        return list(self.parts.results).index(name) if name in self.parts.results else -1

    def scope(self, outputs: Mapping[str, bool], *, run: bool = False) -> c.CodeScope:
        """The scope of code that sees these outputs."""
        if run:
            found = code.scope(self.names, steps.run_functions(None), outputs=outputs, run=True)
            found.names |= dict.fromkeys(calls.NAMES)  # type: ignore[operator]
            return found
        names = code.scope(self.names, code.FUNCTIONS, outputs=outputs)
        for name in (n for n, making in outputs.items() if not making):
            names.names |= dict.fromkeys((f"{name}_dims", f"{name}_ndim", f"{name}_dtype"))  # type: ignore[operator]
        return names

    # -- results

    def outputs(self) -> None:
        shape_of = self.shape_rule()
        self.parts.described["shape_of"] = shape_of
        computed = any(key in self.m for key in ("run", "static_run"))
        writes = computed and ("calc_offset" not in self.m or self.holds_code)
        rules: list[ResultRule] = []
        names, known = self.names, dict[str, DescribedTensor]()
        for name, item, members in self.tensors[1]:
            parts.result_checks(name, members, names, self.parts.constraints)
            result = parts.described_result(members, names, writes_owner=writes and "owner" in members,
                                  static="static_run" in self.m and "run" not in self.m)  # fmt: skip
            self.parts.results[name] = result if self.stands_for is None else self.as_result(name, result)
            if shape_of is None:
                seen = replace(names, outputs=dict(known))
                coded = any(p == name and label.endswith(".custom") for label, _, p in self.parts.constraints.code)
                dims, dtype = parts.result_type(name, item, members, seen, coded=coded)
                ndim = snippets.snippet_text_of(members["ndim"], seen) if coded and "ndim" in members else None
                rules.append(ResultRule(name, dims, dtype, ndim))
            else:
                theirs = shape_of.schema.results[len(self.parts.results) - 1]
                self.parts.results[name] = replace(self.parts.results[name], dims=theirs.dims, dtype=theirs.dtype)
            known[name] = names.outputs[name]
        self.parts.described["results"] = tuple(rules)

    def as_result(self, name: str, result: Result) -> Result:
        """A result of an op that stands for a built-in one, which says what it overwrites."""
        assert self.stands_for is not None
        schema = self.stands_for.schema
        theirs = schema.results[min(list(self.names.outputs).index(name), len(schema.results) - 1)]
        return replace(
            result, overwrites=theirs.overwrites and result.owner == theirs.owner, static=result.static or theirs.static
        )

    @cached_property
    def holds_code(self) -> bool:
        """True if `run` or `static_run` holds C."""
        return any(ccode.run_is_code(self.m[k]) for k in ("run", "static_run") if k in self.m)

    def shape_rule(self) -> type[LnOp] | None:
        """The built-in op whose code infers the types of the results, where `dims` names it."""
        found = [(m["dims"], built_in_of(m["dims"], "infer")) for _, _, m in self.tensors[1] if "dims" in m]
        code = next((c for _, c in found if c is not None), None)
        if code is None:
            return None
        for name, item, members in self.tensors[1]:
            if "dims" not in members or built_in_of(members["dims"], "infer") is not code:
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

    def needs_names_of(self, code: type[LnOp], item: DescribedValue) -> None:
        """The code of a built-in op reads operands and parameters by their names."""
        inputs = [name for name, _, _ in self.tensors[0]]
        wanted = [o.name for o in code.schema.operands]
        if inputs[: len(wanted)] != wanted:
            raise item.error(f"the code of {code.optype} takes the inputs {', '.join(wanted) or 'none'}, in this "
                             "order; "
                             f"there are: {', '.join(inputs) or 'none'}")  # fmt: skip
        names = {str(m["arg_name"].value) for m in self.param_members}
        if missing := [p.name for p in code.schema.params if p.name not in names]:
            raise item.error(f"the code of {code.optype} reads the param '{missing[0]}', which there is not")


def _with_constants(names: Names, constants: Mapping[str, Expr | None]) -> Names:
    return replace(names, constants=dict(constants))
