"""Packs of index notation (``i...``): how many indices each stands for, which follows from the ranks of the tensors
that it indexes.

Imports `expr` and `statements`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

from lightnet.ir.expr import Attr, Expr, Index, Name, Pack
from lightnet.ir.expr import walk as walk_expr
from lightnet.ir.statements import Assignment
from lightnet.ir.types import TensorSpec


class Packs:
    """The packs of a statement `s`. `number` gives the value of a constant expression; `fail` raises an error at a
    position, or at the statement's."""

    def __init__(
        self,
        s: Assignment,
        specs: Mapping[str, TensorSpec],
        params: Collection[str],
        number: Callable[[Expr, str], int],
        fail: Callable[..., NoReturn],
    ):
        self.s, self.specs, self.params = s, specs, params
        self.number, self.fail = number, fail

    def _subscript_lists(self) -> Iterator[tuple[tuple[Any, ...], int | None, int]]:
        """Every subscript list of a tensor, with the rank where it is known, and its position."""
        for t in self.s.targets:
            spec = self.specs.get(t.name)
            yield t.subs, 1 if t.flat else spec and spec.ndim, t.pos
        for e in walk_expr(self.s.value):
            if isinstance(e, Index) and (name := indexed_tensor(e)) in self.specs:
                yield e.subs, self.specs[name].ndim if isinstance(e.base, Name) else 1, e.pos

    def solved(self) -> dict[str, int]:
        """The size of every pack of the statement."""
        lists = list(self._subscript_lists())
        sizes: dict[str, int | None] = {}
        for subs, _, pos in lists:
            for sub in subs:
                if not isinstance(sub, Pack):
                    continue
                for name in self.names(sub):
                    sizes.setdefault(name, None)
                if sub.count is not None and isinstance(sub.pattern, Name):  # `name:count...`
                    self._set_size(sizes, sub.pattern.name, self.number(sub.count, "the size of a pack"), pos)
        while any(v is None for v in sizes.values()):
            if not any(self._solve(subs, rank, pos, sizes) for subs, rank, pos in lists):
                unknown = next(n for n, v in sizes.items() if v is None)
                self.fail(f"the size of pack '{unknown}' does not follow from the ranks; write {unknown}:size...")
        return {n: v for n, v in sizes.items() if v is not None}

    def _solve(self, subs: tuple[Any, ...], rank: int | None, pos: int, sizes: dict[str, int | None]) -> bool:
        """Fix the one pack of unknown size in a subscript list of known rank; whether that told anything new."""
        packs = [self.names(s)[0] for s in subs if isinstance(s, Pack)]
        unknown = [p for p in packs if sizes[p] is None]
        if rank is None or len(set(unknown)) != 1:
            return False
        rest = rank - (len(subs) - len(packs)) - sum(sizes[p] or 0 for p in packs)
        if rest < 0 or rest % len(unknown):
            self.fail(f"too many subscripts for a tensor of rank {rank}", pos)
        self._set_size(sizes, unknown[0], rest // len(unknown), pos)
        return True

    def _set_size(self, sizes: dict[str, int | None], name: str, size: int, pos: int) -> None:
        if sizes.get(name) not in (None, size):
            self.fail(f"pack '{name}' has {sizes[name]} indices here and {size} there", pos)
        if not 0 <= size <= 8:
            self.fail(f"pack '{name}' of {size} indices", pos)
        sizes[name] = size

    def names(self, pack: Pack) -> list[str]:
        names: dict[str, None] = {}
        for e in walk_expr(pack.pattern):
            if isinstance(e, Name) and e.name not in self.params and e.name not in self.specs:
                names[e.name] = None
        return list(names) or self.fail("a pack needs an index", pack.pos)


def indexed_tensor(e: Index) -> str:
    """The tensor that is indexed, or one of whose attributes (``x.dims``) is; "" for none."""
    base = e.base.base if isinstance(e.base, Attr) else e.base
    return base.name if isinstance(base, Name) else ""
