// Parts are processed alone and printed with the mark between them; line numbers are the file's.
// RUN: ln-opt %s --split-input-file --print-locations | filecheck %s

// CHECK: func.func @f
// CHECK: return loc({{.*}}split.mlir":9:3)
// CHECK: // -----
// CHECK: func.func @f
func.func @f() {
  func.return
}

// -----

// CHECK: return loc({{.*}}split.mlir":16:3)
func.func @f() {
  func.return
}
