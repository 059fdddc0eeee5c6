"""The command `lightnet`: upstream's options, what it prints and writes, its exit status. Most runs are in this process;
what concerns the process (pipes, terminals, exit status) is run in one of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.cli.getopt import canonical
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError

EXAMPLES = Path(__file__).parents[2] / "examples"
#: The tensor that documents 000 and 001 show.
SHOWN = "tensor2:\n[[2.000 3.000 4.000]\n [6.000 7.000 8.000]]\n"
TIME = r"info: run time: \d+\.\d{6}s\n"
LIGHTNET = [sys.executable, "-m", "lightnet.cli.lightnet"]
IL2JSON = [sys.executable, "-m", "lightnet.cli.il2json"]
SUM = (
    "create(| dst=a | dtype=TL_FLOAT, dims=[2], data=[1, 2], ran=[0, 0], from_file=false);\n"
    "create(| dst=b | dtype=TL_FLOAT, dims=[2], data=[0], ran=[0, 0], from_file=true);\n"
    'elew(src1=a, src2=b | dst=c | elew_op="TL_SUM");\nprint(src=c || msg="c:");\n'
)


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    """Run `lightnet` in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main([str(a) for a in args])
        except SystemExit as e:
            status = e.code or 0
        return status, *capfd.readouterr()

    return run


def shows(result: tuple[int, str, str]) -> None:
    status, out, err = result
    assert (status, err) == (0, "")
    assert re.fullmatch(re.escape(SHOWN) + TIME, out)


@pytest.mark.parametrize("file", ["example.json", "example.net"])
@pytest.mark.parametrize("options", [[], ["-t", "none"], ["--plan=upstream"]])
def test_the_example_of_the_documents(cli, file, options, tmp_path):
    shows(cli(EXAMPLES / file, *options))
    assert list(tmp_path.iterdir()) == []  # no file without -o


