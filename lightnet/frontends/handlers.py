"""The common part of the handlers of both graph front ends: how they are called, axes, refusals. Imports the graph
builder and diagnostics.

A handler is a function of a node and of one value for each of the node's inputs (None for one that is absent). Its
signature says how many inputs the op takes, and which may be absent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, NoReturn

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.graph import Graph

Handler = Callable[..., Any]

#: Kinds of refusals that an error lists, and nodes that it names of each.
MAX_LISTED, MAX_NAMED = 20, 5
#: More inputs than any op has.
_ANY = 1 << 20
#: What a handler raises on a node that it did not foresee.
_MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


class Unsupported(Exception):
    """A node that LightNet cannot import, and why; the importer lists all of them."""


class HandledNode:
    """One node of a graph, as its handler sees it: what does not depend on the format. `form` begins the labels of
    errors."""

    form: ClassVar[str]
    g: Graph

    def axis(self, value: int, ndim: int) -> int:
        """An axis counted from 0, from one that may count from the end."""
        if not -ndim <= value < ndim:
            self.fail(f"axis {value} is out of range for a tensor of rank {ndim}")
        return value % ndim

    def axes(self, values: Sequence[int], ndim: int) -> tuple[int, ...]:
        """Several axes counted from 0, each named once."""
        axes = tuple(self.axis(int(v), ndim) for v in values)
        if len(set(axes)) != len(axes):
            self.fail(f"axes {list(values)} name one axis of a tensor of rank {ndim} twice")
        return axes

    def unsupported(self, reason: str) -> NoReturn:
        """This node is valid, and LightNet does not import it."""
        raise Unsupported(reason)

    def fail(self, message: str, label: str = "node") -> NoReturn:
        """This node is not valid, by the constraint `label` (``onnx.node``)."""
        raise LightNetError(message, None, label=f"{self.form}.{label}")


def called(handler: Handler, node: HandledNode, inputs: Sequence[Any]) -> Any:
    """The result of `handler` on a node with these inputs; a wrong number of them is an error."""
    least, most, needed = arity(handler)
    given = list(inputs)
    while given and given[-1] is None and len(given) > least:
        given.pop()
    rest = [True] * (len(given) - len(needed))  # what a variadic input takes has to be there
    for i, (value, need) in enumerate(zip(given, (*needed, *rest))):
        if need and value is None:
            node.fail(f"needs its input {i}")
    if not least <= len(given) <= most:
        expected = str(least) if least == most else f"{least} to {most}" if most < _ANY else f"{least} or more"
        node.fail(f"needs {expected} inputs, but gets {sum(v is not None for v in inputs)}")
    try:
        return handler(node, *given)
    except _MALFORMED as error:  # still an error of its place, not a traceback
        message = f"cannot be imported: {type(error).__name__}: {error}"
        raise LightNetError(message, label=f"{node.form}.handler") from error


@cache
def arity(handler: Handler) -> tuple[int, int, tuple[bool, ...]]:
    """The number of inputs that a handler takes, at least and at most, and which must be there."""
    params = list(inspect.signature(handler).parameters.values())[1:]
    plain = [p for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # An input before one that must be there has no default, and says by its type that it may be absent.
    needed = tuple(p.default is p.empty and not str(p.annotation).endswith("None") for p in plain)
    least = max((k + 1 for k, need in enumerate(needed) if need), default=0)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in params)
    return max(least, int(variadic and not plain)), _ANY if variadic else len(plain), needed


def list_refused(error: LightNetError, refused: Iterable[tuple[str, str, str, SourceLoc | None]]) -> LightNetError:
    """`error` with a note for each kind of refusal; `refused` are op, name of the node, reason and place of each."""
    kinds: dict[tuple[str, str], list[tuple[str, SourceLoc | None]]] = {}
    for op, name, reason, loc in refused:
        kinds.setdefault((op, reason), []).append((name, loc))
    for (op, reason), nodes in list(kinds.items())[:MAX_LISTED]:
        names = ", ".join(name for name, _ in nodes[:MAX_NAMED])
        more = f" and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else ""
        error.notes.append((nodes[0][1], f"{op} ({names}{more}): {reason}"))
    if len(kinds) > MAX_LISTED:
        error.notes.append((None, f"and {len(kinds) - MAX_LISTED} more kinds"))
    return error
