"""The page docs/upstream-ops.md: what upstream's own operator descriptions are here, by op and architecture. Written by tools/docs.py.

The files are those of tests/data/upstream, unchanged; each is loaded, and its ops are made on test cases of ours, to see what they become.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from xdsl.ir import Block

from lightnet.diagnostics import DescriptionWarning
from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet_descriptions import hardware, load_description_file
from lightnet_descriptions.c import library
from lightnet_descriptions.calls import HANDLES, ORDERS
from lightnet_descriptions.code import CHECKS

FILES = Path(__file__).parent.parent / "tests" / "data" / "upstream" / "op"
ARCHS = ("none", "cpu", "cuda", "cudnn", "tensorrt", "dpu")
INTRODUCTION = """
# Upstream's own operator descriptions

All 37 files load as they are ([describe-an-op.md](describe-an-op.md#code) has the language): 105 ops, one of which (`tensorrt`) says `autogen: false` and is none of a
file. With `--replace` they take the places of ours:

```sh
lightnet -t cpu --load protos/op --replace --load protos/ep/ep_cpu.json NET
```

Each op is compared with ours on the same operands, bit for bit (`tests/descriptions/test_upstream_ops.py`), and upstream's networks become the same modules, with the same kernels and the
same places, as with our own ops: a replaced op is what it computes before any pass sees it.

* *ours*: its description has no code (`run` is missing or empty), or fills with random numbers; it computes as our op of its name;
* `ln.X`: its C calls a function that is this op (upstream's `upsample` calls that of `resize`, which means the same);
* *notation*: its C loops over elements, and is read as index notation;
* *definition*: an instruction of hardware that is not here; what it computes stands in `lightnet_descriptions/hardware.py`, the interpreter runs it, and warns that it does;
* *host*: it prints.

A description's checks hold besides those of the op that computes it. Where upstream has a bug in a shape, as in SAME_* padding of pools (it takes the dims of batch and
channels for those of the picture), the two differ and the op is refused, which names both shapes. `bn2scale_wts_cpu` divides by the variance, not by its root, as it says.

| op | """
FUNCTIONS = """
## Functions of the language
What code may call, and what it means; `lightnet_descriptions/c/library.py`, and `code.py`, `calls.py` and `running.py` above it, have the tables.

| kind | functions |
| --- | --- |
"""


def page() -> str:
    """The page, without the line that says who wrote it."""
    found: dict[str, dict[str, str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DescriptionWarning)
        for path in sorted(FILES.rglob("*.op")):
            for cls in (c for ops in load_description_file(str(path)).families.values() for c in ops):
                base = cls.optype if cls.arch == "none" else cls.optype.removesuffix(f"_{cls.arch}")
                found.setdefault(base, {})[cls.arch] = what(cls, base)
    found["tensorrt"] = {"tensorrt": "no op"}
    rows = [
        f"| `{base}` | " + " | ".join(of.get(arch, "") for arch in ARCHS) + " |" for base, of in sorted(found.items())
    ]
    head = " | ".join(f"`{arch}`" for arch in ARCHS) + " |\n| --- |" + " --- |" * len(ARCHS)
    return "\n".join([INTRODUCTION.lstrip("\n") + head, *rows, FUNCTIONS.rstrip("\n"), *functions(), ""])


def what(cls: type, base: str) -> str:
    """The kind of an op here, in a word."""
    if cls.is_host:
        return "host"
    if cls.stands_for is not None:
        return "ours"
    if cls.optype in hardware.DEFINITIONS:
        return "definition"
    op = instance(cls, base)
    if op is None or (inner := op.decomposition()) is None:
        return "notation"
    return ", ".join(f"`{i.name}`" for i in inner[0])


def instance(cls: type, base: str):
    """The op on the first test case of ours that it takes."""
    ours = built_in_optypes().get(base)
    for case in [] if ours is None else map(ours.schema.resolve, ours.samples()):
        specs = [
            s
            for o in ours.schema.operands
            for v in [case.tensors[o.name]]
            for s in ((v,) if isinstance(v, TensorSpec) else v)
        ]
        for _ in range(len(cls.schema.operands) - len(specs)):  # the workspaces of a dot product
            specs.append(TensorSpec((1,), specs[0].dtype))
        params = dict(case.params)
        for p in ours.schema.params:
            if p.name not in params:
                params[p.name] = p.default
        return cls.make(list(Block(arg_types=[tensor_type(s) for s in specs]).args), params)
    return None


def functions() -> list[str]:
    """The rows of the table of functions."""

    def names(found) -> str:
        return ", ".join(f"`{n}`" for n in sorted(found))

    return [
        f"| numbers, memory of one's own, texts, dtypes, messages | {names(library.FUNCTIONS)} |",
        f"| checks | {names(CHECKS)} |",
        f"| ops, in `run` | `tl_tensor_X(operands, results, params)`, also `_cuda` and `_cpu`, for each of our ops X in the order of its schema; in TensorLight's own order {names(ORDERS)}; "
        "`tl_tensor_maxreduce`, `cudnnActivationForward` |",
        "| elements, in loops of a `run` | `tl_padd`, `tl_convert`, `memset`, `memmove` |",
        "| what is printed | `printf`, `fopen`, `fprintf`, `fclose`, `tl_tensor_print`, `tl_tensor_fprint` |",
        f"| handles of libraries, of which nothing is there | {names(HANDLES)} |",
    ]  # fmt: skip
