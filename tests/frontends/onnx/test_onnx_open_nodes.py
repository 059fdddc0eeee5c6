"""ONNX's node cases with one dim made a symbol: imported, given its number back, and compared with the static import, bit for bit.
``python tests/frontends/onnx/test_onnx_open_nodes.py`` prints how many import, and why the others do not."""

from __future__ import annotations

import re
import sys
from collections import Counter

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.loading import OpenError  # noqa: E402
from lightnet.ir.instances import symbols_of  # noqa: E402
from lightnet.ir.verify import verify_module  # noqa: E402
from lightnet.passes.instantiate import instantiate  # noqa: E402

#: Cases that keep their symbol, at the least; what does not is refused, or shown to have one number only.
FLOOR = 0.85


def cases():
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        inputs = case.data_sets[0][0]
        if case.model is not None and all(isinstance(a, np.ndarray) and a.dtype.kind in "fiub" for a in inputs):
            yield case.name, case.model, dict(zip((i.name for i in case.model.graph.input), inputs))


def static(model, arrays):
    """The static network, and the inputs whose values decide its shapes; None where it cannot be imported."""
    values: dict[str, np.ndarray] = {}
    for _ in range(3):
        try:
            shapes = {n: a.shape for n, a in arrays.items() if n not in values}
            return lightnet.load(model, shapes=shapes, values=values), values
        except OpenError as e:
            if not e.inputs - values.keys():
                return None
            values |= {n: arrays[n] for n in e.inputs}
        except LightNetError:
            return None
    return None


def outcome(model, arrays) -> tuple[str, str]:
    """One of ``open``, ``closed`` (the model allows one number), ``refused`` (and why), ``skipped``."""
    if (found := static(model, arrays)) is None:
        return "skipped", "not imported"
    net, values = found
    size = next((d for n, a in arrays.items() if n not in values for d in a.shape if d > 1), None)
    if size is None:
        return "skipped", "no dim to open"
    opening = onnx.ModelProto()
    opening.CopyFrom(model)
    for info in opening.graph.input:
        for dim in info.type.tensor_type.shape.dim if info.name not in values else ():
            if dim.dim_value == size:
                dim.dim_param = "n"
    try:
        opened = lightnet.load(opening, dims={"n": (1, 4 * size)}, values=values)
    except LightNetError as e:
        return "refused", re.sub(r"\d+|'[^']*'", "_", str(e).split("error: ")[-1].splitlines()[-1])[:90]
    verify_module(opened.module, opened.ctx)
    if "n" not in symbols_of(opened.module):
        return "closed", ""
    instantiate(opened.module, {"n": size})
    verify_module(opened.module, opened.ctx)
    feeds = {n: a for n, a in arrays.items() if n not in values}
    want, got = (lightnet.compile(m, "none")(feeds) for m in (net, opened))
    assert want.keys() == got.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, name)
    return "open", ""


@pytest.mark.slow
def test_node_cases_with_a_symbol_are_the_static_ones_in_a_call() -> None:
    counts = Counter(outcome(model, arrays)[0] for _, model, arrays in cases())
    assert counts["open"] >= FLOOR * (counts["open"] + counts["closed"] + counts["refused"])


if __name__ == "__main__":
    kinds: Counter[str] = Counter()
    reasons: dict[str, list[str]] = {}
    for name, model, arrays in cases():
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        try:
            kind, why = outcome(model, arrays)
        except Exception as e:
            kind, why = "wrong", f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"
        kinds[kind] += 1
        reasons.setdefault(f"{kind}: {why}", []).append(name)
    print(dict(kinds))
    for why, names in sorted(reasons.items(), key=lambda r: -len(r[1])):
        if not why.startswith(("open", "skipped")):
            print(len(names), why, names[:4])
