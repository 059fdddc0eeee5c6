"""Mutants that show on rare values or shapes alone: the limits of types, NaN, infinities and -0, groups and batches, padding,
names that are stale."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant


def _mutant(name: str, what: str, edit: Edit, passes: str, pattern: str | None, network: str) -> Mutant:
    return Mutant(name, what, (edit,), passes, passes.rpartition(",")[2], pattern, network)


_BATCHNORM = """
%x = ln.input : tensor<1x3x6x6xf32> as ("x")
%w = ln.param : tensor<3x3x3x3xf32> as ("w")
%b = ln.param : tensor<3xf32> as ("b")
%s = ln.param : tensor<3xf32> as ("s")
%o = ln.param : tensor<3xf32> as ("o")
%m = ln.param : tensor<3xf32> as ("m")
%v = ln.param : tensor<3xf32> as ("v")
%c = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x3x4x4xf32> as "c0"("c")
%n = ln.batchnorm %c, %s, %o, %m, %v : tensor<1x3x4x4xf32> as "n0"("n")
%y = ln.relu %n : tensor<1x3x4x4xf32> as "y0"("y")
func.return %y : tensor<1x3x4x4xf32>
"""

_SHUFFLE = """
%a = ln.input : tensor<1x2x4x4xf32> as ("a")
%b = ln.input : tensor<1x2x4x4xf32> as ("b")
%c = ln.concat %a, %b {axis = 1} : tensor<1x4x4x4xf32> as ("c")
%r = ln.reshape %c : tensor<1x2x2x4x4xf32>
%t = ln.transpose %r {axes = [0, 2, 1, 3, 4]} : tensor<1x2x2x4x4xf32> as ("t")
func.return %t : tensor<1x2x2x4x4xf32>
"""

_CONV = """
%x = ln.input : tensor<2x4x9x9xf32> as ("x")
%w = ln.param : tensor<6x2x3x3xf32> as ("w")
%b = ln.param : tensor<6xf32> as ("b")
%y = ln.conv2d %x, %w, %b {size = [3, 3], stride = [2, 2], padding = [1, 0, 2, 2], group = 2} : tensor<2x6x5x5xf32> as ("y")
func.return %y : tensor<2x6x5x5xf32>
"""

MUTANTS = (
    _mutant(
        "axis-length-of-first-axis", "counts the lengths of the parts along the first axis",
        Edit("dialects/ln/move.py", "        start -= n\n", "        start -= spec.dims[0]\n"),
        "simplify", "slice_of_concat",
        """
%a = ln.input : tensor<2x4xf32> as ("a")
%b = ln.input : tensor<2x8xf32> as ("b")
%c = ln.concat %a, %b {axis = 1} : tensor<2x12xf32>
%y = ln.slice %c {axis = 1, start = 6, len = 3} : tensor<2x3xf32>
func.return %y : tensor<2x3xf32>
""",
    ),
    _mutant(
        "i32-in-f32", "goes back through a float as wide as the integer, which has fewer digits",
        Edit("dialects/ln/arith.py", '        return narrow.kind == "bool" and wide.kind != "bool"\n',
         '        return narrow.kind == "bool" and wide.kind != "bool" or (wide.is_float and wide.size >= narrow.size)\n'),
        "simplify", "cast_back",
        """
%x = ln.input : tensor<64xi32> as ("x")
%n = ln.cast %x : tensor<64xf32>
%y = ln.cast %n : tensor<64xi32>
func.return %y : tensor<64xi32>
""",
    ),
    _mutant(
        "bf16-in-f16", "goes back through a float of the same size, which has a smaller range",
        Edit("dialects/ln/arith.py", "        return wide.size > narrow.size or wide == narrow",
         "        return wide.size >= narrow.size"),
        "simplify", "cast_back",
        """
%x = ln.input : tensor<64xbf16> as ("x")
%n = ln.cast %x : tensor<64xf16>
%y = ln.cast %n : tensor<64xbf16>
func.return %y : tensor<64xbf16>
""",
    ),
    _mutant(
        "two-outputs-one-name", "gives an output without a name that of another",
        Edit("dialects/ln/rules.py", "(tensor_name(value) not in (None, name) or any(map(is_yielded, value.uses)))",
         "tensor_name(value) not in (None, name)"),
        "simplify", "relu_of_relu",
        """
