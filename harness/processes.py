"""Starting one measuring process, reading what it tells, and telling how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.environment import worker_environment

__all__ = ["Measuring", "measuring_process"]


@dataclass(slots=True)
class Measuring:
    """A measuring process. Iterating gives its events, as :mod:`harness.worker` writes them, until it ends;
    that it failed is no event but stands in ``reason``.

    Attributes:
        process: where it runs.
        log: what it writes to standard error.
        reason: why it failed, in its own words; empty before it has ended, or where it gave none.
    """

    process: subprocess.Popen[str]
    log: Path
    reason: str = ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "failed":
                self.reason = str(event["reason"])
            else:
                yield event
        self.process.wait()

    @property
    def failure(self) -> str:
        """Why it failed, whoever says so; empty where it ended well."""
        return self.reason or (self.ending if self.process.returncode else "")

    @property
    def ending(self) -> str:
        """:attr:`reason`, or its status or signal with the last line of its log."""
        return self.reason or _death(self.process.returncode, self.log)


@contextlib.contextmanager
def measuring_process(
    job: Mapping[str, Any], path: Path, threads: int, more: Mapping[str, str] | None = None
) -> Iterator[Measuring]:
    """The measuring process, in a session of its own so that Ctrl-C reaches the parent alone.

    Args:
        job: what it is to do; written to ``path``, ``….job.json``, with a log ``….log`` beside it.
        path: a file name.
        threads: CPU threads; 0 leaves them to it.
        more: environment variables of it alone.
    """
    path.write_text(json.dumps(job), encoding="utf-8")
    log = path.with_name(path.name.removesuffix(".job.json") + ".log")
    variables = {**worker_environment(threads), **(more or {})}
    if threads:
        variables["RAG_THREADS"] = str(threads)
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            # -P: a folder named `providers` where the user stands must not shadow the package
            [sys.executable, "-P", "-m", "harness.worker", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            env=variables,
            start_new_session=True,
        )
        try:
            yield Measuring(process, log)
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _death(status: int, log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines else ""
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the measuring process was ended by {name}{hint}{last}"
    return f"the measuring process ended with status {status} before this cell{last}"
