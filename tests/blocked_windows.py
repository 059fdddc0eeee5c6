"""Bodies of windows with epilogues, as operands and text for `check_blocked`."""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.backends.cpu.blocked.base import ProcessorModel

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]

#: Epilogues of a value %s of type T: lines that end in a yield; %r is a map of that type, %g [N, C, 1, 1], %v [C, 1, 1].
EPILOGUES = {
    "none": "ln.yield %s",
    "relu": "%y = ln.relu %s : T ln.yield %y",
    "leaky": "%y = ln.lrelu %s {negslope = 0.1} : T ln.yield %y",
    "sigmoid": "%y = ln.sigmoid %s : T ln.yield %y",
    "hard-swish": "%y = ln.hard_swish %s : T ln.yield %y",
    "silu": "%y = ln.silu %s : T ln.yield %y",
    "residual": "%0 = ln.add %s, %r : T %y = ln.relu %0 : T ln.yield %y",
    "residual-behind": "%0 = ln.sigmoid %s : T %y = ln.add %0, %r : T ln.yield %y",
    "scales": "%0 = ln.mul %s, %g : T %1 = ln.add %0, %v : T %y = ln.exp %1 : T ln.yield %y",
    "both": "%y = ln.sigmoid %s : T %z = ln.mul %y, %s : T ln.yield %s, %z",
}


def tensor(*dims: int) -> str:
    """The type of a tensor of f32."""
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def with_epilogue(
    operands: dict[str, str], line: str, dims: Sequence[int], epilogue: str
) -> tuple[dict[str, str], str]:
    """Operands and body of an op `line` with a result of shape `dims`, and an epilogue by name."""
    n, c = dims[:2]
    tail = EPILOGUES[epilogue]
    extra = {"r": tensor(*dims), "g": tensor(n, c, 1, 1), "v": tensor(c, 1, 1)}
    operands = {**operands, **{name: type for name, type in extra.items() if f"%{name}" in tail}}
    return operands, f"%s = {line} : T {tail}".replace(": T", f": {tensor(*dims)}")


def out_dim(n: int, size: int, stride: int, dilation: int, pad: int) -> int:
    """Positions of a window over n elements with `pad` more of both sides."""
    return (n + pad - (size - 1) * dilation - 1) // stride + 1


def convolution(src: Sequence[int], outputs: int, size: Sequence[int], stride: Sequence[int] = (1, 1),
                dilation: Sequence[int] = (1, 1), pad: Sequence[int] = (0, 0, 0, 0), group: int = 1,
                epilogue: str = "relu") -> tuple[dict[str, str], str]:  # fmt: skip
    """Operands and body of a conv2d; `pad` is [top, left, bottom, right]."""
    n, c, *plane = src
    out = [out_dim(plane[i], size[i], stride[i], dilation[i], pad[i] + pad[i + 2]) for i in (0, 1)]
    operands = {"x": tensor(*src), "w": tensor(outputs, c // group, *size), "b": tensor(outputs)}
    params = f"group = {group}, size = {list(size)}, stride = {list(stride)}, dilation = {list(dilation)}, padding = {list(pad)}"
    return with_epilogue(operands, f"ln.conv2d %x, %w, %b {{{params}}}", (n, outputs, *out), epilogue)
