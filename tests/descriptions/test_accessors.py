"""What expressions of descriptions read of an op itself: each field, of an op of the graph and of one in a kernel."""

from __future__ import annotations

import json

import pytest

from lightnet.diagnostics import LightNetError
from lightnet.ir import registry
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.target import get_target
from lightnet_descriptions import optimizer
from lightnet_descriptions.reader import read_description
from lightnet_descriptions.scope import RuleScope, Var

NETWORK = """func.func @main() -> tensor<3x2xf32> {
%x = ln.input : tensor<2x3xf32> as "create0"("x")
%relu = ln.relu %x : tensor<2x3xf32> as "relu7"("a")
%add = ln.add %relu, %x : tensor<2x3xf32>
%softmax = ln.softmax %add {axis = 1} : tensor<2x3xf32> as "s"
%reduce_sum = ln.reduce_sum %softmax {axes = [1]} : tensor<2xf32>
%transpose = ln.transpose %softmax {axes = [1, 0]} : tensor<3x2xf32>
%reshape = ln.reshape %transpose : tensor<3x2xf32>
%forward = ln.forward %reshape : tensor<3x2xf32>
func.return %forward : tensor<3x2xf32>
}"""

#: Optype -> name, and which of these hold. What is free needs no memory of its own.
KINDS = ("elementwise", "reduction", "move", "free")
OPS: dict[str, tuple[str, set[str]]] = {
    "relu": ("relu7", {"elementwise"}),
    "add": ("", {"elementwise"}),
    "softmax": ("s", set()),
    "reduce_sum": ("", {"reduction"}),
    "transpose": ("", {"move"}),
    "reshape": ("", {"move", "free"}),
    "forward": ("", {"move", "free"}),
}


def ops_in(arch: str) -> dict[str, LnOp]:
    """The ops of the network by optype; but in the graph, each in a kernel of an arch."""
    module = parse_mlir(make_context(), NETWORK, "x.mlir")
    ops = {op.optype: op for op in main_of(module).body.block.ops if isinstance(op, LnOp) and op.operands}
    if arch != "none":
        kernel = get_target(arch).kernel_op
        ops = {
            optype: found for optype, op in ops.items() for found in kernel.wrap([op]).ops if isinstance(found, LnOp)
        }
        assert all(isinstance(op.parent_op(), KernelOp) for op in ops.values())
    return ops


def holds(text: str, op: LnOp) -> bool:
    scope = RuleScope("cpu", {"self": Var("self", (type(op),))})
    item = read_description(json.dumps({"cond": text}), "d.json").objects[""].value["cond"]
    return bool(optimizer.condition(item, scope).value({"self": op}))


@pytest.mark.parametrize("arch", sorted(["none", *(n for n in registry.TARGETS if get_target(n).kernel is not None)]))
def test_fields_of_ops(arch: str) -> None:
    """Where an op stands decides its `arch`, and nothing else."""
    arches = ["none", *(name for name in registry.TARGETS if name != "none")]
    ops = ops_in(arch)
    assert set(ops) == set(OPS)
    for optype, (name, kinds) in OPS.items():
        op = ops[optype]
        assert [other for other in arches if holds(f"self.arch == '{other}'", op)] == [arch], optype
        assert [other for other in OPS if holds(f"self.optype == '{other}'", op)] == [optype]
        assert [n for n in ("", "relu7", "s") if holds(f"self.name == '{n}'", op)] == [name], optype
        assert {kind for kind in KINDS if holds(f"self.{kind}", op)} == kinds, optype
        assert not any(holds(f"self.{kind}", op) == holds(f"!self.{kind}", op) for kind in KINDS)
        counts = (len(op.operands), len(op.results), len(op.schema.by_name))
        for section, count in zip(("ins", "outs", "params"), counts):
            assert [n for n in range(40) if holds(f"self.{section}.len == {n}", op)] == [count], (optype, section)


def test_fields_of_params() -> None:
    """A param by itself, its length and each type that C has for it; the fields of other kinds are refused."""
    numbers = {"int", "float", "double"}
    others = numbers | {"bool", "string"}
    for op in ops_in("none").values():
        for name, value in op.param_values().items():
            param, each = f"self.params[{name}]", value if isinstance(value, tuple) else (value,)
            if isinstance(value, tuple):
                lens = [f"{param}.len", f"{param}.array_len", f"len({param})"]
                for count in range(5):
                    assert {holds(f"{text} == {count}", op) for text in lens} == {count == len(value)}, name
            kind = "string" if isinstance(each[0], str) else "bool" if isinstance(each[0], bool) else "number"
            types = numbers if kind == "number" else {kind}
            array = "array_" if isinstance(value, tuple) else ""
            for type_ in sorted(types):
                for field in (f"{array}{type_}", f"value_{array}{type_}"):
                    for k, number in enumerate(each):
                        shown = f"'{number}'" if kind == "string" else str(number).lower()
                        place = f"[{k}]" if array else ""
                        assert holds(f"{param}.{field}{place} == {shown}", op), (name, field)
            assert holds(f"{param}.type == LN_PARAM_{array.upper()}{kind.upper()}", op), name
            for field in (*others - types, *(() if array else ("len", "array_len", "array_int")), "other"):
                with pytest.raises(LightNetError, match="has no field"):
                    holds(f"{param}.{field} == 1", op)
