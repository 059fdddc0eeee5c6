"""Products whose extents a call decides against NumPy: compiled once, run on shapes that tiles like least, alone, with an epilogue, in place, and in a
network."""

from __future__ import annotations

import ctypes

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from test_tiled import fused
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

import lightnet
from lightnet.backends.cpu import open_gemm
from lightnet.backends.cpu.plain import LOOPS, OPEN_PRODUCTS, accepts
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.cpu.strips import Strips
from lightnet.backends.llvm.jit import compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.launch import kernel_symbols
from lightnet.dialects.ln.arith import Add, Div
from lightnet.dialects.ln.elementwise import Lrelu, Relu
from lightnet.dialects.ln.matmul import Matmul
from lightnet.ir.body import Body, choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp, ln_op, operand, result
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.runtime.dims import Size, at, symbol
from lightnet.runtime.dtypes import BY_NAME
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram

M, K, N, B = symbol("m", 1, 256), symbol("k", 1, 256), symbol("n", 1, 256), symbol("b", 1, 4)
EXTENTS = (1, 2, 7, 8, 31, 64, 65, 200)
Dims = tuple[Size, ...]


def product(a: Dims, b: Dims, dtype: str = "f32") -> Matmul:
    block = Block(arg_types=[tensor_type(TensorSpec(d, BY_NAME[dtype])) for d in (a, b)])
    return Matmul.make(list(block.args))


def extra(dims: Dims, dtype: str = "f32"):
    return Block(arg_types=[tensor_type(TensorSpec(dims, BY_NAME[dtype]))]).args[0]


def kernel_of(ops, operands) -> CpuKernelOp:
    """One kernel of all ops on these operands, which yields the last result alone."""
    body = fused(ops, operands).regions[0].detach_block(0)
    final = body.last_op.operands[0]
    body.last_op.detach()
    return CpuKernelOp.around(body, operands, [final])


class Run:
    """A kernel as its plan for a machine builds it. A call on arrays fills guarded memory, runs all blocks, in machine code or in the interpreter, and
    looks at the guards."""

    def __init__(
        self,
        kernel: CpuKernelOp,
        features: str = "avx512",
        aliases=None,
        interpreted: bool = False,
        generator=OPEN_PRODUCTS,
    ):
        plan = SELECTION.choose(kernel, SELECTION.machine_of(features), exact=True).plan
        assert plan.generator is generator
        (self.launch,) = plan.build(kernel, "k", aliases or {})
        self.kernel, self.aliases, self.scratch = kernel, aliases or {}, plan.scratch_bytes
        module = ModuleOp([self.launch.function])
        self.code = LoopProgram(module) if interpreted else compile_module(module, verify=True)

    def __call__(self, arrays, call, blocks=None):
        memory = {("operand", i): guarded(a.nbytes) for i, a in enumerate(arrays)}
        for i, a in enumerate(arrays):
            memory["operand", i][1][...] = a.reshape(-1).view(np.uint8)
        made = [result_of(r, call) for r in self.kernel.results]
        for i, spec in enumerate(made):
            alias = self.aliases.get(i)
            memory["result", i] = guarded(spec.nbytes) if alias is None else memory["operand", alias]
        memory["scratch", 0] = guarded(at(self.scratch, call))
        parts = [memory[a.kind, a.number][1] for a in self.launch.args]
        numbers = [call[name] for name in kernel_symbols(self.launch.function)]
        grid = at(self.launch.grid, call)
        if isinstance(self.code, LoopProgram):
            types = [a.type for a in self.launch.function.body.block.args[2 + len(numbers) :]]
            views = [p.view(memory_dtype(t)) for p, t in zip(parts, types)]
            self.code.launch("k", range(grid), [*numbers, *views])
        else:
            run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * (2 + len(numbers)), *[ctypes.c_void_p] * len(parts))
            entry = run(self.code.kernel_address("k"))
            for low, high in blocks or [(0, grid)]:
                entry(low, min(high, grid), *numbers, *(p.ctypes.data for p in parts))
        for buffer, view in memory.values():
            start = view.ctypes.data - buffer.ctypes.data
            assert (buffer[:start] == 0xA5).all() and (buffer[start + view.nbytes :] == 0xA5).all(), "out of bounds"
        return [memory["result", i][1].view(s.dtype.np).reshape(s.dims).copy() for i, s in enumerate(made)]


def result_of(value, call) -> TensorSpec:
    spec = spec_of(value.type)
    return TensorSpec(tuple(at(d, call) for d in spec.dims), spec.dtype)


def guarded(nbytes: int):
    buffer = np.full(nbytes + 256, 0xA5, np.uint8)
    start = 64 + (-buffer.ctypes.data % 64)
    return buffer, buffer[start : start + nbytes]


