"""Index notation: binding the statements that define an op to shapes, dtypes and parameters.

`parse` gives a `Definition` (text → AST); `bind` fills in tensors and parameters and gives a `BoundDefinition`: packs
expanded, constants folded, extents inferred, dtypes checked, every read proven to be inside its tensor. Grammar and
meaning: docs/design.md, "Index notation". How many indices a pack stands for is found out in `packs.py`, what operators
and functions make of values in `values.py`. Imports modules of `ir` and the dtypes.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir import expr as ast
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import (
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
    renamed_statement,
    walk_nodes,
)
from lightnet.ir.constants import Env
from lightnet.ir.conversions import cast, widened_value
from lightnet.ir.expr import ArraySlice, Attr, Binary, Call, Expr, Index, Name, Num, Pack, Select, Str, Unary
from lightnet.ir.expr import walk as walk_expr
from lightnet.ir.packs import Packs, indexed_tensor
from lightnet.ir.proof import Finisher, check_covered
from lightnet.ir.statements import Assignment, Definition, StatementTarget, parse
from lightnet.ir.types import MAX_TENSOR_BYTES, TensorSpec
from lightnet.ir.values import CONVERSIONS, RUNTIME_FUNCTIONS, Typed, Typing, reduction_identity, weak_constant
from lightnet.runtime.dims import Dim, Undecided, greatest
from lightnet.runtime.dtypes import BY_NAME, DType

#: Evaluations of one statement's value; more is a mistake or an attack.
MAX_TRIPS = 1 << 46


def bind(
    definition: Definition | str, tensors: Mapping[str, Any], params: Mapping[str, Any], results: Sequence[str]
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
    """Accumulate a result of f16 or bf16: the statements compute it in an f32 local, the last one rounds it."""
    local = f"{name}.f32"
    state.locals[local] = state.specs[local] = state.specs[name]
    state.specs[name] = spec
    state.statements = [renamed_statement(s, {name: local}) for s in state.statements]
    if spec.len != 0:
        loops = tuple((f"i.{k}", n) for k, n in enumerate(spec.dims) if n != 1)
        subs = tuple(Idx(f"i.{k}") if n != 1 else Const(0, I64) for k, n in enumerate(spec.dims))
        state.statements.append(Statement(name, subs, "=", cast(Read(local, subs, None, F32), spec.dtype), loops))


class _State:
    """The common state of the statements of one definition."""

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
        if untyped := [name for name in results if name not in specs]:
            raise LightNetError(f"result '{untyped[0]}' has no type")

    def fail(self, pos: int, message: str) -> NoReturn:
        ast.fail_at(self.definition.text, pos, message, self.definition.file)


class _Binder:
    """Binds one statement."""

    def __init__(self, state: _State, s: Assignment):
        self.state, self.s = state, s
        self.values = Typing(self.fail)
        self.packs = Packs(s, state.specs, state.params, self.constant_int, self.fail)
        self.pack_sizes: dict[str, int] = {}
        self.position: int | None = None  # inside a pack's pattern: which element
        self.in_subscript = 0
        self.alone: dict[str, tuple[int, str]] = {}  # index → extent and the read that says so

    def fail(self, message: str, pos: int | None = None) -> NoReturn:
        self.state.fail(self.s.pos if pos is None else pos, message)

    # -- The statement

    def bind(self) -> Statement | None:
        s, specs = self.s, self.state.specs
        self.pack_sizes = self.packs.solved()
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
            return self._empty_reduction(target.dtype, [IndexSpace(loops).simplify(x) for x in subs[0]], loops)
        space = IndexSpace(loops + reductions)
        if greatest(math.prod(n for _, n in loops + reductions)) > MAX_TRIPS:
            self.fail(f"the statement's value is evaluated more than {MAX_TRIPS} times")
        node = Finisher(specs, space, self.fail).finish(node)
        self._check_self_read(node, tuple(map(space.simplify, subs[0])))
        return self._make(node, [space.simplify(x) for x in subs[0]], loops, reductions)

    def _make(self, node: Node, subs: list[Node], loops: list[Loop], reductions: list[Loop]) -> Statement:
        s = self.s
        first = s.targets[0]
        kept = tuple((name, n) for name, n in loops if n != 1)
        reduced = tuple((name, n) for name, n in reductions if n != 1)
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
        kept = tuple((name, n) for name, n in loops if n != 1)
        value = self._assignable(weak_constant(reduction_identity(s.op, dtype)), dtype)
        return Statement(s.targets[0].name, tuple(subs), "=", value, kept, flat=s.targets[0].flat)

    def _assignable(self, value: Typed, dtype: DType) -> Node:
        if value.weak or dtype.kind == "bool" or value.node.dtype is (F32 if dtype.is_short else dtype):
            return cast(value.node, dtype)
        self.fail(f"a value of dtype {value.node.dtype} is assigned to '{self.s.targets[0].name}' of dtype {dtype}")

    def _check_self_read(self, node: Node, subs: tuple[Node, ...]) -> None:
        """A statement may read its own target at the index written, and only with ``=``."""
        for n in walk_nodes(node):
            if isinstance(n, Read) and n.tensor in {t.name for t in self.s.targets}:
                if self.s.op != "=" or n.subs != subs or n.flat != self.s.targets[0].flat:
                    self.fail(f"'{n.tensor}' is read at another index than the one that is written")

    # -- Indices

    def _target_subs(self, t: StatementTarget) -> list[Node]:
        subs = self.subscripts(t.subs)
        spec = self.state.specs.get(t.name)
        rank = None if spec is None else 1 if t.flat else spec.ndim
        if rank is not None and rank != len(subs):
            self.fail(f"'{t.name}' has rank {rank}, got {len(subs)} subscripts", t.pos)
        space = IndexSpace(())
        seen: set[Any] = set()
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

    def _extent(self, name: str, ranges: dict[str, int], room: int | None) -> int:
        """The range of an index: what the statement says, else all that there is room for, or that is read."""
        n = ranges.get(name, room if room is not None else self.alone.get(name, (None,))[0])
        if n is None:
            wanted = f"read it alone as a subscript, or write for {name} < …"
            self.fail(f"the extent of index '{name}' is not known: {wanted}")
        return n

    def _loops(self, target: StatementTarget, subs: list[Node], ranges: dict[str, int]) -> list[Loop]:
        """The loops over the target, in the order of its subscripts, with their extents."""
        spec = self.state.specs.get(target.name)
        dims = None if spec is None else ((spec.len,) if target.flat else spec.dims)
        loops: list[Loop] = []
        for k, sub in enumerate(subs):
            offset, name = IndexSpace(()).written(sub)
            room = None if dims is None else dims[k] - offset
            if name is None:
                if room is None or room < 1:
                    self.fail(f"subscript {offset} of '{target.name}' is outside", target.pos)
                continue
            n = self._extent(name, ranges, room)
            if room is not None and n > room:
                self.fail(f"index '{name}' ranges over {n}, '{target.name}' has room for {room}", target.pos)
            loops.append((name, n))
        return loops

    def _reductions(self, value: Node, loops: dict[str, int], ranges: dict[str, int]) -> list[Loop]:
        names = [n.name for n in walk_nodes(value) if isinstance(n, Idx)] + list(ranges)
        reductions: dict[str, int] = {}
        for name in names:
            if name in loops or name in reductions:
                continue
            if self.s.op == "=":
                self.fail(f"index '{name}' is not on the left, and '=' does not reduce")
            reductions[name] = self._extent(name, ranges, None)
        return list(reductions.items())

    def _declare(self, t: StatementTarget, subs: list[Node], loops: list[Loop], value: Typed, index: bool) -> None:
        """A name on the left that is no result is a local tensor, as large as its indices range."""
        if t.name in self.state.specs:
            return
        extents = dict(loops)
        if t.flat or not all(isinstance(s, Idx) for s in subs):
            self.fail(f"the first assignment to local '{t.name}' has plain indices", t.pos)
        dtype = BY_NAME["i32"] if index else value.node.dtype
        spec = TensorSpec(tuple(extents[s.name] for s in subs if isinstance(s, Idx)), dtype)
        if greatest(spec.nbytes) > MAX_TENSOR_BYTES:
            self.fail(f"local '{t.name}' has {spec.nbytes} bytes", t.pos)
        self.state.locals[t.name] = self.state.specs[t.name] = spec

    # -- Expressions

    def expr(self, e: Expr) -> Typed:
        """Bind an expression."""
        folds = isinstance(e, Attr | Call | Select) or (isinstance(e, Binary) and e.op in constants.COMPARISONS)
        with suppress(Undecided):  # what each call decides is computed there
            if folds and self._is_constant(e):
                return self._folded(e)
        match e:
            case Num(value=value):
                return weak_constant(value)
            case Str():
                self.fail("a string stands only in a comparison of constants", e.pos)
            case Name():
                return self._name(e)
            case Unary(op=op, arg=arg):
                return self.values.unary(op, self.expr(arg), e.pos)
            case Binary(op="&&" | "||" as op, left=left, right=right):
                a, b = self.values.condition(self.expr(left)), self.values.condition(self.expr(right))
                return self.values.logical(op, a, b)
            case Binary(op=op, left=left, right=right):
                return self.values.binary(op, self.expr(left), self.expr(right), e.pos, self.in_subscript > 0)
            case Select(cond=cond, then=then, other=other):
                return self._select(self.values.condition(self.expr(cond)), then, other, e.pos)
            case Call(fn=fn, args=args):
                return self._call(fn, args, e.pos)
            case Index():
                return self._index(e)
        self.fail("unexpected expression", e.pos)

    def _is_constant(self, e: Expr) -> bool:
        """Return whether a value follows from dims and parameters alone, as one number (not element by element of a
        pack).
        """
        for x in walk_expr(e):
            if isinstance(x, Name) and x.name not in self.state.params and x.name not in self.state.specs:
                return False
            if isinstance(x, Index) and indexed_tensor(x) in self.state.specs and not _is_dims(x):
                return False
            if isinstance(x, Call) and x.fn not in constants.FUNCTIONS and x.fn not in constants.ARRAY_FUNCTIONS:
                return False
            if self.in_subscript and isinstance(x, Binary) and x.op in ("/", "%"):
                return False
        return self.position is None or not isinstance(e, (Binary, Select))

    def _evaluate(self, e: Expr) -> Any:
        try:
            return constants.compile_constant(e)(self.state.env)
        except LightNetError as error:
            if error.loc is None and not isinstance(error, Undecided):
                self.fail(error.message, e.pos)
            raise

    def _folded(self, e: Expr) -> Typed:
        value = self._evaluate(e)
        if isinstance(value, tuple):
            if self.position is None:
                self.fail(f"'{ast.format_expr(e)}' is an array", e.pos)
            if self.position >= len(value):
                self.fail(f"'{ast.format_expr(e)}' has {len(value)} elements, the pack has more", e.pos)
            value = value[self.position]
        if not isinstance(value, constants.NUMBER):
            self.fail(f"'{ast.format_expr(e)}' is no number: {constants.show_value(value)}", e.pos)
        return weak_constant(value)

    def constant_int(self, e: Expr, what: str) -> Any:
        value = self._evaluate(e)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | Dim):
            self.fail(f"{what} is {constants.show_value(value)}, not an integer", e.pos)
        return value

    def _name(self, e: Name) -> Typed:
        if e.name in self.state.params:
            return self._folded(e)
        if e.name in self.state.specs:
            self.fail(f"tensor '{e.name}' is read without subscripts", e.pos)
        if e.name in self.pack_sizes:
            if self.position is None:
                self.fail(f"pack '{e.name}' stands outside of a subscript list", e.pos)
            return Typed(Idx(f"{e.name}.{self.position}"), True)
        if e.name in RUNTIME_FUNCTIONS:
            self.fail(f"'{e.name}' is a function", e.pos)
        return Typed(Idx(e.name), True)

    def _select(self, cond: Node, then: Expr, other: Expr, pos: int) -> Typed:
        if isinstance(cond, Const):  # the other arm may make no sense for these shapes
            return self.expr(then if cond.value else other)
        return self.values.select(cond, self.expr(then), self.expr(other), pos)

    def _call(self, fn: str, args: tuple[Expr, ...], pos: int) -> Typed:
        dtype = BY_NAME[fn] if fn in BY_NAME and not BY_NAME[fn].is_stored else None
        if fn in CONVERSIONS:
            if len(args) != 2 or not isinstance(args[1], Name) or args[1].name not in self.state.specs:
                self.fail(f"{fn} takes a value and the name of a tensor", pos)
            dtype, args = self.state.env.tensors[args[1].name].dtype, args[:1]
        if dtype is not None:
            if len(args) != 1:
                self.fail(f"{fn} takes one value, got {len(args)}", pos)
            return self.values.converted(fn, self.expr(args[0]).node, dtype, pos)
        if fn not in RUNTIME_FUNCTIONS:
            self.fail(f"unknown function '{fn}'; there are: {', '.join(sorted(RUNTIME_FUNCTIONS))}", pos)
        return self.values.call(fn, [self.expr(a) for a in args], pos)

    # -- Reads

    def subscripts(self, subs: Iterable[Expr | Pack | ArraySlice]) -> list[Node]:
        """Bind a subscript list: packs expanded, every subscript an i64."""
        nodes: list[Node] = []
        outer, self.in_subscript = self.position, self.in_subscript + 1
        for sub in subs:
            if isinstance(sub, ArraySlice):
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
        sizes = {self.pack_sizes[n] for n in self.packs.names(pack) if n in self.pack_sizes}
        if len(sizes) != 1:
            self.fail("the packs of a pattern have different sizes", pack.pos)
        return sizes.pop()

    def _integer(self, x: Typed, pos: int) -> Node:
        if isinstance(x.node, Const) and isinstance(x.node.value, float) and x.node.value.is_integer():
            return Const(int(x.node.value), I64)
        if x.node.dtype.is_float:
            self.fail("a subscript is an integer; convert it with i64(…)", pos)
        return cast(x.node, I64)

    def _index(self, e: Index) -> Typed:
        name = indexed_tensor(e)
        if name in self.state.specs and not _is_dims(e):
            return self._read(e, name)
        if isinstance(e.base, Name) and e.base.name in self.pack_sizes:
            return self._pack_element(e, e.base.name)
        if self._is_constant(e):
            return self._folded(e)
        if isinstance(e.base, Name) and e.base.name not in self.state.params:
            self.fail(f"unknown tensor '{e.base.name}'", e.pos)
        return self._table(e)

    def _pack_element(self, e: Index, name: str) -> Typed:
        alone = len(e.subs) == 1 and not isinstance(e.subs[0], Pack | ArraySlice)
        value = self._evaluate(e.subs[0]) if alone else None  # type: ignore[arg-type]
        if isinstance(value, tuple) and self.position is not None and self.position < len(value):
            value = value[self.position]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not 0 <= value < self.pack_sizes[name]:
            self.fail(f"'{ast.format_expr(e)}' is no element of a pack of {self.pack_sizes[name]} indices", e.pos)
        return Typed(Idx(f"{name}.{value}"), True)

    def _table(self, e: Index) -> Typed:
        """An array of constants, indexed by a loop index."""
        values, subs = self._evaluate(e.base), self.subscripts(e.subs)
        if not isinstance(values, tuple) or not values or len(subs) != 1 or len(values) > 64:
            self.fail("an array indexed by an index has 1 to 64 constants and one subscript", e.pos)
        if not all(isinstance(v, constants.NUMBER) for v in values):
            self.fail("an array indexed by an index holds numbers", e.pos)
        dtype = F64 if any(isinstance(v, float) for v in values) else I64
        table = Apply("table", (subs[0], *(cast(weak_constant(v).node, dtype) for v in values)), dtype)
        return Typed(table, True)

    def _read(self, e: Index, name: str) -> Typed:
        spec = self.state.specs[name]
        if name not in self.state.assigned and (name in self.state.results or name in self.state.locals):
            self.fail(f"'{name}' is read before it is written", e.pos)
        flat = isinstance(e.base, Attr)
        if isinstance(e.base, Attr) and e.base.attr != "flat":
            self.fail(f"'{ast.format_expr(e)}' is no read", e.pos)
        subs = self.subscripts(e.subs)
        dims = (spec.len,) if flat else spec.dims
        if len(subs) != len(dims):
            self.fail(f"'{name}' has rank {len(dims)}, got {len(subs)} subscripts", e.pos)
        filler = None
        if e.filler is not None:
            filler = self._filler(e.filler, spec.dtype, e.pos)
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
        return Typed(widened_value(node))

    def _left_names(self) -> set[str]:
        return {x.name for t in self.s.targets for s in t.subs for x in walk_expr(s) if isinstance(x, Name)} | {
            f"{p}.{k}" for p, n in self.pack_sizes.items() for k in range(n)
        }

    def _filler(self, e: Expr, dtype: DType, pos: int) -> Node:
        outer, self.in_subscript = self.in_subscript, 0
        value = self.expr(e)
        self.in_subscript = outer
        if not value.weak and value.node.dtype is not (F32 if dtype.is_short else dtype):
            self.fail(f"the filler's dtype is {value.node.dtype}, the tensor's {dtype}", pos)
        return cast(value.node, dtype)


def _is_dims(e: Index) -> bool:
    return isinstance(e.base, Attr) and e.base.attr == "dims"
