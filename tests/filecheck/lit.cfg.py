"""For `lit tests/filecheck`: the same tests as `pytest tests/test_filecheck.py`, each command a process of its own."""

import os
import sys
from pathlib import Path

import lit.formats

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from filecheck_runner import SUFFIXES, TOOLS  # noqa: E402

config.name = "LightNet"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.test_source_root = str(HERE)  # noqa: F821
config.test_exec_root = os.environ.get("LIT_EXEC_ROOT", str(HERE.parent.parent / "build" / "lit"))  # noqa: F821
config.suffixes = list(SUFFIXES)  # noqa: F821
config.excludes = ["Inputs", "lit.cfg.py"]  # noqa: F821
config.available_features.add(sys.platform)  # noqa: F821
for module in ("onnx", "onnxruntime", "safetensors"):
    try:
        __import__(module)
        config.available_features.add(module)  # noqa: F821
    except ImportError:
        pass

# The console scripts of this environment; where they are not installed, the modules behind them.
scripts = Path(sys.executable).parent
config.environment["PATH"] = os.pathsep.join([str(scripts), os.environ.get("PATH", "")])  # noqa: F821
for tool, entry in TOOLS.items():
    if not (scripts / tool).exists():
        command = f"{sys.executable} -m {entry.partition(':')[0]}"
        config.substitutions.append((rf"(?<![\w./-]){tool}(?![\w./-])", command))  # noqa: F821
