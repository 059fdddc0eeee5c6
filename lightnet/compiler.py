"""From a model to an executable: the pipeline, the static tensors, and what the Python API calls.

The executable keeps the planned module (level 3) for what needs the IR: the plan's report, the text of each stage, and
evaluating the static tensors again when a param is fed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from lightnet.backends.interpreter.static import static_values
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input, ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.dialects.tile import HostOp
from lightnet.ir.collector import collector_paused
from lightnet.ir.context import make_context
from lightnet.ir.memory import MEMORY
from lightnet.ir.module import main_of
from lightnet.ir.op import places_of, tensor_names
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.registry import TARGETS
from lightnet.ir.types import spec_of
from lightnet.model import Model, Weights, load
from lightnet.passes import pipelines
from lightnet.runtime import artifact
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.program import HostCall, Instance, Program, Tensor, aligned, checked_array
from lightnet.runtime.weights import WeightStore, open_weights


@collector_paused()
def compile(model: Model | str | Path, target: str = "cpu", *, plan: str = "default", layout: str = "plain",
            outputs: Sequence[str] = (), weights: Weights = None, pipeline: str | None = None, compiled: bool = False,
            features: str | None = None, instrumentation: Sequence[Any] = ()) -> Executable:  # fmt: skip
    """Compile a model (or the network at a path) for a target.

    `plan` is ``default`` or ``upstream`` (which never fuses and plans memory as upstream does); `outputs` keeps further
    tensors by name; `pipeline` replaces the target's pass list; `weights` replaces the model's; `compiled` says that the
    model is planned already and is to be lowered only; `features` are those of the machine to compile for (the host's).
    Raises `LightNetError`: an unknown target, an op that the target cannot run, a network that does not fit in memory.
    """
    if not isinstance(model, Model):
        model = load(model)
    store = open_weights(weights) if weights is not None else model.weights
    TARGETS.get(target)
    module = model.module.clone()
    if outputs:
        keep_outputs(module, outputs)
    if compiled and memory_attr(module) is None:
        raise LightNetError(f"{model.source}: the network is not planned: compile it first")
    compiled = compiled or memory_attr(module) is not None
    features = host_features() if features is None else features
    spec = pipeline or pipelines.default(target, plan, planned=compiled)
    options = {"target": target, "mode": plan, "layout": layout, "features": features}
    return Executable(Compilation(module, parse_pipeline(spec, options), model.ctx, instrumentation), store, model.seed)


def keep_outputs(module: ModuleOp, names: Sequence[str]) -> None:
    """Return the tensors called `names`, too, after the outputs that there are."""
    main = main_of(module)
    last = main.body.block.last_op
    assert isinstance(last, func.ReturnOp)
    by_name = {n: r for op in main.body.block.ops for n, r in zip(tensor_names(op), op.results) if n}
    values = list(last.operands)
    for name in names:
        if name not in by_name:
            raise LightNetError(f"no tensor is called '{name}'")
        if by_name[name] not in values:
            values.append(by_name[name])
    last.operands = values
    main.update_function_type()


class Compilation:
    """A module on its way through a pipeline, and the stages it went through."""

    def __init__(self, module: ModuleOp, passes: Sequence[ModulePass], ctx: Any, instrumentation: Sequence[Any] = ()):
        self.source = module
        self.ctx = ctx or make_context()
        self.passes = list(passes)
        names = [p.name for p in self.passes]
        planned = max((i + 1 for i, n in enumerate(names) if n in ("bind", "plan", "check-plan")), default=0)
        self.planned = module.clone()
        run_pipeline(self.ctx, self.planned, self.passes[:planned], instrumentation)
        self.loops: ModuleOp | None = None
        if any(n.startswith("lower-") for n in names):
            self.loops = self.planned.clone()
            run_pipeline(self.ctx, self.loops, self.passes[planned:], instrumentation)

    def stage(self, name: str) -> ModuleOp:
        """The module after the pass called `name` (``source`` is before all)."""
        names = [p.name for p in self.passes]
        if name == "source":
            return self.source
        if name not in names:
            raise LightNetError(f"no pass '{name}' in this pipeline; there are: source, {', '.join(dict.fromkeys(names))}")
        module = self.source.clone()
        last = len(names) - 1 - names[::-1].index(name)
        run_pipeline(self.ctx, module, self.passes[: last + 1])
        return module


class Executable:
    """A compiled network: call it with a dict of arrays by input (or param) name; it returns a dict of arrays by output
    name. Every call starts from the loaded data. Calls from several threads are safe."""

    def __init__(self, compilation: Compilation, store: WeightStore | None, seed: int = 0):
        self._compilation = compilation
        self._store = store
        self._seed = seed
        self.missing: list[str] = []
        main = main_of(compilation.planned)
        self._sources = [op for op in main.walk() if isinstance(op, ParamOp | Input)]
        self._source_specs = {n: spec_of(op.dst.type) for op in self._sources if (n := op.tensor_names[0])}
        self._params = {n for op in self._sources if isinstance(op, ParamOp) and (n := op.tensor_names[0])}

    # -- calling

    def __call__(self, feeds: Mapping[str, Any] | None = None, *, stream: TextIO | None = None) -> dict[str, np.ndarray]:
        """Run the network on `feeds`; `print` ops write to `stream` (default: standard output)."""
        feeds = dict(feeds or {})
        params = {k: feeds.pop(k) for k in list(feeds) if k in self._params}
        self._check_names(feeds)
        if self._compilation.loops is None:
            return self._interpret(feeds | params, stream)
        static = self._static_image({k: self.checked(k, v) for k, v in params.items()}) if params else None
        return self.instance.call(feeds, static=static, stream=stream)

    run = __call__

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        known = {t.name for t in self.program.inputs} if self._compilation.loops is not None else None
        for name in feeds:
            if known is not None and name not in known:
                self._explain(name)

    def _explain(self, name: str) -> None:
        names = {n for op in self._compilation.source.walk() for n in tensor_names(op) if n}
        inputs = ", ".join(t.name for t in self.program.inputs) or "none"
        if name in names:
            raise LightNetError(f"tensor '{name}' cannot be fed: the program computes it, or has no use for it; "
                                f"inputs: {inputs}")  # fmt: skip
        raise LightNetError(f"no input or param is called '{name}'; inputs: {inputs}")

    def _interpret(self, feeds: Mapping[str, Any], stream: TextIO | None) -> dict[str, np.ndarray]:
        from lightnet.backends.interpreter import graph

        options = {"stream": stream} if stream is not None else {}
        return graph.run(self._compilation.planned, feeds, self._store, seed=self._seed, **options)

    def prepare(self) -> None:
        """Make machine code and load the data now, not at the first call."""
        if self._compilation.loops is not None:
            _ = self.instance

    @property
    def warnings(self) -> list[str]:
        """What was odd about the weights: names in the store that the network does not use, and the reverse."""
        used = {n for op in self._sources for n in op.tensor_names if n}
        store = self._store
        return [*store.warnings, *store.unused_warnings(used)] if store is not None else []

    def checked(self, name: str, value: Any) -> np.ndarray:
        """`value` as an array that the input or param `name` takes. Raises `LightNetError`."""
        spec = self._source_specs.get(name)
        if spec is None:
            self._explain(name)
        assert spec is not None
        return checked_array(name, value, spec.dims, spec.dtype)

    def loaded(self, name: str) -> np.ndarray:
        """What an input or param holds after loading."""
        for op in self._sources:
            if op.tensor_names[0] == name:
                return op.contents(self._store, self._seed)
        raise LightNetError(f"tensor '{name}' holds nothing that can be read: it is no input, param or output; keep it with "
                            "outputs=[...] at compile time")  # fmt: skip

    def nbytes(self, name: str) -> int:
        """Bytes of a tensor of the source network."""
        for op in self._compilation.source.walk():
            for tensor, value in zip(tensor_names(op), op.results):
                if tensor == name:
                    return spec_of(value.type).nbytes
        raise LightNetError(f"no tensor is called '{name}'")

    # -- the parts

    @cached_property
    def program(self) -> Program:
        """The machine code and its interface."""
        return build_program(self._compilation)

    @cached_property
    def native(self) -> Any:
        """The native module: LLVM IR, assembly, objects."""
        return native_module(self._compilation)

    @cached_property
    def instance(self) -> Instance:
        """The program linked into this process, with its static tensors."""
        defaults = {}
        for op in self._sources:
            if isinstance(op, Input) and op.parent_op() is main_of(self._compilation.planned):
                defaults[op.tensor_names[0] or op.op_name] = op.contents(self._store, self._seed)
        return Instance(self.program, self._static_image({}), defaults)

    def _static_image(self, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
        """The bytes of the static space: params and results of `ln.once`, evaluated by their references."""
        memory = self.program.memory
        space = "arena" if self.program.single_space else "static"
        image = aligned(max(memory.get(space, 0), 1))
        image[:] = 0
        for place, value in static_values(main_of(self._compilation.planned), feeds, self._store, self._seed):
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            image[place.offset.data : place.offset.data + raw.nbytes] = raw
        return image

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every input by name."""
        return {t.name: (t.dims, BY_NAME[t.dtype].np) for t in self.program.inputs}

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every output by name, in order."""
        return {t.name: (t.dims, BY_NAME[t.dtype].np) for t in self.program.outputs}

    @property
    def plan(self) -> Any:
        """The memory plan's report: `peak`, `bound`, `.text()`, `.json()`, `.svg()`, `.html()`."""
        from lightnet.passes.plan_report import plan_report

        return plan_report(self._compilation.planned)

    @property
    def planned(self) -> ModuleOp:
        """The planned module (level 3)."""
        return self._compilation.planned

    def ir(self, stage: str = "plan") -> str:
        """The IR after the pass called `stage`; ``source`` is the network as it came in."""
        return str(self._compilation.stage(stage))

    @property
    def llvm_ir(self) -> str:
        """The LLVM IR text of every module of the program."""
        return self.native.llvm_ir

    @property
    def assembly(self) -> str:
        """The machine code in assembly."""
        return self.native.assembly

    # -- saving

    def save(self, path: str | Path) -> None:
        """Write the executable to one file, which `lightnet.load_executable` runs without compiling."""
        arrays = {f"default:{k}": v for k, v in self.instance.defaults.items()}
        arrays["static"] = self.instance.static
        artifact.save(path, self.program, arrays, {"planned": str(self._compilation.planned)})


def build_program(compilation: Compilation) -> Program:
    """The program of a lowered module: machine code, memory sizes and named tensors."""
    planned, loops = compilation.planned, compilation.loops
    assert loops is not None
    main = main_of(planned)
    native = native_module(compilation)
    memory = memory_of(loops)  # lowering may add workspace to what was planned
    sources = list(main.body.block.ops)
    inputs = tuple(_tensor(op.tensor_names[0] or op.op_name or f"input{i}", op, 0)
                   for i, op in enumerate(o for o in sources if isinstance(o, Input)))  # fmt: skip
    names = {n for op in planned.walk() for n in tensor_names(op) if n}
    fused = sorted({n for op in compilation.source.walk() for n in tensor_names(op) if n} - names)
    params = tuple(op.tensor_names[0] or "" for op in main.walk() if isinstance(op, ParamOp))
    single = "static" not in memory and any(isinstance(op, ParamOp | OnceOp) for op in sources)
    return Program(tuple(native.objects), memory, inputs, _outputs(main), params, tuple(_hosts(loops)),
                   native.machine.cpu, native.machine.features, tuple(fused), single)  # fmt: skip


def native_module(compilation: Compilation) -> Any:
    """Machine code for the loops of a compilation, made once."""
    from lightnet.backends.llvm.jit import compile_module

    if not hasattr(compilation, "_native"):
        compilation._native = compile_module(compilation.loops)  # pyright: ignore
    return compilation._native  # pyright: ignore


def memory_attr(module: ModuleOp) -> DictionaryAttr | None:
    """The memory sizes of a module, None before `plan`."""
    attr = module.attributes.get(MEMORY)
    return attr if isinstance(attr, DictionaryAttr) else None


def host_features() -> str:
    """The feature of this machine that decides how kernels are shaped."""
    from lightnet.backends.llvm.jit import Machine

    return {16: "avx512", 8: "avx2"}.get(Machine.host().vectors.width, "neon")


def memory_of(module: ModuleOp) -> dict[str, int]:
    """Bytes of each memory space of a planned module."""
    attr = memory_attr(module)
    if attr is None:
        raise LightNetError("the module is not planned: it has no ln.memory")
    return {k: v.value.data for k, v in attr.data.items() if isinstance(v, IntegerAttr)}  # pyright: ignore


def _tensor(name: str, op: Any, index: int) -> Tensor:
    place, spec = places_of(op)[index], spec_of(op.results[index].type)
    return Tensor(name, spec.dims, spec.dtype.name, place.space.data, place.offset.data)


def _outputs(main: func.FuncOp) -> tuple[Tensor, ...]:
    last = main.body.block.last_op
    assert last is not None
    out = []
    for i, value in enumerate(last.operands):
        op = value.owner
        out.append(_tensor(tensor_names(op)[value.index] or f"output{i}", op, value.index))  # pyright: ignore
    return tuple(out)


def _hosts(loops: ModuleOp) -> list[HostCall]:
    calls = []
    for op in main_of(loops).body.block.ops:
        if isinstance(op, HostOp):
            a = {k: v.data if isinstance(v, StringAttr) else v for k, v in op.attributes.items()}
            dims = tuple(d.value.data for d in a["dims"].data)
            calls.append(HostCall(op.service.data, a["msg"], dims, a["dtype"], a.get("file", "")))
    return calls


