// RUN: ln-opt --pass=plan --split-input-file %s | filecheck %s
// RUN: ln-opt --pass=plan --split-input-file %s | ln-opt --from=mlir --pass=check-plan --split-input-file - | filecheck %s

// Sizes that a call decides make offsets that it decides: multiples of the alignment, with the symbols' bounds. What
// dies is overwritten, and a concatenation is made where its operand stands, for all values.
// CHECK-LABEL: ln.memory = {static = 0 : i64, arena = #ln.param<?"768*batch(1..16)">}
// CHECK: ln.input {{.*}} at arena+0 as "x"
// CHECK: at arena+?"256*batch(1..16)" as ("t")
// CHECK: at arena+?"256*batch(1..16)" as ("r")
// CHECK: at arena+?"256*batch(1..16)" as ("c")
func.func @main() -> tensor<?x64xf32, #ln.dims<"2*batch(1..16)">> {
  %x = ln.input : tensor<?x64xf32, #ln.dims<"batch(1..16)">> as "x"("x")
  %t = cpu.kernel(%a = %x) { %r = ln.tanh %a : tensor<?x64xf32, #ln.dims<"batch(1..16)">> ln.yield %r } as ("t")
  %r = cpu.kernel(%a = %t) { %r = ln.relu %a : tensor<?x64xf32, #ln.dims<"batch(1..16)">> ln.yield %r } as ("r")
  %c = cpu.kernel(%a = %r, %b = %x) {
    %r = ln.concat %a, %b {axis = 0} : tensor<?x64xf32, #ln.dims<"2*batch(1..16)">>
    ln.yield %r
  } as ("c")
  func.return %c : tensor<?x64xf32, #ln.dims<"2*batch(1..16)">>
}

// -----

// Sizes that are no multiples of the alignment are rounded up in each call; a workspace has a size of its own.
// CHECK-LABEL: ln.memory = {static = 0 : i64,
// CHECK: arena = #ln.param<?"128*((m(1..256) + 15) floordiv 16) + 68*n(1..256)">
// CHECK: at arena+{{.*}} work arena+{{.*}} as ("z")
func.func @main() -> tensor<?xf32, #ln.dims<"m(1..256)">> {
  %x = ln.input : tensor<?xf32, #ln.dims<"n(1..256)">> as "x"("x")
  %y = ln.input : tensor<?xf32, #ln.dims<"m(1..256)">> as "y"("y")
  %z = cpu.kernel(%a = %y) choices {ln.workspace_size = #ln.param<?"64*n(1..256)">} {
    %r = ln.relu %a : tensor<?xf32, #ln.dims<"m(1..256)">>
    ln.yield %r
  } as ("z")
  func.return %z : tensor<?xf32, #ln.dims<"m(1..256)">>
}

// -----

// Where calls differ in which of two is larger, what stands above both stands on their maximum.
// CHECK-LABEL: ln.memory =
// CHECK: max(
// CHECK: func.return
func.func @main() -> (tensor<1xf32>, tensor<1xf32>) {
  %x = ln.input : tensor<?xf32, #ln.dims<"n(16..256 by 16)">> as "x"("x")
  %y = ln.input : tensor<?xf32, #ln.dims<"m(16..256 by 16)">> as "y"("y")
  %p = cpu.kernel(%a = %x) { %r = ln.relu %a : tensor<?xf32, #ln.dims<"n(16..256 by 16)">> ln.yield %r } as ("p")
  %s = cpu.kernel(%a = %p) { %r = ln.slice %a {axis = 0, start = 8, len = 1} : tensor<1xf32> ln.yield %r } as ("s")
  %q = cpu.kernel(%a = %y) { %r = ln.relu %a : tensor<?xf32, #ln.dims<"m(16..256 by 16)">> ln.yield %r } as ("q")
  %t = cpu.kernel(%a = %q) { %r = ln.slice %a {axis = 0, start = 8, len = 1} : tensor<1xf32> ln.yield %r } as ("t")
  func.return %s, %t : tensor<1xf32>, tensor<1xf32>
}
