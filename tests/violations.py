"""One violation of every constraint that an op declares, found from its schema: a valid sample of the op is changed, one
thing or two at a time, until the check names the constraint."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.constraints import check_op
from lightnet.ir.op import LnOp, case
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME

BASES = {
    "create": case(dtype="TL_FLOAT", dims=(2, 3), ran=(0, 0), data=(0,), from_file=False),
    "print": case(src=(2, 3), msg="x"),
    "fprint": case(src=(2, 3), msg="x", file="f.txt"),
}
#: The types of other operands.
TYPES = ("f64", "i32", "ui8", "i1")
OPS = {name: cls for name, cls in optypes().items() if name not in ("input", "param", "constant")}


@dataclass(frozen=True)
class Try:
    """An op as a file could have it: operand types and parameters."""

    specs: tuple[TensorSpec, ...]
    params: tuple[tuple[str, Any], ...]

    def label(self, cls: type[LnOp]) -> str | None:
        """The constraint that the check names; None if all hold."""
        try:
            check_op(cls, self.specs, dict(self.params), "it")
        except LightNetError as e:
            return e.label
        return None

    def spec(self, i: int, **changes: Any) -> Try:
        specs = list(self.specs)
        specs[i] = specs[i]._replace(**changes)
        return replace(self, specs=tuple(specs))

    def param(self, name: str, value: Any) -> Try:
        return replace(self, params=(*((k, v) for k, v in self.params if k != name), (name, value)))

    def without(self, name: str) -> Try:
        return replace(self, params=tuple((k, v) for k, v in self.params if k != name))


def bases(cls: type[LnOp]) -> list[Try]:
    """Valid instances of an op, every parameter given."""
    out = []
    for raw in [BASES[cls.optype]] if cls.optype in BASES else cls.samples():
        resolved = cls.schema.resolve(raw)
        specs: list[TensorSpec] = []
        for o in cls.schema.operands:
            given = resolved.tensors[o.name]
            specs += given if o.variadic else [given]  # pyright: ignore
        params = dict(resolved.params)
        check_op(cls, specs, params)  # fills the defaults in
        out.append(Try(tuple(specs), tuple(params.items())))
    return out


def expected_labels(cls: type[LnOp]) -> set[str]:
    """Every label that the declaration of an op can give, but for those of the result's size."""
    labels = {"operand-count", "unknown-param", *cls.checks}
    for o in cls.schema.operands:
        labels |= {f"{o.name}.rank"} if o.rank is not None or o.min_rank else set()
        labels |= {f"{o.name}.dtype"} if o.dtypes else set()
        labels |= {f"{o.name}.same-type"} if o.same_type else set()
        labels |= {f"{o.name}.same-shape"} if o.same_shape else set()
    for p in cls.schema.params:
        labels |= {f"{p.name}.type"} | {f"{p.name}.{op}" for op, _ in p.bounds}
        labels |= {f"{p.name}.missing"} if p.default is ... else set()
        labels |= {f"{p.name}.length"} if p.length is not None else set()
        labels |= {f"{p.name}.value"} if p.choices else set()
    text = inspect.getsource(cls.infer.__func__)  # pyright: ignore[reportFunctionMemberAccess]
    return {f"{cls.optype}.{label}" for label in labels} | set(re.findall(r'label="([\w.-]+)"', text))


def changes(cls: type[LnOp], t: Try) -> Iterator[Try]:
    """Everything one step away."""
    if t.specs:
        yield replace(t, specs=(*t.specs, t.specs[0]))
        yield replace(t, specs=t.specs[:-1])
    else:
        yield replace(t, specs=(TensorSpec((1,), BY_NAME["f32"]),))
    yield t.param("odd", 1)
    taken = {d for o in cls.schema.operands for d in o.dtypes or TYPES}
    own = () if taken.intersection(TYPES) else sorted(taken)  # of an op that takes none of them
    for i, spec in enumerate(t.specs):
        yield from (t.spec(i, dims=d) for d in _dims(spec.dims))
        yield from (t.spec(i, dtype=BY_NAME[d]) for d in (*TYPES, *own) if d != spec.dtype.name)
    for p in cls.schema.params:
        if p.name not in dict(t.params):  # left out, where there is a default
            continue
        value = dict(t.params)[p.name]
        yield t.without(p.name)
        yield from (t.param(p.name, v) for v in ("odd", 1, True, None, ("odd",)))
        yield from (t.param(p.name, v) for v in _values(p, value))


def _dims(dims: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield from ((*dims, 2), (70_000, *dims[1:]))
    if dims:
        yield dims[:-1]
    for i, d in enumerate(dims):
        yield from ((*dims[:i], n, *dims[i + 1 :]) for n in (d + 1, 0))


def _values(p: Any, value: Any) -> Iterator[Any]:
    yield from p.choices
    if p.kind == "number":
        yield from (value - 1, value + 1, -1, 0, 1000, -1000)
    if p.kind == "numbers":
        yield (*value, 1)
        yield from (tuple(k for _ in value) for k in (1, 2, 7))
        for i in range(len(value)):
            yield from ((*value[:i], v, *value[i + 1 :]) for v in (value[i] - 1, value[i] + 1, -1, 0, 1000))


def violations(cls: type[LnOp]) -> dict[str, Try]:
    """Label -> an instance that violates it; one for every label that can be found in two steps."""
    found: dict[str, Try] = {}
    wanted = expected_labels(cls)
    valid = bases(cls)
    for base in valid:
        for t in changes(cls, base):
            if (label := t.label(cls)) is not None:
                found.setdefault(label, t)
    for base in valid:
        if wanted <= set(found):
            break
        near = [
            t for t in changes(cls, base) if not (t.label(cls) or "").endswith((".type", ".missing", "unknown-param"))
        ]
        for first in near[:120]:
            for t in changes(cls, first):
                if (label := t.label(cls)) is not None and label not in found:
                    found[label] = t
    return found
