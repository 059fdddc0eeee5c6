"""The PTX interpreter on what sm_90a has: mbarriers, copies by tensor maps, and products by warpgroups, against NumPy; and what it finds in kernels
with planted bugs.
"""

from __future__ import annotations

import numpy as np
import ptxas
import pytest
from ptx_hopper_kernels import copy, product, ring, stream
from ptx_kernels import MMA

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch
from lightnet.runtime.cuda.tensor_map import Im2col, TensorMap
from lightnet_ptx import tensor_map
from lightnet_ptx.emulator import Emulator

RNG = np.random.default_rng(0)


def u32(*values: int) -> tuple[tuple[str, int], ...]:
    return tuple(("u32", v & 0xFFFFFFFF) for v in values)


def finding(execute, label: str) -> LightNetError:
    with pytest.raises(LightNetError) as caught:
        execute()
    assert caught.value.label == f"ptx.{label}", caught.value.render()
    return caught.value


# -- tensor maps as bytes
def test_a_tensor_map_is_read_back():
    for map in (
        TensorMap("f16", (5, 7, 8, 64), (1, 2, 4, 64)),
        TensorMap("bf16", (2, 9, 8, 64), im2col=Im2col(128, 64, (-1, -128), (-1, 127), (2, 8))),
        TensorMap("f16", (1 << 32, 8), (256, 8)),
    ):
        raw = tensor_map.encode(4096, map)
        assert len(raw) == 128 and tensor_map.decode(raw) == (4096, map)


def test_bytes_that_are_no_tensor_map():
    raw = bytearray(tensor_map.encode(4096, TensorMap("f16", (8, 64), (8, 64))))
    raw[20] ^= 1
    for other in (bytes(raw), bytes(128), b""):
        with pytest.raises(LightNetError, match="no tensor map"):
            tensor_map.decode(other)


# -- copies
def copied(text: str, x: np.ndarray, map: TensorMap, nbytes: int, *scalars: int) -> np.ndarray:
    """What the kernel `copy` leaves: the elements in the order of the copy, [rows, elements of a row]."""
    device = Emulator("sm_90a")
    source, target = device.alloc(x.nbytes), device.alloc(nbytes)
    device.upload(source, x)
    arguments = (device.tensor_map(source, map), target, *u32(*scalars))
    device.launch(DeviceLaunch(device.load(text).function("copy"), (1, 1, 1), (128, 1, 1), 0, arguments))
    raw = np.empty(nbytes, np.uint8)
    device.download(target, raw)
    lines = raw.reshape(-1, 8, 16)  # pieces of 16 bytes by rows of 128: those of row r are exchanged with r % 8
    row = np.arange(len(lines))[:, None]
    plain = lines[row, np.arange(8) ^ (row % 8)]
    width = (map.im2col.channels if map.im2col else map.box[-1]) * 2
    return plain.reshape(-1, width).view(x.dtype)


@pytest.mark.parametrize(
    "dims, box, at",
    [
        ((40, 128), (16, 64), (8, 64)),
        ((40, 128), (16, 64), (32, 100)),  # beyond the ends
        ((40, 128), (16, 64), (-5, -9)),  # before the beginnings
        ((40, 128), (8, 64), (70, 0)),  # nothing is inside
        ((40, 32), (16, 32), (3, 2)),  # rows of 64 bytes
        ((3, 10, 64), (2, 8, 64), (1, 5, 0)),
        ((3, 10, 72), (3, 4, 64), (-1, -2, 40)),
        ((2, 5, 6, 64), (1, 3, 4, 64), (1, -1, 4, 0)),
        ((2, 5, 6, 80), (2, 2, 2, 64), (1, 4, -1, 33)),
        ((2, 2, 3, 4, 64), (2, 1, 2, 2, 64), (-1, 1, 2, 3, 0)),
    ],
)
def test_copies_of_boxes(dims, box, at):
    x = RNG.standard_normal(dims).astype(np.float16)
    nbytes = int(np.prod(box)) * 2
    got = copied(copy(len(dims), nbytes), x, TensorMap("f16", dims, box), nbytes, *reversed(at))
    margins = [100] * 2 if len(dims) == 2 else [4] * (len(dims) - 1) + [60]
    padded = np.pad(x, [(m, m) for m in margins])
    want = padded[tuple(slice(a + m, a + m + n) for a, m, n in zip(at, margins, box))]
    assert (got == want.reshape(-1, box[-1])).all()


def convolution_windows(x: np.ndarray, lower, upper, strides) -> np.ndarray:
    """The beginnings (n, y, x) of all windows of x, [windows, 3], as loops."""
    n, h, w, _ = x.shape
    ys, xs = (range(lo, size + up, s) for lo, up, s, size in zip(lower, upper, strides, (h, w)))
    return np.array([(i, y, z) for i in range(n) for y in ys for z in xs])


