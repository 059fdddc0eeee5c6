"""Two runs of a network compared, tensor by tensor, in the order of the program: where do they part?

An error travels: the first tensor that differs, and those whose error is far above that of what they are computed from,
are where to look. Imports arrays, tensors and NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import SourceLoc
from lightnet.dialects.ln.source import Source
from lightnet.ir.locations import loc_of
from lightnet.runtime.dtypes import is_float
from lightnet.tables import shape, shortened, table
from lightnet_debug.arrays import ArrayDifference, difference, is_one_number
from lightnet_debug.tensors import Tensors, inherited, kernel_label, makers

#: An error is new where it is so many times that of the operands.
JUMP = 10.0


def _widened(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    short = is_float(got.dtype) and got.dtype.itemsize == 2 and want.dtype == np.float32
    return got.astype(np.float32) if short else got


@dataclass(frozen=True)
class Layer:
    """One tensor of both runs. `op` makes it, as ``conv2d conv1``, in `kernel` where the network is fused; `jumps`
    where its error is far above that of the tensors it is computed from: the fault is here and not before. `constant`:
    what is expected is one number throughout, and agreement proves little."""

    name: str
    op: str
    kernel: str
    where: SourceLoc | None
    dims: tuple[int, ...]
    difference: ArrayDifference
    jumps: bool
    constant: bool = False


def compare_layers(
    got: Tensors, want: Mapping[str, np.ndarray], rtol: float = 1e-4, atol: float | None = None, share: float = 1e-4
) -> list[Layer]:
    """Every tensor that both have, in the order of the program; inputs, which are fed, are left out. What the program
    keeps in 16 bits where an f32 is expected (`precision`) is compared as an f32."""
    by = makers(got.source)
    names = [
        n
        for n, op in by.items()
        if n in got.arrays and n in want and not isinstance(op, Source) and not want[n].dtype.hasobject
    ]
    found = {n: difference(_widened(got.arrays[n], want[n]), want[n], rtol, atol, share) for n in names}
    before = inherited(got.source, {n: d.scaled for n, d in found.items()})
    return [
        Layer(n, kernel_label(by[n]), got.kernels.get(n, ""), loc_of(by[n]), got.arrays[n].shape, found[n],
              not found[n].agrees and found[n].scaled > JUMP * max(before[n], rtol / JUMP**2), is_one_number(want[n]))
        for n in names
    ]  # fmt: skip


def layers_text(layers: Sequence[Layer], line: Any = None) -> str:
    """The table, and before it the first layer that differs; `line(loc)` gives the text of a source line, or None."""
    first = next((x for x in layers if not x.difference.agrees), None)
    header = ("tensor", "op", "shape", "max abs error", "max rel error", "largest value", "", "")
    text = table(header, map(_row, layers))
    if 2 * (constant := sum(x.constant for x in layers)) > len(layers):
        text += f"\n\n{constant} of {len(layers)} tensors are constant, which proves little: are weights missing?"
    if first is None:
        return f"{text}\n\n" + (f"all {len(layers)} tensors agree" if len(layers) > 1 else "the tensor agrees")
    where = f" ({first.where})" if first.where is not None else ""
    lines = ["", f"first difference: '{first.name}', by {first.op}{where}"]
    if line is not None and (shown := line(first.where)):
        lines.append(f"  {shortened(shown.strip(), 110)}")
    if first.kernel and first.kernel != first.op:
        lines.append(f"  in the kernel {first.kernel}")
    jumps = [x.name for x in layers if x.jumps]
    if len(jumps) > 1 or (jumps and jumps[0] != first.name):
        lines.append(f"the error jumps at: {', '.join(jumps[:8])}{', ...' if len(jumps) > 8 else ''}")
    wrong = sum(not x.difference.agrees for x in layers)
    return "\n".join([text, *lines, f"{wrong} of {len(layers)} tensors differ"])


def _row(x: Layer) -> tuple[str, ...]:
    d = x.difference
    figures = (
        ("", "", "")
        if d.mismatch
        else (f"{d.absolute:.3g}", "" if d.exact else f"{d.relative:.3g}", f"{d.largest:.3g}")
    )
    return (
        shortened(x.name, 40),
        shortened(x.op, 40),
        shape(x.dims),
        *figures,
        d.verdict,
        "<-- jumps" if x.jumps else "",
    )
