"""What a kernel is built by does not depend on what was compiled before: plans that are kept say what those made anew would (`backends/selection.py`)."""

import pytest
from blocked_kernels import kernel_of
from empty_ops import OPS, variants
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block

import lightnet
from lightnet.backends.cpu.blocked.base import processor_model_of
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.selection import SELECTION as CUDA
from lightnet.backends.selection import has_maps
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.body import Body, OfEqualKernels
from lightnet.ir.refusal import refusal_reason
from lightnet.ir.target import get_target
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME

#: A machine whose kernels are the same wherever the tests run, and memory for some of the weights only.
CPU = {"features": "avx512", "weight_memory": 300_000}
#: Convolutions whose weights, transformed, take more than they may, so that what each could do is weighed.
CHAIN = "".join(
    f"create(| dst=w{i} | dtype=TL_FLOAT, dims=[{after}, {before}, 3, 3]);\n"
    f"create(| dst=b{i} | dtype=TL_FLOAT, dims=[{after}]);\n"
    f"conv2d(src=x{i}, weight=w{i}, bias=b{i} | dst=x{i + 1} | size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], "
    'dilation=[1, 1], group=1, autopad="NOTSET");\n'
    for i, (before, after) in enumerate([(32, 64), (64, 64), (64, 128), (128, 64), (64, 192)])
)


def forget() -> None:
    """Forget all plans, as a new process knows none."""
    for selection in (SELECTION, CUDA):
        selection.__init__()


def texts(**options: object) -> tuple[str, str]:
    """The planned network and its loops."""
    inputs = "input(| dst=x0 | dtype=TL_FLOAT, dims=[1, 32, 28, 28]);\n"
    made = lightnet.compile(lightnet.loads(inputs + CHAIN, ".net"), **options)
    return str(made.planned), str(made.loops)


@pytest.mark.parametrize("options", [{**CPU, "threads": 1}, {**CPU, "threads": 8}, {"target": "cuda"}], ids=str)
def test_plans_that_were_forgotten_are_made_again(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = texts(**options)
    forget()
    monkeypatch.setattr(OfEqualKernels, "MOST", 1)
    assert texts(**options) == expected


def test_plans_for_another_machine_are_not_taken() -> None:
    def planned(threads: int, **options: object) -> str:
        return texts(**CPU, threads=threads, **options)[0]

    one, eight = planned(1), planned(8)
    assert "winograd" in one
    forget()
    assert (planned(8), planned(1)) == (eight, one)
    planned(1, exact=True)
    assert (planned(1), planned(8)) == (one, eight)


MAP, ROWS = "tensor<1x16x8x8xf32>", "tensor<16x8xf32>"


@pytest.mark.parametrize("alg", [None, "loops"])
@pytest.mark.parametrize(
    ("type", "line", "is_on_maps"),
    [(MAP, f"ln.softmax %x {{axis = 2}} : {MAP}", True), (MAP, "ln.reduce_sum %x {axes = [2]} : tensor<1x16x1x8xf32>", True),
     (MAP, f"ln.cumsum %x {{axis = 2}} : {MAP}", False), (ROWS, f"ln.softmax %x {{axis = 1}} : {ROWS}", False), (ROWS, f"ln.relu %x : {ROWS}", False)],
)  # fmt: skip
def test_loops_are_offered_on_maps_alone(type: str, line: str, is_on_maps: bool, alg: str | None) -> None:
    """Where no other generator takes a body, or loops are asked for: their form on maps, which `layout` weighs against the plain
    one; where they have none, there is nothing to weigh."""
    kernel = kernel_of({"x": type}, f"%y = {line} ln.yield %y")
    if alg is not None:
        kernel.attributes["alg"] = StringAttr(alg)
    found = SELECTION.numbered_blocking(kernel, processor_model_of("avx512"))
    assert bool(found) == is_on_maps
    assert not found or (has_maps(found.form) and not found.form.plain_results)


def test_every_generator_answers_for_every_op() -> None:
    """A list of forms, or a refusal with a sentence, for samples and for what is empty of them: anything else is an error
    (`Generator.forms`), which no other generator stands in for."""
    asked: dict[str, int] = {}
    reasons: dict[str, set[str]] = {}
    for cls in OPS.values():
        case = cls.schema.resolve(cls.samples()[0])
        values = ((case.tensors[f.name] if f.variadic else (case.tensors[f.name],)) for f in cls.schema.operands)
        specs = tuple(spec for value in values for spec in value)
        for changed, params in [(specs, dict(case.params)), *variants(specs, dict(case.params))]:
            if "conv" in cls.optype and 0 in changed[1].dims:  # definitions divide by the outputs of a group
                continue
            try:
                op = cls.make(list(Block(arg_types=[tensor_type(s) for s in changed]).args), params)
            except LightNetError:
                continue
            for selection, machine in ((SELECTION, processor_model_of("avx512")), (CUDA, device_of("sm_90a"))):
                for generator in selection.generators():
                    forms = generator.forms([op], list(op.results), machine)
                    asked[generator.alg] = asked.get(generator.alg, 0) + len(forms)
                    if not forms:
                        assert refusal_reason(forms), f"'{generator.alg}' refuses {cls.optype} and does not say why"
                        reasons.setdefault(generator.alg, set()).add(refusal_reason(forms))
    assert asked.keys() == {g.alg for selection in (SELECTION, CUDA) for g in selection.generators()}
    assert asked["loops"] > 2000 and asked["recurrent"] >= 3 and asked["pool"] >= 2, "what takes bodies at all"
    assert "it begins with relu, not with a conv2d" in reasons["direct"] and len(reasons["first"]) > 20
    assert not any("{}" in why for found in reasons.values() for why in found)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_is_not_merged_has_a_reason(target: str) -> None:
    """A kind, or a refusal with a sentence, for every sample with an elementwise op behind it, and behind a convolution."""
    kinds: set[str] = set()
    for cls in OPS.values():
        case = cls.schema.resolve(cls.samples()[0])
        values = ((case.tensors[f.name] if f.variadic else (case.tensors[f.name],)) for f in cls.schema.operands)
        types = [tensor_type(spec) for value in values for spec in value]
        op = cls.make(list(Block(arg_types=types).args), dict(case.params))
        if not op.results or op.is_host:
            continue
        x, w, b = Block(
            arg_types=[tensor_type(TensorSpec(dims, BY_NAME["f32"])) for dims in ((1, 4, 8, 8), (4, 4, 3, 3), (4,))]
        ).args
        conv = Conv2d.make([x, w, b], {"size": [3, 3], "padding": [1, 1, 1, 1]})
        bodies = [Body((op, relu := Relu.make([op.results[0]])), tuple(relu.results))]
        bodies += [Body((conv, op), tuple(op.results), dict.fromkeys(op.operands[:1], conv.dst))]
        for body in bodies:
            kind = get_target(target).accepts(body)
            kinds.add(kind if isinstance(kind, str) else "")
            assert kind or refusal_reason(kind), f"{[o.optype for o in body.ops]}: refused without a reason"
    assert {"", "anchor", "elementwise"} <= kinds
