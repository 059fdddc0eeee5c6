// Why a kernel is not merged with its reader, and which are; for a definition with a local tensor its condition.
// RUN: ln-opt %s --split-input-file --pass=expand,combine --remarks=applied,missed,combine 2>&1 >%t | filecheck %s
// What the target predicts of each way: of layouts, and of the generators that were asked.
// RUN: ln-opt %s --split-input-file --pass="bind,hoist,expand,combine,layout{features=avx512},choose{features=avx512}" --remarks=cost 2>&1 >%t | filecheck %s --check-prefix=COST
// Why patterns with a matching root left an op: the condition in the source of one in Python, in a description, in PDL.
// RUN: ln-opt %s --split-input-file --load %S/Inputs/of_three_kinds.py --load %S/Inputs/of_three_kinds.json --load %S/Inputs/of_three_kinds.mlir --pass=simplify --remarks=missed 2>&1 >%t | filecheck %s --check-prefix=LEFT
// RUN: ln-opt %s --split-input-file --pass=simplify,combine --remarks=missed,combine 2>&1 >%t | filecheck %s --check-prefix=NOTHING
// As JSON, with figures.
// RUN: ln-opt %s --split-input-file --pass="expand,combine,choose{features=avx512}" --remarks-json %t.json >%t
// RUN: filecheck %s --input-file=%t.part1.json --check-prefix=JSON

// CHECK: remarks.mlir:[[# @LINE + 28]]:8: remark: pattern 'merge-kernels' rewrites cpu.kernel "r" to cpu.kernel { ln.conv2d, ln.relu } [applied: combine]
// CHECK: remarks.mlir:[[# @LINE + 27]]:8: remark: 'r' (conv2d+relu) is not merged with its reader 'p' (maxpool2d): maxpool2d is no epilogue: no operand has its result's shape [missed: combine]
// CHECK: remark: 'c' (conv2d) is not merged with its reader 'n' (softmax): softmax is no epilogue: its definition has 4 statements (with the local tensor 'top', 'e', 'sum'), where an elementwise op has one [missed: combine]
// CHECK: remark: 'a' (exp) is not merged with its reader 'b' (neg): its result is read elsewhere, too, or is an output: nothing is computed twice [missed: combine]
// CHECK-NOT: merge-kernels

// COST: remark: 'r' (conv2d+relu) runs on maps: on maps (c16) {{[0-9.]+ [nu]s}}, on row-major tensors {{[0-9.]+ [nu]s}}, without changes of layout [cost: layout]
// COST: remark: 'r' (conv2d+relu) runs on '[[ALG:[a-z0-9]+]]': [[ALG]] {{[0-9.]+ [nu]s}}, {{.*}}[cost: choose]

// LEFT: remark: pattern 'ReluOfExp' leaves ln.relu "r": `not isinstance(inner, Exp)` (of_three_kinds.py:15) [missed: simplify]
// LEFT: remark: pattern 'mine.relu-of-sigmoid' leaves ln.relu "r": 'inner' should be sigmoid, and outer.ins[src] is made by conv2d [missed: simplify]
// LEFT: remark: pattern 'relu_of_sqrt' leaves ln.relu "r": an operand of ln.relu does not match: ln.conv2d is there in the place of ln.sqrt [missed: simplify]
// LEFT: remark: pattern 'ReluOfExp' leaves ln.relu "s": `op.operand_specs[0].ndim != 2` (of_three_kinds.py:15) [missed: simplify]
// LEFT: remark: pattern 'mine.relu-of-sigmoid' leaves ln.relu "t": no case of it holds: `outer.ins[src].ndim == 2` is false [missed: simplify]
// LEFT-NOT: leaves ln.exp

// NOTHING: remark: pass 'combine' finds nothing to do: it is for level 2, kernels, and the module is at level 1, a graph of ops [missed: combine]

// JSON: "kind": "cost",
// JSON-NEXT: "pass": "choose",
// JSON-NEXT: "file": "{{.*}}remarks.mlir",
// JSON: "nanoseconds": {

func.func @main() -> tensor<1x32x8x8xf32> {
  %x = ln.input : tensor<1x32x16x16xf32> as ("x")
  %w = ln.param : tensor<32x32x3x3xf32> as ("w")
  %b = ln.param : tensor<32xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x16x16xf32> as ("c")
  %r = ln.relu %c : tensor<1x32x16x16xf32> as ("r")
  %p = ln.maxpool2d %r {size = [2, 2], stride = [2, 2]} : tensor<1x32x8x8xf32> as ("p")
  func.return %p : tensor<1x32x8x8xf32>
}

// -----

func.func @main() -> tensor<1x4x4x4xf32> {
  %x = ln.input : tensor<1x4x4x4xf32> as ("x")
  %w = ln.param : tensor<4x4x1x1xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x4x4x4xf32> as ("c")
  %n = ln.softmax %c {axis = 1} : tensor<1x4x4x4xf32> as ("n")
  func.return %n : tensor<1x4x4x4xf32>
}

// -----

func.func @main() -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = ln.exp %x : tensor<3xf32> as ("a")
  %b = ln.neg %a : tensor<3xf32> as ("b")
  %s = ln.relu %a : tensor<3xf32> as ("s")
  %i = ln.sigmoid %x : tensor<3xf32> as ("i")
  %t = ln.relu %i : tensor<3xf32> as ("t")
  func.return %b, %s, %t : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}
