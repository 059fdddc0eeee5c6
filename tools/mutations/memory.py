"""Mutants of the memory plan. `check-plan`, which runs at the end of `plan`, is taken out with each: it would catch them."""

from __future__ import annotations

from mutations.mutant import Edit, Mutant

_UNCHECKED = Edit(
    "passes/plan.py",
    '        check_plan(op, capacity=capacity + 1 if self.plan == "upstream" else capacity, alignment=alignment)\n',
    "",
)


def _plan(mutant: str, what: str, network: str, *edits: Edit, passes: str = "plan") -> Mutant:
    return Mutant(mutant, what, (*edits, _UNCHECKED), passes, "plan", None, network)


#: %a is read by two ops, of which the second could work in place.
_READ_TWICE = """
%x = ln.input : tensor<64xf32> as ("x")
%a = ln.exp %x : tensor<64xf32>
%b = ln.neg %a : tensor<64xf32>
%c = ln.tanh %b : tensor<64xf32>
%d = ln.elew %a, %c {elew_op = "TL_SUM"} : tensor<64xf32>
%e = ln.elew %d, %b {elew_op = "TL_SUM"} : tensor<64xf32>
func.return %e : tensor<64xf32>
"""

_HALVES = """
%x = ln.input : tensor<8x16xf32> as ("x")
%a = ln.exp %x : tensor<8x16xf32>
%h = ln.slice %a {axis = 0, start = 4, len = 4} : tensor<4x16xf32>
%n = ln.neg %h : tensor<4x16xf32>
%s = ln.reduce_sum %a {axes = [0]} : tensor<1x16xf32>
func.return %n, %s : tensor<4x16xf32>, tensor<1x16xf32>
"""

_PARAMS = """
%x = ln.input : tensor<64xf32> as ("x")
%p = ln.param : tensor<64xf32> as ("p")
%q = ln.param : tensor<64xf32> as ("q")
%a = ln.elew %x, %p {elew_op = "TL_SUM"} : tensor<64xf32>
%b = ln.elew %a, %q {elew_op = "TL_MUL"} : tensor<64xf32>
func.return %b : tensor<64xf32>
"""

#: A cache that grows, and a sum of what it has become.
_GROWING = """
%k = ln.input {required = true} : tensor<2x?x5xf32, #ln.dims<"past(1..30)">> as ("k")
%n = ln.input {required = true} : tensor<2x1x5xf32> as ("n")
%all = ln.concat %k, %n {axis = 1} : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 1">>
%s = ln.reduce_sum %all {axes = [1]} : tensor<2x1x5xf32>
func.return %all, %s : tensor<2x?x5xf32, #ln.dims<"past(1..30) + 1">>, tensor<2x1x5xf32>
"""

MUTANTS = (
    _plan(
        "dies-after-first-read", "lets a value live to its first reader only", _READ_TWICE,
        Edit("passes/plan_buffers.py", "last, size = max(readers), byte_size(value.type)",
             "last, size = min(readers), byte_size(value.type)"),
    ),
    _plan(
        "overwrites-what-is-read-later", "works in place on operands that other ops have yet to read", _READ_TWICE,
        Edit("passes/plan_buffers.py", "if j in taken or source.upper != i + 1 or source.protected",
             "if j in taken or source.protected"),
        Edit("passes/plan_buffers.py", "if first.upper != second.lower + 1 or s.offset != t_offset",
             "if s.offset != t_offset"),
    ),
    _plan(
        "offset-one-alignment-low", "puts every buffer one alignment too low", _READ_TWICE,
        Edit("passes/plan.py", "{id(g): plan.offsets[problem.ids[id(g)]] - g.lo for g in problem.groups}",
             "{id(g): max(0, plan.offsets[problem.ids[id(g)]] - alignment) - g.lo for g in problem.groups}"),
    ),
    _plan(
        "static-tensors-overlap", "puts all static tensors at the start of their space", _PARAMS,
        Edit("passes/plan.py", "base[id(group)] = align_up(top, alignment) - group.lo", "base[id(group)] = -group.lo"),
    ),
    _plan(
        "static-in-arena", "puts static tensors where the arena's offsets are counted", _PARAMS,
        Edit("passes/plan.py", "PlaceAttr(s.group.space, base[id(s.group)] + s.offset)", "PlaceAttr(ARENA, base[id(s.group)] + s.offset)"),
    ),
    _plan(
        "buffers-too-small", "packs every buffer as if it had half its size", _READ_TWICE,
        Edit("passes/plan_buffers.py", "max(s.freed for s in self.slots), number(self.hi - self.lo), alignment)",
             "max(s.freed for s in self.slots), number(self.hi - self.lo) // 2, alignment)"),
    ),
    _plan(
        "view-written-elsewhere", "takes a slice for the start of its source", _HALVES,
        Edit("ir/views.py", "            views.append(View(pieces[0].operand, j, pieces[0].offset))",
             "            views.append(View(pieces[0].operand, j, 0))"),
        Edit("passes/plan_buffers.py", "        if same:\n            return self._in_place_move", "        if same or True:\n            return True or self._in_place_move"),
    ),
    _plan(
        "upstream-frees-too-early", "upstream's plan frees an operand after its first use", _READ_TWICE,
        Edit("passes/plan_upstream.py", "            if not self.uses[root] and not is_kept_by_upstream(root):", "            if self.uses[root] == 1 and not is_kept_by_upstream(root):"),
        passes="plan{plan=upstream}",
    ),
    Mutant(
        "new-elements-not-written", "writes what a tensor that grows was, and leaves out what is new",
        (
            Edit("backends/kernel_loops.py", "s.value.tensor == growing.get(s.tensor) and s.value.subs == s.subs",
                 "s.value.tensor != growing.get(s.tensor)"),
        ),
        "expand,grow-caches{caches=all},choose,plan,lower-cpu", "lower-cpu", None, _GROWING,
    ),
)  # fmt: skip
