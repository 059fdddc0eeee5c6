"""The CPU's pipeline with ports from another size on than its own, which is above what most tests feed."""

from __future__ import annotations

from lightnet.passes import pipelines


def with_ports(nbytes: int = 1) -> str:
    """The pipeline in which inputs and outputs of `nbytes` and more are ports (0: none is)."""
    spec = pipelines.default("cpu")
    assert ",plan," in spec
    return spec.replace(",plan,", f",plan{{ports={nbytes}}},")
