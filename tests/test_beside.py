"""Packages that stand beside `lightnet`: it imports none of them but by one named hook, and works where they are not."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

ROOT = Path(__file__).parent.parent
BESIDE = sorted(path.parent.name for path in ROOT.glob("lightnet_*/__init__.py"))
#: Which file of the package may name which of them.
HOOKS = {
    "lightnet_bench": ["cli/lightnet.py"],
    "lightnet_debug": ["backends/cpu/runtime.py", "backends/cuda/runtime.py", "backends/listed.py", "cli/run.py"],
    "lightnet_descriptions": ["cli/lightnet.py", "ir/registry.py"],
    "lightnet_export": ["__init__.py", "cli/lightnet.py", "frontends/netlist.py", "ir/registry.py"],
    "lightnet_ml": ["frontends/onnx/functions.py", "ir/registry.py"],
    "lightnet_nnvm": ["frontends/loading.py", "ir/registry.py"],
    "lightnet_ort": ["frontends/onnx/functions.py", "ir/registry.py"],
    "lightnet_ptx": ["runtime/cuda/driver.py"],
    "lightnet_quantize": ["__init__.py", "cli/lightnet.py"],
    "lightnet_report": ["cli/inspect.py", "cli/watching.py", "compiled.py", "model.py", "passes/plan.py"],
    "lightnet_serving": ["cli/lightnet.py"],
    "lightnet_simt": ["ir/registry.py"],
    "lightnet_trust": ["cli/checking.py"],
    "lightnet_xdsl": ["cli/ln_opt.py"],
}


def test_what_stands_beside() -> None:
    assert BESIDE == [
        "lightnet_bench",
        "lightnet_debug",
        "lightnet_descriptions",
        "lightnet_export",
        "lightnet_lsp",
        "lightnet_mcp",
        "lightnet_ml",
        "lightnet_nnvm",
        "lightnet_ort",
        "lightnet_ptx",
        "lightnet_quantize",
        "lightnet_report",
        "lightnet_serving",
        "lightnet_simt",
        "lightnet_trust",
        "lightnet_xdsl",
    ]


@pytest.mark.parametrize("name", BESIDE)
def test_the_package_names_it_in_its_hook_alone(name: str) -> None:
    """In no import, and in no string that an import could be made of; in what is there for readers it may stand."""
    found = []
    for path in sorted((ROOT / "lightnet").rglob("*.py")):
        text = path.read_text("utf-8")
        if name in text and names(ast.parse(text), name):
            found.append(path.relative_to(ROOT / "lightnet").as_posix())
    assert found == HOOKS.get(name, [])


def names(tree: ast.AST, name: str) -> bool:
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    word = re.compile(rf"\b{name}\b")
    for node in ast.walk(tree):
        match node:
            case ast.Import() if any(word.match(alias.name) for alias in node.names):
                return True
            case ast.ImportFrom(module=str(module)) if word.match(module):
                return True
            case ast.Constant(value=str(text)) if id(node) not in docs and word.search(text):
                return True
    return False


#: Run with the folder of the packages, a network, and the names of those beside, which are there at first and then are not.
WITHOUT = """
import sys
folder, net, *beside = sys.argv[1:]
import lightnet
from lightnet.cli.lightnet import main
from lightnet.ir import registry
assert lightnet.__file__.startswith(folder), lightnet.__file__
assert main(["run", net, "-i", "random"]) == 0
assert not [name for name in beside if name in sys.modules]
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name in beside else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Hiding, sys.meta_path)
registry.is_installed.cache_clear()
for words in (["run", net, "-i", "random"], ["compile", net, "-t", "cuda", "-o", "net.lnx"],
              ["inspect", "net.lnx"]):
    assert main(words) == 0, words
for words in (["run", net, "-t", "cuda", "--on-cpu", "-i", "random"], ["run", net, "-t", "cuda", "--emulate", "-i", "random"], ["run", "net.lnx", "--emulate", "-i", "random"],
              ["run", net, "--load", "ops.op"], ["run", net, "--load", "rules.mlir"], ["run", net, "-t", "tensorrt"],
              ["run", net, "-t", "teapot"], ["describe", "relu"],
              ["compare", net], ["tune", net], ["quantize", net], ["serve", "net.lnx"], ["inspect", net], ["-c", net, "--report=net.html"],
              *(["run", net, "-i", "random", option] for option in ("--profile", "--check-nan", "--compare=want.npz")),
              ["run", "graph.json", "-i", "random"], ["run", "domains.onnx", "-i", "random"],
              ["-c", net, "--onnx=net.onnx"], ["-c", net, "--nnvm=net.json"]):
    assert main(words) == 1, words
for name in ("to_onnx", "to_nnvm"):
    try:
        getattr(lightnet, name)
    except lightnet.LightNetError as e:
        print(e, file=sys.stderr)
