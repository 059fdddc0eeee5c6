"""The common part of all command-line tools: exit codes, usage errors, writing files. Imports no xDSL and no numpy, to
start fast.

A tool is a function `main(argv) -> int` and an entry point that passes it through `run_tool`.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from lightnet.cli.warning import show_warning
from lightnet.diagnostics import DescriptionWarning, LightNetError, did_you_mean, near, needs_compiler
from lightnet.plugins import release
from lightnet.plugins.installed import PluginWarning
from lightnet.runtime.files import write_atomic

__all__ = ["ToolParser", "run_tool", "write_atomic"]


def run_tool(main: Callable[[list[str]], int], argv: list[str] | None = None) -> int:
    """Call `main` with the arguments (those of the process if None); the exit status.

    A LightNetError is printed on stderr and gives 1, as does running out of memory; a reader that went away gives 1 in
    silence; an interrupt gives 130. Anything else is a bug of ours and keeps its traceback.
    """
    shown = warnings.showwarning
    warnings.showwarning = _warned(shown)
    try:
        try:
            status = main(sys.argv[1:] if argv is None else argv)
        except ImportError as e:
            raise needs_compiler(e) or e from None
        sys.stdout.flush()
        return status
    except LightNetError as e:
        sys.stdout.flush()
        print(e.render().encode("utf-8", "replace").decode("utf-8"), file=sys.stderr)
        return 1
    except MemoryError:
        print("error: out of memory", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Python flushes stdout again at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        warnings.showwarning = shown
        release()
        if argv is None:  # the process ends, and the interpreter would walk through all that is alive, in vain
            atexit.register(gc.freeze)


def _warned(show: Callable[..., None]) -> Callable[..., None]:
    """A tool's way to show Python's warnings: ours in one line, as its own, all others through `show`."""

    def warned(message: Warning | str, category: type[Warning], *place: object) -> None:
        if isinstance(message, DescriptionWarning):
            show_warning(message.message, message.loc, message.kind)
        elif issubclass(category, PluginWarning):
            show_warning(str(message))
        else:
            show(message, category, *place)

    return warned


class ToolParser(argparse.ArgumentParser):
    """An argument parser whose usage errors are ordinary errors: ``error: ...`` and exit status 1. Options may
    stand anywhere."""

    def error(self, message: str) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings]
        _, found, words = message.partition("unrecognized arguments: ")
        if not found or not (unknown := next((w for w in words.split() if w.startswith("-")), "")):
            self.exit(1, f"error: {message}\n{self.format_usage()}")
        name = unknown.partition("=")[0]
        bare = "-" + name.removeprefix("-").removeprefix("-mlir")
        said = [option for option in (bare, bare.removesuffix("-all")) if option in known][:1]
        hint = did_you_mean(said) or near(name, known)
        self.exit(1, f"error: unknown option '{name}'{hint or '; --help lists those that there are'}\n")
