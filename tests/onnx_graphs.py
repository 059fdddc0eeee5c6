"""Random ONNX graphs whose values are known: each node is run by ONNX Runtime (optimisations off), or by ONNX's reference
evaluator, when it is added. `onnx_moves` has the moves that a graph is made of; `shrink` makes a failing graph small.

A value has an *error*: how far an implementation that rounds elsewhere may be from it. It is measured, by running the node again on
operands moved by their own errors; a node whose integers change then, or whose floats become loose, is not added.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ort.set_default_logger_severity(4)

#: Nothing larger is kept: elements, and absolute values by dtype.
MAX_ELEMENTS = 4000
MAX_VALUE = {"f2": 500.0, "f4": 5e3, "f8": 5e3}
EPS = {"f2": 2.0**-11, "f4": 2.0**-24, "f8": 2.0**-53}
#: Ops that the reference evaluator gets wrong (a pool of rank 5 with four ones behind its channels, for one).
NO_REFERENCE = frozenset({"GlobalMaxPool"})
#: Ops that give the same bits everywhere where their operands have the same bits.
EXACT = frozenset(
    "Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil CenterCropPad Clip Compress Concat "
    "Constant ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND Greater "
    "GreaterOrEqual Hardmax Identity IsInf IsNaN Less LessOrEqual Max MaxPool Min Mul Neg NonZero Not OneHot Or Pad PRelu Relu "
    "ReduceMax ReduceMin Reshape ReverseSequence Round Scatter ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth Split "
    "Squeeze Sub Tile TopK Transpose Trilu Unsqueeze Where Xor Range GlobalMaxPool LeakyRelu".split()
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A value of a graph: its contents, its error, and where it comes from: "input", "initializer", "default" (an initializer that is
    an input, too) or "node". `static`: known without the inputs."""

    array: np.ndarray
    error: float
    source: str
    static: bool


@dataclass
class RandomGraph:
    """A graph: nodes in order, every value by name, and the names of the outputs."""

    opset: int
    values: dict[str, Known] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    open_dims: bool = False  # its inputs declare no dims

    def model(self) -> bytes:
        inputs = [_info(n, v.array, self.open_dims and v.source == "input") for n, v in self.values.items()
                  if v.source in ("input", "default")]  # fmt: skip
        tensors = [numpy_helper.from_array(np.asarray(v.array), n) for n, v in self.values.items()
                   if v.source in ("initializer", "default")]  # fmt: skip
        outputs = [_info(n, self.values[n].array, self.open_dims) for n in self.outputs]
        return _model(self.opset, helper.make_graph(self.nodes, "g", inputs, outputs, tensors)).SerializeToString()

    def feeds(self) -> dict[str, np.ndarray]:
        return {n: v.array for n, v in self.values.items() if v.source == "input"}


def _info(name: str, array: np.ndarray, is_open: bool = False) -> onnx.ValueInfoProto:
    dims: list = [f"{name}_{k}" for k in range(array.ndim)] if is_open else list(array.shape)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)


def _model(opset: int, graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 19 else 10)


# -- the oracle ------------------------------------------------------------------------------------------------------


def _session() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return options


_OPTIONS = _session()


