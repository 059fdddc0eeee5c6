// RUN: ln-opt --pass=lower-cpu --split-input-file --verify-diagnostics %s --columns=0 | filecheck %s

// A kernel becomes a function, the op a launch with its places; the function returns nothing.
// CHECK: func.func @relu_0(%{{.*}}: index, %{{.*}}: index, %{{.*}}: memref<6xf32>, %{{.*}}: memref<6xf32>) attributes {tile.opt = "O2"}
// CHECK: func.func @main() {
// CHECK-NEXT: tile.launch @relu_0 grid 1 [arena+0, arena+64]
// CHECK-NEXT: tile.host "print" [arena+64] {msg = "y:", dims = [2 : i64, 3 : i64], dtype = "f32"}
// CHECK-NEXT: func.return
builtin.module attributes {ln.memory = {arena = 88 : i64}} {
  func.func @main() -> tensor<2x3xf32> {
    %x = ln.input : tensor<2x3xf32> at arena+0 as ("x")
    %y = cpu.kernel(%x_1 = %x) {
      %y_1 = ln.relu %x_1 : tensor<2x3xf32>
      ln.yield %y_1
    } at arena+64 as ("y")
    ln.print %y {msg = "y:"}
    func.return %y : tensor<2x3xf32>
  }
}

// -----
// Equal kernels share one function, whatever their names and places.
// CHECK: func.func @relu_0
// CHECK-NOT: func.func @relu_1
// CHECK: tile.launch @relu_0 grid 1 [arena+0, arena+64]
// CHECK-NEXT: tile.launch @relu_0 grid 1 [arena+64, arena+128]
builtin.module attributes {ln.memory = {arena = 152 : i64}} {
  func.func @main() -> tensor<6xf32> {
    %x = ln.input : tensor<6xf32> at arena+0 as ("x")
    %y = cpu.kernel(%a = %x) {
      %b = ln.relu %a : tensor<6xf32> as "first"("b")
      ln.yield %b
    } at arena+64 as ("y")
    %z = cpu.kernel(%c = %y) {
      %d = ln.relu %c : tensor<6xf32> as "second"("d")
      ln.yield %d
    } at arena+128 as ("z")
    func.return %z : tensor<6xf32>
  }
}

// -----
// In place, operand and result are one memref: the alias pattern is part of the function.
// CHECK: func.func @relu_0(%{{.*}}: index, %{{.*}}: index, %{{.*}}: memref<6xf32>) attributes
// CHECK: tile.launch @relu_0 grid 1 [arena+0]
builtin.module attributes {ln.memory = {arena = 24 : i64}} {
  func.func @main() -> tensor<6xf32> {
    %x = cpu.kernel() {
      %x_1 = ln.zeros : tensor<6xf32>
      ln.yield %x_1
    } at arena+0 as ("x")
    %y = cpu.kernel(%a = %x) {
      %b = ln.relu %a : tensor<6xf32>
      ln.yield %b
    } at arena+0 as ("y")
    func.return %y : tensor<6xf32>
  }
}

// -----
// A move whose places coincide lowers to nothing; of a concat half in place, the other half is copied.
// CHECK: func.func @copy_0
// CHECK: func.func @main() {
// CHECK-NEXT: tile.launch @copy_0 grid 3 [arena+64, arena+16]
// CHECK-NEXT: func.return
builtin.module attributes {ln.memory = {arena = 128 : i64}} {
  func.func @main() -> tensor<7xf32> {
    %x = ln.input : tensor<2x2xf32> at arena+0 as ("x")
    %y = ln.input : tensor<3xf32> at arena+64 as ("y")
    %r = cpu.kernel(%a = %x) {
      %b = ln.reshape %a : tensor<4xf32>
      ln.yield %b
    } at arena+0 as ("r")
    %z = cpu.kernel(%c = %r, %d = %y) {
      %e = ln.concat %c, %d {axis = 0} : tensor<7xf32>
      ln.yield %e
    } at arena+0 as ("z")
    func.return %z : tensor<7xf32>
  }
}

