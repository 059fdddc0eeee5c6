"""Document 004's context: one object that holds a network from its source to its results.

The operations carry upstream's names. What they do underneath is `load`, `compile` and `Executable`; the documents'
lists and tables are the module and its analyses (docs/upstream-map.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.ir import Operation

from lightnet.compiler import Executable, compile
from lightnet.diagnostics import LightNetError
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp, check_op, name_of
from lightnet.ir.params import ParamValue
from lightnet.ir.types import ParamAttr
from lightnet.ir.verify import verify_module
from lightnet.model import Model, Weights, load


class Context:
    """The life cycle of document 004:
    ``Context() → init → compile → load → (set_data → run → get_data)* → unload → cleanup``."""

    def __init__(self) -> None:
        self.model: Model | None = None
        self._executable: Executable | None = None
        self._options: dict[str, Any] = {}
        self._weights: Weights = None
        self._loaded = False
        self._fed: dict[str, np.ndarray] = {}
        self._results: dict[str, np.ndarray] = {}

    def init(self, source: str | Path, **options: Any) -> Context:
        """Read a network (as `lightnet.load`)."""
        self.cleanup()
        self.model = load(source, **options)
        return self

    def compile(
        self, target: str = "cpu", datafile: Weights = None, *, outputs: Sequence[str] = (), **options: Any
    ) -> Context:
        """Compile for a target (as `lightnet.compile`); `outputs` keeps further tensors for `get_data`."""
        self.unload()
        self._options = {"target": target, "outputs": tuple(outputs), **options}
        self._weights = datafile
        self._build()
        return self

    def print(self, outfile: str | Path) -> None:
        """Write the compiled network as JSON IR."""
        from lightnet.frontends import json_ir
        from lightnet.frontends.netlist import netlist_of
        from lightnet.runtime.files import write_atomic

        write_atomic(str(outfile), json_ir.write(netlist_of(self._build().planned)))

    def load(self, datafile: Weights = None) -> None:
        """Load the weights (those given here, to `compile` or to `init`) and get ready to run; fed data is
        forgotten."""
        if datafile is not None:
            self._weights, self._executable = datafile, None
        self._build().prepare()
        self._fed, self._results, self._loaded = {}, {}, True

    def set_data(self, name: str, data: Any) -> None:
        """Feed an input or a param by its tensor's name, for all runs to come."""
        self._need_loaded()
        self._fed[name] = self._build().checked(name, data).copy()

    def get_data(self, name: str) -> np.ndarray:
        """An output's value after `run`, or what an input or param holds (fed, else loaded). Raises `LightNetError` for
        a tensor that does not outlive a run: keep it with `outputs` at compile time."""
        self._need_loaded()
        executable = self._build()
        if name in self._results:
            return self._results[name].copy()
        if name in self._fed:
            return self._fed[name].copy()
        if name in executable.outputs and name not in {n for n, _ in executable.program.overwritten}:
            raise LightNetError(f"output '{name}' has no value yet: call run first")
        return executable.loaded(name).copy()

    def data_size(self, name: str) -> int:
        """Bytes of a tensor."""
        return self._build().nbytes(name)

    def set_param(self, opname: str, pname: str, value: Any) -> None:
        """Set a parameter of an op of the source network to a string, number, bool, None, or an array of one of these.

        The executable is compiled again on the next use, through the kernel cache; fed data stays, results do not.
        Raises `LightNetError`, and changes nothing, for an unknown name, a value that the op refuses, and one that
        would change the type of a result.
        """
        op = self._find(opname)
        if pname not in op.schema.by_name:
            raise LightNetError(
                f"{op.optype}: `{opname}` has no `{pname}` param; there are: {', '.join(op.schema.by_name)}"
            )
        if op.schema.by_name[pname].in_type is not None:
            raise LightNetError(f"{op.optype}: `{opname}`'s `{pname}` is the type of its result and cannot be set")
        value = _plain(value)
        params = {**op.param_values(), pname: value}
        try:
            results = check_op(type(op), op.operand_specs, params, opname)
        except LightNetError as e:
            raise e.at(loc_of(op)) from None
        if results != op.result_specs:
            raise LightNetError(
                f"{op.optype}: `{opname}`'s `{pname}` would change the type of its result from "
                f"{op.result_specs[0]} to {results[0]}",
                loc_of(op),
            )
        op.properties[pname] = ParamAttr(value)
        self._executable, self._results = None, {}

    def run(self, feeds: Mapping[str, Any] | None = None, threads: int | None = None) -> dict[str, np.ndarray]:
        """Run once on what `set_data` fed (and on `feeds`, for this run alone), on at most as many `threads` as
        `compile` was given; the results stay for `get_data`."""
        self._need_loaded()
        self._results = self._build()({**self._fed, **(feeds or {})}, threads=threads)
        return {name: array.copy() for name, array in self._results.items()}

    def unload(self) -> None:
        """Give back the memory of the network's data; `load` brings it back, fed data is forgotten."""
        self._executable, self._loaded, self._fed, self._results = None, False, {}, {}

    def cleanup(self) -> None:
        """Forget the network and how to compile it; the context can be used again."""
        self.unload()
        self.model, self._options, self._weights = None, {}, None

    def check(self) -> None:
        """Verify the network. Raises `LightNetError` for what is wrong."""
        model = self._need_model()
        verify_module(model.module, model.ctx)

    # -- helpers

    def _need_model(self) -> Model:
        if self.model is None:
            raise LightNetError("the context holds no network: call init first")
        return self.model

    def _need_loaded(self) -> None:
        if not self._loaded:
            raise LightNetError("the context's data is not loaded: call load first")

    def _build(self) -> Executable:
        if self._executable is None:
            if not self._options:
                raise LightNetError("the network is not compiled: call compile first")
            self._executable = compile(self._need_model(), weights=self._weights, **self._options)
        return self._executable

    def _find(self, opname: str) -> LnOp:
        def named(op: Operation) -> bool:
            return isinstance(op, LnOp) and name_of(op) == opname

        found = next((op for op in self._need_model().module.walk() if named(op)), None)
        if not isinstance(found, LnOp):
            raise LightNetError(f"no op is called '{opname}'")
        return found


def _plain(value: Any) -> ParamValue:
    """A parameter's value of Python's own types: lists and arrays become tuples. Raises `LightNetError` for a mixed
    one."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    scalars = (bool, int, float, str)
    if isinstance(value, list | tuple):
        value = tuple(v.item() if isinstance(v, np.generic) else v for v in value)
        kinds = {float if type(v) is int else type(v) for v in value}
        if len(kinds) > 1 or not kinds <= set(scalars):
            raise LightNetError("the elements of a parameter should be all numbers, all strings or all bools")
    elif value is not None and not isinstance(value, scalars):
        raise LightNetError(f"a parameter's value cannot be a {type(value).__name__}")
    return value
