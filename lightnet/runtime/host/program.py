"""The host part of a network: steps before the network, steps after it, and what goes into both.

    inputs ── before ──┐                      ┌── after ── outputs
       └───────────────┴── network (numbers) ─┴────────────┘

It is data, which JSON holds (`to_json`), and what a file says is checked before any of it is used (`from_json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import as_array, checked_array
from lightnet.runtime.dtypes import BY_NAME, BY_NP
from lightnet.runtime.host.steps import (
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_ELEMENTS,
    TEXT,
    TEXT_DTYPE,
    HostStep,
    host_ops,
    is_hosted,
    pair_of,
    texts,
)

Dims = tuple[int | str | None, ...]
Arrays = dict[str, Any]
#: Characters of a host part as JSON.
MAX_JSON = 1 << 28


@dataclass(frozen=True)
class HostTensor:
    """An input or output of the whole network. An open dim is None or its name; `dims` is None where the rank is open.
    `dtype` is ``text``, the name of a type of `runtime.dtypes`, or that of a type of maps (``map(text,f32)``: a dict
    where there are no dims, else a list of them); "" where the network says it."""

    name: str
    dims: Dims | None
    dtype: str

    @property
    def np_dtype(self) -> np.dtype:
        return TEXT_DTYPE if is_hosted(self.dtype) else BY_NAME[self.dtype].np

    @property
    def is_map(self) -> bool:
        """True of a map, or a list of them."""
        return pair_of(self.dtype) is not None

    def checked(self, value: Any) -> np.ndarray:
        """`value` as an array of this type and shape. Raises LightNetError."""
        if self.is_map:
            from lightnet.runtime.host.maps import map_array

            return map_array(self.name, self.dtype, value)
        array = text_array(self.name, value) if self.dtype == TEXT else as_array(self.name, value)
        closed = self.dims is not None and len(self.dims) == array.ndim
        if self.dims is not None and (
            not closed or any(isinstance(d, int) and d != n for d, n in zip(self.dims, array.shape))
        ):
            shown = ", ".join("?" if d is None else str(d) for d in self.dims)
            raise LightNetError(f"'{self.name}' has shape [{shown}], but gets {list(array.shape)}", label="feed.shape")
        return array if self.dtype == TEXT else checked_array(self.name, array, array.shape, BY_NAME[self.dtype])


@dataclass(frozen=True)
class HostProgram:
    """See the module. `inputs` and `outputs` are those of the whole network, in order; `entering` are the network's
    inputs that `before` makes, and `leaving` the network's outputs that are not those of the whole, but are read by
    `after`."""

    inputs: tuple[HostTensor, ...]
    outputs: tuple[HostTensor, ...]
    before: tuple[HostStep, ...]
    after: tuple[HostStep, ...]
    constants: Mapping[str, np.ndarray]
    entering: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = [f"{where} the network: {', '.join(_ops_of(steps))}"
                for where, steps in (("before", self.before), ("after", self.after)) if steps]  # fmt: skip
        return "; ".join(said) or "text goes through as it is"

    @property
    def names_only(self) -> bool:
        """True if all that it does is to give numbers of classes their texts, and columns of scores their labels: the
        network alone says the same."""
        hosted_in = any(is_hosted(t.dtype) for t in self.inputs)
        return not hosted_in and not self.before and all(s.op in NAMING and s.inputs == s.outputs for s in self.after)

    @property
    def required(self) -> frozenset[str]:
        """The inputs that it takes itself: those of text, maps, and those that a step reads."""
        read = {name for step in (*self.before, *self.after) for name in step.inputs}
        return frozenset(t.name for t in self.inputs if is_hosted(t.dtype) or t.name in read)

    @property
    def maps(self) -> dict[str, str]:
        """The type of every input and output that is a map, or a list of them, by name."""
        return {t.name: t.dtype for t in (*self.inputs, *self.outputs) if t.is_map}

    def of_tensors(self) -> HostProgram:
        """The program with tensors for its maps: scores as they are before columns get their labels. Raises
        LightNetError for an input that is a map."""
        if taken := [t.name for t in self.inputs if t.is_map]:
            raise LightNetError(
                f"input '{taken[0]}' is a map, of which there are no tensors: feed what the network makes of it (a "
                "model without its DictVectorizer or CastMap)",
                label="host.map",
            )
        after = [
            replace(s, op="Identity", attributes={}) if s.op == SCORES else s
            for s in self.after
            if s.op != SCORES or s.inputs != s.outputs
        ]
        made = {name for s in after for name in s.outputs}
        outputs = [
            replace(t, dims=None, dtype="f32" if t.name in made else "") if t.is_map else t for t in self.outputs
        ]
        return replace(self, outputs=tuple(outputs), after=tuple(after))

    def classes(self) -> dict[str, Sequence[str]]:
        """The texts of classes by the output that names them, in the order of their numbers."""
        return {
            s.outputs[0]: s.list("values_strings", str) for s in self.after if s.op == CLASSES and s.inputs == s.outputs
        }

    def entered(self, feeds: Mapping[str, Any]) -> Arrays:
        """The arrays before the network: inputs that are text or that a step reads, checked, and what `before` makes
        of them. Raises LightNetError."""
        from lightnet.runtime.program import not_fed

        mine = [t for t in self.inputs if t.name in self.required]
        if missing := [t.name for t in mine if t.name not in feeds]:
            raise not_fed(dict.fromkeys(missing, ""))
        env: Arrays = {**self.constants, **{t.name: t.checked(feeds[t.name]) for t in mine}}
        return evaluated(self.before, env)

    def left(self, before: Arrays, network: Mapping[str, np.ndarray]) -> Arrays:
        """The arrays behind the network, its outputs being `network`."""
        return evaluated(self.after, {**before, **network})

    def dims_behind(self, network: Mapping[str, Any]) -> dict[str, Any]:
        """The dims of what steps behind the network make, as far as they follow from those of what it gives."""
        known, found = dict(network), {}
        for step in self.after:
            first, shapes = known.get(step.inputs[0]), host_ops()[step.op].shapes
            if first is not None and shapes is not None:
                made = dict(zip(step.outputs, shapes(step, first)))
                known.update(made)
                found.update(made)
        return found

    # -- as data

    def to_json(self) -> str:
        """The program as JSON, of ASCII characters."""
        return json.dumps({
            "inputs": [[t.name, t.dims, t.dtype] for t in self.inputs],
            "outputs": [[t.name, t.dims, t.dtype] for t in self.outputs],
            "before": [_packed_step(s) for s in self.before], "after": [_packed_step(s) for s in self.after],
            "constants": {name: _packed(array) for name, array in self.constants.items()},
            "entering": self.entering, "leaving": self.leaving,
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> HostProgram:
        """The program that `to_json` wrote. Raises LightNetError for what is none: unknown ops, names that nothing
        defines, wrong types."""
        try:
            if len(text) > MAX_JSON:
                _lie(f"is longer than {MAX_JSON} characters")
            found = json.loads(text)
            inputs, outputs = (tuple(_tensor(*t) for t in found[k]) for k in ("inputs", "outputs"))
            before, after = (tuple(_step(*s) for s in found[k]) for k in ("before", "after"))
            constants = {_name(k): _array(**v) for k, v in found["constants"].items()}
            entering, leaving = (tuple(map(_name, found[k])) for k in ("entering", "leaving"))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            _lie(f"is malformed ({type(error).__name__}: {error!s:.100})")
        program = cls(inputs, outputs, before, after, constants, entering, leaving)
        program.check()
        return program

    def check(self) -> None:
        """Raise LightNetError where a step is of no op, lacks an input, or reads what nothing defines before it."""
        ops = host_ops()
        known = {t.name for t in self.inputs} | set(self.constants)
        for steps in (self.before, self.after):
            for step in steps:
                if step.op not in ops:
                    _lie(f"has a step of no op: '{step.op:.60}'")
                try:
                    ops[step.op].check(step)
                except LightNetError as error:
                    _lie(f"has a wrong step: {step.named(error).message}")
                if lost := [n for n in step.inputs if n and n not in known]:
                    _lie(f"reads '{lost[0]:.60}', which nothing makes")
                known |= set(step.outputs)
            if steps is self.before and (lost := [n for n in self.entering if n not in known]):
                _lie(f"gives the network '{lost[0]:.60}', which nothing makes")
            known |= {t.name for t in self.outputs} | set(self.leaving)


#: What gives numbers of classes their texts, and columns of scores their labels.
CLASSES, SCORES = "ai.onnx.ml.LabelEncoder", "ai.onnx.ml.ZipMap"
NAMING = (CLASSES, SCORES)


def _ops_of(steps: Iterable[HostStep]) -> list[str]:
    """Each op of steps once, in order."""
    return list(dict.fromkeys(step.op for step in steps))


def evaluated(steps: Sequence[HostStep], env: Arrays) -> Arrays:
    """`env` and what steps make of it. Raises LightNetError, also where more memory would be used than a host part
    may."""
    memory = {id(m): m for m in map(_memory, env.values())}
    held = characters = 0
    for step in steps:
        found = step.run([env[name] if name else None for name in step.inputs])
        for name, array in zip(step.outputs, found):
            if array.size > MAX_ELEMENTS:
                raise step.named(_too_large(f"its result has more than {MAX_ELEMENTS} elements"))
            if id(made := _memory(array)) not in memory:
                memory[id(made)] = made
                held += made.nbytes
                characters += sum(map(len, made.flat)) if host_ops()[step.op].writes else 0
                if held > MAX_BYTES or characters > MAX_CHARACTERS:
                    limit = f"{MAX_BYTES} bytes" if held > MAX_BYTES else f"{MAX_CHARACTERS} characters"
                    raise step.named(_too_large(f"with its result, the steps have made more than {limit}"))
            env[name] = array
    return env


def _too_large(message: str) -> LightNetError:
    return LightNetError(message, label="host.size")


def _memory(array: np.ndarray) -> np.ndarray:
    """The array that has the memory of `array`, which may be a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def text_array(name: str, value: Any) -> np.ndarray:
    """`value` as a text tensor: a string, nested lists of strings, or an array of them. Raises LightNetError for
    anything else."""
    if isinstance(value, str):
        return texts([value], ())
    array = value
    if not isinstance(value, np.ndarray):
        try:
            array = np.array(value, TEXT_DTYPE)
        except ValueError as e:
            raise LightNetError(f"'{name}' takes text, but gets {e!s:.100}", label="feed.value") from None
    if array.dtype.kind not in "UOT":
        raise LightNetError(f"'{name}' takes text, but gets {array.dtype}", label="feed.dtype")
    if array.size > MAX_ELEMENTS:
        raise LightNetError(f"'{name}' gets more than {MAX_ELEMENTS} elements", label="feed.shape")
    flat = array.reshape(-1).tolist()
    if wrong := [v for v in flat if not isinstance(v, str)]:
        kind = "bytes: decode them first" if isinstance(wrong[0], bytes) else f"a {type(wrong[0]).__name__} in it"
        raise LightNetError(f"'{name}' takes text, but gets {kind}", label="feed.value")
    if sum(map(len, flat)) > MAX_CHARACTERS:
        raise LightNetError(f"'{name}' gets more than {MAX_CHARACTERS} characters", label="feed.shape")
    return texts([str(v) for v in flat], array.shape)


