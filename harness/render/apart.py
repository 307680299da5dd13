"""The plots of a large result, drawn by a process of their own while this one writes all else.

Importing matplotlib and drawing take as long as the other formats together. What such a process cannot do is
done by this one in the usual way, so that nothing is lost but the time.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from rag_core.devices import usable_cpus

if TYPE_CHECKING:
    from harness.results import ResultDocument
    from harness.rows import Row

__all__ = ["Drawing", "is_worth_it"]

#: Judged values (cells times queries) from which on a second process pays for its start.
LEAST_VALUES = 5_000


def is_worth_it(document: ResultDocument) -> bool:
    """Whether there are a second CPU, matplotlib, and enough to be done meanwhile."""
    n_values = len(document.cells) * len(document.dataset.get("query_ids", ()))
    return (
        n_values >= LEAST_VALUES
        and "matplotlib" not in sys.modules
        and find_spec("matplotlib") is not None
        and usable_cpus() > 1
    )


class Drawing:
    """A process that draws the plots of a clean document and its rows into ``folder``."""

    def __init__(self, document: ResultDocument, rows: Sequence[Row], folder: Path) -> None:
        # a file, not a pipe: that would hold this process until the other has imported and reads
        with TemporaryFile(dir=folder) as told:
            pickle.dump((document, list(rows)), told, pickle.HIGHEST_PROTOCOL)
            told.seek(0)
            # -P: a folder named `harness` where the user stands must not shadow the package
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.render.apart", str(folder)],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def paths(self) -> list[Path] | None:
        """The files, once they are written; None where the process failed."""
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            printed = stream.read()
        if self._process.wait() != 0:
            return None
        return [Path(name) for name in json.loads(printed)]

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    """Draw what is read from the standard input; print the files as a list in JSON."""
    from harness.render.plots import draw_all, require

    require()
    document, rows = pickle.load(sys.stdin.buffer)
    print(json.dumps([str(path) for path in draw_all(document, rows, Path(sys.argv[1]))]))


if __name__ == "__main__":
    main()
