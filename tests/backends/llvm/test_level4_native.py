"""The launch list, the objects and the caches: what the native back end adds around kernels."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from level4_runner import aligned, parse
from xdsl.dialects import arith
from xdsl.dialects.builtin import FunctionType, MemRefType, ModuleOp, f32
from xdsl.dialects.func import FuncOp, ReturnOp

from lightnet.backends.builder import Builder, vector_type
from lightnet.backends.llvm import jit
from lightnet.backends.llvm.emitter import emit_module
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import HostOp, LaunchOp
from lightnet.ir.place import PlaceAttr
from lightnet.ir.verify import verify_module
from lightnet.runtime.image import HOST_FUNCTION
from lightnet.runtime.native import NativeCode
from lightnet_trust.interpreter.loops import run_main


def add_kernel(name: str) -> FuncOp:
    """o = x + y on 4 blocks of 8."""
    memory = MemRefType(f32, [4, 8])
    b = Builder.kernel(name, [memory, memory, memory])
    x, y, o = b.args
    with b.loop(b.lo, b.hi) as i, b.loop(0, 8) as j:
        at = [i.iv, j.iv]
        b.store(b.op(arith.AddfOp, b.load(x, at), b.load(y, at)), o, at)
    return b.finish()


def program(kernels: list[FuncOp], lines: list) -> ModuleOp:
    main = FuncOp("main", FunctionType.from_lists([], []))
    main.body.block.add_ops([*lines, ReturnOp()])
    return ModuleOp([*kernels, main])


def arena(*offsets: int) -> list[PlaceAttr]:
    return [PlaceAttr("arena", o) for o in offsets]


def fibonacci(steps: int) -> ModuleOp:
    """Step n adds memory n and n + 1 into n + 2 (modulo 4 places); every 100 steps the host looks at one place."""
    lines = []
    for n in range(steps):
        if n % 100 == 0:
            lines.append(HostOp("look", [PlaceAttr("static", 0), *arena(128 * (n % 4))]))
        lines.append(LaunchOp("add", 4, arena(*(128 * ((n + k) % 4) for k in range(3)))))
    return program([add_kernel("add")], lines)


def test_main_runs_launches_and_host_calls_in_order():
    """More lines than a chunk holds, both spaces, and the interpreter sees the same bytes at each host call."""
    module = fibonacci(600)
    verify_module(module)
    memory, static = aligned(np.zeros(512, np.uint8)), aligned(np.arange(64, dtype=np.uint8))
    memory[:256].view(np.float32)[:] = 1e-30
    seen: list[tuple[int, bytes, bytes]] = []

    def expect(call: int, args: list[np.ndarray]) -> None:
        seen.append((call, args[0][:64].tobytes(), args[1][:128].tobytes()))

    interpreted = memory.copy()
    run_main(module, interpreted, static, expect)
    native: list[tuple[int, bytes, bytes]] = []

    @HOST_FUNCTION
    def host(call: int, args) -> None:
        native.append((call, ctypes.string_at(args[0], 64), ctypes.string_at(args[1], 128)))

    compiled = jit.compile_module(module, verify=True)
    frame = np.array([memory.ctypes.data, static.ctypes.data, ctypes.cast(host, ctypes.c_void_p).value], np.uint64)
    compiled.code.entry()(frame.ctypes.data)
    assert native == seen and [call for call, _, _ in seen] == list(range(6))
    assert memory.tobytes() == interpreted.tobytes()
    assert "add" in compiled.llvm_ir and "ret" in compiled.assembly


def test_equal_kernels_are_compiled_once():
    """The name of a kernel is not part of its machine code, nor are names of values."""
    lines = [LaunchOp(name, 4, arena(0, 128, 256)) for name in ("one", "two")]
    module = program([add_kernel("one"), add_kernel("two")], lines)
    compiled = jit.compile_module(module)
    assert len(compiled.emitted.kernels) == 1 and len(compiled.objects) == 2
    assert jit.compile_module(module).objects[0] is compiled.objects[0]


def test_code_that_is_not_optimized_is_kept_apart():
    """In this process and on disk: neither is ever given for the other. That it computes the same, test_ops.py and test_semantics.py show."""
    module, host = fibonacci(3), jit.CodeMachine.host()
    plain = replace(host, optimized=False)
    kernel = next(iter(jit.compile_module(module).emitted.kernels))
    made = [jit.compile_module(module, machine=m).objects[0] for m in (host, plain, host, plain)]
    assert made[0] == made[2] != made[1] == made[3] and host.key != plain.key
    assert [jit._objects.get(m, kernel) for m in (host, plain)] == made[:2]
    ways = dict(zip((host, plain), made))
    for machine, image in ways.items():
        jit._objects._images.pop((machine, kernel))
        assert jit.compile_module(module, machine=machine).objects[0] == image  # from the disk


def test_objects_load_without_a_compiler(tmp_path):
    """A stored object runs in a process that has neither xDSL nor the compiler."""
    compiled = jit.compile_module(fibonacci(3))
    for k, image in enumerate(compiled.objects):
        (tmp_path / f"{k}.o").write_bytes(image)
    script = f"""
