"""Module → netlist → JSON → netlist → module: nothing is lost, on every level; and what upstream would read."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    f32,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.source import Create
from lightnet.frontends import json_ir
from lightnet.frontends.importer import to_module
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import ParamAttr
from lightnet.passes.check_plan import check_plan
from lightnet_export.netlist import from_module

NETS = Path(__file__).parents[1] / "data" / "nets"
NAMES = sorted(f"{p.parent.name}/{p.stem}" for p in NETS.glob("*/*.json") if p.parent.name != "compiled-cpu")
FUSED = "bind,expand,combine,layout,choose,hoist"
LEVELS = ["", "plan", "bind,expand{target=cpu}", "bind,expand{target=cpu},plan", "bind,expand{target=cpu},plan{plan=upstream}",
          FUSED, f"{FUSED},plan"]  # fmt: skip


def load(name: str):
    return to_module(json_ir.read_file(str(NETS / f"{name}.json")))


def compiled(module, passes: str):
    if passes:
        run_pipeline(make_context(), module, parse_pipeline(passes))
    return module


def through_json(module):
    return to_module(json_ir.read(json_ir.write(from_module(module)), "out.json"))


def parse(text: str):
    return parse_mlir(make_context(), text, "test.mlir")


def statements(net):
    """A netlist as plain values, params sorted (our order is the description's)."""
    return [
        (
            o.name,
            o.optype,
            [(t.arg, t.name) for t in o.tensors_in],
            [(t.arg, t.name) for t in o.tensors_out],
            sorted((p.arg, p.value) for p in o.params),
        )
        for o in net.ops
    ]


@pytest.mark.sampled(every=5, share=0.2)
@pytest.mark.parametrize("passes", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_network_survives_on_every_level(name: str, passes: str) -> None:
    module = compiled(load(name), passes)
    again = through_json(module)
    again.verify()
    assert str(again) == str(module)
    if "plan" in passes:
        check_plan(again)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("il2json")])
def test_level_1_is_the_source_again(name: str) -> None:
    """With `bind`, too: an input and a param are a `create` to every reader but ours."""
    source = json_ir.read_file(str(NETS / f"{name}.json"))
    assert statements(from_module(to_module(source))) == statements(source)
    assert statements(from_module(compiled(to_module(source), "bind"))) == statements(source)


@pytest.mark.parametrize("name", ["squeezedet", "shufflenetv2"])
def test_upstreams_own_file_is_read_and_written_again(name: str) -> None:
    source = json_ir.read_file(str(NETS / "compiled-cpu" / f"{name}.json"))
    net = from_module(to_module(source))
    assert [s[:4] for s in statements(net)] == [s[:4] for s in statements(source)]
    placed = lambda n: [(t.name, t.dims, t.offset) for o in n.ops for t in o.tensors_in + o.tensors_out]  # noqa: E731
    assert placed(net) == placed(source)
    assert net.mem_sizes == source.mem_sizes[:2]  # upstream's build had a third memory type, unused
    assert "lightnet" not in net.extra


def test_names_are_made_where_there_are_none() -> None:
    module = parse("""func.func @main() -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = ln.create : tensor<4xf32> as "create7"("relu2_dst")
  %1 = ln.relu %0 : tensor<4xf32>
  %2 = ln.relu %1 : tensor<4xf32> as "relu1"
  %3 = ln.relu %2 : tensor<4xf32>
  %4 = ln.create : tensor<4xf32>
  func.return %1, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}""")
    net = from_module(module)
    assert [op.name for op in net.ops] == ["create7", "relu2", "relu1", "relu3", "create8"]
    names = [t.name for op in net.ops for t in op.tensors_out]
    assert names[0] == "relu2_dst" and len(set(names)) == 5
    assert net.extra["lightnet"]["outputs"] == [names[1], names[3], names[4]]  # %1 is consumed, too
    again = to_module(net)
    assert str(through_json(again)) == str(again)
    assert len(again.body.block.first_op.body.block.last_op.operands) == 3


KERNEL = """func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %x = ln.input : tensor<4xf32> as "create0"("x")
  %w = ln.once {
    %w = ln.param {ran = [0, 1]} : tensor<4xf32> as "create1"("w")
    ln.yield %w
  } : tensor<4xf32> as ("w")
  %y, %z = cpu.kernel(%x_1 = %x, %w_1 = %w) choices {alg = "direct", tile = [14, 2], fast, scale = 1.5 : f64, ln.workspace_size = 100 : i64} {
    %y_1 = ln.elew %x_1, %w_1 {elew_op = "TL_SUM"} : tensor<4xf32> as "elew0"("y")
    %t = ln.relu %y_1 : tensor<4xf32> as "relu0"("t")
    ln.yield %y_1, %t
  } as ("y", "z")
  func.return %y, %z : tensor<4xf32>, tensor<4xf32>
}"""


def chosen(attr: Attribute) -> ModuleOp:
    """The network of `KERNEL`, whose kernel has one choice."""
    module = parse(KERNEL)
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    for name in kernel.choices:
        del kernel.attributes[name]
    kernel.attributes["alg"] = attr
    return module


