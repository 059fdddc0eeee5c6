"""The driver for NVIDIA devices, on a stand-in for its library (data/cuda/fake_driver.c), which runs what it is given as late as it may,
takes every argument down, and fails where a test asks it to; and, where there is a device, on that."""

from __future__ import annotations

import ctypes
import gc
import itertools
import multiprocessing
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda import api, driver, libcuda, staging
from lightnet.runtime.cuda.api import SIGNATURES, Api, KernelNode
from lightnet.runtime.cuda.driver import CudaUnavailable, DeviceLaunch, encode
from lightnet.runtime.cuda.libcuda import LibCuda
from lightnet.runtime.cuda.modules import parameter_sizes
from lightnet.runtime.cuda.tensor_map import Im2col, TensorMap

SOURCE = Path(__file__).parents[2] / "data" / "cuda" / "fake_driver.c"
PTX = """.version 8.0
.target sm_80
.address_size 64
// .entry commented(.param .u64 x)
.visible .entry axpy(
	.param .u64 .ptr .global .align 16 axpy_param_0,
	.param .u64 .ptr .global .align 16 axpy_param_1,
	.param .f32 axpy_param_2,
	.param .u32 axpy_param_3
)
.maxntid 256
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<5>;
	.reg .f32 	%f<5>;
	.reg .b64 	%rd<6>;
	ld.param.u32 	%r1, [axpy_param_3];
	mov.u32 	%r2, %ctaid.x;
	mov.u32 	%r3, %ntid.x;
	mov.u32 	%r4, %tid.x;
	mad.lo.s32 	%r2, %r2, %r3, %r4;
	setp.ge.u32 	%p1, %r2, %r1;
	@%p1 bra 	$done;
	ld.param.u64 	%rd1, [axpy_param_0];
	ld.param.u64 	%rd2, [axpy_param_1];
	ld.param.f32 	%f1, [axpy_param_2];
	mul.wide.u32 	%rd3, %r2, 4;
	add.s64 	%rd4, %rd1, %rd3;
	add.s64 	%rd5, %rd2, %rd3;
	ld.global.f32 	%f2, [%rd4];
	ld.global.f32 	%f3, [%rd5];
	fma.rn.f32 	%f4, %f1, %f3, %f2;
	st.global.f32 	[%rd4], %f4;
$done:
	ret;
}
.visible .entry every(.param .u64 a, .param .u32 b, .param .s32 c, .param .u64 d, .param .s64 e, .param .f32 f, .param .f64 g)
{
	ret;
}
.entry empty()
{
	ret;
}
.entry maps(.param .u32 a, .param .align 64 .b8 b[128], .param .u64 c, .param .align 64 .b8 d[128])
{
	ret;
}
"""


