"""Cases of ONNX Runtime's own float ops (domain com.microsoft): every combination of optional inputs, attributes and forms of masks that its CPU
kernels take. The tests take them, and `tools/conformance.py` counts them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

RNG = np.random.default_rng(16)

#: inputs by name (None: absent; in order), attributes, how many outputs, and the names of constants.
Case = tuple[dict, dict, int, tuple[str, ...]]


def f32(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def ints(high: int, *dims: int, low: int = 0, dtype: type = np.int32) -> np.ndarray:
    return RNG.integers(low, high, dims).astype(dtype)


def either(value: np.ndarray) -> tuple[np.ndarray | None, ...]:
    return None, value


# -- activations, products, norms ------------------------------------------------------------------------------------


def gelus() -> Iterator[tuple[str, list[Case]]]:
    yield "Gelu", [({"x": f32(3, 5)}, {}, 1, ())]
    yield "BiasGelu", [({"x": f32(2, 3, 8), "b": f32(8)}, {}, 1, fixed) for fixed in ((), ("b",))]
    yield "FastGelu", [({"x": f32(2, 3, 8), "b": b}, {}, 1, ()) for b in either(f32(8))]
    yield "QuickGelu", [({"x": f32(4, 9)}, a, 1, ()) for a in ({}, {"alpha": 1.0}, {"alpha": 0.3})]


def products() -> Iterator[tuple[str, list[Case]]]:
    a, b = f32(2, 4, 3, 5), f32(2, 4, 5, 6)
    cases = []
    for ta, tb in product((0, 1), (0, 1)):
        left, right = (v.swapaxes(2, 3) if t else v for v, t in ((a, ta), (b, tb)))
        cases.append(({"a": left, "b": right}, {"transA": ta, "transB": tb, "alpha": 0.5 + ta}, 1, ("b",) * tb))
    for ta, tb in product((0, 1), (0, 1)):
        left, right = (v.transpose(2, 0, 1, 3) for v in (a.swapaxes(2, 3) if ta else a, b.swapaxes(2, 3) if tb else b))
        attributes = {"transA": ta, "transB": tb, "transBatchA": 1, "transBatchB": 1}
        cases.append(({"a": left, "b": right}, attributes, 1, ()))
    yield "FusedMatMul", cases
    forms = [("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Tanh", {}), ("Sigmoid", {}), ("Softsign", {}),
             ("Elu", {"activation_alpha": 0.7}), ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})]  # fmt: skip
    yield "FusedGemm", [
        ({"a": f32(3, 5) if k % 2 else f32(5, 3), "b": f32(4, 5), "c": None if k == 2 else f32(4)},
         {"activation": name, "transA": int(not k % 2), "transB": 1, "alpha": 0.5, "beta": 2.0, **more}, 1, ("b", "c"))
        for k, (name, more) in enumerate(forms)
    ]  # fmt: skip
    conv = {"x": f32(1, 4, 6, 7), "w": f32(8, 2, 3, 3), "b": f32(8), "z": None}
    forms = [
        ("Relu", []),
        ("LeakyRelu", [0.1]),
        ("Tanh", []),
        ("Sigmoid", []),
        ("HardSigmoid", [0.25, 0.4]),
        ("Clip", [-0.5, 1.0]),
    ]
    yield "FusedConv", [
        (conv | ({"z": f32(1, 8, 6, 7)} if k == 0 else {"b": None} if k == 2 else {}),
         {"activation": name, "group": 2, "pads": [1, 1, 1, 1], **({"activation_params": p} if p else {})}, 1, ("w", "b"))
        for k, (name, p) in enumerate(forms)
    ]  # fmt: skip


def norms() -> Iterator[tuple[str, list[Case]]]:
    x, gamma, beta, bias = f32(2, 3, 16), f32(16), f32(16), f32(16)
    skips = f32(2, 3, 16), f32(1, 3, 16), f32(3, 16)
    yield (
        "SkipLayerNormalization",
        [
            ({"x": x, "skip": skip, "g": gamma, "beta": b1, "bias": b2}, {"epsilon": epsilon}, 1, ())
            for skip, b1, b2, epsilon in product(skips, either(beta), either(bias), (1e-12, 0.1))
        ],
    )
    yield (
        "SkipSimplifiedLayerNormalization",
        [
            ({"x": x, "skip": skip, "g": gamma, "bias": b}, {"epsilon": epsilon}, 1, ())
            for skip, b, epsilon in product(skips[:1], either(bias), (1e-12, 0.1))
        ],
    )
    words, places, kinds = f32(50, 16), f32(9, 16), f32(2, 16)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
    yield "EmbedLayerNormalization", [
        ({"ids": ints(50, 2, 5), "segments": s, "w": words, "p": places, "s": None if s is None else kinds, "g": gamma, "b": beta,
          "mask": m, "at": at}, {"epsilon": 1e-5}, count, ("w", "p", "s", "g", "b"))
        for s, m, at, count in product(either(ints(2, 2, 5)), either(mask), (None, ints(9, 2, 5), ints(9, 1, 5)), (2, 3))
    ]  # fmt: skip


def masks(batch: int, rows: int, total: int) -> list[np.ndarray | None]:
    """Every form: whole rows, rows for each query, ends of right padding, ends and starts of left padding."""
    ends = ints(total + 1, batch, low=1)
    starts = np.minimum(ints(total, batch), ends - 1).astype(np.int32)
    raw = (np.arange(total) < ends[:, None]).astype(np.int32)
    per_row = (RNG.random((batch, rows, total)) < 0.7).astype(np.int32)
    per_row[:, :, 0] = 1  # a row that is hidden throughout has scores near -10000, where floats are coarse
    return [None, raw, per_row, ends, np.concatenate([ends, starts])]


def attentions() -> Iterator[Case]:
    batch, rows, hidden, heads = 2, 4, 12, 3
    x, w, b = f32(batch, rows, 10), f32(10, 3 * hidden), f32(3 * hidden)
    past = f32(2, batch, heads, 3, hidden // heads)
    for causal, old in product((0, 1), either(past)):
        total = rows + (3 if old is not None else 0)
        for k, mask in enumerate(masks(batch, rows, total)):
            shape = ((batch, heads, rows, total), (1, heads, rows, total), (1, 1, rows, total))[k % 3]
            added = f32(*shape) if k % 2 and old is None else None
            attributes = {"num_heads": heads, "unidirectional": causal} | ({"scale": 0.3} if k == 2 else {})
            attributes |= {"mask_filter_value": -50.0} if k > 2 else {}
            yield ({"x": x, "w": w, "b": b, "mask": mask, "past": old, "add": added}, attributes, 2 if old is not None else 1,
                   ("w", "b"))  # fmt: skip
    yield (
        {"x": x, "w": f32(10, 12 + 12 + 18), "b": f32(42)},
        {"num_heads": 3, "qkv_hidden_sizes": [12, 12, 18]},
        1,
        ("w", "b"),
    )


def multi_head_attentions() -> Iterator[Case]:
    batch, rows, heads, size = 2, 4, 3, 4
    hidden = heads * size
    for length, causal, old, bias in product((rows, 6), (0, 1), (0, 3), (0, 1)):
        if (length != rows and (old or causal)) or (old and bias and causal):
            continue
        total = old + length
        for k, mask in enumerate(masks(batch, rows, total)[:4]):
            yield (
                {"q": f32(batch, rows, hidden), "k": f32(batch, length, hidden), "v": f32(batch, length, hidden),
                 "b": f32(3 * hidden) if bias else None, "mask": mask,
                 "add": f32(1, heads, rows, total) if k == 2 else None,
                 "pk": f32(batch, heads, old, size) if old else None, "pv": f32(batch, heads, old, size) if old else None},
                {"num_heads": heads, "unidirectional": causal}, 3 if old else 1, ("b",))  # fmt: skip
    for bias in (0, 1):  # keys and values that have been split into heads: those of a cross-attention
        yield ({"q": f32(batch, rows, hidden), "k": f32(batch, heads, 6, size), "v": f32(batch, heads, 6, size),
                "b": f32(3 * hidden) if bias else None}, {"num_heads": heads, "scale": 0.4}, 1, ())  # fmt: skip


def grouped() -> Iterator[Case]:
    """Prompts and single tokens, with and without rotary positions, windows, caps, sinks, biases."""
    batch, heads, groups, size = 2, 4, 2, 16
    cos, sin = f32(32, size // 2), f32(32, size // 2)
    for past, rows in ((0, 5), (6, 1)):
        total = past + rows
        for k in range(9):
            ends = np.full(batch, total - 1, np.int32) if k % 2 else np.array([total - 1, total - 2], np.int32)
            rotary = k in (1, 2, 3, 6)
            flat = f32(batch, rows, (heads + 2 * groups) * size)
            cuts = np.split(flat, [heads * size, (heads + groups) * size], axis=2)
            parts = [flat, None, None] if k in (3, 4) else [np.ascontiguousarray(c) for c in cuts]
            inputs = dict(zip("qkv", parts))
            inputs |= {"pk": f32(batch, groups, past, size) if past else None, "pv": f32(batch, groups, past, size) if past else None,
                       "ends": ends, "total": np.array([total], np.int32), "cos": cos if rotary else None,
                       "sin": sin if rotary else None}  # fmt: skip
            if k == 7:
                inputs |= {"at": None, "add": f32(1, heads, rows, total)}
            if k == 8:
                inputs |= {"at": None, "add": None, "sink": f32(heads)}
            attributes = {
                "num_heads": heads,
                "kv_num_heads": groups,
                "do_rotary": int(rotary),
                "rotary_interleaved": int(k == 2),
            }
            attributes |= {4: {"softcap": 5.0}, 5: {"local_window_size": 3}, 6: {"scale": 0.2}}.get(k, {})
            yield inputs, attributes, 3, ("total", "cos", "sin")


def rotaries() -> Iterator[Case]:
    cos, sin = f32(20, 4), f32(20, 4)
    for interleaved, at in product((0, 1), (np.array([3], np.int64), ints(20, 2, 5, dtype=np.int64))):
        yield {"x": f32(2, 5, 24), "at": at, "c": cos, "s": sin}, {"interleaved": interleaved}, 1, ("c", "s")
        yield {"x": f32(2, 3, 5, 8), "at": at, "c": cos, "s": sin}, {"interleaved": interleaved}, 1, ("c", "s")
        partial = {"interleaved": interleaved, "num_heads": 3, "rotary_embedding_dim": 8}
        yield {"x": f32(2, 5, 36), "at": at, "c": cos, "s": sin}, partial, 1, ("c", "s")


def nbits() -> Iterator[Case]:
    for bits, block, depth, zeros, bias in product((4, 8), (16, 32), (32, 72), ("no", "packed", "float"), (0, 1)):
        if bits == 8 and zeros == "float":
            continue  # not on the CPU
        count, width = -(-depth // block), 6
        b = ints(256, width, count, block * bits // 8, dtype=np.uint8)
        zero = {"no": None, "packed": ints(256, width * -(-count * bits // 8), dtype=np.uint8),
                "float": RNG.random((width, count)).astype(np.float32) * (1 << bits)}[zeros]  # fmt: skip
        yield ({"a": f32(2, 3, depth), "b": b, "s": f32(width * count), "z": zero, "g": None, "bias": f32(width) if bias else None},
               {"K": depth, "N": width, "bits": bits, "block_size": block}, 1, ("b", "s", "z", "g", "bias"))  # fmt: skip
    order = RNG.permutation(64).astype(np.int32) // 32  # (with zero points, ONNX Runtime does not do what it documents)
    for bits, groups in ((4, order), (2, None)):
        b = ints(256, 6, 2, 4 * bits, dtype=np.uint8)
        yield ({"a": f32(3, 64), "b": b, "s": f32(12), "z": None, "g": groups},
               {"K": 64, "N": 6, "bits": bits, "block_size": 32}, 1, ("b", "s", "g"))  # fmt: skip


def gathers() -> Iterator[Case]:
    for bits, zeros in product((4, 8), (0, 1)):
        data = ints(256, 20, 64 * bits // 8, dtype=np.uint8)
        zero = ints(256, 20, -(-2 * bits // 8), dtype=np.uint8) if zeros else None
        yield ({"d": data, "i": ints(20, 2, 3, dtype=np.int64), "s": f32(20, 2), "z": zero},
               {"gather_axis": 0, "quantize_axis": 1, "block_size": 32, "bits": bits}, 1, ("d", "s", "z"))  # fmt: skip


def matrices() -> Iterator[tuple[str, list[Case]]]:
    """Inverses (whose pivots have to change places, too), distances."""
    shapes = [(1, 1), (2, 2), (3, 3), (2, 4, 4), (3, 1, 5, 5), (8, 8), (2, 16, 16)]
    cases: list[Case] = []
    for *batch, size, _ in shapes:
        near = f32(*batch, size, size) + 3 * np.eye(size, dtype=np.float32)
        cases += [({"x": near}, {}, 1, ()), ({"x": near[..., ::-1, :].copy()}, {}, 1, ())]
    cases.append(({"x": np.array([[0, 2.0], [4, 0]], np.float32)}, {}, 1, ("x",)))
    cases.append(({"x": cases[6][0]["x"].astype(np.float64)}, {}, 1, ()))
    yield "Inverse", cases
    a, b = f32(5, 7), f32(3, 7)
    yield (
        "CDist",
        [
            ({"a": a.astype(d), "b": b.astype(d)}, {"metric": m}, 1, ())
            for m in ("euclidean", "sqeuclidean")
            for d in (np.float32, np.float64)
        ],
    )


def pictures() -> Iterator[tuple[str, list[Case]]]:
    cases: list[Case] = []
    for dtype, low, high in ((np.int8, -128, 128), (np.uint8, 0, 256)):
        x = ints(high, 2, 7, 6, 5, low=low, dtype=dtype)
        windows = (
            {"strides": [2, 2]},
            {"pads": [1, 0, 1, 1]},
            {"dilations": [2, 1], "ceil_mode": 1, "strides": [2, 3]},
            {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        )
        cases += [({"x": x}, {"kernel_shape": [2, 3], **w}, 1, ()) for w in windows]
        cases.append(({"x": ints(high, 1, 9, 4, low=low, dtype=dtype)}, {"kernel_shape": [3], "strides": [2]}, 1, ()))
    yield "NhwcMaxPool", cases
    x, grid = f32(2, 3, 4, 5), (1.2 * RNG.uniform(-1, 1, (2, 3, 6, 2))).astype(np.float32)
    forms = product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1))
    yield (
        "GridSample",
        [({"x": x, "grid": grid}, {"mode": m, "padding_mode": p, "align_corners": c}, 1, ()) for m, p, c in forms],
    )
    pads = np.array([0, 2, 1, 0], np.int64)
    yield "Pad", [
        ({"x": f32(3, 4), "pads": pads, "v": v if m == "constant" else None}, {"mode": m}, 1, ("pads", "v"))
        for m in ("constant", "edge", "reflect") for v in (None, np.array([2.5], np.float32))
    ]  # fmt: skip
    yield "ExpandDims", [({"x": f32(3, 4), "axis": np.array(k, np.int32)}, {}, 1, ("axis",)) for k in (0, 1, 2, -1)]


def four_bits() -> Iterator[Case]:
    """Every code of both kinds, also of an odd number of weights, and of blocks that the last one does not fill."""
    for kind, (depth, width), block in product((0, 1), ((32, 5), (48, 3), (20, 6)), (16, 32, 64)):
        count = depth * width
        inputs = {
            "a": f32(4, depth),
            "b": ints(256, (count + 1) // 2, dtype=np.uint8),
            "s": np.abs(f32(-(-count // block))),
        }
        yield inputs, {"K": depth, "N": width, "block_size": block, "quant_type": kind}, 1, ("b", "s")


# -- quantised ---------------------------------------------------------------------------------------------------------


def unsigned(*dims: int) -> np.ndarray:
    return ints(256, *dims, dtype=np.uint8)


def signed(*dims: int) -> np.ndarray:
    return ints(128, *dims, low=-128, dtype=np.int8)


def point(value: int, dtype: type = np.uint8) -> np.ndarray:
    return np.asarray(value, dtype)


def scale(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


PICTURE = {"x": unsigned(2, 3, 6, 6), "xs": scale(0.05), "xz": point(128), "ys": scale(0.03), "yz": point(10)}
PAIR = {"a": unsigned(2, 3, 5), "as": scale(0.02), "az": point(120), "b": unsigned(3, 1), "bs": scale(0.03),
        "bz": point(10), "ys": scale(0.05), "yz": point(100)}  # fmt: skip
#: Ops of numbers of 8 bits: name, inputs, attributes. ONNX Runtime sums two products of bytes in 16 bits on a processor without VNNI, whatever
#: it is asked: where it does, weights have 7 bits.
ROUNDED: list[tuple[str, dict, dict]] = [
    ("QLinearAdd", PAIR, {}),
    ("QLinearMul", PAIR, {}),
    ("QLinearSigmoid", PICTURE | {"ys": scale(1 / 256), "yz": point(0)}, {}),
    ("QLinearLeakyRelu", PICTURE, {"alpha": 0.1}),
    ("QLinearGlobalAveragePool", PICTURE, {}),
    ("QLinearAveragePool", PICTURE, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("QLinearSoftmax", PICTURE | {"ys": scale(1 / 256), "yz": point(0)}, {"axis": -1, "opset": 13}),
    ("QLinearConcat", {"ys": scale(0.05), "yz": point(128), "a": unsigned(2, 3), "as": scale(0.05), "az": point(128),
                       "b": unsigned(2, 4), "bs": scale(0.03), "bz": point(10)}, {"axis": 1}),
    ("DynamicQuantizeMatMul", {"a": f32(3, 16), "b": unsigned(16, 7), "bs": scale(0.1).reshape(1), "bz": point(3).reshape(1),
                               "c": f32(7)}, {}),
    ("MatMulIntegerToFloat", {"a": unsigned(3, 16), "b": signed(16, 7) // 2, "as": scale(0.1), "bs": np.abs(f32(7)),
                              "az": point(120), "bz": signed(7)}, {}),
    ("QGemm", {"a": unsigned(4, 16), "as": scale(0.1), "az": point(120), "b": signed(7, 16) // 2, "bs": np.abs(f32(7)),
               "bz": np.zeros(7, np.int8), "c": RNG.integers(-900, 900, 7).astype(np.int32), "ys": scale(3),
               "yz": point(120)}, {"transB": 1}),
    ("QLinearWhere", {"c": RNG.random((2, 3, 5)) < 0.5, "a": PAIR["a"], "as": PAIR["as"], "az": PAIR["az"], "b": PAIR["b"],
                      "bs": PAIR["bs"], "bz": PAIR["bz"], "ys": scale(0.05), "yz": point(100)}, {}),
    ("QLinearAveragePool", PICTURE | {"x": unsigned(2, 6, 6, 3)}, {"kernel_shape": [3, 2], "strides": [2, 1], "channels_last": 1}),
    ("QLinearGlobalAveragePool", PICTURE | {"x": unsigned(2, 6, 6, 3)}, {"channels_last": 1}),
    ("QLinearConv", {"x": unsigned(1, 7, 6, 4), "xs": scale(0.02), "xz": point(120), "w": signed(6, 4, 3, 3) // 2, "ws": scale(0.01),
                     "wz": np.int8(0), "ys": scale(0.5), "yz": point(128), "b": RNG.integers(-900, 900, 6).astype(np.int32)},
     {"pads": [1, 1, 1, 1], "channels_last": 1}),
    ("QAttention", {"x": unsigned(2, 4, 10), "w": signed(10, 36) // 2, "b": f32(36), "xs": scale(0.02), "ws": np.abs(f32(36)) / 50,
                    "m": np.array([4, 2], np.int32), "xz": point(120), "wz": np.zeros(36, np.int8)}, {"num_heads": 3}),
]  # fmt: skip


def rounded() -> Iterator[tuple[str, list[Case]]]:
    """`ROUNDED` by op: but for a concatenation's, all inputs behind the first are constants."""
    for op in dict.fromkeys(name for name, *_ in ROUNDED):
        of = [(inputs, attributes) for name, inputs, attributes in ROUNDED if name == op]
        yield op, [(inputs, more, 1, () if op == "QLinearConcat" else tuple(inputs)[1:]) for inputs, more in of]


def cases() -> dict[str, list[Case]]:
    """All of them by op, the same in every call."""
    RNG.bit_generator.state = np.random.default_rng(16).bit_generator.state
    found: dict[str, list[Case]] = {op: list(of) for op, of in (*gelus(), *products(), *norms())}
    rest = {"Attention": attentions, "MultiHeadAttention": multi_head_attentions, "GroupQueryAttention": grouped,
            "RotaryEmbedding": rotaries, "MatMulNBits": nbits, "GatherBlockQuantized": gathers,
            "MatMulBnb4": four_bits}  # fmt: skip
    found |= {op: list(make()) for op, make in rest.items()}
    return found | {op: list(of) for op, of in (*matrices(), *pictures(), *rounded())}
