"""The static tensors of a planned network: its params and the results of `ln.once`, evaluated with the references."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.dialects.ln.source import ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import YieldOp
from lightnet.ir.layout import byte_size, to_memory
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp, places_of
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.files import release_pages
from lightnet.runtime.weights import WeightStore

#: Bytes from which on a tensor is packed on another thread, and the tensors that are packed at the same time.
_LARGE, _PACKERS = 1 << 16, 1
#: Bytes of weights that are read before the pages of files that they came from are given back: else a file counts beside what is made of it.
_READ = 32 << 20


def static_values(
    main: FuncOp, feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int,
    room: Callable[[PlaceAttr, int], np.ndarray | None] = lambda place, size: None,
) -> Iterator[tuple[PlaceAttr, np.ndarray]]:  # fmt: skip
    """Each static tensor's place and its bytes there (uint8), in the layout that its type has, in any order; `feeds` replaces params by
    name. `room` may give the memory, of so many bytes that are zeros as yet, in which they should be. Large tensors are packed while the
    next ones are computed; few are held at a time."""
    waiting: deque[tuple[PlaceAttr, Future[np.ndarray]]] = deque()
    read = 0
    with ThreadPoolExecutor(_PACKERS) as packers:
        for place, type, array in _logical_values(main, feeds, store, seed):
            if (read := read + array.nbytes) > _READ:
                release_pages()
                read = 0
            memory = room(place, byte_size(type))
            if array.nbytes < _LARGE:
                yield place, to_memory(type, array, memory)
                continue
            waiting.append((place, packers.submit(to_memory, type, array, memory)))
            if len(waiting) > _PACKERS:
                first, packed = waiting.popleft()
                yield first, packed.result()
        for place, packed in waiting:
            yield place, packed.result()
    if read > _LARGE:
        release_pages()


def _logical_values(
    main: FuncOp, feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int
) -> Iterator[tuple[PlaceAttr, Attribute, np.ndarray]]:
    """Each static tensor's place, its type, and its elements in logical order."""
    for op in main.body.block.ops:
        if isinstance(op, ParamOp):
            yield places_of(op)[0], op.results[0].type, contents_of(op, feeds, store, seed)
        elif isinstance(op, OnceOp):
            places, types = places_of(op), op.result_types
            yield from ((places[i], types[i], array) for i, array in once_values(op, feeds, store, seed))


def contents_of(op: ParamOp, feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int) -> np.ndarray:
    """What a param holds: what is fed under its name, or its loaded contents."""
    name = op.tensor_names[0]
    return feeds[name] if name in feeds else op.contents(store, seed, loc=loc_of(op))


def once_values(
    once: OnceOp, feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int
) -> Iterator[tuple[int, np.ndarray]]:
    """The results of an `ln.once` region and their positions, each when it is computed. A param is loaded at its first use and a
    value dropped after its last, so that a large network's static tensors are never held all at a time."""
    positions: dict[SSAValue, list[int]] = {}
    uses: dict[SSAValue, int] = {}
    for op in once.body.ops:
        for i, operand in enumerate(op.operands):
            if isinstance(op, YieldOp):
                positions.setdefault(operand, []).append(i)
            else:
                uses[operand] = uses.get(operand, 0) + 1
    values: dict[SSAValue, np.ndarray] = {}

    def take(value: SSAValue) -> np.ndarray:
        if value not in values:
            assert isinstance(value.owner, ParamOp)
            values[value] = contents_of(value.owner, feeds, store, seed)
        uses[value] -= 1
        return values[value] if uses[value] else values.pop(value)

    for op in once.body.ops:
        if isinstance(op, YieldOp) or (isinstance(op, ParamOp) and op.results[0] not in positions):
            continue
        results = _evaluate(op, [take(v) for v in op.operands], feeds, store, seed)
        for value, array in zip(op.results, results):
            if value in uses:
                values[value] = array
            yield from ((i, array) for i in positions.get(value, ()))
        del results


def _evaluate(
    op: Operation, arrays: list[np.ndarray], feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int
) -> list[np.ndarray]:
    if isinstance(op, ParamOp):
        return [contents_of(op, feeds, store, seed)]
    assert isinstance(op, LnOp)
    return op.evaluate(arrays)
