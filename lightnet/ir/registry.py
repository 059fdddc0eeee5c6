"""The registries: passes, targets, dialects, front ends, op families and patterns; one table each, imported on demand.

A row is ``name -> "module:Attribute"``, so that listing costs nothing and grep finds everything. Plugins add rows with
`Table.add`; a clash is an error that names both sides. What an installed package brings (`lightnet/plugins`) is looked
for when a table is listed, or lacks a name. Rows may name what stands in a package beside this one
(`lightnet_descriptions`); without it no list has them, and who asks is told what to install. Imports `resolving`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError, near
from lightnet.ir.resolving import is_beside, is_installed, package_of, resolve, resolve_beside

if TYPE_CHECKING:
    from xdsl.pattern_rewriter import RewritePattern

    from lightnet.ir.decorated import FunctionTable


def where_from(row: Any) -> str:
    """The source of the object of a row, as ``module:Attribute``; of a value that is no class, its module alone."""
    if isinstance(row, str):
        return row
    if isinstance(row, tuple | list) and row:  # a family: the ops of one module
        return where_from(row[0]).partition(":")[0]
    name = getattr(row, "__name__", None)
    return f"{row.__module__}:{name}" if name else str(getattr(row, "__module__", ""))


def described(row: Any, source: str | None) -> str:
    """One side of a clash: where a row comes from, and the file or package that added it, if that is none of ours.

    A class that no Python file defines has its place in `declared_at` (a description's op, a PDL pattern)."""
    if isinstance(row, type) and (place := vars(row).get("declared_at")) is not None:
        return str(place)
    where = where_from(row)
    if source is None:
        return where
    return f"{where} ({source})" if isinstance(row, str | type) else source


def _value(row: Any) -> Any:
    """The object that a row stands for, if that is imported; else the row."""
    if not isinstance(row, str):
        return row
    module, _, attribute = row.partition(":")
    return getattr(sys.modules.get(module), attribute or "__name__", row)


#: Every table, in the order they were made.
_TABLES: list[Table] = []
#: The file or package that is adding rows now, for clashes; None: this project.
_SOURCE: ContextVar[str | None] = ContextVar("source", default=None)


class Table:
    """One registry: names to objects, or to ``module:Attribute`` strings that are imported when asked for.

    `read` makes what a row stands for of what it names. `version` grows with each change, so that what is derived from
    a table may be kept.
    """

    def __init__(self, kind: str, rows: dict[str, str], read: Callable[[Any], Any] = lambda value: value):
        self.kind = kind
        self.read = read
        self.version = 0
        self._rows: dict[str, Any] = dict(rows)
        self._values: dict[str, Any] = {}  # what rows stand for, once it was asked for
        self._sources: dict[str, str | None] = {}
        self._beside = {name: package_of(row) for name, row in rows.items() if is_beside(row)}
        _TABLES.append(self)

    def __iter__(self) -> Iterator[str]:
        load_installed()
        return iter(sorted(filter(self._is_here, self._rows)))

    def __contains__(self, name: str) -> bool:
        if name not in self._rows:
            load_installed()
        return name in self._rows and self._is_here(name)

    def _is_here(self, name: str) -> bool:
        """Return whether the package of a row is installed."""
        return name not in self._beside or is_installed(self._beside[name])

    def in_order(self) -> Iterator[Any]:
        """The objects, in the order in which they were added."""
        load_installed()
        return map(self.get, filter(self._is_here, list(self._rows)))

    def imported(self, beside: bool = True) -> None:
        """Import what every row names: families of functions that decorators register; with `beside`, those of the
        packages beside this one, too."""
        for name in self:
            if beside or name not in self._beside:
                self.get(name)

    def has_row(self, name: str) -> bool:
        """Return whether there is a row `name`, be it of a package that is not here."""
        return name in self._rows

    def where(self, name: str) -> str:
        """The source of `name`, for listings."""
        return where_from(self._rows[name])

    def is_added(self, name: str) -> bool:
        """Return whether a plugin added the row `name`."""
        return self._sources.get(name) is not None

    def origin(self, name: str) -> str:
        """The source of `name`, for errors: with the file that added it."""
        return described(self._rows[name], self._sources.get(name))

    def origin_of(self, name: str, member: type) -> str:
        """The source of one of the objects of the row `name` (a family), for errors."""
        return described(member, self._sources.get(name))

    def holds(self, name: str, value: Any) -> bool:
        """Return whether the row `name` is there and stands for `value`."""
        return name in self._rows and _value(self._rows[name]) is _value(value)

    def add(self, name: str, row: Any) -> None:
        """Add a row; `row` is an object or a ``module:Attribute`` string. Raises LightNetError for a name that is
        taken."""
        if self.holds(name, row):
            return
        if name in self._rows:
            both = f"by {self.origin(name)} and by {described(row, _SOURCE.get())}"
            raise LightNetError(f"{self.kind} '{name}' is defined twice: {both}")
        self._rows[name] = row
        self._sources[name] = _SOURCE.get()
        self.version += 1

    def keep(self, names: set[str]) -> None:
        """Remove every row but those of `names`."""
        self._rows = {name: row for name, row in self._rows.items() if name in names}
        self._values = {name: value for name, value in self._values.items() if name in names}
        self.version += 1

    def get(self, name: str) -> Any:
        """The object called `name`; an unknown name is an error that lists the names there are."""
        if name not in self._rows:
            load_installed(name)
        if name not in self._rows:
            raise LightNetError(f"unknown {self.kind} '{name}'; there are: {', '.join(self)}")
        if name not in self._values:
            row = self._rows[name]
            self._values[name] = self.read(self._resolved(name, row)) if isinstance(row, str) else row
        return self._values[name]

    def _resolved(self, name: str, row: str) -> Any:
        return resolve_beside(row, f"{self.kind} '{name}'") if name in self._beside else resolve(row)


PASSES = Table("pass", {
    "bind": "lightnet.passes.bind:BindPass", "instantiate": "lightnet.passes.instantiate:InstantiatePass",
    "fold": "lightnet.passes.fold:FoldPass", "check-indices": "lightnet.passes.check_indices:CheckIndicesPass",
    "ln-cse": "lightnet.passes.cse:CsePass", "ln-dce": "lightnet.passes.dce:DcePass",
    "decompose": "lightnet.passes.decompose:DecomposePass", "cascade": "lightnet.passes.cascade:CascadePass",
    "trim-windows": "lightnet.passes.trim_windows:TrimWindowsPass",
    "fold-batchnorm": "lightnet.passes.fold_batchnorm:FoldBatchnormPass",
    "move-scales": "lightnet.passes.move_scales:MoveScalesPass",
    "integers": "lightnet.passes.integers:IntegersPass", "recognize": "lightnet.passes.recognize:RecognizePass",
    "simplify": "lightnet.passes.simplify:SimplifyPass", "precision": "lightnet.passes.precision:PrecisionPass",
    "short-products": "lightnet.passes.short_products:ShortProductsPass",
    "expand": "lightnet.passes.expand:ExpandPass", "combine": "lightnet.passes.combine:CombinePass",
    "defuse": "lightnet.passes.defuse:DefusePass", "subgraph": "lightnet.passes.subgraph:SubgraphPass",
    "layout": "lightnet.passes.layout:LayoutPass", "grow-caches": "lightnet.passes.grow_caches:GrowCachesPass",
    "bands": "lightnet.passes.bands:BandsPass", "choose": "lightnet.passes.choose:ChoosePass",
    "hoist": "lightnet.passes.hoist:HoistPass", "schedule": "lightnet.passes.schedule:SchedulePass",
    "pack": "lightnet.passes.pack:PackPass", "preprocess": "lightnet.passes.preprocess:PreprocessPass",
    "plan": "lightnet.passes.plan:PlanPass", "check-plan": "lightnet.passes.check_plan:CheckPlanPass",
    "lower-cpu": "lightnet.passes.lower_cpu:LowerCpuPass", "lower-cuda": "lightnet.passes.lower_cuda:LowerCudaPass",
    "simt-to-cpu": "lightnet_simt.simt_to_cpu:SimtToCpuPass", "rewrite": "lightnet_descriptions.rewrite:RewritePass",
})  # fmt: skip

TARGETS = Table("target", {
    "none": "lightnet.backends.interpreter.target:NONE",
    "cpu": "lightnet.backends.cpu.target:CPU",
    "cuda": "lightnet.backends.cuda.target:CUDA",
    "cudnn": "lightnet_descriptions.cudnn.target:CUDNN",
    "tensorrt": "lightnet_descriptions.tensorrt.target:TENSORRT",
    "dpu": "lightnet_descriptions.dpu.target:DPU",
})  # fmt: skip

#: The runtimes of targets that have code, as `Target.runtime` has them too: what asks for options, or loads code, does
#: not import a whole target for that.
RUNTIMES = Table("runtime", {
    "none": "lightnet.ir.runtime:INTERPRETED",
    "cpu": "lightnet.backends.cpu.runtime:RUNTIME",
    "cuda": "lightnet.backends.cuda.runtime:RUNTIME",
})  # fmt: skip

#: The kernel op of each target that has one.
KERNELS = Table("kernel op", {
    "cpu": "lightnet.dialects.cpu:CpuKernelOp",
    "cuda": "lightnet.dialects.cuda:CudaKernelOp",
    "cudnn": "lightnet_descriptions.arches:CudnnKernelOp",
    "tensorrt": "lightnet_descriptions.arches:TensorrtKernelOp",
    "dpu": "lightnet_descriptions.arches:DpuKernelOp",
})  # fmt: skip

#: The dialects that a `.mlir` file may use.
DIALECTS = Table("dialect", {
    "builtin": "xdsl.dialects.builtin:Builtin",
    "func": "xdsl.dialects.func:Func",
    "arith": "xdsl.dialects.arith:Arith",
    "math": "xdsl.dialects.math:Math",
    "scf": "xdsl.dialects.scf:Scf",
    "cf": "xdsl.dialects.cf:Cf",
    "memref": "xdsl.dialects.memref:MemRef",
    "vector": "xdsl.dialects.vector:Vector",
    "tensor": "xdsl.dialects.tensor:Tensor",
    "pdl": "xdsl.dialects.pdl:PDL",
    "ln": "lightnet.dialects.ln.dialect:Ln",
    "cpu": "lightnet.dialects.cpu:Cpu",
    "cuda": "lightnet.dialects.cuda:Cuda",
    "cudnn": "lightnet_descriptions.arches:Cudnn",
    "tensorrt": "lightnet_descriptions.arches:Tensorrt",
    "dpu": "lightnet_descriptions.arches:Dpu",
    "tile": "lightnet.dialects.tile:Tile",
})  # fmt: skip

#: Generators of the CPU's kernels; of two that cost the same, the first one is chosen. A row is called as the choice
#: `alg` that names its generator, but those on register tiles, which share one with that of convolutions on maps.
GENERATORS = Table("generator", {
    "direct": "lightnet.backends.cpu.blocked.conv:DIRECT", "dot": "lightnet.backends.cpu.blocked.dot:DOT",
    "dots": "lightnet.backends.cpu.blocked.dot_dense:DOTS", "pairs": "lightnet.backends.cpu.short_gemm:PAIRS",
    "winograd4": "lightnet.backends.cpu.blocked.winograd:WINOGRAD4",
    "winograd2": "lightnet.backends.cpu.blocked.winograd:WINOGRAD2",
    "bands": "lightnet.backends.cpu.blocked.bands:BANDS",
    "deconv": "lightnet.backends.cpu.blocked.deconv:DECONV",
    "first": "lightnet.backends.cpu.blocked.first:FIRST",
    "first-pool": "lightnet.backends.cpu.blocked.first_pool:FIRST_POOL",
    "depthwise": "lightnet.backends.cpu.blocked.depthwise:DEPTHWISE",
    "pool": "lightnet.backends.cpu.blocked.pool:POOL",
    "view": "lightnet.backends.cpu.blocked.channels:VIEWS",
    "channels": "lightnet.backends.cpu.blocked.channels:CHANNELS",
    "resample": "lightnet.backends.cpu.blocked.maps:RESAMPLE",
    "map": "lightnet.backends.cpu.blocked.maps:MAPS",
    "reorder": "lightnet.backends.cpu.blocked.reorder:REORDER",
    "nhwc": "lightnet.backends.cpu.blocked.nhwc:NHWC",
    "packed": "lightnet.backends.cpu.blocked.dense:DENSE",
    "windows": "lightnet.backends.cpu.plain:WINDOWS",
    "products": "lightnet.backends.cpu.plain:PRODUCTS",
    "open-windows": "lightnet.backends.cpu.plain:OPEN_WINDOWS",
    "open-products": "lightnet.backends.cpu.plain:OPEN_PRODUCTS",
    "loops": "lightnet.backends.cpu.plain:LOOPS",
})  # fmt: skip

#: Generators of kernels of threads by the choice `alg` that names them (`backends/cuda/base.py`); of two that cost the
#: same, the first one is chosen.
CUDA_GENERATORS = Table("generator of cuda", {
    "simt": "lightnet.backends.cuda.gemm.generator:SIMT",
    "mma": "lightnet.backends.cuda.gemm.generator:MMA",
    "wgmma": "lightnet.backends.cuda.gemm.wgmma:WGMMA",
    "join": "lightnet.backends.cuda.gemm.join:JOIN",
    "join-mma": "lightnet.backends.cuda.gemm.join:JOIN_MMA",
    "join-wgmma": "lightnet.backends.cuda.gemm.join:JOIN_WGMMA",
    "attention": "lightnet.backends.cuda.attention.generator:ATTENTION",
    "depthwise": "lightnet.backends.cuda.depthwise:DEPTHWISE",
    "reorder": "lightnet.backends.cuda.reorder:REORDER",
    "rank": "lightnet.backends.cuda.rank:RANK",
    "recurrent": "lightnet.backends.cuda.recurrent:RECURRENT",
    "loops": "lightnet.backends.cuda.loops:LOOPS",
    "rows": "lightnet.backends.cuda.rows.generator:ROWS",
})  # fmt: skip

#: Front ends by file suffix (`frontends/loading.py` says what they take).
FRONTENDS = Table("front end", {
    ".net": "lightnet.frontends.loading:IL",
    ".json": "lightnet.frontends.loading:JSON",
    ".mlir": "lightnet.frontends.loading:MLIR",
    ".onnx": "lightnet.frontends.loading:ONNX",
})  # fmt: skip

#: Readers of files to load that are data, by suffix: functions of the path, and whether what it has may replace what
#: there is (`plugins/data.py`).
READERS = Table("reader of files to load", {
    ".json": "lightnet_descriptions:load_description_file",
    ".op": "lightnet_descriptions:load_description_file",
    ".mlir": "lightnet_descriptions:load_pattern_file",
})  # fmt: skip

#: Families of handlers of ONNX ops: importing a module registers its handlers (`frontends/onnx/node.py`).
ONNX_OPS = Table("family of ONNX ops", {
    name: f"lightnet.frontends.onnx.ops.{name}"
    for name in ("elementwise", "quantized", "shape", "slicing", "indexing", "reduce", "nn", "norm", "attention",
                 "resize", "sampling", "random", "recurrent", "control", "signal", "text", "training", "sequence")
} | {name: f"lightnet_ml.{name}" for name in ("features", "scores", "trees", "vectors")}
  | {name: f"lightnet_ort.{name}" for name in ("attentions", "blocks", "fusions", "integers")})  # fmt: skip

#: Families of exporters to ONNX: importing a module registers its exporters (`lightnet_export/onnx/graph.py`).
ONNX_EXPORTERS = Table("family of ONNX exporters", {
    name: f"lightnet_export.onnx.{name}"
    for name in ("move", "elementwise", "arith", "reduce", "indexing", "counted", "window", "norm", "recurrent",
                 "sampling")
})  # fmt: skip

#: Families of handlers of NNVM's and MXNet's ops (`lightnet_nnvm/node.py`).
NNVM_OPS = Table("family of NNVM ops", {
    name: f"lightnet_nnvm.ops.{name}"
    for name in ("convolution", "norm", "elementwise", "reduce", "shape", "slicing", "constant", "indexing", "resize",
                 "sampling", "recurrent", "detection", "multibox", "proposal")
})  # fmt: skip

#: Families of exporters to NNVM (`lightnet_export/nnvm/calls.py`).
NNVM_EXPORTERS = Table("family of NNVM exporters", {
    name: f"lightnet_export.nnvm.{name}" for name in ("layers", "ops")
})  # fmt: skip


def ops_of(family: Any) -> tuple[type, ...]:
    """The ops of a family: a tuple of them, or those that a module defines, in their order there."""
    if isinstance(family, tuple):
        return family
    return tuple(
        v
        for v in vars(family).values()
        if isinstance(v, type) and v.__module__ == family.__name__ and "schema" in vars(v)
    )


#: Op families of the ln dialect.
FAMILIES = Table("op family", {
    name: f"lightnet.dialects.ln.{name}"
    for name in ("source", "conv", "pool", "norm", "elementwise", "move", "rearrange", "indexing", "scatter", "scan",
                 "reduce", "einsum", "resize", "sort", "detection", "effect", "boxes", "counted", "matmul", "integer",
                 "conv_nd", "pool_nd", "recurrent", "spatial", "regions", "arith", "unary", "activation", "tree")
} | {"structure": "lightnet.dialects.ln.structure:OPS"}, ops_of)  # fmt: skip

#: Ops that come with a target, by optype: read when a network or a description names one, so that other compilations do
#: not pay for them, and no list of the op table's has them.
ARCH_OPS = Table("op of an arch", {
    "bn2scale_wts_cpu": "lightnet_descriptions.tensorrt.ops:BN2SCALE_WTS_CPU",
    "scale_tensorrt": "lightnet_descriptions.tensorrt.ops:SCALE_TENSORRT",
    "dot_product_cuda": "lightnet_descriptions.tensorrt.ops:DOT_PRODUCT_CUDA",
    "ldmr": "lightnet_descriptions.dpu.ops:LDMR",
    "svmr": "lightnet_descriptions.dpu.ops:SVMR",
    "conv1x1_dpu": "lightnet_descriptions.dpu.ops:CONV1X1",
    "conv3x3_dpu": "lightnet_descriptions.dpu.ops:CONV3X3",
})  # fmt: skip

#: Our passes that take patterns; a pass out of a file may ask for its own (`patterns`).
PATTERN_PASSES = ("simplify", "recognize", "expand", "subgraph", "combine")
#: Families of rules of `recognize`: descriptions.
RECOGNIZERS = Table("family of rules", {name: f"lightnet_descriptions.recognize:{name.upper()}"
                                        for name in ("norms", "activations")})  # fmt: skip
#: Patterns by (pass, target): what `expand`, `combine` … apply, beside what a target lists itself; and who added them.
_PATTERNS: dict[tuple[str, str], list[type[RewritePattern]]] = {}
_PATTERN_SOURCES: dict[type, str | None] = {}


def pattern(pass_name: str, target: str = "*") -> Callable[[type], type]:
    """Class decorator: add a rewrite pattern to one of our passes, for one target or for all (``*``).

    Raises LightNetError where the pass has a pattern of that name already, and for what is no pattern.
    """

    check_names("@pattern", (pass_name, target), 'a pass, then a target, as in @pattern("expand", "cpu")')

    def register(cls: type) -> type:
        if not isinstance(cls, type) or not callable(getattr(cls, "match_and_rewrite", None)):
            name = getattr(cls, "__name__", cls)
            raise LightNetError(
                f"@pattern takes a RewritePattern, or what @rule makes of a function, and '{name}' is neither"
            )
        check_pattern(pass_name, cls, (p for name, at, p in all_patterns() if name == pass_name and meet(at, target)))
        _PATTERNS.setdefault((pass_name, target), []).append(cls)
        _PATTERN_SOURCES[cls] = _SOURCE.get()
        return cls

    return register


def check_names(decorator: str, names: tuple[Any, ...], what: str) -> None:
    """Raise LightNetError where a decorator is given no names, or what is none (the function, where it has no
    parentheses); `what` says what it takes."""
    if not names or not all(isinstance(name, str) and name for name in names):
        given = ", ".join(getattr(name, "__name__", repr(name)) for name in names) or "nothing"
        raise LightNetError(f"{decorator} takes the name of {what}, and got {given}")


def misplaced(pass_name: str, target: str) -> str | None:
    """The reason why no pattern is ever applied by this pass for this target; None where one may be."""
    if pass_name not in PASSES:
        return f"unknown pass '{pass_name}'{near(pass_name, PASSES)}"
    if str(PASSES.where(pass_name)).startswith("lightnet.passes.") and pass_name not in PATTERN_PASSES:
        return f"pass '{pass_name}' takes no patterns; those of ours that do are {', '.join(PATTERN_PASSES)}"
    if target != "*" and target not in TARGETS:
        return f"unknown target '{target}'; there are: {', '.join(TARGETS)}"
    return None


def meet(target: str, other: str) -> bool:
    """Return whether patterns for these targets are ever applied together."""
    return target == other or "*" in (target, other)


def check_pattern(pass_name: str, new: type, others: Iterable[type]) -> None:
    """Raise LightNetError where another pattern of the pass has the name of `new`: traces, limits and checks name
    them."""
    from lightnet.ir.rewrites import pattern_name

    name = pattern_name(new)
    for known in others:
        if known is not new and pattern_name(known) == name:
            both = f"by {described(known, _PATTERN_SOURCES.get(known))} and by " + described(
                new, _PATTERN_SOURCES.get(new, _SOURCE.get())
            )
            raise LightNetError(f"pattern '{name}' of pass '{pass_name}' is defined twice: {both}")


def patterns(pass_name: str, target: str) -> list[type[RewritePattern]]:
    """The registered patterns of a pass for a target, in order of registration."""
    load_installed()
    return [*_PATTERNS.get((pass_name, target), []), *_PATTERNS.get((pass_name, "*"), [])]


def all_patterns() -> list[tuple[str, str, type[RewritePattern]]]:
    """(pass, target, class) of every registered pattern."""
    return [(name, target, cls) for (name, target), rows in _PATTERNS.items() for cls in rows]


def runtime_of(target: str) -> Any:
    """The runtime of a target. Raises `LightNetError` for an unknown one."""
    if target in RUNTIMES._rows:
        return RUNTIMES.get(target)
    return TARGETS.get(target).own_runtime


# -- plugins ---------------------------------------------------------------------------------------------------------


def is_own(module: str) -> bool:
    """Return whether a module is of this package, or of one beside it that a table of ours names."""
    package = package_of(module)
    return package == "lightnet" or any(package in table._beside.values() for table in _TABLES)


def source() -> str | None:
    """The file or package that is adding rows now; None: this project."""
    return _SOURCE.get()


@contextmanager
def adding(source: str) -> Iterator[None]:
    """Rows that are added inside of the block come from `source`, a file or a package, as errors say it."""
    token = _SOURCE.set(source)
    try:
        yield
    finally:
        _SOURCE.reset(token)


#: The tables that decorators fill (`decorated.py`), in the order they were made.
FUNCTION_TABLES: list[FunctionTable] = []


def count_of_additions() -> int:
    """A number that grows with every row, pattern, handler and format that is added."""
    from lightnet.runtime.formats import CODE_FORMATS

    functions = sum(len(table.added) for table in FUNCTION_TABLES)
    return sum(table.version for table in _TABLES) + len(all_patterns()) + functions + len(CODE_FORMATS)


def checkpoint() -> Callable[[], None]:
    """A function that takes back every row, pattern, handler and format that is added from now on."""
    from lightnet.runtime import formats

    functions, known_formats = [set(table.added) for table in FUNCTION_TABLES], dict(formats.CODE_FORMATS)
    rows = [(table, set(table._rows)) for table in _TABLES]
    known = {key: list(classes) for key, classes in _PATTERNS.items()}

    def restore() -> None:
        for table, names in rows:
            if not names.issuperset(table._rows):
                table.keep(names)
        _PATTERNS.clear()
        _PATTERNS.update(known)
        for k, handlers in enumerate(FUNCTION_TABLES):  # one that was made meanwhile had none
            handlers.keep(functions[k] if k < len(functions) else set())
        formats.CODE_FORMATS.clear()
        formats.CODE_FORMATS.update(known_formats)

    return restore


def load_installed(name: str | None = None) -> None:
    """Add, once a process, what packages bring. A plugin `name` that cannot be loaded is an error, others warn."""
    from lightnet.plugins import installed

    installed.load_entry_points(name)
