"""The text of IR: names that say what values are, lines that are not too long, places of ops at level 4."""

from __future__ import annotations

import json
import random
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import FusedLoc, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.dialects.scf import ForOp

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import kernels, lines_of
from lightnet.frontends import mlir
from lightnet.ir.context import make_context
from lightnet.ir.locations import loc_of, places
from lightnet.ir.names import tensor_name, tensor_names
from lightnet.ir.passes import parse_pipeline
from lightnet.ir.printer import COLUMNS, HANGING, TextForm, module_text, wrapped, wrapped_line
from lightnet.ir.verify import verify_module
from lightnet.model import Model

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Convolutions by tiles, Winograd, pools, loops from definitions; a matrix product; as many targets as have kernels.
NETWORKS = [("cnn.net", "cpu"), ("cnn.net", "cuda"), ("nets/mlp.net", "cpu")]
#: What a function has that is no tensor of the network: its blocks, memory, and the locals of definitions.
OWN = {"lo", "hi", "scratch", "workspace", "work", "transformed", "top", "e", "sum"}


@cache
def level4(network: str, target: str) -> Model:
    model = lightnet.load(EXAMPLES / network)
    for step in parse_pipeline(f"@{target}"):
        step.apply(model.ctx, model.module)
    return model


@pytest.mark.parametrize("network, target", NETWORKS)
def test_arguments_and_loops_say_what_they_are(network: str, target: str) -> None:
    """A memref of a function is called as a tensor of the network, or as what it is; a loop as its axis."""
    module = level4(network, target).module
    tensors = {name for op in lightnet.load(EXAMPLES / network).main.walk() for name in tensor_names(op)}
    hints = [a.name_hint for f in kernels(module).values() for a in f.body.block.args]
    assert None not in hints
    returned = {tensor_name(v) for v in lightnet.load(EXAMPLES / network).main.body.block.last_op.operands}
    assert returned <= {hint.split(".")[0] for hint in hints} <= tensors | OWN
    loops = [op for op in module.walk() if isinstance(op, ForOp)]
    named = [op.body.block.args[0].name_hint for op in loops]
    assert 4 * sum(hint is not None for hint in named) >= 3 * len(loops)  # `i` says nothing: the printer adds it


@pytest.mark.parametrize("network, target", NETWORKS)
def test_ops_have_the_place_of_what_they_compute(network: str, target: str) -> None:
    """Every op of a kernel function, and every launch, has a line of the network: that of an op which stands there."""
    model = level4(network, target)
    statements = {
        op.location.line.data for op in lightnet.load(EXAMPLES / network).module.walk() if loc_of(op) is not None
    }
    functions = [op for f in kernels(model.module).values() for op in f.walk()]
    for op in [*functions, *lines_of(model.module)]:
        found = [*places(op.location)]
        assert found, op
        assert {p.line.data for p in found} <= statements, op


def test_an_epilogue_has_a_line_of_its_own() -> None:
    module = level4("cnn.net", "cpu").module
    function = kernels(module)["conv2d_relu_0"]
    assert isinstance(function.location, FusedLoc)
    lines = {op.name: loc_of(op).line for op in function.walk() if op.name in ("tile.fma", "tile.select")}
    assert lines["tile.fma"] < lines["tile.select"]  # the convolution, and the relu below it


@pytest.mark.parametrize("network, target", NETWORKS)
@pytest.mark.parametrize("form", [TextForm(), TextForm(locations=True, columns=70), TextForm(generic=True)], ids=str)
def test_text_is_read_again(network: str, target: str, form: TextForm) -> None:
    model = level4(network, target)
    text = module_text(model.module, form)
    again = mlir.read(text, "again.mlir", model.ctx)
    assert again.is_structurally_equivalent(model.module)
    if not form.generic:
        ours, theirs = (
            re.sub(r'loc\((unknown|"again.mlir":[\d:]+)\)', "", t) for t in (text, module_text(again, form))
        )
        assert theirs == ours  # `@main` and the module have no place before


