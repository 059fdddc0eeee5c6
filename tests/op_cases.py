"""Single ops beside each other in one network, so that one compilation serves many cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Region

from lightnet.dialects.ln.source import Input
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec
from lightnet.model import Model


class OpCase(Protocol):
    """One op with its parameters, and the types and contents of its operands."""

    cls: type[LnOp]
    specs: tuple[TensorSpec, ...]
    params: dict[str, Any]
    arrays: list[np.ndarray]


def beside(cases: Sequence[OpCase], source: str) -> tuple[Model, dict[str, np.ndarray]]:
    """A network of all cases, and what to feed it: operand i of case k is ``x{k}_{i}``, its result j ``y{k}_{j}``."""
    block, outputs = Block(), []
    feeds: dict[str, np.ndarray] = {}
    for k, case in enumerate(cases):
        sources = []
        for i, (spec, array) in enumerate(zip(case.specs, case.arrays)):
            params = {"dtype": spec.dtype.tl, "dims": spec.dims, "required": True}
            sources.append(Input.make([], params, name=f"c{k}_{i}", tensors=[f"x{k}_{i}"]))
            feeds[f"x{k}_{i}"] = array
        op = case.cls.make([s.results[0] for s in sources], dict(case.params), name=f"op{k}")
        op.attributes["ln.tensors"] = ArrayAttr([StringAttr(f"y{k}_{j}") for j in range(len(op.results))])
        block.add_ops([*sources, op])
        outputs += op.results
    block.add_op(func.ReturnOp(*outputs))
    return Model(ModuleOp([func.FuncOp("main", ((), [v.type for v in outputs]), Region(block))]), source), feeds
