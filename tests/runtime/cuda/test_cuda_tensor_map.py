"""Tensor maps from a kernel to the driver: what a kernel takes, the launch list as data, its checks when it comes from a file, and its launches;
and which architecture code that runs here is for. What NVIDIA's driver is told is in test_cuda_driver.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_device import parse
from cuda_drivers import driver
from hopper_kernels import Conv, Tile, convolution, product
from xdsl.dialects.builtin import ModuleOp, bf16, f16

import lightnet
from lightnet.backends.cuda import native
from lightnet.backends.cuda.module import CudaModule
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.backends.cuda.threads import CudaThreads
from lightnet.cli.network import run_options
from lightnet.diagnostics import LightNetError
from lightnet.dialects.accesses import LineAccesses
from lightnet.dialects.cuda_launch import cuda_kernels, cuda_launches, dynamic_shared, verify_cuda
from lightnet.runtime.calls import Invocation
from lightnet.runtime.cuda import driver as drivers
from lightnet.runtime.cuda.driver import CudaUnavailable, Device, capability_of, open_driver, runs_on
from lightnet.runtime.cuda.program import CudaCode, CudaInstance, HostLine, KernelLine
from lightnet.runtime.cuda.tensor_map import Im2col, TensorMap, check_tensor_map
from lightnet.runtime.program import HostCall, Program, Tensor
from lightnet_ptx.emulator import Emulator

TILED = TensorMap("f16", (3, 20, 72), box=(1, 16, 64))
WINDOWS = TensorMap("bf16", (2, 9, 7, 64), im2col=Im2col(128, 64, (-1, -2), (-1, 0), (1, 2)))


# ---- what a map may be -----------------------------------------------------------------------------------------------


def test_strides_and_bytes():
    assert TILED.strides == (2 * 20 * 72, 2 * 72, 2) and TILED.nbytes == 2 * 3 * 20 * 72
    for map in (TILED, WINDOWS, TensorMap("f16", (64,), box=(64,)), TensorMap("f16", (1 << 32, 64), box=(256, 64))):
        check_tensor_map(16, map)


def changed(map: TensorMap, **values: Any) -> TensorMap:
    """A map with other fields; those of im2col by their names."""
    own = {k: v for k, v in values.items() if k in TensorMap.__dataclass_fields__}
    windows = (
        None
        if map.im2col is None
        else Im2col(**{**map.im2col.__dict__, **{k: v for k, v in values.items() if k not in own}})
    )
    return TensorMap(**{**map.__dict__, "im2col": windows, **own})


@pytest.mark.parametrize(
    ("map", "address", "said"),
    [
        (changed(TILED, dtype="f32"), 0, "a tensor map of f32: there are those of f16, bf16"),
        (TILED, 8, "at 0x8, which is no multiple of 16"),
        (TILED, 1 << 64, "no multiple of 16"),
        (changed(TILED, dims=()), 0, "of 0 dimensions"),
        (changed(TILED, dims=(1, 2, 3, 4, 5, 64), box=(1,) * 5 + (64,)), 0, "of 6 dimensions"),
        (changed(TILED, dims=(0, 20, 72)), 0, r"sizes \[0, 20, 72\]: each is 1 to 2\^32"),
        (changed(TILED, dims=(1, 20, (1 << 32) + 8)), 0, "each is 1 to"),
        (changed(TILED, dims=(3, 20, 71)), 0, "a stride of 2840 bytes: a multiple of 16"),
        (changed(TILED, dims=(3, 1 << 20, 1 << 20)), 0, r"below 2\^40"),
        (changed(TILED, box=(1, 64)), 0, "3 extents of 1 to 256"),
        (changed(TILED, box=(1, 257, 64)), 0, "3 extents of 1 to 256"),
        (changed(TILED, box=(1, 16, 128)), 0, "rows of 256 bytes"),
        (changed(TILED, box=(1, 16, 4)), 0, "rows of 8 bytes"),
        (changed(WINDOWS, dims=(9, 7, 64)), 0, "windows of a tensor of 3 dimensions"),
        (changed(WINDOWS, box=(1, 1, 1, 64)), 0, "a box or windows, not both"),
        (changed(WINDOWS, pixels=1025), 0, "1025 windows"),
        (changed(WINDOWS, channels=0), 0, "of 0 channels"),
        (changed(WINDOWS, channels=128), 0, "rows of 256 bytes"),
        (changed(WINDOWS, lower=(-129, 0)), 0, "each is -128 to 127"),
        (changed(WINDOWS, upper=(0, 128)), 0, "each is -128 to 127"),
        (changed(WINDOWS, lower=(3, 0), upper=(-6, 0)), 0, r"there is none in \[2, 9, 7, 64\]"),
        (changed(WINDOWS, strides=(1, 9)), 0, "each is 1 to 8"),
    ],
)  # fmt: skip
def test_maps_that_drivers_refuse(map: TensorMap, address: int, said: str):
    with pytest.raises(LightNetError, match=said):
        check_tensor_map(address, map)
    with pytest.raises(LightNetError, match=said):
        Emulator("sm_90a").tensor_map(address, map)


def test_the_interpreter_has_maps_of_128_bytes():
    assert len(Emulator("sm_90a").tensor_map(256, WINDOWS)) == 128
    with pytest.raises(
        LightNetError, match=r"PTX interpreter \(sm_80\) has no tensor maps: they take compute capability 9\.0"
    ):
        Emulator().tensor_map(256, WINDOWS)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def lowered(kernel: ModuleOp, grid: list[int], *, arena: int, places: list[int]) -> ModuleOp:
    """A module that launches its only kernel once."""
    ((name, function),) = cuda_kernels(kernel).items()
    shared = f" shared {n}" if (n := dynamic_shared(function)) else ""
    block = ", ".join(map(str, function.attributes["cuda.block"].get_values()))
    where = ", ".join(f"arena+{p}" for p in places)
    return parse(f"""builtin.module attributes {{ln.memory = {{static = 0 : i64, arena = {arena} : i64}}, cuda.arch = "sm_90a"}} {{
{function!s}
func.func @main() {{
  cuda.launch @{name} grid {grid} block [{block}]{shared} [{where}]
  func.return
}}
}}""")


def gemm() -> ModuleOp:
    """C [70, 40] of f32 at 40960 from A [70, 136] at 0 and B [40, 136] at 20480."""
    return lowered(*product(70, 40, 136, f16, Tile(24)), arena=53248, places=[0, 20480, 40960])


def test_what_kernels_take():
    (function,) = cuda_kernels(gemm()).values()
    a, b = TensorMap("f16", (1, 70, 136), (1, 64, 64)), TensorMap("f16", (1, 40, 136), (1, 24, 64))
    assert maps_of(function) == (a, b, None)
    module, _ = convolution(Conv((2, 9, 7, 72), 8, (3, 5), (2, 1), (1, 2), (2, 1)), bf16, Tile(8))
    x, w, y = maps_of(next(iter(module.ops)))
    assert x == TensorMap("bf16", (2, 9, 7, 72), im2col=Im2col(64, 64, (-1, -2), (-3, -2), (2, 1)))
    assert w == TensorMap("bf16", (8, 15, 72), (8, 1, 64)) and y is None
    plain = parse("func.func @k(%x: memref<4xf32>) attributes {cuda.block = array<i32: 1, 1, 1>} {\n  func.return\n}")
    assert maps_of(next(iter(plain.ops))) == ()


def test_copies_read_their_tensors():
    module = gemm()
    a, b, c = LineAccesses(module).of(cuda_launches(module)[0])
    assert [(x.reads, x.writes) for x in (a, b, c)] == [(True, False), (True, False), (False, True)]


def program(memory: dict[str, int], hosts: int = 0) -> Program:
    inputs = (Tensor("a", (1, 70, 136), "f16", "arena", 0), Tensor("b", (1, 40, 136), "f16", "arena", 20480))
    calls = (HostCall("print", "", (), "f32"),) * hosts
    return Program((), memory, inputs, (Tensor("c", (1, 70, 40), "f32", "arena", 40960),), (), calls)


def test_a_network_runs_on_its_maps():
    """From the launch list, by way of a file's header, to the interpreter; against float64."""
    code = CudaModule(gemm(), "sm_90a").code
    whole = program({"static": 0, "arena": 53248})
    code = CudaCode.from_header(json.loads(json.dumps(code.header())), code.ptx, whole)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(t.dims).astype(np.float16) for t in whole.inputs)
    instance = CudaInstance(whole, code, np.zeros(1, np.uint8), {"a": a, "b": b}, driver(code.arch))
    want = a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1)
    np.testing.assert_allclose(instance.call(Invocation({}))["c"], want, rtol=0, atol=1e-4)
    instance.release()


