"""Start a new op: ``python tools/new_op.py elementwise gelu "What it computes."`` adds its class to the family's file.

In a family of rows (unary, activation, arith) the op is one line:

    python tools/new_op.py unary cube "The third power of src." --expression "src * src * src" --numpy "lambda x: x**3"

With ``--onnx OPERATOR`` it gets one more, by which ONNX's operator of that name is imported as the op, and the op exported as the
operator.

Otherwise the class is complete, but its maths are the identity: change `definition` and `reference`. ``--root`` is the folder
of the project (default: the one this file is in). Needs the standard library only.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from difflib import get_close_matches
from functools import cache
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


#: Families of rows: the kind of op of which a new one is a row, its expression and its NumPy function unless they are given,
#: and the table of `frontends/onnx/pairs.py`.
ROWS = {
    "unary": ("UnaryRow", "src", "np.positive", "UNARY"),
    "activation": ("_Activation", "src", "np.positive", "UNARY"),
    "arith": ("BinaryRow", "src1 + src2", "np.add", "BINARY"),
}


def main(argv: list[str] | None = None) -> int:
    """Add the op; the exit status is 1 if that cannot be."""
    parser = argparse.ArgumentParser(description="Start a new op.")
    parser.add_argument("family", help="a file of lightnet/dialects/ln, without .py")
    parser.add_argument("optype", help="the op's name in networks")
    parser.add_argument("what", help="a sentence that says what it computes")
    parser.add_argument("--expression", help="a row's element in index notation, of the operands' names")
    parser.add_argument("--numpy", help="the same as a NumPy function, in Python")
    parser.add_argument(
        "--domain", metavar="LOW,HIGH", help="where the test data of a row lie, as in --domain=-3,3 (-1,1)"
    )
    parser.add_argument("--onnx", metavar="OPERATOR", help="ONNX's operator that is the op")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    args = parser.parse_args(argv)
    folder = args.root / "lightnet" / "dialects" / "ln"
    texts = {p.stem: p.read_text("utf-8") for p in sorted(folder.glob("*.py"))}
    families = {name: text for name, text in texts.items() if ops_of(text)}
    cls = "".join(part.capitalize() for part in args.optype.split("_"))
    if args.family not in families:
        return refuse(f"no family '{args.family}'; there are: {', '.join(families)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", args.optype):
        return refuse(f"'{args.optype}' is no name for an op: lower case, digits and _")
    for family, text in families.items():
        if args.optype in ops_of(text):
            return refuse(f"'{args.optype}' is taken, by an op of the family '{family}'")
    if cls in names_of(ast.parse(families[args.family])):
        return refuse(f"'{cls}', which its class would be called, is taken in the family '{args.family}'")
    if (args.expression or args.numpy or args.onnx or args.domain) and args.family not in ROWS:
        return refuse(f"the ops of '{args.family}' are no rows; those of {', '.join(ROWS)} are")
    domain = re.fullmatch(r"(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)", args.domain or "-1,1")
    if domain is None or not float(domain[1]) < float(domain[2]):
        return refuse(f"'{args.domain}' is no domain: two numbers, the lower one first, as in 0.1,9")
    if args.onnx and (problem := misnamed(args.onnx, args.root)) is not None:
        return refuse(problem)
    path = folder / f"{args.family}.py"
    if args.family not in ROWS:
        source = OP.format(cls=cls, what=args.what, optype=args.optype)
        path.write_text(with_class(families[args.family], source), "utf-8")
        print(f"{path} (class {cls})")
        return 0
    kind, expression, function, table = ROWS[args.family]
    row = row_of(cls, kind, args.optype, args.expression or expression, args.numpy or function, args.what,
                 f", domain=({domain[1]}, {domain[2]})" if args.domain else "")  # fmt: skip
    path.write_text(with_line(families[args.family], f"{kind}.row", row), "utf-8")
    print(f"{path} ({row.strip()})")
    if args.onnx:
        pairs = args.root / "lightnet" / "frontends" / "onnx" / "pairs.py"
        pairs.write_text(with_pair(pairs.read_text("utf-8"), table, args.onnx, args.optype), "utf-8")
        print(f"{pairs} ({args.onnx})")
        if (note := unknown(args.onnx)) is not None:
            print(f"note: {note}", file=sys.stderr)
    return 0


def refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


@cache
def ops_of(text: str) -> list[str]:
    """The optypes of a family: those of its classes, and of its rows."""
    tree = ast.parse(text)
    classes = [
        n for n in tree.body if isinstance(n, ast.ClassDef) and any(ast.unparse(d) == "ln_op" for d in n.decorator_list)
    ]
    fields = [a for c in classes for a in c.body if isinstance(a, ast.Assign) and ast.unparse(a.targets[0]) == "optype"]
    rows = [call_of(n) for n in tree.body]
    values = [a.value for a in fields] + [
        c.args[0] for c in rows if c is not None and ast.unparse(c.func).endswith(".row")
    ]
    return [v.value for v in values if isinstance(v, ast.Constant)]


def call_of(node: ast.stmt) -> ast.Call | None:
    """The call whose value a statement assigns."""
    return node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None


def row_of(cls: str, kind: str, optype: str, expression: str, function: str, what: str, more: str) -> str:
    """The line of an op with `more` arguments, broken where it is too long."""
    written, formula, sentence = (json.dumps(text, ensure_ascii=False) for text in (optype, expression, what))
    head = f"{cls} = {kind}.row("
    ways = (
        f"{head}{written}, {formula}, {function}, {sentence}{more})\n",
        f"{head}{written}, {formula}, {function},\n    {sentence}{more})\n",
        f"{head}\n    {written}, {formula}, {function},\n    {sentence}{more})\n",
    )
    short = (way for way in ways if max(map(len, way.splitlines())) <= WIDTH)
    return next(short, f"{head}\n    {written}, {formula},\n    {function},\n    {sentence}{more})\n")


def names_of(tree: ast.Module) -> set[str]:
    """The names in a module's own statements."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def with_class(text: str, source: str) -> str:
    """The family's text with a class at its end, and what that is made of imported."""
    lines = f"{text.rstrip()}\n\n\n{source.rstrip()}\n".splitlines(keepends=True)
    imports = [n for n in ast.parse(text).body if isinstance(n, ast.ImportFrom)]
    mine = next((n for n in imports if n.module == MODULE), None)
    names = {*NAMES, *(a.name for a in mine.names)} if mine is not None else set(NAMES)
    start, end = (mine.lineno - 1, mine.end_lineno) if mine is not None else (imports[-1].end_lineno,) * 2
    lines[start:end] = [import_of(names)]
    return "".join(lines)


