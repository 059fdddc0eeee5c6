"""The plan as a netlist says it: the roles of its tensors, and its memory spaces. Imports the netlist and the IR."""

from __future__ import annotations

from collections.abc import Mapping

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import ConstantOp, Input, ParamOp
from lightnet.frontends.netlist import Netlist
from lightnet.ir.memory import ARENA, HOST_SPACE, MEMORY_TYPES
from lightnet.ir.op import LnOp


def ours(netlist: Netlist) -> dict:
    """The keys that only we write (`lightnet_export/netlist.py`)."""
    found = netlist.extra.get("lightnet")
    return found if isinstance(found, dict) else {}


def roles(netlist: Netlist) -> dict[str, type[LnOp]]:
    """Tensor name -> class of the `create` that makes it, where `bind` has decided."""
    return {name: cls for cls in (Input, ParamOp, ConstantOp) for name in role_names(netlist, cls.optype)}


def role_names(netlist: Netlist, role: str) -> set[str]:
    """The tensors that the file lists under a role."""
    known = ours(netlist).get("roles")
    names = known.get(role) if isinstance(known, dict) else None
    return {str(n) for n in names} if isinstance(names, list) else set()


def netlist_memory_types(netlist: Netlist) -> dict[str, str]:
    """Memory space -> memory type of a netlist that is planned by upstream's rules, which keeps everything of one
    memory type in one block; empty for any other. The arena is that of the type of the device, if there is one."""
    if netlist.mem_sizes is None or isinstance(ours(netlist).get("spaces"), dict):
        return {}
    sizes = dict(enumerate(netlist.mem_sizes))
    there = [name for name, mtype in MEMORY_TYPES.items() if name != "none" and sizes.get(mtype.index, 0)] or ["cpu"]
    if "dpu" in there:
        return {ARENA: there[0], **{mtype: mtype for mtype in there[1:]}}
    return {ARENA: there[-1], **({HOST_SPACE: "cpu"} if len(there) > 1 else {})}


def spaces(netlist: Netlist, types: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Memory spaces of a planned netlist: name -> (first byte in the file's numbering, size), by first byte; empty if
    unplanned. `types` are those of `netlist_memory_types`."""
    if netlist.mem_sizes is None:
        return {}
    if types:
        sizes = dict(enumerate(netlist.mem_sizes))
        return {space: (0, sizes.get(MEMORY_TYPES[mtype].index, 0)) for space, mtype in types.items()}
    written = ours(netlist)["spaces"]
    try:
        spaces = {str(k): (int(base), int(size)) for k, (base, size) in written.items()}
    except (TypeError, ValueError):
        raise LightNetError("'spaces' should map a memory space to [base, size]") from None
    if any(not k.isidentifier() or base < 0 or size < 0 for k, (base, size) in spaces.items()):
        raise LightNetError("'spaces' should map identifiers to a first byte and a size of at least 0")
    return dict(sorted(spaces.items(), key=lambda item: item[1]))
