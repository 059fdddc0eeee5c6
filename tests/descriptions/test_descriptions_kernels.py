"""Inline kernels cannot do harm: accesses outside are clamped or refused, alike on both engines; nothing runs for ever or is left open."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from test_descriptions import made, op_class
from test_ops import run_kernel
from xdsl.dialects import arith, math

from lightnet.backends.llvm import index_ops, scalar_ops
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cpu import CpuKernelOp
from lightnet_descriptions import bounds, described, kernels

MEMREFS = {"SRC": "memref<${src->len}x${src->dtype}>", "DST": "memref<${dst->len}x${dst->dtype}>"}


def kernel(body: str):
    """The class of a kernel with `%c0`, `%c1` and the length `%n` at hand."""
    text = f"""func.func @k(%src: SRC, %dst: DST) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant ${{src->len}} : index
      {body}
      func.return
    }}"""
    for name, type_ in MEMREFS.items():
        text = text.replace(name, type_)
    return op_class(run=text)


def loop(body: str) -> str:
    return f"scf.for %i = %c0 to %n step %c1 {{ {body} }}"


MOVE = "%x = memref.load %src[%{}] : SRC\n memref.store %x, %dst[%{}] : DST\n"


def both(body: str, data, dtype: str = "f32") -> np.ndarray:
    """The result, which the interpreter and machine code agree on."""
    op, (array,) = made(kernel(body), src=(np.shape(data), dtype))
    array = np.asarray(data, array.dtype)
    (want,) = op.evaluate([array])
    np.testing.assert_array_equal(run_kernel(CpuKernelOp.wrap([op]), [array])[0], want)
    return want


def test_index_beyond_the_end_is_clamped():
    got = both(loop("%j = arith.addi %i, %c1 : index\n" + MOVE.format("j", "i")), [1, 2, 3, 4, 5])
    assert got.tolist() == [2, 3, 4, 5, 5]


def test_index_from_data_is_clamped():
    index = (
        "%v = memref.load %src[%i] : SRC\n %w = arith.extsi %v : i32 to i64\n %j = arith.index_cast %w : i64 to index\n"
    )
    got = both(loop(index + MOVE.format("j", "i")), [2, -(2**31), 2**31 - 1, 1], "i32")
    assert got.tolist() == [2**31 - 1, 2, 1, -(2**31)]


def test_constants_stand_in_the_text_as_it_writes_them():
    """A truth value in letters, dims with an x between them, numbers as they are, a type as it is in memory."""
    params = [
        {"arg_name": "on", "ptype": "LN_PARAM_BOOL"},
        {"arg_name": "n", "ptype": "LN_PARAM_NUMBER", "realtype": "int"},
    ]
    text = """func.func @k(%src: memref<${src->len}x${src->dtype}>, %dst: memref<${dst->len}x${dst->dtype}>) {
      // ${on} ${n} ${src->dims} ${src->dtype} ${dst->len}
      func.return
    }"""
    for on, said in ((True, "true"), (False, "false")):
        op, _ = made(op_class(params=params, run=text), src=((3, 2), "i8"), on=on, n=-7)
        rendered = op.described.kernel.render(op.env())
        assert f"// {said} -7 3x2 i8 6\n" in rendered and "memref<6xi8>" in rendered


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Texts of kernels, and types that were checked: both begin anew when there are too many."""
    monkeypatch.setattr(described, "MAX_KNOWN", 3)
    monkeypatch.setattr(kernels, "MAX_KNOWN", 2)
    cls = kernel(loop(MOVE.format("i", "i")))
    sizes = []
    for n in range(1, 8):
        made(cls, src=(n,))
        sizes.append((len(cls.described.known), len(cls.described.kernel.known)))
    assert sizes == [(1, 1), (2, 2), (3, 1), (1, 2), (2, 1), (3, 2), (1, 1)]


@pytest.mark.parametrize("far", [5, 10**9, 2**40])
def test_store_far_outside_is_clamped(far):
    """To the last element, which its own iteration writes after all others."""
    place = f"%m = arith.constant {far} : index\n %k = arith.muli %i, %m : index\n"
    body = loop(MOVE.format("i", "i") + place + MOVE.format("i", "k").replace("%x", "%y"))
    assert both(body, [4, 3, 2, 1]).tolist() == [4, 3, 2, 1]


def _truncated(x: int, y: int) -> int:
    return 0 if y == 0 else int(x / y)


#: What each op on indices is, of whole numbers; a division by zero is 0.
INDEX_OPS = {
    "arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul, "arith.maxsi": max, "arith.minsi": min,
    "arith.divsi": _truncated, "arith.floordivsi": lambda x, y: x // y if y else 0, "arith.ceildivsi": lambda x, y: -(-x // y) if y else 0,
    "arith.remsi": lambda x, y: x - y * _truncated(x, y) if y else 0,
}  # fmt: skip
#: Those whose bounds are values that occur, where operands are not negative and divisors positive.
TIGHT = INDEX_OPS.keys() - {"arith.remsi", "arith.ceildivsi"}


