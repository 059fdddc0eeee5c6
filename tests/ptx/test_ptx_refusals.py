"""What the PTX interpreter does not read: each refusal by its text; and, where there is a limit, what lies just within it is read."""

from __future__ import annotations

import pytest
from ptx_kernels import PROLOGUE
from test_ptx_machine import kernel

from lightnet.diagnostics import LightNetError
from lightnet_ptx import decode, text, tokens
from lightnet_ptx.emulator import Emulator, Module


def load(source: str) -> Module:
    return Emulator().load(source)


def said(source: str) -> str | None:
    """The message where a text is refused."""
    try:
        load(source)
    except LightNetError as error:
        assert error.loc is not None
        return error.message
    return None


ENTRY = ".visible .entry k() { ret; }"
VECTOR4 = "{%f1, %f2, %f3, %f4}"
#: What stands in a module, and what is said of it; None: it is read.
MODULES = [
    (f"; {ENTRY} ;", None),
    (".visible .entry k { ret; }", None),
    (f".func f(.param .b64 a); {ENTRY} .func f(.param .b64 a) {{ ret; }} .func f(.param .b64 a);", None),
    (".entry k() { ret; } .entry k() { ret; }", "function k is defined twice"),
    (".global .u32 a; .global .u32 a;", "variable a is declared twice"),
    (".global .v2 .f32 a[2], b; .const .u32 c[2][3];", None),
    (".global .attribute(.managed) .u32 a;", "attributes of variables are not understood"),
    (".global .align 3 .u32 a;", "alignment 3 of a is no power of two"),
    (".global .align 4096 .u32 a;", None),
    (".global .align 4097 .u32 a;", "an alignment is 4097, which is not in 1..4096"),
    (".global .u32 a[1] = {1, 2};", "a of 4 bytes does not hold its initial values"),
    (".global .u32 a[0] = 1;", "a of 0 bytes does not hold its initial values"),
    (".global .u32 a = };", "a of 4 bytes does not hold its initial values"),
    (".global .u32 a[4] = {{1, 2}, {3}};", None),
    (".global .u32 a = 1.5;", "a floating-point constant is no .u32"),
    (".global .b32 a = 1.5; .global .b64 b = 1.5; .global .f64 c = 0d3FF8000000000000;", None),
    (".global .u64 a = 1.5;", "a floating-point constant is no .u64"),
    (".global .b16 a = 1.5;", "a floating-point constant is no .b16"),
    (".global .s8 a = 255; .global .s8 b = -128;", None),
    (".global .s8 a = 256;", "256 does not fit into 8 bits"),
    (".global .s8 a = -129;", "-129 does not fit into 8 bits"),
    (".global .u64 a = 0b" + "1" * 64 + "U;", None),
    (".global .u64 a = 0b" + "1" * 65 + "U;", "a number of 68 digits"),
    (".extern .global .u32 a;", "variable a is defined in no module"),
    (".entry k(.param .u64 a .param .u64 b) { ret; }", "expected ',' or ')', found '.param'"),
    (".entry k(.param .b8 a[4096]) { ret; }", None),
    (".entry k(.param .b8 a[4097]) { ret; }", "the parameters of k have 4097 bytes, at most 4096 are allowed"),
]


@pytest.mark.parametrize("head", [".version 1.e5", ".version 0f3F800000"])
def test_versions_that_are_none(head: str) -> None:
    assert str(said(PROLOGUE.replace(".version 8.0", head))).startswith("expected a version such as 8.0")


def test_modules() -> None:
    assert [(source, said(PROLOGUE + source)) for source, _ in MODULES] == MODULES


