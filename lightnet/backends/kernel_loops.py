"""Kernel regions → loop functions, for any target: a body from its ops' definitions, or from an op's own loop-level
builder.

Every op runs this way; what a target does faster stands in its folder. Imports `ir`, the builder and `loops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.launches import Argument, Launch
from lightnet.backends.loop_function import Labels
from lightnet.backends.loop_layouts import Layouts
from lightnet.backends.loops import LOOP_BLOCKS, lower_definition, workspace_of
from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Reshape
from lightnet.ir import bound, notation
from lightnet.ir.bound import BoundDefinition, Read
from lightnet.ir.fusion import Part, compose
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.notation import parse
from lightnet.ir.op import LnOp
from lightnet.ir.reserved import grown
from lightnet.ir.types import TensorSpec, flat_memref, spec_of
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dtypes import BY_NAME


def bind_op(op: LnOp) -> bound.BoundDefinition:
    """The bound definition of an op; tensors are called by their argument names."""
    key = type(op), tuple(op.operand_specs), tuple(op.result_specs), repr(op.param_values())
    if (found := _bound.get(key)) is None:
        if len(_bound) >= _MOST_BOUND:
            _bound.clear()
        found = _bound[key] = _bind(op)
    return found


#: Bound definitions by op class, types and parameters (whose text tells 1 from 1.0): the same epilogue stands in many
#: kernels.
_bound: dict[object, bound.BoundDefinition] = {}
_MOST_BOUND = 1 << 10


def _bind(op: LnOp) -> bound.BoundDefinition:
    results = op.arg_names()[1]
    env = op.env()
    assert op.definition is not None
    try:
        return notation.bind(notation.parse(op.definition), env.tensors, env.params, results)
    except LightNetError as error:
        if (place := loc_of(op)) is None:
            raise
        note = (error.loc, f"in its definition: {(error.source_line or op.definition).strip()}")
        raise LightNetError(f"{op.name}: {error.message}", place, error.label, notes=[note, *error.notes]) from None


def generate(kernel: KernelOp, name: str, aliases: Mapping[int, int], blocks: int | None = LOOP_BLOCKS) -> list[Launch]:
    """The functions of a kernel that writes something; `aliases` maps a result to the operand whose memory it takes,
    `blocks` is that of `loops.lower_definition`."""
    if (op := builder_op(kernel)) is not None:
        return _built(kernel, op, name)
    return _defined(kernel, name, aliases, blocks)


def layouts_of(kernel: KernelOp) -> Layouts:
    """The operands and results of `composed` that do not lie row-major."""
    named = [(f"in{i}", a) for i, a in enumerate(kernel.body.args)]
    named += [(f"out{i}", r) for i, r in enumerate(kernel.results)]
    found = ((name, layout_of(value.type)) for name, value in named)
    return {name: layout for name, layout in found if not layout.is_plain}


def takes_layouts(kernel: KernelOp) -> bool:
    """Return whether `generate` makes functions for a kernel with the layouts that its operands and results have: an
    op's own builder knows row-major tensors alone."""
    layouts = [layout_of(v.type) for v in (*kernel.operands, *kernel.results)]
    if all(layout.is_plain for layout in layouts):
        return True
    return all(op.definition is not None for op in kernel.ops) and all(layout.is_lossless for layout in layouts)


def loop_workspace_bytes(kernel: KernelOp, blocks: int | None = LOOP_BLOCKS) -> int:
    """Bytes that the functions of `generate` ask for beside operands and results."""
    if writes_nothing(kernel):
        return 0
    if (op := builder_op(kernel)) is not None:
        return align_up(op.workspace_bytes()) + sum(align_up(spec_of(r.type).nbytes) for r in _unread(kernel))
    layouts = layouts_of(kernel)
    if len(kernel.ops) == 1 and not _has_locals(kernel.ops[0]) and not layouts:
        return 0  # in a body of several ops, one that is dear to recompute becomes a local, too
    return sum(align_up(spec.nbytes) for _, spec in workspace_of(composed(kernel), blocks, layouts))


def writes_nothing(kernel: KernelOp) -> bool:
    """Return whether all results are empty tensors."""
    return all(spec_of(r.type).len == 0 for r in kernel.results)


def _has_locals(op: LnOp) -> bool:
    """Return whether the op's definition names tensors that are neither operands nor results."""
    if op.definition is None:
        return False
    return any(t.name not in op.arg_names()[1] for s in parse(op.definition).statements for t in s.targets)


def builder_op(kernel: KernelOp) -> LnOp | None:
    """The op with a loop-level builder that the kernel is, if it is one."""
    ops, yielded = kernel.ops, list(kernel.terminator.operands)
    alone = len(ops) == 1 and ops[0].has_builder
    return ops[0] if alone and set(yielded) <= set(ops[0].results) and len(set(yielded)) == len(yielded) else None


def _unread(kernel: KernelOp) -> list[SSAValue]:
    """Results of its op that the kernel does not yield: they are written all the same, behind the op's workspace."""
    return [r for r in kernel.ops[0].results if r not in kernel.terminator.operands]


