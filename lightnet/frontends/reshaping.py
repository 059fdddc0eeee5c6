"""A network for inputs of other dimensions: `lightnet.load(path, shapes={"image": [1, 3, 512, 512]})`.

Shapes follow from the sources by the shape rule of each op, so only what an op spells out itself stays as it is: the
`dims` of a reshape or a resize, the ranges of a slice. An op that cannot take what comes is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Source
from lightnet.ir.constraints import check_op
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp, tensor_names
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dims import Dim, Size, least
from lightnet.runtime.program import unknown


def with_shapes(module: ModuleOp, shapes: Mapping[str, Sequence[int]]) -> ModuleOp:
    """A copy of a level-1 module in which the inputs (or params) named in `shapes` have those dims, and everything
    behind them the types that follow.

    Raises `LightNetError`: for an unknown name, for dims that are no positive integers, for a module that is compiled
    already, and, at the place of the op, where an op cannot take its new operands (a reshape to fixed dims of another
    number of elements, a deconv2d with other `output_dims`).
    """
    module = module.clone()
    main = main_of(module)
    ops = list(main.body.block.ops)
    if memory_of(module) or not all(isinstance(op, LnOp | func.ReturnOp) for op in ops):
        raise LightNetError("shapes can be changed in a network that is not compiled yet")
    sources = {tensor_names(op)[0]: op for op in ops if isinstance(op, Source)}
    for name, dims in shapes.items():
        if name not in sources:
            raise unknown("input or param", name, [n for n in sources if n])
        _set_type(sources[name], [TensorSpec(_checked_dims(name, dims), _spec(sources[name]).dtype)])
    for op in list(main.body.block.ops):
        if isinstance(op, LnOp):
            _infer(op)
    main.update_function_type()
    return module


def _spec(op: Operation) -> TensorSpec:
    assert isinstance(op, LnOp)
    return op.result_specs[0]


def _checked_dims(name: str, dims: Sequence[Size]) -> tuple[Size, ...]:
    try:
        given = tuple(d if isinstance(d, Dim) else int(d) for d in dims)
        exact = given == tuple(dims) and not isinstance(dims, str)
    except (TypeError, ValueError):
        exact = False
    if not exact or not given or min(map(least, given)) < 1:
        raise LightNetError(f"the shape of '{name}' should be a list of positive integers, but is {dims!r:.80}")
    return given


def _infer(op: LnOp) -> None:
    """Give the results the types that follow from the operands."""
    where = f"{op.optype} `{op.op_name}`" if op.op_name else op.optype
    takes = ", ".join(map(str, op.operand_specs))
    try:
        results = check_op(type(op), op.operand_specs, op.param_values(), op.op_name)
    except LightNetError as e:
        inputs = f" from {takes}" if takes else ""
        raise LightNetError(f"the network cannot be made for the shapes asked for: {where}{inputs}: {e.message}",
                            loc_of(op), e.label) from None  # fmt: skip
    if len(results) != len(op.results):
        raise LightNetError(f"the network cannot be made for the shapes asked for: {where} from {takes} would have "
                            f"{len(results)} results, and has {len(op.results)}", loc_of(op),
                            f"{op.optype}.result-count")  # fmt: skip
    if results != op.result_specs:
        _set_type(op, results)


def _set_type(op: Operation, results: Sequence[TensorSpec]) -> None:
    """Replace an op by one with other result types; names and location stay."""
    new = type(op).create(operands=list(op.operands), result_types=[tensor_type(r) for r in results],
                          properties=dict(op.properties), attributes=dict(op.attributes),
                          location=op.location)  # fmt: skip
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    for old, value in zip(op.results, new.results):
        value.name_hint = old.name_hint
        old.replace_all_uses_with(value)
    op.detach()
    op.erase()
