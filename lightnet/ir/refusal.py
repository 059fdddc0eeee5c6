"""The refusal: the answer "no" with its reason, in the place of what is asked for.

Who only wants to know whether there is an answer looks no further than that it is false, and empty. Imports nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Refusal(tuple[Any, ...]):
    """No answer, and why: a clause about what was asked for ("the window is 7 x 7"). `values` are put into its braces
    when somebody reads it; they are numbers, names and other refusals, as answers are kept and ops are not.
    """

    _said: tuple[str, tuple[object, ...]]

    def __new__(cls, why: str, *values: object) -> Refusal:
        self = super().__new__(cls)
        self._said = why, values
        return self

    @property
    def why(self) -> str:
        """The reason; empty where none was given."""
        text, values = self._said
        return text.format(*values) if values else text

    def __str__(self) -> str:
        return self.why

    __repr__ = __str__


def begins_otherwise(ops: Sequence[Any], wanted: str) -> Refusal:
    """The refusal of a body that does not begin with what is `wanted`."""
    return Refusal("it begins with {}, not with {}", ops[0].optype if ops else "no op", wanted)


def refusal_reason(answer: object) -> str:
    """The reason of an answer that is none; empty where it has none (None, an empty list)."""
    return answer.why if isinstance(answer, Refusal) else ""