def _built(kernel: KernelOp, op: LnOp, name: str) -> list[Launch]:
    """A kernel from an op's own loop-level builder: rank-1 memrefs, then an i8 workspace."""
    specs = [*op.operand_specs, *op.result_specs]
    types, size = [flat_memref(s) for s in specs], op.workspace_bytes()
    if size != 0:
        types.append(flat_memref(TensorSpec((size,), BY_NAME["i8"])))
    hints = [*(v.name_hint for v in (*op.operands, *op.results)), "work"]
    symbols = {s for spec in specs for d in spec.open_dims for s in d.symbols}
    b = Builder.kernel(name, types, hints=hints, location=op.location, symbols=symbols)
    args, count, blocks = list(b.args), len(op.operands), op.blocks()
    # A range of one block may be empty: then the block is another thread's.
    with b.when(b.cmpi("slt", b.lo, b.hi)) if blocks == 1 else nullcontext():
        op.build_loops(b, args[:count], args[count : len(specs)], args[-1] if size != 0 else None)
    read, yielded = list(kernel.body.args), list(kernel.terminator.operands)
    arguments, behind = [Argument("operand", read.index(v)) for v in op.operands], align_up(size)
    for result, spec in zip(op.results, op.result_specs):
        if result in yielded:
            arguments.append(Argument("result", yielded.index(result)))
        else:
            arguments.append(Argument("workspace", behind))
            behind += align_up(spec.nbytes)
    arguments += [Argument("workspace", 0)] if size != 0 else []
    return [Launch(b.finish(), blocks, tuple(arguments))]


def _defined(kernel: KernelOp, name: str, aliases: Mapping[int, int], blocks: int | None) -> list[Launch]:
    """A kernel from the definitions of its ops."""
    definition = _without_copies(composed(kernel), kernel, aliases)
    names = [n for n, _ in definition.operands + definition.results]
    shared = {f"in{operand}": f"out{result}" for result, operand in aliases.items()}
    labels = _labels(kernel)
    lowered = lower_definition(name, definition, names, shared, blocks, layouts_of(kernel), labels, kernel.in_vectors)
    offsets, at = {}, 0
    for workspace, spec in lowered.workspace:
        offsets[workspace], at = at, at + align_up(spec.nbytes)
    launches = []
    for k in lowered.kernels:
        args = tuple(_argument(a, offsets) for a in k.args)
        launches.append(Launch(k.func, k.grid, args))
    return launches


def _without_copies(d: BoundDefinition, kernel: KernelOp, aliases: Mapping[int, int]) -> BoundDefinition:
    """The definition without what writes the elements of an operand that grows to where they are."""
    growing = {f"out{j}": f"in{k}" for k, j in grown(kernel) if aliases.get(j) == k}
    if not growing:
        return d
    left = [
        s
        for s in d.statements
        if not (isinstance(s.value, Read) and s.value.tensor == growing.get(s.tensor) and s.value.subs == s.subs)
    ]
    assert len(left) == len(d.statements) - len(growing)
    return replace(d, statements=tuple(left))


def _labels(kernel: KernelOp) -> Labels:
    """The names of the tensors of `composed` in the network, and its place there."""
    named: dict[str, SSAValue] = {f"in{i}": a for i, a in enumerate(kernel.body.args)}
    named |= {f"out{i}": r for i, r in enumerate(kernel.results)}
    return Labels({name: value.name_hint for name, value in named.items()}, kernel.location)


def _argument(name: str, workspace: Mapping[str, int]) -> Argument:
    if name in workspace:
        return Argument("workspace", workspace[name])
    kind = "operand" if name.startswith("in") else "result"
    return Argument(kind, int(name.removeprefix("in").removeprefix("out")))


def composed(kernel: KernelOp) -> BoundDefinition:
    """The kernel's body as one definition: operands ``in0, in1, …``, results ``out0, out1, …``."""
    for op in kernel.ops:
        if op.has_builder:
            raise LightNetError(
                f"{op.name} has a loop-level builder of its own: it should stand alone in its kernel",
                loc_of(op),
                label="cpu.kernel.alone",
            )
    names: dict[SSAValue, str] = {a: f"in{i}" for i, a in enumerate(kernel.body.args)}
    yielded = list(kernel.terminator.operands)
    for i, value in enumerate(yielded):
        names.setdefault(value, f"out{i}")
    parts = []
    views = _border_views(kernel)
    for op in views:  # first those that read operands, in order: a view is called as what it is a view of
        if op.operands[0] in names:
            names[op.results[0]] = names[op.operands[0]]
        else:
            names[op.operands[0]] = names[op.results[0]]
    for k, op in enumerate(kernel.ops):
        if op in views:
            continue
        for i, result in enumerate(op.results):
            names.setdefault(result, f"v{k}.{i}")
        parts.append(Part(bind_op(op), tuple(names[v] for v in op.operands), tuple(names[r] for r in op.results)))
    used = {v for op in kernel.ops for v in op.operands} | set(yielded)
    operands = [names[a] for a in kernel.body.args if a in used]
    return compose(parts, [names[v] for v in yielded], operands, [f"out{i}" for i in range(len(yielded))])


def _border_views(kernel: KernelOp) -> list[LnOp]:
    """The reshapes of a kernel of moves that alone read an operand, or alone read what they yield: the memory of these
    is seen under other dims, and nothing is left to do. At least one other op remains."""
    ops, yielded = kernel.ops, list(kernel.terminator.operands)
    if not all(op.is_move for op in ops):
        return []
    args = set(kernel.body.args)
    views = [
        op
        for op in ops
        if isinstance(op, Reshape)
        and is_plain(op)
        and (
            (op.src in args and op.src.has_one_use() and op.dst not in yielded)
            or (op.src not in args and op.src.has_one_use() and yielded.count(op.dst) == 1 and op.dst.has_one_use())
        )
    ]
    inner = [op for op in ops if op not in views]
    made = {r for op in inner for r in op.results}
    ends = all(op.src in args or op.src in made for op in views)
    return views if inner and ends else []
