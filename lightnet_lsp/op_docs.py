"""Ops, parameters and passes as the Markdown of a hover, from what they declare. Imports `ir` and the registries."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import textwrap
from functools import cache
from typing import get_type_hints

from xdsl.ir import Operation
from xdsl.passes import ModulePass

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import DIALECTS, OURS
from lightnet.ir.op import LnOp, Operand, Param
from lightnet.ir.passes import XDSL_PASSES, LnPass, find_pass, option_text
from lightnet.ir.registry import PASSES
from lightnet.ir.types import format_param_value
from lightnet.runtime.dtypes import DTYPES

_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "eq": "=", "ne": "≠"}


@cache
def all_ops() -> dict[str, type[Operation]]:
    """Every op that MLIR text may name, by name, ours first; importing all dialects takes some 0.3 s."""
    dialects = [*(d for d in OURS if d in DIALECTS), *(d for d in DIALECTS if d not in OURS)]
    return {op.name: op for dialect in dialects for op in DIALECTS.get(dialect).operations}


def ln_op(name: str) -> type[LnOp] | None:
    """The `ln` op called `name`, with or without ``ln.``; None for any other name."""
    found = all_ops().get(name if name.startswith("ln.") else f"ln.{name}")
    return found if found is not None and issubclass(found, LnOp) else None


def doc(cls: type) -> str:
    """The docstring of a class, or of a base of ours that it completes; "" where that would be xDSL's, which says
    nothing of it."""
    for base in cls.__mro__:
        if base in (LnOp, LnPass) or (base is not cls and not base.__module__.startswith("lightnet.")):
            break
        text = (
            base.__doc__ if "__doc__" in base.__dict__ else None
        )  # a described op makes its docstring when it is read
        if text and not text.startswith(f"{base.__name__}("):  # what a dataclass gives itself
            return inspect.cleandoc(text)
    return ""


def first_sentence(cls: type) -> str:
    """The first sentence of a class's docstring."""
    return doc(cls).split("\n\n", 1)[0].replace("\n", " ").split(". ", 1)[0].rstrip(".")


def op_markdown(op: type[Operation], *, il: bool = False) -> str:
    """An op: how it is written (in IL with `il`), what it does, its tensors and parameters, and its definition."""
    if not issubclass(op, LnOp):
        return "\n\n".join(filter(None, [_code(op.name), doc(op)]))
    lines = [_code(_il_form(op) if il else _mlir_form(op)), doc(op)]
    tensors = [f"* `{o.name}`: {operand_text(o)}" for o in op.schema.operands]
    tensors += [f"* `{r.name}`: result" + (", one or more" if r.variadic else "") for r in op.schema.results]
    params = [f"* `{p.name}`: {param_text(p)}" for p in op.schema.params]
    checks = [f"* {label}: `{text}`" for label, text in op.checks.items()]
    for title, items in (("Tensors", tensors), ("Parameters", params), ("Constraints", checks)):
        lines += [f"**{title}**\n" + "\n".join(items)] if items else []
    if isinstance(op.definition, str):
        lines += ["**Definition**", _code(textwrap.dedent(op.definition).strip())]
    return "\n\n".join(filter(None, lines))


def operand_text(o: Operand) -> str:
    """The text on what an operand may be."""
    parts = ["data" if o.role == "data" else "known when the network is loaded"]
    parts += [f"rank {o.rank}"] if o.rank is not None else []
    parts += [f"rank ≥ {o.min_rank}"] if o.min_rank else []
    parts += [" or ".join(o.dtypes)] if o.dtypes else []
    parts += [f"type of `{o.same_type}`"] if o.same_type else []
    parts += [f"shape of `{o.same_shape}`"] if o.same_shape else []
    return ", ".join([*parts, "one or more"] if o.variadic else parts)


def param_text(p: Param) -> str:
    """The type, bounds, choices and default of a parameter."""
    base = p.realtype if p.kind.startswith("number") else p.kind.rstrip("s")
    length = "" if p.length is None else p.length
    parts = [f"{base}[{length}]" if p.is_array else base]
    parts += [f"{_SIGNS[sign]} `{bound}`" for sign, bound in p.bounds]
    if p.choices:
        is_dtype = p.choices[: len(DTYPES)] == tuple(d.tl for d in DTYPES)
        parts.append(
            "a data type, `TL_FLOAT` and so on" if is_dtype else f"one of {', '.join(f'`{c}`' for c in p.choices)}"
        )
    if p.in_type is not None:
        parts.append("in `.mlir` given by the type of the result")
    elif p.default is not ...:
        parts.append(f"default `{format_param_value(p.default)}`")  # type: ignore[arg-type]
    return ", ".join(parts)


def param_markdown(op: type[LnOp], p: Param) -> str:
    return f"parameter `{p.name}` of `{op.name}`: {param_text(p)}"


def topic_markdown(topic: str) -> str:
    """The documentation of a completion's topic: ``op NAME``, ``il OPTYPE`` or ``pass NAME``; "" for anything else."""
    kind, _, name = topic.partition(" ")
    if kind == "pass":
        return pass_markdown(name) or ""
    op = ln_op(name) if kind == "il" else all_ops().get(name)
    return op_markdown(op, il=kind == "il") if op is not None else ""


def _mlir_form(op: type[LnOp]) -> str:
    operands = ", ".join(f"%{o.name}{', …' if o.variadic else ''}" for o in op.schema.operands)
    params = ", ".join(p.name for p in op.schema.params if p.in_type is None)
    results = ", ".join(f"%{r.name}" for r in op.schema.results)
    return " ".join(filter(None, [results and f"{results} =", op.name, operands, params and f"{{{params}}}"]))


def _il_form(op: type[LnOp]) -> str:
    ins = ", ".join(f"{o.name}1=, …" if o.variadic else f"{o.name}=" for o in op.schema.operands)
    outs = ", ".join(f"{r.name}1=, …" if r.variadic else f"{r.name}=" for r in op.schema.results)
    return f"{op.optype}({ins} | {outs} | {', '.join(f'{p.name}=' for p in op.schema.params)})"


# -- passes ----------------------------------------------------------------------------------------------------------


def pass_names() -> list[str]:
    """Every pass that a pipeline may name."""
    return sorted({*PASSES, *XDSL_PASSES})


def pass_class(name: str) -> type[ModulePass] | None:
    try:
        return find_pass(name)
    except LightNetError:
        return None


def pass_options(cls: type[ModulePass]) -> dict[str, str]:
    """The options of a pass as a pipeline spells them, each with its type and default."""
    hints = get_type_hints(cls)
    options = {}
    for f in dataclasses.fields(cls):
        if f.init and f.name != "name":
            default = f", default {f.default}" if f.default is not dataclasses.MISSING else ""
            options[f.name.replace("_", "-")] = option_text(hints[f.name]) + default
    return options


def pass_markdown(name: str) -> str | None:
    """A pass: what it does, and its options; None for an unknown name."""
    if (cls := pass_class(name)) is None:
        return None
    text = doc(cls) or inspect.cleandoc(sys.modules[cls.__module__].__doc__ or "")
    options = [f"* `{option}`: {text}" for option, text in pass_options(cls).items()]
    lines = [f"pass `{name}`", text] + (["**Options**\n" + "\n".join(options)] if options else [])
    return "\n\n".join(filter(None, lines))


def _code(text: str) -> str:
    return f"```\n{text}\n```"
