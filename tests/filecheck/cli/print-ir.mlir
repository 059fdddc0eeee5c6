// RUN: ln-opt %s --pass=cse,canonicalize --print-ir-before 2>&1 >%t | filecheck %s --check-prefix=BEFORE
// RUN: ln-opt %s --pass=cse,canonicalize --print-ir-after=canonicalize 2>&1 >%t | filecheck %s --check-prefix=AFTER
// RUN: ln-opt %s --pass=cse,cse --print-ir-after-change 2>&1 >%t | filecheck %s --check-prefix=DIFF
// RUN: not ln-opt %s --pass=cse --print-ir-after=plan 2>&1 | filecheck %s --check-prefix=ERR

// BEFORE: IR before cse
// BEFORE-COUNT-2: arith.addf
// BEFORE: IR before canonicalize
// BEFORE: arith.addf
// BEFORE-NOT: arith.addf

// AFTER-NOT: cse
// AFTER: IR after canonicalize
// AFTER-NEXT: builtin.module

// DIFF: --- before cse
// DIFF-NEXT: +++ after cse
// DIFF: {{^}}     %c = arith.addf
// DIFF-NEXT: {{^}}-    %d = arith.addf
// DIFF-NEXT: {{^}}-    %e = arith.mulf %c, %d
// DIFF-NEXT: {{^}}+    %e = arith.mulf %c, %c
// DIFF: no change by cse

// ERR: error: --print-ir-before/-after: the pipeline has no pass 'plan'
func.func @main(%a: f32, %b: f32) -> f32 {
  %c = arith.addf %a, %b : f32
  %d = arith.addf %a, %b : f32
  %e = arith.mulf %c, %d : f32
  func.return %e : f32
}
