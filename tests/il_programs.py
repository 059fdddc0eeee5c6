"""Random programs for the preprocessor of IL: macros of every kind, conditions, `#line` and `#include`, to be compared with `gcc -E`."""

from __future__ import annotations

import random

#: Files that programs include, by name.
HEADERS = {
    "one.h": "one __LINE__ __INCLUDE_LEVEL__\n#define FROM_ONE(x) x one\n",
    "two.h": '#pragma once\n#include "one.h"\ntwo __FILE__\n#line 90 "inner.y"\n__LINE__ __FILE__\n',
    "open.h": "f(1,\n",
}
_NAMES = ("a", "b", "c", "f", "g", "h", "v", "w")
_ATOMS = (*_NAMES, *_NAMES, "x", "y", "1", "2", "0x1f", "+", "-", ",", "(", ")", "<:", "%>", '"s\\n"', "L", "u8", "'q'", ".", "__LINE__",
          "__COUNTER__", "...", "__VA_ARGS__", "1e+")  # fmt: skip
#: Of arguments: GCC gives __LINE__ of another line where a call goes over lines and ## is near, and counts for what __VA_OPT__ drops.
_ARGUMENTS = tuple(a for a in _ATOMS if a not in ("__LINE__", "__COUNTER__", "1e+"))


class Program:
    """One program: `text` is made when it is made, from a generator of random numbers."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        lines = [line for _ in range(rng.randint(2, 9)) for line in self.line(3)]
        self.text = "\n".join([*lines, "a b c f(1) g(1,2) v(1) v() w(1,2,3)", ""])

    def some(self, most: int, atoms: tuple[str, ...] = _ATOMS) -> str:
        return self.rng.choice(("", " ")).join(self.rng.choice(atoms) for _ in range(self.rng.randint(0, most)))

    def line(self, depth: int) -> list[str]:
        kind = self.rng.random()
        if kind < 0.35:
            return [self.define()]
        if kind < 0.40:
            return [f"#undef {self.rng.choice(_NAMES)}"]
        if kind < 0.55 and depth:
            return self.group(depth)
        if kind < 0.62:
            return [self.line_directive()]
        if kind < 0.65:
            return [f"#include {self.rng.choice(('<one.h>', '<two.h>', '<open.h>', '<none.h>'))}"]
        if kind < 0.67:
            return [f'#pragma {self.rng.choice(("push", "pop"))}_macro("{self.rng.choice(_NAMES)}")']
        return [self.uses()]

    def uses(self) -> str:
        return " ".join(self.rng.choice((self.call, lambda: self.some(4)))() for _ in range(self.rng.randint(1, 4)))

    def call(self, depth: int = 2) -> str:
        def argument() -> str:
            return self.call(depth - 1) if depth and self.rng.random() < 0.4 else self.some(3, _ARGUMENTS)

        arguments = ",".join(argument() for _ in range(self.rng.randint(0, 3)))
        return f"{self.rng.choice('fghvwm')}{self.rng.choice(('', ' ', chr(10)))}({arguments})"

    def define(self) -> str:
        hash_ = self.rng.choice(("#", "#", "%:"))
        name = self.rng.choice(_NAMES)
        params, names = {
            "f": ("(x)", ("x",)), "g": ("(x,y)", ("x", "y")), "h": ("()", ()), "v": ("(...)", ("__VA_ARGS__",)),
            "w": ("(x, ...)", ("x", "__VA_ARGS__")), "c": ("(y...)", ("y",)) if self.rng.random() < 0.3 else ("", ()),
        }.get(name, ("", ()))  # fmt: skip
        return f"{hash_}define {name}{params} {self.body(names, '...' in params)}"

    def body(self, params: tuple[str, ...], variadic: bool, depth: int = 2) -> str:
        parts = []
        for _ in range(self.rng.randint(0, 5)):
            kind = self.rng.random()
            if params and kind < 0.25:
                parts.append(self.rng.choice(params))
            elif params and kind < 0.33:
                parts.append(self.rng.choice(("#", "%:")) + self.rng.choice(params))
            elif kind < 0.48:
                parts.append(f"{self.operand(params)}{self.rng.choice(('##', ' ## ', '%:%:'))}{self.operand(params)}")
            elif variadic and depth and kind < 0.68:
                inner = self.body(params, variadic, 0)
                parts.append(
                    f"{self.rng.choice(('', '', '#', 'a##'))}__VA_OPT__({inner}){self.rng.choice(('', '', '##b', '##x'))}"
                )
            elif variadic and kind < 0.72:
                parts.append(f", ## {params[-1]}")
            else:
                parts.append(self.rng.choice([a for a in _ATOMS if a != "__VA_ARGS__"]))
        return self.rng.choice((" ", "")).join(p if p[-1:].isalnum() is False else p + " " for p in parts)

    def operand(self, params: tuple[str, ...]) -> str:
        return self.rng.choice((*params, *params, "a", "_", "1", "x"))

    def group(self, depth: int) -> list[str]:
        tests = {"if": self.condition, "ifdef": self.name, "ifndef": self.name}
        test = self.rng.choice((*tests, "if"))
        lines = [f"#{test} {tests[test]()}", *self.line(depth - 1)]
        for _ in range(self.rng.randint(0, 2)):
            test = self.rng.choice(tuple(tests))
            lines += [f"#el{test} {tests[test]()}", *self.line(depth - 1)]
        if self.rng.random() < 0.5:
            lines += ["#else", *self.line(depth - 1)]
        return lines + ["#endif"] * (self.rng.random() > 0.02)

    def name(self) -> str:
        return self.rng.choice((*_NAMES, "__has_include", "__LINE__", "FROM_ONE"))

    def condition(self, depth: int = 3) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            return self.rng.choice(("0", "1", "2u", "a", "b", "-1", "defined a", "defined(f)", "'a'", "__LINE__ > 5", "FROM_ONE",
                                    "__has_include(<one.h>)", '__has_include("absent.h")', "f(1)", "0x7fffffffffffffff"))  # fmt: skip
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        op = self.rng.choice(
            ("+", "-", "*", "/", "%", "<<", ">>", "<", "==", "!=", "&&", "||", "&", "|", "^", ",", "?", "!", "~", "(")
        )
        form = {"?": f"{a} ? {b} : {a}", "!": f"!{a}", "~": f"~{a}", "(": f"({a})"}.get(op, f"{a} {op} {b}")
        return form if self.rng.random() < 0.7 else f"({form})"

    def line_directive(self) -> str:
        number = self.rng.choice(("7", "100", "a", "010", "2147483647", "1 \\\n", "3 /* \n */"))
        return self.rng.choice(("#line ", "# ", "%:line ")) + number + self.rng.choice(("", ' "other.y"'))
