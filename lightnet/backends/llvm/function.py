"""The state of one function while it is emitted as LLVM IR text: scopes, placement, addresses, demand.

Three rules give the code its quality without LLVM's middle end:

* *Demand*: a load or an elementwise op on vectors is emitted leaf by leaf when a consumer asks, as long as all its uses
  are in its own block and neither a store to what it reads nor a nested region stands between.
* *Placement*: index arithmetic goes as far out as its deepest symbol allows, just before the loop that does not need
  it.
* *Freeze*: in register-tiled kernels the pointer of each loop level is frozen, so that scalar evolution sees no
  recurrence and loop strength reduction (half of the time of code generation) has nothing to do.

The handlers of the ops are in `scalar_ops`, `index_ops`, `memory_ops`, `slice_ops`, `vector_ops`, `shuffle_ops` and
`control`. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import gcd
from types import MappingProxyType
from typing import Any

from xdsl.dialects.builtin import IndexType, MemRefType, VectorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from lightnet.backends.llvm.values import (
    Dots,
    Lin,
    Mem,
    Sym,
    Vec,
    forget,
    leaf_lanes,
    leaf_type,
    llvm_type,
    mangled,
    size_of,
    splat_literal,
)
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError

Value = str | Lin | Mem | Vec
#: It gets ops of the class that it stands under.
Handler = Callable[["FunctionEmitter", Any], None]


@dataclass(slots=True)
class RegionScope:
    """A region being emitted. `pre` is the place just before the construct, in the scope around it."""

    pre: list
    lines: list = field(default_factory=list)
    #: What is available from here on: pure values by key.
    table: dict[Hashable, str] = field(default_factory=dict)
    #: Lazy vectors and how many uses are still to come.
    pending: dict[SSAValue, int] = field(default_factory=dict)
    #: Elements and leaves already loaded, by root; dropped when the root is written.
    loads: dict[str, dict[Hashable, str]] = field(default_factory=dict)


class FunctionEmitter:
    """Emits one function's body. `width` is the number of lanes of a hardware vector of f32, `tiled` switches freeze
    on; `has_half` says that the processor converts between half and float, `has_bfloat` that it rounds to bfloat,
    `has_fma` that it multiplies and adds in one step, `has_rounding` that it rounds to whole numbers,
    `dots` which sums of products of small integers it has. `elementary` has the target's own emitters of elementwise
    ops, which go before those of `scalar_ops`."""

    def __init__(
        self,
        width: int,
        tiled: bool,
        handlers: dict[type[Operation], Handler],
        has_half: bool = False,
        has_bfloat: bool = False,
        has_fma: bool = True,
        has_rounding: bool = True,
        dots: Dots = Dots(),
        elementary: Mapping[type[Operation], Callable[..., str]] = MappingProxyType({}),
    ):
        self.width, self.tiled, self._handlers, self.has_half = width, tiled, handlers, has_half
        self.has_bfloat, self.has_fma, self.has_rounding = has_bfloat, has_fma, has_rounding
        self.dots, self.elementary = dots, elementary
        self.scopes = [RegionScope([])]
        self.entry: list[str] = []  # allocas: constant in size, so they stand in the entry block
        self.stack = 0  # bytes of them
        self.label = "entry"
        self.vals: dict[SSAValue, Value] = {}
        self.declared: set[str] = set()
        self.calls: set[str] = set()
        self.ahead: set[Operation] = set()  # emitted before their turn, by the handler of an op that stands before them
        self._names = 0
        self._symbols: dict[str, Sym] = {}

    # ---- text ----------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def new_label(self, hint: str) -> str:
        self._names += 1
        return f"{hint}{self._names}"

    def emit(self, line: str) -> None:
        self.scopes[-1].lines.append(line)

    def ins(self, text: str) -> str:
        """Emit an instruction with a result here; returns the result's name."""
        self._names += 1
        name = f"%v{self._names}"
        self.scopes[-1].lines.append(f"{name} = {text}")
        return name

    def shared(self, key: Hashable, make: Callable[[], str]) -> str:
        """A pure value by key: what an enclosing scope has already, else `make()`, here."""
        for scope in self.scopes:
            if key in scope.table:
                return scope.table[key]
        value = self.scopes[-1].table[key] = make()
        return value

    def hoisted(self, depth: int, key: Hashable, text: str) -> str:
        """A pure instruction whose operands are defined at `depth` or further out, emitted there."""
        table = self.scopes[depth].table
        name = table.get(key)
        if name is None:
            name = table[key] = self.name()
            lines = self.scopes[-1].lines if depth == self.depth else self.scopes[depth + 1].pre
            lines.append(f"{name} = {text}")
        return name

    def intrinsic(
        self, name: str, type: str, args: Sequence[tuple[str, str]], flags: str = "", suffix: str = ""
    ) -> str:
        """Call ``llvm.<name>`` overloaded on the result's type (or on `suffix`); args are (type, operand)."""
        symbol = f"llvm.{name}.{suffix or mangled(type)}"
        return self.ins(self.call_text(symbol, type, args, flags))

    def call_text(self, symbol: str, type: str, args: Sequence[tuple[str, str]], flags: str = "") -> str:
        call = self.declared_call(symbol, type, [t for t, _ in args], flags)
        return f"{call}({', '.join(f'{t} {a}' for t, a in args)})"

    def declared_call(self, symbol: str, type: str, args: Sequence[str], flags: str = "") -> str:
        """The text before the arguments, of these types, of calls of `symbol`, which is declared."""
        self.declared.add(f"declare {type} @{symbol}({', '.join(t.split(' align')[0] for t in args)})")
        return f"call {flags}{type} @{symbol}"

    # ---- index arithmetic ----------------------------------------------------------------------------------------

    def index(self, lin: Lin, flags: str = "") -> str:
        """The i64 operand of a linear form. `flags` is ``" nsw"`` where the sum is an address inside an object."""
        if not lin.terms:
            return str(lin.const)
        if lin.const:
            inner = self.index(Lin(0, lin.terms), flags)
            return self.hoisted(lin.depth, (lin, flags), f"add{flags} i64 {inner}, {lin.const}")
        sym, coeff = lin.terms[-1]
        term = sym.name
        if coeff != 1:
            term = self.hoisted(sym.depth, (sym, coeff, flags), f"mul{flags} i64 {term}, {coeff}")
        if len(lin.terms) == 1:
            return term
        inner = self.index(Lin(0, lin.terms[:-1]), flags)
        return self.hoisted(lin.depth, (lin, flags), f"add{flags} i64 {inner}, {term}")

    def symbol(self, name: str) -> Lin:
        """The linear form of an i64 value defined here."""
        return Lin(0, ((Sym(name, self.depth), 1),))

    def symbol_at(self, name: str, depth: int) -> Lin:
        """The linear form of an i64 value defined in the scope at `depth`; one symbol a name."""
        sym = self._symbols.get(name)
        if sym is None:
            sym = self._symbols[name] = Sym(name, depth)
        return Lin(0, ((sym, 1),))

    def get_index(self, value: SSAValue) -> Lin:
        known = self.vals[value]
        assert isinstance(known, Lin)
        return known

    def get_vec(self, value: SSAValue) -> Vec:
        known = self.vals[value]
        assert isinstance(known, Vec)
        return known

    def operand(self, value: SSAValue) -> str:
        """The LLVM operand of a scalar."""
        known = self.vals[value]
        if isinstance(known, Lin):
            return self.index(known)
        assert isinstance(known, str)
        return known

    def scalar_result(self, value: SSAValue, text: str) -> None:
        """Bind a scalar result that was emitted here."""
        self.vals[value] = self.symbol(text) if isinstance(value.type, IndexType) else text

    # ---- addresses -----------------------------------------------------------------------------------------------

    def address(self, mem: Mem, indices: Sequence[SSAValue], elem: str) -> tuple[Lin, int]:
        """The byte offset of an element from the root, and the alignment of the varying part."""
        size = size_of(elem)
        total = mem.offset
        for index, stride in zip(indices, mem.strides):
            total = total + self.get_index(index).scaled(stride * size)
        align = mem.align
        for _, coeff in total.terms:
            align = gcd(align, coeff)
        return total, align

    def pointer(self, root: str, offset: Lin, extra: int = 0) -> str:
        """The pointer ``root + offset + extra`` bytes."""
        const = offset.const + extra
        if not self.tiled:
            if not offset.terms and not const:
                return root
            text = self.index(Lin(const, offset.terms), " nsw")
            return self.shared(
                ("gep", root, text), lambda: self.ins(f"getelementptr inbounds i8, ptr {root}, i64 {text}")
            )
        base = self._frozen(root, offset.terms)
        if not const:
            return base
        return self.shared(("gep", base, const), lambda: self.ins(f"getelementptr i8, ptr {base}, i64 {const}"))

    def _frozen(self, root: str, terms: tuple[tuple[Sym, int], ...]) -> str:
        """Root plus the varying part: one frozen pointer a scope depth, each from that of the depth around it."""
        if not terms:
            return root
        depth = terms[-1][0].depth
        key = ("ptr", root, terms)
        known = self.scopes[depth].table.get(key)
        if known is not None:
            return known
        outer = tuple(t for t in terms if t[0].depth < depth)
        base = self._frozen(root, outer)
        step = self.index(Lin(0, terms[len(outer) :]), " nsw")
        moved = self.hoisted(depth, ("gep", base, step), f"getelementptr i8, ptr {base}, i64 {step}")
        return self.hoisted(depth, key, f"freeze ptr {moved}")

    # ---- vectors -------------------------------------------------------------------------------------------------

    def vec(
        self,
        type: VectorType,
        make_leaf: Callable[[int], str],
        make_scalar: Callable[[int], str | None] | None = None,
        roots: frozenset[str] = frozenset(),
    ) -> Vec:
        """A vector value of `type` whose leaves are made on demand."""
        shape = type.get_shape()
        return Vec(llvm_type(type.element_type), shape, leaf_lanes(shape, self.width), make_leaf, make_scalar, roots)

    def forget(self) -> None:
        """Let go of all values (`values.forget`)."""
        forget(self.vals)
        self.scopes.clear()

    def bind(self, value: SSAValue, vec: Vec) -> None:
        """Bind a vector result: it stays lazy if all its uses are in its own block, else it is emitted now."""
        self.vals[value] = vec
        uses = list(value.uses)
        if not uses:
            return
        block = value.owner.parent if isinstance(value.owner, Operation) else value.owner
        if all(use.operation.parent is block for use in uses):
            self.scopes[-1].pending[value] = len(uses)
        else:
            vec.force()

    def element(self, vec: Vec, i: int) -> str:
        """Element i (row-major) of a vector as a scalar operand."""
        text = vec.lazy_scalar(i)
        if text is not None:
            return text
        leaf, lane = vec.leaf(i // vec.lanes), i % vec.lanes
        return self.shared(("lane", leaf, lane), lambda: self.ins(f"extractelement {vec.leaf_type} {leaf}, i64 {lane}"))

    def splat(self, elem: str, lanes: int, scalar: str) -> str:
        """A leaf with all lanes equal to `scalar`."""
        if lanes == 1:
            return scalar
        if not scalar.startswith("%"):
            return splat_literal(elem, lanes, scalar)
        return self.shared(("splat", scalar, lanes), lambda: self._splat(leaf_type(elem, lanes), elem, lanes, scalar))

    def _splat(self, type: str, elem: str, lanes: int, scalar: str) -> str:
        first = self.ins(f"insertelement {type} poison, {elem} {scalar}, i64 0")
        return self.ins(f"shufflevector {type} {first}, {type} poison, <{lanes} x i32> zeroinitializer")

    def leaf_of_elements(self, elem: str, elements: Sequence[str]) -> str:
        """A leaf put together from scalars."""
        if len(elements) == 1:
            return elements[0]
        type, leaf = leaf_type(elem, len(elements)), "poison"
        for lane, text in enumerate(elements):
            leaf = self.ins(f"insertelement {type} {leaf}, {elem} {text}, i64 {lane}")
        return leaf

    def written(self, root: str) -> None:
        """Before a store to `root`: emit the lazy values that read from it, forget what was loaded."""
        for value in list(self.scopes[-1].pending):
            vec = self.get_vec(value)
            if root in vec.roots:
                vec.force()
        self.scopes[-1].loads.pop(root, None)

    def settle(self) -> None:
        """Before a nested region or a call: emit every lazy value that still has uses, forget what was loaded."""
        for value in list(self.scopes[-1].pending):
            self.get_vec(value).force()
        self.scopes[-1].pending.clear()
        self.scopes[-1].loads.clear()

    # ---- walking -------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Emit the ops of a block in order, its terminator included (which binds nothing)."""
        pending, ahead = self.scopes[-1].pending, self.ahead
        for op in block.ops:
            if not ahead or op not in ahead:
                self.op(op)
            for value in op.operands if pending else ():
                left = pending.get(value)
                if left is not None:
                    if left == 1:
                        del pending[value]
                    else:
                        pending[value] = left - 1

    def op(self, op: Operation) -> None:
        """Emit one op."""
        handler = self._handlers.get(type(op))
        if handler is None:
            raise LightNetError(f"the LLVM back end has no op '{op.name}'")
        handler(self, op)

    def parts(self, value: SSAValue) -> list[str]:
        """The LLVM operands that make up a value: one for a scalar, the leaves for a vector."""
        known = self.vals[value]
        if isinstance(known, Vec):
            return [known.leaf(f) for f in range(known.count)]
        if isinstance(known, Mem):
            raise LightNetError("a memref cannot be carried through control flow")
        return [self.operand(value)]

    def part_types(self, type: Attribute) -> list[str]:
        """The LLVM types of `parts` for a value of `type`."""
        if isinstance(type, VectorType):
            shape = type.get_shape()
            lanes = leaf_lanes(shape, self.width)
            count = 1
            for n in shape:
                count *= n
            return [leaf_type(llvm_type(type.element_type), lanes)] * (count // lanes)
        if isinstance(type, MemRefType):
            raise LightNetError("a memref cannot be carried through control flow")
        return [llvm_type(type)]

    def bind_parts(self, value: SSAValue, parts: Sequence[str]) -> None:
        """Bind a value that is made of LLVM values defined here; the converse of `parts`."""
        type = value.type
        if isinstance(type, VectorType):
            shape = type.get_shape()
            lanes = leaf_lanes(shape, self.width)
            self.vals[value] = Vec.of_leaves(llvm_type(type.element_type), shape, lanes, list(parts))
        elif isinstance(type, IndexType) and not parts[0].startswith("%"):
            self.vals[value] = Lin(int(parts[0]))
        else:
            self.scalar_result(value, parts[0])


def flatten(lines: list, out: list[str]) -> list[str]:
    """The nested line lists of scopes as one list."""
    for line in lines:
        if isinstance(line, str):
            out.append(line)
        else:
            flatten(line, out)
    return out
