"""The pages docs/api.md, what authors of passes, rules, descriptions and targets import, and docs/verdicts.md, what programs read. `tools/docs.py` writes them.

Names come from `__all__` of modules (or what they define), the members of classes, fields of dataclasses and the registry, and what is said of each from its docstring. Imports lightnet.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from lightnet.ir.registry import FAMILIES
from lightnet_trust import verdicts

LONGEST = 150


class Task(NamedTuple):
    """A section: what an author wants to do, what should be known first, code that does it, and where its names are: modules, or
    classes as ``module:Class``, with a regular expression of the names that count here, behind a space."""

    title: str
    text: str
    code: str
    sources: tuple[str, ...]


TASKS = (
    Task("A network in Python", "`model.module` is an xDSL module, `model.ctx` its context; a pass, a check and an editor's session work on the same two.", """
import lightnet

model = lightnet.load("examples/cnn.net").run("bind,simplify")
print(model, [op.op_name for op in model.find("conv2d")])
print(lightnet.compile("examples/cnn.net"))
""", ("lightnet", "lightnet.model:Model")),
    Task("What an op says of itself", "Operands, results and parameters are attributes of the names in [ops.md](ops.md): `op.src`, `op.dst`, `op.padding`. `make` infers result types and checks every constraint; "
         "`but` is the same op with other parameters, on the same operands.", """
import lightnet
from lightnet.dialects.ln.conv import Conv2d

model = lightnet.load("examples/cnn.net").run("bind")
conv = model.find("conv2d")[0]
assert isinstance(conv, Conv2d) and conv.src is conv.operands[0]
other = conv.but(padding=[0, 0, 0, 0], group=1)
assert other.param_values()["size"] == conv.param_values()["size"]
print(conv.result_specs[0].dims, "->", other.result_specs[0].dims)
""", ("lightnet.ir.op:LnOp (make|but|op_name|tensor_names|operand_specs|result_specs|param_values|param|env|derived_values|arg_names|views|flops|work|refusal|decomposed|is_move|definition|reference|evaluate|samples|rewrites)",)),
    Task("Values: who makes them, under which names, and where", "A value's name in the network (`tensor_name`) is what an output is asked for by; its SSA name is decoration. What takes the place of a named value has to keep its name: patterns do so by themselves, "
         "a pass that moves ops by hand calls `keep_names` or `inherit`. `loc_of` is the line of the network that an op comes from, `place_of` the bytes that a planned value has.", """
import lightnet
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.rules import producer
from lightnet.ir.locations import loc_of
from lightnet.ir.names import tensor_name
from lightnet.ir.views import place_of

model = lightnet.load("examples/cnn.net").run("bind")
relu = model.find("relu")[0]
conv = producer(relu.src, Conv2d)
print(conv, loc_of(relu), tensor_name(relu.dst), [use.operation for use in relu.dst.uses])
assert place_of(relu.dst) is None
model.run("plan")
print(place_of(relu.dst))
""", ("lightnet.dialects.ln.rules (producer|is_yielded)", "lightnet.ir.names (name_of|tensor_name|tensor_names|set_tensor_names|name_hint|FreshNames|places_of)",
      "lightnet.ir.locations (loc_of|set_loc|has_loc|fused|fuse_locations)", "lightnet.ir.views (place_of|alignment_of)", "lightnet.ir.passes (inherit|keep_names)")),
    Task("Inputs, params and constants", "`ln.input` is fed with each call, `ln.param` once (weights), `ln.constant` never: the network spells it out, and a pass may read it.", """
import lightnet
from lightnet.dialects.ln.source import Input, ParamOp

model = lightnet.load("examples/cnn.net").run("bind")
conv = model.find("conv2d")[0]
assert isinstance(conv.weight.owner, ParamOp)
print([op.dst for op in model.module.walk() if isinstance(op, Input)])
""", ("lightnet.dialects.ln.source (Source|Create|Input|ParamOp|ConstantOp|is_fed|holds_data|known)",)),
    Task("A rule", "A function from an op to what equals it, bit for bit: an op, a sequence of ops (the last takes the place), a value, or None where it does not match. The comment above says the equation. "
         "[how-to-write-a-rule.md](how-to-write-a-rule.md) has the same as data.", """
