// RUN: ln-opt %s --split-input-file --verify-diagnostics --pass=expand

// Kernels of another target, as a network in compiled form has them, are no kernels of this one. Its own stay.
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = cpu.kernel(%x_ = %x) {
    %0 = ln.relu %x_ : tensor<3xf32> as "relu0"("a")
    ln.yield %0
  } : tensor<3xf32> as ("a")
  // expected-error@+1 {{target 'cpu' cannot run a kernel of the target 'cuda' (relu, sigmoid), of which `defuse` makes ops again}}
  %b = cuda.kernel(%x_ = %x) {
    %0 = ln.relu %x_ : tensor<3xf32> as "relu1"("r")
    %1 = ln.sigmoid %0 : tensor<3xf32> as "sigmoid0"("b")
    ln.yield %1
  } : tensor<3xf32> as ("b")
  func.return %a, %b : tensor<3xf32>, tensor<3xf32>
}

// -----

func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  // expected-error@+1 {{target 'cpu' cannot run a kernel of the target 'cuda' (without ops), of which `defuse` makes ops again}}
  %b = cuda.kernel(%x_ = %x) {
    ln.yield %x_
  } : tensor<3xf32> as ("b")
  func.return %b : tensor<3xf32>
}
