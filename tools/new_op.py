"""Start a new op: ``python tools/new_op.py elementwise gelu "What it computes."`` adds its class to the family's file.

The class is complete, but its maths are the identity: change `definition` and `reference`. ``--root`` is the folder of the
project (default: the one this file is in). Imports the standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

OP = '''@ln_op
class {cls}(LnOp):
    """{what}

    ```mlir
    %y = ln.{optype} %x : tensor<1x3x4x5xf32>
    ```
    """

    optype = "{optype}"
    src = operand()
    dst = result()
    definition = "dst[i...] = src[i...]"

    def reference(self, src):
        return src.copy()

    @classmethod
    def samples(cls):
        return [case(src=(1,)), case(src=(3, 5)), case("i8", src=(2, 1, 9))]


'''


def main() -> int:
    """Add the class; the exit status is 1 if that cannot be."""
    parser = argparse.ArgumentParser(description="Start a new op.")
    parser.add_argument("family", help="a file of lightnet/dialects/ln, without .py")
    parser.add_argument("optype", help="the op's name in networks")
    parser.add_argument("what", help="a sentence that says what it computes")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    args = parser.parse_args()
    path = args.root / "lightnet" / "dialects" / "ln" / f"{args.family}.py"
    text = path.read_text("utf-8") if path.exists() else ""
    end = re.search(r"^OPS = \((.*?),?\)$", text, re.MULTILINE | re.DOTALL)
    if end is None:
        families = ", ".join(sorted(p.stem for p in path.parent.glob("*.py") if "\nOPS = (" in p.read_text("utf-8")))
        print(f"error: no family '{args.family}'; there are: {families}", file=sys.stderr)
        return 1
    if not re.fullmatch(r"[a-z]\w*", args.optype) or f'optype = "{args.optype}"' in text:
        print(f"error: '{args.optype}' is no name for an op, or taken", file=sys.stderr)
        return 1
    cls = "".join(part.capitalize() for part in args.optype.split("_"))
    new = OP.format(cls=cls, what=args.what, optype=args.optype) + f"OPS = ({end[1]}, {cls})"
    path.write_text(text[: end.start()] + new + text[end.end() :], "utf-8")
    print(
        f"{path} (class {cls}; it may have to import `case`, `ln_op`, `operand`, `result`, `LnOp` from lightnet.ir.op)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
