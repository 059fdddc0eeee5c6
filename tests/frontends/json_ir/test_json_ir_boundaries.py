"""The limits of JSON IR, each at the last text that is taken and the first that is not, and what a refusal says."""

from __future__ import annotations

import json

import pytest
from test_json_ir import op, refusal, text

from lightnet.diagnostics import LightNetError
from lightnet.frontends import json_ir
from lightnet.frontends.json_ir.form import MAX_DIMS
from lightnet.frontends.netlist import Netlist
from lightnet.json_text import MAX_DEPTH

PAIR = "needs 'offset_h' and 'offset_l', two 32-bit integers"


def tensor(**more) -> dict:
    return {"arg_name": "x", "name": "t", **more}


def nested(levels: int) -> list:
    """Lists in lists."""
    value: list = []
    for _ in range(levels - 1):
        value = [value]
    return value


def kernels(levels: int) -> str:
    """An operator with a body, which has one with a body, ..."""
    inner = op(name="o")
    for _ in range(levels):
        inner = op(name="o", body=[inner])
    return text(inner)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (text(op(params=[3])), "parse error: an entry of 'params' of op 'a0' should be an object, not a number"),
        (text(op(tensors_in=[3])), "parse error: an entry of 'tensors_in' of op 'a0' should be an object, not a number"),
        (text(op(tensors_out=[tensor(dims=[1] * (MAX_DIMS + 1))])), "parse error: 'dims' of tensor 't' should be an array of at most 64 sizes"),
        (text(op(tensors_out=[tensor(dims=1)])), "parse error: 'dims' of tensor 't' should be an array of at most 64 sizes"),
        (text(op(tensors_out=[tensor(dims=[-1])])), "parse error: 'dims' of tensor 't' should be an array of at most 64 sizes"),
        (text(op(tensors_out=[tensor(layout=3)])), "parse error: \"layout\" of a tensor of op 'a0' should be a string, not a number"),
        (text(op(tensors_out=[tensor(offset_h=0)])), f"parse error: tensor 't' {PAIR}"),
        (text(op(tensors_out=[tensor(offset_l=0)])), f"parse error: tensor 't' {PAIR}"),
        (text(op(tensors_out=[tensor(offset_h=1 << 31, offset_l=0)])), "a size or offset may not be negative"),
        (text(op(tensors_out=[tensor(offset_h=-1, offset_l=0)])), "a size or offset may not be negative"),
        (text(op(tensors_out=[tensor(more=nested(MAX_DEPTH))])), f"nested deeper than {MAX_DEPTH} levels"),
        (text(op(params=[{"arg_name": "p", "value": 1, "more": nested(MAX_DEPTH)}])), f"nested deeper than {MAX_DEPTH} levels"),
        (text(mem_sizes_h=[0] * (MAX_DIMS + 1), mem_sizes_l=[0] * (MAX_DIMS + 1)), "parse error: 'mem_sizes_h' should be an array of 32-bit integers"),
        (text(mem_sizes_h=0, mem_sizes_l=[0]), "parse error: 'mem_sizes_h' should be an array of 32-bit integers"),
        (text(mem_sizes_h=[1 << 32], mem_sizes_l=[0]), "parse error: 'mem_sizes_h' should be an array of 32-bit integers"),
        (text(mem_sizes_h=[0], mem_sizes_l=[-(1 << 31) - 1]), "parse error: 'mem_sizes_l' should be an array of 32-bit integers"),
        (text(mem_sizes_h=[1 << 31], mem_sizes_l=[0]), "a size or offset may not be negative"),
        (text(mem_sizes_h=[0]), "'mem_sizes_h' needs its partner 'mem_sizes_l'"), (text(mem_sizes_l=[0]), "'mem_sizes_l' needs its partner 'mem_sizes_h'"),
        (text(mem_sizes_h=[0], mem_sizes_l=[]), "'mem_sizes_h' and 'mem_sizes_l' should have the same length"),
        (kernels(49), f"nested deeper than {MAX_DEPTH} levels"),
    ],
    ids=range(21),
)  # fmt: skip
def test_a_refusal(source: str, message: str) -> None:
    assert refusal(source).message == message


def test_the_last_that_is_taken() -> None:
    """Read, and written as it was read."""
    last = (1 << 31) - 1
    for source in (
        text(op(tensors_out=[tensor(dims=[1] * MAX_DIMS, layout="l", offset_h=last, offset_l=-(1 << 31))])),
        text(op(tensors_out=[tensor(dims=[])]), mem_sizes_h=[0] * MAX_DIMS, mem_sizes_l=[-1] * MAX_DIMS),
        text(op(tensors_out=[tensor(dims=[0, (1 << 63) - 1])]), mem_sizes_h=[last], mem_sizes_l=[last]),
        kernels(48),
    ):
        written = json_ir.write(json_ir.read(source, "n"))
        assert json_ir.write(json_ir.read(written, "n")) == written
        assert "".join(written.split()) == "".join(json_ir.write(json_ir.read(source, "n")).split())
    read = json_ir.read(text(op(tensors_out=[tensor(layout="l", offset_h=last, offset_l=-(1 << 31))])), "n")
    (found,) = read.ops[0].tensors_out
    assert (found.layout, found.offset, found.dims) == ("l", (1 << 63) - (1 << 31), None)
    assert '"offset_l" : -2147483648' in json_ir.write(read) and '"layout" : "l"' in json_ir.write(read)
    small = json_ir.write(Netlist([], "n", [(1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32]))
    assert "".join(small.split()) == '{"mem_sizes_h":[0,0,0,1],"mem_sizes_l":[2147483647,-2147483648,-1,0],"ops":[]}'


def test_where_it_was_read_and_how_much(monkeypatch, tmp_path) -> None:
    assert json_ir.read(text(op()), "-").ops[0].loc.file == "<stdin>"
    (tmp_path / "n.json").write_text(text(op(), op(name="b")))
    assert [o.name for o in json_ir.read_file(str(tmp_path / "n.json")).ops] == ["a0", "b"]
    monkeypatch.setattr(json_ir, "MAX_OPS", 1)
    assert len(json_ir.read(text(op()), "n").ops) == 1
    assert refusal(text(op(), op(name="b"))).message == "the network has more than 1 operators"


def depth(value) -> int:
    """The levels of arrays and objects of a JSON value."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max((depth(v) for v in (value.values() if isinstance(value, dict) else value)), default=0)


@pytest.mark.parametrize("tensors", [[], [{"arg_name": "d", "name": "y", "dtype": "TL_FLOAT", "dims": [1]}]])
def test_bodies_may_be_as_deep_as_anything_else(tensors: list) -> None:
    """Whatever stands in the innermost op: counted here, not by the reader."""
    taken = {}
    for levels in range(45, 51):
        inner = {"name": "o", "optype": "x", "tensors_in": [], "tensors_out": tensors, "params": []}
        for _ in range(levels):
            inner = {**op(name="o"), "tensors_in": [], "tensors_out": [], "params": [], "body": [inner]}
        source = json.dumps(top := {"ops": [inner]})
        try:
            json_ir.read(source, "f")
            taken[depth(top)] = True
        except LightNetError as e:
            assert f"nested deeper than {MAX_DEPTH} levels" in e.message
            taken[depth(top)] = False
    assert taken == {n: n <= MAX_DEPTH for n in taken} and {MAX_DEPTH, MAX_DEPTH + 2} <= set(taken)
