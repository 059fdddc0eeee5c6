"""The walk of one kernel through the code, from `choose` to the built function: ``python tools/walks.py [--target cuda] [--body conv|depthwise|dense]``.

Each pass runs under a profiler of calls. Printed are the files that it enters, its returns (calls into a file that it had left for
another one), and how often each generator of kernels was asked which of its methods. The network has one kernel, so every method
asked twice is a question that was answered before.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import lightnet
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.passes import pipelines

ROOT = os.path.dirname(lightnet.__file__)
#: Bodies of one kernel each: types of operands and weights, and the op.
CONV = "ln.conv2d %x, %w, %b {{group = {}, size = [3, 3], stride = [1, 1], dilation = [1, 1], padding = [1, 1, 1, 1]}}"
BODIES = {
    "conv": (("1x64x56x56", "64x64x3x3", "64"), CONV.format(1), "1x64x56x56"),
    "depthwise": (("1x64x56x56", "64x1x3x3", "64"), CONV.format(64), "1x64x56x56"),
    "dense": (("128x256", "256x512"), "ln.matmul %x, %w", "128x512"),
}


@dataclass
class Walk:
    """Calls of one pass: the files in the order in which they were entered, and the questions to generators."""

    files: list[str] = field(default_factory=list)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def entered(self) -> int:
        return len(set(self.files))

    @property
    def returns(self) -> int:
        """Entries into a file that was there before."""
        return len(self.files) - self.entered

    def event(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT) or frame.f_code.co_name == "<module>":
            return
        file = os.path.relpath(frame.f_code.co_filename, ROOT)
        if file.startswith("backends") and (not self.files or self.files[-1] != file):
            self.files.append(file)
        name, owner = frame.f_code.co_name, frame.f_locals.get("self")
        alg = getattr(owner, "alg", None)
        if isinstance(alg, str) and name in _questions(type(owner)):
            self.asked[alg, name] += 1


def _questions(cls: type) -> frozenset[str]:
    """The public methods of a class of generators; none of any other."""
    if not any(base.__name__ == "Generator" for base in cls.__mro__):
        return (
            frozenset({"takes", "choices", "cost", "weights", "scratch_bytes", "build"})
            if hasattr(cls, "takes")
            else frozenset()
        )
    return frozenset(name for base in cls.__mro__ for name in vars(base) if not name.startswith("_"))


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
    names = [pipelines.name_of(p) for p in pipelines.pipeline_of(target).passes]
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--body", default="conv", choices=BODIES, help="what the kernel computes (%(default)s)")
    args = parser.parse_args()
    print("\n".join(table(walks(args.body, args.target))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
