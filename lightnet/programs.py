"""The program of a compilation: what it takes and gives, and where that stands, as data (`runtime/program.py`). Imports
xDSL, `ir` and the dialects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, OpResult, SSAValue

from lightnet.compilation import Compilation
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import HostOp
from lightnet.dialects.ln.source import ConstantOp, Create, Input, ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.counts import counts_of
from lightnet.ir.instances import is_open, symbols_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import call_symbols, is_upstream, memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp, name_of, tensor_names
from lightnet.ir.reserved import Reserved
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.ir.views import moves_left, place_of
from lightnet.runtime.program import HostCall, Program, Tensor


def interface_of(compilation: Compilation) -> dict[str, Any]:
    """The fields of the program of a compilation that say what it takes and gives: they need no machine code."""
    main = main_of(compilation.planned)
    ops = list(main.body.block.ops)
    sources = [op for op in main.walk() if isinstance(op, Source)]
    names = {n for op in ops for n in tensor_names(op) if n} | {op.tensor_names[0] for op in sources}
    before = [n for op in main_of(compilation.source).walk() for n in tensor_names(op) if n]
    inputs = tuple(_tensor(op.results[0], op.op_name or "") for op in ops if isinstance(op, Input | Create))
    read = {t.name for t in inputs}
    declared = [_tensor(op.dst, op.op_name or "") for op in main_of(compilation.source).walk() if isinstance(op, Input)]
    outputs = tuple(_outputs(main))
    readable = {t.name for t in (*inputs, *outputs)} | {op.tensor_names[0] for op in sources}
    return {
        "inputs": inputs, "outputs": outputs,
        "counts": tuple((outputs[i].name, axis, outputs[j].name) for i, axis, j in counts_of(ops[-1])),
        "required": tuple(n for op in ops if isinstance(op, Input) and (op.required or is_open(op.results))
                          for n in op.tensor_names if n),
        "unread": tuple(t for t in declared if t.name not in read),
        "order": tuple(op.tensor_names[0] or op.op_name or ""
                       for op in main_of(compilation.source).walk() if isinstance(op, Input | Create)),
        "params": tuple(op.tensor_names[0] or op.op_name or "" for op in sources
                        if isinstance(op, ParamOp) and not isinstance(op, ConstantOp)),
        "fused": tuple(dict.fromkeys(n for n in before if n not in names)),
        "reused": tuple(dict.fromkeys(n for n in before if n in names and n not in readable)),
    }  # fmt: skip


def build_program(compilation: Compilation) -> Program:
    """The program of a compilation: its code (none for target `none`), memory sizes and named tensors."""
    planned, loops = compilation.planned, compilation.loops
    common = interface_of(compilation) | {"any_threads": not compilation.threads.is_said}
    if loops is None:
        symbols = symbols_of(planned)
        common |= {"symbols": tuple(symbols[name] for name in sorted(symbols))}
        return Program((), {}, threads=compilation.threads.bound, **common)
    ops = list(main_of(planned).body.block.ops)
    _check_ends(ops)
    if is_upstream(planned) or "static" not in memory_of(planned):
        common |= _one_space(ops, common["inputs"], common["counts"])
    common |= {"objects": (), **compilation.runtime.facts(compilation.native, compilation.threads.bound)}
    return Program(memory=memory_of(loops), hosts=tuple(_hosts(loops)), symbols=call_symbols(loops), **common)


def _check_ends(ops: Sequence[Operation]) -> None:
    """Raise `LightNetError` where machine code would read or leave a tensor in another layout than its caller."""
    for op in ops:
        host = isinstance(op, LnOp) and op.is_host
        known = (Layout,) if host else (Layout, Reserved)
        ends = [layout_of(v.type) for v in (*op.operands, *op.results)]
        if (host or isinstance(op, Input | Create | func.ReturnOp)) and any(type(x) not in known for x in ends):
            raise LightNetError(f"{op.name}: what goes into a network or leaves it is row-major: run the pass layout",
                                loc_of(op),
                                label="compile.layout")  # fmt: skip


def _tensor(value: SSAValue, default: str) -> Tensor:
    """A named value; without a place where nothing is planned."""
    if not isinstance(value, OpResult):
        raise LightNetError("@main has arguments: the pass bind makes inputs of them", label="compile.arguments")
    place, spec = place_of(value), spec_of(value.type)
    space, offset = (place.space.data, place.offset.data) if place is not None else ("", 0)
    layout = layout_of(value.type)
    grows = (layout.axis, layout.most) if isinstance(layout, Reserved) else ()
    return Tensor(tensor_names(value.op)[value.index] or default, spec.dims, spec.dtype.name, space, offset, grows)


def _outputs(main: func.FuncOp) -> Iterator[Tensor]:
    last = main.body.block.last_op
    assert last is not None
    for i, value in enumerate(last.operands):
        yield _tensor(value, f"output{i}")


def _one_space(
    ops: Sequence[Operation], inputs: Sequence[Tensor], counts: Sequence[tuple[str, int, str]]
) -> dict[str, Any]:
    """The special facts where all tensors stand in one memory space, as in upstream's plans: residents, and what the
    program overwrites (outputs are lost, as are those whose count is; inputs and residents have to be written
    again)."""
    static = [v for op in ops if isinstance(op, ParamOp | OnceOp) for v in op.results]
    residents = tuple(_tensor(v, f"@{i}") for i, v in enumerate(static))
    filled = [*inputs, *residents]
    outputs = list(_outputs_of(ops))
    begin = np.array([t.offset for t, _ in outputs] + [t.offset for t in filled], np.int64)
    end = begin + np.array([t.nbytes for t, _ in outputs] + [t.nbytes for t in filled], np.int64)
    made = np.array([i for _, i in outputs] + [-1] * len(filled), np.int64)
    space = np.array([t.space for t, _ in outputs] + [t.space for t in filled])
    by: dict[int, str] = {}
    for i, op in enumerate(ops):
        if isinstance(op, Source | OnceOp | func.ReturnOp) or not op.results:
            continue
        for j, _ in moves_left(op):
            target = _tensor(op.results[j], "")
            hit = (begin < target.offset + target.nbytes) & (end > target.offset) & (made < i) & (space == target.space)
            for k in np.flatnonzero(hit):
                by.setdefault(int(k), _label(op))
    lost = {t.name: by[k] for k, (t, _) in enumerate(outputs) if k in by}
    lost |= {name: lost[count] for name, _, count in counts if count in lost and name not in lost}
    again = tuple(t.name for k, t in enumerate(filled, len(outputs)) if k in by)
    return {"residents": residents, "overwritten": tuple(lost.items()), "restore": again}


def _label(op: Operation) -> str:
    """The source name of an op, or of the op that a kernel holds."""
    inner = op.ops[-1] if isinstance(op, KernelOp) and op.ops else op
    return name_of(inner) or op.name


def _outputs_of(ops: Sequence[Operation]) -> Iterator[tuple[Tensor, int]]:
    """Each output and the position of the op that makes it."""
    position = {op: i for i, op in enumerate(ops)}
    for i, value in enumerate(ops[-1].operands):
        assert isinstance(value, OpResult)
        yield _tensor(value, f"output{i}"), position[value.op]


def _hosts(loops: ModuleOp) -> Iterator[HostCall]:
    for op in main_of(loops).body.block.ops:
        if isinstance(op, HostOp):
            a: dict[str, Any] = {k: v.data if isinstance(v, StringAttr) else v for k, v in op.attributes.items()}
            dims: Any = tuple(d.data if isinstance(d, ParamAttr) else d.value.data for d in a["dims"].data)
            yield HostCall(op.service.data, a["msg"], dims, a["dtype"], a.get("file", ""))
