// A module prints as it was written, and prints the same when it is read again.
// RUN: ln-opt %s | filecheck %s
// RUN: ln-opt %s > %t.1 && ln-opt %t.1 > %t.2 && diff %t.1 %t.2
// RUN: ln-opt --print-op-generic %s | ln-opt - | filecheck %s
// RUN: ln-opt --print-locations %s | filecheck %s --check-prefix=LOC
// RUN: ln-opt --print-locations %s | ln-opt - --print-locations | filecheck %s --check-prefix=LOC

// CHECK-LABEL: func.func @f(%a: f32, %{{.*}}: f32) -> f32
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %a, %{{.*}} : f32
// CHECK-NEXT: return %[[SUM]] : f32
// An op's place is that of its name; a place that the text states is kept.
// LOC: arith.addf {{.*}} loc("{{.*}}mlir.mlir":15:10)
// LOC: return {{.*}} loc("net.net":7:1)
func.func @f(%a: f32, %b: f32) -> f32 {
  %sum = arith.addf %a, %b : f32
  func.return %sum : f32 loc("net.net":7:1)
}
