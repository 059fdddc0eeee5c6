"""Programs that a test interrupts as Ctrl-C does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that takes SIGINT, and that is gone behind the block, whatever happened in it."""
    process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, preexec_fn=take_interrupts, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def take_interrupts() -> None:
    """Let a new process take SIGINT (`preexec_fn` of subprocess): what a shell starts in the background ignores it, and so would
    its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
