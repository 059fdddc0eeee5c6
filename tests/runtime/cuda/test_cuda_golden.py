"""The interpreter against what a device gave (tests/data/cuda/golden.npz, recorded by tools/golden.py), where there is such a record; and that the
record would show a difference."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import ptxas
import pytest

from lightnet.runtime.cuda.driver import CudaUnavailable
from lightnet.runtime.cuda.tensor_map import Im2col
from lightnet_ptx.emulator import Emulator

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import golden
import golden_hopper as hopper


@pytest.fixture(scope="module")
def own() -> dict[str, np.ndarray]:
    """A record of the interpreter itself."""
    return golden.record(Emulator(hopper.ARCH))


def test_the_interpreter_gives_what_hardware_gave() -> None:
    if not golden.PATH.exists():
        pytest.skip("no record of a device: run python tools/golden.py where there is one")
    with np.load(golden.PATH) as recorded:
        said = f"recorded on {recorded['device']}, {recorded['date']}"
        assert golden.replay(dict(recorded), Emulator(hopper.ARCH)) == [], said


@pytest.mark.gpu
def test_a_device_gives_what_the_interpreter_gives(own: dict[str, np.ndarray]) -> None:
    from lightnet.runtime.cuda.libcuda import LibCuda

    try:
        device = LibCuda()
        assert golden.replay({**own, "arch": np.array(device.arch)}, device) == []
    except CudaUnavailable as error:
        pytest.skip(error.message)


def test_a_record_is_replayed(own: dict[str, np.ndarray], tmp_path: Path) -> None:
    golden.write(tmp_path / "golden.npz", own)
    with np.load(tmp_path / "golden.npz") as recorded:
        assert golden.replay(dict(recorded), Emulator(hopper.ARCH)) == []
        assert "PTX interpreter" in str(recorded["device"]) and len(str(recorded["date"])) == 10


@pytest.mark.parametrize("name", [case.name for case in golden.cases()])
def test_every_case_can_fail(own: dict[str, np.ndarray], name: str) -> None:
    """By an element that is another one, as of a lane that holds what its neighbour should."""
    case = next(case for case in golden.cases() if case.name == name)
    output = own[f"{name}/output"]
    assert case.difference(output, output) is None
    swapped = np.roll(output, 1, axis=0)
    assert "differ, first at" in case.difference(swapped, output)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
def test_integers_show_every_lane(own: dict[str, np.ndarray], kind: str) -> None:
    """The record's own products, by matrices: sums over k of integers, through the figures of the PTX ISA for A, B and C."""
    k = 8 if kind == "tf32" else 16
    name = f"mma {kind} k{k} of integers"
    a, b, c, d = (own[f"{name}/{part}"] for part in (0, 1, 2, "output"))
    each = 1 if kind == "tf32" else 2
    for block in range(2):
        part = slice(32 * block, 32 * block + 32)
        left, right, sums, got = np.zeros((16, k)), np.zeros((k, 8)), np.zeros((16, 8)), np.zeros((16, 8))
        for lane in range(32):
            group, place = divmod(lane, 4)
            for r in range(a.shape[1]):
                for e in range(each):
                    left[group + 8 * (r % 2), each * place + e + 4 * each * (r // 2)] = element(
                        a[part][lane, r], e, kind
                    )
            for r in range(b.shape[1]):
                for e in range(each):
                    right[each * place + e + 4 * each * r, group] = element(b[part][lane, r], e, kind)
            for r in range(4):
                sums[group + 8 * (r // 2), 2 * place + r % 2] = c[part][lane, r]
                got[group + 8 * (r // 2), 2 * place + r % 2] = d[part][lane, r : r + 1].view(np.float32)[0]
        np.testing.assert_array_equal(got, left @ right + sums)


@pytest.mark.parametrize("number", range(len(hopper.COPIES)))
def test_copies_take_what_the_maps_say(own: dict[str, np.ndarray], number: int) -> None:
    """Against NumPy: a box, or windows one after the other, zeros outside of the tensor, and pieces of 16 bytes where the swizzle has them."""
    map, places = hopper.COPIES[number]
    (name,) = (n.removesuffix("/output") for n in own if n.startswith("tma ") and n.endswith(f" {number}/output"))
    x, got = own[f"{name}/0"], own[f"{name}/output"]
    for place, rows in zip(places, got):
        want = window_rows(x, map.im2col, place) if map.im2col else box_rows(x, map.box, place)
        np.testing.assert_array_equal(hopper.swizzled(rows.view(np.uint16)), want)


def box_rows(x: np.ndarray, box: tuple[int, ...], place: tuple[int, ...]) -> np.ndarray:
    first = tuple(reversed(place))
    padded = np.pad(x, [(max(-at, 0), max(at + n - size, 0)) for at, n, size in zip(first, box, x.shape)])
    part = tuple(slice(max(at, 0), max(at, 0) + n) for at, n in zip(first, box))
    return padded[part].reshape(-1, box[-1])


def window_rows(x: np.ndarray, windows: Im2col, place: tuple[int, ...]) -> np.ndarray:
    c, w, h, n, dx, dy = place
    rows = []
    x = np.pad(x, [(0, 0), (0, 0), (0, 0), (0, 64)])  # a row has more channels than there may be
    for _ in range(windows.pixels):
        y, z = h + dy, w + dx
        inside = 0 <= n < x.shape[0] and 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
        rows.append(x[n, y, z, c : c + 64] if inside else np.zeros(64, np.uint16))
        w += windows.strides[1]
        if w > x.shape[2] - 1 + windows.upper[1]:
            w, h = windows.lower[1], h + windows.strides[0]
        if h > x.shape[1] - 1 + windows.upper[0]:
            h, n = windows.lower[0], n + 1
    return np.array(rows)


@pytest.mark.parametrize("case", [c for c in golden.cases() if c.name.startswith("wgmma")], ids=lambda c: c.name)
def test_products_of_warpgroups(own: dict[str, np.ndarray], case: golden.Case) -> None:
    """Against NumPy, of the factors read back from how they lie in shared memory."""
    kind, by_k, cols = case.name.split()[1], " by k" in case.name, 2 * case.shape[1]
    a, b = (values(hopper.swizzled(own[f"{case.name}/{i}"]), kind) for i in (0, 1))
    b = b.reshape(cols // 64, 64, 64).transpose(1, 0, 2).reshape(64, cols) if by_k else b.T
    want = hopper.accumulators(a @ b) + own[f"{case.name}/2"]
    got = own[f"{case.name}/output"].view(np.float32)
    np.testing.assert_allclose(got, want, rtol=0, atol=case.absolute)


def values(bits: np.ndarray, kind: str) -> np.ndarray:
    floats = bits.view(np.float16) if kind == "f16" else (bits.astype(np.uint32) << 16).view(np.float32)
    return floats.astype(np.float64)


def element(word: np.uint32, number: int, kind: str) -> float:
    if kind == "tf32":
        return float(np.array(word).view(np.float32))
    half = np.uint16((int(word) >> (16 * number)) & 0xFFFF)
    return (
        float(np.array(half).view(np.float16))
        if kind == "f16"
        else float(np.array(np.uint32(half) << 16).view(np.float32))
    )


def test_what_is_recorded_with_other_inputs_is_said(own: dict[str, np.ndarray]) -> None:
    changed = dict(own)
    changed["ex2.approx.f32/0"] = own["ex2.approx.f32/0"] + 1
    del changed["rcp.rn.f32/0"]
    assert [line.split(":")[0] for line in golden.replay(changed, Emulator(hopper.ARCH))] == [
        "ex2.approx.f32",
        "rcp.rn.f32",
    ]


def test_a_record_of_an_older_device_has_what_that_runs(own: dict[str, np.ndarray]) -> None:
    old = golden.record(Emulator())
    assert {name for name in own if name not in old} == {n for n in own if n.startswith(("tma ", "wgmma "))} != set()
    assert golden.replay(old, Emulator(hopper.ARCH)) == []
    lacking = {name: array for name, array in own.items() if name != "wgmma f16 n8 of integers/0"}
    assert [line.split(":")[0] for line in golden.replay(lacking, Emulator(hopper.ARCH))] == [
        "wgmma f16 n8 of integers"
    ]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_ptxas_takes_every_case(arch: str) -> None:
    """What is to run on a device without having run on one before."""
    ptxas.require()
    for text in dict.fromkeys(c.ptx for c in golden.cases() if c.arch != hopper.ARCH or arch == hopper.ARCH):
        assert ptxas.assembled(text, arch).kernels.keys() == {"k"}


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert golden.main(["--emulate", "--output", str(tmp_path / "g.npz")]) == 0
    assert "cases of PTX interpreter (sm_90a)" in capsys.readouterr().out and (tmp_path / "g.npz").exists()
    from lightnet.runtime.cuda import libcuda

    def none() -> None:
        raise CudaUnavailable("there is none in this test")

    monkeypatch.setattr(libcuda, "LibCuda", none)
    assert golden.main([]) == 1
    assert "no CUDA device can be used: there is none in this test" in capsys.readouterr().err
