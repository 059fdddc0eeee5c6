"""Small random networks, and what becomes of each on the way to loops: the form ``programs`` of `answers.py`, by which a change of a pass, of a
model of time, of memory or of a generator shows. Right results are what other tests ask of such networks (`test_fuzz_heads.py`,
`test_blocked_networks.py`); here every word counts that nobody sees in them, of decisions that cost only time or memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocked_networks import random_network
from kernel_families import FAMILIES, family
from random_heads import open_head, random_head
from random_sequences import open_sequence
from shipped import Setting
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import memory_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.printer import module_text
from lightnet.ir.target import get_target
from lightnet.passes import pipelines
from lightnet_report.remarks import Remarks

#: Networks of each generator.
EACH = 300
#: For whom they are compiled, and in which precision.
SETTINGS = {
    f"{setting.name}-{precision}": (setting, precision)
    for setting, precision in (
        (Setting("avx512"), "f32"), (Setting("avx2"), "f32"), (Setting("neon"), "f32"), (Setting("avx512", threads=4), "f32"),
        (Setting("avx2", layout="plain"), "f32"), (Setting("avx512bf16"), "bf16"), (Setting("avx2"), "f16"),
        (Setting("sm_80", "cuda"), "f32"), (Setting("sm_90a", "cuda"), "f16"), (Setting("sm_80", "cuda", layout="plain"), "tf32"),
    )
}  # fmt: skip


def programs() -> dict[str, str]:
    """The networks by name, each behind the name of a setting. A name is all that there is of one until it is made."""
    names = [f"family.{name}" for name in FAMILIES]
    names += [f"{kind}.{seed}" for kind in KINDS for seed in range(EACH)]
    return {f"{setting} {name}": name for setting in SETTINGS for name in names}


def _opened(seed: int, made: Callable[[int], Any]) -> ModuleOp:
    opened = made(seed)
    return lightnet.load(opened.model, dims=opened.dims).module


def _closed(seed: int, made: Callable[[int], Any]) -> ModuleOp:
    """In the shapes of one of its calls."""
    opened = made(seed)
    call = opened.calls[seed % len(opened.calls)]
    return lightnet.load(opened.model, shapes={name: array.shape for name, array in call.items()}).module


#: Generators of networks by name.
KINDS: dict[str, Callable[[int], ModuleOp]] = {
    "network": lambda seed: random_network(seed, 8)[0],
    "head": lambda seed: lightnet.load(random_head(seed)[0]).module,
    "open-head": lambda seed: _opened(seed, open_head),
    "open-sequence": lambda seed: _opened(seed, open_sequence),
    "map": lambda seed: _closed(seed, open_head),
    "sequence": lambda seed: _closed(seed, open_sequence),
}


def read_program(text: str, name: str) -> str:
    """The plan of a network, what its kernels should take, what was remarked of it, and its loops. Raises `LightNetError` for one of which no
    kernel is known before a call."""
    setting, precision = SETTINGS[name.partition(" ")[0]]
    kind, _, which = text.partition(".")
    module, context = family(which) if kind == "family" else KINDS[kind](int(which)), make_context()
    passes = pipelines.default(setting.target, layout=setting.layout, precision=precision)
    target = get_target(setting.target)
    own = {"precision": precision} if precision in target.precisions else {}
    *planning, lowering = parse_pipeline(passes, setting.options() | own)
    remarks = Remarks(["missed", "cost"])
    run_pipeline(context, module, planning, [remarks])
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    made = [
        target.selection.made(kernel) for kernel in kernels
    ]  # as chosen for this machine, whatever was asked before
    rows = [f"{chosen.plan.time:.6g}" for chosen in made if chosen is not None]
    rows += [f"{remark} {sorted(remark.figures.items())}" for remark in remarks.remarks]
    rows += [str(memory_of(module)), module_text(module)]
    run_pipeline(context, module, [lowering])
    return "\n".join([*rows, module_text(module)])
