"""Starting one measuring process and telling how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.environment import worker_environment

__all__ = ["death_reason", "measuring_process"]


@contextlib.contextmanager
def measuring_process(job: Path, log: Path, threads: int) -> Iterator[subprocess.Popen[str]]:
    """The measuring process, in a session of its own so that Ctrl-C reaches the parent alone."""
    variables = worker_environment(threads)
    if threads:
        variables["RAG_THREADS"] = str(threads)
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            # -P: a folder named `providers` where the user stands must not shadow the package
            [sys.executable, "-P", "-m", "harness.worker", str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            env=variables,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def death_reason(status: int, log: Path) -> str:
    """Why a process that said nothing ended: its status or signal, and the last line of its log."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines else ""
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the measuring process was ended by {name}{hint}{last}"
    return f"the measuring process ended with status {status} before this cell{last}"
