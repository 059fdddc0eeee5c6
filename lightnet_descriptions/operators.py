"""Operator descriptions (document 002, and upstream's `.op` files) -> op classes like those of `dialects/ln`.

`load_operators` checks a whole document and gives the classes; nothing of it is executed. What every member means is in
docs/describe-an-op.md. Imports `ir`, the registry and the other modules of this folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet.ir.collector import collector_paused
from lightnet.ir.examples import operation
from lightnet.ir.expr import format_expr
from lightnet.ir.op import LnOp, ln_op
from lightnet_descriptions import ccode, code, definitions, fields, hardware, offsets, running, snippets
from lightnet_descriptions.coded import written_definition
from lightnet_descriptions.described import After, DescribedMembers, DescribedOp, DescribedView, LazyDoc
from lightnet_descriptions.reader import DescribedValue, Document, read_description
from lightnet_descriptions.signature import CODE_OF, SignatureReader, built_in_of

if TYPE_CHECKING:
    from lightnet_descriptions import kernels

#: What a `run` begins with if it is an inline kernel.
KERNEL = "func.func"
#: The members of a file in JSON.
_TOP = {"ops": "a", "replace": "b"}
#: Ops of one document.
MAX_OPS = 10_000


def load_operators(document: Document, *, replace: bool = False) -> list[type[LnOp]]:
    """The op classes of a document, in order; those with ``autogen: false`` are left out. With `replace` (or the member
    of that name) each may take the place of an op that there is. Raises `LightNetError` at the place of what is
    wrong."""
    with collector_paused():  # what is made here stays
        return _load(document, replace)


@cache
def packaged_operators(row: str) -> tuple[type[LnOp], ...]:
    """The op classes of a file that comes with the package: ``package:file``."""
    package, _, file = row.partition(":")
    return tuple(load_operators(read_description(files(package).joinpath(file).read_text("utf-8"), file)))


def _load(document: Document, replace: bool) -> list[type[LnOp]]:
    top = document.objects.get("")
    if top is not None and isinstance(top.value, dict) and "replace" in top.value and "ops" in top.value:
        replace = bool(fields.members(top, "the file", _TOP)["replace"].value)
    classes: dict[str, type[LnOp]] = {}
    places: dict[str, DescribedValue] = {}
    for item in described_entries(document):
        cls = _OpReader(item, document.file, replace=replace).cls()
        if cls is None:
            continue
        if cls.optype in classes:
            place = item.value["optype"]  # type: ignore[index, call-overload]
            raise place.error(f"optype '{cls.optype}' is described twice; the first stands at {places[cls.optype].loc}")
        classes[cls.optype], places[cls.optype] = cls, item
    return list(classes.values())


def described_entries(document: Document) -> Iterator[DescribedValue]:
    """The descriptions of a document: the elements of `ops`, or the named objects of an `.op` file."""
    if document.kind == "op":
        found = list(document.objects.values())
    else:
        top = document.objects[""]
        if isinstance(top.value, dict) and "optype" in top.value:  # one op, without an array around it
            yield top
            return
        found = fields.elements(fields.members(top, "the file", _TOP, ["ops"])["ops"], "'ops'", MAX_OPS)
    if len(found) > MAX_OPS:
        raise found[MAX_OPS].error(f"more than {MAX_OPS} ops in one file")
    yield from found


class _OpReader(SignatureReader):
    """Reads one description."""

    def cls(self) -> type[LnOp] | None:
        """The class; None where the description is none of an op."""
        if "autogen" in self.m and not self.m["autogen"].value:
            return None
        self.read()
        self.body()
        self.work()
        return self.build()

    # -- what it computes

    def body(self) -> None:
        if self.stands_for is not None:
            self.as_built_in_op(self.stands_for)
            return
        if self.holds_code:
            self.coded()
            return
        views = self.views()
        item, text = self.computation()
        how, items = "nothing", None
        if item is None and not views and (text := hardware.DEFINITIONS.get(self.optype)) is not None:
            item = DescribedValue(text, self.m["optype"].source, self.m["optype"].start)  # known, and not said here
            items = [item]
        if item is not None and (code := self.single_code()) is not None:
            self.inherit(code, item)
            how = "builtin"
        elif text is not None and item is not None and text.lstrip().startswith(KERNEL):
            self.parts.described["kernel"] = self.template(item)
            self.parts.namespace["has_builder"] = True
            how = "kernel"
        elif text is not None and item is not None:
            self.parts.namespace["definition"] = ccode.plain_privates(text)
            self.notation(self.parts.namespace["definition"], items)
            how = "notation"
        elif views:
            self.parts.namespace["definition"] = "\n".join(self.moved(v) for v in views)
            how = "notation"
        self.parts.described |= {"how": how, "run": item, "views": views}
        if views or "views_of" in self.parts.described:
            self.parts.namespace["is_move"] = True

    def as_built_in_op(self, op: type[LnOp]) -> None:
        """The op has no code, and a built-in op has its name, its tensors and its params: it computes as that one."""
        for key in ("run", "static_run"):
            if key in self.m and str(self.m[key].value).strip():  # of `create`
                self.running(key)
        self.parts.namespace |= {"stands_for": op, "is_move": op.is_move, "is_host": op.is_host, "unique": op.unique}
        if op.is_host:
            self.parts.namespace["traits"] = op.traits
        self.parts.described |= {"how": "stands", "run": self.m.get("run", self.m["optype"]), "views": ()}

    def coded(self) -> None:
        """`static_run` and `run` are C: calls of ops, or loops over elements."""
        parts = [self.running(key) for key in ("static_run", "run") if key in self.m and str(self.m[key].value).strip()]
        called = set().union(*(r.calls for r in parts))
        if random := called & set(running.RANDOM):
            item = parts[0].item
            raise item.error(
                f"'{min(random)}' makes random contents, which are those of `create`: take its tensors and params"
            )
        is_host = bool(called & set(running.PRINTS))
        if is_host:
            self.parts.namespace |= {"is_host": True, "traits": built_in_optypes()["print"].traits}
        self.parts.namespace |= {"definition": property(written_definition), "named": self.named}
        self.offsets()
        self.parts.described |= {"how": "code", "run": parts[-1].item, "views": (), "running": tuple(parts)}

    def running(self, key: str) -> code.Code:
        """The code of a run, its names checked."""
        return code.read_code(self.m[key], key, self.scope(dict.fromkeys(self.parts.results, False), run=True))

    def offsets(self) -> None:
        """`calc_offset` beside a `run` in place: where the results lie is where their owners do."""
        item = self.m.get("calc_offset")
        if item is not None and str(item.value).strip():
            if not any(r.owner is not None for r in self.parts.results.values()):
                raise item.key_error("'calc_offset' is for outputs with an 'owner'")
            self.parts.described["offset"] = self.offset_code(item, "calc-offset")

    def offset_code(self, item: DescribedValue, label: str) -> code.Code:
        scope = self.scope(dict.fromkeys(self.parts.results, False), run=True)
        return code.read_code(item, label, replace(scope, functions=offsets.FUNCTIONS))

    def computation(self) -> tuple[DescribedValue | None, str | None]:
        """`static_run` and `run`, as one text: the results of both are the op's."""
        given = [self.m[key] for key in ("static_run", "run") if key in self.m and str(self.m[key].value).strip()]
        if not given:
            return None, None
        if len(given) == 2 and any(
            str(i.value).lstrip().startswith(KERNEL) or CODE_OF.fullmatch(str(i.value)) for i in given
        ):
            raise given[1].key_error("beside a 'static_run', 'run' is index notation, as it is itself")
        return given[-1], "\n".join(str(i.value) for i in given)

    def single_code(self) -> type[LnOp] | None:
        found = [built_in_of(self.m[key], "builtin") for key in ("static_run", "run") if key in self.m]
        return next((c for c in found if c is not None), None)

    def inherit(self, code: type[LnOp], item: DescribedValue) -> None:
        """The op computes what a built-in one does: its class is a base."""
        self.needs_names_of(code, item)
        for mine, theirs, what in (
            (list(self.parts.operands), [o.name for o in code.schema.operands], "inputs"),
            (list(self.parts.results), [r.name for r in code.schema.results], "outputs"),
        ):
            if mine != theirs:
                raise item.error(f"'builtin({code.optype})' has the {what} {', '.join(theirs) or 'none'}")
        self.parts.base = code

    def notation(self, text: str, items: list[DescribedValue] | None = None) -> None:
        """Check a definition as far as that needs no shapes; `items` are its texts, if they are not those of the
        description."""
        if items is None:
            items = [self.m[k] for k in ("static_run", "run") if k in self.m and str(self.m[k].value).strip()]
        variadic = next((n for n, f in (*self.parts.operands.items(), *self.parts.results.items()) if f.variadic), "")
        constants = (*self.parts.params, *self.names.constants)
        names = definitions.DefinitionScope(tuple(self.parts.operands), tuple(self.parts.results), constants, variadic)
        definitions.check_definition(items, names)
        used = definitions.enumerators(text, names)
        self.parts.described["constants"] += tuple((name, f'"{snippets.ENUMERATORS[name]}"') for name in used)

    def template(self, item: DescribedValue) -> kernels.Template:
        """The pieces of an inline kernel."""
        from lightnet_descriptions import kernels  # with the engines that run it: few descriptions have one

        pieces: list[str] = []
        text, at = str(item.value), 0
        for m in re.finditer(r"\$\{([^{}]*)\}", text):
            inner = DescribedValue(m[1], item.source, item.position(m.start(1)))
            pieces += [self.plain(item, at, m.start()), snippets.snippet_text_of(inner, self.names)]
            at = m.end()
        return kernels.Template(self.optype, (*pieces, self.plain(item, at, len(text))), item)

    @staticmethod
    def plain(item: DescribedValue, start: int, stop: int) -> str:
        """A piece of a kernel's text without expressions."""
        text = str(item.value)[start:stop]
        if (at := text.find("${")) >= 0:
            raise item.error_at(start + at, "'${' without a '}'")
        return text

    # -- views

    def views(self) -> tuple[DescribedView, ...]:
        """The results that are bytes of an input: `owner`, from `calc_offset` on."""
        offset = self.m.get("calc_offset")
        if offset is not None and offset.value == "":  # as upstream: it is not there
            offset = None
        if offset is not None and (code := built_in_of(offset, "views")) is not None:
            self.needs_names_of(code, offset)
            self.same_definition(code, offset)
            self.parts.described["views_of"] = code
            return ()
        computed = any(str(self.m[k].value).strip() for k in ("run", "static_run") if k in self.m)
        owned = [name for name, r in self.parts.results.items() if r.owner is not None]
        if offset is not None and not owned:
            raise offset.key_error("'calc_offset' is for outputs with an 'owner'")
        if computed or not owned:
            if offset is not None:
                raise offset.key_error("an op with 'calc_offset' is a view of its owner: leave 'run' out")
            return ()
        if rest := [name for name in self.parts.results if name not in owned]:
            raise self.item.error(f"the output '{rest[0]}' has no 'owner', and there is no 'run' that computes it")
        inputs = list(self.parts.operands)
        return tuple(
            DescribedView(inputs.index(str(self.parts.results[name].owner)), number, self.offset(name, offset))
            for number, name in enumerate(self.parts.results)
        )

    def offset(self, name: str, item: DescribedValue | None) -> str | code.Code:
        """The offset of an output in its owner, in bytes: `calc_offset` is one for all, or an object by output."""
        if item is None:
            return "0"
        if isinstance(item.value, dict):
            item = fields.members(
                item, "'calc_offset'", dict.fromkeys(self.parts.results, "s"), list(self.parts.results)
            )[name]
        if ccode.names_offsets(str(item.value)):
            return self.offset_code(item, f"{name}.calc-offset")
        return format_expr(snippets.resolve_names(ccode.parse_item(item), self.names, item))

    def moved(self, view: DescribedView) -> str:
        """A view as a definition: the elements of its owner, from an offset on."""
        name, owner = list(self.parts.results)[view.result], list(self.parts.operands)[view.operand]
        if view.offset == "0":
            return f"{name}.flat[i] = {owner}.flat[i]"
        if isinstance(view.offset, code.Code):
            return f"{name}.flat[i] = {owner}.flat[i + {name}_start]"
        self.parts.described["constants"] += ((f"{name}_start", f"({view.offset}) / sizeof({owner}.dtype)"),)
        return f"{name}.flat[i] = {owner}.flat[i + {name}_start]"

    def same_definition(self, code: type[LnOp], item: DescribedValue) -> None:
        """Code that says where results lie in their operands is right for its own definition alone."""
        run = self.m.get("run")
        same = run is not None and (
            built_in_of(run, "builtin") is code or str(run.value).split() == str(code.definition).split()
        )
        if not same:
            raise item.error(
                f"'views({code.optype})' goes with the 'run' of {code.optype}, or 'builtin({code.optype})'"
            )

    # -- the rest

    def work(self) -> None:
        """`flops`, `samples` and `doc`."""
        if "flops" in self.m:
            code = built_in_of(self.m["flops"], "flops")
            if code is not None:
                self.needs_names_of(code, self.m["flops"])
                self.parts.described["flops_of"] = code
            else:
                self.parts.described["flops"] = snippets.snippet_text_of(self.m["flops"], self.names)
        if "samples" in self.m:
            known = dict.fromkeys((*self.parts.operands, *self.parts.params), "")
            items = fields.elements(self.m["samples"], "'samples'")
            self.parts.described["samples"] = tuple(
                definitions.described_sample(i, known, self.parts.operands, self.parts.params) for i in items
            )

    def build(self) -> type[LnOp]:
        p = self.parts
        described = DescribedMembers(
            description=self.item.plain(),
            author=str(self.m["author"].value),
            file=self.file,
            doc=str(self.m["doc"].value) if "doc" in self.m else "",
            after=tuple(After(*a) for a in p.constraints.after),
            **p.described,
        )
        bases = (DescribedOp,) if p.base is None else (DescribedOp, p.base)
        namespace = {
            "__module__": f"description:{self.file}", "__doc__": LazyDoc(), "optype": self.optype, "arch": self.arch,
            "described": described, "replaces": self.replaces(), "declared_at": str(self.m["optype"].loc),
            "checks": p.constraints.checks,
            "messages": p.constraints.messages, "rewrites": (), **p.operands, **p.results, **p.params, **p.namespace,
        }  # fmt: skip
        title = "".join(part[:1].upper() + part[1:] for part in self.optype.split("_"))
        cls = ln_op(type(title or self.optype, bases, namespace))
        self.try_samples(cls)
        return cls

    def replaces(self) -> bool:
        """Return whether it may take the place of an op that there is."""
        return bool(self.m["replace"].value) if "replace" in self.m else self.replace

    def try_samples(self, cls: type[LnOp]) -> None:
        """The samples that a description brings satisfy it: a mistake in its definition shows when it is loaded."""
        items = fields.elements(self.m["samples"], "'samples'") if "samples" in self.m else []
        for item, case in zip(items, self.parts.described.get("samples", ())):
            try:
                operation(cls, case)
            except LightNetError as e:
                error = item.error(f"the sample does not satisfy the description: {e.message}", e.label)
                error.notes += e.notes
                raise error from None
