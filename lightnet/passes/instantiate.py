"""`instantiate`: a network with open dims, for calls of which some dims are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input
from lightnet.ir.instances import changed_type, changed_value, is_open_value
from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass
from lightnet.ir.types import ParamAttr, TensorSpec, spec_of
from lightnet.runtime.dims import Dim, Size, Symbol, with_sizes
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


def symbols_of(module: ModuleOp) -> dict[str, Symbol]:
    """The symbols in the types of a module, by name."""
    values = (v for op in module.walk() if isinstance(op, LnOp) for v in op.results)
    return {s.name: s for v in values for d in spec_of(v.type).open_dims for s in d.symbols}


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

    def change(size: Size) -> Size:
        return with_sizes(size, numbers)

    for op in module.walk():
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            value._type = changed_type(value.type, change)
        _change_params(op, change)
    for function in module.walk():
        if isinstance(function, func.FuncOp):
            function.update_function_type()


def _change_params(op: Operation, change: Any) -> None:
    for name, attribute in op.properties.items():
        if isinstance(attribute, ParamAttr) and is_open_value(attribute.data):
            op.properties[name] = ParamAttr(changed_value(attribute.data, change))


def call_numbers(module: ModuleOp, dims: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The numbers of symbols in a call whose inputs have these dims: of each symbol that is a dim of an input by
    itself. Raises `LightNetError` where an input does not fit."""
    found: dict[str, int] = {}
    opened = {op.tensor_names[0] or "": op.result_specs[0] for op in module.walk() if isinstance(op, Input)}
    for name, spec in opened.items():
        if len(spec.dims) != len(dims[name]):
            raise _unfit(name, spec, dims[name])
        for dim, number in zip(spec.dims, dims[name]):
            if isinstance(dim, Dim) and len(dim.terms) == 1 and isinstance(s := next(dim.atoms), Symbol):
                found.setdefault(s.name, number * s.multiple // dim.terms.get((s,), number))
    for name, spec in opened.items():
        fits = tuple(with_sizes(d, found) for d in spec.dims)
        if fits != tuple(dims[name]):
            raise _unfit(name, spec, dims[name])
    return found


def _unfit(name: str, spec: TensorSpec, dims: tuple[int, ...]) -> LightNetError:
    return LightNetError(f"input '{name}' should be {spec}, but has {list(dims)}", label="instantiate.shape")
