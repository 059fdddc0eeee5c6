// A line for each pass: time, ops, bytes of the tensors that a run computes, of params, of the arena once planned, operations.
// RUN: ln-opt %s --pass=bind,simplify,expand,combine,plan,lower-cpu --stats 2>&1 >%t | filecheck %s
// RUN: filecheck %s --input-file=%t --check-prefix=OUT
// The same as JSON, where no table is printed.
// RUN: ln-opt %s --pass=bind,simplify --stats=%t.json 2>%t.err >%t
// RUN: test ! -s %t.err
// RUN: filecheck %s --input-file=%t.json --check-prefix=JSON

// CHECK: pass ms ops tensors static arena flops launches rewrites
// CHECK-NEXT: {{^\(input\) +6 +48 B +8$}}
// CHECK-NEXT: {{^bind +[0-9.]+ +6 +48 B +8$}}
// CHECK-NEXT: {{^simplify +[0-9.]+ +5 +32 B +4 +1$}}
// CHECK-NEXT: {{^expand +[0-9.]+ +7 +32 B +4 +1$}}
// CHECK-NEXT: {{^combine}}
// CHECK-NEXT: {{^plan +[0-9.]+ +7 +32 B +80 B +4$}}
// CHECK-NEXT: {{^lower-cpu .* 1$}}
// CHECK: {{^pass +pattern +rewrites$}}
// CHECK-NEXT: {{^simplify +dead-code +1$}}
// CHECK-NEXT: {{^expand +wrap-in-kernel +1$}}
// CHECK: {{^pass +op +before +after$}}
// CHECK-NEXT: {{^bind +ln.create +1 +0$}}
// CHECK-NEXT: {{^bind +ln.input +0 +1$}}

// OUT-NOT: wrap-in-kernel
// OUT: tile.launch

// JSON: "input": {
// JSON-NEXT: "ops": 6
// JSON: "pass": "simplify"
// JSON: "rewrites": {
// JSON-NEXT: "dead-code": 1
func.func @main() -> tensor<4xf32> {
  %x = ln.create : tensor<4xf32> as "create0"("x")
  %d = ln.exp %x : tensor<4xf32> as "exp0"("d")
  %r = ln.relu %x : tensor<4xf32> as "relu0"("r")
  func.return %r : tensor<4xf32>
}
