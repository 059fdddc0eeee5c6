"""The registries and the layers: nothing is missing from its table, nothing is undocumented, no layer imports a higher one."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from lightnet.backends.generator import Generator
from lightnet.ir.context import make_context
from lightnet.ir.op import LnOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.registry import (
    FAMILIES,
    FRONTENDS,
    GENERATORS,
    KERNELS,
    NNVM_EXPORTERS,
    NNVM_OPS,
    ONNX_EXPORTERS,
    ONNX_OPS,
    PASSES,
    TARGETS,
    Table,
    ops_of,
)
from lightnet.ir.target import get_target
from lightnet.ir.verify import verify_module

PACKAGE = Path(__file__).parents[2] / "lightnet"
OPS = [op for family in FAMILIES for op in FAMILIES.get(family)]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in tree(path).body if isinstance(node, ast.ClassDef))


# -- completeness ----------------------------------------------------------------------------------------------------


def test_every_pass_has_a_row() -> None:
    defined = {
        f"{'.'.join(path.relative_to(PACKAGE.parent).with_suffix('').parts)}:{c.name}"
        for path in (
            *(PACKAGE / "passes").glob("*.py"),
            *(PACKAGE.parent / "lightnet_simt").glob("*.py"),
            PACKAGE.parent / "lightnet_descriptions" / "rewrite.py",
        )
        for c in classes(path)
        if any(isinstance(b, ast.Name) and b.id in ("LnPass", "ModulePass") for b in c.bases)
    }
    assert defined == {f"{cls.__module__}:{cls.__name__}" for cls in map(PASSES.get, PASSES)}


@pytest.mark.parametrize("name", list(PASSES))
def test_pass_goes_by_its_name(name: str) -> None:
    assert PASSES.get(name).name == name


def test_every_op_family_has_a_row() -> None:
    """Also one whose ops are rows, which only running the file tells."""
    files = (PACKAGE / "dialects" / "ln").glob("[a-z]*.py")
    modules = {path.stem: import_module(f"lightnet.dialects.ln.{path.stem}") for path in files}
    assert {name for name, module in modules.items() if ops_of(module) or hasattr(module, "OPS")} == set(FAMILIES)


def test_every_op_is_in_its_family() -> None:
    """An op of no family would be unknown to every tool: one of a class under `@ln_op`, or of a row."""

    def heirs(cls: type[LnOp]) -> Iterator[type[LnOp]]:
        for heir in cls.__subclasses__():
            yield heir
            yield from heirs(heir)

    made = {cls for cls in heirs(LnOp) if "schema" in vars(cls) and cls.__module__.startswith("lightnet.dialects.ln.")}
    assert made == {op for family in FAMILIES for op in FAMILIES.get(family) if issubclass(op, LnOp)}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_an_op_goes_by_the_name_of_its_class(family: str) -> None:
    """A row's class has the name that it is assigned to."""
    module = import_module(f"lightnet.dialects.ln.{family}")
    named = {name for name, value in vars(module).items() if value in FAMILIES.get(family)}
    assert named == {op.__name__ for op in FAMILIES.get(family)}


def test_every_target_has_a_row() -> None:
    rows = set(re.findall(r"lightnet\.backends\.\w+\.target", (PACKAGE / "ir" / "registry.py").read_text("utf-8")))
    assert rows == {f"lightnet.backends.{p.parent.name}.target" for p in (PACKAGE / "backends").glob("*/target.py")}


@pytest.mark.parametrize(
    ("table", "folders", "others"),
    [
        (ONNX_OPS, ("lightnet/frontends/onnx/ops", "lightnet_ml", "lightnet_ort"), ()),
        (NNVM_OPS, ("lightnet_nnvm/ops",), ()),
        (ONNX_EXPORTERS, ("lightnet_export/onnx",), ("graph", "model")),
        (NNVM_EXPORTERS, ("lightnet_export/nnvm",), ("calls", "model")),
    ],
    ids=lambda x: getattr(x, "kind", ""),
)
def test_every_family_of_a_format_has_a_row(table: Table, folders: tuple[str, ...], others: tuple[str, ...]) -> None:
    files = [p for folder in folders for p in (PACKAGE.parent / folder).glob("*.py")]
    stems = {p.stem for p in files} - {"__init__", *others}
    assert stems == {table.get(name).__name__.rpartition(".")[2] for name in table}


def test_every_generator_has_a_row() -> None:
    """An object of a class of a file of a target, under its `alg`; those of row-major tensors share one with that of maps."""
    for target in ("cpu", "cuda"):
        modules = [
            ".".join(("lightnet", *path.relative_to(PACKAGE).with_suffix("").parts))
            for path in (PACKAGE / "backends" / target).rglob("*.py")
        ]
        made = [
            f"{module}:{name}"
            for module in modules
            for name, value in vars(import_module(module)).items()
            if isinstance(value, Generator) and type(value).__module__ == module
        ]
        table = get_target(target).generators
        assert sorted(made) == sorted(map(table.where, table))
        shared = {"windows": "direct", "products": "direct", "open-windows": "direct", "open-products": "direct"}
        assert all(table.get(name).alg == shared.get(name, name) for name in table)


@pytest.mark.parametrize("table", [PASSES, TARGETS, KERNELS, FRONTENDS, FAMILIES, GENERATORS], ids=lambda t: t.kind)
def test_every_row_can_be_imported(table: Table) -> None:
    for name in table:
        assert table.get(name) is not None


