"""Optimizer descriptions: upstream's expander tables, rules over several ops, what they compute, and what is wrong in them."""

from __future__ import annotations

import itertools
import json
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from network_cases import random_model
from test_fuzz_networks import native, reference
from test_fuzz_networks import same as equal

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import InternalWarning, LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.source import Source
from lightnet.frontends import json_ir
from lightnet.frontends.il import reader as il
from lightnet.frontends.importer import to_module
from lightnet.ir import registry
from lightnet.ir.context import make_context
from lightnet.ir.examples import operation
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import MTYPE
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import get_target
from lightnet.ir.types import TensorSpec
from lightnet.passes import pipelines
from lightnet.runtime.dtypes import BY_NAME
from lightnet_descriptions import c, command, functions, load_description_file, optimizer, pdl
from lightnet_descriptions.reader import read_description
from lightnet_descriptions.scope import RuleScope, Var
from lightnet_export.netlist import from_module

ROOT = Path(__file__).parents[2]
NETS = Path(__file__).parents[1] / "data" / "nets"
DESCRIBED = ROOT / "examples" / "described"
FILES = sorted([*(NETS / "il").glob("*.net"), *(NETS / "ir").glob("*.json")])


@pytest.fixture(autouse=True)
def unregistered() -> Iterator[None]:
    """Takes back what a test registers."""
    restore = registry.checkpoint()
    yield
    restore()


def loaded(text: str, file: str = "d.json") -> list[type]:
    classes = optimizer.load_optimizer(read_description(text, file))
    for cls in classes:
        registry.pattern(cls.pass_name, cls.target)(cls)
    return classes


def described(ops: str = "", *, subgraphs: str = "", combiners: str = "", more: str = "") -> list[type]:
    """Register a description for the CPU with these entries."""
    return loaded(
        f'{{author: "me", arch: "cpu", name: "d", {more} ops: [{ops}], subgraphs: [{subgraphs}], combiners: [{combiners}]}}'
    )


def rules(optype: str, *entries: str) -> str:
    return f'{{optype: "{optype}", rules: [{", ".join(entries)}]}}'


def parse(body: str, results: str, values: str):
    text = f"func.func @main() -> ({results}) {{\n{body}\nfunc.return {values} : {results}\n}}"
    return parse_mlir(make_context(), text, "x.mlir")


def run(module, passes: str):
    run_pipeline(make_context(), module, parse_pipeline(passes), verify_each=True)
    return module


def kernels(module) -> list[list[str]]:
    """The optypes in each kernel of main."""
    return [[o.optype for o in op.ops] for op in main_of(module).body.block.ops if isinstance(op, KernelOp)]


def same(before, after, exact: bool = True) -> None:
    """Both modules give the same outputs in the interpreter."""
    wanted, got = graph.run(before), graph.run(after)
    assert list(wanted) == list(got)
    for name, array in wanted.items():
        assert np.isfinite(array).all() and np.unique(array).size > 1
        np.testing.assert_allclose(got[name], array, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6)


# -- upstream's table for the CPU ------------------------------------------------------------------------------------


def network(path: Path):
    text = path.read_text("utf-8")
    return to_module(json_ir.read(text, path.name) if path.suffix == ".json" else il.read(text, path.name))


def ep_cpu() -> list[type]:
    return loaded((DESCRIBED / "ep_cpu.json").read_text("utf-8"), "ep_cpu.json")


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("plan", ["upstream", "default"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_description_reproduces_the_built_in_expansion(path: Path, plan: str) -> None:
    """Up to the plan for upstream's rules, and through expand of the default pipeline, op by op; the optypes are those that
    the C implementation wrote."""
    whole = pipelines.default("cpu", plan, until="plan" if plan == "upstream" else "kernels")
    before, _, after = whole.partition("expand")
    behind = "expand" + (after if plan == "upstream" else "")
    options = {"target": "cpu", "plan": plan}
    module = network(path)
    run_pipeline(make_context(), module, parse_pipeline(before.rstrip(","), options))
    built_in = module.clone()
    run_pipeline(make_context(), built_in, parse_pipeline(behind, options))
    ep_cpu()
    run_pipeline(make_context(), module, parse_pipeline(behind, options))
    assert len(kernels(module)) > 1
    assert str(module) == str(built_in)
    golden = NETS / "compiled-cpu" / f"{path.stem}.json"
    if plan == "upstream" and golden.exists():
        ops = [(op["name"], op["optype"]) for op in json.loads(golden.read_text())["ops"]]
        assert [(op.name, op.optype) for op in from_module(module).ops] == ops


def test_described_expansion_is_what_expands() -> None:
    """The table does it, not the default: an op that it lacks is an error."""
    ep_cpu()
    module = parse("%x = ln.input : tensor<3xf32>\n%y = ln.gelu %x : tensor<3xf32>", "tensor<3xf32>", "%y")
    with pytest.raises(LightNetError, match=r"unsupported optype 'gelu'.*\[expand.complete\]"):
        run(module, "expand")


def test_a_complete_description_need_not_say_where_inputs_stand() -> None:
    """No rule for computed ops is asked of what enters or leaves the network: for any op, for several, or in PDL."""
    pdl_rule = """pdl.pattern @r : benefit(1) {
        %x = pdl.operand
        %y = pdl.operation "ln.relu" (%x : !pdl.value)
        pdl.rewrite %y { pdl.erase %y }
    }"""
    joined = '{name: "f", match: ["relu a", "relu b"], edges: ["a.outs[dst] => b.ins[src]"], fuse: true}'
    left = "{cond: [], match: false}"
    text = f"""{{author: "me", arch: "cpu", name: "d", complete: true, combiners: [{joined}],
        ops: [{rules("create_cpu", left)}, {rules("relu", left)}]}}"""
    found = {cls.name: cls().places for cls in [*loaded(text), *pdl.load_pdl(pdl_rule, "r.mlir")]}
    assert found == {"d.create_cpu": True, "d.relu": False, "d": False, "d.f": False, "r": False}
    body = "%x = ln.input : tensor<3xf32>\n%w = ln.param : tensor<3xf32>\n%y = ln.relu %x : tensor<3xf32>"
    assert kernels(run(parse(body, "tensor<3xf32>, tensor<3xf32>", "%y, %w"), "expand")) == [["relu"]]


# -- what conditions and details say ---------------------------------------------------------------------------------

#: As a TensorRT table would have it: such a convolution pads alike on both sides.
ASYMMETRIC = rules(
    "conv2d",
    """{cond: ["self.params[autopad] == \\"NOTSET\\" && self.params[padding][0, 1] != self.params[padding][2, 3]"],
        replace: ["pad p", "conv2d_cpu c"],
        details: [
            "p.ins[src] = self.ins[src]",
            "p.params[before] = [0, 0, self.params[padding][0], self.params[padding][1]]",
            "p.params[after] = ${type(int *, 4) {0, 0, self.params[padding][2], self.params[padding][3]}}",
            "c.ins[src] = p.outs[dst]",
            "c.ins[weight] = self.ins[weight]",
            "c.ins[bias] = self.ins[bias]",
            "c.params = self.params",
            "c.params[padding] = [0, 0, 0, 0]",
            "c.outs[dst] = self.outs[dst]",
        ]}""",
    '{cond: [], replace: ["conv2d_cpu"]}',
)
CONVS = """%x = ln.input {ran = [-1, 1]} : tensor<1x3x8x9xf32> as "create0"("x")
%w = ln.param {ran = [-1, 1]} : tensor<3x3x3x3xf32> as "create1"("w")
%b = ln.param {ran = [-1, 1]} : tensor<3xf32> as "create2"("b")
%c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 0, 2, 1]} : tensor<1x3x9x8xf32> as "conv2d7"("c")
%d = ln.conv2d %c, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x3x9x8xf32> as "conv2d8"("d")"""


def test_asymmetric_padding_becomes_an_op_of_its_own() -> None:
    described(ASYMMETRIC)
    before, after = (parse(CONVS, "tensor<1x3x9x8xf32>", "%d") for _ in range(2))
    run(after, "expand")
    assert kernels(after) == [["pad"], ["conv2d"], ["conv2d"]]
    text = str(after)
    assert 'as "pad1"("pad1_dst")' in text  # a name of its own; the op that takes over the result keeps the old one
    assert '{size = [3, 3]} : tensor<1x3x9x8xf32> as "conv2d7"("c")' in text
    locations = [op.location for op in main_of(after).body.block.ops if isinstance(op, KernelOp)]
    assert locations[0] == locations[1] != locations[2]
    same(before, after)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("self.outs[dst]=>relu.ins[src]", True),
        ("self.outs[dst] => relu_cpu.ins[src]", False),  # not expanded yet: expansion runs in order
        ("self.outs[dst]=>softmax.ins[src]", True),
        ("self.outs[dst]=>sigmoid.ins[src]", False),
        ("self.outs[dst]=>", False),
        ("!self.outs[dst]=> && self.ins[src].creater == \\\"create0\\\"", True),
        ("ln_streq(self.ins[src].name, 'x') && self.outs[dst].name == ${con('y', self.name)}", False),
        ("self.name == 'lrelu0' && self.optype == 'lrelu' && self.arch == 'none'", True),
        ("self.ins.len == 1 && self.outs.len == 1 && self.params.len == 1", True),
        ("self.ins[src].dims == {2, 3} && self.ins[src].dims[1] == 3 && self.ins[src].dims[1, 0] == [3, 2]", True),
        ("self.ins[src].ndim == 2 && self.ins[src].len == 6 && self.ins[0].dtype == TL_FLOAT", True),
        ("self.ins[src].isstatic", False),
        ("-self.ins[src].ndim == -2 && !(self.ins[src].ndim == -2)", True),
        ("[2, 3, 4][0:1] == [2] && [2, 3, 4][1:3] == [3, 4] && len([2, 3][self.ins[src].ndim:2]) == 0", True),
        ("[2, 3][0:1] == [3] || [2, 3][1:2] == [2]", False),
        ("sum(self.ins[src].dims) == 5 && prod(self.ins[src].dims) == 6 && permutation([1, 0]) && inverse([2, 0, 1]) == [1, 2, 0]", True),
        ("max(self.ins[src].dims) == 3 && min(self.ins[src].dims) == 2 && abs(-3) == 3", True),
        ("self.ins[src].mtype == LN_MEM_CPU && self.outs[dst].mtype == LN_MEM_NONE && self.ins[src].owner == ''", True),
        ("self.params[negslope] > 0.25 && self.params[negslope].value_int == 0", True),
        ("self.params[negslope].type == LN_PARAM_NUMBER && ${type(int) self.params[negslope] * 10} == 3", True),
        ("self.params[negslope].float != 0.3", True),  # read as upstream reads it: a float of 32 bits
        ("self.params[negslope].double == 0.3", True),
        ("${rh self.ins[src].ndim} == min(2, 5) ? true : false", True),
        ("self.elementwise && !self.reduction && !self.move", True),
        ("self.ins[src].dims[self.ins[src].ndim - 1] % 2 == 1 || 1.0f / 0 > 1", True),
    ],
)  # fmt: skip
def test_condition(condition: str, holds: bool) -> None:
    details = '["n.ins[src] = self.ins[src]", "n.outs[dst] = self.outs[dst]"]'
    described(rules("lrelu", f'{{cond: ["false", "{condition}"], replace: ["tanh n"], details: {details}}}'))
    body = """%x = ln.input : tensor<2x3xf32> as "create0"("x")
%y = ln.lrelu %x {negslope = 0.3} : tensor<2x3xf32> as "lrelu0"("y")
%a = ln.relu %y : tensor<2x3xf32>
%b = ln.softmax %y {axis = 1} : tensor<2x3xf32>"""
    module = run(parse(body, "tensor<2x3xf32>, tensor<2x3xf32>", "%a, %b"), "expand")
    assert ("tanh" in str(module)) == holds


