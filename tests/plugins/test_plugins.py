"""Plugins: what a file or an installed package adds is there, names its clashes, and is gone afterwards."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
import warnings
from contextlib import ExitStack, nullcontext
from pathlib import Path

import numpy as np
import pytest
from test_docs import tool

import lightnet
from lightnet.cli import il2json, ln_opt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir import registry
from lightnet.ir.context import DIALECTS
from lightnet.ir.registry import FAMILIES, FRONTENDS, KERNELS, PASSES, TARGETS
from lightnet.passes.patterns import every
from lightnet.plugins import installed, load

OP = """
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result

@ln_op
class {cls}(LnOp):
    '''x + by.'''
    optype = "{optype}"
    src = operand()
    dst = result()
    by = number("float", gt=0)
    definition = "dst[i...] = src[i...] + by"

    def reference(self, src):
        return src + src.dtype.type(self.by)
"""

PASS = """
from dataclasses import dataclass
from lightnet.ir.passes import LnPass

@dataclass(frozen=True)
class {cls}(LnPass):
    '''Does nothing.'''
    name = "{name}"
    def apply(self, ctx, op): pass
"""

TARGET = """
from xdsl.ir import Dialect
from lightnet.ir.kernel import KernelOp
from lightnet.ir.target import Space, Target

class {cls}(KernelOp):
    '''Runs.'''
    name = "{name}.kernel"

T{cls} = Target("{name}", spaces={{"arena": Space(), "static": Space()}}, kernel="{name}")
D{cls} = Dialect("{name}", [{cls}], [])
"""

FRONT_END = """
from lightnet.frontends.loading import FrontEnd, Imported
from lightnet.frontends import mlir

def read(text, name, ctx, options):
    return Imported(mlir.read("func.func @main() -> tensor<" + text.strip() + "xf32> {{ %x = ln.zeros : tensor<" + text.strip() + "xf32> func.return %x : tensor<"
                              + text.strip() + "xf32> }}", name, ctx))

FORM = FrontEnd(read, suffixes=("{name}",))
"""

PATTERN = """
from xdsl.pattern_rewriter import RewritePattern
from lightnet.ir.registry import pattern

@pattern("{into}", "{target}")
class {cls}(RewritePattern):
    # nothing = nothing
    def match_and_rewrite(self, op, rewriter): pass
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(file: str, text: str, /, **values: str) -> Path:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(**values) if values else text)
        return path

    return write


def refused(*paths: Path) -> str:
    before = state()
    with pytest.raises(LightNetError) as e, load(*paths):
        pass
    assert state() == before
    return e.value.render()


def state() -> list:
    tables = [list(t) for t in (PASSES, TARGETS, KERNELS, FRONTENDS, FAMILIES, DIALECTS)]
    return [*tables, registry.all_patterns(), sorted(n for n in sys.modules if n.startswith("plugin."))]


# -- files -------------------------------------------------------------------------------------------------


def test_everything_a_file_defines_is_registered_and_taken_back(write, tmp_path: Path) -> None:
    text = "".join(
        (
            OP.format(cls="Plus", optype="plus_by"),
            PASS.format(cls="Nop", name="nop"),
            TARGET.format(cls="Box", name="box"),
            FRONT_END.format(name=".dims"),
            PATTERN.format(cls="Never", into="simplify", target="*"),
        )
    )
    before = state()
    with load(write("all.py", text)) as (plugin,):
        assert [op.optype for op in plugin.ops] == ["plus_by"] and [p.__name__ for p in plugin.patterns] == ["Never"]
        assert "plus_by" in optypes() and "nop" in PASSES and "box" in TARGETS and "box" in KERNELS
        write("net.dims", "2x3")
        assert next(iter(lightnet.compile(lightnet.load(tmp_path / "net.dims"))({}).values())).shape == (2, 3)
    assert state() == before
    assert "plus_by" not in optypes()


