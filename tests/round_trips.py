"""Every form of a network, written and read back: the same outputs, under the same names, in the same order.

    python tests/round_trips.py 200 [SEED]

The networks are those of `network_cases`, with outputs that are awkward: inner tensors that others read, inputs, constants, one tensor twice.
"""

from __future__ import annotations

import io
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from network_cases import random_network
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Create
from lightnet.frontends import json_ir
from lightnet.ir.module import main_of
from lightnet.ir.op import tensor_names
from lightnet.model import Model, load, loads
from lightnet_export.netlist import from_module

Outputs = dict[str, np.ndarray]


def awkward(seed: int) -> ModuleOp:
    """A random network with outputs that a form could lose, merge or order anew."""
    rng = np.random.default_rng([7, seed])
    module = random_network(
        seed, int(rng.integers(8, 40))
    ).clone()  # without the tries that were dropped, which still use its values
    main = main_of(module)
    last = main.body.block.last_op
    assert isinstance(last, ReturnOp)
    outputs: list[SSAValue] = list(last.operands)
    values = [v for op in main.body.block.ops for v in op.results]
    sources = [v for v in values if isinstance(v.owner, Create)]
    for wanted in (values, values, sources):
        if rng.random() < 0.6:
            outputs.append(wanted[int(rng.integers(len(wanted)))])
    if rng.random() < 0.3:
        outputs.append(outputs[int(rng.integers(len(outputs)))])
    last.operands = [outputs[i] for i in rng.permutation(len(outputs))]
    main.update_function_type()
    return module


def ran(model: Model, feeds: Mapping[str, np.ndarray] | None = None) -> Outputs:
    """The outputs; `feeds` are contents by name, which a form need not bring along."""
    names = {op.tensor_names[0] for op in graph.feedable_ops(model.module)}
    given = {name: array for name, array in (feeds or {}).items() if name in names}
    return graph.run(model.module, given, model.weights, seed=model.seed, stream=io.StringIO())


# -- the forms: each gives what comes back, or None where the form says that it cannot say this network


def through_json(model: Model, folder: Path) -> Outputs | None:
    return read_back(json_ir.write(from_module(model.module)), ".json", model)


def through_planned_json(model: Model, folder: Path) -> Outputs | None:
    planned = lightnet.compile(model, pipeline="bind,simplify,hoist,expand,combine,plan", target="cpu").planned
    return read_back(json_ir.write(from_module(planned)), ".json", model)


def through_mlir(model: Model, folder: Path) -> Outputs | None:
    return read_back(str(model.module), ".mlir", model)


def through_planned_mlir(model: Model, folder: Path) -> Outputs | None:
    planned = lightnet.compile(model, pipeline="bind,simplify,hoist,expand,combine,plan", target="cpu").planned
    return read_back(str(planned), ".mlir", model)


def read_back(text: str, suffix: str, model: Model) -> Outputs:
    return ran(loads(text, suffix, weights=model.weights, seed=model.seed))


def through_onnx(model: Model, folder: Path) -> Outputs | None:
    from lightnet_export.onnx.model import to_onnx

    try:
        written = to_onnx(model).SerializeToString()
    except LightNetError:
        return None
    return ran(loads(written, ".onnx"), arrays_of(model))


def through_nnvm(model: Model, folder: Path) -> Outputs | None:
    from lightnet_export.nnvm.model import export

    path = folder / "net-symbol.json"
    try:
        export(model, path)
    except LightNetError:
        return None
    return None if not path.exists() else ran(load(path), arrays_of(model))


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    """The contents of the sources, by name."""
    creates = [op for op in model.module.walk() if isinstance(op, Create)]
    return {tensor_names(op)[0]: op.contents(model.weights, model.seed) for op in creates}


def through_executable(model: Model, folder: Path) -> Outputs | None:
    path = folder / "net.lnx"
    lightnet.compile(model).save(path)
    return lightnet.load_executable(path)({}, stream=io.StringIO())


FORMS: dict[str, Callable[[Model, Path], Outputs | None]] = {
    "json": through_json, "planned json": through_planned_json, "mlir": through_mlir, "planned mlir": through_planned_mlir,
    "onnx": through_onnx, "nnvm": through_nnvm, "lnx": through_executable,
}  # fmt: skip


def difference(want: Outputs, got: Outputs) -> str | None:
    """What is not the same; None where all is."""
    if list(want) != list(got):
        return f"outputs {list(want)} come back as {list(got)}"
    for name, a in want.items():
        b = got[name]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{name} is {a.dtype}{list(a.shape)}, and comes back as {b.dtype}{list(b.shape)}"
        scale = max(float(np.abs(a.astype(np.float64)).max(initial=0)), 1e-3)
        if a.size and not np.allclose(
            a.astype(np.float64), b.astype(np.float64), atol=1e-4 * scale, rtol=0, equal_nan=True
        ):
            return f"{name} has other values"
    return None


def check(seed: int, form: str, folder: Path) -> str | None:
    """What is wrong with a network in a form; "" where it cannot be said in it."""
    model = Model(awkward(seed), f"network {seed}")
    got = FORMS[form](model, folder)
    return "" if got is None else difference(ran(Model(awkward(seed), "")), got)


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    forms = sys.argv[3].split(",") if len(sys.argv) > 3 else list(FORMS)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            for form in forms:
                try:
                    wrong = check(seed, form, Path(folder))
                except LightNetError as e:
                    wrong = f"refused: {e}"
                except Exception:
                    wrong = traceback.format_exc(limit=-3)
                found[f"{form}: {'same' if wrong is None else 'wrong' if wrong else 'not said'}"] += 1
                if wrong:
                    print(f"seed {seed}, {form}: {wrong}", flush=True)
    print(dict(sorted(found.items())))
    sys.exit(any("wrong" in k for k in found))


if __name__ == "__main__":
    main()
