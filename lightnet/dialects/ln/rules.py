"""The rewrites that an op states itself: a rule is a function from an op to what equals it, under a comment with the
equation.

    # reshape(reshape(x)) = reshape(x)
    @rule("reshape")
    def reshape_chain(op):
        inner = producer(op.src, Reshape)
        return None if inner is None else Reshape.make([inner.src], {"dims": op.dims})

A rule returns None (no match), a new op that takes the old one's place (or a sequence of ops, of which the last does),
or a value (a sequence of values for several results) that is equal bit for bit, whatever the data: rounding may not
change, NaN stays NaN, -0 stays -0. A rule never makes an op dearer, and never undoes another rule. Rules stand in
`rewrites` of their op's class; `simplify` applies them. Imports xDSL and `ir`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xdsl.ir import Operation, SSAValue, Use
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.traits import IsTerminator

from lightnet.ir.op import tensor_name, tensor_names
from lightnet.ir.registry import check_names
from lightnet.ir.rewriting import keep_names

OpT = TypeVar("OpT", bound=Operation)
Replacement = Operation | Sequence[Operation] | SSAValue | Sequence[SSAValue] | None


def rule(*optypes: str) -> Callable[[Callable[[Any], Replacement]], type[RewritePattern]]:
    """Decorator: make a rewrite pattern, with the function's name, for the ops of these optypes."""
    check_names("@rule", optypes, "an op")
    names = frozenset(f"ln.{optype}" for optype in optypes)

    def decorate(function: Callable[[Any], Replacement]) -> type[RewritePattern]:
        def match_and_rewrite(self: RewritePattern, op: Operation, rewriter: PatternRewriter) -> None:
            if op.name not in names:
                return
            new = function(op)
            if isinstance(new, Operation):
                rewriter.replace(op, new)
            elif isinstance(new, SSAValue):
                replace_by_values(op, [new], rewriter)
            elif new is not None:
                ops, values = [o for o in new if isinstance(o, Operation)], [v for v in new if isinstance(v, SSAValue)]
                assert not ops or not values, "a rule returns ops or values"
                if ops:
                    rewriter.replace(op, ops)
                else:
                    replace_by_values(op, values, rewriter)

        namespace = {
            "match_and_rewrite": match_and_rewrite,
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "apply": staticmethod(function),
            "roots": tuple(sorted(names)),
        }
        return type(function.__name__, (RewritePattern,), namespace)

    return decorate


def producer(value: SSAValue, cls: type[OpT]) -> OpT | None:
    """The op that makes `value`, if it is a `cls`."""
    return value.owner if isinstance(value.owner, cls) else None


def is_yielded(use: Use) -> bool:
    """Return whether a use is by the terminator of the block: the value leaves it, under its name."""
    return use.operation.has_trait(IsTerminator)


def replace_by_values(op: Operation, values: Sequence[SSAValue], rewriter: PatternRewriter) -> None:
    """Let equal `values` take the place of the results of `op`, without a change to any output's name.

    A named result that leaves its block is an output (or a static tensor) that people ask for by name. Where the value
    has another name, a `forward` of it, which costs nothing once planned, keeps the result's name; a `forward` that is
    there for this reason already stays.
    """
    from lightnet.dialects.ln.move import Forward

    renamed = [_needs_name(r, n, v) for r, n, v in zip(op.results, tensor_names(op), values)]
    if isinstance(op, Forward) and renamed[0] and all(map(is_yielded, op.dst.uses)):
        return
    final: list[SSAValue] = []
    for result, value, rename in zip(op.results, values, renamed):
        if rename:
            rewriter.replace_uses_with_if(result, value, lambda use: not is_yielded(use))
            forward = Forward.make([value])
            rewriter.insert(forward)
            value = forward.dst
        final.append(value)
    keep_names(op, final)
    rewriter.replace(op, [], final)


def _needs_name(result: SSAValue, name: str | None, value: SSAValue) -> bool:
    if not any(map(is_yielded, result.uses)):
        return False
    if not isinstance(value.owner, Operation):
        return True  # a kernel yields what one of its ops makes
    return name is not None and (tensor_name(value) not in (None, name) or any(map(is_yielded, value.uses)))
