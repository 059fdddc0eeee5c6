"""Which gathers may read packed factors, and what is cheap: the parts of `passes/tied.py`, on kernels as text."""

from __future__ import annotations

import pytest
from blocked_kernels import kernel_of, set_layout
from xdsl.dialects.builtin import StringAttr

from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked
from lightnet.passes.tied import _forms, _gather, _is_cheap

TABLE = {"t": "tensor<8x4xi32>", "i": "tensor<2xi32>"}
TAKE = "%y = ln.take %t, %i {axis = 0} : tensor<2x4xi32> ln.yield %y"


def gather(body: str = TAKE, alg: str | None = "loops") -> KernelOp:
    kernel = kernel_of(TABLE, body)
    if alg is not None:
        kernel.attributes["alg"] = StringAttr(alg)
    return kernel


def test_a_gather_by_loops_from_a_plain_table_is_one() -> None:
    kernel = gather()
    assert _gather(kernel, kernel.operands[0]) is kernel
    assert _gather(kernel, kernel.operands[1]) is None, "that is what it gathers by"
    assert _gather(kernel.ops[0], kernel.ops[0].operands[0]) is None, "an op by itself is no kernel"


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: gather(alg=None),
        lambda: gather(alg="rows"),
        lambda: gather("%y = ln.take %t, %i {axis = 0} : tensor<2x4xi32> %z = ln.relu %y : tensor<2x4xi32> ln.yield %z"),
        lambda: gather("%y = ln.relu %t : tensor<8x4xi32> ln.yield %y"),
        lambda: gather("%y = ln.take %i, %t {axis = 0} : tensor<8x4xi32> ln.yield %y"),
    ],
    ids=["no choice", "another way", "more than a gather", "no gather", "from what it gathers by"],
)  # fmt: skip
def test_what_is_no_such_gather(kernel) -> None:
    made = kernel()
    assert _gather(made, made.operands[0]) is None


def test_a_table_that_is_read_twice_or_lies_otherwise_is_left() -> None:
    twice = kernel_of(
        {"t": "tensor<8xi32>", "i": "tensor<8xi32>"}, "%y = ln.take %t, %i {axis = 0} : tensor<8xi32> ln.yield %y"
    )
    twice.attributes["alg"] = StringAttr("loops")
    assert _gather(twice, twice.operands[0]) is twice
    twice.operands[1] = twice.operands[0]
    assert _gather(twice, twice.operands[0]) is None
    laid = kernel_of(
        {"t": "tensor<1x16x2x2xi32>", "i": "tensor<2xi32>"},
        "%y = ln.take %t, %i {axis = 1} : tensor<1x2x2x2xi32> ln.yield %y",
    )
    laid.attributes["alg"] = StringAttr("loops")
    assert _gather(laid, laid.operands[0]) is laid
    set_layout(laid.operands[0], Blocked(16, (0, 0)))
    assert _gather(laid, laid.operands[0]) is None


def test_a_value_that_is_not_made_once_is_its_only_form() -> None:
    table = gather().operands[0]
    assert _forms(table) == [(table, False)]


@pytest.mark.parametrize("rows, lines", [(1, 64), (16, 64), (32, 128), (40, 160)])
def test_a_gather_may_read_a_quarter_of_what_the_product_reads(rows: int, lines: int) -> None:
    """In lines of memory, of a matrix [64, 64] of floats; a product of more than 16 rows reads it more often."""
    product = kernel_of(
        {"a": f"tensor<{rows}x64xf32>", "b": "tensor<64x64xf32>"},
        f"%y = ln.matmul %a, %b : tensor<{rows}x64xf32> ln.yield %y",
    )

    def reader(count: int) -> KernelOp:
        return kernel_of({"x": f"tensor<{count}xf32>"}, f"%y = ln.relu %x : tensor<{count}xf32> ln.yield %y")

    form = product.operands[1]
    assert _is_cheap([reader(lines)], form) and _is_cheap([reader(lines - 1), reader(1)], form)
    assert not _is_cheap([reader(lines + 1)], form) and not _is_cheap([reader(lines), reader(1)], form)
