"""Write the reference pages, docs/ops.md, passes.md, patterns.md, cli.md, targets.md, api.md, verdicts.md, upstream-ops.md and edge-values.md, from the code: ``python tools/docs.py [--check]``.

With ``--check`` nothing is written, and the exit status is 1 if a page is not what would be written. Imports lightnet.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, get_type_hints
from unittest import mock

from xdsl.ir import Block

from lightnet.cli.common import ToolParser
from lightnet.cli.lightnet import SUBCOMMANDS
from lightnet.deploy import kinds_of
from lightnet.ir.op import LnOp, Operand, Param, Result
from lightnet.ir.passes import option_text
from lightnet.ir.registry import FAMILIES, PASSES, TARGETS
from lightnet.ir.rewrites import pattern_name
from lightnet.ir.runtime import COMPILE, RUN
from lightnet.ir.runtime import RUN_PASSES as PASSES_TOOL
from lightnet.ir.target import get_target
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.passes import pipelines
from lightnet.passes.levels import LEVELS
from lightnet.passes.patterns import every
from lightnet.runtime.dtypes import DTYPES

DOCS = Path(__file__).parent.parent / "docs"
MADE = "<!-- Written by tools/docs.py from the code; `make docs` writes it again. -->\n"
TOOLS = (
    "lightnet",
    "run",
    "compile",
    "compare",
    "tune",
    "quantize",
    "serve",
    "cache",
    "inspect",
    "describe",
    "devices",
    "ln_opt",
    "il2json",
)
#: Tools of packages that stand beside, and their modules.
BESIDE = {
    "genwts": "lightnet_export.genwts",
    "ln-reduce": "lightnet_trust.ln_reduce",
    "ln-lsp": "lightnet_lsp.__main__",
    "ln-mcp": "lightnet_mcp.__main__",
}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "eq": "=", "ne": "≠"}


# -- ops -------------------------------------------------------------------------------------------------------------


def ops_page() -> str:
    """Every op of the `ln` dialect, family by family."""
    families = [(name, FAMILIES.get(name)) for name in families_in_order()]
    index = [
        f"* [{name}](#{name}): " + ", ".join(f"[`{op.name}`](#{anchor(op.name)})" for op in ops)
        for name, ops in families
    ]
    sections = []
    for name, ops in families:
        module = sys.modules[ops[0].__module__]
        if name == "structure":
            module = import_module(f"lightnet.dialects.ln.{name}")
        sections.append(f"## {name}\n\n{doc(module)}\n")
        sections += [op_section(op) for op in ops]
    return "\n".join(
        [
            MADE,
            "# The ops of the `ln` dialect\n",
            "Operands are tensors; *param* operands are weights and the like, known when a network is loaded. A violated constraint is",
            "an error with the label `op.constraint`. Definitions are in [index notation](design.md#index-notation); from them come",
            "the interpreter and the generic code of every target.\n",
            *index,
            "",
            *sections,
        ]
    )


def families_in_order() -> list[str]:
    """Families as the registry's source lists them."""
    return list(FAMILIES._rows)


