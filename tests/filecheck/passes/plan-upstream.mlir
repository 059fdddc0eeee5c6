// RUN: ln-opt --pass='preprocess,preprocess,plan{plan=upstream}' %s | filecheck %s

// Upstream's rules, behind its order of ops: creates first, offsets from 1, no overwriting but by ownership (reshape), and a tensor that nobody
// consumes is given back at once ("u" and "w" have the same bytes).
// CHECK: ln.memory = {arena = 65 : i64}, ln.plan = "upstream"
// CHECK: ln.create {{.*}} at arena+1 as "a"
// CHECK: ln.create {{.*}} at arena+17 as "b"
// CHECK: ln.relu {{.*}} at arena+33 as "r"
// CHECK: ln.reshape {{.*}} at arena+33 as "s"
// CHECK: ln.elew {{.*}} at arena+49 as "u"
// CHECK: ln.elew {{.*}} at arena+49 as "w"
func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %a = ln.create {data = [1, 2, 3, 4]} : tensor<2x2xf32> as "a"("a")
  %r = ln.relu %a : tensor<2x2xf32> as "r"("r")
  %s = ln.reshape %r : tensor<4xf32> as "s"("s")
  %b = ln.create {data = [1, 2, 3, 4]} : tensor<4xf32> as "b"("b")
  %u = ln.elew %s, %b {elew_op = "TL_SUM"} : tensor<4xf32> as "u"("u")
  %w = ln.elew %s, %b {elew_op = "TL_SUB"} : tensor<4xf32> as "w"("w")
  func.return %u, %w : tensor<4xf32>, tensor<4xf32>
}
