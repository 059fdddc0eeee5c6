"""The share that register-tiled level-4 kernels reach of the machine's FMA peak, measured in the same process.

Run: ``python tools/bench_kernels.py [--rounds N]``. All variants are timed in one rotation; the table shows the median
as a share of the peak (a loop of independent fused multiply-adds), the milliseconds to emit and to compile, and the
largest error against float64 NumPy.
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite
import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, ModuleOp, VectorType, f32
from xdsl.dialects.func import FuncOp

from lightnet.backends.builder import Builder, vector_type
from lightnet.backends.llvm.emitter import emit_module
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet_debug import roofline


@dataclass
class Case:
    """A kernel, its grid, its arrays (the last one is written), its fused multiply-adds, and what it should give."""

    name: str
    kernel: FuncOp
    grid: int
    arrays: list[np.ndarray]
    fmas: int
    expected: np.ndarray | None = None


def peak(width: int) -> Case:
    """Independent chains of fused multiply-adds on registers."""
    memory = np.ones((roofline.CHAINS, width), np.float32)
    return Case(
        "peak", roofline.fma_kernel(width).finish(), 1, [memory], memory.size * roofline.UNROLLED * roofline.TRIPS
    )


def conv_blocked(c: int, o: int, n: int, width: int, pixels: int, unroll: int) -> Case:
    """3x3 stride 1, layout NCHW16c with a halo of 1, two channel vectors by `pixels`: the classic direct kernel."""
    cb, ob = c // width, o // (2 * width)
    x, w = np.zeros((cb, n + 2, n + 2, width), np.float32), _random(ob, cb, 3, 3, width, 2, width, scale=c * 9)
    x[:, 1:-1, 1:-1] = _random(cb, n, n, width)
    out = np.zeros((2 * ob, n, n, width), np.float32)
    types = [MemRefType(f32, a.shape) for a in (x, w, out)]
    b = Builder.kernel("conv_blocked", types, opt="none")
    xm, wm, om = b.args
    zero = b.const(0.0, _vec(pixels, 2, width))
    with b.loop(b.lo, b.hi) as block, b.loop(0, n) as y, b.loop(0, n, pixels) as px:
        with b.loop(0, cb, carry=[zero]) as lc:
            with b.loop(0, 3, carry=lc.args) as ky:
                with b.loop(0, 3, carry=ky.args) as kx:
                    with b.loop(0, width, unroll, carry=kx.args) as ci:
                        at = [lc.iv, b.add(y.iv, ky.iv), b.add(px.iv, kx.iv), ci.iv]
                        a = b.tile_load(xm, at, [2, 3], [pixels, unroll])
                        weights = b.tile_load(
                            wm, [block.iv, lc.iv, ky.iv, kx.iv, ci.iv, 0, 0], [4, 5, 6], [unroll, 2, width]
                        )
                        ci.yields(b.fma(a, weights, ci.args[0]))
                    kx.yields(*ci.results)
                ky.yields(*kx.results)
            lc.yields(*ky.results)
        relu = b.op(arith.MaximumfOp, lc.results[0], zero)
        b.tile_store(relu, om, [b.mul(block.iv, 2), y.iv, px.iv, 0], [2, 0, 3])
    plain_w = w.transpose(0, 5, 6, 1, 4, 2, 3).reshape(o, c, 3, 3)
    plain_x = x.transpose(0, 3, 1, 2).reshape(c, n + 2, n + 2)
    expected = np.maximum(conv3(plain_x, plain_w), 0).reshape(2 * ob, width, n, n).transpose(0, 2, 3, 1)
    name = f"3x3 {c}->{o} @{n} NCHW{width}c {pixels}x{2 * width} u{unroll}"
    return Case(name, b.finish(), ob, [x, w, out], o * c * 9 * n * n, expected)


def conv_plain(c: int, o: int, n: int, width: int, rows: int, vectors: int, unroll: int = 1) -> Case:
    """3x3 stride 1 on plain NCHW, input padded by 1; `rows` output channels by `vectors` vectors of pixels of a row.

    Weights are read element by element from [O, C, 3, 3] and broadcast; pixels are unaligned vectors. The last tile of
    a row is moved back to end at its edge.
    """
    tile = vectors * width
    x, w = np.zeros((c, n + 2, n + 2), np.float32), _random(o, c, 3, 3, scale=c * 9)
    x[:, 1:-1, 1:-1] = _random(c, n, n)
    out = np.zeros((o, n, n), np.float32)
    b = Builder.kernel("conv_plain", [MemRefType(f32, a.shape) for a in (x, w, out)], opt="none")
    xm, wm, om = b.args
    zero = b.const(0.0, _vec(rows, tile))
    with b.loop(b.lo, b.hi) as block, b.loop(0, n) as y, b.loop(0, n, tile) as px:
        ob = b.mul(block.iv, rows)
        at = b.op(arith.MinSIOp, px.iv, b.index(n - tile))
        with b.loop(0, c, unroll, carry=[zero]) as lc:
            with b.loop(0, 3, carry=lc.args) as ky:
                acc = ky.args[0]
                for kx in range(3):
                    a = b.tile_load(wm, [ob, lc.iv, ky.iv, kx], [0, 1], [rows, unroll])
                    pixels = b.tile_load(xm, [lc.iv, b.add(y.iv, ky.iv), b.add(at, kx)], [0, 2], [unroll, tile])
                    acc = b.fma(a, pixels, acc)
                ky.yields(acc)
            lc.yields(*ky.results)
        relu = b.op(arith.MaximumfOp, lc.results[0], zero)
        b.tile_store(relu, om, [ob, y.iv, at], [0, 2])
    name = f"3x3 {c}->{o} @{n} NCHW {rows}x{tile} u{3 * unroll}"
    return Case(name, b.finish(), o // rows, [x, w, out], o * c * 9 * n * n, np.maximum(conv3(x, w), 0))


def conv_rows(c: int, o: int, n: int, width: int, channels: int, rows: int) -> Case:
    """3x3 stride 1 on plain NCHW for narrow images: `channels` output channels by `rows` rows of one pixel vector.

    The last vector of a row and the last rows are moved back to end at the edge.
    """
    x, w = np.zeros((c, n + 2, n + 2), np.float32), _random(o, c, 3, 3, scale=c * 9)
    x[:, 1:-1, 1:-1] = _random(c, n, n)
    out = np.zeros((o, n, n), np.float32)
    b = Builder.kernel("conv_rows", [MemRefType(f32, a.shape) for a in (x, w, out)], opt="none")
    xm, wm, om = b.args
    zero = b.const(0.0, _vec(channels, rows, width))
    with b.loop(b.lo, b.hi) as block, b.loop(0, n, rows) as py, b.loop(0, n, width) as px:
        ob = b.mul(block.iv, channels)
        y, at = (b.op(arith.MinSIOp, p.iv, b.index(n - size)) for p, size in ((py, rows), (px, width)))
        with b.loop(0, c, carry=[zero]) as lc:
            with b.loop(0, 3, carry=lc.args) as ky:
                acc = ky.args[0]
                for kx in range(3):
                    a = b.tile_load(wm, [ob, lc.iv, ky.iv, kx], [0, 1], [channels, 1])
                    from_ = [lc.iv, b.add(y, ky.iv), b.add(at, kx)]
                    acc = b.fma(a, b.tile_load(xm, from_, [0, 1, 2], [1, rows, width]), acc)
                ky.yields(acc)
            lc.yields(*ky.results)
        b.tile_store(b.op(arith.MaximumfOp, lc.results[0], zero), om, [ob, y, at], [0, 1, 2])
    name = f"3x3 {c}->{o} @{n} NCHW {channels}x({rows}x{width})"
    return Case(name, b.finish(), o // channels, [x, w, out], o * c * 9 * n * n, np.maximum(conv3(x, w), 0))


def gemm(m: int, k: int, n: int, width: int, rows: int, vectors: int, unroll: int) -> Case:
    """Row-major A times B packed in panels of `vectors` vectors: [N / tile, K, tile]."""
    tile = vectors * width
    a, packed = _random(m, k), _random(n // tile, k, tile, scale=k)
    out = np.zeros((m, n), np.float32)
    b = Builder.kernel("gemm", [MemRefType(f32, x.shape) for x in (a, packed, out)], opt="none")
    am, bm, om = b.args
    zero = b.const(0.0, _vec(rows, tile))
    with b.loop(b.lo, b.hi) as panel, b.loop(0, m, rows) as row:
        at = b.op(arith.MinSIOp, row.iv, b.index(m - rows))
        with b.loop(0, k, unroll, carry=[zero]) as depth:
            left = b.tile_load(am, [at, depth.iv], [0, 1], [rows, unroll])
            right = b.tile_load(bm, [panel.iv, depth.iv, 0], [1, 2], [unroll, tile])
            depth.yields(b.fma(left, right, depth.args[0]))
        b.tile_store(depth.results[0], om, [at, b.mul(panel.iv, tile)], [0, 1])
    expected = a.astype(np.float64) @ packed.transpose(1, 0, 2).reshape(k, n).astype(np.float64)
    return Case(
        f"GEMM {m}x{k}x{n} {rows}x{tile} u{unroll}", b.finish(), n // tile, [a, packed, out], m * k * n, expected
    )


def conv3(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """3x3 convolution of a padded [C, H+2, W+2] in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    height, width = x.shape[1] - 2, x.shape[2] - 2
    taps = [(i, j) for i in range(3) for j in range(3)]
    return sum(np.einsum("oc,chw->ohw", w[:, :, i, j], x[:, i : i + height, j : j + width]) for i, j in taps)


