"""Networks whose shapes a call decides: one executable for all calls, and one for each set of shapes and deciding
values where that is not enough, made when it is first needed.

An ONNX model may leave dims of its inputs open, and may compute shapes from the values of inputs (the `shape` of a
Reshape). `lightnet.compile` then gives a `SpecializingExecutable`. Where the dims can be symbols and what runs on them
is fast, it has a *general* executable, which is compiled once. For other networks, and for dims beyond the ranges of
that one, each call reads the open dims and the deciding values off what it is fed, and runs the executable that is
compiled for just these. The last few are kept. Imports the compiler and the front ends.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lightnet.backends.open_rows import open_rows_of
from lightnet.compiled import Compiled
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.conv import Conv2d
from lightnet.executable import Executable
from lightnet.frontends.loading import OpenError
from lightnet.ir.body import choice
from lightnet.ir.instances import is_open, typical_op
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.target import get_target
from lightnet.model import Model
from lightnet.runtime.arrays import as_array, checked_array
from lightnet.runtime.calls import Invocation
from lightnet.runtime.dims import is_known
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.program import not_fed, unknown
from lightnet.runtime.threads import Threads

#: Executables that are kept, the last used ones.
CAPACITY = 16
#: Errors of the general executable that say that a call is not for it: of dims out of their ranges, or that it takes to
#: be equal.
BEYOND = ("feed.range", "feed.shape")
#: Operations for each element that is read or written from which on it matters by which algorithm a kernel runs.
HEAVY = 16

T = TypeVar("T")

Key = tuple[tuple[str, tuple[int, ...], bytes | None], ...]


class SpecializingExecutable(Compiled):
    """Called like an `Executable`; compiles itself for the shapes and values that it is called with, by `compile`:
    `lightnet.compile` and its options, unless `general` takes them. What there is one of, it has where that is there:
    a plan, a program, a file.

    `deciding` are the inputs whose values have turned out to decide shapes. It goes to other processes (`pickle`) as
    the path or the bytes of its model, which is read and compiled again there.
    """

    def __init__(
        self,
        opened: OpenError,
        compile: partial[Any],
        source: Any,
        general: Executable | None,
    ):
        self._general = general
        self._again, self._compile = opened.again, compile
        self._source = _source_of(opened)
        self._made_of, self._options = source, compile.keywords
        self.signature = dict(opened.signature)
        self.deciding = {name for name in opened.inputs if _is_closed(self.signature[name][1])}
        self._cache: OrderedDict[Key, Executable] = OrderedDict()
        self._lock = threading.RLock()
        self._made, self._making = threading.Condition(self._lock), set[Key]()
        self._is_closed = False

    @property
    def _quick(self) -> Any:  # type: ignore[override]  # the general executable's, which says when
        return self._general and self._general._quick

    def _run(self, call: Invocation) -> dict[str, np.ndarray]:
        return self._of_call(call.feeds, lambda executable, feeds: executable._run(call._replace(feeds=feeds)))

    def _out_types(self, feeds: Mapping[str, Any]) -> Any:
        return self._of_call(feeds, lambda executable, known: executable._out_types(known))

    def _of_call(self, feeds: Mapping[str, Any], use: Callable[[Executable, dict[str, Any]], T]) -> T:
        """Call `use` with the executable that these feeds are for, and those of them that it takes."""
        self._check_open()
        if self._general is not None and feeds.keys() == self.signature.keys():
            try:
                return use(self._general, _taken(feeds, self._general))
            except LightNetError as e:
                if e.label not in BEYOND:
                    raise
        special = self._special(feeds)
        return use(special, _taken(feeds, special))

    def __reduce__(self) -> Any:
        self._check_open()
        if isinstance(self._made_of, OpenError | None):
            raise LightNetError(
                "an executable whose shapes are open goes to other processes as the path of its model, and this one "
                "has none"
            )
        source = os.path.abspath(self._made_of) if isinstance(self._made_of, str | os.PathLike) else self._made_of
        return self._compile, (source,)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            for executable in self._all():
                executable.close()
            self._cache.clear()

    @property
    def options(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self._options.items()
            if value is not None and value is not False and value != ()
        }

    @property
    def threads(self) -> int:
        return Threads.asked(self._options.get("threads")).used

    @property
    def warnings(self) -> list[str]:
        """The oddities of the weights and the plan, of all that has been compiled so far."""
        return list(dict.fromkeys(w for e in self._all() for w in e.warnings))

    @property
    def params(self) -> dict[str, Any]:
        """Shape and dtype of every param by name, as far as something has been compiled."""
        return {name: kind for e in self._all() for name, kind in e.params.items()}

    @property
    def outputs(self) -> dict[str, tuple[tuple[int | None, ...] | None, np.dtype]]:
        """Shape and dtype of every output by name, with open dims; where each set of shapes has an executable, as far
        as something has been compiled, and None where it has differed."""
        if self._general is not None:
            return dict(self._general.outputs)
        found: dict[str, Any] = {}
        for executable in self._all():
            for name, (dims, dtype) in executable.outputs.items():
                found[name] = _either(found[name][0] if name in found else dims, dims), dtype
        return found

    def _all(self) -> list[Executable]:
        """The executables that have been compiled so far, and are kept."""
        return [*([] if self._general is None else [self._general]), *self._cache.values()]

    @property
    def missing(self) -> list[str]:
        return list(dict.fromkeys(name for e in self._all() for name in e.missing))

    @property
    def weight_warnings(self) -> list[str]:
        return list(dict.fromkeys(w for e in self._all() for w in e.weight_warnings))

    @property
    def plan(self) -> Any:
        return self._one("memory plan", "plan").plan

    @property
    def planned(self) -> Any:
        return self._one("planned module", "planned").planned

    @property
    def program(self) -> Any:
        return self._one("program", "program").program

    def ir(self, stage: str | None = None) -> str:
        return self._one("module", "ir(stage)").ir(stage)

    def _save(self, path: str | Path, variants: Sequence[Any], sign: Any, texts: dict[str, str]) -> None:
        self._one("file", "save(path)")._save(path, variants, sign, texts)

    def _one(self, what: str, how: str) -> Executable:
        if self._general is None:
            raise LightNetError(
                f"there is a {what} for each set of shapes: `specialized(feeds).{how}`", label="specialize.each"
            )
        return self._general

    def specialized(self, feeds: Mapping[str, Any] | None = None) -> Executable:
        return self._of_call(feeds or {}, lambda executable, known: executable.specialized(known))

    def _special(self, feeds: Mapping[str, Any]) -> Executable:
        """The executable that is compiled for just the shapes and the deciding values of these feeds."""
        given = {name: self._checked(name, value) for name, value in feeds.items()}
        if missing := [name for name in self.signature if name not in given]:
            raise not_fed(dict.fromkeys(missing, ""))
        arrays = {name: given[name] for name in self.signature}  # in one order, whatever that of the feeds
        while True:
            with self._made:
                deciding = frozenset(self.deciding)
                key = self._key(arrays, deciding)
                if (found := self._cache.get(key)) is not None:
                    self._cache.move_to_end(key)
                    return found
                if key in self._making:  # by another thread: its executable, or its failure and a try of our own
                    self._made.wait()
                    continue
                self._making.add(key)
            try:
                found = self._compiled(arrays, deciding)
                if found is not None:
                    with self._lock:
                        self._cache[key] = found
                        while len(self._cache) > CAPACITY:
                            self._cache.popitem(last=False)
                    return found
            finally:
                with self._made:
                    self._making.discard(key)
                    self._made.notify_all()

    def _compiled(self, arrays: Mapping[str, np.ndarray], deciding: frozenset[str]) -> Executable | None:
        """The executable for these shapes and values, compiled unlocked, so that calls that are compiled already need
        not wait; None where it turns out that more values decide, which are noted."""
        values = {n: arrays[n] for n in deciding}
        shapes = {n: a.shape for n, a in arrays.items() if n not in deciding}
        try:
            module, weights = self._again(shapes, values)
        except OpenError as e:
            if e.inputs <= deciding:
                raise
            with self._lock:
                self.deciding |= e.inputs
            return None
        return self._compile(Model(module, self._source, weights, brings_weights=weights is not None))

    @staticmethod
    def _key(arrays: Mapping[str, np.ndarray], deciding: frozenset[str]) -> Key:
        return tuple((n, a.shape, a.tobytes() if n in deciding else None) for n, a in sorted(arrays.items()))

    def _checked(self, name: str, value: Any) -> np.ndarray:
        if name not in self.signature:
            raise unknown("input", name, self.signature)
        dtype, _ = self.signature[name]
        if dtype not in BY_NAME:
            raise LightNetError(f"input '{name}' has type {dtype}, which is not supported")
        array = as_array(name, value)
        return checked_array(name, array, array.shape, BY_NAME[dtype])

    @property
    def is_native(self) -> bool:
        """True if there is machine code for everything compiled so far."""
        return all(e.is_native for e in self._all())

    @property
    def inputs(self) -> dict[str, tuple[tuple[int | str | None, ...] | None, np.dtype]]:
        """Shape (an open dim is None or its name) and dtype of every input by name, in order."""
        return {n: (dims, BY_NAME[dtype].np) for n, (dtype, dims) in self.signature.items() if dtype in BY_NAME}


def general_of(opened: OpenError, compile: Callable[[Model], Executable], asked: str) -> Executable | None:
    """The executable of an open network for all calls whose dims are in the default ranges. None where there is none:
    values decide, the target wants numbers, or a kernel that multiplies much is several times as fast where dims are
    numbers. Where it is `asked` for, by an option of that name, it may
    be slow, and LightNetError says why there is none."""
    if opened.named is None:
        if asked:
            raise LightNetError(f"{asked}: values decide shapes of this network", label=f"compile.{asked}")
        return None
    try:
        module, weights = opened.named(lambda loc, message: None)
        found = compile(Model(module, _source_of(opened), weights, brings_weights=weights is not None))
    except LightNetError:
        if asked:
            raise
        return None
    if asked:
        return found
    target = get_target(found.options["target"])
    last = {g.alg for g in (target.generators.in_order() if target.generators is not None else ()) if g.takes_all}
    slow = (_is_slow(op, last) for op in found.planned.walk() if isinstance(op, KernelOp))
    return None if not found.is_native or any(slow) else found


def _is_slow(kernel: KernelOp, last: Collection[str]) -> bool:
    """Return whether an open kernel does `HEAVY` operations or more for each element that it reads and writes, and
    runs on a generator of last resort, or, over a height or width, on plain maps, where numbers have faster ones."""
    if not is_open((*kernel.operands, *kernel.results)):
        return False
    if is_plain(kernel) and open_rows_of(kernel.ops) is not None:
        return False  # generators of static kernels have been asked for it, row by row
    windows = (op.operand_specs[0].dims[2:] for op in kernel.ops if isinstance(op, Conv2d)) if is_plain(kernel) else ()
    if choice(kernel, "alg") not in last and all(map(is_known, windows)):
        return False
    ops = [typical_op(op) for op in kernel.ops]
    return any(op.flops() >= HEAVY * sum(s.len for s in (*op.operand_specs, *op.result_specs)) for op in ops)


def _source_of(opened: OpenError) -> str:
    return opened.loc.file if opened.loc is not None else "<model>"


def _taken(feeds: Mapping[str, Any], executable: Executable) -> dict[str, Any]:
    return {name: value for name, value in feeds.items() if name in executable.inputs}


def _is_closed(dims: tuple[int | str | None, ...] | None) -> bool:
    return dims is not None and all(isinstance(d, int) for d in dims)


def _either(dims: tuple[int | None, ...] | None, other: tuple[int, ...]) -> tuple[int | None, ...] | None:
    if dims is None or len(dims) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(dims, other))
