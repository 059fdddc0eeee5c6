// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// A number stays as it was written: 0.1 is a double here, whatever the tensor's type.
// CHECK: ln.relu %x : tensor<2x3xf32>
// CHECK: ln.lrelu %x {negslope = 0.1} : tensor<2x3xf32>
// CHECK: ln.sigmoid %x : tensor<2x3xf32>
// CHECK: ln.elew %x, %x {elew_op = "TL_SUM"} : tensor<2x3xf32>
func.func @main(%x: tensor<2x3xf32>) {
  %a = ln.relu %x : tensor<2x3xf32>
  %b = ln.lrelu %x {negslope = 0.1} : tensor<2x3xf32>
  %c = ln.sigmoid %x : tensor<2x3xf32>
  %d = ln.elew %x, %x {elew_op = "TL_SUM"} : tensor<2x3xf32>
  func.return
}

// -----
func.func @shape(%x: tensor<1x2xf32>, %y: tensor<1x3xf32>) {
  // expected-error@+1 {{tensor `src2` (tensor<1x3xf32>) and tensor `src1` (tensor<1x2xf32>) should have the same shape}}
  %z = ln.elew %x, %y {elew_op = "TL_MUL"} : tensor<1x2xf32>
  func.return
}

// -----
func.func @type(%x: tensor<2xf32>, %y: tensor<2xf64>) {
  // expected-error@+1 {{should have the same data type}}
  %z = ln.elew %x, %y {elew_op = "TL_MUL"} : tensor<2xf32>
  func.return
}

// -----
func.func @missing(%x: tensor<2xf32>) {
  // expected-error@+1 {{lrelu: `r` needs a `negslope` param}}
  %z = ln.lrelu %x : tensor<2xf32> as "r"
  func.return
}

// -----
func.func @wrong(%x: tensor<2xf32>) {
  // expected-error@+1 {{`negslope` param's value should be of type LN_PARAM_NUMBER, but gets a LN_PARAM_STRING}}
  %z = ln.lrelu %x {negslope = "0.1"} : tensor<2xf32> as "r"
  func.return
}