def _vec(*shape: int) -> VectorType:
    return vector_type(shape, f32)


def _random(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) / scale**0.5).astype(np.float32)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a multiple of 64 bytes."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def prepare(case: Case) -> tuple[Callable[[], None], float, float, float]:
    """(a call of the compiled kernel, ms to emit, ms to compile, largest error)."""
    module = ModuleOp([case.kernel])
    module.verify()
    start = time.perf_counter()
    emit_module(module, CodeMachine.host().vectors)
    emitted = time.perf_counter()
    native = compile_module(module)
    compiled = time.perf_counter()
    arrays = case.arrays = [aligned(a) for a in case.arrays]
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))
    function = signature(native.kernel_address(case.kernel.sym_name.data))
    pointers = [a.ctypes.data for a in arrays]

    def call() -> None:
        function(0, case.grid, *pointers)

    call.keep = (native, arrays)  # the code and the memory live as long as the call
    call()
    error = 0.0 if case.expected is None else float(np.abs(arrays[-1] - case.expected).max())
    if not error < 1e-3:
        raise SystemExit(f"{case.name} is wrong by {error}")
    return call, 1e3 * (emitted - start), 1e3 * (compiled - emitted), error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    width = CodeMachine.host().vectors.width
    cases = [peak(width)]
    if width == 16:
        cases += [
            conv_blocked(128, 128, 28, 16, 14, 8), gemm(512, 512, 512, 16, 6, 4, 8), gemm(512, 512, 512, 16, 14, 2, 8),
            conv_plain(64, 64, 48, 16, 8, 3), conv_plain(64, 64, 48, 16, 8, 3, 2), conv_plain(64, 64, 56, 16, 8, 3),
            conv_plain(64, 96, 64, 16, 6, 4), conv_plain(64, 96, 64, 16, 12, 2), conv_plain(64, 112, 64, 16, 14, 2),
            conv_plain(128, 128, 28, 16, 16, 1), conv_rows(128, 128, 28, 16, 8, 3), conv_rows(128, 120, 28, 16, 6, 4),
            conv_rows(64, 64, 56, 16, 8, 3), conv_rows(256, 256, 16, 16, 8, 3),
        ]  # fmt: skip
    else:
        cases += [conv_blocked(128, 128, 24, 8, 6, 8), gemm(512, 512, 512, 8, 6, 2, 8), conv_plain(64, 64, 48, 8, 6, 2)]
    ready = [prepare(case) for case in cases]
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for call, series in zip(ready, times):
            start = time.perf_counter()
            call[0]()
            series.append(time.perf_counter() - start)
    rates = [case.fmas / np.median(series) for case, series in zip(cases, times)]
    machine = CodeMachine.host()
    print(f"{machine.cpu}, {platform.python_version()}, llvmlite {llvmlite.__version__}, median of {rounds}")
    print(f"{'kernel':40} {'% peak':>7} {'GFMA/s':>7} {'emit ms':>8} {'code ms':>8} {'max error':>10}")
    for case, rate, (_, emit, code, error) in zip(cases, rates, ready):
        print(f"{case.name:40} {100 * rate / rates[0]:7.1f} {rate / 1e9:7.1f} {emit:8.1f} {code:8.1f} {error:10.2e}")


if __name__ == "__main__":
    main()