def test_op_of_one_block_is_unknown_in_the_next(write, tmp_path: Path) -> None:
    """No cache keeps it: not the dialect, and not the op's meaning where another file gives the name another one."""
    net = write("n.mlir", "func.func @main() -> tensor<2xf32> {\n%x = ln.input {data = [1, 2]} : tensor<2xf32> as \"i\"(\"x\")\n"
                "%y = ln.plus_by %x {by = 1} : tensor<2xf32> as \"p\"(\"y\")\nfunc.return %y : tensor<2xf32>\n}")  # fmt: skip
    one = write("one.py", OP, cls="Plus", optype="plus_by")
    two = write("two.py", one.read_text().replace("src[i...] + by", "src[i...] + 2*by").replace("src +", "src + 2*"))
    for file, expected in ((one, [2, 3]), (two, [3, 4]), (one, [2, 3])):
        with load(file):
            for target in ("cpu", "none"):
                np.testing.assert_array_equal(lightnet.compile(net, target)()["y"], expected)
        with pytest.raises(LightNetError, match=r"unknown op 'ln\.plus_by'"):
            lightnet.load(net)


def test_blocks_nest(write) -> None:
    one, two = write("a.py", OP, cls="A", optype="op_a"), write("b.py", OP, cls="B", optype="op_b")
    with load(one):
        with load(two):
            assert {"op_a", "op_b"} <= set(optypes())
        assert "op_a" in optypes() and "op_b" not in optypes()


def test_modules_of_one_name_are_counted(write) -> None:
    """Of files that are loaded at once: from 2 on, and the numbers of those that are gone are free again."""
    files = [write(f"{letter}/same.py", OP, cls=letter.upper(), optype=f"op_{letter}") for letter in "abc"]
    for _ in range(2):
        with ExitStack() as stack:
            for file in files:
                stack.enter_context(load(file))
            assert [n for n in sys.modules if n.startswith("plugin.")] == [
                "plugin.same",
                "plugin.same.2",
                "plugin.same.3",
            ]
        assert not [n for n in sys.modules if n.startswith("plugin.")]


def test_explicit_registration_is_no_clash(write) -> None:
    """What a file adds to a table itself is not added again."""
    text = OP.format(cls="Plus", optype="plus_by") + TARGET.format(cls="Box", name="box")
    extra = "\nfrom lightnet.ir.registry import *\nFAMILIES.add('mine', (Plus,))\nTARGETS.add('box', TBox)\n"
    with load(write("p.py", text + extra + "KERNELS.add('box', Box)\n")):
        assert "mine" in FAMILIES and "plugin.p" not in FAMILIES


def test_what_a_file_imports_is_not_its_own(write) -> None:
    text = "from lightnet.dialects.ln.dialect import Ln\nfrom lightnet.backends.cpu.target import CPU\n"
    text += "from lightnet.dialects.ln.elementwise import Relu\nfrom lightnet.passes.plan import PlanPass\n"
    with load(write("p.py", text)) as (plugin,):
        assert plugin.ops == ()


def test_folder_is_a_package(write, tmp_path: Path) -> None:
    write("acc/__init__.py", "from .ops import Plus\n")
    write("acc/ops.py", OP, cls="Plus", optype="plus_by")
    for _ in range(2):
        with load(tmp_path / "acc"):
            assert "plus_by" in optypes()
        assert not [n for n in sys.modules if n.startswith("plugin.")]


def test_undecorated_op_is_an_error(write) -> None:
    text = OP.format(cls="Plus", optype="plus_by").replace("@ln_op", "")
    assert "plugin.p:Plus has an optype, and not the decorator @ln_op" in refused(write("p.py", text))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.txt", "", "cannot load '"),
        ("p", "", "cannot load '"),
        ("p.py", "import sys; sys.exit(3)", "p.py:1: error: the file cannot be loaded: SystemExit: 3"),
        ("p.py", "from lightnet.diagnostics import LightNetError\n\nraise LightNetError('no')", "p.py:3: error: no"),
        ("p.py", "x = [\n  1 2]", "p.py:2:3: error: not valid Python"),
    ],
)
def test_broken_file(write, name: str, text: str, message: str) -> None:
    assert message in refused(write(name, text))


def test_missing_file(tmp_path: Path) -> None:
    assert "cannot read" in refused(tmp_path / "none.py")
    assert "cannot read" in refused(tmp_path / "none.mlir")


# -- clashes -----------------------------------------------------------------------------------------------

CLASHES = {
    "op": (OP, {"optype": "twice"}, "op 'ln.twice'"),
    "pass": (PASS, {"name": "twice"}, "pass 'twice'"),
    "kernel op": (TARGET, {"name": "twice"}, "kernel op 'twice'"),
    "front end": (FRONT_END, {"name": ".twice"}, "front end '.twice'"),
    "pattern": (PATTERN, {"into": "expand", "target": "cpu", "cls": "Same"}, "pattern 'Same' of pass 'expand'"),
}


