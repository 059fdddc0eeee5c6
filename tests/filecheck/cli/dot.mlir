// The graph for Graphviz: kernels are clusters, weights are lines of the op that reads them, edges have names, types and places.
// RUN: ln-opt %s --pass=bind,expand,combine,plan --dot=- -o %t | filecheck %s
// A stage on the way.
// RUN: ln-opt %s --pass=bind,expand,combine --dot after:bind=%t.dot -o %t
// RUN: filecheck %s --input-file=%t.dot --check-prefix=BIND
// RUN: ln-opt %s --pass=bind,expand --dot before:bind=%t.dot -o %t
// RUN: filecheck %s --input-file=%t.dot --check-prefix=BIND
// RUN: not ln-opt %s --pass=bind --dot after:expand=%t.dot 2>&1 | filecheck %s --check-prefix=ERR
// RUN: not ln-opt %s --pass=bind --dot after:bind 2>&1 | filecheck %s --check-prefix=WHERE

// CHECK: digraph "dot" {
// CHECK: n0 [label="x\n1x3x4x4xf32\narena+0", shape=invhouse];
// CHECK-NEXT: subgraph cluster_n1 { label="cpu.kernel\nw 2x3x1x1xf32 @ static+0\nb 2xf32 @ static+64"
// CHECK-NEXT: n1_0 [label="conv2d0\nconv2d"];
// CHECK-NEXT: n1_1 [label="relu0\nrelu"];
// CHECK-NEXT: n1_0 -> n1_1;
// CHECK-NEXT: }
// CHECK-NEXT: n2 [label="y", shape=house];
// CHECK-NEXT: n0 -> n1_0 [label="x\n1x3x4x4xf32\narena+0", lhead=cluster_n1];
// CHECK-NEXT: n1_1 -> n2 [label="y\n1x2x4x4xf32\narena+192", ltail=cluster_n1];

// BIND: n1 [label="conv2d0\nconv2d\nw 2x3x1x1xf32\nb 2xf32"];
// BIND: n1 -> n2 [label="c\n1x2x4x4xf32"];

// ERR: error: --dot: the pipeline has no pass 'expand'
// WHERE: error: --dot: say where the graph goes: --dot after:bind=FILE
func.func @main() -> tensor<1x2x4x4xf32> {
  %x = ln.create : tensor<1x3x4x4xf32> as "create0"("x")
  %w = ln.create : tensor<2x3x1x1xf32> as "create1"("w")
  %b = ln.create : tensor<2xf32> as "create2"("b")
  %c = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x2x4x4xf32> as "conv2d0"("c")
  %y = ln.relu %c : tensor<1x2x4x4xf32> as "relu0"("y")
  func.return %y : tensor<1x2x4x4xf32>
}
