"""What the ops of level 4 refuse, each constraint with what is just within it: a line of a function, and the whole message (empty: it is right)."""

from __future__ import annotations

import re

import pytest
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.place import PlaceAttr
from lightnet.ir.verify import module_errors

ARGUMENTS = """%m: memref<8x6xf32>, %h: memref<8xf16>, %open: memref<?x6xf32>, %inner: memref<6x?xf32>, %x1: vector<1x4xf32>, %step: memref<8xf32, strided<[2]>>, %i: index, %s: f32, %x: vector<4xf32>,
  %a: vector<4x6xf32>, %b: vector<6x4xf32>, %c: vector<4x4xf32>, %d: vector<4x6xf64>, %n: vector<4xi32>, %nn: vector<4x4xi32>, %e: vector<4xf64>,
  %mask: vector<4xi1>, %wide: vector<8xi1>, %l: vector<4xi64>, %r: vector<6xf32>, %i32: vector<4x6xi32>, %j32: vector<6x4xi32>"""
FIT = "memref<8x6xf32>, vector<4xf32>"
KINDS = "extf, truncf, extsi, extui, trunci, sitofp, uitofp, fptosi, fptoui, bitcast"

#: A line, and what is said of it.
LINES: list[tuple[str, str]] = [
    ("%y = tile.fma %a, %b, %c : vector<4x6xf32>, vector<6x4xf32>, vector<4x4xf32>", ""),
    ("%y = tile.fma %a, %r, %x : vector<4x6xf32>, vector<6xf32>, vector<4xf32>", "expected [P.., K] . [K, N..] -> [P.., N..], got (4, 6) . (6,) -> (4,)"),
    ("%y = tile.fma %a, %a, %a : vector<4x6xf32>, vector<4x6xf32>, vector<4x6xf32>",
     "expected [P.., K] . [K, N..] -> [P.., N..], got (4, 6) . (4, 6) -> (4, 6)"),
    ("%y = tile.fma %a, %b, %a : vector<4x6xf32>, vector<6x4xf32>, vector<4x6xf32>",
     "expected [P.., K] . [K, N..] -> [P.., N..], got (4, 6) . (6, 4) -> (4, 6)"),
    ("%y = tile.fma %d, %b, %c : vector<4x6xf64>, vector<6x4xf32>, vector<4x4xf32>", "the operands have one element type"),
    ("%y = tile.fma %i32, %j32, %nn : vector<4x6xi32>, vector<6x4xi32>, vector<4x4xi32>", "expected a float element type"),
    ("%y = tile.select %mask, %x, %x : vector<4xi1>, vector<4xf32>", ""),
    ("%y = tile.select %wide, %x, %x : vector<8xi1>, vector<4xf32>", "expected a mask of i1 with the shape of vector<4xf32>, got vector<8xi1>"),
    ("%y = tile.select %n, %x, %x : vector<4xi32>, vector<4xf32>", "expected a mask of i1 with the shape of vector<4xf32>, got vector<4xi32>"),
    # casts
    ("%y = tile.cast sitofp %n : vector<4xi32> to vector<4xf32>", ""), ("%y = tile.cast fptoui %x : vector<4xf32> to vector<4xi32>", ""),
    ("%y = tile.cast extf %x : vector<4xf32> to vector<4xf64>", ""), ("%y = tile.cast truncf %e : vector<4xf64> to vector<4xf32>", ""),
    ("%y = tile.cast bitcast %x : vector<4xf32> to vector<4xi32>", ""), ("%y = tile.cast extsi %n : vector<4xi32> to vector<4xi64>", ""),
    ("%y = tile.cast round %x : vector<4xf32> to vector<4xi32>", f"unknown kind round; there are: {KINDS}"),
    ("%y = tile.cast extf %x : vector<4xf32> to vector<6xf64>", "a cast keeps the shape, got vector<4xf32> and vector<6xf64>"),
    *((f"%y = tile.cast {kind} {value} : {source} to {target}", f"{kind} cannot take {source} to {target}") for kind, value, source, target in (
        ("extf", "%e", "vector<4xf64>", "vector<4xf32>"), ("extf", "%x", "vector<4xf32>", "vector<4xf32>"), ("truncf", "%x", "vector<4xf32>", "vector<4xf32>"),
        ("truncf", "%x", "vector<4xf32>", "vector<4xf64>"), ("bitcast", "%x", "vector<4xf32>", "vector<4xi64>"), ("extsi", "%x", "vector<4xf32>", "vector<4xf64>"),
        ("extf", "%n", "vector<4xi32>", "vector<4xf64>"), ("sitofp", "%x", "vector<4xf32>", "vector<4xf64>"), ("fptosi", "%x", "vector<4xf32>", "vector<4xf64>"),
        ("fptosi", "%n", "vector<4xi32>", "vector<4xi64>"), ("trunci", "%l", "vector<4xi64>", "vector<4xi64>"), ("extui", "%l", "vector<4xi64>", "vector<4xi32>"))),
    # comparisons
    ("%y = tile.cmp olt %x, %x : vector<4xf32>", ""), ("%y = tile.cmp slt %n, %n : vector<4xi32>", ""),
    ("%y = tile.cmp olt %i, %i : index", "expected a vector type, got index"),
    ('%y = "tile.cmp"(%x, %x) <{predicate = "olt"}> : (vector<4xf32>, vector<4xf32>) -> vector<4xi1>', ""),
    ('%y = "tile.cmp"(%x, %e) <{predicate = "olt"}> : (vector<4xf32>, vector<4xf64>) -> vector<4xi1>',
     "operand 'b' at position 1 does not verify: attribute vector<4xf32> expected from variable 'T', but got vector<4xf64>"),
    ('%y = "tile.cmp"(%x, %x) <{predicate = "olt"}> : (vector<4xf32>, vector<4xf32>) -> vector<8xi1>', "expected a result of i1 with the shape of vector<4xf32>"),
    # transposes and reductions
    ("%y, %z = tile.transpose %x, %x : vector<4xf32>, vector<4xf32> -> vector<2xf32>, vector<2xf32>", "expected 4 results of type vector<2xf32>"),
    ("%y:4 = tile.transpose %x, %x : vector<4xf32>, vector<4xf32> -> vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>", ""),
    ('"tile.transpose"() : () -> ()', "expected operands of one type"),
    ("%y:4 = tile.transpose %x, %e : vector<4xf32>, vector<4xf64> -> vector<2xf32>, vector<2xf32>, vector<2xf32>, vector<2xf32>", "expected operands of one type"),
    ("%y = tile.reduce add %a dims [0, 1] : vector<4x6xf32> to f32", ""), ("%y = tile.reduce add %a dims [1] : vector<4x6xf32> to vector<4xf32>", ""),
    ("%y = tile.reduce add %a dims [0] : vector<4x6xf32> to vector<6xf32>", ""), ("%y = tile.reduce umax %n dims [0] : vector<4xi32> to i32", ""),
    ("%y = tile.reduce mean %a dims [0] : vector<4x6xf32> to vector<6xf32>", "unknown kind mean; there are: add, mul, max, min, umax, umin"),
    *((f"%y = tile.reduce add %a dims [{d}] : vector<4x6xf32> to vector<4x6xf32>", f"dims [{d}] must be sorted dimensions of vector<4x6xf32>")
      for d in ("", "1, 0", "0, 0", "2", "-1", "0, 2", "-1, 1")),
    ("%y = tile.reduce add %a : vector<4x6xf32> to f32", "Expected 'dims'"),
    # loads, stores, prefetches
    (f"%y = tile.load %m[%i, %i] dims [0] : {FIT}", ""), (f"%y = tile.load %m[%i, %i] dims [1] steps [0] valid [4] : {FIT}", ""),
    (f"%y = tile.load %m[%i, %i] dims [0] steps [-1] valid [0] : {FIT}", ""), (f"%y = tile.load %m[%i, %i] dims [0] steps [2] : {FIT}", ""),
    (f"%y = tile.load %m[%i, %i] dims [0] steps [3] valid [3] : {FIT}", ""), (f"%y = tile.load %m[%i, %i] dims [0] steps [9] valid [0] : {FIT}", ""),
    (f"%y = tile.load %m[%i, %i] dims [0] steps [9] valid [3] lanes %i : {FIT}", ""),
    (f"%y = tile.load %m[%i, %i] dims [1] steps [2] : {FIT}", "a slice of extent [1, 7] does not fit memref<8x6xf32>"),
    (f"%y = tile.load %m[%i, %i] dims [0] steps [-3] : {FIT}", "a slice of extent [10, 1] does not fit memref<8x6xf32>"),
    (f"%y = tile.load %m[%i, %i] : {FIT}", "Expected 'dims'"), (f"%y = tile.load %m[%i, %i] dims [2] : {FIT}", "dims [2] are out of range for memref<8x6xf32>"),
    (f"%y = tile.load %m[%i, %i] dims [-1] : {FIT}", "dims [-1] are out of range for memref<8x6xf32>"),
    (f"%y = tile.load %m[%i, %i] dims [0] valid [5] : {FIT}", "valid [5] exceeds the shape [4]"),
    (f"%y = tile.load %m[%i, %i] dims [0] valid [-1] : {FIT}", "valid [-1] exceeds the shape [4]"),
    (f"%y = tile.load %m[%i, %i] dims [0] steps [1, 1] : {FIT}", "dims, steps and valid need one number a dimension of vector<4xf32>"),
    (f"%y = tile.load %m[%i, %i] dims [0] valid [4, 1] : {FIT}", "dims, steps and valid need one number a dimension of vector<4xf32>"),
    ("%y = tile.load %open[%i, %i] dims [0] : memref<?x6xf32>, vector<4xf32>", ""),
    ("%y = tile.load %inner[%i, %i] dims [0] : memref<6x?xf32>, vector<4xf32>",
     "expected a memref with the identity layout, of which only the first extent may be open, got memref<6x?xf32>"),
    ("%y = tile.load %step[%i] dims [0] : memref<8xf32, strided<[2]>>, vector<4xf32>",
     "expected a memref with the identity layout, of which only the first extent may be open, got memref<8xf32, strided<[2]>>"),
    ("tile.store %x, %m[%i, %i] dims [0] : vector<4xf32>, memref<8x6xf32>", ""),
    ("tile.store %x, %m[%i, %i] dims [0] steps [0] valid [1] : vector<4xf32>, memref<8x6xf32>", ""),
    ("tile.store %x, %m[%i, %i] dims [0] steps [0] valid [2] : vector<4xf32>, memref<8x6xf32>", "a store must write each element once: distinct dims, steps other than 0"),
    ("tile.store %x1, %m[%i, %i] dims [0, 0] : vector<1x4xf32>, memref<8x6xf32>", ""),
    ("tile.store %c, %m[%i, %i] dims [0, 0] : vector<4x4xf32>, memref<8x6xf32>", "a store must write each element once: distinct dims, steps other than 0"),
    *((f"tile.prefetch %m[%i, %i] bytes {n} : memref<8x6xf32>", "" if 0 < n <= 65536 else "bytes must be 1 to 65536") for n in (-1, 0, 1, 65536, 65537)),
    # launches and copies
    *((f"tile.launch @f grid {n} []", "" if n >= 0 else "a grid has at least 0 blocks") for n in (0, 1)),
    ('"tile.launch"() <{callee = @f, grid = -1 : i64, args = []}> : () -> ()', "a grid has at least 0 blocks"),
    *((f"tile.copy {n} [a+0, b+64]", "") for n in (0, 1, 100)), ("tile.copy 64 [a+0, a+64]", ""), ("tile.copy 64 [a+64, a+0]", ""),
    ("tile.copy 64 [a+0, b+0]", ""), ("tile.copy 65 [a+64, a+0]", "the bytes that a copy reads and those that it writes overlap"),
    ("tile.copy 65 [a+0, a+64]", "the bytes that a copy reads and those that it writes overlap"), ("tile.copy 0 [a+0, a+0]", ""),
    *((f'"tile.copy"() <{{nbytes = {n} : i64, args = [{places}]}}> : () -> ()', "a copy has a number of bytes, at least 0, and two places: from where, and to where")
      for n, places in ((-1, '#ln.place<a, 0>, #ln.place<b, 0>'), (4, '#ln.place<a, 0>'))),
]  # fmt: skip


def said(line: str) -> str:
    text = f"func.func @k({ARGUMENTS}) {{\n  {line}\n  func.return\n}}\n"
    try:
        module = Parser(make_context(), text).parse_module()
    except ParseError as error:
        return str(error.msg)
    except LightNetError as error:
        return error.message
    (name,) = re.findall(r"[a-z_]+\.[a-z_]+", line)[:1]
    return "; ".join(e.message.removeprefix(f"'{name}' op: ") for e in module_errors(module))


@pytest.mark.parametrize("start", range(4))
def test_lines(start: int) -> None:
    for line, message in LINES[start::4]:
        assert said(line) == message, line


def test_places_are_at_bytes_of_named_spaces() -> None:
    assert str(PlaceAttr("arena", 0)) == "arena+0"
    for space, offset, message in (
        ("a b", 0, "a memory space is an identifier, got 'a b'"),
        ("a", -1, "an offset is at least 0, got -1"),
    ):
        with pytest.raises(VerifyException, match=f"^{message}$"):
            PlaceAttr(space, offset)
