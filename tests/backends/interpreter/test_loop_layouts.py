"""Where elements lie, as layouts tell loops: `Layout.subscripts` against `pack`, and every op's definition on tensors in any layouts,
against its reference, on the CPU and on cuda: in any split of the grid, on poisoned memory, halos and unused lanes looked at."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from cuda_maps import Maps
from executing import feeds_of, run_graph
from guarded import guarded
from kernel_cases import random_pieces
from kernels import agree, op_of
from machine_code import machine
from sampling import draw
from xdsl.dialects.builtin import ModuleOp, StringAttr

import lightnet
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.llvm.jit import compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.move import Forward
from lightnet.frontends import mlir
from lightnet.ir.arrays import from_memory, to_memory
from lightnet.ir.bound import I64, Apply, Const, Node
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, byte_size, layout_of
from lightnet.ir.types import spec_of
from lightnet.passes.layout import follow, set_layout
from lightnet.runtime.arrays import align_up

#: Blocks that divide no number of channels, that are longer, and of one; halos of one side; the weights of others.
MAPS = ("c4", "c16", "c3h1", "c8h2x1", "c5h0x1", "h1x2", "nhwc1", "nhwc4")
OPS = {name: cls for name, cls in optypes().items() if cls.samples() and cls.definition is not None}

LAYOUTS = [
    ("plain", (2, 3)), ("c4h1x2", (2, 6, 3, 4)), ("c16", (1, 5, 2, 2)), ("h2", (1, 3, 2, 2)), ("nhwc4", (2, 5, 3, 2)),
    ("o4i3", (6, 5, 3, 2)), ("t4i3", (6, 5, 3, 2)), ("o4", (6, 5, 3, 2)), ("d4", (6, 1, 3, 2)), ("n4", (3, 6)), ("v4", (6, 1, 1)),
    ("s2x3nhwc4", (5, 6, 3, 4)),
]  # fmt: skip


def number(node: Node) -> int:
    """The value of a subscript without indices."""
    match node:
        case Const(value=value):
            return int(value)
        case Apply(fn=fn, args=(a, b)):
            x, y = number(a), number(b)
            return {"add": x + y, "sub": x - y, "floordiv": x // (y or 1), "mod": x % (y or 1)}[fn]
    raise TypeError(node)


@pytest.mark.parametrize("token, dims", LAYOUTS)
def test_subscripts_say_where_pack_puts_an_element(token, dims):
    layout = Layout.parse(token)
    array = np.arange(1, np.prod(dims) + 1).reshape(dims)
    memory = layout.pack(array)
    for at in np.ndindex(*dims):
        assert memory[place(layout, at, dims)] == array[at]


@pytest.mark.parametrize("token, dims", LAYOUTS)
def test_gaps_are_what_memory_has_beside_the_elements(token, dims):
    layout = Layout.parse(token)
    seen = np.zeros(layout.physical_dims(dims), int)
    boxes = [tuple((0, n) for n in dims), *layout.gaps(dims)]
    for box in boxes:
        for at in np.ndindex(*(high - low for low, high in box)):
            seen[place(layout, [i + low for i, (low, _) in zip(at, box)], dims)] += 1
    assert (seen == 1).all()


def place(layout: Layout, at: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    found = tuple(map(number, layout.subscripts([Const(int(i), I64) for i in at], dims)))
    assert min(found) >= 0
    return found


@pytest.mark.parametrize("token, dims", LAYOUTS[1:])
def test_loops_write_all_memory_of_a_layout(token, dims):
    """Packed weights, too: what computes them leaves no garbage behind the last channel."""
    source = f"tensor<{'x'.join(map(str, dims))}xf32"
    text = f"""func.func @main(%x : {source}>) {{
      %y = cpu.kernel(%a = %x) choices {{alg = "loops"}} {{
        %0 = ln.forward %a : {source}, #ln.layout<"{token}">>
        ln.yield %0
      }}
      func.return
    }}"""
    module = mlir.read(text, "kernel.mlir", make_context())
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    launches = SELECTION.generate(kernel, "k", {})
    native = compile_module(ModuleOp([launch.function for launch in launches]), machine=machine(f"all of {token}"))
    array = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    (memory,) = run(kernel, native, launches, [array])
    assert (memory == to_memory(kernel.results[0].type, array)).all()


# -- every op


def scattered(kernel: KernelOp, random: np.random.Generator, maps: Sequence[str]) -> KernelOp:
    """The kernel with layouts drawn for whatever has four dims, one of them not plain."""
    values = [v for v in (*kernel.operands, *kernel.results) if spec_of(v.type).ndim == 4]
    for k in random.permutation(len(values)):
        if random.random() < 0.75:
            set_layout(values[k], Layout.parse(str(random.choice(maps))))
    if all(layout_of(v.type).is_plain for v in values):
        set_layout(values[0], Layout.parse(str(random.choice(maps))))
    follow(kernel)
    kernel.attributes["alg"] = StringAttr("loops")
    return kernel


def cases_of(name: str, kind: type[KernelOp], maps: Sequence[str], every: int) -> list[tuple[KernelOp, list, list]]:
    """(kernel in layouts, operands, references) of those samples of an op that have a tensor of four dims, as far as they are drawn."""
    cls, found = OPS[name], []
    for i, sample in enumerate(cls.samples()):
        op, _ = op_of(cls, sample, i)
        specs = [*op.operand_specs, *op.result_specs]
        if any(s.ndim == 4 for s in specs) and any(s.len for s in op.result_specs):
            found += [(i, sample, turn) for turn in range(2)]
    made = []
    for i, sample, turn in draw(found, f"layouts {kind.name} {name}", every=every):
        op, arrays = op_of(cls, sample, i)  # for each anew: layouts are put on what it reads
        random = np.random.default_rng(zlib.crc32(f"{name} {i} {turn}".encode()))
        made.append((scattered(kind.wrap([op]), random, maps), arrays, op.evaluate(arrays)))
    return made


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_a_definition_runs_on_any_layouts(name):
    cases = cases_of(name, CpuKernelOp, MAPS, every=6)
    launches = [SELECTION.generate(kernel, f"k{i}", {}) for i, (kernel, _, _) in enumerate(cases)]
    functions = [launch.function for made in launches for launch in made]
    if not functions:
        return
    native = compile_module(ModuleOp(functions), machine=machine(f"layouts {name}"), verify=True)
    for k, (kernel, arrays, wants) in enumerate(cases):
        for result, memory, want in zip(kernel.results, run(kernel, native, launches[k], arrays), wants, strict=True):
            agree(from_memory(result.type, memory), want, 1e-5)
            again = to_memory(result.type, from_memory(result.type, memory))
            assert (again == memory).all(), f"halo or unused lanes of {layout_of(result.type)} are not 0"


def run(kernel: KernelOp, native, launches, arrays: Sequence[np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """The memory of a kernel's results."""
    random = np.random.default_rng(seed)
    memory = {}
    for i, (operand, array) in enumerate(zip(kernel.operands, arrays, strict=True)):
        raw = to_memory(operand.type, array)
        memory["operand", i] = guarded(raw.nbytes)
        memory["operand", i][...] = raw
    for i, result in enumerate(kernel.results):
        memory["result", i] = guarded(byte_size(result.type))
        memory["result", i][...] = 0xFF
    workspace = guarded(max(64, SELECTION.workspace_bytes(kernel)))
    workspace[...] = 0xFF
    for launch in launches:
        pointers = [
            workspace.ctypes.data + a.number if a.kind == "workspace" else memory[a.kind, a.number].ctypes.data
            for a in launch.args
        ]
        call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
        for low, high in random_pieces(launch.grid, random):
            call(native.kernel_address(launch.function.sym_name.data))(low, high, *pointers)
    for i, (operand, array) in enumerate(zip(kernel.operands, arrays)):
        assert (memory["operand", i] == to_memory(operand.type, array)).all(), "wrote an operand"
    return [memory["result", i] for i in range(len(kernel.results))]


