// Every mistake in a .mlir file is reported at its own place.
// RUN: ln-opt --split-input-file --verify-diagnostics %s

func.func @undefined_value(%x: f32) -> f32 {
  // expected-error@+1 {{value '%77' is used but never defined}}
  %0 = arith.addf %x, %77 : f32
  %1 = arith.mulf %0, %77 : f32
  func.return %1 : f32
}

// -----

func.func @cycle(%x: f32) -> f32 {
  // expected-error@+1 {{operand 0 is used before it is defined}}
  %0 = arith.addf %1, %x : f32
  %1 = arith.addf %0, %x : f32
  func.return %1 : f32
}

// -----

func.func @out_of_scope(%c: i1) {
  scf.if %c {
    %inner = arith.constant 1 : i32
  }
  %d = arith.addi %inner, %inner : i32 // expected-error {{value '%inner' is used but never defined}}
  func.return
}

// -----

func.func @unknown_op() {
  arith.adf // expected-error {{unknown op 'arith.adf'; did you mean 'arith.addf'}}
}

// -----

// expected-error@below {{unknown dialect 'nix' of op 'nix.op'}}
nix.op

// -----

func.func @unknown_parameter() {
  %x = ln.create {ran = [0, 1]} : tensor<2x3xf32>
  %y = ln.relu %x {slope = 1} : tensor<2x3xf32>
  // expected-error@above {{slope}}
  func.return
}

// -----

func.func @types(%x: i32) -> f32 {
  // expected-error@+1 {{is of type i32, but is read as f32}}
  %y = arith.addf %x, %x : f32
  func.return %y : f32
}

// -----

func.func @result_type(%x: i32) -> f32 {
  // expected-error@+1 {{Expected arguments to have the same types as the function output types}}
  func.return %x : i32
}

// -----

func.func @twice() {
  %x = arith.constant 1 : i32
  // expected-error@+1 {{SSA value %x is already defined}}
  %x = arith.constant 2 : i32
  func.return
}

// -----

func.func @symbol() {
  func.return
}
// expected-error@+1 {{symbol @symbol is already defined at}}
func.func @symbol() {
  func.return
}

// -----

func.func @terminator(%x: i32) {
  // expected-error@+1 {{ends its block, but is not a terminator}}
  %y = arith.addi %x, %x : i32
}

// -----

// 2^40 elements: refused before anything is allocated.
// expected-error@+1 {{the dense constants of the file have more than 4194304 elements}}
%0 = arith.constant dense<0.0> : tensor<1099511627776xf32>

// -----

// expected-error@+1 {{an integer type has more than 1024 bits}}
%0 = arith.constant 1 : i99999999999999999999

// -----

// expected-error@+1 {{0xff80000000 has more bits than f32}}
%0 = arith.constant dense<0xff80000000> : vector<4xf32>

// -----

// The end of the file stands at the last line of its part.
func.func @truncated(%x: i32) { // expected-error@+2 {{unexpected end of the file}}