@pytest.mark.parametrize(
    ("value", "code", "want"),
    [
        ((4, 5, 6), "sizeof(v[0]) == sizeof(int)", 1),
        ((4, 5, 6), "ln_clone(v, 2 * sizeof(int))", (4, 5)),
        ((4, 5, 6), "memmove((int[]){0, 0, 7, 8}, v, 2 * sizeof(int))", (4, 5, 7, 8)),
        ((4, 5, 6), "v[1] / 2", 2),
        ((True, False), "sizeof(v[0]) == sizeof(int)", 1),
        ((4.0, 5.0, 0.5), "ln_clone(v, 2 * sizeof(double))", (4.0, 5.0)),
        ((4, 5, 0.5), "sizeof(v[0]) == sizeof(double)", 1),  # wherever the float is
        ((5, 4, 0.5), "v[0] / 2", 2.5),
        ((0.5, 4, 5), "memmove((double[]){0, 0, 7}, v, 2 * sizeof(double))", (0.5, 4, 7)),
        (True, "v + 1", 2),
        (7, "v / 2", 3),
        (7.0, "v / 2", 3.5),
        ("text", "ln_streq(v, \"text\")", 1),
        (TensorSpec((2, 3), BY_NAME["f16"]), "v->dims[1] * 10 + v->ndim", 32),
        (TensorSpec((2, 3), BY_NAME["f16"]), "ln_clone(v->dims, 2 * sizeof(int))", (2, 3)),
        (TensorSpec((2, 3), BY_NAME["f16"]), "v->len == 6 && v->dtype == TL_FLOAT16", 1),
    ],
)  # fmt: skip
def test_values_of_descriptions_are_those_of_c(value: object, code: str, want: object) -> None:
    """Of C's types, too: what code says in bytes (sizes, copies) is of an array's own elements."""
    assert c.evaluate_c(code, {"v": functions.argument(value)}, functions.function_table()) == want


def test_versions_compare_as_numbers() -> None:
    """Of TensorRT, for which upstream's plans were recorded: part by part, and what has fewer parts is before it."""
    recorded = (7, 1, 3)
    versions = [recorded, (7, 1), (7,), (8,), (6, 9, 9), (10, 0, 0), (7, 1, 3, 0), (7, 1, 3, 9)]
    versions += [(*recorded[:k], recorded[k] + by, *recorded[k + 1 :]) for k in range(3) for by in (-1, 1, 10)]
    for name, version in itertools.product(("ln_tensorrt_version_cmp", "LN_TRT_VER"), versions):
        code = f'{name}("{".".join(map(str, version))}")'
        assert c.evaluate_c(code, {}, functions.function_table()) == (version < recorded) - (version > recorded), code
    for wrong in ("", "7.", ".7", "7.1.3.0.0", "7.1.3-rc", "77777", " 7"):
        with pytest.raises(LightNetError, match=r"a version is written as 4\.0\.0"):
            c.evaluate_c(f'LN_TRT_VER("{wrong}")', {}, functions.function_table())


def test_all_that_ops_derive_is_an_array() -> None:
    """Of every op of the table, in each of its samples: what is one number (a count) is an array of one."""
    seen = set()
    for optype, cls in optypes().items():
        scope = RuleScope("cpu", {"self": Var("self", (cls,))})
        for op in (operation(cls, case)[0] for case in cls.samples()):
            for name, value in op.derived_values().items():
                want = np.ravel(value).tolist()
                asked = [f"len(self.derived[{name}])", *(f"self.derived[{name}][{i}]" for i in range(len(want)))]
                texts = read_description(json.dumps({"cond": asked}), "d.json").objects[""].value["cond"].value
                assert [optimizer.condition(t, scope).value({"self": op}) for t in texts] == [len(want), *want], optype
                seen.add((optype, type(value)))
    assert {("maxpool2d", tuple), ("maxpool2d", float), ("layernorm", int)} <= seen


def test_a_tensor_that_is_only_returned_has_no_reader() -> None:
    described(rules("relu", '{cond: ["self.outs[dst]=>"], replace: ["sigmoid"]}'))
    body = "%x = ln.input : tensor<3xf32>\n%y = ln.relu %x : tensor<3xf32>\n%z = ln.relu %y : tensor<3xf32>"
    assert kernels(run(parse(body, "tensor<3xf32>", "%z"), "expand")) == [["relu"], ["sigmoid"]]


def test_rules_are_tried_in_order_and_may_leave_an_op_alone() -> None:
    described(rules("relu", '{cond: ["self.name == \\"relu0\\""], match: false, warn: "left"}',
                    '{cond: ["self.ins[src].len > 2"], replace: ["sigmoid"], warn: "long"}',
                    '{cond: [], replace: ["tanh_cpu"]}'))  # fmt: skip
    body = """%x = ln.input : tensor<3xf32>
%a = ln.relu %x : tensor<3xf32> as "relu0"("a")
%b = ln.relu %a : tensor<3xf32> as "relu1"("b")"""
    with pytest.warns(InternalWarning) as said:
        module = run(parse(body, "tensor<3xf32>", "%b"), "expand")
    assert [str(w.message) for w in said] == ["x.mlir:3:6: left", "x.mlir:4:6: long"]
    assert kernels(module) == [["relu"], ["sigmoid"]]
    assert 'as "relu1"("b")' in str(module)  # an op of another optype, under the same names