@pytest.mark.parametrize(
    "kernel, pad, stride, dilation, first, tap",
    [
        (3, 1, 1, 1, 0, (0, 0)),
        (3, 1, 1, 1, 20, (1, 2)),  # into the next picture
        (3, 1, 2, 1, 7, (2, 0)),
        (3, 2, 1, 2, 0, (2, 1)),
        (3, 0, 1, 1, 13, (0, 2)),
        (5, 2, 3, 1, 2, (4, 4)),
        (1, 0, 2, 1, 9, (0, 0)),
    ],
)
def test_copies_by_windows(kernel, pad, stride, dilation, first, tap):
    x = RNG.standard_normal((3, 7, 6, 64)).astype(np.float16)
    reach = dilation * (kernel - 1)
    lower, upper, strides = (-pad, -pad), (pad - reach, pad - reach), (stride, stride)
    map = TensorMap("f16", x.shape, im2col=Im2col(16, 64, lower, upper, strides))
    every = convolution_windows(x, lower, upper, strides)
    n, y, z = every[first]
    offsets = [t * dilation for t in tap]
    got = copied(copy(4, 2048, True), x, map, 2048, 0, z, y, n, *reversed(offsets))
    padded = np.pad(x, [(0, 0), (8, 8), (8, 8), (0, 0)])
    want = np.zeros((16, 64), np.float16)
    for i, (n, y, z) in enumerate(every[first : first + 16]):  # behind the last picture there are zeros
        want[i] = padded[n, y + 8 + offsets[0], z + 8 + offsets[1]]
    assert (got == want).all()


def test_windows_of_part_of_the_channels():
    x = RNG.standard_normal((1, 5, 5, 96)).astype(np.float16)
    map = TensorMap("f16", x.shape, im2col=Im2col(16, 64, (0, 0), (0, 0), (1, 1)))
    got = copied(copy(4, 2048, True), x, map, 2048, 64, 0, 0, 0, 0, 0)
    assert (got[:, :32] == x.reshape(25, 96)[:16, 64:]).all() and not got[:, 32:].any()


BOX, X = TensorMap("f16", (40, 128), (16, 64)), np.ones((40, 128), np.float16)


#: Copies a map into memory of the thread's own, as compilers do with parameters that they are not told to leave where they are.
OWN_MAP = " ".join(f"ld.param.u64 %rd8, [T+{i}]; st.local.u64 [own+{i}], %rd8;" for i in range(0, 128, 8))