def test_launches_of_a_check_have_maps():
    """As the launches of a module are executed beside its loops."""
    module, rng = gemm(), np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (70, 136)).astype(np.float16), rng.integers(-8, 9, (40, 136)).astype(np.float16)
    spaces = {"static": np.zeros(0, np.uint8), "arena": np.zeros(53248, np.uint8)}
    for array, at in ((a, 0), (b, 20480)):
        spaces["arena"][at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
    threads = CudaThreads(module, "sm_90a")
    threads.run(threads.launches, spaces)
    got = spaces["arena"][40960 : 40960 + 4 * 70 * 40].view(np.float32).reshape(70, 40)
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64).T)


class Noted:
    """A driver that takes down what is launched."""

    memory_bytes, name = 1 << 30, "a device"

    def __init__(self) -> None:
        self.launched: list[tuple] = []

    def alloc(self, nbytes: int) -> int:
        return 0x10000

    def load(self, ptx: str) -> Noted:
        return self

    def function(self, name: str) -> str:
        return name

    def graph(self, launches, after) -> None:
        self.launched += [launch.args for launch in launches]

    def tensor_map(self, address: int, map: TensorMap) -> bytes:
        return f"{map.dims} at {address:#x}".encode()


def test_a_launch_has_the_maps_of_its_places():
    kernels = (
        KernelLine("k", (1, 1, 1), (128, 1, 1), 0, (("arena", 0), ("arena", 256)), (), (None, TILED)),
        KernelLine("plain", (1, 1, 1), (32, 1, 1), 0, (("arena", 512),), (0,)),
    )
    gpu = Noted()
    CudaInstance(program({"arena": 1 << 20}), CudaCode("", "sm_90a", kernels), np.zeros(1, np.uint8), {}, gpu)
    assert gpu.launched == [(0x10000, b"(3, 20, 72) at 0x10100"), (0x10200,)]


