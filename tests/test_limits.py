"""Hostile input: every refusal comes soon and within 1 GiB resident (of 6 GiB of address space), with exit status 1, leaves
nothing behind and shows nothing of a file that must not be read."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RUNNER = Path(__file__).with_name("limits_runner.py")
#: Contents of files outside the network's folder: they may not be shown.
SECRET = "root-of-all-secrets"


@pytest.fixture(scope="module")
def runner() -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    process = subprocess.Popen([sys.executable, str(RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None

    def run(request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield run
    process.stdin.close()
    process.wait(timeout=30)


@pytest.fixture
def refused(runner, tmp_path):
    """Run `lightnet` on a text; it must refuse within the limits. Gives stderr."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.net").write_text(SECRET)

    def run(text: str | bytes | None, name: str = "bad.net", *options: str, **request: str) -> str:
        if text is not None:
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        before = sorted(os.listdir(folder))
        got = runner({"argv": [name, *options], "cwd": str(folder), **request})
        err = got["err"]
        assert got["status"] == 1, (got["status"], got["out"][-300:], err[-2000:])
        assert "error: " in err and "Traceback" not in err and "crashed" not in err, err[-2000:]
        assert len(err) < 4000 and SECRET not in err + got["out"] and "root" not in err
        assert got["rss"] < 1 << 30, got
        assert sorted(os.listdir(folder)) == before
        return err

    run.folder = folder  # type: ignore[attr-defined]
    return run


def create(name: str, dims: str, options: str = "data=[0], ran=[0,0], from_file=false") -> str:
    return f"create(| dst={name} | dtype=TL_FLOAT, dims=[{dims}], {options});\n"


def many(count: int, line: str) -> str:
    return "".join(line.format(i, i + 1) for i in range(count))


DOUBLING = "#define A0 x\n" + many(60, "#define A{1} A{0} A{0}\n")

TEXTS = {
    "a tensor of 2^40 elements": create("x", "1048576, 1048576"),
    "zeros of 2^40 elements": "zeros(| dst=x | dtype=TL_INT8, dims=[1048576, 1048577]);",
    "dims beyond 64 bits": create("x", "2147483647, 2147483647, 2147483647, 2147483647"),
    "dims beyond 32 bits": create("x", "1e300"),
    "a range of 10^12": "arange(| dst=x | dtype=TL_FLOAT, start=0, stop=1e12, step=0.5);",
    "an endless range": "arange(| dst=x | dtype=TL_DOUBLE, start=0, stop=1e300, step=1e-300);",
    "a huge upsample": create("x", "2, 2") + "upsample(src=x | dst=y | mode=TL_NEAREST, scales=[1e9, 1e9]);",
    "a huge resize": create("x", "2, 2") + "resize(src=x | dst=y | mode=TL_NEAREST, dims=[2000000000, 2000000000]);",
    "huge padding": create("x", "1,1,2,2") + create("w", "1,1,1,1") + create("b", "1")
    + "conv2d(src=x, weight=w, bias=b | dst=y | group=1, size=[1,1], stride=[1,1], dilation=[1,1],"
    ' padding=[2147483647,2147483647,2147483647,2147483647], autopad="NOTSET");',
    "more memory than the target has": many(6, create("x{0}", "1073741824")) + "".join(
        f"lrelu(src=x{i} | dst=y{i} | negslope=0.5);\n" for i in range(6)),
    "more memory than the machine has": "zeros(| dst=x | dtype=TL_DOUBLE, dims=[1000000000]);"
    "lrelu(src=x | dst=y | negslope=0.5);",
    "contents that do not fit": create("x", "1900000000") + "relu(src=x | dst=y |);",
    "random contents that do not fit": create("x", "1900000000", "data=[0], ran=[0,1], from_file=false"),
    "data longer than the tensor": create("x", "2", "data=[1,2,3], ran=[0,0], from_file=false") + "relu(src=x|dst=y|);",
    "a scatter into 10^7 tensors": "zeros(| dst=x | dtype=TL_INT8, dims=[10000000, 1]); scatter(src=x | dst1=y |);",
    "a macro bomb": DOUBLING + "A60",
    "a macro bomb of arguments": "#define F(x) x x\n" + "F(" * 60 + "y" + ")" * 60,
    "a macro bomb by pasting": "#define P(a, b) a ## b\n#define B0 abcdefgh\n#define Q(a, b) P(a, b)\n"
    + many(60, "#define B{1} Q(B{0}, B{0})\n") + "B60",
    "a file that includes itself": '#include "bad.net"\n',
    "a thousand conditions": "#if 1\n" * 100_000,
    "deep parentheses in a condition": "#if " + "(" * 100_000 + "1" + ")" * 100_000 + "\n#endif\n",
    "deep parentheses": "(" * 1_000_000,
    "deep calls": "#define G(x) x\n" + "G(" * 100_000,
    "an outside file": '#include "/etc/hostname"\n',
    "an outside file by a relative path": '#include "../secret.net"\n',
    "a device": '#include "/dev/zero"\n',
    "perl that runs a command": 'print(src=x || msg=${eval system("touch owned; cat ../secret.net")});',
    "perl that reads a file": "print(src=x || msg=${eval `cat ../secret.net`});",
    "perl that never ends": "print(src=x || msg=${eval 1 while 1});",
    "a power tower": "print(src=x || msg=${eval 9**9**9**9});",
    "a long string": 'print(src=x || msg=${eval "a" x 1000000000});',
    "deep arithmetic": "print(src=x || msg=${eval " + "(" * 100_000 + "1" + ")" * 100_000 + "});",
    "deep evals": "${eval " * 10_000,
    "too many statements": "relu(src=x | dst=x |);\n" * 300_000,
    "a long line": "relu(" + "x" * 8_000_000 + ")",
    "an array of a million arrays": "relu(src=x | dst=y | a=" + "[" * 1_000_000 + ");",
    "bytes that are no text": bytes(range(256)) * 1000,
}  # fmt: skip
JSON = {
    "truncated": '{"ops": [{"name": "a", "optype": "relu"',
    "deep arrays": "[" * 1_000_000,
    "deep objects": '{"ops": ' * 100_000,
    "deep bodies": '{"ops": [' + '{"name": "k", "optype": "cpu.kernel", "tensors_in": [], "tensors_out": [], "params": [], "body": ['
    * 10_000 + "]}" * 10_000 + "]}",
    "a long number": '{"ops": [], "x": ' + "9" * 1_000_000 + "}",
    "a number beyond double": '{"ops": [{"name": "z", "optype": "zeros", "tensors_in": [], "tensors_out": '
    '[{"arg_name": "dst", "name": "x"}], "params": [{"arg_name": "dtype", "value": "TL_FLOAT"}, {"arg_name": "dims", "value": [1e999]}]}]}',
    "memory sizes out of hand": '{"mem_sizes_h": [0, 2147483647], "mem_sizes_l": [0, -1], "ops": []}',
    "a hundred thousand keys": "{" + ", ".join(f'"k{i}": 0' for i in range(100_000)) + "}",
    "a twice given key": '{"ops": [], "ops": []}',
}  # fmt: skip
MLIR = {
    "deep regions": "ln.once {\n" * 20_000,
    "deep attributes": "func.func @main() attributes {a = " + "[" * 100_000,
    "a tensor of 2^40 elements": "func.func @main() {\n%x = ln.zeros : tensor<1048576x1048577xi8>\nfunc.return\n}",
    "a type of a million dims": "func.func @main() {\n%x = ln.zeros : tensor<"
    + "1x" * 1_000_000
    + "i8>\nfunc.return\n}",
}