def calls(dims, count: int, seed: str):
    """Values of the symbols of some dims: each symbol has each of the extents in one of the calls."""
    names = sorted({s.name for d in dims if not isinstance(d, int) for s in d.symbols})
    random = np.random.default_rng(list(seed.encode()))
    orders = {n: random.permutation([1, 2, 3, 4] if n == "b" else EXTENTS) for n in names}
    for i in range(count):
        yield {n: int(order[i % len(order)]) for n, order in orders.items()}


def drawn(random, dims, call, dtype="f32"):
    return random.standard_normal([at(d, call) for d in dims]).astype(BY_NAME[dtype].np)


def agree(got, want, most: float = 1e-5) -> None:
    assert got.shape == want.shape
    assert not want.size or np.abs(got - want).max() <= most * max(1.0, np.abs(want).max())


MATRICES = [
    (M, K, N), (M, 64, N), (M, K, 64), (64, K, N), (1, K, N), (2, K, 33), (M, 1, N), (M, K, 2), (7, K, 64), (1, 64, N), (200, K, 200),
]  # fmt: skip
BATCHES = [((), ()), ((B, 3), (B, 3)), ((B, 1), (1, 3)), ((B, 3), ()), ((), (B,)), ((2, 1, B), (3, 1))]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("matrix", MATRICES, ids=str)
@pytest.mark.parametrize("features", ["avx512", "avx2"])
def test_products(matrix, batch, features):
    m, k, n = matrix
    a, b = (*batch[0], m, k), (*batch[1], k, n)
    run, random = Run(CpuKernelOp.wrap([product(a, b)]), features), np.random.default_rng(0)
    for call in calls((*a, *b), 4 if len(batch[0]) > 2 else len(EXTENTS), f"{matrix} {batch}"):
        x, y = drawn(random, a, call), drawn(random, b, call)
        agree(run([x, y], call)[0], np.matmul(x.astype(np.float64), y))


def test_doubles():
    run, random = Run(CpuKernelOp.wrap([product((M, K), (K, N), "f64")])), np.random.default_rng(0)
    for call in calls((M, K, N), len(EXTENTS), "doubles"):
        x, y = (drawn(random, d, call, "f64") for d in ((M, K), (K, N)))
        agree(run([x, y], call)[0], x @ y, 1e-12)


def test_blocks_share_the_work():
    """Each block by itself, in any order: what threads do."""
    a, b = (B, 3, M, 64), (B, 3, 64, N)
    run, call, random = Run(CpuKernelOp.wrap([product(a, b)])), {"b": 2, "m": 31, "n": 65}, np.random.default_rng(0)
    x, y = drawn(random, a, call), drawn(random, b, call)
    grid = at(run.launch.grid, call)
    assert grid == 6 * 3
    (got,) = run([x, y], call, [(k, k + 1) for k in reversed(range(grid))])
    assert np.array_equal(got, run([x, y], call)[0])
    agree(got, x.astype(np.float64) @ y)


@pytest.mark.parametrize("matrix", [(M, K, N), (M, 64, N), (2, K, 33), (M, K, 64)], ids=str)
def test_the_interpreter_agrees(matrix):
    """It checks each index, and rounds twice where the machine multiplies and adds in one step."""
    m, k, n = matrix
    kernel, random = CpuKernelOp.wrap([product((m, k), (k, n))]), np.random.default_rng(0)
    native, slow = Run(kernel), Run(kernel, interpreted=True)
    for sizes in ((1, 3, 1), (9, 6, 35), (8, 65, 32), (17, 64, 16)):
        call = dict(zip("mkn", sizes))
        x, y = drawn(random, (m, k), call), drawn(random, (k, n), call)
        agree(slow([x, y], call)[0], native([x, y], call)[0])


def test_a_panel_is_copied_where_tiles_share_it():
    """And neither where it is small nor where few rows read it."""

    def scratch(m: Size, k: Size, n: Size) -> Size:
        return open_gemm.workspace_bytes(CpuKernelOp.wrap([product((m, k), (k, n))]), 16)

    large = symbol("n", 1, 1024)
    assert scratch(large, 256, large) == 256 * 32 * 4
    assert scratch(large, symbol("k", 1, 1024), large) == symbol("k", 1, 1024) * 32 * 4
    assert scratch(large, 16, symbol("s", 1, 64)) == scratch(1, 256, large) == 0
    assert scratch(large, symbol("k", 1, 1 << 20), large) == 0  # more than a thread should have


#: (a, b, what is added to the product): of a head, of a row of it, as large as the result, along columns.
EPILOGUES = [
    ((B, 3, M, 64), (B, 3, 64, N), (B, 1, 1, N)),
    ((B, 3, M, 64), (B, 3, 64, N), (B, 1, M, N)),
    ((B, 3, M, 64), (B, 3, 64, N), (B, 3, M, 1)),
    ((B, 3, M, 64), (B, 3, 64, N), (3, 1, 1)),
    ((B, 3, M, K), (K, N), (N,)),
    ((B, 3, M, K), (K, N), (B, 3, M, N)),
    ((M, K), (K, 40), (M, 40)),
]


