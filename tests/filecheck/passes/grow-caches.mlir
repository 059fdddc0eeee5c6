// RUN: ln-opt %s --pass='expand,grow-caches{caches="k=all"},choose,plan' --columns=0 | filecheck %s
// RUN: ln-opt %s --pass='expand,grow-caches{caches=all},layout,choose,plan' --columns=0 | filecheck %s --check-prefix=PLAIN
// RUN: not ln-opt %s --pass='expand,grow-caches{caches="n=all"}' 2>&1 | filecheck %s --check-prefix=OTHER
// RUN: not ln-opt %s --pass='grow-caches{caches="k=all"}' 2>&1 | filecheck %s --check-prefix=EARLY

// The input and the output are one place, of the most that there may be; who reads the output reads it there.
// CHECK: %k = ln.input {{.*}} : tensor<2x?x5xf32, #ln.dims<"past(1..30)", #ln.layout<"r1x32">>> at cache0+0
// CHECK: %all = cpu.kernel(%[[K:.*]] = %k, %[[N:.*]] = %n) choices {alg = "loops"} {
// CHECK-NEXT: ln.concat %[[K]], %[[N]] {axis = 1}
// CHECK: } : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2", #ln.layout<"r1x32">>> at cache0+0
// CHECK: %y = cpu.kernel(%{{.*}} = %all)
// CHECK: } : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">> at arena+0

// `layout` makes all row-major again.
// PLAIN-NOT: ln.layout
// PLAIN-NOT: cache0

// OTHER: error: caches: 'n' cannot become 'all' where it is: the output is no concatenation that begins with the input
// EARLY: error: caches: there are no kernels: run expand before grow-caches
func.func @main() -> (tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">>, tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">>) {
  %k = ln.input {required = true} : tensor<2x?x5xf32, #ln.dims<"past(1..30)">> as ("k")
  %n = ln.input {required = true} : tensor<2x2x5xf32> as ("n")
  %all = ln.concat %k, %n {axis = 1} : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">> as ("all")
  %y = ln.relu %all : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">> as ("y")
  func.return %all, %y : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">>, tensor<2x?x5xf32, #ln.dims<"past(1..30) + 2">>
}
