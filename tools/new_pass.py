"""Start a new pass: ``python tools/new_pass.py my-pass "What it does."`` writes its file, its row and its FileCheck test.

``--root`` is the folder of the project (default: the one this file is in). Imports the standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

PASS = '''"""`{name}`: {what}"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass, rewrite_greedily


@dataclass(frozen=True)
class {cls}Pass(LnPass):
    """{what}

    ```mlir
    before    ->    after
    ```
    """

    name = "{name}"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [{cls}()])


class {cls}(RewritePattern):
    """One step of the pass."""

    # left side = right side
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, LnOp):
            return
'''

TEST = """// RUN: ln-opt %s --pass={name} | filecheck %s

// What this case pins.
// CHECK-LABEL: @main
func.func @main() -> tensor<3xf32> {{
  %x = ln.zeros : tensor<3xf32>
  // CHECK: %[[Y:.*]] = ln.relu
  %y = ln.relu %x : tensor<3xf32>
  // CHECK-NEXT: return %[[Y]]
  func.return %y : tensor<3xf32>
}}
"""


def main() -> int:
    """Write the files; the exit status is 1 if one is there already."""
    parser = argparse.ArgumentParser(description="Start a new pass.")
    parser.add_argument("name", help="as a pipeline names it: my-pass")
    parser.add_argument("what", help="a sentence that says what it does")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    args = parser.parse_args()
    if not re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", args.name):
        print(f"error: a pass is named like my-pass, not '{args.name}'", file=sys.stderr)
        return 1
    stem = args.name.replace("-", "_")
    cls = "".join(part.capitalize() for part in args.name.split("-"))
    source = args.root / "lightnet" / "passes" / f"{stem}.py"
    test = args.root / "tests" / "filecheck" / "passes" / f"{args.name}.mlir"
    registry = args.root / "lightnet" / "ir" / "registry.py"
    for path in (source, test):
        if path.exists():
            print(f"error: {path} is there already", file=sys.stderr)
            return 1
    table = registry.read_text("utf-8")
    start = table.index('PASSES = Table("pass", {')
    end = table.index("})", start)
    row = f'    "{args.name}": "lightnet.passes.{stem}:{cls}Pass",\n'
    source.write_text(PASS.format(name=args.name, what=args.what, cls=cls), "utf-8")
    test.write_text(TEST.format(name=args.name), "utf-8")
    registry.write_text(table[:end] + row + table[end:], "utf-8")
    print(f"{source}\n{test}\n{registry} (a row)")
    print(f"its test: python -m pytest tests/test_filecheck.py -q -k passes/{args.name}.mlir")
    return 0


if __name__ == "__main__":
    sys.exit(main())
