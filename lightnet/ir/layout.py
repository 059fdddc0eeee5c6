"""Layouts: where the elements of a tensor lie in memory, as one token in its type.

A type's shape is always logical; the encoding says how memory is arranged:

    tensor<1x64x56x56xf32, #ln.layout<"c16h1">>

No encoding is the plain layout, row-major without gaps. The others are for [N, C, H, W] maps (`Blocked`,
`ChannelsLast`), for the weights of convolutions and matrix products (`Packed`, `Phases`), and for what grows
(`reserved.Reserved`). Shape rules, references
and definitions use logical indices only; `pack` and `unpack` take them to memory and back, `subscripts` says where an
element lies: generated loops ask it. What a value's layout leaves unused (`gaps`: halo, lanes behind the last channel)
its producer writes with zeros on every run. Imports xDSL, `ir.types` and the expressions of bound definitions.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Attribute, Data, Operation
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir import winograd
from lightnet.ir.bound import I64, Apply, Const, Node, block_and_lane, shifted_index
from lightnet.ir.types import DimsAttr, OpenDims, TensorSpec, spec_of

MAX_BLOCK, MAX_HALO, MAX_PHASES = 1024, 64, 99
#: Bytes of a plain tensor that are copied at a time (`Layout.pack_parts`).
PART = 1 << 22
#: A part of a tensor, or of what its memory has around it: the range of each dimension.
Box = tuple[tuple[int, int], ...]
_MAPS = re.compile(r"(?:c(?P<block>[1-9]\d{0,3}))?(?:h(?P<rows>\d{1,2})(?:x(?P<cols>\d{1,2}))?)?")
_LAST = re.compile(r"nhwc([1-9]\d{0,3})")
_PHASES = re.compile(r"s([1-9]\d?)x([1-9]\d?)nhwc([1-9]\d{0,3})")
_WEIGHTS = re.compile(
    r"(?:w(?P<winograd>[24]))?(?P<axes>[otdnvpq])(?P<block>[1-9]\d{0,3})(?:i(?P<inner>[1-9]\d{0,3}))?"
)


@dataclass(frozen=True)
class Layout:
    """An arrangement of memory; this one is plain: row-major without gaps."""

    @classmethod
    def parse(cls, token: str) -> Layout:
        """The layout that a token names; `LightNetError` for any other text. ``plain`` is the one without a token."""
        if token == "plain":
            return PLAIN
        from lightnet.ir.reserved import Reserved

        for kind in (Blocked, ChannelsLast, Packed, Phases, Reserved):
            found = kind.of(token)
            if found is not None and str(found) == token:
                return found
        raise LightNetError(
            f"'{token}' is no layout: 'plain'; a block of channels, a halo or both, as in 'c16h1' or 'c16h2x0'; "
            "channels last, as in 'nhwc4'; memory for more elements, as in 'r2x512'; or packed weights, as in "
            f"'o32i16', 'w4o32', 'n64', 'p16i2' or 's2x2nhwc4' (block at most {MAX_BLOCK}, halo at most {MAX_HALO})"
        )

    def __str__(self) -> str:
        return "plain"

    @property
    def is_plain(self) -> bool:
        return type(self) is Layout

    def fits(self, dims: Sequence[int]) -> bool:
        """Return whether a tensor of these dims can have the layout."""
        return True

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The row-major shape of the memory of a tensor of shape `dims`."""
        return tuple(dims)

    def subscripts(self, subs: Sequence[Node], dims: Sequence[int]) -> tuple[Node, ...]:
        """The place of an element: its subscripts in `physical_dims`, from those in `dims`. Subscripts in `gaps` have a
        place, too. Only for a layout that is lossless: what is transformed has no elements."""
        return tuple(subs)

    def gaps(self, dims: Sequence[int]) -> list[Box]:
        """The boxes of elements that memory has and the tensor has not, by the tensor's subscripts (as if it went on):
        apart from each other, and perhaps empty."""
        return []

    def size(self, spec: TensorSpec) -> int:
        """Bytes that a tensor takes, halo and unused lanes included."""
        return prod(self.physical_dims(spec.dims)) * spec.dtype.size

    @property
    def is_lossless(self) -> bool:
        """True if `unpack` gives exactly what was packed."""
        return not getattr(self, "winograd", 0)

    def pack(self, array: np.ndarray, memory: np.ndarray | None = None) -> np.ndarray:
        """The memory of a tensor: an array of `physical_dims`, with zeros where there is nothing; in `memory`, which
        holds zeros, if that is given."""
        if memory is None and self.is_plain:
            return array
        memory = self._zeros(array) if memory is None else memory
        deque(self.pack_parts(array, memory), 0)
        return memory

    def pack_parts(self, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
        """`pack` in steps; how many bytes each has written. So what was read of a large array can be let go before the
        rest is."""
        step = max(1, PART // max(array[:1].nbytes, 1)) if array.ndim else 1
        for i in range(0, len(array) if array.ndim else 1, step):
            part = slice(i, i + step) if array.ndim else ...
            memory[part] = array[part]
            yield memory[part].nbytes

    def _zeros(self, array: np.ndarray) -> np.ndarray:
        return np.zeros(self.physical_dims(array.shape), array.dtype)

    def unpack(self, memory: np.ndarray, dims: Sequence[int]) -> np.ndarray:
        """The tensor of shape `dims` in `memory`, an array of `physical_dims`: the converse of `pack`."""
        return memory


PLAIN = Layout()


def _beyond(dims: Sequence[int], ends: Sequence[int]) -> list[Box]:
    """The boxes that a tensor of shape `ends` has and one of shape `dims` has not, apart from each other."""
    return [
        (*((0, e) for e in ends[:k]), (dims[k], ends[k]), *((0, n) for n in dims[k + 1 :]))
        for k in range(len(dims))
        if ends[k] > dims[k]
    ]


def _rounded_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class MemoryDim(NamedTuple):
    """One dimension of memory, and what it is of an axis of the tensor: its blocks of `by` elements (``block``), the
    place in such a block (``lane``), or all of it (``whole``), rounded up to a multiple of `by`, with `border` elements
    in front and behind (None: it never has any)."""

    axis: int
    kind: str = "whole"
    by: int = 1
    border: int | None = None


class Tiled(Layout):
    """An arrangement in which each dimension of memory is a part of an axis: all else follows. An axis of which nothing
    is a part has one element."""

    @cached_property
    def parts(self) -> tuple[MemoryDim, ...]:
        """The dimensions of memory, in order; an axis is one of them as a whole, or two as blocks and lanes."""
        raise NotImplementedError

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        found = []
        for axis, kind, by, border in self.parts:
            blocks = -(-dims[axis] // by)
            found.append(by if kind == "lane" else blocks if kind == "block" else blocks * by + 2 * (border or 0))
        return tuple(found)

    def subscripts(self, subs: Sequence[Node], dims: Sequence[int]) -> tuple[Node, ...]:
        assert self.is_lossless, "what is transformed has no elements"
        found = []
        for axis, kind, by, border in self.parts:
            if kind == "whole":
                found.append(subs[axis] if border is None else shifted_index(subs[axis], border))
            else:
                found.append(block_and_lane(subs[axis], by)[kind == "lane"])
        return tuple(found)

    def gaps(self, dims: Sequence[int]) -> list[Box]:
        multiples = {part.axis: part.by for part in self.parts}
        return _beyond(dims, [_rounded_up(n, multiples.get(axis, 1)) for axis, n in enumerate(dims)])

    def pack_parts(self, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
        axes = sorted({part.axis for part in self.parts})
        inner = [part for part in self.parts if part.kind != "block"]
        blocks = [k for k, part in enumerate(self.parts) if part.kind == "block"]
        source = array[tuple(slice(None) if axis in axes else 0 for axis in range(array.ndim))]
        source = source.transpose([axes.index(part.axis) for part in inner])
        target = memory.transpose([*blocks, *(k for k in range(memory.ndim) if k not in blocks)])
        split = [([part.axis for part in inner].index(self.parts[k].axis), self.parts[k].by) for k in blocks]
        inside = [part.border or 0 for part in inner]
        taken = [slice(None)] * len(inner)
        for numbers in np.ndindex(*target.shape[: len(blocks)]):
            for n, (where, by) in zip(numbers, split):
                taken[where] = slice(n * by, (n + 1) * by)
            piece, room = source[tuple(taken)], target[numbers]
            if piece.shape == room.shape:
                room[...] = piece
            else:
                room[tuple(slice(begin, begin + n) for begin, n in zip(inside, piece.shape))] = piece
            yield room.nbytes

    def unpack(self, memory: np.ndarray, dims: Sequence[int]) -> np.ndarray:
        order = sorted(range(memory.ndim), key=lambda k: (self.parts[k].axis, self.parts[k].kind == "lane"))
        ends = [prod(memory.shape[k] for k in order if self.parts[k].axis == axis) for axis in range(len(dims))]
        begins = {part.axis: part.border or 0 for part in self.parts}
        inside = tuple(slice(b := begins.get(axis, 0), b + n) for axis, n in enumerate(dims))
        return np.ascontiguousarray(memory.transpose(order).reshape(ends)[inside])


@dataclass(frozen=True)
class Blocked(Tiled):
    """A map [N, C, H, W] in blocks of `block` channels, the block innermost (1: not blocked), with a border of `halo` =
    (rows, columns) elements on each side of the picture: [N, ceil(C/block), H + 2*rows, W + 2*columns, block].

    Tokens: ``c16``, ``c16h1`` (one row and column), ``c16h2x0`` (two rows, no column), ``h1``.
    """

    block: int = 1
    halo: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, token: str) -> Blocked | None:
        """The layout that a token names, None where it names none of these."""
        if not token or (match := _MAPS.fullmatch(token)) is None:
            return None
        rows = int(match["rows"] or 0)
        cols, block = int(match["cols"] or rows), int(match["block"] or 1)
        return cls(block, (rows, cols)) if max(rows, cols) <= MAX_HALO and block <= MAX_BLOCK else None

    def __str__(self) -> str:
        rows, cols = self.halo
        halo = "" if rows == cols == 0 else f"h{rows}" if rows == cols else f"h{rows}x{cols}"
        return (f"c{self.block}" if self.block > 1 else "") + halo or "plain"

    def fits(self, dims: Sequence[int]) -> bool:
        return len(dims) == 4

    @cached_property
    def parts(self) -> tuple[MemoryDim, ...]:
        rows, cols = (MemoryDim(2 + k, border=n) for k, n in enumerate(self.halo))
        return MemoryDim(0), MemoryDim(1, "block", self.block), rows, cols, MemoryDim(1, "lane", self.block)

    def gaps(self, dims: Sequence[int]) -> list[Box]:
        (n, c, h, w), (rows, cols) = dims, self.halo
        lanes = -(-c // self.block) * self.block
        around = [(y, (-cols, w + cols)) for y in ((-rows, 0), (h, h + rows))]
        around += [((0, h), x) for x in ((-cols, 0), (w, w + cols))]
        return [((0, n), (c, lanes), (0, h), (0, w)), *(((0, n), (0, lanes), *box) for box in around)]


@dataclass(frozen=True)
class ChannelsLast(Tiled):
    """A tensor [N, C, H, W] as [N, H, W, C'], where C' is C rounded up to a multiple of `multiple`, so that the
    channels of each pixel begin at an aligned address. Weights [O, I, KH, KW] lie as [O, KH, KW, I']. Token:
    ``nhwc4``."""

    multiple: int = 1

    @classmethod
    def of(cls, token: str) -> ChannelsLast | None:
        """The layout that a token names, None where it names none of these."""
        match = _LAST.fullmatch(token)
        return cls(int(match[1])) if match is not None and int(match[1]) <= MAX_BLOCK else None

    def __str__(self) -> str:
        return f"nhwc{self.multiple}"

    def fits(self, dims: Sequence[int]) -> bool:
        return len(dims) == 4

    @cached_property
    def parts(self) -> tuple[MemoryDim, ...]:
        return MemoryDim(0), MemoryDim(2), MemoryDim(3), MemoryDim(1, "whole", self.multiple)


@dataclass(frozen=True)
class Packed(Tiled):
    """Weights as a kernel reads them. `axes` tells whose: of convolutions [O, I, KH, KW] (``o``) and of transposed ones
    [I, O, KH, KW] (``t``), of depthwise convolutions [C, 1, KH, KW] (``d``), of matrix products [K, N] (``n``), or
    values by channel (``v``).

    ``o32i16``  [ceil(O/32), KH, ceil(I/16), KW, 16, 32]: what a row of the window needs is in one piece
    ``o32``     [ceil(O/32), I, KH, KW, 32]: for pictures, whose few channels are not blocked
    ``w4o32``   [ceil(O/32), 36, I', 32]: the 3x3 windows transformed for Winograd's F(4x4, 3x3); ``w2o32`` with 16 for
                F(2x2, 3x3), with 6 and 4 for windows of 3x1 and 1x3 (`ir.winograd`)
    ``t32i16``  as ``o32i16``, outputs and inputs exchanged
    ``d16``     [ceil(C/16), KH, KW, 16]
    ``n64``     [ceil(N/64), K, 64]
    ``p16i2``   [ceil(O/16), KH, KW, ceil(I/2), 16, 2]: of integers that are multiplied two at a time
    ``q16i2``   [ceil(N/16), ceil(K/2), 16, 2]: of matrix products, for the same
    ``v16``     [ceil(C/16), 16]: a value by channel, [C] or [C, 1, 1]
    """

    axes: str = "o"
    block: int = 16
    inner: int = 0
    winograd: int = 0

    @classmethod
    def of(cls, token: str) -> Packed | None:
        """The layout that a token names, None where it names none of these."""
        if (match := _WEIGHTS.fullmatch(token)) is None:
            return None
        block, inner, winograd = (int(match[k] or 0) for k in ("block", "inner", "winograd"))
        axes = match["axes"]
        if (
            (inner and winograd)
            or (inner and axes not in "otpq")
            or (winograd and axes != "o")
            or (axes in "tpq" and not inner)
        ):
            return None
        if max(block, inner) > MAX_BLOCK:
            return None
        return cls(axes, block, inner, winograd)

    def __str__(self) -> str:
        prefix = f"w{self.winograd}" if self.winograd else ""
        return f"{prefix}{self.axes}{self.block}" + (f"i{self.inner}" if self.inner else "")

    def fits(self, dims: Sequence[int]) -> bool:
        if self.axes in "nq":
            return len(dims) == 2
        if self.axes == "v":
            return len(dims) > 0 and all(d == 1 for d in dims[1:])
        if len(dims) != 4 or (self.axes == "d" and dims[1] != 1):
            return False
        return not self.winograd or tuple(dims[2:]) in ((3, 3), (3, 1), (1, 3))

    @cached_property
    def parts(self) -> tuple[MemoryDim, ...]:
        outer, inner = (1, 0) if self.axes in "tnq" else (0, 1)
        block, lane = MemoryDim(outer, "block", self.block), MemoryDim(outer, "lane", self.block)
        if self.inner:
            taps = (MemoryDim(2), MemoryDim(3)) if self.axes == "p" else ()
            if self.axes in "pq":
                return block, *taps, MemoryDim(inner, "block", self.inner), lane, MemoryDim(inner, "lane", self.inner)
            pair = MemoryDim(inner, "block", self.inner), MemoryDim(inner, "lane", self.inner)
            return block, MemoryDim(2), pair[0], MemoryDim(3), pair[1], lane
        between = {"v": (), "n": (inner,), "d": (2, 3)}.get(self.axes, (inner, 2, 3))
        return block, *map(MemoryDim, between), lane

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        if not self.winograd:
            return super().physical_dims(dims)
        products = winograd.tile_products(self.winograd, dims[2:])
        return (-(-dims[0] // self.block), products, _rounded_up(dims[1], winograd.CHANNEL_MULTIPLE), self.block)

    def pack_parts(self, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
        plain = self._pack_pairs if self.axes in "pq" else super().pack_parts
        yield from winograd.transform(array, self.winograd, memory) if self.winograd else plain(array, memory)

    def _pack_pairs(self, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
        """A block of outputs at a time: the blocks of inputs are too small to be walked."""
        array = array if self.axes == "p" else array.T[..., None, None]
        for number in range(-(-len(array) // self.block)):
            part, room = array[number * self.block :][: self.block].transpose(2, 3, 1, 0), memory[number]
            whole = np.zeros((*part.shape[:2], room.shape[-3] * self.inner, self.block), memory.dtype)
            whole[:, :, : part.shape[2], : part.shape[3]] = part
            room[...] = np.reshape(whole.reshape(-1, self.inner, self.block).swapaxes(1, 2), room.shape)
            yield room.nbytes

    def unpack(self, memory: np.ndarray, dims: Sequence[int]) -> np.ndarray:
        return winograd.inverse(memory, self.winograd, dims) if self.winograd else super().unpack(memory, dims)


@dataclass(frozen=True)
class Phases(Layout):
    """Weights [I, O, KH, KW] of a transposed convolution with `stride`, as those of the convolutions (of stride 1) that
    its phases are, each output's in one piece: [stride[0], stride[1], O', ceil(KH / stride[0]), ceil(KW / stride[1]),
    I'], where I' and O' are rounded up to a multiple of `multiple`. Phase p has the taps p, p + stride, p + 2*stride, …
    in reverse; where it has fewer than others, zeros come first. Token: ``s2x2nhwc4``.
    """

    stride: tuple[int, int] = (1, 1)
    multiple: int = 1

    @classmethod
    def of(cls, token: str) -> Phases | None:
        """The layout that a token names, None where it names none of these."""
        match = _PHASES.fullmatch(token)
        if match is None or int(match[3]) > MAX_BLOCK:
            return None
        return cls((int(match[1]), int(match[2])), int(match[3]))

    def __str__(self) -> str:
        return f"s{self.stride[0]}x{self.stride[1]}nhwc{self.multiple}"

    def fits(self, dims: Sequence[int]) -> bool:
        return len(dims) == 4 and all(s <= min(k, MAX_PHASES) for s, k in zip(self.stride, dims[2:]))

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        i, o = (-(-d // self.multiple) * self.multiple for d in dims[:2])
        rows, columns = (-(-k // s) for k, s in zip(dims[2:], self.stride))
        return (*self.stride, o, rows, columns, i)

    def subscripts(self, subs: Sequence[Node], dims: Sequence[int]) -> tuple[Node, ...]:
        (row, p), (column, q) = (block_and_lane(sub, stride) for sub, stride in zip(subs[2:], self.stride))
        _, _, _, rows, columns, _ = self.physical_dims(dims)
        last, end = (Apply("sub", (Const(n - 1, I64), at), I64) for n, at in ((rows, row), (columns, column)))
        return p, q, subs[1], last, end, subs[0]

    def gaps(self, dims: Sequence[int]) -> list[Box]:
        multiples = self.multiple, self.multiple, *self.stride
        return _beyond(dims, [_rounded_up(n, multiple) for n, multiple in zip(dims, multiples)])

    def pack_parts(self, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
        for p, q, part in self._taps(memory, array.shape):
            part[...] = array[:, :, p :: self.stride[0], q :: self.stride[1]].transpose(1, 2, 3, 0)
            yield part.nbytes

    def unpack(self, memory: np.ndarray, dims: Sequence[int]) -> np.ndarray:
        array = np.empty(dims, memory.dtype)
        for p, q, part in self._taps(memory, dims):
            array[:, :, p :: self.stride[0], q :: self.stride[1]] = part.transpose(3, 0, 1, 2)
        return array

    def _taps(self, memory: np.ndarray, dims: Sequence[int]) -> Iterator[tuple[int, int, np.ndarray]]:
        """Each phase, and what of its memory are taps of weights: [O, rows, columns, I], first tap first."""
        i, o, kh, kw = dims
        for p in range(self.stride[0]):
            for q in range(self.stride[1]):
                rows, columns = len(range(p, kh, self.stride[0])), len(range(q, kw, self.stride[1]))
                yield p, q, memory[p, q, :o, ::-1, ::-1, :i][:, :rows, :columns]


@irdl_attr_definition
class LayoutAttr(Data[Layout]):
    """``#ln.layout<"c16h1">``: the encoding of a tensor type; see the module's docstring."""

    name = "ln.layout"

    def verify(self) -> None:
        if self.data.is_plain:
            raise VerifyException("the plain layout is the one without an encoding")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Layout:
        with parser.in_angle_brackets():
            pos = parser.pos
            try:
                return Layout.parse(parser.parse_str_literal())
            except LightNetError as e:
                parser.raise_error(e.message, pos)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f'<"{self.data}">')


def layout_of(type: Attribute) -> Layout:
    """The layout of a tensor type."""
    encoding = type.encoding if isinstance(type, TensorType) else None
    if encoding.__class__ is DimsAttr:
        encoding = encoding.data.beside
    return encoding.data if encoding.__class__ is LayoutAttr else PLAIN


def is_plain(op: Operation) -> bool:
    """Return whether all operands and results of an op are plain."""
    return all(layout_of(v.type).is_plain for v in (*op.operands, *op.results))


def check_layouts(op: Operation) -> None:
    """Raise `VerifyException` where the type of a result has a layout that is not for its shape."""
    for result in op.results:
        if not (layout := layout_of(result.type)).fits(dims := spec_of(result.type).dims):
            raise VerifyException(f"{op.name}: layout '{layout}' is not for a tensor of shape {list(dims)}")


def with_layout(type: Attribute, layout: Layout) -> TensorType:
    """The type of the same tensor in another layout; `LightNetError` if its shape does not allow it."""
    assert isinstance(type, TensorType)
    spec = spec_of(type)
    if not layout.fits(spec.dims):
        raise LightNetError(f"layout '{layout}' is not for {spec}")
    encoding: Attribute = NoneAttr() if layout.is_plain else LayoutAttr(layout)
    if spec.open_dims:
        encoding = DimsAttr(OpenDims(spec.open_dims, encoding))
    return TensorType(type.element_type, type.get_shape(), encoding)


def byte_size(type: Attribute) -> int:
    """Bytes that a value of this tensor type takes in memory. Raises `LightNetError` for a layout that is not for its
    shape."""
    size = type.__dict__.get("_lightnet_bytes")
    if size is None:
        layout, spec = layout_of(type), spec_of(type)
        if not layout.fits(spec.dims):
            raise LightNetError(f"layout '{layout}' is not for {spec}")
        size = layout.size(spec)
        object.__setattr__(type, "_lightnet_bytes", size)
    return size
