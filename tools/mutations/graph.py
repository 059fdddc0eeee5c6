"""Mutants of the passes over the graph: common subexpressions, dead code, batch norms, `ln.once`, binding, order."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant


def _of(passes: str, name: str, pattern: str | None, mutant: str, what: str, edit: Edit, network: str) -> Mutant:
    return Mutant(mutant, what, (edit,), passes, name, pattern, network)


CSE = (
    _of(
        "ln-cse", "ln-cse", "equal", "parameters-ignored", "merges ops with other parameters",
        Edit("passes/cse.py", "return op.name, tuple(op.operands), properties, tuple(op.result_types)",
             "return op.name, tuple(op.operands), tuple(op.result_types)"),
        """
%x = ln.input : tensor<16xf32> as ("x")
%a = ln.clip %x {lo = -1.0, hi = 1.0} : tensor<16xf32>
%b = ln.clip %x {lo = -0.5, hi = 0.5} : tensor<16xf32>
%y = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _of(
        "ln-cse", "ln-cse", "equal", "operands-in-any-order", "takes every op for commutative",
        Edit("passes/cse.py", "return op.name, tuple(op.operands), properties", "return op.name, frozenset(op.operands), properties"),
        """
%a = ln.input : tensor<16xf32> as ("a")
%b = ln.input : tensor<16xf32> as ("b")
%c = ln.elew %a, %b {elew_op = "TL_SUB"} : tensor<16xf32>
%d = ln.elew %b, %a {elew_op = "TL_SUB"} : tensor<16xf32>
%y = ln.elew %c, %d {elew_op = "TL_MUL"} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _of(
        "ln-cse", "ln-cse", "equal", "inputs-merged", "merges inputs, which differ by their names alone",
        Edit("passes/cse.py", "return not op.unique and bool(op.results)", "return bool(op.results)"),
        """
%a = ln.input : tensor<16xf32> as ("a")
%b = ln.input : tensor<16xf32> as ("b")
%y = ln.elew %a, %b {elew_op = "TL_SUB"} : tensor<16xf32>
func.return %y : tensor<16xf32>
""",
    ),
    _of(
        "ln-cse", "ln-cse", "equal", "bodies-without-parameters", "compares the bodies of kernels without parameters",
        Edit("ir/body.py", "                tuple(sorted(op.properties.items())),\n", ""),
        """
%x = ln.input : tensor<16xf32> as ("x")
%a = cpu.kernel(%x_ = %x) {
  %0 = ln.lrelu %x_ {negslope = 0.1} : tensor<16xf32>
  ln.yield %0
}
%b = cpu.kernel(%x_ = %x) {
  %0 = ln.lrelu %x_ {negslope = 0.7} : tensor<16xf32>
  ln.yield %0
}
%y = cpu.kernel(%a_ = %a, %b_ = %b) {
  %0 = ln.elew %a_, %b_ {elew_op = "TL_SUM"} : tensor<16xf32>
  ln.yield %0
}
func.return %y : tensor<16xf32>
""",
    ),
)  # fmt: skip

DCE = (
    _of(
        "ln-dce", "ln-dce", "dead-code", "print-is-dead", "drops ops with an effect",
        Edit("passes/dce.py", "if isinstance(op, LnOp | KernelOp | OnceOp) and is_pure(op):",
             "if isinstance(op, LnOp | KernelOp | OnceOp):"),
        """
%x = ln.input : tensor<4xf32> as ("x")
ln.print %x {msg = "x:"}
func.return %x : tensor<4xf32>
""",
    ),
    _of(
        "ln-dce", "ln-dce", "unused-results", "first-results-stay", "keeps as many results as are used, but the first ones",
        Edit("passes/dce.py", "yielded = [op.terminator.operands[i] for i in kept]",
             "yielded = list(op.terminator.operands)[: len(kept)]"),
        """
%x = ln.input : tensor<4xf32> as ("x")
%a, %b = cpu.kernel(%x_ = %x) {
  %0 = ln.exp %x_ : tensor<4xf32>
  %1 = ln.neg %x_ : tensor<4xf32>
  ln.yield %0, %1
}
func.return %b : tensor<4xf32>
""",
    ),
    _of(
        "ln-dce", "ln-dce", "unused-operands", "last-operand-dropped", "drops the last operands instead of those not read",
        Edit("passes/dce.py", "op.operands = [v for v, arg in zip(op.operands, op.body.args) if arg.first_use is not None]",
             "op.operands = list(op.operands)[: -len(unread)]"),
        """
%a = ln.input : tensor<4xf32> as ("a")
%b = ln.input : tensor<4xf32> as ("b")
%y = cpu.kernel(%a_ = %a, %b_ = %b) {
  %0 = ln.exp %b_ : tensor<4xf32>
  ln.yield %0
}
func.return %y : tensor<4xf32>
""",
    ),
)  # fmt: skip

_VECTORS = """
%s = ln.param : tensor<4xf32> as ("s")
%o = ln.param : tensor<4xf32> as ("o")
%m = ln.param : tensor<4xf32> as ("m")
%v = ln.param : tensor<4xf32> as ("v")
"""

_CONV_NORM = f"""
%x = ln.input : tensor<1x3x6x6xf32> as ("x")
%w = ln.param : tensor<4x3x3x3xf32> as ("w")
%b = ln.param : tensor<4xf32> as ("b")
{_VECTORS}
%c = ln.conv2d %x, %w, %b {{size = [3, 3]}} : tensor<1x4x4x4xf32>
%y = ln.batchnorm %c, %s, %o, %m, %v {{epsilon = 0.01}} : tensor<1x4x4x4xf32>
func.return %y : tensor<1x4x4x4xf32>
"""

_DECONV_NORM = f"""
%x = ln.input : tensor<1x4x3x3xf32> as ("x")
%w = ln.param : tensor<4x4x2x2xf32> as ("w")
%b = ln.param : tensor<4xf32> as ("b")
{_VECTORS}
%c = ln.deconv2d %x, %w, %b {{size = [2, 2], stride = [2, 2]}} : tensor<1x4x6x6xf32>
%y = ln.batchnorm %c, %s, %o, %m, %v {{epsilon = 0.01}} : tensor<1x4x6x6xf32>
func.return %y : tensor<1x4x6x6xf32>
"""


def _norm(mutant: str, what: str, old: str, new: str, network: str = _CONV_NORM) -> Mutant:
    edit = Edit("passes/fold_batchnorm.py", old, new)
    return _of("fold-batchnorm", "fold-batchnorm", "fold-batchnorm", mutant, what, edit, network)


NORM = (
    _norm(
        "epsilon-lost", "folds without the epsilon",
        'epsilon = {"epsilon": norm.written_params()["epsilon"]}', 'epsilon = {"epsilon": 1e-12}',
    ),
    _norm(
        "mean-of-bias-lost", "does not subtract the mean from the bias",
        "add(Batchnorm.make([flat, *norm.operands[1:]], epsilon))",
        "add(Batchnorm.make([flat, norm.scale, norm.operands[2], zeros, norm.var], epsilon))",
    ),
    _norm(
        "weights-get-the-mean", "subtracts the mean from the weights, too",
        "scaled = add(Batchnorm.make([flat, norm.scale, zeros, zeros, norm.var], epsilon))",
        "scaled = add(Batchnorm.make([flat, norm.scale, zeros, norm.mean, norm.var], epsilon))",
    ),
    _norm(
        "channels-of-deconv", "takes the inputs of a deconvolution for its outputs",
        "    if isinstance(conv, Conv2d):  # [O, I, kh, kw]", "    if True:  # [O, I, kh, kw]", _DECONV_NORM,
    ),
)  # fmt: skip

_SCALES = """
%q = ln.input : tensor<2x3x8xf32> as ("q")
%k = ln.input : tensor<2x5x8xf32> as ("k")
%s = ln.param {data = [0.6]} : tensor<f32> as ("s")
%r = ln.param {data = [0.3]} : tensor<f32> as ("r")
%a = ln.mul %q, %s : tensor<2x3x8xf32>
%t = ln.transpose %k {axes = [0, 2, 1]} : tensor<2x8x5xf32>
%b = ln.mul %t, %r : tensor<2x8x5xf32>
%y = ln.matmul %a, %b : tensor<2x3x5xf32> as ("y")
func.return %y : tensor<2x3x5xf32>
"""

#: Keys of two heads, repeated as a whole, and keys that are not turned over.
_WHOLES = """
%q = ln.input : tensor<4x3x8xf32> as ("q")
%k = ln.input : tensor<2x8x5xf32> as ("k")
%1 = ln.reshape %k : tensor<1x2x8x5xf32>
%2 = ln.expand %1 : tensor<2x2x8x5xf32>
%3 = ln.reshape %2 : tensor<4x8x5xf32>
%y = ln.matmul %q, %3 : tensor<4x3x5xf32> as ("y")
func.return %y : tensor<4x3x5xf32>
"""

_STRAIGHT = """
%q = ln.input : tensor<1x16xf32> as ("q")
%k = ln.input : tensor<16x5xf32> as ("k")
%y = ln.matmul %q, %k : tensor<1x5xf32> as ("y")
func.return %y : tensor<1x5xf32>
"""

PRODUCTS = (
    _of(
        "move-scales", "move-scales", "move-scales", "first-number-lost", "takes the second number for both",
        Edit("passes/move_scales.py", "add(Mul.make([number(before, own), by]))", "by"), _SCALES,
    ),
    _of(
        "move-scales", "move-scales", "move-scales", "second-number-lost", "does not scale by the number that it takes from the second factor",
        Edit("passes/move_scales.py", "by, a = add(Mul.make([number(before, own), by])),", "by, a = number(before, own),"), _SCALES,
    ),
    _of(
        "simplify", "simplify", "matmul_of_repeated", "wholes-are-groups", "takes heads that are repeated as a whole for repeated one by one",
        Edit("dialects/ln/matmul.py", "if not all(f.repeats for f in repeated) or any(", "if any("), _WHOLES,
    ),
    _of(
        "expand", "expand", "RowsByColumns", "every-matrix-turned", "reads any matrix as if it lay turned over",
        Edit("backends/cpu/expanders.py", "if not columns or b.order != tuple(f for axis in (*batch, columns, inner) for f in axis):",
             "if not columns:"), _STRAIGHT,
    ),
)  # fmt: skip

HOIST = (
    _of(
        "hoist", "hoist", "hoist", "static-tensors-swapped", "hands out the static tensors in another order",
        Edit("passes/hoist.py", "    for value, result in zip(yielded, once.results):",
             "    for value, result in zip(yielded, reversed(once.results)):"),
        """
%x = ln.input : tensor<4xf32> as ("x")
%p = ln.param : tensor<4xf32> as ("p")
%q = ln.param : tensor<4xf32> as ("q")
%a = ln.elew %x, %p {elew_op = "TL_SUM"} : tensor<4xf32>
%y = ln.elew %a, %q {elew_op = "TL_MUL"} : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _of(
        "hoist", "hoist", "hoist", "yields-swapped", "takes an `ln.once` in with its results in another order",
        Edit("passes/hoist.py", "    for result, value in zip(op.results, yielded):",
             "    for result, value in zip(op.results, reversed(yielded)):"),
        """
%p, %q = ln.once {
  %0 = ln.param : tensor<4xf32> as ("p")
  %1 = ln.param : tensor<4xf32> as ("q")
  ln.yield %0, %1
} : tensor<4xf32>, tensor<4xf32>
%x = ln.input : tensor<4xf32> as ("x")
%r = ln.param : tensor<4xf32> as ("r")
%a = ln.elew %x, %p {elew_op = "TL_SUM"} : tensor<4xf32>
%b = ln.elew %a, %q {elew_op = "TL_MUL"} : tensor<4xf32>
%y = ln.elew %b, %r {elew_op = "TL_SUM"} : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _of(
        "hoist", "hoist", "hoist", "operands-of-kernels-swapped", "takes a static kernel in with its operands in another order",
        Edit("passes/hoist.py", "    for arg, value in zip(op.body.args, op.operands):",
             "    for arg, value in zip(op.body.args, reversed(op.operands)):"),
        """
%x = ln.input : tensor<4xf32> as ("x")
%p = ln.param : tensor<4xf32> as ("p")
%q = ln.param : tensor<4xf32> as ("q")
%d = cpu.kernel(%p_ = %p, %q_ = %q) {
  %0 = ln.elew %p_, %q_ {elew_op = "TL_SUB"} : tensor<4xf32>
  ln.yield %0
}
%y = cpu.kernel(%x_ = %x, %d_ = %d) {
  %0 = ln.elew %x_, %d_ {elew_op = "TL_SUM"} : tensor<4xf32>
  ln.yield %0
}
func.return %y : tensor<4xf32>
""",
    ),
)  # fmt: skip

ONE_STEP = (
    _of(
        "bind", "bind", None, "names-lost-at-binding", "does not keep the names of what it binds",
        Edit("passes/bind.py", "            attributes=dict(source.attributes),\n", ""),
        """
%x = ln.create : tensor<4xf32> as ("x")
%y = ln.exp %x : tensor<4xf32>
func.return %x, %y : tensor<4xf32>, tensor<4xf32>
""",
    ),
    _of(
        "bind", "bind", None, "contents-lost-at-binding", "does not keep what a tensor holds",
        Edit("passes/bind.py", "properties=properties | {k: v for k, v in source.properties.items() if k in known},",
             "properties=properties,"),
        """
%x = ln.create {data = [1, 2, 3, 4]} : tensor<4xf32> as ("x")
%y = ln.exp %x : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _of(
        "schedule", "schedule", None, "prints-reordered", "lets ops with effects change places",
        Edit("passes/memory_model.py", "                    self.after[i].add(previous_effect)\n", "                    pass\n"),
        """
%x = ln.input : tensor<64xf32> as ("x")
%a = ln.exp %x : tensor<64xf32>
%b = ln.neg %x : tensor<64xf32>
%s = ln.reduce_sum %a {axes = [0]} : tensor<1xf32>
%t = ln.reduce_sum %b {axes = [0]} : tensor<1xf32>
ln.print %s {msg = "first"}
ln.print %x {msg = "second"}
func.return %s, %t : tensor<1xf32>, tensor<1xf32>
""",
    ),
    _of(
        "defuse", "defuse", None, "results-of-parts-swapped", "hands out the results of a split kernel in another order",
        Edit("passes/defuse.py", "    for result, value in zip(kernel.results, kernel.terminator.operands):",
             "    for result, value in zip(kernel.results, reversed(kernel.terminator.operands)):"),
        """
%x = ln.input : tensor<4xf32> as ("x")
%a, %b = cpu.kernel(%x_ = %x) {
  %0 = ln.exp %x_ : tensor<4xf32>
  %1 = ln.neg %x_ : tensor<4xf32>
  ln.yield %0, %1
}
func.return %a, %b : tensor<4xf32>, tensor<4xf32>
""",
    ),
)  # fmt: skip

_LARGE_MAP = """
%x = ln.input : tensor<1x1x256x256xf32> as ("x")
%w = ln.param {ran = [-1., 1.]} : tensor<8x1x3x3xf32> as ("w")
%b = ln.param {ran = [-1., 1.]} : tensor<8xf32> as ("b")
%m = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x8x256x256xf32> as ("m")
%y = ln.maxpool2d %m {size = [2, 2], stride = [2, 2]} : tensor<1x8x128x128xf32> as ("y")
func.return %y : tensor<1x8x128x128xf32>
"""
CASCADE = (
    _of(
        "cascade", "cascade", "cascade", "padding-forgotten", "lets windows begin at the first row that there is",
        Edit("passes/cascade.py", "low = first * axis.stride - axis.before", "low = first * axis.stride"),
        _LARGE_MAP,
    ),
    _of(
        "cascade", "cascade", "cascade", "rows-of-the-first-stripe", "reads the rows of the first stripe in all",
        Edit("passes/cascade.py", '"start": rows.start,', '"start": 0,'),
        _LARGE_MAP,
    ),
)  # fmt: skip

MUTANTS = (*CSE, *DCE, *NORM, *PRODUCTS, *CASCADE, *HOIST, *ONE_STEP)
