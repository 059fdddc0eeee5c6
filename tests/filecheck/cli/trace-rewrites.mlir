// Each rewrite has its number, pass, pattern, op and place, then what was there (-) and what is there now (+); bodies are elided.
// RUN: ln-opt %s --pass=simplify,expand,combine --trace-rewrites 2>&1 >%t | filecheck %s
// RUN: filecheck %s --input-file=%t --check-prefix=OUT
// Only what a pattern, a pass or an op is called for.
// RUN: ln-opt %s --pass=simplify,expand,combine --trace-rewrites=merge-*,relu1 2>&1 >%t | filecheck %s --check-prefix=SOME
// A name that nothing has is no silence.
// RUN: ln-opt %s --pass=simplify --trace-rewrites=relu_of_rleu 2>&1 >%t | filecheck %s --check-prefix=NONE

// CHECK: rewrite 1: simplify: relu_of_relu on ln.relu "relu1" {{.*}}trace-rewrites.mlir:[[# @LINE + 23]]:8
// CHECK-NEXT: {{^}}  - %t = ln.relu %r : tensor<4xf32> as "relu1"("t")
// CHECK-NEXT: {{^}}  + %t = ln.forward %r : tensor<4xf32> as "relu1"("t")
// CHECK-NEXT: rewrite 2: expand: wrap-in-kernel on ln.relu "relu0" {{.*}} (required)
// CHECK-NEXT: {{^}}  - %r = ln.relu %x
// CHECK-NEXT: {{^}}  + %r = cpu.kernel(%x = %x) { ln.relu } : tensor<4xf32> as ("r")
// CHECK: combine: merge-kernels on cpu.kernel "s"
// CHECK-NEXT: {{^}}  - %s = cpu.kernel(%e = %e) { ln.sqrt } : tensor<4xf32> as ("s")
// CHECK-NEXT: {{^}}  - %e = cpu.kernel(%x = %x) { ln.exp } : tensor<4xf32> as ("e")
// CHECK-NEXT: {{^}}  + %s = cpu.kernel(%x = %x) { ln.exp, ln.sqrt } : tensor<4xf32> as ("s")
// CHECK-NOT: builtin.module

// OUT-NOT: rewrite
// OUT: builtin.module

// SOME: rewrite 1: simplify: relu_of_relu
// SOME-NOT: rewrite 2:
// SOME: merge-kernels

// NONE: no rewrite of relu_of_rleu; patterns that were applied: relu_of_relu (1)
func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %x = ln.input : tensor<4xf32> as "create0"("x")
  %r = ln.relu %x : tensor<4xf32> as "relu0"("r")
  %t = ln.relu %r : tensor<4xf32> as "relu1"("t")
  %e = ln.exp %x : tensor<4xf32> as "exp0"("e")
  %s = ln.sqrt %e : tensor<4xf32> as "sqrt0"("s")
  func.return %t, %s : tensor<4xf32>, tensor<4xf32>
}
