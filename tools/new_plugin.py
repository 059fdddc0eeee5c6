"""Start a plugin: ``python tools/new_plugin.py my-research`` writes a folder of that name, a package with a pass, a rewrite rule, their
tests (pytest, FileCheck by lit) and the entry point by which LightNet finds it where it is installed.

    cd my-research
    pytest                     # passes at once, installed or not
    lit tests
    pip install -e .           # from then on every tool knows it, without --load

``--into`` is the folder that gets it (default: this one). Imports the standard library only.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from pathlib import Path

FILES = {
    "pyproject.toml": """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "Passes and rewrite rules for LightNet."
requires-python = ">=3.11"
dependencies = ["lightnet-compiler"]

[project.optional-dependencies]
dev = ["pytest>=8", "filecheck>=1", "lit>=18"]

[project.entry-points."lightnet.plugins"]
{module} = "{module}.plugin"

[tool.setuptools]
packages = ["{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
""",
    "README.md": """# {name}

Passes and rewrite rules for LightNet: `{module}/plugin.py`.

```sh
pip install -e .[dev]
ln-opt --pass={name} net.mlir     # or, where it is not installed: ln-opt --load {module}/plugin.py …
pytest
lit tests
```
""",
    "{module}/__init__.py": '"""Passes and rewrite rules for LightNet; `plugin.py` has them."""\n',
    "{module}/plugin.py": '''"""The pass `{name}`, and a rule for it. LightNet's docs/write-a-pass.md and docs/how-to-write-a-rule.md say more."""

from __future__ import annotations

from dataclasses import dataclass

from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.registry import pattern, patterns
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp


@dataclass(frozen=True)
class {cls}(LnPass):
    """Rewrite by the rules of this plugin.

    ```mlir
    %y = ln.relu %x    ->    %y = ln.relu %x
    %z = ln.relu %y
    ```
    """

    name = "{name}"
    target: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [cls() for cls in patterns(self.name, self.target)], dce=True)


# relu(relu(x)) = relu(x)
@pattern("{name}")
@rule("relu")
def relu_of_relu(op):
    inner = producer(op.src, Relu)
    return None if inner is None else Relu.make([inner.src])
''',
    "tests/test_{module}.py": '''"""The pass keeps what networks compute, and does what it is for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["LIGHTNET_NO_PLUGINS"] = "1"  # the file beside is tested, be it installed or not

import lightnet  # noqa: E402
from lightnet.ir.passes import parse_pipeline  # noqa: E402
from lightnet_trust.check import run_checked  # noqa: E402

PLUGIN = Path(__file__).parents[1] / "{module}" / "plugin.py"
NETWORK = """
func.func @main() -> tensor<2x3xf32> {{
  %x = ln.input : tensor<2x3xf32> as "input0"("x")
  %y = ln.relu %x : tensor<2x3xf32> as "relu0"("y")
  %z = ln.relu %y : tensor<2x3xf32> as "relu1"("z")
  return %z : tensor<2x3xf32>
}}
"""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.mlir"
    path.write_text(NETWORK, "utf-8")
    return path


def test_results_stay(network: Path) -> None:
    """Executed before and after each pass, on ordinary and awkward data."""
    model = lightnet.load(network)
    with lightnet.plugins.load(str(PLUGIN)):
        verdict = run_checked(model.ctx, model.module, parse_pipeline("{name}"))
    assert verdict.ok, verdict.error.render()


def test_one_relu_is_left(network: Path) -> None:
    model = lightnet.load(network)
    with lightnet.plugins.load(str(PLUGIN)):
        for pass_ in parse_pipeline("{name}"):
            pass_.apply(model.ctx, model.module)
    assert str(model.module).count("ln.relu") == 1
''',
    "tests/{module}.mlir": """// RUN: ln-opt --load %plugin %s --pass={name} | filecheck %s

// CHECK-LABEL: @main
func.func @main() -> tensor<2x3xf32> {{
  %x = ln.input : tensor<2x3xf32> as "input0"("x")
  %y = ln.relu %x : tensor<2x3xf32> as "relu0"("y")
  // CHECK: %[[Z:.*]] = ln.relu %x
  // CHECK-NOT: ln.relu
  // CHECK: return %[[Z]]
  %z = ln.relu %y : tensor<2x3xf32> as "relu1"("z")
  return %z : tensor<2x3xf32>
}}
""",
    "tests/lit.cfg.py": '''"""For `lit tests`: FileCheck tests of the pass."""

import os
import sys
from pathlib import Path

import lit.formats

HERE = Path(__file__).parent

config.name = "{name}"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.test_source_root = str(HERE)  # noqa: F821
config.test_exec_root = str(HERE.parent / "build" / "lit")  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.substitutions.append(("%plugin", str(HERE.parent / "{module}" / "plugin.py")))  # noqa: F821
config.environment["LIGHTNET_NO_PLUGINS"] = "1"  # noqa: F821
config.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # noqa: F821
if "PYTHONPATH" in os.environ:
    config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]  # noqa: F821
''',
}


def written(name: str, into: Path) -> Path:
    """Write the package; returns its folder. Raises SystemExit for a name that is none, or a folder that is there."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module) or module == "lightnet":
        sys.exit(
            f"error: '{name}' is no name for a plugin: small letters and digits, with - in between, as in my-research"
        )
    folder = into / name
    if folder.exists():
        sys.exit(f"error: {folder} is there already")
    words = {"name": name, "module": module, "cls": "".join(word.capitalize() for word in name.split("-")) + "Pass"}
    for path, text in FILES.items():
        file = folder / path.format(**words)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(**words), "utf-8")
    return folder


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="as in my-research: of the folder, of the distribution and of its pass")
    parser.add_argument("--into", type=Path, default=Path(), metavar="DIR", help="where the folder goes (default: .)")
    args = parser.parse_args()
    folder = written(args.name, args.into)
    print(f"wrote {folder}: `cd {folder} && pytest && lit tests`, then `pip install -e .`")


if __name__ == "__main__":
    main()
