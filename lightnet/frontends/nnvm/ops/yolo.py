"""The ops of YOLO version 2 (Redmon and Farhadi, "YOLO9000", 2016), as NNVM and darknet have them. See
`frontends/nnvm/node.py`."""

from __future__ import annotations

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet.frontends.nnvm.node import Node, nnvm_op


@nnvm_op("yolo_reorg", "yolo2_reorg")
def yolo_reorg(n: Node, x: Value) -> Value:
    """[N, C, H, W] as [N, C * stride^2, H / stride, W / stride], in darknet's order: it takes the memory of a picture
    for [C / stride^2, H * stride, W * stride], and gathers the elements at the same place of all blocks of that.

    NNVM reads outside of a picture but the first; here each is like the first.
    """
    n.need_rank(x, 4)
    batch, channels, height, width = x.dims
    stride = n.int("stride", 1)
    if stride < 1 or channels % stride**2 or height % stride or width % stride:
        n.fail(
            f"its stride {stride} should be above 0, divide height and width, and its square the channels of {x.spec}"
        )
    wide = n.g.reshape(x, (batch, channels // stride**2, height * stride, width * stride))
    gathered = composites.space_to_depth(n.g, wide, stride)
    return n.g.reshape(gathered, (batch, channels * stride**2, height // stride, width // stride))


@nnvm_op("yolo_region", "yolo2_region")
def yolo_region(n: Node, x: Value) -> Value:
    """[N, n * (coords + 1 + classes), H, W]: of each of the `n` groups of channels the sigmoid of the first two, and of
    number `coords` unless there is a `background`; with `softmax`, the softmax of what follows. All others stay."""
    n.need_rank(x, 4)
    g, (batch, channels, height, width) = n.g, x.dims
    groups, classes, coords = (n.int(name) for name in ("n", "classes", "coords"))
    background, softmax = n.bool("background", False), n.bool("softmax", False)
    size = classes + coords + 1
    if groups < 1 or classes < 1 or coords < 2 or channels != groups * size:
        n.fail(
            f"n = {groups} groups of {coords} coords, a confidence and {classes} classes are not the channels of "
            f"{x.spec}"
        )
    split = g.reshape(x, (batch, groups, size, height, width))
    first = coords if background else coords + 1
    parts = [
        g.op("sigmoid", composites.cut(g, split, 2, 0, 2)), composites.cut(g, split, 2, 2, coords - 2),
        *([] if background else [g.op("sigmoid", composites.cut(g, split, 2, coords, 1))]),
    ]  # fmt: skip
    rest = composites.cut(g, split, 2, first, size - first)
    parts.append(g.op("softmax", rest, axis=2) if softmax else rest)
    return g.reshape(composites.concat(g, parts, 2), x.dims)
