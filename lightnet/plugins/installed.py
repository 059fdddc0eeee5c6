"""Plugins of installed packages: their entry points in the group `lightnet.plugins`.

    [project.entry-points."lightnet.plugins"]
    npu = "lightnet_npu.target"          # a module, as `--load` takes one, or "module:object" for one thing of it

They are looked for when a table of the registry lacks a name or is listed, and then stay for the process;
`import lightnet` imports none of them. The one that is called as what is asked for (a target `npu`) comes first, alone.
One that cannot be loaded is a warning, and an error where it is asked for by name. The environment variable
LIGHTNET_NO_PLUGINS leaves all of them out. Imports the standard library and the registry; `importlib.metadata` only
where some package has such entry points.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.ir import registry

GROUP = "lightnet.plugins"


class PluginWarning(UserWarning):
    """An installed plugin that cannot be loaded."""


class _Installed:
    """The entry points of this process, and what became of them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.waiting: dict[str, Any] | None = None
        self.failed: dict[str, LightNetError] = {}
        self.busy = False

    def load(self, name: str | None) -> None:
        if self.waiting is not None and not self.waiting and name not in self.failed:
            return
        with self.lock:
            if self.busy:  # a plugin that is being loaded asks the tables
                return
            self.busy = True
            try:
                self.load_waiting(name)
            finally:
                self.busy = False

    def load_waiting(self, name: str | None) -> None:
        if self.waiting is None:
            self.waiting = entry_points()
        for key in [name] if name in self.waiting else list(self.waiting):
            point = self.waiting.pop(key)
            try:
                add_rows(point)
            except LightNetError as e:
                self.failed[key] = e
                if key != name:
                    warnings.warn(e.message, PluginWarning, stacklevel=2)
        if name in self.failed:
            raise self.failed[name]


_INSTALLED = _Installed()


def load_entry_points(name: str | None = None) -> None:
    """Load every plugin that is not loaded yet; if there is one called `name`, that one alone.

    Raises LightNetError where that one cannot be loaded; for any other it warns (`PluginWarning`).
    """
    _INSTALLED.load(name)


def entry_points() -> dict[str, Any]:
    """The entry points of the group by name; two of one name are both refused, by the name of the second package."""
    if os.environ.get("LIGHTNET_NO_PLUGINS") or not _mentioned():
        return {}
    from importlib import metadata

    found: dict[str, Any] = {}
    for point in metadata.entry_points(group=GROUP):
        if point.name in found:
            text = f"plugin '{point.name}' is defined twice: by {_origin(found[point.name])} and by {_origin(point)}"
            warnings.warn(f"{text}, which is left out", PluginWarning, stacklevel=2)
            continue
        found[point.name] = point
    return found


def _mentioned() -> bool:
    """Return whether any package on `sys.path` names our group: `importlib.metadata` takes longer to import than to
    list passes.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")) and _names_us(os.path.join(folder, name, "entry_points.txt")):
                return True
    return False


def _names_us(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return GROUP.encode() in file.read(1 << 20)
    except OSError:
        return False


def _origin(point: Any) -> str:
    """A plugin as errors name it: ``package 1.0 (module:object)``."""
    dist = point.dist
    return f"package {dist.name} {dist.version} ({point.value})" if dist is not None else str(point.value)


def add_rows(point: Any) -> None:
    """Load one entry point and register what it holds, all or nothing. Raises LightNetError, which names the
    package."""
    from lightnet.plugins import registering

    restore = registry.checkpoint()
    before = registering.Before()
    try:
        with registry.adding(_origin(point)), redirect_stdout(sys.stderr):  # stdout is for what the tools write
            value = point.load()
            if isinstance(value, ModuleType):
                registering.register_module(value)
            else:
                registering.register_value(value, point.value)
            before.checked(None)
    except BaseException as e:
        restore()
        if not isinstance(e, Exception | SystemExit):
            raise
        what = e.message if isinstance(e, LightNetError) else f"{type(e).__name__}: {str(e)[:600]}"
        raise LightNetError(f"plugin '{point.name}' of {_origin(point)} cannot be loaded: {what}") from e