def anchor(title: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def op_section(op: Any) -> str:
    lines = [f"### {op.name}", "", doc(op), ""]
    if not issubclass(op, LnOp):
        return "\n".join(lines)
    fields = [(f"`{o.name}`{' …' if o.variadic else ''}", o.role, operand_text(o)) for o in op.schema.operands]
    fields += [(f"`{r.name}`{' …' if r.variadic else ''}", "result", result_text(r)) for r in op.schema.results]
    lines += md_table(("tensor", "role", ""), fields)
    lines += md_table(("parameter", "type", "default", "bounds"), [param_row(p) for p in op.schema.params])
    if op.checks:
        lines += ["Constraints:", "", *(f"* **{label}**: `{text}`" for label, text in op.checks.items()), ""]
    return "\n".join([*lines, *definition(op)])


def operand_text(o: Operand) -> str:
    parts = []
    if o.rank is not None:
        parts.append(f"rank {o.rank}")
    if o.min_rank:
        parts.append(f"rank ≥ {o.min_rank}")
    if o.dtypes:
        parts.append(" or ".join(o.dtypes))
    if o.same_type:
        parts.append(f"type of `{o.same_type}`")
    if o.same_shape:
        parts.append(f"shape of `{o.same_shape}`")
    if o.variadic:
        parts.append("one or more")
    return ", ".join(parts)


def result_text(r: Result) -> str:
    if r.owner is None:
        return ""
    return f"shares memory with `{r.owner}` in upstream's plans" + (", which it overwrites" if r.overwrites else "")


def param_row(p: Param) -> tuple[str, str, str, str]:
    kind = {"number": p.realtype, "numbers": f"{p.realtype}[]", "strings": "string[]", "bools": "bool[]"}.get(
        p.kind, p.kind
    )
    if p.length is not None:
        kind = kind.replace("[]", f"[{p.length}]")
    bounds = [
        f"{SIGNS[sign]} `{bound}`" if isinstance(bound, str) else f"{SIGNS[sign]} {bound}" for sign, bound in p.bounds
    ]
    if p.choices[: len(DTYPES)] == tuple(d.tl for d in DTYPES):
        bounds.append("a data type, `TL_FLOAT` and so on")
    elif p.choices:
        bounds.append("one of " + ", ".join(f"`{c}`" for c in p.choices))
    if p.in_type is not None:
        return f"`{p.name}`", kind, "from the result's type", ", ".join(bounds)
    return f"`{p.name}`", kind, "" if p.default is ... else f"`{default_text(p.default)}`", ", ".join(bounds)


def default_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(default_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def definition(op: type[LnOp]) -> list[str]:
    text = op.definition
    if isinstance(text, property):  # it depends on the number of operands
        return [
            "Definition, of the op with the operands of its first test case:",
            "",
            "```",
            sample(op).definition or "",
            "```",
            "",
        ]
    if text is not None:
        return ["Definition:", "", "```", textwrap.dedent(text).strip("\n").rstrip(), "```", ""]
    if op.has_builder:
        return ["Defined by a loop-level builder.", ""]
    if op.is_host:
        return ["Defined by a call of the host at run time.", ""]
    if op.decomposition is not LnOp.decomposition:
        return ["Defined by a decomposition into other ops.", ""]
    return []


def sample(op: type[LnOp]) -> LnOp:
    """An op made of the first test case of its class."""
    case = op.schema.resolve(op.samples()[0])
    specs: list[TensorSpec] = []
    for spec in case.tensors.values():
        specs += [spec] if isinstance(spec, TensorSpec) else spec
    return op.make(Block(arg_types=[tensor_type(s) for s in specs]).args, case.params)


def md_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    head = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    return [*head, *(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |" for row in rows), ""]


def doc(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").rstrip()


# -- passes ----------------------------------------------------------------------------------------------------------


def passes_page() -> str:
    """Every pass, in the order of the registry, which is that of the pipeline."""
    names = list(PASSES._rows)
    lines = [
        MADE, "# The passes\n",
        "Written as `ln-opt --pass=expand,combine{max-ops=8},plan FILE`. The pipelines of targets have names, here with the passes that lead to each level:\n",
        *pipeline_table("cpu", "cuda"),
        PIPELINES,
        " · ".join(f"[{name}](#{anchor(name)})" for name in names), "",
    ]  # fmt: skip
    return "\n".join([*lines, *(pass_section(name) for name in names)])


#: What may be said of a pipeline.
PIPELINES = """| written | runs |
| --- | --- |
| `@cpu` | all of it, as `lightnet.compile` does |
| `@cpu:plan` | up to the end of a level |
| `@cpu-bands`, `@cpu-fold-batchnorm-bands` | without a pass |
| `@cpu+after:combine:my-pass`, `@cpu+before:plan:schedule{order=source}` | with one more, behind the last or in front of the first of a name |
| `@cpu-bands:kernels+after:expand:my-pass` | all of that, in this order |

`ln-opt`, `ln-reduce`, `lightnet run --pass=…`, `lightnet compile --pass=…` and `lightnet.compile(…, pipeline=…)` take the same; a target brings its own
(`Target.pipeline`). Options that decide a pipeline (`--plan`, `--layout`, `--precision`) decide a named one, too. `--disable=NAME,…`, or `disable=` in Python, switches passes and
[patterns](patterns.md) off by name, wherever they run. Each level has a verifier (`lightnet/passes/levels.py`): what it promises is checked on reading a file for passes or `--emit`, and after every
pass under `--verify-each`. A pass that finds nothing of its level (`combine` in front of `expand`) is warned of.
"""


def pipeline_table(*targets: str) -> list[str]:
    """The passes of targets' pipelines, by level."""
    found = {
        target: {stage.level.name: stage.passes for stage in pipelines.pipeline_of(target).stages} for target in targets
    }
    rows = [
        (f"{level.number}: `{level.name}`", level.what, *(", ".join(passes[level.name]) for passes in found.values()))
        for level in LEVELS
    ]
    return md_table(("level", "what a module of it is", *(f"`@{target}`" for target in targets)), rows)


def pass_section(name: str) -> str:
    cls = PASSES.get(name)
    module = sys.modules[cls.__module__]
    text = doc(cls)
    if "```" not in text and "    " in doc(module):
        text += "\n\n" + doc(module)
    hints = get_type_hints(cls)
    rows = [
        (f"`{f.name.replace('_', '-')}`", option_text(hints[f.name]), option_default(f))
        for f in dataclasses.fields(cls)
        if f.init and f.name != "name"
    ]
    return "\n".join([f"## {name}", "", text, "", *md_table(("option", "type", "default"), rows)])


def option_default(f: dataclasses.Field) -> str:
    if f.default in (dataclasses.MISSING, None, "", ()):
        return ""
    return f"`{default_text(f.default)}`"


# -- patterns --------------------------------------------------------------------------------------------------------


#: By what `tools/exactness.py` records of a pattern, what the page says.
EXACTNESS = {"exact": "exact", "in floats": "checked in floats"}


def patterns_page() -> str:
    """Every rewrite pattern, by pass and target."""
    held = json.loads((DOCS.parent / "tests/data/exactness.json").read_text("utf-8"))
    groups: dict[tuple[str, str], list[Any]] = {}
    for pass_name, target, cls in every():
        groups.setdefault((pass_name, target), []).append(cls)
    order = list(PASSES._rows)
    lines = [
        MADE, "# The rewrite patterns\n",
        "Under these names traces show them (`ln-opt --trace-rewrites`), and errors name them. The equation is the comment above the",
        "pattern; [write-a-pass.md](write-a-pass.md) shows how to add one. A rewrite is `exact` where it is right in a prime field, and checked in",
        "floats where it rounds or rests on laws of functions ([trust.md](trust.md#exactly)); `tools/exactness.py` finds out which on networks of the tests.",
        "A rule that says in which memory a value stands, `only places`, rewrites nothing.\n",
    ]  # fmt: skip
    for pass_name, target in sorted(groups, key=lambda key: (order.index(key[0]), key[1])):
        where = "" if target == "*" else f", target `{target}`"
        rows = [
            (
                f"`{pattern_name(cls)}`",
                equation(cls),
                roots(cls),
                exactness(cls, held),
                pattern_file(cls),
            )
            for cls in groups[pass_name, target]
        ]
        lines += [f"## {pass_name}{where}\n", *md_table(("pattern", "equation", "starts at", "right", "file"), rows)]
    lines += ["## Steps of passes\n", "What passes do without a pattern, as traces name it.\n"]
    steps = [(f"`{name}`", EXACTNESS[held[name]], file) for name, file in sorted(pass_steps())]
    return "\n".join([*lines, *md_table(("step", "right", "file"), steps)])


def exactness(cls: Any, held: Mapping[str, str]) -> str:
    """The cell of a pattern. Raises KeyError for one that `tools/exactness.py --record` has to be run for, with a network that it applies to."""
    return "only places" if only_places(cls) else EXACTNESS[held[pattern_name(cls)]]


def only_places(cls: Any) -> bool:
    """Return whether a rule says where what enters or leaves the network stands."""
    rule = getattr(cls, "rule", None)
    return rule is not None and rule.matcher.places


def equation(cls: Any) -> str:
    """The comment above a pattern's function, or what a pattern that is data says, as code; else the docstring's sentence."""
    if rule := getattr(cls, "rule", None):
        lines = rule.equation.split("\n")
    else:
        function = getattr(cls, "apply", None) or cls.match_and_rewrite
        text = inspect.getcomments(function) or inspect.getcomments(cls) or ""
        lines = [line.strip().lstrip("#").strip() for line in text.splitlines() if not line.startswith("# --")]
    if lines := [line for line in lines if line]:
        return "<br>".join(f"`{line}`" for line in lines)
    return " ".join(doc(cls).split("\n\n")[0].split())


def roots(cls: Any) -> str:
    """The ops that a pattern starts at: what it says, or what its function asks first."""
    rule = getattr(cls, "rule", None)
    names = rule.matcher.roots if rule else getattr(cls, "roots", ())
    if not rule and not names:
        code = inspect.getsource(cls.match_and_rewrite)
        asked = re.search(r"isinstance\(op, ([\w |]+)\)", code)
        scope = vars(sys.modules[cls.__module__])
        classes = [scope.get(name.strip()) for name in asked[1].split("|")] if asked else []
        names = [
            found.name
            for found in classes
            if getattr(found, "optype", "") or getattr(found, "name", "").endswith(".kernel")
        ]
    return ", ".join(f"`{name}`" for name in names) or "any op"


def pattern_file(cls: Any) -> str:
    """The file of a pattern, below the project."""
    return f"`{source_file(cls).resolve().relative_to(DOCS.parent)}`"


def source_file(cls: Any) -> Path:
    """The file that a pattern stands in; one that is data names its file as it was read, in the package."""
    if rule := getattr(cls, "rule", None):
        path = Path(rule.place.file)
        return next(DOCS.parent.glob(f"lightnet*/**/{path.name}"), path)
    return Path(inspect.getfile(getattr(cls, "apply", None) or cls))


def pass_steps() -> Iterator[tuple[str, str]]:
    """The names under which passes announce rewrites of their own (`rewrites.begin`); ``match`` is one that its pattern names."""
    for path in sorted((DOCS.parent / "lightnet" / "passes").glob("*.py")):
        for name in sorted({*re.findall(r'begin\("([\w-]+)"', path.read_text("utf-8"))} - {"match"}):
            yield name, f"`{path.relative_to(DOCS.parent)}`"


# -- tools -----------------------------------------------------------------------------------------------------------


class _Captured(Exception):
    """Carries a tool's parser out of it."""


def cli_page() -> str:
    """The options of each tool."""
    lines = [
        MADE,
        "# The tools\n",
        "Every error is `file:line:col: error: …` on stderr, and the exit status is then 1.\n",
    ]
    modules = {
        f"lightnet {t}" if t in SUBCOMMANDS else t.replace("_", "-"): SUBCOMMANDS.get(t, f"lightnet.cli.{t}:main")
        for t in TOOLS
    }
    for name, where in {**modules, **BESIDE}.items():
        module = import_module(where.partition(":")[0])
        lines.append("\n".join(tool_section(name, module, parser_of(module.main))))
    return "\n".join(lines)


def targets_page() -> str:
    """The page of what each target has: how it runs, its own options, layouts, precisions and files."""
    lines = [
        MADE,
        "# The targets\n",
        "`-t NAME`, or `lightnet.compile(model, NAME, **options)`. An option stands at the command line as `--name`; one that a target has not is refused,",
        "with those that it has. A target of your own says its options in the same way ([add-a-target.md](add-a-target.md)).\n",
    ]
    for name in TARGETS:
        target = get_target(name)
        runtime = target.own_runtime
        lines += [f"## {name}\n", f"{doc(sys.modules[TARGETS.where(name).partition(':')[0]])}\n"]
        has_code = target.lowering is not None
        lines.append(
            f"* code: {doc(type(runtime)).split('. ')[0].rstrip('.') if has_code else 'none; the planned network runs in the reference interpreter'}"
        )
        lines.append(
            f"* layouts: {', '.join(target.layouts)}; precisions: {', '.join((*pipelines.PRECISIONS, *target.precisions))}"
        )
        if has_code:
            lines.append(
                f"* files of `lightnet compile --emit`: {', '.join(kinds_of(runtime))}; of `ln-opt --emit`: {', '.join(target.emitters)}"
            )
        rows = [
            (
                f"`{o.name}`",
                o.type.__name__,
                f"`{o.default}`",
                ", ".join(OPTION_TOOLS[t] for t in o.tools) or "Python",
                o.help,
            )
            for o in runtime.options
        ]
        lines += ["", *md_table(("option", "type", "default", "in", ""), rows)]
    return "\n".join(lines)


#: The tools that an option is one of, as people know them.
OPTION_TOOLS = {RUN: "`lightnet`, `run`, `serve`", COMPILE: "`compile`", PASSES_TOOL: "`ln-opt`"}


def parser_of(main: Callable[[list[str]], int]) -> argparse.ArgumentParser:
    """The argument parser that a tool makes, taken when it parses."""

    def capture(self: argparse.ArgumentParser, *_: Any) -> NoReturn:
        raise _Captured(self)

    with mock.patch.object(ToolParser, "parse_args", capture):
        try:
            main([])
        except _Captured as e:
            return e.args[0]
    raise RuntimeError(f"{main.__module__} has no parser")


def tool_section(name: str, module: Any, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{doc(module)}\n"
    for group in parser._action_groups:
        rows = [action_row(a) for a in group._group_actions if a.help is not argparse.SUPPRESS]
        if rows:
            standard = group.title in ("positional arguments", "options", "optional arguments")
            yield from md_table(("" if standard else str(group.title), ""), rows)


def action_row(action: argparse.Action) -> tuple[str, str]:
    # argparse's own layout of help differs between versions of Python: this one does not.
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    takes_value = action.nargs != 0
    names = ", ".join(f"`{o}`" for o in action.option_strings) or f"`{action.metavar or action.dest}`"
    if takes_value and action.option_strings:
        names += f" `{value}`"
    return names, (action.help or "").replace("<", "&lt;")


def upstream_ops_page() -> str:
    """Upstream's own ops, which `tools/upstream_ops.py` finds out about."""
    return MADE + import_module("upstream_ops").page()


def edge_values_page() -> str:
    """The page of what floats at the edge become: `tools/edge_page.py`."""
    return MADE + import_module("edge_page").page()


def api_page() -> str:
    """The page of what authors import: `tools/api_page.py`."""
    return MADE + import_module("api_page").page()


def verdicts_page() -> str:
    """The page of verdicts as JSON."""
    return MADE + import_module("api_page").verdicts_page()


def tour_page() -> str:
    """The tour, with what a network is at each of its stops: `tools/tour.py`."""
    return import_module("tour").page((DOCS / "tour.md").read_text("utf-8"))


PAGES: dict[str, Callable[[], str]] = {"ops.md": ops_page, "passes.md": passes_page, "cli.md": cli_page, "targets.md": targets_page,
                                        "patterns.md": patterns_page, "upstream-ops.md": upstream_ops_page, "edge-values.md": edge_values_page,
                                        "tour.md": tour_page, "api.md": api_page, "verdicts.md": verdicts_page}  # fmt: skip


def stale() -> list[tuple[str, str]]:
    """(page, diff) of each page that is not what the code says."""
    found = []
    for name, page in PAGES.items():
        path = DOCS / name
        old, new = path.read_text("utf-8") if path.exists() else "", page()
        if old != new:
            lines = list(
                difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name} (from the code)", "", "", 1)
            )
            found.append((name, "\n".join(lines[:40])))
    return found


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description="Write the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    if parser.parse_args().check:
        for name, diff in stale():
            print(f"docs/{name} is stale: run `make docs`\n{diff}", file=sys.stderr)
        return 1 if stale() else 0
    for name, text in {name: page() for name, page in PAGES.items()}.items():
        (DOCS / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
