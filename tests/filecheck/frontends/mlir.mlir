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

// Infinities, NaNs and numbers of many digits are the bits of a float in `dense` constants, too; of integers they are numbers.
// CHECK-LABEL: func.func @bits
// CHECK-NEXT: arith.constant dense<0xff800000> : vector<8xf32>
// CHECK-NEXT: arith.constant dense<[0x7fc00000, 0x4CEB79A3]> : vector<2xf32>
// CHECK-NEXT: arith.constant dense<0xfc00> : vector<4xf16>
// CHECK-NEXT: arith.constant dense<255> : vector<4xi32>
func.func @bits() {
  %a = arith.constant dense<0xff800000> : vector<8xf32>
  %b = arith.constant dense<[0x7FC00000, 123456792.0]> : vector<2xf32>
  %c = arith.constant dense<0xFC00> : vector<4xf16>
  %d = arith.constant dense<0xff> : vector<4xi32>
  func.return
}
