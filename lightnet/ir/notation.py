"""Index notation: binding the statements that define an op to shapes, dtypes and parameters.

`parse` gives a `Definition` (text → AST); `bind` fills in tensors and parameters and gives a `BoundDefinition`: packs
expanded, constants folded, extents inferred, dtypes checked, every read proven to be inside its tensor. Grammar and
meaning: docs/design.md, "Index notation". Imports `expr`, `constants`, `statements`, `bound`, `affine` and the dtypes.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir import expr as ast
from lightnet.ir.affine import Space
from lightnet.ir.bound import (
    BOOL,
    F32,
    F64,
    I64,
    Apply,
    BoundDefinition,
    Const,
    Idx,
    Loop,
    Node,
    Read,
    Statement,
    rename,
    walk,
)
from lightnet.ir.constants import Env
from lightnet.ir.conversions import as_stored, cast, not_finite, saturated, widened, wrap
from lightnet.ir.expr import Attr, Binary, Call, Expr, Index, Name, Num, Pack, Select, Slice, Str, Unary
from lightnet.ir.expr import walk as walk_expr
from lightnet.ir.proof import Finisher, check_covered
from lightnet.ir.statements import Assignment, Definition, Target, format_statement, parse
from lightnet.ir.types import MAX_TENSOR_BYTES, TensorSpec
from lightnet.runtime.dtypes import BY_NAME, DTYPES, DType

#: Evaluations of one statement's value; more is a mistake or an attack.
MAX_TRIPS = 1 << 46


# --- Binding --------------------------------------------------------------------------------------------------------


def bind(
    definition: Definition | str,
    tensors: Mapping[str, Any],
    params: Mapping[str, Any],
    results: Sequence[str],
) -> BoundDefinition:
    """Bind a definition to tensors (anything with `dims` and `dtype`; operands and results) and parameter values.

    Numbers among `params` are ints or floats as their realtype says. `results` names the tensors that are written, in
    order. Raises `LightNetError`, located in the definition's text.
    """
    if isinstance(definition, str):
        definition = parse(definition)
    specs = {name: TensorSpec(tuple(t.dims), t.dtype) for name, t in tensors.items()}
    stored = {n: specs[n] for n in _accumulated(definition) if n in results and n in specs and specs[n].dtype.is_short}
    specs |= {name: TensorSpec(spec.dims, F32) for name, spec in stored.items()}
    state = _State(definition, specs, dict(params), tuple(results))
    state.env = Env(ChainMap(stored, specs), state.params)
    for assignment in definition.statements:
        statement = _Binder(state, assignment).bind()
        state.assigned.update(t.name for t in assignment.targets)
        if statement is not None:
            state.statements.append(statement)
            state.written.update(statement.targets)
    for name in results:
        check_covered(name, specs[name], state.statements)
    for name, spec in stored.items():
        _store(state, name, spec)
    return BoundDefinition(
        tuple((n, s) for n, s in specs.items() if n not in results and n not in state.locals),
        tuple((n, specs[n]) for n in results),
        tuple(state.locals.items()),
        tuple(state.statements),
    )


def _accumulated(definition: Definition) -> set[str]:
    """The tensors that are written more than plainly: a reduction's targets, and what is read again."""
    read = {ast.read_name(x) for s in definition.statements for x in walk_expr(s.value) if isinstance(x, Index)}
    return {t.name for s in definition.statements for t in s.targets if s.op != "=" or t.name in read}


def _store(state: _State, name: str, spec: TensorSpec) -> None:
    """A result of f16 or bf16 that is accumulated: the statements compute it in an f32 local, the last one rounds it."""
    local = f"{name}.f32"
    state.locals[local] = state.specs[local] = state.specs[name]
    state.specs[name] = spec
    state.statements = [rename(s, {name: local}) for s in state.statements]
    if spec.len:
        loops = tuple((f"i.{k}", n) for k, n in enumerate(spec.dims) if n > 1)
        subs = tuple(Idx(f"i.{k}") if n > 1 else Const(0, I64) for k, n in enumerate(spec.dims))
        state.statements.append(Statement(name, subs, "=", cast(Read(local, subs, None, F32), spec.dtype), loops))


class _State:
    """What the statements of one definition share."""

    def __init__(
        self, definition: Definition, specs: dict[str, TensorSpec], params: dict[str, Any], results: tuple[str, ...]
    ):
        self.definition = definition
        self.specs = specs
        self.params = {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}
        self.results = results
        self.locals: dict[str, TensorSpec] = {}
        self.written: set[str] = set()
        self.assigned: set[str] = set()  # as `written`, and targets of statements over nothing
        self.statements: list[Statement] = []
        self.env = Env(specs, self.params)
        for name in results:
            if name not in specs:
                raise LightNetError(f"result '{name}' has no type")

    def fail(self, pos: int, message: str) -> NoReturn:
        ast.fail(self.definition.text, pos, message, self.definition.file)


