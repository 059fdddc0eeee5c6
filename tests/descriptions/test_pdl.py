"""Patterns in PDL: what they match, what they make, that results stay what they were, and errors at the place of a mistake."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.frontends import mlir
from lightnet.ir import rewrites
from lightnet.ir.module import main_of
from lightnet.ir.passes import Instrumentation, parse_pipeline, run_pipeline
from lightnet.ir.rewriting import rewrite_greedily
from lightnet.ir.verify import verify_module
from lightnet.plugins import load
from lightnet_descriptions import pdl, pdl_match
from lightnet_descriptions.rewriting import span_of

V, A, O, T = "!pdl.value", "!pdl.attribute", "!pdl.operation", "!pdl.type"


def module(body: str, result: str = "tensor<2x3xf32>", *, value: str = "%y"):
    """A network with the input %x of type tensor<2x3xf32>; its result is `value`."""
    text = f'func.func @main() -> {result} {{\n%x = ln.input {{ran = [-1, 1]}} : tensor<2x3xf32> as "i"("x")\n{body}\n'
    return mlir.read(text + f"func.return {value} : {result}\n}}", "net.mlir")


def patterns(text: str) -> list[type]:
    return pdl.load_pdl(text, "rules.mlir")


def rewritten(net, text: str, *, same: bool = True) -> list[str]:
    """The ops of a network after the patterns; the module verifies and (`same`) computes what it did."""
    before = graph.run(net)
    rewrite_greedily(net, [cls() for cls in patterns(text)], dce=True)
    verify_module(net)
    if same:
        for name, array in graph.run(net).items():
            np.testing.assert_array_equal(array, before[name])
    return [op.name.removeprefix("ln.") for op in main_of(net).body.block.ops][1:-1]


RELU_OF_RELU = f"""
// relu(relu(x)) = relu(x)
pdl.pattern @double_relu : benefit(1) {{
  %x = pdl.operand
  %inner = pdl.operation "ln.relu" (%x : {V})
  %y = pdl.result 0 of %inner
  %outer = pdl.operation "ln.relu" (%y : {V})
  pdl.rewrite %outer {{ pdl.replace %outer with %inner }}
}}
"""

TRANSPOSES = f"""
// transpose(transpose(x, p), q) = transpose(x, p of q)
pdl.pattern @transpose_pair : benefit(1) {{
  %x = pdl.operand
  %p = pdl.attribute
  %q = pdl.attribute
  %inner = pdl.operation "ln.transpose" (%x : {V}) {{"axes" = %p}}
  %y = pdl.result 0 of %inner
  %outer = pdl.operation "ln.transpose" (%y : {V}) {{"axes" = %q}}
  pdl.rewrite %outer {{
    %r = pdl.apply_native_rewrite "compose"(%p, %q : {A}, {A}) : {A}
    %new = pdl.operation "ln.transpose" (%x : {V}) {{"axes" = %r}}
    pdl.replace %outer with %new
  }}
}}
"""


# -- matching and making -----------------------------------------------------------------------------------


def test_replace_by_a_matched_op() -> None:
    net = module("%a = ln.relu %x : tensor<2x3xf32>\n%b = ln.relu %a : tensor<2x3xf32>\n"
                 '%y = ln.relu %b : tensor<2x3xf32> as "r"("y")')  # fmt: skip
    assert rewritten(net, RELU_OF_RELU) == ["relu"]
    assert list(graph.run(net)) == ["y"]  # the output keeps its name


def test_class_says_what_the_file_says() -> None:
    text = f'builtin.module attributes {{ln.pass = "expand", ln.target = "cpu"}} {{{RELU_OF_RELU}}}'
    (cls,) = patterns(text)
    assert (cls.name, cls.pass_name, cls.target, cls.rule.matcher.roots) == (
        "double_relu",
        "expand",
        "cpu",
        ("ln.relu",),
    )
    assert cls.rule.equation == "relu(relu(x)) = relu(x)" and str(cls.declared_at) == "rules.mlir:3:1"
    (cls,) = patterns(RELU_OF_RELU)
    assert (cls.pass_name, cls.target) == ("simplify", "*")


def test_parameters_that_are_bound_and_computed() -> None:
    """The composed permutation is right for one that is not its own inverse."""
    body = ("%r = ln.reshape %x : tensor<1x2x3xf32>\n"
            "%a = ln.transpose %r {axes = [2, 0, 1]} : tensor<3x1x2xf32>\n"
            '%y = ln.transpose %a {axes = [2, 1, 0]} : tensor<2x1x3xf32> as "t"("y")')  # fmt: skip
    net = module(body, "tensor<2x1x3xf32>")
    assert rewritten(net, TRANSPOSES) == ["reshape", "transpose"]


def test_parameter_that_is_constant() -> None:
    """A constant matches the value as the op reads it: 0 is 0.0, and 0.5 is not."""
    text = f"""
    pdl.pattern @lrelu_of_zero : benefit(1) {{
      %x = pdl.operand
      %zero = pdl.attribute = 0 : i32
      %op = pdl.operation "ln.lrelu" (%x : {V}) {{"negslope" = %zero}}
      pdl.rewrite %op {{
        %new = pdl.operation "ln.relu" (%x : {V})
        pdl.replace %op with %new
      }}
    }}
    """
    for slope, op in (("0.0", "relu"), ("0", "relu"), ("0.5", "lrelu")):
        net = module(f'%y = ln.lrelu %x {{negslope = {slope}}} : tensor<2x3xf32> as "l"("y")')
        assert rewritten(net, text) == [op]


def test_dag_with_a_shared_operand() -> None:
    """A diamond: both operands have to come from one value; and an op with a bound value of another kind does not match."""
    text = f"""
    // x * sigmoid(x) = swish(x)
    pdl.pattern @swish : benefit(1) {{
      %x = pdl.operand
      %s = pdl.operation "ln.sigmoid" (%x : {V})
      %v = pdl.result 0 of %s
      pdl.apply_native_constraint "one_use"(%s : {O})
      %mul = pdl.attribute = "TL_MUL"
      %m = pdl.operation "ln.elew" (%x, %v : {V}, {V}) {{"elew_op" = %mul}}
      pdl.rewrite %m {{
        %new = pdl.operation "ln.relu" (%x : {V})
        pdl.replace %m with %new
      }}
    }}
    """
    mul = '%y = ln.elew {a}, {b} {{elew_op = "TL_MUL"}} : tensor<2x3xf32> as "e"("y")'
    sigmoid = "%s = ln.sigmoid %x : tensor<2x3xf32>\n%o = ln.relu %x : tensor<2x3xf32>\n"
    assert "elew" not in rewritten(module(sigmoid + mul.format(a="%x", b="%s")), text, same=False)
    assert "elew" in rewritten(module(sigmoid + mul.format(a="%o", b="%s")), text)
    assert "elew" in rewritten(module(sigmoid + mul.format(a="%s", b="%x")), text)
    used_twice = (
        sigmoid + "%z = ln.add %s, %s : tensor<2x3xf32>\n" + mul.format(a="%x", b="%s") + '\nln.print %z {msg = ""}'
    )
    assert "elew" in rewritten(module(used_twice), text)


CONV_BATCHNORM = f"""
// batchnorm(conv(x, w, 0)) stays what it is, with the scale of the norm in its mean's place: a DAG of five values
pdl.pattern @conv_then_norm : benefit(1) {{
  %x = pdl.operand
  %w = pdl.operand
  %b = pdl.operand
  %rest = pdl.operands
  %t = pdl.type
  %conv = pdl.operation "ln.conv2d" (%x, %w, %b : {V}, {V}, {V})
  %c = pdl.result 0 of %conv
  %eps = pdl.attribute
  %norm = pdl.operation "ln.batchnorm" (%c, %rest : {V}, !pdl.range<value>) {{"epsilon" = %eps}} -> (%t : {T})
  pdl.apply_native_constraint "static"(%w : {V})
  pdl.rewrite %norm {{
    %n = pdl.operation "ln.batchnorm" (%c, %rest : {V}, !pdl.range<value>) {{"epsilon" = %eps}} -> (%t : {T})
    %v = pdl.result 0 of %n
    %r = pdl.operation "ln.relu" (%v : {V}) -> (%t : {T})
    pdl.replace %norm with %r
  }}
}}
"""


def test_conv_and_batchnorm() -> None:
    """Operands as a range, a type that is bound and asked for, a chain of new ops; once, as the driver counts."""
    body = """
    %c = ln.input {ran = [0, 1]} : tensor<1x2x4x4xf32> as "c"("c")
    %w = ln.WHAT {ran = [0, 1]} : tensor<3x2x1x1xf32> as "w"("w")
    %b = ln.param {ran = [0, 1]} : tensor<3xf32> as "b"("b")
    %k = ln.conv2d %c, %w, %b {size = [1, 1]} : tensor<1x3x4x4xf32>
    %y = ln.batchnorm %k, %b, %b, %b, %b {epsilon = 1} : tensor<1x3x4x4xf32> as "n"("y")
    """
    for what, applied in (("param", True), ("input", False)):
        net = module(body.replace("WHAT", what), "tensor<1x3x4x4xf32>")
        with rewrites.recording(rewrites.Rewrites(limit=1)) as run:
            rewrite_greedily(net, [cls() for cls in patterns(CONV_BATCHNORM)])
        verify_module(net)
        assert run.count == int(applied)
        assert ("ln.relu" in str(net)) is applied


def test_root_that_does_not_reach_all_climbs_to_users() -> None:
    """Two readers of one value: the root is one, the other is found among the value's users, whichever stands first."""
    text = f"""
    // max(x) and min(x) of one tensor: the second result takes a name of the first
    pdl.pattern @both : benefit(1) {{
      %x = pdl.operand
      %a = pdl.operation "ln.relu" (%x : {V})
      %b = pdl.operation "ln.sigmoid" (%x : {V})
      pdl.rewrite %a {{
        %r = pdl.operation "ln.tanh" (%x : {V})
        %s = pdl.operation "ln.abs" (%x : {V})
        pdl.replace %a with %r
        pdl.replace %b with %s
      }}
    }}
    """
    one, two = "%a = ln.relu %x : tensor<2x3xf32>\n", "%b = ln.sigmoid %x : tensor<2x3xf32>\n"
    add = '%y = ln.add %a, %b : tensor<2x3xf32> as "e"("y")'
    for body in (one + two + add, two + one + add, one + "%c = ln.relu %x : tensor<2x3xf32>\n" + two + add):
        names = rewritten(module(body), text, same=False)
        assert {"tanh", "abs"} <= set(names) and "sigmoid" not in names
    lonely = module(one + '%y = ln.add %a, %a : tensor<2x3xf32> as "e"("y")')
    assert rewritten(lonely, text) == ["relu", "add"]


