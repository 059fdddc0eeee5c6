"""Random SIMT kernels, as text: integers that threads exchange through shared memory and shuffles, in nested control flow of all kinds."""

from __future__ import annotations

import random

#: Threads of a block, blocks of the grid, and the values that each thread begins with.
THREADS, BLOCKS, INPUTS = 64, 3, 3
SHAPES = ((64, 1, 1), (32, 2, 1), (8, 4, 2))
TYPE = f"memref<{BLOCKS * THREADS}xi32>"
SHARED = f"memref<{THREADS}xi32, 3 : i32>"


class _Kernel:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0
        self.shape = self.random.choice(SHAPES)

    def name(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def emit(self, text: str) -> str:
        """A line that computes a value; its name."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def number(self, value: int) -> str:
        return self.emit(f"arith.constant {value} : index")

    # ---- statements: each adds a value to those that are there -------------------------------------------------------

    def compute(self, values: list[str]) -> None:
        op = self.random.choice(["addi", "subi", "muli", "xori", "maxsi"])
        a, b = self.random.choice(values), self.random.choice(values)
        values.append(self.emit(f"arith.{op} {a}, {b} : i32"))

    def exchange(self, values: list[str]) -> None:
        """What another thread of the block has."""
        self.lines += [f"memref.store {self.random.choice(values)}, %shared[%t] : {SHARED}", "cuda.barrier"]
        far = self.emit(f"arith.addi %t, {self.number(self.random.randrange(THREADS))} : index")
        other = self.emit(f"arith.remui {far}, %threads : index")
        values.append(self.emit(f"memref.load %shared[{other}] : {SHARED}"))
        self.lines.append("cuda.barrier")

    def shuffle(self, values: list[str]) -> None:
        mode = self.random.choice(["xor", "up", "down", "idx"])
        by = self.number(self.random.randrange(32))
        if mode == "idx" and self.random.random() < 0.5:
            own = self.emit(f"arith.index_cast {self.random.choice(values)} : i32 to index")
            by = self.emit(f"arith.andi {own}, {self.number(31)} : index")
        values.append(self.emit(f"cuda.shuffle {mode} {self.random.choice(values)}, {by} : i32"))

    def loop(self, values: list[str], depth: int, meets: str) -> None:
        """A loop with one or two values, which may change places."""
        count = self.random.choice([1, 2])
        results, args = [self.name() for _ in range(count)], [self.name() for _ in range(count)]
        starts = [self.random.choice(values) for _ in range(count)]
        end = self.number(self.random.randrange(4)) if self.random.random() < 0.6 else "%b"
        carried = ", ".join(f"{a} = {s}" for a, s in zip(args, starts))
        types = ", ".join(["i32"] * count)
        self.lines.append(
            f"{', '.join(results)} = scf.for {self.name()} = %zero to {end} step %one iter_args({carried}) -> ({types}) {{"
        )
        inner = [*values, *args]
        self.body(inner, depth - 1, meets)
        given = [self.random.choice([*args, *inner[-3:]]) for _ in range(count)]
        self.lines += [f"scf.yield {', '.join(given)} : {types}", "}"]
        values += results

    def branch(self, values: list[str], depth: int, meets: str) -> None:
        """An if with a result, under a condition that is the same wherever its threads meet."""
        kind = self.random.choice(
            {"block": ["block", "warp", "none"], "warp": ["warp", "none"], "none": ["none"]}[meets]
        )
        what = {"block": "%b", "warp": "%w", "none": "%t"}[kind]
        rest = self.emit(f"arith.remui {what}, {self.number(2)} : index")
        condition = self.emit(f"arith.cmpi eq, {rest}, %zero : index")
        result = self.name()
        self.lines.append(f"{result} = scf.if {condition} -> (i32) {{")
        for last in ("} else {", "}"):
            inner = list(values)
            self.body(inner, depth - 1, kind)
            self.lines += [f"scf.yield {inner[-1]} : i32", last]
        values.append(result)

    def body(self, values: list[str], depth: int, meets: str) -> None:
        """Statements; `meets` says which threads come to all of them together: those of a block, of a warp, or none."""
        simple = {
            "block": [self.compute, self.exchange, self.shuffle],
            "warp": [self.compute, self.shuffle],
            "none": [self.compute],
        }
        for _ in range(self.random.randrange(1, 5)):
            if depth and self.random.random() < 0.4:
                self.random.choice([self.loop, self.branch])(values, depth, meets)
            else:
                self.random.choice(simple[meets])(values)

    def text(self, name: str) -> str:
        x, y, z = self.shape
        head = [f"%shared = cuda.shared : {SHARED}", "%zero = arith.constant 0 : index", "%one = arith.constant 1 : index",
                f"%threads = arith.constant {THREADS} : index", "%b = cuda.block_id x", "%w = cuda.warp_id",
                "%tx = cuda.thread_id x", "%ty = cuda.thread_id y", "%tz = cuda.thread_id z"]  # fmt: skip
        self.lines = head
        row = self.emit(f"arith.muli %tz, {self.number(y)} : index")
        row = self.emit(f"arith.addi {row}, %ty : index")
        row = self.emit(f"arith.muli {row}, {self.number(x)} : index")
        self.lines.append(f"%t = arith.addi {row}, %tx : index")
        block = self.emit("arith.muli %b, %threads : index")
        self.lines.append(f"%i = arith.addi {block}, %t : index")
        values = [self.emit(f"memref.load %x{n}[%i] : {TYPE}") for n in range(INPUTS)]
        for _ in range(2):
            self.body(values, 3, "block")
        total = values[0]
        for value in values[1:]:
            total = self.emit(f"arith.addi {total}, {value} : i32")
        self.lines.append(f"memref.store {total}, %y[%i] : {TYPE}")
        arguments = ", ".join([*(f"%x{n}: {TYPE}" for n in range(INPUTS)), f"%y: {TYPE}"])
        body = "\n".join(f"  {line}" for line in self.lines)
        block = f"array<i32: {x}, {y}, {z}>"
        return f"func.func @{name}({arguments}) attributes {{cuda.block = {block}}} {{\n{body}\n  func.return\n}}\n"


def random_kernel(seed: int, name: str = "k") -> tuple[str, tuple[int, int, int]]:
    """The text of a kernel ``name(x0, x1, x2, y)`` on i32 arrays of `BLOCKS` x `THREADS`, and the shape of its blocks."""
    kernel = _Kernel(seed)
    return kernel.text(name), kernel.shape
