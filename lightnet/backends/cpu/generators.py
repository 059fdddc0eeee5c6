"""Kernel regions → kernel functions: the generators of the CPU, asked in order.

blocked   kernels on maps in blocks of channels (`blocked/`), where the kernel's operands or results are some
tiled     register-tiled windows and matrix products with an epilogue (`tiled.py`, `gemm.py`), where the kernel's `alg` is
          ``direct``
builder   an op with a loop-level builder of its own (sorts)
loops     everything else, from the ops' definitions (`backends/loops.py`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, IntegerType, MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.cpu import gemm, tiled
from lightnet.backends.cpu.blocked.base import Generator
from lightnet.backends.cpu.blocked.dense import DENSE
from lightnet.backends.cpu.blocked.selection import generator_of
from lightnet.backends.cpu.expressions import bind_op
from lightnet.backends.cpu.launches import Argument, Launch
from lightnet.backends.cpu.parallel import threads_of
from lightnet.backends.loops import lower_definition, workspace_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Reshape
from lightnet.ir.body import choice
from lightnet.ir.bound import BoundDefinition
from lightnet.ir.fusion import Part, compose
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.notation import parse
from lightnet.ir.op import LnOp
from lightnet.ir.types import ParamAttr, spec_of, storage_type
from lightnet.runtime.arrays import align_up
from lightnet.runtime.threads import MAX_THREADS


def tiled_generator(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Any:
    """The register-tiled generator that takes a body, the module `tiled` or `gemm`, or None."""
    return next((module for module in (tiled, gemm) if module.accepts(ops, yielded)), None)


def uses_tiles(kernel: KernelOp) -> bool:
    """Whether the kernel is for a register-tiled generator."""
    return choice(kernel, "alg") == "direct" and _tiles(kernel) is not None


def _tiles(kernel: KernelOp) -> Any:
    return tiled_generator(kernel.ops, kernel.terminator.operands)


def lanes(kernel: KernelOp) -> int:
    """Lanes of f32 in a vector register that the kernel is for."""
    attr = kernel.attributes.get("lanes")
    value = attr.data if isinstance(attr, ParamAttr) else attr.value.data if isinstance(attr, IntegerAttr) else 16
    return int(value)


def workspace_bytes(kernel: KernelOp) -> int:
    """Bytes of workspace that the kernel's generator needs, decided before memory is planned: what its launches share, and scratch for
    as many threads as it has chosen."""
    if _writes_nothing(kernel):
        return 0
    if (generator := _blocked(kernel)) is not None:
        shared = getattr(generator, "workspace_bytes", None)  # few generators have several launches
        scratch = threads_of(kernel) * align_up(generator.scratch_bytes(kernel))
        return scratch + (align_up(shared(kernel)) if shared is not None else 0)
    if uses_tiles(kernel):
        return threads_of(kernel) * align_up(_tiles(kernel).workspace_bytes(kernel, lanes(kernel)))
    if (op := _builder_op(kernel)) is not None:
        return align_up(op.workspace_bytes()) + sum(align_up(spec_of(r.type).nbytes) for r in _unread(kernel))
    if len(kernel.ops) == 1 and not _has_locals(kernel.ops[0]):
        return 0  # in a body of several ops, one that is dear to recompute becomes a local, too
    return sum(align_up(spec.nbytes) for _, spec in workspace_of(composed(kernel)))


def most_blocks(kernel: KernelOp) -> int:
    """The blocks of a kernel, or an upper bound where only building it would tell: more threads than that are of no use."""
    if uses_tiles(kernel) and _blocked(kernel) is None:
        return _tiles(kernel).grid(kernel, lanes(kernel))
    return 1 if _builder_op(kernel) is not None else MAX_THREADS


def _blocked(kernel: KernelOp) -> Generator | None:
    """The generator of a kernel whose operands or results are not all plain. Raises `LightNetError` where there is none."""
    plain = all(layout_of(v.type).is_plain for v in (*kernel.operands, *kernel.results))
    if plain and choice(kernel, "alg") != DENSE.alg:
        return None
    generator = generator_of(kernel)
    if generator is None:
        alg = choice(kernel, "alg")
        layouts = ", ".join(dict.fromkeys(str(layout_of(v.type)) for v in (*kernel.operands, *kernel.results)))
        raise LightNetError(f"no generator of the CPU takes this {kernel.name} with alg = {alg!r} in layouts {layouts}: run choose and pack",
                            loc_of(kernel), label="cpu.kernel.layout")  # fmt: skip
    return generator


def _writes_nothing(kernel: KernelOp) -> bool:
    """Whether all results are empty tensors."""
    return all(spec_of(r.type).len == 0 for r in kernel.results)


def _has_locals(op: LnOp) -> bool:
    """Whether the op's definition names tensors that are neither operands nor results."""
    if op.definition is None:
        return False
    return any(t.name not in op.arg_names()[1] for s in parse(op.definition).statements for t in s.targets)