def test_several_results() -> None:
    """An op with two results is matched through either, and replaced by two values, or by an op with two."""
    text = f"""
    pdl.pattern @topk_of_relu : benefit(1) {{
      %x = pdl.operand
      %axis = pdl.attribute
      %relu = pdl.operation "ln.relu" (%x : {V})
      %r = pdl.result 0 of %relu
      %op = pdl.operation "ln.maxreduce_arg" (%r : {V}) {{"axis" = %axis}}
      %v = pdl.result 0 of %op
      %i = pdl.result 1 of %op
      pdl.rewrite %op {{
        %n = pdl.operation "ln.maxreduce_arg" (%x : {V}) {{"axis" = %axis}}
        %nv = pdl.result 0 of %n
        %ni = pdl.result 1 of %n
        %nr = pdl.operation "ln.relu" (%nv : {V})
        %z = pdl.result 0 of %nr
        pdl.replace %op with (%z, %ni : {V}, {V})
      }}
    }}
    """
    body = ('%a = ln.input {data = [1, 2, 3, 6, 5, 4]} : tensor<2x3xf32> as "j"("a")\n%r = ln.relu %a : tensor<2x3xf32>\n'
            '%v, %i = ln.maxreduce_arg %r {axis = 1} : tensor<2x1xf32>, tensor<2x1xi32> as "m"("v", "i")')  # fmt: skip
    net = mlir.read("func.func @main() -> (tensor<2x1xf32>, tensor<2x1xi32>) {\n" + body +
                    "\nfunc.return %v, %i : tensor<2x1xf32>, tensor<2x1xi32>\n}", "net.mlir")  # fmt: skip
    assert rewritten(net, text) == ["maxreduce_arg", "relu"]


