"""Every op on empty tensors: its samples with a dimension of 0 wherever that infers, several in one network, with what the references give.

    python tests/empty_ops.py [OP ...]

says for each op how many there are, and what differs between its reference, the interpreter, machine code, PTX, a saved executable and ONNX Runtime.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from op_cases import beside
from xdsl.ir import Block

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.model import Model

#: Ops that are no part of a kernel.
HOST = ("create", "input", "param", "print", "fprint")
OPS = {name: cls for name, cls in sorted(optypes().items()) if name not in HOST and cls.schema.operands}


class Empty:
    """One op with a dimension of 0: `specs` of its operands, their `arrays`, its `params`, and what it should give."""

    def __init__(self, cls: type[LnOp], specs: tuple[TensorSpec, ...], params: dict, seed: int):
        self.cls, self.specs, self.params = cls, specs, params
        op = cls.make(list(Block(arg_types=[tensor_type(s) for s in specs]).args), dict(params))
        fields = cls.schema.operand_fields(len(specs))
        names = op.arg_names()[0]
        tensors = dict(zip(names, specs))
        self.arrays = [cls.sample_data(n, f.kind, s, tensors, params, seed) for n, f, s in zip(names, fields, specs)]
        self.results = op.result_specs
        self.want = op.evaluate(self.arrays)

    def __str__(self) -> str:
        return f"{self.cls.optype}({', '.join(map(str, self.specs))}) {self.params}"


def without(specs: tuple[TensorSpec, ...]) -> Iterator[tuple[TensorSpec, ...]]:
    """The same with an empty dimension: all that are equal, one of one tensor, the same one of all."""
    for old in sorted({d for s in specs for d in s.dims}):
        yield tuple(TensorSpec(tuple(0 if d == old else d for d in s.dims), s.dtype) for s in specs)
    for k, s in enumerate(specs):
        for axis in range(s.ndim):
            yield (*specs[:k], TensorSpec((*s.dims[:axis], 0, *s.dims[axis + 1 :]), s.dtype), *specs[k + 1 :])
    for axis in range(min((s.ndim for s in specs), default=0)):
        yield tuple(TensorSpec((*s.dims[:axis], 0, *s.dims[axis + 1 :]), s.dtype) for s in specs)


def variants(
    specs: tuple[TensorSpec, ...], params: dict[str, Any]
) -> Iterator[tuple[tuple[TensorSpec, ...], dict[str, Any]]]:
    """Empty operands; and, where a parameter says the result's dimensions, an empty result of both."""
    yield from ((changed, params) for changed in without(specs))
    dims = params.get("dims")
    if not isinstance(dims, tuple):
        return
    for axis in range(len(dims)):
        smaller = params | {"dims": (*dims[:axis], 0, *dims[axis + 1 :])}
        yield specs, smaller
        yield from ((changed, smaller) for changed in without(specs))


def cases(name: str, most: int | None = None) -> list[Empty]:
    """The cases of an op, each once; `most` of them, from different samples."""
    cls, found, seen = OPS[name], [], set()
    for number, sample in enumerate(cls.samples()):
        case = cls.schema.resolve(sample)
        fields = [(case.tensors[f.name] if f.variadic else (case.tensors[f.name],)) for f in cls.schema.operands]
        specs = tuple(s for value in fields for s in value)
        mine = []
        for changed, params in variants(specs, dict(case.params)):
            if most is not None and (len(mine) >= most or sum(map(len, found)) >= 2 * most):
                break
            key = repr((changed, params))
            if key in seen:
                continue
            seen.add(key)
            try:
                mine.append(Empty(cls, changed, params, number))
            except LightNetError:
                continue
        found.append(mine)
    if most is None:
        return [c for mine in found for c in mine]
    in_turn = [mine[k] for k in range(max(map(len, found), default=0)) for mine in found if k < len(mine)]
    return in_turn[:most]


def model_of(found: list[Empty]) -> tuple[Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A network of all cases beside each other; what to feed it, and what it should give."""
    want = {f"y{k}_{j}": array for k, case in enumerate(found) for j, array in enumerate(case.want)}
    return *beside(found, "empty tensors"), want


def _saved(model: Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.lnx"
        lightnet.compile(model).save(path)
        return lightnet.load_executable(path)(feeds)


TARGETS: dict[str, Callable[[Model, dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "interpreter": lambda model, feeds: lightnet.compile(model, "none")(feeds),
    "cpu": lambda model, feeds: lightnet.compile(model)(feeds),
    "plain": lambda model, feeds: lightnet.compile(model, layout="plain", features="avx2")(feeds),
    "cuda": lambda model, feeds: lightnet.compile(model, "cuda", emulate=True)(feeds),
    "lnx": _saved,
}


def differences(name: str | list[str], target: str, most: int | None = None) -> list[str]:
    """What a target gives otherwise than the references."""
    found = [case for one in ([name] if isinstance(name, str) else name) for case in cases(one, most)]
    if not found:
        return []
    model, feeds, want = model_of(found)
    got = TARGETS[target](model, feeds)
    wrong = []
    for key, a in want.items():
        b = got[key]
        if (
            a.shape != b.shape
            or a.dtype != b.dtype
            or not np.allclose(a.astype(float), b.astype(float), 1e-4, 1e-5, equal_nan=True)
        ):
            wrong.append(f"{target}: {found[int(key[1:].partition('_')[0])]}: expected {a!r:.200}, got {b!r:.200}")
    return wrong


def onnxruntime_differences(name: str, most: int | None = None) -> tuple[int, list[str]]:
    """How many cases ONNX Runtime runs, and what it gives otherwise."""
    import onnxruntime as ort

    from lightnet_export.onnx.model import to_onnx

    ran, wrong = 0, []
    for case in cases(name, most):
        model, feeds, want = model_of([case])
        options = ort.SessionOptions()
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(to_onnx(model).SerializeToString(), options)
            got = session.run(list(want), {i.name: feeds[i.name] for i in session.get_inputs()})
        except Exception:
            continue
        ran += 1
        for (key, a), b in zip(want.items(), got):
            if a.shape != b.shape or not np.allclose(a.astype(float), b.astype(float), 1e-4, 1e-5, equal_nan=True):
                wrong.append(f"onnxruntime: {case}: {key}: expected {a!r:.200}, got {b!r:.200}")
    return ran, wrong


def main() -> None:
    count = 0
    for name in sys.argv[1:] or OPS:
        lines: list[str] = []
        for target in TARGETS:
            try:
                lines += differences(name, target)
            except Exception as e:
                lines.append(f"{target}: {name}: {type(e).__name__}: {str(e)[:500]}")
        ran, wrong = onnxruntime_differences(name)
        print(f"{name}: {len(cases(name))} cases, {ran} in ONNX Runtime", flush=True)
        for line in lines + wrong:
            print("  " + line, flush=True)
            count += 1
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
