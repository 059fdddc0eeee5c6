"""The way that a target's networks become code, and are run: a `Runtime` is a field of `Target`, and nothing else
asks which target it is.

A runtime says which options its target has beside those of every target, makes code of launch lists (level 4), and
names the format in which that code is loaded, called and saved (`runtime/formats.py`), what steps through it, and what
files there are of it. This one has no code: the planned network runs in the reference interpreter. Imports the
diagnostics and the runtime, so that the command line knows options before anything else is imported; what a runtime
makes code with, it imports when it makes some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, near
from lightnet.ir.resolving import resolve_beside
from lightnet.runtime.formats import CodeFormat

if TYPE_CHECKING:
    import numpy as np
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp

    from lightnet.executable import Executable
    from lightnet.runtime.program import Program

#: The tools that an option may be one of: those that run networks (`lightnet`, `lightnet run`, `lightnet serve`),
#: `lightnet compile`, `ln-opt`.
RUN, COMPILE, RUN_PASSES = "run", "compile", "passes"
#: What is written to a file: text, bytes, or what writes them.
Content = str | bytes | Callable[[BinaryIO], None]


@dataclass(frozen=True)
class Option:
    """An option of compiling for a target: ``lightnet.compile(model, target, name=value)``, and ``--name`` of `tools`.

    `type` is ``str``, ``int``, ``float`` or ``bool`` (at the command line a flag); `default` is what holds where nobody
    gives it.
    """

    name: str
    help: str
    type: type = str
    default: Any = None
    metavar: str = "NAME"
    tools: tuple[str, ...] = (RUN, COMPILE)

    @property
    def flag(self) -> str:
        """As a command line has it."""
        return f"--{self.name.replace('_', '-')}"

    def checked(self, value: Any) -> Any:
        """The value, of the option's type. Raises `LightNetError` for any other one."""
        takes = (int, float) if self.type is float else self.type
        if isinstance(value, takes) and (self.type is bool or not isinstance(value, bool)):
            return value
        raise LightNetError(f"the option '{self.name}' takes {self.type.__name__}, not {str(value)[:40]!r}",
                            label="runtime.option")  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The settings that a target's options come to in one compilation.

    `runtime` makes the code and runs it (that of another target, where code is made for its machine); `options` has the
    value of each option of the target; `passes` is what passes are told (`features`, `arch`), `behind` which of them
    run behind the lowering; `machine` is what code is made for where that is not the machine that this runs on.
    """

    runtime: Runtime
    options: Mapping[str, Any] = field(default_factory=dict)
    passes: Mapping[str, Any] = field(default_factory=dict)
    behind: tuple[str, ...] = ()
    machine: Any = None


class Files:
    """The files of one executable: what several of them need is made once. `name` is the prefix of symbols in them."""

    def __init__(self, executable: Executable, name: str):
        self.executable, self.name = executable, name

    def make(self, kind: str, path: Path, folder: Path) -> Content:
        """The content of a file of one of the runtime's `files` that is to be called `path`; `folder` is for files on
        the way."""
        raise NotImplementedError

    def beside(self, kind: str) -> dict[str, Content]:
        """Files that one of a kind refers to, and that stand beside it: by their names."""
        return {}


class ThreadRunner(Protocol):
    """Launches as the threads that they are (`Runtime.as_threads`)."""

    @property
    def launches(self) -> Sequence[Any]:
        """The launches of the module, in order: of each launch of loops there is one."""

    def of_call(self, values: Mapping[str, int]) -> ThreadRunner:
        """The same launches where symbols have these values."""

    def cost(self, line: Any) -> int:
        """About how many ops all threads of a launch execute."""

    def run(self, lines: Sequence[Any], spaces: Mapping[str, np.ndarray]) -> None:
        """Run launches on memory spaces, which then hold what they wrote. LightNetError for what is wrong in them."""


class Runtime:
    """The way that networks of a target become code, and run. A target of one's own derives it, and names an object in
    `Target.runtime`.

    `options` are those of the target alone; `files` the kinds of files that there are of its executables beside ``lnx``
    and ``mlir``, with the suffix of each; `shares` says whether the work of one call may be shared by threads of this
    process; `steps` names the class of its steppers (``module:Class``, a heir of `lightnet_debug.steps.Stepper`), where
    it has code.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    files: ClassVar[Mapping[str, str]] = {}
    shares: ClassVar[bool] = False
    steps: ClassVar[str] = ""

    @property
    def format(self) -> CodeFormat:
        """The format in which its code is loaded, called and saved."""
        raise LightNetError("there is no machine code: the reference interpreter runs the network")

    # -- options

    def given(self, target: str, options: Mapping[str, Any], beside: Iterable[str] = ()) -> dict[str, Any]:
        """The options of a caller, checked, without those that are None. Raises `LightNetError` for one that the target
        has not, with those that it has, and for a value of another type. One of another target of ours that has its
        default there says nothing (``emulate=False``). `beside` are names of options that every target has, which
        may have been meant."""
        known = {option.name: option for option in self.options}
        options = {name: v for name, v in options.items() if name in known or not _says_nothing(name, v)}
        for name in options:
            if name not in known:
                there = f"its own are {', '.join(known)}" if known else "it has none of its own"
                hint = _others(name) or near(name, (*known, *beside))
                raise LightNetError(f"target '{target}' has no option '{name:.40}'{hint}; {there}",
                                    label="runtime.option")  # fmt: skip
        return {name: known[name].checked(value) for name, value in options.items() if value is not None}

    def settle(self, given: Mapping[str, Any]) -> Settings:
        """The settings that options come to; `given` are those of `options` that a caller gives. Raises `LightNetError`
        where they do not go together, or name what is not there.
        """
        return Settings(self, self.valued(given))

    def valued(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each option."""
        return {option.name: given.get(option.name, option.default) for option in self.options}

    def here(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a network that is compiled to be run here and now."""
        return dict(given)

    def variants(self, text: str) -> list[dict[str, Any]]:
        """The options of each variant that a list names, in the order in which a file has them. Raises `LightNetError`
        for an unknown name, and where code of the target is for one kind of machine."""
        raise LightNetError("there is one kind of machine that this target's code is for: leave out --variants")

    # -- code

    def make(self, loops: ModuleOp, settings: Settings) -> Any:
        """The code of a module at level 4; `Executable.native` has it. It has the texts `llvm_ir` and `assembly`, as
        far as there are such. Raises `LightNetError` for what there is no code of."""
        raise LightNetError("there is no machine code: the reference interpreter runs the network")

    def facts(self, made: Any, threads: int) -> dict[str, Any]:
        """The fields of a `Program` that its code decides: `objects`, `triple`, `cpu`, `features`, `threads`, `widest`,
        `scratch`. The triple's first word is the row of the format in `runtime.formats`."""
        return {"threads": threads}

    def code(self, made: Any) -> Any:
        """The code that the format loads and packs beside the program."""
        return None

    def holds(self, loops: ModuleOp | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options as they hold of a lowered module, which may say itself what it is for."""
        return dict(options)

    def check_runs(self, program: Program, settings: Settings) -> None:
        """Raise `LightNetError` where this machine does not run a program, which was compiled for another one."""

    def made_all(self, static_bytes: int) -> None:
        """Called once code is made, and before so many bytes of static tensors are filled."""

    # -- looking at it

    def stepper(self, executable: Executable, feeds: Mapping[str, Any]) -> Any:
        """The kernels of an executable, one by one: a `Stepper`."""
        if not self.steps:
            raise executable.no_code("run")
        return resolve_beside(self.steps, "a run kernel by kernel")(executable, feeds)

    def as_loops(self, ctx: Context, module: ModuleOp) -> ModuleOp:
        """A lowered module as functions that the interpreter of loops can run, which `ln-opt --check` does: itself, or
        a copy of other form."""
        return module

    def as_threads(self, module: ModuleOp) -> ThreadRunner | None:
        """The executor of a lowered module's launches as the threads that they are, for `ln-opt --check`; None where
        they are loops."""
        return None

    def writer(self, executable: Executable, name: str) -> Files:
        """The writer of the files of an executable."""
        return Files(executable, name)


def _whose(name: str) -> dict[str, Option]:
    """The targets of ours that have an option of a name."""
    from lightnet.ir.registry import RUNTIMES

    return {target: o for target in RUNTIMES for o in RUNTIMES.get(target).options if o.name == name}


def _says_nothing(name: str, value: Any) -> bool:
    """Return whether a value is what holds of an option of some target where nobody gives it."""
    return any(value is None or value == option.default for option in _whose(name).values())


def _others(name: str) -> str:
    """The target whose option a name is, where the target has it not."""
    whose = _whose(name)
    return f" ('{name}' is of target {' and '.join(whose)})" if whose else ""


#: Of a target without code.
INTERPRETED = Runtime()
