"""The builder that graph front ends (ONNX, NNVM) share: values, `ln` ops, folding of what is known, weights.

A front end says `graph.op("add", a, b)` and gets a value back; it never looks at where a value came from. An op on
known values with small results is computed at once, by its NumPy reference, so that shape arithmetic never reaches the
module, and `value.known` is what a handler asks for when a tensor decides a shape or a parameter. Weights are not
loaded: the module names them, and the store that `finish` returns loads each when it is needed. Imports `ir`, the `ln`
dialect and the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.dialect import built_in_optypes, optypes
from lightnet.dialects.ln.source import MAX_KNOWN, ConstantOp, Input, ParamOp, spelt
from lightnet.frontends.open_dims import LearntError, learnt
from lightnet.frontends.sizes import is_counted
from lightnet.ir import budget
from lightnet.ir.constraints import check_op
from lightnet.ir.counts import Count, set_counts
from lightnet.ir.locations import file_loc
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp, set_tensor_names
from lightnet.ir.params import ParamValue
from lightnet.ir.types import MAX_RANK, MAX_TENSOR_BYTES, TensorSpec, tensor_type
from lightnet.runtime.containers import Entry
from lightnet.runtime.dims import Dim, Undecided, greatest, is_known, least
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DType
from lightnet.runtime.weights import WeightStore

#: Elements of the largest tensor that folding reads or makes: anything larger is computed when the network is loaded.
MAX_FOLDED = 1 << 16
#: Bytes that folding keeps in all; beyond them only tensors of `ALWAYS_FOLDED` elements are folded, which a shape is.
MAX_FOLDED_BYTES = 1 << 28
ALWAYS_FOLDED = 256
#: Ops whose work is no small multiple of what they read and write: they are computed when the network is loaded.
NOT_FOLDED = frozenset({"conv", "conv2d", "deconv", "deconv2d", "maxpool", "maxpool2d", "maxpool_index", "avgpool",
                        "avgpool2d", "einsum", "nms", "roi_align", "roi_pool", "grid_sample", "lrn"})  # fmt: skip
#: The largest dim, and the largest integer of a parameter.
MAX_INT = (1 << 31) - 1
#: Elements of the largest array that a handler makes of sizes in a model (positions, tables, masks).
MAX_MADE = 1 << 24
#: Graph inputs that a value is traced back to: what depends on more of them is data, which decides no shape.
MAX_TRACED = 256
#: Elements of the largest param that is spelt in the module; larger ones are entries of the weight store, as constants
#: of more than `MAX_KNOWN` are.
MAX_SPELT = 8


class Value:
    """A tensor of the network under construction: its type, its contents where they are known, and (once an op reads
    it) its SSA value. `inputs` are the names of the graph inputs that it depends on; none where these are too many to
    matter."""

    __slots__ = ("_contents", "_load", "inputs", "is_fixed", "name", "spec", "ssa", "storage")

    def __init__(self, spec: TensorSpec, *, ssa: SSAValue | None = None, inputs: frozenset[str] = frozenset(),
                 load: Callable[[], np.ndarray] | None = None, name: str | None = None,
                 is_fixed: bool = False):  # fmt: skip
        self.spec, self.ssa, self.inputs, self.name = spec, ssa, inputs, name
        self._load = load
        self._contents: np.ndarray | None = None
        #: The type that it is stored in where the model has it and we do not (`frontends/onnx/storage.py`).
        self.storage: str | None = None
        #: Whether nobody may feed it, if it is known: small ones that ops read as data are an `ln.constant`.
        self.is_fixed = is_fixed

    def twin(self) -> Value:
        """Another value for the same tensor."""
        value = Value(self.spec, ssa=self.ssa, inputs=self.inputs, load=self._load, name=self.name,
                      is_fixed=self.is_fixed)  # fmt: skip
        value._contents = self._contents
        return value

    @property
    def dims(self) -> tuple[int, ...]:
        return self.spec.dims

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        return len(self.spec.dims)

    @property
    def len(self) -> int:
        return self.spec.len

    @property
    def is_known(self) -> bool:
        """True if there are `contents`, told without loading anything."""
        return self._load is not None

    @property
    def known(self) -> np.ndarray:
        """The contents of a value that is known."""
        found = self.contents
        assert found is not None
        return found

    @property
    def contents(self) -> np.ndarray | None:
        """The contents, read-only, of a weight, a constant or a folded result; None for what is computed at run
        time."""
        if self._load is None:
            return None
        if self._contents is not None:
            return self._contents
        array = self._load()
        if array.size <= MAX_FOLDED:  # large weights are not kept in memory
            self._contents = array
        return array

    def emitted(self, g: Graph) -> Value:
        """The tensor, where no op has made it yet."""
        raise AssertionError("a value is known, or an op makes it")

    def __repr__(self) -> str:
        return f"Value({self.spec}{', known' if self.is_known else ''})"


class Graph:
    """A network under construction; see the module's docstring. `source` names its file in errors."""

    def __init__(self, source: str):
        self.source = source
        self.loc: SourceLoc | None = SourceLoc(source)
        self.classes = {**optypes(), **built_in_optypes()}  # what handlers name is ours, whatever takes its place
        self.block = Block()
        self.entries: dict[str, Entry] = {}
        self._base = "op"
        self._names = FreshNames()
        self._reserved: set[str] = set()
        self._folded_bytes = 0
        #: What `counted.decided` made, by key.
        self.sizes: dict[Any, Any] = {}

    # -- sources

    def input(self, name: str, dims: Sequence[int], dtype: DType | str) -> Value:
        """A tensor that every call feeds."""
        spec = self.spec(dims, dtype)
        ssa = self._source(Input, spec, self._names.fresh(name), name, required=True)
        return Value(spec, ssa=ssa, inputs=frozenset([name]), name=name)

    def weight(self, name: str, dims: Sequence[int], dtype: DType | str, load: Callable[[], np.ndarray],
               is_fixed: bool = False) -> Value:  # fmt: skip
        """A named param; `load` gives its contents when they are needed, and is called again for a large one.
        `is_fixed` says that the source lets nobody feed it."""
        return Value(self.spec(dims, dtype), load=load, name=name, is_fixed=is_fixed)

    def param(self, name: str, dims: Sequence[int], dtype: DType | str) -> Value:
        """A named param whose contents the caller's weights give: they may come later, so nothing is folded."""
        spec = self.spec(dims, dtype)
        ssa = self._source(ParamOp, spec, self._names.fresh(name), name, from_file=True, required=True)
        return Value(spec, ssa=ssa, name=name)

    def _source(self, cls: type[Input | ParamOp], spec: TensorSpec, name: str, tensor: str, **params: Any) -> SSAValue:
        params = {"dims": spec.dims, "dtype": spec.dtype.tl, **params}
        op = cls.make([], params, name=name, tensors=[tensor], location=self._location())
        self.block.add_op(op)
        return op.results[0]

    def constant(self, array: np.ndarray | Sequence[Any], dtype: DType | str | None = None) -> Value:
        """A tensor with known contents, of the array's dtype or of `dtype`."""
        wanted = BY_NAME[dtype] if isinstance(dtype, str) else dtype
        data = np.array(array, wanted.np if wanted is not None else None)
        data.flags.writeable = False
        if data.dtype not in BY_NP:
            raise LightNetError(f"a constant of type {data.dtype} is not supported", self.loc, label="dtype")
        return Value(self.spec(data.shape, BY_NP[data.dtype]), load=lambda: data, is_fixed=True)

    def table(self, dims: Sequence[int], dtype: DType | str, make: Callable[[], np.ndarray]) -> Value:
        """A constant that `make` computes from sizes in the model, when it is needed: nothing is allocated here."""
        spec = self.spec(dims, dtype)
        if spec.open_dims:
            raise Undecided(spec.open_dims[0])
        self.bounded(spec.len, "a constant")

        def load() -> np.ndarray:
            array = np.asarray(make(), spec.dtype.np).reshape(spec.dims)
            array.flags.writeable = False
            return array

        return Value(spec, load=load, is_fixed=True)

    def bounded(self, count: int, what: str, most: int = MAX_MADE) -> int:
        """`count`, where an array of so many elements may be made while a model is read. Every size that comes out of a
        model passes here before NumPy sees it. Raises LightNetError, which names `what` the array is."""
        if not 0 <= count <= most:
            raise LightNetError(f"{what} of {count} elements is not possible: negative, or more than {most}", self.loc,
                                label="graph.bounded")  # fmt: skip
        return count

    def scalar(self, x: complex, dtype: DType | str) -> Value:
        """A known tensor of rank 0."""
        return self.constant(np.asarray(x), dtype)

    def spec(self, dims: Sequence[int], dtype: DType | str) -> TensorSpec:
        """A checked tensor type."""
        dtype = BY_NAME[dtype] if isinstance(dtype, str) else dtype
        dims = tuple(d if isinstance(d, Dim) else int(d) for d in dims)
        if len(dims) > MAX_RANK:
            raise LightNetError(f"a tensor of rank {len(dims)}: at most {MAX_RANK} is supported", self.loc,
                                label="graph.rank")  # fmt: skip
        most = [greatest(d) for d in dims]
        is_large = max(most, default=0) > MAX_INT or prod(most) * dtype.size > MAX_TENSOR_BYTES
        if is_large or any(least(d) < 0 for d in dims):
            raise LightNetError(f"a tensor of dims {list(dims)} and type {dtype} is not possible: a dim is negative or "
                                "more "
                                f"than {MAX_INT}, or all take more than {MAX_TENSOR_BYTES} bytes",
                                self.loc)  # fmt: skip
        return TensorSpec(dims, dtype)

    # -- ops

    def op(self, optype: str, *operands: Value, **params: ParamValue) -> Any:
        """The results of ``ln.<optype>``: a Value, or a tuple of them where the op has several results.

        Raises `ConstraintError` where the op's constraints do not hold. An op whose operands are all known is folded
        where nothing in it is larger than `MAX_FOLDED` elements, unless it is one of `NOT_FOLDED`. What has dims that
        the data decides is computed within its bounds (`counted.py`)."""
        if any(type(v) is not Value for v in operands) or any(map(is_counted, params.values())):
            return _counted().op(self, optype, operands, params)
        return self.plain(optype, *operands, **params)

    def plain(self, optype: str, *operands: Value, **params: ParamValue) -> Any:
        """`op` on the types of the operands alone, whatever the data decides of their dims."""
        budget.check(what=optype)
        cls = self.classes[optype]
        specs = [v.spec for v in operands]
        params = {k: v for k, v in params.items() if v is not None}
        self._check_ints(cls, params)
        try:
            results = check_op(cls, specs, params)
        except (LightNetError, Undecided) as e:
            if facts := learnt(cls, specs, params, e):
                raise LearntError(facts, f"{optype} gets {', '.join(map(str, specs))}") from None
            if isinstance(e, LightNetError):
                e.notes.append((None, f"{optype} gets {', '.join(map(str, specs)) or 'nothing'}"))
            raise
        inputs = _union([v.inputs for v in operands])
        if optype not in NOT_FOLDED and all(v.is_known for v in operands) and self._folds(specs, params, results):
            values = self._folded(cls, operands, params, results)
        else:
            values = self._emitted(cls, operands, params, results, inputs)
        return values[0] if len(values) == 1 and cls.schema.variadic_result is None else tuple(values)

    def _check_ints(self, cls: type[LnOp], params: Mapping[str, ParamValue]) -> None:
        """Refuse an integer that its parameter cannot hold: integers of `ln` saturate, which would be another
        network."""
        for name, value in params.items():
            param = cls.schema.by_name.get(name)
            if param is None or param.realtype != "int":
                continue
            for x in value if isinstance(value, tuple | list) else (value,):
                if isinstance(x, int) and not -MAX_INT - 1 <= x <= MAX_INT:
                    raise LightNetError(f"{x} as `{name}` is not possible: it does not fit into 32 bits", self.loc,
                                        label="graph.int")  # fmt: skip

    def _folds(
        self, specs: Sequence[TensorSpec], params: Mapping[str, ParamValue], results: Sequence[TensorSpec]
    ) -> bool:
        """Return whether an op on known operands is small enough to be computed now; counts what it will keep."""
        decide = (*params.values(), *(s.dims for s in results))
        if not all(is_known(p if isinstance(p, tuple | list) else (p,)) for p in decide):
            return False
        largest = max(s.len for s in (*specs, *results))
        if largest > (MAX_FOLDED if self._folded_bytes <= MAX_FOLDED_BYTES else ALWAYS_FOLDED):
            return False
        self._folded_bytes += sum(s.len * s.dtype.size for s in results)
        return True

    def _emitted(self, cls: type[LnOp], operands: Sequence[Value], params: Mapping[str, ParamValue],
                 results: Sequence[TensorSpec], inputs: frozenset[str]) -> list[Value]:  # fmt: skip
        name = self.unique(self._base)
        tensors = [name if len(results) == 1 else f"{name}:{i}" for i in range(len(results))]
        fields = cls.schema.operand_fields(len(operands))
        values = [self.ssa(v, f.role == "data") for v, f in zip(operands, fields)]
        op = cls.build_unchecked(values, params, results, name=name, tensors=tensors, location=self._location())
        self.block.add_op(op)
        return [Value(spec, ssa=r, inputs=inputs) for spec, r in zip(results, op.results)]

    def _folded(self, cls: type[LnOp], operands: Sequence[Value], params: Mapping[str, ParamValue],
                results: Sequence[TensorSpec]) -> list[Value]:  # fmt: skip
        stand_ins = Block(arg_types=[tensor_type(v.spec) for v in operands])
        op = cls.build_unchecked(stand_ins.args, params, results, location=self._location())
        arrays = op.evaluate([v.known for v in operands])
        op.erase()
        return [self._known(a, s) for a, s in zip(arrays, results)]

    def _known(self, array: np.ndarray, spec: TensorSpec) -> Value:
        array = np.array(array)  # the reference may have returned its operand, or a view of it
        array.flags.writeable = False
        return Value(spec, load=lambda: array, is_fixed=True)

    def ssa(self, value: Value, as_data: bool = True) -> SSAValue:
        """The SSA value of `value`. A known one becomes an `ln.constant` or an `ln.param` when it is first read: as
        data, or as weights, which a caller may replace by others that it has trained."""
        if value.ssa is None:
            value.ssa = self._param(value, as_data) if value.is_known else self.ssa(value.emitted(self), as_data)
        return value.ssa

    def _param(self, value: Value, as_data: bool) -> SSAValue:
        spec, is_constant = value.spec, value.is_fixed and as_data
        name = self._names.fresh(value.name or "const")
        most = MAX_KNOWN if is_constant else MAX_SPELT
        if spec.len <= most and (numbers := spelt(value.known)) is not None:
            return self._source(ConstantOp if is_constant else ParamOp, spec, name, name, data=numbers)
        load = value._load
        assert load is not None
        self.entries[name] = Entry(spec.dims, spec.dtype.np, lambda: _bytes(load()))
        return self._source(ParamOp, spec, name, name, from_file=True, required=True)

    # -- what does nothing where nothing changes

    def cast(self, value: Value, dtype: DType | str, mode: str = "wrap") -> Value:
        """`value` in another element type (`ln.cast`)."""
        dtype = BY_NAME[dtype] if isinstance(dtype, str) else dtype
        return value if value.dtype == dtype else self.op("cast", value, dtype=dtype.tl, mode=mode)

    def reshape(self, value: Value, dims: Sequence[int]) -> Value:
        """`value` under other dims (`ln.reshape`); of a large weight without an op."""
        if type(value) is not Value or any(is_counted(d) for d in dims):
            return _counted().reshape(self, value, dims)
        dims = tuple(d if isinstance(d, Dim) else int(d) for d in dims)
        return value if value.dims == dims else self.op("reshape", value, dims=self.spec(dims, value.dtype).dims)

    def transpose(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` with dims[i] = value.dims[axes[i]] (`ln.transpose`)."""
        axes = tuple(int(a) for a in axes)
        return value if axes == tuple(range(len(axes))) else self.op("transpose", value, axes=axes)

    # -- names and places

    @contextmanager
    def node(self, loc: SourceLoc | None, name: str, what: str = "") -> Iterator[None]:
        """Emit for a node of the source: its ops are called `name`, and an error without a place gets `loc`, and `what`
        (which says which node) in front."""
        before = self.loc, self._base
        self.loc, self._base = loc, name
        try:
            yield
        except LightNetError as e:
            if e.loc is None or (e.loc == loc and not e.message.startswith(what)):
                e.message = f"{what}: {e.message}" if what else e.message
                e.loc = loc
            raise
        finally:
            self.loc, self._base = before

    def set_name(self, value: Value, name: str) -> None:
        """Give a tensor the name it has in the source, if it has none of its own yet."""
        if value.name is not None:
            return
        value.name = name
        if value.ssa is not None and not value.is_known:  # a param's contents are found by the name that it has
            _set_tensor_name(value.ssa, name)

    def reserve(self, names: Iterable[str]) -> None:
        """Keep the names of inputs and weights for them: callers use these."""
        self._reserved.update(names)

    def unique(self, base: str) -> str:
        """`base`, or `base` with a number that makes it new, as the name of an op."""
        if base in self._reserved:
            base = f"{base}_op"
        return self._names.fresh(base)

    def _location(self) -> Any:
        return file_loc(self.loc) if self.loc is not None else None

    # -- the end

    def finish(self, outputs: Mapping[str, Value]) -> tuple[ModuleOp, WeightStore]:
        """The module, whose function returns `outputs` under their names, and the store with its weights."""
        returned = []
        taken: set[SSAValue] = set()
        counts: list[tuple[int, int, Any]] = []
        for i, (name, value) in enumerate(outputs.items()):
            ssa = self.ssa(value)
            counts += [(i, axis, size) for axis, size in getattr(value, "sizes", {}).items()]
            if ssa in taken or isinstance(ssa.owner, Input | ParamOp):
                ssa = self._forward(ssa)
            taken.add(ssa)
            _set_tensor_name(ssa, name)
            returned.append(ssa)
        counted = self._counts(list(outputs), counts, returned, taken) if counts else []
        last = func.ReturnOp(*returned)
        set_counts(last, counted)
        self.block.add_op(last)
        main = func.FuncOp("main", ((), [v.type for v in returned]), Region(self.block))
        return ModuleOp([main]), WeightStore(self.entries, self.source)

    def _counts(
        self, names: list[str], counts: list[tuple[int, int, Any]], returned: list[SSAValue], taken: set[SSAValue]
    ) -> list[Count]:
        """Return the true sizes of outputs behind them, each once; which of the dims each counts."""
        found, at = [], {}
        for output, axis, size in counts:
            if size not in at:
                ssa = self.ssa(_counted().dim_number(self, size))
                ssa = self._forward(ssa) if ssa in taken or isinstance(ssa.owner, Input | ParamOp) else ssa
                taken.add(ssa)
                _set_tensor_name(ssa, self._names.fresh(f"{names[output]}.count"))
                at[size] = len(returned)
                returned.append(ssa)
            found.append((output, axis, at[size]))
        return found

    def _forward(self, ssa: SSAValue) -> SSAValue:
        op = self.classes["forward"].make([ssa], name=self.unique("output"), location=self._location())
        self.block.add_op(op)
        return op.results[0]


def _counted() -> Any:
    """The module for what has dims that the data decides, imported by the first network that has any."""
    from lightnet.frontends import counted_moves

    return counted_moves


def _set_tensor_name(ssa: SSAValue, name: str) -> None:
    """Give the tensor of a value that name."""
    op = ssa.owner
    assert isinstance(op, LnOp)
    names = list(op.tensor_names)
    names[op.results.index(ssa)] = name
    set_tensor_names(op, names)


def _union(sets: Sequence[frozenset[str]]) -> frozenset[str]:
    """All names; the largest set itself where it has the others, so that a long chain of ops shares one."""
    largest = max(sets, key=len, default=frozenset())
    if all(s is largest or s <= largest for s in sets):
        return largest
    union = frozenset().union(*sets)
    return union if len(union) <= MAX_TRACED else frozenset()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
