// The launch list of several threads. A barrier stands where a thread needs what another one wrote, and nowhere else.
// RUN: ln-opt --emit=llvm --cpu=x86-64-v4 %s | filecheck %s

func.func @fill(%lo: index, %hi: index, %o: memref<8xf32>) {
  %c1 = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  scf.for %i = %lo to %hi step %c1 {
    memref.store %x, %o[%i] : memref<8xf32>
  }
  func.return
}

func.func @copy(%lo: index, %hi: index, %x: memref<8xf32>, %o: memref<8xf32>) {
  %c1 = arith.constant 1 : index
  scf.for %i = %lo to %hi step %c1 {
    %v = memref.load %x[%i] : memref<8xf32>
    memref.store %v, %o[%i] : memref<8xf32>
  }
  func.return
}

func.func @by_scratch(%lo: index, %hi: index, %o: memref<8xf32>, %s: memref<8xf32>) {
  %c1 = arith.constant 1 : index
  scf.for %i = %lo to %hi step %c1 {
    %v = memref.load %s[%i] : memref<8xf32>
    memref.store %v, %s[%i] : memref<8xf32>
    memref.store %v, %o[%i] : memref<8xf32>
  }
  func.return
}

// CHECK-LABEL: define internal void @main.0
func.func @main() {
  // Each thread runs its blocks of both: they have nothing in common.
  // CHECK: call { i64, i64 } @part(i64 8, i64 2, i64 %thread, i64 %threads)
  // CHECK: call void @k{{.*}}(i64 %lo0, i64 %hi0, ptr %arena)
  // CHECK-NOT: @wait
  // CHECK: call { i64, i64 } @part(i64 8, i64 3,
  // CHECK: call void @k{{.*}}(i64 %lo1, i64 %hi1, ptr %
  tile.launch @fill grid 8 threads 2 [arena+0]
  tile.launch @fill grid 8 threads 3 [arena+32]

  // What reads the one needs all of it; what follows on the same thread need not wait.
  // CHECK: call void @wait(ptr %barrier)
  // CHECK: br i1 %is_first
  // CHECK: call void @k{{.*}}(i64 0, i64 8, ptr %arena, ptr
  // CHECK-NOT: @wait
  // CHECK-NOT: br i1
  // CHECK: call void @k{{.*}}(i64 0, i64 8, ptr
  tile.launch @copy grid 8 [arena+0, arena+64]
  tile.launch @copy grid 8 [arena+64, arena+96]

  // Scratch is a thread's own, so that a second launch may use the same; the results are apart. Only that of thread 0 stands in the arena: the
  // second launch's results lie where other threads' scratch of the first would.
  // CHECK: %[[MINE:.*]] = select i1 %is_first, ptr %{{.*}}, ptr %scratch
  // CHECK: call void @k{{.*}}, ptr %[[MINE]])
  // CHECK-NOT: @wait
  // CHECK: select i1 %is_first, ptr %{{.*}}, ptr %scratch
  tile.launch @by_scratch grid 8 threads 2 scratch 64 [arena+128, arena+1024]
  tile.launch @by_scratch grid 8 threads 9 scratch 64 [arena+1088, arena+1024]

  // The host reads what several threads wrote, and what it reads is written again only when it has.
  // CHECK: call void @wait(ptr %barrier)
  // CHECK: call void %host(i64 0, ptr %args)
  // CHECK: call void @wait(ptr %barrier)
  // CHECK: @part(i64 8, i64 2
  tile.host "print" [arena+128] {msg = "x", dims = [8], dtype = "f32"}
  tile.launch @fill grid 8 threads 2 [arena+128]

  // A grid of one block is not split.
  // CHECK-NOT: @part
  // CHECK: ret void
  tile.launch @fill grid 1 threads 4 [arena+512]
  func.return
}
