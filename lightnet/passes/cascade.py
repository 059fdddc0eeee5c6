"""`cascade`: the maps at the peak of memory in stripes of rows, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.move import Concat, Slice
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.dialects.ln.source import Create, Input
from lightnet.ir import rewrites
from lightnet.ir.access import is_elementwise
from lightnet.ir.instances import is_open_op
from lightnet.ir.locations import set_loc
from lightnet.ir.op import LnOp, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.types import spec_of
from lightnet.ir.windows import Axis
from lightnet.passes.graph import graphs
from lightnet.passes.memory_model import MemoryModel

#: Ops that read windows of rows.
WINDOWED = (Conv2d, Maxpool2d, Avgpool2d)
#: Bytes that stripes must save, and the part of the peak, to be worth their code.
LEAST, PART = 1 << 20, 0.05
#: Stripes of a map at most, and the part of what they compute that may be computed twice.
MOST, TWICE = 8, 0.1


class CascadePass(LnPass):
    """Compute a map that is large when most memory is in use, and what reads it, in stripes of rows, so that the whole
    of it is never there.

    ```mlir
    %m = ln.conv2d %x ... : tensor<1x32x416x416xf32>      %x0 = ln.slice %x {axis = 2, start = 0, len = 209}
    %y = ln.conv2d %m ... : tensor<1x64x208x208xf32>  ->  %m0 = ln.conv2d %x0 ... : tensor<1x32x208x416xf32>
                                                          %y0 = ln.conv2d %m0 ... : tensor<1x64x104x208xf32>
                                                          (%x1, %m1 and %y1 likewise: the rows below)
                                                          %y = ln.concat %y0, %y1 {axis = 2}
    ```

    The chain is a convolution or pool over a map, elementwise ops behind it, and what makes the map, back to the
    convolution or pool before. Rows that windows of two stripes read are computed twice, up to a tenth of all. The peak
    is that of the model of memory by which `schedule` compares orders (`memory_model.py`); a chain stays whole where it
    would be lowered by less than a MiB or a twentieth, or where a call decides sizes.
    """

    name = "cascade"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            while (found := _at_peak(block)) is not None:
                if (step := rewrites.begin("cascade", found.chain[::-1])) is None:
                    return
                step.done(found.divide())


class _Part(NamedTuple):
    """An op of a stripe: the rows that it makes, and of padding that its windows read above and below."""

    op: LnOp
    rows: int
    above: int = 0
    below: int = 0


@dataclass(frozen=True)
class Cascade:
    """Ops each of which reads the map that the one before makes, in stripes of the last one's rows."""

    chain: list[LnOp]
    stripes: int

    def parts(self, stripe: int) -> tuple[slice, list[_Part]]:
        """The rows of the chain's source that a stripe reads, and its ops in order."""
        rows = self.chain[-1].result_specs[0].dims[2]
        first, end = rows * stripe // self.stripes, rows * (stripe + 1) // self.stripes
        parts = []
        for op in reversed(self.chain):
            part = _Part(op, end - first)
            if isinstance(op, WINDOWED):
                axis = Axis.of(op, 0)
                low = first * axis.stride - axis.before
                high = low + axis.span(part.rows)
                first, end = max(low, 0), min(high, axis.size)
                part = part._replace(above=first - low, below=high - end)
            parts.append(part)
        return slice(first, end), parts[::-1]

    @property
    def twice(self) -> float:
        """The part of the map between that is computed twice."""
        made = sum(self.parts(stripe)[1][0].rows for stripe in range(self.stripes))
        return made / self.chain[0].result_specs[0].dims[2] - 1

    @property
    def widest(self) -> int:
        """The bytes that a stripe has at most of the source and of the map between."""
        source, made = spec_of(self.chain[0].operands[0].type), self.chain[0].result_specs[0]
        found = [self.parts(stripe) for stripe in range(self.stripes)]
        return max(
            (rows.stop - rows.start) * (source.nbytes // source.dims[2]) + parts[0].rows * (made.nbytes // made.dims[2])
            for rows, parts in found
        )

    def divide(self) -> list[LnOp]:
        """Put the stripes in the place of the chain: the new ops, what joins them the last."""
        first, last = self.chain[0], self.chain[-1]
        block = last.parent
        assert block is not None
        new: list[LnOp] = []
        joined = []
        for stripe in range(self.stripes):
            rows, parts = self.parts(stripe)
            length = rows.stop - rows.start
            new.append(Slice.make([first.operands[0]], {"axis": 2, "start": rows.start, "len": length}))
            set_loc(new[-1], first.location)
            for op, _, above, below in parts:
                params = op.written_params()
                if isinstance(op, WINDOWED):
                    _, left, _, right = op.derived_values()["pad"]
                    params |= {"padding": (above, left, below, right), "autopad": "NOTSET"}
                new.append(type(op).make([new[-1].results[0], *op.operands[1:]], params, name=op.op_name))
                set_loc(new[-1], op.location)
            joined.append(new[-1].results[0])
        new.append(Concat.make(joined, {"axis": 2}, tensors=[n for n in tensor_names(last) if n]))
        set_loc(new[-1], last.location)
        assert new[-1].result_specs == last.result_specs
        for op in new:
            block.insert_op_before(op, last)
        last.results[0].replace_all_uses_with(new[-1].results[0])
        for op in reversed(self.chain):
            op.detach()
            op.erase()
        return new


def _at_peak(block: Block) -> Cascade | None:
    """The chain at the peak, in as few stripes as lower it most; None if stripes do not."""
    model = MemoryModel(block)
    live = model.live(range(len(model.ops)))
    peak = max(live, default=0)
    at = model.ops[live.index(peak)] if live else None
    if not isinstance(at, WINDOWED) or not (chain := links_around(at)):
        return None
    position = {op: i for i, op in enumerate(model.ops)}
    elsewhere = max(live[: position[chain[0]]] + live[position[chain[-1]] + 1 :], default=0)
    source, result = chain[0].operands[0], at.result_specs[0].nbytes
    held = peak - spec_of(at.operands[0].type).nbytes - result
    last_read = max(position.get(use.operation, len(position)) for use in source.uses)
    if last_read < position[at] and not isinstance(source.owner, Input | Create):
        held += spec_of(source.type).nbytes

    def needed(found: Cascade) -> int:
        return max(held + result + max(found.widest, result), elsewhere)

    ways = (Cascade(chain, n) for n in range(2, min(MOST, at.result_specs[0].dims[2]) + 1))
    best = min((way for way in ways if way.twice <= TWICE), key=needed, default=None)
    return best if best is not None and peak - needed(best) >= max(LEAST, PART * peak) else None


def links_around(at: LnOp) -> list[LnOp]:
    """The ops around one that reads windows: back to what makes its map from windows, and elementwise ops behind it;
    none where others read what is between."""
    chain = [at]
    while len(chain) == 1 or not isinstance(chain[0], WINDOWED):
        value = chain[0].operands[0]
        if not isinstance(value.owner, LnOp) or not value.has_one_use() or not _has_rows(value.owner):
            return []
        chain.insert(0, value.owner)
    while isinstance(behind := chain[-1].results[0].get_user_of_unique_use(), LnOp) and _has_rows(behind):
        if isinstance(behind, WINDOWED):
            break
        chain.append(behind)
    return chain if _has_rows(at) else []


def _has_rows(op: LnOp) -> bool:
    """Return whether rows of a map become rows of the result: elementwise, or by windows each of which has some."""
    if is_open_op(op) or len(op.results) != 1 or len(op.result_specs[0].dims) != 4:
        return False
    if not isinstance(op, WINDOWED):
        return len(op.operands) == 1 and bool(is_elementwise(op))
    axis = Axis.of(op, 0)
    return min(op.derived_values()["pad"]) >= 0 and max(axis.before, axis.overhang) < axis.extent
