"""Networks whose dims calls decide, made at random: chains, branches, joins, views, results in place, workspaces.

A network is made once, with sizes of symbols; its text is written for all calls, or for one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from lightnet.ir.types import ParamAttr, TensorSpec, tensor_type
from lightnet.runtime.dims import Dim, Size, at, dim_max, dim_min, least, symbol
from lightnet.runtime.dtypes import BY_NAME

F32 = BY_NAME["f32"]
#: Few values, to be tried all; and ranges as models have them.
SMALL = [symbol("a", 1, 4), symbol("b", 1, 3), symbol("h", 16, 64, 16)]
LARGE = [symbol("batch", 1, 32), symbol("length", 1, 512), symbol("height", 32, 1024, 32)]


@dataclass
class Line:
    """An op of the network: a kernel, or an input or a param."""

    name: str
    op: str
    operands: tuple[str, ...]
    dims: tuple[Size, ...]
    workspace: Size = 0


@dataclass
class OpenNetwork:
    lines: list[Line] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @property
    def symbols(self) -> list:
        found = {
            s for line in self.lines for d in (*line.dims, line.workspace) if isinstance(d, Dim) for s in d.symbols
        }
        return sorted(found, key=lambda s: s.name)

    def calls(self) -> Iterator[dict[str, int]]:
        """All values of its symbols."""
        names = [s.name for s in self.symbols]
        for values in product(*(range(s.low, s.high + 1, s.multiple) for s in self.symbols)):
            yield dict(zip(names, values))

    def some_calls(self, rng: random.Random, count: int) -> Iterator[dict[str, int]]:
        """The smallest values, the largest, and others by orders of magnitude."""
        yield {s.name: s.low for s in self.symbols}
        yield {s.name: s.high for s in self.symbols}
        for _ in range(count - 2):
            yield {s.name: max(s.low, int(s.high ** rng.random()) // s.multiple * s.multiple) for s in self.symbols}

    def text(self, call: Mapping[str, int] | None = None) -> str:
        """The module of level 2; its dims are numbers where the values of symbols are given."""

        def number(size: Size) -> Size:
            return size if call is None else at(size, call)

        types = {n.name: tensor_type(TensorSpec(tuple(map(number, n.dims)), F32)) for n in self.lines}
        body = []
        for line in self.lines:
            type = types[line.name]
            if not line.operands:
                body.append(f'%{line.name} = ln.{line.op} : {type} as "{line.name}"("{line.name}")')
                continue
            work = number(line.workspace)
            attr = ParamAttr(work) if isinstance(work, Dim) else f"{work} : i64"
            choices = "" if work == 0 else f"choices {{ln.workspace_size = {attr}}} "
            arguments = ", ".join(f"%a{k} = %{v}" for k, v in enumerate(line.operands))
            op, _, parameters = line.op.partition(" ")
            values = ", ".join(f"%a{k}" for k in range(len(line.operands)))
            body.append(f'%{line.name} = cpu.kernel({arguments}) {choices}{{ %r = ln.{op} {values} {parameters} : {type}'
                        f'\nln.yield %r }} : {type} as ("{line.name}")')  # fmt: skip
        returned = ", ".join(str(types[v]) for v in self.outputs)
        names = ", ".join(f"%{v}" for v in self.outputs)
        lines = "\n".join(body)
        return f"func.func @main() -> ({returned}) {{\n{lines}\nfunc.return {names} : {returned}\n}}"


class _Maker:
    def __init__(self, seed: int, symbols: list, ops: int, jumps: bool):
        self.rng, self.jumps = random.Random(seed), jumps
        self.network = OpenNetwork()
        self.shapes: dict[str, tuple[Size, ...]] = {}
        self.ops = ops
        few = self.rng.sample(symbols, self.rng.choice([1, 1, 2, 2, 3]))
        self.sizes: list[Size] = [*few, 2 * few[0] + 1, few[0] * few[-1], -(-few[-1] // 2), self.rng.choice([3, 17])]
        self.widths: list[Size] = [*self.rng.sample([1, 3, 5, 8, 16, 24, 40], 3), few[-1]]

    def add(self, op: str, operands: tuple[str, ...], dims: tuple[Size, ...]) -> str:
        name = f"v{len(self.network.lines)}"
        sizes = self.jumping() if self.jumps else [0] * 9 + [1000, 20 * self.sizes[0] + 4]
        workspace = self.rng.choice(sizes) if operands else 0
        self.network.lines.append(Line(name, op, operands, dims, workspace))
        self.shapes[name] = dims
        return name

    def jumping(self) -> list[Size]:
        """Sizes that kernels have which are picked by the call: minima, steps, nothing in some calls, and products."""
        n, m = self.sizes[0], self.sizes[-3]
        used = dim_min(m // 2, 1)
        return [0, 300 * dim_min(n, 3), 700 * dim_min(n * m, 5) + 20, 1000 * used, 400 * used * dim_min(n, 2),
                512 * ((n + 1) // 2), used * ((m + 2) // 3) * 260 + 64, 100 * dim_max(m - 2, 0)]  # fmt: skip

    def make(self) -> OpenNetwork:
        for _ in range(self.rng.choice([1, 1, 2])):
            self.add("input", (), (self.rng.choice(self.sizes[:2]), self.rng.choice(self.widths)))
        if self.rng.random() < 0.3:
            self.add("param", (), (4, 5))
        while sum(bool(line.operands) for line in self.network.lines) < self.ops:
            self.step()
        read = {v for line in self.network.lines for v in line.operands}
        made = [line.name for line in self.network.lines if line.operands]
        self.network.outputs = [v for v in made if v not in read] or made[-1:]
        return self.network

    def step(self) -> None:
        rng, names = self.rng, list(self.shapes)
        src = rng.choice(names[-3:] if rng.random() < 0.8 else names)
        rows, columns = self.shapes[src]
        match rng.choice(["unary", "unary", "sum", "sum", "rows", "columns", "slice", "turn", "grow"]):
            case "unary":
                self.add(rng.choice(["relu", "tanh", "forward"]), (src,), (rows, columns))
            case "sum":
                alike = [v for v in names if self.shapes[v] == (rows, columns) and v != src]
                if alike:
                    self.add('elew {elew_op = "TL_SUM"}', (src, rng.choice(alike)), (rows, columns))
            case "rows":
                alike = [v for v in names if self.shapes[v][1] == columns]
                parts = (src, *rng.choices(alike, k=rng.choice([1, 1, 2])))
                self.add("concat {axis = 0}", parts, (sum(self.shapes[v][0] for v in parts), columns))
            case "columns":
                self.add("concat {axis = 1}", (src, src), (rows, 2 * columns))
            case "slice" if least(rows) > 2:
                start = rng.randrange(least(rows) - 1)
                count = rng.randrange(1, least(rows) - start)
                self.add(f"slice {{axis = 0, start = {start}, len = {count}}}", (src,), (count, columns))
            case "turn":
                self.add("transpose {axes = [1, 0]}", (src,), (columns, rows))
            case "grow":
                if len(self.network.lines) > 3 and least(rows) >= 1:
                    self.add("slice {axis = 1, start = 0, len = 1}", (src,), (rows, 1))


def open_network(seed: int, symbols: list = SMALL, ops: int = 10, jumps: bool = False) -> OpenNetwork:
    """A network of some `ops` kernels, whose workspaces are of sizes that jump, if asked for."""
    return _Maker(seed, symbols, ops, jumps).make()
