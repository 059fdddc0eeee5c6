"""What a user gets for a mistake: one failing case for every labelled constraint of every op, derived from the op table and
given as JSON and as IL; and what each front end refuses. Always an error with its place and its label, exit status 1, no
traceback, nothing on stdout, nothing left behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import violations as v
from sampling import draw

from lightnet.cli.lightnet import main
from lightnet.ir.op import LnOp


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    """Run `lightnet` on a text in an empty folder and give its stderr; the status must be 1."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, name: str = "bad.net", *options: str) -> str:
        Path(name).write_bytes(text.encode("utf-8", "surrogateescape"))
        capfd.readouterr()
        status = main([name, "-t", "none", *options])
        out, err = capfd.readouterr()
        assert (status, out) == (1, ""), err
        assert "Traceback" not in err and "crashed" not in err
        assert [p.name for p in tmp_path.iterdir()] == [name]
        Path(name).unlink()
        return err

    return run


def statements(cls: type[LnOp], t: v.Try) -> list[tuple[str, dict[str, str], dict[str, str], dict[str, Any]]]:
    """A network with the op: a `create` for each operand, then the op: (optype, inputs, outputs, params)."""
    made = []
    fixed = sum(not o.variadic for o in cls.schema.operands)
    extra = 0 if cls.schema.variadic_operand else max(len(t.specs) - fixed, 0)
    names = cls.schema.operand_names(len(t.specs) - extra) + [f"extra{i}" for i in range(extra)]
    for arg, spec in zip(names, t.specs):
        params = {"dtype": spec.dtype.tl, "dims": spec.dims, "ran": (0, 0), "data": (0,), "from_file": False}
        made.append(("create", {}, {"dst": f"t_{arg}"}, params))
    results = cls.schema.result_names(max(len(cls.schema.results), 2 if cls.schema.variadic_result else 0))
    return [*made, (cls.optype, {a: f"t_{a}" for a in names}, {r: f"o_{r}" for r in results}, dict(t.params))]


def as_json(network: list) -> str:
    """One op a line, from the second on."""

    def tensors(args: dict[str, str]) -> list[dict[str, str]]:
        return [{"arg_name": a, "name": n} for a, n in args.items()]

    lines = []
    for i, (optype, inputs, outputs, params) in enumerate(network):
        values = [{"arg_name": k, "value": _written(p)} for k, p in params.items()]
        op = {"name": f"op{i}", "optype": optype, "tensors_in": tensors(inputs), "tensors_out": tensors(outputs)}
        lines.append(json.dumps(op | {"params": values}))
    return '{"ops": [\n' + ",\n".join(lines) + "\n]}\n"


def as_il(network: list) -> str:
    """One op a line, from the second on."""

    def args(values: dict[str, str]) -> str:
        return ", ".join(f"{a}={n}" for a, n in values.items())

    return "// a network\n" + "".join(
        f"{optype}({args(inputs)} | {args(outputs)} | {args({k: json.dumps(_written(p)) for k, p in params.items()})});\n"
        for optype, inputs, outputs, params in network
    )


def _written(value: Any) -> Any:
    """An array without elements is null in IL and JSON."""
    return None if value == () else value


@pytest.mark.sampled(every=5, share=0.2)
@pytest.mark.parametrize("optype", sorted(v.OPS))
def test_every_constraint_of_an_op(optype, cli):
    cls = v.OPS[optype]
    found = v.violations(cls)
    assert v.expected_labels(cls) <= set(found), "constraints that no case was found for"
    in_il = draw(found, f"constraints {optype} in IL", every=4, start=sorted(v.OPS).index(optype))
    for label, t in found.items():
        network = statements(cls, t)
        line = len(network) + 1
        first, *rest = cli(as_json(network), "bad.json").splitlines()
        assert re.fullmatch(rf"bad.json:{line}:\d+: error: {optype}: .+ \[{re.escape(label)}\]", first), (label, first)
        assert rest and rest[-1].strip() == "^", rest
        if label not in in_il:
            continue
        if empty := [i for i, spec in enumerate(t.specs) if 0 in spec.dims]:  # which IL has not
            line, optype_, label = empty[0] + 2, "create", "create.empty"
        else:
            optype_ = optype
        first, *rest = cli(as_il(network), "bad.net").splitlines()
        assert re.fullmatch(rf"bad.net:{line}:\d+: error: {optype_}: .+ \[{re.escape(label)}\]", first), (label, first)
        assert rest[:2] and rest[1].strip() == "^", rest


def test_valid_samples_are_valid():
    """The cases above differ from these in what they name only."""
    for cls in v.OPS.values():
        assert all(t.label(cls) is None for t in v.bases(cls))


