"""A compiled network as data: machine code, memory sizes, and where each named tensor stands. `instance.py` runs it.

Imports NumPy and the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from lightnet.dataclasses import asdict, dataclass, fields, replace
from lightnet.diagnostics import LightNetError, alike, did_you_mean
from lightnet.runtime.arrays import checked_array
from lightnet.runtime.dims import Dim, Size, Symbol, at, is_known
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.threads import MAX_THREADS, Threads

#: The symbol of the machine entry, ``void (ptr frame)``: the emitter defines it, the linker finds it.
MAIN_ENTRY = "ln_main"
#: That of what each thread of a run does, ``void (ptr frame, i64 thread, i64 threads, ptr barrier, ptr scratch)``.
BODY_ENTRY = "ln_body"
#: The words of a frame, which is all that the machine code gets to know of a call: the addresses of the arena and of
#: the static space, of the function for host calls (or null), and of each port.
FRAME = ("arena", "static", "host")
_PORT = re.compile(r"(in|out|cache)(0|[1-9][0-9]*)")


def is_port(space: str) -> bool:
    """Return whether a memory space is a port: the caller's memory, of which one input is read (``in0``) or to which
    one output is written (``out0``), where it is; or in which one input grows into an output (``cache0``).
    """
    return _PORT.fullmatch(space) is not None


def ports_of(memory: Iterable[str]) -> tuple[str, ...]:
    """The ports among memory spaces, in the order that they have in a frame."""
    return tuple(space for space in memory if is_port(space))


@dataclass(frozen=True)
class Tensor:
    """A named tensor: its type and its place (memory space and byte offset). One that `grows` has memory for so many
    elements along an axis: (axis, elements)."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    space: str
    offset: int
    grows: tuple[int, ...] = ()

    def with_sizes(self, number: Callable[[Size], Any]) -> Tensor:
        """The tensor with numbers in the place of sizes."""
        if is_known((*self.dims, self.offset)):
            return self
        dims = tuple(map(number, self.dims))
        return Tensor(self.name, dims, self.dtype, self.space, number(self.offset), self.grows)

    @property
    def memory_dims(self) -> tuple[int, ...]:
        """The dims of its memory, which is row-major."""
        if not self.grows:
            return self.dims
        axis, most = self.grows
        return (*self.dims[:axis], most, *self.dims[axis + 1 :])

    @property
    def nbytes(self) -> int:
        """Bytes of its memory."""
        return prod(self.memory_dims) * BY_NAME[self.dtype].size

    @property
    def np_dtype(self) -> np.dtype:
        return BY_NAME[self.dtype].np

    def view(self, memory: Mapping[str, np.ndarray]) -> np.ndarray:
        """The tensor's bytes in `memory` as an array (no copy)."""
        raw = memory[self.space][self.offset : self.offset + self.nbytes]
        whole = raw.view(self.np_dtype).reshape(self.memory_dims)
        return whole[tuple(map(slice, self.dims))] if self.grows else whole


@dataclass(frozen=True)
class HostCall:
    """A run-time call in the order of the program: `kind` is ``print`` or ``fprint``."""

    kind: str
    msg: str
    dims: tuple[int, ...]
    dtype: str
    file: str = ""


