"""The layers of upstream's op `tensorrt`, two ways: an entry of a network file ↔ a `tensorrt.kernel` whose body is the
layers' ops.

    conv src weight bias dst group output_c size stride padding dilation     ↔ conv2d
    deconv   (the same without dilation)                                     ↔ deconv2d
    pooling src dst size stride padding pooling_type                         ↔ maxpool2d, avgpool2d
    activation src dst activation_type                                       ↔ relu, sigmoid, tanh
    softmax src dst axes    elew src1 src2 dst elew_type    concat src1 src2 dst axis    scale src shift scale power dst
    padding src dst padding                                                  the padding of the layer that reads it

A parameter ``op<j>`` names the kind of layer j, ``op<j>_<field>`` its tensors and numbers. A layer of kind padding
stands for the asymmetric padding of the layer behind it, which is that op's own: pools leave it out of a mean, as their
definition does. Imports the IR and the `ln` ops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, TypeVar

from xdsl.ir import Block, SSAValue

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import built_in_optypes, find_op
from lightnet.ir.kernel import KernelOp, LayerEntry
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp, set_tensor_names, tensor_name
from lightnet.ir.params import ParamValue
from lightnet.ir.types import spec_of

#: Layers of one op: more is refused.
MAX_LAYERS = 1 << 14
_ACTIVATIONS = {"kRELU": "relu", "kSIGMOID": "sigmoid", "kTANH": "tanh"}
_POOLS = {"kMAX": "maxpool2d", "kAVERAGE": "avgpool2d"}
#: TensorRT's names of elementwise operations.
ELEMENTWISE = {
    "TL_MUL": "kPROD", "TL_DIV": "kDIV", "TL_SUM": "kSUM", "TL_SUB": "kSUB", "TL_MAX": "kMAX", "TL_MIN": "kMIN",
    "TL_POW": "kPOW",
}  # fmt: skip
Fields = dict[str, ParamValue]
_Kernel = TypeVar("_Kernel", bound=KernelOp)


@dataclass
class _Layer:
    """A layer of an entry, while it is read: `at` finds tensors, `padding` those that a padding layer made."""

    number: int
    kind: str
    fields: Fields
    tensors: dict[str, SSAValue]
    padding: dict[str, tuple[SSAValue, tuple[int, ...]]]

    def error(self, message: str) -> LightNetError:
        return LightNetError(f"tensorrt: layer {self.number} ({self.kind}) {message}", label="tensorrt.layer")

    def said(self, key: str) -> ParamValue:
        if key not in self.fields:
            raise self.error(f"has no `op{self.number}_{key}`")
        return self.fields[key]

    def text(self, key: str, known: Mapping[str, str]) -> str:
        if (value := self.said(key)) not in known:
            raise self.error(f"should have a `{key}` out of {', '.join(known)}, but has {value!r:.60}")
        return known[str(value)]

    def numbers(self, key: str, count: int) -> tuple[int, ...]:
        value = self.said(key)
        found = tuple(int(v) for v in value if _whole(v)) if isinstance(value, tuple) else ()
        if not isinstance(value, tuple) or not len(found) == len(value) == count:
            raise self.error(f"should have {count} integers as `{key}`, but has {value!r:.60}")
        return found

    def number_of(self, key: str) -> int:
        if not _whole(value := self.said(key)):
            raise self.error(f"should have an integer as `{key}`, but has {value!r:.60}")
        return int(value)

    def tensor(self, key: str) -> SSAValue:
        name = self.said(key)
        if name not in self.tensors:
            raise self.error(f"reads `{name!s:.60}`, which is neither an input of the op nor made by a layer before it")
        return self.tensors[str(name)]

    def padded(self) -> tuple[SSAValue, tuple[int, ...]]:
        """The tensor `src` and its padding [top, left, bottom, right], that of a padding layer before it included."""
        rows, columns = self.numbers("padding", 2)
        value, more = self.padding.get(str(self.said("src")), (None, (0, 0, 0, 0)))
        own = (rows, columns, rows, columns)
        return value or self.tensor("src"), tuple(a + b for a, b in zip(own, more))


def _whole(value: object) -> TypeGuard[float]:
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


# -- from an entry to a kernel


def kernel_of_layers(kind: type[_Kernel], entry: LayerEntry, values: Mapping[str, SSAValue]) -> _Kernel:
    """The kernel of an entry, not inserted, of a `kind`, whose operands are `values` by the tensors' names in it.
    Raises `LightNetError` for layers that there are not, and for those that make other tensors than the entry says."""
    if "bin" in entry.params:
        raise LightNetError(
            "tensorrt: this op holds a serialised engine, which nothing here can read: take the network's source"
        )
    numbers = sorted(int(m[1]) for key in entry.params if (m := re.fullmatch(r"op([1-9]\d{0,8})", key)))
    if not 0 < len(numbers) <= MAX_LAYERS:
        raise LightNetError(
            f"tensorrt: expected 1 to {MAX_LAYERS} layers (`op1` …), got {len(numbers)}", label="tensorrt.layer"
        )
    outside = {name: values[name] for _, name in entry.ins}
    block = Block(arg_types=[v.type for v in outside.values()])
    tensors: dict[str, SSAValue] = dict(zip(outside, block.args))
    for value, arg in zip(outside.values(), block.args):
        arg.name_hint = value.name_hint
    padding: dict[str, tuple[SSAValue, tuple[int, ...]]] = {}
    for n, fields in zip(numbers, _fields(entry, numbers)):
        _add_layer(_Layer(n, str(entry.params[f"op{n}"]), fields, tensors, padding), block)
    yielded = [_made(entry, arg, name, tensors) for arg, name in entry.outs]
    return kind.around(block, list(outside.values()), yielded)


def _fields(entry: LayerEntry, numbers: Sequence[int]) -> list[Fields]:
    """The fields of each layer, by one look at the parameters."""
    found: dict[int, Fields] = {n: {} for n in numbers}
    for key, value in entry.params.items():
        match = re.fullmatch(r"op([1-9]\d{0,8})_(\w+)", key)
        if match is not None and int(match[1]) in found:
            found[int(match[1])][match[2]] = value
    return list(found.values())


def _add_layer(layer: _Layer, block: Block) -> None:
    """Append the op of a layer to the block, and note what it makes."""
    if layer.kind == "padding":
        layer.padding[str(layer.said("dst"))] = layer.tensor("src"), layer.numbers("padding", 4)
        return
    if layer.kind not in _READERS:
        raise layer.error(f"is none that there are: {', '.join(_READERS)}, padding")
    optype, operands, params = _READERS[layer.kind](layer)
    cls = find_op(optype, built_in_optypes())  # a layer is what it is, whatever takes the place of an op
    assert cls is not None
    try:
        op = cls.make(operands, params)
    except LightNetError as e:
        raise layer.error(f"is not possible: {e.message}") from None
    name = str(layer.said("dst"))
    set_tensor_names(op, [None if name.startswith("%") else name])
    block.add_op(op)
    layer.tensors[name] = op.results[0]


def _made(entry: LayerEntry, arg: str, name: str, tensors: Mapping[str, SSAValue]) -> SSAValue:
    """The tensor that an output names, which has the shape and dtype that the entry says."""
    if name not in tensors:
        raise LightNetError(f"tensorrt: no layer makes `{name}`, which is its output `{arg}`", label="tensorrt.output")
    spec = spec_of(tensors[name].type)
    shape, dtype = entry.params.get(f"{arg}_shape", spec.dims), entry.params.get(f"{arg}_dtype", spec.dtype.tl)
    if shape != spec.dims or dtype != spec.dtype.tl:
        said = list(shape) if isinstance(shape, tuple) else shape
        raise LightNetError(f"tensorrt: its output `{arg}` should be {dtype}{said}, but the layers make "
                            f"{spec.dtype.tl}{list(spec.dims)}",
                            label="tensorrt.output")  # fmt: skip
    return tensors[name]


Made = tuple[str, list[SSAValue], Fields]


def _conv(layer: _Layer) -> Made:
    src, padding = layer.padded()
    params: Fields = {"group": layer.number_of("group"), "size": layer.numbers("size", 2),
                      "stride": layer.numbers("stride", 2),
                      "padding": padding}  # fmt: skip
    operands = [src, layer.tensor("weight"), layer.tensor("bias")]
    optype, outputs = "deconv2d", spec_of(operands[2].type).len
    if layer.kind == "conv":
        optype, params["dilation"] = "conv2d", layer.numbers("dilation", 2)
    if layer.kind == "conv" and layer.number_of("output_c") != outputs:
        raise layer.error(f"makes {outputs} channels, but `output_c` says {layer.number_of('output_c')}")
    return optype, operands, params


def _pooling(layer: _Layer) -> Made:
    src, padding = layer.padded()
    optype = layer.text("pooling_type", _POOLS)
    return optype, [src], {"size": layer.numbers("size", 2), "stride": layer.numbers("stride", 2), "padding": padding}


def _softmax(layer: _Layer) -> Made:
    src = layer.tensor("src")
    axes = layer.number_of("axes") if "axes" in layer.fields else 1 << _default_axis(src)
    if axes <= 0 or axes & (axes - 1):
        raise layer.error(f"should have one bit in `axes`, but has {axes}")
    return "softmax", [src], {"axis": axes.bit_length() - 1}


def _concat(layer: _Layer) -> Made:
    operands = [layer.tensor("src1"), layer.tensor("src2")]
    axis = layer.number_of("axis") if "axis" in layer.fields else _default_axis(operands[0])
    return "concat", operands, {"axis": axis}


def _default_axis(value: SSAValue) -> int:
    """The axis of channels, which TensorRT takes where none is said."""
    rank = spec_of(value.type).ndim
    return 1 if rank < 4 else rank - 3


def _elew(layer: _Layer) -> Made:
    operation = layer.text("elew_type", {v: k for k, v in ELEMENTWISE.items()})
    return "elew", [layer.tensor("src1"), layer.tensor("src2")], {"elew_op": operation}


def _scale(layer: _Layer) -> Made:
    layer.text("scale_mode", {"kCHANNEL": ""})
    return "scale_tensorrt", [layer.tensor(key) for key in ("src", "shift", "scale", "power")], {}


_READERS: dict[str, Callable[[_Layer], Made]] = {
    "conv": _conv, "deconv": _conv, "pooling": _pooling, "softmax": _softmax, "concat": _concat, "elew": _elew,
    "scale": _scale,
    "activation": lambda layer: (layer.text("activation_type", _ACTIVATIONS), [layer.tensor("src")], {}),
}  # fmt: skip


# -- from a kernel to an entry


def entry_of(kernel: KernelOp, outside: Sequence[str], results: Sequence[str]) -> LayerEntry:
    """The entry of a kernel; `outside` and `results` are the names of its operands and results. Raises `LightNetError`
    for an op that is no layer (`is_layer`)."""
    names: dict[SSAValue, str] = dict(zip(kernel.body.args, outside))
    names |= dict(zip(kernel.terminator.operands, results))
    taken = set(names.values())
    layers: list[tuple[str, Fields]] = []
    for op in kernel.ops:
        if op.results[0] not in names:
            names[op.results[0]] = _fresh(tensor_name(op.results[0]) or f"{results[0]}_layer", taken)
        if not is_layer(op):
            raise LightNetError(
                f"tensorrt: {op.optype} with these parameters is no layer", loc_of(op), "tensorrt.layer"
            )
        layers += _written(op, [names[v] for v in op.operands], names[op.results[0]])
    static = {v for op in kernel.ops for v, o in zip(op.operands, _roles(op)) if o == "param"}
    entry, count = LayerEntry(), {"src": 0, "weight": 0}
    for value, name in zip(kernel.body.args, outside):
        arg = "weight" if value in static else "src"
        count[arg] += 1
        entry.ins.append((f"{arg}{count[arg]}", name))
    entry.params["batch_size"] = spec_of(kernel.ops[0].operands[0].type).dims[0]
    for n, (name, result) in enumerate(zip(results, kernel.results), 1):
        spec = spec_of(result.type)
        entry.outs.append((f"dst{n}", name))
        entry.params |= {f"dst{n}_shape": spec.dims, f"dst{n}_dtype": spec.dtype.tl}
    for n, (kind, fields) in enumerate(layers, 1):
        entry.params |= {f"op{n}": kind, **{f"op{n}_{key}": value for key, value in fields.items()}}
    return entry


def _fresh(wish: str, taken: set[str]) -> str:
    name, n = wish, 0
    while name in taken:
        name, n = f"{wish}_{n}", n + 1
    taken.add(name)
    return name


def _roles(op: LnOp) -> list[str]:
    """``param`` of each operand that TensorRT takes as a weight, which lies in the host's memory."""
    fields = op.schema.operands
    return [fields[min(i, len(fields) - 1)].role for i in range(len(op.operands))]


