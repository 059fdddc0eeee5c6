"""What NVIDIA's assembler says of our PTX: every generator of cuda, on every dtype and in ugly shapes, and whole networks, become machine code for
sm_80 and sm_90 (and what is for sm_90a for that) without spills, without local memory and without a warning; and with the instructions that
the generators are there for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import ptxas
import pytest
from cuda_cases import CASES, DTYPES, Case, pinned, takers
from sampling import draw

import lightnet
from lightnet.backends.cuda import assembler, codegen
from lightnet.backends.cuda.device import DEVICES
from lightnet.backends.cuda.nvptx import emit_program
from lightnet.backends.cuda.selection import SELECTION
from lightnet.ir.registry import CUDA_GENERATORS
from lightnet.runtime.cuda.program import KernelLine

NETS = Path(__file__).parents[2] / "data" / "nets" / "il"
NETWORKS = ("squeezedet", "shufflenetv2", "erfnet_samepad")
ARCHS = ("sm_80", "sm_90")
#: What makes a generator worth having: of each group, by generator and dtype, one instruction at least stands in its kernels.
EXPECTED: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("mma", "f32"): (("HMMA.1688.F32.TF32",), ("LDGSTS",)),
    ("mma", "f16"): (("HMMA.16816.F32",), ("LDSM",), ("LDGSTS",)),
    ("mma", "bf16"): (("HMMA.16816.F32.BF16",), ("LDSM",), ("LDGSTS",)),
    ("attention", "f16"): (("HMMA.16816.F32",), ("LDSM.16.MT88.4",), ("MUFU.EX2",), ("LDGSTS",)),
    ("attention", "bf16"): (("HMMA.16816.F32.BF16",), ("MUFU.EX2",)),
    ("recurrent", "f32"): (("FFMA",), ("LDS.128",), ("LDG.E.128.CONSTANT",)),
    ("wgmma", "f16"): (("HGMMA",), ("UTMALDG.3D",), ("UTMALDG.4D.IM2COL",), ("SYNCS",)),
    ("wgmma", "bf16"): (("HGMMA.64x64x16.F32.BF16",), ("UTMALDG.3D",)),
    ("simt", "f32"): (("FFMA",), ("LDS.128", "LDS.64"), ("LDG.E.128", "LDGSTS.E.BYPASS.128", "LDGSTS.E.128")),
}


def arch_of(alg: str) -> str:
    """The oldest architecture that a generator is for."""
    generator = next(g for g in SELECTION.generators() if g.alg == alg)
    return next(arch for arch, device in DEVICES.items() if generator.is_for(device))


@cache
def emitted(
    alg: str, dtype: str, arch: str = "sm_80", cases: tuple[Case, ...] = tuple(CASES)
) -> tuple[str, dict[str, str]]:
    """The PTX of those cases that a generator takes, and the kernels' entries; nothing where there are none."""
    compilation, _ = pinned(alg, dtype, arch, cases)
    if compilation is None:
        return "", {}
    program = emit_program(compilation.loops, arch)
    return program.text, program.entries


def clean(text: str, entries: set[str], arch: str) -> ptxas.Assembled:
    """Assemble, and hold what comes out against what we claim."""
    found = ptxas.assembled(text, arch)
    assert found.kernels.keys() == entries
    assert not found.warnings
    assert {name: usage for name, usage in found.kernels.items() if usage.spills or usage.stack} == {}
    return found


@pytest.mark.parametrize("alg", sorted(CUDA_GENERATORS))
def test_every_generator_has_cases(alg: str) -> None:
    """A new row of the table needs networks here (`cuda_cases.CASES`) that it takes."""
    assert any(alg in takers(case, dtype) for case in CASES for dtype in case.dtypes), (
        f"no case of tests/cuda_cases.py gives generator '{alg}' anything to take: add one, an op in ugly shapes"
    )