@dataclass(frozen=True, slots=True)
class _Typed:
    """A bound expression; `weak` ones (constants, indices) take the dtype of their partner."""

    node: Node
    weak: bool = False


_FLOAT_FUNCTIONS = (
    *("exp", "log", "sqrt", "erf", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_ROUNDINGS = ("floor", "ceil", "round", "rint")
_TESTS = ("isnan", "isinf")
_BITS = ("bitand", "bitor", "bitxor", "bitnot", "shl", "shr")
_CONVERSIONS = ("sat", "wrap", "bitcast")
_RUNTIME_FUNCTIONS = (
    *(*_FLOAT_FUNCTIONS, *_ROUNDINGS, *_TESTS, *_BITS, *_CONVERSIONS),
    *("min", "max", "abs", "pow", "floormod", "clamp", *(d.name for d in DTYPES)),
)
#: Every function that a definition may call.
FUNCTION_NAMES = frozenset(
    (*_RUNTIME_FUNCTIONS, *constants.FUNCTIONS, *constants.ARRAY_FUNCTIONS, *constants.DTYPE_FUNCTIONS)
)
#: How many arguments a function takes, at least and at most; the others take one.
_COUNTS = {"clamp": (3, 3), "min": (2, 8), "max": (2, 8)} | dict.fromkeys(
    ("pow", "floormod", "bitand", "bitor", "bitxor", "shl", "shr"), (2, 2)
)
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}
#: operator → (bound function, swap the arguments)
_COMPARE = {
    "<": ("lt", False),
    "<=": ("le", False),
    ">": ("lt", True),
    ">=": ("le", True),
    "==": ("eq", False),
    "!=": ("ne", False),
}


class _Binder:
    """Binds one statement."""

    def __init__(self, state: _State, s: Assignment):
        self.state, self.s = state, s
        self.pack_sizes: dict[str, int] = {}
        self.position: int | None = None  # inside a pack's pattern: which element
        self.in_subscript = 0
        self.alone: dict[str, tuple[int, str]] = {}  # index → extent and the read that says so

    def fail(self, message: str, pos: int | None = None) -> NoReturn:
        self.state.fail(self.s.pos if pos is None else pos, message)

    # -- The statement

    def bind(self) -> Statement | None:
        s, specs = self.s, self.state.specs
        self._size_packs()
        for t in s.targets:
            if t.name in self.state.params:
                self.fail(f"'{t.name}' is a parameter", t.pos)
            if t.name in specs and t.name not in self.state.results and t.name not in self.state.locals:
                self.fail(f"operand '{t.name}' is assigned to", t.pos)
        value = self.expr(s.value)
        subs = [self._target_subs(t) for t in s.targets]
        if any(other != subs[0] for other in subs):
            self.fail("both targets have the same subscripts")
        ranges = {name: self._range(name, e) for name, e in s.ranges}
        loops = self._loops(s.targets[0], subs[0], ranges)
        reductions = self._reductions(value.node, dict(loops), ranges)
        for t in s.targets:
            self._declare(t, subs[0], loops, value, index=t is s.targets[-1] and len(s.targets) == 2)
        target = specs[s.targets[0].name]
        node = self._assignable(value, target.dtype)
        if any(n == 0 for _, n in loops):
            return None
        if any(n == 0 for _, n in reductions):
            return self._empty_reduction(target.dtype, [Space(loops).simplify(x) for x in subs[0]], loops)
        space = Space(loops + reductions)
        if math.prod(n for _, n in loops + reductions) > MAX_TRIPS:
            self.fail(f"the statement's value is evaluated more than {MAX_TRIPS} times")
        node = Finisher(specs, space, self.fail).finish(node)
        self._check_self_read(node, tuple(map(space.simplify, subs[0])))
        return self._make(node, [space.simplify(x) for x in subs[0]], loops, reductions)

    def _make(self, node: Node, subs: list[Node], loops: list[Loop], reductions: list[Loop]) -> Statement:
        s = self.s
        first = s.targets[0]
        kept = tuple((name, n) for name, n in loops if n > 1)
        reduced = tuple((name, n) for name, n in reductions if n > 1)
        fresh = first.name not in self.state.written
        if s.op.startswith("arg"):
            if len(reductions) != 1:
                self.fail(f"{s.op} takes exactly one reduction index, got {len(reductions)}")
            reduced = tuple(reductions)
            fresh = True
        op = s.op
        if op != "=" and not reduced and fresh:
            op = "="
        arg = s.targets[1].name if op.startswith("arg") else None
        return Statement(first.name, tuple(subs), op, node, kept, reduced, arg, fresh or op == "=", first.flat)

    def _empty_reduction(self, dtype: DType, subs: list[Node], loops: list[Loop]) -> Statement | None:
        """A reduction over nothing leaves the identity of its op, or what the target holds."""
        s = self.s
        if s.op.startswith("arg"):
            self.fail(f"{s.op} over an empty range has no winner")
        if s.targets[0].name in self.state.written:
            return None
        kept = tuple((name, n) for name, n in loops if n > 1)
        value = self._assignable(_constant(_identity(s.op, dtype)), dtype)
        return Statement(s.targets[0].name, tuple(subs), "=", value, kept, flat=s.targets[0].flat)

    def _assignable(self, value: _Typed, dtype: DType) -> Node:
        if value.weak or dtype.kind == "bool" or value.node.dtype is (F32 if dtype.is_short else dtype):
            return cast(value.node, dtype)
        self.fail(f"a value of dtype {value.node.dtype} is assigned to '{self.s.targets[0].name}' of dtype {dtype}")

    def _check_self_read(self, node: Node, subs: tuple[Node, ...]) -> None:
        """A statement may read its own target at the index written, and only with ``=``."""
        for n in walk(node):
            if isinstance(n, Read) and n.tensor in {t.name for t in self.s.targets}:
                if self.s.op != "=" or n.subs != subs or n.flat != self.s.targets[0].flat:
                    self.fail(f"'{n.tensor}' is read at another index than the one that is written")

    # -- Packs

    def _subscript_lists(self) -> Iterator[tuple[tuple[Any, ...], int | None, int]]:
        """Every subscript list of a tensor, with the rank where it is known, and its position."""
        for t in self.s.targets:
            spec = self.state.specs.get(t.name)
            yield t.subs, 1 if t.flat else spec and spec.ndim, t.pos
        for e in walk_expr(self.s.value):
            if isinstance(e, Index) and (name := _tensor_name(e)) in self.state.specs:
                yield e.subs, self.state.specs[name].ndim if isinstance(e.base, Name) else 1, e.pos

    def _size_packs(self) -> None:
        lists = list(self._subscript_lists())
        sizes: dict[str, int | None] = {}
        for subs, _, pos in lists:
            for sub in subs:
                if not isinstance(sub, Pack):
                    continue
                for name in self._pack_names(sub):
                    sizes.setdefault(name, None)
                if sub.count is not None:
                    self._set_size(sizes, sub.pattern.name, self.constant_int(sub.count, "the size of a pack"), pos)
        while any(v is None for v in sizes.values()):
            if not any(self._solve(subs, rank, pos, sizes) for subs, rank, pos in lists):
                unknown = next(n for n, v in sizes.items() if v is None)
                self.fail(f"the size of pack '{unknown}' does not follow from the ranks; write {unknown}:size...")
        self.pack_sizes = {n: v for n, v in sizes.items() if v is not None}

    def _solve(self, subs: tuple[Any, ...], rank: int | None, pos: int, sizes: dict[str, int | None]) -> bool:
        """Fix the one pack of unknown size in a subscript list of known rank; whether that told anything new."""
        packs = [self._pack_names(s)[0] for s in subs if isinstance(s, Pack)]
        unknown = [p for p in packs if sizes[p] is None]
        if rank is None or len(set(unknown)) != 1:
            return False
        rest = rank - (len(subs) - len(packs)) - sum(sizes[p] or 0 for p in packs)
        if rest < 0 or rest % len(unknown):
            self.fail(f"too many subscripts for a tensor of rank {rank}", pos)
        self._set_size(sizes, unknown[0], rest // len(unknown), pos)
        return True

    def _set_size(self, sizes: dict[str, int | None], name: str, size: int, pos: int) -> None:
        if sizes.get(name) not in (None, size):
            self.fail(f"pack '{name}' has {sizes[name]} indices here and {size} there", pos)
        if not 0 <= size <= 8:
            self.fail(f"pack '{name}' of {size} indices", pos)
        sizes[name] = size

    def _pack_names(self, pack: Pack) -> list[str]:
        names = {}
        for e in walk_expr(pack.pattern):
            if isinstance(e, Name) and e.name not in self.state.params and e.name not in self.state.specs:
                names[e.name] = None
        return list(names) or self.fail("a pack needs an index", pack.pos)

    # -- Indices

    def _target_subs(self, t: Target) -> list[Node]:
        subs = self.subscripts(t.subs)
        spec = self.state.specs.get(t.name)
        rank = None if spec is None else 1 if t.flat else spec.ndim
        if rank is not None and rank != len(subs):
            self.fail(f"'{t.name}' has rank {rank}, got {len(subs)} subscripts", t.pos)
        space, seen = Space(()), set()
        for sub in subs:
            form = space.linear(sub)
            names = [a.name for a in form.terms if isinstance(a, Idx)]
            if len(names) != len(form.terms) or len(names) > 1 or set(form.terms.values()) - {1} or form.const < 0:
                self.fail("a subscript on the left is an index, an index plus a constant, or a constant", t.pos)
            if set(names) & seen:
                self.fail(f"index '{names[0]}' is twice on the left", t.pos)
            seen |= set(names)
        return subs

    def _range(self, name: str, e: Expr) -> int:
        n = self.constant_int(e, f"the range of index '{name}'")
        if n < 0:
            self.fail(f"index '{name}' has the range {n}")
        return n

    def _loops(self, target: Target, subs: list[Node], ranges: dict[str, int]) -> list[Loop]:
        """The loops over the target, in the order of its subscripts, with their extents."""
        spec = self.state.specs.get(target.name)
        dims = None if spec is None else ((spec.len,) if target.flat else spec.dims)
        loops: list[Loop] = []
        for k, sub in enumerate(subs):
            offset, name = Space(()).written(sub)
            room = None if dims is None else dims[k] - offset
            if name is None:
                if room is None or room < 1:
                    self.fail(f"subscript {offset} of '{target.name}' is outside", target.pos)
                continue
            n = ranges.get(name, room if room is not None else self.alone.get(name, (None,))[0])
            if n is None:
                self.fail(
                    f"the extent of index '{name}' is not known: read it alone as a subscript, or write for {name} < …"
                )
            if room is not None and n > room:
                self.fail(f"index '{name}' ranges over {n}, '{target.name}' has room for {room}", target.pos)
            loops.append((name, n))
        return loops

    def _reductions(self, value: Node, loops: dict[str, int], ranges: dict[str, int]) -> list[Loop]:
        names = [n.name for n in walk(value) if isinstance(n, Idx)] + list(ranges)
        reductions: dict[str, int] = {}
        for name in names:
            if name in loops or name in reductions:
                continue
            if self.s.op == "=":
                self.fail(f"index '{name}' is not on the left, and '=' does not reduce")
            n = ranges.get(name, self.alone.get(name, (None,))[0])
            if n is None:
                self.fail(
                    f"the extent of index '{name}' is not known: read it alone as a subscript, or write for {name} < …"
                )
            reductions[name] = n
        return list(reductions.items())

    def _declare(self, t: Target, subs: list[Node], loops: list[Loop], value: _Typed, index: bool) -> None:
        """A name on the left that is no result is a local tensor, as large as its indices range."""
        if t.name in self.state.specs:
            return
        extents = dict(loops)
        if t.flat or not all(isinstance(s, Idx) for s in subs):
            self.fail(f"the first assignment to local '{t.name}' has plain indices", t.pos)
        dtype = BY_NAME["i32"] if index else value.node.dtype
        spec = TensorSpec(tuple(extents[s.name] for s in subs if isinstance(s, Idx)), dtype)
        if spec.nbytes > MAX_TENSOR_BYTES:
            self.fail(f"local '{t.name}' has {spec.nbytes} bytes", t.pos)
        self.state.locals[t.name] = self.state.specs[t.name] = spec

    # -- Expressions

    def expr(self, e: Expr) -> _Typed:
        """Bind an expression."""
        match e:
            case Num(value=value):
                return _constant(value)
            case Str():
                self.fail("a string stands only in a comparison of constants", e.pos)
            case Name():
                return self._name(e)
            case Attr() | Binary(op="==" | "!=" | "<" | "<=" | ">" | ">=") | Call() | Select() if self._is_constant(e):
                return self._folded(e)
            case Unary(op=op, arg=arg):
                return self._unary(op, self.expr(arg), e.pos)
            case Binary(op="&&" | "||" as op, left=left, right=right):
                a, b = self._bool(self.expr(left)), self._bool(self.expr(right))
                if isinstance(a, Const):
                    return _Typed(b if bool(a.value) == (op == "&&") else a)
                return _Typed(Apply("and" if op == "&&" else "or", (a, b), BOOL))
            case Binary(op=op, left=left, right=right):
                return self._binary(op, self.expr(left), self.expr(right), e.pos)
            case Select(cond=cond, then=then, other=other):
                return self._select(self._bool(self.expr(cond)), then, other, e.pos)
            case Call(fn=fn, args=args):
                return self._call(fn, args, e.pos)
            case Index():
                return self._index(e)
        self.fail("unexpected expression", e.pos)

    def _is_constant(self, e: Expr) -> bool:
        """Whether a value follows from dims and parameters alone, as one number (not element by element of a pack)."""
        for x in walk_expr(e):
            if isinstance(x, Name) and x.name not in self.state.params and x.name not in self.state.specs:
                return False
            if isinstance(x, Index) and _tensor_name(x) in self.state.specs and not _is_dims(x):
                return False
            if isinstance(x, Call) and x.fn not in constants.FUNCTIONS and x.fn not in constants.ARRAY_FUNCTIONS:
                return False
            if self.in_subscript and isinstance(x, Binary) and x.op in ("/", "%"):
                return False
        return self.position is None or not isinstance(e, (Binary, Select))

    def _evaluate(self, e: Expr) -> Any:
        try:
            return constants.constant(e)(self.state.env)
        except LightNetError as error:
            if error.loc is None:
                self.fail(error.message, e.pos)
            raise

    def _folded(self, e: Expr) -> _Typed:
        value = self._evaluate(e)
        if isinstance(value, tuple):
            if self.position is None:
                self.fail(f"'{ast.format_expr(e)}' is an array", e.pos)
            if self.position >= len(value):
                self.fail(f"'{ast.format_expr(e)}' has {len(value)} elements, the pack has more", e.pos)
            value = value[self.position]
        if not isinstance(value, (int, float)):
            self.fail(f"'{ast.format_expr(e)}' is no number: {constants.show_value(value)}", e.pos)
        return _constant(value)

    def constant_int(self, e: Expr, what: str) -> int:
        value = self._evaluate(e)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{what} is {constants.show_value(value)}, not an integer", e.pos)
        return value

    def _name(self, e: Name) -> _Typed:
        if e.name in self.state.params:
            return self._folded(e)
        if e.name in self.state.specs:
            self.fail(f"tensor '{e.name}' is read without subscripts", e.pos)
        if e.name in self.pack_sizes:
            if self.position is None:
                self.fail(f"pack '{e.name}' stands outside of a subscript list", e.pos)
            if self.position >= self.pack_sizes[e.name]:
                self.fail(f"pack '{e.name}' has only {self.pack_sizes[e.name]} indices", e.pos)
            return _Typed(Idx(f"{e.name}.{self.position}"), True)
        if e.name in _RUNTIME_FUNCTIONS:
            self.fail(f"'{e.name}' is a function", e.pos)
        return _Typed(Idx(e.name), True)

    def _unary(self, op: str, x: _Typed, pos: int) -> _Typed:
        if op == "!":
            flag = self._bool(x)
            return _Typed(Const(not flag.value, BOOL) if isinstance(flag, Const) else Apply("not", (flag,), BOOL))
        x = self._promoted(x)
        if isinstance(x.node, Const) and x.weak:
            return _constant(-x.node.value)
        return _Typed(Apply("neg", (x.node,), x.node.dtype), x.weak)

    def _bool(self, x: _Typed) -> Node:
        if x.node.dtype is BOOL:
            return x.node
        if isinstance(x.node, Const):
            return Const(x.node.value != 0, BOOL)
        return Apply("ne", (x.node, cast(Const(0, I64), x.node.dtype)), BOOL)

    def _promoted(self, x: _Typed) -> _Typed:
        """Arithmetic on bools is done in i32, as in C."""
        return _Typed(cast(x.node, BY_NAME["i32"]), x.weak) if x.node.dtype is BOOL else x

    def _partners(self, a: _Typed, b: _Typed, pos: int, what: str) -> tuple[Node, Node, bool]:
        """Both in one dtype: the partner's for a weak one, double for an integer and a double constant."""
        if a.weak and b.weak:
            dtype = F64 if F64 in (a.node.dtype, b.node.dtype) else I64
            return cast(a.node, dtype), cast(b.node, dtype), True
        if a.weak or b.weak:
            dtype = b.node.dtype if a.weak else a.node.dtype
            return cast(a.node, dtype), cast(b.node, dtype), False
        if a.node.dtype is not b.node.dtype:
            self.fail(f"{what} mixes {a.node.dtype} and {b.node.dtype}; convert one of them", pos)
        return a.node, b.node, False

    def _binary(self, op: str, a: _Typed, b: _Typed, pos: int) -> _Typed:
        a, b = self._promoted(a), self._promoted(b)
        if a.weak and b.weak and isinstance(a.node, Const) and isinstance(b.node, Const):
            return self._fold_binary(op, a.node.value, b.node.value, pos)
        x, y, weak = self._partners(a, b, pos, f"operator '{op}'")
        if op in _COMPARE:
            fn, swap = _COMPARE[op]
            return _Typed(Apply(fn, (y, x) if swap else (x, y), BOOL))
        fn = _ARITHMETIC[op]
        if self.in_subscript and fn in ("div", "rem"):
            if not isinstance(y, Const) or x.dtype is not I64 or y.value <= 0:
                self.fail(f"'{op}' in a subscript takes a positive constant on its right", pos)
            fn = "floordiv" if fn == "div" else "mod"
        return _Typed(Apply(fn, (x, y), x.dtype), weak)

    def _fold_binary(self, op: str, a: Any, b: Any, pos: int) -> _Typed:
        if op in _COMPARE:
            return _Typed(Const(constants.COMPARISONS[op](a, b), BOOL))
        if self.in_subscript and op in ("/", "%") and isinstance(a, int) and isinstance(b, int):
            if b <= 0:
                self.fail(f"'{op}' in a subscript takes a positive constant on its right", pos)
            return _constant(a // b if op == "/" else a % b)
        try:
            return _constant(constants.arithmetic(op, a, b))
        except LightNetError as error:
            self.fail(error.message, pos)

    def _select(self, cond: Node, then: Expr, other: Expr, pos: int) -> _Typed:
        if isinstance(cond, Const):  # the other arm may make no sense for these shapes
            return self.expr(then if cond.value else other)
        a, b = self.expr(then), self.expr(other)
        x, y, weak = self._partners(a, b, pos, "'?:'")
        return _Typed(Apply("select", (cond, x, y), x.dtype), weak)

    # -- Functions

    def _call(self, fn: str, args: tuple[Expr, ...], pos: int) -> _Typed:
        if fn in BY_NAME and not BY_NAME[fn].is_stored:
            return self._convert(fn, args, BY_NAME[fn], pos)
        if fn in _CONVERSIONS:
            if len(args) != 2 or not isinstance(args[1], Name) or args[1].name not in self.state.specs:
                self.fail(f"{fn} takes a value and the name of a tensor", pos)
            return self._convert(fn, args[:1], self.state.env.tensors[args[1].name].dtype, pos)
        if fn not in _RUNTIME_FUNCTIONS:
            self.fail(f"unknown function '{fn}'; there are: {', '.join(sorted(_RUNTIME_FUNCTIONS))}", pos)
        values = [self.expr(a) for a in args]
        low, high = _COUNTS.get(fn, (1, 1))
        if not low <= len(values) <= high:
            self.fail(f"{fn} takes {low} argument{'s' * (low > 1)}, got {len(values)}", pos)
        if all(v.weak and isinstance(v.node, Const) for v in values):
            return self._constant_call(fn, [v.node.value for v in values], pos)
        if fn in _BITS and all(v.node.dtype is BOOL for v in values):
            return self._logical(fn, [v.node for v in values], pos)
        values = [self._promoted(v) for v in values]
        if fn in _BITS:
            return self._bits(fn, values, pos)
        if fn == "floormod":
            return self._floor_modulo(*values, pos)
        if fn == "clamp":
            return self._two("min", self._two("max", values[0], values[1], pos), values[2], pos)
        if len(values) > 1:
            total = values[0]
            for value in values[1:]:
                total = self._two(fn, total, value, pos)
            return total
        return self._one(fn, values[0], pos)

    def _constant_call(self, fn: str, values: list[Any], pos: int) -> _Typed:
        try:
            return _constant(constants.apply_function(fn, values))
        except LightNetError as error:
            self.fail(error.message, pos)

    def _logical(self, fn: str, args: list[Node], pos: int) -> _Typed:
        """Bit operations on bools are the logical ones."""
        if fn in ("shl", "shr"):
            self.fail(f"{fn} takes integers, got {BOOL}", pos)
        names = {"bitand": "and", "bitor": "or", "bitxor": "ne", "bitnot": "not"}
        return _Typed(Apply(names[fn], tuple(args), BOOL))

    def _bits(self, fn: str, values: list[_Typed], pos: int) -> _Typed:
        if fn == "bitnot":  # ~x = x ^ (all ones)
            dtype = values[0].node.dtype
            ones = -1 if dtype.kind == "int" else (1 << dtype.bits) - 1
            fn, values = "bitxor", [values[0], _Typed(Const(ones, dtype))]
        x, y, weak = self._partners(*values, pos, fn)
        if x.dtype.is_float:
            self.fail(f"{fn} takes integers, got {x.dtype}", pos)
        return _Typed(Apply(fn, (x, y), x.dtype), weak)

    def _floor_modulo(self, a: _Typed, b: _Typed, pos: int) -> _Typed:
        """The remainder with the sign of `b`, out of what there is: ``a - b·floor(a / b)``; a remainder moved by `b`
        where the signs differ; in i64 by a positive constant, the modulo of index arithmetic."""
        x, y, weak = self._partners(a, b, pos, "floormod")
        dtype = x.dtype
        if dtype.is_float:
            whole = Apply("floor", (Apply("div", (x, y), dtype),), dtype)
            return _Typed(Apply("sub", (x, Apply("mul", (y, whole), dtype)), dtype), weak)
        if dtype is I64 and isinstance(y, Const) and y.value > 0:
            return _Typed(Apply("mod", (x, y), I64), weak)
        rest, zero = Apply("rem", (x, y), dtype), cast(Const(0, I64), dtype)
        if dtype.kind == "uint":
            return _Typed(rest, weak)
        signs = tuple(Apply("lt", (v, zero), BOOL) for v in (rest, y))
        other = Apply("and", (Apply("ne", (rest, zero), BOOL), Apply("ne", signs, BOOL)), BOOL)
        return _Typed(Apply("select", (other, Apply("add", (rest, y), dtype), rest), dtype), weak)

    def _two(self, fn: str, a: _Typed, b: _Typed, pos: int) -> _Typed:
        x, y, weak = self._partners(a, b, pos, fn)
        return _Typed(Apply(fn, (x, y), x.dtype), weak)

    def _one(self, fn: str, x: _Typed, pos: int) -> _Typed:
        if fn in _TESTS:
            return _Typed(not_finite(fn, x.node))
        if fn in _ROUNDINGS and not x.node.dtype.is_float:
            return x
        if fn in _FLOAT_FUNCTIONS and not x.node.dtype.is_float:
            if not x.weak:
                self.fail(f"{fn} takes floats, got {x.node.dtype}", pos)
            x = _Typed(cast(x.node, F64), True)
        if fn == "abs" and x.node.dtype.kind == "uint":
            return x
        return _Typed(Apply(fn, (x.node,), x.node.dtype), x.weak)

    def _convert(self, fn: str, args: tuple[Expr, ...], dtype: DType, pos: int) -> _Typed:
        if len(args) != 1:
            self.fail(f"{fn} takes one value, got {len(args)}", pos)
        node = self.expr(args[0]).node
        if fn == "bitcast":
            node = as_stored(node)
            if BOOL in (node.dtype, dtype) or node.dtype.size != dtype.size:
                self.fail(f"bitcast of {node.dtype} to {dtype}: no two numbers of one size", pos)
            return _Typed(widened(node if node.dtype is dtype else Apply("bitcast", (node,), dtype)))
        convert = {"wrap": wrap, "sat": saturated}.get(fn, cast)
        return _Typed(widened(convert(node, dtype)))

    # -- Reads

    def subscripts(self, subs: Iterable[Expr | Pack | Slice]) -> list[Node]:
        """Bind a subscript list: packs expanded, every subscript an i64."""
        nodes: list[Node] = []
        outer, self.in_subscript = self.position, self.in_subscript + 1
        for sub in subs:
            if isinstance(sub, Slice):
                self.fail("a slice stands only in a constant array", sub.pos)
            if not isinstance(sub, Pack):
                nodes.append(self._integer(self.expr(sub), sub.pos))
                continue
            for k in range(self._pattern_size(sub)):
                self.position = k
                nodes.append(self._integer(self.expr(sub.pattern), sub.pos))
            self.position = outer
        self.in_subscript -= 1
        return nodes

    def _pattern_size(self, pack: Pack) -> int:
        sizes = {self.pack_sizes[n] for n in self._pack_names(pack) if n in self.pack_sizes}
        if len(sizes) != 1:
            self.fail("the packs of a pattern have different sizes", pack.pos)
        return sizes.pop()

    def _integer(self, x: _Typed, pos: int) -> Node:
        if isinstance(x.node, Const) and isinstance(x.node.value, float) and x.node.value.is_integer():
            return Const(int(x.node.value), I64)
        if x.node.dtype.is_float:
            self.fail("a subscript is an integer; convert it with i64(…)", pos)
        return cast(x.node, I64)

    def _index(self, e: Index) -> _Typed:
        name = _tensor_name(e)
        if name in self.state.specs and not _is_dims(e):
            return self._read(e, name)
        if isinstance(e.base, Name) and e.base.name in self.pack_sizes:
            return self._pack_element(e, e.base.name)
        if self._is_constant(e):
            return self._folded(e)
        if isinstance(e.base, Name) and e.base.name not in self.state.params:
            self.fail(f"unknown tensor '{e.base.name}'", e.pos)
        return self._table(e)

    def _pack_element(self, e: Index, name: str) -> _Typed:
        value = self._evaluate(e.subs[0]) if len(e.subs) == 1 and not isinstance(e.subs[0], (Pack, Slice)) else None
        if isinstance(value, tuple) and self.position is not None and self.position < len(value):
            value = value[self.position]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not 0 <= value < self.pack_sizes[name]:
            self.fail(f"'{ast.format_expr(e)}' is no element of a pack of {self.pack_sizes[name]} indices", e.pos)
        return _Typed(Idx(f"{name}.{value}"), True)

    def _table(self, e: Index) -> _Typed:
        """An array of constants, indexed by a loop index."""
        values, subs = self._evaluate(e.base), self.subscripts(e.subs)
        if not isinstance(values, tuple) or not values or len(subs) != 1 or len(values) > 64:
            self.fail("an array indexed by an index has 1 to 64 constants and one subscript", e.pos)
        if not all(isinstance(v, (int, float)) for v in values):
            self.fail("an array indexed by an index holds numbers", e.pos)
        dtype = F64 if any(isinstance(v, float) for v in values) else I64
        table = Apply("table", (subs[0], *(cast(_constant(v).node, dtype) for v in values)), dtype)
        return _Typed(table, True)

    def _read(self, e: Index, name: str) -> _Typed:
        spec = self.state.specs[name]
        if name not in self.state.assigned and (name in self.state.results or name in self.state.locals):
            self.fail(f"'{name}' is read before it is written", e.pos)
        flat = isinstance(e.base, Attr)
        if flat and e.base.attr != "flat":
            self.fail(f"'{ast.format_expr(e)}' is no read", e.pos)
        subs = self.subscripts(e.subs)
        dims = (spec.len,) if flat else spec.dims
        if len(subs) != len(dims):
            self.fail(f"'{name}' has rank {len(dims)}, got {len(subs)} subscripts", e.pos)
        filler = None
        if e.filler is not None:
            filler = self._filler(e, spec.dtype)
        for sub, n in zip(subs, dims):
            if filler is None and isinstance(sub, Idx):
                known = self.alone.setdefault(sub.name, (n, name))
                if known[0] != n and sub.name not in {r for r, _ in self.s.ranges} | self._left_names():
                    self.fail(
                        f"index '{sub.name}' ranges over {known[0]} in '{known[1]}' and over {n} in '{name}'", e.pos
                    )
        node: Node = Read(name, tuple(subs), filler, spec.dtype, flat)
        if self.in_subscript and not spec.dtype.is_float:
            node = cast(node, I64)
        return _Typed(widened(node))

    def _left_names(self) -> set[str]:
        return {x.name for t in self.s.targets for s in t.subs for x in walk_expr(s) if isinstance(x, Name)} | {
            f"{p}.{k}" for p, n in self.pack_sizes.items() for k in range(n)
        }

    def _filler(self, e: Index, dtype: DType) -> Node:
        outer, self.in_subscript = self.in_subscript, 0
        value = self.expr(e.filler)
        self.in_subscript = outer
        if not value.weak and value.node.dtype is not (F32 if dtype.is_short else dtype):
            self.fail(f"the filler's dtype is {value.node.dtype}, the tensor's {dtype}", e.pos)
        return cast(value.node, dtype)


def _identity(op: str, dtype: DType) -> bool | float:
    """What a reduction over nothing gives, before it is converted to `dtype` (saturating)."""
    if op in ("+=", "*="):
        return int(op == "*=")
    if dtype.kind == "bool":
        return op == "min="
    return -math.inf if op == "max=" else math.inf


def _constant(value: Any) -> _Typed:
    """A weak constant; bools are strong."""
    if isinstance(value, bool):
        return _Typed(Const(value, BOOL))
    return _Typed(Const(value, F64 if isinstance(value, float) else I64), True)


def _tensor_name(e: Index) -> str:
    base = e.base.base if isinstance(e.base, Attr) else e.base
    return base.name if isinstance(base, Name) else ""


def _is_dims(e: Index) -> bool:
    return isinstance(e.base, Attr) and e.base.attr == "dims"


__all__ = ["Assignment", "Definition", "Target", "bind", "cast", "format_statement", "parse"]
