"""The behaviour of hardware: records what a device gives for the instructions that the PTX interpreter models by a
document, so that tests can hold the interpreter against it where there is no device: ``python tools/golden.py``.

Tensor-core products (which lane holds which element, with integers, exactly; and rounding, with numbers of any size), `ldmatrix`, roundings to
short types, the approximate functions and, on sm_90a, copies by tensor maps and products by warpgroups. Writes tests/data/cuda/golden.npz: inputs and outputs by case, the device's name and the date.
Without a device it says so and exits 1; --emulate records the interpreter itself, which proves nothing but the way.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import golden_hopper as hopper
import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch, Driver, open_driver, runs_on
from lightnet.runtime.cuda.tensor_map import TensorMap
from lightnet.runtime.dtypes import BFLOAT16
from lightnet.runtime.files import write_atomic

PATH = Path(__file__).parent.parent / "tests" / "data" / "cuda" / "golden.npz"
#: Elements of an elementwise case, one a thread; they are run as bits, of 32 or 64.
N, WARP = 1024, 32


@dataclass(frozen=True)
class Case:
    """A kernel named ``k``, of `inputs` and one output of shape `shape` and dtype `dtype`; and how far two executions of it may be apart:
    ``|a - b| <= absolute + relative |b|`` as `kind` reads them (``bits`` are compared as they are). Of the first input it takes the tensor
    map `map` instead of the address, if there is one. `arch` is what it needs."""

    name: str
    ptx: str
    inputs: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    dtype: str
    blocks: int = 1
    kind: str = "bits"
    absolute: float = 0.0
    relative: float = 0.0
    threads: int = WARP
    map: TensorMap | None = None
    arch: str = "sm_80"

    def run(self, driver: Driver) -> np.ndarray:
        """The output, on a driver. Raises LightNetError where it is refused."""
        function, out = driver.load(self.ptx).function("k"), np.zeros(self.shape, self.dtype)
        addresses = []
        try:
            for array in (*self.inputs, out):
                addresses.append(driver.alloc(array.nbytes))
                driver.upload(addresses[-1], array)
            first = addresses[0] if self.map is None else driver.tensor_map(addresses[0], self.map)
            driver.launch(DeviceLaunch(function, (self.blocks, 1, 1), (self.threads, 1, 1), 0, (first, *addresses[1:])))
            driver.download(addresses[-1], out)
        finally:
            for address in addresses:
                driver.free(address)
        return out

    def difference(self, got: np.ndarray, want: np.ndarray) -> str | None:
        """The difference of `got`, in a sentence; None where it is near enough."""
        if self.kind == "bits":
            wrong = got != want
        else:
            a, b = (x.view(self.kind).astype(np.float64) for x in (got, want))
            with np.errstate(invalid="ignore"):
                wrong = ~(
                    (np.abs(a - b) <= self.absolute + self.relative * np.abs(b))
                    | (a == b)
                    | (np.isnan(a) & np.isnan(b))
                )
        if not wrong.any():
            return None
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"{self.name}: {int(wrong.sum())} of {wrong.size} differ, first at {list(at)}: {got[at]:#x}, recorded {want[at]:#x}"


# ---- kernels -------------------------------------------------------------------------------------------------------


def kernel(pointers: int, body: list[str], shared: int = 0) -> str:
    """A kernel of one warp a block. Its parameters are in %rd0, …; %r0 is the number of the thread in its block, %r1 in the grid."""
    parameters = ", ".join(f".param .u64 p{i}" for i in range(pointers))
    head = [
        ".reg .b16 %h<8>;", ".reg .b32 %r<64>;", ".reg .f32 %f<64>;", ".reg .f64 %d<8>;", ".reg .b64 %rd<32>;",
        *([f".shared .align 16 .b8 tile[{shared}];"] if shared else []),
        *(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(pointers)),
        "mov.u32 %r0, %tid.x;", "mov.u32 %r1, %ctaid.x;", f"mad.lo.s32 %r1, %r1, {WARP}, %r0;",
    ]  # fmt: skip
    lines = "\n".join(f"    {line}" for line in [*head, *body, "ret;"])
    return f".version 8.0\n.target sm_80\n.address_size 64\n\n.visible .entry k({parameters})\n.reqntid {WARP}, 1, 1\n{{\n{lines}\n}}\n"


def _moved(pointer: int, number: str, size: int, to: int) -> list[str]:
    """%rd<to> = the address of an element of a pointer."""
    return [f"mul.wide.u32 %rd{to}, {number}, {size};", f"add.s64 %rd{to}, %rd{to}, %rd{pointer};"]


def elementwise(instruction: str, source: str, target: str) -> str:
    """``y[i] = instruction(x[i])``; types are registers' (f32, f64, b32, b16)."""
    register = {"f32": "%f", "f64": "%d", "b32": "%r", "b16": "%h"}
    sizes = {"f32": 4, "f64": 8, "b32": 4, "b16": 2}
    x, y = f"{register[source]}2", f"{register[target]}3"
    body = [*_moved(0, "%r1", sizes[source], 8), *_moved(1, "%r1", sizes[target], 9),
            f"ld.global.{source} {x}, [%rd8];", f"{instruction} {y}, {x};", f"st.global.{target} [%rd9], {y};"]  # fmt: skip
    return kernel(2, body)


