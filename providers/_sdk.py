"""A service's own client in the place of httpx: a request a call, no retries of its own, no key in a log."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rag_core.wire import Reply, WireError

__all__ = ["SdkSend", "hide_in_logs"]


class SdkSend:
    """A :data:`~rag_core.wire.Send` over ``call``, which gets the JSON object of the request.

    ``call`` answers with status, headers and body, an HTTP error included; whatever it raises means that
    no whole answer came. ``close`` is called once, at the latest when this object goes.
    """

    def __init__(self, call: Callable[[dict[str, Any]], Reply], close: Callable[[], None]) -> None:
        self._call = call
        self.close = weakref.finalize(self, close)

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """Call the client.

        Raises:
            WireError: no whole answer.
        """
        try:
            status, found, raw = self._call(json.loads(body or b"{}"))
            return status, {name.lower(): str(value) for name, value in found.items()}, raw
        except Exception as error:  # noqa: BLE001 - connection errors, and what a client makes of odd answers
            said = f"cannot be reached or broke off ({type(error).__name__})"
        raise WireError(said)  # outside: those errors hold the request, and that holds the key


def hide_in_logs(logger: str, scrub: Callable[[str], str]) -> Callable[[], None]:
    """Pass what ``logger`` says through ``scrub``; returns what ends that."""

    def masked(record: logging.LogRecord) -> bool:
        record.msg, record.args = scrub(record.getMessage()), ()
        return True

    logging.getLogger(logger).addFilter(masked)
    return lambda: logging.getLogger(logger).removeFilter(masked)
