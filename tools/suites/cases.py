"""The cases: ONNX's backend suite as the installed `onnx` ships it, ops beyond the standard, and the NNVM networks of tests/data/nnvm.

A `Case` is cheap and says what it tests; `load` makes the `Problem`, a model with inputs and expected outputs. Imports onnx
and NumPy, not LightNet: every runner gets the same cases.
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from suites.domains import domain_cases
from suites.problem import Case, Feeds, Problem

ROOT = Path(__file__).parents[2]
#: Suites in the order of the page. `node` and `node-expanded` are one collection: a case, and its op's function body.
ONNX_SUITES = ("node", "node-expanded", "simple", "pytorch-converted", "pytorch-operator", "real")
#: Ops beyond the standard, against ONNX Runtime.
DOMAINS = ("com.microsoft", "ai.onnx.ml")
SUITES = (*ONNX_SUITES, *DOMAINS, "nnvm")
#: What NNVM networks may differ by, of the largest value of the reference; they are float32 (tests/data/nnvm).
NNVM_TOLERANCE = 1e-4


def collect(suites: Iterable[str] = SUITES) -> list[Case]:
    """The cases of the suites, in a fixed order. Making the node cases takes seconds (their inputs are computed)."""
    wanted = set(suites)
    cases: list[Case] = []
    if wanted & {"node", "node-expanded"}:
        cases += [c for c in _node_cases() if c.suite in wanted]
    for suite in ("simple", "pytorch-converted", "pytorch-operator", "real"):
        if suite in wanted:
            cases += _stored_cases(suite)
    for domain in DOMAINS:
        cases += domain_cases(domain) if domain in wanted else []
    return cases + (_nnvm_cases() if "nnvm" in wanted else [])


# -- node: one op each, or the function body of one


def _node_cases() -> list[Case]:
    from onnx.backend.test.case.node import collect_testcases

    np.random.seed(0)  # what the cases' inputs are drawn from
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    plain = {c.name: c for c in found if "_expanded" not in c.name}
    return [_node_case(c, plain.get(c.name.partition("_expanded")[0], c)) for c in found]


def modules() -> list[str]:
    """The modules of ONNX's node cases: an op each, or a few that belong together."""
    from onnx.backend.test.case import node

    found = pkgutil.walk_packages(node.__path__, f"{node.__name__}.")
    return [m.name.removeprefix(f"{node.__name__}.") for m in found if not m.ispkg and "._" not in m.name]


def cases_in(module: str) -> list[Case]:
    """The node cases of one of `modules`, bodies of functions left out; those of other ops are not made for it."""
    from onnx.backend.test.case import node
    from onnx.backend.test.case.base import Base

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = import_module(f"{node.__name__}.{module}")
    names = {name.lower() for name, found in vars(here).items() if isinstance(found, type) and issubclass(found, Base)}
    names |= {module}  # one is called by another op's name
    cases = [c for c in node._NodeTestCases if "_expanded" not in c.name]
    return [_node_case(c, c) for c in cases if any(n.op_type.lower() in names for n in c.model.graph.node)]


def _node_case(case: Any, plain: Any) -> Case:
    """`plain` is the case that `case` expands, or `case` itself; it says which op is tested."""
    node = plain.model.graph.node[0]
    version = next((o.version for o in plain.model.opset_import if o.domain == node.domain), 1)
    return Case(
        suite="node" if case is plain else "node-expanded",
        name=case.name.removeprefix("test_"),
        load=partial(_node_problem, case),
        op=f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
        since=_since(node.op_type, version, node.domain),
        dtype=_dtype(next(iter((*plain.model.graph.input, *plain.model.graph.output))).type),
        tags=_tags(case.model),
    )


def _since(op: str, version: int, domain: str) -> int:
    try:
        return onnx.defs.get_schema(op, version, domain).since_version
    except onnx.defs.SchemaError:
        return version


def _node_problem(case: Any) -> Problem:
    sets = [_named(case.model, *data) for data in case.data_sets]
    return Problem(case.model, sets, case.rtol, case.atol)


# -- simple, pytorch, real: a folder each, or a model beside its expected outputs


def _stored_cases(suite: str) -> list[Case]:
    from onnx.backend.test.loader import load_model_tests

    cases = sorted(load_model_tests(kind=suite), key=lambda c: c.name)
    found = []
    for case in cases:
        load = partial(_stored_problem if case.model_dir else _light_problem, case)
        tags = _tags(onnx.load(Path(case.model_dir) / "model.onnx")) if suite == "simple" else frozenset()
        found.append(Case(suite, case.name.removeprefix("test_"), load, tags=tags))
    return found


def _stored_problem(case: Any) -> Problem:
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = (
            [_read(data / f"{kind}_{i}.pb", value.type) for i, value in enumerate(values) if (data / f"{kind}_{i}.pb").exists()]
            for kind, values in (("input", model.graph.input), ("output", model.graph.output))
        )  # fmt: skip
        sets.append(_named(model, inputs, outputs))
    return Problem(model, sets, case.rtol, case.atol)


