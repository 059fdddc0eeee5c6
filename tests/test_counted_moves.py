"""Ops on tensors of whose axes one is as long as the data says: every way to reshape, slice, join, gather and scatter them, in few networks with
many outputs. ONNX Runtime is the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto
from test_counted import agree, model_of, session

import lightnet
from lightnet.diagnostics import LightNetError

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
#: How many elements count: some, none, one, all.
MASKS = ([1, 0, 1, 1, 0], [0] * 5, [0, 0, 0, 0, 1], [1] * 5)


class Net:
    """A network under construction. `k` [n] are the places where the input `m` [5] is not 0, `n` is [n] as a tensor."""

    def __init__(self, **inputs: tuple[int, ...]):
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs = {"m": (5,), **inputs}
        self.outputs: list[tuple[str, int]] = []
        self.add("NonZero", "m", name="places")
        self.add("Squeeze", "places", [0], name="k")
        self.add("Shape", "k", name="n")

    def add(self, op: str, *operands: Any, name: str = "", **attributes: Any) -> str:
        """A node; operands that are no names are constants. Its result."""
        names = [a if isinstance(a, str) else self.constant(a) for a in operands]
        name = name or f"t{len(self.nodes)}"
        self.nodes.append((op, names, [name], attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, None if isinstance(value, np.ndarray) else np.int64)
        return name

    def give(self, name: str, type: int = F) -> None:
        self.outputs.append((name, type))

    def model(self) -> bytes:
        inputs = [(name, F, dims) for name, dims in self.inputs.items()]
        return model_of(self.nodes, inputs, self.outputs, self.constants, 18)

    def check(self, tolerance: float = 2e-4) -> None:
        """All outputs are ONNX Runtime's, for each number of elements."""
        model = self.model()
        executable, oracle, rng = lightnet.compile(model, target="none"), session(model), np.random.default_rng(0)
        for mask in MASKS:
            feeds = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in self.inputs.items()}
            feeds["m"] = np.array(mask, np.float32)
            agree(executable(feeds), oracle.run(None, feeds), tolerance)


def rows(net: Net, *dims: int) -> str:
    """[n, *dims]: rows of an input that the mask picks."""
    net.inputs["x"] = (5, *dims)
    return net.add("Gather", "x", "k", axis=0)


# -- moves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lens", [(2, 3), (4,), ()])
def test_every_reshape(lens: tuple[int, ...]) -> None:
    """From the counted axis in each place to it in each place, with axes split, joined, and of length 1."""
    net = Net()
    x = rows(net, *lens)
    net.inputs["x"] = (5, *lens)
    sources = [x]
    for at in range(1, 1 + len(lens)):
        order = [*range(1, at + 1), 0, *range(at + 1, 1 + len(lens))]
        sources.append(net.add("Transpose", x, perm=order))
    if len(lens) == 1:
        sources.append(net.add("Unsqueeze", x, [0]))
    total = int(np.prod(lens))
    factors = {(2, 3): [(2, 3), (3, 2)], (4,): [(4,), (2, 2), (4, 1), (1, 4)], (): [(), (1,), (1, 1)]}[lens]
    targets = [(*f[:k], None, *f[k:]) for f in factors for k in range(len(f) + 1)]
    for source, target in itertools.product(sources, targets):
        parts = ["n" if d is None else net.constant([d]) for d in target]
        dims = net.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
        net.give(net.add("Reshape", source, dims, allowzero=1))
    for source in sources:  # joined with the counted axis
        net.give(net.add("Reshape", source, [-1]))
        scaled = net.add("Mul", "n", [total])
        net.give(net.add("Reshape", source, net.add("Concat", scaled, [1], axis=0), allowzero=1))
    net.check()


SLICES = [(0, 3, 1), (1, 1 << 40, 1), (2, 4, 1), (-2, 1 << 40, 1), (0, -1, 1), (-3, -1, 1), (1, 9, 2), (0, 5, 3), (4, 1, 1), (7, 9, 1),
          (-1, -(1 << 40), -1), (4, 0, -2), (3, 1, -1), (-1, -3, -1), (9, -9, -3), (0, 4, -1), (1, 1, 1), (-9, 2, 1)]  # fmt: skip


def test_every_slice_of_a_counted_axis() -> None:
    net = Net()
    x = rows(net, 3)
    turned = net.add("Transpose", x, perm=[1, 0])
    for start, end, step in SLICES:
        net.give(net.add("Slice", x, [start], [end], [0], [step]))
    for start, end, step in SLICES[::4]:
        net.give(net.add("Slice", turned, [start], [end], [-1], [step]))
        net.give(net.add("Slice", x, [start], [end], [1], [step]))
    net.check()


