// How level 4 becomes LLVM IR.
// RUN: ln-opt --emit=llvm --cpu=x86-64-v4 %s | filecheck %s
// RUN: ln-opt --emit=llvm --cpu=x86-64 %s | filecheck %s --check-prefix=NARROW

// A loop from a definition: no freeze, addresses from one inbounds GEP, contraction allowed; the middle end runs.
// CHECK-LABEL: ; @axpy
// CHECK: define void @{{k[0-9a-f]+}}(i64 %arg0, i64 %arg1, ptr noalias align 64 dereferenceable(400) %arg2, ptr noalias align 64 dereferenceable(400) %arg3)
// CHECK: icmp slt i64 %arg0, %arg1
// CHECK: %[[I:.*]] = phi i64 [ %arg0, %entry ]
// CHECK: %[[OFF:.*]] = mul nsw i64 %[[I]], 4
// CHECK: getelementptr inbounds i8, ptr %arg2, i64 %[[OFF]]
// CHECK: fmul contract float {{.*}}, 0x4000000000000000
// CHECK: fadd contract float
// CHECK-NOT: freeze
// CHECK: attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
func.func @axpy(%lo: index, %hi: index, %x: memref<100xf32>, %y: memref<100xf32>) attributes {tile.opt = "O2"} {
  %one = arith.constant 1 : index
  %two = arith.constant 2.0 : f32
  scf.for %i = %lo to %hi step %one {
    %a = memref.load %x[%i] : memref<100xf32>
    %b = memref.load %y[%i] : memref<100xf32>
    %m = arith.mulf %a, %two : f32
    %s = arith.addf %m, %b : f32
    memref.store %s, %y[%i] : memref<100xf32>
  }
  func.return
}

// A tile kernel: the base pointer of each loop is frozen, b is loaded before the row of a that it meets, and the
// elementwise epilogue is emitted vector by vector as the store asks for it.
// CHECK-LABEL: ; @tile
// CHECK: %[[BASE:.*]] = freeze ptr
// CHECK: load <16 x float>, ptr
// CHECK: load float, ptr
// CHECK: shufflevector <16 x float>
// CHECK: call <16 x float> @llvm.fma.v16f32
// CHECK: call <16 x float> @llvm.fma.v16f32
// CHECK: fcmp ogt <16 x float> splat (float 0x0000000000000000)
// CHECK: select
// CHECK: store <16 x float>
// CHECK: fcmp ogt
// CHECK: "tune-cpu"="generic"
// NARROW-LABEL: ; @tile
// NARROW: call <4 x float> @llvm.fma.v4f32
func.func @tile(%lo: index, %hi: index, %a: memref<64x2xf32>, %b: memref<64x16xf32>, %o: memref<64x16xf32>) attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant dense<0.0> : vector<2x16xf32>
  scf.for %i = %lo to %hi step %c1 {
    %row = arith.muli %i, %c2 : index
    %x = tile.load %a[%row, %c0] dims [0, 1] : memref<64x2xf32>, vector<2x2xf32>
    %y = tile.load %b[%row, %c0] dims [0, 1] : memref<64x16xf32>, vector<2x16xf32>
    %r = tile.fma %x, %y, %zero : vector<2x2xf32>, vector<2x16xf32>, vector<2x16xf32>
    %relu = arith.maximumf %r, %zero : vector<2x16xf32>
    tile.store %relu, %o[%row, %c0] dims [0, 1] : vector<2x16xf32>, memref<64x16xf32>
  }
  func.return
}

// Ragged edges: a constant mask from `valid`, a computed one from `lanes`.
// CHECK-LABEL: ; @ragged
// CHECK: call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 64 %arg2, <16 x i1> <i1 true, i1 true, i1 true, i1 false
// CHECK: icmp sgt <16 x i64>
// CHECK: @llvm.masked.store.v16f32.p0(<16 x float>
func.func @ragged(%lo: index, %hi: index, %x: memref<3xf32>, %y: memref<3xf32>) attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0] dims [0] valid [3] : memref<3xf32>, vector<16xf32>
  tile.store %v, %y[%c0] dims [0] lanes %hi : vector<16xf32>, memref<3xf32>
  func.return
}

// The launch list: direct calls at constant places, on the first thread; there is nobody to wait for.
// CHECK: define internal void @main.0(ptr %frame, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch)
// CHECK: getelementptr ptr, ptr %frame, i64 0
// CHECK: %arena = load ptr
// CHECK: getelementptr ptr, ptr %frame, i64 1
// CHECK: %static = load ptr
// CHECK: getelementptr ptr, ptr %frame, i64 2
// CHECK: %host = load ptr
// CHECK: icmp eq i64 %thread, 0
// CHECK-NOT: @wait
// CHECK: %[[P:.*]] = getelementptr i8, ptr %static, i64 64
// CHECK: call void @{{k[0-9a-f]+}}(i64 0, i64 12, ptr %arena, ptr %[[P]])
// CHECK: call void %host(i64 0, ptr %args)
// CHECK: define void @ln_body(ptr %frame, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch)
// CHECK: define void @ln_main(ptr %frame)
// CHECK: call void @ln_body(ptr %frame, i64 0, i64 1, ptr null, ptr null)
func.func @main() {
  tile.launch @axpy grid 12 [arena+0, static+64]
  tile.host "print" [arena+1024] {msg = "x"}
  func.return
}