# ---- the launch list of a file ---------------------------------------------------------------------------------------


def lines() -> CudaCode:
    """Two launches, a call, and one more launch; of the first the second place is a map, which ends with the arena."""
    places = (("static", 0), ("arena", 256))
    first = KernelLine("k", (1, 1, 1), (128, 1, 1), 0, places, (), (None, TILED))
    second = KernelLine("k", (1, 1, 1), (128, 1, 1), 0, places, (0,), (WINDOWS, None))
    third = KernelLine("k", (1, 1, 1), (128, 1, 1), 0, places, ())
    return CudaCode("", "sm_90a", (first, second, HostLine(0, ("arena", 0)), third))


MEMORY = {"static": WINDOWS.nbytes, "arena": 256 + TILED.nbytes}


def test_a_header_has_maps():
    code = lines()
    header = json.loads(json.dumps(code.header()))
    assert CudaCode.from_header(header, "", program(MEMORY, 1)) == code
    for line in header["lines"]:
        line.pop("maps", None)
    found = CudaCode.from_header(header, "", program(MEMORY, 1))
    assert [line.maps for line in found.lines if isinstance(line, KernelLine)] == [(), (), ()]


@pytest.mark.parametrize(
    "damage",
    [
        lambda h: h[0].update(maps=[h[0]["maps"][1]]),
        lambda h: h[0].update(maps=[None, None, None]),
        lambda h: h[0].update(maps=[None, 7]),
        lambda h: h[0].update(places=[["static", 0], ["arena", 272]]),
        lambda h: h[0].update(places=[["static", 0], ["arena", 264]]),
        lambda h: h[0]["maps"][1].update(dims=[3, 21, 72]),
        lambda h: h[0]["maps"][1].update(dims=[1 << 40, 20, 72]),
        lambda h: h[0]["maps"][1].update(dims=[3.0, 20, 72]),
        lambda h: h[0]["maps"][1].update(dims="abc"),
        lambda h: h[0]["maps"][1].update(dtype="f64"),
        lambda h: h[0]["maps"][1].update(box=[1, 16]),
        lambda h: h[0]["maps"][1].pop("box"),
        lambda h: h[0]["maps"][1].pop("im2col"),
        lambda h: h[1]["maps"][0]["im2col"].update(lower=[-1, -1, -1]),
        lambda h: h[1]["maps"][0]["im2col"].update(pixels=True),
        lambda h: h[1]["maps"][0]["im2col"].update(strides=[1, 1 << 70]),
        lambda h: h[1]["maps"][0]["im2col"].pop("upper"),
        lambda h: h[1].update(after=[1]),
        lambda h: h[1].update(after=[-1]),
        lambda h: h[1].update(after=[0, 0]),
        lambda h: h[0].update(after=[1]),
        lambda h: h[3].update(after=[0]),
        lambda h: h[3].update(after=[[0]]),
    ],
)
def test_a_damaged_header_is_refused(damage: Callable[[list], object]):
    """What a saved executable makes one error of."""
    header = json.loads(json.dumps(lines().header()))
    damage(header["lines"])
    with pytest.raises((ValueError, TypeError, KeyError, LightNetError)):
        CudaCode.from_header(header, "", program(MEMORY, 1))


