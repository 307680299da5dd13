"""Files that are whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

__all__ = ["replace_file"]


def replace_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write under a temporary name, flush to disk, rename.

    Who may read it is what the process's umask says, as of the other files of an index.

    Raises:
        OSError: the disk is full or refuses; the old file stands.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
