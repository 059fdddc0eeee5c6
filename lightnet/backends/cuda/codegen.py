"""LLVM IR text to PTX, by LLVM's NVPTX target. Imports llvmlite.

What that target cannot select ends the process, with no exception: a library function (``llvm.log.f32``), an intrinsic
of another architecture, an unknown version of PTX. So only the intrinsics of `ALLOWED`, each of which a test compiles,
come to it, and only the versions that it knows.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import lru_cache

import llvmlite.binding as llvm

from lightnet.backends.llvm import apart, unlocked
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import ARCHS

#: The triple of the code, as LLVM names it.
TRIPLE = "nvptx64-nvidia-cuda"
#: Architecture -> the first version of PTX that has it; the versions that this LLVM knows (82: 8.2).
LEAST_PTX = {"sm_80": 70, "sm_86": 71, "sm_89": 78, "sm_90": 78, "sm_90a": 80}
PTX_VERSIONS = (70, 71, 72, 73, 74, 75, 76, 77, 78, 80, 81, 82, 83, 84, 85, 86, 87, 88, 90)
assert set(LEAST_PTX) == set(ARCHS)

_FLOATS, _INTEGERS = ("f16", "f32", "f64"), ("i8", "i16", "i32", "i64")
#: Families of intrinsics by the types that they are overloaded on. Most of them LLVM makes itself: of comparisons and
#: shifts, and of f16, where it need not be widened. Three-way comparisons have the type of the result, too.
OVERLOADED = {
    _FLOATS: (
        "ceil", "copysign", "fabs", "floor", "fma", "fmuladd", "is.fpclass", "maximum", "maximumnum", "maxnum",
        "minimum",
        "minimumnum", "minnum", "rint", "round", "roundeven", "sqrt", "trunc",
    ),
    ("bf16",): ("copysign", "fabs"),
    _INTEGERS: (
        "abs", "bitreverse", "ctlz", "ctpop", "cttz", "fshl", "fshr", "sadd.sat", "sadd.with.overflow", "smax", "smin",
        "smul.with.overflow", "ssub.sat", "ssub.with.overflow", "uadd.sat", "uadd.with.overflow", "umax", "umin",
        "umul.with.overflow", "usub.sat", "usub.with.overflow",
        *(f"{kind}.{result}" for kind in ("scmp", "ucmp") for result in _INTEGERS),
    ),
    ("i16", "i32", "i64"): ("bswap",),
}  # fmt: skip
#: Copies of memory, which become loops, in generic, global, shared and local memory; and what leaves no code.
MEMORY = (
    *(f"llvm.memset.{p}.i64" for p in ("p0", "p1", "p3", "p5")),
    *(
        f"llvm.{kind}.{p}.{q}.i64"
        for kind in ("memcpy", "memmove")
        for p in ("p0", "p1", "p3", "p5")
        for q in ("p0", "p1", "p3", "p5")
    ),
)
SILENT = (
    "llvm.assume",
    "llvm.experimental.noalias.scope.decl",
    "llvm.lifetime.start.p0",
    "llvm.lifetime.end.p0",
)
NVVM = (
    *(f"llvm.nvvm.read.ptx.sreg.{r}.{d}" for r in ("tid", "ctaid", "ntid", "nctaid") for d in "xyz"),
    "llvm.nvvm.read.ptx.sreg.laneid",
    "llvm.nvvm.barrier.cta.sync.aligned.all",
    "llvm.nvvm.div.full",
    "llvm.nvvm.ex2.approx.ftz.f32",
    *(f"llvm.nvvm.shfl.sync.{mode}.{type}" for mode in ("bfly", "up", "down", "idx") for type in ("i32", "f32")),
    *(f"llvm.nvvm.cp.async.ca.shared.global.{n}{s}" for n in (4, 8, 16) for s in ("", ".s")),
    *(f"llvm.nvvm.cp.async.cg.shared.global.16{s}" for s in ("", ".s")),
    "llvm.nvvm.cp.async.commit.group",
    "llvm.nvvm.cp.async.wait.group",
    *(f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{n}{t}.b16.p3" for n in (1, 2, 4) for t in ("", ".trans")),
    "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
    "llvm.nvvm.mma.m16n8k16.row.col.bf16",
    "llvm.nvvm.mma.m16n8k8.row.col.tf32",
    "llvm.nvvm.f2tf32.rna",
)  # fmt: skip


def _symbols() -> Iterator[str]:
    for types, names in OVERLOADED.items():
        yield from (f"llvm.{name}.{type}" for name in names for type in types)
    yield from (*MEMORY, *SILENT, *NVVM)


#: The functions without a body that may come to LLVM's NVPTX target.
ALLOWED = frozenset(_symbols())


@lru_cache(256)
def ptx(text: str, arch: str, version: int, level: int = 3) -> str:
    """The PTX of a module of LLVM IR for an architecture (``sm_80``) and a version of PTX (80: 8.0), at a level of
    LLVM's middle end; the same text for the same arguments. Raises LightNetError for a version that does not go with
    the architecture, and for what the target does not have."""
    check_arch(arch, version)
    args = text, arch, version, level
    made = apart.run_apart(f"{__name__}:assembly", *args) if level > 0 and apart.is_due() else None
    return _rolled((made or assembly(*args)).decode())


def assembly(text: str, arch: str, version: int, level: int) -> bytes:
    """The assembly that LLVM makes of a module, for `apart.run_apart`, too."""
    machine = _machine(arch, version, level)
    module = _module(text, machine)
    _require_allowed(module)
    _optimize(module, machine, level)
    if _foreign(
        module
    ):  # LLVM has made an intrinsic that is not known: without its optimisations there are only those of the text
        module = _module(text, machine)
        _optimize(module, machine, 0)
    _require_allowed(module)
    return unlocked.emit_code(machine, module, unlocked.ASSEMBLY)


_LABEL = re.compile(r"(\$L\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$L\w+);")
_NO_UNROLLING = '\t.pragma "nounroll";'


def _rolled(text: str) -> str:
    """PTX whose loops ptxas leaves as they are. LLVM has unrolled what is worth it; ptxas goes on with every loop of
    few instructions that makes a constant number of trips, until 255 registers do not suffice (measured, CUDA 13.0: an
    inner product of 64 takes 255 instead of 32, and spills)."""
    heads, lines, seen = set(), text.splitlines(), set()
    for line in lines:
        if label := _LABEL.match(line):
            seen.add(label[1])
        elif (branch := _BRANCH.search(line)) and branch[1] in seen:
            heads.add(branch[1])
        elif line.startswith("}"):
            seen.clear()  # labels belong to their function
    found: list[str] = []
    for line in lines:
        found.append(line)
        if (label := _LABEL.match(line)) and label[1] in heads:
            found.append(_NO_UNROLLING)
    return "\n".join(found) + "\n"


def check_arch(arch: str, version: int) -> None:
    """Raise LightNetError unless LLVM knows an architecture, and a version of PTX for it."""
    if arch not in LEAST_PTX:
        raise LightNetError(f"unknown architecture '{arch:.40}'; there are: {', '.join(LEAST_PTX)}")
    if version not in PTX_VERSIONS or version < LEAST_PTX[arch]:
        known = [v for v in PTX_VERSIONS if v >= LEAST_PTX[arch]]
        raise LightNetError(f"no version {version} of PTX for {arch}; there are: {', '.join(map(str, known))}")


#: Target machines are for the use of one thread.
_local = threading.local()


def _machine(arch: str, version: int, level: int) -> llvm.TargetMachine:
    """LLVM's code generator, one for each thread."""
    machines = _local.__dict__.setdefault("machines", {})
    if (arch, version, level) not in machines:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machines[arch, version, level] = llvm.Target.from_triple(TRIPLE).create_target_machine(
            cpu=arch, features=f"+ptx{version}", opt=level, reloc="pic", codemodel="default"
        )
    return machines[arch, version, level]


def _module(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise LightNetError(f"LLVM refuses the emitted code (a bug of the emitter): {error}") from None
    return module


def _foreign(module: llvm.ModuleRef) -> list[str]:
    """The functions without a body that the target may not have."""
    return [f.name for f in module.functions if f.is_declaration and f.name not in ALLOWED]


def _require_allowed(module: llvm.ModuleRef) -> None:
    if foreign := _foreign(module):
        raise LightNetError(f"the GPU has no function @{foreign[0]}", label="nvptx.intrinsic")


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    """LLVM's middle end; at level 0 it inlines only. A thread has no vectors: what is loaded together is found when
    code is generated."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    unlocked.run_passes(builder.getModulePassManager(), module, builder)
