"""The results of a module, to compare others with.

Imports the passes' base, `ir`, the dialects' launches and sources, and the files of this folder below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import Line
from lightnet.dialects.ln.arguments import without_arguments
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.instances import instance_of, symbols_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass
from lightnet.runtime.dtypes import DType
from lightnet.runtime.weights import WeightStore
from lightnet_trust.calls import Values, call_text, drawn_calls
from lightnet_trust.compare import says_nothing
from lightnet_trust.data import DataSet, draw
from lightnet_trust.evaluation import RememberingEvaluator
from lightnet_trust.exact import FieldEvaluator
from lightnet_trust.record import Difference, DifferenceError, Trace
from lightnet_trust.trace import execute

#: Passes that promise equal results bit for bit: `simplify` and its parts say so, the others do no arithmetic. Every
#: other pass may change rounding (`compare.tolerance`).
EXACT = frozenset({
    "bind", "simplify", "fold", "ln-cse", "ln-dce", "hoist", "combine", "defuse", "layout", "choose", "pack",
    "schedule", "plan",
    "check-plan", "cse", "dce",
})  # fmt: skip


#: On what a module is executed, as (kind of data, what to add to the seed); a small one, of so many elements in all,
#: costs so little that more is drawn: of a few numbers, few are of any kind.
USUAL = (("ordinary", 0), ("awkward", 0))
MORE = (("nonfinite", 0), ("ordinary", 1), ("awkward", 1), ("awkward", 2), ("awkward", 3))
SMALL = 1 << 14


@dataclass(frozen=True)
class CheckOptions:
    """On which data (kinds of `data.KINDS`; None: by its size), from which seed, and from which weight store beside it
    a module is executed. `exact`: bit for bit (None: as the pass promises). `budget`: bytes of results that are
    remembered. `in_field`: on the first data set, results are compared in a prime field, too (`exact.py`)."""

    data: tuple[str, ...] | None = None
    seed: int = 0
    store: WeightStore | None = None
    exact: bool | None = None
    budget: int | None = None
    in_field: bool = False

    def data_sets(self, module: ModuleOp) -> list[tuple[str, int]]:
        """The kinds and seeds of the data to draw for a module."""
        if self.data is not None:
            return [(kind, self.seed) for kind in self.data]
        elements = sum(spec.len for op in main_of(module).walk() if isinstance(op, LnOp) for spec in op.result_specs)
        return [(kind, self.seed + more) for kind, more in (USUAL + MORE if elements <= SMALL else USUAL)]

    @staticmethod
    def rounding_of(pass_: ModulePass) -> DType | None:
        """The type that a pass may round f32 to."""
        return pass_.rounds_to if isinstance(pass_, LnPass) else None

    def exact_for(self, pass_: ModulePass) -> bool:
        return pass_.name in EXACT if self.exact is None else self.exact


class NotExecutableError(LightNetError):
    """A module that cannot be executed before anything was done to it."""


class Baseline:
    """The results of a module on each data set, to compare others with. Raises `NotExecutableError` for a module that
    cannot be executed (it has no function @main of `ln` ops, say)."""

    def __init__(self, module: ModuleOp, options: CheckOptions = CheckOptions()):
        self.options = options
        self.evaluator = RememberingEvaluator(options.budget)
        self.runs: list[tuple[DataSet, Trace]] = []
        #: Executes on residues; of the runs, the first.
        self.field = FieldEvaluator(self.evaluator, options.budget) if options.in_field else None
        #: The tensors that are right by laws that the field does not have.
        self.in_floats: set[str] = set()
        self.fixed: list[bool] = []  # of each output, whether no data changes it
        try:
            module = without_arguments(module)
            self.fixed = _fixed_outputs(module)
            for values in drawn_calls(module, symbols_of(module), options.seed):
                call = instance_of(module, values) if values else module
                for kind, seed in options.data_sets(call)[: len(USUAL) if self.runs else None]:
                    drawn = draw(call, kind, seed, self.evaluator, options.store)
                    evaluator = self.evaluator_of(len(self.runs))
                    contents = {name: evaluator.intern(array) for name, array in drawn.contents.items()}
                    data = replace(drawn, values=values, contents=contents)
                    self.runs.append((data, execute(call, data.contents, evaluator)))
        except Exception as e:
            text = e.message if isinstance(e, LightNetError) else f"{type(e).__name__}: {e}"
            raise NotExecutableError(text, e.loc if isinstance(e, LightNetError) else None) from e

    def evaluator_of(self, run: int) -> RememberingEvaluator:
        """The evaluator of a run."""
        return self.evaluator if run or self.field is None else self.field

    def compare(
        self, module: ModuleOp, *, exact: bool = False, advance: bool = False, rounded: DType | None = None
    ) -> Difference | None:
        """The first difference of `module` on any data set. With `advance`, a module without any becomes the baseline:
        its tensors are those that a later one is compared with. `rounded` is the type that f32 may have been rounded to
        since."""
        self.evaluator_of(0).next_round()
        calls = _Calls(without_arguments(module))
        runs = []
        for i, (data, reference) in enumerate(self.runs):
            try:
                call, evaluator = calls.module(data), self.evaluator_of(i)
                how = partial(execute, exact=exact, rounded=rounded, in_floats=self.in_floats)
                runs.append((data, how(call, data.contents, evaluator, reference)))
            except DifferenceError as e:
                return _with(e.difference, data)
            except Exception as e:
                return _with(_failure(e), data)
        if advance and rounded is not None:  # what goes on from here are the rounded tensors
            for i, (data, checked) in enumerate(runs):
                trace = execute(calls.module(data), data.contents, self.evaluator_of(i))
                trace.compared = checked.compared
                self.runs[i] = data, trace
        elif advance:
            self.runs = runs
        return None

    def varied(
        self, before: ModuleOp, after: ModuleOp, data_set: str, *, exact: bool, rounded: DType | None
    ) -> str | None:
        """The source (``param 'two'``) without whose variation the two modules would agree on a data set, as they do
        where it holds the literal that the network says; None where they differ whatever literals hold."""
        run = next((i for i, (data, _) in enumerate(self.runs) if str(data) == data_set), None)
        if run is None or not self.runs[run][0].literals:
            return None
        (data, trace), evaluator = self.runs[run], self.evaluator_of(run)
        names = list(data.literals)
        modules = [_Calls(without_arguments(m)).module(data) for m in (before, after)]

        def agree(kept: int) -> bool:
            contents = data.contents | {name: evaluator.intern(data.literals[name]) for name in names[:kept]}
            try:
                reference = execute(modules[0], contents, evaluator)
                execute(modules[1], contents, evaluator, reference, exact=exact, rounded=rounded)
            except DifferenceError:
                return False
            return True

        if not agree(len(names)):
            return None
        name = names[first_wrong(len(names), agree) - 1]
        return f"{trace.fed[name].kind.removeprefix('ln.')} '{name}'" if name in trace.fed else f"'{name}'"

    @property
    def data(self) -> str:
        """The kinds of data, and the calls, each once."""
        kinds = ", ".join(dict.fromkeys(data.kind for data, _ in self.runs))
        calls = "; ".join(dict.fromkeys(call_text(data.values) for data, _ in self.runs if data.values))
        return f"{kinds}, where {calls}" if calls else kinds

    @property
    def compared(self) -> int:
        """The number of tensors that the last comparison looked at, on all data sets."""
        return sum(trace.compared for _, trace in self.runs)

    def notes(self) -> list[str]:
        """The notes on what the data does not prove: outputs that tell nothing on every data set, tensors that were not
        kept.
        """
        notes = []
        for i, output in enumerate(self.runs[0][1].outputs if self.runs else ()):
            if self.fixed[i]:
                continue
            numbers = [trace for data, trace in self.runs if data.kind != "nonfinite"] or [
                trace for _, trace in self.runs
            ]
            arrays = [trace.outputs[i].array for trace in numbers]
            reasons = [says_nothing(a) for a in arrays if a is not None]
            if reasons and all(reasons):
                what = " or ".join(dict.fromkeys(filter(None, reasons)))
                who = f"output '{output.name}'" if output.name else f"output {i}"
                notes.append(f"{who} is {what} on all data: its equality proves little")
        if unkept := max((trace.unkept for _, trace in self.runs), default=0):
            notes.append(f"{unkept} tensors are not compared, for want of memory; all outputs are")
        return notes


class _Calls:
    """A module as it is in the call of a data set; that of the last one is kept."""

    def __init__(self, whole: ModuleOp):
        self.whole = whole
        self._last: tuple[Values, ModuleOp] = {}, whole

    def module(self, data: DataSet) -> ModuleOp:
        if self._last[0] != data.values:
            self._last = data.values, instance_of(self.whole, data.values)
        return self._last[1]


def first_wrong(count: int, wrong: Callable[[int], bool]) -> int:
    """A number of steps up to `count` (rewrites, say) after which the result is `wrong`, and after one less is not,
    found by bisection: it is wrong after all of them, and right after none."""
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if wrong(middle) else (middle, bad)
    return bad


def _fixed_outputs(module: ModuleOp) -> list[bool]:
    """For each output, whether it depends on nothing that can be fed, so that any data says all there is to say."""
    fed: set[SSAValue] = set()
    block = main_of(module).body.block
    for op in block.ops:
        if isinstance(op, Source | OnceOp) or any(v in fed for v in op.operands):
            fed.update(op.results)
    last = block.last_op
    return [v not in fed for v in last.operands] if last is not None else []


def lowered_to(module: ModuleOp) -> str | None:
    """An op that says that the module is no network of `ln` ops any more, but what a target lowers one to; None
    else."""
    others = None
    for op in module.walk():
        if isinstance(op, LnOp | KernelOp | OnceOp):
            return None
        if others is None and op.name.partition(".")[0] not in ("builtin", "func", "ln"):
            others = op.name
    return others


def is_level4(module: ModuleOp) -> bool:
    """Return whether the module is kernel functions and a `@main` that is a list of launches, which may be empty."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == "main" and len(op.body.blocks) == 1:
            lines = list(op.body.block.ops)
            kinds = Line | func.ReturnOp
            launched = all(isinstance(line, kinds) and not line.operands for line in lines)
            return launched and (len(lines) > 1 or bool(memory_of(module)))
    return False


def compare_modules(
    before: ModuleOp, after: ModuleOp, *, exact: bool = False, options: CheckOptions = CheckOptions()
) -> Difference | None:
    """The first difference between what two modules of level 1 to 3 compute on the same data, or None.

    Compared are the outputs (names, types, order, values), every named tensor that both have, what is printed, and the
    types of what can be fed. A module that cannot be executed any more is a difference. Raises `NotExecutableError`
    where `before` cannot be executed.
    """
    return Baseline(before, options).compare(after, exact=exact)


def _with(difference: Difference, data: DataSet) -> Difference:
    return Difference(**{**vars(difference), "data": str(data)})


def _failure(error: Exception) -> Difference:
    if isinstance(error, LightNetError):
        return Difference("fails", f"the module cannot be executed any more: {error.message}", loc=error.loc)
    return Difference("fails", f"the module cannot be executed any more: {type(error).__name__}: {error}")