def _light_problem(case: Any) -> Problem:
    """One of the nine "real" models: weights from ConstantOfShape nodes, the input the suite's ramp, outputs stored."""
    path = Path(onnx.__file__).parent.parent / case.url
    model = onnx.load(path)
    initialized = {i.name for i in model.graph.initializer}
    inputs = [_ramp(v) for v in model.graph.input if v.name not in initialized]
    outputs = [_read(path.with_name(f"{path.stem}_output_{i}.pb"), v.type) for i, v in enumerate(model.graph.output)]
    return Problem(model, [_named(model, inputs, outputs)], case.rtol, case.atol)


def _ramp(value: onnx.ValueInfoProto) -> np.ndarray:
    """0, 1/n, 2/n, …: what ONNX's runner feeds the real models."""
    shape = tuple(d.dim_value if d.HasField("dim_value") else 1 for d in value.type.tensor_type.shape.dim)
    n = int(np.prod(shape))
    return (np.arange(n).reshape(shape) / n).astype(np.float32)


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


# -- what both have


def _named(model: onnx.ModelProto, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Feeds, dict[str, Any]]:
    """Values by name. Old models list initializers among their inputs: data are for the others."""
    names = [v.name for v in model.graph.input]
    if len(inputs) < len(names):
        initialized = {i.name for i in model.graph.initializer}
        names = [n for n in names if n not in initialized]
    feeds = {n: _value(v) for n, v in zip(names, inputs) if v is not None}
    return feeds, {v.name: _value(o) for v, o in zip(model.graph.output, outputs, strict=True)}


def _value(value: Any) -> Any:
    """As an array: the suite also has TensorProtos and NumPy's scalars; lists are sequences."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return (
        [_value(v) for v in value] if isinstance(value, list | tuple) else None if value is None else np.asarray(value)
    )


#: Element types that LightNet has, in ONNX's spelling and in MLIR's.
DTYPES = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64", "bool": "i1",
    "int2": "i2", "uint2": "ui2", "int4": "i4", "uint4": "ui4", "float4e2m1": "f4E2M1FN", "float8e4m3fn": "f8E4M3FN",
    "float8e4m3fnuz": "f8E4M3FNUZ", "float8e5m2": "f8E5M2", "float8e5m2fnuz": "f8E5M2FNUZ", "float8e8m0": "f8E8M0FNU",
}  # fmt: skip


def _dtype(kind: onnx.TypeProto) -> str:
    """The element type of a tensor (of what a sequence or an optional holds), in ONNX's spelling."""
    while not kind.HasField("tensor_type"):
        if kind.HasField("sequence_type"):
            kind = kind.sequence_type.elem_type
        elif kind.HasField("optional_type"):
            kind = kind.optional_type.elem_type
        else:
            return "other"
    return TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()


#: Ops that need more than tensors and straight-line code, or whose results' shapes follow from data, never only from shapes.
_CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
_TRAINING_DOMAIN = "ai.onnx.preview.training"
_DATA_DEPENDENT = {"NonZero", "Unique", "Compress", "NonMaxSuppression"}
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def _tags(model: onnx.ModelProto) -> frozenset[str]:
    nodes = [n for graph in (model.graph, *model.functions) for n in graph.node]
    ops = {n.op_type for n in nodes}
    domains = {n.domain for n in nodes}
    tags = set()
    for value in (*model.graph.input, *model.graph.output):
        if value.type.HasField("sequence_type"):
            tags.add("sequence")
        if value.type.HasField("optional_type"):
            tags.add("optional")
        dtype = _dtype(value.type)
        if dtype not in DTYPES:
            tags.add("string" if dtype == "string" else "element type")
    tags |= (
        {"sequence"}
        if any(op.startswith(("Sequence", "SplitToSequence", "ConcatFromSequence")) for op in ops)
        else set()
    )
    tags |= {"optional"} if any(op.startswith("Optional") for op in ops) else set()
    tags |= {"control flow"} if ops & _CONTROL else set()
    tags |= {"training"} if _TRAINING_DOMAIN in domains else set()
    tags |= {"data-dependent shape"} if ops & _DATA_DEPENDENT else set()
    tags |= {"random numbers"} if ops & _RANDOM else set()
    tags |= {"ai.onnx.ml"} if "ai.onnx.ml" in domains else set()
    return frozenset(tags)


# -- nnvm


def _nnvm_cases() -> list[Case]:
    """The networks of tests/data/nnvm that have reference outputs."""
    sys.path.append(str(ROOT / "tests"))
    from nnvm_nets import nets, old_nets

    return [Case("nnvm", net.tag, partial(_nnvm_problem, net)) for net in (*nets(), *old_nets())]


def _nnvm_problem(net: Any) -> Problem:
    feeds = net.feeds()
    shapes = {name: array.shape for name, array in feeds.items()}
    return Problem(
        net.path, [(feeds, net.references())], of_largest=NNVM_TOLERANCE, weights=net.weights(), shapes=shapes,
        align=net.aligned,
    )  # fmt: skip