def test_short_lines_stay_and_long_ones_end_in_time() -> None:
    text = module_text(level4("cnn.net", "cpu").module)
    long = [line for line in text.split("\n") if len(line) > COLUMNS]
    assert all(", " not in line.rstrip(",") for line in long)
    flat = module_text(level4("cnn.net", "cpu").module, TextForm(columns=0))
    short = [line for line in flat.split("\n") if len(line) <= COLUMNS]
    assert len(short) > 100 and set(short) <= set(text.split("\n"))


def test_breaking_lines_changes_white_space_alone() -> None:
    """Also of lines whose texts have what lists have, of brackets that do not fit together, of nothing to break at."""
    rng = random.Random(7)
    parts = [
        '"a, b : c, [(\\" {"',
        "x",
        "%value",
        "[",
        "]",
        "<",
        ">",
        "{",
        "}",
        "(",
        ")",
        "->",
        ", ",
        ", ",
        " : ",
        " at ",
    ]
    for _ in range(500):
        line = " " * rng.randrange(9) + "op " + "".join(rng.choices(parts, k=rng.randrange(120)))
        columns = rng.choice([10, 40, 120])
        pieces = wrapped_line(line, columns)
        assert "".join("".join(pieces).split()) == "".join(line.split())
        texts = re.compile(r'"(?:[^"\\]|\\.)*"')
        assert [t for piece in pieces for t in texts.findall(piece)] == texts.findall(line)
        assert wrapped(line, columns).split("\n") == pieces
    table = f"dense<[{', '.join(map(str, range(100_000)))}]>"
    assert max(map(len, wrapped_line(table))) <= COLUMNS


def test_a_flat_list_fills_its_lines() -> None:
    """With no brackets to respect, lines are as full as they can be, to the last column: as `textwrap` fills them."""
    rng = random.Random(5)
    for columns in range(20, 60):
        line = ", ".join("x" * rng.randint(1, 7) for _ in range(60))
        assert wrapped_line(line, columns) == textwrap.wrap(line, columns, subsequent_indent=" " * HANGING)


def test_values_without_a_hint_are_described() -> None:
    text = """func.func @f(%0: index, %1: memref<8xf32>) {
      %2 = arith.constant 0 : index
      %3 = arith.constant -3 : i32
      %4 = arith.constant true
      %5 = arith.constant 1.0 : f32
      %6 = scf.for %7 = %2 to %0 step %0 iter_args(%8 = %5) -> (f32) {
        %9 = memref.load %1[%7] : memref<8xf32>
        %10 = arith.addf %9, %8 : f32
        scf.yield %10 : f32
      }
      func.return
    }
    """
    printed = module_text(mlir.read(text, "f.mlir"))
    for expected in (
        "@f(%arg0: index, %arg1: memref<8xf32>)",
        "%c0 = arith.constant 0",
        "%c-3_i32 = arith.constant",
        "%true =",
        "%cst =",
        "%acc = scf.for %i = %c0 to %arg0 step %arg0 iter_args(%acc_1 = %cst)",
        "%arg1.value = memref.load %arg1[%i]",
        "%0 = arith.addf %arg1.value, %acc_1",
    ):
        assert expected in printed
    assert module_text(mlir.read(printed, "again.mlir")) == printed


def test_only_arguments_of_what_is_isolated_are_called_arguments() -> None:
    """As of a function. Of an op that nobody defined nothing is known: its arguments, and those of a loop in it, stand
    beside the values around them, as numbers where nothing says what they are."""
    text = """func.func @f(%0: index) {
      "my.op"(%0) ({
      ^bb0(%1: index, %2: f32):
        %3 = scf.for %4 = %1 to %0 step %0 iter_args(%5 = %2) -> (f32) {
          scf.yield %5 : f32
        }
        func.func @g(%6: f32) {
          func.return
        }
        "my.use"(%3) : (f32) -> ()
      ^bb1(%7: index):
        "my.use"(%7) : (index) -> ()
      }) : (index) -> ()
      func.return
    }
    """
    ctx = make_context(allow_unregistered=True)
    printed = module_text(mlir.read(text, "f.mlir", ctx))
    for expected in (
        "@f(%arg0: index)",
        '"my.op"(%arg0) ({',
        "^bb0(%0: index, %1: f32):",
        "%acc = scf.for %i = %0 to %arg0 step %arg0 iter_args(%acc_1 = %1)",
        "@g(%arg0",
        "^bb1(%2: index):",
    ):
        assert expected in printed
    assert module_text(mlir.read(printed, "again.mlir", ctx)) == printed


