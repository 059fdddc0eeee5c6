"""Verification with errors that a user can read: the op's own place, message and text.

xDSL's `Operation.verify` attaches the module in generic form to each error (a megabyte for ten thousand ops), knows no
places, and does not check dominance. `verify_module` runs the same checks of every op, and that one too. Imports xDSL
and the lower modules of `ir`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, ErasedSSAValue, Operation, Region, SSAValue
from xdsl.irdl.dominance import DominanceInfo
from xdsl.traits import HasParent, IsTerminator, NoTerminator, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import sources_of
from lightnet.ir.counts import COUNTS, counts_of
from lightnet.ir.locations import SourceMap, loc_of
from lightnet.ir.names import OP_NAME, TENSORS
from lightnet.ir.printer import LnPrinter

#: Blocks of one region: xDSL's dominance takes the square of it. Our levels have one block in each region.
MAX_BLOCKS = 256
#: Characters of an op that an error shows.
MAX_OP_TEXT = 400
#: Dialects whose ops are right or wrong by their own types, attributes and properties alone. Of level 4 they are most,
#: and most are alike.
LOCAL = frozenset({"arith", "math", "memref", "vector"})
#: Kinds of their ops that are known to be right, at most.
MAX_KINDS = 1 << 12


def verify_module(module: ModuleOp, ctx: Context | None = None) -> None:
    """Check that `module` is well formed and that every op in it holds its constraints.

    Raises `LightNetError` for the first op that does not; with `ctx`, the error shows the source line.
    """
    for error in module_errors(module, ctx, limit=1):
        raise error


def module_errors(module: ModuleOp, ctx: Context | None = None, *, limit: int = 100) -> list[LightNetError]:
    """The errors that `verify_module` raises, for the first `limit` ops that are wrong rather than for the first
    one.
    """
    sources = sources_of(ctx) if ctx is not None else SourceMap()
    found: list[LightNetError] = []

    def report(e: OpError) -> None:
        error = sources.annotate(e.error, e.op)
        if e.__cause__ is not error:
            error.__cause__ = e.__cause__
        found.append(error)
        if len(found) >= limit:
            raise _EnoughError

    try:
        _Structure(report).region(module.regions[0])
        for op in module.walk(region_first=True):
            if (error := error_of(op)) is not None:
                report(error)
    except _EnoughError:
        pass
    return found


class OpError(Exception):
    """A `LightNetError` on its way up, with the op that it is about."""

    def __init__(self, op: Operation, error: LightNetError):
        super().__init__(error.message)
        self.op, self.error = op, error
        if not op.name.startswith("builtin."):
            error.notes.append((None, f"the op is: {op_text(op)}"))


def _fail(op: Operation, message: str, label: str | None = None) -> OpError:
    """The error `message` about `op`, to be raised."""
    return OpError(op, LightNetError(f"'{op.name}' op: {message}", loc_of(op), label))


def error_of(op: Operation, *, in_place: bool = True) -> OpError | None:
    """The mistake of one op, dominance left out, and with `in_place` false its place in its block; None for
    nothing."""
    try:
        _verify_op(op, in_place)
    except OpError as e:
        return e
    return None


def _verify_op(op: Operation, in_place: bool) -> None:
    try:
        if in_place:
            _check_place(op)
        _verify_alone(op)
        _check_names(op)
        if COUNTS in op.attributes:
            counts_of(op)
    except LightNetError as e:
        raise OpError(op, e) from e
    except VerifyException as e:
        # IRDL describes the constraint on the first line and its trail on the next ones.
        raise _fail(op, " ".join(str(e).split())[:600]) from e
    except (OpError, RecursionError):
        raise
    except Exception as e:
        # A verifier that stumbles over malformed IR (a missing operand, an attribute of a wrong class).
        raise _fail(op, f"its verifier failed: {type(e).__name__}: {e}") from e


def _check_names(op: Operation) -> None:
    """Names of the source network are texts."""
    if (name := op.attributes.get(OP_NAME)) is not None and not isinstance(name, StringAttr):
        raise VerifyException(f"{op.name}: its {OP_NAME} should be a string, not {name}")
    if (names := op.attributes.get(TENSORS)) is None:
        return
    if not isinstance(names, ArrayAttr) or not all(isinstance(n, StringAttr) for n in names):
        raise VerifyException(f"{op.name}: its {TENSORS} should be an array of strings, not {names}")


_right: set[tuple[object, ...]] = set()


def _verify_alone(op: Operation) -> None:
    """The op's own verifier, which is not asked again about an op of a kind that it has passed."""
    kind = _kind(op) if _is_local(type(op)) else None
    if kind is not None and kind in _right:
        return
    op.verify_()
    if kind is not None:
        if len(_right) >= MAX_KINDS:
            _right.clear()
        _right.add(kind)


def _kind(op: Operation) -> tuple[object, ...] | None:
    """All that the verifier of an op of `LOCAL` reads; None where it reads more, or would be kept at the cost of
    memory."""
    properties = op.properties
    if op.regions or op.successors or any(isinstance(p, DenseIntOrFPElementsAttr) for p in properties.values()):
        return None
    types = tuple([v.type for v in op.operands]), tuple([v.type for v in op.results])
    return type(op), types, tuple(properties.items()), tuple(op.attributes.items())