class Fake:
    """The stand-in: what it took down, and what it is to do."""

    def __init__(self, path: Path):
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_alive.restype = ctypes.POINTER(ctypes.c_int * 8)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("version", "devices", "capability"):
            ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value
        else:
            super().__setattr__(name, value)

    @property
    def log(self) -> list[str]:
        return self.library.fake_log().decode().splitlines()

    @property
    def alive(self) -> list[int]:
        """Contexts, modules, device memory, pinned memory, streams, events, graphs, executable graphs."""
        return list(self.library.fake_alive().contents)

    def clear(self) -> None:
        self.library.fake_clear()

    def fail(self, name: str, code: int, after: int = 0) -> None:
        self.library.fake_fail(name.encode(), code, after)

    def breaks(self, code: int, after: int = 0) -> None:
        self.library.fake_break(code, after)

    def open(self) -> LibCuda:
        return LibCuda(Api(self.path))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (cc := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-o", out, SOURCE], check=True)
    return out


@pytest.fixture
def fake(compiled: Path, tmp_path: Path) -> Fake:
    """A stand-in of its own: a library's variables go with its file."""
    return Fake(shutil.copy(compiled, tmp_path / "libcuda.so.1"))


@pytest.fixture
def gpu(fake: Fake) -> Iterator[LibCuda]:
    opened = fake.open()
    yield opened
    opened.close()


def axpy(gpu: LibCuda, n: int = 5, a: float = 2.0) -> tuple[DeviceLaunch, int]:
    """A launch of y += a * x with x = 0, 1, ... and y = 1, and the address of y."""
    y, x = gpu.alloc(4 * n), gpu.alloc(4 * n)
    gpu.upload(y, np.ones(n, np.float32))
    gpu.upload(x, np.arange(n, dtype=np.float32))
    function = gpu.load(PTX).function("axpy")
    return DeviceLaunch(function, (-(-n // 256), 1, 1), (256, 1, 1), 0, (y, x, ("f32", a), ("u32", n))), y


def got(gpu: LibCuda, address: int, n: int = 5) -> np.ndarray:
    out = np.full(n, np.nan, np.float32)
    gpu.download(address, out)
    return out


# -- the table of functions ------------------------------------------------------------------------------------------


def test_signatures_are_those_of_the_c_definitions() -> None:
    # The C compiler holds these against NVIDIA's header where it finds one.
    kinds = {"int": ctypes.c_int, "unsigned int": ctypes.c_uint, "unsigned char": ctypes.c_ubyte, "size_t": ctypes.c_size_t,
             "unsigned long long": ctypes.c_ulonglong, "CUdeviceptr": ctypes.c_uint64, "cuuint32_t": ctypes.c_uint,
             "cuuint64_t": ctypes.c_uint64, "float": ctypes.c_float, "CUDA_KERNEL_NODE_PARAMS": KernelNode}  # fmt: skip
    enums = (
        "CUresult",
        "CUdevice",
        "CUdevice_attribute",
        "CUfunction_attribute",
        "CUjit_option",
        "CUtensorMapDataType",
        "CUtensorMapInterleave",
        "CUtensorMapSwizzle",
        "CUtensorMapL2promotion",
        "CUtensorMapFloatOOBfill",
    )
    kinds |= dict.fromkeys(enums, ctypes.c_int)

    def ctype(text: str) -> type:
        base, pointers = re.sub(r"\bconst\b", "", re.sub(r"\w+$", "", text.strip())).replace(" ", " ").strip(), 0
        while base.endswith("*"):
            base, pointers = base[:-1].strip(), pointers + 1
        if base == "char":
            kind, pointers = ctypes.c_char_p, pointers - 1
        elif base == "void" or base not in kinds:  # handles are pointers
            kind, pointers = ctypes.c_void_p, pointers - (base in ("void", "CUtensorMap"))
        else:
            kind = kinds[base]
        for _ in range(pointers):
            kind = ctypes.POINTER(kind)
        return kind

    text = SOURCE.read_text("utf-8").partition("/* -- the API")[2]
    found = {m[1]: tuple(map(ctype, m[2].split(","))) for m in re.finditer(r"^CUresult (\w+)\(([^)]*)\)", text, re.M)}
    image = found["cuModuleLoadDataEx"]
    found["cuModuleLoadDataEx"] = (image[0], ctypes.c_char_p, *image[2:])  # const void *, to which text is passed
    assert found == SIGNATURES


# -- finding a device ------------------------------------------------------------------------------------------------


def test_no_library() -> None:
    with pytest.raises(
        CudaUnavailable,
        match=r"^error: no CUDA device can be used: libcuda\.so\.1.* does not load: .*; --emulate runs without one$",
    ):
        Api("libcuda-is-not-here.so.1")


def test_a_library_that_is_no_driver() -> None:
    with pytest.raises(CudaUnavailable, match="has no cuInit"):
        Api("libm.so.6")


def test_init_fails(fake: Fake) -> None:
    fake.fail("cuInit", 100)
    with pytest.raises(CudaUnavailable, match=r"cuInit failed: CUDA_ERROR_NO_DEVICE \(what it means\); --emulate"):
        Api(fake.path)
    fake.fail("cuInit", 3)
    with pytest.raises(CudaUnavailable, match=r"error 3 \(a parent process used CUDA"):
        Api(fake.path)


def test_no_device(fake: Fake) -> None:
    fake.devices = 0
    with pytest.raises(CudaUnavailable, match="shows no device"):
        fake.open()


def test_old_driver(fake: Fake) -> None:
    fake.version = 11080
    with pytest.raises(CudaUnavailable, match=r"for CUDA 11\.8, and PTX 8\.0 takes one for 12\.0 or later"):
        fake.open()


def test_old_device(fake: Fake) -> None:
    fake.capability = 75
    with pytest.raises(CudaUnavailable, match=r"compute capability 8\.0 or later is needed, and Fake 0 has 7\.5"):
        fake.open()
    assert fake.alive[0] == 0


def test_device_that_gives_no_context(fake: Fake) -> None:
    fake.fail("cuDevicePrimaryCtxRetain", 2)
    with pytest.raises(
        CudaUnavailable, match="Fake 0 gives no context: cuDevicePrimaryCtxRetain failed: CUDA_ERROR_OUT"
    ):
        fake.open()
    fake.fail("cuStreamCreate", 2)
    with pytest.raises(CudaUnavailable, match="cuStreamCreate failed"):
        fake.open()
    assert fake.alive == [0] * 8


def test_what_a_device_says_of_itself(fake: Fake) -> None:
    fake.devices = 2
    first, second = api.device_list(Api(fake.path))
    assert (first.name, second.name, second.ordinal, first.arch) == ("Fake 0", "Fake 1", 1, "sm_90")
    assert (first.memory_bytes, first.version, first.is_supported) == (5 << 30, (12, 4), True)
    fake.capability = 100
    gpu = fake.open()
    assert (gpu.name, gpu.arch, gpu.memory_bytes) == ("Fake 0", "sm_100", 5 << 30)
    gpu.close()


@pytest.mark.parametrize("there", [False, True])
def test_command(there: bool, compiled: Path, tmp_path: Path) -> None:
    if not there:
        (tmp_path / "libcuda.so.1").write_bytes(b"no library")  # before any driver of this machine
    env = {**os.environ, "LD_LIBRARY_PATH": str(compiled.parent if there else tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "lightnet.cli.lightnet", "devices"], capture_output=True, text=True, env=env
    )
    first, last = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        first == "0  Fake 0  sm_90  5.0 GiB  driver for CUDA 12.4"
        if there
        else "no CUDA device can be used: lib" in first
    )
    assert last.startswith("the emulator (--emulate)")


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 16383, 16384, 16385, 50000])
def test_round_trip(gpu: LibCuda, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST", 1 << 16)  # pieces of 16384 elements
    data = np.arange(n, dtype=np.int32)
    address = gpu.alloc(4 * n)
    assert address % 256 == 0
    sent = data.copy()
    gpu.upload(address, sent)
    sent[:] = -1  # the copy has not run yet, and must not see this
    out = np.zeros(n, np.int32)
    gpu.download(address, out)
    np.testing.assert_array_equal(out, data)


def test_staging_is_bounded_and_used_again(gpu: LibCuda, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST", 1 << 18)
    fake.clear()
    address = gpu.alloc(1 << 20)
    for nbytes in (1, 1 << 16, (1 << 16) + 1, 1 << 20, 100, 1 << 20):
        gpu.upload(address, np.zeros(nbytes, np.uint8))
    assert [line for line in fake.log if line.startswith("pin")] == [
        f"pin {size} 0" for size in (1 << 16, 1 << 17, 1 << 18) for _ in range(2)
    ]
    assert fake.alive[3] == 2
    assert fake.alive[5] == 2
    assert not any("in use" in line for line in fake.log)


def test_uploads_in_flight_do_not_disturb_each_other(gpu: LibCuda) -> None:
    address = gpu.alloc(40)
    for i in range(5):
        gpu.upload(address + 8 * i, np.full(1, i, np.int64))
    out = np.zeros(5, np.int64)
    gpu.download(address, out)
    assert out.tolist() == [0, 1, 2, 3, 4]


def test_arrays_of_any_form(gpu: LibCuda) -> None:
    data = np.arange(24, dtype=np.float16).reshape(2, 3, 4).transpose(2, 0, 1)
    address = gpu.alloc(data.nbytes)
    gpu.upload(address, data)
    out = np.zeros((2, 3, 4), np.float16).transpose(2, 0, 1)
    gpu.download(address, out)
    np.testing.assert_array_equal(out, data)
    scalar = np.zeros((), np.bool_)
    gpu.upload(address, np.array(True))
    gpu.download(address, scalar)
    assert scalar
    with pytest.raises(LightNetError, match="array of object"):
        gpu.upload(address, np.array([None]))


def test_fill(gpu: LibCuda) -> None:
    address = gpu.alloc(16)
    gpu.fill(address, 0xFF, 16)
    gpu.fill(address + 4, 1, 8)
    gpu.fill(address, 7, 0)
    out = np.zeros(4, np.uint32)
    gpu.download(address, out)
    assert out.tolist() == [0xFFFFFFFF, 0x01010101, 0x01010101, 0xFFFFFFFF]
    with pytest.raises(LightNetError, match="of 256"):
        gpu.fill(address, 256, 1)


def test_out_of_memory(gpu: LibCuda) -> None:
    for nbytes in (2 << 30, 2**64 + 16):
        with pytest.raises(
            LightNetError, match=rf"Fake 0 has no {nbytes} bytes of memory to give: {1 << 30} of {5 << 30} are free"
        ):
            gpu.alloc(nbytes)
    with pytest.raises(LightNetError, match="-1 bytes"):
        gpu.alloc(-1)
    gpu.alloc(0)  # and it works on


def test_freeing_what_is_not_there(gpu: LibCuda, fake: Fake) -> None:
    address = gpu.alloc(8)
    gpu.fill(address, 1, 8)
    gpu.free(address)
    assert fake.alive[2] == 0
    assert "freed while it may be in use" not in fake.log
    with pytest.raises(LightNetError, match=f"no memory at {address:#x}"):
        gpu.free(address)


# -- kernels ---------------------------------------------------------------------------------------------------------


def test_launch(gpu: LibCuda, fake: Fake) -> None:
    launch, y = axpy(gpu)
    fake.clear()
    gpu.launch(launch)
    np.testing.assert_array_equal(got(gpu, y), 1 + 2 * np.arange(5))
    assert fake.log[0].startswith("launch axpy grid 1 1 1 block 256 1 1 shared 0 ")


def test_every_type_of_parameter(gpu: LibCuda, fake: Fake) -> None:
    function = gpu.load(PTX).function("every")
    args = (2**63 + 5, ("u32", 2**32 - 2), ("s32", -3), ("u64", 7), ("s64", -(2**40)), ("f32", 0.1), ("f64", 0.1))
    fake.clear()
    gpu.launch(DeviceLaunch(function, (1, 2, 3), (4, 5, 6), 77, args))
    bits = struct.pack("<QIiQqfd", 2**63 + 5, 2**32 - 2, -3, 7, -(2**40), 0.1, 0.1).hex()
    sizes = [8, 4, 4, 8, 8, 4, 8]
    words = [bits[2 * sum(sizes[:i]) :][: 2 * size] for i, size in enumerate(sizes)]
    assert fake.log == [f"launch every grid 1 2 3 block 4 5 6 shared 77 {' '.join(words)}"]
    gpu.launch(DeviceLaunch(gpu.load(PTX).function("empty"), (1, 1, 1), (1, 1, 1), 0, ()))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((1, 2, ("f32", 1.0)), r"parameters of \[8, 8, 4, 4\] bytes, and was given \[8, 8, 4\] bytes"),
        ((1, 2, ("f64", 1.0), ("u32", 1)), r"given \[8, 8, 8, 4\]"),
        ((), "given none"),
        ((1, 2, ("f32", 1.0), ("u32", -1)), "type u32 does not hold -1"),
        ((-1, 2, ("f32", 1.0), ("u32", 1)), "type u64 does not hold -1"),
        ((1, 2, ("f32", 1e300), ("u32", 1)), "type f32 does not hold 1e.300"),
        ((1, 2, ("f16", 1.0), ("u32", 1)), "no type 'f16'; there are: u32, "),
    ],
)
def test_wrong_arguments(gpu: LibCuda, args: tuple, said: str) -> None:
    function = gpu.load(PTX).function("axpy")
    with pytest.raises(LightNetError, match=said):
        gpu.launch(DeviceLaunch(function, (1, 1, 1), (1, 1, 1), 0, args))
    gpu.synchronize()


def test_launch_that_the_device_refuses(gpu: LibCuda) -> None:
    function = gpu.load(PTX).function("empty")
    with pytest.raises(
        LightNetError,
        match=r"kernel 'empty' \(grid 1x1x1, block 2048x1x1\) cannot be launched: CUDA_ERROR_INVALID_VALUE",
    ):
        gpu.launch(DeviceLaunch(function, (1, 1, 1), (2048, 1, 1), 0, ()))
    for grid in ((0, 1, 1), (2**32 + 1, 1, 1)):
        with pytest.raises(LightNetError, match="a size is not positive, or too large"):
            gpu.launch(DeviceLaunch(function, grid, (1, 1, 1), 0, ()))
    gpu.launch(DeviceLaunch(function, (1, 1, 1), (1, 1, 1), 0, ()))
    gpu.synchronize()


def test_much_shared_memory_is_asked_for(gpu: LibCuda) -> None:
    module = gpu.load(PTX)
    args = (1, ("u32", 2), ("s32", 3), 4, ("s64", 5), ("f32", 6.0), ("f64", 7.0))
    for nbytes in (47 << 10, (47 << 10) + 1, 226 << 10, 50 << 10):  # the stand-in refuses what was not asked for
        gpu.launch(DeviceLaunch(module.function("every"), (1, 1, 1), (1, 1, 1), nbytes, args))
    with pytest.raises(
        LightNetError,
        match=r"needs too much, beside the 1024 that it declares: a block has at most 232448 bytes on Fake 0",
    ):
        gpu.launch(DeviceLaunch(module.function("every"), (1, 1, 1), (1, 1, 1), (226 << 10) + 1, args))
    gpu.launch(DeviceLaunch(module.function("empty"), (1, 1, 1), (1, 1, 1), 227 << 10, ()))


def test_refused_ptx_shows_the_line_and_the_log(gpu: LibCuda, fake: Fake) -> None:
    fake.clear()
    with pytest.raises(LightNetError) as caught:
        gpu.load(".version 8.0\n\twrong;\n")
    assert caught.value.render().splitlines() == [
        "<ptx>:2: error: the CUDA driver refuses the PTX: CUDA_ERROR_INVALID_PTX (what it means)",
        "  \twrong;".replace("\t", " "),
        "note: ptxas application ptx input, line 2; fatal   : Unexpected",
        "note: ptxas fatal",
    ]
    assert fake.log == ["option 3 0", "option 4 16384", "option 5 0", "option 6 16384", "option 13 1"]
    assert gpu.load(PTX).log == "an info"
    assert fake.alive[1] <= 1
    with pytest.raises(LightNetError, match="null character"):
        gpu.load("a\0b")


def test_unknown_kernel(gpu: LibCuda) -> None:
    module = gpu.load(PTX)
    with pytest.raises(LightNetError, match=r"the PTX has no kernel 'axpi'; did you mean axpy\?"):
        module.function("axpi")
    with pytest.raises(LightNetError, match="no kernel 'commented'"):
        module.function("commented")


def test_parameter_sizes() -> None:
    text = ".entry k$1 ( .param .align 64 .b8 k_0[128], /* , */ .param .u16 k_1 , .param .f64 k_2 ) { } .visible .entry none { }"
    assert parameter_sizes(text) == {"k$1": (128, 2, 8), "none": ()}


def test_unused_modules_go_when_the_device_is_idle(gpu: LibCuda, fake: Fake) -> None:
    launch, y = axpy(gpu)
    gpu.launch(launch)
    del launch
    gc.collect()
    assert fake.alive[1] == 1  # its kernel has not run
    assert got(gpu, y)[1] == 3
    assert fake.alive[1] == 0


# -- tensor maps -----------------------------------------------------------------------------------------------------


TILED = TensorMap("f16", (3, 200, 72), box=(1, 128, 64))
WINDOWS = TensorMap("bf16", (2, 9, 7, 64), im2col=Im2col(128, 64, (-1, -2), (1, 0), (1, 3)))


def test_tensor_maps_are_encoded_from_the_innermost_dimension(gpu: LibCuda, fake: Fake) -> None:
    """Sizes, strides in bytes without the innermost, boxes, corners and steps; then: no interleaving, the swizzle of 128 bytes, L2 by 128, zeros."""
    fake.clear()
    tiled, windows = gpu.tensor_map(0x7F0000000010, TILED), gpu.tensor_map(0x100, WINDOWS)
    assert fake.log == [
        "map tiled type 6 at 0x7f0000000010 dims 72,200,3 strides 144,28800 box 64,128,1 steps 1,1,1 how 0 3 2 0",
        "map im2col type 9 at 0x100 dims 64,7,9,2 strides 128,896,8064 lower -2,-1 upper 0,1 channels 64 pixels 128 steps 1,3,1,1 how 0 3 2 0",
    ]
    assert struct.unpack("<16Q", tiled) == tuple(0x7F0000000010 + i for i in range(16))
    assert struct.unpack("<16Q", windows)[0] == 0x100


def test_arguments_lie_side_by_side() -> None:
    """Each at a multiple of 8 (a tensor map: of 64), apart from all others, in no more memory than that takes wherever
    it begins."""
    kinds = [bytes(range(1, 5)), bytes(range(11, 19)), bytes(range(21, 149))]
    for values in (list(v) for count in range(6) for v in itertools.product(kinds, repeat=count)):
        addresses, buffer = libcuda._laid_out(values)
        first, most = ctypes.addressof(buffer), 0
        taken: set[int] = set()
        for address, value in zip(addresses, values, strict=True):
            unit = 64 if len(value) == 128 else 8
            place = set(range(address, address + len(value)))
            assert address % unit == 0 and not place & taken and ctypes.string_at(address, len(value)) == value
            assert place <= set(range(first, first + len(buffer)))
            taken |= place
            most = next(at for at in range(most, most + 64) if at % unit == 0) + len(value)
        assert len(buffer) <= most + 64


@pytest.mark.parametrize("in_graph", [False, True])
def test_tensor_maps_are_aligned_parameters(gpu: LibCuda, fake: Fake, in_graph: bool) -> None:
    a, b = bytes(range(128)), bytes(range(128, 256))
    launch = DeviceLaunch(gpu.load(PTX).function("maps"), (1, 1, 1), (128, 1, 1), 0, (("u32", 7), a, 5, b))
    fake.clear()
    if in_graph:
        gpu.graph([launch])
    else:
        gpu.launch(launch)
    words = f"07000000 {a.hex()} 0500000000000000 {b.hex()}"
    assert fake.log[in_graph] == f"launch maps grid 1 1 1 block 128 1 1 shared 0 {words}"
    for args in ((("u32", 7), a[:64], 5, b), (("u32", 7), 5, 5, b)):
        with pytest.raises(
            LightNetError, match=r"parameters of \[4, 128, 8, 128\] bytes, and was given \[4, (64|8), 8, 128\]"
        ):
            gpu.launch(DeviceLaunch(launch.function, (1, 1, 1), (128, 1, 1), 0, args))


def test_tensor_maps_that_are_refused(gpu: LibCuda, fake: Fake) -> None:
    fake.clear()
    with pytest.raises(
        LightNetError, match="at 0x8, which is no multiple of 16"
    ):  # ours, before the driver's, who gives no reason
        gpu.tensor_map(8, TILED)
    assert fake.log == []
    for name, map in (("cuTensorMapEncodeTiled", TILED), ("cuTensorMapEncodeIm2col", WINDOWS)):
        fake.fail(name, 1)
        with pytest.raises(
            LightNetError, match=r"refuses a tensor map \(TensorMap.* at 0x10\): CUDA_ERROR_INVALID_VALUE"
        ):
            gpu.tensor_map(16, map)
    fake.capability = 89
    old = fake.open()
    with pytest.raises(LightNetError, match=r"Fake 0 \(sm_89\) has no tensor maps: they take compute capability 9\.0"):
        old.tensor_map(16, TILED)
    old.close()


def test_a_driver_without_tensor_maps(fake: Fake) -> None:
    class Older:
        def __getattr__(self, name: str) -> object:
            if name.startswith("cuTensorMap"):
                raise AttributeError(name)
            return getattr(library._library, name)

    library = Api(fake.path)
    other = Api(fake.path)
    other._library = Older()
    gpu = LibCuda(other)
    with pytest.raises(LightNetError, match=r"has no cuTensorMapEncodeTiled: the driver is too old"):
        gpu.tensor_map(16, TILED)
    gpu.close()


@pytest.mark.parametrize(
    ("target", "capability", "said"),
    [
        ("sm_80", 89, None),
        ("sm_90", 89, "the PTX is for sm_90, and Fake 0 is sm_89: compile for it"),
        ("sm_90", 120, None),
        ("sm_90a", 90, None),
        ("sm_90a", 100, "is for sm_90a, of which only devices of that very capability have all instructions, and Fake 0 is sm_100"),
        ("sm_100", 90, "is for sm_100, and Fake 0 is sm_90"),
    ],
)  # fmt: skip
def test_code_for_another_device(fake: Fake, target: str, capability: int, said: str | None) -> None:
    fake.capability = capability
    gpu, text = fake.open(), PTX.replace(".target sm_80", f"// .target sm_99\n.target {target}, debug")
    if said is None:
        gpu.load(text)
    else:
        with pytest.raises(LightNetError, match=f"^<ptx>:3: error: .*{said}"):
            gpu.load(text)
    gpu.close()


# -- graphs ----------------------------------------------------------------------------------------------------------


def test_graph(gpu: LibCuda, fake: Fake) -> None:
    launch, y = axpy(gpu)
    fake.clear()
    graph = gpu.graph([launch, launch])
    assert [line for line in fake.log if not line.startswith("launch")] == [
        "graph 0",
        "after 0",
        "instantiate 2 nodes 0",
    ]
    np.testing.assert_array_equal(got(gpu, y), np.ones(5))  # making it runs nothing
    for _ in range(3):
        graph.launch()
    np.testing.assert_array_equal(got(gpu, y), 1 + 12 * np.arange(5))
    assert fake.alive[6:] == [0, 1]
    del graph
    gc.collect()
    gpu.synchronize()
    assert fake.alive[6:] == [0, 0]


def test_launches_of_a_graph_wait_for_what_they_are_told_to(gpu: LibCuda, fake: Fake) -> None:
    n, ones = 5, np.ones(5, np.float32)
    x, y, z = (gpu.alloc(20) for _ in range(3))
    function = gpu.load(PTX).function("axpy")

    def add(to: int, source: int) -> DeviceLaunch:
        return DeviceLaunch(function, (1, 1, 1), (256, 1, 1), 0, (to, source, ("f32", 1.0), ("u32", n)))

    launches = [add(y, x), add(z, y), add(z, x)]
    for after, want in [(None, 4), ([(), (0,), (1,)], 4), ([(), (0,), ()], 4), ([(), (), ()], 3)]:
        for address in (x, y, z):
            gpu.upload(address, ones)
        fake.clear()
        gpu.graph(launches, after).launch()
        edges = [line for line in fake.log if line.startswith("after")]
        assert edges == [f"after {k}" for numbers in after or [(), (0,), (1,)] for k in numbers]
        np.testing.assert_array_equal(got(gpu, z), want * ones)  # what waits for nothing runs from the last on
    for wrong in ([(), (1,), ()], [(), (-1,), ()], [()]):
        with pytest.raises(LightNetError, match="wait for earlier ones"):
            gpu.graph(launches, wrong)


@pytest.mark.parametrize("where", ["cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags"])
def test_graph_that_fails_leaves_nothing(gpu: LibCuda, fake: Fake, where: str) -> None:
    launch, y = axpy(gpu)
    fake.fail(where, 1, after=where == "cuGraphAddKernelNode_v2")
    with pytest.raises(LightNetError, match="CUDA_ERROR_INVALID_VALUE"):
        gpu.graph([launch, launch])
    assert fake.alive[6:] == [0, 0]
    gpu.launch(launch)
    np.testing.assert_array_equal(got(gpu, y), 1 + 2 * np.arange(5))


def test_graph_checks_before_it_begins(gpu: LibCuda, fake: Fake) -> None:
    launch, _ = axpy(gpu)
    fake.clear()
    with pytest.raises(LightNetError, match="was given"):
        gpu.graph([launch, DeviceLaunch(launch.function, (1, 1, 1), (1, 1, 1), 0, ())])
    assert fake.log == []


def test_time(gpu: LibCuda, fake: Fake) -> None:
    launch, _ = axpy(gpu)
    graph = gpu.graph([launch] * 3)
    fake.breaks(700, 1000)  # counts the kernels, from which the stand-in makes times
    assert gpu.time(lambda: (graph.launch(), gpu.launch(launch))) == pytest.approx(4e-3)
    assert [line for line in fake.log if line.startswith("event")][-2:] == ["event 0", "event 0"]
    with pytest.raises(ZeroDivisionError):
        gpu.time(lambda: 1 // 0)
    assert fake.alive[5] == 2  # those of the staging


# -- errors of the device --------------------------------------------------------------------------------------------


def test_lost_device_names_the_launches(gpu: LibCuda, fake: Fake) -> None:
    launch, y = axpy(gpu)
    graph = gpu.graph([launch] * 3)
    gpu.synchronize()
    fake.breaks(700, after=2)
    gpu.launch(launch)
    graph.launch()
    with pytest.raises(LightNetError) as caught:
        got(gpu, y)
    assert caught.value.render().splitlines() == [
        "error: cuEventSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (what it means)",
        "note: one of 2 launches failed, from the last: a graph of 3 kernels, kernel 'axpy' (grid 1x1x1, block 256x1x1)",
        "note: LIGHTNET_CUDA_SYNC=1 waits for each launch, and says which it was",
        "note: the memory and the kernels on the device are lost to this process: only a new one can use it again",
    ]
    for call in (
        gpu.synchronize,
        lambda: gpu.alloc(8),
        lambda: gpu.launch(launch),
        graph.launch,
        lambda: gpu.load(PTX),
    ):
        with pytest.raises(
            LightNetError, match=r"lost to an earlier error: CUDA_ERROR_ILLEGAL_ADDRESS[^$]*one of 2 launches"
        ):
            call()
    gpu.close()
    gpu.close()


def test_only_launch_is_the_one_that_failed(gpu: LibCuda, fake: Fake) -> None:
    launch, _ = axpy(gpu)
    gpu.synchronize()
    fake.breaks(700)
    gpu.launch(launch)
    with pytest.raises(LightNetError, match=r"it was kernel 'axpy' .* that failed"):
        gpu.synchronize()


def test_many_launches_are_not_all_named(gpu: LibCuda, fake: Fake) -> None:
    launch, _ = axpy(gpu)
    fake.breaks(700)
    for _ in range(100):
        gpu.launch(launch)
    with pytest.raises(LightNetError) as caught:
        gpu.synchronize()
    assert caught.value.notes[0][1].startswith("one of 100 launches failed")
    assert caught.value.notes[0][1].count("axpy") == 8


@pytest.mark.parametrize("in_graph", [False, True])
def test_waiting_for_each_launch(fake: Fake, monkeypatch: pytest.MonkeyPatch, in_graph: bool) -> None:
    monkeypatch.setenv("LIGHTNET_CUDA_SYNC", "1")
    gpu = fake.open()
    launch, _ = axpy(gpu)
    other = DeviceLaunch(launch.function, (7, 1, 1), (32, 1, 1), 0, launch.args)
    fake.breaks(700, after=1)
    with pytest.raises(LightNetError, match=r"it was kernel 'axpy' \(grid 7x1x1, block 32x1x1\) that failed"):
        if in_graph:
            gpu.graph([launch, other, launch]).launch()
        else:
            for one in (launch, other, launch):
                gpu.launch(one)
    gpu.close()


@pytest.mark.parametrize("name", ["cuMemAlloc_v2", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord",
                                  "cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncGetAttribute", "cuCtxPushCurrent_v2"])  # fmt: skip
def test_every_call_is_checked(gpu: LibCuda, fake: Fake, name: str) -> None:
    fake.fail(name, 999)
    with pytest.raises(LightNetError, match="error 999"):
        axpy(gpu), got(gpu, gpu.alloc(20))
    launch, y = axpy(gpu)
    gpu.launch(launch)
    np.testing.assert_array_equal(got(gpu, y), 1 + 2 * np.arange(5))


# -- the end ---------------------------------------------------------------------------------------------------------


def test_close_gives_everything_back(fake: Fake) -> None:
    gpu = fake.open()
    launch, _ = axpy(gpu)
    graph = gpu.graph([launch])
    graph.launch()
    assert fake.alive == [1, 1, 2, 2, 1, 2, 0, 1]
    fake.clear()
    gpu.close()
    assert fake.alive == [0] * 8
    assert fake.log == []  # nothing was freed while it was in use
    gpu.close()
    del graph, launch
    gc.collect()
    assert fake.alive == [0] * 8
    with pytest.raises(LightNetError, match="the CUDA device is closed"):
        gpu.alloc(1)


def test_collecting_the_driver_closes_it(fake: Fake) -> None:
    gpu = fake.open()
    gpu.upload(gpu.alloc(8), np.zeros(8, np.uint8))
    del gpu
    gc.collect()
    assert fake.alive == [0] * 8


def test_context_is_current_only_during_a_call(gpu: LibCuda, fake: Fake) -> None:
    address = ctypes.c_uint64()
    assert fake.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8)) == 201
    with pytest.raises(LightNetError):
        gpu.load("wrong")
    assert fake.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8)) == 201