def test_every_slice_up_to_a_size() -> None:
    """Starts and ends that the data decides, of axes that it decides and of others."""
    net = Net(y=(4, 6))
    x, more, double = rows(net, 3), net.add("Add", "n", [1]), net.add("Mul", "n", [2])
    for source, axis in ((x, 0), ("y", 1), ("y", 0)):
        for start, end, step in (([0], "n", 1), ("n", [9], 1), ([1], "n", 2), ("n", [-9], -1), ([-1], "n", -1), ([1], more, 1), ("n", double, 1),
                                 (more, double, 2), ([-2], double, 1), (more, [0], -2)):  # fmt: skip
            net.give(net.add("Slice", source, start, end, [axis], [step]))
    net.check()


def test_every_join() -> None:
    """Counted parts before, between and behind others, along their counted axis and along others; empty ones, and one alone."""
    net = Net(a=(2, 3), e=(0, 3), b=(3, 1))
    x = rows(net, 3)
    short = net.add("Slice", x, [1], [1 << 40], [0])
    for parts in (
        (x, "a"),
        ("a", x),
        (x, x),
        ("a", x, "a"),
        (x, "a", short),
        (short, x, "a", x),
        ("e", x),
        (x, "e", short),
        ("e", "e", x),
        (x,),
    ):
        net.give(net.add("Concat", *parts, axis=0))
    net.give(net.add("Concat", x, x, axis=1))
    turned = net.add("Transpose", x, perm=[1, 0])
    for parts in ((turned, "b"), ("b", turned), (turned, "b", turned)):
        net.give(net.add("Concat", *parts, axis=1))
    net.check()


def test_every_broadcast() -> None:
    net = Net(y=(1, 3), z=(3, 1))
    x = rows(net, 3)
    column = net.add("Slice", x, [0], [1], [1])
    wide = net.add("Concat", "n", [3], axis=0)
    for source in (x, "y", column):
        net.give(net.add("Expand", source, wide))
    net.give(net.add("Expand", "z", net.add("Concat", [3], "n", axis=0)))
    net.give(net.add("Expand", x, net.add("Concat", [2], "n", [3], axis=0)))
    net.give(net.add("Expand", x, [2, 1, 1]))
    net.give(net.add("Expand", "n", [3]), I)  # a size as a tensor
    net.give(net.add("Expand", net.add("Concat", "n", [4], "n", axis=0), [2, 3]), I)
    for factors in ([2, 1], [1, 2], [3, 2]):
        net.give(net.add("Tile", x, factors))
    net.check()


def test_every_pad() -> None:
    """Before and behind what counts, by numbers and up to a number that is known."""
    net = Net()
    x = rows(net, 3)
    rest = net.add("Sub", [5], "n")
    value = net.constant(np.array(7.5, np.float32))
    for pads in ([1, 0, 2, 0], [0, 1, 0, 0], [2, 1, 1, 2], [0, 0, 3, 0]):
        net.give(net.add("Pad", x, pads, value))
    net.give(net.add("Pad", x, net.add("Concat", [0, 0], rest, [0], axis=0), value))
    net.give(net.add("Pad", x, net.add("Concat", [1, 2], rest, [1], axis=0)))
    net.give(net.add("Pad", "x", net.add("Concat", [0, 0], "n", [0], axis=0), value))
    net.check()


def test_a_pad_is_as_wide_as_the_most_that_may_count() -> None:
    """It is made so: nothing is made longer and cut again."""
    for pads in ([1, 0, 2, 0], [0, 1, 0, 0], [2, 1, 1, 2], [3, 0, 0, 0]):
        net = Net()
        net.give(net.add("Pad", rows(net, 3), pads))
        ops = list(lightnet.loads(net.model(), ".onnx").module.walk())
        (pad,) = (op for op in ops if op.name == "ln.pad")
        assert pad.result_specs[0].dims == (5 + pads[0] + pads[2], 3 + pads[1] + pads[3])
        assert "ln.slice" not in {op.name for op in ops}


# -- places that the data names --------------------------------------------------------------------------------------


