"""The body of a kernel as a graph of its own: what a target looks at to decide whether one of its generators takes it.

A `Body` may be the union of two kernels that are not merged yet, so that a refusal costs nothing. Imports xDSL and
`ir`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.op import OP_NAME, SUFFIX, LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.rewriting import keep_names
from lightnet.ir.types import ParamAttr

_T = TypeVar("_T")


@dataclass(frozen=True)
class Body:
    """Ops in order, and the values that leave. `value` looks through block arguments, so that an operand is either the
    result of another op of the body or a value from outside of all its kernels."""

    ops: tuple[LnOp, ...]
    yielded: tuple[SSAValue, ...]
    outside: dict[SSAValue, SSAValue] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: KernelOp) -> Body:
        """The body of one kernel."""
        return cls(tuple(kernel.ops), tuple(kernel.terminator.operands), kernel.outside)

    @classmethod
    def union(cls, producer: Body, results: Sequence[SSAValue], consumer: Body) -> Body:
        """Both bodies as one, where `results` of the producing kernel are what the consumer alone reads them as."""
        inner = dict(zip(results, producer.yielded))
        joined = {arg: inner.get(value, value) for arg, value in consumer.outside.items()}
        anchor, *rest = consumer.ops
        if all(map(widens, producer.ops)) and not {*map(consumer.value, anchor.operands)}.intersection(results):
            ops = (anchor, *producer.ops, *rest)  # an epilogue may read short floats, behind its anchor
        else:
            ops = (*producer.ops, *consumer.ops)
        return cls(ops, consumer.yielded, {**producer.outside, **joined})

    @property
    def inputs(self) -> list[SSAValue]:
        """The values from outside that its ops read, or that it yields, each once."""
        values = [self.value(v) for op in self.ops for v in op.operands] + [self.value(v) for v in self.yielded]
        made = {r for op in self.ops for r in op.results}
        return [v for v in dict.fromkeys(values) if v not in made]

    def copied(self) -> tuple[list[LnOp], list[SSAValue]]:
        """Its ops as copies that read each other, and what is yielded of them: a body may be one of kernels that are
        not merged yet. Who takes the copies for a look erases them, in reverse order."""
        known: dict[SSAValue, SSAValue] = {}
        copies: list[LnOp] = []
        for op in self.ops:
            copy = type(op).create(
                operands=[known.get(v, v) for v in map(self.value, op.operands)], result_types=op.result_types,
                properties=dict(op.properties), attributes=dict(op.attributes), location=op.location,
            )  # fmt: skip
            known.update(zip(op.results, copy.results))
            copies.append(copy)
        return copies, [known.get(v, v) for v in map(self.value, self.yielded)]

    def value(self, operand: SSAValue) -> SSAValue:
        """The value behind an operand of one of the ops."""
        return self.outside.get(operand, operand)


def epilogue_of(
    ops: Sequence[LnOp],
    takes: Callable[[LnOp], bool | Refusal],
    reads: Callable[[LnOp], Iterable[SSAValue]] = lambda op: op.operands,
) -> set[SSAValue] | Refusal:
    """The values that are computed by an anchor, the first of `ops`, and by the others, where these are its epilogue:
    each is one that is taken, and reads (`reads`) something computed before it. An op that does not depend on the
    anchor stays outside, as its own operands would live longer than its result, which a short one (`widens`) may.
    """
    anchor, *rest = ops
    inside: set[SSAValue] = set(anchor.results)
    for op in rest:
        if not (taken := takes(op)):
            return Refusal("{} is no epilogue: {}", op.optype, taken)
        if inside.isdisjoint(reads(op)) and not widens(op):
            return Refusal("{} does not depend on {}", op.optype, anchor.optype)
        inside.update(op.results)
    return inside


def widens(op: LnOp) -> bool:
    """Return whether an op reads short floats as f32: what it reads takes less memory than its result."""
    return op.optype == "cast" and op.operand_specs[0].dtype.is_short and op.result_specs[0].dtype.size > 2


def build_body(body: Body, cls: type[KernelOp]) -> KernelOp:
    """A kernel, not inserted yet, with this body: the ops move into it and keep names and locations. A value from
    outside is one operand, however many ops read it. It has no choices: those of the parts were made for the parts."""
    inputs = body.inputs
    block = Block(arg_types=[v.type for v in inputs])
    args: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args))
    for value, arg in args.items():
        arg.name_hint = value.name_hint
    operands = [[args.get(v, v) for v in map(body.value, op.operands)] for op in body.ops]
    yielded = [args.get(v, v) for v in map(body.value, body.yielded)]
    for op, values in zip(body.ops, operands):
        if op.parent is not None:  # a copy stands nowhere
            op.detach()
        op.operands = values
        block.add_op(op)
    return cls.around(block, inputs, yielded)


def replace_kernels(parts: Sequence[KernelOp], kernel: KernelOp) -> None:
    """Put a kernel in the place of the last of several, whose results it has; it gets their location, and the last
    one's names."""
    last = parts[-1]
    name_after(parts, kernel)
    assert last.parent is not None
    last.parent.insert_op_before(kernel, last)
    for old, new in zip(last.results, kernel.results):
        old.replace_all_uses_with(new)
    for part in reversed(parts):
        part.detach()
        part.erase()


