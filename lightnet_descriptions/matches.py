"""The matches of a rule over several ops: its ops (`match`), and the tensors that join them (`edges`).

    op   := OPTYPE ("|" OPTYPE)* VAR | "*" VAR
    edge := VAR ".outs[" (ARG | "*") "]" "=>" VAR ".ins[" (ARG | "*") "]"

An edge leads to an op that stands further down in `match`, and every op leads to the last one, so that the last one
finds all. Imports the modules beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.ir.op import LnOp
from lightnet_descriptions.accessors import AccessorParser
from lightnet_descriptions.details import class_of, new_variable
from lightnet_descriptions.patterns import PatternEdge
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.scope import RuleScope, TensorRef, Var

#: A rule matches at most so many ops, along so many edges.
MAX_MATCH, MAX_EDGES = 16, 64


def variables(entries: Sequence[DescribedValue], scope: RuleScope, around: DescribedValue) -> list[Var]:
    """The variables of `match`, in order."""
    if not 1 <= len(entries) <= MAX_MATCH:
        raise around.error(f"'match' names 1 to {MAX_MATCH} ops, this has {len(entries)}")
    found: dict[str, Var] = {}
    for item in entries:
        words = item.value.split() if isinstance(item.value, str) else []
        if len(words) != 2:
            raise item.error("expected 'OPTYPE VAR'")
        var = new_variable(words[1], item, found)
        found[var] = Var(var, () if words[0] == "*" else _classes(words[0], item, scope))
    return list(found.values())


def _classes(text: str, item: DescribedValue, scope: RuleScope) -> tuple[type[LnOp], ...]:
    return tuple(class_of(optype, item, scope)[0] for optype in text.split("|"))


def edges(entries: Sequence[DescribedValue], scope: RuleScope, around: DescribedValue) -> list[PatternEdge]:
    """The edges, each from an earlier op to a later one; together they lead from every op to the last."""
    order = list(scope.variables)
    if len(entries) > MAX_EDGES:
        raise entries[MAX_EDGES].error(f"more than {MAX_EDGES} edges in one rule")
    found = [_edge(item, scope, order) for item in entries]
    for var in order[:-1]:
        if not any(e.source == var for e in found):
            raise around.error(f"no edge leads on from '{var}': each op leads to one behind it in match")
    return found


def _edge(item: DescribedValue, scope: RuleScope, order: Sequence[str]) -> PatternEdge:
    line = AccessorParser(item, scope)
    source, out = _end(line, "outs")
    line.expect("=>")
    reader, operand = _end(line, "ins")
    line.finish()
    if order.index(source) >= order.index(reader):
        raise item.error(f"'{source}' stands behind '{reader}' in match, so that it cannot make what that reads")
    return PatternEdge(source, out, reader, operand)


def _end(line: AccessorParser, section: str) -> tuple[str, str | int | None]:
    start = line.variable()
    line.expect(".")
    if (word := line.name(section)).text != section:
        line.error(f"an edge is A.outs[x] => B.ins[y], got '{word.text}'", word.pos)
    if line.token.text == "[" and line.ahead(1).text == "*":
        line.next(), line.next()
        line.expect("]")
        return start.text, None
    return start.text, line.argument(line.scope.variables[start.text], section)


def linked(found: Sequence[PatternEdge]) -> dict[tuple[str, str | int], TensorRef]:
    """The operands of matched ops that matched ops make, by variable and argument."""
    return {
        (e.reader, e.operand): TensorRef(e.source, "outs", "*" if e.out is None else e.out)
        for e in found
        if e.operand is not None
    }
