"""The launch list `@main` as LLVM IR: what each thread of a run does.

    void ln_body(ptr frame, i64 thread, i64 threads, ptr barrier, ptr scratch)
    void ln_main(ptr frame)                               = ln_body(frame, 0, 1, null, null)

The frame has the addresses of the memory spaces and of the function for host calls (`runtime.program.FRAME`), and
behind these the values of what a call decides (`ir.memory.call_symbols`).

Every thread runs `ln_body`, its part of each grid, and waits where another thread's bytes are needed (`barriers.py`). A
launch on n threads gives thread t the blocks [grid * t / n, grid * (t + 1) / n); n is no more than the run has. The
first word of `barrier` is the function that waits (`pool.py`); a thread that is alone has none. Scratch of thread 0
stands in the arena, where a launch says; any other has memory of its own for it, of as many bytes as the largest of
them (`thread_scratch_of`): nothing here depends on how many threads there may be. Imports xDSL and the launch dialect,
no LLVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from lightnet.backends.llvm.sizes import SizeTexts
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.dialects.accesses import LineAccesses
from lightnet.dialects.dependences import Touch, barriers
from lightnet.dialects.launch import CopyOp, HostOp, LaunchOp, Line, kernel_symbols, kernels, lines_of
from lightnet.ir.memory import call_symbols, memory_of
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.dims import Symbol, greatest
from lightnet.runtime.program import BODY_ENTRY, FRAME, MAIN_ENTRY, ports_of

#: Launches in one function of the launch list: code generation is superlinear in the size of a block.
CHUNK = 256

_PARAMETERS = "ptr %frame, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch"

# Waiting for the others; and a thread's part of a grid: n = min(most, threads), and nothing for thread n and those
# behind it.
_HELPERS = """\
define internal void @wait(ptr %barrier) #0 {
  %alone = icmp eq ptr %barrier, null
  br i1 %alone, label %done, label %meet
meet:
  %function = load ptr, ptr %barrier, align 8
  call void %function(ptr %barrier)
  br label %done
done:
  ret void
}
define internal { i64, i64 } @part(i64 %grid, i64 %most, i64 %thread, i64 %threads) #0 {
  %fewer = icmp ult i64 %threads, %most
  %n = select i1 %fewer, i64 %threads, i64 %most
  %alone = icmp ule i64 %n, 1
  br i1 %alone, label %whole, label %split
whole:
  %first = icmp eq i64 %thread, 0
  %all = select i1 %first, i64 %grid, i64 0
  %w = insertvalue { i64, i64 } { i64 0, i64 poison }, i64 %all, 1
  ret { i64, i64 } %w
split:
  %helps = icmp ult i64 %thread, %n
  br i1 %helps, label %share, label %none
share:
  %a = mul i64 %grid, %thread
  %b = add i64 %a, %grid
  %lo = udiv i64 %a, %n
  %hi = udiv i64 %b, %n
  %r = insertvalue { i64, i64 } poison, i64 %lo, 0
  %s = insertvalue { i64, i64 } %r, i64 %hi, 1
  ret { i64, i64 } %s
