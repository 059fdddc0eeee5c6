"""Mutants of the passes that make and merge kernels: `expand`, `subgraph`, `combine`."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant


def _of(passes: str, name: str, pattern: str | None, mutant: str, what: str, edit: Edit, network: str) -> Mutant:
    return Mutant(mutant, what, (edit,), passes, name, pattern, network)


_SUB = """
%a = ln.input : tensor<8xf32> as ("a")
%b = ln.input : tensor<8xf32> as ("b")
%c = ln.exp %a : tensor<8xf32>
%y = ln.elew %c, %b {elew_op = "TL_SUB"} : tensor<8xf32>
func.return %y : tensor<8xf32>
"""

EXPAND = (
    _of(
        "expand", "expand", "wrap-in-kernel", "operands-reversed", "puts the operands of an op into a kernel from the end",
        Edit("ir/body.py", "operands = [[args.get(v, v) for v in map(body.value, op.operands)] for op in body.ops]",
             "operands = [[args.get(v, v) for v in map(body.value, reversed(op.operands))] for op in body.ops]"),
        _SUB,
    ),
    _of(
        "expand", "expand", "wrap-in-kernel", "first-result-for-all", "gives every reader the first result",
        Edit("passes/expand.py", "user.operands[index] = kernel.results[i]", "user.operands[index] = kernel.results[0]"),
        """
%x = ln.input : tensor<2x4xf32> as ("x")
%a, %b = ln.scatter %x : tensor<4xf32>, tensor<4xf32>
%y = ln.elew %a, %b {elew_op = "TL_SUB"} : tensor<4xf32>
func.return %y : tensor<4xf32>
""",
    ),
    _of(
        "expand", "expand", "wrap-in-kernel", "one-operand-for-all", "reads the first operand wherever one has its type",
        Edit("ir/body.py", "args: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args))",
             "args: dict[SSAValue, SSAValue] = {v: next(a for a in block.args if a.type == v.type) for v in inputs}"),
        _SUB,
    ),
)  # fmt: skip

_SHUFFLE = """
%a = ln.input : tensor<1x2x3xf32> as ("a")
%b = ln.input : tensor<1x2x3xf32> as ("b")
%c = ln.concat %a, %b {axis = 1} : tensor<1x4x3xf32>
%r = ln.reshape %c : tensor<1x2x2x3xf32>
%t = ln.transpose %r {axes = [0, 2, 1, 3]} : tensor<1x2x2x3xf32>
%y = ln.reshape %t : tensor<1x4x3xf32>
func.return %y : tensor<1x4x3xf32>
"""

_POOL = """
%x = ln.input : tensor<1x1x16x16xf32> as ("x")
%y = ln.maxpool2d %x {size = [7, 7], stride = [1, 1], padding = [1, 2, 4, 3]} : tensor<1x1x15x15xf32>
func.return %y : tensor<1x1x15x15xf32>
"""


def _subgraph(pattern: str, mutant: str, what: str, old: str, new: str, network: str) -> Mutant:
    file = "backends/subgraphs.py" if pattern == "InterleaveConcat" else "backends/cpu/subgraphs.py"
    return _of("expand,subgraph", "subgraph", pattern, mutant, what, Edit(file, old, new), network)


def _maxpool(mutant: str, what: str, old: str, new: str) -> Mutant:
    return _subgraph("SeparateMaxpool", mutant, what, old, new, _POOL)


SUBGRAPH = (
    _subgraph(
        "InterleaveConcat", "halves-swapped", "interleaves the halves the other way round",
        'halves = [Reshape.make([inside[v]], {"dims": stacked}) for v in (a, b)]',
        'halves = [Reshape.make([inside[v]], {"dims": stacked}) for v in (b, a)]', _SHUFFLE,
    ),
    _subgraph(
        "InterleaveConcat", "any-transpose-interleaves", "does not look which axes are swapped",
        "if first != second or reshape.result_specs[0].dims != halves or transpose.axes != swapped:",
        "if first != second or reshape.result_specs[0].dims != halves:",
        """
