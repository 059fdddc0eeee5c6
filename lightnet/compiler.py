"""From a model to an executable: what `lightnet.compile` does, top to bottom."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from lightnet.compilation import Compilation
from lightnet.compiled import Compiled
from lightnet.diagnostics import LightNetError
from lightnet.executable import Executable
from lightnet.frontends.loading import OpenError
from lightnet.ir import budget as budgets
from lightnet.ir.collector import collector_paused
from lightnet.ir.host import host_of, without_host
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import tensor_names
from lightnet.ir.target import get_target
from lightnet.model import Model, Weights, combined, load_closed, open_store
from lightnet.passes import pipelines
from lightnet.passes.check_plan import check_plan
from lightnet.passes.levels import driven
from lightnet.passes.tuned import tuned_text
from lightnet.runtime.program import unknown
from lightnet.runtime.threads import SHAPED, Threads
from lightnet.specialize import SpecializingExecutable, general_of
from lightnet.tying import tie

if TYPE_CHECKING:
    from lightnet.runtime.host.program import HostProgram

__all__ = ["Compilation", "Executable", "compile"]

PLANS = ("default", "upstream")


@collector_paused()
@budgets.budgeted
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
    exact: bool = False,
    weight_memory: int | None = None,
    threads: int | str | None = None,
    seed: int | str | None = None,
    check_indices: bool = False,
    specialize: Mapping[str, int | Sequence[int]] | str | None = None,
    caches: Mapping[str, str] | str = "",
    tuned: str = "",
    budget: float | None = None,
    instrumentation: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """Compile a model (or the network at a path, the bytes of an ONNX model, what reading an open one raised) for a
    target.

    A network at a path whose shapes are open, because an ONNX model leaves dims of its inputs open or computes shapes
    from their values, becomes a `SpecializingExecutable`: one executable for all calls whose open dims are 1 to 1024,
    where that has fast kernels (for other ranges: `lightnet.load` with `dims`), and one for each set of shapes
    elsewhere, which is compiled when it is called. One with text at its ends becomes a `HostedCompiled`, which has
    either of these as its `network`.

    `plan` is ``default`` or ``upstream`` (which never fuses and plans memory as upstream does); `outputs` keeps further
    tensors by name; `pipeline` replaces the target's pass list (``@cpu-bands``, or passes, as `ln-opt` takes them),
    `disable` switches passes and patterns off by name; `weights` replaces the model's; `shapes` are for reading a path
    (`lightnet.load`); `compiled` says that the model is planned already and is to be lowered only. `layout` is one of
    the target's (cpu: ``blocked``, the default, and ``plain``); `precision` is what a network of f32 computes in:
    ``f32``; ``f16`` or ``bf16``, where its ops allow it (the pass `precision`), inputs and outputs keeping their types;
    or one of the target's (cuda: ``tf32``, to which the factors of products are rounded; cpu: ``auto``, those of
    products that are faster so rounded to bf16, which is what ``bf16`` means there, too). `exact` refuses algorithms
    that sum something else than an op's definition does (Winograd's); `weight_memory` is how many bytes transformed
    weights (Winograd's) may take beyond the plain ones (default: 0.3 times those of all weights; with less, they are
    transformed at run time, which takes longer). `threads` is how many threads a call may use (unless given that of the
    environment variable LIGHTNET_THREADS, else, as for ``"any"``, whatever number: a call takes as many as there are
    processors where it runs); results do not depend on it. `seed` is `lightnet.load`'s, of a network that is read here.
    `specialize` names values of dims that calls decide, as ``{"length": [128, 384]}`` or ``"length=128,384"``: kernels
    get faster code for these beside that for all, and read the same weights (target cpu).
    `caches` names inputs that outputs are with more behind them, as ``{"past_k": "all_k"}``, or is ``"all"`` for each
    that can: a call on what an earlier one returned writes what is new where that is, and copies nothing
    (docs/import-networks.md; target cpu).
    `tuned` is a file of choices that `lightnet tune` measured, or an executable that carries some, which replace those
    of the model.
    With `check_indices`, a call raises for an index outside of its axis, which is clamped otherwise. `budget` is how
    many seconds of this thread's processor time compiling may take, by which it also bounds the size of each kernel's
    code (`ir/budget.py`; generous unless given).

    `options` are those that the target has of its own (`Target.runtime`; docs/targets.md lists them): `cpu`, `triple`
    and `features` of target cpu; `arch`, `emulate` and `on_cpu` of target cuda. Raises `LightNetError`: an unknown
    target or option, an op that the target cannot run, a network that does not fit in memory, ``native`` without a
    device, a budget that is spent (`compile.budget` and `compile.code`: it names the pass and the op).
    """
    architecture = get_target(target)
    options = architecture.own_runtime.given(target, options, signature(compile).parameters)
    if not isinstance(model, Model):
        try:
            model = _read(model, shapes, seed)
        except OpenError as opened:
            if shapes:
                raise  # some are still open
            again = {"target": target, "plan": plan, "layout": layout, "precision": precision, "outputs": outputs,
                     "weights": weights,
                     "pipeline": pipeline, "disable": disable, "exact": exact, "weight_memory": weight_memory,
                     "threads": threads,
                     "check_indices": check_indices, "budget": budget, "instrumentation": instrumentation,
                     **options}  # fmt: skip
            special = partial(compile, **again)
            wanted: dict[str, Any] = {"specialize": specialize, "caches": caches}
            wanted = {name: value for name, value in wanted.items() if value}
            general = general_of(opened, partial(special, **wanted), next(iter(wanted), ""))
            return hosted(opened.host, SpecializingExecutable(opened, special, model, general))
    elif shapes:
        raise LightNetError("shapes are given to who reads the network: lightnet.load(path, shapes=...)")
    elif seed is not None:
        raise LightNetError("the network has been read, and a seed decides how: give it to lightnet.load(path, seed=…)")
    if plan not in PLANS:
        raise LightNetError(f"unknown plan '{plan}'; there are: {', '.join(PLANS)}")
    asked = Threads.asked(threads)
    if not asked.is_said and not architecture.own_runtime.shares:
        asked = Threads(1)
    host = host_of(model.module)
    module, store, planned = _taken(model, weights, compiled)
    tied = tie(module, store)
    if outputs or check_indices:
        if planned:
            what = "outputs" if outputs else "check_indices"
            raise LightNetError(f"{model.source}: the network is planned: choose {what} before it is compiled")
        keep_outputs(module, outputs)
    settings = architecture.own_runtime.settle(options)
    named: dict[str, Any] = {
        "target": target,
        "plan": plan,
        "planned": planned,
        "layout": layout,
        "precision": precision,
    }
    whole = pipelines.staged(pipeline, named) if pipeline else pipelines.pipeline_of(**named)
    whole = whole.around(("check-indices",) if check_indices else (), settings.behind)
    told = {"target": target, "plan": plan, "layout": layout, "exact": exact, "weight_memory": weight_memory,
            "threads": asked.bound if asked.is_said else min(asked.bound, SHAPED), "most": asked.bound,
            "precision": precision if precision in architecture.precisions else None,
            "specialize": _specialize_text(specialize or ""), "caches": _caches_text(caches),
            "tuned": tuned_text(os.fspath(tuned)) if tuned else None,
            **settings.passes}  # fmt: skip
    with driven(disable, bool(pipeline)) as watchers:
        planning, lowering = whole.parsed(told)
        if told["caches"] and not any(p.name == "grow-caches" for p in planning):
            raise LightNetError(f"caches: no pass of pipeline '{whole.name}' lets them grow (grow-caches does)",
                                label="compile.caches")  # fmt: skip
        compilation = Compilation(
            module, planning, lowering, model.ctx, [*instrumentation, *watchers], target, settings, asked, disable
        )
    said = {"target": target, "plan": plan, "precision": precision, "layout": layout, "threads": asked.number,
            "exact": exact,
            "weight_memory": weight_memory, "pipeline": pipeline, "check_indices": check_indices,
            "specialize": told["specialize"], "caches": told["caches"], "tuned": told["tuned"], **compilation.options,
            "disable": tuple(disable)}  # fmt: skip
    said = {name: value for name, value in said.items() if value is not None and value is not False and value != ()}
    return hosted(host, Executable(compilation, store, model.seed, options=said, tied=tied))


def _specialize_text(values: Mapping[str, int | Sequence[int]] | str) -> str | None:
    """The option of the pass `choose`, which reads it, for values by name; None where there are none."""
    if isinstance(values, str):
        return values or None
    said = {name: [given] if isinstance(given, int) else given for name, given in values.items()}
    return ";".join(f"{name}={','.join(map(str, given))}" for name, given in said.items()) or None


def _caches_text(caches: Mapping[str, str] | str) -> str | None:
    """The option of the pass `grow-caches`; None where there are none."""
    if isinstance(caches, Mapping):
        return ",".join(f"{old}={new}" for old, new in caches.items()) or None
    if not isinstance(caches, str):
        raise LightNetError(f"caches: expected a mapping of inputs to outputs, or 'all', not a {type(caches).__name__}",
                            label="compile.caches")  # fmt: skip
    return caches or None


def hosted(host: HostProgram | None, executable: Compiled) -> Compiled:
    """An executable with its host part, where the network has one."""
    if host is None:
        return executable
    from lightnet.hosted import HostedCompiled

    return HostedCompiled(executable, host)


def _read(source: Any, shapes: Mapping[str, Sequence[int]] | None, seed: int | str | None) -> Model:
    """The model at a path, or of an ONNX model's bytes. Raises the `OpenError` where its shapes are open."""
    if isinstance(source, OpenError):
        raise source
    if not isinstance(source, str | bytes | os.PathLike) and not hasattr(source, "SerializeToString"):
        raise LightNetError("a network to compile is a path, a Model, an onnx.ModelProto or its bytes, not a "
                            f"{type(source).__name__}")  # fmt: skip
    return load_closed(source, shapes=shapes, seed=seed)


def _taken(model: Model, weights: Weights, compiled: bool) -> tuple[ModuleOp, Any, bool]:
    """A copy of a model's network, its weights, and whether it is planned. Raises `LightNetError` for a plan that does
    not hold, which one from a file may not, and where there should be one and is none."""
    module = without_host(model.module.clone())
    budgets.for_ops(len(main_of(module).body.block.ops))
    store = model.weights
    if weights is not None:
        store = combined(model.weights if model.brings_weights else None, open_store(weights, module))
    planned = bool(memory_of(module))
    if compiled and not planned:
        raise LightNetError(f"{model.source}: the network is not planned: compile it first")
    if planned:
        check_plan(module)
    return module, store, planned


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