%x = ln.input : tensor<5xf32> as ("x")
%a = ln.relu %x : tensor<5xf32>
%y = ln.relu %a : tensor<5xf32> as ("y")
func.return %a, %y : tensor<5xf32>, tensor<5xf32>
""",
    ),
    _mutant(
        "minus-of-itself", "takes x - x for 0, which it is not for NaN and infinities",
        Edit("dialects/ln/elementwise.py", '    return op.src1 if op.src1 is op.src2 and op.elew_op in ("TL_MAX", "TL_MIN") else None',
         "    from lightnet.dialects.ln.source import Zeros\n"
         '    if op.src1 is op.src2 and op.elew_op == "TL_SUB":\n'
         '        return Zeros.make([], {"dtype": op.result_specs[0].dtype.tl, "dims": op.result_specs[0].dims})\n'
         "    return None"),
        "simplify", "extreme_with_itself",
        """
%x = ln.input : tensor<8xf32> as ("x")
%d = ln.elew %x, %x {elew_op = "TL_SUB"} : tensor<8xf32>
%y = ln.elew %x, %d {elew_op = "TL_MUL"} : tensor<8xf32>
func.return %d, %y : tensor<8xf32>, tensor<8xf32>
""",
    ),
    _mutant(
        "plus-zero", "takes x + 0 for x, which it is not for -0",
        Edit("dialects/ln/elementwise.py", '    return op.src1 if op.src1 is op.src2 and op.elew_op in ("TL_MAX", "TL_MIN") else None',
         "    from lightnet.dialects.ln.source import Zeros\n"
         '    return op.src1 if isinstance(op.src2.owner, Zeros) and op.elew_op == "TL_SUM" else None'),
        "simplify", "extreme_with_itself",
        """
%x = ln.input : tensor<8xf32> as ("x")
%z = ln.zeros : tensor<8xf32>
%y = ln.elew %x, %z {elew_op = "TL_SUM"} : tensor<8xf32>
func.return %y : tensor<8xf32>
""",
    ),
    _mutant(
        "max-of-relu", "keeps one operand of a maximum, which often is the larger one",
        Edit("dialects/ln/elementwise.py", '    return op.src1 if op.src1 is op.src2 and op.elew_op in ("TL_MAX", "TL_MIN") else None',
         '    return op.src1 if isinstance(op.src1.owner, Relu) and op.elew_op == "TL_MAX" else None'),
        "simplify", "extreme_with_itself",
        """
%x = ln.input : tensor<1xf32> as ("x")
%w = ln.input : tensor<1xf32> as ("w")
%r = ln.relu %x : tensor<1xf32>
%y = ln.elew %r, %w {elew_op = "TL_MAX"} : tensor<1xf32>
func.return %y : tensor<1xf32>
""",
    ),
    _mutant(
        "any-zero-is-zero", "folds a move to zeros where one operand is zeros",
        Edit("passes/fold.py", "if op.is_move and all(isinstance", "if op.is_move and any(isinstance"),
        "fold", "FoldConstants",
        """
%x = ln.input : tensor<8xf32> as ("x")
%z = ln.zeros : tensor<4xf32>
%a = ln.arange {start = 1, stop = 5, step = 1} : tensor<4xf32>
%c = ln.concat %z, %a {axis = 0} : tensor<8xf32>
%y = ln.elew %x, %c {elew_op = "TL_SUM"} : tensor<8xf32>
func.return %y : tensor<8xf32>
""",
    ),
    _mutant(
        "kernels-by-body", "does not look what equal kernels read",
        Edit("ir/body.py", "tuple(values.get(v, v) for v in op.operands)",
         "tuple(values.get(v, 0) for v in op.operands)"),
        "expand,ln-cse", "equal",
        """