#: What a tensor, a file and a message may be called; what a value and a choice may.
TEXTS = ["x", "1", "é", "日本語 {", "a, b : c", "-> (", 'a"b', "a\\b", "x" * 500, "\u2028", "\xa0\x85\x7f", "😀"]
VALUES = ["1", "x_1", "x_1_2", "x_1_1_1", "_1_2", "x_", "-", "$a", "c0", "arg0", "c0_1", "tensor"]
CHOICES = ["alg", "my key", "1x", "a.b", "é", "a-b", 'a"b']


def named(text: str, value: str = "v", choice: str = "alg", file: str = "f.mlir") -> ModuleOp:
    """A network that is called so wherever it has names."""
    quoted = json.dumps(text, ensure_ascii=False)
    source = f"""func.func @main() -> tensor<4xf32> {{
      %{value} = ln.input : tensor<4xf32> as ({quoted})
      %n = ln.relu %{value} {{ln.note = {quoted}}} : tensor<4xf32>
      %x_7 = ln.relu %n {{{json.dumps(choice + ".note", ensure_ascii=False)}}} : tensor<4xf32>
      ln.print %x_7 {{msg = {quoted}}}
      %y, %z = cpu.kernel(%a = %x_7) choices {{{json.dumps(choice, ensure_ascii=False)} = 3}} {{
        %0 = ln.relu %a : tensor<4xf32>
        ln.yield %0, %0
      }} : tensor<4xf32>, tensor<4xf32> as ("y", "z")
      func.return %y : tensor<4xf32>
    }}"""
    return mlir.read(source, file)


NAMED = [{"text": t, "file": t} for t in TEXTS] + [{"text": "x", "value": v} for v in VALUES]
NAMED += [{"text": "x", "choice": c} for c in CHOICES]


@pytest.mark.sampled(every=5, share=0.2)
@pytest.mark.parametrize("names", NAMED, ids=lambda names: ascii([*names.values()][-1][:20]))
@pytest.mark.parametrize("columns", [0, 1, 40])
@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("locations", [False, True])
def test_any_names_are_read_again(names: dict[str, str], columns: int, generic: bool, locations: bool) -> None:
    form, module = TextForm(generic, locations, columns), named(**names)
    text = module_text(module, form)
    again = mlir.read(text, "again.mlir")
    assert again.is_structurally_equivalent(module)
    if not locations:
        assert module_text(again, form) == text


@pytest.mark.parametrize("names", ['["\\FF"]', "[1]", "3", "[[]]"])
def test_names_that_are_no_texts_are_refused(names: str) -> None:
    module = mlir.read('func.func @main() { %x = ln.input : tensor<4xf32> as ("NAME") func.return }', "f.mlir")
    text = module_text(module, TextForm(generic=True)).replace('["NAME"]', names)
    with pytest.raises(LightNetError, match=r"its ln\.tensors should be an array of strings"):
        verify_module(mlir.read(text, "f.mlir"))


def test_functions_have_the_names_of_the_first_kernel_and_lines_those_of_each() -> None:
    """Equal kernels share a function: what is theirs alone stands on their launches."""
    source = """func.func @main() -> (tensor<5xf32>, tensor<5xf32>) {
      %a = ln.input : tensor<5xf32> as ("a")
      %b = ln.input : tensor<5xf32> as ("b")
      %y = ln.relu %a : tensor<5xf32> as ("first")
      %z = ln.relu %b : tensor<5xf32> as ("second")
      func.return %y, %z : tensor<5xf32>, tensor<5xf32>
    }"""
    ctx = make_context()
    module = mlir.read(source, "two.mlir", ctx)
    for step in parse_pipeline("bind,expand,plan,lower-cpu"):
        step.apply(ctx, module)
    function = kernels(module)["relu_0"]
    assert isinstance(function, FuncOp)
    assert [a.name_hint for a in function.body.block.args] == ["lo", "hi", "a", "first"]
    launches = [line for line in module_text(module).split("\n") if "launch @relu_0 " in line]
    assert [re.findall(r'as \("(\w+)"\)', line) for line in launches] == [["first"], ["second"]]
