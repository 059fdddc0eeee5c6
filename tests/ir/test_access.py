"""How ops read their operands: what `ir.access` says of a definition is true of the op's reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.test import TestOp as Source

from lightnet.backends.cpu.plain import accepts
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.access import broadcast_operands, data_operands, is_copy, is_elementwise, is_reduction
from lightnet.ir.body import Body
from lightnet.ir.op import LnOp, ln_op, number, operand, result
from lightnet.ir.registry import FAMILIES
from lightnet.ir.schema import Case
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME

F32 = BY_NAME["f32"]
CASES = [(cls, cls.schema.resolve(c)) for cls in optypes().values() for c in cls.samples()]


def values(*dims: tuple[int, ...]) -> list:
    return list(Source(result_types=[tensor_type(TensorSpec(d, F32)) for d in dims]).results)


def made(cls: type[LnOp], case: Case) -> LnOp:
    specs: list[TensorSpec] = []
    for field in cls.schema.operands:
        found = case.tensors[field.name]
        specs += found if field.variadic else [found]
    return cls.make(list(Source(result_types=[tensor_type(s) for s in specs]).results), dict(case.params))


def data_of(op: LnOp, case: Case) -> list[np.ndarray]:
    names, fields = op.arg_names()[0], op.schema.operand_fields(len(op.operands))
    return [
        op.sample_data(name, field.kind, spec, case.tensors, case.params, seed=1)
        for name, field, spec in zip(names, fields, op.operand_specs)
    ]


def cases(kind: Callable[[LnOp], bool]) -> pytest.MarkDecorator:
    """The test cases of the ops of a kind."""
    found = [case for case in CASES if kind(made(*case))]
    return pytest.mark.parametrize(("cls", "case"), found, ids=[cls.optype for cls, _ in found])


@cases(is_elementwise)
def test_elementwise_ops_read_their_own_index(cls: type[LnOp], case: Case) -> None:
    """A change of one element of a data operand, of those that have the result's shape, changes no other element."""
    op = made(cls, case)
    arrays = data_of(op, case)
    before = op.reference(*arrays)
    full = set(data_operands(op)) - set(broadcast_operands(op))
    assert full
    for k in full if before.size else ():
        assert before.shape == arrays[k].shape
        changed = [a.copy() for a in arrays]
        at = changed[k].size // 2
        with np.errstate(all="ignore"):
            changed[k].flat[at] = ~changed[k].flat[at] if changed[k].dtype == bool else changed[k].flat[at] * 2 + 1
        difference = np.flatnonzero(op.reference(*changed) != before)
        assert set(difference.tolist()) <= {at}


@cases(is_copy)
def test_copies_compute_nothing(cls: type[LnOp], case: Case) -> None:
    """Every result element is an operand element; of a move, none twice."""
    op = made(cls, case)
    (spec,) = op.operand_specs
    numbers = np.arange(1, spec.len + 1).reshape(spec.dims)  # told apart in any dtype of the op
    out = np.ravel(np.asarray(op.reference(numbers)))
    assert set(out.tolist()) <= set(range(1, spec.len + 1))
    assert not op.is_move or len(set(out.tolist())) == out.size


def test_kinds_of_our_ops() -> None:
    found: dict[str, set[str]] = {"elementwise": set(), "copy": set(), "reduction": set()}
    for cls, case in CASES:
        op = made(cls, case)
        for kind, holds in (("elementwise", is_elementwise), ("copy", is_copy), ("reduction", is_reduction)):
            if holds(op) and not op.schema.variadic_operand and not op.schema.variadic_result:
                found[kind].add(cls.optype)
    families = {op.optype for family in ("arith", "unary", "activation") for op in FAMILIES.get(family)}
    rearrangements = {"strided_slice", "expand", "pad", "tile"}  # a pad that only cuts
    reductions = {f"reduce_{kind}" for kind in ("sum", "prod", "max", "min")}
    reductions |= {"matmul", "conv", "deconv", "maxpool", "interpolate"}
    assert found == {
        "elementwise": {"relu", "lrelu", "sigmoid", "elew", "batchnorm", "expand", "pad", "tile", "trilu", "copy"}
        | families,
        "copy": {"copy", "forward", "reshape", "slice", "transpose", "resize", "upsample"} | rearrangements,
        "reduction": {
            "conv2d",
            "deconv2d",
            "maxpool2d",
            "avgpool2d",
            "maxreduce",
            "dot_product",
            "conv2d_integer",
            "matmul_integer",
            "conv2d_short",
            "matmul_short",
        }
        | reductions,
    }


def test_an_op_from_outside_fuses() -> None:
    """An elementwise op that LightNet has never seen goes into the epilogue of a convolution, and beside other ops."""

    @ln_op
    class Scaled(LnOp):
        optype = "test_scaled"
        src = operand()
        by = operand("param", rank=1)
        dst = result()
        slope = number("float", default=2)
        definition = "dst[n, c, y, x] = src[n, c, y, x] * by[c] * slope"

    x, w, b, by = values((1, 3, 4, 4), (5, 3, 1, 1), (5,), (5,))
    conv = Conv2d.make([x, w, b], {"size": (1, 1)})
    scaled = Scaled.make([conv.dst, by])
    relu = Relu.make([scaled.dst])
    assert accepts(Body.of(one_result(CpuKernelOp.wrap([conv, scaled])))) == "anchor"
    assert accepts(Body.of(one_result(CpuKernelOp.wrap([scaled, relu])))) == "elementwise"


def one_result(kernel: CpuKernelOp) -> CpuKernelOp:
    """The kernel, yielding the result of its last op alone."""
    kernel.terminator.operands = [kernel.terminator.operands[-1]]
    return kernel


def test_a_read_beside_the_index_is_not_elementwise() -> None:
    @ln_op
    class Shifted(LnOp):
        optype = "test_shifted"
        src = operand(rank=1)
        dst = result()
        definition = "dst[i] = src[i] + src[i + 1 | 0]"

    @ln_op
    class Kept(LnOp):
        optype = "test_kept"
        src = operand(rank=1)
        dst = result()
        definition = "dst[i] = i"

    (x,) = values((4,))
    assert not is_elementwise(Shifted.make([x]))
    assert not is_elementwise(Kept.make([x]))