// -----
// A convolution that `choose` gave to the register tiles: broadcast weights times contiguous pixels.
// CHECK: func.func @conv2d_relu_0({{.*}}) attributes {tile.opt = "none"} {
// CHECK: tile.load %{{.*}} dims [0, 1] : memref<8x3x1x1xf32>, vector<8x3xf32>
// CHECK: tile.load %{{.*}} dims [1, 2, 3] {{.*}}: memref<1x3x1x20xf32>, vector<3x1x32xf32>
// CHECK: tile.fma
// CHECK: tile.store %{{.*}} dims [1, 2, 3] {{.*}}valid [8, 1, 20]
builtin.module attributes {ln.memory = {arena = 1024 : i64, static = 192 : i64}} {
  func.func @main() -> tensor<1x8x4x5xf32> {
    %x = ln.input : tensor<1x3x4x5xf32> at arena+0 as ("x")
    %w, %b = ln.once {
      %w_1 = ln.param : tensor<8x3x1x1xf32> as ("w")
      %b_1 = ln.param : tensor<8xf32> as ("b")
      ln.yield %w_1, %b_1
    } : tensor<8x3x1x1xf32>, tensor<8xf32> at static+0, static+128
    %y = cpu.kernel(%x_1 = %x, %w_1 = %w, %b_1 = %b) choices {alg = "direct", lanes = 16 : i64} {
      %c = ln.conv2d %x_1, %w_1, %b_1 {size = [1, 1]} : tensor<1x8x4x5xf32>
      %r = ln.relu %c : tensor<1x8x4x5xf32>
      ln.yield %r
    } at arena+256 as ("y")
    func.return %y : tensor<1x8x4x5xf32>
  }
}

// -----
func.func @main() -> tensor<6xf32> {
  %x = ln.input : tensor<6xf32>
  // expected-error@+1 {{has no place: run plan before lower-cpu}}
  %y = cpu.kernel(%a = %x) {
    %b = ln.relu %a : tensor<6xf32>
    ln.yield %b
  }
  func.return %y : tensor<6xf32>
}

// -----
// A kernel's threads go to its launches, with scratch for each; they are no part of the function.
// CHECK: ln.memory = {arena = {{[0-9]+}} : i64
// CHECK: func.func @conv2d_0(
// CHECK-NOT: func.func @conv2d_1
// CHECK: tile.launch @conv2d_0 grid 5 threads 2 scratch [[S:[0-9]+]] [arena+0, static+0, static+2880, arena+3200, arena+[[B:[0-9]+]]]
// CHECK: tile.launch @conv2d_0 grid 5 threads 5 scratch [[S]] [arena+0, static+0, static+2880, arena+67200, arena+[[B]]]
builtin.module attributes {ln.memory = {arena = 131200 : i64, static = 3040 : i64}} {
  func.func @main() -> (tensor<1x40x20x20xf32>, tensor<1x40x20x20xf32>) {
    %x = ln.input : tensor<1x2x20x20xf32> at arena+0 as ("x")
    %w = ln.param : tensor<40x2x3x3xf32> at static+0 as ("w")
    %b = ln.param : tensor<40xf32> at static+2880 as ("b")
    %y = cpu.kernel(%x_ = %x, %w_ = %w, %b_ = %b) choices {alg = "direct", lanes = 16 : i64, threads = 2 : i64} {
      %0 = ln.conv2d %x_, %w_, %b_ {size = [3, 3], padding = [1, 1, 1, 1], autopad = "NOTSET"} : tensor<1x40x20x20xf32>
      ln.yield %0
    } at arena+3200 as ("y")
    %z = cpu.kernel(%x_ = %x, %w_ = %w, %b_ = %b) choices {alg = "direct", lanes = 16 : i64, threads = 99 : i64} {
      %0 = ln.conv2d %x_, %w_, %b_ {size = [3, 3], padding = [1, 1, 1, 1], autopad = "NOTSET"} : tensor<1x40x20x20xf32>
      ln.yield %0
    } at arena+67200 as ("z")
    func.return %y, %z : tensor<1x40x20x20xf32>, tensor<1x40x20x20xf32>
  }
}

// -----
builtin.module attributes {ln.memory = {arena = 88 : i64}} {
  func.func @main() -> tensor<6xf32> {
    %x = ln.input : tensor<6xf32> at arena+0 as ("x")
    // expected-error@+1 {{the choice threads of cpu.kernel is a number from 1 to 256, not 0}}
    %y = cpu.kernel(%a = %x) choices {alg = "loops", threads = 0 : i64} {
      %b = ln.relu %a : tensor<6xf32>
      ln.yield %b
    } at arena+64 as ("y")
    func.return %y : tensor<6xf32>
  }
}
