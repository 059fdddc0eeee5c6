"""Bound definitions: index notation with every shape, constant, range and dtype filled in. Plain hashable data.

`notation.bind` makes them, `fusion` combines them, the interpreter evaluates them and `backends/loops` lowers them.
Imports the dtypes and `ir.types` only.

An expression is a tree of `Const`, `Idx` (a loop index, i64), `Read` and `Apply`. The functions of `Apply`:

* arithmetic in `dtype`: ``add sub mul div rem neg min max pow abs``; of floats ``exp log sqrt erf sin cos tan asin acos
  atan sinh cosh tanh asinh acosh atanh floor ceil round rint``; of integers ``bitand bitor bitxor shl shr``
* on i64 indices only: ``floordiv mod`` (the divisor is a positive `Const`)
* to bool: ``lt le eq ne`` (arguments of one dtype), ``and or not`` (of bools)
* f16 and bf16 are types of memory: beside reads, fillers and ``select`` between them, only ``cast`` and ``bitcast``
  know them
* ``select(bool, a, b)``; ``cast(x)`` converts to `dtype`; ``wrap(x)`` between integers keeps the low bits;
  ``bitcast(x)`` takes the bits; ``table(i, c0, c1, …)`` picks a constant by an index in range
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod

from lightnet.dataclasses import dataclass
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, Size, Symbol
from lightnet.runtime.dtypes import BY_NAME, DType

I64 = BY_NAME["i64"]
F32 = BY_NAME["f32"]
F64 = BY_NAME["f64"]
BOOL = BY_NAME["i1"]


@dataclass(frozen=True, slots=True)
class Const:
    value: bool | float | Size
    dtype: DType

    def __hash__(self) -> int:
        return hash(("const", self.value, self.dtype.name))

    def __eq__(self, other: object) -> bool:
        """NaN equals itself and -0.0 is not 0.0: equality here is sameness of the text."""
        return isinstance(other, Const) and self.dtype is other.dtype and repr(self.value) == repr(other.value)


@dataclass(frozen=True, slots=True)
class Idx:
    name: str

    @property
    def dtype(self) -> DType:
        return I64


@dataclass(frozen=True, slots=True)
class Read:
    """``tensor[subs | filler]``; `flat` reads the row-major vector of the tensor by one subscript."""

    tensor: str
    subs: tuple[Node, ...]
    filler: Node | None
    dtype: DType
    flat: bool = False

    def __hash__(self) -> int:
        return hash((self.tensor, self.subs, self.filler, self.flat))


@dataclass(frozen=True)
class Apply:
    fn: str
    args: tuple[Node, ...]
    dtype: DType

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.fn, self.args, self.dtype.name))


Node = Const | Idx | Read | Apply
Loop = tuple[str, Size]


@dataclass(frozen=True)
class Statement:
    """``tensor[subs] op value`` for all `loops`, reducing over `reductions`.

    Each subscript of the target is an index of `loops` plus a constant, or a constant; every loop index occurs once.
    `op` is ``=``, ``+=``, ``*=``, ``max=``, ``min=``, ``argmax=`` or ``argmin=``; the last two also write the position
    of the winner (the value of the one reduction index) to `arg`. `fresh` reductions start from the identity of their
    op, the others from what the target holds. `flat` writes the target as a vector.
    """

    tensor: str
    subs: tuple[Node, ...]
    op: str
    value: Node
    loops: tuple[Loop, ...]
    reductions: tuple[Loop, ...] = ()
    arg: str | None = None
    fresh: bool = True
    flat: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.tensor,) if self.arg is None else (self.tensor, self.arg)

    @property
    def size(self) -> Size:
        """Number of elements written."""
        return prod(n for _, n in self.loops)

    @property
    def trips(self) -> Size:
        """Number of evaluations of the value."""
        return self.size * prod(n for _, n in self.reductions)

    def __str__(self) -> str:
        ranges = ", ".join(f"{name} < {n}" for name, n in self.loops + self.reductions)
        flat = ".flat" if self.flat else ""
        names = ", ".join(f"{t}{flat}[{', '.join(map(show, self.subs))}]" for t in self.targets)
        op = self.op if self.op == "=" or self.fresh else f"({self.tensor}) {self.op}"
        return f"{names} {op} {show(self.value)}{' for ' + ranges if ranges else ''}"


@dataclass(frozen=True)
class BoundDefinition:
    """Statements in order over named tensors; `operands` are read, `results` written, `locals` live in between."""

    operands: tuple[tuple[str, TensorSpec], ...]
    results: tuple[tuple[str, TensorSpec], ...]
    locals: tuple[tuple[str, TensorSpec], ...]
    statements: tuple[Statement, ...]

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """The spec of every tensor."""
        return dict(self.operands + self.results + self.locals)

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols that its types and its numbers name."""
        nodes = (n for s in self.statements for part in (*s.subs, s.value) for n in walk_nodes(part))
        numbers = [n.value for n in nodes if isinstance(n, Const)]
        numbers += [n for s in self.statements for _, n in (*s.loops, *s.reductions)]
        sizes = [*numbers, *(d for spec in self.specs.values() for d in spec.open_dims)]
        return frozenset(s for d in sizes if isinstance(d, Dim) for s in d.symbols)

    @cached_property
    def key(self) -> str:
        """A text that two definitions share exactly when they differ in names of tensors and indices only."""
        names = {name: f"t{i}" for i, (name, _) in enumerate(self.operands + self.results + self.locals)}
        counts = f"{len(self.operands)},{len(self.results)}"
        specs = " ".join(map(str, self.specs.values()))
        return "\n".join([counts, specs, *(str(renamed_statement(s, names, _positional(s))) for s in self.statements)])

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        lines = [
            f"{kind} {name}: {spec}"
            for kind in ("operand", "result", "local")
            for name, spec in getattr(self, kind + "s")
        ]
        return "\n".join([*lines, *map(str, self.statements)])


