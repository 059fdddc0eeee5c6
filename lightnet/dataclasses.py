"""`dataclass` as the standard library has it, quicker to declare.

The library writes each method of each class as source and has that compiled: a millisecond a frozen class, and a
process that compiles a network declares 160, a quarter of what it takes until then. Here methods are functions over the
fields' names; `__init__` alone is source, compiled when it is first asked for. Type checkers are told of the library's.

What others inherit from by the library's `dataclass(frozen=True)`, passes for one, is declared by that: it takes no
base that it did not freeze itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, eq=True, frozen=False, slots=False):
        """A class with the methods that its fields ask for; those that it defines itself stay."""
        if cls is None:
            return partial(dataclass, eq=eq, frozen=frozen, slots=slots)
        own = {name for name, value in vars(cls).items() if value is not None}  # `__hash__` is, where there is `__eq__`
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        methods = {"__init__": _Init(cls, frozen), "__repr__": _repr}
        if eq:
            methods |= _comparisons([f.name for f in fields(cls) if f.compare], frozen)
        if frozen:
            methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
            if slots:
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name in methods.keys() - own:
            setattr(cls, name, methods[name])
        return cls


def _comparisons(names: list[str], frozen: bool) -> dict[str, Any]:
    """`__eq__` of instances of one class by these fields, and `__hash__`, which those that may change have none of."""
    get: Any = attrgetter(*names) if names else lambda self: ()
    key = get if len(names) != 1 else lambda self: (get(self),)

    def __eq__(self: Any, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _repr(self: Any) -> str:
    """`__repr__`: the name of the class, and the fields."""
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _refuse(self: Any, name: str, *value: object) -> None:
    """Assignment and deletion, of what is frozen."""
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[Any]:
    """The fields' values, for copies of what has no dict."""
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    """Take the values of `_state`."""
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


class _Init:
    """`__init__` of a class, which takes its own place when it is first asked for."""

    def __init__(self, cls: type, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function = vars(self.cls)["__init__"]
        if function is self:
            self.cls.__init__ = function = _init(self.cls, self.frozen)  # type: ignore[misc]  # it is that of `cls`
        return function.__get__(instance, owner)


def _init(cls: Any, frozen: bool) -> Any:
    """`__init__` that gives each field its argument, default or what its factory makes, and calls `__post_init__`."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_new": MISSING}
    arguments: dict[bool, list[str]] = {False: [], True: []}  # by whether they are given by name alone
    body = []
    for f in fields(cls):
        name, makes = f.name, f.default_factory is not MISSING
        names |= {
            f"_make_{name}": f.default_factory,
            f"_default_{name}": f.default,
        }  # a factory's is MISSING, or `_new`
        value = f"_make_{name}()" if makes else name
        if f.init:
            default = f"=_default_{name}" if makes or f.default is not MISSING else ""
            arguments[f.kw_only is True].append(name + default)
            value = f"{value} if {name} is _new else {name}" if makes else value
        elif not makes:
            continue  # its default is an attribute of the class
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    given = ["self", *arguments[False], *(["*", *arguments[True]] if arguments[True] else [])]
    exec("\n ".join([f"def __init__({', '.join(given)}):", *body, "return"]), names)
    function = names["__init__"]
    function.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
    function.__qualname__, function.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return function
