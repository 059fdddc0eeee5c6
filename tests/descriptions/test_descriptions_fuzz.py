"""Operator descriptions that are malformed: each is a located error, soon, and never anything else.

Good descriptions (the examples, built-in ops, one of each kind) are mutated by rule, with a seeded choice of the place. A mutant that
is still well formed counts for nothing; its classes must hold up, too.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from counting import calls, ends
from test_descriptions import KERNEL, entry, number, result

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.examples import operation
from lightnet_descriptions import export, load_descriptions, operators, signature
from lightnet_descriptions.reader import read_description

ROOT = Path(__file__).parents[2]
EXAMPLES = (ROOT / "examples" / "described" / "ops.op").read_text("utf-8")
FILE = "ops.json"
#: Calls for one mutant.
MOST = 2_000_000


def good() -> list[dict]:
    """Descriptions to mutate."""
    found = [item.plain() for item in operators.described_entries(read_description(EXAMPLES, "x.op"))][1:]
    found += [
        export.describe(optypes()[name]) for name in ("conv2d", "slice", "sort1d", "arange", "concat", "lrelu", "print")
    ]
    view = entry(optype="row", run=None, params=[number("k", ge=0)], calc_offset="k * sizeof(src->dtype)",
                 tensors_out=[result(dims=[1], owner="src")], samples=[{"src": [3], "k": 1}])  # fmt: skip
    kernel = entry(optype="kernel", run=KERNEL, params=[number("k", "float")], samples=[{"src": "3x5xf32", "k": 0.5}])
    checked = entry(optype="checked", custom='src->ndim > 0, "no %d", src->ndim; src->len > 1', post_run="dst->len == src->len",
                    extra_privs=[{"type": "int", "name": "half", "value": "src->len / 2"}], run="dst[i...] = src[i...] + half")  # fmt: skip
    return [*found, view, kernel, checked]


GOOD = good()
Place = tuple  # of keys and positions


def places(value: object, at: Place = ()) -> Iterator[tuple[Place, object]]:
    """Every value inside of a description, with the way to it."""
    if at:
        yield at, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def put(d: dict, at: Place, value: object) -> dict:
    d = copy.deepcopy(d)
    holder = d
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    return d


def remove(d: dict, at: Place) -> dict:
    d = copy.deepcopy(d)
    holder = d
    for key in at[:-1]:
        holder = holder[key]
    del holder[at[-1]]
    return d


def pick(rng: random.Random, d: dict, wanted: Callable[[Place, object], bool]) -> tuple[Place, object]:
    found = [(at, v) for at, v in places(d) if wanted(at, v) and at[0] != "doc"]
    return rng.choice(found) if found else (("optype",), d["optype"])


def is_snippet(at: Place, value: object) -> bool:
    keys = (
        "run",
        "static_run",
        "check",
        "custom",
        "post_run",
        "dims",
        "dtype",
        "len",
        "flops",
        "calc_offset",
        "value",
        "lt",
        "le",
    )
    return isinstance(value, str) and any(k in keys for k in at) and "samples" not in at


def required_away(rng, d):
    return remove(d, (rng.choice(signature.REQUIRED),))


def inner_required_away(rng, d):
    return remove(d, pick(rng, d, lambda at, v: at[-1] in ("arg_name", "mtype", "ptype", "realtype"))[0])


def unknown_member(rng, d):
    at, value = pick(rng, d, lambda at, v: isinstance(v, dict))
    return put(d, (*at, "chekc") if isinstance(value, dict) else ("chekc",), "1 == 1")


def wrong_kind(rng, d):
    at, value = pick(rng, d, lambda at, v: True)
    return put(
        d, at, rng.choice([x for x in (None, 7, "?", [], {}, True, [[]], {"a": {}}) if type(x) is not type(value)])
    )


def huge_number(rng, d):
    at, _ = pick(rng, d, lambda at, v: isinstance(v, int | float) and not isinstance(v, bool))
    return put(d, at, rng.choice([10**19, -(10**15), 1e308, 0.5]))


def broken_snippet(rng, d):
    at, value = pick(rng, d, is_snippet)
    text = str(value)
    k = rng.randrange(len(text))
    return put(
        d,
        at,
        text[:k] + rng.choice(["(", ")", "]", "$", "@", " = ", " 1 ", "\\", '"', "...", "->", "{"]) + text[k + 1 :],
    )


def snippet_cut(rng, d):
    at, value = pick(rng, d, is_snippet)
    return put(d, at, str(value)[: rng.randrange(max(1, len(str(value)) - 1))])


def code(rng, d):
    at, _ = pick(rng, d, is_snippet)
    return put(
        d,
        at,
        rng.choice(
            ["for (i = 0; i < 9; i++) x += 1;", "return ln_alloc(9);", "int x = 3;", "__import__('os')", "x.__class__"]
        ),
    )


def deep_snippet(rng, d):
    at, _ = pick(rng, d, is_snippet)
    return put(
        d,
        at,
        rng.choice(["(" * 5000 + "1" + ")" * 5000, "-" * 5000 + "1", "[" * 999, "1" + " + 1" * 9999, "x" * 70000]),
    )


def unknown_name(rng, d):
    at, value = pick(rng, d, is_snippet)
    return put(d, at, str(value).replace("src", "scr"))


def unknown_function(rng, d):
    at, value = pick(rng, d, is_snippet)
    return put(d, at, f"system({value})")


def huge_power(rng, d):
    at, _ = pick(rng, d, lambda at, v: is_snippet(at, v) and at[-1] not in ("run", "static_run"))
    return put(d, at, rng.choice(["pow(10, pow(10, 10))", "[1 << 3]", "[" + ", ".join(["9"] * 20) + "]", "{{1}}"]))


def name_twice(rng, d):
    key = "tensors_out" if d["tensors_out"] else "params"
    return put(d, (key, 0, "arg_name"), d["tensors_in"][0]["arg_name"] if d["tensors_in"] else "1x")


def other_enum(rng, d):
    at, _ = pick(
        rng, d, lambda at, v: at[-1] in ("mtype", "ptype", "realtype", "from_func", "role", "kind", "sametype", "owner")
    )
    return put(d, at, rng.choice(["LN_MEM_GPU", "double double", "", "\0", "nope"]))


def bad_sample(rng, d):
    return put(
        d,
        ("samples",),
        rng.choice([[{}], [{"src": "9xf32"}], [{"src": 3}], [7], [{"src": "99999999999x99999999999xf32"}]]),
    )


def bad_arch(rng, d):
    return put(d, ("arch",), rng.choice(["cpu", "", "no ne", "x" * 500]))


MUTATORS = [
    required_away, inner_required_away, unknown_member, wrong_kind, huge_number, broken_snippet, snippet_cut, code, deep_snippet,
    unknown_name, unknown_function, huge_power, name_twice, other_enum, bad_sample, bad_arch,
]  # fmt: skip
SEEDS = 14


def outcome(text: str) -> LightNetError | None:
    """The error of a text, which has a place in it; None where it loads, and then its ops hold up."""
    lines = text.split("\n")
    try:
        with calls(at_most=MOST), ends():
            found = load_descriptions(read_description(text, FILE))
            for ops in found.families.values():
                for cls in ops:
                    hold_up(cls)
        return None
    except LightNetError as e:
        assert e.loc is not None and e.loc.file == FILE, e.render()
        assert 1 <= e.loc.line <= len(lines) and 1 <= e.loc.col <= len(lines[e.loc.line - 1]) + 1
        assert (e.source_line is not None or len(lines[e.loc.line - 1]) > 1 << 16) and len(e.render()) < 4000
        return e


def hold_up(cls) -> None:
    """The test cases of a class can be made, or refuse with an error of the op."""
    try:
        for case in cls.samples():
            operation(cls, case)
        assert isinstance(cls.__doc__, str)
    except LightNetError:
        pass


@cache
def errors_of(mutator: Callable) -> frozenset[str]:
    """The errors of the mutants of one rule."""
    found = set()
    for seed in range(SEEDS):
        rng = random.Random(f"{mutator.__name__}{seed}")
        error = outcome(json.dumps({"ops": [mutator(rng, rng.choice(GOOD))]}, indent=1))
        if error is not None:
            found.add(f"{seed}: {error.render()}")
    return frozenset(found)


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda m: m.__name__)
def test_mutants(mutator):
    assert len(errors_of(mutator)) >= SEEDS // 2, "the rule makes hardly anything malformed"


def test_a_hundred_malformed_ones():
    """As many of the mutants are malformed at least; the others are still descriptions."""
    assert sum(len(errors_of(mutator)) for mutator in MUTATORS) >= 100


@pytest.mark.parametrize("seed", range(30))
def test_text_cut_or_garbled(seed):
    """The `.op` text of the examples, cut somewhere or with a character too many."""
    rng = random.Random(seed)
    k = rng.randrange(len(EXAMPLES) // 3, len(EXAMPLES) - 1)
    text = EXAMPLES[:k] if seed % 2 else EXAMPLES[:k] + rng.choice("{}[]:,\"'`@-") + EXAMPLES[k:]
    outcome(text)
