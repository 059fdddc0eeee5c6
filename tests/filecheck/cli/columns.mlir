// A list that reaches beyond 120 columns goes on in the next line, one that does not stays; what is read again prints the same.
// RUN: ln-opt %s | filecheck %s
// RUN: ln-opt %s | ln-opt | filecheck %s
// RUN: ln-opt %s --columns=60 | ln-opt | filecheck %s
// RUN: ln-opt %s --columns=60 | filecheck %s --check-prefix=NARROW
// RUN: ln-opt %s --columns=0 | filecheck %s --check-prefix=LONG

// The arguments of a function, and of the launch of it; the names of what a line writes stand at its end.
// CHECK: func.func @k(%lo: index, %hi: index, %first: memref<16xf32>, %second: memref<16xf32>, %third: memref<16xf32>,
// CHECK-NEXT: {{^}}      %fourth: memref<16xf32>, %y: memref<16xf32>) attributes {note} {
// NARROW: func.func @k(%lo: index, %hi: index,
// NARROW-NEXT: {{^}}      %first: memref<16xf32>,
// LONG: func.func @k({{.*}} %y: memref<16xf32>) attributes {note} {
func.func @k(%lo: index, %hi: index, %first: memref<16xf32>, %second: memref<16xf32>, %third: memref<16xf32>, %fourth: memref<16xf32>, %y: memref<16xf32>) attributes {note} {
  // A comma in a text is no place to break a line at, and types are not torn apart where the line can end before them.
  // CHECK: arith.constant {long = "a text, with many commas, which stands in quotes, and is longer, as a whole, than a line has columns, so",
  // CHECK-NEXT: {{^}}        b = 1 : i64} 0.000000e+00 : f32
  // LONG: arith.constant {long = "{{.*}}", b = 1 : i64} 0.000000e+00 : f32
  %c = arith.constant {long = "a text, with many commas, which stands in quotes, and is longer, as a whole, than a line has columns, so", b = 1} 0.0 : f32
  // CHECK: arith.constant dense<[{{.*}}, 24,{{$}}
  // CHECK-NEXT: {{^}}        25, {{.*}}, 39]> : vector<40xi8>
  // LONG: arith.constant dense<[{{.*}}39]> : vector<40xi8>
  %t = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]> : vector<40xi8>
  func.return
}
func.func @main() {
  // CHECK: tile.launch @k grid 1 [arena+0, arena+64, arena+128, arena+192, arena+256] as ("y")
  tile.launch @k grid 1 [arena+0, arena+64, arena+128, arena+192, arena+256] as ("y")
  // CHECK-NEXT: tile.launch @k grid 123456789 threads 2 [arena+1000000000, arena+1000000064, arena+1000000128, arena+1000000192,
  // CHECK-NEXT: {{^}}        arena+1000000256] {note} as ("a long name of a tensor")
  tile.launch @k grid 123456789 threads 2 [arena+1000000000, arena+1000000064, arena+1000000128, arena+1000000192, arena+1000000256] {note} as ("a long name of a tensor")
  func.return
}
