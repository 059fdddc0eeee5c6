"""The ops of the DPU: LightNet's own descriptions, as they are (MIT licence: LICENSE.MIT.txt). What they compute, which
is not written there, is in `lightnet_descriptions/hardware.py`."""

from __future__ import annotations

from lightnet_descriptions.operators import packaged_operators

_OPS = {
    cls.optype: cls
    for file in ("conv_dpu", "ldmr", "svmr")
    for cls in packaged_operators(f"lightnet_descriptions.dpu:{file}.op")
}
LDMR, SVMR, CONV1X1, CONV3X3 = (_OPS[optype] for optype in ("ldmr", "svmr", "conv1x1_dpu", "conv3x3_dpu"))
