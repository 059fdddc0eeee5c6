"""The result of `lightnet.compile`: a network that is called like a function, and can be looked into and saved.

It keeps the planned module (level 3) for what needs the IR: the plan's report, the text of each stage, and evaluating
the static tensors again when a param is fed.
"""

from __future__ import annotations

import io
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.interpreter.static import static_bytes
from lightnet.compilation import Compilation
from lightnet.compiled import Compiled, in_text
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import ConstantOp, ParamOp, Source, is_fed
from lightnet.ir.collector import collector_paused
from lightnet.ir.instances import symbols_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import tensor_names
from lightnet.ir.place import PlaceAttr
from lightnet.ir.runtime import Runtime
from lightnet.ir.types import spec_of
from lightnet.programs import build_program, interface_of
from lightnet.runtime import artifact
from lightnet.runtime.arrays import aligned, by_name, checked_array, same_bytes
from lightnet.runtime.calls import Invocation
from lightnet.runtime.dims import is_known
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.instance import Callee
from lightnet.runtime.machine import Opened
from lightnet.runtime.open_instance import OpenCallee, bound_values
from lightnet.runtime.program import Program, unknown
from lightnet.runtime.weights import WeightStore
from lightnet.tying import Tied, check_fed


class Executable(Compiled):
    """A compiled network, called with arrays by input (or param) name; every call starts from the loaded data. It goes
    to other processes (`pickle`) as the contents of the file that `save` writes, and is a `SavedExecutable` there."""

    def __init__(
        self,
        compilation: Compilation,
        store: WeightStore | None,
        seed: int = 0,
        machine: Opened | None = None,
        options: Mapping[str, Any] | None = None,
        tied: Mapping[str, Tied] | None = None,
    ):
        self._tied = dict(tied or {})
        self._options = dict(options or {})
        self._compilation = compilation
        self._store = store
        self._seed = seed
        threads = {"threads": compilation.threads.number or compilation.threads.used}
        self._machine = machine or Opened(compilation.machine, {**compilation.options, **threads})
        self._lock = threading.RLock()
        self._parts: dict[str, Any] = {}
        planned = main_of(compilation.planned)
        self._sources = {_name(op): op for op in planned.walk() if isinstance(op, Source)}
        #: What may be fed: the sources of the network, those too for which no pass left any use.
        self._specs = {_name(op): op.result_specs[0] for op in compilation.source.walk() if is_fed(op)}
        self._specs.update({name: op.result_specs[0] for name, op in self._sources.items() if is_fed(op)})
        self._specs.update({name: found.spec for name, found in self._tied.items()})
        #: Params that have no contents but a store's, and are in none.
        self._lacking = [
            n for n, op in self._sources.items() if isinstance(op, ParamOp) and op.required and n not in (store or ())
        ]
        self._quick: Any = None  # `Instance.quick`, once a call has shown that all contents are there
        self._fed_static: tuple[dict[str, np.ndarray], Any] | None = None

    # -- calling

    def _run(self, call: Invocation) -> dict[str, np.ndarray]:
        self._check_open()
        arrays, run = self._feeds(call.feeds), self._called if self.is_native else self._interpreted
        return call.answer(self.program, lambda: run(arrays, call))

    def close(self) -> None:
        with self._lock:
            self._parts.pop("instance", None)
            self._quick = self._fed_static = None
            self._machine.close()

    @property
    def is_closed(self) -> bool:
        return self._machine.is_closed

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    def __reduce__(self) -> Any:
        self._check_open()
        kept = self._store, self._seed
        return artifact.reloaded(self.variant(), self._texts()) if self.is_native else in_text(self, *kept)

    @property
    def state(self) -> Any:
        """The state that the target's machine gave this executable when it was opened (document 004's `priv`)."""
        return self._machine.state

    def specialized(self, feeds: Mapping[str, Any] | None = None) -> Executable:
        """The executable for calls on the shapes of `feeds`, to look into: this one, or, where calls decide sizes, one
        of numbers that shares its code."""
        if not (self.program.symbols if self.is_native else symbols_of(self.source)):
            return self
        arrays = self._feeds(feeds)
        values = bound_values(self.program, {name: array.shape for name, array in arrays.items()})
        compilation = self._compilation.of_call({s.name: n for s, n in zip(self.program.symbols, values)})
        found = Executable(compilation, self._store, self._seed, self._machine, self._options, self._tied)
        found._parts["program"] = self.program.at(values)
        if self.is_native:
            found._parts["instance"] = cast(OpenCallee, self.instance).of(values)
        return found

    @property
    def values(self) -> Mapping[str, int]:
        """The values of symbols, of an executable that is one of a call (`specialized`)."""
        return self._compilation.values

    def filled(self, feeds: Mapping[str, Any] | None = None) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The contents that a call on `feeds` starts from, for who runs its kernels one by one
        (`lightnet_debug/steps.py`): what the inputs and residents that are fed hold, and the bytes of the static
        tensors. Raises as a call does, and where there is no code.
        """
        if not self.is_native:
            raise self.no_code("run")
        arrays = self._feeds(feeds)
        static, residents = self._params(arrays)
        return {**(residents or {}), **self.program.fed(arrays)}, static

    def interpreted(self, feeds: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Every named tensor of the planned network (of target none, of the network as it came in), as the reference
        interpreter computes it on `feeds`; nothing is printed. Raises as a call does."""
        from lightnet.backends.interpreter import graph

        arrays, values = self._feeds(feeds), dict[str, np.ndarray]()
        with tempfile.TemporaryDirectory() as folder:  # what `fprint` writes is not wanted here
            graph.run(
                self.planned, arrays, self._store, seed=self._seed, stream=io.StringIO(), folder=folder, values=values
            )
        return values

    def _feeds(self, feeds: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
        """The arrays of a call, checked. What no op of the compiled network reads is left out, unless its dims may
        decide sizes."""
        arrays = {name: self.checked(name, value) for name, value in by_name(feeds).items()}
        if self._tied:
            arrays = check_fed(self._tied, arrays)
        deciding = {t.name for t in self.program.unread} if self.program.symbols else ()
        arrays = {name: array for name, array in arrays.items() if name in self._sources or name in deciding}
        self.program.check_fed(arrays)
        self._check_weights(arrays)
        return arrays

    def _params(self, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray] | None]:
        """Take the params out of `arrays`: the static bytes, and what residents hold, for them."""
        params = {k: arrays.pop(k) for k in list(arrays) if k in self._sources and k not in self.instance.inputs}
        return self._with_params(params) if params else (self.instance.static, None)

    def _check_weights(self, fed: Iterable[str] = ()) -> None:
        """Raise LightNetError where a required param has no contents."""
        if lacking := [name for name in self._lacking if name not in set(fed)]:
            shown = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
            where = f"{self._store.path or 'the weights'} has" if self._store is not None else "there are"
            raise LightNetError(f"{where} no contents for {len(lacking)} of the network's params ({shown}): give its "
                                "weights, with "
                                "weights=... or -f FILE")  # fmt: skip

    def _interpreted(self, arrays: dict[str, np.ndarray], call: Invocation) -> dict[str, np.ndarray]:
        """A call on the reference interpreter."""
        from lightnet.backends.interpreter import graph

        self.program.bound.of_call(call.threads)
        planned, _ = self._compilation.planned, self._machine.state
        shown: dict[str, Any] = {"stream": call.stream} if call.stream else {}
        return graph.run(planned, arrays, self._store, seed=self._seed, copy=self._machine.copy, **shown)

    def _called(self, arrays: dict[str, np.ndarray], call: Invocation) -> dict[str, np.ndarray]:
        """A call of machine code."""
        static, residents = self._params(arrays)
        instance = self.instance
        self._quick = None if self._lacking else instance.quick
        return instance.call(call._replace(feeds=arrays), static, residents)

    def checked(self, name: str, value: Any) -> np.ndarray:
        """`value` as an array that the input or param `name` takes. Raises `LightNetError`."""
        spec = self._specs.get(name)
        if spec is not None:
            return checked_array(name, value, spec.dims, spec.dtype, may_be_strided=True)  # programs ask for more
        if name in self._names():
            fixed = any(isinstance(op, ConstantOp) and _name(op) == name for op in self._compilation.source.walk())
            why = "it is a constant of the network" if fixed else "the network computes it"
            there = ", ".join(self._specs) or "nothing"
            raise LightNetError(f"tensor '{name}' cannot be fed: {why}; what can be fed: {there}")
        inputs = list(self.inputs)
        error = unknown("input or param", name, inputs)
        if hidden := len(self._specs.keys() - set(inputs)):
            error.message += f" (and {hidden} param{'s' * (hidden > 1)}: `params`)"
        raise error

    def _names(self) -> set[str]:
        return {n for op in self._compilation.source.walk() for n in tensor_names(op) if n}

    # -- data

    def prepare(self) -> None:
        """Make machine code and load the data now, not at the first call."""
        self._check_open()
        if self.is_native:
            _ = self.instance
        else:
            for name in self._sources:
                self.loaded(name)

    def loaded(self, name: str) -> np.ndarray:
        """The contents of an input or param after loading (read-only)."""
        op = self._sources.get(name)
        if op is None:
            raise self.program.unreadable(name)
        contents = op.contents(self._store, self._seed, loc=loc_of(op))
        contents.flags.writeable = False
        return contents

    def nbytes(self, name: str) -> int:
        """Bytes of a tensor of the source network."""
        for op in self._compilation.source.walk():
            for tensor, value in zip(tensor_names(op), op.results):
                if tensor == name:
                    return spec_of(value.type).nbytes
        raise unknown("tensor", name, self._names())

    @property
    def missing(self) -> list[str]:
        from_file = [name for name, op in self._sources.items() if op.from_file]
        return [name for name in from_file if self._store is None or name not in self._store]

    @property
    def warnings(self) -> list[str]:
        """The oddities of the weights and the plan: `weight_warnings`, and outputs that upstream's plan
        overwrites."""
        lost = [
            f"output {name} is overwritten by {by}, as in upstream's plan, and not returned"
            for name, by in self.program.overwritten
        ]
        return self.weight_warnings + lost

    @property
    def weight_warnings(self) -> list[str]:
        """The oddities of the weights: those that are not there, and those that the network does not use, as no
        tensor has their name, or one that gives contents of its own."""
        store, missing = self._store, self.missing
        found = []
        if store is None and missing:
            found = [
                f"no weights are given: {len(missing)} tensors hold zeros ({', '.join(missing[:3])}"
                f"{', ...' if len(missing) > 3 else ''})"
            ]
        elif store is not None:
            where = f" in {store.path}" if store.path else ""
            found = [*store.warnings, *(f"weight {name} is missing{where}: it holds zeros" for name in missing)]
            found += store.unused_warnings(self._specs)
            own = {_name(op) for op in self._compilation.source.walk() if isinstance(op, Source) and not op.from_file}
            taken = (name for name in store if name in own and not store.is_expected(name))
            found += [
                f"ignore weight {name}{where}: the network gives contents of its own (from_file=false)"
                for name in taken
            ]
        return found

    @property
    def threads(self) -> int:
        return self._compilation.threads.used

    # -- the parts

    @property
    def is_native(self) -> bool:
        return self._compilation.loops is not None

    def no_code(self, use: str) -> LightNetError:
        """The error of who asks for code, to `use` it in some way, where there is none."""
        return self._compilation.no_code(use)

    @property
    def runtime(self) -> Runtime:
        """The runtime by which its code is made, loaded and called: that of its target."""
        return self._compilation.runtime

    @property
    def arch(self) -> str | None:
        """The architecture that the code is for, of a target that has such (``sm_80`` of cuda)."""
        return self._compilation.options.get("arch") if self._compilation.is_own else None

    def _part(self, name: str, make: Any) -> Any:
        with self._lock:
            if name not in self._parts:
                self._parts[name] = make()
            return self._parts[name]

    @property
    def program(self) -> Program:
        return self._part("program", lambda: build_program(self._compilation))

    @property
    def _interface(self) -> dict[str, Any]:
        """The interface of the program: what it takes and gives. Asking does not make machine code, which a first call
        makes while it loads the data.
        """
        return self._part("interface", lambda: interface_of(self._compilation))

    @property
    def native(self) -> Any:
        """The code as the target's runtime makes it: its texts `llvm_ir` and `assembly`, and what these are of."""
        return self._compilation.native

    @property
    def ptx(self) -> str:
        """The PTX text of the program's kernels. Raises `LightNetError` where there is none."""
        if "ptx" not in self.runtime.files:
            made = f"target '{self.options['target']}' makes {', '.join(self.runtime.files) or 'no code'}"
            raise LightNetError(f"there is no PTX: {made}")
        return self.native.assembly

    @property
    def instance(self) -> Callee:
        """The program loaded where it runs, with its static tensors."""
        return self._part("instance", self._link)

    def _link(self) -> Callee:
        _ = self._machine.state  # before all work, since there may be no such machine
        self.runtime.check_runs(self.program, self._compilation.settings)
        # LLVM works while the params are loaded: neither holds the interpreter's lock for long.
        with collector_paused(), ThreadPoolExecutor(1) as other:
            code = other.submit(self._compiled)
            static, residents = self._static({})
            code.result()
        return self._loaded_with(static, {**residents, **self._defaults()})

    def _defaults(self) -> dict[str, np.ndarray]:
        """The contents that inputs have where nobody feeds them; what has open dims is fed by every call."""
        return {t.name: self.loaded(t.name) for t in self.program.inputs if is_known(t.dims)}

    def _loaded_with(self, static: np.ndarray, defaults: Mapping[str, np.ndarray]) -> Callee:
        """The program on these tensors."""
        return self.runtime.format.instance(
            self.program, self.runtime.code(self.native), static, defaults, self._machine
        )

    def _compiled(self) -> None:
        """Make code; where many weights follow, let go of what only that needed."""
        _ = self.native
        assert self.loops is not None
        self.runtime.made_all(memory_of(self.loops).get("static", 0))

    def with_tensors(self, static: np.ndarray, defaults: Mapping[str, np.ndarray]) -> Executable:
        """This executable on static tensors and contents that another one of the same plan holds; itself. Raises
        LightNetError where they do not fit."""
        wanted = {t.name: (t.dims, t.np_dtype) for t in (*self.program.inputs, *self.program.residents)}
        if static.nbytes < self.program.memory.get("static", 0) or any(
            name not in defaults or (defaults[name].shape, defaults[name].dtype) != kind
            for name, kind in wanted.items()
        ):
            raise LightNetError("this version of the compiler plans the network otherwise: profile the network itself")
        self._lacking = []
        with self._lock:
            self._parts["instance"] = self._loaded_with(static, defaults)
        return self

    def _with_params(self, params: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The static tensors for fed params; those of the last call are kept, in case the next one feeds the same."""
        with self._lock:
            last = self._fed_static
        if last is not None and last[0].keys() == params.keys():
            if all(same_bytes(last[0][k], v) for k, v in params.items()):
                return last[1]
        made = self._static(params)
        with self._lock:
            self._fed_static = {k: v.copy() for k, v in params.items()}, made
        return made

    def _static(self, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The bytes of the static space (params and results of `ln.once`, evaluated by their references), and the
        contents of residents."""
        loops = self._compilation.loops
        assert loops is not None
        image = aligned(max(memory_of(loops).get("static", 0), 1), zeroed=True)
        found = {}

        def room(place: PlaceAttr, size: int) -> np.ndarray | None:
            at = place.offset.data
            return image[at : at + size] if place.space.data == "static" else None

        for place, raw in static_bytes(main_of(self.planned), feeds, self._store, self._seed, room):
            if place.space.data != "static":
                at = place.space.data, place.offset.data
                tensor = next(t for t in self.program.residents if (t.space, t.offset) == at)
                found[tensor.name] = raw.view(BY_NAME[tensor.dtype].np).reshape(tensor.dims)
        return image, found

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        found = self._interface
        types = artifact.types_of((*found["inputs"], *found["unread"]))
        return {name: types[name] for name in (*(n for n in found["order"] if n in types), *types)}

    @property
    def params(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every param by name."""
        names = {t.name for t in self._interface["inputs"]}
        return {n: (s.dims, s.dtype.np) for n, s in self._specs.items() if n in self._sources and n not in names}

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every output by name, in order; a dim that the data decides is its bound."""
        hidden = {count for _, _, count in self._interface["counts"]}
        return artifact.types_of([t for t in self._interface["outputs"] if t.name not in hidden])

    def _out_types(self, feeds: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        return artifact.types_of(self.program.of_feeds(feeds).shown) if self.program.symbols else self.outputs

    @property
    def plan(self) -> Any:
        """The memory plan's report: `plan` (peak, bound, ratio), `text()`, `json()`, `svg()`, `html()`."""
        from lightnet.passes.plan import plan_report

        if not memory_of(self.planned):
            raise LightNetError("the network has no memory plan: target none runs it as it is")
        return plan_report(self.planned)

    @property
    def planned(self) -> ModuleOp:
        return self._compilation.planned

    @property
    def source(self) -> ModuleOp:
        """The network as it came in (level 1), with the outputs that were asked for."""
        return self._compilation.source

    @property
    def loops(self) -> ModuleOp | None:
        """The module at level 4: kernel functions and launches; None for target none."""
        return self._compilation.loops

    def ir(self, stage: str | None = None) -> str:
        return str(self.planned if stage is None else self._compilation.stage(stage))

    @property
    def llvm_ir(self) -> str:
        """The LLVM IR text of every module of the program."""
        return self.native.llvm_ir

    @property
    def assembly(self) -> str:
        """The machine code in assembly."""
        return self.native.assembly

    # -- saving

    def _save(self, path: str | Path, variants: Sequence[Any], sign: Any, texts: dict[str, str]) -> None:
        signer = None
        if sign is not None:
            from lightnet.runtime.signing import Signer

            signer = Signer(sign)
        made = [executable.variant() for executable in (self, *variants)]
        artifact.save(path, made, {**self._texts(), **texts}, signer)

    def _texts(self) -> dict[str, str]:
        return {"planned": str(self.planned)}

    def variant(self) -> artifact.Variant:
        """The variant that `save` writes of this executable. Nothing is linked: it may be code for another machine."""
        if not self.is_native:
            raise self.no_code("save")
        self._check_weights()
        code = self.runtime.code(self.native)
        if (made := self._parts.get("instance")) is not None:
            static, defaults = made.static, made.defaults
        else:
            self._compiled()
            static, residents = self._static({})
            defaults = {**residents, **self._defaults()}
        return artifact.Variant(self.program, static, defaults, code, self._options, self.warnings)


def _name(op: Source) -> str:
    return op.tensor_names[0] or op.op_name or ""