from lightnet.dialects.ln.rules import producer, rule
from lightnet.dialects.ln.unary import Abs, Neg
from lightnet.ir.registry import pattern


# abs(-x) = abs(x)
@pattern("simplify")
@rule("abs")
def abs_of_neg(op):
    inner = producer(op.src, Neg)
    return None if inner is None else Abs.make([inner.src])
""", ("lightnet.dialects.ln.rules", "lightnet.ir.registry (pattern|patterns|all_patterns)")),
    Task("A pass", "A frozen dataclass: `name`, options as fields, `apply`. `rewrite_greedily` runs patterns until none matches; `dce=True` removes ops that nothing reads any more, which else stay, and keep "
         "kernels behind them apart. What a file or a package registers by itself says [plugins.md](plugins.md).", """
from dataclasses import dataclass

import lightnet
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.rules import rule
from lightnet.ir.passes import LnPass, run_pipeline, rewrite_greedily


# relu(relu(x)) = relu(x)
@rule("relu")
def relu_of_relu(op):
    return op.src if isinstance(op.src.owner, Relu) else None


@dataclass(frozen=True)
class OneRelu(LnPass):
    name = "one-relu"
    dce: bool = True

    def apply(self, ctx, op):
        rewrite_greedily(op, [relu_of_relu()], dce=self.dce)


text = \"\"\"
func.func @main() -> tensor<4xf32> {
  %x = ln.input : tensor<4xf32> as ("x")
  %a = ln.relu %x : tensor<4xf32>
  %y = ln.relu %a : tensor<4xf32> as ("y")
  func.return %y : tensor<4xf32>
}
\"\"\"
model = lightnet.loads(text, ".mlir")
run_pipeline(model.ctx, model.module, [OneRelu()])
assert len(model.find("relu")) == 1
print(model.module)
""", ("lightnet.ir.passes", "lightnet.ir.passes:Instrumentation")),
    Task("Rewriting by hand", "A `RewritePattern` gets a rewriter. `rewriter.insert(op)` puts an op in front of the one that is matched; `rewriter.replace(op, new_ops)` puts new ops in front of `op`, and the results of the last take its place, "
         "or those that `new_results` names. A value of another type is refused at once, with the pattern's name. Ops that a pattern inserts get the locations of those that it removes; results that take a place, its names.", """
import lightnet
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.unary import Neg
from lightnet.ir.rewriting import rewrite_greedily
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern


class TwiceNegated(RewritePattern):
    # relu(x) = -(-relu(x))
    def match_and_rewrite(self, op, rewriter: PatternRewriter):
        if not isinstance(op, Relu) or any(isinstance(use.operation, Neg) for use in op.dst.uses):
            return
        inner = rewriter.insert(Relu.make([op.src]))
        negated = rewriter.insert(Neg.make([inner.dst]))
        rewriter.replace(op, Neg.make([negated.dst]))


model = lightnet.load("examples/cnn.net").run("bind")
rewrite_greedily(model.module, [TwiceNegated()])
assert len(model.find("neg")) == 2 * len(model.find("relu"))
""", ("xdsl.pattern_rewriter:PatternRewriter (insert|replace|erase|replace_all_uses_with|replace_uses_with_if|inline_block|insert_op|notify.*|handle_operation_modification)",
      "lightnet.ir.rewriting", "lightnet.dialects.ln.rules (replace_by_values)")),
    Task("Pipelines", "A text becomes passes by `parse_pipeline`; a pass is an object with `apply(ctx, module)`, so a loop over them is a pipeline, too. A target's own has a name (`@cpu`), and can be edited.", """
import lightnet
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.passes.pipelines import pipeline_of

model = lightnet.load("examples/cnn.net")
for one in parse_pipeline("bind,simplify,expand"):
    one.apply(model.ctx, model.module)
run_pipeline(model.ctx, model.module, parse_pipeline("combine,plan"), verify_each=True)
print(pipeline_of("cpu").without("bands").after("combine", "ln-dce"))
""", ("lightnet.ir.passes (parse_pipeline|run_pipeline)", "lightnet.passes.pipelines (pipeline_of|pass_name_of|target_of)", "lightnet.passes.pipelines:Pipeline")),
    Task("A target, or a part of one changed", "A `Target` is data: `dataclasses.replace` makes another that differs in a field. In a file that is loaded, a target that is a value of the module is registered under its name. [add-a-target.md](add-a-target.md) makes one.", """
