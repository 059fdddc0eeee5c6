"""Op classes -> operator descriptions: the way back from `operators.load_operators`, for built-in ops and for described
ones.

What a built-in op says in Python is named there as the code of that op: ``infer(conv2d)`` for the types of its results,
``derived(conv2d)`` for further constants, ``views(slice)`` and ``flops(conv2d)``, and ``builtin(sort1d)`` for all that
it computes. Such a description, and one that somebody derives from it, loads where the op is built in. A described op
gives the description that it came from. Rewrites of an op are no part of it: they are patterns of their own. Imports
`ir`, `snippets` and the standard library.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from lightnet.ir.examples import operation
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Operand, Param, Result
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME
from lightnet_descriptions.described import DescribedOp
from lightnet_descriptions.enumerators import CONVERSIONS
from lightnet_descriptions.parts import MEMORIES

AUTHOR = "LightNet"
FORMATS = ("json", "op")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def describe(cls: type[LnOp]) -> dict[str, Any]:
    """The description of an op class, as plain values. `operators.load_operators` makes an equal class of it."""
    if issubclass(cls, DescribedOp):
        return copy.deepcopy(dict(cls.described.description))
    return _Export(cls).description()


def description_text(descriptions: Iterable[Mapping[str, Any]], form: str = "json") -> str:
    """Descriptions as the text of a file: ``json`` (document 002) or ``op`` (upstream's later form)."""
    if form == "json":
        return json.dumps({"ops": list(descriptions)}, indent=2, ensure_ascii=False) + "\n"
    return "\n".join(f"{d['optype']} {_value(d, 0)}\n" for d in descriptions)


class _Export:
    """The description of one built-in op."""

    def __init__(self, cls: type[LnOp]):
        self.cls, self.schema, self.optype = cls, cls.schema, cls.optype
        self.memory = MEMORIES.get(cls.arch, MEMORIES["none"])[-1]
        self.inherits = not isinstance(inspect.getattr_static(cls, "definition"), str)

    def description(self) -> dict[str, Any]:
        cls = self.cls
        found: dict[str, Any] = {"optype": cls.optype, "author": AUTHOR, "arch": cls.arch, "doc": self.doc()}
        found["tensors_in"] = [self.operand(o) for o in self.schema.operands]
        found["tensors_out"] = [self.result(r) for r in self.schema.results]
        found["params"] = [_param(p) for p in self.schema.params]
        if cls.checks:
            found["checks"] = [{"check": self.check(label), "label": label} for label in cls.checks]
        if not self.inherits and self.overrides("derived"):
            found["extra_privs"] = self.privates()
        static = any(r.static for r in self.schema.results) and not self.schema.operands
        found["static_run" if static else "run"] = self.run()
        if not self.inherits and self.overrides("views"):
            found["calc_offset"] = f"views({self.optype})"
        if not self.inherits and (self.overrides("flops") or cls.work != LnOp.work):
            found["flops"] = f"flops({self.optype})"
        if sample := self.sample():
            found["samples"] = [sample]
        return found

    def overrides(self, method: str) -> bool:
        mine, base = getattr(self.cls, method), getattr(LnOp, method)
        return getattr(mine, "__func__", mine) is not getattr(base, "__func__", base)

    def doc(self) -> str:
        """The docstring without its example, which is made anew."""
        return re.sub(r"\n*```mlir\n.*?```", "", inspect.getdoc(self.cls) or "", flags=re.DOTALL).strip()

    def check(self, label: str) -> str:
        constraint, message = self.cls.checks[label], self.cls.messages.get(label)
        if message is None:
            return constraint
        return ", ".join([constraint, json.dumps(message.format, ensure_ascii=False), *message.args])

    def run(self) -> str:
        return f"builtin({self.optype})" if self.inherits else textwrap.dedent(str(self.cls.definition)).strip()

    def operand(self, o: Operand) -> dict[str, Any]:
        found: dict[str, Any] = {"arg_name": o.name, "mtype": self.memory}
        found |= {"ndim": o.rank} if o.rank is not None else {}
        found |= {"min_ndim": o.min_rank} if o.min_rank else {}
        if len(o.dtypes) == 1:
            found["dtype"] = BY_NAME[o.dtypes[0]].tl
        elif o.dtypes:
            found["dtypes"] = list(o.dtypes)
        found |= {"sametype": o.same_type} if o.same_type else {}
        found |= {"sameshape": o.same_shape} if o.same_shape else {}
        found |= {"role": o.role} if o.role != "data" else {}
        found |= {"kind": o.kind} if o.kind != {"data": "data", "param": "weight"}[o.role] else {}
        return found | {k: True for k, flag in (("variable_length", o.variadic), ("by_name", o.by_name)) if flag}

    def result(self, r: Result) -> dict[str, Any]:
        found: dict[str, Any] = {"arg_name": r.name, "mtype": self.memory}
        if self.overrides("infer") or any(r.dims or r.dtype for r in self.schema.results):
            found["dims"] = f"infer({self.optype})"
        else:
            first = self.schema.operands[0].name
            found |= {"ndim": f"{first}->ndim", "dims": f"{first}->dims", "dtype": f"{first}->dtype"}
        if r.owner is not None:
            found |= {"owner": r.owner, "overwrites": r.overwrites}
        return found | {k: True for k, flag in (("static", r.static), ("variable_length", r.variadic)) if flag}

    def privates(self) -> list[dict[str, str]]:
        """The names of what `derived` computes, found on a test case; the code says the values."""
        op, _ = operation(self.cls, self.cls.samples()[0])
        found = op.derived_values()
        return [{"type": _c_type(v), "name": k, "value": f"derived({self.optype})"} for k, v in found.items()]

    def sample(self) -> dict[str, Any] | None:
        """The first test case."""
        cases = self.cls.samples()
        if not cases:
            return None
        case = self.schema.resolve(cases[0])
        tensors = {k: _spec(v) if isinstance(v, TensorSpec) else [_spec(s) for s in v] for k, v in case.tensors.items()}
        return tensors | {k: _number(v) for k, v in case.params.items()}


def _param(p: Param) -> dict[str, Any]:
    found: dict[str, Any] = {"arg_name": p.name, "ptype": p.ptype}
    if p.kind.startswith("number"):
        found["realtype"] = p.realtype
    conversion = next((name for name, names in CONVERSIONS.items() if p.choices == names), None)
    if conversion is not None:
        found |= {"realtype": "int", "from_func": conversion}
    elif p.choices:
        found["choices"] = list(p.choices)
    found |= {"len": p.length} if p.length is not None else {}
    found |= dict(p.bounds)
    if p.default is not ...:
        found["default"] = _number(p.default)
    if p.in_type is not None:
        found["from_result"] = "dims" if p.kind == "numbers" else "dtype"
    return found


def _number(value: Any) -> Any:
    """A value of a parameter; a number that text cannot say as one is a string."""
    if isinstance(value, tuple | list):
        return [_number(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _spec(spec: TensorSpec) -> str:
    return "".join(f"{d}x" for d in spec.dims) + spec.dtype.name


def _c_type(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{_c_type(value[0]) if value else 'int'} *"
    return "char *" if isinstance(value, str) else "double" if isinstance(value, float) else "int"


# -- `.op` text ------------------------------------------------------------------------------------------------------


def _value(value: Any, depth: int) -> str:
    """A value in the spelling of `.op` files: bare keys, raw strings over several lines."""
    if isinstance(value, Mapping):
        return _lines("{}", [f"{_key(k)}: {_value(v, depth + 1)}" for k, v in value.items()], depth)
    if isinstance(value, list | tuple):
        return _lines("[]", [_value(v, depth + 1) for v in value], depth)
    if isinstance(value, str) and "\n" in value and "`" not in value:
        return f"`{value}`"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if _NAME.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _lines(brackets: str, parts: list[str], depth: int) -> str:
    """Members on one line where that is short, else one to a line."""
    opening, closing = brackets
    short = ", ".join(parts)
    if not parts:
        return brackets
    if depth and len(short) + 2 * depth < 100 and "\n" not in short:
        return f"{opening} {short} {closing}" if opening == "{" else f"[{short}]"
    pad = "  " * (depth + 1)
    return f"{opening}\n" + ",\n".join(pad + p for p in parts) + f"\n{'  ' * depth}{closing}"
