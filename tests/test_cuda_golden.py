"""The interpreter against what a device gave (tests/data/cuda/golden.npz, recorded by tools/golden.py), where there is such a record; and that the
record would show a difference."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import ptxas
import pytest

from lightnet.runtime.cuda.driver import CudaUnavailable
from lightnet.runtime.cuda.emulator import Emulator

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import golden


@pytest.fixture(scope="module")
def own() -> dict[str, np.ndarray]:
    """A record of the interpreter itself."""
    return golden.record(Emulator())


def test_the_interpreter_gives_what_hardware_gave() -> None:
    if not golden.PATH.exists():
        pytest.skip("no record of a device: run python tools/golden.py where there is one")
    with np.load(golden.PATH) as recorded:
        assert golden.replay(dict(recorded), Emulator()) == [], f"recorded on {recorded['device']}, {recorded['date']}"


@pytest.mark.gpu
def test_a_device_gives_what_the_interpreter_gives(own: dict[str, np.ndarray]) -> None:
    from lightnet.runtime.cuda.libcuda import LibCuda

    try:
        assert golden.replay(own, LibCuda()) == []
    except CudaUnavailable as error:
        pytest.skip(error.message)


def test_a_record_is_replayed(own: dict[str, np.ndarray], tmp_path: Path) -> None:
    golden.write(tmp_path / "golden.npz", own)
    with np.load(tmp_path / "golden.npz") as recorded:
        assert golden.replay(dict(recorded), Emulator()) == []
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
    assert [line.split(":")[0] for line in golden.replay(changed, Emulator())] == ["ex2.approx.f32", "rcp.rn.f32"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptxas_takes_every_case(arch: str) -> None:
    """What is to run on a device without having run on one before."""
    ptxas.require()
    for text in dict.fromkeys(case.ptx for case in golden.cases()):
        assert ptxas.assembled(text, arch).kernels.keys() == {"k"}


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert golden.main(["--emulate", "--output", str(tmp_path / "g.npz")]) == 0
    assert "cases of PTX interpreter (sm_80)" in capsys.readouterr().out and (tmp_path / "g.npz").exists()
    from lightnet.runtime.cuda import libcuda

    def none() -> None:
        raise CudaUnavailable("there is none in this test")

    monkeypatch.setattr(libcuda, "LibCuda", none)
    assert golden.main([]) == 1
    assert "no CUDA device can be used: there is none in this test" in capsys.readouterr().err
