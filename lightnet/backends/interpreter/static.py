"""The static tensors of a planned network: its params and the results of `ln.once`, evaluated with the references."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.dialects.ln.source import ConstantOp, ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.arrays import fill_memory, to_memory
from lightnet.ir.layout import byte_size
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp, places_of
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.files import release_pages
from lightnet.runtime.weights import WeightStore

#: Bytes from which on a tensor is packed on another thread, and the tensors that are packed at the same time.
_LARGE, _PACKERS = 1 << 16, 1
#: Bytes of weights that are read before the pages of files that they came from are given back: else a file counts
#: beside what is made of it.
_READ = 8 << 20


def static_bytes(
    main: FuncOp, feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int,
    room: Callable[[PlaceAttr, int], np.ndarray | None] = lambda place, size: None,
) -> Iterator[tuple[PlaceAttr, np.ndarray]]:  # fmt: skip
    """Each static tensor's place and its bytes there (uint8), in the layout that its type has, in any order; `feeds`
    replaces params by name. `room` may give the memory, of so many bytes that are zeros as yet, in which they should
    be. Large tensors are packed while the next ones are computed; few are held at a time."""
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
            waiting.append((place, packers.submit(_packed, type, array, memory)))
            if len(waiting) > _PACKERS:
                first, packed = waiting.popleft()
                yield first, packed.result()
        for place, packed in waiting:
            yield place, packed.result()
    if read > _LARGE:
        release_pages()


def _packed(type: Attribute, array: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
    """`to_memory`; of an array that is larger than what is read between two releases of pages, part by part."""
    if memory is None or array.nbytes <= _READ:
        return to_memory(type, array, memory)
    written = 0
    for size in fill_memory(type, array, memory):
        if (written := written + size) > _READ:
            release_pages()
            written = 0
    return memory


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
    """The contents of a param: what is fed under its name, or its loaded contents."""
    name = None if isinstance(op, ConstantOp) else op.tensor_names[0]
    return feeds[name] if name is not None and name in feeds else op.contents(store, seed, loc=loc_of(op))


def once_values(
    once: OnceOp, feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int
) -> Iterator[tuple[int, np.ndarray]]:
    """The results of an `ln.once` region and their positions, each when it is computed. What a result needs is computed
    when its turn comes, and dropped after its last use: however the ops stand, few of a large network's tensors are
    held at a time."""
    positions: dict[SSAValue, list[int]] = {}
    uses: dict[SSAValue, int] = {}
    for i, value in enumerate(once.terminator.operands):
        positions.setdefault(value, []).append(i)
    for op in once.body.ops:
        for operand in op.operands:
            uses[operand] = uses.get(operand, 0) + 1
    values: dict[SSAValue, np.ndarray] = {}

    def take(value: SSAValue) -> np.ndarray:
        uses[value] -= 1
        return values[value] if uses[value] else values.pop(value)

    for value, at in positions.items():
        for op in _needed(value, values):
            arrays = [take(v) for v in op.operands]
            results = _evaluate(op, arrays, feeds, store, seed)
            values.update((v, array) for v, array in zip(op.results, results) if v in uses)
            del arrays, results
        uses[value] -= len(at) - 1
        array = take(value)
        yield from ((i, array) for i in at)
        del array


def _needed(value: SSAValue, values: Mapping[SSAValue, np.ndarray]) -> list[Operation]:
    """The ops that have to be evaluated for a value, operands first, where `values` are there."""
    found: dict[Operation, None] = {}
    waiting = [value]
    while waiting:
        owner = waiting[-1].owner
        assert isinstance(owner, Operation)
        lacking = [] if owner in found else [v for v in owner.operands if v not in values and v.owner not in found]
        if waiting[-1] in values or not lacking:
            if waiting.pop() not in values:
                found[owner] = None
        else:
            waiting += lacking
    return list(found)


def _evaluate(
    op: Operation, arrays: list[np.ndarray], feeds: Mapping[str, np.ndarray], store: WeightStore | None, seed: int
) -> list[np.ndarray]:
    if isinstance(op, ParamOp):
        return [contents_of(op, feeds, store, seed)]
    assert isinstance(op, LnOp)
    return op.evaluate(arrays)
