"""The answers instead of a result. Imports the diagnostics and the standard library."""

from __future__ import annotations

import json
from typing import Any

from lightnet.diagnostics import printable

#: How much of a value an answer shows.
_SHOWN = 60


class RequestError(Exception):
    """A request that is answered with an error: the text, the status of HTTP (400: the request is wrong), and after how
    many seconds it may be sent again, where that makes sense."""

    def __init__(self, message: str, status: int = 400, retry_after: int | None = None):
        super().__init__(message)
        self.message, self.status, self.retry_after = printable(message), status, retry_after


def shown_value(value: Any) -> str:
    """A value out of a request for an error: its JSON, cut where it is long. A long list or object is not written whole
    first."""
    if isinstance(value, str):
        text = json.dumps(value[: _SHOWN + 1])
    elif isinstance(value, list) and (len(value) > _SHOWN or any(isinstance(v, list | dict) for v in value)):
        text = f"a list of {len(value)}"
    elif isinstance(value, dict):
        text = f"an object of {len(value)}"
    elif isinstance(value, int) and value.bit_length() > 400:
        text = "an integer of hundreds of digits"
    else:
        text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
