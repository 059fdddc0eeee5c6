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
from compare_onnxruntime import WIDE_SUMS
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ort.set_default_logger_severity(4)

#: Nothing larger is kept: elements, and absolute values by dtype.
MAX_ELEMENTS = 12000
MAX_VALUE = {"f2": 500.0, "f4": 5e3, "f8": 5e3}
EPS = {"f2": 2.0**-11, "f4": 2.0**-24, "f8": 2.0**-53}
#: Ops that the reference evaluator gets wrong: the rank of pools, the rounding of erf to f32, a loop over the batch instead of the
#: channels, axes before opset 13, lengths of sequences,
#: the biases of groups.
NO_REFERENCE = frozenset(
    {"GlobalMaxPool", "Erf", "Gelu", "LRN", "Softmax", "LogSoftmax", "Hardmax", "RNN", "GRU", "LSTM"}
)
ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
#: Ops in which everyone has an own idea of what a NaN does, or of infinity times 0.
TAME = frozenset(
    "ArgMax ArgMin TopK MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool QuantizeLinear DynamicQuantizeLinear "
    "ReduceMin ReduceMax Scatter ScatterElements ScatterND GridSample Resize Upsample LSTM GRU RNN Hardmax Softmax LogSoftmax LRN "
    "BatchNormalization Conv ConvTranspose".split()
)
#: Ops that have constants or coefficients in f32, whatever their operands are.
SINGLE = frozenset(
    {
        "HardSwish",
        "Gelu",
        "Resize",
        "Upsample",
        "Selu",
        "HardSigmoid",
        "Mish",
        "Celu",
        "LeakyRelu",
        "Shrink",
        "GroupNormalization",
    }
)
#: Ops that give the same bits everywhere where their operands have the same bits.
EXACT = frozenset(
    "Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil CenterCropPad Clip Compress Concat "
    "Constant ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND Greater "
    "GreaterOrEqual Hardmax Identity IsInf IsNaN Less LessOrEqual Max MaxPool Min Mul Neg NonZero Not OneHot Or Pad PRelu Relu "
    "ReduceMax ReduceMin Reshape ReverseSequence Round Scatter ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth Split "
    "Squeeze Sub Tile TopK Transpose Trilu Unsqueeze Where Xor Range GlobalMaxPool".split()
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

    def __str__(self) -> str:
        """A line for each node, with the types of what it makes and takes; ``!`` marks what is known without the inputs."""

        def of(name: str) -> str:
            if not name:
                return "-"
            v = self.values[name]
            return f"{name}:{v.array.dtype}{list(v.array.shape)}{'!' if v.static else ''}"

        lines = [f"opset {self.opset}{', open dims' if self.open_dims else ''}"]
        for n in self.nodes:
            more = {a.name: helper.get_attribute_value(a) for a in n.attribute if a.type != onnx.AttributeProto.TENSOR}
            lines.append(f"{', '.join(map(of, n.output))} = {n.op_type}({', '.join(map(of, n.input))}) {more or ''}")
        return "\n".join([*lines, f"return {', '.join(self.outputs)}"])

    def model(self) -> bytes:
        inputs = [_info(n, v.array, self.open_dims and v.source == "input") for n, v in self.values.items()
                  if v.source in ("input", "default")]  # fmt: skip
        tensors = [numpy_helper.from_array(np.asarray(v.array), n)
                   for n, v in self.values.items() if v.source in ("initializer", "default")]  # fmt: skip
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


def _session_options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry(*WIDE_SUMS)
    return options


_OPTIONS = _session_options()


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), _OPTIONS, providers=["CPUExecutionProvider"])


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
        found = session(model).run(None, feeds)
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
        self.wild = self.chance(0.1)  # infinities and NaN occur

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
            return np.asarray(self.rng.random(dims) < 0.5)
        if kind == "f":
            if self.chance(0.4):
                array = np.asarray(self.rng.integers(-24, 25, dims) / 8, dtype)  # many ties, exact sums
            else:
                array = np.asarray(self.rng.standard_normal(dims) * self.pick(0.5, 1, 1, 3), dtype)
            if self.wild:
                array[self.rng.random(dims) < 0.1] = self.pick(np.inf, -np.inf, np.nan)
            return array
        if self.chance(0.15):
            info = np.iinfo(dtype)
            return np.asarray(self.rng.integers(info.min, info.max, dims, dtype, endpoint=True))
        return np.asarray(self.rng.integers(0 if kind == "u" else -6, 9, dims), dtype)

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
        source = "initializer" if how < 0.9 or array.dtype.kind != "f" else "default"
        self.graph.values[name] = Known(array, 0.0, source, source == "initializer")
        return name

    def decided(self, array: Sequence | np.ndarray, dtype: str = "i8") -> str:
        """What decides a shape: a constant, an integer computed from shapes, or (rarely: each costs a compilation) an input."""
        array = np.asarray(array, dtype)
        if self.chance(0.01):
            return self.input(array)
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
        if any(n is None for n in inputs) or (self.wild and op in TAME):
            return []
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = [f"v{len(self.graph.values) + k}" for k in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=f"{op}_{names[0]}", **attributes)
        values = {n: self.graph.values[n] for n in inputs if n}
        arrays = {n: v.array for n, v in values.items()}
        static = {n for n, v in values.items() if v.static or v.source == "default"}
        found = run_node(node, self.opset, arrays, static)
        if found is None or not all(usable(f, self.wild) for f in found):
            return []
        if op.startswith("Reduce") and found[0].dtype != arrays[inputs[0]].dtype:
            return []  # the reference evaluator has NumPy's types
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
        exact = is_exact(node, list(arrays.values()))
        nudge = 0 if exact or any(f.dtype.kind != "f" for f in found) else 4
        if any(v.error for v in values.values()) or nudge:
            for _ in range(2):
                other = {n: _move(self.rng, v, nudge) for n, v in values.items()}
                again = run_node(node, self.opset, other, static)
                if again is None or any(a.shape != b.shape for a, b in zip(again, found)):
                    return None
                moved.append(again)
        sizes = [largest(a) for a in arrays.values() if a.dtype.kind == "f"]
        errors = []
        for k, out in enumerate(found):
            if out.dtype.kind != "f":
                if any(not np.array_equal(m[k], out) for m in moved):
                    return None
                errors.append(0.0)
                continue
            size = largest(out)
            error = 3 * max((distance(m[k], out) for m in moved), default=0.0)
            if not exact or any(v.error for v in values.values()):
                scale = max(size, *sizes, 1e-3) if sizes else max(size, 1e-3)
                worst = max(EPS[a.dtype.str[1:]] for a in (*arrays.values(), out) if a.dtype.kind == "f")
                worst = max(worst, EPS["f4"]) if node.op_type in SINGLE else worst
                error += (4 if worst > 1e-4 else 16) * worst * scale
            if not error <= 0.03 * max(size, 0.1):
                return None
            errors.append(error)
        return errors