import ctypes, pathlib, sys
from lightnet.runtime.image import HOST_FUNCTION
from lightnet.runtime.native import NativeCode
code = NativeCode([p.read_bytes() for p in sorted(pathlib.Path({str(tmp_path)!r}).glob("*.o"))])
memory = (ctypes.c_float * 128)(*[1.0] * 64)
memory = ctypes.create_string_buffer(bytes(memory) + bytes(64))
start = -ctypes.addressof(memory) % 64
ctypes.memmove(ctypes.addressof(memory) + start, bytes((ctypes.c_float * 128)(*[1.0] * 64)), 512)
host = HOST_FUNCTION(lambda call, args: None)
frame = (ctypes.c_void_p * 3)(ctypes.addressof(memory) + start, 0, ctypes.cast(host, ctypes.c_void_p))
code.entry()(ctypes.addressof(frame))
print(ctypes.c_float.from_buffer(memory, start + 3 * 128).value, "xdsl" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["3.0", "False"], done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LaunchOp("missing", 1, []), "unknown kernel @missing"),
        (LaunchOp("add", 1, arena(0)), "takes 3 memrefs, launched with 1"),
        (LaunchOp("add", 1, [PlaceAttr("moon", 0)] * 3), "no memory space 'moon'"),
    ],
)
def test_bad_launches(line, message: str):
    with pytest.raises(LightNetError, match=message):
        emit_module(program([add_kernel("add")], [line]))


def test_unknown_op_is_named():
    text = """
func.func @k(%lo: index, %hi: index, %x: memref<4xf32>) {
  %y = memref.alloc() : memref<4xf32>
  func.return
}"""
    with pytest.raises(LightNetError, match=r"no op 'memref.alloc'"):
        emit_module(parse(text))
    with pytest.raises(LightNetError, match=r"no op 'memref.alloc'"):
        run_main(program([next(iter(parse(text).ops)).clone()], [LaunchOp("k", 1, arena(0))]), bytearray(64))


def test_stack_is_bounded():
    text = "func.func @k(%lo: index, %hi: index) {\n %y = memref.alloca() : memref<100000xf32>\n func.return\n}"
    with pytest.raises(LightNetError, match="400000 bytes of stack"):
        emit_module(parse(text))


def test_open_symbols_are_reported():
    with pytest.raises(LightNetError, match="no 'nothing'"):
        NativeCode([]).address("nothing")


def test_generated_code_is_tiled():
    """A 6 x 4-vector GEMM tile: the hot loop has 8 x 24 fused multiply-adds, and nothing is spilled to the stack."""
    if jit.CodeMachine.host().vectors.width != 16:
        pytest.skip("needs 32 vector registers of 512 bits")
    b = Builder.kernel("gemm", [MemRefType(f32, s) for s in ([12, 64], [64, 64], [12, 64])], opt="none")
    x, y, o = b.args
    with b.loop(b.lo, b.hi) as i:
        row = b.mul(i.iv, 6)
        with b.loop(0, 64, 8, carry=[b.const(0.0, vector_type((6, 64), f32))]) as k:
            left = b.tile_load(x, [row, k.iv], [0, 1], [6, 8])
            right = b.tile_load(y, [k.iv, 0], [0, 1], [8, 64])
            k.yields(b.fma(left, right, k.args[0]))
        b.tile_store(k.results[0], o, [row, 0], [0, 1])
    assembly = jit.compile_module(ModuleOp([b.finish()])).assembly
    assert assembly.count("vfmadd") == 8 * 24
    assert not [line for line in assembly.splitlines() if "zmm" in line and "%rsp" in line]
