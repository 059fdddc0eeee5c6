"""From a model to an executable: the pipeline, its stages, and the program that a lowered module makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass

from lightnet.backends.cuda.arch import arch_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import HostOp
from lightnet.dialects.ln.source import Create, Input, ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.executable import Executable
from lightnet.frontends.loading import OpenError
from lightnet.ir import budget as budgets
from lightnet.ir.collector import collector_paused
from lightnet.ir.context import make_context
from lightnet.ir.counts import counts_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import is_upstream, memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp, name_of, tensor_names
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.rewrites import disabling
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of
from lightnet.ir.views import moves_left, place_of
from lightnet.model import Model, Weights, combined, load, loads, open_store
from lightnet.passes import pipelines
from lightnet.passes.check_plan import check_plan
from lightnet.passes.levels import NothingToDo, not_disabled
from lightnet.runtime.machine import Opened
from lightnet.runtime.program import CUDA_TRIPLE, HostCall, Program, Tensor, unknown
from lightnet.runtime.threads import SHAPED, bound_of, is_said, number_of, threads_of
from lightnet.specialize import SpecializingExecutable
from lightnet.tying import tie

__all__ = ["Compilation", "Executable", "build_program", "compile", "native_module"]

#: Set in the environment, it has the loops (level 4) of every compilation verified, which `ln-opt` always does.
VERIFY = "LIGHTNET_VERIFY"
PLANS = ("default", "upstream")


@collector_paused()
@budgets.within
def compile(
    model: Model | str | Path | bytes | OpenError | Any,
    target: str = "cpu",
    *,
    plan: str = "default",
    layout: str | None = None,
    precision: str = "f32",
    outputs: Sequence[str] = (),
    weights: Weights = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    pipeline: str | None = None,
    disable: Sequence[str] = (),
    compiled: bool = False,
    features: str | None = None,
    exact: bool = False,
    weight_memory: int | None = None,
    threads: int | str | None = None,
    cpu: str = "host",
    triple: str | None = None,
    arch: str | None = None,
    emulate: bool = False,
    on_cpu: bool = False,
    seed: int | str | None = None,
    check_indices: bool = False,
    budget: float | None = None,
    instrumentation: Sequence[Any] = (),
) -> Executable | SpecializingExecutable:
    """Compile a model (or the network at a path, the bytes of an ONNX model, what reading an open one raised) for a target.

    A network at a path whose shapes are open, because an ONNX model leaves dims of its inputs open or computes shapes from their
    values, becomes a `SpecializingExecutable`, which is compiled when it is called.

    `plan` is ``default`` or ``upstream`` (which never fuses and plans memory as upstream does); `outputs` keeps further
    tensors by name; `pipeline` replaces the target's pass list (``@cpu-bands``, or passes, as `ln-opt` takes them), `disable` switches passes and patterns off
    by name; `weights` replaces the model's; `shapes` are for reading a path (`lightnet.load`); `compiled` says that the
    model is planned already and is to be lowered only; `cpu` is the processor to compile for, with the
    target `triple` of its system: ``host``, or a name of `backends.llvm.machines` (``x86-64-v3``, ``generic-aarch64``), whose code can be
    saved and emitted and need not run here; `features` overrides what decides the shape of kernels (``avx512``, ``avx2``, ``neon``).
    `layout` is one of the target's (cpu: ``blocked``, the default, and ``plain``); `precision` is what a network of f32 computes in: ``f32``; ``f16`` or
    ``bf16``, where its ops allow it (the pass `precision`), inputs and outputs keeping their types; for target cuda also ``tf32``, to which the factors
    of products are rounded. `exact` refuses algorithms that sum something else than an op's
    definition does (Winograd's); `weight_memory` is how many bytes transformed weights (Winograd's) may take beyond the plain ones
    (default: 0.3 times those of all weights; with less, they are transformed at run time, which takes longer). `threads` is how many threads a call may use (unless given that of the environment variable
    LIGHTNET_THREADS, else, as for ``"any"``, whatever number: a call takes as many as there are processors where it runs); results do not depend on it. For target cuda, `arch` is the architecture of the PTX (``sm_80``, the default,
    which later ones run, too; ``sm_90``; ``native``: the best for this machine's device, of which only that has all instructions), and `emulate` runs it in the PTX interpreter instead of on a device, of which one is needed
    when the network is first called; `on_cpu` turns its kernels into loops, which run on this processor (what they compute, at any size; whether
    their threads wait for each other, only the PTX interpreter says). `seed` is `lightnet.load`'s, of a network that is read here.
    With `check_indices`, a call raises for an index outside of its axis, which is clamped otherwise. `budget` is how many seconds of this thread's processor
    time compiling may take, by which it also bounds the size of each kernel's code (`ir/budget.py`; generous unless given).
    Raises `LightNetError`: an unknown target, an op that the target cannot run, a network that does not fit in memory, ``native`` without a device, a
    budget that is spent (`compile.budget` and `compile.code`: it names the pass and the op).
    """
    if not isinstance(model, Model):
        try:
            model = _read(model, shapes, seed)
        except OpenError as opened:
            if shapes:
                raise  # some are still open
            again = {"plan": plan, "layout": layout, "precision": precision, "outputs": outputs, "weights": weights, "pipeline": pipeline, "disable": disable,
                       "features": features, "exact": exact, "weight_memory": weight_memory, "threads": threads, "cpu": cpu, "triple": triple,
                       "arch": arch, "emulate": emulate, "on_cpu": on_cpu, "check_indices": check_indices, "budget": budget, "instrumentation": instrumentation}  # fmt: skip
            return SpecializingExecutable(opened, lambda model: compile(model, target, **again), target, again, model)
    elif shapes:
        raise LightNetError("shapes are given to who reads the network: lightnet.load(path, shapes=...)")
    elif seed is not None:
        raise LightNetError("the network has been read, and a seed decides how: give it to lightnet.load(path, seed=…)")
    get_target(target)
    if target != "cuda" and (arch is not None or emulate or on_cpu):
        raise LightNetError(f"arch, emulate and on_cpu are for target cuda, and the target is {target}")
    if emulate and on_cpu:
        raise LightNetError("emulate interprets PTX, and on_cpu makes none: choose one of them")
    if target == "cuda" and arch == "native":
        from lightnet.backends.cuda.native import native_arch

        arch = native_arch()
    if target == "cuda" and (cpu, triple) != ("host", None):
        raise LightNetError("cpu and triple are for target cpu; of target cuda, arch says what to compile for")
    said_threads = is_said(threads)
    bound = bound_of(threads) if target == "cpu" or said_threads else 1
    if plan not in PLANS:
        raise LightNetError(f"unknown plan '{plan}'; there are: {', '.join(PLANS)}")
    module = model.module.clone()
    budgets.for_ops(len(main_of(module).body.block.ops))
    store = (
        combined(model.weights if model.brings_weights else None, open_store(weights, module))
        if weights is not None
        else model.weights
    )
    planned = bool(memory_of(module))
    if compiled and not planned:
        raise LightNetError(f"{model.source}: the network is not planned: compile it first")
    if planned:
        check_plan(module)  # a plan from a file may be anything
    tied = tie(module, store)
    if outputs:
        if planned:
            raise LightNetError(f"{model.source}: the network is planned: choose outputs before it is compiled")
        keep_outputs(module, outputs)
    machine = None if (cpu, triple) == ("host", None) else _machine(cpu, triple)
    if features is None:
        features = arch or "" if target == "cuda" else host_features(machine)
    if pipeline and "@" in pipeline:
        named = {"target": target, "plan": plan, "planned": planned, "layout": layout, "precision": precision}
        pipeline, _ = pipelines.expanded(pipeline, named)
    elif pipeline and precision not in ("f32", "tf32"):
        raise LightNetError(
            f"a pipeline says itself what it rounds: put precision{{to={precision:.40}}} into it, and leave out the option"
        )
    spec = pipeline or pipelines.default(target, plan, planned=planned, layout=layout, precision=precision)
    spec += ",simt-to-cpu" if on_cpu else ""
    if check_indices:
        if planned:
            raise LightNetError(f"{model.source}: the network is planned: choose check_indices before it is compiled")
        spec = f"check-indices,{spec}"
    options = {"target": target, "plan": plan, "layout": layout, "features": features, "exact": exact, "weight_memory": weight_memory,
               "threads": bound if said_threads else min(bound, SHAPED), "most": bound, "arch": arch, "precision": "tf32" if precision == "tf32" else None}  # fmt: skip
    if pipeline:
        instrumentation = [*instrumentation, NothingToDo()]
    compilation = Compilation(
        module, parse_pipeline(spec, options), model.ctx, instrumentation, machine, bound, emulate, disable
    )
    not_disabled(compilation.not_disabled)
    architecture = get_target(target)
    said = {"target": target, "plan": plan, "precision": precision, "layout": layout, "threads": number_of(bound), "exact": exact,
            "weight_memory": weight_memory, "pipeline": pipeline, "cpu": cpu, "triple": triple, "arch": compilation.arch,
            "emulate": emulate, "on_cpu": on_cpu, "disable": tuple(disable)}  # fmt: skip
    said = {name: value for name, value in said.items() if value not in (None, False, ())}
    if on_cpu or (compilation.loops is None and architecture.lowering is not None):
        # What runs is another machine's code, or the interpreter.
        return Executable(compilation, store, model.seed, options=said, tied=tied)
    asked = {"arch": compilation.arch, "emulate": emulate, "threads": threads_of(bound)}
    return Executable(compilation, store, model.seed, Opened(architecture.opened_by, asked), said, tied)


def _machine(cpu: str, triple: str | None) -> Any:
    from lightnet.backends.llvm import machines

    return machines.machine(cpu, triple)


def _read(source: Any, shapes: Mapping[str, Sequence[int]] | None, seed: int | str | None) -> Model:
    """The model at a path, or of an ONNX model's bytes. Raises the `OpenError` where its shapes are open."""
    if isinstance(source, OpenError):
        raise source
    if isinstance(source, bytes):
        return loads(source, ".onnx", shapes=shapes, seed=seed)
    if not isinstance(source, str | os.PathLike) and not hasattr(source, "SerializeToString"):
        raise LightNetError("a network to compile is a path, a Model, an onnx.ModelProto or its bytes, not a "
                            f"{type(source).__name__}")  # fmt: skip
    return load(source, shapes=shapes, seed=seed)


def keep_outputs(module: ModuleOp, names: Sequence[str]) -> None:
    """Return the tensors called `names`, too, after the outputs that there are."""
    main = main_of(module)
    last = main.body.block.last_op
    assert isinstance(last, func.ReturnOp)
    by_name = {n: r for op in main.body.block.ops for n, r in zip(tensor_names(op), op.results) if n}
    values = list(last.operands)
    for name in [names] if isinstance(names, str) else names:
        if name not in by_name:
            raise unknown("tensor", name, by_name)
        if by_name[name] not in values:
            values.append(by_name[name])
    last.operands = values
    main.update_function_type()


class Compilation:
    """A module on its way through a pipeline, and the stages it went through."""

    def __init__(self, module: ModuleOp, passes: Sequence[ModulePass], ctx: Any, instrumentation: Sequence[Any] = (),
                 machine: Any = None, threads: int = 1, emulate: bool = False, disable: Sequence[str] = ()):  # fmt: skip
        self.source = module
        self.ctx = ctx or make_context()
        self.passes = list(passes)
        self.lock = RLock()
        self.native: Any = None
        #: The `backends.llvm.jit.Machine` that code is made for; None: this one.
        self.machine = machine
        #: How many threads a call may use at most; `MAX_THREADS` where nobody gave a number.
        self.threads = threads
        #: Whether code for cuda runs in the PTX interpreter.
        self.emulate = emulate
        self.disable = tuple(disable)
        self.planned = module.clone()
        self.loops: ModuleOp | None = None
        with disabling(self.disable) as disabled:
            self.passes = [p for p in self.passes if not disabled.has(p.name)]
            planned = _planned_passes([p.name for p in self.passes])
            run_pipeline(self.ctx, self.planned, self.passes[:planned], instrumentation)
            if planned < len(self.passes):
                self.loops = self.planned.clone()
                # Verifying xDSL's ops takes as long as making them, and the emitter refuses what it does not know.
                checked = bool(instrumentation) or bool(os.environ.get(VERIFY))
                run_pipeline(self.ctx, self.loops, self.passes[planned:], instrumentation, verify=checked)
        #: What was to be switched off and never came up.
        self.not_disabled = disabled.unknown

    @property
    def arch(self) -> str | None:
        """The architecture that code for cuda is for; None where code is for a processor."""
        return arch_of(self.loops)

    def stage(self, name: str) -> ModuleOp:
        """The module after the pass called `name` (``source`` is before all)."""
        names = [p.name for p in self.passes]
        if name == "source":
            return self.source
        if name not in names:
            raise LightNetError(
                f"no pass '{name}' in this pipeline; there are: source, {', '.join(dict.fromkeys(names))}"
            )
        module = self.source.clone()
        last = len(names) - 1 - names[::-1].index(name)
        with disabling(self.disable):
            run_pipeline(self.ctx, module, self.passes[: last + 1])
        return module


def _planned_passes(names: Sequence[str]) -> int:
    """How many passes lead to the planned network: those before it is lowered. Choices made after `plan` (`pipelines`: of upstream's plans, and of
    networks that come with one) belong to the lowering, as workspace is added to the plan for them."""
    count = next((i for i, name in enumerate(names) if name.startswith("lower-")), len(names))
    while 0 < count < len(names) and names[count - 1] == "choose":
        count -= 1
    return count


def interface_of(compilation: Compilation) -> dict[str, Any]:
    """The fields of the program of a compilation that say what it takes and gives: they need no machine code."""
    main = main_of(compilation.planned)
    ops = list(main.body.block.ops)
    sources = [op for op in main.walk() if isinstance(op, Source)]
    names = {n for op in ops for n in tensor_names(op) if n} | {op.tensor_names[0] for op in sources}
    before = [n for op in main_of(compilation.source).walk() for n in tensor_names(op) if n]
    inputs = tuple(_tensor(op.results[0], op.op_name or "") for op in ops if isinstance(op, Input | Create))
    read = {t.name for t in inputs}
    declared = [_tensor(op.dst, op.op_name or "") for op in main_of(compilation.source).walk() if isinstance(op, Input)]
    outputs = tuple(_outputs(main))
    readable = {t.name for t in (*inputs, *outputs)} | {op.tensor_names[0] for op in sources}
    return {
        "inputs": inputs, "outputs": outputs,
        "counts": tuple((outputs[i].name, axis, outputs[j].name) for i, axis, j in counts_of(ops[-1])),
        "required": tuple(n for op in ops if isinstance(op, Input) and op.required for n in op.tensor_names if n),
        "unread": tuple(t for t in declared if t.name not in read),
        "order": tuple(op.tensor_names[0] or op.op_name or "" for op in main_of(compilation.source).walk() if isinstance(op, Input | Create)),
        "params": tuple(op.tensor_names[0] or op.op_name or "" for op in sources if isinstance(op, ParamOp)),
        "fused": tuple(dict.fromkeys(n for n in before if n not in names)),
        "reused": tuple(dict.fromkeys(n for n in before if n in names and n not in readable)),
    }  # fmt: skip


def build_program(compilation: Compilation) -> Program:
    """The program of a compilation: machine code (none for target `none`), memory sizes and named tensors."""
    planned, loops = compilation.planned, compilation.loops
    common = interface_of(compilation)
    if loops is None:
        return Program((), {}, threads=compilation.threads, **common)
    ops = list(main_of(planned).body.block.ops)
    _check_ends(ops)
    if is_upstream(planned) or "static" not in memory_of(planned):
        common |= _one_space(ops, common["inputs"], common["counts"])
    if compilation.arch is not None:
        return Program((), memory_of(loops), hosts=tuple(_hosts(loops)), threads=compilation.threads, cpu=compilation.arch,
                       triple=CUDA_TRIPLE, **common)  # fmt: skip
    native = native_module(compilation)
    from llvmlite.binding import get_default_triple

    return Program(
        tuple(native.objects),
        memory_of(loops),
        hosts=tuple(_hosts(loops)),
        threads=max(compilation.threads, native.emitted.threads),
        widest=native.emitted.threads,
        scratch=native.emitted.scratch,
        cpu=native.machine.cpu,
        features=native.machine.features,
        triple=native.machine.triple or get_default_triple(),
        **common,
    )


def _check_ends(ops: Sequence[Operation]) -> None:
    """Raise `LightNetError` where machine code would read or leave a tensor in another layout than its caller."""
    for op in ops:
        host = isinstance(op, LnOp) and op.is_host
        if (host or isinstance(op, Input | Create | func.ReturnOp)) and not is_plain(op):
            raise LightNetError(f"{op.name}: what goes into a network or leaves it is row-major: run the pass layout", loc_of(op),
                                label="compile.layout")  # fmt: skip


def native_module(compilation: Compilation) -> Any:
    """Machine code for the loops of a compilation, made once. Raises `LightNetError` where there are none. Of code for cuda it is a
    `backends.cuda.module.CudaModule`, else a `backends.llvm.jit.NativeModule`."""
    if compilation.loops is None:
        raise LightNetError("there is no machine code: target none runs the reference interpreter")
    with compilation.lock, collector_paused():
        if compilation.native is None and compilation.arch is not None:
            from lightnet.backends.cuda.module import CudaModule

            compilation.native = CudaModule(compilation.loops, compilation.arch)
        elif compilation.native is None:
            from lightnet.backends.llvm.jit import compile_module

            compilation.native = compile_module(compilation.loops, machine=compilation.machine)
        return compilation.native


def host_features(machine: Any = None) -> str:
    """The feature of this machine (or of `machine`) that decides how kernels are shaped."""
    from lightnet.backends.llvm.jit import Machine

    return {16: "avx512", 8: "avx2"}.get((machine or Machine.host()).vectors.width, "neon")


def _tensor(value: SSAValue, default: str) -> Tensor:
    """A named value; without a place where nothing is planned."""
    if not isinstance(value, OpResult):
        raise LightNetError("@main has arguments: the pass bind makes inputs of them", label="compile.arguments")
    place, spec = place_of(value), spec_of(value.type)
    space, offset = (place.space.data, place.offset.data) if place is not None else ("", 0)
    return Tensor(tensor_names(value.op)[value.index] or default, spec.dims, spec.dtype.name, space, offset)


def _outputs(main: func.FuncOp) -> Iterator[Tensor]:
    last = main.body.block.last_op
    assert last is not None
    for i, value in enumerate(last.operands):
        yield _tensor(value, f"output{i}")


def _one_space(
    ops: Sequence[Operation], inputs: Sequence[Tensor], counts: Sequence[tuple[str, int, str]]
) -> dict[str, Any]:
    """What is special where all tensors stand in one memory space, as in upstream's plans: residents, and what the program
    overwrites (outputs are lost, as are those whose count is; inputs and residents have to be written again)."""
    static = [v for op in ops if isinstance(op, ParamOp | OnceOp) for v in op.results]
    residents = tuple(_tensor(v, f"@{i}") for i, v in enumerate(static))
    filled = [*inputs, *residents]
    outputs = list(_outputs_of(ops))
    begin = np.array([t.offset for t, _ in outputs] + [t.offset for t in filled], np.int64)
    end = begin + np.array([t.nbytes for t, _ in outputs] + [t.nbytes for t in filled], np.int64)
    made = np.array([i for _, i in outputs] + [-1] * len(filled), np.int64)
    space = np.array([t.space for t, _ in outputs] + [t.space for t in filled])
    by: dict[int, str] = {}
    for i, op in enumerate(ops):
        if isinstance(op, Source | OnceOp | func.ReturnOp) or not op.results:
            continue
        for j, _ in moves_left(op):
            target = _tensor(op.results[j], "")
            hit = (begin < target.offset + target.nbytes) & (end > target.offset) & (made < i) & (space == target.space)
            for k in np.flatnonzero(hit):
                by.setdefault(int(k), _label(op))
    lost = {t.name: by[k] for k, (t, _) in enumerate(outputs) if k in by}
    lost |= {name: lost[count] for name, _, count in counts if count in lost and name not in lost}
    again = tuple(t.name for k, t in enumerate(filled, len(outputs)) if k in by)
    return {"residents": residents, "overwritten": tuple(lost.items()), "restore": again}


def _label(op: Operation) -> str:
    """The source name of an op, or of the op that a kernel holds."""
    inner = op.ops[-1] if isinstance(op, KernelOp) and op.ops else op
    return name_of(inner) or op.name


def _outputs_of(ops: Sequence[Operation]) -> Iterator[tuple[Tensor, int]]:
    """Each output and the position of the op that makes it."""
    position = {op: i for i, op in enumerate(ops)}
    for i, value in enumerate(ops[-1].operands):
        assert isinstance(value, OpResult)
        yield _tensor(value, f"output{i}"), position[value.op]


def _hosts(loops: ModuleOp) -> Iterator[HostCall]:
    for op in main_of(loops).body.block.ops:
        if isinstance(op, HostOp):
            a = {k: v.data if isinstance(v, StringAttr) else v for k, v in op.attributes.items()}
            dims = tuple(d.value.data for d in a["dims"].data)
            yield HostCall(op.service.data, a["msg"], dims, a["dtype"], a.get("file", ""))
