"""What a notebook shows of a network, an op and an executable, and what is done with them by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import lightnet
from lightnet.dialects.ln.elementwise import Lrelu
from lightnet.ir.constraints import ConstraintError
from lightnet_report import notebook

NETS = Path(__file__).parents[2] / "examples" / "nets"


def picture(html: str) -> ElementTree.Element:
    """The SVG in a text, which has to be XML."""
    return ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + len("</svg>")])


def words(svg: ElementTree.Element) -> list[str]:
    return [text for node in svg.iter() if (text := (node.text or "").strip())]


def test_a_model_in_one_line() -> None:
    model = lightnet.load(NETS / "lenet.net")
    assert repr(model) == (
        f"<lightnet.Model {NETS / 'lenet.net'}: input float32[1, 1, 28, 28] -> classes float32[1, 10]; "
        "15 ops: relu 4, matmul 3, add 3, conv2d 2, maxpool2d 2, reshape 1>"
    )
    assert repr(model.run("@cpu:plan")).startswith(repr(model)[: repr(model).index(";")]), "of any level"


def test_long_lists_end() -> None:
    line = repr(lightnet.load(NETS / "squeezedet.net"))
    assert len(line) < 600 and "input float32[1, 3, 384, 1248]" in line and ", ...>" in line


def test_ops_are_found_and_read() -> None:
    model = lightnet.load(NETS / "lenet.net")
    first, second = model.find("conv2d")
    assert repr(first).startswith("<%conv1_conv = ln.conv2d %input") and repr(first).endswith(">")
    assert second.tensor_names == ("conv2_conv",) and model.find("softmax") == []
    model.run("expand,combine")
    assert len(model.find("conv2d")) == 2, "inside of kernels, too"


def test_an_op_with_other_parameters() -> None:
    first = lightnet.load(NETS / "lenet.net").find("conv2d")[0]
    other = first.but(padding=[0, 0, 1, 0])
    assert other.padding == (0, 0, 1, 0) and other.size == first.size and other.operands == first.operands
    assert other.result_specs[0].dims == (1, 6, 25, 24) and first.padding == (2, 2, 2, 2)
    with pytest.raises(ConstraintError, match="padding"):
        first.but(padding=[0, 0])


def test_a_parameter_that_is_none_is_named() -> None:
    value = lightnet.load(NETS / "lenet.net").find("conv2d")[0].results[0]
    with pytest.raises(ConstraintError, match="needs a `negslope` param, and has none called `slope`"):
        Lrelu.make([value], {"slope": 0.1})


def test_passes_by_their_names() -> None:
    model = lightnet.load(NETS / "mlp.net")
    assert model.run("expand,combine") is model and "cpu.kernel" in str(model)
    with pytest.raises(lightnet.LightNetError, match="unknown pass 'expnad'"):
        model.run("expnad")
    assert "cuda.kernel" in str(lightnet.load(NETS / "mlp.net").run("expand,combine", target="cuda"))


@pytest.mark.parametrize("passes", ["simplify", "@cpu:plan", "@cpu"])
def test_the_picture_of_a_model(passes: str) -> None:
    """Every op and the edges between them; at level 4 every launch."""
    model = lightnet.load(NETS / "lenet.net").run(passes)
    svg = picture(model._repr_html_())
    boxes, lines = svg.findall("{*}rect"), svg.findall("{*}polyline")
    assert len(boxes) > 5 and len(lines) >= len(boxes) - 2
    assert any("conv" in word for word in words(svg))
    width, height = (float(n) for n in svg.attrib["viewBox"].split()[2:])
    assert all(
        0 <= float(b.attrib["x"]) and float(b.attrib["x"]) + float(b.attrib["width"]) <= width + 1 for b in boxes
    )
    assert all(
        0 <= float(b.attrib["y"]) and float(b.attrib["y"]) + float(b.attrib["height"]) <= height + 1 for b in boxes
    )


def test_names_are_text(tmp_path: Path) -> None:
    """A network's names are nothing that a browser runs."""
    path = tmp_path / "net.mlir"
    path.write_text(
        'func.func @main() -> tensor<2xf32> {\n  %x = ln.input : tensor<2xf32> as "a<script>"("x<script>")\n'
        '  %y = ln.relu %x : tensor<2xf32> as "r"("y\\"<b>")\n  func.return %y : tensor<2xf32>\n}\n'
    )
    html = lightnet.load(path)._repr_html_()
    assert "<script" not in html and "<b>" not in html and "&lt;script&gt;" in html
    picture(html)


def test_large_networks_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "NODES", 3)
    html = lightnet.load(NETS / "lenet.net")._repr_html_()
    assert len(picture(html).findall("{*}rect")) == 3 and "14 more ops are left out" in html


def test_the_picture_of_an_executable() -> None:
    executable = lightnet.compile(NETS / "lenet.net", threads=1)
    html = executable._repr_html_()
    assert repr(executable).replace("<", "&lt;").replace(">", "&gt;") in html and len(picture(html)) > 3
    without = lightnet.compile(NETS / "lenet.net", "none")._repr_html_()
    assert "no memory plan" in without and "<svg" not in without
