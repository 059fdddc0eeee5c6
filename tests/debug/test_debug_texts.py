"""The texts on what a network does, from values made here: profiles, rooflines, tensors, layers that differ. Hand-worked."""

from __future__ import annotations

import json
from typing import Any

from lightnet.diagnostics import SourceLoc
from lightnet_debug.arrays import ArrayDifference
from lightnet_debug.differences import Layer, layers_text
from lightnet_debug.profile import KernelTime, Profile
from lightnet_debug.roofline import Peaks
from lightnet_debug.tensors import MAX_FILE_NAME, NonFinite, file_name

HERE = SourceLoc("net.mlir", 3, 5)


# -- profiles
def kernel(name: str, seconds: float, flops: int = 0, bound: float = 0.0, where: SourceLoc | None = None) -> KernelTime:
    return KernelTime(
        name, f"f_{name}", (f"relu {name}", "add s"), 1, seconds, flops, 2_000_000, bound, "2 -> 2", where
    )


def test_a_profile() -> None:
    peaks = Peaks(1e9, ((1024, 1e9),))
    kernels = (kernel("a", 0.001, 2_000_000, 0.0005, HERE), kernel("b", 0.003), kernel("c", 0.0))
    made = Profile(kernels, 0.005, 3, peaks, "a clock")
    top = made.text(2).split("\n")
    assert top[0].split() == [
        "kernel",
        "ops",
        "function",
        "us",
        "share",
        "GFLOP/s",
        "MB",
        "GB/s",
        "of",
        "bound",
        "shapes",
    ]
    assert top[1].split() == ["b", "relu+add", "f_b", "3000.0", "75.0%", "2.00", "0.7", "2", "->", "2"]
    assert top[2].split() == ["a", "relu+add", "f_a", "1000.0", "25.0%", "2.0", "2.00", "2.0", "50%", "2", "->", "2"]
    assert top[3:6] == ["and 1 more kernel, 0.0 us", "", "sum of 3 kernels: 4.000 ms, 500 MFLOP/s (median of 3 rounds)"]
    assert top[6:9] == [
        "one call of the network: 5.000 ms",
        "roofline bound: 0.500 ms, 12% of the time",
        "times: a clock",
    ]
    assert "more kernel" not in made.text(3) and made.text(1).count("and 2 more kernels, 1000.0 us") == 1
    data = json.loads(made.json())
    assert [k["where"] for k in data["lightnet"]["kernels"]] == ["net.mlir:3:5", None, None]
    events = [e for e in data["traceEvents"] if e.get("cat") == "kernel"]
    assert [e["args"]["source"] for e in events] == ["net.mlir:3:5", "", ""]
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [("a", 0, 1000), ("b", 1000, 3000), ("c", 4000, 0)]
    assert events[0]["args"] == {
        "function": "f_a",
        "ops": ["relu a", "add s"],
        "shapes": "2 -> 2",
        "flops": 2_000_000,
        "bytes": 2_000_000,
        "of bound": 0.5,
        "source": "net.mlir:3:5",
    }
    bare = Profile((kernel("c", 0.0, 5, 0.1),), None, 1, None)
    assert bare._totals() == ["sum of 1 kernel: 0.000 ms (median of 1 round)"] and bare.kernels[0].share_of_bound == 0
    assert bare.text().split("\n")[1].split() == ["c", "relu+add", "f_c", "0.0", "0.0%", "2.00", "2", "->", "2"]


def test_the_roofline() -> None:
    peaks = Peaks(100.0, ((10, 8.0), (20, 4.0), (40, 2.0)))
    assert [peaks.bytes_per_second(n) for n in (5, 10, 19, 20, 39, 40, 99)] == [8, 8, 8, 4, 4, 2, 2]
    assert (peaks.bound(1000, 0), peaks.bound(1000, 0, 2), peaks.bound(1000, 0, 8)) == (10, 10, 20)
    assert peaks.bound(0, 40) == 20 and peaks.bound(1000, 40) == 20 and peaks.bound(3000, 40) == 30
    short = Peaks(100.0, peaks.bandwidth, 400.0)
    assert (short.bound(1000, 0), short.bound(1000, 0, 2), short.bound(1000, 0, 1)) == (10, 2.5, 10)


