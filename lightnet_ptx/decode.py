"""Makes a kernel that the machine can run out of PTX: one closure an instruction. Imports NumPy and
`lightnet.diagnostics`.

Only opcodes in the tables are understood, with their exact types and modifiers; any other is an error at its line,
since an instruction that is taken for a similar one gives wrong results silently. Calls are expanded in place (PTX
without recursion). A data-flow analysis finds the registers that may be read before they are written; only those are
watched when the kernel runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet_ptx import tree as ptx
from lightnet_ptx import wgmma
from lightnet_ptx.definedness import watched
from lightnet_ptx.kernel import Kernel, Step, Symbol
from lightnet_ptx.site import Frame, Site, storage

if TYPE_CHECKING:
    from lightnet_ptx.machine import Batch

#: Instructions of a kernel with its calls expanded, and nested calls.
MAX_CODE, MAX_CALLS = 1 << 20, 32
#: Bytes of shared memory of a block and of local memory of a thread.
MAX_SHARED, MAX_LOCAL = 227 << 10, 512 << 10
#: Unused bytes behind each variable in shared memory.
SHARED_GAP = 16


@cache
def opcodes() -> tuple[dict[str, Callable[[Site], Step]], dict[str, list[tuple[re.Pattern[str], Callable[..., Step]]]]]:
    """All instructions: makers by exact opcode, and by the word that they begin with, patterns that match a whole
    opcode.
    """
    from lightnet_ptx import (
        access,
        asynchronous,
        atomics,
        comparisons,
        control,
        conversions,
        floats,
        integers,
        matrix,
        mbarriers,
        moves,
        tma,
        warp,
    )

    exact: dict[str, Callable[[Site], Step]] = {}
    for family in (integers, floats, comparisons, conversions):
        for name, row in family.table().items():
            exact[name] = moves.computing(row)
    patterns: dict[str, list[tuple[re.Pattern[str], Callable[..., Step]]]] = {}
    for module in (moves, access, atomics, control, warp, matrix, asynchronous, mbarriers, tma, wgmma):
        exact |= module.EXACT
        for root, pattern, maker in module.PATTERNS:
            patterns.setdefault(root, []).append((re.compile(pattern), maker))
    return exact, patterns


class Decoder:
    """Decodes one entry of a module. `globals_` are the module's variables at their addresses."""

    def __init__(self, module: ptx.Module, function: ptx.Function, globals_: dict[str, Symbol]) -> None:
        self.module, self.function, self.source = module, function, module.source
        self.kernel = Kernel(function.name, module.source, function.params, function.limits)
        self.globals = globals_
        self.work: list[tuple[ptx.Instruction, Frame]] = []
        self.local_at = 0
        self.shared: dict[int, Symbol] = {}
        #: How often each name stands in the code.
        self.mentions: Counter[str] = Counter()

    def is_unread(self, result: ptx.Operand) -> bool:
        """Return whether no instruction names the register of a result but the one that sets it."""
        return isinstance(result, ptx.Reg) and (result.name == "_" or self.mentions[result.name] == 1)

    def error(self, message: str, pos: int, label: str) -> LightNetError:
        return self.source.error(message, pos, f"ptx.{label}")

    def run(self) -> Kernel:
        """The kernel. Raises LightNetError at the first thing that is not understood."""
        function, kernel = self.function, self.kernel
        assert function.body is not None
        offsets, size = kernel.param_offsets()
        if size > 4096:
            raise self.error(
                f"the parameters of {function.name} have {size} bytes, at most 4096 are allowed", function.pos, "limit"
            )
        frame = Frame(None, function.body)
        for variable, offset in zip(function.params, offsets):
            frame.symbols[variable.name] = Symbol("kparam", offset, variable.size, variable.align)
        self._lay_out()
        self._scope(function.body, frame, ())
        self._emit(ptx.Instruction("exit", (), None, function.pos), frame)
        kernel.local_bytes = self.local_at
        for instruction, _ in self.work:
            self.mentions.update(_names(instruction.operands))
            if instruction.guard is not None:
                self.mentions[instruction.guard[0]] += 1
        sites = [Site(self, instruction, frame) for instruction, frame in self.work]
        steps = [self._step(site) for site in sites]
        kernel.sites = [site.instruction for site in sites]
        kernel.tracked, steps = watched(sites, steps)
        kernel.code = wgmma.guarded(kernel, sites, steps)
        return kernel

    # -- names
    def register(self, name: str, frame: Frame | None) -> tuple[int, str] | None:
        """The slot and type of a register, None where there is none of that name."""
        while frame is not None:
            if name in frame.slots:
                return frame.slots[name]
            kind = frame.scope.registers.get(name)
            if kind is None and (match := re.fullmatch(r"(.*?)(0|[1-9]\d*)", name)):
                kind, count = frame.scope.ranges.get(match[1], (None, 0))
                kind = kind if int(match[2]) < count else None
            if kind is not None:
                frame.slots[name] = (self.kernel.slots, kind)
                self.kernel.names[self.kernel.slots] = name
                self.kernel.kinds[self.kernel.slots] = storage(kind)
                self.kernel.slots += 1
                return frame.slots[name]
            frame = frame.parent
        return None

    def symbol(self, name: str, frame: Frame | None) -> Symbol | None:
        """The variable of a name."""
        while frame is not None:
            if name in frame.symbols:
                return frame.symbols[name]
            frame = frame.parent
        variable = self.module.variables.get(name)
        if variable is not None and variable.space == "shared":
            return self.shared.get(id(variable))
        return self.globals.get(name)

    def _lay_out(self) -> None:
        """Place the shared variables that the kernel and what it calls name: the static ones, then the dynamic one."""
        kernel, named, scopes, seen = self.kernel, set(), [self.function.body], {self.function.name}
        inner: list[ptx.Variable] = []
        while scopes:
            scope = scopes.pop()
            assert scope is not None
            inner += [v for v in scope.variables if v.space == "shared"]
            for item in scope.items:
                if isinstance(item, ptx.Scope):
                    scopes.append(item)
                    continue
                for name in _names(item.operands):
                    named.add(name)
                    function = self.module.functions.get(name)
                    if item.opcode.startswith("call") and function and function.body and name not in seen:
                        seen.add(name)
                        scopes.append(function.body)
        outer = [v for v in self.module.variables.values() if v.space == "shared" and v.name in named]
        for variable in [*inner, *(v for v in outer if not v.extern)]:
            at = -(-kernel.shared_bytes // variable.align) * variable.align
            kernel.shared[variable.name] = self.shared[id(variable)] = Symbol(
                "shared", at, variable.size, variable.align
            )
            kernel.shared_bytes = at + variable.size + SHARED_GAP
            if at + variable.size > MAX_SHARED:
                raise self.error(f"shared memory of {at + variable.size} bytes", variable.pos, "limit")
        dynamic = [v for v in outer if v.extern]
        if dynamic:
            align = max(v.align for v in dynamic)
            kernel.dynamic_at = kernel.shared_bytes = -(-kernel.shared_bytes // align) * align
            for variable in dynamic:
                self.shared[id(variable)] = Symbol("shared", kernel.dynamic_at, 0, variable.align)

    # -- flattening
    def _emit(self, instruction: ptx.Instruction, frame: Frame) -> None:
        if len(self.work) >= MAX_CODE:
            raise self.error("the kernel has too many instructions with its calls expanded", instruction.pos, "limit")
        self.work.append((instruction, frame))

    def _scope(self, scope: ptx.Scope, frame: Frame, calls: tuple[str, ...]) -> None:
        for variable in scope.variables:
            self._variable(variable, frame)
        at: dict[int, list[str]] = {}
        for name, index in scope.labels.items():
            at.setdefault(index, []).append(name)
        for index, item in enumerate([*scope.items, None]):
            for name in at.get(index, ()):
                frame.labels[name] = len(self.work)
            if isinstance(item, ptx.Scope):
                self._scope(item, Frame(frame, item), calls)
            elif item is not None and item.opcode in ("call", "call.uni"):
                self._call(item, frame, calls)
            elif item is not None:
                self._guarded(item, frame)

    def _guarded(self, item: ptx.Instruction, frame: Frame) -> None:
        """An instruction that moves threads is skipped by a branch where its predicate is false."""
        root = item.opcode.split(".")[0]
        if item.guard is None or root not in _MOVING:
            self._emit(item, frame)
            return
        name, negated = item.guard
        skip = Frame(frame, ptx.Scope())
        self._emit(ptx.Instruction("bra", (ptx.Reg("$skip"),), (name, not negated), item.pos), skip)
        self._emit(ptx.Instruction(item.opcode, item.operands, None, item.pos), frame)
        skip.labels["$skip"] = len(self.work)

    def _variable(self, variable: ptx.Variable, frame: Frame) -> None:
        if variable.space == "shared":
            frame.symbols[variable.name] = self.shared[id(variable)]
        elif variable.space in ("local", "param"):
            at = -(-self.local_at // variable.align) * variable.align
            self.local_at = at + variable.size
            if self.local_at > MAX_LOCAL:
                raise self.error(f"local memory of {self.local_at} bytes", variable.pos, "limit")
            frame.symbols[variable.name] = Symbol("local", at, variable.size, variable.align)
        else:
            raise self.error(
                f".{variable.space} variables inside functions are not understood", variable.pos, "unsupported"
            )

    def _call(self, item: ptx.Instruction, frame: Frame, calls: tuple[str, ...]) -> None:
        """``call (results), f, (arguments)``: the body of f, its parameters the variables that the caller wrote."""
        operands = list(item.operands)

        def group() -> tuple[ptx.Operand, ...]:
            first = operands[0] if operands else None
            if not isinstance(first, ptx.Group):
                return ()
            del operands[0]
            return first.items

        results = group()
        name = getattr(operands.pop(0), "name", "") if operands else ""
        arguments = group()
        function = self.module.functions.get(name)
        if function is None or function.body is None or operands:
            raise self.error(f"call of {name}, which the module does not define", item.pos, "call")
        if item.guard is not None:
            raise self.error("a predicated call is not understood", item.pos, "unsupported")
        if name in calls or len(calls) >= MAX_CALLS:
            raise self.error(f"recursive call of {name}", item.pos, "call")
        if (len(results), len(arguments)) != (len(function.returns), len(function.params)):
            raise self.error(
                f"call of {name} with {len(arguments)} arguments and {len(results)} results", item.pos, "call"
            )
        inner = Frame(Frame(None, ptx.Scope()), function.body)
        assert inner.parent is not None
        for formal, actual in zip((*function.returns, *function.params), (*results, *arguments)):
            symbol = self.symbol(getattr(actual, "name", ""), frame)
            if symbol is None or symbol.space != "local" or symbol.size < formal.size:
                raise self.error(
                    f"an argument of {name} is no .param variable of {formal.size} bytes", item.pos, "call"
                )
            inner.parent.symbols[formal.name] = symbol
        start = len(self.work)
        self._scope(function.body, inner, (*calls, name))
        end = inner.labels["$return"] = len(self.work)
        for i in range(start, end):
            if self.work[i][0].opcode in ("ret", "ret.uni"):
                self.work[i] = (
                    ptx.Instruction("bra", (ptx.Reg("$return"),), None, self.work[i][0].pos),
                    self.work[i][1],
                )

    # -- closures
    def _step(self, site: Site) -> Step:
        exact, patterns = opcodes()
        maker = exact.get(site.opcode)
        step: Step | None = maker(site) if maker else None
        if step is None:
            for pattern, make in patterns.get(site.opcode.split(".")[0], ()):
                if match := pattern.fullmatch(site.opcode):
                    step = make(site, match)
                    break
        if step is None:
            raise self.error(f"instruction {site.opcode} is not understood", site.instruction.pos, "opcode")
        guard = site.instruction.guard
        if guard is None or site.opcode.split(".")[0] in ("bra", "brx"):
            return step
        return self._predicated(site, step, guard)

    def _predicated(self, site: Site, step: Step, guard: tuple[str, bool]) -> Step:
        operand = ptx.Reg(guard[0])
        test = site.reader(ptx.Not(operand) if guard[1] else operand, "pred")
        site.copies = False

        def run(batch: Batch) -> None:
            hold = test(batch.regs)
            if np.ndim(hold) == 0:
                if hold:
                    step(batch)
                return
            mask = hold if batch.mask is None else hold & batch.mask
            if mask.any():
                batch.masked(mask, step)

        return run


#: Instructions that move threads or make them wait for each other, by their first word.
_MOVING = {
    "ret",
    "exit",
    "bar",
    "barrier",
    "shfl",
    "vote",
    "match",
    "redux",
    "activemask",
    "mma",
    "ldmatrix",
    "mbarrier",
    "wgmma",
    "elect",
    "setmaxnreg",
    "trap",
    "brx",
}


def _names(operands: tuple[ptx.Operand, ...]) -> list[str]:
    """The names in operands."""
    found: list[str] = []
    for operand in operands:
        if isinstance(operand, ptx.Reg):
            found.append(operand.name)
        elif isinstance(operand, ptx.Address):
            found += _names((operand.base, *operand.coordinates))
        elif isinstance(operand, ptx.Vec | ptx.Group):
            found += _names(operand.items)
        elif isinstance(operand, ptx.Not):
            found += _names((operand.operand,))
        elif isinstance(operand, ptx.Pair):
            found += _names((operand.first, operand.second))
    return found
