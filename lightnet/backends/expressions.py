"""Elementwise ops on register tiles: the epilogue of a tiled kernel, from the ops' definitions.

A tile holds some dimensions of a tensor, the others are fixed by indices. An op's index notation is evaluated on tiles:
the value being computed stands in registers, other tensors are loaded at the same index. Imports the notation, the
builder and the tile dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.elementwise import applied, constant, loaded_value, takes_vectors
from lightnet.backends.kernel_loops import bind_op
from lightnet.dataclasses import dataclass
from lightnet.ir import bound, notation
from lightnet.ir.body import epilogue_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.types import spec_of

#: The types of tiles: floats, and bf16 and integers to which a network rounds them, with their sums; in registers
#: conditions, too.
ON_TILES = frozenset(("f32", "bf16", "i32", "i16", "i8", "ui8"))
IN_REGISTERS = ON_TILES | {"i1"}


def runs_on_tiles(op: LnOp, along: Sequence[int] = (0, 1), short: bool = False, casts: bool = False) -> bool | Refusal:
    """Return whether a `TileEvaluator` can run `op`: elementwise, once its shapes are known, in functions that tiles
    have. Tensors of other shapes may be read along the dimensions `along`. The default suits pictures (a value for each
    channel): their last two are a kernel's to walk as it likes. `short`: tiles may be of f16 and bf16, too, and are
    converted; `casts`: they may be of integers and bf16, which are converted from and to floats."""
    key = (op.name, tuple(sorted(op.properties.items())), tuple(op.operand_types), tuple(along), short, casts)
    if key not in _known:
        _known[key] = _runs_on_tiles(op, along, short, casts)
    return _known[key]


_known: dict[object, bool | Refusal] = {}


def _runs_on_tiles(op: LnOp, along: Sequence[int], short: bool, casts: bool) -> bool | Refusal:
    if op.definition is None or op.is_host or len(op.results) != 1 or not op.operands:
        return Refusal("{} has no definition of one result", op.optype)
    if [s.op for s in notation.parse(op.definition).statements] != ["="]:  # binding takes longer than looking
        return Refusal("the definition of {} is more than one statement with =", op.optype)
    definition = bind_op(op)
    if len(definition.statements) != 1 or definition.locals:
        return Refusal("the definition of {} is more than one statement, for these shapes", op.optype)
    (statement,) = definition.statements
    if statement.op != "=" or statement.arg or not all(isinstance(s, _SIMPLE) for s in statement.subs):
        return Refusal("{} writes at indices that tiles have not", op.optype)
    dims = definition.specs[statement.tensor].dims
    free = {s.name for k, s in enumerate(statement.subs) if k in along and isinstance(s, bound.Idx)}
    if not _supported(statement.value, short, casts):
        return Refusal("{} computes what has no vectors", op.optype)
    return all(
        not r.flat
        and r.filler is None
        and (r.subs == statement.subs if definition.specs[r.tensor].dims == dims else _picks(r.subs, free))
        for r in bound.reads(statement.value)
    ) or Refusal("{} reads elements that lie elsewhere than the tile, or not along its channels", op.optype)


def stays_on_tiles(op: LnOp, anchor: LnOp, along: Sequence[int], types: Sequence[str] = ()) -> bool | Refusal:
    """Return whether `op` runs on tiles of the result of `anchor`, and has its shape, and one of `types` (of none:
    that of `anchor`, or where this is one of `ON_TILES`, of those)."""
    other = Refusal("{} has other shapes than {}, or types that tiles have not", op.optype, anchor.optype)
    if not types and anchor.result_specs[0].dtype.name in ON_TILES:
        kinds = [s.dtype.name in IN_REGISTERS for s in (*op.operand_specs, *op.result_specs)]
        same = [s.dims for s in op.result_specs] == [s.dims for s in anchor.result_specs]
        return runs_on_tiles(op, along, casts=True) if same and all(kinds) else other
    if not types:
        return runs_on_tiles(op, along) if op.result_specs == anchor.result_specs else other
    specs = [*op.operand_specs, *op.result_specs]
    dims = [s.dims for s in op.result_specs] == [anchor.result_specs[0].dims]
    known = dims and all(s.dtype.name in types for s in specs)
    return runs_on_tiles(op, along, short=True) if known else other


def has_tile_epilogue(ops: Sequence[LnOp], yielded: Sequence[SSAValue], along: Sequence[int] = (0, 1),
                      types: Sequence[str] = ()) -> bool | Refusal:  # fmt: skip
    """Return whether what follows the first of `ops` is an epilogue on tiles of its result (`stays_on_tiles`), and
    these ops make all that is `yielded`. They may read smaller tensors along the dimensions `along`.
    """
    inside = epilogue_of(ops, lambda op: stays_on_tiles(op, ops[0], along, types))
    if isinstance(inside, Refusal):
        return inside
    stored = inside >= set(yielded) and all(spec_of(v.type).dtype.name != "i1" for v in yielded)
    return stored or Refusal("it yields what its ops do not make, or bools, which tiles do not store")


#: Subscripts of a plain read; a dimension of 1 has the constant index 0.
_SIMPLE = (bound.Idx, bound.Const)


def _picks(subs: Sequence[bound.Node], indices: set[str]) -> bool:
    """Return whether subscripts are constants and different ones of `indices`."""
    names = [s.name for s in subs if isinstance(s, bound.Idx)]
    return all(isinstance(s, _SIMPLE) for s in subs) and set(names) <= indices and len(set(names)) == len(names)


def _supported(node: bound.Node, short: bool, casts: bool) -> bool:
    if not isinstance(node, bound.Apply):
        return not isinstance(node, bound.Idx)
    if node.fn != "cast":  # a bias may be added to sums of integers
        taken = takes_vectors(node) or (casts and node.fn == "add" and node.dtype.name == "i32")
    elif node.dtype.is_float and node.args[0].dtype.is_float:
        taken = short or casts
    else:
        taken = casts and node.dtype.kind != "bool"
    return taken and all(_supported(a, short, casts) for a in node.args)


@dataclass(frozen=True)
class TileView:
    """The place of a tile: `indices` of its first element in the full tensor, and which tensor dimension each of its
    dimensions walks, by what step; `valid` extents, or None when the whole tile is inside."""

    indices: Sequence[Index]
    dims: Sequence[int]
    shape: tuple[int, ...]
    steps: Sequence[int]
    valid: Sequence[int] | None


class TileEvaluator:
    """Evaluates definitions on tiles. `memory` maps SSA values of the kernel's body to memrefs, `registers` to
    tiles."""

    def __init__(self, b: Builder, tile: TileView, memory: Callable[[SSAValue], SSAValue]):
        self.b, self.tile, self.memory, self.shape = b, tile, memory, tile.shape
        self.registers: dict[SSAValue, SSAValue] = {}
        self.dims: tuple[int, ...] = ()
        self.names: dict[str, SSAValue] = {}
        self.position: dict[str, int] = {}
        self.cache: dict[bound.Node, SSAValue] = {}

    def run(self, op: LnOp) -> None:
        """Evaluate an elementwise op; its result goes to `registers`, and what computes it has its location."""
        outside, self.b.location = self.b.location, op.location
        self.dims, self.cache = op.result_specs[0].dims, {}
        (statement,) = bind_op(op).statements
        self.names = dict(zip(op.arg_names()[0], op.operands))
        self.position = {s.name: i for i, s in enumerate(statement.subs) if isinstance(s, bound.Idx)}
        self.registers[op.results[0]] = self.value(statement.value)
        self.b.location = outside

    def value(self, node: bound.Node) -> SSAValue:
        """The tile of an expression."""
        if node not in self.cache:
            self.cache[node] = self.computed(node)
        return self.cache[node]

    def computed(self, node: bound.Node) -> SSAValue:
        b = self.b
        if isinstance(node, bound.Const):
            return constant(b, node, self.shape)
        if isinstance(node, bound.Read):
            return loaded_value(b, self.read(self.names[node.tensor], node.subs), node.dtype)
        assert isinstance(node, bound.Apply)
        return applied(b, node, [self.value(a) for a in node.args])

    def read(self, value: SSAValue, subs: Sequence[bound.Node]) -> SSAValue:
        """The tile of `value` at the current index; one of its dimensions that the tile does not walk is repeated."""
        if value in self.registers:
            return self.registers[value]
        tile = self.tile
        if spec_of(value.type).dims == self.dims:  # as the result, however its memory is walked
            return self.b.tile_load(
                self.memory(value), tile.indices, tile.dims, tile.shape, steps=tile.steps, valid=tile.valid
            )
        if not subs:
            return self.b.broadcast(self.b.load(self.memory(value), []), tile.shape)
        indices: list[Index] = []
        walks: dict[int, int] = {}  # dimension of the output -> dimension of this tensor
        for d, sub in enumerate(subs):
            if isinstance(sub, bound.Const):
                indices.append(int(sub.value))
            else:
                out = self.position[sub.name]
                indices.append(tile.indices[out])
                walks[out] = d
        dims = [walks.get(out, 0) for out in tile.dims]
        steps = [s if out in walks else 0 for out, s in zip(tile.dims, tile.steps)]
        valid = tile.valid if any(out in walks and s for out, s in zip(tile.dims, steps)) else None
        return self.b.tile_load(self.memory(value), indices, dims, tile.shape, steps=steps, valid=valid)