%a = ln.input : tensor<2x2xf32> as ("a")
%b = ln.input : tensor<2x2xf32> as ("b")
%c = ln.concat %a, %b {axis = 0} : tensor<4x2xf32>
%r = ln.reshape %c : tensor<2x2x2xf32>
%y = ln.transpose %r {axes = [1, 2, 0]} : tensor<2x2x2xf32>
func.return %y : tensor<2x2x2xf32>
""",
    ),
    _maxpool(
        "sides-swapped", "pads the rows on the wrong sides",
        '"padding": (0, left, 0, right)', '"padding": (0, right, 0, left)',
    ),
    _maxpool(
        "top-and-bottom-swapped", "pads the columns on the wrong sides",
        '"padding": (top, 0, bottom, 0)', '"padding": (bottom, 0, top, 0)',
    ),
    _subgraph(
        "WidenProducts", "factors-swapped", "multiplies in the other order",
        "            for v in anchor.operands\n        ]", "            for v in reversed(anchor.operands)\n        ]",
        """
%a = ln.input : tensor<4x4xf16> as ("a")
%b = ln.input : tensor<4x4xf16> as ("b")
%y = ln.matmul %a, %b : tensor<4x4xf16>
func.return %y : tensor<4x4xf16>
""",
    ),
    _subgraph(
        "WidenProducts", "padding-lost", "does not hand the parameters of a convolution on",
        "anchor.param_values(), name=anchor.op_name", '{**anchor.param_values(), "padding": (2, 0, 0, 2)}, name=anchor.op_name',
        """
%x = ln.input : tensor<1x2x6x6xf16> as ("x")
%w = ln.param : tensor<2x2x3x3xf16> as ("w")
%b = ln.param : tensor<2xf16> as ("b")
%y = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x2x6x6xf16>
func.return %y : tensor<1x2x6x6xf16>
""",
    ),
)  # fmt: skip

_TWO_RESULTS = """
%x = ln.input : tensor<8xf32> as ("x")
%z = ln.input : tensor<8xf32> as ("z")
%a, %b = cpu.kernel(%x_ = %x, %z_ = %z) {
  %0 = ln.exp %x_ : tensor<8xf32>
  %1 = ln.elew %z_, %0 {elew_op = "TL_SUM"} : tensor<8xf32>
  ln.yield %0, %1
}
%y = cpu.kernel(%a_ = %a, %b_ = %b) {
  %0 = ln.elew %a_, %b_ {elew_op = "TL_SUB"} : tensor<8xf32>
  ln.yield %0
}
func.return %y : tensor<8xf32>
"""


def _combine(mutant: str, what: str, edit: Edit, network: str, passes: str = "expand,combine") -> Mutant:
    return _of(passes, "combine", "merge-kernels", mutant, what, edit, network)


COMBINE = (
    _combine(
        "results-swapped", "connects the results of the producer in another order",
        Edit("ir/body.py", "inner = dict(zip(results, producer.yielded))", "inner = dict(zip(results, reversed(producer.yielded)))"),
        _TWO_RESULTS, "combine",
    ),
    _combine(
        "consumer-dropped", "lets the merged kernel yield what the producer yields",
        Edit("ir/body.py", "return cls(ops, consumer.yielded,", "return cls(ops, producer.yielded,"),
        _SUB,
    ),
    _combine(
        "operands-of-consumer-lost", "takes what the consumer reads from outside for the producer's result",
        Edit("ir/body.py", "joined = {arg: inner.get(value, value) for arg, value in consumer.outside.items()}",
             "joined = {arg: inner.get(value, producer.yielded[0]) for arg, value in consumer.outside.items()}"),
        _SUB,
    ),
    _combine(
        "output-name-lost", "does not name the merged kernel's result after the consumer's",
        Edit("ir/body.py", "    keep_names(last, kernel.results)\n",
             "    kernel.attributes.pop('ln.tensors', None)\n"),
        """
%x = ln.input : tensor<8xf32> as ("x")
%a = ln.exp %x : tensor<8xf32>
%y = ln.neg %a : tensor<8xf32> as ("y")
func.return %y : tensor<8xf32>
""",
    ),
)  # fmt: skip

MUTANTS = (*EXPAND, *SUBGRAPH, *COMBINE)
