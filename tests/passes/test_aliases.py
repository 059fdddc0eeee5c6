"""Where a result may take the memory of an operand, as the lowering to launches sees it: byte ranges of planned kernels."""

from __future__ import annotations

import pytest
from blocked_kernels import kernel_of
from xdsl.dialects.builtin import ArrayAttr

from lightnet.diagnostics import LightNetError
from lightnet.ir.op import PLACES
from lightnet.ir.place import PlaceAttr
from lightnet.passes.lowering import _aliases, placed

X = "tensor<16xf32>"
BODY = "%p = ln.add %x, %y : T %q = ln.sub %x, %y : T ln.yield %p, %q"


def planned(operands: list[tuple[str, int]], results: list[tuple[str, int]], type: str = X):
    """A kernel of two operands and two results of one type, each of which stands somewhere."""
    names = {"x": type, "y": type}
    outer = kernel_of(names, BODY.replace(": T", f": {type}"))
    for name, place in zip(("x", "y"), operands):
        made = kernel_of({"z": type}, f"%y = ln.relu %z : {type} ln.yield %y")
        made.attributes[PLACES] = ArrayAttr([PlaceAttr(*place)])
        outer.operands[0 if name == "x" else 1] = made.results[0]
    outer.attributes[PLACES] = ArrayAttr([PlaceAttr(*p) for p in results])
    return outer


@pytest.mark.parametrize(
    ("operands", "results", "aliases"),
    [
        ((0, 64), (128, 192), {}), ((0, 64), (0, 128), {0: 0}), ((0, 64), (64, 0), {0: 1, 1: 0}), ((64, 128), (0, 192), {}),
        ((0, 64), (32, 128), (0, 0)), ((32, 128), (0, 192), (0, 0)), ((0, 0), (0, 64), (0, 1)), ((0, 64), (0, 0), (1, 0)),
        ((4, 128), (64, 192), (0, 0)), ((0, 124), (64, 192), (0, 1)),
    ],
)  # fmt: skip
def test_a_result_takes_all_of_one_operand_or_nothing(operands, results, aliases) -> None:
    kernel = planned([("arena", o) for o in operands], [("arena", o) for o in results])
    if isinstance(aliases, dict):
        assert _aliases(kernel) == aliases
        return
    result, operand = aliases
    with pytest.raises(
        LightNetError,
        match=f"the plan lets result {result} of a cpu.kernel overlap its operand {operand}: it cannot be lowered",
    ):
        _aliases(kernel)


def test_other_spaces_and_empty_tensors_share_nothing() -> None:
    assert _aliases(planned([("arena", 0), ("arena", 64)], [("near", 0), ("near", 64)])) == {}
    assert _aliases(planned([("arena", 0), ("arena", 0)], [("arena", 0), ("arena", 0)], "tensor<0xf32>")) == {}


def test_what_has_no_place_is_not_lowered() -> None:
    with pytest.raises(LightNetError, match="a value has no place: run plan before lowering"):
        placed(kernel_of({"x": X}, f"%y = ln.relu %x : {X} ln.yield %y").results[0])