def test_threads(gpu: LibCuda) -> None:
    failed: list[BaseException] = []

    def work(a: float) -> None:
        try:
            launch, y = axpy(gpu, 1000, a)
            graph = gpu.graph([launch])
            for _ in range(10):
                graph.launch()
            np.testing.assert_allclose(got(gpu, y, 1000), 1 + 10 * a * np.arange(1000), rtol=1e-6)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(a,)) for a in (1.0, 2.0, 4.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def _in_child(gpu: LibCuda, address: int, results: multiprocessing.SimpleQueue) -> None:
    said = []
    for call in (gpu.synchronize, lambda: gpu.alloc(8), lambda: gpu.free(address)):
        try:
            call()
        except LightNetError as error:
            said.append(error.message)
    gpu.close()
    results.put(said)


@pytest.mark.filterwarnings("ignore:.*multi-threaded")
def test_fork(gpu: LibCuda, fake: Fake) -> None:
    address = gpu.alloc(8)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(gpu, address, results), daemon=True)
    may_end = threading.Event()
    inside = threading.Event()
    thread = threading.Thread(
        target=lambda: gpu.time(lambda: (inside.set(), may_end.wait(60)))
    )  # in a call while we fork
    thread.start()
    assert inside.wait(60)
    child.start()
    may_end.set()
    thread.join(60)
    child.join(20)
    assert child.exitcode == 0
    said = results.get()
    assert len(said) == 3 and all("before this process was forked" in message for message in said)
    gpu.synchronize()
    gpu.free(address)


