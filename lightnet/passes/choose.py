"""`choose`: which algorithm a kernel uses, and with which parameters."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from lightnet.diagnostics import LightNetError, near_or_all
from lightnet.ir import budget
from lightnet.ir.instances import symbols_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.op import tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Request, Target, get_target
from lightnet.passes.graph import graphs
from lightnet.passes.tuned import choice_value, measured, tuned_choices, tuned_text
from lightnet.runtime.dims import Symbol
from lightnet.runtime.program import unknown

#: Choices that every kernel may have, whatever its target returns for it.
ANY_KERNEL = ("alg", "lanes", "threads")


@dataclass(frozen=True)
class ChoosePass(LnPass):
    """Write the target's choices on each kernel.

    ```mlir
    cpu.kernel(%x_ = %x, ...) { ... ln.conv2d ... }  ->  cpu.kernel(%x_ = %x, ...) choices {alg = "direct"} { ... }
    ```

    A choice may change rounding and nothing else. Those that a kernel has already stay: people pin them by hand, or
    read them from a file; and `set` overrides them: ``choose{set="conv1.alg=direct;conv1.tile=[1, 14, 2, 8]"}``, where
    a kernel goes by a tensor that it makes, or an op in it. `features` are those of the machine to compile for (cpu:
    avx512, avx2, neon; cuda: the architecture), `threads` how many a kernel is shaped for, `most` how many may share it
    (0: as many); `exact` refuses algorithms that sum something else than the definition does (Winograd's);
    `weight_memory` is how many bytes transformed weights may take beyond the plain ones; `precision` (cuda) is to what
    the factors of products of f32 may be rounded: ``f32``, not at all, or ``tf32``; `specialize` (cpu) names values of
    dims that calls decide, for which kernels get code of their own where that is faster, beside that for all:
    ``choose{specialize="length=128,384;batch=1"}``. ``choose{from="net.tuned"}`` takes choices that were measured
    (`lightnet tune`) for the kernels that a file, or an executable, has some for, where they still can be. It stands
    before `pack` and `plan`, because layouts of weights and workspace depend on it. A kernel that no generator takes as
    it is, and for which nothing is pinned, runs on row-major memory, or op by op, with a warning.
    """

    name = "choose"
    level = "kernels"
    target: str = "cpu"
    features: str = ""
    threads: int = 1
    most: int = 0
    exact: bool = False
    weight_memory: int | None = None
    precision: str = "f32"
    set: str = ""
    specialize: str = ""
    tuned: str = ""
    renamed: ClassVar = {"from": "tuned"}

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        if self.threads < 1 or self.most < 0 or (self.weight_memory or 0) < 0:
            raise LightNetError(
                f"choose: threads = {self.threads}, most = {self.most} and weight-memory = {self.weight_memory}: at "
                "least one thread, and no negative "
                "number of bytes",
                label="choose.limits",
            )
        special = _values(self.specialize, symbols_of(op)) if self.specialize else {}
        if special and not target.specializes:
            what = f"target {target.name} has no faster code for values of dims ({', '.join(special)})"
            raise LightNetError(f"specialize: {what}: give the sizes, as in --dim", label="choose.specialize")
        request = Request(
            self.features, self.threads, self.exact, self.weight_memory, self.precision, self.most, special
        )
        pinned = _parsed(self.set)
        tuned = tuned_choices(tuned_text(self.tuned)) if self.tuned else {}
        for block in graphs(op):
            kernels = deque(kernel for kernel in block.ops if isinstance(kernel, KernelOp))
            free = []
            while kernels:
                budget.check(kernel := kernels.popleft())
                given = {k: v for name in _names(kernel) for k, v in pinned.pop(name, {}).items()}
                if given.get("alg", (alg := kernel.attributes.get("alg"))) != alg:
                    for name in kernel.choices.keys() - {"lanes", "threads"}:  # those of another algorithm
                        del kernel.attributes[name]
                kernel.attributes.update(given)
                before = dict(kernel.attributes)
                try:
                    found = measured(kernel, tuned, target, request) or target.choose(kernel, request)
                except LightNetError as refusal:
                    kernel.attributes = before
                    kernels.extendleft(reversed(_plainer(kernel, refusal, target, op)))
                    continue
                if "alg" not in before:
                    free.append(kernel)
                _check_taken(kernel, given, found)
                for key, value in found.items():
                    kernel.attributes.setdefault(key, value)
            target.settle(free, request)
        if pinned:
            known = (name for block in graphs(op) for k in block.ops if isinstance(k, KernelOp) for name in _names(k))
            raise LightNetError(
                f"choose: no kernel has an op or tensor '{(who := str(next(iter(pinned))))}', whose choices `set` names"
                f"{near_or_all(who, dict.fromkeys(filter(None, known)))}",
                label="choose.set",
            )


def _plainer(kernel: KernelOp, refusal: LightNetError, target: Target, module: ModuleOp) -> list[KernelOp]:
    """The kernels that take the place of one that no generator takes as it is; raises `refusal` where nothing can."""
    from lightnet.passes.fallback import plainer  # hardly ever needed

    return plainer(kernel, refusal, target, module)


def _check_taken(kernel: KernelOp, given: Mapping[str, Attribute], found: Mapping[str, Attribute]) -> None:
    """Raise `LightNetError` for a choice of `set` that means nothing to the kernel: it would stand there, and change
    nothing."""
    known = {*found, *ANY_KERNEL}
    for key, value in given.items():
        if key not in known:
            there = f"{', '.join(sorted(k for k in known if '.' not in k))}"
            raise LightNetError(f"choose: {key} is no choice of this {kernel.name}; there are: {there}", loc_of(kernel),
                                label="choose.set")  # fmt: skip
        if found.get(key, value) != value:
            raise LightNetError(f"choose: {key} = {value} is no choice of this {kernel.name}, which takes such as "
                                f"{found[key]}",
                                loc_of(kernel), label="choose.set")  # fmt: skip


def _names(kernel: KernelOp) -> list[str | None]:
    """The names that a kernel may be called by: a tensor that it makes, inside or out, or an op of its body."""
    inside = (name for op in kernel.ops for name in (op.op_name, *op.tensor_names))
    return list(dict.fromkeys((*tensor_names(kernel), *inside)))


def _values(text: str, symbols: Mapping[str, Symbol]) -> dict[str, tuple[int, ...]]:
    """``length=128,384;batch=1`` as values by name. Raises `LightNetError` for anything else, and for what no call can
    decide."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(";"):
        name, _, values = part.partition("=")
        if (name := name.strip()) not in symbols:
            raise LightNetError(unknown("dim that calls decide", name, symbols).message, label="choose.specialize")
        try:
            found[name] = tuple(dict.fromkeys(int(value) for value in values.split(",")))
            for value in found[name]:
                symbols[name].check(value)
        except ValueError as e:
            said = e if str(e).startswith(name) else f"'{part}' should be name=value,…, as in length=128,384"
            raise LightNetError(f"specialize: {said}", label="choose.specialize") from None
    return found


def _parsed(text: str) -> dict[str | None, dict[str, Attribute]]:
    """``name.choice=value;…`` as tensor name -> choice -> attribute. Raises `LightNetError` for anything else."""
    found: dict[str | None, dict[str, Attribute]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        left, equals, right = part.partition("=")
        name, dot, key = left.strip().rpartition(".")
        if not (equals and dot and name and key.isidentifier()):
            raise LightNetError(
                f"choose: '{part}' should be name.choice=value, as in conv1.alg=direct", label="choose.set"
            )
        found.setdefault(name, {})[key] = choice_value(right.strip())
    return found