def test_variadic_operands_as_a_range() -> None:
    text = f"""
    // concat(xs) on axis 0 of no more than one tensor's worth: concat(a, rest) = concat(rest', a) is not equal, so only names change
    pdl.pattern @concat_twice : benefit(1) {{
      %xs = pdl.operands
      %axis = pdl.attribute
      %in = pdl.operation "ln.concat" (%xs : !pdl.range<value>) {{"axis" = %axis}}
      %m = pdl.result 0 of %in
      %last = pdl.operand
      %out = pdl.operation "ln.concat" (%m, %last : {V}, {V}) {{"axis" = %axis}}
      pdl.rewrite %out {{
        %all = pdl.range %xs, %last : !pdl.range<value>, {V}
        %new = pdl.operation "ln.concat" (%all : !pdl.range<value>) {{"axis" = %axis}}
        pdl.replace %out with %new
      }}
    }}
    """
    body = ("%a = ln.relu %x : tensor<2x3xf32>\n%c = ln.concat %x, %a, %x {axis = 0} : tensor<6x3xf32>\n"
            '%y = ln.concat %c, %a {axis = AXIS} : RESULT as "c"("y")')  # fmt: skip
    net = module(body.replace("AXIS", "0").replace("RESULT", "tensor<8x3xf32>"), "tensor<8x3xf32>")
    assert rewritten(net, text) == ["relu", "concat"]


def test_benefit_and_names() -> None:
    """The greater benefit goes first; a trace names the pattern, with the place of the op."""
    lrelu = RELU_OF_RELU.replace("benefit(1)", "benefit(3)").replace("double_relu", "first")
    assert [cls.name for cls in patterns(RELU_OF_RELU + lrelu)] == ["first", "double_relu"]


def test_erase_only_what_nobody_reads() -> None:
    text = f"""
    pdl.pattern @erased : benefit(1) {{
      %x = pdl.operand
      %a = pdl.operation "ln.relu" (%x : {V})
      %y = pdl.result 0 of %a
      %b = pdl.operation "ln.relu" (%y : {V})
      pdl.rewrite %b {{
        %n = pdl.operation "ln.relu" (%x : {V})
        pdl.replace %b with %n
        pdl.erase %a
      }}
    }}
    """
    chain = '%a = ln.relu %x : tensor<2x3xf32>\n%y = ln.relu %a : tensor<2x3xf32> as "r"("y")\n'
    assert rewritten(module(chain), text) == ["relu"]
    assert rewritten(module(chain + 'ln.print %a {msg = ""}'), text) == ["relu", "relu", "print"]


class Seen(Instrumentation):
    """What was rewritten, and where."""

    wants_rewrites = True

    def __init__(self) -> None:
        self.rewrites: list[tuple[str, str]] = []

    def rewrote(self, rewrite: rewrites.Rewrite) -> None:
        self.rewrites.append((rewrite.pattern, str(rewrite.where)))


def test_what_is_refused_leaves_no_reader_and_the_next_match_is_tried() -> None:
    """The first user that matches is read by others and cannot be erased; the second can. The ops made for the first are
    gone: a value has the readers that stand in the network."""
    text = f"""
    pdl.pattern @drop : benefit(1) {{
      %x = pdl.operand
      %a = pdl.operation "ln.relu" (%x : {V})
      %b = pdl.operation "ln.sigmoid" (%x : {V})
      pdl.rewrite %a {{
        %n = pdl.operation "ln.tanh" (%x : {V})
        pdl.replace %a with %n
        pdl.erase %b
      }}
    }}"""
    read, alone = "%b = ln.sigmoid %x : tensor<2x3xf32>\n", "%c = ln.sigmoid %x : tensor<2x3xf32>\n"
    end = '%a = ln.relu %x : tensor<2x3xf32>\n%y = ln.add %a, VALUE : tensor<2x3xf32> as "e"("y")'
    net = module(read + end.replace("VALUE", "%b"))
    rewrite_greedily(net, [cls() for cls in patterns(text)])
    ops = list(main_of(net).body.block.ops)
    assert [op.name for op in ops[1:-1]] == ["ln.sigmoid", "ln.relu", "ln.add"]
    assert {use.operation for use in ops[0].results[0].uses} == {ops[1], ops[2]}
    net = module(read + alone + end.replace("VALUE", "%b"))
    rewrite_greedily(net, [cls() for cls in patterns(text)])
    assert [op.name for op in main_of(net).body.block.ops][1:-1] == ["ln.sigmoid", "ln.tanh", "ln.add"]


