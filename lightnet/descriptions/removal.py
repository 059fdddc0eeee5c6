"""``replace: []``: an op goes, and what reads its result reads a tensor that is there already.

Upstream's generated code forgets to say that it matched, so that nothing happens there. Here details may say which tensor takes
the place of a result (``self.outs[dst] = self.ins[src]``); without them it is the one data operand of an op with one result, and an
op without results simply goes. Imports the modules beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.descriptions.details import Replacement, replacement
from lightnet.descriptions.reader import Item
from lightnet.descriptions.scope import Scope, TensorRef
from lightnet.ir.op import LnOp


def removal(item: Item, details: Sequence[Item], scope: Scope, cls: type[LnOp]) -> Replacement:
    """What takes the place of the results of `self`, an op of class `cls`."""
    schema = cls.schema
    if details:
        made = replacement([], details, scope, {})
        missing = [r.name for r in schema.results if ("self", r.name) not in made.results]
        if missing:
            raise item.error(f"nothing takes the place of self.outs[{missing[0]}]")
        return made
    data = [o for o in schema.operands if o.role == "data"]
    if len(schema.results) != 1 or len(data) != 1 or data[0].variadic or schema.results[0].variadic:
        raise item.error(
            f"what takes the place of the results of {cls.optype}? say 'self.outs[ARG] = self.ins[ARG]' in details"
        )
    return Replacement((), {("self", schema.results[0].name): TensorRef("self", "ins", data[0].name)})