%x = ln.input : tensor<5xf32> as ("x")
%z = ln.input : tensor<5xf32> as ("z")
%a = ln.exp %x : tensor<5xf32>
%b = ln.exp %z : tensor<5xf32>
func.return %a, %b : tensor<5xf32>, tensor<5xf32>
""",
    ),
    _mutant(
        "names-of-first-results", "hands the names on by position, though the first result is gone",
        Edit("passes/dce.py", "set_tensor_names(new, [names[i] for i in kept])",
         "set_tensor_names(new, names[: len(kept)])"),
        "ln-dce", "unused-results",
        """
%x = ln.input : tensor<4xf32> as ("x")
%p, %q = ln.once {
  %w = ln.param : tensor<4xf32> as ("w")
  %s = ln.exp %w : tensor<4xf32>
  %t = ln.neg %w : tensor<4xf32>
  ln.yield %s, %t
} : tensor<4xf32>, tensor<4xf32> as ("s", "t")
%y = ln.elew %x, %q {elew_op = "TL_MUL"} : tensor<4xf32>
func.return %y, %q : tensor<4xf32>, tensor<4xf32>
""",
    ),
    _mutant(
        "offset-and-mean-swapped", "folds the bias with offset and mean exchanged",
        Edit("passes/fold_batchnorm.py", "Batchnorm.make([flat, *norm.operands[1:]], epsilon)",
         "Batchnorm.make([flat, norm.operands[1], norm.operands[3], norm.operands[2], norm.operands[4]], epsilon)"),
        "fold-batchnorm", "fold-batchnorm",
        _BATCHNORM,
    ),
    _mutant(
        "input-channels-scaled", "scales the input channels of a convolution with as many outputs",
        Edit("passes/fold_batchnorm.py", "if isinstance(conv, Conv2d):  # [O", "if False:  # [O"),
        "fold-batchnorm", "fold-batchnorm",
        _BATCHNORM,
    ),
    _mutant(
        "inputs-are-static", "takes inputs for what is known when a network is loaded",
        Edit("passes/graph.py", "if _kind(type(op)).is_given:", "if isinstance(op, Source | OnceOp):"),
        "hoist", "hoist",
        """
