"""Programs that a test interrupts as Ctrl-C does."""

import signal


def take_interrupts() -> None:
    """Let a new process take SIGINT (`preexec_fn` of subprocess): what a shell starts in the background ignores it, and so would
    its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
