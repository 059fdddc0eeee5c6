"""The functions of upstream's architectures that optimizer descriptions call, beside those of the C reader's library.

Which version of TensorRT there is decides between rules: 7.1.3, for which upstream's plans were recorded. Imports the C
reader, where one is called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from lightnet.ir.types import TensorSpec

if TYPE_CHECKING:
    from lightnet_descriptions.c import CFunction

#: The version of TensorRT that descriptions are read for.
TENSORRT_VERSION = (7, 1, 3)
#: What may be called in a condition, and the kind of its value; in `${type(T) …}` there is more (`function_table`).
KINDS = {
    "ln_tensorrt_version_cmp": "number", "LN_TRT_VER": "number", "ln_tensorrt_elew_name": "string",
    "tl_tensor_dot_product_cuda_ws_len": "number",
}  # fmt: skip


@cache
def function_table() -> Mapping[str, CFunction]:
    """The C reader's functions, and those of TensorRT."""
    from lightnet_descriptions.c import CFunction, library

    version, name = (
        CFunction(lambda machine, v: _compared(library.string_argument(v)), 1, 1),
        CFunction(_elew_name, 1, 1),
    )
    return {
        **library.FUNCTIONS,
        "ln_tensorrt_version_cmp": version,
        "LN_TRT_VER": version,
        "ln_tensorrt_elew_name": name,
    }


def _compared(version: str) -> int:
    """-1, 0 or 1, as `TENSORRT_VERSION` is before, at or behind a version. ValueError for what is none."""
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4}){0,3}", version):
        raise ValueError(f"a version is written as 4.0.0, not {version!r:.40}")
    other = tuple(map(int, version.split(".")))
    return (other < TENSORRT_VERSION) - (other > TENSORRT_VERSION)


def _elew_name(machine: Any, operation: Any) -> str:
    """TensorRT's name of an elementwise operation (``TL_SUM``: ``kSUM``)."""
    from lightnet_descriptions.c import Enumerator, library
    from lightnet_descriptions.tensorrt.layers import ELEMENTWISE

    name = operation.name if isinstance(operation, Enumerator) else library.string_argument(operation)
    if name not in ELEMENTWISE:
        raise ValueError(f"TensorRT has no elementwise operation {name!r:.40}; there are: {', '.join(ELEMENTWISE)}")
    return ELEMENTWISE[name]


def argument(value: Any) -> Any:
    """A value of a description as C has it."""
    from lightnet_descriptions import c

    if isinstance(value, TensorSpec):
        return c.tensor("tensor", value.dims, value.dtype.tl)
    if isinstance(value, tuple):
        is_real = any(isinstance(v, float) for v in value)
        return c.array("double", map(float, value)) if is_real else c.array("int", map(argument, value))
    return int(value) if isinstance(value, bool) else value
