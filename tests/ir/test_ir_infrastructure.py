"""Locations, the located parser, the verifier and the rewrite driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
from counting import calls
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntegerAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
    i32,
)
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir import verify
from lightnet.ir.context import make_context
from lightnet.ir.locations import SourceMap, file_loc, fuse_locations, fused, loc_of, places, set_loc, source_loc
from lightnet.ir.op import name_of, tensor_names
from lightnet.ir.parser import parse_mlir
from lightnet.ir.rewriting import rewrite_greedily
from lightnet.ir.verify import LOCAL, error_of, verify_module

CHAIN = """\
func.func @main() -> tensor<2x3xf32> {
  %x = ln.create {ran = [0, 1]} : tensor<2x3xf32>
  %y = ln.relu %x : tensor<2x3xf32> as "relu0"("y")
  %z = ln.relu %y : tensor<2x3xf32> as "relu1"("z")
  func.return %z : tensor<2x3xf32>
}
"""


def parsed(text: str) -> ModuleOp:
    return parse_mlir(make_context(), text, "f.mlir")


def test_every_op_has_the_place_of_its_name() -> None:
    """The oracle is the text itself: what stands at an op's place is its name."""
    text = CHAIN + '"builtin.module"() ({\n  func.func @g() {\n    func.return\n  }\n}) : () -> ()\n'
    lines = text.split("\n")
    ops = list(parsed(text).walk())[1:]
    assert len(ops) == 8
    for op in ops:
        loc = loc_of(op)
        assert lines[loc.line - 1][loc.col - 1 :].lstrip('"').startswith(op.name)


def test_locations_cost_little() -> None:
    """The parser with locations takes some 10 % more than xDSL's on the shortest ops."""
    text = "func.func @f(%a0: f32) {\n"
    text += "".join(f"  %a{i + 1} = arith.addf %a{i}, %a{i} : f32\n" for i in range(100)) + "  func.return\n}\n"
    ctx = make_context()
    counts = []
    for parse in (lambda: Parser(ctx, text).parse_module(), lambda: parse_mlir(ctx, text)):
        parse()  # what is made once
        with calls() as made:
            parse()
        counts.append(made.count)
    plain, located = counts
    assert located < 1.15 * plain


PLACELESS = ("", " loc(unknown)", ' loc("a")', ' loc(fused["a", "b"])', ' loc("other.mlir":7:9)')


@pytest.mark.parametrize("first", PLACELESS)
@pytest.mark.parametrize("second", PLACELESS)
def test_what_is_never_defined_is_shown_at_its_first_use(first: str, second: str) -> None:
    """Also where the ops that use it say that they come from elsewhere, or from nowhere; the oracle is the text."""
    text = f"%0 = arith.addi %u, %u : i32{first}\n%1 = arith.addi %u, %0 : i32{second}\n"
    with pytest.raises(LightNetError, match="value '%u' is used but never defined") as error:
        parsed(text)
    assert error.value.loc == SourceLoc("f.mlir", 1, 1 + text.index("%u"))


@pytest.mark.parametrize(
    "text",
    [
        # A function's name is not another's, and a definition of before is of its own function.
        "func.func @f() {\n  %0 = arith.addi %u, %u : i32\n  %u = arith.constant 1 : i32\n  func.return\n}\n"
        "func.func @g() {\n  %0 = arith.addi %HERE, %u : i32\n  func.return\n}\n",
        # A name that begins as another does, and parts of one value.
        "%0 = arith.addi %ub, %ub : i32\n%ub = arith.constant 1 : i32\n%1 = arith.addi %HERE#1, %u#0 : i32\n",
        # An op's operands stand before those of the ops in it.
        '"scf.if"(%HERE) ({\n  "scf.if"(%u) ({\n    scf.yield\n  }, {\n  }) : (i1) -> ()\n  scf.yield\n}, {\n}) : (i1) -> ()\n',
    ],
)
def test_uses_are_told_apart_by_where_they_stand(text: str) -> None:
    at = text.index("HERE") - 1
    with pytest.raises(LightNetError, match="value '%u' is used but never defined") as error:
        parsed(text.replace("HERE", "u"))
    line = text.count("\n", 0, at)
    assert error.value.loc == SourceLoc("f.mlir", line + 1, at - text.rfind("\n", 0, at))


def test_line_numbers_continue_from_first_line() -> None:
    module = parse_mlir(make_context(), CHAIN, "f.mlir", first_line=100)
    assert loc_of(list(module.walk())[2]) == SourceLoc("f.mlir", 101, 8)


