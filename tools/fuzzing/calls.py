"""The target `calls`: executables called with what people pass by mistake, and with what is unusual and right.

A call with inputs that fit gives what a plain call gives, bit for bit; any other says what is wrong with a `LightNetError` or a `TypeError`, whose text can be made, and
leaves the executable as it was: the next plain call gives the same.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.process import Fault

NET = Path(__file__).resolve().parent.parent.parent / "examples" / "cnn.net"
NAME, SHAPE = "picture", (1, 3, 32, 32)

#: What is fed in the place of the right array `x`, and whether it fits.
FEEDS: tuple[tuple[bool, Callable[[np.ndarray], Any]], ...] = (
    (True, lambda x: x),
    (True, lambda x: x.tolist()),
    (True, lambda x: x.astype(np.float64)),
    (True, lambda x: x.astype(">f4")),
    (True, np.asfortranarray),
    (True, lambda x: np.repeat(x, 2, axis=-1)[..., ::2]),
    (True, lambda x: x[..., ::-1].copy()[..., ::-1]),
    (True, lambda x: memoryview(x)),
    (True, lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE)),
    (False, lambda x: x[0]),
    (False, lambda x: x[:, :2]),
    (False, lambda x: x.transpose(0, 2, 3, 1)),
    (False, lambda x: x[:0]),
    (False, lambda x: np.concatenate([x, x])),
    (False, lambda x: x > 0),
    (False, lambda x: x.astype(complex)),
    (False, lambda x: x.astype(object)),
    (False, lambda x: x.astype(str)),
    (False, lambda x: None),
    (False, lambda x: "picture"),
    (False, lambda x: 1.5),
    (False, lambda x: {"a": x}),
    (False, lambda x: [x, x]),
    (False, lambda x: [[1, 2], [3]]),
    (False, lambda x: object()),
    (False, lambda x: np.full(SHAPE, 1e300)),
)
#: Other arguments of a call, and whether they fit.
ARGUMENTS: tuple[tuple[bool, dict[str, Any]], ...] = (
    (True, {}), (True, {}), (True, {}), (True, {"threads": 1}), (True, {"threads": None}), (True, {"outputs": None}),
    (False, {"threads": 0}), (False, {"threads": -1}), (False, {"threads": "2"}), (False, {"threads": 1.5}), (False, {"threads": 10**20}),
    (False, {"outputs": ["nonsense"]}), (False, {"outputs": 3}), (False, {"outputs": [None]}), (False, {"nonsense": 1}),
)  # fmt: skip


@cache
def executables() -> tuple[tuple[str, Any], ...]:
    """One network, compiled in several ways and saved."""
    import tempfile

    import lightnet

    compiled = lightnet.compile(NET)
    with tempfile.TemporaryDirectory() as folder:
        compiled.save(Path(folder) / "cnn.lnx")
        saved = lightnet.load_executable(Path(folder) / "cnn.lnx")
        saved({NAME: np.zeros(SHAPE, np.float32)})
    return ("compiled", compiled), ("saved", saved), ("interpreted", lightnet.compile(NET, "none"))


@cache
def plain(index: int, seed: int) -> dict[str, bytes]:
    return {
        name: a.tobytes() for name, a in executables()[index][1]({NAME: _picture(seed)}, stream=io.StringIO()).items()
    }


def _picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def _rows(table: Sequence[tuple[bool, Any]], rng: random.Random) -> list[tuple[bool, Any]]:
    """The rows that fit, most of the time; or those that do not."""
    wanted = rng.random() < 0.7
    return [row for row in table if row[0] == wanted]


class Calls:
    """Random calls: the file of a case is its number."""

    name, suffix = "calls", ".txt"

    def make(self, seed: int) -> bytes:
        return str(seed).encode()

    def run(self, data: bytes, path: Path, seen: dict[str, list[str]]) -> str:
        from lightnet.diagnostics import LightNetError

        rng = random.Random(data)
        index, picture = rng.randrange(len(executables())), rng.randrange(4)
        kind, run = executables()[index]
        fits, feed = rng.choice(_rows(FEEDS, rng))
        allowed, arguments = rng.choice(_rows(ARGUMENTS, rng))
        name = NAME if rng.random() < 0.85 else rng.choice(("Picture", "", None, 7))
        what = f"{kind}: feed {FEEDS.index((fits, feed))}, {arguments}, {name!r}"
        feeds: Any = {name: feed(_picture(picture))}
        if rng.random() < 0.05:
            feeds, name = rng.choice((None, [], 3, "x", {NAME: _picture(0), "more": 1})), None
        fits = fits and allowed and name == NAME
        try:
            found = run(feeds, stream=io.StringIO(), **arguments)
        except (LightNetError, TypeError) as e:
            if not str(e).strip():
                raise Fault(f"an error without a text\n{what}") from e
            if fits:
                raise Fault(f"refused, though it fits: {e}\n{what}") from e
            word = "refused"
        else:
            if not fits:
                if feeds is not None and feeds != []:
                    raise Fault(f"taken, though it does not fit\n{what}")
            elif {n: a.tobytes() for n, a in found.items()} != plain(index, picture):
                raise Fault(f"another result\n{what}")
            word = "ran"
        if {n: a.tobytes() for n, a in run({NAME: _picture(0)}, stream=io.StringIO()).items()} != plain(index, 0):
            raise Fault(f"a call left something behind\n{what}")
        seen["executable"] = [kind]
        return word