@pytest.mark.parametrize("what", TEXTS)
def test_il(refused, what):
    refused(TEXTS[what])


@pytest.mark.parametrize("what", JSON)
def test_json(refused, what):
    refused(JSON[what], "bad.json")


@pytest.mark.parametrize("what", MLIR)
def test_mlir(refused, what):
    refused(MLIR[what], "bad.mlir")


def test_files_that_are_none(refused):
    os.mkfifo(refused.folder / "pipe.net")
    os.symlink("/dev/zero", refused.folder / "zero.net")
    for name in ("pipe.net", "zero.net", ".", "none.net", "a" * 300):
        refused(None, name)


def test_endless_standard_input(refused):
    refused(None, "-", stdin="/dev/zero")


def test_a_link_out_of_the_folder(refused):
    os.symlink("../secret.net", refused.folder / "link.net")
    refused('#include "link.net"\n')


def test_fprint_stays_below_the_folder(refused, tmp_path):
    for name in ("/tmp/owned.txt", "../owned.txt", "a/../../owned.txt"):
        for target in ("cpu", "none"):
            refused(create("x", "2") + f'fprint(src=x || msg="", file="{name}");', "bad.net", "-t", target)
    assert not (tmp_path / "owned.txt").exists()


def test_perl_has_limits(refused):
    for text in ("1 while 1", '"a" x 3e9', "die"):
        refused(f"print(src=x || msg=${{eval {text}}});", "bad.net", "--eval=perl")


def test_weights(refused):
    net = create("x", "2", "data=[0], ran=[0,0], from_file=true") + "relu(src=x | dst=y |);"
    folder = refused.folder
    np.savez(folder / "object.npz", x=np.array([{}], object))
    (folder / "short.npz").write_bytes((folder / "object.npz").read_bytes()[:100])
    (folder / "huge.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    (folder / "deep.safetensors").write_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000)
    (folder / "count.wts").write_text("99999999999\nx 0 99999999999 0\n")
    (folder / "text.wts").write_text("no weights")
    np.savez(folder / "shape.npz", x=np.zeros(3, np.float32))
    for name in sorted(os.listdir(folder)):
        refused(net, "bad.net", "-f", name)


def test_limits_of_the_page_are_those_of_the_code() -> None:
    """Each row of the table in SECURITY.md names its constant."""
    text = (Path(__file__).parent.parent / "SECURITY.md").read_text("utf-8")
    rows = re.findall(r"^\| .* \| ([\d,]+) \| `([\w.]+):(\w+)` \|$", text, re.MULTILINE)
    assert len(rows) > 20
    for number, module, name in rows:
        assert int(number.replace(",", "")) == getattr(importlib.import_module(module), name), f"{module}:{name}"
