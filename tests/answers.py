"""What is said of texts with a mistake in them: a word that goes, comes, or stands somewhere else, a number that is another. Recorded in
``data/answers.json``, form by form, so that whoever changes a reader, a rule or a message sees what changes for whom, and means it:
``python tests/answers.py`` records them anew, ``--choose FORM ...`` chooses other mutants.

A mutant is a text's name and a number: what is done to the text is drawn from that alone. Of thousands those stay whose answer is of a kind
that few before them had, so that a form has hundreds of rows and not of the same mistake, and those that are first to run or to decide something. An answer is every error with its place, label and notes; or,
where there is none, what was warned of and a digest of what was read. What must hold of any mutant, other tests say (`upstream_mutants.py`, `onnx_mutants.py`).
"""

from __future__ import annotations

import json
import operator
import os
import pkgutil
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from counting import ends
from google.protobuf.json_format import MessageToJson, Parse, ParseError
from onnx import helper, numpy_helper
from programs import programs, read_program
from upstream_mutants import made_like
from violations import OPS, bases, changes
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.diagnostics import DescriptionWarning, LightNetError
from lightnet.frontends import mlir
from lightnet.ir.constraints import check_op
from lightnet.ir.context import make_context
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.printer import module_text
from lightnet.ir.rewriting import rewrite_greedily
from lightnet.runtime.dim_text import dims_text, parse_sizes
from lightnet.runtime.dims import Undecided, dim_max, dim_min, greatest, least, typical
from lightnet_descriptions import load_descriptions, pdl
from lightnet_descriptions.reader import read_description
from lightnet_lsp.documents import open_document
from lightnet_ptx.emulator import Emulator

os.environ.setdefault("LIGHTNET_THREADS", "1")  # as `conftest.py` has it
TESTS = Path(__file__).parent
sys.path += [str(TESTS / "nnvm")] * (str(TESTS / "nnvm") not in sys.path)
FILE = TESTS / "data" / "answers.json"
#: Rows of a form; of each kind of answer; mutants of which they are chosen, and processor seconds for that.
ROWS, EACH, TRIES, SECONDS = 320, 2, 20_000, 60
_WORD = re.compile(r"\w+|[^\w\s]|\s+")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
#: What numbers become: those around the edges of sizes, of counts of dims and of integer types.
NUMBERS = ("0", "1", "-1", "2", "3", "4", "5", "8", "9", "1.5", "1e30", "127", "255", "4096", "65536", "2147483647", "2147483648", "9223372036854775808")  # fmt: skip
#: Node cases of ONNX that take seconds to make: their expected results are computed.
SLOW = {"averagepool", "lppool", "maxpool"}
#: What sizes become, some blocks long, or one more or less.
SIZES = ("1", "2", "3", "5", "8", "15", "16", "17", "24", "31", "32", "48", "63", "64", "96", "100", "128", "129", "256", "1000")  # fmt: skip
#: What comes in anywhere.
PIECES = ("(", ")", "{", "}", "[", "]", ";", ",", '"', "'", "\\", "*", "=", "-", "/", "%", "!", ":", "|", "#", "`", "null", "true", "é", "\n")  # fmt: skip
#: Characters of an error or warning, beyond which it is a digest.
LONG = 400


class NoMutantError(Exception):
    """A text that is not of the form, as another's parser says, which is not in question."""


class Form(NamedTuple):
    """Texts by name; what is read from one, in words for a digest; how many rows there are, and how many of them of texts that are read;
    how they are changed, if not by one mistake; for how many seconds of processor time mutants are tried, and how many rows are a case of a
    test."""

    texts: Callable[[], Mapping[str, str]]
    read: Callable[[str, str], str]
    rows: int = ROWS
    reads: int = 100
    change: Callable[[str, random.Random], str] | None = None
    seconds: int = SECONDS
    part: int = 20


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def mutant(form: str, row: str) -> tuple[str, str]:
    """Name and text of a mutant: `row` is the name of the text that it was, and a number."""
    name, _, number = row.rpartition(" ")
    text, chance = _texts(form)[name], random.Random(f"{form} {name} {number}")
    return name, (FORMS[form].change or changed)(text, chance)