@cache
def _is_local(cls: type[Operation]) -> bool:
    """Return whether the ops of a class are of `LOCAL`, and none of its traits looks at what is around them."""
    around = HasParent | IsTerminator | SymbolOpInterface
    return cls.name.partition(".")[0] in LOCAL and not any(isinstance(t, around) for t in cls.traits)


def _check_place(op: Operation) -> None:
    """Terminators end blocks, and blocks that need one have one; successors are blocks of the same region."""
    has_symbols, is_terminator, needs_none = _traits(type(op))
    if has_symbols:
        _check_symbols(op)
    block = op.parent
    region = block.parent if block is not None else None
    if op.successors:
        if block is None or region is None or block.last_op is not op:
            raise _fail(op, "an op with successors must be the last op of its block")
        if any(successor.parent is not region for successor in op.successors):
            raise _fail(op, "branches to a block of another region")
    for inner in op.regions:
        blocks = inner.blocks
        if len(blocks) == 1 and blocks[0].last_op is None and not needs_none:
            raise _fail(op, "its block is empty, but needs a terminator")
    if block is None or region is None or block.last_op is not op or is_terminator:
        return
    parent = region.parent
    if len(region.blocks) > 1 or (parent is not None and not parent.has_trait(NoTerminator)):
        raise _fail(op, "ends its block, but is not a terminator, such as func.return or ln.yield")


@cache
def _traits(cls: type[Operation]) -> tuple[bool, bool, bool]:
    """The answers to what `_check_place` asks of each op, asked of its class once."""
    return cls.has_trait(SymbolTable), cls.has_trait(IsTerminator), cls.has_trait(NoTerminator)


def _check_symbols(table: Operation) -> None:
    """Symbols are unique; xDSL's trait says so too, but blames the table."""
    seen: dict[str, Operation] = {}
    for op in (op for region in table.regions for block in region.blocks for op in block.ops):
        name = op.get_attr_or_prop("sym_name")
        if not isinstance(name, StringAttr):
            continue
        if (first := seen.setdefault(name.data, op)) is not op:
            where = loc_of(first)
            raise _fail(op, f"symbol @{name.data} is already defined" + (f" at {where}" if where else ""))


class _Structure:
    """Dominance: every operand is defined before its use, in an enclosing region.

    A module's own body is a graph region, where order does not matter. Visits each op once, with the set of the values
    that are visible there. `report` gets the errors; it may raise.
    """

    def __init__(self, report: Callable[[OpError], None]) -> None:
        self.visible: set[SSAValue] = set()
        self.report = report

    def region(self, region: Region) -> None:
        blocks = list(region.blocks)
        if len(blocks) == 1:
            self.block(blocks[0], graph=isinstance(region.parent, ModuleOp))
            self.visible.difference_update(_values(blocks[0]))
            return
        if len(blocks) > MAX_BLOCKS and region.parent is not None:
            text = f"has a region of {len(blocks)} blocks; the limit is {MAX_BLOCKS}"
            self.report(_fail(region.parent, text))
            return
        if any(to.parent is not region for b in blocks if b.last_op is not None for to in b.last_op.successors):
            return  # which `_check_place` says
        dominance = DominanceInfo(region)
        for block in blocks:
            # As in MLIR, everything dominates a block that cannot be reached.
            reachable = dominance.dominates(blocks[0], block)
            above = [b for b in blocks if not reachable or dominance.strictly_dominates(b, block)]
            for other in above:
                self.visible.update(_values(other))
            self.block(block)
            for other in (*above, block):
                self.visible.difference_update(_values(other))

    def block(self, block: Block, graph: bool = False) -> None:
        visible = self.visible
        visible.update(block.args)
        if graph:
            visible.update(_values(block))
        for op in block.ops:
            for i, operand in enumerate(op.operands):
                if operand not in visible:
                    self.report(_fail(op, _undefined(i, operand, op)))
            for region in op.regions:
                self.region(region)
            visible.update(op.results)


def _values(block: Block) -> list[SSAValue]:
    return [*block.args, *(result for op in block.ops for result in op.results)]


def _undefined(index: int, operand: SSAValue, op: Operation) -> str:
    name = f" (%{operand.name_hint})" if operand.name_hint else ""
    if isinstance(operand, ErasedSSAValue):
        return f"operand {index}{name} is the result of an op that was erased"
    if isinstance(operand, BlockArgument):
        return f"operand {index}{name} is an argument of a block that does not enclose the op"
    owner = operand.owner
    if isinstance(owner, Operation) and (owner is op or owner.parent is not None):
        where = loc_of(owner)
        return f"operand {index}{name} is used before it is defined" + (f" at {where}" if where else "")
    return f"operand {index}{name} is defined by no op of the module"


class _Clipped(io.StringIO):
    """A stream that stops the printer once there is enough."""

    def write(self, text: str) -> int:
        if self.tell() > MAX_OP_TEXT:
            raise _EnoughError
        return super().write(text)


class _EnoughError(Exception):
    pass


def op_text(op: Operation) -> str:
    """One op in one line, clipped, without the ops of its regions; works for broken ops too."""
    stream = _Clipped()
    try:
        LnPrinter(stream).print_op(op)
    except _EnoughError:
        pass
    except Exception:
        stream = _Clipped()
        try:
            LnPrinter(stream, print_generic_format=True).print_op(op)
        except Exception:
            return f'"{op.name}"'
    text = stream.getvalue().strip()
    first, _, rest = text.partition("\n")
    return f"{first[:MAX_OP_TEXT]} ..." if rest or len(first) > MAX_OP_TEXT else first
