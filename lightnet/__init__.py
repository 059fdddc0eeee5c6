"""LightNet: a small multi-dialect neural-network compiler.

    import lightnet
    model = lightnet.load("squeezedet.net", weights="squeezedet.npz")
    run = lightnet.compile(model, target="cpu")
    boxes = run({"input": picture})["final_bbox"]

Everything is imported on first use: `import lightnet` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers, what `_API` finds when it is asked for
    from lightnet import deploy, plugins
    from lightnet.compiler import Executable, compile
    from lightnet.context import Context
    from lightnet.diagnostics import LightNetError
    from lightnet.model import Model, load, loads
    from lightnet.runtime.artifact import load_executable
    from lightnet.runtime.rows import score
    from lightnet_export.nnvm.model import to_nnvm
    from lightnet_export.onnx.model import to_onnx
    from lightnet_quantize.quantizer import quantize

__version__ = "0.2.0"

_API = {
    "load": "lightnet.model",
    "loads": "lightnet.model",
    "Model": "lightnet.model",
    "compile": "lightnet.compiler",
    "Executable": "lightnet.compiler",
    "Context": "lightnet.context",
    "load_executable": "lightnet.runtime.artifact",
    "score": "lightnet.runtime.rows",
    "to_onnx": "lightnet_export.onnx.model",
    "to_nnvm": "lightnet_export.nnvm.model",
    "quantize": "lightnet_quantize.quantizer",
    "LightNetError": "lightnet.diagnostics",
}
__all__ = [*_API, "deploy", "plugins", "__version__"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in ("plugins", "deploy"):
        return import_module(f"lightnet.{name}")
    if name not in _API:
        raise AttributeError(f"module 'lightnet' has no attribute '{name}'")
    from lightnet.ir.collector import collector_paused
    from lightnet.ir.resolving import resolve_beside

    with collector_paused():  # modules and classes are cyclic, and stay
        try:
            value = resolve_beside(f"{_API[name]}:{name}", f"lightnet.{name}")
        except ModuleNotFoundError as e:
            from lightnet.diagnostics import needs_compiler

            raise needs_compiler(e) or e from None
    globals()[name] = value
    return value