def resized(text: str, chance: random.Random) -> str:
    """A text with some sizes that are others, the same wherever they stand: mostly there is nothing wrong with it."""
    for _ in range(chance.choice((0, 1, 1, 2))):
        sizes = sorted(set(re.findall(r"(?<![\w.%])[1-9]\d*(?=x)", text))) or ["0"]
        old, new = chance.choice(sizes), chance.choice(SIZES)
        text = re.sub(rf"(?<![\w.%]){old}(?=x|[\],])", new, text)
    return text


@cache
def _texts(form: str) -> Mapping[str, str]:
    return FORMS[form].texts()


def changed(text: str, chance: random.Random) -> str:
    """A text with one change."""
    words = [m.span() for m in _WORD.finditer(text)]
    numbers = [m.span() for m in _NUMBER.finditer(text)]
    (a, b), (c, d) = sorted((chance.choice(words), chance.choice(words)))
    kind = chance.choice(("number",) * 4 + ("gone", "twice", "other", "piece", "swap", "cut", "char"))
    if kind == "number" and numbers:
        a, b = chance.choice(numbers)
        return text[:a] + chance.choice(NUMBERS) + text[b:]
    match kind:
        case "gone":
            return text[:a] + text[b:]
        case "twice":
            return text[:b] + text[a:b] + text[b:]
        case "other":
            return text[:a] + text[c:d] + text[b:]
        case "piece":
            return text[:a] + chance.choice(PIECES) + text[a:]
        case "swap" if b <= c:
            return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]
        case "cut":
            return text[:a] + text[c:]
    at = chance.randrange(len(text))
    return text[:at] + text[at + 1 :]


def answer(form: str, row: str) -> str:
    """What is said of a mutant."""
    name, text = mutant(form, row)
    with ends(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", DescriptionWarning)
        try:
            found = f"read as {digest(FORMS[form].read(text, name))}"
        except LightNetError as e:
            found = said(e)
        except NoMutantError:
            return ""
    return "\n".join([*(_short(f"warning: {w.message}") for w in warned), found])


def said(error: LightNetError) -> str:
    """An error, and those behind it: place, message, label, notes."""
    rows = []
    for e in (error, *error.others):
        label = f" [{e.label}]" if e.label else ""
        rows.append(_short(f"{_place(e.loc)}{e.message}{label}"))
        rows += [_short(f"note: {_place(loc)}{text}") for loc, text in e.notes]
    return "\n".join(rows)


def _place(loc: object) -> str:
    return "" if loc is None else f"{str(loc).replace(str(TESTS.parent), '.')}: "


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}... {digest(text)}"


# -- forms -----------------------------------------------------------------------------------------------------------


def files(*patterns: str) -> Callable[[], dict[str, str]]:
    """Texts of the files of patterns, from the folder of the project."""
    return lambda: {p.name: p.read_text("utf-8") for g in patterns for p in sorted(TESTS.parent.glob(g))}


def modules() -> dict[str, str]:
    """The modules in the inputs of FileCheck: every level, dialect and pass."""
    found = {}
    for path in sorted((TESTS / "filecheck").rglob("*.mlir")):
        for k, part in enumerate(path.read_text("utf-8").split("// -----")):
            text = "\n".join(line for line in part.splitlines() if not line.lstrip().startswith("//"))
            if "expected-error" not in part and len(text) < 4000 and text.strip():
                found[f"{path.stem}.{k}"] = text
    return found


def pipelines() -> dict[str, str]:
    """The modules whose file runs passes by name, with these, for a machine that is said."""
    found = {}
    for path in sorted((TESTS / "filecheck").rglob("*.mlir")):
        run = re.search(r"RUN: ln-opt[^|\n]* --pass='?([^\s']+)", text := path.read_text("utf-8"))
        if run is not None and "--load" not in text and "tests" not in run[1]:
            found |= {
                f"{run[1]} {name}": module for name, module in modules().items() if name.rpartition(".")[0] == path.stem
            }
    return found


