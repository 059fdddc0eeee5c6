"""Files for C of networks whose dims each call decides: sizes are arguments, and functions say what they take; the oracle is the executable."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet import deploy
from lightnet.runtime.dims import at, dim_max, symbol

pytest.importorskip("onnx")
from test_open_saved import NETS, equal, fuzz_executables

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None or sys.platform != "linux", reason="there is no C compiler (cc)")
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c99"]
OK, BAD_ARENA, BAD_TENSOR, BAD_VALUE = range(4)


@pytest.fixture(scope="module", params=NETS)
def made(request, tmp_path_factory):
    """A network by name: its executable, the folder with its files for C, and what to call it with."""
    make, dims, calls = NETS[request.param]
    executable = lightnet.compile(lightnet.load(make(), dims=dims), threads=2)
    folder = tmp_path_factory.mktemp("c")
    deploy.emit(executable, {"so": folder / "net.so", "header": folder / "net.h", "obj": folder / "net.o"}, "net")
    return request.param, executable, folder, calls


def library(folder: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(os.fspath(folder / "net.so"))
    for name in ("arena_bytes", "tensor_bytes"):
        getattr(found, f"net_{name}").restype = ctypes.c_uint64
    return found


def values_of(executable, feeds) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(n) for n in executable.program.of_feeds(feeds).values]


@needs_cc
def test_functions_say_the_sizes(made) -> None:
    _, executable, folder, calls = made
    net, header = library(folder), (folder / "net.h").read_text()
    exported = subprocess.run(["nm", "-D", folder / "net.so"], capture_output=True, text=True).stdout
    assert set(re.findall(r" T (\w+)", exported)) == {
        "net_arena_bytes",
        "net_tensor_bytes",
        "net_run",
        "net_run_threads",
        "net_scratch_bytes",
    }
    most = int(re.search(r"MOST_ARENA_BYTES (\d+)", header)[1])
    for feeds in calls:
        of_call, values = executable.program.of_feeds(feeds), values_of(executable, feeds)
        assert net.net_arena_bytes(*values) == of_call.memory["arena"] <= most
        for tensor in (*of_call.inputs, *of_call.outputs):
            number = int(re.search(rf"_{tensor.name.upper()}_TENSOR (\d+)", header)[1])
            dims = (ctypes.c_int64 * (len(tensor.dims) + 1))(*[-7] * (len(tensor.dims) + 1))
            assert (
                net.net_tensor_bytes(number, *values, dims)
                == tensor.nbytes
                == net.net_tensor_bytes(number, *values, None)
            )
            assert (*dims,) == (*tensor.dims, -7)
            assert f"{tensor.name.upper()}_RANK {len(tensor.dims)}\n" in header
        assert net.net_tensor_bytes(99, *values, None) == net.net_tensor_bytes(-1, *values, None) == 0
    assert not re.search(r"_(DIMS|COUNT|BYTES) ", re.sub(r"(MOST_ARENA|SCRATCH)_BYTES ", "", header))


@needs_cc
def test_it_computes_what_the_executable_does(made) -> None:
    """Bit for bit, in memory of just the sizes that the functions say, between pages that cannot be touched."""
    _, executable, folder, calls = made
    net = library(folder)
    for feeds in calls:
        want, values = executable(feeds), values_of(executable, feeds)
        for function in (net.net_run, lambda *a: net.net_run_threads(2, *a), lambda *a: net.net_run_threads(0, *a)):
            fence = fuzz_executables.Fence()
            arena = fence.aligned(net.net_arena_bytes(*values))
            given = [fence.aligned(a.nbytes).view(a.dtype).reshape(a.shape) for a in feeds.values()]
            for array, value in zip(given, feeds.values()):
                array[...] = value
            out = {k: fence.aligned(v.nbytes).view(v.dtype).reshape(v.shape) for k, v in want.items()}
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (arena, *given, *out.values())]
            assert function(pointers[0], *values, *pointers[1:]) == OK
            assert equal(out, want)
            assert all(np.array_equal(array, value) for array, value in zip(given, feeds.values()))
            fence.check()


@needs_cc
def test_what_a_call_cannot_be(made) -> None:
    name, executable, folder, calls = made
    net, values = library(folder), values_of(executable, calls[0])
    arena = fuzz_executables.Fence().aligned(net.net_arena_bytes(*values))
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*calls[0].values(), *executable(calls[0]).values())]
    at_arena = ctypes.c_void_p(arena.ctypes.data)
    wrong = [-1, 0, 17, 1 << 40, -(1 << 63)] if name == "cnn" else [-4, 0, 6, 260, 1 << 40, 255]
    for number in wrong:
        values[-1] = ctypes.c_int64(number)
        assert (
            net.net_run(at_arena, *values, *pointers)
            == BAD_VALUE
            == net.net_run_threads(2, at_arena, *values, *pointers)
        )
        assert net.net_arena_bytes(*values) == net.net_tensor_bytes(0, *values, None) == 0
    values = values_of(executable, calls[0])
    assert (
        net.net_run(None, *values, *pointers)
        == net.net_run(ctypes.c_void_p(arena.ctypes.data + 8), *values, *pointers)
        == BAD_ARENA
    )
    for k in range(len(pointers)):
        assert net.net_run(at_arena, *values, *pointers[:k], None, *pointers[k + 1 :]) == BAD_TENSOR


MAIN = """
#define _POSIX_C_SOURCE 200112L
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
static float most[NET_MOST_ARENA_BYTES / 4 + NET_ARENA_ALIGN];
int main(void) {
  int64_t batch, dims[NET_OUT_OUT_RANK];
  for (batch = NET_DIM_BATCH_LEAST; batch <= NET_DIM_BATCH_MOST; batch += NET_DIM_BATCH_MULTIPLE) {
    uint64_t bytes = net_tensor_bytes(NET_IN_X_TENSOR, batch, NULL), i;
    float *x = malloc(bytes), *y = malloc(net_tensor_bytes(NET_OUT_OUT_TENSOR, batch, dims)), sum = 0;
    void *arena = (char *)most + (NET_ARENA_ALIGN - (uintptr_t)most % NET_ARENA_ALIGN) % NET_ARENA_ALIGN;
    if (net_arena_bytes(batch) > NET_MOST_ARENA_BYTES) return 4;
    for (i = 0; i < bytes / sizeof *x; i++) x[i] = (float)(i % 7);
    if (net_run(arena, batch, x, y) != NET_OK) return 2;
    for (i = 0; i < (uint64_t)(dims[0] * dims[1]); i++) sum += y[i];
    if (dims[0] != batch || sum < batch - 1e-3f || sum > batch + 1e-3f) return 3; /* softmax */
    free(x); free(y);
  }
  return net_run(NULL, batch, NULL, NULL) == NET_BAD_VALUE ? 0 : 5;
}
"""


@needs_cc
@pytest.mark.parametrize("form", ["o", "s"])
def test_a_program_in_c(form: str, tmp_path: Path) -> None:
    """Strict C99 around the object, and around the assembly with its file of weights."""
    make, dims, _ = NETS["cnn"]
    kind = {"o": "obj", "s": "asm"}[form]
    deploy.emit(
        lightnet.compile(lightnet.load(make(), dims=dims)),
        {kind: tmp_path / f"net.{form}", "header": tmp_path / "net.h"},
        "net",
    )
    (tmp_path / "main.c").write_text(MAIN)
    words = ["cc", *STRICT, "-o", "main", "main.c", f"net.{form}", "-Wl,-z,noexecstack", "-lpthread"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert subprocess.run(["./main"], cwd=tmp_path).returncode == 0


def test_names_of_dims_and_tensors_are_apart(tmp_path: Path) -> None:
    """A dim, two inputs and an output of one name, and of the arguments' names."""
    text = """func.func @main() -> tensor<?x4xf32, #ln.dims<"arena(1..9)">> {
      %0 = ln.input : tensor<?x4xf32, #ln.dims<"arena(1..9)">> as ("dims")
      %1 = ln.input : tensor<?x?xf32, #ln.dims<"x(1..3), arena(1..9)">> as ("x")
      %2 = ln.relu %0 : tensor<?x4xf32, #ln.dims<"arena(1..9)">> as ("X")
      func.return %2 : tensor<?x4xf32, #ln.dims<"arena(1..9)">>
    }"""
    deploy.emit(lightnet.compile(lightnet.loads(text, ".mlir")), {"header": tmp_path / "net.h"}, "net")
    header = (tmp_path / "net.h").read_text()
    assert re.search(
        r"int net_run\(void \*arena,\s+int64_t arena_2,\s+const float \*dims,\s+const float \*x,\s+float \*X_2\);",
        header,
    )


