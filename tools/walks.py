"""The walk of one kernel through the code, from `choose` to the built function: ``python tools/walks.py [--target cuda] [--body conv]``.

Each pass runs under a profiler of calls. Printed are, of `backends/`, the files that it enters, and its returns (into a file that it had left for
another one), and what generators of kernels were asked. The network has one kernel, and beside it at most two changes of layout.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import lightnet
from lightnet.backends.generator import Generator
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.passes import pipelines

ROOT = os.path.dirname(lightnet.__file__)
#: What a generator is asked: now, and in what came before.
QUESTIONS = frozenset(
    {"takes", "plan", "completed", "build", "choices", "cost", "weights", "scratch_bytes", "workspace_bytes"}
)
#: Bodies of one kernel each: types of operands and weights, and the op.
CONV = "ln.conv2d %x, %w, %b {{group = {}, size = [3, 3], stride = [1, 1], dilation = [1, 1], padding = [1, 1, 1, 1]}}"
BODIES = {
    "conv": (("1x64x56x56", "64x64x3x3", "64"), CONV.format(1), "1x64x56x56"),
    "depthwise": (("1x64x56x56", "64x1x3x3", "64"), CONV.format(64), "1x64x56x56"),
    "dense": (("128x256", "256x512"), "ln.matmul %x, %w", "128x512"),
}


@dataclass
class Walk:
    """Calls of one pass: the files in the order in which they were entered, and the questions to generators, by kernel."""

    files: list[str] = field(default_factory=list)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: How often one generator was asked the same of one kernel, at most, by question.
    most: dict[str, int] = field(default_factory=dict)
    _of_kernels: Counter[tuple[int, str, Hashable]] = field(default_factory=Counter)

    @property
    def entered(self) -> int:
        return len(set(self.files))

    @property
    def returns(self) -> int:
        """Entries into a file that was there before."""
        return len(self.files) - self.entered

    def event(self, frame: FrameType, event: str, _: Any) -> None:
        """Count an event, as `sys.setprofile` calls it."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name == "<module>":
            return
        file = os.path.relpath(code.co_filename, ROOT)
        if file.startswith("backends") and (not self.files or self.files[-1] != file):
            self.files.append(file)
        owner = frame.f_locals.get("self")
        if code.co_name in QUESTIONS and isinstance(owner, Generator):
            self.ask(owner, code.co_name, frame.f_locals)

    def ask(self, generator: Any, question: str, given: dict[str, Any]) -> None:
        """One question to a generator: of a kernel, or of a body by its ops."""
        self.asked[f"{generator.alg} ({type(generator).__name__})", question] += 1
        subject = given.get("kernel") or tuple(given.get("ops", ()))
        key = id(generator), question, subject
        self._of_kernels[key] += 1
        self.most[question] = max(self.most.get(question, 0), self._of_kernels[key])


@contextmanager
def walking() -> Iterator[Walk]:
    """The walk of what runs inside."""
    walk = Walk()
    sys.setprofile(walk.event)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def network(body: str) -> lightnet.Model:
    """A network of one op, whose weights are parameters."""
    (source, *weights), op, result = BODIES[body]
    params = "".join(f"%{n} = ln.param : tensor<{t}xf32>\n" for n, t in zip("wb", weights))
    return lightnet.loads(
        f"""func.func @main() -> tensor<{result}xf32> {{
          %x = ln.input : tensor<{source}xf32> as ("x")
          {params}
          %y = {op} : tensor<{result}xf32> as ("y")
          func.return %y : tensor<{result}xf32>
        }}""",
        ".mlir",
    )


def walks(body: str = "conv", target: str = "cpu") -> dict[str, Walk]:
    """The walk of each pass from `choose` on, by its name."""
    model = network(body)
    names = [pipelines.pass_name_of(p) for p in pipelines.pipeline_of(target).passes]
    passes = parse_pipeline(pipelines.default(target), {"target": target})
    first = names.index("choose")
    run_pipeline(model.ctx, model.module, passes[:first])
    found: dict[str, Walk] = {}
    for one in passes[first:]:
        with walking() as walk:
            run_pipeline(model.ctx, model.module, [one])
        found[one.name] = walk
    return found


def table(found: dict[str, Walk]) -> Iterator[str]:
    """The walks as lines of Markdown."""
    yield "| pass | calls into a file | files | returns |"
    yield "| --- | --- | --- | --- |"
    for name, walk in found.items():
        yield f"| {name} | {len(walk.files)} | {walk.entered} | {walk.returns} |"
    asked = sum((walk.asked for walk in found.values()), Counter())
    yield ""
    yield "| generator | asked |"
    yield "| --- | --- |"
    for alg in dict.fromkeys(alg for alg, _ in asked):
        counts = ", ".join(f"{name} {n}" for (a, name), n in sorted(asked.items()) if a == alg)
        yield f"| {alg} | {counts} |"
    yield ""
    yield "Asked of one kernel, in one pass, at most: " + ", ".join(
        f"{name} {max(walk.most.get(name, 0) for walk in found.values())}"
        for name in dict.fromkeys(n for w in found.values() for n in w.most)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--body", default="conv", choices=BODIES, help="what the kernel computes (%(default)s)")
    args = parser.parse_args()
    print("\n".join(table(walks(args.body, args.target))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
