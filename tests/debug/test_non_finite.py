"""Which weights are named beside the first tensor that is not finite."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet_debug.tensors import first_non_finite, tensors

NAMES = ("a", "b", "c")
NETWORK = """func.func @main() -> tensor<8xf32> {
%x = ln.input {ran = [-1, 1]} : tensor<2xf32> as "x"("x")
%a = ln.param {from_file = true} : tensor<2xf32> as "a"("a")
%b = ln.param {from_file = true} : tensor<2xf32> as "b"("b")
%c = ln.param {from_file = true} : tensor<2xf32> as "c"("c")
%y = ln.concat %x, %a, %b, %c {axis = 0} : tensor<8xf32> as "y"("y")
%z = ln.relu %y : tensor<8xf32> as "z"("z")
func.return %z : tensor<8xf32>
}"""


def subsets() -> Iterator[set[str]]:
    return (set(s) for n in range(len(NAMES) + 1) for s in itertools.combinations(NAMES, n))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite(value: float) -> None:
    """Those that the op reads and that the executable still has: the input is none, nor what it folded into another."""
    for bad in subsets():
        weights = {name: np.float32([1, value if name in bad else 2]) for name in NAMES}
        executable = lightnet.compile(lightnet.loads(NETWORK, ".mlir", weights=weights), "none")
        found = tensors(executable)
        for folded in subsets():

            def loaded(name: str, executable: lightnet.Executable = executable, folded: set[str] = folded):
                if name in folded:
                    raise LightNetError("it is folded into another")
                return executable.loaded(name)

            first = first_non_finite(found, SimpleNamespace(loaded=loaded))
            assert [(f.name, set(f.weights)) for f in first] == ([("y", bad - folded)] if bad else [])
        assert [(f.name, f.weights) for f in first_non_finite(found)] == ([("y", ())] if bad else [])