@dataclass(frozen=True)
class Program:
    """The program that the compiler hands over.

    `memory` maps a space to its size in bytes. `inputs` are the tensors that a call may feed, and those in `required`
    must be fed, having no contents of their own; `unread` are inputs of the network that nothing reads; `residents` are
    further tensors of the arena that are filled at load (in a plan of upstream's kind, where params stand in the
    arena), `restore` names those of both that the program itself overwrites: every call writes them again. `params` are
    fixed when the program is loaded. `overwritten` lists outputs that are gone when a run ends, with the op that writes
    over them (only plans of upstream's kind have any). `fused` names tensors of the source network that passes removed,
    `reused` those whose memory serves others later: both for clear errors only. `order` has the names of all inputs as
    the network declares them. `counts` has (output, axis, output that is its count), see `sized`. `threads` is how many
    a call may use at most, and `any_threads` that nobody gave a number (it is `MAX_THREADS` then), `widest` how many
    any launch makes use of (with more than one, the objects have the pool), `scratch` how many bytes each thread of a
    call but the first needs beside the arena. `cpu`, `features` and `triple` are those of the code: the first word of
    the triple is its format (`formats.py`). `symbols` are those that a call decides: dims, offsets and sizes of memory
    may be polynomials of them (`runtime/dims.py`); `values` are theirs in a program that is one of a call (`at`).
    """

    objects: tuple[bytes, ...]
    memory: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    params: tuple[str, ...]
    hosts: tuple[HostCall, ...] = ()
    residents: tuple[Tensor, ...] = ()
    restore: tuple[str, ...] = ()
    overwritten: tuple[tuple[str, str], ...] = ()
    fused: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    unread: tuple[Tensor, ...] = ()
    counts: tuple[tuple[str, int, str], ...] = ()
    threads: int = 1
    any_threads: bool = False
    widest: int = 1
    scratch: int = 0
    symbols: tuple[Symbol, ...] = ()
    values: tuple[int, ...] = ()
    cpu: str = ""
    features: str = ""
    triple: str = ""

    @property
    def bound(self) -> Threads:
        """The number of threads that a call may use."""
        return Threads(None if self.any_threads else self.threads)

    def at(self, values: tuple[int, ...]) -> Program:
        """The program of calls in which the symbols have these values: it has numbers where this one has dims, but for
        dims of other symbols, which only what nothing reads has."""
        by = {s.name: n for s, n in zip(self.symbols, values, strict=True)}
        number = evaluator_of(by)
        kinds = ("inputs", "outputs", "residents", "unread")
        tensors: dict[str, Any] = {kind: tuple(t.with_sizes(number) for t in getattr(self, kind)) for kind in kinds}
        hosts = tuple(replace(h, dims=tuple(map(number, h.dims))) for h in self.hosts)
        memory = {space: at(size, by) for space, size in self.memory.items()}
        return replace(self, **tensors, hosts=hosts, memory=memory, symbols=(), values=values)

    @property
    def examples(self) -> list[Program]:
        """Programs of calls: this one where it is of numbers, else those of the least and of typical values."""
        return [self.at(values) for values in zip(*((s.low, s.typical) for s in self.symbols))] or [self]

    def of_feeds(self, feeds: Mapping[str, Any]) -> Program:
        """The program of a call on what is fed. Raises `LightNetError` where shapes do not fit."""
        from lightnet.runtime.open_instance import bound_values, fed_shapes

        return self.at(bound_values(self, fed_shapes(feeds))) if self.symbols else self

    @property
    def is_plain(self) -> bool:
        """True if a run does nothing but compute outputs from inputs."""
        more = self.hosts, self.residents, self.overwritten, self.restore, self.unread, self.checks, self.counts
        return bool(self.inputs) and not any(more)

    @property
    def ports(self) -> tuple[str, ...]:
        """Its ports, in the order of the frame."""
        return ports_of(self.memory)

    @cached_property
    def checks(self) -> tuple[str, ...]:
        """The outputs that are checks of indices, which a caller does not see."""
        from lightnet.runtime.index_checks import is_check

        return tuple(t.name for t in self.outputs if is_check(t.name))

    def port_tensors(self) -> dict[str, Tensor]:
        """The tensor whose array each port stands for: the first that is all of it; of one that grows, the input."""
        found: dict[str, Tensor] = {}
        for other, tensors in (("out", self.inputs), ("in", self.outputs)):
            for t in tensors:
                fits = is_port(t.space) and not t.space.startswith(other) and not t.offset
                if fits and t.nbytes == self.memory[t.space]:
                    found.setdefault(t.space, t)
        return found

    def caches(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By their ports: the inputs that grow, and the outputs that they become."""
        outputs = {t.space: t for t in self.outputs if t.grows}
        return {t.space: (t, outputs[t.space]) for t in self.inputs if t.grows and t.space in outputs}

    @property
    def shown(self) -> tuple[Tensor, ...]:
        """The outputs without those that only say how large others are."""
        hidden = {count for _, _, count in self.counts}
        return tuple(t for t in self.outputs if t.name not in hidden)

    def header(self) -> dict[str, Any]:
        """Everything but the machine code, as JSON values: a size that calls decide is its text, and so is a symbol."""
        found = {k: v for k, v in asdict(replace(self, symbols=())).items() if k not in ("objects", "values")}
        for tensor in (t for kind in ("inputs", "outputs", "residents", "unread") for t in found[kind]):
            if not tensor["grows"]:
                del tensor["grows"]
        return with_texts(found) | {"symbols": self.symbol_texts}

    @property
    def symbol_texts(self) -> list[str]:
        """The symbols with their bounds, as text: ``batch(1..16)``."""
        return [str(s.dim) for s in self.symbols]

    @classmethod
    def from_header(cls, header: Mapping[str, Any], objects: tuple[bytes, ...]) -> Program:
        """The program of a header, which `lnx_check.check_program` takes; ValueError, TypeError or KeyError when it is
        none."""
        known = _read_symbols(header.get("symbols", ()))  # which files of before have not
        values: dict[str, Any] = {"symbols": tuple(s for dim in known.values() for s in dim.symbols)}
        for f in fields(cls):
            if f.name in ("objects", "symbols", "values"):
                continue
            if f.name == "any_threads":  # which files of before have not
                values[f.name] = bool(header.get(f.name, header["threads"] == MAX_THREADS))
                continue
            value = header[f.name]
            if f.name in ("inputs", "outputs", "residents", "unread"):
                value = tuple(Tensor(**_with_sizes(t, known, f.name == "unread")) for t in value)
            elif f.name == "hosts":
                value = tuple(HostCall(**_with_sizes(h, known)) for h in value)
            elif f.name == "memory":
                value = {space: read_size(size, known) for space, size in value.items()}
            elif isinstance(value, list):
                value = tuple(tuple(v) if isinstance(v, list) else v for v in value)
            values[f.name] = value
        program = cls(objects=objects, **values)
        check_counts(program)
        return program

    def input_types(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every input by name, in the order of the network."""
        found = {t.name: (t.dims, t.np_dtype) for t in (*self.inputs, *self.unread)}
        return {name: found[name] for name in (*(n for n in self.order if n in found), *found)}

    def pick(self, names: Iterable[str] | None, run: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The outputs called `names` of a run (all if None); a name that cannot be read is an error before the run, and
        an index outside of its axis, where the network checks these, behind it."""
        if checks := self.checks:
            from lightnet.runtime.index_checks import checked

            whole, run = run, lambda: checked(whole(), checks)
        if names is None:
            return run()
        names = [names] if isinstance(names, str) else list(names)
        self.check_readable(names)
        found = run()
        return {name: found[name] for name in names}

    def check_readable(self, names: Iterable[str]) -> None:
        """Raise LightNetError for a name of a tensor that cannot be read after a run."""
        readable = {t.name for t in self.shown} - {name for name, _ in self.overwritten}
        for name in names:
            if name not in readable:
                raise self.unreadable(name)

    def checked(self, name: str, value: Any) -> np.ndarray:
        """`value` as an array of input `name`'s type (`arrays.checked_array`); one that grows may have strides."""
        tensor = next((t for t in (*self.inputs, *self.unread) if t.name == name), None)
        if tensor is None:
            if name in self.params:
                raise LightNetError(f"param '{name}' is fixed in a saved executable: save one with other weights")
            raise unknown("input", name, self.input_types())
        return checked_array(name, value, tensor.dims, BY_NAME[tensor.dtype], bool(tensor.grows))

    def fed(self, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays of a call, `checked`, without those that nothing reads. Raises `LightNetError` where one is
        missing."""
        arrays = {name: self.checked(name, value) for name, value in feeds.items()}
        self.check_fed(arrays)
        unread = {tensor.name for tensor in self.unread}
        return {name: array for name, array in arrays.items() if name not in unread}

    def check_fed(self, names: Iterable[str]) -> None:
        """Raise LightNetError where an input that a call must feed is not among `names`."""
        fed = set(names)
        if missing := [name for name in self.required if name not in fed]:
            types = {t.name: f"{t.dtype}{list(t.dims)}" for t in self.inputs}
            raise not_fed({name: types.get(name, "?") for name in missing})

    def unreadable(self, name: str) -> LightNetError:
        """The error that says why the tensor `name` cannot be read after a run, and what to do."""
        by = dict(self.overwritten).get(name)
        if by is not None:
            return LightNetError(
                f"output '{name}' is overwritten by '{by}': this plan, as upstream's, keeps nothing that no "
                "op reads; compile with the default plan"
            )
        if name in self.fused:
            return LightNetError(
                f"tensor '{name}' does not exist in the compiled network: a pass (fusion) removed it; keep "
                f"it with outputs=['{name}'] at compile time"
            )
        if name in self.reused:
            return LightNetError(
                f"tensor '{name}' is an intermediate result, whose memory is used again; keep it with "
                f"outputs=['{name}'] at compile time"
            )
        return unknown("tensor", name, [*(t.name for t in self.shown), *self.fused, *self.reused])


def evaluator_of(values: Mapping[str, int]) -> Callable[[Size], Any]:
    """A function from sizes to what they are where symbols have these values: numbers, and themselves where they are of
    other symbols."""
    known: dict[Size, Any] = {}

    def number(size: Size) -> Any:
        if not isinstance(size, Dim):
            return size
        if size not in known:
            try:
                known[size] = at(size, values)
            except KeyError:
                known[size] = size
        return known[size]

    return number


def with_texts(value: Any) -> Any:
    """A JSON value with the texts of sizes for what calls decide."""
    if isinstance(value, dict):
        return {k: with_texts(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(v) for v in value]
    return str(value) if isinstance(value, Dim) else value


def _read_symbols(texts: Iterable[str]) -> dict[str, Dim]:
    """The symbols of a header by name. Raises ValueError for a text of anything else, and a name that stands twice;
    LightNetError for no text of a dim."""
    found: dict[str, Dim] = {}
    for text in texts:
        dim = read_size(text, {}, is_free=True)
        symbols = list(dim.symbols)
        if len(symbols) != 1 or dim != symbols[0].dim or symbols[0].name in found:
            raise ValueError(f"'{text:.80}' is no symbol, or one that stands twice")
        found[symbols[0].name] = dim
    return found


def read_size(size: int | str, known: Mapping[str, Dim], is_free: bool = False) -> Size:
    """A size of a header: a number, or what a text says that the symbols decide (where it `is_free`: others, too)."""
    if not isinstance(size, str):
        return size
    from lightnet.runtime.dim_text import parse_size

    dim = parse_size(size, known, as_written=True)
    if not isinstance(dim, Dim) or not (is_free or {s.name for s in dim.symbols} <= known.keys()):
        raise ValueError(f"'{size:.80}' is no size that the program's symbols decide")
    return dim


def _with_sizes(entry: Mapping[str, Any], known: Mapping[str, Dim], is_free: bool = False) -> dict[str, Any]:
    """The fields of a tensor or a run-time call, its sizes read."""
    offset = {"offset": read_size(entry["offset"], known)} if "offset" in entry else {}
    grows = {"grows": tuple(entry["grows"])} if "grows" in entry else {}
    return {**entry, "dims": tuple(read_size(d, known, is_free) for d in entry["dims"]), **offset, **grows}


def sized(outputs: dict[str, np.ndarray], counts: Sequence[tuple[str, int, str]]) -> dict[str, np.ndarray]:
    """The outputs of a run at their true sizes, and without the counts; `counts` has (output, axis, output that is its
    count)."""
    if not counts:
        return outputs
    found = dict(outputs)
    for name, axis, count in counts:
        if name in found and count in outputs:
            most = found[name].shape[axis]
            part = found[name][(slice(None),) * axis + (slice(min(max(int(outputs[count]), 0), most)),)]
            found[name] = part
    for _, _, count in counts:
        found.pop(count, None)
    return {name: np.ascontiguousarray(a) if a.ndim else a for name, a in found.items()}


def check_counts(program: Program) -> None:
    """Raise ValueError where the counted dims of a program are none of its outputs'."""
    outputs = {t.name: t for t in program.outputs}
    for name, axis, count in program.counts:
        if not 0 <= axis < len(outputs[name].dims) or outputs[count].dims or outputs[count].dtype != "i64":
            raise ValueError(f"'{count}' does not count axis {axis} of '{name}'")


def not_fed(missing: Mapping[str, str]) -> LightNetError:
    """The error for inputs that a call must feed; `missing` maps their names to what they take ("" where that is
    open)."""
    what = ", ".join(f"'{name}'{takes and f' ({takes})'}" for name, takes in missing.items())
    return LightNetError(
        f"the network needs {'inputs' if len(missing) > 1 else 'input'} {what}, which no one fed "
        f"(at the command line: -i {next(iter(missing))}=@file.npy, or -i random)"
    )


def unknown(what: str, name: object, known: Iterable[str]) -> LightNetError:
    """The error for a name that is not there, with those it may be meant for."""
    names = list(known)
    near = alike(str(name), names)
    shown = near or names[:8]
    there = ", ".join(shown) + (", ..." if len(names) > len(shown) else "") if shown else "none"
    return LightNetError(f"no {what} is called '{name}'; there are: {there}{did_you_mean(near)}")
