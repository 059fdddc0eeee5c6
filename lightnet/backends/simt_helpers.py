"""The private functions that the kernels of a module call when they are loops: what warps and warpgroups do together,
once for equal types.

Imports the modules that make them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute

from lightnet.backends.simt_warpgroups import product_function
from lightnet.backends.simt_warps import mma_function


class Helpers:
    """The private functions that kernels of a module call: a product of fragments or of stages each for its types."""

    def __init__(self, taken: set[str]):
        self.taken, self.functions = taken, dict[Hashable, func.FuncOp]()

    def fresh(self, name: str) -> str:
        """A name for a function that no other has."""
        found, number = name, 0
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def mma(self, element: Attribute, threads: int) -> str:
        """The name of the product of the fragments of a warp."""
        return self._of(
            f"mma_{element}_{threads}", (element, threads), lambda name: mma_function(name, element, threads)
        )

    def product(self, types: list[MemRefType], by_k: bool) -> str:
        """The name of the product of stages by a warpgroup."""
        name = f"wgmma_{types[0].element_type}_{types[2].get_shape()[1]}"
        return self._of(name, (*types, by_k), lambda name: product_function(name, types, by_k))

    def _of(self, name: str, key: Hashable, make: Callable[[str], func.FuncOp]) -> str:
        if key not in self.functions:
            self.functions[key] = make(self.fresh(name))
        return self.functions[key].sym_name.data
