"""The intermediate tensors of a network as the compiled, fused, planned code computes them, and what is wrong with
them.

A tensor inside a kernel never stands in memory, and one that a pass removed is not computed: `Tensors.swallowed` says
which and why. Compiling with these as outputs keeps them, and then fusion is another. Imports steps and what is below
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2s
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.source import ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.module import main_of
from lightnet.ir.names import name_of, tensor_name, tensor_names
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import is_float, numbers_of
from lightnet.runtime.files import write_atomic
from lightnet.runtime.weights import save_npz
from lightnet_debug.profile import kernel_name
from lightnet_debug.steps import specialized, stepper

#: Characters of a file name that is made of a tensor's name, before the suffix.
MAX_FILE_NAME = 120
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass
class Tensors:
    """Tensors of one run by name, in the order in which the program computes them, the inputs first. `swallowed` has
    those of the source that are not there, with the reason; `kernels` says in which kernel a tensor was computed."""

    arrays: dict[str, np.ndarray]
    source: ModuleOp
    swallowed: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)


def tensors(executable: Any, feeds: Mapping[str, Any] | None = None) -> Tensors:
    """Every named tensor that a compiled network has in memory at some moment of a run on `feeds`: its inputs, what its
    kernels make, and what follows from its params alone. Of target none, every named tensor, by the reference
    interpreter. Raises `LightNetError` as a call does."""
    executable, feeds = specialized(executable, feeds)
    ops = list(main_of(executable.planned).body.block.ops)
    arrays = _by_kernels(executable, feeds) if executable.is_native else _interpreted(executable, feeds)
    found = Tensors(arrays, executable.source)
    for op in ops:
        if isinstance(op, KernelOp):
            found.kernels.update((n, kernel_label(op)) for n in tensor_names(op) if n)
            _note_swallowed(found, op)
    for name in computed_names(executable.source):
        if name not in found.arrays:
            found.swallowed.setdefault(name, "a pass removed it")
    return found


def _by_kernels(executable: Any, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors that the compiled code computes: each kernel is run, and its results are read before the next one may
    overwrite them.
    """
    walk = stepper(executable, feeds)
    main = main_of(executable.planned).body.block
    params = _params(executable.planned)
    assert main.last_op is not None
    wanted = set(main.last_op.operands)  # a network may return a param
    there = [pair for op in main.ops if isinstance(op, Source | OnceOp) for pair in _named(op)]
    arrays = {n: walk.read(v) for n, v in there if n not in params or v in wanted}
    for step in walk.steps:
        for run in walk.calls(step):
            run()
        arrays.update((n, walk.read(v)) for n, v in _named(step.op))
    return arrays


