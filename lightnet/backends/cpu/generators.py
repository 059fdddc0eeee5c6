"""Kernel regions → kernel functions: the generators of the CPU, asked in order.

blocked   kernels on maps in blocks of channels (`blocked/`), where the kernel's operands or results are some
tiled     register-tiled windows and matrix products with an epilogue (`tiled.py`, `gemm.py`), where the kernel's `alg` is
          ``direct``
loops     everything else (`backends/kernel_loops.py`): an op with a loop-level builder of its own (sorts), and what ops' definitions say
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue

from lightnet.backends import kernel_loops
from lightnet.backends.cpu import gemm, tiled
from lightnet.backends.cpu.blocked.base import Generator
from lightnet.backends.cpu.blocked.dense import DENSE
from lightnet.backends.cpu.blocked.selection import generator_of
from lightnet.backends.kernel_loops import builder_op, writes_nothing
from lightnet.backends.launches import Argument, Launch
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, Packed, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import ParamAttr
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
    """Bytes of workspace that the kernel's generator needs, decided before memory is planned: what its launches share, and scratch
    of one thread: others bring theirs (`runtime/pool.py`)."""
    if writes_nothing(kernel):
        return 0
    if (generator := _blocked(kernel)) is not None:
        shared = getattr(generator, "workspace_bytes", None)  # few generators have several launches
        scratch = align_up(generator.scratch_bytes(kernel))
        return scratch + (align_up(shared(kernel)) if shared is not None else 0)
    if uses_tiles(kernel):
        return align_up(_tiles(kernel).workspace_bytes(kernel, lanes(kernel)))
    return kernel_loops.workspace_bytes(kernel)


def most_blocks(kernel: KernelOp) -> int:
    """The blocks of a kernel, or an upper bound where only building it would tell: more threads than that are of no use."""
    if uses_tiles(kernel) and _blocked(kernel) is None:
        return _tiles(kernel).grid(kernel, lanes(kernel))
    return 1 if builder_op(kernel) is not None else MAX_THREADS


def _blocked(kernel: KernelOp) -> Generator | None:
    """The generator of a kernel whose operands or results are not all plain. Raises `LightNetError` where there is none."""
    plain = all(layout_of(v.type).is_plain for v in (*kernel.operands, *kernel.results))
    if plain and choice(kernel, "alg") != DENSE.alg:
        return None
    if choice(kernel, "alg") == "loops" and all(isinstance(v, Packed) for v in _layouts(kernel)):
        return None  # what was packed for others (`passes/tie.py`)
    generator = generator_of(kernel)
    if generator is None:
        alg = choice(kernel, "alg")
        layouts = ", ".join(dict.fromkeys(str(layout_of(v.type)) for v in (*kernel.operands, *kernel.results)))
        raise LightNetError(f"no generator of the CPU takes this {kernel.name} with alg = {alg!r} in layouts {layouts}: run choose and pack",
                            loc_of(kernel), label="cpu.kernel.layout")  # fmt: skip
    return generator


def _layouts(kernel: KernelOp) -> list[Layout]:
    """The layouts of operands and results that are not row-major."""
    found = (layout_of(v.type) for v in (*kernel.operands, *kernel.results))
    return [layout for layout in found if not layout.is_plain]


def generate(kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
    """The functions of a kernel; `aliases` maps a result to the operand whose memory it takes."""
    if writes_nothing(kernel):
        return []
    if (generator := _blocked(kernel)) is not None:
        for number, layout in generator.weights(kernel).items():
            if (found := layout_of(kernel.operands[number].type)) != layout:
                raise LightNetError(f"operand {number} of this {kernel.name} is {found}, its choices want {layout}: run pack behind choose",
                                    loc_of(kernel), label="cpu.kernel.packed")  # fmt: skip
        return generator.build(kernel, name, aliases)
    if uses_tiles(kernel):
        return _tiled(kernel, name, lanes(kernel), dict(aliases))
    return kernel_loops.generate(kernel, name, aliases)


def _tiled(kernel: KernelOp, name: str, width: int, aliases: dict[int, int]) -> list[Launch]:
    function, grid = _tiles(kernel).build(kernel, name, width, aliases)
    args = [Argument("operand", i) for i in range(len(kernel.operands))]
    args += [Argument("result", i) for i in range(len(kernel.results)) if i not in aliases]
    if _tiles(kernel).workspace_bytes(kernel, width):
        args.append(Argument("scratch", 0))
    return [Launch(function, grid, tuple(args))]
