"""Layouts: where the elements of a tensor lie in memory, as one token in its type.

A type's shape is always logical; the encoding says how memory is arranged:

    tensor<1x64x56x56xf32, #ln.layout<"c16h1">>

``c16``: the channel axis (axis 1) in blocks of 16, the block innermost; ``h1``: a border of 1 element (the halo) around
the last two axes, which the producer writes with zeros, like the unused lanes of the last block. No encoding is the
plain layout, row-major without gaps. Shape rules, references and definitions use logical indices only; `offset` takes
them to memory. Imports xDSL and `ir.types`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.ir.types import TensorSpec, spec_of

MAX_BLOCK, MAX_HALO = 1024, 64
_TOKEN = re.compile(r"(?:c(?P<block>[1-9]\d{0,3}))?(?:h(?P<halo>[1-9]\d?))?")


@dataclass(frozen=True)
class Layout:
    """`block` channels together, innermost (1: not blocked); a border of `halo` elements around the last two axes."""

    block: int = 1
    halo: int = 0

    @classmethod
    def parse(cls, token: str) -> Layout:
        """The layout that a token names; `LightNetError` for any other text. ``plain`` is the one without a token."""
        match = None if token == "" else _TOKEN.fullmatch("" if token == "plain" else token)
        if match is None:
            raise LightNetError(f"'{token}' is no layout: 'plain', or a channel block, a halo or both, as in 'c16h1'")
        layout = cls(int(match["block"] or 1), int(match["halo"] or 0))
        if layout.block > MAX_BLOCK or layout.halo > MAX_HALO:
            raise LightNetError(f"layout '{token}': the block is at most {MAX_BLOCK}, the halo at most {MAX_HALO}")
        return layout

    def __str__(self) -> str:
        token = (f"c{self.block}" if self.block > 1 else "") + (f"h{self.halo}" if self.halo else "")
        return token or "plain"

    @property
    def is_plain(self) -> bool:
        return self == PLAIN

    def fits(self, dims: Sequence[int]) -> bool:
        """Whether a tensor of these dims can have the layout: all but the plain one need [N, C, H, W]."""
        return self.is_plain or len(dims) == 4

    def physical_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The row-major shape of the memory: [N, C, H, W] gives [N, ceil(C/b), H+2h, W+2h, b]; plain stays."""
        if self.is_plain:
            return tuple(dims)
        n, c, h, w = dims
        return (n, -(-c // self.block), h + 2 * self.halo, w + 2 * self.halo, self.block)

    def size(self, spec: TensorSpec) -> int:
        """Bytes that a tensor takes, halo and unused lanes included."""
        return prod(self.physical_dims(spec.dims)) * spec.dtype.size

    def offset(self, dims: Sequence[int], index: Sequence[int]) -> int:
        """The element at which the logical `index` of a tensor of shape `dims` lies, counted in elements from the
        tensor's first byte."""
        if not self.is_plain:
            n, c, y, x = index
            index = (n, c // self.block, y + self.halo, x + self.halo, c % self.block)
        position = 0
        for i, extent in zip(index, self.physical_dims(dims)):
            position = position * extent + i
        return position


PLAIN = Layout()


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
    encoding = type.encoding if isinstance(type, TensorType) else NoneAttr()
    return encoding.data if isinstance(encoding, LayoutAttr) else PLAIN


def with_layout(type: TensorType, layout: Layout) -> TensorType:
    """The same tensor in another layout; `LightNetError` if its rank does not allow it."""
    if not layout.fits(type.get_shape()):
        raise LightNetError(f"layout '{layout}' is for 4-dimensional tensors, not for {spec_of(type)}")
    encoding = NoneAttr() if layout.is_plain else LayoutAttr(layout)
    return TensorType(type.element_type, type.get_shape(), encoding)


def byte_size(type: Attribute) -> int:
    """Bytes that a value of this tensor type takes in memory."""
    return layout_of(type).size(spec_of(type))
