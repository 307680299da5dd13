"""A set of keys that moves to a file of its own once it is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SeenKeys"]

#: Keys held in memory, about 12 MB of them; all further ones, and these, go to the file.
IN_MEMORY = 1 << 17
CACHE_KIB = 32_768


class SeenKeys:
    """Tells of each key whether it is new. Memory stays below about 50 MB, however many keys there are.

    The file is a temporary one, which the system removes with the process.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        """``in_memory``: keys up to which no file is made."""
        self._keys: set[bytes] = set()
        self._in_memory = in_memory
        self._file: sqlite3.Connection | None = None

    def add(self, key: bytes) -> bool:
        """Take in ``key``; True where it was not known."""
        if self._file is not None:
            return self._file.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 1
        if key in self._keys:
            return False
        self._keys.add(key)
        if len(self._keys) > self._in_memory:
            self._spill()
        return True

    def _spill(self) -> None:
        import sqlite3

        self._file = sqlite3.connect("", isolation_level=None)  # a name that is empty: a temporary file
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._file.execute("BEGIN")
        self._file.executemany("INSERT INTO seen VALUES (?)", ((key,) for key in sorted(self._keys)))
        self._keys.clear()

    def close(self) -> None:
        """Remove the file."""
        self._keys.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
