"""What of an op's result lies in its operands: pieces against the bytes themselves, views in a layout against packed memory, and relations of definitions."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from xdsl.ir import Attribute

from lightnet.ir.layout import PLAIN, Blocked, ChannelsLast, Layout, with_layout
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.ir.views import Piece, _definition_relations, _in_layout, _whole, cut_pieces, joined_pieces
from lightnet.runtime.dtypes import BY_NAME

F32 = BY_NAME["f32"]


def bytes_of(pieces: list[tuple[str, int, int]]) -> list[tuple[str, int]]:
    return [(source, at) for source, begin, size in pieces for at in range(begin, begin + size)]


def test_pieces_are_cut_and_joined_as_bytes_are() -> None:
    for runs in product([("a", 3, 2), ("a", 5, 1), ("b", 5, 2), ("a", 0, 0)], repeat=3):
        whole = bytes_of(list(runs))
        joined = joined_pieces(runs)
        assert bytes_of(joined) == whole
        assert not any(a[0] == b[0] and a[1] + a[2] == b[1] for a, b in pairwise(joined))
        for offset, size in product(range(len(whole) + 1), repeat=2):
            cut = cut_pieces(runs, offset, size)
            assert bytes_of(cut) == whole[offset : offset + size]
            assert all(n > 0 for _, _, n in cut)


def test_pieces_fill_a_result_or_do_not() -> None:
    one, two, none = Piece(0, 8, 4), Piece(1, 0, 2), Piece(2, 0, 0)
    assert _whole([(0, one), (4, two)], 6) == [one, two] == _whole([(4, two), (0, none), (0, one)], 6)
    assert _whole([(0, one), (4, two)], 7) is None, "the end is missing"
    assert _whole([(0, one), (5, two)], 7) is None, "a gap"
    assert _whole([(0, one), (3, two)], 6) is None, "a byte twice"
    assert _whole([(1, one)], 5) is None, "the beginning is missing"
    assert _whole([], 4) is None and _whole([(0, none)], 4) is None
    assert _whole([(0, none)], 0) == [] == _whole([], 0)


def typed(dims: tuple[int, ...], layout: Layout) -> Attribute:
    return with_layout(tensor_type(TensorSpec(dims, F32)), layout)


def found_at(part: np.ndarray, whole: np.ndarray) -> int | None:
    """The byte offset where the memory of a part lies in that of the whole."""
    at = whole.tobytes().find(part.tobytes())
    return None if at < 0 else at


def test_channels_in_blocks_are_a_view_where_their_memory_is() -> None:
    """A slice of channels, and the operand of a concatenation, which is the same the other way round."""
    seen = set()
    for channels, layout in product((6, 8), (Blocked(4), Blocked(4, (1, 0)), Blocked(1, (1, 1)), ChannelsLast(4))):
        large = np.arange(1, channels * 6 + 1, dtype=np.float32).reshape(1, channels, 3, 2)
        for begin, end in product(range(channels), range(1, channels + 1)):
            if begin < end and end - begin < channels:
                small = np.ascontiguousarray(large[:, begin:end])
                want = (
                    None
                    if isinstance(layout, ChannelsLast)
                    else found_at(*(layout.pack(a).ravel() for a in (small, large)))
                )
                types = typed(large.shape, layout), typed(small.shape, layout)
                for pair in (types, types[::-1]):
                    assert _in_layout(*pair, begin * 24) == want, (layout, channels, begin, end)
                seen.add(want)
    assert {None, 0, 96} < seen


def test_what_is_no_view_in_a_layout() -> None:
    blocked, last = Blocked(4), ChannelsLast(4)
    whole = typed((1, 8, 3, 2), blocked)
    assert _in_layout(typed((8, 6), PLAIN), typed((2, 6), PLAIN), 40) == 40, "row-major memory: as it is"
    assert _in_layout(whole, typed((1, 4, 3, 2), PLAIN), 0) is None, "another layout"
    assert _in_layout(whole, typed((1, 4, 3, 1), blocked), 0) is None, "other columns"
    assert _in_layout(whole, typed((1, 4, 2, 2), blocked), 0) is None, "other rows"
    assert _in_layout(whole, typed((1, 4, 3, 2), blocked), 4) is None, "not at a channel"
    assert _in_layout(typed((2, 8, 3, 2), blocked), typed((1, 8, 3, 2), blocked), 0) is None, "two pictures"
    assert _in_layout(typed((0, 8, 3, 2), blocked), typed((0, 4, 3, 2), blocked), 0) == 0, "nothing"
    for one, other, same in (
        (whole, whole, True), (typed((1, 8, 3, 2), last), typed((1, 8, 3, 2), last), True), (whole, typed((1, 8, 3, 2), last), False),
        (typed((1, 8, 3, 2), PLAIN), whole, False),
        *((typed((2, 8, 1, 1), a), typed((2, 8, 1, 1), b), True) for a, b in product((blocked, last, PLAIN), repeat=2)),
        (typed((2, 6, 1, 1), blocked), typed((2, 6, 1, 1), PLAIN), False), (typed((2, 6, 1, 1), last), typed((2, 6, 1, 1), PLAIN), False),
        (typed((2, 8, 1, 1), Blocked(4, (1, 0))), typed((2, 8, 1, 1), PLAIN), False), (typed((2, 8, 1, 2), blocked), typed((2, 8, 1, 2), PLAIN), False),
    ):  # fmt: skip
        assert _in_layout(one, other, 0) == (0 if same else None), (one, other)


#: The definition of dst and other by x and y: for x, then y, whether its elements are read where the result is written (None: it is not read).
RELATIONS = [
    ("dst[i] = x[i] + 1", (True, None), (None, None)), ("dst[i] = x[i] * y[i]", (True, None), (True, None)),
    ("dst[i] = x[i + 1 | 0]", (False, None), (None, None)), ("dst[i] = x[i | 0]", (False, None), (None, None)),
    ("dst.flat[i] = x.flat[i]", (True, None), (None, None)), ("dst.flat[i] = x[i]", (False, None), (None, None)),
    ("dst[i] = x.flat[i]", (False, None), (None, None)), ("dst[i] += x[i]", (False, None), (None, None)), ("dst[i, j] = x[j, i]", (False, None), (None, None)),
    ("dst[i] = x[i] + x[0]", (False, None), (None, None)), ("dst[i] = x[i]\nother[i] = y[i]", (True, None), (None, False)),
    ("dst[i] = x[i]\nother[i] = x[i]", (False, False), (None, None)), ("dst[i] = y[i]\ndst[i] = dst[i] + x[i]", (False, None), (True, None)),
    ("dst[i] = x[i]\ndst[i] = dst[i] + 1", (True, None), (None, None)), ("t[i] = x[i]\ndst[i] = t[i]", (False, None), (None, None)),
    ("t[i] = x[i]\ndst[i] = y[i]", (None, None), (True, None)), ("t[i] = y[i]\ndst[i] = x[i] + t[i]", (True, None), (False, None)),
    ("dst[i] = x[i]\nother[i] = dst[i]", (True, True), (None, None)), ("dst[i] = 1\nother[i] = 2", (None, None), (None, None)),
    ("dst[i], other[i] argmax= x[i, j]", (False, False), (None, None)), ("t[i] = x[i]\nt[i] += 1\ndst[i] = t[i]", (False, None), (None, None)),
    ("t[i] = x[i]\nt[i] = 1\ndst[i] = t[i]", (False, None), (None, None)), ("dst[i] = y[x[i]]", (True, None), (False, None)),
]  # fmt: skip


def test_relations_of_definitions() -> None:
    for text, *want in RELATIONS:
        assert _definition_relations(text, ("x", "y"), ("dst", "other")) == tuple(want), text
