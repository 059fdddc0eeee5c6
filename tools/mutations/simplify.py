"""Mutants of the rules that stand with the ops, of what they share, and of constant folding: all run by `simplify`."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant


def _rule(family: str, pattern: str, name: str, what: str, old: str, new: str, network: str) -> Mutant:
    return Mutant(name, what, (Edit(f"dialects/ln/{family}.py", old, new),), "simplify", "simplify", pattern, network)


RULES = (
    _rule(
        "rearrange", "strided_slice_of_all", "reversal-is-identity", "forgets that a step of -1 reverses",
        "whole = op.operand_specs == op.result_specs and all(s == 1 for s, n in zip(op.steps, op.lens) if greatest(n) > 1)",
        "whole = op.operand_specs == op.result_specs",
        """
%x = ln.input : tensor<4x6xf32> as ("x")
%y = ln.strided_slice %x {starts = [3, 0], steps = [-1, 1], lens = [4, 6]} : tensor<4x6xf32>
func.return %y : tensor<4x6xf32>
""",
    ),
    _rule(
        "rearrange", "strided_slice_of_one_axis", "step-lost", "makes a slice of a range with a step",
        "if len(cut) != 1 or 0 in op.lens or any(s != 1 for s, n in zip(op.steps, op.lens) if greatest(n) > 1):",
        "if len(cut) != 1 or 0 in op.lens:",
        """
%x = ln.input : tensor<4x6xf32> as ("x")
%y = ln.strided_slice %x {starts = [0, 1], steps = [1, 2], lens = [4, 2]} : tensor<4x2xf32>
func.return %y : tensor<4x2xf32>
""",
    ),
    _rule(
        "rearrange", "strided_slice_of_strided_slice", "inner-step-lost", "adds the starts as if the inner step were 1",
        "starts = tuple(a + s * b for a, s, b in zip(inner.starts, inner.steps, op.starts))",
        "starts = tuple(a + b for a, s, b in zip(inner.starts, inner.steps, op.starts))",
        """
%x = ln.input : tensor<12xf32> as ("x")
%a = ln.strided_slice %x {starts = [1], steps = [2], lens = [5]} : tensor<5xf32>
%y = ln.strided_slice %a {starts = [1], steps = [2], lens = [2]} : tensor<2xf32>
func.return %y : tensor<2xf32>
""",
    ),
    _rule(
        "rearrange", "pad_of_nothing", "shift-is-identity", "drops a pad that adds in front what it cuts off behind",
        "return op.src if not any(op.before) and not any(op.after) else None",
        "return op.src if op.operand_specs == op.result_specs else None",
        """
%x = ln.input : tensor<4x6xf32> as ("x")
%y = ln.pad %x {before = [1, 0], after = [-1, 0]} : tensor<4x6xf32>
func.return %y : tensor<4x6xf32>
""",
    ),
    _rule(
        "move", "concat_of_slices", "gap-between-slices", "joins slices that leave something out between them",
        "if any(a.start + a.len != b.start for a, b in pairwise(slices)):",
        "if any(a.start + a.len > b.start for a, b in pairwise(slices)):",
        """
