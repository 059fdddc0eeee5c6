"""What several generators of kernels on blocked maps ask of a body."""

from __future__ import annotations

import pytest
from blocked_kernels import form_of, kernel_of

from lightnet.backends.cpu.blocked.base import BlockedGenerator
from lightnet.ir.registry import GENERATORS
from lightnet.ir.target import Form

SAME = "size = [3, 3], padding = [1, 1, 1, 1]"


def taken(alg: str, n: int, anchor: str, rest: str, operands: str = "xwb") -> Form | None:
    """The form that a generator gives to ``anchor`` on maps and weights of one shape, [n, n, 3, 3], with `rest` behind it."""
    dims = f"tensor<{n}x{n}x3x3xf32>"
    types = {"x": dims, "w": dims, "b": f"tensor<{n}xf32>"}
    kernel = kernel_of({k: types[k] for k in operands}, f"%s = {anchor} : {dims} {rest}".replace(": T", f": {dims}"))
    generator: BlockedGenerator = GENERATORS.get(alg)
    return form_of(generator, kernel)


@pytest.mark.parametrize(
    ("alg", "n", "anchor"),
    [
        ("direct", 16, f"ln.conv2d %x, %w, %b {{{SAME}}}"),
        ("winograd4", 16, f"ln.conv2d %x, %w, %b {{{SAME}}}"),
        ("winograd2", 16, f"ln.conv2d %x, %w, %b {{{SAME}}}"),
        ("first", 3, f"ln.conv2d %x, %w, %b {{{SAME}}}"),
        ("depthwise", 1, f"ln.conv2d %x, %w, %b {{{SAME}}}"),
        ("deconv", 16, f"ln.deconv2d %x, %w, %b {{{SAME}}}"),
    ],
    ids=lambda x: x.partition(" ")[0] if isinstance(x, str) else "",
)
def test_weights_lie_in_memory_in_one_way(alg, n, anchor):
    """Who wants them packed cannot read them as a map, too; a map may be read again."""
    add = "%y = ln.add %s, {} : T ln.yield %y".format
    assert taken(alg, n, anchor, "ln.yield %s") is not None
    assert taken(alg, n, anchor, add("%w")) is None
    assert taken(alg, n, anchor.replace("%x, %w", "%w, %w"), "ln.yield %s", "wb") is None
    again = taken(alg, n, anchor, add("%x"))
    assert again is None if alg == "first" else again is not None  # which reads its input as it came, row-major


def concats(count: int, channels: int = 16) -> tuple[dict[str, str], str]:
    """A chain of concatenations of `count` maps along the channels."""
    operands = {f"x{i}": f"tensor<1x{channels}x2x2xf32>" for i in range(count)}
    lines = [
        f"%s{i} = ln.concat %{f's{i - 1}' if i > 1 else 'x0'}, %x{i} {{axis = 1}} : tensor<1x{channels * (i + 1)}x2x2xf32>"
        for i in range(1, count)
    ]
    return operands, " ".join([*lines, f"ln.yield %s{count - 1}"])


def one(shape: str, line: str, result: str, rest: str = "ln.yield %s") -> tuple[dict[str, str], str]:
    """A body of one op on a map %x, and what follows."""
    return {"x": f"tensor<{shape}xf32>"}, f"%s = {line} : tensor<{result}xf32> {rest}"


def conv(src: str, weight: str, result: str, padding: str = "0, 0, 0, 0") -> tuple[dict[str, str], str]:
    size = weight.split("x")[2:]
    operands = {"x": f"tensor<{src}xf32>", "w": f"tensor<{weight}xf32>", "b": f"tensor<{weight.split('x')[0]}xf32>"}
    params = f"size = [{size[0]}, {size[1]}], padding = [{padding}]"
    return operands, f"%s = ln.conv2d %x, %w, %b {{{params}}} : tensor<{result}xf32> ln.yield %s"


#: Moves that take the pictures of a map apart: which picture a channel comes from, and which channel it is, may change.
PICTURES = (
    {"x": "tensor<2x4x2x2xf32>"},
    "%a = ln.slice %x {axis = 0, start = 1, len = 1} : tensor<1x4x2x2xf32> "
    "%b = ln.concat %a, %a {axis = 0} : tensor<2x4x2x2xf32> ln.yield %b",
)
CHANNELS_BY_PICTURE = (
    {"x": "tensor<2x4x2x2xf32>"},
    "%a = ln.slice %x {axis = 0, start = 0, len = 1} : tensor<1x4x2x2xf32> %b = ln.slice %x {axis = 0, start = 1, len = 1} : tensor<1x4x2x2xf32> "
    "%c = ln.slice %a {axis = 1, start = 0, len = 2} : tensor<1x2x2x2xf32> %d = ln.slice %b {axis = 1, start = 2, len = 2} : tensor<1x2x2x2xf32> "
    "%e = ln.concat %c, %d {axis = 0} : tensor<2x2x2x2xf32> ln.yield %e",
)


@pytest.mark.parametrize(
    ("alg", "body", "is_taken"),
    [
        ("channels", concats(12), True),
        ("channels", concats(13), False),
        ("channels", PICTURES, False),
        ("channels", CHANNELS_BY_PICTURE, False),
        ("channels", one("1x8192x1x1", "ln.slice %x {axis = 1, start = 0, len = 16}", "1x16x1x1"), True),
        ("channels", one("1x8193x1x1", "ln.slice %x {axis = 1, start = 0, len = 16}", "1x16x1x1"), False),
        ("channels", one("8192x2x1x1", "ln.slice %x {axis = 1, start = 0, len = 1}", "8192x1x1x1"), True),
        ("channels", one("8193x2x1x1", "ln.slice %x {axis = 1, start = 0, len = 1}", "8193x1x1x1"), False),
        ("channels", one("1x16x2x2", "ln.slice %x {axis = 3, start = 0, len = 1}", "1x16x2x1"), False),
        ("channels", one("1x16x2x2", "ln.slice %x {axis = 2, start = 0, len = 1}", "1x16x1x2"), False),
        ("channels", one("1x16x2x2", "ln.reshape %x", "2x8x2x2"), False),
        ("channels", one("1x16x2x2", "ln.transpose %x {axes = [0, 1, 3, 2]}", "1x16x2x2"), False),
        ("direct", conv("1x16x5x5", "16x16x3x3", "1x16x3x3"), True),
        ("direct", conv("1x0x5x5", "16x0x3x3", "1x16x3x3"), False),
        ("direct", conv("1x16x5x5", "0x16x3x3", "1x0x3x3"), False),
        ("direct", conv("0x16x5x5", "16x16x3x3", "0x16x3x3"), False),
        ("first", conv("1x0x5x5", "16x0x3x3", "1x16x3x3"), False),
        ("pool", one("1x16x6x6", "ln.maxpool2d %x {size = [2, 2], stride = [2, 2]}", "1x16x3x3"), True),
        ("pool", one("1x0x6x6", "ln.maxpool2d %x {size = [2, 2], stride = [2, 2]}", "1x0x3x3"), False),
    ],
)  # fmt: skip
def test_what_is_taken(alg: str, body: tuple[dict[str, str], str], is_taken: bool) -> None:
    """At the limits of runs, channels and pictures; moves of pixels and pictures; what is empty."""
    generator: BlockedGenerator = GENERATORS.get(alg)
    assert (form_of(generator, kernel_of(*body)) is not None) is is_taken