# -- tensors
def test_names_of_files() -> None:
    taken: set[str] = set()
    assert (
        file_name("a/b c", taken) == "a%2fb%20c"
        and file_name(".hid", taken) == "%2ehid"
        and file_name("-o", taken) == "%2do"
    )
    again = file_name("A/B C", taken)
    assert (
        again.startswith("A%2fB%20C-") and len(again) == len("A%2fB%20C") + 13 and taken >= {"a%2fb%20c", again.lower()}
    )
    longest = "n" * MAX_FILE_NAME
    assert file_name(longest, taken) == longest
    cut = file_name(longest + "n", taken)
    assert len(cut) == MAX_FILE_NAME and cut.startswith("n" * (MAX_FILE_NAME - 13) + "-")
    assert len(file_name("", taken)) == 13 and len({*taken}) == len(taken)


def test_tensors_that_are_not_finite() -> None:
    assert str(NonFinite("y", 2, 0, 8, "relu r", HERE)) == "'y' has 2 NaN of 8 elements, computed by relu r"
    assert (
        str(NonFinite("y", 1, 3, 8, "", None, ("w", "b")))
        == "'y' has 1 NaN and 3 infinite of 8 elements, as it was fed; so have the weights w, b"
    )


# -- layers
def layer(name: str, wrong: int = 0, jumps: bool = False, constant: bool = False, **facts: Any) -> Layer:
    found = ArrayDifference(0.5, 0.25, 2.0, wrong, 8, **facts.pop("found", {}))
    return Layer(name, f"relu {name}", facts.get("kernel", ""), facts.get("where"), (2, 4), found, jumps, constant)


def test_layers_that_agree() -> None:
    assert layers_text([layer("a")]).endswith("\n\nthe tensor agrees")
    assert layers_text([layer("a"), layer("b")]).endswith("\n\nall 2 tensors agree")
    half = layers_text([layer("a", constant=True), layer("b")])
    assert "constant" not in half
    most = layers_text([layer("a", constant=True), layer("b"), layer("c", constant=True)])
    assert "2 of 3 tensors are constant, which proves little: are weights missing?" in most
    row = layers_text([layer("a")]).splitlines()[1].split()
    assert row == ["a", "relu", "a", "2x4", "0.5", "0.25", "2", "agrees"]
    assert layers_text([layer("a", found={"exact": True})]).splitlines()[1].split() == [
        "a",
        "relu",
        "a",
        "2x4",
        "0.5",
        "2",
        "agrees",
    ]


def test_layers_that_differ() -> None:
    here = SourceLoc("net.mlir", 3, 5)
    layers = [
        layer("a"),
        layer("b", 3, where=here, kernel="relu b + add"),
        layer("c", 1, found={"mismatch": "type f32, not f64"}),
    ]
    lines = layers_text(layers, lambda loc: "  %y = ln.relu %x" if loc == here else None).splitlines()
    assert lines[2].split() == [
        "b",
        "relu",
        "b",
        "2x4",
        "0.5",
        "0.25",
        "2",
        "DIFFERS",
        "in",
        "3",
        "of",
        "8",
        "elements",
    ]
    assert lines[3].split() == ["c", "relu", "c", "2x4", "DIFFERS:", "type", "f32,", "not", "f64"]
    assert lines[4:] == [
        "",
        "first difference: 'b', by relu b (net.mlir:3:5)",
        "  %y = ln.relu %x",
        "  in the kernel relu b + add",
        "2 of 3 tensors differ",
    ]
    lines = layers_text([layer("b", 3, True, kernel="relu b")], lambda loc: None).splitlines()
    assert lines[2:] == ["", "first difference: 'b', by relu b", "1 of 1 tensors differ"]
    for count, end in ((8, ""), (9, ", ...")):
        many = layers_text([layer(f"n{k}", 1, True) for k in range(count)])
        assert f"the error jumps at: {', '.join(f'n{k}' for k in range(8))}{end}\n" in many
    assert "the error jumps at: b\n" in layers_text([layer("a", 1), layer("b", 1, True)])