def test_every_gather() -> None:
    """Of counted axes, from the front and from the end; by places as many as the data says; of axes of one element."""
    net = Net(one=(1, 5), y=(4, 3))
    x = rows(net, 3)
    more = net.add("Concat", x, "y", axis=0)  # as many as 4 in any case
    for places in ([0, 3, 1], [-1, -4, 2], [[0, -1], [-2, 1]], -1, 2):
        net.give(net.add("Gather", more, places, axis=0))
        net.give(net.add("Gather", net.add("Transpose", more, perm=[1, 0]), places, axis=1))
    net.give(net.add("Gather", "one", net.add("Mul", "k", [0]), axis=0))
    net.give(net.add("GatherND", more, [[-1, -1], [0, 2], [3, 0], [-4, 1]]))
    net.give(net.add("GatherND", more, [[-1], [2]]))
    wide = net.add("Transpose", more, perm=[1, 0])
    net.give(net.add("GatherND", wide, [[[-1], [0]], [[1], [-2]], [[2], [-4]]], batch_dims=1))
    net.give(net.add("GatherND", wide, [[2, -1], [-3, 3]]))
    net.give(net.add("GatherElements", more, [[0, -1, 2], [3, 1, -4]], axis=0))
    net.give(net.add("GatherElements", x, net.add("Mul", net.add("Cast", x, to=I), [0]), axis=1))
    net.check()


def test_every_scatter() -> None:
    """As many updates as the data says, to tensors of known and of counted axes, from the front and from the end."""
    net = Net(y=(5, 3), z=(5,), u=(2, 3), v=(5, 3))
    x = rows(net, 3)
    picked = net.add("Gather", "v", "k", axis=0)  # as many rows as x has
    below = net.add("Sub", "k", [5])
    column = lambda name: net.add("Unsqueeze", name, [1])  # noqa: E731
    for place in ("k", below):
        net.give(net.add("ScatterND", "y", column(place), x))
        wide = net.add("Expand", column(place), net.add("Concat", "n", [3], axis=0))
        for more in ({}, {"reduction": "add"}, {"reduction": "max"}):
            net.give(net.add("ScatterElements", "y", wide, x, axis=0, **more))
        pair = net.add("Concat", column(place), column(net.add("Mul", "k", [0])), axis=1)
        for more in ({}, {"reduction": "mul"}, {"reduction": "min"}):
            net.give(
                net.add("ScatterND", "y", pair, net.add("Squeeze", net.add("Slice", x, [1], [2], [1]), [1]), **more)
            )
    grown = net.add("Concat", x, "u", axis=0)
    for place in ([[0], [1]], [[-1], [-2]], [[1], [-2]]):
        net.give(net.add("ScatterND", grown, place, "u"))
        net.give(
            net.add("ScatterElements", grown, [[*p, p[0]] for p in [[place[0][0]] * 2, [place[1][0]] * 2]], "u", axis=0)
        )
    turned = net.add("Transpose", grown, perm=[1, 0])
    pair = net.add("Slice", net.add("Reshape", "u", [6]), [0], [2])
    for places in ([[0, -1], [-1, -3]], [[-2, -2], [1, 2]], [[-1, 0], [-2, 0]]):  # from the end of each axis by itself
        net.give(net.add("ScatterND", grown, places, pair))
        net.give(net.add("ScatterND", turned, np.flip(places, 1), pair))
    zeros = net.add("Mul", net.add("Cast", x, to=I), [0])
    for index in (zeros, net.add("Add", zeros, [-2])):  # along another axis, and as long as what it is scattered to
        net.give(
            net.add(
                "ScatterElements",
                picked,
                net.add("Slice", index, [0], [1], [1]),
                net.add("Slice", x, [1], [2], [1]),
                axis=1,
            )
        )
    net.check()


# -- loops, means, regions -------------------------------------------------------------------------------------------


def test_every_scan_and_mean() -> None:
    """Along what counts and along other axes, forwards and backwards; a mean by the true number of elements."""
    net = Net(y=(1, 3))
    x = net.add("Concat", rows(net, 3), "y", axis=0)
    for axis, reverse, exclusive in itertools.product((0, 1), (0, 1), (0, 1)):
        net.give(net.add("CumSum", x, axis, reverse=reverse, exclusive=exclusive))
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"):
        for axes in ([0], [1], [0, 1]):
            net.give(net.add(op, x, axes, keepdims=len(axes) - 1))
    net.check()
    net.outputs.clear()
    net.give(net.add("Cast", net.add("ReduceMean", net.add("Cast", x, to=TensorProto.FLOAT16), [0]), to=F))
    net.check(2**-10)  # rounded to half precision by both


