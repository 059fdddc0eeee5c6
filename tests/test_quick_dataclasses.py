"""`lightnet.dataclasses.dataclass` against the standard library's: the same classes declared by both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import pytest

from lightnet import dataclasses as quick

#: The options by which classes of ours are declared.
OPTIONS = [dict(frozen=f, eq=e, slots=s) for f, e, s in product((False, True), repeat=3)]


def declared(dataclass: Callable[..., Any], options: dict[str, bool]) -> dict[str, type]:
    """Classes of every kind of field, by this decorator."""

    @dataclass(**options)
    class Empty:
        """No fields."""

    @dataclass(**options)
    class One:
        """One."""

        value: object

    @dataclass(**options)
    class Several:
        """With defaults, a factory, what takes no part, what a name alone gives, and what is no field."""

        a: int
        b: str = "b"
        made: list[int] = field(default_factory=list)
        unseen: int = field(default=0, compare=False, repr=False)
        named: int = field(default=3, kw_only=True)
        shared: ClassVar[int] = 7

    @dataclass(**options)
    class Begun:
        """Begins some fields itself."""

        a: int
        own: dict[str, int] = field(default_factory=dict, init=False)
        late: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "late", self.a + 1)

    @dataclass(**options)
    class Derived(Begun):
        """Adds a field to those of its base, and gives one another default."""

        a: int = 5
        c: float = 1.5

    @dataclass(**options)
    class Told(One):
        """Has methods of its own."""

        more: int = 2

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Told)

        def __repr__(self) -> str:
            return "Told()"

    @dataclass(**options)
    class Hashed:
        """Hashes itself."""

        value: list[int]

        def __hash__(self) -> int:
            return 11

    return {c.__name__: c for c in (Empty, One, Several, Begun, Derived, Told, Hashed)}


#: Arguments by which the classes above are called, wrong ones among them.
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((2,), {}), ((1, "c"), {}), ((1, "c", [1]), {}), ((1,), {"unseen": 4}), ((1,), {"named": 4}),
    ((1, "b", [], 0, 3), {}), ((), {"a": 1}), ((1,), {"a": 1}), ((1,), {"none": 1}), ((float("nan"),), {}), (([1],), {}),
    ((1, 2.5), {}), ((), {"value": ("x",)}), ((1,), {"own": {}}), ((1,), {"late": 1}),
]  # fmt: skip


def outcome(act: Callable[[], Any]) -> Any:
    """What it gives, or the type of what it raises."""
    try:
        return act()
    except Exception as e:
        return type(e)


def account(cls: type) -> list[Any]:
    """All that can be seen of a class and of what its calls make."""
    made = [outcome(lambda a=a, k=k: cls(*a, **k)) for a, k in CALLS]
    text = str(inspect.signature(cls)).replace(repr(dataclasses.MISSING), "<factory>")  # what a factory gives
    seen: list[Any] = [text, cls.__doc__, getattr(cls, "__match_args__", None), cls.__init__.__qualname__]
    seen += [[(f.name, f.init, f.compare, f.repr, f.kw_only) for f in dataclasses.fields(cls)]]
    seen += [x if isinstance(x, type) else repr(x).rpartition(".")[2] for x in made]
    instances = [x for x in made if not isinstance(x, type)]
    seen += [a == b for a in instances for b in instances] + [a == "other" for a in instances]
    seen += [outcome(lambda x=x: hash(x)) if cls.__hash__ is not object.__hash__ else None for x in instances]
    for x in instances:
        for name in (*(f.name for f in dataclasses.fields(cls)), "unknown"):
            kept = outcome(lambda x=x, n=name: getattr(x, n))
            # The library's own refusal fails by a TypeError where there are slots (of Python 3.11): that, too, is one.
            seen.append(outcome(lambda x=x, n=name: setattr(x, n, 9)) is None)
            seen.append(outcome(lambda x=x, n=name: delattr(x, n)) is None)
            if not isinstance(kept, type):
                object.__setattr__(x, name, kept)
        seen.append(repr(copy.copy(x)).rpartition(".")[2])
        seen.append(repr(outcome(lambda x=x: dataclasses.replace(x))).rpartition(".")[2])
        seen.append(repr(outcome(lambda x=x: dataclasses.asdict(x))))
        seen.append(hasattr(x, "__dict__"))
    return seen


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "plain")
def test_classes_are_as_the_library_makes_them(options: dict[str, bool]) -> None:
    ours, library = declared(quick.dataclass, options), declared(dataclasses.dataclass, options)
    for name, cls in ours.items():
        assert account(cls) == account(library[name]), name
        assert cls.__init__ is cls.__init__  # made once


@quick.dataclass(frozen=True)
class Kept:
    """Pickled by its module's name."""

    a: int
    b: tuple[int, ...] = ()

    @cached_property
    def total(self) -> int:
        """Not a field, and may be kept all the same."""
        return self.a + sum(self.b)


@quick.dataclass(frozen=True, slots=True)
class Slotted:
    """Pickled, without a dict."""

    a: int
    b: tuple[int, ...] = ()


@pytest.mark.parametrize("cls", [Kept, Slotted])
def test_what_is_frozen_is_copied(cls: Any) -> None:
    value = cls(1, (2, 3))
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)
    assert cls is Slotted or value.total == 6
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        value.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del value.a


def test_a_base_calls_its_own_init() -> None:
    @quick.dataclass
    class Base:
        """Of one field."""

        a: int

    class Child(Base):
        """Counts what it is given."""

        def __init__(self, *values: int) -> None:
            super().__init__(len(values))

    assert Child(1, 2, 3).a == 3 and Base(4).a == 4
