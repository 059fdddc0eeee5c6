"""The target `models`: random ONNX models (`fuzzing.models`) through every option of the compiler, against `fuzzing.models.oracle`."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzzing.models import oracle
from fuzzing.models.make import model as make_model
from fuzzing.models.make import quantized_model
from fuzzing.process import Fault
from fuzzing.quirks import by_node
from fuzzing.refusals import DOCUMENTED

#: Ways in which a network reaches the compiler, and what comes out of it reaches its caller.
FORMS = {"bytes": 8, "model": 3, "json": 2, "mlir": 2, "onnx": 2}
#: Options, each with how often it is drawn.
OPTIONS: list[tuple[dict[str, Any], float]] = [
    ({}, 6), ({"layout": "plain"}, 2), ({"threads": 2}, 1), ({"exact": True}, 1), ({"plan": "upstream"}, 2), ({"check_indices": True}, 1), ({"target": "none"}, 2),
    ({"target": "none", "check_indices": True}, 0.3), ({"target": "cuda", "on_cpu": True}, 0.7), ({"target": "cuda", "on_cpu": True, "layout": "plain"}, 0.2),
    ({"precision": "bf16"}, 0.5), ({"precision": "f16"}, 0.5), ({"features": "avx2"}, 0.7), ({"features": "neon"}, 0.5), ({"weight_memory": 0}, 0.5),
    ({"threads": 2, "layout": "plain", "check_indices": True}, 0.4), ({"pipeline": ""}, 3)]  # fmt: skip
#: Passes that a network compiles without, as it does with them.
LEFT_OUT = ("simplify", "trim-windows", "fold-batchnorm", "hoist", "subgraph", "combine", "layout", "bands", "schedule")


class Models:
    """Random models in the forms and with the options that their seed draws."""

    name, suffix = "models", ".onnx"
    options = OPTIONS

    def make(self, seed: int) -> bytes:
        return make_model(seed)

    def run(self, data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
        """Compile and call the model. Raises `Fault` for wrong results and refusals."""
        from lightnet.diagnostics import LightNetError

        model = onnx.load_from_string(data)
        props = {p.key: p.value for p in model.metadata_props}
        rng = random.Random(f"options {props['seed']}")
        form = rng.choices(list(FORMS), list(FORMS.values()))[0]
        options, saved = dict(_options(rng, self.options)), rng.random() < 0.15
        feeds = feeds_of(model, rng)
        if options.get("target", "cpu") == "cpu" and (special := _special(model, feeds, rng)):
            options["specialize"] = special
        seen["op"] = sorted({n.op_type for n in model.graph.node})
        seen["option"] = [str(options), form, *(["saved"] if saved else [])]
        how = f"[{form}, {options}{', saved' if saved else ''}]"
        alone = False
        try:
            want = oracle.runtime(data, feeds)
        except Exception as refused:
            # Of old opsets the evaluator does not know all: it may agree with us, but not speak alone.
            want, alone = _reference(model, feeds) if model.opset_import[0].version >= 13 else None, True
            if want is None:
                return f"no oracle: {str(refused).partition(':')[0][:40]}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = _outputs(data, form, dict(options), saved, feeds, path)
        except LightNetError as error:
            if error.label in DOCUMENTED:
                return "refused as documented"
            raise Fault(f"refused: {error.label or ''} {error.message[:250]}\n{how}\n{error}") from error
        eps = {"bf16": 2.0**-7, "f16": 2.0**-10}.get(options.get("precision", ""), 0.0)
        if options.get("plan") == "upstream":  # what that overwrites is not returned (docs/design.md)
            want = {name: value for name, value in want.items() if name in got}
        wrong = oracle.differences(got, want, 8 * eps)
        if not wrong:
            return "right"
        # What ONNX Runtime refuses, it refuses with noise, too.
        spread, rounding = {} if alone else oracle.spreads(data, feeds, want, eps), oracle.roundings(data, 8 * eps)
        wrong = oracle.differences(got, want, rounding, spread)
        if wrong and not alone:  # a tie may fall one way in a few runs
            spread = oracle.spreads(data, feeds, want, eps, oracle.AGAIN)
            wrong = oracle.differences(got, want, rounding, spread)
        if not wrong:
            return "right, by noise"
        other = _reference(model, feeds) or {}
        unsaid = [
            name
            for name in wrong
            if name not in other or oracle.differences(_only(name, got), _only(name, other), rounding, spread)
        ]
        if not unsaid:
            return "right by the reference evaluator"
        third = by_node(model, feeds)
        if third is not None and not oracle.differences(got, {name: third[name] for name in want}, rounding, spread):
            return "right by node, where ONNX Runtime is known to differ"
        if alone:
            return "the reference evaluator says otherwise, alone"
        text = wrong[unsaid[0]]
        raise Fault(f"{text}\n{how}\n" + "\n".join(wrong.values()))


class Quantized(Models):
    """Random quantised models, in the same ways, but in f16: that has none of the numbers about 1e-30."""

    name = "quantized"
    options = [(o, weight) for o, weight in OPTIONS if o.get("precision") != "f16"]

    def make(self, seed: int) -> bytes:
        return quantized_model(seed)


def _only(name: str, arrays: Mapping[str, np.ndarray]) -> oracle.Arrays:
    return {name: arrays[name]} if name in arrays else {}


def _reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> oracle.Arrays | None:
    """The reference evaluator's outputs; None where it fails."""
    with suppress(Exception):
        return oracle.reference(model.SerializeToString(), feeds)
    return None