def test_an_op_may_become_a_described_one_of_the_arch() -> None:
    """`<name>_cpu` is a kernel around `<name>`, unless the op table has an op of that very name."""
    from lightnet_descriptions import operators

    twice = """twice { optype: "twice_cpu", author: "me", arch: "cpu", params: [],
        tensors_in: [{arg_name: "src", mtype: "LN_MEM_CPU"}],
        tensors_out: [{arg_name: "dst", mtype: "LN_MEM_CPU", dims: "src->dims", dtype: "src->dtype"}],
        run: "dst[i...] = src[i...] + src[i...]" }"""
    registry.FAMILIES.add("twice", tuple(operators.load_operators(read_description(twice, "twice.op"))))
    described(rules("relu", '{cond: [], replace: ["twice_cpu"]}'))
    body = '%x = ln.input {data = [1, 2, 3]} : tensor<3xf32>\n%y = ln.relu %x : tensor<3xf32> as "relu0"("y")'
    module = run(parse(body, "tensor<3xf32>", "%y"), "expand")
    assert kernels(module) == [["twice_cpu"]]
    np.testing.assert_array_equal(graph.run(module)["y"], [2, 4, 6])


def test_refusal_is_an_error_at_the_op() -> None:
    described(rules("relu", '{cond: [], err: "there is no relu here"}'))
    with pytest.raises(LightNetError) as caught:
        run(parse("%x = ln.input : tensor<3xf32>\n%y = ln.relu %x : tensor<3xf32>", "tensor<3xf32>", "%y"), "expand")
    assert str(caught.value).startswith("x.mlir:3:6: error: relu: there is no relu here [d.relu]")
    assert "d.json:1:" in str(caught.value)


def test_an_op_that_is_removed() -> None:
    """By its operand, or by what the details say; an output keeps its name."""
    described(", ".join([
        rules("relu", "{cond: [], replace: []}"),
        rules("add", '{cond: [], replace: [], details: ["self.outs[dst] = self.ins[src2]"]}'),
    ]))  # fmt: skip
    body = """%x = ln.input {ran = [-1, 1]} : tensor<3xf32> as "create0"("x")
%z = ln.input {ran = [-1, 1]} : tensor<3xf32> as "create1"("z")
%a = ln.relu %x : tensor<3xf32> as "relu0"("a")
%b = ln.tanh %a : tensor<3xf32> as "tanh0"("b")
%c = ln.add %b, %z : tensor<3xf32> as "add0"("c")"""
    module = run(parse(body, "tensor<3xf32>, tensor<3xf32>", "%b, %c"), "expand")
    assert kernels(module) == [["tanh"], ["forward"]]
    outputs = graph.run(module)
    wanted = graph.run(parse(body, "tensor<3xf32>, tensor<3xf32>, tensor<3xf32>", "%b, %c, %z"))
    np.testing.assert_array_equal(outputs["c"], wanted["z"])
    assert list(outputs) == ["b", "c"]


def test_a_variable_number_of_operands() -> None:
    """`$@` counts on, `$^` repeats the number; several new ops of one optype have numbers of their own."""
    described(rules("add", """{cond: [], replace: ["reshape a", "reshape b", "concat all", "reduce_sum s", "reshape r"], details: [
        "a.ins[src] = self.ins[src1]", "a.params[dims] = [1, self.ins[src1].len]",
        "b.ins[src] = self.ins[src2]", "b.params[dims] = [1, self.ins[src2].len]",
        "all.ins[src$@] = a.outs[dst]", "all.ins[src$@] = b.outs[dst]", "all.params[axis] = 0",
        "s.ins[src] = all.outs[dst]", "s.params[axes] = [0]", "r.ins[src] = s.outs[dst]",
        "r.params[dims] = [s.outs[dst].dims[1]]", "all.outs[dst] = ${con(self.name, '_both')}",
        "r.outs[dst] = self.outs[dst]"]}"""))  # fmt: skip
    body = """%x = ln.input {ran = [-1, 1]} : tensor<3xf32> as "create0"("x")
%z = ln.input {ran = [-1, 1]} : tensor<3xf32> as "reshape4"("reshape5_dst")
%c = ln.add %x, %z : tensor<3xf32> as "add0"("c")"""
    before, after = (parse(body, "tensor<3xf32>", "%c") for _ in range(2))
    run(after, "expand")
    assert kernels(after) == [["reshape"], ["reshape"], ["concat"], ["reduce_sum"], ["reshape"]]
    text = str(after)
    for label in (
        '"reshape5"("reshape5_dst_1")',
        '"reshape6"("reshape6_dst")',
        '"concat1"("add0_both")',
        '"reshape7"("c")',
    ):
        assert label in text
    same(before, after)


# -- rules over several ops ------------------------------------------------------------------------------------------

#: mul(add(a, c), c) with the same c, in one op less.
FACTORED = """{name: "factored", match: ["add a", "mul m"], edges: ["a.outs[dst] => m.ins[src1]"], %s
    cond: ["a.ins[src2].name == m.ins[src2].name"],
    replace: ["mul s", "tanh t"],
    details: ["s.ins[src1] = a.ins[src1]", "s.ins[src2] = m.ins[src2]", "t.ins[src] = s.outs[dst]", "t.outs[dst] = m.outs[dst]"]}"""
SUMS = """%x = ln.input {ran = [-1, 1]} : tensor<2x3xf32> as "create0"("x")
%c = ln.input {ran = [-1, 1]} : tensor<2x3xf32> as "create1"("c")
%s = ln.add %x, %c : tensor<2x3xf32> as "add0"("s")
%p = ln.mul %s, %c : tensor<2x3xf32> as "mul0"("p")
%r = ln.relu %s : tensor<2x3xf32> as "relu0"("r")"""
TYPE = "tensor<2x3xf32>"


@pytest.mark.parametrize(("pass_name", "passes"), [
    ("simplify", "simplify"), ("subgraph", "expand,subgraph"), ("combine", "expand,combine{max-ops=1}"),
])  # fmt: skip
def test_ops_are_found_through_kernels(pass_name: str, passes: str) -> None:
    """At level 1, where each kernel is one op, and in kernels that may have several; names and locations stay."""
    described(subgraphs=FACTORED % f'pass: "{pass_name}",')
    module = run(parse(SUMS.rpartition("\n")[0], TYPE, "%p"), passes)
    found = [op for op in module.walk() if isinstance(op, LnOp) and op.operands]
    assert [op.optype for op in found] == ["mul", "tanh"]
    assert [(op.op_name, *op.tensor_names) for op in found] == [("mul0", "mul0_dst"), ("tanh1", "p")]
    places = [str(place.line.data) for op in found for place in op.location.locations]
    assert places == ["4", "5"] * 2


@pytest.mark.parametrize(("outputs", "found"), [
    ("%p", True),
    ("%p, %s", False),  # the sum is an output
    ("%p, %r", False),  # the sum is read elsewhere
])  # fmt: skip
def test_a_value_that_is_needed_is_not_swallowed(outputs: str, found: bool) -> None:
    described(subgraphs=FACTORED % 'pass: "subgraph",')
    body = SUMS if "%r" in outputs else SUMS.rpartition("\n")[0]
    module = run(parse(body, ", ".join([TYPE] * len(outputs.split(","))), outputs), "expand,subgraph")
    assert (["tanh"] in kernels(module)) == found