def test_optypes_are_unique() -> None:
    names = [op.name for op in OPS]
    assert len(set(names)) == len(names)


# -- documentation ---------------------------------------------------------------------------------------------------


def examples(thing: object) -> list[str]:
    return re.findall(r"```mlir\n(.*?)```", inspect.getdoc(thing) or "", re.DOTALL)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_op_example_verifies(op: type) -> None:
    """The example of an op is that op. Operands that no comment `// %x : type` declares have the type of the result."""
    (text,) = examples(op)
    declared = dict(re.findall(r"(%\w+) : (tensor<[^>]*>)", "".join(re.findall(r"//.*", text))))
    code = re.sub(r"//.*\n", "", text)
    made = {r for line in re.findall(r"^\s*(%[\w, %]+?) = ", code, re.MULTILINE) for r in re.findall(r"%\w+", line)}
    result = re.search(r": (tensor<[^>]*>)", code)
    default = result[1] if result else "tensor<2x3xf32>"
    used = [v for v in dict.fromkeys(re.findall(r"%\w+", code)) if v not in made]
    arguments = ", ".join(f"{v} : {declared.get(v, default)}" for v in used)
    if op.name == "ln.yield":
        code = f"ln.once {{\n%a = ln.zeros : {default}\n%b = ln.zeros : {default}\n{code}\n}} : {default}, {default}"
        arguments = ""
    ctx = make_context()
    module = parse_mlir(ctx, f"func.func @main({arguments}) {{\n{code}\nfunc.return\n}}", "example")
    verify_module(module, ctx)
    assert any(type(inner) is op for inner in module.walk())
    assert str(parse_mlir(make_context(), str(module), "again")) == str(module)


@pytest.mark.parametrize("op", [op for op in OPS if issubclass(op, LnOp)], ids=lambda op: op.name)
def test_op_says_what_it_is(op: type[LnOp]) -> None:
    """Exactly one of the kinds of definition, or contents from outside; and test cases where it computes."""
    source = hasattr(op, "contents")
    kinds = [op.definition is not None, op.has_builder, op.is_host, op.decomposition is not LnOp.decomposition, source]
    assert sum(kinds) == 1
    assert op.samples() or op.is_host or source


@pytest.mark.parametrize("name", list(PASSES))
def test_pass_is_documented(name: str) -> None:
    """What it does in a sentence; a pass that rewrites shows before and after."""
    cls = PASSES.get(name)
    doc = f"{inspect.getdoc(cls)}\n{sys.modules[cls.__module__].__doc__}"
    assert (inspect.getdoc(cls) or "").split("\n\n")[0].endswith(".")
    assert "->" in doc or "→" in doc or name == "check-plan"


# -- layers ----------------------------------------------------------------------------------------------------------

#: A file imports its own layer and lower ones when it is loaded; what it imports inside of functions is on demand.
LAYERS = {
    "diagnostics": 0, "source": 0, "parsing": 0, "json_text": 0, "tables": 0, "dataclasses": 0, "runtime": 1, "ir": 2, "dialects": 3, "frontends": 4, "backends": 4,
    "passes": 5, "plugins": 6, "cli": 7,
}  # fmt: skip
API = 6  # the modules of the package itself: model, compiler, executable, context


#: What holds statements, of which imports are some.
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def imports(path: Path, *, on_load: bool) -> Iterator[str]:
    body: list[ast.AST] = list(tree(path).body)
    while body:
        node = body.pop()
        if isinstance(node, ast.ImportFrom):
            package = ".".join(path.relative_to(PACKAGE.parent).parts[: -node.level]) if node.level else ""
            yield ".".join(filter(None, (package, node.module)))
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif not on_load or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body += (child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS))


def layer(module: str) -> int:
    return LAYERS.get([*module.split("."), ""][1], API)


def test_no_layer_imports_a_higher_one() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for imported in imports(path, on_load=True):
            ours = imported.startswith("lightnet.")
            if ours and layer(imported) > layer(module):
                wrong.append(f"{module} imports {imported}")
    assert not wrong


def test_source_imports_the_standard_library_and_diagnostics_only() -> None:
    found = set(imports(PACKAGE / "source.py", on_load=False)) - {"lightnet.diagnostics", "lightnet.dataclasses"}
    assert {i.partition(".")[0] for i in found} <= sys.stdlib_module_names


@pytest.mark.parametrize("name", ["diagnostics", "dataclasses"])
def test_the_lowest_modules_import_the_standard_library_only(name: str) -> None:
    found = {i.partition(".")[0] for i in imports(PACKAGE / f"{name}.py", on_load=False)}
    assert found <= sys.stdlib_module_names


def test_ln_ops_know_no_target() -> None:
    for path in (PACKAGE / "dialects" / "ln").glob("*.py"):
        assert not [i for i in imports(path, on_load=False) if i.startswith("lightnet.backends")], path.name


def test_runtime_needs_no_compiler() -> None:
    """Every module of the runtime can be imported where there is no xDSL."""
    paths = (
        p.relative_to(PACKAGE).with_suffix("") for p in (PACKAGE / "runtime").rglob("*.py") if p.stem != "__init__"
    )
    modules = [".".join(("lightnet", *p.parts)) for p in paths]
    code = "import sys\nsys.modules['xdsl'] = None\n" + "\n".join(f"import {m}" for m in modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
