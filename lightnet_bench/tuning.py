"""Forms of kernels, measured inside the running network: which of those that the model of time finds nearly as good as
its best is faster here.

Every kernel gets its next form at once, so that one compilation tries as many forms as there are kernels: the network
with these forms and the one with the model's run in turn, kernel by kernel, in the order of the network, whose caches
are what they will be. A form is kept where an interval says that it is faster; at last both networks are compared as
wholes, and where that does not bear it out, nothing is kept. Imports the CPU's selection: other targets are not tuned.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.generator import Plan
from lightnet.backends.selection import written_choices
from lightnet.cli.network import Network, run_options
from lightnet.cli.run import fed_inputs
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.memory import WORKSPACE_SIZE
from lightnet.ir.passes import Instrumentation
from lightnet.ir.target import Request, get_target
from lightnet.passes.choose import ChoosePass
from lightnet.passes.graph import graphs
from lightnet.passes.tuned import kernel_key
from lightnet.tables import shortened, some, table
from lightnet_bench.intervals import CONFIDENCE, SLOWER, Interval, interval
from lightnet_bench.kernels import Kernel, kernels_of, plain_text, take_rounds
from lightnet_bench.rotation import paired
from lightnet_bench.sides import Side
from lightnet_debug.profile import kernel_name

#: How much longer than the best a form may take by the model; how many forms of a kernel are tried at most; rounds of
#: each trial at least; the part of the budget that is for the comparison at the end.
WITHIN, FORMS, ROUNDS, LAST = 1.3, 8, 10, 0.25
#: Choices that are not tuned: how a kernel is run, and what its layout decides.
_FIXED = ("lanes", "threads", "specialize", WORKSPACE_SIZE)
HEADER = ("kernel", "times", "choices", "predicted us", "measured us", "measured/predicted", "beside the model's")


@dataclass
class Form:
    """One form of a kernel: choices, nanoseconds by the model, seconds as measured (None: not yet), and the ratio to
    the model's form, measured in turn with it."""

    choices: Mapping[str, Attribute]
    predicted: float
    seconds: float | None = None
    ratio: Interval | None = None

    @property
    def text(self) -> str:
        """The choices as a line of the file has them."""
        return "; ".join(f"{k}={plain_text(v)}" for k, v in self.choices.items())


@dataclass
class Tunable:
    """A distinct kernel: its key, the tensors of those that there are of it, the model's form first, then others in the
    order of what the model thinks of them."""

    key: str
    names: list[str]
    forms: list[Form]

    @property
    def best(self) -> Form:
        """The fastest form that is faster than the model's for certain; else that."""
        sure = [f for f in self.forms[1:] if f.ratio is not None and f.ratio.high < 1]
        return min(sure, key=lambda f: f.ratio.ratio if f.ratio else 1.0, default=self.forms[0])


class _Forms(Instrumentation):
    """Collects the distinct kernels of a network and their forms, behind `choose`; not those that had their algorithm
    before."""

    def __init__(self) -> None:
        self.found: dict[str, Tunable] = {}
        self._chosen: set[int] = set()

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if isinstance(pass_, ChoosePass):
            self._chosen = {
                id(k) for b in graphs(module) for k in b.ops if isinstance(k, KernelOp) and choice(k, "alg")
            }

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if not isinstance(pass_, ChoosePass):
            return
        request = Request(pass_.features, pass_.threads, pass_.exact, pass_.weight_memory, pass_.precision, pass_.most)
        for kernel in [k for block in graphs(module) for k in block.ops if isinstance(k, KernelOp)]:
            if id(kernel) in self._chosen or SELECTION.made(kernel) is None:
                continue
            key = kernel_key(kernel)
            if key not in self.found:
                self.found[key] = Tunable(key, [], forms_of(kernel, request))
            self.found[key].names.append(kernel_name(kernel))


def forms_of(kernel: KernelOp, request: Request) -> list[Form]:
    """The form that a kernel has, and others within `WITHIN` of the model's best: first those of other generators, then
    this one's with one number of its choices halved or doubled, those first that the model thinks as good (what it
    thinks better is often what it does not know the price of: tiles that take more registers than there are)."""
    made = SELECTION.made(kernel)
    assert made is not None
    own = {k: v for k, v in kernel.choices.items() if k not in _FIXED}
    found, offered = {_text(own): Form(own, made.plan.time)}, 1
    wanted_ones = [*map(_of_plan, made.offers), *_varied(own)]
    for number, wanted in enumerate(wanted_ones):
        if number == len(made.offers):
            offered = len(found)
        trial = kernel.clone()
        for name in trial.choices:
            if name not in ("lanes", "threads"):
                del trial.attributes[name]
        trial.attributes.update(wanted)
        try:
            taken = get_target("cpu").choose(trial, request)
            plan = SELECTION.made(trial)
            everything = {k: v for k, v in {**taken, **wanted}.items() if k not in _FIXED}
            if plan is not None and plan.plan.time <= WITHIN * made.plan.time:
                found.setdefault(_text(everything), Form(everything, plan.plan.time))
        except LightNetError:
            pass  # no form of this kernel
        finally:
            trial.erase()
    offered = len(found) if len(wanted_ones) == len(made.offers) else offered
    first, *others = found.values()
    others[offered - 1 :] = sorted(others[offered - 1 :], key=lambda f: abs(f.predicted - made.plan.time))
    return [first, *others[:FORMS]]


