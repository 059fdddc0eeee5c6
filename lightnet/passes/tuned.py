"""Choices that were measured (`lightnet tune`): a text file with a line for each kernel, its key and then choices,
which `choose` writes on kernels of that key, instead of those of the model.

    3f2a9c01b7de alg=direct; order=outer        # conv1: 812 us, 851 us by the model's choice

A key is of the target, the body and the types of a kernel, so that a file serves any network and any processor with
such kernels, merges line by line, and is passed over where it does not fit. An executable carries the text (`.lnx`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.body import structure
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.target import Request, Target
from lightnet.ir.types import parse_param_value
from lightnet.source import read_text

#: Largest file that is read.
_LARGEST = 16 << 20


def kernel_key(kernel: KernelOp) -> str:
    """The key of a kernel without choices: names, places and who reads it do not count."""
    inside = structure([*kernel.body.ops], {a: ("arg", i) for i, a in enumerate(kernel.body.args)})
    types = [str(t) for t in (*kernel.operand_types, *kernel.result_types)]
    return hashlib.sha256(repr((kernel.name, inside, types)).encode()).hexdigest()[:16]


def tuned_text(tuned: str) -> str:
    """The lines of a file of choices, or of the executable (.lnx) that carries some; what has several lines is such a
    text itself. Raises LightNetError where there is none."""
    if "\n" in tuned:
        return tuned
    from lightnet.runtime.artifact import is_saved, load_executable

    if not is_saved(tuned):
        text = read_text(tuned, _LARGEST) + "\n"
        tuned_choices(text, tuned)  # whose mistakes have a place now
        return text
    found = load_executable(tuned, runs=False).options.get("tuned")
    if not isinstance(found, str):
        raise LightNetError("the executable carries no tuned choices", SourceLoc(tuned), label="choose.tuned")
    return found


def tuned_choices(tuned: str, where: str = "<tuned>") -> dict[str, dict[str, Attribute]]:
    """Choices by key of a kernel, of `tuned_text`. Raises LightNetError, at its line, for what is no such line."""
    found: dict[str, dict[str, Attribute]] = {}
    for number, line in enumerate(tuned.split("\n"), 1):
        key, _, said = line.partition("#")[0].strip().partition(" ")
        parts = [part.partition("=") for part in said.split(";") if part.strip()]
        if key and (
            not parts or not all(k.strip().replace(".", "_").isidentifier() and v.strip() for k, _, v in parts)
        ):
            raise LightNetError("expected a key and choices, as in: 3f2a9c01b7de alg=direct; order=outer",
                                SourceLoc(where, number), label="choose.tuned")  # fmt: skip
        if key:
            found[key] = {k.strip(): choice_value(v.strip()) for k, _, v in parts}
    return found


def measured(
    kernel: KernelOp, tuned: Mapping[str, Mapping[str, Attribute]], target: Target, request: Request
) -> Mapping[str, Attribute] | None:
    """All choices of a kernel with the measured ones written on it; None where there are none, where it has its
    algorithm already, or where they cannot be any more: they are no better than a guess then."""
    choices = tuned.get(kernel_key(kernel)) if tuned and "alg" not in kernel.attributes else None
    if not choices:
        return None
    before = dict(kernel.attributes)
    try:
        kernel.attributes.update(choices)
        return target.choose(kernel, request)
    except LightNetError:
        kernel.attributes = before
        return None


def choice_value(text: str) -> Attribute:
    """A choice as it is written: a number, a bool, an array of these, or else a word."""
    parser = Parser(make_context(), text)
    try:
        value = parse_param_value(parser)
        whole = parser.parse_optional_punctuation(",") is None and parser.pos >= len(text)
    except ParseError:
        return StringAttr(text)
    values = value if isinstance(value, tuple) else (value,)
    numbers = [v for v in values if isinstance(v, int)]
    if not whole or len(numbers) < len(values):
        return StringAttr(text)
    return choice_attr(numbers if isinstance(value, tuple) else numbers[0])
