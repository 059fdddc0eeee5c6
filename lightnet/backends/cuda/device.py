"""The figures of a device that the models of time know, by the architecture that code is for.

Figures are those of data sheets (A100 40 GB, RTX 3090, RTX 4090, H100 SXM), dense, at boost clock; what a launch takes
was measured on an H100. A model only has to order the ways to compute a kernel. Imports the architectures.
"""

from __future__ import annotations

from collections.abc import Mapping

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import ARCHS


@dataclass(frozen=True, eq=False)
class DeviceModel:
    """A device; equal to itself alone. Rates are per nanosecond (G/s): floating-point operations, 2 a multiply-add, on
    the cores for f32 and, by the type of the factors, on the tensor cores; bytes of device memory. `by_warps` is the
    share of the tensor cores' rate that products of warps (`mma`) can have, `cache` the bytes of the second-level
    cache, `launch` nanoseconds that a launch in a graph takes beside its work."""

    arch: str
    processors: int
    flops: float
    tensor: Mapping[str, float]
    bytes: float
    cache: float
    by_warps: float
    launch: float = 1800.0

    @property
    def shared(self) -> int:
        """Bytes of shared memory that a block may have."""
        return ARCHS[self.arch]


def _device(arch: str, processors: int, flops: float, tf32: float, f16: float, bytes: float, cache: float,
            by_warps: float = 1.0) -> DeviceModel:  # fmt: skip
    return DeviceModel(arch, processors, flops, {"f32": tf32, "f16": f16, "bf16": f16}, bytes, cache * 2**20, by_warps)


DEVICES = {
    d.arch: d
    for d in (
        _device("sm_80", 108, 19.5e3, 156e3, 312e3, 1555.0, 40),
        _device("sm_86", 82, 35.6e3, 35.6e3, 71e3, 936.0, 6),
        _device("sm_89", 128, 82.6e3, 82.6e3, 165e3, 1008.0, 72),
        _device("sm_90", 132, 66.9e3, 494e3, 989e3, 3350.0, 50, 0.62),
        _device("sm_90a", 132, 66.9e3, 494e3, 989e3, 3350.0, 50, 0.62),
    )
}


def device_of(features: str) -> DeviceModel:
    """The device that `features`, an architecture, names (default: sm_80). Raises `LightNetError` for any other
    text."""
    if features and features not in DEVICES:
        known = f"there are: {', '.join(DEVICES)}; later devices run what is for sm_90"
        raise LightNetError(f"unknown architecture '{features:.40}'; {known}", label="cuda.arch")
    return DEVICES[features or "sm_80"]
