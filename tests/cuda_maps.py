"""Kernel regions of target cuda on maps: layouts put on by force, memory packed and unpacked by `Layout`, unused lanes looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cuda_plans import candidates
from cuda_runs import Regions
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import MAP
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.selection import SELECTION
from lightnet.backends.selection import has_maps
from lightnet.ir.arrays import from_memory, to_memory
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import byte_size, layout_of
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of
from lightnet.passes.layout import follow, set_layout


def map_forms(kernel: KernelOp, alg: str) -> list[Form]:
    """The forms in which the generator `alg` takes a kernel on maps."""
    return [form for g, form in candidates(kernel) if g.alg == alg and has_maps(form)]


def laid_out(kernel: KernelOp, form: Form, alg: str, **choices: int) -> KernelOp:
    """The kernel with the generator `alg`, and the types that its form asks for, packed weights as for these choices."""
    kernel.attributes["alg"] = StringAttr(alg)
    kernel.attributes.update({name: choice_attr(value) for name, value in choices.items()})
    for arg, operand in zip(kernel.body.args, kernel.operands):
        if arg in form.maps:
            set_layout(operand, MAP)
    if not form.plain_results:
        for result in kernel.results:
            set_layout(result, MAP)
    if form.weights:
        generator = next(g for g in SELECTION.generators() if g.alg == alg)
        for number, layout in generator.plan(kernel, form, device_of("")).weights.items():
            set_layout(kernel.operands[number], layout)
    follow(kernel)
    return kernel


class Maps(Regions):
    """Regions whose types have layouts: `run` takes and gives logical arrays."""

    def run(self, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        region, gpu = self.regions[number], self.gpu
        memory = {}
        for i, (operand, array) in enumerate(zip(region.operands, arrays, strict=True)):
            raw = to_memory(operand.type, np.asarray(array, spec_of(operand.type).dtype.np))
            memory["operand", i] = gpu.alloc(max(1, raw.nbytes))
            if raw.nbytes:
                gpu.upload(memory["operand", i], raw)
        for i, result in enumerate(region.results):
            memory["result", i] = gpu.alloc(max(1, byte_size(result.type)))
        self.launch(number, memory)
        return [self.result(memory["result", i], r) for i, r in enumerate(region.results)]

    def result(self, address: int, value: SSAValue) -> np.ndarray:
        """A result's elements; what its layout leaves unused has to be zero."""
        raw = np.empty(byte_size(value.type), np.uint8)
        if raw.nbytes:
            self.gpu.download(address, raw)
        array = from_memory(value.type, raw)
        assert not layout_of(value.type).is_plain or array.shape == spec_of(value.type).dims
        np.testing.assert_array_equal(to_memory(value.type, array), raw, "lanes behind the last channel are not zero")
        return array