def read_passes(text: str, name: str) -> str:
    """What a module becomes by the passes that its name begins with."""
    module = mlir.read(text, name.rpartition(" ")[2], context := make_context())
    passes = parse_pipeline(name.partition(" ")[0])
    pinned = [
        replace(p, features="sm_80" if "cuda." in text else "avx512") if getattr(p, "features", None) == "" else p
        for p in passes
    ]
    run_pipeline(context, module, pinned)
    return module_text(module)


def kernels() -> dict[str, str]:
    import ptx_hopper_kernels
    import ptx_kernels

    return {
        n: v
        for m in (ptx_kernels, ptx_hopper_kernels)
        for n, v in vars(m).items()
        if isinstance(v, str) and ".entry" in v
    }


def read_operators(text: str, name: str) -> str:
    """What ops of descriptions are: their schema, and one made for a case of the op that each is called like."""
    rows = []
    for classes in load_descriptions(read_description(text, name), replace=True).families.values():
        for cls in classes:
            rows += [re.sub(r" at 0x\w+", "", str(cls.schema)), cls.described.how]
            op = OPS.get(cls.optype.removesuffix(f"_{cls.arch}"))
            if op is None or op.is_host or not op.samples():
                continue
            made = made_like(cls, op)
            rows += [str(made), str(made.definition)]
    return "\n".join(rows)


def read_rules(text: str, name: str) -> str:
    return rewritten(load_descriptions(read_description(text, name)).patterns)


def read_pdl(text: str, name: str) -> str:
    return rewritten(pdl.load_pdl(text, name))


def rewritten(patterns: Iterable[Any]) -> str:
    """What patterns are called, and what they make of a network's ops, and of its kernels."""
    patterns = list(patterns)
    rows = [f"{p.__name__} {p.__doc__}" for p in patterns]
    for network in _networks():
        module = network.clone()
        try:
            rewrite_greedily(module, [p() for p in patterns], max_rewrites=40)
        except LightNetError as e:
            rows.append(said(e))
        rows.append(module_text(module))
    return "\n".join(rows)


@cache
def _networks() -> list[ModuleOp]:
    found = []
    for target in ("none", "cpu", "cuda", "tensorrt"):
        module = lightnet.load(TESTS.parent / "examples" / "cnn.net").module
        run_pipeline(make_context(), module, parse_pipeline(f"bind,simplify,expand{{target={target}}}"))
        found.append(module)
    return found


def read_network(suffix: str) -> Callable[[str, str], str]:
    def read(text: str, name: str) -> str:
        model = lightnet.loads(text, suffix, name)
        return "\n".join([module_text(model.module), *(f"{loc}: {message}" for loc, message in model.warnings)])

    return read