def test_a_result_that_is_read_elsewhere_may_be_taken_over() -> None:
    """All matched results have an heir, so that none has to be computed again."""
    described(
        subgraphs="""{name: "split", match: ["tanh t", "relu r"], edges: ["t.outs[dst] => r.ins[src]"],
        replace: ["sigmoid s", "forward f"],
        details: ["s.ins[src] = t.ins[src]", "s.outs[dst] = t.outs[dst]", "f.ins[src] = s.outs[dst]", "f.outs[dst] = r.outs[dst]"]}"""
    )
    body = """%x = ln.input {ran = [-1, 1]} : tensor<2x3xf32> as "create0"("x")
%t = ln.tanh %x : tensor<2x3xf32> as "tanh0"("t")
%r = ln.relu %t : tensor<2x3xf32> as "relu0"("r")"""
    module = run(parse(body, f"{TYPE}, {TYPE}", "%t, %r"), "expand,subgraph")
    assert kernels(module) == [["sigmoid"], ["forward"]]
    assert list(graph.run(module)) == ["t", "r"]
    early = body.replace("%r = ", "%e = ln.abs %t : tensor<2x3xf32>\n%r = ")
    module = run(parse(early, f"{TYPE}, {TYPE}", "%e, %r"), "expand,subgraph")
    assert kernels(module) == [["tanh"], ["abs"], ["relu"]]  # abs reads it before the new op could stand there


def test_an_op_of_any_optype_and_any_operand() -> None:
    described(
        combiners="""{name: "any", match: ["softmax n", "* e"], edges: ["n.outs[dst] => e.ins[*]"], cond: ["e.elementwise"],
        fuse: true}"""
    )
    body = """%x = ln.input {ran = [-1, 1]} : tensor<2x3xf32> as "create0"("x")
%n = ln.softmax %x {axis = 1} : tensor<2x3xf32> as "softmax0"("n")
%a = ln.add %x, %n : tensor<2x3xf32> as "add0"("a")
%m = ln.softmax %a {axis = 1} : tensor<2x3xf32> as "softmax1"("m")
%t = ln.transpose %m {axes = [1, 0]} : tensor<3x2xf32> as "transpose0"("t")"""
    before, after = (parse(body, "tensor<3x2xf32>", "%t") for _ in range(2))
    run(after, "bind,expand,combine")
    assert kernels(after) == [["softmax", "add"], ["softmax"], ["transpose"]]
    same(before, after)


