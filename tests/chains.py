"""Chains of convolutions as text: a 1x1, a depthwise and a 1x1 one, with what follows each of them."""

from __future__ import annotations

from blocked_windows import out_dim, tensor

#: What follows a convolution %I of type T, as lines that give %O; %x is the chain's input, %m a map of its result's shape.
ACTIVATIONS = {
    "none": "",
    "relu6": "%O = ln.clip %I {lo = 0, hi = 6} : T",
    "sigmoid": "%O = ln.sigmoid %I : T",  # of 0 it is not 0
    "hard-swish": "%O = ln.hard_swish %I : T",
    "silu": "%O = ln.silu %I : T",
    "leaky": "%O = ln.lrelu %I {negslope = 0.1} : T",
}
ENDS = {
    "none": "ln.yield %I",
    "relu6": "%O = ln.clip %I {lo = 0, hi = 6} : T ln.yield %O",
    "sigmoid": "%O = ln.sigmoid %I : T ln.yield %O",
    "input": "%O = ln.add %I, %x : T ln.yield %O",
    "residual": "%0 = ln.add %I, %m : T %O = ln.relu %0 : T ln.yield %O",
    "residual-behind": "%0 = ln.silu %I : T %O = ln.add %0, %m : T ln.yield %O",
    "both": "%O = ln.sigmoid %I : T ln.yield %I, %O",
}


def chain(src, wide=0, outputs=0, size=(3, 3), stride=(1, 1), dilation=(1, 1), pad=(1, 1, 1, 1), inner="relu6", end="none"):  # fmt: skip
    """Operands and body of a chain: a 1x1 convolution to `wide` channels (0: none), a depthwise one, a 1x1 one to `outputs` (0: none)."""
    n, c, h, w = src
    channels = wide or c
    height, width = (out_dim(k, size[i], stride[i], dilation[i], pad[i] + pad[i + 2]) for i, k in enumerate((h, w)))
    window = f"size = {list(size)}, stride = {list(stride)}, dilation = {list(dilation)}, padding = {list(pad)}, group = {channels}"
    stages = [("d", (channels, 1, *size), window, (n, channels, height, width))]
    if wide:
        stages.insert(0, ("e", (wide, c, 1, 1), "size = [1, 1]", (n, wide, h, w)))
    if outputs:
        stages.append(("p", (outputs, channels, 1, 1), "size = [1, 1]", (n, outputs, height, width)))
    operands, lines, value = {"x": tensor(*src)}, [], "x"
    for name, weight, params, dims in stages:
        operands |= {f"{name}w": tensor(*weight), f"{name}b": tensor(weight[0])}
        lines.append(f"%{name} = ln.conv2d %{value}, %{name}w, %{name}b {{{params}}} : {tensor(*dims)}")
        last = name == stages[-1][0]
        tail = ENDS[end] if last else ACTIVATIONS[inner]
        if "%m" in tail:
            operands["m"] = tensor(*dims)
        lines.append(tail.replace("%I", f"%{name}").replace("%O", f"%{name}a").replace(": T", f": {tensor(*dims)}"))
        value = f"{name}a" if tail else name
    return operands, " ".join(lines)
