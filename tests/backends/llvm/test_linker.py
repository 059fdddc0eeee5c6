"""The static linker of saved executables, against LLVM's own linker and against the C library."""

from __future__ import annotations

import ctypes
import math
import os
import random
from dataclasses import replace

import llvmlite.binding as llvm
import pytest

from lightnet.backends.llvm.jit import CodeMachine, Compiler
from lightnet.diagnostics import LightNetError
from lightnet.runtime import elf
from lightnet.runtime.image import LoadedImage
from lightnet.runtime.linker import can_link, exported_symbols, link
from lightnet.runtime.lnx import PAGE

pytestmark = pytest.mark.skipif(
    not llvm.get_default_triple().startswith("x86_64") or os.name != "posix", reason="the linker knows x86-64 ELF"
)

# Variables (through the table of addresses), a table of pointers, constants, calls into the other object and into libm, and the
# address of a function of libm.
FIRST = """
@counter = global i32 5
@zeros = internal global [5000 x i8] zeroinitializer, align 64
@table = constant [2 x ptr] [ptr @twice, ptr @ln_next]
@words = internal constant [4 x i32] [i32 3, i32 1, i32 4, i32 1], align 32
declare double @pow(double, double)
declare double @sin(double)
declare i32 @twice(i32)
define i32 @ln_next() {
  %v = load i32, ptr @counter
  %n = add i32 %v, 1
  store i32 %n, ptr @counter
  ret i32 %n
}
define i32 @ln_word(i64 %i) {
  %p = getelementptr [4 x i32], ptr @words, i64 0, i64 %i
  %v = load i32, ptr %p
  ret i32 %v
}
define i32 @ln_zero(i64 %i) {
  %p = getelementptr [5000 x i8], ptr @zeros, i64 0, i64 %i
  %v = load i8, ptr %p
  store i8 7, ptr %p
  %w = sext i8 %v to i32
  ret i32 %w
}
define i32 @ln_call(i64 %i, i32 %x) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
  %f = load ptr, ptr %p
  %v = call i32 %f(i32 %x)
  ret i32 %v
}
define i32 @ln_direct(i32 %x) {
  %v = call i32 @twice(i32 %x)
  ret i32 %v
}
define double @ln_pow(double %x, double %y) {
  %v = call double @pow(double %x, double %y)
  ret double %v
}
define ptr @ln_sin() {
  ret ptr @sin
}
"""
SECOND = """
define i32 @twice(i32 %x) {
  %v = mul i32 %x, 2
  ret i32 %v
}
"""


def objects(*texts: str) -> list[bytes]:
    compiler = Compiler(CodeMachine.host())
    return [compiler.run(text, False, True) for text in texts]


def loaded(*texts: str) -> LoadedImage:
    made = objects(*texts)
    return LoadedImage(link(made, exported_symbols(made)))


def call(image: LoadedImage, name: str, *args: int, result: type = ctypes.c_int32) -> int:
    types = [
        ctypes.c_int64 if name in ("ln_word", "ln_zero") or (name == "ln_call" and i == 0) else ctypes.c_int32
        for i in range(len(args))
    ]
    return ctypes.CFUNCTYPE(result, *types)(image.address(name))(*args)


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_every_kind_of_reference(order: tuple[str, str]) -> None:
    image = loaded(*order)
    assert [call(image, "ln_next") for _ in range(3)] == [6, 7, 8]
    assert [call(image, "ln_word", i) for i in range(4)] == [3, 1, 4, 1]
    assert [call(image, "ln_zero", i) for i in (0, 4999, 4999)] == [0, 0, 7]
    assert call(image, "ln_direct", 21) == 42
    assert call(image, "ln_call", 0, 50) == 100 and call(image, "ln_call", 1, 0) == 9
    power = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(image.address("ln_pow"))
    assert power(2.5, 3.5) == math.pow(2.5, 3.5)
    sine = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(call(image, "ln_sin", result=ctypes.c_void_p))
    assert sine(0.7) == math.sin(0.7)


def test_each_loading_has_variables_of_its_own() -> None:
    made = objects(FIRST, SECOND)
    image = link(made, exported_symbols(made))
    first, second = LoadedImage(image), LoadedImage(image)
    assert call(first, "ln_next") == 6 and call(second, "ln_next") == 6 and call(first, "ln_next") == 7


def test_code_is_not_writable() -> None:
    image = loaded(FIRST, SECOND)
    start = image.address("ln_next") // PAGE * PAGE
    with open("/proc/self/maps") as maps:
        rows = [line.split() for line in maps]
    mode = next(r[1] for r in rows if int(r[0].split("-")[0], 16) <= start < int(r[0].split("-")[1], 16))
    assert mode.startswith("r-x"), mode


@pytest.mark.parametrize(
    "texts, exports, words",
    [
        ((SECOND,), ("ln_absent",), "no 'ln_absent'"),
        ((SECOND, SECOND.replace("mul", "add")), (), "two compiled objects define 'twice'"),
        (("@here = thread_local global i32 0\ndefine ptr @ln_tls() {\n  ret ptr @here\n}",), (), "thread-local"),
        (("@there = external hidden global i32\ndefine ptr @ln_far() {\n  ret ptr @there\n}",), (), "'there'"),
    ],
)
def test_what_cannot_be_linked_is_refused(texts: tuple[str, ...], exports: tuple[str, ...], words: str) -> None:
    with pytest.raises(LightNetError, match=words):
        link(objects(*texts), exports)


def test_a_function_that_the_process_lacks() -> None:
    text = "declare void @no_such_function()\ndefine void @ln_f() {\n  call void @no_such_function()\n  ret void\n}"
    with pytest.raises(LightNetError, match="no function 'no_such_function'"):
        loaded(text)


def test_other_objects_are_left_to_llvm() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    arm = Compiler(CodeMachine("generic", "", "aarch64-unknown-linux-gnu")).run(SECOND, False, False)
    assert elf.elf_machine_of(arm) == elf.AARCH64
    assert not can_link([arm]) and not can_link([*objects(SECOND), arm]) and can_link(objects(SECOND))
    for bad in (b"", b"\x7fELF", b"MZ" * 100):
        assert not can_link([bad])
        with pytest.raises(LightNetError):
            elf.read_object(bad)


def test_damaged_objects_are_refused_or_linked_to_something() -> None:
    """Every exception is a `LightNetError`, and no length out of the file decides how much memory is taken."""
    (whole,) = objects(FIRST)
    draw = random.Random(4)
    headers = int.from_bytes(whole[40:48], "little")
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 1, 3))):
            at = draw.choice(
                (draw.randrange(20, len(whole)), draw.randrange(headers, len(whole)), draw.randrange(40, 64))
            )
            damaged[at] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        try:
            assert len(link([bytes(damaged)], ()).data) < 2 * elf.MAX_ZEROS
        except LightNetError:
            continue


@pytest.mark.parametrize("change", [{"relative": (1 << 40,)}, {"imports": {"sin": -8}}, {"exports": {"ln_f": PAGE * 50}}, {"writable": 4096.0},
                                    {"relative": ("0",)}, {"writable": 1 << 40}])  # fmt: skip
def test_addresses_outside_of_an_image_are_refused(change: dict) -> None:
    made = objects(FIRST, SECOND)
    with pytest.raises(LightNetError, match="damaged"):
        LoadedImage(replace(link(made, ()), **change))
