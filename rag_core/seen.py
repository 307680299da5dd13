"""A mapping of keys to numbers, and a set of keys, that move to a file of their own once they are large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import sqlite3

__all__ = ["KeyPlaces", "SeenKeys"]

#: Keys held in memory, about 12 MB of them; all further ones, and these, go to the file.
IN_MEMORY = 1 << 16
CACHE_KIB = 8_192


class KeyPlaces:
    """Key -> number, the last one given. Memory stays below about 20 MB, however many keys there are.

    The file is a temporary one, which the system removes with the process.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        """``in_memory``: keys up to which no file is made."""
        self._keys: dict[bytes, int] = {}
        self._in_memory = in_memory
        self._file: sqlite3.Connection | None = None

    def __setitem__(self, key: bytes, place: int) -> None:
        if self._file is not None:
            self._file.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (key, place))
            return
        self._keys[key] = place
        if len(self._keys) > self._in_memory:
            self._spill()

    def setdefault(self, key: bytes, place: int) -> bool:
        """Take in ``key``; True where it was not known, False, with nothing changed, where it was."""
        if self._file is not None:
            return self._file.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, place)).rowcount == 1
        if key in self._keys:
            return False
        self[key] = place
        return True

    def get(self, key: bytes) -> int:
        """The number of ``key``, -1 where it is not known."""
        if self._file is None:
            return self._keys.get(key, -1)
        found = self._file.execute("SELECT place FROM seen WHERE key = ?", (key,)).fetchone()
        return -1 if found is None else int(found[0])

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) >= 0

    def __len__(self) -> int:
        if self._file is None:
            return len(self._keys)
        return int(self._file.execute("SELECT COUNT(*) FROM seen").fetchone()[0])

    def _spill(self) -> None:
        import sqlite3

        # A name that is empty: a temporary file. One thread at a time uses it, not always the same.
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.execute("CREATE TABLE seen (key BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID")
        self._file.execute("BEGIN")
        self._file.executemany("INSERT INTO seen VALUES (?, ?)", sorted(self._keys.items()))
        self._keys.clear()

    def clear(self) -> None:
        """Forget everything, and remove the file."""
        self._keys.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


class SeenKeys:
    """Tells of each key whether it is new; as frugal as :class:`KeyPlaces`."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        """``in_memory``: keys up to which no file is made."""
        self._keys = KeyPlaces(in_memory)

    def add(self, key: bytes) -> bool:
        """Take in ``key``; True where it was not known."""
        return self._keys.setdefault(key, 0)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def close(self) -> None:
        """Remove the file."""
        self._keys.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
