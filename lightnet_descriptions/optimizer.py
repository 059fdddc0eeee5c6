"""Optimizer descriptions: rules for `expand`, `subgraph`, `combine`, `simplify` and `recognize` as
data, read into rewrite patterns.

    {author: "me", arch: "cpu", name: "mine",
     ops: [{optype: "relu", rules: [{cond: ["self.outs[dst]=>"], match: false}, {cond: [], replace: ["relu_cpu"]}]}],
     combiners: [{name: "norm-relu", match: ["batchnorm n", "relu r"], edges: ["n.outs[dst] => r.ins[src]"],
                  fuse: true}],
     subgraphs: [{name: "relu-relu", match: ["relu a", "relu b"], edges: ["a.outs[dst] => b.ins[src]"],
                  replace: ["relu c"], details: ["c.ins[src] = a.ins[src]", "c.outs[dst] = b.outs[dst]"]}]}

`ops` is upstream's expander description; `combiners` and `subgraphs` say the same of several ops. `load_optimizer`
checks everything against the op table, so that a mistake is an error at its line of the file.
docs/how-to-write-a-rule.md has the language. Imports `ir`, the `ln` dialect and the modules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import built_in_optypes, optypes
from lightnet.dialects.ln.source import Source
from lightnet.ir.memory import ARENA
from lightnet.ir.op import LnOp
from lightnet.ir.registry import TARGETS
from lightnet.ir.rewrites import FilePattern
from lightnet.ir.target import get_target
from lightnet_descriptions import kinds, matches
from lightnet_descriptions.accessors import AccessorParser
from lightnet_descriptions.details import Renamed, class_of, optype_of, removal, replacement, split_entry
from lightnet_descriptions.fields import elements, members, one_of
from lightnet_descriptions.patterns import AnyBut, DescribedAction, Fuse, JoinedOps, Leave, OneOp, Refuse
from lightnet_descriptions.reader import DescribedValue, Document, read_description
from lightnet_descriptions.rules import Case, Matcher, Rule
from lightnet_descriptions.scope import Expression, Ops, RuleScope, Var

#: The members of each object, and their kinds (`fields.members`).
_CODE_FIELDS = {"custom_before": "s", "custom_after": "s"}
_TOP = {"author": "s", "arch": "s", "name": "s", "ops": "a", "combiners": "a", "subgraphs": "a", "complete": "b",
        "head": "s",
        **_CODE_FIELDS}  # fmt: skip
_ENTRY = {"optype": "s", "rules": "a", **_CODE_FIELDS}
_ACTIONS = {"replace": "a", "err": "s", "match": "b"}
_RULE = {"cond": "a", **_ACTIONS, "details": "a", "warn": "s", **_CODE_FIELDS}
_MATCH_ACTIONS = {"replace": "a", "fuse": "b", "err": "s"}
_MATCH = {
    "name": "s",
    "match": "a",
    "edges": "a",
    "cond": "a",
    "pass": "s",
    **_MATCH_ACTIONS,
    "details": "a",
    "warn": "s",
    "law": "s",
}
#: Fields of upstream's that hold C code.
_CODE = ("head", "custom_before", "custom_after")
#: Of these, those of the graph before there are kernels, which are for every target.
GRAPH_PASSES = ("simplify", "recognize")
#: The passes that rules over several ops may be for, by section: the first is the usual one.
PASSES = {"combiners": ("combine",), "subgraphs": ("subgraph", *GRAPH_PASSES, "combine")}


def load_optimizer(document: Document, table: Mapping[str, type[LnOp]] | None = None) -> list[type[FilePattern]]:
    """The patterns of a document, in order, each with `name`, `pass_name` and `target`: what `registry.pattern` takes.
    `table` has the ops that it may name (default: all). Raises `LightNetError` at the place of what is malformed, or
    not in the op table."""
    table = optypes() if table is None else table
    seen: dict[str, Rule] = {}
    for name, description in document.objects.items():
        for item, rule in _Description(description, name, table).rules():
            if (first := seen.setdefault(rule.name, rule)) is not rule:
                raise item.error(f"pattern '{rule.name}' is described twice; the first stands at {first.place}")
    return [rule.pattern() for rule in seen.values()]


@cache
def packaged_optimizer(row: str) -> tuple[type[FilePattern], ...]:
    """The patterns of a description that comes with the package: ``package:file``, as a target's `descriptions` name
    it."""
    package, _, file = row.partition(":")
    text = files(package).joinpath(file).read_text("utf-8")
    return tuple(
        load_optimizer(read_description(text, file), built_in_optypes())
    )  # it is kept: what files add now may go again


class _Description:
    """One description of a file."""

    def __init__(self, item: DescribedValue, default_name: str, table: Mapping[str, type[LnOp]]):
        self.item = item
        required = ("author", "arch") if default_name else ("author", "arch", "name")
        self.fields = _checked(item, "a description", _TOP, required)
        self.name = text(self.fields, "name") or default_name
        self.arch = one_of(self.fields["arch"], "arch", tuple(TARGETS))
        self.scope = RuleScope(self.arch, {}, table)
        self.complete = "complete" in self.fields and self.fields["complete"].value is True
        if not {"ops", *PASSES} & set(self.fields):
            raise item.error("a description has ops, combiners or subgraphs")
        if self.complete and "ops" not in self.fields:
            raise self.fields["complete"].key_error("'complete' is said of the ops of an expander description")

    def rules(self) -> Iterator[tuple[DescribedValue, Rule]]:
        """The rules, each with the entry that says it."""
        classes: set[type[LnOp]] = set()
        for entry in items(self.fields, "ops"):
            if (rule := self.expander(entry)) is not None:
                assert isinstance(rule.matcher, OneOp)
                classes.add(rule.matcher.cls)
                yield entry, rule
        if self.complete:
            case = self.refusing(self.item, "the description", lambda op: (
                f"unsupported optype '{op.optype}' of `{op.op_name or op.optype}` for the description '{self.name}', "
                "which is complete"))  # fmt: skip
            yield self.item, self.rule(self.name, "expand", self.item, AnyBut(frozenset(classes)), (case,))
        for section in PASSES:
            for entry in items(self.fields, section):
                yield entry, self.match(entry, section)

    def rule(self, name: str, pass_name: str, item: DescribedValue, matcher: Matcher, cases: tuple[Case, ...],
             law: str | None = None) -> Rule:  # fmt: skip
        if self.arch == "none" and pass_name not in GRAPH_PASSES:
            known = " or ".join(f"`{name}`" for name in GRAPH_PASSES)
            raise item.error(f"arch 'none' has no kernels: rules for it are for {known}, not for `{pass_name}`")
        target = "*" if pass_name in GRAPH_PASSES else self.arch
        return Rule(name, pass_name, target, item.loc, item.source.lines.text, matcher, cases, law)

    def refusing(self, item: DescribedValue, note: str, message: Callable[[LnOp], str]) -> Case:
        """The end of a complete description: what no rule is for is an error."""
        return Case(DescribedAction(self.arch, item, Refuse(message, "expand.complete", note)))

    # -- expanders

    def expander(self, entry: DescribedValue) -> Rule | None:
        """The rules of one optype, in order; None for one that `expand` does not see."""
        fields_ = _checked(entry, "an entry of ops", _ENTRY, ("optype", "rules"))
        optype = str(fields_["optype"].value)
        cls, arch = optype_of(optype, fields_["optype"], self.scope)
        if cls is None or (arch is not None and not issubclass(cls, Source)):
            return self.expanded(optype, cls, fields_)
        scope = self.scope.with_vars(Var("self", (cls,)))
        name = f"{self.name}.{optype}"
        cases = [self.expansion_case(item, scope, cls, name) for item in items(fields_, "rules")]
        if self.complete:
            cases.append(self.refusing(entry, "its rules", lambda op:
                f"{name}: no rule holds for `{op.op_name or op.optype}`, and the description is complete"))  # fmt: skip
        matcher = OneOp(cls, None if arch is None else get_target(arch).mtype(ARENA))
        return self.rule(name, "expand", entry, matcher, tuple(cases))

    def expanded(self, optype: str, cls: type[LnOp] | None, fields_: Mapping[str, DescribedValue]) -> None:
        """An entry for what an expansion makes, which `expand` does not see again: it may only say to leave that
        alone."""
        for rule in items(fields_, "rules"):
            said = _checked(rule, "a rule", _RULE, ("cond",))
            if "match" not in said or said["match"].value is not False:
                sees = "" if cls is None else f"; expand sees '{cls.optype}'"
                raise fields_["optype"].error(
                    f"'{optype}' is what an expansion makes, and may only be left alone (match: false){sees}"
                )

    def expansion_case(self, item: DescribedValue, scope: RuleScope, cls: type[LnOp], name: str) -> Case:
        fields_ = _checked(item, "a rule", _RULE, ("cond",))
        conditions = conditions_of(fields_, scope)
        action = one_action(item, fields_, _ACTIONS)
        if action == "err":
            done: Any = refusal(fields_["err"], name)
        elif action == "match":
            if fields_["match"].value is not False:
                raise fields_["match"].error("'match' says false: leave the op alone")
            done = Leave()
        else:
            done = self.expansion(fields_, scope, cls)
        if (issubclass(cls, Source) or cls.is_host) and not _keeps(done, cls):
            raise item.error(
                f"{cls.optype} is no op of a kernel, and `expand` leaves it: say '{cls.optype}_{self.arch}' or match: "
                "false"
            )
        return Case(DescribedAction(self.arch, item, done), conditions, text(fields_, "warn"))

    def expansion(self, fields_: Mapping[str, DescribedValue], scope: RuleScope, cls: type[LnOp]) -> Any:
        entries, details = items(fields_, "replace"), items(fields_, "details")
        if not entries:
            return removal(fields_["replace"], details, scope, cls)
        if len(entries) == 1 and not split_entry(entries[0])[1]:
            if details:
                raise fields_["details"].key_error(f"the details need a name for the op: '{entries[0].value} new'")
            return self.renamed(entries[0], cls)
        made = replacement(entries, details, scope, {})
        taken = {arg for _, arg in made.results}
        for r in cls.schema.results:
            if not r.variadic and r.name not in taken:
                raise fields_["replace"].error(
                    f"no new op takes over self.outs[{r.name}]: add 'VAR.outs[ARG] = self.outs[{r.name}]'"
                )
        return made

    def renamed(self, entry: DescribedValue, cls: type[LnOp]) -> Renamed:
        new, arch = class_of(str(entry.value).strip(), entry, self.scope)
        if new is cls and arch is None:
            raise entry.error(f"{cls.optype} replaced by itself: to leave the op alone say match: false")
        names = [[f.name for f in fields] for fields in (new.schema.operands, new.schema.results, new.schema.params)]
        ours = [[f.name for f in fields] for fields in (cls.schema.operands, cls.schema.results, cls.schema.params)]
        if list(map(sorted, names)) != list(map(sorted, ours)) or names[:2] != ours[:2]:
            raise entry.error(
                f"{new.optype} has other arguments than {cls.optype}: name it ('{entry.value} new') and give details"
            )
        return Renamed(new, arch, entry)

    # -- several ops

    def match(self, entry: DescribedValue, section: str) -> Rule:
        fields_ = _checked(entry, f"an entry of {section}", _MATCH, ("name", "match"))
        name, pass_name = f"{self.name}.{fields_['name'].value}", text(fields_, "pass") or PASSES[section][0]
        if pass_name not in PASSES[section]:
            raise fields_["pass"].error(
                f"rules of {section} are for {' or '.join(PASSES[section])}, not for '{pass_name}'"
            )
        variables = matches.variables(items(fields_, "match"), self.scope, entry)
        scope = self.scope.with_vars(*variables)
        edges = tuple(matches.edges(items(fields_, "edges"), scope, entry))
        action = self.match_action(fields_, entry, scope, edges, pass_name, name)
        matcher = JoinedOps(pass_name, entry, {v.name: frozenset(v.classes) or None for v in variables}, edges,
                            pass_name in GRAPH_PASSES)  # fmt: skip
        done = DescribedAction(self.arch, entry, action)
        cases = (Case(done, conditions_of(fields_, scope), text(fields_, "warn")),)
        return self.rule(name, pass_name, entry, matcher, cases, text(fields_, "law"))

    def match_action(
        self,
        fields_: Mapping[str, DescribedValue],
        entry: DescribedValue,
        scope: RuleScope,
        edges: Sequence[Any],
        pass_name: str,
        name: str,
    ) -> Any:
        action = one_action(entry, fields_, _MATCH_ACTIONS)
        if action == "err":
            return refusal(fields_["err"], name)
        if action == "fuse":
            if not fields_["fuse"].value:
                raise fields_["fuse"].error("'fuse' says true: without it nothing is done")
            if pass_name != "combine" or len(scope.variables) < 2:
                raise fields_["fuse"].key_error("'fuse' joins the kernels of two or more ops in `combine`")
            return Fuse(all(v.classes for v in scope.variables.values()))
        made = replacement(items(fields_, "replace"), items(fields_, "details"), scope, matches.linked(edges))
        concrete = next((n for n in made.new_ops if n.arch is not None), None)
        if pass_name in GRAPH_PASSES and concrete is not None:
            raise concrete.item.error(f"`{pass_name}` runs before there are kernels: name an optype of arch none")
        if not made.results:
            raise fields_["replace"].error(
                "nothing takes over a result: add 'VAR.outs[ARG] = OLD.outs[ARG]' to the details"
            )
        return made


def _keeps(action: Any, cls: type[LnOp]) -> bool:
    """Return whether an action leaves an op what it is: also under the name that a target's own op of it has
    (``print_cpu``)."""
    own = isinstance(action, Renamed) and (
        action.cls is cls or (action.cls.arch != "none" and action.cls.optype == f"{cls.optype}_{action.cls.arch}")
    )
    return isinstance(action, Leave | Refuse) or own


def refusal(err: DescribedValue, name: str) -> Refuse:
    """The action of `err` in the rule `name`."""
    return Refuse(lambda op: f"{op.optype}: {f'`{op.op_name}`: ' if op.op_name else ''}{err.value}", name,
                  "the rule that refuses it")  # fmt: skip


def one_action(item: DescribedValue, found: Mapping[str, DescribedValue], actions: Collection[str]) -> str:
    """The one of `actions` that a rule has."""
    given = [a for a in actions if a in found]
    if len(given) != 1:
        raise item.error(f"a rule has one of {', '.join(actions)}; this has {' and '.join(given) or 'none'}")
    if given != ["replace"] and "details" in found:
        raise found["details"].key_error(f"details fill the ops of 'replace', and this rule has '{given[0]}'")
    return given[0]


def conditions_of(found: Mapping[str, DescribedValue], scope: RuleScope) -> tuple[Callable[[Ops], Any], ...]:
    """The conditions of a rule, as what asks them."""
    return tuple(condition(c, scope).value for c in items(found, "cond"))


def condition(item: DescribedValue, scope: RuleScope) -> Expression:
    """A condition: a bool, or a number that is not 0."""
    parser = AccessorParser(item, scope)
    found = parser.expression()
    parser.finish()
    if found.kind not in ("bool", "number"):
        raise item.error(f"a condition is a bool, this is {kinds.SHOWN[found.kind]}")
    return found


# -- fields ----------------------------------------------------------------------------------------------------------


def _checked(
    item: DescribedValue, what: str, known: Mapping[str, str], required: Sequence[str] = ()
) -> dict[str, DescribedValue]:
    """The members of an object (`fields.members`), whose strings are not empty, but for C code, which has to be."""
    found = members(item, what, known, required)
    for key, value in found.items():
        if key == "head":
            _check_head(value)
        elif key in _CODE and value.value:
            raise value.error(
                f"'{key}' holds C code, which is never run: say it in conditions and details, or in a pass"
            )
        if key not in _CODE and value.value == "":
            raise value.error(f"'{key}' of {what} is empty")
    return found


def _check_head(item: DescribedValue) -> None:
    """`head` holds C in front of upstream's generated code: lines that include headers, and declarations, which mean
    nothing here."""
    from lightnet_descriptions import c

    try:
        c.check_head(str(item.value))
    except LightNetError as e:
        raise item.error(f"'head': {e.message}", e.label) from None


def text(found: Mapping[str, DescribedValue], key: str) -> str | None:
    """A string member, None where there is none."""
    return str(found[key].value) if key in found else None


def items(found: Mapping[str, DescribedValue], key: str) -> list[DescribedValue]:
    """The elements of an array member, none where it is missing."""
    return elements(found[key], f"'{key}'") if key in found else []