@pytest.mark.parametrize(
    "command",
    [
        [*LIGHTNET, "-"],
        [*LIGHTNET, "-t", "none", "-"],
    ],
)
def test_the_example_piped(command, tmp_path):
    il2json = subprocess.Popen([*IL2JSON, str(EXAMPLES / "example.net")], stdout=subprocess.PIPE)
    done = subprocess.run(command, stdin=il2json.stdout, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert il2json.wait() == 0 and done.returncode == 0 and done.stderr == ""
    assert re.fullmatch(re.escape(SHOWN) + TIME, done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["example.net", "example.json"])
def test_standard_input_tells_its_form(text, tmp_path):
    with open(EXAMPLES / text) as stdin:
        done = subprocess.run([*LIGHTNET, "-"], stdin=stdin, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith(SHOWN)


@pytest.mark.parametrize("plan", ["default", "upstream"])
def test_compile_then_run(cli, plan, tmp_path):
    np.savez("w.npz", b=np.float32([10, 20]))
    Path("n.net").write_text(SUM)
    assert cli("-c", "n.net", "-o", "out.json", f"--plan={plan}") == (0, "", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["n.net", "out.json", "w.npz"]
    for target in ("cpu", "none"):
        status, out, err = cli("-r", "out.json", "-f", "w.npz", "-t", target)
        assert (status, err) == (0, "") and re.fullmatch(r"c:\n\[11\.000 22\.000\]\n" + TIME, out)
    status, out, err = cli("-r", "n.net")
    assert status == 1 and "n.net: the network is not planned: compile it first" in err


def test_where_the_compiled_network_goes(cli, tmp_path):
    Path("n.net").write_text(SUM)
    status, out, _ = cli("-c", "n.net", "-o", "-")
    assert status == 0 and json.loads(out)["ops"]
    status, out, _ = cli("n.net", "-o", "-")
    assert status == 0 and re.search(r"\}\nc:\n\[1\.000 2\.000\]\n" + TIME + r"\Z", out)
    assert cli("-c", "n.net", "-o", "!") == (0, "", "")
    assert cli("-c", "n.net") == (0, "", "")
    assert [p.name for p in tmp_path.iterdir()] == ["n.net"]
    status, _, _ = cli("-c", "-r", "n.net", "-w", "-o", "both.json")
    assert status == 0 and Path("both.json").exists()
    status, out, err = cli("n.net", "-w", "-o", "no/where.json")
    assert status == 1 and err.startswith("error: cannot write 'no/where.json'") and out == ""


def test_weights_are_warned_of(cli):
    Path("n.net").write_text(SUM)
    status, _, err = cli("n.net")
    assert status == 0 and err == "warning: no weights are given: 1 tensors hold zeros (b)\n"
    np.savez("w.npz", bb=np.zeros(2, np.float32))
    assert cli("n.net", "-f", "w.npz")[2] == (
        "warning: weight b is missing in w.npz: it holds zeros\nwarning: ignore unused weight bb\n"
    )
    for quiet in ("-w", "-Wno-warn", "-W no-warn".split()):
        assert cli("n.net", *([quiet] if isinstance(quiet, str) else quiet))[2] == ""
    assert cli("n.net", "-w", "-Wwarn")[2] != ""
    assert cli("n.net", "-f", "none.npz")[0] == 1


def test_a_weight_that_nothing_takes_is_a_warning_each_and_an_error_under_werror(cli):
    """A name that no tensor has, a tensor that the network computes, and one that gives contents of its own; where a network is only compiled, too."""
    Path("n.net").write_text(SUM)
    np.savez("w.npz", **{name: np.ones(2, np.float32) for name in ("odd", "b", "a", "c")})
    said = ["ignore unused weight odd", "ignore unused weight c",
            "ignore weight a in w.npz: the network gives contents of its own (from_file=false)"]  # fmt: skip
    for how in ((), ("-c",), ("-c", "-r")):
        status, _, err = cli("n.net", "-f", "w.npz", *how)
        assert (status, err.splitlines()) == (0, [f"warning: {text}" for text in said])
    status, out, err = cli("n.net", "-f", "w.npz", "-Werror", "-o", "out.json")
    assert (status, out, err.splitlines()) == (1, "", [f"error: {text} [Werror]" for text in said])
    assert (
        cli("run", "n.net", "-f", "w.npz", "-Werror")[2]
        == err
        == cli("compile", "n.net", "-f", "w.npz", "-W", "error")[2]
    )
    assert not list(Path().glob("*.lnx"))
    for quiet in (("-Werror", "-w"), ("-Werror", "-Wno-error", "-w")):  # what is not shown is no error
        assert cli("n.net", "-f", "w.npz", *quiet)[0] == 0
    assert cli("n.net", "-f", "w.npz", "-Werror", "-Wno-error")[0] == 0
    np.savez("w.npz", b=np.ones(2, np.float32))
    assert cli("n.net", "-f", "w.npz", "-Werror")[::2] == (0, "")


def test_warnings_of_the_source_are_errors_under_werror(cli):
    Path("n.net").write_text("#define N 2\n#define N 3\n#warning be careful\n" + SUM)
    status, _, err = cli("n.net", "-Werror")
    assert status == 1
    assert err.splitlines() == [
        "n.net:2:9: error: 'N' is defined again [Werror]",
        "n.net:3:2: error: #warning be careful [Werror]",
    ]


@pytest.mark.parametrize(
    "tool", [("lightnet",), ("lightnet", "run"), ("lightnet", "compile"), ("ln_opt",), ("il2json",)], ids=" ".join
)
def test_what_a_source_warns_of_is_said_where_it_is_refused_too(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("n.net").write_text("#warning be careful\n" + SUM + "relu(src=\n")
    main = import_module(f"lightnet.cli.{tool[0]}").main

    def said(*options: str) -> list[str]:
        assert main([*tool[1:], "n.net", *options]) == 1
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("n.net:")]

    (refused,) = said("-w")
    assert ": error: " in refused
    assert said() == ["n.net:1:2: warning: #warning be careful", refused]
    assert said("-Werror") == ["n.net:1:2: error: #warning be careful [Werror]", refused]
    with pytest.raises(LightNetError) as info:
        lightnet.load("n.net")
    assert [(str(loc), text) for loc, text in info.value.warnings] == [("n.net:1:2", "#warning be careful")]


def test_internal_warnings_are_those_of_rules(cli):
    """`-Winter` is the default, as upstream's: what a rule of an optimizer description warns of. `-w` silences it, too."""
    rule = {"optype": "elew", "rules": [{"cond": [], "warn": "slow here", "match": False}]}
    Path("ep.json").write_text(json.dumps({"author": "a", "arch": "cpu", "name": "odd", "ops": [rule]}))
    Path("n.net").write_text(SUM)
    np.savez("w.npz", b=np.ones(2, np.float32))
    place = 1 + SUM[: SUM.index("elew(")].count("\n")
    for how in ((), ("-Wno-inter", "-Winter")):
        status, _, err = cli("--load", "ep.json", "n.net", "-f", "w.npz", "-c", *how)
        assert (status, err) == (0, f"n.net:{place}:1: internal warning: slow here\n")
    for how in (("-Wno-inter",), ("-w",), ("-Wno-warn", "-Winter")):
        assert cli("--load", "ep.json", "n.net", "-f", "w.npz", "-c", *how) == (0, "", "")
    for command in ((), ("compile",), ("run",)):
        status, _, err = cli(*command, "--load", "ep.json", "n.net", "-f", "w.npz", "-Werror")
        assert status == 1 and err.startswith(f"n.net:{place}:1: error: slow here [Werror]")


def test_what_operator_descriptions_warn_of(cli):
    """In every command that runs a network."""
    Path("n.net").write_text("".join(f"create(| dst={n} | dtype=TL_FLOAT, dims={dims}, data=[0], ran=[-1, 1], from_file=false);" for n, dims in
                                     (("x", [3, 4]), ("w", [2, 4, 1, 1]), ("b", [2])))
                             + "conv1x1_dpu(src=x, weight=w, bias=b | dst=y | stride=1, padding=[0, 0], group=1);")  # fmt: skip
    for command in (("-tdpu",), ("run", "-tdpu")):
        status, _, err = cli(*command, "n.net")
        assert status == 0 and "warning: target 'dpu' has no code here" in err
        assert "warning" not in cli(*command, "-w", "n.net")[2]
        status, _, err = cli(*command, "-Werror", "n.net")
        assert status == 1 and err.startswith("error: target 'dpu' has no code here")
    status, _, err = cli("-tnone", "n.net")
    assert status == 0 and "warning: conv1x1_dpu is an op of 'dpu', which is not here" in err
    for target in ("tensorrt", "cudnn"):
        Path("n.net").write_text(
            "create(| dst=x | dtype=TL_FLOAT, dims=[1, 4, 8, 8], ran=[-1, 1]);\nrelu(src=x | dst=y |);"
        )
        for command in (("-t", target), ("run", "-t", target)):
            status, _, err = cli(*command, "n.net")
            assert status == 0 and f"warning: target '{target}' has no code here" in err


def test_data_that_is_too_short_is_a_warning(cli):
    Path("n.net").write_text("create(|dst=a|dtype=TL_FLOAT, dims=[2, 2], data=[1, 2]);\ncreate(|dst=b|dtype=TL_FLOAT, dims=[2, 2]);\n"
                             "print(src=a||msg=\"a\");")  # fmt: skip
    status, out, err = cli("n.net")
    assert status == 0 and "[[1.000 2.000]\n [0.000 0.000]]" in out
    assert err == "n.net:1:1: warning: tensor 'a' has 4 elements, and its data has 2: zeros follow\n"


def test_what_the_source_warns_of(cli):
    Path("n.net").write_text("#define N 2\n#define N 3\n#warning be careful\n" + SUM)
    status, _, err = cli("n.net")
    assert status == 0
    assert "n.net:2:9: warning: 'N' is defined again\n" in err
    assert "n.net:3:2: warning: #warning be careful\n" in err
    assert cli("n.net", "-w")[2] == ""


def test_macros_and_folders(cli):
    Path("inc").mkdir()
    Path("inc/b.net").write_text(
        'create(| dst=x | dtype=TL_FLOAT, dims=[N], data=[V], ran=[0,0], from_file=false);print(src=x||msg="");'
    )
    Path("n.net").write_text('#include "b.net"\n')
    status, out, _ = cli("n.net", "-I", "inc", "-DN=1", "-D", "V=7")
    assert status == 0 and out.startswith("\n[7.000]\n")
    assert cli("n.net")[0] == 1


# -- options


@pytest.mark.parametrize(
    "line",
    [
        "-t none -o x SRC",
        "-tnone -ox SRC",
        "SRC -target none -outfile x",
        "--target=none SRC --out x",
        "-ta none -ou=x SRC",
        "--outfile=x -- SRC -t none",
        "-target=none SRC --o x",
    ],
)
def test_options_as_getopt_long_only(line):
    options = {"target": True, "outfile": True, "run": False, "compile": False}
    short = {"t": "target", "o": "outfile", "r": "run", "c": "compile"}
    got = canonical(line.split(), options, short)
    if "--" in line.split():
        assert got == ["--outfile=x", "--", "SRC", "-t", "none"]
    else:
        assert sorted(got[:2]) == ["--outfile=x", "--target=none"] and got[2:] == ["--", "SRC"]


def test_clusters_dashes_and_mistakes():
    options, short = (
        {"target": True, "run": False, "report": True, "compile": False},
        {"t": "target", "r": "run", "c": "compile"},
    )
    assert canonical(["-crt", "none", "-"], options, short) == ["--compile", "--run", "--target=none", "--", "-"]
    assert canonical(["-t", "-"], options, short) == ["--target=-", "--"]
    for words, why in (
        (["-x"], "'-x' is unknown"),
        (["--re=1"], None),
        (["-t"], "'-t' needs a value"),
        (["--r"], "ambiguous"),
        (["--run=1"], "takes no value"),
        (["-rx"], "'-x' is unknown"),
        (["--nothing"], "is unknown"),
        (["--="], "is unknown"),
    ):
        if why is None:
            assert canonical(words, options, short) == ["--report=1", "--"]
            continue
        with pytest.raises(LightNetError) as info:
            canonical(words, options, short)
        assert why in info.value.message


@pytest.mark.parametrize(
    "args, words",
    [
        ([], "error: no input file"),
        (["a", "b"], "error: unrecognized arguments: b"),
        (["--bad", "a"], "error: option '--bad'"),
        (["-o"], "error: option '-o' needs a value"),
        (["-t", "gpu", "a"], "error: unknown target 'gpu'; there are: cpu, cuda, cudnn, dpu, none, tensorrt"),
        (["none.net"], "error: cannot read 'none.net'"),
        (["."], "it is a folder"),
        (["--seed", "x", "a"], "error: argument --seed"),
        (["-Wodd", "a"], "error: unknown kind of warning 'odd'"),
        (["--plan", "best", EXAMPLES / "example.net"], "unknown plan 'best'"),
        (["--eval", "ruby", EXAMPLES / "example.net"], "unknown eval mode 'ruby'"),
    ],
)
def test_mistakes_in_the_command_line(cli, args, words, tmp_path):
    status, out, err = cli(*args)
    assert status == 1 and words in err and out == "" and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_help_and_version(cli):
    status, out, _ = cli("-h")
    assert status == 0 and "--outfile" in out and cli("-help")[1] == out
    assert cli("--version")[1] == cli("-v")[1] != ""


def test_debug_shows_times_and_tracebacks(cli):
    status, out, err = cli("-d", EXAMPLES / "example.net")
    assert status == 0 and out.startswith(SHOWN) and "plan" in err
    Path("bad.net").write_text("relu(src=x | dst=y |);")
    status, _, err = cli("-d", "bad.net")
    assert status == 1 and "Traceback" in err
    assert "Traceback" not in cli("bad.net")[2]


def test_reports(cli):
    for suffix, start in (("txt", "peak"), ("json", "{"), ("svg", "<svg"), ("html", "<!DOCTYPE html>")):
        assert cli("-c", EXAMPLES / "example.net", "--report", f"r.{suffix}")[0] == 0
        assert Path(f"r.{suffix}").read_text().startswith(start)


# -- the process


def test_errors_exit_1_without_colour_or_traceback(tmp_path):
    done = subprocess.run(
        [*LIGHTNET, "-"], input="relu(src=x | dst=y |);", capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("<stdin>:1:1: error: relu: `relu0`'s tensor `x` should have been defined before")
    assert "\033" not in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_goes_away(tmp_path):
    (tmp_path / "n.net").write_text(
        "arange(| dst=a | dtype=TL_FLOAT, start=0, stop=300000, step=1);" + 'print(src=a||msg="");' * 3
    )
    process = subprocess.Popen([*LIGHTNET, "n.net"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) == 1 and process.stderr.read() == b""


def test_colour_only_on_a_terminal(tmp_path):
    leader, follower = pty.openpty()
    done = subprocess.run(
        [*LIGHTNET, str(EXAMPLES / "example.net")],
        stdout=follower,
        stderr=follower,
        cwd=tmp_path,
        timeout=60,
        env={k: v for k, v in os.environ.items() if k != "NO_COLOR"},
    )
    os.close(follower)
    text = os.read(leader, 4096).decode()
    os.close(leader)
    assert done.returncode == 0 and "\033[1minfo: \033[0mrun time" in text