from dataclasses import replace

import lightnet
from lightnet.ir.registry import adding
from lightnet.ir.target import get_target


def alone(kernel, request):
    return []  # no kernel runs in bands of rows with others


with lightnet.plugins.load("examples/my_target.py"):
    print(get_target("toy").spaces)
mine = replace(get_target("cpu"), name="cpu-alone", chain=alone)
print(mine.name, mine.layouts, sorted(mine.emitters))
""", ("lightnet.ir.target", "lightnet.ir.target:Target")),
    Task("Plugins", "What `--load` does, from Python: a block, behind which everything is as it was.", """
import lightnet

with lightnet.plugins.load("examples/my_rule.py") as (plugin,):
    print(plugin.patterns)
    lightnet.load("examples/cnn.net").run("bind,simplify")
""", ("lightnet.plugins",)),
    Task("Is it right?", "What the tools do ([trust.md](trust.md), [reduce.md](reduce.md)), from Python. Their verdicts as JSON are in [verdicts.md](verdicts.md).", """
import lightnet
from lightnet.ir.passes import parse_pipeline
from lightnet_trust.check import run_checked
from lightnet_trust.isolate import isolate

with lightnet.plugins.load("examples/wrong_rewrite.py"):
    model = lightnet.load("examples/cnn.net")
    passes = parse_pipeline("bind,simplify,expand")
    verdict = run_checked(model.ctx, model.module.clone(), passes)
    assert not verdict.ok and verdict.pattern == "SigmoidIsTanh"
    found = isolate(model.ctx, model.module, passes)
print(found.pipeline, found.text, sep="\\n")
""", ("lightnet_trust.check", "lightnet_trust.check:PipelineVerdict", "lightnet_trust.isolate (isolate|Isolation)", "lightnet_trust.reduce (reduce_module|Reduction)",
      "lightnet_trust.bisect (bisect|Found)", "lightnet_trust.verdicts (verdict|failed|error_values|.*_verdict)")),
    Task("Errors", "A mistake of the user's is a `LightNetError`: its place, a sentence that says what is wrong and what to do, and the label of the constraint; tools print it as `file:line:col: error: …`.", """
import lightnet
from lightnet.ir.locations import loc_of

model = lightnet.load("examples/cnn.net").run("bind")
conv = model.find("conv2d")[0]
try:
    raise lightnet.LightNetError("this pass takes windows of 1x1", loc_of(conv), label="mine.window")
except lightnet.LightNetError as error:
    print(error.render())
