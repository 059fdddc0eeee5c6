"""The way that a runtime runs a case, and the verdict: LightNet's cpu target, ONNX Runtime and ONNX's reference
evaluator.

A runner is a class with `prepare(problem)`, which gives a function from feeds to outputs by name, and what is particular to
it. Every runner is compared in the same way, by the suite's own comparison. Imports a runtime only when it is asked to run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
from compare_onnxruntime import WIDE_SUMS

from suites.cases import Case, Feeds, Problem

Run = Callable[[Feeds], dict[str, Any]]

PASS, WRONG, UNSUPPORTED, ERROR, TIMEOUT, CRASH = STATUSES = (
    "pass",
    "wrong",
    "unsupported",
    "error",
    "timeout",
    "crash",
)


@dataclass(frozen=True)
class Result:
    """The result of a case. `detail` is the error or the reason; `folded` says that no kernel was left to run: every
    output was a constant once the inputs that decide shapes were known; `hosted`, that the host part made the outputs,
    as of ops on text.
    """

    status: str
    detail: str = ""
    seconds: float = 0.0
    folded: bool = False
    hosted: bool = False


class Unsupported(Exception):
    """The runtime refuses the model in so many words."""


class LightNet:
    """LightNet's target `cpu`. A result counts only where machine code made it."""

    name = "LightNet"
    package = "lightnet"

    @staticmethod
    def prepare(problem: Problem) -> Run:
        import lightnet
        from lightnet_debug.steps import specialized

        with refusals():
            if isinstance(problem.model, onnx.ModelProto):
                executable = lightnet.compile(problem.model.SerializeToString())
            else:
                executable = lightnet.compile(lightnet.load(problem.model, problem.weights, problem.shapes))

        def run(feeds: Feeds) -> dict[str, Any]:
            with refusals():
                outputs = executable(feeds)
            with_host = hasattr(executable, "host")
            program, _ = specialized(executable, feeds)
            if not program.is_native:
                raise RuntimeError("no machine code: the interpreter made the outputs")
            idle = is_folded(program.planned)
            run.folded, run.hosted = idle and not with_host, idle and with_host
            return outputs

        return run


@contextmanager
def refusals() -> Iterator[None]:
    """LightNet's refusals as `Unsupported`. The models are valid: any other message about them is a bug of ours."""
    from lightnet.diagnostics import LightNetError

    try:
        yield
    except LightNetError as e:
        if (e.label or "").endswith(".unsupported") or "not supported" in e.message:
            raise Unsupported("; ".join(text for _, text in e.notes) or e.message) from e
        raise


def is_folded(planned: Any) -> bool:
    """Return whether a planned module has nothing left to compute."""
    from lightnet.ir.kernel import KernelOp

    return not any(isinstance(op, KernelOp) for op in planned.walk())


