"""The definitions and test cases of descriptions, checked as far as that needs no shapes. Imports `ir` and `fields`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lightnet.diagnostics import near, near_or_all
from lightnet.ir.expr import Attr, Call, Index, Name, Pack, walk
from lightnet.ir.schema import Case, Operand, Param
from lightnet.ir.statements import Assignment, Definition
from lightnet.ir.statements import parse as parse_definition
from lightnet.ir.types import MAX_RANK, TensorSpec
from lightnet.ir.values import FUNCTION_NAMES
from lightnet.runtime.dtypes import BY_NAME
from lightnet_descriptions import ccode, fields
from lightnet_descriptions.enumerators import ENUMERATORS
from lightnet_descriptions.parts import described_numbers
from lightnet_descriptions.reader import DescribedValue

INSTEAD = "`run` is index notation, `dst[i...] = src[i...] * 2`, or a kernel in MLIR"
_SPEC = re.compile(rf"((?:\d{{1,12}}x){{0,{MAX_RANK}}})(\w+)", re.ASCII)


class DefinitionScope(NamedTuple):
    """The names that a definition may use. One that may be repeated (`variadic`) is ``src1``, ``src2`` and so on
    there."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    constants: tuple[str, ...]
    variadic: str

    def is_tensor(self, name: str) -> bool:
        """Return whether `name` is an operand, or a result."""
        number = name[len(self.variadic) :] if self.variadic and name.startswith(self.variadic) else ""
        return number.isdigit() if number else name in (*self.operands, *self.results)


def parse_described(text: str) -> Definition:
    return parse_definition(ccode.plain_privates(text), "<run>")


def check_definition(items: Sequence[DescribedValue], scope: DefinitionScope) -> None:
    """Every name of the definition that `items` hold one after another means something, and every result is written."""
    statements = [
        (s, item) for item in items for s in ccode.in_item(item, parse_described, INSTEAD, definition=True).statements
    ]
    targets = {t.name for s, _ in statements for t in s.targets}
    for s, item in statements:
        for t in s.targets:
            if t.name in scope.operands or t.name in scope.constants:
                kind = "an input" if t.name in scope.operands else "a constant"
                raise item.error_at(t.pos, f"'{t.name}' is {kind}, and is assigned to")
        _check_reads(s, item, scope, targets)
    if missing := [r for r in scope.results if r not in targets and r != scope.variadic]:
        raise items[-1].error(f"the definition never writes the output '{missing[0]}'")


def _check_reads(s: Assignment, item: DescribedValue, scope: DefinitionScope, locals_: set[str]) -> None:
    tensors, constants = {*scope.operands, *scope.results, *locals_}, set(scope.constants)
    packs = {n.name for e in _parts(s) if isinstance(e, Pack) for n in walk(e.pattern) if isinstance(n, Name)}
    for e in _parts(s):
        if isinstance(e, Call) and e.fn not in FUNCTION_NAMES:
            hint = near(e.fn, FUNCTION_NAMES) or "; it is none of index notation"
            raise item.error_at(e.pos, f"unknown function '{e.fn}'{hint}")
        if isinstance(e, Attr) and e.base.name not in tensors and not scope.is_tensor(e.base.name):
            raise item.error_at(e.base.pos, _unknown(e.base.name, tensors))
        if isinstance(e, Index) and isinstance(e.base, Name):
            if e.base.name not in tensors | constants | packs and not scope.is_tensor(e.base.name):
                raise item.error_at(e.base.pos, _unknown(e.base.name, tensors | constants))


def _parts(s: Assignment) -> list[Any]:
    trees = [sub for t in s.targets for sub in t.subs] + [s.value] + [e for _, e in s.ranges]
    return [e for tree in trees for e in walk(tree)]


def _unknown(name: str, known: set[str]) -> str:
    return f"unknown tensor '{name}'{near_or_all(name, sorted(known))}"


def enumerators(text: str, scope: DefinitionScope) -> list[str]:
    """The enumerators of C that a definition names."""
    names = {e.name for s in parse_described(text).statements for e in _parts(s) if isinstance(e, Name)}
    return sorted(n for n in names if n in ENUMERATORS and n not in scope.constants)


def described_sample(
    item: DescribedValue, known: Mapping[str, str], operands: Mapping[str, Operand], params: Mapping[str, Param]
) -> Case:
    """A test case: under the name of an input its type, ``"1x3x8xf32"`` or the dims of a tensor of f32 (of one that may
    be repeated, an array of these); under the name of a param its value."""
    required = [*operands, *(n for n, p in params.items() if p.default is ... and p.in_type is None)]
    members = fields.members(item, "a sample", known, required)
    values: dict[str, Any] = {}
    for name, value in members.items():
        if name not in operands:
            plain = value.plain()
            plain = described_numbers(plain) if params[name].kind.startswith("number") else plain
            if isinstance(plain, dict):
                raise value.error(f"the value of param '{name}' is an object")
            values[name] = tuple(plain) if isinstance(plain, list) else plain
        elif operands[name].variadic:
            values[name] = [spec(i) for i in fields.elements(value, f"'{name}'")]
        else:
            values[name] = spec(value)
    return Case({"": TensorSpec((), BY_NAME["f32"])}, values)


def spec(item: DescribedValue) -> tuple[tuple[int, ...], str]:
    """The dims and the dtype of a tensor of a sample."""
    value = item.value
    if isinstance(value, list):
        dims: Sequence[Any] = [i.value for i in value]
        if len(dims) > MAX_RANK or not all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in dims):
            raise item.error(f"the dims of a tensor are at most {MAX_RANK} integers that are not negative")
        return tuple(dims), "f32"
    m = _SPEC.fullmatch(str(value)) if isinstance(value, str) else None
    if m is None or m[2] not in BY_NAME:
        raise item.error('the type of a tensor is written "1x3x8xf32", or as an array of its dims')
    return tuple(map(int, m[1].split("x")[:-1])), m[2]
