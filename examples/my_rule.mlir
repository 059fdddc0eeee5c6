// The rule of my_rule.py: the op keeps its names, and the negation goes, since nothing else reads it.
// RUN: ln-opt --load %S/my_rule.py --check=rewrite --pass=simplify %s | filecheck %s

// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.abs %[[X]] : tensor<3xf32> as "abs0"("y")
func.func @main() -> tensor<3xf32> {
  %x = ln.input {data = [1, -2, 0]} : tensor<3xf32> as "create0"("x")
  %n = ln.neg %x : tensor<3xf32> as "neg0"("n")
  %y = ln.abs %n : tensor<3xf32> as "abs0"("y")
  func.return %y : tensor<3xf32>
}
