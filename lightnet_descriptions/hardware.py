"""The meaning of ops of hardware whose descriptions say no more than their shapes: upstream's DPU, an FPGA, ran them as
instructions.

Index notation by optype, used where a description has no `run` of its own. Lines of a picture are [width, channel];
weights are [output channel, input channel / group, height, width].
"""

from __future__ import annotations

#: A channel of the input that weight `c` of output channel `o` reads.
_CHANNEL = "o / (weight.dims[0] / group) * weight.dims[1] + c"

DEFINITIONS = {
    # load into the DPU's memory: channels are filled up with zeros
    "ldmr": "dst[x, c] = src[x, c | 0]",
    "ldmr_dpu": "dst[x, c] = src[x, c | 0]",
    # save from it
    "svmr": "dst[x, c] = src[x, c]",
    "svmr_dpu": "dst[x, c] = src[x, c]",
    # one line of a convolution; beyond the ends of a line there are zeros
    "conv1x1_dpu": f"""
        dst[x, o] = bias[o]
        dst[x, o] += src[x * stride + q - padding[0], {_CHANNEL} | 0] * weight[o, c, 0, q]""",
    # the same of three lines, one for each row of the weights
    "conv3x3_dpu": "dst[x, o] = bias[o]"
    + "".join(
        f"""
        dst[x, o] += src{r + 1}[x * stride + q - padding[0], {_CHANNEL} | 0] * weight[o, c, {r}, q]"""
        for r in range(3)
    ),
}  # fmt: skip