X = "create(| dst=x | dtype=TL_FLOAT, dims=[2, 3], data=[0], ran=[0, 0], from_file=false);\n"
CREATE = {"name": "c", "optype": "create", "tensors_in": [], "tensors_out": [{"arg_name": "dst", "name": "x"}], "params": [
    {"arg_name": k, "value": p}
    for k, p in (("dtype", "TL_FLOAT"), ("dims", [2, 3]), ("ran", [0, 0]), ("data", [0]), ("from_file", False))
]}  # fmt: skip


def one_op(**changes: Any) -> str:
    return json.dumps({"ops": [CREATE | changes]})


@pytest.mark.parametrize(
    "text, place, words",
    [
        (
            X + "relu(src=y | dst=z |);",
            "2:1",
            "relu: `relu0`'s tensor `y` should have been defined before [tensor-undefined]",
        ),
        (X + "relu(src=x | dst=x |);", "2:1", "tensor `x` shouldn't have been defined before [tensor-twice]"),
        (
            X + "rely(src=x | dst=z |);",
            "2:1",
            "optype rely is not registered; did you mean relu, prelu or lrelu? [unknown-optype]",
        ),
        (
            X + "relu(source=x | dst=z |);",
            "2:1",
            "relu: `relu0` needs a `src` input tensor, and has none called `source` [relu.arg-name]",
        ),
        (
            X + "relu(src=x | result=z |);",
            "2:1",
            "relu: `relu0` needs a `dst` output tensor, and has none called `result` [relu.arg-name]",
        ),
        (
            X + "relu(src=x | dst=z, dst2=w |);",
            "2:1",
            "needs 1 output tensors, but gets 2 output tensors [relu.result-count]",
        ),
        (
            X + "scatter(src=x | dst1=a |);",
            "2:1",
            "needs 2 output tensors, but gets 1 output tensors [scatter.result-count]",
        ),
        (X + "relu(src=x | dst=z |", "2", ""),
        ("relu(", "1", ""),
        ("relu(src=x; dst=z)", "1", ""),
        ("@", "1", ""),
        ("relu(src=x | dst=y | a=[1, [2]]);", "1", ""),
        ("relu(src=x | dst=y | a=[1, true]);", "1", ""),
        ('print(src=x || msg="x);', "1", ""),
        ("#if 1\n", "1", ""),
        ("#error not today\n", "1:2", "not today"),
        ("#include <nothing.net>\n", "1:2", "no such file"),
        ("#define F(x) x\nF(1\n", "2", ""),
        ("relu(src=x | dst=y | a=${eval 1 / 0});", "1", ""),
        ("relu(src=x | dst=y | a=${eval 1 +});", "1", ""),
        (
            "#define N(n) relu(src=n | dst=z |)\n" + X + "\nN(nothing);",
            "4:1",
            "tensor `nothing` should have been defined",
        ),
        ("relu(src=x | dst=y |);\x00", "1:23", "NUL"),
        # What is declared and not used is checked as well.
        (
            X + "create(| dst=b | dtype=TL_INT8, dims=[1099511627776]);",
            "2:1",
            "should fit an integer of 32 bits, but gets a 1099511627776 [create.dims.range]",
        ),
        (
            X + "slice(src=x | dst=b | axis=0, start=-1e10, len=1);",
            "2:1",
            "but gets a -10000000000.0 [slice.start.range]",
        ),
        (
            X + "create(| dst=b | dtype=TL_INT8, dims=[2147483647, 100]);",
            "2:1",
            "214748364700",
        ),
        (
            X + "create(| dst=b | dtype=TL_INT8, dims=[2], data=[1, 2, 3]);",
            "2:1",
            '2 elements [2] should have no more data, but gets 3 numbers" [create.data-length]',
        ),
        (
            X + "create(| dst=b | dtype=TL_INT8, dims=[2, 0]);",
            "2:1",
            "tensor `b` should have elements, but gets the dims [2, 0] [create.empty]",
        ),
        (X + "slice(src=x | dst=b | axis=0, start=0, len=0);", "2:1", "should have elements"),
        (X + "create(| dst=b | dims=[2]);", "2:1", "needs a `dtype` param [create.dtype.missing]"),
        (
            X + "create(| dst=b | dtype=TL_INT8, dims=[2], ran=[0, 0, 0]);",
            "2:1",
            "`ran` param needs 2 elements, but gets 3 elements [create.ran.length]",
        ),
        (X + "create(| dst=b | dtype=TL_INT8, dims=[2], size=2);", "2:1", "has no `size` param"),
        (X + "create(| dst=b | dtype=TL_INT8, dims=[null]);", "2:1", "[create.dims.type]"),
        ("\udcff", "1:1", "not valid UTF-8"),
    ],
)
def test_what_il_refuses(cli, text, place, words):
    err = cli(text)
    assert err.startswith(f"bad.net:{place}") and ": error: " in err and words in err, err