def name_after(parts: Sequence[KernelOp], kernel: KernelOp) -> None:
    """Give a kernel that several become their location, and the names of the last one, whose results it has."""
    last = parts[-1]
    set_loc(kernel, fused(parts))
    keep_names(last, kernel.results)
    if OP_NAME in last.attributes:
        kernel.attributes[OP_NAME] = last.attributes[OP_NAME]


def choice(kernel: Operation, name: str) -> str | None:
    """A choice of a kernel that is a string, however it was written."""
    attr = kernel.attributes.get(name)
    value = attr.data if isinstance(attr, StringAttr | ParamAttr) else None
    return value if isinstance(value, str) else None


def structure(ops: Sequence[Operation], values: dict[SSAValue, object]) -> tuple[object, ...]:
    """The meaning of ops as a hashable key: equal keys, equal results. `values` gives keys to values from outside, and
    is extended by the results; names, locations and places do not count."""
    key: list[object] = []
    for op in ops:
        inner = tuple(_region_key(block) for region in op.regions for block in region.blocks)
        key.append(
            (
                op.name,
                tuple(values.get(v, v) for v in op.operands),
                tuple(op.result_types),
                tuple(sorted(op.properties.items())),
                attribute_key(op),
                inner,
            )
        )
        values.update({r: (len(key), i) for i, r in enumerate(op.results)})
    return tuple(key)


def _region_key(block: Block) -> object:
    return structure(list(block.ops), {a: ("arg", i) for i, a in enumerate(block.args)})


def attribute_key(op: Operation) -> tuple[tuple[str, Attribute], ...]:
    """The attributes that tell equal ops apart: all but names and places."""
    return tuple(sorted((k, v) for k, v in op.attributes.items() if k not in SUFFIX))


class OfEqualKernels(Generic[_T]):
    """The answers about kernels, found once for equal ones: those of the same body, types and attributes, names and
    places left out. Networks repeat their blocks, and what a generator costs takes longer to find out than whether
    kernels are equal."""

    #: Kernels that are remembered at a time.
    MOST = 1 << 12

    def __init__(self) -> None:
        self._found: dict[Hashable, _T] = {}

    def get(self, kernel: KernelOp, beside: Hashable, make: Callable[[], _T]) -> _T:
        """The result of `make` for a kernel, where all that it depends on beside the kernel itself is `beside`."""
        key = kernel_identity(kernel, kernel.operand_types, kernel.attributes), beside
        try:
            return self._found[key]
        except KeyError:
            return self.keep(key, make())

    def find(self, key: Hashable) -> _T | None:
        """The value that was kept under a key."""
        return self._found.get(key)

    def keep(self, key: Hashable, value: _T) -> _T:
        """Keep `value` under a key of one's own, made of `kernel_identity`."""
        if len(self._found) >= self.MOST:
            self._found.clear()
        self._found[key] = value
        return value


def kernel_identity(kernel: KernelOp, types: Sequence[Attribute], attributes: Mapping[str, Attribute]) -> Hashable:
    """The key that tells kernels apart that would be built differently: bodies, types of operands, and choices; these
    two may be others than it has.
    """
    ops = [*kernel.body.ops]
    inside = structure(ops, {a: ("arg", i) for i, a in enumerate(kernel.body.args)})
    kinds = kernel.name, *map(type, ops)  # a plugin's op may have the name of one that went with another plugin
    return kinds, inside, tuple(types), tuple(sorted((k, v) for k, v in attributes.items() if k not in SUFFIX))
