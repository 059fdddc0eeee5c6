"""Rewrites that are counted, can be seen, and can be stopped: what tracing, checking and bisecting a pipeline stand on.

A pass that changes the module in steps announces each of them:

    step = rewrites.begin("merge-kernels", [producer, consumer])    # None: the limit is reached, leave it
    ...                                                              # rewrite
    step.done([kernel])

`rewriting.rewrite_greedily` does so for every pattern, `expand` for its own. Without a listener that costs a count. A
step that its pass cannot do without (`expand` puts a kernel around each op) is `required`: no limit stops it, so that a
module whose rewrites are cut off still goes through the rest of the pipeline. Imports xDSL's printer and the lower
modules of `ir`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import ErasedSSAValue, Operation, SSAValue
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import MEMORY, unplan
from lightnet.ir.names import PLACES, name_of, tensor_names


@dataclass(frozen=True)
class Rewrite:
    """One application of a pattern, number `number` (from 1) of the run, in the pass `pass_name`.

    `where` and `root` say which op it matched. `before` has a line of text for each op that it matched or removed, the
    root first, `after` for each op (or value) that is there instead; both are empty unless a listener wants texts.
    `law` is what the pattern says that it rests on where it is right in real numbers only.
    """

    number: int
    pass_name: str
    pattern: str
    where: SourceLoc | None
    root: str
    required: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    law: str | None = None

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"rewrite {self.number}: pattern '{self.pattern}' of pass '{self.pass_name}' on {self.root}{at}"


class Listener(Protocol):
    """A listener that is told of rewrites. The module is consistent when `rewrote` is called; what that raises ends the
    pass.
    """

    wants_text: bool

    def rewrote(self, rewrite: Rewrite) -> None: ...


class FilePattern(RewritePattern):
    """A pattern that a file or a description says: `name`, and the pass and the target that it is for."""

    name: ClassVar[str]
    pass_name: ClassVar[str]
    target: ClassVar[str]


class Disabled:
    """Names of passes and patterns that are switched off, and those of them that came up."""

    def __init__(self, names: Iterable[str] = ()):
        self.names = frozenset(names)
        self.met: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.names)

    def has(self, name: str) -> bool:
        """Return whether a name is among them; it has come up now."""
        if name not in self.names:
            return False
        self.met.add(name)
        return True

    @property
    def unknown(self) -> list[str]:
        """The names that nothing had."""
        return sorted(self.names - self.met)


_DISABLED: ContextVar[Disabled] = ContextVar("disabled", default=Disabled())  # noqa: B039 (of nothing: it is never changed)


@contextmanager
def disabling(names: Iterable[str]) -> Iterator[Disabled]:
    """Switch passes and patterns off by name, in all that runs inside of the block: pipelines leave the passes out, and
    do no rewrite by the patterns. One that a pass cannot do without is a `LightNetError` when it comes up."""
    disabled = Disabled(names)
    token = _DISABLED.set(disabled)
    try:
        yield disabled
    finally:
        _DISABLED.reset(token)


def is_disabled(name: str) -> bool:
    """Return whether a pass or a pattern is switched off now."""
    return _DISABLED.get().has(name)


def enabled(patterns: Sequence[RewritePattern]) -> list[RewritePattern]:
    """The patterns that are not switched off."""
    return [p for p in patterns if not is_disabled(pattern_name(p))] if _DISABLED.get() else list(patterns)


class Rewrites:
    """The rewrites of one run: a count, who listens, and after how many to stop (None: never)."""

    def __init__(self, listeners: Iterable[Listener] = (), limit: int | None = None):
        self.listeners = tuple(listeners)
        self.limit = limit
        self.count = 0
        self.pass_name = ""
        self.wants_text = any(listener.wants_text for listener in self.listeners)
        self.disabled = _DISABLED.get()
        #: Listeners that are told of each pattern that leaves an op as it is: ``left(pattern, op, rewriter)``.
        self.curious: list[Any] = [listener for listener in self.listeners if getattr(listener, "wants_misses", False)]

    @property
    def stopped(self) -> bool:
        """True if the limit is reached: no further rewrite but required ones."""
        return self.limit is not None and self.count >= self.limit

    def begin(self, pattern: str, ops: Sequence[Operation], *, required: bool = False) -> RewriteStep | None:
        """Announce a rewrite of `ops`, the op that it matched first; None where the limit forbids it."""
        if self.stopped and not required:
            return None
        if self.disabled and self.disabled.has(pattern):
            if required:
                text = f"'{pattern}' cannot be switched off: pass '{self.pass_name}' cannot do without it"
                raise LightNetError(text, label="pipelines.disable")
            return None
        return RewriteStep(self, pattern, ops, required)


class RewriteStep:
    """A rewrite that is going on: `done` ends it. One that is dropped has not happened."""

    def __init__(self, run: Rewrites, pattern: str, ops: Sequence[Operation], required: bool):
        self._run, self._pattern, self._required = run, pattern, required
        self._law: str | None = None
        if not run.listeners:
            return
        self._where, self._root = loc_of(ops[0]), op_and_name(ops[0])
        self._lines = _Lines()
        self._before = [self._lines.op(op) for op in ops] if run.wants_text else []

    def named(self, pattern: RewritePattern) -> RewriteStep:
        """The same step under the name, and the law, of the pattern that matched."""
        self._pattern, self._law = pattern_name(pattern), getattr(pattern, "law", None)
        return self

    def removing(self, op: Operation) -> None:
        """Tell of a further op that goes away, before it does."""
        if self._run.wants_text and (line := self._lines.op(op)) not in self._before:
            self._before.append(line)

    def done(self, new: Sequence[Operation | SSAValue] = ()) -> None:
        """The rewrite has happened: `new` is what is there instead."""
        run = self._run
        run.count += 1
        _drop_stale_plan(new)
        if not run.listeners:
            return
        after = tuple(map(self._lines.of, new)) if run.wants_text else ()
        rewrite = Rewrite(
            run.count, run.pass_name, self._pattern, self._where, self._root, self._required, tuple(self._before),
            after, self._law,
        )  # fmt: skip
        for listener in run.listeners:
            listener.rewrote(rewrite)


def _drop_stale_plan(new: Sequence[Operation | SSAValue]) -> None:
    """A plan is of all values: where a rewrite of a planned module made new ones, which have no place, it is
    dropped."""
    for op in new:
        if not isinstance(op, Operation) or not op.results or PLACES in op.attributes:
            continue
        main = op.parent_op()  # what stands in a kernel has no place of its own
        module = main.parent_op() if isinstance(main, FuncOp) else None
        if isinstance(module, ModuleOp) and MEMORY in module.attributes:
            unplan(module)


_CURRENT: ContextVar[Rewrites] = ContextVar("rewrites", default=Rewrites())  # noqa: B039 (counts of nobody's run)


def current() -> Rewrites:
    """The run that rewrites belong to now; one without listeners or limit where nobody records."""
    return _CURRENT.get()


def begin(pattern: str, ops: Sequence[Operation], *, required: bool = False) -> RewriteStep | None:
    """`Rewrites.begin` of the current run."""
    return _CURRENT.get().begin(pattern, ops, required=required)


@contextmanager
def recording(rewrites: Rewrites) -> Iterator[Rewrites]:
    """Let the rewrites of a block belong to `rewrites`."""
    token = _CURRENT.set(rewrites)
    try:
        yield rewrites
    finally:
        _CURRENT.reset(token)


class Match:
    """An op, and the pattern that is looking at it."""

    __slots__ = ("op", "pattern")

    def __init__(self, op: Operation):
        self.op = op
        self.pattern: RewritePattern | None = None

    def __str__(self) -> str:
        return f"in pattern '{pattern_name(self.pattern) if self.pattern else ''}' on {op_and_name(self.op)}"


@contextmanager
def matching_on(op: Operation) -> Iterator[Match]:
    """Patterns look at `op`, each named in `Match.pattern` before it does. Ctrl-C becomes an error that names op and
    pattern, as a match may never end; another exception gets to know where it came from (`crash_place`)."""
    global _matching
    _matching = match = Match(op)
    try:
        yield match
    except KeyboardInterrupt:
        raise LightNetError(f"interrupted {match}", loc_of(op), label="rewrite.interrupted") from None
    except LightNetError:
        raise
    except Exception as e:
        vars(e)[_PLACE] = (loc_of(op), str(match))
        raise
    finally:
        _matching = None


#: The attribute of an exception for `crash_place`.
_PLACE = "lightnet_place"


def crash_place(error: Exception) -> tuple[SourceLoc | None, str] | None:
    """The op that was matched and the pattern, as a note, where `error` left a pattern."""
    return vars(error).get(_PLACE)


#: The match that is going on, for who watches how long it takes.
_matching: Match | None = None


def matching() -> Match | None:
    """The match that is going on: the same object as long as patterns look at one op; None in between."""
    return _matching


def pattern_name(pattern: RewritePattern | type[RewritePattern]) -> str:
    """The name of a pattern: the `name` of its class if it has one, else that of the class itself."""
    cls = pattern if isinstance(pattern, type) else type(pattern)
    name = getattr(cls, "name", None)
    return name if isinstance(name, str) else cls.__name__


def op_and_name(op: Operation) -> str:
    """A short name of an op: ``ln.relu "relu0"``, after its first tensor where the source gives it no name."""
    name = name_of(op) or next((n for n in tensor_names(op) if n), None)
    if name is not None:
        return f'{op.name} "{name}"'
    hint = op.results[0].name_hint if op.results else None
    return f"{op.name} %{hint}" if hint else op.name


class _Lines(Printer):
    """Ops as one line of text each, with the same names for the same values. Values that follow each other under one
    name (a result and what replaces it) are printed under that name both."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self._numbers: dict[SSAValue, str] = {}

    def print_ssa_value(self, value: SSAValue) -> str:
        name = "<removed>" if isinstance(value, ErasedSSAValue) else value.name_hint
        if name is None:
            name = self._numbers.setdefault(value, str(len(self._numbers)))
        self.print_string(f"%{name}")
        return name

    def of(self, new: Operation | SSAValue) -> str:
        """The line of an op, or the name of a value."""
        if isinstance(new, Operation):
            return self.op(new)
        self.stream = io.StringIO()
        self.print_ssa_value(new)
        return self.stream.getvalue()

    def op(self, op: Operation) -> str:
        """The line of an op; one with a region has its ops in it, too."""
        self.stream = io.StringIO()
        self.print_op(op)
        return " ".join(line.strip() for line in self.stream.getvalue().split("\n"))
