"""A lowered module as what a device runs: its PTX, and the launch list as data. Imports the emitter and the runtime's
`cuda.program`."""

from __future__ import annotations

from functools import cached_property
from itertools import groupby
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cuda.nvptx import emit_llvm, emit_program
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects.accesses import LineAccesses
from lightnet.dialects.cuda_launch import CudaLaunchOp
from lightnet.dialects.dependences import launch_waits
from lightnet.dialects.launch import CopyOp, HostOp, kernel_symbols, kernels
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import call_symbols
from lightnet.ir.module import main_of
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.cuda.program import CudaCode, HostLine, KernelLine, Place
from lightnet.runtime.cuda.tensor_map import TensorMap
from lightnet.runtime.dims import Size


class CudaModule:
    """The code of a module at level 4 of cuda. Raises LightNetError where it is none."""

    def __init__(self, loops: ModuleOp, arch: str):
        self._loops, self.arch = loops, arch
        ptx = emit_program(loops, arch)
        self.code = CudaCode(ptx.text, arch, tuple(_lines(loops, ptx.entries)))

    @property
    def assembly(self) -> str:
        """The PTX text."""
        return self.code.ptx

    @cached_property
    def llvm_ir(self) -> str:
        """The LLVM IR text, before LLVM's own passes."""
        return emit_llvm(self._loops, self.arch)[0]


def _lines(loops: ModuleOp, entries: dict[str, str]) -> list[KernelLine | HostLine]:
    """The launch list; `entries` are the kernels' names in the PTX."""
    lines: list[KernelLine | HostLine] = []
    accesses, calls = LineAccesses(loops), 0
    functions = {name: function for name, function in kernels(loops).items() if name in entries}
    maps = {name: maps_of(function) for name, function in functions.items()}
    values = {s.name: s.dim for s in call_symbols(loops)}
    taken = {name: tuple(values[s] for s in kernel_symbols(function)) for name, function in functions.items()}
    for is_launch, ops in groupby(main_of(loops).body.block.ops, lambda op: isinstance(op, CudaLaunchOp)):
        if is_launch:
            launches = [op for op in ops if isinstance(op, CudaLaunchOp)]
            after = launch_waits(accesses.of(op) for op in launches)
            for launch, numbers in zip(launches, after):
                name = launch.callee.string_value()
                lines.append(_line(launch, entries[name], maps[name], numbers, taken[name]))
            continue
        for op in ops:
            if isinstance(op, CopyOp):
                raise LightNetError(
                    "target 'cuda' has one kind of memory on its device: what copies there is a kernel", loc_of(op)
                )
            if isinstance(op, HostOp):
                lines.append(HostLine(calls, _place(op.args.data[0])))
                calls += 1
    return lines


def _line(
    op: CudaLaunchOp, entry: str, maps: tuple[TensorMap | None, ...], after: tuple[int, ...], taken: tuple[Size, ...]
) -> KernelLine:
    tx, ty, tz = op.block.get_values()
    places = tuple(map(_place, op.args))
    grid: Any = op.grid_sizes
    return KernelLine(entry, grid, (tx, ty, tz), op.shared_bytes, places, after, maps, cast(Any, taken))


def _place(place: PlaceAttr) -> Place:
    return place.space.data, place.offset.data
