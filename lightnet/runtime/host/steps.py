"""One step of a host part: an op on arrays, with its attributes; and the table of these ops.

A text tensor is an array of Python strings (dtype object), so that equal strings stand in memory once and a long one
does not widen the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from inspect import signature
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError

#: Name of the element type, beside those of `runtime.dtypes`, and what arrays of it are in NumPy.
TEXT = "text"
TEXT_DTYPE = np.dtype(object)
_MAP = re.compile(r"map\((text|i64),(text|i64|f32|f64)\)")
#: The most elements of a tensor that a step makes, and the most characters that it writes.
MAX_ELEMENTS = 1 << 26
MAX_CHARACTERS = 1 << 28
#: The most bytes of arrays that the steps of a call make; of text, the references to its strings.
MAX_BYTES = 1 << 30
MAX_RANK = 32

Dims = tuple[int | None, ...]
#: What a step gives: the name of an element type, ``same`` (that of its first input, and of others so many), or what
#: follows from the step.
Gives = str | tuple[str, ...] | Callable[["HostStep", Sequence[str]], tuple[str, ...]]


class KeyValue(NamedTuple):
    """The types of a map's keys and values."""

    keys: str
    values: str


def map_kind(keys: str, values: str) -> str:
    """The name of a type of maps, which stands where that of an element type does."""
    return f"map({keys},{values})"


def pair_of(kind: str) -> KeyValue | None:
    """The types of keys and values of a type of maps; None for another type."""
    found = _MAP.fullmatch(kind)
    return KeyValue(*found.groups()) if found else None


def is_hosted(kind: str | None) -> bool:
    """Return whether values of a type live in a host part alone: text and maps."""
    return kind is not None and (kind == TEXT or pair_of(kind) is not None)


@dataclass(frozen=True)
class HostFunction:
    """The work of steps of one name. `function` takes the step and an array for each of its inputs (None for an absent
    one), and gives an array, or several. The dims of what it gives follow from those of its inputs and from the values
    of its inputs `deciding`; with `opened`, from all that it is fed, but for what `shapes` makes of the step and the
    dims of its inputs (in which, as in what it gives, an unknown one is None). `of_dims`: its values, too, follow from
    the dims of its inputs. `writes`: its strings may have more characters than what it reads. `maps`: it takes
    a map. `prepare` makes of a step's attributes what its calls take (and keep), and raises for those that are wrong:
    before any call."""

    name: str
    function: Callable[..., Any]
    gives: Gives
    deciding: tuple[int, ...] = ()
    opened: bool = False
    shapes: Callable[[HostStep, Dims], tuple[Dims, ...]] | None = None
    of_dims: bool = False
    writes: bool = False
    maps: bool = False
    prepare: Callable[[HostStep], object] | None = None

    def check(self, step: HostStep) -> None:
        """Raise LightNetError where a step lacks an input that its op needs, or has one that the op has not."""
        given = list(signature(self.function).parameters.values())[1:]
        is_open = any(p.kind is p.VAR_POSITIONAL for p in given)
        least = max(len(step.inputs), 1) if is_open else sum(p.default is p.empty for p in given)
        if len(step.inputs) < least or not all(step.inputs[:least]):
            step.fail(f"needs {least} inputs, but has {sum(map(bool, step.inputs))}")
        if len(step.inputs) > len(given) and not is_open:
            step.fail(f"takes {len(given)} inputs, but has {len(step.inputs)}")

    def kinds(self, step: HostStep, inputs: Sequence[str]) -> tuple[str, ...]:
        """The element types of what a step gives, of inputs of the types `inputs`."""
        if callable(self.gives):
            return self.gives(step, inputs)
        names = (self.gives,) if isinstance(self.gives, str) else self.gives
        if names == ("same",):
            return (inputs[0],) * len(step.outputs)
        return tuple(inputs[0] if name == "same" else name for name in names)


_OPS: dict[str, HostFunction] = {}


