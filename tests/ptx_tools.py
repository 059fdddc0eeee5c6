"""What the tests of the PTX interpreter share: LLVM IR to PTX, and running a kernel on arrays."""

from __future__ import annotations

import numpy as np

from lightnet.runtime.cuda.driver import DeviceLaunch
from lightnet_ptx.emulator import Emulator

HEADER = """target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""


def to_ptx(ir: str, cpu: str = "sm_80") -> str:
    """PTX of LLVM IR, optimised. Only for what is known to compile: LLVM ends the process otherwise."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu=cpu, features="+ptx80", opt=3)
    module = llvm.parse_assembly(HEADER + ir)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


def run(
    ptx: str,
    name: str,
    arrays: list[np.ndarray],
    *scalars,
    grid=(1, 1, 1),
    block=(32, 1, 1),
    shared=0,
    emulator=None,
    **options,
):
    """Run a kernel on copies of `arrays` (uint8 buffers, of NaN-free garbage, are as good as any); what they hold
    afterwards.
    """
    emulator = emulator or Emulator(**options)
    function = emulator.load(ptx).function(name)
    addresses = []
    for array in arrays:
        addresses.append(emulator.alloc(array.nbytes))
        emulator.upload(addresses[-1], array)
    emulator.launch(DeviceLaunch(function, grid, block, shared, (*addresses, *scalars)))
    results = [np.empty_like(a) for a in arrays]
    for address, result in zip(addresses, results):
        emulator.download(address, result)
    return results


def elementwise(name: str, sources: list[str], dest: str, body: str) -> str:
    """A kernel in LLVM IR: `body` makes %r of %x0, %x1, ..., for one element a thread."""
    params = "".join(f"ptr addrspace(1) %p{i}, " for i in range(len(sources)))
    loads = "".join(
        f"%q{i} = getelementptr {t}, ptr addrspace(1) %p{i}, i32 %t\n%x{i} = load {t}, ptr addrspace(1) %q{i}\n"
        for i, t in enumerate(sources)
    )
    return (
        f"define ptx_kernel void @{name}({params}ptr addrspace(1) %o) {{\n"
        f"%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n{loads}{body}\n"
        f"%qo = getelementptr {dest}, ptr addrspace(1) %o, i32 %t\nstore {dest} %r, ptr addrspace(1) %qo\nret void\n}}\n"
    )
