// RUN: ln-opt --load %S/Inputs/silu.mlir --pass=rewrite --check %s | filecheck %s
// RUN: ln-opt --load %S/Inputs/silu.mlir --pass=rewrite{dce=false} %s | filecheck %s --check-prefix=KEPT
// RUN: ln-opt --pass=rewrite %s | filecheck %s --check-prefix=NONE
// RUN: not ln-opt --load %S/Inputs/silu-exact.mlir --pass=simplify --check %s 2>&1 | filecheck %s --check-prefix=EXACT

// A rule that is right up to rounding: what nothing reads any more goes, unless it is to stay; without rules nothing happens.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.silu %[[X]] : tensor<64xf32> as ("y")
// CHECK-NEXT: func.return
// KEPT: ln.sigmoid
// KEPT-NEXT: ln.silu
// NONE: ln.sigmoid
// NONE-NEXT: ln.mul
// In `simplify`, which promises the same bits, it is wrong, and the error says by how little, and where it may stand.
// EXACT: pattern 'silu' of pass 'simplify' changed the result
// EXACT: note: about {{[0-9]+}} unit{{s?}} in the last place of f32: pass 'simplify' promises the same bits (docs/trust.md); a rule that rounds belongs into a pass that may, such as 'rewrite'
func.func @main() -> tensor<64xf32> {
  %x = ln.input : tensor<64xf32> as ("x")
  %g = ln.sigmoid %x : tensor<64xf32>
  %y = ln.mul %x, %g : tensor<64xf32> as ("y")
  func.return %y : tensor<64xf32>
}