DYNAMIC = ".shared .align 4 .b8 outer[12]; .extern .shared .align 128 .b8 d[];"
CALLED = ".func (.param .b32 r) f(.param .b64 a) { ret; } .func g(.param .b64 a); .func h() { call h; ret; } .func n() { ret; }"
CALL = "{ .param .b64 a; .param .b32 r; .param .b32 s; .shared .b64 sh; call (R), f, (A); }"
MMA_F16 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
#: What stands in a kernel (of `test_ptx_machine.kernel`), and what is said of it.
BODIES = [
    ("; ; mov.u32 %r2, 010; st.global.u32 [%rd2-4], %r2; ld.global.u32 %r2, [%rd2+-4];", None),
    ("ld.global.u32 %r2, [%rd2-2147483648]; ld.global.u32 %r2, [%rd2+4294967296];", None),
    ("ld.global.u32 %r2, [%rd2-2147483649];", "an offset is -2147483649, which is not in -2147483648..4294967296"),
    ("ld.global.u32 %r2, [%rd2+4294967297];", "an offset is 4294967297, which is not in -2147483648..4294967296"),
    ("L: L: ret;", "label L is defined twice"),
    ("L: .branchtargets A; L: A: ret;", "label L is defined twice"),
    ("A: L: .branchtargets A; L: .branchtargets A;", "label L is defined twice"),
    ("mov.b64 %rd3, {%r1 %r2};", "expected ',' or '}', found '%r2'"),
    ("L: .branchtargets A; { brx.idx %r1, L; { bra A; } } A: ret;", None),
    ("brx.idx %r1, L;", "brx.idx: no table of labels L"),
    ("add.u32 %r2, {%r1, %r1}, 1;", "add.u32: a register or a number is expected here"),
    ("add.u32 %r2, !%r1, 1;", "add.u32: '!' is for predicates"),
    ("add.u32 %r2, %h1, 1;", "add.u32: register %h1 of 16 bits where 32 are expected"),
    ("add.u32 %r2, %rd1, 1;", "add.u32: register %rd1 of 64 bits where 32 are expected"),
    ("cvt.u64.u16 %rd3, %r1; cvt.u16.u32 %r2, %r1;", None),
    ("cvt.u16.u32 %h1, %h2;", "cvt.u16.u32: register %h2 of 16 bits where 32 are expected"),
    ("add.u32 5, %r1, 1;", "add.u32: the result must go to a register"),
    ("add.u32 _, %r1, 1;", None),
    ("add.u32 %p1|%p2, %r1, 1;", "add.u32: has one result"),
    ("ld.global.u32 %r2, %rd2;", "ld.global.u32: an address in brackets is expected"),
    ("ld.global.u32 %r2, [%rd2, {%r1}];", "ld.global.u32: an address without coordinates is expected"),
    ("ld.global.u32 %r2, [1.5];", "ld.global.u32: an address is an integer"),
    ("ld.global.u32 %r2, [%r1];", "ld.global.u32: an address in %r1, which has 32 bits"),
    ("ld.shared.u32 %r2, [%h1];", "ld.shared.u32: an address in %h1, which has 16 bits"),
    ("ld.shared.u32 %r2, [%r1]; ld.local.u32 %r2, [%r1]; ld.const.u32 %r2, [%r1];", None),
    ("ld.shared.nc.u32 %r2, [%r1];", "ld.shared.nc.u32: .nc is for global memory"),
    ("ld.nc.u32 %r2, [%rd2];", "ld.nc.u32: .nc is for global memory"),
    ("ld.global.v2.u32 %r2, [%rd2];", "ld.global.v2.u32: a vector of 2 registers is expected"),
    ("st.global.v2.u32 [%rd2], {%r1, %r1, %r1};", "st.global.v2.u32: a vector of 2 registers is expected"),
    ("mov.b32 %r2, {%h1, %h2, %h3};", "mov.b32: a vector of 3 for b32"),
    ("mov.b32 %r2, {%r1};", None),
    ("mov.b64 %rd3, {%rd1};", "mov.b64: a vector of 1 for b64"),
    ("mov.b32 {}, %r1;", "mov.b32: a vector of 0 for b32"),
    ("cp.async.ca.shared.global [%r1], [%rd2], 2;", "cp.async.ca.shared.global: copies 4, 8 or 16 bytes (.cg: 16)"),
    ("cp.async.cg.shared.global [%r1], [%rd2], 8;", "cp.async.cg.shared.global: copies 4, 8 or 16 bytes (.cg: 16)"),
    ("cp.async.cg.shared.global [%r1], [%rd2], 16; cp.async.ca.shared.global [%r1], [%rd2], 4;", None),
    ("atom.global.add.b32 %r2, [%rd2], %r1;", "atom.global.add.b32: instruction atom.global.add.b32 is not understood"),
    ("red.global.exch.b32 [%rd2], %r1;", "red.global.exch.b32: instruction red.global.exch.b32 is not understood"),
    ("red.global.cas.b32 [%rd2], %r1, %r1;", "red.global.cas.b32: instruction red.global.cas.b32 is not understood"),
    (f"{MMA_F16} {VECTOR4}, {{%r1, %r1}}, {{%r1, %r1}}, {VECTOR4};", f"{MMA_F16}: a vector of 1 registers is expected"),
    (f"{MMA_F16} {VECTOR4}, {{%r1, %r1}}, %r1, {VECTOR4};", f"{MMA_F16}: a vector of 1 registers is expected"),
    (f"{MMA_F16} {{%f1, _, %f3, %f4}}, {{%r1, %r1}}, {{%r1}}, {VECTOR4};", None),
    (".local .b8 l[524288];", None),
    (".local .b8 l[524289];", "local memory of 524289 bytes"),
    (".shared .b8 s[232448];", None),
    (".shared .b8 s[232449];", "shared memory of 232449 bytes"),
    (".global .u32 g;", ".global variables inside functions are not understood"),
    ("call;", "call of , which the module does not define"),
    ("call ();", "call of , which the module does not define"),
    ("call g, (%r1);", "call of g, which the module does not define"),
    ("call n, (), 5;", "call of n, which the module does not define"),
    ("call n; call n, (); call.uni (), n, ();", None),
    ("@%p1 call n;", "a predicated call is not understood"),
    ("call h;", "recursive call of h"),
    (CALL.replace("R", "r").replace("A", "a"), None),
    (CALL.replace("(R), ", "").replace("A", "a"), "call of f with 1 arguments and 0 results"),
    (CALL.replace("R", "r").replace("(A)", "(a, a)"), "call of f with 2 arguments and 1 results"),
    (CALL.replace("R", "r").replace("A", "s"), "an argument of f is no .param variable of 8 bytes"),
    (CALL.replace("R", "r").replace("A", "nothing"), "an argument of f is no .param variable of 8 bytes"),
    (CALL.replace("R", "r").replace("A", "sh"), "an argument of f is no .param variable of 8 bytes"),
    (CALL.replace("R", "a").replace("A", "a"), None),
]


