// RUN: ln-opt %s --split-input-file --verify-diagnostics --pass=expand

// Kernels of another target, as a network in compiled form has them, are no kernels of this one. Its own stay.
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = cpu.kernel(%x_ = %x) {
    %0 = ln.relu %x_ : tensor<3xf32> as "relu0"("a")
    ln.yield %0
  } : tensor<3xf32> as ("a")
  %b = cuda.kernel(%x_ = %x) {
    // expected-error@+1 {{target 'cpu' cannot run `relu1` of optype relu (it is in a kernel of the target 'cuda', of which `defuse` makes ops again)}}
    %0 = ln.relu %x_ : tensor<3xf32> as "relu1"("b")
    ln.yield %0
  } : tensor<3xf32> as ("b")
  func.return %a, %b : tensor<3xf32>, tensor<3xf32>
}