def tensor(dims: Sequence[int], element: str, token: str = "plain") -> str:
    """The type of a tensor in a layout."""
    layout = "" if token == "plain" else f', #ln.layout<"{token}">'
    return f"tensor<{'x'.join(map(str, dims))}x{element}{layout}>"


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize(
    "tokens",
    [("c16", "plain"), ("plain", "c4h1x2"), ("nhwc4", "c3h1"), ("c16", "c16"), ("plain", "plain"), ("c16",)], ids=str,
)  # fmt: skip
def test_a_value_and_its_position_lie_in_layouts_of_their_own(tokens, axis):
    """They are found together, and written where each lies: by way of a workspace, where they do not fit on the stack.
    What is asked for is what the functions reach. A position that nobody reads lies nowhere."""
    dims, count = (2, 65, 70, 66), len(tokens)
    kept = [1 if k == axis else n for k, n in enumerate(dims)]
    types = ", ".join(tensor(kept, element, token) for element, token in zip(("f32", "i32"), (*tokens, "plain")))
    text = f"""func.func @main(%x : {tensor(dims, "f32")}) {{
      %y:{count} = cpu.kernel(%a = %x) choices {{alg = "loops"}} {{
        %0, %1 = ln.maxreduce_arg %a {{axis = {axis}}} : {types}
        ln.yield {", ".join(f"%{k}" for k in range(count))}
      }}
      func.return
    }}"""
    module = mlir.read(text, "kernel.mlir", make_context())
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    launches = SELECTION.generate(kernel, "k", {})
    reached = [0]
    for launch in launches:
        for argument, type in zip(launch.args, launch.function.body.block.arg_types[2:], strict=True):
            if argument.kind == "workspace":
                reached.append(argument.number + prod(type.get_shape()) * type.element_type.size)
    assert SELECTION.workspace_bytes(kernel) == align_up(max(reached))
    native = compile_module(ModuleOp([launch.function for launch in launches]), verify=True)
    array = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    for result, memory, find in zip(kernel.results, run(kernel, native, launches, [array]), (np.max, np.argmax)):
        np.testing.assert_array_equal(from_memory(result.type, memory), find(array, axis, keepdims=True))


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_a_definition_runs_on_any_layouts_of_a_device(name):
    cases = cases_of(name, CudaKernelOp, MAPS, every=17)
    if not cases:
        return
    regions = Maps([kernel for kernel, _, _ in cases])
    for k, (_, arrays, wants) in enumerate(cases):
        for got, want in zip(regions.run(k, arrays), wants, strict=True):
            agree(got, want, 1e-5)