def fits_schema(node: NodeProto, opset: int, arrays: dict[str, np.ndarray]) -> bool:
    """Whether the op is in the opset and takes operands of these dtypes."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return False
    if schema.deprecated or not schema.min_input <= len(node.input) <= schema.max_input:
        return False
    bound: dict[str, np.dtype] = {}
    for k, name in enumerate(node.input):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        if not name:
            continue
        dtype = arrays[name].dtype
        elem = TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()
        if f"tensor({elem})" not in formal.types:
            return False
        if formal.is_homogeneous and bound.setdefault(formal.type_str, dtype) != dtype:
            return False
    return all(a.name in schema.attributes for a in node.attribute)


def run_node(node: NodeProto, opset: int, arrays: dict[str, np.ndarray], static: set[str]) -> list[np.ndarray] | None:
    """The outputs of a node; None where no oracle runs it."""
    if not fits_schema(node, opset, arrays):
        return None
    names = dict.fromkeys(n for n in node.input if n)
    inputs = [_info(n, arrays[n]) for n in names if n not in static]
    tensors = [numpy_helper.from_array(np.asarray(arrays[n]), n) for n in names if n in static]
    outputs = [n for n in node.output if n]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs], tensors)
    model = _model(opset, graph)
    feeds = {n: arrays[n] for n in names if n not in static}
    try:
        found = ort.InferenceSession(model.SerializeToString(), _OPTIONS, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception as refusal:
        if "NOT_IMPLEMENTED" not in str(refusal) or node.op_type in NO_REFERENCE:
            return None  # the node is wrong
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = ReferenceEvaluator(model).run(None, feeds)
        except Exception:
            return None
    return [np.asarray(f) for f in found] if all(isinstance(f, (np.ndarray, np.generic)) for f in found) else None


# -- building --------------------------------------------------------------------------------------------------------


class Builder:
    """A graph under construction, with what the moves draw from."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.graph = RandomGraph(int(self.rng.integers(9, 23)))

    @property
    def opset(self) -> int:
        return self.graph.opset

    # drawing

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def some(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def array(self, name: str) -> np.ndarray:
        return self.graph.values[name].array

    def value(self, wanted: Callable[[np.ndarray], bool] = lambda a: True) -> str | None:
        """A value that is `wanted`, preferably a late one."""
        found = [n for n, v in self.graph.values.items() if wanted(v.array)]
        return found[-1 - min(int(self.rng.exponential(3)), len(found) - 1)] if found else None

    def contents(self, dims: Sequence[int], dtype: str) -> np.ndarray:
        kind = np.dtype(dtype).kind
        if kind == "b":
            return self.rng.random(dims) < 0.5
        if kind == "f":
            if self.chance(0.4):
                return (self.rng.integers(-24, 25, dims) / 8).astype(dtype)  # many ties, exact sums
            return (self.rng.standard_normal(dims) * self.pick(0.5, 1, 1, 3)).astype(dtype)
        if self.chance(0.15):
            info = np.iinfo(dtype)
            return self.rng.integers(info.min, info.max, dims, dtype, endpoint=True)
        return self.rng.integers(0 if kind == "u" else -6, 9, dims).astype(dtype)

    # adding

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{len(self.graph.values)}"

    def input(self, array: np.ndarray) -> str:
        name = self.fresh("x")
        self.graph.values[name] = Known(array, 0.0, "input", False)
        return name

    def const(self, array: np.ndarray | Sequence | float, dtype: str | None = None) -> str:
        """An initializer, one that is an input too, or a Constant."""
        array = np.asarray(array, dtype)
        how = self.rng.random()
        if how < 0.25 and (made := self.add("Constant", [], value=numpy_helper.from_array(array))):
            return made[0]
        name = self.fresh("w")
        default = how > 0.9 and array.dtype.kind == "f"
        self.graph.values[name] = Known(array, 0.0, "default" if default else "initializer", not default)
        return name

    def decided(self, array: Sequence | np.ndarray, dtype: str = "i8") -> str:
        """What decides a shape: a constant, or an integer computed from shapes."""
        array = np.asarray(array, dtype)
        if self.chance(0.25) and array.ndim == 1 and array.size and self.opset >= 10 and dtype == "i8":
            source = self.value(lambda a: a.ndim > 0)
            if source and (shape := self.add("Shape", [source])):
                first = self.add("Gather", [shape[0], self.const([0], "i8")], axis=0)
                rest = self.add("Sub", [self.const(array), *first]) if first else []
                if rest and (back := self.add("Add", [*rest, *first])):
                    return back[0]
        return self.const(array)

    def source(self, dims: Sequence[int], dtype: str) -> str:
        """An input, or a constant."""
        array = self.contents(dims, dtype)
        return self.input(array) if self.chance(0.5) else self.const(array)

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes) -> list[str]:
        """One node; [] where it is refused, or what comes out is not to be compared."""
        if any(n is None for n in inputs):
            return []
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = [f"v{len(self.graph.values) + k}" for k in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=f"{op}_{names[0]}", **attributes)
        values = {n: self.graph.values[n] for n in inputs if n}
        arrays = {n: v.array for n, v in values.items()}
        static = {n for n, v in values.items() if v.static or (v.source == "default")}
        found = run_node(node, self.opset, arrays, static)
        if found is None or not all(usable(f) for f in found):
            return []
        errors = self._errors(node, values, arrays, static, found)
        if errors is None:
            return []
        self.graph.nodes.append(node)
        known = op in ("Shape", "Size") or all(v.static for v in values.values())
        for name, array, error in zip(names, found, errors):
            self.graph.values[name] = Known(array, error, "node", known)
        return names

    def _errors(self, node, values, arrays, static, found) -> list[float] | None:
        """The error of each result; None where it is too large to say anything."""
        moved: list[list[np.ndarray]] = []
        if any(v.error for v in values.values()):
            for _ in range(2):
                other = {n: _move(self.rng, v) for n, v in values.items()}
                again = run_node(node, self.opset, other, static)
                if again is None or any(a.shape != b.shape for a, b in zip(again, found)):
                    return None
                moved.append(again)
        largest = [float(np.abs(a.astype(np.float64)).max(initial=0)) for a in arrays.values() if a.dtype.kind == "f"]
        errors = []
        for k, out in enumerate(found):
            if out.dtype.kind != "f":
                if any(not np.array_equal(m[k], out) for m in moved):
                    return None
                errors.append(0.0)
                continue
            size = float(np.abs(out.astype(np.float64)).max(initial=0))
            error = 3 * max((float(np.abs(m[k].astype(np.float64) - out).max(initial=0)) for m in moved), default=0.0)
            if node.op_type not in EXACT or any(v.error for v in values.values()):
                scale = max(size, *largest, 1e-3) if largest else max(size, 1e-3)
                worst = max((EPS[a.dtype.str[1:]] for a in (*arrays.values(), out) if a.dtype.kind == "f"))
                error += (4 if worst > 1e-4 else 16) * worst * scale
            if error > 0.03 * max(size, 0.1):
                return None
            errors.append(error)
        return errors


