"""What the models in numbers decide for the kernels of a few networks, what they say that it costs, and what the generators' code
consists of: recorded in ``data/decisions.json``, so that a change of a model, of memory or of the instructions that a kernel
takes shows, and is meant. ``python tests/decisions.py`` records it anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from blocked_kernels import kernel_of, planned
from blocked_networks import random_network
from blocked_windows import MACHINES
from chains import chain
from cuda_cases import CASES, graph_of
from kernel_families import FAMILIES, family
from shipped import digest, fingerprint
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

import lightnet
from lightnet.backends.cpu.blocked.bands import BANDS
from lightnet.backends.cpu.blocked.bands_body import chain_of
from lightnet.backends.cpu.blocked.bands_model import best_schedule, gain
from lightnet.backends.cpu.selection import SELECTION as blocked
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.selection import SELECTION as cuda
from lightnet.backends.llvm.emitter import emit_module
from lightnet.backends.llvm.machines import machine as processor
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.passes import pipelines

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "data" / "decisions.json"
#: Inverted residuals; fire modules; windows of every size and stride: between them most generators have something to do.
NETWORKS = (
    "examples/nets/mobilenetv2.net",
    "examples/nets/squeezenet1.1.net",
    "examples/nets/tiny-yolo.net",
    "examples/nets/lenet.net",
    "cases f32",
)
ARCHS = ("sm_80", "sm_90a")
#: MobileNetV2's, and others that are not square: source, channels between, outputs, stride.
CHAINS = (
    ((1, 16, 112, 112), 96, 24, (2, 2)), ((1, 24, 56, 56), 144, 24, (1, 1)), ((1, 96, 14, 14), 576, 160, (2, 2)),
    ((1, 160, 7, 7), 960, 320, (1, 1)), ((2, 32, 112, 112), 0, 16, (1, 1)), ((1, 32, 28, 28), 192, 0, (1, 1)),
    ((1, 24, 56, 80), 144, 24, (1, 1)), ((3, 40, 19, 120), 240, 112, (2, 1)), ((1, 17, 90, 44), 0, 33, (1, 2)),
)  # fmt: skip
#: Processors for families of kernels, whose sizes put every term of a model to work: threads, narrow registers, small caches.
PROCESSORS = (
    replace(MACHINES[0], threads=8), replace(MACHINES[1], threads=3, l2=256 << 10), replace(MACHINES[2], growth=1.0),
)  # fmt: skip
PASSES = "bind,simplify,fold-batchnorm,hoist,expand,subgraph,hoist,combine"
#: Networks, by what makes one, and for whom they are lowered: registers of three widths, one thread and several, maps in blocks and plain
#: ones; devices with and without warpgroups.
CODE = {
    **{f"random {seed}": (lambda seed=seed: random_network(seed)[0]) for seed in range(4)},
    "cases f32": lambda: graph_of([c for c in CASES if "f32" in c.dtypes], "f32").module(),
    "cases f16": lambda: graph_of([c for c in CASES if "f16" in c.dtypes], "f16").module(),
    **{name: (lambda name=name: family(name)) for name in FAMILIES},
}
LOWERED = (
    ("random 0", "cpu", {"features": "avx512"}), ("random 1", "cpu", {"features": "avx2", "threads": 4}),
    ("random 2", "cpu", {"features": "neon"}), ("random 3", "cpu", {"features": "avx512", "layout": "plain"}),
    ("cases f32", "cpu", {"features": "avx512", "threads": 4}), ("cases f32", "cpu", {"features": "avx2", "layout": "plain"}),
    ("cases f32", "cuda", {"features": "sm_80", "arch": "sm_80"}),
    ("cases f16", "cuda", {"features": "sm_90a", "arch": "sm_90a"}),
    *((name, *how) for name in FAMILIES for how in (("cpu", {"features": "avx512", "threads": 4}),
                                                    ("cuda", {"features": "sm_80", "arch": "sm_80"}))),
)  # fmt: skip


def kernels(network: str, target: str) -> Iterator[tuple[str, KernelOp]]:
    """The kernels of a network that differ, and what they are called."""
    module = CODE[network]() if network in CODE else lightnet.load(ROOT / network).module.clone()
    run_pipeline(make_context(), module, parse_pipeline(PASSES, {"target": target}))
    seen = set()
    for op in module.walk():
        if isinstance(op, KernelOp):
            dims = "x".join(map(str, spec_of(op.results[0].type).dims))
            sources = ",".join("x".join(map(str, spec_of(v.type).dims)) for v in op.operands[:2])
            name = f"{'+'.join(o.optype for o in op.ops)} {sources} -> {dims}"
            if name not in seen:
                seen.add(name)
                yield name, op


def of_cpu(network: str) -> dict[str, list[str]]:
    """For each kernel and machine, every generator of its own that takes it: its cost in ns, and its choices."""
    found: dict[str, list[str]] = {}
    for name, kernel in kernels(network, "cpu"):
        for machine in PROCESSORS if network in FAMILIES else MACHINES[:2]:
            for generator, form in blocked.candidates(kernel, machine):
                if not generator.on_maps or generator.last:
                    continue
                plan = generator.plan(kernel, form, machine)
                found.setdefault(name, []).append(
                    f"{machine.lanes} {generator.alg} {plan.time:.6g} {_texts(plan.choices)}"
                )
    return found


def of_cuda(network: str) -> dict[str, list[str]]:
    """The costs on devices; choices come with layouts."""
    found: dict[str, list[str]] = {}
    for name, kernel in kernels(network, "cuda"):
        for arch in ARCHS:
            device = device_of(arch)
            for generator in cuda.generators():
                if not generator.is_for(device):
                    continue
                for form in generator.takes(kernel.ops, list(kernel.terminator.operands), device):
                    time = generator.plan(kernel, form, device).time
                    found.setdefault(name, []).append(f"{arch} {generator.alg} {time:.6g}")
    return found


def of_chains() -> dict[str, list[str]]:
    """Chains of convolutions in bands, for one thread and for eight."""
    found: dict[str, list[str]] = {}
    for src, wide, outputs, stride in CHAINS:
        kernel = kernel_of(*chain(src, wide, outputs, stride=stride))
        for machine in (m for one in MACHINES[:2] for m in (one, replace(one, threads=8))):
            kernel.attributes |= {"alg": StringAttr(BANDS.alg), "lanes": ParamAttr(machine.lanes)}
            saved = gain(chain_of(kernel.ops), machine, best_schedule(chain_of(kernel.ops), machine))
            plan = planned(BANDS, kernel, machine)
            rows = found.setdefault(f"{src} {wide} {outputs} {stride}", [])
            where = f"{machine.lanes}x{machine.threads}"
            rows.append(f"{where} saved {saved:.6g} {_texts(plan.choices)}")
            rows.append(f"{where} cost {plan.time:.6g}")
    return found


def of_code(name: str, target: str, options: Mapping[str, str | int]) -> list[str]:
    """Of a network of `CODE` at level 4: the lines of its program, and of every function a digest of its text (`shipped.fingerprint`)
    and how many ops of each kind it has; for a processor, digests of the LLVM IR of kernels and of the launch list."""
    module: ModuleOp = CODE[name]()
    spec = pipelines.default(target, layout=options.get("layout"))
    run_pipeline(make_context(), module, parse_pipeline(spec, {"target": target, "plan": "default", **options}))
    main = main_of(module)
    rows = [str(op) for op in main.body.block.ops]
    emitted = emit_module(module, processor(options["features"]).vectors) if target == "cpu" else None
    if emitted is not None:
        rows.append(f"llvm {digest(emitted.main or '')}")
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op is not main:
            counts = Counter(inner.name for inner in op.walk() if inner is not op)
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
            llvm = (
                f" llvm {emitted.symbols[op.sym_name.data][:9]}"
                if emitted and op.sym_name.data in emitted.symbols
                else ""
            )
            rows.append(f"{op.sym_name.data}: code {digest(fingerprint(op))}{llvm}, {kinds}")
    return rows


def code_name(name: str, target: str, options: Mapping[str, str | int]) -> str:
    return f"{name} {target} {_texts(options)}"


def _texts(choices: Mapping[str, object]) -> str:
    return " ".join(f"{k}={_text(v)}" for k, v in sorted(choices.items()))


def _text(value: object) -> str:
    return str(getattr(value, "data", getattr(value, "value", value))).replace(" ", "")


def record() -> dict[str, dict]:
    return {network: {"cpu": of_cpu(network), "cuda": of_cuda(network)} for network in (*NETWORKS, *FAMILIES)} | {
        "chains": of_chains(),
        "code": {code_name(*one): of_code(*one) for one in LOWERED},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(record(), indent=0) + "\n", "utf-8")