""", ("lightnet.diagnostics (LightNetError|SourceLoc|ErrorList|LimitError|near|near_or_all|did_you_mean|alike)",)),
)  # fmt: skip


class Name(NamedTuple):
    """A name that an author imports or asks an object for: how it is written, what it takes, and the first sentence about it."""

    name: str
    takes: str
    says: str


def names_of(source: str) -> list[Name]:
    """The names of a source (`Task.sources`), with what their docstrings say."""
    where, _, wanted = source.partition(" ")
    module, _, cls = where.partition(":")
    owner = getattr(import_module(module), cls) if cls else import_module(module)
    known = members(owner) if cls else public(owner)
    return [named(owner, name) for name in known if not wanted or re.fullmatch(wanted, name)]


def public(module: Any) -> list[str]:
    """The public names of a module: its `__all__`, else the functions and classes that it defines."""
    own = [
        n
        for n, v in vars(module).items()
        if getattr(v, "__module__", None) == module.__name__ and (inspect.isclass(v) or inspect.isfunction(v))
    ]
    return [n for n in getattr(module, "__all__", own) if not n.startswith("_")]


def members(cls: type) -> list[str]:
    """The public members of a class: fields of a dataclass, then methods and properties."""
    fields = (
        [f.name for f in dataclasses.fields(cls)]
        if dataclasses.is_dataclass(cls) and not issubclass(cls, Exception)
        else []
    )
    bases = [
        base
        for base in cls.__mro__
        if base is not object and base.__module__.partition(".")[0] == cls.__module__.partition(".")[0]
    ]
    return list(
        dict.fromkeys([n for n in (*fields, *(n for base in bases for n in vars(base))) if not n.startswith("_")])
    )


def named(owner: Any, name: str) -> Name:
    """A name of a module or a class, with what is to be said of it."""
    value = inspect.getattr_static(owner, name, None) if inspect.isclass(owner) else getattr(owner, name)
    value = getattr(value, "__func__", value)
    value = getattr(value, "fget", None) or getattr(value, "func", None) or value
    field = (
        next((f for f in dataclasses.fields(owner) if f.name == name), None)
        if dataclasses.is_dataclass(owner)
        else None
    )
    if field is not None:
        return Name(name, f": {field.type}", mentioned(owner, name))
    if inspect.isfunction(value):
        is_property = isinstance(inspect.getattr_static(owner, name), property) if inspect.isclass(owner) else False
        takes = (
            f": {value.__annotations__.get('return', '')}".removesuffix(": ")
            if is_property
            else arguments(value, inspect.isclass(owner))
        )
        return Name(name, takes, sentence(inspect.getdoc(value)) or mentioned(owner, name))
    if inspect.isclass(value) or inspect.ismodule(value):
        return Name(name, "", sentence(inspect.getdoc(value)))
    return Name(name, f": {type(value).__name__}", mentioned(owner, name))


def arguments(function: Any, is_method: bool) -> str:
    """The arguments of a function by name, with defaults that are short."""
    found: list[str] = []
    for at, p in enumerate(inspect.signature(function).parameters.values()):
        if is_method and at == 0 and p.name in ("self", "cls"):
            continue
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if p.kind is p.KEYWORD_ONLY and "*" not in found and not any(f.startswith("*") for f in found):
            found.append("*")
        default = repr(p.default) if isinstance(p.default, bool | int | float | str | None | tuple) else "…"
        found.append(f"{stars}{p.name}" + ("" if p.default is p.empty else f"={default if len(default) < 16 else '…'}"))
    return f"({', '.join(found)})"


def sentence(text: str | None) -> str:
    """The first sentence of a docstring, in one line, of at most `LONGEST` characters."""
    first = " ".join((text or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[^.\s][^.\s])[.:] (?=[A-Z`_])", first, maxsplit=1)[0].rstrip(".:")
    return first if len(first) <= LONGEST else first[:LONGEST].rsplit(" ", 1)[0] + " …"


def mentioned(owner: Any, name: str) -> str:
    """The clause of a class's docstring, or of the comment above a constant, that begins with a name."""
    text = " ".join((inspect.getdoc(owner) or "").split())
    if found := re.search(rf"`{name}(?:`|\()", text):
        return sentence(re.split(r"(?<=[^\s]); |(?<=[a-z`)\]])\. ", text[found.start() :], maxsplit=1)[0])
    source = inspect.getsource(owner).split("\n")
    for at, line in enumerate(source):
        if re.match(rf"\s*{name}\b\s*[:=]", line):
            above: list[str] = []
            while at > 0 and (comment := re.match(r"\s*#:? (.*)", source[at - 1])):
                above.insert(0, comment[1])
                at -= 1
            return sentence(" ".join(above))
    return ""


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    """The page of names by task."""
    lines = [
        "# What authors of passes, rules and targets import\n",
        "By task, with code that runs. Names are those of `__all__`, of what a module defines, or of a class; what is said of each is the first sentence of its docstring, and `help(name)` says the rest. "
        "What is not here is the compiler's own, and changes with it.\n",
        " · ".join(f"[{task.title}](#{anchor(task.title)})" for task in TASKS) + " · [Classes of ops](#classes-of-ops)\n",
    ]  # fmt: skip
    for task in TASKS:
        lines += [f"## {task.title}\n", task.text + "\n", f"```python{task.code}```\n"]
        for source in task.sources:
            where = source.partition(" ")[0]
            module, _, cls = where.partition(":")
            lines += [
                f"`from {module} import {cls}`:\n"
                if cls
                else "`import lightnet`:\n"
                if module == "lightnet"
                else f"`from {module} import …`:\n"
            ]
            lines += ["| name | |", "| --- | --- |"]
            lines += [f"| `{cell(n.name + n.takes)}` | {cell(n.says)} |" for n in names_of(source)]
            lines.append("")
    lines += ["## Classes of ops\n", "Operands and parameters of each are in [ops.md](ops.md).\n", *op_classes()]
    return "\n".join(lines)


