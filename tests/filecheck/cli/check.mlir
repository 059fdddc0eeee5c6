// What --check, --bisect and --rewrite-limit say of patterns that are wrong on purpose (Inputs/wrong.py).
// RUN: not ln-opt %s --split-input-file --load %S/Inputs/wrong.py --pass=bind,simplify,expand --check 2>&1 >%t | filecheck %s
// RUN: not ln-opt %s --split-input-file --load %S/Inputs/wrong.py --pass=bind,simplify,expand --check=rewrite 2>&1 >%t | filecheck %s
// RUN: not ln-opt %s --split-input-file --load %S/Inputs/wrong.py --pass=bind,simplify,expand --bisect 2>&1 >%t | filecheck %s --check-prefixes=CHECK,BISECT
// RUN: ln-opt %s --split-input-file --load %S/Inputs/wrong.py --pass=bind,simplify,expand --rewrite-limit=0 --check 2>&1 >%t | filecheck %s --check-prefix=LIMIT
// RUN: ln-opt %s --split-input-file --pass=bind,simplify,expand,combine,plan --check 2>&1 >%t | filecheck %s --check-prefix=RIGHT

// RIGHT-COUNT-2: check: 5 passes keep the results

// Without a rewrite nothing is wrong: kernels are put around ops all the same.
// LIMIT: check: 3 passes keep the results

// The first of the two patterns is right, and is not blamed; the second is, at its op, with two values.
// CHECK: check.mlir:[[# @LINE + 12]]:8: error: pattern 'ReluOfAbs' of pass 'simplify' changed the result: 'y'[{{[0-9], [0-9]}}] is {{[0-9.]+}}
// CHECK-SAME: before and 0.0 after; {{[0-9]+}} of 6 elements differ [check.value]
// CHECK-NEXT:    %y = ln.relu %b
// CHECK-NEXT:         ^
// CHECK-NEXT: note: rewrite {{[0-9]}}, on ln.relu "relu1"
// CHECK-NEXT: note: before: %y = ln.relu %b : tensor<2x3xf32> as "relu1"("y")
// CHECK-NEXT: note: after:  %y = ln.relu %x : tensor<2x3xf32> as "relu1"("y")
// BISECT: does it, {{[0-9]}} does not
func.func @main() -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %r = ln.relu %x : tensor<2x3xf32> as "relu0"("r")
  %b = ln.abs %x : tensor<2x3xf32> as "abs0"("b")
  %y = ln.relu %b : tensor<2x3xf32> as "relu1"("y")
  %z = ln.abs %r : tensor<2x3xf32> as "abs1"("z")
  func.return %y, %z : tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// A result of another shape does not verify: the pattern that made it is named all the same.
// CHECK: check.mlir:[[# @LINE + 4]]:8: error: pattern 'SwappedAxes' of pass 'expand' changed the result
// CHECK-NEXT:    %y = ln.transpose %x
func.func @main() -> tensor<3x4x2xf32> {
  %x = ln.input : tensor<2x3x4xf32> as ("x")
  %y = ln.transpose %x {axes = [1, 2, 0]} : tensor<3x4x2xf32> as "t"("y")
  func.return %y : tensor<3x4x2xf32>
}