@pytest.mark.parametrize("kind", CLASHES)
def test_clash_of_two_files(write, kind: str) -> None:
    text, values, what = CLASHES[kind]
    one, two = (write(f"{n}.py", text, **{"cls": n.title(), **values}) for n in ("one", "two"))
    message = refused(one, two)
    assert message.startswith(str(two)) and (f"error: {what} is defined twice: by plugin.one:" in message)
    assert f"({one})" in message and f"({two})" in message
    with load(one), load(write("three.py", "")):
        pass


@pytest.mark.parametrize(
    ("text", "values", "both"),
    [
        (OP, {"cls": "R", "optype": "relu"}, "op 'ln.relu' is defined twice: by lightnet.dialects.ln.elementwise:Relu and by "
         "plugin.p:R ({file})"),
        (PASS, {"cls": "P", "name": "plan"}, "by lightnet.passes.plan:PlanPass and by plugin.p:P ({file})"),
        (PASS, {"cls": "P", "name": "cse"}, "by xdsl.transforms.common_subexpression_elimination:"),
        (TARGET, {"cls": "K", "name": "cpu"}, "kernel op 'cpu' is defined twice: by lightnet.dialects.cpu:CpuKernelOp and by"),
        (FRONT_END, {"name": ".onnx"}, "front end '.onnx' is defined twice: by lightnet.frontends.loading:ONNX and by "
         "plugin.p:FORM ({file})"),
        (PATTERN, {"cls": "WidenProducts", "into": "subgraph", "target": "*"}, "pattern 'WidenProducts' of pass 'subgraph' is "
         "defined twice: by lightnet.backends.cpu.subgraphs:WidenProducts and by plugin.p:WidenProducts ({file})"),
        (PATTERN, {"cls": "FoldConstants", "into": "simplify", "target": "*"}, "by lightnet.passes.fold:FoldConstants and by"),
        ("from xdsl.ir import Dialect\nD = Dialect('tile', [], [])", {}, "dialect 'tile' is defined twice: by "
         "lightnet.dialects.tile:Tile and by plugin.p:D ({file})"),
        ("from lightnet.ir.target import Target\nT = Target('none')", {}, "target 'none' is defined twice: by "
         "lightnet.backends.interpreter.target:NONE and by plugin.p:T ({file})"),
    ],
)  # fmt: skip
def test_clash_with_what_is_built_in(write, text: str, values: dict[str, str], both: str) -> None:
    file = write("p.py", text, **values)
    assert both.format(file=file) in refused(file)


def test_patterns_of_different_targets_do_not_clash(write) -> None:
    one = write("one.py", PATTERN, cls="Same", into="expand", target="cpu")
    two = write("two.py", PATTERN, cls="Same", into="expand", target="none")
    with load(one, two):
        pass
    assert "is defined twice" in refused(one, write("any.py", PATTERN, cls="Same", into="expand", target="*"))


def test_pattern_that_is_never_applied(write) -> None:
    """A misspelt pass or target is an error, as the pattern would do nothing and nobody would know."""
    for into, target, message in (
        ("simplfy", "*", "unknown pass 'simplfy'; did you mean simplify?"),
        ("plan", "*", "pass 'plan' takes no patterns"),
        ("expand", "cpv", "unknown target 'cpv'"),
    ):
        assert message in refused(write("p.py", PATTERN, cls="Same", into=into, target=target))
    text = "from lightnet.ir.registry import pattern\n\n@pattern('simplify')\ndef half(op): pass"
    assert "p.py:3: error: @pattern takes a RewritePattern" in refused(write("p.py", text))
    own = PASS.format(cls="Nop", name="nop") + PATTERN.format(cls="Same", into="nop", target="*")
    with load(write("p.py", own)):
        pass


def test_folder_or_link_that_is_nothing(tmp_path: Path) -> None:
    assert "is a Python package, with an __init__.py, or holds descriptions" in refused(tmp_path)
    (loop := tmp_path / "loop.py").symlink_to(loop)
    assert "loop.py: error: cannot read" in refused(loop)


def test_clash_inside_one_file(write) -> None:
    text = OP.format(cls="A", optype="twice") + OP.format(cls="B", optype="twice")
    assert "op 'ln.twice' is defined twice: by plugin.p:A" in refused(write("p.py", text))


# -- descriptions ------------------------------------------------------------------------------------------

DESCRIBED = Path(__file__).parents[2] / "examples" / "described" / "ops.op"


