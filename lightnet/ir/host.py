"""The host part of a network in its module: the attribute ``ln.host`` of the module, which is `HostProgram.to_json`'s
text.

So it stands in `.mlir`, and goes where the module goes. What writes a network in another form refuses it. Imports the
host part only of a module that has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp, StringAttr

from lightnet.diagnostics import LightNetError

if TYPE_CHECKING:
    from lightnet.runtime.host.program import HostProgram

ATTRIBUTE = "ln.host"


def set_host(module: ModuleOp, host: HostProgram) -> None:
    """Make `host` the host part of a module."""
    module.attributes[ATTRIBUTE] = StringAttr(host.to_json())


def host_of(module: ModuleOp) -> HostProgram | None:
    """The host part of a module, or None. Raises LightNetError where it is malformed."""
    found = module.attributes.get(ATTRIBUTE)
    if found is None:
        return None
    from lightnet.runtime.host.program import HostProgram

    if not isinstance(found, StringAttr):
        raise LightNetError(f"{ATTRIBUTE} is not a string", label="host.file")
    return HostProgram.from_json(found.data)


def without_host(module: ModuleOp) -> ModuleOp:
    """`module` itself, its host part taken off."""
    module.attributes.pop(ATTRIBUTE, None)
    return module


def refuse_host(module: ModuleOp, form: str) -> None:
    """Raise LightNetError where a network has a host part, which `form` has no place for."""
    if (host := host_of(module)) is not None:
        raise LightNetError(
            f"the network has a host part for text ({host}), which {form} cannot hold: `.mlir` and `.lnx` can",
            label="host.form",
        )
