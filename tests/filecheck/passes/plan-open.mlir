// RUN: ln-opt --pass=plan --split-input-file %s | filecheck %s
// RUN: ln-opt --pass=plan --split-input-file %s | ln-opt --pass=check-plan --split-input-file - | filecheck %s

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

// Where calls differ in which of two is larger, an offset is their maximum; a workspace has a size of its own.
// CHECK-LABEL: ln.memory =
// CHECK: at arena+?"{{.*}}max({{.*}}" as ("z")
func.func @main() -> tensor<?xf32, #ln.dims<"m(1..256)">> {
  %x = ln.input : tensor<?xf32, #ln.dims<"n(1..256)">> as "x"("x")
  %y = ln.input : tensor<?xf32, #ln.dims<"m(1..256)">> as "y"("y")
  %z = cpu.kernel(%a = %y) choices {ln.workspace_size = #ln.param<?"64*n(1..256)">} {
    %r = ln.relu %a : tensor<?xf32, #ln.dims<"m(1..256)">>
    ln.yield %r
  } as ("z")
  func.return %z : tensor<?xf32, #ln.dims<"m(1..256)">>
}
