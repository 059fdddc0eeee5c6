// The tree has a line for each stage, with op counts; stdout has the module alone.
// RUN: ln-opt %s --pass=cse,dce --verify-each --timing 2>&1 >%t | filecheck %s
// RUN: filecheck %s --input-file=%t --check-prefix=OUT

// CHECK: timing: {{[0-9.]+}} ms wall, peak {{[0-9]+}} MiB
// CHECK-NEXT: wall ms % ops peak MiB stage
// CHECK-NEXT: {{[0-9.]+ +[0-9.]+% +6 +[0-9]+  parse}}
// CHECK-NEXT: {{ verify$}}
// CHECK-NEXT: {{ passes$}}
// CHECK-NEXT: {{6 -> 5 .*   cse$}}
// CHECK-NEXT: {{   verify$}}
// CHECK-NEXT: {{5 -> 5 .*   dce$}}
// CHECK-NEXT: {{   verify$}}
// CHECK-NEXT: {{ print$}}
// CHECK-NOT: builtin

// OUT-NOT: timing
// OUT: builtin.module
func.func @main(%a: f32, %b: f32) -> f32 {
  %c = arith.addf %a, %b : f32
  %d = arith.addf %a, %b : f32
  %e = arith.mulf %c, %d : f32
  func.return %e : f32
}
