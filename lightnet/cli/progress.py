"""The progress that a tool shows on a terminal while it works: a line that changes, by the package rich where that is
installed. Where stderr is no terminal, nothing. Imports rich when something is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def terminal() -> Any:
    """A console of rich for stderr; None where that is no terminal, or rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal else None


@contextmanager
def stages(what: str) -> Iterator[Callable[[str], None]]:
    """Show the stage of some work, and the seconds since it began; the function says which it is."""
    console = terminal()
    if console is None:
        yield lambda stage: None
        return
    from rich.markup import escape

    begin, name = time.perf_counter(), escape(what)
    with console.status(name) as status:
        yield lambda stage: status.update(f"{name}: {escape(stage)} (after {time.perf_counter() - begin:.0f} s)")
