"""Remarks: what passes did, why they left what they left, and what each way would have cost.

A remark is a value (`Remark`), made by a watcher of the pipeline. Passes know nothing of remarks: a watcher asks what
they ask, of the same functions, where somebody wants to know, so that what nobody watches takes no longer.
Imports `ir`, the passes, and the other files of this folder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.generator import Generator
from lightnet.cli.warning import show_warning
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.matmul import Matmul
from lightnet.ir.body import Body, choice
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import unplan
from lightnet.ir.module import value_name
from lightnet.ir.names import FreshNames
from lightnet.ir.passes import Instrumentation
from lightnet.ir.refusal import Refusal, refusal_reason
from lightnet.ir.rewrites import Rewrite, op_and_name, pattern_name
from lightnet.ir.target import Request, Target, get_target
from lightnet.ir.types import spec_of
from lightnet.passes.bands import BandsPass
from lightnet.passes.choose import ChoosePass
from lightnet.passes.combine import CombinePass, Merger
from lightnet.passes.fold import FoldConstants
from lightnet.passes.graph import graphs
from lightnet.passes.layout import LayoutAssignment, LayoutPass
from lightnet.passes.levels import LEVEL_OF, level_of
from lightnet.passes.short_products import Shortening, ShortProductsPass
from lightnet_report.calls import dim_names, open_info, typical_module
from lightnet_report.explain import gives_up_because, left_because
from lightnet_report.trace import elided

#: What a remark is about: something that was done, that was not, or what ways there are and what each would take.
KINDS = ("applied", "missed", "cost")
#: A compilation keeps so many remarks; one on a rewrite shows so many of the ops that it made.
MOST, SHOWN = 50_000, 4
#: Reasons of generators that are for other ops altogether begin so: they are left out.
OTHER_OPS = ("it begins with ", "it is no ")


_OP = re.compile(r"(?:^|= )([a-z_]\w*\.[a-z_][\w.]*)")
_INSIDE = re.compile(r"\{ [a-z_]\w*\.[^}]* \}")


@dataclass(frozen=True)
class Remark:
    """A remark of one of the `KINDS` on a pass: where the op stands in the source, which op it is (``ln.relu "r1"``, or
    the tensors of a kernel), a sentence, and nanoseconds by way where it has figures."""

    kind: str
    pass_name: str
    where: SourceLoc | None
    op: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}remark: {self.sentence}"

    @property
    def sentence(self) -> str:
        """The text, and the kind and the pass behind it: ``… [missed: combine]``."""
        return f"{self.text} [{self.kind}: {self.pass_name}]"

    @property
    def key(self) -> tuple[object, ...]:
        """The part by which remarks are told apart: all but figures."""
        return self.kind, self.pass_name, self.where, self.op, self.text

    def as_json(self) -> dict[str, Any]:
        """The remark as JSON values."""
        where = self.where
        place = {} if where is None else {"file": where.file, "line": where.line, "column": where.col}
        return {"kind": self.kind, "pass": self.pass_name, **place, "op": self.op, "text": self.text,
                **({"nanoseconds": {way: round(time, 1) for way, time in self.figures.items()}}
                   if self.figures else {})}  # fmt: skip


def remarks_json(remarks: Iterable[Remark]) -> str:
    """Remarks as the text of a JSON file: a list of objects."""
    return json.dumps([remark.as_json() for remark in remarks], indent=1, ensure_ascii=False) + "\n"


class Remarks(Instrumentation):
    """Collects the remarks of pipelines (several, one after the other, are one run) that `wanted` names: by kind, by
    pass, by both, or all if it names none. With `is_shown`, each goes to stderr."""

    wants_rewrites = True

    def __init__(self, wanted: Sequence[str] = (), is_shown: bool = False):
        words = [word for word in wanted if word != "*"]
        self.kinds = [word for word in words if word in KINDS] or list(KINDS)
        self.passes = [word for word in words if word not in KINDS]
        self.is_shown = is_shown
        self.wants_text, self.wants_misses = "applied" in self.kinds, "missed" in self.kinds
        self.remarks: list[Remark] = []
        self.left_out = 0
        self._known: set[tuple[object, ...]] = set()
        self._pass: ModulePass | None = None
        self._rewrites: Counter[str] = Counter()
        self._left: dict[tuple[str, int], tuple[Operation, str]] = {}
        self._text = ""
        self._behind: Callable[[ModuleOp], Iterable[Remark]] = lambda module: ()

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self._pass, self._rewrites, self._left = pass_, Counter(), {}
        self._text = str(module) if self.takes("missed") else ""
        maker = next((make for cls, make in _MAKERS.items() if isinstance(pass_, cls)), None)
        self._behind = maker(pass_, module) if maker is not None and self.names(pass_.name) else lambda module: ()

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        for remark in self._behind(module):
            self.add(remark)
        for (name, _), (op, why) in self._left.items():
            if op.parent is not None:
                about = op_and_name(op)
                self.add(Remark("missed", pass_.name, loc_of(op), about, f"pattern '{name}' leaves {about}: {why}"))
        if self.takes("missed") and not self._rewrites and str(module) == self._text:
            self.add(Remark("missed", pass_.name, None, "", f"pass '{pass_.name}' {_nothing(pass_, module)}"))
        self._left = {}

    def rewrote(self, rewrite: Rewrite) -> None:
        self._rewrites[rewrite.pattern] += 1
        if self.takes("applied"):
            after = [shown for text in rewrite.after if (shown := _shown(text))]
            made = ", ".join([*after[:SHOWN], *(["…"] if len(after) > SHOWN else [])])
            text = f"pattern '{rewrite.pattern}' rewrites {rewrite.root}" + (f" to {made}" if made else "")
            self.add(Remark("applied", rewrite.pass_name, rewrite.where, rewrite.root, text))

    def left(self, pattern: RewritePattern, op: Operation, rewriter: PatternRewriter) -> None:
        """Called for each pattern that left an op as it is, with the rewriter that it had."""
        if not self.takes("missed") or isinstance(pattern, FoldConstants):  # which looks at every op
            return
        roots = getattr(pattern, "roots", ())
        why = left_because(pattern, op, rewriter) if not roots or op.name in roots else None
        if why is not None:
            self._left[pattern_name(pattern), id(op)] = op, why

    def names(self, pass_name: str) -> bool:
        """Return whether remarks on a pass are wanted."""
        return not self.passes or pass_name in self.passes

    def takes(self, kind: str) -> bool:
        """Return whether remarks of a kind on the pass at work are wanted."""
        return kind in self.kinds and self._pass is not None and self.names(self._pass.name)

    def add(self, remark: Remark) -> None:
        """Keep a remark, if it is one of those that are wanted."""
        if remark.kind not in self.kinds or not self.names(remark.pass_name):
            return
        if remark.key in self._known:  # a pass may stand twice in a pipeline
            return
        self._known.add(remark.key)
        if len(self.remarks) >= MOST:
            self.left_out += 1
            return
        self.remarks.append(remark)
        if self.is_shown:
            show_warning(remark.sentence, remark.where, kind="remark")


def shown_remarks(wanted: Sequence[str]) -> Remarks:
    """The watcher of the option ``--remarks``."""
    return Remarks(wanted, is_shown=True)


def remarks_of(network: Any, target: str = "cpu", wanted: Sequence[str] = (), **options: Any) -> list[Remark]:
    """The remarks of a compilation of `network` (a model, or a path) for a target, with options of `lightnet.compile`:
    those that `wanted` names, as ``--remarks`` does. Raises `LightNetError` as compiling does."""
    from lightnet.compiler import compile

    found = Remarks(wanted)
    compile(network, target, instrumentation=[found, *options.pop("instrumentation", ())], **options)
    return found.remarks


def _shown(text: str) -> str:
    """An op of a rewrite: its name, and what is in it (``cpu.kernel { ln.conv2d, ln.relu }``); empty for a value."""
    found = _OP.search(text := elided(text))
    return "" if found is None else " ".join(part for part in (found[1], *_INSIDE.findall(text)[:1]) if part)


def _nothing(pass_: ModulePass, module: ModuleOp) -> str:
    """A clause on a pass that changed nothing."""
    wanted, found = LEVEL_OF.get(getattr(pass_, "level", None) or ""), level_of(module)
    if wanted is None or found is None or wanted is found or wanted.number < found.number:
        return "finds nothing to do"
    return f"finds nothing to do: it is for {wanted}, and the module is at {found}"


# -- what single passes asked themselves -----------------------------------------------------------------------------


def _request(pass_: ChoosePass) -> Request:
    return Request(pass_.features, pass_.threads, pass_.exact, pass_.weight_memory, pass_.precision, pass_.most)


def _kernels(module: ModuleOp) -> Iterator[KernelOp]:
    return (op for block in graphs(module) for op in block.ops if isinstance(op, KernelOp))


def _of_combine(pass_: CombinePass, _: ModuleOp) -> Callable[[ModuleOp], Iterable[Remark]]:
    """The neighbours that `combine` leaves two kernels."""
    target = get_target(pass_.target)

    def behind(module: ModuleOp) -> Iterator[Remark]:
        for block in graphs(module) if target.kernel is not None else ():
            for producer, reader, why in _apart(Merger(block, target, pass_.max_ops)):
                why = why or _not_accepted(target, producer, reader)
                text = f"{about(producer)} is not merged with its reader {about(reader)}: {why}"
                yield Remark("missed", pass_.name, loc_of(producer.ops[-1]), _name(producer), text)

    return behind


def _apart(merger: Merger) -> Iterator[tuple[KernelOp, KernelOp, str]]:
    """The neighbours in a block that stay two kernels, the one that reads behind the other, and why."""
    for group in list(merger.kernels()):
        for producer in merger.producers(group):
            union = merger.union(producer, group)
            why = union.why if isinstance(union, Refusal) else "such rewrites are switched off, or were enough"
            yield producer.last, group.last, why


def _not_accepted(target: Target, producer: KernelOp, reader: KernelOp) -> str:
    """The reason of a target that gives none."""
    union = Body.union(Body.of(producer), producer.results, Body.of(reader))
    return f"target '{target.name}' accepts no such kernel: {gives_up_because(target.accepts, union)}"


def _of_layout(pass_: LayoutPass, module: ModuleOp) -> Callable[[ModuleOp], Iterable[Remark]]:
    """The predictions of `layout` for both ways of each kernel, and the way that it takes."""
    target = get_target(pass_.target)
    if (pass_.layout or target.layouts[0]) == "plain" or not all(map(is_plain, _kernels(module))):
        return lambda module: ()
    found = [LayoutAssignment.of(block, target, pass_.features) for block in graphs(module)]

    def remarks() -> Iterator[Remark]:
        for assignment in found:
            for node in assignment.nodes.values():
                kernel, ways = node.kernel, {"maps": node.blocking.blocked, "plain": node.blocking.plain}
                runs = "runs on maps" if node.blocked else "stays on row-major tensors"
                text = f"{about(kernel)} {runs}: on maps ({node.blocking.map}) {times(ways['maps'])}, on row-major "
                text += f"tensors {times(ways['plain'])}, without changes of layout"
                if node.blocked != (ways["maps"] < ways["plain"]):
                    text += ", which decide here"
                yield Remark("cost", pass_.name, loc_of(kernel.ops[-1]), _name(kernel), text, ways)
            for kernel, refusal in assignment.refused.items():
                why = refusal.why or "the target has no maps for it"
                text = f"{about(kernel)} stays on row-major tensors: {why}"
                yield Remark("missed", pass_.name, loc_of(kernel.ops[-1]), _name(kernel), text)

    made = list(remarks())
    return lambda module: made


def _of_short_products(pass_: ShortProductsPass, module: ModuleOp) -> Callable[[ModuleOp], Iterable[Remark]]:
    """The predictions for each product in f32 and in bf16, and the type that it computes in."""

    def remarks() -> Iterator[Remark]:
        for block in graphs(module) if pass_.finds_some() else ():
            products = [op for op in block.ops if isinstance(op, Conv2d | Matmul)]
            shortening = Shortening(block, pass_, FreshNames(()))
            for op in products:
                if ways := shortening.times(op):
                    kind, text = min(ways, key=lambda way: (ways[way], way != "f32")), op_and_name(op)
                    text += f" computes in {kind}: in f32 {times(ways['f32'])}, in bf16 {times(ways['bf16'])}"
                    yield Remark("cost", pass_.name, loc_of(op), op_and_name(op), text, ways)

    made = list(remarks())
    return lambda module: made


def _of_bands(pass_: BandsPass, module: ModuleOp) -> Callable[[ModuleOp], Iterable[Remark]]:
    """The predictions of `bands` for the chains that there are."""
    target, request = get_target(pass_.target), Request(pass_.features, pass_.threads)

    def remarks() -> Iterator[Remark]:
        for kernel in _kernels(module):
            for kernels, gain in target.chains(kernel, request):
                what = " + ".join(map(about, kernels))
                said = (pass_.name, loc_of(kernels[-1].ops[-1]), _name(kernels[-1]))
                if isinstance(gain, Refusal):
                    yield Remark("missed", *said, f"{what} does not run in bands of rows: {gain.why}")
                else:
                    change = f"saves {times(gain)}" if gain > 0 else f"takes {times(-gain)} longer"
                    yield Remark("cost", *said, f"{what} in bands of rows {change}", {"saved": gain})

    made = list(remarks())
    return lambda module: made


def _of_choose(pass_: ChoosePass, module: ModuleOp) -> Callable[[ModuleOp], Iterable[Remark]]:
    """The answers of all generators on each kernel, and the one that is chosen."""
    target, request = get_target(pass_.target), _request(pass_)
    given = {kernel: dict(kernel.attributes) for kernel in _kernels(module)}
    generators = target.selection.generators() if target.selection is not None else ()
    unasked = {g.alg for g in generators if g.last}

    def behind(module: ModuleOp) -> Iterator[Remark]:
        for kernel in _kernels(module):
            chosen, attributes = choice(kernel, "alg"), dict(kernel.attributes)
            kernel.attributes = given.get(kernel, attributes)
            try:
                answers = list(_answers(target, kernel, request))
            finally:
                kernel.attributes = attributes
            yield from _answered(pass_.name, kernel, chosen, answers, unasked)
        yield from open_remarks(module, target, request)

    return behind


class Answer(NamedTuple):
    """The answer of a generator, by its `alg`, to whether it makes a kernel: nanoseconds, by its model, or why not."""

    alg: str
    time: float | None
    why: str = ""


def _answers(target: Target, kernel: KernelOp, request: Request) -> Iterator[Answer]:
    """The answers of all generators of a target, one for each form in which one takes the kernel."""
    if (selection := target.selection) is None:
        return
    machine = selection.machine_asked(kernel, request)
    exact = request.exact or ("tf32" in target.precisions and request.precision != "tf32")
    usable, yielded = list(selection.usable(kernel, machine)), list(kernel.terminator.operands)
    for generator in usable:
        if not (forms := generator.forms(kernel.ops, yielded, machine)):
            yield Answer(generator.alg, None, refusal_reason(forms) or _guard(generator, kernel, machine))
        for form in forms:
            taken = selection.allows(generator, form, kernel, machine, exact)
            try:
                time = generator.planned(kernel, form, machine).time if taken else None
                yield Answer(generator.alg, time, refusal_reason(taken))
            except LightNetError as error:
                yield Answer(generator.alg, None, error.message)
    algs = {generator.alg for generator in usable}
    for generator in selection.generators():
        if generator.alg not in algs:
            why = refusal_reason(generator.forms(kernel.ops, yielded, machine))
            yield Answer(
                generator.alg, None, why or "it is for other machines, or for ops that have operands and elements"
            )


def _guard(generator: Generator, kernel: KernelOp, machine: Any) -> str:
    """The reason of a generator, of a plugin, that gives none: the guard in its source."""
    method = getattr(type(generator), "form", None) or type(generator).takes
    return gives_up_because(method, generator, kernel.ops, list(kernel.terminator.operands), machine)


def _answered(pass_name: str, kernel: KernelOp, chosen: str | None, answers: Sequence[Answer],
              unasked: Container[str]) -> Iterator[Remark]:  # fmt: skip
    """The remarks on a kernel; `unasked` are generators that are asked where no other takes one."""
    ways: dict[str, float] = {}
    for answer in answers:
        if answer.time is not None:
            ways[answer.alg] = min(answer.time, ways.get(answer.alg, answer.time))
    said = (pass_name, loc_of(kernel.ops[-1]), _name(kernel))
    if ways:
        ways = dict(sorted(ways.items(), key=lambda way: (way[0] != chosen, way[1])))
        each = ", ".join(f"{alg} {times(time)}" for alg, time in ways.items())
        text = f"{about(kernel)} runs on '{chosen}': {each}"
        if chosen in ways and ways[least := min(ways, key=lambda alg: ways[alg])] < ways[chosen]:
            why = "more than weights may take in memory, or measured otherwise"
            text += f" (what takes less is {'asked where no other takes a kernel' if least in unasked else why})"
        yield Remark("cost", *said, text, ways)
    refused = {a.alg: a.why for a in reversed(answers) if a.alg not in ways and not a.why.startswith(OTHER_OPS)}
    for alg, why in sorted(refused.items()):
        text = f"{about(kernel)} cannot run on '{alg}': {why}"
        yield Remark("missed", *said, text)


_MAKERS: dict[type[ModulePass], Callable[[Any, ModuleOp], Callable[[ModuleOp], Iterable[Remark]]]] = {
    ShortProductsPass: _of_short_products,
    CombinePass: _of_combine,
    LayoutPass: _of_layout,
    BandsPass: _of_bands,
    ChoosePass: _of_choose,
}


# -- words -----------------------------------------------------------------------------------------------------------


def about(kernel: KernelOp) -> str:
    """A kernel in a sentence: ``'r1' (conv2d+relu)``."""
    return f"'{_name(kernel)}' ({'+'.join(op.optype for op in kernel.ops)})"


def times(nanoseconds: float) -> str:
    """A time as people read it."""
    for unit, size in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if nanoseconds < 1000 * size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds / 1e9:.3g} s"


def _name(kernel: KernelOp) -> str:
    return ", ".join(map(value_name, kernel.results))


# -- networks whose dims calls decide --------------------------------------------------------------------------------


def open_remarks(module: ModuleOp, target: Target, request: Request) -> list[Remark]:
    """The remarks on a module whose kernels have their choices: for each that has another algorithm than it would have
    with numbers, where it stands, and a sentence on which, and because of what dims."""
    calls = open_info(module)
    if calls is None:
        return []
    typical = typical_module(module)
    unplan(typical)
    found: list[Remark] = []
    for block, numbers in zip(graphs(module), graphs(typical)):
        for kernel, static in zip(block.ops, numbers.ops):
            if not isinstance(kernel, KernelOp) or not is_open((*kernel.operands, *kernel.results)):
                continue
            assert isinstance(static, KernelOp)
            alg, better = choice(kernel, "alg"), _free_choice(static, target, request)
            if alg is not None and better not in (None, alg):
                text = f"{about(kernel)} runs on '{alg}', as {_open_dims(kernel)}; "
                text += f"where {calls.typical} it could run on '{better}'"
                found.append(Remark("missed", "choose", loc_of(kernel.ops[-1]), _name(kernel), text))
    return found


class OpenKernels(Instrumentation):
    """Collects these remarks alone, behind `choose`."""

    def __init__(self) -> None:
        self.found: list[Remark] = []

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if isinstance(pass_, ChoosePass):
            self.found += open_remarks(module, get_target(pass_.target), _request(pass_))


def _free_choice(kernel: KernelOp, target: Target, request: Request) -> str | None:
    """The algorithm that a kernel gets that has no choices yet; None where the target has none for it."""
    for name in kernel.choices:
        del kernel.attributes[name]
    try:
        kernel.attributes.update(target.choose(kernel, request))
    except LightNetError:
        return None
    return choice(kernel, "alg")


def _open_dims(kernel: KernelOp) -> str:
    """The dims of a kernel that calls decide: ``calls decide dim 0 of 'r1' (batch)``."""
    value = next(v for v in (*kernel.results, *kernel.operands) if spec_of(v.type).open_dims)
    dims = spec_of(value.type).dims
    axes = [axis for axis, name in enumerate(dim_names(dims)) if isinstance(name, str)]
    which = f"dim {axes[0]}" if len(axes) == 1 else f"dims {', '.join(map(str, axes))}"
    return f"calls decide {which} of '{value_name(value)}' ({', '.join(str(dim_names(dims)[axis]) for axis in axes)})"