def mma(kind: str, k: int) -> str:
    """``d = mma(a, b, c)``: registers by lane, [32, registers] of b32 each, one warp a block."""
    each = 1 if kind == "tf32" else 2
    counts = (16 * k // WARP // each, 8 * k // WARP // each, 4)
    body, names = [], []
    for number, count in enumerate(counts):
        first = 4 + sum(counts[:number])
        file = "%f" if number == 2 else "%r"
        names.append([f"{file}{first + i}" for i in range(count)])
        body += _moved(number, "%r1", 4 * count, 8)
        body += [f"ld.global.{'f32' if number == 2 else 'b32'} {r}, [%rd8+{4 * i}];" for i, r in enumerate(names[-1])]
    d = [f"%f{32 + i}" for i in range(4)]
    groups = ", ".join(f"{{{', '.join(g)}}}" for g in (d, *names))
    body += [f"mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32 {groups};", *_moved(3, "%r1", 16, 8)]
    return kernel(4, [*body, *(f"st.global.f32 [%rd8+{4 * i}], {r};" for i, r in enumerate(d))])


def ldmatrix(count: int, transposed: bool) -> str:
    """Shared memory holds x, 512 elements of 16 bits; lane i reads the row at byte ``rows[i]``, and what it gets goes to y [32, count]."""
    words = 512 * 2 // 4 // WARP
    body = ["mov.u32 %r2, tile;"]
    for i in range(words):
        body += [f"add.s32 %r3, %r0, {WARP * i};", *_moved(0, "%r3", 4, 8), "ld.global.b32 %r4, [%rd8];",
                 "shl.b32 %r5, %r3, 2;", "add.s32 %r5, %r5, %r2;", "st.shared.b32 [%r5], %r4;"]  # fmt: skip
    body += ["bar.sync 0;", *_moved(1, "%r0", 4, 8), "ld.global.b32 %r4, [%rd8];", "add.s32 %r4, %r4, %r2;"]
    registers = [f"%r{10 + i}" for i in range(count)]
    name = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    body += [f"{name} {{{', '.join(registers)}}}, [%r4];", *_moved(2, "%r0", 4 * count, 8)]
    return kernel(3, [*body, *(f"st.global.b32 [%rd8+{4 * i}], {r};" for i, r in enumerate(registers))], shared=1024)


# ---- cases ---------------------------------------------------------------------------------------------------------

#: Instruction -> (range of arguments, absolute, relative distance). The PTX ISA (9.7.3) gives the largest errors of hardware; the
#: interpreter rounds the exact value, so that its own error is added.
APPROXIMATE = {
    "rcp.approx.f32": (-8, 8, 0.0, 2.0**-22),
    "sqrt.approx.f32": (0, 1e4, 0.0, 2.0**-22),
    "rsqrt.approx.f32": (1e-4, 1e4, 0.0, 2.0**-22),
    "ex2.approx.f32": (-20, 20, 0.0, 2.0**-21),
    "lg2.approx.f32": (1e-3, 1e3, 2.0**-21, 2.0**-22),
    "sin.approx.f32": (-3.1, 3.1, 2.0**-20, 0.0),
    "cos.approx.f32": (-3.1, 3.1, 2.0**-20, 0.0),
    "tanh.approx.f32": (-5, 5, 0.0, 2.0**-10),
}
#: Instruction -> register types, NumPy's type of the output's bits. Both executions round to the last bit.
EXACT = {
    "cvt.rna.tf32.f32": ("f32", "b32", "uint32"),
    "cvt.rn.f16.f32": ("f32", "b16", "uint16"),
    "cvt.rn.bf16.f32": ("f32", "b16", "uint16"),
    "cvt.rzi.s32.f32": ("f32", "b32", "uint32"),
    "cvt.rni.f32.f32": ("f32", "f32", "uint32"),
    "rcp.rn.f32": ("f32", "f32", "uint32"),
    "sqrt.rn.f32": ("f32", "f32", "uint32"),
}
#: Arguments that are worth more than chance.
CORNERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0**-126,
    2.0**-149,
    3.4e38,
    np.inf,
    -np.inf,
    65504.0,
    65520.0,
    0.5,
    1.5,
    2.5,
    1 + 2.0**-11,
    1 + 2.0**-8,
]


