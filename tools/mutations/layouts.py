"""Mutants of layouts: of the passes `layout` and `pack`, of views and memory in blocks of channels, and of the code that writes maps."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant

_LAID_OUT = "hoist,expand,combine,layout,choose,pack"
_PLANNED = f"{_LAID_OUT},plan"
_LOWERED = f"{_PLANNED},lower-cpu"
_UNCHECKED = Edit(
    "passes/plan.py",
    '        check_plan(op, capacity=capacity + 1 if self.plan == "upstream" else capacity, alignment=alignment)\n',
    "",
)

_MAP = "tensor<1x32x28x28xf32>"


def _depthwise(result: str, source: str, weights: str, channels: int = 32) -> str:
    return (
        f"%{result} = ln.conv2d %{source}, %{weights}, %b {{group = {channels}, size = [3, 3], padding = [1, 1, 1, 1]}} : "
        f"tensor<1x{channels}x28x28xf32>"
    )


def _network(channels: int, *lines: str) -> str:
    sources = (
        f'%x = ln.input : tensor<1x{channels}x28x28xf32> as ("x")',
        f'%w = ln.param : tensor<{channels}x1x3x3xf32> as ("w")',
        f'%v = ln.param : tensor<{channels}x1x3x3xf32> as ("v")',
        f'%b = ln.param : tensor<{channels}xf32> as ("b")',
    )
    return "\n".join((*sources, *lines))


#: Two depthwise convolutions: the first writes a map with the halo that the second reads.
_TWO = _network(
    32, _depthwise("c", "x", "w") + ' as ("c")', _depthwise("d", "c", "v") + ' as ("d")', f"func.return %d : {_MAP}"
)

#: Channels that do not fill a block, and an epilogue that does not give 0 for 0.
_ODD = _network(24, _depthwise("c", "x", "w", 24), "%d = ln.sigmoid %c : tensor<1x24x28x28xf32>",
                _depthwise("e", "d", "v", 24), "func.return %e : tensor<1x24x28x28xf32>")  # fmt: skip


def _halves(start: int) -> str:
    """A part of the channels, from `start` on, of a map with a halo."""
    part = "tensor<1x16x28x28xf32>"
    return _network(
        32, '%p = ln.param : tensor<16x1x3x3xf32> as ("p")', '%q = ln.param : tensor<16xf32> as ("q")',
        _depthwise("c", "x", "w"), _depthwise("d", "c", "v"),
        f"%h = ln.slice %c {{axis = 1, start = {start}, len = 16}} : {part}",
        f"%e = ln.conv2d %h, %p, %q {{group = 16, size = [3, 3], padding = [1, 1, 1, 1]}} : {part}",
        f"func.return %d, %e : {_MAP}, {part}",
    )  # fmt: skip


#: A window that is not square in what it weighs, over many channels.
_WINDOW = """
%x = ln.input : tensor<1x32x14x14xf32> as ("x")
%w = ln.param : tensor<32x32x3x3xf32> as ("w")
%b = ln.param : tensor<32xf32> as ("b")
%c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1], stride = [2, 2]} : tensor<1x32x7x7xf32>
%d = ln.maxpool2d %c {size = [3, 3], stride = [1, 1], padding = [1, 1, 1, 1]} : tensor<1x32x7x7xf32>
func.return %d : tensor<1x32x7x7xf32>
"""

MUTANTS = (
    Mutant(
        "output-named-after-layout", "gives the change of layout behind an output a name of its own",
        (Edit("passes/layout.py", "            _rename(value, own)\n            own = name\n", "            pass\n"),),
        _LAID_OUT, "layout", "layout", _TWO,
    ),
    Mutant(
        "plain-again-without-name", "takes a change of layout out and its name with it",
        (Edit("passes/layout.py", "            if (name := tensor_name(result)) is not None:\n                _rename(value, name)\n", ""),),
        f"{_LAID_OUT},layout{{layout=plain}}", "layout", None, _TWO,
    ),
    Mutant(
        "weights-of-another-kernel", "takes weights for packed already where others in that layout are",
        (Edit("passes/pack.py", "            if key not in packed:\n",
              "            key = next((k for k in packed if k[1] == layout), key)\n            if key not in packed:\n"),),
        _LAID_OUT, "pack", "pack", _TWO,
    ),
    Mutant(
        "window-packed-askew", "packs windows with rows for columns",
        (Edit("ir/layout.py", "axes.index(part.axis) for part in inner", "axes.index(part.axis ^ (part.axis > 1)) for part in inner"),),
        _PLANNED, "plan", None, _WINDOW,
    ),
    Mutant(
        "part-of-block-as-view", "takes channels in the middle of a block for a view", (
            Edit("ir/views.py", "    if offset % plane != 0 or channel % one.block != 0 or (end % one.block != 0 and end != large.dims[1]):\n",
                 "    if offset % plane != 0:\n"),
            _UNCHECKED,
        ),
        _PLANNED, "plan", None, _halves(8),
    ),
    Mutant(
        "view-without-halo", "counts channels of a map with a halo as if it had none", (
            Edit("ir/views.py", "    return channel // one.block * _block_bytes(one, large)\n", "    return channel * plane\n"),
            _UNCHECKED,
        ),
        _PLANNED, "plan", None, _halves(16),
    ),
    Mutant(
        "columns-of-halo-left", "writes no zeros beside the rows of a map",
        (Edit("backends/cpu/blocked/kernel.py", "            if cols:\n                column = ", "            if False:\n                column = "),),
        _LOWERED, "lower-cpu", None, _TWO,
    ),
    Mutant(
        "unused-lanes-computed", "lets an epilogue write to lanes that are no channels",
        (Edit("backends/cpu/blocked/kernel.py", "        return channels % self.lanes if self.mixes_channels or not keeps_zero(self.ops[1:]) else 0\n",
              "        return 0\n"),),
        _LOWERED, "lower-cpu", None, _ODD,
    ),
    Mutant(
        "reordered-without-transposing", "writes rows of channels where pixels should stand",
        (Edit("backends/cpu/blocked/reorder.py", "        for i, pixel in enumerate(self.transposed(rows)[:pixels]):",
              "        for i, pixel in enumerate(rows[:pixels]):"),),
        _LOWERED, "lower-cpu", None, _TWO,
    ),
)  # fmt: skip
