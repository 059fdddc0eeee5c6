"""Smaller numbers for `ln-reduce`: sizes of tensors and parameters of ops. A change is made where it is stated, and the
types of everything behind it follow by the shape rules of the ops (levels 1 to 3).

A change need not fit: the shape rules then raise `LightNetError`. Imports xDSL, `ir` and the `ln` dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Reshape
from lightnet.dialects.ln.source import Source
from lightnet.ir.constraints import check_op
from lightnet.ir.kernel import KernelOp, RegionOp
from lightnet.ir.op import LnOp
from lightnet.ir.params import ParamValue
from lightnet.ir.types import ParamAttr, spec_of, tensor_type
from lightnet_trust.edits import block_functions

Changes = Mapping[Operation, Mapping[str, ParamValue]]


class _Size(NamedTuple):
    """Make every dimension of `old` elements one of `new`; `everywhere` also where a parameter has that number (the
    length of a slice), or else in dimensions only. With a `source` it is one dimension of that op alone, number
    `axis`."""

    old: int
    new: int
    everywhere: bool
    source: Operation | None = None
    axis: int = 0


def sizes(module: ModuleOp) -> list[_Size]:
    """The ways to make dimensions smaller: all of one size, largest first; then single dimensions of sources."""
    sources = [op for op in module.walk() if isinstance(op, Source)]
    dims = sorted({n for op in sources for n in op.result_specs[0].dims if n > 1}, reverse=True)
    found = [_Size(n, to, everywhere) for n in dims for to in _smaller(n) for everywhere in (True, False)]
    for op in sources:
        for axis, n in enumerate(op.result_specs[0].dims):
            found += [_Size(n, to, False, op, axis) for to in _smaller(n)]
    return found


def _smaller(n: int) -> list[int]:
    """Sizes to try instead of n, smallest first."""
    return sorted({m for m in (1, n // 2, n - 1) if 0 < m < n})


def resize(module: ModuleOp, changes: Collection[_Size]) -> None:
    """Make dimensions smaller. Raises `LightNetError` where an op cannot take what comes."""
    for size in changes:
        edited: dict[Operation, dict[str, ParamValue]] = {}
        for op in module.walk():
            if isinstance(op, LnOp) and size.source in (None, op):
                edited[op] = _resized(op, size)
        retype(module, edited)


def _resized(op: LnOp, size: _Size) -> dict[str, ParamValue]:
    changed: dict[str, ParamValue] = {}
    values = op.param_values()
    for p in op.schema.params:
        value = values[p.name]
        counts = p.realtype == "int" and p.kind in ("number", "numbers") and (p.in_type is not None or size.everywhere)
        if not counts:
            continue
        if isinstance(value, tuple):
            places = [size.axis] if size.source is not None else range(len(value))
            new = tuple(size.new if i in places and v == size.old else v for i, v in enumerate(value))
            if new != value:
                changed[p.name] = new
        elif value == size.old and size.source is None:
            changed[p.name] = size.new
    return changed


class Setting(NamedTuple):
    """Give a parameter of an op another value."""

    op: LnOp
    param: str
    value: ParamValue


def defaults(module: ModuleOp) -> list[Setting]:
    """The parameters that could have their default instead."""
    found = []
    for op in _ops(module):
        values = op.param_values()
        for p in op.schema.params:
            if p.in_type is None and p.default is not ... and values[p.name] != p.default:
                found.append(Setting(op, p.name, p.default))
    return found


def simpler_values(module: ModuleOp) -> list[Setting]:
    """The numbers that could be 0, 1, or half as large."""
    found = []
    for op in _ops(module):
        values = op.param_values()
        for p in op.schema.params:
            value = values[p.name]
            if p.in_type is not None or p.kind not in ("number", "numbers") or value == p.default:
                continue
            if not isinstance(value, tuple):
                found += [Setting(op, p.name, v) for v in _simpler(value)]
                continue
            for i, element in enumerate(value):
                found += [Setting(op, p.name, (*value[:i], v, *value[i + 1 :])) for v in _simpler(element)]
    return found


def _simpler(value: object) -> list[int]:
    if not isinstance(value, int | float) or value != value or abs(value) > 1 << 53:
        return [0, 1]
    return [n for n in dict.fromkeys((0, 1, int(value / 2))) if abs(n) < abs(value)]


def set_params(module: ModuleOp, settings: Collection[Setting]) -> None:
    """Set parameters. Raises `LightNetError` where an op refuses, or another one what follows."""
    changes: dict[Operation, dict[str, ParamValue]] = {}
    for op, param, value in settings:
        changes.setdefault(op, {})[param] = value
    retype(module, changes)


def _ops(module: ModuleOp) -> list[LnOp]:
    return [op for op in module.walk() if isinstance(op, LnOp)]


# -- types follow ------------------------------------------------------------------------------------------------------


def retype(module: ModuleOp, changes: Changes) -> None:
    """Set parameters of ops (those that a result's type gives included), and give every value the type that follows."""
    for function in block_functions(module):
        _retype(function.body.block, changes)
        function.update_function_type()


def _retype(block: Block, changes: Changes) -> None:
    for op in block.ops:
        if isinstance(op, LnOp):
            _infer(op, changes.get(op, {}))
        elif isinstance(op, RegionOp):
            if isinstance(op, KernelOp):
                for arg, value in zip(op.body.args, op.operands):
                    arg._type = value.type
            _retype(op.body, changes)
            for result, value in zip(op.results, op.terminator.operands):
                result._type = value.type


def _infer(op: LnOp, changed: Mapping[str, ParamValue]) -> None:
    params = {**op.param_values(), **changed}
    if isinstance(op, Reshape):
        params["dims"] = _fitted(tuple(params["dims"]), spec_of(op.src.type).len)
    results = check_op(type(op), op.operand_specs, params, op.op_name)
    if len(results) != len(op.results):
        raise LightNetError(f"{op.name} would have {len(results)} results, and has {len(op.results)}")
    for name in changed:
        if op.schema.by_name[name].in_type is None:
            op.properties[name] = ParamAttr(params[name])
    for value, spec in zip(op.results, results):
        if not spec.len and spec_of(value.type).len:
            raise LightNetError(f"{op.name} would have no elements, and what has none does nothing")
        value._type = tensor_type(spec)


def _fitted(dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Dims of `count` elements: one of them changes, the last that can."""
    if prod(dims) == count:
        return dims
    for axis in reversed(range(len(dims))):
        others = prod(dims[:axis]) * prod(dims[axis + 1 :])
        if others and count % others == 0:
            return (*dims[:axis], count // others, *dims[axis + 1 :])
    return dims
