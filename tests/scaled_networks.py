"""Real networks with small pictures and few channels: the same statements, other numbers. Contents are drawn such that activations neither vanish
nor explode (`lightnet_trust/data.py`), since the files ask for weights that nobody has."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

import lightnet
from lightnet_trust.data import draw
from lightnet_trust.evaluation import RememberingEvaluator

NETS = Path(__file__).parent / "data" / "nets" / "il"


def _defined(text: str, **values: int) -> str:
    """Give macros that are numbers other ones."""
    for name, value in values.items():
        text, count = re.subn(rf"(?m)^#define {name} \d+$", f"#define {name} {value}", text)
        assert count == 1, name
    return text


def _divided(text: str, least: int, by: int) -> str:
    """Divide numbers from `least` on in what follows the network's input: they are channels there, and nothing else is as large."""
    head, found, rest = text.partition("create(| dst=input")
    end = rest.index(";") + 1
    assert found
    scaled = re.sub(
        r"(?<![\w.*])\d+(?![\w.])", lambda m: str(int(m[0]) // by) if int(m[0]) >= least else m[0], rest[end:]
    )
    return head + found + rest[:end] + scaled


def squeezedet(text: str) -> str:
    """Pictures of 48x64, an eighth of the channels; 9 anchors for each of 3x4 places."""
    places = 3 * 4
    text = _defined(text, INPUT_H=48, INPUT_W=64, IMG_H=47, IMG_W=62, CONVOUT_H=3, CONVOUT_W=4, ANCHOR_NUM=9 * places,
                    ANCHOR_NUMx4=36 * places, TOP_N_DETECTION=20)  # fmt: skip
    return _divided(text, 16, 8)


def shufflenetv2(text: str) -> str:
    """Pictures of 64x64, a quarter of the channels, 101 classes."""
    text = _defined(
        text, INPUT_H=64, INPUT_W=64, CLASS=101, STAGE2_C_0_5=12, STAGE3_C_0_5=24, STAGE4_C_0_5=48, CONV5_C_0_5=64
    )
    text = _divided(text, 48, 4).replace("3, 24, 1, 3", "3, 6, 1, 3").replace("GROUP, 24, STAGE2", "GROUP, 6, STAGE2")
    for old, new in ((28, 8), (14, 4), (7, 2)):
        text = text.replace(f"{old}, {old},", f"{new}, {new},")
    return text.replace("size=[7, 7]", "size=[2, 2]")


def erfnet_samepad(text: str) -> str:
    """Pictures of 24x40, an eighth of the channels (of the first layer half)."""
    text = _defined(text, INPUT_H=24, INPUT_W=40)
    text = text.replace("l1_downsampler, 3, 16)", "l1_downsampler, 3, 8)").replace(
        "l2_downsampler, 16, 64)", "l2_downsampler, 8, 64)"
    )
    return _divided(text, 32, 4)


NETWORKS: dict[str, Callable[[str], str]] = {f.__name__: f for f in (squeezedet, shufflenetv2, erfnet_samepad)}


@cache
def scaled(name: str, seed: int = 0, full: bool = False) -> lightnet.Model:
    """A network with contents for all that it has; in `full`, with its own numbers."""
    text = (NETS / f"{name}.net").read_text()
    text = text if full else NETWORKS[name](text)
    drawn = draw(lightnet.loads(text, ".net", name).module, "ordinary", seed, RememberingEvaluator()).contents
    for tensor, array in drawn.items():
        if tensor.endswith(
            ("_var", "_variance")
        ):  # of a few pixels, it may be next to nothing: a batch norm would then amplify rounding
            drawn[tensor] = np.maximum(array, array.mean())
    return lightnet.loads(text, ".net", name, weights=drawn, override=True)