# -- networks


def between_convolutions(middle: str, dims: Sequence[int], height: int = 20) -> str:
    """A network whose ``%a`` and ``%m`` are what a convolution makes and what another one reads."""

    def t(*dims: int) -> str:
        return f"tensor<{'x'.join(map(str, dims))}xf32>"

    window = "{size = [3, 3], padding = [1, 1, 1, 1]}"
    return f"""func.func @main() -> {t(*dims)} {{
      %w = ln.param : {t(32, 32, 3, 3)} as ("w")
      %b = ln.param : {t(32)} as ("b")
      %x = ln.input : {t(1, 32, height, height)} as ("x")
      %a = ln.conv2d %x, %w, %b {window} : {t(1, 32, height, height)} as ("a")
      %m = {middle} : {t(*dims)} as ("m")
      %c = ln.conv2d %m, %w, %b {window} : {t(*dims)} as ("c")
      func.return %c : {t(*dims)}
    }}"""


#: What stands between convolutions and has no generator of its own, the dims of its result, and the changes of layout: those of the
#: input and of the output, and two more where channels are mixed, which is dear on maps.
BETWEEN = [
    ("ln.slice %a {axis = 2, start = 3, len = 11}", (1, 32, 11, 20), 2),
    ("ln.concat %a, %a {axis = 3}", (1, 32, 20, 40), 2),
    ("ln.transpose %a {axes = [0, 1, 3, 2]}", (1, 32, 20, 20), 2),
    ('ln.pad %a {before = [0, 0, 1, 1], after = [0, 0, 1, 2], mode = "reflect"}', (1, 32, 22, 23), 2),
    ("ln.reduce_max %a {axes = [2]}", (1, 32, 1, 20), 2),
    ("ln.softmax %a {axis = 3}", (1, 32, 20, 20), 2),
    ("ln.softmax %a {axis = 1}", (1, 32, 20, 20), 4),
]


@pytest.mark.parametrize("middle, dims, changes", BETWEEN)
def test_no_layout_changes_around_what_runs_along_lanes(middle, dims, changes):
    text = between_convolutions(middle, dims)
    module = mlir.read(text, "net.mlir", make_context())
    feeds = feeds_of(module)
    network = lightnet.compile(lightnet.loads(text, ".mlir"), features="avx512")
    forwards = [op for op in network.planned.walk() if isinstance(op, Forward) and isinstance(op.parent_op(), KernelOp)]
    assert len(forwards) == changes
    (want,) = run_graph(module, feeds)[0].values()
    (got,) = network(feeds).values()
    agree(got, want, 1e-4)
