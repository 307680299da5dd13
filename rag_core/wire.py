"""The one seam through which every HTTP provider sends: what recording, replaying and tests take hold of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

__all__ = ["Reply", "Send", "WireError", "Wrap", "tapped", "through"]

#: Status, headers with lower-case names, whole body.
Reply: TypeAlias = tuple[int, Mapping[str, str], bytes]
#: ``send(method, url, headers, body)``. The headers never hold the key: the innermost sender adds it, so
#: that whatever stands in between can write down what it sees.
Send: TypeAlias = Callable[[str, str, Mapping[str, str], bytes | None], Reply]
Wrap: TypeAlias = Callable[[Send], Send]

_wraps: list[Wrap] = []
_lock = threading.Lock()


class WireError(Exception):
    """No whole answer came: no connection, a broken one, or none in time. Raised by a :data:`Send`."""


@contextmanager
def tapped(wrap: Wrap) -> Iterator[None]:
    """Inside the block, in every thread, requests go through ``wrap(send)`` in place of ``send``.

    The block entered last stands outermost. ``wrap`` is called once a request, so it keeps what it
    knows between requests in itself.
    """
    with _lock:
        _wraps.append(wrap)
    try:
        yield
    finally:
        with _lock:
            _wraps.remove(wrap)


def through(send: Send) -> Send:
    """``send`` inside everything that is tapped now."""
    with _lock:
        wraps = list(_wraps)
    for wrap in wraps:
        send = wrap(send)
    return send