@pytest.mark.parametrize(
    "attr, value",
    [
        (ParamAttr("direct"), "direct"), (ParamAttr(3), 3), (ParamAttr(True), True), (ParamAttr(0.5), 0.5), (ParamAttr(None), None), (ParamAttr((14, 2)), (14, 2)),
        (StringAttr("direct"), "direct"), (UnitAttr(), None), (IntegerAttr(3, i64), 3), (IntegerAttr(-3, i32), -3),
        (IntegerAttr(1, i1), True), (IntegerAttr(0, i1), False), (FloatAttr(0.5, f64), 0.5), (FloatAttr(0.5, f32), 0.5),
        (ArrayAttr([StringAttr("a"), StringAttr("b")]), ("a", "b")), (ArrayAttr([ParamAttr(1), IntegerAttr(2, i64)]), (1, 2)),
        (ArrayAttr([IntegerAttr(1, i64), FloatAttr(0.5, f64)]), (1, 0.5)), (ArrayAttr([IntegerAttr(1, i1)]), (True,)),
    ],
)  # fmt: skip
def test_a_choice_is_its_value_however_it_is_held(attr, value) -> None:
    module = chosen(attr)
    (found,) = (p.value for p in from_module(module).ops[-1].params)
    assert found == value and type(found) is type(value)
    (found,) = (p.value for p in from_module(through_json(module)).ops[-1].params)
    assert found == value and type(found) is type(value)


def test_a_choice_that_json_cannot_say_is_refused() -> None:
    one, two = IntegerAttr(1, i64), IntegerAttr(2, i64)
    arrays = [
        [],
        [one, StringAttr("a")],
        [one, IntegerAttr(1, i1)],
        [UnitAttr()],
        [ArrayAttr([one]), ArrayAttr([two])],
        [one, SymbolRefAttr("f")],
    ]
    for attr in (i64, ParamAttr(()), *map(ArrayAttr, arrays)):
        with pytest.raises(LightNetError, match=r"choice 'alg' of cpu.kernel is .*, which JSON cannot say"):
            from_module(chosen(attr))


#: Ops with several results, each of a name of its own.
SEVERAL = sorted(n for n, c in optypes().items() if len(c.schema.results) > 1 and c.schema.variadic_result is None)


def network_of(optype: str):
    """A network of one op on sources, its first sample."""
    cls = optypes()[optype]
    case = cls.schema.resolve(cls.samples()[0])
    specs = [case.tensors[f.name] for f in cls.schema.operands]
    sources = [Create.make([], {"dims": s.dims, "dtype": s.dtype.tl}, name=f"c{k}") for k, s in enumerate(specs)]
    op = cls.make([s.results[0] for s in sources], dict(case.params), name="op")
    block = Block([*sources, op, ReturnOp(*op.results)])
    return ModuleOp([FuncOp("main", ([], [r.type for r in op.results]), Region(block))])


@pytest.mark.parametrize("passes", [*LEVELS[1:5:2], "plan{plan=upstream}"])
@pytest.mark.parametrize("optype", SEVERAL)
def test_results_have_their_places_in_whatever_order_they_stand(optype: str, passes: str) -> None:
    """A tensor is known by its `arg_name`, in a plan, too."""
    module = compiled(through_json(network_of(optype)), passes)
    again = from_module(module)
    turned = [op for op in again.ops if op.optype.startswith(optype)]
    assert len(turned) == 1 and len(turned[0].tensors_out) > 1
    turned[0].tensors_out.reverse()
    assert str(to_module(again)) == str(module)


@pytest.mark.parametrize("passes", ["", "plan"])
def test_choices_names_and_workspace_of_a_kernel(passes: str) -> None:
    module = compiled(parse(KERNEL), passes)
    net = from_module(module)
    kernel = net.ops[-1]
    assert kernel.optype == "cpu.kernel" and [o.name for o in kernel.body] == ["elew0", "relu0"]
    assert [(t.arg, t.name) for t in kernel.tensors_out] == [("y", "y"), ("t", "z")]
    params = {p.arg: p.value for p in kernel.params}
    assert params["alg"] == "direct" and params["tile"] == (14, 2) and params["fast"] is None
    assert ("ln.workspace" in params) == bool(passes)
    if passes:
        offsets = [t.offset for op in net.ops for t in op.tensors_out]
        assert min(offsets) >= 64
        total = max(base + size for base, size in net.extra["lightnet"]["spaces"].values())
        assert net.mem_sizes == [0, total]
    assert str(through_json(module)) == str(module)


def test_a_source_that_is_read_after_it_was_overwritten() -> None:
    """In a netlist a sort writes its source; the IR's later reader of the source needs the unsorted tensor."""
    text = """func.func @main() -> tensor<4xf32> {
  %x = ln.create {data = [3, 1, 2, 0]} : tensor<4xf32> as "create0"("x")
  %s = ln.sort1d %x {dir = "TL_SORT_DIR_ASCENDING"} : tensor<4xf32> as "sort1d0"("s")
  %e = ln.elew %x, %s {elew_op = "TL_SUM"} : tensor<4xf32> as "elew0"("e")
  func.return %e : tensor<4xf32>
}"""
    from lightnet.backends.interpreter.graph import run

    for passes in ("", "bind,expand{target=cpu}", "bind,expand{target=cpu},plan"):
        again = through_json(compiled(parse(text), passes))
        assert run(again)["e"].tolist() == [3, 2, 4, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cpu.kernel", "gpu.kernel"), "no kernel of a target"),
        (('"name" : "y"', '"name" : "x"'), "shouldn't have been defined"),
        (('"arg_name" : "t"', '"arg_name" : "u"'), "should have been defined"),
        (('"static"', '"sta tic"'), "should map identifiers"),
        (('"lightnet" : {', '"lightnet" : {"outputs" : ["q"],'), "no tensor of the network"),
    ],
)
def test_broken_files(change: tuple[str, str], message: str) -> None:
    text = json_ir.write(from_module(compiled(parse(KERNEL), "plan")))
    assert change[0] in text
    with pytest.raises(LightNetError, match=message):
        to_module(json_ir.read(text.replace(*change), "bad.json"))