def test_described_ops_are_gone_afterwards() -> None:
    with load(DESCRIBED) as (plugin,):
        names = {op.optype for op in plugin.ops}
        assert "my_gelu" in names and names <= set(optypes())
    assert not names & set(optypes())


def test_described_op_against_another_file(write) -> None:
    """Both sides by their lines, or by class and file where the other one is Python."""
    again = write("again.op", DESCRIBED.read_text("utf-8"))
    line = DESCRIBED.read_text("utf-8").splitlines().index('  optype: "my_gelu", autogen: true,') + 1
    assert f"op 'ln.my_gelu' is defined twice: by {DESCRIBED}:{line}:" in refused(DESCRIBED, again)
    python = write("p.py", OP, cls="Mine", optype="my_gelu")
    message = refused(DESCRIBED, python)
    assert f"by {DESCRIBED}:{line}:" in message and f"and by plugin.p:Mine ({python})" in message


def test_described_op_against_a_built_in_one(write) -> None:
    text = DESCRIBED.read_text("utf-8").replace('"my_gelu"', '"gelu"')
    file = write("mine.op", text)
    assert f"op 'ln.gelu' is defined twice: by lightnet.dialects.ln.activation:Gelu and by {file}:" in refused(file)


# -- patterns ----------------------------------------------------------------------------------------------


def test_every_pattern_of_ours_says_its_equation() -> None:
    docs = tool("docs")
    for pass_name, _, cls in every():
        assert docs.equation(cls).startswith("`"), (pass_name, cls)


def test_names_of_patterns_are_unique() -> None:
    """As what a user adds must be: traces, limits and checks name a pattern by it."""
    rows = every()
    for i, (pass_name, target, cls) in enumerate(rows):
        registry.check_pattern(
            pass_name, cls, [c for n, t, c in rows[:i] if n == pass_name and registry.meet(t, target)]
        )


# -- tools -------------------------------------------------------------------------------------------------


def test_il2json_checks_where_it_knows_the_ops(write, capsys: pytest.CaptureFixture) -> None:
    plugin = write("p.py", OP, cls="Plus", optype="plus_by")
    head = "create(| dst=x | dtype=TL_FLOAT, dims=[2], data=[0], ran=[0, 0], from_file=false);\n"
    net = write("n.net", head + "plus_by(src=x | dst=y | by=1);\n")
    assert il2json.main([str(net)]) == 0
    free = capsys.readouterr().out
    assert il2json.main(["--load", str(plugin), str(net)]) == 0
    assert capsys.readouterr().out == free and '"plus_by"' in free
    for text, message in (
        ("plus_by(src=x | dst=y | bye=1);", "n.net:2"),
        ("plus_by(source=x | dst=y | by=1);", "n.net:2"),
        ("plus_by(src=x | dst=y | by=-1);", "n.net:2"),
        ("minus_by(src=x | dst=y | by=1);", "optype minus_by is not registered"),
    ):
        wrong = write("n.net", head + text)
        assert il2json.main(["--load", str(plugin), str(wrong)]) == 1
        assert message in capsys.readouterr().err
        assert il2json.main([str(wrong)]) == 0
        capsys.readouterr()


def test_listings_show_it(write, capsys: pytest.CaptureFixture) -> None:
    text = (
        OP.format(cls="Plus", optype="plus_by")
        + PASS.format(cls="Nop", name="nop")
        + TARGET.format(cls="B", name="box")
    )
    file = write("p.py", text)
    assert ln_opt.main(["--load", str(file), "--list-passes", "--list-ops", "--list-targets"]) == 0
    out = capsys.readouterr().out
    assert "Does nothing" in out and "ln.plus_by" in out and "box.kernel" in out


def test_import_loads_no_plugin_machinery() -> None:
    code = "import lightnet, sys; sys.exit(any(n.startswith('lightnet.') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_installed_plugin_costs_no_metadata() -> None:
    """Listing the passes imports neither xDSL nor what finds packages."""
    code = (
        "import sys; from lightnet.cli import ln_opt; ln_opt.main(['--list-passes']); "
        "sys.exit('importlib.metadata' in sys.modules or 'xdsl' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


# -- installed packages ------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder on `sys.path` in which `install` puts packages, and a process that has not looked for plugins yet."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(installed, "_INSTALLED", installed._Installed())
    restore, modules = registry.checkpoint(), set(sys.modules)

    def install(package: str, entry: str, **files: str) -> None:
        info = folder / f"{package.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[lightnet.plugins]\n{entry}\n")
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()

    yield install
    restore()
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", "").startswith(str(folder)):
            del sys.modules[name]