def _move(rng: np.random.Generator, v: Known) -> np.ndarray:
    if not v.error:
        return v.array
    return (v.array + v.error * rng.uniform(-1, 1, v.array.shape)).astype(v.array.dtype)


def usable(array: np.ndarray) -> bool:
    """Whether to compare this: numbers, not too many, finite, and not so large that little is left of the others."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8 or array.size > MAX_ELEMENTS or array.ndim > 7:
        return False
    return array.dtype.kind != "f" or bool(np.isfinite(array).all() and np.abs(array).max(initial=0) < MAX_VALUE[array.dtype.str[1:]])


def random_graph(seed: int) -> RandomGraph:
    """A graph of 3 to 25 nodes, with some outputs."""
    from onnx_moves import MOVES

    b = Builder(seed)
    for _ in range(b.some(1, 3)):
        rank = b.pick(0, 1, 2, 2, 3, 3, 4, 4, 4, 5)
        b.input(b.contents([b.pick(1, 2, 3, 4, 5, 6, 8) for _ in range(rank)], b.pick("f4", "f4", "f4", "f4", "f8", "f2", "i8", "i4")))
    size, tries = b.some(3, 25), 0
    moves = [MOVES[k] for k in b.rng.permutation(len(MOVES))[: b.pick(6, 12, len(MOVES))]]  # each has its favourites
    while sum(n.op_type != "Constant" for n in b.graph.nodes) < size and tries < 6 * size:
        b.pick(*moves)(b)
        tries += 1
    graph = b.graph
    used = {n for node in graph.nodes for n in node.input}
    made = [n for node in graph.nodes for n in node.output]
    graph.outputs = [n for n in made if b.chance(0.85 if n not in used else 0.1)] or made[-1:]  # the others are dead
    graph.open_dims = b.chance(0.1)
    return graph


# -- checking --------------------------------------------------------------------------------------------------------


def differences(graph: RandomGraph, got: dict[str, np.ndarray]) -> str | None:
    """What is wrong with the outputs `got`, or None."""
    if set(got) != set(graph.outputs):
        return f"outputs {sorted(got)} instead of {sorted(graph.outputs)}"
    for name in graph.outputs:
        want, error = graph.values[name].array, graph.values[name].error
        a = got[name]
        if (a.shape, a.dtype) != (want.shape, want.dtype):
            return f"{name}: {a.dtype}{list(a.shape)} instead of {want.dtype}{list(want.shape)}"
        if want.dtype.kind != "f":
            if not np.array_equal(a, want):
                return f"{name}: {int((a != want).sum())} of {want.size} integers differ"
            continue
        worst = float(np.abs(a.astype(np.float64) - want).max(initial=0))
        if not worst <= 2 * error:
            return f"{name}: differs by {worst:.3g}, more than twice the {error:.3g} expected"
    return None


def shrink(graph: RandomGraph, fails: Callable[[RandomGraph], bool]) -> RandomGraph:
    """A small graph that `fails`, too: fewer outputs, and values that are given instead of computed."""
    for name in list(graph.outputs):
        if len(graph.outputs) > 1 and fails(smaller := pruned(replace(graph, outputs=[n for n in graph.outputs if n != name]))):
            graph = smaller
    progress = True
    while progress:
        progress = False
        for node in list(graph.nodes):
            if node not in graph.nodes:
                continue
            values = dict(graph.values)
            for n in node.output:
                if n:
                    values[n] = replace(values[n], source="initializer" if values[n].static else "input")
            smaller = replace(graph, nodes=[m for m in graph.nodes if m is not node], values=values,
                              outputs=[n for n in graph.outputs if n not in node.output])  # fmt: skip
            if smaller.outputs and smaller.nodes and fails(smaller := pruned(smaller)):
                graph, progress = smaller, True
    if graph.open_dims and fails(closed := replace(graph, open_dims=False)):
        graph = closed
    return graph


def pruned(graph: RandomGraph) -> RandomGraph:
    """Without the nodes and values that no output needs."""
    needed, nodes = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(node.input)
    made = {n for node in nodes for n in node.output}
    return replace(graph, nodes=nodes[::-1], values={n: v for n, v in graph.values.items() if n in needed | made})