%x = ln.input : tensor<4xf32> as ("x")
%y = ln.exp %x : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _mutant(
        "stale-name-of-shuffle", "names the shuffled tensor after the concatenation",
        Edit("backends/subgraphs.py", "kernel_around(type(op), interleave, tensor_names(transpose)[0])",
         "kernel_around(type(op), interleave, tensor_names(concat)[0])"),
        "expand,subgraph", "InterleaveConcat",
        _SHUFFLE,
    ),
    _mutant(
        "same-half-twice", "reads the first half twice",
        Edit("backends/subgraphs.py", 'new = [kernel_around(type(op), Reshape.make([v], {"dims": stacked})) for v in (a, b)]',
         'new = [kernel_around(type(op), Reshape.make([v], {"dims": stacked})) for v in (a, a)]'),
        "expand,subgraph", "InterleaveConcat",
        _SHUFFLE,
    ),
    _mutant(
        "casts-saturate", "narrows what is beyond the range of f16 to its largest number",
        Edit("backends/cpu/subgraphs.py", '{"dtype": short.tl, "mode": "wrap"}',
         '{"dtype": short.tl, "mode": "saturate"}'),
        "expand,subgraph", "WidenProducts",
        """
%a = ln.input : tensor<4x8xf16> as ("a")
%b = ln.input : tensor<8x4xf16> as ("b")
%y = ln.matmul %a, %b : tensor<4x4xf16>
func.return %y : tensor<4x4xf16>
""",
    ),
    _mutant(
        "union-reads-first-op", "connects the first op of the producer instead of what it yields",
        Edit("ir/body.py", "inner = dict(zip(results, producer.yielded))",
         "inner = dict(zip(results, [producer.ops[0].results[0] for _ in producer.yielded]))"),
        "expand,combine", "merge-kernels",
        """
%x = ln.input : tensor<8xf32> as ("x")
%a = ln.exp %x : tensor<8xf32>
%b = ln.neg %a : tensor<8xf32>
%c = ln.tanh %b : tensor<8xf32>
func.return %c : tensor<8xf32>
""",
    ),
    _mutant(
        "group-lost-in-window", "reads the channels of the first group in every one",
        Edit("backends/cpu/window_kernel.py", "        channel = b.add(b.mul(self.group, w.channels), c)\n"
         "        row, column",
         "        channel = c\n"
         "        row, column"),
        "expand,combine,choose,plan,lower-cpu", None,
        """
%x = ln.input : tensor<2x4x9x9xf32> as ("x")
%w = ln.param : tensor<6x2x3x3xf32> as ("w")
%b = ln.param : tensor<6xf32> as ("b")
%y = ln.conv2d %x, %w, %b {size = [3, 3], group = 2} : tensor<2x6x7x7xf32> as ("y")
func.return %y : tensor<2x6x7x7xf32>
""",
    ),
    _mutant(
        "group-lost-in-staging", "copies the channels of the first group in every one",
        Edit("backends/cpu/window_kernel.py", "channel = b.add(b.mul(self.group, w.channels), c.iv)",
         "channel = c.iv"),
        "expand,combine,choose,plan,lower-cpu", None,
        _CONV,
    ),
    _mutant(
        "first-picture-only", "copies the first picture of a batch in every one",
        Edit("backends/cpu/window_kernel.py", "value = b.tile_load(src, [self.n, channel, source, from_]",
         "value = b.tile_load(src, [0, channel, source, from_]"),
        "expand,combine,choose,plan,lower-cpu", None,
        _CONV,
    ),
    _mutant(
        "padding-on-the-right-lost", "does not clear the columns behind the last pixel",
        Edit("backends/cpu/window_kernel.py", "            self.fill(c, i, j, row, end, self.columns, filler)\n"
         "\n"
         "    def stage_ones",
         "\n"
         "    def stage_ones"),
        "expand,combine,choose,plan,lower-cpu", None,
        _CONV,
    ),
    _mutant(
        "padding-rows-swapped", "takes the padding above for that on the left",
        Edit("backends/cpu/window.py", "origin=found.before,", "origin=found.before[::-1],"),
        "expand,combine,choose,plan,lower-cpu", None,
        _CONV,
    ),
    _mutant(
        "pad-of-max-is-zero", "pads a maximum with zeros",
        Edit("backends/cpu/window_kernel.py", 'filler = float("-inf") if w.kind == "max" else 0.0',
         "filler = 0.0"),
        "expand,combine,choose,plan,lower-cpu", None,
        """
%x = ln.input : tensor<1x3x7x7xf32> as ("x")
%y = ln.maxpool2d %x {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x3x4x4xf32> as ("y")
func.return %y : tensor<1x3x4x4xf32>
""",
    ),
    _mutant(
        "batch-repeats-first", "multiplies the first matrices of a batch only",
        Edit("backends/cpu/gemm.py", "self.batch = self.coordinates(number, outer) if batch > 1 else [0 for _ in outer]",
         "self.batch = [0 for _ in outer]"),
        "expand,combine,choose,plan,lower-cpu", None,
        """
%a = ln.input : tensor<3x5x24xf32> as ("a")
%b = ln.input : tensor<3x24x17xf32> as ("b")
%y = ln.matmul %a, %b : tensor<3x5x17xf32>
func.return %y : tensor<3x5x17xf32>
""",
    ),
    _mutant(
        "deconv-phase-shift", "takes taps from the wrong input pixels",
        Edit("ir/windows.py", "divmod(first + pad - tap * dilation, stride)", "divmod(first + pad + tap * dilation, stride)"),
        "expand,combine,choose,plan,lower-cpu", None,
        """
%x = ln.input : tensor<1x2x4x4xf32> as ("x")
%w = ln.param : tensor<2x3x3x3xf32> as ("w")
%b = ln.param : tensor<3xf32> as ("b")
%y = ln.deconv2d %x, %w, %b {size = [3, 3], stride = [2, 2]} : tensor<1x3x9x9xf32> as ("y")
func.return %y : tensor<1x3x9x9xf32>
""",
    ),
)  # fmt: skip