def test_regions_as_many_as_the_data_says() -> None:
    net = Net(p=(2, 3, 6, 5), boxes=(5, 4))
    places = net.add("Gather", net.add("Abs", "boxes"), "k", axis=0)
    batch = net.add("Mod", "k", [2])
    for more in (
        {},
        {"mode": "max"},
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5},
    ):
        net.give(net.add("RoiAlign", "p", places, batch, **more))
    net.check()


def test_best_of_as_many_as_the_data_says() -> None:
    net = Net(y=(5, 4))
    x = rows(net, 3)
    for source, axis, k in ((x, 0, "n"), ("y", 0, "n"), (net.add("Transpose", "y", perm=[1, 0]), 1, "n"), (x, 1, [2])):
        for largest in (0, 1):
            net.nodes.append(("TopK", [source, k if isinstance(k, str) else net.constant(k)], [f"v{len(net.nodes)}", f"i{len(net.nodes)}"],
                              {"axis": axis, "largest": largest}))  # fmt: skip
            values, indices = net.nodes[-1][2]
            net.give(values)
            net.give(indices, I)
    net.check()


@pytest.mark.parametrize("most", ["n", [2], [0]])
def test_suppression_of_as_many_boxes_as_the_data_says(most: Any) -> None:
    net = Net(low=(5, 2), size=(5, 2), s=(2, 5))
    corners = net.add("Concat", "low", net.add("Add", "low", net.add("Abs", "size")), axis=1)
    boxes = net.add("Unsqueeze", net.add("Gather", corners, "k", axis=0), [0])
    scores = net.add("Unsqueeze", net.add("Gather", "s", "k", axis=1), [0])
    overlap, least = (net.constant(np.array([v], np.float32)) for v in (0.3, -0.5))
    net.give(net.add("NonMaxSuppression", boxes, scores, most, overlap, least), I)
    net.give(net.add("NonMaxSuppression", boxes, scores, most, overlap), I)
    net.check()


def test_branches_of_two_sizes() -> None:
    """One of two tensors whose axes are not as long as each other's, and another of a size that both have."""
    from onnx import helper

    net = Net(a=(4, 3))
    x = rows(net, 3)

    def branch(name: str, source: str):
        return helper.make_graph([helper.make_node("Neg" if name == "o" else "Abs", [source], [name])], name, [],
                                 [helper.make_tensor_value_info(name, F, None)])  # fmt: skip

    cond = net.add("Squeeze", net.add("Less", "n", [2]), [0])
    for then, other in ((x, "a"), ("a", x), (x, "x"), (x, x)):
        net.give(net.add("If", cond, then_branch=branch("t", then), else_branch=branch("o", other)))
    net.check()


# -- refusals --------------------------------------------------------------------------------------------------------

WIDE = 5000  # of an input of fewer than 4,096 elements, calls specialise


def refused(*nodes: Any, **inputs: tuple[int, ...]) -> str:
    """What is said of a network of nodes (op, operands, attributes), the last of which cannot be; `k` [n], `j` [p] and `a` [n, 3] are counted."""
    net = Net(x=(WIDE, 3), q=(WIDE,), **inputs)
    net.inputs["m"] = (WIDE,)
    net.add("Gather", "x", "k", axis=0, name="a")
    net.add("Squeeze", net.add("NonZero", "q"), [0], name="j")
    for op, operands, attributes in nodes:
        last = net.add(op, *operands, **attributes)
    net.give(last)
    with pytest.raises(LightNetError) as caught:
        lightnet.compile(net.model(), target="none")
    return str(caught.value)


UNDECIDED = "'number of elements that are not zero'(0..5000)"


@pytest.mark.parametrize(
    ("nodes", "inputs", "message"),
    [
        ([("ScatterElements", ["z", "k", "j"], {"axis": 0})], {"z": (9,)}, f"scatter_elements takes no dim that the data decides here ({UNDECIDED}, {UNDECIDED})"),
        ([("Concat", ["a", "y"], {"axis": 1})], {"y": (4, 3)}, "tensor<5000x3xf32> and tensor<4x3xf32> should be alike but along axis 1"),
        ([("RoiAlign", ["p", "boxes", "k"], {})], {"p": (1, 1, 4, 4), "boxes": (9, 4)}, f"roi_align takes no dim that the data decides here ({UNDECIDED})"),
    ],
    ids=lambda v: v[0][0] if isinstance(v, list) else None,
)  # fmt: skip
def test_what_takes_no_size(nodes: list, inputs: dict, message: str) -> None:
    assert message in refused(*nodes, **inputs)
