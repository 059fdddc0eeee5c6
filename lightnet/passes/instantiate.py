"""`instantiate`: a network with open dims, for calls of which some dims are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import LightNetError
from lightnet.ir.instances import change_sizes, symbols_of
from lightnet.ir.passes import LnPass
from lightnet.runtime.dims import with_sizes
from lightnet.runtime.program import unknown


@dataclass(frozen=True)
class InstantiatePass(LnPass):
    """Give symbols numbers, in all types and parameters; those that are not named stay open.

    ```mlir
    // instantiate{dims="length=128"}
    %x = ln.input : tensor<?x?xf32, #ln.dims<"batch(1..4), length(1..512)">>
      ->  %x = ln.input : tensor<?x128xf32, #ln.dims<"batch(1..4)">>
    ```
    """

    name = "instantiate"
    level = "graph"
    dims: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        parts = [part.partition("=") for part in self.dims.split(",") if part.strip()]
        if any(not number.strip().isdigit() for _, _, number in parts):
            raise LightNetError(f"instantiate takes dims as \"length=128,batch=4\", and gets '{self.dims:.80}'")
        instantiate(op, {name.strip(): int(number) for name, _, number in parts})


def instantiate(module: ModuleOp, numbers: Mapping[str, int]) -> None:
    """Give symbols of a level-1 module these numbers, in place. Raises `LightNetError` for a name that it has not, and
    for a number out of its range."""
    symbols = symbols_of(module)
    for name in numbers:
        if name not in symbols:
            raise unknown("open dim", name, symbols)
        try:
            symbols[name].at(numbers)
        except ValueError as e:
            raise LightNetError(f"the dim {e}", label="instantiate.range") from None

    change_sizes(module, lambda size: with_sizes(size, numbers))