def test_installed_module(site) -> None:
    text = (
        OP.format(cls="Plus", optype="plus_by")
        + PASS.format(cls="Nop", name="nop")
        + TARGET.format(cls="B", name="box")
    )
    site("ln-extra", "extra = ln_extra", ln_extra=text)
    assert "ln_extra" not in sys.modules
    assert PASSES.get("plan").name == "plan" and "ln_extra" not in sys.modules  # lazily
    assert PASSES.get("nop").__module__ == "ln_extra"
    assert "plus_by" in optypes() and TARGETS.get("box").name == "box"


def test_the_plugin_that_is_asked_for_is_loaded_alone(site) -> None:
    site("ln-box", "box = ln_box:TB", ln_box=TARGET.format(cls="B", name="box"))
    site("ln-other", "other = ln_other", ln_other=PASS.format(cls="Nop", name="nop"))
    assert TARGETS.get("box").name == "box"
    assert "ln_other" not in sys.modules and "box" not in KERNELS._rows  # module:object is that object alone
    assert "nop" in PASSES


def test_broken_package_is_a_warning(site) -> None:
    site("ln-broken", "broken = ln_broken", ln_broken="1 // 0")
    site("ln-good", "good = ln_good", ln_good=PASS.format(cls="Nop", name="nop"))
    with pytest.warns(
        installed.PluginWarning, match=r"'broken' of package ln-broken 1\.5 \(ln_broken\) cannot be loaded"
    ):
        assert "nop" in PASSES
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "nope" not in PASSES  # said once
    with pytest.raises(LightNetError, match=r"package ln-broken 1\.5 .*ZeroDivisionError"):
        TARGETS.get("broken")


def test_broken_package_that_is_asked_for_is_an_error(site) -> None:
    site("ln-broken", "broken = ln_missing_module")
    with pytest.raises(LightNetError, match=r"ln-broken 1\.5 .*ModuleNotFoundError"):
        TARGETS.get("broken")


def test_what_a_package_prints_is_not_output(site, capsys: pytest.CaptureFixture) -> None:
    site("ln-loud", "loud = ln_loud", ln_loud="print('hello')\n" + PASS.format(cls="Nop", name="nop"))
    assert "nop" in PASSES
    assert capsys.readouterr() == ("", "hello\n")


def test_clash_of_a_package_leaves_nothing_of_it(site) -> None:
    text = PASS.format(cls="Nop", name="nop") + OP.format(cls="R", optype="relu")
    site("ln-clash", "clash = ln_clash", ln_clash=text)
    both = (
        r"ln-clash 1\.5 .*op 'ln\.relu' is defined twice: by lightnet\.dialects\.ln\.elementwise:Relu and by ln_clash:R"
    )
    with pytest.warns(installed.PluginWarning, match=both):
        assert "nop" not in PASSES
    assert optypes()["relu"].__module__ == "lightnet.dialects.ln.elementwise"


def test_file_against_package(site, write) -> None:
    site("ln-extra", "extra = ln_extra", ln_extra=PASS.format(cls="Nop", name="nop"))
    file = write("mine.py", PASS, cls="Mine", name="nop")
    with pytest.raises(LightNetError) as e, load(file):
        pass
    assert f"by ln_extra:Nop (package ln-extra 1.5 (ln_extra)) and by plugin.mine:Mine ({file})" in str(e.value)
    assert "nop" in PASSES  # what is installed stays


def test_two_packages_of_one_name(site) -> None:
    site("ln-a", "same = ln_a", ln_a=PASS.format(cls="A", name="a-pass"))
    site("ln-b", "same = ln_b", ln_b=PASS.format(cls="B", name="b-pass"))
    with pytest.warns(installed.PluginWarning, match=r"plugin 'same' is defined twice: by package ln-\w 1\.5"):
        assert ("a-pass" in PASSES) != ("b-pass" in PASSES)


