"""The tables that decorators fill: functions by the names of what they are for (ops of a format, optypes).

Ours stand in families, modules that are imported when somebody asks for a function; what a plugin's file adds is taken
back with the file (`registry.checkpoint`). Imports the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Any, TypeVar

from lightnet.diagnostics import LightNetError
from lightnet.ir import registry

F = TypeVar("F", bound=Callable[..., Any])


class FunctionTable(dict[Any, Any]):
    """Rows by name: functions, or what holds one. `what` is how errors call a row, `fill` imports the families of
    ours."""

    def __init__(self, what: str, fill: Callable[[], object]):
        super().__init__()
        self.what, self.fill = what, fill
        self._functions: dict[Hashable, Callable[..., Any]] = {}
        #: The names that plugins added.
        self.added: set[Hashable] = set()
        registry.FUNCTION_TABLES.append(self)

    def decorator(self, name: str, names: tuple[str, ...], *, key: Callable[[str], Hashable] = str,
                  row: Callable[[F], Any] = lambda function: function) -> Callable[[F], F]:  # fmt: skip
        """The decorator `name`, of functions for what `names` says; `key` makes a row's name of one of these, `row` the
        row of the function. Raises LightNetError for names that are none, at once."""
        registry.check_names(name, names, "an op")

        def register(function: F) -> F:
            for given in names:
                self.add(key(given), function, row(function), given)
            return function

        return register

    def add(self, key: Hashable, function: Callable[..., Any], row: Any, name: str) -> None:
        """Add a row for `name`. Raises LightNetError where there is another function for it, of ours too."""
        if plugged := registry.source() is not None and not _is_ours(function):
            self.fill()
        known = self._functions.get(key)
        if known is not None and known is not function and (plugged or _place(known) != _place(function)):
            both = f"{_place(known)} and {_place(function)}"
            raise LightNetError(f"{self.what} '{name}' is defined twice: by {both}")
        self._functions[key], self[key] = function, row
        if plugged:
            self.added.add(key)

    def keep(self, added: Set[Hashable]) -> None:
        """Remove what plugins added, but for `added`."""
        for key in self.added - added:
            del self._functions[key], self[key]
        self.added &= added


def _is_ours(function: Callable[..., Any]) -> bool:
    """Return whether a function is of a family of ours, which may be imported while a plugin is loaded."""
    return registry.is_own(str(getattr(function, "__module__", "")))


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"