none:
  ret { i64, i64 } zeroinitializer
}"""


def emit_main(module: ModuleOp, symbols: dict[str, str]) -> str:
    """The launch list of a module, in functions of `CHUNK` lines each; `symbols` are those of its kernels."""
    lines = lines_of(module)
    waits = barriers(touches(module))
    taken = {name: kernel_symbols(function) for name, function in kernels(module).items()}
    out = _List(symbols, (*FRAME, *ports_of(memory_of(module))), taken, call_symbols(module))
    chunks = [
        out.chunk(number, lines[start : start + CHUNK], waits[start : start + CHUNK])
        for number, start in enumerate(range(0, len(lines), CHUNK))
    ]
    calls = "".join(f"  call void @main.{c}({_PARAMETERS})\n" for c in range(len(chunks)))
    body = f"define void @{BODY_ENTRY}({_PARAMETERS}) #0 {{\n{calls}  ret void\n}}"
    alone = f"call void @{BODY_ENTRY}(ptr %frame, i64 0, i64 1, ptr null, ptr null)"
    entry = f"define void @{MAIN_ENTRY}(ptr %frame) #0 {{\n  {alone}\n  ret void\n}}"
    helpers = [_HELPERS] if any(is_split(op) for op in lines) else []
    return "\n".join([*out.declared.values(), *helpers, *chunks, body, entry, "attributes #0 = { nounwind }\n"])


def is_split(op: Operation) -> TypeGuard[LaunchOp]:
    """Return whether a line runs on several threads."""
    return isinstance(op, LaunchOp) and op.most_threads > 1


def thread_scratch_of(lines: Sequence[Operation]) -> int:
    """Bytes of scratch that every thread but the first needs for a launch list; 0 where none of its shared launches has
    any."""
    return max((greatest(op.scratch_bytes) for op in lines if is_split(op)), default=0)


def touches(module: ModuleOp) -> list[list[Touch]]:
    """The bytes that each line of `@main` touches, for `barriers`: of scratch that of thread 0, as what others have
    stands elsewhere.
    """
    accesses = LineAccesses(module)
    found: list[list[Touch]] = []
    for op in lines_of(module):
        line: list[Touch] = []
        for a in accesses.of(op):
            if not (a.reads or a.writes):
                continue
            if not is_split(op):
                line.append(Touch(a.space, a.begin, a.end, a.writes, 0))
            elif a.is_scratch:
                line.append(Touch(a.space, a.begin, a.end, True, 0))
            else:
                line.append(Touch(a.space, a.begin, a.end, a.writes))
        found.append(line)
    return found


@dataclass
class _List:
    """The launch list under construction; `frame` names the words of the frame, `decided` the symbols behind these, and
    `taken` has the names of those that each kernel takes."""

    symbols: dict[str, str]
    frame: Sequence[str]
    taken: Mapping[str, Sequence[str]]
    decided: Sequence[Symbol]
    declared: dict[str, str] = field(default_factory=dict)
    host_calls: int = 0

    def chunk(self, number: int, lines: Sequence[Line], waits: Sequence[bool]) -> str:
        """One function of consecutive lines. Neighbours that run on thread 0 share a branch."""
        text = [f"define internal void @main.{number}({_PARAMETERS}) #0 {{"]
        self.sizes = SizeTexts(self.decided, len(self.frame), self.declared)
        used = {p.space.data for op in lines for p in op.args}
        if any(isinstance(op, HostOp) for op in lines):
            used.add("host")
        for k, word in enumerate(self.frame):
            if word in used:
                text += [
                    f"  %w.{word} = getelementptr ptr, ptr %frame, i64 {k}",
                    f"  %{word} = load ptr, ptr %w.{word}, align 8",
                ]
        head = len(text)
        most = max((len(op.args) for op in lines if isinstance(op, HostOp)), default=0)
        if most:
            text.append(f"  %args = alloca [{most} x ptr], align 8")
        text.append("  %is_first = icmp eq i64 %thread, 0")
        inside = None  # the line whose branch for thread 0 is open
        for n, (op, wait) in enumerate(zip(lines, waits)):
            if inside is not None and (wait or is_split(op)):
                text += [f"  br label %end{inside}", f"end{inside}:"]
                inside = None
            if wait:
                text.append("  call void @wait(ptr %barrier)")
            if is_split(op):
                self.split(text, op, n)
                continue
            if inside is None:
                text += [f"  br i1 %is_first, label %do{n}, label %end{n}", f"do{n}:"]
                inside = n
            self.alone(text, op, n)
        if inside is not None:
            text += [f"  br label %end{inside}", f"end{inside}:"]
        text[head:head] = self.sizes.lines
        return "\n".join([*text, "  ret void", "}"])

    def split(self, text: list[str], op: LaunchOp, n: int) -> None:
        """A launch of which each thread runs its part."""
        grid = self.sizes.of(op.blocks)
        text += [
            f"  %part{n} = call {{ i64, i64 }} @part(i64 {grid}, i64 {op.most_threads}, i64 %thread, i64 %threads)",
            f"  %lo{n} = extractvalue {{ i64, i64 }} %part{n}, 0",
            f"  %hi{n} = extractvalue {{ i64, i64 }} %part{n}, 1",
            f"  %any{n} = icmp ult i64 %lo{n}, %hi{n}",
            f"  br i1 %any{n}, label %do{n}, label %end{n}",
            f"do{n}:",
        ]
        pointers = [self.place(text, p, f"%p{n}.{k}") for k, p in enumerate(op.args)]
        if op.scratch is not None:
            text.append(f"  %scratch{n} = select i1 %is_first, ptr {pointers[-1]}, ptr %scratch")
            pointers[-1] = f"%scratch{n}"
        self.call(text, op, f"i64 %lo{n}, i64 %hi{n}", pointers)
        text += [f"  br label %end{n}", f"end{n}:"]

    def alone(self, text: list[str], op: Line, n: int) -> None:
        """A line of thread 0."""
        pointers = [self.place(text, p, f"%p{n}.{k}") for k, p in enumerate(op.args)]
        if isinstance(op, CopyOp):
            self.declared["memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
            text.append(
                f"  call void @llvm.memcpy.p0.p0.i64(ptr {pointers[1]}, ptr {pointers[0]}, i64 {op.size}, i1 false)"
            )
            return
        if isinstance(op, LaunchOp):
            self.call(text, op, f"i64 0, i64 {self.sizes.of(op.blocks)}", pointers)
            return
        for k, pointer in enumerate(pointers):
            slot = "%args"
            if k:
                slot = f"%a{n}.{k}"
                text.append(f"  {slot} = getelementptr ptr, ptr %args, i64 {k}")
            text.append(f"  store ptr {pointer}, ptr {slot}, align 8")
        text.append(f"  call void %host(i64 {self.host_calls}, ptr {'%args' if pointers else 'null'})")
        self.host_calls += 1

    def call(self, text: list[str], op: LaunchOp, blocks: str, pointers: list[str]) -> None:
        symbol = self.symbols[op.callee.string_value()]
        values = list(map(self.sizes.symbol, self.taken[op.callee.string_value()]))
        types = ", i64" * len(values) + ", ptr" * len(pointers)
        self.declared[symbol] = f"declare void @{symbol}(i64, i64{types}) #0"
        args = "".join([*(f", i64 {v}" for v in values), *(f", ptr {p}" for p in pointers)])
        text.append(f"  call void @{symbol}({blocks}{args})")

    def place(self, text: list[str], at: PlaceAttr, name: str) -> str:
        """The pointer to a place, called `name` if it needs one."""
        space, offset = at.space.data, at.offset.data
        if space not in self.frame or space == "host":
            there = ", ".join(s for s in self.frame if s != "host")
            raise LightNetError(f"the CPU has no memory space '{space}'; there are: {there}")
        if offset == 0:
            return f"%{space}"
        text.append(f"  {name} = getelementptr i8, ptr %{space}, i64 {self.sizes.of(offset)}")
        return name