def _options(rng: random.Random, weighted: Sequence[tuple[Mapping[str, Any], float]] = OPTIONS) -> Mapping[str, Any]:
    options = dict(rng.choices([o for o, _ in weighted], [w for _, w in weighted])[0])
    if "pipeline" in options:
        gone = rng.sample(LEFT_OUT, rng.choice((1, 1, 2, 3)))
        options["pipeline"] = "@cpu" + "".join(f"-{name}" for name in gone)
    return options


def _special(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], rng: random.Random) -> dict[str, list[int]]:
    """Values of open dims that have code of their own, now and then: some that are fed, and others."""
    dims = {
        d.dim_param: feeds[x.name].shape[axis]
        for x in model.graph.input
        if x.name in feeds
        for axis, d in enumerate(x.type.tensor_type.shape.dim)
        if d.dim_param
    }
    named = [name for name in dims if rng.random() < 0.6]
    return {name: [max(1, dims[name] - (rng.random() < 0.2)), rng.randint(1, 9)] for name in named}


def _outputs(
    data: bytes, form: str, options: dict[str, Any], saved: bool, feeds: Mapping[str, np.ndarray], path: Path
) -> oracle.Arrays:
    """The outputs of the network, read in a form and compiled with options."""
    import lightnet
    from lightnet.diagnostics import LightNetError
    from lightnet.frontends import json_ir
    from lightnet.frontends.loading import OpenError
    from lightnet.model import load_closed
    from lightnet.specialize import BEYOND
    from lightnet_export.netlist import from_module

    target = options.pop("target", "cpu")
    source: Any = data
    try:
        if form != "bytes":
            source = load_closed(data)  # what calls decide is left to `compile`
        if form == "json":
            source = lightnet.loads(json_ir.write(from_module(source.module)), ".json", weights=source.weights)
        elif form == "mlir":
            source = lightnet.loads(str(source), ".mlir", weights=source.weights)
        elif form == "onnx":
            source = lightnet.to_onnx(source).SerializeToString()
    except OpenError:
        source = data
    try:
        run = lightnet.compile(source, target, **options)
    except LightNetError as e:
        if "specialize" not in options:
            raise
        run = lightnet.compile(source, target, **(options | {"specialize": None}))
        if getattr(run, "_general", None) is not None and e.label != "choose.specialize":  # learnt of its dims
            raise
    if saved and hasattr(run, "save") and target == "cpu":
        file = path.with_suffix(".lnx")
        try:
            run.save(file)
        except LightNetError as e:
            if e.label != "specialize.each":
                raise
            run = run.specialized(feeds)  # where shapes or branches are open, there is a file for each set of them
            run.save(file)
        feeds = {name: array for name, array in feeds.items() if name in run.inputs}  # without what decides them
        loaded = lightnet.load_executable(file)
        try:
            return dict(loaded(dict(feeds)))
        except LightNetError as e:
            if "specialize" not in options or e.label not in BEYOND:
                raise  # else others than these calls are in the file
    return dict(run(dict(feeds)))


def feeds_of(model: onnx.ModelProto, rng: random.Random) -> oracle.Arrays:
    """Inputs within the intervals that the generator wrote beside the model."""
    ranges = json.loads(next(p.value for p in model.metadata_props if p.key == "ranges"))
    data = np.random.default_rng(rng.randrange(2**32))
    feeds: oracle.Arrays = {}
    known = {t.name for t in model.graph.initializer}
    for x in model.graph.input:
        if x.name in known or x.name not in ranges:
            continue
        shape = ranges[x.name][2]
        dtype, (lo, hi) = helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type), ranges[x.name][:2]
        if dtype.kind == "b":
            feeds[x.name] = np.asarray(data.random(shape) < 0.5)
        elif dtype.kind == "f":
            y = data.uniform(lo, hi, shape)
            kind = rng.random()
            y = (
                np.clip(np.round(y * 2) / 2, lo, hi)
                if kind < 0.15
                else np.where(data.random(shape) < 0.3, np.clip(0, lo, hi), y)
                if kind < 0.25
                else y
            )
            feeds[x.name] = np.asarray(y, dtype)
        else:
            feeds[x.name] = np.asarray(data.integers(int(lo), int(hi), size=shape, endpoint=True), dtype)
    return feeds