# ---- launches that overlap -------------------------------------------------------------------------------------------

ADD = """builtin.module attributes {ln.memory = {static = 256 : i64, arena = 4096 : i64}} {
func.func @add(%a: memref<64xf32>, %b: memref<64xf32>, %y: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %i = cuda.thread_id x
  %p = memref.load %a[%i] : memref<64xf32>
  %q = memref.load %b[%i] : memref<64xf32>
  %s = arith.addf %p, %q : f32
  memref.store %s, %y[%i] : memref<64xf32>
  func.return
}
func.func @main() {
  cuda.launch @add grid [1, 1, 1] block [64, 1, 1] [PLACES]
  func.return
}
}"""


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ("arena+0, arena+256, arena+512", None),
        ("arena+0, arena+0, arena+256", None),  # both are only read
        ("arena+0, arena+128, arena+384", None),
        ("static+0, arena+256, arena+0", None),
        ("arena+512, arena+0, arena+252", "256 bytes at arena\\+252 overlap 256 bytes at arena\\+0"),
        ("arena+0, arena+256, arena+0", "256 bytes at arena\\+0 overlap 256 bytes at arena\\+0"),
        ("arena+1024, arena+508, arena+256", "256 bytes at arena\\+508 overlap 256 bytes at arena\\+256"),
        ("static+0, arena+256, static+0", "256 bytes at static\\+0 overlap"),
    ],
)
def test_memrefs_do_not_overlap_one_that_is_written(places: str, said: str | None):
    module = parse(ADD.replace("PLACES", places))
    if said is None:
        verify_cuda(module, "sm_80")
        return
    with pytest.raises(LightNetError, match=f"@add: memrefs of a kernel do not overlap one that it writes, and {said}"):
        verify_cuda(module, "sm_80")