@needs_cc
@pytest.mark.parametrize("name", ["n'", "a b", "int", "\u00e9", "\\", 'q"x', "*/", "/*", "1", "x", "lo"])
def test_dims_may_have_any_name(name: str, tmp_path: Path) -> None:
    """What a file calls a dim is no identifier of ours, of MLIR or of C; text, call and header take it."""
    quoted = name.replace("'", "''").replace("\\", r"\\").replace('"', r"\"")
    dims = f"""tensor<?x8xf32, #ln.dims<"'{quoted}'(1..16)">>"""
    text = f"""func.func @main() -> {dims} {{
      %0 = ln.input : {dims} as ("x")
      %1 = ln.relu %0 : {dims} as ("y")
      func.return %1 : {dims}
    }}"""
    model = lightnet.loads(text, ".mlir")
    again = lightnet.loads(str(model), ".mlir")
    assert str(again) == str(model)
    executable = lightnet.compile(model)
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8)
    np.testing.assert_array_equal(executable({"x": x})["y"], np.maximum(x, 0))
    deploy.emit(executable, {"header": tmp_path / "net.h"}, "net")
    (tmp_path / "main.c").write_text('#include "net.h"\nint main(void) { return 0; }\n')
    done = subprocess.run([CC, *STRICT, "-fsyntax-only", "main.c"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_sizes_as_code() -> None:
    """What the functions compute is what Python computes: quotients of what is negative, maxima, multiples."""
    import llvmlite.binding as llvm

    from lightnet.backends.llvm.sizes import SizeTexts
    from lightnet.runtime.native import initialize

    a, h = symbol("a", 0, 50), symbol("h", 32, 256, 32)
    sizes = [a * h, (a - 30) // 4, dim_max(a * 3, h // 2), h // 32 + 5, ((a + 7) // 3) * 8]
    initialize()
    for size in sizes:
        texts = SizeTexts([*a.symbols, *h.symbols], 0, {}, ["%x", "%y"])
        found = texts.of(size)
        body = "\n".join(
            [*texts.declared.values(), "define i64 @f(i64 %x, i64 %y) {", *texts.lines, f"ret i64 {found}", "}"]
        )
        machine = llvm.Target.from_default_triple().create_target_machine()
        with llvm.create_mcjit_compiler(llvm.parse_assembly(body), machine) as engine:
            engine.finalize_object()
            f = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("f"))
            for x, y in ((0, 32), (1, 256), (29, 64), (50, 96)):
                assert f(x, y) == at(size, {"a": x, "h": y})
