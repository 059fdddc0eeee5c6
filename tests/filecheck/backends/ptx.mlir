// How level 4 of cuda becomes PTX.
// RUN: ln-opt -t cuda --emit=ptx --arch=sm_80 %s | filecheck %s

// CHECK: .version 8.0
// CHECK: .target sm_80

// One thread a block of the loop function, which is inlined: its loop of one trip, its call and its pointers are gone. What no thread writes is
// read through the read-only cache.
// CHECK: .visible .entry relu(
// CHECK: .param .u64 .ptr .global .align 64
// CHECK: .reqntid 128
// CHECK-NOT: call
// CHECK: mul.wide.u32
// CHECK: ld.global.nc.b32
// CHECK: st.global.b32
// CHECK: ret;
func.func private @relu_block(%lo: index, %hi: index, %x: memref<4000xf32>, %y: memref<4000xf32>) {
  %one = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %lo to %hi step %one {
    %a = memref.load %x[%i] : memref<4000xf32>
    %m = arith.maximumf %a, %zero : f32
    memref.store %m, %y[%i] : memref<4000xf32>
  }
  func.return
}
func.func @relu(%x: memref<4000xf32>, %y: memref<4000xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %b = cuda.block_id x
  %t = cuda.thread_id x
  %c128 = arith.constant 128 : index
  %n = arith.constant 4000 : index
  %one = arith.constant 1 : index
  %first = arith.muli %b, %c128 : index
  %i = arith.addi %first, %t : index
  %inside = arith.cmpi slt, %i, %n : index
  scf.if %inside {
    %next = arith.addi %i, %one : index
    func.call @relu_block(%i, %next, %x, %y) : (index, index, memref<4000xf32>, memref<4000xf32>) -> ()
  }
  func.return
}

// Four elements that lie together are one access.
// CHECK: .entry copy(
// CHECK: ld.global.nc.v4.b32
// CHECK: st.global.v4.b32
func.func @copy(%x: memref<128x4xf32>, %y: memref<128x4xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %t = cuda.thread_id x
  %zero = arith.constant 0 : index
  %v = tile.load %x[%t, %zero] dims [1] : memref<128x4xf32>, vector<4xf32>
  tile.store %v, %y[%t, %zero] dims [1] : vector<4xf32>, memref<128x4xf32>
  func.return
}

// Shared memory: no address but that of the variable; a load behind a barrier is a load.
// CHECK: .entry reverse(
// CHECK: .shared .align 128 .b8 __reverse_shared0[512]
// CHECK: st.shared.b32
// CHECK: bar.sync
// CHECK: ld.shared.b32
func.func @reverse(%x: memref<128xf32>, %y: memref<128xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %s = cuda.shared : memref<128xf32, 3 : i32>
  %t = cuda.thread_id x
  %last = arith.constant 127 : index
  %other = arith.subi %last, %t : index
  %a = memref.load %x[%t] : memref<128xf32>
  memref.store %a, %s[%t] : memref<128xf32, 3 : i32>
  cuda.barrier
  %b = memref.load %s[%other] : memref<128xf32, 3 : i32>
  memref.store %b, %y[%t] : memref<128xf32>
  func.return
}

// More than 48 KiB of shared memory are asked for at the launch.
// CHECK: .entry large(
// CHECK: st.shared.b32
// CHECK: st.shared.b32 {{.*}}+32768
func.func @large(%x: memref<8192xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %s = cuda.shared : memref<8192xf32, 3 : i32>
  %r = cuda.shared : memref<8192xf32, 3 : i32>
  %t = cuda.thread_id x
  %a = memref.load %x[%t] : memref<8192xf32>
  memref.store %a, %s[%t] : memref<8192xf32, 3 : i32>
  memref.store %a, %r[%t] : memref<8192xf32, 3 : i32>
  cuda.barrier
  %last = arith.constant 127 : index
  %other = arith.subi %last, %t : index
  %b = memref.load %s[%other] : memref<8192xf32, 3 : i32>
  %c = memref.load %r[%other] : memref<8192xf32, 3 : i32>
  %d = arith.addf %b, %c : f32
  memref.store %d, %x[%t] : memref<8192xf32>
  func.return
}

// Shuffles, and asynchronous copies with and without zeros behind what there is.
// CHECK: .entry warp(
// CHECK: cp.async.cg.shared.global [{{.*}}], [{{.*}}], 16;
// CHECK: cp.async.ca.shared.global [{{.*}}], [{{.*}}], 8, {{.*}};
// CHECK: cp.async.commit_group
// CHECK: cp.async.wait_group
// CHECK: shfl.sync.bfly.b32
// CHECK: shfl.sync.up.b32 {{.*}}, 2, 0, -1
// CHECK: shfl.sync.down.b32 {{.*}}, 2, 31, -1
// CHECK: shfl.sync.idx.b32
func.func @warp(%x: memref<32x4xf32>, %y: memref<32x4xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<32x4xf32, 3 : i32>
  %l = cuda.lane_id
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  cuda.async_copy %s[%l, %zero], %x[%l, %zero] bytes 16 : memref<32x4xf32, 3 : i32>, memref<32x4xf32>
  cuda.async_copy %s[%l, %two], %x[%l, %two] bytes 8 size %l : memref<32x4xf32, 3 : i32>, memref<32x4xf32>
  cuda.async_commit
  cuda.async_wait 0
  %v = memref.load %s[%l, %two] : memref<32x4xf32, 3 : i32>
  %a = cuda.shuffle xor %v, %two : f32
  %b = cuda.shuffle up %a, %two : f32
  %c = cuda.shuffle down %b, %two : f32
  %d = cuda.shuffle idx %c, %zero : f32
  memref.store %d, %y[%l, %zero] : memref<32x4xf32>
  func.return
}

// Tensor cores.
// CHECK: .entry mma(
// CHECK: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK: ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK: st.global.v2.b32
func.func @mma(%x: memref<16x16xf16>, %y: memref<16x8xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<16x16xf16, 3 : i32>
  %l = cuda.lane_id
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %four = arith.constant 4 : index
  %eight = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %row = arith.remui %l, %c16 : index
  %half = arith.divui %l, %c16 : index
  %col = arith.muli %half, %eight : index
  cuda.async_copy %s[%row, %col], %x[%row, %col] bytes 16 : memref<16x16xf16, 3 : i32>, memref<16x16xf16>
  cuda.async_commit
  cuda.async_wait 0
  cuda.barrier
  %a = cuda.ldmatrix %s[%row, %col] tiles 4 : memref<16x16xf16, 3 : i32>, vector<4x2xf16>
  %b = cuda.ldmatrix %s[%row, %zero] tiles 2 trans : memref<16x16xf16, 3 : i32>, vector<2x2xf16>
  %z = arith.constant dense<0.0> : vector<2x2xf32>
  %d = cuda.mma %a, %b, %z : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
  %r = arith.divui %l, %four : index
  %q = arith.remui %l, %four : index
  %c = arith.muli %q, %two : index
  tile.store %d, %y[%r, %c] dims [0, 1] steps [8, 1] : vector<2x2xf32>, memref<16x8xf32>
  func.return
}
