; The pool of threads, which pool.py explains: what is the same for all processors and systems. Words between dollar
; signs are numbers that pool.py puts in.

; %Word: what somebody waits for, and how many sleep until it changes; alone in two cache lines, as prefetchers fetch
; pairs. %Barrier: its wait function (the first word: networks call it through there), threads, spins; arrivals;
; generation.
%Word = type { i32, i32, [120 x i8] }
%Barrier = type { ptr, i32, i32, [112 x i8], i32, [124 x i8], %Word }
%Job = type { ptr, ptr, i64, i64, ptr, i64 }

; The lock, whose workers these are, how many there are, how many processors there are; the workers' scratch; the job in
; hand.
@lock = internal global i32 0, align 128
@owner = internal global i32 0, align 128
@workers = internal global i64 0, align 8
@processors = internal global i64 0, align 8
@memory = internal global ptr null, align 8
@memory_bytes = internal global i64 0, align 8
@job = internal global %Job zeroinitializer, align 128
@barrier = internal global %Barrier zeroinitializer, align 128
@gate = internal global i64 0, align 128
@begin = internal global %Word zeroinitializer, align 128
@patience = internal global i64 $FIRST$, align 128
@words = internal global [$MAX$ x %Word] zeroinitializer, align 128
declare i32 @getpid()
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.ctpop.i64(i64)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

; `await` returns when a word is no longer `old`; `post` changes it and wakes who sleeps. Of the sleeper's (count, then
; look) and the poster's (change, then look at the count), which are sequentially consistent, at least one sees the
; other.
define internal void @await(ptr %w, i32 %old, i32 %spins) {
entry:
  br label %spin
spin:
  %i = phi i32 [ 0, %entry ], [ %i1, %again ]
  %v = load atomic i32, ptr %w acquire, align 4
  %changed = icmp ne i32 %v, %old
  br i1 %changed, label %done, label %again
again:
  call void @pause()
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %spins
  br i1 %more, label %spin, label %yield
yield:
  %j = phi i32 [ 0, %again ], [ %j1, %next ]
  %r = call i32 @sched_yield()
  %v2 = load atomic i32, ptr %w acquire, align 4
  %changed2 = icmp ne i32 %v2, %old
  br i1 %changed2, label %done, label %next
next:
  %j1 = add i32 %j, 1
  %more2 = icmp ult i32 %j1, $YIELDS$
  br i1 %more2, label %yield, label %tired
tired:
  %sleepers = getelementptr %Word, ptr %w, i64 0, i32 1
  %c = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %look
look:
  %v3 = load atomic i32, ptr %w seq_cst, align 4
  %changed3 = icmp ne i32 %v3, %old
  br i1 %changed3, label %awake, label %rest
rest:
  call void @sleep(ptr %w, i32 %old)
  br label %look
awake:
  %d = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %done
done:
  ret void
}
define internal void @post(ptr %w) {
  %before = atomicrmw add ptr %w, i32 1 seq_cst
  %sleepers = getelementptr %Word, ptr %w, i64 0, i32 1
  %n = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %n, 0
  br i1 %some, label %up, label %done
up:
  call void @wake(ptr %w)
  br label %done
done:
  ret void
}

define internal i1 @arrive() {
  %all = load i32, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 1), align 8
  %before = atomicrmw add ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 4), i32 1 acq_rel
  %here = add i32 %before, 1
  %last = icmp eq i32 %here, %all
  br i1 %last, label %open, label %done
open:
  store atomic i32 0, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 4) monotonic, align 4
  call void @post(ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 6))
  br label %done
done:
  ret i1 %last
}
define internal void @meet(ptr %ignored) {
  %old = load atomic i32, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 6) acquire, align 4
  %last = call i1 @arrive()
  br i1 %last, label %done, label %wait
wait:
  %spins = load atomic i32, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 2) monotonic, align 4
  call void @await(ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 6), i32 %old, i32 %spins)
  br label %done
