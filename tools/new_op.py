"""Start a new op: ``python tools/new_op.py elementwise gelu "What it computes."`` adds its class to the family's file.

The class is complete, but its maths are the identity: change `definition` and `reference`. ``--root`` is the folder of the
project (default: the one this file is in). Imports the standard library only.
"""

from __future__ import annotations

import argparse
import ast
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
MODULE, NAMES = "lightnet.ir.op", ("LnOp", "case", "ln_op", "operand", "result")
#: Columns of a line, as in pyproject.toml.
WIDTH = 120


def main(argv: list[str] | None = None) -> int:
    """Add the class; the exit status is 1 if that cannot be."""
    parser = argparse.ArgumentParser(description="Start a new op.")
    parser.add_argument("family", help="a file of lightnet/dialects/ln, without .py")
    parser.add_argument("optype", help="the op's name in networks")
    parser.add_argument("what", help="a sentence that says what it computes")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    args = parser.parse_args(argv)
    folder = args.root / "lightnet" / "dialects" / "ln"
    texts = {p.stem: p.read_text("utf-8") for p in sorted(folder.glob("*.py"))}
    families = {name: text for name, text in texts.items() if ops_of(ast.parse(text)) is not None}
    cls = "".join(part.capitalize() for part in args.optype.split("_"))
    if args.family not in families:
        return refuse(f"no family '{args.family}'; there are: {', '.join(families)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", args.optype):
        return refuse(f"'{args.optype}' is no name for an op: lower case, digits and _")
    for family, text in families.items():
        if f'optype = "{args.optype}"' in text:
            return refuse(f"'{args.optype}' is taken, by an op of the family '{family}'")
    if cls in names_of(ast.parse(families[args.family])):
        return refuse(f"'{cls}', which its class would be called, is taken in the family '{args.family}'")
    path = folder / f"{args.family}.py"
    path.write_text(
        with_op(families[args.family], cls, OP.format(cls=cls, what=args.what, optype=args.optype)), "utf-8"
    )
    print(f"{path} (class {cls})")
    return 0


def refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def ops_of(tree: ast.Module) -> ast.Assign | None:
    """The statement ``OPS = (A, B, ...)`` of a family."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if [t.id for t in node.targets if isinstance(t, ast.Name)] == ["OPS"]:
                return node
    return None


def names_of(tree: ast.Module) -> set[str]:
    """What a module's own statements name."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def with_op(text: str, cls: str, source: str) -> str:
    """The family's text with a class in it: in front of `OPS`, in `OPS`, and what it is made of imported."""
    tree = ast.parse(text)
    ops = ops_of(tree)
    assert ops is not None and isinstance(ops.value, ast.Tuple)
    lines = text.splitlines(keepends=True)
    last = ops.value.elts[-1]
    row = lines[last.end_lineno - 1]
    if row.strip() == f"{ast.unparse(last)},":  # one a line
        lines.insert(last.end_lineno, row.replace(ast.unparse(last), cls))
    else:
        rest = row[last.end_col_offset :].removeprefix("," if len(ops.value.elts) == 1 else "")
        lines[last.end_lineno - 1] = f"{row[: last.end_col_offset]}, {cls}{rest}"
    lines.insert(ops.lineno - 1, source)
    imports = [n for n in tree.body if isinstance(n, ast.ImportFrom)]
    mine = next((n for n in imports if n.module == MODULE), None)
    names = {*NAMES, *(a.name for a in mine.names)} if mine is not None else set(NAMES)
    start, end = (mine.lineno - 1, mine.end_lineno) if mine is not None else (imports[-1].end_lineno,) * 2
    lines[start:end] = [import_of(names)]
    return "".join(lines)


def import_of(names: set[str]) -> str:
    """The import of these names, constants and classes first, as Ruff has it."""
    ordered = sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    line = f"from {MODULE} import {', '.join(ordered)}\n"
    if len(line) <= WIDTH + 1:
        return line
    return f"from {MODULE} import (\n" + "".join(f"    {n},\n" for n in ordered) + ")\n"


if __name__ == "__main__":
    sys.exit(main())