#: Generators whose kernels have nothing that is assembled otherwise than other code, and take long: with the slow tests.
PLAIN = ("loops", "simt")


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize(
    "alg", [pytest.param(a, marks=pytest.mark.slow) if a in PLAIN else a for a in sorted(CUDA_GENERATORS)]
)
def test_generators_assemble(alg: str) -> None:
    """All of its cases by dtype, in one module each: what is emitted for sm_80, which later ones run, or for the one that it is for."""
    ptxas.require()
    made_for = arch_of(alg)
    ways = product(DTYPES, ARCHS if made_for == "sm_80" else [made_for])
    for dtype, arch in draw(ways, f"assemble {alg}", every=7, start=sorted(CUDA_GENERATORS).index(alg)):
        text, entries = emitted(alg, dtype, made_for)
        if entries:
            clean(text, set(entries.values()), arch)


@pytest.mark.slow
@pytest.mark.parametrize("alg", sorted(CUDA_GENERATORS))
def test_generators_assemble_for_sm_90(alg: str) -> None:
    """What is emitted for it: other choices, as its processors are others."""
    ptxas.require()
    if arch_of(alg) > "sm_90":
        pytest.skip("it is for a later one")
    for dtype in DTYPES:
        text, entries = emitted(alg, dtype, "sm_90")
        if entries:
            clean(text, set(entries.values()), "sm_90")


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("alg, dtype", sorted(EXPECTED))
def test_expected_instructions(alg: str, dtype: str) -> None:
    if alg not in CUDA_GENERATORS:
        pytest.skip(f"there is no generator '{alg}'")
    taken = [case for case in CASES if dtype in case.dtypes and alg in takers(case, dtype)]
    cases = draw(taken, f"instructions {alg} {dtype}", every=3, start=sorted(EXPECTED).index((alg, dtype)))
    text, entries = emitted(alg, dtype, arch_of(alg), tuple(cases))
    assert entries, f"no case of {dtype} for {alg}"
    code = ptxas.machine_code(clean(text, set(entries.values()), arch_of(alg)).cubin)
    assert code.keys() >= set(entries.values())
    there = {name for counts in code.values() for name in counts}
    for group in EXPECTED[alg, dtype]:
        assert any(name == wanted or name.startswith(f"{wanted}.") for name in there for wanted in group), (
            group,
            sorted(there),
        )
    assert not any(name.split(".")[0] in ("LDL", "STL") for name in there), "local memory"


