"""A builder of the code of one thread, and what one launch of it is. Imports the builder and the `cuda` dialect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import ClassVar

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    DenseArrayBase,
    LocationAttr,
    MemRefType,
    StringAttr,
    VectorType,
    f32,
    i32,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.backends.builder import INDEX, Builder, Index, empty_function
from lightnet.backends.launches import Argument
from lightnet.dataclasses import dataclass
from lightnet.dialects.cuda_checks import BLOCK_ATTRIBUTE
from lightnet.dialects.cuda_hopper import (
    Im2colAttr,
    TiledAttr,
    TmaLoadOp,
    WarpgroupMmaOp,
    WarpgroupWaitOp,
)
from lightnet.dialects.cuda_mbarrier import (
    MbarrierArriveOp,
    MbarrierExpectOp,
    MbarrierFenceOp,
    MbarrierInitOp,
    MbarrierWaitOp,
)
from lightnet.dialects.cuda_memory import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from lightnet.dialects.cuda_simt import (
    BarrierOp,
    BlockIdOp,
    LaneIdOp,
    SharedOp,
    Shuffle,
    ShuffleAttr,
    ShuffleOp,
    ThreadIdOp,
    WarpIdOp,
)
from lightnet.dialects.launch import SYMBOLS
from lightnet.ir.names import name_hint
from lightnet.runtime.dims import Size

Sizes = tuple[int, int, int]
#: Those of a grid, some of which calls may decide.
GridSizes = tuple[Size, Size, Size]


@dataclass(frozen=True)
class SimtLaunch:
    """One kernel that is launched: its function, the sizes of its grid and of its blocks, what its memrefs are, and the
    functions that it calls. `workspace` is as that of `Launch`."""

    function: FuncOp
    grid: GridSizes
    block: Sizes
    args: tuple[Argument, ...]
    helpers: tuple[FuncOp, ...] = ()
    workspace: Size = 0
    scratch: ClassVar[int] = 0  # threads have shared memory

    @property
    def functions(self) -> tuple[FuncOp, ...]:
        """The functions that the launch adds to a module."""
        return (*self.helpers, self.function)


class Simt(Builder):
    """Builds the code of one thread of a kernel. `args` are its memrefs."""

    @classmethod
    def thread(
        cls,
        name: str,
        memrefs: Sequence[MemRefType],
        block: Sizes,
        hints: Sequence[str | None] = (),
        location: LocationAttr = UNKNOWN_LOC,
        symbols: Sequence[str] = (),
    ) -> Simt:
        """A kernel whose blocks have so many threads along x, y and z, of the values of symbols, by name, and memrefs
        called by their `hints`."""
        types = [*(INDEX for _ in symbols), *memrefs]
        function = empty_function(name, types, [*map(name_hint, symbols), *hints], location)
        function.attributes[BLOCK_ATTRIBUTE] = DenseArrayBase.from_list(i32, block)
        if symbols:
            function.attributes[SYMBOLS] = ArrayAttr([StringAttr(s) for s in symbols])
        b = cls(function)
        b._symbols = dict(zip(symbols, b.entry.args))
        return b

    @property
    def args(self) -> Sequence[SSAValue]:
        return self.entry.args[len(self._symbols) :]

    def get(self, op: Operation) -> SSAValue:
        """Append an op with one result; the result."""
        return self.append(op).results[0]

    # ---- threads -------------------------------------------------------------------------------------------------

    def thread_id(self, dim: str = "x") -> SSAValue:
        return self.get(ThreadIdOp(dim))

    def block_id(self, dim: str = "x") -> SSAValue:
        return self.get(BlockIdOp(dim))

    def lane_id(self) -> SSAValue:
        return self.get(LaneIdOp())

    def warp_id(self) -> SSAValue:
        return self.get(WarpIdOp())

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        self.append(BarrierOp())

    def shuffle(self, mode: str, value: SSAValue, lane: Index) -> SSAValue:  # type: ignore[override]
        """`cuda.shuffle`: the value of another lane."""
        return self.get(ShuffleOp(value, self.index(lane), mode=ShuffleAttr(Shuffle(mode))))

    # ---- memory --------------------------------------------------------------------------------------------------

    def shared(self, shape: Sequence[int], element: Attribute, name: str | None = None) -> SSAValue:
        """Memory of the block."""
        memory = self.get(SharedOp(shape, element))
        memory.name_hint = name
        return memory

    def async_copy(self, to: SSAValue, at: Sequence[Index], source: SSAValue, where: Sequence[Index], bytes: int,
                   size: SSAValue | None = None) -> None:  # fmt: skip
        """`cuda.async_copy`: `bytes` bytes to shared memory, zeros behind the first `size` of them."""
        self.append(AsyncCopyOp(to, [*map(self.index, at)], source, [*map(self.index, where)], size, bytes=bytes))

    def commit(self) -> None:
        """Close the group of asynchronous copies."""
        self.append(AsyncCommitOp())

    def wait(self, groups: int = 0) -> None:
        """Wait until at most so many groups of copies are on their way."""
        self.append(AsyncWaitOp(groups=groups))

    # ---- what sm_90a adds ------------------------------------------------------------------------------------------

    def mbarrier_init(self, barriers: SSAValue, index: Index, count: int) -> None:
        """`cuda.mbarrier_init`: each phase of the mbarrier ends with `count` arrivals."""
        self.append(MbarrierInitOp(barriers, self.index(index), count=count))

    def mbarrier_fence(self) -> None:
        """Let copies see the mbarriers that this thread made."""
        self.append(MbarrierFenceOp())

    def mbarrier_expect(self, barriers: SSAValue, index: Index, bytes: Index) -> None:
        """Arrive, and let the phase wait for so many bytes of copies."""
        self.append(MbarrierExpectOp(barriers, self.index(index), self.index(bytes)))

    def mbarrier_arrive(self, barriers: SSAValue, index: Index) -> None:
        """Arrive: what the thread did before is done for those who wait."""
        self.append(MbarrierArriveOp(barriers, self.index(index)))

    def mbarrier_wait(self, barriers: SSAValue, index: Index, parity: Index) -> None:
        """Wait for the end of the phase of a parity."""
        self.append(MbarrierWaitOp(barriers, self.index(index), self.index(parity)))

    def tma_load(self, to: SSAValue, at: Sequence[Index], source: SSAValue, where: Sequence[Index],
                 map: TiledAttr | Im2colAttr, barriers: SSAValue, index: Index,
                 offsets: Sequence[Index] = ()) -> None:  # fmt: skip
        """`cuda.tma_load`: begin to copy what `map` says of `source` to the rows of `to` that begin at `at`."""
        indices = [[self.index(i) for i in group] for group in (at, where, offsets)]
        to_at, source_at, tap = indices
        self.append(TmaLoadOp(to, to_at, source, source_at, tap, barriers, self.index(index), map=map))

    def warpgroup_mma(self, a: SSAValue, row: Index, b: SSAValue, first: Index, c: SSAValue,
                      by_k: bool) -> SSAValue:  # fmt: skip
        """`cuda.warpgroup_mma`: begin a product; the sums, under way."""
        return self.get(WarpgroupMmaOp(a, self.index(row), b, self.index(first), c, by_k=by_k))

    def warpgroup_wait(self, sums: Sequence[SSAValue], pending: int = 0) -> Sequence[SSAValue]:
        """Wait until at most the last `pending` products are under way; the sums."""
        return self.append(WarpgroupWaitOp(sums, pending=pending)).results

    # ---- conditions ------------------------------------------------------------------------------------------------

    def both(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(arith.AndIOp, a, b)

    def every(self, *conditions: SSAValue | None) -> SSAValue | None:
        """Return whether all conditions hold. None is one that always does, as is the result where there is no
        other.
        """
        known = [c for c in conditions if c is not None]
        return reduce(self.both, known) if known else None

    @contextmanager
    def where(self, *conditions: SSAValue | None) -> Iterator[None]:
        """Run what is inside where `every` condition holds: an `scf.if`, unless they always do."""
        condition = self.every(*conditions)
        with nullcontext() if condition is None else self.when(condition):
            yield

    # ---- arithmetic ----------------------------------------------------------------------------------------------

    def least(self, a: Index, b: Index) -> SSAValue:
        return self.op(arith.MinSIOp, self.index(a), self.index(b))

    def below(self, a: Index, b: Index) -> SSAValue:
        """Return whether ``a < b``."""
        return self.cmpi("slt", self.index(a), self.index(b))

    def widened(self, value: SSAValue) -> SSAValue:
        """A vector of f32, f16 or bf16 as f32."""
        assert isinstance(value.type, VectorType)
        return value if value.type.element_type == f32 else self.cast("extf", value, f32)

    def extract(self, value: SSAValue, at: Sequence[int]) -> SSAValue:
        """An element of a vector."""
        assert isinstance(value.type, VectorType)
        return self.get(vector.ExtractOp(value, list(at), value.type.element_type))