def _interpreted(executable: Any, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors that the reference interpreter computes, without the params."""
    params = _params(executable.planned)
    return {n: a for n, a in executable.interpreted(feeds).items() if n not in params}


def _params(module: ModuleOp) -> set[str | None]:
    return {n for op in main_of(module).walk() if isinstance(op, ParamOp) for n in tensor_names(op)}


def _named(op: Operation) -> list[tuple[str, SSAValue]]:
    return [(n, v) for n, v in zip(tensor_names(op), op.results) if n]


def _note_swallowed(found: Tensors, kernel: KernelOp) -> None:
    for op in kernel.ops:
        for name in tensor_names(op):
            if name and name not in tensor_names(kernel):
                found.swallowed[name] = f"inside the kernel of '{kernel_name(kernel)}'"


def kernel_label(op: Operation) -> str:
    """The label of what a kernel computes, for a sentence: ``conv2d conv1 + relu relu1``."""
    inner = op.ops if isinstance(op, KernelOp) else [op] if isinstance(op, LnOp) else []
    shown = [f"{o.optype} {name_of(o) or ''}".strip() for o in inner[:6]]
    return " + ".join(shown) + (f" + {len(inner) - 6} more" if len(inner) > 6 else "")


def computed_names(source: ModuleOp) -> list[str]:
    """The tensors of a network that its ops compute, in order: what may be kept as outputs."""
    ops = (op for op in main_of(source).body.block.ops if isinstance(op, LnOp) and not isinstance(op, Source))
    return list(dict.fromkeys(n for op in ops for n in tensor_names(op) if n))


def makers(source: ModuleOp) -> dict[str, Operation]:
    """The op that makes each named tensor, in the order of the program."""
    return {n: op for op in main_of(source).body.block.ops for n in tensor_names(op) if n}


def inherited(source: ModuleOp, own: Mapping[str, float]) -> dict[str, float]:
    """For each tensor in `own` (some figure of it): the largest figure of the tensors that it is computed from. Those
    that have none hand on what they were computed from."""
    carried: dict[SSAValue, float] = {}
    found: dict[str, float] = {}
    for op in main_of(source).body.block.ops:
        before = max((carried.get(v, 0.0) for v in op.operands), default=0.0)
        for value in op.results:
            name = tensor_name(value)
            if name is not None and name in own:
                found[name] = before
                carried[value] = own[name]
            else:
                carried[value] = before
    return found


# -- NaN and infinity


@dataclass(frozen=True)
class NonFinite:
    """A tensor that has NaN or infinite elements, though nothing it is computed from has: where they begin."""

    name: str
    nans: int
    infinities: int
    elements: int
    kernel: str
    where: SourceLoc | None
    weights: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = " and ".join(f"{n} {kind}" for n, kind in ((self.nans, "NaN"), (self.infinities, "infinite")) if n)
        text = f"'{self.name}' has {what} of {self.elements} elements"
        text += f", computed by {self.kernel}" if self.kernel else ", as it was fed"
        return text + (f"; so have the weights {', '.join(self.weights)}" if self.weights else "")


def first_non_finite(found: Tensors, executable: Any = None) -> list[NonFinite]:
    """The tensors at which NaN or infinity comes up, in order: none that they are computed from has any. With an
    executable, the weights that they read are looked at, too."""
    bad = {n: float(not is_finite(a)) for n, a in found.arrays.items()}
    before, by = inherited(found.source, bad), makers(found.source)
    first = [n for n, op in by.items() if bad.get(n) and not before.get(n)]
    return [_non_finite(found, n, by[n], executable) for n in first]


def _non_finite(found: Tensors, name: str, op: Operation, executable: Any) -> NonFinite:
    array = found.arrays[name].astype(np.float64)
    fed = isinstance(op, Source)
    weights = () if fed or executable is None else tuple(_bad_weights(op, found, executable))
    kernel = "" if fed else found.kernels.get(name) or kernel_label(op)
    nans, infinities = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    return NonFinite(name, nans, infinities, array.size, kernel, loc_of(op), weights)


def _weights_of(op: Operation, found: Tensors) -> list[str]:
    """The names of the sources that an op of the source network reads, itself or through ops whose results have no
    memory."""
    names: dict[str, None] = {}
    ops = [op]
    seen = {op}
    while ops:
        for owner in (v.owner for v in ops.pop().operands):
            if isinstance(owner, Source):
                names.update((n, None) for n in tensor_names(owner) if n)
            elif isinstance(owner, Operation) and owner not in seen:
                seen.add(owner)
                if not any(n in found.arrays for n in tensor_names(owner)):
                    ops.append(owner)
    return list(names)


def _bad_weights(op: Operation, found: Tensors, executable: Any) -> Iterator[str]:
    """Those of the weights that an op reads which are not finite."""
    for name in _weights_of(op, found):
        with suppress(LightNetError):  # it is an input, or folded into another weight
            if not is_finite(executable.loaded(name)):
                yield name


def is_finite(array: np.ndarray) -> bool:
    """Return whether an array has neither NaN nor infinities."""
    return not is_float(array.dtype) or bool(np.isfinite(array.astype(np.float64)).all())


# -- files


def write_tensors(found: Tensors, path: str, names: Sequence[str] | None = None) -> list[str]:
    """Write the tensors (those called `names`, or all) to one ``.npz``, or to a folder: one ``.npy`` each, under names
    that are safe as file names, and ``index.json``, which says what is what. Returns the names written. bfloat16, which
    the formats lack, is written as float32. Raises `LightNetError` for what cannot be written."""
    arrays = {n: found.arrays[n] for n in (names if names is not None else found.arrays)}
    arrays = {n: numbers_of(a) for n, a in arrays.items()}
    if path.lower().endswith(".npz"):
        if broken := [n for n in arrays if "\0" in n]:
            raise LightNetError(f"no entry of an .npz can be called '{broken[0]}': write the tensors to a folder")
        save_npz(path, arrays)
        return list(arrays)
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise LightNetError(f"cannot write the folder '{path}': {e.strerror}") from None
    by, index, taken = makers(found.source), [], set[str]()
    for name, array in arrays.items():
        file = file_name(name, taken) + ".npy"
        write_atomic(folder / file, partial(np.save, arr=array, allow_pickle=False))
        op = by.get(name)
        index.append({"name": name, "file": file, "dtype": str(array.dtype), "shape": list(array.shape),
                      "kernel": found.kernels.get(name, ""),
                      "source": str(loc_of(op) or "") if op else ""})  # fmt: skip
    text = json.dumps({"tensors": index, "swallowed": found.swallowed}, indent=1)
    write_atomic(folder / "index.json", text + "\n")
    return list(arrays)


def file_name(name: str, taken: set[str]) -> str:
    """A name for a file (without a suffix) for a tensor of any name: letters, digits, ``_ . -``, and ``%xx`` for other
    bytes; not too long, not hidden, no option of a command, and another one for each tensor also where file systems do
    not tell case. It is added to `taken`."""
    safe = _UNSAFE.sub(lambda m: "".join(f"%{b:02x}" for b in m[0].encode("utf-8", "surrogatepass")), name)
    safe = f"%{ord(safe[0]):02x}{safe[1:]}" if safe.startswith((".", "-")) else safe  # no hidden file, nor an option
    digest = blake2s(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    if len(safe) > MAX_FILE_NAME or not safe:
        safe = f"{safe[: MAX_FILE_NAME - 13]}-{digest}"
    if safe.lower() in taken:
        safe = f"{safe[: MAX_FILE_NAME - 13]}-{digest}"
    taken.add(safe.lower())
    return safe