def test_places_that_hold_no_packages(site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on `sys.path` may be missing, a file, or empty, wherever it stands: packages of the others are found."""
    site("ln-extra", "extra = ln_extra", ln_extra="")
    missing, file, empty, folder = (str(tmp_path / name) for name in ("missing", "file.zip", "empty", "site"))
    Path(file).touch()
    Path(empty).mkdir()
    for order in itertools.permutations((missing, file, empty, folder)):
        monkeypatch.setattr(sys, "path", list(order))
        assert list(installed.entry_points()) == ["extra"]
        monkeypatch.setattr(sys, "path", [place for place in order if place != folder])
        assert installed.entry_points() == {}


def test_switched_off(site, monkeypatch: pytest.MonkeyPatch) -> None:
    site("ln-extra", "extra = ln_extra", ln_extra=PASS.format(cls="Nop", name="nop"))
    monkeypatch.setenv("LIGHTNET_NO_PLUGINS", "1")
    assert "nop" not in PASSES and "ln_extra" not in sys.modules


def test_tool_says_what_is_broken_in_a_line(site, capsys: pytest.CaptureFixture) -> None:
    site("ln-broken", "broken = ln_broken", ln_broken="1 // 0")
    assert ln_opt.main(["--list-passes"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: plugin 'broken' of package ln-broken 1.5") and err.count("\n") == 1


def test_il2json_reads_what_a_plugins_front_end_reads(write, capsys: pytest.CaptureFixture) -> None:
    plugin, net = write("f.py", FRONT_END, name=".toy"), write("n.toy", "3")
    assert il2json.main(["--load", str(plugin), str(net)]) == 0
    assert '"zeros"' in capsys.readouterr().out
    assert il2json.main([str(net)]) == 1
    assert "n.toy:1:1: error: expected an op's type, got '3': wrong syntax" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["--no-such-option"], ["nowhere.mlir"]], ids=" ".join)
def test_a_file_whose_target_is_named_runs_once(tmp_path, capsys, monkeypatch, words):
    """`-t` asks it for the options of its target before the tool loads it; what it warns of is said once, and it is gone behind the tool."""
    monkeypatch.setattr(sys, "ran", [], raising=False)
    path = tmp_path / "once.py"
    path.write_text("import sys\nsys.ran.append(1)\n" + TARGET.format(cls="Once", name="once"))
    known = set(TARGETS)
    with pytest.raises(SystemExit) if words[0].startswith("--") else nullcontext():
        assert ln_opt.main(["--load", str(path), "-t", "once", *words]) == 1
    assert sys.ran == [1] and set(TARGETS) == known
    assert ("nowhere.mlir" in capsys.readouterr().err) == (words == ["nowhere.mlir"])


def test_held_files_are_taken_over(tmp_path, recwarn):
    """By who loads the same files next; others run anew; warnings come where the files are used."""
    from lightnet import plugins

    path = tmp_path / "held.py"
    path.write_text("import warnings\nwarnings.warn('odd')\n" + TARGET.format(cls="Held", name="held"))
    plugins.hold([str(path)])
    assert "held" in TARGETS and not recwarn
    with plugins.loaded([str(path)]) as found:
        assert (
            [p.source for p in found] == [str(path)]
            and "held" in TARGETS
            and [str(w.message) for w in recwarn] == ["odd"]
        )
    assert "held" not in TARGETS
    plugins.hold([str(path)])
    other = tmp_path / "other.py"
    other.write_text(TARGET.format(cls="Other", name="other"))
    with plugins.loaded([str(other)]):
        assert "held" not in TARGETS and "other" in TARGETS


def test_a_file_that_registers_nothing_is_a_warning(write) -> None:
    """Such as one whose class has no decorator, or whose rule is of no pass."""
    rule = "from lightnet.dialects.ln.rules import rule\n@rule('relu')\ndef mine(op): pass\n"
    for text in ("", "x = 1", rule):
        with pytest.warns(UserWarning, match="p.py registers nothing"), load(write("p.py", text)):
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with load(write("p.py", PASS, cls="Nop", name="nop")):
            pass


def test_rule_of_an_op_that_there_is_not(write) -> None:
    """It would never be applied; one of an op of the file itself is."""
    head = "from lightnet.dialects.ln.rules import rule\nfrom lightnet.ir.registry import pattern\n"
    rule = head + "@pattern('simplify')\n@rule('{}')\ndef mine(op): pass\n"
    assert "unknown op 'ln.rellu'; did you mean relu" in refused(write("p.py", rule.format("rellu")))
    with load(write("p.py", OP.format(cls="Plus", optype="plus_by") + rule.format("plus_by"))):
        pass
    assert "@rule takes the name of an op, and got nothing" in refused(write("p.py", head + "@rule()\ndef f(op): pass"))
