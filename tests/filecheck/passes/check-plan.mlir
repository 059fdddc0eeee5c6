// RUN: ln-opt --pass=check-plan --split-input-file --verify-diagnostics %s

// A value that is still read may not be overwritten.
module attributes {ln.memory = {arena = 192 : i64}} {
  func.func @main() -> tensor<16xf32> {
    %x = ln.input : tensor<16xf32> at arena+0 as "x"("x")
    %r = ln.relu %x : tensor<16xf32> at arena+64 as "r"("r")
    %s = ln.sigmoid %x : tensor<16xf32> at arena+96 as "s"("s")
    // expected-error @below {{`e` reads 'r' of `r` at arena [64, 128), but 32 of its bytes from arena+96 on hold 's' of `s` at arena [96, 160)}}
    %e = ln.elew %r, %s {elew_op = "TL_SUM"} : tensor<16xf32> at arena+64 as "e"("e")
    func.return %e : tensor<16xf32>
  }
}

// -----

// An input must survive the call.
module attributes {ln.memory = {arena = 128 : i64}} {
  func.func @main() -> tensor<16xf32> {
    %x = ln.input : tensor<16xf32> at arena+0 as "x"("x")
    %r = ln.relu %x : tensor<16xf32> at arena+0 as "r"("r")
    // expected-error @below {{the next call needs 'x' of `x` at arena [0, 64)}}
    func.return %r : tensor<16xf32>
  }
}

// -----

// A transpose reads other elements than the one it writes: it may not overwrite its operand.
module attributes {ln.memory = {arena = 192 : i64}} {
  func.func @main() -> tensor<4x4xf32> {
    %x = ln.input : tensor<4x4xf32> at arena+0 as "x"("x")
    %r = ln.relu %x : tensor<4x4xf32> at arena+64 as "r"("r")
    // expected-error @below {{its result 't' at arena [64, 128) overlaps its operand 'r' at arena [64, 128) of `r`, which it does not read at exactly the element that it writes}}
    %t = ln.transpose %r {axes = [1, 0]} : tensor<4x4xf32> at arena+64 as "t"("t")
    func.return %t : tensor<4x4xf32>
  }
}

// -----

module attributes {ln.memory = {arena = 64 : i64}} {
  func.func @main() -> tensor<16xf32> {
    // expected-error @below {{'x' takes arena [32, 96), but the space has 64 bytes}}
    %x = ln.input : tensor<16xf32> at arena+32 as "x"("x")
    func.return %x : tensor<16xf32>
  }
}

// -----

// Two values that meet in some call only are refused: 128*m may be more than 64*n.
module attributes {ln.memory = {arena = #ln.param<?"256*m(1..8) + 128*n(1..8)">}} {
  func.func @main() -> tensor<?x16xf32, #ln.dims<"n(1..8)">> {
    %x = ln.input : tensor<?x32xf32, #ln.dims<"m(1..8)">> at arena+0 as "x"("x")
    %y = ln.input : tensor<?x16xf32, #ln.dims<"n(1..8)">> at arena+?"64*n(1..8)" as "y"("y")
    // expected-error @below {{the next call needs 'x' of `x` at arena [0, ?"128*m(1..8)"), but ?"128*m(1..8)" of its bytes from arena+0 on hold what other values may have written}}
    func.return %y : tensor<?x16xf32, #ln.dims<"n(1..8)">>
  }
}

// -----

// The largest value must end within its space in every call.
module attributes {ln.memory = {arena = #ln.param<?"64*max(2, m(1..8))">}} {
  func.func @main() -> tensor<?x16xf32, #ln.dims<"m(1..8)">> {
    // expected-error @below {{'x' takes arena [64, ?"64*m(1..8) + 64"), but the space has ?"64*max(2, m(1..8))" bytes}}
    %x = ln.input : tensor<?x16xf32, #ln.dims<"m(1..8)">> at arena+64 as "x"("x")
    func.return %x : tensor<?x16xf32, #ln.dims<"m(1..8)">>
  }
}