@pytest.mark.parametrize("name", sorted(bounds._RANGES))
def test_every_value_is_in_its_range(name):
    """All pairs of small ranges, all values in them."""
    fn, compute = INDEX_OPS[name], bounds._RANGES[name]
    ranges = [(low, high) for low in range(-4, 6) for high in range(low, min(low + 4, 6))]
    for a, b in itertools.product(ranges, ranges):
        found = compute(bounds.Range.of(*a), bounds.Range.of(*b))
        values = [fn(x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
        assert found.low <= min(values) and max(values) <= found.high, (a, b, found)
        assert found.size >= max(map(abs, values))
        if name in TIGHT and a[0] >= 0 and b[0] > 0:
            assert (found.low, found.high) == (min(values), max(values)), (a, b)
        if a[0] >= 0 and b[0] > 0 and name not in ("arith.subi",):
            assert found.low >= 0, (a, b)


def test_both_engines_have_every_op():
    known = {op.name for op in (*scalar_ops.HANDLERS, *index_ops.HANDLERS)}
    ops = {op.name for op in (*arith.Arith.operations, *math.Math.operations)} - set(kernels.ABSENT)
    assert ops <= known


def test_carried_index():
    """A counter that a loop carries: what it reaches is not known, and clamped where it is used."""
    body = "%e = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0) -> (index) {" + MOVE.format("i", "a")
    assert both(body + "%b = arith.addi %a, %c1 : index\n scf.yield %b : index }", [3, 1, 2]).tolist() == [3, 1, 2]
    body = body.replace("iter_args(%a = %c0)", "iter_args(%a = %n)")
    assert both(loop(MOVE.format("i", "i")).replace("%i ", "%z ").replace("%i]", "%z]").replace("%x", "%y") + body
                + "%b = arith.addi %a, %n : index\n scf.yield %b : index }", [3, 1, 2]).tolist() == [3, 1, 2]  # fmt: skip


def test_provable_indices_stay_as_they_are():
    cls = kernel(loop("%m = arith.subi %n, %c1 : index\n %j = arith.subi %m, %i : index\n" + MOVE.format("j", "i")))
    op, _ = made(cls, src=(7,))
    # the last subtraction is not proven by ranges of its own; a store at the loop's index is
    text = str(op.described.kernel.function_of(op))
    assert text.count("arith.maxsi") == text.count("arith.minsi") <= 1 and "memref.store %x, %dst[%i]" in text


def test_division_by_zero_and_local_memory():
    zero = "%z = arith.constant 0 : index\n %q = arith.divsi %n, %z : index\n"
    assert both(loop(MOVE.format("i", "i")).replace("%x", "%y") + zero + MOVE.format("q", "q"), [4, 5]).tolist() == [
        4,
        5,
    ]
    local = "%a = memref.alloca() : memref<4xf32>\n" + loop(
        "%x = memref.load %a[%i] : memref<4xf32>\n memref.store %x, %dst[%i] : DST"
    )
    assert both(local, [1, 2, 3]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dims", [(), (0, 3), (1,)])
def test_empty_and_rank_0(dims):
    data = np.ones(dims)
    np.testing.assert_array_equal(both(loop(MOVE.format("i", "i")), data), data)


def nested(depth: int) -> str:
    return "".join(f"scf.for %i{k} = %c0 to %c1 step %c1 {{ " for k in range(depth)) + "}" * depth


@pytest.mark.parametrize(
    "body, match",
    [
        (MOVE.format("n", "c0"), r"memref.load at 3, outside of memref<3xf32>"),
        (nested(17), "nested deeper than 16"), (nested(300), "nested more than 48 deep"),
        ("%m = arith.constant 100000000000 : index\n scf.for %i = %c0 to %m step %c1 { scf.for %j = %c0 to %m step %c1 { } }", "may run 1000000"),
        ("%m = arith.constant 1099511627777 : index", "beyond 1099511627776"),
        ("%m = arith.constant 1099511627776 : index\n %q = arith.muli %m, %m : index", "may leave 64 bits"),
        ("%a = memref.alloca() : memref<20000xf32>", "at most 65536 bytes"), ("%a = memref.alloca(%n) : memref<?xf32>", "static size"),
        ("%a = memref.alloca() : memref<2x2xf32>", "rank 1"),
        ("%v = arith.constant dense<1.0> : vector<4xf32>", "scalars"), ("%v = arith.constant 1 : i7", "scalars"),
        ("%v = arith.constant 40 : i32\n %w = arith.shli %v, %v : i32", "below its width"), ("%w = arith.shli %n, %c1 : index", "shifts an iN"),
        ('%b = "arith.cmpi"(%n, %n) <{predicate = 99 : i64}> : (index, index) -> i1', "no predicate 99"),
        ("%v = arith.constant 1.0 : f32\n %w = arith.addf %v, %v fastmath<fast> : f32", "nnan, ninf"),
        ("%v:2 = arith.mului_extended %i, %i : i32", "."), ("%s = arith.andi %n, %c1 : index", "cast them to i64"),
        ('%v = "func.call"() {callee = @f} : () -> f32', "."), ('%v = "foo.bar"() : () -> f32', "unknown dialect"),
        ("%w = arith.index_cast %n : index to i32\n scf.for %i = %w to %w step %w : i32 { }", "."),
    ],
)  # fmt: skip
def test_refused(body, match):
    with pytest.raises(LightNetError, match=match) as caught:
        made(kernel(body), src=(3,))
    assert caught.value.label == "t.run" and caught.value.notes[0][0].file == "t.json"


def test_what_a_kernel_does_not_write_shows():
    op, (array,) = made(kernel(""), src=(3,))
    assert np.isnan(op.evaluate([array])[0]).all()
