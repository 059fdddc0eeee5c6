"""The calls on which a network is executed whose dims calls decide: values of its symbols, and level 4 for one.

Values are those at which a wrong bound, tail or grid shows: the lowest, odd ones that differ from symbol to symbol, a
multiple of a vector, one beside it, the highest as far as that is not too large to be executed. Imports xDSL, `ir` and
the dialect of launches.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, FixedBitwidthType, IndexType, IntegerAttr, MemRefType, ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.dialects.launch import SYMBOLS, LaunchOp, copies_piece, kernel_symbols, kernels
from lightnet.ir.instances import instance_of
from lightnet.ir.layout import byte_size
from lightnet.ir.memory import workspace_size
from lightnet.ir.module import main_of
from lightnet.ir.names import WORKSPACE
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.ir.views import place_of
from lightnet.runtime.dims import Size, Symbol, at

#: Elements of all tensors together of the largest call that is executed, unless the smallest one has more.
MAX_ELEMENTS = 1 << 22
#: Numbers of which each symbol gets another one: primes, so that sizes of one dim are none of another.
ODD = (3, 5, 7, 11, 13)
#: A multiple of every vector, and what is beside it.
VECTOR = 16

Values = Mapping[str, int]


def drawn_calls(module: ModuleOp, symbols: Mapping[str, Symbol], seed: int = 0) -> list[Values]:
    """Values of all symbols of a module for some calls, each another one; one call without any values where there are
    no symbols."""
    names = sorted(symbols)
    elements: Size = sum(
        spec_of(r.type).len for op in main_of(module).walk() if isinstance(op, LnOp) for r in op.results
    )
    lowest = {name: symbols[name].low for name in names}
    most = max(MAX_ELEMENTS, at(elements, lowest))
    choose = random.Random(seed)
    odd = {name: ODD[k % len(ODD)] for k, name in enumerate(names)}
    wanted = [
        lowest,
        odd,
        *({**odd, name: symbols[name].low} for name in names if len(names) > 1),
        dict.fromkeys(names, VECTOR),
        dict.fromkeys(names, VECTOR + 1),
        {name: symbols[name].high for name in names},
        {name: int(symbols[name].high ** choose.random()) for name in names},
    ]
    found: list[Values] = []
    for values in wanted:
        call = _nearest(values, symbols)
        while at(elements, call) > most and call != lowest:
            call = _nearest({name: n // 2 for name, n in call.items()}, symbols)
        if call not in found:
            found.append(call)
    return found


def _nearest(values: Values, symbols: Mapping[str, Symbol]) -> Values:
    """The values, each as the symbol can have it."""
    return {name: min(max(n, s.low), s.high) // s.multiple * s.multiple for name, n in values.items()
            for s in (symbols[name],)}  # fmt: skip


def call_text(values: Values) -> str:
    """The values of symbols for people: ``batch = 3, length = 7``; empty where there are none."""
    return ", ".join(f"{name} = {n}" for name, n in sorted(values.items()))


_Lines = Mapping[Operation, list[LaunchOp]]


def lowered_call(
    before: ModuleOp, module: ModuleOp, lines: _Lines, values: Values
) -> tuple[ModuleOp, ModuleOp, dict[Operation, list[LaunchOp]]]:
    """A planned module and what it was lowered to as they are where symbols have these values (functions take no
    symbols, memrefs have lengths), and, for each op of the one, its launches in the other, as in `lines`."""
    planned, lowered = instance_of(before, values), instance_of(module, values)
    ops = dict(zip(main_of(before).body.block.ops, main_of(planned).body.block.ops, strict=True))
    made = dict(zip(main_of(module).body.block.ops, main_of(lowered).body.block.ops, strict=True))
    found = {ops[op]: [line for old in launches if isinstance(line := made[old], LaunchOp)]
             for op, launches in lines.items()}  # fmt: skip
    functions = kernels(lowered)
    for function in functions.values():
        for k, name in reversed(list(enumerate(kernel_symbols(function), 2))):
            argument, number = function.body.block.args[k], arith.ConstantOp(IntegerAttr(values[name], IndexType()))
            first = function.body.block.first_op
            assert first is not None
            function.body.block.insert_ops_before([number], first)
            argument.replace_all_uses_with(number.result)
            function.body.block.erase_arg(argument)
        function.attributes.pop(SYMBOLS, None)
    for op, launches in found.items():
        for line in launches:
            _set_lengths(op, line, functions[line.callee.string_value()].body.block.args[2:])
    for function in functions.values():
        function.update_function_type()
    return planned, lowered, found


def _set_lengths(op: Operation, line: LaunchOp, memrefs: Sequence[SSAValue]) -> None:
    """Give the memrefs of a launch of `op` the lengths that are open: that of what stands at their place; of a piece of
    a move, which is part of what it is moved to or from, the smaller one."""
    sizes = {place_of(v): byte_size(v.type) for v in (*op.results, *op.operands)}
    work = op.attributes.get(WORKSPACE)
    piece = min((sizes[p] for p in line.args if p in sizes), default=None) if copies_piece(line) else None
    for place, memref in zip(line.args, memrefs):
        type = memref.type
        if not isinstance(type, MemRefType) or DYNAMIC_INDEX not in type.get_shape():
            continue
        size = sizes.get(place) if piece is None else piece
        if size is None:  # in the workspace: what is left of it
            start = next((p.offset.data for p in getattr(work, "data", ()) if p.space == place.space), 0)
            size = start + workspace_size(op) - place.offset.data
        assert isinstance(type.element_type, FixedBitwidthType)
        _, *inner = type.get_shape()
        memref._type = MemRefType(type.element_type, [max(size, 0) // (type.element_type.size * prod(inner)), *inner])