def cases() -> Iterator[Case]:
    """All of them; the inputs are the same in every process."""
    rng = np.random.default_rng(0)
    for name, (low, high, absolute, relative) in APPROXIMATE.items():
        x = rng.uniform(low, high, N).astype(np.float32)
        yield Case(
            name, elementwise(name, "f32", "f32"), (x,), (N,), "uint32", N // WARP, "float32", absolute, relative
        )
    for name, (source, target, dtype) in EXACT.items():
        x = (rng.standard_normal(N) * 10.0 ** rng.integers(-6, 7, N)).astype(np.float32)
        x[: len(CORNERS)] = CORNERS
        x = np.abs(x) if name.startswith("sqrt") else x
        yield Case(name, elementwise(name, source, target), (x,), (N,), dtype, N // WARP)
    for count in (1, 2, 4):
        for transposed in (False, True):
            rows = 16 * rng.permutation(64)[:WARP].astype(np.uint32)
            text = ldmatrix(count, transposed)
            inputs = (np.arange(512, dtype=np.uint16), rows)
            yield Case(f"ldmatrix x{count}{' trans' * transposed}", text, inputs, (WARP, count), "uint32")
    for kind, k in (("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8)):
        yield from _products(kind, k, rng)
    yield from _copies(rng)
    for kind, cols, by_k in (
        ("f16", 8, False),
        ("bf16", 24, False),
        ("f16", 128, False),
        ("bf16", 256, False),
        ("f16", 64, True),
        ("bf16", 128, True),
        ("f16", 256, True),
    ):
        yield from _warpgroup_products(kind, cols, by_k, rng)


def _products(kind: str, k: int, rng: np.random.Generator) -> Iterator[Case]:
    """Integers, whose products and sums are exact, so that every lane shows; then factors of any size, of which tf32 is cut off."""
    blocks, text = 8, mma(kind, k)
    for what in ("integers", "numbers"):
        draw = (lambda n: rng.integers(-8, 9, n)) if what == "integers" else rng.standard_normal
        a, b = (_factors(draw(blocks * rows * k), kind).reshape(blocks * WARP, -1) for rows in (16, 8))
        c = draw(blocks * 16 * 8).astype(np.float32).reshape(blocks * WARP, 4)
        bound = 0.0 if what == "integers" else 2.0**-20 * (16 * k + 4)  # of sums of k products of numbers up to 4
        yield Case(f"mma {kind} k{k} of {what}", text, (a, b, c), c.shape, "uint32", blocks, "float32", bound)


def _factors(x: np.ndarray, kind: str) -> np.ndarray:
    """The registers' bits."""
    return x.astype(np.float32).view(np.uint32) if kind == "tf32" else _short(x, kind).view(np.uint32)


def _short(x: np.ndarray, kind: str) -> np.ndarray:
    """The bits of numbers of 16 bits."""
    return x.astype(np.float32).astype(np.float16 if kind == "f16" else BFLOAT16).view(np.uint16)


def _copies(rng: np.random.Generator) -> Iterator[Case]:
    """Parts of tensors whose elements are all different, as they lie in shared memory."""
    for number, (map, places) in enumerate(hopper.COPIES):
        rows = map.im2col.pixels if map.im2col else int(np.prod(map.box[:-1]))
        text = hopper.copy(len(map.dims), rows, map.im2col is not None)
        tensor = rng.permutation(map.nbytes // 2).astype(np.uint16).reshape(map.dims)
        inputs = (tensor, np.array(places, np.int32))
        what = "im2col" if map.im2col else f"tiled {len(map.dims)}d"
        yield Case(f"tma {what} {number}", text, inputs, (len(places), rows, 32), "uint32", len(places), map=map, arch=hopper.ARCH)  # fmt: skip


def _warpgroup_products(kind: str, cols: int, by_k: bool, rng: np.random.Generator) -> Iterator[Case]:
    """As `_products`: factors go to shared memory as they are to lie there."""
    text = hopper.product(kind, cols, by_k)
    for what in ("integers", "numbers"):
        draw = (lambda *n: rng.integers(-8, 9, n)) if what == "integers" else lambda *n: rng.standard_normal(n)
        a, b = _short(draw(64, 64), kind), hopper.factor(_short(draw(64, cols), kind), by_k)
        c = hopper.accumulators(draw(64, cols).astype(np.float32))
        bound = 0.0 if what == "integers" else 2.0**-20 * (16 * 64 + 4)
        name = f"wgmma {kind} n{cols}{' by k' * by_k} of {what}"
        yield Case(name, text, (hopper.swizzled(a), hopper.swizzled(b), c), c.shape, "uint32", 1, "float32", bound,
                   threads=hopper.THREADS, arch=hopper.ARCH)  # fmt: skip


def cases_for(arch: str) -> Iterator[Case]:
    """Those that a device of an architecture runs."""
    return (case for case in cases() if runs_on(case.arch, arch))


# ---- recording and replaying ---------------------------------------------------------------------------------------


def record(driver: Driver) -> dict[str, np.ndarray]:
    """Inputs and output of every case that the device runs, by ``name/0``, ``name/1``, …, ``name/output``, and who gave them."""
    found: dict[str, np.ndarray] = {
        "device": np.array(f"{driver.name} ({driver.arch})"),
        "arch": np.array(driver.arch),
        "date": np.array(str(date.today())),
    }
    for case in cases_for(driver.arch):
        found |= {f"{case.name}/{i}": array for i, array in enumerate(case.inputs)}
        found[f"{case.name}/output"] = case.run(driver)
    return found


def replay(recorded: Mapping[str, np.ndarray], driver: Driver) -> list[str]:
    """The results that a driver gives otherwise than what was recorded, a sentence each. Cases that the record should
    have of its device, and does not, or has with other inputs, are sentences, too.
    """
    wrong = []
    for case in cases_for(str(recorded["arch"]) if "arch" in recorded else "sm_80"):
        names = [f"{case.name}/{i}" for i in range(len(case.inputs))]
        if not all(n in recorded and np.array_equal(recorded[n], x) for n, x in zip(names, case.inputs)):
            wrong.append(f"{case.name}: not recorded with these inputs: run tools/golden.py again")
        elif (difference := case.difference(case.run(driver), recorded[f"{case.name}/output"])) is not None:
            wrong.append(difference)
    return wrong


def write(path: Path, found: Mapping[str, np.ndarray]) -> None:
    """Write a record."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **found)
    write_atomic(str(path), buffer.getvalue())


def main(argv: list[str] | None = None) -> int:
    """The tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulate", action="store_true", help="record the PTX interpreter")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="where to (tests/data/cuda/golden.npz; with --emulate nowhere)"
    )
    args = parser.parse_args(argv)
    try:
        driver = open_driver(args.emulate, hopper.ARCH)
        found = record(driver)
        path = args.output or (None if args.emulate else PATH)
        if path is not None:
            write(path, found)
    except LightNetError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{sum(name.endswith('/output') for name in found)} cases of {found['device']}"
        + (f" in {path}" if path else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