class OnnxRuntime:
    """ONNX Runtime's CPU provider, one thread, its optimisations on."""

    name = "ONNX Runtime"
    package = "onnxruntime"

    @staticmethod
    def prepare(problem: Problem) -> Run:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry(*WIDE_SUMS)
        try:
            session = ort.InferenceSession(
                problem.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as e:
            raise Unsupported(str(e)) from e
        names = [o.name for o in session.get_outputs()]
        return lambda feeds: dict(zip(names, session.run(names, feeds)))


class Reference:
    """`onnx.reference.ReferenceEvaluator`: ONNX's own, in NumPy."""

    name = "ONNX reference"
    package = "onnx"

    @staticmethod
    def prepare(problem: Problem) -> Run:
        from onnx.reference import ReferenceEvaluator

        try:
            evaluator = ReferenceEvaluator(problem.model)
        except Exception as e:
            raise Unsupported(f"{type(e).__name__}: {e}") from e
        names = [v.name for v in problem.model.graph.output]
        absent = {v.name: None for v in problem.model.graph.input if v.type.HasField("optional_type")}
        return lambda feeds: dict(zip(names, evaluator.run(names, {**absent, **feeds})))


RUNNERS: dict[str, Any] = {"lightnet": LightNet, "onnxruntime": OnnxRuntime, "reference": Reference}


def installed() -> list[str]:
    """The runners whose package is there."""
    return [name for name, runner in RUNNERS.items() if find_spec(runner.package) is not None]


def judge(runner: str, case: Case) -> Result:
    """Run a case. Crashes, and what never ends, are for the caller (suites/pool.py) to deal with."""
    start = time.perf_counter()
    status, detail, run = _judge(runner, case)
    facts = {name: getattr(run, name, False) for name in ("folded", "hosted")}
    return Result(status, one_line(detail), time.perf_counter() - start, **facts)


def _judge(runner: str, case: Case) -> tuple[str, str, Any]:
    """Status, detail, and of a case that passes what ran it."""
    run: Any = None
    try:
        problem = case.load()
        run = RUNNERS[runner].prepare(problem)
        for feeds, expected in problem.sets:
            got = run(feeds)
            difference = compare(problem, expected, got)
            if difference:
                return WRONG, difference, None
    except Unsupported as e:
        return UNSUPPORTED, str(e), None
    except MemoryError:
        return ERROR, "out of memory", None
    except Exception as e:  # the runtime's bug, whatever it is
        return ERROR, f"{type(e).__name__}: {e}", None
    return PASS, "", run


def compare(problem: Problem, expected: dict[str, Any], got: dict[str, Any]) -> str:
    """The difference, or nothing: every output, its dtype, its shape and its values."""
    if list(got) != list(expected):
        return f"has outputs {list(got)}, not {list(expected)}"
    got = problem.align(got)
    for name, want in expected.items():
        difference = _type_differs(got[name], want)
        if not difference and problem.of_largest is not None:
            difference = _relative(got[name], want, problem.of_largest)
        elif not difference:
            difference = _by_the_suite(got[name], want, problem.rtol, problem.atol)
        if difference:
            return f"{name} {difference}"
    return ""


def _type_differs(have: Any, want: Any) -> str:
    if want is None:
        return "" if have is None else "is there, and should be absent"
    if not isinstance(want, np.ndarray) or want.dtype == object:
        return ""  # sequences and strings: the suite's comparison looks at them
    if not isinstance(have, np.ndarray | np.generic):
        return f"is {type(have).__name__}, not an array"
    if (have.dtype, have.shape) != (want.dtype, want.shape):
        return f"is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
    return ""


def _by_the_suite(have: Any, want: Any, rtol: float, atol: float) -> str:
    from onnx.backend.test.runner import Runner

    if want is None:
        return ""
    try:
        Runner.assert_similar_outputs([want], [have], rtol, atol)
    except (AssertionError, TypeError, ValueError, AttributeError) as e:
        return f"differs by {error_of(have, want)}" if isinstance(want, np.ndarray) else one_line(str(e))
    return ""


def _relative(have: np.ndarray, want: np.ndarray, tolerance: float) -> str:
    limit = tolerance * max(float(np.abs(want).max(initial=0)), 1e-30)
    off = float(np.abs(have.astype(np.float64) - want).max(initial=0))
    return "" if off <= limit else f"differs by {error_of(have, want)}"  # a NaN fails, too


def error_of(have: Any, want: np.ndarray) -> str:
    """The largest difference, in words."""
    try:
        a, b = np.asarray(have).astype(np.float64), want.astype(np.float64)
        wrong_nans = int((np.isnan(a) != np.isnan(b)).sum())
        both = np.isfinite(a) & np.isfinite(b)
        off = np.abs(a - b)[both]
    except (TypeError, ValueError):
        return "other values"
    infinite = int(((a != b) & ~both).sum()) - wrong_nans - int((np.isnan(a) & np.isnan(b)).sum())
    text = f"{off.max(initial=0):.3g} (largest value {np.abs(b[both]).max(initial=0):.3g})"
    extra = [f"{n} {what}" for n, what in ((wrong_nans, "NaN"), (infinite, "infinity")) if n]
    return f"{text}, and in {' and '.join(extra)}" if extra else text


def one_line(text: str, limit: int = 400) -> str:
    """A message as one line of printable text."""
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"
