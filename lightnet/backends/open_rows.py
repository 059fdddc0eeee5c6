"""Bodies that compute each row of what is open from that row alone, and the static bodies of a few rows.

The open dims of a tensor come first (a batch, or a batch and a length); all that is behind them is a *row*. Where every
op of a body makes row i from row i of its operands, and from static ones, the body on any number of rows is the static
body of a few, on some rows after others (in *strips*): whatever is made for static shapes serves open ones, too.
Imports `ir`, binding and what generators are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.generator import Generator, Plan
from lightnet.backends.kernel_loops import bind_op
from lightnet.backends.launches import Argument
from lightnet.dataclasses import dataclass, replace
from lightnet.ir.body import Body
from lightnet.ir.bound import Apply, Const, Idx, Node, Read, Statement
from lightnet.ir.instances import changed_body, changed_kernel
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, ChannelsLast, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.runtime.dims import Dim, Size, Undecided, dim_max, dim_min, greatest


def leading(dims: Sequence[Size]) -> int:
    """The number of dims up to the last one that is open."""
    return max((k + 1 for k, d in enumerate(dims) if isinstance(d, Dim)), default=0)


#: The choice that says how many rows the strips of a kernel have.
STRIPS = "strips"


@dataclass(frozen=True)
class OpenRows:
    """The rows of a body: how many there are, and what each open size is in a body of `one` row and more: the number
    of rows, or 1."""

    count: Dim
    sizes: Mapping[Dim, bool]

    def dims(self, dims: tuple[Size, ...], rows: int) -> tuple[Size, ...]:
        """The dims of a tensor in a body of so many rows."""
        k = leading(dims)
        return (*(1,) * (k - 1), rows, *dims[k:]) if k else dims

    def size(self, size: Size, rows: int) -> Size:
        """A size in a parameter, in a body of so many rows. Raises `Undecided` for one that is not of rows."""
        if not isinstance(size, Dim):
            return size
        if size not in self.sizes:
            raise Undecided(size)
        return rows if self.sizes[size] else 1

    def kernel(self, kernel: KernelOp, rows: int, choices: Mapping[str, Any]) -> KernelOp:
        """A kernel on so many rows, with these choices; its operands are the arguments of a block of its own."""
        return changed_kernel(kernel, lambda d: self.dims(d, rows), lambda s: self.size(s, rows), choices)


def open_rows_of(ops: Sequence[LnOp]) -> OpenRows | None:
    """The rows of a body that is open; None where it is static, or its rows depend on each other."""
    values = dict.fromkeys(v for op in ops for v in (*op.operands, *op.results))
    count: Size | None = None
    sizes: dict[Dim, bool] = {}
    for value in values:
        dims, layout = spec_of(value.type).dims, layout_of(value.type)
        if not (k := leading(dims)):
            continue
        found = prod(dims[:k])
        if count is not None and count != found:
            return None
        if not layout.is_plain and not (isinstance(layout, Blocked | ChannelsLast) and k == 1):
            return None
        count = found
        for size, is_last in ((found, True), *((d, j == k - 1) for j, d in enumerate(dims[:k]))):
            if isinstance(size, Dim) and sizes.setdefault(size, is_last) != is_last:
                return None
    if not isinstance(count, Dim) or not all(map(is_by_rows, ops)):
        return None
    return OpenRows(count, sizes)


def is_by_rows(op: LnOp) -> bool:
    """Return whether an op makes each row of its results from that row of its operands, and from static ones."""
    if op.definition is None or op.has_builder:
        return False
    bound = bind_op(op)
    return all(_is_by_rows(s, bound.specs) for s in bound.statements)


def _is_by_rows(s: Statement, specs: Mapping[str, TensorSpec]) -> bool:
    """Return whether a statement does: all that is open is written and read by the same leading subscripts, which
    stand nowhere else."""
    dims = specs[s.tensor].dims
    if s.flat:  # a reshape: the same bytes
        value = s.value
        return s.op == "=" and isinstance(value, Read) and value.flat and value.subs == s.subs
    if any(isinstance(n, Dim) for _, n in s.reductions):
        return False
    k, extents = leading(dims), dict(s.loops)
    rows = s.subs[:k]
    whole = all(extents[r.name] == n if isinstance(r, Idx) and r.name in extents else n == 1 and isinstance(r, Const)
                for r, n in zip(rows, dims))  # fmt: skip
    names = {r.name for r in rows if isinstance(r, Idx)}
    if not whole or any(isinstance(n, Dim) for name, n in s.loops if name not in names):
        return False

    def stays(node: Node) -> bool:
        match node:
            case Idx(name=name):
                return name not in names
            case Apply(args=args):
                return all(map(stays, args))
            case Read(tensor=tensor, subs=subs, filler=filler, flat=flat):
                found = specs[tensor].dims
                j = leading(found)
                if j and (flat or subs[:j] != rows or found[:j] != dims[:k]):
                    return False
                return all(map(stays, subs[j:])) and (filler is None or stays(filler))
        return True

    return all(map(stays, s.subs[k:])) and stays(s.value)


# -- one row


@dataclass(frozen=True)
class OneRow:
    """A body of one row, and the values from outside of the open body that its own stand for."""

    ops: list[LnOp]
    yielded: list[SSAValue]
    outside: dict[SSAValue, SSAValue]


def one_row(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> OneRow | None:
    """The body of one row of an open body; None where it is static, or has no rows."""
    global _last
    last = _last  # another thread may have one of its own
    key = tuple(ops), tuple(yielded), [v.type for op in ops for v in (*op.operands, *op.results)]
    if last is None or last[0] != key:
        last = _last = key, _one_row(ops, yielded)
    return last[1]


#: The last answer of `one_row`: all generators ask for one body.
_last: tuple[object, OneRow | None] | None = None


def _one_row(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> OneRow | None:
    if (rows := open_rows_of(ops)) is None:
        return None
    outside = Body(tuple(ops), tuple(yielded)).inputs
    try:
        block, known = changed_body(ops, outside, lambda d: rows.dims(d, 1), lambda s: rows.size(s, 1))
    except Undecided:
        return None
    made = [op for op in block.ops if isinstance(op, LnOp)]
    return OneRow(made, [known[v] for v in yielded], dict(zip(block.args, outside)))


def forms_of_rows(generator: Generator[Any], ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: Any,
                  fits: Callable[[Form, OneRow], bool]) -> Sequence[Form]:  # fmt: skip
    """The forms in which a generator takes one row of an open body, those that fit, of the values of the whole."""
    if (row := one_row(ops, yielded)) is None:
        return Refusal("its rows depend on each other")
    forms, back = generator.forms(row.ops, row.yielded, machine), row.outside
    fitting = [form for form in forms if fits(form, row)]
    found = [replace(form, maps={back[v]: halo for v, halo in form.maps.items()},
                     weights=frozenset(back[v] for v in form.weights)) for form in fitting]  # fmt: skip
    return found or (Refusal("a row of it is part of a map, or begins between accesses") if forms else forms)


def known_rows(kernel: KernelOp) -> OpenRows:
    """The rows of an open kernel, which has some."""
    found = open_rows_of(kernel.ops)
    assert found is not None, "`takes` has seen them"
    return found


# -- strips of rows


@dataclass(frozen=True)
class Strip:
    """The strips of `rows` rows: `plan` is that of the static kernel."""

    rows: int
    plan: Plan


def cover_rows(count: Size, strips: Sequence[Strip], in_place: bool) -> list[tuple[Size, Size]]:
    """For strips of some rows, the most first: how many there are of `count` rows, and the row at which they begin.

    Where nothing is computed in place, a last strip may lie on rows that are done. So the strips of a size take what
    the larger ones leave, with one more where fewer rows are computed again than the least strip has; those take all
    the rest, and single rows are for calls of fewer."""
    found: list[tuple[Size, Size]] = []
    first: Size = 0
    larger: Size = 0  # 1 where a larger strip fits
    least = min((strip.rows for strip in strips if strip.rows > 1), default=1)
    for strip in strips:
        if in_place:
            number = (count - first) // strip.rows
        elif strip.rows == 1:
            first, number = 0, count * (1 - larger)
        else:
            larger = dim_min(count // strip.rows, 1)
            wanted = dim_max((count - first + least - 1) // strip.rows, 0)
            number = dim_min(wanted, larger * greatest(wanted))
        found.append((number, first))
        first = first + number * strip.rows
    return found


def moves(argument: Argument, kernel: KernelOp) -> bool:
    """Return whether an argument is of all rows."""
    values = {"operand": kernel.operands, "result": kernel.results}.get(argument.kind)
    return values is not None and leading(spec_of(values[argument.number].type).dims) > 0


def most_of(sizes: Sequence[Size]) -> Size:
    """The largest size in any call."""
    return reduce(dim_max, sizes)


def own_choices(kernel: KernelOp) -> dict[str, Attribute]:
    """The choices of a kernel that are the other generator's."""
    return {k: v for k, v in kernel.choices.items() if k != STRIPS}


def static_of(kernel: KernelOp, strip: Strip) -> KernelOp:
    """The static kernel of a strip of an open one, with the choices of both."""
    return known_rows(kernel).kernel(kernel, strip.rows, {**own_choices(kernel), **strip.plan.choices})


def completed_strips(kernel: KernelOp, strips: Sequence[Strip], inner: Generator) -> list[Strip]:
    """The strips of a kernel with their plans completed by their generator (`Generator.completed`)."""
    return [Strip(s.rows, inner.completed(static_of(kernel, s), s.plan)) for s in strips]