@pytest.mark.parametrize("close", ["", "gpu.close()"])
def test_end_of_the_interpreter(compiled: Path, close: str) -> None:
    code = f"from lightnet.runtime.cuda import driver\ngpu = driver.open_driver()\nx = gpu.alloc(8)\ngpu.fill(x, 1, 8)\n{close}\nprint(gpu.arch)"
    env = {**os.environ, "LD_LIBRARY_PATH": str(compiled.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sm_90\n", "")


#: A process that launches a kernel, and a graph of it, in a function of `atexit` that runs behind weakref's finalizers.
AT_EXIT = """import atexit, ctypes
def last():
    for _ in range(2):
        gpu.launch(launch)
        graph.launch()
        gpu.synchronize()
    print(alive() == before, list(before))
atexit.register(last)
from lightnet.runtime.cuda import driver
gpu = driver.open_driver()
launch = driver.DeviceLaunch(gpu.load(PTX).function("empty"), (1, 1, 1), (1, 1, 1), 0, ())
graph = gpu.graph([launch])
library = ctypes.CDLL("libcuda.so.1")
library.fake_alive.restype = ctypes.POINTER(ctypes.c_int * 8)
alive = lambda: list(library.fake_alive().contents)
before = alive()
"""


def test_what_is_loaded_stays_to_the_end(compiled: Path) -> None:
    """Functions that run at exit may use a network: nothing of it is given back before."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(compiled.parent)}
    done = subprocess.run([sys.executable, "-c", f"PTX = {PTX!r}\n{AT_EXIT}"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True [1, 1, 0, 0, 1, 0, 0, 1]\n", "")


def test_runs_without_the_compiler() -> None:
    code = "import sys\nsys.modules['xdsl'] = sys.modules['llvmlite'] = None\nimport lightnet.runtime.cuda.libcuda"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_encode() -> None:
    assert encode(1) == b"\1\0\0\0\0\0\0\0"
    assert encode(("f32", float("inf"))) == b"\0\0\x80\x7f"
    assert encode(("s32", np.int64(-1))) == b"\xff" * 4
    assert encode(b"a tensor map") == b"a tensor map"


# -- a device --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_on_a_device() -> None:
    try:
        gpu = driver.open_driver()
    except CudaUnavailable as error:
        pytest.skip(error.message)
    n = 3_000_001
    launch, y = axpy(gpu, n, 0.5)
    expected = (1 + 0.5 * np.arange(n, dtype=np.float32)).astype(np.float32)
    gpu.launch(launch)
    np.testing.assert_allclose(got(gpu, y, n), expected, rtol=1e-6)
    graph = gpu.graph([launch, launch])
    assert 0 < gpu.time(graph.launch) < 1
    np.testing.assert_allclose(got(gpu, y, n), 1 + 1.5 * np.arange(n, dtype=np.float64), rtol=1e-6)
    with pytest.raises(LightNetError, match="<ptx>:"):
        gpu.load(PTX.replace("fma.rn.f32", "fma.rn.f33"))
    with pytest.raises(LightNetError, match="bytes of memory to give"):
        gpu.alloc(2 * gpu.memory_bytes)
    gpu.close()