# ---- which architecture ----------------------------------------------------------------------------------------------


def device(major: int, minor: int, kib: int) -> Device:
    return Device(0, "a device", (major, minor), 1 << 30, (13, 0), kib << 10)


@pytest.mark.parametrize(
    ("found", "arch"),
    [
        (device(8, 0, 163), "sm_80"),
        (device(8, 6, 99), "sm_86"),
        (device(8, 7, 163), "sm_86"),
        (device(8, 9, 99), "sm_89"),
        (device(9, 0, 227), "sm_90a"),
        (device(10, 0, 227), "sm_90"),
        (device(12, 0, 99), "sm_89"),  # no more shared memory than an sm_89 has, of which code for sm_90 may use more
    ],
)
def test_the_best_architecture_for_a_device(found: Device, arch: str, monkeypatch: pytest.MonkeyPatch):
    assert native.best_arch(found) == arch and runs_on(arch, found.arch)
    old = Device(0, "an old device", (7, 5), 1 << 30, (13, 0), 64 << 10)
    monkeypatch.setattr(native, "devices", lambda: [old, found])
    assert native.native_arch() == arch
    monkeypatch.setattr(native, "devices", lambda: [old])
    with pytest.raises(CudaUnavailable, match="no device that programs run on"):
        native.native_arch()


@pytest.mark.parametrize(
    ("arch", "runs"),
    [("sm_80", "80 86 90 100 120"), ("sm_90", "90 100 120"), ("sm_90a", "90"), ("sm_100a", "100"), ("sm_100f", "100")],
)
def test_which_devices_run_code(arch: str, runs: str):
    assert [n for n in ("75", "80", "86", "90", "100", "120") if runs_on(arch, f"sm_{n}")] == runs.split()
    assert capability_of("sm_120a") == (12, 0) and capability_of("none") == (0, 0)


def test_an_interpreter_runs_code_for_its_own_architecture():
    ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"
    for arch in ("sm_90a", "sm_90"):
        open_driver(True, arch).load(ptx)
    with pytest.raises(LightNetError, match="PTX for sm_90a does not run on sm_100"):
        open_driver(True, "sm_100").load(ptx)


def test_what_is_run_is_compiled_for_the_device(monkeypatch: pytest.MonkeyPatch):
    def options(**given: object) -> dict[str, object]:
        own = {name: given.pop(name) for name in ("arch", "emulate", "on_cpu") if name in given}
        return run_options(argparse.Namespace(**{"target": "cuda", "precision": None, **given}, own_options=own))

    monkeypatch.setattr(native, "devices", lambda: [device(9, 0, 227)])
    assert options() == {"arch": "sm_90a"}
    assert options(arch="sm_80", precision="f16") == {"arch": "sm_80", "precision": "f16"}
    assert options(emulate=True) == {"emulate": True} and options(on_cpu=True) == {"on_cpu": True}
    assert options(target="cpu") == {}

    def none() -> list[Device]:
        raise CudaUnavailable("there is none")

    monkeypatch.setattr(native, "devices", none)
    assert options() == {}  # the run will say so


def test_compiling_for_this_device(monkeypatch: pytest.MonkeyPatch):
    model = lightnet.loads("input(| dst=x | dtype=TL_FLOAT, dims=[2, 3]);\nrelu(src=x | dst=y | );\n", ".net")
    monkeypatch.setattr(native, "devices", lambda: [device(8, 9, 99)])
    assert lightnet.compile(model, "cuda", arch="native").arch == "sm_89"
    assert lightnet.compile(model, "cuda").arch == "sm_80"
    monkeypatch.setattr(native, "devices", lambda: drivers.devices())
    with pytest.raises(LightNetError, match="'arch' is of target cuda"):
        lightnet.compile(model, "cpu", arch="native")