def generate(kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
    """The functions of a kernel; `aliases` maps a result to the operand whose memory it takes."""
    if _writes_nothing(kernel):
        return []
    if (generator := _blocked(kernel)) is not None:
        for number, layout in generator.weights(kernel).items():
            if (found := layout_of(kernel.operands[number].type)) != layout:
                raise LightNetError(f"operand {number} of this {kernel.name} is {found}, its choices want {layout}: run pack behind choose",
                                    loc_of(kernel), label="cpu.kernel.packed")  # fmt: skip
        return generator.build(kernel, name, aliases)
    if uses_tiles(kernel):
        return _tiled(kernel, name, lanes(kernel), dict(aliases))
    if (op := _builder_op(kernel)) is not None:
        return _built(kernel, op, name)
    return _loops(kernel, name, aliases)


def _tiled(kernel: KernelOp, name: str, width: int, aliases: dict[int, int]) -> list[Launch]:
    function, grid = _tiles(kernel).build(kernel, name, width, aliases)
    args = [Argument("operand", i) for i in range(len(kernel.operands))]
    args += [Argument("result", i) for i in range(len(kernel.results)) if i not in aliases]
    if _tiles(kernel).workspace_bytes(kernel, width):
        args.append(Argument("scratch", 0))
    return [Launch(function, grid, tuple(args))]


def _builder_op(kernel: KernelOp) -> LnOp | None:
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
    types = [MemRefType(storage_type(s.dtype), [s.len]) for s in specs]
    if size := op.workspace_bytes():
        types.append(MemRefType(IntegerType(8), [size]))
    b = Builder.kernel(name, types)
    args, count = list(b.args), len(op.operands)
    with b.when(b.cmpi("slt", b.lo, b.hi)):  # its one block is another thread's where the range is empty
        op.build_loops(b, args[:count], args[count : len(specs)], args[-1] if size else None)
    read, yielded = list(kernel.body.args), list(kernel.terminator.operands)
    arguments, behind = [Argument("operand", read.index(v)) for v in op.operands], align_up(size)
    for result, spec in zip(op.results, op.result_specs):
        if result in yielded:
            arguments.append(Argument("result", yielded.index(result)))
        else:
            arguments.append(Argument("workspace", behind))
            behind += align_up(spec.nbytes)
    arguments += [Argument("workspace", 0)] if size else []
    return [Launch(b.finish(), 1, tuple(arguments))]


def _loops(kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
    definition = composed(kernel)
    names = [n for n, _ in definition.operands + definition.results]
    shared = {f"in{operand}": f"out{result}" for result, operand in aliases.items()}
    lowered = lower_definition(name, definition, names, shared)
    offsets, at = {}, 0
    for workspace, spec in lowered.workspace:
        offsets[workspace], at = at, at + align_up(spec.nbytes)
    launches = []
    for k in lowered.kernels:
        args = tuple(_argument(a, offsets) for a in k.args)
        launches.append(Launch(k.func, k.grid, args))
    return launches


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
    """The reshapes of a kernel of moves that alone read an operand, or alone read what they yield: the memory of these is seen under
    other dims, and nothing is left to do. At least one other op remains."""
    ops, yielded = kernel.ops, list(kernel.terminator.operands)
    if not all(op.is_move for op in ops):
        return []
    args = set(kernel.body.args)
    views = [
        op
        for op in ops
        if isinstance(op, Reshape)
        and (
            (op.src in args and op.src.has_one_use() and op.dst not in yielded)
            or (op.src not in args and op.src.has_one_use() and yielded.count(op.dst) == 1 and op.dst.has_one_use())
        )
    ]
    inner = [op for op in ops if op not in views]
    made = {r for op in inner for r in op.results}
    ends = all(op.src in args or op.src in made for op in views)
    return views if inner and ends else []