def _positional(s: Statement) -> dict[str, str]:
    return {
        **{name: f"i{k}" for k, (name, _) in enumerate(s.loops)},
        **{name: f"r{k}" for k, (name, _) in enumerate(s.reductions)},
    }


# --- Walking --------------------------------------------------------------------------------------------------------


def operand_nodes(node: Node) -> tuple[Node, ...]:
    match node:
        case Apply(args=args):
            return args
        case Read(subs=subs, filler=filler):
            return subs if filler is None else (*subs, filler)
    return ()


def walk_nodes(node: Node) -> Iterator[Node]:
    """Every node of an expression, parents first."""
    yield node
    for child in operand_nodes(node):
        yield from walk_nodes(child)


def reads(node: Node) -> list[Read]:
    """The reads of an expression, those inside subscripts too."""
    return [n for n in walk_nodes(node) if isinstance(n, Read)]


def indices(node: Node) -> set[str]:
    return {n.name for n in walk_nodes(node) if isinstance(n, Idx)}


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with `change` applied to its children."""
    match node:
        case Apply(fn=fn, args=args, dtype=dtype):
            new = tuple(map(change, args))
            return node if all(a is b for a, b in zip(new, args)) else Apply(fn, new, dtype)
        case Read(subs=subs, filler=filler):
            new, other = tuple(map(change, subs)), change(filler) if filler is not None else None
            if other is filler and all(a is b for a, b in zip(new, subs)):
                return node
            return Read(node.tensor, new, other, node.dtype, node.flat)
    return node


def substitute(node: Node, by: dict[str, Node]) -> Node:
    """Replace indices by expressions."""
    if isinstance(node, Idx):
        return by.get(node.name, node)
    return rebuild(node, lambda n: substitute(n, by))


def block_and_lane(index: Node, by: int) -> tuple[Node, Node]:
    """The block of so many elements that an index falls into, and where in it."""
    return Apply("floordiv", (index, Const(by, I64)), I64), Apply("mod", (index, Const(by, I64)), I64)


def shifted_index(index: Node, offset: int) -> Node:
    return Apply("add", (index, Const(offset, I64)), I64)


def rename_tensors(node: Node, names: dict[str, str]) -> Node:
    new = rebuild(node, lambda n: rename_tensors(n, names))
    if isinstance(new, Read) and new.tensor in names:
        return Read(names[new.tensor], new.subs, new.filler, new.dtype, new.flat)
    return new


def renamed_statement(s: Statement, tensors: dict[str, str], index_names: dict[str, str] | None = None) -> Statement:
    """The statement with tensors and indices renamed."""
    by: dict[str, Node] = {old: Idx(new) for old, new in (index_names or {}).items()}

    def change(node: Node) -> Node:
        return rename_tensors(substitute(node, by) if by else node, tensors)

    def loops(old: tuple[Loop, ...]) -> tuple[Loop, ...]:
        return tuple(((index_names or {}).get(name, name), n) for name, n in old)

    arg = None if s.arg is None else tensors.get(s.arg, s.arg)
    subs = tuple(map(change, s.subs))
    return Statement(
        tensors.get(s.tensor, s.tensor),
        subs,
        s.op,
        change(s.value),
        loops(s.loops),
        loops(s.reductions),
        arg,
        s.fresh,
        s.flat,
    )


# --- Printing -------------------------------------------------------------------------------------------------------

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "floordiv": "//", "mod": "mod"}
_INFIX |= {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&&", "or": "||"}


def show(node: Node) -> str:
    """The text of a bound expression: canonical, dtypes of casts and constants included."""
    match node:
        case Const(value=value, dtype=dtype):
            return str(value) if dtype is I64 else f"{value}:{dtype}"
        case Idx(name=name):
            return name
        case Read(tensor=tensor, subs=subs, filler=filler, flat=flat):
            tail = "" if filler is None else f" | {show(filler)}"
            return f"{tensor}{'.flat' if flat else ''}[{', '.join(map(show, subs))}{tail}]"
        case Apply(fn="select", args=(c, a, b)):
            return f"({show(c)} ? {show(a)} : {show(b)})"
        case Apply(fn=fn, args=args) if fn in _INFIX:
            return f"({f' {_INFIX[fn]} '.join(map(show, args))})"
        case Apply(fn=fn, args=args, dtype=dtype):
            name = {"cast": str(dtype), "wrap": f"wrap.{dtype}", "bitcast": f"bitcast.{dtype}"}.get(fn, fn)
            return f"{name}({', '.join(map(show, args))})"