def op_classes() -> Iterator[str]:
    """The Python class of each op, by the module to import it from."""
    yield "| from | import |"
    yield "| --- | --- |"
    by_module: dict[str, list[str]] = {}
    for family in FAMILIES._rows:
        for cls in FAMILIES.get(family):
            by_module.setdefault(cls.__module__, []).append(f"`{cls.__name__}` (`{cls.name}`)")
    for module, classes in by_module.items():
        yield f"| `{module}` | {', '.join(classes)} |"
    yield ""


def anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


# -- verdicts ----------------------------------------------------------------------------------------------------------


#: The commands whose verdicts they are.
COMMANDS = {
    "check": "`ln-opt --check --json`",
    "bisect": "`ln-opt --bisect --json`",
    "reduce": "`ln-reduce --test… --json`",
    "isolate": "`ln-reduce --isolate … --json`",
    "compare": "`lightnet compare --json`",
    "judge": "`lightnet compare --verdict --json`",
    "passes": "tool `passes` of the MCP server",
    "inspect": "tool `inspect` of the MCP server",
}


#: The server, below the table.
SERVER = """## A server for programs
`ln-mcp` speaks the Model Context Protocol over stdin and stdout, and has the tools `check`, `bisect`, `isolate`, `reduce`, `compare`, `inspect` and `passes`; each answers with a verdict of this page. It comes with an extra:

<!-- not run: it installs, and serves -->
```sh
pip install 'lightnet-compiler[mcp]'
ln-mcp --root nets/
```

* A network is the path of a file below `--root`, by its real path: `.onnx`, `.net`, `.json` or `.mlir`, of at most a GiB. What is elsewhere is refused, whether it is there or not; so are executables (`.lnx`), which are code, and options of passes that read files.
* No code comes from a request. Plugins are those of `--load`, for all requests, with your rights; those of installed packages are found with `--installed` alone.
* Each request is a process of its own, in an empty folder that goes with it, with bounds of time (`--seconds`), address space (`--memory`) and output (4 MiB); two run at a time.

From Python the same is `lightnet_mcp.bench.Bench(root).check("net.onnx", "bind,simplify")`.

## A notebook
[examples/notebook.py](../examples/notebook.py) is a marimo notebook: a network, a pass with a fault, which rewrite it is, the smallest module that shows it. It is a script, too, and `marimo export html examples/notebook.py -o page.html` makes a page that opens without a server (`pip install 'lightnet-compiler[notebook]'`).
"""


def verdicts_page() -> str:
    """The page of verdicts as JSON."""
    lines = [
        "# Verdicts for programs\n",
        "`--json` prints what a tool found as one JSON object on stdout, also where the exit status is 1; people's text stays on stderr. All are of one shape, and "
        "`lightnet_trust.verdicts.SCHEMA` says it in JSON Schema:\n",
        "| field | |", "| --- | --- |",
        "| `tool` | which tool: " + ", ".join(f"`{tool}`" for tool in verdicts.WORDS) + " |",
        "| `verdict` | a word of the tool's, below; `fails` where it came to none, or a pass failed: then nothing but these fields need be there |",
        "| `ok` | true where the exit status is 0 |",
        "| `error` | null, or what is wrong: `message`, `label` (of the constraint), `place` (`file`, `line`, `column`; 0 is unknown), `source` (that line), `notes` (each with a `place`), `text` (as printed) |",
        "| `notes` | sentences: what was not checked, or says little |\n",
        "| tool | command | verdict | fields beside |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for tool, words in verdicts.WORDS.items():
        beside = "; ".join(f"`{name}`: {says}" for name, _, says in verdicts.FIELDS[tool])
        beside += f"; those of `{verdicts.ALSO[tool]}`" if tool in verdicts.ALSO else ""
        lines.append(f"| `{tool}` | {COMMANDS[tool]} | {', '.join(f'`{w}`' for w in words)} | {cell(beside)} |")
    return "\n".join([*lines, "", SERVER])