def with_line(text: str, function: str, line: str) -> str:
    """The text with a line behind the last one that assigns what `function` gives."""
    calls = [(n, call_of(n)) for n in ast.parse(text).body]
    end = max(n.end_lineno or 0 for n, call in calls if call is not None and ast.unparse(call.func) == function)
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:end], line, *lines[end:]])


def misnamed(operator: str, root: Path) -> str | None:
    """The reason why a pair cannot import an operator; None where it can."""
    if not re.fullmatch(r"[A-Z]\w*", operator):
        return f"'{operator}' is no operator of ONNX itself: one of another domain has a handler (docs/add-an-op.md)"
    folder = root / "lightnet" / "frontends" / "onnx"
    for path in (folder / "pairs.py", *sorted((folder / "ops").glob("*.py"))):
        if f'"{operator}"' in path.read_text("utf-8"):
            return f"'{operator}' is an operator that {path.relative_to(root)} knows already"
    return None


def unknown(operator: str) -> str | None:
    """A note that ONNX has no such operator, where the package `onnx` is there to tell."""
    try:
        from onnx import defs
    except ImportError:
        return None
    names = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
    near = get_close_matches(operator, names)
    nears = f" (near are: {', '.join(near)})" if near else ""
    return None if operator in names else f"ONNX has no operator '{operator}'{nears}, so no model with it is valid"


def with_pair(text: str, table: str, operator: str, optype: str) -> str:
    """The table of pairs with one more, on a line of its own."""
    found = next(n for n in ast.parse(text).body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == table)
    lines, end = text.splitlines(keepends=True), (found.end_lineno or 0) - 1
    return "".join([*lines[:end], f'    "{operator}": "{optype}",\n', *lines[end:]])


def import_of(names: set[str]) -> str:
    """The import of these names, constants and classes first, as Ruff has it."""
    ordered = sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    line = f"from {MODULE} import {', '.join(ordered)}\n"
    if len(line) <= WIDTH + 1:
        return line
    return f"from {MODULE} import (\n" + "".join(f"    {n},\n" for n in ordered) + ")\n"


if __name__ == "__main__":
    sys.exit(main())