def _of_plan(plan: Plan) -> dict[str, Attribute]:
    return {k: v for k, v in {"alg": StringAttr(plan.alg), **written_choices(plan.choices)}.items() if k not in _FIXED}


def _varied(own: Mapping[str, Attribute]) -> Iterator[dict[str, Attribute]]:
    """Choices with one number halved or doubled; all others stay, so that what is tried is what is written down."""
    for name, value in own.items():
        numbers = _numbers(value)
        for k, n in enumerate(numbers or ()):
            for other in dict.fromkeys((n // 2, 2 * n)):
                if other > 0 and numbers is not None:
                    changed = [*numbers[:k], other, *numbers[k + 1 :]]
                    yield {**own, name: choice_attr(changed if isinstance(value, ArrayAttr) else other)}


def _numbers(value: Attribute) -> list[int] | None:
    data: list[Any] = list(value.data) if isinstance(value, ArrayAttr) else [value]
    if not all(isinstance(v, IntegerAttr | IntAttr) for v in data):
        return None
    return [v.value.data if isinstance(v, IntegerAttr) else v.data for v in data]


def _text(choices: Mapping[str, Attribute]) -> str:
    return "; ".join(f"{k}={plain_text(v)}" for k, v in sorted(choices.items()))


@dataclass
class Tuning:
    """A network, tuned: its distinct kernels, whether the forms that are faster by themselves are kept, `whole` the
    ratio of the tuned network to the other, the trials, and the seconds it took."""

    network: str
    machine: str
    kernels: list[Tunable]
    whole: Interval | None = None
    kept: bool = True
    trials: int = 0
    took: float = 0.0

    @property
    def better(self) -> list[Tunable]:
        """The kernels that have a faster form."""
        return [k for k in self.kernels if k.best is not k.forms[0]]

    def file(self) -> str:
        """The file of choices: a line for each kernel that is faster, by key."""
        lines = [f"# {self.network}, tuned on {self.machine}"]
        for k in sorted(self.better if self.kept else [], key=lambda k: k.key):
            first, best = k.forms[0], k.best
            us = [f"{1e6 * (f.seconds or 0):.1f}" for f in (first, best)]
            lines.append(f"{k.key} {best.text}  # {shortened(k.names[0], 40)}: {us[0]} -> {us[1]} us, {best.ratio}")
        return "\n".join(lines) + "\n"

    def text(self) -> str:
        """A table of every form that was measured, beside what the model said, and the outcome."""
        rows = [_row(k, f) for k in self.kernels for f in k.forms if f.seconds is not None]
        number = len(self.better) if self.kept else 0
        lines = [table(HEADER, rows), "", *self.study()]
        tried = f"{some(self.trials, 'trial')}, {self.took:.1f} s"
        lines.append(f"{some(number, 'kernel')} of {len(self.kernels)} faster in another form ({tried})")
        if self.whole is not None:
            lines.append(f"the whole network, tuned/untuned: {self.whole}{'' if self.kept else ': nothing is kept'}")
        return "\n".join(lines)

    def study(self) -> list[str]:
        """The model judged by the forms that were measured: the median of measured over predicted, and
        in how many pairs of forms of a kernel the faster one is the one it says."""
        times = [(f.predicted, 1e9 * f.seconds) for k in self.kernels for f in k.forms if f.seconds and f.predicted]
        pairs = [(a.predicted - b.predicted) * (1 if a.seconds > b.seconds else -1)
                 for k in self.kernels for i, a in enumerate(k.forms) for b in k.forms[:i]
                 if a.seconds and b.seconds and a.predicted != b.predicted]  # fmt: skip
        if not times:
            return []
        middle = statistics.median(seconds / predicted for predicted, seconds in times)
        said = (
            f"; the faster of two forms is told in {sum(p > 0 for p in pairs)} of {len(pairs)} pairs" if pairs else ""
        )
        return [f"measured over predicted: median {middle:.2f} of {some(len(times), 'form')}{said}"]


def _row(kernel: Tunable, form: Form) -> tuple[str, ...]:
    is_first, seconds = form is kernel.forms[0], form.seconds or 0.0
    head = (shortened(kernel.names[0], 28), str(len(kernel.names))) if is_first else ("", "")
    share = f"{1e9 * seconds / form.predicted:.2f}" if form.predicted else ""
    beside = "the model's" if is_first else str(form.ratio or "")
    return *head, shortened(form.text, 60), f"{1e-3 * form.predicted:.1f}", f"{1e6 * seconds:.1f}", share, beside


def tune(args: argparse.Namespace, path: str, budget: float, progress: Callable[[str], None]) -> Tuning:
    """Tune a network for about `budget` seconds (one trial at least). Raises LightNetError for targets and networks
    that have no kernels on this processor."""
    from lightnet.runtime.threads import processors

    begin = time.monotonic()
    if args.target != "cpu":
        raise LightNetError(f"tune is for kernels of target cpu, and not of {args.target}")
    network, forms = Network(args, path), _Forms()
    network.model()
    progress("compiling")
    base = _side(args, network, {}, instrumentation=[forms])
    base.feeds.update(fed_inputs(args, network, base.executable))
    walk, kernels = kernels_of(base)
    found = Tuning(os.path.basename(path), f"{base.executable.options.get('cpu', 'host')}, {processors()} processors",
                   list(forms.found.values()))  # fmt: skip
    by_name = {name: k.key for k in found.kernels for name in k.names}
    generations = max((len(k.forms) for k in found.kernels), default=1) - 1
    for number in range(1, generations + 1):
        progress(f"trial {number} of {generations}")
        tried = {k.key: k.forms[number] for k in found.kernels if len(k.forms) > number}
        trial = _side(args, network, base.feeds, tuned=_lines(tried))
        other, others = kernels_of(trial)
        for kernel in (*kernels, *others):
            kernel.seconds.clear()
        each = max((1 - LAST) * budget - (time.monotonic() - begin), 0) / (generations + 1 - number)
        take_rounds([(walk, kernels), (other, others)], each / 2, ROUNDS)
        _note(found, tried, by_name, kernels, others, CONFIDENCE, generations)
        found.trials = number
        if time.monotonic() - begin > (1 - LAST) * budget:
            break
    if found.better:
        progress("the whole network")
        last = _side(args, network, base.feeds, tuned=_lines({k.key: k.best for k in found.better}))
        last.call()
        left = max(LAST * budget, 1.0)
        clock = base.clock or time.perf_counter
        times = paired((base.places(), last.places()), left, lambda r: r.is_decided(0.0), clock,
                       progress=lambda r, took: progress(f"tuned/untuned {r}"))  # fmt: skip
        found.whole = times.interval()
        found.kept = found.whole.verdict() != SLOWER and found.whole.ratio <= 1
    found.took = time.monotonic() - begin
    return found


def _side(args: argparse.Namespace, network: Network, feeds: Mapping[str, Any], **more: Any) -> Side:
    options = {**run_options(args), **({"layout": args.layout} if args.layout else {}), **more}
    executable = network.compile(args.target, threads=args.threads, **options)
    if not executable.is_native:
        raise executable.no_code("tune")
    return Side("A", network.path, executable, dict(feeds), args.threads)


def _lines(forms: Mapping[str, Form]) -> str:
    return "".join(f"{key} {form.text}\n" for key, form in forms.items()) + "\n"


def _note(
    found: Tuning, tried: Mapping[str, Form], by_name: Mapping[str, str], first: Sequence[Kernel],
    second: Sequence[Kernel], confidence: float, trials: int,
) -> None:  # fmt: skip
    """Write down what a trial measured: each form's time a kernel, and its ratio to the model's form."""
    sums: list[dict[str, list[float]]] = [{}, {}]
    for k, kernels in enumerate((first, second)):
        for kernel in kernels:
            if (key := by_name.get(kernel.name)) is not None:
                known = sums[k].setdefault(key, [0.0] * len(kernel.seconds))
                sums[k][key] = [a + b for a, b in zip(known, kernel.seconds)]
    for tunable in found.kernels:
        a, b = sums[0].get(tunable.key), sums[1].get(tunable.key)
        if not a or not b:
            continue
        count = len(tunable.names)
        tunable.forms[0].seconds = tunable.forms[0].seconds or statistics.median(a) / count
        if (form := tried.get(tunable.key)) is not None:
            logs = [math.log(y / x) for x, y in zip(a, b) if x > 0 and y > 0]
            form.seconds, form.ratio = statistics.median(b) / count, interval(logs, confidence, 1 / trials)