def test_loaded_file_works_in_the_pass_it_names(tmp_path: Path) -> None:
    """In `expand` of one target only, on the machine, and gone afterwards."""
    text = f"""builtin.module attributes {{ln.pass = "expand", ln.target = "cpu"}} {{
    pdl.pattern @swap_add : benefit(1) {{
      %x = pdl.operand
      %y = pdl.operand
      %a = pdl.operation "ln.add" (%x, %y : {V}, {V})
      pdl.rewrite %a {{
        %n = pdl.operation "ln.add" (%y, %x : {V}, {V})
        pdl.replace %a with %n
      }}
    }} }}"""
    (tmp_path / "rules.mlir").write_text(text)
    net = module('%a = ln.relu %x : tensor<2x3xf32>\n%y = ln.add %x, %a : tensor<2x3xf32> as "e"("y")')
    with load(tmp_path / "rules.mlir") as (plugin,):
        assert [p.name for p in plugin.patterns] == ["swap_add"]
        seen = Seen()
        run_pipeline(None, net.clone(), parse_pipeline("bind,expand"), [seen])
        assert ("swap_add", "net.mlir:4:6") in seen.rewrites
    with load(tmp_path / "rules.mlir") as _:
        compiled = lightnet.compile(lightnet.loads(str(net), ".mlir"))
        expected = lightnet.compile(lightnet.loads(str(net), ".mlir"), "none")
        np.testing.assert_allclose(compiled()["y"], expected()["y"], rtol=1e-6)


