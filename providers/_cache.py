"""The folder for files that take long to make and can be made again."""

from __future__ import annotations

from pathlib import Path

from rag_core import index_files
from rag_core.folders import cache_folder

__all__ = ["cache_folder", "write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, so that no process ever sees a part of it; its folder is made.

    The last of several writers wins, and a writer that dies leaves ``path`` as it was.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    index_files.write_whole(path, data)
