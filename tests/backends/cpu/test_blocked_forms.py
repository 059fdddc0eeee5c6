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
