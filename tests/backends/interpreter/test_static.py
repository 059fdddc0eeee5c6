"""The static tensors of a planned network: what is packed beside what is computed, and that each arrives once."""

from __future__ import annotations

import threading

import numpy as np

import lightnet
from lightnet.backends.interpreter import static
from lightnet.ir.module import main_of

#: Rows of params of 1024 floats each, in the order of the network: 4 KiB up to 256 KiB.
ROWS = (64, 1, 15, 16, 17, 2, 40)


def executable() -> tuple[lightnet.Executable, dict[str, np.ndarray]]:
    """A network that adds up params, as far as they go, and their contents."""
    weights = {f"w{k}": np.random.default_rng(k).standard_normal((n, 1024), np.float32) for k, n in enumerate(ROWS)}
    lines = [f'%w{k} = ln.param {{from_file = true}} : tensor<{n}x1024xf32> as ("w{k}")' for k, n in enumerate(ROWS)]
    lines += ['%x = ln.input : tensor<1x1024xf32> as ("x")']
    lines += [f'%y{k} = ln.add %x, %w{k} : tensor<{n}x1024xf32> as ("y{k}")' for k, n in enumerate(ROWS)]
    types = [f"tensor<{n}x1024xf32>" for n in ROWS]
    returned = f"func.return {', '.join(f'%y{k}' for k in range(len(ROWS)))} : {', '.join(types)}"
    text = "\n".join([f"func.func @main() -> ({', '.join(types)}) {{", *lines, returned, "}"])
    return lightnet.compile(lightnet.loads(text, ".mlir", weights=weights)), weights


def test_large_tensors_are_packed_beside_the_others(monkeypatch) -> None:
    """Those from 64 KiB on, on one other thread: the small ones, which are done at once, overtake them. Each is there
    once, in the memory that is asked for."""
    packers: dict[int, set[int]] = {}
    to_memory = static.to_memory

    def packed(type, array, memory=None):
        packers.setdefault(threading.get_ident(), set()).add(array.nbytes)
        return to_memory(type, array, memory)

    monkeypatch.setattr(static, "to_memory", packed)
    network, weights = executable()
    rooms = {}

    def room(place, size):
        return rooms.setdefault(place.offset.data, np.zeros(size, np.uint8))

    found = list(static.static_bytes(main_of(network.planned), {}, network._store, network._seed, room))
    sizes = [raw.nbytes for _, raw in found]
    assert sorted(sizes) == sorted(4096 * n for n in ROWS)
    own = packers.pop(threading.get_ident())
    (others,) = packers.values()
    assert own == {4096 * n for n in ROWS if n < 16} and others == {4096 * n for n in ROWS if n >= 16}
    assert sizes.index(4096) < sizes.index(4096 * 64), "the first one, which is large"
    assert all(np.shares_memory(raw, rooms[place.offset.data]) for place, raw in found)
    by_size = {w.nbytes: w for w in weights.values()}
    assert all(raw.tobytes() == by_size[raw.nbytes].tobytes() for _, raw in found)