def read_dims(text: str, name: str) -> str:
    """What a list of dims is: each by itself, what it is of calls, and what it is with each other one."""
    sizes = parse_sizes(text)
    rows = [dims_text(sizes)]
    for a in sizes:
        rows += [
            f"{least(a)} {greatest(a)} {typical(a)}",
            *(dims_text([a // n, -(-a // n), a % n]) for n in (1, 2, 3, 8)),
        ]
        for b in sizes:
            rows.append(dims_text([a + b, a - b, a * b, dim_max(a, b), dim_min(a, b)]))
            for decide in (operator.lt, operator.le, operator.eq, operator.floordiv):
                try:
                    rows.append(str(decide(a, b)))
                except (Undecided, ZeroDivisionError, TypeError) as e:
                    rows.append(f"{type(e).__name__}: {e}")
    return "\n".join(rows)


DIMS = """batch(1..16), 2*length(1..512) + 1, length floordiv 4, max(a(0..9), 3)
height(32..1024 by 32), height floordiv 2 + 1, (height + 5) floordiv 3, 64*height - 7
x(0..7), y(-3..5), x*y + 2*y, min(x, y) - 1, x ceildiv 2, (x + y) mod 4
past(1..255), new(1..16), past + new, (past + new)*8, max(past, new + 1, 4), min(past floordiv 2, 9)
'a b'(1..4), 3*'a b'*'a b' + 2, 1152921504606846976, ('a b' + 3) floordiv 4 * 4"""


def read_pipeline(text: str, name: str) -> str:
    return "\n".join(map(str, parse_pipeline(text, {"features": "avx512", "target": "cpu"})))


def read_module(text: str, name: str) -> str:
    return module_text(mlir.read(text, name))


def read_document(text: str, name: str) -> str:
    """What an editor shows of a text: findings, the outline, and at places all over it what is under the mouse, and what may be typed."""
    suffix = ".net" if name.endswith(".net") else ".mlir"
    document = open_document(text, f"document{suffix}")
    rows = [str(f) for f in document.analyse()]
    rows += [str(s) for s in document.symbols()]
    for at in range(0, len(text), max(1, len(text) // 40)):
        rows += [
            str(document.hover(at)),
            str(document.complete(at)[:20]),
            str(document.references(at)),
            str(document.definition(at)),
        ]
    return "\n".join(rows)


def read_kernel(text: str, name: str) -> str:
    Emulator().load(text)
    return name


def onnx_models() -> dict[str, str]:
    """A model for each node case of ONNX and for cases of other domains, as JSON."""
    from onnx.backend.test.case import node
    from onnx_microsoft import cases as fused
    from onnx_ml import cases as classical

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node.__path__):
            if module.name not in SLOW and not module.ispkg:
                import_module(f"{node.__name__}.{module.name}")
    nodes = {c.name: (c.model, c.model.graph.node) for c in node._NodeTestCases if "_expanded" not in c.name}
    found = {
        name: model for name, (model, of) in nodes.items() if not any(n.domain or n.op_type.lower() in SLOW for n in of)
    }
    for op, cases in fused().items():
        found |= {f"{op}_{k}": onnx_model("com.microsoft", op, i, o, 1, c, a) for k, (i, a, o, c) in enumerate(cases)}
    for op, cases in classical().items():
        found |= {f"{op}_{k}": onnx_model("ai.onnx.ml", op, *case) for k, case in enumerate(cases)}
    texts = {name: MessageToJson(model, indent=1) for name, model in found.items()}
    return {name: text for name, text in texts.items() if len(text) < 6000}


def onnx_model(domain: str, op: str, inputs: Mapping[str, np.ndarray | None], outputs: int, version: int, constants: Sequence[str],
               attributes: Mapping[str, Any]) -> onnx.ModelProto:  # fmt: skip
    there = {name: a for name, a in inputs.items() if a is not None}
    node = helper.make_node(
        op,
        ["" if a is None else n for n, a in inputs.items()],
        [f"y{k}" for k in range(outputs)],
        domain=domain,
        **attributes,
    )
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in there.items()
        if n not in constants
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph(
        [node], "g", infos, results, [numpy_helper.from_array(there[n], n) for n in constants if n in there]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, version)], ir_version=8
    )


def read_onnx(text: str, name: str) -> str:
    try:
        model = Parse(text, onnx.ModelProto()).SerializeToString()
    except (ParseError, ValueError, UnicodeError) as e:
        raise NoMutantError from e
    return module_text(lightnet.loads(model, ".onnx", name).module)


def mxnet_ops() -> dict[str, str]:
    """A graph for each case of an op of MXNet, of inputs of known shapes."""
    from nnvm_graphs import Graph
    from test_nnvm_ops import CASES

    found = {}
    for k, c in enumerate(CASES):
        graph = Graph()
        inputs = [graph.var(f"x{i}", __shape__=str(tuple(np.shape(a)))) for i, a in enumerate(c.inputs)]
        node = graph.op(c.op, "y", *inputs, **c.attrs)
        found[f"{c.op}_{k}.json"] = graph.text(*([node[0], i, 0] for i in range(len(c.wanted()))))
    return found


FORMS = {
    "operators": Form(files("tests/data/upstream/op/**/*.op", "tests/data/upstream_style.op", "examples/described/*.op"), read_operators, 800, 150),
    "rules": Form(files("tests/data/upstream/e*/*.json", "examples/described/ep_cpu.json"), read_rules),
    "pdl": Form(files("examples/rules.mlir", "examples/described/pads.mlir", "examples/my_rule.mlir"), read_pdl),
    "il": Form(files("examples/*.net", "examples/described/*.net", "examples/constants/*.net"), read_network(".net")),
    "json": Form(files("examples/*.json", "tests/data/nets/ir/*.json"), read_network(".json")),
    "nnvm": Form(files("tests/data/nnvm/l*-symbol.json", "tests/data/nnvm/alexnet-symbol.json"), read_network(".json")),
    "modules": Form(modules, read_module, 800, 250),
    "passes": Form(pipelines, read_passes, 800, 600, resized),
    "dims": Form(lambda: {f"dims {k}": line for k, line in enumerate(DIMS.splitlines())}, read_dims, 400, 300),
    "pipelines": Form(lambda: {k.partition(" ")[0]: k.partition(" ")[0] for k in pipelines()}, read_pipeline, 200),
    "ptx": Form(kernels, read_kernel),
    "documents": Form(lambda: {**files("examples/*.net")(), **modules()}, read_document, 80),
    "onnx": Form(onnx_models, read_onnx, 1000, 400),
    "programs": Form(programs, read_program, 600, 0, lambda text, chance: text, seconds=700, part=4),
    "mxnet": Form(mxnet_ops, read_network(".json"), 800, 300),
}  # fmt: skip


def op_answers(optype: str) -> list[str]:
    """What the checks of an op say of everything one step away from its samples, the results' types or an error: the first of each kind with the
    number of those that are of it, and a digest of all."""
    cls = OPS[optype]
    found: list[str] = []
    for base in bases(cls):
        for t in (base, *changes(cls, base)):
            try:
                found.append("read as " + " ".join(map(str, check_op(cls, t.specs, dict(t.params), "it"))))
            except LightNetError as e:
                found.append(said(e))
    counts = Counter(map(kind, found))
    first = {kind(text): text for text in reversed(found)}
    return [digest("\n".join(found)), *(f"{counts[k]} x {_short(first[k])}" for k in sorted(first))]


# -- the record ------------------------------------------------------------------------------------------------------


def kind(text: str) -> str:
    """A text without what differs from mutant to mutant."""
    text = re.sub(r"^\S+:\d+:\d+: ", "", text, flags=re.M)
    if text.startswith("read as"):
        return "read"
    return re.sub(r"'[^']*'|`[^`]*`|\"[^\"]*\"|\d+|\[[^]]*\]", "_", text)[:200]


def chosen(form: str) -> list[str]:
    """Mutants of a form, the answers of which are of few kinds each; and, in a copy of the project that notes what runs (`tools/mutations/watching.py`),
    all that are first to run a line, or to compute another value where there could be a fault."""
    try:
        from lightnet._watched import HITS
    except ImportError:
        HITS = bytearray()
    counts: Counter[str] = Counter()
    rows, answers, known, tried = [], set(), 0, 0
    start = time.process_time()
    for row in (f"{name} {number}" for number in range(TRIES) for name in sorted(_texts(form), key=digest)):
        if time.process_time() - start > FORMS[form].seconds or tried == TRIES:
            break
        tried += 1
        HITS[:] = bytes(len(HITS))
        found = answer(form, row)
        runs, of = int.from_bytes(HITS), kind(found)
        is_rare = counts[of] < (FORMS[form].reads if of == "read" else EACH) and len(rows) < FORMS[form].rows
        if found and found not in answers and (is_rare or runs & ~known):
            rows.append(row)
            answers.add(found)
            counts[of] += 1
            known |= runs
    print(f"{form}: {len(rows)} of {tried} mutants, {time.process_time() - start:.0f} s", file=sys.stderr)
    return rows


def main(words: list[str]) -> None:
    data = json.loads(FILE.read_text("utf-8"))
    for form in words[1:] if words[:1] == ["--choose"] else ():
        data["texts"][form] = dict.fromkeys(chosen(form))
    data["texts"] = {form: {row: answer(form, row) for row in sorted(data["texts"][form])} for form in FORMS}
    data["ops"] = {optype: op_answers(optype) for optype in sorted(OPS)}
    FILE.write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
