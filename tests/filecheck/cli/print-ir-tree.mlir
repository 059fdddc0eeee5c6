// A file for the module as it came, one for each pass, and one with what it changed.
// RUN: ln-opt %s --pass=cse,dce --print-ir-tree-dir=%t.dir -o %t
// RUN: cat %t.dir/00_input.mlir | filecheck %s --check-prefix=INPUT
// RUN: cat %t.dir/01_cse.mlir | filecheck %s --check-prefix=CSE
// RUN: cat %t.dir/01_cse.diff | filecheck %s --check-prefix=DIFF
// RUN: test ! -s %t.dir/02_dce.diff
// Each part of a split input has a folder of its own; a second run takes the place of the first.
// RUN: ln-opt %s --pass=cse --print-ir-tree-dir=%t.dir --split-input-file -o %t
// RUN: cat %t.dir/part2/01_cse.mlir | filecheck %s --check-prefix=PART
// RUN: not cat %t.dir/00_input.mlir
// A folder of other files is left alone.
// RUN: not ln-opt %s --pass=cse --print-ir-tree-dir=%S -o %t 2>&1 | filecheck %s --check-prefix=ERR

// INPUT-COUNT-2: arith.addf
// CSE: arith.addf
// CSE-NOT: arith.addf
// DIFF: --- before cse
// DIFF-NEXT: +++ after cse
// DIFF: {{^}}-    %d = arith.addf
// PART: @second
// ERR: error: {{.*}} is not empty, and not of an earlier --print-ir-tree-dir: give another folder
func.func @main(%a: f32, %b: f32) -> f32 {
  %c = arith.addf %a, %b : f32
  %d = arith.addf %a, %b : f32
  %e = arith.mulf %c, %d : f32
  func.return %e : f32
}
// -----
func.func @second(%a: f32) -> f32 {
  func.return %a : f32
}