done:
  ret void
}

; Worker t: waits for its word to change, and comes to the gate: [number of the run: 32 bits, threads at most: 15,
; closed: 1, who came: 16]. One that is let in waits for the sign, does its part of the job, says so, and looks at
; nothing of the job after that. One that comes late may find the gate of the next run, which is as good: who is in
; stands in the gate alone, whoever was called.
define internal ptr @worker(ptr %number) {
entry:
  %t = ptrtoint ptr %number to i64
  %word = getelementptr [$MAX$ x %Word], ptr @words, i64 0, i64 %t
  br label %loop
loop:
  %seen = phi i32 [ 0, %entry ], [ %now, %loop ], [ %now, %join ]
  %spins = load atomic i32, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 2) monotonic, align 4
  call void @await(ptr %word, i32 %seen, i32 %spins)
  %now = load atomic i32, ptr %word acquire, align 4
  %g = atomicrmw add ptr @gate, i64 1 acq_rel
  %came = and i64 %g, 65535
  %k = add i64 %came, 1
  %limits = lshr i64 %g, 17
  %limit = and i64 %limits, 32767
  %closing = and i64 %g, 65536
  %open = icmp eq i64 %closing, 0
  %room = icmp ult i64 %k, %limit
  %in = and i1 %open, %room
  br i1 %in, label %join, label %loop
join:
  %number32 = lshr i64 %g, 32
  %run = trunc i64 %number32 to i32
  %earlier = sub i32 %run, 1
  call void @await(ptr @begin, i32 %earlier, i32 %spins)
  %job = load %Job, ptr @job, align 8
  %body = extractvalue %Job %job, 0
  %frame = extractvalue %Job %job, 1
  %threads = extractvalue %Job %job, 2
  %mode = extractvalue %Job %job, 3
  %memory = extractvalue %Job %job, 4
  %size = extractvalue %Job %job, 5
  %skipped = mul i64 %came, %size
  %scratch = getelementptr i8, ptr %memory, i64 %skipped
  call void @set_mode(i64 %mode)
  call void %body(ptr %frame, i64 %k, i64 %threads, ptr @barrier, ptr %scratch)
  %last = call i1 @arrive()
  br label %loop
}

; `prepare`, under the lock: make this process's pool if it has none, and as many workers as are wanted and missing; how
; many threads there are then (fewer where the system gives no more). Words and workers go together: both are new in a
; new process.
define internal i64 @prepare(i32 %pid, i64 %threads) {
entry:
  %most = call i64 @llvm.umin.i64(i64 %threads, i64 $MAX$)
  %owner = load i32, ptr @owner, align 4
  %ours = icmp eq i32 %owner, %pid
  br i1 %ours, label %count, label %new
new:
  call void @llvm.memset.p0.i64(ptr @words, i8 0,
      i64 ptrtoint (ptr getelementptr ([$MAX$ x %Word], ptr null, i64 1) to i64), i1 false)
  call void @llvm.memset.p0.i64(ptr @barrier, i8 0,
      i64 ptrtoint (ptr getelementptr (%Barrier, ptr null, i64 1) to i64), i1 false)
  call void @llvm.memset.p0.i64(ptr @begin, i8 0,
      i64 ptrtoint (ptr getelementptr (%Word, ptr null, i64 1) to i64), i1 false)
  store atomic i64 65536, ptr @gate release, align 8
  store ptr @meet, ptr @barrier, align 8
  call void @prepare_sleep()
  store i64 0, ptr @workers, align 8
  store i32 %pid, ptr @owner, align 4
  br label %count
count:
  %have = load i64, ptr @workers, align 8
  %are = add i64 %have, 1
  %enough = icmp uge i64 %are, %most
  br i1 %enough, label %done, label %grow
grow:
  %grown = call i64 @grow(i64 %have, i64 %most)
  store i64 %grown, ptr @workers, align 8
  %are2 = add i64 %grown, 1
  br label %done
done:
  %there = phi i64 [ %are, %count ], [ %are2, %grow ]
  %n = call i64 @llvm.umin.i64(i64 %there, i64 %most)
  ret i64 %n
}
define internal i64 @grow(i64 %have, i64 %most) {
entry:
  %attributes = alloca [128 x i8], align 16
  %handle = alloca [16 x i8], align 16
  %every = alloca [128 x i8], align 16
  %before = alloca [128 x i8], align 16
  %f = call i32 @sigfillset(ptr %every)
  %b = call i32 @pthread_sigmask(i32 $BLOCK$, ptr %every, ptr %before)
  %a = call i32 @pthread_attr_init(ptr %attributes)
  %s = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK$)
  %d = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 $DETACHED$)
  br label %next
