"""The reference interpreter of levels 1 to 3: printing, feeding, outputs, and that a wrong plan shows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

from lightnet.backends.interpreter.arena import POISON, Arenas
from lightnet.backends.interpreter.graph import run
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.structure import planned_ops
from lightnet.frontends import json_ir
from lightnet.frontends.importer import to_module
from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.op import PLACES, name_of
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.passes.check_plan import check_plan
from lightnet.passes.plan import plan_module
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.initial import sample
from lightnet_trust.interpreter import loop_library

NETS = Path(__file__).parents[2] / "data" / "nets"

#: The three-op example of LightNet's documents: [[1 … 4] [5 … 8]] without its first column.
SLICED = "tensor2:\n[[2.000 3.000 4.000]\n [6.000 7.000 8.000]]\n"
EXAMPLE = """func.func @main() {
  %tensor1 = ln.create {data = [1, 2, 3, 4, 5, 6, 7, 8]} : tensor<2x4xf32> as "create1"("tensor1")
  %tensor2 = ln.slice %tensor1 {axis = 1, start = 1, len = 3} : tensor<2x3xf32> as "slice1"("tensor2")
  ln.print %tensor2 {msg = "tensor2:"} as "print1"
  func.return
}"""


def parse(text: str):
    return parse_mlir(make_context(), text, "test.mlir")


def compiled(module, passes: str):
    run_pipeline(make_context(), module, parse_pipeline(passes))
    return module


PIPELINES = ["", "plan", "plan{plan=upstream}", "bind,expand{target=cpu}", "bind,expand{target=cpu},plan",
             "bind,expand{target=cpu},combine,hoist,plan"]  # fmt: skip


@pytest.mark.parametrize("passes", PIPELINES)
def test_the_example_of_the_documents(passes: str) -> None:
    module = compiled(parse(EXAMPLE), passes) if passes else parse(EXAMPLE)
    out = io.StringIO()
    assert run(module, stream=out) == {}
    assert out.getvalue() == SLICED
    fed = io.StringIO()
    run(module, {"tensor1": np.zeros((2, 4), np.float32)}, stream=fed)
    assert fed.getvalue() == SLICED.translate(str.maketrans("2345678", "0000000")).replace("tensor0", "tensor2")


@pytest.mark.sampled(every=2, share=0.3)
@pytest.mark.optimized
@pytest.mark.parametrize("name", ["shufflenetv2", "shuffledet_dac_demo"])
def test_a_network_computes_the_same_on_every_level(name: str) -> None:
    """Test data by role, since with the file's own ranges everything saturates; upstream's plan clobbers outputs, so
    intermediate tensors are compared there."""
    text = json_ir.read_file(str(NETS / "il2json" / f"{name}.json"))
    module = to_module(text)
    feeds = {}
    for op in planned_ops(main_of(module).body.block):
        for use in (u for r in op.results for u in r.uses if not op.operands):
            reader = use.operation
            field = reader.schema.operand_fields(len(reader.operands))[use.index]
            tensor = op.tensor_names[0]
            spec = op.result_specs[0]
            feeds[tensor] = sample(tensor, field.kind, spec.dims, spec.dtype)
    expected: dict[str, np.ndarray] = {}
    outputs = run(module, feeds, values=expected)
    assert all(np.isfinite(a).all() and a.std() > 0 for a in outputs.values())
    for passes in ("plan", "bind,expand{target=cpu},plan"):
        module = to_module(text)
        found = run(compiled(module, passes), feeds)
        for key, array in outputs.items():
            np.testing.assert_array_equal(found[key], array)
    values: dict[str, np.ndarray] = {}
    run(compiled(to_module(text), "plan{plan=upstream}"), feeds, values=values)
    assert set(values) == set(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(values[key], array)


@pytest.mark.parametrize("optype", sorted(optypes()))
def test_every_op_runs_planned_in_a_kernel(optype: str) -> None:
    """One network for each op and case: inputs, the op in a kernel, its results returned."""
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp, ReturnOp
    from xdsl.ir import Block, Region

    from lightnet.dialects.cpu import CpuKernelOp

    cls = optypes()[optype]
    if cls.is_host or not cls.samples():
        pytest.skip("no kernel op")
    for case in cls.samples()[:4]:
        case = cls.schema.resolve(case)
        given = [case.tensors[o.name] for o in cls.schema.operands]
        types = [s for t in given for s in ([t] if isinstance(t, TensorSpec) else t)]
        names = cls.schema.operand_names(len(types))
        kinds = [o.kind for o in cls.schema.operand_fields(len(types))]
        block = Block()
        makers = [
            optypes()["input"].build_unchecked([], {"ran": (0, 0), "data": (0,), "from_file": False}, [s], tensors=[n])
            for n, s in zip(names, types)
        ]
        block.add_ops(makers)
        op = cls.make([m.results[0] for m in makers], case.params, name="op")
        kernel = CpuKernelOp.wrap([op])
        op.erase()
        block.add_op(kernel)
        block.add_op(ReturnOp(*kernel.results))
        module = ModuleOp([FuncOp("main", ((), list(kernel.result_types)), Region(block))])
        tensors = dict(zip(names, types))
        feeds = {n: cls.sample_data(n, kind, s, tensors, case.params, 0) for n, kind, s in zip(names, kinds, types)}
        expected = list(run(module, feeds).values())
        plan_module(module)
        check_plan(module)
        for found, array in zip(run(module, feeds).values(), expected, strict=True):
            np.testing.assert_array_equal(found, array)


# -- feeding and outputs


def test_feeds_are_checked() -> None:
    module = parse(EXAMPLE)
    for feed, message in [
        ({"tensor2": np.zeros((2, 3), np.float32)}, "no tensor that can be fed; there are: tensor1"),
        ({"tensor1": np.zeros((2, 3), np.float32)}, "is fed with shape"),
        ({"tensor1": np.zeros((2, 4), np.float64)}, "dtype float64"),
        ({"tensor1": [[1, 2], [3]]}, "cannot be fed"),
    ]:
        with pytest.raises(LightNetError, match=message):
            run(module, feed, stream=io.StringIO())
    out = io.StringIO()
    run(module, {"tensor1": [[1, 2, 3, 4], [5, 6, 7, 8]]}, stream=out)
    assert out.getvalue() == SLICED


@pytest.mark.parametrize("passes", PIPELINES)
def test_outputs_by_name(passes: str) -> None:
    module = compiled(parse(EXAMPLE), passes) if passes else parse(EXAMPLE)
    found = run(module, outputs=["tensor2", "tensor1"] if "hoist" not in passes else ["tensor2"], stream=io.StringIO())
    np.testing.assert_array_equal(found["tensor2"], [[2, 3, 4], [6, 7, 8]])
    with pytest.raises(LightNetError, match="is no tensor of the network"):
        run(module, outputs=["tensor3"], stream=io.StringIO())


def test_a_fed_param_reaches_once() -> None:
    module = parse("""func.func @main() -> tensor<2xf32> {
  %x = ln.input {data = [1, 1]} : tensor<2xf32> as "x"("x")
  %w = ln.once {
    %w0 = ln.param {data = [1, 2]} : tensor<2xf32> as "w"("w")
    %0 = ln.elew %w0, %w0 {elew_op = "TL_SUM"} : tensor<2xf32>
    ln.yield %0
  } : tensor<2xf32> as ("w2")
  %y = ln.elew %x, %w {elew_op = "TL_SUM"} : tensor<2xf32> as "y"("y")
  func.return %y : tensor<2xf32>
}""")
    for _ in range(2):
        np.testing.assert_array_equal(run(module)["y"], [3, 5])
        np.testing.assert_array_equal(run(module, {"w": np.array([2, 3], np.float32)})["y"], [5, 7])
        plan_module(module)


def test_fprint_is_confined(tmp_path: Path) -> None:
    text = EXAMPLE.replace("ln.print", "ln.fprint").replace('msg = "tensor2:"', 'msg = "tensor2:", file = "FILE"')
    run(parse(text.replace("FILE", "out.txt")), folder=str(tmp_path))
    assert (tmp_path / "out.txt").read_text() == SLICED
    with pytest.raises(LightNetError, match="may not write") as e:
        run(parse(text.replace("FILE", "../out.txt")), folder=str(tmp_path))
    assert e.value.loc is not None and e.value.loc.line == 4


# -- the arena


def test_arena_poisons() -> None:
    arenas = Arenas({"arena": 64})
    place, f32 = PlaceAttr("arena", 16), tensor_type(TensorSpec((4,), BY_NAME["f32"]))
    assert np.isnan(arenas.load(place, f32)).all()
    arenas.store(place, f32, np.arange(4, dtype=np.float32))
    arenas.poison(("arena", 16, 32), [("arena", 20, 24), ("arena", 0, 4)])
    np.testing.assert_array_equal(arenas.load(place, f32), [np.nan, 1, np.nan, np.nan])
    assert (arenas.spaces["arena"][:16] == POISON).all()
    with pytest.raises(LightNetError, match="outside"):
        arenas.load(PlaceAttr("arena", 52), f32)


WRONG = """module attributes {ln.memory = {arena = 192 : i64}} {
  func.func @main() -> tensor<16xf32> {
    %x = ln.input {ran = [-1, 1]} : tensor<16xf32> at arena+0 as "x"("x")
    %r = ln.relu %x : tensor<16xf32> at arena+64 as "r"("r")
    %s = ln.sigmoid %x : tensor<16xf32> at arena+128 as "s"("s")
    %e = ln.elew %r, %s {elew_op = "TL_SUM"} : tensor<16xf32> at arena+64 as "e"("e")
    func.return %e : tensor<16xf32>
  }
}"""


@pytest.mark.parametrize(
    ("name", "offset", "right"), [("s", 128, True), ("s", 96, False), ("e", 72, False), ("r", 0, False)]
)
def test_a_wrong_plan_gives_wrong_results(name: str, offset: int, right: bool) -> None:
    module = parse(WRONG)
    expected = run(parse(WRONG))["e"]
    op = next(o for o in planned_ops(main_of(module).body.block) if name_of(o) == name)
    op.attributes[PLACES] = ArrayAttr([PlaceAttr("arena", offset)])
    assert np.array_equal(run(module)["e"], expected) == right


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_bits_and_divisions_without_a_sign(dtype: type) -> None:
    """Of scalars and of arrays, against Python's integers; a division by zero is 0."""
    bits, info = 8 * np.dtype(dtype).itemsize, np.iinfo(dtype)
    values = np.array([0, 1, -1, 2, 3, 6, 8, 96, info.max, info.min, info.min + 1, -96], dtype)
    texts = [f"{int(v) & (1 << bits) - 1:0{bits}b}" for v in values]
    oracles = {"math.ctlz": [len(t) - len(t.lstrip("0")) for t in texts], "math.cttz": [len(t) - len(t.rstrip("0")) for t in texts],
               "math.ctpop": [t.count("1") for t in texts]}  # fmt: skip
    for name, want in oracles.items():
        found = loop_library.count_bits(name, values)
        assert found.dtype == dtype and found.tolist() == want, name
        assert [int(loop_library.count_bits(name, v)) for v in values] == want, name
    for b in (0, 1, 3, -1, 7):
        whole = [int(v) & (1 << bits) - 1 for v in values]
        by = b & (1 << bits) - 1
        want = [-(-v // by) if by else 0 for v in whole]
        found = loop_library.ceil_divide_unsigned(values, np.full_like(values, b))
        assert [int(v) & (1 << bits) - 1 for v in found] == want
    assert [loop_library.ceil_divide_unsigned(a, b) for a, b in ((7, 2), (8, 2), (0, 3), (5, 0), (1, 9))] == [
        4,
        4,
        0,
        0,
        1,
    ]
    for up, function in ((False, lambda a, b: a // b), (True, lambda a, b: -(-a // b))):
        pairs = [(int(a), b) for a in values for b in (-7, -1, 1, 2, 3) if not (a == info.min and b == -1)]
        found = loop_library.floor_divide(*(np.array(x, dtype) for x in zip(*pairs)), up)
        assert found.tolist() == [function(a, b) for a, b in pairs]
        assert [loop_library.floor_divide(a, b, up) for a, b in ((7, 2), (-7, 2), (7, -2), (5, 0))] == [
            *(function(a, b) for a, b in ((7, 2), (-7, 2), (7, -2))),
            0,
        ]