@pytest.mark.parametrize(
    "text, place, words",
    [
        ('{"ops": [', "1:10", ""),
        (one_op()[:-20], "1", ""),
        ("{}", "1", "ops"),
        ('{"ops": 3}', "1", ""),
        ("[1]", "1:1", ""),
        ('{"ops": [{}]}', "1:10", "name"),
        ('{"ops": [3]}', "1:10", ""),
        (one_op(optype=3), "1", "optype"),
        (one_op(params=[{"arg_name": "dims", "value": []}]), "1", ""),
        (one_op(params=[{"arg_name": "a", "value": [1, "x"]}]), "1", ""),
        (one_op(params=[{"arg_name": "a", "value": {}}]), "1", ""),
        (one_op(params=[{"arg_name": "a", "value": [[1]]}]), "1", ""),
        (one_op(params=[CREATE["params"][0], CREATE["params"][0]]), "1", "op 'c' has two arguments 'dtype'"),
        ('{"ops": [], "ops": []}', "1", "ops"),
        ('{"ops": [NaN]}', "1", ""),
        ('{"ops": [], "a": Infinity}', "1", ""),
        ('{"ops": [],}', "1", ""),
        (json.dumps({"ops": [CREATE, CREATE]}), "1", "two operators are named 'c'"),
        (
            json.dumps({"ops": [CREATE, CREATE | {"name": "d"}]}),
            "1",
            "tensor `x` shouldn't have been defined before [tensor-twice]",
        ),
        (one_op().replace("TL_FLOAT", "TL_\udcff"), "1", "not valid UTF-8"),
        ('{"ops": [], "mem_sizes_h": [0], "mem_sizes_l": [1, 2]}', "1", ""),
    ],
)
def test_what_json_refuses(cli, text, place, words):
    err = cli(text, "bad.json")
    assert err.startswith(f"bad.json:{place}") and ": error: " in err and words in err, err


@pytest.mark.parametrize(
    "text, words",
    [
        ("func.func @main() {", ""),
        ("%x = ln.relu %y : tensor<2xf32>", ""),
        ("func.func @f() { func.return }", "@main"),
        ("func.func @main() { %x = ln.rely : tensor<2xf32>\nfunc.return }", ""),
        (
            "func.func @main() { %x = ln.zeros : tensor<2xf32>\n%y = ln.relu %x {odd = 1} : tensor<2xf32>\nfunc.return }",
            "odd",
        ),
        (
            "func.func @main() { %x = ln.zeros : tensor<2xf32>\n%y = ln.relu %x : tensor<3xf32>\nfunc.return }",
            "relu.result-type",
        ),
        ("func.func @main() { %x = ln.zeros : tensor<?xf32>\nfunc.return }", ""),
        ("func.func @main() { %x = ln.zeros : tensor<2xf80>\nfunc.return }", ""),
    ],
)
def test_what_mlir_refuses(cli, text, words):
    err = cli(text, "bad.mlir")
    assert "error: " in err and words in err, err


def test_a_plan_that_lies(cli, tmp_path):
    """A compiled file whose places overlap, or lie outside of its memory."""
    network = [("create", {}, {"dst": "x"}, {"dtype": "TL_FLOAT", "dims": (2, 3), "ran": (0, 0), "data": (0,), "from_file": False}),
               ("relu", {"src": "x"}, {"dst": "y"}, {}), ("elew", {"src1": "x", "src2": "y"}, {"dst": "z"}, {"elew_op": "TL_SUM"})]  # fmt: skip
    good = json.loads(as_json(network)) | {"mem_sizes_h": [0, 0], "mem_sizes_l": [0, 97]}
    for op, offset in zip(good["ops"], (1, 33, 65)):
        op["tensors_out"][0] |= {"dims": [2, 3], "offset_h": 0, "offset_l": offset}
    Path("good.json").write_text(json.dumps(good))
    assert main(["good.json", "-r", "-t", "none"]) == 0
    Path("good.json").unlink()
    for key, value, words in (
        ("offset_l", 90, "exceeds"),
        ("offset_l", 20, ""),
        ("dims", [3, 3], "dims"),
        ("offset_h", 1, "exceeds"),
    ):
        bad = json.loads(json.dumps(good))
        bad["ops"][1]["tensors_out"][0][key] = value
        for target in ("cpu", "none"):
            assert words in cli(json.dumps(bad), "bad.json", "-r", "-t", target)