@pytest.mark.parametrize("a, b, c", EPILOGUES, ids=str)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("features", ["avx512", "avx2"])
def test_epilogues(a, b, c, in_place, features):
    """A quotient by a scalar, a smaller tensor, an activation, and a tensor of the result's shape, perhaps in place of the latter."""
    op = product(a, b)
    dims = op.result_specs[0].dims
    scale, mask, residual = extra(()), extra(c), extra(dims)
    scaled = Div.make([op.dst, scale])
    added = Add.make([scaled.dst, mask])
    activated = Lrelu.make([added.dst], {"negslope": 0.1})
    total = Add.make([residual, activated.dst])
    ops = [op, scaled, added, activated, total]
    assert accepts(Body(tuple(ops), (total.dst,))) == "anchor"
    run = Run(kernel_of(ops, [*op.operands, scale, mask, residual]), features, {0: 4} if in_place else {})
    random = np.random.default_rng(0)
    for call in calls((*a, *b), len(EXTENTS), f"{a} {b} {c}"):
        x, y, z, r = (drawn(random, d, call) for d in (a, b, c, dims))
        (got,) = run([x, y, np.array([8], np.float32), z, r], call)
        want = np.matmul(x.astype(np.float64), y) / 8 + z
        agree(got, np.where(want < 0, want * 0.1, want) + r)


def test_what_an_epilogue_cannot_be():
    """Where a batch counts as rows, a value for each matrix of it; and what is read across rows."""

    @ln_op
    class AcrossRows(LnOp):
        optype = "test_across_rows"
        src = operand(rank=2)
        by = operand(rank=3)
        dst = result()
        definition = "dst[m, n] = src[m, n] * by[n, m, 0]"

    op = product((B, M, K), (K, N))
    assert accepts(Body((op, one := Add.make([op.dst, extra((N,))])), (one.dst,))) == "anchor"
    assert not accepts(Body((op, one := Add.make([op.dst, extra((B, 1, 1))])), (one.dst,)))
    op = product((M, K), (K, N))
    across = AcrossRows.make([op.dst, extra((N, M, 1))])
    assert open_gemm.accepts([op]) and not open_gemm.accepts([op, across])


def test_what_is_left_to_others():
    """Rows to the static generators in strips, column vectors and integers to loops; a static product never comes here."""

    def taken(op: Matmul):
        return type(SELECTION.choose(CpuKernelOp.wrap([op]), SELECTION.machine_of("avx512"), True).plan.generator)

    assert taken(product((M, 64), (64, 32))) is Strips
    assert taken(product((M, K), (K, N))) is type(OPEN_PRODUCTS)
    assert taken(product((M, K), (K, 1))) is type(LOOPS)
    assert taken(product((M, K), (K, N), "i32")) is type(LOOPS)
    assert not open_gemm.accepts([product((5, 6), (6, 7))]) and not open_gemm.accepts([Relu.make([extra((M, N))])])
    assert not open_gemm.accepts([])


def attention() -> bytes:
    """Attention with a mask: batch and length are open."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Mul", ["s", "by"], ["t"]),
        node("Add", ["t", "mask"], ["u"]),
        node("Softmax", ["u"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {
        "q": ["b", 2, "l", 16],
        "k": ["b", 2, 16, "l"],
        "v": ["b", 2, "l", 16],
        "mask": ["b", 1, 1, "l"],
        "y": ["b", 2, "l", 16],
    }
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in shapes.items()}
    by = helper.make_tensor("by", TensorProto.FLOAT, [], [0.25])
    graph = helper.make_graph(nodes, "g", [v for n, v in infos.items() if n != "y"], [infos["y"]], [by])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_in_a_network(threads):
    data = attention()
    onnx.checker.check_model(onnx.load_from_string(data))
    executable = lightnet.compile(lightnet.loads(data, ".onnx", dims={"b": (1, 4), "l": (1, 256)}), threads=threads)
    kernels = [k for k in executable.planned.walk() if isinstance(k, KernelOp)]
    algs = {tuple(op.optype for op in k.ops): choice(k, "alg") for k in kernels}
    assert algs["matmul", "mul", "add"] == algs["matmul",] == "direct"
    peer = onnxruntime.InferenceSession(data)
    for b, l in ((1, 1), (3, 7), (2, 65), (4, 200), (1, 256), (2, 31)):
        random = np.random.default_rng(l)
        dims = {"q": (b, 2, l, 16), "k": (b, 2, 16, l), "v": (b, 2, l, 16), "mask": (b, 1, 1, l)}
        feeds = {n: random.standard_normal(d).astype(np.float32) for n, d in dims.items()}
        (found,), (wanted,) = executable(feeds).values(), peer.run(None, feeds)
        agree(found, wanted)
