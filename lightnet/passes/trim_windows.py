"""`trim-windows`: convolutions without the taps that read padding alone."""

from __future__ import annotations

from dataclasses import replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.move import Slice
from lightnet.ir import budget, rewrites
from lightnet.ir.locations import set_loc
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp, set_tensor_names, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.windows import Axis
from lightnet.passes.graph import graphs, tensor_names_in
from lightnet.runtime.dims import Dim, greatest, least


class TrimWindowsPass(LnPass):
    """Leave out the outer rows and columns of a `conv2d`'s window that lie in the padding wherever the window stands.

    ```mlir
    // %x : tensor<1x960x16x16xf32>, %w : tensor<256x960x3x3xf32>       %w1 = the middle of %w (once, at load)
    %y = ln.conv2d %x, %w, %b {size = [3, 3], dilation = [24, 24],  ->  %y = ln.conv2d %x, %w1, %b {size = [1, 1]}
                               padding = [24, 24, 24, 24]}
    ```

    Tap r of a window in row y of the result reads row y*stride + r*dilation - pad: one that is outside for all y adds
    w*0 to each sum. Such are windows whose dilation exceeds the map (atrous pyramids at small sizes, as of DeepLab). A
    weight there that is no finite number is not multiplied by 0 any more: padding is no operand.
    """

    name = "trim-windows"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = [conv for block in graphs(op) for conv in budget.within(block.ops) if isinstance(conv, Conv2d)]
        found = [conv for conv in found if min(least(s.len) for s in (conv.operand_specs[0], conv.result_specs[0])) > 0]
        # No parameter says that it crops, nor how much where calls decide.
        found = [conv for conv in found if all(isinstance(p, int) and p >= 0 for p in conv.derived_values()["pad"])]
        windows = {conv: ((0, Axis.of(conv, 0)), (0, Axis.of(conv, 1))) for conv in found}
        trimmed = {conv: tuple(_trimmed(axis) for _, axis in axes) for conv, axes in windows.items()}
        if trimmed == windows:
            return
        names = FreshNames(tensor_names_in(op), first=2)
        for conv, axes in trimmed.items():
            if axes == windows[conv]:
                continue
            if (step := rewrites.begin("trim-windows", [conv])) is None:
                return
            step.done(_replace(conv, axes, names))


def _reads(axis: Axis, tap: int) -> bool:
    """Return whether a tap, of a window that is whole, is ever inside, in some call."""
    low = tap * axis.dilation - axis.before
    step = max(-(low // axis.stride), 0)  # the first place at which it is not before the beginning
    return greatest(axis.positions) > step and greatest(axis.size) > low + step * axis.stride


def _trimmed(axis: Axis) -> tuple[int, Axis]:
    """The axis without outer taps that are never inside, and how many of those were before the first that stays. One
    stays, and padding that would be negative is none."""
    taps = [tap for tap in range(axis.taps) if _reads(axis, tap)]
    if not taps:
        return 0, axis
    first = min(taps[0], axis.before // axis.dilation)
    found = replace(axis, taps=taps[-1] + 1 - first, before=axis.before - first * axis.dilation)
    if isinstance(found.overhang, Dim):  # which no parameter is
        return 0, axis
    if -found.overhang >= axis.stride:  # there would be more places
        found = replace(found, taps=axis.taps - first)
    return first, found


def _replace(conv: Conv2d, parts: tuple[tuple[int, Axis], ...], names: FreshNames) -> list[LnOp]:
    """Put a convolution with parts of the weights, (first tap, windows) by axis, in the place of `conv`: the new ops,
    it the last."""
    block = conv.parent
    assert block is not None
    new: list[LnOp] = []
    weight = conv.weight
    for number, (first, axis) in enumerate(parts, 2):
        if axis.taps < conv.operand_specs[1].dims[number]:
            new.append(Slice.make([weight], {"axis": number, "start": first, "len": axis.taps}))
            weight = new[-1].results[0]
    label = next((n for n in tensor_names(conv) if n), "conv")
    set_tensor_names(new[-1], [names.fresh(f"{label}_trimmed_weight")])
    params = conv.written_params()
    axes, whole = [axis for _, axis in parts], conv.derived_values()["pad"][2:]
    behind = [
        pad if a.taps == Axis.of(conv, i).taps else max(a.overhang, 0) for i, (a, pad) in enumerate(zip(axes, whole))
    ]
    padding = *(a.before for a in axes), *behind
    params |= {"size": tuple(a.taps for a in axes), "dilation": tuple(a.dilation if a.taps > 1 else 1 for a in axes),
               "padding": padding, "autopad": "NOTSET"}  # fmt: skip
    new.append(
        Conv2d.make(
            [conv.src, weight, conv.bias], params, name=conv.op_name, tensors=[n for n in tensor_names(conv) if n]
        )
    )
    for op in new:
        set_loc(op, conv.location)
        block.insert_op_before(op, conv)
    assert new[-1].result_specs == conv.result_specs
    conv.results[0].replace_all_uses_with(new[-1].results[0])
    conv.detach()
    conv.erase()
    return new