def host_op(name: str, gives: Gives, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function evaluates steps called `name`; `facts` are the further fields of `HostFunction`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _OPS[name] = HostFunction(name, function, gives, **facts)
        return function

    return register


@cache
def host_ops() -> Mapping[str, HostFunction]:
    """Every op of host parts by name: ONNX's, with the domain before it where it has one."""
    from lightnet.runtime.host import (  # noqa: F401 (importing a family registers its ops)
        maps,
        moves,
        ngrams,
        strings,
        tables,
        tokens,
    )

    return dict(_OPS)


@dataclass(frozen=True, eq=False)
class HostStep:
    """One step: an op, the name of the node that it was, names of what it reads ("" for what is absent) and gives, and
    its attributes: numbers, texts, lists of one of these, and arrays."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.op} '{self.name}'" if self.name else self.op

    def run(self, inputs: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...]:
        """The results of the step. Raises LightNetError, which names the step."""
        try:
            made = host_ops()[self.op].function(self, *inputs)
            found = made if isinstance(made, tuple) else (made,)
            if len(found) < len(self.outputs):
                self.fail(f"gives {len(found)} outputs, not {len(self.outputs)}")
        except LightNetError as error:
            raise self.named(error) from None
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            # What the op did not foresee.
            raise LightNetError(f"{self}: {type(error).__name__}: {error!s:.200}", label="host.step") from None
        return found

    def named(self, error: LightNetError) -> LightNetError:
        """The error `error` of this step, with its name."""
        return LightNetError(f"{self}: {error.message}", error.loc, label=error.label or "host.step")

    # -- attributes

    def attribute(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """An attribute of a type; LightNetError where it is of another, or not there and without a default."""
        value = self.attributes.get(name, default)
        if value is ...:
            self.fail(f"needs the attribute '{name}'")
        if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
            self.fail(f"its attribute '{name}' is {value!r:.60}")
        return value

    def integer(self, name: str, default: Any = ...) -> Any:
        return self.attribute(name, int, default)

    def text(self, name: str, default: Any = ...) -> Any:
        return self.attribute(name, str, default)

    def list(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """An attribute that is a list of elements of a type."""
        value = self.attribute(name, list | tuple, default)  # type: ignore[arg-type]
        if value is not default and not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
            self.fail(f"its attribute '{name}' is {value!r:.60}")
        return value

    # -- limits

    def room(self, dims: Iterable[int]) -> tuple[int, ...]:
        """Dims of an array that is to be made. LightNetError where it is too large."""
        dims = tuple(int(d) for d in dims)
        if any(d < 0 for d in dims) or len(dims) > MAX_RANK:
            self.fail(f"its result would have the shape {list(dims)}")
        if prod(dims) > MAX_ELEMENTS:
            self.fail(f"its result {list(dims)} would have more than {MAX_ELEMENTS} elements", "host.size")
        return dims

    def characters(self, count: int) -> None:
        """Refuse to write more than `MAX_CHARACTERS`."""
        if count > MAX_CHARACTERS:
            self.fail(f"its result would have {count} characters; at most {MAX_CHARACTERS} are made", "host.size")

    def fail(self, message: str, label: str = "host.step") -> NoReturn:
        """The step cannot be evaluated."""
        raise LightNetError(message, label=label)


def each(function: Callable[[Any], Any], x: np.ndarray, dtype: np.dtype | type = TEXT_DTYPE) -> np.ndarray:
    """`function` of each element, as an array of x's dims."""
    found = np.empty(x.size, dtype)
    found[:] = [function(value) for value in x.reshape(-1)]
    return found.reshape(x.shape)


def texts(values: Sequence[str] | np.ndarray, dims: Sequence[int] | None = None) -> np.ndarray:
    """A text tensor of strings in row-major order."""
    found = np.empty(len(values), TEXT_DTYPE)
    found[:] = list(values)
    return found if dims is None else found.reshape(tuple(dims))