assert not [*registry.ONNX_EXPORTERS, *registry.NNVM_EXPORTERS]
from lightnet.cli.ln_opt import main
assert main(["--pass=@cpu:plan", "-o", "plan.mlir", net]) == 0
for words in (["--check", net], ["--bisect", net], ["--dot=net.dot", net], ["--stats", net], ["--irdl=i.mlir", net]):
    assert main(words) == 1, words
"""


#: Run with a model of ONNX's own ops, one with an op of ONNX Runtime's, and packages that bring ops of other domains.
DOMAINS = """
import sys
import lightnet
plain, fused, *beside = sys.argv[1:]
lightnet.compile(plain).prepare()
print(sorted({name.partition(".")[0] for name in sys.modules} & set(beside)))
lightnet.compile(fused).prepare()
assert "lightnet_ort" in sys.modules
"""


def test_handlers_of_other_domains_are_imported_when_a_model_has_their_ops(tmp_path: Path) -> None:
    """ONNX Runtime writes one of its own ops without a domain, which is found, too."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    scale = helper.make_tensor("s", TensorProto.FLOAT, [4], [1.0] * 4)
    nodes = {"plain": ("Relu", ["x"]), "fused": ("SimplifiedLayerNormalization", ["x", "s"])}
    for name, (op, inputs) in nodes.items():
        graph = helper.make_graph([helper.make_node(op, inputs, ["y"])], "g", ends[:1], ends[1:], [scale])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        save(model, tmp_path / f"{name}.onnx")
    paths = [str(tmp_path / f"{name}.onnx") for name in nodes]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", DOMAINS, *paths, "lightnet_ml", "lightnet_ort"]
    assert subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_package_works_without(tmp_path: Path) -> None:
    """Networks run, and are compiled for every target of its own; what asks for more says what to install."""
    (tmp_path / "graph.json").write_text('{"nodes": [], "arg_nodes": [], "heads": []}')
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    scaler = helper.make_node("Scaler", ["x"], ["z"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    gelu = helper.make_node("QuickGelu", ["z"], ["y"], domain="com.microsoft")
    versions = {"": 17, "ai.onnx.ml": 3, "com.microsoft": 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model = helper.make_model(helper.make_graph([scaler, gelu], "g", [x], [y]), opset_imports=opsets)
    save(model, tmp_path / "domains.onnx")
    for name in ("lightnet", *BESIDE):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-c", WITHOUT, str(tmp_path), str(ROOT / "examples" / "nets" / "mlp.net"), *BESIDE]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error: emulation needs the PTX interpreter, the package lightnet_ptx") == 2
    assert "Traceback" not in done.stderr and "pip install lightnet-ptx" in done.stderr
    missing = "is of the package {}, which is not here: install lightnet-compiler, which brings it"
    described = missing.format("lightnet_descriptions")
    assert [line for line in done.stderr.splitlines() if "lightnet_ptx" not in line] == [
        f"error: pass 'simt-to-cpu' {missing.format('lightnet_simt')}",
        f"ops.op: error: reader of files to load '.op' {described}",
        f"rules.mlir: error: reader of files to load '.mlir' {described}",
        f"error: target 'tensorrt' {described}",
        "error: unknown target 'teapot'; there are: cpu, cuda, none",
        f"error: command 'describe' {described}",
        f"error: command 'compare' {missing.format('lightnet_bench')}",
        f"error: command 'tune' {missing.format('lightnet_bench')}",
        f"error: command 'quantize' {missing.format('lightnet_quantize')}",
        f"error: command 'serve' {missing.format('lightnet_serving')}",
        f"error: command 'inspect' of a network {missing.format('lightnet_report')}",
        f"error: option '--report' {missing.format('lightnet_report')}",
        *(
            f"error: option '--{name}' {missing.format('lightnet_debug')}"
            for name in ("profile", "check-nan", "compare")
        ),
        f"error: the front end for NNVM {missing.format('lightnet_nnvm')}",
        "domains.onnx: error: the model cannot be imported: 2 nodes are not supported [onnx.unsupported]",
        f"note: Scaler (#0): the front end for ai.onnx.ml {missing.format('lightnet_ml')}",
        f"note: QuickGelu (#1): the front end for com.microsoft {missing.format('lightnet_ort')}",
        *(f"error: option '--{name}' {missing.format('lightnet_export')}" for name in ("onnx", "nnvm")),
        *(f"error: lightnet.{name} {missing.format('lightnet_export')}" for name in ("to_onnx", "to_nnvm")),
        *(f"error: option '--{name}' {missing.format('lightnet_trust')}" for name in ("check", "bisect")),
        *(f"error: option '--{name}' {missing.format('lightnet_report')}" for name in ("dot", "stats")),
        f"error: option '--irdl' {missing.format('lightnet_xdsl')}",
    ]


def test_a_broken_interpreter_is_not_taken_for_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightnet.runtime.cuda.driver import open_driver

    monkeypatch.delitem(sys.modules, "lightnet_ptx.emulator", raising=False)
    monkeypatch.setitem(sys.modules, "lightnet_ptx.clocks", None)
    with pytest.raises(ModuleNotFoundError, match=r"lightnet_ptx\.clocks"):
        open_driver(emulate=True)
