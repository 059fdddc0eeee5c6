"""Every op of the dialect on every sample: text round trip, definition (evaluated in NumPy), generated code in the level-4
interpreter, natively, and as PTX in its interpreter; each against the op's own reference, and the references against ONNX elsewhere."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda_runs import Regions
from kernels import agree, op_of
from machine_code import machine
from sampling import draw
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.expressions import bind_op
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.constraints import ConstraintError, check_op
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.arrays import aligned
from lightnet.runtime.dtypes import BY_NAME, BY_NP, BY_TL
from lightnet_trust.interpreter.notation import evaluate_definition

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}
CASES = [(name, i) for name, cls in sorted(OPS.items()) for i in range(len(cls.samples()))]
#: Whose loops LLVM's optimizer always works on: the first of each third op; a date draws from all others.
OPTIMIZED = {(name, 0) for name in sorted(OPS)[::3]}
#: Ops that compute nothing in a kernel: sources and host calls.
NO_SAMPLES = {"create", "input", "param", "constant", "print", "fprint"}
#: Ops whose result may be of a type that is only stored in.
STORES = {"create", "input", "param", "constant", "bitcast"}


def test_types_that_are_only_stored_in_are_those_of_sources_and_bits() -> None:
    """The parameter `dtype` of every op is a type that TensorLight has a name for. One that no op computes in (float8, float4) is
    what only the contents of a tensor have, and its bits."""
    stored = {name for name, d in BY_TL.items() if d.is_stored}
    found = {
        optype: set(p.choices)
        for optype, cls in optypes().items()
        if (p := cls.schema.by_name.get("dtype")) is not None
    }
    for optype, choices in found.items():
        expected = set(BY_TL) if optype in STORES else set(BY_TL) - stored
        assert choices == expected, optype
    assert stored and STORES < found.keys()


def test_every_op_has_samples():
    assert set(optypes()) - set(OPS) == NO_SAMPLES


#: Operands by the least number of dimensions that they may have, and by the only one; of all others, any number will do.
RANK_FROM = {
    1: """argmax.src argmin.src cumprod.src cumsum.src gather_nd.src gather_nd.index interpolate.src l2norm.src
        layernorm.src log_softmax.src rmsnorm.src scatter.src scatter_elements.src scatter_nd.src scatter_nd.index
        softmax.src take.src take_along.src topk.src topk_of.src""",
    2: "grid_sample.grid lrn.src matmul.a matmul.b matmul_integer.a matmul_integer.b matmul_short.a matmul_short.b reverse_sequence.src trilu.src",
    3: "avgpool.src conv.src conv.weight deconv.src deconv.weight grid_sample.src maxpool.src maxpool_index.src",
}
RANK_OF = {
    0: """non_max_suppression.least non_max_suppression.limit non_max_suppression.most non_max_suppression.overlap
        topk_of.limit unique.limit""",
    1: """batchnorm.mean batchnorm.offset batchnorm.scale batchnorm.var conv.bias conv2d.bias deconv.bias deconv2d.bias
        gru.bias gru.lens lstm.lens lstm.peephole pick1d.src pick1d.src_index rearange.src reverse_sequence.lens
        rnn.lens roi_align.batch roi_pool.batch sort1d.src_key sort1d_by_key.src_key sort1d_by_key.src_val
        tree_step.feature""",
    2: """detect_yolov3.anchors gru.h0 gru.weight interpolate.index interpolate.weight lstm.c0 lstm.h0 lstm.weight
        nms.group nms.valid rnn.h0 rnn.weight roi_align.rois roi_pool.rois tree_step.node tree_step.x unique.src""",
    3: """gru.gates lstm.gates nms.boxes non_max_suppression.boxes non_max_suppression.scores rnn.gates submean.src""",
    4: """avgpool2d.src batchnorm.src conv2d.src conv2d.weight conv2d_integer.src conv2d_integer.weight conv2d_short.src conv2d_short.weight deconv2d.src deconv2d.weight detect_yolov3.feature
        maxpool2d.src roi_align.src roi_pool.src""",
    5: "transform_bboxSQD.src_anchor transform_bboxSQD.src_delta",
}


def test_every_operand_takes_the_ranks_of_the_table_and_no_others():
    """A scalar, too, where the table says nothing of it."""
    most = 6
    expected = {name: set(range(least, most + 1)) for least, names in RANK_FROM.items() for name in names.split()}
    expected |= {name: {rank} for rank, names in RANK_OF.items() for name in names.split()}
    met = set()
    for optype, cls in optypes().items():
        fields = cls.schema.operands
        ranks = [field.min_rank if field.rank is None else field.rank for field in fields]
        types = [BY_NAME[field.dtypes[0] if field.dtypes else "f32"] for field in fields]
        for i, field in enumerate(fields):
            met.add(name := f"{optype}.{field.name}")
            taken = set()
            for rank in range(most + 1):
                tried = [rank if k == i else other for k, other in enumerate(ranks)]
                try:
                    check_op(cls, [TensorSpec((2,) * n, dtype) for n, dtype in zip(tried, types)], {})
                except ConstraintError as e:
                    if e.label == f"{name}.rank":
                        continue
                taken.add(rank)
            assert taken == expected.get(name, set(range(most + 1))), name
    assert met >= expected.keys()


def along(op) -> int:
    return op.operand_specs[0].dims[op.axis]


#: The least and the largest number that an operand of numbers of elements may mean, by op and operand.
MEANT = {
    ("gather_nd", "index"): lambda op: (-max(op.index_limits()), max(op.index_limits()) - 1),
    ("scatter_nd", "index"): lambda op: (-max(op.index_limits()), max(op.index_limits()) - 1),
    **{(name, "index"): lambda op: (-along(op), along(op) - 1) for name in ("take", "take_along", "scatter_elements")},
    ("interpolate", "index"): lambda op: (0, along(op) - 1),
    ("pick1d", "src_index"): lambda op: (0, op.operand_specs[0].dims[0] // op.stride - 1),
    ("reverse_sequence", "lens"): lambda op: (0, op.operand_specs[0].dims[op.time_axis]),
    **{(name, "lens"): lambda op: (0, op.sizes[0]) for name in ("lstm", "gru", "rnn")},
    ("roi_align", "batch"): lambda op: (-1, op.operand_specs[0].dims[0] - 1),
    ("roi_pool", "batch"): lambda op: (0, op.operand_specs[0].dims[0] - 1),
}
#: Ops whose operands are whole numbers of any type: those that compare, or count what is equal.
WHOLE = {"nms", "unique"}


def test_data_of_samples_reach_what_operands_may_mean():
    """Numbers of elements and of steps reach from the least to the most that they may be, and no further; floats have fractions."""
    for (name, operand), meant in MEANT.items():
        made = [op_of(OPS[name], OPS[name].samples()[0], seed) for seed in range(40)]
        op = made[0][0]
        drawn = [arrays[op.arg_names()[0].index(operand)] for _, arrays in made]
        assert (min(a.min() for a in drawn), max(a.max() for a in drawn)) == meant(op), (name, operand)
    for name, cls in OPS.items():
        op, arrays = op_of(cls, cls.samples()[0], 0)
        for field, array in zip(cls.schema.operand_fields(len(arrays)), arrays, strict=True):
            if array.dtype.kind == "f" and array.size >= 8 and name not in WHOLE:
                assert (array != np.round(array)).any(), (name, field.name)


def references(op, arrays) -> list[np.ndarray]:
    return op.evaluate(arrays)


@pytest.mark.parametrize("name, index", CASES)
def test_definition_agrees_with_the_reference(name, index):
    """The reference has the types that are inferred, and the definition, where there is one, its results."""
    op, arrays = op_of(OPS[name], OPS[name].samples()[index], index)
    wants = references(op, arrays)
    for want, spec in zip(wants, op.result_specs, strict=True):
        assert want.shape == spec.dims and want.dtype == spec.dtype.np
    if op.definition is None:
        assert op.has_builder
        return
    names, results = op.arg_names()
    got = evaluate_definition(bind_op(op), dict(zip(names, arrays)))
    for result, want in zip(results, wants, strict=True):
        agree(got[result], want, 1e-5)


@pytest.mark.sampled(every=5, by="name")
@pytest.mark.parametrize("name, index", CASES)
def test_loops_agree_with_the_reference(name, index):
    op, arrays = op_of(OPS[name], OPS[name].samples()[index], index)
    kernel = CpuKernelOp.wrap([op])
    got = run_kernel(kernel, arrays, machine(f"{name} {index}", always=(name, index) in OPTIMIZED))
    for array, want in zip(got, references(op, arrays), strict=True):
        agree(array, want, 1e-5)


def run_kernel(kernel, arrays, target: CodeMachine | None = None) -> list[np.ndarray]:
    """All launches of a kernel region, natively: on `target`, or with the optimizer where the date draws the kernel."""
    target = target or machine(str(kernel))
    launches = SELECTION.generate(kernel, "k", {})
    specs = kernel.ops[-1].result_specs
    memory = {("operand", i): aligned(a.nbytes) for i, a in enumerate(arrays)}
    for i, a in enumerate(arrays):
        memory["operand", i][:] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    memory |= {("result", i): aligned(s.nbytes) for i, s in enumerate(specs)}
    workspace = aligned(SELECTION.workspace_bytes(kernel))
    for launch in launches:
        run_launch(launch, memory, workspace, target)
    return [memory["result", i].view(s.dtype.np).reshape(s.dims) for i, s in enumerate(specs)]


def run_launch(launch, memory, workspace, target: CodeMachine) -> None:
    native = compile_module(ModuleOp([launch.function]), machine=target, verify=True)
    pointers = [
        workspace.ctypes.data + a.number if a.kind == "workspace" else memory[a.kind, a.number].ctypes.data
        for a in launch.args
    ]
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
    call(native.kernel_address(launch.function.sym_name.data))(0, launch.grid, *pointers)


#: Elements from which on an op that is one thread takes seconds in the PTX interpreter.
MANY = 500


def on_cuda(name: str, long: bool) -> None:
    """The samples of an op, in one PTX module, in the interpreter: races, bounds and what was never written are errors there."""
    cases = [op_of(OPS[name], sample, i) for i, sample in enumerate(OPS[name].samples())]
    cases = [(op, arrays) for op, arrays in cases if (op.has_builder and sum(a.size for a in arrays) >= MANY) == long]
    cases = draw(cases, f"cuda {name}", every=7)
    regions = Regions([CudaKernelOp.wrap([op]) for op, _ in cases])
    for k, (op, arrays) in enumerate(cases):
        for got, want in zip(regions.run(k, arrays), references(op, arrays), strict=True):
            agree(got, want, 1e-5)


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_cuda_agrees_with_the_reference(name):
    on_cuda(name, long=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name, cls in OPS.items() if cls.has_builder))
def test_long_builders_agree_on_cuda(name):
    on_cuda(name, long=True)


def _few(value: int, dtype: str, n: int = 300) -> np.ndarray:
    return np.where(np.arange(n) < abs(value), np.sign(value), 0).astype(dtype)[None]


@pytest.mark.parametrize(
    "name, params, arrays, want",
    [
        # The number of terms is larger than the type holds.
        ("reduce_mean", {"axes": (1,)}, [_few(127, "int8")], [[0]]),
        ("reduce_mean", {"axes": (1,)}, [_few(-128, "int8", 128)], [[-1]]),
        ("reduce_mean", {"axes": (1,)}, [_few(255, "uint8")], [[0]]),
        # A length beyond the end, and one below 0.
        (
            "reverse_sequence",
            {},
            [np.arange(6, dtype=np.int16).reshape(3, 2), np.array([9, -2])],
            [[4, 1], [2, 3], [0, 5]],
        ),
        # Shifts by nothing, by one, and by the width.
        (
            "shift_right",
            {},
            [np.full(3, 2**64 - 1, np.uint64), np.array([0, 1, 64], np.uint64)],
            [2**64 - 1, 2**63 - 1, 0],
        ),
    ],
)
def test_corners_that_samples_do_not_reach(name, params, arrays, want):
    """In the reference, the definition and machine code; ONNX Runtime agrees (test_onnx_export.py has these ops)."""
    block = Block(arg_types=[tensor_type(TensorSpec(a.shape, BY_NP[a.dtype])) for a in arrays])
    op = OPS[name].make(list(block.args), params, name=name)
    block.add_op(op)
    names, (result,) = op.arg_names()
    for got in (op.evaluate(arrays)[0], evaluate_definition(bind_op(op), dict(zip(names, arrays)))[result],
                run_kernel(CpuKernelOp.wrap([op]), arrays)[0]):  # fmt: skip
        np.testing.assert_array_equal(got, np.asarray(want, got.dtype))
