"""Outputs as large as the data decides: which dims of what `func.return` returns are bounds, and which other outputs
say how many rows count.

``func.return {ln.counts = [[0, 1, 2]]} %y, %z, %n : …`` says that axis 1 of output 0 has as many elements as output 2,
an i64 of rank 0, says; its type has the bound. Who runs the network cuts each output to its true size and keeps the
counts for himself (`runtime.program.sized`); to passes they are outputs as others are. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i64
from xdsl.ir import Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.locations import loc_of
from lightnet.ir.types import spec_of
from lightnet.runtime.dtypes import BY_NAME

COUNTS = "ln.counts"

#: (output, axis, the output that is its count), by position.
Count = tuple[int, int, int]


def set_counts(last: Operation, counts: Iterable[Count]) -> None:
    """Say at a `func.return` which dims are counted; of no dim, nothing."""
    rows = [ArrayAttr([IntegerAttr(n, i64) for n in row]) for row in counts]
    last.attributes.pop(COUNTS, None)
    if rows:
        last.attributes[COUNTS] = ArrayAttr(rows)


def counts_of(last: Operation) -> list[Count]:
    """The counted dims of what a `func.return` returns. Raises LightNetError where the attribute says nothing
    sensible."""
    attribute = last.attributes.get(COUNTS)
    if attribute is None:
        return []
    found: list[Count] = []
    types = [v.type for v in last.operands]
    for row in attribute if isinstance(attribute, ArrayAttr) else (attribute,):
        numbers = [n.value.data for n in row if isinstance(n, IntegerAttr)] if isinstance(row, ArrayAttr) else []
        if len(numbers) != 3:
            raise _wrong(last, f"expected three integers (output, axis, count), got {row}")
        output, axis, count = numbers
        if not (0 <= output < len(types) and 0 <= count < len(types)):
            raise _wrong(last, f"{numbers} names an output that is not there: there are {len(types)}")
        if not 0 <= axis < spec_of(types[output]).ndim:
            raise _wrong(last, f"output {output} ({spec_of(types[output])}) has no axis {axis}")
        if spec_of(types[count]).dims or spec_of(types[count]).dtype != BY_NAME["i64"]:
            raise _wrong(
                last, f"output {count} is a count, which should be tensor<i64>, but is {spec_of(types[count])}"
            )
        found.append((output, axis, count))
    if len({row[:2] for row in found}) != len(found):
        raise _wrong(last, "an axis has two counts")
    return found


def set_outputs(last: Operation, values: Sequence[SSAValue]) -> None:
    """Return other values, the counts of those that stay with them."""
    rows = [(last.operands[i], axis, last.operands[j]) for i, axis, j in counts_of(last)]
    last.operands = values
    stay = [(y, axis, n) for y, axis, n in rows if y in values and n in values]
    set_counts(last, [(values.index(y), axis, values.index(n)) for y, axis, n in stay])


def _wrong(last: Operation, message: str) -> LightNetError:
    return LightNetError(f"'{COUNTS}' of func.return: {message}", loc_of(last), label="counts")
