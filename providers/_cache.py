"""The folder for files that take long to make and can be made again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rag_core.folders import cache_folder

__all__ = ["cache_folder", "write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, so that no process ever sees a part of it.

    The last of several writers wins, and a writer that dies leaves ``path`` as it was.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
