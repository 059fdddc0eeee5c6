"""The judges that say whether a candidate of `ln-reduce` is still interesting: a command of the user's, or a run of a
pipeline.

A judge runs each candidate in a process of its own with a time limit, and ends that with all it has started. Imports
the standard library; a pipeline's judge the compiler, when it judges.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError

if TYPE_CHECKING:
    from lightnet_trust.check import CheckOptions

#: Seconds for one test.
TIMEOUT = 60.0
#: Stands in a command for the candidate's path.
PATH_MARK = "{}"


@dataclass(frozen=True)
class CandidateVerdict:
    """A judge's finding in a candidate: a reduction keeps what equals the finding in the module itself. None is
    nothing; `detail` says why."""

    found: str | None
    detail: str = ""


class Judge(Protocol):
    """Looks at the text of a candidate."""

    def verdict(self, text: str) -> CandidateVerdict: ...


@dataclass(frozen=True)
class CommandJudge:
    """A command that exits with status 0 where the candidate is interesting, as for C-Reduce and mlir-reduce. It gets
    the path of a `.mlir` file in the place of ``{}``, or else as its last argument. No shell reads the command."""

    words: Sequence[str]
    timeout: float = TIMEOUT

    def verdict(self, text: str) -> CandidateVerdict:
        with tempfile.TemporaryDirectory(prefix="ln-reduce-") as folder:
            path = Path(folder) / "candidate.mlir"
            path.write_text(text, "utf-8")
            status = self.status(str(path))
        name = self.words[0]
        if status is None:
            return CandidateVerdict(None, f"'{name}' does not end within {self.timeout:g} s")
        return (
            CandidateVerdict("interesting")
            if status == 0
            else CandidateVerdict(None, f"'{name}' exits with status {status}")
        )

    def status(self, path: str) -> int | None:
        """The exit status for the file at `path`; None if it took too long."""
        words = [w.replace(PATH_MARK, path) for w in self.words]
        if words == list(self.words):
            words.append(path)
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        except (OSError, ValueError) as e:
            raise LightNetError(f"cannot run the test '{self.words[0]}': {getattr(e, 'strerror', None) or e}") from None
        try:
            return process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(process.pid)
            process.wait()


def _end_group(leader: int) -> None:
    """End a process that leads a group, and all that is left of the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


@dataclass(frozen=True)
class PipelineJudge:
    """A pipeline that fails. ``crash``: with the same message, but for numbers and SSA names, or in the same way, where
    it takes the process with it or does not end. ``check``: `--check`, with the options `check`, finds that the
    same pass, by the same pattern, changes a result."""

    kind: str
    pipeline: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = TIMEOUT
    check: CheckOptions | None = None

    def verdict(self, text: str) -> CandidateVerdict:
        return _in_child(lambda: self.judge(text), self.timeout, self.kind == "crash")

    def judge(self, text: str) -> CandidateVerdict:
        """The verdict, in this process. Raises `LightNetError` for a candidate that is no module."""
        from lightnet.frontends import mlir
        from lightnet.ir.context import make_context
        from lightnet.ir.passes import parse_pipeline, run_pipeline

        ctx = make_context()
        passes = parse_pipeline(self.pipeline, self.defaults)
        module = mlir.read(text, "candidate.mlir", ctx)
        if self.kind == "check":
            return self.checked(ctx, module, passes)
        try:
            run_pipeline(ctx, module, passes, verify_each=True)
        except LightNetError as e:
            return CandidateVerdict(finding_of(e), e.message)
        return CandidateVerdict(None, f"the passes '{self.pipeline}' run without an error")

    def checked(self, ctx: Any, module: Any, passes: Sequence[Any]) -> CandidateVerdict:
        """The pass and pattern that change a result, and whether it is a value, an effect, the interface or memory."""
        from lightnet_trust.check import CheckOptions, run_checked

        verdict = run_checked(ctx, module, passes, self.check or CheckOptions())
        if verdict.difference is None or verdict.error is None:
            notes = "".join(f" ({note})" for note in verdict.notes)
            return CandidateVerdict(None, f"--check finds no pass of '{self.pipeline}' that changes a result{notes}")
        return CandidateVerdict(finding_of(verdict.error), verdict.error.message)


def finding_of(error: LightNetError) -> str:
    """The part of an error that stays when a module gets smaller: of a check, the pass, the pattern, and whether a
    value, an effect, the interface or memory changed; else its label, and the head of its message."""
    from lightnet_trust.check import CheckError

    if isinstance(error, CheckError):
        pattern = error.rewrite.pattern if error.rewrite is not None else None
        return ", ".join(map(str, (error.pass_name, pattern, error.difference.kind)))
    return f"{error.label or ''}: {head(error.message)}"


def head(message: str) -> str:
    """The part that stays of a message when sizes and SSA names change: its first line without them."""
    return re.sub(r"%[\w.]+|\d+", "#", message.split("\n", 1)[0])


def _in_child(work: Callable[[], CandidateVerdict], limit: float, death_counts: bool) -> CandidateVerdict:
    """The verdict that `work` returns, run in a fork of this process. With `death_counts`, that it kills the process,
    or does not end within `limit` seconds, is a finding as well.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    process = context.Process(target=_serve, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            text = f"the passes do not end within {limit:g} s"
            return CandidateVerdict(text if death_counts else None, text)
        return ours.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        text = f"the passes end the process: {signal.Signals(-code).name if code < 0 else f'exit status {code}'}"
        return CandidateVerdict(text if death_counts else None, text)
    finally:
        ours.close()
        assert process.pid is not None
        _end_group(process.pid)
        process.kill()
        process.join()


def _serve(work: Callable[[], CandidateVerdict], pipe: Connection) -> None:
    os.setsid()
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what passes print is nobody's here
        os.dup2(quiet, stream)
    try:
        verdict = work()
    except LightNetError as e:
        verdict = CandidateVerdict(None, e.message)
    pipe.send(verdict)
    pipe.close()