def _move(rng: np.random.Generator, v: Known, nudge: int) -> np.ndarray:
    """The contents, moved by no more than their error and `nudge` units of rounding."""
    if v.array.dtype.kind != "f" or not (v.error or nudge):
        return v.array
    finite = np.where(np.isfinite(v.array), v.array, 0)
    step = v.error + nudge * EPS[v.array.dtype.str[1:]] * np.abs(finite)
    return np.asarray(
        np.where(np.isfinite(v.array), finite + step * rng.uniform(-1, 1, finite.shape), v.array), v.array.dtype
    )


def is_exact(node: NodeProto, arrays: list[np.ndarray]) -> bool:
    """Whether the node gives the same bits everywhere; a product that is added may be rounded once or twice."""
    if node.op_type in ARITHMETIC and all(a.dtype in (np.float16, np.float32) for a in arrays):
        wide = ARITHMETIC[node.op_type](arrays[0].astype(np.float64), arrays[-1].astype(np.float64))
        return bool(np.array_equal(wide, wide.astype(arrays[0].dtype)))
    return node.op_type in EXACT and not any(a.name == "reduction" for a in node.attribute)


def largest(array: np.ndarray) -> float:
    """The largest absolute value, of the finite ones."""
    wide = np.abs(array.astype(np.float64))
    return float(wide.max(initial=0, where=np.isfinite(wide)))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """How far apart the elements are; infinite where a NaN or an infinity is in one of them only."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    special = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return np.inf
    return float(np.abs(np.where(special, 0, a) - np.where(special, 0, b)).max(initial=0))


def usable(array: np.ndarray, wild: bool) -> bool:
    """Whether to compare this: numbers, not too many, finite, and not so large that little is left of the others."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8 or array.size > MAX_ELEMENTS or array.ndim > 7:
        return False
    if array.dtype.kind != "f":
        return True
    return largest(array) < MAX_VALUE[array.dtype.str[1:]] and (wild or bool(np.isfinite(array).all()))


def random_graph(seed: int, most: int = 25) -> RandomGraph:
    """A graph of 3 to `most` nodes, with some outputs."""
    from onnx_moves import MOVES

    b = Builder(seed)
    for _ in range(b.some(1, 3)):
        rank = b.pick(0, 1, 2, 2, 3, 3, 4, 4, 4, 5)
        b.input(
            b.contents(
                [b.pick(1, 2, 3, 4, 5, 6, 8) for _ in range(rank)],
                b.pick("f4", "f4", "f4", "f4", "f8", "f2", "i8", "i4"),
            )
        )
    size, tries = b.some(3, most), 0
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
        worst = distance(a, want)
        if not worst <= 2 * error:
            return f"{name}: differs by {worst:.3g}, more than twice the {error:.3g} expected"
    return None


def shrink(graph: RandomGraph, fails: Callable[[RandomGraph], bool]) -> RandomGraph:
    """A small graph that `fails`, too: fewer outputs, and values that are given instead of computed."""
    for name in list(graph.outputs):
        if len(graph.outputs) > 1 and fails(
            smaller := pruned(replace(graph, outputs=[n for n in graph.outputs if n != name]))
        ):
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
