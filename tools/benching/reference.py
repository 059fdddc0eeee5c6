"""The reference for a network: the reference interpreter on it in float64, or else ONNX Runtime; and how far an engine
is off.

Imports lightnet and `compare_onnxruntime.py`, whose rules of comparison hold here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from compare_onnxruntime import Ranking, compare_with, onnxruntime_outputs, ranked_tensors, rankings
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.source import Source
from lightnet.ir.constraints import check_op
from lightnet.ir.locations import loc_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.model import Model
from lightnet.runtime.dtypes import BY_NAME, DType

Arrays = Mapping[str, np.ndarray]
SINGLE, DOUBLE = BY_NAME["f32"], BY_NAME["f64"]


def in_double(module: ModuleOp) -> ModuleOp:
    """A copy of a level-1 module in which every f32 is an f64; an op that takes no f64 stays as it is between casts. Raises
    `LightNetError` where there is something else than `ln` ops."""
    module = module.clone()
    main = main_of(module)
    for op in list(main.body.block.ops):
        if isinstance(op, func.ReturnOp):
            continue
        if not isinstance(op, LnOp):
            raise LightNetError(f"'{op.name}' cannot be made double", loc_of(op))
        _make_double(op)
    main.update_function_type()
    return module


def _make_double(op: LnOp) -> None:
    """Give an op the result types that follow from its operands, which are double already."""
    results = [TensorSpec(s.dims, DOUBLE if s.dtype == SINGLE else s.dtype) for s in op.result_specs]
    if not isinstance(op, Source):
        params = op.param_values()
        if params.get("dtype") == SINGLE.tl:
            params["dtype"] = DOUBLE.tl
        try:
            results = check_op(type(op), op.operand_specs, params, op.op_name)
        except LightNetError:
            _cast_around(op)
            return
    for value, spec in zip(op.results, results):
        if spec != spec_of(value.type):
            value._type = tensor_type(spec)


def _cast_around(op: LnOp) -> None:
    for i, spec in enumerate(op.operand_specs):
        if spec.dtype == DOUBLE:
            op.operands[i] = _cast(op.operands[i], SINGLE, op, before=True)
    for value in op.results:
        uses = [use for use in value.uses if isinstance(use.operation, LnOp)]
        if spec_of(value.type).dtype == SINGLE and uses:
            wide = _cast(value, DOUBLE, op, before=False)
            for use in uses:
                use.operation.operands[use.index] = wide


def _cast(value: SSAValue, dtype: DType, op: LnOp, before: bool) -> SSAValue:
    made = Cast.make([value], {"dtype": dtype.tl})
    assert op.parent is not None
    if before:
        op.parent.insert_op_before(made, op)
    else:
        op.parent.insert_op_after(made, op)
    return made.results[0]


def double_outputs(model: Model, given: Arrays, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The tensors called `names` as the interpreter computes them in float64 from the contents `given` of all sources; rounded to
    the types of the network at last. Raises `LightNetError` as `in_double` does."""
    types = {n: v for op in model.main.body.block.ops if isinstance(op, LnOp)
             for n, v in zip(op.tensor_names, op.result_specs)}  # fmt: skip
    fed = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in given.items()}
    found = graph.run(in_double(model.module), fed, None, outputs=list(names))
    return {n: a.astype(types[n].dtype.np) for n, a in found.items()}


def expected(model: Model, given: Arrays) -> tuple[dict[str, np.ndarray], str]:
    """The expected outputs of a network, with what is needed to compare sorted ones, and who says so."""
    returned = [n for v in model.main.body.block.last_op.operands for n in [_name(v)]]
    names = list(dict.fromkeys([*returned, *ranked_tensors(list(rankings(model)))]))
    try:
        return double_outputs(model, given, names), "float64"
    except LightNetError as e:
        why = " ".join(str(e).split())[:120]
    try:
        return onnxruntime_outputs(model, ranked_tensors(list(rankings(model)))), f"ONNX Runtime (no float64: {why})"
    except ImportError:
        return {}, f"nobody (no float64: {why})"


def _name(value: Any) -> str:
    return value.owner.tensor_names[value.index] or ""


def error(got: Arrays, want: Arrays, ranked: Sequence[Ranking]) -> float:
    """The largest difference of an output from what it should be, relative to the largest value of the output; infinite where one
    is wrong in kind. Outputs that the reference does not have are passed over."""
    there = {n: a for n, a in got.items() if n in want}
    picked = [r for r in ranked if all(output in there for output, _, _ in r.picks)]
    return max((f.error for f in compare_with(picked, there, want)), default=float("nan"))
