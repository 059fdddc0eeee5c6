"""Sizes that a call decides, as LLVM IR: what grids and places of a launch list are is computed from the symbols, which
the frame has behind the addresses. Imports `runtime.dims`."""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.runtime.dims import Atom, Dim, Quotient, Size, Symbol


class SizeTexts:
    """The sizes of one function: `lines` compute them, each once. `symbols` is the order that the frame has, `first` is
    the word in it where they begin; `given` are operands with their values, where the function has these."""

    def __init__(self, symbols: Sequence[Symbol], first: int, declared: dict[str, str], given: Sequence[str] = ()):
        self.symbols, self.first, self.declared = [s.name for s in symbols], first, declared
        self.lines: list[str] = []
        self._known: dict[object, str] = dict(zip(self.symbols, given))

    def of(self, size: Size) -> str:
        """A size as an operand of type i64."""
        if not isinstance(size, Dim):
            return str(size)
        return self._once(size, lambda: self._sum(size))

    def symbol(self, name: str) -> str:
        """The value of a symbol."""
        k = self.symbols.index(name)
        return self._once(name, lambda: self._loaded(k))

    def _loaded(self, k: int) -> str:
        word = self._made(f"getelementptr i64, ptr %frame, i64 {self.first + k}")
        return self._made(f"load i64, ptr {word}, align 8")

    def _once(self, key: object, make) -> str:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _made(self, text: str) -> str:
        name = f"%n{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def _sum(self, dim: Dim) -> str:
        total = ""
        for term, c in dim.terms.items():
            part = str(c)
            for atom in term:
                value = self._once(atom, lambda atom=atom: self._atom(atom))
                part = value if part == "1" else self._made(f"mul i64 {part}, {value}")
            total = self._made(f"add i64 {total}, {part}") if total else part
        return total

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            value = self.symbol(atom.name)
            return value if atom.multiple == 1 else self._made(f"sdiv exact i64 {value}, {atom.multiple}")
        if isinstance(atom, Quotient):
            return self._floor(atom)
        function = f"llvm.s{atom.fn}.i64"
        self.declared[function] = f"declare i64 @{function}(i64, i64)"
        a, b = map(self.of, atom.args)
        return self._made(f"call i64 @{function}(i64 {a}, i64 {b})")

    def _floor(self, quotient: Quotient) -> str:
        """The quotient, rounded down, of what may be negative: the rest that C leaves is taken out first."""
        value, by = self.of(quotient.dividend), quotient.divisor
        if quotient.dividend.low < 0:
            rest = self._made(f"srem i64 {value}, {by}")
            up = self._made(f"add i64 {rest}, {by}")
            value = self._made(f"sub i64 {value}, {self._made(f'srem i64 {up}, {by}')}")
        return self._made(f"sdiv i64 {value}, {by}")
