"""Running one generator of kernels on blocked maps on a body, without passes: in any split of its grid, on poisoned memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from guarded import guarded
from machine_code import verified
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel
from lightnet.backends.generator import Plan
from lightnet.backends.llvm.jit import compile_module
from lightnet.ir.arrays import from_memory, to_memory
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, Layout, byte_size, layout_of, with_layout
from lightnet.ir.parser import parse_mlir
from lightnet.ir.refusal import refusal_reason
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.runtime.arrays import aligned


def kernel_of(operands: Mapping[str, str], body: str) -> KernelOp:
    """A kernel on plain operands, name -> type; the body's last line is its ``ln.yield``."""
    arguments = ", ".join(f"%{n} : {t}" for n, t in operands.items())
    inner = ", ".join(f"%{n} = %{n}" for n in operands)
    count = body.rpartition("ln.yield")[2].count(",") + 1
    text = f"func.func @main({arguments}) {{ %results:{count} = cpu.kernel({inner}) {{ {body} }} func.return }}"
    module = parse_mlir(make_context(), text, "kernel.mlir")
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    kernel_of.keep.append(module)  # a kernel outlives its module only while somebody holds that
    return kernel


kernel_of.keep = []


def set_layout(value: SSAValue, layout: Layout) -> None:
    value._type = with_layout(value.type, layout)


def form_of(generator: BlockedGenerator, kernel: KernelOp, machine: ProcessorModel = ProcessorModel()) -> Form | None:
    """What a generator needs for the body of a kernel; None where it refuses, which has a reason."""
    form = generator.form(kernel.ops, list(kernel.terminator.operands), machine)
    assert isinstance(form, Form) or refusal_reason(form)
    return form if isinstance(form, Form) else None


def planned(generator: BlockedGenerator, kernel: KernelOp, machine: ProcessorModel = ProcessorModel()) -> Plan:
    """The plan of a generator for a kernel as it is."""
    form = form_of(generator, kernel, machine)
    assert form is not None, "the generator does not take the body"
    return generator.plan(kernel, form, machine)


def lay_out(
    kernel: KernelOp, generator: BlockedGenerator, machine: ProcessorModel, extra: Halo = (0, 0), out: Halo = (0, 0)
) -> Plan:
    """Give the kernel the layouts that the generator asks for, `extra` halo more than it needs, and results of halo `out`; its
    choices; and packed weights. The plan of what it is then."""
    form = form_of(generator, kernel, machine)
    assert form is not None, "the generator does not take the body"
    for arg, operand in zip(kernel.body.args, kernel.operands):
        if arg in form.maps:
            rows, cols = form.maps[arg]
            for value in (arg, operand):
                set_layout(value, Blocked(machine.lanes, (rows + extra[0], cols + extra[1])))
    if not form.plain_results:
        for inner, result in zip(kernel.terminator.operands, kernel.results):
            for value in (inner, result):
                set_layout(value, Blocked(machine.lanes, out))
    kernel.attributes["alg"] = StringAttr(generator.alg)
    kernel.attributes["lanes"] = ParamAttr(machine.lanes)
    plan = generator.plan(kernel, form, machine)
    kernel.attributes.update(plan.choices)
    for number, layout in plan.weights.items():
        for value in (kernel.body.args[number], kernel.operands[number]):
            set_layout(value, layout)
    return planned(generator, kernel, machine)