def test_bodies() -> None:
    assert [(body, said(kernel(body, functions=CALLED))) for body, _ in BODIES] == BODIES


def test_depths_and_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes within scopes, calls within calls, characters, instructions, bytes of a variable."""
    load(kernel("{" * 64 + "}" * 64))
    assert said(kernel("{" * 65 + "}" * 65)) == "scopes are nested too deeply"
    chain = ".func f0() { ret; }" + "".join(f".func f{i}() {{ call f{i - 1}; ret; }}" for i in range(1, 33))
    load(kernel("call f31;", functions=chain))
    assert said(kernel("call f32;", functions=chain)) == "recursive call of f0"
    source = kernel("")
    code = len(load(source).function("k").code)
    with monkeypatch.context() as patch:
        patch.setattr(text, "MAX_TEXT", len(source))
        load(source)
        patch.setattr(text, "MAX_TEXT", len(source) - 1)
        with pytest.raises(
            LightNetError, match=rf"the PTX has {len(source)} characters, at most {len(source) - 1} are"
        ):
            load(source)
    with monkeypatch.context() as patch:
        patch.setattr(decode, "MAX_CODE", code)
        load(source)
        patch.setattr(decode, "MAX_CODE", code - 1)
        assert said(source) == "the kernel has too many instructions with its calls expanded"
    assert text.parse(f"{PROLOGUE} .global .b8 a[{tokens.MAX_VARIABLE}];").variables["a"].size == 1 << 31
    assert said(f"{PROLOGUE} .global .b16 a[{(1 << 30) + 1}];") == f"variable a has {(1 << 31) + 2} bytes"


def test_where_variables_stand() -> None:
    """Static ones in the order of the text, each at its alignment, with a gap behind; the dynamic one behind all."""
    source = kernel(
        "mov.u32 %r2, outer; mov.u32 %r3, d; mov.u32 %r4, e;",
        variables=DYNAMIC + ".extern .shared .align 8 .b8 e[]; .shared .u32 unused;",
    )
    found = load(source).function("k")
    assert {name: (s.address, s.size, s.align) for name, s in found.shared.items()} == {"outer": (0, 12, 4)}
    assert (found.dynamic_at, found.shared_bytes) == (128, 128)
    vectors = load(kernel(".shared .v2 .f32 a[3], b; .shared .align 16 .u8 c;")).function("k").shared
    assert {name: (s.address, s.size, s.align) for name, s in vectors.items()} == {
        "a": (0, 24, 8),
        "b": (40, 8, 8),
        "c": (64, 1, 16),
    }


#: Grid, block, bytes of dynamic shared memory, and what is said of the launch.
LAUNCHES = [
    ((1, 1, 1), (1024, 1, 1), 0, None),
    ((1, 1, 1), (1025, 1, 1), 0, "grid (1, 1, 1) of blocks (1025, 1, 1)"),
    ((1, 1, 1), (32, 33, 1), 0, "grid (1, 1, 1) of blocks (32, 33, 1)"),
    ((1, 1, 1), (8, 2, 64), 0, None),
    ((1, 1, 1), (1, 1, 65), 0, "grid (1, 1, 1) of blocks (1, 1, 65)"),
    ((1, 1, 1), (0, 1, 1), 0, "grid (1, 1, 1) of blocks (0, 1, 1)"),
    ((1, 65535, 1), (1, 1, 1), 0, None),
    ((1, 65536, 1), (1, 1, 1), 0, "grid (1, 65536, 1) of blocks (1, 1, 1)"),
    ((1, 1, 65536), (1, 1, 1), 0, "grid (1, 1, 65536) of blocks (1, 1, 1)"),
    ((1 << 31, 1, 1), (1, 1, 1), 0, "grid (2147483648, 1, 1) of blocks (1, 1, 1)"),
    (((1 << 31) - 1, 1, 1), (1, 1, 1), 0, "grid (2147483647, 1, 1): the interpreter takes up to 16777216 blocks"),
    ((512, 512, 64), (1, 1, 1), 0, "grid (512, 512, 64): the interpreter takes up to 16777216 blocks"),
    (((1 << 24) - 1, 1, 1), (1, 1, 1), 0, None),
    ((1, 1, 1), (1, 1, 1), (163 << 10) - 64, None),
    ((1, 1, 1), (1, 1, 1), (163 << 10) - 63, "64 bytes of static and 166849 of dynamic shared memory; a block may have 49152 static, 166912 in all"),
    ((1, 1, 1), (1, 1, 1), -1, "64 bytes of static and -1 of dynamic shared memory; a block may have 49152 static, 166912 in all"),
]  # fmt: skip


#: KiB of shared memory that a block may have, by compute capability (CUDA C++ Programming Guide, technical
#: specifications).
SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227}


@pytest.mark.parametrize("arch", SHARED)
@pytest.mark.parametrize("static", [0, 64, 48 << 10])
def test_shared_memory_of_each_device(arch: str, static: int) -> None:
    """Static and dynamic together: just so much is taken, and one byte more is not."""
    from lightnet.runtime.cuda.driver import DeviceLaunch

    device = Emulator(arch)
    function = device.load(kernel(f".shared .b8 s[{static}];" if static else "")).function("k")
    room = (SHARED[arch] << 10) - static
    device._verify(function, DeviceLaunch(function, (1, 1, 1), (1, 1, 1), room, ()))
    with pytest.raises(LightNetError, match=f"49152 static, {SHARED[arch] << 10} in all"):
        device._verify(function, DeviceLaunch(function, (1, 1, 1), (1, 1, 1), room + 1, ()))


def test_launches() -> None:
    from lightnet.runtime.cuda.driver import DeviceLaunch

    def verdict(source: str, grid, block, shared) -> str | None:
        device = Emulator()
        function = device.load(source).function("k")
        try:
            device._verify(function, DeviceLaunch(function, grid, block, shared, ()))
        except LightNetError as error:
            return error.message
        return None

    source = kernel(".shared .b8 s[64];")
    for grid, block, shared, want in LAUNCHES:
        assert verdict(source, grid, block, shared) == (want and f"launch of k refused: {want}"), (grid, block, shared)
    one = ((1, 1, 1), (1, 1, 1), 0)
    assert verdict(kernel(f".shared .b8 s[{48 << 10}];"), *one) is None
    assert verdict(kernel(f".shared .b8 s[{(48 << 10) + 1}];"), *one).startswith(
        "launch of k refused: 49153 bytes of static"
    )
    limited = kernel("").replace("\n{ ", "\n.maxntid 8, 4, 2\n{ ", 1)
    assert verdict(limited, (1, 1, 1), (8, 8, 1), 0) is None
    assert (
        verdict(limited, (1, 1, 1), (65, 1, 1), 0)
        == "launch of k refused: block (65, 1, 1) of more than (8, 4, 2) threads"
    )
    for block in ((16, 5, 1), (4, 4, 5)):
        assert (
            verdict(limited, (1, 1, 1), block, 0)
            == f"launch of k refused: block {block} of more than (8, 4, 2) threads"
        )
    required = kernel("").replace("\n{ ", "\n.reqntid 8\n{ ", 1)
    assert verdict(required, (1, 1, 1), (8, 1, 1), 0) is None
    assert (
        verdict(required, (1, 1, 1), (8, 2, 1), 0)
        == "launch of k refused: block (8, 2, 1), and the kernel requires (8,)"
    )