def test_fusion_compiles() -> None:
    """What only a description fuses, on the machine: a reduction behind a reduction, and their epilogue."""
    described(
        combiners="""{name: "two", match: ["softmax a", "softmax b"], edges: ["a.outs[dst] => b.ins[src]"], fuse: true},
        {name: "pool", match: ["maxpool2d p", "softmax a"], edges: ["p.outs[dst] => a.ins[src]"], fuse: true},
        {name: "last", match: ["softmax b", "elu e"], edges: ["b.outs[dst] => e.ins[src]"], fuse: true}"""
    )
    model = lightnet.loads(
        """func.func @main() -> tensor<1x2x6x6xf32> {
%x = ln.input {ran = [-1, 1]} : tensor<1x2x6x6xf32> as "create0"("x")
%p = ln.maxpool2d %x {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x2x6x6xf32> as "maxpool2d0"("p")
%m = ln.softmax %p {axis = 1} : tensor<1x2x6x6xf32> as "softmax0"("m")
%n = ln.softmax %m {axis = 3} : tensor<1x2x6x6xf32> as "softmax1"("n")
%e = ln.elu %n : tensor<1x2x6x6xf32> as "elu0"("e")
func.return %e : tensor<1x2x6x6xf32>\n}""",
        ".mlir",
    )
    executable = lightnet.compile(model)
    assert kernels(executable.planned) == [["maxpool2d", "softmax", "softmax", "elu"]]
    want = lightnet.compile(model, target="none")
    np.testing.assert_allclose(executable()["e"], want()["e"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(100, 104))
def test_whatever_a_description_fuses_stays_right(seed: int) -> None:
    """A rule for any two ops, on random networks: the machine against the interpreter of the network as it came."""
    described(combiners='{name: "any", match: ["* a", "* b"], edges: ["a.outs[*] => b.ins[*]"], fuse: true}')
    model = random_model(seed, 25)
    executable = lightnet.compile(model)
    equal(native(executable, {}), reference(model, {}), str(seed))


def test_what_no_generator_runs_is_not_fused() -> None:
    described(
        combiners="""{name: "sorted", match: ["relu r", "sort1d s"], edges: ["r.outs[dst] => s.ins[src_key]"], fuse: true}"""
    )
    body = """%x = ln.input {ran = [-1, 1]} : tensor<6xf32> as "create0"("x")
%r = ln.relu %x : tensor<6xf32> as "relu0"("r")
%s = ln.sort1d %r {dir = "TL_SORT_DIR_ASCENDING"} : tensor<6xf32> as "sort1d0"("s")"""
    with pytest.raises(LightNetError) as caught:
        run(parse(body, "tensor<6xf32>", "%s"), "expand,combine")
    assert str(caught.value).startswith(
        "x.mlir:4:6: error: target 'cpu' cannot fuse these ops: ln.sort1d has no definition"
    )


def test_an_op_that_is_removed_from_kernels() -> None:
    """The copy that keeps an output's name stays: another one would take its place. What is done is said, and only that."""
    described(
        subgraphs="""{name: "gone", match: ["forward f"], replace: [], details: ["f.outs[dst] = f.ins[src]"], warn: "gone"}"""
    )
    body = """%x = ln.input {ran = [-1, 1]} : tensor<2x3xf32> as "create0"("x")
%a = ln.forward %x : tensor<2x3xf32> as "forward0"("a")
%t = ln.tanh %a : tensor<2x3xf32> as "tanh0"("t")
%f = ln.forward %t : tensor<2x3xf32> as "forward1"("f")"""
    with pytest.warns(InternalWarning) as said:
        module = run(parse(body, f"{TYPE}, {TYPE}", "%t, %f"), "expand,subgraph")
    assert [str(w.message) for w in said] == ["x.mlir:3:6: gone"]
    assert kernels(module) == [["tanh"], ["forward"]]
    assert list(graph.run(module)) == ["t", "f"]


@pytest.mark.parametrize(
    ("body", "values", "left"),
    [
        ("%s = ln.add %x, %c : T\n%p = ln.mul %s, %c : T\n%r = ln.relu %s : T", "%p, %r", [["add"], ["mul"], ["relu"]]),
        ("%s = ln.add %x, %c : T\n%p = ln.mul %s, %c : T", "%p, %s", [["add"], ["mul"]]),
        ("%s = ln.add %x, %c : T\n%p = ln.mul %s, %c : T", "%p, %p", [["mul"], ["tanh"]]),
    ],
    ids=["read", "returned", "replaced"],
)
def test_a_warning_says_what_was_done(body: str, values: str, left: list) -> None:
    """Nothing where a match is found and its rule cannot be applied."""
    described(subgraphs=FACTORED % 'pass: "subgraph", warn: "done",')
    start = '%x = ln.input : T\n%c = ln.input {ran = [-1, 1]} : T as "create1"("c")\n'
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        module = run(parse((start + body).replace(": T", f": {TYPE}"), f"{TYPE}, {TYPE}", values), "expand,subgraph")
    assert kernels(module) == left
    assert len(said) == (["tanh"] in left)


def test_any_op_is_replaced_by_number() -> None:
    """An op whose optype is not said has its tensors by number."""
    described(
        subgraphs="""{name: "last", match: ["tanh t", "* e"], edges: ["t.outs[0] => e.ins[0]"], cond: ["e.elementwise"],
        replace: ["abs a"], details: ["a.ins[src] = t.ins[src]", "a.outs[dst] = e.outs[0]"]}"""
    )
    body = """%x = ln.input {ran = [-1, 1]} : tensor<2x3xf32> as "create0"("x")
%t = ln.tanh %x : tensor<2x3xf32> as "tanh0"("t")
%e = ln.elu %t : tensor<2x3xf32> as "elu0"("e")"""
    assert kernels(run(parse(body, TYPE, "%e"), "expand,subgraph")) == [["abs"]]


def test_rules_that_undo_each_other_are_stopped_by_name() -> None:
    one = '{name: "%s", match: ["%s a"], replace: ["%s b"], details: ["b.ins[src] = a.ins[src]", "b.outs[dst] = a.outs[dst]"]}'
    described(subgraphs=", ".join([one % ("there", "relu", "tanh"), one % ("back", "tanh", "relu")]))
    body = "%x = ln.input : tensor<6xf32>\n%r = ln.relu %x : tensor<6xf32>"
    with pytest.raises(LightNetError, match=r"does not settle: .*'d\.(there|back)'"):
        run(parse(body, "tensor<6xf32>", "%r"), "expand,subgraph")


def test_rules_that_grow_are_stopped_soon() -> None:
    """Each rewrite doubles what matches; on a network of a hundred ops it is an error within seconds."""
    described(
        subgraphs="""{name: "grow", match: ["relu a"], replace: ["relu b", "relu c"],
        details: ["b.ins[src] = a.ins[src]", "c.ins[src] = b.outs[dst]", "c.outs[dst] = a.outs[dst]"]}"""
    )
    lines = ['%v0 = ln.input : tensor<6xf32> as "create0"("v0")']
    lines += [f'%v{i + 1} = ln.relu %v{i} : tensor<6xf32> as "relu{i}"("v{i + 1}")' for i in range(3)]
    with pytest.raises(LightNetError, match=r"pattern 'd\.grow' still matches"):
        run(parse("\n".join(lines), "tensor<6xf32>", "%v3"), "expand,subgraph")


def test_the_cpus_own_rule_splits_large_windows() -> None:
    """SeparateMaxpool: where it pays, also with padding from autopad, and not otherwise."""

    def pools(size: int, more: str, dims: str = "1x2x9x8"):
        body = f"""%x = ln.input {{ran = [-1, 1]}} : tensor<1x2x9x8xf32> as "create0"("x")
%p = ln.maxpool2d %x {{size = [{size}, {size}], {more}}} : tensor<{dims}xf32> as "maxpool2d0"("p")"""
        before, after = (parse(body, f"tensor<{dims}xf32>", "%p") for _ in range(2))
        run(after, "expand,subgraph")
        same(before, after)
        return str(after).count("ln.maxpool2d")

    assert pools(5, "padding = [2, 2, 2, 2]") == 2
    assert pools(5, 'autopad = "SAME_UPPER"') == 2
    assert pools(3, "padding = [1, 1, 1, 1]") == 1


# -- examples/described/fuse.json ------------------------------------------------------------------------------------


def load_example(name: str) -> None:
    found = load_description_file(str(DESCRIBED / name))
    for family, ops in found.families.items():
        registry.FAMILIES.add(family, ops)
    for cls in found.patterns:
        registry.pattern(cls.pass_name, cls.target)(cls)


def test_described_ops_fuse_and_stay_right() -> None:
    """All four become one kernel, whose result is PyTorch's on the machine and in the interpreter."""
    load_example("ops.op")
    apart = lightnet.compile(str(DESCRIBED / "ops.net"))
    load_example("fuse.json")
    fused = lightnet.compile(str(DESCRIBED / "ops.net"))
    assert kernels(fused.planned) == [["my_depthwise", "my_instance_norm", "my_gelu", "my_pixel_shuffle"]]
    assert len(kernels(apart.planned)) > 1
    (name,) = fused()
    assert fused()[name].std() > 0.1
    np.testing.assert_allclose(fused()[name], apart()[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fused()[name], fused.interpreted()[name], rtol=1e-5, atol=1e-6)
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    image, taps, shift, gain = (torch.from_numpy(fused.loaded(n).copy()) for n in ("image", "taps", "shift", "gain"))
    x = f.conv2d(image, taps[:, None], shift, padding=1, groups=4)
    x = f.pixel_shuffle(f.gelu(f.instance_norm(x, weight=gain, bias=shift, eps=1e-5)), 2)
    np.testing.assert_allclose(fused()[name], x.numpy(), rtol=1e-4, atol=1e-5)


def test_a_free_move_is_not_fused_into_the_norm() -> None:
    """`.free` says which moves a plan makes cost nothing: a reshape stays a kernel of its own, a transpose does not."""
    load_example("ops.op")
    load_example("fuse.json")
    body = """%x = ln.input {{ran = [-1, 1]}} : tensor<1x2x3x4xf32>
%s = ln.param {{ran = [1, 2]}} : tensor<2xf32>
%n = ln.my_instance_norm %x, %s, %s : tensor<1x2x3x4xf32>
%y = {}"""
    for last, fused in (
        ("ln.reshape %n : tensor<4x6xf32>", False),
        ("ln.transpose %n {axes = [0, 1, 3, 2]} : tensor<1x2x4x3xf32>", True),
    ):
        module = run(parse(body.format(last), last.rpartition(": ")[2], "%y"), "expand,combine")
        assert (len(kernels(module)) == 1) == fused


def test_a_wrong_rule_is_found_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """relu(mean) is not mean(relu): --check=rewrite says which pattern made the difference, and where."""
    from lightnet.cli import ln_opt

    text = (DESCRIBED / "pads.json").read_text().replace("maxpool2d", "avgpool2d")
    (tmp_path / "wrong.json").write_text(text)
    (tmp_path / "net.mlir").write_text((DESCRIBED / "pads.mlir").read_text().replace("ln.maxpool2d", "ln.avgpool2d"))
    words = [
        "--load",
        str(tmp_path / "wrong.json"),
        "--check=rewrite",
        "--pass=bind,expand,subgraph",
        str(tmp_path / "net.mlir"),
    ]
    assert ln_opt.main(words) == 1
    assert re.search(r"net\.mlir:16:8: error: .*pads\.relu-behind-pool", capsys.readouterr().err)


# -- what is wrong in a description ----------------------------------------------------------------------------------

GOOD = """{author: "me", arch: "cpu", name: "d", complete: false, head: "",
 ops: [{optype: "conv2d", rules: [
   {cond: ["self.params[padding][0] != self.params[padding][2]"], replace: ["pad p", "conv2d_cpu c"], warn: "pads", details: [
     "p.ins[src] = self.ins[src]",
     "p.params[before] = [0, 0, self.params[padding][0], 0]",
     "p.params[after] = [0, 0, self.params[padding][2], 0]",
     "c.ins[src] = p.outs[dst]",
     "c.ins[weight] = self.ins[weight]",
     "c.ins[bias] = self.ins[bias]",
     "c.params[size] = self.params[size]",
     "c.outs[dst] = self.outs[dst]"]},
   {cond: ["self.outs[dst]=>relu.ins[src]"], err: "no"},
   {cond: [], match: false}]}],
 combiners: [{name: "f", match: ["conv2d a", "softmax|relu b"], edges: ["a.outs[dst] => b.ins[src]"], fuse: true}],
 subgraphs: [{name: "g", match: ["relu a", "relu b"], edges: ["a.outs[dst] => b.ins[src]"], cond: ["a.name != b.name"],
   replace: ["relu c"], details: ["c.ins[src] = a.ins[src]", "c.outs[dst] = b.outs[dst]"]}]}"""

BAD = [
    ('author: "me", ', "", "a description needs a member 'author'"),
    ('arch: "cpu"', 'arch: "cpi"', "unknown arch 'cpi'; did you mean cpu?"),
    ('arch: "cpu"', 'arch: "none"', "arch 'none' has no kernels"),
    ('name: "d"', 'name: ""', "'name' of a description is empty"),
    ('name: "d"', 'name: 3', "'name' of a description should be a string, but is a number"),
    ("complete: false", "complete: 1", "'complete' of a description should be a bool"),
    ('head: ""', 'head: "#define x 1"', "only #include may stand at the head"),
    ('head: ""', 'head: "exit(1);"', "only #include lines and declarations may stand at the head"),
    ('head: ""', 'custom_after: "exit(1);"', "'custom_after' holds C code, which is never run"),
    ("ops: [", "opps: [", "a description has no member 'opps'; did you mean ops?"),
    ("ops: [{", "ops: [3, {", "an entry of ops should be an object, but is a number"),
    ('optype: "conv2d"', 'optype: "conv2b"', "unknown optype 'conv2b'; did you mean"),
    ('optype: "conv2d"', 'optype: "conv2d_cpu"', "'conv2d_cpu' is what an expansion makes"),
    ('optype: "conv2d"', 'optype: "create"', "unknown name|create has no param|no op of a kernel"),
    ("rules: [", 'rules: "", more: [', "should be an array"),
    ('warn: "pads"', "warn: 5", "'warn' of a rule should be a string"),
    ('cond: ["self.params[padding][0] != self.params[padding][2]"], ', "", "a rule needs a member 'cond'"),
    ("self.params[padding][0] !=", "self.params[paddin][0] !=", "conv2d has no param `paddin`; did you mean padding?"),
    ("self.params[padding][0] !=", "self.param[padding][0] !=", "an op has no field 'param'"),
    ("self.params[padding][0] !=", "this.params[padding][0] !=", "unknown name 'this'; the variables here are: self"),
    ("self.params[padding][0] !=", "self.params[padding] + 1 !=", "'\\+' takes numbers, got an array of numbers"),
    ("self.params[padding][0] !=", "self.params[autopad] ==", "a string is compared with a number"),
    ("self.params[padding][0] !=", "self.params[padding]['a'] !=", "a subscript is a number, not a string"),
    ("self.params[padding][0] !=", "self.params[padding].width !=", "has no field 'width'"),
    ("self.params[padding][0] !=", "self.ins[source].ndim !=", "conv2d has no input tensor `source`"),
    ("self.params[padding][0] !=", "self.ins[src].offset !=", "a tensor has no offset before memory is planned"),
    ("self.params[padding][0] !=", "self.ins[src].shape !=", "a tensor has no field 'shape'"),
    ("self.params[padding][0] !=", "${type(long) 3} !=", "unknown type 'long'"),
    ("self.params[padding][0] !=", "${rh 3} !=", "expected an accessor, got '3'"),
    ("self.params[padding][0] !=", "system(3) !=", "unknown function 'system'"),
    ("self.params[padding][0] !=", "self.ins[src].dtype == TL_FLOTE &&", "unknown enumerator 'TL_FLOTE'; did you mean TL_FLOAT"),
    ("self.params[padding][0] !=", "self.params[padding][0] self", "expected an operator, got 'self'"),
    ("self.params[padding][0] !=", "self.params[padding][0] @", "unexpected character '@'"),
    ('"self.params[padding][0] != self.params[padding][2]"', '"self.ins[src]"', "a condition is a bool, this is a string"),
    ('"self.params[padding][0] != self.params[padding][2]"', '"' + "(" * 80 + '1"', "nested more than 60 deep"),
    ('"self.params[padding][0] != self.params[padding][2]"', "3", "expected a string, got a number"),
    ('"pad p"', '"pod p"', "unknown optype 'pod'"),
    ('"pad p"', '"pad"', "a new op needs a name"),
    ('"pad p"', '"pad self"', "the variable 'self' is taken"),
    ('"pad p"', '"pad p q"', "expected 'OPTYPE VAR'"),
    ('"pad p"', '"pad 1p"', "is no name of a variable"),
    ('"conv2d_cpu c"', '"conv2d_gpu c"', "there is no arch 'gpu'; there are: cpu"),
    ('"conv2d_cpu c"', '"tensorrt c"', "the details give no layer of the kernel"),
    ('"p.params[after] = [0, 0, self.params[padding][2], 0]"', '"p.params[after] = ${type(int *, 4) (int[]){0, 0, abz(3), 0}}"', "abz"),
    ('"p.params[after] = [0, 0, self.params[padding][2], 0]"', '"p.params[after] = ${type(int *, 4) (int[]){0, 0, x | 1, 0}}"', "'x'"),
    ("self.params[padding][0] !=", "ln_tensorrt_version_cmp(\\\"4.0.0\\\") == self.ins[src].tensor &&", "compared with"),
    ("self.params[padding][0] !=", "ln_tensorrt_version_cmp(\\\"4.0.0\\\", 1) !=", "ln_tensorrt_version_cmp takes 1 argument, got 2"),
    ('"p.ins[src] = self.ins[src]",', "", "the details give no `p.ins\\[src\\]`"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins[src] = self.outs[dst]"', "self.outs\\[dst\\] is gone with the op that makes it"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins[src] = c.outs[dst]"', "'c' stands behind 'p'"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins[src] = p.outs[dst]"', "'p' stands behind 'p'"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins[src] = p.ins[src]"', "'p' stands behind 'p'"),
    ('"c.ins[src] = p.outs[dst]"', '"c.ins[src] = c.outs[dst]"', "'c' stands behind 'c'"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins[src] = 3"', "an operand is a tensor"),
    ('"p.ins[src] = self.ins[src]"', '"self.ins[src] = p.ins[src]"', "'self' is matched: only its outs can be assigned"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins[src] == self.ins[src]"', "expected '=', got '=='"),
    ('"c.ins[weight] = self.ins[weight]"', '"c.ins[src] = self.ins[weight]"', "`c.ins\\[src\\]` is assigned twice"),
    ('"c.ins[weight] = self.ins[weight]"', '"c.ins[weight$^] = self.ins[weight]"', "repeats the number of a 'weight\\$@' before it"),
    ('"c.ins[weight] = self.ins[weight]"', '"c.ins[src$@] = self.ins[weight]"', "conv2d has no input tensor `src1`"),
    ('"c.params[size] = self.params[size]",', "", "the details give no `c.params\\[size\\]`"),
    ("c.params[size] = self.params[size]", "c.params[size] = self.params[autopad]", "is an array of numbers, not a string"),
    ("c.params[size] = self.params[size]", "c.params[size] = c.outs[dst].dims", "'c' is not there yet when 'c' is made"),
    ("c.params[size] = self.params[size]", "c.params = c.params", "'c' is not there yet when 'c' is made"),
    ('"p.ins[src] = self.ins[src]"', '"p.params = c.params"', "'c' is not there yet when 'p' is made"),
    ('"p.ins[src] = self.ins[src]"', '"p.ins = c.ins"', "'c' stands behind 'p'|the details give no `p.ins"),
    ("c.params[size] = self.params[size]", "c.params[autopad] = 'SOME'", "is one of NOTSET"),
    ("c.params[size] = self.params[size]", "c.params = self.ins", "expected|a whole section is assigned from the same one"),
    ("c.params[size] = self.params[size]", "c.params[size] = ${con(1)", "expected"),
    (',\n     "c.outs[dst] = self.outs[dst]"', "", "no new op takes over self.outs\\[dst\\]"),
    ("=>relu.ins[src]", "=>rely.ins[src]", "unknown optype 'rely'; did you mean"),
    ("=>relu.ins[src]", "=>relu.outs[dst]", "a tensor is read by one of `ins`, not of `outs`"),
    ("=>relu.ins[src]", "=>relu.ins[dst]", "relu has no input tensor `dst`"),
    ('err: "no"', 'err: "no", replace: []', "a rule has one of replace, err, match; this has replace and err"),
    ('err: "no"', 'err: "no", details: []', "details fill the ops of 'replace', and this rule has 'err'"),
    ('err: "no"', 'custom_before: "return;", err: "no"', "'custom_before' holds C code"),
    ("match: false}", "match: true}", "'match' says false"),
    ("match: false}", 'replace: ["conv2d"]}', "conv2d replaced by itself"),
    ("match: false}", 'replace: ["relu"]}', "relu has other arguments than conv2d"),
    ("match: false}", "replace: [], details: []}", "^$"),  # fine: conv2d has one data operand
    ('match: ["conv2d a", "softmax|relu b"]', 'match: ["conv2d a", "soft|relu b"]', "unknown optype 'soft'"),
    ('match: ["conv2d a", "softmax|relu b"]', 'match: ["conv2d a"]', "unknown variable 'b'"),
    ('match: ["conv2d a", "softmax|relu b"]', 'match: ["conv2d a", "relu a"]', "the variable 'a' is taken"),
    ('match: ["conv2d a", "softmax|relu b"]', "match: []", "'match' names 1 to 16 ops"),
    ('edges: ["a.outs[dst] => b.ins[src]"], fuse', 'edges: [], fuse', "no edge leads on from 'a'"),
    ('edges: ["a.outs[dst] => b.ins[src]"], fuse', 'edges: ["b.outs[dst] => a.ins[src]"], fuse', "'b' stands behind 'a' in match"),
    ('edges: ["a.outs[dst] => b.ins[src]"], fuse', 'edges: ["a.ins[src] => b.ins[src]"], fuse', "an edge is A.outs"),
    ("fuse: true", "fuse: false", "'fuse' says true"),
    ("fuse: true", 'pass: "subgraph", fuse: true', "rules of combiners are for combine"),
    ('replace: ["relu c"]', 'pass: "simplify", replace: ["relu_cpu c"]', "`simplify` runs before there are kernels"),
    ('name: "g"', 'name: "f"', "pattern 'd.f' is described twice"),
    ('name: "g"', 'name: "g", pass: "expand"', "rules of subgraphs are for subgraph or simplify or recognize or combine"),
    ('"c.ins[src] = a.ins[src]"', '"c.ins[src] = b.ins[src]"', "b.ins\\[src\\] is a.outs\\[dst\\], which is gone"),
    (', "c.outs[dst] = b.outs[dst]"', "", "nothing takes over a result"),
    ("self.params[padding][0] !=", "len(3) !=", "len takes one array"),
    ("self.params[padding][0] !=", "abs(1, 2) !=", "abs takes 1 argument, got 2"),
    ("self.params[padding][0] !=", "pow(1) !=", "pow takes 2 arguments, got 1"),
    ("self.params[padding][0] !=", "abs('a') !=", "abs takes numbers, got a string"),
    ("self.params[padding][0] !=", "[1, 2]['a':1] !=", "takes numbers, got a string"),
    ("self.params[padding][0] !=", "[1, 2][0:'a'] !=", "takes numbers, got a string"),
    ("self.params[padding][0] !=", "-'a' !=", "'-' takes numbers, got a string"),
    ("self.params[padding][0] !=", "self.ins[src].ndim[0] !=", "one subscript picks an element of an array; this is a number"),
    ("self.params[padding][0] !=", "self.ins.size !=", "'ins' has the field len only; an argument is named in brackets"),
    ("self.params[padding][0] !=", "self.ins[+] !=", "expected the name of an argument, got '\\+'"),
    ("self.params[padding][0] !=", "self.params[0] !=", "expected the name of an argument, got '0'"),
    ("self.params[padding][0] !=", "[1, 'a'][0] !=", "the elements of an array are all numbers, all strings or all bools"),
    ("self.params[padding][0] !=", "${cun 3} !=", "unknown directive 'cun'; there are: con, type, rh"),
    ("c.params[size] = self.params[size]", 'c.params[size] = self.params[size]", "c.params[size] = self.params[size]', "`c.params\\[size\\]` is assigned twice"),
    ("c.params[size] = self.params[size]", "c.params = other.params", "expected a variable whose optype is known, got 'other'"),
    ("c.params[size] = self.params[size]", "c.outs = self.outs", "a whole section is assigned from the same one"),
    ("c.outs[dst] = self.outs[dst]", "c.outs[dst] = 3", "a result takes the place of a matched op's result, or is given a name"),
    ("c.outs[dst] = self.outs[dst]", "c.outs[dst] = self.ins[src]", "a result takes the place of a matched op's result, or is given a name"),
    ("c.outs[dst] = self.outs[dst]", 'c.outs[dst] = self.outs[dst]", "p.outs[dst] = self.outs[dst]', "`self.outs\\[dst\\]` is taken over twice"),
    ("c.outs[dst] = self.outs[dst]", "self.outs[dst] = 3", "what takes the place of a result is a tensor"),
    ("c.outs[dst] = self.outs[dst]", "self.outs[dst] = self.outs[dst]", "self.outs\\[dst\\] is gone with the op that makes it"),
    ('match: ["conv2d a", "softmax|relu b"], edges:', 'match: ["* a", "softmax|relu b"], cond: ["a.params[size][0] == 1"], edges:', "'a' is any op: nothing is known of its params"),
    ('match: ["conv2d a", "softmax|relu b"], edges:', 'match: ["conv2d a", "softmax|relu b"], cond: ["b.params[axis] == 1"], edges:', "relu has no param `axis`|axis"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_a_mistake_is_an_error_at_its_place(old: str, new: str, message: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if message == "^$":
        assert optimizer.load_optimizer(read_description(text, "d.json"))
        return
    with pytest.raises(LightNetError, match=message) as caught:
        optimizer.load_optimizer(read_description(text, "d.json"))
    loc, line = caught.value.loc, caught.value.source_line
    assert loc is not None and loc.file == "d.json" and loc.col > 0
    assert line == text.splitlines()[loc.line - 1]


@pytest.mark.parametrize(
    ("detail", "message"),
    [
        *(
            (
                f"p.params[before] = k.params[x]{part}",
                "nothing is known of the params of 'k', a kernel, before it is made",
            )
            for part in ("", "[0]", ".len")
        ),
        ("k.params[x] = k.params[y]", "nothing is known of the params of 'k', a kernel, before it is made"),
        ("k.params = a.params", "each argument of a kernel is assigned by its name: k.params[NAME] = …"),
        ("k.ins = a.ins", "each argument of a kernel is assigned by its name: k.ins[NAME] = …"),
        ("p.params = k.params", "expected a variable whose optype is known, got 'k'"),
        ("p.ins = k.ins", "expected a variable whose optype is known, got 'k'"),
        ("c.ins[src] = k.outs[y]", "'k' stands behind 'c' in replace: it cannot be read there"),
        ("p.params[before] = k.params.len", "param `before` of pad is an array of numbers, not a number"),
        ('k.params[x] = 3", "k.params[x] = 4', "`k.params[x]` is assigned twice"),
    ],
)
def test_what_is_not_known_of_a_kernel(detail: str, message: str) -> None:
    """Its optype and all its arguments are what the details say: none can be read before."""
    text = """{author: "me", arch: "cpu", name: "d", ops: [], subgraphs: [{name: "g", match: ["relu a"],
        replace: ["relu c", "tensorrt k", "pad p"], details: ["DETAIL", "p.outs[dst] = a.outs[dst]"]}]}"""
    text = text.replace("DETAIL", detail)
    with pytest.raises(LightNetError) as caught:
        optimizer.load_optimizer(read_description(text, "d.json"))
    assert caught.value.message == message
    assert caught.value.loc is not None and caught.value.loc.file == "d.json"


@pytest.mark.parametrize(("condition", "message"), [
    ("self.ins[src].dims[7] == 1", r"subscript 7 of 'the array' is not in 0..1"),
    ("self.ins[3].ndim == 1", "`softmax0` has no input tensor `3`"),
    ("self.derived[pad][0] == 1", "softmax derives no `pad`; there are: none"),
    ("pow(10, 1000000) > 1", "too large"),
    ("${type(int *, 3) self.ins[src].dims}[0] > 1", "an array of 2 elements where 3 are declared"),
])  # fmt: skip
def test_a_mistake_that_only_a_network_shows(condition: str, message: str) -> None:
    """It is at the condition, and notes the op."""
    described(rules("softmax", f'{{cond: ["{condition}"], match: false}}'))
    body = '%x = ln.input : tensor<2x3xf32>\n%y = ln.softmax %x {axis = 1} : tensor<2x3xf32> as "softmax0"("y")'
    with pytest.raises(LightNetError, match=message) as caught:
        run(parse(body, TYPE, "%y"), "expand")
    assert caught.value.loc is not None and caught.value.loc.file == "d.json" and caught.value.loc.col > 60
    assert "x.mlir:3:6: note: in pattern 'd.softmax', at this op" in str(caught.value)


@pytest.mark.parametrize(("details", "message"), [
    ('"n.params[axis] = 2"', "the new op `n`: .*should be < 2.*softmax.axis"),
    ('"n.params[axis] = self.params[axes][0]", "n.ins[src] = self.ins[src]"', "assigned twice"),
])  # fmt: skip
def test_a_new_op_has_to_be_well_formed(details: str, message: str) -> None:
    text = rules(
        "transpose",
        f"""{{cond: [], replace: ["softmax n"],
        details: ["n.ins[src] = self.ins[src]", {details}, "n.outs[dst] = self.outs[dst]"]}}""",
    )
    body = "%x = ln.input : tensor<2x3xf32>\n%y = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>"
    with pytest.raises(LightNetError, match=message):
        described(text)
        run(parse(body, "tensor<3x2xf32>", "%y"), "expand")


def test_types_stay() -> None:
    described(
        rules(
            "transpose",
            '{cond: [], replace: ["relu n"], details: ["n.ins[src] = self.ins[src]", "n.outs[dst] = self.outs[dst]"]}',
        )
    )
    body = "%x = ln.input : tensor<2x3xf32>\n%y = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>"
    with pytest.raises(
        LightNetError, match=r"d.json:.*a tensor<2x3xf32> takes the place of a tensor<3x2xf32>"
    ) as caught:
        run(parse(body, "tensor<3x2xf32>", "%y"), "expand")
    assert caught.value.notes[0][0] == ("x.mlir", 3, 6)


CREATED = rules(
    "reshape",
    """{cond: [], replace: ["create_ARCH k", "reshape_cuda n"], details: [
    "k.params[dtype] = tl_dtype_name(self.ins[src].dtype)", "k.params[dims] = self.ins[src].dims",
    "k.params[data] = [7]", "n.ins[src] = k.outs[dst]", "n.params = self.params", "n.outs[dst] = self.outs[dst]"]}""",
)
RESHAPED = "%x = ln.input : tensor<2x3xf32>\n%y = ln.reshape %x : tensor<3x2xf32>"


@pytest.mark.parametrize(
    ("arch", "target", "said"), [("cpu", "tensorrt", "cpu"), ("cuda", "tensorrt", "cuda"), ("cuda", "cuda", None)]
)
def test_a_new_create_stands_in_the_memory_of_its_arch(arch: str, target: str, said: str | None) -> None:
    """Which is said where the target has memory of several types."""
    loaded(f'{{author: "me", arch: "{target}", name: "d", ops: [{CREATED.replace("ARCH", arch)}]}}')
    module = run(parse(RESHAPED, "tensor<3x2xf32>", "%y"), f"expand{{target={target}}}")
    _, new, *_ = main_of(module).body.block.ops
    assert isinstance(new, Source)
    assert (MTYPE in new.attributes and new.attributes[MTYPE].data) == (said or False)


@pytest.mark.parametrize(("second", "message"), [
    ('"m.ins[src] = n.outs[dst]", "m.params[axis] = 2"', "should be < 2"),  # one op of two is made
    ('"m.ins[src] = n.outs[dst]", "m.params[axis] = 1"', "takes the place of"),  # both are, of another type
])  # fmt: skip
def test_an_error_leaves_the_network_as_it_was(second: str, message: str) -> None:
    """No op that has been made for nothing reads a value of it any more."""
    details = f'"n.ins[src] = self.ins[src]", {second}, "m.outs[dst] = self.outs[dst]"'
    described(rules("transpose", f'{{cond: [], replace: ["relu n", "softmax m"], details: [{details}]}}'))
    body = "%x = ln.input : tensor<2x3xf32>\n%y = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>"
    module = parse(body, "tensor<3x2xf32>", "%y")
    before, inside = str(module), set(module.walk())
    with pytest.raises(LightNetError, match=message):
        run(module, "expand")
    assert str(module) == before
    assert {use.operation for op in inside for result in op.results for use in result.uses} <= inside


@pytest.mark.parametrize("named", [False, True])
def test_a_network_without_names_stays_without(named: bool) -> None:
    """Of ops and of tensors, but for those that the details give; where there are names, all that is new has some."""
    described(rules("add", """{cond: [], replace: ["neg n", "sub s", "relu r", "tanh t"], details: [
        "n.ins[src] = self.ins[src2]", "s.ins[src1] = self.ins[src1]", "s.ins[src2] = n.outs[dst]",
        "r.ins[src] = s.outs[dst]", "r.outs[dst] = 'mine'",
        "t.ins[src] = r.outs[dst]", "t.outs[dst] = self.outs[dst]"]}"""))  # fmt: skip
    body = "%x = ln.input : tensor<3xf32>\n%y = ln.add %x, %x : tensor<3xf32>"
    if named:
        body = body.replace("\n", ' as "create0"("x")\n') + ' as "add0"("y")'
    module = run(parse(body, "tensor<3xf32>", "%y"), "expand")
    found = [(op.op_name, *op.tensor_names) for op in module.walk() if isinstance(op, LnOp) and op.operands]
    names = [("neg1", "neg1_dst"), ("sub1", "sub1_dst"), ("relu1", "mine"), ("tanh1", "y")]
    assert found == (names if named else [(None, None), (None, None), (None, "mine"), (None, None)])


def test_descriptions_of_targets_are_read_for_their_pass() -> None:
    """A target says when to read its descriptions: every rule is of that pass."""
    rows = [d for name in registry.TARGETS for d in get_target(name).descriptions]
    assert rows and all(cls.pass_name == row.pass_name for row in rows for cls in row.read())


def test_named_objects_inherit() -> None:
    """A description in `.op` text: one target's table on top of another's."""
    text = """base { author: "me", arch: "cpu",
        ops: [{optype: "relu", rules: [{cond: [], replace: ["relu_cpu"]}]}, {optype: "tanh", rules: [{cond: [], err: "no"}]}] }
    mine : base { ops: [{rules: [{replace: ["sigmoid"]}]}, -] }"""
    found = loaded(text, "d.op")
    assert [cls.name for cls in found] == ["base.relu", "base.tanh", "mine.relu"]


def test_the_good_description_loads() -> None:
    found = [
        (cls.name, cls.pass_name, cls.target) for cls in optimizer.load_optimizer(read_description(GOOD, "d.json"))
    ]
    assert found == [("d.conv2d", "expand", "cpu"), ("d.f", "combine", "cpu"), ("d.g", "subgraph", "cpu")]


def test_no_text_does_more_than_raise() -> None:
    """Pieces left out, doubled and swapped at random: it loads, or it is an error with a place."""
    pieces = re.findall(r"\w+|\s+|.", GOOD)
    draw = random.Random(4)
    wrong = 0
    for _ in range(300):
        mutated = list(pieces)
        for _ in range(draw.randint(1, 3)):
            i, j = draw.randrange(len(mutated)), draw.randrange(len(mutated))
            mutated[i : i + draw.randint(0, 2)] = draw.choice(([], [mutated[i]] * 2, [mutated[j]], ["$@"], ["-1"]))
        try:
            optimizer.load_optimizer(read_description("".join(mutated), "d.json"))
        except LightNetError as e:
            assert e.loc is not None and e.loc.line > 0, e
            wrong += 1
    assert wrong > 150


@pytest.mark.parametrize(("ops", "is_bounded"), [(3, False), (14, False), (15, True)])
def test_ways_to_match_are_bounded(ops: int, is_bounded: bool) -> None:
    """From a product back through layers of two sums, each of the other two, n ops in a row are looked for at 2^n - 2
    ops: beyond 2^14 it is an error that names the pattern, and no hang."""
    assert is_bounded == (2**ops - 2 > 2**14)
    names = [f"v{i}" for i in range(ops)]
    match = [f"* {n}" for n in names[:-1]] + [f"mul {names[-1]}"]
    edges = [f"{a}.outs[*] => {b}.ins[*]" for a, b in itertools.pairwise(names)] + [f"v0.outs[*] => {names[-1]}.ins[*]"]
    described(
        subgraphs=f"""{{name: "paths", pass: "simplify", match: {json.dumps(match)}, edges: {json.dumps(edges)},
        replace: ["relu r"], details: ["r.ins[src] = v0.ins[0]", "r.outs[dst] = {names[-1]}.outs[0]"]}}"""
    )
    lines = ["%v0_0 = ln.input : tensor<2xf32>", "%v0_1 = ln.input : tensor<2xf32>"]
    for i in range(1, ops + 1):
        lines += [f"%v{i}_{j} = ln.add %v{i - 1}_{j}, %v{i - 1}_{1 - j} : tensor<2xf32>" for j in (0, 1)]
    lines.append(f"%m = ln.mul %v{ops}_0, %v{ops}_1 : tensor<2xf32>")
    module = parse("\n".join(lines), "tensor<2xf32>", "%m")
    if not is_bounded:
        run(module, "simplify")
        return
    with pytest.raises(LightNetError, match="the edges leave too many ways to match") as caught:
        run(module, "simplify")
    assert caught.value.loc.file == "d.json" and caught.value.notes[0][1] == "in pattern 'd.paths', at this op"


def test_tensors_compare_as_tensors() -> None:
    """Not by their names, which a network need not have."""
    for cond in ("e.ins[src1] == e.ins[src2]", "!(e.ins[0].name != e.ins[1])", "true && e.ins[src1] == e.ins[src2]"):
        restore = registry.checkpoint()
        described(
            subgraphs=f"""{{name: "square", pass: "simplify", match: ["mul e"], cond: ["{cond}"], replace: ["elew s"],
            details: ["s.ins = e.ins", "s.params[elew_op] = TL_MUL", "s.outs[dst] = e.outs[dst]"]}}"""
        )
        body = "%x, %y = ln.scatter %i : tensor<3xf32>, tensor<3xf32>\n%a = ln.mul %x, %x : tensor<3xf32>\n%b = ln.mul %y, %a : tensor<3xf32>"
        module = run(parse("%i = ln.input : tensor<2x3xf32>\n" + body, "tensor<3xf32>", "%b"), "simplify")
        assert [op.name for op in main_of(module).body.block.ops][2:4] == ["ln.elew", "ln.mul"]
        restore()


def test_describe_says_what_the_file_is() -> None:
    """Even where the ops that its rules are about are not loaded."""
    with pytest.raises(LightNetError, match=r"fuse.json: error: the file describes rules of an optimizer, and no ops"):
        command.main([str(DESCRIBED / "fuse.json")])