def check_blocked(
    generator: BlockedGenerator,
    operands: Mapping[str, str],
    body: str,
    *,
    choices: Mapping[str, Attribute] | None = None,
    extra: Halo = (0, 0),
    out: Halo = (0, 0),
    machine: ProcessorModel = ProcessorModel(),
    tolerance: float = 2e-6,
    arrays: Sequence[np.ndarray] | None = None,
    seed: int = 0,
    aliases: Mapping[int, int] | None = None,
    expected: Sequence[np.ndarray] | None = None,
) -> KernelOp:
    """Build the kernel, run it with its grid split at random, and compare with the ops' references (or with `expected`): within
    `tolerance` of the largest value, NaN where NaN is; halos and unused lanes must be 0. `aliases` are results that take the memory of an operand. Operands are standard normal,
    divided by the root of the length of a sum."""
    kernel = kernel_of(operands, body)
    kernel.attributes.update(choices or {})
    plan = lay_out(kernel, generator, machine, extra, out)
    kernel.verify()
    random = np.random.default_rng(seed)
    if arrays is None:
        arrays = [_normal(random, spec_of(v.type).dims) for v in kernel.operands]
    launches = plan.build(kernel, "kernel", aliases := dict(aliases or {}))
    module = verified(ModuleOp([launch.function for launch in launches]))
    native = compile_module(module, verify=True)
    inputs = [_placed(to_memory(v.type, a)) for v, a in zip(kernel.operands, arrays)]
    before = [m.copy() for m in inputs]
    results = [_placed(np.full(byte_size(v.type), 0xFF, np.uint8)) for v in kernel.results]
    scratch = aligned(max(plan.scratch_bytes, 64) + 128)
    shared = plan.workspace_bytes
    workspace = aligned(shared + 128)
    workspace[:] = 0xFF
    for launch in launches:
        function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(launch.args))(
            native.kernel_address(launch.function.sym_name.data)
        )
        pointers = []
        for argument in launch.args:
            memory = {"operand": inputs, "result": results}.get(argument.kind)
            near = workspace if argument.kind == "workspace" else scratch
            pointers.append(memory[argument.number].ctypes.data if memory else near.ctypes.data + 64 + argument.number)
        cuts = sorted({0, launch.grid, *random.integers(0, launch.grid + 1, 3).tolist()})
        parts = list(pairwise(cuts))
        for i in random.permutation(len(parts)):
            scratch[:] = 0xFF
            function(*parts[i], *pointers)
            size = max(plan.scratch_bytes, 64)
            assert (scratch[:64] == 0xFF).all() and (scratch[64 + size :] == 0xFF).all(), "it writes beside its scratch"
            assert (workspace[:64] == 0xFF).all() and (workspace[64 + shared :] == 0xFF).all(), "beside its workspace"
    for result, operand in aliases.items():
        results[result] = inputs[operand]
    for number, (memory, old) in enumerate(zip(inputs, before)):
        assert number in aliases.values() or (memory == old).all(), "it writes to an operand"
    env = dict(zip(kernel.body.args, arrays))
    for op in kernel.ops:
        env.update(zip(op.results, op.evaluate([env[v] for v in op.operands])))
    wanted = [env[v] for v in kernel.terminator.operands] if expected is None else expected
    for want, result, memory in zip(wanted, kernel.results, results):
        got = from_memory(result.type, memory)
        assert (np.isnan(got) == np.isnan(want)).all(), "NaN is not where it should be"
        beyond = np.isnan(want) | (np.isinf(want) & (got == want))
        got, want = (np.where(beyond, 0, a) for a in (got, want))
        scale = max(np.abs(want).max(), 1e-30)
        error = np.abs(got.astype(np.float64) - want).max() / scale
        assert error <= tolerance, f"off by {error:.2e} of the largest value, {launches[0].function}"
        rest = from_memory(result.type, memory)
        assert (to_memory(result.type, rest) == memory).all(), (
            f"halo or unused lanes of {layout_of(result.type)} are not 0"
        )
    return kernel


def _normal(random: np.random.Generator, dims: Sequence[int]) -> np.ndarray:
    fan = int(np.prod(dims[1:])) if len(dims) == 4 else 1
    weights = len(dims) == 4 and dims[0] != 1
    return (random.standard_normal(dims) / (fan**0.5 if weights else 1)).astype(np.float32)


def _placed(memory: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 64 bytes, between pages that cannot be accessed."""
    copy = guarded(memory.nbytes)
    copy[...] = memory
    return copy