next:
  %n = phi i64 [ %have, %entry ], [ %t, %made ]
  %t = add i64 %n, 1
  %more = icmp ult i64 %t, %most
  br i1 %more, label %make, label %done
make:
  %number = inttoptr i64 %t to ptr
  %r = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @worker, ptr %number)
  %failed = icmp ne i32 %r, 0
  br i1 %failed, label %done, label %made
made:
  br label %next
done:
  %e = call i32 @pthread_attr_destroy(ptr %attributes)
  %m = call i32 @pthread_sigmask(i32 $SETMASK$, ptr %before, ptr null)
  ret i64 %n
}

; `room`, under the lock: scratch for the workers of a run on n threads; n, or 1 where there is none to be had. A fork
; may come at any place: what the child finds is either memory of its own, or none.
define internal i64 @room(i64 %n, i64 %size) {
entry:
  %made = alloca ptr, align 8
  %others = sub i64 %n, 1
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %others, i64 %size)
  %need = extractvalue { i64, i1 } %product, 0
  %absurd = extractvalue { i64, i1 } %product, 1
  br i1 %absurd, label %none, label %compare
compare:
  %have = load i64, ptr @memory_bytes, align 8
  %enough = icmp ule i64 %need, %have
  br i1 %enough, label %done, label %more
more:
  %old = load ptr, ptr @memory, align 8
  store atomic i64 0, ptr @memory_bytes seq_cst, align 8
  store atomic ptr null, ptr @memory seq_cst, align 8
  call void @free(ptr %old)
  %r = call i32 @posix_memalign(ptr %made, i64 $PAIR$, i64 %need)
  %failed = icmp ne i32 %r, 0
  br i1 %failed, label %none, label %keep
keep:
  %new = load ptr, ptr %made, align 8
  store atomic ptr %new, ptr @memory seq_cst, align 8
  store atomic i64 %need, ptr @memory_bytes seq_cst, align 8
  br label %done
done:
  ret i64 %n
none:
  ret i64 1
}

