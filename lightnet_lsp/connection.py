"""The part that pygls leaves open of the protocol's rules for requests: each gets an answer, also one that is malformed
or comes too early or late.

Imports pygls.
"""

from __future__ import annotations

from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.protocol import LanguageServerProtocol


class Connection(LanguageServerProtocol):
    """pygls' protocol, which drops such messages: an editor that waits for the answer would wait for ever."""

    is_initialized = False

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The message that the JSON object `data` is; a request that is none is answered with what is wrong."""
        try:
            return super().structure_message(data)
        except JsonRpcException as e:
            if "method" in data and isinstance(data.get("id"), int | str):
                self._send_response(data["id"], error=e.to_response_error())
            raise

    def handle_message(self, message: Any) -> None:
        """Pass on a message, if this is the time for it; notifications at the wrong time are dropped, as the protocol
        says."""
        method = getattr(message, "method", None)
        error = self._refusal(method) if method is not None else None
        if error is None:
            self.is_initialized |= method == lsp.INITIALIZE
            super().handle_message(message)
        elif (number := getattr(message, "id", None)) is not None:
            self._send_response(number, error=error.to_response_error())

    def _refusal(self, method: str) -> JsonRpcException | None:
        if method == lsp.EXIT:
            return None
        if self._shutdown:
            return JsonRpcInvalidRequest("the server is shut down")
        if not self.is_initialized and method != lsp.INITIALIZE:
            return JsonRpcServerNotInitialized("the first request has to be 'initialize'")
        return None
