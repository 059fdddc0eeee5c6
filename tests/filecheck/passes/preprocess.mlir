// RUN: ln-opt --pass=preprocess %s | filecheck %s
// RUN: ln-opt --pass=preprocess,preprocess %s | filecheck %s --check-prefix=TWICE
// RUN: ln-opt --pass=bind,expand,preprocess %s | filecheck %s --check-prefix=KERNELS

// Static tensors go to the front, each before those that went there, so that one pass reverses them; the first op stays where it is, and what
// computes stays behind. Twice gives the order of the program.
// CHECK: ln.arange {{.*}} as "c"("c")
// CHECK-NEXT: ln.create {{.*}} as "b"("b")
// CHECK-NEXT: ln.create {{.*}} as "a"("a")
// CHECK-NEXT: ln.relu
// CHECK-NEXT: ln.elew
// CHECK-NEXT: ln.print
// TWICE: ln.create {{.*}} as "a"("a")
// TWICE: ln.create {{.*}} as "b"("b")
// TWICE-NEXT: ln.arange {{.*}} as "c"("c")
// TWICE: ln.relu
// An arange is a kernel by then, and as static as before.
// KERNELS: cpu.kernel() {
// KERNELS-NEXT: ln.arange
// KERNELS: as "b"("b")
// KERNELS: as "a"("a")
// KERNELS: ln.relu
func.func @main() -> tensor<4xf32> {
  %a = ln.create {data = [1, 2, 3, 4]} : tensor<4xf32> as "a"("a")
  %r = ln.relu %a : tensor<4xf32> as "r"("r")
  %b = ln.create {data = [1, 2, 3, 4]} : tensor<4xf32> as "b"("b")
  %u = ln.elew %r, %b {elew_op = "TL_SUM"} : tensor<4xf32> as "u"("u")
  %c = ln.arange {start = 0, stop = 4, step = 1} : tensor<4xf32> as "c"("c")
  ln.print %c {msg = "c"}
  func.return %u : tensor<4xf32>
}