def test_fused_locations_are_distinct_and_flat() -> None:
    a, b, c = (arith.ConstantOp.from_int_and_width(i, 32) for i in range(3))
    set_loc(a, SourceLoc("f", 1, 2))
    set_loc(b, SourceLoc("f", 3, 4))
    both = fused([a, b, a, c])
    assert isinstance(both, FusedLoc)
    assert [str(p) for p in both.locations] == ['loc("f":1:2)', 'loc("f":3:4)']
    assert fuse_locations([both, a.location]) == both
    assert fused([a, c]) == file_loc(SourceLoc("f", 1, 2))
    assert fused([c]) == UNKNOWN_LOC
    set_loc(c, both)
    assert loc_of(c) == SourceLoc("f", 1, 2)


def _nested(rng: Random, depth: int) -> Attribute:
    """A location of any kind, with others inside."""
    place = file_loc(SourceLoc(f"f{rng.randrange(3)}", rng.randrange(1, 9), rng.randrange(1, 9)))
    kind = rng.randrange(6) if depth else rng.choice((0, 4, 5))
    match kind:
        case 1:
            return CallSiteLoc(_nested(rng, depth - 1), _nested(rng, depth - 1))
        case 2:
            return FusedLoc(ArrayAttr([_nested(rng, depth - 1) for _ in range(rng.randrange(4))]), NoneAttr())
        case 3:
            return NameLoc(StringAttr("n"), _nested(rng, depth - 1))
        case 4:
            return NameLoc(StringAttr("n"), NoneAttr())
        case 5:
            return UNKNOWN_LOC if rng.random() < 0.3 else place
    return place


def test_places_stand_in_the_order_of_the_text() -> None:
    """However call sites, names and fused locations are nested: the oracle is xDSL's text of the location."""
    rng, kinds = Random(0), Counter()
    for _ in range(300):
        loc = _nested(rng, 4)
        text = re.findall(r'"(f\d)":(\d+):(\d+)', str(loc))
        wanted = [SourceLoc(file, int(line), int(col)) for file, line, col in text]
        assert list(places(loc)) == list(map(file_loc, wanted)), str(loc)
        assert source_loc(loc) == next(iter(wanted), None)
        kinds[type(loc)] += 1
    assert kinds.keys() == {FileLineColLoc, CallSiteLoc, FusedLoc, NameLoc, UnknownLoc}


def test_source_map() -> None:
    sources = SourceMap()
    sources.add("f", "one\ntwo\n\nfour", first_line=11)
    lines = [sources.line(SourceLoc("f", n, 1)) for n in (10, 11, 12, 13, 14, 15)]
    assert lines == [None, "one", "two", "", "four", None]
    assert sources.line(SourceLoc("g", 11, 1)) is None


# -- verifier ----------------------------------------------------------------------------------------------


def test_unreachable_blocks_may_be_used() -> None:
    text = """func.func @f(%x: f32) {
      cf.br ^b
    ^a:
      %0 = arith.addf %x, %x : f32
      cf.br ^b
    ^b:
      func.return
    }"""
    verify_module(parsed(text))


def test_dominance_between_blocks() -> None:
    text = """func.func @f(%x: f32, %c: i1) {
      cf.cond_br %c, ^a, ^b
    ^a:
      %0 = arith.addf %x, %x : f32
      cf.br ^b
    ^b:
      %1 = arith.addf %0, %x : f32
      func.return
    }"""
    with pytest.raises(LightNetError, match=r"operand 0.*is used before it is defined at f.mlir:4:12"):
        verify_module(parsed(text))
    verify_module(parsed(text.replace("cf.cond_br %c, ^a, ^b", "cf.br ^a")))


def test_erased_operand() -> None:
    module = parsed(CHAIN)
    relus = [op for op in module.walk() if isinstance(op, Relu)]
    relus[0].detach()
    relus[0].erase(safe_erase=False)
    with pytest.raises(LightNetError, match="result of an op that was erased"):
        verify_module(module)


def test_verifier_error_has_place_label_and_op() -> None:
    text = CHAIN.replace("ln.relu %y :", "ln.slice %y {axis = 0, start = 1, len = 2} :")
    ctx = make_context()
    with pytest.raises(LightNetError) as e:
        verify_module(parse_mlir(ctx, text, "f.mlir"), ctx)
    assert (e.value.loc, e.value.label) == (SourceLoc("f.mlir", 4, 8), "slice.range")
    assert e.value.source_line == text.split("\n")[3]
    assert e.value.notes[0][1].startswith("the op is: %z = ln.slice %y")