@pytest.mark.parametrize(
    "line, other, label",
    [
        ("@!done bra AGAIN_0;", "", "tma"),
        ("mbarrier.try_wait.parity.shared::cta.b64 done, [m], 0;", "mbarrier.test_wait.parity.shared::cta.b64 done, [m], 1;", "tma"),
        ("mbarrier.try_wait.parity.shared::cta.b64 done, [m], 0;", "mbarrier.try_wait.parity.shared::cta.b64 done, [m], 2;", "mbarrier"),
        ("_, [m], 2048;", "_, [m], 1024;", "mbarrier"),
        ("_, [m], 2048;", "_, [m], 4096;", "mbarrier"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 2048;", "", "mbarrier"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 2048;", "mbarrier.expect_tx.shared::cta.b64 [m], 2048;", "mbarrier"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 2048;", "mbarrier.arrive.shared::cta.b64 _, [m];", "mbarrier"),
        ("mbarrier.init.shared::cta.b64 [m], 1;", "", "mbarrier"),
        ("mbarrier.init.shared::cta.b64 [m], 1;", "mbarrier.init.shared::cta.b64 [m], 2;", "mbarrier"),
        ("mbarrier.init.shared::cta.b64 [m], 1;", "mbarrier.init.shared::cta.b64 [m], 0;", "mbarrier"),
        ("mbarrier.init.shared::cta.b64 [m], 1;", "mbarrier.init.shared::cta.b64 [m], 1; mbarrier.init.shared::cta.b64 [m], 1;", "mbarrier"),
        ("mbarrier.init.shared::cta.b64 [m], 1;", "mbarrier.init.shared::cta.b64 [m], 1; st.shared.b32 [m], %r1;", "mbarrier"),
        ("fence.mbarrier_init.release.cluster;   // FENCE", "", "mbarrier"),
        ("bar.sync 0;                            // BARRIER", "", "mbarrier"),
        (".shared .align 1024 .b8 s[2048];", ".shared .align 1024 .b8 s[1920];", "bounds"),
        ("[s], [%rd2,", "[s+64], [%rd2,", "misaligned"),
        ("[s], [%rd2,", "[s+128], [%rd2,", "bounds"),
        ("cvta.param.u64 %rd2, %rd1;", "add.u64 %rd2, %rd1, 8589934592; add.u64 %rd2, %rd2, 4294967296; add.u64 %rd2, %rd2, 16;", "misaligned"),
        ("cvta.param.u64 %rd2, %rd1;", "ld.param.u64 %rd2, [O];", "uninitialised"),
        ("cvta.param.u64 %rd2, %rd1;", f".local .align 64 .b8 own[128]; {OWN_MAP} mov.u64 %rd2, own; cvta.local.u64 %rd2, %rd2;", "tma"),
        ("AGAIN_0:", "@%p1 bra OVER; AGAIN_0:", "race"),
        ("AGAIN_0:", "setp.ge.u32 %p3, %r1, 32; @%p3 bra OVER; AGAIN_0:", "race"),
        ("fence.mbarrier_init.release.cluster;   // FENCE", "mbarrier.inval.shared::cta.b64 [m]; fence.mbarrier_init.release.cluster;", "mbarrier"),
        # what is right
        ("mbarrier.init.shared::cta.b64 [m], 1;", "mbarrier.init.shared::cta.b64 [m], 3; mbarrier.inval.shared::cta.b64 [m]; mbarrier.init.shared::cta.b64 [m], 1;", None),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 2048;", "mbarrier.expect_tx.shared::cta.b64 [m], 2048; mbarrier.arrive.shared::cta.b64 _, [m];", None),
        ("fence.mbarrier_init.release.cluster;   // FENCE", "fence.proxy.async;", None),
        ("prefetch.tensormap", "prefetch.tensormap", None),
    ],
)  # fmt: skip
def test_planted_bugs_in_a_copy_are_caught(line, other, label):
    text = (
        copy(2, 2048)
        .replace("    shl.b32 %r2", "OVER:\n    shl.b32 %r2")
        .replace("    bar.sync", "    prefetch.tensormap [%rd2];\n    bar.sync")
    )
    assert text.count(line) == 1
    execute = lambda: copied(text.replace(line, other), X, BOX, 2048, 0, 0)  # noqa: E731
    if label is None:
        assert (execute() == 1).all()
        return
    error = finding(execute, label)
    assert error.loc and error.loc.line > 4 and "thread (" in error.render()


def test_a_barrier_hands_on_what_one_thread_waited_for():
    text = (
        copy(2, 2048)
        .replace("AGAIN_0:", "@%p1 bra OVER; AGAIN_0:")
        .replace("    shl.b32 %r2", "OVER: bar.sync 1;\n    shl.b32 %r2")
    )
    assert (copied(text, X, BOX, 2048, 0, 0) == 1).all()


def test_several_arrivals_at_once():
    text = copy(2, 2048).replace("[m], 1;", "[m], 129;")
    text = text.replace(
        "ISSUED:\n",
        "ISSUED:\n    @!%p1 mbarrier.arrive.shared::cta.b64 _, [m]; @%p1 mbarrier.arrive.shared::cta.b64 _, [m], 1;\n",
    )
    assert (copied(text, X, BOX, 2048, 0, 0) == 1).all()
    text = (
        copy(2, 2048)
        .replace("[m], 1;", "[m], 8;")
        .replace("ISSUED:\n", "ISSUED:\n    @!%p1 mbarrier.arrive.shared::cta.b64 _, [m], 7;\n")
    )
    assert (copied(text, X, BOX, 2048, 0, 0) == 1).all()
    finding(lambda: copied(text.replace("_, [m], 7;", "_, [m], 9;"), X, BOX, 2048, 0, 0), "mbarrier")


def test_a_copy_that_nobody_waits_for():
    text = copy(2, 2048)
    begin, end = text.index("    { .reg .pred done"), text.index("// WAIT")
    text = text[:begin] + "    ret;" + text[end:]
    assert "block ends" in finding(lambda: copied(text, X, BOX, 2048, 0, 0), "tma").message


def test_a_deadlock_says_what_is_missing():
    text = copy(2, 2048).replace("_, [m], 2048;", "_, [m], 4096;")
    message = finding(lambda: copied(text, X, BOX, 2048, 0, 0), "mbarrier").message
    assert "128 threads wait for parity 0" in message and "waits for 0 of 1 arrivals and 4096 bytes" in message
    assert "copies bring 2048" in message and "(m+0)" in message


@pytest.mark.parametrize("byte", [1023, 3072], ids=["before", "behind"])
def test_a_copy_says_nothing_of_the_bytes_around_it(byte: int) -> None:
    """A copy of 2048 bytes to s+1024 lands between two accesses to a byte beside it: they race all the same, unless
    something orders them."""
    text = copy(2, 2048).replace("s[2048]", "s[4096]").replace("[s]", "[s+1024]")
    text = text.replace("mov.u32 %r3, s;", "mov.u32 %r3, s; add.u32 %r3, %r3, 1024;")
    first = f"ISSUED: setp.eq.u32 %p3, %r1, 32; @%p3 st.shared.u8 [s+{byte}], %h3;"
    text = text.replace(".reg .b16 %h<4>;", ".reg .b16 %h<4>; mov.u16 %h3, 7;").replace("ISSUED:", first)
    second = f"setp.eq.u32 %p3, %r1, 64; @%p3 ld.shared.u8 %h3, [s+{byte}]; shl.b32 %r2, %r1, 4;"
    ordered, racing = (text.replace("shl.b32 %r2, %r1, 4;", before + second) for before in ("bar.sync 0; ", ""))
    assert (copied(ordered, X, BOX, 2048, 0, 0) == 1).all()
    message = finding(lambda: copied(racing, X, BOX, 2048, 0, 0), "race").message
    assert message.startswith("race: a read of 1 byte") and f"(s+{byte})" in message and "thread (32, 0, 0)" in message


def test_a_wait_for_the_phase_before_says_which_phase_to_wait_for():
    """Parity 1 has ended before an mbarrier's first phase: that wait is over at once."""
    text = copy(2, 2048).replace("[m], 0;", "[m], 1;")
    error = finding(lambda: copied(text, X, BOX, 2048, 0, 0), "tma")
    assert "which a copy of a tensor that was not waited for will write" in error.message
    line = 1 + text[: text.index("cp.async.bulk")].count("\n")
    assert [
        loc.line
        for loc, note in error.notes
        if loc and "phase 0 of the mbarrier" in note and note.endswith("wait for parity 0")
    ] == [line]


@pytest.mark.parametrize("parity", [2, 3, 255])
def test_a_phase_has_two_parities(parity):
    error = finding(lambda: copied(copy(2, 2048).replace("[m], 0;", f"[m], {parity};"), X, BOX, 2048, 0, 0), "mbarrier")
    assert f"waits for parity {parity}: a phase has 0 or 1" in error.message


def test_maps_and_coordinates_that_do_not_fit():
    x = np.ones((1, 5, 5, 64), np.float16)
    windows = TensorMap("f16", x.shape, im2col=Im2col(16, 64, (-1, -1), (-1, -1), (2, 2)))
    text = copy(4, 2048, True)
    for at in ((0, 0, -1, 0, 0, 0), (0, -3, -1, 0, 0, 0), (0, 5, -1, 0, 0, 0), (0, -1, -1, 0, 256, 0)):
        finding(lambda at=at: copied(text, x, windows, 2048, *at), "tma")
    finding(lambda: copied(text, x, TensorMap("f16", x.shape, (1, 4, 4, 64)), 2048, *[0] * 6), "tma")
    finding(lambda: copied(copy(3, 2048), X, BOX, 2048, 0, 0, 0), "tma")
    finding(lambda: copied(copy(2, 2048), X, TensorMap("f16", (41, 128), (16, 64)), 2048, 0, 0), "bounds")


def test_a_copy_of_what_was_never_written():
    device = Emulator("sm_90a")
    source, target = device.alloc(X.nbytes), device.alloc(2048)
    device.upload(source, X[:20])
    function = device.load(copy(2, 2048)).function("copy")
    arguments = (device.tensor_map(source, BOX), target)
    run = lambda row: device.launch(DeviceLaunch(function, (1, 1, 1), (128, 1, 1), 0, (*arguments, *u32(0, row))))  # noqa: E731
    run(4)
    finding(lambda: run(5), "uninitialised")


# -- products of a warpgroup
def placed(matrix: np.ndarray, width: int, by_k: bool, first: int = 0) -> np.ndarray:
    """The bytes of a factor [rows or columns, 16] of 16-bit elements with a swizzle of `width` bytes (0: none), as rows that are `width` bytes long:
    of 16-byte pieces of k, or (`by_k`) of rows or columns. `first`: the k of the row at which it begins. Padded to 1024 bytes."""
    words = matrix.view(np.uint16)
    if by_k:
        words = words.T
    rows, along = words.shape
    if not width:  # pieces of 8 x 8, each 128 bytes; along the row first
        tiles = words.reshape(rows // 8, 8, along // 8, 8).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(tiles).view(np.uint8).ravel()
    each = width // 2
    if by_k:  # panels of `each` columns, all k of one behind each other
        words = words.reshape(rows, -1, each).transpose(1, 0, 2).reshape(-1, each)
    full = np.zeros((len(words), each), np.uint16)
    full[:, first : first + words.shape[1]] = words
    pieces = full.reshape(len(words), width // 16, 8)
    row = np.arange(len(words))[:, None] * width // 128
    return np.ascontiguousarray(pieces[np.arange(len(words))[:, None], np.arange(width // 16) ^ (row % (width // 16))]).view(np.uint8).ravel()  # fmt: skip


def lengths(size: int, width: int, by_k: bool) -> tuple[int, int]:
    """The leading and stride lengths of `placed`, in units of 16 bytes."""
    if not width:
        return (size * 16 // 16, 128 // 16) if by_k else (128 // 16, 256 // 16)
    return (width, 8 * width // 16) if by_k else (1, 8 * width // 16)


MODE = {0: 0, 128: 1, 64: 2, 32: 3}


def multiplied(cols, kind, a_how, b_how, change=lambda text: text, scales="1, 1"):
    """The kernel `product` on random factors: what it gives, and what float64 does."""
    made = [RNG.standard_normal((size, 16)).astype(np.float32) for size in (64, cols)]
    if kind == "f16":
        short = [m.astype(np.float16) for m in made]
        exact = [m.astype(np.float64) for m in short]
    else:
        short = [(m.view(np.uint32) >> 16).astype(np.uint16) for m in made]
        exact = [(m.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for m in short]
    data, descriptors = b"", []
    for matrix, (width, by_k) in zip(short, (a_how, b_how)):
        leading, stride = lengths(len(matrix), width, by_k)
        descriptors.append((MODE[width] << 30 | stride, leading << 16 | len(data) >> 4, int(by_k)))
        raw = placed(matrix, width, by_k).tobytes()
        data += raw.ljust(-(-len(raw) // 2048) * 2048, b"\0")
    device = Emulator("sm_90a")
    source, target = device.alloc(len(data)), device.alloc(256 * cols)
    device.upload(source, np.frombuffer(data, np.uint8))
    text = change(product(cols, kind, descriptors[0], descriptors[1], len(data), scales))
    device.launch(DeviceLaunch(device.load(text).function("product"), (1, 1, 1), (128, 1, 1), 0, (source, target)))
    raw = np.empty(
        (4, 8, 4, cols // 8, 2, 2), np.float32
    )  # warp, group, inner; pieces of columns, halves of rows, pairs
    device.download(target, raw)
    return raw.transpose(0, 4, 1, 3, 2, 5).reshape(64, cols), exact[0] @ exact[1].T


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("cols", [8, 64, 176, 256])
def test_products_of_rows_of_k(cols, kind):
    got, want = multiplied(cols, kind, (128, False), (128, False))
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("a_width", [0, 32, 64, 128])
@pytest.mark.parametrize("a_by_k, b_width, b_by_k", [(False, 0, True), (True, 128, True), (True, 64, False), (False, 32, True)])  # fmt: skip
def test_products_in_all_layouts(a_width, a_by_k, b_width, b_by_k):
    if a_width == 0 and a_by_k:  # 8 rows are 128 bytes, and 8 k lie 1024 bytes apart
        assert lengths(64, 0, True) == (64, 8)
    got, want = multiplied(128, "f16", (a_width, a_by_k), (b_width, b_by_k))
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_products_change_signs():
    got, want = multiplied(16, "f16", (128, False), (128, False), scales="-1, 1")
    assert np.abs(got + want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    "line, other, label",
    [
        ("fence.proxy.async.shared::cta;         // PROXY", "", "proxy"),
        ("bar.sync 0;                            // FILLED", "", "race"),
        ("wgmma.fence.sync.aligned;              // FENCE", "", "wgmma"),
        ("wgmma.commit_group.sync.aligned;       // COMMIT", "", "wgmma"),
        ("wgmma.wait_group.sync.aligned 0;       // WAIT", "", "wgmma"),
        ("wgmma.wait_group.sync.aligned 0;       // WAIT", "wgmma.wait_group.sync.aligned 1;", "wgmma"),
        ("wgmma.commit_group.sync.aligned;       // COMMIT", "mov.b32 %f1, 0f00000000; wgmma.commit_group.sync.aligned;", "wgmma"),
        ("wgmma.commit_group.sync.aligned;       // COMMIT", "st.shared.b32 [%r3], %r1; wgmma.commit_group.sync.aligned;", "race"),
        ("setp.ne.u32 %p2, %r1, %r1;", "setp.eq.u32 %p2, %r1, %r1;", "uninitialised"),
        ("setp.ne.u32 %p2, %r1, %r1;", "setp.ne.u32 %p2, %r1, 3;", "wgmma"),
        ("shr.u32 %r9, %r3, 4;", "shr.u32 %r9, %r3, 4; and.b32 %r12, %r1, 8; add.u32 %r9, %r9, %r12;", "descriptor"),
        ("shr.u32 %r9, %r3, 4;", "shr.u32 %r9, %r3, 4; add.u32 %r9, %r9, 8;", "descriptor"),
        ("shr.u32 %r9, %r3, 4;", "shr.u32 %r9, %r3, 4; or.b32 %r9, %r9, 0x8000;", "descriptor"),
        ("shr.u32 %r9, %r3, 4;", "shr.u32 %r9, %r3, 4; add.u32 %r9, %r9, 512;", "bounds"),
        (".reqntid 128, 1, 1", ".reqntid 128, 1, 1 .maxnreg 128", None),
        ("wgmma.fence.sync.aligned;              // FENCE", "setp.ge.u32 %p3, %r1, 32; @!%p3 bra GONE; wgmma.fence.sync.aligned;", "missing-lane"),
        ("wgmma.fence.sync.aligned;              // FENCE", "setp.ge.u32 %p3, %r1, 32; @%p3 wgmma.fence.sync.aligned;", "missing-lane"),
        ("    ret;\n}", "    ld.shared.b32 %r5, [%r3]; GONE: ret;\n}", None),
    ],
)  # fmt: skip
def test_planted_bugs_in_a_product_are_caught(line, other, label):
    def change(text: str) -> str:
        assert text.count(line) == 1
        return text.replace(line, other) if "GONE" in line + other and "}" in line else text.replace(line, other).replace("    ret;\n}", "    GONE: ret;\n}")  # fmt: skip

    execute = lambda: multiplied(16, "f16", (128, False), (128, False), change)  # noqa: E731
    if label is None:
        got, want = execute()
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
        return
    finding(execute, label)


def test_a_block_that_is_no_warpgroup():
    def change(text: str) -> str:
        return text.replace(".reqntid 128, 1, 1", "")

    device = Emulator("sm_90a")
    text = change(product(8, "f16", (0x40000040, 0, 0), (0x40000040, 0, 0), 2048))
    function = device.load(text).function("product")
    finding(
        lambda: device.launch(DeviceLaunch(function, (1, 1, 1), (96, 1, 1), 0, (device.alloc(2048), 0))), "missing-lane"
    )


# -- the ring
def gemm(text: str, m=128, n=64, k=448, cols=64, stages=3, kind="f16", by_k=False, **options) -> float:
    """The error of the kernel's product, relative to the largest element."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n) if by_k else (n, k))
    if kind == "f16":
        a, b = a.astype(np.float16), b.astype(np.float16)
        exact_a, exact_b = a.astype(np.float64), b.astype(np.float64)
    else:
        a, b = ((x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
        exact_a, exact_b = ((x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in (a, b))
    device = Emulator("sm_90a", **options)
    function = device.load(text).function("ring")
    at = [device.alloc(nbytes) for nbytes in (a.nbytes, b.nbytes, 4 * m * n)]
    device.upload(at[0], a)
    device.upload(at[1], b)
    maps = (
        device.tensor_map(at[0], TensorMap(kind, a.shape, (128, 64))),
        device.tensor_map(at[1], TensorMap(kind, b.shape, (64, 64) if by_k else (cols, 64))),
    )
    shared = stages * 128 * (128 + cols)
    device.launch(
        DeviceLaunch(function, (n // cols, m // 128, 1), (256, 1, 1), shared, (*maps, at[2], *u32(n, k // 64)))
    )
    c = np.empty((m, n), np.float32)
    device.download(at[2], c)
    want = exact_a @ (exact_b if by_k else exact_b.T)
    return float(np.abs(c - want).max() / np.abs(want).max())


@pytest.mark.parametrize(
    "m, n, k, cols, stages, kind, by_k",
    [
        (128, 64, 64, 64, 3, "f16", False),
        (256, 128, 512, 64, 3, "f16", False),
        (128, 256, 320, 256, 2, "bf16", False),
        (256, 256, 448, 128, 4, "f16", True),
        (128, 64, 192, 64, 2, "bf16", True),
    ],
)
def test_a_product_over_a_ring_of_stages(m, n, k, cols, stages, kind, by_k):
    text = ring(cols, stages, kind, by_k)
    assert gemm(text, m, n, k, cols, stages, kind, by_k) < 1e-5
    assert gemm(text, m, n, k, cols, stages, kind, by_k, check=False) < 1e-5


def test_blocks_in_several_batches():
    assert gemm(ring(), 512, 128, 256, lanes=512) < 1e-5


#: A line of the ring kernel, what stands there instead, and the finding (None: values are wrong).
MUTANTS = [
    ("@!done bra AGAIN_FULL;", "", "tma"),
    ("@!done bra AGAIN_EMPTY;", "", "race"),
    ("AGAIN_FULL: ", "@!%p2 bra GO; AGAIN_FULL: ", "race"),
    ("mbarrier.arrive.shared::cta.b64 _, [%r44];        // ARRIVE", "", "mbarrier"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r24], 24576;      // FIRST EXPECT", "", "mbarrier"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r24], 24576;      // EXPECT", "", "mbarrier"),
    ("_, [%r24], 24576;      // EXPECT", "_, [%r24], 16384;", "mbarrier"),
    ("_, [%r24], 24576;      // EXPECT", "_, [%r24], 24592;", "mbarrier"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r24], 24576;      // EXPECT", "mbarrier.arrive.shared::cta.b64 _, [%r24];", "mbarrier"),
    ("mbarrier.init.shared::cta.b64 [%r17], 8;          // COUNT", "mbarrier.init.shared::cta.b64 [%r17], 7;", "mbarrier"),
    ("mbarrier.init.shared::cta.b64 [%r17], 8;          // COUNT", "mbarrier.init.shared::cta.b64 [%r17], 9;", "mbarrier"),
    ("setp.eq.u32 %p1, %r8, 0;               // LANE", "setp.ne.u32 %p1, %r8, 0;", "mbarrier"),
    ("fence.mbarrier_init.release.cluster;   // INIT FENCE", "", "mbarrier"),
    ("bar.sync 0;                            // INIT BARRIER", "", "mbarrier"),
    ("wgmma.fence.sync.aligned;              // FENCE", "", "wgmma"),
    ("wgmma.commit_group.sync.aligned;       // COMMIT", "", "race"),
    ("wgmma.commit_group.sync.aligned;       // COMMIT", "wgmma.commit_group.sync.aligned; mov.b32 %r59, %f3;", "wgmma"),
    ("wgmma.commit_group.sync.aligned;       // COMMIT", "wgmma.commit_group.sync.aligned; mov.b32 %f3, %f3;", "wgmma"),
    ("wgmma.wait_group.sync.aligned 1;       // WAIT ONE", "", "race"),
    ("wgmma.wait_group.sync.aligned 1;       // WAIT ONE", "wgmma.wait_group.sync.aligned 2;", "race"),
    ("wgmma.wait_group.sync.aligned 0;       // WAIT ALL", "", "wgmma"),
    ("wgmma.wait_group.sync.aligned 0;       // WAIT ALL", "wgmma.wait_group.sync.aligned 1;", "wgmma"),
    ("xor.b32 %r33, %r33, 1;                 // FLIP", "", "tma"),
    ("mov.u32 %r33, 0;", "mov.u32 %r33, 1;", "tma"),
    ("mov.u32 %r35, %r33;", "xor.b32 %r35, %r33, 1;", "mbarrier"),
    ("mul.lo.u32 %r21, %r34, 16384;", "mul.lo.u32 %r21, %r32, 16384;", "race"),
    ("mul.lo.u32 %r22, %r34, 8192;", "mul.lo.u32 %r22, %r32, 8192;", "race"),
    ("add.u32 %r24, %r43, %r10;\n", "shl.b32 %r24, %r32, 3; add.u32 %r24, %r24, %r10;\n", "mbarrier"),
    ("mov.b64 %rd6, {%r41, 0x40000040};", "mov.b64 %rd6, {%r41, 0x00000040};", None),
    ("mov.b64 %rd6, {%r41, 0x40000040};", "mov.b64 %rd6, {%r41, 0x40000020};", None),
    ("mov.b64 %rd7, {%r42, 0x40000040};", "mov.b64 %rd7, {%r42, 0x80000040};", None),
    ("mov.b64 %rd7, {%r42, 0x40000040};", "mov.b64 %rd7, {%r42, 0x40000400};", "bounds"),
    ("mov.b64 %rd7, {%r42, 0x40000040};", "mov.b64 %rd7, {%r42, 0x40020040};", "descriptor"),
    ("add.s64 da1, %rd6, 2;", "add.s64 da1, %rd6, 8;", "descriptor"),
    ("add.s64 da1, %rd6, 2;", "add.s64 da1, %rd6, 4;", None),
    ("mul.lo.u32 %r42, %r32, 8192; add", "mul.lo.u32 %r42, %r32, 8320; add", "descriptor"),
    (".extern .shared .align 1024 .b8 dyn[];", ".extern .shared .align 16 .b8 dyn[];", "misaligned"),
    (".extern .shared .align 1024 .b8 dyn[];", ".extern .shared .align 128 .b8 dyn[];", "descriptor"),
]  # fmt: skip


@pytest.mark.parametrize("line, other, label", MUTANTS)
def test_planted_bugs_in_the_ring_are_caught(line, other, label):
    text = ring()
    assert text.count(line) == 1
    mutant = text.replace(line, other).replace("// WAIT FULL", "GO:", 1)
    if label is None:
        assert not gemm(mutant) < 1e-3
        return
    error = finding(lambda: gemm(mutant), label)
    assert error.loc and error.loc.line > 4 and "thread (" in error.render()


def test_one_thread_of_a_warpgroup_says_that_its_products_have_ended():
    lane, count = "setp.eq.u32 %p1, %r8, 0;               // LANE", "[%r17], 8;          // COUNT"
    text = ring().replace(lane, "and.b32 %r9, %r3, 127; setp.eq.u32 %p1, %r9, 0;")
    assert gemm(text.replace(count, "[%r17], 2;")) < 1e-5
    finding(lambda: gemm(text.replace("%r9, %r3, 127;", "%r9, %r3, 255;").replace(count, "[%r17], 1;")), "race")


def test_a_wrong_leading_length_by_k():
    text = ring(128, 3, by_k=True)
    line = f"or.b32 %r42, %r42, {512 << 16};"
    assert text.count(line) == 1
    assert not gemm(text.replace(line, f"or.b32 %r42, %r42, {256 << 16};"), n=128, cols=128, by_k=True) < 1e-3


# -- a ring that ordinary loads read
def streamed(text: str, steps: int = 7) -> bool:
    """Whether the kernel `stream` gives what the tensor holds."""
    x = np.random.default_rng(1).integers(0, 1 << 16, (steps * 8, 64)).astype(np.uint16)
    device = Emulator("sm_90a")
    source, target = device.alloc(x.nbytes), device.alloc(x.nbytes)
    device.upload(source, x)
    map = device.tensor_map(source, TensorMap("f16", x.shape, (8, 64)))
    device.launch(
        DeviceLaunch(device.load(text).function("stream"), (1, 1, 1), (96, 1, 1), 0, (map, target, *u32(steps)))
    )
    got = np.empty((steps * 8, 8, 8), np.uint16)
    device.download(target, got)
    row = np.arange(steps * 8)[:, None]
    return bool((got[row, np.arange(8) ^ row % 8].reshape(x.shape) == x).all())


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_warp_that_copies_for_others(each, steps):
    assert streamed(stream(each), steps)


@pytest.mark.parametrize(
    "line, other, label",
    [
        ("@!done bra AGAIN_FULL;", "", "tma"),
        ("@!done bra AGAIN_EMPTY;", "", "mbarrier"),
        ("xor.b32 %r12, %r6, 1;", "mov.u32 %r12, %r6;", "mbarrier"),
        ("mbarrier.arrive.shared::cta.b64 _, [%r11];                // ARRIVE", "", "mbarrier"),
        ("ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15];       // READ", "mbarrier.arrive.shared::cta.b64 _, [%r11]; ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15];", "mbarrier"),
        ("ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15];       // READ", "ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15]; st.shared.b32 [%r15], %r1;", "proxy"),
        ("ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15];       // READ", "xor.b32 %r15, %r15, 1024; ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15];", "uninitialised"),
        ("st.global.v4.b32 [%rd3],", "ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [%r15]; st.global.v4.b32 [%rd3],", "race"),
    ],
)  # fmt: skip
def test_planted_bugs_in_the_stream_are_caught(line, other, label):
    text = stream()
    assert text.count(line) == 1
    finding(lambda: streamed(text.replace(line, other)), label)


# -- what is understood, and where
@pytest.mark.parametrize(
    "text",
    [ring(), ring(128, 3, "bf16", True), stream(), stream(False), copy(2, 2048), copy(4, 2048, True), product(64, "f16", (0, 0, 1), (0, 0, 1), 16384)],
)  # fmt: skip
def test_the_assembler_takes_the_kernels(text):
    assert not ptxas.assembled(text, "sm_90a").warnings


@pytest.mark.parametrize(
    "line, other, label",
    [
        ("m64n64k16.f32.f16.f16", "m64n60k16.f32.f16.f16", "opcode"),
        ("m64n64k16.f32.f16.f16", "m64n64k16.f32.f16.bf16", "opcode"),
        ("m64n64k16.f32.f16.f16", "m64n64k16.f16.f16.f16", "opcode"),
        ("{%f0, %f1, ", "{%f0, %f0, ", "operand"),
        ("1, 1, 1, 0, 0;", "1, 2, 1, 0, 0;", "operand"),
        ("1, 1, 1, 0, 0;", "1, 1, 1, 0, 2;", "operand"),
        ("wait_group.sync.aligned 0", "wait_group.sync.aligned 8", "operand"),
        ("tensor.2d.shared::cluster", "tensor.2d.shared::cta", "opcode"),
        ("[%rd1, {%r23, %r6}]", "[%rd1, {%r23}]", "operand"),
        ("[%rd1, {%r23, %r6}]", "[%rd1]", "operand"),
        ("[%r16], 1;", "[%r16, {%r1}], 1;", "operand"),
        ("_, [%r44];", "%rd9, [%r44];", "unsupported"),
    ],
)
def test_what_is_not_understood_is_an_error_at_its_line(line, other, label):
    text = ring().replace(line, other, 1)
    assert text != ring()
    error = finding(lambda: Emulator("sm_90a").load(text), label)
    assert error.loc and error.loc.line > 4


def test_code_for_sm_90a_runs_there_alone():
    Emulator("sm_90a").load(MMA)
    for arch in ("sm_80", "sm_100"):
        finding(lambda arch=arch: Emulator(arch).load(ring()), "target")


def test_one_lane_is_elected():
    text = (
        "\n".join(ring().splitlines()[:3])
        + """
.visible .entry k(.param .u64 O) {
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
    setmaxnreg.dec.sync.aligned.u32 40;
    ld.param.u64 %rd1, [O];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd2, %rd1;
    elect.sync %r2|%p1, 0xffffffff;
    selp.b32 %r3, 1, 0, %p1;
    add.u32 %r3, %r3, %r2;
    st.global.b32 [%rd2], %r3;
    ret;
}"""
    )
    device = Emulator("sm_90a")
    target = device.alloc(256)
    device.launch(DeviceLaunch(device.load(text).function("k"), (1, 1, 1), (64, 1, 1), 0, (target,)))
    got = np.empty(64, np.uint32)
    device.download(target, got)
    assert got.sum() == 2