# -- values as JSON


def _lie(message: str) -> NoReturn:
    raise LightNetError(f"the host part {message}", label="host.file")


def _packed_step(step: HostStep) -> list[Any]:
    return [step.op, step.name, step.inputs, step.outputs, {k: _packed(v) for k, v in step.attributes.items()}]


def _packed(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    dtype = TEXT if value.dtype == TEXT_DTYPE else BY_NP[value.dtype].name
    flat = value.reshape(-1)
    return {
        "dtype": dtype,
        "dims": value.shape,
        "data": flat.tolist() if dtype == TEXT or flat.dtype.kind in "iubf" else flat.astype(np.float64).tolist(),
    }


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        return _array(**value)
    if isinstance(value, list):
        return tuple(_scalar(v) for v in value)
    return _scalar(value)


def _array(dtype: str, dims: Sequence[int], data: list[Any]) -> np.ndarray:
    shape = tuple(_natural(d) for d in dims)
    if prod(shape) != len(data):
        _lie(f"has {len(data)} elements for {list(shape)}")
    if dtype == TEXT:
        return text_array("a constant", [_of(str, v) for v in data]).reshape(shape)
    kind = BY_NAME[dtype]
    number: Callable[[Any], Any] = (lambda v: _of((int, float), v)) if kind.is_float else (lambda v: _of(int, v))
    return np.array([bool(v) if kind.kind == "bool" else number(v) for v in data], kind.np).reshape(shape)


def _scalar(value: Any) -> Any:
    return _of((int, float, str), value)


def _of(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        _lie(f"has a value {value!r:.40}")
    return value


def _name(value: Any) -> str:
    return _of(str, value)


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        _lie(f"has a dim {value!r:.40}")
    return value


def _tensor(name: Any, dims: Any, dtype: Any) -> HostTensor:
    if dtype != "" and not is_hosted(_of(str, dtype)) and dtype not in BY_NAME:
        _lie(f"has a tensor of type {dtype!r:.40}")
    if dims is not None:
        dims = tuple(d if isinstance(d, str) or d is None else _natural(d) for d in _of(list, dims))
    return HostTensor(_name(name), dims, dtype)


def _step(op: Any, name: Any, inputs: Any, outputs: Any, attributes: Any) -> HostStep:
    reads, gives = (tuple(map(_name, _of(list, found))) for found in (inputs, outputs))
    return HostStep(_name(op), _name(name), reads, gives, {_name(k): _unpacked(v) for k, v in attributes.items()})
