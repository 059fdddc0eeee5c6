"""Pictures sampled where another tensor says: `grid_sample`."""

from __future__ import annotations

from itertools import product

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, SHORT
from lightnet.ir.op import LnOp, boolean, case, ln_op, operand, result, string

#: The free parameter of the cubic kernel (Keys 1981, equation 4).
CUBIC_A = -0.75


@ln_op
class GridSample(LnOp):
    """`src` [N, C, *S] at the points of `grid` [N, *Out, r], as [N, C, *Out]; r is the number of axes in S.

    A point has a coordinate for each axis, that of the last axis first. With `normalized`, -1 and 1 are the ends of an
    axis: the middles of its first and last elements with `align_corners`, else the outer edges of these; without,
    element i is at i. Outside of `src` there are zeros, the elements at the `border`, or its `reflection` (at the
    middles or edges that -1 and 1 mean). Jaderberg et al., "Spatial Transformer Networks" (2015), section 3.3; ONNX's
    GridSample.

    ```mlir
    // %x : tensor<1x3x4x4xf32>, %grid : tensor<1x5x6x2xf32>
    %y = ln.grid_sample %x, %grid {mode = "linear", align_corners = true} : tensor<1x3x5x6xf32>
    ```
    """

    optype = "grid_sample"
    src = operand(min_rank=3, dtypes=FLOATS)
    grid = operand(min_rank=2, same_type="src")
    dst = result(dims="[src.dims[0:2], grid.dims[1:grid.ndim - 1]]")
    mode = string("linear", "nearest", "cubic", default="linear")
    padding_mode = string("zeros", "border", "reflection", default="zeros")
    align_corners = boolean(default=False)
    normalized = boolean(default=True)
    checks = {
        "batch": "grid.dims[0] == src.dims[0]",
        "coordinates": "grid.dims[grid.ndim - 1] == src.ndim - 2",
    }
    picks = "src.dims[2:src.ndim]"

    def flops(self):
        taps = {"nearest": 1, "linear": 2, "cubic": 4}[self.mode]
        return self.result_specs[0].len * 3 * taps ** (self.operand_specs[0].ndim - 2)

    @property
    def definition(self) -> str:
        """The coordinates, the weights of the taps along each axis, and their sum."""
        sizes = self.operand_specs[0].dims[2:]
        lines: list[str] = []
        for k, size in enumerate(sizes):
            at = f"grid[n, o..., {len(sizes) - 1 - k}]"
            if self.normalized:
                at = f"({at} + 1) / 2 * {size - 1}" if self.align_corners else f"(({at} + 1) * {size} - 1) / 2"
            at = f"rint({at})" if self.mode == "nearest" else at
            # The elements of a cubic are clamped, not the point: its weights are those of a picture with a border.
            clamped = self.padding_mode == "border" and self.mode != "cubic"
            lines.append(f"p{k}[n, o...] = " + (f"clamp({at}, 0, {size - 1})" if clamped else at))
        if self.mode == "nearest":
            return "\n".join([*lines, f"dst[n, c, o...] = src[n, c, {', '.join(map(self.tap, range(len(sizes))))}]"])
        count = 2 if self.mode == "linear" else 4
        for k in range(len(sizes)):
            lines.append(f"f{k}[n, o...] = p{k}[n, o...] - floor(p{k}[n, o...])")
            *first, last = self.weights(f"f{k}[n, o...]")
            chosen = "".join(f"t == {t} ? {w} : " for t, w in enumerate(first)) + last
            lines.append(f"w{k}[n, o..., t] = {chosen} for t < {count}")
        weights = " * ".join(f"w{k}[n, o..., t{k}]" for k in range(len(sizes)))
        source = f"src[n, c, {', '.join(map(self.tap, range(len(sizes))))}]"
        ranges = ", ".join(f"t{k} < {count}" for k in range(len(sizes)))
        return "\n".join([*lines, f"dst[n, c, o...] += {weights} * {source} for {ranges}"])

    def weights(self, f: str) -> list[str]:
        """The weights of the elements around a point that is `f` behind an element."""
        if self.mode == "linear":
            return [f"1 - {f}", f]
        a = CUBIC_A
        near = [f"(({a + 2} * {x} - {a + 3}) * {x} * {x} + 1)" for x in (f, f"(1 - {f})")]
        far = [f"((({x} - 5) * {x} + 8) * {x} - 4) * ({a})" for x in (f"(1 + {f})", f"(2 - {f})")]
        return [far[0], *near, far[1]]

    def tap(self, k: int) -> str:
        """The subscript along axis `k`."""
        size = self.operand_specs[0].dims[2 + k]
        first = f"i64(floor(p{k}[n, o...]))"
        at = first if self.mode == "nearest" else f"{first} + t{k}" if self.mode == "linear" else f"{first} + t{k} - 1"
        if self.padding_mode == "border":
            return f"clamp({at}, 0, {size - 1})"
        if self.padding_mode == "zeros":
            return at + (" | 0" if k == self.operand_specs[0].ndim - 3 else "")
        period = 2 * (size - 1) if self.align_corners else 2 * size
        back = period if self.align_corners else period - 1
        return f"min(({at}) % {period}, {back} - ({at}) % {period})" if period else "0"

    def reference(self, src, grid):
        sizes, x = src.shape[2:], src.astype(np.float64)
        indices, weights = [], []
        for k, size in enumerate(sizes):
            index, weight = self.taps(grid.astype(np.float64)[..., len(sizes) - 1 - k], size)
            indices.append(index)
            weights.append(weight)
        batch = np.arange(len(src)).reshape(-1, *(1,) * (grid.ndim - 2))
        total = np.zeros(self.result_specs[0].dims)
        for tap in product(range(len(indices[0])), repeat=len(sizes)):
            at = tuple(indices[k][t] for k, t in enumerate(tap))
            inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(at, sizes)])
            clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(at, sizes))
            value = np.moveaxis(x[(batch, slice(None), *clipped)], -1, 1)
            weight = np.where(inside, np.prod([weights[k][t] for k, t in enumerate(tap)], axis=0), 0)
            total += weight[:, None] * value
        return total.astype(src.dtype)

    def taps(self, at: np.ndarray, size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Indices and weights along one axis; an index outside counts as zero."""
        low, high = (0, size - 1) if self.align_corners else (-0.5, size - 0.5)
        if self.normalized:
            at = low + (at + 1) / 2 * (high - low)
        at = np.rint(at) if self.mode == "nearest" else at
        at = np.clip(at, 0, size - 1) if self.padding_mode == "border" and self.mode != "cubic" else at
        base = np.floor(at)
        if self.mode == "nearest":
            offsets = [0]
        else:
            offsets = [0, 1] if self.mode == "linear" else [-1, 0, 1, 2]
        found, weights = [], []
        for offset in offsets:
            distance = np.abs(at - base - offset)
            near = ((CUBIC_A + 2) * distance - (CUBIC_A + 3)) * distance**2 + 1
            far = CUBIC_A * (distance**3 - 5 * distance**2 + 8 * distance - 4)
            cubic = np.where(distance <= 1, near, far)
            weights.append({"nearest": np.ones_like(at), "linear": 1 - distance, "cubic": cubic}[self.mode])
            index = base + offset
            if self.padding_mode == "border":
                index = np.clip(index, 0, size - 1)
            elif self.padding_mode == "reflection":
                span = high - low
                index = low + np.abs((index - high) % (2 * span) - span) if span else np.zeros_like(index)
            found.append(np.rint(index).astype(np.int64))
        return found, weights

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        if name == "src":
            return data
        return (data * 1.5 if params.get("normalized", True) else data * 4 + 1).astype(data.dtype)

    @classmethod
    def samples(cls):
        def grid(src, out, kind="f32", **p):
            return case(kind, src=src, grid=(src[0], *out, len(src) - 2), **p)

        modes = product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (True, False))
        return [
            *(grid((2, 3, 4, 5), (3, 7), mode=m, padding_mode=q, align_corners=a) for m, q, a in modes),
            grid((1, 2, 3, 4, 5), (2, 3, 4)), grid((1, 2, 7), (5,), padding_mode="border"), grid((1, 1, 1, 1), (1, 1)),
            grid((1, 2, 5, 6), (9,), normalized=False), grid((1, 2, 5, 6), (2, 2, 3), normalized=False, mode="cubic"),
            grid((1, 2, 5, 1), (9,), normalized=False, align_corners=True, padding_mode="reflection"),
            grid((1, 2, 4, 4), (3, 3), kind="f64"),
            *(grid((1, 2, 4, 4), (3, 3), kind=t) for t in SHORT),
        ]  # fmt: skip