%x = ln.input : tensor<6xf32> as ("x")
%a = ln.slice %x {axis = 0, start = 0, len = 2} : tensor<2xf32>
%b = ln.slice %x {axis = 0, start = 3, len = 2} : tensor<2xf32>
%y = ln.concat %a, %b {axis = 0} : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _rule(
        "move", "concat_of_slices", "slices-of-another-tensor", "does not look which tensor the slices are of",
        "if len(slices) < 2 or any(s is None or s.src is not slices[0].src or s.axis != op.axis for s in slices):",
        "if len(slices) < 2 or any(s is None or s.axis != op.axis for s in slices):",
        """
%x = ln.input : tensor<6xf32> as ("x")
%z = ln.input : tensor<6xf32> as ("z")
%a = ln.slice %x {axis = 0, start = 0, len = 2} : tensor<2xf32>
%b = ln.slice %z {axis = 0, start = 2, len = 2} : tensor<2xf32>
%y = ln.concat %a, %b {axis = 0} : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _rule(
        "move", "slice_of_slice", "outer-start-alone", "forgets where the inner slice starts",
        'return Slice.make([inner.src], {"axis": op.axis, "start": inner.start + op.start, "len": op.len})',
        'return Slice.make([inner.src], {"axis": op.axis, "start": op.start, "len": op.len})',
        """
%x = ln.input : tensor<8xf32> as ("x")
%a = ln.slice %x {axis = 0, start = 2, len = 5} : tensor<5xf32>
%y = ln.slice %a {axis = 0, start = 1, len = 3} : tensor<3xf32>
func.return %y : tensor<3xf32>
""",
    ),
    _rule(
        "move", "slice_of_concat", "start-in-the-whole", "counts from the start of the concatenation in each part",
        "        start -= n\n    return None",
        "    return None",
        """
%a = ln.input : tensor<4xf32> as ("a")
%b = ln.input : tensor<8xf32> as ("b")
%c = ln.concat %a, %b {axis = 0} : tensor<12xf32>
%y = ln.slice %c {axis = 0, start = 4, len = 2} : tensor<2xf32>
func.return %y : tensor<2xf32>
""",
    ),
    _rule(
        "move", "transpose_of_units", "any-transpose-is-reshape", "takes axes that change their order for ones that do not",
        "if moved == sorted(moved) else None",
        "if moved == sorted(moved) or len(moved) == 2 else None",
        """
%x = ln.input : tensor<2x1x3xf32> as ("x")
%y = ln.transpose %x {axes = [2, 1, 0]} : tensor<3x1x2xf32>
func.return %y : tensor<3x1x2xf32>
""",
    ),
    _rule(
        "move", "transpose_of_transpose", "permutations-swapped", "composes the permutations the wrong way round",
        'return Transpose.make([inner.src], {"axes": tuple(inner.axes[a] for a in op.axes)})',
        'return Transpose.make([inner.src], {"axes": tuple(op.axes[a] for a in inner.axes)})',
        """
%x = ln.input : tensor<3x3x3xf32> as ("x")
%a = ln.transpose %x {axes = [1, 2, 0]} : tensor<3x3x3xf32>
%y = ln.transpose %a {axes = [0, 2, 1]} : tensor<3x3x3xf32>
func.return %y : tensor<3x3x3xf32>
""",
    ),
    _rule(
        "move", "gather_of_scatter", "order-of-slices", "gathers the slices of a tensor in any order",
        "if inner is not None and tuple(op.operands) == tuple(inner.results):",
        "if inner is not None and set(op.operands) == set(inner.results):",
        """
%x = ln.input : tensor<2x3xf32> as ("x")
%a, %b = ln.scatter %x : tensor<3xf32>, tensor<3xf32>
%y = ln.gather %b, %a : tensor<2x3xf32>
func.return %y : tensor<2x3xf32>
""",
    ),
    _rule(
        "move", "scatter_of_gather", "slices-reversed", "hands out what was gathered from the end",
        "return None if inner is None else tuple(inner.operands)",
        "return None if inner is None else tuple(inner.operands)[::-1]",
        """
%a = ln.input : tensor<3xf32> as ("a")
%b = ln.input : tensor<3xf32> as ("b")
%g = ln.gather %a, %b : tensor<2x3xf32>
%c, %d = ln.scatter %g : tensor<3xf32>, tensor<3xf32>
%y = ln.elew %c, %d {elew_op = "TL_SUB"} : tensor<3xf32>
func.return %y : tensor<3xf32>
""",
    ),
    _rule(
        "source", "rearange_is_arange", "range-shifted", "starts and stops one step late",
        '{"dtype": op.result_specs[0].dtype.tl, **params})\n    except',
        '{"dtype": op.result_specs[0].dtype.tl, **params, "start": op.start + op.step, "stop": op.stop + op.step})\n    except',
        """
%x = ln.input : tensor<4xi32> as ("x")
%y = ln.rearange %x {start = 0, stop = 8, step = 2} : tensor<4xi32>
func.return %y : tensor<4xi32>
""",
    ),
    _rule(
        "unary", "idempotent", "exp-is-idempotent", "counts exp among what leaves alone what it gives",
        '@rule("abs", "sign", "floor", "ceil", "round_even")',
        '@rule("abs", "sign", "floor", "ceil", "round_even", "exp")',
        """
%x = ln.input : tensor<5xf32> as ("x")
%a = ln.exp %x : tensor<5xf32>
%y = ln.exp %a : tensor<5xf32>
func.return %y : tensor<5xf32>
""",
    ),
    _rule(
        "unary", "idempotent", "floor-of-anything", "drops a floor behind any other op of its kind",
        "return None if producer(op.src, type(op)) is None else op.src",
        "return None if producer(op.src, UnaryRow) is None else op.src",
        """
%x = ln.input : tensor<16xf32> as ("x")
%a = ln.ceil %x : tensor<16xf32>
%b = ln.exp %a : tensor<16xf32>
%y = ln.floor %b : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _rule(
        "unary", "abs_of_unsigned", "abs-of-signed", "takes signed integers for unsigned ones",
        'return op.src if op.operand_specs[0].dtype.kind == "uint" else None',
        'return op.src if op.operand_specs[0].dtype.kind != "float" else None',
        """
%x = ln.input : tensor<16xi32> as ("x")
%y = ln.abs %x : tensor<16xi32>
func.return %y : tensor<16xi32>
""",
    ),
    _rule(
        "unary", "involution", "neg-undoes-anything", "drops a negation together with the op before it, whatever that is",
        "    inner = producer(op.src, type(op))\n    return None if inner is None else inner.src",
        "    inner = producer(op.src, UnaryRow)\n    return None if inner is None else inner.src",
        """
%x = ln.input : tensor<5xf32> as ("x")
%a = ln.exp %x : tensor<5xf32>
%y = ln.neg %a : tensor<5xf32>
func.return %y : tensor<5xf32>
""",
    ),
    _rule(
        "arith", "same_operand", "xor-with-itself", "counts exclusive or among what keeps an operand",
        '@rule("maximum", "minimum", "bit_and", "bit_or")',
        '@rule("maximum", "minimum", "bit_and", "bit_or", "bit_xor")',
        """
%x = ln.input : tensor<8xi32> as ("x")
%y = ln.bit_xor %x, %x : tensor<8xi32>
func.return %y : tensor<8xi32>
""",
    ),
    _rule(
        "arith", "same_operand", "equal-types-are-equal", "takes operands of one type for the same",
        "return op.src1 if op.src1 is op.src2 else None",
        "return op.src1 if op.operand_specs[0] == op.operand_specs[1] else None",
        """
%x = ln.input : tensor<8xf32> as ("x")
%z = ln.input : tensor<8xf32> as ("z")
%y = ln.maximum %x, %z : tensor<8xf32>
func.return %y : tensor<8xf32>
""",
    ),
    _rule(
        "arith", "where_of_one", "where-without-choice", "does not look whether both cases are the same",
        "return op.src1 if op.src1 is op.src2 and op.operand_specs[1] == op.result_specs[0] else None",
        "return op.src1 if op.operand_specs[1] == op.result_specs[0] else None",
        """
%c = ln.input : tensor<8xi1> as ("c")
%x = ln.input : tensor<8xf32> as ("x")
%z = ln.input : tensor<8xf32> as ("z")
%y = ln.where %c, %x, %z : tensor<8xf32>
func.return %y : tensor<8xf32>
""",
    ),
    _rule(
        "arith", "cast_back", "cast-through-narrow", "goes back through a type that does not hold all values",
        "return inner.src if holds_all(inner.result_specs[0].dtype, inner.operand_specs[0].dtype) else None",
        "return inner.src",
        """
%x = ln.input : tensor<8xf32> as ("x")
%a = ln.cast %x : tensor<8xi8>
%y = ln.cast %a : tensor<8xf32>
func.return %y : tensor<8xf32>
""",
    ),
    _rule(
        "activation", "clip_twice", "tighter-clip-lost", "keeps the wider of two clips",
        "return op.src if inner is not None and (inner.lo, inner.hi) == (op.lo, op.hi) else None",
        "return op.src if inner is not None and inner.lo <= op.lo and op.hi <= inner.hi else None",
        """
%x = ln.input : tensor<16xf32> as ("x")
%a = ln.clip %x {lo = -1.0, hi = 1.0} : tensor<16xf32>
%y = ln.clip %a {lo = -0.25, hi = 0.25} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _rule(
        "elementwise", "relu_of_relu", "relu-of-lrelu", "takes a leaky ReLU for a ReLU",
        "return None if producer(op.src, Relu) is None else op.src",
        "return None if producer(op.src, Relu | Lrelu) is None else op.src",
        """
%x = ln.input : tensor<16xf32> as ("x")
%a = ln.lrelu %x {negslope = 0.5} : tensor<16xf32>
%y = ln.relu %a : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _rule(
        "elementwise", "relu_of_unsigned", "relu-of-signed", "takes signed integers for unsigned ones",
        'return op.src if op.operand_specs[0].dtype.kind in ("uint", "bool") else None',
        'return op.src if op.operand_specs[0].dtype.kind != "float" else None',
        """
%x = ln.input : tensor<16xi32> as ("x")
%y = ln.relu %x : tensor<16xi32>
func.return %y : tensor<16xi32>
""",
    ),
    _rule(
        "elementwise", "lrelu_of_slope_one", "small-slopes-are-one", "drops a leaky ReLU of any slope up to 1",
        "return op.src if op.negslope == 1 else None",
        "return op.src if op.negslope <= 1 else None",
        """
%x = ln.input : tensor<16xf32> as ("x")
%y = ln.lrelu %x {negslope = 0.1} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _rule(
        "elementwise", "extreme_with_itself", "product-with-itself", "counts a product among what keeps an operand",
        'op.elew_op in ("TL_MAX", "TL_MIN")',
        'op.elew_op in ("TL_MAX", "TL_MIN", "TL_MUL")',
        """
%x = ln.input : tensor<16xf32> as ("x")
%y = ln.elew %x, %x {elew_op = "TL_MUL"} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
)  # fmt: skip


def _shared(
    file: str, pattern: str, name: str, what: str, old: str, new: str, network: str, passes: str = "simplify"
) -> Mutant:
    return Mutant(name, what, (Edit(file, old, new),), passes, passes, pattern, network)


SHARED = (
    _shared(
        "dialects/ln/rules.py", "relu_of_relu", "output-renamed", "lets an output take the name of what replaces it",
        "        if rename:\n            rewriter",
        "        if rename and False:\n            rewriter",
        """
%x = ln.input : tensor<4xf32> as ("x")
%a = ln.relu %x : tensor<4xf32> as ("a")
%y = ln.relu %a : tensor<4xf32> as ("y")
%z = ln.exp %a : tensor<4xf32> as ("z")
func.return %y, %z : tensor<4xf32>, tensor<4xf32>
""",
    ),
    _shared(
        "dialects/ln/rules.py", "relu_of_relu", "name-dropped", "does not hand the name of an output on",
        "    keep_names(op, final)\n    rewriter.replace(op, [], final)",
        "    for result, value in zip(op.results, final):\n        rewriter.replace_all_uses_with(result, value)\n    rewriter.erase(op)",
        """
%x = ln.input : tensor<4xf32> as ("x")
%a = ln.relu %x : tensor<4xf32>
%y = ln.relu %a : tensor<4xf32> as ("y")
func.return %y : tensor<4xf32>
""",
    ),
    _shared(
        "ir/rewriting.py", "slice_of_slice", "driver-drops-names", "the driver does not keep the names of what it replaces",
        "        keep_names(op, new_results)\n        self.replacements", "        self.replacements",
        """
%x = ln.input : tensor<8xf32> as ("x")
%a = ln.slice %x {axis = 0, start = 2, len = 5} : tensor<5xf32>
%y = ln.slice %a {axis = 0, start = 1, len = 3} : tensor<3xf32> as ("y")
func.return %y : tensor<3xf32>
""",
    ),
)  # fmt: skip

FOLD = (
    _shared(
        "passes/fold.py", "FoldConstants", "cos-of-zeros", "takes any op on zeros for a move of zeros",
        "if op.is_move and all(isinstance(v.owner, Zeros) for v in op.operands):",
        "if all(isinstance(v.owner, Zeros) for v in op.operands):",
        """
%a = ln.zeros : tensor<100xf32>
%y = ln.cos %a : tensor<100xf32> as ("y")
func.return %y : tensor<100xf32>
""",
        "fold",
    ),
    _shared(
        "passes/fold.py", "FoldConstants", "squares-are-a-range", "spells by the first two elements, without a look at the rest",
        "if spec_of(arange.dst.type).dims != data.shape or arange.reference().tobytes() != data.tobytes():",
        "if spec_of(arange.dst.type).dims != data.shape:",
        """
%a = ln.arange {start = 0, stop = 5, step = 1} : tensor<5xf32>
%y = ln.elew %a, %a {elew_op = "TL_MUL"} : tensor<5xf32> as ("y")
func.return %y : tensor<5xf32>
""",
        "fold",
    ),
    _shared(
        "passes/fold.py", "FoldConstants", "minus-zero-is-zero", "loses the sign of zeros",
        "if not any(data.tobytes()):",
        "if not data.any():",
        """
%a = ln.zeros : tensor<5xf32>
%y = ln.neg %a : tensor<5xf32> as ("y")
func.return %y : tensor<5xf32>
""",
        "fold",
    ),
)  # fmt: skip

MUTANTS = (*RULES, *SHARED, *FOLD)
