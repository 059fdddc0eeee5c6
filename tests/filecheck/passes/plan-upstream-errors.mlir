// A tensor that upstream overwrites in place cannot be read afterwards: our values can, an upstream plan cannot hold both.
// RUN: ln-opt --pass='plan{plan=upstream}' --verify-diagnostics %s

func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %x = ln.create {ran = [-1, 1]} : tensor<4xf32> as "a"("x")
  %y = ln.sort1d %x {dir = "TL_SORT_DIR_DESCENDING"} : tensor<4xf32> as "s"("y")
  // expected-error@+1 {{upstream's sort1d overwrites `x` in place, but a later op reads it}}
  %z = ln.relu %x : tensor<4xf32> as "r"("z")
  func.return %y, %z : tensor<4xf32>, tensor<4xf32>
}
