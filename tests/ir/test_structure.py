"""The structure of modules: where terminators and successors stand, and values that are not there where they are used, each with its message."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import pytest
from xdsl.dialects import arith, cf, func, scf, test
from xdsl.dialects.builtin import BoolAttr, ModuleOp, i1, i32
from xdsl.ir import Block, Operation, Region
from xdsl.irdl import IRDLOperation, attr_def, irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir import verify
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.names import set_tensor_names, tensor_names
from lightnet.ir.passes import inherit
from lightnet.ir.verify import module_errors, op_text, verify_module


def number() -> arith.ConstantOp:
    return arith.ConstantOp.from_int_and_width(1, 32)


def said(*blocks: Block) -> list[str]:
    """The messages about a function of these blocks."""
    function = func.FuncOp("f", ((), ()), region=Region(blocks))
    return [e.message for e in module_errors(ModuleOp([function]))]


def test_right_blocks() -> None:
    last, one = Block([func.ReturnOp()]), number()
    assert said(Block([one, cf.BranchOp(last)]), last) == []
    assert said(Block([func.ReturnOp()])) == []
    cycle = Block([test.TestOp([])])
    cycle.add_op(cf.BranchOp(cycle))
    assert said(Block([cf.BranchOp(cycle)]), cycle) == []


def test_where_terminators_stand() -> None:
    last = Block([func.ReturnOp()])
    assert said(Block([cf.BranchOp(last), number(), cf.BranchOp(last)]), last) == [
        "'cf.br' op: an op with successors must be the last op of its block"
    ]
    last, elsewhere = Block([func.ReturnOp()]), Block([test.TestTermOp()])
    around = test.TestOp(regions=[Region([Block([cf.BranchOp(last)]), elsewhere])])
    assert "'cf.br' op: branches to a block of another region" in said(Block([around, cf.BranchOp(last)]), last)
    condition = arith.ConstantOp.from_int_and_width(1, 1)
    assert said(Block([condition, scf.IfOp(condition, [], Region(Block())), func.ReturnOp()])) == [
        "'scf.if' op: its block is empty, but needs a terminator"
    ]


def test_a_place_is_wrong_only_in_a_region() -> None:
    """An op that stands nowhere, or in a block that does, may be anything: it is checked once it is in a region."""
    assert verify.error_of(number()) is None
    last, region = Block([number(), number()]), Region()
    assert [verify.error_of(op) for op in last.ops] == [None, None]
    region.add_block(last)
    assert [verify.error_of(op) for op in last.ops] == [None, None]  # a region of no op needs no terminator
    test.TestOp(regions=[region])
    first, second = (verify.error_of(op) for op in last.ops)
    assert first is None and "ends its block, but is not a terminator, such as func.return" in str(second)
    branch = cf.BranchOp(Block())
    alone = "'cf.br' op: an op with successors must be the last op of its block"
    assert str(verify.error_of(branch)) == alone
    Block([branch])
    assert str(verify.error_of(branch)) == alone


def used(operation: Operation) -> test.TestOp:
    return test.TestOp([operation.results[0]])


def test_values_that_are_not_there() -> None:
    one = number()
    one.results[0].name_hint = "one"
    assert said(Block([used(one), one, func.ReturnOp()])) == [
        "'test.op' op: operand 0 (%one) is used before it is defined"
    ]
    itself = test.TestOp(result_types=[i32])
    itself.operands = [itself.results[0]]
    assert said(Block([itself, func.ReturnOp()])) == ["'test.op' op: operand 0 is used before it is defined"]
    missing, _isolated = said(Block([used(number()), func.ReturnOp()]))
    assert missing == "'test.op' op: operand 0 is defined by no op of the module"
    inner = Block([test.TestTermOp()], arg_types=[i1])
    assert said(Block([test.TestOp(regions=[Region(inner)]), test.TestOp([inner.args[0]]), func.ReturnOp()])) == [
        "'test.op' op: operand 0 is an argument of a block that does not enclose the op"
    ]


#: Whether they were right, of the ops below that were verified.
ASKED: list[bool] = []


@irdl_op_definition
class Asked(IRDLOperation):
    """Notes that it is verified, and is right if it says so."""

    name = "test.asked"
    right = attr_def(BoolAttr)

    def verify_(self) -> None:
        ASKED.append(bool(self.right.value.data))
        if not ASKED[-1]:
            raise VerifyException("wrong")


@pytest.mark.parametrize("rights", list(itertools.product((False, True), repeat=3)))
def test_no_op_is_looked_at_behind_the_last_error(rights: tuple[bool, ...]) -> None:
    """Of those asked for, which is one where the first is raised: an error costs no walk of what follows."""
    module = ModuleOp([Asked.create(attributes={"right": BoolAttr.from_bool(right)}) for right in rights])
    wrong = [i for i, right in enumerate(rights) if not right]
    for limit in range(1, len(rights) + 1):
        ASKED.clear()
        assert len(module_errors(module, limit=limit)) == len(wrong[:limit])
        assert ASKED == list(rights[: wrong[limit - 1] + 1] if len(wrong) >= limit else rights)
    ASKED.clear()
    with pytest.raises(LightNetError, match="wrong") if wrong else nullcontext():
        verify_module(module)
    assert ASKED == list(rights[: wrong[0] + 1] if wrong else rights)


def test_blocks_of_a_region_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_BLOCKS", 2)

    def chain(length: int) -> list[Block]:
        blocks = [Block([func.ReturnOp()])]
        while len(blocks) < length:
            blocks.insert(0, Block([cf.BranchOp(blocks[0])]))
        return blocks

    assert said(*chain(2)) == []
    assert said(*chain(3)) == ["'func.func' op: has a region of 3 blocks; the limit is 2"]


def test_texts_of_ops_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "%c1_i32 = arith.constant 1 : i32"
    for limit in (len(text), len(text) - 1, 4):
        monkeypatch.setattr(verify, "MAX_OP_TEXT", limit)
        assert op_text(number()) == (text if limit >= len(text) else f"{text[:limit]} ...")


def test_a_new_op_inherits_places_and_names() -> None:
    """All places of what it stands for, unless it has one; the names of the last, if it has as many results."""
    first, last, new, placed = number(), number(), number(), number()
    for line, op in enumerate((first, last, placed), 1):
        set_loc(op, SourceLoc("f", line, 1))
        set_tensor_names(op, [f"t{line}"])
    inherit(new, first, last)
    assert new.location == fused([first, last]) and tensor_names(new) == ("t2",)
    place = placed.location
    inherit(placed, first, last)
    assert placed.location == place and tensor_names(placed) == ("t3",)
    pair, alone = test.TestOp(result_types=[i32, i32]), number()
    inherit(pair, first)
    assert pair.location == first.location and tensor_names(pair) == (None, None)
    inherit(alone)
    assert tensor_names(alone) == (None,)
