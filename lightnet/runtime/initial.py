"""The contents of a `create` before a network runs, and test data for tensors.

Random numbers come from a counter-based generator whose key is the SHA-256 of the seed and the tensor's name, so that a
tensor's contents depend on neither the platform, the NumPy version, nor what else is in the network. Imports NumPy, the
standard library, diagnostics and the rest of the runtime.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.dtypes import DType, convert
from lightnet.runtime.weights import WeightStore, fetch

#: Bytes of the largest tensor that is filled here.
MAX_BYTES = 1 << 40
#: Elements that are made at a time, so that they stay in the second-level cache.
_BLOCK = 1 << 14


def initial_contents(
    name: str,
    dims: Sequence[int],
    dtype: DType,
    *,
    ran: Sequence[float] = (0, 0),
    data: Sequence[float] = (0,),
    from_file: bool = False,
    store: WeightStore | None = None,
    seed: int = 0,
    missing: list[str] | None = None,
    loc: SourceLoc | None = None,
) -> np.ndarray:
    """The contents of ``create`` for the tensor `name`, of shape `dims` and type `dtype`.

    `from_file`: the array of that name in `store`; zeros if there is none, and `name` is appended to `missing`.
    Otherwise, `ran` other than [0, 0]: uniform in [ran[0], ran[1]] (see `uniform`). Otherwise `data`, row-major, each
    converted saturating; if it is too short, zeros follow. Random numbers for integers truncate toward zero.

    Raises LightNetError at `loc` when `data` has more elements than the tensor, the stored array does not fit, or the
    tensor is too large for this machine. The result may be read-only (a view of the weight file).
    """
    if from_file:
        if store is not None and name in store:
            return fetch(store, name, dims, dtype, loc)
        if missing is not None:
            missing.append(name)
        return _zeros(name, dims, dtype, loc)
    if tuple(ran) != (0, 0):
        result = _zeros(name, dims, dtype, loc)
        _fill_uniform(result.reshape(-1), name, float(ran[0]), float(ran[1]), dtype, seed)
        return result
    count = math.prod(dims)
    if not count and tuple(data) == (0,):  # the default
        return _zeros(name, dims, dtype, loc)
    if len(data) > count:
        message = f"tensor '{name}' has {count} elements {list(dims)}, and its data has {len(data)}"
        raise LightNetError(message, loc, label="create.data-length")
    result = _zeros(name, dims, dtype, loc)
    result.reshape(-1)[: len(data)] = convert(np.asarray(data, np.float64), dtype)
    return result


def uniform(name: str, seed: int, count: int, low: float, high: float) -> np.ndarray:
    """`count` float64 values, uniform in [low, high], that belong to `name` and `seed`.

    Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), counter from 0, keyed by the
    first 16 bytes (little-endian) of SHA-256("<seed>:<name>"); the upper 53 bits u of each output give low + (high -
    low) * u / 2**53.
    """
    result = np.empty(count)
    generator = _generator(name, seed)
    for start in range(0, count, _BLOCK):
        part = result[start : start + _BLOCK]
        part[:] = _uniform_block(generator, len(part), low, high)
    return result


def _generator(name: str, seed: int) -> np.random.Philox:
    digest = hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"))


def _uniform_block(generator: np.random.Philox, count: int, low: float, high: float) -> np.ndarray:
    raw = generator.random_raw(count)
    raw >>= np.uint64(11)
    unit = raw * 2.0**-53
    # As a mean of the ends, low * (1 - unit) + high * unit, since high - low may overflow; its rounding may step over
    # an end.
    upper = high * unit
    np.subtract(1, unit, out=unit)
    unit *= low
    unit += upper
    return np.clip(unit, low, high, out=unit)


def _fill_uniform(out: np.ndarray, name: str, low: float, high: float, dtype: DType, seed: int) -> None:
    generator = _generator(name, seed)
    # What lies within the range of a float is rounded by storing it; `convert` looks for what does not.
    rounds = dtype.name in ("f32", "f64") and max(abs(low), abs(high)) <= dtype.limits[1]
    for start in range(0, out.size, _BLOCK):
        part = out[start : start + _BLOCK]
        block = _uniform_block(generator, part.size, low, high)
        part[:] = block if rounds else convert(block, dtype)


def _zeros(name: str, dims: Sequence[int], dtype: DType, loc: SourceLoc | None) -> np.ndarray:
    size = math.prod(dims) * dtype.size
    try:
        if size <= MAX_BYTES:
            return np.zeros(tuple(dims), dtype.np)
    except (MemoryError, ValueError):  # ValueError: more dims than NumPy has
        pass
    raise LightNetError(
        f"tensor '{name}' {list(dims)} of {size} bytes does not fit in memory", loc, label="create.size"
    )


#: [low, high] of each kind of test data. Weights are scaled by 1/sqrt(fan-in) besides.
_RANGES = {
    "data": (-1.0, 1.0),
    "weight": (-math.sqrt(3), math.sqrt(3)),  # variance 1
    "bias": (-0.1, 0.1),
    "scale": (0.5, 1.5),
    "mean": (-0.1, 0.1),
    "variance": (0.5, 1.5),
    "anchor": (4.0, 64.0),
}


def sample(
    name: str,
    kind: str,
    dims: Sequence[int],
    dtype: DType,
    seed: int = 0,
    fan_in: int | None = None,
    bound: int | None = None,
) -> np.ndarray:
    """Test data for an operand, such that networks neither saturate nor die out; it belongs to `name` and `seed`.

    `kind`: ``data`` in [-1, 1]; ``weight`` with variance 1/`fan_in`, which keeps the variance of the activations
    (default: all dims but the first, [O, I, kh, kw]); ``bias`` and ``mean`` in [-0.1, 0.1]; ``scale`` and
    ``variance`` in [0.5, 1.5]; ``anchor`` in [4, 64] (pixels); ``index`` integers in [0, `bound`), where the
    default bound is the tensor's own number of elements. For integer dtypes all but anchors are small integers,
    up to 4: from -4 for signed ones, from 0 for unsigned ones, from 1 for scale and variance. For bool each is a
    coin toss. Raises ValueError for an unknown kind.
    """
    count = math.prod(dims)
    if kind == "index":
        bound = bound or count
        values = np.minimum(np.floor(uniform(name, seed, count, 0, bound)), bound - 1)
    elif kind not in _RANGES:
        raise ValueError(f"sample: unknown kind '{kind}'")
    elif dtype.kind == "bool":
        values = uniform(name, seed, count, -1, 1) > 0
    elif not dtype.is_float and kind != "anchor":
        low = 1 if kind in ("scale", "variance") else -4 if dtype.kind == "int" else 0
        values = np.minimum(np.floor(uniform(name, seed, count, low, 5)), 4)
    else:
        least, most = _RANGES[kind]
        if kind == "weight":
            fan = fan_in or math.prod(dims[1:]) or 1
            least, most = least / math.sqrt(fan), most / math.sqrt(fan)
        values = uniform(name, seed, count, least, most)
    return convert(values, dtype).reshape(tuple(dims))
