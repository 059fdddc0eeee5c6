"""PTX by kernel: from the cache on disk where it is there, put together as one text; right, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_device import op_kernel, parse

import lightnet
from lightnet.backends.cuda import assembly, codegen
from lightnet.backends.cuda.nvptx import emit_llvm, emit_program
from lightnet.backends.llvm import cache
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet_ptx.emulator import Emulator

EXAMPLES = Path(__file__).parents[3] / "examples"
DOUBLE = op_kernel("double", "arith.addf %a, %a : f32", "f32", "f32", 1)
SQUARE = op_kernel("square", "arith.mulf %a, %a : f32", "f32", "f32", 1)
#: Two kernels that need a function of the library each, the same one.
SINES = "".join(op_kernel(n, f"math.{n} %a : f32", "f32", "f32", 1) for n in ("sin", "cos"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LLVM really compiles; a process that has compiled nothing yet."""
    seen: list[str] = []
    ptx = codegen.ptx.__wrapped__

    def spy(text: str, arch: str, version: int) -> str:
        seen.append(text)
        return ptx(text, arch, version)

    monkeypatch.setattr(assembly.codegen, "ptx", spy)
    return seen


def test_a_second_process_compiles_nothing(folder: Path, compiled: list[str]) -> None:
    first = emit_program(parse(DOUBLE + SQUARE))
    assert len(compiled) == 2
    assert emit_program(parse(DOUBLE + SQUARE)) == first and len(compiled) == 2
    assert emit_program(parse(SQUARE)).text.count(".entry") == 1 and len(compiled) == 2
    emit_program(parse(SQUARE + SINES))
    assert len(compiled) == 4


def test_names_are_not_in_the_key(folder: Path, compiled: list[str]) -> None:
    """Equal kernels of different networks."""
    one, other = (emit_program(parse(text)) for text in (SQUARE, SQUARE.replace("@square", "@another")))
    assert (
        len(compiled) == 1 and ".entry another(" in other.text and other.text == one.text.replace("square", "another")
    )


def test_what_decides_the_text_is_in_the_key(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = parse(SQUARE)
    made = [emit_program(module, *how).text for how in (("sm_80", 80), ("sm_90", 80), ("sm_80", 82))]
    assert len(compiled) == 3 == len(set(made))
    monkeypatch.setattr(cache.llvmlite, "__version__", "another")
    emit_program(module)
    monkeypatch.setattr(assembly, "FORMAT", "another")
    emit_program(module)
    assert len(compiled) == 5


def test_a_damaged_entry_is_made_again(folder: Path, compiled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    want = emit_program(parse(SQUARE))
    (entry,) = folder.glob("*.lno")
    entry.write_bytes(entry.read_bytes().replace(b"mul", b"add"))
    assert emit_program(parse(SQUARE)) == want and len(compiled) == 2
    assert main(["cache"]) == 0 and "entries  1\n" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0 and not list(folder.glob("*.lno"))


def test_without_a_cache_the_text_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = EXAMPLES / "nets/lenet.net"
    texts = [lightnet.compile(net, "cuda").ptx for _ in range(2)]
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "off")
    texts.append(lightnet.compile(net, "cuda").ptx)
    assert len(set(texts)) == 1 and list(folder.glob("*.lno"))


def test_kernels_alone_are_those_of_the_whole() -> None:
    """What a kernel calls comes with it, and comes once."""
    module = parse(SINES + SQUARE)
    whole, entries = emit_llvm(module)
    apart = emit_program(module)
    assert apart.entries == entries
    found, wanted = (Emulator().load(t).kernels for t in (apart.text, codegen.ptx(whole, "sm_80", 80)))
    assert {n: len(k.sites) for n, k in found.items()} == {n: len(k.sites) for n, k in wanted.items()}


def test_a_module_without_kernels_is_ptx() -> None:
    text = emit_program(parse("func.func private @f() {\n  func.return\n}")).text
    assert not Emulator().load(text).kernels


HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_variables_stand_once() -> None:
    table = ".global .align 4 .b8 table[4] = {1, 2, 3, 4};"
    one, two = (f"{HEADER}\n{table}\n.visible .entry {n}()\n{{\n.reg .b32 %r;\nret;\n}}\n" for n in ("a", "b"))
    text = assembly.join([one, two])
    assert text.count(table) == 1 and text.count(HEADER) == 1 and text.count(".reg .b32 %r;") == 2
    assert text.index("table") < text.index("entry a") < text.index("entry b")
    with pytest.raises(LightNetError, match="two kernels have a variable 'table' each"):
        assembly.join([one, two.replace("{1,", "{0,")])
    with pytest.raises(LightNetError, match="different devices"):
        assembly.join([one, two.replace("sm_80", "sm_90")])


def test_declarations_outside_of_functions_are_told_by_braces() -> None:
    """Wherever they stand among functions, and whatever braces a line has; what is declared in a function stays there."""
    table, shared = ".global .b8 table[2] = {1, 2};", ".extern .shared .align 16 .b8 dynamic[];"
    within = ".reg .b32 %r;\n{ // a call\n.param .b32 p;\n}\n{ .reg .b32 %s; }\nret;"
    kernels = [f".entry {n}()\n{{\n{within}\n}}" for n in "abcd"]
    texts = [
        "\n".join([HEADER, table, kernels[0], shared, kernels[1]]),
        "\n".join([HEADER, kernels[2], table, shared]),
        "\n".join([HEADER, kernels[3].replace("()\n{", "() {"), shared]),
    ]
    joined = assembly.join(texts)
    lines = joined.splitlines()
    alike = [line for line in lines if line.startswith((".global", ".extern"))]
    assert alike == [table, shared] and lines.index(shared) < lines.index(".entry a()")
    assert joined.count(within) == 4
    with pytest.raises(LightNetError, match="two kernels have a variable 'dynamic' each"):
        assembly.join([*texts, texts[1].replace("align 16", "align 8")])
