"""The abilities of this processor, without LLVM: the features by which saved machine code is accepted or refused.

Features have LLVM's names. Only those are known that LLVM's code generator uses of its own accord: a processor that
lacks another one (a random number generator, tile registers) runs the code as well. Imports the standard library, and
llvmlite only on systems that do not say themselves what the processor can do.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

from lightnet.diagnostics import LightNetError

#: Feature -> the flag that Linux lists for it, where the two differ.
_X86 = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "sse4a": "sse4a", "popcnt": "popcnt",
    "cx16": "cx16",
    "movbe": "movbe", "lzcnt": "abm", "bmi": "bmi1", "bmi2": "bmi2", "f16c": "f16c", "fma": "fma", "fma4": "fma4",
    "xop": "xop",
    "tbm": "tbm", "avx": "avx", "avx2": "avx2", "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd",
    "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni", "avxifma": "avx_ifma",
    "avxvnniint8": "avx_vnni_int8", "avxvnniint16": "avx_vnni_int16", "avxneconvert": "avx_ne_convert", "gfni": "gfni",
}  # fmt: skip
_ARM = {
    "neon": "asimd", "fp-armv8": "fp", "fullfp16": "asimdhp", "dotprod": "asimddp", "rdm": "asimdrdm", "bf16": "bf16",
    "i8mm": "i8mm", "fp16fml": "asimdfhm", "sve": "sve", "sve2": "sve2", "lse": "atomics", "jsconv": "jscvt",
    "complxnum": "fcma",
}  # fmt: skip
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "movbe", "lzcnt", "bmi", "bmi2", "f16c", "fma", "avx", "avx2")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: What the levels of the x86-64 ABI, and AArch64's smallest processor, have.
LEVEL_FEATURES = {"x86-64": (), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4, "generic": ("neon", "fp-armv8")}

_ALIASES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


def architecture() -> str:
    """The architecture of this machine as target triples spell it: ``x86_64``, ``aarch64``."""
    machine = platform.machine().lower()
    return _ALIASES.get(machine, machine)


def architecture_of(triple: str) -> str:
    """The architecture of a target triple (``x86_64-unknown-linux-gnu``)."""
    name = triple.partition("-")[0].lower()
    return _ALIASES.get(name, name)


@cache
def supported() -> frozenset[str]:
    """The features of this processor that matter to compiled code, as the operating system reports them: one that it
    does not switch on, such as AVX-512 under some hypervisors, is not among them."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except (FileNotFoundError, PermissionError):  # any other error is no answer: there are no descriptors left, say
        text = ""
    if match := re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE):
        flags = set(match[1].split())
        return frozenset(name for name, flag in {**_X86, **_ARM}.items() if flag in flags)
    import llvmlite.binding as llvm

    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on and name in {**_X86, **_ARM})


def processor_name() -> str:
    """The processor's name as the operating system has it, for messages."""
    try:
        match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def required(cpu: str, features: str) -> tuple[str, ...]:
    """The features that a processor must have to run code that LLVM made for `cpu` with `features`
    (``+avx2,-fma,...``): what a level brings, and what is switched on of those that matter.
    """
    found = dict.fromkeys(LEVEL_FEATURES.get(cpu, ()), True)
    for word in filter(None, features.split(",")):
        if word[1:] in _X86 or word[1:] in _ARM:
            found[word[1:]] = word[0] == "+"
    return tuple(name for name, on in found.items() if on)


def check_processor(cpu: str, features: str, triple: str) -> None:
    """Raise LightNetError where this processor does not run code that LLVM made for `cpu` with `features` under
    `triple`."""
    arch, here = architecture_of(triple), architecture()
    if arch != here:
        raise LightNetError(f"the code is for {arch} processors, and this is a {here}")
    have = supported()
    if lacking := [f for f in required(cpu, features) if f not in have]:
        raise LightNetError(
            f"the code is for {cpu}, and this processor ({processor_name()}) lacks {', '.join(lacking[:8])}"
        )