def test_clash_names_both_places(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.mlir").write_text(RELU_OF_RELU)
    with pytest.raises(LightNetError) as e, load(tmp_path / "a.mlir", tmp_path / "b.mlir"):
        pass
    both = f"by {tmp_path}/a.mlir:3:1 and by {tmp_path}/b.mlir:3:1"
    assert f"pattern 'double_relu' of pass 'simplify' is defined twice: {both}" in str(e.value)
    with pytest.raises(LightNetError, match="is already defined at"):
        (tmp_path / "c.mlir").write_text(RELU_OF_RELU * 2)
        with load(tmp_path / "c.mlir"):
            pass


# -- what a pattern may leave open --------------------------------------------------------------------------


def test_a_rewrite_that_names_no_op_starts_at_the_one_that_no_other_reads() -> None:
    """Whether the others are read as one result or as all of them."""
    for read, kind in (("%y = pdl.result 0 of %inner", V), ("%y = pdl.results of %inner", "!pdl.range<value>")):
        text = RELU_OF_RELU.replace("%y = pdl.result 0 of %inner", read)
        text = text.replace(f"(%y : {V})", f"(%y : {kind})").replace("pdl.rewrite %outer", "pdl.rewrite")
        (cls,) = patterns(text)
        assert cls.rule.matcher.roots == ("ln.relu",)
        net = module("%a = ln.relu %x : tensor<2x3xf32>\n%y = ln.relu %a : tensor<2x3xf32>")
        assert rewritten(net, text) == ["relu"]


def typed(operand: str, type: str, more: str = "") -> str:
    """relu(x) = abs(relu(x)) for an x whose type is given, or bound."""
    return f"""
    pdl.pattern @typed : benefit(1) {{
      %t = pdl.type{type}
      %x = {operand} : %t
      %a = pdl.operation "ln.NAME" (%x : KIND) {more}
      pdl.rewrite %a {{
        %n = pdl.operation "ln.NEW" (%x : KIND) {more}
        pdl.replace %a with %n
      }}
    }}"""


def test_types_of_operands() -> None:
    """A type that is given has to be the operand's, in the order of the dims; one that is open binds, and is asked for again."""
    relu = typed("pdl.operand", " : TYPE").replace("NAME", "relu").replace("NEW", "tanh").replace("KIND", V)
    net = "%y = ln.relu %x : tensor<2x3xf32>"
    assert rewritten(module(net), relu.replace("TYPE", "tensor<2x3xf32>"), same=False) == ["tanh"]
    for other in ("tensor<3x2xf32>", "tensor<2x3xf64>", "tensor<2xf32>"):
        assert rewritten(module(net), relu.replace("TYPE", other)) == ["relu"]
    result = (
        typed("pdl.operand", "", f"-> (%t : {T})").replace("NAME", "relu").replace("NEW", "tanh").replace("KIND", V)
    )
    assert rewritten(module(net), result, same=False) == ["tanh"]
    turned = result.replace("ln.relu", "ln.transpose").replace("ln.tanh", "ln.relu")
    body = "%y = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>"
    assert rewritten(module(body, "tensor<3x2xf32>"), turned) == ["transpose"]


SORTED_TWICE = """
pdl.pattern @sorted_twice : benefit(1) {
  %x = pdl.operands
  %k = pdl.attribute
  %inner = pdl.operation "ln.sort1d_by_key" (%x : !pdl.range<value>) {"dir" = %k}
  %both = pdl.results of %inner
  %outer = pdl.operation "ln.sort1d_by_key" (%both : !pdl.range<value>) {"dir" = %k}
  pdl.rewrite %outer { pdl.replace %outer with %inner }
}
"""


def test_all_results_of_an_op_are_the_operands_of_another() -> None:
    """As many as there are, of one op, in order."""
    keys, both = "tensor<4xf32>", "tensor<4xf32>, tensor<4xi32>"
    for ends, ops in (("%a, %b", 1), ("%k, %b", 2), ("%a, %v", 2), ("%k, %v", 2)):
        net = mlir.read(f"""func.func @main() -> ({both}) {{
            %k = ln.input {{data = [3, 1, 4, 2]}} : {keys} as "k"("k")
            %v = ln.input {{data = [5, 6, 7, 8]}} : tensor<4xi32> as "v"("v")
            %a, %b = ln.sort1d_by_key %k, %v {{dir = "TL_SORT_DIR_ASCENDING"}} : {both}
            %c, %d = ln.sort1d_by_key {ends} {{dir = "TL_SORT_DIR_ASCENDING"}} : {both} as "s"("c", "d")
            ln.print %b {{msg = ""}}
            func.return %c, %d : {both}\n}}""", "net.mlir")  # fmt: skip
        assert rewritten(net, SORTED_TWICE).count("sort1d_by_key") == ops, ends


def test_results_of_an_op_are_no_empty_range() -> None:
    """A range of all results of an op is not that of an op which reads no more than the operands before it."""
    text = f"""pdl.pattern @joined : benefit(1) {{
        %x = pdl.operand
        %y = pdl.operand
        %a = pdl.operation "ln.relu" (%y : {V})
        %rs = pdl.results of %a
        %axis = pdl.attribute
        %all = pdl.operation "ln.concat" (%x, %rs : {V}, !pdl.range<value>) {{"axis" = %axis}}
        pdl.rewrite %all {{
          %new = pdl.operation "ln.concat" (%x, %y : {V}, {V}) {{"axis" = %axis}}
          pdl.replace %all with %new
        }}
    }}"""
    for operands, rows, ops in (("%x", 2, ["concat"]), ("%x, %a", 4, ["concat"]), ("%x, %x", 4, ["concat"]),
                                ("%x, %a, %a", 6, ["relu", "concat"]), ("%a", 2, ["relu", "concat"])):  # fmt: skip
        result = f"tensor<{rows}x3xf32>"
        net = module(f"%a = ln.relu %x : tensor<2x3xf32>\n%y = ln.concat {operands} {{axis = 0}} : {result}", result)
        assert rewritten(net, text, same=operands != "%x, %a") == ops, operands


def test_types_of_results() -> None:
    """As many as the op has, or any number where it has any."""
    text = """pdl.pattern @cut : benefit(1) {
      %x = pdl.operand
      %t = pdl.type
      %a = pdl.operation "ln.scatter" (%x : !pdl.value) -> (%t, %t : !pdl.type, !pdl.type)
      pdl.rewrite %a { pdl.erase %a }
    }"""
    (cls,) = patterns(text)
    assert cls.rule.matcher.roots == ("ln.scatter",)


NUMBERS = [(3, 5), (5, 3), (-2.5, 4), (2, 0.5), ((1, 7, 3), (4, -2, 3)), ((0.5,), (2,)), ((), ())]


@pytest.mark.parametrize(
    ("name", "function"), [("add", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)]
)
def test_native_rewrites_of_numbers(name: str, function) -> None:
    """NumPy's of the same name, for numbers and element by element; arrays of two lengths, text and bools are refused."""
    kinds, apply = pdl_match.REWRITES[name]
    assert kinds == ("aa",)
    for a, b in NUMBERS:
        found = apply(a, b)
        assert isinstance(found, tuple) is isinstance(a, tuple)
        np.testing.assert_array_equal(found, function(a, b))
    for a, b in (
        ((1, 2), (1,)),
        (1, (1,)),
        ((1,), 1),
        ("a", 1),
        (1, "a"),
        (True, 1),
        (1, False),
        (None, 1),
        ((1, "a"), (1, 2)),
    ):
        with pytest.raises(LightNetError, match="takes two numbers, or two arrays of one length, and gets "):
            apply(a, b)


def test_native_rewrite_of_permutations() -> None:
    """Transposing by both, as NumPy does."""
    _, compose = pdl_match.REWRITES["compose"]
    x = np.arange(24).reshape(2, 3, 4)
    for first in itertools.permutations(range(3)):
        for second in ((1, 2, 0), (0, 2, 1), (0, 1, 2)):
            np.testing.assert_array_equal(x.transpose(compose(first, second)), x.transpose(first).transpose(second))
    for first, second in (
        ((0, 1), (0,)),
        ((0,), (0, 1)),
        ((0, 0), (0, 1)),
        ((1, 0), (1, 1)),
        (1, (0,)),
        ((0,), 0),
        ((0, 2), (1, 0)),
        ((1, 0), (2, 0)),
    ):
        with pytest.raises(LightNetError, match="takes two permutations of one length, and gets "):
            compose(first, second)


# -- errors ------------------------------------------------------------------------------------------------

HEAD = '%x = pdl.operand\n%a = pdl.operation "ln.relu" (%x : !pdl.value)\n%r = pdl.result 0 of %a\n'
TAIL = "pdl.rewrite %a {\npdl.replace %a with (%x : !pdl.value)\n}"

USED_TANH = (
    '%b = pdl.operation "ln.tanh" (%x : !pdl.value)\npdl.apply_native_constraint "one_use"(%b : !pdl.operation)\n'
)

MALFORMED = [
    ("func.func @main() {\nfunc.return\n}", 1, "holds pdl.pattern and modules, not func.func"),
    ("", 0, "there is no pdl.pattern"),
    ("builtin.module attributes {ln.pas = \"x\"} {}", 1, "attributes ln.pass and ln.target"),
    ("builtin.module attributes {ln.pass = 3} {}", 1, "attributes ln.pass and ln.target"),
    ('builtin.module attributes {ln.pass = "simplfy"} {}', 1, "unknown pass 'simplfy'; did you mean simplify?"),
    ('builtin.module attributes {ln.pass = "plan"} {}', 1, "pass 'plan' takes no patterns"),
    ('builtin.module attributes {ln.target = "cpv"} {}', 1, "unknown target 'cpv'; there are: cpu, cuda, cudnn, dpu, none, tensorrt"),
    ("pdl.pattern : benefit(1) {\n" + HEAD + TAIL + "\n}", 1, "a pattern needs a name"),
    ("pdl.pattern @p : benefit(99999999) {\n" + HEAD + TAIL + "\n}", 1, ""),
    ("pdl.pattern @p : benefit(1) {\n" + HEAD + "}", 3, "expected a bindable user"),
]  # fmt: skip


def wrong(body: str) -> str:
    return f"pdl.pattern @p : benefit(1) {{\n{body}\n}}"


BODIES = [
    (HEAD.replace("ln.relu", "ln.rleu") + TAIL, 3, "unknown op 'ln.rleu'; did you mean ln.relu"),
    (HEAD.replace('"ln.relu"', "") + TAIL, 3, "an op of a pattern needs a name"),
    (HEAD.replace("(%x : !pdl.value)", "(%x, %x : !pdl.value, !pdl.value)") + TAIL, 3, "ln.relu needs 1 operands, and has 2"),
    (HEAD.replace("result 0", "result 1") + TAIL, 4, "ln.relu has 1 results, and no number 1"),
    (HEAD + TAIL.replace("pdl.replace %a with (%x : !pdl.value)", ""), 5, "neither replaces nor erases"),
    (HEAD + TAIL.replace("pdl.replace %a", "pdl.replace %b"), 6, "value '%b' is used but never defined"),
    (HEAD + TAIL.replace("(%x : !pdl.value)", "(%x, %x : !pdl.value, !pdl.value)"), 6, "has 1 results, and 2 values"),
    (HEAD + TAIL.replace("(%x :", "(%r :"), 6, "uses a result of an op that the rewrite removes"),
    (HEAD + TAIL.replace("\npdl.replace", "\npdl.erase %a\npdl.replace"), 7, "and once"),
    (HEAD + TAIL.replace("\npdl.replace", '\n%k = pdl.attribute = 1 : i32\n%n = pdl.operation "ln.relu" (%x : !pdl.value) '
     '{"slope" = %k}\npdl.replace'), 7, "'slope' is no parameter of ln.relu; there are: none"),
    (HEAD + TAIL.replace("\npdl.replace", '\n%n = pdl.operation "ln.softmax" (%x : !pdl.value)\npdl.replace'), 6,
     "ln.softmax needs its parameter 'axis'"),
    (HEAD + TAIL.replace("\npdl.replace", '\n%k = pdl.attribute = "one"\n%n = pdl.operation "ln.softmax" (%x : !pdl.value) '
     '{"axis" = %k}\npdl.replace'), 7, "parameter 'axis' of ln.softmax is of type LN_PARAM_NUMBER, and gets a LN_PARAM_STRING"),
    (HEAD + TAIL.replace("\npdl.replace", "\n%k = pdl.attribute = tensor<2xf32>\npdl.replace"), 6, ""),
    (HEAD + 'pdl.apply_native_constraint "never"(%x : !pdl.value)\n' + TAIL, 5, 'unknown native constraint "never"; there are: '
     "one_use"),
    (HEAD + 'pdl.apply_native_constraint "same_type"(%x : !pdl.value)\n' + TAIL, 5, 'constraint "same_type" takes value, value'),
    (HEAD + "pdl.rewrite %a with \"mine\"", 5, "no external rewrite functions"),
    (HEAD + '%z = pdl.operand\n%b = pdl.operation "ln.tanh" (%z : !pdl.value)\n' + TAIL, 6, "expected a bindable user"),
    (HEAD + TAIL.replace("\npdl.replace", "\n%k = pdl.attribute\npdl.replace"), 6, ""),
    (HEAD + TAIL.replace("pdl.replace", "pdl.replcae"), 6, "unknown op 'pdl.replcae'"),
    (HEAD + "%t = pdl.type : tensor<2xf32>\n" + TAIL, 5, "expected a bindable user"),
    # what may stand where
    ("%t = pdl.type : f32\n%k = pdl.attribute : %t\n" + HEAD.replace('"ln.relu" (%x : !pdl.value)', '"ln.lrelu" (%x : !pdl.value) {"negslope" = %k}')
     + TAIL, 3, "parameters have no MLIR type: give a value, or leave the attribute open"),
    (HEAD + '%c = pdl.apply_native_constraint "same_type"(%x, %r : !pdl.value, !pdl.value) : !pdl.attribute\n' + TAIL, 5,
     "native constraints have no results here"),
    (HEAD + TAIL.replace("\npdl.replace", '\n%k = pdl.attribute = 1 : i32\n%s = pdl.apply_native_rewrite "add"(%k, %k : !pdl.attribute, '
     "!pdl.attribute) : !pdl.value\npdl.replace"), 7, 'native rewrite "add" has one result, a !pdl.attribute'),
    (HEAD + TAIL.replace("\npdl.replace", '\n%s = pdl.apply_native_rewrite "sub"(%x : !pdl.value) : !pdl.attribute\npdl.replace'), 6,
     'unknown native rewrite "sub"; there are: compose, add, mul, min, max'),
    (HEAD + TAIL.replace("\npdl.replace", '\n%s = pdl.apply_native_rewrite "add"(%x : !pdl.value) : !pdl.attribute\npdl.replace'), 6,
     'native rewrite "add" takes attribute, attribute'),
    (HEAD + TAIL.replace("\npdl.replace", "\n%s = pdl.operand\npdl.replace"), 6, "pdl.operand cannot stand in a rewrite here"),
    (HEAD + "%k = pdl.attribute = 1 : i32\n%s = pdl.apply_native_rewrite \"add\"(%k, %k : !pdl.attribute, !pdl.attribute) : !pdl.attribute\n"
     + TAIL, 6, "pdl.apply_native_rewrite cannot stand in a pattern here"),
    # operands, results, parameters
    ("%p = pdl.operands\n%q = pdl.operands\n%x = pdl.operand\n%a = pdl.operation \"ln.concat\" (%p, %q, %x : !pdl.range<value>, !pdl.range<value>, "
     "!pdl.value)\n" + TAIL, 5, "at most one of the operands to match is a range"),
    ('%x = pdl.operand\n%a = pdl.operation "ln.concat"\n%r = pdl.result 0 of %a\n%b = pdl.operation "ln.add" (%r, %x : !pdl.value, !pdl.value)\n'
     + TAIL.replace("%a", "%b"), 3,
     "ln.concat needs at least 1 operands, and has 0 here"),
    ("%t = pdl.type\n" + HEAD.replace("(%x : !pdl.value)", "(%x : !pdl.value) -> (%t, %t : !pdl.type, !pdl.type)") + TAIL, 4,
     "ln.relu has 1 results, and 2 types here"),
    (HEAD + TAIL.replace("\npdl.replace", '\n%k = pdl.attribute = "TL_AND"\n%n = pdl.operation "ln.elew" (%x, %x : !pdl.value, !pdl.value) '
     '{"elew_op" = %k}\npdl.replace'), 7, "parameter 'elew_op' of ln.elew is one of TL_MUL, "),
    (HEAD + TAIL.replace("\npdl.replace", '\n%k = pdl.attribute = 1 : i32\n%n = pdl.operation "ln.softmax" (%x : !pdl.value) '
     '{"axis" = %k, "axis" = %k}\npdl.replace'), 7, "'axis' is given twice"),
    (HEAD + TAIL.replace("\npdl.replace", "\n%s = pdl.results 0 of %a -> !pdl.range<value>\npdl.replace"), 6,
     "ops have no groups of results: pdl.results of %op, or pdl.result 0 of %op"),
    *((HEAD + TAIL.replace("\npdl.replace", f'\n%k = pdl.attribute = {value}\n%n = pdl.operation "ln.softmax" (%x : !pdl.value) '
       '{"axis" = %k}\npdl.replace'), 6, "is no parameter: a number, a string, a bool, or an array of one of these")
      for value in ("unit", '[1, "a"]', "[true, 1]", "[[1], [2]]", "f32")),
    # the pattern as a whole
    (HEAD + USED_TANH + TAIL.replace("pdl.rewrite %a", "pdl.rewrite"), 7,
     "the rewrite should name the op to start at: pdl.rewrite %op"),
    (HEAD + "%z = pdl.operand\n" + USED_TANH.replace("%x", "%z") + TAIL, 6,
     "the op shares no operand with those that matching comes to before it"),
    ("%p = pdl.operands\n" + HEAD.replace("(%x : !pdl.value)", "(%p : !pdl.range<value>)").replace("relu", "concat").replace("%x = pdl.operand\n", "")
     + USED_TANH.replace("(%x : !pdl.value)", "(%p : !pdl.range<value>)").replace("tanh", "concat") + TAIL.replace("(%x : !pdl.value)", "%b"), 5,
     "the op shares no operand with those that matching comes to before it"),
    (HEAD + "%k = pdl.attribute\npdl.apply_native_constraint \"equal\"(%k, %k : !pdl.attribute, !pdl.attribute)\n" + TAIL, 6,
     "uses a value that nothing in the pattern decides"),
    (HEAD + "%z = pdl.operand\npdl.apply_native_constraint \"one_use\"(%z : !pdl.value)\n" + TAIL, 6,
     "uses a value that nothing in the pattern decides"),
    # what is removed
    (HEAD + TAIL.replace("\npdl.replace", '\n%n = pdl.operation "ln.tanh" (%x : !pdl.value)\npdl.erase %n\npdl.replace'), 7,
     "only an op that is matched can be replaced or erased, and once"),
    (HEAD + '%b = pdl.operation "ln.tanh" (%r : !pdl.value)\n' + "pdl.rewrite %b {\npdl.erase %a\npdl.replace %b with %a\n}", 8,
     "an op that the rewrite removes cannot take the place of another one"),
    (HEAD + '%b = pdl.operation "ln.tanh" (%r : !pdl.value)\n' + "pdl.rewrite %b {\npdl.erase %a\npdl.replace %b with (%r : !pdl.value)\n}", 8,
     "uses a result of an op that the rewrite removes"),
    (HEAD + TAIL.replace("\npdl.replace %a with (%x : !pdl.value)", '\n%k = pdl.attribute = 1 : i32\n%n = pdl.operation '
     '"ln.maxreduce_arg" (%x : !pdl.value) {"axis" = %k}\npdl.replace %a with %n'), 8, "ln.relu has 1 results, and 2 values would take their place"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), [*MALFORMED, *((wrong(b), n, m) for b, n, m in BODIES)])
def test_malformed(text: str, line: int, message: str) -> None:
    with pytest.raises(LightNetError) as e:
        pdl.load_pdl(text, "rules.mlir")
    assert message in e.value.message or message in e.value.render()
    assert e.value.loc is not None and e.value.loc.file == "rules.mlir"
    if message:
        assert e.value.loc.line == line


def test_cut_off_files_are_errors() -> None:
    """Every prefix of a file is refused with its place, or is a file of fewer patterns."""
    text = RELU_OF_RELU + TRANSPOSES
    for end in range(0, len(text), 17):
        try:
            patterns(text[:end])
        except LightNetError as e:
            assert e.loc is not None and e.loc.file == "rules.mlir"


def test_types_that_do_not_fit_are_an_error_at_the_op() -> None:
    text = f"""
    pdl.pattern @p : benefit(1) {{
      %x = pdl.operand
      %a = pdl.operation "ln.transpose" (%x : {V})
      pdl.rewrite %a {{ pdl.replace %a with (%x : {V}) }}
    }}"""
    net = module('%y = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32> as "t"("y")', "tensor<3x2xf32>")
    with pytest.raises(LightNetError) as e:
        rewritten(net, text)
    assert str(
        e.value.loc
    ) == "net.mlir:3:6" and "tensor<3x2xf32>, and they would be replaced by tensor<2x3xf32>" in str(e.value)
    assert "rules.mlir:5:24: note: in the rewrite of pattern 'p'" in e.value.render()


def test_new_op_that_breaks_a_constraint_is_an_error_of_the_pattern() -> None:
    text = TRANSPOSES.replace("%new = pdl.operation", "%bad = pdl.attribute = [0, 0]\n%new = pdl.operation").replace(
        '"axes" = %r', '"axes" = %bad'
    )
    body = '%a = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>\n%y = ln.transpose %a {axes = [1, 0]} : tensor<2x3xf32> as "t"("y")'
    with pytest.raises(LightNetError, match="in the rewrite of pattern 'transpose_pair'"):
        rewritten(module(body), text)


def test_endless_pattern_is_named() -> None:
    text = f"""
    pdl.pattern @forever : benefit(1) {{
      %x = pdl.operand
      %a = pdl.operation "ln.relu" (%x : {V})
      pdl.rewrite %a {{
        %n = pdl.operation "ln.relu" (%x : {V})
        pdl.replace %a with %n
      }}
    }}"""
    with pytest.raises(LightNetError, match="pattern 'forever' still matches"):
        rewritten(module('%y = ln.relu %x : tensor<2x3xf32> as "r"("y")'), text)


def test_ways_to_match_are_bounded() -> None:
    """A few ops of a pattern, each one of the users of one value: an error that names the pattern, and no hang."""
    others = "".join(
        f'%s{i} = pdl.operation "ln.neg" (%x : {V})\n%r{i} = pdl.result 0 of %s{i}\n%t{i} = pdl.operation "ln.abs" (%r{i} : {V})\n'
        f'pdl.apply_native_constraint "one_use" (%t{i} : !pdl.operation)\n'
        for i in range(6)
    )
    text = f"""pdl.pattern @many : benefit(1) {{
        %x = pdl.operand
        %a = pdl.operation "ln.relu" (%x : {V})
        {others}
        %never = pdl.operation "ln.sign" (%x : {V})
        pdl.apply_native_constraint "one_use" (%never : !pdl.operation)
        pdl.rewrite %a {{ pdl.replace %a with %never }}
    }}"""
    pairs = (f"%n{i} = ln.neg %x : tensor<2x3xf32>\n%m{i} = ln.abs %n{i} : tensor<2x3xf32>\n" for i in range(12))
    net = module("".join(pairs) + "%y = ln.relu %x : tensor<2x3xf32>")
    with pytest.raises(LightNetError, match="leaves too many ways to match") as caught:
        rewrite_greedily(net, [cls() for cls in patterns(text)])
    assert caught.value.loc.file == "rules.mlir" and caught.value.notes[0][1] == "in pattern 'many', at this op"


def test_the_time_of_a_rewrite_is_that_of_what_it_matches() -> None:
    """Ops of a pattern stand near each other: where they are is found from the root, not by walking the block."""
    net = module(
        "%a = ln.neg %x : tensor<2x3xf32>\n%b = ln.abs %a : tensor<2x3xf32>\n%y = ln.relu %b : tensor<2x3xf32>"
    )
    _, a, b, y, _ = main_of(net).body.block.ops
    assert span_of(y, {a, y}) == [a, b, y] and span_of(a, {a, b}) == [a, b] and span_of(b, {b}) == [b]
    assert span_of(b, {a, b, y}) == [a, b, y]