def is_layer(op: LnOp) -> bool:
    """Return whether an op is one of TensorRT's layers: of those optypes, without what no field says, and not along the
    axis of the batch.
    """
    params = op.param_values()
    if op.optype in ("conv2d", "deconv2d") and len(op.operands) != 3:
        return False
    if op.optype == "deconv2d":
        return params["dilation"] == (1, 1) and params["output_padding"] == (0, 0)
    if op.optype in ("softmax", "concat"):
        return params["axis"] != 0 and len(op.operands) <= 2
    return op.optype in ("conv2d", "elew", "scale_tensorrt", *_ACTIVATIONS.values(), *_POOLS.values())


def _written(op: LnOp, operands: Sequence[str], dst: str) -> list[tuple[str, Fields]]:
    """The layers of an op, as kinds with their fields."""
    p = op.param_values()
    io: Fields = {**dict(zip(_arguments(op), operands)), "dst": dst}
    match op.optype:
        case "conv2d" | "deconv2d" | "maxpool2d" | "avgpool2d":
            return _windowed(op, io, p)
        case "softmax":
            return [("softmax", {**io, "axes": 1 << op.param("axis")})]
        case "concat":
            return [("concat", {**io, "axis": p["axis"]})]
        case "elew":
            return [("elew", {**io, "elew_type": ELEMENTWISE[str(p["elew_op"])]})]
        case "scale_tensorrt":
            return [("scale", {**io, "scale_mode": "kCHANNEL"})]
    kind = next(k for k, optype in _ACTIVATIONS.items() if optype == op.optype)
    return [("activation", {**io, "activation_type": kind})]


def _arguments(op: LnOp) -> list[str]:
    return ["src1", "src2"] if op.optype == "concat" else op.arg_names()[0]


def _windowed(op: LnOp, io: Fields, p: Mapping[str, ParamValue]) -> list[tuple[str, Fields]]:
    """A layer with a window, behind one of kind padding where the padding is not the same on both sides."""
    top, left, bottom, right = op.derived_values()["pad"]
    before: list[tuple[str, Fields]] = []
    own: tuple[int, int] = (top, left)
    if (top, left) != (bottom, right):
        between = f"{io['dst']}_padding"
        before = [("padding", {"src": io["src"], "dst": between, "padding": (top, left, bottom, right)})]
        io, own = {**io, "src": between}, (0, 0)
    fields: Fields = {**io, "size": p["size"], "stride": p["stride"], "padding": own}
    if op.optype in _POOLS.values():
        kind = next(k for k, optype in _POOLS.items() if optype == op.optype)
        return [*before, ("pooling", {**fields, "pooling_type": kind})]
    fields |= {"group": p["group"], "output_c": op.result_specs[0].dims[1]}
    if op.optype == "deconv2d":
        return [*before, ("deconv", fields)]
    return [*before, ("conv", {**fields, "dilation": p["dilation"]})]
