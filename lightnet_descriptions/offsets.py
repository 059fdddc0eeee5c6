"""The C of `calc_offset`: where in the memory of its owner a result begins. Imports `code` and `c`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightnet.dataclasses import dataclass
from lightnet.ir.constants import Env
from lightnet_descriptions import c, code
from lightnet_descriptions.c import arguments, library
from lightnet_descriptions.c.values import shown

if TYPE_CHECKING:
    from lightnet_descriptions.described import DescribedOp


@dataclass(eq=False)
class Offset(c.CSymbol):
    """The address of a tensor in the plan, and so many bytes more."""

    tensor: str
    bytes: int = 0

    def shown(self) -> str:
        return f"the offset of '{self.tensor}'"

    def binary(self, op: str, other: Any, *, reflected: bool) -> Any:
        if op == "+" or (op == "-" and not reflected):
            if isinstance(other, int):
                return Offset(self.tensor, self.bytes + (other if op == "+" else -other))
            if isinstance(other, Offset) and op == "-" and other.tensor == self.tensor:
                return self.bytes - other.bytes
        raise TypeError(f"{self.shown()} is known when memory is planned: bytes are added to it here")

    def cast(self, name: str) -> Any:
        return self


@c.function(2)
def _find(machine: c.CMachine, table: Any, name: Any) -> Any:
    """The entry of a tensor by its name."""
    if table is not code.TABLE:
        raise TypeError(f"expected op_arg->tensor_table, got {shown(table)}")
    found = machine.names.get(f"{arguments.string_argument(name)}_entry")
    if found is None:
        raise LookupError(f"there is no tensor '{arguments.string_argument(name)}'")
    return found


#: What a `calc_offset` may call.
FUNCTIONS = {**library.FUNCTIONS, **code.CHECKS, "ln_tensor_table_find": _find}


def distance(text: code.Code, cls: type[DescribedOp], env: Env, result: str, owner: str) -> int:
    """The bytes between the beginning of `owner` and that of `result`. Raises `LightNetError`."""
    pre = code.PreRun(cls, env)
    if cls.described.names.privates:  # which code may give a value
        pre.checks()
    names = pre.names
    owners = {r.name: r.owner for r in cls.schema.results}
    for name in env.tensors:
        entry = names[f"{name}_entry"]
        entry.fields["owner"] = owners.get(name)
        if name not in owners:
            entry.fields["offset"] = Offset(name)
    machine = c.CMachine(names | {"te": names[f"{result}_entry"]}, FUNCTIONS)
    code.declare_params(machine, cls.schema)
    found = text.run(machine)
    if not isinstance(found, Offset) or found.tensor != owner:
        what = (
            f"it should be the offset of '{owner}', which owns '{result}', and so many bytes more; it is {shown(found)}"
        )
        raise text.item.error_at(machine.pos, what)
    return found.bytes