#: Ops of level 4 that are verified by themselves, one kind of each shape: elementwise, constants, memory, vectors, library functions.
ALONE = """func.func @f(%a: f32, %i: index, %m: memref<4xf32>, %p: i1) {
  %0 = arith.constant 1.0 : f32
  %1 = arith.addf %a, %0 : f32
  %2 = arith.cmpf olt, %a, %1 : f32
  %3 = arith.select %2, %a, %1 : f32
  %4 = memref.load %m[%i] : memref<4xf32>
  memref.store %4, %m[%i] : memref<4xf32>
  %5 = math.exp %4 : f32
  %6 = vector.broadcast %5 : f32 to vector<4xf32>
  %7 = arith.index_cast %i : index to i32
  func.return
}
"""


def _says(verifies: Callable[[], object]) -> bool:
    try:
        return not verifies()
    except Exception:  # xDSL raises bare ones, too
        return False


def _wrong(op: Operation) -> Iterator[None]:
    """The op without each of its properties, with each operand replaced by each other value, and with one more and one less."""
    for name, value in list(op.properties.items()):
        del op.properties[name]
        yield
        op.properties[name] = IntegerAttr(7, i32)
        yield
        op.properties[name] = value
    operands, block = list(op.operands), op.parent_block()
    for others in ([*operands, *block.args[:1]], operands[:-1], *([v] * len(operands) for v in block.args)):
        op.operands = others
        yield
        op.operands = operands


def test_a_kind_that_is_right_says_nothing_of_others() -> None:
    """Of an op that is broken in many ways after its kind was found right, what each op's own verifier says, in either order."""
    module = parsed(ALONE)
    ops = [op for op in module.walk() if op.name.partition(".")[0] in LOCAL]
    verdicts = []
    for _ in range(2):
        verify_module(module)
        for op in ops:
            for _ in _wrong(op):
                right = _says(op.verify_)
                assert _says(lambda op=op: error_of(op, in_place=False)) == right, op
                verdicts.append(right)
    assert set(verdicts) == {True, False}
    verify_module(module)


def test_kinds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many kinds nor large constants are kept."""
    monkeypatch.setattr(verify, "MAX_KINDS", most := 64)
    monkeypatch.setattr(verify, "_right", set())
    lines = [f"  %{n} = arith.constant {n} : i32" for n in range(most + 10)]
    verify_module(parsed("func.func @f() {\n" + "\n".join(lines) + "\n  func.return\n}"))
    assert 0 < len(verify._right) <= most
    big = parsed("func.func @f() {\n  %0 = arith.constant dense<1.0> : tensor<64xf32>\n  func.return\n}")
    assert verify._kind(next(op for op in big.walk() if op.name == "arith.constant")) is None


# -- rewriting ---------------------------------------------------------------------------------------------


class ReluOfRelu(RewritePattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu) and isinstance(inner := op.src.owner, Relu):
            rewriter.replace(op, new := Relu.make([inner.src]))
            if not inner.results[0].uses:
                rewriter.erase(inner)
            self.last = new


def test_rewriting_keeps_names_and_fuses_locations() -> None:
    module = parsed(CHAIN)
    assert rewrite_greedily(module, [ReluOfRelu()])
    relus = [op for op in module.walk() if isinstance(op, Relu)]
    assert len(relus) == 1
    assert (name_of(relus[0]), tensor_names(relus[0])) == ("relu1", ("z",))
    assert [str(p) for p in relus[0].location.locations] == ['loc("f.mlir":4:8)', 'loc("f.mlir":3:8)']
    verify_module(module)
    assert not rewrite_greedily(module, [ReluOfRelu()])


def test_unused_ops_stay_unless_asked() -> None:
    text = CHAIN.replace("return %z", "return %x")
    module = parsed(text)
    assert not rewrite_greedily(module, [])
    assert rewrite_greedily(module, [], dce=True)
    assert not any(isinstance(op, Relu) for op in module.walk())


class Flip(RewritePattern):
    # a + b = b + a: never settles
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, arith.AddfOp):
            rewriter.replace(op, arith.AddfOp(op.rhs, op.lhs))


class Grow(RewritePattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, arith.AddfOp):
            rewriter.insert(arith.AddfOp(op.rhs, op.lhs))


@pytest.mark.parametrize("pattern", [Flip, Grow])
def test_unsettled_pattern_is_named(pattern: type[RewritePattern]) -> None:
    module = parsed("func.func @f(%a: f32, %b: f32) {\n  %c = arith.addf %a, %b : f32\n  func.return\n}")
    with pytest.raises(LightNetError, match=rf"^f.mlir:2:8: error: .*pattern '{pattern.__name__}' still matches"):
        rewrite_greedily(module, [ReluOfRelu(), pattern()])


class Refuse(RewritePattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu):
            raise LightNetError("cannot run this")


def test_error_of_a_pattern_has_the_place_of_its_op() -> None:
    with pytest.raises(LightNetError) as e:
        rewrite_greedily(parsed(CHAIN), [Refuse()])
    assert e.value.loc == SourceLoc("f.mlir", 3, 8)