@pytest.mark.parametrize(
    "name", [n if n == "shufflenetv2" else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
)
def test_networks_assemble(name: str) -> None:
    ptxas.require()
    assemble(name, "sm_80", ARCHS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_assemble_for_sm_90(name: str) -> None:
    ptxas.require()
    assemble(name, "sm_90", ["sm_90"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_f16_assemble_for_sm_90a(name: str) -> None:
    ptxas.require()
    assemble(name, "sm_90a", ["sm_90a"], "f16")


def assemble(name: str, arch: str, archs: Sequence[str], precision: str = "f32") -> None:
    executable = lightnet.compile(NETS / f"{name}.net", "cuda", arch=arch, precision=precision)
    names = {line.kernel for line in executable.native.code.lines if isinstance(line, KernelLine)}
    for other in archs:
        clean(executable.ptx, names, other)


def test_spills_are_seen() -> None:
    """The same kernels with a limit on registers."""
    compilation, _ = pinned("loops", "f32", cases=[c for c in CASES if c.name in ("gelu", "conv 3x3")])
    program = emit_program(compilation.loops, "sm_80")
    limited = program.text.replace(".minnctapersm 1", ".maxnreg 16")
    assert limited != program.text
    found = ptxas.assembled(limited, "sm_80")
    assert any(usage.spills for usage in found.kernels.values())
    with pytest.raises(AssertionError):
        clean(limited, set(program.entries.values()), "sm_80")


def test_what_is_no_ptx_is_refused() -> None:
    with pytest.raises(ptxas.Refused, match="error"):
        ptxas.assembled(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { mov.u32 %r1, 1; }\n", "sm_80")


def test_instructions_of_both_disassemblers() -> None:
    """The formats of nvdisasm and of ``cuobjdump -sass``."""
    line = "        /*0070*/               @P0 EXIT ;                   /* 0x000000000000094d */\n        /*0080*/   FFMA.FTZ R4, R5, R2, RZ ;\n"
    for head in ('\t.section\t.text.k_1,"ax",@progbits\n', "\t\tFunction : k_1\n"):
        assert ptxas.instructions(head + line) == {"k_1": {"EXIT": 1, "FFMA.FTZ": 1}}


def test_assembler_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variable goes before all; without one there is a reason to skip."""
    ptxas.find_tool.cache_clear()
    monkeypatch.setenv("LIGHTNET_PTXAS", "/opt/own/ptxas")
    assert ptxas.find_tool("ptxas") == "/opt/own/ptxas"
    ptxas.find_tool.cache_clear()
    monkeypatch.delenv("LIGHTNET_PTXAS")
    monkeypatch.setattr(assembler, "_packages", lambda: iter([tmp_path]))
    program = tmp_path / "cu13" / "bin" / "ptxas"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert ptxas.find_tool("ptxas") == str(program)
    ptxas.find_tool.cache_clear()
    monkeypatch.setattr(assembler, "_packages", lambda: iter([]))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="no ptxas"):
        ptxas.require()
    ptxas.find_tool.cache_clear()


def test_tools_are_found_where_they_stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside what the variable names, in NVIDIA's packages and on PATH: in this order, each tool for itself, and
    nothing that cannot be executed."""

    def tool(path: str, mode: int = 0o755) -> str:
        (made := tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        made.write_text("#!/bin/sh\n")
        made.chmod(mode)
        return str(made)

    def found(*programs: str) -> list[str | None]:
        ptxas.find_tool.cache_clear()
        return [ptxas.find_tool(program) for program in programs]

    tools = ("ptxas", "nvdisasm", "cuobjdump")
    monkeypatch.delenv("LIGHTNET_PTXAS", raising=False)
    monkeypatch.setattr(assembler, "_packages", lambda: iter([tmp_path / "first", tmp_path / "second"]))
    monkeypatch.setenv("PATH", f"{tmp_path / 'empty'}:{tmp_path / 'bin'}")
    try:
        assert found(*tools) == [None, None, None]
        tool("second/cu13/bin/cuobjdump", 0o644)
        on_path = [tool(f"bin/{name}") for name in tools]
        assert found(*tools) == on_path
        packaged = tool("second/cu13/bin/nvdisasm")
        assert found(*tools) == [on_path[0], packaged, on_path[2]]
        own, beside = tool("own/ptxas"), tool("own/cuobjdump")
        tool("own/nvdisasm", 0o644)
        monkeypatch.setenv("LIGHTNET_PTXAS", own)
        assert found(*tools) == [own, packaged, beside]
    finally:
        ptxas.find_tool.cache_clear()


def test_loops_stay_rolled() -> None:
    """ptxas would unroll the sum of 64 in `_classifier`'s kernel until 255 registers do not suffice."""
    compilation, _ = pinned("loops", "f32", cases=[c for c in CASES if c.name == "deconv 2x2/2, large"])
    text = emit_program(compilation.loops, "sm_80").text
    (rolled,), (unrolled,) = (
        ptxas.assembled(t, "sm_80").kernels.values() for t in (text, text.replace('.pragma "nounroll";', ""))
    )
    assert rolled.registers <= 64 < unrolled.registers


def test_loops_are_found_by_function() -> None:
    """A label is the head of a loop if its own function branches back to it."""
    text = "a\n{\n$L__BB0_1:\n$L__BB0_2:\n@%p1 bra \t$L__BB0_2;\nbra.uni \t$L__BB0_3;\n$L__BB0_3:\n}\nb\n{\n@%p1 bra \t$L__BB0_1;\n$L__BB0_1:\n}\n"
    lines = codegen._rolled(text).splitlines()
    assert [i for i, line in enumerate(lines) if "nounroll" in line] == [lines.index("$L__BB0_2:") + 1]
