"""Mutants of `lower-cpu`: of moves, of what launches get, and of the generators of kernels."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant

_PASSES = "expand,choose,plan,lower-cpu"


def _lower(mutant: str, what: str, edit: Edit, network: str) -> Mutant:
    return Mutant(mutant, what, (edit,), _PASSES, "lower-cpu", None, network)


_MATMUL = """
%a = ln.input : tensor<5x24xf32> as ("a")
%b = ln.input : tensor<24x17xf32> as ("b")
%y = ln.matmul %a, %b : tensor<5x17xf32>
func.return %y : tensor<5x17xf32>
"""

#: One output pixel, and a sum of 45 terms: two vectors and a rest.
_DENSE = """
%x = ln.input : tensor<1x5x3x3xf32> as ("x")
%w = ln.param : tensor<4x5x3x3xf32> as ("w")
%b = ln.param : tensor<4xf32> as ("b")
%y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x1x1xf32>
func.return %y : tensor<1x4x1x1xf32>
"""

MUTANTS = (
    _lower(
        "copies-from-the-start", "copies a slice from the start of its source",
        Edit("passes/lowering.py", "                start = source.offset.data + offset\n", "                start = source.offset.data\n"),
        """
%x = ln.input : tensor<8x16xf32> as ("x")
%h = ln.slice %x {axis = 0, start = 4, len = 4} : tensor<4x16xf32>
%y = ln.concat %h, %h {axis = 0} : tensor<8x16xf32>
func.return %y : tensor<8x16xf32>
""",
    ),
    _lower(
        "functions-shared", "calls one function for kernels that differ in a parameter",
        Edit("ir/body.py", "                tuple(sorted(op.properties.items())),\n", ""),
        """
%x = ln.input : tensor<16xf32> as ("x")
%a = ln.lrelu %x {negslope = 0.1} : tensor<16xf32>
%b = ln.lrelu %x {negslope = 0.7} : tensor<16xf32>
%y = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _lower(
        "places-of-operands-reversed", "hands the operands over from the last one on",
        Edit("passes/lowering.py", "        return placed(op.operands[argument.number])",
             "        return placed(op.operands[-1 - argument.number])"),
        """
%a = ln.input : tensor<16xf32> as ("a")
%b = ln.input : tensor<16xf32> as ("b")
%y = ln.elew %a, %b {elew_op = "TL_SUB"} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _lower(
        "maximum-from-zero", "starts a maximum at 0",
        Edit("backends/loop_function.py", "return self.values.result(Const(identity_number(s.op, dtype), dtype))",
             "return self.values.result(Const(0 if s.op == 'max=' else identity_number(s.op, dtype), dtype))"),
        """
%x = ln.input : tensor<4x8xf32> as ("x")
%a = ln.abs %x : tensor<4x8xf32>
%n = ln.neg %a : tensor<4x8xf32>
%y = ln.reduce_max %n {axes = [1]} : tensor<4x1xf32>
func.return %y : tensor<4x1xf32>
""",
    ),
    _lower(
        "first-rows-only", "multiplies with the first rows of the second matrix again and again",
        Edit("backends/cpu/gemm.py", "k.yields(self.products(row, k.iv, rows, step,", "k.yields(self.products(row, first, rows, step,"),
        _MATMUL,
    ),
    _lower(
        "rest-of-sum-lost", "leaves out what does not fill a vector",
        Edit("backends/cpu/tiled.py", "            acc = step(whole, acc, length - whole)\n", "            pass\n"),
        _DENSE,
    ),
    _lower(
        "bias-lost", "does not add the bias",
        Edit("backends/cpu/tiled.py", "self.finish(tile, b.op(arith.AddfOp, total, start))", "self.finish(tile, total)"),
        _DENSE,
    ),
)  # fmt: skip
