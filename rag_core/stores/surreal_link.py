"""One connection to SurrealDB: the engine inside this process on a folder, or a server."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.secrets import redact
from rag_core.stores.room import Room

__all__ = ["PASSWORD", "URL", "USER", "Link", "checked_url", "open_folder", "open_server"]

URL, USER, PASSWORD = "RAG_SURREAL_URL", "RAG_SURREAL_USER", "RAG_SURREAL_PASSWORD"
LOCK = "lock"
#: In what the embedded engine says when it could not finish a record of its log.
UNFINISHED = ("IO error", "Log error")
Failures = tuple[type[Exception], ...]


class Link:
    """Sends one statement at a time; safe to share between threads.

    A connection that has been lost, or whose engine could not write, is made anew before the next statement:
    a server may have been started again, and an engine that goes on behind a record it could not finish would
    write where it never reads again.
    """

    def __init__(self, where: str, connect: Callable[[], Any], failures: Failures, held: ExitStack) -> None:
        """``connect`` gives a session that is signed in; ``held`` is taken over and released in the end."""
        self._where, self._connect, self._failures = where, connect, failures
        self._sessions = [connect()]
        held = held.pop_all()
        held.callback(_close_all, self._sessions, failures)
        self._close = weakref.finalize(self, held.close)  # also of a store that is dropped unclosed
        self._turn = threading.Lock()
        self._is_broken = False

    def query(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """The answer to one statement; the driver drops those of later ones.

        Raises:
            StoreError: the database refused it or cannot be reached.
        """
        with self._turn:
            if not self._sessions:
                raise StoreError(f"{self._where}: the connection is closed")
            if self._is_broken or _is_closed(self._sessions[0]):
                self._renew()
            try:
                return self._sessions[0].query(statement, dict(parameters or {}))
            except self._failures as error:
                self._is_broken = any(word in str(error) for word in UNFINISHED)
                raise _told(self._where, error) from None

    def close(self) -> None:
        """Release the files or the socket."""
        with self._turn:
            self._close()

    def _renew(self) -> None:
        _quietly(self._sessions[0].close, self._failures)
        self._is_broken = True  # until this has gone well
        self._sessions[0] = self._connect()
        self._is_broken = False


def open_folder(package: Any, folder: Path) -> Link:
    """The embedded engine on ``folder``, which is made where it is missing.

    The engine itself does not keep a second process out, and two would overwrite each other's rows: a lock
    on a file beside ``folder`` does.

    Raises:
        StoreError: in use by another process or another store object, or it cannot be read.
    """
    with ExitStack() as held:
        # a bare descriptor, since a file object warns when a store is dropped unclosed
        lock = os.open(folder.parent / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        held.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                f"{folder.parent} is open elsewhere, and the embedded engine serves one opener at a time; "
                f"close it there, or use a server for several ({URL}=ws://host:8000)"
            ) from error
        room = Room(folder.parent)
        url = f"surrealkv://{folder.resolve()}"
        return _link(
            package, url, str(folder.parent), held, ("rag", "rag"), around=lambda: room.opening(folder)
        )


def open_server(
    package: Any, url: str, namespace: str, database: str, env: Mapping[str, str] | None = None
) -> Link:
    """A server, as the user of ``RAG_SURREAL_USER`` and ``RAG_SURREAL_PASSWORD``; nobody where unset.

    Raises:
        StoreError: no answer, or the user is refused; the password is in no message.
    """
    values = os.environ if env is None else env
    credentials = None
    if values.get(USER):
        credentials = {"username": values[USER], "password": values.get(PASSWORD, "")}
    with ExitStack() as held:
        where = f"{url} ({namespace}/{database})"
        return _link(package, checked_url(url), where, held, (namespace, database), credentials)


def checked_url(url: str) -> str:
    """``url`` if it is a server's.

    Raises:
        InvalidArgumentError: another scheme, no host, or a user or password in it, which is not shown.
    """
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise InvalidArgumentError(
            f"the address of the SurrealDB server holds a user or password; set {USER} and {PASSWORD} instead"
        )
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise InvalidArgumentError(f"SurrealDB server {url!r}; accepted: ws://host:port or wss://host:port")
    return url


def _link(
    package: Any,
    url: str,
    where: str,
    held: ExitStack,
    names: tuple[str, str],
    credentials: Mapping[str, str] | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Link:
    from surrealdb.errors import SurrealError
    from websockets.exceptions import WebSocketException

    failures = (SurrealError, WebSocketException, RuntimeError, ValueError, OSError)
    secret = (credentials or {}).get("password", "")

    def connect() -> Any:
        session: Any = None
        try:
            with around():
                session = package.Surreal(url)
                if credentials is not None:
                    session.signin(dict(credentials))
                session.use(*names)
        except failures as error:
            if session is not None:
                _quietly(session.close, failures)
            raise _told(where, error, secret) from None
        return session

    return Link(where, connect, failures, held)


def _is_closed(session: Any) -> bool:
    """Whether the socket of a server has been closed; the embedded engine has none."""
    socket = getattr(session, "socket", None)
    return socket is not None and socket.state.name != "OPEN"


def _told(where: str, error: Exception, secret: str = "") -> StoreError:
    from websockets.exceptions import WebSocketException

    text = redact(" ".join(str(error).split()))
    if secret:
        text = text.replace(secret, "***")
    text = text[:500] or type(error).__name__
    if "://" in where and isinstance(error, (WebSocketException, OSError)):  # no answer, or none any more
        return StoreError(
            f"{where}: SurrealDB cannot be reached, or has hung up: {text}; see that the server runs, or say "
            f"where it is now with {URL}=ws://host:port, and run the same again"
        )
    return StoreError(f"{where}: SurrealDB answers {text}")


def _close_all(sessions: list[Any], failures: Failures) -> None:
    while sessions:
        _quietly(sessions.pop().close, failures)


def _quietly(call: Callable[[], Any], failures: Failures) -> None:
    """A socket that the server has closed already cannot be closed again; that is no error."""
    try:
        call()
    except failures:
        return