define internal void @remember(i64 %since) {
  %now = call i64 @cycles()
  %took = sub i64 %now, %since
  %eighth = lshr i64 %took, 3
  %least = call i64 @llvm.umax.i64(i64 %eighth, i64 $LEAST$)
  %most = call i64 @llvm.umin.i64(i64 %least, i64 $MOST$)
  store i64 %most, ptr @patience, align 8
  ret void
}
define void @ln_pool_run(ptr %body, ptr %frame, i64 %threads, i64 %scratch) {
entry:
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %try, label %alone
try:
  %pid = call i32 @getpid()
  %holder = load atomic i32, ptr @lock monotonic, align 4
  %busy = icmp eq i32 %holder, %pid
  br i1 %busy, label %alone, label %take
take:
  %took = cmpxchg ptr @lock, i32 %holder, i32 %pid acquire monotonic
  %got = extractvalue { i32, i1 } %took, 1
  br i1 %got, label %ready, label %alone
ready:
  %there = call i64 @prepare(i32 %pid, i64 %threads)
  %up = add i64 %scratch, $PAIR$
  %less = sub i64 %up, 1
  %size = and i64 %less, -$PAIR$
  %n = call i64 @room(i64 %there, i64 %size)
  %helped = icmp ugt i64 %n, 1
  br i1 %helped, label %hand, label %free
hand:
  %j0 = insertvalue %Job poison, ptr %body, 0
  %j1 = insertvalue %Job %j0, ptr %frame, 1
  %mode = call i64 @mode()
  %begun = load atomic i32, ptr @begin monotonic, align 4
  %often = and i32 %begun, $RECOUNT$
  %due = icmp eq i32 %often, 0
  br i1 %due, label %recount, label %go
recount:
  %found = call i64 @ln_pool_processors()
  store i64 %found, ptr @processors, align 8
  br label %go
go:
  %processors = load i64, ptr @processors, align 8
  %fits = icmp ule i64 %n, %processors
  %spins = select i1 %fits, i32 $SPINS$, i32 $FEW_SPINS$
  store atomic i32 %spins, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 2) monotonic, align 4
  %number = add i32 %begun, 1
  %number64 = zext i32 %number to i64
  %high = shl i64 %number64, 32
  %limit = shl i64 %n, 17
  %open = or i64 %high, %limit
  store atomic i64 %open, ptr @gate seq_cst, align 8
  %t0 = call i64 @cycles()
  br label %start
start:
  %t = phi i64 [ 1, %go ], [ %t1, %start ]
  %word = getelementptr [$MAX$ x %Word], ptr @words, i64 0, i64 %t
  call void @post(ptr %word)
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %n
  br i1 %more, label %start, label %expect
expect:
  %wanted = sub i64 %n, 1
  %patience = load i64, ptr @patience, align 8
  br label %look
look:
  %i = phi i64 [ 0, %expect ], [ %i1, %wait ]
  %g = load atomic i64, ptr @gate monotonic, align 8
  %came = and i64 %g, 65535
  %complete = icmp uge i64 %came, %wanted
  br i1 %complete, label %close, label %wait
wait:
  call void @pause()
  %i1 = add i64 %i, 1
  %t2 = call i64 @cycles()
  %waited = sub i64 %t2, %t0
  %longer = icmp ult i64 %waited, %patience
  %ever = or i1 %longer, $EVER$
  %looks = icmp ult i64 %i1, $LOOKS$
  %on = and i1 %ever, %looks
  br i1 %on, label %look, label %close
close:
  %last = atomicrmw or ptr @gate, i64 65536 acq_rel
  %all = and i64 %last, 65535
  %in = call i64 @llvm.umin.i64(i64 %all, i64 %wanted)
  %m = add i64 %in, 1
  %t3 = call i64 @cycles()
  %together = icmp ne i64 %in, 0
  br i1 %together, label %run, label %nobody
run:
  %j2 = insertvalue %Job %j1, i64 %m, 2
  %j3 = insertvalue %Job %j2, i64 %mode, 3
  %memory = load ptr, ptr @memory, align 8
  %j4 = insertvalue %Job %j3, ptr %memory, 4
  %j5 = insertvalue %Job %j4, i64 %size, 5
  store %Job %j5, ptr @job, align 8
  %m32 = trunc i64 %m to i32
  store i32 %m32, ptr getelementptr (%Barrier, ptr @barrier, i64 0, i32 1), align 8
  call void @post(ptr @begin)
  call void %body(ptr %frame, i64 0, i64 %m, ptr @barrier, ptr null)
  call void @meet(ptr @barrier)
  call void @remember(i64 %t3)
  store atomic i32 0, ptr @lock release, align 4
  ret void
nobody:
  call void %body(ptr %frame, i64 0, i64 1, ptr null, ptr null)
  call void @remember(i64 %t3)
  store atomic i32 0, ptr @lock release, align 4
  ret void
free:
  store atomic i32 0, ptr @lock release, align 4
  br label %alone
alone:
  call void %body(ptr %frame, i64 0, i64 1, ptr null, ptr null)
  ret void
}
